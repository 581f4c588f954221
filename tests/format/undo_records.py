"""A file in the middle of a change, in parts that can be set to any value.

Shares nothing with the package but the specification (docs/format.rst, Undo record).
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

MAGIC = b"\xffundo\r\n\x1a"
# Bit 2 of the options, and their position in the file.
BIT, OPTIONS = 4, 5
# Number of bytes at the old end that stay zero at first.
GUARD = 16

Extents = list[tuple[int, int]]


@dataclass
class Record:
    """An undo record; what is None is made right."""

    position: int
    length: int
    extents: Extents
    old: bytes
    magic: bytes = MAGIC
    end: bytes = MAGIC
    count: int | None = None
    size: int | None = None
    digest: bytes | None = None

    def join(self) -> bytes:
        count = len(self.extents) if self.count is None else self.count
        body = self.magic + struct.pack("<qq", self.length, count)
        body += b"".join(struct.pack("<qq", *extent) for extent in self.extents)
        body += self.old
        start = struct.pack("<q", self.position)
        digest = self.digest or hashlib.blake2b(start + body, digest_size=32).digest()
        size = len(body) if self.size is None else self.size
        return body + struct.pack("<q", size) + digest + self.end


def states(before: bytes, after: bytes, extents: Extents) -> list[bytes]:
    """Return the file behind each of the steps 1 to 4 of a change.

    `extents` are start and length of what the change overwrites.
    """
    start = max(len(after), len(before) + GUARD)
    new = after.ljust(start, b"\0")
    old = b"".join(before[at : at + size] for at, size in extents)
    record = Record(start, len(before), extents, old).join()
    behind = bytes(GUARD) + new[len(before) + GUARD :]
    options = bytes([before[OPTIONS] | BIT])
    head = before[:OPTIONS] + options
    written = before + behind + record
    flagged = head + written[len(head) :]
    overwritten = head + new[len(head) :] + record
    return [written, flagged, overwritten, new + record]


def take_apart(data: bytes, count: int) -> tuple[bytes, Record]:
    """Return a file without its record, and the record, which has `count` extents."""
    size = struct.unpack_from("<q", data, len(data) - 48)[0]
    at = len(data) - 48 - size
    length = struct.unpack_from("<q", data, at + 8)[0]
    table = at + 24 + 16 * count
    extents = [*struct.iter_unpack("<qq", data[at + 24 : table])]
    return data[:at], Record(at, length, extents, data[table:-48])
