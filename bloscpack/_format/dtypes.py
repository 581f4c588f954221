"""NumPy dtypes as metadata store them: text to dtype and back."""

from __future__ import annotations

import re
import reprlib

import numpy

from ..defaults import DEFAULT_DTYPE_LIMIT
from ..exceptions import (
    FormatError,
    ObjectDtypeFound,
    ObjectNumpyArrayRejection,
    UsageError,
)

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    Array = NDArray[Any]
    DType = numpy.dtype[Any]


# A plain dtype as text: `<f8`, `|S5`, `<M8[25s]`, `float64`, and `i4,f8` of them.
_PLAIN = r"[<>=|]?[A-Za-z?][A-Za-z0-9]*(\[[A-Za-z0-9/]+\])?"


PLAIN_DTYPE = re.compile(r"%s(, ?%s)*" % (_PLAIN, _PLAIN))


# What the repr of a descr is made of. A number may be a long of Python 2, as in
# `(2L,)`, a text one of its Unicode texts.
TOKEN = re.compile(
    r"""\s*(?:[uU]?(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
    r"""|(?P<number>[0-9]{1,18})L?|(?P<mark>[()\[\],]))\s*""",
    re.DOTALL,
)


MAX_NESTING = 64


def encode_dtype(dtype: DType) -> str:
    """Return a dtype as the metadata hold it: the repr of its descr.

    Raises `ObjectNumpyArrayRejection` for objects, and `UsageError` for fields
    that overlap.
    """
    if holds_objects(dtype):
        raise ObjectNumpyArrayRejection(
            "arrays of Python objects (dtype '%s') can't be stored" % dtype
        )
    try:
        descr = dtype.descr
    except ValueError as error:
        raise UsageError(
            "arrays with dtype '%s' can't be stored: %s" % (dtype, error)
        ) from error
    # Fields without a name are padding; a type on its own is the one such entry.
    return repr(descr if dtype.names is not None else descr[0][1])


def holds_objects(dtype: DType) -> bool:
    """Return whether items of `dtype` refer to anything outside of themselves.

    Also types, of arrays without items: `hasobject` of a nested one may overlook those.
    """
    base = dtype.base
    if dtype.hasobject or base.hasobject or base.kind == "T":
        return True
    return any(holds_objects(base[name]) for name in base.names or ())


def decode_dtype(stored: Any) -> DType:
    """Return the dtype that the metadata hold, in the spelling of any release.

    Nothing is evaluated but literals. Raises `ObjectDtypeFound` for objects and
    another `FormatError` for what is no dtype.
    """
    _check_parts(stored)
    descr = _parse(stored) if isinstance(stored, str) else _tupled(stored)
    match descr:
        case [("", plain)]:  # 0.4.0 wrote a list also where there are no fields
            descr = plain
    try:
        if isinstance(descr, str) and PLAIN_DTYPE.fullmatch(descr):
            dtype = numpy.dtype(descr)
        elif isinstance(descr, list):
            dtype = numpy.lib.format.descr_to_dtype(descr)
        else:
            raise TypeError("neither a type nor a list of fields")
        if holds_objects(dtype):
            raise ObjectDtypeFound(
                "arrays of Python objects (dtype %s) can't be read" % _shown(stored),
                section="metadata",
            )
    except ObjectDtypeFound:
        raise
    except Exception as error:  # NumPy raises whatever it stumbles over
        raise _no_dtype(stored, error) from error
    return dtype


def _no_dtype(stored: Any, why: object) -> FormatError:
    return FormatError(
        "expected a dtype in the metadata, found %s: %.200s" % (_shown(stored), why),
        section="metadata",
    )


def _shown(value: Any) -> str:
    """Return the repr of a value from a file, cut off without making all of it."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = 200
    short.maxlist = short.maxtuple = short.maxdict = 20
    return short.repr(value)[:200]


def _check_parts(stored: Any) -> None:
    """Raise `FormatError` for other things, or more of them, than any dtype has."""
    size, todo = 0, [stored]
    while todo:
        value = todo.pop()
        if isinstance(value, (list, tuple)):
            todo.extend(value)
        elif not isinstance(value, str) and type(value) is not int:
            # NumPy takes None for a float, and an object for fields that overlap.
            raise _no_dtype(stored, "neither a text, a number nor a list of them")
        size += 1 if isinstance(value, int) else len(value)
        if size > DEFAULT_DTYPE_LIMIT:
            raise _no_dtype(stored, "longer than '%d' bytes" % DEFAULT_DTYPE_LIMIT)


def _parse(text: str) -> Any:
    """Return the literal in `text`, or the text itself where it is a plain type."""
    if PLAIN_DTYPE.fullmatch(text):
        return text
    # Python's own parser overflows its stack on some texts, so this is a small one.
    group: list[Any] = []
    groups: list[tuple[str, list[Any]]] = []
    position, after_value = 0, False
    while position < len(text):
        token = TOKEN.match(text, position)
        if token is None:
            raise _no_dtype(text, "not understood from character %d on" % position)
        position = token.end()
        mark = token["mark"]
        if mark == "," and after_value:
            after_value = False
        elif mark in ("(", "[") and not after_value and len(groups) < MAX_NESTING:
            groups.append((mark, group))
            group = []
        elif mark in (")", "]") and groups and groups[-1][0] + mark in ("()", "[]"):
            closed = group if mark == "]" else tuple(group)
            group = groups.pop()[1]
            group.append(closed)
            after_value = True
        elif mark is None and not after_value:
            number = token["number"]
            group.append(int(number) if number else _text_of(token["text"]))
            after_value = True
        else:
            raise _no_dtype(text, "not understood at character %d" % position)
    if groups or len(group) != 1:
        raise _no_dtype(text, "one list of fields was expected")
    return _tupled(group[0])


def _text_of(token: str) -> str:
    import ast

    try:
        return str(ast.literal_eval(token))
    except (ValueError, SyntaxError) as error:
        raise _no_dtype(token, error) from error


def _tupled(value: Any, in_list: bool = False) -> Any:
    """Return `value` with lists and tuples where a descr has them.

    JSON knows only lists: a list of fields stays one, a field becomes a tuple.
    """
    if not isinstance(value, (list, tuple)):
        return value
    if in_list or isinstance(value, tuple):
        return tuple(_tupled(part, in_list=not _is_field_list(part)) for part in value)
    return [_tupled(part, in_list=True) for part in value]


def _is_field_list(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(field, (list, tuple)) for field in value)
    )
