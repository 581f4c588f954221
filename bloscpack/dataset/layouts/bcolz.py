"""The layout of bcolz 1.x: ``carray`` and ``ctable``, as zipline's bundles have them.

::

    ROOT/meta/storage    dtype, rows in a chunk, settings of Blosc, fill value
    ROOT/meta/sizes      shape
    ROOT/data/__0.blp    a chunk in each file; the last one may have more rows
    ROOT/__attrs__       attributes of users

A table is a folder of arrays with the file ``__rootdirs__``, which names the columns.
"""

from __future__ import annotations

import math
from contextlib import suppress

import numpy

from ..._format.array_metadata import MAX_NBYTES, NUMPY_NDIM
from ..._format.dtypes import decode_dtype, shown
from ..._reading.array_reader import ArrayReader
from ...constants import MAX_BUFFERSIZE
from ...exceptions import DamageError, FormatError
from ..folder import is_safe_part
from .base import ArrayLayout, TableLayout
from .chunk_files import DATA, FileChunks, chunk_number
from .objects import OBJECT, ObjectReader

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from ..._format.dtypes import DType
    from ...serializers import Json, JsonObject
    from ..folder import Folder

STORAGE = "meta/storage"
SIZES = "meta/sizes"
ATTRIBUTES = "__attrs__"
COLUMNS = "__rootdirs__"
# Spellings of the dtype of Python objects.
OBJECTS = ("object", "|O8", "|O4", "|O", "O")


def detect(folder: Folder) -> str | None:
    """Return ``'array'`` or ``'table'``; None for a folder of another kind."""
    if folder.exists(COLUMNS):
        return "table"
    return "array" if folder.exists(STORAGE) else None


# Values in the files


def read_object(folder: Folder, name: str) -> JsonObject:
    """Return the JSON object in a file; raise `FormatError` if it is missing."""
    try:
        value = folder.read_json(name)
    except FileNotFoundError as error:
        raise DamageError(
            "expected the file, found none",
            section="metadata",
            filename=folder.path(name),
        ) from error
    if not isinstance(value, dict):
        refuse(folder, name, "an object in JSON", value)
    return value


def refuse(folder: Folder, name: str, expected: str, found: object) -> NoReturn:
    """Raise `FormatError` for a value in a file."""
    raise DamageError(
        "expected %s, found %s" % (expected, shown(found)),
        section="metadata",
        filename=folder.path(name),
    )


def read_attributes(folder: Folder) -> JsonObject:
    """Return the attributes in a folder; none if the file is missing or empty.

    Writers that were interrupted leave such files.
    """
    try:
        if not folder.read(ATTRIBUTES, 16).strip():
            return {}
    except FileNotFoundError:
        return {}
    return read_object(folder, ATTRIBUTES)


def _decode_shape(folder: Folder) -> tuple[int, ...]:
    shape = read_object(folder, SIZES).get("shape")
    if type(shape) is int:  # no release wrote this
        shape = [shape]
    if (
        not isinstance(shape, list)
        or not 1 <= len(shape) <= NUMPY_NDIM
        or any(type(n) is not int or not 0 <= n <= MAX_NBYTES for n in shape)
    ):
        refuse(folder, SIZES, "'shape' to be a list of sizes", shape)
    return tuple(shape)


def _decode_number(folder: Folder, storage: JsonObject, key: str, most: int) -> int:
    number = storage.get(key)
    if type(number) is not int or not 1 <= number <= most:
        refuse(folder, STORAGE, "'%s' to be 1 to %d" % (key, most), number)
    return number


def _decode_dtype(folder: Folder, text: Json) -> DType:
    if text in OBJECTS:
        return OBJECT
    try:
        if not isinstance(text, str):
            refuse(folder, STORAGE, "'dtype' to be text", text)
        return decode_dtype(text)
    except FormatError as error:
        error.filename = folder.path(STORAGE)
        raise


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


# Arrays


class BcolzArray(ArrayLayout):
    """A ``carray``."""

    name = "bcolz"
    # The key of the settings of Blosc in the storage file.
    settings_key = "cparams"
    _source: FileChunks | ObjectChunks

    def __init__(self, folder: Folder, *, allow_pickle: bool = False) -> None:
        self.folder = folder
        for name in ("meta", DATA):
            folder.check_inside(name)
        self._allow_pickle = allow_pickle
        self.storage = storage = read_object(folder, STORAGE)
        self.dtype = _decode_dtype(folder, storage.get("dtype"))
        self.fill_value = decode_fill_value(self.dtype, storage.get("dflt"))
        self._read_sizes()

    def _read_sizes(self) -> None:
        self._set_shape(_decode_shape(self.folder))

    def _set_shape(self, shape: tuple[int, ...]) -> None:
        """Take over a shape, and read from the files of this state from now on."""
        folder, self.shape = self.folder, shape
        if self.dtype == OBJECT:
            self._set_objects(shape)
            return
        row = math.prod(shape[1:]) * self.dtype.itemsize
        nbytes = math.prod(n or 1 for n in shape) * self.dtype.itemsize
        if not 0 < row <= MAX_BUFFERSIZE or nbytes > MAX_NBYTES:
            refuse(
                folder,
                SIZES,
                "rows of 1 to %d bytes, in at most %d" % (MAX_BUFFERSIZE, MAX_NBYTES),
                "shape %s with items of %d bytes" % (shape, self.dtype.itemsize),
            )
        most = MAX_BUFFERSIZE // row
        self.block_rows = _decode_number(folder, self.storage, "chunklen", most)
        self.chunks = (self.block_rows, *shape[1:])
        source = FileChunks(folder, shape[0] * row, self.block_rows * row)
        self._source = source
        self.reader = ArrayReader(source, self.dtype, shape, allocate=source.allocate)

    def _set_objects(self, shape: tuple[int, ...]) -> None:
        if len(shape) != 1:
            refuse(self.folder, SIZES, "objects to have one axis", shape)
        self.block_rows, self.chunks = 1, (1,)
        self._source = source = ObjectChunks(self.folder, shape[0])
        self.reader = ObjectReader(
            shape, source.read, self._allow_pickle, self.folder.path()
        )

    @property
    def cbytes(self) -> int:
        """Size in bytes of the files of chunks."""
        nchunks = self._source.nchunks
        total = 0
        with suppress(FileNotFoundError):
            for name, size in self.folder.sizes(DATA):
                number = chunk_number(name)
                total += size if number is not None and number < nchunks else 0
        return total

    def read_attributes(self) -> JsonObject:
        """Return the attributes in the file."""
        return read_attributes(self.folder)


class ObjectChunks:
    """The chunks of an array of objects: each is a pickle of any size."""

    def __init__(self, folder: Folder, nchunks: int) -> None:
        self.nchunks = nchunks
        self._folder = folder

    def read(self, number: int) -> bytes:
        """Return a pickle; raise `FormatError` if it is damaged or missing."""
        from ..._engine.blosc_settings import own_settings
        from ..._format.blosc_header import decode_header
        from ..._format.chunks import decompress

        # The chunk says how many bytes it has; the file says so too.
        chunk = FileChunks(self._folder, self.nchunks, 1).read_chunk(number, None)
        try:
            header = decode_header(chunk)
            with own_settings:
                return decompress(chunk[: header.ctbytes], header)
        except FormatError as error:
            error.locate(number, None)
            error.filename = self._folder.path()
            raise


# Tables


class BcolzTable(TableLayout):
    """A ``ctable``."""

    name = "bcolz"
    array_class = BcolzArray

    def __init__(self, folder: Folder, *, allow_pickle: bool = False) -> None:
        self.folder = folder
        self._allow_pickle = allow_pickle
        stored = read_object(folder, COLUMNS)
        names = stored.get("names")
        if (
            not isinstance(names, list)
            or not all(map(is_safe_part, names))
            or len(set(names)) < len(names)
        ):
            refuse(folder, COLUMNS, "'names' to be different names of folders", names)
        self.columns = {
            name: self._open_column(name, self.find_folder(stored, name))
            for name in names
        }

    def _open_column(self, name: str, place: str) -> ArrayLayout:
        if not self.folder.is_folder(place):
            self.folder.check_inside(place)
            raise DamageError(
                "expected the folder of the column '%s', found none" % name,
                section="metadata",
                filename=self.folder.path(place),
            )
        return self.array_class(
            self.folder.child(place), allow_pickle=self._allow_pickle
        )

    def find_folder(self, stored: JsonObject, name: str) -> str:
        """Return the name of the folder of a column."""
        return name

    def read_attributes(self) -> JsonObject:
        """Return the attributes in the file."""
        return read_attributes(self.folder)
