"""Rows as text: a line for each row of a table, NumPy's form for more axes, hex.

Only the beginning of a row that is too wide is shown, and a note says so.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy

from .._format.dtypes import check_text
from ..dataset.conversion.contents import (
    ArrayContent,
    TableContent,
    is_table,
    regrouped,
)
from ..dataset.description import dtype_text
from ..dataset.frames import shown_items
from ..log import printable
from .contents import BytesContent, row_count
from .display import columns as terminal_columns
from .display import shorten

if TYPE_CHECKING:
    from .._format.dtypes import Array
    from ..serializers import Json
    from .contents import Rows

# Number of rows shown of each end; less for arrays of three axes or more.
EDGE, CUBE_EDGE = 5, 3
# Maximum number of rows and of columns that are shown.
MOST_ROWS, MOST_COLUMNS = 10_000, 64
# Number of plain bytes shown of a file of bytes, and of them on a line.
MOST_BYTES, LINE_BYTES = 256, 16
# Number of digits of floats, and of characters of text.
DIGITS, MOST_CHARACTERS = 8, 32
MORE_COLUMNS = "(%d more columns: --fields selects some)"
HIDDEN_ROWS = "(%d more rows: --rows selects some, --format csv writes all)"
HIDDEN_BYTES = "(%d more bytes: --rows selects some, 'blpk cat' writes all)"
# Number of rows that become JSON at a time.
JSON_ROWS = 4096


def shown_spans(content: Rows, rows: slice | None) -> list[range]:
    """Return the selected rows, or the first and the last ones."""
    count = row_count(content)
    if rows is not None:
        return [range(*rows.indices(count))]
    if isinstance(content, BytesContent):
        return [range(min(count, MOST_BYTES))]
    edge = CUBE_EDGE if _is_cube(content) else EDGE
    if count <= 2 * edge:
        return [range(count)]
    return [range(edge), range(count - edge, count)]


def _is_cube(content: Rows) -> bool:
    return isinstance(content, ArrayContent) and len(content.shape) > 2


def row_lines(parts: list[tuple[range, Rows]], total: int) -> Iterator[str]:
    """Yield the lines of parts of one array, table or file of bytes.

    `total` is the number of all rows.
    """
    parts = [(span[:MOST_ROWS], part) for span, part in parts]
    first = parts[0][1]
    if isinstance(first, BytesContent):
        yield from _byte_lines(first, parts[0][0])
        if total > first.nbytes:
            yield HIDDEN_BYTES % (total - first.nbytes)
    elif not any(span for span, _ in parts):
        yield "no rows"
    elif _is_cube(first):
        yield from _cube_lines(parts)
    else:
        yield from _table_lines(parts)
    hidden = sum(row_count(part) - len(span) for span, part in parts)
    if hidden:
        yield HIDDEN_ROWS % hidden


# Tables


def _table_lines(parts: list[tuple[range, Rows]]) -> Iterator[str]:
    """Yield a line for each row, below the names and types of the columns."""
    labels: list[str] = []
    columns: dict[str, list[str]] = {}
    count = 0
    has_types = isinstance(parts[0][1], TableContent) or is_table(parts[0][1])
    for number, (span, part) in enumerate(parts):
        gap = ["..."] * (number > 0)
        labels += [*gap, *map(str, span)]
        left = len(span)
        for block in _column_blocks(part):
            count = len(block)
            for name in list(block)[:MOST_COLUMNS]:
                rows = block[name][:left]
                types = [_type_text(rows)] if has_types else []
                column = columns.setdefault(name, [name, *types])
                column += [*gap, *_cells(rows)]
            left -= len(rows)
            gap = []
            if not left:
                break
    head = [""] * (1 + has_types)
    yield from fitted([[*head, *labels], *columns.values()], count - len(columns))


def _cells(rows: Array) -> list[str]:
    """Return a short text for each row of a column."""
    kind = rows.dtype.kind if rows.ndim == 1 else ""
    if kind not in ("S", "U", "f", "c"):
        return shown_items(rows)
    if kind in "SU":
        return [shorten(printable(text), MOST_CHARACTERS) for text in texts_of(rows)]
    texts = rows.astype(str).tolist()
    return [
        text
        if len(text) <= DIGITS + 2
        else "%.*g" % (DIGITS, value)
        if kind == "f"
        else format(value, ".%dg" % (DIGITS // 2))
        for text, value in zip(texts, rows.tolist(), strict=True)
    ]


def texts_of(items: Array) -> list[str]:
    """Return text or bytes as strings."""
    check_text(items)
    values: list[Any] = items.tolist()
    if items.dtype.kind == "U":
        return values
    return [value.decode("utf-8", "backslashreplace") for value in values]


def _column_blocks(part: Rows) -> Iterator[dict[str, Array]]:
    """Yield blocks of rows by column: the fields, or the items of a row."""
    if isinstance(part, TableContent):
        yield from part.read()
        return
    for rows in part.rows():
        if is_table(part):
            yield {name: rows[name] for name in rows.dtype.names or ()}
        elif rows.ndim == 2:
            yield {str(i): rows[:, i] for i in range(rows.shape[1])}
        else:
            yield {"": rows}


def _type_text(rows: Array) -> str:
    inner = "" if rows.ndim == 1 else str(list(rows.shape[1:]))
    return shorten(dtype_text(rows.dtype), 24) + inner


def fitted(
    columns: Sequence[Sequence[str]], left_out: int = 0, more: str = MORE_COLUMNS
) -> Iterator[str]:
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
        yield more % left_out


# Arrays of three axes or more


def _cube_lines(parts: list[tuple[range, Rows]]) -> Iterator[str]:
    """Yield rows as NumPy shows them, without the middle of each axis."""
    for number, (span, part) in enumerate(parts):
        if number:
            yield "..."
        assert isinstance(part, ArrayContent)
        rows = (row for block in part.rows() for row in block)
        # The span is shorter where rows are left out.
        for label, items in zip(map("[%d] ".__mod__, span), rows, strict=False):
            text = numpy.array2string(_edges(items), prefix=label, **_options(items))
            yield from (label + text).split("\n")


def _edges(items: Array) -> Array:
    """Return both ends of each axis, with an item between them that is not shown."""
    for axis, n in enumerate(items.shape):
        if n > 2 * CUBE_EDGE:
            kept = [*range(CUBE_EDGE + 1), *range(n - CUBE_EDGE, n)]
            items = items.take(kept, axis)
    return items


def _options(items: Array) -> dict[str, Any]:
    is_cut = max(items.shape) > 2 * CUBE_EDGE
    return {
        "edgeitems": CUBE_EDGE,
        "threshold": 0 if is_cut else sys.maxsize,
        "max_line_width": terminal_columns(),
    }


# Plain bytes


def _byte_lines(content: BytesContent, span: range) -> Iterator[str]:
    """Yield bytes as lines of text if they are printable, or else in hexadecimal."""
    data = b"".join(block.tobytes() for block in content.rows())[: len(span)]
    text = _text_of(data)
    if text is not None:
        yield from text.splitlines()
        return
    for start in range(0, len(data), LINE_BYTES):
        line = data[start : start + LINE_BYTES]
        shown = "".join(chr(b) if 32 <= b < 127 else "." for b in line)
        digits = line.hex(" ").ljust(3 * LINE_BYTES - 1)
        yield "%08x  %s  %s" % (span.start + start * span.step, digits, shown)


def _text_of(data: bytes) -> str | None:
    """Return UTF-8 as text, of which the last character may be cut off."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.reason != "unexpected end of data":
            return None
        text = data[: error.start].decode("utf-8")
    is_text = all(c.isprintable() or c in "\n\r\t" for c in text)
    return text.replace("\t", "    ") if is_text else None


# JSON


def json_rows(part: Rows) -> Iterator[list[Json]]:
    """Yield lists of rows as JSON: of a table an object for each."""
    if isinstance(part, TableContent) or is_table(part):
        blocks: Any = _column_blocks(part)
    else:
        blocks = ({"": block} for block in part.rows())
    for block in regrouped(blocks, JSON_ROWS):
        yield block_values(block) if list(block) != [""] else json_values(block[""])


def block_values(block: dict[str, Array]) -> list[Json]:
    """Return rows of columns as objects."""
    lists = [json_values(rows) for rows in block.values()]
    return [dict(zip(block, row, strict=True)) for row in zip(*lists, strict=True)]


def json_values(items: Array) -> list[Json]:
    """Return items as JSON: what JSON lacks is text, and what is missing is null."""
    if items.ndim > 1:
        flat: Array = numpy.empty(items.size, object)
        flat[:] = json_values(items.reshape(-1))
        nested: list[Json] = flat.reshape(items.shape).tolist()
        return nested
    if items.dtype.names is not None:
        return block_values({name: items[name] for name in items.dtype.names})
    kind = items.dtype.kind
    if kind in "mM":
        texts = items.astype(str).tolist()
        return [None if text == "NaT" else text for text in texts]
    if kind in "SU":
        return list(texts_of(items))
    if kind == "V":
        return [value.hex() for value in items.tolist()]
    if kind == "f":
        items = items.astype("f8")
    values: list[Json] = items.tolist()
    return [str(value) for value in values] if kind == "c" else values
