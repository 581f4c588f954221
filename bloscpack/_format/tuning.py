"""Settings that are compared on a sample: records, filters to try, and their cost.

``blpk tune`` measures the speed of many settings and reports all of them.
`automatic` measures sizes only, and takes the speeds from a table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..constants import OFFSET_LENGTH
from ..defaults import (
    DEFAULT_CLEVEL,
    DEFAULT_CNAME,
    DEFAULT_MAX_APP_CHUNKS,
    DEFAULT_TYPESIZE,
)
from .codecs import BITSHUFFLE, FILTERS, NONE, SHUFFLE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    Filter = tuple[int, int]

TYPESIZES = (1, 2, 3, 4, 6, 8, 12, 16)
CHUNK_SIZE = 2**20
# Bytes in the file per chunk besides the chunk: its digest, its offset and the free
# offsets that are reserved for it.
OVERHEAD = 4 + OFFSET_LENGTH * (1 + DEFAULT_MAX_APP_CHUNKS(1))


def chunk_text(size: int) -> str:
    """Return a chunk size in the notation of ``-z``."""
    for suffix, factor in (("M", 2**20), ("K", 2**10)):
        if size % factor == 0:
            return "%d%s" % (size // factor, suffix)
    return str(size)


@dataclass(frozen=True)
class Setting:
    """Codec, level, filter, type size, chunk size and block size.

    A block size of 0 means that Blosc chooses it.
    """

    cname: str
    clevel: int
    shuffle: int
    typesize: int
    chunk_size: int
    blocksize: int = 0

    def but(self, **changes: Any) -> Setting:
        """Return a copy with some fields changed."""
        return replace(self, **changes)

    @property
    def filter(self) -> Filter:
        """Filter and type size."""
        return self.shuffle, self.typesize

    def __str__(self) -> str:
        return "%s %d, %s, type size %d, chunks of %s" % (
            self.cname,
            self.clevel,
            FILTERS[self.shuffle],
            self.typesize,
            chunk_text(self.chunk_size),
        )


DEFAULT = Setting(DEFAULT_CNAME, DEFAULT_CLEVEL, SHUFFLE, DEFAULT_TYPESIZE, CHUNK_SIZE)


def filters_to_try(typesizes: Sequence[int]) -> list[Filter]:
    """Return the pairs of filter and type size; the first is without a filter."""
    plain = typesizes[0] if len(typesizes) == 1 else 1
    found = [(NONE, plain)]
    for typesize in typesizes:
        if typesize > 1:  # shuffle does nothing for single bytes
            found.append((SHUFFLE, typesize))
        found.append((BITSHUFFLE, typesize))
    return found


def piece_starts(nbytes: int, size: int, total: int) -> list[int]:
    """Return the offsets of pieces of `size` bytes, `total` bytes together.

    They are the pieces in the middle of equal parts of `nbytes` bytes.
    """
    full = nbytes // size
    count = max(1, min(full, total // size))
    return [(2 * i + 1) * full // (2 * count) * size for i in range(count)]


def cost(seconds: float, ratio: float, disk: float) -> float:
    """Return the seconds per plain byte to compress, write, read and decompress it.

    `seconds` is the time to compress and decompress it, and `disk` the speed of the
    disk in bytes per second.
    """
    return seconds + 2 / (ratio * disk)
