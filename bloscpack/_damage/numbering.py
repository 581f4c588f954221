"""Number the chunks that were found, in the order of the original file.

Four sources give numbers, from strong to weak: the offset table, the headers of damaged
chunks between two chains, the end of the file, and the number of bytes between chains.
A number is certain if an intact table gives it, or if two independent sources agree.
Nothing here reads the file.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import islice

from ..abstract_objects import ImmutableObject
from .evidence import NCOMPARED

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .evidence import Evidence
    from .scan import Chain

# Maximum number of table positions compared for one chain. If this many have the same
# extents, the extents identify nothing.
MAX_MATCHES = 100
# Bytes of an offset table per chunk: one entry and, by default, ten free entries.
TABLE_NBYTES_PER_CHUNK = 88
# Returned by `_find_cut` if the table contradicts a number without giving another one.
CONTRADICTED = -1


class Numbering(ImmutableObject):
    """The chains of the file, with the number of each chain's first chunk.

    ``nchunks`` is the number of chunks that the file should have. ``certain`` is False
    if a number or ``nchunks`` is a guess; ``first_guessed`` is then the index of the
    first chain with a guessed number, None if only ``nchunks`` is a guess.
    """

    __slots__ = ("certain", "chains", "first_guessed", "nchunks", "numbers")

    def __init__(
        self,
        chains: list[Chain],
        numbers: list[int],
        nchunks: int,
        certain: bool,
        first_guessed: int | None = None,
    ) -> None:
        self.chains = tuple(chains)
        self.numbers = tuple(numbers)
        self.nchunks = nchunks
        self.certain = certain
        self.first_guessed = first_guessed

    @property
    def nfound(self) -> int:
        """The number of intact chunks."""
        return sum(map(len, self.chains))

    @property
    def last_size(self) -> int | None:
        """The plain size of the file's last chunk, None if it was not found."""
        if not self.chains:
            return None
        chain = self.chains[-1]
        is_last = self.numbers[-1] + len(chain) == self.nchunks
        return chain.sizes[-1] if is_last else None


class _Proof:
    """The source of a number.

    ``certain`` says that the number is proven, ``ambiguous`` that other numbers fit as
    well, and ``by_offset`` that the table has the offset of the chunk.
    """

    def __init__(
        self, certain: bool, ambiguous: bool = False, by_offset: bool = False
    ) -> None:
        self.certain = certain
        self.ambiguous = ambiguous
        self.by_offset = by_offset

    def agree(self, other: _Proof) -> None:
        """Note that two sources give the same number: independent ones prove it."""
        dependent = self is other or (self.by_offset and other.by_offset)
        if not dependent and not self.ambiguous and not other.ambiguous:
            self.certain = other.certain = True


class _Number:
    """The number of a chain's first chunk, and its proof."""

    def __init__(self, value: int, proof: _Proof) -> None:
        self.value = value
        self.proof = proof


if TYPE_CHECKING:
    Numbers = list[_Number | None]


def number_chunks(
    chains: list[Chain], evidence: Evidence, ends_mid_chunk: bool = False
) -> Numbering:
    """Number the chunks of all chains, and drop chains that can't be of the file.

    `ends_mid_chunk` says that the file ends inside a chunk behind the last chain. The
    chains themselves may be split.
    """
    chains = [*chains]
    exact = [_by_table(chain, evidence) for chain in chains]
    doubtful = _drop_leftovers(chains, exact, evidence)
    _drop_surplus(chains, exact, evidence)
    _split_at_cut(chains, exact, evidence)
    if not chains:
        known = evidence.nchunks is not None or evidence.first == evidence.size
        certain = known and not _lacks_array_bytes(chains, evidence)
        return Numbering([], [], evidence.nchunks or 0, certain)
    numbers = _increasing(chains, exact)
    _by_extents(chains, numbers, evidence)
    _by_links(chains, numbers)
    _by_end(chains, numbers, evidence)
    _by_links(chains, numbers)
    _confirm_before(numbers)
    complete = [*_guess_missing(chains, numbers, evidence)]
    guesses = (i for i, number in enumerate(complete) if not number.proof.certain)
    first_guessed = next(guesses, None)
    values = [number.value for number in complete]
    certain = first_guessed is None
    nchunks, count_certain = _count(chains, values, evidence, certain, ends_mid_chunk)
    certain = (
        certain
        and count_certain
        and not doubtful
        and not _lacks_array_bytes(chains, evidence)
        and not _has_strays(chains, values, nchunks, evidence)
    )
    return Numbering(chains, values, nchunks, certain, first_guessed)


def _lacks_array_bytes(chains: list[Chain], evidence: Evidence) -> bool:
    """Return whether the array is larger than the chunks of a file without a count."""
    if evidence.nchunks is not None or evidence.array_nbytes is None:
        return False
    return sum(sum(chain.sizes) for chain in chains) < evidence.array_nbytes


def _by_table(chain: Chain, evidence: Evidence) -> _Number | None:
    """Return the number of a chain that begins at an offset in the table."""
    table = evidence.table
    if chain.start == evidence.first:
        fits = len(table) < 2 or chain.stop_of(0) == table[1]
        return _Number(0, _Proof(fits or not evidence.has_match(chain, len(table), 1)))
    for i, offset in enumerate(chain.offsets[:NCOMPARED]):
        number = evidence.number_at(offset)
        if number is None or number < i:
            continue
        # One offset may agree by chance, but two in a row hardly do.
        stop = chain.stop_of(i)
        if number + 1 < len(table):
            # Removing chunks of equal extent may have moved the chunk to this offset.
            extent = stop - offset
            unique = len(evidence.numbers_of_extent(extent)) == 1
            certain = table[number + 1] == stop and unique
        else:
            is_last = chain.sizes[i] == evidence.last_chunk != evidence.chunk_size
            certain = stop == evidence.size and is_last
        return _Number(number - i, _Proof(certain, by_offset=True))
    return None


# Chains that can't be of the file, or not as a whole


def _drop_leftovers(chains: list[Chain], exact: Numbers, evidence: Evidence) -> bool:
    """Drop the chunks behind the last one, if header and table agree which one it is.

    Releases up to 0.16.0 left the end of a longer last chunk there. If the last chunk
    has not the size in the header, the file may have been appended to, and the chunks
    stay. Return whether a dropped chunk may be the last one, at a wrong place.
    """
    count = 0
    if not evidence.count_confirmed:
        return False
    for i, (chain, number) in enumerate(zip(chains, exact, strict=True)):
        linked = chain.ndamaged_before is not None and chain.gap_confirmed
        expected = count + (chain.ndamaged_before or 0)
        if number is None or not linked or number.value != expected:
            return False
        count = number.value + len(chain)
        length = len(evidence.table) - number.value
        size = chain.sizes[length - 1] if 0 < length <= len(chain) else None
        if size is not None and evidence.last_chunk in (None, size):
            behind = [chain.split_off(length), *chains[i + 1 :]]
            del chains[i + 1 :], exact[i + 1 :]
            return any(size in rest.sizes for rest in behind)
    return False


def _drop_surplus(chains: list[Chain], exact: Numbers, evidence: Evidence) -> None:
    """Drop possibly nested chains while there are more chunks than the file has.

    Chains at an offset in the table or at the end of the file stay.
    """
    if evidence.nchunks is None or not evidence.table:
        return
    surplus = sum(map(len, chains)) - evidence.nchunks
    dropped = set()
    for i in sorted(range(len(chains)), key=lambda i: len(chains[i])):
        chain = chains[i]
        if surplus <= 0:
            break
        if exact[i] is None and chain.maybe_nested and chain.stop != evidence.size:
            surplus -= len(chain)
            dropped.add(i)
    kept = [i for i in range(len(chains)) if i not in dropped]
    chains[:] = [chains[i] for i in kept]
    exact[:] = [exact[i] for i in kept]


def _split_at_cut(chains: list[Chain], exact: Numbers, evidence: Evidence) -> None:
    """Split chains where chunks were cut out and later chunks took their place."""
    for i in range(len(chains) - 1, -1, -1):
        chain, number = chains[i], exact[i]
        cut = None if number is None else _find_cut(chain, number.value, evidence)
        if number is None or cut is None:
            continue
        if cut == CONTRADICTED:
            number.proof.certain = False
            continue
        if cut:
            chains.insert(i + 1, chain.split_off(cut))
            exact.insert(i, number)
        moved = i + (cut > 0)
        exact[moved] = None
        before = exact[moved - 1] if moved else None
        if before is not None and chains[moved - 1].stop == chains[moved].start:
            # If several chunks have this extent, any of them may be the missing chunk.
            extent = chains[moved - 1].stop - chains[moved - 1].offsets[-1]
            unique = len(evidence.numbers_of_extent(extent)) == 1
            before.proof.certain = unique


def _find_cut(chain: Chain, first: int, evidence: Evidence) -> int | None:
    """Return the index in a chain of the first chunk behind a cut.

    `first` is the number of the chain's first chunk by the table. Behind a cut the
    extents of the chunks are those of later entries. Return None if the table fits, and
    CONTRADICTED if it does not but shows no cut either.
    """
    table, nchunks = evidence.table, evidence.nchunks
    at_end = chain.stop == evidence.size
    if nchunks is None or not (evidence.table_is_plausible or at_end):
        return None
    is_last = at_end and evidence.is_marked_last(chain)
    if is_last and not table and first + len(chain) < nchunks:
        known = evidence.count_fits_array or len(chain) == 1
        return len(chain) - 1 if known else None
    if not evidence.table_is_plausible:
        return None
    # The cut is behind the last chunk that begins, but does not end, as in the table.
    stop = min(len(chain), len(table) - 1 - first)
    cut = stop - 1
    while cut >= 0 and chain.offsets[cut] != table[first + cut]:
        cut -= 1
    if cut < 0 or chain.stop_of(cut) == table[first + cut + 1]:
        return None
    if cut and (chain.start, chain.stop_of(0)) != (table[first], table[first + 1]):
        return None  # a single offset may agree by chance
    matches = evidence.matching_numbers(chain, first + cut + 1, len(table), cut)
    nmatches = len([*islice(matches, 2)])
    return cut if nmatches == 1 or (nmatches and at_end) else CONTRADICTED


# Numbers, from the strongest source to the weakest


def _highest(chains: list[Chain], numbers: Numbers, limit: int | None) -> list[int]:
    """Return the highest number of each chain that leaves room for those behind it."""
    highest = 2**63 if limit is None else limit
    found = []
    for chain, number in zip(reversed(chains), reversed(numbers), strict=True):
        highest -= len(chain)
        found.append(highest)
        if number is not None:
            highest = min(highest, number.value)
    return found[::-1]


def _increasing(chains: list[Chain], exact: Numbers) -> Numbers:
    """Return the numbers from the table, None where they would not increase."""
    certain = [n if n is not None and n.proof.certain else None for n in exact]
    numbers: Numbers = []
    least = 0
    highest = _highest(chains, certain, None)
    for i, number in enumerate(exact):
        if number is not None and not least <= number.value <= highest[i]:
            number = None
        numbers.append(number)
        least = (least if number is None else number.value) + len(chains[i])
    return numbers


def _by_extents(chains: list[Chain], numbers: Numbers, evidence: Evidence) -> None:
    """Number chains that were moved, by the extents of their chunks in the table.

    Of several matches, take the one whose offset is nearest to the chain.
    """
    table, least = evidence.table, 0
    highest = _highest(chains, numbers, len(table))
    for i, chain in enumerate(chains):
        number, start = numbers[i], chain.start
        if number is None and table:
            stop = highest[i] + 1
            matches = [
                *islice(evidence.matching_numbers(chain, least, stop), MAX_MATCHES)
            ]
            if len(matches) == MAX_MATCHES:
                # The extents identify nothing; compare only entries near the chain.
                first = max(least, bisect_left(table, start) - MAX_MATCHES // 2)
                near = evidence.matching_numbers(chain, first, stop)
                matches = [*islice(near, MAX_MATCHES)] or matches
            if matches:
                certain = len(matches) == 1 and evidence.table_is_plausible
                value = min(matches, key=lambda n: abs(table[n] - start))
                proof = _Proof(certain, ambiguous=not certain)
                numbers[i] = number = _Number(value, proof)
        least = (least if number is None else number.value) + len(chain)


def _by_links(chains: list[Chain], numbers: Numbers) -> None:
    """Number chains by counting the damaged chunks between them and a numbered one."""
    for i in range(1, len(chains)):
        before, number, chain = numbers[i - 1], numbers[i], chains[i]
        if chain.ndamaged_before is None or before is None:
            continue
        value = before.value + len(chains[i - 1]) + chain.ndamaged_before
        if number is None:
            proof = before.proof if chain.gap_confirmed else _Proof(False)
            numbers[i] = _Number(value, proof)
        elif number.value == value and chain.gap_confirmed:
            number.proof.agree(before.proof)
    for i in range(len(chains) - 1, 0, -1):
        number, chain = numbers[i], chains[i]
        if chain.ndamaged_before is None or number is None or numbers[i - 1]:
            continue
        value = number.value - len(chains[i - 1]) - chain.ndamaged_before
        if value >= 0:
            proof = number.proof if chain.gap_confirmed else _Proof(False)
            numbers[i - 1] = _Number(value, proof)


def _by_end(chains: list[Chain], numbers: Numbers, evidence: Evidence) -> None:
    """Number the last chain by counting back from the end of the file."""
    chain, number = chains[-1], numbers[-1]
    if evidence.nchunks is None or chain.stop != evidence.size:
        return
    value = evidence.nchunks - len(chain)
    is_last = evidence.is_marked_last(chain)
    if number is not None and number.value == value:
        number.proof.agree(_Proof(False))
    if number is not None and (number.proof.certain or not is_last):
        return
    least = 0
    for other, before in zip(chains[:-1], numbers, strict=False):
        least = (least if before is None else before.value) + len(other)
    if value >= least:
        numbers[-1] = _Number(value, _Proof(evidence.count_confirmed and is_last))


def _confirm_before(numbers: Numbers) -> None:
    """Make numbers from table offsets certain before a chain that did not move."""
    unmoved = False
    for number in reversed(numbers):
        if number is not None and number.proof.by_offset:
            unmoved = unmoved or number.proof.certain
            number.proof.certain = unmoved


def _guess_missing(
    chains: list[Chain], numbers: Numbers, evidence: Evidence
) -> Iterator[_Number]:
    """Yield all numbers; guess missing ones from the bytes between the chains."""
    nfound = sum(map(len, chains))
    mean = sum(c.stop - c.start for c in chains) / nfound
    end, next_number = evidence.base, 0
    highest = _highest(chains, numbers, evidence.nchunks)
    for i, chain in enumerate(chains):
        number = numbers[i]
        if number is None or number.value < next_number:
            gap = chain.start - end
            nlost = max(1, round(gap / mean)) if i and gap else 0
            if i == 0:
                nlost = _guess_lost_before(chain, evidence, nfound, mean)
            nlost = max(0, min(nlost, highest[i] - next_number))
            number = _Number(next_number + nlost, _Proof(False))
        yield number
        end, next_number = chain.stop, number.value + len(chain)


def _guess_lost_before(
    chain: Chain, evidence: Evidence, nfound: int, mean: float
) -> int:
    """Return the likely number of chunks lost before the first chunk found."""
    if evidence.first is not None:
        return max(0, round((chain.start - evidence.first) / mean))
    # An offset table may be in this space too.
    space = chain.start - evidence.base - TABLE_NBYTES_PER_CHUNK * nfound
    return max(0, round(space / (mean + TABLE_NBYTES_PER_CHUNK)))


# The number of chunks


def _count(
    chains: list[Chain],
    numbers: list[int],
    evidence: Evidence,
    certain: bool,
    ends_mid_chunk: bool,
) -> tuple[int, bool]:
    """Return the number of chunks that the file should have, and if it is certain.

    `certain` says that all `numbers` are.
    """
    last, nchunks = chains[-1], evidence.nchunks
    count = numbers[-1] + len(last)
    at_end = last.stop == evidence.size
    fits_last = evidence.last_chunk in (None, last.sizes[-1])
    if nchunks is None:
        # The bytes behind the last chunk may have been one more.
        sure = at_end and fits_last and not evidence.count_refused
        return count + (not at_end), sure
    is_last = at_end and evidence.is_marked_last(last)
    proven = evidence.count_confirmed or evidence.count_fits_array
    if is_last and nchunks > count and not proven and certain:
        # The header states more, but all chunks up to the last one are there.
        return count, False
    sure = not evidence.count_refused
    if evidence.table and not evidence.count_confirmed:
        complete = len(chains) == 1 and len(last) == nchunks and at_end and fits_last
        sure = sure and complete  # else an entry in front of the others may be lost
    may_end_here = not evidence.table or evidence.size <= evidence.table[-1]
    if count < nchunks and may_end_here and not ends_mid_chunk:
        # Chunks as long as the last one found may be missing before it instead. The
        # table does not state the extent of the last chunk of the file.
        alike = evidence.numbers_of_extent(last.stop - last.offsets[-1])
        if fits_last or any(number >= count for number in alike):
            sure = False
    if is_last and count != nchunks:
        sure = False
    if count == nchunks and not fits_last:
        sure = False  # an append may have been interrupted
    if nchunks < count or (nchunks > count and not evidence.count_confirmed):
        sure = False
    return max(nchunks, count), sure


def _has_strays(
    chains: list[Chain], numbers: list[int], nchunks: int, evidence: Evidence
) -> bool:
    """Return whether bytes between adjacent chunks put the numbers in doubt.

    Such bytes may be a lost chunk, with another chunk at a wrong number. The numbers
    are still proven if the table has no other chunk of the same extent, or if all
    chunks are there and moved by one distance.
    """
    end, next_number, unproven = evidence.first, 0, 0
    before: Chain | None = None
    for chain, number in zip(chains, numbers, strict=True):
        if end is not None and end < chain.start and number == next_number:
            around = [chain] if before is None else [before, chain]
            unproven += not all(evidence.is_unique(each) for each in around)
        before, end, next_number = chain, chain.stop, number + len(chain)
    nothing_lost = evidence.count_confirmed and sum(map(len, chains)) == nchunks
    return unproven > nothing_lost
