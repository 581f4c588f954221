"""Rows that users give: converted to the type of an array, and cut into blocks.

A value that the type of the array can't hold is refused, not changed. `RowStream` takes
rows in any form, in bounded memory: an array in memory is cut into views, an array
elsewhere, such as in a file, is read in slices, and an iterator yields blocks of rows.
Lists and the like become arrays first.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from functools import partial
from itertools import chain, groupby, pairwise
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy
from numpy.typing import DTypeLike

from .._arrays.selection import Part, Selection
from .._commit.change import Change
from .._commit.writer import Writer
from .._engine.threads import ordered
from .._format.array_metadata import MAX_ITEM_NBYTES, MAX_NBYTES
from .._format.dtypes import (
    AnyArray,
    Array,
    DType,
    are_equal,
    array_of,
    check_integers,
    check_least_time,
    check_text,
    encode_dtype,
    exact_array,
    foreign_items,
)
from .._format.grid import Box, Grid, Shape, inside, lengths
from .._format.grid import part as part_of
from .._format.text import TEXT, empty_item, item_nbytes
from .._types import JsonObject
from ..exceptions import DoesNotFit, UsageError, UsageTypeError, UsageValueError

if TYPE_CHECKING:
    from .layouts.base import ArrayLayout, Blocks, NewArray

Read = Callable[[Box], Array]


# Kinds of items that must be the same after they are converted. The others, such as
# floats, may be rounded.
EXACT = "biuSUmMV"
# Kinds of items of which truth values are none, but would become them.
NUMBERS = "iufcm"
# Number of plain bytes that are read at a time from an array that is not in memory, or
# converted at a time to another type.
READ_NBYTES = 8 * 2**20
# Number of columns that are written at the same time if there are at least as many, and
# the maximum number of bytes of the rows of each.
WIDE = 16
SMALL = 2**20
# The name of the column of booleans that says which items of a column are missing, and
# the attribute that it has, with the name of the other one.
MASK_NAME = "%s_missing"
MASK_OF = "mask-of"
ENDS_IN_ZERO = "a value ends in a zero byte, which an array would lose"


def items_of(values: object, *, keeps_text: bool = False) -> Array:
    """Return values as an array; text that a DataFrame has as objects becomes text.

    With `keeps_text`, it stays objects. Raises `UsageError` for text among other
    values, which NumPy would make text, for text that NumPy would cut off, and for
    integers that would become other numbers among floats.
    """
    check_mask(values)
    array: Array = numpy.asarray(exact_array(values))
    _check_ends(values, array)
    is_text = array.dtype.kind == "T" or (
        array.dtype == TEXT and any(isinstance(item, str) for item in array.flat)
    )
    if keeps_text and (is_text or (array.dtype == TEXT and not array.size)):
        return _text_of(array)
    if array.dtype.kind != "O":
        return array
    if not array.size:
        return array.astype("U")  # of a DataFrame without rows
    items = array.tolist()
    try:
        result: Array = numpy.asarray(exact_array(items))
    except ValueError:  # lists of different lengths
        return _text_of(array) if keeps_text else array
    _check_mixture(items, result)
    if result.dtype.kind in "SU":
        for item in array.flat:
            if not isinstance(item, (str, bytes)):
                raise UsageTypeError(_no_text(item))
        _check_ends(items, result)
    if keeps_text and result.dtype == TEXT:
        return _text_of(result)  # raises the error of items that are no text
    return result


def _check_ends(values: object, found: Array) -> None:
    """Raise `UsageError` if `found` lacks zero bytes at the end of a text in a list."""
    if found.dtype.kind in "SU" and not is_array(values):
        for item in numpy.array(values, TEXT).flat:
            if isinstance(item, (str, bytes)) and item[-1:] in ("\0", b"\0"):
                raise UsageValueError(ENDS_IN_ZERO)


def _check_mixture(items: Iterable[Any], found: Array) -> None:
    """Raise `DoesNotFit` for truth values among the objects that became numbers."""
    if found.dtype.kind not in NUMBERS:
        return
    types = {*map(type, items)}
    if not types.isdisjoint((bool, numpy.bool_)):
        raise DoesNotFit("expected numbers, found truth values among them")
    for item in items if not types.isdisjoint((list, tuple)) else ():
        _check_mixture(item if isinstance(item, (list, tuple)) else (), found)


def check_truth(items: Any, dtype: DType) -> None:
    """Raise `DoesNotFit` for truth values that would become numbers in a column."""
    if dtype.kind not in NUMBERS:
        return
    if not is_array(items) or items.dtype.kind == "O":
        items = items_of(items)
    if items.dtype.kind == "b":
        raise DoesNotFit(
            "expected items of dtype '%s', found truth values: astype makes 0 and 1 of "
            "them" % dtype
        )


def _text_of(values: object) -> Array:
    """Return values as text of variable length; raise `UsageError` for other values."""
    check_mask(values)
    array: Array = numpy.asarray(array_of(values))
    if array.dtype.kind == "S":
        _check_ends(values, array)
        array = converted(array, numpy.dtype("U%d" % array.dtype.itemsize))
    elif array.dtype.kind == "U" and array is not values:
        array = numpy.array(values, TEXT)  # NumPy drops zero bytes at the end
    check_text(array)
    items = array.astype(TEXT, copy=False)
    # An array of one item that is repeated may be of any size.
    single = tuple(slice(None if step else 1) for step in items.strides)
    try:
        "".join(items[(*single, ...)].flat).encode("utf-8")
    except UnicodeError as error:
        raise DoesNotFit("expected text that UTF-8 can hold: %s" % error) from error
    except TypeError as error:
        wrong = next(item for item in items.flat if not isinstance(item, str))
        raise DoesNotFit(_no_text(wrong)) from error
    return items


def _no_text(item: object) -> str:
    """Return a message about an object that is no text, with advice."""
    hint = ""
    if _is_missing(item):
        hint = ": only columns of tables have missing text"
    elif isinstance(item, bytes):
        hint = ": a dtype such as 'S8' is for bytes"
    elif isinstance(item, date):
        hint = ": numpy.array(items, 'datetime64[us]') makes an array of times"
        if getattr(item, "tzinfo", None) is not None:
            hint = ", and no array can have a time zone: convert the times to UTC"
    return "expected text in each item, found %.200r%s" % (item, hint)


@foreign_items()
def items_of_pandas(column: Any) -> Array:
    """Return the items of a Series, or of an array of pandas.

    They are masked if some are missing, and the dtype has no value for these. Raises
    `UsageError` if NumPy would change them.
    """
    if hasattr(column.dtype, "categories"):
        raise UsageValueError(
            "no array can have categories: store the values with "
            "astype(column.cat.categories.dtype), or the numbers of cat.codes"
        )
    if getattr(column.dtype, "tz", None) is not None:
        raise UsageValueError(
            "no array can have the time zone '%s': remove it with dt.tz_convert(None)"
            % column.dtype.tz
        )
    items: Array
    missing = numpy.asarray(column.isna(), bool)
    if column.dtype.kind not in "iubO" or not missing.any():
        items = column.to_numpy()
        check_least_time(column, items)
        return items
    if column.dtype.kind == "O":  # Arrow has no filter for some of these types
        found = numpy.fromiter(column, TEXT, len(column))[~missing]
    else:
        found = column[~missing].to_numpy()
    return _masked(found, missing)


def _masked(found: Array, missing: Array) -> Array:
    """Return the items `found` between others that are missing, as a masked array."""
    present = items_of(found, keeps_text=True)
    if present.ndim != 1:
        raise UsageTypeError(
            "expected a list in each row, found a missing one: no column of several "
            "axes says which are missing"
        )
    fill = empty_item(present.dtype)
    items: Array = numpy.ma.array(numpy.full(missing.shape, fill, present.dtype))
    items[~missing] = present
    items[missing] = numpy.ma.masked
    return items


@foreign_items()
def _items_of_arrow(column: Any) -> Any:
    """Return integers and booleans of which some are missing as a masked array.

    `column` is an array of Arrow or a Series of polars. Others are returned as they
    are: NumPy has NaN and NaT for missing floats and times. Raises `UsageError` for
    categories that have an order.
    """
    is_enum = type(getattr(column, "dtype", None)).__name__ == "Enum"  # of polars
    if is_enum or getattr(getattr(column, "type", None), "ordered", False):
        raise UsageValueError(
            "no array can have categories in an order: cast the column to the type of "
            "its values"
        )
    missing = numpy.asarray(column.is_null(), bool)
    drop = getattr(column, "drop_null", None) or getattr(column, "drop_nulls", None)
    if drop is None or missing.ndim != 1 or not missing.any():
        return column
    if numpy.asarray(column[:0]).dtype.kind not in "iub":
        return column
    present = numpy.asarray(drop())
    items = numpy.ma.array(numpy.zeros(len(missing), present.dtype), mask=missing)
    items.data[~missing] = present
    return items


def dtype_of_rows(columns: Mapping[str, Any]) -> DType:
    """Return the dtype of rows of columns, which have a dtype and a shape."""
    # NumPy takes no shape, not even (), for a type of zero bytes such as `S0`.
    pairs = [(c.dtype, c.shape[1:]) for c in columns.values()]
    formats = [(dtype, shape) if shape else dtype for dtype, shape in pairs]
    return numpy.dtype({"names": list(columns), "formats": formats})


def with_missing(items: Any) -> Any:
    """Return items of which some are missing as a masked array; others unchanged.

    Text is objects of `str`, as in the arrays of Arrow and pandas, of which None, NaN
    and ``pandas.NA`` are missing. It has the text ``''`` in their place. So are bytes.
    """
    is_lazy = hasattr(items, "divisions")  # of Dask
    if hasattr(items, "isna") and hasattr(items, "dtype") and not is_lazy:
        items = items_of_pandas(items)
    elif hasattr(items, "is_null"):
        items = _items_of_arrow(items)
    if numpy.ma.isMaskedArray(items):
        return items
    is_plain = isinstance(items, numpy.ndarray)
    if is_array(items) and (not is_plain or items.dtype.kind not in "OT"):
        return items
    array = numpy.asarray(exact_array(items))
    if isinstance(items, (list, tuple)):
        _check_mixture(items, array)
    if array.dtype.kind == "T":
        array = array.astype(TEXT)
    if array.dtype != TEXT or not array.size:
        return items
    missing = numpy.array([*map(_is_missing, array.flat)], bool).reshape(array.shape)
    types = {*map(type, array[~missing])}
    if not all(issubclass(each, str) for each in types):
        if not missing.any() or types != {bytes}:
            return items
        return _masked(array[~missing], missing)
    if not missing.any():
        return array
    return numpy.ma.array(numpy.where(missing, "", array), TEXT, mask=missing)


def columns_with_missing(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns as `with_missing` does; errors name the column."""
    found = {}
    for name, items in columns.items():
        with naming_column(name):
            found[name] = with_missing(items)
    return found


def _is_missing(item: object) -> bool:
    """Return whether an item among objects means that it is missing."""
    is_nan = isinstance(item, float) and item != item
    return item is None or is_nan or type(item).__name__ == "NAType"


def converted(values: object, dtype: DType) -> Array:
    """Return values as an array of `dtype`; raise `UsageError` if one does not fit."""
    if dtype == TEXT:
        return _text_of(values)
    if dtype.names is not None and isinstance(values, (list, tuple, int, float)):
        return _from_tuples(values, dtype)
    array = items_of(values)
    if array.dtype == dtype:
        return array
    if not array.size and array.dtype.kind in "fU":
        return array.astype(dtype)  # an empty list
    if not _is_convertible(array.dtype, dtype):
        raise DoesNotFit(
            "expected items of dtype '%s', found '%s'" % (dtype, array.dtype)
        )
    try:
        with numpy.errstate(over="ignore"):
            result: Array = array.astype(dtype)
            same = _unchanged(array, result)
    except (OverflowError, ValueError) as error:
        raise DoesNotFit(
            "a value does not fit the dtype '%s': %s" % (dtype, error)
        ) from error
    if same is not None and not same.all():
        value = array[~same].flat[0]
        raise DoesNotFit(
            "the value %.200s does not fit the dtype '%s'"
            % (repr(value.item()) if array.dtype.kind in "SU" else value, dtype)
        )
    has_objects = getattr(values, "dtype", TEXT) == TEXT
    if has_objects and dtype.kind in "fc" and array.dtype.kind in "fc":
        check_integers(values, result)
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

    Floats may be rounded, but must stay finite. Integers must stay equal.
    """
    kinds = array.dtype.kind, result.dtype.kind
    is_whole = kinds[0] in "iu" and kinds[1] in "fc"
    # NumPy calls a finer unit of time safe, and lets far dates wrap. It calls floats
    # safe that do not hold all integers of 8 bytes.
    is_checked = kinds[0] in "mM" or (is_whole and array.dtype.itemsize == 8)
    if not is_checked and numpy.can_cast(array.dtype, result.dtype, "safe"):
        return None
    same: Array
    if is_whole:
        return are_equal(array, result.real)
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
    elif kinds == ("u", "m"):
        same &= result.view("i8") >= 0
    return same


def _from_tuples(values: object, dtype: DType) -> Array:
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


def check_fill_value(value: object, dtype: DType) -> None:
    """Raise `UsageError` unless a fill value is an item of `dtype`, or None."""
    if value is None:
        return
    item: Array = numpy.zeros((), dtype)
    given, why = array_of(value), ""
    kinds = given.dtype.kind, dtype.kind
    try:
        if kinds[0] == "c" != kinds[1]:
            raise TypeError("it is complex")
        with numpy.errstate(over="ignore"):
            item[...] = value
        is_text = kinds[0] == kinds[1] and kinds[1] in "SU"
        is_time = kinds[0] in "mM" and kinds[1] in "mM"
        is_same: object = None
        if is_time or (kinds[0] in "iufc" and kinds[1] in "fc"):
            is_same = _unchanged(given, item)
        elif is_text or kinds[1] in "biu":
            is_same = item[()] == (value if is_text else given)
        if is_same is not None and not is_same:
            why = "it would become %r" % item[()]
    except (TypeError, ValueError, OverflowError) as error:
        why = str(error)
    if why:
        raise UsageValueError(
            "the fill value %.200r does not fit the dtype '%s': %s"
            % (value, dtype, why)
        )


def as_rows(values: object, dtype: DType, inner: tuple[int, ...]) -> Array:
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


def chunk_shape(value: Any, name: str) -> int | Shape | None:
    """Return a number of rows, a length for each axis, or None for none.

    Raises `UsageError` for any other type; `name` is that of the parameter.
    """
    given = list(value) if isinstance(value, (list, tuple)) else [value]
    try:
        if any(isinstance(n, bool) for n in given):
            raise TypeError("True is no number")
        found = tuple(map(operator.index, given)) if value is not None else ()
    except TypeError as error:
        raise UsageTypeError(
            "%s: expected a number of rows, or a length for each axis, found %.200r"
            % (name, value)
        ) from error
    if value is None:
        return None
    return found if isinstance(value, (list, tuple)) else found[0]


# Chunks that change


def changed_blocks(
    grid: Grid,
    selection: Selection,
    items: Any,
    read: Read | None,
    old: Shape | None = None,
    dtype: DType | None = None,
    parts: Sequence[Part] | None = None,
) -> Blocks:
    """Yield the chunks that change when the selected items become `items`.

    Parameters
    ----------
    grid
        How the array is cut after the change.
    selection
        The selected items.
    items
        The new items, as `Selection.spread` returns them.
    read
        Returns the items of a box that stay; None if no items stay.
    old
        The shape of the array that `read` reads; by default that of `grid`.
    dtype
        If it is given, `items` are converted to it, a box for each shard. So they may
        be an array that is not in memory.
    parts
        The parts of the selection that change; by default all.
    """
    order = selection.joint + selection.others
    old = grid.shape if old is None else old
    parts = selection.parts(grid) if parts is None else parts
    for _, of_shard in groupby(parts, lambda part: part[0] // grid.slots):
        group, given, corner = list(of_shard), items, None
        if dtype is not None:
            targets: Any = zip(*(to for _, to, _ in group), strict=True)
            ends = [(min(s.start for s in t), max(s.stop for s in t)) for t in targets]
            corner = tuple(start for start, _ in ends)
            box = tuple(slice(*pair) for pair in ends)
            given = converted(items[box], dtype)
        for number, target, source in group:
            if corner is not None:
                target = inside(target, corner)  # type: ignore[arg-type]
            shape = lengths(grid.box(number))
            is_box = all(isinstance(i, slice) for i in source)
            if is_box and source == tuple(slice(0, n, 1) for n in shape):
                yield number, given[(*target, ...)]  # an array, also without axes
                continue
            block: Array = numpy.empty(shape, given.dtype)
            if read is not None:
                kept = part_of(grid.corner(number), grid.chunk, old)
                block[tuple(slice(0, n) for n in lengths(kept))] = read(kept)
            block.transpose(order)[source] = given[target]
            yield number, block


def blocks_of(
    rows: AnyArray,
    grid: Grid,
    first: int = 0,
    read: Read | None = None,
    dtype: DType | None = None,
) -> Blocks:
    """Yield the chunks that change when rows are put behind `first` rows.

    The array ends with them. `read` and `dtype` are as in `changed_blocks`. Without
    `read`, there is a chunk that begins with the first row.
    """
    inner = grid.shape[1:]
    grid = grid.resized((first + rows.shape[0], *inner))
    added = Selection(slice(first, None), grid.shape)
    return changed_blocks(grid, added, rows, read, (first, *inner), dtype)


def with_fields(names: str | list[str], values: object, dtype: DType) -> Array:
    """Return values as items that have only the fields `names` of `dtype`."""
    fields = numpy.empty(0, dtype)[names]
    items = converted(values, fields.dtype)
    listed = [names] if isinstance(names, str) else names
    shape = items.shape[: max(0, items.ndim + 1 - fields.ndim)]
    result: Array = numpy.empty(shape, [(name, dtype[name]) for name in listed])
    result[names] = items
    return result


# Rows of tables


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


def all_columns(
    rows: object, names: list[str], masks: Mapping[str, str]
) -> dict[str, Any]:
    """Return the same as `named_columns`; raise `UsageError` for any other names.

    `masks` has the names of the columns that get the masks of others.
    """
    given = columns_with_missing(named_columns(rows, names))
    for name, items in list(given.items()):
        if name in masks:
            given.setdefault(masks[name], numpy.ma.getmaskarray(items))
            given[name] = without_mask(items)
        elif numpy.ma.is_masked(items):
            raise DoesNotFit(
                "the column '%s' has missing items, and the table has no column '%s' "
                "with the attribute '%s' for them" % (name, MASK_NAME % name, MASK_OF)
            )
    if set(given) != set(names):
        raise DoesNotFit(
            "expected the columns %s, found %s"
            % (", ".join(names), ", ".join(map(str, given)))
        )
    return given


def without_mask(items: Any) -> Any:
    """Return items with zeros in place of those that are missing."""
    if not numpy.ma.is_masked(items):
        return items
    return items.filled(empty_item(items.dtype))


def with_masks(columns: Mapping[str, Any]) -> dict[str, tuple[Any, JsonObject]]:
    """Return columns without masks, and the attributes of each one.

    Behind each column that has a mask, the mask is a column.
    """
    result: dict[str, tuple[Any, JsonObject]] = {}
    columns = columns_with_missing(columns)
    for name, items in columns.items():
        result[name] = items, {}
        if numpy.ma.is_masked(items) and items.ndim == 1:
            mask = MASK_NAME % name
            check_different([*columns, mask])
            result[name] = without_mask(items), {}
            result[mask] = numpy.ma.getmaskarray(items), {MASK_OF: name}
    return result


def masks_of(columns: Mapping[str, Any]) -> dict[str, str]:
    """Return the columns with missing items, and the ones that say which."""
    masks = {name: MASK_NAME % name for name in columns}
    return {
        name: mask
        for name, mask in masks.items()
        if (found := columns.get(mask)) is not None
        and found.dtype.kind == "b"
        and len(found.shape) == len(columns[name].shape) == 1
        and found.attrs.get(MASK_OF) == name
    }


def named_columns(rows: Any, names: list[str]) -> dict[str, Any]:
    """Return rows in any form as a mapping of names to columns."""
    if isinstance(rows, (numpy.ndarray, numpy.void)) and rows.dtype.names is not None:
        rows = numpy.atleast_1d(rows)
        return {name: rows[name] for name in rows.dtype.names}
    if hasattr(rows, "keys"):  # also a DataFrame
        check_different(list(rows.keys()))
        found = {name: rows[name] for name in rows.keys()}  # noqa: SIM118
        indexes = {n: c.index for n, c in found.items() if hasattr(c, "iloc")}
        for name, other in pairwise(indexes):
            # Of different lengths, these are the better message.
            same_length = len(indexes[name]) == len(indexes[other])
            if same_length and not indexes[name].equals(indexes[other]):
                raise UsageValueError(
                    "the Series '%s' and '%s' have different indexes, and a table has "
                    "none: pandas.DataFrame brings them in one order, and to_numpy() "
                    "leaves the index out" % (name, other)
                )
        return found
    if isinstance(rows, (str, bytes)) or not hasattr(rows, "__len__"):
        raise UsageTypeError(
            "expected a structured array, a dictionary or a sequence of columns, found "
            "%.200r" % (rows,)
        )
    if hasattr(rows, "to_pandas"):
        raise UsageTypeError(
            "expected a DataFrame of pandas or a dictionary of columns, found '%s.%s', "
            "whose method to_pandas makes a DataFrame"
            % (type(rows).__module__, type(rows).__name__)
        )
    if len(rows) != len(names):
        raise DoesNotFit("expected '%d' columns, found '%d'" % (len(names), len(rows)))
    check_different(names)
    return dict(zip(names, rows, strict=True))


@contextmanager
def naming_column(name: str, kind: str = "column") -> Iterator[None]:
    """Let the message of each `UsageError` name the column, if it has a name."""
    try:
        yield
    except UsageError as error:
        if not name:
            raise
        raise type(error)("the %s '%s': %s" % (kind, name, error)) from error


def check_different(names: Sequence[object]) -> None:
    """Raise `UsageError` if two columns have the same name."""
    if len(set(names)) < len(names):
        raise UsageValueError(
            "expected columns with different names, found %s"
            % ", ".join(map(str, names))
        )


def check_same_length(columns: Mapping[str, Array | RowStream]) -> None:
    """Raise `DoesNotFit` unless all columns have the same number of rows."""
    lengths = {name: column.shape[0] for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise DoesNotFit("the columns have different lengths: %s" % lengths)


# Streams of rows


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
                check_mask(piece)
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
        while len(rows := self.take(step - start % step)):
            first, skipped = divmod(start, grid.chunk[0])
            if grid.is_rows and rows.size and not skipped:  # the usual case, for speed
                size = grid.chunk[0]
                for number, begin in enumerate(range(0, len(rows), size), first):
                    yield number, rows[begin : begin + size]
            else:
                yield from blocks_of(rows, grid, start, read)
            start += len(rows)


def append_rows(
    writer: Writer,
    rows: Mapping[ArrayLayout, RowStream],
    *,
    flushes: bool = True,
    taken_over: Callable[[], object] = bool,
) -> None:
    """Append rows to arrays of one length, in one change.

    `flushes` says that the rows that wait in memory are written first. `taken_over` is
    called when the arrays have the rows.
    """

    def shape_of(layout: ArrayLayout) -> Shape:
        return layout.shape[0] + (rows[layout].length or 0), *layout.shape[1:]

    def stage(change: Change, layout: ArrayLayout) -> None:
        grid, read = layout.grid, layout.reader.get
        blocks = rows[layout].blocks(grid, layout.shape[0], read)
        layout.stage(change, grid, blocks, partial(shape_of, layout), extends=True)

    def take_over() -> None:
        for layout in rows:
            layout.committed(shape_of(layout))
        taken_over()

    with writer.change(take_over, disturbs=False, flushes=flushes) as change:
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


def is_array(values: object) -> TypeGuard[AnyArray]:
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
        return _text_of(values)
    array = numpy.asarray(exact_array(values))
    _check_ends(values, array)
    return array


def text_or(dtype: DType, has_text: bool) -> DType:
    """Return the dtype of text of variable length for ``str`` and for `StringDType`.

    All other dtypes stay, and these if there is no such text.
    """
    is_text = dtype.kind == "T" or (dtype.kind == "U" and not dtype.itemsize)
    return TEXT if has_text and is_text else dtype


def checked_shape(shape: object) -> tuple[int, ...]:
    """Return a number of rows, or lengths, as a shape."""
    try:
        lengths = tuple(shape) if numpy.iterable(shape) else (shape,)
        found = tuple(map(operator.index, lengths))
    except TypeError as error:
        raise UsageTypeError("shape: expected lengths, found %r" % (shape,)) from error
    if any(length < 0 for length in found):
        raise UsageValueError("shape: the lengths can't be negative: %r" % (shape,))
    return found


def check_mask(values: object) -> None:
    """Raise `UsageError` if values are masked."""
    if numpy.ma.is_masked(values):
        raise UsageError(
            "masked arrays can't be stored, the mask would be lost; store .filled() or "
            ".data and .mask"
        )
