"""``blpk tune``: find good settings for data by trials on a sample.

A goal is the speed of an assumed disk. The cost of a setting is the time to compress,
to write the result to that disk and read it back, and to decompress.

`Sample` reads whole chunks at regular intervals of a file. `Search` first tries the
default and the setting that ``--auto`` chooses, so that the result is never worse. It
compares filters and type sizes with two codecs, then codecs, then levels, then chunk
sizes, and continues with the best each time.
"""

from __future__ import annotations

import os
import stat
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ... import log
from ..._engine.blosc_settings import own_settings
from ..._format import automatic
from ..._format.automatic import (
    CHUNK_SIZE,
    DEFAULT,
    FIELDS,
    OVERHEAD,
    TYPESIZES,
    Setting,
    choose,
    chunk_text,
    filters_to_try,
    piece_starts,
)
from ..._format.chunks import compress, decompress
from ..._format.codecs import (
    BITSHUFFLE,
    CODECS,
    DEFAULT_GOAL,
    FILTERS,
    GOALS,
    NONE,
    SHUFFLE,
)
from ..._storage.paths import without_url
from ..._storage.protocols import Seekable
from ...constants import MAGIC, MAX_CLEVEL, MAX_TYPESIZE, NPY_MAGIC
from ...exceptions import FormatError, StorageError, UsageError
from ...log import printable
from ..console import STREAM, console, is_input, shown_input
from ..display import parse_size, say_json, size_text, table
from ..exit_codes import Refusal, WrongUsage
from ..options import add, set_help

if TYPE_CHECKING:
    from ...serializers import JsonObject

Result = TypeVar("Result")

SAMPLE = "8M"
SECONDS = 10.0
# Maximum share of the time limit that one trial may take.
SHARE = 0.25
# Minimum compression ratio that makes compressing worthwhile.
WORTH = 1.02
# A cost below this share of another is lower; closer costs count as equal, because
# measured speeds vary.
CLEARLY = 0.95
FILTER_OPTIONS = {NONE: "--no-shuffle ", SHUFFLE: "", BITSHUFFLE: "--bitshuffle "}
# The first codecs, which try the filters.
NPROBES = 2
LEVEL = 5
LEVELS = (1, 3, 7, 9)
CHUNK_SIZES = (2**18, 2**22, 2**16, 2**24)
FILTERS_KEPT = 2
CODECS_KEPT = 3
# A measurement shorter than this, in seconds, is repeated, up to REPEATS times.
MIN_MEASURED_SECONDS = 0.02
REPEATS = 3
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
        raise WrongUsage("--seconds must be a number from 0 on, not '%s'" % text)
    return seconds


def run(args: Namespace) -> None:
    """Find settings and show them."""
    without_url(args.file_, "a search on a sample")
    sample = Sample(args.file_, _sample_size(args.sample))
    if args.typesize is not None and not 1 <= args.typesize <= MAX_TYPESIZE:
        raise WrongUsage("--typesize must be from 1 to %d" % MAX_TYPESIZE)
    typesizes = sample.typesizes or TYPESIZES
    if args.typesize is not None:
        typesizes = (args.typesize,)
    auto = _choice_of_auto(sample, args.goal, typesizes) if args.seconds else None
    disk = GOALS[args.goal]
    search = Search(sample, typesizes, disk, args.nthreads, args.seconds, auto)
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
    except ValueError as error:
        raise WrongUsage("--sample: %s" % error) from error
    if size < 1:
        raise WrongUsage("--sample: expected at least 1 byte, found '%s'" % text)
    return size


# Settings and samples


def command(setting: Setting, path: str, goal: str = DEFAULT_GOAL) -> str:
    """Return the command line that compresses a file with a setting.

    No option sets a block size: ``--auto`` chooses it for the other settings.
    """
    import shlex

    auto = "" if goal == DEFAULT_GOAL else "=" + goal
    name = path
    if is_input(path):
        name = STREAM
    elif path.startswith("-"):
        name = "./" + path
    return "blpk compress %s-c %s -l %d %s-t %d -z %s %s" % (
        "--auto%s " % auto if setting.blocksize else "",
        setting.cname,
        setting.clevel,
        FILTER_OPTIONS[setting.shuffle],
        setting.typesize,
        chunk_text(setting.chunk_size),
        shlex.quote(name),
    )


class Trial(NamedTuple):
    """The result of a setting; speeds are plain bytes per second with one thread."""

    setting: Setting
    ratio: float
    pack: float
    unpack: float

    def is_beaten_by(self, other: Trial) -> bool:
        """Return whether `other` is better in one value and worse in none."""
        mine, theirs = self[1:], other[1:]
        pairs = zip(theirs, mine, strict=True)
        return mine != theirs and all(their >= my for their, my in pairs)


class Sample:
    """Chunks at regular intervals of a file, `size` bytes in total.

    ``typesizes`` come from the dtype of an .npy file, and are empty for other files;
    ``is_packed`` is True for a Bloscpack file. Raises `Refusal` for an empty file and
    for anything but a regular file.
    """

    def __init__(self, path: str, size: int) -> None:
        self.path = path
        self.size = size
        with open(path, "rb") as fp:
            status = os.fstat(fp.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise Refusal("'%s' is no regular file, and can't be sampled" % path)
            if not status.st_size:
                raise Refusal("'%s' is empty: nothing to try" % path)
            self.nbytes = status.st_size
            self.typesizes = npy_typesizes(fp)
            fp.seek(0)
            self.is_packed = fp.read(len(MAGIC)) == MAGIC

    def pieces(self, chunk_size: int) -> list[bytes]:
        """Return the sampled chunks, for a chunk size."""
        with open(self.path, "rb") as fp:
            found = []
            for start in piece_starts(self.nbytes, chunk_size, self.size):
                fp.seek(start)
                found.append(fp.read(min(chunk_size, self.nbytes)))
        if not found[0]:
            raise StorageError("'%s' became shorter while it was read" % self.path)
        return found


def npy_typesizes(fp: Seekable) -> tuple[int, ...]:
    """Return the type sizes to try for an .npy file, none for other files."""
    if fp.read(len(NPY_MAGIC)) != NPY_MAGIC:
        return ()
    from ...npy_io import read_header
    from ...numpy_io import typesize_of

    fp.seek(0)
    try:
        dtype = read_header(fp).dtype
    except (FormatError, UsageError):
        return ()
    size = typesize_of(dtype)
    # The parts of complex numbers often compress better as separate items.
    return (size, size // 2) if dtype.kind == "c" else (size,)


# The search


class Search:
    """Tries settings for about `seconds`, the most promising first.

    `automatic` is the setting that ``--auto`` chooses: it is tried in any case.
    ``default`` is the setting without options, with a type size to try. ``trials`` are
    the results and ``left_out`` the settings that took too long, both by
    key. ``complete`` is False if time ran out. ``seconds`` is the time of the search,
    and ``tried`` the size of the sample in bytes.
    """

    def __init__(
        self,
        sample: Sample,
        typesizes: Sequence[int],
        disk: float,
        nthreads: int,
        seconds: float,
        automatic: Setting | None = None,
    ) -> None:
        from ...constants import CNAME_AVAIL

        self.sample = sample
        self.trials: dict[Setting, Trial] = {}
        self.left_out: dict[Setting, Setting] = {}
        self.complete = True
        self.seconds = 0.0
        self.tried = 0
        # The default setting, with a type size to try.
        self.default = DEFAULT
        if DEFAULT.typesize not in typesizes:
            self.default = DEFAULT.but(typesize=typesizes[0])
        self._typesizes = typesizes
        self._disk = disk
        self._nthreads = nthreads
        self._limit = seconds
        self._automatic = automatic
        self._codecs = [name for name in CODECS if name in CNAME_AVAIL]
        self._pieces: list[bytes] = []
        self._pieces_of = 0

    def run(self) -> None:
        """Try all promising settings, or as many as the time allows."""
        self._start = perf_counter()
        self._try([self.default])
        if self._automatic is not None:
            self._try([self._automatic], must_finish=True)
        self.tried = sum(map(len, self._pieces))
        self._try_filters()
        self._try_codecs()
        if max(trial.ratio for trial in self.trials.values()) >= WORTH:
            self._try_levels()
            self._try_chunk_sizes()
        self.seconds = perf_counter() - self._start

    def cost(self, trial: Trial) -> float:
        """Return the seconds per plain byte to write it and read it back."""
        work = (1 / trial.pack + 1 / trial.unpack) / self._nthreads
        return automatic.cost(work, trial.ratio, self._disk)

    @property
    def best(self) -> Trial:
        """The trial of the lowest cost; among equal costs, the highest ratio decides.

        Another chunk size than the default must reduce the cost by the factor CLEARLY.
        """
        trials = list(self.trials.values())
        usual = [t for t in trials if t.setting.chunk_size == CHUNK_SIZE]
        least = min(map(self.cost, usual))
        others = [t for t in trials if self.cost(t) < CLEARLY * least]
        if others:
            return min(others, key=self.cost)
        near = [t for t in usual if CLEARLY * self.cost(t) <= least]
        return max(near, key=lambda trial: trial.ratio)

    @property
    def pays(self) -> bool:
        """Whether the best setting makes the file smaller."""
        return self.best.ratio >= WORTH

    # Stages

    def _try_filters(self) -> None:
        combinations = filters_to_try(self._typesizes)
        for probe in self._codecs[:NPROBES]:
            self._try(
                Setting(probe, LEVEL, shuffle, typesize, CHUNK_SIZE)
                for shuffle, typesize in combinations
            )

    def _try_codecs(self) -> None:
        """Try the other codecs with the best filters so far, and without a filter."""
        kept: dict[tuple[int, int], Setting] = {}
        for probe in self._codecs[:NPROBES]:
            tried = [
                trial
                for trial in self.trials.values()
                if (trial.setting.cname, trial.setting.clevel) == (probe, LEVEL)
            ]
            tried.sort(key=lambda trial: trial.ratio, reverse=True)
            for i, trial in enumerate(tried):
                setting = trial.setting
                if i < FILTERS_KEPT or setting.shuffle == NONE:
                    kept[setting.shuffle, setting.typesize] = setting
        for name in self._codecs:
            level = CODECS[name].fast_level
            if level is not None:
                self._try(
                    setting.but(cname=name, clevel=level) for setting in kept.values()
                )
        for codec in self._codecs[NPROBES:]:
            self._try(setting.but(cname=codec) for setting in kept.values())

    def _try_levels(self) -> None:
        best: dict[str, Trial] = {}
        for trial in sorted(self.trials.values(), key=self.cost):
            best.setdefault(trial.setting.cname, trial)
        for trial in list(best.values())[:CODECS_KEPT]:
            self._try(trial.setting.but(clevel=level) for level in LEVELS)
        setting = self.best.setting
        for level in (setting.clevel - 1, setting.clevel + 1):
            if 1 <= level <= MAX_CLEVEL:
                self._try([setting.but(clevel=level)])

    def _try_chunk_sizes(self) -> None:
        best = self.best
        most = self.tried
        for size in CHUNK_SIZES:
            # A trial with a single piece can't stop early, so estimate its time.
            expected = most / best.pack
            if size <= most and self._has_time(expected):
                self._try([best.setting.but(chunk_size=size)])

    # Trials

    def _has_time(self, expected: float = 0.0) -> bool:
        if perf_counter() - self._start + expected < self._limit:
            return True
        self.complete = False
        return False

    def _try(self, settings: Iterable[Setting], *, must_finish: bool = False) -> None:
        """Try some settings, unless they have been tried or time is up."""
        for setting in settings:
            if setting in self.trials or setting in self.left_out:
                continue
            # The first trial runs without regard to the time: a result needs one.
            must_wait = must_finish or not self.trials
            if not must_wait and not self._has_time():
                return
            with own_settings:
                own_settings.use_blocksize(setting.blocksize)
                trial = self._measure(setting, must_wait)
            if trial is None:
                self.left_out[setting] = setting
                log.verbose("%s: takes too long" % setting)
                continue
            self.trials[setting] = trial
            log.verbose("%s: ratio %.3f" % (setting, trial.ratio))

    def _measure(self, setting: Setting, must_wait: bool = False) -> Trial | None:
        """Return the result of a setting, None if it takes too long."""
        if self._pieces_of != setting.chunk_size:
            self._pieces = self.sample.pieces(setting.chunk_size)
            self._pieces_of = setting.chunk_size
        start = perf_counter()
        packing = unpacking = 0.0
        cbytes = nbytes = 0
        for piece in self._pieces:
            compressed, took = timed(partial(compress, piece, setting))
            packing += took
            _, took = timed(partial(decompress, compressed))
            unpacking += took
            nbytes += len(piece)
            cbytes += len(compressed) + OVERHEAD
            too_long = perf_counter() - start > SHARE * self._limit
            if too_long and not must_wait and nbytes < sum(map(len, self._pieces)):
                return None
        return Trial(setting, nbytes / cbytes, nbytes / packing, nbytes / unpacking)


def timed(act: Callable[[], Result]) -> tuple[Result, float]:
    """Return the result of a function, and its shortest time in seconds."""
    best = total = 0.0
    for i in range(REPEATS):
        start = perf_counter()
        result = act()
        took = perf_counter() - start
        best = took if i == 0 else min(best, took)
        total += took
        if total > MIN_MEASURED_SECONDS:
            break
    return result, max(best, 1e-9)


def pareto(trials: Iterable[Trial]) -> list[Trial]:
    """Return the trials that no other beats in all values, highest ratio first."""
    trials = sorted(trials, key=lambda trial: trial.ratio, reverse=True)
    return [t for t in trials if not any(t.is_beaten_by(other) for other in trials)]


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
