"""What a file says of its chunks: table, count and sizes, and what fits them.

Pure; what the table says is compared with chunks that were found, where they are or by
the bytes that they take.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from itertools import pairwise

from ..checksums import CHECKSUMS
from ..constants import BLOSC_HEADER_LENGTH, MAX_BUFFERSIZE

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from .scan import Chain

    Extents = tuple[int, ...]

# Up to so many places in the table are compared one by one.
FEW = 16
LARGEST_DIGEST = max(checksum.size for checksum in CHECKSUMS)


class Evidence:
    """What a file says of its chunks: positions and sizes in bytes.

    ``table`` are the offsets; ``first`` is where the first chunk should be, ``nchunks``
    how many there should be, both None if nobody knows. ``base`` is where chunks may
    begin, ``size`` the end of the file. ``full`` and ``last`` are the plain sizes that
    chunks may have, None if any. ``count_confirmed`` says that two places tell
    ``nchunks``; ``ends_mid_chunk`` that the file ends within a chunk; ``disbelieved``
    that the header says more chunks than there can be; ``counted`` that ``nchunks`` and
    the sizes make the array that the metadata describe.
    """

    # So many chunks of a chain are looked for in the table.
    compared = 16

    def __init__(
        self,
        table: Sequence[int],
        first: int | None,
        nchunks: int | None,
        base: int,
        size: int,
        full: int | None = None,
        last: int | None = None,
        count_confirmed: bool = False,
    ) -> None:
        self.table = table
        self.first = first
        self.nchunks = nchunks
        self.base = base
        self.size = size
        self.full = full
        self.last = last
        self.count_confirmed = count_confirmed
        self.ends_mid_chunk = False
        self.counted = False
        self.disbelieved = False
        self._order: list[int] | None = None
        self._places: dict[Extents, dict[int, Any]] = {}
        self._sound: bool | None = None

    @property
    def largest(self) -> int:
        """The most bytes that a chunk and its digest can take."""
        nbytes = MAX_BUFFERSIZE
        if self.full is not None:
            nbytes = max(self.full, self.last or 0)
        return BLOSC_HEADER_LENGTH + nbytes + LARGEST_DIGEST

    @property
    def is_sound(self) -> bool:
        """Whether the entries of the table can all be true."""
        if self._sound is None:
            table = self.table
            self._sound = bool(table) and table[0] == self.first
            self._sound = self._sound and all(
                BLOSC_HEADER_LENGTH <= after - before <= self.largest
                for before, after in pairwise(table)
            )
        return self._sound

    def _near(self, offset: int) -> tuple[int, int]:
        """Return the number at `offset` or next to it, and the place in the order."""
        if self._order is None:
            self._order = sorted(range(len(self.table)), key=self.table.__getitem__)
        i = bisect_left(self._order, offset, key=self.table.__getitem__)
        return (self._order[i] if i < len(self._order) else -1), i

    def number_of(self, offset: int) -> int | None:
        """Return the number of the chunk that the table has at `offset`."""
        number, _ = self._near(offset)
        return number if number >= 0 and self.table[number] == offset else None

    def stop_around(self, offset: int, end: int) -> int | None:
        """Return where the chunk ends that the table has around `offset`.

        The table is believed if it names `end`, where the last good chunk ended, or if
        all of it can be true.
        """
        if not self.table or (self.number_of(end) is None and not self.is_sound):
            return None
        following, i = self._near(offset)
        if following < 0 or i == 0 or self._order is None:
            return None
        before = self._order[i - 1]
        start, stop = self.table[before], self.table[following]
        if before + 1 != following or start < end or stop > self.size:
            return None
        return stop if stop - start <= self.largest else None

    def fits(self, chain: Chain) -> bool:
        """Return whether the plain sizes of a chain are those of the file."""
        if self.full is None:
            return True
        first = chain.sizes[0]
        return first == self.full or (len(chain) == 1 and first == self.last)

    def matches(self, chain: Chain, stop: int, least: int = 0) -> bool:
        """Return whether the table has such extents, from `least` up to `stop`."""
        return any(True for _ in self.alike(chain, least, stop))

    def of_extent(self, extent: int) -> Sequence[int]:
        """Return the numbers of the chunks to which the table gives so many bytes."""
        return self._places_of((extent,))

    def _extents_at(self, number: int, count: int) -> Extents:
        """Return the extents of `count` chunks in the table, fewer at its end."""
        entries = self.table[number : number + count + 1]
        return tuple(after - before for before, after in pairwise(entries))

    def _places_of(self, extents: Extents) -> Sequence[int]:
        """Return the numbers from which on the table has such extents, in order.

        Chunks that are alike so far are told apart by the next extent, and once only:
        else a file with many chains and a table of equal extents would keep us busy.
        """
        table = self.table
        found: Sequence[int] = range(len(table))
        for i, extent in enumerate(extents):
            if len(found) <= FEW:
                count = len(extents)
                return [n for n in found if self._extents_at(n, count) == extents]
            places = self._places.get(extents[:i])
            if places is None:
                places = self._places[extents[:i]] = {}
                for n in found:
                    if n + i + 1 < len(table):
                        told = table[n + i + 1] - table[n + i]
                        places.setdefault(told, array("q")).append(n)
            found = places.get(extent, ())
        return found

    def is_distinct(self, chain: Chain) -> bool:
        """Return whether the table, told twice, has but one place for a chain."""
        if not self.count_confirmed:
            return False
        if chain.sizes[-1] == self.last != self.full:
            return True
        some = range(min(len(chain), self.compared))
        extents = (chain.stop_of(i) - chain.offsets[i] for i in some)
        return any(len(self.of_extent(extent)) == 1 for extent in extents)

    def alike(
        self, chain: Chain, least: int, stop: int, begin: int = 0
    ) -> Iterator[int]:
        """Yield the numbers from `least` up to `stop` where the table has such extents.

        Those of the chunks from place `begin` on. The last chunk's is not in the table:
        that is known by its plain size.
        """
        count = len(chain) - begin
        compared = range(begin, begin + min(count, self.compared))
        extents = tuple(chain.stop_of(i) - chain.offsets[i] for i in compared)
        at_end = len(self.table) - count
        numbers = self._places_of(extents)
        until = bisect_left(numbers, min(stop, at_end))
        for i in range(bisect_left(numbers, least), until):
            yield numbers[i]
        if least <= at_end < stop:
            told = extents[: count - 1]
            any_size = self.last is None and count > 1
            is_last = any_size or chain.sizes[-1] == self.last
            if is_last and told == self._extents_at(at_end, len(told)):
                yield at_end
