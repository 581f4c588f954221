"""Find an offset table that bytes were inserted into or deleted from.

Entries are known by their values: each is greater than the one before, by the extent of
a chunk. Where an entry is damaged, the search goes on at the next byte from which on
two entries are plausible again. The distance gives the number of damaged entries.
"""

from __future__ import annotations

import struct
from array import array
from collections import Counter
from itertools import pairwise

from .._format.offsets import FREE, decode
from ..constants import BLOSC_HEADER_LENGTH, BLOSCPACK_HEADER_LENGTH, OFFSET_LENGTH
from .evidence import LARGEST_OVERHEAD, is_plausible
from .lenient_sections import OffsetTable, is_filled

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._storage.base import Storage
    from .lenient_sections import Sections
    from .scan import Chain

# Maximum number of bytes before the chunks that are searched for an offset table: room
# for eight million entries.
MAX_TABLE_SEARCH_NBYTES = 2**26
# Maximum number of bytes searched for the first entries of a table without a header.
MAX_START_SEARCH_NBYTES = 2**14
# Maximum number of entries that are believed to be cut out in front of all others.
MAX_CUT = 1000
ENTRY = struct.Struct("<q")


def relocate_table(
    storage: Storage, sections: Sections, chains: list[Chain]
) -> Sections:
    """Return the sections, with the offset table that fits the chunks best."""
    stated, header = sections.table, sections.header
    if not chains or (header is not None and header.format_version < 2):
        return sections
    largest = _largest_extent(sections, chains)
    if sections.table_fits and is_plausible(stated.entries, largest):
        return sections
    extents = Counter(
        chain.stop_of(i) - chain.offsets[i]
        for chain in chains
        for i in range(len(chain))
    )
    search = _Search(storage, sections, chains, extents, largest)
    found = search.table()
    known = _rising(stated.entries, storage.size)
    if found is None or _score(found.known, extents) < _score(known, extents):
        table = OffsetTable(stated.entries, stated.start, stated.nfree, known)
        return sections.replaced(table=table)
    # The first chunk is where the header says: then its entry is damaged.
    is_there = chains[0].start == sections.first
    first = sections.first if is_there else search.first(found)
    return sections.replaced(table=found, first=first)


def has_free_entries(storage: Storage, sections: Sections) -> bool:
    """Return whether free entries fill the file from the used ones to the chunks."""
    table, first = sections.table, sections.first
    return bool(table.nfree and first) and is_filled(
        storage, table.used_stop, first or 0, b"\xff"
    )


def _largest_extent(sections: Sections, chains: list[Chain]) -> int:
    """Return the largest extent that a chunk may have.

    The header may be wrong. A single chunk may be the last one, which is smaller.
    """
    sizes = [max(chain.sizes) for chain in chains]
    if sections.header is not None and len(chains) == len(chains[0]) == 1:
        sizes += sections.header.chunk_size, sections.header.last_chunk
    return max(sizes) + LARGEST_OVERHEAD


def _rising(entries: Sequence[int], size: int) -> Sequence[int]:
    """Return the entries of a damaged table, FREE in place of the impossible ones."""
    known, last = array("q"), BLOSCPACK_HEADER_LENGTH
    for entry in entries:
        known.append(entry if last < entry < size else FREE)
        last = max(last, known[-1])
    return known if len(known) - known.count(FREE) > 1 else ()


def _score(entries: Sequence[int], extents: Counter[int]) -> int:
    """Return the number of extents that the table shares with the chunks found."""
    shared = extents & Counter(after - before for before, after in pairwise(entries))
    return shared.total()


class _Search:
    """A search for a table in the bytes in front of the first chunk found."""

    def __init__(
        self,
        storage: Storage,
        sections: Sections,
        chains: list[Chain],
        extents: Counter[int],
        largest: int,
    ) -> None:
        self._chains = chains
        self._stop = min(chains[0].start, MAX_TABLE_SEARCH_NBYTES)
        self._region = storage.read_at(0, self._stop)
        self._sections = sections
        self._extents = extents
        self._largest = largest
        self._moved = 0

    def table(self) -> OffsetTable | None:
        """Return the table, None if there is none."""
        header, sections = self._sections.header, self._sections
        stated = sections.table.start if header is not None else 0
        start = self._first_entry(stated)
        if start is None:
            return None
        entries: list[int] = []
        value = self._value(start)
        announced = sections.first if stated else None
        stop = self._walk(start, entries)
        # Without a header the number of entries that were cut out is unknown.
        whole = is_plausible(entries, self._largest)
        if header is None and not (whole and self._ends_at(stop, value)):
            return None
        if stated and value != announced and not self._ends_at(stop, value):
            # The entries in front of the first plausible one are damaged.
            before = round((start - stated - self._shift(value)) / OFFSET_LENGTH)
            missing = 0 if header is None else header.nchunks - len(entries)
            entries[:0] = [FREE] * max(0, before, min(missing, before + MAX_CUT))
        else:
            stated = start
        used = len(entries)
        while entries and entries[-1] == FREE:
            entries.pop()
        self._moved = stop - stated - OFFSET_LENGTH * len(entries)
        nchunks = header.nchunks if header is not None else -1
        if entries and entries[0] == announced and nchunks > 0:
            entries += [FREE] * min(used - len(entries), nchunks - len(entries))
            _fill_hole(entries, nchunks)
        if entries and entries[-1] != FREE:
            self._moved = stop - stated - OFFSET_LENGTH * len(entries)
        nfree = max(0, (self._stop - stop) // OFFSET_LENGTH)
        if header is not None and sections.table.nfree is not None:
            nfree = header.max_app_chunks
        known = stored = array("q", entries)
        if not self._moved:
            stop = stated + OFFSET_LENGTH * len(known)
            if stop <= len(self._region):
                stored = array("q", decode(self._region[stated:stop]))
        return OffsetTable(stored, stated, nfree, known)

    def _ends_at(self, stop: int, first: int) -> bool:
        """Return whether hardly anything but free entries lies up to `first`."""
        free = self._region[stop:first]
        return stop <= first <= self._stop and 4 * free.count(b"\xff") >= 3 * len(free)

    def _shift(self, value: int) -> int:
        """Return the distance from an entry to the nearest chunk, 0 if it is far."""
        offsets = (offset for chain in self._chains for offset in chain.offsets)
        shift = min((offset - value for offset in offsets), key=abs, default=0)
        return shift if abs(shift) < 2 * BLOSCPACK_HEADER_LENGTH else 0

    def first(self, table: OffsetTable) -> int | None:
        """Return the offset of the first chunk, None if unknown."""
        first = table.known[0]
        if first == FREE:
            stated = self._sections.first
            return None if stated is None else stated + self._moved
        return first + self._moved

    def _value(self, at: int) -> int:
        """Return the entry at byte `at` of the file, FREE behind the region."""
        if at + OFFSET_LENGTH > len(self._region):
            return FREE
        found: tuple[int] = ENTRY.unpack_from(self._region, at)
        return found[0]

    def _is_pair(self, at: int, least: int) -> bool:
        """Return whether the entries at byte `at` and behind it are plausible."""
        value, following = self._value(at), self._value(at + OFFSET_LENGTH)
        if following == FREE:
            return least < value <= least + self._largest
        extent = following - value
        return least < value and BLOSC_HEADER_LENGTH <= extent <= self._largest

    def _first_entry(self, stated: int) -> int | None:
        """Return the offset of the first plausible entry, None if there is none.

        The extent of the chunk that it states must be that of a chunk found.
        """
        header = self._sections.header
        if stated and self._value(stated) == self._sections.first:
            return stated
        has_table = header is None or header.offsets
        begin = max(0, (stated or BLOSCPACK_HEADER_LENGTH) - 64)
        found = None
        for at in range(begin, min(self._stop, begin + MAX_START_SEARCH_NBYTES)):
            value, following = self._value(at), self._value(at + OFFSET_LENGTH)
            only = has_table and value == self._stop and following == FREE
            if only or (
                following - value in self._extents and value > BLOSCPACK_HEADER_LENGTH
            ):
                found = at
                break
        if found is None:
            return None
        # Chunks before it may be lost.
        while found - OFFSET_LENGTH >= (stated or BLOSCPACK_HEADER_LENGTH):
            before = self._value(found - OFFSET_LENGTH)
            extent = self._value(found) - before
            plausible = BLOSC_HEADER_LENGTH <= extent <= self._largest
            if not plausible or before <= BLOSCPACK_HEADER_LENGTH:
                break
            found -= OFFSET_LENGTH
        return found

    def _walk(self, at: int, entries: list[int]) -> int:
        """Append all entries from byte `at` on; return the end of the last one."""
        last, stop = 0, at
        while at + OFFSET_LENGTH <= len(self._region):
            value = self._value(at)
            extent = value - last
            if value == FREE == self._value(at + OFFSET_LENGTH):
                break
            rises = BLOSC_HEADER_LENGTH <= extent <= self._largest
            # Entries may be cut out between two that are plausible.
            if not last or rises or self._is_pair(at, last):
                entries.append(value)
                last, at = value, at + OFFSET_LENGTH
                stop = at
                continue
            # Look for the next two entries, nearest to the place where they should be.
            steps = sorted(range(1, 2 * OFFSET_LENGTH), key=lambda n: abs(n - 8))
            for step in steps:
                if self._is_pair(at + step, last):
                    entries += [FREE] * round(step / OFFSET_LENGTH)
                    at += step
                    entries.append(self._value(at))
                    last, at = entries[-1], at + OFFSET_LENGTH
                    stop = at
                    break
            else:
                entries.append(FREE)
                at += OFFSET_LENGTH
        return stop


def _fill_hole(entries: list[int], nchunks: int) -> None:
    """Add or remove damaged entries where bytes were deleted or inserted."""
    missing = nchunks - len(entries)
    if missing > 0:
        rises = [after - before for before, after in pairwise(entries)]
        i = max(range(len(rises)), key=rises.__getitem__, default=0)
        entries[i + 1 : i + 1] = [FREE] * missing
    while missing < 0 and FREE in entries:
        entries.remove(FREE)
        missing += 1
