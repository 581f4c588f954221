"""A table in a folder: `Table`, for every layout."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy

from .. import log
from .._format.dtypes import DType
from ..exceptions import (
    BloscpackError,
    DoesNotFit,
    UsageError,
    UsageValueError,
    install_hint,
)
from .array import Array, checked_length, checked_trim
from .frames import columns_of, read_frame, read_rows, shown_rows
from .layouts.base import NewArray
from .node import Node, import_dask, reopened
from .rows import all_columns, as_columns, blocks_of, items_of, naming_column

if TYPE_CHECKING:
    from .._commit.writer import Writer
    from .._format.dtypes import Array as Items
    from .layouts.base import Blocks, TableLayout

# Number of rows that iterating over a table reads at a time.
ITERATION_ROWS = 16384
# Kinds of items, other than text, that are objects in a DataFrame.
DASK_OBJECTS = "SVO"


class Columns(Mapping[str, Array]):
    """The columns of a table, by name and by position."""

    def __init__(self) -> None:
        self._columns: dict[str, Array] = {}  # replaced, never changed

    def __getitem__(self, key: str | int) -> Array:
        if isinstance(key, str):
            return self._columns[key]
        return list(self._columns.values())[operator.index(key)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        return "<Columns %s>" % ", ".join(self)


class Table(Node):
    """Columns of the same length in a folder; `open_table` makes it.

    ``table['name']`` is a column, an `Array`. ``table[5]`` is a row, and ``table[2:8]``
    and other indexes are rows as a structured array.

    Attributes
    ----------
    path
        The folder.
    layout
        The name of the layout.
    columns
        The columns: a mapping by name, which takes positions, too.
    """

    _layout: TableLayout
    _writer: Writer | None
    # Creates a table of a DataFrame; `new` sets it.
    from_pandas: ClassVar[Callable[..., Table]]

    def __init__(self, layout: TableLayout, writer: Writer | None = None) -> None:
        super().__init__(layout, writer)
        self._token: object = None  # what the files were when Dask got the table
        self.columns = Columns()
        self._set_columns()

    @property
    def _columns(self) -> dict[str, Array]:
        return self.columns._columns

    def _set_columns(self) -> None:
        """Make and lock the objects for new columns; those of the others stay."""
        old, new = self._columns, {}
        for name, layout in self._layout.columns.items():
            column = old.get(name)
            if column is None:
                if self._writer is not None:
                    self._writer.lock(layout.folder.prefix[:-1])
                column = Array(layout, self._writer, is_column=True)
            new[name] = column
        self.columns._columns = new

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

    def __len__(self) -> int:
        """Return the number of rows.

        If columns have different lengths, which an interrupted writer of bcolz may
        leave, these are the rows that all columns have.
        """
        return min((len(column) for column in self._columns.values()), default=0)

    @property
    def shape(self) -> tuple[int]:
        """The number of rows, as a tuple."""
        return (len(self),)

    @property
    def nbytes(self) -> int:
        """Number of plain bytes of all columns."""
        return sum(column.nbytes for column in self._columns.values())

    @property
    def cbytes(self) -> int:
        """Size in bytes of the files that hold the items."""
        return sum(column.cbytes for column in self._columns.values())

    @property
    def closed(self) -> bool:
        """Whether the table was closed."""
        return any(c._layout.reader.closed for c in self._columns.values())

    def __repr__(self) -> str:
        lines = [
            "<%sTable '%s' (%s): %d rows, %d columns>"
            % (
                "closed " if self.closed else "",
                self.path,
                self.layout,
                len(self),
                len(self._columns),
            )
        ]
        try:
            return "\n".join([*lines, *shown_rows(self._columns, len(self))])
        except (BloscpackError, OSError):  # closed or damaged
            return "\n".join([*lines, "columns: " + ", ".join(self._columns)])

    # Closing

    def close(self) -> None:
        """Close the table and its columns, and let other writers in."""
        with self._closing():
            for column in self._columns.values():
                column.close()
            super().close()

    # Reading

    def __getitem__(self, key: Any) -> Any:
        """Return a column, a row, or rows as a structured array.

        Parameters
        ----------
        key
            The name of a column; a list of names; the number of a row; a slice; an
            array of row numbers; or an array of booleans, such as
            ``table['volume'][:] > 0``. A list of names selects all rows of these
            columns, as a structured array.

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
                raise KeyError(key)
            return self._columns[key]
        if isinstance(key, list) and key and all(isinstance(k, str) for k in key):
            return self._read(
                lambda: read_rows(
                    {name: self[name] for name in key}, len(self), slice(None)
                )
            )
        return self._read(lambda: read_rows(self._columns, len(self), key))

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, len(self), ITERATION_ROWS):
            yield from self[start : start + ITERATION_ROWS]

    def to_pandas(self) -> Any:
        """Return the table as a DataFrame; this needs pandas.

        Bytes and text become objects of Python. Raises `UsageError` if a column has
        several axes.
        """
        try:
            import pandas  # noqa: F401
        except ImportError as error:
            raise UsageError(
                "to_pandas needs the package pandas: " + install_hint("tables")
            ) from error
        return self._read(lambda: self.frame(slice(len(self)), self.names))

    def frame(self, rows: slice, names: Sequence[str]) -> Any:
        """Return some rows of some columns as a DataFrame."""
        return self._read(
            lambda: read_frame({name: self._columns[name] for name in names}, rows)
        )

    # Pickle and Dask

    def __reduce__(self) -> tuple[object, ...]:
        """Return what opens the table again, in any process, for reading."""
        return reopened, (Table, self._layout, len(self))

    def __dask_tokenize__(self) -> tuple[object, ...]:
        """Return a value that is the same for the same state of the same table."""
        if self._token is None:
            self._token = self._layout.folder.version()
        return self.path, len(self), str(self.dtype), self._token

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
            If Dask is not installed, or if a column has several axes.
        """
        return self._read(lambda: self._to_dask(rows, columns))

    def _to_dask(self, rows: int | None, columns: list[str] | None) -> Any:
        dd = import_dask("dask.dataframe")
        names = self.names if columns is None else [self[n] and n for n in columns]
        if rows is None:
            rows = min((self[n].shards or self[n].chunks)[0] for n in names)
        if rows < 1:
            raise UsageError("a partition must have at least one row, not '%d'" % rows)
        count = len(self)
        starts = list(range(0, count, rows)) or [0]
        settings = {}
        if any(self[name].dtype.kind in DASK_OBJECTS for name in names):
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

    def append(self, rows: Any) -> None:
        """Append rows. When this returns, they are in the files, in all columns.

        Parameters
        ----------
        rows
            A structured array, a dictionary of columns or a DataFrame, as for
            `from_pandas`, with the same names; or a sequence of columns in the order
            of `names`.

        Raises
        ------
        UsageError
            If the rows don't fit, or if the table was opened for reading.
        """
        writer = self._check_writer()
        given = columns_of(rows)
        with writer.turn():
            types = {n: (c.dtype, c.shape[1:]) for n, c in self._columns.items()}
            new = as_columns(given, types)
            count = len(next(iter(new.values()))) if new else 0
            if not count:
                return
            length = len(self) + count
            taking_over = partial(self._committed, length)
            with writer.change(taking_over, disturbs=False) as change:
                for name, column in self._columns.items():
                    column.stage_append(change, new[name])

    def resize(self, length: int) -> None:
        """Set the number of rows: remove the last rows, or add rows of fill values."""
        writer = self._check_writer()
        rows = checked_length(length)
        with writer.change(lambda: self._committed(rows)) as change:
            for column in self._columns.values():
                column.stage_resize(change, (rows, *column.shape[1:]))

    def trim(self, count: int) -> None:
        """Remove the last `count` rows."""
        with self._check_writer().turn():
            self.resize(checked_trim(len(self), count))

    def _committed(self, length: int) -> None:
        for column in self._columns.values():
            column.resized((length, *column.shape[1:]))

    def make_equal(self) -> None:
        """Remove the rows that not all columns have, after a writer was interrupted."""
        lengths = {len(column) for column in self._columns.values()}
        if len(lengths) > 1:
            log.notice(
                "'%s': the columns had different lengths; rows that not all columns "
                "have are removed" % self.path
            )
            length = len(self)
            taking_over = partial(self._committed, length)
            with self._check_writer().change(taking_over) as change:
                for column in self._columns.values():
                    column.stage_resize(change, (length, *column.shape[1:]))

    def __setitem__(self, key: Any, rows: Any) -> None:
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
        if isinstance(key, str):
            self[key][:] = rows
            return
        if isinstance(key, tuple):
            raise IndexError("a table has one axis: expected one index, found a tuple")
        with writer.turn():
            given = all_columns(rows, self.names)
            with writer.change(lambda: self._committed(len(self))) as change:
                for name, column in self._columns.items():
                    column.stage_items(change, key, given[name])

    def add_column(
        self,
        name: str,
        values: Any,
        *,
        position: int | None = None,
        chunks: int | None = None,
        shards: int | None = None,
        fill_value: Any = None,
        attrs: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        """Add a column.

        Parameters
        ----------
        name
            The name.
        values
            As many rows as the table has; a table without columns takes any number.
        position
            The number that the column gets; None for the last.
        chunks, shards, fill_value, attrs, settings
            As in `create_array`.
        """
        layout = self._layout

        def take_over() -> None:
            layout.columns_committed(names)
            self._set_columns()

        writer = self._check_writer()
        with writer.turn():
            layout.check_column_name(name)
            if name in self._columns:
                raise UsageValueError("the table has a column '%s'" % name)
            rows = items_of(values)
            if rows.ndim == 0 or (self._columns and len(rows) != len(self)):
                raise DoesNotFit(
                    "expected '%d' rows, found an array of shape %s"
                    % (len(self), rows.shape)
                )
            new = NewArray(
                *(rows.dtype, rows.shape, chunks, fill_value),
                dict(() if attrs is None else attrs),
                settings=settings,
                shards=shards,
                sample=rows,
            )
            names = self.names
            names.insert(len(names) if position is None else position, name)
            blocks = column_blocks(type(layout), name, new, rows)
            with writer.change(take_over) as change:
                layout.create_column(change, name, (new, blocks))
                layout.stage_columns(change, names)

    def remove_column(self, name: str) -> None:
        """Remove a column and its files. The last column can't be removed."""

        def take_over() -> None:
            column.stop_reading()
            self._layout.columns_committed(names)
            self._set_columns()

        writer = self._check_writer()
        with writer.turn():
            column = self._columns[name]
            if len(self._columns) == 1:
                raise UsageValueError("a table must have a column")
            names = [other for other in self._columns if other != name]
            with writer.change(take_over) as change:
                self._layout.stage_columns(change, names)


def read_partition(start: int, table: Table, rows: int, columns: Sequence[str]) -> Any:
    """Return rows of a table as a DataFrame that has their numbers as index.

    A task of Dask gets the pickled table, which opens the dataset again.
    """
    stop = min(start + rows, len(table))
    frame = table.frame(slice(start, stop), columns)
    frame.index = frame.index + start
    return frame


def column_blocks(
    layout: type[TableLayout], name: str, new: NewArray, rows: Items
) -> Blocks:
    """Return the blocks of a new column; raise `UsageError` if it can't be written."""
    with naming_column(name):
        return blocks_of(rows, layout.array_class.grid_for(new))
