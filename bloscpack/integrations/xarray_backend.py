"""A backend of xarray: ``xarray.open_dataset("x.blp")`` reads only the needed chunks.

xarray finds the backend through an entry point, and imports this module when it looks
for a backend. The dataset has one variable: the array of the file. `metadata_of`
returns metadata with the labels of a `DataArray`, to be stored with its items.

With ``engine="bloscpack"`` it opens an archive, and the folder or URL of a dataset,
too: the arrays of a group, the columns of a table, or an array.
``xarray.open_datatree`` opens a group with the groups and tables in it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import numpy
from xarray import DataArray, Dataset, DataTree, Variable, conventions, decode_cf
from xarray.backends import AbstractDataStore, BackendArray, BackendEntrypoint
from xarray.coding.strings import EncodedStringCoder
from xarray.core import indexing

from .. import dataset, exceptions
from .._engine.contexts import on_error
from .._file.opened import OpenedFile
from .._format.array_metadata import Labels, default_dims
from .._format.dtypes import Array, DType
from .._format.names import listed
from .._format.other_formats import ZARR_JSON
from .._format.text import TEXT
from .._format.zarr_metadata import decode_mask, encode_attributes, with_mask
from .._storage.local import begins_with
from .._storage.paths import is_url
from .._storage.urls import last_part
from .._types import JsonObject
from ..constants import EXTENSION, MAGIC
from ..dataset.folder import Folder, attempts
from ..dataset.group import open_node
from ..dataset.labels import ROW, stored_dims, told_unequal, unequal_lengths
from ..dataset.layouts import (
    NO_FOLDERS,
    blp_files,
    detect,
    find_members,
    missing_members,
)
from ..dataset.opening import Options
from ..dataset.xarray_data import UNLIMITED
from ..dataset.xarray_values import time_coders
from ..lazy_array import LazyArray, open_ndarray
from ..log import counted, notice

Stored = dataset.Array | dataset.Table | dataset.Group
Source = LazyArray | dataset.Array

# The classes of datasets.
STORED = dataset.Array, dataset.Table, dataset.Group
# The parameters that are those of `open_ndarray`.
OPENING = {"cache_nbytes", "nthreads", "limits", "whole", "storage_options"}
# The parameters of `xarray.decode_cf`, which xarray passes on.
DECODING = {
    *("mask_and_scale", "decode_times", "concat_characters", "decode_coords"),
    *("use_cftime", "decode_timedelta"),
}
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
        *("filename_or_obj", "drop_variables", "name", "dims", "group", "pinned"),
        *("consolidated", "zarr_format", *sorted(DECODING | OPENING)),
    )
    supports_groups = True

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
        group: str | None = None,
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
        group
            The path of a group or table in a group, which is opened instead.
        consolidated
            At a URL, the documents of all members are read with that of the group, if
            it has copies. With False, each document itself is read.
        pinned
            As in `dataset.open`: reading any variable is an error after a change. A
            file is always read in one state.
        zarr_format
            3, or None: datasets of other layouts are recognized.
        cache_nbytes, nthreads, limits, whole, storage_options
            As in `open_ndarray`. Datasets have `storage_options` only.

        The other parameters are those of `xarray.decode_cf`.
        """
        given = {"name": name, "dims": dims, "drop_variables": drop_variables}
        (_, opened), *_ = _each(filename_or_obj, group, {**given, **options}, False)
        return opened

    def open_groups_as_dict(
        self, filename_or_obj: object, *, group: str | None = None, **options: Any
    ) -> dict[str, Dataset]:
        """Return a dataset for a group, and for each group and table inside of it.

        The keys are paths in the group. The parameters are those of `open_dataset`.
        """
        return dict(_each(filename_or_obj, group, options, True))

    def open_datatree(self, filename_or_obj: object, **options: Any) -> DataTree:
        """Return the datasets of `open_groups_as_dict` as a tree."""
        by_path = self.open_groups_as_dict(filename_or_obj, **options)
        with on_error(_close, by_path.values()):
            tree: DataTree = DataTree.from_dict(by_path)
        for path, opened in by_path.items():
            tree[path].set_close(opened._close)
        return tree


def _each(
    file: object,
    group: str | None,
    options: dict[str, Any],
    recursive: bool,
    owned: bool = False,
) -> Iterator[tuple[str, Dataset]]:
    """Yield the dataset of a file, array, table or group; then those inside of it.

    `options` are those of `BloscpackBackend.open_dataset`. An object of the caller
    stays open, unless it is `owned`.
    """
    opening = {key: options.pop(key) for key in OPENING & options.keys()}
    own = {key: options.pop(key, None) for key in ("name", "dims", "drop_variables")}
    consolidated = options.pop("consolidated", None)
    pinned = options.pop("pinned", False)
    if options.pop("zarr_format", None) not in (None, 3):
        raise exceptions.UsageValueError("'zarr_format' must be 3 or None")
    for key in options.keys() - DECODING:
        raise exceptions.UsageTypeError(
            "the engine 'bloscpack' has no parameter '%s'" % key
        )
    dropped = own["drop_variables"] or ()
    dropped = {dropped} if isinstance(dropped, str) else {*dropped}
    source = _opened(file, opening, consolidated is not False, pinned)
    owned = owned or source is not file
    opened: list[LazyArray | Stored] = [source] if owned else []
    with ExitStack() as stack:
        stack.callback(_close, opened)
        if group is not None and group.strip("/"):
            if not isinstance(source, dataset.Group):
                raise exceptions.UsageTypeError("'group' is for groups of datasets")
            source = source[group]
            opened[:0] = [source] if owned else []
        decoding = {**options, "drop_variables": dropped}
        inner: list[str] = []
        encoded: Dataset | _Variables
        if isinstance(source, LazyArray):
            labels = Labels(source.metadata, source.ndim)
            name = own["name"] or labels.name or _stem(file)
            labels.dims = labels.dims if own["dims"] is None else [*own["dims"]]
            encoded = _dataset(source, name, labels, dropped)
            lazy = {**encoded.coords.variables}
        else:
            refused = {**opening, "dims": own["dims"], "storage_options": None}
            arrays, inner = _arrays_of(source, own["name"], dropped, refused)
            files = _files_of(source, {*arrays, *inner}, dropped)
            opened[:0] = [*files.values(), *(arrays.values() if owned else [])]
            arrays |= files
            encoded = _Variables(source, arrays)
            lazy = encoded.variables
            if "concat_characters" not in options:
                # Each item of an array is a text by itself.
                encoded.decode_text()
                decoding["concat_characters"] = False
        if options.keys().isdisjoint(("decode_times", "use_cftime")):
            # With an empty dictionary, bounds would stay numbers.
            decoding["decode_times"] = time_coders(lazy) or True
        decoded: Dataset = decode_cf(encoded, **decoding)
        decoded.set_close(partial(_close, opened))
        stack.pop_all()
    yield "/", decoded
    for name in inner if recursive else ():
        shared = {**options, "drop_variables": own["drop_variables"]}
        member = source[name]  # type: ignore[index]
        for path, member_data in _each(member, None, shared, True, owned):
            yield ("/" + name + path).rstrip("/"), member_data


def _close(opened: Iterable[LazyArray | Stored | Dataset]) -> None:
    for node in opened:
        node.close()


def _opened(
    source: Any, opening: dict[str, Any], consolidated: bool, pinned: bool
) -> LazyArray | Stored:
    """Return the array file or the dataset that a path, a URL or an object names."""
    if isinstance(source, STORED):
        if pinned and source._layout.folder.tree.pin is None:
            raise exceptions.UsageTypeError(
                "open '%s' itself with pinned=True" % source.path
            )
        return source
    found = None
    is_path = isinstance(source, (str, os.PathLike))
    # There is no file, a list of files, or something else than a dataset.
    with suppress(exceptions.BloscpackError, OSError):
        if is_path and not (is_url(source) and last_part(source).endswith(EXTENSION)):
            folder = Folder.open(source, opening.get("storage_options"))
            if not consolidated:
                folder.tree.ignore_copies()
            found = detect(folder)
    if found is None:
        return open_ndarray(source, **opening)
    return open_node(found, Options(pinned=pinned))


def _first_bytes(file: Any) -> bytes | None:
    """Return the first bytes of a file object, whose position stays; None if none."""
    with suppress(AttributeError, OSError, ValueError), ExitStack() as stack:
        stack.callback(file.seek, file.tell())
        file.seek(0)
        begin: bytes = file.read(len(MAGIC))
        return begin
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
            "dims: expected %s, found %d" % (counted(lazy.ndim, "name"), len(dims))
        )
    array = _variable(dims, lazy, labels.attrs, lazy.chunks)
    sizes = dict(zip(dims, lazy.shape, strict=True))
    coords = {
        key: _coordinate(key, entry, sizes)
        for key, entry in labels.coords.items()
        if key not in dropped and key != name
    }
    return Dataset({} if name in dropped else {name: array}).assign_coords(coords)


def _variable(
    dims: Sequence[str], array: Source, attrs: object, blocks: tuple[int, ...]
) -> Variable:
    """Return a variable that reads an array, best in blocks of a shape."""
    data = indexing.LazilyIndexedArray(_LazyItems(array))
    variable = Variable(dims, data, attrs, fastpath=True)
    variable.encoding = {"preferred_chunks": dict(zip(dims, blocks, strict=True))}
    return variable


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
    converted = numpy.array(data)
    dtype = numpy.dtype(text) if isinstance(text, str) else converted.dtype
    if dtype.kind not in COORDINATE_KINDS:
        return converted
    _check_coordinate(converted.size, dtype)
    return converted.astype(dtype)


def _check_coordinate(size: int, dtype: DType) -> None:
    if size * dtype.itemsize > MAX_COORDINATE_NBYTES:
        raise ValueError("the coordinate is too large")


def _labels_of(array: Source) -> tuple[Any, JsonObject]:
    """Return the names of the axes of an array, None if it has none, and attributes."""
    if isinstance(array, LazyArray):
        labels = Labels(array.metadata, array.ndim)
        return labels.dims, labels.attrs
    return array.dims, array.attrs.asdict()


class _LazyItems(BackendArray):  # type: ignore[misc]
    """What xarray needs of an array: indexing of each axis by itself."""

    def __init__(self, array: Source) -> None:
        self._array = array
        self.shape = array.shape
        self.dtype = array.dtype
        if self.dtype.names is not None:  # xarray swaps the bytes of numbers only
            self.dtype = self.dtype.newbyteorder("=")

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Array:
        read = self._array.oindex.__getitem__
        if isinstance(key, (indexing.BasicIndexer, indexing.OuterIndexer)):
            items: Array = read(key.tuple)
            if self.dtype == TEXT and isinstance(items, str):
                # As a text, NumPy would drop the zero bytes at its end.
                items = numpy.array(items, TEXT)
        else:  # xarray reads an index that has all items, and selects among them
            outer = indexing.IndexingSupport.OUTER
            items = indexing.explicit_indexing_adapter(key, self.shape, outer, read)
        if self.dtype.names is not None:
            items = numpy.asarray(items).astype(self.dtype, copy=False)
        return items


def _arrays_of(
    node: Stored, name: str | None, dropped: set[str], refused: dict[str, object]
) -> tuple[dict[str, Any], list[str]]:
    """Return the arrays of a group, the columns of a table, or an array as `name`.

    Those that are `dropped` are not opened. Also return the names of the groups and
    tables in a group. `refused` are parameters of files.
    """
    is_array = isinstance(node, dataset.Array)
    for key, value in {**refused, "name": None if is_array else name}.items():
        if value is not None:
            raise exceptions.UsageTypeError(
                "'%s' is for files, and '%s' is a dataset" % (key, node.path)
            )
    if isinstance(node, dataset.Array):
        return {name or _stem(node.path): node}, []
    if isinstance(node, dataset.Table):
        return {key: node[key] for key in node.columns if key not in dropped}, []
    return _members_of(node, dropped)


def _members_of(
    group: dataset.Group, dropped: set[str]
) -> tuple[dict[str, Any], list[str]]:
    """Return the arrays of a group, and the names of its groups and tables.

    All are of one state in a folder: a change of all members replaces the document
    of the group.
    """
    folder, options = group._layout.folder, group._options
    for _ in attempts(group.path):
        version = folder.identity(ZARR_JSON)  # None at a URL
        folder.tree.renew()  # it may have changed since the group was opened
        arrays: dict[str, Any] = {}
        others = []
        with ExitStack() as opened:
            try:
                for name, found in find_members(folder, skip_unreadable=False):
                    if found.kind != "array":
                        others.append(name)
                    elif name not in dropped and options.writable:
                        arrays[name] = group[name]  # all who use the group share it
                    elif name not in dropped:
                        arrays[name] = open_node(found, options)
                        opened.callback(arrays[name].close)
                for node in (group, *arrays.values()):
                    node.attrs.asdict()  # which it keeps
            except (FileNotFoundError, exceptions.StorageError):
                if version == folder.identity(ZARR_JSON):
                    raise
            else:
                if version == folder.identity(ZARR_JSON):
                    opened.pop_all()
                    if lost := missing_members(folder):
                        notice(NO_FOLDERS % (group.path, listed(lost)))
                    return arrays, others
        group.refresh()
    raise AssertionError


def _files_of(node: Stored, known: set[str], dropped: set[str]) -> dict[str, LazyArray]:
    """Return the arrays of an archive of which Zarr has no shards, also if unzipped."""
    folder, files = node._layout.folder, dict[str, LazyArray]()
    is_group = isinstance(node, dataset.Group) and node.layout == "zarr"
    for file in blp_files(folder) if is_group and not folder.is_remote else ():
        name = file.removesuffix(EXTENSION)
        if name in dropped:
            continue
        if name not in known:
            with suppress(exceptions.NotANumpyArray):
                files[name] = _open_file(folder.path(file), folder, file)
                continue
        notice("the dataset is opened without the file '%s'" % folder.path(file))
    return files


def _open_file(path: str, folder: Folder, name: str) -> LazyArray:
    again = partial(_open_file, path, folder, name)
    return LazyArray(OpenedFile(folder.storage(name), name=path), again)


class _Variables(AbstractDataStore):  # type: ignore[misc]
    """The encoded arrays of a dataset, which xarray decodes."""

    def __init__(self, node: Stored, arrays: dict[str, Any]) -> None:
        self._node = node
        labels = {n: _labels_of(array) for n, array in arrays.items()}
        rows = [ROW] if isinstance(node, dataset.Table) else None
        stored = {
            name: stored_dims(name, array.ndim, labels[name][0] or rows)
            for name, array in arrays.items()
        }
        shapes = {name: (stored[name], arrays[name].shape) for name in arrays}
        if unequal := unequal_lengths(shapes):
            raise exceptions.UsageValueError(
                "'%s': %s; drop_variables leaves arrays out"
                % (node.path, told_unequal(unequal))
            )
        self.variables: dict[Any, Variable] = {}
        for name, array in arrays.items():
            blocks = getattr(array, "shards", None) or array.chunks
            attrs = with_mask(labels[name][1], array.dtype, decode_mask, "c")
            self.variables[name] = _variable(stored[name], array, attrs, blocks)

    def decode_text(self) -> None:
        """Decode the bytes of those that name their encoding, as xarray writes text."""
        coder: Any = EncodedStringCoder()  # type: ignore[no-untyped-call]
        for name, variable in self.variables.items():
            if variable.dtype.kind == "S" and "_Encoding" in variable.attrs:
                self.variables[name] = coder.decode(variable, name)

    def _of_node(self) -> JsonObject:
        is_array = isinstance(self._node, dataset.Array)
        return {} if is_array else self._node.attrs.asdict()

    def get_attrs(self) -> JsonObject:
        return {k: v for k, v in self._of_node().items() if k != UNLIMITED}

    def get_encoding(self) -> JsonObject:
        unlimited = self._of_node().get(UNLIMITED)
        return {UNLIMITED: {*unlimited}} if isinstance(unlimited, list) else {}

    def get_variables(self) -> dict[str, Variable]:
        return self.variables


def metadata_of(array: DataArray) -> JsonObject:
    """Return the labels of an array as metadata, to be packed with its items.

    `open_dataset` makes dimensions, coordinates, attributes and name of the array from
    them. Dates become numbers with units, as in files of netCDF.
    """
    metadata: JsonObject = {"dims": [str(dim) for dim in array.dims]}
    if array.name is not None:
        metadata["name"] = str(array.name)
    if array.attrs:
        metadata["attrs"] = _plain(array.attrs)
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
        metadata["coords"] = coords
    return metadata


def _plain(attrs: dict[object, object]) -> JsonObject:
    """Return attributes with lists and numbers of Python instead of those of NumPy."""
    text = encode_attributes({str(name): value for name, value in attrs.items()})
    plain: JsonObject = json.loads(text)
    return plain
