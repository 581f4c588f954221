"""A change of a dataset, which is applied as a whole or not at all.

Strategy: new contents are written to files in the folder ``.bloscpack`` of the dataset.
A content that does not disturb the old state (`Change.write`) gets its name at once.
The others (`Change.stage`) get their names in `Change.commit`. The commit point is

* for one staged file, the rename that gives it its name;
* for several, or if files are removed, the rename of a journal,
  ``.bloscpack/journal``, which lists them. Readers that see the journal read the new
  contents. Then the files get their names, and the journal is removed. If the process
  dies meanwhile, the next writer does the rest.

With `sync`, all contents are on the disk before the commit point. Only one writer at a
time has a dataset open (`FolderLock`).
"""

from __future__ import annotations

import errno
import os
from _thread import allocate_lock
from contextlib import contextmanager, suppress
from itertools import count

from .._engine.forks import Owner
from .._storage.disk import NO_ROOM, disk
from ..exceptions import StorageError
from .folder import CHANGES, JOURNAL, encode_json

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from .folder import Folder


class UnfinishedFile:
    """A new file for the name `name`, which is open, and still has the name `place`."""

    def __init__(self, name: str, place: str, fp: BinaryIO) -> None:
        self.name = name
        self.place = place
        self.fp = fp


class Change:
    """New contents of files in a dataset; `commit` applies them.

    Names are relative to the dataset, as `Folder.full` returns them. Any thread may
    write and stage.
    """

    def __init__(self, folder: Folder, sync: bool = True) -> None:
        self._root = folder if not folder.prefix else type(folder)(folder.root)
        self._sync = sync
        self.owner = Owner()
        self._staged: dict[str, str] = {}  # name → name of its new content
        self._removed: list[str] = []
        self._folders: set[str] = set()  # with names that are not on the disk yet
        self._numbers = count()
        # A reader that has seen the journal of another change must not take a file of
        # this one for a file of that change.
        self._token = os.urandom(8).hex()
        self._lock = allocate_lock()

    @property
    def path(self) -> str:
        """The folder of the dataset."""
        return self._root.path()

    def write(self, name: str, content: bytes) -> None:
        """Write a file at once: the old state can be read with its new content."""
        self.finish(self._begin_with(name, content), at_once=True)

    def stage(self, name: str, content: bytes) -> None:
        """Write the content that a file gets when the change is committed."""
        self.finish(self._begin_with(name, content), at_once=False)

    def remove(self, name: str) -> None:
        """Remove a file when the change is committed."""
        self._removed.append(name)

    def make_folder(self, name: str) -> None:
        """Make a folder, unless there is one."""
        path = self._root.path(name)
        if not os.path.isdir(path):
            self._root.check_inside(name)
            disk.make_folder(path)
            self._folders.add(os.path.dirname(path))

    def begin(self, name: str) -> UnfinishedFile:
        """Return a new file, whose content is written in pieces.

        `finish` or `abandon` must follow.
        """
        with self._lock:
            if not self._root.is_folder(CHANGES):
                disk.make_folder(self._root.path(CHANGES))
        place = "%s/%s-%d" % (CHANGES, self._token, next(self._numbers))
        return UnfinishedFile(name, place, disk.create(self._root.path(place), 0o666))

    def finish(self, file: UnfinishedFile, *, at_once: bool) -> None:
        """Give a file its name, `at_once` like `write`, or else like `stage`."""
        self._close(file)
        if at_once:
            self._rename(file.place, file.name)
        else:
            self._staged[file.name] = file.place

    def _close(self, file: UnfinishedFile) -> None:
        with file.fp:
            if self._sync:
                disk.sync(file.fp)

    def abandon(self, *files: UnfinishedFile) -> None:
        """Close and remove files."""
        for file in files:
            with suppress(OSError):  # closing writes the buffer: the disk may be full
                self.owner.close_file(file.fp)
        for file in files if self.owner.is_here else ():
            disk.remove(self._root.path(file.place))

    def _begin_with(self, name: str, content: bytes) -> UnfinishedFile:
        file = self.begin(name)
        try:
            file.fp.write(content)
            file.fp.flush()
        except BaseException:
            self.abandon(file)
            raise
        return file

    def _rename(self, temporary: str, name: str) -> None:
        path = self._root.path(name)
        # Each time: a link may have taken the place of a folder meanwhile.
        self._root.check_inside(name.rpartition("/")[0] or name)
        disk.rename(self._root.path(temporary), path)
        self._folders.add(os.path.dirname(path))

    def commit(self) -> None:
        """Give the staged contents their names, all of them or none."""
        self.owner.check(self.path)
        self._sync_folders()
        if len(self._staged) > 1 or self._removed:
            files = {new.rpartition("/")[2]: name for name, new in self._staged.items()}
            content = encode_json({"files": files, "removed": self._removed})
            journal = self._begin_with(JOURNAL, content)
            self._close(journal)
            self._folders.add(self._root.path(CHANGES))
            self._sync_folders()
            disk.rename(
                self._root.path(journal.place), self._root.path(JOURNAL)
            )  # commit point
            self._folders.add(self._root.path(CHANGES))
            self._sync_folders()
            complete(self._root, self._sync)
        else:
            for name, new in self._staged.items():
                self._rename(new, name)  # commit point
            self._sync_folders()
        self._staged.clear()

    def _sync_folders(self) -> None:
        if self._sync:
            for folder in sorted(self._folders):
                disk.sync_folder(os.path.join(folder, "name"))
        self._folders.clear()


def complete(folder: Folder, sync: bool = True) -> None:
    """Give the files of a committed change their names, and remove its journal."""
    removed = folder.read_journal()
    folders = {folder.path(CHANGES)}
    for name, new in folder.pending.items():
        folder.check_inside(name.rpartition("/")[0] or name)
        with suppress(FileNotFoundError):  # it has its name already
            disk.rename(folder.path(new), folder.path(name))
        folders.add(os.path.dirname(folder.path(name)))
    completing = Change(folder, sync)
    for name, content in folder.documents.items():  # of a copy from an object store
        completing.write(name, content)
    completing.commit()
    for name in removed:
        folder.check_inside(name.rpartition("/")[0] or name)
        with suppress(FileNotFoundError):  # it was removed already
            disk.remove(folder.path(name))
            folders.add(os.path.dirname(folder.path(name)))
    if sync:
        for path in sorted(folders):
            disk.sync_folder(os.path.join(path, "name"))
    if folder.exists(JOURNAL):
        disk.remove(folder.path(JOURNAL))
        if sync:
            disk.sync_folder(folder.path(JOURNAL))
    folder.pending.clear()
    folder.documents.clear()


def recover(folder: Folder, sync: bool = True) -> None:
    """Complete the change of a writer that died; remove what it had not committed."""
    if not folder.is_folder(CHANGES):
        if folder.exists(CHANGES):
            raise StorageError(
                errno.ENOTDIR,
                "expected the folder of changes, found something else",
                folder.path(CHANGES),
            )
        return
    complete(folder, sync)
    remove_changes(folder)


@contextmanager
def naming_dataset(path: str, unfinished: str | None = None) -> Iterator[None]:
    """Let errors name the dataset if the disk is full, or a temporary folder fails.

    `unfinished` is how the path of a temporary folder begins.
    """
    try:
        yield
    except OSError as error:
        name = error.filename
        is_inside = unfinished is not None and str(name).startswith(unfinished)
        if is_inside or (name is None and error.errno in NO_ROOM):
            error.filename = path
            del error.filename2  # None would be shown
        raise


def remove_changes(folder: Folder) -> None:
    """Remove the folder of changes, which holds nothing that was committed."""
    if not folder.is_folder(CHANGES):
        return
    for name in os.listdir(folder.path(CHANGES)):
        disk.remove(os.path.join(folder.path(CHANGES), name))
    disk.remove_folder(folder.path(CHANGES))
