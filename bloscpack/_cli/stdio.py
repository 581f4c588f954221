"""The standard streams as files: what ``-`` stands for.

They are read and written from where they stand, and never closed. Where the data go to
standard output, everything else is said on standard error.
"""

from __future__ import annotations

import os
import sys

from ..exceptions import FileNotFound, StorageError

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from typing import Any

STREAM = "-"
INPUT_NAME = "/dev/stdin"
OUTPUT_NAME = "/dev/stdout"
DEVICE = "/dev/fd/%d"


def standard_input() -> Any:
    """Return standard input, from where it stands; raises `StorageError` if closed."""
    if sys.stdin is None:
        raise StorageError("standard input is closed")
    return sys.stdin.buffer


def name_of_input(in_file: str) -> str:
    """Return a name that can be opened, for standard input from where it stands.

    Opening a regular file anew would begin at its start, so of one that has been read
    in part already the rest is copied.
    """
    if in_file != STREAM:
        return in_file
    fp = standard_input()
    if not (fp.seekable() and fp.tell()):
        return INPUT_NAME
    import shutil
    import tempfile

    with tempfile.TemporaryFile() as spool:
        shutil.copyfileobj(fp, spool)
        spool.seek(0)
        return DEVICE % os.dup(spool.fileno())  # until the program ends


def is_input(name: str) -> bool:
    """Return whether a name is ``-``, or may be one that `name_of_input` made of it."""
    return name in (STREAM, INPUT_NAME) or name.startswith(DEVICE.removesuffix("%d"))


def check_exists(role: str, path: str) -> None:
    """Raise `FileNotFound` unless `path` exists."""
    if path != STREAM and not os.path.exists(path):
        raise FileNotFound("%s '%s' does not exist!" % (role, path))


def descriptor_of(out_file: str) -> int | None:
    """Return the descriptor of the standard stream that an output file is, if it is."""
    if out_file == STREAM:
        return 1
    if not os.path.exists(out_file):
        return None
    from .._storage.stream import standard_stream

    return standard_stream(os.stat(out_file))


def name_of_output(out_file: str) -> str:
    """Return a name that can be opened, also for standard output."""
    return OUTPUT_NAME if out_file == STREAM else out_file
