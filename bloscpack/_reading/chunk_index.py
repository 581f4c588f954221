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
    from collections.abc import Iterator, Sequence

    from .._format.dtypes import Array
    from .._format.sections import Beginning
    from .._storage.cursor import Cursor
    from ..args import Limits

    # Number, offset, next offset and plain size of a chunk.
    Extent = tuple[int, int, int, int]

# Number of chunks below which single steps are faster than NumPy.
FEW = 4
# Number of chunks whose extents are in memory at a time.
MANY = 4096


class ChunkIndex:
    """The positions of the chunks of a file.

    ``nchunks`` is their number and ``nbytes`` the number of plain bytes.
    ``from_table`` says that the offsets are those of the offset table.
    """

    def __init__(
        self,
        offsets: Array,
        chunk_size: int | Array,
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

    @property
    def chunk_size(self) -> int:
        """The plain size of all chunks but the last one; 0 if they have several."""
        return self._chunk_size if isinstance(self._chunk_size, int) else 0

    def extents(self, numbers: Sequence[int]) -> Iterator[Extent]:
        """Yield the extents of chunks; the next offset of the last one is -1."""
        if len(numbers) < FEW:
            for number in numbers:
                start, stop = self.span(number)
                pair = self._offsets[number : number + 2].tolist()
                yield number, pair[0], pair[1] if len(pair) == 2 else -1, stop - start
            return
        import numpy

        for first in range(0, len(numbers), MANY):
            some = numpy.asarray(numbers[first : first + MANY])
            following = numpy.minimum(some + 1, self.nchunks - 1)
            begins, ends = self._offsets[some], self._offsets[following]
            ends[following == some] = -1
            if isinstance(self._chunk_size, int):
                sizes = numpy.full(len(some), self._chunk_size)
            else:
                sizes = self._chunk_size[following] - self._chunk_size[some]
            if some[-1] + 1 == self.nchunks:
                sizes[-1] = self.nbytes - self._start(self.nchunks - 1)
            columns = some, begins, ends, sizes
            yield from zip(*(column.tolist() for column in columns), strict=True)

    def begins_like(self, other: ChunkIndex) -> bool:
        """Return whether the chunks of `other` start at the same places in the file."""
        offsets = self._offsets[: other.nchunks]
        return bool((offsets == other._offsets).all())

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
        return int(self._chunk_size.searchsorted(position, "right")) - 1


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
    import numpy

    offsets, starts, nbytes = [], [], 0
    for frame in skip_frames(cursor, beginning.header, limits):
        offsets.append(frame.offset or 0)
        starts.append(frame.start)
        nbytes = frame.start + frame.header.nbytes
    return ChunkIndex(
        numpy.array(offsets, "i8"), numpy.array(starts, "i8"), nbytes, False
    )
