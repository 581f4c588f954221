"""What is used where the caller says nothing."""

from __future__ import annotations

import os

DEFAULT_TYPESIZE = 8
DEFAULT_CLEVEL = 7
DEFAULT_SHUFFLE = True
DEFAULT_CNAME = "blosclz"

DEFAULT_CHUNK_SIZE = "1M"
DEFAULT_OFFSETS = True
DEFAULT_CHECKSUM = "adler32"

DEFAULT_MAGIC_FORMAT = b"JSON"
DEFAULT_META_CHECKSUM = "adler32"
DEFAULT_META_CODEC = "zlib"
DEFAULT_META_LEVEL = 6

# Limits on what a file may make a reader allocate, in bytes.
METADATA_ALWAYS = 16 * 2**20
METADATA_RATIO = 32
DEFAULT_DTYPE_LIMIT = 2**20


def DEFAULT_METADATA_LIMIT(x: int) -> int:
    """Return how large metadata may get that are stored in `x` bytes.

    Some megabytes always; beyond, what text reaches and a bomb would not bother with.
    """
    return max(METADATA_ALWAYS, METADATA_RATIO * x)


def DEFAULT_MAX_APP_CHUNKS(x: int) -> int:
    """Return how many entries of the offset table to keep free for `x` chunks."""
    return 10 * x


def DEFAULT_MAX_META_SIZE(x: int) -> int:
    """Return how many bytes to reserve for metadata of `x` bytes."""
    return 10 * x


def available_cpus() -> int:
    """Return the number of CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
