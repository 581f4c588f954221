"""Rows of several columns at once, as structured arrays of NumPy and as DataFrames."""

from __future__ import annotations

import operator

import numpy

from ..exceptions import UsageValueError
from .array import Array

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from .._format.dtypes import Array as Items


def read_rows(columns: Mapping[str, Array], count: int, key: Any) -> Any:
    """Return rows of a table as a structured array, or one row.

    Parameters
    ----------
    columns
        The columns to read.
    count
        The number of rows of the table; a column may have more.
    key
        The number of a row, a slice, row numbers or booleans.
    """
    if isinstance(key, tuple):
        raise IndexError("a table has one axis: expected one index, found a tuple")
    if isinstance(key, Array):
        key = key[:]
    if not isinstance(key, (slice, list, numpy.ndarray)):
        number = operator.index(key)
        if not -count <= number < count:
            raise IndexError(
                "row %d is out of bounds of a table of %d rows" % (number, count)
            )
        start = number % count
        return read_rows(columns, count, slice(start, start + 1))[0]
    key, nrows = _in_all_columns(key, count)
    fields = [(n, c.dtype, c.shape[1:]) for n, c in columns.items()]
    result: Items = numpy.empty(nrows, fields)
    for name, column in columns.items():
        result[name] = column[key]
    return result


def _in_all_columns(key: Any, count: int) -> tuple[slice | Items, int]:
    """Return an index that counts from the end of the table, and its number of rows.

    The end of a column may be another one.
    """
    if isinstance(key, slice):
        rows = range(*key.indices(count))
        stop = rows.stop if rows.stop >= 0 else None
        return slice(rows.start, stop, rows.step) if rows else slice(0), len(rows)
    selected = numpy.asarray(key)
    if not selected.size and selected.dtype.kind == "f":
        selected = selected.astype("i8")  # an empty list
    if selected.ndim != 1:
        raise IndexError("expected row numbers or booleans in one axis")
    numbers: Items = numpy.arange(count)[selected]
    return numbers, len(numbers)


def read_frame(columns: Mapping[str, Array], rows: slice) -> Any:
    """Return rows as a DataFrame; raise `UsageError` if a column has several axes."""
    import pandas

    data = {}
    for name, column in columns.items():
        if column.ndim > 1:
            raise UsageValueError(
                "a DataFrame has no columns with several axes, such as '%s' of "
                "shape %s" % (name, column.shape)
            )
        items = column[rows]
        if items.dtype.kind in "biufcmM":  # pandas wants the order of the machine
            items = items.astype(items.dtype.newbyteorder("="), copy=False)
        else:
            items = items.astype(object)
        data[name] = items
    return pandas.DataFrame(data, columns=list(columns))
