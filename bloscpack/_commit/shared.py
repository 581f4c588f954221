"""The rule 'one shard': several writers assign to an array at the same time.

The shape, the attributes and the document of the array stay. Each change replaces one
shard, which another program may be changing, too.

Commit point
    The rename that gives the new shard its name, or the request that stores it.
Other writers
    In a folder, a writer locks one of `STRIPES` files, which the name of the shard
    chooses. In a store of objects, a shard is stored if it still has the version that
    the change has found, else `Conflict` is raised, and the caller repeats the change.

    A writer that has the array for itself is kept out by a lock of the folder that
    shared writers have in common. In a store of objects it gives the document a new
    token, which ends the right of the shared writers; the first one of these gives it a
    token that begins with `SHARED_TOKEN`, which ends the right of the single writer.
Recovery
    A shard is old or new. Readers ignore the files in ``.bloscpack`` that a writer left
    when it died; the next writer that has the array for itself removes them.
"""

from __future__ import annotations

import errno
import os
import stat
from binascii import crc32
from collections.abc import Callable, Iterator
from contextlib import (
    ExitStack,
    closing,
    contextmanager,
    suppress,
)
from functools import partial

from .._format.committed import STAGING
from .._format.zarr_metadata import ZARR_JSON
from .._storage.folder_store import FILE_FLAGS, FolderStore
from .._storage.store import conflict
from ..exceptions import StorageError, UsageError
from .change import PRIVATE, PRIVATE_FOLDER, Change
from .folder_change import FolderChange, naming_dataset, recover
from .locking import FolderLock, Lock, waiting
from .objects import ObjectChange, recover_objects, store_root
from .states import SHARDS
from .tree import Tree
from .writer import WAIT, Rule

# Number of files of locks: two shards that share one wait for each other.
STRIPES = 64
# How the token of a document begins in a store of objects while the array has several
# writers. That of a single writer is random.
SHARED_TOKEN = "00000000"


class ParallelChange(FolderChange):
    """A change of a folder in which other processes make folders, too."""

    def make_folder(self, name: str) -> None:
        """Make a folder, unless there is one; another process may be making it.

        If that process dies before the folder has its access, this one gives it.
        """
        with suppress(FileExistsError):
            super().make_folder(name)
        status = self.store.status_of(name)
        if status is not None and stat.S_IMODE(status.st_mode) == PRIVATE_FOLDER:
            made = self.store.subfolder(name).hold()
            self._access.give(made.number, self._access.of_folder(name), name)


class SharedChange(ParallelChange):
    """A change of one shard in a folder, which is locked until `close`."""

    removes_shards = False

    def __init__(
        self, store: FolderStore, sync: bool, named: set[str], wait: float
    ) -> None:
        super().__init__(store, ZARR_JSON, sync, named=named)
        self.wait = wait
        self._locks = ExitStack()

    def lock(self, name: str) -> None:
        """Keep other writers from changing a file until `close`.

        Raises `StorageError` if another process keeps it locked for `wait` seconds.
        """
        path = self.store.path(name)
        message = "another writer%%s still has this file locked after %g seconds"
        self._staging = self._open_staging()
        stripe = "%s/lock-%d" % (STAGING, crc32(os.fsencode(name)) % STRIPES)
        like = self._access.of_file(ZARR_JSON)
        mode = 0o666 if like is None else PRIVATE
        with suppress(FileExistsError), self.store.create(stripe, mode) as fp:
            self._access.give(fp.fileno(), like, STAGING)
        try:  # NFS locks a file only for a process that may write it
            file = self.store.descriptor(stripe, FILE_FLAGS | os.O_RDWR)
        except PermissionError:
            file = self.store.descriptor(stripe)
        take = partial(StripeLock, file, path, message % self.wait)
        lock = waiting(take, self.wait)
        self._locks.callback(lock.release)
        if not lock.is_held:
            raise _no_locks(path)

    def stage(self, name: str, content: bytes) -> None:
        """Raise `StorageError`: another program has changed ``zarr.json``.

        Shared writers never write it.
        """
        raise StorageError(
            errno.ESTALE,
            "another program has changed '%s', and nothing more was assigned: open the "
            "array again" % name,
            self.store.root,
        )

    def close(self) -> None:
        """Remove what was not committed, and let other writers in."""
        with self._locks:
            self.discard()


class StripeLock(Lock):
    """The lock of some shards, which is required."""

    warns = False


def _no_locks(path: str) -> StorageError:
    return StorageError(
        errno.ENOLCK,
        "there are no locks, so only one writer can change the array: open it without "
        "shared=True",
        path,
    )


class ShardRule(Rule):
    """What the rules for shards have in common: others change shards at any time."""

    state = SHARDS
    wait = 60.0  # writing the same shard takes long


class SharedShards(ShardRule):
    """The right to assign to an array in a folder, beside other writers.

    `check` is called when the folder is locked. It raises `StorageError` if the array
    can't have several writers any more. `tidy` is as for `recover`.
    """

    _lock: FolderLock | None = None

    def __init__(
        self,
        tree: Tree,
        sync: bool,
        check: Callable[[], object],
        tidy: Callable[[Tree], object],
    ) -> None:
        assert isinstance(tree.store, FolderStore)
        self._store = tree.store
        self.tree = tree
        self._sync = sync
        self._check, self._tidy = check, tidy
        self._named: set[str] = set()
        if tree.store.is_folder(STAGING):  # of a writer that died, or works now
            with suppress(StorageError):
                self._complete(wait=0)
        self._lock = self._locked()

    def _complete(self, wait: float) -> None:
        """Complete the change of a single writer that died."""
        take = partial(FolderLock, self._store, warns=False)
        with closing(waiting(take, wait)) as lock:
            if lock.is_held:
                how = self._store, ZARR_JSON, self._sync
                change = partial(FolderChange, *how, tree=self.tree)
                recover(self._store, change, self._tidy)

    def _locked(self) -> FolderLock:
        """Keep single writers away, whose last change is complete."""
        while True:
            lock = FolderLock(self._store, shared=True)
            if not lock.is_held:
                raise _no_locks(self._store.root)
            if not self.tree.read().pending:
                return lock
            lock.close()
            self._complete(WAIT)

    @contextmanager
    def changing(self) -> Iterator[Change]:
        """Yield a change of one shard, which is committed within the block."""
        with naming_dataset(self._store.root), ExitStack() as stack:
            if self._lock is None:
                # A writer that is being closed has the folder for itself for a moment.
                stack.callback(waiting(self._locked, WAIT).close)
                self._check()
            change = SharedChange(self._store, self._sync, self._named, self.wait)
            stack.callback(change.close)
            yield change

    def release(self) -> None:
        """Keep single writers away during each change only."""
        if self._lock is not None:
            self._lock.close()
            with suppress(OSError):  # other writers use it
                lock = FolderLock(self._store, warns=False)
                with closing(lock):
                    if lock.is_held:
                        self._store.remove_tree(STAGING)
        self._lock = None


class SharedObjects(ShardRule):
    """The right to assign to an array in a store of objects, beside other writers."""

    def __init__(self, tree: Tree, claimed: Callable[[bytes, str], bytes]) -> None:
        self.tree = tree
        self._store = store = tree.store
        if not store.compares_versions:
            raise UsageError(
                "'%s' can have one writer at a time: shared=True needs a store that "
                "compares versions while it stores an object, as S3 does" % store.root
            )
        self._version = waiting(lambda: self._claim(claimed), WAIT)

    def _claim(self, claimed: Callable[[bytes, str], bytes]) -> str:
        """Return the version of the document, with the token of shared writers."""
        version = recover_objects(self.tree)
        content = self.tree.state.root.content
        if b" token=" + SHARED_TOKEN.encode() in content:
            self._store.check_version(ZARR_JSON, version)  # `content` has it
            return version
        return store_root(self.tree, claimed(content, SHARED_TOKEN), version)

    @contextmanager
    def changing(self) -> Iterator[Change]:
        """Yield a change of one shard, which is committed within the block."""
        change = ObjectChange(self._store, self._version)
        change.removes_shards = False
        try:
            yield change
            # A writer that has the array for itself may have read the old shard.
            self._check()
        except StorageError as error:
            if error.errno != errno.EAGAIN:
                raise
            self._check()
            # Another writer has stored the shard, before this one or while it was read.
            raise conflict(self._store.root) from error
        finally:
            change.close()

    def _check(self) -> None:
        if self._store.object_version(ZARR_JSON) != self._version:
            raise StorageError(
                errno.ESTALE,
                "another program has changed the array as its only writer, and the "
                "last assignment may be lost: open it again",
                self._store.root,
            )
