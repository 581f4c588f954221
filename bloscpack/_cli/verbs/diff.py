"""``blpk diff``: compare the contents of two files or folders, of any formats.

The exit codes are those of diff: 0 if the contents are equal, 1 if not, 2 for wrong
usage, for a file that can't be read, and where standard output fails; and 3 for damaged
data.
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy

from ... import log
from ..._format.dtypes import Array
from ..._storage.paths import shown_name
from ..._types import Json, JsonObject
from ...constants import EXTENSION
from ...dataset.conversion.comparison import Comparison, Items
from ...dataset.frames import shown_items
from ...exceptions import BloscpackError, NotReadable
from ...log import counted, printable
from .. import exit_codes
from ..args import READING, READING_PROPERTIES, reading_options
from ..console import STREAM, console, warn_of_rest_in, warn_of_unread
from ..contents import BYTES, Opened, bytes_of, check_options, in_one_state, opened
from ..progress import Bar, shown
from ..row_text import MISSING, json_values
from ..text import json_text, say_json, shorten, table

EXIT_DIFFERENT = 1
# Text from a pipe has no name that says that it is CSV.
CSV, END = "csv", ".csv"
# Maximum number of characters shown of an attribute.
MOST_SHOWN = 60

HELP = """\
compare two files, datasets or folders of any formats that convert reads:
dtype, shape, items and attributes; exit code 0 if they are equal, 1 if
not, 2 if one can't be read, 3 if one is damaged. Nothing is printed if
they are equal; -q prints nothing at all. NaN equals NaN, and a missing
value another one. Options by which convert reads a file, such as --dtype
and --delimiter, are for each file that they fit.

examples:
  %(prog)s old.zarr new.zarr
  %(prog)s data.npy data.blp
  %(prog)s data.csv data.csv.blp        the file and its plain bytes
  %(prog)s --dtype day=M8[D] days.csv days.parquet
"""
OPTIONS = (
    """\
--json  print an object with all differences
"""
    + READING
    + """\
a <a>  file, dataset, folder or URL
b <b>  file, dataset, folder or URL to compare with
"""
)
PROPERTIES = READING_PROPERTIES


def run(args: Namespace) -> int:
    """Compare two contents; return the exit code."""
    if args.a == args.b == STREAM:
        raise exit_codes.WrongUsage("one of two files can be standard input, not both")
    try:
        with shown(args.a, None, args.progress) as bar:
            result, a, b = in_one_state(partial(_compare, args, bar), args.a, args.b)
        for each in (a, b):
            warn_of_unread(each.name, each.lost)
            if not each.member:
                warn_of_rest_in(each.name, each.path)
        _show(args, result, a, b)
    except (BloscpackError, OSError) as error:
        if exit_codes.exit_code(error) != exit_codes.EXIT_COULD_NOT:
            raise
        console.report(exit_codes.message_of(error, printable))
        return exit_codes.EXIT_USAGE  # the other code means a difference
    return exit_codes.EXIT_OK if result.is_equal else EXIT_DIFFERENT


def _compare(args: Namespace, bar: Bar | None) -> tuple[Comparison, Opened, Opened]:
    with ExitStack() as stack:
        options = reading_options(args)
        a, b = (_open(stack, name, args.nthreads, options) for name in (args.a, args.b))
        check_options(options, a, b)
        if "bytes" in (a.content.kind, b.content.kind):  # both are plain bytes
            for side in (a, b):
                if side.content.kind != "bytes" and side.is_plain_file:
                    side.content = bytes_of(side.path, stack)
        elif any(side.format == CSV and not side.name.endswith(END) for side in (a, b)):
            log.notice("text from a pipe is compared as CSV: 'cmp' compares bytes")
        has_attributes = a.holds_attributes and b.holds_attributes
        result = Comparison(has_attributes, args.quiet, bar)
        if bar is not None:
            bar.expect(a.content.nbytes)
        result.compare(a.content, b.content)
        return result, a, b


def _open(
    stack: ExitStack, name: str, nthreads: int, options: Mapping[str, Any]
) -> Opened:
    try:
        return stack.enter_context(opened(name, nthreads, options))
    except NotReadable:
        if name.endswith(EXTENSION) or not os.path.isfile(name):
            raise
        return Opened(name, name, "", BYTES, bytes_of(name, stack))


# What differs


def _show(args: Namespace, result: Comparison, a: Opened, b: Opened) -> None:
    if args.json:
        items = [_as_json(items) for items in result.items]
        what = {"equal": result.is_equal, "differences": result.notes, "items": items}
        say_json({"a": a.name, "b": b.name, **what})
    elif not args.quiet:
        console.say_all(_lines(result, a, b))


def _as_json(items: Items) -> JsonObject:
    return {
        "name": items.name,
        "compared": items.total,
        "differing": items.differing,
        "first": [
            {"index": list(index), "a": _json_of(a), "b": _json_of(b)}
            for index, a, b in items.first
        ],
    }


def _lines(result: Comparison, a: Opened, b: Opened) -> Iterator[str]:
    for note in result.notes:
        where = note["name"] + ": " if note["name"] else ""
        if note["what"] not in ("members", "columns", "attributes"):
            yield "%s%s: %s and %s" % (where, note["what"], *map(_value, _sides(note)))
            continue
        for names, side in zip(_sides(note), (a, b), strict=True):
            if names:
                text = "%s%s only in '%s': %s"
                listed = shorten(", ".join(names), MOST_SHOWN)
                yield text % (where, note["what"], shown_name(side.name), listed)
    for items in result.items:
        if not items.differing:
            continue
        where = items.name + ": " if items.name else ""
        verb = "differs" if items.differing == 1 else "differ"
        total = counted(items.total, "item")
        yield "%s%d of %s %s" % (where, items.differing, total, verb)
        rows = [("index", "first", "second")]
        for index, left, right in items.first:
            if left.dtype.kind in "fc" and right.dtype.kind in "fc":  # all digits
                left, right = numpy.ma.asanyarray([left, right])
            rows.append((str(list(index)), _text_of(left), _text_of(right)))
        yield from ("  " + line for line in table(rows, left=(0, 1)))
        if items.differing > len(items.first):
            yield "  ..."


def _sides(note: JsonObject) -> tuple[Json, Json]:
    return note["a"], note["b"]


def _value(value: Json) -> str:
    text = value if isinstance(value, str) else json_text(value, True)
    return shorten(text, MOST_SHOWN)


def _text_of(item: Array) -> str:
    return MISSING if numpy.ma.is_masked(item) else shown_items(item)[0]


def _json_of(item: Array) -> Json:
    return None if numpy.ma.is_masked(item) else json_values(item)[0]
