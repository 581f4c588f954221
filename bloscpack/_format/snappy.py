"""Decompress chunks of the codec snappy, which the wheels of Blosc lack.

The extra ``snappy`` brings only the codec (cramjam); the blocks of the chunk and the
filters are undone here (docs/format.rst, Chunks). Every size is checked before the
codec is called, and it writes into memory of exactly that size.
"""

from __future__ import annotations

import struct
from types import ModuleType

from .._types import Buffer
from ..constants import BLOSC_HEADER_LENGTH
from .blosc_header import BLOSC_FLAG_SPLIT, BloscHeader, decode_block_starts
from .codecs import BITSHUFFLE, SHUFFLE
from .dtypes import Array

STREAM_LENGTH = struct.Struct("<i")


def find_codec() -> ModuleType | None:
    """Return the module that knows snappy, None if the extra is not installed."""
    try:
        from cramjam import snappy
    except ImportError:
        return None
    module: ModuleType = snappy
    return module


def decompress_into(
    compressed: Buffer, destination: memoryview, header: BloscHeader, codec: ModuleType
) -> None:
    """Write the plain bytes of a chunk to `destination`, which has their size.

    `header` is its checked header, and the chunk is as long as it says. Raises
    `ValueError` if the chunk is damaged.
    """
    import numpy

    chunk = memoryview(compressed).cast("B")
    typesize, blocksize = header.typesize, header.blocksize
    starts = decode_block_starts(chunk[BLOSC_HEADER_LENGTH : header.table_end])
    for number, position in enumerate(starts):
        block = destination[number * blocksize : (number + 1) * blocksize]
        # A last block that is shorter than the others is never split.
        splits = not header.flags & BLOSC_FLAG_SPLIT and header.can_split
        splits = splits and len(block) == blocksize and blocksize % typesize == 0
        _decode_streams(
            chunk, position, block, typesize if splits else 1, header, codec
        )
        nitems = len(block) // typesize
        items: Array = numpy.frombuffer(block, "u1", nitems * typesize)
        if header.shuffle == SHUFFLE and typesize > 1:
            items = items.reshape(typesize, nitems)
        elif header.shuffle == BITSHUFFLE and nitems % 8 == 0:
            planes = items.reshape(typesize, 8, nitems // 8)
            bits = numpy.unpackbits(planes, axis=2, bitorder="little")
            items = numpy.packbits(bits, axis=1, bitorder="little")
            items = items.reshape(typesize, nitems)
        else:
            continue
        block[: nitems * typesize] = items.T.tobytes()


def _decode_streams(
    chunk: memoryview,
    position: int,
    block: memoryview,
    nstreams: int,
    header: BloscHeader,
    codec: ModuleType,
) -> None:
    """Decompress the streams at `position` into `block`."""
    size = len(block) // nstreams
    if position < header.table_end:
        raise ValueError("a block starts inside the header")
    for first in range(0, len(block), size):
        after_length = position + STREAM_LENGTH.size
        if after_length > len(chunk):
            raise ValueError("a block starts behind the end of the chunk")
        (length,) = STREAM_LENGTH.unpack(chunk[position:after_length])
        position = after_length + length
        if length <= 0 or position > len(chunk):
            raise ValueError("a stream ends behind the end of the chunk")
        stream = chunk[after_length:position]
        target = block[first : first + size]
        if length == size:  # stored
            target[:] = stream
            continue
        try:
            found = codec.decompress_raw_into(bytes(stream), target)
        except Exception as error:  # an error class of the codec
            raise ValueError(str(error)) from error
        if found != size:
            raise ValueError("a stream has '%d' bytes, not '%d'" % (found, size))
