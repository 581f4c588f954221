"""A reader of all layouts, written from docs/format.rst alone.

It shares no code with the package, only Blosc. `read` returns the content of a file in
memory; `Refused` names the rule that a file breaks. `independent_arrays` is its part
for arrays, `independent_shards` that for trailers.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Callable
from typing import NamedTuple

import blosc

LARGEST_CHUNK, LARGEST = 2**31 - 17, 2**63 - 1
CHECKSUMS = [
    lambda data: b"",
    lambda data: struct.pack("<I", zlib.adler32(data)),
    lambda data: struct.pack("<I", zlib.crc32(data)),
    *(hashlib.md5, hashlib.sha1),
    *(hashlib.sha224, hashlib.sha256, hashlib.sha384, hashlib.sha512),
    lambda data: struct.pack("<I", crc32c(data)),
]
RATIOS = {0: 255, 1: 255, 2: 22, 3: 1032, 4: 32768}


def crc32c(data: bytes) -> int:
    state = 2**32 - 1
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ 0x82F63B78 * (state & 1)
    return state ^ 2**32 - 1


class Refused(Exception):
    """The file breaks the rule that the first argument names."""


class NotSupported(Refused):
    """The file is no damaged one."""


def check(rule: str, holds: bool) -> None:
    if not holds:
        raise Refused(rule)


def digest_of(number: int, data: bytes) -> bytes:
    digest = CHECKSUMS[number](data)
    return digest if isinstance(digest, bytes) else digest.digest()


class Header(NamedTuple):
    layout: int
    size: int
    nchunks: int
    options: int = 0
    checksum: int = 0
    chunk_size: int = -1
    last_chunk: int = -1
    max_app_chunks: int = 0


class Content(NamedTuple):
    """The sections of a file, the plain bytes of its chunks, and where these are."""

    header: Header
    metadata: object
    pieces: list[bytes]
    extents: list[tuple[int, int]]  # of each chunk with its digest


# The sections


def read(data: bytes) -> tuple[bytes, object]:
    """Return the plain bytes and the metadata of a file."""
    content = read_all(data)
    return b"".join(content.pieces), content.metadata


def read_all(data: bytes) -> Content:
    """Return everything in a file but its trailer."""
    content, position = read_front(data)
    return read_chunks(data, content, position)


def read_front(data: bytes) -> tuple[Content, int]:
    """Return what lies in front of the chunks, and where they begin."""
    header = read_header(data)
    position, metadata = header.size, None
    if header.options & 2:
        metadata, position = read_metadata(data, position)
    if header.options & 1 and header.nchunks != -1:
        position += 8 * (header.nchunks + header.max_app_chunks)
        check("O6", position <= len(data))  # O3: nothing else uses the table
    least = 16 + len(digest_of(header.checksum, b""))
    check("F4", position + header.nchunks * least <= len(data))
    return Content(header, metadata, [], []), position


def read_chunks(data: bytes, content: Content, position: int) -> Content:
    """Add the chunks from a position on."""
    header, pieces = content.header, content.pieces
    while len(pieces) != header.nchunks:
        if header.nchunks == -1 and position == len(data):
            check("U3", bool(pieces) or header.last_chunk < 1)
            return content

        def check_size(nbytes: int, stop: int) -> None:
            """In a stream the last chunk ends the file."""
            is_stream = header.nchunks == -1
            is_at_end = stop == len(data)
            is_last = is_at_end if is_stream else len(pieces) == header.nchunks - 1
            stated = header.last_chunk if is_last else header.chunk_size
            check("U3" if is_stream else "C4", stated in (-1, nbytes))
            if is_stream and is_last and header.last_chunk == -1 != header.chunk_size:
                check("U3", nbytes <= header.chunk_size)

        chunk, stop = read_frame(data, position, header.checksum, check_size)
        pieces.append(decompress(chunk))
        content.extents.append((position, stop))
        position = stop
    if not header.nchunks:
        check("H8", position == len(data))
    check("C7", not frame_at(data, position, header.checksum))
    return content


def read_header(data: bytes) -> Header:
    check("T1", len(data) < 4 or data[:4] == b"blpk")
    if len(data) >= 24:
        fields = struct.unpack_from("<4B3I", data, 8)
        version, lz, _, typesize, nbytes, _, ctbytes = fields
        possible = (version, lz) == (2, 1) and typesize and nbytes <= LARGEST_CHUNK
        if possible and 16 <= ctbytes <= nbytes + 16:
            return Header(0, 8, struct.unpack_from("<I", data, 4)[0])
    check("T3", len(data) >= 32)
    check("T4", data[4] in (1, 2, 3))
    if data[4] == 1:
        check("L5", data[5:8] == bytes(3))
        (nchunks,) = struct.unpack_from("<q", data, 8)
        check("H6", nchunks >= -1)
        return Header(1, 16, nchunks)
    fields = struct.unpack_from("<4sBBBBiiqq", data)
    _, layout, options, checksum, _, chunk_size, last_chunk, nchunks, free = fields
    if layout == 2:
        options, free = options & 1, 0  # L2, L3
    check("H6", checksum < 10 and options < 4)
    check("H5", nchunks != 0 or last_chunk < 1)
    check("H6", nchunks >= -1 and free >= 0)
    check("H6", all(-1 <= size <= LARGEST_CHUNK for size in (chunk_size, last_chunk)))
    check(
        "H1", layout == 2 or -1 in (chunk_size, last_chunk) or last_chunk <= chunk_size
    )
    check("H2", nchunks != -1 or free == 0)
    check("H3", nchunks + free <= LARGEST)
    return Header(layout, 32, nchunks, options, checksum, chunk_size, last_chunk, free)


def read_metadata(data: bytes, start: int) -> tuple[object, int]:
    check("M9", start + 32 <= len(data))
    fields = struct.unpack_from("<8sBBBBIII8s", data, start)
    name, options, checksum, codec, level, size, room, stored_size, user = fields
    check("M1", (name, options, user) == (b"JSON\0\0\0\0", 0, bytes(8)))
    check("M1", checksum < 10 and codec < 2 and level < 10)
    check("M2", stored_size <= room)
    check("M6", size <= max(2**24, 32 * stored_size))
    digest_at = start + 32 + room
    digest_size = len(digest_of(checksum, b""))
    check("M9", digest_at + digest_size <= len(data))
    stored = data[start + 32 : start + 32 + stored_size]
    digest = data[digest_at : digest_at + digest_size]
    check("M3", digest == digest_of(checksum, stored))
    text = stored
    if codec == 1:
        stream = zlib.decompressobj()
        try:
            text = stream.decompress(stored, size + 1)
        except zlib.error as error:
            raise Refused("M5") from error
        check("M5", stream.eof and not stream.unused_data)
    check("M5", len(text) == size)
    return parse_json(text), digest_at + digest_size


def parse_json(text: bytes, rule: str = "M7") -> object:
    """Return the value of a text that follows M7; `rule` names what it is part of."""

    def whole_number(digits: str) -> int:
        check(rule, len(digits.lstrip("-")) <= 4300)
        return int(digits)

    try:
        value = json.loads(text.decode("utf-8"), parse_int=whole_number)
    except (ValueError, RecursionError) as error:
        raise Refused(rule) from error
    level = [value]
    for _ in range(101):
        found = [each for each in level if isinstance(each, (dict, list))]
        level = [
            inner
            for each in found
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
    check(rule, not found)
    return value


# The chunks


def read_frame(
    data: bytes, start: int, checksum: int, check_size: Callable[[int, int], None]
) -> tuple[bytes, int]:
    """Return a chunk with a right digest, and the end of the frame.

    `check_size` gets the plain size and the end.
    """
    check("C3", start + 16 <= len(data))
    fields = struct.unpack_from("<4B3I", data, start)
    version, lz, flags, typesize, nbytes, blocksize, ctbytes = fields
    check("C1", (version, lz) == (2, 1) and not flags & 8 and flags & 5 != 5)
    check("C1", flags >> 5 in RATIOS and typesize > 0 and nbytes <= LARGEST_CHUNK)
    check("C1", 1 <= blocksize <= max(nbytes, 1))
    least = nbytes + 16 if flags & 2 else 16 + 4 * -(-nbytes // blocksize)
    check("C2", least <= ctbytes <= nbytes + 16)
    check("C2", nbytes <= ctbytes * RATIOS[flags >> 5])
    end = start + ctbytes
    stop = end + len(digest_of(checksum, b""))
    check_size(nbytes, stop)
    check("C3", stop <= len(data))
    check("C5", digest_of(checksum, data[start:end]) == data[end:stop])
    return data[start:end], stop


def frame_at(data: bytes, start: int, checksum: int) -> bool:
    """Return whether a complete frame starts there (C7)."""
    try:
        content, _ = read_frame(data, start, checksum, lambda nbytes, stop: None)
        if not checksum:
            decompress(content)
    except Refused:
        return False
    return True


def decompress(content: bytes) -> bytes:
    if content[2] >> 5 == 2 and not content[2] & 2 and content[4:8] != bytes(4):
        check("C11", "snappy" in blosc.compressor_list())
    try:
        plain: bytes = blosc.decompress(content)
    except Exception as error:  # the class of Blosc has no public name
        raise Refused("C6") from error
    return plain
