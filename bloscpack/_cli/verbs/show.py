"""``blpk show``: what is in a file: shape, sizes, and the first and last rows.

As text, a row has a line. Only the rows that are shown are read. ``--json`` has the
rows of the text.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy

from ..._check.note import told
from ..._format.dtypes import DType
from ..._types import Json, JsonObject
from ...dataset.conversion.statistics import Summary, summaries
from ...dataset.description import dtype_text
from ...dataset.frames import time_texts
from ...log import printable
from ..args import READING, READING_PROPERTIES, reading_options
from ..console import console, shown_input, warn_of_unread
from ..contents import check_options, describe, in_one_state, opened, rows_of, selected
from ..progress import shown
from ..row_text import MOST_ROWS, fitted, json_rows, row_lines, shown_spans
from ..text import UNKNOWN, member_lines, say_json, short, size_text
from .cat import parse_rows

SETTINGS = ("codec", "level", "filter")
COLUMNS = ("min", "max", "mean", "count", "missing")
# What is in front of the time of a day, and of the fraction of its seconds.
TIME, FRACTION = "T", "."

HELP = """\
show the shape, the sizes and the first and last rows of a file or dataset;
all formats that convert reads, with its options for that, such as --dtype
and --delimiter. A member is named behind the file: a.zip/x.

examples:
  %(prog)s --rows 10:20 --fields time,price prices.zarr
  %(prog)s --stats data.blp
"""
OPTIONS = (
    """\
--rows <A:B:C>  rows from A to B, every C-th one, as in Python
--fields <a,b>  only these fields or columns
"""
    + READING
    + """\
--stats  read all items: least, greatest, mean, and how many
--json  print an object with description and rows
file_ <file>  file, dataset, folder or URL; - may be a pipe
"""
)
PROPERTIES = READING_PROPERTIES


def run(args: Namespace) -> None:
    """Show the contents."""
    rows = None if args.rows is None else parse_rows(args.rows)
    options = reading_options(args)
    fields = None if args.fields is None else args.fields.split(",")

    def read() -> tuple[JsonObject, Sequence[str], list[str]]:
        with opened(args.file_, args.nthreads, options) as given:
            check_options(options, given)
            lines: Iterable[str]
            content, described = given.content, describe(given)
            if rows or fields:
                content = selected(rows_of(given), rows or slice(None), fields)
            if args.stats:
                if bar is not None:
                    bar.expect(content.nbytes)
                described["stats"] = [
                    _statistics(each) for each in summaries(content, bar)
                ]
                columns = [["", *(each["name"] for each in described["stats"])]]
                for key in COLUMNS:
                    texts = [_shown(each[key]) for each in described["stats"]]
                    columns.append([key, *texts])
                lines = fitted(columns)
            elif content.kind == "group":
                lines = member_lines(described)
            else:
                source = rows_of(given)
                spans = shown_spans(source, rows)
                is_cut = len(spans[0]) > MOST_ROWS
                spans[0] = spans[0][:MOST_ROWS]
                keys = [slice(span.start, span.stop, span.step) for span in spans]
                pieces = [selected(source, key, fields) for key in keys]
                parts = [*zip(spans, pieces, strict=True)]
                lines = row_lines(parts, is_cut)
                if args.json:
                    described["parts"] = [
                        {"start": s.start, "step": s.step, "rows": json_rows(rows)}
                        for s, rows in parts
                    ]
                    described["is_cut"] = is_cut
            return described, given.lost, [] if args.json else [*lines]

    with shown(args.file_, None, args.progress) as bar:
        described, lost, lines = in_one_state(read, args.file_)
    if args.json:
        say_json(described)
    else:
        console.say_all(chain(_head(described), [""], lines))
    warn_of_unread(described["file"], lost)


def _head(described: JsonObject) -> Iterator[str]:
    """Yield what the file is, and its sizes and settings."""
    yield "%s: %s" % (shown_input(described["file"]), short(described))
    parts = ["plain " + size_text(described["nbytes"])]
    if "cbytes" in described:
        sizes = size_text(described["cbytes"]), described["ratio"]
        parts.append("packed %s, ratio %.2f" % sizes)
    # All columns have the settings of the first one, unless each has its own.
    first = [*described.get("columns", ()), described][0]
    known = [key for key in SETTINGS if first.get(key) is not None]
    yield ", ".join([*parts, *("%s %s" % (key, first[key]) for key in known)])
    recovered = told(described.get("metadata", described.get("attributes")))
    if recovered:
        yield "note: " + printable(recovered)


# Statistics


def _statistics(summary: Summary) -> JsonObject:
    """Return the statistics of an array."""
    return {
        "name": summary.name,
        "dtype": dtype_text(summary.dtype),
        "count": summary.count,
        "missing": summary.missing,
        "min": _number(summary.low, summary.dtype),
        "mean": _number(summary.mean, summary.dtype),
        "max": _number(summary.high, summary.dtype),
    }


def _number(value: float | None, dtype: DType) -> Json:
    """Return a number, or a time as text."""
    if dtype.kind not in "mM" or value is None:
        return value
    return time_texts(numpy.array([value], "i8").view(dtype.newbyteorder("=")))[0]


def _shown(value: Json) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, str) and TIME in value and FRACTION in value:
        return value.rstrip("0").removesuffix(FRACTION)
    return "%.6g" % value if isinstance(value, float) else str(value)
