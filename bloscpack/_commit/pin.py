"""Detect that files were replaced since they were read: `Pin`.

The files of a dataset are replaced, and never changed in place. So the items of several
reads are of one state if each file that the reads have used is still there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from .._engine.forks import Owner
from .._storage.folder_store import AboutPath, FolderStore
from .._storage.store import Store
from ..exceptions import UsageError


class DatasetChanged(AboutPath):
    """A dataset has changed since it was opened with ``pinned=True``."""

    text = "it has changed since it was opened with pinned=True: open it again"


class ReadChanged(DatasetChanged):
    """A dataset has changed while all of it was read, to be copied or compared."""

    text = (
        "it was changed while it was read: dataset.snapshot makes a copy of one moment"
    )


class Pin:
    """The files that one process has read of a dataset. Any thread may use it.

    A group and the members that are opened through it have the same one. A ZIP file
    stays open, so its files are not compared.
    """

    def __init__(self, path: str, error: type[DatasetChanged] = DatasetChanged) -> None:
        self.path, self._owner, self._error = path, Owner(), error
        # The identity of each file by folder and name; None for a missing file.
        self._seen: dict[tuple[str, str], tuple[Store, object]] = {}
        self._is_at_end = False

    def refuse_copy(self) -> NoReturn:
        """Raise the error for a copy in another process, which misses later reads."""
        raise UsageError(
            "'%s' was opened with pinned=True, which compares what one process reads: "
            "open it in the other process" % self.path
        )

    def note(self, store: Store, name: str, identity: object) -> None:
        """Note a file that is read; raise `DatasetChanged` if it was another before."""
        if isinstance(store, FolderStore):
            known = self._seen.setdefault((store.root, name), (store, identity))
            if known[1] != identity:
                raise self._error(self.path)

    @property
    def has_changed(self) -> bool:
        """Whether a file that was read was replaced or removed."""
        for (_, name), (store, identity) in [*self._seen.items()]:
            try:
                if store.identity(name) != identity:
                    return True
            except OSError:  # the folder was removed
                return True
        return False

    def check(self) -> None:
        """Raise `DatasetChanged` if a file that was read was replaced or removed.

        In a child process, which knows only the reads before the fork, it is an error.
        """
        if not self._owner.is_here:
            self.refuse_copy()
        if not self._is_at_end and self.has_changed:
            raise self._error(self.path)

    @contextmanager
    def at_end(self) -> Iterator[None]:
        """Compare at the end of the block what its reads have used, and not for each.

        Comparing all files for each of many reads would take much longer than reading.
        """
        self._is_at_end = True
        try:
            yield
        finally:
            self._is_at_end = False
        self.check()
