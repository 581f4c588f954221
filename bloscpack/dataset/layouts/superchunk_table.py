"""The tables of the layout ``superchunk``: a folder for the files of each column."""

from __future__ import annotations

import math

from ...exceptions import FormatError, UsageValueError
from ..folder import encode_attributes, encode_json
from .base import ArrayLayout, TableLayout
from .superchunk import (
    ATTRIBUTES,
    COLUMNS,
    META,
    SIZES,
    STORAGE,
    SuperchunkArray,
    encode_sizes,
    read_attributes,
    read_length,
    read_storage,
    write_leaves,
)
from .superchunk_storage import (
    DATA,
    VERSION,
    Storage,
    decode_storage,
    encode_name,
    new_storage,
    refuse,
)

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...serializers import Json, JsonObject
    from ..change import Change
    from ..folder import Folder
    from .base import NewColumn


class SuperchunkColumn(SuperchunkArray):
    """A column of a table, which has its description."""

    data = ""
    description_files = ()

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

    def __reduce__(self) -> tuple[object, ...]:
        """Return what opens it again, in any process."""
        return _column_of, (self._table, self._column)

    def stage_sizes(self, change: Change, length: int, cbytes: int) -> None:
        """Let `change` set the number of rows of the table."""
        self._table.stage_sizes(change, length, self._column, cbytes)


def _column_of(table: SuperchunkTable, name: str) -> ArrayLayout:
    return table.columns[name]


class SuperchunkTable(TableLayout):
    """A table whose columns are superchunks."""

    name = "superchunk"
    description_files = (STORAGE, SIZES, ATTRIBUTES, COLUMNS)
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
        self.folder.remove_tree(place)  # of a column that was removed
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
            self.folder.remove_tree(column_folder(name))


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
