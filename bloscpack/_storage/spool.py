"""Inputs of unknown size: they are copied to a temporary file, which has a size."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager

from .base import Storage, bytes_left
from .local import storage_of

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, BinaryIO

    from .protocols import Readable


def size_of(fp: BinaryIO) -> int | None:
    """Return the number of bytes left in an open file; None if it is unknown.

    It is unknown for pipes, and for files that the system generates while they are
    read, like those in ``/proc``, which report 0 bytes.
    """
    status = os.fstat(fp.fileno())
    if not stat.S_ISREG(status.st_mode):
        return None
    if status.st_size == 0 and fp.peek(1):  # type: ignore[attr-defined]
        return None
    return max(0, status.st_size - fp.tell())


@contextmanager
def seekable_with_size(fp: Any) -> Iterator[tuple[Any, int]]:
    """Yield a file object that can seek, and the number of bytes left in it.

    It is `fp` itself if that can seek. A pipe, or a file that the system generates
    while it is read, is first copied to a temporary file, which is yielded.
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


@contextmanager
def positional(source: Readable | Storage) -> Iterator[Storage]:
    """Yield a file object, from its current position on, or a storage, as a storage.

    A pipe is first copied to a temporary file. Other file objects are left at their
    end.
    """
    if isinstance(source, Storage):
        yield source
        return
    with seekable_with_size(source) as (fp, _):
        yield storage_of(fp)
        fp.seek(0, os.SEEK_END)
