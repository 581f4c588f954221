"""Local files: opened by name, read and written at any position by any thread."""

from __future__ import annotations

import io
import os
import stat
from functools import cache

from .base import FileObjectStorage, Storage, StorageFile

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from typing import Any

    from .protocols import Buffer, Seekable

# The mode of `fallocate` that frees an extent and keeps the length of the file.
PUNCH_HOLE = 0x02 | 0x01


@cache
def _find_fallocate() -> Any:
    """Return the function of the C library that allocates extents, None without it."""
    import ctypes

    fallocate = getattr(ctypes.CDLL(None), "fallocate", None)
    if fallocate is not None:
        fallocate.argtypes = [ctypes.c_int] * 2 + [ctypes.c_int64] * 2
    return fallocate


def writes_at_end(fp: Any) -> bool:
    """Return whether every write goes to the end of the file, as in mode "a"."""
    try:
        descriptor: int = fp.fileno()
    except (AttributeError, OSError):
        return False
    try:
        import fcntl
    except ImportError:
        return "a" in str(getattr(fp, "mode", ""))
    return bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND)


class FileRange:
    """System calls on a regular file that take an offset.

    They neither use nor move the position of the file object.
    """

    def __init__(self, fp: io.FileIO) -> None:
        self._fp = fp  # must stay open as long as its descriptor is used
        self._fd = fp.fileno()

    @staticmethod
    def over(fp: Any) -> FileRange | None:
        """Return the file behind a file object; None if it can't be read by offset.

        Only the binary files of Python itself qualify: a file object of another type,
        like that of gzip, has the descriptor of the file, but other content.
        """
        buffered = (io.BufferedReader, io.BufferedWriter, io.BufferedRandom)
        raw = fp.raw if type(fp) in buffered else fp
        if type(raw) is not io.FileIO or not hasattr(os, "preadv"):
            return None
        if not stat.S_ISREG(os.fstat(raw.fileno()).st_mode):
            return None
        if writes_at_end(raw):
            return None
        fp.flush()
        return FileRange(raw)

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
        """Allocate an extent of the file on disk, which makes writing twice as fast.

        The file grows to the end of the extent. If the system has no call to
        allocate an extent, or no room, this does nothing: the write that needs the room
        will fail.
        """
        self._fallocate(0, offset, size)

    def punch(self, offset: int, size: int) -> None:
        """Give the disk space of an extent back; it then reads as zeros.

        If the system can't do that, this does nothing: only zeros that were never
        written may be punched.
        """
        self._fallocate(PUNCH_HOLE, offset, size)

    def _fallocate(self, mode: int, offset: int, size: int) -> None:
        fallocate = _find_fallocate()
        if fallocate is not None:
            fallocate(self._fd, mode, offset, size)

    def size(self) -> int:
        """Return the length of the file in bytes."""
        return os.fstat(self._fd).st_size

    def write(self, data: Buffer, offset: int) -> None:
        """Write all of `data` at `offset`."""
        view = memoryview(data)
        while view:
            count = os.pwrite(self._fd, view, offset)
            view = view[count:]
            offset += count


class LocalStorage(Storage):
    """A regular file from the position `start` to its end."""

    def __init__(self, file_range: FileRange, fp: Seekable) -> None:
        self._range = file_range
        self._fp = fp  # the file is closed when its file object is freed
        self._start = fp.tell()
        status = os.fstat(file_range._fd)
        self.size = max(0, status.st_size - self._start)
        self.version = status.st_size, status.st_mtime_ns, self._start
        self.identity = status.st_dev, status.st_ino, *self.version

    def read_into(self, view: memoryview, offset: int) -> int:
        return self._range.read_into(view, self._start + offset)


def concurrent_storage(fp: Seekable) -> Storage | None:
    """Return a file object, from its current position on, as a concurrent storage.

    Return None if only the thread of the caller may read it: for pipes, for file
    objects that Bloscpack does not know, and on systems without ``preadv``.
    """
    if type(fp) is io.BufferedReader and isinstance(fp.raw, StorageFile):
        storage = fp.raw.storage
        return storage if storage.concurrent and fp.tell() == 0 else None
    file_range = FileRange.over(fp)
    return None if file_range is None else LocalStorage(file_range, fp)


def storage_of(fp: Seekable) -> Storage:
    """Return a file object, from its current position on, as a storage."""
    return concurrent_storage(fp) or FileObjectStorage(fp)


def whole_file(fp: Seekable) -> Storage:
    """Return a file object from byte 0 on as a storage."""
    fp.seek(0)
    return storage_of(fp)
