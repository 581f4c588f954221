"""Python literals in files: the text of a dtype and the header of a ``.npy`` file.

Strings, whole numbers, True, False, tuples, lists and dictionaries, with the meaning
that Python gives them, as Python 2 (``2L``, ``u'...'``) and Python 3 write them. The
text may be hostile: nothing is evaluated, length and nesting are limited, and the time
is linear. Python's own parser can overflow its stack.
"""

from __future__ import annotations

import re

from ..constants import MAX_LITERAL_NESTING
from ..defaults import DEFAULT_DTYPE_LIMIT

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    Literal = (
        str | int | list["Literal"] | tuple["Literal", ...] | dict["Literal", "Literal"]
    )

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
