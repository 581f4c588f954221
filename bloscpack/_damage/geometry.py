"""Chunk geometry: the number of chunks, and the plain bytes and rows of each.

`measure` takes them from the numbered chunks. Reports, recoveries and pictures take
counts, sizes and spans from the resulting `ChunkGeometry` alone.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .._format.array_metadata import Description
    from .evidence import Evidence
    from .findings import Pair
    from .lenient_sections import Sections
    from .numbering import Numbering


class ChunkGeometry(NamedTuple):
    """The number of chunks, and the plain bytes and rows that each one holds.

    ``chunk_size`` is the plain size of all chunks but the last, ``last_chunk`` of the
    last one, None if unknown or if chunks differ. ``array`` describes the array in the
    file, if any. ``found`` counts the chunks found, except the last one, by their
    plain sizes; None means that none is known.
    """

    nchunks: int
    chunk_size: int | None
    last_chunk: int | None
    array: Description | None = None
    found: Counter[int] | None = None

    @property
    def nbytes(self) -> int | None:
        """The plain size of all chunks, None if unknown."""
        if self.nchunks == 0:
            return 0
        sizes = self.found or Counter()
        nlost = self.nchunks - 1 - sizes.total()
        if self.last_chunk is None or (nlost and self.chunk_size is None):
            return None
        found = sum(size * count for size, count in sizes.items())
        return found + nlost * (self.chunk_size or 0) + self.last_chunk

    @property
    def row_nbytes(self) -> int:
        """The bytes of a row of the array, 0 if its rows are not contiguous."""
        array = self.array
        if array is None or not array.shape:
            return 0
        contiguous = array.order != "F" or len(array.shape) == 1
        return array.nbytes // max(array.shape[0], 1) if contiguous else 0

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
        row_nbytes = self.row_nbytes
        if span is None or not row_nbytes or self.array is None:
            return None
        nrows = self.array.shape[0]
        return min(span[0] // row_nbytes, nrows), min(-(-span[1] // row_nbytes), nrows)

    def place(self, first: int, stop: int) -> dict[str, int | Pair | None]:
        """Return number, span and rows of chunks, as arguments of a finding."""
        span = self.span(first, stop)
        return {"chunk": first, "span": span, "rows": self.rows(span)}


def nbytes_of(nchunks: int, chunk_size: int, last_chunk: int) -> int | None:
    """Return the plain size of `nchunks` chunks of these sizes."""
    return ChunkGeometry(nchunks, chunk_size, last_chunk).nbytes


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
    chunk_size, last_chunk = evidence.chunk_size, numbering.last_size
    inner: Counter[int] = Counter()
    for chain in numbering.chains:
        inner.update(chain.sizes)
    if last_chunk is not None:
        inner[last_chunk] -= 1
    inner = +inner
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
    return ChunkGeometry(nchunks, chunk_size, last_chunk, array, inner)
