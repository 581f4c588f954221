"""The layout ``superchunk``, the one that Bloscpack's header was designed for.

::

    ROOT/meta/sizes             shape, plain and compressed size
    ROOT/meta/storage           dtype, sizes of chunks and files, settings of Blosc
    ROOT/meta/attributes        attributes of users
    ROOT/meta/columns           attributes of the columns of a table
    ROOT/data/__1__.bin …       superchunks: files of chunks, each a `.blp` file
    ROOT/data/FIELD/__1__.bin   the same for an item with fields, nested to any depth
    ROOT/data/COLUMN/…          the files of a column of a table

A dataset has arrays with names: a table its columns, and an array itself, under the
empty name. ``meta/storage`` says how each array is stored (`Storage`), and
``meta/sizes`` how many rows there are. The *leaves* of an item, its parts without
fields, have files of their own. Reading: the files of all leaves → one `PartReader`.
Writing: blocks of rows → one `ShardWriter` for each leaf → ``meta/sizes``, which is
replaced last (docs/format-appendix.rst).
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy

from ..._arrays.reader import Field, PartReader
from ..._commit.change import Change
from ..._format.array_metadata import (
    MAX_NBYTES,
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
    without_gaps,
)
from ..._format.grid import Grid, Shape
from ..._format.identity import KEY, Identity, check_identity, identified
from ..._format.names import is_safe_part, is_too_long
from ..._format.zarr_metadata import encode_attributes
from ..._storage.base import naming_errors
from ..._types import Json, JsonObject
from ...args import BloscArgs
from ...constants import BLOSC_HEADER_LENGTH, MAX_BUFFERSIZE, MAX_DOCUMENT
from ...exceptions import (
    FormatError,
    Unsupported,
    UsageError,
    UsageTypeError,
    UsageValueError,
)
from ...log import counted
from ...numpy_io import typesize_of
from ..changed_blocks import NewState
from ..folder import Folder
from .array_files import FileNames, allocate_checked, description_check
from .base import (
    DEFAULT_SETTINGS,
    ArrayLayout,
    Blocks,
    FieldChunks,
    NewArray,
    NewColumn,
    NewColumns,
    NodeLayout,
    TableLayout,
    wanted_fill,
)
from .chunk_choice import new_grid
from .shard_files import ShardFiles
from .shard_grid import Sharding
from .shard_writer import ShardWriter, write_shards

VERSION = 1
META = "meta"
STORAGE = "meta/storage"
SIZES = "meta/sizes"
ATTRIBUTES = "meta/attributes"
COLUMNS = "meta/columns"
DATA = "data"
# Words of the description: one of them remains if the other is damaged.
WORDS = b'"superchunk"', b'"superchunklen"'
TABLE = re.compile(rb'"kind"\s*:\s*"table"')
# Settings that users can choose, and their defaults. `spare` is the number of bytes
# that stay free at the end of each chunk.
SETTINGS = {**DEFAULT_SETTINGS, "shuffle": 1, "spare": 0}
# Characters that the name of a folder can't have everywhere. `%` is what they become.
UNSAFE = re.compile(r'[\x00-\x1f"%*/:<>?\\|\x7f]')


def detect(folder: Folder) -> str | None:
    """Return ``'array'`` or ``'table'``; None for a folder of another layout."""
    if not folder.exists(STORAGE):
        return None
    with suppress(FileNotFoundError):
        try:
            content = folder.read_document(STORAGE)[0]
        except FormatError:  # also in a damaged document
            content = folder.read(STORAGE, MAX_DOCUMENT)
        if any(word in content for word in WORDS):
            return "table" if TABLE.search(content) else "array"
    return None


# How an array is stored

# A part of an item that has no fields: the names of the fields that lead to it, its
# dtype, and its shape in an item, as a field may be an array.
Leaf = tuple[tuple[str, ...], DType, Shape]


def leaves_of(
    dtype: DType, fields: tuple[str, ...] = (), shape: Shape = ()
) -> Iterator[Leaf]:
    """Yield the leaves of an item, in the order of the fields.

    `fields` and `shape` are those of the part of an item that has the dtype.
    """
    base, shape = dtype.base, shape + dtype.shape
    if base.fields is None or base.names is None:
        yield fields, base, shape
        return
    for name in base.names:
        yield from leaves_of(base.fields[name][0], (*fields, name), shape)


def _fits_numpy(leaves: list[Leaf], shape: Shape) -> bool:
    """Return whether NumPy has arrays of all leaves of an array."""
    return len(shape) + max(len(inner) for _, _, inner in leaves) <= NUMPY_NDIM


def _sizes_of_leaves(dtype: DType) -> list[int]:
    return [math.prod(shape) * base.itemsize for _, base, shape in leaves_of(dtype)]


def encode_name(name: str) -> str:
    """Return the name of the folder of a field or column.

    It is the name itself, with ``%`` and two hexadecimal digits for each character that
    some file systems lack. No two names become the same.
    """
    if name in ("", ".", ".."):
        return name.replace(".", "%2E") or "%"
    encoded = UNSAFE.sub(lambda match: "%%%02X" % ord(match[0]), name)
    if not is_safe_part(encoded) or is_too_long(encoded):
        raise UsageValueError("no folder can have the name of the field %.200r" % name)
    return encoded


@dataclass(eq=False)
class Storage:
    """How an array is stored: an array, or a column of a table.

    Attributes
    ----------
    dtype
        Dtype of the items.
    grid
        How the rows are cut, whatever their number. Chunks of leaves have as many rows.
    fill
        The value of new items when the array is enlarged: an array without axes.
    settings
        The values of `SETTINGS`.
    identity
        The identity of the array.
    """

    dtype: DType
    grid: Grid
    fill: Array
    settings: JsonObject
    identity: str

    def __post_init__(self) -> None:
        self.leaves = list(leaves_of(self.dtype))
        self.inner = self.grid.shape[1:]

    def shardings(self, length: int) -> list[Sharding]:
        """Return how the array of each leaf is stored, which has a number of rows.

        The names begin in the data folder of the array.
        """
        shardings = []
        for fields, dtype, shape in self.leaves:
            shape = (length, *self.inner, *shape)
            grid = Grid.of_rows(shape, self.grid.chunk[0], self.grid.slots)
            folder = "/".join(map(encode_name, fields))
            names = FileNames(folder, "__", "__.bin", 1)
            shardings.append(Sharding(dtype, grid, names, self.identity))
        return shardings

    def encode(self) -> JsonObject:
        """Return the description in ``meta/storage``, without the identity."""
        content = self.fill.tobytes()
        return {
            "dtype": encode_dtype(self.dtype),
            "inner": list(self.inner),
            "chunklen": self.grid.chunk[0],
            "superchunklen": self.grid.shard[0],
            # Any item is stored exactly by its bytes.
            "dflt": base64.b64encode(content).decode() if any(content) else None,
            "cparams": self.settings,
        }


def decode_storage(stored: JsonObject, identity: Json) -> Storage:
    """Return how an array is stored; raise `FormatError` if that is damaged."""
    text = stored.get("dtype")
    if not isinstance(text, str) or not text.startswith(("'", '"', "[")):
        refuse("'dtype' to be the repr of a type", text)
    dtype = decode_dtype(text)
    check_itemsize(dtype)
    sizes = _sizes_of_leaves(dtype)
    if not sizes or sum(sizes) != dtype.itemsize:
        refuse("'dtype' to have fields, and no bytes between them", text)
    inner = stored.get("inner")
    if not are_lengths(inner) or not _fits_numpy([*leaves_of(dtype)], (0, *inner)):
        refuse("'inner' to be a list of lengths", inner)
    rows, file_rows = stored.get("chunklen"), stored.get("superchunklen")
    if not is_whole(rows, 1, MAX_BUFFERSIZE):
        refuse("'chunklen' to be a number of rows", rows)
    if not is_whole(file_rows, 1) or file_rows % rows:
        expected = "'superchunklen' to be a multiple of " + counted(rows, "row")
        refuse(expected, file_rows)
    grid = Grid.of_rows((0, *inner), rows, file_rows // rows)
    largest = rows * math.prod(inner) * max(sizes)
    if largest > MAX_BUFFERSIZE or grid.slots > MAX_BUFFERSIZE:
        refuse("chunks of at most %d bytes" % MAX_BUFFERSIZE, largest)
    fill: Array = numpy.zeros((), dtype)
    if (dflt := stored.get("dflt")) is not None:
        try:
            content = base64.b64decode(dflt, validate=True)
            fill = numpy.frombuffer(content, dtype).reshape(())
            check_text(fill)
        except (TypeError, ValueError, binascii.Error):
            refuse("'dflt' to be the bytes of an item in base64", dflt)
    settings, given = dict(SETTINGS), stored.get("cparams")
    if isinstance(given, dict):
        with suppress(UsageError):  # this Blosc may lack the codec
            settings = checked_settings(given)
    if not isinstance(identity, str):
        refuse("an 'id' of each column", [stored.get("name")])
    return Storage(dtype, grid, fill, settings, identity)


def new_storage(new: NewArray) -> Storage:
    """Return how a new array is stored; raise `UsageError` if it can't be."""
    if not new.shape:
        raise UsageValueError(
            "the layout 'superchunk' holds arrays with at least one axis: reshape the "
            "item to (1,)"
        )
    encode_dtype(new.dtype)  # raises the error for objects
    new.check_settings(SETTINGS, "superchunk")
    settings = checked_settings({**new.usual_settings, **new.settings})
    dtype = without_gaps(new.dtype)
    is_read = False
    with suppress(FormatError):
        leaves = [*leaves_of(decode_dtype(encode_dtype(dtype)))]
        is_read = bool(leaves) and _fits_numpy(leaves, new.shape)
    if not is_read:
        raise UsageTypeError(
            "the layout 'superchunk' can't hold items of dtype '%s' on %s"
            % (dtype, counted(len(new.shape), "axis"))
        )
    fill: Array = numpy.zeros((), dtype)
    if new.fill_value is not None:
        fill[...] = new.fill_value
    largest = max(_sizes_of_leaves(dtype), default=0)
    grid = new_grid(new, math.prod(new.shape[1:]) * largest, "superchunk")
    storage = Storage(dtype, grid, fill, settings, Identity().name)
    storage.shardings(0)  # raises the error of a name
    return storage


def checked_settings(given: Mapping[str, Json]) -> JsonObject:
    """Return the settings for new chunks; raise `UsageError` if one is wrong."""
    settings = {name: given.get(name, value) for name, value in SETTINGS.items()}
    spare = settings["spare"]
    args_of(settings, 1).check()
    if type(spare) is not int or not 0 <= spare < 2**31:
        raise UsageValueError("spare must be a number of bytes, not %.200r" % (spare,))
    return {**settings, "shuffle": int(settings["shuffle"])}


def args_of(settings: JsonObject, typesize: int) -> BloscArgs:
    """Return the settings of Blosc."""
    cname, clevel, shuffle = (settings[n] for n in ("cname", "clevel", "shuffle"))
    return BloscArgs(typesize, clevel, shuffle, cname)


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


# Documents


class Documents:
    """The documents of a dataset. Each of them states its identity.

    The arrays refer to this object, and it to none of them: a cycle would keep their
    files open.

    Attributes
    ----------
    folder
        The dataset.
    identity
        Its identity; None until it is known.
    arrays
        How each array is stored, by name.
    length
        Number of rows when the documents were read.
    seen
        What `Folder.seen` has returned for ``meta/storage`` before it was read.
    """

    def __init__(
        self,
        folder: Folder,
        identity: str | None = None,
        arrays: Mapping[str, Storage] | None = None,
    ) -> None:
        self.folder = folder
        self.identity = identity
        self.arrays = dict(arrays or {})
        self.length = 0
        self.seen: object = None
        self._cbytes: dict[str, int] = {}  # of the files of arrays

    def read(self, *kinds: str) -> Documents:
        """Read how the arrays are stored, and the number of rows; return this object.

        Raises `FormatError` if the dataset is damaged, or of none of the `kinds`.
        """
        self.seen = self.folder.seen(STORAGE)
        self._cbytes.clear()
        sizes = self._document(SIZES)  # it may say where the other documents are
        with naming_errors(self.folder.path(STORAGE)):
            stored = self._document(STORAGE)
            version, kind = stored.get("superchunk"), stored.get("kind")
            if not is_whole(version, VERSION, VERSION):
                raise Unsupported(
                    "this version reads superchunks of version '%d', found '%.200s': "
                    "'%s'" % (VERSION, version, self.folder.path(STORAGE))
                )
            if kind not in kinds:
                refuse("'kind' to be '%s'" % "' or '".join(kinds), kind)
            if kind == "array":
                arrays = {"": decode_storage(stored, stored[KEY])}
            else:
                columns, arrays = stored.get("columns"), {}
                if not isinstance(columns, list) or not columns:
                    refuse("'columns' to be a list of columns", columns)
                for column in columns:
                    name = column.get("name") if isinstance(column, dict) else None
                    if not isinstance(name, str) or not name:
                        refuse("the name of a column", name)
                    arrays[name] = decode_storage(column, column.get("id"))
                if len(arrays) < len(columns):
                    refuse("'columns' to have different names", list(arrays))
            self.identity, self.arrays = stored[KEY], arrays
        shape, inner = sizes.get("shape"), self._inner
        with naming_errors(self.folder.path(SIZES)):
            if sizes[KEY] != self.identity:
                refuse("a document of the dataset '%s'" % self.identity, sizes[KEY])
            if not are_lengths(shape) or not shape or tuple(shape[1:]) != inner:
                refuse("'shape' to be a number of rows, and %s" % (inner,), shape)
        self.length = shape[0]
        return self

    @property
    def _inner(self) -> Shape:
        """The shape in ``meta/sizes`` without the number of rows."""
        return self.arrays[""].inner if "" in self.arrays else ()

    def _document(self, name: str) -> JsonObject:
        check = partial(check_identity, expected=self.identity)
        with naming_errors(self.folder.path(name)):
            return self.folder.read_description(name, check)

    def read_attributes(self, name: str) -> JsonObject:
        """Return the attributes in a document: of columns, the object of each."""
        stored = self._document(name).get(name.rpartition("/")[2])
        if not isinstance(stored, dict):
            refuse("the attributes", stored)
        for column, attributes in stored.items() if name == COLUMNS else ():
            if not isinstance(attributes, dict):
                refuse("the attributes of the column '%.200s'" % column, attributes)
        return stored

    def encode_attributes(self, name: str, values: JsonObject) -> bytes:
        """Return the content of a document of attributes."""
        return self._encode({name.rpartition("/")[2]: values}, values)

    def encode_storage(self) -> bytes:
        """Return the content of ``meta/storage``."""
        if "" in self.arrays:
            stored = {"kind": "array", **self.arrays[""].encode()}
        else:
            columns = [
                {"name": name, **each.encode(), "id": each.identity}
                for name, each in self.arrays.items()
            ]
            stored = {"kind": "table", "columns": columns}
        return self._encode({"superchunk": VERSION, **stored})

    def encode_sizes(self, length: int, name: str, written: Mapping[str, int]) -> bytes:
        """Return the content of ``meta/sizes`` for a number of rows.

        `written` has the sizes of the new files of an array by their full names.
        """
        nbytes = 0
        for other, storage in self.arrays.items():
            nbytes += length * math.prod(storage.inner) * storage.dtype.itemsize
            if other != name and other in self._cbytes:
                continue
            new, data = written if other == name else {}, self.data(other)
            total = sum(new.values())
            for sharding in storage.shardings(length):
                stored = sharding.names.stored(data, sharding.grid.nshards)
                files = map(sharding.names, stored)
                total += data.total_size([f for f in files if data.full(f) not in new])
            self._cbytes[other] = total
        shape, cbytes = [length, *self._inner], sum(self._cbytes.values())
        return self._encode({"shape": shape, "nbytes": nbytes, "cbytes": cbytes})

    def _encode(
        self, document: JsonObject, attributes: JsonObject | None = None
    ) -> bytes:
        """Return the content of a document, perhaps one of attributes."""
        assert self.identity is not None
        encode = partial(encode_attributes, attributes or {})
        return identified(document, Identity(self.identity), encode)

    def data(self, name: str) -> Folder:
        """Return the folder with the files of an array."""
        return self.folder.child(column_folder(name) if name else DATA)


def column_folder(name: str) -> str:
    """Return the name of the folder of a column, relative to the table."""
    return "%s/%s" % (DATA, encode_name(name))


# Arrays and tables


class SuperchunkNode(NodeLayout):
    """An array, a table or a column of one, with its documents."""

    name = "superchunk"
    document = SIZES
    _documents: Documents
    _column = ""  # the name of a column

    def read_attributes(self, change: Change | None = None) -> JsonObject:
        """Return the attributes in the file."""
        if not self._column:
            return self._documents.read_attributes(ATTRIBUTES)
        by_column = self._documents.read_attributes(COLUMNS)
        return by_column.get(self._column, {})  # type: ignore[no-any-return]

    def stage_attributes(self, change: Change, values: JsonObject) -> None:
        """Let `change` replace all attributes."""
        documents, name = self._documents, ATTRIBUTES
        if self._column:
            name = COLUMNS
            values = {**documents.read_attributes(COLUMNS), self._column: values}
        content = documents.encode_attributes(name, values)
        change.stage(documents.folder.full(name), content)


class SuperchunkArray(SuperchunkNode, ArrayLayout):
    """An array in superchunks, or a column of a table.

    Parameters
    ----------
    folder
        The dataset.
    column
        The name of a column of the table; empty for an array.
    documents
        Those of the dataset, if they were read.
    """

    description_files: tuple[str, ...] = (STORAGE, SIZES, ATTRIBUTES)
    by_field = True
    is_column = False  # the files of a column do not look like an array

    def __init__(
        self,
        folder: Folder,
        *,
        allow_pickle: bool = False,
        column: str = "",
        documents: Documents | None = None,
    ) -> None:
        if documents is None:
            documents = Documents(folder).read("table" if column else "array")
        self._documents, self._column = documents, column
        self._data = documents.data(column)
        self.folder = folder
        if column:
            self.folder, self.description_files = self._data, ()
        self.storage = storage = documents.arrays[column]
        stated = storage.encode(), storage.identity
        self._check = description_check(
            *(folder, STORAGE, documents.seen),
            lambda: _stated(folder, column) == stated,
        )
        self.dtype, self.fill_value = storage.dtype, storage.fill[()]
        self.chunks = (storage.grid.chunk[0], *storage.inner)
        self.shards = (storage.grid.shard[0], *storage.inner)
        self._take(documents.length)

    def _take(self, length: int) -> None:
        """Read from the files of this number of rows from now on."""
        storage = self.storage
        self.shape = (length, *storage.inner)
        nbytes = math.prod(n or 1 for n in self.shape) * self.dtype.itemsize
        if nbytes > MAX_NBYTES:
            with naming_errors(self._documents.folder.path(SIZES)):
                refuse("at most '%d' bytes" % MAX_NBYTES, nbytes)
        self.grid = storage.grid.resized(self.shape)
        # No methods of this object: a cycle would keep the files open.
        self._sources = [
            ShardFiles(self._data, sharding, check_description=self._check)
            for sharding in storage.shardings(length)
        ]
        leaves = zip(storage.leaves, self._sources, strict=True)
        fields = [Field(names, each, dtype, n) for (names, dtype, n), each in leaves]
        allocate = partial(allocate_checked, self._sources)
        self.reader = PartReader(fields, self.dtype, self.shape, allocate=allocate)

    def __reduce__(self) -> tuple[object, ...]:
        """Return what opens it again, in any process."""
        return partial(SuperchunkArray, column=self._column), (self._documents.folder,)

    def parts(self) -> list[FieldChunks]:
        """Return where the chunks are, by the fields of an item."""
        leaves = zip(self.storage.leaves, self._sources, strict=True)
        return [(fields, source) for (fields, *_), source in leaves]

    def new_array(self) -> NewArray:
        """Return what a copy of this array must be, apart from its attributes."""
        return NewArray(
            *(self.dtype, self.shape, self.chunks[0], wanted_fill(self)),
            settings=self.storage.settings,
            shards=self.storage.grid.shard[0],
        )

    # Writing

    @classmethod
    def grid_for(cls, new: NewArray) -> Grid:
        """Return how a new array is cut; raise `UsageError` if it can't be."""
        return new_storage(new).grid

    @classmethod
    def create(cls, change: Change, prefix: str, new: NewArray, blocks: Blocks) -> None:
        """Write a new array to the folder `prefix` of the dataset of `change`."""
        _create(change, prefix, {"": (new, blocks)}, new.attrs)

    def stage(self, change: Change, new: NewState) -> None:
        """Let `change` write chunks, and set the number of rows of the dataset."""
        length, at_once = new.grid.shape[0], new.extends
        written = self.write(change, new.blocks, length, at_once=at_once)
        length = length if new.shape is None else new.shape()[0]
        sizes = self._documents.encode_sizes(length, self._column, written)
        change.stage(self._documents.folder.full(SIZES), sizes)

    def write(
        self, change: Change, blocks: Blocks, length: int = 0, *, at_once: bool = True
    ) -> dict[str, int]:
        """Write blocks of rows, each leaf to its files; return their sizes by name.

        The first `length` rows are kept. Leaves of fields that the blocks lack are not
        written.
        """
        storage, settings = self.storage, self.storage.settings
        shardings = storage.shardings(length)
        writers = [
            ShardWriter(
                change,
                self._data.prefix,
                sharding,
                args_of(settings, typesize_of(sharding.dtype)),
                source,
                at_once=at_once,
                fields=leaf[0],
                finish_chunk=partial(with_spare, nbytes=settings["spare"]),
            )
            for leaf, sharding, source in zip(
                storage.leaves, shardings, self._sources, strict=True
            )
        ]
        write_shards(writers, blocks)
        return {name: size for each in writers for name, size in each.sizes.items()}

    def committed(self, shape: Shape) -> None:
        """Take over the shape of a change that was committed."""
        self.close_files()
        self._take(shape[0])


def _stated(folder: Folder, name: str) -> object:
    """Return how an array of a dataset is stored now; None if it is not there."""
    array = Documents(folder).read("array", "table").arrays.get(name)
    return array and (array.encode(), array.identity)


def _create(
    change: Change, prefix: str, arrays: NewColumns, attributes: JsonObject
) -> None:
    """Write a new dataset that has these arrays to the folder `prefix`."""
    folder = Folder(change.store, prefix)
    storages = {name: new_storage(new) for name, (new, _) in arrays.items()}
    identity = storages[""].identity if "" in storages else Identity().name
    documents = Documents(folder, identity, storages)
    contents = {STORAGE: documents.encode_storage()}
    contents[ATTRIBUTES] = documents.encode_attributes(ATTRIBUTES, attributes)
    if "" not in arrays:
        of_columns = {name: new.attrs for name, (new, _) in arrays.items()}
        contents[COLUMNS] = documents.encode_attributes(COLUMNS, of_columns)
    for name in (prefix.rstrip("/"), prefix + META, prefix + DATA):
        if name:
            change.make_folder(name)
    for name, (new, blocks) in arrays.items():
        change.make_folder(documents.data(name).prefix[:-1])
        array = SuperchunkArray(folder, column=name, documents=documents)
        written = array.write(change, blocks)
        contents[SIZES] = documents.encode_sizes(new.shape[0], name, written)
    for name, content in contents.items():
        change.write(prefix + name, content)


class SuperchunkTable(SuperchunkNode, TableLayout):
    """A table whose columns are superchunks."""

    description_files = (STORAGE, SIZES, ATTRIBUTES, COLUMNS)
    array_class = SuperchunkArray

    def __init__(self, folder: Folder, *, allow_pickle: bool = False) -> None:
        self.folder = folder
        self._documents = Documents(folder).read("table")
        # Columns that a change adds: how they are stored, and their attributes.
        self._new: dict[str, tuple[Storage, JsonObject]] = {}
        names = self._documents.arrays
        self.columns = {name: self._open_column(name, name) for name in names}

    def _open_column(self, name: str, column_prefix: str) -> ArrayLayout:
        return SuperchunkArray(self.folder, column=name, documents=self._documents)

    # Writing

    @classmethod
    def create(cls, change: Change, columns: NewColumns, attrs: JsonObject) -> None:
        """Write a new table to the folder of `change`."""
        _create(change, "", columns, attrs)

    @classmethod
    def check_column_name(cls, name: str) -> None:
        """Raise `UsageError` if no folder can have the name of a column."""
        if not isinstance(name, str) or not name:
            raise UsageValueError(
                "the name of a column must be text with a character, not %.200r"
                % (name,)
            )
        encode_name(name)

    def create_column(self, change: Change, name: str, column: NewColumn) -> None:
        """Write a column, which the table does not have before `stage_columns`."""
        new, blocks = column
        storage, documents = new_storage(new), self._documents
        documents = Documents(self.folder, documents.identity, {name: storage})
        self.remove_leftover(name, column_folder)
        change.make_folder(documents.data(name).prefix[:-1])
        array = SuperchunkArray(self.folder, column=name, documents=documents)
        array.write(change, blocks)
        self._new[name] = storage, new.attrs

    def stage_columns(self, change: Change, names: list[str]) -> None:
        """Let `change` set the columns and their order."""
        new, self._new = self._new, {}
        arrays = self._documents.arrays | {name: new[name][0] for name in new}
        arrays = {name: arrays[name] for name in names}
        documents = Documents(self.folder, self._documents.identity, arrays)
        change.stage(self.folder.full(STORAGE), documents.encode_storage())
        attributes = documents.read_attributes(COLUMNS)
        attributes |= {name: attrs for name, (_, attrs) in new.items()}
        kept = {name: attributes.get(name, {}) for name in names}
        content = documents.encode_attributes(COLUMNS, kept)
        change.stage(self.folder.full(COLUMNS), content)
        for name in set(self.columns) - set(names):
            change.drop(self.folder.full(column_folder(name)))

    def columns_committed(self, names: list[str]) -> None:
        """Take over the columns of a change that was committed."""
        self._documents.read("table")
        super().columns_committed(names)
