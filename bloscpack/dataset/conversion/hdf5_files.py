"""HDF5 files, and netCDF files of format 4, which are HDF5 files, through h5py.

Reading follows hard links only, and reads each group once, so that links to other
files, and cycles of links, do no harm. Virtual datasets and those whose items are in
other files are not read: no other file is ever opened. A notice names what is left out.

A dataset with fields that have text of variable length, or that NumPy lacks, becomes a
table, or a group, whose columns are read one by one: a field is left out by its name.

A dimension scale names an axis of the arrays that it is attached to. Scales are written
as netCDF does, so that its programs find dimensions and coordinates.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from shutil import copyfileobj
from tempfile import TemporaryFile
from types import ModuleType
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy

from ..._compat import import_extra
from ..._format.dtypes import Array, DType, check_known, check_text, without_gaps
from ..._format.other_formats import PREFIX_LENGTH, name_format
from ..._format.text import TEXT, empty_item
from ..._format.zarr_metadata import MASK
from ..._types import Json, JsonObject
from ...constants import MAX_DOCUMENT
from ...exceptions import (
    NotReadable,
    Unsupported,
    UsageError,
    UsageTypeError,
    UsageValueError,
)
from ..arrow_arrays import decoded
from ..columns import MASK_NAME, MASK_OF
from ..items import converted
from ..labels import ROW, STRUCTURE, given_dims, stored_dims
from ..layouts import check_depth
from ..rows import RowStream, joined
from ..xarray_data import UNLIMITED
from .contents import (
    LIST,
    MASKS,
    NO_NAMES,
    PACKING,
    ByFunction,
    Content,
    Members,
    Request,
    Rows,
    as_table,
    check_encodable,
    is_same_json,
    is_streamed,
    is_table,
    joined_arrays,
    naming_file,
    nodes_of,
    rows_in_block,
)
from .parquet_files import Lengths, fixed, text_dtype

if TYPE_CHECKING:
    from h5py import Dataset, File, Group, HLObject

# The address of the scale of an axis, or its label. A negative number stands for the id
# that netCDF gives a dimension, -1 for 0.
Axis = int | str | None
# The most items along each axis of a dataset that is written; None for any number.
Most = Sequence[int | None]
MISSING = "HDF5 needs the package %s"
# The errors of h5py about wrong bytes, and of filters that are missing.
WRONG = (OSError, RuntimeError, LookupError, ValueError, TypeError)
# Attributes that HDF5 and netCDF use themselves.
RESERVED = STRUCTURE["h5py"]
# The ends of the names of netCDF files, and the most bytes that a name in one has.
NETCDF, MAX_NETCDF_NAME = (".nc", ".nc4"), 256
DIMENSION_ID, DIMENSION_IDS = "_Netcdf4Dimid", "_Netcdf4Coordinates"
SCALE = "DIMENSION_SCALE"
# The name that netCDF gives a scale that has no items, and only a length.
NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable."
# netCDF puts this before the name of a variable that is the name of an axis of others.
NO_COORDINATE = "_nc4_non_coord_"
# The attribute of a group that is a table, and its value.
KIND, TABLE = "bloscpack.kind", "table"
# The value of the same attribute of a column whose mask is where the items have the
# value of the attribute `MASK`, and the number of such values that are tried.
MASKED, MOST_TRIED = "masked", 256
# Integers of 64 bits at this distance are different floats of 64 bits.
FLOAT_STEP = 2048
# The attributes with the type of an array of times, whose items are integers. xarray
# has the one of durations.
TIMES = {"M": "bloscpack.dtype", "m": "dtype"}
# The attribute of characters that are text in an encoding, and those that are decoded.
ENCODING, ENCODINGS = "_Encoding", {"utf-8", "utf8", "ascii", "latin-1", "iso-8859-1"}
# The attributes of CF for the values that items may have, and for a word for each.
FLAG_VALUES, FLAG_MEANINGS = "flag_values", "flag_meanings"
# Attributes whose values have the type of the items, and one that has it unless the
# items are packed by one of others.
OF_ITEMS = (
    *(MASK, "missing_value", "valid_min", "valid_max", "valid_range"),
    *(FLAG_VALUES, "flag_masks"),
)
ACTUAL_RANGE = "actual_range"
NUMBERS = "biuf"
BOOL = numpy.dtype("?")
# The units of time of NumPy that netCDF has, and its words for them.
UNITS = {
    "D": "days", "h": "hours", "m": "minutes", "s": "seconds",
    "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds",
}  # fmt: skip
# The filters of HDF5 that h5py may lack, by their registered numbers, and those that
# the package hdf5plugin adds.
FILTERS = {
    305: "LZO", 307: "bzip2", 32000: "LZF", 32001: "Blosc", 32003: "Snappy",
    32004: "LZ4", 32007: "JPEG-XR", 32008: "Bitshuffle", 32009: "SPDP", 32013: "ZFP",
    32014: "FPZIP", 32015: "Zstandard", 32016: "B3D", 32017: "SZ", 32018: "FCIDECOMP",
    32019: "JPEG", 32024: "SZ3", 32026: "Blosc2", 32027: "FLAC", 32028: "SPERR",
}  # fmt: skip
IN_PLUGIN = {
    307, 32001, 32004, 32008, 32013, 32015, 32017, 32018, 32024, 32026, 32028,
}  # fmt: skip
NO_PLUGIN = "'%s' is compressed by the filter %d of HDF5 (%s), which needs %%s"
NO_FILTER = (
    "'%s' is compressed by the filter %d of HDF5 (%s), which neither h5py nor "
    "hdf5plugin has: set HDF5_PLUGIN_PATH to the folder of the filter, or write the "
    "file again without it, with h5repack"
)
# Maximum number of losses that are named one by one.
MAX_NAMED = 100
# A row is in memory as a whole. This is also the most that a chunk of Blosc holds.
MAX_ROW_NBYTES = 2**31 - 1
# The chunks that a row touches are kept, decompressed, if they fit in this.
CACHE_NBYTES, CACHE_SLOTS = 256 * 2**20, 2**20
# Texts that are read at a time: many may refer to the same long one in a hostile file.
MAX_TEXTS, MIN_TEXTS, TEXTS_NBYTES = 4096, 16, 2**28
# Maximum number of bytes of references to texts for each stored byte.
MAX_RATIO = 1032
# Number of plain bytes of a chunk that is written; smaller arrays have no chunks.
CHUNK_NBYTES, SMALL_NBYTES = 2**20, 2**14
# Number of objects from which a file gets the structures of HDF5 1.8: without them, the
# list of the axes to which a scale is attached has at most 64 KiB.
MANY_OBJECTS = 4000


# Reading


def read(path: str, request: Request) -> Content:
    """Return the contents of a file."""
    h5py = import_extra("h5py", "hdf5", MISSING)
    if not h5py.is_hdf5(path):
        with open(path, "rb") as fp:
            other = name_format(fp.read(PREFIX_LENGTH), os.path.getsize(path))
        text = "expected an HDF5 file, found %s" % (other or "another file")
        raise NotReadable(text, filename=path)
    with naming_file(path, *WRONG):
        # HDF5 can't open the path of a file without a name, such as a copy of a pipe.
        fp = open(path, "rb")  # noqa: SIM115
        request.resources.callback(fp.close)
        file = request.resources.enter_context(h5py.File(fp, "r"))
        tree = _Tree(h5py, path, file, request)
        content = tree.group(file, b"", 0)
        tree.finish_axes()
    return content


class _Tree:
    """The objects of an open file."""

    def __init__(
        self, h5py: ModuleType, path: str, file: File, request: Request
    ) -> None:
        self.h5py, self.path, self.file = h5py, path, file
        texts = TEXTS_NBYTES // max(1, os.path.getsize(path))
        self.most_texts = min(MAX_TEXTS, max(MIN_TEXTS, texts))
        self._request, self.has_text = request, not request.fixed_text
        # The path of each object, by its address in the file.
        self._paths = {self._address(file.id): b""}
        # The items that were read last, and their dataset: its cache takes memory.
        self.opened: tuple[object, Any] = (None, None)
        # The address of the scale of each axis of an array, or its label; the length
        # of each scale, by its address; and the addresses by the ids of netCDF.
        self._axes: list[tuple[Rows, list[Axis]]] = []
        self._lengths: dict[int, int] = {}
        self._ids: dict[Axis, int] = {}
        # The addresses of the scales without items.
        self._bare: set[int] = set()
        # The names of the scales that may grow, by the paths of their groups.
        self._unlimited: dict[bytes, list[str]] = {}
        self._noted: set[str] = set()

    def _address(self, handle: object) -> int:
        return int(self.h5py.h5o.get_info(handle).addr)

    def finish_axes(self) -> None:
        """Name the axes of all arrays, and add the items that some lack.

        All scales have been seen. netCDF lets a variable be shorter along an axis that
        grows than other variables; the items that it lacks have the fill value.
        """
        self._join_characters(self._axes)
        for array, axes in self._axes:
            for number, axis in enumerate(axes):
                if isinstance(axis, int) and array.array.growing[number]:
                    length = array.shape[number]
                    self._lengths[axis] = max(length, self._lengths.get(axis, 0))
        for array, axes in self._axes:
            names: list[str | None] = [None] * len(array.shape)
            shape = [*array.shape]
            for number, axis in enumerate(axes):
                if isinstance(axis, int):
                    path = self.text_of(self._paths.get(axis, b""))
                    names[number] = path.rpartition("/")[2] or None
                    if array.array.growing[number]:
                        shape[number] = self._lengths[axis]
                else:
                    names[number] = axis or None
            name = array.array.name.rpartition("/")[2].removeprefix(NO_COORDINATE)
            array.dims = given_dims(name, names)
            if array.shape != (*shape,):
                array.shape = (*shape,)
                _check_row(array)
                array.array.extend_to(array)

    def _join_characters(
        self, arrays: Sequence[tuple[Rows, list[Axis]]], is_table: bool = False
    ) -> None:
        """Make texts of bytes along each axis that only characters have.

        netCDF has an axis without coordinates for the length of such texts, and xarray
        joins them by this rule. The first axis of the columns of a table is that of its
        rows.
        """
        for _, axes in arrays:
            axes[:] = [self._ids.get(axis, axis) for axis in axes]
        others = {axes[0] for _, axes in arrays if axes and is_table}
        others |= {
            axis
            for array, axes in arrays
            for number, axis in enumerate(axes, 1)
            if number < len(axes) or array.dtype.kind != "S"
        }
        for array, axes in arrays:
            axis = axes[-1] if axes else None
            if array.dtype == "S1" and axis in self._bare - others:
                axes.pop()
                *shape, length = array.shape
                encoding = str(array.attrs.get(ENCODING)).lower()
                if encoding in ENCODINGS:
                    del array.attrs[ENCODING]
                array.array.join(length, encoding if encoding in ENCODINGS else "")
                array.dtype, array.shape = array.array.dtype, (*shape,)
                array.text_nbytes, array.fill_value = length, None

    def text_of(self, text: bytes | str) -> str:
        """Return text of HDF5, which is read as Latin-1 if it is no UTF-8.

        In text of h5py, surrogates stand for the bytes that are no UTF-8.
        """
        try:
            if isinstance(text, str):
                text = text.encode("utf-8", "surrogateescape")
            return text.decode("utf-8")
        except UnicodeDecodeError:
            as_latin1 = text.decode("latin-1")  # type: ignore[union-attr]
            what = "the encoding of text that is not UTF-8, such as '%s'"
            self._lose_once(what, as_latin1)
            return as_latin1

    def _lose_once(self, what: str, *example: object) -> None:
        """Note something that has no equal in the contents; one example is enough."""
        if what not in self._noted:
            self._noted.add(what)
            self._request.note_loss(what % example)

    def _lose(self, what: str, *names: bytes | str) -> None:
        """Note something that has no equal in the contents."""
        is_named = len(self._request.lost) < MAX_NAMED
        self._request.note_loss(
            what % tuple(map(self.text_of, names)) if is_named else "more of these"
        )

    def group(self, group: Group, path: bytes, depth: int) -> Content:
        """Return the contents of a group, which has a path in the file."""
        h5py = self.h5py
        check_depth(self.text_of(path), depth)
        contents = Members({})
        narrays = len(self._axes)
        for link in group.id:
            inner = path + b"/" + link
            name = self.text_of(link).removeprefix(NO_COORDINATE)
            wanted = self._request.wants(*self.text_of(path).split("/")[1:], name)
            kind = group.id.links.get_info(link).type
            if kind != h5py.h5l.TYPE_HARD:
                names: Any = b"?"
                if kind in (h5py.h5l.TYPE_SOFT, h5py.h5l.TYPE_EXTERNAL):
                    names = group.id.links.get_val(link)
                # Of a link to another file: a path, and the name of the file.
                names = names[::-1] if isinstance(names, tuple) else (names,)
                where = "the link '%s' to '%s'" + " in '%s'" * (len(names) - 1)
                if wanted:
                    self._lose(where, inner, *names)
                continue
            member = h5py.h5o.open(group.id, link)
            content: Content | None = None
            is_group, first = isinstance(member, h5py.h5g.GroupID), inner
            if wanted or not is_group:
                first = self._paths.setdefault(self._address(member), inner)
            if is_group:
                if first != inner:  # it may be a group around this one
                    self._lose("the link '%s' to '%s'", inner, first or b"/")
                elif wanted:
                    content = self.group(h5py.Group(member), inner, depth + 1)
            elif not isinstance(member, h5py.h5d.DatasetID):
                if wanted:
                    self._lose("the type '%s'", inner)
            else:  # each name of a dataset is an array
                try:
                    content = self._dataset(member, inner, first, wanted)
                except UsageError as error:
                    if wanted:
                        self._lose("'%s' (%s)", inner, str(error))
            if name in contents.members:  # the same name in another encoding
                self._lose("'%s'", inner)
            elif content is not None:
                contents.members[name] = content
        contents.attrs = self._attributes(group, path)
        if path in self._unlimited:
            contents.attrs[UNLIMITED] = sorted(self._unlimited[path])
        is_table = contents.attrs.pop(KIND, None) == TABLE
        if is_table:
            self._join_characters(self._axes[narrays:], is_table)
        members = _with_masks(contents.members) if is_table else {}
        table = joined_arrays(Members(members, contents.attrs)) if is_table else None
        if table is None:
            return contents
        del self._axes[narrays:]  # the axes of columns have no names
        return table

    def _dataset(
        self, dataset_id: Any, path: bytes, first: bytes, wanted: bool
    ) -> Content | None:
        """Return the contents of a dataset, which has the path `first`, too.

        None for a scale without items, and for what is not `wanted`, which may still be
        the scale of an axis. Raises `UsageError` for items that no array has.
        """
        h5d, settings = self.h5py.h5d, dataset_id.get_create_plist()
        # The shape of a virtual dataset may be that of other files.
        if settings.get_layout() == h5d.VIRTUAL or settings.get_external_count():
            raise UsageTypeError("its items are in other files")
        if dataset_id.shape is None:
            raise UsageTypeError("it has no items, and no shape")
        dataset = self.h5py.Dataset(dataset_id)
        is_scale = self._plain(self._value(dataset, "CLASS")) == SCALE
        is_scale = is_scale and dataset_id.rank > 0
        if is_scale:
            address = self._address(dataset_id)
            self._lengths[address] = dataset_id.shape[0]
            dimension = self._plain(self._value(dataset, DIMENSION_ID))
            if isinstance(dimension, int):
                self._ids[-1 - dimension] = address
            if dataset.maxshape[0] is None and path == first:
                group, _, link = path.rpartition(b"/")
                self._unlimited.setdefault(group, []).append(self.text_of(link))
        name = self._plain(self._value(dataset, "NAME")) if is_scale else None
        is_bare = isinstance(name, str) and name.startswith(NO_VARIABLE)
        if is_bare:
            self._bare.add(address)
        if is_bare or not wanted:
            return None
        if self._request.target:  # before anything is written
            self.check_filters(dataset_id, path)
        kind = dataset_id.get_type()
        names, dtype = _names_of_fields(kind), None
        try:
            dtype = _dtype_of(kind)
        except UsageTypeError:
            if not names:
                raise
        if dtype is not None and not (names and dtype.hasobject):
            return self._array(dataset, path, dtype, is_scale)
        columns: dict[str, Content] = {}
        wrong: dict[str, str] = {}
        for number, name in enumerate(names):
            try:
                inner = _dtype_of(kind.get_member_type(number))
                columns[name] = self._array(dataset, path, inner, False, name)
            except UsageError as error:
                wrong[name] = str(error)
        if not columns:
            raise UsageTypeError("the field '%s': %s" % next(iter(wrong.items())))
        for name, why in wrong.items():
            self._lose("the field '%s' of '%s' (%s)", name, path, why)
        whole = Members(columns, self._attributes(dataset, path))
        table = joined_arrays(whole)
        if table is None:  # each field has no axes
            return whole
        table.may_be_lost = True
        return table

    def check_filters(self, dataset_id: Any, path: bytes) -> None:
        """Raise `Unsupported` if a filter is missing that stored chunks need."""
        h5py, settings = self.h5py, dataset_id.get_create_plist()
        for number in range(settings.get_nfilters()):
            code, _, _, name = settings.get_filter(number)
            name = FILTERS.get(code) or self.text_of(name) or "unknown"
            if _has_filter(h5py, code) or not _is_used(dataset_id, number):
                continue
            texts = self.text_of(path), code, name
            try:  # the package adds its filters to those of h5py
                if code in IN_PLUGIN:
                    import_extra("hdf5plugin", "hdf5", NO_PLUGIN % texts)
            except UsageError as error:
                raise Unsupported(str(error), filename=self.path) from error
            if not _has_filter(h5py, code):
                raise Unsupported(NO_FILTER % texts, filename=self.path)

    def _array(
        self,
        dataset: Dataset,
        path: bytes,
        dtype: DType,
        is_scale: bool,
        field: str | None = None,
    ) -> Rows:
        """Return an array of all items, or of a field."""
        items, shape = _Items(self, dataset, path, dtype, field), dataset.shape
        array = Rows(items.dtype, shape + items.inner, items, may_be_lost=True)
        array.text_nbytes = items.text_nbytes
        if items.fill is not None:
            array.fill_value = numpy.asarray(items.fill).astype(items.dtype)[()]
        if field is None:
            array.attrs = self._attributes(dataset, path, items.dtype)
            _decode_times(array)
        is_masked = array.attrs.get(KIND) == MASKED
        if items.dtype.kind in "SUO" and MASK in array.attrs and not is_masked:
            # xarray opens no text with this attribute: the array has the fill value.
            mask, fill = array.attrs.pop(MASK), items.fill
            if not isinstance(fill, (str, bytes)) or mask != self.text_of(fill):
                self._lose("the attribute '%s' of '%s'", MASK, path)
        _check_row(array)
        if field is None:
            self._axes.append((array, self._axes_of(dataset, is_scale)))
        check = self.h5py.check_enum_dtype
        meanings = {} if dtype.kind == "b" else check(dtype) or {}
        is_free = array.attrs.keys().isdisjoint((FLAG_VALUES, FLAG_MEANINGS))
        if meanings and is_free and all(word.split() == [word] for word in meanings):
            array.attrs[FLAG_VALUES] = [*meanings.values()]
            array.attrs[FLAG_MEANINGS] = " ".join(meanings)
        elif meanings or any(check(dtype[name]) for name in dtype.names or ()):
            self._lose("the names of the values of '%s'", path)
        return array

    def _axes_of(self, dataset: Dataset, is_scale: bool) -> list[Axis]:
        """Return the axes of a dataset: addresses of scales, ids or labels."""
        dataset_id = dataset.id
        # A scale with more axes is a variable of netCDF with the name of its first one.
        if is_scale and dataset_id.rank == 1:
            return [self._address(dataset_id)]
        # The functions of HDF5 for scales crash if these attributes are damaged.
        scales = self._value(dataset, "DIMENSION_LIST")
        labels = self._value(dataset, "DIMENSION_LABELS")
        ids = self._value(dataset, DIMENSION_IDS) if is_scale else None
        axes: list[Axis] = []
        for axis in range(dataset_id.rank):
            if scales is not None and len(scales[axis]):
                scale = self.h5py.h5r.dereference(scales[axis][0], self.file.id)
                axes.append(self._address(scale))
            elif ids is not None:
                axes.append(-1 - int(ids[axis]))
            else:
                axes.append(None if labels is None else self._plain(labels[axis]))
        return axes

    def _attributes(
        self, holder: HLObject, path: bytes, dtype: DType | None = None
    ) -> JsonObject:
        """Return the attributes of an object; notes name what JSON lacks."""
        attrs: JsonObject = {}
        for name in holder.attrs:
            if name in RESERVED:
                continue
            value = self._plain(self._value(holder, name))
            if value is None:
                self._lose("the attribute '%s' of '%s'", name, path or b"/")
            else:
                attrs[self.text_of(name)] = value
        for name in holder.attrs:
            stored = self._attribute_dtype(holder, name) if name in attrs else None
            if stored is not None and stored.kind in NUMBERS:
                kept = _attribute(name, attrs, dtype).dtype
                if kept.newbyteorder("=") != stored.newbyteorder("="):
                    where = stored, name, self.text_of(path or b"/")
                    text = "the types of attributes, such as '%s' of '%s' of '%s'"
                    self._lose_once(text, *where)
        return attrs

    def _attribute_dtype(self, holder: HLObject, name: str) -> DType | None:
        """Return the type of an attribute; None if it is missing, or NumPy lacks it."""
        if name not in holder.attrs:
            return None
        with suppress(UsageTypeError):
            return _dtype_of(holder.attrs.get_id(name).get_type(), with_objects=True)
        return None

    def _value(self, holder: HLObject, name: str) -> Any:
        """Return the value of an attribute.

        None if it is missing, too large, or of a type that NumPy lacks.
        """
        dtype = self._attribute_dtype(holder, name)
        if dtype is None:
            return None
        size = math.prod(holder.attrs.get_id(name).shape or ())
        is_large = size * dtype.itemsize > MAX_DOCUMENT
        if dtype.kind == "O":
            is_large = size > self.most_texts
        return None if is_large else holder.attrs[name]

    def _plain(self, value: Any) -> Json:
        """Return the value of an attribute for JSON; None if JSON can't hold it.

        An array of one item counts as this item: netCDF has no other numbers.
        """
        if isinstance(value, (bytes, str)):
            return self.text_of(value)
        if not isinstance(value, (numpy.ndarray, numpy.generic)):
            # netCDF has text without characters as an attribute without a value.
            is_text = getattr(value, "shape", ()) is None and value.dtype.kind in "SO"
            return "" if is_text else None
        items: list[Json] = value.ravel().tolist()
        if value.dtype.kind in "SO":
            is_text = all(isinstance(item, (bytes, str)) for item in items)
            items = [self._plain(item) for item in items] if is_text else [None]
        elif value.dtype.kind not in NUMBERS or value.dtype.itemsize > 8:
            return None
        if None in items or len(items) == 1:
            return items[0] if len(items) == 1 else None
        return numpy.array(items, object).reshape(value.shape).tolist()


def _with_masks(members: Mapping[str, Content]) -> dict[str, Content]:
    """Return the columns of a table with masks; `_Writer.without_masks` is the inverse.

    A name that is taken leaves the items as they are, with the attributes.
    """
    columns: dict[str, Content] = {}
    for name, array in members.items():
        mask, attrs = MASK_NAME % name, {**array.attrs}
        columns[name] = array
        is_masked = attrs.pop(KIND, None) == MASKED and MASK in attrs
        if is_masked and isinstance(array, Rows) and mask not in members:
            fill = numpy.array(attrs.pop(MASK), array.dtype)
            get = partial(_without_value, array, fill)
            columns[name] = replace(array, array=ByFunction(get), attrs=attrs)
            marks = ByFunction(partial(_are_equal, array, fill))
            columns[mask] = Rows(BOOL, array.shape, marks, {MASK_OF: name})
    return columns


def _are_equal(array: Rows, value: Array, rows: Any) -> Array:
    """Return which items of rows are equal to a value."""
    return numpy.asarray(array[rows] == value)


def _without_value(array: Rows, value: Array, rows: Any) -> Array:
    """Return rows in which zeros or empty texts stand for a value."""
    items = array[rows].copy()
    items[items == value] = empty_item(array.dtype)
    return items


def _filled(column: Rows, mask: Rows, value: Array, rows: Any) -> Array:
    """Return rows of a column with a value in place of missing items."""
    items = column[rows].copy()
    items[mask[rows]] = value
    return items


def _fill_value(column: Rows, mask: Rows) -> Array | None:
    """Return a value that missing items can have because no other item has it.

    NaN and NaT are missing items themselves. Other programs compare large integers as
    floats of 64 bits. Returns None if no value is known.
    """
    dtype, kind = column.dtype, column.dtype.kind
    if kind in "fcmM":
        return numpy.array("NaT" if kind in "mM" else "nan", dtype)
    if kind not in "iuSU" and dtype != TEXT:
        return None
    tried: Array = numpy.full(1, empty_item(dtype), dtype)
    if kind in "iu":
        step = (1 if kind == "i" else -1) * (FLOAT_STEP if dtype.itemsize == 8 else 1)
        first = numpy.iinfo(dtype).min if kind == "i" else numpy.iinfo(dtype).max
        tried = numpy.array(range(first, first + step * MOST_TRIED, step), dtype)
    is_free, length = numpy.ones(len(tried), BOOL), column.shape[0]
    step = rows_in_block(column.row_nbytes)
    for start in range(0, length, step):
        rows = slice(start, min(start + step, length))
        items = column[rows][~mask[rows]]
        if kind in "iu" and dtype.itemsize == 8:
            is_free &= ~numpy.isin(tried.astype("f8"), items.astype("f8"))
        else:
            is_free &= ~numpy.isin(tried, items)
    return tried[is_free][:1].reshape(()) if is_free.any() else None


def _check_row(array: Rows) -> None:
    """Raise `UsageError` if a row does not fit the memory."""
    if array.row_nbytes > MAX_ROW_NBYTES:
        text = "a row has '%d' bytes, expected at most '%d'"
        raise UsageValueError(text % (array.row_nbytes, MAX_ROW_NBYTES))


def _has_filter(h5py: ModuleType, code: int) -> bool:
    """Return whether HDF5 has a filter; it may look for one in a folder of plugins."""
    try:
        return bool(h5py.h5z.filter_avail(code))
    except WRONG:  # there is no such folder
        return False


def _is_used(dataset_id: Any, number: int) -> bool:
    """Return whether a dataset has a chunk that needs the filter with a number."""

    def look(chunk: Any) -> bool | None:
        return not chunk.filter_mask >> number & 1 or None  # None goes on

    return bool(dataset_id.chunk_iter(look))


def _names_of_fields(kind: Any) -> list[str]:
    """Return the names of the fields of a type of HDF5; empty for one without."""
    if not hasattr(kind, "get_member_type") or not hasattr(kind, "get_member_offset"):
        return []
    names = map(kind.get_member_name, range(kind.get_nmembers()))
    return [name.decode("utf-8", "surrogateescape") for name in names]


def _dtype_of(kind: Any, *, with_objects: bool = False) -> DType:
    """Return the type of NumPy for a type of HDF5, without padding.

    Text of variable length is objects. Raises `UsageError` if NumPy lacks the type, and
    for references and items of different lengths, unless `with_objects`.
    """
    try:
        dtype: DType = kind.dtype
    except (TypeError, ValueError) as error:
        raise UsageTypeError("NumPy has no such type: %s" % error) from error
    if not with_objects:
        _check_objects(dtype)
    return dtype


def _check_objects(dtype: DType) -> None:
    """Raise `UsageError` for references, and for items of different lengths."""
    for name in dtype.names or ():
        _check_objects(dtype[name])
    if dtype.base is not dtype:
        _check_objects(dtype.base)
    elif dtype.kind == "O":
        vlen = None if dtype.metadata is None else dtype.metadata.get("vlen")
        if vlen is None:
            raise UsageTypeError("its items are references")
        if vlen not in (str, bytes):
            raise UsageTypeError("its items have different lengths")


def _decode_times(array: Rows) -> None:
    """Make times of integers that `write`, or xarray, has made of times."""
    for kind, name in TIMES.items():
        for unit in UNITS if name in array.attrs and array.dtype == "i8" else ():
            dtype = numpy.dtype("%s8[%s]" % (kind, unit))
            wanted = _attributes_of_times(dtype)
            attrs = {MASK: wanted[MASK], **array.attrs}
            is_changed = not attrs.keys().isdisjoint({"calendar", *PACKING})
            if attrs.items() >= wanted.items() and not is_changed:
                array.attrs = {k: v for k, v in array.attrs.items() if k not in wanted}
                array.dtype = array.array.dtype = dtype
                if array.fill_value is not None:
                    array.fill_value = numpy.asarray(array.fill_value).astype(dtype)[()]
                return


def _attributes_of_times(dtype: DType) -> JsonObject:
    """Return the attributes of integers that are times: those of CF, and their type."""
    kind, missing = dtype.kind, int(numpy.iinfo("i8").min)
    word = UNITS[numpy.datetime_data(dtype)[0]] + " since 1970-01-01" * (kind == "M")
    return {"units": word, MASK: missing, TIMES[kind]: dtype.name}


class _Items:
    """The items of a dataset, which are read by slices of rows.

    Attributes
    ----------
    name
        The path in the file.
    dtype
        Their type.
    inner
        The axes of an item that is an array.
    is_text
        Whether the items are text of variable length, or of bytes in UTF-8.
    text_nbytes
        About the number of bytes of a text of variable length; zero if unknown.
    growing
        Whether the array may get more items, for each axis.
    chunks
        The shape of the chunks; empty without chunks.
    cbytes
        Number of stored bytes.
    fill
        The fill value; None without one.
    joined
        The bytes that characters of netCDF are joined to; None for other items.
    """

    def __init__(
        self,
        tree: _Tree,
        dataset: Dataset,
        path: bytes,
        dtype: DType,
        field: str | None,
    ) -> None:
        self._tree, self._path, self.name = tree, path, tree.text_of(path)
        self._shape, self.chunks = dataset.shape, dataset.chunks or ()
        self.growing = [most is None for most in dataset.maxshape]
        self._filled: Array | None = None
        self.joined: DType | None = None
        self.cbytes = dataset.id.get_storage_size()
        self._itemsize = dataset.id.get_type().get_size()
        # The fields that are read; None for all.
        self._fields = None if field is None else numpy.dtype([(field, dtype)])
        check_known(dtype)
        text = tree.h5py.check_string_dtype(dtype.base)
        self.is_text = bool(text and (text.length is None or text.encoding == "utf-8"))
        if dtype.hasobject and not self.is_text:
            raise UsageTypeError(
                "a field of its items has text of variable length, which only a field "
                "of the dataset itself can have"
            )
        given = tree.h5py.h5d.FILL_VALUE_USER_DEFINED
        settings = dataset.id.get_create_plist()
        has_fill = field is None and settings.fill_value_defined() == given
        self.fill = dataset.fillvalue if has_fill else None
        self.text_nbytes = 0
        if self.is_text:
            tree.check_filters(dataset.id, path)
            count = dataset.size * math.prod(dtype.shape)
            if 0 < self.cbytes * MAX_RATIO < dataset.size * self._itemsize:
                why = "'%d' stored bytes can't hold '%d' texts"
                raise UsageValueError(why % (self.cbytes, count))
            lengths = Lengths()
            if self.fill is not None:
                self.fill = tree.text_of(self.fill)
                lengths.add([self.fill])
            for values in self._texts(dataset, ...) if self.cbytes else ():
                lengths.add(decoded(values.ravel(), self.name))
            if text.length is None and tree.has_text:
                base, self.text_nbytes = TEXT, lengths.text_nbytes
            else:  # its type is that of the longest value
                base = lengths.dtype(self.name)
            dtype = numpy.dtype((base, dtype.shape))
        dtype = dtype if dtype.base == TEXT else without_gaps(dtype)
        self.dtype, self.inner = dtype.base, dtype.shape

    def join(self, length: int, encoding: str) -> None:
        """Make texts of characters along the last axis: of bytes without encoding."""
        self.dtype = self.joined = text_dtype(length, "S")
        self._encoding = encoding
        if encoding:
            self.dtype = TEXT if self._tree.has_text else text_dtype(length)

    def _texts_of(self, characters: Array, joined: DType) -> Array:
        """Return the texts of characters along the last axis."""
        whole = numpy.zeros((*characters.shape[:-1], joined.itemsize), "S1")
        whole[..., : characters.shape[-1]] = characters
        texts = whole.view(joined)[..., 0]
        try:
            return numpy.char.decode(texts, self._encoding) if self._encoding else texts
        except UnicodeDecodeError as error:
            text = "'%s': expected text in %s, found %.200r"
            where = self.name, self._encoding, error.object
            raise UsageTypeError(text % where) from error

    def _read(self, dataset: Dataset, key: Any) -> Array:
        """Return some rows of the items, or of the field."""
        # HDF5 has no rows of a single item, which may be an array.
        outer, inner = (key, ()) if self._shape else ((), key)
        if self._fields is None:
            return numpy.asarray(dataset[outer])[inner]
        (name,) = self._fields.names or ()
        rows = dataset.__getitem__(outer, new_dtype=self._fields)[name]
        return numpy.asarray(rows)[inner]

    def extend_to(self, array: Rows) -> None:
        """Let the items of an array that are not in the file have the fill value."""
        item: Array = numpy.array(empty_item(self.dtype), self.dtype)
        if array.fill_value is not None:
            item[...] = array.fill_value
        self._filled = numpy.broadcast_to(item, array.shape)

    def _texts(self, dataset: Dataset, key: Any) -> Iterator[Array]:
        """Yield some rows of texts, as few at a time as fit the memory."""
        if not self._shape:
            yield numpy.asarray(self._read(dataset, key))
            return
        rows = range(self._shape[0])[slice(None) if key is ... else key]
        row = dataset.size // max(1, self._shape[0])
        most = max(1, self._tree.most_texts // max(1, row))
        step = min(most, rows_in_block(row * self._itemsize))
        for start in range(0, max(1, len(rows)), step):
            part = rows[start : start + step]
            yield self._read(dataset, slice(part.start, part.stop, part.step))

    def _opened(self) -> Dataset:
        """Return the dataset; its cache holds the chunks that a row touches."""
        h5py, (last, dataset) = self._tree.h5py, self._tree.opened
        if last is not self:
            access = h5py.h5p.create(h5py.h5p.DATASET_ACCESS)
            if self.chunks:
                axes = zip(self._shape[1:], self.chunks[1:], strict=True)
                count = math.prod(-(-length // chunk) for length, chunk in axes)
                nbytes = count * math.prod(self.chunks) * self._itemsize
                slots = min(10 * count + 521, CACHE_SLOTS)
                access.set_chunk_cache(slots, min(nbytes, CACHE_NBYTES), 0.75)
            dataset_id = h5py.h5d.open(self._tree.file.id, self._path, access)
            self._tree.check_filters(dataset_id, self._path)
            dataset = h5py.Dataset(dataset_id)
            self._tree.opened = self, dataset
        return dataset

    def __getitem__(self, key: Any) -> Array:
        with naming_file(self._tree.path, *WRONG):
            dataset, dtype = self._opened(), self.dtype
            parts = []
            if not self.is_text:
                part = self._read(dataset, key)
                if self.joined is not None:
                    part = self._texts_of(part, self.joined)
                parts.append(part.astype(dtype, copy=False).view(dtype))
            for part in self._texts(dataset, key) if self.is_text else ():
                values = decoded(part.ravel(), self.name)
                if dtype == TEXT:
                    items: Array = numpy.array(values, TEXT)
                else:
                    items = fixed(values, dtype, self.name)
                parts.append(items.reshape(part.shape))
        whole = joined(parts, dtype, parts[0].shape[1:]) if parts[1:] else parts[0]
        if self._filled is None:
            return whole
        filled: Array = self._filled[key].copy()
        filled[tuple(map(slice, whole.shape))] = whole
        return filled


# Writing


def check_name(name: str, kind: str, request: Request) -> None:
    """Raise `UsageError` for a name that HDF5 or netCDF would change."""
    check_encodable(name, "utf-8")
    if name == "." or not {"/", "\0"}.isdisjoint(name):
        raise UsageValueError(
            "HDF5 can't have the name %.200r: '/' separates groups, a zero character "
            "ends a name, and '.' is the group itself" % name
        )
    if name.startswith(NO_COORDINATE):
        raise UsageValueError("netCDF uses names that begin with '%s'" % NO_COORDINATE)
    is_netcdf = request.target.lower().endswith(NETCDF)
    if is_netcdf and len((NO_COORDINATE + name).encode()) > MAX_NETCDF_NAME:
        raise UsageValueError(
            "a name in a netCDF file has at most '%d' bytes" % MAX_NETCDF_NAME
        )


def write(content: Content, request: Request) -> None:
    """Write a file; an array without a name is called ``data``."""
    h5py = import_extra("h5py", "hdf5", MISSING)
    if content.kind == "array" and not is_table(content):
        content = Members({NO_NAMES["hdf5"]: content})
    with request.new_file() as out_fp, ExitStack() as stack:
        # A stream can't be written at any position.
        streamed = is_streamed(request.target)
        fp = stack.enter_context(TemporaryFile()) if streamed else out_fp
        target = _Target(fp)
        count = sum(1 for _ in nodes_of(content))
        versions = ("v108", "latest") if count > MANY_OBJECTS else None
        try:
            with h5py.File(target, "w", track_order=True, libver=versions) as file:
                _Writer(h5py, request, target).write(file, content, {}, set(), "")
        finally:
            target.check()
        if streamed:
            fp.seek(0)
            copyfileobj(fp, out_fp)


class _Target:
    """A file that HDF5 writes, whose methods keep the first error.

    HDF5 crashes if it can't write a file any more when it closes it.
    """

    def __init__(self, fp: BinaryIO) -> None:
        self._fp = fp
        self._error: OSError | None = None

    def __getattr__(self, name: str) -> Callable[..., object]:
        def call(*args: Any) -> object:
            try:
                if self._error is None:
                    return getattr(self._fp, name)(*args)
            except OSError as error:
                self._error = error
            return len(args[0]) if name == "write" else 0

        return call

    def check(self) -> None:
        """Raise the first error, if any, in place of those of h5py that follow."""
        if self._error is not None:
            raise self._error


class _Writer:
    """Writes contents to groups of a file."""

    def __init__(self, h5py: ModuleType, request: Request, target: _Target) -> None:
        self._text = h5py.string_dtype()
        self._request, self._target = request, target
        self._nscales = 0
        self._is_netcdf = request.target.lower().endswith(NETCDF)
        # The names of the axes of characters.
        self._of_characters: set[str] = set()

    def write(
        self,
        group: Group,
        content: Content,
        scales: Mapping[str, Dataset],
        unlimited: Set[str],
        path: str,
    ) -> None:
        """Write a group or a table.

        `scales` are those of the groups around, and new ones of the names `unlimited`
        grow.

        A scale names the axes of the arrays that it is attached to. netCDF needs one
        for each axis, or for none. A name that a scale can't have, or that has another
        length, is a label.
        """
        attrs, members, scales = content.attrs, content.members, dict(scales)
        if is_table(content):
            attrs = {**attrs, KIND: TABLE}
            columns = self._without_masks(as_table(content))
            members = {n: replace(c, dims=[ROW]) for n, c in columns.items()}
        unlimited, grows = unlimited - scales.keys(), attrs.get(UNLIMITED)
        if isinstance(grows, list) and all(isinstance(dim, str) for dim in grows):
            attrs = {name: attrs[name] for name in attrs if name != UNLIMITED}
            unlimited |= {*grows}
        self._write_attributes(group, attrs, path)
        arrays = {
            name: member
            for name, member in members.items()
            if isinstance(member, Rows) and not is_table(member)
        }
        axes = {dim for array in arrays.values() for dim in array.dims or ()}
        known = {*members, *axes, *(scales.keys() - self._of_characters)}
        arrays = {n: self._as_characters(array, known) for n, array in arrays.items()}
        taken = {n for n, m in members.items() if n not in arrays or _is_scale(n, m)}
        for name, member in sorted(members.items(), key=_order):
            inner = "%s/%s" % (path, name)
            if name not in arrays:
                created = group.create_group(name, track_order=True)
                self.write(created, member, scales, unlimited, inner)
                continue
            member, is_scale = arrays[name], _is_scale(name, member)
            dims, shape = member.dims, member.shape
            named = stored_dims(name, len(shape), dims) if any(dims or ()) else []
            others = [*zip(named, shape, strict=bool(named))][is_scale:]
            try:
                attached = [
                    self._scale_of(group, dim, length, scales, unlimited, taken)
                    for dim, length in others
                ]
                most = [
                    length if scale is None else scale.maxshape[0]
                    for scale, (_, length) in zip(attached, others, strict=True)
                ]
                if is_scale:
                    most = [None if name in unlimited else shape[0], *most]
                elif name in axes:
                    name = NO_COORDINATE + name
                dataset = self._write_array(group, name, member, most, inner)
                if is_scale:
                    scales[name] = self._scale(dataset, name)
                    if attached and all(attached):
                        # No scale can be attached to another one.
                        both = dataset, *attached
                        ids = [scale.attrs[DIMENSION_ID] for scale in both]
                        dataset.attrs[DIMENSION_IDS] = ids
                for axis, scale in enumerate(attached, is_scale):
                    if scale is None:
                        dataset.dims[axis].label = named[axis]
                        self._request.note_loss(
                            "the name '%s' of an axis of '%s' as a dimension of netCDF"
                            % (named[axis], inner)
                        )
                    elif not is_scale:
                        dataset.dims[axis].attach_scale(scale)
            except (UsageError, ValueError, TypeError) as error:  # also of h5py
                raise UsageTypeError("'%s': %s" % (inner, error)) from error

    def _without_masks(self, table: Rows) -> dict[str, Rows]:
        """Return the columns of a table; missing items have a value of their own.

        Its place is the attribute `MASK`, as in netCDF. A column for which there is no
        such value keeps its mask, and a notice names both.
        """
        columns = {**table.columns}
        for name, mask in table.masks.items():
            column, marks = columns[name], columns[mask]
            is_free = column.attrs.keys().isdisjoint((MASK, KIND))
            is_plain = is_free and marks.attrs.keys() == {MASK_OF}
            fill = _fill_value(column, marks) if is_plain else None
            if fill is None:
                self._request.note_loss(MASKS % (name, mask))
                continue
            get = partial(_filled, column, marks, fill)
            columns[name] = replace(column, array=ByFunction(get))
            if column.dtype.kind not in "fcmM":
                attrs = {MASK: fill.item(), KIND: MASKED}
                columns[name].attrs = {**column.attrs, **attrs}
            del columns[mask]
        return columns

    def _as_characters(self, array: Rows, known: Set[str | None]) -> Rows:
        """Return bytes as characters along an axis, as netCDF has them; others as is.

        The name of the axis is not `known`, and each axis has one.
        """
        dims, length = [*(array.dims or ())], array.dtype.itemsize
        was_joined = getattr(array.array, "joined", None) is not None
        is_wanted = was_joined or self._is_netcdf
        is_free = array.dtype.kind == "S" and length and KIND not in array.attrs
        if not (is_wanted and is_free and all(dims) and len(dims) == len(array.shape)):
            return array
        dim = "string%d" % length
        while dim in known:
            dim += "_"
        self._of_characters.add(dim)

        def characters(key: Any) -> Array:
            items = numpy.asarray(array[key if array.shape else ...])
            reshaped = items.reshape(-1).view("S1").reshape(*items.shape, length)
            return reshaped if array.shape else reshaped[key]

        if array.has_fill_value:
            self._request.note_loss("the fill value")
        return replace(
            array,
            dtype=numpy.dtype("S1"),
            shape=(*array.shape, length),
            array=ByFunction(characters),
            dims=[*dims, dim],
            fill_value=None,
            order="C",
        )

    def _scale_of(
        self,
        group: Group,
        dim: str,
        length: int,
        scales: dict[str, Dataset],
        unlimited: Set[str],
        taken: Set[str],
    ) -> Dataset | None:
        """Return the scale of an axis, as netCDF makes one for no coordinates.

        Returns None if the name can't be that of a scale: it is `taken` by a member.
        """
        if dim in scales and scales[dim].shape[0] == length:
            return scales[dim]
        if not {"/", "\0"}.isdisjoint(dim) or dim in taken or dim in group:
            return None
        most = None if dim in unlimited else length
        bare = group.create_dataset(dim, (length,), ">f4", maxshape=(most,))
        scales[dim] = self._scale(bare, "%s%10d" % (NO_VARIABLE, length))
        return scales[dim]

    def _write_array(
        self, group: Group, name: str, array: Rows, most: Most, path: str
    ) -> Dataset:
        """Write the items and the attributes of an array, and return the dataset."""
        attrs, stored, unit = array.attrs, array.dtype, _unit(array.dtype)
        if unit is not None:
            if unit != array.dtype:  # else readers get the same times
                self._request.note_loss("the dtype '%s' of '%s'" % (array.dtype, path))
            attrs = {**attrs, **_attributes_of_times(unit)}
            stored = numpy.dtype("i8")
        elif array.dtype.kind in "UO":
            stored = self._text

        def items(block: Array) -> Array:
            check_text(block)
            if array.dtype.kind in "UO":
                # HDF5 has no objects but text.
                for text in decoded(block.ravel(), path):
                    if "\0" in text:
                        raise UsageValueError(
                            "HDF5 can't hold text with a zero character, such as %.200r"
                            % text
                        )
            if array.dtype == TEXT:
                return block
            if array.dtype.kind == "S" and self._is_netcdf:
                _check_bytes(block)
            block = block if unit is None else converted(block, unit)
            return block.view(stored) if unit is not None else block.astype(stored)

        fill = array.fill_value if array.has_fill_value else None
        fill = None if fill is None else items(numpy.array(fill, array.dtype))[()]
        if fill is not None and array.dtype.kind in "SUO":
            attrs = {MASK: fill, **attrs}
        settings: dict[str, Any] = {"maxshape": most} if None in most else {}
        if array.dtype.kind not in "UO" and array.nbytes > SMALL_NBYTES:
            rows = CHUNK_NBYTES // max(1, array.row_nbytes)
            chunk = [min(max(1, rows), array.shape[0]), *array.shape[1:]]
            while math.prod(chunk) * array.dtype.itemsize > CHUNK_NBYTES:
                longest = chunk.index(max(chunk))
                if chunk[longest] == 1:
                    break
                chunk[longest] = -(-chunk[longest] // 2)
            # Chunks that h5py chooses have parts of many rows: each would be packed
            # again for each of its rows.
            settings |= {"chunks": (*chunk,), "shuffle": True, "compression": 1}
        shape = array.shape
        dataset = group.create_dataset(name, shape, stored, fillvalue=fill, **settings)
        self._write_attributes(dataset, attrs, path, stored)
        blocks = self._request.counted(array.blocks())
        if not shape:
            dataset[()] = items(next(blocks))[()]
            return dataset
        start, stream = 0, RowStream(blocks, array.dtype, shape[1:])
        step = rows_in_block(array.row_nbytes, (dataset.chunks or (1,))[0])
        while len(block := stream.take(step)):
            dataset[start : start + len(block)] = items(block)
            start += len(block)
            self._target.check()
        return dataset

    def _scale(self, dataset: Dataset, title: str) -> Dataset:
        """Return a dataset, which becomes a scale."""
        dataset.make_scale(title)
        dataset.attrs[DIMENSION_ID] = numpy.int32(self._nscales)
        self._nscales += 1
        return dataset

    def _write_attributes(
        self, holder: HLObject, attrs: JsonObject, path: str, dtype: DType | None = None
    ) -> None:
        """Write attributes; a notice names those that HDF5 can't hold."""
        for name in attrs:
            try:
                if name in RESERVED or "\0" in name:
                    raise ValueError("the name has another meaning in HDF5")
                stored = _attribute(name, attrs, dtype)
                is_text = stored.dtype.kind == "O"
                holder.attrs.create(name, stored, dtype=self._text if is_text else None)
                if isinstance(attrs[name], list) and stored.size == 1:
                    self._request.note_loss(LIST % (name, path or "/"))
            except (TypeError, ValueError, OSError, RuntimeError):
                what = "the attribute '%s' of '%s'" % (name, path or "/")
                self._request.note_loss(what)


def _order(named: tuple[str, Content]) -> int:
    """Return the order of members: coordinates are the scales of those that follow."""
    member = named[1]
    if not isinstance(member, Rows):
        return 3
    return min(len(member.shape) - 1, 1) if _is_scale(*named) else 2


def _is_scale(name: str, member: Content) -> bool:
    """Return whether a member has the coordinates of the axis of its name.

    With more axes, such as those of text of characters, the others have names, too.
    """
    dims = [*(member.dims or ())] if isinstance(member, Rows) else []
    return all(dims) and dims[:1] == [name]


def _unit(dtype: DType) -> DType | None:
    """Return the type of times whose unit netCDF has; None for other items.

    Raises `UsageError` for types that HDF5 does not have.
    """
    fields = [dtype[name].base for name in dtype.names or ()]
    if any(field.kind in "UmM" or field.names for field in fields):
        raise UsageTypeError("HDF5 can't hold items of dtype '%s'" % dtype)
    if dtype.kind not in "mM":
        return None
    unit = numpy.datetime_data(dtype)[0]
    if unit not in UNITS:
        raise UsageTypeError("netCDF has no unit for the dtype '%s'" % dtype)
    return numpy.dtype("%s8[%s]" % (dtype.kind, unit))


def _check_bytes(items: Array) -> None:
    """Raise `UsageError` for bytes that programs of netCDF take for other text."""
    size = items.dtype.itemsize
    codes = numpy.ascontiguousarray(items).view("u1").reshape(-1, size)
    is_wrong = (codes[:, :-1] < 1) & (codes[:, 1:] > 0) | (codes[:, 1:] > 127)
    is_wrong = is_wrong.any(1) | ((codes[:, 0] > 127) & (size > 1))
    if is_wrong.any():
        raise UsageValueError(
            "programs of netCDF read bytes as UTF-8, up to a zero byte, unlike %.200r: "
            "a file .h5 can have them, or an array whose axes have names"
            % items.reshape(-1)[is_wrong][0]
        )


def _attribute(name: str, attrs: JsonObject, dtype: DType | None) -> Array:
    """Return an attribute of an array as an array; raise an error for none.

    JSON has no types. Attributes with values of items get the type of the items if it
    holds them, except floats for integers: these are unpacked values.
    """
    items: Array = numpy.array(attrs[name], object)
    if items.size and all(isinstance(item, str) for item in items.flat):
        return items
    value: Array = numpy.array(attrs[name])
    is_number = value.dtype.kind in NUMBERS and is_same_json(
        value.tolist(), attrs[name]
    )
    if not is_number and value.dtype.kind != "S":  # only fill values are bytes
        raise TypeError("neither a number, a text nor a list of one of them")
    is_of_items = name in OF_ITEMS or (
        name == ACTUAL_RANGE and attrs.keys().isdisjoint(PACKING)
    )
    if not is_of_items or dtype is None or dtype.kind not in NUMBERS:
        return value
    kinds, same = value.dtype.kind + dtype.kind, value.astype(dtype)
    if name == MASK and kinds == "ff":
        return same
    is_packed = name == MASK or kinds not in ("fi", "fu")
    return same if is_packed and numpy.array_equal(same, value, True) else value
