"""The right to change a dataset at a URL.

`url_change` describes what a change does, and what protects it from other writers.
"""

from __future__ import annotations

import errno
from contextlib import contextmanager
from functools import partial

from .._format.zarr_metadata import ZARR_JSON
from .._storage.file_systems import ErrorNames
from .._storage.upload import check_writable, conflict
from .._storage.urls import is_url, local_path
from ..exceptions import StorageError, UsageError
from . import create
from .folder import JOURNAL
from .layouts import prepare_change
from .url_change import (
    ArrayChange,
    TableChange,
    UrlChange,
    complete,
    journal_of,
    with_claim,
)
from .url_create import creating_at_url
from .url_folder import UNFINISHED, UrlFolder
from .writer import SerialWriter, SharedWriter, Writer

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .._storage.protocols import Path, StorageOptions
    from .change import Change
    from .folder import Folder


class UrlWriter(Writer):
    """An array at a URL that is open for changes."""

    _folder: UrlFolder
    _change: type[UrlChange] = ArrayChange

    def __init__(self, folder: UrlFolder) -> None:
        check_writable(folder.root)
        SerialWriter.__init__(self, folder)
        self._failed = self._claimed = False
        self._version = folder.object_version(self._change.guard)
        folder.forget_document()  # another writer may have changed it until now
        self._complete()

    def _complete(self) -> None:
        """Complete the change of a writer that died."""
        if complete(self._folder):  # of a copy of a folder
            self._folder.remove(JOURNAL)
            self._version = self._folder.object_version(self._change.guard)

    def lock(self, folder: Folder) -> None:
        """Do nothing: the dataset is guarded as a whole."""

    def _claim(self) -> bytes:
        """Return a content of the guard that changes nothing but its version."""
        return with_claim(self._folder.read(ZARR_JSON))

    def _remove_left_guard(self) -> None:
        """Remove the guard of a call that died when it had created the dataset.

        So a process that is late can't take it for a dataset that is not complete.
        """
        version = self._folder.object_version(UNFINISHED)
        if version:
            self._folder.remove(UNFINISHED, version)

    def _check_unchanged(self) -> None:
        """Do nothing: the guard shows whether another writer was here."""

    @contextmanager
    def _changed(
        self, take_over: Callable[[], object], disturbs: bool
    ) -> Iterator[Change]:
        folder, guard = self._folder, self._change.guard
        if self._failed:
            raise StorageError(
                errno.EIO, "an earlier change failed: open it again", folder.root
            )
        self._failed = True
        if not self._claimed:
            self._version = folder.put(guard, self._claim(), self._version)
            self._claimed = True
            self._check_unchanged()
            self._remove_left_guard()
        change = self._change(folder, self._version)
        try:
            yield change
        except (UsageError, ValueError, TypeError):  # the values do not fit
            self._failed = False
            raise
        else:
            self._commit(change, take_over, disturbs)
            self._version = change.version
            self._failed = False
        finally:
            change.close()

    def _release(self) -> None:
        """Do nothing: there is no lock."""


class UrlTableWriter(UrlWriter):
    """A table at a URL that is open for changes."""

    _change = TableChange

    def _complete(self) -> None:
        if complete(self._folder):
            self._version = self._folder.put(JOURNAL, self._claim(), self._version)
            self._claimed = True
        elif not self._version:
            self._folder.kept = {}

    def _claim(self) -> bytes:
        return journal_of({}, [])

    def _check_unchanged(self) -> None:
        """Raise `Conflict` if another writer has changed the table since it was read.

        There was no journal then, and there may have been one meanwhile.
        """
        folder = self._folder
        for name, content in (folder.kept or {}).items():
            if folder.read(name) != content:
                raise conflict(ErrorNames(folder.path(name), None))
        folder.kept = None

    def _release(self) -> None:
        """Remove the journal if it is still the own one."""
        if self._claimed:
            self._folder.remove(JOURNAL, self._version)


class UrlGroupWriter(SharedWriter):
    """A group at a URL that is open for changes. Several writers may have it open."""

    _folder: UrlFolder

    def __init__(self, folder: UrlFolder) -> None:
        check_writable(folder.root)
        SerialWriter.__init__(self, folder)

    @contextmanager
    def _changed(
        self, take_over: Callable[[], object], disturbs: bool
    ) -> Iterator[Change]:
        """Raise `Conflict` if another writer has changed the group meanwhile."""
        folder = self._folder
        change = UrlChange(folder, folder.object_version(ZARR_JSON))
        yield change
        self._commit(change, take_over, disturbs)


def writer_of(folder: Folder, layout: str, kind: str, sync: bool) -> Writer:
    """Return a writer for an array or a table."""
    prepare = _preparing(folder, layout, sync)
    if not isinstance(folder, UrlFolder):
        return Writer(folder, sync, prepare=prepare)
    prepare()
    return UrlTableWriter(folder) if kind == "table" else UrlWriter(folder)


def group_writer_of(folder: Folder, layout: str, sync: bool) -> SharedWriter:
    """Return a writer for a group."""
    prepare = _preparing(folder, layout, sync)
    if not isinstance(folder, UrlFolder):
        return SharedWriter(folder, sync, prepare)
    prepare()
    return UrlGroupWriter(folder)


def _preparing(folder: Folder, layout: str, sync: bool) -> Callable[..., None]:
    """Return the function that is called with the first change of a dataset.

    At a URL it is called without one, when the dataset is opened: the guard of a table
    is not its document.
    """
    around = partial(shared_writer_of, sync=sync)
    return partial(prepare_change, layout, folder, around)


def shared_writer_of(folder: Folder, sync: bool) -> SharedWriter:
    """Return a writer for a group, which prepares nothing."""
    if isinstance(folder, UrlFolder):
        return UrlGroupWriter(folder)
    return SharedWriter(folder, sync)


@contextmanager
def creating(
    path: Path,
    layout: str,
    mode: str,
    sync: bool,
    storage_options: StorageOptions | None = None,
) -> Iterator[Change]:
    """Yield a change of a new dataset, which is there when the block ends.

    `mode` is ``'x'`` for a name that must be free, or ``'w'`` to replace a dataset.
    """
    path = local_path(path)
    if is_url(path) and layout == "zarr":
        new_files = creating_at_url(path, mode, storage_options)
    else:
        new_files = create.creating(path, mode, sync)
    with new_files as change:
        yield change
