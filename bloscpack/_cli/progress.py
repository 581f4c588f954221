"""A progress bar on the terminal, for work that takes longer than a second.

All files of a run share one bar: `shown_for_run` makes it, and `shown` enters each file
in it. It is drawn with tqdm, or without that package as a plain line, for each chunk,
and by a thread of its own while a chunk takes long. A message erases the bar first, so
that each stands on a line of its own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from itertools import accumulate
from math import inf
from threading import Event, RLock, Thread
from time import monotonic

from .. import log
from .._storage.paths import shown_name
from ..log import encodable, printable
from ..pretty import pretty_size
from .console import console

# Seconds of work before the bar appears.
PATIENCE = 1.0
# Minimum time in seconds between two drawings.
INTERVAL = 0.1
# Seconds without a drawing after which the bar is drawn although no chunk is complete.
TICK = 1.0
# Maximum number of characters shown of the name of a file.
NAME_WIDTH = 30


def _width() -> int | None:
    """Return the columns of the terminal on standard error; None without a terminal."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or None
    except (OSError, ValueError):
        return None


# Drawings: `draw` draws the bar over an earlier drawing, `erase` erases it, and after
# `close` it is drawn no more.


class _Screen:
    """Standard error as a file object for tqdm.

    A failed write does not stop the work, and tqdm does not flush standard output.
    """

    encoding = property(lambda self: getattr(sys.stderr, "encoding", None))

    def write(self, text: str) -> None:
        console.draw(text)

    def flush(self) -> None:
        """Do nothing: `write` has flushed."""


class _TqdmDrawing:
    """A bar of tqdm."""

    def __init__(self, done: int) -> None:
        from tqdm import tqdm

        self._bar = tqdm(
            initial=done,
            unit="B",
            unit_scale=True,
            unit_divisor=1024,
            leave=False,
            file=_Screen(),
            ncols=_width(),
            delay=1e-9,  # draw nothing yet
        )

    def draw(self, name: str, done: int, total: int | None) -> None:
        self._bar.set_description_str(name, refresh=False)
        self._bar.total, self._bar.n = total, done
        self._bar.refresh()

    def erase(self) -> None:
        self._bar.clear()

    def close(self) -> None:
        self._bar.clear()
        self._bar.close()


class _PlainDrawing:
    """A line of text with the same numbers."""

    def __init__(self, done: int) -> None:
        self._start, self._initial = monotonic(), done
        self._length = 0

    def draw(self, name: str, done: int, total: int | None) -> None:
        rate = (done - self._initial) / max(monotonic() - self._start, 1e-3)
        text = "%s: " % name
        if total is None:
            text += "%s, %s/s" % (pretty_size(done), pretty_size(round(rate)))
        else:
            share = 100 * done // total if total else 100
            sizes = pretty_size(done), pretty_size(total), pretty_size(round(rate))
            text += "%3d%% %s/%s, %s/s, " % (share, *sizes)
            text += _time_text((total - done) / rate if rate else None) + " left"
        text = _cut(encodable(text, sys.stderr), (_width() or 80) - 1)
        blanks = " " * (self._length - len(text))
        self._length = len(text)
        console.draw("\r" + text + blanks)

    def erase(self) -> None:
        # A wide character takes two columns.
        console.draw("\r%s\r" % (" " * min(2 * self._length, (_width() or 80) - 1)))
        self._length = 0

    def close(self) -> None:
        if self._length:
            self.erase()


def _time_text(seconds: float | None) -> str:
    """Return a time in the form ``m:ss`` or ``h:mm:ss``."""
    if seconds is None:
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return "%d:%02d" % (minutes, rest)
    return "%d:%02d:%02d" % (*divmod(minutes, 60), rest)


def _cut(text: str, columns: int) -> str:
    """Return the beginning of a text that fits into some columns of a terminal."""
    from unicodedata import east_asian_width

    for i, character in enumerate(text):
        columns -= 2 if east_asian_width(character) in "WF" else 1
        if columns < 0:
            return text[:i]
    return text


def _drawing(done: int) -> _TqdmDrawing | _PlainDrawing:
    try:
        return _TqdmDrawing(done)
    except ImportError:
        return _PlainDrawing(done)


# The bar


class Bar:
    """A progress bar; the library calls it with the plain bytes of each chunk.

    It appears once the work has taken `PATIENCE` seconds; if `forced`, with the first
    chunk, or after `TICK` seconds. `files` are the names of all files, and `size_of`
    returns the plain bytes of a file, None if they are unknown; it is called when the
    bar appears.
    """

    def __init__(
        self,
        files: Sequence[str],
        size_of: Callable[[str], int | None] | None,
        forced: bool,
    ) -> None:
        self._files = files
        self._size_of = size_of
        # The plain bytes of the files before each file, and of all; None if unknown.
        self._sums: list[int] | None = None
        self._number = 0  # of the current file, from 1 on
        self._name = ""
        self._file_total: int | None = None
        self._file_done = 0
        self._done_before = 0  # plain bytes of the files before
        self._next = -inf if forced else monotonic() + PATIENCE
        self._drawing: _TqdmDrawing | _PlainDrawing | None = None
        self._is_drawn = False
        self._last = monotonic()  # when the bar was drawn or erased
        self._lock = RLock()
        self._closed = Event()
        self._ticker = Thread(target=self._tick, daemon=True)
        self._ticker.start()

    def begin(self, name: str, total: int | None) -> None:
        """Enter the next file; `total` is its plain bytes, None if unknown."""
        with suppress(ValueError):  # files in front of it may have been refused
            self._number = self._files.index(name, self._number)
        self._number += 1
        self._file_total, self._file_done = total, 0
        name = printable(os.path.basename(shown_name(name)))
        if len(name) > NAME_WIDTH:
            name = name[: NAME_WIDTH - 3] + "..."
        if len(self._files) > 1:
            name = "%d of %d, %s" % (self._number, len(self._files), name)
        self._name = name

    def expect(self, total: int | None) -> None:
        """Set the plain bytes of the current file; None means unknown."""
        self._file_total = total

    def __call__(self, nbytes: int) -> None:
        """Add the plain bytes of a finished chunk."""
        self._file_done += nbytes
        now = monotonic()
        if now < self._next:
            return
        with self._lock:
            self._draw(now, nbytes)

    def _tick(self) -> None:
        """Draw the bar while no chunk is complete, until it is closed."""
        while not self._closed.wait(TICK):
            with self._lock:
                now = monotonic()
                if self._name and now >= self._last + TICK:
                    self._draw(now, 0)

    def _draw(self, now: float, nbytes: int) -> None:
        self._last, self._next = now, now + INTERVAL
        if self._drawing is None:
            self._sums = self._sum_sizes()
        before, total = self._done_before, self._file_total
        if self._sums is not None:
            before, total = self._sums[self._number - 1], self._sums[-1]
        elif len(self._files) > 1:
            total = None
        done = before + self._file_done
        if self._drawing is None:
            self._drawing = _drawing(done - nbytes)
        total = None if total is None else max(total, done)
        self._drawing.draw(self._name, done, total)
        self._is_drawn = True

    def _sum_sizes(self) -> list[int] | None:
        """Return the sums of the sizes of the files; None if one is unknown."""
        if self._size_of is None:
            return None
        sizes = [self._size_of(name) for name in self._files]
        known = [size for size in sizes if size is not None]
        return [0, *accumulate(known)] if len(known) == len(sizes) else None

    def end(self) -> None:
        """Leave the current file, which is complete or has failed."""
        complete = self._file_done if self._file_total is None else self._file_total
        self._done_before += complete
        self._file_total, self._file_done = None, 0

    def erase(self) -> None:
        """Erase the bar before a message; the next chunk draws it again."""
        with self._lock:
            self._last = monotonic()
            if self._is_drawn and self._drawing is not None:
                self._is_drawn = False
                self._next = -inf
                self._drawing.erase()

    def close(self) -> None:
        """Remove the bar from the terminal."""
        self._closed.set()
        self._ticker.join()
        if self._drawing is not None:
            self._drawing.close()


def _should_show() -> bool:
    """Return whether standard error is a terminal without any other output on it."""
    if console.quiet or log.enabled(log.VERBOSE):
        return False
    if console.is_data and sys.stdout and sys.stdout.isatty():
        return False
    return bool(sys.stderr and sys.stderr.isatty())


# The bar of the current run. The work on a file does not know whether others follow.
_bar: Bar | None = None


@contextmanager
def shown_for_run(
    files: Sequence[str],
    size_of: Callable[[str], int | None] | None,
    wanted: bool | None,
) -> Iterator[None]:
    """Show one progress bar for all files that are worked on in the block.

    `wanted` is True for ``--progress``, False for ``--no-progress``, and None for the
    default: a bar if standard error is a terminal without other messages. See `Bar` for
    `files` and `size_of`.
    """
    global _bar
    if sys.stderr is None or not (_should_show() if wanted is None else wanted):
        yield
        return
    bar = _bar = Bar(files, size_of, bool(wanted))
    console.erase = bar.erase
    try:
        yield
    finally:
        _bar = None
        console.erase = None
        bar.close()


@contextmanager
def shown(
    name: str, total: int | Callable[[], int | None] | None, wanted: bool | None
) -> Iterator[Bar | None]:
    """Yield the progress bar for the work on a file, or None for no bar.

    `total` counts plain bytes, or is a function that returns them; None means unknown.
    `wanted` has the meaning that it has for `shown_for_run`; without a run the file has
    a bar of its own.
    """
    with nullcontext() if _bar is not None else shown_for_run([name], None, wanted):
        bar = _bar
        if bar is None:
            yield None
            return
        bar.begin(name, total() if callable(total) else total)
        try:
            yield bar
        finally:
            bar.end()
