"""A store: what the rest of the package may do with named files in one folder.

`FolderStore` is a folder that is held open, `ObjectStore` any store of fsspec,
`ZipStore` a ZIP file, and `MemoryStore` a dictionary. They are siblings.
What a store can't do is a property: the
rules of `_commit` ask for `can_rename`, and call only the methods of their kind.

Names are relative to the store; they have slashes and safe parts only.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from copy import copy

from .._format.names import MAX_PARTS, is_safe_name
from .._types import StorageOptions
from ..exceptions import DamageError, StorageError, metadata_damage
from .base import MemoryStorage, Storage

# The error about a path or a URL of a dataset.
FOUND_FILE = "expected the folder of a dataset, found a file"


class Conflict(StorageError):
    """Another program has replaced a file, or created one."""


def too_deep(path: str) -> StorageError:
    """Return the error for a folder inside of more folders than are read."""
    text = "it is inside of more than %d folders of the dataset" % MAX_PARTS
    return StorageError(errno.ENAMETOOLONG, text, path)


def too_long(limit: int, path: str, size: int | None = None) -> DamageError:
    """Return the error for a file that has more bytes than are read."""
    found = "more" if size is None else "'%d'" % size
    return metadata_damage(
        "expected at most '%d' bytes, found %s" % (limit, found), filename=path
    )


class Store:
    """Named files in one folder.

    Attributes
    ----------
    root
        Its path, or its URL without credentials, for messages.
    is_remote
        Whether each read of a file is a round trip to another machine.
    lists
        Whether the names in it can be listed.
    is_writable
        Whether files in it can be changed.
    can_rename
        Whether it has locks, folders that can be synced, and names that can be changed.
        Then it is a `FolderStore`. In any other store, a file is stored in one step if
        it has an expected version.
    compares_versions
        Whether it compares the version while it stores a file, so that no other program
        can store it in between.
    is_sticky
        Whether users who do not trust each other may make files in it, as in ``/tmp``.
    was_removed
        Whether the folder itself was removed since it was opened; False if unknown.
    """

    root: str
    is_remote = False
    lists = True
    is_writable = True
    can_rename = False
    compares_versions = False
    is_sticky = False
    was_removed = False

    @property
    def address(self) -> tuple[str, StorageOptions | None]:
        """What opens the store again: a path or a URL, and settings for fsspec."""
        return self.root, None

    def subfolder(self, name: str) -> Store:
        """Return the store of a folder inside."""
        raise NotImplementedError

    def parent(self) -> tuple[Store, str] | None:
        """Return the store that this one is a folder of, and its name there."""
        raise NotImplementedError

    def path(self, name: str = "") -> str:
        """Return the path of a file, or its URL without credentials."""
        raise NotImplementedError

    def close(self) -> None:
        """Release what is open. It is opened again when it is used."""

    # Reading

    def open(self, name: str, end: int = 0) -> Storage:
        """Open a file for reading at any position.

        It keeps its content also if the name gets another one, or is removed; or else
        reading more of it raises `StorageError`. At a URL, at least the last `end`
        bytes are read first, if it is given.
        """
        raise NotImplementedError

    def no_dataset(self) -> OSError:
        """Return the error for a store in which no file of a dataset was found."""
        return FileNotFoundError(errno.ENOENT, "there is no dataset", self.root)

    def prepare(self, names: Iterable[str]) -> None:
        """Look for files that are going to be opened next, or not at all.

        Another call, also one without names, forgets those that were not opened.
        """

    def read(
        self, name: str, limit: int | None = None, *, whole: bool = False
    ) -> tuple[bytes, object]:
        """Return the content of a file, at most `limit` bytes, and its `identity`.

        With `whole`, a file with more bytes raises `FormatError`.
        """
        raise NotImplementedError

    def exists(self, name: str) -> bool:
        """Return whether there is a file, folder or link of this name."""
        raise NotImplementedError

    def is_folder(self, name: str) -> bool:
        """Return whether there may be a folder of this name, and no link.

        In most stores of objects a folder has no existence of its own.
        """
        return is_safe_name(name)

    def identity(self, name: str) -> object:
        """Return a value that changes when a file is replaced.

        None if it is not known without a request to another machine.
        """
        return None

    def has_identity(self, name: str, identity: object) -> bool:
        """Return whether a file is still the one that has had an `identity`."""
        return identity is not None and identity == self.identity(name)

    def size(self, name: str) -> int:
        """Return the size of a file in bytes."""
        raise NotImplementedError

    def total_size(self, names: list[str]) -> int:
        """Return the size of several files in bytes; those that are missing have 0."""
        raise NotImplementedError

    def names(self, name: str = "") -> list[str]:
        """Return the names in a folder; none if there is no such folder."""
        return [entry for entry, _ in self.entries(name)]

    def entries(self, name: str = "") -> list[tuple[str, int]]:
        """Return the names of all in a folder, sorted, and their types.

        The types are those of `stat.S_IFMT`, of links as well; 0 for pipes and so on.
        Without such a folder there are none.
        """
        raise NotImplementedError

    def sizes(self, name: str) -> Iterator[tuple[str, int]]:
        """Yield name and size of each file in a folder."""
        raise NotImplementedError

    def content_version(self) -> object:
        """Return a value that changes when any file is replaced."""
        raise NotImplementedError

    # Writing

    def remove(self, name: str, version: str | None = None) -> None:
        """Remove a file. In a store of objects it may be missing.

        With a `version`, which only a store of objects knows, a file with another one
        stays.
        """
        raise NotImplementedError

    def remove_tree(self, name: str) -> None:
        """Remove a folder and all in it, if there is one."""
        raise NotImplementedError

    # Without `can_rename`: files with versions

    def object_version(self, name: str) -> str:
        """Return the version of a file; '' if there is none."""
        raise NotImplementedError

    def object_versions(self, names: Collection[str]) -> list[str]:
        """Return the versions of several files."""
        return [self.object_version(name) for name in names]

    def check_version(self, name: str, version: str) -> None:
        """Raise `Conflict` if a file has another version."""
        if self.object_version(name) != version:
            raise conflict(self.path(name))

    def put(self, name: str, content: bytes, version: str | None) -> str:
        """Store a file, if it still has a version; return the new version.

        With '' there must be no file, and with None it may have any version. Raises
        `Conflict` otherwise. A file that already has the content is no conflict: so a
        content that must not be stored by two programs needs a token.
        """
        raise NotImplementedError

    def remove_listed(self, name: str, check: Callable[[], object]) -> None:
        """Remove the files in a folder; `check` is called when they are listed.

        It raises an error if they are to stay. S3 keeps those that are replaced later.
        """
        check()
        self.remove_tree(name)

    def remove_all(self, check: Callable[[], object], *, but: str) -> None:
        """Remove all files but one, also those whose names no dataset has.

        `check` is that of `remove_listed`.
        """
        raise NotImplementedError


def conflict(path: str) -> Conflict:
    """Return the error for an object that does not have the expected version."""
    return Conflict(errno.EAGAIN, "another program has changed it meanwhile", path)


class NestedStore(Store):
    """A store whose folders are objects over the same files, with another prefix."""

    _prefix = ""

    def subfolder(self, name: str) -> Store:
        return self._folder(self._prefix + name + "/", self.path(name))

    def parent(self) -> tuple[Store, str] | None:
        if not self._prefix:
            return None
        outer, slash, last = self._prefix[:-1].rpartition("/")
        return self._folder(outer + slash, self.root[: -len("/" + last)]), last

    def _folder(self, prefix: str, root: str) -> Store:
        """Return the store of another folder, over the same files."""
        store = copy(self)
        store._prefix, store.root = prefix, root
        return store

    def path(self, name: str = "") -> str:
        return self.root + "/" + name if name else self.root

    def sizes(self, name: str) -> Iterator[tuple[str, int]]:
        for entry, kind in self.entries(name):
            if kind == stat.S_IFREG:
                yield entry, self.size(name + "/" + entry if name else entry)

    def _missing(self, name: str) -> FileNotFoundError:
        text = os.strerror(errno.ENOENT)
        return FileNotFoundError(errno.ENOENT, text, self.path(name))


class MemoryStore(NestedStore):
    """Files in a dictionary, for reading: it has the documents of a dataset."""

    is_writable = False

    def __init__(self, root: str, files: dict[str, bytes]) -> None:
        self.root, self.files = root, files

    def open(self, name: str, end: int = 0) -> Storage:
        return MemoryStorage(self.read(name)[0])

    def read(
        self, name: str, limit: int | None = None, *, whole: bool = False
    ) -> tuple[bytes, object]:
        content = self.files.get(self._prefix + name)
        if content is None:
            raise self._missing(name)
        if whole and limit is not None and len(content) > limit:
            raise too_long(limit, self.path(name), len(content))
        return content[:limit], None

    def exists(self, name: str) -> bool:
        return self._prefix + name in self.files

    def size(self, name: str) -> int:
        return len(self.read(name)[0])

    def total_size(self, names: list[str]) -> int:
        return sum(len(self.files.get(self._prefix + name, b"")) for name in names)

    def entries(self, name: str = "") -> list[tuple[str, int]]:
        kinds, start = {}, self._prefix + (name + "/" if name else "")
        for full in self.files:
            if full.startswith(start):
                first, slash, _ = full[len(start) :].partition("/")
                kinds[first] = stat.S_IFDIR if slash else stat.S_IFREG
        return sorted(kinds.items())
