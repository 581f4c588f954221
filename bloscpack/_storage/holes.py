"""Holes: extents of a file that were never written, read as zeros and take no space.

Strategy: blocks of zero bytes are found and left out. Disk space is reserved window by
window, and only for windows that are first written with data. The space of a hole in a
reserved window is freed. The caller sets the length of a file that ends in a hole.
"""

from __future__ import annotations

import io
import os
import stat
from _thread import allocate_lock
from collections.abc import Iterator

from .base import write_all
from .local import FileRange, writes_at_end
from .protocols import BinaryFile, Buffer
from .stream import Stream

# The (start, stop) of bytes of a chunk.
Extent = tuple[int, int]

# Size in bytes of a block of the usual file systems.
BLOCK = 4096
# Minimum number of zero blocks for a hole between data: a smaller hole saves less time
# than its system calls take.
HOLE_BLOCKS = 16
# Number of bytes of disk space that are reserved at a time.
WINDOW = 8 * 2**20
# Number of zero bytes that end a stream, and are written so that it has its length.
LAST_BYTE = b"\0"


def find_holes(plain: Buffer, offset: int) -> list[Extent]:
    """Return the extents of `plain`, which begins at the file offset, to leave out."""
    view = memoryview(plain).cast("B")
    size = len(view)
    head = min(-offset % BLOCK, size)
    tail = size - (size - head) % BLOCK
    holes = []
    for start, stop in _runs_of_zero_blocks(view[head:tail]):
        enough = stop - start >= HOLE_BLOCKS * BLOCK
        # At an edge, zeros of the neighbouring chunk may continue the hole.
        if enough or head + start == head or head + stop == tail:
            holes.append((head + start, head + stop))
    if head and _is_zero(view[:head]):
        first = holes.pop(0)[1] if holes and holes[0][0] == head else head
        holes.insert(0, (0, first))
    if tail < size and _is_zero(view[tail:]):
        last = holes.pop()[0] if holes and holes[-1][1] == tail else tail
        holes.append((last, size))
    return holes


def _runs_of_zero_blocks(view: memoryview) -> Iterator[Extent]:
    # Blosc has imported NumPy, which reads memory faster than it can be written.
    import numpy

    if not view:
        return
    blocks = numpy.frombuffer(view, "u8").reshape(-1, BLOCK // 8)
    # Three words of a block tell nearly all data from zeros.
    found = numpy.flatnonzero((blocks[:, 0] | blocks[:, 255] | blocks[:, 511]) == 0)
    if not found.size:
        return
    first, stop = int(found[0]), int(found[-1]) + 1
    candidates = blocks[first:stop] if found.size == stop - first else blocks[found]
    found = found[~candidates.any(axis=1)]
    ends = numpy.flatnonzero(numpy.diff(found) != 1) + 1
    for run in numpy.split(found, ends):
        if run.size:
            yield int(run[0]) * BLOCK, (int(run[-1]) + 1) * BLOCK


def _is_zero(view: memoryview) -> bool:
    return not view[0] and not any(view)


def _split(size: int, holes: list[Extent]) -> Iterator[Extent]:
    """Yield the extents of `size` bytes that lie outside of the `holes`."""
    position = 0
    for start, stop in holes:
        if position < start:
            yield position, start
        position = stop
    if position < size:
        yield position, size


class SparseRange:
    """Writes a new part of a file at any offset, by any thread, and leaves holes.

    The file must have no bytes from the offset `begin` on. Disk space is reserved up to
    the offset `end`.
    """

    def __init__(self, file_range: FileRange, begin: int, end: int) -> None:
        self._range = file_range
        self._end = end
        self._begin = begin
        # Window number → whether its disk space is reserved.
        self._windows: dict[int, bool] = {}
        self._lock = allocate_lock()

    def write(self, plain: Buffer, offset: int) -> None:
        """Write all of `plain`, except for blocks of zeros, at `offset`."""
        view = memoryview(plain).cast("B")
        holes = find_holes(view, offset)
        for start, stop in holes:
            self._leave_out(offset + start, offset + stop)
        for start, stop in _split(len(view), holes):
            self._prepare(offset + start, offset + stop, reserve=True)
            self._range.write(view[start:stop], offset + start)

    def _leave_out(self, start: int, stop: int) -> None:
        if self._prepare(start, stop, reserve=False):
            start = -(-start // BLOCK) * BLOCK
            stop = stop // BLOCK * BLOCK
            if start < stop:
                self._range.punch(start, stop - start)

    def _prepare(self, start: int, stop: int, *, reserve: bool) -> bool:
        """Decide whether each new window of an extent is reserved.

        Return whether any window of the extent is.
        """
        reserved = False
        for number in range(start // WINDOW, -(-stop // WINDOW)):
            with self._lock:
                if number not in self._windows:
                    self._windows[number] = reserve
                    if reserve:
                        self._reserve(number)
                reserved |= self._windows[number]
        return reserved

    def _reserve(self, number: int) -> None:
        start = max(number * WINDOW, self._begin)
        stop = min((number + 1) * WINDOW, self._end)
        if start < stop:
            self._range.reserve(start, stop - start)


class SparseStream:
    """Writes to a redirected standard stream from front to back, and leaves holes."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._offset = stream.raw.tell()
        # Number of zero bytes that have been left out at the end.
        self._pending = 0

    @staticmethod
    def over(fp: object) -> SparseStream | None:
        """Return a writer to a stream; None if it is no regular file at its end."""
        if type(fp) is not Stream:
            return None
        fp.flush()
        status = os.fstat(fp.fileno())
        if not stat.S_ISREG(status.st_mode) or writes_at_end(fp):
            return None
        return SparseStream(fp) if fp.raw.tell() >= status.st_size else None

    def write(self, plain: Buffer) -> None:
        """Write all of `plain`, except for blocks of zeros."""
        view = memoryview(plain).cast("B")
        position = 0
        for start, stop in _split(len(view), find_holes(view, self._offset)):
            self._pending += start - position
            self._skip()
            write_all(self._stream, view[start:stop])
            position = stop
        self._pending += len(view) - position
        self._offset += len(view)

    def _skip(self) -> None:
        """Move behind the bytes left out."""
        if self._pending:
            self._stream.flush()
            self._stream.raw.seek(self._pending, io.SEEK_CUR)
            self._pending = 0

    def finish(self) -> None:
        """Give the file its length, if it ends in a hole."""
        if self._pending:
            self._pending -= len(LAST_BYTE)
            self._skip()
            write_all(self._stream, LAST_BYTE)


def sparse_range(
    fp: BinaryFile, file_range: FileRange, reserved: int
) -> SparseRange | None:
    """Return a sparse writer from the position of a file object on.

    None if the file has bytes there, which a hole would not overwrite.
    """
    begin = fp.tell()
    if begin < file_range.size():
        return None
    return SparseRange(file_range, begin, begin + reserved)
