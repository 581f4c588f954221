"""The types of a BigFile tree: their names on disk, and the conversions between them.

Pure functions. A name is a byte order, a kind and a width: ``<f4``. A block may have
the types of `WIDTHS`; an attribute may have a few more.
"""

from __future__ import annotations

import re
import sys
from functools import partial

import numpy

from ..exceptions import DamageError, Unsupported, UsageTypeError

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from typing import Any

    DType = numpy.dtype[Any]
    Array = numpy.ndarray[Any, DType]

NATIVE = "<" if sys.byteorder == "little" else ">"
# The widths in bytes that a block may have, for each kind.
WIDTHS = {
    "b": (1,),
    "i": (1, 2, 4, 8),
    "u": (1, 2, 4, 8),
    "f": (2, 4, 8, 16),
    "c": (8, 16),
    "S": tuple(range(1, 17)),
}
NUMBERS = "biufc"
# Numbers that the other type can't hold are converted as in C, without a warning.
SILENT_CASTS = partial(numpy.errstate, invalid="ignore", over="ignore", under="ignore")
_BLOCK_NAME = re.compile(r"([<>|=])([Sbiufc])([0-9]{1,2})")
_ATTRIBUTE_NAME = re.compile(r"([<>|=]?)([Sabiufc])([0-9]{1,6})")
_TIME_NAME = re.compile(r"([<>|=]?)([Mm]8(?:\[[A-Za-z]{1,2}\])?)")
# Maximum number of characters in the type of an attribute: its field has 8 bytes.
MAX_NAME = 7


def name_of(dtype: DType) -> str:
    """Return the name of a type on disk; it always has a byte order."""
    order = dtype.str[0]
    return (NATIVE if order in "|=" else order) + dtype.str[1:]


def check_storable(dtype: DType) -> None:
    """Raise `UsageTypeError` for a type that no block can have."""
    if dtype.kind in WIDTHS and dtype.itemsize in WIDTHS[dtype.kind]:
        return
    raise UsageTypeError(
        "a block can't have the dtype '%s': expected b1, i1 to i8, u1 to u8, f2 to "
        "f16, c8, c16, or S1 to S16" % dtype
    )


def block_dtype(name: str) -> DType:
    """Return the type with this name in a header.

    Raises `DamageError` for a name that the format does not know, and `Unsupported` for
    a type that NumPy does not have here.
    """
    match = _BLOCK_NAME.fullmatch(name)
    if match is None:
        raise DamageError("DTYPE: expected a type like '<f4', found '%s'" % name[:20])
    order, kind, width = match[1], match[2], int(match[3])
    if width not in WIDTHS[kind]:
        raise Unsupported("DTYPE: no number or string has the type '%s'" % name)
    return _dtype(order, "%s%d" % (kind, width))


def attribute_dtype(name: str) -> DType:
    """Return the type with this name in a line of attributes; see `block_dtype`."""
    match = _ATTRIBUTE_NAME.fullmatch(name) or _TIME_NAME.fullmatch(name)
    if match is None:
        raise DamageError("expected a type like '<f8', found '%s'" % name[:20])
    text = match[2] + (match[3] if match.lastindex == 3 else "")
    return _dtype(match[1], text.replace("a", "S"))


def _dtype(order: str, text: str) -> DType:
    order = NATIVE if order in ("", "|", "=") else order
    try:
        return numpy.dtype(order + text)
    except TypeError as error:
        raise Unsupported("NumPy has no type '%s' here" % (order + text)) from error


def native(dtype: DType) -> DType:
    """Return the type in the byte order of this machine."""
    return dtype.newbyteorder("=")


def check_convertible(source: DType, target: DType) -> None:
    """Raise `UsageTypeError` if items of a type can't be stored as the other type.

    Numbers become numbers as in C: floats lose their fraction. Strings may only become
    longer, and a complex number is never cut to its real part.
    """
    if source.kind == "S" and target.kind == "S":
        if source.itemsize <= target.itemsize:
            return
    elif (
        source.kind in NUMBERS
        and target.kind in NUMBERS
        and (source.kind != "c" or target.kind == "c")
    ):
        return
    raise UsageTypeError(
        "items of the type '%s' can't be converted to '%s'" % (source, target)
    )
