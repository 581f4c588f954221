"""``blpk map``: draw the compression ratio along a file, and its damage.

`survey` finds the chunks and their damage, and `group` collects them into cells. The
cells are drawn as characters in a terminal or as a PNG file.
"""

from __future__ import annotations

import os
import sys
from array import array

from ..._storage.urls import shown_name
from ...describe import ratio_of
from ...log import printable
from ..dataset_folders import names_dataset
from ..display import say, size_text
from ..exit_codes import EXIT_COULD_NOT, EXIT_DAMAGED, EXIT_OK, EXIT_USAGE, Refusal

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable, Iterator, Sequence

    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

    from ..._crashsafe.snapshot import Check
    from ..._damage.inspection import Inspection
    from ..._format.dtypes import Array
    from ..._storage.protocols import Seekable
    from ...dataset.file_checks import FileCheck

# Upper limits of the ratio for each shade but the last.
RATIOS = (1.1, 1.5, 2, 4, 8, 16, 64)
BLOCKS = "█▇▆▅▄▃▂▁"
ASCII = "@%#*+=-."
# Numbers in the 256-colour palette of terminals, from yellow to blue; damage is red.
COLOURS = (226, 190, 118, 48, 43, 38, 32, 26)
DAMAGED = "X"
DAMAGE_COLOUR = "1;97;41"
MAX_ROWS = 16
RANGES_SHOWN = 20
OTHERS_SHOWN = 10


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.description = (
        "draw the compression ratio along a file, and which chunks are damaged.\n"
        "All chunks are checked; the exit code is 3 if anything is damaged."
    )
    parser.epilog = (
        "examples:\n"
        "  %(prog)s data.blp\n"
        "  %(prog)s --quick huge.blp\n"
        "  %(prog)s --color always data.blp | less -R\n"
        "  %(prog)s --png data.png data.blp"
    )
    parser.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="use colours (default: on a terminal, unless NO_COLOR is set)",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="read the chunk headers alone: damage inside chunks is not found",
    )
    parser.add_argument(
        "--png", metavar="<out>", help="draw into a PNG file; needs matplotlib"
    )
    parser.add_argument("file_", metavar="<file>", help="file or dataset to be drawn")


def run(args: Namespace) -> int:
    """Draw the file."""
    figure = None
    if args.png is not None:
        from ..outputs import check_free

        check_free(args.png, args)
        figure = _new_figure()
    if names_dataset(args.file_):
        chunks = survey_dataset(args.file_, args)
    elif args.quick:
        chunks = survey_quickly(args.file_)
    else:
        chunks = survey(args.file_, args)
    if figure is not None:
        draw_png(chunks, args.file_, figure, args.png)
        lines = [*summary(chunks, args.file_), *damage(chunks)]
    else:
        lines = [*picture(chunks, args.file_, args.color)]
    for line in lines:
        say(line, coloured=True)
    return EXIT_DAMAGED if chunks.damaged else EXIT_OK


# The file


class Chunks:
    """Plain and compressed sizes of all chunks; ``bad`` marks damaged or missing ones.

    ``others`` are the messages of all errors outside the chunks.
    """

    def __init__(self, nchunks: int) -> None:
        self.nbytes = array("q", bytes(8 * nchunks))
        self.cbytes = array("q", bytes(8 * nchunks))
        self.bad = bytearray(b"\1") * nchunks
        self.others: list[str] = []
        # The arrays of a dataset: name and number of the first chunk.
        self.arrays: list[tuple[str, int]] = []

    def __len__(self) -> int:
        return len(self.nbytes)

    def put(self, number: int, nbytes: int, cbytes: int) -> None:
        """Store the sizes of an intact chunk."""
        self.nbytes[number] = nbytes
        self.cbytes[number] = cbytes
        self.bad[number] = 0

    def extend(self, nchunks: int) -> int:
        """Add damaged chunks, which `put` may make intact; return the first number."""
        first = len(self)
        self.nbytes.extend([0] * nchunks)
        self.cbytes.extend([0] * nchunks)
        self.bad.extend(b"\1" * nchunks)
        return first

    @property
    def damaged(self) -> bool:
        """Whether any chunk or section is damaged."""
        return any(self.bad) or bool(self.others)


def survey(path: str, args: Namespace) -> Chunks:
    """Return all chunks of a file after checking them; damage does not raise."""
    from ..._archives.detection import refuse_archive
    from ..._crashsafe.snapshot import read_snapshot
    from ..._damage.inspection import inspect
    from ..._engine.blosc_settings import own_settings
    from ..._loop.nthreads import effective_nthreads
    from ..._storage.spool import positional

    def read(fp: Seekable, check: Check) -> Chunks:
        nthreads = effective_nthreads(args.nthreads, None)
        with positional(fp) as storage:
            refuse_archive(storage)
            inspection = inspect(storage, nthreads)
            chunks = _chunks_of(inspection)
        if inspection.sections.header is not None:
            check(inspection.sections.header)
        return chunks

    with own_settings:
        return read_snapshot(path, read)


def _chunks_of(inspection: Inspection) -> Chunks:
    from ..._damage.checks import report_on

    chunks = Chunks(inspection.geometry.nchunks)
    size = inspection.checksum.size
    numbering = inspection.numbering
    for first, chain in zip(numbering.numbers, numbering.chains, strict=True):
        for i, offset in enumerate(chain.offsets):
            cbytes = chain.stop_of(i) - offset - size
            chunks.put(first + i, chain.sizes[i], cbytes)
    for finding in report_on(inspection).findings:
        drawn = (
            finding.section == "chunks"
            and finding.chunk is not None
            and chunks.bad[finding.chunk]
        )
        if finding.severity == "error" and not drawn:
            chunks.others.append(str(finding))
    return chunks


def survey_dataset(path: str, args: Namespace) -> Chunks:
    """Return all chunks of a dataset after checking them, one array after another."""
    if args.quick:
        raise Refusal("--quick is for files: '%s' is a dataset" % path, EXIT_USAGE)
    from ...dataset.checking import Watcher, check_dataset

    chunks = Chunks(0)

    class Survey(Watcher):
        def take_file(self, name: str, check: FileCheck) -> None:
            if not chunks.arrays or chunks.arrays[-1][0] != name:
                chunks.arrays.append((name, len(chunks)))
            first = chunks.extend(len(check.numbers)) - check.numbers[0]
            for number, sizes in check.intact.items():
                chunks.put(first + number, *sizes)

    report = check_dataset(path, args.nthreads, watcher=Survey())
    for finding in report.findings:
        if finding.severity == "error":
            chunks.others.append(str(finding))
    return chunks


def survey_quickly(path: str) -> Chunks:
    """Return all chunks of a file from their headers; raises `FormatError`."""
    from ..._crashsafe.snapshot import read_snapshot
    from ..._format.sections import read_beginning, skip_frames
    from ..._storage.cursor import Cursor
    from ..._storage.spool import seekable_with_size

    def read(fp: Seekable, check: Check) -> list[tuple[int, int]]:
        with seekable_with_size(fp) as (copy, _):
            cursor = Cursor(copy)
            header = read_beginning(cursor).header
            frames = skip_frames(cursor, header)
            sizes = [(frame.header.nbytes, frame.header.ctbytes) for frame in frames]
        check(header)
        return sizes

    sizes = read_snapshot(path, read, parts=True)
    chunks = Chunks(len(sizes))
    for number, (nbytes, cbytes) in enumerate(sizes):
        chunks.put(number, nbytes, cbytes)
    return chunks


# The cells


class Cell:
    """Consecutive chunks: the ratio of the intact ones, None without any."""

    __slots__ = ("damaged", "ratio")

    def __init__(self, ratio: float | None, damaged: bool) -> None:
        self.ratio = ratio
        self.damaged = damaged


def group(chunks: Chunks, most: int) -> tuple[int, list[Cell]]:
    """Return the number of chunks per cell, and the cells, at most `most`."""
    step = max(1, -(-len(chunks) // most))
    cells = []
    for start in range(0, len(chunks), step):
        stop = start + step
        nbytes, cbytes = sum(chunks.nbytes[start:stop]), sum(chunks.cbytes[start:stop])
        ratio = nbytes / cbytes if cbytes else None
        cells.append(Cell(ratio, any(chunks.bad[start:stop])))
    return step, cells


def shade(ratio: float) -> int:
    """Return the number of the shade for a ratio, 0 for the lowest."""
    return sum(ratio >= limit for limit in RATIOS)


def ranges_of(bad: bytearray) -> Iterator[tuple[int, int]]:
    """Yield (first, last) of each run of damaged chunks."""
    start = bad.find(1)
    while start >= 0:
        stop = bad.find(0, start)
        stop = len(bad) if stop < 0 else stop
        yield start, stop - 1
        start = bad.find(1, stop)


# As text


def picture(chunks: Chunks, path: str, color: str) -> Iterator[str]:
    """Yield the lines of the picture."""
    import shutil

    yield from summary(chunks, path)
    yield ""
    margin = len(str(len(chunks)))
    width = max(8, shutil.get_terminal_size((80, 24)).columns - margin - 3)
    step, cells = group(chunks, width * MAX_ROWS)
    shades = BLOCKS if _can_show(BLOCKS) else ASCII
    coloured = wants_colour(color)
    for start in range(0, len(cells), width):
        row = cells[start : start + width]
        yield "%*d  %s" % (margin, start * step, draw(row, shades, coloured))
    if cells:
        yield ""
        yield from _legend(shades, coloured, step, chunks)
    yield from damage(chunks)
    if len(chunks.arrays) > 1:
        yield ""
        ends = [first for _, first in chunks.arrays[1:]] + [len(chunks)]
        for (name, first), end in zip(chunks.arrays, ends, strict=True):
            yield "chunks %d-%d: %s" % (first, end - 1, printable(name))


def summary(chunks: Chunks, path: str) -> Iterator[str]:
    """Yield the summary of a file; its sizes count the intact chunks only."""
    nbytes, cbytes = sum(chunks.nbytes), sum(chunks.cbytes)
    bad = sum(chunks.bad)
    yield "%s: %d chunk%s, %s in %s, ratio %.2f, %s" % (
        printable(shown_name(path)),
        len(chunks),
        "s" * (len(chunks) != 1),
        size_text(nbytes),
        size_text(cbytes),
        ratio_of(nbytes, cbytes),
        "%d damaged" % bad if bad else "none damaged",
    )


def _legend(shades: str, coloured: bool, step: int, chunks: Chunks) -> Iterator[str]:
    """Yield the legend: the ratio of each shade."""
    limits = ["below %g" % RATIOS[0], *("%g" % limit for limit in RATIOS)]
    keys = [
        "%s %s" % (paint(shades[i], i, coloured), text) for i, text in enumerate(limits)
    ]
    if any(chunks.bad):
        keys.append("%s damaged" % paint(DAMAGED, None, coloured))
    yield "ratio: %s" % "  ".join(keys)
    if step > 1:
        yield "each character shows %d chunks" % step


def damage(chunks: Chunks) -> Iterator[str]:
    """Yield the numbers of the damaged chunks, and the other errors."""
    ranges = list(ranges_of(chunks.bad))
    if ranges:
        texts = [
            str(first) if first == last else "%d-%d" % (first, last)
            for first, last in ranges[:RANGES_SHOWN]
        ]
        more = len(ranges) - len(texts)
        yield "damaged chunks: %s%s" % (
            ", ".join(texts),
            " and %d more places" % more if more else "",
        )
    for text in chunks.others[:OTHERS_SHOWN]:
        yield printable(text)
    if len(chunks.others) > OTHERS_SHOWN:
        yield "and %d more errors" % (len(chunks.others) - OTHERS_SHOWN)


def draw(cells: Iterable[Cell], shades: str, coloured: bool) -> str:
    """Return the characters of cells, with an escape sequence for each new colour."""
    line = []
    now: int | None = -1
    run = ""
    for cell in cells:
        lost = cell.damaged or cell.ratio is None
        wanted = None if lost else shade(cell.ratio or 0)
        if wanted != now:
            line.append(paint(run, now, coloured))
            now, run = wanted, ""
        run += DAMAGED if wanted is None else shades[wanted]
    return "".join([*line, paint(run, now, coloured)])


def paint(text: str, number: int | None, coloured: bool) -> str:
    """Return a text in the colour of a shade; None means the colour of damage."""
    if not coloured or not text:
        return text
    code = DAMAGE_COLOUR if number is None else "38;5;%d" % COLOURS[number]
    return "\x1b[%sm%s\x1b[0m" % (code, text)


def wants_colour(color: str) -> bool:
    """Return whether to use colours, for a value of ``--color``."""
    if color != "auto":
        return color == "always"
    dumb = os.environ.get("TERM") == "dumb"
    return not (os.environ.get("NO_COLOR") or dumb) and sys.stdout.isatty()


def _can_show(text: str) -> bool:
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except UnicodeEncodeError:
        return False
    return True


# As an image


def _new_figure() -> Figure:
    """Return an empty figure; raises `Refusal` if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise Refusal(
            "--png needs matplotlib: pip install 'bloscpack[plot]'",
            EXIT_COULD_NOT,
        ) from error
    return Figure(figsize=(9, 3.6), layout="constrained")


def draw_png(chunks: Chunks, path: str, figure: Figure, out_file: str) -> None:
    """Draw the cells into a new PNG file."""
    from ..._crashsafe.ownership import attributes_of_input
    from ..._crashsafe.replace import replacing

    step, cells = group(chunks, 128 * 32)
    width = min(128, max(1, len(cells)))
    axes = figure.add_subplot()
    image = axes.imshow(
        _pixels(cells, width),
        cmap=_colours(),
        vmin=0,
        vmax=len(RATIOS) + 1,
        aspect="auto",
        interpolation="nearest",
        extent=(0, width * step, -(-len(cells) // width), 0),
    )
    bar = figure.colorbar(image, ax=axes, label="ratio")
    bar.set_ticks(range(1, len(RATIOS) + 1), labels=["%g" % r for r in RATIOS])
    axes.set_xlabel("chunks in a row, %d for each pixel" % step)
    axes.set_yticks([])
    bad = sum(chunks.bad)
    axes.set_title(
        "%s: %d chunks, %d damaged (red)"
        % (printable(shown_name(path)), len(chunks), bad)
    )
    like = None
    if os.path.isfile(path):
        with open(path, "rb") as fp:
            like = attributes_of_input(fp)
    with replacing(out_file, like=like) as fp:
        figure.savefig(fp, format="png", dpi=120)


def _pixels(cells: Sequence[Cell], width: int) -> Array:
    """Return the pixels: the shade of each cell, -1 for damage, NaN after the last."""
    import numpy

    height = max(1, -(-len(cells) // width))
    pixels = numpy.full(height * width, numpy.nan)
    for i, cell in enumerate(cells):
        lost = cell.damaged or cell.ratio is None
        pixels[i] = -1 if lost else shade(cell.ratio or 0) + 0.5
    return pixels.reshape(height, width)


def _colours() -> Colormap:
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    shades = colormaps["viridis_r"].resampled(len(RATIOS) + 1)
    colours = ListedColormap(shades(range(len(RATIOS) + 1)))
    return colours.with_extremes(under="red", bad="white")
