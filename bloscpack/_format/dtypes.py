"""NumPy dtypes in metadata, and the Python literals in which files state them.

Text from a file is parsed as a literal, never evaluated (docs/format.rst, Arrays).

The header of a ``.npy`` file is such a literal, too: strings, whole numbers, True,
False, tuples, lists and dictionaries, with the meaning that Python gives them, as
Python 2 (``2L``, ``u'...'``) and Python 3 write them. The text may be hostile: nothing
is evaluated, length and nesting are limited, and the time is linear. Python's own
parser can overflow its stack.
"""

from __future__ import annotations

import re
import reprlib
import sys
from collections.abc import Sequence
from types import EllipsisType
from typing import Any, NoReturn, Protocol, SupportsIndex

import numpy
from numpy.typing import ArrayLike, NDArray

from .._engine.contexts import errors_to
from ..constants import MAX_LITERAL_NESTING
from ..defaults import DEFAULT_DTYPE_LIMIT
from ..exceptions import (
    DoesNotFit,
    ObjectDtypeFound,
    ObjectNumpyArrayRejection,
    Unsupported,
    UsageError,
    UsageValueError,
    metadata_damage,
)

Array = NDArray[Any]

DType = numpy.dtype[Any]

# An index of NumPy, which may also have names of fields.
Key = SupportsIndex | slice | EllipsisType | ArrayLike | Sequence["Key"] | None


class AnyArray(Protocol):
    """An array of any library, which can be sliced by position."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> DType: ...
    def __getitem__(self, key: Any, /) -> Any: ...


Literal = (
    str | int | list["Literal"] | tuple["Literal", ...] | dict["Literal", "Literal"]
)

# A type without fields in the metadata of an array (docs/format.rst, Arrays).
_SIZE = "(?:0|[1-9][0-9]{0,9})"
_PLAIN = (
    "[<>|](?:b1|[iu]1|[SV]%s)|[<>](?:[iu][248]|f(?:[248]|12|16)|c(?:8|16|24|32)|U%s)"
    % (_SIZE, _SIZE)
)
_TIME = r"[<>][mM]8(?:\[(?:[1-9][0-9]{0,9})?(?:[YMWDhms]|[munpfa]s)\])?"
SIMPLE_TYPE = re.compile("%s|%s|[<>|=]?[OT][0-9]*|object" % (_PLAIN, _TIME))
# The text of such a type in the spelling of `encode_dtype`, without times.
ENCODED_PLAIN = re.compile("'(%s)'" % _PLAIN)
PLAIN_KINDS = "biufcSUV"
# The types that not every machine has.
LONG_DOUBLES = re.compile("[<>](f12|f16|c24|c32)")
# Text that is not a literal, which 0.16 passed to NumPy: `<f8`, `float64`, `i4,f8`.
_TYPE = r"[<>=|]?[A-Za-z?][A-Za-z0-9]*(\[[A-Za-z0-9/]+\])?"
PLAIN_DTYPE = re.compile(r"%s(, ?%s)*" % (_TYPE, _TYPE))
INEXACT = (
    "the integer %d becomes a float, because others are missing or of another type, "
    "and no float of the dtype '%s' is equal to it"
)
# A unit of time with a zero in front of it, or as a divisor.
ZERO_UNIT = re.compile(r"(M8|m8|datetime64|timedelta64)\[(0|[^\]]*/0)")
# Maximum number of characters, and of elements of a list, in an error message.
SHOWN_CHARACTERS = 200
SHOWN_ELEMENTS = 20


def encode_dtype(dtype: DType) -> str:
    """Return the text of a dtype for the metadata: the repr of its descr.

    Raises `ObjectNumpyArrayRejection` for objects, and `UsageError` for a dtype that
    readers would refuse or change, for example one whose fields overlap.
    """
    # The usual case first, for speed: the type of numbers or text of NumPy itself.
    if dtype.names is None and dtype.kind in PLAIN_KINDS and dtype.subdtype is None:
        text = dtype.str
        if numpy.dtype(text).type is dtype.type:
            return repr(text)
    if holds_objects(dtype):
        raise ObjectNumpyArrayRejection(_refusal(dtype))
    check_known(dtype)
    if dtype.names is None:
        return repr(dtype.descr[0][1])
    try:
        crossing = _crossing_field(dtype)
        if crossing:
            raise ValueError("the field '%s' begins before another ends" % crossing)
        text = repr(dtype.descr)
        decoded = _decode(text)
        changed = _changed_field(dtype, decoded)
        if not changed and decoded != dtype:
            raise ValueError("items without fields would be read as '%s'" % decoded)
        if changed:
            name = ".".join(changed)
            hint = "" if changed[-1] else ": give it a name"
            raise ValueError("the field '%s' would be lost or changed%s" % (name, hint))
    except (TypeError, ValueError) as error:
        raise UsageValueError(
            "arrays with dtype '%.200s' can't be stored: %s" % (dtype, error)
        ) from error
    return text


def _fields_of(dtype: DType) -> dict[str, tuple[Any, ...]]:
    """Return type, offset and perhaps title of each field of an item, by its name."""
    base: Any = dtype.base
    return {name: base.fields[name] for name in base.names or ()}


def _crossing_field(dtype: DType, path: str = "") -> str:
    """Return the name of a field that begins before the end of the one before it.

    The name is empty if there is none. NumPy's descr can't state overlapping fields.
    """
    end = 0
    for name, (part, start, *_) in _fields_of(dtype).items():
        full = "%s.%s" % (path, name) if path else name
        crossing = full if start < end else _crossing_field(part, full)
        if crossing:
            return crossing
        end = start + part.itemsize
    return ""


def _changed_field(dtype: DType, decoded: DType) -> tuple[str, ...]:
    """Return the names on the way to a field that `decoded` lacks or has otherwise.

    Readers take a field without a name for padding if it is of the kind V or has a
    shape, and the only field of an array for the array.
    """
    others = _fields_of(decoded)
    for name, own in _fields_of(dtype).items():
        if name not in others:
            return (name,)
        if own != others[name]:
            return name, *_changed_field(own[0], others[name][0])
    return ()


def array_of(values: object) -> Array:
    """Return values as an array; raise `UsageError` for lists of different lengths."""
    if isinstance(values, numpy.ndarray):
        return values
    with foreign_items():
        return numpy.asanyarray(values)


def foreign_items() -> errors_to:
    """Raise `UsageError` for the errors of NumPy and of libraries that have the items.

    Arrow and pandas raise subclasses of `ValueError`, `NotImplementedError`, and
    `OverflowError` for times.
    """

    def translate(error: Exception) -> None:
        if isinstance(error, OverflowError):
            text = "a time does not fit the unit of others: %s"
            raise DoesNotFit(text % error) from error
        is_ours = isinstance(error, UsageError)
        if isinstance(error, (ValueError, NotImplementedError)) and not is_ours:
            text = "no array can have the items"
            if type(error) is ValueError:  # of NumPy
                text = "expected items of one shape"
            raise UsageValueError("%s: %s" % (text, error)) from error

    return errors_to(translate)


def exact_array(values: object) -> Array:
    """Return values as an array, as `numpy.asanyarray` does.

    Raises `DoesNotFit` for an integer that NumPy would change: it makes floats of the
    integers in a list with floats, and of those of pandas, Arrow and polars if others
    of the column are missing; and for a time in a list that is too far for the unit of
    the others. Raises `UsageValueError` for a time zone of Arrow or polars, which NumPy
    would drop, and `DoesNotFit` for a time that NumPy takes for a missing one.
    """
    array = array_of(values)
    if array.dtype.kind in "mM" and isinstance(values, (list, tuple)):
        _check_times(values, array)
    if array.dtype.kind in "fc" and isinstance(values, (list, tuple)):
        check_integers(values, array)
    if array.dtype.kind in "fcmM" and array is not values:
        columns = getattr(values, "columns", None)
        if hasattr(values, "iloc") and columns is not None:  # a DataFrame of pandas
            parts = [values.iloc[:, number] for number in range(len(columns))]
        elif hasattr(values, "column_names"):  # a table of Arrow
            parts = list(columns or ())
        else:
            parts = [values]
        for part in parts:
            if array.dtype.kind in "mM":
                _check_zone(part)
                check_least_time(part, array if part is values else numpy.asarray(part))
            else:
                _check_present(part, array.dtype)
    return array


def exact_up_to(dtype: DType) -> float:
    """Return the number up to which a type of floats holds all integers."""
    return 2.0 ** (numpy.finfo(dtype).nmant + 1)


def check_integers(items: object, new: Array) -> None:
    """Raise `DoesNotFit` for an integer among objects that `new` has as another."""
    large = abs(new) >= exact_up_to(new.dtype)
    if not large.any():
        return
    objects = numpy.array(items, object)
    for item, number in zip(objects[large], new.real[large], strict=True):
        is_whole = isinstance(item, (int, numpy.integer))
        if is_whole and (not numpy.isfinite(number) or int(item) != int(number)):
            raise DoesNotFit(INEXACT % (item, new.dtype))


def _check_times(items: Sequence[Any], new: Array) -> None:
    """Raise `DoesNotFit` for an item that has become another time in `new`."""
    for item, times in zip(items, new, strict=True):
        if isinstance(item, (list, tuple)):
            _check_times(item, times)
            continue
        own = times if item is None else numpy.asarray(item)
        if own.dtype.kind not in "mM":  # text, or a time of Python
            own = numpy.asarray(item, new.dtype.kind + "8")
        try:
            is_same = (numpy.isnat(own) | (times.astype(own.dtype) == own)).all()
        except OverflowError:
            is_same = False
        if not is_same:
            text = "the time %s does not fit the unit of others, the dtype '%s'"
            raise DoesNotFit(text % (item, new.dtype))


def _check_zone(column: object) -> None:
    """Raise `UsageValueError` if the times of a column have a time zone."""
    zone = getattr(getattr(column, "type", None), "tz", None)  # of Arrow
    zone = zone or getattr(getattr(column, "dtype", None), "time_zone", None)
    if zone is not None:
        raise UsageValueError(
            "no array can have the time zone '%s': convert the times to UTC, and "
            "remove the time zone" % zone
        )


def check_least_time(column: Any, times: Array) -> None:
    """Raise `DoesNotFit` if NumPy takes a time of a column for a missing one.

    It is -2**63, which is a time for Arrow and polars.
    """
    is_missing = getattr(column, "is_null", None) or getattr(column, "isna", None)
    if is_missing is None or times.ndim != 1 or times.dtype.kind not in "mM":
        return
    if (numpy.isnat(times) & ~numpy.asarray(is_missing(), bool)).any():
        raise DoesNotFit(
            "expected times, found the number -2**63 among them: NumPy takes it for a "
            "missing one"
        )


def _check_present(column: object, dtype: DType) -> None:
    """Raise `DoesNotFit` for an integer of a column that a float of `dtype` changes."""
    own = getattr(column, "dtype", None)
    if isinstance(own, numpy.dtype) and own.kind not in "iuO":
        return
    methods = ("dropna", "drop_null", "drop_nulls")  # of pandas, Arrow and polars
    drop = next((getattr(column, n) for n in methods if hasattr(column, n)), None)
    present = numpy.asarray(() if drop is None else drop())
    if present.dtype.kind not in "iu":
        return
    with numpy.errstate(over="ignore"):
        wrong = present[~are_equal(present, present.astype(dtype).real)]
    if len(wrong):
        raise DoesNotFit(INEXACT % (wrong[0], dtype))


def are_equal(integers: Array, floats: Array) -> Array:
    """Return which integers are equal to floats, into which they were converted."""
    end = float(numpy.iinfo(integers.dtype).max + 1)
    with numpy.errstate(over="ignore", invalid="ignore"):
        same: Array = numpy.isfinite(floats) & (floats < end)
        same &= floats.astype(integers.dtype) == integers
    return same


def check_known(dtype: DType, path: str = "") -> None:
    """Raise `UsageError` for a type that another package has added to NumPy.

    NumPy describes it only by its size: it would come back as raw bytes. Raises it also
    for arrays of arrays, and for titles that are no text. `path` is the name of the
    field of this dtype.
    """
    base, of_field = dtype.base, path and " in the field '%s'" % path
    if base.subdtype is not None:
        raise UsageValueError(
            "arrays with arrays of arrays%s, dtype '%.200s', can't be stored: give the "
            "field one shape, '%s'" % (of_field, dtype, dtype.shape + base.shape)
        )
    for name, (part, _, *titles) in _fields_of(dtype).items():
        inner = "%s.%s" % (path, name) if path else name
        for title in titles:
            if not isinstance(title, str) or not title:
                wrong = "the title of the field '%s' must be text, not %.200r"
                raise UsageValueError(wrong % (inner, title))
        check_known(part, inner)
    if base.names is not None or base.kind in "OT":  # refused where it must be
        return
    if numpy.dtype(base.str) != base:  # C has two types of 64 bits, which are equal
        raise UsageValueError(
            "arrays of the dtype '%s'%s can't be stored: it is no type of NumPy "
            "itself, and would come back as '%s'; convert the array, as with "
            ".astype('float32'), or store array.view('u%d')"
            % (base, of_field, base.str, base.itemsize)
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


def scalar(item: Array) -> Any:
    """Return the item of an array without axes; raise the error of `check_text`."""
    if item.dtype.kind == "U":
        check_text(item)
    return item[()]


def check_text(items: Array) -> None:
    """Raise `FormatError` for text with numbers that no character has.

    An array may have them. NumPy fails with a ``SystemError`` when it makes such an
    item a string of Python.
    """
    for name in items.dtype.names or ():
        check_text(items[name])
    if items.dtype.kind != "U" or not items.size or not items.dtype.itemsize:
        return
    codes = numpy.ascontiguousarray(items).reshape(-1)
    largest = int(codes.view(items.dtype.byteorder.replace("|", "=") + "u4").max())
    if largest > sys.maxunicode:
        raise Unsupported(
            "expected text, found the number '%d', which is no character" % largest,
            section="chunks",
        )


def decode_dtype(stored: object) -> DType:
    """Return the dtype in the metadata, in the spelling of any release.

    Raises `ObjectDtypeFound` for objects, and another `FormatError` if `stored` is
    not a dtype.
    """
    try:
        plain = ENCODED_PLAIN.fullmatch(stored) if isinstance(stored, str) else None
        if plain is not None:  # the usual case
            return numpy.dtype(_simple_type(plain[1]))
        dtype = _decode(stored)
    except Unsupported:
        raise
    except Exception as error:  # NumPy raises many types of errors
        raise metadata_damage(
            "expected a dtype in the metadata, found %s: %.200s"
            % (shown(stored), error)
        ) from error
    if holds_objects(dtype):
        raise ObjectDtypeFound(
            "arrays of Python objects (dtype %s) can't be read" % shown(stored),
            section="metadata",
        )
    return dtype


def _decode(stored: object) -> DType:
    """Return the dtype in the metadata; raises `ValueError`, and errors of NumPy."""
    _check_parts(stored)
    if isinstance(stored, str):
        if PLAIN_DTYPE.fullmatch(stored):
            return numpy.dtype(stored)
        stored = parse_literal(stored)
        _check_parts(stored)
    # Release 0.4.0 wrote a list also for a dtype without fields.
    match stored:
        case [["", only]] if isinstance(stored, list):
            stored = only
    if isinstance(stored, tuple):
        raise ValueError("an array of arrays is no type of an item")
    return numpy.lib.format.descr_to_dtype(_descr(stored))


def without_gaps(dtype: DType) -> DType:
    """Return a dtype without what no item stores: gaps between fields, metadata."""
    if dtype.subdtype is not None:
        return numpy.dtype((without_gaps(dtype.base), dtype.shape))
    if dtype.names is None:
        return numpy.dtype(dtype.str)
    # A list of fields would rename the one without a name.
    formats = [without_gaps(dtype[name]) for name in dtype.names]
    return numpy.dtype({"names": list(dtype.names), "formats": formats})


def shown(value: object) -> str:
    """Return the beginning of the repr of a value, which may be large."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = SHOWN_CHARACTERS
    short.maxlist = short.maxtuple = short.maxdict = SHOWN_ELEMENTS
    return short.repr(value)[:SHOWN_CHARACTERS]


def refuse(expected: str, found: object) -> NoReturn:
    """Raise the `FormatError` of a wrong value in metadata."""
    raise metadata_damage("expected %s, found %s" % (expected, shown(found)))


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


def _descr(value: Any) -> Any:
    """Return a type with the lists and tuples that NumPy expects: JSON has only lists.

    Releases up to 0.16.0 wrote an array of arrays as a pair of a type and a shape.
    """
    match value:
        case str():
            return _simple_type(value)
        case [*fields] if isinstance(value, list):
            return [_field(each) for each in fields]
        case (kind, [*shape]) if isinstance(value, tuple):
            return _descr(kind), tuple(shape)
        case (kind, int(length)) if isinstance(value, tuple):
            # Of a number, NumPy makes the size of an item of the kind S, U or V.
            return _descr(kind), (length,)
    raise ValueError("expected a type or a list of fields")


def _simple_type(text: str) -> str:
    if not SIMPLE_TYPE.fullmatch(text):
        raise ValueError("neither a type nor a list of fields")
    if LONG_DOUBLES.fullmatch(text):
        try:
            numpy.dtype(text)
        except TypeError as error:
            raise Unsupported(
                "this machine has no numbers of the dtype '%s'" % text,
                section="metadata",
            ) from error
    return text


def _field(value: object) -> tuple[object, ...]:
    """Return a field; one with a third part, the shape, has a pair as its type."""
    if not isinstance(value, (list, tuple)) or len(value) not in (2, 3):
        raise ValueError("expected a name and a type for each field")
    name, kind, *shape = value
    title, name = name if isinstance(name, (list, tuple)) else ("", name)
    if not (isinstance(title, str) and isinstance(name, str)):
        raise ValueError("expected text as the name and the title of a field")
    return (title, name) if title else name, _descr((kind, *shape) if shape else kind)


# A string has the escape sequences that `repr` writes, and neither line breaks nor zero
# bytes. No character matches two alternatives, so that matching takes linear time.
_ESCAPE = r"""\\(?:[\\'"abfnrtv]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"""
TOKEN = re.compile(
    r"""(?:
        [uU]?(?: '(?P<single>(?:[^'\\\n\r\0]|%(escape)s)*)'
               | "(?P<double>(?:[^"\\\n\r\0]|%(escape)s)*)" )
        | (?P<number>0|[1-9][0-9]{0,18})L?
        | (?P<name>True|False)
        | (?P<mark>[()\[\]{},:])
    )[ \t\n\r\f]*"""
    % {"escape": _ESCAPE},
    re.VERBOSE,
)
CLOSING = {"(": ")", "[": "]", "{": "}"}


def parse_literal(text: str) -> Literal:
    """Return the value of the literal in `text`.

    Raises `ValueError` if it is not a literal, too long, or nested too deeply.
    """
    if len(text) > DEFAULT_DTYPE_LIMIT:
        raise ValueError("longer than '%d' characters" % DEFAULT_DTYPE_LIMIT)
    text = text.strip(" \t\n\r\f")
    opening = ""
    items: list[Literal] = []
    outer: list[tuple[str, list[Literal]]] = []
    position, after_value = 0, False
    while position < len(text):
        token = TOKEN.match(text, position)
        if token is None:
            raise ValueError("unexpected character at position %d" % position)
        mark = token["mark"]
        if mark is None and not after_value:
            items.append(_scalar(token))
            after_value = True
        elif mark in CLOSING and not after_value:
            if len(outer) == MAX_LITERAL_NESTING:
                raise ValueError("more than '%d' open brackets" % MAX_LITERAL_NESTING)
            outer.append((opening, items))
            opening, items = mark, []
        elif mark and after_value and mark == _separator(opening, len(items)):
            after_value = False
        elif mark and mark == CLOSING.get(opening):
            value = _collection(opening, items, after_value)
            opening, items = outer.pop()
            items.append(value)
            after_value = True
        else:
            raise ValueError("unexpected character at position %d" % position)
        position = token.end()
    if outer or len(items) != 1:
        raise ValueError("expected one complete value")
    return items[0]


def _scalar(token: re.Match[str]) -> Literal:
    if token["number"]:
        return int(token["number"])
    if token["name"]:
        return token["name"] == "True"
    text = token["single"] if token["double"] is None else token["double"]
    if "\\" not in text:
        return text
    # The codec takes Latin-1; other characters pass through it as escape sequences.
    return text.encode("latin-1", "backslashreplace").decode("unicode_escape")


def _separator(opening: str, count: int) -> str:
    """Return the mark that separates item number `count` from the next."""
    if opening == "{" and count % 2:
        return ":"
    return "," if opening else ""


def _collection(opening: str, items: list[Literal], after_value: bool) -> Literal:
    """Return the value of a closed bracket; a trailing comma clears `after_value`."""
    if opening == "[":
        return items
    if opening == "(":
        return items[0] if len(items) == 1 and after_value else tuple(items)
    try:
        return dict(zip(items[::2], items[1::2], strict=True))
    except (TypeError, ValueError) as error:
        raise ValueError("not a dictionary: %s" % error) from error
