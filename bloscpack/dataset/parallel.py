"""A new dataset that several processes write, each one other shards.

Strategy: `begin` creates the dataset without rows. Any process then calls `write` for
whole shards. A shard is complete in a temporary file before it gets its name, and no
reader looks at it until `commit` sets the number of rows. So writing a shard again, or
by two processes at once, changes nothing.

All temporary files are in a folder that `begin` makes and `commit` removes. A process
that is late can't make a file there any more, nor rename one: it gets an error, and
does not touch the dataset. Another call of `begin`, or a writer that opens the dataset,
removes the folder, too.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from time import monotonic, sleep

from .._crashsafe.locking import FolderLock
from .._storage.disk import disk
from .._storage.urls import is_url, shown_name
from ..exceptions import StorageError, UsageError
from .array import Array
from .change import Change, UnfinishedFile
from .folder import CHANGES, Folder
from .layouts import array_class, find, table_class
from .layouts.base import ArrayLayout
from .rows import blocks_of
from .writer import NoSuchWriting, Writer

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .._format.dtypes import Array as Items
    from .._storage.protocols import Path
    from .layouts.base import TableLayout
    from .table import Table

# How the name of the folder of temporary files begins.
WRITING = CHANGES + "/writing-"
# Seconds to wait for another process that has locked the dataset to commit it.
LOCK_SECONDS = 30.0


class Target:
    """A dataset that several processes write.

    Attributes
    ----------
    root
        The path of its folder.
    layout, kind
        Its layout, and ``'array'`` or ``'table'``.
    place
        The folder of temporary files, relative to the dataset.
    shard_rows
        Number of rows of a shard, of all columns.
    sync
        As in `open`.
    """

    def __init__(self, root: str, layout: str, kind: str, sync: bool) -> None:
        self.root = root
        self.layout = layout
        self.kind = kind
        self.sync = sync
        self.place = WRITING + os.urandom(8).hex()
        self.shard_rows = 0

    def opened(self) -> tuple[Folder, ArrayLayout | TableLayout]:
        """Return the folder and what is in it now."""
        folder = Folder.open(self.root)
        if self.kind == "array":
            return folder, array_class(self.layout)(folder)
        return folder, table_class(self.layout)(folder)

    def replaced(self) -> StorageError:
        """Return the error of a process that is late."""
        return StorageError(
            errno.ESTALE,
            "the dataset was completed, or replaced, or opened by another writer",
            self.root,
        )


class ShardChange(Change):
    """Writes shards, and nothing else: the number of rows stays.

    Names that a layout stages for the end of a change are left out.
    """

    def __init__(self, folder: Folder, target: Target) -> None:
        super().__init__(folder, target.sync)
        self._target = target

    def begin(self, name: str) -> UnfinishedFile:
        """Return a new file in the folder of temporary files."""
        number = next(self._numbers)
        place = "%s/%s-%d" % (self._target.place, self._token, number)
        try:
            fp = disk.create(self._root.path(place), 0o666)
        except FileNotFoundError as error:
            raise self._target.replaced() from error
        return UnfinishedFile(name, place, fp)

    def finish(self, file: UnfinishedFile, *, at_once: bool) -> None:
        """Give a shard its name; remove any other file."""
        if not at_once:
            self.abandon(file)
            return
        try:
            super().finish(file, at_once=True)
        except FileNotFoundError as error:
            raise self._target.replaced() from error

    def make_folder(self, name: str) -> None:
        """Make a folder, unless there is one; another process may be making it."""
        with suppress(FileExistsError):
            super().make_folder(name)
        self._folders.add(os.path.dirname(self._root.path(name)))

    def abandon(self, *files: UnfinishedFile) -> None:
        """Close and remove files."""
        with suppress(FileNotFoundError):  # the whole folder was removed
            super().abandon(*files)


def begin(
    path: Path, mode: str, sync: bool, create: Callable[[str], Array | Table]
) -> Target:
    """Return a new dataset without rows, which any process can write.

    `create` is called with the mode. A dataset that an interrupted call left is
    replaced in each mode.
    """
    if is_url(os.fsdecode(path)):
        raise UsageError(
            "processes write a dataset to a folder that they share, and '%s' is a URL"
            % shown_name(os.fsdecode(path))
        )
    root = os.path.abspath(os.fsdecode(path))
    if mode == "x" and _is_unfinished(root):
        mode = "w"
    with create(mode) as made:
        kind = "array" if isinstance(made, Array) else "table"
        columns = [made] if isinstance(made, Array) else list(made.columns.values())
        shards = {column.shards[0] for column in columns if column.shards}
        target = Target(root, made.layout, kind, sync)
    if len(shards) != 1:
        raise UsageError(
            "the layout '%s' has no shards of the same number of rows, which several "
            "processes could write" % target.layout
        )
    target.shard_rows = shards.pop()
    lock = FolderLock(root)
    try:
        for name in (CHANGES, target.place):
            with suppress(FileExistsError):
                disk.make_folder(os.path.join(root, *name.split("/")))
    finally:
        lock.close()
    return target


def _is_unfinished(root: str) -> bool:
    """Return whether a dataset has no rows because a call was interrupted."""
    if not os.path.isdir(os.path.join(root, CHANGES)):
        return False
    folder = Folder.open(root)
    found = find(folder)
    writing = any(
        name.startswith(WRITING.partition("/")[2]) for name in folder.names(CHANGES)
    )
    return writing and found is not None and found[1] in ("array", "table")


def write(target: Target, start: int, columns: Mapping[str, Items]) -> None:
    """Write the rows of shards, which begin at the row `start`.

    `columns` has the rows of each column; those of an array have the name ``''``.
    Raises `StorageError` if another process has committed the dataset.
    """
    folder, layout = target.opened()
    change = ShardChange(folder, target)
    arrays = _arrays(layout)
    for name, rows in columns.items():
        array = arrays[name]
        blocks = blocks_of(rows, array.block_rows, start // array.block_rows)
        array.stage(change, blocks, lambda: 0, extends=True)
    change.commit()


def commit(target: Target, length: int) -> None:
    """Set the number of rows, when all shards have been written.

    Another commit of the same rows does nothing.
    """
    writer = _open_writer(target)
    if writer is None:
        columns = _arrays(target.opened()[1]).values()
        if any(column.shape[0] != length for column in columns):
            raise target.replaced()
        return
    try:
        arrays = _arrays(target.opened()[1])
        with writer.change() as change:
            for array in arrays.values():
                array.stage(change, [], lambda: length, extends=True)
    finally:
        writer.close()


def _open_writer(target: Target) -> Writer | None:
    """Return a writer, which ends the parallel writing; None if it has ended."""
    end = monotonic() + LOCK_SECONDS
    while True:
        try:
            return Writer(Folder.open(target.root), target.sync, ends=target.place)
        except NoSuchWriting:
            return None
        except StorageError as error:  # perhaps the same task in another process
            if error.errno != errno.EAGAIN or monotonic() > end:
                raise
        sleep(0.05)


def _arrays(layout: ArrayLayout | TableLayout) -> Mapping[str, ArrayLayout]:
    """Return the columns by name; an array is one without a name."""
    if isinstance(layout, ArrayLayout):
        return {"": layout}
    return layout.columns
