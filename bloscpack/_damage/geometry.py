"""Chunk geometry: the number of chunks, and the plain bytes and rows of each.

`measure` takes them from the numbered chunks. Reports, recoveries and pictures take
counts, sizes and spans from the resulting `ChunkGeometry` alone.
"""

from __future__ import annotations

from collections import Counter

from ..abstract_objects import ImmutableObject

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from .._format.array_metadata import Description
    from .evidence import Evidence
    from .findings import Pair
    from .lenient_sections import Sections
    from .numbering import Numbering


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
    evidence: Evidence,
    array: Description | None,
) -> ChunkGeometry:
    """Return the geometry of the numbered chunks.

    The chunks found count more than the sizes that the evidence has for them.
    """
    header, nchunks = sections.header, numbering.nchunks
    inner = _inner_sizes(numbering)
    chunk_size, last_chunk = evidence.chunk_size, numbering.last_size
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
