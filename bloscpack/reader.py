"""Random access: parts of the plain bytes, or rows of an array, from the chunks needed.

Positions become chunk numbers, these become extents of the file; each chunk is read,
verified, decompressed and trimmed in any thread, and the parts are delivered in order.
Where there is no offset table, the chunk headers are walked once.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import groupby, pairwise

from .chunks import check_digest, decode_header, decompress, own_settings
from .constants import BLOSC_HEADER_LENGTH
from .defaults import available_cpus
from .exceptions import FormatError, UsageError
from .frames import SMALLEST_CHUNK, read_beginning, skip_frames
from .parallel import for_each
from .ranges import Cursor, FileRange, read_up_to

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from .arrays import Array, Description

    Span = tuple[int, int]
    # The number of a chunk, the spans inside of it, and its extent of the file if it
    # had to be read in the thread of the caller.
    Task = tuple[int, list[Span], bytes | None]


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
        start, stop, _ = slice(start, stop).indices(self.nbytes)
        self.deliver([(start, max(start, stop))], parts.append, nthreads=nthreads)
        return b"".join(parts)

    def deliver(
        self,
        spans: Iterable[Span],
        deliver: Callable[[bytes], Any],
        *,
        nthreads: int | None = None,
    ) -> None:
        """Call `deliver` with the plain bytes of `spans`, piece by piece, in order.

        `spans` are (start, stop) in ascending order, within the plain bytes.
        """
        nthreads = available_cpus() if nthreads is None else nthreads
        with own_settings:
            for_each(self._tasks(spans), self._load, deliver, nthreads)

    def _tasks(self, spans: Iterable[Span]) -> Iterator[Task]:
        pieces = (piece for span in spans for piece in self._pieces(span))
        for number, group in groupby(pieces, key=lambda piece: piece[0]):
            content = self._fetch(number) if self._range is None else None
            yield number, [span for _, span in group], content

    def _pieces(self, span: Span) -> Iterator[tuple[int, Span]]:
        """Yield (chunk number, span inside of it) for a span of the plain bytes."""
        start, stop = span
        number = bisect_right(self._starts, start) - 1
        while start < stop:
            first = self._starts[number]
            last = number + 1 == len(self._starts)
            end = stop if last else min(stop, self._starts[number + 1])
            yield number, (start - first, end - first)
            start, number = end, number + 1

    def _load(self, task: Task) -> bytes:
        number, spans, content = task
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
        return b"".join(plain[start:stop] for start, stop in spans)

    def _check_nbytes(self, number: int, nbytes: int) -> None:
        start = self._starts[number]
        last = number + 1 == len(self._starts)
        expected = (self.nbytes if last else self._starts[number + 1]) - start
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
        from .arrays import Description

        description = Description(self.metadata)
        description.check_nbytes(self.nbytes)
        return description

    def row_spans(self, rows: slice) -> Iterator[Span]:
        """Yield the spans of some rows, the items along the first axis, ascending.

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
        if not size:
            return
        if step == 1:
            yield start * size, max(start, stop) * size
            return
        for row in range(start, stop, step):
            yield row * size, (row + 1) * size

    def read_rows(self, rows: slice, *, nthreads: int | None = None) -> Array:
        """Return some rows of the array, from the chunks that hold them."""
        import numpy

        array = self.describe()
        parts: list[bytes] = []
        self.deliver(self.row_spans(rows), parts.append, nthreads=nthreads)
        count = len(range(*rows.indices(array.shape[0])))
        shape = (count, *array.shape[1:])
        return numpy.ndarray(shape, array.dtype, buffer=bytearray(b"".join(parts)))
