"""The files of a dataset at a URL: `Folder` for any store of fsspec, for reading.

Contract: as that of `Folder`. Errors and `path` name the URL without credentials. Each
file keeps the version that it had when it was opened: if another program replaces it,
reading more of it raises `StorageError`, and the file must be opened again.

A server of HTTP can't list folders. Arrays and tables need no list: their documents
name all files. The members of a group are found by name only.
"""

from __future__ import annotations

import errno
from contextlib import suppress

from .._storage.file_systems import ErrorNames, find_file_system
from .._storage.remote import RemoteStorage
from .._storage.upload import object_version, put_object
from .._storage.urls import is_url, joined_url, local_path, public_name, scheme_of
from ..exceptions import StorageError
from .folder import Folder, is_member_name, is_safe_name

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from .._storage.base import Storage
    from .._storage.protocols import Path, StorageOptions

# Schemes of servers that can't list the files in a folder.
WITHOUT_LISTS = ("http", "https")


class UrlFolder(Folder):
    """A dataset at a URL, or a part of it."""

    far = True

    def __init__(
        self,
        url: str,
        prefix: str = "",
        pending: dict[str, str] | None = None,
        storage_options: StorageOptions | None = None,
    ) -> None:
        super().__init__(public_name(url), prefix, pending)
        self._url = url
        self._options = storage_options
        self.lists = scheme_of(url) not in WITHOUT_LISTS
        # A file that was looked for, and is probably going to be read next.
        self._found: tuple[str, Storage] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return _reopen, (self._url, self.prefix, self._options)

    def version(self) -> object:
        """Return a value that no other object has: files may change unnoticed."""
        from uuid import uuid4

        return uuid4().hex

    def read_journal(self) -> list[str]:
        """Find out whether a committed change is to be completed."""
        try:
            return super().read_journal()
        except StorageError as error:
            # Some stores refuse to tell whether there is a file.
            if error.errno != errno.EACCES:
                raise
            return []

    def child(self, name: str) -> Folder:
        """Return a folder inside."""
        full = self.full(name) + "/"
        return type(self)(self._url, full, self.pending, self._options)

    def dataset(self, name: str) -> Folder:
        """Return a folder inside that is a dataset of its own."""
        url = joined_url(self._url, self.full(name))
        folder = type(self)(url, storage_options=self._options)
        folder.read_journal()
        return folder

    def around(self) -> None:
        """Return None: a column that is opened by its own URL is an array."""

    def path(self, name: str = "") -> str:
        """Return the URL of a file, without credentials."""
        return public_name(self._url_of(name))

    def _url_of(self, name: str) -> str:
        full = self.full(name) if name else self.prefix.rstrip("/")
        return joined_url(self._url, full) if full else self._url

    def check_inside(self, name: str) -> None:
        """Do nothing: a store has no symbolic links that lead elsewhere."""

    # Reading

    def exists(self, name: str) -> bool:
        """Return whether there is a file of this name."""
        try:
            self._found = name, self._open(name)
        except FileNotFoundError:
            return False
        except StorageError as error:
            if error.errno != errno.EISDIR:
                raise
            return False
        return True

    def is_folder(self, name: str) -> bool:
        """Return True: in most stores a folder has no existence of its own."""
        return is_safe_name(name)

    def read(self, name: str, limit: int | None = None) -> bytes:
        """Return the content of a file, of which at most `limit` bytes are read."""
        storage = self.storage(name)
        try:
            return storage.read_at(0, storage.size if limit is None else limit)
        finally:
            storage.close()

    def size(self, name: str) -> int:
        """Return the size of a file in bytes."""
        storage = self.storage(name)
        storage.close()
        return storage.size

    def storage(self, name: str) -> Storage:
        """Open a file for reading at any position."""
        found, self._found = self._found, None
        if found is not None and found[0] == name:
            return found[1]
        return self._open(name)

    def _open(self, name: str) -> Storage:
        full = self.full(name)
        pending = self.pending.get(full) if self.pending else None
        if pending is not None:
            with suppress(FileNotFoundError):  # the file has got its name meanwhile
                return self._open_url(joined_url(self._url, pending))
        return self._open_url(joined_url(self._url, full))

    def _open_url(self, url: str) -> Storage:
        return UrlFile(url, storage_options=self._options, whole=None)

    # Writing

    def object_version(self, name: str) -> str:
        """Return the version of a file; '' if there is none."""
        return object_version(joined_url(self._url, self.full(name)), self._options)

    def put(self, name: str, content: bytes, version: str) -> str:
        """Store a file if it still has a version; return the new version."""
        url = joined_url(self._url, self.full(name))
        return put_object(url, content, self._options, version=version)

    # Lists

    def folders(self) -> list[str]:
        """Return the names of the folders inside that can be members, sorted."""
        found = [name for name, info in self._list("") if info["type"] == "directory"]
        return sorted(filter(is_member_name, found))

    def names(self, name: str) -> list[str]:
        """Return the names in a folder; none if there is no such folder."""
        return [found for found, _ in self._list(name)]

    def sizes(self, name: str) -> Iterator[tuple[str, int]]:
        """Yield name and size of each file in a folder."""
        for found, info in self._list(name):
            if info["type"] == "file":
                yield found, info["size"]

    def _list(self, name: str) -> list[tuple[str, dict[str, Any]]]:
        """Return name and description of each file and folder in a folder."""
        url = self._url_of(name)
        names = ErrorNames(url, self._options)
        if not self.lists:
            raise names.error(
                errno.ENOTSUP,
                "a server of HTTP can't list what is in a folder: open an array, a "
                "table or a member of a group by its name",
            )
        fs, path = find_file_system(url, dict(self._options or {}), names)
        with names.translating():
            fs.invalidate_cache()
            try:
                entries = fs.ls(path, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                return []
        full = {entry["name"].strip("/"): entry for entry in entries}
        full.pop(path.strip("/"), None)  # an empty object stands for the folder itself
        return [(name.rpartition("/")[2], entry) for name, entry in full.items()]


def _reopen(url: str, prefix: str, options: StorageOptions | None) -> UrlFolder:
    """Return a folder that was pickled, as it is now."""
    whole = UrlFolder(url, storage_options=options)
    whole.read_journal()
    return UrlFolder(url, prefix, whole.pending, options)


class UrlFile(RemoteStorage):
    """A file of a dataset, which is closed when it is not used any more."""

    def __del__(self) -> None:
        with suppress(AttributeError):  # it could not be opened
            self.close()


def open_folder(path: Path, storage_options: StorageOptions | None = None) -> Folder:
    """Return the folder of a dataset, at a path or at a URL.

    Raises an ``OSError`` if there is none; at a URL, reading does.
    """
    path = local_path(path)
    if not is_url(path):
        return Folder.open(path)
    folder = UrlFolder(path, storage_options=storage_options)
    folder.read_journal()
    return folder
