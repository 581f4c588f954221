"""Outputs that can't be replaced or sought: pipes, devices, the standard streams."""

from __future__ import annotations

import io
import os
import stat

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from typing import Any

    from .protocols import Path


def is_stream(path: Path) -> bool:
    """Return whether `path` exists and must be written directly, not replaced."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return False
    return not stat.S_ISREG(status.st_mode) or standard_stream(status) is not None


class _NamedFile(io.FileIO):
    """A raw file whose write errors contain its name, as its open errors do."""

    def __init__(self, target: Path | int, name: str) -> None:
        super().__init__(target, "w")
        self._shown_name = name

    def write(self, data: Any) -> int:
        """Write bytes; return the number of bytes written."""
        try:
            return super().write(data)
        except OSError as error:
            error.filename = self._shown_name
            raise


class Stream(io.BufferedWriter):
    """A file object that is written from front to back."""

    def seekable(self) -> bool:
        """Return False: seeking could overwrite the output of another program."""
        return False


def open_stream(target: Path | int, name: str) -> Stream:
    """Open an existing path or a descriptor for writing, without truncating it.

    Errors contain `name` in place of the target.
    """
    return Stream(_NamedFile(target, name))


def standard_stream(status: os.stat_result) -> int | None:
    """Return the descriptor of standard output or error if it is the file of `status`.

    A shell may have redirected it to a regular file, and may write on to that file.
    """
    for descriptor in (1, 2):
        try:
            if os.path.samestat(status, os.fstat(descriptor)):
                return descriptor
        except OSError:
            continue  # the descriptor is closed
    return None
