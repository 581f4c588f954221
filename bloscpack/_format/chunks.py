"""Chunks: the only module that calls Blosc, after every size has been checked.

A chunk is one Blosc 1 buffer with its 16-byte header (docs/format.rst, Chunks).
Compressing gives the same bytes on every thread count and whatever the process has
set Blosc to, because all calls happen between `own_settings`.
"""

from __future__ import annotations

import struct

from .._engine.blosc_settings import own_settings
from ..constants import BLOSC_HEADER_LENGTH
from ..exceptions import (
    ChecksumLengthMismatch,
    ChecksumMismatch,
    FormatError,
    NotReadable,
)
from .blosc_header import BLOSC_FLAG_MEMCPY, BLOSC_HEADER, ChunkHeader, decode_header

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from ..args import BloscArgs
    from ..checksums import Hash

    Buffer = bytes | bytearray | memoryview


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
