"""Inputs of unknown size: a copy in a temporary file tells it."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager

from .base import bytes_left

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, BinaryIO


def size_of(fp: BinaryIO) -> int | None:
    """Return the bytes left in an open file, None where only reading it will tell.

    Pipes have no size, and files that the system makes up as they are read say 0.
    """
    status = os.fstat(fp.fileno())
    if not stat.S_ISREG(status.st_mode):
        return None
    if status.st_size == 0 and fp.peek(1):  # type: ignore[attr-defined]
        return None
    return max(0, status.st_size - fp.tell())


@contextmanager
def sized(fp: Any) -> Iterator[tuple[Any, int]]:
    """Give a file object that can seek, and the bytes left in it.

    What can't seek, like a pipe, is read to its end first, and a copy of that given;
    so are files that the system makes up as they are read, which say that they are
    empty.
    """
    size = bytes_left(fp)
    if size or (size == 0 and not (hasattr(fp, "peek") and fp.peek(1))):
        yield fp, size
        return
    import shutil
    import tempfile

    with tempfile.TemporaryFile() as spool:
        shutil.copyfileobj(fp, spool)
        size = spool.tell()
        spool.seek(0)
        yield spool, size
