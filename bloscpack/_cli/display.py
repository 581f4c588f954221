"""Output of the command: lines, tables, JSON, sizes in bytes, and the format of help.

Contract: no control character, and no mark that changes the direction of text, reaches
the terminal from a file name, an option or a file. `say`, `put_line` and the functions
of `log` replace unprintable characters by escape sequences (`printable`), and so
characters that the encoding of the terminal lacks. `json_text` and `say_json` use the
escape sequences of JSON, so that their output stays valid JSON.
"""

from __future__ import annotations

import argparse
import os
import re
import sys

from ..constants import SUFFIXES
from ..exceptions import UsageError
from .console import console

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

    from .._types import Json, JsonObject

# About the number of plain bytes of rows that ``cat`` reads at a time.
READ_NBYTES = 16 * 2**20
# The smallest width of the help, in columns.
LEAST_WIDTH = 20


def say_json(value: object) -> None:
    """Print a value as JSON in ASCII; NaN and infinities become null."""
    console.put(_plain_json(value) + "\n")


def say_json_list(pieces: Iterable[list[object]]) -> None:
    """Print several lists as one, as `say_json` does, one piece after the other."""
    before = "["
    for piece in filter(None, pieces):
        # Without the brackets around the items, and the line end before the last one.
        console.put(before + _plain_json(piece)[1:-2])
        before = ","
    console.put("[]\n" if before == "[" else "\n]\n")


def _plain_json(value: object) -> str:
    import json

    from .info_text import INDENT

    try:
        return json.dumps(value, indent=INDENT, allow_nan=False)
    except ValueError:
        return json.dumps(finite(value), indent=INDENT)


def finite(value: object) -> Json:
    from math import isfinite

    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(inner) for inner in value]
    if isinstance(value, float) and not isfinite(value):
        return None
    return value


def parse_size(text: str) -> int:
    """Return the number of bytes for a text such as 1.5M, 1.5MB or 1.5MiB.

    Small letters are accepted too. Raises ValueError.
    """
    from ..pretty import reverse_pretty

    try:
        if text[-1:].isalpha():
            return reverse_pretty(text.upper().replace("IB", "iB"))
        return int(text)
    except ValueError as error:
        raise ValueError(
            "expected a number of bytes, or one with a suffix from %s like 1.5M, "
            "1.5MB or 1.5MiB, found '%s'" % (" ".join(SUFFIXES), text)
        ) from error


def chunk_rows(
    numbers: Iterable[int], intact: Mapping[int, tuple[int, int]], **where: str
) -> Iterator[JsonObject]:
    """Yield a row for each chunk: its number, and its plain and compressed size.

    `intact` has both sizes for the intact chunks; the sizes of others are None. `where`
    are more fields of each row.
    """
    for number in numbers:
        nbytes, cbytes = intact.get(number, (None, None))
        yield {**where, "chunk": number, "nbytes": nbytes, "cbytes": cbytes}


# Rows


def deliver_rows(
    found: Any, rows: slice, deliver: Callable[[bytes, bool], None]
) -> None:
    """Pass the plain bytes of rows of an array or a table to `deliver`, in blocks."""
    from math import prod

    numbers = range(*rows.indices(len(found)))
    row = prod(found.shape[1:]) * found.dtype.itemsize
    step = max(1, READ_NBYTES // max(1, row * numbers.step))
    for begin in range(0, len(numbers), step):
        block = numbers[begin : begin + step]
        deliver(plain_bytes(found[block.start : block.stop : block.step]), False)


def plain_bytes(items: Any) -> bytes:
    """Return the bytes of items; raise `UsageError` for text of any length."""
    if items.dtype.hasobject:
        text = "text of any length, and other objects, have no plain bytes"
        raise UsageError(text)
    found: bytes = items.tobytes()
    return found


# Help


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Formats help in the width of the terminal; lines that fit keep their line end."""

    def __init__(self, prog: str, **kwargs: Any) -> None:
        # argparse would import shutil to find the width, even if no help is shown.
        super().__init__(prog, **{"width": max(LEAST_WIDTH, columns() - 2), **kwargs})

    def _format_usage(self, *args: Any) -> str:
        # argparse leaves blanks in place of a group of hidden options.
        return re.sub(r"(?<=\S) {2,}(?=\S)", " ", super()._format_usage(*args))

    def _split_lines(self, text: str, width: int) -> list[str]:
        lines = text.splitlines()
        if all(len(line) <= width for line in lines):
            return lines
        return wrapped(text, width)


def columns() -> int:
    """Return the columns of the terminal on standard output, or 80."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except (AttributeError, OSError, ValueError):
        return 80


def wrapped(text: str, width: int) -> list[str]:
    """Return text as lines. Importing textwrap would take longer than this loop."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append(word)
        else:
            lines[-1] += " " * bool(lines[-1]) + word
    return lines
