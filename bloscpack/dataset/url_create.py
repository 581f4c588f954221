"""New datasets at URLs: a guard shows that a folder is not complete.

Strategy: the object `UNFINISHED`, the guard, is stored with a new token in a folder
that is empty, or is going to be emptied. While it has this token, all that is in the
folder belongs to the call that stored it. The commit point is the document of the root,
which is stored last; then the guard is removed.

A call that finds another guard has lost the folder: it reports a `Conflict`, also if
its document is stored. The call that has the guard replaces that document.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, suppress

from .._format.zarr_metadata import ZARR_JSON
from .._storage.upload import check_writable
from ..exceptions import StorageError, UsageValueError
from .create import check_mode
from .layouts import find, table_around
from .url_change import UrlChange
from .url_folder import UNFINISHED, UrlFolder

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .._storage.protocols import StorageOptions
    from .change import Change


class Claim:
    """The right to create a dataset in a folder; `version` is that of the guard."""

    def __init__(self, folder: UrlFolder, mode: str) -> None:
        self._folder = folder
        self._mode = mode
        self.version = ""

    def check_free(self) -> str:
        """Return the version of the guard that is to be replaced.

        Raises an error if there is something that must stay.
        """
        check_writable(self._folder.root)
        check_mode(self._mode)
        version = self._folder.object_version(UNFINISHED)
        check_place(self._folder, self._mode)
        return version

    def take(self) -> None:
        """Store the guard, and remove what is in the folder."""
        self.version = make_empty(self._folder, self.check_free())

    def check(self) -> None:
        """Raise `Conflict` if another call has taken the folder."""
        self._folder.check_version(UNFINISHED, self.version)

    def commit(self, root: bytes, version: str) -> None:
        """Store the document of the root, which has a version; remove the guard."""
        self.check()
        self._folder.put(ZARR_JSON, root, version)  # commit point
        self.check()  # a call that took the folder just before has removed shards
        self._folder.remove(UNFINISHED, self.version)

    def discard(self) -> None:
        """Empty the folder, unless another call has taken it."""
        if self.version:
            with suppress(StorageError):
                self.version = make_empty(self._folder, self.version)
                self._folder.remove(UNFINISHED, self.version)


class NewChange(UrlChange):
    """The objects of a new dataset.

    The folder is taken when the first object is going to be stored: a wrong call must
    not remove a dataset.
    """

    guard = UNFINISHED

    def __init__(self, folder: UrlFolder, mode: str) -> None:
        super().__init__(folder, "")
        self._claim = Claim(folder, mode)
        self._claim.check_free()
        self._may_be_stored = False

    def _find_version(self, name: str) -> None:
        if not self._claim.version:
            self._claim.take()
            self._versions[self.guard] = self._claim.version
        self._versions.setdefault(name, "")

    def stage(self, name: str, content: bytes) -> None:
        """Store an object when the change is committed."""
        self._contents[name] = content

    def commit(self) -> None:
        """Store the staged objects, and ``zarr.json`` last."""
        self.owner.check(self._root.path())
        root = self._contents.pop(ZARR_JSON)
        for name, content in self._contents.items():
            self._find_version(name)
            self._put(name, content)
        self._contents.clear()
        self._find_version(ZARR_JSON)
        # That of a call that has lost the folder, as all in it is of this call.
        late = self._at.object_version(ZARR_JSON)
        self._may_be_stored = True
        self._claim.commit(root, late)

    def discard(self) -> None:
        """Remove what was stored, if possible, after an error."""
        with suppress(StorageError):
            if not self.owner.is_here:
                return
            if not self._may_be_stored or self._at.is_leftover:
                self._claim.discard()


def check_place(folder: UrlFolder, mode: str) -> None:
    """Raise ``FileExistsError`` if there can't be a new dataset in a folder.

    `mode` is ``'x'`` for a folder that must be empty, or ``'w'`` to replace a dataset.
    """
    if table_around(folder) is not None:
        raise UsageValueError(
            "'%s' is a column of a table: remove the column from the table, and add "
            "another one" % folder.root
        )
    if not folder.names("") or folder.is_leftover:
        return
    if mode == "x":
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), folder.path())
    if find(folder) is None:
        raise StorageError(
            errno.EEXIST,
            "it is not a dataset, and is not replaced by one",
            folder.path(),
        )


def make_empty(folder: UrlFolder, version: str | None = None) -> str:
    """Remove all but `UNFINISHED` from the folder of a dataset; return its version.

    Raises `Conflict` if `UNFINISHED` has not the expected `version`, if that is given.
    """
    version = folder.put(UNFINISHED, os.urandom(8).hex().encode(), version)
    if folder.object_version(ZARR_JSON):
        folder.remove(ZARR_JSON)  # commit point: it is no dataset from now on
    folder.remove_all(but=UNFINISHED)
    return version


def remove_dataset(folder: UrlFolder) -> None:
    """Remove a dataset, in one step for all who look for it."""
    version = make_empty(folder)
    folder.remove(UNFINISHED, version)


@contextmanager
def creating_at_url(
    url: str, mode: str, storage_options: StorageOptions | None
) -> Iterator[Change]:
    """Yield a change that creates a dataset at a URL, as `create.creating`."""
    change = NewChange(UrlFolder(url, storage_options=storage_options), mode)
    try:
        yield change
        change.commit()
    except BaseException:
        change.discard()
        raise
