"""Local files: opened by name, read and written at any position by any thread.

A hole is an extent of a file that was never written: it is read as zeros and takes no
space. Here blocks of zero bytes are found, which a writer leaves out.
"""

from __future__ import annotations

import errno
import io
import os
import stat

from ..exceptions import StorageError, UsageTypeError
from .base import Closing, FileObjectStorage, Storage, StorageFile
from .descriptors import Descriptor, Reopenable, read_into
from .disk import disk

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, BinaryIO

    from .._types import Buffer, Seekable

# Size in bytes of the blocks that are left out: a smaller hole saves less time than its
# system calls take.
BLOCK = 64 * 2**10
# How a file is opened for reading.
FILE_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)


def begins_with(path: str, magic: bytes) -> bool:
    """Return whether a path is a regular file that begins with some bytes."""
    if not os.path.isfile(path):  # a pipe would block
        return False
    with open(path, "rb") as fp:
        return fp.read(len(magic)) == magic


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

    They neither use nor move the position of the file object. They raise ``ValueError``
    when it is closed: another file may have its descriptor then.
    """

    def __init__(self, raw: io.FileIO, fp: Any = None) -> None:
        self._raw = raw
        self._fp = fp  # kept, because it closes the file when it is deleted

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
        return FileRange(raw, fp)

    def read_into(self, view: memoryview, offset: int) -> int:
        """Fill `view` from `offset` on; return the bytes read, fewer at the end."""
        return read_into(self._raw.fileno(), view, offset, self._raw.name)

    def status(self) -> os.stat_result:
        """Return the present status of the file."""
        return os.fstat(self._raw.fileno())

    def size(self) -> int:
        """Return the length of the file in bytes."""
        return self.status().st_size

    def write(self, data: Buffer, offset: int) -> None:
        """Write all of `data` at `offset`."""
        view = memoryview(data)
        while view:
            count = os.pwrite(self._raw.fileno(), view, offset)
            view = view[count:]
            offset += count


class NamedFile(Reopenable, Closing):
    """A regular file, open for reading, that may be closed while nothing reads it.

    Only a file that still has its name is closed. It is opened again by this name; then
    another file that has got the name raises `StorageError`.
    """

    def __init__(self, name: str, file: Descriptor, status: os.stat_result) -> None:
        self.name = name
        self._path = os.path.abspath(name)
        self._identity = status.st_dev, status.st_ino
        self._held = file
        self._closed = False
        self.may_close()

    def _reopened(self) -> Descriptor:
        if self._closed:
            raise ValueError("read of closed file")
        file = Descriptor(os.open, self._path, FILE_FLAGS)
        status = os.fstat(file.fileno())
        if (status.st_dev, status.st_ino) != self._identity:
            raise StorageError(
                errno.ESTALE,
                "another file has got its name while it was closed, because the "
                "process had too many open files: open it again",
                self.name,
            )
        return file

    def _can_reopen(self) -> bool:
        try:
            status = os.stat(self._path)
        except OSError:
            return False
        is_same = (status.st_dev, status.st_ino) == self._identity
        return is_same and os.access(self._path, os.R_OK)

    def status(self) -> os.stat_result:
        """Return the present status of the file."""
        file: Descriptor = self.hold()
        return os.fstat(file.fileno())

    def read_into(self, view: memoryview, offset: int) -> int:
        """Fill `view` from `offset` on; return the bytes read, fewer at the end."""
        file: Descriptor = self.hold()
        return read_into(file.fileno(), view, offset, self.name)

    def close(self) -> None:
        """Close the file. It can't be read any more."""
        self._closed = True
        super().close()


def open_named(name: str) -> NamedFile | BinaryIO:
    """Open a file for reading: a file object, unless it can be read by offset."""
    if not hasattr(os, "preadv"):
        return disk.open(name, "rb")
    file = Descriptor(os.open, name, FILE_FLAGS)
    status = os.fstat(file.fileno())
    if stat.S_ISREG(status.st_mode):
        return NamedFile(name, file, status)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    return open(os.dup(file.fileno()), "rb")  # a device


class LocalStorage(Storage):
    """A regular file from the position `start` to its end.

    It is closed when nothing refers to it any more, and not to `file`.
    """

    def __init__(self, file: FileRange | NamedFile, start: int = 0) -> None:
        self._file = file
        self._start = start
        status = file.status()
        self.size = max(0, status.st_size - self._start)
        self.version = status.st_size, status.st_mtime_ns, self._start
        self.identity = status.st_dev, status.st_ino, *self.version

    def read_into(self, view: memoryview, offset: int) -> int:
        return self._file.read_into(view, self._start + offset)


def storage_of(fp: Seekable) -> Storage:
    """Return a file object, from its current position on, as a storage.

    Only the thread of the caller reads file objects that Bloscpack does not know, and
    all file objects on systems without ``preadv``.
    """
    if type(fp) is io.BufferedReader and isinstance(fp.raw, StorageFile):
        storage = fp.raw.storage
        if storage.concurrent and fp.tell() == 0:
            return storage
    elif (file_range := FileRange.over(fp)) is not None:
        return LocalStorage(file_range, fp.tell())
    return FileObjectStorage(fp)


def whole_file(fp: Seekable | NamedFile) -> Storage:
    """Return a file, or a file object from byte 0 on, as a storage."""
    if isinstance(fp, NamedFile):
        return LocalStorage(fp)
    try:
        fp.seek(0)
    except io.UnsupportedOperation as error:
        raise UsageTypeError(
            "expected a file object that can seek, found one that can't, as of a pipe: "
            "save its content in a file first"
        ) from error
    return storage_of(fp)


# Holes: blocks of zeros are left out


def spans_of_data(plain: Buffer, offset: int) -> Iterator[tuple[int, int]]:
    """Yield the spans of `plain` outside of blocks of zeros.

    `plain` begins at the file offset, and the blocks are those of the file; a part of a
    block at either end counts as one, whose zeros may continue in another chunk.
    """
    # Blosc has imported NumPy, which reads memory faster than it can be written.
    import numpy

    view = memoryview(plain).cast("B")
    first = start = 0
    while start < len(view):
        stop = min(len(view), start + BLOCK - (offset + start) % BLOCK)
        block = view[start:stop]
        if not (block[0] or block[-1] or numpy.frombuffer(block, "u1").any()):
            if first < start:
                yield first, start
            first = stop
        start = stop
    if first < len(view):
        yield first, len(view)
