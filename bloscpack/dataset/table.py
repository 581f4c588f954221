"""A table in a folder: `Table`, for every layout."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy

from .. import exceptions, log
from .._arrays.selection import is_names
from .._commit.tree import Tree
from .._commit.writer import Block, Writer
from .._compat import import_extra
from .._format.dtypes import Array as Items
from .._format.dtypes import DType, Key
from .._format.names import NoSuchName
from .._format.text import TEXT
from .._types import Json, JsonObject
from ..log import counted
from . import frames
from .array import Array
from .arrow_arrays import metadata_of
from .changed_blocks import blocks_of
from .columns import (
    MASK_NAME,
    MASK_OF,
    all_columns,
    check_different,
    columns_with_missing,
    masks_of,
    named_columns,
    naming_column,
    with_masks,
)
from .items import checked_shape, items_of
from .labels import given_attrs
from .layouts.base import NewArray, NewColumn, TableLayout
from .node import ItemsNode, Opened, Result, View, import_dask, one_call
from .rows import append_rows, as_columns

if TYPE_CHECKING:
    import pyarrow
    from pandas import DataFrame

Read = Callable[[Mapping[str, frames.MaskedColumn], "slice | Items"], Result]

BOOL = numpy.dtype("?")
# Kinds of items, other than text, that are objects in a DataFrame.
DASK_OBJECTS = "SV"
MASK_STAYS = (
    "the column '%s' says which items of '%s' are missing: its name is made from the "
    "name of that column"
)


class Columns(Mapping[str, Array]):
    """The columns of a table, by name and by position."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def __getitem__(self, key: str | int) -> Array:
        columns = self._table._columns
        if isinstance(key, str):
            return columns[key]
        return list(columns.values())[operator.index(key)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._table._columns)

    def __len__(self) -> int:
        return len(self._table._columns)

    def __repr__(self) -> str:
        return "<Columns %s>" % ", ".join(self)


class Table(ItemsNode):
    """Columns of the same length in a folder; `open_table` makes it.

    ``table['name']`` is a column, an `Array`, and ``table[['name', 'other']]`` a
    `Selection` of columns. ``table[5]`` is a row, and ``table[2:8]`` and other indexes
    are rows as a structured array.

    Attributes
    ----------
    path
        The folder.
    layout
        The name of the layout.
    """

    _next_number = 0  # the first index of the next part of a DataFrame

    @property
    def columns(self) -> Columns:
        """The columns by name; the mapping takes positions, too."""
        return Columns(self)

    @property
    def _columns(self) -> dict[str, Array]:
        """The columns by name: a dictionary that is replaced, and never changed."""
        view = self._now.view
        if view.columns is None:
            made = _made_of(view.layout, {}, view.writer)
            vars(view).setdefault("columns", made)
        columns: dict[str, Array] = view.columns
        return columns

    def _open_draft(self, block: Block) -> Opened:
        draft = super()._open_draft(block)
        view, known = draft.view, self._opened.view.columns or {}
        columns = view.layout.columns
        for name, layout in columns.items():  # a column may be open without its table
            columns[name] = block.layouts.setdefault(layout.folder.prefix, layout)
        view.columns = _made_of(view.layout, known, view.writer)
        return draft

    def _settle(self, block: Block, draft: Opened, tree: Tree) -> None:
        super()._settle(block, draft, tree)
        if not block.change.is_committed or self._opened.closed:
            return
        for column in draft.view.columns.values():
            column._opened.view.values = {}
        self._take_layout(self._layout)

    # Description

    @property
    def names(self) -> list[str]:
        """The names of the columns, in order."""
        return list(self._columns)

    @property
    def dtype(self) -> DType:
        """The type of a row, with a field for each column."""
        fields = [(n, c.dtype, c.shape[1:]) for n, c in self._columns.items()]
        return numpy.dtype(fields)

    @property
    def shape(self) -> tuple[int]:
        """The number of rows, as a tuple.

        If columns have different lengths, which an interrupted writer of bcolz may
        leave, these are the rows that all columns have.
        """
        return (min((len(column) for column in self._columns.values()), default=0),)

    @property
    def cbytes(self) -> int:
        """Size in bytes of the files that hold the items."""
        return sum(column.cbytes for column in self._columns.values())

    @property
    def nchunks(self) -> int:
        """Number of chunks of all columns."""
        return sum(column.nchunks for column in self._columns.values())

    def _all_columns(self) -> dict[str, Array]:
        return self._columns

    def _masks(self) -> dict[str, str]:
        return masks_of(self._all_columns())

    @property
    def closed(self) -> bool:
        """Whether the table was closed."""
        known = self._now.view.columns or {}  # those of which there are objects
        return super().closed or any(column.closed for column in known.values())

    def __repr__(self) -> str:
        counts = counted(len(self), "row"), counted(len(self._columns), "column")
        title = "<%s: %s, %s>" % (self._title(), *counts)
        try:
            return "\n".join([title, *frames.shown_rows(self._columns, len(self))])
        except (exceptions.BloscpackError, OSError):  # closed or damaged
            return "%s\ncolumns: %s" % (title, ", ".join(self._columns))

    # Closing and opening again

    def _take_layout(self, layout: TableLayout, writer: Writer | None = None) -> None:
        """Take over these files; make objects for new columns, and keep the others.

        Those of removed columns are closed when the table does not have them any more:
        a table with a closed column is closed, and another thread would open it again.
        """
        now, old = self._now, self._columns
        if self._block is not None:
            inside = layout.columns.values()
            self._block.layouts.update({each.folder.prefix: each for each in inside})
        new = _made_of(layout, old, writer or now.view.writer)
        for name, column in new.items():
            if column._layout is not layout.columns[name]:
                column._take_layout(layout.columns[name], writer)
        view = View(writer or now.view.writer, layout.folder, now.view.open, layout)
        view.columns = new
        now.view = view
        for name in old.keys() - new.keys():
            old[name]._now.close(is_retired=True)

    # Reading

    def __getitem__(self, key: Key) -> Any:
        """Return a column, a row, or rows as a structured array.

        Parameters
        ----------
        key
            The name of a column; a list of names; the number of a row; a slice; an
            array of row numbers; or an array of booleans, such as
            ``table['volume'][:] > 0``. A list of names selects columns, and an index
            of the result rows of these.

        Raises
        ------
        KeyError
            If there is no column of this name.
        IndexError
            If there is no such row.
        FormatError
            If a chunk that holds some of the items is damaged or missing.
        """
        if isinstance(key, str):
            if key not in self._columns:
                raise NoSuchName(key, self.path, self._columns.keys)
            return self._columns[key]
        if isinstance(key, list) and is_names(key):
            return Selection(self, key)
        return self._read(lambda: frames.read_rows(self._columns, len(self), key))

    def to_pandas(
        self, columns: Sequence[str] | None = None, rows: object = None
    ) -> DataFrame:
        """Return the table as a DataFrame with its attributes; this needs pandas.

        Bytes and text become objects of Python. Integers, booleans and text with
        missing items get them back, and their masks are left out.

        Parameters
        ----------
        columns
            The names of the columns to read; by default all.
        rows
            A slice, row numbers or booleans; by default all rows. The index of the
            DataFrame numbers the rows that are read.

        Raises
        ------
        UsageError
            If a column has several axes, or if pandas is not installed.
        """
        frame = self._read_all("pandas", frames.read_frame, columns, rows)
        frame.attrs = dict(self.attrs)
        return frame

    def to_arrow(
        self, columns: Sequence[str] | None = None, rows: object = None
    ) -> pyarrow.Table:
        """Return the table as one of Arrow, with the attributes as metadata.

        This needs pyarrow. The parameters are those of `to_pandas`.
        """
        table = self._read_all("pyarrow", frames.read_arrow, columns, rows)
        return table.replace_schema_metadata(metadata_of(dict(self.attrs)))

    def _read_all(
        self, package: str, read: Read[Result], names: Sequence[str] | None, rows: Any
    ) -> Result:
        """Return what `read` returns for columns with their masks, and rows."""
        import_extra(package, "tables")

        def from_files() -> Result:
            key = slice(None) if rows is None else rows
            key = frames.in_all_columns(key, len(self))[0]
            return read(self._with_masks(names), key)

        return self._read(from_files)

    @property
    def _has_parts(self) -> bool:
        return True

    def _check_rows(self) -> None:
        for column in islice(self._columns.values(), 1):  # all have the same rows
            column._check_rows()

    def _with_masks(
        self, names: Sequence[str] | None
    ) -> dict[str, tuple[Array, Array | None]]:
        """Return columns with their masks, which are left out if all are returned."""
        columns, masks = self._all_columns(), self._masks()
        if names is None:
            names = [name for name in self._columns if name not in masks.values()]
        elif isinstance(names, str):
            names = [names]
        for name in names:
            if name not in columns:
                raise NoSuchName(name, self.path, columns.keys)
        return {
            name: (columns[name], columns.get(masks.get(name, ""))) for name in names
        }

    def to_dask(self, rows: int | None = None, columns: list[str] | None = None) -> Any:
        """Return the table as a DataFrame of Dask.

        Parameters
        ----------
        rows
            Number of rows of a partition; by default that of a shard, of the column
            whose shards have the fewest.
        columns
            The names of the columns; by default all.

        Raises
        ------
        UsageError
            If Dask is not installed, if a column has several axes, or within a block
            of ``group.change()``.
        """
        return self._read(lambda: self._to_dask(rows, columns), "tasks")

    def _to_dask(self, rows: int | None, columns: list[str] | None) -> object:
        dd = import_dask("dask.dataframe")
        names = list(self._with_masks(columns))
        if rows is None:
            rows = min((self[n].shards or self[n].chunks)[0] for n in names)
        if rows < 1:
            raise exceptions.UsageError(
                "a partition must have at least one row, not '%d'" % rows
            )
        count = len(self)
        starts = list(range(0, count, rows)) or [0]
        settings = {}
        has_text = self._layout.array_class.has_text
        objects = DASK_OBJECTS if has_text else DASK_OBJECTS + "O"
        if any(self[name].dtype.kind in objects for name in names):
            # Dask would decode bytes, as it converts objects to text.
            settings = {"dataframe.convert-string": False}
        with import_dask("dask").config.set(settings):
            return dd.from_map(
                read_partition,
                starts,
                table=self,
                rows=rows,
                columns=names,
                meta=read_partition(0, self, 0, names),
                divisions=(*starts, count - 1) if count else (None, None),
                label="bloscpack-table",
            )

    # Changing

    @one_call
    def append(self, rows: object) -> None:
        """Append rows. When this returns, they are in the files, in all columns.

        In a table opened with ``buffered=True``, they may wait in memory. Until they
        are written, the table does not have them.

        Parameters
        ----------
        rows
            A structured array, a dictionary of columns, a table or a DataFrame, as for
            `create_table`, with the same names; or a sequence of columns in the order
            of `names`. Columns that are not in memory are read in slices.

        Raises
        ------
        UsageError
            If the rows don't fit, or if the table was opened for reading.
        """
        writer = self._check_writer()
        buffer = writer.buffer_of(self._part)
        waiting = 0 if buffer is None else buffer.nrows
        starts = 0, len(self) + waiting, self._next_number
        given = frames.columns_of(rows, starts)
        given = rows.columns if isinstance(rows, Table) else given
        types = {n: (c.dtype, c.shape[1:]) for n, c in self._columns.items()}
        given, added = self._with_masks_for(given, self.names)
        types.update((mask, (BOOL, ())) for mask in added.values())
        streams = as_columns(given, types, {**self._masks(), **added})
        self._add_masks(added)
        new = {self._columns[n]._layout: stream for n, stream in streams.items()}
        some = any(stream.length for stream in new.values())
        part = self._part
        if some and not writer.buffered(part, lambda waits: waits.put(writer, new)):
            append_rows(writer, new)
        self._next_number = frames.next_number(rows)

    def _with_masks_for(
        self, rows: object, names: list[str]
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Return rows by columns, and the columns of text that need a new mask.

        The latter are names of columns and of their masks.
        """
        given = columns_with_missing(named_columns(rows, names))
        need = [
            name
            for name in self._columns.keys() - self._masks()
            if self[name].dtype == TEXT and numpy.ma.is_masked(given.get(name))
        ]
        return given, {name: MASK_NAME % name for name in need}

    def _add_masks(self, masks: Mapping[str, str]) -> None:
        """Add columns which say that no item of another column is missing."""
        if masks:
            self._check_writer().flush()
        for name, mask in masks.items():
            self.add_column(
                mask,
                numpy.zeros(len(self), BOOL),
                position=self.names.index(name) + 1,
                attrs={MASK_OF: name},
            )

    @one_call
    def resize(self, length: int) -> None:
        """Set the number of rows: remove the last rows, or add rows of fill values."""
        writer = self._check_writer()
        (rows,) = checked_shape(length)
        with writer.change(lambda: self._committed(rows)) as change:
            for column in self._columns.values():
                column._stage_resize(change, (rows, *column.shape[1:]))

    def _committed(self, length: int) -> None:
        for column in self._columns.values():
            column._resized((length, *column.shape[1:]))

    def _make_equal(self) -> None:
        """Remove the rows that not all columns have, after a writer was interrupted."""
        lengths = {len(column) for column in self._columns.values()}
        if len(lengths) > 1:
            log.notice(
                "'%s': the columns had different lengths; rows that not all columns "
                "have are removed" % self.path
            )
            self.resize(len(self))

    @one_call
    def __setitem__(self, key: Key, rows: object) -> None:
        """Assign to rows, or to all items of the column that `key` names.

        Parameters
        ----------
        key
            The name of a column, or an index of rows, as for reading.
        rows
            For a column, its items; for rows, a structured array, a dictionary of all
            columns or a sequence of columns. In a crash, all of them change, or none.
        """
        writer = self._check_writer()
        if isinstance(key, tuple):
            raise IndexError("a table has one axis: expected one index, found a tuple")
        writer.flush_rows(self._part)
        if isinstance(key, str):
            if key not in self._columns:
                raise KeyError("no column '%s': add_column adds one" % key)
            rows = {key: rows}
        rows, added = self._with_masks_for(rows, self.names)
        self._add_masks(added)
        columns, masks = self._columns, self._masks()
        if isinstance(key, str):
            columns = {n: self[n] for n in (key, masks.get(key)) if n is not None}
            key = slice(None)
        values = all_columns(rows, list(columns), masks)
        given = {n: c._selected(key, values[n]) for n, c in columns.items()}
        waiting = {columns[name]._layout: given[name] for name in columns}
        part = self._part
        if writer.buffered(part, lambda waits: waits.assign(writer, waiting), "keep"):
            return
        with writer.change(lambda: self._committed(len(self))) as change:
            for name, column in columns.items():
                column._stage_items(change, *given[name])

    @one_call
    def add_column(
        self,
        name: str,
        values: object,
        *,
        position: int | None = None,
        chunks: int | None = None,
        shards: int | None = None,
        fill_value: object = None,
        attrs: dict[str, Json] | None = None,
        **settings: object,
    ) -> None:
        """Add a column, and behind it the mask if items are missing.

        Parameters
        ----------
        name
            The name.
        values
            The items, as for `create_table`: as many rows as the table has; a table
            without columns takes any number.
        position
            The number that the column gets; None for the last.
        chunks, shards, fill_value, attrs, settings
            As in `create_array`.
        """
        self._check_writer().flush()
        layout = self._layout
        layout.check_column_name(name)
        given, new = with_masks({name: values}), {}
        self._check_free(given)
        for each, (items, of_mask) in given.items():
            is_mask = each != name
            layout.check_column_name(each)
            rows = items_of(items, keeps_text=layout.array_class.has_text)
            if rows.ndim == 0 or (self._columns and len(rows) != len(self)):
                raise exceptions.DoesNotFit(
                    "expected '%d' rows, found an array of shape %s"
                    % (len(self), rows.shape)
                )
            new[each] = new_column(
                *(type(layout), each, rows),
                of_mask if is_mask else given_attrs(attrs or {}),
                chunks=chunks,
                shards=shards,
                settings=settings,
                fill_value=None if is_mask else fill_value,
            )
        names, at = self.names, position
        at = len(names) if at is None else at
        self._change_columns([*names[:at], *new, *names[at:]], new)

    def _check_free(self, names: Iterable[str]) -> None:
        check_different(list(names))
        for name in names:
            if name in self._columns:
                raise exceptions.UsageValueError("the table has a column '%s'" % name)

    @one_call
    def remove_column(self, name: str) -> None:
        """Remove a column and its files. The last column can't be removed."""
        removed = name, self._masks().get(name)
        names = [other for other in self._columns if other not in removed]
        if name not in self._columns:
            raise NoSuchName(name, self.path, self._columns.keys)
        if not names:
            raise exceptions.UsageValueError("a table must have a column")
        self._change_columns(names, {})

    @one_call
    def rename(self, names: Mapping[str, str]) -> None:
        """Give columns other names, all in one step; their files are copied.

        `names` maps old names to new ones.
        """
        if not isinstance(names, Mapping):
            raise exceptions.UsageTypeError(
                "expected a dictionary by the names of columns, found %.200r" % (names,)
            )
        masks, changed = self._masks(), dict(names)
        for old, new in names.items():
            self._layout.check_column_name(new)
            if old in masks:
                changed.setdefault(masks[old], MASK_NAME % new)
        for name, mask in masks.items():
            if changed.get(mask, mask) != MASK_NAME % changed.get(name, name):
                raise exceptions.UsageValueError(MASK_STAYS % (mask, name))
        self._check_free(changed.values())
        copies = {new: self[old]._copied() for old, new in changed.items()}
        for old in names.keys() & masks.keys():
            copies[changed[masks[old]]][0].attrs[MASK_OF] = names[old]
        self._change_columns([changed.get(n, n) for n in self.names], copies)

    def _change_columns(self, names: list[str], new: Mapping[str, NewColumn]) -> None:
        """Let the table have the columns `names`, of which `new` are written now."""
        layout = self._layout

        def take_over() -> None:
            layout.columns_committed(names)
            self._take_layout(layout)

        with self._check_writer().change(take_over) as change:
            for name, column in new.items():
                layout.create_column(change, name, column)
            layout.stage_columns(change, names)


class Selection(Table):
    """Some columns of a table; ``table[['a', 'b']]`` makes it.

    An index reads rows of these columns only. Changes are made through the table.

    Attributes
    ----------
    table
        The table.
    """

    def __init__(self, table: Table, names: Sequence[str]) -> None:
        vars(self).update(vars(table))
        check_different(list(names))
        self.table = table
        self._names = list(names)
        self._columns  # noqa: B018 - raises the error of a wrong name

    @property
    def _columns(self) -> dict[str, Array]:
        return {name: self.table[name] for name in self._names}

    def _all_columns(self) -> dict[str, Array]:
        return self.table._columns

    def _check_writer(self, call: str = "change") -> Writer:
        raise exceptions.UsageValueError(
            "some columns of a table can only be read: change the table '%s'"
            % self.path
        )

    def refresh(self) -> None:
        """Take over the changes of the table that other programs have committed."""
        self.table.refresh()

    def _follow(self) -> None:
        self.table._follow()

    def close(self) -> None:
        """Do nothing: the table stays open."""

    def __reduce__(self) -> tuple[object, ...]:
        return Selection, (self.table, self.names)


def _made_of(
    layout: TableLayout, known: Mapping[str, Array], writer: Writer | None
) -> dict[str, Array]:
    """Return objects for the columns of a layout: those that are known, or new."""
    return {
        name: known.get(name) or Array(column, writer, is_column=True)
        for name, column in layout.columns.items()
    }


def read_partition(
    start: int, table: Table, rows: int, columns: Sequence[str]
) -> DataFrame:
    """Return rows of a table as a DataFrame that has their numbers as index.

    A task of Dask gets the pickled table, which opens the dataset again.
    """
    frame = table.to_pandas(columns, slice(start, min(start + rows, len(table))))
    frame.index = frame.index + start
    return frame


def new_column(
    layout: type[TableLayout], name: str, rows: Items, attrs: JsonObject, **how: Any
) -> NewColumn:
    """Return a new column and its rows; raise `UsageError` if it can't be written.

    `how` has other parameters of `NewArray`.
    """
    new = NewArray(rows.dtype, rows.shape, attrs=attrs, sample=rows, **how)
    with naming_column(name):
        return new, blocks_of(rows, layout.array_class.grid_for(new))
