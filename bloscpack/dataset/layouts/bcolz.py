"""The layouts of bcolz 1.x, as zipline's bundles have it, and of BLZ 0.6.

::

    ROOT/meta/storage    dtype, rows in a chunk, settings of Blosc, fill value
    ROOT/meta/sizes      shape
    ROOT/data/__0.blp    a chunk in each file; the last one may have more rows
    ROOT/__attrs__       attributes of users

A table is a folder of arrays with the file ``__rootdirs__``, which names the columns.

BLZ is the predecessor of bcolz, and is only read. Its settings of Blosc have another
key, and a table may have a column in a folder of another name.
"""

from __future__ import annotations

import math
import sys
from contextlib import suppress
from functools import partial
from typing import Any

import numpy

from ..._arrays.reader import PartReader
from ..._commit.change import Change
from ..._format.array_metadata import MAX_NBYTES, are_lengths, check_itemsize, is_whole
from ..._format.codecs import read_by
from ..._format.dtypes import DType, decode_dtype, holds_objects, refuse
from ..._format.grid import Grid, Shape
from ..._format.names import is_safe_part
from ..._format.zarr_metadata import encode_attributes
from ..._storage.base import naming_errors
from ..._types import Json, JsonObject
from ...args import BloscArgs
from ...constants import CNAME_AVAIL, MAX_BUFFERSIZE
from ...exceptions import FormatError, UsageError, UsageValueError
from ...log import counted
from ...serializers import encode_document
from ..changed_blocks import NewState
from ..folder import Folder, check_member_name
from .array_files import allocate_checked, description_check
from .base import (
    ArrayLayout,
    Blocks,
    NewArray,
    NewColumns,
    NodeLayout,
    TableLayout,
    are_names,
    wanted_fill,
)
from .chunk_choice import new_grid
from .chunk_files import DATA, OBJECT, FileChunks, ObjectReader, write_chunks

STORAGE = "meta/storage"
SIZES = "meta/sizes"
ATTRIBUTES = "__attrs__"
COLUMNS = "__rootdirs__"
# Spellings of the dtype of Python objects.
OBJECTS = ("object", "|O8", "|O4", "|O", "O")
# Kinds of items that bcolz reads.
KINDS = "biufcSUmMV"
# Maximum size in bytes of real and of complex numbers: the size of a long double
# depends on the machine.
MAX_SIZES = {"f": 8, "c": 16}
# Settings of Blosc that users can choose, and the values that bcolz uses by default.
SETTINGS: dict[str, Any] = {"cname": "lz4", "clevel": 5, "shuffle": 1}
# The codecs that bcolz reads, and the values that new chunks can have.
CODECS = read_by("bcolz")
NAMES = [name for name in CODECS if name in CNAME_AVAIL]
KNOWN = {"cname": NAMES, "clevel": range(10), "shuffle": range(3)}


def detect(folder: Folder) -> str | None:
    """Return ``'array'`` or ``'table'``; None for a folder of another kind."""
    if folder.exists(COLUMNS):
        return "table"
    return "array" if folder.exists(STORAGE) else None


# Values in the files


def types_in(storage: JsonObject) -> tuple[Json, Json]:
    """Return what chunks must be read by: programs may change the other values."""
    return storage.get("dtype"), storage.get("chunklen")


# Values that bcolz accepts: it takes some dtypes only with certain fill values, and
# finds the items in a chunk by its type size.


def check_dtype(dtype: DType) -> None:
    """Raise `UsageError` for items that bcolz can't read back."""
    if dtype.names is not None:
        raise UsageError(
            "bcolz can't open an array of structured items (dtype %s): create a table "
            "with a column for each field" % dtype
        )
    if holds_objects(dtype):
        raise UsageError(
            "arrays of Python objects (dtype '%s') can't be stored" % dtype
        )
    if dtype.kind in "mM" and numpy.datetime_data(dtype)[0] == "generic":
        raise UsageError("the layout 'bcolz' needs a unit of time, as in 'M8[ns]'")
    most = MAX_SIZES.get(dtype.kind, sys.maxsize)
    if dtype.kind not in KINDS or not 0 < dtype.itemsize <= most or dtype.subdtype:
        raise UsageError(
            "the layout 'bcolz' can't hold items of dtype '%s'; a '.blp' file can"
            % dtype
        )


def encode_fill_value(dtype: DType, value: Any) -> Json:
    """Return a fill value for the storage file.

    Raises `UsageError` if there is none: bcolz can't make a complex number or a time
    from what JSON can hold.
    """
    zero = numpy.zeros((), dtype)[()]
    value = zero if value is None else numpy.array(value).astype(dtype)[()]
    if dtype.kind in "cmMV":
        if value != zero:
            raise UsageValueError(
                "the layout 'bcolz' has no fill value but zero for the dtype '%s'"
                % dtype
            )
        return "\0" * dtype.itemsize if dtype.kind == "V" else 0
    if dtype.kind == "S":
        try:
            return value.decode("ascii")
        except UnicodeDecodeError as error:
            raise UsageValueError(
                "the layout 'bcolz' has fill values of ASCII only, not %r" % value
            ) from error
    return value.item()


def encode_settings(new: NewArray) -> JsonObject:
    """Return settings for the storage file; raise `UsageError` if wrong."""
    new.check_settings(SETTINGS, "bcolz")
    args = BloscArgs(typesize=1, **{**SETTINGS, **new.settings})
    args.check()
    if args.cname not in CODECS:
        raise UsageValueError(
            "the layout 'bcolz' can't have the codec '%s', which bcolz can't read; it "
            "has %s" % (args.cname, ", ".join("'%s'" % each for each in CODECS))
        )
    settings = {"clevel": args.clevel, "shuffle": int(args.shuffle)}
    return {**settings, "cname": args.cname, "quantize": 0}


def decode_settings(stored: Json, dtype: DType) -> BloscArgs:
    """Return the settings of Blosc for new chunks; defaults for unusable values."""
    settings = dict(SETTINGS)
    for name, default in SETTINGS.items() if isinstance(stored, dict) else ():
        if stored.get(name) in KNOWN[name]:
            settings[name] = type(default)(stored[name])
    return BloscArgs(typesize=typesize_of(dtype), **settings)


def decode_fill_value(dtype: DType, stored: Json) -> Any:
    """Return the fill value of an array; zero if the stored one does not fit.

    Old releases stored a list shaped like a row, in which all items are the same.
    """
    zero = numpy.zeros((), dtype)[()]
    while isinstance(stored, list) and dtype.names is None:
        if not stored:
            return zero
        stored = stored[0]
    if dtype.kind in "OV" or stored is None:
        return zero
    try:
        if dtype.kind in "mM":
            return numpy.array(stored, "i8").astype(dtype)[()]
        if dtype.kind == "S" and isinstance(stored, str):
            stored = stored.encode("ascii")
        return numpy.array(stored, dtype)[()]
    except (ValueError, TypeError, OverflowError):
        return zero


def typesize_of(dtype: DType) -> int:
    """Return the type size for Blosc by which bcolz finds items."""
    size = {"S": 1, "U": 4}.get(dtype.kind, dtype.itemsize)
    return size if size <= 255 else 1


# Arrays


class BcolzNode(NodeLayout):
    """An array or a table, with the attributes in its folder."""

    has_digests = False

    def read_attributes(self, change: Change | None = None) -> JsonObject:
        """Return the attributes in the file; none if it is missing or empty.

        Interrupted writers leave empty files.
        """
        try:
            if not self.folder.read(ATTRIBUTES, 16).strip():
                return {}
        except FileNotFoundError:
            return {}
        return self.folder.read_description(ATTRIBUTES)

    def stage_attributes(self, change: Change, values: JsonObject) -> None:
        """Let `change` replace all attributes."""
        change.stage(self.folder.full(ATTRIBUTES), encode_attributes(values))


class BcolzArray(BcolzNode, ArrayLayout):
    """A ``carray``."""

    name = "bcolz"
    description_files = (STORAGE, SIZES, ATTRIBUTES)
    document = SIZES
    # The key of the settings of Blosc in the storage file.
    settings_key = "cparams"
    _source: FileChunks

    def __init__(self, folder: Folder, *, allow_pickle: bool = False) -> None:
        self.folder = folder
        self.allow_pickle = allow_pickle
        seen = folder.seen(STORAGE)
        self.storage = storage = folder.read_description(STORAGE)
        types = types_in(storage)
        self._check = description_check(
            *(folder, STORAGE, seen),
            lambda: types_in(folder.read_description(STORAGE)) == types,
        )
        with naming_errors(folder.path(STORAGE)):
            text: Json = storage.get("dtype")
            if text in OBJECTS:
                self.dtype = OBJECT
            elif not isinstance(text, str):
                refuse("'dtype' to be text", text)
            else:
                self.dtype = decode_dtype(text)
                check_itemsize(self.dtype)
        self.fill_value = decode_fill_value(self.dtype, storage.get("dflt"))
        with naming_errors(folder.path(SIZES)):
            shape: Json = folder.read_description(SIZES).get("shape")
            if type(shape) is int:  # no release wrote this
                shape = [shape]
            if not are_lengths(shape) or not shape:
                refuse("'shape' to be a list of sizes", shape)
            self.committed(tuple(shape))

    def committed(self, shape: Shape) -> None:
        """Take over a shape, and read from the files of this state from now on."""
        folder, self.shape = self.folder, shape
        if self.dtype == OBJECT:
            if len(shape) != 1:
                refuse("objects to have one axis", shape)
            self.grid, self.chunks = Grid.of_rows(shape, 1), (1,)
            source = FileChunks(folder, self.grid, 1, self._check, has_objects=True)
            self._source = source
            self.reader = ObjectReader(source, self.allow_pickle)
            return
        row = math.prod(shape[1:]) * self.dtype.itemsize
        nbytes = math.prod(n or 1 for n in shape) * self.dtype.itemsize
        if not 0 < row <= MAX_BUFFERSIZE or nbytes > MAX_NBYTES:
            refuse(
                "rows of 1 to %d bytes, in at most %d" % (MAX_BUFFERSIZE, MAX_NBYTES),
                "shape %s with items of %s"
                % (shape, counted(self.dtype.itemsize, "byte")),
            )
        most, rows = MAX_BUFFERSIZE // row, self.storage.get("chunklen")
        if not is_whole(rows, 1, most):
            with naming_errors(folder.path(STORAGE)):
                refuse("'chunklen' to be 1 to %d" % most, rows)
        self.grid = Grid.of_rows(shape, rows)
        self.chunks = (rows, *shape[1:])
        source = FileChunks(folder, self.grid, self.dtype.itemsize, self._check)
        self._source = source
        allocate = partial(allocate_checked, [source])
        self.reader = PartReader(source, self.dtype, shape, allocate=allocate)

    def new_array(self) -> NewArray:
        """Return what a copy of this array must be, apart from its attributes."""
        args = self._args()
        return NewArray(
            self.dtype,
            self.shape,
            self.chunks[0],
            wanted_fill(self),
            settings={name: getattr(args, name) for name in SETTINGS},
        )

    def _args(self) -> BloscArgs:
        return decode_settings(self.storage.get(self.settings_key), self.dtype)

    # Writing

    @classmethod
    def grid_for(cls, new: NewArray) -> Grid:
        """Return how a new array is cut; raise `UsageError` if it can't be."""
        check_dtype(new.dtype)
        row = new.row_nbytes
        if not new.shape or not 0 < row <= MAX_BUFFERSIZE:
            raise UsageValueError(
                "the layout '%s' holds rows of 1 to %d bytes, not an array of shape "
                "%s and dtype '%s'" % (cls.name, MAX_BUFFERSIZE, new.shape, new.dtype)
            )
        return Grid.of_rows(new.shape, new_grid(new, row, cls.name).chunk[0])

    @classmethod
    def create(cls, change: Change, prefix: str, new: NewArray, blocks: Blocks) -> None:
        """Write a new array to the folder `prefix` of the dataset of `change`."""
        rows, row = cls.grid_for(new).chunk[0], new.row_nbytes
        settings = encode_settings(new)
        storage = {
            "dtype": str(new.dtype),
            cls.settings_key: settings,
            "chunklen": rows,
            "expectedlen": new.shape[0],
            "dflt": encode_fill_value(new.dtype, new.fill_value),
        }
        attributes = encode_attributes(new.attrs)
        for name in (prefix.rstrip("/"), prefix + "meta", prefix + DATA):
            if name:
                change.make_folder(name)
        change.write(prefix + STORAGE, encode_document(storage))
        args = decode_settings(settings, new.dtype)
        cbytes = write_chunks(blocks, args, rows, prefix, change.write)
        cbytes += rows * row  # the buffer that bcolz has in memory
        change.write(prefix + SIZES, encode_sizes(new.shape, row, cbytes))
        change.write(prefix + ATTRIBUTES, attributes)

    def check_writable(self) -> None:
        """Raise `UsageError` if this array can only be read."""
        super().check_writable()
        check_dtype(self.dtype)

    def stage(self, change: Change, new: NewState) -> None:
        """Let `change` write chunks, and set the number of rows."""
        write = change.write if new.extends else change.stage
        prefix = self.folder.prefix
        written = write_chunks(new.blocks, self._args(), self.chunks[0], prefix, write)
        shape, old = new.shape() if new.shape else new.grid.shape, self.shape
        if shape == old:
            return
        row = math.prod(shape[1:]) * self.dtype.itemsize
        stored = self.folder.read_description(SIZES).get("cbytes")
        # An estimate, by which bcolz divides.
        cbytes = stored if is_whole(stored, 1) else self.chunks[0] * row
        if shape[0] < old[0]:
            cbytes = max(cbytes * shape[0] // old[0], self.chunks[0] * row)
        sizes = encode_sizes(shape, row, cbytes + written)
        change.stage(self.folder.full(SIZES), sizes)


def encode_sizes(shape: tuple[int, ...], row: int, cbytes: int) -> bytes:
    """Return the content of the sizes file."""
    sizes = {"shape": list(shape), "nbytes": shape[0] * row, "cbytes": cbytes}
    return encode_document(sizes)


# Tables


class BcolzTable(BcolzNode, TableLayout):
    """A ``ctable``."""

    name = "bcolz"
    description_files = (COLUMNS, ATTRIBUTES)
    document = COLUMNS
    array_class = BcolzArray

    def __init__(self, folder: Folder, *, allow_pickle: bool = False) -> None:
        self.folder = folder
        self.allow_pickle = allow_pickle
        stored = folder.read_description(COLUMNS)
        with naming_errors(folder.path(COLUMNS)):
            if not are_names(stored.get("names"), is_safe_part):
                refuse("'names' to be different names of folders", stored.get("names"))
            folders = self.column_folders(stored)
        self.columns = self.open_columns(folders)

    @staticmethod
    def column_folders(stored: JsonObject) -> dict[str, str]:
        """Return the name of the folder of each column."""
        return {name: name for name in stored["names"]}

    # Writing

    @classmethod
    def create(cls, change: Change, columns: NewColumns, attrs: JsonObject) -> None:
        """Write a new table to the folder of `change`."""
        attributes = encode_attributes(attrs)
        for name, (new, blocks) in columns.items():
            cls.array_class.create(change, name + "/", new, blocks)
        change.write(COLUMNS, encode_document({"names": list(columns)}))
        change.write(ATTRIBUTES, attributes)

    @classmethod
    def check_column_name(cls, name: str) -> None:
        """Raise `UsageError` unless bcolz accepts the name of a column."""
        from keyword import iskeyword

        if not isinstance(name, str) or not name.isidentifier() or iskeyword(name):
            raise UsageValueError(
                "the name of a column must be an identifier of Python, not %.200r"
                % (name,)
            )
        if name in (COLUMNS, ATTRIBUTES):
            raise UsageValueError("'%s' is the name of a file of a table" % name)
        check_member_name("column", name)

    def stage_columns(self, change: Change, names: list[str]) -> None:
        """Let `change` set the columns and their order."""
        change.stage(self.folder.full(COLUMNS), encode_document({"names": names}))
        for name in set(self.columns) - set(names):
            change.drop(self.folder.full(name))


# BLZ


def detect_blz(folder: Folder) -> str | None:
    """Return ``'array'`` or ``'table'``; None for a folder of another kind."""
    kind = detect(folder)
    # The error of opening it is better.
    with suppress(FormatError, FileNotFoundError, TypeError, KeyError):
        if kind == "array":
            storage = folder.read_json(STORAGE)
            return kind if "bparams" in storage and "cparams" not in storage else None
        stored = folder.read_json(COLUMNS) if kind == "table" else {}
        if "dirs" in stored:  # bcolz had them, too: the first column tells
            parts = [_blz_folder(stored, name) for name in stored["names"][:1]]
            unsafe = not all(map(is_safe_part, parts))
            if unsafe or all(detect_blz(folder.child(p)) == "array" for p in parts):
                return kind
    return None


def _blz_folder(stored: JsonObject, name: str) -> str:
    """Return the name of the folder of a column.

    Old files have longer paths, of which only the last part counts.
    """
    folders = stored.get("dirs")
    folder_name = folders.get(name) if isinstance(folders, dict) else None
    if not isinstance(folder_name, str):
        return name
    return folder_name.replace("\\", "/").rstrip("/").rpartition("/")[2]


class BlzArray(BcolzArray):
    """A ``barray``."""

    name = "blz"
    writable = False
    settings_key = "bparams"


class BlzTable(BcolzTable):
    """A ``btable``."""

    name = "blz"
    writable = False
    array_class = BlzArray

    @staticmethod
    def column_folders(stored: JsonObject) -> dict[str, str]:
        """Return the name of the folder of each column."""
        folders = {name: _blz_folder(stored, name) for name in stored["names"]}
        for folder_name in folders.values():
            if not is_safe_part(folder_name):
                refuse("'dirs' to be folders", folder_name)
        return folders
