"""Arrays of Arrow with the items of columns, for Parquet and for `Table.to_arrow`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy

from .._format.dtypes import Array, DType, check_text
from .._format.text import TEXT
from .._format.zarr_metadata import encode_attributes
from .._types import JsonObject
from ..exceptions import DoesNotFit, UsageTypeError
from .columns import naming_column
from .items import converted

if TYPE_CHECKING:
    import pyarrow

# The key of attributes in metadata of Arrow, and that of what pandas states.
ATTRIBUTES, PANDAS = b"bloscpack.attributes", b"pandas"
# Keys of metadata that are no attributes of their own, and the beginning of others.
OWN_KEYS, ARROW = (ATTRIBUTES, PANDAS, b"PANDAS_ATTRS"), b"ARROW:"
# Units of times that Arrow and pandas lack, and the units that replace them.
UNITS = {
    **dict.fromkeys(("Y", "M", "W", "D", "h", "m"), "s"),
    **dict.fromkeys(("ps", "fs", "as"), "ns"),
}


def arrow_type(dtype: DType, inner: tuple[int, ...], name: str) -> pyarrow.DataType:
    """Return the type of Arrow for items of a dtype, in rows of the shape `inner`."""
    import pyarrow

    if inner and inner[0]:
        return pyarrow.list_(arrow_type(dtype, inner[1:], name), inner[0])
    if inner:
        raise UsageTypeError(
            "Arrow and Parquet can't hold the column '%s' of dtype '%s', which has no "
            "items in a row" % (name, dtype)
        )
    if dtype.kind in "UO":
        return pyarrow.string()
    if dtype.kind == "S":
        return pyarrow.binary()
    if dtype.kind == "V" and dtype.names is None and dtype.itemsize:
        return pyarrow.binary(dtype.itemsize)
    if dtype.kind in "mM" and numpy.datetime_data(dtype)[0] != "generic":
        if numpy.datetime_data(dtype) == ("D", 1) and dtype.kind == "M":
            return pyarrow.date32()
        make = pyarrow.timestamp if dtype.kind == "M" else pyarrow.duration
        return make(numpy.datetime_data(fitting_unit(dtype))[0])
    if dtype.kind in "biuf" and dtype.itemsize <= 8:
        return pyarrow.from_numpy_dtype(dtype.newbyteorder("="))
    raise UsageTypeError(
        "Arrow and Parquet can't hold the column '%s' of dtype '%s'" % (name, dtype)
    )


def fitting_unit(dtype: DType) -> DType:
    """Return the type of times in a unit that Arrow and pandas have."""
    unit, _ = numpy.datetime_data(dtype)
    return numpy.dtype("%s8[%s]" % (dtype.kind, UNITS.get(unit, unit)))


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
        rows = _times(rows, wanted, name)
    return pyarrow.array(numpy.ascontiguousarray(native(rows)), wanted, mask=mask)


def metadata_of(attrs: JsonObject) -> dict[bytes, bytes] | None:
    """Return attributes as metadata of Arrow: texts by their names, others as JSON."""
    texts, others = {}, {}
    for name, value in attrs.items():
        try:
            key, text = name.encode(), value.encode()
            if key in OWN_KEYS or key.startswith(ARROW):
                raise ValueError("another program would read it")
            texts[key] = text
        except (AttributeError, ValueError):
            others[name] = value
    if others:
        texts[ATTRIBUTES] = encode_attributes(others).strip()
    return texts or None


def _times(rows: Array, wanted: pyarrow.DataType, name: str) -> Array:
    """Return times in the unit of a type of Arrow; raise `DoesNotFit` for far ones."""
    import pyarrow

    is_date = pyarrow.types.is_date32(wanted)
    unit = "D" if is_date else wanted.unit
    with naming_column(name):
        times = converted(native(rows), numpy.dtype(rows.dtype.kind + "8[%s]" % unit))
        if is_date:  # 32 bits, in which far dates would wrap
            days = times.view("i8")
            far = (days != days.astype("i4")) & ~numpy.isnat(times)
            if far.any():
                raise DoesNotFit(
                    "the date %s does not fit the type '%s' of Arrow"
                    % (times[far][0], wanted)
                )
    return times


def decoded(array: Array, name: str) -> list[str]:
    """Return a column of text or bytes as strings that UTF-8 can hold."""
    check_text(array)
    values: list[str | bytes] = array.tolist()
    for value in values if array.dtype == TEXT else ():
        if not isinstance(value, (str, bytes)):  # another object of bcolz
            raise UsageTypeError(
                "column '%s': expected text, found %.100r" % (name, value)
            )
    try:
        texts = [v.decode("utf-8") if isinstance(v, bytes) else v for v in values]
        "".join(texts).encode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageTypeError(
            "column '%s': expected text in UTF-8, found %.100r" % (name, error.object)
        ) from error
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        text = next(text for text in texts if half in text)
        raise UsageTypeError(
            "column '%s': expected text that UTF-8 can hold, found %.100r"
            % (name, text)
        ) from error
    return texts


def native(array: Array) -> Array:
    """Return an array in the byte order of the machine."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)
