"""Find an offset table that bytes were inserted into or deleted from.

Entries are known by their values: each is greater than the one before, by the extent of
a chunk. Where an entry is damaged, the search goes on at the next byte from which on
two entries are plausible again. The distance gives the number of damaged entries.
"""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING, NamedTuple

from .._format.offsets import FREE
from ..constants import BLOSC_HEADER_LENGTH, BLOSCPACK_HEADER_LENGTH, OFFSET_LENGTH
from .evidence import LARGEST_OVERHEAD, is_plausible
from .lenient_sections import OffsetTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._storage.base import Storage
    from .lenient_sections import Sections
    from .scan import Chain

# Maximum number of bytes before the chunks that are searched for an offset table: room
# for eight million entries.
MAX_TABLE_SEARCH_NBYTES = 2**26
# Maximum number of bytes searched for the first entries of a table.
MAX_START_SEARCH_NBYTES = 2**14
ENTRY = struct.Struct("<q")
# Distances from a damaged entry to the next one, the most likely distance first.
STEPS = sorted(range(1, 2 * OFFSET_LENGTH), key=lambda n: abs(n - OFFSET_LENGTH))


def relocate_table(
    storage: Storage, sections: Sections, chains: Sequence[Chain]
) -> Sections:
    """Return the sections, with the offset table that fits the chunks best."""
    table, header = sections.table, sections.header
    if not chains or (header is not None and header.format_version < 2):
        return sections
    sizes = [max(chain.sizes) for chain in chains]
    if header is not None and len(chains) == len(chains[0]) == 1:
        # A single chunk may be the last one, which is smaller.
        sizes += header.chunk_size, header.last_chunk
    largest = max(sizes) + LARGEST_OVERHEAD
    if sections.table_fits and is_plausible(table.entries, largest):
        return sections
    data = storage.read_at(0, min(chains[0].start, MAX_TABLE_SEARCH_NBYTES))
    region = _Region(data, largest)
    in_place = bool(table.start) and chains[0].start == sections.first
    start: int | None = table.start
    value = region.entry(table.start)
    near = value > 0 and abs(value - len(data)) < BLOSC_HEADER_LENGTH
    if not in_place and (not table.start or (value != sections.first and not near)):
        extents = {c.extent_of(i) for c in chains for i in range(len(c))}
        only = header is None or header.offsets
        begin = table.start or BLOSCPACK_HEADER_LENGTH
        start = region.first_entry(begin, extents, only)
    # An entry far behind the first chunk found is not the first entry.
    is_first = start is None or region.entry(start) < len(data) + BLOSC_HEADER_LENGTH
    if start is None or (header is None and not is_first):
        return sections._replace(
            table=table._replace(known=_rising(table.entries, storage.size))
        )
    if in_place and value != sections.first:
        known = _rising(table.entries, storage.size)
        return sections._replace(table=table._replace(known=known))
    entries, stop = region.walk(start)
    if table.start and not is_first:
        entries[:0] = [FREE] * round((start - table.start) / OFFSET_LENGTH)
        start = table.start
    nfree = max(0, (len(data) - stop) // OFFSET_LENGTH)
    moved = stop - start - OFFSET_LENGTH * len(entries)
    if in_place and start == table.start and not moved:
        # The entries are damaged, but none has moved.
        count = len(table.entries)
        known = array("q", (entries + [FREE] * count)[:count])
        if count - known.count(FREE) < 2:
            known = array("q")  # a single entry gives no extent
        return sections._replace(table=table._replace(known=known))
    first = sections.first if entries[0] == FREE else entries[0]
    if header is not None and first == sections.first:
        room = len(data) // OFFSET_LENGTH
        entries += [FREE] * (min(room, header.nchunks) - len(entries))
    if first is not None:
        is_there = chains[0].start == sections.first
        first = min(first + moved, chains[0].start) if not is_there else sections.first
    known = array("q", entries)
    return sections._replace(table=OffsetTable(known, start, nfree, known), first=first)


def _rising(entries: Sequence[int], size: int) -> Sequence[int]:
    """Return the entries of a damaged table, FREE in place of the impossible ones."""
    known, last = array("q"), BLOSCPACK_HEADER_LENGTH
    for entry in entries:
        known.append(entry if last < entry < size else FREE)
        last = max(last, known[-1])
    return known if len(known) - known.count(FREE) > 1 else ()


class _Region(NamedTuple):
    """The bytes in front of the first chunk found, and the largest possible extent."""

    data: bytes
    largest: int

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

    def first_entry(self, begin: int, extents: set[int], only: bool) -> int | None:
        """Return the offset of the first plausible entry, None if there is none.

        It must state the extent of a chunk that was found. With `only` it may be the
        only entry, and state where the first chunk was found.
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
        while entries[-1] == FREE:
            entries.pop()
        return entries, stop
