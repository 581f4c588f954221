"""Where the chunks of a superchunk are: how it is cut, and the index of each file."""

from __future__ import annotations

import math

from ..._format.shard import (
    CRC_LENGTH,
    DEFAULT_SHARD_CHECKSUM,
    ENTRY,
    MISSING,
    crc_of,
    index_size,
)
from ...checksums import CHECKSUMS_LOOKUP
from ...constants import BLOSC_HEADER_LENGTH
from ...exceptions import DamageError

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..._format.dtypes import DType
    from ..._storage.base import Storage

# Number of bytes that opening a file reads: header and metadata.
FRONT_NBYTES = 1024
CHECKSUM = CHECKSUMS_LOOKUP[DEFAULT_SHARD_CHECKSUM]


class Cut:
    """How an array is cut into chunks and files.

    Attributes
    ----------
    dtype, inner
        The dtype, and the shape of a row.
    chunk_rows
        Number of rows in a chunk.
    slots
        Number of chunks in a file.
    row_nbytes
        Size of a row in bytes.
    """

    def __init__(
        self, dtype: DType, inner: tuple[int, ...], chunk_rows: int, slots: int
    ) -> None:
        self.dtype = dtype
        self.inner = inner
        self.chunk_rows = chunk_rows
        self.slots = slots
        self.row_nbytes = dtype.itemsize
        for length in inner:
            self.row_nbytes *= length
        self.chunk_nbytes = chunk_rows * self.row_nbytes

    def count_chunks(self, nrows: int) -> int:
        """Return the number of chunks of an array; 0 if it has no bytes."""
        return -(-nrows // self.chunk_rows) if self.row_nbytes else 0

    def count_files(self, nrows: int) -> int:
        """Return the number of files of an array."""
        return -(-self.count_chunks(nrows) // self.slots)


class ShardIndex:
    """An open file, and where each chunk is in it: offset and size, None if missing.

    Parameters
    ----------
    storage, cut
        The file, and how its array is cut.
    check_front
        Called with this object and the beginning of the file: it returns `nbytes`, or
        raises `FormatError`. None if the beginning is not read.

    Attributes
    ----------
    extents
        Where the chunks are.
    nbytes
        Number of plain bytes in the file without padding; infinite if it is unknown.
    foreign
        Whether another program wrote it: then it begins with a chunk, and a chunk that
        is missing has the fill value.
    """

    def __init__(
        self,
        storage: Storage,
        cut: Cut,
        check_front: Callable[[ShardIndex, bytes], float] | None = None,
    ) -> None:
        self.storage = storage
        slots = cut.slots
        front = storage.read_at(0, FRONT_NBYTES) if check_front is not None else b""
        # Blosc adds at most a header to the plain bytes of a chunk.
        most = cut.chunk_nbytes + BLOSC_HEADER_LENGTH + CHECKSUM.size
        size = index_size(slots)
        end = storage.size - size
        tail = storage.read_at(end, size) if end >= 0 else b""
        index, crc = tail[:-CRC_LENGTH], tail[-CRC_LENGTH:]
        if len(tail) != size or crc != crc_of(index):
            raise DamageError(
                "expected the index of a shard of '%d' chunks in the last '%d' bytes, "
                "found another content" % (slots, size),
                section="chunks",
            )
        self.extents: list[tuple[int, int] | None] = [None] * slots
        # The bytes of a missing entry are all the same; most are at the end.
        used = -(-len(index.rstrip(b"\xff")) // ENTRY.size)
        self.foreign = not used
        entries = ENTRY.iter_unpack(index[: used * ENTRY.size])
        for slot, (start, nbytes) in enumerate(entries):
            if start + nbytes > end or not CHECKSUM.size <= nbytes <= most:
                if start == nbytes == MISSING:
                    continue
                raise DamageError(
                    "the index of the shard has the extent %d to %d, which is no chunk "
                    "in front of it" % (start, start + nbytes),
                    section="chunks",
                    chunk=slot,
                )
            self.extents[slot] = start, nbytes
            if not start:
                self.foreign = True
        self.nbytes = math.inf
        if check_front is not None:
            self.nbytes = check_front(self, front)


def joined(extents: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield extents, offset and size, with neighbours joined."""
    offset = stop = -1
    for start, nbytes in extents:
        if start != stop:
            if offset >= 0:
                yield offset, stop - offset
            offset = start
        stop = start + nbytes
    if offset >= 0:
        yield offset, stop - offset
