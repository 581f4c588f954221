"""Text of variable length: the plain bytes of its chunks, by the codec `vlen-utf8`.

::

    number of items | size of item 0 | its UTF-8 | size of item 1 | ...

The numbers are uint32, little-endian. Items are objects of `str` in NumPy.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy

from ..constants import MAX_BUFFERSIZE
from ..exceptions import DoesNotFit
from .blosc_header import chunk_damage
from .dtypes import Array, DType

TEXT = numpy.dtype(object)
# The number of items, and the size of each in bytes.
NUMBER = struct.Struct("<I")
# About the number of plain bytes of an item, by which chunks are cut.
ITEM_NBYTES = 64


def item_nbytes(dtype: DType) -> int:
    """Return the number of plain bytes of an item, or about that number for text."""
    return ITEM_NBYTES if dtype == TEXT else dtype.itemsize


def empty_item(dtype: DType) -> Any:
    """Return the empty text, or the item of another dtype whose bytes are zero."""
    return "" if dtype == TEXT else numpy.zeros((), dtype)[()]


def least_nbytes(count: int) -> int:
    """Return the least number of plain bytes of `count` items."""
    return NUMBER.size * (1 + count)


def encode_text(items: Array) -> bytes:
    """Return the plain bytes of a chunk; raise `DoesNotFit` if they are too many."""
    pack = NUMBER.pack
    blocks = [pack(items.size)]
    for text in items.reshape(-1).tolist():
        encoded = text.encode("utf-8")
        blocks += pack(len(encoded)), encoded
    nbytes = sum(map(len, blocks))
    if nbytes > MAX_BUFFERSIZE:
        raise DoesNotFit(
            "the text of a chunk of '%d' items has '%d' bytes, and the largest chunk "
            "has '%d': make the chunks shorter" % (items.size, nbytes, MAX_BUFFERSIZE)
        )
    return b"".join(blocks)


def decode_text(plain: bytes, shape: tuple[int, ...]) -> Array:
    """Return the items of a chunk; raise `FormatError` for any other bytes."""
    items: Array = numpy.empty(shape, TEXT)
    texts, start, size = [], NUMBER.size, len(plain)
    try:
        (count,) = NUMBER.unpack_from(plain)
        if count != items.size:
            raise ValueError("the number of items is '%d'" % count)
        for _ in range(count):
            (nbytes,) = NUMBER.unpack_from(plain, start)
            start += NUMBER.size + nbytes
            if start > size:
                raise ValueError("an item of '%d' bytes exceeds the chunk" % nbytes)
            texts.append(plain[start - nbytes : start].decode("utf-8"))
        if start != size:
            raise ValueError("'%d' bytes follow the last item" % (size - start))
    except (struct.error, ValueError) as error:
        raise chunk_damage(
            "expected a chunk of '%d' texts in UTF-8, found '%d' bytes: %s"
            % (items.size, size, error)
        ) from error
    items.reshape(-1)[:] = texts
    return items
