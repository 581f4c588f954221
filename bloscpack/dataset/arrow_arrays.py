"""Arrays of Arrow with the items of columns, for Parquet and for `Table.to_arrow`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy

from .._format.dtypes import Array, DType, check_text
from .._format.text import TEXT
from ..exceptions import UsageTypeError

if TYPE_CHECKING:
    import pyarrow

# Units of times that Parquet has; others become a finer one.
UNITS = {"W": "s", "h": "s", "m": "s"}
FINE_UNITS = ("ms", "us", "ns")


def arrow_type(dtype: DType, inner: tuple[int, ...], name: str) -> pyarrow.DataType:
    """Return the type of Arrow for items of a dtype, in rows of the shape `inner`."""
    import pyarrow

    if inner:
        return pyarrow.list_(arrow_type(dtype, inner[1:], name), inner[0])
    if dtype.kind in "UO":
        return pyarrow.string()
    if dtype.kind == "S":
        return pyarrow.binary()
    if dtype.kind == "V" and dtype.names is None:
        return pyarrow.binary(dtype.itemsize)
    if dtype.kind in "mM":
        unit, count = numpy.datetime_data(dtype)
        unit = UNITS.get(unit, unit)
        if unit == "D" and dtype.kind == "M" and count == 1:
            return pyarrow.date32()
        unit = "s" if unit == "D" else unit
        if unit == "s" or unit in FINE_UNITS:
            make = pyarrow.timestamp if dtype.kind == "M" else pyarrow.duration
            return make(unit)
    if dtype.kind in "biuf" and dtype.itemsize <= 8:
        return pyarrow.from_numpy_dtype(dtype.newbyteorder("="))
    raise UsageTypeError(
        "Arrow and Parquet can't hold the column '%s' of dtype '%s'" % (name, dtype)
    )


def arrow_array(
    rows: Array, wanted: pyarrow.DataType, name: str, mask: Array | None = None
) -> pyarrow.Array:
    """Return rows of a column as an array of Arrow; `mask` says which are missing."""
    import pyarrow

    if rows.ndim > 1:
        flat = rows.reshape(-1, *rows.shape[2:])
        inner = arrow_array(flat, wanted.value_type, name)
        return pyarrow.FixedSizeListArray.from_arrays(inner, rows.shape[1])
    if rows.dtype.kind in "UO":
        return pyarrow.array(decoded(rows, name), wanted, mask=mask)
    if rows.dtype.kind in "SV":
        return pyarrow.array(rows.tolist(), wanted, mask=mask)
    if rows.dtype.kind in "mM":
        unit = "D" if pyarrow.types.is_date32(wanted) else wanted.unit
        rows = native(rows).astype("%s8[%s]" % (rows.dtype.kind, unit))
    return pyarrow.array(numpy.ascontiguousarray(native(rows)), wanted, mask=mask)


def decoded(array: Array, name: str) -> list[str]:
    """Return a column of text or bytes as strings."""
    check_text(array)
    values: list[str | bytes] = array.tolist()
    for value in values if array.dtype == TEXT else ():
        if not isinstance(value, (str, bytes)):  # another object of bcolz
            raise UsageTypeError(
                "column '%s': expected text, found %.100r" % (name, value)
            )
    try:
        return [v.decode("utf-8") if isinstance(v, bytes) else v for v in values]
    except UnicodeDecodeError as error:
        raise UsageTypeError(
            "column '%s': expected text in UTF-8, found %.100r" % (name, error.object)
        ) from error


def native(array: Array) -> Array:
    """Return an array in the byte order of the machine."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)
