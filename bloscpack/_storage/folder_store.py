"""A local folder as a store, held open: no name in it leads through a link.

Contract: the folder is found once by its path, which may contain links. After that,
each name is looked up from the open folder, one folder after the other, and a link on
the way is an error. So exchanging a folder for a link changes nothing elsewhere.

Where the system can't open names in an open folder, as on Windows, the path of the
folder is joined with each name, and a link on the way is looked for before.
"""

from __future__ import annotations

import errno
import os
import stat
from _thread import allocate_lock
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from .._engine.forks import cached_property
from .._engine.threads import ordered, run_length
from .._format.names import check_name, is_safe_part, is_short
from ..exceptions import StorageError
from .base import Storage
from .descriptors import Descriptor, Reopenable, read_into, with_room
from .disk import NameInFolder, disk
from .paths import is_missing
from .store import Store, too_long

Result = TypeVar("Result")

# Whether the system finds names in an open folder.
HAS_OPEN_FOLDERS = {os.open, os.rename, os.unlink, os.mkdir, os.rmdir, os.stat} <= (
    os.supports_dir_fd
) and os.scandir in os.supports_fd
# Number of files and folders that are synced at the same time, if there are at least as
# many.
SYNCED_AT_ONCE = 16
# Maximum number of folders inside of a folder that are kept open with it.
KEPT_INSIDE = 2

# How a file is opened to be synced. Its owner may not be allowed to write it. Windows
# syncs only what is open for writing.
SYNC_MODE = "r+b" if os.name == "nt" else "rb"

_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
# How a file is opened.
FILE_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)  # opening a pipe must not wait for a writer
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
# Opens a folder in which names can be used, but not listed.
_NAMES_ONLY = getattr(os, "O_PATH", None)


class NoFileFound(StorageError):
    """Something else is in the place of a file: a folder, or a named pipe."""


class AboutPath(StorageError):
    """An error that says the same about each path."""

    number = errno.ESTALE
    text = ""

    def __init__(self, path: str) -> None:
        super().__init__(self.number, self.text, path)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.filename,)


class LinkFound(AboutPath, NoFileFound):
    """A symbolic link, which is not followed, is in the place of a file or folder."""

    number = errno.ELOOP
    text = "it is a symbolic link, which a dataset can't have"


class StaleDataset(AboutPath):
    """A dataset was removed, or replaced by another one."""

    text = (
        "a writer has removed it, or replaced it by another one: open the dataset again"
    )


class Held(Descriptor):
    """An open folder, until nothing refers to it any more; see `Descriptor`.

    ``inside`` has folders inside of it, which are kept open with it.
    """

    def __init__(
        self, path: str, name: str = "", flags: int = 0, dir_fd: int | None = None
    ) -> None:
        self.path = path
        self.inside: dict[str, Held] = {}
        call = os.open if name else None
        try:
            super().__init__(call, name, flags, dir_fd=dir_fd)
        except PermissionError:  # perhaps this user may not list it
            if _NAMES_ONLY is None:
                raise
            super().__init__(call, name, flags | _NAMES_ONLY, dir_fd=dir_fd)

    @cached_property
    def status(self) -> os.stat_result:
        """Its status when it was first asked for."""
        return os.stat(self.path if self.number is None else self.number)

    def name(self, last: str) -> str:
        """Return the name for a system call that gets the descriptor ``number``."""
        return last if self.number is not None else os.path.join(self.path, last)

    def at(self, last: str) -> str:
        """Return the path that the functions of `disk` get for a name."""
        name = NameInFolder(os.path.join(self.path, last))
        if self.number is None:
            return str(name)
        name.last, name.folder = last, self
        return name

    def subfolder(self, last: str) -> Held:
        """Open a folder in this one."""
        path = self.path.rstrip(os.sep) + os.sep + last
        try:
            if self.number is None:
                if os.path.islink(path):
                    raise LinkFound(path)
                return _by_path(path)
            return Held(path, last, _FLAGS | _NO_LINK, self.number)
        except OSError as error:
            raise self.explained(error, last) from None

    @property
    def was_removed(self) -> bool:
        """Whether the folder itself was removed since it was opened."""
        return self.number is not None and not os.fstat(self.number).st_nlink

    def refuse_links(self, name: str) -> None:
        """Raise `LinkFound` if a link is in the place of a folder on the way."""
        for at, character in enumerate(name):
            if character == "/":
                try:
                    status = os.lstat(self.name(name[:at]), dir_fd=self.number)
                except OSError:
                    return
                if stat.S_ISLNK(status.st_mode):
                    raise LinkFound(os.path.join(self.path, name[:at]))

    def explained(self, error: OSError, last: str) -> OSError:
        """Return the error for a name in this folder, with its path.

        If this user may not use names in the folder, the error names the folder: there
        may be no such file.
        """
        path = os.path.join(self.path, last)
        if error.errno == errno.ENOENT and self.was_removed:
            return StaleDataset(self.path)
        if error.errno in (errno.ENOTDIR, errno.ELOOP, errno.EMLINK, errno.EACCES):
            try:
                status = os.lstat(self.name(last), dir_fd=self.number)
            except PermissionError:
                if outer := os.path.dirname(last):
                    return self.explained(error, outer)
                path = self.path
            except OSError:  # it was removed meanwhile
                pass
            else:
                if stat.S_ISLNK(status.st_mode):
                    return LinkFound(path)
        error.filename = path
        return error


def _by_path(path: str) -> Held:
    """Return a folder where the system can't find names in an open folder."""
    if not stat.S_ISDIR(os.stat(path).st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    return Held(path)


class FolderStore(Reopenable, Store):
    """A folder that is held open, unless the process has too many open files.

    Names are relative, and have slashes; ``''`` is the folder itself. Any thread may
    use it.

    Parameters
    ----------
    root
        Its path.
    around
        The open folder that it is in; None to find it by its path, through links.
    """

    can_rename = True

    def __init__(self, root: str, around: FolderStore | None = None) -> None:
        self.root = root
        self._around = around
        self._identity: tuple[int, int] | None = None

    def subfolder(self, name: str) -> FolderStore:
        """Return a folder inside, which is opened when it is used first."""
        folder = self
        for part in name.split("/"):
            folder = FolderStore(os.path.join(folder.root, part), folder)
        return folder

    def parent(self) -> tuple[FolderStore, str] | None:
        """Return the folder around, and the name in it, unless the name is a link."""
        outer, name = os.path.split(self.root)
        if outer == self.root:
            return None
        around = FolderStore(outer)
        return (around, name) if around.has(name, self) else None

    def path(self, name: str = "") -> str:
        """Return the path of a file."""
        start = self.root.rstrip(os.sep) + os.sep
        return start + name.replace("/", os.sep) if name else self.root

    if TYPE_CHECKING:

        def hold(self) -> Held: ...

    def _reopened(self) -> Held:
        if self._around is not None:
            held = self._around.hold().subfolder(os.path.basename(self.root))
        elif HAS_OPEN_FOLDERS:
            held = Held(self.root, self.root, _FLAGS)
        else:
            held = _by_path(self.root)
        identity = held.status.st_dev, held.status.st_ino
        if self._identity is None:
            self._identity = identity
        elif self._identity != identity:
            raise StaleDataset(self.root)
        return held

    @property
    def status(self) -> os.stat_result:
        """The status of the folder when it was opened."""
        return self.hold().status

    @property
    def is_sticky(self) -> bool:  # type: ignore[override]
        """Whether users who do not trust each other may make files in it."""
        with suppress(FileNotFoundError):
            return bool(self.status.st_mode & stat.S_ISVTX)
        return False

    @property
    def was_removed(self) -> bool:  # type: ignore[override]
        """Whether the folder itself was removed since it was opened."""
        held = self._held
        return held is not None and held.was_removed

    def has(self, name: str, folder: FolderStore) -> bool:
        """Return whether `name` in this folder is `folder` itself, and no link."""
        status = self.status_of(name)
        return status is not None and folder._is_same(status)

    def _is_same(self, status: os.stat_result) -> bool:
        """Return whether a status belongs to this folder, wherever it is now."""
        if self._identity is None:
            self.hold()
        return self._identity == (status.st_dev, status.st_ino)

    def has_its_name(self) -> bool:
        """Return whether the path still leads to this folder."""
        try:
            status = os.stat(self.root)
        except OSError as error:
            if not is_missing(error):
                raise
            return False
        return self._is_same(status)

    # Names

    def _hold_inside(self, name: str, fresh: bool = False) -> Held:
        """Return a folder inside, open; with `fresh` the one that has the name now."""
        whole = self.hold()
        if not name:
            return whole
        held = None if fresh else whole.inside.get(name)
        if held is None:
            folder, _, last = name.rpartition("/")
            around = self._hold_inside(folder, fresh)
            held = around.subfolder(last)
            if len(whole.inside) >= KEPT_INSIDE:  # the next one may be beside it
                whole.inside = {folder: around} if folder else {}
            whole.inside[name] = held
        return held

    def _call(self, name: str, call: Callable[[Held, str], Result]) -> Result:
        """Return the result of a call with the folder of a name and its last part."""
        folder, _, last = name.rpartition("/")
        fresh = not folder
        while True:
            try:
                held = self._hold_inside(folder, fresh)
            except (FileNotFoundError, StaleDataset):
                if fresh:
                    raise
            else:
                try:
                    return call(held, last)
                except OSError as error:
                    if fresh or not isinstance(error, FileNotFoundError):
                        raise held.explained(error, last) from None
            fresh = True  # one that was kept open may have been removed, and made again

    def at(self, name: str) -> str:
        """Return the path that `disk` gets for a name, which is looked up now."""
        check_name(name)
        folder, _, last = name.rpartition("/")
        return self._hold_inside(folder, fresh=True).at(last)

    # Reading

    def status_of(self, name: str) -> os.stat_result | None:
        """Return the status of a file, folder or link; None if there is none."""
        try:
            # Most names are in the folder itself, or missing. A folder that was kept
            # open may have lost its name.
            held = self._held or self.hold()
            try:
                status = _status(held, name)
            except OSError as error:
                held.refuse_links(name)
                if is_missing(error) and not held.was_removed:
                    return None
                raise held.explained(error, name) from None
            return self._call(name, _status) if "/" in name else status
        except OSError as error:
            if is_missing(error):
                return None
            raise

    def exists(self, name: str) -> bool:
        """Return whether there is a file, folder or link of this name."""
        try:
            return self.status_of(name) is not None
        except LinkFound:  # in the place of a folder
            return True

    def is_folder(self, name: str) -> bool:
        """Return whether there is a folder of this name, and no link."""
        status = self.status_of(name)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def identity(self, name: str) -> object:
        """Return a value that changes when a file is replaced; None without a file."""
        status = self.status_of(name)
        return None if status is None else identity_of(status)

    def has_identity(self, name: str, identity: object) -> bool:
        """Return whether a file is still the one that has had an `identity`.

        A link on the way is not an error: no file behind it has this identity.
        """
        try:
            return identity is not None and identity == identity_of(
                _status(self._held or self.hold(), name)
            )
        except OSError:
            return False

    def size(self, name: str) -> int:
        """Return the size of a file in bytes."""
        return self._call(name, _status).st_size

    def total_size(self, names: list[str]) -> int:
        """Return the size of several files in bytes; those that are missing have 0."""
        statuses = map(self.status_of, names)
        return sum(status.st_size for status in statuses if status is not None)

    def descriptor(self, name: str, flags: int = FILE_FLAGS) -> Descriptor:
        """Open a file, and return its descriptor."""
        flags |= _NO_LINK
        return self._call(
            name,
            lambda held, last: Descriptor(
                os.open, held.name(last), flags, dir_fd=held.number
            ),
        )

    def open(self, name: str, end: int = 0) -> OpenFile:
        """Open a file for reading at any position."""
        return OpenFile(self, name)

    def read(
        self, name: str, limit: int | None = None, *, whole: bool = False
    ) -> tuple[bytes, object]:
        """Return the content of a file, at most `limit` bytes, and its `identity`."""
        with self.open(name) as file:
            size = file.size if limit is None else limit
            content = file.read_whole(size) if whole else file.read_at(0, size)
            return content, file.identity

    def _scan(self, name: str) -> Iterator[os.DirEntry[str]]:
        """Yield the entries of a folder; nothing if the folder does not exist.

        Each call opens it once more: a descriptor has a single position in the list.
        An entry is valid until the next one: where the list has no types of files, it
        asks the descriptor, which is closed in the end.
        """
        if not is_short(name):  # no reader takes a name in it
            return
        try:
            held = self._hold_inside(name, fresh=True)
            if held.number is None:
                with with_room(os.scandir, held.path) as entries:
                    yield from entries
                return
            try:
                folder = Descriptor(os.open, ".", _FLAGS, dir_fd=held.number)
            except OSError as error:
                if not name and error.errno == errno.ENOENT:
                    raise StaleDataset(self.root) from error
                error.filename = held.path
                raise
            with with_room(os.scandir, folder.number) as entries:
                yield from entries
        except OSError as error:
            if not is_missing(error):
                raise

    def names(self, name: str = "") -> list[str]:
        """Return the names in a folder; none if there is no such folder."""
        return [entry.name for entry in self._scan(name)]

    def entries(self, name: str = "") -> list[tuple[str, int]]:
        """Return the names of all in a folder, sorted, and their types."""
        return sorted((entry.name, _type_of(entry)) for entry in self._scan(name))

    def sizes(self, name: str) -> Iterator[tuple[str, int]]:
        """Yield name and size of each file in a folder."""
        for entry in self._scan(name):
            with suppress(FileNotFoundError):  # it was removed meanwhile
                if entry.is_file(follow_symlinks=False):
                    yield entry.name, entry.stat(follow_symlinks=False).st_size

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

    def content_version(self) -> object:
        """Return a value that changes when any file is replaced."""
        return [
            (name, self.identity(name))
            for name, kind in self.walk()
            if kind != stat.S_IFDIR
        ]

    # Writing

    def check_writable(self) -> None:
        """Raise an ``OSError`` if the folder is in a file system that is read-only."""
        held = self.hold()
        if hasattr(os, "statvfs"):
            place = held.path if held.number is None else held.number
            if os.statvfs(place).f_flag & os.ST_RDONLY:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), self.root)

    def check_permission(self) -> None:
        """Raise ``PermissionError`` if this user can't make files in the folder."""
        held, mine = self.hold(), os.access in os.supports_effective_ids
        name = held.name(".")
        if not os.access(name, os.W_OK, dir_fd=held.number, effective_ids=mine):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), self.root)

    def create(self, name: str, mode: int = 0o666) -> BinaryIO:
        """Create a file, and return it for writing."""
        return disk.create(self.at(name), mode)

    def rename(self, old: str, new: str, source: FolderStore | None = None) -> None:
        """Rename a file or folder, which may be in another folder `source`."""
        disk.rename((source or self).at(old), self.at(new))

    def link(self, name: str, source: FolderStore) -> None:
        """Give a file in another folder `source` the same name here, too."""
        disk.link(source.at(name), self.at(name))

    def exchange(self, one: str, other: str, source: FolderStore) -> bool:
        """Exchange two folders, `one` in `source`; return False if impossible."""
        return disk.exchange(source.at(one), self.at(other))

    def remove(self, name: str, version: str | None = None) -> None:
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
            with suppress(OSError):
                self.remove_folder(name)  # an empty one
                return
            self.subfolder(name).clear()
            self.remove_folder(name)

    def sync_folder(self, name: str = "") -> None:
        """Wait until the names in a folder are on the disk."""
        disk.sync_folder(self.at(name + "/name" if name else "name"))

    def sync_folders(self, names: Iterable[str]) -> None:
        """Wait until the names in several folders are on the disk."""
        _sync_all(self.sync_folder, sorted(names))

    def sync_files(self, names: Iterable[str]) -> None:
        """Wait until the contents of several files are on the disk."""
        _sync_all(self._sync_file, list(names))

    def _sync_file(self, name: str) -> None:
        with disk.open(self.at(name), SYNC_MODE) as fp:
            disk.sync(fp)

    def sync_tree(self) -> None:
        """Wait until all that is in the folder is on the disk."""
        entries = list(self.walk())
        self.sync_files(name for name, kind in entries if kind == stat.S_IFREG)
        folders = [name for name, kind in entries if kind == stat.S_IFDIR]
        self.sync_folders(["", *folders])

    def clear(self, last: str = "") -> None:
        """Remove all that is in the folder, and the file `last` behind all others.

        The files in a folder are removed before those in the folders inside of it, and
        ``meta`` before ``data``: so a dataset loses its description first, and no
        reader takes its items for some that were never written, or are damaged.
        """
        folders = [self]
        for folder in folders:
            inner = []
            for name, kind in reversed(folder.entries()):
                if kind == stat.S_IFDIR:
                    inner.append(folder.subfolder(name))
                elif folder is not self or name != last:
                    disk.remove(folder.hold().at(name))
            folders += inner
        for folder in reversed(folders[1:]):
            folder.close()
            assert folder._around is not None
            name = folder._around.hold().at(os.path.basename(folder.root))
            try:
                disk.remove_folder(name)
            except OSError as error:
                if error.errno != errno.ENOTEMPTY:
                    raise
                folder.clear()  # another thread or process was still writing a file
                folder.close()
                disk.remove_folder(name)
        if last and self.exists(last):
            self.remove(last)


def _sync_all(sync: Callable[[str], None], names: list[str]) -> None:
    """Call `sync` for each name, at once if there are many.

    A file system writes them together then.
    """
    nthreads = SYNCED_AT_ONCE if len(names) >= SYNCED_AT_ONCE else 1
    run = run_length(len(names), 1, nthreads)
    ordered(names, sync, bool, nthreads, run, waits=True)


class OpenFile(Reopenable, Storage):
    """A file of a dataset, which is closed when it is not used any more."""

    def __init__(self, store: FolderStore, name: str) -> None:
        self._store: FolderStore | None = store  # None when it is closed
        self._name = name
        self._held, self.path = store.descriptor(name), store.path(name)
        status = os.fstat(self._held.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise NoFileFound(errno.EINVAL, "it is not a regular file", self.path)
        self.size = status.st_size
        self.identity = identity_of(status)
        self._lock = allocate_lock()

    @property
    def descriptor(self) -> int:
        """The file descriptor, unless `may_close` was called; -1 if it is closed."""
        return -1 if self._held is None else self._held.fileno()

    if TYPE_CHECKING:

        def hold(self) -> Descriptor: ...

    def _reopened(self) -> Descriptor:
        store = self._store  # another thread may close the file
        if store is None:
            raise StorageError(errno.EBADF, "the file was closed", self.path)
        text = "a writer has removed or replaced it while it was closed"
        try:
            file = store.descriptor(self._name)
        except OSError as error:
            if not is_missing(error):
                raise
            raise StorageError(errno.EAGAIN, text, self.path) from error
        if identity_of(os.fstat(file.fileno())) != self.identity:
            raise StorageError(errno.EAGAIN, text, self.path)
        return file

    def read_into(self, view: memoryview, offset: int) -> int:
        file = self.hold()
        if hasattr(os, "preadv"):
            return read_into(file.fileno(), view, offset, self.path)
        with self._lock:
            os.lseek(file.fileno(), offset, os.SEEK_SET)
            with open(file.fileno(), "rb", closefd=False) as fp:
                return fp.readinto(view)

    def read_whole(self, limit: int) -> bytes:
        """Return the content; a file with more bytes raises `FormatError`."""
        if self.size > limit:  # it is not even read
            raise too_long(limit, self.path, self.size)
        return self.read_at(0, self.size)

    def close(self) -> None:
        """Close the file. It can't be read any more."""
        self._store = None
        super().close()


def identity_of(status: os.stat_result) -> tuple[int, ...]:
    """Return a value that changes when a file is replaced."""
    return status.st_ino, status.st_size, status.st_mtime_ns


def _status(held: Held, last: str) -> os.stat_result:
    return os.lstat(held.name(last), dir_fd=held.number)


def _type_of(entry: os.DirEntry[str]) -> int:
    """Return the type of a file, folder or link in a list."""
    if entry.is_symlink():
        return stat.S_IFLNK
    if entry.is_dir(follow_symlinks=False):
        return stat.S_IFDIR
    return stat.S_IFREG if entry.is_file(follow_symlinks=False) else 0
