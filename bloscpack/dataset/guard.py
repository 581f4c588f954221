"""Changes of a dataset in a store of objects: whole objects, and one that commits.

Strategy: such a store can't rename objects, and has no locks. Each object is stored in
one request, if it still has the version that the change has found. The commit point is
one object, the *guard*:

* of an array or a group, ``zarr.json``;
* of a table, ``.bloscpack/journal``, which gets the new documents of all columns.
  Readers that see the journal read these. Then the documents are stored under their
  names, and the journal becomes empty. If the program dies meanwhile, the next writer
  does the rest.
* of a new dataset, ``zarr.json``, too; until then, ``.bloscpack/unfinished`` has a
  token. While it has this token, all that is in the folder belongs to the call that
  stored it. A call that finds another token has lost the folder: it reports a
  `Conflict`, also if its document is stored. The call that has the folder replaces that
  document.

All new objects of data are stored before. Two writers at once can't damage the dataset
if the store compares versions while it stores, as S3 does: a writer stores the guard
with a new token before its first change, and each change of another writer then fails.
With other stores, only one program may write.
"""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

from .._commit.trust import JOURNAL
from .._format.zarr_metadata import ZARR_JSON, encode_json
from .._storage.store import Conflict, Store, conflict
from .._storage.upload import check_writable
from ..exceptions import StorageError, UsageError
from .change import (
    Change,
    UnfinishedFile,
    check_mode,
    not_replaced,
)
from .folder import UNFINISHED, Folder
from .folder import encode_json as encode_line
from .layouts import check_no_column, find
from .layouts.identity import KEY, identified, read_identity


class ObjectChange(Change):
    """New objects of a dataset, whose guard is ``zarr.json``.

    Parameters
    ----------
    folder
        The folder of the dataset.
    version
        The version of the guard.
    """

    guard = ZARR_JSON

    def __init__(self, folder: Folder, version: str) -> None:
        super().__init__(folder)
        self._store = folder.store
        self._versions = {self.guard: version}
        self._contents: dict[str, bytes] = {}
        self._removed: list[str] = []
        # The shards that are stored by `commit`: their extents in one temporary file. A
        # value that does not fit must be found before the first one is stored.
        self._shards: dict[str, tuple[int, int]] = {}
        self._spool: BinaryIO | None = None

    def make_folder(self, name: str) -> None:
        """Check the name of a folder: a store of objects has no others."""
        self._store.path(name)

    def _find_version(self, name: str) -> None:
        """Note the version that an object has before it is stored."""
        if name not in self._versions:
            self._versions[name] = self._store.object_version(name)

    def begin(self, name: str) -> UnfinishedFile:
        """Return a temporary file for a new object."""
        self._find_version(name)
        # After the version is known: a later writer must not have stored the object.
        self._store.check_version(self.guard, self.version)
        return UnfinishedFile(name, name, temporary_file())

    def finish(self, file: UnfinishedFile, *, at_once: bool) -> None:
        """Store an object, or let `commit` do it."""
        content = file.content()
        if at_once:
            self._put(file.name, content)
            return
        with self._lock:
            if self._spool is None:
                self._spool = temporary_file()
            offset = self._spool.seek(0, os.SEEK_END)
            self._spool.write(content)
            self._shards[file.name] = offset, len(content)

    def stage(self, name: str, content: bytes) -> None:
        """Store an object when the change is committed."""
        self._find_version(name)
        self._contents[name] = content

    def write(self, name: str, content: bytes) -> None:
        """Store an object at once."""
        self._find_version(name)
        self._put(name, content)

    def remove(self, name: str) -> None:
        """Remove an object when the change is committed."""
        self._removed.append(name)

    def _put(self, name: str, content: bytes) -> None:
        self._versions[name] = self._store.put(name, content, self._versions[name])

    def _put_shards(self) -> None:
        """Store the shards that `finish` has kept."""
        for name, (offset, size) in self._shards.items():
            assert self._spool is not None
            self._spool.seek(offset)
            self._put(name, self._spool.read(size))
        self._shards.clear()

    def close(self) -> None:
        """Release the shards that were not stored."""
        if self._spool is not None:
            self._spool.close()

    def _commit(self) -> None:
        """Store the staged objects, and the guard last."""
        assert not self._removed
        self._put_shards()
        for name, content in self._contents.items():
            self._put(name, content)  # commit point: there is only one document
        self._contents.clear()

    @property
    def version(self) -> str:
        """The version of the guard now."""
        return self._versions[self.guard]


class ArrayChange(ObjectChange):
    """New objects of an array, whose ``zarr.json`` has a token of the writer."""

    def stage(self, name: str, content: bytes) -> None:
        """Store an object when the change is committed."""
        super().stage(name, with_claim(content) if name == ZARR_JSON else content)


class TableChange(ObjectChange):
    """New objects of a table, whose guard is a journal."""

    guard = JOURNAL

    def _commit(self) -> None:
        """Store the staged objects; readers of the table see all of them or none."""
        self._put_shards()
        if not self._contents and not self._removed:
            return
        self._put(JOURNAL, journal_of(self._contents, self._removed))  # commit point
        try:
            for name, content in self._contents.items():
                self._put(name, content)
            for name in self._removed:
                self._store.check_version(JOURNAL, self.version)
                self._store.remove(name)
            self._put(JOURNAL, journal_of({}, []))
        except Conflict:
            if self._store.object_version(JOURNAL) == self.version:
                raise
            # A writer that has opened the table meanwhile has completed the change.
        self._contents.clear()


class NewChange(ObjectChange):
    """The objects of a new dataset.

    The folder is taken when the first object is going to be stored: a wrong call must
    not remove a dataset.
    """

    guard = UNFINISHED

    def __init__(self, folder: Folder, mode: str) -> None:
        super().__init__(folder, "")
        self._claim = Claim(folder.store, mode)
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

    def _commit(self) -> None:
        """Store the staged objects, and ``zarr.json`` last."""
        self.owner.check(self.folder.root)
        root = self._contents.pop(ZARR_JSON)
        for name, content in self._contents.items():
            self.write(name, content)
        self._contents.clear()
        self._find_version(ZARR_JSON)
        # That of a call that has lost the folder, as all in it is of this call.
        late = self._store.object_version(ZARR_JSON)
        self._may_be_stored = True
        self._claim.commit(root, late)

    def discard(self) -> None:
        """Remove what was stored, if possible, after an error."""
        with suppress(StorageError):
            if not self.owner.is_here:
                return
            if not self._may_be_stored or self.folder.is_leftover:
                self._claim.discard()


def temporary_file() -> BinaryIO:
    """Return a file without a name; who gets it closes it."""
    file: Any = tempfile.TemporaryFile()  # noqa: SIM115
    return file  # type: ignore[no-any-return]


def with_claim(content: bytes) -> bytes:
    """Return a document with a new token: it has another version than before.

    That of another program does not become one of Bloscpack.
    """
    document, token = json.loads(content), os.urandom(8).hex()
    attributes = document.setdefault("attributes", {})
    identity, is_own = read_identity(content, attributes.get(KEY))
    if identity is not None and is_own:
        settings = {"key": "attributes", "token": token}
        return identified(document, identity, encode_json, **settings)
    attributes[KEY] = "token=%s" % token
    return encode_json(document)


def journal_of(contents: dict[str, bytes], removed: list[str]) -> bytes:
    """Return a journal with the new contents of documents, and a new token."""
    documents = {name: json.loads(content) for name, content in contents.items()}
    journal = {"files": {}, "removed": removed, "documents": documents}
    return encode_line({**journal, "token": os.urandom(8).hex()})


def complete(folder: Folder) -> bool:
    """Store the objects of a change that was committed, and is not complete.

    Return whether there was one: then its journal is left to be replaced.
    """
    store = folder.store
    version = store.object_version(JOURNAL)
    removed = folder.read_journal()
    names = *folder.pending, *folder.documents
    if not names and not removed:
        return False
    contents = {name: folder.read(name) for name in names}
    for name, content in contents.items():
        found = store.object_version(name)
        store.check_version(JOURNAL, version)  # after it: see `ObjectChange.begin`
        store.put(name, content, found)
    for name in (*removed, *folder.pending.values()):
        store.check_version(JOURNAL, version)
        store.remove(name)
    folder.pending.clear()
    folder.documents.clear()
    return True


# Rules for a `Writer`


class GroupObjects:
    """A group that several programs may change: each change finds the guard anew."""

    shared = True

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    @contextmanager
    def changing(self) -> Iterator[Change]:
        """Yield a change; it raises `Conflict` if another writer changes the group."""
        version = self._folder.store.object_version(ZARR_JSON)
        yield ObjectChange(self._folder, version)

    def release(self) -> None:
        """Return: nothing was claimed."""


class ArrayObjects:
    """The right to change an array: its document has a token of this writer."""

    shared = False
    _change: type[ObjectChange] = ArrayChange

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._store = folder.store
        self._failed = self._claimed = False
        folder.forget_document()  # another writer may have changed it until now
        self._version = self._store.object_version(self._change.guard)
        self._complete()

    def _complete(self) -> None:
        """Complete the change of a writer that died."""
        if complete(self._folder):  # of a copy of a folder
            self._store.remove(JOURNAL)
            self._version = self._store.object_version(self._change.guard)

    def _claim(self) -> bytes:
        """Return a content of the guard that changes nothing but its version."""
        return with_claim(self._folder.read(ZARR_JSON))

    def _take(self) -> None:
        """Claim the dataset, before the first change."""
        self._version = self._store.put(
            self._change.guard, self._claim(), self._version
        )
        self._claimed = True
        # Of a call that died when it had created the dataset. A process that is late
        # must not take it for a dataset that is not complete.
        version = self._store.object_version(UNFINISHED)
        if version:
            self._store.remove(UNFINISHED, version)

    @contextmanager
    def changing(self) -> Iterator[Change]:
        """Yield a change, which is committed within the block."""
        if self._failed:
            raise StorageError(
                errno.EIO,
                "an earlier change failed: open it again",
                self._folder.root,
            )
        self._failed = True
        if not self._claimed:
            self._take()
        change = self._change(self._folder, self._version)
        try:
            yield change
        except (UsageError, ValueError, TypeError):  # the values do not fit
            self._failed = change.is_committing
            raise
        finally:
            change.close()
        self._version = change.version
        self._failed = False

    def release(self) -> None:
        """Return: the token in the document keeps no other writer away."""


class TableObjects(ArrayObjects):
    """The right to change a table: its journal has a token of this writer."""

    _change = TableChange

    def _complete(self) -> None:
        if complete(self._folder):
            self._version = self._store.put(JOURNAL, self._claim(), self._version)
            self._claimed = True
        elif not self._version:
            self._folder.kept = {}

    def _claim(self) -> bytes:
        return journal_of({}, [])

    def _take(self) -> None:
        """Claim the table; raise `Conflict` if it was changed since it was read.

        There was no journal then, and there may have been one since.
        """
        super()._take()
        for name, content in (self._folder.kept or {}).items():
            if self._folder.read(name) != content:
                raise conflict(self._folder.path(name))
        self._folder.kept = None

    def release(self) -> None:
        """Remove the journal if it is still the own one."""
        if self._claimed:
            self._store.remove(JOURNAL, self._version)


# New datasets, and those that are removed


class Claim:
    """The right to create a dataset in a folder; `version` is that of the guard."""

    def __init__(self, store: Store, mode: str) -> None:
        self._store = store
        self._mode = mode
        self.version = ""

    def check_free(self) -> str:
        """Return the version of the guard, which `take` is going to replace.

        Raises an error if there is something that must stay.
        """
        check_writable(self._store.root)
        check_mode(self._mode)
        version = self._store.object_version(UNFINISHED)
        folder = Folder(self._store)
        check_no_column(folder)
        if folder.names("") and not folder.is_leftover:
            if self._mode == "x":
                text = os.strerror(errno.EEXIST)
                raise FileExistsError(errno.EEXIST, text, folder.path())
            if find(folder) is None:
                raise not_replaced(folder.path())
        return version

    def take(self) -> None:
        """Store the guard, and remove what is in the folder."""
        self.version = make_empty(self._store, self.check_free())

    def check(self) -> None:
        """Raise `Conflict` if another call has taken the folder."""
        self._store.check_version(UNFINISHED, self.version)

    def commit(self, root: bytes, version: str) -> None:
        """Store the document of the root, which has a version; remove the guard."""
        self.check()
        self._store.put(ZARR_JSON, root, version)  # commit point
        self.check()  # a call that took the folder just before has removed shards
        self._store.remove(UNFINISHED, self.version)

    def discard(self) -> None:
        """Empty the folder, unless another call has taken it."""
        if self.version:
            with suppress(StorageError):
                self.version = make_empty(self._store, self.version)
                self._store.remove(UNFINISHED, self.version)


def make_empty(store: Store, version: str | None = None) -> str:
    """Remove all but `UNFINISHED` from the folder of a dataset; return its version.

    Raises `Conflict` if `UNFINISHED` has not the expected `version`, if that is given.
    """
    version = store.put(UNFINISHED, os.urandom(8).hex().encode(), version)
    if store.object_version(ZARR_JSON):
        store.remove(ZARR_JSON)  # commit point: it is no dataset from now on
    store.remove_all(but=UNFINISHED)
    return version


def remove_dataset(store: Store) -> None:
    """Remove a dataset, in one step for all who look for it."""
    store.remove(UNFINISHED, make_empty(store))


@contextmanager
def creating(folder: Folder, mode: str) -> Iterator[Change]:
    """Yield a change of a new dataset, which is there when the block ends."""
    change = NewChange(folder, mode)
    try:
        yield change
        change.commit()
    except BaseException:
        change.discard()
        raise
