"""``blpk cat``: write plain bytes of a file to standard output.

Only the chunks that contain these bytes are decompressed. A pipe is decompressed from
its beginning to the last of these bytes, in constant memory. Written bytes can't be
taken back: at a damaged chunk, all bytes before it have already been written.
"""

from __future__ import annotations

import sys
from contextlib import suppress

from ... import log
from ..._crashsafe.snapshot import read_snapshot
from ..._storage.base import write_all
from ...abstract_io import unpack
from ...file_io import CompressedFPSource, PlainFPSink
from ...reader import Reader, Selection
from ..display import parse_size
from ..exit_codes import EXIT_USAGE, Refusal

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable

    from ..._crashsafe.snapshot import Check
    from ..._storage.protocols import Buffer, Seekable


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.description = (
        "write plain bytes to standard output, decompressing only the chunks that\n"
        "contain them; without an option all bytes. Spans are those of Python: the\n"
        "end is excluded, and negative numbers count from the end."
    )
    parser.epilog = (
        "examples:\n"
        "  %(prog)s data.blp | wc -c\n"
        "  %(prog)s --bytes 1K:2M data.blp > part\n"
        "  cat data.blp | %(prog)s --bytes 1M: - | wc -c\n"
        "  %(prog)s --rows ::10 array.blp > every-tenth-row"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--bytes",
        metavar="<A:B>",
        help="bytes from A to B, both optional; suffixes B K M G T\nare powers of 1024",
    )
    what.add_argument(
        "--rows",
        metavar="<A:B:C>",
        help="items along the first axis of an array, every C-th one",
    )
    parser.add_argument("file_", metavar="<file>", help="file to be read")


def run(args: Namespace) -> None:
    """Write the selected bytes or rows."""
    bytes_ = slice(None) if args.bytes is None else parse_span(args.bytes)
    rows = None if args.rows is None else parse_rows(args.rows)
    if sys.stdout.isatty() and not args.force:
        raise Refusal(
            "plain bytes are not written to a terminal; redirect them, or use --force",
            EXIT_USAGE,
        )
    sys.stdout.flush()

    def deliver(plain: bytes) -> None:
        try:
            write_all(sys.stdout.buffer, plain)
            if streamed:
                sys.stdout.buffer.flush()  # the next bytes may come much later
        except OSError as error:
            raise log.lost(error) from error

    streamed = False

    def read(fp: Seekable, check: Check) -> None:
        nonlocal streamed
        streamed = not fp.seekable()
        reader = _StreamReader(fp) if streamed else Reader(fp)
        check(reader.header)
        selected = reader.select(bytes_) if rows is None else reader.select_rows(rows)
        reader.deliver(selected, deliver, nthreads=args.nthreads)

    read_snapshot(args.file_, read, attempts=1)
    log.flush()


class _Complete(Exception):
    """All selected bytes of a pipe have been delivered."""


class _StreamReader(Reader):
    """Delivers a selection from a file object that can't seek, once."""

    def __init__(self, fp: Seekable) -> None:
        self._source = CompressedFPSource(fp, to_end=True)
        self.header = self._source.bloscpack_header
        self.metadata = self._source.metadata
        self._has_size = self.header.nbytes is not None
        self.nbytes = self.header.nbytes if self._has_size else sys.maxsize

    def select(self, span: slice) -> Selection:
        """Return the selection of a span of plain bytes."""
        if min(span.start or 0, span.stop or 0) < 0:
            self._need_size("positions from the end")
        return super().select(span)

    def select_rows(self, rows: slice) -> Selection:
        """Return the selection of some rows of the array."""
        self._need_size("rows")
        return super().select_rows(rows)

    def _need_size(self, what: str) -> None:
        if not self._has_size:
            raise Refusal(
                "%s can't be read from a pipe if the header of the file does not "
                "contain its size" % what,
                EXIT_USAGE,
            )

    def deliver(
        self,
        selection: Selection,
        deliver: Callable[[bytes], object],
        *,
        nthreads: int | None = None,
    ) -> None:
        """Call `deliver` with the selected bytes, a part at a time, in order."""
        everything = selection.stop == self.nbytes
        sink = PlainFPSink(_Cutter(selection, deliver, everything))
        with suppress(_Complete):
            unpack(self._source, sink, nthreads=nthreads)


class _Cutter:
    """A file object that delivers the selected bytes among all that it is given.

    Behind the last one it raises `_Complete`, unless the selection reaches to the end
    of the file: then the end has to be checked.
    """

    def __init__(
        self,
        selection: Selection,
        deliver: Callable[[bytes], object],
        to_end: bool,
    ) -> None:
        self._selection = selection
        self._deliver = deliver
        self._to_end = to_end
        self._position = 0

    def write(self, plain: Buffer) -> int:
        """Deliver the selected bytes of a chunk; return the size of the chunk."""
        view = memoryview(plain)
        start, self._position = self._position, self._position + view.nbytes
        if self._selection.within(start, self._position):
            self._deliver(self._selection.cut(view, start))
        if self._position >= self._selection.stop and not self._to_end:
            raise _Complete
        return view.nbytes


def parse_span(text: str) -> slice:
    """Return the span of bytes ``A:B``; raises `Refusal`."""
    return slice(*_numbers(text, "--bytes", "A:B", 2, parse_size))


def parse_rows(text: str) -> slice:
    """Return the span of rows ``A:B`` or ``A:B:C``; raises `Refusal`."""
    rows = slice(*_numbers(text, "--rows", "A:B or A:B:C", 3, int))
    if rows.step is not None and rows.step < 1:
        raise Refusal(
            "--rows: the step must be at least 1, not '%d'" % rows.step, EXIT_USAGE
        )
    return rows


def _numbers(
    text: str, option: str, form: str, most: int, number: Callable[[str], int]
) -> list[int | None]:
    parts = text.split(":")
    try:
        if not 2 <= len(parts) <= most:
            raise ValueError("there are %d colons" % (len(parts) - 1))
        return [number(part) if part.strip() else None for part in parts]
    except ValueError as error:
        raise Refusal(
            "%s: expected %s, found '%s': %s" % (option, form, text, error), EXIT_USAGE
        ) from error
