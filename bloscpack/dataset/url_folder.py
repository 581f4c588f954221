"""The files of a dataset at a URL: `Folder` for any store of fsspec.

Contract: as that of `Folder`. Errors and `path` name the URL without credentials. Each
file keeps the version that it had when it was opened: if another program replaces it,
reading more of it raises `StorageError`, and the file must be opened again.

A server of HTTP can't list folders. Arrays and tables need no list: their documents
name all files. The members of a group are found by name only, unless its document has
copies of theirs, as ``zarr.consolidate_metadata`` makes them.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from functools import partial

from .._format.zarr_metadata import CONSOLIDATED, ZARR_JSON
from .._storage.file_systems import ErrorNames, IgnoresRanges, find_file_system
from .._storage.places import VERSION_FIELDS
from .._storage.remote import RemoteStorage
from .._storage.upload import (
    check_version,
    entries_below,
    object_sizes,
    object_version,
    put_object,
    remove_object,
    remove_objects,
)
from .._storage.urls import (
    is_url,
    joined_url,
    local_path,
    parent_url,
    public_name,
    scheme_of,
    with_lower_schemes,
)
from ..exceptions import FormatError, StorageError
from .folder import CHANGES, JOURNAL, Folder, is_member_name, is_safe_name

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TypeVar

    from .._storage.base import Storage
    from .._storage.protocols import Path, StorageOptions
    from ..serializers import Json

    Result = TypeVar("Result")

# Schemes of servers that can't list the files in a folder.
WITHOUT_LISTS = ("http", "https")
# Maximum number of times that a file is opened or read anew if a writer replaces it
# meanwhile.
ATTEMPTS = 5
# The file in a folder that shows that all in it belongs to a dataset that is not
# complete, or that is being removed, unless there is a document, too.
UNFINISHED = CHANGES + "/unfinished"


class UrlFolder(Folder):
    """A dataset at a URL, or a part of it."""

    is_remote = True

    def __init__(
        self,
        url: str,
        prefix: str = "",
        pending: dict[str, str] | None = None,
        documents: dict[str, bytes] | None = None,
        storage_options: StorageOptions | None = None,
    ) -> None:
        url = with_lower_schemes(url)
        super().__init__(public_name(url), prefix, pending, documents)
        self._url = url
        self._options = storage_options
        self.lists = scheme_of(url) not in WITHOUT_LISTS
        # A file that was looked for, and is probably going to be read next.
        self._found: tuple[str, Storage] | None = None
        # The documents that a writer has read, by name; None to keep none.
        self.kept: dict[str, bytes] | None = None
        # The group around, and the name in it, if it was opened from there.
        self._outer: tuple[UrlFolder, str] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return _reopen, (self._url, self.prefix, self._options)

    def version(self) -> object:
        """Return a value that changes when a file is replaced.

        No other object has it if the store lists no files, too many, or no versions of
        them: then files may change unnoticed.
        """
        from uuid import uuid4

        found: list[list[str]] = []
        try:
            found = self._versions() if self.lists else []
        except StorageError as error:
            if error.errno != errno.EFBIG:
                raise
        return found if found and all(files[1:] for files in found) else uuid4().hex

    def _versions(self) -> list[list[str]]:
        """Return name and version of each file, sorted."""
        names = ErrorNames(self._url, self._options)
        fs, path = find_file_system(self._url_of(""), dict(self._options or {}), names)
        entries = entries_below(fs, path, names, recursive=True)
        return sorted(
            [info["name"], *(str(info[key]) for key in VERSION_FIELDS if info.get(key))]
            for info in entries
        )

    def read_journal(self) -> list[str]:
        """Find out whether a committed change is to be completed."""
        try:
            return super().read_journal()
        except StorageError as error:
            # Some stores refuse to tell whether there is a file.
            if error.errno != errno.EACCES:
                raise
            return []

    @property
    def has_journal(self) -> bool:
        """Whether there is a journal."""
        return self.exists(JOURNAL)

    def _read_accepted(self) -> Json:
        # All users who may write the journal may write the dataset.
        return self.read_json(JOURNAL)

    @property
    def unfinished(self) -> bool:
        """Whether a change was committed, and is to be completed."""
        return bool(self.pending or self.documents)

    def _part(self, prefix: str) -> Folder:
        shared = self.pending, self.documents
        folder = type(self)(self._url, prefix, *shared, self._options)
        folder.kept = self.kept
        return folder

    def subfolder(self, name: str) -> Folder:
        """Return a folder inside as one of its own."""
        url = joined_url(self._url, self.full(name))
        folder = type(self)(url, storage_options=self._options)
        folder._outer = self, name
        folder.depth = self.depth + 1
        folder.read_journal()
        return folder

    def parent_dataset(self) -> tuple[Folder, str] | None:
        """Return the folder around a dataset, and the name of the dataset in it."""
        found = parent_url(self._url)
        if found is None:
            return None
        return type(self)(found[0], storage_options=self._options), found[1]

    def place_of(self, name: str = "") -> tuple[str, StorageOptions | None]:
        """Return what opens the dataset, or the dataset in a folder inside."""
        return self._url_of(name), self._options

    def path(self, name: str = "") -> str:
        """Return the URL of a file, without credentials."""
        return public_name(self._url_of(name))

    def _url_of(self, name: str) -> str:
        full = self.full(name) if name else self.prefix.rstrip("/")
        return joined_url(self._url, full) if full else self._url

    # Reading

    def exists(self, name: str) -> bool:
        """Return whether there is a file of this name."""
        if self.full(name) in self.documents:
            return True
        try:
            self._found = name, self._open(name, whole=False)
        except FileNotFoundError:
            return False
        except IgnoresRanges:
            return True
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
        if self.documents and self.full(name) in self.documents:
            return self.documents[self.full(name)]
        content = _repeated(partial(self._read, name, limit))
        if self.kept is not None and name == ZARR_JSON:
            self.kept.setdefault(self.full(name), content)
        return content

    def _read(self, name: str, limit: int | None) -> bytes:
        storage = self.storage(name, limit)
        try:
            return storage.read_at(0, storage.size if limit is None else limit)
        finally:
            storage.close()

    def total_size(self, names: list[str]) -> int:
        """Return the size of several files in bytes; those that are missing have 0."""
        urls = [joined_url(self._url, self.full(name)) for name in names]
        return sum(object_sizes(urls, self._options))

    def size(self, name: str) -> int:
        """Return the size of a file in bytes."""
        storage = self.storage(name)
        storage.close()
        return storage.size

    def storage(self, name: str, most: int | None = None) -> Storage:
        """Open a file for reading at any position, or of its first `most` bytes."""
        found, self._found = self._found, None
        if found is not None and found[0] == name:
            return found[1]
        return self._open(name, most=most)

    def _open(self, name: str, **how: Any) -> Storage:
        full = self.full(name)
        pending = self.pending.get(full) if self.pending else None
        if pending is not None:
            with suppress(FileNotFoundError):  # the file has got its name meanwhile
                return self._open_url(joined_url(self._url, pending), how)
        return self._open_url(joined_url(self._url, full), how)

    def _open_url(self, url: str, how: dict[str, Any]) -> Storage:
        settings = {"storage_options": self._options, "whole": None, **how}
        return _repeated(partial(UrlFile, url, **settings))

    def close(self) -> None:
        """Do nothing: a store has no open folders."""

    # Writing

    def object_version(self, name: str) -> str:
        """Return the version of a file; '' if there is none."""
        return object_version(joined_url(self._url, self.full(name)), self._options)

    def put(self, name: str, content: bytes, version: str | None) -> str:
        """Store a file, if it still has a version; return the new version."""
        url = joined_url(self._url, self.full(name))
        return put_object(url, content, self._options, version=version)

    def check_version(self, name: str, version: str) -> None:
        """Raise `Conflict` if a file has another version."""
        check_version(joined_url(self._url, self.full(name)), self._options, version)

    def remove(self, name: str, version: str | None = None) -> None:
        """Remove a file, if there is one, and has the version if it is given."""
        remove_object(joined_url(self._url, self.full(name)), self._options, version)

    def remove_tree(self, name: str) -> None:
        """Remove all that is in a folder."""
        remove_objects(joined_url(self._url, self.full(name)), self._options)

    def remove_all(self, *, but: str) -> None:
        """Remove all files but one, also those whose names no dataset has."""
        kept = joined_url(self._url, self.full(but))
        remove_objects(self._url_of(""), self._options, kept=kept)

    # Lists

    @property
    def is_leftover(self) -> bool:
        """Whether all in the folder is of a dataset that is not complete."""
        return not self.exists(ZARR_JSON) and self.exists(UNFINISHED)

    def folders(self) -> list[str]:
        """Return the names of the folders inside that can be members, sorted."""
        if not self.lists:
            paths = self._consolidated()
            if paths is None:
                self._list("")  # raises the error
            return sorted(path for path in paths or () if is_member_name(path))
        entries = dict(self._list(""))
        if CHANGES in entries and self.is_leftover:
            return []
        found = [name for name, info in entries.items() if info["type"] == "directory"]
        return sorted(filter(is_member_name, found))

    def _consolidated(self) -> list[str] | None:
        """Return the paths of all members inside, from the documents of groups."""
        with suppress(FileNotFoundError, FormatError, TypeError, KeyError):
            document = self.read_json(ZARR_JSON)
            return list(document[CONSOLIDATED]["metadata"])
        outer, name = self._outer or (None, "")
        paths = None if outer is None else outer._consolidated()
        if paths is None:
            return None
        start = name + "/"
        return [path[len(start) :] for path in paths if path.startswith(start)]

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
                "table or a member of a group by its name, or let "
                "zarr.consolidate_metadata store the names in the group",
            )
        fs, path = find_file_system(url, dict(self._options or {}), names)
        entries = entries_below(fs, path, names)
        full = {entry["name"].strip("/"): entry for entry in entries}
        full.pop(path.strip("/"), None)  # an empty object stands for the folder itself
        return [(name.rpartition("/")[2], entry) for name, entry in full.items()]


def _repeated(call: Callable[[], Result]) -> Result:
    """Return the result of a call; repeat it if a writer has replaced the file."""
    for _ in range(ATTEMPTS - 1):
        try:
            return call()
        except StorageError as error:
            if error.errno != errno.EAGAIN:
                raise
    return call()


def _reopen(url: str, prefix: str, options: StorageOptions | None) -> UrlFolder:
    """Return a folder that was pickled, as it is now."""
    whole = UrlFolder(url, storage_options=options)
    whole.read_journal()
    return UrlFolder(url, prefix, whole.pending, whole.documents, options)


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
