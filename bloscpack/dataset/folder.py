"""The files of a dataset: a store, read by relative names.

Contract: no name leads outside of the store, and no symbolic link is followed. The size
of a file is checked before memory is allocated for its content. A file counts as
missing only if the store says that there is none; any other error is raised.

The document of a dataset says which files are elsewhere until a committed change is
complete, and has the documents of members that it commits (see `_commit.change`). It
is read first, and the other files as it says.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TypeGuard, TypeVar

from .._commit.change import Change, Pending, decode_json
from .._commit.objects import is_leftover
from .._format.committed import DOCUMENTS, STAGING
from .._format.dtypes import shown
from .._format.identity import CONSOLIDATED, is_copy
from .._format.names import MAX_PART, check_name, is_safe_part, is_too_long
from .._format.zarr_metadata import (
    OLD_CONSOLIDATED,
    ZARR_JSON,
    encode_copied,
)
from .._storage.base import Storage
from .._storage.folder_store import HAS_OPEN_FOLDERS, FolderStore, OpenFile
from .._storage.paths import is_url, local_path
from .._storage.store import FOUND_FILE, Store
from .._types import Json, JsonObject, Path, StorageOptions
from ..constants import MAX_DOCUMENT
from ..exceptions import DamageError, FormatError, UsageValueError
from ..serializers import encode_document

Check = Callable[[bytes, JsonObject], object]

Result = TypeVar("Result")

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


class Copies:
    """Copies of documents in a group, as ``zarr.consolidate_metadata`` makes them.

    At a URL they count instead of the documents themselves, as for other readers of
    Zarr: the document of the group tells all about its members. A writer, and a check,
    read the documents themselves.

    Parameters
    ----------
    around
        The copies in the group around, and the name of this dataset there.
    """

    def __init__(self, around: tuple[Copies, str] | None = None) -> None:
        self._around = around
        # By the path in this group; the group itself has an empty path. None if
        # only the path is known.
        self._values: dict[str, Json] = {}
        self._contents: dict[str, bytes] = {}
        self._counts = True

    def take(self, content: bytes, value: Json) -> None:
        """Take over the copies in the document of the group, if there are any."""
        with suppress(TypeError, KeyError):
            found = value[CONSOLIDATED]["metadata"]
            if isinstance(found, dict):
                self._values, self._contents = {**found, "": value}, {"": content}

    def take_paths(self, paths: Iterable[str]) -> None:
        """Note that there are members at some paths."""
        self._values |= dict.fromkeys(paths)

    def ignore(self) -> None:
        """Let the documents themselves count from now on, also those of members."""
        self._counts = False

    def get(self, path: str) -> tuple[bytes, Json] | None:
        """Return content and value of the document at a path, if there is a copy."""
        if not self._counts:
            return None
        value = self._values.get(path)
        if not value or not isinstance(value, dict):
            if self._around is None:
                return None
            outer, name = self._around
            return outer.get(name + "/" + path if path else name)
        if path not in self._contents:
            self._contents[path] = encode_copied(value)
        return self._contents[path], value

    def paths(self) -> set[str]:
        """Return the paths of the members inside that are known from copies."""
        found = {*self._values}
        if self._around is not None:
            outer, name = self._around
            start = name + "/"
            found |= {p[len(start) :] for p in outer.paths() if p.startswith(start)}
        return found - {""}


class Folder:
    """A dataset or a part of it.

    Attributes
    ----------
    store
        The files of the dataset.
    is_remote
        Whether each read of a file is a round trip to another machine.
    lists
        Whether the names in a folder can be listed.
    prefix
        Where this part is in the dataset, with a slash at the end; empty for all of it.
    pending
        The pending files and members in the document, for all parts of a dataset.
    copies
        The copies in the documents of groups, for all parts of a dataset.
    depth
        Number of groups around it, up to the one that was opened.
    """

    depth = 0
    # The owner of the dataset in it, at any depth, from which `around` has led to it.
    _trusted_owners: frozenset[int] = frozenset()

    def __init__(
        self, store: Store, prefix: str = "", pending: Pending | None = None
    ) -> None:
        self.store = store
        self.root = store.root
        self.is_remote, self.lists = store.is_remote, store.lists
        self.prefix = prefix
        self.pending = Pending(store) if pending is None else pending
        self.copies = Copies()
        # Name and identity of the file that `detect_document` has read, its content,
        # the value in it, and perhaps the open file. As long as it is open, no other
        # file gets its inode. So a file of the same identity is the same file, and no
        # writer changes it in place.
        self._known: tuple[str, object, bytes, Json, OpenFile | None] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        # A part is read as the document of the whole dataset says.
        document = self.pending.name if self.prefix else None
        return _reopen, (*self.store.address, self.prefix, document)

    def again(self) -> Folder:
        """Return the folder as it is now, also at a URL."""
        return _reopen(*self.__reduce__()[1])  # type: ignore[misc]

    @property
    def in_folder(self) -> FolderStore:
        """The store of a dataset that is known to be in a local folder."""
        assert isinstance(self.store, FolderStore)
        return self.store

    @classmethod
    def open(cls, path: Path, storage_options: StorageOptions | None = None) -> Folder:
        """Return the folder of a dataset, at a path or at a URL.

        Raises an ``OSError`` if there is none; at a URL, reading does.
        """
        store = store_at(path, storage_options)
        if isinstance(store, FolderStore):
            _check_exists(store, path)
        return cls(store)

    def close(self) -> None:
        """Close the folder. It is opened again when it is used."""
        self.forget_document()
        self.store.close()

    def version(self) -> object:
        """Return a value that changes when a file is replaced."""
        store = self.store.subfolder(self.prefix[:-1]) if self.prefix else self.store
        return store.content_version()

    # Folders inside and around

    def child(self, name: str) -> Folder:
        """Return a folder inside that is a part of the dataset."""
        folder = Folder(self.store, self.full(name) + "/", self.pending)
        folder.copies = self.copies
        return folder

    def dataset(self, name: str) -> Folder:
        """Return a folder inside that is a dataset of its own."""
        folder = type(self)(self.store.subfolder(self.full(name)))
        folder.depth = self.depth + 1
        folder.copies = Copies((self.copies, self.full(name)))
        return folder

    def around(self) -> tuple[Folder, str] | None:
        """Return the folder around a dataset, and the name of the dataset in it."""
        found = self.store.parent()
        if found is None:
            return None
        outer = type(self)(found[0])
        outer._trusted_owners = self._trusted_owners or self._owners()
        if not outer._trusted_owners and isinstance(self.store, FolderStore):
            outer._trusted_owners = frozenset([self.store.status.st_uid])  # it is lost
        return outer, found[1]

    def _owners(self) -> frozenset[int]:
        """Return the owners of its documents."""
        store = self.store
        if not isinstance(store, FolderStore):
            return frozenset()
        found = (store.status_of(name) for name in DOCUMENTS)
        return frozenset(s.st_uid for s in found if s is not None)

    @property
    def is_trusted(self) -> bool:
        """Whether its documents may say something about a dataset in it.

        Their owner must own the dataset, too, or be this user or root: any other user
        may have made them, to have other files read, removed or replaced. In a folder
        like ``/tmp``, no document counts.
        """
        trusted = {*self._trusted_owners, getattr(os, "geteuid", int)(), 0}
        return not self.store.is_sticky and self._owners() <= trusted

    def address_of(self, name: str = "") -> tuple[str, StorageOptions | None]:
        """Return what opens the dataset, or the dataset in a folder inside."""
        full = self.full(name) if name else self.prefix[:-1]
        return (self.store.subfolder(full) if full else self.store).address

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
        full, pending = self.full(name), self.pending
        is_known = full in pending.files or bool(self._copy(name))
        is_removed = full in pending.removed
        return is_known or (not is_removed and self.store.exists(full))

    def is_folder(self, name: str) -> bool:
        """Return whether there may be a folder of this name, and no link."""
        return self.store.is_folder(self.full(name))

    def _pending(self, name: str, call: Callable[[str], Result]) -> Result:
        """Return the result of a call with the name that has the content of a file."""
        full = self.full(name)
        if full in self.pending.removed:
            text = os.strerror(errno.ENOENT)
            raise FileNotFoundError(errno.ENOENT, text, self.path(name))
        pending = self.pending.files.get(full)
        if pending is not None:
            with suppress(FileNotFoundError):  # the file has got its name meanwhile
                return call(pending)
        return call(full)

    def read(self, name: str, limit: int | None = None) -> bytes:
        """Return the content of a file, of which at most `limit` bytes are read."""
        return self._read(name, limit)[0]

    def _read(
        self, name: str, limit: int | None, *, whole: bool = False
    ) -> tuple[bytes, object]:
        """Return the content of a file, and its `identity`."""
        content, identity = self._pending(
            name, lambda n: self.store.read(n, limit, whole=whole)
        )
        return content, identity

    def identity(self, name: str) -> object:
        """Return a value that changes when a file is replaced; None if unknown."""
        return self.store.identity(self.full(name))

    def version_of(self, name: str) -> object:
        """Return the `identity` of the file that has the content of a file now."""
        full = self.full(name)
        if full in self.pending.removed:
            return None
        staged = self.pending.files.get(full)
        found = None if staged is None else self.store.identity(staged)
        return self.store.identity(full) if found is None else found

    def found_identity(self, name: str) -> object:
        """Return the `identity` that a file has or had when its kind was found."""
        known = self._known
        return known[1] if known and known[0] == name else self.identity(name)

    def size(self, name: str) -> int:
        """Return the size of a file in bytes."""
        return self._pending(name, self.store.size)

    def total_size(self, names: list[str]) -> int:
        """Return the size of several files in bytes; those that are missing have 0."""
        files, removed = self.pending.files, self.pending.removed
        full = [self.full(name) for name in names]
        return self.store.total_size(
            [files.get(n, n) for n in full if n not in removed]
        )

    def storage(self, name: str, end: int = 0) -> Storage:
        """Open a file for reading at any position; see `Store.open`."""
        return self._pending(name, lambda n: self.store.open(n, end))

    def prepare(self, names: Iterable[str]) -> None:
        """Look for files that are read next, which takes a single time at a URL."""
        if self.is_remote:
            self.store.prepare(self.full(n) for n in names if not self._copy(n))

    def remove(self, name: str) -> None:
        """Remove a file or a link."""
        self.store.remove(self.full(name))

    def remove_tree(self, name: str) -> None:
        """Remove a folder and all in it, if there is one."""
        self.store.remove_tree(self.full(name))

    # Documents

    def _copy(self, name: str) -> tuple[bytes, Json] | None:
        """Return content and value of a document of which a copy counts."""
        path, _, last = self.full(name).rpartition("/")
        return self.copies.get(path) if self.is_remote and last == ZARR_JSON else None

    def read_json(self, name: str) -> Json:
        """Return the value in a file of JSON, in the dialect of Python's module.

        Raises `FormatError`, or ``FileNotFoundError``.
        """
        return self.read_document(name)[1]

    def read_document(
        self, name: str, change: Change | None = None
    ) -> tuple[bytes, Json]:
        """Return the content of a file of JSON, and the value in it.

        The content that an earlier call in the same `change` has staged counts first.
        """
        staged = None if change is None else change.staged(self.full(name))
        if staged is not None:
            return staged, decode_json(staged, self.path(name))
        known = self._known  # keeps the file open
        if known is not None and known[0] == name:
            self._known = None
            # The document may have said since that the new file is elsewhere.
            is_old = self.full(name) in self.pending.files
            if known[1] == self.identity(name) and not is_old:
                return known[2:4]
        members, part = self.pending.members, self.prefix[:-1]
        copy = members.get(part) if members and name == ZARR_JSON and part else None
        if copy is not None and self.is_remote:
            return encode_document(copy, 2), copy
        if copy is not None:
            return self._member_document(part, copy)
        return self._read_document(name)[:2]

    def _read_document(self, name: str) -> tuple[bytes, Json, object]:
        """Return the content of a file of JSON, the value in it, and its `identity`."""
        if copied := self._copy(name):
            return *copied, None
        since = self.pending.nchanges
        content, identity = self._read(name, MAX_DOCUMENT, whole=True)
        value = decode_json(content, self.path(name))
        self._take(name, content, value, since, identity)
        return content, value, identity

    def _member_document(self, part: str, copy: Json) -> tuple[bytes, Json]:
        """Return the document of a member, and the value in it.

        The `copy` in the document of its group counts, unless another program has
        replaced the own document of the member.
        """
        own: Json = None
        with suppress(FileNotFoundError, FormatError):  # it was lost in a crash
            content = self._read(ZARR_JSON, MAX_DOCUMENT, whole=True)[0]
            own = decode_json(content, self.path(ZARR_JSON))
            if own == copy or not is_copy(content, own):
                self.pending.stale.discard(part)
                return content, own
        self.pending.read()  # the document around it may have changed
        now = (self.pending.members or {}).get(part)
        if now is None:
            text = os.strerror(errno.ENOENT)
            raise FileNotFoundError(errno.ENOENT, text, self.path(ZARR_JSON))
        if now != own:
            self.pending.stale.add(part)
        return encode_document(now, 2), now

    def _take(
        self, name: str, content: bytes, value: Json, since: int, version: object
    ) -> None:
        """Let the document of the dataset say where other files are."""
        if not self.prefix and name in DOCUMENTS:
            self.pending.take(name, content, value, since, version)
            if self.is_remote and name == ZARR_JSON:
                self.copies.take(content, value)

    def detect_document(self, name: str) -> tuple[bytes, Json]:
        """Return the same as `read_document`, which need not read the file again.

        It must be the next call, as in opening a dataset whose kind was found. Until
        then, the file stays open where that keeps no writer from replacing it.
        """
        if self.prefix:
            return self.read_document(name)
        known = self._known
        if known is not None and known[:2] == (name, self.identity(name)):
            return known[2:4]
        self._known = held = None
        since = self.pending.nchanges
        if HAS_OPEN_FOLDERS and not self.is_remote:
            file = self.storage(name)
            held = file if isinstance(file, OpenFile) else None
        if held is None:
            content, value, identity = self._read_document(name)
        else:
            content, identity = held.read_whole(MAX_DOCUMENT), held.state
            value = self.pending.decode(name, content, self.path(name))
            self._take(name, content, value, since, identity)
        self._known = name, identity, content, value, held
        return content, value

    @property
    def kept_document(self) -> Json:
        """The value that `detect_document` has read last; None if it was used since."""
        return None if self._known is None else self._known[3]

    def forget_doubtful_document(self) -> None:
        """Let the next call of `read_document` read the file, if it may have changed.

        A writer calls this when it has locked the dataset.
        """
        self.store.prepare(())
        self.copies.ignore()
        if self._known is not None and self._known[4] is None:
            self._known = None

    def forget_document(self) -> None:
        """Let the next call of `read_document` read the file."""
        self._known = None

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
        value = dict(value)  # `check` may change it
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
        members = self.pending.members
        if not self.lists and members is not None:
            start = len(self.prefix)
            inside = [path[start:] for path in members if path.startswith(self.prefix)]
            return sorted(filter(is_member_name, inside))
        if not self.lists and (paths := self._copied_paths()):
            return sorted(path for path in paths if is_member_name(path))
        found = [name for name, kind in self.entries() if kind == stat.S_IFDIR]
        return list(filter(is_member_name, found))

    def _copied_paths(self) -> set[str]:
        """Return the paths of all members inside, from the documents of groups."""
        for name in (ZARR_JSON, OLD_CONSOLIDATED):
            if not self.copies.paths():
                with suppress(FileNotFoundError, FormatError, TypeError, KeyError):
                    document = self.read_json(name)
                    if name == OLD_CONSOLIDATED:  # of format 2: only paths are of use
                        paths = [n.rpartition("/")[0] for n in document["metadata"]]
                        self.copies.take_paths(paths)
        return self.copies.paths()


def store_at(path: Path, storage_options: StorageOptions | None = None) -> Store:
    """Return the store of a dataset, at a path or at a URL."""
    path = local_path(path)
    if is_url(path):
        from .._storage.object_store import ObjectStore

        remote = ObjectStore(path, storage_options)
        remote.check()  # before an error names a file in the folder
        return remote
    folder = FolderStore(os.path.abspath(os.fsdecode(path)))
    if not os.fspath(path) or folder.can_hold:
        return folder
    from .._storage.zip_store import ZipStore, find_zip

    found = find_zip(folder.root)
    if found is None:
        return folder
    store = ZipStore(found[0])
    return store.subfolder(found[1]) if found[1] else store


def _check_exists(store: FolderStore, path: Path) -> None:
    """Raise an ``OSError`` if there is no folder, with the path as the user gave it."""
    try:
        if not os.fspath(path):  # it is not the current folder
            os.stat(path)
        store.hold()
    except NotADirectoryError as error:
        raise NotADirectoryError(errno.ENOTDIR, FOUND_FILE, store.root) from error
    except FileNotFoundError as error:
        error.filename = os.fspath(local_path(path))
        raise


def _reopen(
    address: str, options: StorageOptions | None, prefix: str, document: str | None
) -> Folder:
    """Return a folder that was pickled, as it is now."""
    folder = Folder.open(address, options)
    if document is not None:
        folder.read_document(document)
    return folder.child(prefix[:-1]) if prefix else folder
