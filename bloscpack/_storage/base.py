"""Reading bytes of a file without trusting any count that it states.

A `Cursor` reads forward and knows its position, counted from where the file
begins. A size is compared with what is left before memory is asked for; where
nobody knows what is left, as in a pipe, memory grows with the bytes that arrive.
`FileRange` reads and writes a regular file anywhere, from any thread.
"""

from __future__ import annotations

import io
import os
import stat

from ..exceptions import FormatError, StorageError, UsageError
from .disk import disk

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Path = str | os.PathLike[str]

    Buffer = bytes | bytearray | memoryview

# What is asked for at a time where the size of the file is not known.
PIECE = 2**20


class named:
    """Give errors about the content of a file, or about its use, the file's name."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Any:
        return None

    def __exit__(self, error_type: object, error: object, traceback: object) -> None:
        # Not those about an argument, which are no RuntimeError.
        about_file = isinstance(error, (FormatError, RuntimeError))
        if about_file and isinstance(error, (FormatError, UsageError)):
            error.filename = error.filename or os.fsdecode(self._path)


class opened(named):
    """An open file; errors about its content or its use get its name."""

    def __init__(self, path: Path, mode: str = "rb") -> None:
        super().__init__(path)
        self._mode = mode

    def __enter__(self) -> Any:
        self._fp = disk.open(self._path, self._mode)
        return self._fp

    def __exit__(self, error_type: object, error: object, traceback: object) -> None:
        self._fp.close()
        super().__exit__(error_type, error, traceback)


def bytes_left(fp: Any) -> int | None:
    """Return the bytes between the position of `fp` and its end; None if unknown."""
    try:
        if not fp.seekable():
            return None
        position: int = fp.tell()
        fp.seek(0, os.SEEK_END)
        end: int = fp.tell()
        fp.seek(position)
    except (AttributeError, OSError):
        return None
    return max(0, end - position)


def single_read(fp: Any) -> Callable[[int], bytes | None]:
    """Return the method of a file object that reads once, if it has one.

    Between two reads Python looks for Ctrl-C; a buffer over a pipe that reads until
    it has enough does not.
    """
    if (
        type(fp) is io.BufferedReader
        and type(fp.raw) is io.FileIO
        and os.get_blocking(fp.fileno())
    ):
        return fp.read1
    read: Callable[[int], bytes | None] = fp.read
    return read


def read_up_to(fp: Any, size: int) -> bytes:
    """Return `size` bytes of a file object, fewer only at its end."""
    pieces = []
    missing = size
    read = single_read(fp)
    while missing:
        data: bytes | None = read(missing)
        if data is None:
            raise StorageError("the input gives no data now: it must wait for them")
        if not data:
            break
        pieces.append(data)
        missing -= len(data)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def write_all(fp: Any, data: Buffer) -> None:
    """Write all of `data`; raw files and pipes may take a part at a time."""
    written = fp.write(data)
    if written is None and isinstance(fp, io.RawIOBase):
        raise StorageError("the output takes no data now: it must wait for room")
    if written is None or written >= len(data):
        return
    rest = memoryview(data)
    while rest := rest[written:]:
        written = fp.write(rest)
        if not written:
            raise StorageError("the output takes no more data")


class Cursor:
    """Reads a file object forward, from where it stands."""

    def __init__(self, fp: Any) -> None:
        self.fp = fp
        self.position = 0
        self._left = bytes_left(fp)
        self._peeked = b""

    def left(self) -> int | None:
        """Return the bytes that are left; None if nobody knows."""
        return None if self._left is None else self._left - self.position

    def _fetch(self, size: int) -> bytes:
        """Return up to `size` bytes; fewer only at the end of the file."""
        if self._left is not None:
            return read_up_to(self.fp, size)
        # What is not there must not cost memory either.
        pieces = [read_up_to(self.fp, min(size, PIECE))]
        while len(pieces[-1]) == PIECE and (size := size - PIECE):
            pieces.append(read_up_to(self.fp, min(size, PIECE)))
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def peek(self, size: int) -> Buffer:
        """Return the next `size` bytes, fewer at the end, and stay where we are."""
        if len(self._peeked) < size:
            self._peeked += self._fetch(size - len(self._peeked))
        return self._peeked[:size]

    def read(self, size: int) -> Buffer:
        """Return the next `size` bytes, fewer at the end."""
        if self._peeked:
            data, self._peeked = self._peeked[:size], self._peeked[size:]
            if len(data) < size:
                data += self._fetch(size - len(data))
        else:
            data = self._fetch(size)
        self.position += len(data)
        return data

    def read_exactly(self, size: int, what: str, section: str) -> Buffer:
        """Return the next `size` bytes; raises `FormatError` if they aren't there."""
        left = self.left()
        if left is not None and left < size:
            raise self._short(size, left, what, section)
        start = self.position
        try:
            data = self.read(size)
        except MemoryError as error:
            raise FormatError(
                "there is no memory for %s of '%d' bytes" % (what, size),
                section=section,
                offset=start,
            ) from error
        if len(data) < size:
            self.position = start
            raise self._short(size, len(data), what, section)
        return data

    def skip(self, size: int, what: str, section: str) -> None:
        """Move `size` bytes on; raises `FormatError` if they aren't there."""
        left = self.left()
        if left is None:
            start, skipped = self.position, 0
            while skipped < size and (data := self.read(min(size - skipped, PIECE))):
                skipped += len(data)
            left, self.position = skipped, start
        if left < size:
            raise self._short(size, left, what, section)
        if self._left is None:
            self.position += size
            return
        peeked = min(size, len(self._peeked))
        self._peeked = self._peeked[peeked:]
        if size > peeked:
            self.fp.seek(size - peeked, os.SEEK_CUR)
        self.position += size

    def _short(self, size: int, found: int, what: str, section: str) -> FormatError:
        return FormatError(
            "the file ends too early: expected %s of '%d' bytes, found '%d'"
            % (what, size, found),
            section=section,
            offset=self.position,
        )


class MemoryCursor(Cursor):
    """Reads a buffer forward; what it returns are views of it, never copies."""

    def __init__(self, buffer: Any) -> None:
        super().__init__(None)
        self._view = as_bytes_view(buffer)
        self._left = self._view.nbytes

    def peek(self, size: int) -> Buffer:
        return self._view[self.position : self.position + size]

    def read(self, size: int) -> Buffer:
        data = self.peek(size)
        self.position += len(data)
        return data

    def read_exactly(self, size: int, what: str, section: str) -> Buffer:
        start, end = self.position, self.position + size
        if end > self._view.nbytes:
            raise self._short(size, self._view.nbytes - start, what, section)
        self.position = end
        return self._view[start:end]

    def skip(self, size: int, what: str, section: str) -> None:
        self.read_exactly(size, what, section)


def as_bytes_view(buffer: Any) -> memoryview:
    """Return the bytes of any buffer as a flat view, without a copy if it has none.

    Raises TypeError for what is no buffer.
    """
    view = memoryview(buffer)
    if view.nbytes == 0:
        return memoryview(b"")
    if not view.c_contiguous:
        view = memoryview(view.tobytes())
    return view.cast("B")


def writes_at_end(fp: Any) -> bool:
    """Return whether what is written to a file object lands at its end, as with "a"."""
    try:
        descriptor = fp.fileno()
    except (AttributeError, OSError):
        return False
    try:
        import fcntl
    except ImportError:
        return "a" in str(getattr(fp, "mode", ""))
    return bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND)


class FileRange:
    """A regular file, read and written at any place by any thread.

    The position of the file object is neither used nor moved.
    """

    def __init__(self, fp: Any) -> None:
        self._fd = fp.fileno()

    @staticmethod
    def over(fp: Any) -> FileRange | None:
        """Return the file behind a file object; None if that is not all there is to it.

        Only Python's own binary files qualify: what wraps another file, like gzip,
        has its descriptor, but not its content.
        """
        kinds = (io.BufferedReader, io.BufferedWriter, io.BufferedRandom)
        raw = fp.raw if type(fp) in kinds else fp
        if type(raw) is not io.FileIO or not hasattr(os, "preadv"):
            return None
        if not stat.S_ISREG(os.fstat(fp.fileno()).st_mode):
            return None
        if writes_at_end(fp):
            return None
        fp.flush()
        return FileRange(fp)

    def read_into(self, view: memoryview, offset: int) -> int:
        """Fill `view` from `offset` on; return the bytes read, fewer at the end."""
        done = 0
        while done < len(view):
            count = os.preadv(self._fd, [view[done:]], offset + done)
            if count == 0:
                break
            done += count
        return done

    def reserve(self, offset: int, size: int) -> None:
        """Ask the disk for room at once, which is twice as fast as piece by piece.

        The file grows by it. Where the system can't, or there is no room, nothing
        happens: the write that needs it will tell.
        """
        import ctypes

        fallocate = getattr(ctypes.CDLL(None), "fallocate", None)
        if fallocate is not None:
            fallocate.argtypes = [ctypes.c_int] * 2 + [ctypes.c_int64] * 2
            fallocate(self._fd, 0, offset, size)

    def write(self, data: Buffer, offset: int) -> None:
        """Write all of `data` at `offset`."""
        view = memoryview(data)
        while view:
            count = os.pwrite(self._fd, view, offset)
            view = view[count:]
            offset += count
