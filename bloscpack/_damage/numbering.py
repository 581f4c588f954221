"""Number the pieces: accept the claims of the rules, from the strongest to the weakest.

A claim is accepted if the numbers are free and, unless its rule ignores the order of
the file, lie between those of the pieces before and behind.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from ..abstract_objects import ImmutableObject
from .nested import Link
from .rules import IN_ORDER, RULES, Piece, highest_numbers, is_in_order, pieces_of

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .evidence import Evidence
    from .rules import Claim, Rule
    from .scan import Chain

    KeyOf = Callable[[int, int], bytes]


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
    chunks that the file should have. ``dropped`` are intact chunks that are copies of
    others, or for which the file has no number.
    """

    __slots__ = ("chains", "dropped", "nchunks", "numbers", "placed")

    def __init__(
        self, placed: Sequence[Placed], nchunks: int, dropped: Sequence[Piece] = ()
    ) -> None:
        self.placed = tuple(placed)
        self.chains: tuple[Chain, ...] = tuple(p.piece.chain for p in placed)
        self.numbers = tuple(p.number for p in placed)
        self.nchunks = nchunks
        self.dropped = tuple(dropped)

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
    links: Sequence[Link],
    evidence: Evidence,
    key_of: KeyOf,
    doubtful: Sequence[Chain] = (),
) -> Numbering:
    """Return the numbers of the chunks of all chains.

    ``key_of(start, stop)`` returns a key of the content of a chunk. ``doubtful`` are
    chains that were dropped before.
    """
    if not doubtful and is_in_order(links, evidence):
        whole = Piece(links[0].chain, links[0])
        return Numbering([Placed(whole, 0, IN_ORDER)], len(whole))
    links, leftovers = _split_leftovers(links, evidence, equal=False)
    links, copies = _drop_copies(links, evidence, key_of)
    links, more = _split_leftovers(links, evidence, equal=True)
    pieces = pieces_of(links, evidence)
    placed, lacking = _resolve(pieces, RULES, evidence)
    numbers = [each.number for each in placed]
    if (
        len(evidence.table)
        and not evidence.count_confirmed
        and (numbers != sorted(numbers))
    ):
        # A table whose end is unknown is no proof that chunks are out of order.
        pieces = [Piece(link.chain, link) for link in links]
        placed, lacking = _resolve(pieces, RULES[-1:], evidence)
    dropped = [*lacking, *copies, *leftovers, *more, *map(Piece, doubtful)]
    return Numbering(placed, _count(placed, evidence), dropped)


def _resolve(
    pieces: Sequence[Piece], rules: Sequence[Rule], evidence: Evidence
) -> tuple[list[Placed], list[Piece]]:
    """Return the numbers that the rules give, and pieces without a number."""
    resolver = _Resolver(pieces, evidence)
    for rule in rules if pieces else ():
        resolver.apply(rule)
    return resolver.finish(rules[-1]), resolver.dropped


def _split_leftovers(
    links: Sequence[Link], evidence: Evidence, equal: bool
) -> tuple[Sequence[Link], list[Piece]]:
    """Return the links up to the last chunk of the file, and the chunks behind it.

    Releases up to 0.16.0 left the end of a longer last chunk there. The last chunk lies
    where header and table say. It is marked by its plain size, or follows all others.
    `equal` says that the chunks behind may have the extent of the last one: then they
    may be chunks of the file that a copy of another chunk moved.
    """
    last = len(evidence.table) - 1
    if not evidence.count_confirmed or last < 0:
        return links, []
    offset = evidence.table.entries[last]
    for i, link in enumerate(links):
        chain = link.chain
        k = bisect_left(chain.offsets, offset)
        if k < len(chain) and chain.offsets[k] == offset:
            size = chain.sizes[k]
            extent = chain.stop_of(k) - offset
            moved = k + 1 < len(chain) and (
                extent == chain.stop_of(k + 1) - chain.offsets[k + 1]
            )
            unmoved = chain.offsets[: last + 1].tolist() == [*evidence.table.entries]
            complete = unmoved and evidence.last_chunk in (None, size)
            if not (evidence.is_marked(size) or (complete and (equal or not moved))):
                break
            behind = [Piece(other.chain) for other in links[i + 1 :]]
            if k + 1 < len(chain):
                behind.append(Piece(chain.part(k + 1, len(chain))))
                link = link.with_chain(chain.part(0, k + 1))
            return [*links[:i], link], behind
    return links, []


def _drop_copies(
    links: Sequence[Link], evidence: Evidence, key_of: KeyOf
) -> tuple[Sequence[Link], list[Piece]]:
    """Return the links without copies of chunks, and the copies.

    Chunks are copies only if there are more than the file had. Of equal chunks, those
    nearest to each other are copies.
    """
    surplus = sum(len(link.chain) for link in links) - (evidence.nchunks or 0)
    if surplus <= 0 or not evidence.count_confirmed:
        return links, []
    seen: dict[bytes, int] = {}
    equal: list[tuple[int, int, int]] = []
    position = 0
    for i, link in enumerate(links):
        for k, start in enumerate(link.chain.offsets):
            key = key_of(start, link.chain.stop_of(k))
            if key in seen:
                equal.append((position - seen[key], i, k))
            seen[key] = position
            position += 1
    copies: dict[int, list[int]] = {}
    if len(equal) > surplus and evidence.last_chunk == evidence.chunk_size:
        return links, []  # any of them may be a copy
    for _, i, k in sorted(equal)[:surplus]:
        copies.setdefault(i, []).append(k)
    kept: list[Link] = []
    dropped: list[Piece] = []
    for i, link in enumerate(links):
        chain, begin = link.chain, 0
        for k in [*sorted(copies.get(i, ())), len(chain)]:
            if begin < k:
                part = chain.part(begin, k)
                kept.append(Link(part) if begin else link.with_chain(part))
            if k < len(chain):
                dropped.append(Piece(chain.part(k, k + 1)))
            begin = k + 1
    return kept, dropped


class _Resolver:
    """Accepts claims. ``dropped`` are the pieces whose numbers others have."""

    def __init__(self, pieces: Sequence[Piece], evidence: Evidence) -> None:
        self._pieces = tuple(pieces)
        self._placed: list[Placed | None] = [None] * len(pieces)
        self._taken: list[tuple[int, int]] = []
        self._evidence = evidence
        self.dropped: list[Piece] = []

    def apply(self, rule: Rule) -> None:
        """Accept the claims of a rule that fit."""
        numbers = [None if p is None else p.number for p in self._placed]
        claims = [*rule.claims(self._evidence, self._pieces, numbers)]
        if rule.anywhere:
            self._accept_anywhere(rule, claims)
            return
        highest = highest_numbers(self._pieces, numbers, 2**63)
        least = position = 0
        for i, number, _ in sorted(claims, key=lambda claim: claim[0]):
            for piece, placed in zip(
                self._pieces[position:i], self._placed[position:i], strict=True
            ):
                least = least + len(piece) if placed is None else placed.stop
            position = max(position, i)
            if self._placed[i] is None:
                in_order = least <= number <= highest[i]
                # Where the order of the file is wrong, any free numbers will do.
                if in_order or least > highest[i]:
                    self._accept(i, number, rule)

    def _accept(self, i: int, number: int, rule: Rule) -> None:
        """Place a piece if its numbers are free."""
        piece = self._pieces[i]
        if number >= 0 and self._is_free(number, number + len(piece)):
            self._placed[i] = Placed(piece, number, rule)
            insort(self._taken, (number, number + len(piece)))

    def _is_free(self, start: int, stop: int) -> bool:
        i = bisect_left(self._taken, (stop,))
        return i == 0 or self._taken[i - 1][1] <= start

    def _accept_anywhere(self, rule: Rule, claims: list[Claim]) -> None:
        """Place pieces without regard to their order, the strongest claims first.

        Chunks whose numbers are taken are copies of other chunks.
        """
        split: dict[int, list[tuple[Piece, Placed | None]]] = {}
        for i, number, _ in sorted(claims, key=lambda claim: -claim[2]):
            piece = self._pieces[i]
            if self._placed[i] is not None or number < 0:
                continue
            if self._is_free(number, number + len(piece)):
                self._accept(i, number, rule)
                continue
            split[i] = []
            end, stop = number, number + len(piece)
            for free, until in [*self._free_parts(number, stop), (stop, stop)]:
                if end < free:
                    covered = piece.part(end - number, free - number)
                    split[i].append((covered, None))
                if free < until:
                    part = piece.part(free - number, until - number)
                    split[i].append((part, Placed(part, free, rule)))
                    insort(self._taken, (free, until))
                end = until
        if split:
            entries = [
                entry
                for i, entry in enumerate(zip(self._pieces, self._placed, strict=True))
                for entry in split.get(i, [entry])
            ]
            self._pieces = tuple(piece for piece, _ in entries)
            self._placed = [placed for _, placed in entries]

    def _free_parts(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return the free numbers in [start, stop), as intervals."""
        found = []
        i = max(0, bisect_left(self._taken, (start,)) - 1)
        while start < stop:
            begin, end = self._taken[i] if i < len(self._taken) else (stop, stop)
            if begin > start:
                found.append((start, min(begin, stop)))
            start, i = max(start, end), i + 1
        return found

    def finish(self, rule: Rule) -> list[Placed]:
        """Place what is left at any free numbers; return all pieces placed.

        Copies of other chunks are dropped, and chunks that an intact table lacks.
        """
        free = iter(self._free_parts(0, 2**63))
        begin = stop = 0
        found: list[Placed] = []
        for piece, placed in zip(self._pieces, self._placed, strict=True):
            if placed is not None:
                found.append(placed)
                continue
            i = 0
            while i < len(piece):
                if begin == stop:
                    begin, stop = next(free)
                part = piece.part(i, i + min(stop - begin, len(piece) - i))
                if self._is_foreign(part, begin):
                    self.dropped.append(part)
                else:
                    found.append(Placed(part, begin, rule))
                    begin += len(part)
                i += len(part)
        return found

    def _is_foreign(self, piece: Piece, number: int) -> bool:
        """Return whether there is no room for a piece that an intact table lacks."""
        evidence = self._evidence
        if not evidence.count_confirmed or number < (evidence.nchunks or 0):
            return False
        return (
            piece.number is None and evidence.table.is_whole and len(evidence.table) > 0
        )


def _count(placed: Sequence[Placed], evidence: Evidence) -> int:
    """Return the number of chunks that the file should have."""
    count = max((p.stop for p in placed), default=0)
    nchunks = evidence.nchunks
    if nchunks is None:
        # The bytes behind the last chunk may have been one more.
        at_end = placed and placed[-1].piece.chain.stop == evidence.size
        return count + bool(placed and not at_end)
    if placed and nchunks > count and not evidence.count_confirmed:
        chain = placed[-1].piece.chain
        if chain.stop == evidence.size and evidence.is_marked(chain.sizes[-1]):
            # The header states more, but all chunks up to the last one are there.
            return count
    return max(nchunks, count)
