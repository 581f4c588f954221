"""The tables of the layout ``superchunk``: a folder for the files of each column."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from copy import copy
from functools import partial
from typing import TYPE_CHECKING

from ..._format.dtypes import refuse
from ..._storage.base import naming_errors
from ...exceptions import UsageValueError
from ..change import Change
from ..folder import Folder
from .array_files import DescriptionCheck
from .base import ArrayLayout, TableLayout
from .identity import KEY, Identity
from .superchunk import (
    ATTRIBUTES,
    COLUMNS,
    META,
    SIZES,
    STORAGE,
    Documents,
    SuperchunkArray,
    SuperchunkNode,
    count_cbytes,
    read_storage,
    write_leaves,
)
from .superchunk_documents import (
    DATA,
    VERSION,
    Storage,
    decode_storage,
    encode_name,
    new_storage,
)

if TYPE_CHECKING:
    from ...serializers import Json, JsonObject
    from .base import NewColumn


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
        self, folder: Folder, storages: dict[str, Storage], identity: str | None
    ) -> None:
        super().__init__(folder, identity)
        self.storages = storages
        self._cbytes: dict[str, int] = {}

    def of_columns(self) -> dict[str, JsonObject]:
        """Return the attributes of the columns by name."""
        found = self.read_attributes(COLUMNS)
        return {name: value for name, value in found.items() if isinstance(value, dict)}

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
        self._new: dict[str, tuple[Storage, JsonObject]] = {}
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
    def create(
        cls, change: Change, columns: Mapping[str, NewColumn], attrs: JsonObject
    ) -> None:
        """Write a new table to the folder of `change`."""
        storages = {name: new_storage(new) for name, (new, _) in columns.items()}
        documents = Documents(change.folder, Identity().name)
        attributes = documents.encode_attributes(attrs)
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
        place = column_folder(name)
        self.folder.remove_tree(place)  # of a column that was removed
        place = _make_column(change, self.folder.prefix, name)
        write_leaves(change, place, storage, blocks)
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

    def _with_new(self) -> dict[str, Storage]:
        """Return how all columns are stored, also those that are being added."""
        new = {name: storage for name, (storage, _) in self._new.items()}
        return self._documents.storages | new

    def columns_committed(self, names: list[str]) -> None:
        """Take over the columns of a change that was committed; remove the others."""
        check = DescriptionCheck(self.folder, STORAGE)
        storages = self._with_new()
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
    place = prefix + column_folder(name)
    change.make_folder(place)
    return place + "/"


def encode_columns(storages: Mapping[str, Storage], documents: Documents) -> bytes:
    """Return the description of a table."""
    columns: list[Json] = [
        {"name": name, **_encode_column(storage)} for name, storage in storages.items()
    ]
    head = {"superchunk": VERSION, "kind": "table"}
    return documents.encode({**head, "columns": columns})


def _encode_column(storage: Storage) -> JsonObject:
    own = {} if storage.identity is None else {"id": storage.identity}
    return {**storage.encode(), **own}


def _read_columns(folder: Folder) -> tuple[dict[str, Storage], str | None]:
    """Return how the columns of a table are stored, according to the file now.

    The identity of the table follows.
    """
    document = read_storage(folder, SuperchunkTable.kind)
    stored = document.get("columns")
    if not isinstance(stored, list) or not stored:
        refuse("'columns' to be a list of columns", stored)
    storages = dict(map(_decode_column, stored))
    if len(storages) < len(stored):
        refuse("'columns' to have different names", list(storages))
    return storages, document.get(KEY)


def _read_column(folder: Folder, name: str) -> JsonObject | None:
    """Return how a column is stored in the file now; None if it is not there."""
    storage = _read_columns(folder)[0].get(name)
    return None if storage is None else _encode_column(storage)


def _decode_column(stored: Json) -> tuple[str, Storage]:
    name = stored.get("name") if isinstance(stored, dict) else None
    if not isinstance(name, str) or not name:
        refuse("the name of a column", name)
    storage, identity = decode_storage(stored), stored.get("id")
    storage.identity = identity if isinstance(identity, str) else None
    return name, storage
