"""How an array is stored in shards, and what each shard states of it.

The metadata of a shard state the part of the array in it, and its place. All chunks
are of full size, in the order of a grid, also at the ends of the array::

    {"dtype": "'<f8'", "shape": [10, 70], "order": "C", "container": "grid",
     "chunks": [10, 50], "shard": [40, 100], "place": "9f86d081884c7d65/c/3/0"}

The place is the identity of the array and the name of the file in it. A file that other
programs have written states none, and is accepted. So is the shard of an array that is
cut into rows with the metadata of these rows, the last chunk of which may be short::

    {"dtype": "'<f8'", "shape": [1000], "order": "C", "container": "numpy",
     "shard": 100, "place": "9f86d081884c7d65/c/3"}

Text of variable length has no dtype, and another container::

    {"shape": [10, 70], "order": "C", "container": "vlen-utf8",
     "chunks": [10, 50], "shard": [40, 100], "place": "9f86d081884c7d65/c/3/0"}
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from zlib import adler32

import numpy

from ..._engine.forks import cached_property
from ..._format.array_metadata import describe, describe_shard, with_chunks
from ..._format.block_table import (
    LEAST_CHUNK,
    BlockRow,
    BlockTable,
    nbytes_ahead,
    read_table,
)
from ..._format.blosc_header import chunk_damage
from ..._format.dtypes import Array, DType
from ..._format.grid import Grid, Shape
from ..._format.sections import read_beginning
from ..._format.shard import CHECKSUM, ENTRY, MISSING, index_size, with_rows
from ..._format.text import TEXT, decode_text, encode_text
from ..._storage.base import Storage
from ..._storage.cursor import StorageCursor
from ..._types import Buffer, Json, JsonObject
from ...constants import (
    BLOSC_HEADER_LENGTH,
    BLOSCPACK_HEADER_LENGTH,
    MAX_BUFFERSIZE,
    MAX_CLEVEL,
    METADATA_HEADER_LENGTH,
)
from ...defaults import DEFAULT_META_LEVEL
from ...exceptions import DamageError, NotReadable, Unsupported, metadata_damage
from ...headers import BloscpackHeader
from ...serializers import (
    CHUNKS,
    PLACE,
    SERIALIZERS,
    SHARD,
    is_array,
    is_text,
    shard_rows,
)
from ...serializers import TEXT as TEXT_CONTAINER
from .array_files import FileNames

# Number of bytes that opening a shard reads: header and metadata.
FRONT_NBYTES = 1024
# Size in bytes of the digest of the metadata, adler32.
DIGEST_LENGTH = 4
# Where the text of the metadata begins in a shard.
_TEXT = BLOSCPACK_HEADER_LENGTH + METADATA_HEADER_LENGTH
# How shards of this package begin: with offsets and metadata, and the checksum crc32c.
_START = b"blpk\3\3\x09"
# The first fields of the metadata header: JSON, with adler32, and not compressed.
_KINDS = slice(BLOSCPACK_HEADER_LENGTH, BLOSCPACK_HEADER_LENGTH + 11)
_PLAIN_JSON = b"JSON\0\0\0\0\0\1\0"
# The rest of the header: ``typesize``, ``chunk_size``, ``last_chunk``, ``nchunks`` and
# ``max_app_chunks``; the rest of the metadata header: level, three sizes, user codec.
_SIZES, _METADATA = struct.Struct("<B2i2q"), struct.Struct("<B3IQ")
# Maximum number of bytes that a chunk in a file, with its digest, has more than plain
# bytes: Blosc adds at most a header. It is also the minimum size of such a chunk.
FRAME_EXTRA = BLOSC_HEADER_LENGTH + CHECKSUM.size
# A number that no shard has: sections have room for each smaller one.
LAST_FILE = 2**63


@dataclass(eq=False)
class Sharding:
    """The chunks and shards of an array.

    Attributes
    ----------
    dtype
        The dtype of the items.
    grid
        How the array is cut.
    names
        The names of the shards.
    identity
        The identity of the array; None if it has none, or if it is uncertain.
    fill_value
        The value of items that are not stored.
    chunk_nbytes
        Size of a chunk in bytes; for text the size of the references in memory.
    is_text
        Whether the items are text of variable length: then chunks have any size.
    largest_frame
        The greatest size in bytes of a chunk in a file, and its digest.
    has_blocks
        Whether blocks of chunks are read alone, with a table of blocks.
    table_nbytes
        Number of bytes to read for this table, in front of an index.
    """

    dtype: DType
    grid: Grid
    names: FileNames
    identity: str | None
    fill_value: object = None

    def __post_init__(self) -> None:
        self.chunk_nbytes = math.prod(self.grid.chunk) * self.dtype.itemsize
        self.is_text = self.dtype == TEXT
        nbytes = MAX_BUFFERSIZE if self.is_text else self.chunk_nbytes
        self.largest_frame = nbytes + FRAME_EXTRA
        self.has_blocks = not self.is_text and self.chunk_nbytes >= LEAST_CHUNK
        size = self.chunk_nbytes if self.has_blocks else 0
        self.table_nbytes = nbytes_ahead(self.grid.slots, size)

    # Items and plain bytes

    def encode(self, items: Array) -> Buffer:
        """Return the plain bytes of a chunk; raise `DoesNotFit` if they are too many.

        It has items of the shape of a chunk.
        """
        if self.is_text:
            return encode_text(items)
        # An item of an array without axes is a scalar, whose text may be shorter.
        items = numpy.ascontiguousarray(items, self.dtype)
        return items.reshape(-1).view("u1").data

    def decode_text(self, plain: memoryview) -> Array:
        """Return the text in a chunk; without bytes, it is one of fill values."""
        if not plain:
            fill = numpy.array(self.fill_value, TEXT)
            return numpy.broadcast_to(fill, self.grid.chunk)
        return decode_text(bytes(plain), self.grid.chunk)

    # What a shard states

    def front(self, number: int, shape: Shape, nchunks: int, typesize: int) -> bytes:
        """Return the header and the metadata section of a shard with chunks.

        It has an array of this shape, and the same size for all shapes.
        """
        chunk_size = -1 if self.is_text else self.chunk_nbytes
        sizes = chunk_size, chunk_size, nchunks, self.grid.slots - nchunks
        header = _START + _SIZES.pack(typesize, *sizes)
        text = next(self._texts(number, shape))
        room = self.table_start - _TEXT - DIGEST_LENGTH
        size, digest = len(text), adler32(text).to_bytes(DIGEST_LENGTH, "little")
        header += _PLAIN_JSON
        header += _METADATA.pack(DEFAULT_META_LEVEL, size, room, size, 0)
        return header + text.ljust(room, b"\0") + digest

    @cached_property
    def table_start(self) -> int:
        """The offset of the offset table in each shard, behind the longest metadata."""
        grid = self.grid
        last = (LAST_FILE + 1) * math.prod(max(1, n) for n in grid.counts[1:]) - 1
        shape = (*grid.shard[:1], *map(max, grid.shape[1:], grid.shard[1:]))
        return _TEXT + len(next(self._texts(last, shape))) + DIGEST_LENGTH

    def _texts(self, number: int, shape: Sequence[object]) -> Iterator[bytes]:
        """Yield the metadata of a shard: the one to write, and the older form."""
        before, behinds = _texts_around(self.dtype, self.grid.chunk, self.grid.shard)
        place = "}"
        if self.identity is not None:
            name = "%s/%s" % (self.identity, self.names(number))
            place = ',"%s":%s}' % (PLACE, encode_basestring_ascii(name))
        stated = ",".join(map(str, shape))
        for behind in behinds:
            yield (before + stated + behind + place).encode()

    def stated_shape(self, number: int, storage: Storage, front: bytes) -> Shape | None:
        """Return the shape of the part of the array in a shard; None if it is unknown.

        `front` is its beginning. Raises `FormatError` if it belongs to another array or
        place, or if it is no file of chunks.
        """
        try:
            _decode_header(front[:BLOSCPACK_HEADER_LENGTH])  # raises its errors
            behind = front.partition(b'"shape":[')[2]
            lengths = behind.partition(b"]")[0].split(b",") if self.grid.shape else []
            is_stated = len(lengths) == len(self.grid.shape)
            if is_stated and all(map(bytes.isdigit, lengths)):
                shape = tuple(map(int, lengths))
                for text in self._texts(number, shape):
                    if _is_sound(front, text, storage.size):
                        return shape
            metadata = read_beginning(StorageCursor(storage)).metadata
            for name, expected, found in self.differences(number, metadata):
                raise metadata_damage(
                    "expected %s: %s, found %s" % (name, expected, found)
                )
            return describe_shard(metadata).shape
        except (NotReadable, Unsupported) as error:
            raise DamageError(
                error.message, section=error.section, offset=error.offset
            ) from error

    def differences(
        self, number: int, metadata: Json
    ) -> Iterator[tuple[str, object, object]]:
        """Yield the wrong fields of metadata: name, expected value, found value."""
        grid, dtype, shard = self.grid, None, None
        if is_array(metadata) or is_text(metadata):
            described = describe_shard(metadata)
            dtype, rows = described.dtype, shard_rows(described.metadata)
            if described.grid is not None:
                shard = described.shard
            elif rows:
                shard = Grid.of_rows(described.shape, rows)
        pairs: dict[str, tuple[object, object]] = {"dtype": (self.dtype, dtype)}
        if grid.is_rows:
            pairs["rows of shape"] = grid.shape[1:], shard and shard.shape[1:]
            pairs["rows in a chunk"] = grid.chunk[0], shard and shard.chunk[0]
        else:
            pairs["chunks of shape"] = grid.chunk, shard and shard.chunk
        if shard is not None and described.grid is not None:
            pairs["shards of shape"] = grid.shard, shard.shard
        stated = place_of(metadata)
        if stated is not None:
            identity, _, name = stated.partition("/")
            pairs["the file"] = self.names(number), name
            if self.identity is not None:
                pairs["a file of the array"] = self.identity, identity
        for field, (expected, value) in pairs.items():
            if expected != value:
                yield field, expected, value


# Most shards of an array have the same header.
_decode_header = lru_cache(256)(BloscpackHeader.decode)


def _is_sound(front: bytes, text: bytes, size: int) -> bool:
    """Return whether a file of `size` bytes begins as a shard with this metadata.

    If it does not, it may still be one with other settings, or be damaged.
    """
    if front[_TEXT : _TEXT + len(text)] != text or not front.startswith(_START):
        return False
    level, nbytes, room, stored, user_codec = _METADATA.unpack_from(front, _KINDS.stop)
    end = _TEXT + room
    digest = int.from_bytes(front[end : end + DIGEST_LENGTH], "little")
    *_, nchunks, free = _SIZES.unpack_from(front, len(_START))
    # Behind the table each chunk takes at least a header and a digest.
    least = end + 4 + 8 * (nchunks + free) + (BLOSC_HEADER_LENGTH + 4) * nchunks
    return (
        front[_KINDS] == _PLAIN_JSON
        and level <= MAX_CLEVEL
        and nbytes == stored == len(text) <= room
        and not user_codec
        and digest == adler32(text)
        and least <= size
    )


@lru_cache(256)  # each shard of an array is compared with it
def _texts_around(dtype: DType, chunk: Shape, shard: Shape) -> tuple[str, list[str]]:
    """Return the text in front of the shape in metadata, and the texts behind it.

    The place is not in them. The first one is for a grid, another one for rows.
    """
    if dtype == TEXT:
        stated = {"shape": (), "order": "C", "container": TEXT_CONTAINER}
        forms: list[JsonObject] = [{**stated, CHUNKS: chunk, SHARD: shard}]
    else:
        stated = {**describe(numpy.empty((0,), dtype)), "shape": ()}
        rows = with_rows(stated, chunk[0] if chunk else None)
        forms = [with_chunks(stated, chunk, shard), rows]
    texts = [SERIALIZERS[0].dumps(form).partition('"shape":[') for form in forms]
    behinds = [behind.removesuffix("}") for _, _, behind in texts]
    return "".join(texts[0][:2]), behinds


def place_of(metadata: Json) -> str | None:
    """Return the place that metadata state; None if they state none."""
    is_ours = is_array(metadata) or is_text(metadata)
    place = metadata.get(PLACE) if is_ours else None
    return place if isinstance(place, str) else None


# The index


class ShardIndex:
    """An open shard, and where each chunk is in it.

    Parameters
    ----------
    storage, sharding
        The file, and how its array is stored.
    check_front
        Called with this object and the beginning of the file: it returns `shape`, or
        raises `FormatError`. None if the beginning is not read.
    checks_late
        Whether a beginning at a URL is read with the first chunks, which saves time.
        Then `shape` is not known before.

    Attributes
    ----------
    blocks
        The table of blocks.
    shape
        The shape of the part of the array in the file; None if it is unknown, or no
        item is missing.
    foreign
        Whether another program wrote it: then it begins with a chunk, and a chunk that
        is missing has the fill value.
    """

    def __init__(
        self,
        storage: Storage,
        sharding: Sharding,
        check_front: Callable[[ShardIndex, bytes], Shape | None] | None = None,
        *,
        checks_late: bool = False,
    ) -> None:
        self.storage = storage
        self._slots = slots = sharding.grid.slots
        self._check_front = check_front
        checks = check_front is not None and not (checks_late and storage.is_remote)
        front = storage.read_at(0, FRONT_NBYTES) if checks else b""
        self._index, table = _read_index(storage, slots, sharding.table_nbytes)
        # The bytes of a missing entry are all the same; most are at the end.
        used = -(-len(self._index.rstrip(b"\xff")) // ENTRY.size)
        numbers: Array = numpy.frombuffer(self._index, "<u8", 2 * used)
        starts, end = numbers[::2], storage.size - index_size(slots)
        _check_extents(starts, numbers[1::2], end, sharding.largest_frame)
        self.foreign = not (used and starts.min())
        self.blocks = BlockTable(table, sharding.chunk_nbytes)
        self.shape: Shape | None = None
        if check_front is not None and checks:
            self.shape, self._check_front = check_front(self, front), None

    def row(self, number: int) -> BlockRow | None:
        """Return the row of a chunk in the table of blocks; None if it has none."""
        start, size = self.extent(number)
        return self.blocks.row(number % self._slots, start, size - CHECKSUM.size)

    def read_many(self, extents: list[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of extents, after a check of the beginning of the file."""
        check = self._check_front
        if check is None:
            parts = self.storage.read_many(extents)
        else:
            front, *parts = self.storage.read_many([(0, FRONT_NBYTES), *extents])
        self.storage.drop_kept()
        if check is not None:
            self.shape, self._check_front = check(self, front), None
        return parts

    def extent(self, number: int) -> tuple[int, int]:
        """Return offset and size of a chunk; the size is 0 if it is missing."""
        slot = number % self._slots
        start, size = ENTRY.unpack_from(self._index, ENTRY.size * slot)
        return start, 0 if size == MISSING else size

    @cached_property
    def _extents(self) -> tuple[list[int], list[int]]:
        """Offsets and sizes of all chunks, for reads of several chunks."""
        pairs = struct.unpack("<%dQ" % (2 * self._slots), self._index)
        return [*pairs[::2]], [0 if size == MISSING else size for size in pairs[1::2]]

    def extents_of(self, numbers: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return offsets and sizes of chunks, ascending; see `extent`."""
        starts, sizes = self._extents
        first, count = numbers[0] % self._slots, len(numbers)
        if numbers[-1] - numbers[0] < count:
            return starts[first : first + count], sizes[first : first + count]
        slots = [number % self._slots for number in numbers]
        return [starts[i] for i in slots], [sizes[i] for i in slots]


def _check_extents(at: Array, size: Array, end: int, most: int) -> None:
    """Raise `FormatError` for the extent of a chunk that no chunk can have.

    A chunk ends at `end` or in front of it. With its digest it has `FRAME_EXTRA` to
    `most` bytes.
    """
    has_right_sizes = size.size and FRAME_EXTRA <= size.min() <= size.max() <= most
    if has_right_sizes and at.max() <= end and (at + size).max() <= end:
        return  # the usual case, for speed
    is_chunk = (at <= end) & (size <= end - at) & (size >= FRAME_EXTRA) & (size <= most)
    is_wrong = ~is_chunk & ((at != MISSING) | (size != MISSING))
    if is_wrong.any():
        slot = int(is_wrong.argmax())
        raise chunk_damage(
            "the index of the shard has the extent %d to %d, which is no chunk in it"
            % (at[slot], int(at[slot]) + int(size[slot])),
            chunk=slot,
        )


def _read_index(storage: Storage, slots: int, ahead: int) -> tuple[bytes, bytes]:
    """Return the entries of a shard, and the table of blocks in front of them.

    The table is empty if there is no intact one. About `ahead` bytes are read for it at
    once, and at a URL no more, because that would take another request. Raises
    `FormatError` if the digest of the entries is wrong.
    """
    size = index_size(slots)
    start = storage.size - size
    ahead = max(0, min(ahead, start))
    data = storage.read_at(start - ahead, size + ahead) if start >= 0 else b""
    before, data = data[:ahead], data[ahead:]
    index, crc = data[: ENTRY.size * slots], data[ENTRY.size * slots :]
    if len(data) != size or crc != CHECKSUM(index):
        raise chunk_damage(
            "expected the index of a shard of '%d' chunks in the last '%d' bytes, "
            "found another content" % (slots, size)
        )
    return index, read_table(storage, start, slots, crc, before) if ahead else b""


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
