"""Evidence: the statements of a damaged file about its chunks, gathered once.

The core of `verify` and `recover` numbers the intact chunks in five steps:

1. `scan` finds chains of intact chunks, `lenient_sections` header, metadata and table;
2. `gathering` chooses between statements that disagree; `Evidence` keeps the others,
   with an index of the offset table;
3. `nested` drops the chunks of inner files, and links the other chains;
4. the rules in `rules` yield claims: this piece of a chain begins with this number;
   `numbering` takes those of the strongest rule first, and notes which rule decided;
5. `proof` lists the reasons why the numbers are not certain.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise

from .._format.offsets import FREE
from ..abstract_objects import ImmutableObject
from ..checksums import CHECKSUMS
from ..constants import BLOSC_HEADER_LENGTH, MAX_BUFFERSIZE

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .scan import Chain

# Number of chunks compared with the table: as many equal extents identify a chain.
NCOMPARED = 16
# Maximum number of places in the table that are compared with one chain.
MAX_PLACES = 32
# Maximum number of bytes that the extent of a chunk has beside its plain bytes.
LARGEST_OVERHEAD = BLOSC_HEADER_LENGTH + max(checksum.size for checksum in CHECKSUMS)


class Table:
    """An index of an offset table: the numbers of its offsets and of its extents.

    ``entries`` are the offsets, FREE where an entry is damaged; ``is_whole`` says that
    none is. The index is built on first use, as sound files need none. The last chunk
    has no extent in the table.
    """

    def __init__(self, entries: Sequence[int] = ()) -> None:
        self.entries = entries
        self.is_whole = FREE not in entries
        self._numbers: dict[int, int] | None = None
        self._by_extent: dict[int, list[int]] = {}

    def __len__(self) -> int:
        return len(self.entries)

    def _index(self) -> dict[int, int]:
        if self._numbers is None:
            self._numbers = {}
            for number, offset in enumerate(self.entries):
                self._numbers.setdefault(offset, number)
                extent = self.extent(number)
                if extent is not None:
                    self._by_extent.setdefault(extent, []).append(number)
            self._numbers.pop(FREE, None)
        return self._numbers

    def number_at(self, offset: int) -> int | None:
        """Return the number of the chunk that the table puts at `offset`."""
        return self._index().get(offset)

    def extent(self, number: int) -> int | None:
        """Return the extent of a chunk, None if an entry of its is damaged."""
        if not 0 <= number < len(self.entries) - 1:
            return None
        start, stop = self.entries[number : number + 2]
        return stop - start if FREE not in (start, stop) else None

    def numbers_of(self, extent: int) -> Sequence[int]:
        """Return the numbers of the chunks with this extent, ascending."""
        self._index()
        return self._by_extent.get(extent, ())


class Evidence(ImmutableObject):
    """The statements of a file about its chunks; offsets and sizes are in bytes.

    ``table`` is the index of the offset table, ``first`` the offset of the first chunk
    and ``nchunks`` the number of chunks, None if unknown. Chunks can't begin before
    ``base``; ``size`` is the end of the file. ``chunk_size`` and ``last_chunk`` are the
    plain sizes that chunks should have, None if they may have any. ``digests`` says
    that digests follow the chunks.

    ``count_confirmed`` says that two statements agree on ``nchunks``: the header and
    the table, or the header and the array of the metadata (``fits_array``).
    """

    __slots__ = (
        "base",
        "chunk_size",
        "count_confirmed",
        "digests",
        "first",
        "fits_array",
        "last_chunk",
        "nchunks",
        "size",
        "table",
    )

    def __init__(
        self,
        *,
        size: int,
        base: int,
        first: int | None = None,
        table: Table | None = None,
        nchunks: int | None = None,
        chunk_size: int | None = None,
        last_chunk: int | None = None,
        count_confirmed: bool = False,
        fits_array: bool = False,
        digests: bool = True,
    ) -> None:
        self.size = size
        self.base = base
        self.first = first
        self.table = Table() if table is None else table
        self.nchunks = nchunks
        self.chunk_size = chunk_size
        self.last_chunk = last_chunk
        self.count_confirmed = count_confirmed or fits_array
        self.fits_array = fits_array
        self.digests = digests

    @property
    def largest_extent(self) -> int:
        """The maximum size in bytes of a chunk and its digest."""
        nbytes = MAX_BUFFERSIZE
        if self.chunk_size is not None:
            nbytes = max(self.chunk_size, self.last_chunk or 0)
        return nbytes + LARGEST_OVERHEAD

    def is_marked(self, size: int) -> bool:
        """Return whether only the last chunk of the file has this plain size."""
        return size == self.last_chunk != self.chunk_size is not None

    def fits_sizes(self, chain: Chain) -> bool:
        """Return whether the first chunk of a chain has a plain size of the file."""
        if self.chunk_size is None or chain.sizes[0] == self.chunk_size:
            return True
        return len(chain) == 1 and chain.sizes[0] == self.last_chunk

    # Chunks in the table

    def matches(self, chain: Chain, i: int, number: int) -> bool:
        """Return whether chunk `i` of a chain has the extent of a chunk in the table.

        The last chunk must have the plain size of the last chunk instead.
        """
        if number == len(self.table) - 1:
            return self.last_chunk in (None, chain.sizes[i])
        return self.table.extent(number) == chain.stop_of(i) - chain.offsets[i]

    def fits(self, chain: Chain, i: int, number: int) -> bool:
        """Return whether the table does not contradict the number of a chunk."""
        damaged = 0 <= number < len(self.table) - 1 and (
            self.table.extent(number) is None
        )
        return damaged or self.matches(chain, i, number)

    def is_at_offset(self, chain: Chain, i: int, number: int) -> bool:
        """Return whether chunk `i` of a chain begins where the table says."""
        entries = self.table.entries
        return 0 <= number < len(entries) and entries[number] == chain.offsets[i]

    def is_unique(self, chain: Chain, i: int, number: int) -> bool:
        """Return whether the table has the extent of chunk `i` at this number alone.

        The last chunk, whose extent is not known, must be marked by its plain size, or
        have an extent that the table does not have.
        """
        extent = chain.stop_of(i) - chain.offsets[i]
        numbers = self.table.numbers_of(extent)
        if number == len(self.table) - 1:
            size = chain.sizes[i]
            unlike = not numbers and self.last_chunk == size and self.table.is_whole
            return self.count_confirmed and (unlike or self.is_marked(size))
        return self.table.is_whole and len(numbers) == 1 and numbers[0] == number

    def agreement(self, chain: Chain, i: int, number: int) -> int:
        """Return how well the chunks from `i` on match the table from `number` on."""
        count = min(NCOMPARED, len(chain) - i, len(self.table) - number)
        entries = self.table.entries[number : number + count + 1]
        ends = *chain.offsets[i : i + count], chain.stop_of(i + count - 1)
        total = sum(map(int.__eq__, entries[:count], ends))
        for (start, stop), (begin, end) in zip(
            pairwise(entries), pairwise(ends), strict=False
        ):
            total += 2 * (stop - start == end - begin or FREE in (start, stop))
        last = number + count == len(self.table)
        if last:
            total += 2 * self.matches(chain, i + count - 1, number + count - 1)
        return total

    def distance(self, chain: Chain, i: int, number: int) -> int:
        """Return how far chunk `i` of a chain is from where the table puts it."""
        for k in range(min(NCOMPARED, len(chain) - i, len(self.table) - number)):
            entry = self.table.entries[number + k]
            if entry != FREE:
                return abs(entry - chain.offsets[i + k])
        return self.size

    def places(self, chain: Chain, i: int) -> list[int]:
        """Return the numbers that chunk `i` of a chain may have by the table, sorted.

        The rarest of the next extents is looked up. Of many places, those nearest to
        the chunk are taken.
        """
        found: set[int] = set()
        here = self.table.number_at(chain.offsets[i])
        if here is not None:
            found.add(here)
        rarest: tuple[int, Sequence[int]] | None = None
        for k in range(min(NCOMPARED, len(chain) - i)):
            extent = chain.stop_of(i + k) - chain.offsets[i + k]
            numbers = self.table.numbers_of(extent)
            if numbers and (rarest is None or len(numbers) < len(rarest[1])):
                rarest = k, numbers
            unlike = not numbers and self.table.is_whole
            if unlike or self.is_marked(chain.sizes[i + k]):
                found.add(len(self.table) - 1 - k)
        near = bisect_left(self.table.entries, chain.offsets[i + k])
        found.update((near - k - 1, near - k))
        if rarest is not None:
            k, numbers = rarest
            near = bisect_left(self.table.entries, chain.offsets[i])
            begin = bisect_left(numbers, near) - MAX_PLACES // 2
            begin = max(0, min(begin, len(numbers) - MAX_PLACES))
            found.update(n - k for n in numbers[begin : begin + MAX_PLACES])
        return sorted(n for n in found if 0 <= n < len(self.table))


def is_plausible(entries: Sequence[int], largest_extent: int) -> bool:
    """Return whether all entries of a table can be right at the same time."""
    return all(
        BLOSC_HEADER_LENGTH <= after - before <= largest_extent
        for before, after in pairwise(entries)
    )
