"""Remote files: URLs as a `Storage`, through fsspec.

Strategy: a `RemoteFile` makes single requests; this module repeats those that failed
for a time, limits how many run at once, and names the URL in every error without its
credentials. The first 64 KiB are read when the storage is made, and kept: header,
metadata and offset table usually need no further request; or the end with the index of
a shard. fsspec is imported when the first URL is opened.
"""

from __future__ import annotations

import errno
import io
import os
from _thread import allocate_lock
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, aclosing, contextmanager, suppress
from typing import BinaryIO, TypeVar

from .._engine.contexts import on_error
from .._engine.forks import ForkSafeLock
from .._engine.threads import in_thread
from .._types import StorageOptions
from ..args import AnyLimits, effective_limits
from ..constants import BLOSCPACK_HEADER_LENGTH, MAX_DOCUMENT
from ..exceptions import BloscpackError, FormatError, StorageError
from ..headers import decode_header
from ..log import counted
from .base import Storage, StorageFile, naming_errors
from .file_systems import IgnoresRanges, Location
from .http_session import MAX_SIZE, MAX_UNANNOUNCED
from .local import storage_of
from .remote_files import HEAD_SIZE, remote_file_for

Result = TypeVar("Result")

# Maximum number of times that a request is made.
ATTEMPTS = 5
# Seconds before a request is made for the second time; the time doubles each time.
FIRST_DELAY = 0.25
# Seconds after the first attempt after which a request is not repeated.
RETRY_SECONDS = 120.0
# Maximum number of requests of one read that run at once.
MAX_REQUESTS = 32
# Size in bytes up to which a file that must be read whole is kept in memory.
MAX_IN_MEMORY = 16 * 2**20
# Maximum number of bytes of a chunk besides its plain bytes: its header, its digest,
# its offset with ten free ones, and its entry in the index of a shard.
MAX_BESIDE_CHUNK = 16 + 64 + 11 * 8 + 16
TOO_LARGE = (
    "the server sends more than '%d' bytes, and has not told how many it sends; "
    "limits of the call, such as limits={'nbytes': 10**11}, allow more"
)
# Size in bytes of the blocks that are read ahead, and how many are read at once.
AHEAD_SIZE = 2 * 2**20
AHEAD_COUNT = 4


class RemoteStorage(Storage):
    """The file at a URL, which must not change while it is read.

    Parameters
    ----------
    url
        The URL, or a chain of URLs of fsspec.
    storage_options
        Settings for fsspec, such as keys.
    whole
        Whether to read the whole file at once, in one request. False: only parts.
        None: the whole file if the server can't send parts.
    limits
        The limits of the call on the file, which also limit a file that is read whole.
    most
        The number of bytes after which a file that is read whole is cut off.
    end
        The number of bytes to keep at the end of the file, if they are read first.

    Raises
    ------
    UsageError
        fsspec, or the package that it needs for the URL, is not installed.
    StorageError
        The file can't be read. It is a `FileNotFoundError` if there is none.
    """

    is_remote = True

    def __init__(
        self,
        url: str,
        *,
        storage_options: StorageOptions | None = None,
        whole: bool | None = False,
        limits: AnyLimits | None = None,
        most: int | None = None,
        end: int = 0,
    ) -> None:
        # What is closed with the storage: a spool, an open file.
        self._opened = ExitStack()
        self._most = MAX_SIZE if most is None else most
        self._limits = effective_limits(limits)
        self._location = Location(url, storage_options)
        self.name = self._location.name
        # The whole file, if it was read at once.
        self._whole: Storage | None = None
        fs, path = self._location.find()
        self._file = remote_file_for(fs, path, self._location)
        self._pid = os.getpid()
        self._connecting = ForkSafeLock()
        with on_error(self.close):
            # The offset of the bytes that are kept, and these.
            self._kept = self._open(whole, end)
        self.size = self._file.size
        if version := self._file.version:
            self.identity = self.version = (self.name, self.size, *version)

    def _open(self, whole: bool | None, end: int) -> tuple[int, bytes]:
        """Return the first bytes of a file of which parts are read, and their offset.

        Return the last ones with `end`, if the server knows such a request.
        """
        if end and not whole:
            try:
                return self._wait(lambda: self._file.open(end))
            except StorageError as error:
                # The server may not know the end of a file, or fail for a time.
                if error.errno in (errno.ENOENT, errno.EACCES):
                    raise
        if not whole:
            try:
                return self._wait(lambda: self._repeat(self._file.open))
            except IgnoresRanges:
                if whole is not None:
                    raise
        return self._wait(lambda: self._repeat(self._read_whole))

    # Requests

    def _reconnect(self) -> None:
        """Connect a child process, which has not the connections of its parent.

        The file must still have the size and the version that the parent has seen.
        """
        with self._connecting.current:
            if self._pid != os.getpid():  # no other thread was faster
                file = remote_file_for(*self._location.find(), self._location)
                file.expect(self._file)
                self._file, self._pid = file, os.getpid()

    def _wait(self, request: Callable[[], Coroutine[object, object, Result]]) -> Result:
        """Return the result of a coroutine that runs in the thread of fsspec."""
        if self._pid != os.getpid():
            self._reconnect()
        from fsspec.asyn import get_loop, sync

        with self._location.translating():
            result: Result = in_thread(lambda: sync(get_loop(), request))()
            return result

    async def _repeat(self, request: Callable[[], Awaitable[Result]]) -> Result:
        """Return the result of a request; make it again if it failed for a time."""
        import asyncio
        from time import monotonic

        begin, delay = monotonic(), FIRST_DELAY
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return await request()
            except BloscpackError:
                raise
            except Exception as error:
                text = self._location.temporary(error)
                if text is None:
                    raise
            late = monotonic() - begin + delay > RETRY_SECONDS
            if attempt == ATTEMPTS or late:
                break
            await asyncio.sleep(delay)
            delay *= 2
        raise self._location.error(
            errno.EIO, "%s (tried %s)" % (text, counted(attempt, "time"))
        )

    async def _read_whole(self) -> tuple[int, bytes]:
        """Copy the file to a spool, in memory or in a temporary file."""
        import tempfile

        await self._file.find()
        with ExitStack() as failing:
            spool = failing.enter_context(tempfile.SpooledTemporaryFile(MAX_IN_MEMORY))
            head, bound = b"", MAX_UNANNOUNCED
            async with aclosing(self._file.blocks()) as blocks:
                async for block in blocks:
                    if len(head) < BLOSCPACK_HEADER_LENGTH:
                        head += block[:BLOSCPACK_HEADER_LENGTH]
                        bound = self._largest(head)
                    spool.write(block)
                    if spool.tell() >= self._most:
                        spool.truncate(self._most)
                        break
                    if spool.tell() > bound:
                        raise self._location.error(errno.EFBIG, TOO_LARGE % bound)
            self._opened.push(failing.pop_all())
        is_in_memory = spool.tell() <= MAX_IN_MEMORY
        spool.seek(0)
        # Read it at positions: processes share the position of a file object.
        file = spool if is_in_memory else io.FileIO(spool.fileno(), closefd=False)
        self._whole = storage_of(file)
        self._file.size = self._whole.size
        return 0, b""

    def _largest(self, head: bytes) -> int:
        """Return the maximum size of a file that is read whole, from its first bytes.

        Raises `FormatError` if the header exceeds the limits.
        """
        limits = self._limits
        if limits is None or limits.nbytes is None:
            return MAX_UNANNOUNCED if self._file.size < 0 else self._file.size
        try:
            header = decode_header(head)
        except FormatError:  # a reader says so
            return MAX_DOCUMENT
        limits.check_nbytes(header.nbytes or 0)
        count = header.nchunks
        if count == -1:
            count = limits.nbytes // max(header.chunk_size, 1) + 1
        # A shard has its last chunk twice.
        return MAX_DOCUMENT + 2 * limits.nbytes + count * MAX_BESIDE_CHUNK

    # Reading

    def read_into(self, view: memoryview, offset: int) -> int:
        view = view[: max(0, self.size - offset)]
        if view:
            view[:] = self.read_many([(offset, offset + len(view))])[0]
        return len(view)

    def read_at(self, offset: int, nbytes: int) -> bytes:
        if offset < 0:
            raise ValueError("the offset %d is negative" % offset)
        return self.read_many([(offset, offset + max(nbytes, 0))])[0]

    def read_many(self, extents: Sequence[tuple[int, int]]) -> list[bytes]:
        spans = [(start, min(stop, self.size)) for start, stop in extents]
        if self._whole is not None:
            return self._whole.read_many(spans)
        cuts = [self._cut(*span) for span in spans]
        wanted = [span for _, span, _ in cuts if span[0] < span[1]]
        fetched = iter(self._wait(lambda: self._fetch_all(wanted)) if wanted else ())
        return [
            head + (next(fetched) if start < stop else b"") + tail
            for head, (start, stop), tail in cuts
        ]

    def _cut(self, start: int, stop: int) -> tuple[bytes, tuple[int, int], bytes]:
        """Return the bytes of an extent that are kept, around what is missing.

        The extent of the missing bytes may be empty.
        """
        at, data = self._kept
        end = at + len(data)
        if at <= start < min(end, stop):
            return data[start - at : stop - at], (end, stop), b""
        if start < at < stop <= end:
            return b"", (start, at), data[: stop - at]
        return b"", (start, stop), b""

    def drop_kept(self) -> None:
        if len(self._kept[1]) > HEAD_SIZE:
            self._kept = 0, b""

    async def _fetch_all(self, spans: list[tuple[int, int]]) -> list[bytes]:
        import asyncio

        free = asyncio.Semaphore(MAX_REQUESTS)

        async def fetch(start: int, stop: int) -> bytes:
            async with free:
                return await self._repeat(lambda: self._file.fetch(start, stop))

        tasks = [asyncio.ensure_future(fetch(*span)) for span in spans]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:  # after an error the others are of no use
                task.cancel()

    def close(self) -> None:
        """Release what is open; the connections stay with fsspec."""
        self._file.close()
        self._opened.close()

    def __del__(self) -> None:
        with suppress(AttributeError):  # `__init__` has failed
            self.close()


class ReadAhead(Storage):
    """Another storage, read forward in blocks, of which several are fetched at once."""

    concurrent = False

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._lock = allocate_lock()
        self._blocks: dict[int, bytes] = {}
        self.size = storage.size
        self.identity = storage.identity

    def read_into(self, view: memoryview, offset: int) -> int:
        view = view[: max(0, self.size - offset)]
        done = 0
        while done < len(view):
            number, begin = divmod(offset + done, AHEAD_SIZE)
            data = self._block(number)[begin : begin + len(view) - done]
            view[done : done + len(data)] = data
            done += len(data)
        return len(view)

    def _block(self, number: int) -> bytes:
        with self._lock:
            if number not in self._blocks:
                forward = number - 1 in self._blocks or number == 0
                self._fetch(number, AHEAD_COUNT if forward else 1)
            return self._blocks[number]

    def _fetch(self, first: int, count: int) -> None:
        last = -(-self.size // AHEAD_SIZE)
        numbers = [
            number
            for number in range(first, min(first + count, last))
            if number not in self._blocks
        ]
        extents = [(n * AHEAD_SIZE, (n + 1) * AHEAD_SIZE) for n in numbers]
        for number, data in zip(numbers, self._storage.read_many(extents), strict=True):
            self._blocks[number] = data
        # The oldest blocks go first; those in front of them may be read once more.
        for number in list(self._blocks)[: -3 * AHEAD_COUNT]:
            del self._blocks[number]


@contextmanager
def opened_remote(
    url: str,
    *,
    parts: bool = False,
    storage_options: StorageOptions | None = None,
    limits: AnyLimits | None = None,
) -> Iterator[BinaryIO]:
    """Open the file at a URL as a file object; errors about it get its name.

    With `parts` only some bytes are going to be read. Otherwise the file is read
    forward, in large blocks, or in one request if the server can't send parts.
    """
    whole = False if parts else None
    with (
        naming_errors(url),
        RemoteStorage(
            url, storage_options=storage_options, whole=whole, limits=limits
        ) as storage,
    ):
        inner = storage if parts else ReadAhead(storage)
        with io.BufferedReader(StorageFile(inner)) as fp:
            yield fp
