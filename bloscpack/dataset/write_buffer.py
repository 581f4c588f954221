"""Changes that wait in memory, of a dataset opened with ``buffered=True``.

Strategy: appended rows are collected up to the end of the file that the first of them
belongs to; no reader sees them before they are written. Assigned items are collected in
whole chunks (`ArrayLayout.waiting`), which the reader of this writer sees, until as
many items of a shard were assigned as it has, or until they are too many. The shards
that an assignment has changed are written in one change. Rows and items never wait at
once, so that changes are written in their order.
"""

from __future__ import annotations

import atexit
import errno
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple

import numpy

from .._arrays.selection import ItemSelection, Part
from .._commit.states import ALONE
from .._commit.writer import Writer
from .._engine.contexts import errors_to
from .._engine.forks import WeakValues, renew_after_fork
from .._format.dtypes import Array as Items
from .._format.grid import lengths
from .._format.text import TEXT
from .._storage.folder_store import StaleDataset
from .._storage.store import Conflict
from ..exceptions import FormatError, StorageError
from ..log import counted
from .changed_blocks import NewState
from .folder import Folder, Joined
from .layouts.base import ArrayLayout, Blocks, NodeLayout
from .rows import RowStream, append_rows, stream_of

# Maximum number of bytes that wait: of appended rows of an array, if that is a chunk or
# more, and of the chunks of all assigned items.
BUFFER_NBYTES = 64 * 2**20
WAITED = "; lost: %s that waited in memory"
LOST = (
    "another writer has removed or replaced it, or changed its columns or the shape of "
    "its rows" + WAITED
)
# Writers whose changes may wait when the program ends.
_writers = WeakValues()
# The processes that have registered `_flush_all` with multiprocessing: its children do
# not run `atexit`.
_ending: set[int] = set()


@atexit.register
def _flush_all() -> None:
    with ExitStack() as stack:  # an error of one does not stop the others
        for _, writer in _writers.items():
            if writer.is_here:
                stack.callback(writer.flush)


class Shard(NamedTuple):
    """A shard of an array, by its number."""

    layout: ArrayLayout
    number: int


class Joint:
    """Shards that are written together: an assignment has changed all of them.

    Attributes
    ----------
    shards
        The shards.
    nopen
        The number of these shards of which not all items were assigned.
    """

    def __init__(self) -> None:
        self.shards: set[Shard] = set()
        self.nopen = 0


class WriteBuffer:
    """The changes of an array or a table that wait to be written. A `Writer` has it.

    Its methods are called in the turn of a thread. In a process that is forked nothing
    waits: it reads what has been written.

    Parameters
    ----------
    folder, read
        The folder of the array or table, and what returns its layout. Its object has
        the writer: to refer to that would be a cycle, which keeps its files open.

    Attributes
    ----------
    nrows
        The number of appended rows that wait.
    count
        The number of rows and of chunks that wait.
    """

    def __init__(
        self, writer: Writer, folder: Folder, read: Callable[[Folder], NodeLayout]
    ) -> None:
        self._folder, self._read = folder, read
        _writers[id(writer)] = writer
        util = sys.modules.get("multiprocessing.util")
        if util is not None and os.getpid() not in _ending:
            _ending.add(os.getpid())
            util.Finalize(None, _flush_all, exitpriority=0)
        self._arrays: set[ArrayLayout] = set()  # those that have had waiting items
        self.renew_locks()
        renew_after_fork(self)

    def renew_locks(self) -> None:
        """Forget the changes that wait, in a child process: its parent writes them."""
        self.nrows = 0
        self._memory: dict[ArrayLayout, Items] = {}
        # The lengths of the arrays if the last attempt, which has failed, has written
        # the rows; empty without one.
        self._lengths: set[int] = set()
        # The shards with assigned items, and with which others each is written. The
        # ones that were changed last are the last in `_order`.
        self._joint: dict[Shard, Joint] = {}
        self._order: dict[Joint, None] = {}
        # The number of their items that were not assigned, if none was assigned twice.
        self._left: dict[Shard, int] = {}
        # The sizes in bytes of the chunks that wait, and their sum.
        self._sizes: dict[tuple[ArrayLayout, int], int] = {}
        self._nbytes = 0
        for array in self._arrays:
            array.waiting.clear()

    @property
    def count(self) -> int:
        """The number of rows and of chunks that wait."""
        return self.nrows + sum(len(array.waiting) for array in self._arrays)

    def __str__(self) -> str:
        if self.nrows:
            return counted(self.nrows, "appended row")
        return counted(self.count, "chunk") + " with assigned items"

    def __del__(self) -> None:
        with suppress(AttributeError):  # `__init__` has failed
            if self.count:
                text = ("'%s' was not closed" + WAITED) % (self._folder.path(), self)
                warnings.warn(text, ResourceWarning, 2, self)

    def check_present(self) -> None:
        """Raise `StorageError`, and forget what waits, if the folder was removed."""
        if self._folder.store.was_removed:
            raise self._lost()

    def _lost(self) -> StorageError:
        """Forget what waits; return the error that says so."""
        text = LOST % self
        self.clear()
        return StorageError(errno.ESTALE, text, self._folder.path())

    def _forget_stale(self, error: BaseException) -> None:
        """Forget what waits if it can't be written any more; let the error say so."""
        if not isinstance(error, StorageError) or isinstance(error, Joined):
            return
        if error.errno == errno.ESTALE and self.count:
            error.strerror = "%s%s" % (error.strerror, WAITED % self)
            self.clear()

    def flush(self, writer: Writer) -> None:
        """Write what waits; if that fails, it goes on waiting."""
        self.flush_rows(writer)
        while self._joint:  # an interrupt may have come before it was in `_order`
            self._write(writer, next(iter(self._order or self._joint.values())))

    def flush_rows(self, writer: Writer) -> None:
        """Write the appended rows that wait: they can be read and assigned to then."""
        self._forget_written(writer)
        if not self.nrows:
            return
        self._keep_rows_for(self._present_arrays(writer))
        waiting = {a: memory[: self.nrows] for a, memory in self._memory.items()}
        streams = {a: stream_of(i, a.dtype, a.shape[1:]) for a, i in waiting.items()}
        before = {array.shape[0] for array in waiting}
        try:
            append_rows(writer, streams, flushes=False, taken_over=self._clear_rows)
        except BaseException as error:
            if writer.rule.state is ALONE and not isinstance(error, Conflict):
                self._lengths = {length + self.nrows for length in before}
                self._forget_written(writer)
            self._forget_stale(error)
            raise

    def _forget_written(self, writer: Writer) -> None:
        """Forget the rows that wait if a commit that was interrupted has written them.

        The documents of bcolz do not say so, but no other writer changes the lengths.
        """
        if self._lengths:
            now = {array.shape[0] for array in self._present_arrays(writer)}
            if now == self._lengths:
                self._clear_rows()

    def clear(self) -> None:
        """Forget what waits."""
        self._clear_rows()
        for joint in {*self._joint.values()}:
            self._forget(joint)

    # Appended rows

    def _present_arrays(self, writer: Writer) -> Iterable[ArrayLayout]:
        """Return the arrays of the array or table that are there in this turn."""
        if writer.rule.state is ALONE:
            there = {a.folder.prefix: a for a in writer.views.arrays()}
            return [there.get(a.folder.prefix, a) for a in self._memory]
        member = writer.views.get(self._folder.address_of()[0])
        if member is not None:
            arrays: Iterable[ArrayLayout] = member._layout.arrays().values()
            return arrays
        # Its object was dropped; or another writer has removed or replaced it.
        with suppress(FormatError, FileNotFoundError, StaleDataset):
            return self._read(self._folder).arrays().values()
        return ()

    def _keep_rows_for(self, arrays: Iterable[ArrayLayout]) -> None:
        """Let the rows that wait be for arrays that another writer may have changed.

        Forgets them, and raises `StorageError`, if these are other arrays, or have rows
        of another shape.
        """
        new = {array.folder.prefix: array for array in arrays}
        if self._memory.keys() == {*new.values()}:
            return
        old = {array.folder.prefix: array for array in self._memory}
        if new.keys() == old.keys() and all(
            a.is_same(new[path]) and a.shape[1:] == new[path].shape[1:]
            for path, a in old.items()
        ):
            self._memory = {new[path]: self._memory[a] for path, a in old.items()}
            return
        raise self._lost()

    def put(self, writer: Writer, rows: Mapping[ArrayLayout, RowStream]) -> bool:
        """Collect rows for arrays of one length; return whether that was possible.

        It is not if they are too many, or of unknown number: what waits is then written
        before them. If writing fails, the new rows are not there.
        """
        self._forget_written(writer)
        if self.nrows:
            self._keep_rows_for(rows)
        else:
            self.flush(writer)
        start, count = self.nrows, next(iter(rows.values())).length
        step = min(map(_most_rows, rows))
        if count is None or count > step:
            self.flush(writer)
            return False
        if not start:  # room up to the end of a file, and for the rows put last
            shapes = {array: (2 * step, *array.shape[1:]) for array in rows}
            self._memory = {a: numpy.empty(n, a.dtype) for a, n in shapes.items()}
        with writer.producing():
            for array, stream in rows.items():
                self._memory[array][start : start + count] = stream.take(count)
        self.nrows += count
        try:
            if next(iter(rows)).shape[0] % step + self.nrows >= step:
                self.flush(writer)
        except BaseException:
            self.nrows = min(start, self.nrows)
            raise
        return True

    def _clear_rows(self) -> None:
        self.nrows, self._memory, self._lengths = 0, {}, set()

    # Assigned items

    def assign(
        self, writer: Writer, given: Mapping[ArrayLayout, tuple[ItemSelection, Items]]
    ) -> bool:
        """Collect items that are assigned to arrays; return whether that was possible.

        It is not if they are too many, or in a layout whose items can't wait. `given`
        has the items as `ItemSelection.spread` returns them. If writing what waits
        fails, they go on waiting.
        """
        if not all(array.may_wait for array in given):
            return False
        parts = {a: selection.parts(a.grid) for a, (selection, _) in given.items()}
        size = sum(len(chunks) * _chunk_nbytes(a) for a, chunks in parts.items())
        size += sum(_text_nbytes(items) for _, items in given.values())
        if size > BUFFER_NBYTES:
            return False
        # Another program must not change the items that are read, and written again.
        writer.rule.claim()
        new = {array: _new_chunks(array, chunks) for array, chunks in parts.items()}
        touched = {
            Shard(array, number // array.grid.slots)
            for array, chunks in parts.items()
            for number, _, _ in chunks
        }
        joint = self._join(touched)
        self._arrays.update(parts)
        before: list[tuple[Items, Any, Items]] = []
        with writer.replacing():
            try:
                for array, (selection, items) in given.items():
                    array.waiting.update(new[array])
                    order = selection.joint + selection.others
                    for number, target, source in parts[array]:
                        chunk = array.waiting[number].transpose(order)
                        at = (*source, ...)
                        before.append((chunk, at, chunk[at].copy()))
                        chunk[at] = items[(*target, ...)]  # also a single text
            except BaseException:  # all of them, or none
                for chunk, at, old in reversed(before):
                    chunk[at] = old
                for array in given:
                    for number in new[array]:
                        array.waiting.pop(number, None)
                raise
        for array, (_, items) in given.items():
            for number, chunk in new[array].items():
                self._count(array, number, _chunk_nbytes(array) + _text_nbytes(chunk))
            for number, target, _ in parts[array]:
                part = items[(*target, ...)]  # an array, also of a single text
                self._count(array, number, _text_nbytes(part))
                shard = Shard(array, number // array.grid.slots)
                left = self._left[shard] - part.size
                joint.nopen -= left <= 0 < self._left[shard]
                self._left[shard] = left
        if joint.shards and not joint.nopen:
            self._write(writer, joint)
        while self._nbytes > BUFFER_NBYTES:
            self._write(writer, next(iter(self._order)))
        return True

    def _count(self, array: ArrayLayout, number: int, size: int) -> None:
        """Count bytes of a chunk; text that is assigned again counts again."""
        self._sizes[array, number] = self._sizes.get((array, number), 0) + size
        self._nbytes += size

    def _join(self, touched: set[Shard]) -> Joint:
        """Let shards be written together, and with those that they belong to already.

        Returns all of these.
        """
        joints = {self._joint[shard] for shard in touched if shard in self._joint}
        joint = max(joints, key=lambda each: len(each.shards), default=Joint())
        new = touched - self._joint.keys()
        for array, number in new:
            self._left[Shard(array, number)] = math.prod(
                lengths(array.grid.shard_box(number))
            )
        joint.nopen += len(new)
        for other in joints - {joint}:
            joint.nopen += other.nopen
            new |= other.shards
            del self._order[other]
        joint.shards |= new
        self._joint.update(dict.fromkeys(new, joint))
        self._order.pop(joint, None)
        if joint.shards:
            self._order[joint] = None
        return joint

    def _write(self, writer: Writer, joint: Joint) -> None:
        """Write shards in one change."""
        numbers: dict[ArrayLayout, list[int]] = {}
        for array, shard in joint.shards:
            inside = (n for n in array.grid.chunks_of(shard) if n in array.waiting)
            numbers.setdefault(array, []).extend(inside)

        def blocks(array: ArrayLayout) -> Blocks:
            for number in sorted(numbers[array]):
                shape = lengths(array.grid.box(number))
                box: Any = *map(slice, shape), ...
                yield number, array.waiting[number][box]

        def take_over() -> None:
            self._forget(joint)
            for array in numbers:
                array.committed(array.shape)

        with (
            errors_to(self._forget_stale),
            writer.change(take_over, flushes=False) as change,
        ):
            # Columns are read together.
            is_part = any(array.folder.prefix for array in numbers)
            change.renews_token = change.renews_token or is_part
            for array in numbers:
                new = NewState(array.grid, blocks(array), extends=False)
                array.stage(change, new)

    def _forget(self, joint: Joint) -> None:
        """Forget the items of shards that are written together."""
        self._order.pop(joint, None)
        for shard in joint.shards:
            array = shard.layout
            self._joint.pop(shard, None)
            self._left.pop(shard, None)
            for number in array.grid.chunks_of(shard.number):
                if array.waiting.pop(number, None) is not None:
                    self._nbytes -= self._sizes.pop((array, number), 0)


def _new_chunks(array: ArrayLayout, parts: Sequence[Part]) -> dict[int, Items]:
    """Return memory for the chunks that do not wait yet, with the items that stay."""
    array.prepare_copies()
    grid, chunks = array.grid, {}
    for number, _, source in parts:
        if number in array.waiting:
            continue
        shape = lengths(grid.box(number))
        chunk: Items = numpy.empty(grid.chunk, array.dtype)
        if array.dtype == TEXT:
            chunk[...] = ""  # the padding, too, is text
        is_box = all(isinstance(i, slice) for i in source)
        if not is_box or source != tuple(slice(0, n, 1) for n in shape):
            chunk[tuple(map(slice, shape))] = array.reader.get(grid.box(number))
        chunks[number] = chunk
    return chunks


def _chunk_nbytes(array: ArrayLayout) -> int:
    """Return the number of bytes of a chunk in memory, without the bytes of text."""
    return math.prod(array.grid.chunk) * array.dtype.itemsize


def _text_nbytes(items: Items) -> int:
    """Return about the number of bytes of the text in items; 0 for other dtypes."""
    return sum(map(len, items.ravel().tolist())) if items.dtype == TEXT else 0


def _most_rows(array: ArrayLayout) -> int:
    """Return the number of rows up to a multiple of which rows wait."""
    grid = array.grid
    size = grid.chunk[0] * math.prod(array.shape[1:]) * array.dtype.itemsize
    return min(grid.shard[0], max(1, BUFFER_NBYTES // max(1, size)) * grid.chunk[0])
