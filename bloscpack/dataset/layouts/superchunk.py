"""The layout ``superchunk``, the one that Bloscpack's header was designed for.

::

    ROOT/meta/sizes             shape, plain and compressed size
    ROOT/meta/storage           dtype, sizes of chunks and files, settings of Blosc
    ROOT/meta/attributes        attributes of users
    ROOT/meta/columns           attributes of the columns of a table
    ROOT/data/__1__.bin …       superchunks: files of chunks, each a `.blp` file
    ROOT/data/FIELD/__1__.bin   the same for an item with fields, nested to any depth

``meta/sizes`` has the number of rows, and is replaced last (docs/format.rst,
Superchunks).
"""

from __future__ import annotations

import math
import os
from contextlib import suppress
from functools import partial
from itertools import tee

import numpy

from ..._format.array_metadata import MAX_NBYTES, new_array
from ..._reading.array_index import ArrayIndex
from ..._reading.array_reader import ArrayReader
from ..._reading.boxes import Steps
from ..._storage.disk import disk
from ...exceptions import DamageError, FormatError, UsageError, UsageValueError
from ..change import remove_tree
from ..folder import encode_attributes, encode_json
from .base import ArrayLayout, TableLayout
from .chunk_files import LARGE
from .superchunk_files import Cut, SuperchunkFiles
from .superchunk_storage import (
    DATA,
    VERSION,
    Storage,
    decode_storage,
    encode_name,
    new_storage,
    refuse,
    with_spare,
)
from .superchunk_writer import ShardFolder, write_folders

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any, NoReturn

    from ..._format.dtypes import Array, DType
    from ..._reading.array_reader import Allocate
    from ...serializers import Json, JsonObject
    from ..change import Change
    from ..folder import Folder
    from .base import Blocks, Length, NewArray, NewColumn
    from .superchunk_storage import Leaf
    from .superchunk_writer import Part

META = "meta"
STORAGE = "meta/storage"
SIZES = "meta/sizes"
ATTRIBUTES = "meta/attributes"
COLUMNS = "meta/columns"


def detect(folder: Folder) -> str | None:
    """Return ``'array'`` or ``'table'``; None for a folder of another layout."""
    if not folder.exists(STORAGE):
        return None
    with suppress(FormatError, OSError):
        stored = folder.read_json(STORAGE)
        if isinstance(stored, dict) and "superchunk" in stored:
            return "table" if stored.get("kind") == "table" else "array"
    return None


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
        raise DamageError(
            "expected an object in JSON, found something else",
            section="metadata",
            filename=folder.path(name),
        )
    return value


def read_storage(folder: Folder, kind: str) -> JsonObject:
    """Return the description of a dataset, of which `kind` and version are checked."""
    stored = read_object(folder, STORAGE)
    if stored.get("superchunk") != VERSION:
        raise UsageError(
            "this version reads superchunks of version '%d', found '%.200s': '%s'"
            % (VERSION, stored.get("superchunk"), folder.path(STORAGE))
        )
    if stored.get("kind") != kind:
        refuse("'kind' to be '%s'" % kind, stored.get("kind"))
    return stored


def read_attributes(folder: Folder, name: str) -> JsonObject:
    """Return the attributes in a file; none if it is missing."""
    if not folder.exists(name):
        return {}
    return read_object(folder, name)


def read_length(folder: Folder, inner: tuple[int, ...]) -> int:
    """Return the number of rows in the sizes file."""
    shape = read_object(folder, SIZES).get("shape")
    if (
        not isinstance(shape, list)
        or len(shape) != 1 + len(inner)
        or tuple(shape[1:]) != inner
        or type(shape[0]) is not int
        or not 0 <= shape[0] <= MAX_NBYTES
    ):
        refuse("'shape' to be a number of rows, and %s" % (inner,), shape)
    length: int = shape[0]
    return length


def encode_sizes(shape: tuple[int, ...], nbytes: int, cbytes: int) -> bytes:
    """Return the content of the sizes file."""
    return encode_json({"shape": list(shape), "nbytes": nbytes, "cbytes": cbytes})


# Reading


class ItemParts:
    """Reads items whose leaves are in different files.

    Parameters
    ----------
    dtype, shape
        Those of the array.
    parts
        The leaves and their readers.
    allocate
        Returns the array for a result; it may refuse a size that comes from a file.
    """

    def __init__(
        self,
        dtype: DType,
        shape: tuple[int, ...],
        parts: list[tuple[Leaf, ArrayReader]],
        allocate: Allocate,
    ) -> None:
        self._allocate = allocate
        self.closed = False
        self._dtype = dtype
        self._shape = shape
        self._parts = parts

    def get(self, key: Any) -> Any:
        """Return the items that an index selects, or fields of all items.

        Only the files of the leaves that are needed are read.
        """
        if self.closed:
            raise UsageValueError("the array is closed")
        names = [key] if isinstance(key, str) else key
        if isinstance(names, list) and names and isinstance(names[0], str):
            numpy.empty(0, self._dtype)[key]  # raises the error for an unknown name
            return self._read(ArrayIndex(..., self._shape), set(names))[key]
        return self._read(ArrayIndex(key, self._shape), None)

    def _read(self, index: ArrayIndex, names: set[str] | None) -> Any:
        counts = tuple(axis.count for axis in index.axes)
        items = self._allocate(counts, self._dtype)
        for leaf, reader in self._parts:
            if names is None or leaf.fields[0] in names:
                rest = [Steps(n, 0, 1, n) for n in reader.shape[len(self._shape) :]]
                leaf.of(items)[...] = reader.read_axes([*index.axes, *rest])
        return index.finish(items)


# Arrays


class SuperchunkArray(ArrayLayout):
    """An array in superchunks."""

    name = "superchunk"
    # Where the superchunks are in the folder.
    data = DATA + "/"

    def __init__(self, folder: Folder, *, allow_pickle: bool = False) -> None:
        self.folder = folder
        folder.check_inside(DATA)
        try:
            self.storage = decode_storage(read_storage(folder, self.kind))
        except FormatError as error:
            error.filename = error.filename or folder.path(STORAGE)
            raise
        length = self.read_length()
        try:
            self._take(length)
        except FormatError as error:
            error.filename = error.filename or folder.path(SIZES)
            raise

    def read_length(self) -> int:
        """Return the number of rows in the files now."""
        try:
            return read_length(self.folder, self.storage.inner)
        except FormatError as error:
            error.filename = error.filename or self.folder.path(SIZES)
            raise

    def _take(self, length: int) -> None:
        """Read from the files of this number of rows from now on."""
        storage = self.storage
        self.dtype = storage.dtype
        self.shape = (length, *storage.inner)
        nbytes = math.prod(n or 1 for n in self.shape) * self.dtype.itemsize
        if nbytes > MAX_NBYTES:
            refuse("at most '%d' bytes" % MAX_NBYTES, nbytes)
        self.fill_value = storage.fill_value
        self.block_rows = storage.chunk_rows
        self.chunks = (storage.chunk_rows, *storage.inner)
        self.shards = (storage.chunk_rows * storage.slots, *storage.inner)
        # No methods of this object: a cycle would keep the files open.
        missing = partial(refuse_missing, self.folder.path())
        self._sources = sources = [
            SuperchunkFiles(
                self.folder,
                self._namer(leaf),
                cut_of(storage, leaf),
                length,
                0,
                missing,
            )
            for leaf in storage.leaves
        ]
        allocate = partial(allocate_checked, sources)
        readers = [
            ArrayReader(
                source,
                leaf.dtype,
                (*self.shape, *leaf.shape),
                allocate=allocate,
            )
            for leaf, source in zip(storage.leaves, self._sources, strict=True)
        ]
        if self.dtype.names is None:
            self.reader = readers[0]
        else:
            parts = list(zip(storage.leaves, readers, strict=True))
            self.reader = ItemParts(self.dtype, self.shape, parts, allocate)

    def _namer(self, leaf: Leaf) -> Any:
        data = self.data
        return lambda number: data + leaf.file_name(number)

    def _files(self, start: int, stop: int) -> Iterator[Iterator[str]]:
        """Yield for each leaf the files of `stop` rows that `start` rows lack."""
        for leaf, source in zip(self.storage.leaves, self._sources, strict=True):
            cut = source.cut
            numbers = range(cut.count_files(start), cut.count_files(stop))
            yield map(self._namer(leaf), numbers)

    @property
    def cbytes(self) -> int:
        """Size in bytes of the superchunks."""
        return self._cbytes(self.shape[0], {})

    def _cbytes(self, length: int, written: Mapping[str, int]) -> int:
        """Return the size of the files; `written` has those that are not in place."""
        total = 0
        for names in self._files(0, length):
            with suppress(FileNotFoundError):  # damaged sizes: do not try all names
                for name in names:
                    size = written.get(self.folder.full(name))
                    total += self.folder.size(name) if size is None else size
        return total

    def read_attributes(self) -> JsonObject:
        """Return the attributes in the file."""
        return read_attributes(self.folder, ATTRIBUTES)

    # Writing

    @classmethod
    def block_rows_for(cls, new: NewArray) -> int:
        """Return the number of rows in a chunk of a new array."""
        return new_storage(new).chunk_rows

    @classmethod
    def create(cls, change: Change, prefix: str, new: NewArray, blocks: Blocks) -> None:
        """Write a new array to the folder `prefix` of the dataset of `change`."""
        storage = new_storage(new)
        head = {"superchunk": VERSION, "kind": cls.kind}
        content = encode_json({**head, **storage.encode()})
        attributes = encode_attributes(new.attrs)
        for name in (prefix.rstrip("/"), prefix + META, prefix + DATA):
            if name:
                change.make_folder(name)
        written = write_leaves(change, prefix + DATA + "/", storage, blocks)
        nbytes = math.prod(new.shape) * storage.dtype.itemsize
        change.write(prefix + STORAGE, content)
        change.write(prefix + ATTRIBUTES, attributes)
        sizes = encode_sizes(new.shape, nbytes, sum(written.values()))
        change.write(prefix + SIZES, sizes)

    def stage_attributes(self, change: Change, values: JsonObject) -> None:
        """Let `change` replace all attributes."""
        change.stage(self.folder.full(ATTRIBUTES), encode_attributes(values))

    def stage(
        self, change: Change, blocks: Blocks, length: Length, *, extends: bool
    ) -> None:
        """Let `change` write blocks of rows, and set the number of rows."""
        written = write_leaves(
            change,
            self.folder.prefix + self.data,
            self.storage,
            blocks,
            self._sources,
            at_once=extends,
        )
        nrows = length()
        self.stage_sizes(change, nrows, self._cbytes(nrows, written))

    def stage_sizes(self, change: Change, length: int, cbytes: int) -> None:
        """Let `change` set the number of rows."""
        shape = (length, *self.storage.inner)
        nbytes = math.prod(shape) * self.dtype.itemsize
        change.stage(self.folder.full(SIZES), encode_sizes(shape, nbytes, cbytes))

    def committed(self, length: int) -> None:
        """Take over the number of rows of a change that was committed."""
        for source in self._sources:
            source.close()
        self._take(length)

    def remove_unused(self, old_length: int) -> None:
        """Remove the files of rows that the array had before it shrank."""
        for names in self._files(self.shape[0], old_length):
            with suppress(FileNotFoundError):  # damaged sizes: do not try all names
                for name in names:
                    self.folder.check_inside(name.rpartition("/")[0])
                    disk.remove(self.folder.path(name))


def refuse_missing(path: str) -> NoReturn:
    """Raise the `FormatError` of a missing superchunk, or of a missing chunk in it."""
    raise DamageError(
        "expected a superchunk with all its chunks, found none; if a writer has "
        "removed rows meanwhile, open the dataset again",
        section="chunks",
        filename=path,
    )


def allocate_checked(
    sources: Sequence[SuperchunkFiles], shape: tuple[int, ...], dtype: DType
) -> Array:
    """Return a new array; raise `FormatError` if the files can't hold so much."""
    if math.prod(shape) * dtype.itemsize >= LARGE:
        for source in sources:
            source.check_files()
    return new_array(shape, dtype)


def cut_of(storage: Storage, leaf: Leaf) -> Cut:
    """Return how the array of a leaf is cut."""
    inner = (*storage.inner, *leaf.shape)
    return Cut(leaf.dtype, inner, storage.chunk_rows, storage.slots)


def write_leaves(
    change: Change,
    prefix: str,
    storage: Storage,
    blocks: Blocks,
    old: Sequence[SuperchunkFiles | None] | None = None,
    *,
    at_once: bool = True,
) -> dict[str, int]:
    """Write blocks of rows, each leaf to its files; return the sizes by file name.

    `old` is the files of the leaves now.
    """
    sources = [None] * len(storage.leaves) if old is None else old

    def part_of(leaf: Leaf, source: SuperchunkFiles | None, blocks: Blocks) -> Part:
        def name_of(number: int) -> str:
            return prefix + leaf.file_name(number)

        def finish_chunk(chunk: bytes) -> bytes:
            return with_spare(chunk, storage.settings["spare"])

        cut, args = cut_of(storage, leaf), storage.args_of(leaf)
        folder = ShardFolder(
            change, name_of, cut, args, at_once=at_once, finish_chunk=finish_chunk
        )
        rows = ((number, leaf.of(rows)) for number, rows in blocks)
        return folder, folder.pieces(rows, source), source

    leaves = [
        (leaf, source)
        for leaf, source in zip(storage.leaves, sources, strict=True)
        if cut_of(storage, leaf).row_nbytes
    ]
    if not leaves:  # the rows count, but there is nothing to store
        for _ in blocks:
            pass
    copies = tee(blocks, len(leaves))
    parts = [
        part_of(leaf, source, shared)
        for (leaf, source), shared in zip(leaves, copies, strict=True)
    ]
    write_folders(parts)
    return {name: size for folder, _, _ in parts for name, size in folder.sizes.items()}


# Tables


class SuperchunkColumn(SuperchunkArray):
    """A column of a table, which has its description."""

    data = ""

    def __init__(
        self, table: SuperchunkTable, name: str, storage: Storage, length: int
    ) -> None:
        self.folder = table.folder.child(column_folder(name))
        self.storage = storage
        self._table = table
        self._column = name
        self._take(length)

    def read_attributes(self) -> JsonObject:
        """Return the attributes in the file."""
        return self._table.column_attributes().get(self._column, {})

    def stage_attributes(self, change: Change, values: JsonObject) -> None:
        """Let `change` replace all attributes."""
        self._table.stage_column_attributes(change, {self._column: values})

    def stage_sizes(self, change: Change, length: int, cbytes: int) -> None:
        """Let `change` set the number of rows of the table."""
        self._table.stage_sizes(change, length, self._column, cbytes)


class SuperchunkTable(TableLayout):
    """A table whose columns are superchunks."""

    name = "superchunk"
    array_class = SuperchunkArray

    def __init__(self, folder: Folder, *, allow_pickle: bool = False) -> None:
        self.folder = folder
        folder.check_inside(DATA)
        self._cbytes: dict[str, int] = {}
        self._new: dict[str, tuple[Storage, JsonObject]] = {}
        try:
            stored = read_storage(folder, self.kind).get("columns")
            if not isinstance(stored, list) or not stored:
                refuse("'columns' to be a list of columns", stored)
            storages = dict(map(_decode_column, stored))
            if len(storages) < len(stored):
                refuse("'columns' to have different names", list(storages))
        except FormatError as error:
            error.filename = error.filename or folder.path(STORAGE)
            raise
        self.columns = self._open(storages)

    def _open(self, storages: Mapping[str, Storage]) -> dict[str, ArrayLayout]:
        try:
            length = read_length(self.folder, ())
            return {
                name: SuperchunkColumn(self, name, storage, length)
                for name, storage in storages.items()
            }
        except FormatError as error:
            error.filename = error.filename or self.folder.path(SIZES)
            raise

    def _storages(self) -> dict[str, Storage]:
        return {
            name: column.storage
            for name, column in self.columns.items()
            if isinstance(column, SuperchunkColumn)
        }

    def read_attributes(self) -> JsonObject:
        """Return the attributes in the file."""
        return read_attributes(self.folder, ATTRIBUTES)

    def column_attributes(self) -> dict[str, JsonObject]:
        """Return the attributes of the columns by name."""
        found = read_attributes(self.folder, COLUMNS)
        return {name: value for name, value in found.items() if isinstance(value, dict)}

    # Writing

    @classmethod
    def create(
        cls, change: Change, columns: Mapping[str, NewColumn], attrs: JsonObject
    ) -> None:
        """Write a new table to the folder of `change`."""
        storages = {name: new_storage(new) for name, (new, _) in columns.items()}
        attributes = encode_attributes(attrs)
        of_columns = {name: new.attrs for name, (new, _) in columns.items()}
        for name in (META, DATA):
            change.make_folder(name)
        nbytes = cbytes = length = 0
        for name, (new, blocks) in columns.items():
            place = _make_column(change, "", name)
            written = write_leaves(change, place, storages[name], blocks)
            cbytes += sum(written.values())
            nbytes += math.prod(new.shape) * storages[name].dtype.itemsize
            length = new.shape[0]
        change.write(STORAGE, encode_columns(storages))
        change.write(ATTRIBUTES, attributes)
        change.write(COLUMNS, encode_attributes(of_columns))
        change.write(SIZES, encode_sizes((length,), nbytes, cbytes))

    @classmethod
    def check_column_name(cls, name: str) -> None:
        """Raise `UsageError` if no folder can have the name of a column."""
        if not isinstance(name, str) or not name:
            raise UsageValueError(
                "the name of a column must be text, not %.200r" % (name,)
            )
        encode_name(name)

    def stage_attributes(self, change: Change, values: JsonObject) -> None:
        """Let `change` replace all attributes."""
        change.stage(self.folder.full(ATTRIBUTES), encode_attributes(values))

    def stage_column_attributes(
        self, change: Change, values: Mapping[str, JsonObject]
    ) -> None:
        """Let `change` replace all attributes of some columns."""
        found = {**self.column_attributes(), **values}
        change.stage(self.folder.full(COLUMNS), encode_attributes(found))

    def stage_sizes(
        self, change: Change, length: int, column: str, cbytes: int
    ) -> None:
        """Let `change` set the number of rows; `cbytes` is the size of a column."""
        self._cbytes[column] = cbytes
        nbytes = 0
        for name, layout in self.columns.items():
            nbytes += length * math.prod(layout.shape[1:]) * layout.dtype.itemsize
            if name not in self._cbytes:
                self._cbytes[name] = layout.cbytes
        total = sum(self._cbytes[name] for name in self.columns)
        sizes = encode_sizes((length,), nbytes, total)
        change.stage(self.folder.full(SIZES), sizes)

    def create_column(self, change: Change, name: str, column: NewColumn) -> None:
        """Write a column, which the table does not have before `stage_columns`."""
        new, blocks = column
        storage = new_storage(new)
        place = column_folder(name)
        self.folder.check_inside(place)
        if self.folder.exists(place):  # of a column that was removed
            remove_tree(self.folder.path(place))
        place = _make_column(change, self.folder.prefix, name)
        write_leaves(change, place, storage, blocks)
        self._new[name] = storage, new.attrs

    def stage_columns(self, change: Change, names: list[str]) -> None:
        """Let `change` set the columns and their order."""
        storages = self._storages()
        storages |= {name: storage for name, (storage, _) in self._new.items()}
        content = encode_columns({name: storages[name] for name in names})
        change.stage(self.folder.full(STORAGE), content)
        attributes = self.column_attributes()
        attributes |= {name: attrs for name, (_, attrs) in self._new.items()}
        kept = {name: attributes.get(name, {}) for name in names}
        change.stage(self.folder.full(COLUMNS), encode_attributes(kept))

    def columns_committed(self, names: list[str]) -> None:
        """Take over the columns of a change that was committed; remove the others."""
        old, opened = self.columns, {}
        added = {name: self._new[name][0] for name in names if name in self._new}
        self._new.clear()
        opened = self._open(added)
        self.columns = {name: opened.get(name) or old[name] for name in names}
        for name in set(old) - set(names):
            path = self.folder.path(column_folder(name))
            if os.path.isdir(path):
                remove_tree(path)


def column_folder(name: str) -> str:
    """Return the name of the folder of a column, relative to the table."""
    return "%s/%s" % (DATA, encode_name(name))


def _make_column(change: Change, prefix: str, name: str) -> str:
    """Make the folder of a column; return its name in the dataset, with a slash."""
    place = prefix + column_folder(name)
    change.make_folder(place)
    return place + "/"


def encode_columns(storages: Mapping[str, Storage]) -> bytes:
    """Return the description of a table."""
    columns: list[Json] = [
        {"name": name, **storage.encode()} for name, storage in storages.items()
    ]
    return encode_json({"superchunk": VERSION, "kind": "table", "columns": columns})


def _decode_column(stored: Json) -> tuple[str, Storage]:
    name = stored.get("name") if isinstance(stored, dict) else None
    if not isinstance(name, str) or not name:
        refuse("the name of a column", name)
    return name, decode_storage(stored)
