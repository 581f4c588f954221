"""Pipes and other streams.

Outputs that can't be replaced or sought are pipes, devices and the standard streams.
Inputs of unknown size are copied to a temporary file, which has a size.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from .._types import Buffer, Path, Readable
from .base import RawReader, Storage, bytes_left, read_up_to, write_all
from .local import spans_of_data, storage_of, writes_at_end

# Number of bytes at the beginning of a pipe that are its sample.
HEAD = 4 * 2**20
# Number of zero bytes that end a stream, and are written so that it has its length.
LAST_BYTE = b"\0"


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


class SparseWriter:
    """Writes to the end of a regular file, from front to back, and leaves holes."""

    def __init__(self, fp: io.BufferedWriter | io.FileIO, offset: int) -> None:
        self._fp = fp
        self._offset = offset
        # Number of zero bytes that have been left out at the end.
        self._pending = 0

    @staticmethod
    def over(fp: Any) -> SparseWriter | None:
        """Return a writer from the position of a file object on.

        None if it is no regular file at its end: a hole would not overwrite bytes. Only
        binary files of Python and `Stream` qualify; see `FileRange.over`.
        """
        if type(fp) not in (Stream, io.BufferedWriter, io.BufferedRandom, io.FileIO):
            return None
        fp.flush()
        status = os.fstat(fp.fileno())
        if not stat.S_ISREG(status.st_mode) or writes_at_end(fp):
            return None
        offset = fp.tell()
        return SparseWriter(fp, offset) if offset >= status.st_size else None

    def write(self, plain: Buffer) -> None:
        """Write all of `plain`, except for blocks of zeros."""
        view = memoryview(plain).cast("B")
        position = 0
        for start, stop in spans_of_data(view, self._offset):
            self._pending += start - position
            self._skip()
            write_all(self._fp, view[start:stop])
            position = stop
        self._pending += len(view) - position
        self._offset += len(view)

    def _skip(self) -> None:
        """Move behind the bytes left out."""
        if self._pending:
            self._fp.seek(self._pending, io.SEEK_CUR)
            self._pending = 0

    def finish(self) -> None:
        """Give the file its length, if it ends in a hole."""
        if not self._pending:
            return
        if type(self._fp) is Stream:  # cutting could remove the output of others
            self._pending -= len(LAST_BYTE)
            self._skip()
            write_all(self._fp, LAST_BYTE)
        else:
            self._skip()
            self._fp.truncate()


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


class _HeadAndRest(RawReader):
    """The beginning of a pipe, which has been read, and then the rest of the pipe."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._parts: list[Readable] = [io.BytesIO(head), rest]

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        """Read into a buffer; return the number of bytes."""
        while self._parts:
            data = read_up_to(self._parts[0], len(buffer))
            if data:
                buffer[: len(data)] = data
                return len(data)
            del self._parts[0]
        return 0


def sampled(
    fp: BinaryIO, size: int | None
) -> tuple[BinaryIO, tuple[Callable[[int, int], bytes], int]]:
    """Return a file object with the bytes of `fp`, and a sample of them.

    The sample is a function that returns the bytes at an offset, and their total size.
    It has the next `size` bytes of a file that can seek, whose position stays. With a
    `size` of None it has the beginning of a pipe, which another file object begins
    with.
    """
    if size is None:
        head = read_up_to(fp, HEAD)
        raw: Any = _HeadAndRest(head, fp)
        pipe = io.BufferedReader(raw)
        return pipe, (lambda start, size: head[start : start + size], len(head))
    begin = fp.tell()

    def read(start: int, size: int) -> bytes:
        fp.seek(begin + start)
        data = fp.read(size)
        fp.seek(begin)
        return data

    return fp, (read, size)


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
