"""``blpk cat``: write plain bytes of a file to standard output.

Only the chunks that contain these bytes are decompressed. A pipe is decompressed from
its beginning to the last of these bytes, in constant memory. Written bytes can't be
taken back: at a damaged chunk, all bytes before it have already been written.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable

from ..console import console
from ..display import parse_size
from ..exit_codes import WrongUsage
from ..named import named
from ..options import add_options

HELP = """\
write plain bytes to standard output, decompressing only the chunks that
contain them; without an option all bytes. Spans are those of Python: the
end is excluded, and negative numbers count from the end. A table of a
dataset is written row by row, as a structured array.

examples:
  %(prog)s data.blp | wc -c
  %(prog)s --bytes 1K:2M data.blp > part
  %(prog)s --bytes=-100: data.blp
  %(prog)s --rows ::10 array.blp > every-tenth-row
"""


OPTIONS = """\
--bytes <A:B>  bytes from A to B, both optional; suffixes B K M G T
    are powers of 1024
| --rows <A:B:C>  items along the first axis of an array, every C-th one
file_ <file>  file or dataset to be read; - may be a pipe
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of the verb."""
    add_options(parser, OPTIONS)


def run(args: Namespace) -> None:
    """Write the selected bytes or rows."""
    bytes_ = None if args.bytes is None else parse_span(args.bytes)
    rows = None if args.rows is None else parse_rows(args.rows)
    if sys.stdout.isatty() and not args.force:
        raise WrongUsage(
            "plain bytes are not written to a terminal; redirect them, or use --force"
        )
    sys.stdout.flush()

    named(args.file_).cat(bytes_, rows, console.put_bytes, args.nthreads)
    console.flush()


def parse_span(text: str) -> slice:
    """Return the span of bytes ``A:B``; raises `Refusal`."""
    return slice(*_numbers(text, "--bytes", "A:B", 2, parse_size))


def parse_rows(text: str) -> slice:
    """Return the span of rows ``A:B`` or ``A:B:C``; raises `Refusal`."""
    rows = slice(*_numbers(text, "--rows", "A:B or A:B:C", 3, int))
    if rows.step is not None and rows.step < 1:
        raise WrongUsage("--rows: the step must be at least 1, not '%d'" % rows.step)
    return rows


def _numbers(
    text: str, option: str, form: str, most: int, number: Callable[[str], int]
) -> list[int | None]:
    parts = text.split(":")
    try:
        if not 2 <= len(parts) <= most:
            colons = len(parts) - 1
            found = "no colon" if not colons else "%d colons" % colons
            raise ValueError("it has %s" % found)
        return [number(part) if part.strip() else None for part in parts]
    except ValueError as error:
        raise WrongUsage(
            "%s: expected %s, found '%s': %s" % (option, form, text, error)
        ) from error
