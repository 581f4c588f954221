"""Cut: how the plain bytes of a damaged file are cut, and what array they are.

Header and metadata say it, and where they are lost or wrong, the chunks found.
"""

from __future__ import annotations

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from .findings import Pair
    from .inspection import Inspection


class ChunkGeometry:
    """How the plain bytes are cut into chunks, and what array they are.

    ``full`` and ``last`` are the plain sizes of the chunks, None where chunks differ
    or nobody knows.
    """

    def __init__(self, inspection: Inspection) -> None:
        self.nchunks = inspection.places.nchunks
        self.full, self.last = _sizes(inspection)
        self.description = inspection.description
        if self.last is None and self.full and self.description:
            rest = self.description.nbytes - (self.nchunks - 1) * self.full
            self.last = rest if 0 < rest <= self.full else None
        shape = self.description.shape if self.description else ()
        self.row = 0
        if self.description and shape:
            nrows = max(shape[0], 1)
            in_c_order = self.description.order == "C" or len(shape) == 1
            self.row = self.description.nbytes // nrows if in_c_order else 0

    def expected(self, i: int) -> int | None:
        """Return the plain bytes that chunk `i` should have, None if unknown."""
        return self.last if i == self.nchunks - 1 else self.full

    @property
    def nbytes(self) -> int | None:
        """The plain bytes of all chunks, None if nobody can tell."""
        if self.nchunks == 0:
            return 0
        if self.last is None or (self.full is None and self.nchunks > 1):
            return None
        return (self.nchunks - 1) * (self.full or 0) + self.last

    def span(self, first: int, stop: int) -> Pair | None:
        """Return the plain bytes of the chunks from `first` up to `stop`."""
        if first and self.full is None:
            return None
        size = self.expected(stop - 1)
        if size is None or (stop - first > 1 and self.full is None):
            return None
        full = self.full or 0
        return first * full, (stop - 1) * full + size

    def rows(self, span: Pair | None) -> Pair | None:
        """Return the rows of the array that a span touches."""
        if span is None or not self.row or self.description is None:
            return None
        start, stop = span
        nrows = self.description.shape[0]
        return min(start // self.row, nrows), min(-(-stop // self.row), nrows)


def _sizes(inspection: Inspection) -> tuple[int | None, int | None]:
    """Return the plain sizes of all chunks but the last, and of that."""
    header, places = inspection.header, inspection.places
    chains = inspection.survey.chains
    last_found = None
    if chains and places.numbers[-1] + len(chains[-1]) == places.nchunks:
        last_found = chains[-1].sizes[-1]
    # What most of the first chunks have, should the header be wrong.
    some = [size for chain in chains for size in chain.sizes[:100]][:100]
    if last_found is not None and len(some) == sum(map(len, chains)):
        some.pop()
    usual = max(set(some), key=some.count) if some else None
    full, last = -1, None
    if header is not None and header.format_version >= 2:
        full, last = header.chunk_size, inspection.stated_last
        if places.nchunks != header.nchunks != -1 and usual is not None:
            last = None
        if full not in some and usual is not None and places.nchunks > 1:
            full = usual
    if full == -1 and usual is not None:
        full = usual
        sizes = [size for chain in chains for size in chain.sizes]
        if last_found is not None:
            sizes.pop()
        if any(size != full for size in sizes):
            return None, last_found
    return (None if full == -1 else full), (last_found if last is None else last)
