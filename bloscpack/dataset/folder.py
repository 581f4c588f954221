"""The files of a dataset: a store, read by relative names.

Contract: no name leads outside of the store, and no symbolic link is followed. The size
of a file is checked before memory is allocated for its content. A file counts as
missing only if the store says that there is none; any other error is raised.

The document of a dataset says which files are elsewhere until a committed change is
complete, and has the documents of members that it commits. It is read first, and the
other files as it says: see `_commit.tree`, which reads all documents.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from copy import deepcopy
from itertools import count
from typing import TypeGuard, TypeVar

from .._commit.change import Change
from .._commit.objects import is_leftover
from .._commit.pin import ReadChanged
from .._commit.tree import COPY, Draft, Tree
from .._format.committed import DOCUMENTS, STAGING
from .._format.dtypes import shown
from .._format.names import MAX_PART, check_name, is_safe_part, is_too_long
from .._format.other_formats import CONVERTED, FILE_CALLS, PREFIX_LENGTH, name_format
from .._format.zarr_metadata import OLD_CONSOLIDATED
from .._storage.base import Storage
from .._storage.folder_store import AboutPath, FolderStore, StaleDataset
from .._storage.paths import is_url, local_path
from .._storage.store import FOUND_FILE, Store
from .._types import Json, JsonObject, Path, StorageOptions
from ..constants import MAGIC
from ..exceptions import DamageError, FormatError, StorageError, UsageValueError

Result = TypeVar("Result")

Check = Callable[[bytes, JsonObject], object]

# Minimum number of attempts, and of seconds, before it is an error that other
# programs change what is read.
RELOADS = 100
RELOAD_SECONDS = 30

# A message about a name that `is_member_name` refuses.
BAD_NAME = (
    "the name of a %s must be a valid name for a folder, without '/', '.bloscpack' and "
    "characters that can't be printed, and neither '.', '..' nor 'zarr.json'; found "
    "%.200r"
)
TOO_LONG = "the name of a %s has at most '%d' bytes, found %.60r"


def is_member_name(part: object) -> TypeGuard[str]:
    """Return whether a member of a group, or a column of Zarr, can have this name.

    Zarr has reserved names that begin with two underscores, and xarray writes them.
    """
    return (
        is_safe_part(part)
        and part.strip(".") != ""
        and part != "zarr.json"
        and STAGING not in part  # also in the names of folders that are not complete
        and part.isprintable()
    )


def check_member_name(what: str, name: object) -> None:
    """Raise `UsageError` for a name that a member or a column can't have."""
    if not is_member_name(name):
        raise UsageValueError(BAD_NAME % (what, name))
    if is_too_long(name):
        raise UsageValueError(TOO_LONG % (what, MAX_PART, name))


class Joined(AboutPath):
    """The document of a group commits a dataset since it was found or opened."""

    text = (
        "a group has been changed as a whole, with this in it, since it was opened, so "
        "that it has one writer: open it again"
    )


def rows_removed(path: str) -> StorageError:
    """Return the error for a dataset that has fewer rows than when it was opened."""
    return StorageError(errno.ESTALE, "a writer has removed rows: open it again", path)


def changes_too_often(path: str) -> StorageError:
    """Return the error for a dataset that is never read in one state."""
    return StorageError(errno.EAGAIN, "other programs change it again and again", path)


def until_unchanged(read: Callable[[], Result]) -> Result:
    """Return what a function returns; call it again if a source changes meanwhile."""
    end = time.monotonic() + RELOAD_SECONDS
    while True:
        try:
            return read()
        except ReadChanged:
            if time.monotonic() > end:
                raise


def attempts(path: str) -> Iterator[None]:
    """Yield for each attempt to read one state, which other programs may change.

    Raises `changes_too_often` after the last one.
    """
    end = time.monotonic() + RELOAD_SECONDS
    for number in count():
        if number >= RELOADS and time.monotonic() > end:
            raise changes_too_often(path)
        yield


def _file_kind(path: str) -> str:
    """Return what a file is that is no dataset, and what reads it; '' if unknown."""
    if not os.path.isfile(path):
        return ""  # opening a named pipe would wait
    begin, size = b"", 0
    with suppress(OSError), open(path, "rb") as fp:
        begin, size = fp.read(PREFIX_LENGTH), os.fstat(fp.fileno()).st_size
    if begin.startswith(MAGIC):
        return ": a .blp file, which bloscpack.load, open_ndarray and open read"
    name = (name_format(begin, size) or "").partition(";")[0]
    suffix = next(filter(path.lower().endswith, FILE_CALLS), "")
    if suffix or name in CONVERTED:
        text = ": %s, which bloscpack.dataset.convert reads"
        return text % (name or "a %s file" % suffix)
    return name and ": " + name


class Folder:
    """A dataset or a part of it.

    Attributes
    ----------
    store
        The files of the dataset.
    is_remote
        Whether each read of a file is a round trip to another machine.
    prefix
        Where this part is in the dataset, with a slash at the end; empty for all of it.
    tree
        The documents, for all parts of a dataset.
    depth
        Number of groups around it, up to the one that was opened.
    node
        Kind and name of the node of Zarr that was opened in it, as far as known.
    """

    depth = 0
    node = "", ""
    # The dataset from which `around` has led here, perhaps in several steps.
    _inner: Folder | None = None

    def __init__(
        self, store: Store, prefix: str = "", tree: Tree | None = None
    ) -> None:
        self.store = store
        self.is_remote = store.is_remote
        self.prefix = prefix
        self.tree = Tree(store) if tree is None else tree

    def __reduce__(self) -> tuple[object, ...]:
        if self.tree.pin is not None:
            self.tree.pin.refuse_copy()
        return _reopen, (*self.store.address, self.prefix, self.tree.state.name)

    @classmethod
    def open(cls, path: Path, storage_options: StorageOptions | None = None) -> Folder:
        """Return the folder of a dataset, at a path or at a URL.

        Raises an ``OSError`` if there is none, with the path as the user gave it; at a
        URL, reading does.
        """
        store = store_at(path, storage_options)
        try:
            if isinstance(store, FolderStore):
                if not os.fspath(path):  # it is not the current folder
                    os.stat(path)
                store.hold()
        except NotADirectoryError as error:
            text = FOUND_FILE + _file_kind(store.root)
            raise NotADirectoryError(errno.ENOTDIR, text, store.root) from error
        except FileNotFoundError as error:
            error.filename = os.fspath(local_path(path))
            raise
        return cls(store)

    def again(self) -> Folder:
        """Return the same folder, wherever it is now; its documents are read again."""
        return _part(Folder(self.store), self.prefix, self.tree.state.name)

    def close(self) -> None:
        """Close the folder. It is opened again when it is used."""
        self.tree.close()
        self.store.close()

    def check_name(self) -> None:
        """Raise `StorageError` if another folder has got the name since it was opened.

        A writer may have removed or replaced the dataset until now.
        """
        if isinstance(self.store, FolderStore) and not self.store.has_its_name():
            raise StaleDataset(self.path())

    def version(self) -> object:
        """Return a value that changes when a file is replaced."""
        return self.own_store().content_version()

    # Folders inside and around

    def child(self, name: str) -> Folder:
        """Return a folder inside that is a part of the dataset."""
        return Folder(self.store, self.full(name) + "/", self.tree)

    def within(self, change: Change) -> Folder:
        """Return the folder as a change leaves it."""
        return Folder(self.store, self.prefix, change.draft_of(self.tree))

    def dataset(self, name: str) -> Folder:
        """Return a folder inside that is a dataset of its own."""
        store = self.own_store(name)
        folder = type(self)(store, tree=Tree(store, (self.tree, self.full(name))))
        folder.depth = self.depth + 1
        return folder

    def around(self) -> tuple[Folder, str] | None:
        """Return the folder around a dataset, and the name of the dataset in it."""
        parent = self.store.parent()
        if parent is None:
            return None
        outer = type(self)(parent[0])
        outer._inner = self._inner or self
        return outer, parent[1]

    def _owners(self) -> frozenset[int]:
        """Return the owners of its documents."""
        store = self.store
        if not isinstance(store, FolderStore):
            return frozenset()
        statuses = (store.status_of(name) for name in DOCUMENTS)
        return frozenset(s.st_uid for s in statuses if s is not None)

    @property
    def is_trusted(self) -> bool:
        """Whether its documents may say something about a dataset in it.

        Their owner must own the dataset, too, or be this user or root: any other user
        may have made them, to have other files read, removed or replaced. In a folder
        like ``/tmp``, no document counts.
        """
        inner, trusted = self._inner, {getattr(os, "geteuid", int)(), 0}
        if inner is not None and isinstance(inner.store, FolderStore):
            # If its document is lost, the owner of its folder counts.
            trusted |= inner._owners() or {inner.store.status.st_uid}
        return not self.store.is_sticky and self._owners() <= trusted

    def own_store(self, name: str = "") -> Store:
        """Return the store of this part alone, or of a folder inside."""
        full = self.full(name) if name else self.prefix[:-1]
        return self.store.subfolder(full) if full else self.store

    def address_of(self, name: str = "") -> tuple[str, StorageOptions | None]:
        """Return what opens the dataset, or the dataset in a folder inside."""
        return self.own_store(name).address

    def full(self, name: str) -> str:
        """Return the name of a file, relative to the dataset."""
        check_name(name)
        return self.prefix + name

    def path(self, name: str = "") -> str:
        """Return the path of a file, or its URL without credentials."""
        return self.store.path(self.full(name) if name else self.prefix[:-1])

    # Files

    def exists(self, name: str) -> bool:
        """Return whether there is a file, folder or link of this name."""
        full = self.full(name)
        staged = self.tree.state.pending.get(full, "")
        is_known = bool(staged) or self.tree.copy(full) is not None
        return is_known or (staged is not None and self.store.exists(full))

    def is_folder(self, name: str) -> bool:
        """Return whether there may be a folder of this name, and no link."""
        full = self.full(name)
        # That of a new member may come with its files.
        return self.store.is_folder(full) or self.tree.will_have(full)

    def read(self, name: str, limit: int | None = None) -> bytes:
        """Return the content of a file, of which at most `limit` bytes are read."""
        full = self.full(name)
        return self.tree.located(full, lambda n: self.store.read(n, limit)[0])

    def identity(self, name: str) -> object:
        """Return a value that changes when a file is replaced; None if unknown."""
        return self.store.identity(self.full(name))

    def seen(self, name: str, *, looks: bool = True) -> tuple[object, Json]:
        """Return values of a description that differ when it is another one.

        They are the identity of the file, and the copy in the document that commits it,
        which a change replaces before the file; None for no copy. If it does not look
        at the file, the identity is the one with which the document was read.
        """
        full, known = self.full(name), self.tree.state
        is_read = not looks and known.name == full
        identity = known.version if is_read else self.store.identity(full)
        return identity, (known.members or {}).get(self.prefix[:-1])

    def version_of(self, name: str) -> object:
        """Return the `identity` of the file that has the content of a file now."""
        full = self.full(name)
        staged = self.tree.state.pending.get(full, "")
        if staged is None:
            return None
        identity = self.store.identity(staged) if staged else None
        return identity or self.store.identity(full)

    def size(self, name: str) -> int:
        """Return the size of a file in bytes."""
        return self.tree.located(self.full(name), self.store.size)

    def total_size(self, names: list[str]) -> int:
        """Return the size of several files in bytes; those that are missing have 0."""
        known, full = self.tree.state.pending, map(self.full, names)
        stored = [known.get(name, name) for name in full]
        return self.store.total_size([name for name in stored if name is not None])

    def storage(self, name: str, end: int = 0) -> Storage:
        """Open a file for reading at any position; see `Store.open`."""
        return self.tree.located(self.full(name), lambda n: self.store.open(n, end))

    def prepare(self, names: Iterable[str]) -> None:
        """Look for files that are read next, which takes a single time at a URL."""
        if self.is_remote:
            full = map(self.full, names)
            self.store.prepare(n for n in full if self.tree.copy(n) is None)

    def remove(self, name: str) -> None:
        """Remove a file or a link."""
        self.store.remove(self.full(name))

    def remove_tree(self, name: str) -> None:
        """Remove a folder and all in it, if there is one."""
        self.store.remove_tree(self.full(name))

    # Documents

    def read_json(self, name: str) -> Json:
        """Return the value in a file of JSON, in the dialect of Python's module.

        Raises `FormatError`, or ``FileNotFoundError``.
        """
        return self.read_document(name)[1]

    def read_document(self, name: str) -> tuple[bytes, Json]:
        """Return the content of a file of JSON, and the value in it.

        At a URL, a document is read once, see `renew`.
        """
        return self.tree.document(self.full(name))

    def renew(self) -> None:
        """Let the document of the dataset be read again at a URL."""
        known = self.tree.state
        if self.is_remote and known.name and not (self.prefix or known.version is COPY):
            self.tree.read()

    def read_object(self, name: str, check: Check | None = None) -> JsonObject:
        """Return the object in a file of JSON; raises the errors of `read_json`.

        `check` is called with the content of the file and the object, and may change
        the object.
        """
        content, value = self.read_document(name)
        if not isinstance(value, dict):
            raise self.damage(
                "expected an object in JSON, found %s" % shown(value), name
            )
        value = deepcopy(value)  # `check` or the caller may change it
        if check is not None:
            check(content, value)
        return value

    def read_description(self, name: str, check: Check | None = None) -> JsonObject:
        """Return the object in a file of JSON; raise `FormatError` if it is missing."""
        try:
            return self.read_object(name, check)
        except FileNotFoundError as error:
            raise self.damage("expected the file, found none", name) from error

    def damage(self, message: str, name: str = "") -> DamageError:
        """Return the error about a document, or about the whole description."""
        return DamageError(message, section="metadata", filename=self.path(name))

    # Lists

    def names(self, name: str) -> list[str]:
        """Return the names in a folder; none if there is no such folder."""
        return self.store.names(self._inside(name))

    def entries(self, name: str = "") -> list[tuple[str, int]]:
        """Return the names of all in a folder, sorted, and their types."""
        return self.store.entries(self._inside(name))

    def sizes(self, name: str) -> Iterator[tuple[str, int]]:
        """Yield name and size of each file in a folder."""
        return self.store.sizes(self._inside(name))

    def _inside(self, name: str) -> str:
        """Return the name of a folder to list. No rule for names applies to it."""
        return (self.prefix + name).rstrip("/")

    @property
    def is_leftover(self) -> bool:
        """Whether all in the folder is of a dataset that is not complete."""
        return not self.prefix and is_leftover(self.store)

    def folders(self) -> list[str]:
        """Return the names of the folders inside that can be members, sorted.

        A server of HTTP can't list folders. Then the document of the group is asked, if
        it has copies of theirs, as ``zarr.consolidate_metadata`` makes them.
        """
        members = self.tree.state.members or {}
        # The folder of a new one may come with its files.
        tree, far = self.tree, self.is_remote or not self.store.lists
        is_known = far or isinstance(tree, Draft) or bool(tree.state.pending)
        start = len(self.prefix)
        inside = [p[start:] for p in members if is_known and p.startswith(self.prefix)]
        if not self.store.lists and self.tree.state.members is not None:
            return sorted(filter(is_member_name, inside))
        if not self.store.lists and (paths := self._copied_paths()):
            return sorted(path for path in paths if is_member_name(path))
        on_disk = [name for name, kind in self.entries() if kind == stat.S_IFDIR]
        return sorted(filter(is_member_name, {*on_disk, *inside}))

    def _copied_paths(self) -> set[str]:
        """Return the paths of all members inside, from the documents of groups."""
        tree = self.tree
        if not tree.state.copies:
            with suppress(FileNotFoundError, FormatError, TypeError, KeyError):
                # Of format 2: only the paths are of use.
                names = self.read_json(OLD_CONSOLIDATED)["metadata"]
                tree.take_paths(name.rpartition("/")[0] for name in names)
        return {*tree.state.copies} - {""}


def store_at(path: Path, storage_options: StorageOptions | None = None) -> Store:
    """Return the store of a dataset, at a path or at a URL."""
    path = local_path(path)
    if is_url(path):
        from .._storage.object_store import ObjectStore

        remote = ObjectStore(path, storage_options)
        remote.check()  # before an error names a file in the folder
        return remote
    folder = FolderStore(os.path.abspath(os.fsdecode(path)))
    if not os.fspath(path):
        return folder
    with suppress(OSError, ValueError):  # ValueError: a zero byte
        folder.hold()
        return folder
    from .._storage.zip_store import ZipStore, find_zip

    archive = find_zip(folder.root)
    if archive is None:
        return folder
    store = ZipStore(archive[0])
    return store.subfolder(archive[1]) if archive[1] else store


def _reopen(
    address: str, options: StorageOptions | None, prefix: str, document: str
) -> Folder:
    """Return a folder that was pickled, as it is now."""
    return _part(Folder.open(address, options), prefix, document)


def _part(whole: Folder, prefix: str, document: str) -> Folder:
    """Return a part of a dataset, which is read as its document says."""
    if prefix:
        whole.tree.read(document)
    return whole.child(prefix[:-1]) if prefix else whole
