"""``blpk show``: what is in a file: shape, sizes, and the first and last rows.

As text, a row has a line. Only the rows that are shown are read. The other forms, for
programs, hold all selected rows, and are written in blocks.
"""

from __future__ import annotations

import io
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from ... import log
from ...dataset.conversion import FORMATS
from ...dataset.conversion.contents import (
    ArrayContent,
    GroupContent,
    Request,
    TableContent,
    named_arrays,
)
from ...dataset.conversion.statistics import summaries
from ...dataset.description import dtype_text
from ...describe import ratio_of
from ..console import STREAM, console
from ..contents import BytesContent, Opened, opened, row_count, rows_of, selected
from ..display import (
    UNKNOWN,
    say_json,
    say_json_list,
    shorten,
    size_text,
    table,
)
from ..exit_codes import WrongUsage
from ..inputs import is_dataset
from ..named import named
from ..options import add, set_help
from ..progress import shown
from ..row_text import json_rows, preview_lines, shown_spans
from ..statistics_text import as_json, statistics_lines
from .cat import parse_rows

if TYPE_CHECKING:
    from ...dataset.conversion.contents import Content
    from ...serializers import JsonObject
    from ..progress import Bar

FORMS = ("table", "csv", "json", "npy")
SETTINGS = ("codec", "level", "filter")

HELP = """\
show the shape, the sizes and the first and last rows of a file or dataset;
all formats that convert reads. A member is named behind the file: a.zip/x.
With --format csv, json or npy all rows, or those of --rows, are written.

examples:
  %(prog)s --rows 10:20 --fields time,price prices.zarr
  %(prog)s --stats data.blp
  %(prog)s --format csv prices.zarr | head
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of the verb."""
    set_help(parser, HELP)
    add(parser, "--rows <A:B:C>", "rows from A to B, every C-th one, as in Python")
    add(parser, "--fields <a,b>", "only these fields or columns")
    add(
        parser,
        "--format <format>",
        "table, csv, json or npy (default: table)",
        choices=FORMS,
        default="table",
    )
    add(parser, "--stats", "read all items: extremes, mean, NaN, and a histogram")
    add(parser, "--json", "print an object with description and rows")
    add(parser, "file_ <file>", "file, dataset, folder or URL; - may be a pipe")


def writes_data(args: Namespace) -> bool:
    """Return whether standard output gets rows for programs."""
    return bool(args.format != "table")


def run(args: Namespace) -> None:
    """Show the contents."""
    rows = None if args.rows is None else parse_rows(args.rows)
    fields = None if args.fields is None else args.fields.split(",")
    is_data = args.format != FORMS[0]
    if is_data and (args.stats or args.json):
        raise WrongUsage("--format can't be combined with --stats or --json")
    if args.format == "npy" and sys.stdout.isatty() and not args.force:
        raise WrongUsage(
            "items are not written to a terminal; redirect them, or use --force"
        )
    with (
        shown(args.file_, None, args.progress) as bar,
        opened(args.file_, args.nthreads) as found,
    ):
        content = found.content
        is_group = isinstance(content, GroupContent)
        if is_group and (rows or fields or is_data):
            raise WrongUsage(
                "'%s' is a group: name an array or a table in it, such as '%s/%s'"
                % (args.file_, args.file_, next(iter(content.members), "a"))
            )
        if rows or fields or is_data:
            part = selected(rows_of(content), rows or slice(None), fields)
            if is_data:
                _write(part, args.format, bar)
                return
        described = describe(found)
        if args.stats:
            chosen = part if rows or fields else content
            described["stats"] = [*_statistics(chosen, "", bar)]
        elif not is_group:
            spans = shown_spans(rows_of(content), rows)
            _add_rows(described, rows_of(content), spans, fields, args.json)
        if args.json:
            say_json(described)
            return
        for line in _lines(described):
            console.say(line)


def _add_rows(
    described: JsonObject,
    content: ArrayContent | TableContent,
    spans: list[range],
    fields: list[str] | None,
    is_json: bool,
) -> None:
    """Add rows to a description, for programs or as lines of text."""
    parts = [
        (span, selected(content, slice(span.start, span.stop, span.step), fields))
        for span in spans
    ]
    if not is_json:
        described["lines"] = preview_lines(parts, row_count(content))
    elif not isinstance(content, BytesContent):
        described["parts"] = [
            {
                "start": span.start,
                "step": span.step,
                "rows": [row for piece in json_rows(part) for row in piece],
            }
            for span, part in parts
        ]


def _statistics(content: Content, name: str, bar: Bar | None) -> Iterator[JsonObject]:
    """Yield the statistics of all arrays, fields and columns."""
    if isinstance(content, GroupContent):
        for inner, member in content.members.items():
            yield from _statistics(
                member, "%s/%s" % (name, inner) if name else inner, bar
            )
        return
    if bar is not None:
        bar.expect(content.nbytes)
    for found in summaries(rows_of(content), bar):
        yield as_json(found, "/".join(filter(None, (name, found.name))))


# Data for programs


class _Output(io.RawIOBase):
    """Standard output; on a terminal, text is escaped."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if sys.stdout.isatty():
            for line in bytes(data).decode().splitlines():
                console.put_line(line)
        else:
            console.put_bytes(data)
        return len(data)


class _ToOutput(Request):
    """A conversion to standard output."""

    def new_file(self) -> AbstractContextManager[BinaryIO]:
        """Return the context of standard output."""
        return nullcontext(cast(BinaryIO, _Output()))


def _write(content: ArrayContent | TableContent, form: str, bar: Bar | None) -> None:
    if isinstance(content, BytesContent):
        raise WrongUsage("the file has plain bytes, no array: 'blpk cat' writes them")
    if bar is not None:
        bar.expect(content.nbytes)
    request = _ToOutput("", progress=bar)
    if form == "json":
        say_json_list(json_rows(content))
    else:
        sys.stdout.flush()
        FORMATS[form].write(content, request)
    for what in request.lost:
        log.notice("%s can't hold %s" % (form, what))


# Description


def describe(found: Opened) -> JsonObject:
    """Return what is known without reading items, with the keys of ``info --json``."""
    content = found.content
    described: JsonObject = {
        "file": found.name,
        "format": found.format,
        "kind": content.kind,
    }
    if isinstance(content, ArrayContent):
        described |= {"dtype": dtype_text(content.dtype), "shape": [*content.shape]}
    elif isinstance(content, TableContent):
        described["rows"] = content.length
        described["columns"] = [_short(n, c) for n, c in content.columns.items()]
    else:
        described["members"] = [_short(n, a) for n, a in named_arrays(content)]
    described["nbytes"] = content.nbytes
    described |= _stored(found)
    described["attributes"] = content.attrs
    return described


def _short(name: str, array: ArrayContent) -> JsonObject:
    found: JsonObject = {"name": name, "dtype": dtype_text(array.dtype)}
    cbytes = getattr(array.array, "cbytes", None)
    return {**found, "shape": [*array.shape], "nbytes": array.nbytes, "cbytes": cbytes}


def _stored(found: Opened) -> JsonObject:
    """Return the size and the settings of the file, if it is shown as a whole."""
    if found.member:
        return {}
    cbytes, settings = None, []
    if is_dataset(found.path):
        described = named(found.path).describe()[0]
        cbytes = described["cbytes"]
        arrays = [*described.get("columns", ()), described]
        keys = "codec", "level", "filter"
        settings = [[a[key] for key in keys] for a in arrays if a.get("codec")]
    elif found.format == "blp":
        described = named(found.path).describe()[0]
        cbytes, chunk = described["cbytes"], described["first_chunk"]
        settings = [[chunk["codec"], None, chunk["filter"]]] if chunk else []
    elif os.path.isfile(found.path):
        cbytes = os.path.getsize(found.path)
    if cbytes is None:
        return {}
    stored: JsonObject = {
        "cbytes": cbytes,
        "ratio": ratio_of(found.content.nbytes, cbytes),
    }
    if settings and all(setting == settings[0] for setting in settings):
        stored.update(zip(("codec", "level", "filter"), settings[0], strict=True))
    return stored


def _lines(described: JsonObject) -> Iterator[str]:
    name = "standard input" if described["file"] == STREAM else described["file"]
    kind = "%s (%s)" % (described["kind"], described["format"])
    if described["kind"] == "bytes":
        what = "%s of %d bytes" % (kind, described["nbytes"])
    elif described["kind"] == "array":
        shape = tuple(described["shape"])
        what = "%s of dtype %s, shape %s" % (
            kind,
            shorten(described["dtype"], 40),
            shape,
        )
    elif described["kind"] == "table":
        counts = kind, described["rows"], len(described["columns"])
        what = "%s of %d rows and %d columns" % counts
    else:
        what = "%s of %d arrays" % (kind, len(described["members"]))
    yield "%s: %s" % (name, what)
    sizes = ["plain %s" % size_text(described["nbytes"])]
    if "cbytes" in described:
        sizes += ["packed %s" % size_text(described["cbytes"])]
        sizes += ["ratio %.2f" % described["ratio"]]
    if "codec" in described:
        level = described["level"]
        sizes += [
            described["codec"],
            *(["level %s" % level] if level is not None else []),
        ]
        sizes += ["filter %s" % described["filter"]]
    yield ", ".join(sizes)
    yield ""
    if "stats" in described:
        yield from statistics_lines(described["stats"])
    elif described["kind"] == "group":
        yield from _member_lines(described["members"])
    else:
        yield from described["lines"]


def _member_lines(members: list[JsonObject]) -> list[str]:
    rows = [("plain", "packed", "ratio", "array", "name")]
    for member in members:
        nbytes, cbytes = member["nbytes"], member["cbytes"]
        rows.append(
            (
                size_text(nbytes),
                UNKNOWN if cbytes is None else size_text(cbytes),
                UNKNOWN if cbytes is None else "%.2f" % ratio_of(nbytes, cbytes),
                shorten("%s %s" % (member["dtype"], tuple(member["shape"])), 60),
                member["name"],
            )
        )
    return table(rows, left=(3,))
