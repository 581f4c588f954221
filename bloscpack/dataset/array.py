"""An array in a folder: `Array`, for every layout."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy

from .._file.indexing import ArrayIndex, iterate_rows
from .._format.dtypes import DType
from ..exceptions import UsageError, UsageValueError
from .node import Node, import_dask, reopened
from .rows import (
    assigned_blocks,
    blocks_of_fields,
    check_nbytes,
    converted,
    filled_rows,
    is_names,
    stream_of,
)

if TYPE_CHECKING:
    from .._commit.new_files import Change
    from .._commit.writer import Writer
    from .._format.dtypes import Array as Items
    from .layouts.base import ArrayLayout
    from .rows import RowStream


class Array(Node):
    """An array in a folder of compressed files; `open_array` makes it.

    Indexing reads the selected items. The result is a new array of NumPy, or a scalar.

    Attributes
    ----------
    path
        The folder.
    layout
        The name of the layout.
    """

    _layout: ArrayLayout

    def __init__(
        self,
        layout: ArrayLayout,
        writer: Writer | None = None,
        is_column: bool = False,
    ) -> None:
        super().__init__(layout, writer)
        self._is_column = is_column
        # The table of a column that was opened without it, and whether to close it.
        self._table: Node | None = None
        self._closes_table = False
        self._token: object = None  # what the files were when Dask got the array

    def detached(self, table: Node, *, closes_table: bool) -> Array:
        """Return a column as an array that keeps its table in memory, and its locks.

        `closes_table` says that the table is closed with the column. The table itself
        has another object for the column: a cycle would keep the locks.
        """
        column = Array.__new__(Array)
        vars(column).update(vars(self))
        column._table, column._closes_table = table, closes_table
        return column

    # Description

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of items along each axis."""
        return self._layout.shape

    @property
    def dtype(self) -> DType:
        """The type of the items."""
        return self._layout.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of items."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Number of plain bytes of all items."""
        return self.size * self.dtype.itemsize

    @property
    def cbytes(self) -> int:
        """Size in bytes of the files that hold the items."""
        return self._read(lambda: self._layout.cbytes)

    @property
    def chunks(self) -> tuple[int, ...]:
        """The shape of a chunk; the last one may be shorter."""
        return self._layout.chunks

    @property
    def shards(self) -> tuple[int, ...] | None:
        """The shape of the part in one file; None if that is a single chunk."""
        return self._layout.shards

    @property
    def dims(self) -> tuple[str | None, ...] | None:
        """The name of each axis, or None for one without; None if none has a name."""
        return self._layout.dims

    @property
    def fill_value(self) -> Any:
        """The value of new items when the array is enlarged."""
        return self._layout.fill_value

    @property
    def closed(self) -> bool:
        """Whether the array was closed."""
        return self._layout.reader.closed

    def __repr__(self) -> str:
        return "<%sArray '%s' (%s): shape %s, dtype %s, chunks %s>" % (
            "closed " if self.closed else "",
            self.path,
            self.layout,
            self.shape,
            self.dtype,
            self.chunks,
        )

    # Closing

    def close(self) -> None:
        """Close the array, and let other writers in. It can't be read any more.

        A column of a table stays open for writing until the table is closed.
        """
        with self._closing():
            self.stop_reading()
            if self._table is not None and self._closes_table:
                self._table.close()
            if not self._is_column:
                super().close()

    def stop_reading(self) -> None:
        """Make each read an error from now on, and close the files."""
        self._layout.reader.closed = True
        self._layout.close_files()

    # Reading

    def __getitem__(self, key: Any) -> Any:
        """Return the selected items as a new array, or a single item as a scalar.

        Parameters
        ----------
        key
            An index of NumPy: integers, slices with any step, ``...`` and ``None``; for
            the first axis also an array of integers, or one of booleans. For items with
            fields also the name of a field, or a list of names.

        Raises
        ------
        IndexError
            If the index does not fit the array, as NumPy does.
        FormatError
            If a chunk that holds some of the items is damaged or missing.
        """
        if self._writer is None:
            return self._layout.reader.get(key)
        return self._writer.read(lambda: self._layout.reader.get(key))

    def __array__(self, dtype: DType | None = None, copy: bool | None = None) -> Items:
        """Return all items as an array of `dtype`; NumPy calls this."""
        if copy is False:
            raise ValueError("an array in files can't be used without a copy")
        items: Items = self[:]
        return items if dtype is None else items.astype(dtype, copy=False)

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return iterate_rows(self.__getitem__, self.shape, self.dtype.itemsize)

    def iter_chunks(self) -> Iterator[Items]:
        """Yield the rows of each chunk, in order, as arrays."""
        step = self.chunks[0]
        for start in range(0, len(self), step):
            yield self[start : start + step]

    # Pickle and Dask

    def __reduce__(self) -> tuple[object, ...]:
        """Return what opens the array again, in any process, for reading."""
        return reopened, (Array, self._layout, len(self))

    def __dask_tokenize__(self) -> tuple[object, ...]:
        """Return a value that is the same for the same state of the same array."""
        if self._token is None:
            self._token = self._layout.folder.version()
        return self.path, self.shape, str(self.dtype), self._token

    def to_dask(self, chunks: Any = None) -> Any:
        """Return the array as an array of Dask, of which each block is read separately.

        Parameters
        ----------
        chunks
            The chunks of the result, as `dask.array.from_array` takes them; by default
            one for each shard.

        Raises
        ------
        UsageError
            If Dask is not installed.
        """
        da = import_dask("dask.array")
        blocks = (self.shards or self.chunks) if chunks is None else chunks
        return self._read(lambda: da.from_array(self, chunks=blocks))

    # Changing

    def _check_resizable(self) -> Writer:
        writer = self._check_writer()
        if self._is_column:
            raise UsageError(
                "the columns of a table have the same length: append to the table, or "
                "resize it"
            )
        return writer

    def append(self, values: Any) -> None:
        """Append rows. When this returns, they are in the files.

        Parameters
        ----------
        values
            Rows, or a single row, that NumPy can convert to the type of the items
            without a loss; only floats are rounded. An array that is not in memory is
            read in slices. An iterator yields blocks of rows.

        Raises
        ------
        UsageError
            If the rows don't fit, or if the array was opened for reading.
        """
        writer = self._check_resizable()
        rows = stream_of(values, self.dtype, self.shape[1:])
        if rows.length == 0:
            return

        def take_over() -> None:
            self._layout.committed(len(self) + (rows.length or 0))

        with writer.change(take_over, disturbs=False) as change:
            self.stage_append(change, rows)

    def resize(self, length: int | tuple[int, ...]) -> None:
        """Set the number of rows: remove the last rows, or add rows of `fill_value`.

        Parameters
        ----------
        length
            The number of rows, or a shape that differs only in the first axis.

        Raises
        ------
        UsageError
            If the shape differs in another axis.
        """
        writer = self._check_resizable()
        rows = self._checked_length(length)
        with writer.change(lambda: self.resized(rows, len(self))) as change:
            self.stage_resize(change, rows)

    def trim(self, count: int) -> None:
        """Remove the last `count` rows."""
        with self._check_resizable().turn():
            self.resize(checked_trim(len(self), count))

    def __setitem__(self, key: Any, values: Any) -> None:
        """Assign to the selected items. In a crash, all of them change, or none.

        Parameters
        ----------
        key
            An index, as for reading; for items with fields also the name of a field or
            a list of names.
        values
            Values that NumPy can broadcast to the selected items, and convert to their
            type without a loss; only floats are rounded.
        """
        writer = self._check_writer()
        with writer.change(lambda: self._layout.committed(len(self))) as change:
            self.stage_items(change, key, values)

    # Parts of a change, for tables

    def stage_append(self, change: Change, rows: Items | RowStream) -> None:
        """Let `change` append rows."""
        layout, length = self._layout, len(self)
        stream = stream_of(rows, self.dtype, self.shape[1:])
        blocks = stream.appended(self.__getitem__, length, layout.block_rows)
        layout.stage(
            change, blocks, lambda: length + (stream.length or 0), extends=True
        )

    def stage_resize(self, change: Change, length: int) -> None:
        """Let `change` set the number of rows."""
        check_nbytes((length, *self.shape[1:]), self.dtype)
        if length != len(self):
            spans = self._layout.rows_to_fill(len(self), length)
            blocks = self._filled_blocks(spans)
            self._layout.stage(change, blocks, lambda: length, extends=True)

    def _filled_blocks(
        self, spans: Iterable[tuple[int, int]]
    ) -> Iterator[tuple[int, Items]]:
        """Yield the blocks in which new rows, from start to stop, are fill values."""
        step, inner = self._layout.block_rows, self.shape[1:]
        for start, stop in spans:
            for low in range(start - start % step, stop, step):
                first = max(low, start)
                count = min(low + step, stop) - first
                rows = filled_rows(count, inner, self.fill_value, self.dtype)
                if low < first:
                    rows = numpy.concatenate([self[low:first], rows], dtype=self.dtype)
                yield low // step, rows

    def resized(self, length: int, old: int) -> None:
        """Take over the number of rows of a change that was committed."""
        self._layout.committed(length)
        if length < old:
            self._layout.remove_unused()

    def stage_items(self, change: Change, key: Any, values: Any) -> None:
        """Let `change` assign to the selected items."""
        shape, step = self.shape, self._layout.block_rows
        if self.dtype.names is not None and is_names(key):
            blocks = blocks_of_fields(shape, step, key, values, self.dtype)
        else:
            index = ArrayIndex(key, shape)
            items = index.spread(converted(values, self.dtype), self.dtype)
            blocks = assigned_blocks(self.__getitem__, shape, step, index, items)
        self._layout.stage(change, blocks, self.__len__, extends=False)

    def _checked_length(self, length: int | tuple[int, ...]) -> int:
        shape = (length, *self.shape[1:]) if not isinstance(length, tuple) else length
        if len(shape) != self.ndim or shape[1:] != self.shape[1:]:
            raise UsageValueError(
                "an array of shape %s can't get the shape %s: only the first axis can "
                "change" % (self.shape, shape)
            )
        return checked_length(shape[0])


def checked_length(length: int) -> int:
    """Return a number of rows; raise `UsageError` if it is negative."""
    length = operator.index(length)
    if length < 0:
        raise UsageValueError("the number of rows can't be %d" % length)
    return length


def checked_trim(length: int, count: int) -> int:
    """Return the number of rows without the last `count` ones."""
    if not 0 <= operator.index(count) <= length:
        raise UsageValueError("can't remove %d of %d rows" % (count, length))
    return length - count
