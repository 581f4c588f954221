"""The part of `independent_reader` for shards: the trailer, as Zarr reads it.

`read_shard` uses only the index to find the chunks; `Refused` names the rule that the
trailer breaks.
"""

from __future__ import annotations

import math
import struct

from format.independent_arrays import describe
from format.independent_reader import (
    LARGEST_CHUNK,
    Content,
    Refused,
    check,
    crc32c,
    decompress,
    read_all,
    read_frame,
)

SEPARATOR = b"shard\0\0\0"
MISSING = 2**64 - 1


def read_shard(data: bytes) -> bytes | None:
    """Return the plain bytes that the index leads to; None if the file is no shard."""
    content = read_all(data)
    inner = inner_size(content)
    if inner is None:
        return None
    end = content.extents[-1][1]
    check("S4", data[end : end + 8] == SEPARATOR)
    header = content.header
    nslots = header.nchunks + header.max_app_chunks
    index_at = len(data) - 4 - 16 * nslots
    check("S4", index_at >= end + 8)
    stored = data[index_at:-4]
    check("S7", struct.pack("<I", crc32c(stored)) == data[-4:])
    entries = [*struct.iter_unpack("<QQ", stored)]
    expected = [(start, stop - start) for start, stop in content.extents]
    last = content.pieces[-1]
    if not last:
        expected[-1] = MISSING, MISSING
    elif len(last) < inner:  # S3
        expected[-1] = end + 8, index_at - end - 8
        check_copy(data, end + 8, index_at, header.checksum, last.ljust(inner, b"\0"))
    else:
        check("S4", index_at == end + 8)
    check("S4", bool(last) or index_at == end + 8)
    free = [(MISSING, MISSING)] * (nslots - len(expected))
    check("S6", expected + free == entries)
    chunks = [data[at : at + n] for at, n in entries if (at, n) != (MISSING, MISSING)]
    return b"".join(decompress(read_frame(c, 0, header.checksum)[0]) for c in chunks)


def check_copy(data: bytes, start: int, stop: int, checksum: int, plain: bytes) -> None:
    """Check that the padded copy of the last chunk fills the extent."""
    try:
        chunk, _, end = read_frame(data, start, checksum)
        check("S5", end == stop)
        check("S5", decompress(chunk) == plain)
    except Refused as error:
        raise Refused("S5") from error


def inner_size(content: Content) -> int | None:
    """Return the plain size of an inner chunk; None if the file has no trailer."""
    header, metadata = content.header, content.metadata
    if not header.options & 1:  # S2
        return None
    if not isinstance(metadata, dict) or metadata.get("container") != "numpy":
        return None
    rows = metadata.get("shard")
    if type(rows) is not int or rows < 1:  # S1
        return None
    try:
        _, itemsize, shape, order = describe(metadata, sum(map(len, content.pieces)))
    except Refused:
        return None
    size = rows * itemsize * math.prod(shape[1:])
    sizes = header.nchunks, header.chunk_size, header.last_chunk
    if not shape or (order == "F" and len(shape) > 1) or not 0 < size <= LARGEST_CHUNK:
        return None  # S2
    if -1 in sizes or not header.nchunks or header.last_chunk > size:
        return None
    return size if header.nchunks == 1 or header.chunk_size == size else None
