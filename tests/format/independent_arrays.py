"""The part of `independent_reader` for arrays: type, shape and order.

It takes only the types that docs/format.rst lists, no other names of NumPy's types.
"""

from __future__ import annotations

import json
import math
import re

from format.independent_reader import LARGEST, Refused, check

SIMPLE = re.compile(
    r"([<>|])(?:([biufcSUV])(\d+)|([Mm])8(?:\[\d*(?:[YMWDhms]|[mun]s|[pfa]s)\])?)"
)
SIZES = {"b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8, 12, 16),
         "c": (8, 16, 24, 32)}  # fmt: skip


def describe(metadata: object, nbytes: int) -> tuple[object, int, list[int], str]:
    """Return type, item size, shape and order of an array of `nbytes` bytes."""
    check("A12", isinstance(metadata, dict) and metadata.get("container") == "numpy")
    check("A12", {"dtype", "shape"} <= {*metadata})
    order, shape, dtype = (
        metadata.get("order", "C"),
        metadata["shape"],
        metadata["dtype"],
    )
    check("A11", order in ("C", "F"))
    shape = [shape] if type(shape) is int else shape
    check("A6", isinstance(shape, list) and len(shape) <= 64)
    check("A6", all(type(n) is int and 0 <= n <= LARGEST for n in shape))
    if isinstance(dtype, str) and dtype.startswith(("'", '"', "[", "u'", 'u"')):
        dtype = parse_literal(dtype)
    match dtype:
        case [["", plain]]:  # A2
            dtype = plain
    itemsize = size_of(dtype)
    check("A6", itemsize * math.prod(n or 1 for n in shape) <= LARGEST)
    check("A7", itemsize * math.prod(shape) == nbytes)
    return dtype, itemsize, shape, order


def parse_literal(text: str) -> object:
    """Return the strings, numbers and lists in a text; a tuple becomes a list."""
    strings = r"""[uU]?('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
    check(
        "A5", re.fullmatch(r"(?:%s|\d{1,19}L?|[][(), ])*" % strings, text) is not None
    )
    # JSON with other brackets, quotes and commas.
    converted = re.sub(
        r"%s|(\d+)L?|[(]|,? *[])]" % strings,
        lambda m: (
            json.dumps(unquoted(m[1])) if m[1] else m[2] or "[]"[m[0][-1] in "])"]
        ),
        text,
    )
    try:
        return json.loads(converted)
    except (ValueError, RecursionError) as error:
        raise Refused("A5") from error


def unquoted(quoted: str) -> str:
    return quoted[1:-1].encode("latin-1", "backslashreplace").decode("unicode_escape")


def size_of(dtype: object) -> int:
    """Return the item size of a type."""
    if isinstance(dtype, str):
        found = SIMPLE.fullmatch(dtype)
        check("A4", not re.fullmatch(r"[<>|=]?[OT]\d*", dtype))
        check("A5", found is not None)
        _, kind, digits, time = found.groups()
        if time:
            return 8
        check("A5", int(digits) in SIZES.get(kind, (int(digits),)))
        return int(digits) * (4 if kind == "U" else 1)
    check("A5", isinstance(dtype, list))
    total = 0
    for field in dtype:
        check("A5", isinstance(field, (list, tuple)) and len(field) in (2, 3))
        check("A5", isinstance(field[0], (str, list)))
        shape = field[2] if len(field) == 3 else []
        total += size_of(field[1]) * math.prod([shape] if type(shape) is int else shape)
    return total
