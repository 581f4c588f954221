"""A new dataset that several processes write, each one other shards.

A `Target` is pickled to each task. Any process calls `put` for whole shards, and one
calls `finish`, which is the commit point. Each of them may be repeated at any time: the
identity in the document at the path tells whether the dataset has got its name, or
another one has. The place of the dataset until then depends on the store: see
`FolderTarget` and `ObjectTarget`.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from binascii import crc32
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Any

from .._arrays.selection import ItemSelection
from .._commit.access import NewAccess, folder_of
from .._commit.change import PRIVATE_FOLDER, Change, UnfinishedFile
from .._commit.folder_change import FolderChange, naming_dataset
from .._commit.locking import FolderLock, waiting
from .._commit.new_folder import (
    NewName,
    check_target,
    mark,
    put,
    remove_leftover,
    remove_leftovers,
)
from .._commit.objects import Claim, ObjectChange, temporary_file
from .._commit.shared import ParallelChange
from .._engine.contexts import on_error
from .._format.committed import STAGING
from .._format.dtypes import Array as Items
from .._format.dtypes import DType
from .._format.grid import Box, Shape
from .._format.identity import read_identity, stated_identity
from .._format.zarr_metadata import ZARR_JSON
from .._storage.folder_store import FolderStore
from .._storage.paths import is_url, local_path
from .._storage.store import Conflict, MemoryStore, Store
from .._types import Path, StorageOptions
from ..exceptions import FormatError, StorageError, UsageError
from .array import Array
from .changed_blocks import NewState, changed_blocks
from .commit_rules import DATASETS
from .folder import Folder, store_at
from .layouts import Found
from .layouts.base import ArrayLayout, NodeLayout
from .table import Table

Create = Callable[[str], Array | Table]

# What follows in the name of the hidden folder: a checksum of the name of the dataset,
# whose beginning is in front, and a random number.
WRITING = "writing-%08x-"
# Seconds to wait for another process that is committing the dataset.
LOCK_SECONDS = 30.0


def box_at(corner: Shape, shape: Shape) -> Box:
    """Return the box with a corner, which has at least the first axis, and a shape."""
    return tuple(slice(i, i + n) for i, n in zip(corner, shape, strict=False))


class Target:
    """A dataset that several processes write.

    Attributes
    ----------
    root
        The path, or the URL, that it gets.
    layout, kind, document
        Its layout, ``'array'`` or ``'table'``, and the name of its document.
    identity
        The identity in its document.
    shard
        The shape of a shard; those of all columns have the same number of rows.
    mode, sync
        As in `create_array`.
    corner
        Where the items begin in the array; empty for all positions zero.
    options
        Parameters for the dataset that `begin` gets.
    late
        The message of `replaced`.
    hidden_path
        The path of the hidden folder that it is in until it gets its name, if any.
    """

    layout = kind = document = identity = ""
    late = "another call has replaced what was being written, or it was removed"
    shard: Shape = ()
    corner: Shape = ()
    options: Mapping[str, Any] = {"layout": "zarr", "chunks": None, "shards": None}
    hidden_path: str | None = None

    def __init__(self, root: str, mode: str, sync: bool) -> None:
        self.root = root
        self.mode = mode
        self.sync = sync

    def describe(self, made: Array | Table) -> None:
        """Note what the dataset is; raise `UsageError` if it has no common shards."""
        layout = made._layout
        columns = [*layout.arrays().values()]
        shards = {column.shards and column.shards[0] for column in columns}
        if len(shards) > 1 or None in shards:
            raise UsageError(
                "the layout '%s' has no shards of the same number of rows, which "
                "several processes could write" % layout.name
            )
        self.layout, self.kind = layout.name, layout.kind
        self.document = layout.document
        self.shard = columns[0].shards or ()
        self.identity = self.identity_in(FolderStore(made.path))

    def identity_in(self, store: Store) -> str:
        """Return the identity that a dataset states; '' if there is none."""
        with suppress(FileNotFoundError, NotADirectoryError, FormatError):
            document = Folder(store).read_json(self.document)
            identity = read_identity(b"", stated_identity(document))[0]
            return "" if identity is None else identity.name
        return ""

    def opened(self, folder: Folder) -> Mapping[str, ArrayLayout]:
        """Return the columns in a folder by name; an array is one without a name."""
        found: NodeLayout = Found(folder, self.layout, self.kind).open()
        return found.arrays()

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
        with self.late_is_harmless():
            folder, change = self.begin_shards()
            arrays = self.opened(folder)
            for name, rows in columns.items():
                array = arrays[name]
                shape = array.shape
                corner = start if isinstance(start, tuple) else (start,)
                grid = array.grid.resized((corner[0] + len(rows), *shape[1:]))
                selection = ItemSelection(box_at(corner, rows.shape), grid.shape)
                blocks = changed_blocks(grid, selection, rows, None)
                same = partial(tuple, shape)
                try:
                    array.stage(change, NewState(grid, blocks, True, same))
                except Conflict:
                    if not self.is_unfinished():
                        raise
                    # The same task in another process has stored it.
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

    def stage_length(self, folder: Folder, change: Change, length: int) -> None:
        """Let a change set the number of rows of the dataset in a folder."""
        change.stage(change.document, folder.read(change.document))
        for array in self.opened(folder).values():
            array.stage_length(change, length)

    @contextmanager
    def late_is_harmless(self) -> Iterator[None]:
        """End the block without an error if the dataset gets its name meanwhile.

        Raises `StorageError` if another call has taken its place.
        """
        with naming_dataset(self.root, self.hidden_path):
            try:
                yield
            except (FileNotFoundError, Conflict) as error:
                if self.is_unfinished():
                    raise
                if not self.is_finished():
                    raise self.replaced() from error

    def replaced(self) -> StorageError:
        """Return the error of a process that is late, if another call took over."""
        return StorageError(errno.ESTALE, self.late, self.root)

    # What differs between stores

    def begin(self, create: Create) -> None:
        """Create the dataset without rows.

        `create` makes it at a path. What interrupted calls have left is removed.
        """
        raise NotImplementedError

    def begin_shards(self) -> tuple[Folder, Change]:
        """Return a folder with the documents, and a change that writes shards.

        It, or the change, raises `Conflict` if this is late.
        """
        raise NotImplementedError

    def commit(self, length: int) -> None:
        """Set the number of rows, and give the dataset its name."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Remove what was written, unless a process is committing it."""
        raise NotImplementedError

    def is_unfinished(self) -> bool:
        """Return whether the dataset is there without its name."""
        raise NotImplementedError

    def is_finished(self) -> bool:
        """Return whether the dataset has got its name."""
        raise NotImplementedError


class FolderTarget(Target):
    """A dataset in a hidden folder, `hidden_path`, until it gets its name.

    `begin` creates the dataset without rows, in a hidden folder beside its name. A
    shard is complete in a temporary file before it gets its name, so writing it again,
    or by two processes at once, changes nothing. `commit` sets the number of rows, and
    renames the dataset, which is the commit point: until then, readers see the dataset
    that had the name before, or none.

    After that, the hidden folder is removed. A process that is late finds no folder: it
    does nothing if the dataset that it was writing has got its name, and else raises an
    error. Another `begin` for the same name removes the hidden folder, too.
    """

    hidden_path: str

    def __init__(self, path: Path, mode: str, sync: bool) -> None:
        super().__init__(os.path.abspath(os.fsdecode(path)), mode, sync)
        name = self.name
        self.hidden_start = name.start + WRITING % crc32(os.fsencode(name.name))
        self.hidden_path = name.parent.path(self.hidden_start + os.urandom(8).hex())
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
        return self.name.parent.subfolder(os.path.basename(self.hidden_path))

    def staged(self) -> FolderStore:
        """Return the folder of the dataset until it is committed.

        Raises `Conflict` if it is another one: when the dataset gets its name, its path
        may go to the one that it replaces.
        """
        staged = self.hidden().subfolder(self.name.name)
        if self.identity_in(staged) != self.identity:
            raise Conflict(errno.ESTALE, "it is late", self.root)
        return staged

    def begin(self, create: Create) -> None:
        """Create the dataset in the hidden folder."""
        access = self._new_access()
        around, hidden = self.name.parent, self.hidden()
        os.makedirs(around.root, exist_ok=True)
        earlier = [n for n in around.names() if n.startswith(self.hidden_start)]
        with naming_dataset(self.root, self.hidden_path):
            like = access.of_folder("")
            around.make_folder(
                os.path.basename(self.hidden_path),
                0o777 if like is None else PRIVATE_FOLDER,
            )
            with on_error(self.abandon):
                held = hidden.hold()
                access.give(held.number, like, "")
                mark(hidden)
                with create(hidden.path(self.name.name)) as made:
                    self.describe(made)
                access.give_all(self.staged())
        for name in earlier:
            remove_leftover(around, name, self.name)
        remove_leftovers(around, self.name.start)

    def begin_shards(self) -> tuple[Folder, Change]:
        """Return the folder of the dataset, and a change of it."""
        staged = self.staged()
        return Folder(staged), ShardChange(staged, self.hidden(), self.sync)

    def commit(self, length: int) -> None:
        """Set the number of rows, and rename the dataset."""
        # Perhaps the same task in another process has locked it.
        with closing(waiting(lambda: FolderLock(self.hidden()), LOCK_SECONDS)):
            is_late = not self.is_unfinished()
            if not is_late:
                self.set_length(length)
                put(self.hidden(), self.name, self.sync, self.mode)
        self.abandon()
        if is_late:
            raise Conflict(errno.ESTALE, "it is late", self.root)

    def set_length(self, length: int) -> None:
        """Set the number of rows of the dataset in the hidden folder."""
        staged = self.staged()
        change = FolderChange(staged, self.document, self.sync)
        self.stage_length(Folder(staged), change, length)
        change.commit()
        staged.remove_tree(STAGING)

    def abandon(self) -> None:
        """Remove the hidden folder, unless a process is committing the dataset."""
        name = self.name
        remove_leftover(name.parent, os.path.basename(self.hidden_path), name)

    def is_unfinished(self) -> bool:
        """Return whether the hidden folder has the dataset."""
        with suppress(Conflict):
            return bool(self.staged())
        return False

    def is_finished(self) -> bool:
        """Return whether the dataset has got its name."""
        return self.identity_in(FolderStore(self.root)) == self.identity


class ShardChange(ParallelChange):
    """Writes shards, and nothing else: the number of rows stays.

    What a layout stages for the end of a change is left out. Temporary files are
    outside of the dataset, in the folder `hidden`: those of dead processes must not get
    its name with it, and a process that is late must not find it.
    """

    def __init__(self, folder: FolderStore, hidden: FolderStore, sync: bool) -> None:
        super().__init__(folder, "", sync)
        self._staging = hidden

    def stage(self, name: str, content: bytes) -> None:
        """Leave out a document."""

    def _move(self, staged: str | None, name: str) -> None:
        assert staged is not None
        self.store.rename(staged.rpartition("/")[2], name, self._staging)
        self._folders.add(folder_of(name))


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

    def begin_shards(self) -> tuple[Folder, Change]:
        """Return a folder in memory, and a change of the dataset."""
        return (
            Folder(MemoryStore(self.root, self._documents)),
            ShardObjects(self._store, self._claim.version),
        )

    def commit(self, length: int) -> None:
        """Store the document of the root, and then those of columns."""
        folder, change = self.begin_shards()
        self.stage_length(folder, change, length)
        change.commit()

    def abandon(self) -> None:
        """Remove what was stored, unless the dataset is complete.

        The document that says so stays: a task that is running may store a shard, and
        the next call removes it.
        """
        self._claim.empty()

    def is_unfinished(self) -> bool:
        """Return whether the folder belongs to this call."""
        return self._store.object_version(ZARR_JSON) == self._claim.version

    def is_finished(self) -> bool:
        """Return whether the dataset is complete."""
        return self.identity_in(self._store) == self.identity


class ShardObjects(ObjectChange):
    """Stores shards; the claim is checked when their content is complete."""

    def begin(self, name: str) -> UnfinishedFile:
        """Return a temporary file for a shard."""
        return UnfinishedFile(name, name, temporary_file())

    def finish(self, file: UnfinishedFile, *, at_once: bool) -> None:
        """Store a shard."""
        self.lock(file.name)
        super().finish(file, at_once=at_once)


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
