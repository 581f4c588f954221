"""Columns that users give, in any form, and which of their items are missing.

Items of pandas, Arrow and polars become masked arrays if some are missing. The mask of
a column is a column of its own in a table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy

from .._engine.contexts import errors_to
from .._format.dtypes import Array, DType, check_least_time, exact_array, foreign_items
from .._format.text import TEXT, empty_item
from .._types import JsonObject
from ..exceptions import DoesNotFit, UsageError, UsageTypeError, UsageValueError
from .items import check_mixture, is_array, is_missing, items_of

# The name of the column of booleans that says which items of a column are missing, and
# the attribute that it has, with the name of the other one.
MASK_NAME = "%s_missing"
MASK_OF = "mask-of"


def named_columns(rows: Any, names: list[str]) -> dict[str, Any]:
    """Return rows in any form as a mapping of names to columns."""
    if isinstance(rows, (numpy.ndarray, numpy.void)) and rows.dtype.names is not None:
        rows = numpy.atleast_1d(rows)
        return {name: rows[name] for name in rows.dtype.names}
    if hasattr(rows, "keys"):  # also a DataFrame
        check_different(list(rows.keys()))
        columns = {name: rows[name] for name in rows.keys()}  # noqa: SIM118
        indexes = {n: c.index for n, c in columns.items() if hasattr(c, "iloc")}
        for name, other in pairwise(indexes):
            # Of different lengths, these are the better message.
            same_length = len(indexes[name]) == len(indexes[other])
            if same_length and not indexes[name].equals(indexes[other]):
                raise UsageValueError(
                    "the Series '%s' and '%s' have different indexes, and a table has "
                    "none: pandas.DataFrame brings them in one order, and to_numpy() "
                    "leaves the index out" % (name, other)
                )
        return columns
    if hasattr(rows, "to_pandas"):
        raise UsageTypeError(
            "expected a DataFrame of pandas or a dictionary of columns, found '%s.%s', "
            "whose method to_pandas makes a DataFrame"
            % (type(rows).__module__, type(rows).__name__)
        )
    if isinstance(rows, (str, bytes)) or not (names and hasattr(rows, "__len__")):
        raise UsageTypeError(
            "expected a structured array, a dictionary of columns, or a sequence of "
            "columns with 'names', found %.200r" % (rows,)
        )
    if len(rows) != len(names):
        raise DoesNotFit("expected '%d' columns, found '%d'" % (len(names), len(rows)))
    check_different(names)
    return dict(zip(names, rows, strict=True))


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


def naming_column(name: str, kind: str = "column") -> errors_to:
    """Let the message of each `UsageError` name the column, if it has a name."""

    def translate(error: Exception) -> None:
        if name and isinstance(error, UsageError):
            raise type(error)("the %s '%s': %s" % (kind, name, error)) from error

    return errors_to(translate)


def check_different(names: Sequence[object]) -> None:
    """Raise `UsageError` if two columns have the same name."""
    if len(set(names)) < len(names):
        raise UsageValueError(
            "expected columns with different names, found %s"
            % ", ".join(map(str, names))
        )


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
    with foreign_items():
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
        check_mixture(items, array)
    if array.dtype.kind == "T":
        array = array.astype(TEXT)
    if array.dtype != TEXT or not array.size:
        return items
    missing = numpy.array([*map(is_missing, array.flat)], bool).reshape(array.shape)
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
    masked = {}
    for name, items in columns.items():
        with naming_column(name):
            masked[name] = with_missing(items)
    return masked


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
        present = numpy.fromiter(column, TEXT, len(column))[~missing]
    else:
        present = column[~missing].to_numpy()
    return _masked(present, missing)


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


def _masked(rest: Array, missing: Array) -> Array:
    """Return the items `rest` between others that are missing, as a masked array."""
    present = items_of(rest, keeps_text=True)
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
        if (column := columns.get(mask)) is not None
        and column.dtype.kind == "b"
        and len(column.shape) == len(columns[name].shape) == 1
        and column.attrs.get(MASK_OF) == name
    }
