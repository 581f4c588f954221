"""Which chunk is which: numbers for chunks that were found between damage.

Pure: chains of chunks and what the file says in, numbers out. The offset table tells
where the chunks were, the headers of damaged chunks how many lie in between, the end of
the file where the last one is, and at last the bytes how many are likely. `certain` is
what two of these tell alike.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import islice

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .evidence import Evidence
    from .scan import Chain

# Of places in the table with the extents of a chain's chunks so many are looked at.
MOST_ALIKE = 100
# What `_seam` returns where the table speaks against a number, and for no other.
CONTRADICTED = -1


class Places:
    """The number of each chain's first chunk, and how many chunks there have to be.

    ``certain`` is False where a number or the count is only likely; ``unsure`` is which
    chain is the first with such a number.
    """

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.nchunks = 0
        self.certain = True
        self.unsure: int | None = None


class _Witness:
    """What tells a number.

    ``sure`` if it is beyond doubt, ``vague`` if others would do as well; ``placed`` if
    it is the table that has the place.
    """

    def __init__(self, sure: bool, vague: bool = False, placed: bool = False) -> None:
        self.sure = sure
        self.vague = vague
        self.placed = placed

    def confirm(self, other: _Witness) -> None:
        """Take it that both tell the same."""
        vague = self.vague or other.vague or (self.placed and other.placed)
        if self is not other and not vague:
            self.sure = other.sure = True


class _Number:
    """The number of a chain's first chunk, and what tells it."""

    def __init__(self, value: int, witness: _Witness) -> None:
        self.value = value
        self.witness = witness


if TYPE_CHECKING:
    Numbers = list[_Number | None]


def place(chains: list[Chain], evidence: Evidence) -> Places:
    """Return the places of all chains; those with too many chunks are taken out."""
    places = Places()
    exact = [_by_table(chain, evidence) for chain in chains]
    doubtful = _cut_off(chains, exact, evidence)
    _drop_surplus(chains, exact, evidence)
    _split_at_seam(chains, exact, evidence)
    if not chains:
        places.nchunks = evidence.nchunks or 0
        places.certain = evidence.nchunks is not None or evidence.first == evidence.size
        return places
    numbers = _increasing(chains, exact)
    _by_sizes(chains, numbers, evidence)
    _by_links(chains, numbers)
    _by_end(chains, numbers, evidence)
    _by_links(chains, numbers)
    _confirm_in_front(numbers)
    for i, number in enumerate(_fill_in(chains, numbers, evidence)):
        places.numbers.append(number.value)
        if places.certain and not number.witness.sure:
            places.certain, places.unsure = False, i
    _count(chains, places, evidence)
    if doubtful or _has_strays(chains, places, evidence):
        places.certain = False
    return places


def _by_table(chain: Chain, evidence: Evidence) -> _Number | None:
    """Return the number of a chain that lies where the table says."""
    table = evidence.table
    if chain.start == evidence.first:
        fits = len(table) < 2 or chain.stop_of(0) == table[1]
        return _Number(0, _Witness(fits or not evidence.matches(chain, len(table), 1)))
    for i, offset in enumerate(chain.offsets[: evidence.compared]):
        number = evidence.number_of(offset)
        if number is None or number < i:
            continue
        # One place may agree by chance, but hardly the next one too.
        stop = chain.stop_of(i)
        if number + 1 < len(table):
            # If chunks are of one extent, it may have been moved by some of these.
            extent = stop - offset
            sure = table[number + 1] == stop and len(evidence.of_extent(extent)) == 1
        else:
            sure = (
                stop == evidence.size
                and chain.sizes[i] == evidence.last != evidence.full
            )
        return _Number(number - i, _Witness(sure, placed=True))
    return None


def _cut_off(chains: list[Chain], exact: Numbers, evidence: Evidence) -> bool:
    """Take out what lies behind the last chunk, as header and table tell alike.

    Releases up to 0.16.0 left the end of a longer last chunk there. If the last chunk
    has another size than the header says, it may have been appended to. Return whether
    what is taken out may be the last chunk, and another one lie in its place.
    """
    count = 0
    if not evidence.count_confirmed:
        return False
    for i, (chain, number) in enumerate(zip(chains, exact, strict=True)):
        linked = chain.link is not None and chain.sure
        expected = count + (chain.link or 0)
        if number is None or not linked or number.value != expected:
            return False
        count = number.value + len(chain)
        length = len(evidence.table) - number.value
        size = chain.sizes[length - 1] if 0 < length <= len(chain) else None
        if size is not None and evidence.last in (None, size):
            behind = [chain.split(length), *chains[i + 1 :]]
            del chains[i + 1 :], exact[i + 1 :]
            return any(size in rest.sizes for rest in behind)
    return False


def _drop_surplus(chains: list[Chain], exact: Numbers, evidence: Evidence) -> None:
    """Take out chains, if there are more chunks than there can be.

    Those that may be parts of damaged chunks go, unless they are in the table or at the
    end of the file.
    """
    if evidence.nchunks is None or not evidence.table:
        return
    surplus = sum(map(len, chains)) - evidence.nchunks
    gone = set()
    for i in sorted(range(len(chains)), key=lambda i: len(chains[i])):
        chain = chains[i]
        if surplus <= 0:
            break
        if exact[i] is None and chain.weak and chain.stop != evidence.size:
            surplus -= len(chain)
            gone.add(i)
    kept = [i for i in range(len(chains)) if i not in gone]
    chains[:] = [chains[i] for i in kept]
    exact[:] = [exact[i] for i in kept]


def _split_at_seam(chains: list[Chain], exact: Numbers, evidence: Evidence) -> None:
    """Split a chain where chunks have been cut out, so that others took their place.

    There the table has other extents than those that follow, but has these further
    behind.
    """
    for i in range(len(chains) - 1, -1, -1):
        chain, number = chains[i], exact[i]
        seam = None if number is None else _seam(chain, number.value, evidence)
        if number is None or seam is None:
            continue
        if seam == CONTRADICTED:
            number.witness.sure = False
            continue
        if seam:
            chains.insert(i + 1, chain.split(seam))
            exact.insert(i, number)
        moved = i + (seam > 0)
        exact[moved] = None
        before = exact[moved - 1] if moved else None
        if before is not None and chains[moved - 1].stop == chains[moved].start:
            # Any of those that are as long as this one may have been cut out instead.
            extent = chains[moved - 1].stop - chains[moved - 1].offsets[-1]
            before.witness.sure = len(evidence.of_extent(extent)) == 1


def _seam(chain: Chain, first: int, evidence: Evidence) -> int | None:
    """Return from where on the chunks of a chain are not those from number `first` on.

    None if nothing says so, CONTRADICTED if the table does, but not from where on.
    """
    table, nchunks = evidence.table, evidence.nchunks
    at_end = chain.stop == evidence.size
    if nchunks is None or not (evidence.is_sound or at_end):
        return None
    is_last = at_end and evidence.last not in (None, evidence.full)
    is_last = is_last and chain.sizes[-1] == evidence.last
    if is_last and not table and first + len(chain) < nchunks:
        return len(chain) - 1 if evidence.counted or len(chain) == 1 else None
    if not evidence.is_sound:
        return None
    # Behind the last one that lies where it should, but that ends elsewhere.
    stop = min(len(chain), len(table) - 1 - first)
    seam = stop - 1
    while seam >= 0 and chain.offsets[seam] != table[first + seam]:
        seam -= 1
    if seam < 0 or chain.stop_of(seam) == table[first + seam + 1]:
        return None
    if seam and (chain.start, chain.stop_of(0)) != (table[first], table[first + 1]):
        return None  # one place may agree by chance
    alike = [*islice(evidence.alike(chain, first + seam + 1, len(table), seam), 2)]
    return seam if len(alike) == 1 or (alike and at_end) else CONTRADICTED


def _highest(chains: list[Chain], numbers: Numbers, limit: int | None) -> list[int]:
    """Return the highest number that each chain can have for those behind it."""
    highest = 2**63 if limit is None else limit
    found = []
    for chain, number in zip(reversed(chains), reversed(numbers), strict=True):
        highest -= len(chain)
        found.append(highest)
        if number is not None:
            highest = min(highest, number.value)
    return found[::-1]


def _increasing(chains: list[Chain], exact: Numbers) -> Numbers:
    """Return numbers from the table, None where it contradicts itself."""
    sure = [n if n is not None and n.witness.sure else None for n in exact]
    numbers: Numbers = []
    least = 0
    highest = _highest(chains, sure, None)
    for i, number in enumerate(exact):
        if number is not None and not least <= number.value <= highest[i]:
            number = None
        numbers.append(number)
        least = (least if number is None else number.value) + len(chains[i])
    return numbers


def _by_sizes(chains: list[Chain], numbers: Numbers, evidence: Evidence) -> None:
    """Find chains that have been moved by the extents of their chunks in the table.

    If several places have these, that from which it has been moved least.
    """
    table, least = evidence.table, 0
    highest = _highest(chains, numbers, len(table))
    for i, chain in enumerate(chains):
        number, start = numbers[i], chain.start
        if number is None and table:
            alike = [*islice(evidence.alike(chain, least, highest[i] + 1), MOST_ALIKE)]
            if len(alike) == MOST_ALIKE:
                # The extents tell nothing; most likely it has not been moved far.
                first = max(least, bisect_left(table, start) - MOST_ALIKE // 2)
                near = evidence.alike(chain, first, highest[i] + 1)
                alike = [*islice(near, MOST_ALIKE)] or alike
            if alike:
                sure = len(alike) == 1 and evidence.is_sound
                value = min(alike, key=lambda n: abs(table[n] - start))
                numbers[i] = number = _Number(value, _Witness(sure, not sure))
        least = (least if number is None else number.value) + len(chain)


def _by_links(chains: list[Chain], numbers: Numbers) -> None:
    """Go on counting where headers of damaged chunks lead from chain to chain."""
    for i in range(1, len(chains)):
        before, number, chain = numbers[i - 1], numbers[i], chains[i]
        if chain.link is None or before is None:
            continue
        value = before.value + len(chains[i - 1]) + chain.link
        if number is None:
            witness = before.witness if chain.sure else _Witness(False)
            numbers[i] = _Number(value, witness)
        elif number.value == value and chain.sure:
            number.witness.confirm(before.witness)
    for i in range(len(chains) - 1, 0, -1):
        number, chain = numbers[i], chains[i]
        if chain.link is None or number is None or numbers[i - 1] is not None:
            continue
        value = number.value - len(chains[i - 1]) - chain.link
        if value >= 0:
            witness = number.witness if chain.sure else _Witness(False)
            numbers[i - 1] = _Number(value, witness)


def _by_end(chains: list[Chain], numbers: Numbers, evidence: Evidence) -> None:
    """Count backward from the end of the file, if the last chunk ends there."""
    chain, number = chains[-1], numbers[-1]
    if evidence.nchunks is None or chain.stop != evidence.size:
        return
    value = evidence.nchunks - len(chain)
    is_last = (
        evidence.last not in (None, evidence.full) and chain.sizes[-1] == evidence.last
    )
    if number is not None and number.value == value:
        number.witness.confirm(_Witness(False))
    if number is not None and (number.witness.sure or not is_last):
        return
    least = 0
    for other, before in zip(chains[:-1], numbers, strict=False):
        least = (least if before is None else before.value) + len(other)
    if value >= least:
        numbers[-1] = _Number(value, _Witness(evidence.count_confirmed and is_last))


def _confirm_in_front(numbers: Numbers) -> None:
    """Believe the table in front of a chunk that has not been moved."""
    unmoved = False
    for number in reversed(numbers):
        if number is not None and number.witness.placed:
            unmoved = unmoved or number.witness.sure
            number.witness.sure = unmoved


def _fill_in(
    chains: list[Chain], numbers: Numbers, evidence: Evidence
) -> Iterator[_Number]:
    """Yield all numbers; those missing are guessed from the bytes in between."""
    nfound = sum(map(len, chains))
    mean = sum(c.stop - c.start for c in chains) / nfound
    end, next_number = evidence.base, 0
    highest = _highest(chains, numbers, evidence.nchunks)
    for i, chain in enumerate(chains):
        number = numbers[i]
        if number is None or number.value < next_number:
            gap = chain.start - end
            lost = max(1, round(gap / mean)) if i and gap else 0
            if i == 0:
                lost = _lost_in_front(chain, evidence, nfound, mean)
            lost = max(0, min(lost, highest[i] - next_number))
            number = _Number(next_number + lost, _Witness(False))
        yield number
        end, next_number = chain.stop, number.value + len(chain)


def _lost_in_front(chain: Chain, evidence: Evidence, nfound: int, mean: float) -> int:
    """Return how many chunks seem to be missing in front of the first one found.

    An offset table with the usual free entries takes 88 bytes for each chunk.
    """
    entries = 88
    room = chain.start - evidence.base - entries * nfound
    if evidence.first is not None:
        room = chain.start - evidence.first
        entries = 0
    return max(0, round(room / (mean + entries)))


def _count(chains: list[Chain], places: Places, evidence: Evidence) -> None:
    """Set how many chunks there have to be."""
    last = chains[-1]
    count = places.numbers[-1] + len(last)
    to_end = last.stop == evidence.size
    if evidence.disbelieved:
        places.certain = False
    if evidence.nchunks is None:
        # What lies behind the last one may have been one more.
        places.nchunks = count + (not to_end)
        places.certain = places.certain and to_end
        if evidence.last not in (None, last.sizes[-1]):
            places.certain = False  # it is not the last one
        return
    is_last = to_end and evidence.last not in (None, evidence.full)
    is_last = is_last and last.sizes[-1] == evidence.last
    proven = evidence.count_confirmed or evidence.counted
    if is_last and evidence.nchunks > count and not proven and places.certain:
        # The header says more, but the last chunk is there, and all in front of it.
        places.nchunks, places.certain = count, False
        return
    places.nchunks = max(evidence.nchunks, count)
    fits_last = evidence.last in (None, last.sizes[-1])
    in_one = to_end and fits_last and len(chains) == 1 and len(last) == evidence.nchunks
    if evidence.table and not evidence.count_confirmed and not in_one:
        places.certain = False  # an entry in front may be lost
    shorter = not evidence.table or evidence.size <= evidence.table[-1]
    if count < evidence.nchunks and shorter and not evidence.ends_mid_chunk:
        # Some may be missing in front of the last one found that are as long as it; of
        # the last of all, the table does not tell how long it is.
        alike = evidence.of_extent(last.stop - last.offsets[-1])
        if fits_last or any(number >= count for number in alike):
            places.certain = False
    if is_last and count != evidence.nchunks:
        places.certain = False
    if count == evidence.nchunks and evidence.last not in (None, last.sizes[-1]):
        places.certain = False  # somebody may have been about to append
    if evidence.nchunks < count or (
        evidence.nchunks > count and not evidence.count_confirmed
    ):
        places.certain = False


def _has_strays(chains: list[Chain], places: Places, evidence: Evidence) -> bool:
    """Return whether bytes lie where no chunk is lost, and nothing proves the rest.

    They are hardly ever nothing: a chunk may be in the place of another one. The proof
    is that no other chunks take as many bytes, as the table says, or that all chunks
    are there, and what follows has been moved by one distance.
    """
    end, next_number, unproven = evidence.first, 0, 0
    before: Chain | None = None
    for chain, number in zip(chains, places.numbers, strict=True):
        if end is not None and end < chain.start and number == next_number:
            around = [chain] if before is None else [before, chain]
            unproven += not all(evidence.is_distinct(each) for each in around)
        before, end, next_number = chain, chain.stop, number + len(chain)
    nothing_lost = evidence.count_confirmed and sum(map(len, chains)) == places.nchunks
    return unproven > nothing_lost
