"""Compress and decompress chunks: the only module that calls Blosc.

A chunk is a buffer of Blosc 1 with its 16-byte header (docs/format.rst, Chunks). Every
size is checked before Blosc is called. All calls happen inside `own_settings`, so that
the compressed bytes do not depend on the number of threads or on the settings that the
process gave to Blosc.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .._engine.blosc_settings import own_settings
from ..args import BloscArgs
from ..checksums import Hash
from ..constants import BLOSC_HEADER_LENGTH
from ..exceptions import (
    ChecksumLengthMismatch,
    ChecksumMismatch,
    DamageError,
    FormatError,
    Unsupported,
)
from .blosc_header import (
    BloscHeader,
    check_plain_size,
    decode_block_starts,
    decode_header,
    encode_block_starts,
    unpack_header,
)
from .codecs import CODECS

if TYPE_CHECKING:
    from .._storage.protocols import Buffer
    from .automatic import Setting


def plain_size(compressed: Buffer) -> int:
    """Return the number of plain bytes in a chunk that Blosc has just compressed."""
    return unpack_header(compressed).nbytes


def check_digest(compressed: Buffer, digest: Buffer, checksum: Hash) -> None:
    """Check that `digest` is the digest of the chunk `compressed`.

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


def is_intact(content: Buffer, header: BloscHeader, checksum: Hash) -> bool:
    """Return whether `content` is a chunk and its digest, without damage.

    Without digests, a chunk counts as intact if Blosc decompresses it. `header` is the
    decoded header of the chunk.
    """
    if len(content) != header.ctbytes + checksum.size:
        return False
    compressed, digest = content[: header.ctbytes], content[header.ctbytes :]
    if checksum.size:
        return checksum(compressed) == digest
    try:
        with own_settings:
            decompress(compressed, header)
    except FormatError:
        return False
    return True


def compress(plain: Buffer, blosc_args: BloscArgs | Setting) -> bytes:
    """Return `plain` compressed to one chunk. Enter `own_settings` first."""
    compressed: bytes = own_settings.blosc.compress(
        plain,
        typesize=blosc_args.typesize,
        clevel=blosc_args.clevel,
        shuffle=int(blosc_args.shuffle),
        cname=blosc_args.cname,
    )
    return in_block_order(compressed) if own_settings.disordered else compressed


def in_block_order(compressed: bytes) -> bytes:
    """Return the chunk with its blocks in the order in which one thread writes them.

    Several threads of Blosc write the blocks in any order. Every block ends where
    another block, or the chunk, ends: the block table has only the starts.
    """
    from .._engine.prealloc import BytesUnderConstruction

    header = unpack_header(compressed)
    if header.is_copy or header.nblocks <= 1:
        return compressed
    view = memoryview(compressed)
    starts = decode_block_starts(view[BLOSC_HEADER_LENGTH : header.table_end])
    ordered = sorted(starts)
    if list(starts) == ordered:
        return compressed
    ends = dict(zip(ordered, [*ordered[1:], header.ctbytes], strict=True))
    result = BytesUnderConstruction(header.ctbytes)
    result.view[:BLOSC_HEADER_LENGTH] = header.raw
    position = header.table_end
    new_starts = []
    for start in starts:
        block = view[start : ends[start]]
        new_starts.append(position)
        result.put(position, block)
        position += len(block)
    table = encode_block_starts(new_starts)
    result.view[BLOSC_HEADER_LENGTH : header.table_end] = table
    return result.finish()


def _check_whole(compressed: Buffer, known: BloscHeader | None) -> BloscHeader:
    # The file may have changed between reading the header and reading the chunk.
    if known is not None and compressed[:BLOSC_HEADER_LENGTH] == known.raw:
        header = known
    else:
        header = decode_header(compressed)
    if header.ctbytes != len(compressed):
        raise DamageError(
            "expected a Blosc chunk of '%d' bytes, found '%d'"
            % (header.ctbytes, len(compressed)),
            section="chunks",
        )
    return header


def decompress(compressed: Buffer, known: BloscHeader | None = None) -> bytes:
    """Return the plain bytes of a chunk. Enter `own_settings` first.

    `known` is its header, if it was decoded before. Raises `FormatError` if
    the chunk is damaged or its codec is missing.
    """
    header = _check_whole(compressed, known)
    try:
        plain: bytes = own_settings.blosc.decompress(compressed)
    except Exception as error:  # Blosc raises its own error, ValueError or MemoryError
        from .._engine.prealloc import BytesUnderConstruction

        made: list[BytesUnderConstruction] = []

        def room() -> memoryview:
            made.append(BytesUnderConstruction(header.nbytes))
            return made[0].view

        _decompress_without_blosc(compressed, room, header, error)
        return made[0].finish()
    return plain


def decompress_into(
    compressed: Buffer, destination: memoryview, known: BloscHeader | None = None
) -> None:
    """Write the plain bytes of a chunk to `destination`. Enter `own_settings` first.

    `known` is its header, if it was decoded before. Raises `FormatError` if the chunk
    is damaged, its codec is missing, or its plain size is not that of `destination`,
    whose content is then undefined.
    """
    header = _check_whole(compressed, known)
    check_plain_size(header, destination.nbytes)
    if not header.nbytes:
        return
    ctypes = own_settings.ctypes
    address = ctypes.addressof(ctypes.c_char.from_buffer(destination))
    try:
        own_settings.blosc.decompress_ptr(compressed, address)
    except Exception as error:  # Blosc raises its own error, ValueError or MemoryError
        _decompress_without_blosc(compressed, lambda: destination, header, error)


def _decompress_without_blosc(
    compressed: Buffer,
    room: Callable[[], memoryview],
    header: BloscHeader,
    refusal: Exception,
) -> None:
    """Decompress a chunk that Blosc refused, with the extra that knows its codec.

    ``room()`` returns the memory for the plain bytes. Raises `FormatError` if there is
    no such extra, or if the chunk is damaged.
    """
    from ..constants import CNAME_AVAIL
    from . import snappy

    cause = refusal
    if header.codec not in CNAME_AVAIL:
        extra = CODECS[header.codec].extra
        library = snappy.find_codec() if extra == "snappy" else None
        if library is None:
            hint = "; the extra '%s' reads it: pip install 'bloscpack[%s]'"
            raise Unsupported(
                "the chunk needs the codec '%s', which this Blosc lacks (it has %s)%s"
                % (
                    header.codec,
                    ", ".join(CNAME_AVAIL),
                    "" if extra is None else hint % (extra, extra),
                ),
                section="chunks",
            ) from refusal
        if not isinstance(refusal, MemoryError):
            try:
                snappy.decompress_into(compressed, room(), header, library)
                return
            except (ValueError, MemoryError) as error:
                cause = error
    message = "Blosc can't decompress the chunk: %s" % cause
    if isinstance(cause, MemoryError):
        message = "there is no memory for the chunk's '%d' plain bytes" % header.nbytes
    raise DamageError(message, section="chunks") from cause
