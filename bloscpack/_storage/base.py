"""The contract of a storage, and the two storages that need no file.

A `Storage` reads bytes at a position. Everything that reads at positions takes one:
`Reader`, verify, recover. A new place to read from is a new subclass in a module of
this folder.
"""

from __future__ import annotations

import io
import os
from _thread import allocate_lock

from ..exceptions import FormatError, StorageError, UsageError

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Path = str | os.PathLike[str]

    Buffer = bytes | bytearray | memoryview

# What is asked for at a time where the size of the file is not known.
PIECE = 2**20


class Storage:
    """Bytes at positions from 0 to ``size``, read by any thread.

    ``size`` is in bytes. ``identity`` is equal for two storages only if they hold the
    same bytes; None if nothing tells. A subclass sets ``size`` and defines `read_into`.
    """

    size: int = 0
    identity: object = None

    def read_into(self, view: memoryview, offset: int) -> int:
        """Fill `view` with the bytes from `offset` on.

        Return the number of bytes read: fewer than `view` holds only at the end.
        """
        raise NotImplementedError

    def read_at(self, offset: int, nbytes: int) -> bytes:
        """Return `nbytes` bytes from `offset` on, fewer at the end.

        Memory is allocated only for bytes that exist.
        """
        view = memoryview(bytearray(max(0, min(nbytes, self.size - offset))))
        return bytes(view[: self.read_into(view, offset)])


class MemoryStorage(Storage):
    """The bytes of a buffer."""

    def __init__(self, buffer: Any) -> None:
        self._view = as_bytes_view(buffer)
        self.size = self._view.nbytes

    def read_into(self, view: memoryview, offset: int) -> int:
        data = self._view[offset : offset + len(view)]
        view[: len(data)] = data
        return len(data)


class FileObjectStorage(Storage):
    """A file object that can seek, from its current position to its end.

    A lock lets one thread at a time move the position, which is not restored.
    """

    def __init__(self, fp: Any) -> None:
        self._fp = fp
        self._lock = allocate_lock()
        self._start = fp.tell()
        self.size = bytes_left(fp) or 0

    def read_into(self, view: memoryview, offset: int) -> int:
        with self._lock:
            self._fp.seek(self._start + offset)
            data = read_up_to(self._fp, len(view))
        view[: len(data)] = data
        return len(data)


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
