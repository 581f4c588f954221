"""New files at URLs, which appear complete or not at all.

Contract: `uploading` yields a file object that can be written and sought like a new
local file. S3 gets the parts while they are made: the object appears with the request
that completes the upload. Other places get a temporary file in one step at the end.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, suppress

from .._engine.forks import Owner
from ..exceptions import StorageError, UsageError
from .file_systems import ErrorNames, find_file_system, status_of
from .urls import public_name, scheme_of

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, BinaryIO

    from .protocols import StorageOptions

READ_ONLY = ("http", "https")
# Maximum number of requests for sizes that run at once.
REQUESTS = 32
# Seconds for the listing of a folder: a listing may have no end.
LIST_SECONDS = 1800.0
# What S3 answers if an object does not have the expected version, or is removed.
CHANGED = (404, 409, 412)
# What servers answer that don't know a condition of S3.
UNKNOWN_CONDITION = 501


@contextmanager
def uploading(
    url: str,
    storage_options: StorageOptions | None = None,
    exclusive: bool = False,
) -> Iterator[BinaryIO]:
    """Yield a file object whose content is stored at a URL when the block ends.

    If the block raises an error, nothing is stored, and an object that was there
    before is unchanged. With `exclusive`, nothing may be at the URL, now and at the end
    of the block; a program that stores an object just then is not noticed.
    """
    names = ErrorNames(url, storage_options)
    check_writable(url)
    fs, path = find_file_system(url, dict(storage_options or {}), names)
    if exclusive:
        _check_free(fs, path, names)
    owner = Owner()
    if is_s3(fs):
        from .s3 import PartsFile

        parts = PartsFile(fs, path, names)
        try:
            yield parts  # type: ignore[misc]
            owner.check(names.name)
            if exclusive:
                _check_free(fs, path, names)
            parts.complete()
        except BaseException:
            if owner.is_here:
                parts.abort()
            raise
        return
    import shutil
    import tempfile

    # No `TemporaryDirectory`: a child process would remove it when it ends.
    folder = tempfile.mkdtemp()
    try:
        spool = open(os.path.join(folder, "new"), "w+b")  # noqa: SIM115
        try:
            yield spool
        finally:
            owner.close_file(spool)
        owner.check(names.name)
        if exclusive:
            _check_free(fs, path, names)
        with names.translating():
            fs.put_file(spool.name, path)
    finally:
        if owner.is_here:
            shutil.rmtree(folder, ignore_errors=True)


def check_writable(url: str) -> None:
    """Raise `UsageError` if nothing can be stored at a URL."""
    if scheme_of(url) in READ_ONLY:
        raise UsageError(
            "'%s' can't be written: HTTP is for reading" % public_name(url)
        )


def is_s3(fs: object) -> bool:
    """Return whether a file system is that of s3fs."""
    return any(_name_of(kind) == "s3fs.core.S3FileSystem" for kind in type(fs).__mro__)


def _check_free(fs: Any, path: str, names: ErrorNames) -> None:
    """Raise `FileExistsError` if something is stored under a path."""
    with names.translating():
        fs.invalidate_cache()
        exists = fs.exists(path)
    if exists:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), names.name)


def _name_of(kind: type) -> str:
    return "%s.%s" % (kind.__module__, kind.__name__)


# Objects that several programs may replace


class Conflict(StorageError):
    """Another program has replaced the object at a URL, or created one."""


def conflict(names: ErrorNames) -> StorageError:
    """Return the error for an object that does not have the expected version."""
    return names.error(
        errno.EAGAIN, "another program has changed it meanwhile", Conflict
    )


def object_version(url: str, storage_options: StorageOptions | None = None) -> str:
    """Return the version of the object at a URL; '' if there is none."""
    names = ErrorNames(url, storage_options)
    fs, path = find_file_system(url, dict(storage_options or {}), names)
    with names.translating():
        fs.invalidate_cache()
        try:
            info = fs.info(path)
        except FileNotFoundError:
            return ""
    return str(info.get("ETag") or info.get("created") or "unknown")


def object_sizes(urls: list[str], options: StorageOptions | None = None) -> list[int]:
    """Return the size of each object in bytes; 0 if there is none."""
    if not urls:
        return []
    names = ErrorNames(urls[0], options)
    places = [find_file_system(url, dict(options or {}), names) for url in urls]
    fs = places[0][0]
    with names.translating():
        fs.invalidate_cache()
        found = _call_each(fs, "info", [path for _, path in places])
    return [0 if info is None else info.get("size") or 0 for info in found]


def _call_each(fs: Any, method: str, paths: list[str]) -> list[Any]:
    """Call a method of a file system for paths; return None for a missing file."""
    import asyncio

    from fsspec.asyn import AsyncFileSystem, sync

    if not isinstance(fs, AsyncFileSystem):
        answers: list[Any] = []
        for path in paths:
            answers.append(None)
            with suppress(FileNotFoundError):
                answers[-1] = getattr(fs, method)(path)
        return answers

    async def call_all() -> list[Any]:
        free = asyncio.Semaphore(REQUESTS)

        async def call(path: str) -> Any:
            async with free:
                with suppress(FileNotFoundError):
                    return await getattr(fs, "_" + method)(path)

        return await asyncio.gather(*map(call, paths))

    found: list[Any] = sync(fs.loop, call_all)
    return found


def entries_below(
    fs: Any, path: str, names: ErrorNames, *, recursive: bool = False
) -> list[dict[str, Any]]:
    """Return the descriptions of what is below a path; all files if `recursive`.

    Nothing is below a path that does not exist. Raises `StorageError` if the listing
    takes too long.
    """
    import asyncio
    from time import monotonic

    from fsspec.asyn import AsyncFileSystem, sync

    async def find() -> list[dict[str, Any]]:
        if is_s3(fs) and path.strip("/"):
            from .s3 import list_objects

            return await list_objects(fs, path, recursive, names)
        if recursive:
            return list((await fs._find(path, detail=True)).values())
        return list(await fs._ls(path, detail=True))

    async def find_in_time() -> list[dict[str, Any]]:
        start = monotonic()
        try:
            return await asyncio.wait_for(find(), LIST_SECONDS)
        except asyncio.TimeoutError:
            if monotonic() - start < LIST_SECONDS:  # of a request
                raise
            text = "the server takes more than %d seconds for a listing"
            raise names.error(errno.ETIMEDOUT, text % LIST_SECONDS) from None

    found: list[dict[str, Any]] = []
    with names.translating(), suppress(FileNotFoundError, NotADirectoryError):
        fs.invalidate_cache()
        if isinstance(fs, AsyncFileSystem):
            found = sync(fs.loop, find_in_time)
        elif recursive:
            found = list(fs.find(path, detail=True).values())
        else:
            found = list(fs.ls(path, detail=True))
    return found


def check_version(
    url: str, storage_options: StorageOptions | None, version: str
) -> None:
    """Raise `Conflict` if the object at a URL has not the expected version."""
    if object_version(url, storage_options) != version:
        raise conflict(ErrorNames(url, storage_options))


def remove_object(
    url: str, storage_options: StorageOptions | None = None, version: str | None = None
) -> None:
    """Remove the object at a URL, if there is one, and has the version if it is given.

    S3 compares the version while it removes the object, if botocore and the server know
    this condition. In other places it is only compared before.
    """
    names = ErrorNames(url, storage_options)
    check_writable(url)
    if version is not None and object_version(url, storage_options) != version:
        return
    fs, path = find_file_system(url, dict(storage_options or {}), names)
    with names.translating():
        if not (version and is_s3(fs) and _remove_if(fs, path, version)):
            _call_each(fs, "rm_file", [path])
        fs.invalidate_cache()


def _remove_if(fs: Any, path: str, version: str) -> bool:
    """Remove an object of S3 in a version; return whether the server can do that."""
    bucket, key, _ = fs.split_path(path)
    try:
        fs.call_s3("delete_object", Bucket=bucket, Key=key, IfMatch=version)
    except OSError as error:
        if status_of(error) == UNKNOWN_CONDITION:
            return False
        if status_of(error) not in CHANGED:
            raise
    return True


def remove_objects(
    url: str, storage_options: StorageOptions | None = None, *, kept: str = ""
) -> None:
    """Remove all objects below a URL, but the one at the URL `kept`, if it is given.

    They are removed by their paths in the store, whose parts may have any character.
    """
    names = ErrorNames(url, storage_options)
    check_writable(url)
    options = dict(storage_options or {})
    fs, path = find_file_system(url, options, names)
    stays = find_file_system(kept, options, names)[1].strip("/") if kept else ""
    entries = entries_below(fs, path, names, recursive=True)
    found = [e["name"] for e in entries if e["name"].strip("/") != stays]
    with names.translating():
        # Not `rm`: it takes a name with a star or a bracket for a pattern.
        _call_each(fs, "rm_file", found)
        fs.invalidate_cache()


def put_object(
    url: str,
    content: bytes,
    storage_options: StorageOptions | None = None,
    *,
    version: str | None = None,
) -> str:
    """Store an object at a URL in one step; return its version.

    With `version`, S3 stores it only if the object has this version, or with '' if
    there is none. Raises `Conflict` otherwise. Other places compare before they store,
    and some servers with the interface of S3 do not compare.

    An object that already has the content is no conflict: a request that is repeated,
    because its answer was lost, finds what it has stored itself. So a content that must
    not be stored by two programs needs a token.
    """
    names = ErrorNames(url, storage_options)
    check_writable(url)
    fs, path = find_file_system(url, dict(storage_options or {}), names)
    if not is_s3(fs):
        if version not in (None, object_version(url, storage_options)):
            return _version_with(fs, path, url, content, storage_options)
        with names.translating():
            fs.pipe_file(path, content)
        return object_version(url, storage_options)
    condition = {}
    if version is not None:
        condition = {"IfMatch": version} if version else {"IfNoneMatch": "*"}
    bucket, key, _ = fs.split_path(path)
    with names.translating():
        try:
            answer = fs.call_s3(
                "put_object", Bucket=bucket, Key=key, Body=content, **condition
            )
        except OSError as error:
            if not condition or status_of(error) not in CHANGED:
                raise
            return _version_with(fs, path, url, content, storage_options)
        fs.invalidate_cache(path)
    return str(answer["ETag"])


def _version_with(
    fs: Any,
    path: str,
    url: str,
    content: bytes,
    storage_options: StorageOptions | None,
) -> str:
    """Return the version of an object that has a content; else raise `Conflict`."""
    names = ErrorNames(url, storage_options)
    # Before the content is read: the version of another content must not be returned.
    version = object_version(url, storage_options)
    with names.translating(), suppress(FileNotFoundError):
        if version and fs.cat_file(path) == content:
            return version
    raise conflict(names) from None
