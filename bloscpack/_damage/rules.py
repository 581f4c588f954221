"""Rules that number the intact chunks, from the strongest to the weakest.

`pieces_of` cuts the chains where the offset table shows that chunks were cut out or
moved. Each rule is a pure function: it takes the evidence, the pieces and the numbers
that stronger rules gave, and yields claims. `numbering` accepts them.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

from ..abstract_objects import ImmutableObject
from .evidence import NCOMPARED

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .evidence import Evidence
    from .nested import Link
    from .scan import Chain

    # The index of a piece, the number of its first chunk, and the claim's strength.
    Claim = tuple[int, int, int]
    Numbers = Sequence[int | None]

# Bytes of an offset table per chunk: one entry and, by default, ten free entries.
TABLE_NBYTES_PER_CHUNK = 88


class Piece(ImmutableObject):
    """Adjacent chunks whose numbers follow one another.

    ``number`` is the number of the first one that fits the offset table best, None if
    none does. ``unique`` counts the chunks that fit there only, and ``unmoved`` says
    that one begins where the table says. ``link`` is the link to the chain before,
    None if the piece begins inside a chain.
    """

    __slots__ = ("chain", "link", "number", "unique", "unmoved")

    def __init__(
        self,
        chain: Chain,
        link: Link | None = None,
        number: int | None = None,
        unique: int = 0,
        unmoved: bool = False,
    ) -> None:
        self.chain = chain
        self.link = link
        self.number = number
        self.unique = unique
        self.unmoved = unmoved

    def part(self, i: int, j: int) -> Piece:
        """Return the piece of the chunks in [i, j)."""
        number = None if self.number is None else self.number + i
        link = None if i else self.link
        return Piece(self.chain.part(i, j), link, number, self.unique, self.unmoved)

    def __len__(self) -> int:
        return len(self.chain)


def pieces_of(links: Sequence[Link], evidence: Evidence) -> list[Piece]:
    """Return the pieces of all chains, in the order of the file."""
    return [piece for link in links for piece in _cut(link, evidence)]


def _cut(link: Link, evidence: Evidence) -> Iterator[Piece]:
    """Yield the pieces of a chain: cut it where its numbers can't go on."""
    chain, begin = link.chain, 0
    number = _best_place(chain, 0, evidence)
    if number is not None and not _is_marked_inside(chain, evidence):
        entries = evidence.table.entries[number : number + len(chain)]
        ends = evidence.matches(chain, len(chain) - 1, number + len(chain) - 1)
        if ends and [*entries] == [*chain.offsets]:
            yield _piece(link, 0, len(chain), number, evidence)
            return
    for i in range(1, len(chain)):
        expected = None if number is None else number + i - begin
        following = _next_place(chain, i, expected, evidence)
        if following != expected or _is_cut_by_size(chain, i, evidence):
            yield _piece(link, begin, i, number, evidence)
            begin, number = i, following
    yield _piece(link, begin, len(chain), number, evidence)


def _is_marked_inside(chain: Chain, evidence: Evidence) -> bool:
    """Return whether a chunk before the end of a chain has the last chunk's size."""
    last = evidence.last_chunk
    marked = last is not None and evidence.is_marked(last)
    return marked and last in chain.sizes[:-1]


def _is_cut_by_size(chain: Chain, i: int, evidence: Evidence) -> bool:
    """Return whether the plain sizes show that chunks before chunk `i` are cut out."""
    if evidence.is_marked(chain.sizes[i - 1]):
        return True
    return (
        i == len(chain) - 1
        and evidence.is_marked(chain.sizes[i])
        and evidence.fits_array
        and chain.start == evidence.first
        and len(chain) < (evidence.nchunks or 0)
    )


def _piece(link: Link, i: int, j: int, number: int | None, evidence: Evidence) -> Piece:
    chain = link.chain if j - i == len(link.chain) else link.chain.part(i, j)
    before = None if i else link
    if number is None:
        return Piece(chain, before)
    # One offset may agree by chance, but hardly if the end agrees too.
    unmoved = any(
        evidence.is_at_offset(chain, k, number + k)
        and evidence.matches(chain, k, number + k)
        for k in range(len(chain))
    )
    unique = sum(evidence.is_unique(chain, k, number + k) for k in range(len(chain)))
    return Piece(chain, before, number, unique, unmoved)


def _best_place(chain: Chain, i: int, evidence: Evidence) -> int | None:
    """Return the number of chunk `i` that fits the table best, None if none does."""
    if not len(evidence.table):
        return None
    here = evidence.table.number_at(chain.offsets[i])
    if here is not None and evidence.agreement(chain, i, here) == 3 * min(
        NCOMPARED, len(chain) - i
    ):
        return here  # no other place can fit better
    places = evidence.places(chain, i)
    fitting = [n for n in places if evidence.fits(chain, i, n)]
    if not fitting:
        fitting = [n for n in places if evidence.is_at_offset(chain, i, n)]
    ranked = [
        (evidence.agreement(chain, i, n), -evidence.distance(chain, i, n), n)
        for n in fitting or places
    ]
    agreement, _, best = max(ranked, default=(0, 0, None))
    return best if agreement > 1 else None


def _next_place(
    chain: Chain, i: int, going_on: int | None, evidence: Evidence
) -> int | None:
    """Return the number of chunk `i`, behind a chunk that `going_on` follows."""
    if going_on is not None and evidence.fits(chain, i, going_on):
        return going_on
    best = _best_place(chain, i, evidence) if len(evidence.table) else None
    if going_on is None or best is None:
        return best if best is not None else going_on
    gain = evidence.agreement(chain, i, best) - evidence.agreement(chain, i, going_on)
    return best if gain >= (not evidence.matches(chain, i, best)) else going_on


# The rules


def by_unique_extents(
    evidence: Evidence, pieces: Sequence[Piece], numbers: Numbers
) -> Iterator[Claim]:
    """Claim the only place where the table has the extents of a piece."""
    any_size = evidence.last_chunk in (None, evidence.chunk_size)
    for i, piece in enumerate(pieces):
        # The last chunk, whose extent is not known, may have the same one.
        maybe_last = any_size and piece.chain.stop == evidence.size
        if piece.number is not None and piece.unique > maybe_last:
            yield i, piece.number, 2 * piece.unique + piece.unmoved


def by_marked_end(
    evidence: Evidence, pieces: Sequence[Piece], numbers: Numbers
) -> Iterator[Claim]:
    """Claim the last number for a last chunk at the end, if the count is confirmed."""
    marked = evidence.is_marked(pieces[-1].chain.sizes[-1])
    moved = not _is_unbroken(evidence, pieces)
    alone = marked and len(pieces) == len(pieces[-1]) == 1
    if alone or (evidence.count_confirmed and (marked or moved)):
        yield from by_end(evidence, pieces, numbers)


def by_confirmed_links(
    evidence: Evidence, pieces: Sequence[Piece], numbers: Numbers
) -> Iterator[Claim]:
    """Count the damaged chunks, whose sizes are right, between two pieces."""
    return _by_links(pieces, numbers, True)


def by_start(
    evidence: Evidence, pieces: Sequence[Piece], numbers: Numbers
) -> Iterator[Claim]:
    """Claim the number 0 for the chunk where the first one should begin."""
    for i, piece in enumerate(pieces):
        if piece.chain.start == evidence.first:
            yield i, 0, 1


def by_offsets(
    evidence: Evidence, pieces: Sequence[Piece], numbers: Numbers
) -> Iterator[Claim]:
    """Claim the number at which the table has the offset of a chunk."""
    for i, piece in enumerate(pieces):
        if piece.number is not None and piece.unmoved:
            yield i, piece.number, 1


def by_equal_extents(
    evidence: Evidence, pieces: Sequence[Piece], numbers: Numbers
) -> Iterator[Claim]:
    """Claim all places where the table has the extents of a piece, nearest first."""
    for i, piece in enumerate(pieces if len(evidence.table) else ()):
        if numbers[i] is not None:
            continue
        count = min(NCOMPARED, len(piece))
        places = [
            n
            for n in evidence.places(piece.chain, 0)
            if all(evidence.fits(piece.chain, k, n + k) for k in range(count))
        ]
        for n in sorted(places, key=partial(evidence.distance, piece.chain, 0)):
            yield i, n, 1
        if piece.number is not None:
            yield i, piece.number, 1


def by_end(
    evidence: Evidence, pieces: Sequence[Piece], numbers: Numbers
) -> Iterator[Claim]:
    """Claim the last number for a last chunk at the end of the file."""
    if evidence.nchunks is not None and _ends_as_last(evidence, pieces):
        yield len(pieces) - 1, evidence.nchunks - len(pieces[-1]), 1


def by_links(
    evidence: Evidence, pieces: Sequence[Piece], numbers: Numbers
) -> Iterator[Claim]:
    """Count the damaged chunks between two pieces, as their headers lead."""
    return _by_links(pieces, numbers, False)


def by_size(
    evidence: Evidence, pieces: Sequence[Piece], numbers: Numbers
) -> Iterator[Claim]:
    """Claim the last number for the size of the last chunk, wherever it is."""
    for i, piece in enumerate(pieces if evidence.nchunks is not None else ()):
        if evidence.is_marked(piece.chain.sizes[-1]):
            yield i, (evidence.nchunks or 0) - len(piece), 1


def by_gaps(
    evidence: Evidence, pieces: Sequence[Piece], numbers: Numbers
) -> Iterator[Claim]:
    """Guess the number of lost chunks from the bytes between two pieces."""
    nfound = sum(map(len, pieces))
    mean = sum(p.chain.stop - p.chain.start for p in pieces) / max(nfound, 1)
    highest = highest_numbers(pieces, numbers, evidence.nchunks or 2**63)
    end, following = evidence.base, 0
    for i, piece in enumerate(pieces):
        number, start = numbers[i], piece.chain.start
        if number is None:
            gap = start - end
            nlost = max(1, round(gap / mean)) if i and gap > 0 else 0
            if i == 0:
                nlost = _lost_before(start, evidence, nfound, mean)
            number = following + max(0, min(nlost, highest[i] - following))
            yield i, number, 1
        end, following = piece.chain.stop, number + len(piece)


def _ends_as_last(evidence: Evidence, pieces: Sequence[Piece]) -> bool:
    """Return whether the file ends with a chunk that may be the last one."""
    chain = pieces[-1].chain
    fits = evidence.last_chunk in (None, chain.sizes[-1])
    return fits and chain.stop == evidence.size


def _is_unbroken(evidence: Evidence, pieces: Sequence[Piece]) -> bool:
    """Return whether the pieces touch each other, from the first chunk's offset on."""
    ends = [evidence.first, *(piece.chain.stop for piece in pieces[:-1])]
    return ends == [piece.chain.start for piece in pieces]


def _by_links(
    pieces: Sequence[Piece], numbers: Numbers, confirmed: bool
) -> Iterator[Claim]:
    """Yield claims along the links, forward and then backward."""
    known = list(numbers)
    steps = [*range(1, len(pieces)), *range(len(pieces) - 1, 0, -1)]
    for step, i in enumerate(steps):
        link, before = pieces[i].link, known[i - 1]
        if link is None or link.ndamaged is None or (confirmed and not link.confirmed):
            continue
        distance, here = len(pieces[i - 1]) + link.ndamaged, known[i]
        if step < len(pieces) - 1:
            if here is None and before is not None:
                known[i] = before + distance
                yield i, before + distance, 1
        elif before is None and here is not None and here >= distance:
            known[i - 1] = here - distance
            yield i - 1, here - distance, 1


def highest_numbers(
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


def _lost_before(start: int, evidence: Evidence, nfound: int, mean: float) -> int:
    """Return the likely number of chunks lost before the first chunk found."""
    if evidence.first is not None:
        return max(0, round((start - evidence.first) / mean))
    # An offset table may be in this space too.
    space = start - evidence.base - TABLE_NBYTES_PER_CHUNK * nfound
    return max(0, round(space / (mean + TABLE_NBYTES_PER_CHUNK)))


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


RULES = (
    Rule(by_unique_extents, "an extent that the offset table has once", True),
    Rule(by_marked_end, "the end of the file"),
    Rule(by_start, "the offset of the first chunk"),
    Rule(by_confirmed_links, "the headers of damaged chunks"),
    Rule(by_offsets, "the offset table"),
    Rule(by_confirmed_links, "the headers of damaged chunks"),
    Rule(by_equal_extents, "an extent that the offset table has several times"),
    Rule(by_end, "the number of chunks in the header"),
    Rule(by_links, "the sizes in headers of damaged chunks"),
    Rule(by_size, "the size of the last chunk", True),
    Rule(by_gaps, "the number of bytes between chunks"),
)

# A file whose chunks are all there, in order, needs no other rule.
IN_ORDER = Rule(lambda evidence, pieces, numbers: iter(()), "the order of the file")


def is_in_order(links: Sequence[Link], evidence: Evidence) -> bool:
    """Return whether the file consists of all chunks that it should have, in order.

    If a single entry of the offset table contradicts the order, the entry is wrong. If
    several do, and the table has the same extents in another order, chunks have changed
    places.
    """
    if len(links) != 1:
        return False
    chain, entries = links[0].chain, evidence.table.entries
    complete = (
        chain.start == evidence.first
        and chain.stop == evidence.size
        and len(chain) == evidence.nchunks
        and evidence.last_chunk in (None, chain.sizes[-1])
        and (
            evidence.chunk_size is None
            or chain.sizes[:-1].count(evidence.chunk_size) == len(chain) - 1
        )
    )
    return complete and not (
        is_reordered(chain, evidence)
        and sum(map(int.__ne__, entries, chain.offsets)) > 1
    )


def is_reordered(chain: Chain, evidence: Evidence) -> bool:
    """Return whether the table has the extents of all chunks, but in another order."""
    numbers = range(len(chain) - 1)
    if len(evidence.table) != len(chain) or [*evidence.table.entries] == [
        *chain.offsets
    ]:
        return False
    found = [chain.stop_of(i) - chain.offsets[i] for i in numbers]
    stated = [evidence.table.extent(i) for i in numbers]
    last = chain.stop - chain.offsets[-1]
    return found != stated and not Counter(stated) - Counter([*found, last])
