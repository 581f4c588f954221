"""Default values of the settings, and default limits for readers."""

from __future__ import annotations

import os

# Settings of `BloscArgs`. The item size is in bytes.
DEFAULT_TYPESIZE = 8
DEFAULT_CLEVEL = 7
DEFAULT_SHUFFLE = True
DEFAULT_CNAME = "blosclz"
# Plain bytes of a chunk.
DEFAULT_CHUNK_SIZE = "1M"
# Settings of `BloscpackArgs`.
DEFAULT_OFFSETS = True
DEFAULT_CHECKSUM = "adler32"

# Settings of `MetadataArgs`.
DEFAULT_MAGIC_FORMAT = b"JSON"
DEFAULT_META_CHECKSUM = "adler32"
DEFAULT_META_CODEC = "zlib"
DEFAULT_META_LEVEL = 6

# Readers accept metadata that decompress to this size in bytes, or to this multiple of
# their stored size if that is larger. Without a limit, a small file could exhaust the
# memory.
METADATA_ALWAYS = 16 * 2**20
METADATA_RATIO = 32
# Maximum length of the text of a dtype and of the header of a .npy file, in bytes.
DEFAULT_DTYPE_LIMIT = 2**20
# Number of values that metadata may always have. As Python objects they take up to
# 100 MB.
METADATA_VALUES_ALWAYS = 10**6


def DEFAULT_METADATA_LIMIT(x: int) -> int:
    """Return the maximum size in bytes of metadata that are stored in `x` bytes."""
    return max(METADATA_ALWAYS, METADATA_RATIO * x)


def DEFAULT_METADATA_VALUES(x: int) -> int:
    """Return the maximum number of values in metadata that are stored in `x` bytes."""
    return max(METADATA_VALUES_ALWAYS, x)


def DEFAULT_MAX_APP_CHUNKS(x: int) -> int:
    """Return the number of free entries in the offset table of a file of `x` chunks."""
    return 10 * x


def DEFAULT_MAX_META_SIZE(x: int) -> int:
    """Return the space in bytes to reserve for metadata whose text has `x` bytes."""
    return 10 * x


def available_cpus() -> int:
    """Return the number of CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class NotGiven(str):
    """The default text of a parameter: the same text of a caller is a plain str."""

    __slots__ = ()


# The default of a parameter, where it matters whether the caller has given the value.
CHUNK_SIZE_NOT_GIVEN = NotGiven(DEFAULT_CHUNK_SIZE)
