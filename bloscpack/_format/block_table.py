"""The table of blocks in the trailer of a shard (docs/format.rst, Shards).

::

    magic, nrows, nblocks | row 0 | row 1 | ... | nrows, nblocks | crc32c

A row belongs to a chunk. It has the header of the chunk, and for each block its end in
the chunk and the crc32c of the chunk up to there, so that a reader can verify blocks
that it reads alone. A row of zeros says nothing. The digest at the end covers the table
and the digest of the index: a table does not fit another index.

A digest is no protection from forgery: `BlockRow.decode` checks each number.
"""

from __future__ import annotations

import struct
from collections import Counter
from operator import lt

from ..constants import BLOSC_HEADER_LENGTH
from .blosc_header import BloscHeader, decode_block_starts, find_problem, unpack_header
from .crc32c import crc32c

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .._storage.base import Storage
    from .._types import Buffer
    from ..checksums import Hash

# An index begins with a file position, whose last byte is smaller than this last byte.
MAGIC = b"blocks\0\xff"
HEAD = struct.Struct("<8sII")
TAIL = struct.Struct("<III")
# Size in bytes of the end of a block, and of its digest.
NUMBER_LENGTH = 4
# Maximum size of a table in bytes: a shard that needs a larger one has none.
MAX_TABLE = 2**22
# Minimum number of blocks of a chunk with a row. Minimum plain size in bytes of chunks
# whose rows are written and used, and minimum compressed size of those that get one:
# reading and verifying shorter chunks as a whole takes little.
LEAST_BLOCKS = 2
LEAST_CHUNK, LEAST_COMPRESSED = 2**18, 2**16
# The size of blocks in bytes for which a reader reads a table together with the index,
# and the maximum number of bytes that it reads for this.
USUAL_BLOCK = 2**16
MAX_AHEAD = 2**16


class BlockRow:
    """The header of a chunk, and the ends of its blocks with a digest for each.

    `start` is where the first block begins, `at` where the chunk is in the file.
    """

    __slots__ = ("at", "digests", "ends", "header", "start")

    def __init__(
        self, header: BloscHeader, ends: Sequence[int], digests: Sequence[int]
    ) -> None:
        self.at = 0
        self.header = header
        self.start = BLOSC_HEADER_LENGTH if header.is_copy else header.table_end
        self.ends = ends
        self.digests = digests

    @property
    def raw(self) -> bytes:
        """The bytes of the row."""
        numbers = *self.ends, *self.digests
        return self.header.raw + struct.pack("<%dI" % len(numbers), *numbers)

    @classmethod
    def of_chunk(cls, chunk: Buffer) -> BlockRow | None:
        """Return the row of a chunk without damage; None if it gets none."""
        header, view = unpack_header(chunk), memoryview(chunk)
        if header.nblocks < LEAST_BLOCKS:
            return None
        if header.is_copy:
            ends: Sequence[int] = _ends_of_copy(header)
        else:
            table = view[BLOSC_HEADER_LENGTH : header.table_end]
            first, *starts = decode_block_starts(table)
            ends = *starts, header.ctbytes
            if first != header.table_end or not all(map(lt, (first, *starts), ends)):
                return None  # several threads of Blosc have written them in any order
        at = crc = 0
        digests = []
        for end in ends:
            crc = crc32c(view[at:end], crc)
            digests.append(crc)
            at = end
        return cls(header, ends, digests)

    @classmethod
    def decode(cls, raw: bytes, nbytes: int, ctbytes: int) -> BlockRow | None:
        """Return a row of a table; None if no chunk of these sizes can have it."""
        header = unpack_header(raw)
        if find_problem(header) is not None:
            return None
        if (header.nbytes, header.ctbytes) != (nbytes, ctbytes):
            return None
        count = (len(raw) - BLOSC_HEADER_LENGTH) // (2 * NUMBER_LENGTH)
        if not LEAST_BLOCKS <= header.nblocks == count:
            return None
        numbers = struct.unpack_from("<%dI" % (2 * count), raw, BLOSC_HEADER_LENGTH)
        row = cls(header, numbers[:count], numbers[count:])
        if header.is_copy:
            is_sound = [*row.ends] == _ends_of_copy(header)
        else:
            is_sound = all(map(lt, (row.start, *row.ends), row.ends))
        return row if is_sound and row.ends[-1] == ctbytes else None


def _ends_of_copy(header: BloscHeader) -> list[int]:
    size, behind = header.blocksize, BLOSC_HEADER_LENGTH
    ends = range(behind + size, behind + header.nblocks * size, size)
    return [*ends, behind + header.nbytes]


# The table


def row_of(chunk: Buffer) -> bytes:
    """Return the row that a new chunk gets; empty if it gets none."""
    row = BlockRow.of_chunk(chunk) if len(chunk) >= LEAST_COMPRESSED else None
    return b"" if row is None else row.raw


def digest_and_row(
    chunk: Buffer, checksum: Hash, makes_row: bool
) -> tuple[bytes, bytes]:
    """Return the digest of a new chunk, and its row: of the same checksum, it has both.

    The row is empty if there is none.
    """
    row = row_of(chunk) if makes_row else b""
    return row[-checksum.size :] or checksum(chunk), row


def row_length(nblocks: int) -> int:
    """Return the size in bytes of a row."""
    return BLOSC_HEADER_LENGTH + 2 * NUMBER_LENGTH * nblocks


def encode_table(rows: Mapping[int, bytes], index_crc: Buffer) -> bytes:
    """Return the table of rows by the number of their entry; empty if it is too long.

    It has the rows of the most frequent number of blocks; the others are left out.
    """
    counts = Counter(map(len, rows.values()))
    if not counts:
        return b""
    ((size, _),) = counts.most_common(1)
    used = {slot: row for slot, row in rows.items() if len(row) == size}
    nrows, nblocks = max(used) + 1, (size - row_length(0)) // (2 * NUMBER_LENGTH)
    if not _nbytes(nrows, nblocks):
        return b""
    none = bytes(size)
    table = HEAD.pack(MAGIC, nrows, nblocks)
    table += b"".join(used.get(slot, none) for slot in range(nrows))
    table += TAIL.pack(nrows, nblocks, 0)[:-NUMBER_LENGTH]
    return table + _digest_of(table, index_crc)


def table_nbytes(head: Buffer) -> int:
    """Return the size of the table that begins with `head`; 0 if none does."""
    if len(head) < HEAD.size:
        return 0
    magic, *counts = HEAD.unpack_from(head)
    return _nbytes(*counts) if magic == MAGIC else 0


def _nbytes(nrows: int, nblocks: int) -> int:
    size = HEAD.size + nrows * row_length(nblocks) + TAIL.size
    return size if nrows and nblocks >= LEAST_BLOCKS and size <= MAX_TABLE else 0


def nbytes_ahead(nslots: int, chunk_nbytes: int) -> int:
    """Return how many bytes in front of an index to read for the table, if any."""
    if not chunk_nbytes:
        return 0
    row = row_length(-(-chunk_nbytes // USUAL_BLOCK))
    return min(MAX_AHEAD, HEAD.size + nslots * row + TAIL.size)


def is_table(table: Buffer, nslots: int, index_crc: Buffer) -> bool:
    """Return whether bytes are an intact table of an index of `nslots` entries."""
    view = memoryview(table)
    nbytes = table_nbytes(view)
    if not nbytes or nbytes != len(view):
        return False
    counts, covered = HEAD.unpack_from(view)[1:], view[:-NUMBER_LENGTH]
    if counts[0] > nslots or counts != TAIL.unpack_from(view, nbytes - TAIL.size)[:2]:
        return False
    return _digest_of(covered, index_crc) == view[-NUMBER_LENGTH:]


def read_table(
    storage: Storage, end: int, nslots: int, index_crc: Buffer, before: bytes = b""
) -> bytes:
    """Return the table in front of an index at `end`; empty if there is no intact one.

    `index_crc` is the digest of the index of `nslots` entries, `before` bytes in front
    of it that were read. At a URL no others are: it would take another request.
    """
    before = before or storage.read_at(max(0, end - TAIL.size), TAIL.size)
    if len(before) < TAIL.size:
        return b""
    # Any size if no table ends there.
    nbytes = _nbytes(*TAIL.unpack_from(before, len(before) - TAIL.size)[:2])
    if len(before) < nbytes <= end and not storage.is_remote:
        before = storage.read_at(end - nbytes, nbytes)
    table = before[-nbytes:]
    return table if is_table(table, nslots, index_crc) else b""


def raw_row(table: bytes, slot: int, proof: bytes | None = None) -> bytes:
    """Return a row of a table whose size was checked; empty if it has none.

    Also if the row belongs to a chunk with another header and digest than `proof`.
    """
    if not table:
        return b""
    _, nrows, nblocks = HEAD.unpack_from(table)
    size = row_length(nblocks)
    start = HEAD.size + slot * size
    row = table[start : start + size] if slot < nrows else b""
    ends = row[:BLOSC_HEADER_LENGTH] + row[-NUMBER_LENGTH:]
    return row if proof in (None, ends) else b""


def _digest_of(table: Buffer, index_crc: Buffer) -> bytes:
    crc = crc32c(index_crc, crc32c(table))
    return crc.to_bytes(NUMBER_LENGTH, "little")


class BlockTable:
    """The rows of an intact table, whose bytes are `raw`: none if there is no table.

    Chunks have `nbytes` plain bytes. Their headers and digests are compared with the
    rows if there is a `storage` of the file.
    """

    def __init__(self, raw: bytes, nbytes: int, storage: Storage | None = None) -> None:
        self.raw, self._nbytes, self._storage = raw, nbytes, storage
        self._rows: dict[int, BlockRow | None] = {}  # those that were needed

    def row(self, slot: int, at: int, ctbytes: int) -> BlockRow | None:
        """Return the row of a chunk of `ctbytes` bytes at a position; None for none."""
        if slot not in self._rows:
            proof, storage = None, self._storage
            if storage is not None:
                proof = storage.read_at(at, BLOSC_HEADER_LENGTH)
                proof += storage.read_at(at + ctbytes, NUMBER_LENGTH)
            raw = raw_row(self.raw, slot, proof)
            row = BlockRow.decode(raw, self._nbytes, ctbytes) if raw else None
            if row is not None:
                row.at = at
            self._rows[slot] = row
        return self._rows[slot]


# The blocks of a read


def blocks_of(
    spans: Iterable[tuple[int, int]], blocksize: int, nblocks: int
) -> list[tuple[int, int]]:
    """Return the runs of blocks [first, after) that hold spans, which ascend.

    The result is empty if they are more than half of the blocks, so that reading all of
    them takes less time.
    """
    runs: list[tuple[int, int]] = []
    count = last = 0
    for start, stop in spans:
        first, after = max(start // blocksize, last), -(-stop // blocksize)
        if after <= first or stop <= start:
            continue
        count += after - first
        if 2 * count > nblocks:
            return []
        if runs and first == last:
            first = runs.pop()[0]
        runs.append((first, after))
        last = after
    return runs
