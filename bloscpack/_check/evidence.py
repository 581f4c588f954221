"""Evidence: the statements of a damaged file about its chunks, gathered once.

`numbering.measure` compares them with the numbered chunks. Reports, recoveries and
pictures take counts, sizes and spans only from the resulting `ChunkGeometry`.

The core of `verify` and `recover` numbers the intact chunks in four steps:

1. `scan` finds chains of intact chunks, `lenient_sections` header, metadata and table;
2. `gather` chooses between statements that disagree;
3. `numbering` drops the chunks of inner files; its rules give the others their numbers,
   the strongest rule first;
4. `proof` lists the reasons why the numbers are not certain.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import NamedTuple

from .._engine.forks import cached_property
from .._format.array_metadata import Description
from .._format.sections import FREE, decode_offsets
from .._storage.base import Storage
from ..checksums import ALL_CHECKSUMS
from ..constants import BLOSC_HEADER_LENGTH, BLOSCPACK_HEADER_LENGTH, OFFSET_LENGTH
from .findings import Pair
from .lenient_sections import OffsetTable, Sections
from .scan import Chain, ChunkScan

# Number of chunks compared with the table: as many equal extents identify a chain.
NCOMPARED = 16
# Maximum number of positions in the table that are compared with one chain.
MAX_PLACES = 32
# Maximum number of bytes in the extent of a chunk besides its plain bytes.
LARGEST_OVERHEAD = BLOSC_HEADER_LENGTH + max(
    checksum.size for checksum in ALL_CHECKSUMS
)
# Maximum number of chunks that a header without an offset table may state: always this
# many, and this many per chunk found. A damaged header may state 2**62 chunks, and
# `recover` would try to fill them in.
MIN_NCHUNKS_LIMIT = 2**16
NCHUNKS_LIMIT_PER_CHUNK = 1000
# Maximum size in bytes of a table that is read without a header that states it: room
# for eight million entries.
MAX_TABLE_NBYTES = 2**26
# The weight of a chunk whose extent the offset table has, compared with others.
NAMED_WEIGHT = 8


@dataclass(frozen=True, eq=False)
class Evidence:
    """The statements of a file about its chunks; offsets and sizes are in bytes.

    ``entries`` is the offset table, with FREE for damaged entries; ``first`` is
    the offset of the first chunk and ``nchunks`` the number of chunks, None if unknown.
    Chunks can't begin before ``base``; ``size`` is the end of the file. ``chunk_size``
    and ``last_chunk`` are the plain sizes that chunks should have, None if they may
    have any. ``digests`` says that digests follow the chunks. ``count_confirmed`` says
    that two statements agree on ``nchunks``: the header and the table, or the header
    and the array of the metadata.
    """

    size: int
    base: int
    first: int | None = None
    entries: Sequence[int] = ()
    nchunks: int | None = None
    chunk_size: int | None = None
    last_chunk: int | None = None
    count_confirmed: bool = False
    digests: bool = True

    # The table; a sound file needs no index of it.

    @cached_property
    def is_whole(self) -> bool:
        """Whether no entry of the table is damaged."""
        return FREE not in self.entries

    @cached_property
    def numbers(self) -> dict[int, int]:
        """The number of the chunk at each offset of the table."""
        return {offset: number for number, offset in enumerate(self.entries)}

    @cached_property
    def numbers_of(self) -> dict[int | None, list[int]]:
        """The numbers of the chunks with each extent in the table, ascending."""
        numbers: dict[int | None, list[int]] = {}
        for number in range(len(self.entries) - 1):
            numbers.setdefault(self.extent(number), []).append(number)
        return numbers

    def extent(self, number: int) -> int | None:
        """Return the extent of a chunk by the table, None if an entry is damaged.

        The last chunk has none.
        """
        if not 0 <= number < len(self.entries) - 1:
            return None
        start, stop = self.entries[number : number + 2]
        return stop - start if FREE not in (start, stop) else None

    # Chunks by their plain sizes

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
        sizes, usual = chain.sizes[:-1], self.chunk_size
        return (
            (chain.start, chain.stop) == (self.first, self.size)
            and len(chain) == self.nchunks
            and self.last_chunk in (None, chain.sizes[-1])
            and (usual is None or sizes.count(usual) == len(sizes))
        )

    # Chunks by their extents in the table

    def matches(self, chain: Chain, i: int, number: int) -> bool:
        """Return whether chunk `i` of a chain has the extent of a chunk in the table.

        The last chunk must have the plain size of the last chunk instead.
        """
        if number == len(self.entries) - 1:
            return self.last_chunk in (None, chain.sizes[i])
        return self.extent(number) == chain.extent_of(i)

    def fits(self, chain: Chain, i: int, number: int) -> bool:
        """Return whether the table does not contradict the number of a chunk."""
        known = not 0 <= number < len(self.entries) - 1 or self.extent(number)
        return not known or self.matches(chain, i, number)

    def is_unique(self, chain: Chain, i: int, number: int) -> bool:
        """Return whether the table has the extent of chunk `i` at this number only.

        The last chunk, whose extent is not known, must be marked by its plain size, or
        have an extent that the table does not have.
        """
        numbers, size = self.numbers_of.get(chain.extent_of(i), []), chain.sizes[i]
        if number == len(self.entries) - 1:
            unlike = not numbers and self.last_chunk == size and self.is_whole
            return self.count_confirmed and (unlike or self.is_marked(size))
        return self.is_whole and numbers == [number]

    def best_number(self, chain: Chain, i: int) -> int | None:
        """Return the number of chunk `i` that fits the table best, None if none does.

        The numbers compared are those where the table has the rarest of the next
        extents; of many, and of equal ones, those nearest to the chunk.
        """
        offset, last = chain.offsets[i], len(self.entries) - 1
        ahead = range(min(NCOMPARED, len(chain) - i))
        near = bisect_left(self.entries, offset)
        rarest: list[int] = []
        candidates, before = {near - 1, near}, 0
        for k in ahead:
            numbers = self.numbers_of.get(chain.extent_of(i + k), [])
            if numbers and not 0 < len(rarest) <= len(numbers):
                rarest, before = numbers, k
            unlike = not numbers and self.is_whole
            if unlike or self.is_marked(chain.sizes[i + k]):
                candidates.add(last - k)
        if rarest:
            begin = max(0, bisect_left(rarest, near) - MAX_PLACES // 2)
            candidates.update(n - before for n in rarest[begin : begin + MAX_PLACES])
        ranked = []
        for n in (n for n in candidates if 0 <= n <= last):
            total = 2 * sum(self.fits(chain, i + k, n + k) for k in ahead)
            at = self.entries[n : n + NCOMPARED], chain.offsets[i : i + NCOMPARED]
            total += sum(map(int.__eq__, *at))
            distance = abs(self.entries[n] - offset)
            ranked.append((self.fits(chain, i, n), total, -distance, n))
        _, total, _, best = max(ranked, default=(False, 0, 0, 0))
        return best if total > 1 else None


def with_known_entries(
    storage: Storage, sections: Sections, chains: Sequence[Chain]
) -> Sections:
    """Return the sections with the entries of the offset table that may be right.

    The table ends where its first entry says that the first chunk begins, whatever a
    damaged header says about it.
    """
    header = sections.header
    if not chains or (header is not None and header.format_version < 2):
        return sections
    expected = header is None or sections.table.start
    # Its first entry is the end of the table.
    fits = [*sections.table.entries[:1]] == [sections.first]
    if expected and sections.first != chains[0].start and not fits:
        sections = _with_table(storage, sections, chains[0].start)
    sizes = [max(chain.sizes) for chain in chains]
    if header is not None and len(chains) == len(chains[0]) == 1:
        # A single chunk may be the last one, which is smaller.
        sizes += header.chunk_size, header.last_chunk
    table, largest = sections.table, max(sizes) + LARGEST_OVERHEAD
    known = _known_entries(table.entries, sections.first, largest)
    return sections._replace(table=table._replace(known=known))


def _with_table(storage: Storage, sections: Sections, stop: int) -> Sections:
    """Return the sections with the table that ends at `stop` or before, if any."""
    start = sections.table.start or sections.base or BLOSCPACK_HEADER_LENGTH
    first = int.from_bytes(storage.read_at(start, OFFSET_LENGTH), "little", signed=True)
    nentries, rest = divmod(first - start, OFFSET_LENGTH)
    if rest or not start < first <= stop:
        return sections
    size = min(first - start, MAX_TABLE_NBYTES)
    offsets = decode_offsets(storage.read_at(start, size))
    entries = [*takewhile(lambda entry: entry > 0, offsets)]
    table = OffsetTable(entries, start, nentries - len(entries))
    return sections._replace(table=table, first=first)


def _known_entries(
    entries: Sequence[int], first: int | None, largest: int
) -> Sequence[int]:
    """Return the entries of a table, FREE in place of those that can't be right.

    An entry is right if it is as far behind the one before as a chunk is long, or if
    the next entry is as far behind it.
    """
    extents = range(BLOSC_HEADER_LENGTH, largest + 1)
    if all(after - before in extents for before, after in pairwise(entries)):
        return entries
    known, last = array("q"), None
    for entry, after in pairwise([*entries, FREE]):
        right = entry == first if last is None else entry - last in extents
        if right or (entry > (last or 0) and after - entry in extents):
            last = entry
            known.append(entry)
        else:
            known.append(FREE)
    # A single entry gives no extent.
    return known if len(known) - known.count(FREE) > 1 else ()


def gather(
    storage: Storage, sections: Sections, scan: ChunkScan, array: Description | None
) -> Evidence:
    """Return the evidence."""
    entries, header = sections.table.known, sections.header
    nchunks = None if header is None or header.nchunks == -1 else header.nchunks
    confirmed = nchunks == len(entries) > 0 and entries[-1] != FREE
    only = scan.chains[0] if len(scan.chains) == 1 else ()
    if len(entries) and sections.first is not None and len(only) != nchunks:
        nchunks = len(entries)
    nfound = sum(map(len, scan.chains))
    limit = MIN_NCHUNKS_LIMIT + NCHUNKS_LIMIT_PER_CHUNK * nfound
    if nchunks is None and array is not None and array.grid is not None:
        nchunks = array.grid.nchunks
    if nchunks is not None and nchunks > max(limit, len(entries)):
        nchunks = None
    chunk_size, last_chunk = _chunk_sizes(scan, sections)
    return Evidence(
        size=storage.size,
        base=sections.base or BLOSCPACK_HEADER_LENGTH,
        first=sections.first,
        entries=entries,
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
    stated = ChunkGeometry(header.nchunks, header.chunk_size, last)
    return stated.nbytes == array.stored_nbytes


def _chunk_sizes(scan: ChunkScan, sections: Sections) -> tuple[int | None, int | None]:
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
    counts = Counter(size for chain in chains for size in chain.sizes)
    size_at_end = chains[-1].sizes[-1]
    at_end = chains[-1].stop == scan.storage.size
    if last is None and at_end and size_at_end <= (size or 0):
        last = size_at_end
    if size in counts and counts.keys() <= {size, last}:
        return size, last  # sound files take this way
    extents = {stop - start for start, stop in pairwise(sections.table.known)}
    weights: Counter[int] = Counter()
    for chain in chains:
        for i, nbytes in enumerate(chain.sizes):
            is_named = chain.extent_of(i) in extents
            weights[nbytes] += nbytes * (NAMED_WEIGHT if is_named else 1)
    usual = max(weights, key=weights.__getitem__)
    others = [n for n, count in counts.items() if n < usual and count == 1]
    if sections.stated_last_chunk is None and size_at_end == usual and len(others) == 1:
        last = others[0]
    if size is None:
        return usual, size_at_end if last is None else last
    if size in counts and usual in (size, last):
        return size, last
    if at_end and size_at_end == last and counts.total() == 1:
        return size, last  # the only chunk found may be the last one
    if last is not None and all(chain.sizes[-1] != last for chain in chains):
        last = size_at_end
    return usual, last


# The geometry of the numbered chunks


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
        known = sum(size * count for size, count in sizes.items())
        return known + nlost * (self.chunk_size or 0) + self.last_chunk

    @property
    def row_nbytes(self) -> int:
        """The bytes of a row of the array, 0 if its rows are not contiguous."""
        array = self.array
        if array is None or not array.shape or array.grid is not None:
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

    def region(self, first: int, stop: int) -> tuple[Pair, ...] | None:
        """Return the part of the array that has the chunks of a grid [first, stop).

        It may have other chunks, too. Return None without a grid.
        """
        grid = None if self.array is None else self.array.grid
        if grid is None or not first < stop <= grid.nchunks:
            return None
        low, high = grid.box(first), grid.box(stop - 1)
        pairs: list[Pair] = []
        differs = False
        for a, b, n in zip(low, high, grid.shape, strict=True):
            # Behind the first axis along which they differ, they may be anywhere.
            pairs.append((0, n) if differs else (a.start, b.stop))
            differs = differs or a != b
        return tuple(pairs)

    def location(
        self, first: int, stop: int
    ) -> dict[str, int | Pair | tuple[Pair, ...] | None]:
        """Return number, span and items of chunks, as arguments of a finding."""
        span = self.span(first, stop)
        rows, region = self.rows(span), self.region(first, stop)
        return {"chunk": first, "span": span, "rows": rows, "region": region}
