"""A new dataset that several processes write, each one other shards.

Any process calls `put` for whole shards. The commit point depends on the store: see
`FolderTarget` and `ObjectTarget`.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import tempfile
from binascii import crc32
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import partial
from typing import Any

from .._arrays.selection import Selection
from .._commit.access import NewAccess
from .._commit.change import (
    PRIVATE,
    PRIVATE_FOLDER,
    Change,
    ObjectChange,
    UnfinishedFile,
    naming_dataset,
    temporary_file,
)
from .._commit.locking import FolderLock, waiting
from .._commit.new_folder import (
    NewName,
    check_target,
    mark,
    put,
    remove_leftover,
    remove_leftovers,
)
from .._commit.objects import Claim
from .._commit.shared import ParallelChange
from .._format.dtypes import Array as Items
from .._format.dtypes import DType
from .._format.grid import Box, Shape
from .._format.identity import find_identity
from .._format.zarr_metadata import ZARR_JSON
from .._storage.folder_store import FolderStore
from .._storage.paths import is_url, local_path
from .._storage.store import Conflict, MemoryStore
from .._types import Path, StorageOptions
from ..exceptions import StorageError, UsageError
from .array import Array
from .commit_rules import DATASETS, writer_for
from .folder import Folder, store_at
from .layouts import Found, array_class, table_class
from .layouts.base import ArrayLayout
from .rows import changed_blocks
from .table import Table

Create = Callable[[str], Array | Table]

# What follows in the name of the hidden folder: a checksum of the name of the dataset,
# whose beginning is in front, and a random number.
WRITING = "writing-%08x-"
# Seconds to wait for another process that is committing the dataset.
LOCK_SECONDS = 30.0
# Number of times that a shard is stored if other processes store it, too.
ATTEMPTS = 10


def box_at(corner: Shape, shape: Shape) -> Box:
    """Return the box with a corner, which has at least the first axis, and a shape."""
    return tuple(slice(i, i + n) for i, n in zip(corner, shape, strict=False))


class Target:
    """A dataset that several processes write.

    Attributes
    ----------
    root
        The path, or the URL, that it gets.
    layout, kind
        Its layout, and ``'array'`` or ``'table'``.
    shard_rows, shard
        Number of rows of a shard, of all columns; the shape of a shard of an array.
    mode, sync
        As in `create_array`.
    corner
        Where the items begin in the array; empty for all positions zero.
    options
        Parameters for the dataset that `begin` gets.
    late
        The message of `replaced`.
    """

    layout = kind = ""
    late = "another call has replaced what was being written, or it was removed"
    shard_rows = 0
    shard: Shape = ()
    corner: Shape = ()
    options: Mapping[str, Any] = {"layout": "zarr", "chunks": None, "shards": None}

    def __init__(self, root: str, mode: str, sync: bool) -> None:
        self.root = root
        self.mode = mode
        self.sync = sync

    def describe(self, made: Array | Table) -> None:
        """Note what the dataset is; raise `UsageError` if it has no common shards."""
        columns = [made] if isinstance(made, Array) else list(made.columns.values())
        shards = {column.shards[0] for column in columns if column.shards}
        if len(shards) != 1:
            raise UsageError(
                "the layout '%s' has no shards of the same number of rows, which "
                "several processes could write" % made.layout
            )
        self.shard_rows = shards.pop()
        self.layout = made.layout
        self.kind = "array" if isinstance(made, Array) else "table"
        self.shard = columns[0].shards or ()

    def opened(self, folder: Folder) -> Mapping[str, ArrayLayout]:
        """Return the columns in a folder by name; an array is one without a name."""
        if self.kind == "array":
            return {"": array_class(self.layout)(folder)}
        return table_class(self.layout)(folder).columns

    def fitting(self, dtypes: dict[str, DType], shape: Shape) -> dict[str, DType]:
        """Return the dtypes that items get; raise `UsageError` if they can't fit.

        `dtypes` are those of the items of each column, and `shape` that of an array.
        """
        return dtypes

    def put(self, start: int | Shape, columns: Mapping[str, Items]) -> object:
        """Write the items of shards, which begin at a row, or at a position.

        `columns` has the items of each column; those of an array have the name ``''``.
        If the dataset was committed, this does nothing. Raises `StorageError` if
        another call of `begin` has taken its place. Return what `finish` has to know.
        """
        with self.late_is_harmless(), self.changing() as change:
            arrays = self.opened(Folder(change.store))
            for name, rows in columns.items():
                array = arrays[name]
                shape = array.shape
                corner = start if isinstance(start, tuple) else (start,)
                grid = array.grid.resized((corner[0] + len(rows), *shape[1:]))
                selection = Selection(box_at(corner, rows.shape), grid.shape)
                blocks = changed_blocks(grid, selection, rows, None)
                array.stage(change, grid, blocks, partial(tuple, shape), extends=True)
            change.commit()
        return None

    def finish(self, length: int, written: Sequence[object] = ()) -> str:
        """Set the number of rows, and give the dataset its name; return the path.

        All shards must have been written: `put` has returned `written`. Another call
        does nothing.
        """
        with self.late_is_harmless():
            self.commit(length)
        return self.root

    def late_is_harmless(self) -> AbstractContextManager[None]:
        """Return a context whose block ends early if the dataset gets its name.

        Raises `StorageError` if another call has taken its place.
        """
        raise NotImplementedError

    def begin(self, create: Create) -> None:
        """Create the dataset without rows.

        `create` makes it at a path. What interrupted calls have left is removed.
        """
        raise NotImplementedError

    def changing(self) -> AbstractContextManager[Change]:
        """Return the context of a change that writes shards."""
        raise NotImplementedError

    def commit(self, length: int) -> None:
        """Set the number of rows, and give the dataset its name."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Remove what was written, unless a process is committing it."""
        raise NotImplementedError

    def replaced(self) -> StorageError:
        """Return the error of a process that is late, if another call took over."""
        return StorageError(errno.ESTALE, self.late, self.root)


class FolderTarget(Target):
    """A dataset in a hidden folder, `hidden_name`, until it gets its name.

    `begin` creates the dataset without rows, in a hidden folder beside its name. A
    shard is complete in a temporary file before it gets its name, so writing it again,
    or by two processes at once, changes nothing. `commit` sets the number of rows, and
    renames the dataset, which is the commit point: until then, readers see the dataset
    that had the name before, or none.

    The inode of its folder tells which dataset has the name. All processes must see the
    same number, as they do in the file systems of Linux, and over NFS.

    After that, the hidden folder is removed. A process that is late finds no folder: it
    does nothing if the dataset that it was writing has got its name, and else raises an
    error. Another `begin` for the same name removes the hidden folder, too.
    """

    def __init__(self, path: Path, mode: str, sync: bool) -> None:
        root = os.path.abspath(os.fsdecode(path))
        super().__init__(root, mode, sync)
        self.hidden_name = _start(root) + os.urandom(8).hex()
        self._inode = 0
        self._new_access()

    @property
    def name(self) -> NewName:
        """The name that the dataset gets."""
        return NewName.of(self.root, DATASETS)

    def _new_access(self) -> NewAccess:
        """Return the access of the dataset; raise an error if it can't be made."""
        old = check_target(self.name, self.mode)
        if old is not None:
            old.close()  # `commit` locks it again, and checks again
        return NewAccess(self.name.model(None if old is None else old.folder))

    def hidden(self) -> FolderStore:
        """Return the hidden folder."""
        return self.name.parent.subfolder(self.hidden_name)

    def staged(self) -> FolderStore:
        """Return the folder of the dataset until it is committed."""
        return self.hidden().subfolder(self.name.name)

    def begin(self, create: Create) -> None:
        """Create the dataset in the hidden folder."""
        access = self._new_access()
        around = self.name.parent
        os.makedirs(around.root, exist_ok=True)
        start = _start(self.root)
        earlier = [name for name in around.names() if name.startswith(start)]
        with naming_dataset(self.root, self.hidden().root):
            like = access.of_folder("")
            around.make_folder(
                self.hidden_name, 0o777 if like is None else PRIVATE_FOLDER
            )
            try:
                hidden = self.hidden()
                held = hidden.hold()
                access.give(held.number, like, "")
                mark(hidden)
                with create(hidden.path(self.name.name)) as made:
                    self.describe(made)
                self._inode = self.staged().status.st_ino
                access.give_all(self.staged())
            except BaseException:
                self.abandon()
                raise
        # Only now: the inode of a folder that was removed would be used again.
        for name in earlier:
            remove_leftover(around, name, self.name)
        remove_leftovers(around, self.name.start)

    @contextmanager
    def changing(self) -> Iterator[Change]:
        """Yield a change that writes shards."""
        staged = self.staged()
        if not self._is_staged():
            raise FileNotFoundError(errno.ENOENT, "it has its name", staged.root)
        yield ShardChange(staged, self.hidden(), self.sync)

    def commit(self, length: int) -> None:
        """Set the number of rows, and rename the dataset."""
        # Perhaps the same task in another process has locked it.
        with closing(waiting(lambda: FolderLock(self.hidden()), LOCK_SECONDS)):
            if self._is_staged():
                self._set_length(length)
                put(self.hidden(), self.name, self.sync, self.mode)
            self._check_committed()
        self.abandon()

    def _set_length(self, length: int) -> None:
        folder = Folder(self.staged())
        writing = closing(writer_for(Found(folder, self.layout, self.kind), self.sync))
        with writing as writer, writer.change() as change:
            for array in self.opened(folder).values():
                array.stage_length(change, length)

    def abandon(self) -> None:
        """Remove the hidden folder, unless a process is committing the dataset."""
        name = self.name
        remove_leftover(name.parent, self.hidden_name, name)

    def _is_staged(self) -> bool:
        """Return whether the dataset has not got its name.

        `put` may have given the path `staged` to the dataset that is replaced. Both
        exist then, so their inodes differ.
        """
        return self._is_in(self.staged())

    def _is_in(self, folder: FolderStore) -> bool:
        """Return whether the dataset is a folder."""
        with suppress(OSError):
            return folder.status.st_ino == self._inode
        return False

    def _check_committed(self) -> None:
        """Raise `StorageError` unless the dataset has got its name."""
        if not self._is_in(FolderStore(self.root)):
            raise self.replaced()

    @contextmanager
    def late_is_harmless(self) -> Iterator[None]:
        """End the block without an error if the dataset gets its name meanwhile."""
        with naming_dataset(self.root, self.hidden().root):
            try:
                yield
            except FileNotFoundError:
                if self._is_staged():
                    raise
                self._check_committed()


class ShardChange(ParallelChange):
    """Writes shards, and nothing else: the number of rows stays.

    What a layout stages for the end of a change is left out. Temporary files are
    outside of the dataset, in the folder `hidden`: those of dead processes must not get
    its name with it.
    """

    def __init__(self, folder: FolderStore, hidden: FolderStore, sync: bool) -> None:
        super().__init__(folder, "", sync)
        self._hidden = hidden

    def stage(self, name: str, content: bytes) -> None:
        """Leave out a document."""

    def commit(self) -> None:
        """Wait until the names of the shards are on the disk."""
        self._sync()

    def begin(self, name: str) -> UnfinishedFile:
        """Return a new file in the hidden folder."""
        staged = "%s-%d" % (self._token, next(self._numbers))
        like = self._access.of_file(name)
        fp = self._hidden.create(staged, 0o666 if like is None else PRIVATE)
        return UnfinishedFile(name, staged, fp, like)

    def finish(self, file: UnfinishedFile, *, at_once: bool) -> None:
        """Give a shard its name."""
        assert at_once
        self._close(file, self._does_sync)
        self.store.rename(file.staged, file.name, self._hidden)
        self._folders.add(file.name.rpartition("/")[0])

    def abandon(self, *files: UnfinishedFile) -> None:
        """Close and remove files."""
        for file in files:
            with suppress(OSError):  # closing writes the buffer: the disk may be full
                file.fp.close()
            with suppress(FileNotFoundError):  # the hidden folder was removed
                self._hidden.remove(file.staged)


class WriteAfterCommit(StorageError):
    """Another call writes the dataset, or it is complete."""


class ObjectTarget(Target):
    """A dataset that is being written in a store of objects.

    The documents of the dataset are with each task. Until `commit` stores the document
    of the root, which is the commit point, there is another one in its place, which
    identifies the call that writes (see `_commit.objects`). A dataset that is replaced
    is removed by `begin`.

    A task that finds another document is late: a writer may have changed the dataset. A
    shard is stored only if it has the version that it had before the document was
    found: so a late task can't replace a shard of another call, in a store that
    compares versions.
    """

    def __init__(
        self, url: Path, mode: str, storage_options: StorageOptions | None
    ) -> None:
        self._store = store_at(url, storage_options)
        super().__init__(self._store.root, mode, sync=False)
        self._documents: dict[str, bytes] = {}
        self._claim = Claim(self._store, mode, DATASETS)
        self._claim.check_free()

    def begin(self, create: Create) -> None:
        """Keep the documents of the dataset, and take the folder."""
        with (
            tempfile.TemporaryDirectory() as outer,
            create(os.path.join(outer, "new")) as made,
        ):
            self.describe(made)
            if made.layout != "zarr":
                raise UsageError(
                    "at a URL, only the layout 'zarr' can be written, not '%s'"
                    % made.layout
                )
            store = FolderStore(made.path)
            files = (name for name, kind in store.walk() if kind == stat.S_IFREG)
            self._documents = {name: store.read(name)[0] for name in files}
        self._claim.take()

    def _check_claim(self) -> None:
        """Raise `WriteAfterCommit` unless the dataset still belongs to this target."""
        try:
            self._claim.check()
        except Conflict as error:
            raise self._late() from error

    def _late(self) -> WriteAfterCommit:
        return WriteAfterCommit(errno.ESTALE, "it is late", self.root)

    @contextmanager
    def late_is_harmless(self) -> Iterator[None]:
        """End the block without an error if the dataset is complete."""
        try:
            yield
        except WriteAfterCommit as error:
            found = b""
            with suppress(FileNotFoundError):
                found = self._store.read(ZARR_JSON)[0]
            if _dataset_of(found) != _dataset_of(self._documents[ZARR_JSON]):
                raise self.replaced() from error

    def _in_memory(self) -> Folder:
        """Return a folder with the documents of the dataset."""
        self._check_claim()
        return Folder(MemoryStore(self.root, dict(self._documents)))

    @contextmanager
    def changing(self) -> Iterator[Change]:
        """Yield a change that stores shards."""
        yield ShardObjects(self._in_memory(), self)

    def store(self, name: str, content: bytes) -> None:
        """Store an object.

        Raises `WriteAfterCommit` if the dataset belongs to another call, or is
        complete: then a writer may have changed the object.
        """
        for attempt in range(ATTEMPTS):
            version = self._store.object_version(name)
            self._check_claim()  # after the version: see the strategy
            try:
                self._store.put(name, content, version)
                return
            except Conflict:  # the same task in another process has stored it
                if attempt == ATTEMPTS - 1:
                    raise

    def commit(self, length: int) -> None:
        """Store the documents, and the document of the root last."""
        folder = self._in_memory()
        change = ObjectChange(
            folder.store, ZARR_JSON, folder.store.object_version(ZARR_JSON)
        )
        for array in self.opened(folder).values():
            array.stage_length(change, length)
        change.commit()
        documents = {name: folder.read(name) for name in self._documents}
        root = documents.pop(ZARR_JSON)
        for name, content in documents.items():
            self.store(name, content)
        try:  # a document that was stored by this task, repeated, is no conflict
            self._store.put(ZARR_JSON, root, self._claim.version)  # commit point
        except Conflict as error:
            raise self._late() from error

    def abandon(self) -> None:
        """Remove what was stored, unless the dataset is complete."""
        self._claim.discard()


def _dataset_of(content: bytes) -> str | None:
    """Return which dataset a document belongs to, if that is certain."""
    identity = find_identity(content, json.loads(content or "{}"))
    return None if identity is None else identity.name


class ShardObjects(Change):
    """Stores shards, and nothing else."""

    def __init__(self, folder: Folder, target: ObjectTarget) -> None:
        super().__init__(folder.store, "")
        self._target = target

    def stage(self, name: str, content: bytes) -> None:
        """Leave out a document."""

    def begin(self, name: str) -> UnfinishedFile:
        """Return a temporary file for a shard."""
        return UnfinishedFile(name, name, temporary_file())

    def finish(self, file: UnfinishedFile, *, at_once: bool) -> None:
        """Store a shard."""
        with file.fp as fp:
            fp.seek(0)
            self._target.store(file.name, fp.read())

    def commit(self) -> None:
        """Return: each shard was stored at once."""


def target_of(
    path: Path, mode: str, sync: bool, storage_options: StorageOptions | None = None
) -> Target:
    """Return what several processes are going to write, at a path or at a URL.

    `mode` is ``'x'`` or ``'w'``, as in `create_array`. Raises an error if there is
    something that must stay.
    """
    path = local_path(path)
    if is_url(path):
        return ObjectTarget(path, mode, storage_options)
    return FolderTarget(path, mode, sync)


def _start(root: str) -> str:
    """Return how the names of hidden folders of a dataset begin."""
    name = NewName.of(root, DATASETS)
    return name.start + WRITING % crc32(os.fsencode(name.name))
