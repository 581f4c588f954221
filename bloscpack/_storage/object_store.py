"""A store at a URL: objects with versions, in any file system of fsspec.

Contract: errors and `path` name the URL without credentials. Each object keeps the
version that it had when it was opened: if another program replaces it, reading more of
it raises `StorageError`, and it must be opened again. S3 compares versions while it
stores and removes an object; in other stores they are compared before, and some servers
with the interface of S3 do not compare.

fsspec keeps the file systems, for each process: nothing that it returns is kept here.
"""

from __future__ import annotations

import errno
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from .._engine.threads import in_thread, ordered
from .._types import StorageOptions
from ..exceptions import StorageError
from . import remote_files
from .base import Storage
from .file_systems import (
    NO_BUCKET,
    IgnoresRanges,
    Location,
    has_no_bucket,
    is_s3,
    status_of,
)
from .paths import public_name
from .remote import RemoteStorage
from .store import FOUND_FILE, Store, conflict, too_long
from .upload import READ_ONLY, check_writable
from .urls import joined_url, parent_url, scheme_of, with_lower_schemes

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

Result = TypeVar("Result")
# An object or a folder, as fsspec describes it.
Entry = dict[str, Any]

# Maximum number of requests for sizes that run at once.
REQUESTS = 32
# Seconds for the listing of a folder: a listing may have no end.
LIST_SECONDS = 1800.0
# Maximum number of times that a file is opened or read anew if a writer replaces it.
ATTEMPTS = 5
# What S3 answers if an object does not have the expected version, or is removed.
CHANGED = (404, 409, 412)
# What servers answer that don't know a condition of S3.
UNKNOWN_CONDITION = 501


class ObjectStore(Store):
    """The objects below a URL."""

    is_remote = True

    def __init__(self, url: str, storage_options: StorageOptions | None = None) -> None:
        self._url = with_lower_schemes(url)
        self._options = storage_options
        self.root = public_name(self._url)
        # A server of HTTP can't list the files in a folder.
        self.lists = scheme_of(self._url) not in READ_ONLY
        # Files that were looked for, and are probably going to be read next; and those
        # of which it was asked whether they exist.
        self._found: dict[str, Storage | OSError] = {}
        self._existing: dict[str, Storage] = {}

    @property
    def address(self) -> tuple[str, StorageOptions | None]:
        """The URL, with its credentials, and the settings."""
        return self._url, self._options

    def check(self) -> None:
        """Raise an error about the URL itself, such as an unknown scheme."""
        self._location_of("").find()

    def subfolder(self, name: str) -> ObjectStore:
        """Return the store of a folder inside."""
        return ObjectStore(self._url_of(name), self._options)

    def parent(self) -> tuple[ObjectStore, str] | None:
        """Return the store around, and the name in it."""
        outer = parent_url(self._url)
        return outer and (ObjectStore(outer[0], self._options), outer[1])

    def path(self, name: str = "") -> str:
        """Return the URL of a file, without credentials."""
        return public_name(self._url_of(name))

    def _url_of(self, name: str) -> str:
        return joined_url(self._url, name) if name else self._url

    def _location_of(self, name: str) -> Location:
        return Location(self._url_of(name), self._options)

    def _path_of(self, name: str) -> str:
        with self._using(name) as (_, path):
            return path

    @contextmanager
    def _using(self, name: str) -> Iterator[tuple[AbstractFileSystem, str]]:
        """Yield the file system and the path in it of an object; translate errors."""
        location = self._location_of(name)
        fs, path = location.find()
        with location.translating():
            yield fs, path

    # Reading

    def open(self, name: str, end: int = 0, most: int | None = None) -> Storage:
        """Open a file for reading at any position; `most` limits one read whole."""
        if end:
            return self._open(name, whole=None, end=max(end, remote_files.HEAD_SIZE))
        storage = self._prepared(name) or self._existing.pop(name, None)
        return storage or self._open(name, whole=None, most=most)

    def prepare(self, names: Iterable[str]) -> None:
        """Look for files at once that are going to be opened next."""
        self._found = {}
        self._existing = {}
        wanted = [*names]

        def look(name: str) -> tuple[str, Storage | OSError]:
            try:
                return name, self._open(name, whole=False)
            except OSError as error:
                return name, error

        def keep(found: tuple[str, Storage | OSError]) -> None:
            if not isinstance(found[1], IgnoresRanges):
                self._found.update([found])

        ordered(wanted, look, keep, min(len(wanted), REQUESTS), waits=True)

    def _prepared(self, name: str) -> Storage | None:
        """Return a file that was looked for; None if it was not."""
        storage = self._found.get(name)
        if isinstance(storage, OSError):
            raise storage
        self._found.pop(name, None)
        return storage

    def _open(self, name: str, **how: Any) -> Storage:
        settings = {"storage_options": self._options, **how}
        return _repeated(partial(RemoteStorage, self._url_of(name), **settings))

    def read(
        self, name: str, limit: int | None = None, *, whole: bool = False
    ) -> tuple[bytes, object]:
        """Return the content of a file, of which at most `limit` bytes are read."""
        # One byte too many is enough to see that there are more.
        most = limit if limit is None else limit + whole
        content = _repeated(partial(self._read, name, most))
        if whole and limit is not None and len(content) > limit:
            raise too_long(limit, self.path(name))
        return content, None

    def _read(self, name: str, most: int | None) -> bytes:
        with self.open(name, most=most) as storage:
            return storage.read_at(0, storage.size if most is None else most)

    def no_dataset(self) -> OSError:
        try:
            begin = self._open("", whole=None, most=1).read_at(0, 1)
        except OSError as error:
            if error.strerror == NO_BUCKET:
                return error
        else:
            if begin != b"<":  # the page of a web server about a folder
                return NotADirectoryError(errno.ENOTDIR, FOUND_FILE, self.root)
        return super().no_dataset()

    def exists(self, name: str) -> bool:
        """Return whether there is a file of this name."""
        self._existing.pop(name, None)
        try:
            storage = self._prepared(name) or self._open(name, whole=False)
            self._existing[name] = storage
        except FileNotFoundError:
            return False
        except IgnoresRanges:
            return True
        except StorageError as error:
            if error.errno != errno.EISDIR:
                raise
            return False
        return True

    def size(self, name: str) -> int:
        """Return the size of a file in bytes."""
        with self.open(name) as storage:
            return storage.size

    @in_thread
    def total_size(self, names: list[str]) -> int:
        """Return the size of several files in bytes; those that are missing have 0."""
        if not names:
            return 0
        with self._using(names[0]) as (fs, first):
            paths = [first, *map(self._path_of, names[1:])]
            fs.invalidate_cache()
            infos = _call_each(fs, "info", paths)
        return sum(0 if info is None else info.get("size") or 0 for info in infos)

    def content_version(self) -> object:
        """Return a value that changes when any file is replaced.

        No other object has it if the store lists no files, or no versions of them: then
        files may change unnoticed.
        """
        from uuid import uuid4

        versions: list[list[str]] = []
        for info in self._below("", recursive=True) if self.lists else ():
            versions.append([info["name"], *remote_files.version_in(info)])
        known = versions and all(files[1:] for files in versions)
        return sorted(versions) if known else uuid4().hex

    # Lists

    def entries(self, name: str = "") -> list[tuple[str, int]]:
        """Return the names of all in a folder, sorted, and their types."""
        return sorted(
            (entry, stat.S_IFDIR if info["type"] == "directory" else stat.S_IFREG)
            for entry, info in self._list(name)
        )

    def sizes(self, name: str) -> Iterator[tuple[str, int]]:
        """Yield name and size of each file in a folder."""
        for entry, info in self._list(name):
            if info["type"] == "file":
                yield entry, info["size"]

    def _list(self, name: str) -> list[tuple[str, Entry]]:
        """Return name and description of each file and folder in a folder."""
        if not self.lists:
            raise self._location_of(name).error(
                errno.ENOTSUP,
                "a server of HTTP can't list what is in a folder: open an array, a "
                "table or a member of a group by its name, or let "
                "zarr.consolidate_metadata store the names in the group",
            )
        full = {entry["name"].strip("/"): entry for entry in self._below(name)}
        return [(key.rpartition("/")[2], entry) for key, entry in full.items()]

    @in_thread
    def _below(self, name: str, *, recursive: bool = False) -> list[Entry]:
        """Return the descriptions of what is in a folder; all files if `recursive`.

        Nothing is in a folder that does not exist. Raises `StorageError` if the listing
        takes too long.
        """
        import asyncio
        from time import monotonic

        from fsspec.asyn import AsyncFileSystem, sync

        location = self._location_of(name)

        async def find(fs: AbstractFileSystem, path: str) -> list[Entry]:
            if recursive:
                return list((await fs._find(path, detail=True)).values())
            return list(await fs._ls(path, detail=True))

        async def find_in_time(fs: AbstractFileSystem, path: str) -> list[Entry]:
            start = monotonic()
            try:
                return await asyncio.wait_for(find(fs, path), LIST_SECONDS)
            except asyncio.TimeoutError:
                if monotonic() - start < LIST_SECONDS:  # of a request
                    raise
                text = "the server takes more than %d seconds for a listing"
                raise location.error(errno.ETIMEDOUT, text % LIST_SECONDS) from None

        infos: list[Entry] = []
        missing = suppress(FileNotFoundError, NotADirectoryError)
        with self._using(name) as (fs, path), missing:
            fs.invalidate_cache()
            if isinstance(fs, AsyncFileSystem):
                infos = sync(fs.loop, find_in_time, fs, path)
            elif recursive:
                infos = list(fs.find(path, detail=True).values())
            else:
                infos = list(fs.ls(path, detail=True))
            if not recursive:  # an empty object stands for the folder itself
                own = path.strip("/")
                infos = [info for info in infos if info["name"].strip("/") != own]
        return infos

    # Writing

    @property
    def compares_versions(self) -> bool:  # type: ignore[override]
        with self._using("") as (fs, _):
            return is_s3(fs)

    def object_version(self, name: str) -> str:
        """Return the version of an object; '' if there is none."""
        return self.object_versions([name])[0]

    @in_thread
    def object_versions(self, names: Collection[str]) -> list[str]:
        """Return the versions of several objects, which are asked for at once."""
        first, *others = names
        with self._using(first) as (fs, path):
            fs.invalidate_cache()
            infos = _call_each(fs, "info", [path, *map(self._path_of, others)])
        return [_version_in(info, is_s3(fs)) for info in infos]

    @partial(in_thread, must_end=True)
    def put(self, name: str, content: bytes, version: str | None) -> str:
        """Store an object in one step, if it still has a version; return the new one.

        An object that already has the content is no conflict: a request that is
        repeated, because its answer was lost, finds what it has stored itself.
        """
        check_writable(self.root)
        with self._using(name) as (fs, path):
            if not is_s3(fs):
                if version not in (None, self.object_version(name)):
                    return self._version_with(name, content)
                fs.pipe_file(path, content)
                return self.object_version(name)
            condition = {}
            if version is not None:
                condition = {"IfMatch": version} if version else {"IfNoneMatch": "*"}
            bucket, key, _ = fs.split_path(path)
            try:
                answer = fs.call_s3(
                    "put_object", Bucket=bucket, Key=key, Body=content, **condition
                )
            except OSError as error:
                is_changed = status_of(error) in CHANGED and not has_no_bucket(error)
                if not condition or not is_changed:
                    raise
                return self._version_with(name, content)
            fs.invalidate_cache(path)
            return str(answer["ETag"])

    def _version_with(self, name: str, content: bytes) -> str:
        """Return the version of an object that has a content; else raise `Conflict`."""
        # Before the content is read: the version of another content must not be
        # returned.
        version = self.object_version(name)
        with self._using(name) as (fs, path), suppress(FileNotFoundError):
            if version and fs.cat_file(path) == content:
                return version
        raise conflict(self.path(name)) from None

    @partial(in_thread, must_end=True)
    def remove(self, name: str, version: str | None = None) -> None:
        """Remove an object, if there is one, and has the version if it is given.

        S3 compares the version while it removes the object, if botocore and the server
        know this condition.
        """
        check_writable(self.root)
        if version is not None and self.object_version(name) != version:
            return
        with self._using(name) as (fs, path):
            if not (version and is_s3(fs) and _remove_if(fs, path, version)):
                _call_each(fs, "rm_file", [path])
            fs.invalidate_cache()

    def remove_tree(self, name: str) -> None:
        """Remove all that is in a folder."""
        self._remove_below(name, "")

    def remove_listed(self, name: str, check: Callable[[], object]) -> None:
        """Remove all that is in a folder, and was there before `check` was called."""
        self._remove_below(name, "", check)

    def remove_all(self, check: Callable[[], object], *, but: str) -> None:
        """Remove all objects but one, also those whose names no dataset has."""
        self._remove_below("", but, check)

    @partial(in_thread, must_end=True)
    def _remove_below(
        self, name: str, but: str, check: Callable[[], object] | None = None
    ) -> None:
        """Remove what is in a folder by paths, whose parts may have any character."""
        check_writable(self.root)
        stays = self._path_of(but).strip("/") if but else None
        infos = {info["name"]: info for info in self._below(name, recursive=True)}
        found = {p: info for p, info in infos.items() if p.strip("/") != stays}
        left = [*found]
        with self._using(name) as (fs, _):
            if check is not None:
                check()
                left = _remove_each_if(fs, found) if is_s3(fs) else left
            # Not `rm`: it takes a name with a star or a bracket for a pattern.
            _call_each(fs, "rm_file", left)
            fs.invalidate_cache()


def _repeated(call: Callable[[], Result]) -> Result:
    """Return the result of a call; repeat it if a writer has replaced the file."""
    for _ in range(ATTEMPTS - 1):
        try:
            return call()
        except StorageError as error:
            if error.errno != errno.EAGAIN:
                raise
    return call()


def _version_in(info: Entry | None, is_in_s3: bool) -> str:
    """Return the version of an object from its description; '' if there is none."""
    if info is None:
        return ""
    if is_in_s3:  # what a condition of a request compares
        return str(info.get("ETag") or "unknown")
    if info.get("type") == "directory":  # its name is free, as in other stores
        return ""
    return " ".join(remote_files.version_in(info)) or "unknown"


def _call_each(fs: AbstractFileSystem, method: str, paths: list[str]) -> list[Any]:
    """Call a method of a file system for paths; return None for a missing file."""
    import asyncio

    from fsspec.asyn import AsyncFileSystem, sync

    if not isinstance(fs, AsyncFileSystem):
        answers: list[object] = []
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

    results: list[Any] = sync(fs.loop, call_all)
    return results


def _remove_each_if(fs: AbstractFileSystem, found: dict[str, Entry]) -> list[str]:
    """Remove objects of S3 in the versions found; return those that it can't remove."""
    removed: list[bool] = []

    def remove(path: str) -> bool:
        return _remove_if(fs, path, _version_in(found[path], True))

    ordered(found, remove, removed.append, min(len(found), REQUESTS), waits=True)
    return [path for path, is_gone in zip(found, removed, strict=True) if not is_gone]


def _remove_if(fs: AbstractFileSystem, path: str, version: str) -> bool:
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
