"""Local files: opened by name, and read and written at any position by any thread."""

from __future__ import annotations

import io
import os
import stat

from .base import FileObjectStorage, Storage, bytes_left, named
from .disk import disk

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from typing import Any

    Path = str | os.PathLike[str]

    Buffer = bytes | bytearray | memoryview


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


class LocalStorage(Storage):
    """A regular file from the current position of its file object to its end."""

    def __init__(self, file_range: FileRange, fp: Any) -> None:
        self._range = file_range
        self._start = fp.tell()
        self.size = bytes_left(fp) or 0
        status = os.fstat(fp.fileno())
        self.identity = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns

    def read_into(self, view: memoryview, offset: int) -> int:
        return self._range.read_into(view, self._start + offset)


def storage_of(fp: Any) -> Storage:
    """Return the bytes of a file object, from its current position on, as a storage."""
    file_range = FileRange.over(fp)
    if file_range is None:
        return FileObjectStorage(fp)
    return LocalStorage(file_range, fp)
