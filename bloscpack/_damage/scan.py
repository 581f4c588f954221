"""Chunks in damaged bytes: found, checked, and followed from one to the next.

A chunk counts when its digest is right and Blosc can decompress it; where there are no
digests, the second has to do. A `Chain` follows good chunks by their headers. Where it
breaks, `Survey` goes on at the next bytes that look like a chunk and prove to be one,
also inside of a damaged chunk, whose header may lie about where it ends. Which of them
are chunks of the file is decided by `sifting`; what lies inside a good chunk is never
searched.
"""

from __future__ import annotations

from array import array

from .._engine.threads import for_each
from .._format.blosc_header import (
    BLOCK_START_LENGTH,
    BLOSC_FLAG_RESERVED,
    BLOSC_VERSION_CODEC,
    BLOSC_VERSION_FORMAT,
    decode_block_starts,
    decode_header,
    unpack_header,
)
from ..abstract_io import QUICK_CHUNK, RUN
from ..checksums import CHECKSUMS
from ..constants import BLOSC_HEADER_LENGTH
from ..exceptions import FormatError
from .examiner import Examiner

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .._format.blosc_header import BloscHeader
    from .._storage.base import Storage
    from ..abstract_io import Progress
    from ..checksums import Hash
    from .examiner import Piece

# How every chunk begins.
MARK = bytes((BLOSC_VERSION_FORMAT, BLOSC_VERSION_CODEC))
# What is read at a time while searching, and at first: most gaps are short.
SEARCHED_AT_A_TIME = 2**22
SEARCHED_FIRST = 2**12
# Block starts that are looked at before a candidate is read.
STARTS_LOOKED_AT = 256
# Candidates of this size are always tried; for larger ones there is an allowance, as
# a file may be made of nothing but beginnings of chunks. No byte of a file that is not
# made for that is looked at so many times.
SMALL_CANDIDATE = 4096
ALLOWANCE = 2**26
ALLOWED_PER_BYTE = 6


class Chain:
    """Good chunks one behind the other, as their headers tell; all positions are bytes.

    ``offsets`` and ``sizes`` tell where each starts and how many plain bytes it has;
    ``link`` how many damaged chunks lie between the chain before and this one, None if
    their headers do not lead from there to here, and ``sure`` that they do not lie.
    ``weak`` says that this may be a part of a damaged chunk.
    """

    __slots__ = ("link", "offsets", "sizes", "start", "stop", "sure", "weak")

    def __init__(self, start: int) -> None:
        self.start = self.stop = start
        self.offsets = array("q")
        self.sizes = array("q")
        self.link: int | None = None
        self.sure = False
        self.weak = False

    def __len__(self) -> int:
        return len(self.offsets)

    def stop_of(self, i: int) -> int:
        """Return where the chunk at place `i` and its digest end."""
        return self.offsets[i + 1] if i + 1 < len(self.offsets) else self.stop

    def add(self, piece: Piece) -> None:
        """Take the next chunk."""
        start, stop, header = piece
        self.offsets.append(start)
        self.sizes.append(header.nbytes)
        self.stop = stop

    def split(self, i: int) -> Chain:
        """Take out the chunks from place `i` on; return them."""
        rest = Chain(self.stop_of(i - 1) if i else self.start)
        rest.offsets, rest.sizes, rest.stop = (
            self.offsets[i:],
            self.sizes[i:],
            self.stop,
        )
        del self.offsets[i:], self.sizes[i:]
        self.stop = rest.start
        return rest


class DamagedChunk:
    """A place where a chunk should be, and what was found there instead.

    ``stop`` and ``nbytes`` are what its header says, None if that is none.
    """

    __slots__ = ("error", "nbytes", "start", "stop")

    def __init__(
        self,
        start: int,
        stop: int | None,
        error: FormatError | None,
        nbytes: int | None = None,
    ) -> None:
        self.start = start
        self.stop = stop
        self.error = error
        self.nbytes = nbytes


class Survey:
    """All chunks that can be found in a file, in ``chains``.

    ``gave_up`` is where the first of those lies that were not tried, because too much
    looks like chunks, else None.
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
        self.examiner = Examiner(storage, checksum)
        self.chains: list[Chain] = []
        self.gave_up: int | None = None
        self._nthreads = nthreads
        self._nfound = 0
        self._allowance = ALLOWANCE + ALLOWED_PER_BYTE * storage.size

    def run(
        self,
        first: int | None,
        base: int,
        limit: int | None,
        is_whole: Callable[[Chain], bool],
    ) -> None:
        """Find all chunks.

        The first is expected at `first`, if that is known, and can't lie in front of
        `base`; `limit` is how many there should be. `is_whole` says whether so many
        chunks are all, whatever lies behind them.
        """
        size = self.storage.size
        chain = Chain(base) if first is None else self._follow(first, limit, size)
        position: int | None = base
        if len(chain):
            if len(chain) == limit and is_whole(chain):
                self.chains.append(chain)
                return
            # A later chunk may have come to lie where the first one should be.
            position = self.find(base, chain.start)
        if position is None:
            self.chains.append(chain)
            self._nfound += len(chain)
            position = self._search_behind(chain, limit)
        elif not len(chain):
            position = self.find(base, size)
        while position is not None:
            chain = self._follow(position, None)
            self._nfound += len(chain)
            before = self.chains[-1] if self.chains else None
            if before is not None and before.stop == position and len(chain):
                before.offsets += chain.offsets
                before.sizes += chain.sizes
                before.stop = chain.stop
                chain = before
            elif len(chain):
                self.chains.append(chain)
            position = self._search_behind(chain, limit)

    def _search_behind(self, chain: Chain, limit: int | None) -> int | None:
        """Return where the next good chunk is, None if there is none."""
        size = self.storage.size
        at_end = chain.stop >= size
        if self.checksum.size or not len(chain):
            return None if at_end else self.find(max(chain.stop, chain.start + 1), size)
        if at_end and (limit is None or self._nfound >= limit):
            return None
        # Without a digest nobody knows whether its last chunk is complete: it may have
        # swallowed the beginning of the next one.
        if not at_end and self._is_chunk(chain.stop):
            return chain.stop
        last = chain.offsets[-1]
        if len(chain) > 1:
            self.chains.append(chain.split(len(chain) - 1))
        return self.find(last + 1, size)

    def _is_chunk(self, offset: int) -> bool:
        """Return whether there is a good chunk at `offset`."""
        piece = self._next(offset)
        return piece is not None and self.examiner.check(piece) is None

    def _follow(self, start: int, limit: int | None, ahead: int = 0) -> Chain:
        """Return the good chunks from `start` on, as their headers tell.

        Those in the first `ahead` bytes are checked at once; then, time and again, as
        many bytes as were good: what lies behind a damaged chunk is checked in vain.
        """
        chain = Chain(start)
        while self._follow_on(chain, limit, max(ahead, QUICK_CHUNK)):
            ahead = chain.stop - start
        return chain

    def _follow_on(self, chain: Chain, limit: int | None, ahead: int) -> bool:
        """Add what is good of the next chunk and all others in `ahead` bytes.

        Return whether more may follow.
        """
        start, nbefore = chain.stop, len(chain)
        until = start + ahead
        over = ended = False

        def pieces() -> Iterator[Piece]:
            nonlocal over
            position, count = start, nbefore
            while position == start or (position < until and not ended):
                piece = None if count == limit else self._next(position)
                if piece is None:
                    over = True
                    return
                yield piece
                position, count = piece[1], count + 1

        def work(piece: Piece) -> tuple[Piece, FormatError | None]:
            return piece, self.examiner.check(piece)

        def deliver(result: tuple[Piece, FormatError | None]) -> None:
            nonlocal ended
            piece, error = result
            ended = ended or error is not None
            if not ended:
                chain.add(piece)
                if self._progress is not None:
                    self._progress(piece[2].nbytes)

        try:
            nbytes = self.examiner.header_at(start).nbytes
        except FormatError:
            return False
        # One thread checks nothing in vain.
        nthreads = self._nthreads if ahead > QUICK_CHUNK else 1
        batch = max(1, min(RUN // 4 // max(nbytes, 1), 64))
        for_each(pieces(), work, deliver, nthreads, batch, nbytes < QUICK_CHUNK)
        return not over and not ended

    def _next(self, offset: int) -> Piece | None:
        """Return what its header says of a chunk at `offset`, if it may be tried."""
        try:
            header = self.examiner.header_at(offset)
        except FormatError:
            return None
        if not self._allowed(offset, header):
            return None
        return offset, offset + header.ctbytes + self.checksum.size, header

    def trail(self, start: int, stop: int) -> list[DamagedChunk]:
        """Return where damaged chunks lie from `start` on, as their headers tell.

        The last of them ends at `stop` or behind it, or nobody knows where.
        """
        trail: list[DamagedChunk] = []
        while start < stop:
            try:
                header = self.examiner.header_at(start)
            except FormatError as error:
                trail.append(DamagedChunk(start, None, error))
                break
            end = start + header.ctbytes + self.checksum.size
            trail.append(DamagedChunk(start, end, None, header.nbytes))
            start = end
        return trail

    def explain(self, damaged: DamagedChunk) -> None:
        """Find out what is wrong with a damaged chunk, unless that is known."""
        if damaged.error is None and damaged.stop is not None:
            header = self.examiner.header_at(damaged.start)
            if self._allowed(damaged.start, header):
                piece = damaged.start, damaged.stop, header
                damaged.error = self.examiner.check(piece)

    def fills(self, damaged: DamagedChunk) -> bool:
        """Return whether a damaged chunk ends where its header says, by its blocks."""
        header = self.examiner.header_at(damaged.start)
        return self._allowed(damaged.start, header) and self.examiner.fills(
            damaged.start, header
        )

    def _allowed(self, offset: int, header: BloscHeader) -> bool:
        """Return whether a candidate of that size may be tried."""
        if header.ctbytes <= SMALL_CANDIDATE:
            return True
        if self._allowance < 0:
            self.gave_up = offset if self.gave_up is None else self.gave_up
            return False
        # What is said to lie behind the end of the file is not read.
        self._allowance -= min(header.ctbytes, self.storage.size - offset)
        return True

    # Searching

    def find(self, start: int, stop: int) -> int | None:
        """Return where the first good chunk from `start` on begins, before `stop`."""
        for offset, header in self.candidates(start, stop):
            end = offset + header.ctbytes + self.checksum.size
            if not self._allowed(offset, header):
                continue
            piece = offset, end, header
            if self.examiner.check(piece) is None:
                return offset
        return None

    def candidates(self, start: int, stop: int) -> Iterator[tuple[int, BloscHeader]]:
        """Yield places that look like chunks from `start` on, before `stop`."""
        at_a_time = SEARCHED_FIRST
        while start < stop:
            size = min(at_a_time, stop - start)
            block = self.storage.read_at(start, size + BLOSC_HEADER_LENGTH - 1)
            i = block.find(MARK)
            while -1 < i < size:
                header = self._plausible(start + i, block[i : i + BLOSC_HEADER_LENGTH])
                if header is not None:
                    yield start + i, header
                i = block.find(MARK, i + 1)
            start += size
            at_a_time = min(2 * at_a_time, SEARCHED_AT_A_TIME)

    def _plausible(self, offset: int, head: bytes) -> BloscHeader | None:
        """Return the header of what may be a chunk, None if it can't be one."""
        # Most fail here, and raising an error would take longer than all else.
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
        return header if header.is_copy or self._starts_fit(offset, header) else None

    def _starts_fit(self, offset: int, header: BloscHeader) -> bool:
        """Return whether the blocks of a chunk start inside of it."""
        looked_at = min(header.nblocks, STARTS_LOOKED_AT) * BLOCK_START_LENGTH
        table = self.storage.read_at(offset + BLOSC_HEADER_LENGTH, looked_at)
        starts = decode_block_starts(table)
        return all(header.table_end <= start < header.ctbytes for start in starts)


def find_checksum(storage: Storage, base: int) -> Hash | None:
    """Return the checksum that a chunk behind `base` confirms, None if none does."""
    survey = Survey(storage, CHECKSUMS[0], 1)
    for offset, header in survey.candidates(base, storage.size):
        if survey._allowed(offset, header):
            checksum = survey.examiner.checksum_of(offset, header)
            if checksum is not None:
                return checksum
    return None
