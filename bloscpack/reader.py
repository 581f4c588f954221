"""Random access: parts of the plain bytes, or rows of an array, from the chunks needed.

Positions become chunk numbers, these become extents of the file; each chunk is read,
verified, decompressed and trimmed in any thread, and the parts are delivered in order.
Where there is no offset table, the chunk headers are walked once.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

from ._engine.blosc_settings import own_settings
from ._engine.threads import for_each
from ._format.blosc_header import decode_header
from ._format.chunks import check_digest, decompress
from ._format.sections import SMALLEST_CHUNK, read_beginning, skip_frames
from ._storage.base import read_up_to
from ._storage.cursor import Cursor
from ._storage.local import FileRange
from .abstract_io import effective_nthreads
from .constants import BLOSC_HEADER_LENGTH
from .exceptions import FormatError, UsageError

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ._format.array_metadata import Array, Description

    # The number of a chunk, and its extent of the file if it had to be read in the
    # thread of the caller.
    Task = tuple[int, bytes | None]


class Selection:
    """Pieces of the plain bytes, of `size` bytes each, `pitch` bytes from each other.

    There are `count` of them, the first at `start`; they don't overlap.
    """

    def __init__(self, start: int, size: int, pitch: int = 1, count: int = 1) -> None:
        self.start = start
        self.size = size
        self.pitch = pitch
        self.count = count if size else 0

    @property
    def stop(self) -> int:
        """Where the last piece ends."""
        if not self.count:
            return self.start
        return self.start + (self.count - 1) * self.pitch + self.size

    def within(self, start: int, stop: int) -> range:
        """Return the numbers of the pieces that have bytes between two positions."""
        first = (start - self.start - self.size) // self.pitch + 1
        after = -((self.start - stop) // self.pitch)
        return range(max(first, 0), min(after, self.count))

    def cut(self, plain: memoryview, start: int) -> bytes:
        """Return what belongs to the pieces, of plain bytes that begin at `start`."""
        numbers = self.within(start, start + len(plain))
        position = self.start + numbers.start * self.pitch - start
        count = len(numbers)
        parts = []
        if position < 0:  # begun in the chunk before
            parts.append(bytes(plain[: position + self.size]))
            position, count = position + self.pitch, count - 1
        complete = min(count, (len(plain) - position - self.size) // self.pitch + 1)
        if complete > 0:
            parts.append(self._gather(plain, position, complete))
            position, count = position + complete * self.pitch, count - complete
        if count > 0:
            parts.append(bytes(plain[position:]))
        return b"".join(parts)

    def _gather(self, plain: memoryview, position: int, count: int) -> bytes:
        if count == 1:
            return bytes(plain[position : position + self.size])
        import numpy

        shape, strides = (count, self.size), (self.pitch, 1)
        return numpy.ndarray(shape, "u1", plain, position, strides).tobytes()


class Reader:
    """A file in a file object that can seek, read where it is asked.

    ``nbytes`` is the number of plain bytes, ``metadata`` the metadata, ``header`` the
    file header. The file object stays open, and is the reader's as long as it is used.
    Every digest is checked. Raises `FormatError` if what it needs is damaged.
    """

    def __init__(self, fp: Any) -> None:
        fp.seek(0)
        cursor = Cursor(fp)
        beginning = read_beginning(cursor)
        self.header = beginning.header
        self.metadata = beginning.metadata
        self._fp = fp
        self._range = FileRange.over(fp)
        offsets = beginning.offsets or []
        if self._can_trust(offsets, cursor.position):
            size = self.header.chunk_size
            self._offsets = offsets
            self._starts = [i * size for i in range(self.header.nchunks)]
            self.nbytes = self.header.nbytes or 0
        else:
            frames = list(skip_frames(cursor, self.header))
            self._offsets = [frame.offset or 0 for frame in frames]
            self._starts = [frame.start for frame in frames]
            self.nbytes = sum(frame.header.nbytes for frame in frames)

    def _can_trust(self, offsets: list[int], first: int) -> bool:
        """Return whether the table could be that of this file; chunks tell the rest."""
        smallest = SMALLEST_CHUNK + self.header.checksum_impl.size
        if (
            self.header.nbytes is None
            or offsets[:1] != [first]
            or any(after - at < smallest for at, after in pairwise(offsets))
        ):
            return False
        try:
            last = decode_header(self._read_at(offsets[-1], BLOSC_HEADER_LENGTH))
        except FormatError:
            return False
        return last.nbytes == self.header.last_chunk

    def read(self, start: int, stop: int, *, nthreads: int | None = None) -> bytes:
        """Return the plain bytes from `start` to `stop`, cut as Python cuts slices."""
        parts: list[bytes] = []
        selection = self.select(slice(start, stop))
        self.deliver(selection, parts.append, nthreads=nthreads)
        return b"".join(parts)

    def deliver(
        self,
        selection: Selection,
        deliver: Callable[[bytes], Any],
        *,
        nthreads: int | None = None,
    ) -> None:
        """Call `deliver` with what is selected, piece by piece, in order."""
        nthreads = effective_nthreads(nthreads, None)

        def work(task: Task) -> bytes:
            return self._load(task, selection)

        with own_settings:
            for_each(self._tasks(selection), work, deliver, nthreads)

    def select(self, span: slice) -> Selection:
        """Return a span of the plain bytes, cut as Python cuts slices; without step."""
        start, stop, _ = slice(span.start, span.stop).indices(self.nbytes)
        return Selection(start, max(0, stop - start))

    def _tasks(self, selection: Selection) -> Iterator[Task]:
        number = bisect_right(self._starts, selection.start) - 1
        while selection.count and number < len(self._starts):
            start, stop = self._span(number)
            if start >= selection.stop:
                break
            if selection.within(start, stop):
                yield number, self._fetch(number) if self._range is None else None
            number += 1

    def _span(self, number: int) -> tuple[int, int]:
        last = number + 1 == len(self._starts)
        return self._starts[number], self.nbytes if last else self._starts[number + 1]

    def _load(self, task: Task, selection: Selection) -> bytes:
        number, content = task
        offset = self._offsets[number]
        try:
            content = self._fetch(number) if content is None else content
            checksum = self.header.checksum_impl
            end = len(content) - checksum.size
            check_digest(content[:end], content[end:], checksum)
            plain = memoryview(decompress(content[:end]))
            self._check_nbytes(number, plain.nbytes)
        except FormatError as error:
            error.locate(number, offset)
            raise
        return selection.cut(plain, self._starts[number])

    def _check_nbytes(self, number: int, nbytes: int) -> None:
        start, stop = self._span(number)
        expected = stop - start
        if nbytes != expected:
            raise FormatError(
                "expected a chunk of '%d' plain bytes, found '%d'" % (expected, nbytes),
                section="chunks",
            )

    def _fetch(self, number: int) -> bytes:
        """Return a chunk and its digest."""
        offset = self._offsets[number]
        head = decode_header(self._read_at(offset, BLOSC_HEADER_LENGTH))
        size = head.ctbytes + self.header.checksum_impl.size
        content = self._read_at(offset, size)
        if self._offsets[number + 1 : number + 2] not in ([], [offset + size]):
            raise FormatError(
                "the offset table says that chunk %d starts at byte %d, but the one in "
                "front of it ends at byte %d"
                % (number + 1, self._offsets[number + 1], offset + size),
                section="offsets",
            )
        if len(content) < size:
            raise FormatError(
                "the file ends too early: expected a chunk and its digest of '%d' "
                "bytes, found '%d'" % (size, len(content)),
                section="chunks",
            )
        return content

    def _read_at(self, offset: int, size: int) -> bytes:
        if self._range is None:
            self._fp.seek(offset)
            return read_up_to(self._fp, size)
        buffer = bytearray(size)
        return bytes(buffer[: self._range.read_into(memoryview(buffer), offset)])

    # Arrays

    def describe(self) -> Description:
        """Return dtype, shape and order of the array that the file holds.

        Raises `NotANumpyArray` if it holds none.
        """
        from ._format.array_metadata import Description

        description = Description(self.metadata)
        description.check_nbytes(self.nbytes)
        return description

    def select_rows(self, rows: slice) -> Selection:
        """Return some rows of the array, the items along its first axis.

        Raises `UsageError` for an array without a first axis, or in Fortran order,
        whose rows do not lie in one piece, and for a step below 1.
        """
        array = self.describe()
        if not array.shape or (array.order == "F" and len(array.shape) > 1):
            raise UsageError(
                "an array of shape %s and order '%s' can't be read by rows"
                % (array.shape, array.order)
            )
        if rows.step is not None and rows.step < 1:
            raise UsageError(
                "the step between rows must be at least 1, not %d" % rows.step
            )
        start, stop, step = rows.indices(array.shape[0])
        size = array.nbytes // array.shape[0] if array.shape[0] else 0
        if step == 1 or not size:
            return Selection(start * size, max(0, stop - start) * size)
        count = len(range(start, stop, step))
        return Selection(start * size, size, step * size, count)

    def read_rows(self, rows: slice, *, nthreads: int | None = None) -> Array:
        """Return some rows of the array, from the chunks that hold them."""
        import numpy

        array = self.describe()
        parts: list[bytes] = []
        self.deliver(self.select_rows(rows), parts.append, nthreads=nthreads)
        count = len(range(*rows.indices(array.shape[0])))
        shape = (count, *array.shape[1:])
        return numpy.ndarray(shape, array.dtype, buffer=bytearray(b"".join(parts)))
