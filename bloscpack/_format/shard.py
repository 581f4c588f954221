"""The trailer that makes an array file a Zarr v3 shard (docs/format.rst, Shards).

::

    chunks | separator | [padded copy | digest] | [table of blocks] | index | crc32c

The copy is one of a short last chunk.

The key ``shard`` in the metadata of the array says that the file has a trailer; its
value is the number of rows of an inner chunk, or in a grid the shape of the whole
shard. Everything else follows from header, metadata and chunks, so that a trailer can
be written again at any time.

NumPy and Blosc are imported only where they are needed: `blpk info` uses this module.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from .._types import Buffer, Json, JsonObject
from ..checksums import CHECKSUMS_LOOKUP, Hash
from ..constants import BLOSC_HEADER_LENGTH, MAX_BUFFERSIZE
from ..defaults import DEFAULT_CLEVEL, DEFAULT_CNAME
from ..exceptions import DoesNotFit, FormatError, UsageError
from ..headers import BloscpackHeader
from ..serializers import SHARD, is_grid, is_shard, is_text, shard_rows
from .array_metadata import Description, describe_shard
from .automatic import Setting
from .block_table import (
    HEAD,
    LEAST_CHUNK,
    encode_table,
    read_table,
    row_of,
    table_nbytes,
)
from .blosc_header import BloscHeader, decode_header
from .dtypes import Array, DType
from .grid import MAX_SLOTS, Grid

if TYPE_CHECKING:
    from .._storage.base import Storage
    from .._storage.cursor import Cursor

# The checksum of shards: Zarr readers verify it behind each inner chunk.
DEFAULT_SHARD_CHECKSUM = "crc32c"
CHECKSUM = CHECKSUMS_LOOKUP[DEFAULT_SHARD_CHECKSUM]
# No chunk begins like this, and no other file.
SEPARATOR = b"shard\0\0\0"
# Offset and size of the frame of an inner chunk, in bytes.
ENTRY = struct.Struct("<QQ")
# Both numbers of an entry without a chunk.
MISSING = 2**64 - 1
NO_ENTRY = ENTRY.pack(MISSING, MISSING)
CRC_LENGTH = 4
# Size in bytes of the request for the trailer of a shard at a URL: one request of this
# size takes less time than two small ones.
REMOTE_REQUEST_NBYTES = 2**20
# Kinds of NumPy's types that a Zarr reader takes in shards. zarr-python has a data type
# for "V", but fails on shards of it.
KINDS = "biufcSUMm"
# What is the plain size in bytes of inner chunks that have any size.
ANY_NBYTES = -1
# Item sizes of real and complex numbers that every machine reads in the same way.
PORTABLE = {"f": (2, 4, 8), "c": (8, 16)}


# The geometry


def row_nbytes(described: Description | Array) -> int:
    """Return the size of a row in bytes, 0 without axes."""
    shape = described.shape
    size = int(described.dtype.itemsize) if shape else 0
    for length in shape[1:]:
        size *= length
    return size


def rows_for(
    array: Description | Array, order: Literal["C", "F"], chunk_size: int | str
) -> int:
    """Return the number of rows of an inner chunk, for a wanted size of chunks.

    Of `array` only dtype and shape are used. Raises `DoesNotFit` if it can't be a
    shard.
    """
    _check_shard(array, _obstacle(array, order))
    return rows_in(chunk_size, row_nbytes(array), array.shape[0])


def shard_of(array: Array | Description, grid: Grid) -> tuple[int, ...]:
    """Return the shape of a shard that has the chunks of an array, and no others.

    Raises `DoesNotFit` if it can't be a shard.
    """
    reason = _obstacle_of(array.dtype)
    if reason is None and grid.nchunks > MAX_SLOTS:
        reason = "it has '%d' chunks, and a shard at most '%d'"
        reason %= grid.nchunks, MAX_SLOTS
    _check_shard(array, reason)
    return grid.shard


def _check_shard(array: Description | Array, reason: str | None) -> None:
    if reason is not None:
        raise DoesNotFit(
            "an array of shape %s and dtype '%s' can't be a Zarr shard: %s"
            % (array.shape, array.dtype, reason)
        )


def _obstacle_of(dtype: DType) -> str | None:
    """Return why items can't be in a shard; None if they can."""
    if dtype.names is not None:
        return "Zarr has no portable data type for structures: store each field"
    return None if is_portable(dtype) else "no Zarr reader takes shards of this type"


def _obstacle(array: Description | Array, order: Literal["C", "F"]) -> str | None:
    """Return why an array can't be a shard; None if it can."""
    if not array.shape:
        return "it has no axis to cut into chunks"
    reason = _obstacle_of(array.dtype)
    if reason is not None:
        return reason
    if order == "F" and len(array.shape) > 1:
        return (
            "it has several axes in Fortran order, where the items of a row do not lie "
            "together: store a copy in C order, as numpy.ascontiguousarray returns it"
        )
    size = row_nbytes(array)
    if not size:
        return "its rows have no bytes"
    if size > MAX_BUFFERSIZE:
        return (
            "a row of it has '%d' bytes, more than the largest chunk of '%d' bytes"
            % (size, MAX_BUFFERSIZE)
        )
    return None


def is_portable(dtype: DType) -> bool:
    """Return whether Zarr readers on every machine take shards of a dtype."""
    sizes = PORTABLE.get(dtype.kind, (dtype.itemsize,))
    return dtype.kind in KINDS and dtype.itemsize in sizes


def rows_in(chunk_size: int | str, size_of_row: int, nrows: int) -> int:
    """Return the number of rows in a chunk.

    The largest chunk size, ``'max'``, means at most all `nrows`: the padding of a short
    chunk would take too much memory.
    """
    from ..args import parse_chunk_size

    size = parse_chunk_size(chunk_size)
    rows = max(size // size_of_row, 1)
    return min(rows, max(nrows, 1)) if size == MAX_BUFFERSIZE else rows


def inner_size(metadata: Json, header: BloscpackHeader) -> int | None:
    """Return the plain size of an inner chunk; None if the file can't be a shard.

    A shard needs metadata that say so, an offset table, and inner chunks. The chunks of
    text have `ANY_NBYTES`.
    """
    if not (is_shard(metadata) and header.offsets) or header.nchunks < 1:
        return None
    try:
        described = describe_shard(metadata)
    except FormatError:
        return None
    if is_text(metadata):
        is_whole = described.grid and described.grid.nchunks == header.nchunks
        return ANY_NBYTES if is_whole else None
    if described.grid is not None:
        size = described.chunk_nbytes
        sizes = header.chunk_size, header.last_chunk, header.nchunks
        return size if sizes == (size, size, described.grid.nchunks) else None
    rows = shard_rows(metadata) or 0
    size = rows * row_nbytes(described)
    if not has_inner_chunks(described, rows):
        return None
    fits = header.chunk_size == size or (header.nchunks == 1 and header.chunk_size >= 0)
    return size if fits and 0 <= header.last_chunk <= size else None


def check_table(metadata: object, header: BloscpackHeader) -> None:
    """Raise `UsageError` for a shard without an offset table (S2)."""
    if not header.offsets and is_shard(metadata):
        raise UsageError(
            "a Zarr shard needs an offset table: write it to a regular file, because a "
            "pipe can't hold a table, and leave out 'offsets=False' or '--no-offsets'; "
            "or make an ordinary file, with 'shard=False' or '--no-shard'"
        )


def has_inner_chunks(described: Description, rows: int) -> bool:
    """Return whether an array can be cut into inner chunks of `rows` rows (S2)."""
    in_rows = described.order == "C" or len(described.shape) == 1
    return in_rows and 0 < rows * row_nbytes(described) <= MAX_BUFFERSIZE


def with_rows(metadata: JsonObject, rows: int | None) -> JsonObject:
    """Return the metadata with the key of a shard; with None for `rows`, without it."""
    kept = {key: metadata[key] for key in metadata if key != SHARD}
    return kept if rows is None else {**kept, SHARD: rows}


def count_slots(header: BloscpackHeader, metadata: Json = None) -> int:
    """Return the number of entries of the index: an append does not change it."""
    if is_grid(metadata) or is_text(metadata):
        shard = describe_shard(metadata).shard
        return 0 if shard is None else shard.slots
    return header.nchunks + header.max_app_chunks


def slots_of(header: BloscpackHeader, metadata: Json) -> Sequence[int]:
    """Return the number of the entry of each chunk in the index."""
    is_cut = is_grid(metadata) or is_text(metadata)
    shard = describe_shard(metadata).shard if is_cut else None
    return range(header.nchunks) if shard is None else shard.chunks_of(0)


def index_size(nslots: int) -> int:
    """Return the size of the index and its checksum in bytes."""
    return ENTRY.size * nslots + CRC_LENGTH


# The trailer


@dataclass(eq=False)
class Trailer:
    """The trailer of a new or changed file; `add` takes the frames in order.

    Parameters
    ----------
    _inner_nbytes
        Plain size of an inner chunk in bytes.
    _nslots
        Number of entries of the index.
    _checksum
        The checksum of the chunks.
    _slots
        The number of the entry of each chunk, by default 0, 1, 2 ….

    Attributes
    ----------
    numbers
        Offsets and sizes of the frames in turn.
    rows
        Their rows in the table of blocks, by the number of the frame, where it has one.
    makes_rows
        Whether chunks get rows, where they are of use.
    next_row
        The row of the frame that `add_frame` gets next; None if it is to be made. The
        method `store` of sinks, which programs may define, has no parameter for it.
    """

    _inner_nbytes: int
    _nslots: int
    _checksum: Hash
    _slots: Sequence[int] | None = None

    def __post_init__(self) -> None:
        self.numbers, self.rows = array("Q"), dict[int, bytes]()
        self.next_row: bytes | None = None
        is_crc32c = self._checksum.name == DEFAULT_SHARD_CHECKSUM
        self.makes_rows = is_crc32c and self._inner_nbytes >= LEAST_CHUNK
        self._last = b""

    def add(self, start: int, stop: int, row: bytes = b"") -> None:
        """Add the extent of a chunk and its digest, in bytes of the file."""
        if row:
            self.rows[len(self.numbers) // 2] = row
        self.numbers.extend((start, stop - start))

    def add_frame(self, offset: int, compressed: Buffer) -> None:
        """Add a chunk at `offset`, which may be the last one."""
        row, self.next_row = self.next_row, None
        # Only the last chunk may be needed, but no other is short.
        is_full = self._inner_nbytes in (decode_header(compressed).nbytes, ANY_NBYTES)
        self._last = b"" if is_full else bytes(compressed)
        end = offset + len(compressed) + self._checksum.size
        if row is None or not is_full:
            row = row_of(compressed) if is_full and self.makes_rows else b""
        self.add(offset, end, row)

    def blocks(self, end: int) -> list[bytes]:
        """Return the trailer behind the last frame, which ends at `end`.

        A short last chunk has a copy with zeros up to the full size, and its digest,
        unless it has no bytes.
        """
        numbers, copy = self.numbers[:], b""
        if self._last:
            del numbers[-2:]
            copy = self._padded(decode_header(self._last))
            entry = (end + len(SEPARATOR), len(copy)) if copy else (MISSING, MISSING)
            numbers.extend(entry)
        index = encode_entries(numbers, self._nslots, self._slots)
        crc, slots = CHECKSUM(index), self._slots or range(self._nslots)
        rows = {slots[number]: row for number, row in self.rows.items()}
        return [SEPARATOR, copy, encode_table(rows, crc), index + crc]

    def _padded(self, header: BloscHeader) -> bytes:
        if not header.nbytes:
            return b""
        from .._engine.blosc_settings import own_settings
        from ..constants import CNAME_AVAIL
        from .chunks import compress, decompress

        # Blosc may lack the codec of the chunk, such as snappy.
        cname = header.codec if header.codec in CNAME_AVAIL else DEFAULT_CNAME
        size = self._inner_nbytes
        setting = Setting(cname, DEFAULT_CLEVEL, header.shuffle, header.typesize, size)
        with own_settings:
            plain = decompress(self._last, header).ljust(size, b"\0")
            copy = compress(plain, setting)
        return copy + self._checksum(copy)


def new_trailer(metadata: Json, header: BloscpackHeader) -> Trailer | None:
    """Return the trailer of a new file; None if the file is no shard."""
    size = inner_size(metadata, header)
    return None if size is None else trailer_of(size, header, metadata)


def trailer_of(inner_nbytes: int, header: BloscpackHeader, metadata: Json) -> Trailer:
    """Return the trailer of a new or changed file with this header and metadata."""
    nslots, slots = count_slots(header, metadata), slots_of(header, metadata)
    return Trailer(inner_nbytes, nslots, header.checksum_impl, slots)


def encode_entries(
    numbers: Iterable[int], nslots: int, slots: Sequence[int] | None = None
) -> bytes:
    """Return the index without its checksum, from offsets and sizes in turn.

    They are entries 0, 1, 2 …, or those in `slots`. All others are missing.
    """
    flat = array("Q", numbers)
    if slots is not None and not isinstance(slots, range):
        placed = array("Q", [MISSING]) * (2 * nslots)
        for i, slot in zip(range(0, len(flat), 2), slots, strict=True):
            placed[2 * slot : 2 * slot + 2] = flat[i : i + 2]
        flat = placed
    nmissing = nslots - len(flat) // 2
    if sys.byteorder == "big":
        flat.byteswap()
    # There may be millions of entries: no list of Python's numbers.
    return flat.tobytes() + NO_ENTRY * nmissing


# Finding it again


def trailer_nbytes(
    header: BloscpackHeader, metadata: Json, read: Callable[[int, int], Buffer]
) -> int:
    """Return the size of the trailer, 0 if none follows the last chunk.

    ``read(offset, size)`` returns bytes that lie behind that chunk, fewer at the end.
    """
    inner_nbytes, nbytes = inner_size(metadata, header), len(SEPARATOR)
    if inner_nbytes is None or read(0, nbytes) != SEPARATOR:
        return 0
    if 0 < header.last_chunk < inner_nbytes:  # a padded copy of it follows
        copy = decode_header(read(nbytes, BLOSC_HEADER_LENGTH))
        nbytes += copy.ctbytes + header.checksum_impl.size
    # A pipe is read up to there: not behind a copy that is too long.
    is_sound = nbytes <= inner_nbytes + 2 * BLOSC_HEADER_LENGTH
    if is_sound and may_have_table(header, inner_nbytes):
        nbytes += table_nbytes(read(nbytes, HEAD.size))
    return nbytes + index_size(count_slots(header, metadata))


def skip_trailer(cursor: Cursor, header: BloscpackHeader, metadata: Json) -> None:
    """Move a cursor behind the last chunk to the end of the trailer, if there is one.

    It moves to the end of the file if the trailer is cut off.
    """
    with suppress(FormatError):
        nbytes = trailer_nbytes(
            header, metadata, lambda at, n: cursor.peek_behind(at + n)[at:]
        )
        left = cursor.left()
        nbytes = nbytes if left is None else min(nbytes, left)
        cursor.skip(nbytes, "a trailer", "shard")


def may_have_table(header: BloscpackHeader, inner_nbytes: int) -> bool:
    """Return whether a trailer may have a table of blocks."""
    return inner_nbytes > 0 and header.checksum_impl.name == DEFAULT_SHARD_CHECKSUM


def find_table(
    storage: Storage, header: BloscpackHeader, metadata: Json
) -> tuple[bytes, Sequence[int]]:
    """Return the table of blocks of a file, and the entry of each chunk.

    The table is empty if there is none that is of use. The index, which may be long, is
    not read: the table has its digest.
    """
    nbytes = inner_size(metadata, header) or 0
    if nbytes < LEAST_CHUNK or not may_have_table(header, nbytes):
        return b"", ()
    nslots, slots = count_slots(header, metadata), slots_of(header, metadata)
    crc = storage.read_at(storage.size - CRC_LENGTH, CRC_LENGTH)
    return read_table(storage, storage.size - index_size(nslots), nslots, crc), slots


def has_trailer(
    storage: Storage, header: BloscpackHeader, first: int, metadata: Json
) -> bool:
    """Return whether the ends of a trailer are in place, at little cost.

    `first` is the offset of the first chunk; `inner_size` is not None. The index is not
    read as a whole.
    """
    start = storage.size - index_size(count_slots(header, metadata))
    if start < first:
        return False
    at = start + ENTRY.size * slots_of(header, metadata)[-1]
    read = _reading_once(storage, first, at + ENTRY.size)
    offset, nbytes = ENTRY.unpack(read(at, ENTRY.size))
    if offset == MISSING:
        position = start - len(SEPARATOR)
    elif header.last_chunk < (inner_size(metadata, header) or 0):  # the padded copy
        position = offset - len(SEPARATOR)
    else:
        position = offset + nbytes
    inside = first <= position <= start - len(SEPARATOR)
    return inside and read(position, len(SEPARATOR)) == SEPARATOR


def _reading_once(
    storage: Storage, first: int, stop: int
) -> Callable[[int, int], bytes]:
    """Return a function that reads bytes of a file, at a URL with a single request.

    That has the bytes in front of `stop`: the index, and the padded copy if it is no
    longer than most are.
    """
    if not storage.is_remote:
        return storage.read_at
    start = max(first, stop - REMOTE_REQUEST_NBYTES)
    block = storage.read_at(start, stop - start)

    def read(offset: int, nbytes: int) -> bytes:
        if start <= offset and offset + nbytes <= stop:
            return block[offset - start : offset - start + nbytes]
        return storage.read_at(offset, nbytes)

    return read
