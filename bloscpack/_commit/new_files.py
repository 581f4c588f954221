"""The rule 'journal of new files': several files of a dataset change at once.

New contents are written to files in the folder ``.bloscpack`` of the dataset. A content
that does not disturb the old state (`Change.write`) gets its name at once. The others
(`Change.stage`) get their names in `Change.commit`.

Commit point
    For one staged file, the rename that gives it its name. For several, or if files are
    removed, the rename of a journal, ``.bloscpack/journal``, which lists them. With
    `sync`, all contents and the names of their folders are on the disk before.
Recovery
    Readers that see the journal read the new contents, see `Pending`. The next writer
    gives the files their names, and removes the journal (`complete`); without a journal
    it removes what a writer left (`recover`).
Trust
    Journal and folder keep the rules of `trust`: only users who may change the dataset
    can have written them.

Only one writer at a time has a dataset open (`FolderLock`).
"""

from __future__ import annotations

import errno
import os
import stat
from _thread import allocate_lock
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from itertools import count
from typing import BinaryIO, Protocol

from .._engine.forks import Owner
from .._storage.disk import NO_ROOM, disk
from .._storage.folder_store import FolderStore, LinkFound
from .._storage.paths import is_safe_name, is_safe_part
from .._storage.store import Store
from .._types import Json
from ..constants import MAX_DOCUMENT
from ..exceptions import DamageError, StorageError, UsageValueError
from ..serializers import encode_document, parse_json
from .access import Access, Model, NewAccess, folder_of
from .ownership import FileAccess, attributes_in, is_new_folder
from .trust import (
    CHANGES,
    JOURNAL,
    REMEDY_OF_DATASETS,
    check_in_dataset,
    folder_of_changes,
)

# Permission bits of a file and a folder until they get the access of others.
PRIVATE = 0o600
PRIVATE_FOLDER = 0o700
# The file in a folder that shows that all in it belongs to a dataset that is not
# complete, or that is being removed, unless there is a document, too.
UNFINISHED = CHANGES + "/unfinished"


class Datasets(Protocol):
    """What the rules ask about datasets, whose files they do not know."""

    def kind_of(self, store: Store) -> str | None:
        """Return ``'array'``, ``'table'`` or ``'group'``; None for no dataset."""

    def check_no_column(self, store: Store) -> None:
        """Raise `UsageError` if a folder is a column of a table."""

    def names_inside(self, store: Store) -> list[str]:
        """Return the names of the folders inside that can be datasets."""

    def drop_copies(self, store: Store, sync: bool) -> None:
        """Remove the copies of documents that a folder has of a dataset inside."""

    def claimed(self, content: bytes) -> bytes:
        """Return a document with a new token: it has another version than before."""


class Pending:
    """The new contents that a journal has committed, until they have their names.

    Attributes
    ----------
    files
        The files that the change replaces, and where their new content is.
    documents
        The files of which the journal has the new content.
    removed
        The names of the files that the change removes.
    kept
        The documents that a writer has read, by name; None to keep none.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.files: dict[str, str] = {}
        self.documents: dict[str, bytes] = {}
        self.removed: list[str] = []
        self.kept: dict[str, bytes] | None = None

    def clear(self) -> None:
        """Forget the change: it is complete."""
        self.files.clear()
        self.documents.clear()
        self.removed.clear()

    def read(self) -> None:
        """Read the journal, if there is one.

        Raises `StorageError` if a user who may not change the dataset could have
        written it.
        """
        self.clear()
        try:
            if self.has_journal:
                self._take(self._read_accepted())
        except FileNotFoundError:  # the writer has just completed it
            pass
        except StorageError as error:
            # Some stores refuse to tell whether there is a file.
            if not self.store.is_remote or error.errno != errno.EACCES:
                raise

    @property
    def has_journal(self) -> bool:
        """Whether there is a journal."""
        if not isinstance(self.store, FolderStore):
            return self.store.exists(JOURNAL)
        status = self.store.status_of(CHANGES)
        if status is not None and stat.S_ISLNK(status.st_mode):
            raise LinkFound(self.store.path(CHANGES))
        is_folder = status is not None and stat.S_ISDIR(status.st_mode)
        return is_folder and self.store.exists(JOURNAL)

    @property
    def is_known(self) -> bool:
        """Whether `read` has found a change."""
        return bool(self.files or self.documents)

    @property
    def is_there(self) -> bool:
        """Whether a change was committed, and is to be completed."""
        if self.is_known:
            return True
        return not self.store.is_remote and self.has_journal

    def _read_accepted(self) -> Json:
        """Return the value in the journal, after a check that it may be obeyed."""
        store, path = self.store, self.store.path(JOURNAL)
        if not isinstance(store, FolderStore):
            # All users who may write the journal may write the dataset.
            return decode_json(store.read(JOURNAL, MAX_DOCUMENT, whole=True)[0], path)
        with closing(folder_of_changes(store).open(JOURNAL.rpartition("/")[2])) as file:
            status = os.fstat(file.descriptor)
            if status.st_nlink == 0:  # the writer has completed it meanwhile
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            check_in_dataset(store, status)
            return decode_json(file.read_at(0, file.size), path)

    def _take(self, journal: Json) -> None:
        """Note what is in a journal, which must name files in the dataset."""
        stored = journal if isinstance(journal, dict) else {}
        files, removed = stored.get("files"), stored.get("removed", [])
        documents = stored.get("documents", {})
        if (
            not isinstance(files, dict)
            or not isinstance(documents, dict)
            or not all(is_safe_name(n) and type(t) is str for n, t in documents.items())
            or not all(is_safe_part(n) and is_safe_name(f) for n, f in files.items())
            or not isinstance(removed, list)
            or not all(map(is_safe_name, removed))
            or not set(files.values()).isdisjoint(documents)
        ):
            raise DamageError(
                "expected a journal with the names of files in the dataset, none of "
                "them both in 'files' and in 'documents', found something else. "
                + REMEDY_OF_DATASETS,
                section="metadata",
                filename=self.store.path(JOURNAL),
            )
        self.files.update({f: "%s/%s" % (CHANGES, n) for n, f in files.items()})
        for name, text in documents.items():  # readers refuse what is no UTF-8
            self.documents[name] = text.encode("utf-8", "surrogatepass")
        self.removed += removed


def decode_json(text: bytes, path: str) -> Json:
    """Return the value in a file of JSON; raise `FormatError` if it has none."""
    try:
        return parse_json(text)
    except ValueError as error:
        raise DamageError(
            "expected a value in JSON, found '%d' bytes: %s" % (len(text), error),
            section="metadata",
            filename=path,
        ) from error


class UnfinishedFile:
    """A new file for the name `name`, which is open, and still has the name `staged`.

    It gets the access `like`, or the usual access.
    """

    def __init__(
        self, name: str, staged: str, fp: BinaryIO, like: FileAccess | None = None
    ) -> None:
        self.name = name
        self.staged = staged
        self.fp = fp
        self.like = like

    def content(self) -> bytes:
        """Close the file, and return its content."""
        with self.fp as fp:
            fp.seek(0)
            return fp.read()


class Change:
    """New contents of files in a dataset; `commit` applies them, all or none.

    Names are relative to the dataset. Any thread may write and stage.

    Attributes
    ----------
    store
        The files of the dataset.
    is_committing
        Whether `commit` was called: if it fails, the state is not known.
    wait
        Number of seconds to wait for another writer of a file that is locked.
    """

    wait = 0.0

    def __init__(self, store: Store) -> None:
        self.store = store
        self.owner = Owner()
        self.is_committing = False
        self._lock = allocate_lock()

    def write(self, name: str, content: bytes) -> None:
        """Write a file at once: the old state can be read with its new content."""
        self.finish(self._begin_with(name, content), at_once=True)

    def stage(self, name: str, content: bytes) -> None:
        """Write the content that a file gets when the change is committed."""
        self.finish(self._begin_with(name, content), at_once=False)

    def _begin_with(self, name: str, content: bytes) -> UnfinishedFile:
        file = self.begin(name)
        try:
            file.fp.write(content)
            file.fp.flush()
        except BaseException:
            self.abandon(file)
            raise
        return file

    def remove(self, name: str) -> None:
        """Remove a file when the change is committed."""
        raise NotImplementedError

    def lock(self, name: str) -> None:
        """Let no other writer of shards change a file before this change ends.

        If another one changes it, `commit` raises `Conflict`.
        """
        raise NotImplementedError

    def make_folder(self, name: str) -> None:
        """Make a folder, unless there is one; a store of objects has none."""
        self.store.path(name)  # raises the errors of the name

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
        """Give the staged contents their names, all of them or none.

        It sets `is_committing`.
        """
        raise NotImplementedError


class FolderChange(Change):
    """New files in a folder, and a journal if several get their names.

    `pending` is what readers find out about the journal, and `access` that of new
    files and folders. `named` has the folders whose names are on the disk, as the
    writer knows from its earlier changes.
    """

    def __init__(
        self,
        pending: Pending,
        sync: bool = True,
        access: Access | None = None,
        named: set[str] | None = None,
    ) -> None:
        super().__init__(pending.store)
        assert isinstance(pending.store, FolderStore)
        self.store: FolderStore = pending.store
        self._pending = pending
        self._sync = sync
        self._access = Access(self.store) if access is None else access
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

    def remove(self, name: str) -> None:
        """Remove a file when the change is committed."""
        self._removed.append(name)

    def make_folder(self, name: str) -> None:
        """Make a folder, unless there is one."""
        self._use_folder(name)
        if not self.store.is_folder(name):
            self._make_folder(name)

    def _use_folder(self, name: str) -> None:
        """Let the name of a folder be on the disk before the commit.

        A change that failed, or a writer that died, may have made the folder.
        """
        if name not in self._named:
            self._unnamed.add(name)
            self._folders.add(folder_of(name))

    def _make_folder(self, name: str) -> None:
        like = self._access.of_folder(name)
        self.store.make_folder(name, 0o777 if like is None else PRIVATE_FOLDER)
        made = self.store.subfolder(name).hold()
        if made.number is not None and not is_new_folder(made.number):
            return
        self._access.give(made.number, like, name)
        if name == CHANGES and self.store.status.st_mode & stat.S_ISVTX:
            _take_write_bits(made.number)  # others may not change files there

    def begin(self, name: str) -> UnfinishedFile:
        """Return a new file, whose content is written in pieces.

        `finish` or `abandon` must follow.
        """
        with self._lock:
            if self._changes is None:
                self._changes = self._open_changes()
        last = "%s-%d" % (self._token, next(self._numbers))
        like = self._access.of_file(name)
        fp = self._changes.create(last, 0o666 if like is None else PRIVATE)
        return UnfinishedFile(name, CHANGES + "/" + last, fp, like)

    def _open_changes(self) -> FolderStore:
        """Return the folder of changes, which another user may have made."""
        try:
            self.make_folder(CHANGES)
        except PermissionError as error:  # it concerns the dataset
            raise type(error)(error.errno, error.strerror, self.store.root) from error
        return folder_of_changes(self.store)

    def finish(self, file: UnfinishedFile, *, at_once: bool) -> None:
        """Give a file its name, `at_once` like `write`, or else like `stage`."""
        self._close(file)
        if at_once:
            self._rename(file.staged, file.name)
        else:
            self._staged[file.name] = file.staged

    def _close(self, file: UnfinishedFile) -> None:
        with file.fp:
            self._access.give(file.fp.fileno(), file.like, folder_of(file.name))
            if self._sync:
                disk.sync(file.fp)

    def abandon(self, *files: UnfinishedFile) -> None:
        """Close and remove files."""
        super().abandon(*files)
        for file in files if self.owner.is_here else ():
            with suppress(FileNotFoundError):  # it had got its name when an error came
                self.store.remove(file.staged)

    def _rename(self, temporary: str, name: str) -> None:
        self.store.rename(temporary, name)
        self._folders.add(folder_of(name))

    def commit(self) -> None:
        """Give the staged contents their names, all of them or none."""
        self.is_committing = True
        self.owner.check(self.store.root)
        self._sync_folders()
        if len(self._staged) > 1 or self._removed:
            files = {new.rpartition("/")[2]: name for name, new in self._staged.items()}
            self._write_journal({"files": files, "removed": self._removed})
            complete(self._pending, self._sync)
        else:
            for name, new in self._staged.items():
                self._rename(new, name)  # commit point
            self._sync_folders()
        self._staged.clear()

    def _write_journal(self, content: Json) -> None:
        journal = self._begin_with(JOURNAL, encode_document(content))
        try:
            # It gets the access of the folder, and is refused if others can write it.
            journal.like = None
            self._access.give(journal.fp.fileno(), attributes_in(self.store), "")
            _take_write_bits(journal.fp.fileno())
            status = os.fstat(journal.fp.fileno())
            check_in_dataset(self.store, status)
        except BaseException:
            self.abandon(journal)
            raise
        self._close(journal)
        self._folders.add(CHANGES)
        self._sync_folders()
        self._rename(journal.staged, JOURNAL)  # commit point
        self._sync_folders()

    def _sync_folders(self) -> None:
        if self._sync:
            self.store.sync_folders(self._folders)
            self._named |= self._unnamed
        self._folders.clear()
        self._unnamed.clear()


def _take_write_bits(descriptor: int | None) -> None:
    """Take the permission to write a file or folder from all but its owner."""
    if descriptor is not None and os.chmod in os.supports_fd:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        os.chmod(descriptor, mode & ~0o022)


def complete(pending: Pending, sync: bool = True) -> None:
    """Give the files of a committed change their names, and remove its journal."""
    pending.read()
    change = FolderChange(pending, sync)
    store, folders = change.store, {CHANGES}
    for name, new in pending.files.items():
        with suppress(FileNotFoundError):  # it has its name already
            store.rename(new, name)
        folders.add(folder_of(name))
    for name, content in pending.documents.items():  # of a copy from an object store
        change.write(name, content)
    change.commit()
    for name in pending.removed:
        with suppress(FileNotFoundError):  # it was removed already
            store.remove(name)
            folders.add(folder_of(name))
    if sync:
        store.sync_folders(folders)
    if store.exists(JOURNAL):
        store.remove(JOURNAL)
        if sync:
            store.sync_folder(CHANGES)
    pending.clear()


def recover(pending: Pending, sync: bool = True) -> None:
    """Complete the change of a writer that died; remove what it had not committed."""
    store = pending.store
    assert isinstance(store, FolderStore)
    status = store.status_of(CHANGES)
    if status is None:
        return
    if not stat.S_ISDIR(status.st_mode):
        raise StorageError(
            errno.ENOTDIR,
            "expected the folder of changes, found something else",
            store.path(CHANGES),
        )
    complete(pending, sync)
    store.remove_tree(CHANGES)


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
