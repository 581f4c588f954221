"""A progress bar on the terminal, for work that takes more than a second."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from time import monotonic

from .. import log
from .exit_codes import EXIT_COULD_NOT, Refusal

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

# Sooner, nobody has begun to wonder.
PATIENCE = 1.0


class _Screen:
    """Standard error for tqdm, which would let a failed write stop the work.

    It would also flush standard output if it was given standard error itself.
    """

    encoding = property(lambda self: getattr(sys.stderr, "encoding", None))

    def write(self, text: str) -> None:
        log.put_error(text)

    def flush(self) -> None:
        """Do nothing: `write` has flushed."""


def _width() -> int | None:
    """Return the columns of the terminal that standard error is; None if it is none."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or None
    except (OSError, ValueError):
        return None


class Bar:
    """Is told of every chunk, and draws a bar with tqdm once it takes long."""

    def __init__(self, name: str, total: int | None, forced: bool) -> None:
        self._name = name
        self._total = total
        self._forced = forced
        self._done = 0
        self._begin = monotonic()
        self._bar: Any = None

    def expect(self, total: int | None) -> None:
        """Take the number of plain bytes that there will be, None if unknown."""
        self._total = total

    def __call__(self, nbytes: int) -> None:
        """Count the plain bytes of a chunk that has been done."""
        self._done += nbytes
        if self._bar is not None:
            self._bar.update(nbytes)
        elif self._forced or monotonic() - self._begin > PATIENCE:
            self._open()

    def _open(self) -> None:
        try:
            import tqdm
        except ImportError as error:
            log.PROGRESS = None
            if self._forced:
                raise Refusal(
                    "--progress needs tqdm: pip install 'bloscpack[progress]'",
                    EXIT_COULD_NOT,
                ) from error
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
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()


def _is_welcome() -> bool:
    """Return whether a person watches who sees nothing else on the terminal."""
    if log.QUIET or log.enabled(log.VERBOSE):
        return False
    if log.OUTPUT_IS_DATA and sys.stdout and sys.stdout.isatty():
        return False
    return bool(sys.stderr and sys.stderr.isatty())


@contextmanager
def shown(name: str, total: int | None, wanted: bool | None) -> Iterator[Bar | None]:
    """Show how the work of the block goes on: `total` plain bytes, None if unknown.

    By default only where standard error is a terminal, and not with other messages.
    Gives the bar, or None if there won't be any.
    """
    if sys.stderr is None or not (_is_welcome() if wanted is None else wanted):
        yield None
        return
    bar = Bar(os.path.basename(name), total, bool(wanted))
    log.PROGRESS = bar
    try:
        yield bar
    finally:
        log.PROGRESS = None
        bar.close()
