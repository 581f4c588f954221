"""Chunk geometry: the number of chunks, and the plain bytes and rows of each.

There are two steps. Before the chunks are numbered, `expected_sizes` compares the
header with the chunks found and returns the sizes that chunks of the file should have.
Afterwards `measure` corrects these by the numbered chunks. Reports, recoveries and
pictures take counts, sizes and spans from the resulting `ChunkGeometry` alone.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from ..abstract_objects import ImmutableObject

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._format.array_metadata import Description
    from .findings import Pair
    from .lenient_sections import Sections
    from .numbering import Numbering
    from .scan import Chain, ChunkScan

    Sizes = tuple[int | None, int | None]


class ChunkGeometry(ImmutableObject):
    """The number of chunks, and the plain bytes and rows that each one holds.

    ``chunk_size`` is the plain size of all chunks but the last, ``last_chunk`` of the
    last one, None if unknown or if chunks differ. ``nbytes`` is the plain size of all
    chunks, None if unknown. ``array`` describes the array in the file, if any.
    """

    __slots__ = ("array", "chunk_size", "last_chunk", "nbytes", "nchunks", "row_nbytes")

    def __init__(
        self,
        nchunks: int,
        chunk_size: int | None,
        last_chunk: int | None,
        array: Description | None = None,
        nbytes: int | None = None,
    ) -> None:
        self.nchunks = nchunks
        self.chunk_size = chunk_size
        self.last_chunk = last_chunk
        self.array = array
        if nbytes is None:
            nbytes = nbytes_of(nchunks, chunk_size, last_chunk)
        self.nbytes = nbytes
        self.row_nbytes = 0 if array is None else _row_nbytes(array)

    def with_last_chunk(self, size: int) -> ChunkGeometry:
        """Return the same geometry with another size of the last chunk."""
        return ChunkGeometry(self.nchunks, self.chunk_size, size, self.array)

    def size_of(self, i: int) -> int | None:
        """Return the plain size that chunk `i` should have, None if unknown."""
        return self.last_chunk if i == self.nchunks - 1 else self.chunk_size

    def span(self, first: int, stop: int) -> Pair | None:
        """Return the span of the chunks in [first, stop), None if unknown."""
        size = self.size_of(stop - 1)
        if size is None or (self.chunk_size is None and (first or stop - first > 1)):
            return None
        chunk_size = self.chunk_size or 0
        return first * chunk_size, (stop - 1) * chunk_size + size

    def rows(self, span: Pair | None) -> Pair | None:
        """Return the rows of the array that a span touches, None if unknown."""
        if span is None or not self.row_nbytes or self.array is None:
            return None
        start, stop = span
        nrows = self.array.shape[0]
        first, last = start // self.row_nbytes, -(-stop // self.row_nbytes)
        return min(first, nrows), min(last, nrows)


def _row_nbytes(array: Description) -> int:
    """Return the bytes of a row of an array, 0 if its rows are not contiguous."""
    if not array.shape or (array.order == "F" and len(array.shape) > 1):
        return 0
    return array.nbytes // max(array.shape[0], 1)


def nbytes_of(
    nchunks: int, chunk_size: int | None, last_chunk: int | None
) -> int | None:
    """Return the plain size of `nchunks` chunks of these sizes, None if unknown."""
    if nchunks == 0:
        return 0
    if last_chunk is None or (chunk_size is None and nchunks > 1):
        return None
    return (nchunks - 1) * (chunk_size or 0) + last_chunk


def measure(
    numbering: Numbering,
    sections: Sections,
    expected: Sizes,
    array: Description | None,
) -> ChunkGeometry:
    """Return the geometry of the numbered chunks.

    The chunks found count more than the sizes `expected` of them, see
    `expected_sizes`.
    """
    header, nchunks = sections.header, numbering.nchunks
    inner = _inner_sizes(numbering)
    chunk_size, last_chunk = expected[0], numbering.last_size
    if chunk_size is None or header is None:
        chunk_size = next(iter(inner)) if len(inner) == 1 else None
    elif chunk_size not in inner:
        # The last chunk alone says nothing about the size of the others.
        chunk_size = header.chunk_size
    if last_chunk is None and header is not None and header.format_version >= 2:
        # A header with a wrong number of chunks is about another last chunk.
        counted = header.nchunks in (-1, nchunks) or not numbering.chains
        last_chunk = sections.stated_last_chunk if counted else None
    if last_chunk is None and chunk_size and array is not None:
        rest = array.nbytes - (nchunks - 1) * chunk_size
        last_chunk = rest if 0 < rest <= chunk_size else None
    nbytes = _total_nbytes(numbering, inner, chunk_size, last_chunk)
    return ChunkGeometry(nchunks, chunk_size, last_chunk, array, nbytes)


def _inner_sizes(numbering: Numbering) -> Counter[int]:
    """Return the plain sizes of the chunks found, except the last one of the file."""
    sizes: Counter[int] = Counter()
    for chain in numbering.chains:
        sizes.update(chain.sizes)
    if numbering.last_size is not None:
        sizes[numbering.last_size] -= 1
    return +sizes


def _total_nbytes(
    numbering: Numbering,
    inner: Counter[int],
    chunk_size: int | None,
    last_chunk: int | None,
) -> int | None:
    """Return the plain size of all chunks: as found, and as expected of lost ones."""
    nlost = numbering.nchunks - inner.total() - 1
    found = sum(size * count for size, count in inner.items())
    if numbering.nchunks == 0:
        return 0
    if last_chunk is None or (nlost and chunk_size is None):
        return None
    return found + nlost * (chunk_size or 0) + last_chunk


# The sizes that chunks should have, before they are numbered


def expected_sizes(scan: ChunkScan, sections: Sections, header_is_wrong: bool) -> Sizes:
    """Return the plain sizes of the chunks and of the last one, None if any is right.

    All chunks but the last have the same size. The size that holds most bytes counts
    more than the header. `header_is_wrong` says that the header has an error.
    """
    chains, header = scan.chains, sections.header
    if header is not None and (header.format_version < 2 or header.chunk_size == -1):
        return None, None
    nbytes: Counter[int] = Counter()
    for chain in chains:
        for size, count in Counter(chain.sizes).items():
            nbytes[size] += size * count
    if not nbytes:
        if header is None:
            return None, None
        return header.chunk_size, sections.stated_last_chunk
    usual = max(nbytes, key=lambda size: nbytes[size])
    if header is None:
        return usual, chains[-1].sizes[-1]
    end = scan.storage.size
    chunk_size, last = header.chunk_size, sections.stated_last_chunk
    is_usual = usual in (chunk_size, last)
    if chunk_size in nbytes and (is_usual or _is_inner_size(chunk_size, chains, end)):
        found = chains[-1].sizes[-1]
        at_end = chains[-1].stop == end and found <= chunk_size
        wrong = header_is_wrong and at_end and last is not None
        return chunk_size, found if wrong else last
    if chains[-1].stop == end and dict(nbytes) == {last: last}:
        return chunk_size, last  # the only chunk found may be the last one
    # The header of a damaged first chunk may confirm the size, or the table may show
    # that no chunk found is one of this file.
    first = sections.first
    damaged = [] if first is None else scan.damaged_chunks(first, first + 1)
    confirmed = any(chunk.nbytes == chunk_size for chunk in damaged)
    if confirmed or _table_has_none_of(sections, chains):
        return chunk_size, last
    if last is not None and all(chain.sizes[-1] != last for chain in chains):
        last = chains[-1].sizes[-1]
    return usual, last


def _is_inner_size(size: int, chains: Sequence[Chain], end: int) -> bool:
    """Return whether a chunk found before the end of the file has this plain size."""
    return any(
        size in chain.sizes[: len(chain) - (chain.stop == end)] for chain in chains
    )


def _table_has_none_of(sections: Sections, chains: Sequence[Chain]) -> bool:
    """Return whether the table has no chain's offset or first extent."""
    entries = sections.table.entries
    offsets = {*entries}
    extents = {stop - start for start, stop in pairwise(entries)}
    return sections.table_fits and not any(
        chain.start in offsets or chain.stop_of(0) - chain.start in extents
        for chain in chains
    )
