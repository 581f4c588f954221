"""Pipes and other streams, and cursors, which read a file forward.

Outputs that can't be replaced or sought are pipes, devices and the standard streams.
Inputs of unknown size are copied to a temporary file, which has a size.

Strategy of the cursors: a count in a file may be any number, so it is compared with the
number of bytes left before memory is allocated. Where that number is unknown, as in a
pipe, memory grows with the bytes that arrive.
"""

from __future__ import annotations

import io
import os
import stat
from contextlib import contextmanager

from ..exceptions import DamageError, FormatError
from .base import READ_SIZE, Storage, as_bytes_view, bytes_left, read_up_to, write_all
from .local import find_holes, outside_of, storage_of, writes_at_end

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, BinaryIO

    from .protocols import Buffer, Path, Readable, Seekable


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


class SparseStream:
    """Writes to a redirected standard stream from front to back, and leaves holes."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._offset = stream.raw.tell()
        # Number of zero bytes that have been left out at the end.
        self._pending = 0

    @staticmethod
    def over(fp: object) -> SparseStream | None:
        """Return a writer to a stream; None if it is no regular file at its end."""
        if type(fp) is not Stream:
            return None
        fp.flush()
        status = os.fstat(fp.fileno())
        if not stat.S_ISREG(status.st_mode) or writes_at_end(fp):
            return None
        return SparseStream(fp) if fp.raw.tell() >= status.st_size else None

    def write(self, plain: Buffer) -> None:
        """Write all of `plain`, except for blocks of zeros."""
        view = memoryview(plain).cast("B")
        position = 0
        for start, stop in outside_of(len(view), find_holes(view, self._offset)):
            self._pending += start - position
            self._skip()
            write_all(self._stream, view[start:stop])
            position = stop
        self._pending += len(view) - position
        self._offset += len(view)

    def _skip(self) -> None:
        """Move behind the bytes left out."""
        if self._pending:
            self._stream.flush()
            self._stream.raw.seek(self._pending, io.SEEK_CUR)
            self._pending = 0

    def finish(self) -> None:
        """Give the file its length, if it ends in a hole."""
        if self._pending:
            self._pending -= len(LAST_BYTE)
            self._skip()
            write_all(self._stream, LAST_BYTE)


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


class _HeadAndRest(io.RawIOBase):
    """The beginning of a pipe, which has been read, and then the rest of the pipe."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._parts: list[Readable] = [io.BytesIO(head), rest]
        self._rest = rest

    def readable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return the descriptor of the pipe."""
        return self._rest.fileno()

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


class Cursor:
    """A position in a file object, and methods that read forward from there.

    ``position`` counts the bytes read since the cursor was made.

    Parameters
    ----------
    fp
        The file object.
    to_end
        Whether the bytes of a pipe up to its end belong to the file. Otherwise nothing
        behind the last chunk is read from a pipe: another program may use it.
    """

    def __init__(self, fp: Seekable, *, to_end: bool = False) -> None:
        self.fp = fp
        self._to_end = to_end
        self.position = 0
        self._total = bytes_left(fp)
        self._peeked = b""

    def left(self) -> int | None:
        """Return the number of bytes left; None if it is unknown."""
        return None if self._total is None else self._total - self.position

    def move(self, position: int) -> None:
        """Move to a position of a file that can seek."""
        self.fp.seek(position - self.position - len(self._peeked), os.SEEK_CUR)
        self.position, self._peeked = position, b""

    def _fetch(self, size: int) -> bytes:
        """Return up to `size` bytes; fewer only at the end of the file."""
        if self._total is not None:
            return read_up_to(self.fp, size)
        # `size` may be larger than the file, and then must not cost memory.
        blocks = [read_up_to(self.fp, min(size, READ_SIZE))]
        while len(blocks[-1]) == READ_SIZE and (size := size - READ_SIZE):
            blocks.append(read_up_to(self.fp, min(size, READ_SIZE)))
        return blocks[0] if len(blocks) == 1 else b"".join(blocks)

    def peek(self, size: int) -> Buffer:
        """Return the next `size` bytes, fewer at the end, without moving."""
        if len(self._peeked) < size:
            self._peeked += self._fetch(size - len(self._peeked))
        return self._peeked[:size]

    def peek_behind(self, size: int) -> Buffer:
        """Return up to `size` bytes behind the last section, without moving.

        Return no bytes of a pipe, unless the file extends to its end. Call `restore`
        afterwards.
        """
        left = self.left()
        if left is None:
            return self.peek(size) if self._to_end else b""
        return self.peek(min(size, left))

    def restore(self) -> None:
        """Move a file object that can seek back to the position of the cursor."""
        if self._total is not None and self._peeked:
            self.fp.seek(-len(self._peeked), os.SEEK_CUR)
            self._peeked = b""

    def read(self, size: int) -> Buffer:
        """Return the next `size` bytes, fewer at the end, and move behind them."""
        if self._peeked:
            data, self._peeked = self._peeked[:size], self._peeked[size:]
            if len(data) < size:
                data += self._fetch(size - len(data))
        else:
            data = self._fetch(size)
        self.position += len(data)
        return data

    def read_exactly(self, size: int, what: str, section: str) -> Buffer:
        """Return the next `size` bytes; raise `FormatError` if there are fewer.

        The error calls the bytes `what` and locates them in `section`.
        """
        left = self.left()
        if left is not None and left < size:
            raise self._too_short(size, left, what, section)
        start = self.position
        try:
            data = self.read(size)
        except MemoryError as error:
            raise DamageError(
                "there is no memory for %s of '%d' bytes" % (what, size),
                section=section,
                offset=start,
            ) from error
        if len(data) < size:
            self.position = start
            raise self._too_short(size, len(data), what, section)
        return data

    def skip(self, size: int, what: str, section: str) -> None:
        """Move forward by `size` bytes; raise `FormatError` if there are fewer."""
        left = self.left()
        if left is None:
            self._read_over(size, what, section)
            return
        if left < size:
            raise self._too_short(size, left, what, section)
        peeked = min(size, len(self._peeked))
        self._peeked = self._peeked[peeked:]
        if size > peeked:
            self.fp.seek(size - peeked, os.SEEK_CUR)
        self.position += size

    def _read_over(self, size: int, what: str, section: str) -> None:
        """Read `size` bytes of a file that can't seek, and forget them."""
        start, skipped = self.position, 0
        while skipped < size and (data := self.read(min(size - skipped, READ_SIZE))):
            skipped += len(data)
        if skipped < size:
            self.position = start
            raise self._too_short(size, skipped, what, section)

    def _too_short(self, size: int, found: int, what: str, section: str) -> FormatError:
        return DamageError(
            "the file ends too early: expected %s of '%d' bytes, found '%d'"
            % (what, size, found),
            section=section,
            offset=self.position,
        )


class StorageCursor(Cursor):
    """A position in a storage, which knows its size."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.position = 0
        self._total = storage.size
        # The bytes that were read last, and where they start: a header that was looked
        # at is read next, and each read may be a request to a server.
        self._start, self._known = 0, b""

    def move(self, position: int) -> None:
        self.position = position

    def peek(self, size: int) -> Buffer:
        first = self.position - self._start
        known = self._known[first : first + size] if first >= 0 else b""
        if len(known) < size:
            known = self._storage.read_at(self.position, size)
            self._start, self._known = self.position, known
        return known

    peek_behind = peek

    def restore(self) -> None:
        """Do nothing: no other reader shares the position."""

    def read(self, size: int) -> Buffer:
        data = self.peek(size)
        self.position += len(data)
        return data

    def skip(self, size: int, what: str, section: str) -> None:
        left = self.left()
        if left is not None and left < size:
            raise self._too_short(size, left, what, section)
        self.position += size


class MemoryCursor(StorageCursor):
    """A position in a buffer; the methods return views of the buffer, not copies."""

    def __init__(self, buffer: Buffer) -> None:
        self._view = as_bytes_view(buffer)
        self.position = 0
        self._total = self._view.nbytes

    def peek(self, size: int) -> Buffer:
        return self._view[self.position : self.position + size]

    peek_behind = peek
