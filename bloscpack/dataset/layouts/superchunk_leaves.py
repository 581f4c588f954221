"""How arrays are stored in the layout ``superchunk``: the leaves of their items.

::

    meta/storage of an array   {"superchunk": 1, "kind": "array", "dtype": …, …}
    meta/storage of a table    {"superchunk": 1, "kind": "table", "columns": [{…}, …]}

An item with fields is cut into its *leaves*: the parts that have no fields. Each leaf
has files of its own, in a folder for each field on the way (docs/format.rst,
Superchunks).
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import NamedTuple

import numpy

from ..._commit.new_files import Change
from ..._format.array_metadata import (
    NUMPY_NDIM,
    are_lengths,
    check_itemsize,
    is_whole,
)
from ..._format.blosc_header import decode_header
from ..._format.dtypes import (
    Array,
    DType,
    check_text,
    decode_dtype,
    encode_dtype,
    refuse,
)
from ..._format.grid import Grid
from ..._storage.paths import is_safe_part
from ..._types import Json, JsonObject
from ...args import BloscArgs
from ...constants import BLOSC_HEADER_LENGTH, CNAME_AVAIL, MAX_BUFFERSIZE
from ...defaults import DEFAULT_CNAME, DEFAULT_SHUFFLE
from ...exceptions import UsageValueError
from ...numpy_io import typesize_of
from ..folder import Folder
from .array_files import FileNames
from .base import DEFAULT_SETTINGS, Blocks, NewArray
from .chunk_choice import new_grid
from .identity import Identity
from .shard_files import ShardFiles
from .shard_grid import Sharding
from .shard_writer import ShardWriter, write_shards

VERSION = 1
DATA = "data"
# Settings that users can choose, and their defaults. `spare` is the number of bytes
# that stay free at the end of each chunk.
SETTINGS: JsonObject = {
    **DEFAULT_SETTINGS,
    "shuffle": int(DEFAULT_SHUFFLE),
    "spare": 0,
}
# The largest value of each setting that is a number.
MOST = {"clevel": 9, "shuffle": 2, "spare": MAX_BUFFERSIZE}
# Characters that the name of a folder can't have everywhere. `%` is what they become.
_UNSAFE = re.compile(r'[\x00-\x1f"%*/:<>?\\|\x7f]')


# Leaves


class Leaf(NamedTuple):
    """A part of an item that has no fields.

    Attributes
    ----------
    fields
        The names of the fields that lead to it; empty if the item has no fields.
    dtype, shape
        Dtype of the part, and its shape in an item: a field may be an array.
    """

    fields: tuple[str, ...]
    dtype: DType
    shape: tuple[int, ...]

    def of(self, items: Array) -> Array:
        """Return this part of items, a view whose last axes are `shape`."""
        for field in self.fields:
            items = items[field]
        return items

    @property
    def folder(self) -> str:
        """The name of its folder, relative to the data of the array."""
        return "/".join(map(encode_name, self.fields))


def leaves_of(
    dtype: DType, fields: tuple[str, ...] = (), shape: tuple[int, ...] = ()
) -> Iterator[Leaf]:
    """Yield the leaves of an item, in the order of the fields.

    `fields` and `shape` are those of the part of an item that has the dtype.
    """
    base, shape = dtype.base, shape + dtype.shape
    if base.fields is None or base.names is None:
        yield Leaf(fields, base, shape)
        return
    for name in base.names:
        yield from leaves_of(base.fields[name][0], (*fields, name), shape)


def encode_name(name: str) -> str:
    """Return the name of the folder of a field or column.

    It is the name itself, with ``%`` and two hexadecimal digits for each character that
    some file systems lack. No two names become the same.
    """
    if name in ("", ".", ".."):
        return name.replace(".", "%2E") or "%"
    encoded = _UNSAFE.sub(lambda found: "%%%02X" % ord(found[0]), name)
    if not is_safe_part(encoded):
        raise UsageValueError("no folder can have the name of the field %.200r" % name)
    return encoded


# Descriptions


@dataclass(eq=False)
class StorageDocument:
    """How an array is stored.

    Attributes
    ----------
    dtype, inner
        Dtype of the items, and the shape of a row.
    chunk_rows, slots
        Number of rows in a chunk, and of chunks in a file.
    fill_value
        The value of new items when the array is enlarged.
    settings
        The values of `SETTINGS`.
    identity
        The identity of the array; None until it is known.
    """

    dtype: DType
    inner: tuple[int, ...]
    chunk_rows: int
    slots: int
    fill_value: object
    settings: JsonObject
    identity: str | None = None

    def __post_init__(self) -> None:
        self.leaves = list(leaves_of(self.dtype))

    def sharding_of(self, leaf: Leaf, length: int = 0) -> Sharding:
        """Return how the array of a leaf is stored, which has a number of rows.

        The names begin in the data folder.
        """
        shape = (length, *self.inner, *leaf.shape)
        grid = Grid.of_rows(shape, self.chunk_rows, self.slots)
        names = FileNames(leaf.folder, "__", "__.bin", 1)
        return Sharding(leaf.dtype, grid, names, self.identity)

    def args_of(self, leaf: Leaf) -> BloscArgs:
        """Return the settings of Blosc for a leaf."""
        cname = self.settings["cname"]
        return BloscArgs(
            typesize=typesize_of(leaf.dtype),
            cname=cname if cname in CNAME_AVAIL else DEFAULT_CNAME,
            clevel=self.settings["clevel"],
            shuffle=self.settings["shuffle"],
        )

    def encode(self) -> JsonObject:
        """Return the description."""
        fill = numpy.zeros((), self.dtype)
        fill[...] = self.fill_value
        content = fill.tobytes()
        return {
            "dtype": encode_dtype(self.dtype),
            "inner": list(self.inner),
            "chunklen": self.chunk_rows,
            "superchunklen": self.chunk_rows * self.slots,
            # Any item is stored exactly by its bytes.
            "dflt": base64.b64encode(content).decode() if any(content) else None,
            "cparams": self.settings,
        }


def new_storage(new: NewArray) -> StorageDocument:
    """Return how a new array is stored; raise `UsageError` if it can't be."""
    if not new.shape:
        raise UsageValueError(
            "the layout 'superchunk' holds arrays with at least one axis: reshape the "
            "item to (1,)"
        )
    encode_dtype(new.dtype)  # raises the error for objects
    new.check_settings(SETTINGS, "superchunk")
    dtype = packed(new.dtype)
    fill = numpy.zeros((), dtype)
    if new.fill_value is not None:
        fill[...] = new.fill_value
    settings = {**SETTINGS, **new.usual_settings, **new.settings}
    settings["shuffle"] = int(settings["shuffle"])
    inner = new.shape[1:]
    sizes = (math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves_of(dtype))
    grid = new_grid(new, math.prod(inner) * max(sizes, default=0), "superchunk")
    rows, slots = grid.chunk[0], grid.slots
    identity = Identity().name
    storage = StorageDocument(dtype, inner, rows, slots, fill[()], settings, identity)
    for leaf in storage.leaves:
        encode_name("".join(leaf.fields))
        storage.args_of(leaf).check()
    if type(settings["spare"]) is not int or not 0 <= settings["spare"] < 2**31:
        raise UsageValueError(
            "spare must be a number of bytes, not %.200r" % (settings["spare"],)
        )
    return storage


def packed(dtype: DType) -> DType:
    """Return a dtype without gaps between the fields, in which nothing is stored."""
    if dtype.subdtype is not None:
        return numpy.dtype((packed(dtype.base), dtype.shape))
    if dtype.fields is None or dtype.names is None:
        return dtype
    return numpy.dtype([(name, packed(dtype.fields[name][0])) for name in dtype.names])


def decode_storage(stored: Json) -> StorageDocument:
    """Return how an array is stored; raise `FormatError` if that is damaged."""
    if not isinstance(stored, dict):
        refuse("the description of an array", stored)
    text = stored.get("dtype")
    if not isinstance(text, str) or not text.startswith(("'", '"', "[")):
        refuse("'dtype' to be the repr of a type", text)
    dtype = decode_dtype(text)
    check_itemsize(dtype)
    sizes = [math.prod(each.shape) * each.dtype.itemsize for each in leaves_of(dtype)]
    if not sizes or sum(sizes) != dtype.itemsize:
        refuse("'dtype' to have fields, and no bytes between them", text)
    inner = stored.get("inner")
    if not are_lengths(inner) or len(inner) == NUMPY_NDIM:
        refuse("'inner' to be a list of lengths", inner)
    rows, file_rows = stored.get("chunklen"), stored.get("superchunklen")
    if not is_whole(rows, 1, MAX_BUFFERSIZE):
        refuse("'chunklen' to be a number of rows", rows)
    if not is_whole(file_rows, 1) or file_rows % rows:
        refuse("'superchunklen' to be a multiple of %d rows" % rows, file_rows)
    storage = StorageDocument(
        dtype,
        tuple(inner),
        rows,
        file_rows // rows,
        _decode_fill_value(dtype, stored.get("dflt")),
        _decode_settings(stored.get("cparams")),
    )
    for leaf in storage.leaves:
        row = math.prod((*inner, *leaf.shape)) * leaf.dtype.itemsize
        if row * rows > MAX_BUFFERSIZE or storage.slots > MAX_BUFFERSIZE:
            refuse("chunks of at most %d bytes" % MAX_BUFFERSIZE, row * rows)
    return storage


def _decode_fill_value(dtype: DType, stored: Json) -> object:
    if stored is None:
        return numpy.zeros((), dtype)[()]
    try:
        content = base64.b64decode(stored, validate=True)
        item: Array = numpy.frombuffer(content, dtype, 1)
        check_text(item)
        return item[0]
    except (TypeError, ValueError, binascii.Error):
        refuse("'dflt' to be the bytes of an item in base64", stored)


def _decode_settings(stored: Json) -> JsonObject:
    """Return the settings, with the default for each that is missing or wrong."""
    found = stored if isinstance(stored, dict) else {}
    settings = dict(SETTINGS)
    for name, value in SETTINGS.items():
        stored = found.get(name)
        if type(stored) is type(value):
            fits = name not in MOST or 0 <= stored <= MOST[name]
            settings[name] = stored if fits else value
    return settings


# Spare room


def with_spare(chunk: bytes, nbytes: int) -> bytes:
    """Return a chunk with free bytes at its end, which count as a part of it.

    Blosc finds its blocks by their positions, so it ignores the free bytes. A chunk
    never gets longer than Blosc allows: by its header longer than the plain bytes.
    """
    header = decode_header(chunk)
    room = min(nbytes, header.nbytes + BLOSC_HEADER_LENGTH - header.ctbytes)
    if room <= 0:
        return chunk
    size = (header.ctbytes + room).to_bytes(4, "little")
    start = BLOSC_HEADER_LENGTH - len(size)
    return chunk[:start] + size + chunk[BLOSC_HEADER_LENGTH:] + bytes(room)


# Reading and writing all leaves


def count_cbytes(
    data: Folder,
    storage: StorageDocument,
    length: int,
    written: Mapping[str, int] | None = None,
) -> int:
    """Return the size of the files; `written` has those that are not in place."""
    total = 0
    for leaf in storage.leaves:
        sharding = storage.sharding_of(leaf, length)
        with suppress(FileNotFoundError):  # damaged sizes: do not try all names
            for name in map(sharding.names, range(sharding.grid.nshards)):
                size = written.get(data.full(name)) if written else None
                total += data.size(name) if size is None else size
    return total


def write_leaves(
    change: Change,
    prefix: str,
    storage: StorageDocument,
    blocks: Blocks,
    old: Sequence[ShardFiles | None] | None = None,
    length: int = 0,
    *,
    at_once: bool = True,
) -> dict[str, int]:
    """Write blocks of rows, each leaf to its files; return the sizes by file name.

    `old` is the files of the leaves now, whose first `length` rows are kept. The first
    block says which fields all have: the leaves of other fields are not written.
    """
    blocks, fields = fields_of(blocks, storage.dtype)
    sources = [None] * len(storage.leaves) if old is None else old
    finish_chunk = partial(with_spare, nbytes=storage.settings["spare"])
    writers = [
        ShardWriter(
            change,
            prefix,
            storage.sharding_of(leaf, length),
            storage.args_of(leaf),
            source,
            at_once=at_once,
            part_of=leaf.of,
            finish_chunk=finish_chunk,
        )
        for leaf, source in zip(storage.leaves, sources, strict=True)
        if leaf.fields[:1] in fields
    ]
    write_shards(writers, blocks)
    return {name: size for each in writers for name, size in each.sizes.items()}


def fields_of(blocks: Blocks, dtype: DType) -> tuple[Blocks, set[tuple[str, ...]]]:
    """Return the same blocks, and the fields that they have: ``()`` without fields."""
    remaining = iter(blocks)
    first = list(islice(remaining, 1))
    names = first[0][1].dtype.names if first else dtype.names
    return chain(first, remaining), {(name,) for name in names} if names else {()}
