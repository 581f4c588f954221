"""``blpk tune``: find good settings for data by trials on a sample.

A goal is the speed of an assumed disk. The best setting has the shortest time to
compress, write, read and decompress. `trials` does the search; this module shows it.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..._format.automatic import TYPESIZES, Setting, choose, chunk_text
from ..._format.codecs import DEFAULT_GOAL, FILTERS, GOALS
from ..._storage.urls import without_url
from ...constants import MAX_TYPESIZE
from ...log import printable
from ..console import console, shown_input
from ..display import parse_size, say_json, size_text, table
from ..exit_codes import WrongUsage
from ..options import add, set_help
from ..trials import FIELDS, WORTH, Sample, Search, Trial, command, pareto

if TYPE_CHECKING:
    from ...serializers import JsonObject

SAMPLE = "8M"
SECONDS = 10.0
TITLES = ("codec", "level", "type size", "chunk", "filter")


HELP = """\
try codecs, levels, filters, type and chunk sizes on a sample of a file,
and show the command line for the best. The goals 'speed' and 'balanced'
minimize the time to compress, to write and read at 2 GB/s or 100 MB/s, and
to decompress; 'ratio' minimizes the size. All speeds are for one thread.

examples:
  %(prog)s data.npy                  the dtype tells the type size
  %(prog)s --goal ratio data.raw     smallest file
  %(prog)s --typesize 4 --sample 32M --seconds 60 data.raw
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of the verb."""
    set_help(parser, HELP)
    _add_search_options(parser)
    form = parser.add_mutually_exclusive_group()
    add(form, "--all", "show all trials, not only the best")
    add(form, "--json", "print an object")
    add(parser, "file_ <file>", "plain file; a .npy file names its type size")


def _add_search_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--goal",
        choices=tuple(GOALS),
        default=DEFAULT_GOAL,
        help="default: %(default)s",
    )
    add(parser, "--typesize <bytes>", "try this type size only", type=int)
    add(
        parser,
        "--sample <size>",
        "size of the sample, rounded down to whole chunks\n"
        "of 1M, at least one (default: %(default)s)",
        default=SAMPLE,
    )
    add(
        parser,
        "--seconds <n>",
        "start no trial after this time (default: %(default)g)",
        type=_seconds,
        default=SECONDS,
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not seconds >= 0:  # also catches NaN
        message = "--seconds must be a number from 0 on, not '%s'" % text
        raise WrongUsage(message)
    return seconds


def run(args: Namespace) -> None:
    """Find settings and show them."""
    without_url(args.file_, "a search on a sample")
    sample = Sample(args.file_, _sample_size(args.sample))
    if args.typesize is not None and not 1 <= args.typesize <= MAX_TYPESIZE:
        raise WrongUsage("--typesize must be from 1 to %d" % MAX_TYPESIZE)
    typesizes: Sequence[int] = TYPESIZES
    if args.typesize is not None:
        typesizes = (args.typesize,)
    elif sample.typesizes:
        typesizes = sample.typesizes
    search = Search(
        sample,
        typesizes,
        GOALS[args.goal],
        args.nthreads,
        args.seconds,
        _choice_of_auto(sample, args.goal, typesizes) if args.seconds else None,
    )
    search.run()
    if args.json:
        say_json(as_dict(search, args.goal))
    else:
        for line in report(search, args.goal, args.all):
            console.say(line)


def _choice_of_auto(sample: Sample, goal: str, typesizes: Sequence[int]) -> Setting:
    """Return the setting that ``--auto`` chooses for the file."""
    with open(sample.path, "rb") as fp:

        def read(start: int, size: int) -> bytes:
            fp.seek(start)
            return fp.read(size)

        return choose(read, sample.nbytes, goal, typesizes)


def _sample_size(text: str) -> int:
    try:
        size = parse_size(text)
        if size < 1:
            raise ValueError("expected at least 1 byte, found '%s'" % text)
    except ValueError as error:
        raise WrongUsage("--sample: %s" % error) from error
    return size


# Output


def report(search: Search, goal: str, everything: bool) -> Iterator[str]:
    """Yield the lines of the report."""
    sample, best, trials = search.sample, search.best, search.trials
    yield "%s: %s, of which %s were tried with %d settings in %.1f s%s" % (
        shown_input(sample.path),
        size_text(sample.nbytes),
        size_text(search.tried),
        len(trials),
        search.seconds,
        "" if search.complete else "; there was no time for more",
    )
    yield ""
    front = pareto(trials.values())
    default = trials[search.default]
    rows: list[tuple[str, ...]] = [("", "ratio", "pack M/s", "unpack M/s", *TITLES)]
    for trial in sorted(trials.values(), key=lambda t: t.ratio, reverse=True):
        if everything or trial in front or trial in (best, default):
            marks = (trial is best, ">"), (trial in front, "*"), (trial is default, "d")
            rows.append(
                _row(trial, "".join(mark if yes else " " for yes, mark in marks))
            )
    yield from table(rows, (0, 4))
    yield ""
    yield "> best for '%s'   * no other is better in all   d the default" % goal
    for setting in search.left_out.values():
        yield "too slow to be tried in time: %s" % setting
    if sample.is_packed:
        yield "this is a Bloscpack file, which is compressed already"
    yield from _advice(search, goal)


def _row(trial: Trial, mark: str) -> tuple[str, ...]:
    setting = trial.setting
    return (
        mark,
        "%.3f" % trial.ratio,
        "%.0f" % (trial.pack / 2**20),
        "%.0f" % (trial.unpack / 2**20),
        setting.cname,
        str(setting.clevel),
        str(setting.typesize),
        chunk_text(setting.chunk_size),
        FILTERS[setting.shuffle],
    )


def _advice(search: Search, goal: str) -> Iterator[str]:
    best, path = search.best, search.sample.path
    if search.pays:
        yield printable(command(best.setting, path, goal))
        return
    highest = max(trial.ratio for trial in search.trials.values())
    yield "compressing does not pay: the best for '%s' has the ratio %.3f" % (
        goal,
        best.ratio,
    )
    if highest >= WORTH:
        yield "the highest ratio is %.3f: see --goal ratio" % highest


def as_dict(search: Search, goal: str) -> JsonObject:
    """Return the result as a JSON object."""
    front = pareto(search.trials.values())
    sample = search.sample
    trials = [
        {
            **{name: getattr(trial.setting, name) for name in FIELDS},
            "shuffle": FILTERS[trial.setting.shuffle],
            "ratio": trial.ratio,
            "pack_bytes_per_s": trial.pack,
            "unpack_bytes_per_s": trial.unpack,
            "pareto": trial in front,
            "best": trial is search.best,
        }
        for trial in search.trials.values()
    ]
    return {
        "file": sample.path,
        "nbytes": sample.nbytes,
        "sample": search.tried,
        "goal": goal,
        "seconds": search.seconds,
        "complete": search.complete,
        "pays": search.pays,
        "command": (
            command(search.best.setting, sample.path, goal) if search.pays else None
        ),
        "trials": trials,
    }
