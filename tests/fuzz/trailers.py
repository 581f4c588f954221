"""The trailer of a Zarr shard in parts, made from the file in front of it.

Shares nothing with the package but the specification (docs/format.rst, Shards).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from format.independent_reader import crc32c
from fuzz.parts import CHUNK, Chunk, Parts, digest_of, size_of

MISSING = 2**64 - 1
LENGTH_OF_CRC = 4


@dataclass
class Trailer:
    """A trailer; ``crc`` None is made right, ``gap`` lies in front of the index.

    There is a table of blocks if it has `rows`. At its end are `counts`, and it is for
    an index with the digest `table_crc`; both are made right if they are None.
    """

    copy: Chunk | None
    entries: list[tuple[int, int]]
    checksum: int
    separator: bytes = b"shard\0\0\0"
    gap: bytes = b""
    crc: bytes | None = None
    rows: list[bytes] = field(default_factory=list)
    counts: tuple[int, int] | None = None
    table_crc: bytes | None = None

    def join(self) -> bytes:
        copy = b""
        if self.copy is not None:
            copy, digest = self.copy.join(), self.copy.digest
            copy += digest_of(self.checksum, copy) if digest is None else digest
        index = b"".join(struct.pack("<QQ", *entry) for entry in self.entries)
        crc = struct.pack("<I", crc32c(index)) if self.crc is None else self.crc
        table = self.table(crc if self.table_crc is None else self.table_crc)
        return b"".join([self.separator, copy, table, self.gap, index, crc])

    def table(self, crc: bytes) -> bytes:
        if not self.rows:
            return b""
        counts = struct.pack("<II", len(self.rows), (len(self.rows[0]) - 16) // 8)
        again = counts if self.counts is None else struct.pack("<II", *self.counts)
        table = b"blocks\0\xff" + counts + b"".join(self.rows) + again
        return table + struct.pack("<I", crc32c(table + crc))


def row_of(chunk: bytes) -> bytes:
    """Return the row of a chunk that is a copy, in the table of blocks."""
    nbytes, size = struct.unpack_from("<II", chunk, 4)
    ends = [16 + min(at + size, nbytes) for at in range(0, nbytes, size)]
    digests = [crc32c(chunk[:end]) for end in ends]
    return chunk[:16] + struct.pack("<%dI" % (2 * len(ends)), *ends, *digests)


Break = Callable[[Trailer], object]


def add_trailer(parts: Parts, inner: int, change: Break = lambda trailer: None) -> None:
    """Put a trailer behind the chunks, for inner chunks of `inner` bytes.

    `change` makes it wrong. All chunks are copies, and so is the padded one.
    """
    parts.tail = b""
    checksum = parts.header["checksum"]
    end = len(parts.join())
    entries = []
    for chunk in reversed(parts.chunks):
        size = len(chunk.join()) + len(digest_of(checksum, b""))
        end -= size
        entries.insert(0, (end, size))
    end = sum(entries[-1])
    last = parts.chunks[-1]
    copy = None
    if not last.rest:
        entries[-1] = MISSING, MISSING
    elif len(last.rest) < inner:
        record = {**last.record, "nbytes": inner, "blocksize": inner}
        record["ctbytes"] = inner + size_of(CHUNK)
        copy = Chunk(record, last.rest.ljust(inner, b"\0"))
        size = record["ctbytes"] + len(digest_of(checksum, b""))
        entries[-1] = end + 8, size
    entries += [(MISSING, MISSING)] * parts.header["max_app_chunks"]
    trailer = Trailer(copy, entries, checksum)
    change(trailer)
    parts.tail = trailer.join()
