"""How the chunks of a Zarr array are stored: codec, digest, and the index of a shard.

`CODECS` has a codec in each entry: a function that decompresses into memory of a known
size, and one that compresses. So no frame takes more memory than its array claims.

A frame of zstd is read and written by Blosc: a chunk of Blosc with one block is a
header of 24 bytes in front of such a frame.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from .._engine.blosc_settings import own_settings
from ..args import BloscArgs
from ..checksums import CHECKSUMS_LOOKUP
from ..constants import BLOSC_HEADER_LENGTH
from ..exceptions import DamageError
from .blosc_header import (
    BLOSC_CODEC_SHIFT,
    BLOSC_FLAG_SPLIT,
    BLOSC_HEADER,
    BLOSC_VERSION_CODEC,
    BLOSC_VERSION_FORMAT,
    BloscHeader,
    unpack_header,
)
from .chunks import check_digest, compress, decompress_into
from .codecs import CODECS as BLOSC_CODECS
from .shard import CRC_LENGTH, DEFAULT_SHARD_CHECKSUM, ENTRY

if TYPE_CHECKING:
    from .._storage.protocols import Buffer
    from ..serializers import Json, JsonObject
    from .chunks import Part

CHECKSUM = CHECKSUMS_LOOKUP[DEFAULT_SHARD_CHECKSUM]
# Start of the only block, and size of the stream in it: behind the header of a chunk.
BLOCK = struct.Struct("<II")
FRAME_START = BLOSC_HEADER_LENGTH + BLOCK.size
# zstd: the first bytes of a frame; a frame without content; the largest block in bytes.
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
ZSTD_SKIPPED = b"\x50\x2a\x4d\x18\0\0\0\0"
ZSTD_BLOCK = 2**17
# Flag of a frame: its size has 8 bytes, and the frame is one segment.
ZSTD_SIZED = b"\xe0"
# Settings of zlib for the format gzip.
GZIP_WINDOW = 31
# Maximum number of members of a chunk of gzip: for each of them, zlib copies all that
# follows. Writers make one.
GZIP_MEMBERS = 16
# Number of times to compress a chunk again of which another thread changed the blocks.
ATTEMPTS = 4


class ZarrCodec(NamedTuple):
    """A codec of Zarr.

    Attributes
    ----------
    decode
        Writes the plain bytes of a chunk to memory, which has their size, or at least
        those in the span that ``part()`` returns; returns whether it wrote all. Raises
        `FormatError` for any other chunk.
    encode
        Returns the compressed chunk; gets the configuration of the codec, and settings
        of Blosc.
    levels
        The levels that it has; empty if it has none.
    """

    decode: Callable[..., bool]
    encode: Callable[[memoryview, JsonObject, BloscArgs], bytes]
    levels: range = range(0)

    def reads(self, configuration: JsonObject) -> bool:
        """Return whether a configuration of the codec is known."""
        level: Json = configuration.get("level")
        return not self.levels or (type(level) is int and level in self.levels)


def _decode_plain(
    stored: memoryview, target: memoryview, part: Part | None = None
) -> bool:
    if len(stored) != len(target):
        raise _wrong_size(len(target), len(stored))
    target[:] = stored
    return True


def _wrong_size(expected: int, found: int) -> DamageError:
    return DamageError(
        "expected a chunk of '%d' plain bytes, found '%d'" % (expected, found),
        section="chunks",
    )


def _decode_gzip(
    stored: memoryview, target: memoryview, part: Part | None = None
) -> bool:
    done = members = 0
    try:
        rest: Buffer = stored
        while rest:  # there may be several members
            members += 1
            if members > GZIP_MEMBERS:
                raise zlib.error("more than %d members of gzip" % GZIP_MEMBERS)
            member = zlib.decompressobj(GZIP_WINDOW)
            found = member.decompress(rest, len(target) - done + 1)
            done += len(found)
            if done > len(target) or not member.eof:
                break
            target[done - len(found) : done] = found
            rest = member.unused_data
    except zlib.error as error:
        message = "zlib can't decompress the chunk: %s" % error
        raise DamageError(message, section="chunks") from error
    if done != len(target) or rest:
        raise _wrong_size(len(target), done)
    return True


def _encode_gzip(
    plain: memoryview, configuration: JsonObject, args: BloscArgs
) -> bytes:
    stream = zlib.compressobj(configuration["level"], wbits=GZIP_WINDOW)
    return stream.compress(plain) + stream.flush()


def _decode_zstd(
    stored: memoryview, target: memoryview, part: Part | None = None
) -> bool:
    frame = b"".join((stored, ZSTD_SKIPPED if len(stored) == len(target) else b""))
    if not target or not frame:
        raise _wrong_size(len(target), 0)
    # Blosc takes a stream for plain bytes if it has their size.
    flags = BLOSC_CODECS["zstd"].number << BLOSC_CODEC_SHIFT | BLOSC_FLAG_SPLIT
    size = len(target)
    fields = (
        *(BLOSC_VERSION_FORMAT, BLOSC_VERSION_CODEC, flags, 1),
        *(size, size, FRAME_START + len(frame)),
    )
    raw = BLOSC_HEADER.pack(*fields)
    block = BLOCK.pack(BLOSC_HEADER_LENGTH + 4, len(frame))
    return decompress_into(raw + block + frame, target, BloscHeader(raw, *fields))


def _encode_zstd(
    plain: memoryview, configuration: JsonObject, args: BloscArgs
) -> bytes:
    level = configuration["level"] or 3  # the default of zstd
    clevel = 9 if level > 16 else max(1, (level + 1) // 2)
    settings = BloscArgs(typesize=1, clevel=clevel, shuffle=False, cname="zstd")
    for _ in range(ATTEMPTS):
        own_settings.force_blocksize(len(plain))
        try:
            chunk = memoryview(compress(plain, settings))
        finally:
            own_settings.force_blocksize(0)
        header = unpack_header(chunk)
        frame = chunk[FRAME_START:]
        if header.is_copy or len(frame) == len(plain):
            break
        if header.nblocks == 1 and frame[:4] == ZSTD_MAGIC:
            return bytes(frame)
    return _stored_zstd(plain)


def _stored_zstd(plain: memoryview) -> bytes:
    """Return a frame of zstd with blocks that are not compressed."""
    parts: list[Buffer] = [ZSTD_MAGIC, ZSTD_SIZED, struct.pack("<Q", len(plain))]
    for start in range(0, len(plain), ZSTD_BLOCK):
        block = plain[start : start + ZSTD_BLOCK]
        is_last = start + ZSTD_BLOCK >= len(plain)
        parts += struct.pack("<I", len(block) << 3 | is_last)[:3], block
    return b"".join(parts)


# By name in the document; the empty name for chunks that are not compressed.
CODECS = {
    "": ZarrCodec(_decode_plain, lambda plain, *_: bytes(plain)),
    "blosc": ZarrCodec(decompress_into, lambda plain, _, args: compress(plain, args)),
    "zstd": ZarrCodec(_decode_zstd, _encode_zstd, range(-131072, 23)),
    "gzip": ZarrCodec(_decode_gzip, _encode_gzip, range(10)),
}


@dataclass(frozen=True)
class Packing:
    """How chunks are stored; by default as in the shards of this package.

    Attributes
    ----------
    codec
        A name in `CODECS`.
    configuration
        The configuration of the codec, unless it is that of Blosc.
    has_digests
        Whether the digest crc32c follows each chunk.
    has_index
        Whether a file is a shard: chunks and an index. Otherwise it is a chunk.
    index_at_start, index_has_digest
        Whether the index is in front of the chunks, and has a digest crc32c.
    """

    codec: str = "blosc"
    configuration: JsonObject = field(default_factory=dict)
    has_digests: bool = True
    has_index: bool = True
    index_at_start: bool = False
    index_has_digest: bool = True

    @property
    def is_own(self) -> bool:
        """Whether shards of this package, which are ``.blp`` files, are the same."""
        return self == OWN

    @property
    def digest_size(self) -> int:
        """Size in bytes of the digest behind a chunk."""
        return CHECKSUM.size if self.has_digests else 0

    def bounds(self, nbytes: int) -> tuple[int, int]:
        """Return the least and the greatest size of a chunk and its digest in bytes.

        Blosc adds at most a header to the `nbytes` plain bytes of a chunk; all other
        codecs add a small part of them.
        """
        if not self.codec:
            return nbytes + self.digest_size, nbytes + self.digest_size
        extra = 0 if self.codec == "blosc" else 2**10 + nbytes // 64
        return 1, nbytes + extra + BLOSC_HEADER_LENGTH + self.digest_size

    def index_size(self, nslots: int) -> int:
        """Return the size in bytes of the index of a shard, with its digest."""
        return ENTRY.size * nslots + CRC_LENGTH * self.index_has_digest

    def decode(
        self, frame: memoryview, target: memoryview, part: Part | None = None
    ) -> bool:
        """Write the plain bytes of a chunk to memory, as `ZarrCodec.decode` says.

        Return whether all were written. Enter `own_settings` first. Raises
        `FormatError` if the chunk is damaged.
        """
        if self.has_digests:
            end = max(0, len(frame) - CHECKSUM.size)
            frame, digest = frame[:end], frame[end:]
            check_digest(frame, digest, CHECKSUM)
        return CODECS[self.codec].decode(frame, target, part=part)

    def encode(self, plain: memoryview, args: BloscArgs) -> bytes:
        """Return a chunk without its digest. Enter `own_settings` first."""
        return CODECS[self.codec].encode(plain, self.configuration, args)

    def digest(self, chunk: Buffer) -> bytes:
        """Return the digest of a chunk; empty if none is stored."""
        return CHECKSUM(chunk) if self.has_digests else b""


OWN = Packing()
