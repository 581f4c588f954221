"""Find intact chunks anywhere in a damaged file, and follow them from one to the next.

A chunk is intact if its digest matches and Blosc can decompress it. In a file without
digests, decompression is the only check. A `Chain` is a run of adjacent intact chunks.
Where a chain ends, `ChunkScan` searches for the next bytes that look like a chunk
header and checks the chunk there. It also searches inside damaged chunks, because a
damaged header may state a wrong size. It never searches inside intact chunks.

The header may state the wrong checksum. `scan_file` then scans with and without digests
and chooses: the chunks show whether there are digests, and of which checksum.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from .._engine.threads import RUN, Workspace, ordered
from .._format.blosc_header import (
    BLOCK_START_LENGTH,
    BLOSC_FLAG_RESERVED,
    BLOSC_PREFIX,
    BloscHeader,
    decode_block_starts,
    decode_header,
    unpack_header,
)
from .._format.chunks import check_digest, cut_off, decompress_into
from .._format.sections import FREE
from .._storage.base import Storage
from ..abstract_io import QUICK_CHUNK, Progress
from ..checksums import ALL_CHECKSUMS, Hash
from ..constants import BLOSC_HEADER_LENGTH, MAGIC
from ..exceptions import DamageError, FormatError, Unsupported
from .lenient_sections import Sections

# The offset of a chunk, the end of its digest, and the chunk's header.
Candidate = tuple[int, int, BloscHeader]

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
# Number of chunks that touch each other which proves that a file has no digests:
# removed bytes may make two chunks touch by chance.
MIN_TOUCHING = 4


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
    """A position where a chunk should begin but no intact chunk does.

    ``stop`` and ``nbytes`` are the end of the digest and the plain size by the chunk's
    header, None if the header is damaged. ``error`` is the problem, None if unknown.
    """

    start: int
    stop: int | None
    error: FormatError | None
    nbytes: int | None = None


@dataclass(eq=False)
class ChunkScan:
    """A scan for intact chunks with digests of one checksum.

    `run` fills ``chains``; the caller enters `own_settings` first. ``skipped_at`` is
    the offset of the first candidate that was not checked because the budget was
    exhausted, else None. ``missing_codec`` is the error of a chunk whose codec this
    Blosc library lacks, else None; only the digest of such a chunk was checked.
    """

    storage: Storage
    sections: Sections
    nthreads: int
    progress: Progress | None
    checksum: Hash

    def __post_init__(self) -> None:
        self.chains: list[Chain] = []
        self.skipped_at: int | None = None
        self.missing_codec: Unsupported | None = None
        self._stored = Workspace()
        self._plain = Workspace()
        self._nfound = 0
        self._budget = MIN_BUDGET + BUDGET_PER_BYTE * self.storage.size

    def run(self) -> ChunkScan:
        """Find all intact chunks; return the scan.

        It ends early if the chain at the first chunk is all of the file.
        """
        header, first = self.sections.header, self.sections.first
        limit = None if header is None or header.nchunks == -1 else header.nchunks
        entries, size = self.sections.table.entries, self.storage.size
        if entries and entries[0] not in (first, FREE):
            first = None
        chain = Chain(0) if first is None else self._follow(first, limit, size)
        nsound = len(chain.offsets)
        if nsound and nsound == limit and (chain.stop == size or self._is_all(chain)):
            self.chains.append(chain)
            return self
        # Removed bytes may have moved a later chunk to the offset of the first one.
        position = self.find(0, chain.start if nsound else size)
        if position is None and nsound:
            self.chains.append(chain)
            self._nfound += nsound
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
        return self

    def _is_all(self, chain: Chain) -> bool:
        """Return whether a chain with bytes behind it is all of the file.

        These bytes are then ignored: releases up to 0.16.0 left some there when an
        append made the last chunk shorter.
        """
        header, entries = self.sections.header, self.sections.table.entries
        assert header is not None  # it states the length of the chain
        if entries:
            lasts = -1, chain.sizes[-1]
            if chain.offsets != entries or header.last_chunk not in lasts:
                return False
            # If a chunk follows, a chunk of the chain may be at a wrong position.
            return self.find(chain.stop, chain.stop + 1) is None
        # Files without a table can't have been appended to.
        return self.storage.read_at(chain.stop, len(MAGIC)) == MAGIC

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
            (offset, stop, header), error = result
            damaged = damaged or error is not None
            if not damaged:
                chain.offsets.append(offset)
                chain.sizes.append(header.nbytes)
                chain.stop = stop
                if self.progress is not None:
                    self.progress(header.nbytes)

        try:
            nbytes = self.header_at(start).nbytes
        except FormatError:
            return False
        # With one thread no check is wasted.
        nthreads = self.nthreads if ahead > QUICK_CHUNK else 1
        batch = max(1, min(RUN // 4 // max(nbytes, 1), 64))
        ordered(candidates(), work, deliver, nthreads, batch, nbytes < QUICK_CHUNK)
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
        available = self.storage.size - offset
        if stop - offset > available:
            error = cut_off(stop - offset, available)
            error.offset = offset
            return error
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
        largest = max(checksum.size for checksum in ALL_CHECKSUMS)
        raw = memoryview(self.storage.read_at(offset, header.ctbytes + largest))
        compressed, behind = raw[: header.ctbytes], raw[header.ctbytes :]
        for checksum in ALL_CHECKSUMS[1:]:
            digest = behind[: checksum.size]
            if len(digest) == checksum.size and checksum(compressed) == digest:
                return checksum
        return None

    # Damaged chunks

    def damaged_chunks(self, start: int, stop: int) -> list[DamagedChunk]:
        """Return the damaged chunks from `start` on, as their headers lead.

        The last one ends at `stop` or behind it, or its header is damaged.
        """
        damaged: list[DamagedChunk] = []
        while start < stop:
            try:
                header = self.header_at(start)
            except FormatError as error:
                damaged.append(DamagedChunk(start, None, error))
                break
            end = self._candidate(start, header)[1]
            damaged.append(DamagedChunk(start, end, None, header.nbytes))
            start = end
        return damaged

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

    # The checksum

    def confirms_checksum(self) -> bool:
        """Return whether the chunks confirm the checksum that the header states."""
        if self.checksum.size:
            return bool(self.chains)
        if self._has_all_without_digests():
            return True
        proven = sum(chain.stop - chain.start for chain in self.without_digests())
        return 2 * proven > sum(chain.stop - chain.start for chain in self.chains)

    def _has_all_without_digests(self) -> bool:
        """Return whether all chunks are there, and no digest follows the first one."""
        first, header = self.sections.first, self.sections.header
        count, end = 0, first
        for chain in self.chains:
            if chain.start == end:
                count, end = count + len(chain), chain.stop
        if header is None or first is None or not 0 < header.nchunks <= count:
            return False
        if count > 1 or end == self.storage.size:
            return True
        return self.checksum_behind((first, first, self.header_at(first))) is None

    def proves_no_digests(self) -> bool:
        """Return whether the chunks prove that the digests in the header do not exist.

        They do if several touch, or if one chain is exactly the file that the header
        describes.
        """
        if any(len(chain) >= MIN_TOUCHING for chain in self.chains):
            return True
        header = self.sections.header
        if len(self.chains) != 1 or header is None:
            return False
        (chain,) = self.chains
        return (
            chain.start == self.sections.first
            and header.nchunks in (-1, len(chain))
            and chain.stop == self.storage.size
        )

    def without_digests(self) -> list[Chain]:
        """Return the chains that have no digests.

        Their chunks touch each other, or the next chain. A chain that ends with the
        file counts only if no chunk is missing: otherwise the file may have been cut
        off before a digest.
        """
        header = self.sections.header
        stops = {chain.start for chain in self.chains}
        if header is None or header.nchunks in (-1, sum(map(len, self.chains))):
            stops.add(self.storage.size)
        return [c for c in self.chains if len(c) > 1 or c.stop in stops]

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
        decoded = unpack_header(head)
        largest = decoded.nbytes + BLOSC_HEADER_LENGTH
        if not BLOSC_HEADER_LENGTH <= decoded.ctbytes <= largest:
            return None
        if offset + decoded.ctbytes + self.checksum.size > self.storage.size:
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


def scan_file(
    storage: Storage, sections: Sections, nthreads: int, progress: Progress | None
) -> ChunkScan:
    """Return a scan that used the checksum of the file."""
    scan_for = partial(ChunkScan, storage, sections, nthreads, progress)
    header, stated = sections.header, None
    if header is not None:
        stated = scan_for(header.checksum_impl).run()
        if stated.confirms_checksum():
            return stated
    checksum = scan_for(ALL_CHECKSUMS[0]).find_checksum(
        sections.base if header is None else 0
    )
    with_digests = None if checksum is None else scan_for(checksum).run()
    without = stated
    if without is None or without.checksum.size:
        without = scan_for(ALL_CHECKSUMS[0]).run()
    chosen = without
    if with_digests is not None:
        # The input was a packed file if its chunks lie inside chunks of the other scan.
        digested, bare = with_digests.chains, without.without_digests()
        if _nbytes_outside(bare, digested) <= _nbytes_outside(digested, bare):
            chosen = with_digests
    if chosen is with_digests:
        return chosen
    if stated is not None:
        return without if without.proves_no_digests() else stated
    if not sections.states_no_digests and not without.without_digests():
        without.chains = []  # either there are no digests, or no chunk is intact
    return without


def _nbytes_outside(chains: list[Chain], others: list[Chain]) -> int:
    """Return the bytes of all chains that do not lie inside one of the others."""
    starts = [other.start for other in others]
    total = 0
    for chain in chains:
        i = bisect_right(starts, chain.start) - 1
        if i < 0 or others[i].stop < chain.stop:
            total += chain.stop - chain.start
    return total
