"""The contract of a storage: bytes that are read at any position.

Strategy: code that reads at positions (`Reader`, verify, recover, the sources over
files, undo records) takes a `Storage` and never seeks. Code that reads forward takes a
file object; `StorageFile` is one over any storage.

A new kind of storage is one new module in this folder, with one subclass of
`Storage` that

- sets ``size``, in bytes, before the first read;
- defines `Storage.read_into`, which fills a buffer from an offset and raises `OSError`
  or `StorageError` if the storage can't be read;
- sets ``identity`` if the storage reports a version of its content, like an ETag;
- sets ``is_remote`` and defines `Storage.read_many` if each read is a round trip;
- sets ``concurrent`` to False if only one thread may read, or if parallel reads are of
  no use.

Its tests are one more entry in the table of ``tests/storage/test_storage.py``.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from functools import partial, wraps

from .._engine.contexts import errors_to
from ..constants import BLOSCPACK_HEADER_LENGTH
from ..exceptions import FormatError, StorageError, UsageError, UsageTypeError
from .paths import shown_name

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence
    from typing import Any, BinaryIO, TypeVar

    from .._types import Buffer, Path, Readable, Seekable, Writable
    from .local import NamedFile

    Self = TypeVar("Self", bound="Closing")
    Function = TypeVar("Function", bound=Callable[..., Any])
    # The size of a file, the time of its last change, and its first bytes.
    Status = tuple[int, int, bytes]

# Errors of files that have no end to seek to: pipes, and files that the system
# generates while they are read. `io.UnsupportedOperation` has no number.
NO_SEEK = (errno.ESPIPE, errno.EINVAL, None)
# Number of bytes read at a time where the size of the input is unknown, and where an
# extent may be larger than memory.
READ_SIZE = 2**20
# Number of blocks that one call of the system writes; Linux takes at most 1024.
BLOCKS_AT_A_TIME = 512


class Closing:
    """What is closed at the end of a ``with`` block."""

    def close(self) -> None:
        """Release what is open."""

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Storage(Closing):
    """Bytes at the positions from 0 to ``size``.

    Attributes
    ----------
    size
        Number of bytes when the storage was made.
    identity
        A value that differs for two storages if their bytes differ; None if the storage
        reports no version of its content.
    version
        The part of `identity` that is the same on each machine.
    concurrent
        Whether worker threads may read. If False, the threads that call `ordered`
        read, one at a time.
    is_remote
        Whether each read is a round trip to another machine, so that a few more bytes
        cost less than another read.
    """

    size: int = 0
    identity: Hashable = None
    version: Hashable = None
    concurrent: bool = True
    is_remote: bool = False

    def read_into(self, view: memoryview, offset: int) -> int:
        """Fill `view` with the bytes from `offset` on; return the number of bytes read.

        It is smaller than the length of `view` only where the content ends; it is 0 at
        the end and beyond. The rest of `view` may hold any value.
        """
        raise NotImplementedError

    def read_at(self, offset: int, nbytes: int) -> bytes:
        """Return `nbytes` bytes from `offset` on, fewer where the content ends.

        Memory is allocated only for bytes that exist, so `nbytes` may be a count from a
        file that has not been checked. Raises `ValueError` for a negative offset.
        """
        if offset < 0:
            raise ValueError("the offset %d is negative" % offset)
        nbytes = min(nbytes, self.size - offset)
        if nbytes <= 0:
            return b""
        view = memoryview(bytearray(nbytes))
        return bytes(view[: self.read_into(view, offset)])

    def read_many(self, extents: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of each extent (start, stop), fewer where the content ends.

        A storage that is ``is_remote`` requests them all at once.
        """
        return [self.read_at(start, stop - start) for start, stop in extents]

    def may_close(self) -> None:
        """Let a file be closed while nothing reads it, if the process has too many.

        It is opened again then, or raises `StorageError` with ``EAGAIN`` if another
        file has its name.
        """

    def drop_kept(self) -> None:
        """Drop bytes that were read before they were needed, unless they are few."""

    def close(self) -> None:
        """Release what the storage has opened; a file object of a caller stays open."""

    def read_blocks(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield the bytes from `start` to `stop` in blocks of at most `READ_SIZE`."""
        for position in range(start, stop, READ_SIZE):
            yield self.read_at(position, min(READ_SIZE, stop - position))


class MemoryStorage(Storage):
    """The bytes of a buffer."""

    def __init__(self, buffer: Buffer) -> None:
        self._view = as_bytes_view(buffer)
        self.size = self._view.nbytes

    def read_into(self, view: memoryview, offset: int) -> int:
        data = self._view[offset : offset + len(view)]
        view[: len(data)] = data
        return len(data)


class FileObjectStorage(Storage):
    """A file object that can seek, from its current position to its end.

    Reading moves the position of the file object. A lock keeps the threads that share
    this storage apart, but not those that use the file object directly: therefore it
    is not ``concurrent``.
    """

    concurrent = False

    def __init__(self, fp: Seekable) -> None:
        from .._engine.forks import ForkSafeLock

        self._fp = fp
        self._lock = ForkSafeLock()
        self._start = fp.tell()
        fp.seek(0, os.SEEK_END)
        self.size = max(0, fp.tell() - self._start)
        fp.seek(self._start)

    def read_into(self, view: memoryview, offset: int) -> int:
        if not view:
            return 0
        with self._lock.current:
            self._fp.seek(self._start + offset)
            data = read_up_to(self._fp, len(view))
        view[: len(data)] = data
        return len(data)


class PartStorage(Storage):
    """The bytes [start, stop) of another storage; closing it closes nothing.

    `owner` is an object that must live as long as the part is used. `head` has the
    first bytes, which are not read again.
    """

    def __init__(
        self,
        storage: Storage,
        start: int,
        stop: int,
        owner: object = None,
        head: bytes = b"",
    ) -> None:
        self._storage = storage
        self._head = head
        self._start = start
        self._owner = owner
        self.size = max(0, stop - start)
        self.concurrent, self.is_remote = storage.concurrent, storage.is_remote
        if storage.identity is not None:
            self.identity = (storage.identity, start, stop)
        if storage.version is not None:
            self.version = (storage.version, start, stop)

    def read_into(self, view: memoryview, offset: int) -> int:
        view = view[: max(0, self.size - offset)]
        if self._head and offset + len(view) <= len(self._head):
            view[:] = self._head[offset : offset + len(view)]
            return len(view)
        return self._storage.read_into(view, self._start + offset)

    def read_many(self, extents: Sequence[tuple[int, int]]) -> list[bytes]:
        start, size, head = self._start, self.size, self._head
        spans = [(start + min(a, size), start + min(b, size)) for a, b in extents]
        known = start + len(head)
        parts = iter(self._storage.read_many([s for s in spans if s[1] > known]))
        return [
            next(parts) if b > known else head[a - start : b - start] for a, b in spans
        ]


class RawReader(io.RawIOBase):
    """A raw file object for reading; `io.BufferedReader` buffers it."""

    can_seek = False

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return whether it has other positions."""
        return self.can_seek


class StorageFile(RawReader):
    """A raw file object that reads a storage."""

    can_seek = True

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._position = 0

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to another position, in bytes, and return it."""
        bases = {os.SEEK_CUR: self._position, os.SEEK_END: self.storage.size}
        self._position = offset + bases.get(whence, 0)
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer` from the position on; return the number of bytes read."""
        left = max(0, self.storage.size - self._position)
        view = memoryview(buffer).cast("B")[:left]
        count = self.storage.read_into(view, self._position)
        self._position += count
        return count


def naming_errors(path: Path | None) -> errors_to:
    """Add the name of a file to `FormatError` and `UsageError` about that file.

    An error that already names a file keeps that name. None for a file without a name.
    """
    return errors_to(partial(add_filename, path))


def add_filename(path: Path | None, error: Exception) -> None:
    """Add the name of a file to an error as `naming_errors` does."""
    # An error about an argument of the call is no RuntimeError: the file has no part in
    # it.
    if path is None or not isinstance(error, (FormatError, RuntimeError)):
        return
    if isinstance(error, (FormatError, UsageError)):
        error.filename = error.filename or shown_name(path)


# File objects and buffers


def refuse_text(file: object) -> None:
    """Raise `UsageTypeError` for a file object of text."""
    if isinstance(file, io.TextIOBase):
        raise UsageTypeError(
            "expected a binary file object, found one of text: %r" % (file,)
        )


def bytes_left(fp: Seekable) -> int | None:
    """Return the bytes between the position of `fp` and its end; None if unknown.

    The position does not change. Raises `OSError` if the file can seek, but the system
    fails: `fp` might be at its end then, and would look like an empty pipe.
    """
    try:
        if not fp.seekable():
            return None
        position: int = fp.tell()
        fp.seek(0, os.SEEK_END)
    except AttributeError:
        return None
    except OSError as error:
        if error.errno in NO_SEEK:
            return None
        raise
    end: int = fp.tell()
    fp.seek(position)
    return max(0, end - position)


def status_of(
    fp: BinaryIO | NamedFile, nbytes: int = BLOSCPACK_HEADER_LENGTH
) -> Status | None:
    """Return values that change when an open file changes; None for no regular file.

    They are its size, the time of its last change, and its first bytes, without those
    where the system can't read past the buffer of the file object. The clock of a file
    system may be too coarse to tell two steps of a change apart. The header does: its
    bit is set between them.
    """
    held = fp.hold() if hasattr(fp, "hold") else fp  # keeps the descriptor open
    number = held.fileno()
    status = os.fstat(number)
    if not stat.S_ISREG(status.st_mode):
        return None
    head = os.pread(number, nbytes, 0) if hasattr(os, "pread") else b""
    return status.st_size, status.st_mtime_ns, head


def read_up_to(fp: Readable, size: int) -> bytes:
    """Return `size` bytes of a file object, fewer only at its end."""
    read: Callable[[int], bytes | None] = fp.read
    if (
        type(fp) is io.BufferedReader
        and type(fp.raw) is io.FileIO
        and os.get_blocking(fp.fileno())
    ):
        # One call of the system: Python handles Ctrl-C between two of them, and `read`
        # on a pipe would make calls until it has all bytes.
        read = fp.read1
    parts = []
    missing = size
    while missing:
        data = read(missing)
        if data is None:
            raise StorageError(
                "the input is non-blocking and has no data; expected a blocking file"
            )
        if not data:
            break
        parts.append(data)
        missing -= len(data)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def write_all(fp: Writable, data: Buffer) -> None:
    """Write all of `data`: raw files and pipes may take only part of it at a time."""
    written = fp.write(data)
    if written is None and isinstance(fp, io.RawIOBase):
        raise StorageError(
            "the output is non-blocking and is full; expected a blocking file"
        )
    if written is None or written >= len(data):
        return
    rest = memoryview(data)
    while rest := rest[written:]:
        written = fp.write(rest)
        if not written:
            raise StorageError("the output takes no more data")


def write_blocks(fp: BinaryIO, blocks: Sequence[bytes], position: int) -> None:
    """Write blocks one after the other to a file, from a position in it.

    The file object must have nothing in its buffer. Its own position is undefined then.
    """
    for first in range(0, len(blocks), BLOCKS_AT_A_TIME):
        part = blocks[first : first + BLOCKS_AT_A_TIME]
        size, done = sum(map(len, part)), 0
        if hasattr(os, "pwritev"):
            done = os.pwritev(fp.fileno(), part, position)
        if done < size:  # the disk may be full: the rest raises the error
            fp.seek(position + done)
            write_all(fp, memoryview(b"".join(part))[done:])
            fp.flush()
        position += size


def releasing_views(function: Function) -> Function:
    """Let a function, whose first argument may be a buffer, release it by an error."""

    @wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        try:
            return function(*args, **keywords)
        except Exception as error:
            if not isinstance(args[0] if args else None, (str, bytes)):
                release_views(error)
            raise

    return call  # type: ignore[return-value]


def release_views(error: BaseException | None) -> None:
    """Clear the frames of the calls that an error and its causes have ended.

    An `mmap` can't be closed as long as a view of it is in one of them.
    """
    import traceback

    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def as_bytes_view(buffer: Any) -> memoryview:
    """Return the bytes of any buffer as a flat view.

    They are copied only if the buffer is not contiguous. Raises `TypeError` for an
    object that is no buffer.
    """
    view = memoryview(buffer)
    if view.nbytes == 0:
        return memoryview(b"")
    if not view.c_contiguous:
        view = memoryview(view.tobytes())
    return view.cast("B")
