"""Drop the intact chunks that belong to a packed file stored inside a chunk.

A packed file may contain packed files. If a chunk of the outer file is damaged, the
scan finds the chunks inside it. The opposite also happens: a chunk seems to lie inside
a damaged one, because that one's header states a wrong size or bytes of it are missing.
`drop_nested_chunks` decides which is the case: by the plain sizes of the chunks, and by
the damaged chunk, which ends where an intact chunk begins. It reads the file only
through the function that it is given.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property

from ..abstract_objects import ImmutableObject

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable

    from .evidence import Evidence
    from .scan import Chain, DamagedChunk

    ListDamaged = Callable[[int, int], list[DamagedChunk]]


class Piece(ImmutableObject):
    """Adjacent chunks whose numbers follow one another.

    ``ndamaged`` is the number of damaged chunks between the piece before and this one,
    None if their headers do not lead here or state wrong sizes. ``number`` is the
    number of the first chunk by the offset table, None if the table has none.
    """

    __slots__ = ("chain", "ndamaged", "number")

    def __init__(
        self, chain: Chain, ndamaged: int | None = None, number: int | None = None
    ) -> None:
        self.chain = chain
        self.ndamaged = ndamaged
        self.number = number

    def __len__(self) -> int:
        return len(self.chain)

    def part(self, i: int, j: int) -> Piece:
        """Return the piece of the chunks in [i, j)."""
        if (i, j) == (0, len(self)):
            return self
        return Piece(self.chain.part(i, j), None if i else self.ndamaged)


def drop_nested_chunks(
    chains: list[Chain], evidence: Evidence, list_damaged: ListDamaged
) -> tuple[list[Piece], bool]:
    """Return the chains of the file itself, and whether it is doubtful.

    It is if a chain was dropped that has the right sizes.

    ``list_damaged(start, stop)`` returns the damaged chunks from `start` on; see
    `ChunkScan`.
    """
    chains = [part for chain in chains for part in _split(chain, evidence)]
    rules = _NestingRules(chains, evidence)
    kept: list[Piece] = []
    doubtful = False
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
            doubtful = doubtful or (around is None and evidence.fits_sizes(chain))
            continue
        before = run.damaged[:nbefore]
        leads = chain.start == (before[-1].stop if before else end)
        right = all(evidence.chunk_size in (None, found.nbytes) for found in before)
        kept.append(Piece(chain, len(before) if leads and right else None))
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
        """Return the number of chunks that end before `offset`, and the one around."""
        # An empty list means that an intact chunk begins at `start`.
        if self.damaged and _stop(self.damaged[-1]) < offset:
            self.damaged += self._list_damaged(_stop(self.damaged[-1]), offset)
        nbefore = bisect_right(self.damaged, offset, key=_stop)
        around = self.damaged[nbefore] if nbefore < len(self.damaged) else None
        if around is None or around.stop is None or around.start >= offset:
            return nbefore, None
        return nbefore, around


class _NestingRules:
    def __init__(self, chains: list[Chain], evidence: Evidence) -> None:
        self._evidence = evidence
        self._chains = chains
        fitting = [chain for chain in chains if evidence.fits_sizes(chain)]
        self._none_fits = not fitting
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

    def is_nested(self, chain: Chain, around: DamagedChunk | None, end: int) -> bool:
        """Return whether a chain lies inside a damaged chunk behind `end`.

        `around` is the damaged chunk whose header states an extent around the chain.
        """
        evidence = self._evidence
        if chain.start == end and evidence.fits_sizes(chain):
            return False
        number = evidence.table.number_at(chain.start)
        if chain.start == end or number is not None:
            # A damaged header may state a wrong size for the last chunk.
            is_last = number == len(evidence.table) - 1 and chain.stop == evidence.size
            return not (evidence.fits_sizes(chain) or is_last or self._none_fits)
        if chain.stop == evidence.size and evidence.digests:
            return False  # the digest of the damaged chunk would follow
        if not self._has_right_size(chain):
            return True
        stop = None if around is None else around.stop
        return stop is not None and chain.stop < stop and stop in self._starts

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
