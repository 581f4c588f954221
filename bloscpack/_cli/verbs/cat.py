"""``blpk cat``: write plain bytes of a file to standard output.

Only the chunks that contain these bytes are decompressed. A pipe is decompressed from
its beginning to the last of these bytes, in constant memory. Written bytes can't be
taken back: at a damaged chunk, all bytes before it have already been written.
"""

from __future__ import annotations

import sys

from ... import log
from ..._crashsafe.snapshot import read_snapshot
from ..._engine.blosc_settings import own_settings
from ..._format.chunks import check_digest, decompress
from ..._storage.base import write_all
from ...abstract_io import effective_nthreads
from ...exceptions import FormatError
from ...file_io import CompressedFPSource
from ...reader import Reader, Selection
from ..display import parse_size
from ..exit_codes import EXIT_USAGE, Refusal

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable

    from ..._crashsafe.snapshot import Check
    from ..._storage.protocols import Seekable


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
        "  %(prog)s --bytes=-100: data.blp\n"
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
    parser.add_argument(
        "file_", metavar="<file>", help="file to be read; - may be a pipe"
    )


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

    parts = args.bytes is not None or args.rows is not None
    read_snapshot(args.file_, read, attempts=1, parts=parts)
    log.flush()


class _StreamReader(Reader):
    """Delivers a selection from a file object that can't seek, once."""

    def __init__(self, fp: Seekable) -> None:
        self._source = CompressedFPSource(fp, to_end=True)
        self.header = self._source.bloscpack_header
        self.metadata = self._source.metadata
        nbytes = self.header.nbytes
        self._has_size = nbytes is not None
        self.nbytes = sys.maxsize if nbytes is None else nbytes

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
        """Call `deliver` with the selected bytes, a part at a time, in order.

        No chunk is read before the bytes of the one in front of it are delivered, so
        Blosc shares the blocks of each chunk among the threads.
        """
        source, checksum = self._source, self.header.checksum_impl
        to_end = selection.stop == self.nbytes  # what follows has to be checked
        with own_settings:
            own_settings.use_threads_of_blosc(effective_nthreads(nthreads, None))
            for frame in source.tasks():
                try:
                    compressed, digest = source.load(frame)
                    check_digest(compressed, digest, checksum)
                    plain = memoryview(decompress(compressed, frame.header))
                except FormatError as error:
                    error.locate(frame.number, frame.offset)
                    raise
                stop = frame.start + plain.nbytes
                if selection.within(frame.start, stop):
                    deliver(selection.cut(plain, frame.start))
                if stop >= selection.stop and not to_end:
                    break


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
