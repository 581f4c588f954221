"""A backend of xarray: ``xarray.open_dataset("x.blp")`` reads only the needed chunks.

xarray finds the backend through an entry point, and imports this module when it looks
for a backend. The dataset has one variable: the array of the file. `metadata_of`
returns metadata with the labels of a `DataArray`, to be stored with its items.

With ``engine="bloscpack"`` it opens the folder or URL of a dataset, too: the arrays of
a group, the columns of a table, or an array.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import numpy
from xarray import DataArray, Dataset, Variable, conventions, decode_cf
from xarray.backends import BackendArray, BackendEntrypoint
from xarray.core import indexing

from .. import dataset, exceptions
from .._format.array_metadata import Labels, default_dims
from .._format.dtypes import Array, DType
from .._format.zarr_metadata import encode_attributes
from .._storage.local import begins_with
from .._storage.paths import is_url
from .._storage.urls import last_part
from .._types import JsonObject
from ..constants import EXTENSION, MAGIC
from ..dataset.labels import ROW, stored_dims
from ..dataset.layouts import find_members
from ..lazy_array import LazyArray, open_ndarray

Stored = dataset.Array | dataset.Table | dataset.Group

# The classes of datasets.
STORED = dataset.Array, dataset.Table, dataset.Group
# The parameters that are those of `open_ndarray`.
OPENING = {"cache_nbytes", "nthreads", "limits", "whole", "storage_options"}
# Name of the variable if neither the metadata nor the file have a name.
DEFAULT_NAME = "data"
# Kinds of dtypes that the values of a coordinate may have.
COORDINATE_KINDS = "biufU"
# Maximum size in bytes of the values of a coordinate, which the metadata contain.
MAX_COORDINATE_NBYTES = 2**30


class BloscpackBackend(BackendEntrypoint):  # type: ignore[misc]
    """The backend ``"bloscpack"`` of xarray, for array files and datasets."""

    description = "Open .blp array files and datasets with Bloscpack"
    # xarray shows these to its users, and passes the options for decoding on.
    open_dataset_parameters = (
        *("filename_or_obj", "drop_variables", "mask_and_scale", "decode_times"),
        *("concat_characters", "decode_coords", "use_cftime", "decode_timedelta"),
        *("name", "dims", *OPENING),
    )

    def guess_can_open(self, filename_or_obj: object) -> bool:
        """Return whether a file has the extension or the first bytes of Bloscpack."""
        if isinstance(filename_or_obj, (str, os.PathLike)):
            name = os.fspath(filename_or_obj)
            with suppress(OSError):
                return name.endswith(EXTENSION) or begins_with(name, MAGIC)
            return False
        if isinstance(filename_or_obj, (bytes, bytearray, memoryview)):
            return bytes(filename_or_obj[: len(MAGIC)]) == MAGIC
        return _first_bytes(filename_or_obj) == MAGIC

    def open_dataset(
        self,
        filename_or_obj: object,
        *,
        drop_variables: str | Iterable[str] | None = None,
        name: str | None = None,
        dims: Sequence[str] | None = None,
        **options: Any,
    ) -> Dataset:
        """Return a dataset with the array of a file; it reads only the chunks it needs.

        Parameters
        ----------
        filename_or_obj
            A path, a URL, a binary file object that can seek, or a buffer. Or the
            folder or URL of an array, table or group, or such an object.
        name
            Name of the variable, if it is a file or an array. By default the name in
            the metadata, or the name of the file without folder and extension.
        dims
            Names of the axes. By default those in the metadata, or ``dim_0`` and so on.
        cache_nbytes, nthreads, limits, whole, storage_options
            As in `open_ndarray`. Datasets have `storage_options` only.

        The other parameters are those of `xarray.decode_cf`.
        """
        opening = {key: options.pop(key) for key in OPENING & options.keys()}
        dropped = drop_variables or ()
        dropped = {dropped} if isinstance(dropped, str) else {*dropped}
        source = _opened(filename_or_obj, opening)
        with ExitStack() as stack:
            opened = [] if source is filename_or_obj else [source]
            stack.callback(_close, opened)
            if isinstance(source, LazyArray):
                labels = Labels(source.metadata, source.ndim)
                name = name or labels.name or _stem(filename_or_obj)
                labels.dims = [*dims] if dims is not None else labels.dims
                encoded = _dataset(source, name, labels, dropped)
            else:
                refused = {**opening, "dims": dims, "storage_options": None}
                arrays = _arrays_of(source, name, dropped, refused)
                if opened:
                    opened[:0] = arrays.values()
                encoded = _stored_dataset(source, arrays)
                # Each item of an array is a text by itself.
                options.setdefault("concat_characters", False)
            decoded: Dataset = decode_cf(encoded, drop_variables=dropped, **options)
            decoded.set_close(partial(_close, opened))
            stack.pop_all()
        return decoded


def _close(opened: list[LazyArray | Stored]) -> None:
    for node in opened:
        node.close()


def _opened(source: Any, opening: dict[str, Any]) -> LazyArray | Stored:
    """Return the array file or the dataset that a path, a URL or an object names."""
    if isinstance(source, STORED):
        return source
    options = opening.get("storage_options")
    if not is_url(source):
        is_path = isinstance(source, (str, os.PathLike))
        if is_path and dataset.find(source) is not None:
            return dataset.open(source)
        return open_ndarray(source, **opening)
    try:
        return open_ndarray(source, **opening)
    except (exceptions.FormatError, OSError):  # there is no file, or a list of files
        found = None
        if not last_part(source).endswith(EXTENSION):
            with suppress(exceptions.BloscpackError, OSError):
                found = dataset.find(source, storage_options=options)
        if found is None:
            raise
    return dataset.open(source, storage_options=options)


def _first_bytes(file: Any) -> bytes | None:
    """Return the first bytes of a file object, whose position stays; None if none."""
    with suppress(AttributeError, OSError, ValueError), ExitStack() as stack:
        stack.callback(file.seek, file.tell())
        file.seek(0)
        found: bytes = file.read(len(MAGIC))
        return found
    return None


def _stem(file: object) -> str:
    """Return the name of a file without folder and extension."""
    if not isinstance(file, (str, os.PathLike)):
        file = getattr(file, "name", "")
    if not isinstance(file, (str, os.PathLike)):
        return DEFAULT_NAME
    name = os.fsdecode(file)
    base = ""
    with suppress(exceptions.UsageError):  # a URL without a path
        base = last_part(name) if is_url(name) else os.path.basename(name)
    return base.removesuffix(EXTENSION).removesuffix(".npy") or DEFAULT_NAME


def _dataset(lazy: LazyArray, name: str, labels: Labels, dropped: set[str]) -> Dataset:
    """Return a dataset with the array and the coordinates in its metadata."""
    dims = default_dims(lazy.ndim) if labels.dims is None else labels.dims
    if len(dims) != lazy.ndim:
        raise exceptions.UsageValueError(
            "dims: expected %d names of axes, found %d" % (lazy.ndim, len(dims))
        )
    array = _variable(dims, lazy, labels.attrs, lazy.chunks)
    sizes = dict(zip(dims, lazy.shape, strict=True))
    coords = {
        key: _coordinate(key, entry, sizes)
        for key, entry in labels.coords.items()
        if key not in dropped and key != name
    }
    found = Dataset({} if name in dropped else {name: array})
    return found.assign_coords(coords)


def _variable(
    dims: Sequence[str],
    array: LazyArray | dataset.Array,
    attrs: object,
    blocks: tuple[int, ...],
) -> Variable:
    """Return a variable that reads an array, best in blocks of a shape."""
    data = indexing.LazilyIndexedArray(_LazyItems(array))
    found = Variable(dims, data, attrs, fastpath=True)
    found.encoding = {"preferred_chunks": dict(zip(dims, blocks, strict=True))}
    return found


def _coordinate(name: str, entry: JsonObject, sizes: dict[str, int]) -> Variable:
    """Return a coordinate from the metadata."""
    dims = entry["dims"]
    expected = tuple(sizes[dim] for dim in dims)
    values = None
    # Uneven lists, a dtype that does not exist, numbers that it does not have.
    with suppress(TypeError, ValueError, OverflowError, SyntaxError):
        values = _values(entry["data"], entry.get("dtype"))
    if values is None or values.shape != expected:
        raise exceptions.UsageValueError(
            "the coordinate '%s' in the metadata does not fit its axes, which have %s "
            "items; drop_variables=['%s'] opens the file without it"
            % (name, expected, name)
        )
    attrs = entry.get("attrs")
    return Variable(dims, values, attrs if isinstance(attrs, dict) else None)


def _values(data: object, text: object) -> Array:
    """Return the values of a coordinate, with the dtype that a text describes.

    In an array of texts each item has the size of the longest one, so that little
    metadata could take much memory: the size is checked before NumPy makes the array.
    """
    items = numpy.array(data, dtype=object)
    longest = max((len(i) for i in items.flat if isinstance(i, str)), default=0)
    _check_coordinate(items.size, numpy.dtype("U%d" % longest))
    found = numpy.array(data)
    dtype = numpy.dtype(text) if isinstance(text, str) else found.dtype
    if dtype.kind not in COORDINATE_KINDS:
        return found
    _check_coordinate(found.size, dtype)
    return found.astype(dtype)


def _check_coordinate(size: int, dtype: DType) -> None:
    if size * dtype.itemsize > MAX_COORDINATE_NBYTES:
        raise ValueError("the coordinate is too large")


class _LazyItems(BackendArray):  # type: ignore[misc]
    """What xarray needs of an array: indexing of each axis by itself."""

    def __init__(self, array: LazyArray | dataset.Array) -> None:
        self._array = array
        self.shape = array.shape
        self.dtype = array.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Array:
        read = self._array.oindex.__getitem__
        if isinstance(key, (indexing.BasicIndexer, indexing.OuterIndexer)):
            found: Array = read(key.tuple)
        else:  # xarray reads an index that has all items, and selects among them
            outer = indexing.IndexingSupport.OUTER
            found = indexing.explicit_indexing_adapter(key, self.shape, outer, read)
        return found


def _arrays_of(
    node: Stored, name: str | None, dropped: set[str], refused: dict[str, object]
) -> dict[str, dataset.Array]:
    """Return the arrays of a group, the columns of a table, or an array as `name`.

    Those that are `dropped` are not opened. `refused` are parameters of files.
    """
    is_array = isinstance(node, dataset.Array)
    for key, value in {**refused, "name": None if is_array else name}.items():
        if value is not None:
            raise exceptions.UsageTypeError(
                "'%s' is for files, and '%s' is a dataset" % (key, node.path)
            )
    if isinstance(node, dataset.Array):
        return {name or _stem(node.path): node}
    if isinstance(node, dataset.Table):
        names = [*node.columns]
    else:
        listed = find_members(node._layout.folder, skip_unreadable=False)
        names = [key for key, found in listed if found.kind == "array"]
    return {key: node[key] for key in names if key not in dropped}


def _stored_dataset(node: Stored, arrays: dict[str, dataset.Array]) -> Dataset:
    """Return arrays of a dataset as they are stored."""
    found = Dataset()
    if not isinstance(node, dataset.Array):
        found.attrs = node.attrs.asdict()
    dims = [ROW] if isinstance(node, dataset.Table) else None
    for name, array in arrays.items():
        names = stored_dims(name, array.ndim, array.dims or dims)
        blocks = array.shards or array.chunks
        found[name] = _variable(names, array, array.attrs.asdict(), blocks)
    return found


def metadata_of(array: DataArray) -> JsonObject:
    """Return the labels of an array as metadata, to be packed with its items.

    `open_dataset` makes dimensions, coordinates, attributes and name of the array from
    them. Dates become numbers with units, as in files of netCDF.
    """
    found: JsonObject = {"dims": [str(dim) for dim in array.dims]}
    if array.name is not None:
        found["name"] = str(array.name)
    if array.attrs:
        found["attrs"] = _plain(array.attrs)
    coords: JsonObject = {}
    for name, coordinate in array.coords.items():
        encoded = conventions.encode_cf_variable(coordinate.variable, name=name)
        coords[str(name)] = entry = {
            "dims": [str(dim) for dim in encoded.dims],
            "data": encoded.values.tolist(),
        }
        if encoded.dtype.kind in COORDINATE_KINDS:
            entry["dtype"] = encoded.dtype.str
        if encoded.attrs:
            entry["attrs"] = _plain(encoded.attrs)
    if coords:
        found["coords"] = coords
    return found


def _plain(attrs: dict[object, object]) -> JsonObject:
    """Return attributes with lists and numbers of Python instead of those of NumPy."""
    text = encode_attributes({str(name): value for name, value in attrs.items()})
    found: JsonObject = json.loads(text)
    return found
