"""The file ``.unwritten`` of a block: rows that have not been written yet.

A header promises all rows when a block is created. If a writer dies, the rows that it
should have written are empty, or zeros, and no checksum tells. Therefore a new block
has this file until its last row has been written. Other programs ignore it. It holds
the CRC of the header before and after the change that it belongs to, so a header that
another program has written since makes it void.
"""

from __future__ import annotations

import re
from zlib import crc32

from .._format.row_sets import union

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from .._format.row_sets import Rows

TITLE = b"rows not written yet"


def encode(rows: Rows, headers: tuple[bytes, ...]) -> bytes:
    """Return the bytes for rows; `headers` are the headers that they belong to."""
    lines = [TITLE, b"header " + b" ".join(b"%08x" % crc32(h) for h in headers)]
    lines += [b"%d %d" % row_range for row_range in rows]
    return b"\n".join(lines) + b"\n"


def decode(data: bytes, header: bytes, size: int) -> Rows | None:
    """Return the rows, None if the file does not belong to this header.

    `size` is the number of rows of the block.
    """
    lines = data.split(b"\n")
    if len(lines) < 2 or lines[0] != TITLE or not lines[1].startswith(b"header "):
        return None
    if b"%08x" % crc32(header) not in lines[1].split()[1:]:
        return None
    found = []
    for line in lines[2:]:
        match = re.fullmatch(rb"([0-9]{1,19}) ([0-9]{1,19})", line)
        if match is not None:
            found.append((int(match[1]), min(int(match[2]), size)))
    return union(found)
