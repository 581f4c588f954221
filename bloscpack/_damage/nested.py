"""Drop the intact chunks that belong to a packed file stored inside a chunk.

A packed file may contain packed files. If a chunk of the outer file is damaged, the
scan finds the chunks inside it. The opposite also happens: a chunk seems to lie inside
a damaged one, because that one's header states a wrong size or bytes of it are missing.
`drop_nested_chunks` decides which is the case. It reads the file only through the two
functions that it is given.
"""

from __future__ import annotations

from bisect import bisect_right

from ..abstract_objects import ImmutableObject
from .evidence import is_plausible

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable

    from .evidence import Evidence
    from .scan import Chain, DamagedChunk

    ListDamaged = Callable[[int, int], list[DamagedChunk]]
    HasRightSize = Callable[[DamagedChunk], bool]


class Link(ImmutableObject):
    """A chain of the file itself, and the damaged chunks that lead to it.

    ``ndamaged`` is the number of damaged chunks between the chain before and this one,
    None if their headers do not lead here; ``confirmed`` says that their sizes are
    right. ``from_first`` says that they begin at the offset of the first chunk.
    """

    __slots__ = ("chain", "confirmed", "from_first", "ndamaged")

    def __init__(
        self,
        chain: Chain,
        ndamaged: int | None = None,
        confirmed: bool = False,
        from_first: bool = False,
    ) -> None:
        self.from_first = from_first
        self.chain = chain
        self.ndamaged = ndamaged
        self.confirmed = confirmed

    def with_chain(self, chain: Chain) -> Link:
        """Return the same link to a chain that begins with the same chunk."""
        return Link(chain, self.ndamaged, self.confirmed, self.from_first)


def drop_nested_chunks(
    chains: list[Chain],
    evidence: Evidence,
    list_damaged: ListDamaged,
    has_right_size: HasRightSize,
) -> tuple[list[Link], list[Chain]]:
    """Return the chains of the file itself, each with its link to the one before.

    The second list has chains that were dropped although they have the right sizes.

    ``list_damaged(start, stop)`` returns the damaged chunks from `start` on, and
    ``has_right_size(damaged)`` whether the blocks of one confirm its size; see
    `ChunkScan`.
    """
    chains = [part for chain in chains for part in _split(chain, evidence)]
    rules = _NestingRules(chains, evidence, has_right_size)
    kept: list[Link] = []
    doubtful: list[Chain] = []
    end = evidence.base if evidence.first is None else evidence.first
    run: _DamagedRun | None = None
    for chain in chains:
        overlaps = bool(kept) and chain.start < kept[-1].chain.stop
        if overlaps:
            # Without digests, an incomplete chunk includes the start of the next one.
            if not rules.replaces_overlapped(chain, kept[-1].chain.stop):
                continue
            end = kept.pop().chain.start
        if run is None or run.start != end:
            run = _DamagedRun(end, chain.start, list_damaged)
        nbefore, around = run.chunks_before(chain.start)
        if not overlaps and rules.is_nested(chain, around, end):
            if around is None and evidence.fits_sizes(chain):
                doubtful.append(chain)
            continue
        linked = chain.start == end or run.leads_to(nbefore, chain.start)
        confirmed = linked and all(
            damaged.nbytes == evidence.chunk_size and has_right_size(damaged)
            for damaged in run.damaged[:nbefore]
        )
        from_first = not kept and evidence.first is not None
        kept.append(Link(chain, nbefore if linked else None, confirmed, from_first))
        end = chain.stop
    return kept, doubtful


def _split(chain: Chain, evidence: Evidence) -> list[Chain]:
    """Split a chain into runs of chunks with the sizes of the file, and other runs.

    Nested chunks in a damaged chunk may touch an intact chunk before or behind it.
    """
    usual, last = evidence.chunk_size, evidence.last_chunk
    whole = chain.start == evidence.first and chain.stop == evidence.size
    if usual is None or whole or chain.sizes.count(usual) == len(chain):
        return [chain]
    fits = [size == usual for size in chain.sizes]
    at_end, behind_usual = chain.stop == evidence.size, any(fits[-2:-1])
    if chain.sizes[-1] == last:
        # Inside the file this size is weak proof, and without digests the only one.
        fits[-1] = fits[-1] or at_end or behind_usual or not evidence.digests
    elif at_end and behind_usual:
        fits[-1] = True  # an append may have changed the size of the last chunk
    for i in range(1, len(fits)):
        if not fits[i] and fits[i - 1]:
            named = evidence.table.number_at(chain.offsets[i]) is not None
            fits[i] = named or chain.sizes[i] == last
    begins = [0, *(i for i in range(1, len(fits)) if fits[i] != fits[i - 1])]
    stops = [*begins[1:], len(fits)]
    return [chain.part(i, j) for i, j in zip(begins, stops, strict=True)]


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
        self, chains: list[Chain], evidence: Evidence, has_right_size: HasRightSize
    ) -> None:
        self._chains = chains
        self._evidence = evidence
        self._has_right_size = has_right_size
        self._starts = [chain.start for chain in chains]
        # The last question to has_right_size and its answer: many chains may lie
        # inside one damaged chunk.
        self._checked: tuple[DamagedChunk | None, bool] = None, False
        fitting = [chain for chain in chains if evidence.fits_sizes(chain)]
        self._none_fits = not fitting
        # Whether the last chunk is where it should be: at the end of the file.
        self._has_last = bool(fitting) and (
            fitting[-1].stop == evidence.size
            and fitting[-1].sizes[-1] == evidence.last_chunk
        )
        self._last_start = fitting[-1].start if fitting else 0
        entries = evidence.table.entries
        self._table_is_plausible = (
            bool(entries)
            and entries[0] == evidence.first
            and is_plausible(entries, evidence.largest_extent)
        )

    def replaces_overlapped(self, chain: Chain, stop: int) -> bool:
        """Return whether a chain is right, and the chunk that overlaps it is wrong.

        `stop` is the end of that chunk. The chain is right if it continues behind
        `stop`, or if no other chunk begins there.
        """
        if not self._evidence.fits_sizes(chain) or self._is_another_last(chain):
            return False
        if chain.stop == stop == self._evidence.size:
            return True
        return chain.stop > stop or not self._ends_right(stop, None)

    def is_nested(self, chain: Chain, around: DamagedChunk | None, end: int) -> bool:
        """Return whether a chain lies inside a damaged chunk behind `end`.

        `around` is the damaged chunk whose header states an extent around the chain.
        """
        evidence = self._evidence
        number = evidence.table.number_at(chain.start)
        if chain.start == end or number is not None:
            # A damaged header may state a wrong size for the last chunk.
            is_last = number == len(evidence.table) - 1 and chain.stop == evidence.size
            return not (evidence.fits_sizes(chain) or is_last or self._none_fits)
        # A nested chunk can't end with the file: the damaged chunk's digest follows it.
        at_end = chain.stop == evidence.size and evidence.digests
        if chain.start == evidence.first or at_end:
            return False
        if not evidence.fits_sizes(chain) or self._is_another_last(chain):
            return True
        stop = self._slot_around(chain, end) if around is None else around.stop
        if stop is None:
            return False
        if chain.stop > stop or (chain.stop == stop and evidence.digests):
            return False
        if self._table_is_plausible:
            return not self._is_in_table(chain)
        return self._ends_right(stop, around)

    def _is_another_last(self, chain: Chain) -> bool:
        """Return whether a chunk has the last chunk's size, but is another one."""
        return (
            self._has_last
            and self._last_start > chain.start
            and self._evidence.is_marked(chain.sizes[0])
        )

    def _is_in_table(self, chain: Chain) -> bool:
        """Return whether the table has the extents of a chain, or it may be the last.

        The table lacks the extent of the last chunk.
        """
        evidence, last = self._evidence, len(self._evidence.table) - 1
        count = min(len(chain), 16)
        lacks_last = not self._has_chunk(evidence.table.entries[last])
        return any(
            all(evidence.matches(chain, k, n + k) for k in range(count))
            and (n + len(chain) <= last or lacks_last)
            for n in evidence.places(chain, 0)
        )

    def _slot_around(self, chain: Chain, end: int) -> int | None:
        """Return the end of the chunk that the table puts around a chain.

        The table counts only if it is plausible, or has an entry at `end`, where the
        last intact chunk ended.
        """
        entries = self._evidence.table.entries
        named = self._evidence.table.number_at(end)
        if not entries or (named is None and not self._table_is_plausible):
            return None
        i = bisect_right(entries, chain.start)
        if not 0 < i < len(entries) or entries[i - 1] < end:
            return None
        fits = entries[i] - entries[i - 1] <= self._evidence.largest_extent
        return entries[i] if fits and entries[i] <= self._evidence.size else None

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
