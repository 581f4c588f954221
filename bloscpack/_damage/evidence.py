"""Evidence: the statements of a file about its chunks, and chunks that match them.

`Evidence` holds the offset table, the number of chunks and their sizes. Its methods
compare the table with chunks that were found, by their offsets or by their extents.
Nothing here reads the file.
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

    from .scan import Chain

    Extents = tuple[int, ...]

# Number of chunks of a chain that are compared with the table. This many equal extents
# identify a chain as well as all of them would.
NCOMPARED = 16
# Maximum number of table entries compared one by one; more are looked up in an index.
MAX_COMPARED_DIRECTLY = 16
LARGEST_DIGEST = max(checksum.size for checksum in CHECKSUMS)


class Evidence:
    """The statements of a file about its chunks; offsets and sizes are in bytes.

    ``table`` has the offsets in use; ``first`` is the offset of the first chunk and
    ``nchunks`` the number of chunks, None if unknown. Chunks can't begin before
    ``base``; ``size`` is the end of the file. ``chunk_size`` and ``last_chunk`` are the
    plain sizes that chunks should have, None if they may have any. ``array_nbytes`` is
    the size of the array that the metadata describe, None if they describe none.

    ``count_confirmed`` says that header and table agree on ``nchunks``,
    ``count_fits_array`` that ``nchunks`` chunks hold exactly the array, and
    ``count_refused`` that the header states more chunks than the file could have lost.
    """

    def __init__(
        self,
        table: Sequence[int],
        first: int | None,
        nchunks: int | None,
        base: int,
        size: int,
        chunk_size: int | None = None,
        last_chunk: int | None = None,
        count_confirmed: bool = False,
        *,
        count_refused: bool = False,
        count_fits_array: bool = False,
        array_nbytes: int | None = None,
    ) -> None:
        self.table = table
        self.first = first
        self.nchunks = nchunks
        self.base = base
        self.size = size
        self.chunk_size = chunk_size
        self.last_chunk = last_chunk
        self.count_confirmed = count_confirmed
        self.count_refused = count_refused
        self.count_fits_array = count_fits_array
        self.array_nbytes = array_nbytes
        # Caches, filled on first use.
        self._order: list[int] | None = None
        self._numbers: dict[Extents, dict[int, array[int]]] = {}
        self._plausible: bool | None = None

    @property
    def largest_extent(self) -> int:
        """The maximum size in bytes of a chunk and its digest."""
        nbytes = MAX_BUFFERSIZE
        if self.chunk_size is not None:
            nbytes = max(self.chunk_size, self.last_chunk or 0)
        return BLOSC_HEADER_LENGTH + nbytes + LARGEST_DIGEST

    @property
    def table_is_plausible(self) -> bool:
        """Whether all entries of the table can be right at the same time."""
        if self._plausible is None:
            table = self.table
            self._plausible = bool(table) and table[0] == self.first
            self._plausible = self._plausible and all(
                BLOSC_HEADER_LENGTH <= after - before <= self.largest_extent
                for before, after in pairwise(table)
            )
        return self._plausible

    def is_marked_last(self, chain: Chain) -> bool:
        """Return whether a chain ends with the size that only the last chunk has."""
        return (
            self.last_chunk not in (None, self.chunk_size)
            and chain.sizes[-1] == self.last_chunk
        )

    def _at_or_after(self, offset: int) -> tuple[int, int]:
        """Return number and rank of the first entry at or behind `offset`."""
        if self._order is None:
            self._order = sorted(range(len(self.table)), key=self.table.__getitem__)
        i = bisect_left(self._order, offset, key=self.table.__getitem__)
        return (self._order[i] if i < len(self._order) else -1), i

    def number_at(self, offset: int) -> int | None:
        """Return the number of the chunk that the table puts at `offset`."""
        number, _ = self._at_or_after(offset)
        return number if number >= 0 and self.table[number] == offset else None

    def stop_of_chunk_around(self, offset: int, end: int) -> int | None:
        """Return the end of the chunk that the table puts around `offset`.

        The table counts only if it has an entry at `end`, where the last intact chunk
        ended, or is plausible as a whole.
        """
        if not self.table or (
            self.number_at(end) is None and not self.table_is_plausible
        ):
            return None
        following, i = self._at_or_after(offset)
        if following < 0 or i == 0 or self._order is None:
            return None
        before = self._order[i - 1]
        start, stop = self.table[before], self.table[following]
        if before + 1 != following or start < end or stop > self.size:
            return None
        return stop if stop - start <= self.largest_extent else None

    def fits_sizes(self, chain: Chain) -> bool:
        """Return whether the first chunk of a chain has a plain size of the file."""
        if self.chunk_size is None:
            return True
        first = chain.sizes[0]
        return first == self.chunk_size or (
            len(chain) == 1 and first == self.last_chunk
        )

    # Extents

    def has_match(self, chain: Chain, stop: int, least: int = 0) -> bool:
        """Return whether a chain matches the table at a number in [least, stop)."""
        return any(True for _ in self.matching_numbers(chain, least, stop))

    def numbers_of_extent(self, extent: int) -> Sequence[int]:
        """Return the numbers of the chunks to which the table gives this extent."""
        return self._numbers_of_extents((extent,))

    def _extents_at(self, number: int, count: int) -> Extents:
        """Return the extents of `count` chunks in the table, fewer at its end."""
        entries = self.table[number : number + count + 1]
        return tuple(after - before for before, after in pairwise(entries))

    def _numbers_of_extents(self, extents: Extents) -> Sequence[int]:
        """Return the numbers where the table has these extents in a row, ascending.

        An index groups the entries with equal first extents by the next extent. Each
        group is indexed once, which keeps a file of many chains and equal extents from
        taking quadratic time.
        """
        table = self.table
        found: Sequence[int] = range(len(table))
        for i, extent in enumerate(extents):
            if len(found) <= MAX_COMPARED_DIRECTLY:
                count = len(extents)
                return [n for n in found if self._extents_at(n, count) == extents]
            index = self._numbers.get(extents[:i])
            if index is None:
                index = self._numbers[extents[:i]] = {}
                for n in found:
                    if n + i + 1 < len(table):
                        following = table[n + i + 1] - table[n + i]
                        index.setdefault(following, array("q")).append(n)
            found = index.get(extent, ())
        return found

    def is_unique(self, chain: Chain) -> bool:
        """Return whether a confirmed table has exactly one number for a chain."""
        if not self.count_confirmed:
            return False
        if self.is_marked_last(chain):
            return True
        some = range(min(len(chain), NCOMPARED))
        extents = (chain.stop_of(i) - chain.offsets[i] for i in some)
        return any(len(self.numbers_of_extent(extent)) == 1 for extent in extents)

    def matching_numbers(
        self, chain: Chain, least: int, stop: int, begin: int = 0
    ) -> Iterator[int]:
        """Yield the numbers in [least, stop) where the table has a chain's extents.

        Chunks before index `begin` of the chain are ignored. The table does not state
        the extent of the last chunk, which must have the last chunk's plain size.
        """
        count = len(chain) - begin
        compared = range(begin, begin + min(count, NCOMPARED))
        extents = tuple(chain.stop_of(i) - chain.offsets[i] for i in compared)
        at_end = len(self.table) - count
        numbers = self._numbers_of_extents(extents)
        until = bisect_left(numbers, min(stop, at_end))
        for i in range(bisect_left(numbers, least), until):
            yield numbers[i]
        if least <= at_end < stop:
            known = extents[: count - 1]
            any_size = self.last_chunk is None and count > 1
            is_last = any_size or chain.sizes[-1] == self.last_chunk
            if is_last and known == self._extents_at(at_end, len(known)):
                yield at_end
