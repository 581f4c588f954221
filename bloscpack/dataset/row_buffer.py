"""Appended rows that wait in memory, of a dataset opened with ``buffered=True``.

Strategy: rows are collected up to the end of the file that the first of them belongs
to, and then written in one change. Until then, no reader sees them.
"""

from __future__ import annotations

import atexit
import math
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from weakref import WeakSet

import numpy

from .._commit.writer import Writer
from .._format.dtypes import Array as Items
from .layouts.base import ArrayLayout
from .rows import RowStream, append_rows, stream_of

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


class RowBuffer:
    """The rows of an array or a table that wait to be written. A `Writer` has it.

    Its methods are called in the turn of a thread.

    Attributes
    ----------
    count
        The number of rows that wait.
    """

    def __init__(self, writer: Writer) -> None:
        _writers.add(writer)
        self.count = 0
        self._memory: dict[ArrayLayout, Items] = {}
        self._path, self._owner = writer.path, writer.owner

    def __del__(self) -> None:
        if self.count and self._owner.is_here:
            text = "'%s' was not closed: '%d' appended rows were not written"
            warnings.warn(text % (self._path, self.count), ResourceWarning, 2, self)

    def put(self, writer: Writer, rows: Mapping[ArrayLayout, RowStream]) -> bool:
        """Collect rows for arrays of one length; return whether that was possible.

        It is not if they are too many, or of unknown number: the rows that wait are
        then written before them. If writing fails, the new rows are not there.
        """
        start, count = self.count, next(iter(rows.values())).length
        step = min(map(_most_rows, rows))
        if count is None or count > step:
            writer.flush()
            return False
        if not start:  # room up to the end of a file, and for the rows put last
            shapes = {array: (2 * step, *array.shape[1:]) for array in rows}
            self._memory = {a: numpy.empty(n, a.dtype) for a, n in shapes.items()}
        for array, stream in rows.items():
            self._memory[array][start : start + count] = stream.take(count)
        self.count += count
        try:
            if next(iter(rows)).shape[0] % step + self.count >= step:
                writer.flush()
        except BaseException:
            self.count = min(start, self.count)
            raise
        return True

    def flush(self, writer: Writer) -> None:
        """Write the rows that wait; if that fails, they go on waiting."""
        waiting = {a: memory[: self.count] for a, memory in self._memory.items()}
        streams = {a: stream_of(i, a.dtype, a.shape[1:]) for a, i in waiting.items()}
        append_rows(writer, streams, flushes=False, taken_over=self.clear)

    def clear(self) -> None:
        """Forget the rows."""
        self.count, self._memory = 0, {}


def _most_rows(array: ArrayLayout) -> int:
    """Return the number of rows up to a multiple of which rows wait."""
    grid = array.grid
    size = grid.chunk[0] * math.prod(array.shape[1:]) * array.dtype.itemsize
    return min(grid.shard[0], max(1, BUFFER_NBYTES // max(1, size)) * grid.chunk[0])
