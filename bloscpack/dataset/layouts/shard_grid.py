"""How an array is cut into chunks and shards, and what each shard states of it.

::

    chunk n is chunk n % slots of shard n // slots
    a chunk has `chunk_rows` rows; the last one of the array may have fewer

The metadata of a shard state the array, and the place of the shard in it::

    {"dtype": "'<f8'", "shape": [1000], "order": "C", "container": "numpy",
     "shard": 100, "place": "9f86d081884c7d65/c/3"}

The place is the identity of the array and the name of the file in it. A file that other
programs have written states none, and is accepted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy

from ..._engine.forks import cached_property
from ..._format.array_metadata import Description, describe
from ..._format.dtypes import DType
from ..._format.sections import Section, encode_section, read_beginning
from ..._format.shard import (
    CRC_LENGTH,
    DEFAULT_SHARD_CHECKSUM,
    ENTRY,
    MISSING,
    crc_of,
    index_size,
    with_rows,
)
from ..._storage.base import Storage
from ..._storage.stream import StorageCursor
from ...args import MetadataArgs
from ...checksums import CHECKSUMS_LOOKUP
from ...constants import (
    BLOSC_HEADER_LENGTH,
    BLOSCPACK_HEADER_LENGTH,
    MAX_BUFFERSIZE,
    METADATA_HEADER_LENGTH,
)
from ...exceptions import DamageError, UsageValueError
from ...serializers import PLACE, SERIALIZERS, is_array, shard_rows
from .array_files import FileNames
from .base import NewArray

if TYPE_CHECKING:
    from ...serializers import Json, JsonObject

CHECKSUM = CHECKSUMS_LOOKUP[DEFAULT_SHARD_CHECKSUM]
# Number of bytes that opening a shard reads: header and metadata.
FRONT_NBYTES = 1024
# Where the text of the metadata begins in a shard.
_TEXT = BLOSCPACK_HEADER_LENGTH + METADATA_HEADER_LENGTH
# A number that no shard has: sections have room for each smaller one.
LAST_FILE = 2**63
# About the plain size of a chunk, and of a shard, in bytes.
CHUNK_NBYTES = 2**20
FILE_NBYTES = 16 * 2**20
# Maximum number of chunks of a shard, unless a user wants more: each takes 24 bytes of
# the tables of a shard, also if it is not there yet.
SLOTS = 256


@dataclass(eq=False)
class ShardGrid:
    """The chunks and shards of an array.

    Attributes
    ----------
    dtype, inner
        The dtype, and the shape of a row.
    chunk_rows, slots
        Number of rows in a chunk, and of chunks in a shard.
    names
        The names of the shards.
    identity
        The identity of the array; None if it has none, or if it is uncertain.
    row_nbytes, chunk_nbytes
        Size of a row and of a chunk in bytes.
    """

    dtype: DType
    inner: tuple[int, ...]
    chunk_rows: int
    slots: int
    names: FileNames
    identity: str | None

    def __post_init__(self) -> None:
        self.row_nbytes = math.prod(self.inner) * self.dtype.itemsize
        self.chunk_nbytes = self.chunk_rows * self.row_nbytes

    def count_chunks(self, nrows: int) -> int:
        """Return the number of chunks of an array; 0 if it has no bytes."""
        return -(-nrows // self.chunk_rows) if self.row_nbytes else 0

    def count_files(self, nrows: int) -> int:
        """Return the number of shards of an array."""
        return -(-self.count_chunks(nrows) // self.slots)

    # What a shard states

    def section(self, number: int, nrows: int) -> Section:
        """Return the metadata section of a shard that has `nrows` rows.

        The sections of all shards have the same size.
        """
        return self._section(number, nrows, self._room)

    @cached_property
    def section_size(self) -> int:
        """Size of each metadata section in bytes."""
        return self.section(0, 0).size

    @cached_property
    def _room(self) -> int:
        """Size in bytes of the longest metadata."""
        longest = self._section(LAST_FILE, self.chunk_rows * self.slots, 0)
        return len(longest.front) - METADATA_HEADER_LENGTH

    def _section(self, number: int, nrows: int, room: int) -> Section:
        args = MetadataArgs(meta_codec=None, max_meta_size=lambda n: max(n, room))
        found = _description(self.dtype, self.inner, self.chunk_rows, nrows)
        if self.identity is not None:
            found[PLACE] = self._place(number)
        return encode_section(found, args)

    def _place(self, number: int) -> str:
        return "%s/%s" % (self.identity, self.names(number))

    def _expected(self, number: int, nrows: int) -> bytes:
        """Return the text of the metadata up to the end of the place."""
        start, end = _text_around(self.dtype, self.inner, self.chunk_rows)
        if self.identity is not None:
            place = self._place(number)
            end += ',"%s":' % PLACE
            end += '"%s"' % place if place.isascii() else json.dumps(place)
        return ("%s%d%s}" % (start, nrows, end)).encode("ascii")

    def check(self, number: int, storage: Storage, front: bytes, nrows: int) -> None:
        """Raise `FormatError` if a shard belongs to another array or place.

        `front` is its beginning, whose header states `nrows` rows.
        """
        text = self._expected(number, nrows)
        if front[_TEXT : _TEXT + len(text)] == text:
            return
        metadata = read_beginning(StorageCursor(storage)).metadata
        for name, expected, found in self.differences(number, metadata):
            raise DamageError(
                "expected %s: %s, found %s" % (name, expected, found),
                section="metadata",
            )

    def differences(
        self, number: int, metadata: Json
    ) -> Iterator[tuple[str, object, object]]:
        """Yield the wrong fields of metadata: name, expected value, found value."""
        dtype = inner = None
        if is_array(metadata):
            described = Description(metadata)
            dtype, inner = described.dtype, described.shape[1:]
        pairs: dict[str, tuple[object, object]] = {
            "dtype": (self.dtype, dtype),
            "rows of shape": (self.inner, inner),
            "rows in a chunk": (self.chunk_rows, shard_rows(metadata)),
        }
        stated = place_of(metadata)
        if stated is not None:
            identity, _, name = stated.partition("/")
            pairs["the file"] = self.names(number), name
            if self.identity is not None:
                pairs["a file of the array"] = self.identity, identity
        for field, (expected, found) in pairs.items():
            if expected != found:
                yield field, expected, found


def _description(
    dtype: DType, inner: tuple[int, ...], chunk_rows: int, nrows: int
) -> JsonObject:
    """Return the metadata of a shard without its place."""
    items: Any = numpy.empty((0, *inner), dtype)
    return with_rows({**describe(items), "shape": (nrows, *inner)}, chunk_rows)


@lru_cache(256)  # each shard of an array is compared with it
def _text_around(
    dtype: DType, inner: tuple[int, ...], chunk_rows: int
) -> tuple[str, str]:
    """Return the text around the number of rows in the metadata without the place."""
    text = SERIALIZERS[0].dumps(_description(dtype, inner, chunk_rows, 0))
    start, _, rest = text.partition('"shape":[0')
    return start + '"shape":[', rest.removesuffix("}")


def place_of(metadata: Json) -> str | None:
    """Return the place that metadata state; None if they state none."""
    place = metadata.get(PLACE) if is_array(metadata) else None
    return place if isinstance(place, str) else None


# The index


class ShardIndex:
    """An open shard, and where each chunk is in it: offset and size, None if missing.

    Parameters
    ----------
    storage, grid
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
        grid: ShardGrid,
        check_front: Callable[[ShardIndex, bytes], float] | None = None,
    ) -> None:
        self.storage = storage
        slots = grid.slots
        front = storage.read_at(0, FRONT_NBYTES) if check_front is not None else b""
        # Blosc adds at most a header to the plain bytes of a chunk.
        most = grid.chunk_nbytes + BLOSC_HEADER_LENGTH + CHECKSUM.size
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


# The numbers of rows of a new array


def rows_and_slots(new: NewArray, row_nbytes: int) -> tuple[int, int]:
    """Return the number of rows of a chunk, and of chunks of a file.

    Parameters
    ----------
    new
        The array; `UsageError` is raised for impossible numbers of rows in it.
    row_nbytes
        Size of a row in the chunks in bytes; the largest one if chunks differ.
    """
    row = max(1, row_nbytes)
    most = MAX_BUFFERSIZE // row
    if not most:
        raise UsageValueError(
            "a row has '%d' bytes, more than the largest chunk of '%d' bytes"
            % (row, MAX_BUFFERSIZE)
        )
    if new.chunks is not None and not 1 <= new.chunks <= most:
        raise UsageValueError(
            "a chunk must have 1 to %d rows here, not %d" % (most, new.chunks)
        )
    rows = new.chunks or max(1, CHUNK_NBYTES // row)
    if new.shards is None:
        return rows, min(max(1, FILE_NBYTES // (rows * row)), SLOTS)
    if new.shards < 1:
        raise UsageValueError("a shard must have at least one row, not %d" % new.shards)
    if new.chunks is None:
        rows = _divisor(new.shards, rows)
    if new.shards % rows:
        raise UsageValueError(
            "a shard must have a multiple of the %d rows of a chunk, not %d"
            % (rows, new.shards)
        )
    return rows, new.shards // rows


def _divisor(number: int, most: int) -> int:
    """Return the largest divisor up to `most`, if it is not much smaller than that."""
    for divisor in range(min(number, most), most // 8, -1):
        if number % divisor == 0:
            return divisor
    return min(number, most)
