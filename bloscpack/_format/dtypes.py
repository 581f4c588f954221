"""NumPy dtypes in the metadata of an array: dtype to text, and text or list to dtype.

Text from a file is parsed as a literal, never evaluated (docs/format.rst, Arrays).
"""

from __future__ import annotations

import re
import reprlib
import sys

import numpy

from ..defaults import DEFAULT_DTYPE_LIMIT
from ..exceptions import (
    DamageError,
    ObjectDtypeFound,
    ObjectNumpyArrayRejection,
    UsageValueError,
)
from .literals import parse_literal

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from numpy.typing import NDArray

    Array = NDArray[Any]
    DType = numpy.dtype[Any]

# A type without fields, such as `<f8`, `|S5`, `<M8[25s]` or `float64`.
_TYPE = r"[<>=|]?[A-Za-z?][A-Za-z0-9]*(\[[A-Za-z0-9/]+\])?"
# Such a type, or several of them, such as `i4,f8`: text that is not a literal.
PLAIN_DTYPE = re.compile(r"%s(, ?%s)*" % (_TYPE, _TYPE))
# A unit of time with a zero in front of it, or as a divisor.
ZERO_UNIT = re.compile(r"(M8|m8|datetime64|timedelta64)\[(0|[^\]]*/0)")
# Maximum number of characters, and of elements of a list, in an error message.
SHOWN_CHARACTERS = 200
SHOWN_ELEMENTS = 20


def encode_dtype(dtype: DType) -> str:
    """Return the text of a dtype for the metadata: the repr of its descr.

    Raises `ObjectNumpyArrayRejection` for objects, and `UsageError` for a dtype that
    cannot be read again, for example one whose fields overlap.
    """
    if holds_objects(dtype):
        raise ObjectNumpyArrayRejection(_refusal(dtype))
    check_known(dtype)
    try:
        if dtype.names is None:
            return repr(dtype.descr[0][1])
        text = repr(dtype.descr)
        # What readers refuse, such as a dtype that is long or deeply nested.
        _check_parts(parse_literal(text))
    except ValueError as error:
        raise UsageValueError(
            "arrays with dtype '%.200s' can't be stored: %s" % (dtype, error)
        ) from error
    return text


def check_known(dtype: DType) -> None:
    """Raise `UsageError` for a type that another package has added to NumPy.

    NumPy describes it only by its size: it would come back as raw bytes.
    """
    base = dtype.base
    for name in base.names or ():
        check_known(base[name])
    if base.names is not None or base.kind in "OT":  # refused where it must be
        return
    if numpy.dtype(base.str).type is not base.type:
        raise UsageValueError(
            "arrays of the dtype '%s' can't be stored: it is no type of NumPy itself, "
            "and would come back as '%s'; convert the array, as with "
            ".astype('float32'), or store array.view('u%d')"
            % (base, base.str, base.itemsize)
        )


def _refusal(dtype: DType) -> str:
    """Return the message for a dtype whose items are, or contain, pointers."""
    if dtype.base.kind == "T":
        return (
            "arrays of variable-length strings (dtype 'StringDType') can't be stored: "
            "their items are pointers; convert them to a fixed length, as "
            "numpy.array(array.tolist()) does"
        )
    return (
        "arrays of Python objects (dtype '%s') can't be stored: their items are "
        "pointers; convert to a type without objects, as with .astype('U') for text or "
        ".astype(float) for numbers" % dtype
    )


def holds_objects(dtype: DType) -> bool:
    """Return whether items of `dtype` contain pointers to objects.

    `hasobject` alone is not enough: NumPy may overlook objects in nested dtypes.
    """
    base = dtype.base
    if dtype.hasobject or base.hasobject or base.kind == "T":
        return True
    return any(holds_objects(base[name]) for name in base.names or ())


def check_unit(text: str) -> None:
    """Raise `ValueError` for a unit of time that divides by zero: NumPy would crash."""
    if ZERO_UNIT.search(text):
        raise ValueError("a unit of time can't be zero")


def check_text(items: Array) -> None:
    """Raise `FormatError` for text with numbers that no character has.

    NumPy fails with a ``SystemError`` when it makes such an item a string of Python.
    """
    for name in items.dtype.names or ():
        check_text(items[name])
    if items.dtype.kind != "U" or not items.size or not items.dtype.itemsize:
        return
    codes = numpy.ascontiguousarray(items).reshape(-1)
    largest = int(codes.view(items.dtype.byteorder.replace("|", "=") + "u4").max())
    if largest > sys.maxunicode:
        raise DamageError(
            "expected text, found the number '%d', which is no character" % largest,
            section="chunks",
        )


def decode_dtype(stored: object) -> DType:
    """Return the dtype in the metadata, in the spelling of any release.

    Raises `ObjectDtypeFound` for objects, and another `FormatError` if `stored` is
    not a dtype.
    """
    try:
        descr = _parse(stored)
        if isinstance(descr, str) and PLAIN_DTYPE.fullmatch(descr):
            dtype: DType = numpy.dtype(descr)
        elif isinstance(descr, list):
            dtype = numpy.lib.format.descr_to_dtype(descr)
        else:
            raise TypeError("neither a type nor a list of fields")
    except Exception as error:  # NumPy raises many types of errors
        raise DamageError(
            "expected a dtype in the metadata, found %s: %.200s"
            % (shown(stored), error),
            section="metadata",
        ) from error
    if holds_objects(dtype):
        raise ObjectDtypeFound(
            "arrays of Python objects (dtype %s) can't be read" % shown(stored),
            section="metadata",
        )
    return dtype


def shown(value: object) -> str:
    """Return the beginning of the repr of a value, which may be large."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = SHOWN_CHARACTERS
    short.maxlist = short.maxtuple = short.maxdict = SHOWN_ELEMENTS
    return short.repr(value)[:SHOWN_CHARACTERS]


def refuse(expected: str, found: object) -> NoReturn:
    """Raise the `FormatError` of a wrong value in metadata."""
    raise DamageError(
        "expected %s, found %s" % (expected, shown(found)), section="metadata"
    )


def _parse(stored: object) -> object:
    """Return the descr of a dtype in any spelling; raises `ValueError`."""
    _check_parts(stored)
    if isinstance(stored, str) and not PLAIN_DTYPE.fullmatch(stored):
        stored = parse_literal(stored)
        _check_parts(stored)
    descr = _tupled(stored)
    # Release 0.4.0 wrote a list also for a dtype without fields.
    match descr:
        case [("", plain)]:
            return plain
    return descr


def _check_parts(value: object) -> None:
    """Raise `ValueError` unless `value` has only elements that a dtype can have.

    NumPy would accept None as a float, and a dictionary as fields that overlap.
    """
    size, todo = 0, [value]
    while todo:
        part = todo.pop()
        if isinstance(part, (list, tuple)):
            todo.extend(part)
            size += len(part)
        elif isinstance(part, str):
            check_unit(part)
            size += len(part)
        elif type(part) is int:
            size += 1
        else:
            raise ValueError("expected only strings, whole numbers and lists")
        if size > DEFAULT_DTYPE_LIMIT:
            raise ValueError("longer than '%d' bytes" % DEFAULT_DTYPE_LIMIT)


def _tupled(value: object, in_list: bool = False) -> object:
    """Return `value` with tuples and lists where NumPy expects them in a descr.

    JSON has only lists: a list of fields stays a list, a field becomes a tuple.
    """
    if not isinstance(value, (list, tuple)):
        return value
    if in_list or isinstance(value, tuple):
        return tuple(_tupled(part, in_list=not _is_field_list(part)) for part in value)
    return [_tupled(part, in_list=True) for part in value]


def _is_field_list(value: object) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(field, (list, tuple)) for field in value)
    )
