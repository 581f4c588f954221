"""A progress bar on the terminal, for work that takes longer than a second.

All files of a run share one bar: `shown_for_run` makes it, and `shown` enters each file
in it. tqdm draws it; without that package there is none. A message erases the bar
first, so that each stands on a line of its own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from itertools import accumulate
from math import inf
from time import monotonic, time
from typing import Any

from .. import log
from .._storage.paths import shown_name
from ..log import printable
from .console import console
from .text import shorten

# The plain bytes of a file by its name, None if they are unknown.
SizeOf = Callable[[str], int | None]

# Seconds of work before the bar appears.
PATIENCE = 1.0
# Minimum time in seconds between two drawings.
INTERVAL = 0.1
# Maximum number of characters shown of the name of a file.
NAME_WIDTH = 30


class _Screen:
    """Standard error as a file object for tqdm.

    A failed write does not stop the work, and tqdm does not flush standard output.
    """

    encoding = property(lambda self: getattr(sys.stderr, "encoding", None))

    def write(self, text: str) -> None:
        console.draw(text)

    def flush(self) -> None:
        """Do nothing: `write` has flushed."""


class Bar:
    """A progress bar; the library calls it with the plain bytes of each chunk.

    It appears with the first chunk after `PATIENCE` seconds; if `forced`, with the
    first chunk. `files` are the names of all files, and `size_of` returns the plain
    bytes of a file, None if they are unknown; it is called when the bar appears.
    """

    def __init__(
        self, files: Sequence[str], size_of: SizeOf | None, forced: bool
    ) -> None:
        self._files, self._size_of = files, size_of
        # The plain bytes of the files before each file, and of all, if they are known.
        self._sums: list[int] = []
        self._number, self._name = 0, ""  # of the current file, from 1 on
        # Plain bytes of the files before, and of this one.
        self._before = self._done = 0
        self._total: int | None = None
        self._begun = time()
        self._next = -inf if forced else monotonic() + PATIENCE
        self._bar: Any = None

    def begin(self, name: str, total: int | None) -> None:
        """Enter the next file; `total` is its plain bytes, None if unknown."""
        with suppress(ValueError):  # files in front of it may have been refused
            self._number = self._files.index(name, self._number)
        self._number += 1
        self._total, self._done = total, 0
        name = os.path.basename(shown_name(name))
        self._name = shorten(printable(name), NAME_WIDTH)
        if len(self._files) > 1:
            of = self._number, len(self._files), self._name
            self._name = "%d of %d, %s" % of

    def expect(self, total: int | None) -> None:
        """Set the plain bytes of the current file; None means unknown."""
        self._total = total

    def __call__(self, nbytes: int) -> None:
        """Add the plain bytes of a finished chunk."""
        self._done += nbytes
        if monotonic() < self._next:
            return
        if self._bar is None and not self._open():
            self._next = inf
            return
        self._next = monotonic() + INTERVAL
        before, total = self._before, self._total if len(self._files) == 1 else None
        if self._sums:
            before, total = self._sums[self._number - 1], self._sums[-1]
        self._bar.n = before + self._done
        self._bar.total = None if total is None else max(total, self._bar.n)
        self._bar.set_description_str(self._name)

    def _open(self) -> bool:
        """Make the bar of tqdm; return False without that package."""
        try:
            from tqdm import tqdm
        except ImportError:
            return False
        if self._size_of is not None:
            sizes = [self._size_of(name) for name in self._files]
            if None not in sizes:
                self._sums = [0, *accumulate(size or 0 for size in sizes)]
        try:
            width = os.get_terminal_size(sys.stderr.fileno()).columns or None
        except (OSError, ValueError):
            width = None
        how = {"unit": "B", "unit_scale": True, "unit_divisor": 1024, "leave": False}
        # With this delay it draws nothing yet.
        self._bar = tqdm(file=_Screen(), ncols=width, delay=1e-9, **how)
        self._bar.start_t = self._begun
        return True

    def end(self) -> None:
        """Leave the current file, which is complete or has failed."""
        self._before += self._done if self._total is None else self._total
        self._total, self._done = None, 0

    def erase(self) -> None:
        """Erase the bar before a message; the next chunk draws it again."""
        if self._bar is not None:
            self._bar.clear()
            self._next = -inf

    def close(self) -> None:
        """Remove the bar from the terminal."""
        if self._bar is not None:
            self._bar.close()


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
    files: Sequence[str], size_of: SizeOf | None, wanted: bool | None
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
