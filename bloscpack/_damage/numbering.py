"""Number the intact chunks, by rules from the strongest to the weakest.

`number_chunks` cuts the chains where the offset table shows that chunks were cut out or
moved. Each rule is a pure function: it takes the evidence, the pieces and the numbers
that stronger rules gave, and yields claims: this piece begins with this number. A claim
is accepted if the numbers are free and, unless its rule ignores the order of the file,
lie between those of the pieces before and behind.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter

from ..abstract_objects import ImmutableObject
from .nested import Piece

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .evidence import Evidence
    from .scan import Chain

    # The index of a piece, and the number of its first chunk.
    Claim = tuple[int, int]
    Numbers = Sequence[int | None]
    KeyOf = Callable[[int, int], bytes]

# Bytes of an offset table per chunk: one entry and, by default, ten free entries.
TABLE_NBYTES_PER_CHUNK = 88


class Rule(ImmutableObject):
    """A rule, its description for people, and whether it ignores the file's order."""

    __slots__ = ("anywhere", "claims", "text")

    def __init__(
        self,
        claims: Callable[[Evidence, Sequence[Piece], Numbers], Iterator[Claim]],
        text: str,
        anywhere: bool = False,
    ) -> None:
        self.claims = claims
        self.text = text
        self.anywhere = anywhere


class Placed(ImmutableObject):
    """A piece, the number of its first chunk, and the rule that decided."""

    __slots__ = ("number", "piece", "rule")

    def __init__(self, piece: Piece, number: int, rule: Rule) -> None:
        self.piece = piece
        self.number = number
        self.rule = rule

    @property
    def stop(self) -> int:
        """The number behind the last chunk."""
        return self.number + len(self.piece)


class Numbering(ImmutableObject):
    """The chains of the file, in its order, with the number of each one's first chunk.

    ``placed`` has the rule that decided for each chain. ``nchunks`` is the number of
    chunks that the file should have. ``dropped`` says that there are intact chunks that
    are copies of others, or for which the file has no number.
    """

    __slots__ = ("chains", "dropped", "nchunks", "numbers", "placed")

    def __init__(self, placed: Sequence[Placed], nchunks: int, dropped: bool) -> None:
        self.placed = tuple(placed)
        self.chains: tuple[Chain, ...] = tuple(p.piece.chain for p in placed)
        self.numbers = tuple(p.number for p in placed)
        self.nchunks = nchunks
        self.dropped = dropped

    @property
    def nfound(self) -> int:
        """The number of intact chunks."""
        return sum(map(len, self.chains))

    @property
    def in_order(self) -> list[Placed]:
        """The placed pieces in the order of their numbers."""
        return sorted(self.placed, key=lambda placed: placed.number)

    @property
    def last_size(self) -> int | None:
        """The plain size of the file's last chunk, None if it was not found."""
        if not self.placed:
            return None
        last = self.in_order[-1]
        return last.piece.chain.sizes[-1] if last.stop == self.nchunks else None


def number_chunks(
    chains: Sequence[Piece],
    evidence: Evidence,
    key_of: KeyOf,
    *,
    doubtful: bool = False,
) -> Numbering:
    """Return the numbers of the chunks of all chains.

    ``key_of(start, stop)`` returns a key of the content of a chunk. `doubtful` says
    that intact chunks of the right sizes were dropped before.
    """
    nfound = sum(map(len, chains))
    if _is_in_order(chains, evidence):
        placed = [Placed(chains[0], 0, IN_ORDER)]
        return Numbering(placed, nfound, doubtful)
    chains = _without_leftovers(chains, evidence, equal=False)
    chains = _without_copies(chains, evidence, key_of)
    chains = _without_leftovers(chains, evidence, equal=True)
    pieces = [piece for chain in chains for piece in _cut(chain, evidence)]
    resolver = _Resolver(pieces, evidence)
    for rule in RULES:
        resolver.apply(rule)
    placed = resolver.finish()
    nplaced = sum(len(each.piece) for each in placed)
    return Numbering(placed, _count(placed, evidence), doubtful or nplaced < nfound)


def _is_in_order(chains: Sequence[Piece], evidence: Evidence) -> bool:
    """Return whether the file consists of all chunks that it should have, in order.

    If a single entry of the offset table contradicts the order, the entry is wrong. If
    several do, and the table has the same extents in another order, chunks have changed
    places.
    """
    if len(chains) != 1 or not evidence.is_complete(chains[0].chain):
        return False
    chain, entries = chains[0].chain, evidence.table.entries
    if sum(map(int.__ne__, entries, chain.offsets)) < 2:
        return True
    numbers = range(len(chain) - 1)
    stated = Counter(evidence.table.extent(i) for i in numbers)
    stated.subtract(chain.stop_of(i) - chain.offsets[i] for i in range(len(chain)))
    same = all(evidence.matches(chain, i, i) for i in numbers)
    return same or any(count > 0 for count in stated.values())


def _count(placed: Sequence[Placed], evidence: Evidence) -> int:
    """Return the number of chunks that the file should have."""
    count = max((p.stop for p in placed), default=0)
    if not placed:
        return evidence.nchunks or 0
    chain = placed[-1].piece.chain
    at_end = chain.stop == evidence.size
    if evidence.nchunks is None:
        # The bytes behind the last chunk may have been one more.
        return count + (not at_end)
    if at_end and evidence.is_marked(chain.sizes[-1]) and not evidence.count_confirmed:
        return count  # all chunks up to the last one are there
    return max(evidence.nchunks, count)


# Chunks that are not of the file, and pieces of chains


def _without_leftovers(
    pieces: Sequence[Piece], evidence: Evidence, *, equal: bool
) -> Sequence[Piece]:
    """Return the chains up to the last chunk of the file.

    Releases up to 0.16.0 left the end of a longer last chunk behind it. The last chunk
    lies where header and table say. It is marked by its plain size, or all others lie
    where the table says too. `equal` says that the chunk behind may have its extent:
    then it may be a chunk of the file that a copy of another chunk moved.
    """
    entries = evidence.table.entries
    if not evidence.count_confirmed or not entries:
        return pieces
    for i, piece in enumerate(pieces):
        offsets = piece.chain.offsets
        k = bisect_left(offsets, entries[-1])
        if k < len(piece) and offsets[k] == entries[-1]:
            chain, size = piece.chain, piece.chain.sizes[k]
            complete = offsets[: k + 1].tolist() == [*entries]
            complete = complete and evidence.last_chunk in (None, size)
            if not equal and k + 1 < len(piece):
                behind = chain.stop_of(k + 1) - chain.stop_of(k)
                complete = complete and behind != chain.stop_of(k) - offsets[k]
            if complete or evidence.is_marked(size):
                return [*pieces[:i], piece.part(0, k + 1)]
    return pieces


def _without_copies(
    pieces: Sequence[Piece], evidence: Evidence, key_of: KeyOf
) -> Sequence[Piece]:
    """Return the chains without copies of chunks.

    Chunks are copies only if there are more than the file had. Of equal chunks, those
    nearest to each other are copies.
    """
    surplus = sum(map(len, pieces)) - (evidence.nchunks or 0)
    if surplus <= 0 or not evidence.count_confirmed:
        return pieces
    seen: dict[bytes, int] = {}
    equal: list[tuple[int, int]] = []
    starts = [start for piece in pieces for start in piece.chain.offsets]
    stops = [p.chain.stop_of(k) for p in pieces for k in range(len(p))]
    for position, extent in enumerate(zip(starts, stops, strict=True)):
        key = key_of(*extent)
        if key in seen:
            equal.append((position - seen[key], extent[0]))
        seen[key] = position
    if len(equal) > surplus and evidence.last_chunk == evidence.chunk_size:
        return pieces  # any of them may be a copy
    copies = {start for _, start in sorted(equal)[:surplus]}
    kept: list[Piece] = []
    for piece in pieces:
        begin = 0
        for k, start in enumerate(piece.chain.offsets):
            if start in copies:
                kept += [piece.part(begin, k)] if begin < k else []
                begin = k + 1
        kept += [piece.part(begin, len(piece))] if begin < len(piece) else []
    return kept


def _cut(piece: Piece, evidence: Evidence) -> Iterator[Piece]:
    """Yield the pieces of a chain: cut it where its numbers can't go on.

    They go on if the table does not contradict it, but not behind the last chunk.
    """
    chain, ndamaged = piece.chain, piece.ndamaged
    begin, number = 0, evidence.place(chain, 0)
    for i in range(1, len(chain)):
        expected = following = None if number is None else number + i - begin
        if len(evidence.table) and (
            expected is None or not evidence.fits(chain, i, expected)
        ):
            best = evidence.place(chain, i)
            following = expected if best is None else best
        if following != expected or evidence.is_marked(chain.sizes[i - 1]):
            yield Piece(chain.part(begin, i), ndamaged, number)
            begin, number, ndamaged = i, following, None
    yield Piece(chain.part(begin, len(chain)) if begin else chain, ndamaged, number)


# The rules


def by_unique_extents(
    evidence: Evidence, pieces: Sequence[Piece], numbers: Numbers
) -> Iterator[Claim]:
    """Claim the only place where the table has an extent of a piece."""
    for i, piece in enumerate(pieces):
        number, chain = piece.number, piece.chain
        if number is not None and any(
            evidence.is_unique(chain, k, number + k) for k in range(len(chain))
        ):
            yield i, number


def by_marked_end(
    evidence: Evidence, pieces: Sequence[Piece], numbers: Numbers
) -> Iterator[Claim]:
    """Claim the last number for a marked chunk, if the count is confirmed.

    A single chunk found needs no confirmation.
    """
    alone = len(pieces) == sum(map(len, pieces)) == 1
    marked = bool(pieces) and evidence.is_marked(pieces[-1].chain.sizes[-1])
    if marked and (alone or evidence.count_confirmed):
        yield from by_end(evidence, pieces, numbers)


def by_start(
    evidence: Evidence, pieces: Sequence[Piece], numbers: Numbers
) -> Iterator[Claim]:
    """Claim the number 0 for the chunk where the first one should begin."""
    for i, piece in enumerate(pieces):
        if piece.chain.start == evidence.first:
            yield i, 0


def by_table(
    evidence: Evidence, pieces: Sequence[Piece], numbers: Numbers
) -> Iterator[Claim]:
    """Claim the place nearest to a piece where the table has its extents."""
    for i, piece in enumerate(pieces):
        if piece.number is not None:
            yield i, piece.number


def by_end(
    evidence: Evidence, pieces: Sequence[Piece], numbers: Numbers
) -> Iterator[Claim]:
    """Claim the last number for a chunk of the last one's size that ends the file."""
    if evidence.nchunks is not None and pieces:
        chain = pieces[-1].chain
        fits = evidence.last_chunk in (None, chain.sizes[-1])
        if fits and chain.stop == evidence.size:
            yield len(pieces) - 1, evidence.nchunks - len(chain)


def by_links(
    evidence: Evidence, pieces: Sequence[Piece], numbers: Numbers
) -> Iterator[Claim]:
    """Count the damaged chunks between two pieces, as their headers lead."""
    stop = None
    for i, piece in enumerate(pieces):
        number = numbers[i]
        if number is None and stop is not None and piece.ndamaged is not None:
            number = stop + piece.ndamaged
            yield i, number
        stop = None if number is None else number + len(piece)


def by_gaps(
    evidence: Evidence, pieces: Sequence[Piece], numbers: Numbers
) -> Iterator[Claim]:
    """Guess the number of lost chunks from the bytes between two pieces."""
    nfound = sum(map(len, pieces))
    mean = sum(p.chain.stop - p.chain.start for p in pieces) / max(nfound, 1)
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
        end, following = piece.chain.stop, number + len(piece)


RULES = (
    Rule(by_unique_extents, "an extent that the offset table has once", True),
    Rule(by_marked_end, "the end of the file"),
    Rule(by_start, "the offset of the first chunk"),
    Rule(by_table, "the offset table"),
    Rule(by_end, "the number of chunks in the header"),
    Rule(by_links, "the headers of damaged chunks"),
    Rule(by_gaps, "the number of bytes between chunks"),
)

# A file whose chunks are all there, in order, needs no other rule.
IN_ORDER = Rule(lambda evidence, pieces, numbers: iter(()), "the order of the file")


def _highest_numbers(
    pieces: Sequence[Piece], numbers: Numbers, highest: int
) -> list[int]:
    """Return the highest number of each piece that leaves room for those behind it."""
    found = []
    for piece, number in zip(reversed(pieces), reversed(numbers), strict=True):
        highest -= len(piece)
        found.append(highest)
        if number is not None:
            highest = number
    return found[::-1]


class _Resolver:
    """Accepts claims, and keeps the intervals of numbers that are taken."""

    def __init__(self, pieces: Sequence[Piece], evidence: Evidence) -> None:
        self._pieces = pieces
        self._placed: list[Placed | None] = [None] * len(pieces)
        self._taken: list[tuple[int, int]] = []
        self._evidence = evidence

    def apply(self, rule: Rule) -> None:
        """Accept the claims of a rule that fit; they are in the order of the file."""
        numbers = [None if p is None else p.number for p in self._placed]
        claims = dict(rule.claims(self._evidence, self._pieces, numbers))
        highest = _highest_numbers(self._pieces, numbers, 2**63)
        least = 0
        for i, piece in enumerate(self._pieces):
            number = claims.get(i)
            if self._placed[i] is None and number is not None:
                in_order = least <= number <= highest[i]
                # Where the order of the file is wrong, any free numbers will do.
                if rule.anywhere or in_order or least > highest[i]:
                    self._accept(i, number, rule)
            placed = self._placed[i]
            least = least + len(piece) if placed is None else placed.stop

    def _accept(self, i: int, number: int, rule: Rule) -> None:
        """Place a piece if its numbers are free."""
        stop = number + len(self._pieces[i])
        k = bisect_left(self._taken, (stop,))
        if number >= 0 and (k == 0 or self._taken[k - 1][1] <= number):
            self._placed[i] = Placed(self._pieces[i], number, rule)
            insort(self._taken, (number, stop))

    def finish(self) -> list[Placed]:
        """Place what is left at any free numbers; return all pieces placed.

        Chunks that an intact table lacks are dropped if the file has no room for them.
        """
        evidence = self._evidence
        known = evidence.count_confirmed and evidence.table.is_whole
        room = evidence.nchunks if known and len(evidence.table) else None
        starts = [0, *(stop for _, stop in self._taken)]
        stops = [*(start for start, _ in self._taken), 2**63]
        free = ((i, j) for i, j in zip(starts, stops, strict=True) if i < j)
        begin = stop = 0
        found: list[Placed] = []
        for piece, placed in zip(self._pieces, self._placed, strict=True):
            if placed is not None:
                found.append(placed)
            i = len(piece) if placed is not None else 0
            while i < len(piece):
                if begin == stop:
                    begin, stop = next(free)
                part = piece.part(i, i + min(stop - begin, len(piece) - i))
                i += len(part)
                foreign = room is not None and begin >= room and piece.number is None
                if not foreign:
                    found.append(Placed(part, begin, RULES[-1]))
                    begin += len(part)
        return found
