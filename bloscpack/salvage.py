"""Chunks in damaged bytes: found, checked, and followed from one to the next.

A chunk counts when its digest is right and Blosc can decompress it; where there are no
digests, the second has to do. A `Chain` follows chunks by their headers. Where it
breaks, `Survey` goes on at a place that the offset table names, or at the next bytes
that look like a chunk and prove to be one. What lies inside a chunk is never searched.
"""

from __future__ import annotations

import struct
from _thread import allocate_lock
from array import array
from bisect import bisect_right
from contextlib import contextmanager

from .abstract_io import QUICK_CHUNK, RUN
from .checksums import CHECKSUMS
from .chunks import (
    BLOCK_START_LENGTH,
    BLOSC_VERSION_CODEC,
    BLOSC_VERSION_FORMAT,
    check_digest,
    decode_header,
    decompress_into,
)
from .constants import BLOSC_HEADER_LENGTH, MAX_BUFFERSIZE
from .exceptions import FormatError, NotReadable
from .headers import BLOSC_FLAG_MEMCPY, BLOSC_FLAG_RESERVED, BLOSC_HEADER
from .parallel import Workspace, for_each
from .ranges import FileRange, bytes_left, read_up_to

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from .checksums import Hash
    from .chunks import ChunkHeader

    # Where a chunk starts, where it and its digest end, and its header.
    Piece = tuple[int, int, ChunkHeader]

# How every chunk begins.
MARK = bytes((BLOSC_VERSION_FORMAT, BLOSC_VERSION_CODEC))
# What is read at a time while searching.
SEARCHED_AT_A_TIME = 2**22
# Of so many damaged chunks is kept what is wrong with them.
ERRORS_KEPT = 1000
# Block starts that are looked at before a candidate is read.
STARTS_LOOKED_AT = 256
# Candidates of this size are always tried; for larger ones there is an allowance, as
# a file may be made of nothing but beginnings of chunks.
SMALL_CANDIDATE = 4096
ALLOWANCE = 2**26


@contextmanager
def seekable(fp: Any) -> Iterator[Any]:
    """Give a file object that can seek: itself, or a copy of what it yields."""
    if bytes_left(fp) is not None:
        yield fp
        return
    import shutil
    import tempfile

    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(fp, copy)
        copy.seek(0)
        yield copy


class Content:
    """The bytes of a file from where it stands, read at any place by any thread."""

    def __init__(self, fp: Any) -> None:
        self._fp = fp
        self._lock = allocate_lock()
        self._range = FileRange.over(fp)
        self.size = bytes_left(fp) or 0
        self._start = fp.tell()

    def read_into(self, view: memoryview, offset: int) -> int:
        """Fill `view` from `offset` on; return the bytes read, fewer at the end."""
        if self._range is not None:
            return self._range.read_into(view, self._start + offset)
        with self._lock:
            self._fp.seek(self._start + offset)
            data = read_up_to(self._fp, len(view))
        view[: len(data)] = data
        return len(data)

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset` on, fewer at the end."""
        view = memoryview(bytearray(max(0, min(size, self.size - offset))))
        return bytes(view[: self.read_into(view, offset)])


class Chain:
    """Chunks one behind the other, as their headers tell; all positions are bytes.

    ``offsets`` and ``sizes`` tell where each starts and how many plain bytes it has,
    ``bad`` what is wrong with those that are damaged, by their place in the chain, and
    ``why`` what stands where the next one should be.
    """

    def __init__(self, start: int) -> None:
        self.start = self.stop = start
        self.offsets = array("q")
        self.sizes = array("q")
        self.bad: dict[int, FormatError | None] = {}
        self.why: FormatError | None = None
        self.ended = False

    def __len__(self) -> int:
        return len(self.offsets)

    def stop_of(self, i: int) -> int:
        """Return where the chunk at place `i` and its digest end."""
        return self.offsets[i + 1] if i + 1 < len(self.offsets) else self.stop

    def add(self, piece: Piece, error: FormatError | None) -> None:
        """Take the next chunk."""
        start, stop, header = piece
        if error is not None:
            self.bad[len(self)] = error if len(self.bad) < ERRORS_KEPT else None
        self.offsets.append(start)
        self.sizes.append(header.nbytes)
        self.stop = stop

    def trim(self) -> list[Broken]:
        """Drop the damaged chunks at the end; return them and what ended the chain."""
        dropped = []
        if self.why is not None:
            dropped.append(Broken(self.stop, None, self.why))
        while len(self) - 1 in self.bad:
            start, stop = self.offsets.pop(), self.stop
            error = self.bad.pop(len(self))
            dropped.append(Broken(start, stop, error, self.sizes.pop()))
            self.stop = start
        return dropped[::-1]


class Broken:
    """A place where a chunk should be, and what was found there instead.

    ``stop`` and ``nbytes`` are what its header says, None if that is none.
    """

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


class Examiner:
    """Tells whether a chunk is what it should be.

    Enter `chunks.own_settings` first. ``unread`` is set when a codec is missing.
    """

    def __init__(self, content: Content, checksum: Hash) -> None:
        self.content = content
        self.checksum = checksum
        self.unread: NotReadable | None = None
        self._stored = Workspace()
        self._plain = Workspace()

    def header_at(self, offset: int) -> ChunkHeader:
        """Return the chunk header at `offset`; raises `FormatError`."""
        head = self.content.read(offset, BLOSC_HEADER_LENGTH)
        try:
            return decode_header(head)
        except FormatError as error:
            error.offset = offset
            raise

    def check(self, piece: Piece) -> FormatError | None:
        """Return what is wrong with a chunk, None if nothing is."""
        offset, stop, header = piece
        if stop > self.content.size:
            return FormatError(
                "the file ends too early: expected a chunk and its digest of '%d' "
                "bytes, found '%d'" % (stop - offset, self.content.size - offset),
                section="chunks",
                offset=offset,
            )
        view = self._stored.view(stop - offset)
        self.content.read_into(view, offset)
        compressed, digest = view[: header.ctbytes], view[header.ctbytes :]
        try:
            check_digest(compressed, digest, self.checksum)
            decompress_into(compressed, self._plain.view(header.nbytes), header)
        except NotReadable as error:
            self.unread = error
        except FormatError as error:
            error.offset = offset
            return error
        except MemoryError:
            return FormatError(
                "there is no memory for a chunk of '%d' plain bytes" % header.nbytes,
                section="chunks",
                offset=offset,
            )
        return None

    def is_chunk(self, offset: int) -> bool:
        """Return whether there is a good chunk at `offset`."""
        try:
            header = self.header_at(offset)
        except FormatError:
            return False
        piece = offset, offset + header.ctbytes + self.checksum.size, header
        return self.check(piece) is None

    def checksum_of(self, offset: int, header: ChunkHeader) -> Hash | None:
        """Return the checksum whose digest lies behind a chunk, None if none does."""
        largest = max(checksum.size for checksum in CHECKSUMS)
        raw = memoryview(self.content.read(offset, header.ctbytes + largest))
        compressed, behind = raw[: header.ctbytes], raw[header.ctbytes :]
        for checksum in CHECKSUMS[1:]:
            digest = behind[: checksum.size]
            if len(digest) == checksum.size and checksum(compressed) == digest:
                return checksum
        return None


class Survey:
    """All chunks that can be found in a file.

    ``chains`` have good chunks at both ends; ``broken`` are places outside of them
    where there should be one. ``table`` are the entries of the offset table, empty
    if there are none; ``sizes`` the plain sizes that a chunk may have, empty if any.
    """

    def __init__(
        self,
        content: Content,
        checksum: Hash,
        table: Sequence[int],
        sizes: Sequence[int],
        nthreads: int,
    ) -> None:
        self.content = content
        self.checksum = checksum
        self.examiner = Examiner(content, checksum)
        self.chains: list[Chain] = []
        self.broken: list[Broken] = []
        self.gave_up = False
        self.beyond = False
        self._table = table
        self._sorted: Sequence[int] | None = None
        self._sizes = sizes
        self._nthreads = nthreads
        self._allowance = ALLOWANCE + 4 * content.size

    def run(self, first: int | None, base: int, limit: int | None) -> None:
        """Find all chunks.

        The first is expected at `first`, if that is known, and cannot lie in front of
        `base`; `limit` is how many there should be.
        """
        position, reached = first, base
        if position is None:
            position = self.find(base, self.content.size)
        while position is not None and position < self.content.size:
            chain = self._follow(position, limit)
            at_limit = len(chain) == limit
            # A damaged chunk that ends with the file, but is not known to be the last
            # one, may owe that to bytes that are missing from it.
            ends_well = at_limit or len(chain) - 1 not in chain.bad
            complete = (
                chain.stop == self.content.size and chain.why is None and ends_well
            )
            # Only the first chain is known to begin with the first chunk.
            limit = None
            dropped = chain.trim()
            self.broken += dropped[: max(0, ERRORS_KEPT - len(self.broken))]
            if len(chain):
                self.chains.append(chain)
                reached = chain.stop
            if complete or (at_limit and not dropped and not self._goes_on(chain)):
                return
            if at_limit and not dropped:
                position = chain.stop
                continue
            search_from = reached
            if len(chain) and not self.checksum.size:
                # Without a digest nobody knows whether its last chunk is complete.
                start, nbytes = chain.offsets[-1], chain.sizes[-1]
                dropped.insert(0, Broken(start, chain.stop, None, nbytes))
                search_from = start + 1
            position = self._resume(reached, search_from, position, dropped)
            if position is not None and len(chain) and position < chain.stop:
                reached = position
                chain.bad[len(chain) - 1] = None
                self.broken += chain.trim()
                if not len(chain):
                    self.chains.pop()

    def _goes_on(self, chain: Chain) -> bool:
        """Return whether a chunk follows where there should be no more."""
        self.beyond = self.examiner.is_chunk(chain.stop)
        return self.beyond

    def _follow(self, start: int, limit: int | None) -> Chain:
        """Return the chunks from `start` on, as their headers tell."""
        chain = Chain(start)
        size, digest_size = self.content.size, self.checksum.size

        def pieces() -> Iterator[Piece]:
            position, count = start, 0
            while position < size and count != limit and not chain.ended:
                try:
                    header = self.examiner.header_at(position)
                except FormatError as error:
                    chain.why = error
                    return
                stop = position + header.ctbytes + digest_size
                yield position, stop, header
                position, count = stop, count + 1

        def work(piece: Piece) -> tuple[Piece, FormatError | None]:
            return piece, self.examiner.check(piece)

        def deliver(result: tuple[Piece, FormatError | None]) -> None:
            if not chain.ended:
                chain.add(*result)
                chain.ended = result[1] is not None and self._misleads(result[0])

        try:
            nbytes = self.examiner.header_at(start).nbytes
        except FormatError as error:
            chain.why = error
            return chain
        batch = max(1, min(RUN // 4 // max(nbytes, 1), 64))
        for_each(pieces(), work, deliver, self._nthreads, batch, nbytes < QUICK_CHUNK)
        if chain.ended:
            chain.why = None
        return chain

    def _misleads(self, piece: Piece) -> bool:
        """Return whether the table knows of a chunk inside of a damaged one."""
        start, stop, _ = piece
        inside = self._next_entry(start)
        return inside is not None and inside < min(stop, self.content.size)

    @property
    def _entries(self) -> Sequence[int]:
        """The places that the table names, in order."""
        if self._sorted is None:  # nobody asks as long as nothing is damaged
            size = self.content.size
            self._sorted = array("q", sorted({e for e in self._table if 0 < e < size}))
        return self._sorted

    def _entry_at(self, i: int) -> int | None:
        return self._entries[i] if 0 <= i < len(self._entries) else None

    def _next_entry(self, position: int) -> int | None:
        """Return the first place behind `position` that the table names."""
        return self._entry_at(bisect_right(self._entries, position))

    def _resume(
        self, reached: int, start: int, tried: int, dropped: list[Broken]
    ) -> int | None:
        """Return where to go on, None if there is nothing more.

        Good chunks end at `reached`; others are looked for from `start` on, but not at
        `tried`. Those that the headers of damaged ones hide are found, as long as they
        are no part of them.
        """
        target = self._next_entry(reached)
        while target is not None and not self._may_resume(target, tried):
            target = self._next_entry(target)
        if target is not None and self._last_entry(target - 1) == reached:
            # The table says that there is but one chunk in front of it.
            return target
        stop = self.content.size if target is None else target
        while (found := self.find(start, stop)) is not None:
            start = found + 1
            if found == tried:
                continue
            end = self._end_around(found, dropped)
            if end is None:
                return found
            led_to, last = self._follow_good(found, end)
            if led_to > end or (led_to == self.content.size and self._fits(found)):
                return found
            # Without a digest, the last one may be longer than what is left of it.
            start = led_to if self.checksum.size else last + 1
        return target

    def _fits(self, position: int) -> bool:
        """Return whether the chunk at `position` has a size that it may have."""
        nbytes = self.examiner.header_at(position).nbytes
        return not self._sizes or nbytes in self._sizes

    def _last_entry(self, position: int) -> int | None:
        """Return the last place up to `position` that the table names."""
        return self._entry_at(bisect_right(self._entries, position) - 1)

    def _may_resume(self, target: int, tried: int) -> bool:
        if target == tried:
            return False
        try:
            ctbytes = self.examiner.header_at(target).ctbytes
        except FormatError:
            return False
        return self._allowed(ctbytes) and self.examiner.is_chunk(target)

    def _end_around(self, position: int, dropped: list[Broken]) -> int | None:
        """Return where a damaged chunk that seems to lie around `position` ends.

        Its header or the table may say so. What is found inside may be part of its
        data: somebody may have packed a packed file.
        """
        i = bisect_right(dropped, position, key=lambda broken: broken.start) - 1
        if i >= 0 and dropped[i].start < position < (dropped[i].stop or 0):
            return dropped[i].stop
        entry, following = self._last_entry(position), self._next_entry(position)
        if entry is None or entry == position or following is None:
            return None
        if not any(self._last_entry(c.start) == c.start for c in self.chains[-1:]):
            return None  # the table has not told the truth yet
        largest = max(self._sizes, default=MAX_BUFFERSIZE) + BLOSC_HEADER_LENGTH
        one_chunk = following - entry <= largest + self.checksum.size
        return following if one_chunk else None

    def _follow_good(self, position: int, stop: int) -> tuple[int, int]:
        """Return where the good chunks from `position` on end, or one behind `stop`.

        Those in the data of another chunk end in it; those moved there need not. Also
        returns where the last of them starts.
        """
        size, last = self.content.size, position
        while position <= stop and position < size:
            try:
                header = self.examiner.header_at(position)
            except FormatError:
                break
            following = position + header.ctbytes + self.checksum.size
            if self.examiner.check((position, following, header)) is not None:
                break
            last, position = position, following
        if not self.checksum.size and position < size:
            # Without a digest, one that is cut short swallows what follows it.
            try:
                self.examiner.header_at(position)
            except FormatError:
                position = min(position, stop)
        return position, last

    def _allowed(self, ctbytes: int) -> bool:
        """Return whether a candidate of that size may be tried."""
        if ctbytes <= SMALL_CANDIDATE:
            return True
        if self._allowance < 0:
            self.gave_up = True
            return False
        self._allowance -= ctbytes
        return True

    # Searching

    def find(self, start: int, stop: int) -> int | None:
        """Return where the first good chunk from `start` on begins, before `stop`."""
        sizes = self._sizes
        if self.chains and self.chains[0].sizes[0] not in sizes:
            sizes = ()  # the header is wrong about them
        for offset, header in self.candidates(start, stop):
            end = offset + header.ctbytes + self.checksum.size
            if sizes and header.nbytes not in sizes and end != self.content.size:
                continue
            if not self._allowed(header.ctbytes):
                continue
            piece = offset, end, header
            if self.examiner.check(piece) is None:
                return offset
        return None

    def candidates(self, start: int, stop: int) -> Iterator[tuple[int, ChunkHeader]]:
        """Yield places that look like chunks from `start` on, before `stop`."""
        while start < stop:
            size = min(SEARCHED_AT_A_TIME, stop - start)
            block = self.content.read(start, size + BLOSC_HEADER_LENGTH - 1)
            i = block.find(MARK)
            while -1 < i < size:
                header = self._plausible(start + i, block[i : i + BLOSC_HEADER_LENGTH])
                if header is not None:
                    yield start + i, header
                i = block.find(MARK, i + 1)
            start += size

    def _plausible(self, offset: int, head: bytes) -> ChunkHeader | None:
        """Return the header of what may be a chunk, None if it can't be one."""
        # Most fail here, and raising an error would take longer than all else.
        if len(head) < BLOSC_HEADER_LENGTH or head[2] & BLOSC_FLAG_RESERVED:
            return None
        _, _, flags, _, nbytes, blocksize, ctbytes = BLOSC_HEADER.unpack(head)
        if not BLOSC_HEADER_LENGTH <= ctbytes <= nbytes + BLOSC_HEADER_LENGTH:
            return None
        if offset + ctbytes + self.checksum.size > self.content.size:
            return None
        try:
            header = decode_header(head)
        except FormatError:
            return None
        if flags & BLOSC_FLAG_MEMCPY:
            return header
        return header if self._starts_fit(offset, nbytes, blocksize, ctbytes) else None

    def _starts_fit(
        self, offset: int, nbytes: int, blocksize: int, ctbytes: int
    ) -> bool:
        """Return whether the blocks of a chunk start inside of it."""
        nblocks = -(-nbytes // blocksize)
        first = BLOSC_HEADER_LENGTH + BLOCK_START_LENGTH * nblocks
        looked_at = min(nblocks, STARTS_LOOKED_AT) * BLOCK_START_LENGTH
        raw = self.content.read(offset + BLOSC_HEADER_LENGTH, looked_at)
        starts = struct.unpack("<%dI" % (len(raw) // BLOCK_START_LENGTH), raw)
        return all(first <= start < ctbytes for start in starts)


def find_checksum(content: Content, base: int) -> Hash | None:
    """Return the checksum that a chunk behind `base` confirms, None if none does."""
    survey = Survey(content, CHECKSUMS[0], (), (), 1)
    for offset, header in survey.candidates(base, content.size):
        if survey._allowed(header.ctbytes):
            checksum = survey.examiner.checksum_of(offset, header)
            if checksum is not None:
                return checksum
    return None
