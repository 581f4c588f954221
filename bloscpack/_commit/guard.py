"""The rule 'one guard object': a dataset changes in a store of objects.

Such a store can't rename objects, and has no locks. Each object is stored in one
request, if it still has the version that the change has found. All new objects of data
are stored before the commit point.

Commit point
    One object, the *guard*. That of an array or a group is ``zarr.json``. That of a
    table is ``.bloscpack/journal``, which gets the new documents of all columns; then
    these are stored under their names, and the journal becomes empty. A new dataset is
    there when its ``zarr.json`` is; until then, its guard is ``.bloscpack/unfinished``.
Recovery
    Readers that see a journal read the documents in it, see `Pending`. The next writer
    stores them under their names (`complete`). What the program that created a dataset
    has left is removed by the next one.
Trust
    All users who may write the guard may write the dataset. Two writers at once can't
    damage it if the store compares versions while it stores, as S3 does: a writer
    stores the guard with a new token before its first change, and each change of
    another writer then fails. With other stores, only one program may write.

While ``.bloscpack/unfinished`` has the token of a call, all that is in the folder
belongs to that call. A call that finds another token has lost the folder: it reports a
`Conflict`, also if its document is stored. The call that has the folder replaces that
document.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

from .._format.zarr_metadata import ZARR_JSON
from .._storage.store import Conflict, Store, conflict
from .._storage.upload import check_writable
from ..exceptions import StorageError, Unsupported, UsageError
from ..serializers import encode_document
from .new_files import (
    UNFINISHED,
    Change,
    Datasets,
    Pending,
    UnfinishedFile,
    check_mode,
    not_replaced,
)
from .trust import JOURNAL


class ObjectChange(Change):
    """New objects of a dataset.

    Parameters
    ----------
    store
        The files of the dataset.
    guard
        The name of the guard: ``zarr.json``, or `JOURNAL`.
    version
        The version of the guard.
    claimed
        Called with the content of ``zarr.json`` as the guard: gives it a new token.
    """

    def __init__(
        self,
        store: Store,
        guard: str,
        version: str,
        claimed: Callable[[bytes], bytes] = bytes,
    ) -> None:
        super().__init__(store)
        self.guard = guard
        self._claimed = claimed
        self._versions = {guard: version}
        self._contents: dict[str, bytes] = {}
        self._removed: list[str] = []
        # The shards that are stored by `commit`: their extents in one temporary file. A
        # value that does not fit must be found before the first one is stored.
        self._shards: dict[str, tuple[int, int]] = {}
        self._spool: BinaryIO | None = None

    def _find_version(self, name: str) -> None:
        """Note the version that an object has before it is stored."""
        if name not in self._versions:
            self._versions[name] = self.store.object_version(name)

    def lock(self, name: str) -> None:
        """Let `commit` raise `Conflict` if another writer changes an object."""
        self._find_version(name)
        # After the version is known: a later writer must not have stored the object.
        self.store.check_version(self.guard, self.version)

    def begin(self, name: str) -> UnfinishedFile:
        """Return a temporary file for a new object."""
        self.lock(name)
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
        is_guard = name == self.guard == ZARR_JSON
        self._contents[name] = self._claimed(content) if is_guard else content

    def write(self, name: str, content: bytes) -> None:
        """Store an object at once."""
        self._find_version(name)
        self._put(name, content)

    def remove(self, name: str) -> None:
        """Remove an object when the change is committed."""
        self._removed.append(name)

    def _put(self, name: str, content: bytes) -> None:
        self._versions[name] = self.store.put(name, content, self._versions[name])

    def close(self) -> None:
        """Release the shards that were not stored."""
        if self._spool is not None:
            self._spool.close()

    def commit(self) -> None:
        """Store the staged objects, and the guard of an array or a group last."""
        self.is_committing = True
        for name, (offset, size) in self._shards.items():
            assert self._spool is not None
            self._spool.seek(offset)
            self._put(name, self._spool.read(size))
        self._shards.clear()
        if self.guard == JOURNAL:
            self._commit_journal()
        else:
            assert not self._removed
            for name, content in self._contents.items():
                self._put(name, content)  # commit point: there is only one document
        self._contents.clear()

    def _commit_journal(self) -> None:
        """Store the staged objects; readers of the table see all of them or none."""
        if not self._contents and not self._removed:
            return
        self._put(JOURNAL, journal_of(self._contents, self._removed))  # commit point
        try:
            for name, content in self._contents.items():
                self._put(name, content)
            for name in self._removed:
                self.store.check_version(JOURNAL, self.version)
                self.store.remove(name)
            self._put(JOURNAL, journal_of({}, []))
        except Conflict:
            if self.store.object_version(JOURNAL) == self.version:
                raise
            # A writer that has opened the table meanwhile has completed the change.

    @property
    def version(self) -> str:
        """The version of the guard now."""
        return self._versions[self.guard]


class NewChange(ObjectChange):
    """The objects of a new dataset.

    The folder is taken when the first object is going to be stored: a wrong call must
    not remove a dataset.
    """

    def __init__(self, store: Store, mode: str, datasets: Datasets) -> None:
        super().__init__(store, UNFINISHED, "")
        self._claim = Claim(store, mode, datasets)
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
        self.is_committing = True
        self.owner.check(self.store.root)
        root = self._contents.pop(ZARR_JSON)
        for name, content in self._contents.items():
            self.write(name, content)
        self._contents.clear()
        self._find_version(ZARR_JSON)
        # That of a call that has lost the folder, as all in it is of this call.
        late = self.store.object_version(ZARR_JSON)
        self._may_be_stored = True
        self._claim.commit(root, late)

    def discard(self) -> None:
        """Remove what was stored, if possible, after an error."""
        with suppress(StorageError):
            if not self.owner.is_here:
                return
            if not self._may_be_stored or is_leftover(self.store):
                self._claim.discard()


def temporary_file() -> BinaryIO:
    """Return a file without a name, which the caller closes."""
    file: Any = tempfile.TemporaryFile()  # noqa: SIM115
    return file  # type: ignore[no-any-return]


def journal_of(contents: dict[str, bytes], removed: list[str]) -> bytes:
    """Return a journal with the new texts of documents, and a new token."""
    documents = {name: content.decode("utf-8") for name, content in contents.items()}
    journal = {"files": {}, "removed": removed, "documents": documents}
    return encode_document({**journal, "token": os.urandom(8).hex()})


def complete(pending: Pending) -> bool:
    """Store the objects of a change that was committed, and is not complete.

    Return whether there was one: then its journal is left to be replaced.
    """
    store = pending.store
    version = store.object_version(JOURNAL)
    pending.read()
    if not pending.files and not pending.documents and not pending.removed:
        return False
    contents = {}
    for name, staged in pending.files.items():
        with suppress(FileNotFoundError):  # it has its name already
            contents[name] = store.read(staged)[0]
    for name, content in {**contents, **pending.documents}.items():
        found = store.object_version(name)
        store.check_version(JOURNAL, version)  # after it: see `ObjectChange.begin`
        store.put(name, content, found)
    for name in (*pending.removed, *pending.files.values()):
        store.check_version(JOURNAL, version)
        store.remove(name)
    pending.clear()
    return True


class GuardedObjects:
    """The right to change a dataset: its guard has a token of this writer.

    Any program may change a group: each change finds the guard anew, and raises
    `Conflict` if another writer changes the group.

    Parameters
    ----------
    pending
        The journal of the dataset.
    kind
        ``'array'``, ``'table'`` or ``'group'``.
    claimed
        See `Datasets.claimed`.
    """

    def __init__(
        self, pending: Pending, kind: str, claimed: Callable[[bytes], bytes]
    ) -> None:
        self._pending = pending
        self._store = store = pending.store
        self.shared = kind == "group"
        self.by_shard = False
        self._guard = JOURNAL if kind == "table" else ZARR_JSON
        self._claimed = bytes if self.shared else claimed
        self.has_failed = False
        self._has_claim = False
        if self.shared:
            return
        self._version = store.object_version(self._guard)
        if complete(pending):
            if self._guard == JOURNAL:
                self._store_claim()
            else:  # a copy of a folder
                store.remove(JOURNAL)
                self._version = store.object_version(self._guard)
        elif self._guard == JOURNAL and not self._version:
            pending.kept = {}

    def _store_claim(self) -> None:
        """Store a content of the guard that changes nothing but its version."""
        claim = (
            journal_of({}, [])
            if self._guard == JOURNAL
            else self._claimed(self._store.read(ZARR_JSON)[0])
        )
        self._version = self._store.put(self._guard, claim, self._version)
        self._has_claim = True

    def _take(self) -> None:
        """Claim the dataset, before the first change.

        Raises `Conflict` if a table was changed since it was read. There was no journal
        then, and there may have been one since.
        """
        self._store_claim()
        # Of a call that died when it had created the dataset. A process that is late
        # must not take it for a dataset that is not complete.
        version = self._store.object_version(UNFINISHED)
        if version:
            self._store.remove(UNFINISHED, version)
        for name, content in (self._pending.kept or {}).items():
            found = None
            with suppress(FileNotFoundError):  # another program has removed a column
                found = self._store.read(name)[0]
            if found != content:
                raise conflict(self._store.path(name))
        self._pending.kept = None

    @contextmanager
    def changing(self) -> Iterator[Change]:
        """Yield a change, which is committed within the block."""
        if self.has_failed:
            raise StorageError(
                errno.EIO, "an earlier change failed: open it again", self._store.root
            )
        if self.shared:
            version = self._store.object_version(ZARR_JSON)
            yield ObjectChange(self._store, ZARR_JSON, version)
            return
        self.has_failed = True
        if not self._has_claim:
            self._take()
        change = ObjectChange(self._store, self._guard, self._version, self._claimed)
        try:
            yield change
        except (UsageError, Unsupported, ValueError, TypeError, LookupError):  # no fit
            self.has_failed = change.is_committing
            raise
        finally:
            change.close()
        self._version = change.version
        self.has_failed = False

    def release(self) -> None:
        """Remove the journal of a table if it is still the own one.

        The token in the document of an array keeps no other writer away.
        """
        if self._has_claim and self._guard == JOURNAL:
            self._store.remove(JOURNAL, self._version)


# New datasets, and those that are removed


class Claim:
    """The right to create a dataset in a folder; `version` is that of the guard."""

    def __init__(self, store: Store, mode: str, datasets: Datasets) -> None:
        self._store = store
        self._mode = mode
        self._datasets = datasets
        self.version = ""

    def check_free(self) -> str:
        """Return the version of the guard, which `take` is going to replace.

        Raises an error if there is something that must stay.
        """
        check_writable(self._store.root)
        check_mode(self._mode)
        version = self._store.object_version(UNFINISHED)
        self._datasets.check_no_column(self._store)
        if self._store.names() and not is_leftover(self._store):
            if self._mode == "x":
                text = os.strerror(errno.EEXIST)
                raise FileExistsError(errno.EEXIST, text, self._store.root)
            if self._datasets.kind_of(self._store) is None:
                raise not_replaced(self._store.root)
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


def is_leftover(store: Store) -> bool:
    """Return whether all in a folder is of a dataset that is not complete."""
    return not store.exists(ZARR_JSON) and store.exists(UNFINISHED)


@contextmanager
def creating(store: Store, mode: str, datasets: Datasets) -> Iterator[Change]:
    """Yield a change of a new dataset, which is there when the block ends."""
    change = NewChange(store, mode, datasets)
    try:
        yield change
        change.commit()
    except BaseException:
        change.discard()
        raise
