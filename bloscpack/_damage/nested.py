"""Which of the good chunks found are chunks of the file, and no part of another one.

Somebody may have packed a packed file: then a damaged chunk may hold good ones. And a
damaged chunk may only seem to hold others, because its header lies or bytes are missing
from it. Pure: chains of chunks and what the file says go in, the chains that stay come
out.
"""

from __future__ import annotations

from bisect import bisect_right

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable

    from .evidence import Evidence
    from .scan import Chain, DamagedChunk

    Trail = Callable[[int, int], list[DamagedChunk]]
    Fills = Callable[[DamagedChunk], bool]


def sift(
    chains: list[Chain],
    evidence: Evidence,
    digest_size: int,
    trail: Trail,
    fills: Fills,
) -> list[Chain]:
    """Return the chains that are no part of a damaged chunk, with their links.

    ``trail(start, stop)`` tells the damaged chunks from `start` on, ``fills(broken)``
    whether the size of one is right, as `Survey` has them.
    """
    chains = [part for chain in chains for part in _split(chain, evidence, digest_size)]
    sifter = _Sifter(chains, evidence, digest_size, fills)
    kept: list[Chain] = []
    end = evidence.base if evidence.first is None else evidence.first
    walk: _Walk | None = None
    for chain in chains:
        swallowed = bool(kept) and chain.start < kept[-1].stop
        if swallowed:
            # Without digests, the one in front may have swallowed its beginning.
            if not sifter.is_swallowed(chain, kept[-1].stop):
                continue
            end = kept.pop().start
        if walk is None or walk.start != end:
            walk = _Walk(end, chain.start, trail)
        reached, around = walk.up_to(chain.start)
        if not swallowed and sifter.is_part(chain, around, end):
            continue
        linked = chain.start == end or walk.leads_to(reached, chain.start)
        chain.link = reached if linked else None
        chain.sure = all(
            damaged.nbytes == evidence.full and fills(damaged)
            for damaged in walk.damaged[:reached]
        )
        kept.append(chain)
        end = chain.stop
    return kept


def _split(chain: Chain, evidence: Evidence, digest_size: int) -> list[Chain]:
    """Return the parts of a chain that have the sizes of the file, and the others.

    Chunks within a damaged one may touch one of the file, in front or behind.
    """
    is_whole = chain.start == evidence.first and chain.stop == evidence.size
    if (
        evidence.full is None
        or is_whole
        or chain.sizes.count(evidence.full) == len(chain)
    ):
        return [chain]
    fitting = [size == evidence.full for size in chain.sizes]
    at_end, after_fitting = chain.stop == evidence.size, any(fitting[-2:-1])
    if chain.sizes[-1] == evidence.last:
        # That proves little elsewhere; without digests there is no better proof.
        fitting[-1] = fitting[-1] or at_end or after_fitting or not digest_size
    elif at_end and after_fitting:
        fitting[-1] = True  # it may have been appended to
    for i in range(1, len(fitting)):
        if not fitting[i] and fitting[i - 1]:
            fitting[i] = evidence.number_of(chain.offsets[i]) is not None
    parts = [
        chain.split(i)
        for i in range(len(chain) - 1, 0, -1)
        if fitting[i] != fitting[i - 1]
    ]
    return [chain, *reversed(parts)]


def _stop(damaged: DamagedChunk) -> int:
    """Return up to where a damaged chunk tells anything."""
    return 2**63 if damaged.stop is None else damaged.stop


class _Walk:
    """The damaged chunks from `start` on, one behind the other.

    Each is looked at once, however many chains lie in them.
    """

    def __init__(self, start: int, stop: int, trail: Trail) -> None:
        self.start = start
        self.damaged = trail(start, stop)
        self._trail = trail

    def up_to(self, place: int) -> tuple[int, DamagedChunk | None]:
        """Return how many end in front of `place`, and the one around it, if any."""
        # Without any, there is a good chunk at `start`, which leads nowhere.
        if self.damaged and _stop(self.damaged[-1]) < place:
            self.damaged += self._trail(_stop(self.damaged[-1]), place)
        reached = bisect_right(self.damaged, place, key=_stop)
        around = self.damaged[reached] if reached < len(self.damaged) else None
        if around is None or around.stop is None or around.start >= place:
            return reached, None
        return reached, around

    def leads_to(self, reached: int, place: int) -> bool:
        """Return whether the last of those that were reached ends at `place`."""
        return reached > 0 and self.damaged[reached - 1].stop == place


class _Sifter:
    def __init__(
        self, chains: list[Chain], evidence: Evidence, digest_size: int, fills: Fills
    ) -> None:
        self._chains = chains
        self._known = evidence
        self._digest_size = digest_size
        self._fills = fills
        self._starts = [chain.start for chain in chains]
        # What was asked last, as many chains may lie in one damaged chunk.
        self._filled: tuple[DamagedChunk | None, bool] = None, False
        # Where the last chain starts whose chunks have the sizes of the file, if any.
        self._last_start = max(
            (chain.start for chain in chains if evidence.fits(chain)), default=None
        )

    def is_swallowed(self, chain: Chain, stop: int) -> bool:
        """Return whether a chain only seems to lie in a good chunk that ends at `stop`.

        It goes on behind that, or nothing else does.
        """
        if not self._known.fits(chain) or self._is_too_early(chain):
            return False
        if chain.stop == stop == self._known.size:
            return True
        return chain.stop > stop or not self._ends_right(stop, None)

    def is_part(self, chain: Chain, around: DamagedChunk | None, end: int) -> bool:
        """Return whether a chain lies in a damaged chunk behind `end`.

        `around` is a damaged chunk that says so.
        """
        evidence = self._known
        number = evidence.number_of(chain.start)
        if chain.start == end or number is not None:
            # The last chunk may have another size than a header that lies says.
            is_last = number == len(evidence.table) - 1 and chain.stop == evidence.size
            return not (evidence.fits(chain) or is_last or self._last_start is None)
        # In front of the digest of a damaged chunk no other one ends.
        at_end = chain.stop == evidence.size and self._digest_size > 0
        if chain.start == evidence.first or at_end:
            return False
        if not evidence.fits(chain) or self._is_too_early(chain):
            return True
        stop = self._stop_around(chain, around, end)
        if stop is not None and (
            chain.stop > stop or (chain.stop == stop and self._digest_size)
        ):
            return False
        if evidence.is_sound and evidence.table:
            # The last chunk, whose extent the table lacks, may be where it should be.
            last_is_there = self._has_chunk(evidence.table[-1])
            if evidence.matches(chain, len(evidence.table) - last_is_there):
                return False
            if stop is not None:
                return True
        if stop is None:
            chain.weak = True
            return False
        chain.weak = not self._ends_right(stop, around)
        return not chain.weak

    def _is_too_early(self, chain: Chain) -> bool:
        """Return whether more follows a chain that can only be the last chunk."""
        if len(chain) > 1 or chain.sizes[0] == self._known.full:
            return False
        return self._last_start is not None and self._last_start >= chain.stop

    def _stop_around(
        self, chain: Chain, around: DamagedChunk | None, end: int
    ) -> int | None:
        """Return where the damaged chunk ends that seems to lie around a chain."""
        if around is not None:
            return around.stop
        return self._known.stop_around(chain.start, end)

    def _ends_right(self, stop: int, around: DamagedChunk | None) -> bool:
        """Return whether a damaged chunk ends at `stop`, as it says or the table."""
        if around is not None and self._filled[0] is not around:
            self._filled = around, self._fills(around)
        if around is not None and not self._filled[1]:
            return False
        if stop < self._known.size:
            return self._has_chunk(stop)
        # Only the last chunk ends with the file, and the table tells no end of that.
        last = self._known.last
        return around is not None and last in (None, around.nbytes)

    def _has_chunk(self, offset: int) -> bool:
        """Return whether a good chunk is at `offset`."""
        i = bisect_right(self._starts, offset) - 1
        if i < 0:
            return False
        offsets = self._chains[i].offsets
        j = bisect_right(offsets, offset) - 1
        return j >= 0 and offsets[j] == offset
