"""The standard streams as files: the meaning of ``-``.

A stream is used from its current position, and never closed.
"""

from __future__ import annotations

import os
import sys

from .. import log
from .._storage.urls import is_url, shown_name
from ..constants import MAGIC
from ..exceptions import FileNotFound, StorageError
from ..log import printable

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from typing import BinaryIO

STREAM = "-"
INPUT_NAME = "/dev/stdin"
OUTPUT_NAME = "/dev/stdout"
DEVICE = "/dev/fd/%d"
# The names of the temporary files with copies of standard input. A shell makes names
# like these for its process substitutions.
_spools: set[str] = set()


def standard_input() -> BinaryIO:
    """Return standard input as a binary file; raises `StorageError` if it is closed."""
    if sys.stdin is None:
        raise StorageError("standard input is closed")
    return sys.stdin.buffer


def name_of_input(in_file: str, *, seekable: bool = False) -> str:
    """Return a path that can be opened; for ``-`` the path of standard input.

    Opening a regular file again would begin at its start. If standard input is such a
    file and not at its start, the rest of it is copied to a temporary file. So is a
    pipe if the file must be `seekable`.
    """
    if in_file != STREAM:
        return in_file
    fp = standard_input()
    if not (fp.tell() if fp.seekable() else seekable):
        return INPUT_NAME
    import shutil
    import tempfile

    with tempfile.TemporaryFile() as spool:
        shutil.copyfileobj(fp, spool)
        spool.seek(0)
        name = DEVICE % os.dup(spool.fileno())  # stays open until the program ends
        _spools.add(name)
        return name


def quoted_input(in_file: str) -> str:
    """Return an input as messages name it."""
    return "standard input" if is_input(in_file) else "'%s'" % shown_name(in_file)


def shown_input(in_file: str) -> str:
    """Return an input as reports name it, without quotation marks."""
    return "standard input" if is_input(in_file) else printable(shown_name(in_file))


def plain_name(in_file: str) -> str:
    """Return an input as programs name it: ``-`` for standard input."""
    return STREAM if is_input(in_file) else shown_name(in_file)


def is_input(name: str) -> bool:
    """Return whether a name is ``-`` or a path that `name_of_input` returns for it."""
    return name in (STREAM, INPUT_NAME, *_spools)


def check_exists(role: str, path: str) -> None:
    """Raise `FileNotFound` unless `path` exists."""
    if path != STREAM and not os.path.exists(path) and not is_url(path):
        raise FileNotFound("%s '%s' does not exist!" % (role, path))


def warn_of_second_file(in_file: str, behind: bytes) -> None:
    """Warn the user if another Bloscpack file follows the first.

    `behind` are the first bytes behind the last chunk.
    """
    if behind == MAGIC:
        log.notice(
            "behind %s begins another packed file, which is not read"
            % quoted_input(in_file)
        )


def descriptor_of(out_file: str) -> int | None:
    """Return the file descriptor if an output file is a standard stream, or None."""
    if out_file == STREAM:
        return 1
    if not os.path.exists(out_file):
        return None
    from .._storage.stream import standard_stream

    return standard_stream(os.stat(out_file))


def name_of_output(out_file: str) -> str:
    """Return a path that can be opened; for ``-`` the path of standard output."""
    return OUTPUT_NAME if out_file == STREAM else out_file
