"""Reading bytes of a file without trusting any count that it states.

A `Cursor` reads forward and knows its position, counted from where the file
begins. A size is compared with what is left before memory is asked for; where
nobody knows what is left, as in a pipe, memory grows with the bytes that arrive.
`FileRange` reads and writes a regular file anywhere, from any thread.
"""

from __future__ import annotations

import io
import os

from ..exceptions import FormatError, StorageError, UsageError

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
