"""Drop the intact chunks that belong to a packed file stored inside a chunk.

A packed file may contain packed files. If a chunk of the outer file is damaged, the
scan finds the chunks inside it. The opposite also happens: a chunk seems to lie inside
a damaged one, because that one's header states a wrong size or bytes of it are missing.
`drop_nested_chunks` decides which is the case. It reads the file only through the two
functions that it is given.
"""

from __future__ import annotations

from bisect import bisect_right

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable

    from .evidence import Evidence
    from .scan import Chain, DamagedChunk

    ListDamaged = Callable[[int, int], list[DamagedChunk]]
    HasRightSize = Callable[[DamagedChunk], bool]


def drop_nested_chunks(
    chains: list[Chain],
    evidence: Evidence,
    digest_size: int,
    list_damaged: ListDamaged,
    has_right_size: HasRightSize,
) -> list[Chain]:
    """Return the chains of the file itself, each with the gap before it described.

    ``list_damaged(start, stop)`` returns the damaged chunks from `start` on, and
    ``has_right_size(damaged)`` whether the blocks of one confirm its size; see
    `ChunkScan`.
    """
    chains = [part for chain in chains for part in _split(chain, evidence, digest_size)]
    rules = _NestingRules(chains, evidence, digest_size, has_right_size)
    kept: list[Chain] = []
    end = evidence.base if evidence.first is None else evidence.first
    run: _DamagedRun | None = None
    for chain in chains:
        overlaps = bool(kept) and chain.start < kept[-1].stop
        if overlaps:
            # Without digests, an incomplete chunk includes the start of the next one.
            if not rules.replaces_overlapped(chain, kept[-1].stop):
                continue
            end = kept.pop().start
        if run is None or run.start != end:
            run = _DamagedRun(end, chain.start, list_damaged)
        nbefore, around = run.chunks_before(chain.start)
        if not overlaps and rules.is_nested(chain, around, end):
            continue
        linked = chain.start == end or run.leads_to(nbefore, chain.start)
        chain.ndamaged_before = nbefore if linked else None
        chain.gap_confirmed = all(
            damaged.nbytes == evidence.chunk_size and has_right_size(damaged)
            for damaged in run.damaged[:nbefore]
        )
        kept.append(chain)
        end = chain.stop
    return kept


def _split(chain: Chain, evidence: Evidence, digest_size: int) -> list[Chain]:
    """Split a chain into runs of chunks with the sizes of the file, and other runs.

    Nested chunks in a damaged chunk may touch an intact chunk before or behind it.
    """
    is_whole = chain.start == evidence.first and chain.stop == evidence.size
    if (
        evidence.chunk_size is None
        or is_whole
        or chain.sizes.count(evidence.chunk_size) == len(chain)
    ):
        return [chain]
    fits = [size == evidence.chunk_size for size in chain.sizes]
    at_end, follows_fitting = chain.stop == evidence.size, any(fits[-2:-1])
    if chain.sizes[-1] == evidence.last_chunk:
        # Inside the file this size is weak proof, and without digests the only one.
        fits[-1] = fits[-1] or at_end or follows_fitting or not digest_size
    elif at_end and follows_fitting:
        fits[-1] = True  # an append may have changed the size of the last chunk
    for i in range(1, len(fits)):
        if not fits[i] and fits[i - 1]:
            fits[i] = evidence.number_at(chain.offsets[i]) is not None
    parts = [
        chain.split_off(i)
        for i in range(len(chain) - 1, 0, -1)
        if fits[i] != fits[i - 1]
    ]
    return [chain, *reversed(parts)]


def _stop(damaged: DamagedChunk) -> int:
    """Return the end of a damaged chunk, for sorting; unknown ends come last."""
    return 2**63 if damaged.stop is None else damaged.stop


class _DamagedRun:
    """The damaged chunks from `start` on, each beginning where the one before ends.

    Each is read once, however many chains lie inside them.
    """

    def __init__(self, start: int, stop: int, list_damaged: ListDamaged) -> None:
        self.start = start
        self.damaged = list_damaged(start, stop)
        self._list_damaged = list_damaged

    def chunks_before(self, offset: int) -> tuple[int, DamagedChunk | None]:
        """Return the number of chunks that end before `offset`, and one around it."""
        # An empty list means that an intact chunk begins at `start`.
        if self.damaged and _stop(self.damaged[-1]) < offset:
            self.damaged += self._list_damaged(_stop(self.damaged[-1]), offset)
        nbefore = bisect_right(self.damaged, offset, key=_stop)
        around = self.damaged[nbefore] if nbefore < len(self.damaged) else None
        if around is None or around.stop is None or around.start >= offset:
            return nbefore, None
        return nbefore, around

    def leads_to(self, nbefore: int, offset: int) -> bool:
        """Return whether the last of the first `nbefore` chunks ends at `offset`."""
        return nbefore > 0 and self.damaged[nbefore - 1].stop == offset


class _NestingRules:
    def __init__(
        self,
        chains: list[Chain],
        evidence: Evidence,
        digest_size: int,
        has_right_size: HasRightSize,
    ) -> None:
        self._chains = chains
        self._evidence = evidence
        self._digest_size = digest_size
        self._has_right_size = has_right_size
        self._starts = [chain.start for chain in chains]
        # The last question to has_right_size and its answer: many chains may lie
        # inside one damaged chunk.
        self._checked: tuple[DamagedChunk | None, bool] = None, False
        # The start of the last chain whose chunks have the sizes of the file.
        self._last_start = max(
            (chain.start for chain in chains if evidence.fits_sizes(chain)),
            default=None,
        )

    def replaces_overlapped(self, chain: Chain, stop: int) -> bool:
        """Return whether a chain is right, and the chunk that overlaps it is wrong.

        `stop` is the end of that chunk. The chain is right if it continues behind
        `stop`, or if no other chunk begins there.
        """
        if not self._evidence.fits_sizes(chain) or self._is_too_early(chain):
            return False
        if chain.stop == stop == self._evidence.size:
            return True
        return chain.stop > stop or not self._ends_right(stop, None)

    def is_nested(self, chain: Chain, around: DamagedChunk | None, end: int) -> bool:
        """Return whether a chain lies inside a damaged chunk behind `end`.

        `around` is the damaged chunk whose header states an extent around the chain.
        """
        evidence = self._evidence
        number = evidence.number_at(chain.start)
        if chain.start == end or number is not None:
            # A damaged header may state a wrong size for the last chunk.
            is_last = number == len(evidence.table) - 1 and chain.stop == evidence.size
            fits = evidence.fits_sizes(chain) or is_last
            return not (fits or self._last_start is None)
        # A nested chunk can't end with the file: the damaged chunk's digest follows it.
        at_end = chain.stop == evidence.size and self._digest_size > 0
        if chain.start == evidence.first or at_end:
            return False
        if not evidence.fits_sizes(chain) or self._is_too_early(chain):
            return True
        stop = self._stop_around(chain, around, end)
        if stop is not None and (
            chain.stop > stop or (chain.stop == stop and self._digest_size)
        ):
            return False
        if evidence.table_is_plausible and evidence.table:
            # The table lacks the extent of the last chunk, which may be unmoved.
            last_is_there = self._has_chunk(evidence.table[-1])
            if evidence.has_match(chain, len(evidence.table) - last_is_there):
                return False
            if stop is not None:
                return True
        if stop is None:
            chain.maybe_nested = True
            return False
        chain.maybe_nested = not self._ends_right(stop, around)
        return not chain.maybe_nested

    def _is_too_early(self, chain: Chain) -> bool:
        """Return whether chunks follow a chunk that only has the last chunk's size."""
        if len(chain) > 1 or chain.sizes[0] == self._evidence.chunk_size:
            return False
        return self._last_start is not None and self._last_start >= chain.stop

    def _stop_around(
        self, chain: Chain, around: DamagedChunk | None, end: int
    ) -> int | None:
        """Return the end of the damaged chunk that seems to surround a chain."""
        if around is not None:
            return around.stop
        return self._evidence.stop_of_chunk_around(chain.start, end)

    def _ends_right(self, stop: int, around: DamagedChunk | None) -> bool:
        """Return whether a damaged chunk really ends at `stop`."""
        if around is not None and self._checked[0] is not around:
            self._checked = around, self._has_right_size(around)
        if around is not None and not self._checked[1]:
            return False
        if stop < self._evidence.size:
            return self._has_chunk(stop)
        # Only the last chunk ends with the file, and the table does not state its end.
        last = self._evidence.last_chunk
        return around is not None and last in (None, around.nbytes)

    def _has_chunk(self, offset: int) -> bool:
        """Return whether an intact chunk begins at `offset`."""
        i = bisect_right(self._starts, offset) - 1
        if i < 0:
            return False
        offsets = self._chains[i].offsets
        j = bisect_right(offsets, offset) - 1
        return j >= 0 and offsets[j] == offset
