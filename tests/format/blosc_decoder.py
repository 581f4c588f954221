"""A decoder of chunks, written from docs/format-appendix.rst alone.

It has the filters, blosclz and LZ4; zlib is Python's. `independent_reader` checks the
header of a chunk (C1 to C3) before.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np


class Damaged(Exception):
    """The inside of the chunk breaks the rule that the first argument names."""


def check(rule: str, holds: object) -> None:
    if not holds:
        raise Damaged(rule)


def decode(chunk: bytes) -> bytes:
    """Return the plain bytes of a chunk of blosclz, lz4 or zlib, or of a copy."""
    fields = struct.unpack_from("<4B3I", chunk)
    _, _, flags, typesize, nbytes, blocksize, ctbytes = fields
    if flags & 2:
        return chunk[16:ctbytes]
    blocks = []
    nblocks = -(-nbytes // blocksize)
    check("B1", blocksize <= 715827542)
    for i, start in enumerate(struct.unpack_from(f"<{nblocks}I", chunk, 16)):
        check("B1", start >= 16 + 4 * nblocks)
        size = min(blocksize, nbytes - i * blocksize)
        is_split = not flags & 16 and typesize <= 16 and blocksize // typesize >= 128
        count = typesize if is_split and size == blocksize else 1
        block = b""
        for _ in range(count):
            stream, start = stream_at(chunk[:ctbytes], start)
            plain = stream
            if len(stream) != size // count:
                plain = CODECS[flags >> 5](stream)
                check("B3", len(plain) == size // count)
            block += plain
        blocks.append(unfiltered(block, flags, typesize))
    return b"".join(blocks)


def stream_at(chunk: bytes, start: int) -> tuple[bytes, int]:
    """Return the stored bytes of a stream, and where the next one begins (B3)."""
    check("B3", start + 4 <= len(chunk))
    (size,) = struct.unpack_from("<i", chunk, start)
    check("B3", 1 <= size <= len(chunk) - start - 4)
    return chunk[start + 4 : start + 4 + size], start + 4 + size


def unfiltered(block: bytes, flags: int, typesize: int) -> bytes:
    """Return a block as it was before the filter (B4)."""
    count = len(block) // typesize
    items = np.frombuffer(block, "u1", count * typesize)
    if flags & 1:
        items = items.reshape(typesize, count).T
    elif flags & 4 and count % 8 == 0:
        bits = np.unpackbits(items, bitorder="little").reshape(typesize, 8, count)
        items = np.packbits(bits.transpose(2, 0, 1), bitorder="little")
    return items.tobytes() + block[count * typesize :]


def blosclz(stream: bytes) -> bytes:
    """Return the plain bytes of a stream of blosclz (B5)."""
    source, plain = iter(stream), bytearray()
    first = 31
    try:
        for c in source:
            c, first = c & first, 255
            if c < 32:
                plain += bytes(next(source) for _ in range(c + 1))
                continue
            length = c // 32 + 2
            if c >= 224:
                length += total(source)
            d = next(source)
            distance = 256 * (c % 32) + d + 1
            if d == 255 and c % 32 == 31:
                distance = 256 * next(source) + next(source) + 8192
            repeat(plain, distance, length)
    except (StopIteration, RuntimeError) as error:
        raise Damaged("B5") from error
    return bytes(plain)


def lz4(stream: bytes) -> bytes:
    """Return the plain bytes of an LZ4 block."""
    source, plain = iter(stream), bytearray()
    for token in source:
        length = token // 16
        length += total(source) if length == 15 else 0
        plain += bytes(next(source) for _ in range(length))
        low = next(source, None)
        if low is None:
            break
        distance = low + 256 * next(source)
        length = token % 16 + 4
        length += total(source) if length == 19 else 0
        repeat(plain, distance, length)
    return bytes(plain)


def total(source) -> int:
    """Return the sum of the next bytes, up to the first one that is not 255."""
    found = 0
    for byte in source:
        found += byte
        if byte != 255:
            break
    return found


def repeat(plain: bytearray, distance: int, length: int) -> None:
    """Append bytes that begin `distance` before the end, one by one."""
    check("B5", 1 <= distance <= len(plain))
    for _ in range(length):
        plain.append(plain[-distance])


CODECS = {0: blosclz, 1: lz4, 3: zlib.decompress}
