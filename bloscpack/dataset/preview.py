"""Tables and groups as text, for their repr."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy

from .._format.dtypes import check_text
from ..exceptions import BloscpackError
from .folder import Folder
from .layouts import array_class, find_members, table_class

if TYPE_CHECKING:
    from .._format.dtypes import Array as Items
    from .array import Array
    from .layouts import Found

# Number of rows at each end of a table.
SHOWN_ROWS = 3
# Maximum number of columns.
SHOWN_COLUMNS = 12
# Maximum number of characters of an item.
MAX_SHOWN = 32
# Maximum number of members of a group that are shown, those inside of members included.
SHOWN_MEMBERS = 100


def shown_rows(all_columns: Mapping[str, Array], count: int) -> list[str]:
    """Return the first and last of `count` rows as lines, below names and dtypes."""
    first = range(min(SHOWN_ROWS, count))
    last = range(max(len(first), count - SHOWN_ROWS), count)
    has_gap = len(first) + len(last) < count
    columns = [["", "", *map(str, first), *["..."] * has_gap, *map(str, last)]]
    for name, column in list(all_columns.items())[:SHOWN_COLUMNS]:
        inner = "" if column.ndim == 1 else str(list(column.shape[1:]))
        head = [name, str(column.dtype) + inner, *shown_items(column[: len(first)])]
        tail = shown_items(column[last.start : last.stop]) if last else []
        columns.append([*head, *["..."] * has_gap, *tail])
    if len(all_columns) > SHOWN_COLUMNS:
        more = "(%d more columns)" % (len(all_columns) - SHOWN_COLUMNS)
        columns.append([more] + [""] * (len(columns[0]) - 1))
    widths = [max(map(len, cells)) for cells in columns]
    return [
        "  ".join(map(str.rjust, row, widths)).rstrip()
        for row in zip(*columns, strict=True)
    ]


def shown_items(items: Items) -> list[str]:
    """Return short texts of items, for the repr of a table."""
    check_text(items)
    with numpy.printoptions(threshold=6, edgeitems=2, precision=6):
        texts = [
            " ".join(str(item).split())
            if items.ndim > 1
            else repr(item.item())  # escapes what a terminal would obey
            if items.dtype.kind in "SU"
            else str(item)
            for item in items
        ]
    return [t if len(t) <= MAX_SHOWN else t[: MAX_SHOWN - 3] + "..." for t in texts]


def shown_members(folder: Folder) -> list[str]:
    """Return a line for each member of a group, and for those inside of members."""
    lines: list[str] = []
    for line in _member_lines(folder, "  "):
        if len(lines) == SHOWN_MEMBERS:
            return [*lines, "  ..."]
        lines.append(line)
    return lines


def _member_lines(folder: Folder, indent: str) -> Iterator[str]:
    members = dict(find_members(folder))
    width = max(map(len, members), default=0)
    for name, found in members.items():
        yield "%s%s  %s" % (indent, name.ljust(width), _description(found))
        if found.kind == "group":
            yield from _member_lines(found.folder, indent + "  ")


def _description(found: Found) -> str:
    """Return kind, shape and dtype of a member."""
    layout, kind = found.layout, found.kind
    try:
        if kind == "array":
            array = array_class(layout)(found.folder)
            return "array (%s): shape %s, dtype %s" % (layout, array.shape, array.dtype)
        if kind == "table":
            columns = table_class(layout)(found.folder).columns
            count = min((column.shape[0] for column in columns.values()), default=0)
            return "table (%s): %d rows of %s" % (layout, count, ", ".join(columns))
        return "group" if layout == "zarr" else "group (%s)" % layout
    except (BloscpackError, OSError):
        return "%s (%s), which can't be opened" % (kind, layout)
