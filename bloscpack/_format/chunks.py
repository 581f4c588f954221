"""Chunks: the only module that calls Blosc, after every size has been checked.

A chunk is one Blosc 1 buffer with its 16-byte header (docs/format.rst, Chunks).
Compressing gives the same bytes on every thread count and whatever the process has
set Blosc to, because all calls happen between `own_settings`.
"""

from __future__ import annotations

import os
import struct
from _thread import allocate_lock

from ..constants import BLOSC_HEADER_LENGTH, CNAME_MAPPING, MAX_BUFFERSIZE
from ..exceptions import (
    ChecksumLengthMismatch,
    ChecksumMismatch,
    FormatError,
    NotReadable,
)
from ..headers import (
    BLOSC_FLAG_MEMCPY,
    BLOSC_FLAG_RESERVED,
    BLOSC_HEADER,
)

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from typing import Any

    from ..args import BloscArgs
    from ..checksums import Hash

    Buffer = bytes | bytearray | memoryview

BLOSC_VERSION_FORMAT = 2
BLOSC_VERSION_CODEC = 1
# The most plain bytes that one byte of each codec's streams can stand for, by its
# number: lengths of 255 a byte; 64 in three bytes; 258 in two bits; 128 KiB in four.
MAX_RATIOS = {0: 255, 1: 255, 2: 22, 3: 1032, 4: 2**15}
# One four-byte block start in the chunk for every block.
BLOCK_START_LENGTH = 4


class _OwnSettings:
    """Blosc as Bloscpack needs it, for as long as any thread is inside.

    One thread of Blosc's own unless asked for more, the GIL released and automatic
    block sizes; released, Blosc also leaves the environment variables BLOSC_* aside.
    These settings belong to the process, so the first to enter remembers them and the
    last puts them back.
    """

    # Loaded by the first to enter: for a small chunk, even `import` takes its time.
    blosc: Any = None
    ctypes: Any = None

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._inside = 0
        self._saved: tuple[bool, int, int] | None = None
        #: Whether Blosc may lay blocks down in the order in which they are done.
        self.disordered = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset)

    def __enter__(self) -> None:
        if self.blosc is None:
            import ctypes

            import blosc

            self.ctypes, self.blosc = ctypes, blosc
        blosc = self.blosc
        with self._lock:
            if self._inside == 0:
                blocksize = blosc.get_blocksize()
                self._saved = (
                    blosc.set_releasegil(True),
                    blosc.set_nthreads(1),
                    blocksize,
                )
                if blocksize:
                    blosc.set_blocksize(0)
            elif self.disordered:
                blosc.set_nthreads(1)  # meant for the other, who was alone
            self._inside += 1

    def __exit__(self, *exc_info: object) -> None:
        with self._lock:
            # A child of fork may leave what its parent has entered.
            self._inside = max(self._inside - 1, 0)
            if self._inside == 0:
                self._restore()

    def use_threads_of_blosc(self, nthreads: int) -> None:
        """Let Blosc share a chunk among threads, if nobody else is inside."""
        with self._lock:
            if self._inside == 1:
                self.disordered = True
                self.blosc.set_nthreads(nthreads)

    def _restore(self) -> None:
        self.disordered = False
        if self._saved is not None:
            releasegil, nthreads, blocksize = self._saved
            self._saved = None
            self.blosc.set_releasegil(releasegil)
            self.blosc.set_nthreads(nthreads)
            if blocksize:
                self.blosc.set_blocksize(blocksize)

    def _reset(self) -> None:
        # A child of fork has none of the threads that were inside.
        self._lock = allocate_lock()
        self._inside = 0
        self._restore()


own_settings = _OwnSettings()


class ChunkHeader:
    """The header of a chunk, checked: plain and compressed size in bytes.

    ``raw`` is what it was decoded from.
    """

    __slots__ = ("ctbytes", "nbytes", "raw")

    def __init__(self, nbytes: int, ctbytes: int, raw: bytes) -> None:
        self.nbytes = nbytes
        self.ctbytes = ctbytes
        self.raw = raw

    @property
    def codec(self) -> str:
        """The name of the codec that is needed to decompress."""
        return CNAME_MAPPING[self.raw[2] >> 5]


def decode_header(head: Buffer) -> ChunkHeader:
    """Return the chunk header in the first 16 bytes of `head`.

    Every field is checked against what Blosc 1 can write; raises `FormatError`.
    """
    if len(head) < BLOSC_HEADER_LENGTH:
        raise FormatError(
            "expected a Blosc chunk header of '%d' bytes, found '%d'"
            % (BLOSC_HEADER_LENGTH, len(head)),
            section="chunks",
        )
    raw = bytes(head[:BLOSC_HEADER_LENGTH])
    fields = BLOSC_HEADER.unpack(raw)
    problem = _problem_with(*fields)
    if problem is not None:
        raise FormatError(
            "not a Blosc chunk: expected %s to be %s, found %d" % problem,
            section="chunks",
        )
    _, _, _, _, nbytes, _, ctbytes = fields
    return ChunkHeader(nbytes, ctbytes, raw)


def _problem_with(
    version: int,
    versionlz: int,
    flags: int,
    typesize: int,
    nbytes: int,
    blocksize: int,
    ctbytes: int,
) -> tuple[str, object, int] | None:
    """Return the first field that can't be: its name, what was expected, what it is."""
    codec = flags >> 5
    if version != BLOSC_VERSION_FORMAT:
        return "version", BLOSC_VERSION_FORMAT, version
    if versionlz != BLOSC_VERSION_CODEC:
        return "codec version", BLOSC_VERSION_CODEC, versionlz
    if flags & BLOSC_FLAG_RESERVED:
        return "reserved flag", 0, 1
    if codec not in CNAME_MAPPING:
        return "codec number", "0 to %d" % max(CNAME_MAPPING), codec
    if typesize == 0:
        return "typesize", "1 to 255", 0
    if nbytes > MAX_BUFFERSIZE:
        return "nbytes", "at most %d" % MAX_BUFFERSIZE, nbytes
    if not 1 <= blocksize <= (nbytes or 1):
        return "blocksize", "1 to nbytes = %d" % nbytes, blocksize
    # A copy of the plain bytes has no block starts.
    largest = nbytes + BLOSC_HEADER_LENGTH
    copied = flags & BLOSC_FLAG_MEMCPY
    smallest = largest if copied else smallest_ctbytes(nbytes, blocksize)
    if not smallest <= ctbytes <= largest:
        return "ctbytes", "%d to %d" % (smallest, largest), ctbytes
    # Before memory is asked for: no codec can make so much of so little.
    most = MAX_RATIOS[codec] * ctbytes
    if nbytes > most:
        return "nbytes", "at most %d in '%d' bytes" % (most, ctbytes), nbytes
    return None


def smallest_ctbytes(nbytes: int, blocksize: int) -> int:
    """Return the least bytes that a chunk of `nbytes` in such blocks can take."""
    nblocks = -(-nbytes // blocksize)
    return BLOSC_HEADER_LENGTH + BLOCK_START_LENGTH * nblocks


def plain_size(compressed: Buffer) -> int:
    """Return the plain bytes of a chunk that Blosc has just made."""
    return int.from_bytes(compressed[4:8], "little")


def check_digest(compressed: Buffer, digest: Buffer, checksum: Hash) -> None:
    """Raise unless `digest` is that of the chunk `compressed`.

    Raises `ChecksumLengthMismatch` or `ChecksumMismatch`.
    """
    if len(digest) != checksum.size:
        raise ChecksumLengthMismatch(
            "expected a digest of '%d' bytes (%s), found '%d'"
            % (checksum.size, checksum.name, len(digest)),
            section="chunks",
        )
    expected = checksum(compressed)
    if expected != digest:
        raise ChecksumMismatch(
            "Checksum mismatch detected in chunk, expected: %r, received: %r"
            % (bytes(digest), expected),
            section="chunks",
        )


def compress(plain: Buffer, blosc_args: BloscArgs) -> bytes:
    """Return `plain`, a buffer of bytes, as one chunk. Enter `own_settings` first."""
    compressed: bytes = own_settings.blosc.compress(
        plain,
        typesize=blosc_args.typesize,
        clevel=blosc_args.clevel,
        shuffle=int(blosc_args.shuffle),
        cname=blosc_args.cname,
    )
    return in_block_order(compressed) if own_settings.disordered else compressed


def in_block_order(compressed: bytes) -> bytes:
    """Return a chunk with its blocks in order, as one thread of Blosc lays them down.

    The table behind the chunk header tells where each block starts; each ends where
    another one starts.
    """
    from .._engine.prealloc import BytesUnderConstruction

    _, _, flags, _, nbytes, blocksize, ctbytes = BLOSC_HEADER.unpack_from(compressed)
    nblocks = -(-nbytes // blocksize)
    if flags & BLOSC_FLAG_MEMCPY or nblocks <= 1:
        return compressed
    table = struct.Struct("<%dI" % nblocks)
    starts = table.unpack_from(compressed, BLOSC_HEADER_LENGTH)
    ordered = sorted(starts)
    if list(starts) == ordered:
        return compressed
    ends = dict(zip(ordered, [*ordered[1:], ctbytes], strict=True))
    view = memoryview(compressed)
    blocks = [view[start : ends[start]] for start in starts]
    made = BytesUnderConstruction(ctbytes)
    made.view[:BLOSC_HEADER_LENGTH] = view[:BLOSC_HEADER_LENGTH]
    position = BLOSC_HEADER_LENGTH + table.size
    new_starts = []
    for block in blocks:
        new_starts.append(position)
        made.put(position, block)
        position += len(block)
    table.pack_into(made.view, BLOSC_HEADER_LENGTH, *new_starts)
    return made.finish()


def _check_whole(compressed: Buffer, known: ChunkHeader | None) -> ChunkHeader:
    # Read anew, the chunk may be another than the one whose header was checked.
    if known is not None and compressed[:BLOSC_HEADER_LENGTH] == known.raw:
        header = known
    else:
        header = decode_header(compressed)
    if header.ctbytes != len(compressed):
        raise FormatError(
            "expected a Blosc chunk of '%d' bytes, found '%d'"
            % (header.ctbytes, len(compressed)),
            section="chunks",
        )
    return header


def _failure(error: Exception, header: ChunkHeader) -> FormatError:
    from ..constants import CNAME_AVAIL

    if header.codec not in CNAME_AVAIL:
        return NotReadable(
            "the chunk needs the codec '%s', which this Blosc lacks (it has %s)"
            % (header.codec, ", ".join(CNAME_AVAIL)),
            section="chunks",
        )
    if isinstance(error, MemoryError):
        return FormatError(
            "there is no memory for the chunk's '%d' plain bytes" % header.nbytes,
            section="chunks",
        )
    return FormatError("Blosc can't decompress the chunk: %s" % error, section="chunks")


def decompress(compressed: Buffer, known: ChunkHeader | None = None) -> bytes:
    """Return the plain bytes of a chunk. Enter `own_settings` first.

    `known` is its header, if that has been decoded before. Raises `FormatError` if
    the chunk is damaged or its codec is missing.
    """
    header = _check_whole(compressed, known)
    try:
        plain: bytes = own_settings.blosc.decompress(compressed)
    except Exception as error:  # Blosc raises its own error, ValueError or MemoryError
        raise _failure(error, header) from error
    return plain


def decompress_into(
    compressed: Buffer, destination: memoryview, known: ChunkHeader | None = None
) -> None:
    """Write the plain bytes of a chunk to `destination`. Enter `own_settings` first.

    `known` is its header, if that has been decoded before. Raises `FormatError` if
    the chunk is damaged, its codec is missing, or it does not hold exactly the bytes
    of `destination`; then these may have any value.
    """
    header = _check_whole(compressed, known)
    if header.nbytes != destination.nbytes:
        raise FormatError(
            "expected a chunk of '%d' plain bytes, found '%d'"
            % (destination.nbytes, header.nbytes),
            section="chunks",
        )
    if not header.nbytes:
        return
    ctypes = own_settings.ctypes
    address = ctypes.addressof(ctypes.c_char.from_buffer(destination))
    try:
        own_settings.blosc.decompress_ptr(compressed, address)
    except Exception as error:  # Blosc raises its own error, ValueError or MemoryError
        raise _failure(error, header) from error
