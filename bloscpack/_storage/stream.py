"""Targets that are written from front to back: pipes and the standard streams."""

from __future__ import annotations

import io
import os
import stat

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from typing import Any

    from .base import Path


def is_stream(path: Path) -> bool:
    """Return whether `path` exists, but can't be replaced: a pipe, standard output."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return False
    return not stat.S_ISREG(status.st_mode) or standard_stream(status) is not None


class _Named(io.FileIO):
    """A target whose errors in writing name it, like those in opening."""

    def __init__(self, target: Path | int, shown: str) -> None:
        super().__init__(target, "w")
        self._shown = shown

    def write(self, data: Any) -> int:
        """Write bytes; return how many it took."""
        try:
            return super().write(data)
        except OSError as error:
            error.filename = self._shown
            raise


class Stream(io.BufferedWriter):
    """A target that is written from front to back, whatever it may be."""

    def seekable(self) -> bool:
        """Return False: what others wrote there must not be sought over."""
        return False


def open_stream(target: Path | int, shown: str) -> Stream:
    """Open what is there, a path or a descriptor, to write to it as it is.

    Errors call it `shown`.
    """
    return Stream(_Named(target, shown))


def standard_stream(status: os.stat_result) -> int | None:
    """Return the descriptor of standard output or error, if that is the target.

    It may be a regular file, that the shell has opened and goes on to write to.
    """
    for descriptor in (1, 2):
        try:
            if os.path.samestat(status, os.fstat(descriptor)):
                return descriptor
        except OSError:
            continue  # closed
    return None
