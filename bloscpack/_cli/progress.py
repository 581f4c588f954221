"""A progress bar on the terminal, for work that takes longer than a second."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from math import inf
from time import monotonic

from .. import log
from .exit_codes import EXIT_COULD_NOT, Refusal

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator

    from tqdm import tqdm

# Seconds of work before the bar appears.
PATIENCE = 1.0


class _Screen:
    """Standard error as a file object for tqdm.

    A failed write does not stop the work, and tqdm does not flush standard output.
    """

    encoding = property(lambda self: getattr(sys.stderr, "encoding", None))

    def write(self, text: str) -> None:
        log.put_error(text)

    def flush(self) -> None:
        """Do nothing: `write` has flushed."""


def _width() -> int | None:
    """Return the columns of the terminal on standard error; None without a terminal."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or None
    except (OSError, ValueError):
        return None


class Bar:
    """A progress bar; the library calls it with the plain bytes of each chunk.

    It draws itself with tqdm once the work has taken `PATIENCE` seconds. A `forced` bar
    appears with the first chunk, and raises `Refusal` if tqdm is not installed.
    """

    def __init__(self, name: str, total: int | None, forced: bool) -> None:
        self._name = name
        self._total = total
        self._forced = forced
        self._done = 0
        self._start = -inf if forced else monotonic()
        self._bar: tqdm | None = None

    def expect(self, total: int | None) -> None:
        """Set the total number of plain bytes; None means unknown."""
        self._total = total

    def __call__(self, nbytes: int) -> None:
        """Add the plain bytes of a finished chunk."""
        self._done += nbytes
        if self._bar is not None:
            self._bar.update(nbytes)
        elif monotonic() - self._start > PATIENCE:
            self._open()

    def _open(self) -> None:
        try:
            import tqdm
        except ImportError as error:
            if self._forced:
                raise Refusal(
                    "--progress needs tqdm: pip install 'bloscpack[progress]'",
                    EXIT_COULD_NOT,
                ) from error
            self._start = inf  # do not try again
            return
        self._bar = tqdm.tqdm(
            desc=self._name,
            total=self._total,
            initial=self._done,
            unit="B",
            unit_scale=True,
            unit_divisor=1024,
            leave=False,
            file=_Screen(),
            ncols=_width(),
        )

    def close(self) -> None:
        """Remove the bar from the terminal."""
        if self._bar is not None:
            self._bar.close()


def _should_show() -> bool:
    """Return whether standard error is a terminal without any other output on it."""
    if log.QUIET or log.enabled(log.VERBOSE):
        return False
    if log.OUTPUT_IS_DATA and sys.stdout and sys.stdout.isatty():
        return False
    return bool(sys.stderr and sys.stderr.isatty())


@contextmanager
def shown(name: str, total: int | None, wanted: bool | None) -> Iterator[Bar | None]:
    """Yield a progress bar for the work of the block, or None for no bar.

    `total` counts plain bytes; None means unknown. `wanted` is True for ``--progress``,
    False for ``--no-progress``, and None for the default: a bar if standard error is a
    terminal without other messages.
    """
    if sys.stderr is None or not (_should_show() if wanted is None else wanted):
        yield None
        return
    bar = Bar(log.printable(os.path.basename(name)), total, bool(wanted))
    try:
        yield bar
    finally:
        bar.close()
