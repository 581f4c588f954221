"""Evidence: the statements of a damaged file about its chunks, gathered once.

The core of `verify` and `recover` numbers the intact chunks in four steps:

1. `scan` finds chains of intact chunks, `lenient_sections` header, metadata and table;
2. `gather` chooses between statements that disagree; `Evidence` keeps the others, with
   an index of the offset table;
3. `nested` drops the chunks of inner files; the rules of `numbering` give the others
   their numbers, the strongest rule first;
4. `proof` lists the reasons why the numbers are not certain.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from functools import cached_property
from itertools import pairwise

from .._format.offsets import FREE
from ..abstract_objects import ImmutableObject
from ..checksums import CHECKSUMS
from ..constants import BLOSC_HEADER_LENGTH, BLOSCPACK_HEADER_LENGTH
from .geometry import nbytes_of

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._format.array_metadata import Description
    from .._storage.base import Storage
    from .lenient_sections import Sections
    from .scan import Chain, ChunkScan

    Sizes = tuple[int | None, int | None]

# Number of chunks compared with the table: as many equal extents identify a chain.
NCOMPARED = 16
# Maximum number of places in the table that are compared with one chain.
MAX_PLACES = 32
# Maximum number of bytes that the extent of a chunk has beside its plain bytes.
LARGEST_OVERHEAD = BLOSC_HEADER_LENGTH + max(checksum.size for checksum in CHECKSUMS)
# Maximum number of chunks believed without an offset table: always this many, and this
# many per chunk found. A damaged header may state 2**62 chunks, and `recover` would try
# to fill them in.
MIN_NCHUNKS_LIMIT = 2**16
NCHUNKS_LIMIT_PER_CHUNK = 1000
# The weight of a chunk that the offset table names, compared with one that it does not.
NAMED_WEIGHT = 8


class Table:
    """An index of an offset table: the numbers of its offsets and of its extents.

    ``entries`` are the offsets, FREE where an entry is damaged; ``is_whole`` says that
    none is. The last chunk has no extent in the table. The index is built on first use:
    a sound file needs none.
    """

    def __init__(self, entries: Sequence[int] = ()) -> None:
        self.entries = entries
        self.is_whole = FREE not in entries

    @cached_property
    def _numbers(self) -> dict[int, int]:
        numbers: dict[int, int] = {}
        for number, offset in enumerate(self.entries):
            numbers.setdefault(offset, number)
        return numbers

    @cached_property
    def _by_extent(self) -> dict[int | None, list[int]]:
        numbers: dict[int | None, list[int]] = {}
        for number in range(len(self.entries)):
            numbers.setdefault(self.extent(number), []).append(number)
        return numbers

    def __len__(self) -> int:
        return len(self.entries)

    def number_at(self, offset: int) -> int | None:
        """Return the number of the chunk that the table puts at `offset`."""
        return self._numbers.get(offset)

    def has_chunk(self, start: int, stop: int) -> bool:
        """Return whether the table has a chunk at `start`, or one of this extent."""
        return start in self._numbers or stop - start in self._by_extent

    def extent(self, number: int) -> int | None:
        """Return the extent of a chunk, None if an entry of its is damaged."""
        if not 0 <= number < len(self.entries) - 1:
            return None
        start, stop = self.entries[number : number + 2]
        return stop - start if FREE not in (start, stop) else None

    def numbers_of(self, extent: int) -> Sequence[int]:
        """Return the numbers of the chunks with this extent, ascending."""
        return self._by_extent.get(extent, ())


class Evidence(ImmutableObject):
    """The statements of a file about its chunks; offsets and sizes are in bytes.

    ``table`` is the index of the offset table, ``first`` the offset of the first chunk
    and ``nchunks`` the number of chunks, None if unknown. Chunks can't begin before
    ``base``; ``size`` is the end of the file. ``chunk_size`` and ``last_chunk`` are the
    plain sizes that chunks should have, None if they may have any. ``digests`` says
    that digests follow the chunks.

    ``count_confirmed`` says that two statements agree on ``nchunks``: the header and
    the table, or the header and the array of the metadata.
    """

    __slots__ = (
        "base",
        "chunk_size",
        "count_confirmed",
        "digests",
        "first",
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
        digests: bool = True,
    ) -> None:
        self.size = size
        self.base = base
        self.first = first
        self.table = Table() if table is None else table
        self.nchunks = nchunks
        self.chunk_size = chunk_size
        self.last_chunk = last_chunk
        self.count_confirmed = count_confirmed
        self.digests = digests

    def is_marked(self, size: int) -> bool:
        """Return whether only the last chunk of the file has this plain size."""
        return size == self.last_chunk != self.chunk_size is not None

    def fits_sizes(self, chain: Chain) -> bool:
        """Return whether the first chunk of a chain has a plain size of the file."""
        if self.chunk_size is None or chain.sizes[0] == self.chunk_size:
            return True
        return len(chain) == 1 and chain.sizes[0] == self.last_chunk

    def is_complete(self, chain: Chain) -> bool:
        """Return whether the file consists of a chain of all chunks that it states."""
        return (
            (chain.start, chain.stop) == (self.first, self.size)
            and len(chain) == self.nchunks
            and self.last_chunk in (None, chain.sizes[-1])
            and (
                self.chunk_size is None
                or chain.sizes[:-1].count(self.chunk_size) == len(chain) - 1
            )
        )

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

    def place(self, chain: Chain, i: int) -> int | None:
        """Return the number of chunk `i` that fits the table best, None if none does.

        Of equal places the one nearest to the chunk counts.
        """
        places = self._places(chain, i)
        fitting = [n for n in places if self.fits(chain, i, n)]
        entries, offset = self.table.entries, chain.offsets[i]
        ranked = [
            (self.agreement(chain, i, n), -abs(entries[n] - offset), n)
            for n in fitting or places
        ]
        agreement, _, best = max(ranked, default=(0, 0, None))
        return best if agreement > 1 else None

    def _places(self, chain: Chain, i: int) -> list[int]:
        """Return the numbers that chunk `i` of a chain may have by the table.

        The rarest of the next extents is looked up. Of many places, those nearest to
        the chunk are taken.
        """
        entries, last = self.table.entries, len(self.table) - 1
        found: set[int] = set()
        rarest: tuple[int, Sequence[int]] = 0, ()
        for k in range(min(NCOMPARED, len(chain) - i)):
            numbers = self.table.numbers_of(chain.stop_of(i + k) - chain.offsets[i + k])
            if numbers and not 0 < len(rarest[1]) <= len(numbers):
                rarest = k, numbers
            unlike = not numbers and self.table.is_whole
            if unlike or self.is_marked(chain.sizes[i + k]):
                found.add(last - k)
        near = bisect_left(entries, chain.offsets[i])
        found.update((near - 1, near))
        k, numbers = rarest
        begin = bisect_left(numbers, near) - MAX_PLACES // 2
        begin = max(0, min(begin, len(numbers) - MAX_PLACES))
        found.update(n - k for n in numbers[begin : begin + MAX_PLACES])
        return [n for n in found if 0 <= n <= last]


def is_plausible(entries: Sequence[int], largest_extent: int) -> bool:
    """Return whether all entries of a table can be right at the same time."""
    return all(
        BLOSC_HEADER_LENGTH <= after - before <= largest_extent
        for before, after in pairwise(entries)
    )


# Gather the evidence


def gather(
    storage: Storage,
    sections: Sections,
    scan: ChunkScan,
    array: Description | None,
    header_is_wrong: bool,
) -> Evidence:
    """Return the evidence; `header_is_wrong` says that the header has an error."""
    table, header = Table(sections.table.known), sections.header
    nchunks = None if header is None or header.nchunks == -1 else header.nchunks
    confirmed = nchunks == len(table) > 0 and table.entries[-1] != FREE
    only = scan.chains[0] if len(scan.chains) == 1 else ()
    if len(table) and sections.first is not None and len(only) != nchunks:
        nchunks = len(table)
    nfound = sum(map(len, scan.chains))
    limit = MIN_NCHUNKS_LIMIT + NCHUNKS_LIMIT_PER_CHUNK * nfound
    if nchunks is not None and nchunks > max(limit, len(table)):
        nchunks = None
    chunk_size, last_chunk = _chunk_sizes(scan, sections, table, header_is_wrong)
    return Evidence(
        size=storage.size,
        base=sections.base or BLOSCPACK_HEADER_LENGTH,
        first=sections.first,
        table=table,
        nchunks=nchunks,
        chunk_size=chunk_size,
        last_chunk=last_chunk,
        count_confirmed=confirmed or _is_array_size(sections, array),
        digests=scan.checksum.size > 0,
    )


def _is_array_size(sections: Sections, array: Description | None) -> bool:
    """Return whether the header states as many plain bytes as the array has."""
    header, last = sections.header, sections.stated_last_chunk
    if array is None or header is None or last is None:
        return False
    if -1 in (header.chunk_size, header.nchunks) or header.nchunks < 1:
        return False
    return nbytes_of(header.nchunks, header.chunk_size, last) == array.nbytes


def _are_stated(chains: Sequence[Chain], size: int, last: int | None) -> bool:
    """Return whether all chunks have the plain sizes in the header.

    Then nothing has to be weighed; sound files take this way.
    """
    if not any(size in chain.sizes for chain in chains):
        return False
    stated = {size, size if last is None else last}
    return all(sum(map(chain.sizes.count, stated)) == len(chain) for chain in chains)


def _chunk_sizes(
    scan: ChunkScan, sections: Sections, table: Table, header_is_wrong: bool
) -> Sizes:
    """Return the plain sizes of the chunks and of the last one, None if any is right.

    All chunks but the last have the same size. If no chunk has the size in the header,
    the size that most bytes have is right; chunks that the table names weigh more.
    """
    chains, header = scan.chains, sections.header
    if header is not None and (header.format_version < 2 or header.chunk_size == -1):
        return None, None
    size = None if header is None else header.chunk_size
    last = sections.stated_last_chunk
    if not chains:
        return size, last
    found, at_end = chains[-1].sizes[-1], chains[-1].stop == scan.storage.size
    wrong = header_is_wrong and at_end and last is not None
    if size is not None and _are_stated(chains, size, last):
        return size, found if wrong and found <= size else last
    weights: Counter[int] = Counter()
    counts: Counter[int] = Counter()
    named = chains[0].start == sections.first
    for chain in chains:
        for i, nbytes in enumerate(chain.sizes):
            is_named = table.has_chunk(chain.offsets[i], chain.stop_of(i))
            weights[nbytes] += nbytes * (NAMED_WEIGHT if is_named else 1)
            counts[nbytes] += 1
            named = named or is_named
    usual = max(weights, key=weights.__getitem__)
    if size is None:
        others = [n for n, count in counts.items() if n < usual and count == 1]
        return usual, others[0] if found == usual and len(others) == 1 else found
    if size in weights and usual in (size, last):
        return size, found if wrong and found <= size else last
    if at_end and found == last and sum(map(len, chains)) == 1:
        return size, last  # the only chunk found may be the last one
    plausible = len(table) and is_plausible(table.entries, size + LARGEST_OVERHEAD)
    if plausible and not named:
        return size, last  # the chunks found are those of an inner file
    if last is not None and all(chain.sizes[-1] != last for chain in chains):
        last = found
    return usual, last
