"""Drop the intact chunks that belong to a packed file stored inside a chunk.

A packed file may contain packed files. If a chunk of the outer file is damaged, the
scan finds the chunks inside it. The opposite also happens: a chunk seems to lie inside
a damaged one, because that one's header states a wrong size or bytes of it are missing.
The plain sizes of the chunks decide, and the damaged chunk, which ends where an intact
chunk begins.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from .._engine.forks import cached_property

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .evidence import Evidence
    from .scan import Chain, DamagedChunk

    ListDamaged = Callable[[int, int], list[DamagedChunk]]


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


def drop_nested_chunks(
    chains: Sequence[Chain], evidence: Evidence, list_damaged: ListDamaged
) -> tuple[list[Piece], bool]:
    """Return the chains of the file itself, and whether it is doubtful.

    It is if a chain was dropped that has the right sizes. ``list_damaged(start, stop)``
    returns the damaged chunks from `start` on; see `ChunkScan`.
    """
    if len(chains) == 1 and evidence.is_complete(chains[0]):
        return [Piece(chains[0], 0)], False
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
