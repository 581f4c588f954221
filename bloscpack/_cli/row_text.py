"""Rows as text: a line for each row of a table, NumPy's form for more axes, hex.

Only the beginning of a row that is too wide is shown, and a note says so.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy

from .._format.dtypes import Array, check_text
from .._types import Json
from ..dataset.conversion.contents import Rows, is_table
from ..dataset.description import dtype_text
from ..dataset.frames import shown_items, time_texts
from ..log import printable
from .contents import BytesContent
from .text import columns as terminal_columns
from .text import shorten

# Number of rows shown of each end; less for arrays of three axes or more.
EDGE, CUBE_EDGE = 5, 3
# Maximum number of rows and of columns that are shown.
MOST_ROWS, MOST_COLUMNS = 10_000, 64
# Number of plain bytes shown of a file of bytes, and of them on a line.
MOST_BYTES, LINE_BYTES = 256, 16
# Number of digits of floats, and of characters of text.
DIGITS, FLOATS, MOST_CHARACTERS = 8, ".8g", 32
MORE_COLUMNS = "columns left out: %d (--fields selects some)"
UNKNOWN_CHARACTER = "\ufffd"
# What is shown of an item that the mask of its column names.
MISSING = "<missing>"
LIMIT = "(%d rows are shown at most)" % MOST_ROWS


def shown_spans(content: Rows, rows: slice | None) -> list[range]:
    """Return the selected rows, or the first and the last ones.

    There is one row more than `MOST_ROWS` if not all of them are shown.
    """
    count = content.shape[0]
    if rows is not None:
        return [range(*rows.indices(count))[: MOST_ROWS + 1]]
    if isinstance(content, BytesContent):
        return [range(min(count, MOST_BYTES))]
    edge = CUBE_EDGE if _is_cube(content) else EDGE
    if count <= 2 * edge:
        return [range(count)]
    return [range(edge), range(count - edge, count)]


def _is_cube(content: Rows) -> bool:
    return len(content.shape) > 2


def row_lines(parts: list[tuple[range, Rows]], is_cut: bool) -> Iterator[str]:
    """Yield the lines of parts of one array, table or file of bytes."""
    span, first = parts[0]
    if not span:
        yield "no rows"
    elif isinstance(first, BytesContent):
        yield from _byte_lines(first, span)
    elif _is_cube(first):
        yield from _cube_lines(parts)
    else:
        yield from _table_lines(parts)
    if is_cut:
        yield LIMIT


# Tables


def _table_lines(parts: list[tuple[range, Rows]]) -> Iterator[str]:
    """Yield a line for each row, below the names and types of the columns."""
    labels: list[str] = []
    columns: dict[str, list[str]] = {}
    count = 0
    has_types = is_table(parts[0][1])
    for number, (span, part) in enumerate(parts):
        gap = ["..."] * (number > 0)
        labels += [*gap, *map(str, span)]
        for block in _column_blocks(part):
            count = len(block)
            for name in list(block)[:MOST_COLUMNS]:
                rows = block[name]
                types = [_type_text(rows)] if has_types else []
                column = columns.setdefault(name, [name, *types])
                column += [*gap, *_cells(rows)]
            gap = []
    head = [""] * (1 + has_types)
    yield from fitted([[*head, *labels], *columns.values()], count - len(columns))


def _cells(rows: Array) -> list[str]:
    """Return a short text for each row of a column."""
    if numpy.ma.isMaskedArray(rows):
        return _instead(_cells(numpy.ma.getdata(rows)), rows, MISSING)
    kind = rows.dtype.kind if rows.ndim == 1 else ""
    if kind in ("S", "U", "O"):
        return [shorten(printable(text), MOST_CHARACTERS) for text in texts_of(rows)]
    texts = shown_items(rows)
    if kind not in ("f", "c"):
        return texts
    pairs = zip(texts, rows.tolist(), strict=True)
    return [t if len(t) <= DIGITS + 2 else format(v, FLOATS) for t, v in pairs]


def _instead(values: list[Any], items: Array, missing: object) -> list[Any]:
    """Return values of items, of which those that are masked become `missing`."""
    masked = numpy.ma.getmaskarray(items).tolist()
    return [missing if m else v for v, m in zip(values, masked, strict=True)]


def texts_of(items: Array) -> list[str]:
    """Return text or bytes as strings."""
    check_text(items)
    if items.dtype.kind in "UO":
        return [*map(str, items.tolist())]
    return [item.decode("utf-8", "backslashreplace") for item in items.tolist()]


def _column_blocks(part: Rows) -> Iterator[dict[str, Array]]:
    """Yield blocks of rows by column: the fields, or the items of a row."""
    for rows in part.blocks():
        if part.columns:
            yield part.masked(rows)
        elif is_table(part):
            yield {name: rows[name] for name in rows.dtype.names or ()}
        elif rows.ndim == 2:
            yield {str(i): rows[:, i] for i in range(rows.shape[1])}
        else:
            yield {"": rows}


def _type_text(rows: Array) -> str:
    inner = "" if rows.ndim == 1 else str(list(rows.shape[1:]))
    return shorten(dtype_text(rows.dtype), 24) + inner


def fitted(columns: Sequence[Sequence[str]], left_out: int = 0) -> Iterator[str]:
    """Yield columns as lines that fit the terminal, and how many columns do not.

    A pipe gets all columns, unless the environment says how wide the output is.
    """
    is_limited = sys.stdout.isatty() or "COLUMNS" in os.environ
    limit = terminal_columns() if is_limited else sys.maxsize
    texts = [[printable(cell) for cell in column] for column in columns]
    widths: list[int] = []
    for column in texts:
        width = max(map(len, column))
        if len(widths) > 1 and sum(widths) + 2 * len(widths) + width > limit:
            break
        widths.append(width)
    left_out += len(texts) - len(widths)
    for row in zip(*texts[: len(widths)], strict=True):
        line = "  ".join(map(str.rjust, row, widths)).rstrip()
        if line:
            yield shorten(line, max(limit, 4))
    if left_out:
        yield MORE_COLUMNS % left_out


# Arrays of three axes or more


def _cube_lines(parts: list[tuple[range, Rows]]) -> Iterator[str]:
    """Yield rows as NumPy shows them, without the middle of each axis."""
    for number, (span, part) in enumerate(parts):
        if number:
            yield "..."
        rows = (row for block in _column_blocks(part) for row in block[""])
        for label, items in zip(map("[%d] ".__mod__, span), rows, strict=True):
            text = numpy.array2string(
                items,
                prefix=label,
                edgeitems=CUBE_EDGE,
                threshold=0 if max(items.shape) > 2 * CUBE_EDGE else sys.maxsize,
                max_line_width=terminal_columns(),
            )
            yield from (label + text).split("\n")


# Plain bytes


def _byte_lines(content: BytesContent, span: range) -> Iterator[str]:
    """Yield bytes as lines of text if they are printable, or else in hexadecimal."""
    data = b"".join(block.tobytes() for block in content.blocks())
    # The last character may be cut off.
    text = data.decode("utf-8", "replace").rstrip(UNKNOWN_CHARACTER)
    if all(
        c.isprintable() or c in "\n\r\t" for c in text.replace(UNKNOWN_CHARACTER, "\0")
    ):
        yield from text.expandtabs().splitlines()
        return
    for start in range(0, len(data), LINE_BYTES):
        line = data[start : start + LINE_BYTES]
        shown = "".join(chr(b) if 32 <= b < 127 else "." for b in line)
        digits = line.hex(" ").ljust(3 * LINE_BYTES - 1)
        yield "%08x  %s  %s" % (span.start + start * span.step, digits, shown)


# JSON


def json_rows(part: Rows) -> list[Json]:
    """Return rows as JSON: of a table an object for each."""
    if not is_table(part):
        return [row for block in part.blocks() for row in json_values(block)]
    return [row for block in _column_blocks(part) for row in block_values(block)]


def block_values(block: dict[str, Array]) -> list[Json]:
    """Return rows of columns as objects."""
    lists = [json_values(rows) for rows in block.values()]
    return [dict(zip(block, row, strict=True)) for row in zip(*lists, strict=True)]


def json_values(items: Array) -> list[Json]:
    """Return items as JSON: what JSON lacks is text, and what is missing is null."""
    if numpy.ma.isMaskedArray(items):
        return _instead(json_values(numpy.ma.getdata(items)), items, None)
    if items.ndim > 1:
        flat: Array = numpy.empty(items.size, object)
        flat[:] = json_values(items.reshape(-1))
        nested: list[Json] = flat.reshape(items.shape).tolist()
        return nested
    if items.dtype.names is not None:
        return block_values({name: items[name] for name in items.dtype.names})
    kind = items.dtype.kind
    if kind in "mM":
        return [None if text == "NaT" else text for text in time_texts(items)]
    if kind in "SU":
        return list(texts_of(items))
    if kind == "V":
        return [value.hex() for value in items.tolist()]
    if kind == "f":
        items = items.astype("f8")
    values: list[Json] = items.tolist()
    return [str(value) for value in values] if kind == "c" else values
