"""Number the intact chunks, by rules from the strongest to the weakest.

A packed file may contain packed files. If a chunk of the outer file is damaged, the
scan finds the chunks inside it. The opposite also happens: a chunk seems to lie inside
a damaged one, because that one's header states a wrong size or bytes of it are missing.
`drop_nested_chunks` decides by the plain sizes of the chunks, and by the damaged chunk,
which ends where an intact chunk begins.

`number_chunks` cuts the chains where the offset table shows that chunks were cut out or
moved. Each rule is a pure function: it takes the evidence, the pieces and the numbers
that stronger rules gave, and yields claims: this piece begins with this number. A claim
is accepted if the numbers are free and, unless its rule ignores the order of the file,
lie between the numbers of the pieces before and behind.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from .._engine.forks import cached_property
from .._format.array_metadata import Description
from .evidence import ChunkGeometry, Evidence
from .lenient_sections import Sections
from .scan import Chain, DamagedChunk

# Bytes of an offset table per chunk: one entry and, by default, ten free entries.
TABLE_NBYTES_PER_CHUNK = 88
# The decision about a file whose chunks are all there, in order: it needs no rule.
IN_ORDER = "the order of the file"


class Piece(NamedTuple):
    """Adjacent intact chunks whose numbers follow one another.

    ``ndamaged`` is the number of damaged chunks between the piece before and this one,
    None if their headers do not lead here or state wrong sizes. ``hint`` is the number
    of the first chunk by the offset table, None if the table has none. ``number`` is
    the number that ``rule`` decided on.
    """

    chain: Chain
    ndamaged: int | None = None
    hint: int | None = None
    number: int = -1
    rule: str = ""

    @property
    def nchunks(self) -> int:
        """The number of chunks."""
        return len(self.chain)

    @property
    def stop(self) -> int:
        """The number behind the last chunk."""
        return self.number + len(self.chain)


# The index of a piece, and the number of its first chunk.
Claims = Iterator[tuple[int, int]]

Pieces = Sequence[Piece]

Numbers = Sequence[int | None]

KeyOf = Callable[[int, int], bytes]

ListDamaged = Callable[[int, int], list[DamagedChunk]]


@dataclass(frozen=True, eq=False)
class Numbering:
    """The numbered pieces, in the order of the file.

    ``nchunks`` is the number of chunks that the file should have. ``dropped`` says that
    there are intact chunks that are copies of others or leftovers.
    """

    placed: Pieces
    nchunks: int
    dropped: bool

    @property
    def chains(self) -> list[Chain]:
        """The chains of all pieces."""
        return [piece.chain for piece in self.placed]

    @property
    def nfound(self) -> int:
        """The number of intact chunks."""
        return sum(piece.nchunks for piece in self.placed)

    @property
    def in_order(self) -> list[Piece]:
        """The pieces in the order of their numbers."""
        return sorted(self.placed, key=lambda piece: piece.number)

    @property
    def last_size(self) -> int | None:
        """The plain size of the file's last chunk, None if it was not found."""
        last = max(self.placed, key=lambda piece: piece.number, default=None)
        is_at_end = last is not None and last.stop == self.nchunks
        return last.chain.sizes[-1] if last is not None and is_at_end else None


def in_order(chains: Sequence[Chain], evidence: Evidence) -> Numbering | None:
    """Return the numbers of the chunks if one chain is all of the file, else None.

    If a single entry of the offset table contradicts the order, the entry is wrong. If
    several do, and the table has the same extents in another order, chunks were
    exchanged.
    """
    if len(chains) != 1 or not evidence.is_complete(chains[0]):
        return None
    chain, nchunks = chains[0], len(chains[0])
    if sum(map(int.__ne__, evidence.entries, chain.offsets)) > 1:
        stated = Counter(evidence.extent(i) for i in range(nchunks - 1))
        stated.subtract(chain.extent_of(i) for i in range(nchunks))
        same = all(evidence.matches(chain, i, i) for i in range(nchunks - 1))
        if not same and all(count <= 0 for count in stated.values()):
            return None
    return Numbering([Piece(chain, 0, None, 0, IN_ORDER)], nchunks, False)


def number_chunks(
    pieces: Pieces, evidence: Evidence, key_of: KeyOf, *, doubtful: bool = False
) -> Numbering:
    """Return the numbers of the chunks of all chains.

    ``key_of(start, stop)`` returns a key of the content of a chunk. `doubtful` says
    that intact chunks of the right sizes were dropped before.
    """
    nfound = sum(piece.nchunks for piece in pieces)
    copies = _copies(pieces, evidence, key_of)
    dropped = _leftovers(pieces, evidence, copies) or copies
    pieces = [part for piece in pieces for part in _without(piece, dropped)]
    pieces = [part for piece in pieces for part in _cut(piece, evidence)]
    placed = _Resolver(pieces, evidence).resolve()
    doubtful = doubtful or sum(piece.nchunks for piece in placed) < nfound
    return Numbering(placed, _count(placed, evidence), doubtful)


def _count(placed: Pieces, evidence: Evidence) -> int:
    """Return the number of chunks that the file should have."""
    count = max((piece.stop for piece in placed), default=0)
    if not placed:
        return evidence.nchunks or 0
    chain = placed[-1].chain
    at_end = chain.stop == evidence.size
    if evidence.nchunks is None:
        # The bytes behind the last chunk may have been one more.
        return count + (not at_end)
    if at_end and evidence.is_marked(chain.sizes[-1]) and not evidence.count_confirmed:
        return count  # all chunks up to the last one are there
    return max(evidence.nchunks, count)


# Chunks of other files inside a chunk


def drop_nested_chunks(
    chains: Sequence[Chain], evidence: Evidence, list_damaged: ListDamaged
) -> tuple[list[Piece], bool]:
    """Return the chains of the file itself, and whether it is doubtful.

    It is if a chain was dropped that has the right sizes. ``list_damaged(start, stop)``
    returns the damaged chunks from `start` on; see `ChunkScan`.
    """
    chains = [part for chain in chains for part in _split(chain, evidence)]
    rules = _NestingRules(chains, evidence)
    kept: list[Piece] = []
    doubtful = False
    end = position = evidence.base if evidence.first is None else evidence.first
    ndamaged: int | None = 0
    for chain in chains:
        overlaps = bool(kept) and chain.start < kept[-1].chain.stop
        if overlaps:
            # Without digests, an incomplete chunk includes the start of the next one.
            if not rules.replaces_overlapped(chain, kept[-1].chain.stop):
                continue
            end = position = kept.pop().chain.start
            ndamaged = 0
        outer_stop = None
        for damaged in list_damaged(position, chain.start):
            if damaged.stop is None or damaged.stop > chain.start:
                outer_stop = damaged.stop
                break
            position = damaged.stop
            right = evidence.chunk_size in (None, damaged.nbytes)
            ndamaged = ndamaged + 1 if right and ndamaged is not None else None
        if not overlaps and rules.is_nested(chain, outer_stop, end):
            doubtful = doubtful or (outer_stop is None and evidence.fits_sizes(chain))
            continue
        kept.append(Piece(chain, ndamaged if position == chain.start else None))
        end, position, ndamaged = chain.stop, chain.stop, 0
    return kept, doubtful


def _split(chain: Chain, evidence: Evidence) -> list[Chain]:
    """Split a chain into runs of chunks with the sizes of the file, and other runs.

    Nested chunks in a damaged chunk may touch an intact chunk before or behind it. A
    chunk of another size is one of the file if it follows one, and if the header or the
    offset table states it or it ends the file: an append may have changed its size.
    """
    whole = chain.start == evidence.first and chain.stop == evidence.size
    if evidence.chunk_size is None or whole:
        return [chain]
    fits = [False]
    for i, (start, size) in enumerate(zip(chain.offsets, chain.sizes, strict=True)):
        is_last, at_end = size == evidence.last_chunk, chain.stop_of(i) == evidence.size
        behind = fits[-1] and (is_last or at_end or start in evidence.numbers)
        fits.append(size == evidence.chunk_size or behind or (is_last and at_end))
    changes = [i for i, (a, b) in enumerate(pairwise(fits[1:]), 1) if a != b]
    return [chain.part(i, j) for i, j in pairwise([0, *changes, len(chain)])]


class _NestingRules:
    def __init__(self, chains: Sequence[Chain], evidence: Evidence) -> None:
        self._evidence = evidence
        self._chains = chains
        fitting = [chain for chain in chains if evidence.fits_sizes(chain)]
        self._last = fitting[-1] if fitting else None

    @cached_property
    def _starts(self) -> set[int]:
        """The offsets of all chunks; a sound file needs none."""
        return {start for chain in self._chains for start in chain.offsets}

    def replaces_overlapped(self, chain: Chain, stop: int) -> bool:
        """Return whether a chain is right, and the chunk that overlaps it is wrong.

        `stop` is the end of that chunk. The chain is right if it continues behind
        `stop`, or if no other chunk begins there.
        """
        right = chain.stop > stop or stop not in self._starts
        return right and self._has_right_size(chain)

    def is_nested(self, chain: Chain, outer_stop: int | None, end: int) -> bool:
        """Return whether a chain lies inside a damaged chunk behind `end`.

        `outer_stop` is the end of the damaged chunk whose header states an extent
        around the chain.
        """
        evidence = self._evidence
        fits, at_end = evidence.fits_sizes(chain), chain.stop == evidence.size
        number = evidence.numbers.get(chain.start)
        if chain.start == end or number is not None:
            # A damaged header may state a wrong size for the last chunk.
            is_last = number == len(evidence.entries) - 1 and at_end
            return not (fits or is_last or self._last is None)
        if at_end and evidence.digests:
            return False  # the digest of the damaged chunk would follow
        if not self._has_right_size(chain):
            return True
        if outer_stop is None or chain.stop >= outer_stop:
            return False
        return outer_stop in self._starts

    def _has_right_size(self, chain: Chain) -> bool:
        """Return whether a chain has the sizes of the file.

        A chunk of the last chunk's size is another one if the last one ends the file.
        """
        evidence, last = self._evidence, self._last
        another_last = (
            last is not None
            and evidence.is_marked(chain.sizes[0])
            and last.start > chain.start
            and last.stop == evidence.size
            and last.sizes[-1] == evidence.last_chunk
        )
        return evidence.fits_sizes(chain) and not another_last


# Chunks that are not of the file, and pieces of chains


def _leftovers(pieces: Pieces, evidence: Evidence, copies: set[int]) -> set[int]:
    """Return the offsets of the chunks behind the last chunk of the file.

    Releases up to 0.16.0 left the end of a longer last chunk behind it. The last chunk
    is at the offset that header and table state. It is marked by its plain size, or all
    other chunks are at their offsets too. But if one of `copies` is in the run of equal
    extents up to there, it may have moved the last chunk behind it.

    Example: the file has three chunks, the table has 100, 200 and 300, and chunks were
    found at 100, 200, 300 and 340. The chunk at 300 is the last one; the chunk at 340
    is left over.
    """
    entries = evidence.entries if evidence.count_confirmed else ()
    for chain, *_ in pieces if len(entries) else ():
        k = begin = bisect_left(chain.offsets, entries[-1])
        if k == len(chain) or chain.offsets[k] != entries[-1]:
            continue
        marked = evidence.is_marked(chain.sizes[k])
        if not marked and (
            chain.offsets[: k + 1].tolist() != [*entries]
            or evidence.last_chunk not in (None, chain.sizes[k])
        ):
            continue
        while begin and not marked and chain.extent_of(begin - 1) == chain.extent_of(k):
            begin -= 1
        if copies.isdisjoint(chain.offsets[begin : k + 1]):
            return {at for c, *_ in pieces for at in c.offsets if at > entries[-1]}
    return set()


def _copies(pieces: Pieces, evidence: Evidence, key_of: KeyOf) -> set[int]:
    """Return the offsets of the chunks that are copies of others.

    Chunks are copies only if there are more than the file had. Of equal chunks, those
    nearest to each other are copies.

    Example: the file had the chunks A, B and C, and A, B, B and C were found. There is
    one chunk too many, and the second B is a copy.
    """
    surplus = sum(piece.nchunks for piece in pieces) - (evidence.nchunks or 0)
    if surplus <= 0 or not evidence.count_confirmed:
        return set()
    seen: dict[bytes, int] = {}
    equal: list[tuple[int, int]] = []
    chunks = [(piece.chain, k) for piece in pieces for k in range(piece.nchunks)]
    for position, (chain, k) in enumerate(chunks):
        key = key_of(chain.offsets[k], chain.stop_of(k))
        if key in seen:
            equal.append((position - seen[key], chain.offsets[k]))
        seen[key] = position
    if len(equal) > surplus and evidence.last_chunk == evidence.chunk_size:
        return set()  # any of them may be a copy
    return {start for _, start in sorted(equal)[:surplus]}


def _without(piece: Piece, dropped: set[int]) -> Iterator[Piece]:
    """Yield the pieces of a chain between chunks that are dropped."""
    begin = 0
    for k, start in enumerate([*piece.chain.offsets, None]):
        if start is None or start in dropped:
            if begin < k:
                part = piece.chain.part(begin, k)
                yield Piece(part, None if begin else piece.ndamaged)
            begin = k + 1


def _cut(piece: Piece, evidence: Evidence) -> Iterator[Piece]:
    """Yield the pieces of a chain: cut it where its numbers can't go on.

    They go on if the table does not contradict it, but not behind the last chunk. The
    table lacks the extent of the last chunk, so another chunk may be at its position.
    """
    chain, ndamaged = piece.chain, piece.ndamaged
    begin, number = 0, evidence.best_number(chain, 0)
    for i in range(1, len(chain)):
        expected = following = None if number is None else number + i - begin
        if evidence.entries and (
            expected is None or not evidence.fits(chain, i, expected)
        ):
            best = evidence.best_number(chain, i)
            following = expected if best is None else best
        is_last = following == len(evidence.entries) - 1
        may_be_another = is_last and chain.extent_of(i) in evidence.numbers_of
        ends = may_be_another or evidence.is_marked(chain.sizes[i - 1])
        if following != expected or ends:
            yield Piece(chain.part(begin, i), ndamaged, number)
            begin, number, ndamaged = i, following, None
    yield Piece(chain.part(begin, len(chain)) if begin else chain, ndamaged, number)


# The rules


def by_unique_extents(evidence: Evidence, pieces: Pieces, numbers: Numbers) -> Claims:
    """Claim the only position where the table has an extent of a piece."""
    for i, piece in enumerate(pieces):
        number, chain = piece.hint, piece.chain
        if number is not None and any(
            evidence.is_unique(chain, k, number + k) for k in range(len(chain))
        ):
            yield i, number


def by_end(evidence: Evidence, pieces: Pieces, numbers: Numbers) -> Claims:
    """Claim the last number for a marked chunk that ends the file.

    Two statements must agree on the number of chunks, unless one chunk is left.
    """
    known = evidence.count_confirmed or len(pieces) == pieces[-1].nchunks == 1
    if known and evidence.is_marked(pieces[-1].chain.sizes[-1]):
        yield from by_count(evidence, pieces, numbers)


def by_count(evidence: Evidence, pieces: Pieces, numbers: Numbers) -> Claims:
    """Claim the last number for a chunk of the last one's size that ends the file."""
    chain = pieces[-1].chain
    fits = evidence.last_chunk in (None, chain.sizes[-1])
    if evidence.nchunks is not None and fits and chain.stop == evidence.size:
        yield len(pieces) - 1, evidence.nchunks - len(chain)


def by_table(evidence: Evidence, pieces: Pieces, numbers: Numbers) -> Claims:
    """Claim the position nearest to a piece where the table has its extents."""
    for i, piece in enumerate(pieces):
        if piece.hint is not None:
            yield i, piece.hint


def by_links(evidence: Evidence, pieces: Pieces, numbers: Numbers) -> Claims:
    """Count the damaged chunks in front of a piece, as their headers lead."""
    stop = None if evidence.first is None else 0
    for i, piece in enumerate(pieces):
        number = numbers[i]
        if number is None and stop is not None and piece.ndamaged is not None:
            number = stop + piece.ndamaged
            yield i, number
        stop = None if number is None else number + piece.nchunks


def by_gaps(evidence: Evidence, pieces: Pieces, numbers: Numbers) -> Claims:
    """Guess the number of lost chunks from the bytes between two pieces."""
    nfound = sum(piece.nchunks for piece in pieces)
    mean = sum(p.chain.stop - p.chain.start for p in pieces) / nfound
    highest = _highest_numbers(pieces, numbers, evidence.nchunks or 2**63)
    end, following = evidence.first, 0
    for i, piece in enumerate(pieces):
        number, start = numbers[i], piece.chain.start
        if number is None:
            if end is None:
                # An offset table may be in front of the first chunk too.
                gap = start - evidence.base - TABLE_NBYTES_PER_CHUNK * nfound
                nlost = round(gap / (mean + TABLE_NBYTES_PER_CHUNK))
            else:
                nlost = round((start - end) / mean)
                nlost = max(nlost, i > 0 and start > end)
            number = following + max(0, min(nlost, highest[i] - following))
            yield i, number
        end, following = piece.chain.stop, number + piece.nchunks


class NumberingRule(NamedTuple):
    """A rule, its description for people, and whether it ignores the file's order."""

    claims: Callable[[Evidence, Pieces, Numbers], Claims]
    text: str
    anywhere: bool = False


RULES = (
    NumberingRule(by_unique_extents, "an extent that the offset table has once", True),
    NumberingRule(by_end, "the end of the file"),
    NumberingRule(by_links, "the headers of the chunks in front"),
    NumberingRule(by_table, "the offset table"),
    NumberingRule(by_count, "the number of chunks in the header"),
    NumberingRule(by_gaps, "the number of bytes between chunks"),
)


def _highest_numbers(pieces: Pieces, numbers: Numbers, highest: int) -> list[int]:
    """Return the highest number of each piece that leaves room for those behind it."""
    descending = []
    for piece, number in zip(reversed(pieces), reversed(numbers), strict=True):
        highest -= piece.nchunks
        descending.append(highest)
        if number is not None:
            highest = number
    return descending[::-1]


class _Resolver:
    """Accepts claims, and keeps the intervals of numbers that are taken."""

    def __init__(self, pieces: Pieces, evidence: Evidence) -> None:
        self._pieces = [*pieces]
        self._numbers: list[int | None] = [None] * len(pieces)
        self._taken: list[tuple[int, int]] = []
        self._evidence = evidence

    def resolve(self) -> list[Piece]:
        """Apply all rules; return the pieces with their numbers."""
        for rule in RULES:
            if None in self._numbers:
                self._apply(rule)
        return [*self._finish()]

    def _apply(self, rule: NumberingRule) -> None:
        """Accept the claims of a rule that fit; they are in the order of the file."""
        numbers = [*self._numbers]
        claims = dict(rule.claims(self._evidence, self._pieces, numbers))
        nchunks = self._evidence.nchunks if self._evidence.count_confirmed else None
        highest = _highest_numbers(self._pieces, numbers, nchunks or 2**63)
        least = 0
        for i, piece in enumerate(self._pieces):
            number = claims.get(i)
            if numbers[i] is None and number is not None:
                in_order = least <= number <= highest[i]
                # Where the order of the file is wrong, any free numbers will do.
                if rule.anywhere or in_order or least > highest[i]:
                    self._accept(i, number, rule)
            number = self._numbers[i]
            least = piece.nchunks + (least if number is None else number)

    def _accept(self, i: int, number: int, rule: NumberingRule) -> None:
        """Place a piece if its numbers are free."""
        stop = number + self._pieces[i].nchunks
        k = bisect_left(self._taken, (stop,))
        if number >= 0 and (k == 0 or self._taken[k - 1][1] <= number):
            self._numbers[i] = number
            self._pieces[i] = self._pieces[i]._replace(number=number, rule=rule.text)
            insort(self._taken, (number, stop))

    def _finish(self) -> Iterator[Piece]:
        """Place what is left at any free numbers; yield all pieces."""
        starts = [0, *(stop for _, stop in self._taken)]
        stops = [*(start for start, _ in self._taken), 2**63]
        free = zip(starts, stops, strict=True)
        begin = stop = 0
        for piece, number in zip(self._pieces, self._numbers, strict=True):
            if number is not None:
                yield piece
                continue
            while stop - begin < piece.nchunks:
                begin, stop = next(free)
            yield piece._replace(number=begin, rule=RULES[-1].text)
            begin += piece.nchunks


# The geometry


def measure(
    numbering: Numbering,
    sections: Sections,
    evidence: Evidence,
    array: Description | None,
) -> ChunkGeometry:
    """Return the geometry of the numbered chunks.

    The chunks found count more than the sizes that the evidence has for them.
    """
    header, nchunks = sections.header, numbering.nchunks
    chunk_size, last_chunk = evidence.chunk_size, numbering.last_size
    inner = Counter(size for chain in numbering.chains for size in chain.sizes)
    if last_chunk is not None:
        inner[last_chunk] -= 1
    inner = +inner
    if chunk_size is None or header is None:
        chunk_size = next(iter(inner)) if len(inner) == 1 else None
    elif chunk_size not in inner:
        # The last chunk alone says nothing about the size of the others.
        chunk_size = header.chunk_size
    if last_chunk is None and header is not None and header.format_version >= 2:
        # A header with a wrong number of chunks is about another last chunk.
        counted = header.nchunks in (-1, nchunks) or not numbering.chains
        last_chunk = sections.stated_last_chunk if counted else None
    if last_chunk is None and chunk_size and array is not None:
        rest = array.stored_nbytes - (nchunks - 1) * chunk_size
        last_chunk = rest if 0 < rest <= chunk_size else None
    return ChunkGeometry(nchunks, chunk_size, last_chunk, array, inner)
