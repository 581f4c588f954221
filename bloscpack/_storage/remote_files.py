"""The requests that read a remote file: by HTTP, from S3, and through fsspec.

Strategy: a `RemoteFile` makes one request per call and judges the response: its status,
its range, its length and the version of the file in it. It raises `Temporary` for
failures that may pass, which `RemoteStorage` repeats, and `StorageError` for others.
All methods that make requests are coroutines and run in the thread of fsspec.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ..exceptions import StorageError
from .base import read_up_to
from .file_systems import (
    NO_FILE,
    NO_RANGES,
    IgnoresRanges,
    Location,
    NotFound,
    Temporary,
    answered,
    class_names,
    is_s3,
    status_of,
)
from .http_session import (
    MAX_SIZE,
    MIN_SPEED,
    REQUEST_SECONDS,
    STALL_SECONDS,
    TooLong,
    size_in,
)

if TYPE_CHECKING:
    import aiohttp
    from fsspec import AbstractFileSystem

Result = TypeVar("Result")

# Number of bytes at the start or the end of a file that the first request reads.
HEAD_SIZE = 64 * 2**10
# Size in bytes of the blocks in which a whole file is read.
BLOCK_SIZE = 4 * 2**20
# Fields of `fs.info` that change with the content, by the names that the file systems
# of fsspec use.
VERSION_FIELDS = (
    *("ETag", "etag", "VersionId", "version_id", "generation", "Content-MD5", "md5"),
    *("md5Hash", "content_md5", "checksum", "CRC", "LastModified", "Last-Modified"),
    *("last_modified", "mtime", "updated", "modified", "created", "ino"),
)
KEEP_CONTENT = {
    "fsspec.implementations.cached.CachingFileSystem",
    "fsspec.archive.AbstractArchiveFileSystem",
}


class NoSize(StorageError):
    """A response does not tell the size of a file, which a HEAD request may tell."""


class RemoteFile:
    """A file in a file system of fsspec whose methods are coroutines.

    Parameters
    ----------
    fs, path
        What fsspec returns for the URL.
    location
        Makes the errors.

    Attributes
    ----------
    size
        The size of the file in bytes; -1 if the server has not told it.
    version
        What the server tells about the content: empty if nothing.
    size_with_part
        Whether the server tells the size with a part of a file. Then `fetch` takes a
        `start` below zero and a `stop` of 0 for the last bytes of a file whose size is
        unknown.
    """

    size_with_part = False
    _etag = ""
    _modified = ""

    def __init__(self, fs: AbstractFileSystem, path: str, location: Location) -> None:
        self.fs = fs
        self.path = path
        self._fail = location.error
        self.size = 0
        self.version: tuple[str, ...] = ()
        # A cache or an archive keeps the content that it had when it was opened.
        self._compares = not class_names(fs) & KEEP_CONTENT

    def expect(self, other: RemoteFile) -> None:
        """Expect the size and the version that another process has found."""
        self.size, self.version = other.size, other.version
        self._etag, self._modified = other._etag, other._modified

    async def find(self) -> None:
        """Ask for size and version; later requests expect the same."""
        self.size, self.version = await self._probe()

    async def open(self, end: int = 0) -> tuple[int, bytes]:
        """Learn size and version; return the first bytes, and their offset.

        With `end`, they are as many bytes at the end. A single request tells all if the
        server tells the size with a part of a file.
        """
        if self.size_with_part:
            self.size, self._etag, self._modified = -1, "", ""
            try:
                data = await self.fetch(-end, 0 if end else HEAD_SIZE)
                return self.size - len(data) if end else 0, data
            except (NoSize, IgnoresRanges):
                if self.size >= 0:
                    raise
                await self.find()
                if self.size < 0:  # the same request would get the same response
                    raise
        else:
            await self.find()
        start = max(0, self.size - end) if end else 0
        stop = start + (end or HEAD_SIZE)
        stop = stop if self.size < 0 else min(stop, self.size)
        return start, await self.fetch(start, stop) if start < stop else b""

    async def fetch(self, start: int, stop: int) -> bytes:
        """Return the bytes of the extent, which lies inside the file."""
        data: bytes = await self._read(start, stop)
        compares = self._compares and self.version
        if compares and (self.size, self.version) != await self._probe():
            raise self._changed()
        self._check_length(len(data), stop - start)
        return data

    async def blocks(self) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of the whole file."""
        for start in range(0, self.size, BLOCK_SIZE):
            yield await self.fetch(start, min(start + BLOCK_SIZE, self.size))

    async def _probe(self) -> tuple[int, tuple[str, ...]]:
        """Return the present size and version of the file."""
        parent = getattr(self.fs, "_parent", None)
        with suppress(Exception):  # a cache that can't be emptied is not an error
            self.fs.invalidate_cache(parent(self.path) if parent else None)
        info = await self._info()
        if info.get("type") == "directory":
            raise self._fail(errno.EISDIR, os.strerror(errno.EISDIR))
        if not isinstance(info.get("size"), int):
            raise self._fail(errno.EIO, "the server does not tell the size of the file")
        return info["size"], version_in(info)

    def _extent(self, start: int, stop: int) -> tuple[int, int]:
        """Return an extent of `fetch` in the file, of which the size is known now."""
        stop = min(stop, self.size) if stop else self.size
        return max(0, self.size + start) if start < 0 else start, stop

    async def _info(self) -> Mapping[str, Any]:
        info: Mapping[str, Any] = await self.fs._info(self.path)
        return info

    async def _read(self, start: int, stop: int) -> bytes:
        return bytes(await self.fs._cat_file(self.path, start=start, end=stop))

    # Errors

    def _check_length(self, found: int, expected: int) -> None:
        if found > expected:
            raise self._ignores_ranges()
        if found < expected:
            raise Temporary(
                "the response is too short: expected '%d' bytes, found '%d'"
                % (expected, found)
            )

    def _changed(self) -> StorageError:
        return self._fail(errno.EAGAIN, "the file was changed while it was read")

    def _ignores_ranges(self) -> StorageError:
        return self._fail(errno.ENOTSUP, NO_RANGES, IgnoresRanges)

    def close(self) -> None:
        """Release what is open."""


def version_in(info: Mapping[str, object]) -> tuple[str, ...]:
    """Return what a description of a file tells about its content."""
    fields = [(name, info.get(name)) for name in VERSION_FIELDS]
    return tuple("%s=%s" % field for field in fields if field[1])


class FsspecFile(RemoteFile):
    """A file in a file system whose methods block.

    A thread makes the calls: they may use the thread of fsspec, like those of an
    archive on a server. Unless the file system reads parts itself, the file is opened
    once: opening it may mean to read it from the start.
    """

    _fp: Any = None

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._lock = threading.Lock()

    async def _info(self) -> Mapping[str, Any]:
        return await self._let_wait(self.fs.info, self.path)

    async def _read(self, start: int, stop: int) -> bytes:
        return await self._let_wait(self._read_now, start, stop)

    @staticmethod
    async def _let_wait(function: Callable[..., Result], *arguments: Any) -> Result:
        """Return the result of a function, for which the thread of fsspec is free."""
        call = partial(function, *arguments)
        try:
            result = asyncio.get_running_loop().run_in_executor(None, call)
        except RuntimeError:  # at the end of Python no thread starts
            return call()
        return await result

    def _read_now(self, start: int, stop: int) -> bytes:
        from fsspec.spec import AbstractFileSystem

        if self._compares and type(self.fs).cat_file is not AbstractFileSystem.cat_file:
            return bytes(self.fs.cat_file(self.path, start=start, end=stop))
        with self._lock:
            if self._fp is None:
                self._fp = self.fs.open(self.path, "rb")
            self._fp.seek(start)
            return read_up_to(self._fp, stop - start)

    def close(self) -> None:
        if self._fp is not None:
            self._fp.close()


class HttpFile(RemoteFile):
    """A file on a web server. Every response is judged by its headers."""

    size_with_part = True

    async def _probe(self) -> tuple[int, tuple[str, ...]]:
        """Make a HEAD request; a size of -1 means that the server does not tell it."""
        async with await self._send("head", {}) as response:
            if response.status in NO_FILE or response.status >= 500:
                self._judge_status(response)
            if response.status != 200:  # as for an address signed for GET alone
                return -1, ()
            plain = response.headers.get("Content-Encoding", "identity") == "identity"
            size = response.headers.get("Content-Length", "") if plain else ""
            return size_in(size), self._note_version(response.headers)

    def _note_version(self, headers: Mapping[str, str]) -> tuple[str, ...]:
        """Keep the version in the headers of a response, and return it."""
        self._etag = headers.get("ETag", "")
        self._modified = headers.get("Last-Modified", "")
        return tuple(filter(None, (self._etag, self._modified)))

    async def fetch(self, start: int, stop: int) -> bytes:
        range_ = {"Range": _range(start, stop)}
        async with await self._send("get", range_, stop - start) as response:
            self._judge_status(response)
            start, stop = self._judge_range(response, start, stop)
            self._judge_version(response.headers)
            try:
                data: bytes = await response.content.read()
            except TooLong:
                raise self._ignores_ranges() from None
        self._check_length(len(data), stop - start)
        return data

    async def blocks(self) -> AsyncGenerator[bytes, None]:
        bound = self.size if self.size >= 0 else MAX_SIZE
        async with await self._send("get", {}, bound) as response:
            self._judge_status(response)
            self._judge_version(response.headers)
            if self.size < 0:
                self.size = size_in(response.headers.get("Content-Length", ""))
            count = 0
            try:
                async for block in response.content.iter_chunked(BLOCK_SIZE):
                    count += len(block)
                    yield block
            except TooLong:
                raise self._changed() from None
        self._check_length(count, count if self.size < 0 else self.size)

    async def _send(
        self, method: str, headers: Mapping[str, str], nbytes: int = 0
    ) -> aiohttp.ClientResponse:
        """Make a request whose response has at most `nbytes` bytes."""
        import aiohttp

        # The settings of fsspec for every request, like `headers` and `auth`.
        settings = dict(self.fs.kwargs)
        given = dict(settings.pop("headers", None) or {})
        condition = {}
        if method == "get" and self._etag.startswith('"'):  # a weak one never matches
            condition = {"If-Match": self._etag}
        if "timeout" not in (*settings, *self.fs.client_kwargs):
            settings["timeout"] = aiohttp.ClientTimeout(
                total=REQUEST_SECONDS + nbytes / MIN_SPEED,
                sock_connect=STALL_SECONDS,
                sock_read=STALL_SECONDS,
            )
        if method == "get":
            settings["bound"] = nbytes
        session = await self.fs.set_session()
        send = getattr(session, method)
        response: aiohttp.ClientResponse = await send(
            self.fs.encode_url(self.path),
            headers={**given, **headers, **condition},
            **settings,
        )
        return response

    def _judge_status(self, response: aiohttp.ClientResponse) -> None:
        status = response.status
        if status in (200, 206):
            return
        text = answered(status)
        if status in NO_FILE:
            raise self._fail(errno.ENOENT, text, NotFound)
        if status >= 500:
            raise Temporary(text)
        if status in (412, 416) and self.size >= 0:
            raise self._changed()
        if status == 416:  # as for an empty file
            raise self._fail(errno.EIO, text, NoSize)
        denied = status in (401, 403, 407)
        raise self._fail(errno.EACCES if denied else errno.EIO, text)

    def _judge_range(
        self, response: aiohttp.ClientResponse, start: int, stop: int
    ) -> tuple[int, int]:
        """Return the extent of the bytes of a response, and note an unknown size."""
        unit, _, rest = response.headers.get("Content-Range", "").partition(" ")
        span, _, total = rest.partition("/")
        is_whole = response.status == 200
        if is_whole:
            total = response.headers.get("Content-Length", "")
        elif unit.lower() != "bytes" or not total:
            raise self._fail(errno.EIO, "the response does not name its range")
        size = size_in(total)
        if self.size < 0 <= size:
            self.size, self.version = size, self._note_version(response.headers)
        if self.size >= 0:
            start, stop = self._extent(start, stop)
        if not self.size:
            return 0, 0
        if is_whole:  # the range may be the whole file
            if start or stop != self.size or size not in (-1, self.size):
                raise self._ignores_ranges()
            return start, stop
        if self.size < 0:
            text = "the server does not tell the size of the file"
            raise self._fail(errno.EIO, text, NoSize)
        if total not in ("*", str(self.size)):
            raise self._changed()
        first, _, last = span.partition("-")
        if first != str(start) or not 0 <= size_in(last) < stop:
            raise self._fail(
                errno.EIO,
                "expected the bytes %d-%d, found another range in the response"
                % (start, stop - 1),
            )
        self._check_length(size_in(last) + 1 - start, stop - start)
        return start, stop

    def _judge_version(self, headers: Mapping[str, str]) -> None:
        value = headers.get("ETag", "")
        if self._etag and value:
            changed = value != self._etag
        else:
            value = headers.get("Last-Modified", "")
            changed = bool(self._modified and value) and value != self._modified
        if changed:
            raise self._changed()


class S3File(RemoteFile):
    """An object in a store with the interface of S3, by the client of s3fs."""

    size_with_part = True

    async def _info(self) -> Mapping[str, Any]:
        info: Mapping[str, Any] = await self.fs._info(self.path, refresh=True)
        self._etag = info.get("ETag") or ""
        return info

    async def fetch(self, start: int, stop: int) -> bytes:
        bucket, key, version_id = self.fs.split_path(self.path)
        settings = {"Range": _range(start, stop)}
        if self._etag:
            settings["IfMatch"] = self._etag
        if version_id:
            settings["VersionId"] = version_id
        try:
            response = await self.fs._call_s3(
                "get_object", Bucket=bucket, Key=key, **settings
            )
        except OSError as error:
            if status_of(error) not in (412, 416):
                raise
            response = None
        if response is None and self.size < 0:  # as for an empty object
            raise self._fail(errno.EIO, answered(416), NoSize)
        if response is None or (self._etag and response.get("ETag") != self._etag):
            raise self._changed()
        body = response["Body"]
        try:
            if self.size < 0:  # the response has it, and the version
                size = size_in(response.get("ContentRange", "").rpartition("/")[2])
                if size < 0:
                    text = "the server does not tell the size of the file"
                    raise self._fail(errno.EIO, text, NoSize)
                self.size, self.version = size, version_in(response)
                self._etag = response.get("ETag") or ""
                start, stop = self._extent(start, stop)
            if response.get("ContentLength", 0) > stop - start:
                raise self._ignores_ranges()
            data = bytearray()
            # Without a length the body may have no end: one byte too many is enough.
            while block := await body.read(stop - start + 1 - len(data)):
                data += block
                if len(data) > stop - start:
                    raise self._ignores_ranges()
        finally:
            body.close()
        self._check_length(len(data), stop - start)
        return bytes(data)


def _range(start: int, stop: int) -> str:
    """Return the header for an extent of `RemoteFile.fetch`."""
    return "bytes=%d-%d" % (start, stop - 1) if stop else "bytes=%d" % start


def remote_file_for(
    fs: AbstractFileSystem, path: str, location: Location
) -> RemoteFile:
    """Return the file for what fsspec returns for a URL."""
    from fsspec.asyn import AsyncFileSystem

    if is_s3(fs):
        return S3File(fs, path, location)
    if "fsspec.implementations.http.HTTPFileSystem" in class_names(fs):
        return HttpFile(fs, path, location)
    kind = RemoteFile if isinstance(fs, AsyncFileSystem) else FsspecFile
    return kind(fs, path, location)
