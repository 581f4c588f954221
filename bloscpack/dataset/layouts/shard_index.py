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
from ...constants import BLOSC_HEADER_LENGTH, BLOSCPACK_HEADER_LENGTH
from ...exceptions import DamageError, FormatError
from ...headers import BloscpackHeader

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..._format.dtypes import DType
    from ..._storage.base import Storage

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

    Attributes
    ----------
    extents
        Where the chunks are.
    nbytes
        Number of plain bytes in the file without padding; infinite if it is unknown.
    """

    def __init__(self, storage: Storage, cut: Cut, least: int = 0) -> None:
        """Raise `FormatError` if the header states fewer than `least` plain bytes."""
        self.storage = storage
        slots = cut.slots
        nbytes = math.inf
        if least or not storage.far:
            nbytes = _plain_nbytes(storage, least)
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
        self.nbytes = nbytes
        self.extents: list[tuple[int, int] | None] = []
        for entry in ENTRY.iter_unpack(index):
            if entry == (MISSING, MISSING):
                self.extents.append(None)
                continue
            if entry[0] + entry[1] > end or not CHECKSUM.size <= entry[1] <= most:
                raise DamageError(
                    "the index of the shard has the extent %d to %d, which is no chunk "
                    "in front of it" % (entry[0], entry[0] + entry[1]),
                    section="chunks",
                    chunk=len(self.extents),
                )
            self.extents.append((entry[0], entry[1]))


def _plain_nbytes(storage: Storage, least: int) -> float:
    """Return the number of plain bytes that the header of a file states.

    Shards that other programs wrote have no header: if `least` is 0, they may have any
    number. Raises `FormatError` if there are fewer than `least`.
    """
    try:
        header = BloscpackHeader.decode(storage.read_at(0, BLOSCPACK_HEADER_LENGTH))
    except FormatError:
        if least:
            raise
        return math.inf
    nbytes = header.nbytes
    if least and (nbytes is None or nbytes < least):
        raise DamageError(
            "expected at least '%d' plain bytes, found '%s'; if a writer has removed "
            "rows meanwhile, open the dataset again"
            % (least, "an unknown number" if nbytes is None else nbytes),
            section="header",
        )
    return math.inf if nbytes is None else nbytes


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
