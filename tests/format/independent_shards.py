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

MISSING = 2**64 - 1, 2**64 - 1


def read_shard(data: bytes) -> bytes | None:
    """Return the plain bytes that the index leads to; None if the file is no shard."""
    content = read_all(data)
    inner = inner_size(content)
    if inner is None:
        return None
    header, last, end = content.header, content.pieces[-1], content.extents[-1][1] + 8
    nslots = header.nchunks + header.max_app_chunks
    index_at = len(data) - 4 - 16 * nslots
    check("S4", data[end - 8 : end] == b"shard\0\0\0" and index_at >= end)
    check("S7", struct.pack("<I", crc32c(data[index_at:-4])) == data[-4:])
    expected = [(start, stop - start) for start, stop in content.extents]
    if 0 < len(last) < inner:  # S3
        expected[-1] = end, index_at - end
        try:
            copy = read_frame(data[:index_at], end, header.checksum, any_size)
            check("S5", copy[1] == index_at)
            check("S5", decompress(copy[0]) == last.ljust(inner, b"\0"))
        except Refused as error:
            raise Refused("S5") from error
    else:
        check("S4", index_at == end)
        expected[-1] = expected[-1] if last else MISSING
    expected += [MISSING] * (nslots - len(expected))
    check("S6", expected == [*struct.iter_unpack("<QQ", data[index_at:-4])])
    found = [
        read_frame(data, at, header.checksum, any_size)[0]
        for at, n in expected
        if (at, n) != MISSING
    ]
    return b"".join(map(decompress, found))


def any_size(nbytes: int, stop: int) -> None:
    """Accept all sizes."""


def inner_size(content: Content) -> int | None:
    """Return the plain size of an inner chunk; None if the file has no trailer."""
    header, metadata = content.header, content.metadata
    if not header.options & 1:  # S2
        return None
    rows = metadata.get("shard") if isinstance(metadata, dict) else None
    if type(rows) is not int or rows < 1 or metadata.get("container") != "numpy":  # S1
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
