"""Rows that users give: converted to the type of an array, and cut into blocks.

A value that the type of the array can't hold is refused, not changed. `RowStream` takes
rows in any form, in bounded memory: an array in memory is cut into views, an array
elsewhere, such as in a file, is read in slices, and an iterator yields blocks of rows.
Lists and the like become arrays first.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy

from .._file.indexing import ArrayIndex, PositionList, Steps
from .._format.array_metadata import MAX_ITEM_NBYTES, MAX_NBYTES
from ..exceptions import DoesNotFit, UsageError, UsageTypeError, UsageValueError

if TYPE_CHECKING:
    from .._format.dtypes import Array, DType
    from .layouts.base import Blocks, NewArray

# Kinds of items that must be the same after they are converted. The others, such as
# floats, may be rounded.
EXACT = "biuSUmMV"
# Number of plain bytes that are read at a time from an array that is not in memory, or
# converted at a time to another type.
READ_NBYTES = 8 * 2**20


def items_of(values: Any) -> Array:
    """Return values as an array; text that a DataFrame has as objects becomes text.

    Raises `UsageError` for text among other values, which NumPy would make text.
    """
    array: Array = numpy.asarray(values)
    if array.dtype.kind != "O":
        return array
    items = array.tolist()
    try:
        result: Array = numpy.asarray(items)
    except ValueError:  # lists of different lengths
        return array
    if result.dtype.kind in "SU":
        for item in array.flat:
            if not isinstance(item, (str, bytes)):
                raise UsageTypeError(
                    "expected text in each item, found %.200r" % (item,)
                )
    return result


def converted(values: Any, dtype: DType) -> Array:
    """Return values as an array of `dtype`; raise `UsageError` if one does not fit."""
    if dtype.names is not None and isinstance(values, (list, tuple, int, float)):
        return _from_tuples(values, dtype)
    array = items_of(values)
    if array.dtype == dtype:
        return array
    if not array.size and array.dtype.kind == "f":
        return array.astype(dtype)  # an empty list
    if not _is_convertible(array.dtype, dtype):
        raise DoesNotFit(
            "expected items of dtype '%s', found '%s'" % (dtype, array.dtype)
        )
    try:
        with numpy.errstate(over="ignore"):
            result: Array = array.astype(dtype)
            same = _unchanged(array, result)
    except (OverflowError, UnicodeError) as error:
        raise DoesNotFit(
            "a value does not fit the dtype '%s': %s" % (dtype, error)
        ) from error
    if same is not None and not same.all():
        value = array[~same].flat[0]
        raise DoesNotFit(
            "the value %.200s does not fit the dtype '%s'"
            % (repr(value.item()) if array.dtype.kind in "SU" else value, dtype)
        )
    return result


def _is_convertible(found: DType, wanted: DType) -> bool:
    """Return whether items of a type can have values of another one."""
    if (found.kind == "O" or wanted.kind in "SU") and found.kind not in wanted.kind:
        return found.kind + wanted.kind == "SU"
    if found.kind in "iu" and wanted.kind in "iu":
        return True
    return numpy.can_cast(found, wanted, "same_kind")


def _unchanged(array: Array, result: Array) -> Array | None:
    """Return which items have kept their values; None if all have.

    Floats may be rounded, but must stay finite.
    """
    kinds = array.dtype.kind, result.dtype.kind
    # NumPy calls a finer unit of time safe, and lets far dates wrap.
    if kinds[0] not in "mM" and numpy.can_cast(array.dtype, result.dtype, "safe"):
        return None
    same: Array
    if kinds[1] in "fc":
        same = numpy.isfinite(result) | ~numpy.isfinite(array)
        return same
    if kinds[1] not in EXACT:
        return None
    same = result.astype(array.dtype) == array
    if kinds[0] in "mM":
        same |= numpy.isnat(array)
    elif kinds in (("i", "u"), ("u", "i")):  # the bits may be the same
        same &= (result < 0) == (array < 0)
    return same


def _from_tuples(values: Any, dtype: DType) -> Array:
    """Return tuples as items with fields; a single value is that of all fields."""
    names = dtype.names or ()
    try:
        objects = numpy.array(values, [(name, "O") for name in names])
    except (TypeError, ValueError) as error:
        raise UsageTypeError(
            "expected items of dtype '%s', found %.200r" % (dtype, values)
        ) from error
    result = numpy.zeros(objects.shape, dtype)
    for name in names:
        field = dtype[name]
        items = converted(objects[name].tolist(), field.base)
        try:
            result[name] = items
        except ValueError as error:
            raise DoesNotFit(
                "expected items of shape %s in the field '%s', found an array of "
                "shape %s" % (field.shape, name, items.shape)
            ) from error
    return result


def check_fill_value(value: Any, dtype: DType) -> None:
    """Raise `UsageError` unless a fill value is an item of `dtype`, or None."""
    if value is None:
        return
    item: Array = numpy.zeros((), dtype)
    given = numpy.asarray(value)
    try:
        item[...] = value
        is_same = (
            dtype.names is not None
            or numpy.can_cast(given.dtype, dtype, "same_kind")
            or item == given
        )
    except (TypeError, ValueError, OverflowError) as error:
        raise _unfit_fill_value(value, dtype, str(error)) from error
    is_text = given.dtype.kind == dtype.kind and dtype.kind in "SU"
    if (is_text and item != given) or (dtype.kind in "biu" and not is_same):
        raise _unfit_fill_value(value, dtype, "it would become %r" % item[()])


def _unfit_fill_value(value: Any, dtype: DType, why: str) -> UsageValueError:
    return UsageValueError(
        "the fill value %.200r does not fit the dtype '%s': %s" % (value, dtype, why)
    )


def as_rows(values: Any, dtype: DType, inner: tuple[int, ...]) -> Array:
    """Return values as rows of the shape `inner`; raise `UsageError` if they are not.

    A single row is accepted, too.
    """
    rows = converted(values, dtype)
    if rows.shape == inner:
        rows = rows[numpy.newaxis]
    if rows.ndim == 1 and not len(rows):
        rows = rows.reshape((0, *inner))
    if rows.ndim == 0 or rows.shape[1:] != inner:
        raise DoesNotFit(
            "expected rows of shape %s, found an array of shape %s"
            % (inner, rows.shape)
        )
    return rows


def check_nbytes(shape: tuple[int, ...], dtype: DType) -> None:
    """Raise `UsageError` if an array or an item is too large for any reader."""
    if dtype.itemsize > MAX_ITEM_NBYTES:
        raise UsageValueError(
            "an item has at most %d bytes, and one of dtype '%s' has %d"
            % (MAX_ITEM_NBYTES, dtype, dtype.itemsize)
        )
    nbytes = math.prod(n or 1 for n in shape) * dtype.itemsize
    if nbytes > MAX_NBYTES:
        raise UsageValueError(
            "an array has at most %d bytes, and one of shape %s and dtype '%s' has %d"
            % (MAX_NBYTES, shape, dtype, nbytes)
        )


def row_count(value: Any, name: str) -> int | None:
    """Return a number of rows as an integer, or None for none.

    Raises `UsageError` for any other type; `name` is that of the parameter.
    """
    if value is None:
        return None
    try:
        if isinstance(value, bool):
            raise TypeError("True is no number")
        return operator.index(value)
    except TypeError as error:
        raise UsageTypeError(
            "%s: expected a number of rows, found %.200r; only the axis of rows is "
            "divided" % (name, value)
        ) from error


def blocks_of(
    rows: Array, block_rows: int, first: int = 0
) -> Iterator[tuple[int, Array]]:
    """Yield the blocks of rows from number `first` on, and their numbers."""
    for number, start in enumerate(range(0, len(rows), block_rows), first):
        yield number, rows[start : start + block_rows]


def filled_rows(count: int, inner: tuple[int, ...], fill: Any, dtype: DType) -> Array:
    """Return `count` equal rows, which take the memory of one item."""
    return numpy.broadcast_to(numpy.array(fill, dtype), (count, *inner))


def assigned_blocks(
    read: Callable[[slice], Array],
    shape: tuple[int, ...],
    block_rows: int,
    index: ArrayIndex,
    items: Array,
) -> Iterator[tuple[int, Array]]:
    """Yield the blocks that change when the selected items become `items`.

    `items` have all axes of the array, as `ArrayIndex.spread` returns them.
    """
    axis, inner = index.axes[0], index.axes[1:]
    ordered = items[
        tuple(slice(None, None, -1 if a.reversed else 1) for a in index.axes)
    ]
    rest_target = tuple(a.target(0, a.count) for a in inner)
    rest_source = tuple(a.source(0, a.count, 0) for a in inner)
    if not ordered.size:
        return
    done = 0
    while done < axis.count:
        number = axis.at(done) // block_rows
        low, high = number * block_rows, min((number + 1) * block_rows, shape[0])
        stop = axis.count_before(high)
        whole = _is_whole(axis, high - low, stop - done, inner)
        if whole:
            block: Array = numpy.empty((high - low, *shape[1:]), items.dtype)
        else:
            block = read(slice(low, high))
        target = (axis.source(done, stop, low), *rest_source)
        block[target] = ordered[(axis.target(done, stop), *rest_target)]
        yield number, block
        done = stop


def is_names(key: object) -> bool:
    """Return whether an index selects fields: a name, or a list of names."""
    names = [key] if isinstance(key, str) else key
    return (
        isinstance(names, list)
        and bool(names)
        and all(isinstance(name, str) for name in names)
    )


def blocks_of_fields(
    shape: tuple[int, ...], block_rows: int, names: Any, values: Any, dtype: DType
) -> Iterator[tuple[int, Array]]:
    """Yield all blocks, with the fields `names` only, which become `values`."""
    fields = numpy.empty((0, *shape[1:]), dtype)[names]
    items = converted(values, fields.dtype)
    items = numpy.broadcast_to(items, (shape[0], *fields.shape[1:]))
    listed = [names] if isinstance(names, str) else names
    part = numpy.dtype([(name, dtype[name]) for name in listed])
    for number, start in enumerate(range(0, shape[0], block_rows)):
        rows = items[start : start + block_rows]
        block: Array = numpy.empty((len(rows), *shape[1:]), part)
        block[names] = rows
        yield number, block


def _is_whole(
    axis: Steps | PositionList,
    nrows: int,
    count: int,
    inner: list[Steps | PositionList],
) -> bool:
    """Return whether all items of a block of `nrows` are selected."""
    return (
        isinstance(axis, Steps)
        and axis.step == 1
        and count == nrows
        and all(isinstance(a, Steps) and a.count == a.size for a in inner)
    )


def as_columns(
    rows: Any, columns: Mapping[str, tuple[DType, tuple[int, ...]]]
) -> dict[str, Array]:
    """Return rows of a table as arrays by name, all of the same length.

    Parameters
    ----------
    rows
        A structured array, a mapping of names to columns, or a sequence of columns in
        order.
    columns
        Dtype and inner shape of each column.
    """
    given = all_columns(rows, list(columns))
    result = {}
    for name, (dtype, inner) in columns.items():
        with naming_column(name):
            result[name] = as_rows(given[name], dtype, inner)
    check_same_length(result)
    return result


def all_columns(rows: Any, names: list[str]) -> dict[str, Any]:
    """Return the same as `named_columns`; raise `UsageError` for any other names."""
    given = named_columns(rows, names)
    if set(given) != set(names):
        raise DoesNotFit(
            "expected the columns %s, found %s"
            % (", ".join(names), ", ".join(map(str, given)))
        )
    return given


def named_columns(rows: Any, names: list[str]) -> dict[str, Any]:
    """Return rows in any form as a mapping of names to columns."""
    if isinstance(rows, (numpy.ndarray, numpy.void)) and rows.dtype.names is not None:
        rows = numpy.atleast_1d(rows)
        return {name: rows[name] for name in rows.dtype.names}
    if hasattr(rows, "keys"):  # also a DataFrame
        check_different(list(rows.keys()))
        return {name: rows[name] for name in rows.keys()}  # noqa: SIM118
    if isinstance(rows, (str, bytes)) or not hasattr(rows, "__len__"):
        raise UsageTypeError(
            "expected a structured array, a dictionary or a sequence of columns, found "
            "%.200r" % (rows,)
        )
    if len(rows) != len(names):
        raise DoesNotFit("expected '%d' columns, found '%d'" % (len(names), len(rows)))
    check_different(names)
    return dict(zip(names, rows, strict=True))


@contextmanager
def naming_column(name: str, kind: str = "column") -> Iterator[None]:
    """Let the message of each `UsageError` name the column."""
    try:
        yield
    except UsageError as error:
        raise type(error)("the %s '%s': %s" % (kind, name, error)) from error


def ends_in_zero(name: str) -> UsageValueError:
    """Return the error for a column with a text that NumPy would cut off."""
    return UsageValueError(
        "column '%s': a value ends in a zero byte, which an array would lose" % name
    )


def check_different(names: list[Any]) -> None:
    """Raise `UsageError` if two columns have the same name."""
    if len(set(names)) < len(names):
        raise UsageValueError(
            "expected columns with different names, found %s"
            % ", ".join(map(str, names))
        )


def check_same_length(columns: Mapping[str, Array]) -> None:
    """Raise `DoesNotFit` unless all columns have the same number of rows."""
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise DoesNotFit("the columns have different lengths: %s" % lengths)


# Streams of rows


class RowStream:
    """Rows of one dtype and inner shape, taken from the front.

    Attributes
    ----------
    dtype, inner
        The dtype, and the shape of a row.
    length
        Number of rows; None as long as it is unknown: until the last row is taken.
    """

    def __init__(
        self,
        pieces: Iterable[Any],
        dtype: DType,
        inner: tuple[int, ...],
        length: int | None = None,
    ) -> None:
        self.dtype = dtype
        self.inner = inner
        self.length = length
        self._pieces = iter(pieces)
        self._rest: Array = numpy.empty((0, *inner), dtype)
        self._taken = 0

    def take(self, count: int) -> Array:
        """Return the next `count` rows, fewer at the end.

        Raises `UsageError` if a row does not fit.
        """
        parts: list[Array] = []
        missing = count
        while missing:
            while not len(self._rest):
                piece = next(self._pieces, None)
                if piece is None:
                    self._end()
                    break
                check_mask(piece)
                self._rest = as_rows(piece, self.dtype, self.inner)
            part = self._rest[:missing]
            if not len(part):
                break
            self._rest = self._rest[missing:]
            self._taken += len(part)
            missing -= len(part)
            parts.append(part)
        return joined(parts, self.dtype, self.inner)

    def _end(self) -> None:
        if self.length is None:
            self.length = self._taken
        if self.length != self._taken:
            raise DoesNotFit(
                "expected '%d' rows, found '%d'" % (self.length, self._taken)
            )

    def blocks(self, block_rows: int, first: int = 0) -> Iterator[tuple[int, Array]]:
        """Yield the rows in blocks from number `first` on, and their numbers."""
        while len(rows := self.take(block_rows)):
            yield first, rows
            first += 1

    def appended(
        self, read: Callable[[slice], Array], length: int, block_rows: int
    ) -> Iterator[tuple[int, Array]]:
        """Yield the blocks that change when the rows are appended to `length` rows.

        `read` returns rows that are there now.
        """
        first, count = divmod(length, block_rows)
        if count:
            rows = self.take(block_rows - count)
            if not len(rows):
                return
            old = read(slice(length - count, length))
            yield first, joined([old, rows], self.dtype, self.inner)
            first += 1
        yield from self.blocks(block_rows, first)


def counted(blocks: Blocks, block_rows: int, new: NewArray) -> Blocks:
    """Yield blocks of a new array; set its number of rows when they end."""
    length = 0
    for number, rows in blocks:
        length = number * block_rows + len(rows)
        yield number, rows
    new.shape = (length, *new.shape[1:])


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
    if isinstance(values, RowStream):
        return values
    if isinstance(values, Iterator):
        return RowStream(values, dtype, inner)
    check_mask(values)
    if is_array(values) and tuple(values.shape[1:]) == inner and len(values.shape):
        length = int(values.shape[0])
        in_memory = isinstance(values, numpy.ndarray)
        if not in_memory or (values.dtype != dtype and values.dtype.kind != "O"):
            return RowStream(slices_of(values), dtype, inner, length)
    rows = as_rows(values, dtype, inner)
    return RowStream([rows], dtype, inner, len(rows))


def is_array(values: Any) -> bool:
    """Return whether values have a shape and a dtype, and can be sliced by position."""
    if isinstance(values, numpy.ndarray):
        return True
    return (
        isinstance(getattr(values, "shape", None), tuple)
        and isinstance(getattr(values, "dtype", None), numpy.dtype)
        and hasattr(values, "__getitem__")
        and not isinstance(values, numpy.generic)
        and not hasattr(values, "iloc")  # pandas slices by label
    )


def slices_of(values: Any) -> Iterator[Array]:
    """Yield the rows of an array in blocks that fit its own chunks."""
    shape = values.shape
    row = math.prod(shape[1:]) * values.dtype.itemsize
    step = max(1, READ_NBYTES // max(1, row))
    chunks = getattr(values, "chunks", None)
    first = chunks[0] if isinstance(chunks, tuple) and chunks else None
    if isinstance(first, tuple) and first:  # the blocks of Dask
        first = first[0]
    if isinstance(first, int):
        step = max(step // max(1, first), 1) * max(1, first)
    for start in range(0, shape[0], step):
        yield numpy.asarray(values[start : min(start + step, shape[0])])


def new_rows(data: Any, shape: Any, dtype: Any, fill_value: Any) -> RowStream:
    """Return the rows of a new array.

    `data` may be None for `fill_value` in an array of `shape` and `dtype`, which are
    otherwise those of `data` by default.
    """
    wanted = None if dtype is None else numpy.dtype(dtype)
    expected = None if shape is None else _checked_shape(shape)
    if data is None:
        if expected is None or wanted is None:
            raise UsageValueError("expected data, or shape and dtype")
        check_fill_value(fill_value, wanted)
        fill = numpy.zeros((), wanted) if fill_value is None else fill_value
        inner = expected[1:]
        _check_axis(expected)
        check_nbytes(expected, wanted)
        rows = filled_rows(expected[0], inner, fill, wanted)
        return RowStream([rows], wanted, inner, len(rows))
    if isinstance(data, Iterator):
        return _new_from_blocks(data, expected, wanted)
    if not is_array(data):
        data = numpy.asarray(data)
    check_mask(data)
    found = tuple(map(int, data.shape))
    if expected is not None and found != expected:
        raise UsageValueError(
            "expected data of shape %s, found an array of shape %s" % (expected, found)
        )
    _check_axis(found)
    return stream_of(data, data.dtype if wanted is None else wanted, found[1:])


def _new_from_blocks(
    blocks: Iterator[Any], shape: tuple[int, ...] | None, dtype: DType | None
) -> RowStream:
    """Return the rows of a new array whose blocks an iterator yields."""
    length = None if shape is None else shape[0]
    if shape is not None and dtype is not None:
        return RowStream(blocks, dtype, tuple(shape[1:]), length)
    first = next(blocks, None)
    if first is None:
        raise UsageValueError("an iterator without rows needs shape and dtype")
    check_mask(first)
    rows = numpy.asarray(first)
    inner = rows.shape[1:] if shape is None else tuple(shape[1:])

    def pieces() -> Iterator[Any]:
        yield rows
        yield from blocks

    return RowStream(pieces(), rows.dtype if dtype is None else dtype, inner, length)


def _checked_shape(shape: Any) -> tuple[int, ...]:
    lengths = tuple(shape) if hasattr(shape, "__iter__") else (shape,)
    try:
        found = tuple(map(operator.index, lengths))
    except TypeError as error:
        raise UsageTypeError("shape: expected lengths, found %r" % (shape,)) from error
    if any(length < 0 for length in found):
        raise UsageValueError("shape: the lengths can't be negative: %r" % (shape,))
    return found


def check_mask(values: Any) -> None:
    """Raise `UsageError` if values are masked."""
    if numpy.ma.is_masked(values):
        raise UsageError(
            "masked arrays can't be stored, the mask would be lost; store .filled() or "
            ".data and .mask"
        )


def _check_axis(shape: tuple[int, ...]) -> None:
    if not shape:
        raise UsageValueError(
            "a dataset holds rows, and an array without axes has none: give its item "
            "the shape (1,)"
        )
