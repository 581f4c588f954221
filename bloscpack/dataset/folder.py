"""The files of a dataset: a folder, read and written by relative names.

Contract: no name leads outside of the folder. Names have slashes and safe parts only,
symbolic links to files are refused, and so are links to folders elsewhere. The size of
a file is checked before memory is allocated for its content.

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

from .._format.dtypes import shown
from .._storage.base import Storage
from .._storage.disk import remove_tree
from .._storage.urls import local_path, without_url
from ..exceptions import DamageError, StorageError, UsageTypeError, UsageValueError

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeGuard

    from .._storage.protocols import Path, StorageOptions
    from ..serializers import Json, JsonObject

    # Raises the errors of a document.
    Check = Callable[[bytes, JsonObject], object]

# The folder, inside of a dataset, with the files that are not committed yet.
CHANGES = ".bloscpack"
# The file in it that commits a change of several files.
JOURNAL = CHANGES + "/journal"
# Maximum size in bytes of a file of JSON: the attributes of large datasets have a few
# MiB, and no more is read into memory.
MAX_JSON = 64 * 2**20

_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)  # opening a pipe must not wait for a writer
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)


# Half of a character: JSON can hold it, and no file system can.
_SURROGATE = re.compile("[\ud800-\udfff]")


def is_safe_part(part: object) -> TypeGuard[str]:
    """Return whether text is the name of a file or folder, and no path."""
    return (
        isinstance(part, str)
        and part not in ("", ".", "..")
        and not any(c in part for c in "/\\\0")
        and (part.isascii() or not _SURROGATE.search(part))
        and not (os.name == "nt" and ":" in part)
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


class Folder:
    """A dataset or a part of it.

    Attributes
    ----------
    root
        The path of the dataset.
    prefix
        Where this part is in the dataset, with a slash at the end; empty for all of it.
    far
        Whether each read of a file is a round trip to another machine.
    lists
        Whether the names in a folder can be listed.
    depth
        Number of groups around it, up to the one that was opened.
    """

    far = False
    lists = True
    depth = 0

    def __init__(
        self,
        root: str,
        prefix: str = "",
        pending: dict[str, str] | None = None,
        documents: dict[str, bytes] | None = None,
    ) -> None:
        self.root = root
        self.prefix = prefix
        # The files that a committed change replaces, and where their new content is.
        self.pending = {} if pending is None else pending
        # The same for files whose new content is in the journal.
        self.documents = {} if documents is None else documents

    def __reduce__(self) -> tuple[object, ...]:
        return _reopen, (self.root, self.prefix)

    def version(self) -> object:
        """Return a value that changes when a file is replaced."""
        return [
            (path, name, status.st_ino, status.st_size, status.st_mtime_ns)
            for path, _, names in sorted(os.walk(self.path()))
            for name in sorted(names)
            if (status := os.lstat(os.path.join(path, name)))
        ]

    @classmethod
    def open(cls, path: Path) -> Folder:
        """Return the folder of a dataset; raise an ``OSError`` if there is none."""
        path = local_path(path)
        without_url(path, "reading the folder of a dataset")
        os.stat(path)  # an empty name is not the current folder
        root = os.path.abspath(os.fsdecode(path))
        if not stat.S_ISDIR(os.stat(root).st_mode):
            raise NotADirectoryError(
                errno.ENOTDIR, "expected the folder of a dataset, found a file", root
            )
        folder = cls(root)
        folder.read_journal()
        return folder

    def read_journal(self) -> list[str]:
        """Find out whether a committed change is to be completed.

        Return the names of the files that it removes.
        """
        self.pending.clear()
        self.documents.clear()
        removed: list[str] = []
        if self.is_folder(CHANGES) and self.exists(JOURNAL):
            with suppress(FileNotFoundError):  # the writer has just completed it
                removed = self._take_journal(self.read_json(JOURNAL))
        return removed

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
                "something else",
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
        return bool(self.pending or self.documents) or self.exists(JOURNAL)

    def child(self, name: str) -> Folder:
        """Return a folder inside; raise `StorageError` if it is elsewhere."""
        self.check_inside(name)
        prefix = self.full(name) + "/"
        return Folder(self.root, prefix, self.pending, self.documents)

    def dataset(self, name: str) -> Folder:
        """Return a folder inside that is a dataset of its own."""
        folder = type(self)(self.path(name))
        folder.depth = self.depth + 1
        folder.read_journal()
        return folder

    def around(self) -> tuple[Folder, str] | None:
        """Return the folder around a dataset, and the name of the dataset in it.

        None if there is none.
        """
        outer, name = os.path.split(self.root)
        return (type(self)(outer), name) if outer != self.root else None

    def place_of(self, name: str = "") -> tuple[str, StorageOptions | None]:
        """Return what opens the dataset, or the dataset in a folder inside."""
        return self.path(name), None

    def full(self, name: str) -> str:
        """Return the name of a file, relative to the dataset."""
        assert is_safe_name(name), name
        return self.prefix + name

    def path(self, name: str = "") -> str:
        """Return the path of a file."""
        full = self.full(name) if name else self.prefix.rstrip("/")
        return os.path.join(self.root, *full.split("/")) if full else self.root

    def check_inside(self, name: str) -> None:
        """Raise `StorageError` if a link leads from a name out of the dataset."""
        path = self.path(name)
        if not self._has_link(name):
            return
        root = os.path.join(os.path.realpath(self.root), "")
        if not os.path.join(os.path.realpath(path), "").startswith(root):
            raise StorageError(
                errno.EPERM, "a symbolic link leads outside of the dataset", path
            )

    def _has_link(self, name: str) -> bool:
        """Return whether a part of a name, below the root, is a symbolic link."""
        path = self.root
        for part in filter(None, (self.prefix + name).split("/")):
            path = os.path.join(path, part)
            if os.path.islink(path):
                return True
        return False

    # Reading

    def exists(self, name: str) -> bool:
        """Return whether there is a file or folder of this name."""
        return os.path.lexists(self.path(name))

    def is_folder(self, name: str) -> bool:
        """Return whether there is a folder of this name, and no link."""
        try:
            return stat.S_ISDIR(os.lstat(self.path(name)).st_mode)
        except OSError:
            return False

    def read(self, name: str, limit: int | None = None) -> bytes:
        """Return the content of a file, of which at most `limit` bytes are read."""
        if self.documents and self.full(name) in self.documents:
            return self.documents[self.full(name)]
        pending = self.pending.get(self.full(name)) if self.pending else None
        if pending is not None:
            with suppress(FileNotFoundError):  # the file has got its name meanwhile
                return _read(os.path.join(self.root, *pending.split("/")), limit)
        return _read(self.path(name), limit)

    def identity(self, name: str) -> object:
        """Return a value that changes when a file is replaced; None without a file."""
        try:
            status = os.lstat(self.path(name))
        except OSError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns

    def size(self, name: str) -> int:
        """Return the size of a file in bytes."""
        pending = self.pending.get(self.full(name)) if self.pending else None
        if pending is not None:
            with suppress(FileNotFoundError):  # the file has got its name meanwhile
                return os.lstat(os.path.join(self.root, *pending.split("/"))).st_size
        return os.lstat(self.path(name)).st_size

    def total_size(self, names: list[str]) -> int:
        """Return the size of several files in bytes; those that are missing have 0."""
        total = 0
        for name in names:
            with suppress(OSError):
                total += self.size(name)
        return total

    def storage(self, name: str) -> Storage:
        """Open a file for reading at any position.

        It keeps its content also if the name gets another one, or is removed.
        """
        pending = self.pending.get(self.full(name)) if self.pending else None
        if pending is not None:
            with suppress(FileNotFoundError):  # the file has got its name meanwhile
                return OpenFile(os.path.join(self.root, *pending.split("/")))
        return OpenFile(self.path(name))

    def read_json(self, name: str) -> Json:
        """Return the value in a file of JSON, in the dialect of Python's module.

        Raises `FormatError`, or ``FileNotFoundError``.
        """
        return self.read_document(name)[1]

    def read_document(self, name: str) -> tuple[bytes, Json]:
        """Return the content of a file of JSON, and the value in it."""
        known = self.far or self.full(name) in self.documents
        size = 0 if known else self.size(name)  # a large file is not even read
        text = self.read(name, MAX_JSON + 1) if size <= MAX_JSON else b""
        size = max(size, len(text))
        try:
            if size > MAX_JSON:
                raise ValueError("longer than '%d' bytes" % MAX_JSON)
            return text, json.loads(text.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise DamageError(
                "expected a value in JSON, found '%d' bytes: %s" % (size, error),
                section="metadata",
                filename=self.path(name),
            ) from error

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

    def folders(self) -> list[str]:
        """Return the names of the folders inside that can be members, sorted."""
        names = []
        with suppress(OSError), os.scandir(self.path()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False) and is_member_name(entry.name):
                    names.append(entry.name)
        return sorted(names)

    def names(self, name: str) -> list[str]:
        """Return the names in a folder; none if there is no such folder."""
        try:
            return os.listdir(self.path(name))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def sizes(self, name: str) -> Iterator[tuple[str, int]]:
        """Yield name and size of each file in a folder."""
        with os.scandir(self.path(name)) as entries:
            for entry in entries:
                with suppress(OSError):
                    if entry.is_file(follow_symlinks=False):
                        yield entry.name, entry.stat(follow_symlinks=False).st_size

    # Writing

    def remove_tree(self, name: str) -> None:
        """Remove a folder and all in it, if there is one."""
        self.check_inside(name)
        if self.is_folder(name):
            remove_tree(self.path(name))


class OpenFile(Storage):
    """A file of a dataset, which is closed when it is not used any more."""

    descriptor = -1

    def __init__(self, path: str) -> None:
        try:
            self.descriptor = os.open(path, _FLAGS)
        except OSError as error:
            if error.errno in (errno.ELOOP, getattr(errno, "EMLINK", errno.ELOOP)):
                raise StorageError(
                    errno.ELOOP,
                    "it is a symbolic link, which a dataset can't have",
                    path,
                ) from error
            raise
        status = os.fstat(self.descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise StorageError(errno.EINVAL, "it is not a regular file", path)
        self.size = status.st_size
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


def _reopen(root: str, prefix: str) -> Folder:
    """Return a folder that was pickled, as it is now."""
    whole = Folder.open(root)
    return Folder(root, prefix, whole.pending, whole.documents)


def _read(path: str, limit: int | None) -> bytes:
    file = OpenFile(path)
    try:
        return file.read_at(0, file.size if limit is None else limit)
    finally:
        file.close()


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
