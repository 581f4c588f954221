"""A new dataset that several processes write, each one other shards.

Strategy: `begin` creates the dataset without rows, in a hidden folder beside its name.
Any process then calls `write` for whole shards. A shard is complete in a temporary file
before it gets its name, so writing it again, or by two processes at once, changes
nothing. `commit` sets the number of rows, and renames the dataset, which is the commit
point: until then, readers see the dataset that had the name before, or none.

The inode of its folder tells which dataset has the name. All processes must see the
same number, as they do in the file systems of Linux, and over NFS.

After that, the hidden folder is removed. A process that is late finds no folder: it
does nothing if the dataset that it was writing has got its name, and else raises an
error. Another call of `begin` for the same name removes the hidden folder, too.
"""

from __future__ import annotations

import errno
import os
import stat
from binascii import crc32
from contextlib import contextmanager, suppress
from time import monotonic, sleep

from ..exceptions import StorageError, UsageError
from .access import NewAccess
from .array import Array
from .change import PRIVATE, PRIVATE_FOLDER, Change, UnfinishedFile, naming_dataset
from .create import NewName, check_target, put, remove_leftover, remove_leftovers
from .folder import Folder
from .layouts import array_class, table_class
from .rows import blocks_of
from .writer import Writer

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from .._crashsafe.locking import FolderLock
    from .._format.dtypes import Array as Items
    from .._storage.protocols import Path
    from .layouts.base import ArrayLayout
    from .table import Table

# What follows in the name of the hidden folder: a checksum of the name of the dataset,
# whose beginning is in front, and a random number.
WRITING = "writing-%08x-"
# Seconds to wait for another process that is committing the dataset.
LOCK_SECONDS = 30.0


class Target:
    """A dataset that several processes write.

    Attributes
    ----------
    root
        The path, or the URL, that it gets.
    layout, kind
        Its layout, and ``'array'`` or ``'table'``.
    shard_rows
        Number of rows of a shard, of all columns.
    mode, sync
        As in `create_array`.
    """

    layout = kind = ""
    shard_rows = 0

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

    def opened(self, folder: Folder) -> Mapping[str, ArrayLayout]:
        """Return the columns in a folder by name; an array is one without a name."""
        if self.kind == "array":
            return {"": array_class(self.layout)(folder)}
        return table_class(self.layout)(folder).columns

    def late_is_harmless(self) -> AbstractContextManager[None]:
        """Return a context whose block ends early if the dataset gets its name.

        Raises `StorageError` if another call has taken its place.
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
        return StorageError(
            errno.ESTALE,
            "another call has replaced what was being written, or it was removed",
            self.root,
        )


class FolderTarget(Target):
    """A dataset in a hidden folder, `place`, until it gets its name."""

    def __init__(self, root: str, mode: str, sync: bool) -> None:
        super().__init__(root, mode, sync)
        self.place = _start(root) + os.urandom(8).hex()
        self._inode = 0

    @property
    def name(self) -> NewName:
        """The name that the dataset gets."""
        return NewName.of(self.root)

    def hidden(self) -> Folder:
        """Return the hidden folder."""
        return self.name.parent.subfolder(self.place)

    def staged(self) -> Folder:
        """Return the folder of the dataset until it is committed."""
        return self.hidden().subfolder(self.name.name)

    def describe(self, made: Array | Table) -> None:
        """Note what the dataset is, and which folder it is."""
        super().describe(made)
        self._inode = self.staged().status.st_ino

    @contextmanager
    def changing(self) -> Iterator[Change]:
        """Yield a change that writes shards."""
        staged = self.staged()
        if not self._is_staged():
            raise FileNotFoundError(errno.ENOENT, "it has its name", staged.root)
        yield ShardChange(staged, self.hidden(), self.sync)

    def commit(self, length: int) -> None:
        """Set the number of rows, and rename the dataset."""
        lock = _locked(self.hidden())
        try:
            if self._is_staged():
                set_length(self, self.staged(), length)
                put(self.hidden(), self.name, self.sync, self.mode)
            self._check_committed()
        finally:
            lock.close()
        self.abandon()

    def abandon(self) -> None:
        """Remove the hidden folder, unless a process is committing the dataset."""
        name = self.name
        remove_leftover(name.parent, self.place, name)

    def _is_staged(self) -> bool:
        """Return whether the dataset has not got its name.

        `put` may have given the path `staged` to the dataset that is replaced. Both
        exist then, so their inodes differ.
        """
        return self._is_in(self.staged())

    def _is_in(self, folder: Folder) -> bool:
        """Return whether the dataset is a folder."""
        with suppress(OSError):
            return folder.status.st_ino == self._inode
        return False

    def _check_committed(self) -> None:
        """Raise `StorageError` unless the dataset has got its name."""
        if not self._is_in(Folder(self.root)):
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


class ShardChange(Change):
    """Writes shards, and nothing else: the number of rows stays.

    Names that a layout stages for the end of a change are left out. Temporary files are
    outside of the dataset, in the folder `hidden`: those of dead processes must not get
    its name with it.
    """

    def __init__(self, folder: Folder, hidden: Folder, sync: bool) -> None:
        super().__init__(folder, sync)
        self._hidden = hidden

    def begin(self, name: str) -> UnfinishedFile:
        """Return a new file in the hidden folder."""
        place = "%s-%d" % (self._token, next(self._numbers))
        like = self._access.of_file(name)
        fp = self._hidden.create(place, 0o666 if like is None else PRIVATE)
        return UnfinishedFile(name, place, fp, like)

    def finish(self, file: UnfinishedFile, *, at_once: bool) -> None:
        """Give a shard its name; remove any other file."""
        if not at_once:
            self.abandon(file)
            return
        self._close(file)
        self._root.rename(file.place, file.name, self._hidden)
        self._folders.add(file.name.rpartition("/")[0])

    def make_folder(self, name: str) -> None:
        """Make a folder, unless there is one; another process may be making it.

        If that process dies before the folder has its access, this one gives it.
        """
        with suppress(FileExistsError):
            super().make_folder(name)
        found = self._root.status_of(name)
        if found is not None and stat.S_IMODE(found.st_mode) == PRIVATE_FOLDER:
            made = self._root.subfolder(name).hold()
            self._access.give(made.number, self._access.of_folder(name), name)

    def abandon(self, *files: UnfinishedFile) -> None:
        """Close and remove files."""
        for file in files:
            with suppress(OSError):  # closing writes the buffer: the disk may be full
                file.fp.close()
            with suppress(FileNotFoundError):  # the hidden folder was removed
                self._hidden.remove(file.place)


def begin(
    path: Path, mode: str, sync: bool, create: Callable[[str], Array | Table]
) -> Target:
    """Return a new dataset without rows, which any process can write.

    `create` makes it at a path. `mode` is ``'x'`` or ``'w'``, as in `create_array`.
    The hidden folder of an interrupted call is removed in each mode.
    """
    root, access = _checked(path, mode)
    target = FolderTarget(root, mode, sync)
    around = target.name.parent
    os.makedirs(around.root, exist_ok=True)
    earlier = [name for name in around.names("") if name.startswith(_start(root))]
    with naming_dataset(root, target.hidden().root):
        like = access.of_folder("")
        around.make_folder(target.place, 0o777 if like is None else PRIVATE_FOLDER)
        try:
            hidden = target.hidden()
            held = hidden.hold()
            access.give(held.number, like, "")
            with create(hidden.path(target.name.name)) as made:
                target.describe(made)
            access.give_all(target.staged())
        except BaseException:
            target.abandon()
            raise
    # Only now: the inode of a folder that was removed would be used again.
    for name in earlier:
        remove_leftover(around, name, target.name)
    remove_leftovers(around, target.name.start)
    return target


def checked_root(path: Path, mode: str) -> str:
    """Return the full path of a new dataset; raise an error if it can't be made."""
    return _checked(path, mode)[0]


def _checked(path: Path, mode: str) -> tuple[str, NewAccess]:
    """Return the full path of a new dataset, and its access."""
    root = os.path.abspath(os.fsdecode(path))
    name = NewName.of(root)
    old = check_target(name, mode)
    if old is not None:
        old.close()  # `commit` locks it again, and checks again
    return root, NewAccess(name.model(None if old is None else old.folder))


def _start(root: str) -> str:
    """Return how the names of hidden folders of a dataset begin."""
    name = NewName.of(root)
    return name.start + WRITING % crc32(os.fsencode(name.name))


def write(target: Target, start: int, columns: Mapping[str, Items]) -> None:
    """Write the rows of shards, which begin at the row `start`.

    `columns` has the rows of each column; those of an array have the name ``''``. If
    the dataset was committed, this does nothing. Raises `StorageError` if another call
    of `begin` has taken its place.
    """
    with target.late_is_harmless(), target.changing() as change:
        arrays = target.opened(change.folder)
        for name, rows in columns.items():
            array = arrays[name]
            blocks = blocks_of(rows, array.block_rows, start // array.block_rows)
            array.stage(change, blocks, lambda: 0, extends=True)
        change.commit()


def commit(target: Target, length: int) -> None:
    """Set the number of rows, and give the dataset its name.

    All shards must have been written. Another commit does nothing.
    """
    with target.late_is_harmless():
        target.commit(length)


def set_length(target: Target, folder: Folder, length: int) -> None:
    """Set the number of rows of a dataset in a folder."""
    folder.read_journal()
    writer = Writer(folder, target.sync)
    try:
        with writer.change() as change:
            for array in target.opened(folder).values():
                array.stage_length(change, length)
    finally:
        writer.close()


def _locked(folder: Folder) -> FolderLock:
    """Lock a folder; wait for another process that has locked it."""
    end = monotonic() + LOCK_SECONDS
    while True:
        try:
            return folder.lock()
        except StorageError as error:  # perhaps the same task in another process
            if error.errno != errno.EAGAIN or monotonic() > end:
                raise
        sleep(0.05)
