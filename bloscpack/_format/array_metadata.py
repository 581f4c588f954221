"""The metadata of an array: dtype, shape and order, and the labels of its axes.

Dtype, shape and order are read in the spelling of every release.

JSON values to objects and back, no files (docs/format.rst, Arrays). Values from a file
are checked before they are used.

Labels are names of the axes, coordinates and attributes. The metadata that the user
stores with an array may be a JSON object with these keys, as xarray writes them
(``DataArray.to_dict``):

dims    a list with the name of each axis, all different
name    the name of the array
attrs   an object with attributes
coords  an object with coordinates; each has ``dims`` and ``data``, a list with as many
        levels as axes, and may have ``attrs`` and ``dtype``, a format string of NumPy

Every other key is an attribute, too. A value of another kind is not a label but an
attribute under its key. So any metadata can be shown, and nothing in it is lost.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from operator import index
from typing import Literal, TypeGuard

import numpy

from .._types import Json, JsonObject
from ..constants import MAX_BUFFERSIZE, MAX_NDIM
from ..exceptions import (
    DamageError,
    DoesNotFit,
    FormatError,
    NotANumpyArray,
    Unsupported,
    UsageValueError,
    metadata_damage,
)
from ..log import counted
from ..serializers import CHUNKS, CONTAINER, GRID, SHARD, is_array, is_grid, is_text
from .blosc_header import chunk_damage
from .dtypes import Array, DType, decode_dtype, encode_dtype, refuse, shown
from .grid import MAX_SLOTS, Grid, cut
from .text import TEXT

# Maximum number of dimensions in the installed NumPy; NumPy 2 does not publish it.
NUMPY_NDIM: int = getattr(numpy, "MAXDIMS", MAX_NDIM)
# Maximum size in bytes of an array in memory.
MAX_NBYTES = sys.maxsize
# Maximum size in bytes of an item of a dataset: a few items are in memory before any of
# them is found in the files, such as the fill value.
MAX_ITEM_NBYTES = 2**26
# Advice in the message for a file without an array.
BYTES_ARE_READ = (
    "the file contains bytes and no array; 'blpk decompress', open and "
    "unpack_bytes_from_file read them; 'blpk compress --npy' and 'blpk convert' store "
    "the array of a .npy file"
)


def check_itemsize(dtype: DType) -> None:
    """Raise `FormatError` for the dtype of a dataset whose items are too large."""
    if dtype.itemsize > MAX_ITEM_NBYTES:
        raise Unsupported(
            "expected items of at most '%d' bytes, found '%d'"
            % (MAX_ITEM_NBYTES, dtype.itemsize),
            section="metadata",
        )


def describe(ndarray: Array) -> JsonObject:
    """Return the metadata of an array."""
    fortran = ndarray.flags.f_contiguous and not ndarray.flags.c_contiguous
    return {
        "dtype": encode_dtype(ndarray.dtype),
        "shape": ndarray.shape,
        "order": "F" if fortran else "C",
        "container": CONTAINER,
    }


def with_chunks(
    metadata: JsonObject, chunk: tuple[int, ...], shard: tuple[int, ...] | None = None
) -> JsonObject:
    """Return the metadata of the same array, cut into chunks in every axis.

    Of a Zarr shard, `shard` is the shape of the whole shard.
    """
    new = {**metadata, "order": "C", "container": GRID, CHUNKS: chunk}
    return new if shard is None else {**new, SHARD: shard}


def grid_for(array: Array | Description, chunks: object) -> Grid:
    """Return the grid of an array with the chunks that a user wants.

    `chunks` is a number of rows, or the length of a chunk along each axis. Only the
    first one may exceed the array, which may grow there. Raises `UsageError` if it is
    neither, or if a chunk is too large.
    """
    shape = array.shape
    given = (chunks, *shape[1:]) if isinstance(chunks, (int, numpy.integer)) else chunks
    try:
        chunk = tuple(max(index(n), 0) for n in given)  # type: ignore[attr-defined]
    except TypeError:
        chunk = (0,)
    if len(chunk) != len(shape) or 0 in chunk or not chunk:
        raise UsageValueError(
            "chunks: expected a number of rows, or the lengths of a chunk along the "
            "%s of the array, found %.200r" % (counted(len(shape), "axis"), chunks)
        )
    chunk = chunk[:1] + tuple(
        max(1, min(pair)) for pair in zip(chunk[1:], shape[1:], strict=True)
    )
    size = math.prod(chunk) * array.dtype.itemsize
    if size > MAX_BUFFERSIZE:
        raise UsageValueError(
            "chunks: chunks of shape %s have '%d' bytes, but the largest chunk has '%d'"
            % (chunk, size, MAX_BUFFERSIZE)
        )
    return Grid(shape, chunk, tuple(max(1, n) for n in cut(shape, chunk)))


class Description:
    """The checked metadata of an array, the attribute ``metadata``.

    Attributes
    ----------
    nbytes, stored_nbytes
        Size of the array, and of all chunks, in bytes; chunks of a grid are padded.
    grid
        How the chunks of the file divide every axis, by their numbers in the file; None
        if the chunks are spans of the items in order.
    chunk_nbytes
        Size in bytes of each chunk of a grid; 0 without one.
    shard
        The grid of the whole shard that the file is a part of; None for others.
    """

    def __init__(self, metadata: object) -> None:
        if not is_array(metadata):
            raise NotANumpyArray(
                "expected the metadata of an array, found %s: %s"
                % (shown(metadata), BYTES_ARE_READ),
                section="metadata",
            )
        if "dtype" not in metadata or "shape" not in metadata:
            refuse("'dtype' and 'shape' in the metadata of an array", sorted(metadata))
        self.metadata = metadata
        self.dtype = decode_dtype(metadata["dtype"])
        stored = metadata["shape"]
        shape = [stored] if type(stored) is int else stored
        if not are_lengths(shape):
            refuse("a shape in the metadata", stored)
        self.shape = tuple(shape)
        self.order = metadata.get("order", "C")
        if self.order not in ("C", "F"):
            refuse("the order 'C' or 'F' in the metadata", self.order)
        itemsize = self.dtype.itemsize
        self.nbytes = self.stored_nbytes = math.prod(shape) * itemsize
        # NumPy would refuse the shape. It ignores axes of length 0 when it limits the
        # size.
        if (self.nbytes or math.prod(n or 1 for n in shape) * itemsize) > MAX_NBYTES:
            why = "is larger than any memory"
            if not self.nbytes:
                why = "can't be made: NumPy has no axes of that length, even without "
                why += "items"
            # Leave out the size: Python refuses to format numbers with thousands of
            # digits.
            raise metadata_damage(
                "an array of shape %.200s and dtype '%.200s' %s"
                % (self.shape, self.dtype, why)
            )
        self.grid: Grid | None = None
        self.chunk_nbytes = 0
        self.shard: Grid | None = None
        if metadata["container"] == GRID:
            self._decode_grid(metadata)

    def _decode_grid(self, metadata: JsonObject) -> None:
        """Set how chunks divide the axes; raise `FormatError` if it is impossible."""
        shape, ndim = self.shape, len(self.shape)
        if self.order != "C" or 0 in shape:
            expected = "an array in C order with items, in chunks of every axis"
            refuse(expected, (self.order, shape))
        chunk, whole = metadata.get(CHUNKS), metadata.get(SHARD)
        if not are_lengths(chunk, 1) or len(chunk) != ndim:
            refuse("'chunks' of %s in the metadata" % counted(ndim, "length"), chunk)
        size = math.prod(chunk) * self.dtype.itemsize
        if not 0 < size <= MAX_BUFFERSIZE:
            refuse("chunks of 1 to '%d' bytes" % MAX_BUFFERSIZE, chunk)
        chunk = tuple(chunk)
        self.grid = Grid(shape, chunk, cut(shape, chunk))
        self.chunk_nbytes = size
        self.stored_nbytes = self.grid.nchunks * size
        if SHARD not in metadata:
            return
        if not are_lengths(whole, 1) or len(whole) != ndim:
            refuse("a 'shard' of %s in the metadata" % counted(ndim, "length"), whole)
        axes = list(zip(whole, chunk, shape, strict=True))
        if any(n % size or n < length for n, size, length in axes):
            refuse("a 'shard' of whole chunks that has shape %s" % (shape,), whole)
        self.shard = Grid(shape, chunk, cut(tuple(whole), chunk))
        if self.shard.slots > MAX_SLOTS:
            refuse("a 'shard' of at most '%d' chunks" % MAX_SLOTS, whole)

    def check_nbytes(self, nbytes: int) -> None:
        """Raise `FormatError` unless the array has `nbytes`, as many as the chunks."""
        if nbytes != self.stored_nbytes:
            raise metadata_damage(self.differs_from(nbytes))

    def chunk_at(self, start: int, nbytes: int) -> int:
        """Return the number of the chunk of a grid at a position in the plain bytes.

        Raises `FormatError` if a chunk has another size.
        """
        assert self.grid is not None
        size = self.chunk_nbytes
        if nbytes != size or start % size:
            raise chunk_damage(
                "expected chunks of shape %s with '%d' bytes each, found '%d' bytes"
                % (self.grid.chunk, size, nbytes)
            )
        return start // size

    def differs_from(self, nbytes: int) -> str:
        """Return the message for chunks that have another number of bytes."""
        array = "an array of shape %s and dtype '%s'" % (self.shape, self.dtype)
        if self.grid is not None:
            array += " in chunks of shape %s" % (self.grid.chunk,)
        size = self.stored_nbytes
        return "%s has '%d' bytes, but the chunks hold '%d'" % (array, size, nbytes)


def describe_shard(metadata: Json) -> Description:
    """Return the description of an array, or of the text in a shard.

    The chunks of text have any size: those in the description are not theirs.
    """
    if not is_text(metadata):
        return Description(metadata)
    description = Description({**metadata, "container": GRID, "dtype": "'|V1'"})
    description.metadata, description.dtype = metadata, TEXT
    return description


def is_whole(value: object, least: int = 0, most: int = MAX_NBYTES) -> TypeGuard[int]:
    """Return whether a value from a file is a whole number: not ``true``, nor 1.0."""
    return type(value) is int and least <= value <= most


def are_lengths(value: object, least: int = 0) -> TypeGuard[Sequence[int]]:
    """Return whether a value from a file is a list of lengths of axes."""
    if not isinstance(value, (list, tuple)) or len(value) > NUMPY_NDIM:
        return False
    # Each open of an array asks this several times: the calls below are of C code.
    return {*map(type, value)} <= {int} and (
        not value or (min(value) >= least and max(value) <= MAX_NBYTES)
    )


def new_array(
    shape: tuple[int, ...], dtype: DType, order: Literal["C", "F"] = "C"
) -> Array:
    """Return a new array with undefined items; raise `FormatError` if it is too large.

    The shape comes from a file.
    """
    try:
        # numpy.empty would make strings of length 0 one character long.
        return numpy.ndarray(shape, dtype=dtype, order=order)
    except (MemoryError, ValueError, OverflowError) as error:
        # A sound file may have more items than the memory has room for.
        kind = Unsupported if isinstance(error, MemoryError) else DamageError
        raise kind(
            "an array of shape %s and dtype '%s' can't be made: %s"
            % (shape, dtype, error),
            section="metadata",
        ) from error


def check_new_description(metadata: Json, nbytes: int, old: Json) -> None:
    """Raise `DoesNotFit` unless these metadata describe an array of `nbytes`.

    `old` are the metadata of the file. The chunks of a grid are padded: there is no
    other array in their bytes.
    """
    if is_grid(metadata) or is_grid(old):
        keys = "container", "dtype", "shape", CHUNKS
        if not is_grid(old) or any(metadata.get(key) != old[key] for key in keys):
            raise DoesNotFit(
                "an array in chunks of every axis is to be replaced by another one, or "
                "to replace it"
            )
    try:
        described = Description(metadata)
        if described.grid is None:
            described.check_nbytes(nbytes)
    except FormatError as error:
        raise DoesNotFit(error.message) from error


def grown_metadata(metadata: Json, nbytes: int, new_size: int) -> Json:
    """Return the metadata of an array of `nbytes` after appending `new_size` bytes.

    The array grows along its first axis. Raises `DoesNotFit` if the new bytes are not
    whole rows, and `FormatError` if shape and size of the old array contradict each
    other.
    """
    old = Description(metadata)
    old.check_nbytes(nbytes)
    if new_size == 0:
        return metadata
    row = math.prod(old.shape[1:]) * old.dtype.itemsize
    if not old.shape or (old.order == "F" and len(old.shape) > 1):
        raise DoesNotFit(
            "an array of shape %s and order '%s' can't grow along its first axis"
            % (old.shape, old.order)
        )
    if row == 0 or new_size % row:
        raise DoesNotFit(
            "'%d' bytes are to be appended to an array of shape %s and dtype '%s', "
            "whose rows have '%d' bytes" % (new_size, old.shape, old.dtype, row)
        )
    grown = {**metadata, "shape": [old.shape[0] + new_size // row, *old.shape[1:]]}
    if old.grid is not None and old.shard is not None:
        rows, first = grown["shape"][0], old.grid.chunk[0]
        rows = max(old.shard.shard[0], -(-rows // first) * first)
        grown[SHARD] = [rows, *old.shard.shard[1:]]
    return grown


def check_rows(metadata: object, rows: Array) -> None:
    """Raise `DoesNotFit` unless `rows` can follow the array of `metadata`."""
    old = Description(metadata)
    old_dtype, new_dtype = encode_dtype(old.dtype), encode_dtype(rows.dtype)
    if old_dtype != new_dtype:
        raise DoesNotFit(
            "items of dtype %s are to be appended to an array of dtype %s"
            % (new_dtype, old_dtype)
        )
    if rows.ndim == 0 or rows.shape[1:] != old.shape[1:]:
        raise DoesNotFit(
            "an array of shape %s is to be appended to one of shape %s, from which it "
            "may differ only in the first axis" % (rows.shape, old.shape)
        )
    if not rows.flags.c_contiguous:
        raise DoesNotFit(
            "the array to be appended is in Fortran order, where rows do not lie one "
            "behind the other: save it as numpy.ascontiguousarray returns it"
        )
    if rows.shape[0] and rows.nbytes == 0:
        raise DoesNotFit(
            "rows of no bytes can't be appended: an array of shape %s" % (rows.shape,)
        )


# Key of the attribute that holds metadata that are not an object.
WHOLE = "metadata"


class Labels:
    """The labels of an array with `ndim` axes.

    ``dims`` and ``name`` are None if the metadata have none. ``attrs`` and ``coords``
    are objects, possibly empty.
    """

    def __init__(self, metadata: Json, ndim: int) -> None:
        self.dims: list[str] | None = None
        self.name: str | None = None
        self.attrs: JsonObject = {}
        self.coords: dict[str, JsonObject] = {}
        if metadata is None:
            return
        if not isinstance(metadata, dict):
            self.attrs[WHOLE] = metadata
            return
        rest = dict(metadata)
        if _are_dims(rest.get("dims"), ndim):
            self.dims = rest.pop("dims")
        if isinstance(rest.get("name"), str) and rest["name"]:
            self.name = rest.pop("name")
        if isinstance(rest.get("coords"), dict) and self.dims is not None:
            for name, entry in rest.pop("coords").items():
                if (
                    isinstance(entry, dict)
                    and isinstance(entry.get("data"), (list, int, float, str))
                    and _are_dims(entry.get("dims"))
                    and set(entry["dims"]) <= {*self.dims}
                ):
                    self.coords[name] = entry
                else:
                    self.attrs[name] = entry
        if isinstance(rest.get("attrs"), dict):
            self.attrs.update(rest.pop("attrs"))
        self.attrs = {**rest, **self.attrs}


def default_dims(ndim: int) -> list[str]:
    """Return the names of axes without names, which are those of xarray."""
    return ["dim_%d" % i for i in range(ndim)]


def _are_dims(names: Json, ndim: int | None = None) -> bool:
    return (
        isinstance(names, list)
        and all(isinstance(name, str) and name for name in names)
        and len(set(names)) == len(names)
        and ndim in (None, len(names))
    )
