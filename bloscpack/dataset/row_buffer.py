"""Rows in memory behind those in the files, of a dataset opened with ``buffered=True``.

Strategy: the memory begins where the first chunk begins that the rows change. So the
chunks of an array are either in its files or in memory, an index reads both alike, and
writing the rows reads no file. A `Tail` is never changed: a thread that reads has one
state. More rows are put behind it in the same memory, and a new `Tail` has them, too.
"""

from __future__ import annotations

import atexit
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy

from .._engine.forks import cached_property
from .._file.array_reader import ArrayReader, Room
from .layouts.array_files import ChunkFiles, placed
from .rows import stage_rows, stream_of

if TYPE_CHECKING:
    from .._commit.writer import Writer
    from .._format.dtypes import Array as Items
    from .layouts.base import ArrayLayout

# Maximum number of bytes of the rows of an array that wait, if that is a chunk or more.
BUFFER_NBYTES = 64 * 2**20
# Writers whose rows may wait when the program ends.
_writers: WeakSet[Writer] = WeakSet()


@atexit.register
def _flush_all() -> None:
    with ExitStack() as stack:  # an error of one does not keep the others
        for writer in list(_writers):
            if writer.owner.is_here:
                stack.callback(writer.flush)


class Tail(ChunkFiles):
    """The chunks of an array of which the last ones are in memory.

    Parameters
    ----------
    array
        The array in the files.
    memory
        Rows of the array from number `base` on, where a chunk begins.
    length
        Number of rows of the array, with those in memory.
    """

    def __init__(self, array: ArrayLayout, memory: Items, base: int, length: int):
        ((_, self._stored),) = array.parts()
        self.shape = length, *array.shape[1:]
        self.memory = memory
        self.base = base
        # The rows that are not in the files.
        self.new = memory[array.shape[0] - base : length - base]
        stored, itemsize = self._stored, memory.itemsize
        cut = stored.cut.resized(self.shape)
        super().__init__(stored.folder, stored.names, cut, itemsize, bool)

    @cached_property
    def reader(self) -> ArrayReader:
        """Reads the items of the array."""
        return ArrayReader(self, self.memory.dtype, self.shape)

    def _is_new(self, number: int) -> bool:
        return self.cut.corner(number)[0] >= self.base

    def load(
        self,
        numbers: Sequence[int],
        use: Callable[[int, memoryview], object],
        *,
        room: Room | None = None,
        **how: Any,
    ) -> None:
        """Call ``use(number, plain)`` for chunks, as `ChunkSource.load` says."""
        stored = [number for number in numbers if not self._is_new(number)]
        if stored:
            self._stored.load(stored, use, room=room, **how)
        for number in filter(self._is_new, numbers):
            place = None if room is None else room(number)
            use(number, placed(self._plain(number), place))

    def _plain(self, number: int) -> memoryview:
        """Return the plain bytes of a chunk in memory."""
        first, *inner = self.cut.box(number)
        items: Any = self.memory[first.start - self.base : first.stop - self.base]
        if self.grid is not None:
            part = items[(slice(None), *inner)]
            items = numpy.zeros(self.cut.chunk, items.dtype)
            items[tuple(slice(0, n) for n in part.shape)] = part
        return memoryview(items.reshape(-1).view("u1"))


class RowBuffer:
    """The rows of an array or a table that wait to be written. A `Writer` has it.

    Its methods are called in the turn of a thread.

    Attributes
    ----------
    tails
        The state with the rows of each array that has such rows; replaced, never
        changed.
    """

    def __init__(self, writer: Writer) -> None:
        _writers.add(writer)
        self.tails: dict[ArrayLayout, Tail] = {}
        self._path, self._owner = writer.path, writer.owner

    def __del__(self) -> None:
        if self.tails and self._owner.is_here:
            count = len(next(iter(self.tails.values())).new)
            text = "'%s' was not closed: '%d' appended rows were not written"
            warnings.warn(text % (self._path, count), ResourceWarning, 2, self)

    def put(self, writer: Writer, given: Mapping[ArrayLayout, Any]) -> bool:
        """Append rows to arrays of one length; return whether that was possible.

        It is not if they are too many, or not in memory. All rows are written when the
        end of a file is reached; if that fails, the new ones are not there.
        """
        streams = {a: stream_of(r, a.dtype, a.shape[1:]) for a, r in given.items()}
        count = next(iter(streams.values())).length
        step = min(map(_rows_in_memory, streams))
        if count is None or count > step:
            return False
        rows = {array: stream.take(count) for array, stream in streams.items()}
        old = self.tails
        new = {array: self._tail(array, rows[array], step) for array in rows}
        self.tails = new
        try:
            if next(iter(new.values())).shape[0] % step < count:
                writer.flush()
        except BaseException:
            if self.tails is new:  # they were not written
                self.tails = old
            raise
        return True

    def _tail(self, array: ArrayLayout, rows: Items, step: int) -> Tail:
        """Return an array with more rows; memory ends with a multiple of `step`."""
        state: ArrayLayout | Tail = self.tails.get(array, array)
        start, stop = state.shape[0], state.shape[0] + len(rows)
        if isinstance(state, Tail) and stop - state.base <= len(state.memory):
            base, memory = state.base, state.memory
        else:
            base = array.shape[0] - array.shape[0] % array.grid.chunk[0]
            room = -(-stop // step) * step - base, *array.shape[1:]
            memory = numpy.empty(room, array.dtype)
            if base < start:
                memory[: start - base] = state.reader.get(slice(base, start))
        memory[start - base : stop - base] = rows
        return Tail(array, memory, base, stop)

    def flush(self, writer: Writer) -> None:
        """Write the rows that wait; if that fails, they go on waiting."""
        tails = self.tails

        def take_over() -> None:
            for array, tail in tails.items():
                array.committed(tail.shape)
            self.tails = {}

        with writer.change(take_over, disturbs=False, flushes=False) as change:
            for array, tail in tails.items():
                rows = stream_of(tail.new, array.dtype, array.shape[1:])
                stage_rows(change, array, rows, tail.reader.get)


def _rows_in_memory(array: ArrayLayout) -> int:
    """Return the number of rows up to a multiple of which rows wait; 0 for none."""
    grid = array.grid
    size = grid.chunk[0] * math.prod(array.shape[1:]) * array.dtype.itemsize
    if not size or not isinstance(array.reader, ArrayReader):
        return 0
    return min(grid.shard[0], max(1, BUFFER_NBYTES // size) * grid.chunk[0])
