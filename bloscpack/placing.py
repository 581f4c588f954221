"""Which chunk is which: numbers for chunks that were found between damage.

Pure: chains of chunks and what the file says in, numbers out. The offset table tells
where the chunks were; where it can't, the end of the file does, and at last the bytes
that lie in between. What is no more than likely is marked so.
"""

from __future__ import annotations

from bisect import bisect_left

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .salvage import Chain

# Chunks of a chain whose sizes are compared with the table.
COMPARED = 16
# Entries of the table that are looked at for a chain that has been moved, either way.
NEARBY = 2000


class Places:
    """The number of each chain's first chunk, and how many chunks there have to be.

    ``certain`` is False where a number or the count is only likely.
    """

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.nchunks = 0
        self.certain = True


class Known:
    """What a file says of its chunks: positions and sizes in bytes.

    ``table`` are the offsets; ``first`` is where the first chunk should be, ``nchunks``
    how many there should be, both None if nobody knows. ``base`` is where chunks may
    begin, ``size`` the end of the file.
    """

    def __init__(
        self,
        table: Sequence[int],
        first: int | None,
        nchunks: int | None,
        base: int,
        size: int,
    ) -> None:
        self.table = table
        self.first = first
        self.nchunks = nchunks
        self.base = base
        self.size = size
        self._order: list[int] | None = None

    def number_of(self, offset: int) -> int | None:
        """Return the number of the chunk that the table has at `offset`."""
        if self._order is None:
            self._order = sorted(range(len(self.table)), key=self.table.__getitem__)
        i = bisect_left(self._order, offset, key=self.table.__getitem__)
        if i < len(self._order) and self.table[self._order[i]] == offset:
            return self._order[i]
        return None


def place(chains: list[Chain], known: Known) -> Places:
    """Return the places of all chains; those with too many chunks are taken out."""
    places = Places()
    exact = [_by_table(chain, known) for chain in chains]
    _drop_surplus(chains, exact, known)
    numbers = _increasing(chains, exact, known, places)
    if not chains:
        places.nchunks = known.nchunks or 0
        places.certain = known.nchunks is not None
        return places
    end = chains[-1].stop
    if numbers[-1] is None and known.nchunks is not None and end == known.size:
        from_end = known.nchunks - len(chains[-1])
        if from_end >= _least(chains, numbers, len(chains) - 1):
            numbers[-1] = from_end
    _fill_in(chains, numbers, known, places)
    count = places.numbers[-1] + len(chains[-1])
    if known.nchunks is not None and known.nchunks >= count:
        places.nchunks = known.nchunks
    else:
        # What lies behind the last one may have been one more.
        places.nchunks = count + bool(known.nchunks is None and end < known.size)
        places.certain = places.certain and end == known.size
    return places


def _by_table(chain: Chain, known: Known) -> int | None:
    """Return the number of a chain's first chunk, if the table names its place."""
    if chain.start == known.first:
        return 0
    for i, offset in enumerate(chain.offsets[:COMPARED]):
        number = known.number_of(offset)
        if number is not None and number >= i:
            return number - i
    return None


def _by_sizes(chain: Chain, known: Known, least: int) -> tuple[int | None, bool]:
    """Return the number of the chunk in the table that has the sizes of this chain's.

    If several have, that which has been moved least. Numbers start at `least`. Also
    returns whether it is the only one.
    """
    table = known.table
    compared = min(len(chain), COMPARED)
    sizes = [chain.stop_of(i) - chain.offsets[i] for i in range(compared)]
    middle = bisect_left(table, chain.start)
    highest = len(table) - len(chain)
    found = None
    near = range(max(least, middle - NEARBY), min(highest, middle + NEARBY) + 1)
    for number in sorted(near, key=lambda i: abs(table[i] - chain.start)):
        # The last chunk's size is not in the table.
        stop = min(number + compared, len(table) - 1)
        told = [table[i + 1] - table[i] for i in range(number, stop)]
        at_end = number == highest and chain.stop == known.size
        if (told or at_end) and told == sizes[: len(told)]:
            if found is not None:
                return found, False
            found = number
    return found, True


def _drop_surplus(chains: list[Chain], exact: list[int | None], known: Known) -> None:
    """Take out chains, if there are more chunks than there can be.

    They are parts of damaged chunks that look like chunks. Those at the place of the
    first chunk, in the table, or at the end of the file stay.
    """
    surplus = sum(map(len, chains)) - (known.nchunks or 0)
    if known.nchunks is None:
        return
    for i in sorted(range(len(chains)), key=lambda i: len(chains[i])):
        if surplus <= 0:
            break
        chain = chains[i]
        if exact[i] is None and chain.stop != known.size:
            surplus -= len(chain)
            exact[i] = -1
    kept = [i for i in range(len(chains)) if exact[i] != -1]
    chains[:] = [chains[i] for i in kept]
    exact[:] = [exact[i] for i in kept]


def _least(chains: list[Chain], numbers: Sequence[int | None], i: int) -> int:
    """Return the least number that chain `i` can have."""
    least = 0
    for chain, number in zip(chains[:i], numbers, strict=False):
        least = (least if number is None else number) + len(chain)
    return least


def _increasing(
    chains: list[Chain], exact: list[int | None], known: Known, places: Places
) -> list[int | None]:
    """Return numbers from the table, None where it has none or contradicts itself."""
    numbers: list[int | None] = []
    least = 0
    for i, (chain, number) in enumerate(zip(chains, exact, strict=True)):
        if number is None and known.table:
            number, only = _by_sizes(chain, known, least)
            places.certain = places.certain and only
        if number is None and i and chain.start == chains[i - 1].stop:
            before = numbers[-1]
            number = None if before is None else before + len(chains[i - 1])
        if number is not None and number < least:
            number = None
        numbers.append(number)
        least = (least if number is None else number) + len(chain)
    return numbers


def _fill_in(
    chains: list[Chain], numbers: list[int | None], known: Known, places: Places
) -> None:
    """Guess the numbers that are missing from the bytes between the chains."""
    nfound = sum(map(len, chains))
    mean = sum(c.stop - c.start for c in chains) / nfound
    end, next_number = known.base, 0
    for i, (chain, number) in enumerate(zip(chains, numbers, strict=True)):
        if number is None:
            gap = chain.start - end
            lost = max(1, round(gap / mean)) if i and gap else 0
            if i == 0:
                lost = _lost_in_front(chain, known, nfound, mean)
            later = [(j, n) for j, n in enumerate(numbers) if j > i and n is not None]
            highest = known.nchunks
            between = len(chain)
            if later:
                highest = later[0][1]
                between = sum(len(c) for c in chains[i : later[0][0]])
            if highest is not None:
                lost = max(0, min(lost, highest - between - next_number))
            number = next_number + lost
            places.certain = False
        places.numbers.append(number)
        end, next_number = chain.stop, number + len(chain)


def _lost_in_front(chain: Chain, known: Known, nfound: int, mean: float) -> int:
    """Return how many chunks seem to be missing in front of the first one found.

    An offset table with the usual free entries takes 88 bytes for each chunk.
    """
    entries = 88
    room = chain.start - known.base - entries * nfound
    if known.first is not None:
        room = chain.start - known.first
        entries = 0
    return max(0, round(room / (mean + entries)))
