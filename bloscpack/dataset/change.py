"""A change of a dataset, which is applied as a whole or not at all.

Strategy: new contents are written to files in the folder ``.bloscpack`` of the dataset.
A content that does not disturb the old state (`Change.write`) gets its name at once.
The others (`Change.stage`) get their names in `Change.commit`. The commit point is

* for one staged file, the rename that gives it its name;
* for several, or if files are removed, the rename of a journal,
  ``.bloscpack/journal``, which lists them. Readers that see the journal read the new
  contents. Then the files get their names, and the journal is removed. If the process
  dies meanwhile, the next writer does the rest.

With `sync`, all contents and the names of their folders are on the disk before the
commit point. Only one writer at a
time has a dataset open (`FolderLock`).
"""

from __future__ import annotations

import errno
import os
import stat
from _thread import allocate_lock
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, BinaryIO

from .._commit.ownership import Attributes, attributes_in, is_new_folder
from .._commit.trust import (
    CHANGES,
    DATASET_RULES,
    JOURNAL,
    check_in_dataset,
    folder_of_changes,
)
from .._engine.forks import Owner
from .._storage.disk import NO_ROOM, disk
from .._storage.folder_store import FolderStore
from ..exceptions import StorageError, UsageValueError
from .access import Access, Model, NewAccess, folder_of
from .folder import Folder, encode_json

if TYPE_CHECKING:
    from ..serializers import Json

# Permission bits of a file and a folder until they get the access of others.
PRIVATE = 0o600
PRIVATE_FOLDER = 0o700


class UnfinishedFile:
    """A new file for the name `name`, which is open, and still has the name `place`.

    It gets the access `like`, or the usual access.
    """

    def __init__(
        self, name: str, place: str, fp: BinaryIO, like: Attributes | None = None
    ) -> None:
        self.name = name
        self.place = place
        self.fp = fp
        self.like = like

    def content(self) -> bytes:
        """Close the file, and return its content."""
        with self.fp as fp:
            fp.seek(0)
            return fp.read()


class Change:
    """New contents of files in a dataset; `commit` applies them, all or none.

    Names are relative to the dataset, as `Folder.full` returns them. Any thread may
    write and stage.

    Attributes
    ----------
    folder
        The folder of the dataset.
    is_committing
        Whether `commit` was called: if it fails, the state is not known.
    """

    def __init__(self, folder: Folder) -> None:
        self.folder = folder.whole()
        self.owner = Owner()
        self.is_committing = False
        self._lock = allocate_lock()

    def write(self, name: str, content: bytes) -> None:
        """Write a file at once: the old state can be read with its new content."""
        raise NotImplementedError

    def stage(self, name: str, content: bytes) -> None:
        """Write the content that a file gets when the change is committed."""
        raise NotImplementedError

    def staged_identity(self, name: str) -> object:
        """Return what `Folder.identity` returns for a staged file when it is committed.

        None if that is unknown.
        """
        return None

    def remove(self, name: str) -> None:
        """Remove a file when the change is committed."""
        raise NotImplementedError

    def make_folder(self, name: str) -> None:
        """Make a folder, unless there is one."""
        raise NotImplementedError

    def model_of(self, name: str) -> Model | None:
        """Return the access of a dataset inside of a new one; None for the usual."""
        return None

    def begin(self, name: str) -> UnfinishedFile:
        """Return a new file, whose content is written in pieces.

        `finish` or `abandon` must follow.
        """
        raise NotImplementedError

    def finish(self, file: UnfinishedFile, *, at_once: bool) -> None:
        """Give a file its name, `at_once` like `write`, or else like `stage`."""
        raise NotImplementedError

    def abandon(self, *files: UnfinishedFile) -> None:
        """Close files, whose content is lost."""
        for file in files:
            with suppress(OSError):  # closing writes the buffer: the disk may be full
                self.owner.close_file(file.fp)

    def commit(self) -> None:
        """Give the staged contents their names, all of them or none."""
        self.is_committing = True
        self._commit()

    def _commit(self) -> None:
        raise NotImplementedError


class FolderChange(Change):
    """New files in a folder, and a journal if several get their names.

    `access` is that of new files and folders. `named` has the folders whose names are
    on the disk, as the writer knows from its earlier changes.
    """

    def __init__(
        self,
        folder: Folder,
        sync: bool = True,
        access: Access | None = None,
        named: set[str] | None = None,
    ) -> None:
        super().__init__(folder)
        self._root = folder.in_folder
        self._sync = sync
        self._access = Access(self._root) if access is None else access
        self._staged: dict[str, str] = {}  # name → name of its new content
        self._removed: list[str] = []
        self._folders: set[str] = set()  # with names that are not on the disk yet
        self._named: set[str] = set() if named is None else named
        self._unnamed: set[str] = set()  # folders in use that are not in `_named`
        self._numbers = count()
        # A reader that has seen the journal of another change must not take a file of
        # this one for a file of that change.
        self._token = os.urandom(8).hex()
        self._changes: FolderStore | None = None  # the folder of changes, held open

    def model_of(self, name: str) -> Model | None:
        """Return the access of a dataset inside of a new one."""
        access = self._access
        return access.model_of(name) if isinstance(access, NewAccess) else None

    def write(self, name: str, content: bytes) -> None:
        """Write a file at once: the old state can be read with its new content."""
        self.finish(self._begin_with(name, content), at_once=True)

    def stage(self, name: str, content: bytes) -> None:
        """Write the content that a file gets when the change is committed."""
        self.finish(self._begin_with(name, content), at_once=False)

    def staged_identity(self, name: str) -> object:
        """Return what `Folder.identity` returns for a staged file when it is committed.

        None if that is unknown.
        """
        place = self._staged.get(name)
        return None if place is None else self._root.identity(place)

    def remove(self, name: str) -> None:
        """Remove a file when the change is committed."""
        self._removed.append(name)

    def make_folder(self, name: str) -> None:
        """Make a folder, unless there is one."""
        self._use_folder(name)
        if not self._root.is_folder(name):
            self._make_folder(name)

    def _use_folder(self, name: str) -> None:
        """Let the name of a folder be on the disk before the commit.

        A change that failed, or a writer that died, may have made the folder.
        """
        if name not in self._named:
            self._unnamed.add(name)
            self._folders.add(name.rpartition("/")[0])

    def _make_folder(self, name: str) -> None:
        like = self._access.of_folder(name)
        self._root.make_folder(name, 0o777 if like is None else PRIVATE_FOLDER)
        made = self._root.subfolder(name).hold()
        if made.number is not None and not is_new_folder(made.number):
            return
        self._access.give(made.number, like, name)
        if name == CHANGES and self._root.status.st_mode & stat.S_ISVTX:
            _take_write_bits(made.number)  # others may not change files there

    def begin(self, name: str) -> UnfinishedFile:
        """Return a new file, whose content is written in pieces.

        `finish` or `abandon` must follow.
        """
        with self._lock:
            changes = self._changes
            if changes is None:
                self._use_folder(CHANGES)
            status = self._root.status_of(CHANGES)
            if status is None or not stat.S_ISDIR(status.st_mode):
                try:
                    self._make_folder(CHANGES)
                except PermissionError as error:  # it concerns the dataset
                    where = self._root.root
                    raise type(error)(error.errno, error.strerror, where) from error
                changes = None
            if changes is None:  # another user may have made it
                self._changes = changes = folder_of_changes(self._root)
        last = "%s-%d" % (self._token, next(self._numbers))
        like = self._access.of_file(name)
        fp = changes.create(last, 0o666 if like is None else PRIVATE)
        return UnfinishedFile(name, CHANGES + "/" + last, fp, like)

    def finish(self, file: UnfinishedFile, *, at_once: bool) -> None:
        """Give a file its name, `at_once` like `write`, or else like `stage`."""
        self._close(file)
        if at_once:
            self._rename(file.place, file.name)
        else:
            self._staged[file.name] = file.place

    def _close(self, file: UnfinishedFile) -> None:
        with file.fp:
            self._access.give(file.fp.fileno(), file.like, folder_of(file.name))
            if self._sync:
                disk.sync(file.fp)

    def abandon(self, *files: UnfinishedFile) -> None:
        """Close and remove files."""
        super().abandon(*files)
        for file in files if self.owner.is_here else ():
            self._root.remove(file.place)

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
        self._root.rename(temporary, name)
        self._folders.add(name.rpartition("/")[0])

    def _commit(self) -> None:
        self.owner.check(self._root.root)
        self._sync_folders()
        if len(self._staged) > 1 or self._removed:
            files = {new.rpartition("/")[2]: name for name, new in self._staged.items()}
            self._write_journal({"files": files, "removed": self._removed})
            complete(self.folder, self._sync)
        else:
            for name, new in self._staged.items():
                self._rename(new, name)  # commit point
            self._sync_folders()
        self._staged.clear()

    def _write_journal(self, content: Json) -> None:
        journal = self._begin_with(JOURNAL, encode_json(content))
        try:
            # It gets the access of the folder, and is refused if others can write it.
            journal.like = None
            self._access.give(journal.fp.fileno(), attributes_in(self._root), "")
            _take_write_bits(journal.fp.fileno())
            status = os.fstat(journal.fp.fileno())
            check_in_dataset(DATASET_RULES, self._root, status)
        except BaseException:
            self.abandon(journal)
            raise
        self._close(journal)
        self._folders.add(CHANGES)
        self._sync_folders()
        self._rename(journal.place, JOURNAL)  # commit point
        self._sync_folders()

    def _sync_folders(self) -> None:
        if self._sync:
            for folder in sorted(self._folders):
                self._root.sync_folder(folder)
            self._named |= self._unnamed
        self._folders.clear()
        self._unnamed.clear()


def _take_write_bits(descriptor: int | None) -> None:
    """Take the permission to write a file or folder from all but its owner."""
    if descriptor is not None and os.chmod in os.supports_fd:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        os.chmod(descriptor, mode & ~0o022)


def complete(folder: Folder, sync: bool = True) -> None:
    """Give the files of a committed change their names, and remove its journal."""
    removed, store = folder.read_journal(), folder.in_folder
    folders = {CHANGES}
    for name, new in folder.pending.items():
        with suppress(FileNotFoundError):  # it has its name already
            store.rename(new, name)
        folders.add(name.rpartition("/")[0])
    completing = FolderChange(folder, sync)
    for name, content in folder.documents.items():  # of a copy from an object store
        completing.write(name, content)
    completing.commit()
    for name in removed:
        with suppress(FileNotFoundError):  # it was removed already
            store.remove(name)
            folders.add(name.rpartition("/")[0])
    if sync:
        for place in sorted(folders):
            store.sync_folder(place)
    if store.exists(JOURNAL):
        store.remove(JOURNAL)
        if sync:
            store.sync_folder(CHANGES)
    folder.pending.clear()
    folder.documents.clear()


def recover(folder: Folder, sync: bool = True) -> None:
    """Complete the change of a writer that died; remove what it had not committed."""
    if not folder.store.is_folder(CHANGES):
        if folder.store.exists(CHANGES):
            raise StorageError(
                errno.ENOTDIR,
                "expected the folder of changes, found something else",
                folder.store.path(CHANGES),
            )
        return
    complete(folder, sync)
    folder.store.remove_tree(CHANGES)


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


# What a new dataset may replace


def check_mode(mode: str) -> None:
    """Raise `UsageError` if a dataset can't be created with a mode."""
    if mode not in ("x", "w"):
        raise UsageValueError("mode must be 'x' or 'w' to create, not %r" % (mode,))


def not_replaced(path: str) -> StorageError:
    """Return the error for a folder that is no dataset, where one is to be created."""
    text = "it is not a dataset, and is not replaced by one"
    return StorageError(errno.EEXIST, text, path)
