"""Find an offset table that bytes were inserted into or deleted from.

Entries are known by their values: each is greater than the one before, by the extent of
a chunk. Where an entry is damaged, the search goes on at the next byte from which on
two entries are plausible again. The distance gives the number of damaged entries.
"""

from __future__ import annotations

import struct
from array import array

from .._format.offsets import FREE
from ..abstract_objects import ImmutableObject
from ..constants import BLOSC_HEADER_LENGTH, BLOSCPACK_HEADER_LENGTH, OFFSET_LENGTH
from .evidence import LARGEST_OVERHEAD, is_plausible
from .lenient_sections import OffsetTable

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
# Distances from a damaged entry to the next one, the most likely distance first.
STEPS = sorted(range(1, 2 * OFFSET_LENGTH), key=lambda n: abs(n - OFFSET_LENGTH))


def relocate_table(
    storage: Storage, sections: Sections, chains: list[Chain]
) -> Sections:
    """Return the sections, with the offset table that fits the chunks best."""
    stated, header = sections.table, sections.header
    if not chains or (header is not None and header.format_version < 2):
        return sections
    sizes = [max(chain.sizes) for chain in chains]
    if header is not None and len(chains) == len(chains[0]) == 1:
        # A single chunk may be the last one, which is smaller.
        sizes += header.chunk_size, header.last_chunk
    largest = max(sizes) + LARGEST_OVERHEAD
    if sections.table_fits and is_plausible(stated.entries, largest):
        return sections
    region = _Region(
        storage.read_at(0, min(chains[0].start, MAX_TABLE_SEARCH_NBYTES)), largest
    )
    return _searched(region, sections, chains) or sections._replace(
        table=OffsetTable(
            stated.entries,
            stated.start,
            stated.nfree,
            _rising(stated.entries, storage.size),
        )
    )


def _rising(entries: Sequence[int], size: int) -> Sequence[int]:
    """Return the entries of a damaged table, FREE in place of the impossible ones."""
    known, last = array("q"), BLOSCPACK_HEADER_LENGTH
    for entry in entries:
        known.append(entry if last < entry < size else FREE)
        last = max(last, known[-1])
    return known if len(known) - known.count(FREE) > 1 else ()


def _searched(
    region: _Region, sections: Sections, chains: list[Chain]
) -> Sections | None:
    """Return the sections with the table found in a region, None if there is none."""
    header, announced = sections.header, sections.first
    stated = sections.table.start if header is not None else 0
    extents = {
        chain.stop_of(i) - chain.offsets[i]
        for chain in chains
        for i in range(len(chain))
    }
    if stated and region.entry(stated) == announced:
        start: int | None = stated
    else:
        only = header is None or header.offsets
        begin = stated or BLOSCPACK_HEADER_LENGTH
        start = region.first_entry(begin, extents, only)
    if start is None:
        return None
    value = region.entry(start)
    entries, stop = region.walk(start)
    ends = region.ends_at(stop, value)
    if header is None and not ends:
        return None
    if stated and value != announced and not ends:
        # The entries in front of the first plausible one are damaged.
        before = round((start - stated) / OFFSET_LENGTH)
        missing = 0 if header is None else header.nchunks - len(entries)
        entries[:0] = [FREE] * max(0, before, min(missing, before + MAX_CUT))
    else:
        stated = start
    while entries and entries[-1] == FREE:
        entries.pop()
    moved = stop - stated - OFFSET_LENGTH * len(entries)
    if header is not None and entries[0] == announced:
        room = len(region.data) // OFFSET_LENGTH
        entries += [FREE] * (min(room, header.nchunks) - len(entries))
    # If the first chunk is where the header says, its entry is damaged.
    is_there = chains[0].start == announced
    first = announced if is_there or entries[0] == FREE else entries[0]
    moved = 0 if is_there else moved
    nfree = max(0, (len(region.data) - stop) // OFFSET_LENGTH)
    known = array("q", entries)
    return sections._replace(
        table=OffsetTable(known, stated, nfree, known),
        first=None if first is None else first + moved,
    )


class _Region(ImmutableObject):
    """The bytes in front of the first chunk found, and the largest possible extent."""

    __slots__ = ("data", "largest")

    def __init__(self, data: bytes, largest: int) -> None:
        self.data = data
        self.largest = largest

    def entry(self, at: int) -> int:
        """Return the entry at byte `at`, FREE behind the region."""
        if at + OFFSET_LENGTH > len(self.data):
            return FREE
        found: tuple[int] = ENTRY.unpack_from(self.data, at)
        return found[0]

    def rises(self, extent: int) -> bool:
        """Return whether an extent between two entries is possible."""
        return BLOSC_HEADER_LENGTH <= extent <= self.largest

    def is_pair(self, at: int, least: int) -> bool:
        """Return whether the entries at byte `at` and behind it are plausible."""
        value = self.entry(at)
        return least < value and self.rises(self.entry(at + OFFSET_LENGTH) - value)

    def ends_at(self, stop: int, first: int) -> bool:
        """Return whether hardly anything but free entries lies up to `first`."""
        free = self.data[stop:first]
        inside = stop <= first <= len(self.data)
        return inside and 4 * free.count(b"\xff") >= 3 * len(free)

    def first_entry(self, begin: int, extents: set[int], only: bool) -> int | None:
        """Return the offset of the first plausible entry, None if there is none.

        The extent of the chunk that it states must be that of a chunk found; with
        `only` it may be the only entry, that of the first chunk found.
        """
        for at in range(begin, min(len(self.data), begin + MAX_START_SEARCH_NBYTES)):
            value, following = self.entry(at), self.entry(at + OFFSET_LENGTH)
            known = following - value in extents and value > BLOSCPACK_HEADER_LENGTH
            if known or (only and value == len(self.data) and following == FREE):
                return at
        return None

    def walk(self, at: int) -> tuple[list[int], int]:
        """Return all entries from byte `at` on, and the end of the last one."""
        entries: list[int] = []
        last, stop = 0, at
        while at + OFFSET_LENGTH <= len(self.data):
            value = self.entry(at)
            if value == FREE == self.entry(at + OFFSET_LENGTH):
                break
            if not last or self.rises(value - last):
                step = 0
            else:
                step = next((n for n in STEPS if self.is_pair(at + n, last)), -1)
            if step < 0:
                entries.append(FREE)
            else:
                entries += [FREE] * round(step / OFFSET_LENGTH)
                at += step
                last, stop = self.entry(at), at + OFFSET_LENGTH
                entries.append(last)
            at += OFFSET_LENGTH
        return entries, stop
