"""Where each chunk is, in the file and in the plain bytes.

The offset table gives the positions in one read; its entries are only compared with
each other, and each chunk that is loaded is compared with its entry and the next one.
Without a table that can be true, the headers of all chunks are read, once.
"""

from __future__ import annotations

from .._format import offsets as offset_table
from .._format.sections import SMALLEST_CHUNK, skip_frames

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy

    from .._format.sections import Beginning
    from .._storage.cursor import Cursor
    from ..args import Limits

    Numbers = Sequence[int] | numpy.ndarray[tuple[int], numpy.dtype[numpy.int64]]


class ChunkIndex:
    """The positions of the chunks of a file.

    ``nchunks`` is their number and ``nbytes`` the number of plain bytes.
    ``from_table`` says that the offsets are those of the offset table.
    """

    def __init__(
        self,
        offsets: Numbers,
        chunk_size: int | Numbers,
        nbytes: int,
        from_table: bool,
    ) -> None:
        """`chunk_size` is a number if all chunks but the last have this plain size.

        Otherwise, it is where the plain bytes of each chunk start.
        """
        self._offsets = offsets
        self._chunk_size = chunk_size
        self.nchunks = len(offsets)
        self.nbytes = nbytes
        self.from_table = from_table

    def offset(self, number: int) -> int:
        """Return where a chunk starts in the file."""
        return int(self._offsets[number])

    def next_offset(self, number: int) -> int | None:
        """Return where the next chunk starts in the file; None for the last chunk."""
        last = number + 1 == self.nchunks
        return None if last else int(self._offsets[number + 1])

    def begins_like(self, other: ChunkIndex) -> bool:
        """Return whether the chunks of `other` start at the same places in the file."""
        offsets, count = self._offsets[: other.nchunks], other.nchunks
        if isinstance(offsets, list) or isinstance(other._offsets, list):
            return all(self.offset(i) == other.offset(i) for i in range(count))
        return bool((offsets == other._offsets).all())  # type: ignore[union-attr]

    def _start(self, number: int) -> int:
        if isinstance(self._chunk_size, int):
            return number * self._chunk_size
        return int(self._chunk_size[number])

    def span(self, number: int) -> tuple[int, int]:
        """Return start and stop of a chunk in the plain bytes."""
        last = number + 1 == self.nchunks
        return self._start(number), self.nbytes if last else self._start(number + 1)

    def numbers(self, start: int, stop: int) -> range:
        """Return the numbers of the chunks that hold the span [start, stop)."""
        if start >= min(stop, self.nbytes):
            return range(0)
        if stop >= self.nbytes:
            return range(self._number_at(start), self.nchunks)
        return range(self._number_at(start), self._number_at(stop - 1) + 1)

    def _number_at(self, position: int) -> int:
        """Return the number of the chunk that has the plain byte at a position."""
        if isinstance(self._chunk_size, int):
            last = self.nchunks - 1
            # A single chunk may have any size, even if the stated size is 0.
            return min(position // self._chunk_size, last) if self._chunk_size else last
        from bisect import bisect_right

        return bisect_right(self._chunk_size, position) - 1


def index_from_table(
    beginning: Beginning, first: int, file_size: int
) -> ChunkIndex | None:
    """Return the index that the offset table gives; None if it can't be true.

    The first chunk starts at `first` in a file of `file_size` bytes.
    """
    header, table = beginning.header, beginning.table
    if not table or header.nbytes is None:
        return None
    smallest = SMALLEST_CHUNK + header.checksum_impl.size
    if not offset_table.is_plausible(table, first, file_size, smallest):
        return None
    import numpy  # `is_plausible` has imported it

    offsets = numpy.frombuffer(table, "<i8")
    # A header with a single chunk need not state the chunk size.
    chunk_size = max(header.chunk_size, 0)
    return ChunkIndex(offsets, chunk_size, header.nbytes, True)


def index_from_headers(
    cursor: Cursor, beginning: Beginning, limits: Limits | None = None
) -> ChunkIndex:
    """Return the index that the headers of all chunks give.

    The cursor is at the first chunk. Raises `FormatError` if one of them is damaged or
    if the plain bytes exceed the `limits`.
    """
    frames = list(skip_frames(cursor, beginning.header, limits))
    offsets = [frame.offset or 0 for frame in frames]
    starts = [frame.start for frame in frames]
    nbytes = sum(frame.header.nbytes for frame in frames[-1:]) + sum(starts[-1:])
    return ChunkIndex(offsets, starts, nbytes, False)
