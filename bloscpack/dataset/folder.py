"""The files of a dataset: a folder, read and written by relative names.

Contract: no name leads outside of the folder, which is held open (`OpenFolder`). Names
have slashes and safe parts only, and no symbolic link is followed. The size of a file
is checked before memory is allocated for its content. A file counts as missing only if
the system says that there is none; any other error is raised.

A change that was committed but not completed (see `change`) is visible: a file that the
change replaces is read from where its new content is, or the journal has its content.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from _thread import allocate_lock
from contextlib import suppress
from functools import lru_cache

from .._crashsafe.acceptance import (
    CHANGES_RULES,
    DATASET_RULES,
    REMEDY,
    check_in_dataset,
    is_believed,
)
from .._crashsafe.locking import FolderLock
from .._crashsafe.ownership import Attributes
from .._format.dtypes import shown
from .._storage.base import Storage
from .._storage.disk import disk
from .._storage.open_folder import (
    HAS_OPEN_FOLDERS,
    LinkFound,
    OpenFolder,
    is_missing,
    replaced,
)
from .._storage.urls import local_path, without_url
from ..exceptions import DamageError, StorageError, UsageTypeError, UsageValueError

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO, TypeGuard, TypeVar

    from .._crashsafe.acceptance import Rule
    from .._storage.open_folder import Held
    from .._storage.protocols import Path, StorageOptions
    from ..serializers import Json, JsonObject

    # Raises the errors of a document.
    Check = Callable[[bytes, JsonObject], object]
    Result = TypeVar("Result")

# The folder, inside of a dataset, with the files that are not committed yet.
CHANGES = ".bloscpack"
# The file in it that commits a change of several files.
JOURNAL = CHANGES + "/journal"
# Maximum size in bytes of a file of JSON: the attributes of large datasets have a few
# MiB, and no more is read into memory.
MAX_JSON = 64 * 2**20

_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)  # opening a pipe must not wait for a writer
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)
# Opens a file that this user may not read, to learn its status.
_STATUS_ONLY = getattr(os, "O_PATH", None)


# Surrogates that JSON can hold and no file system can. `os.fsdecode` returns the other
# surrogates for bytes of a name that are no text.
_SURROGATE = re.compile("[\ud800-\udc7f\udd00-\udfff]")


def is_safe_part(part: object) -> TypeGuard[str]:
    """Return whether text is the name of a file or folder, and no path."""
    return (
        isinstance(part, str)
        and part not in ("", ".", "..")
        and not any(c in part for c in "/\\\0")
        and (part.isascii() or not _SURROGATE.search(part))
        and not (os.name == "nt" and ":" in part)
    )


# A message about a name that `is_member_name` refuses.
BAD_NAME = (
    "the name of a %s must be a valid name for a folder, without '/', '.bloscpack' and "
    "characters that can't be printed, neither '.', '..' nor 'zarr.json', and must not "
    "begin with '__'; found %.200r"
)


def is_member_name(part: object) -> bool:
    """Return whether a member of a group, or a column of Zarr, can have this name.

    Zarr has reserved ``zarr.json`` and names that begin with two underscores.
    """
    return (
        is_safe_part(part)
        and not part.startswith("__")
        and part.strip(".") != ""
        and part != "zarr.json"
        and CHANGES not in part  # also in the names of folders that are not complete
        and part.isprintable()
    )


def is_safe_name(name: object) -> bool:
    """Return whether a relative name with slashes stays inside of its folder."""
    return isinstance(name, str) and all(map(is_safe_part, name.split("/")))


# The names that the code makes are checked again and again.
_is_checked = lru_cache(1024)(is_safe_name)


class Folder:
    """A dataset or a part of it.

    Attributes
    ----------
    root
        The path of the dataset.
    prefix
        Where this part is in the dataset, with a slash at the end; empty for all of it.
    is_remote
        Whether each read of a file is a round trip to another machine.
    lists
        Whether the names in a folder can be listed.
    depth
        Number of groups around it, up to the one that was opened.
    """

    is_remote = False
    lists = True
    depth = 0

    def __init__(
        self,
        root: str,
        prefix: str = "",
        pending: dict[str, str] | None = None,
        documents: dict[str, bytes] | None = None,
        files: OpenFolder | None = None,
    ) -> None:
        self.root = root
        self.prefix = prefix
        # The files that a committed change replaces, and where their new content is.
        self.pending = {} if pending is None else pending
        # The same for files whose new content is in the journal.
        self.documents = {} if documents is None else documents
        # The folder of the dataset, in which names are relative to `root`.
        self._files = OpenFolder(root) if files is None else files
        # Name and identity of the file that `detect_document` has read, its content and
        # the value in it.
        self._known: tuple[str, object, bytes, Json] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return _reopen, (self.root, self.prefix)

    def close(self) -> None:
        """Close the folder. It is opened again when it is used."""
        self._files.close()

    def version(self) -> object:
        """Return a value that changes when a file is replaced."""
        return [
            (name, status.st_ino, status.st_size, status.st_mtime_ns)
            for name, kind in self.walk()
            if kind != stat.S_IFDIR
            and (status := self._files.status(self.prefix + name))
        ]

    @classmethod
    def open(cls, path: Path) -> Folder:
        """Return the folder of a dataset; raise an ``OSError`` if there is none."""
        path = local_path(path)
        without_url(path, "reading the folder of a dataset")
        root = os.path.abspath(os.fsdecode(path))
        folder = cls(root)
        try:
            if not os.fspath(path):  # it is not the current folder
                os.stat(path)
            folder._files.hold()
        except NotADirectoryError as error:
            raise NotADirectoryError(
                errno.ENOTDIR, "expected the folder of a dataset, found a file", root
            ) from error
        except FileNotFoundError as error:
            error.filename = os.fspath(path)
            raise
        folder.read_journal()
        return folder

    def read_journal(self) -> list[str]:
        """Find out whether a committed change is to be completed.

        Return the names of the files that the change removes. Raises `StorageError` if
        a user who may not change the dataset could have written the journal.
        """
        self.pending.clear()
        self.documents.clear()
        removed: list[str] = []
        if self.has_journal:
            with suppress(FileNotFoundError):  # the writer has just completed it
                removed = self._take_journal(self._read_accepted())
        return removed

    @property
    def has_journal(self) -> bool:
        """Whether there is a journal."""
        status = self.status_of(CHANGES)
        if status is None or stat.S_ISDIR(status.st_mode):
            return status is not None and self.exists(JOURNAL)
        if stat.S_ISLNK(status.st_mode):
            raise LinkFound(self.path(CHANGES))
        return False

    def _read_accepted(self) -> Json:
        """Return the value in the journal, after a check that it may be obeyed."""
        changes = self.changes()
        file = changes.open_file(JOURNAL.rpartition("/")[2])
        try:
            self.check_journal(os.fstat(file.descriptor))
            return _decoded(file.read_at(0, file.size), file.path, file.size)
        finally:
            file.close()

    def changes(self) -> Folder:
        """Return the folder of changes.

        Raises `StorageError` if a user who may not change the dataset could write it.
        """
        changes = self.subfolder(CHANGES)
        self._check(CHANGES_RULES, changes.status)
        return changes

    def check_journal(self, status: os.stat_result) -> None:
        """Raise `StorageError` if a journal with this status would be refused."""
        self._check(DATASET_RULES, status)

    def _check(self, rules: tuple[Rule, ...], status: os.stat_result) -> None:
        check_in_dataset(rules, self.path(JOURNAL), status, self._files.hold())

    def _take_journal(self, journal: Json) -> list[str]:
        """Note the new contents that a journal names; return the files to remove."""
        stored = journal if isinstance(journal, dict) else {}
        files, removed = stored.get("files"), stored.get("removed", [])
        documents = stored.get("documents", {})
        if (
            not isinstance(files, dict)
            or not isinstance(documents, dict)
            or not all(map(is_safe_name, documents))
            or not all(is_safe_part(n) and is_safe_name(f) for n, f in files.items())
            or not isinstance(removed, list)
            or not all(map(is_safe_name, removed))
        ):
            raise DamageError(
                "expected a journal with the names of files in the dataset, found "
                "something else. " + REMEDY,
                section="metadata",
                filename=self.path(JOURNAL),
            )
        self.pending.update({f: "%s/%s" % (CHANGES, n) for n, f in files.items()})
        for name, document in documents.items():
            self.documents[name] = json.dumps(document, indent=2).encode() + b"\n"
        return removed

    @property
    def unfinished(self) -> bool:
        """Whether a change was committed, and is to be completed."""
        return bool(self.pending or self.documents) or self.has_journal

    def child(self, name: str) -> Folder:
        """Return a folder inside that is a part of the dataset."""
        return self._part(self.full(name) + "/")

    def whole(self) -> Folder:
        """Return the folder of the dataset."""
        return self if not self.prefix else self._part("")

    def _part(self, prefix: str) -> Folder:
        shared = self.pending, self.documents, self._files
        return Folder(self.root, prefix, *shared)

    def subfolder(self, name: str) -> Folder:
        """Return a folder inside, in which no journal of this one counts."""
        full = self.full(name)
        return type(self)(self.path(name), files=self._files.folder(full))

    def dataset(self, name: str) -> Folder:
        """Return a folder inside that is a dataset of its own."""
        folder = self.subfolder(name)
        folder.depth = self.depth + 1
        folder.read_journal()
        return folder

    def parent_dataset(self) -> tuple[Folder, str] | None:
        """Return the folder around a dataset, and the name of the dataset in it.

        None if there is none, or if another user may write it. Nothing in it counts
        then.
        """
        outer, name = os.path.split(self.root)
        if outer == self.root:
            return None
        folder = type(self)(outer)
        is_same = folder.has(name, self) and self.believes(folder)
        return (folder, name) if is_same else None

    def has(self, name: str, folder: Folder) -> bool:
        """Return whether `name` in this folder is `folder` itself, and no link."""
        found = self.status_of(name)
        return found is not None and folder._files.is_same(found)

    def believes(self, around: Folder) -> bool:
        """Return whether all users who may write `around` may change this folder."""
        return is_believed(around._files.hold(), self._files.hold())

    @property
    def status(self) -> os.stat_result:
        """The status of the folder of the dataset."""
        return self._files.hold().status

    def hold(self) -> Held:
        """Return the folder of the dataset, open until nothing refers to the result.

        Another thread may close a folder that is not in use.
        """
        return self._files.hold()

    def lock(self) -> FolderLock:
        """Lock the folder; raise `StorageError` if another writer has locked it.

        Raises it also if another writer has put another folder in its place meanwhile.
        """
        self.forget_document()  # another writer may have changed it until now
        files = self._files
        if self.prefix:
            files = files.folder(self.prefix.rstrip("/"))
        held = files.hold()
        lock = FolderLock(files.path, held.number)
        if not files.has_its_name():
            lock.close()
            raise replaced(files.path)
        return lock

    def place_of(self, name: str = "") -> tuple[str, StorageOptions | None]:
        """Return what opens the dataset, or the dataset in a folder inside."""
        return self.path(name), None

    def full(self, name: str) -> str:
        """Return the name of a file, relative to the dataset."""
        assert _is_checked(name), name
        return self.prefix + name

    def path(self, name: str = "") -> str:
        """Return the path of a file."""
        full = self.full(name) if name else self.prefix.rstrip("/")
        return os.path.join(self.root, full.replace("/", os.sep)) if full else self.root

    # Reading

    def status_of(self, name: str) -> os.stat_result | None:
        """Return the status of a file, folder or link; None if there is none."""
        return self._files.status_of(self.full(name))

    def exists(self, name: str) -> bool:
        """Return whether there is a file, folder or link of this name."""
        return self.status_of(name) is not None

    def is_folder(self, name: str) -> bool:
        """Return whether there is a folder of this name, and no link."""
        status = self.status_of(name)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def _pending(self, name: str, call: Callable[[str], Result]) -> Result:
        """Return the result of a call with the name that has the content of a file."""
        full = self.full(name)
        pending = self.pending.get(full) if self.pending else None
        if pending is not None:
            with suppress(FileNotFoundError):  # the file has got its name meanwhile
                return call(pending)
        return call(full)

    def read(self, name: str, limit: int | None = None) -> bytes:
        """Return the content of a file, of which at most `limit` bytes are read."""
        if self.documents and self.full(name) in self.documents:
            return self.documents[self.full(name)]
        file = self.storage(name)
        try:
            return file.read_at(0, file.size if limit is None else limit)
        finally:
            file.close()

    def identity(self, name: str) -> object:
        """Return a value that changes when a file is replaced; None without a file."""
        status = self.status_of(name)
        if status is None:
            return None
        return _identity(status)

    def size(self, name: str) -> int:
        """Return the size of a file in bytes."""
        return self._pending(name, self._files.status).st_size

    def total_size(self, names: list[str]) -> int:
        """Return the size of several files in bytes; those that are missing have 0."""
        total = 0
        for name in names:
            try:
                total += self.size(name)
            except OSError as error:
                if not is_missing(error):
                    raise
        return total

    def storage(self, name: str) -> Storage:
        """Open a file for reading at any position.

        It keeps its content also if the name gets another one, or is removed.
        """
        return self._pending(name, self._open_file)

    def _open_file(self, full: str) -> OpenFile:
        path = os.path.join(self.root, full.replace("/", os.sep))
        return OpenFile(self._files.open(full, _FLAGS), path)

    def open_file(self, name: str) -> OpenFile:
        """Open the file that has a name, whatever a change does to it."""
        return self._open_file(self.prefix + name)

    def attributes(self, name: str = "") -> Attributes | None:
        """Return owner and access of a file, or of the folder; None without a file."""
        full = self.full(name) if name else self.prefix.rstrip("/")
        try:
            if not full or not HAS_OPEN_FOLDERS:
                held = self._files.hold()
                return Attributes(held.name(full) if full else held.number or self.root)
            try:
                number = self._files.open(full, _FLAGS)
            except PermissionError:
                if _STATUS_ONLY is None:
                    raise
                number = self._files.open(full, _STATUS_ONLY)
        except OSError as error:
            if not is_missing(error):
                raise
            return None
        try:
            return Attributes(number)
        finally:
            os.close(number)

    def read_json(self, name: str) -> Json:
        """Return the value in a file of JSON, in the dialect of Python's module.

        Raises `FormatError`, or ``FileNotFoundError``.
        """
        return self.read_document(name)[1]

    def read_document(self, name: str) -> tuple[bytes, Json]:
        """Return the content of a file of JSON, and the value in it."""
        known, self._known = self._known, None
        if known is not None and known[:2] == (name, self.identity(name)):
            return known[2:]
        return self._read_document(name)[1:]

    def detect_document(self, name: str) -> tuple[bytes, Json]:
        """Return the same as `read_document`, which need not read the file again.

        It must be the next call, as in opening a dataset whose kind was found.
        """
        self._known = (name, *self._read_document(name))
        return self._known[2:]

    def forget_document(self) -> None:
        """Let the next call of `read_document` read the file."""
        self._known = None

    def _read_document(self, name: str) -> tuple[object, bytes, Json]:
        """Return what `read_document` does, after the `identity` of the file."""
        if self.is_remote or self.full(name) in self.documents:
            text = self.read(name, MAX_JSON + 1)
            return None, text, _decoded(text, self.path(name), len(text))
        file = self._pending(name, self._open_file)
        try:  # a large file is not even read
            text = file.read_at(0, file.size) if file.size <= MAX_JSON else b""
            return file.state, text, _decoded(text, file.path, file.size)
        finally:
            file.close()

    def read_object(self, name: str, check: Check | None = None) -> JsonObject:
        """Return the object in a file of JSON; raises the errors of `read_json`.

        `check` is called with the content of the file and the object.
        """
        content, value = self.read_document(name)
        if not isinstance(value, dict):
            raise DamageError(
                "expected an object in JSON, found %s" % shown(value),
                section="metadata",
                filename=self.path(name),
            )
        if check is not None:
            check(content, value)
        return value

    def read_description(self, name: str, check: Check | None = None) -> JsonObject:
        """Return the object in a file of JSON; raise `FormatError` if it is missing."""
        try:
            return self.read_object(name, check)
        except FileNotFoundError as error:
            raise DamageError(
                "expected the file, found none",
                section="metadata",
                filename=self.path(name),
            ) from error

    def scan(self, name: str = "") -> Iterator[os.DirEntry[str]]:
        """Yield the entries of a folder; nothing if the folder does not exist.

        No rule for names applies to it.
        """
        try:
            yield from self._files.scan((self.prefix + name).rstrip("/"))
        except OSError as error:
            if not is_missing(error):
                raise

    def folders(self) -> list[str]:
        """Return the names of the folders inside that can be members, sorted."""
        return sorted(
            entry.name
            for entry in self.scan("")
            if entry.is_dir(follow_symlinks=False) and is_member_name(entry.name)
        )

    def names(self, name: str) -> list[str]:
        """Return the names in a folder; none if there is no such folder."""
        return [entry.name for entry in self.scan(name)]

    def sizes(self, name: str) -> Iterator[tuple[str, int]]:
        """Yield name and size of each file in a folder."""
        for entry in self.scan(name):
            with suppress(FileNotFoundError):  # it was removed meanwhile
                if entry.is_file(follow_symlinks=False):
                    yield entry.name, entry.stat(follow_symlinks=False).st_size

    def entries(self, name: str = "") -> list[tuple[str, int]]:
        """Return the names of all in a folder, sorted, and their types.

        They are those of `OpenFolder.entries`. Without such a folder there are none.
        """
        try:
            return self._files.entries((self.prefix + name).rstrip("/"))
        except OSError as error:
            if not is_missing(error):
                raise
            return []

    def walk(self, name: str = "") -> Iterator[tuple[str, int]]:
        """Yield the names and types of a whole tree, sorted.

        A folder comes before its contents. No link is followed. Names that no file of a
        dataset can have are left out.
        """
        for last, kind in self.entries(name):
            if not is_safe_part(last):
                continue
            inner = name + "/" + last if name else last
            yield inner, kind
            if kind == stat.S_IFDIR:
                yield from self.walk(inner)

    # Writing

    def at(self, name: str) -> str:
        """Return the path that the functions of `disk` get for a name."""
        return self._files.at(self.full(name))

    def create(self, name: str, mode: int = 0o666) -> BinaryIO:
        """Create a file, and return it for writing."""
        return disk.create(self.at(name), mode)

    def rename(self, old: str, new: str, source: Folder | None = None) -> None:
        """Rename a file or folder, which may be in another folder `source`."""
        disk.rename((source or self).at(old), self.at(new))

    def exchange(self, one: str, other: str, source: Folder) -> bool:
        """Exchange two folders, `one` in `source`; return False if impossible."""
        return disk.exchange(source.at(one), self.at(other))

    def remove(self, name: str) -> None:
        """Remove a file or a link."""
        disk.remove(self.at(name))

    def make_folder(self, name: str, mode: int = 0o777) -> None:
        """Make a folder."""
        try:
            disk.make_folder(self.at(name), mode)
        except FileExistsError:
            status = self.status_of(name)
            if status is not None and stat.S_ISLNK(status.st_mode):
                raise LinkFound(self.path(name)) from None
            raise

    def remove_folder(self, name: str) -> None:
        """Remove an empty folder."""
        disk.remove_folder(self.at(name))

    def remove_tree(self, name: str) -> None:
        """Remove a folder and all in it, if there is one."""
        if self.is_folder(name):
            self.subfolder(name).clear()
            self.remove_folder(name)

    def clear(self) -> None:
        """Remove all that is in the folder of the dataset."""
        self._files.clear()

    def sync_folder(self, name: str = "") -> None:
        """Wait until the names in a folder are on the disk."""
        disk.sync_folder(self.at(name + "/name" if name else "name"))


class OpenFile(Storage):
    """A file of a dataset, which is closed when it is not used any more."""

    descriptor = -1

    def __init__(self, descriptor: int, path: str) -> None:
        self.descriptor = descriptor
        self.path = path
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise StorageError(errno.EINVAL, "it is not a regular file", path)
        self.size = status.st_size
        self.state = _identity(status)
        self._lock = allocate_lock()

    def read_into(self, view: memoryview, offset: int) -> int:
        done = 0
        while done < len(view):
            count = self._read_some(view[done:], offset + done)
            if count == 0:
                break
            done += count
        return done

    def _read_some(self, view: memoryview, offset: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self.descriptor, [view], offset)
        with self._lock:
            os.lseek(self.descriptor, offset, os.SEEK_SET)
            data = os.read(self.descriptor, len(view))
        view[: len(data)] = data
        return len(data)

    def data_extents(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield extents, ascending, outside of which all bytes are zero."""
        if not hasattr(os, "SEEK_DATA"):
            yield from super().data_extents(start, stop)
            return
        while start < stop:
            try:
                with self._lock:
                    start = os.lseek(self.descriptor, start, os.SEEK_DATA)
                    end = os.lseek(self.descriptor, start, os.SEEK_HOLE)
            except OSError as error:
                if error.errno != errno.ENXIO:  # some file systems can't tell
                    yield start, stop
                return
            if start < stop:
                yield start, min(end, stop)
            start = end

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. No thread may read it any more."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _identity(status: os.stat_result) -> tuple[int, ...]:
    """Return a value that changes when a file is replaced."""
    return status.st_ino, status.st_size, status.st_mtime_ns


def _reopen(root: str, prefix: str) -> Folder:
    """Return a folder that was pickled, as it is now."""
    whole = Folder.open(root)
    return whole._part(prefix)


def _decoded(text: bytes, path: str, size: int) -> Json:
    """Return the value in a file of JSON; raise `FormatError` if it has none."""
    try:
        if size > MAX_JSON:
            raise ValueError("longer than '%d' bytes" % MAX_JSON)
        return json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        reason = error if isinstance(error, ValueError) else "nested too deeply"
        raise DamageError(
            "expected a value in JSON, found '%d' bytes: %s" % (size, reason),
            section="metadata",
            filename=path,
        ) from error


def encode_json(value: Json) -> bytes:
    """Return a value as a line of JSON, as bcolz writes it; raises the errors of it."""
    return json.dumps(value).encode("ascii") + b"\n"


def encode_attributes(values: JsonObject) -> bytes:
    """Return attributes as a line of JSON; raise `UsageError` if that is impossible."""
    for name in values:
        if not isinstance(name, str):
            raise UsageTypeError(
                "the name of an attribute must be text, not %.200r" % (name,)
            )
    try:
        return encode_json(values)
    except TypeError as error:
        raise UsageTypeError("attributes must be JSON: %s" % error) from error
    except (ValueError, RecursionError) as error:
        raise UsageValueError("attributes must be JSON: %s" % error) from error
