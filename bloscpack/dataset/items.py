"""Values that users give, as items of an array: converted to its type, and checked.

A value that the type of the array can't hold is refused, not changed. Lists and the
like become arrays first.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from datetime import date
from typing import Any, TypeGuard

import numpy

from .._format.array_metadata import MAX_ITEM_NBYTES, MAX_NBYTES
from .._format.dtypes import (
    AnyArray,
    Array,
    DType,
    are_equal,
    array_of,
    check_integers,
    check_text,
    exact_array,
)
from .._format.grid import Shape
from .._format.text import TEXT
from ..exceptions import DoesNotFit, UsageError, UsageTypeError, UsageValueError

# Kinds of items that must be the same after they are converted. The others, such as
# floats, may be rounded.
EXACT = "biuSUmMV"
# Kinds of items of which truth values are none, but would become them.
NUMBERS = "iufcm"
ENDS_IN_ZERO = "a value ends in a zero byte, which an array would lose"


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


def check_mask(values: object) -> None:
    """Raise `UsageError` if values are masked."""
    if numpy.ma.is_masked(values):
        raise UsageError(
            "masked arrays can't be stored, the mask would be lost; store .filled() or "
            ".data and .mask"
        )


def items_of(values: object, *, keeps_text: bool = False) -> Array:
    """Return values as an array; text that a DataFrame has as objects becomes text.

    With `keeps_text`, it stays objects. Raises `UsageError` for text among other
    values, which NumPy would make text, for text that NumPy would cut off, and for
    integers that would become other numbers among floats.
    """
    check_mask(values)
    array: Array = numpy.asarray(exact_array(values))
    check_ends(values, array)
    is_text = array.dtype.kind == "T" or (
        array.dtype == TEXT and any(isinstance(item, str) for item in array.flat)
    )
    if keeps_text and (is_text or (array.dtype == TEXT and not array.size)):
        return text_of(array)
    if array.dtype.kind != "O":
        return array
    if not array.size:
        return array.astype("U")  # of a DataFrame without rows
    items = array.tolist()
    try:
        result: Array = numpy.asarray(exact_array(items))
    except ValueError:  # lists of different lengths
        return text_of(array) if keeps_text else array
    check_mixture(items, result)
    if result.dtype.kind in "SU":
        for item in array.flat:
            if not isinstance(item, (str, bytes)):
                raise UsageTypeError(_no_text(item))
        check_ends(items, result)
    if keeps_text and result.dtype == TEXT:
        return text_of(result)  # raises the error of items that are no text
    return result


def check_ends(values: object, new: Array) -> None:
    """Raise `UsageError` if `new` lacks zero bytes at the end of a text in a list."""
    if new.dtype.kind in "SU" and not is_array(values):
        for item in numpy.array(values, TEXT).flat:
            if isinstance(item, (str, bytes)) and item[-1:] in ("\0", b"\0"):
                raise UsageValueError(ENDS_IN_ZERO)


def check_mixture(items: Iterable[Any], new: Array) -> None:
    """Raise `DoesNotFit` for truth values among the objects that became numbers."""
    if new.dtype.kind not in NUMBERS:
        return
    types = {*map(type, items)}
    if not types.isdisjoint((bool, numpy.bool_)):
        raise DoesNotFit("expected numbers, found truth values among them")
    for item in items if not types.isdisjoint((list, tuple)) else ():
        check_mixture(item if isinstance(item, (list, tuple)) else (), new)


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


def text_of(values: object) -> Array:
    """Return values as text of variable length; raise `UsageError` for other values."""
    check_mask(values)
    array: Array = numpy.asarray(array_of(values))
    if array.dtype.kind == "S":
        check_ends(values, array)
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
    if is_missing(item):
        hint = ": only columns of tables have missing text; NaN is a missing number"
    elif isinstance(item, bytes):
        hint = ": a dtype such as 'S8' is for bytes"
    elif isinstance(item, date):
        hint = ": numpy.array(items, 'datetime64[us]') makes an array of times"
        if getattr(item, "tzinfo", None) is not None:
            hint = ", and no array can have a time zone: convert the times to UTC"
    return "expected text in each item, found %.200r%s" % (item, hint)


def is_missing(item: object) -> bool:
    """Return whether an item among objects means that it is missing."""
    is_nan = isinstance(item, float) and item != item
    return item is None or is_nan or type(item).__name__ == "NAType"


def converted(values: object, dtype: DType) -> Array:
    """Return values as an array of `dtype`; raise `UsageError` if one does not fit."""
    if dtype == TEXT:
        return text_of(values)
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


def _is_convertible(given: DType, wanted: DType) -> bool:
    """Return whether items of a type can have values of another one."""
    if (given.kind == "O" or wanted.kind in "SU") and given.kind not in wanted.kind:
        return given.kind + wanted.kind == "SU"
    if given.kind in "iu" and wanted.kind in "iu":
        return True
    return numpy.can_cast(given, wanted, "same_kind")


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


def with_fields(names: str | list[str], values: object, dtype: DType) -> Array:
    """Return values as items that have only the fields `names` of `dtype`."""
    fields = numpy.empty(0, dtype)[names]
    items = converted(values, fields.dtype)
    listed = [names] if isinstance(names, str) else names
    shape = items.shape[: max(0, items.ndim + 1 - fields.ndim)]
    result: Array = numpy.empty(shape, [(name, dtype[name]) for name in listed])
    result[names] = items
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


def text_or(dtype: DType, has_text: bool) -> DType:
    """Return the dtype of text of variable length for ``str`` and for `StringDType`.

    All other dtypes stay, and so do these unless the layout `has_text` of that kind.
    """
    is_text = dtype.kind == "T" or (dtype.kind == "U" and not dtype.itemsize)
    return TEXT if has_text and is_text else dtype


def checked_shape(shape: object) -> tuple[int, ...]:
    """Return a number of rows, or lengths, as a shape."""
    try:
        lengths = tuple(shape) if numpy.iterable(shape) else (shape,)
        checked = tuple(map(operator.index, lengths))
    except TypeError as error:
        raise UsageTypeError("shape: expected lengths, found %r" % (shape,)) from error
    if any(length < 0 for length in checked):
        raise UsageValueError("shape: the lengths can't be negative: %r" % (shape,))
    return checked


def chunk_shape(value: Any, name: str) -> int | Shape | None:
    """Return a number of rows, a length for each axis, or None for none.

    Raises `UsageError` for any other type; `name` is the name of the parameter.
    """
    given = list(value) if isinstance(value, (list, tuple)) else [value]
    try:
        if any(isinstance(n, bool) for n in given):
            raise TypeError("True is no number")
        numbers = tuple(map(operator.index, given)) if value is not None else ()
    except TypeError as error:
        raise UsageTypeError(
            "%s: expected a number of rows, or a length for each axis, found %.200r"
            % (name, value)
        ) from error
    if value is None:
        return None
    return numbers if isinstance(value, (list, tuple)) else numbers[0]
