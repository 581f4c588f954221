"""Find intact chunks anywhere in a damaged file, and follow them from one to the next.

A chunk is intact if its digest matches and Blosc can decompress it. In a file without
digests, decompression is the only check. A `Chain` is a run of adjacent intact chunks.
Where a chain ends, `ChunkScan` searches for the next bytes that look like a chunk
header and checks the chunk there. It also searches inside damaged chunks, because a
damaged header may state a wrong size. It never searches inside intact chunks. `nested`
then drops the chunks that belong to a packed file stored inside a chunk.

Drop the intact chunks that belong to a packed file stored inside a chunk.

A packed file may contain packed files. If a chunk of the outer file is damaged, the
scan finds the chunks inside it. The opposite also happens: a chunk seems to lie inside
a damaged one, because that one's header states a wrong size or bytes of it are missing.
The plain sizes of the chunks decide, and the damaged chunk, which ends where an intact
chunk begins.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from .._engine.forks import cached_property
from .._engine.threads import RUN, Workspace, for_each
from .._format.blosc_header import (
    BLOCK_START_LENGTH,
    BLOSC_FLAG_RESERVED,
    BLOSC_VERSION_CODEC,
    BLOSC_VERSION_FORMAT,
    BloscHeader,
    decode_block_starts,
    decode_header,
    unpack_header,
)
from .._format.chunks import check_digest, decompress_into
from .._loop import QUICK_CHUNK
from .._storage.base import Storage
from ..abstract_io import Progress
from ..checksums import CHECKSUMS, Hash
from ..constants import BLOSC_HEADER_LENGTH
from ..exceptions import DamageError, FormatError, Unsupported

if TYPE_CHECKING:
    from .evidence import Evidence

    ListDamaged = Callable[[int, int], list["DamagedChunk"]]

# The offset of a chunk, the end of its digest, and the chunk's header.
Candidate = tuple[int, int, BloscHeader]

# The first two bytes of every Blosc chunk.
BLOSC_PREFIX = bytes((BLOSC_VERSION_FORMAT, BLOSC_VERSION_CODEC))
# Bytes read at a time by a search. A search begins with the small size, because most
# gaps are short, and doubles it up to the large one.
FIRST_SEARCH_NBYTES = 2**12
MAX_SEARCH_NBYTES = 2**22
# Maximum number of block starts checked before a candidate is read. This many reject
# nearly all bytes that only look like a header.
MAX_BLOCK_STARTS = 256
# A budget, in bytes of candidates, keeps the scan linear on hostile files, which may
# consist of chunk headers only. Ordinary files never exhaust it. Small candidates cost
# nothing.
MIN_BUDGET = 2**26
BUDGET_PER_BYTE = 6
SMALL_CANDIDATE = 4096


class Chain:
    """Adjacent intact chunks, each beginning where the digest before it ends.

    ``start`` and ``stop`` are the extent of the chain in the file; ``offsets`` and
    ``sizes`` hold the offset and the plain size of each chunk.
    """

    __slots__ = ("offsets", "sizes", "start", "stop")

    def __init__(self, start: int) -> None:
        self.start = self.stop = start
        self.offsets = array("q")
        self.sizes = array("q")

    def __len__(self) -> int:
        return len(self.offsets)

    def stop_of(self, i: int) -> int:
        """Return the end of the digest of chunk `i` of the chain."""
        return self.offsets[i + 1] if i + 1 < len(self.offsets) else self.stop

    def extent_of(self, i: int) -> int:
        """Return the number of bytes of chunk `i` of the chain and its digest."""
        return self.stop_of(i) - self.offsets[i]

    def append(self, candidate: Candidate) -> None:
        """Append the next chunk."""
        start, stop, header = candidate
        self.offsets.append(start)
        self.sizes.append(header.nbytes)
        self.stop = stop

    def extend(self, other: Chain) -> None:
        """Append the chunks of a chain that begins where this one ends."""
        self.offsets += other.offsets
        self.sizes += other.sizes
        self.stop = other.stop

    def part(self, i: int, j: int) -> Chain:
        """Return the chunks in [i, j) as a chain; `j` is greater than `i`."""
        made = Chain(self.offsets[i])
        made.offsets, made.sizes = self.offsets[i:j], self.sizes[i:j]
        made.stop = self.stop_of(j - 1)
        return made


class DamagedChunk(NamedTuple):
    """A place where a chunk should begin but no intact chunk does.

    ``stop`` and ``nbytes`` are the end of the digest and the plain size by the chunk's
    header, None if the header is damaged. ``error`` is the problem, None if unknown.
    """

    start: int
    stop: int | None
    error: FormatError | None
    nbytes: int | None = None


class ChunkScan:
    """A scan for intact chunks with digests of one checksum.

    `run` fills ``chains``; the caller enters `own_settings` first. ``skipped_at`` is
    the offset of the first candidate that was not checked because the budget was
    exhausted, else None. ``missing_codec`` is the error of a chunk whose codec this
    Blosc library lacks, else None; only the digest of such a chunk was checked.
    """

    def __init__(
        self,
        storage: Storage,
        checksum: Hash,
        nthreads: int,
        progress: Progress | None = None,
    ) -> None:
        self.storage = storage
        self._progress = progress
        self.checksum = checksum
        self.missing_codec: Unsupported | None = None
        self._stored = Workspace()
        self._plain = Workspace()
        self.chains: list[Chain] = []
        self.skipped_at: int | None = None
        self._nthreads = nthreads
        self._nfound = 0
        self._budget = MIN_BUDGET + BUDGET_PER_BYTE * storage.size

    def run(
        self,
        first: int | None,
        limit: int | None,
        is_complete: Callable[[Chain], bool],
    ) -> None:
        """Find all intact chunks.

        The first chunk is expected at `first`, None if unknown; `limit` is the expected
        number of chunks. The scan ends early if a chain of that length begins at
        `first` and `is_complete` returns True for it.
        """
        size = self.storage.size
        chain = Chain(0) if first is None else self._follow(first, limit, size)
        if len(chain) and len(chain) == limit and is_complete(chain):
            self.chains.append(chain)
            return
        # Removed bytes may have moved a later chunk to the offset of the first one.
        position = self.find(0, chain.start if len(chain) else size)
        if position is None and len(chain):
            self.chains.append(chain)
            self._nfound += len(chain)
            position = self._find_after(chain, limit)
        while position is not None:
            chain = self._follow(position, None)
            self._nfound += len(chain)
            previous = self.chains[-1] if self.chains else None
            if previous is not None and previous.stop == position and len(chain):
                previous.extend(chain)
                chain = previous
            elif len(chain):
                self.chains.append(chain)
            position = self._find_after(chain, limit)

    def _find_after(self, chain: Chain, limit: int | None) -> int | None:
        """Return the offset of the next intact chunk, None if there is none."""
        size = self.storage.size
        at_end = chain.stop >= size
        if self.checksum.size or not len(chain):
            return None if at_end else self.find(max(chain.stop, chain.start + 1), size)
        if at_end and (limit is None or self._nfound >= limit):
            return None
        # Without a digest the last chunk may be incomplete and include the first bytes
        # of the chunk after it.
        if not at_end and self.find(chain.stop, chain.stop + 1) is not None:
            return chain.stop
        last = chain.offsets[-1]
        if len(chain) > 1:
            count = len(chain) - 1
            self.chains[-1:] = [chain.part(0, count), chain.part(count, count + 1)]
        return self.find(last + 1, size)

    def _follow(self, start: int, limit: int | None, ahead: int = 0) -> Chain:
        """Return the chain of intact chunks that begins at `start`.

        Chunks in the first `ahead` bytes are checked in parallel. Then each batch is as
        long as the chain so far: checks of the chunks behind a damaged one are wasted.
        """
        chain = Chain(start)
        while self._follow_batch(chain, limit, max(ahead, QUICK_CHUNK)):
            ahead = chain.stop - start
        return chain

    def _follow_batch(self, chain: Chain, limit: int | None, ahead: int) -> bool:
        """Append the next intact chunk, and all others in `ahead` bytes.

        Return whether more may follow.
        """
        start, nbefore = chain.stop, len(chain)
        until = start + ahead
        exhausted = damaged = False

        def candidates() -> Iterator[Candidate]:
            nonlocal exhausted
            position, count = start, nbefore
            while position == start or (position < until and not damaged):
                candidate = None if count == limit else self._candidate_at(position)
                if candidate is None:
                    exhausted = True
                    return
                yield candidate
                position, count = candidate[1], count + 1

        def work(candidate: Candidate) -> tuple[Candidate, FormatError | None]:
            return candidate, self.check(candidate)

        def deliver(result: tuple[Candidate, FormatError | None]) -> None:
            nonlocal damaged
            candidate, error = result
            damaged = damaged or error is not None
            if not damaged:
                chain.append(candidate)
                if self._progress is not None:
                    self._progress(candidate[2].nbytes)

        try:
            nbytes = self.header_at(start).nbytes
        except FormatError:
            return False
        # With one thread no check is wasted.
        nthreads = self._nthreads if ahead > QUICK_CHUNK else 1
        batch = max(1, min(RUN // 4 // max(nbytes, 1), 64))
        for_each(candidates(), work, deliver, nthreads, batch, nbytes < QUICK_CHUNK)
        return not exhausted and not damaged

    def _candidate_at(self, offset: int) -> Candidate | None:
        """Return the candidate whose header is at `offset`, if the budget allows it."""
        try:
            candidate = self._candidate(offset, self.header_at(offset))
        except FormatError:
            return None
        return candidate if self._spend(candidate) else None

    def _candidate(self, offset: int, header: BloscHeader) -> Candidate:
        return offset, offset + header.ctbytes + self.checksum.size, header

    # Single chunks

    def header_at(self, offset: int) -> BloscHeader:
        """Return the chunk header at `offset`; raises `FormatError`."""
        try:
            return decode_header(self.storage.read_at(offset, BLOSC_HEADER_LENGTH))
        except FormatError as error:
            error.offset = offset
            raise

    def check(self, candidate: Candidate) -> FormatError | None:
        """Return the first problem of a chunk, None if the chunk is intact."""
        offset, stop, header = candidate
        found = self.storage.size - offset
        if stop - offset > found:
            message = (
                "the file ends too early: expected a chunk and its digest of '%d' "
                "bytes, found '%d'" % (stop - offset, found)
            )
            return DamageError(message, section="chunks", offset=offset)
        view = self._stored.view(stop - offset)
        self.storage.read_into(view, offset)
        compressed, digest = view[: header.ctbytes], view[header.ctbytes :]
        try:
            check_digest(compressed, digest, self.checksum)
            decompress_into(compressed, self._plain.view(header.nbytes), header)
        except Unsupported as error:
            self.missing_codec = error
        except FormatError as error:
            error.offset = offset
            return error
        except MemoryError:
            message = "there is no memory for a chunk of '%d' plain bytes"
            message %= header.nbytes
            return DamageError(message, section="chunks", offset=offset)
        return None

    def checksum_behind(self, candidate: Candidate) -> Hash | None:
        """Return the checksum whose digest follows a chunk, None if none does."""
        offset, _, header = candidate
        largest = max(checksum.size for checksum in CHECKSUMS)
        raw = memoryview(self.storage.read_at(offset, header.ctbytes + largest))
        compressed, behind = raw[: header.ctbytes], raw[header.ctbytes :]
        for checksum in CHECKSUMS[1:]:
            digest = behind[: checksum.size]
            if len(digest) == checksum.size and checksum(compressed) == digest:
                return checksum
        return None

    # Damaged chunks

    def damaged_chunks(self, start: int, stop: int) -> list[DamagedChunk]:
        """Return the damaged chunks from `start` on, as their headers lead.

        The last one ends at `stop` or behind it, or its header is damaged.
        """
        found: list[DamagedChunk] = []
        while start < stop:
            try:
                header = self.header_at(start)
            except FormatError as error:
                found.append(DamagedChunk(start, None, error))
                break
            end = self._candidate(start, header)[1]
            found.append(DamagedChunk(start, end, None, header.nbytes))
            start = end
        return found

    def diagnosed(self, damaged: DamagedChunk) -> DamagedChunk:
        """Return the damaged chunk with its problem, if the budget allows a check."""
        known = damaged.error is not None
        candidate = None if known else self._candidate_at(damaged.start)
        if candidate is None:
            return damaged
        return damaged._replace(error=self.check(candidate))

    def _spend(self, candidate: Candidate) -> bool:
        """Take the size of a candidate off the budget; return whether any was left."""
        offset, _, header = candidate
        if header.ctbytes <= SMALL_CANDIDATE:
            return True
        if self._budget < 0:
            self.skipped_at = offset if self.skipped_at is None else self.skipped_at
            return False
        # Bytes behind the end of the file are not read and cost nothing.
        self._budget -= min(header.ctbytes, self.storage.size - offset)
        return True

    # Searching

    def find(self, start: int, stop: int) -> int | None:
        """Return the offset of the first intact chunk in an extent, None if none."""
        for candidate in self.candidates(start, stop):
            if self._spend(candidate) and self.check(candidate) is None:
                return candidate[0]
        return None

    def find_checksum(self, base: int) -> Hash | None:
        """Return the checksum whose digest follows a chunk behind `base`, if any."""
        for candidate in self.candidates(base, self.storage.size):
            if self._spend(candidate):
                checksum = self.checksum_behind(candidate)
                if checksum is not None:
                    return checksum
        return None

    def candidates(self, start: int, stop: int) -> Iterator[Candidate]:
        """Yield all possible chunks in an extent."""
        for first, last in self.storage.data_extents(start, stop):
            yield from self._candidates(first, last)

    def _candidates(self, start: int, stop: int) -> Iterator[Candidate]:
        at_a_time = FIRST_SEARCH_NBYTES
        while start < stop:
            size = min(at_a_time, stop - start)
            block = self.storage.read_at(start, size + BLOSC_HEADER_LENGTH - 1)
            i = block.find(BLOSC_PREFIX)
            while -1 < i < size:
                header = self._decode(start + i, block[i : i + BLOSC_HEADER_LENGTH])
                if header is not None:
                    yield self._candidate(start + i, header)
                i = block.find(BLOSC_PREFIX, i + 1)
            start += size
            at_a_time = min(2 * at_a_time, MAX_SEARCH_NBYTES)

    def _decode(self, offset: int, head: bytes) -> BloscHeader | None:
        """Return the header of a possible chunk, None if no chunk can begin so."""
        # These checks reject most bytes faster than an exception could.
        if len(head) < BLOSC_HEADER_LENGTH or head[2] & BLOSC_FLAG_RESERVED:
            return None
        found = unpack_header(head)
        largest = found.nbytes + BLOSC_HEADER_LENGTH
        if not BLOSC_HEADER_LENGTH <= found.ctbytes <= largest:
            return None
        if offset + found.ctbytes + self.checksum.size > self.storage.size:
            return None
        try:
            header = decode_header(head)
        except FormatError:
            return None
        if header.is_copy or self._blocks_start_inside(offset, header):
            return header
        return None

    def _blocks_start_inside(self, offset: int, header: BloscHeader) -> bool:
        """Return whether all blocks of a chunk start inside the chunk."""
        checked = min(header.nblocks, MAX_BLOCK_STARTS) * BLOCK_START_LENGTH
        table = self.storage.read_at(offset + BLOSC_HEADER_LENGTH, checked)
        starts = decode_block_starts(table)
        return all(header.table_end <= start < header.ctbytes for start in starts)


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
