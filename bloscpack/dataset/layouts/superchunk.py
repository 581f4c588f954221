"""The layout ``superchunk``, the one that Bloscpack's header was designed for.

::

    ROOT/meta/sizes             shape, plain and compressed size
    ROOT/meta/storage           dtype, sizes of chunks and files, settings of Blosc
    ROOT/meta/attributes        attributes of users
    ROOT/meta/columns           attributes of the columns of a table
    ROOT/data/__1__.bin …       superchunks: files of chunks, each a `.blp` file
    ROOT/data/FIELD/__1__.bin   the same for an item with fields, nested to any depth
    ROOT/data/COLUMN/…          the files of a column of a table

``meta/sizes`` has the number of rows, and is replaced last (docs/format.rst,
Superchunks).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from copy import copy
from functools import partial

from ..._arrays.reader import Field, Reader
from ..._commit.new_files import Change
from ..._format.array_metadata import MAX_NBYTES, are_lengths, is_whole
from ..._format.dtypes import refuse
from ..._format.grid import Grid, Shape
from ..._format.zarr_metadata import encode_attributes
from ..._storage.base import naming_errors
from ..._types import Json, JsonObject
from ...constants import MAX_DOCUMENT
from ...exceptions import FormatError, Unsupported, UsageValueError
from ...serializers import encode_document
from ..folder import Folder
from .array_files import DescriptionCheck, allocate_checked
from .base import (
    ArrayLayout,
    Blocks,
    FieldChunks,
    NewArray,
    NewColumn,
    NewColumns,
    NodeLayout,
    TableLayout,
)
from .identity import KEY, Identity, check_identity, identified
from .shard_files import ShardFiles
from .superchunk_leaves import (
    DATA,
    VERSION,
    StorageDocument,
    count_cbytes,
    decode_storage,
    encode_name,
    new_storage,
    write_leaves,
)

META = "meta"
STORAGE = "meta/storage"
SIZES = "meta/sizes"
ATTRIBUTES = "meta/attributes"
COLUMNS = "meta/columns"
# Words of the description: one of them remains if the other is damaged.
WORDS = b'"superchunk"', b'"superchunklen"'
TABLE = re.compile(rb'"kind"\s*:\s*"table"')


def detect(folder: Folder) -> str | None:
    """Return ``'array'`` or ``'table'``; None for a folder of another layout."""
    folder.prepare((STORAGE, SIZES))
    if not folder.exists(STORAGE):
        return None
    with suppress(FileNotFoundError):
        try:
            content = folder.detect_document(STORAGE)[0]
        except FormatError:  # also in a damaged document
            content = folder.read(STORAGE, MAX_DOCUMENT)
        if any(word in content for word in WORDS):
            return "table" if TABLE.search(content) else "array"
    return None


# Values in the files


def read_storage(folder: Folder, kind: str | None = None) -> JsonObject:
    """Return the description of a dataset, whose `KEY` is its identity.

    `kind` and version are checked if `kind` is given.
    """
    stored = Documents(folder, None).read(STORAGE)
    if kind is None:
        return stored
    version = stored.get("superchunk")
    if not is_whole(version, VERSION, VERSION):
        raise Unsupported(
            "this version reads superchunks of version '%d', found '%.200s': '%s'"
            % (VERSION, version, folder.path(STORAGE))
        )
    if stored.get("kind") != kind:
        refuse("'kind' to be '%s'" % kind, stored.get("kind"))
    return stored


class Documents:
    """The documents of a dataset, which state its identity; None until it is known."""

    def __init__(self, folder: Folder, identity: str | None) -> None:
        self.folder = folder
        self.identity = identity

    def read(self, name: str) -> JsonObject:
        """Return the object in a document.

        Raises `FormatError` if the file is missing, damaged, or not of this dataset.
        """
        check = partial(check_identity, expected=self.identity)
        with naming_errors(self.folder.path(name)):
            return self.folder.read_description(name, check)

    def encode(self, document: JsonObject) -> bytes:
        """Return the content of a document."""
        assert self.identity is not None
        return identified(document, Identity(self.identity), encode_document)

    def read_attributes(self, name: str = ATTRIBUTES) -> JsonObject:
        """Return the attributes in a document."""
        found = self.read(name).get(name.rpartition("/")[2])
        if not isinstance(found, dict):
            refuse("the attributes", found)
        return found

    def encode_attributes(self, values: JsonObject, name: str = ATTRIBUTES) -> bytes:
        """Return the content of a document of attributes."""
        assert self.identity is not None
        encode = partial(encode_attributes, values)
        document = {name.rpartition("/")[2]: values}
        return identified(document, Identity(self.identity), encode)

    def read_length(self, inner: tuple[int, ...] = ()) -> int:
        """Return the number of rows, which have the shape `inner`."""
        shape = self.read(SIZES).get("shape")
        if not are_lengths(shape) or not shape or tuple(shape[1:]) != inner:
            with naming_errors(self.folder.path(SIZES)):
                refuse("'shape' to be a number of rows, and %s" % (inner,), shape)
        return shape[0]

    def encode_sizes(self, shape: tuple[int, ...], nbytes: int, cbytes: int) -> bytes:
        """Return the content of the sizes file."""
        return self.encode({"shape": list(shape), "nbytes": nbytes, "cbytes": cbytes})


# Arrays


class SuperchunkNode(NodeLayout):
    """An array or a table, with its documents."""

    _documents: Documents

    def read_attributes(self) -> JsonObject:
        """Return the attributes in the file."""
        return self._documents.read_attributes()

    def stage_attributes(self, change: Change, values: JsonObject) -> None:
        """Let `change` replace all attributes."""
        content = self._documents.encode_attributes(values)
        change.stage(self.folder.full(ATTRIBUTES), content)


class SuperchunkArray(SuperchunkNode, ArrayLayout):
    """An array in superchunks."""

    name = "superchunk"
    description_files: tuple[str, ...] = (STORAGE, SIZES, ATTRIBUTES)
    by_field = True
    is_column = False  # a column has no documents of its own: see `SuperchunkColumn`

    def __init__(self, folder: Folder, *, allow_pickle: bool = False) -> None:
        self.folder = folder
        self._check = DescriptionCheck(folder, STORAGE)
        with naming_errors(folder.path(STORAGE)):
            stored = read_storage(folder, self.kind)
            self.storage = decode_storage(stored)
        self.storage.identity = stored[KEY]
        self._documents = Documents(folder, self.storage.identity)
        self._check.expect(folder.path(), partial(read_storage, folder), stored)
        with naming_errors(folder.path(SIZES)):
            self._take(self._documents.read_length(self.storage.inner))

    def _take(self, length: int) -> None:
        """Read from the files of this number of rows from now on."""
        storage = self.storage
        self.dtype = storage.dtype
        self.shape = (length, *storage.inner)
        nbytes = math.prod(n or 1 for n in self.shape) * self.dtype.itemsize
        if nbytes > MAX_NBYTES:
            refuse("at most '%d' bytes" % MAX_NBYTES, nbytes)
        self.fill_value = storage.fill_value
        self.grid = Grid.of_rows(self.shape, storage.chunk_rows, storage.slots)
        self.chunks = (storage.chunk_rows, *storage.inner)
        self.shards = (storage.chunk_rows * storage.slots, *storage.inner)
        # No methods of this object: a cycle would keep the files open.
        data, check = self.data_folder, self._check
        shardings = [storage.sharding_of(leaf, length) for leaf in storage.leaves]
        self._sources = [
            ShardFiles(data, each, check_description=check) for each in shardings
        ]
        allocate = partial(allocate_checked, self._sources)
        fields = [
            Field(leaf.fields, source, leaf.dtype, leaf.shape)
            for leaf, source in zip(storage.leaves, self._sources, strict=True)
        ]
        self.reader = Reader(fields, self.dtype, self.shape, allocate=allocate)

    @property
    def data_folder(self) -> Folder:
        """The folder of the shards."""
        return self.folder.child(DATA)

    def parts(self) -> list[FieldChunks]:
        """Return where the chunks are, by the fields of an item."""
        fields = (leaf.fields for leaf in self.storage.leaves)
        return list(zip(fields, self._sources, strict=True))

    def new_array(self) -> NewArray:
        """Return what a copy of this array must be, apart from its attributes."""
        storage = self.storage
        return NewArray(
            *(storage.dtype, self.shape, storage.chunk_rows, storage.fill_value),
            settings=storage.settings,
            shards=storage.chunk_rows * storage.slots,
        )

    # Writing

    @classmethod
    def grid_for(cls, new: NewArray) -> Grid:
        """Return how a new array is cut; raise `UsageError` if it can't be."""
        storage = new_storage(new)
        return Grid.of_rows(new.shape, storage.chunk_rows, storage.slots)

    @classmethod
    def create(cls, change: Change, prefix: str, new: NewArray, blocks: Blocks) -> None:
        """Write a new array to the folder `prefix` of the dataset of `change`."""
        storage = new_storage(new)
        documents = Documents(Folder(change.store), storage.identity)
        head = {"superchunk": VERSION, "kind": cls.kind}
        content = documents.encode({**head, **storage.encode()})
        attributes = documents.encode_attributes(new.attrs)
        for name in (prefix.rstrip("/"), prefix + META, prefix + DATA):
            if name:
                change.make_folder(name)
        written = write_leaves(change, prefix + DATA + "/", storage, blocks)
        nbytes = math.prod(new.shape) * storage.dtype.itemsize
        sizes = documents.encode_sizes(new.shape, nbytes, sum(written.values()))
        change.write(prefix + STORAGE, content)
        change.write(prefix + ATTRIBUTES, attributes)
        change.write(prefix + SIZES, sizes)

    def stage(
        self,
        change: Change,
        grid: Grid,
        blocks: Blocks,
        shape: Callable[[], Shape] | None = None,
        *,
        extends: bool,
    ) -> None:
        """Let `change` write chunks, and set the number of rows."""
        data, old = self.data_folder, (self._sources, grid.shape[0])
        written = write_leaves(
            change, data.prefix, self.storage, blocks, *old, at_once=extends
        )
        nrows = (grid.shape if shape is None else shape())[0]
        cbytes = count_cbytes(data, self.storage, nrows, written)
        self.stage_sizes(change, nrows, cbytes)

    def stage_sizes(self, change: Change, length: int, cbytes: int) -> None:
        """Let `change` set the number of rows."""
        shape = (length, *self.storage.inner)
        nbytes = math.prod(shape) * self.dtype.itemsize
        sizes = self._documents.encode_sizes(shape, nbytes, cbytes)
        change.stage(self.folder.full(SIZES), sizes)

    def committed(self, shape: Shape) -> None:
        """Take over the shape of a change that was committed."""
        self.close_files()
        self._take(shape[0])


# Tables


class TableDocuments(Documents):
    """What the columns of a table share: its description, attributes and sizes.

    The table and its columns refer to it, and it to none of them: a cycle would keep
    the files open.

    Attributes
    ----------
    storages
        How the columns are stored, by name.
    """

    def __init__(
        self, folder: Folder, storages: dict[str, StorageDocument], identity: str
    ) -> None:
        super().__init__(folder, identity)
        self.storages = storages
        self._cbytes: dict[str, int] = {}

    def of_columns(self) -> dict[str, JsonObject]:
        """Return the attributes of the columns by name."""
        found = self.read_attributes(COLUMNS)
        for name, attributes in found.items():
            if not isinstance(attributes, dict):
                refuse("the attributes of the column '%.200s'" % name, attributes)
        return found

    def stage_sizes(
        self, change: Change, length: int, column: str, cbytes: int
    ) -> None:
        """Let `change` set the number of rows; `cbytes` is the size of a column."""
        self._cbytes[column] = cbytes
        unknown = self.storages.keys() - self._cbytes.keys()
        old_length = self.read_length() if unknown else 0
        for name in unknown:
            data = self.folder.child(column_folder(name))
            self._cbytes[name] = count_cbytes(data, self.storages[name], old_length)
        nbytes = sum(
            length * math.prod(storage.inner) * storage.dtype.itemsize
            for storage in self.storages.values()
        )
        total = sum(self._cbytes[name] for name in self.storages)
        sizes = self.encode_sizes((length,), nbytes, total)
        change.stage(self.folder.full(SIZES), sizes)

    def forget(self, name: str) -> None:
        """Forget a column that was removed."""
        self._cbytes.pop(name, None)


class SuperchunkColumn(SuperchunkArray):
    """A column of a table, which has its description."""

    description_files = ()

    def __init__(
        self, table: TableDocuments, name: str, length: int, check: DescriptionCheck
    ) -> None:
        self.folder = table.folder.child(column_folder(name))
        self.storage = table.storages[name]
        self._table = table
        self._column = name
        self._check = check
        read = partial(_read_column, table.folder, name)
        check.expect(self.folder.path(), read, _encode_column(self.storage))
        self._take(length)

    @property
    def data_folder(self) -> Folder:
        """The folder of the shards."""
        return self.folder

    def read_attributes(self) -> JsonObject:
        """Return the attributes in the file."""
        return self._table.of_columns().get(self._column, {})

    def stage_attributes(self, change: Change, values: JsonObject) -> None:
        """Let `change` replace all attributes."""
        found = {**self._table.of_columns(), self._column: values}
        content = self._table.encode_attributes(found, COLUMNS)
        change.stage(self._table.folder.full(COLUMNS), content)

    def __reduce__(self) -> tuple[object, ...]:
        """Return what opens it again, in any process."""
        return _column_of, (self._table.folder, self._column)

    def stage_sizes(self, change: Change, length: int, cbytes: int) -> None:
        """Let `change` set the number of rows of the table."""
        self._table.stage_sizes(change, length, self._column, cbytes)


def _column_of(folder: Folder, name: str) -> ArrayLayout:
    return SuperchunkTable(folder).columns[name]


class SuperchunkTable(SuperchunkNode, TableLayout):
    """A table whose columns are superchunks."""

    name = "superchunk"
    description_files = (STORAGE, SIZES, ATTRIBUTES, COLUMNS)
    _documents: TableDocuments
    array_class = SuperchunkArray

    def __init__(self, folder: Folder, *, allow_pickle: bool = False) -> None:
        self.folder = folder
        self._new: dict[str, tuple[StorageDocument, JsonObject]] = {}
        before = DescriptionCheck(folder, STORAGE)
        with naming_errors(folder.path(STORAGE)):
            storages, identity = _read_columns(folder)
        self._documents = TableDocuments(folder, storages, identity)
        self.columns = self._open(storages, before)

    def _open(
        self, names: Iterable[str], check: DescriptionCheck
    ) -> dict[str, ArrayLayout]:
        """Return columns; `check` was made before their description was read."""
        length = self._documents.read_length()
        with naming_errors(self.folder.path(SIZES)):
            return {
                name: SuperchunkColumn(self._documents, name, length, copy(check))
                for name in names
            }

    # Writing

    @classmethod
    def create(cls, change: Change, columns: NewColumns, attrs: JsonObject) -> None:
        """Write a new table to the folder of `change`."""
        storages = {name: new_storage(new) for name, (new, _) in columns.items()}
        documents = Documents(Folder(change.store), Identity().name)
        attributes = documents.encode_attributes(attrs)
        of_columns = {name: new.attrs for name, (new, _) in columns.items()}
        for name in (META, DATA):
            change.make_folder(name)
        nbytes = cbytes = length = 0
        for name, (new, blocks) in columns.items():
            column_prefix = _make_column(change, "", name)
            written = write_leaves(change, column_prefix, storages[name], blocks)
            cbytes += sum(written.values())
            nbytes += math.prod(new.shape) * storages[name].dtype.itemsize
            length = new.shape[0]
        change.write(STORAGE, encode_columns(storages, documents))
        change.write(ATTRIBUTES, attributes)
        change.write(COLUMNS, documents.encode_attributes(of_columns, COLUMNS))
        change.write(SIZES, documents.encode_sizes((length,), nbytes, cbytes))

    @classmethod
    def check_column_name(cls, name: str) -> None:
        """Raise `UsageError` if no folder can have the name of a column."""
        if not isinstance(name, str) or not name:
            raise UsageValueError(
                "the name of a column must be text, not %.200r" % (name,)
            )
        encode_name(name)

    def create_column(self, change: Change, name: str, column: NewColumn) -> None:
        """Write a column, which the table does not have before `stage_columns`."""
        new, blocks = column
        storage = new_storage(new)
        column_prefix = column_folder(name)
        if name not in self.columns:
            self.folder.remove_tree(column_prefix)  # of a column that was removed
        column_prefix = _make_column(change, self.folder.prefix, name)
        write_leaves(change, column_prefix, storage, blocks)
        self._new[name] = storage, new.attrs

    def stage_columns(self, change: Change, names: list[str]) -> None:
        """Let `change` set the columns and their order."""
        storages = self._with_new()
        documents = self._documents
        content = encode_columns({name: storages[name] for name in names}, documents)
        change.stage(self.folder.full(STORAGE), content)
        attributes = documents.of_columns()
        attributes |= {name: attrs for name, (_, attrs) in self._new.items()}
        kept = {name: attributes.get(name, {}) for name in names}
        content = documents.encode_attributes(kept, COLUMNS)
        change.stage(self.folder.full(COLUMNS), content)

    def _with_new(self) -> dict[str, StorageDocument]:
        """Return how all columns are stored, also those that are being added."""
        new = {name: storage for name, (storage, _) in self._new.items()}
        return self._documents.storages | new

    def columns_committed(self, names: list[str]) -> None:
        """Take over the columns of a change that was committed; remove the others."""
        check = DescriptionCheck(self.folder, STORAGE)
        storages = self._with_new()
        for name in self._new:
            self._documents.forget(name)
        self._new.clear()
        self._documents.storages = {name: storages[name] for name in names}
        old = self.columns
        opened = self._open([name for name in names if name not in old], check)
        self.columns = {name: opened.get(name) or old[name] for name in names}
        for name in set(old) - set(names):
            self._documents.forget(name)
            self.folder.remove_tree(column_folder(name))


def column_folder(name: str) -> str:
    """Return the name of the folder of a column, relative to the table."""
    return "%s/%s" % (DATA, encode_name(name))


def _make_column(change: Change, prefix: str, name: str) -> str:
    """Make the folder of a column; return its name in the dataset, with a slash."""
    column_prefix = prefix + column_folder(name)
    change.make_folder(column_prefix)
    return column_prefix + "/"


def encode_columns(
    storages: Mapping[str, StorageDocument], documents: Documents
) -> bytes:
    """Return the description of a table."""
    columns = [{"name": n, **_encode_column(each)} for n, each in storages.items()]
    head = {"superchunk": VERSION, "kind": "table"}
    return documents.encode({**head, "columns": columns})


def _encode_column(storage: StorageDocument) -> JsonObject:
    return {**storage.encode(), "id": storage.identity}


def _read_columns(folder: Folder) -> tuple[dict[str, StorageDocument], str]:
    """Return how the columns of a table are stored now, and its identity."""
    document = read_storage(folder, SuperchunkTable.kind)
    stored = document.get("columns")
    if not isinstance(stored, list) or not stored:
        refuse("'columns' to be a list of columns", stored)
    storages = dict(map(_decode_column, stored))
    if len(storages) < len(stored):
        refuse("'columns' to have different names", list(storages))
    return storages, document[KEY]


def _read_column(folder: Folder, name: str) -> JsonObject | None:
    """Return how a column is stored in the file now; None if it is not there."""
    storage = _read_columns(folder)[0].get(name)
    return None if storage is None else _encode_column(storage)


def _decode_column(stored: Json) -> tuple[str, StorageDocument]:
    name = stored.get("name") if isinstance(stored, dict) else None
    if not isinstance(name, str) or not name:
        refuse("the name of a column", name)
    storage, identity = decode_storage(stored), stored.get("id")
    if not isinstance(identity, str):
        refuse("an 'id' of each column", [name])
    storage.identity = identity
    return name, storage
