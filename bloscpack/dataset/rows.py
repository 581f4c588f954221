"""Rows that users give, cut into the chunks of an array.

`RowStream` takes rows in any form, in bounded memory: an array in memory is cut into
views, an array elsewhere, such as in a file, is read in slices, and an iterator yields
blocks of rows.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy
from numpy.typing import DTypeLike

from .._commit.change import Change
from .._commit.writer import Writer
from .._engine.threads import ordered
from .._format.dtypes import AnyArray, Array, DType, encode_dtype, exact_array
from .._format.grid import Grid, Shape
from .._format.text import TEXT, empty_item, item_nbytes
from ..exceptions import DoesNotFit, UsageTypeError, UsageValueError
from .changed_blocks import NewState, Read, blocks_of
from .columns import all_columns, naming_column
from .items import (
    as_rows,
    check_ends,
    check_fill_value,
    check_mask,
    check_nbytes,
    check_truth,
    checked_shape,
    is_array,
    text_of,
    text_or,
)

if TYPE_CHECKING:
    from .layouts.base import ArrayLayout, Blocks, NewArray

# Number of plain bytes that are read at a time from an array that is not in memory, or
# converted at a time to another type.
READ_NBYTES = 8 * 2**20
# Number of columns that are written at the same time if there are at least as many, and
# the maximum number of bytes of the rows of each.
WIDE = 16
SMALL = 2**20


class RowStream:
    """Rows of one dtype and inner shape, taken from the front.

    Parameters
    ----------
    pieces
        The rows, in parts.
    dtype, inner, length
        As the attributes.
    values
        The same rows as an array, if there is one. It need not be in memory.

    Attributes
    ----------
    dtype, inner
        The dtype, and the shape of a row.
    length
        Number of rows; None as long as it is unknown: until the last row is taken.
    has_axes
        Whether the array has axes; else its item is the only row.
    column
        The name of the column of a table that errors name; empty for none.
    """

    has_axes = True
    column = ""

    def __init__(
        self,
        pieces: Iterable[object],
        dtype: DType,
        inner: tuple[int, ...],
        length: int | None = None,
        values: AnyArray | None = None,
    ) -> None:
        self.dtype = dtype
        self.inner = inner
        self.length = length
        self._pieces = iter(pieces)
        self._values = values
        self._is_in_memory = type(pieces) is list
        self._rest: Array = numpy.empty((0, *inner), dtype)
        self._taken = 0

    @property
    def shape(self) -> Shape:
        """The shape of the array of all rows; it has no rows while that is unknown."""
        return (self.length or 0, *self.inner) if self.has_axes else ()

    @property
    def is_small(self) -> bool:
        """Whether the rows are in memory, and are few bytes."""
        nbytes = math.prod(self.shape) * self.dtype.itemsize
        return self._is_in_memory and nbytes <= SMALL

    def take(self, count: int) -> Array:
        """Return the next `count` rows, fewer at the end.

        Raises `UsageError` if a row does not fit.
        """
        parts: list[Array] = []
        while count:
            if len(self._rest):
                parts.append(self._rest[:count])
                self._rest = self._rest[count:]
                self._taken += len(parts[-1])
                count -= len(parts[-1])
                continue
            piece = next(self._pieces, None)
            if piece is None:
                self.length = self._taken if self.length is None else self.length
                if self.length != self._taken:
                    raise DoesNotFit(
                        "expected '%d' rows, found '%d'" % (self.length, self._taken)
                    )
                break
            with naming_column(self.column):
                self._rest = as_rows(piece, self.dtype, self.inner)
        return joined(parts, self.dtype, self.inner)

    def blocks(self, grid: Grid, start: int = 0, read: Read | None = None) -> Blocks:
        """Yield the chunks that change when the rows are put behind `start` rows.

        `grid` says how the array is cut, with any number of rows. `read` returns the
        items of a box that is there now.
        """
        if not grid.shape:
            yield 0, self.take(1).reshape(())
            return
        if not math.prod(grid.shape[1:]):  # no chunk has items, of 10**15 rows
            self.take(sys.maxsize)
            return
        step = grid.shard[0]
        if grid.is_rows:  # a shard need not be in memory
            row = math.prod(grid.shape[1:]) * item_nbytes(self.dtype)
            count = READ_NBYTES // 4 // max(1, grid.chunk[0] * row)
            step = grid.chunk[0] * min(max(1, count), grid.slots)
        elif self._values is not None:
            with naming_column(self.column):
                yield from blocks_of(self._values, grid, start, read, self.dtype)
            return
        size = grid.chunk[0]
        while len(rows := self.take(step - start % step)):
            if not grid.is_rows:
                yield from blocks_of(rows, grid, start, read)
                start += len(rows)
                continue
            number, kept = divmod(start, size)
            first, start = start - kept, start + len(rows)
            if kept:  # rows that a chunk has already
                assert read is not None
                parts = [read((slice(first, first + kept),)), rows[: size - kept]]
                yield number, joined(parts, self.dtype, self.inner)
                number, rows = number + 1, rows[size - kept :]
            for begin in range(0, len(rows), size):
                yield number + begin // size, rows[begin : begin + size]


def append_rows(
    writer: Writer,
    rows: Mapping[ArrayLayout, RowStream],
    *,
    flushes: bool = True,
    taken_over: Callable[[], object] = bool,
) -> None:
    """Append rows to arrays of one length, in one change.

    `flushes` says that the rows that wait in memory are written first. `taken_over` is
    called when the arrays have the rows, also after an error behind the commit point.
    """

    def shape_of(layout: ArrayLayout) -> Shape:
        return layout.shape[0] + (rows[layout].length or 0), *layout.shape[1:]

    def stage(change: Change, layout: ArrayLayout) -> None:
        grid, read = layout.grid, layout.reader.get
        blocks = rows[layout].blocks(grid, layout.shape[0], read)
        shape = partial(shape_of, layout)
        layout.stage(change, NewState(grid, blocks, True, shape))

    def take_over() -> None:
        for layout in rows:
            layout.committed(shape_of(layout))
        taken_over()

    with writer.change(take_over, disturbs=False, flushes=flushes) as change:
        change.settled.append(taken_over)
        # Each file waits for the disk, which writes several of them at once. The files
        # of a single column are written on several threads, too: with those of other
        # columns, they would need too many descriptors.
        is_wide = len(rows) >= WIDE and all(
            stream.is_small and stream.shape[0] <= layout.grid.shard[0]
            for layout, stream in rows.items()
        )
        ordered(rows, partial(stage, change), bool, WIDE if is_wide else 1, waits=True)


def counted(stream: RowStream, new: NewArray, grid: Grid) -> Blocks:
    """Yield the chunks of a new array; set its number of rows when they end."""
    yield from stream.blocks(grid)
    new.shape = stream.shape


def joined(parts: list[Array], dtype: DType, inner: tuple[int, ...]) -> Array:
    """Return arrays as one; a single one is not copied."""
    if len(parts) == 1:
        return parts[0]
    # No concatenate(): its result has the byte order of the machine.
    result: Array = numpy.empty((sum(map(len, parts)), *inner), dtype)
    start = 0
    for part in parts:
        result[start : start + len(part)] = part
        start += len(part)
    return result


def stream_of(values: Any, dtype: DType, inner: tuple[int, ...]) -> RowStream:
    """Return values, in any form, as rows of a dtype and of a shape.

    Raises `UsageError` if they do not fit; for rows that are read or converted later,
    `RowStream.take` does.
    """
    if isinstance(values, Iterator):
        return RowStream(values, dtype, inner)
    check_mask(values)
    same = is_array(values) and tuple(values.shape[1:]) == inner and len(values.shape)
    if same and values.shape[0] >= 0:  # Dask has NaN for a length that is not known
        in_memory = isinstance(values, numpy.ndarray)
        if not in_memory or (values.dtype != dtype and values.dtype.kind != "O"):
            length = int(values.shape[0])
            return RowStream(slices_of(values), dtype, inner, length, values)
    rows = as_rows(values, dtype, inner)
    return RowStream([rows], dtype, inner, len(rows))


def slices_of(values: AnyArray) -> Iterator[Array]:
    """Yield the rows of an array in blocks that fit its own chunks."""
    shape = values.shape
    row = math.prod(shape[1:]) * item_nbytes(values.dtype)
    step = max(1, READ_NBYTES // row if row else shape[0])
    chunks = getattr(values, "chunks", None)
    first = chunks[0] if isinstance(chunks, tuple) and chunks else None
    if isinstance(first, tuple) and first:  # the blocks of Dask
        first = first[0]
    if isinstance(first, int):
        step = max(step // max(1, first), 1) * max(1, first)
    for start in range(0, shape[0], step):
        yield numpy.asanyarray(values[start : min(start + step, shape[0])])


def new_rows(
    data: Any, shape: Any, dtype: DTypeLike, fill_value: object, has_text: bool
) -> RowStream:
    """Return the rows of a new array.

    `data` may be None for `fill_value` in an array of `shape` and `dtype`, which are
    otherwise those of `data` by default. An iterator yields blocks of rows. `has_text`
    says that the layout has text of variable length.
    """
    wanted = None if dtype is None else text_or(numpy.dtype(dtype), has_text)
    expected = None if shape is None else checked_shape(shape)
    if wanted is not None and wanted.subdtype is not None:
        raise UsageTypeError(
            "dtype: expected the type of an item, found '%s', which has axes: they "
            "belong to the shape" % (wanted,)
        )
    if isinstance(data, Iterator):
        if expected == ():
            raise UsageValueError("an iterator yields rows: shape needs an axis")
        blocks, length = data, None if expected is None else expected[0]
        if expected is None or wanted is None:
            first = next(data, None)
            if first is None:
                raise UsageValueError("an iterator without rows needs shape and dtype")
            check_mask(first)
            rows = _array_for(first, wanted, has_text)
            blocks = chain([rows], data)
            expected = rows.shape if expected is None else expected
            wanted = text_or(rows.dtype, has_text) if wanted is None else wanted
        return RowStream(blocks, wanted, expected[1:], length)
    if data is None:
        if expected is None or wanted is None:
            raise UsageValueError("expected data, or shape and dtype")
        check_fill_value(fill_value, wanted)
        fill = empty_item(wanted) if fill_value is None else fill_value
        check_nbytes(expected, wanted)
        data = numpy.broadcast_to(numpy.array(fill, wanted), expected)
    elif not is_array(data):
        data = _array_for(data, wanted, has_text)
    check_mask(data)
    if any(n != n for n in data.shape):  # Dask has NaN for an unknown length
        raise UsageValueError(
            "expected data of a known shape, found %s: compute its lengths first"
            % (tuple(data.shape),)
        )
    found = tuple(map(int, data.shape))
    if expected is not None and found != expected:
        raise UsageValueError(
            "expected data of shape %s, found an array of shape %s" % (expected, found)
        )
    wanted = text_or(data.dtype, has_text) if wanted is None else wanted
    if wanted == TEXT and not has_text:
        encode_dtype(wanted)  # raises the error of objects
    if data.shape:
        return stream_of(data, wanted, tuple(data.shape[1:]))
    item = data if isinstance(data, numpy.ndarray) else data[()]
    if data.dtype.kind in "OT":  # NumPy would drop zero bytes at the end of a text
        item = numpy.array(item, TEXT)
    stream = stream_of(numpy.asanyarray(item).reshape(1), wanted, ())
    stream.has_axes = False
    return stream


def _array_for(values: object, wanted: DType | None, has_text: bool) -> Array:
    """Return values as an array; text that becomes text of variable length is whole."""
    if has_text and wanted == TEXT:
        return text_of(values)
    array = numpy.asarray(exact_array(values))
    check_ends(values, array)
    return array


def as_columns(
    rows: object, columns: Mapping[str, tuple[DType, Shape]], masks: Mapping[str, str]
) -> dict[str, RowStream]:
    """Return rows of a table as streams by name, all of the same length.

    Parameters
    ----------
    rows
        A structured array, a mapping of names to columns, or a sequence of columns in
        order.
    columns
        Dtype and inner shape of each column.
    masks
        The names of the columns that say which items of another one are missing.
    """
    given = all_columns(rows, list(columns), masks)
    result = {}
    for name, (dtype, inner) in columns.items():
        items = given[name]
        with naming_column(name):
            check_truth(items, dtype)
            items = items if is_array(items) else as_rows(items, dtype, inner)
            result[name] = stream_of(items, dtype, inner)
        result[name].column = name
    check_same_length(result)
    return result


def check_same_length(columns: Mapping[str, Array | RowStream]) -> None:
    """Raise `DoesNotFit` unless all columns have the same number of rows."""
    lengths = {name: column.shape[0] for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise DoesNotFit("the columns have different lengths: %s" % lengths)
