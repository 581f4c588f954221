"""The index of a shard, computed without the library (docs/format.rst)."""

from __future__ import annotations

import struct

from bloscpack.checksums import CHECKSUMS_LOOKUP

ENTRY = struct.Struct("<QQ")
NO_ENTRY = b"\xff" * ENTRY.size
crc_of = CHECKSUMS_LOOKUP["crc32c"]


def index_size(nchunks):
    """Return the size of the index and its checksum in bytes."""
    return ENTRY.size * nchunks + 4
