"""``blpk cat``: write plain bytes of a file to standard output.

Only the chunks that contain these bytes are decompressed. A pipe is decompressed from
its beginning to the last of these bytes, in constant memory. Written bytes can't be
taken back: at a damaged chunk, all bytes before it have already been written.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

from ..._commit.snapshot import read_snapshot
from ..._types import Seekable
from ...constants import MAGIC
from ...exceptions import UsageError
from ..args import parse_size
from ..console import console, is_left_over, name_of_input, warn_of_rest
from ..exit_codes import WrongUsage
from ..named import NamedFile, named, opened_rows

if TYPE_CHECKING:
    from ..._commit.snapshot import Check

# About the number of plain bytes of rows that are read at a time.
READ_NBYTES = 16 * 2**20

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


def run(args: Namespace) -> None:
    """Write the selected bytes or rows."""
    bytes_ = None
    if args.bytes is not None:
        bytes_ = slice(*_numbers(args.bytes, "--bytes", "A:B", 2, parse_size))
    rows = None if args.rows is None else parse_rows(args.rows)
    if sys.stdout.isatty() and not args.force:
        raise WrongUsage(
            "plain bytes are not written to a terminal; redirect them, or use --force"
        )
    sys.stdout.flush()

    item = named(args.file_)
    if isinstance(item, NamedFile):
        _cat_file(item.path, bytes_, rows, args.nthreads)
    else:
        _cat_dataset(item.path, bytes_, rows)
    console.flush()


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
            counted = "no colon" if not colons else "%d colons" % colons
            raise ValueError("it has %s" % counted)
        return [number(part) if part.strip() else None for part in parts]
    except ValueError as error:
        raise WrongUsage(
            "%s: expected %s, found '%s': %s" % (option, form, text, error)
        ) from error


def _cat_file(
    path: str, bytes_: slice | None, rows: slice | None, nthreads: int
) -> None:
    """Write the plain bytes of a file, or some of them."""
    from ...reader import Reader

    def read(fp: Seekable, check: Check) -> None:
        if not fp.seekable():
            _cat_pipe(path, fp, bytes_ or slice(None), nthreads)
            return
        start_of_file = fp.tell()
        reader = Reader(fp)
        check(reader.header)
        if rows is not None:
            with reader._array(nthreads) as array:
                _write_rows(array, rows)
            return
        start, stop, _ = (bytes_ or slice(None)).indices(reader.nbytes)
        reader._deliver(start, stop, console.put_bytes, nthreads)
        if stop == reader.nbytes:
            behind = reader._peek_behind(len(MAGIC))
            if behind == MAGIC and bytes_ is None:
                fp.seek(start_of_file + reader._end())
                _cat_pipe(path, fp, slice(None), nthreads)
            else:
                warn_of_rest(path, behind, partial(is_left_over, fp, start_of_file))

    parts = bytes_ is not None or rows is not None
    name = name_of_input(path, seekable=rows is not None)
    read_snapshot(name, read, attempts=1, parts=parts)


def _cat_dataset(path: str, bytes_: slice | None, rows: slice | None) -> None:
    """Write the plain bytes of a dataset, of a table as structured items."""
    with opened_rows(path) as node:
        if rows is not None:
            _write_rows(node, rows)
            return
        row = prod(node.shape[1:]) * node.dtype.itemsize
        start, stop, _ = (bytes_ or slice(None)).indices(row * len(node))
        step = max(1, READ_NBYTES // max(1, row)) * row
        for begin in range(start - start % row if row else 0, stop, step or 1):
            plain = _plain(node[begin // row : (begin + step) // row])
            console.put_bytes(plain[max(0, start - begin) : stop - begin])


def _write_rows(node: Any, rows: slice) -> None:
    """Write the plain bytes of rows of an array or a table, in blocks."""
    numbers = range(*rows.indices(len(node)))
    row = prod(node.shape[1:]) * node.dtype.itemsize
    step = max(1, READ_NBYTES // max(1, row * numbers.step))
    for begin in range(0, len(numbers), step):
        block = numbers[begin : begin + step]
        console.put_bytes(_plain(node[block.start : block.stop : block.step]))


def _plain(items: Any) -> bytes:
    """Return the bytes of items; raise `UsageError` for text of any length."""
    if items.dtype.hasobject:
        raise UsageError("text of any length, and other objects, have no plain bytes")
    plain: bytes = items.tobytes()
    return plain


def _cat_pipe(name: str, fp: Seekable, span: slice, nthreads: int) -> None:
    """Write plain bytes of a file object from its position on, in constant memory.

    If the span is the whole file, the bytes of files that follow it are written, too.
    The bytes of a chunk are delivered before the next chunk is read, so Blosc shares
    the blocks of each chunk among the threads.
    """
    from ..._engine.blosc_settings import own_settings
    from ..._format.chunks import plain_of
    from ...file_io import CompressedFPSource

    source = CompressedFPSource(fp, to_end=True)
    nbytes = source.bloscpack_header.nbytes
    if nbytes is None and min(span.start or 0, span.stop or 0) < 0:
        raise UsageError(
            "positions from the end can't be read from a pipe if the header of the "
            "file does not contain its size"
        )
    is_whole = span == slice(None)
    nbytes = sys.maxsize if nbytes is None or is_whole else nbytes
    start, stop, _ = span.indices(nbytes)
    to_end = stop == nbytes  # what follows has to be checked
    while True:
        with own_settings:
            own_settings.use_threads_of_blosc(nthreads)
            for frame in source.frames():
                plain = plain_of(frame, source.checksum_impl)
                first, last = (max(0, at - frame.start) for at in (start, stop))
                if first < last:
                    console.put_bytes(bytes(plain[first:last]), flush=True)
                if frame.start + len(plain) >= stop and not to_end:
                    break
        behind = source.peek_behind(len(MAGIC)) if to_end else b""
        if behind != MAGIC or not is_whole:
            break
        source = source.following()
    warn_of_rest(name, behind, source.is_left_over)
