"""Columns of text as arrays with items of one length."""

from __future__ import annotations

import numpy

from ...exceptions import UsageTypeError, UsageValueError

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..._format.dtypes import Array, DType


def longest(values: Iterable[str | bytes], most: int = 0) -> int:
    """Return the length of the longest value, at least `most`."""
    return max(most, max(map(len, values), default=0))


def text_dtype(length: int, kind: str = "U") -> DType:
    """Return the type of text (``"U"``) or bytes (``"S"``) of this length."""
    return numpy.dtype("%s%d" % (kind, max(1, length)))


def fixed(values: Sequence[str | bytes], dtype: DType, name: str) -> Array:
    """Return values as an array of fixed length; raise `UsageError` for a loss.

    An array of NumPy can't hold zeros at the end of text: it would lose them.
    """
    array: Array = numpy.array(values, dtype)
    unit = 4 if dtype.kind == "U" else 1
    if longest(values) * unit > dtype.itemsize:
        raise UsageValueError(
            "column '%s': expected text of at most %d characters, found '%d'"
            % (name, dtype.itemsize // unit, longest(values))
        )
    if any(value[-1:] in ("\0", b"\0") for value in values):
        raise UsageValueError(
            "column '%s': a value ends in a zero byte, which an array would lose" % name
        )
    return array


def decoded(array: Array, name: str) -> list[str]:
    """Return a column of text or bytes as strings."""
    values: list[str | bytes] = array.tolist()
    try:
        return [v.decode("utf-8") if isinstance(v, bytes) else v for v in values]
    except UnicodeDecodeError as error:
        raise UsageTypeError(
            "column '%s': expected text in UTF-8, found %.100r" % (name, error.object)
        ) from error


def native(array: Array) -> Array:
    """Return an array in the byte order of the machine."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)
