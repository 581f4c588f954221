"""``blpk tune``: find good settings for data by trials on a sample.

A goal is the speed of an assumed disk. The cost of a setting is the time to compress,
to write the result to that disk and read it back, and to decompress.

`Search` first tries the default and the setting that ``--auto`` chooses. It compares
filters and type sizes with two codecs, then codecs, then levels, then chunk sizes, and
continues with the best each time. The choice of ``--auto`` is recommended unless
another setting costs clearly less: measured times vary, even CPU times, which other
programs change less than the time of a clock.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ... import log
from ..._engine.blosc_settings import own_settings
from ..._format import automatic
from ..._format.automatic import (
    CHUNK_SIZE,
    DEFAULT,
    FIELDS,
    OVERHEAD,
    THREADS,
    TYPESIZES,
    Setting,
    choose,
    chunk_text,
    filters_to_try,
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
from ...constants import MAX_CLEVEL, MAX_TYPESIZE
from ...log import printable
from ..console import STREAM, console, is_input, shown_input
from ..display import say_json
from ..exit_codes import WrongUsage
from ..info_text import size_text, table
from ..options import add_options, number_of, size_of_option
from ..progress import shown
from ..samples import DATASET, PACKED, PLAIN, Sample, opened_sample

if TYPE_CHECKING:
    from ...serializers import JsonObject

Result = TypeVar("Result")

SAMPLE = "8M"
SECONDS = 10.0
# Maximum share of the time limit that one trial may take.
SHARE = 0.25
# Minimum compression ratio that makes compressing worthwhile.
WORTH = 1.02
# Another setting is recommended if it costs less than this share of that of ``--auto``.
CLEARLY = 0.9
FILTER_OPTIONS = {NONE: " --no-shuffle", SHUFFLE: "", BITSHUFFLE: " --bitshuffle"}
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
try codecs, levels, filters, type and chunk sizes on a sample of the data, and
show the command line for the best. A goal minimizes the time to compress, to
write and read at 2 GB/s ('speed'), 100 MB/s ('balanced') or 2 MB/s ('ratio'),
and to decompress. The choice of --auto is shown unless another one costs less
than 90 %% of it. All speeds are for one thread, in CPU time.

examples:
  %(prog)s data.npy                  command: blpk compress --npy
  %(prog)s --goal ratio data.blp     command for a small file: blpk repack
  %(prog)s prices.zarr/price         command: blpk convert
  %(prog)s --typesize 4 --sample 32M --seconds 60 data.raw
"""


OPTIONS = """\
--goal  default: %(default)s
--typesize <bytes>  try this type size only
--sample <size>  size of the sample, rounded down to whole chunks
    of 1M, at least one (default: %(default)s)
--seconds <n>  start no trial after this time (default: %(default)g)
--all  show all trials, not only the best
| --json  print an object
file_ <file>  plain, .npy or .blp file, or array of a dataset
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of the verb."""
    add_options(
        parser,
        OPTIONS,
        goal={"choices": tuple(GOALS), "default": DEFAULT_GOAL},
        typesize={"type": int},
        sample={"default": SAMPLE},
        seconds={"type": number_of("--seconds", float), "default": SECONDS},
    )


def run(args: Namespace) -> None:
    """Find settings and show them."""
    size = size_of_option("--sample:", args.sample)
    if size < 1:
        raise WrongUsage("--sample: expected at least 1 byte, found '%s'" % args.sample)
    if args.typesize is not None and not 1 <= args.typesize <= MAX_TYPESIZE:
        raise WrongUsage("--typesize must be from 1 to %d" % MAX_TYPESIZE)
    with (
        opened_sample(args.file_, size, args.typesize) as sample,
        shown(args.file_, None, args.progress) as bar,
    ):
        search = Search(sample, args.goal, args.seconds, bar)
        search.run()
    if args.json:
        say_json(as_dict(search))
    else:
        console.say_all(report(search, args.all))


# Settings


def command(setting: Setting, path: str, verb: str = PLAIN, goal: str = "") -> str:
    """Return the command line that applies a setting.

    No option sets a block size: ``--auto`` chooses it for the other settings.
    """
    import shlex

    name = path
    if is_input(path):
        name = STREAM
    elif path.startswith("-"):
        name = "./" + path
    text = "blpk " + verb
    if setting.blocksize and verb != DATASET:
        text += " --auto" if goal in ("", DEFAULT_GOAL) else " --auto=" + goal
    text += " -c %s -l %d" % (setting.cname, setting.clevel)
    is_default = setting.shuffle == SHUFFLE and verb == PACKED  # the filter of the file
    text += " --shuffle" if is_default else FILTER_OPTIONS[setting.shuffle]
    if verb in (PLAIN, PACKED):  # arrays get the size of their items
        text += " -t %d" % setting.typesize
    if verb != DATASET:
        return text + " -z %s %s" % (chunk_text(setting.chunk_size), shlex.quote(name))
    suffix = os.path.splitext(name.rstrip("/"))[1] or ".zarr"
    return text + " %s new%s" % (shlex.quote(name), shlex.quote(suffix))


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


# The search


class Search:
    """Tries settings for about `seconds`, the most promising first.

    ``automatic`` is the setting that ``--auto`` chooses, and ``default`` the setting
    without options, with a type size to try: both are tried in any case. ``trials`` are
    the results and ``left_out`` the settings that took too long, both by key.
    ``complete`` is False if time ran out. ``seconds`` is the time of the search, and
    ``tried`` the size of the sample in bytes. `progress` is called with the bytes that
    each trial has compressed.
    """

    def __init__(
        self,
        sample: Sample,
        goal: str,
        seconds: float,
        progress: Callable[[int], object] | None = None,
    ) -> None:
        from ...constants import CNAME_AVAIL

        self.sample = sample
        self.goal = goal
        self.trials: dict[Setting, Trial] = {}
        self.left_out: dict[Setting, Setting] = {}
        self.complete = True
        self.seconds = 0.0
        self.tried = 0
        self._typesizes = sample.typesizes
        # The default setting, with a type size to try.
        self.default = DEFAULT
        if DEFAULT.typesize not in self._typesizes:
            self.default = DEFAULT.but(typesize=self._typesizes[0])
        known = self._typesizes if self._typesizes is not TYPESIZES else ()
        self.automatic = choose(sample.read, sample.nbytes, goal, known)
        self._limit = seconds
        self._progress = progress
        self._codecs = [name for name in CODECS if name in CNAME_AVAIL]
        self._pieces = lru_cache(1)(lambda size: sample.pieces(size))

    def run(self) -> None:
        """Try all promising settings, or as many as the time allows."""
        self._start = perf_counter()
        self._try([self.default, self.automatic], must_finish=True)
        self.tried = sum(map(len, self._pieces(self.automatic.chunk_size)))
        self._try_filters()
        self._try_codecs()
        if max(trial.ratio for trial in self.trials.values()) >= WORTH:
            self._try_levels()
            if self.sample.verb != DATASET:  # which has no option for chunks
                self._try_chunk_sizes()
        self.seconds = perf_counter() - self._start

    def cost(self, trial: Trial) -> float:
        """Return the seconds per plain byte to write it and read it back."""
        work = (1 / trial.pack + 1 / trial.unpack) / THREADS
        return automatic.cost(work, trial.ratio, GOALS[self.goal])

    @property
    def best(self) -> Trial:
        """The trial of the setting of ``--auto``, or one of a clearly lower cost."""
        auto = self.trials[self.automatic]
        best = min(self.trials.values(), key=self.cost)
        return best if self.cost(best) < CLEARLY * self.cost(auto) else auto

    @property
    def command(self) -> str | None:
        """The command line for the best setting; None if compressing does not pay."""
        if self.best.ratio < WORTH:
            return None
        sample = self.sample
        return command(self.best.setting, sample.path, sample.verb, self.goal)

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
            if not must_finish and not self._has_time():
                return
            trial = self._measure(setting, must_finish)
            if trial is None:
                self.left_out[setting] = setting
                log.verbose("%s: takes too long" % setting)
                continue
            self.trials[setting] = trial
            log.verbose("%s: ratio %.3f" % (setting, trial.ratio))

    def _measure(self, setting: Setting, must_wait: bool = False) -> Trial | None:
        """Return the result of a setting, None if it takes too long."""
        pieces = self._pieces(setting.chunk_size)
        start = perf_counter()
        packing = unpacking = 0.0
        cbytes = nbytes = 0
        with own_settings:
            own_settings.use_blocksize(setting.blocksize)
            for piece in pieces:
                compressed, took = timed(partial(compress, piece, setting))
                packing += took
                _, took = timed(partial(decompress, compressed))
                unpacking += took
                nbytes += len(piece)
                cbytes += len(compressed) + OVERHEAD
                if self._progress is not None:
                    self._progress(len(piece))
                too_long = perf_counter() - start > SHARE * self._limit
                if too_long and not must_wait and nbytes < sum(map(len, pieces)):
                    return None
        return Trial(setting, nbytes / cbytes, nbytes / packing, nbytes / unpacking)


def timed(act: Callable[[], Result]) -> tuple[Result, float]:
    """Return the result of a function, and its shortest CPU time.

    The seconds are those of the calling thread, in which Blosc works.
    """
    best = total = 0.0
    for i in range(REPEATS):
        start = thread_time()
        result = act()
        took = thread_time() - start
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


def report(search: Search, everything: bool) -> Iterator[str]:
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
            mark = "".join(mark if yes else " " for yes, mark in marks)
            rows.append(_row(trial, mark))
    yield from table(rows, (0, 4))
    yield ""
    legend = "> best for '%s'   * no other is better in all   d the default"
    yield legend % search.goal
    for setting in search.left_out.values():
        yield "too slow to be tried in time: %s" % setting
    yield from _advice(search)


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


def _advice(search: Search) -> Iterator[str]:
    if search.command is not None:
        yield printable(search.command)
        return
    highest = max(trial.ratio for trial in search.trials.values())
    text = "compressing does not pay: the best for '%s' has the ratio %.3f"
    yield text % (search.goal, search.best.ratio)
    if highest >= WORTH:
        yield "the highest ratio is %.3f: see --goal ratio" % highest


def as_dict(search: Search) -> JsonObject:
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
        **{name: getattr(search, name) for name in ("goal", "seconds", "complete")},
        "pays": search.command is not None,
        "command": search.command,
        "trials": trials,
    }
