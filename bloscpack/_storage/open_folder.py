"""Folders that are held open: names in them are used without following any link.

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
import weakref
from collections import deque

from ..exceptions import StorageError
from .disk import Place, disk

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeVar

    Result = TypeVar("Result")

# Whether the system finds names in an open folder.
HAS_OPEN_FOLDERS = {os.open, os.rename, os.unlink, os.mkdir, os.rmdir, os.stat} <= (
    os.supports_dir_fd
) and os.scandir in os.supports_fd
# Maximum number of folders that the process keeps open: some systems allow 256 files.
# The others are opened again when they are used.
LIMIT = 32
# Maximum number of folders inside of a folder that are kept open with it.
KEPT_INSIDE = 2
# Errors for a name that does not exist. No file has a name that is too long.
NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)

_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
# Opens a folder in which names can be used, but not listed.
_NAMES_ONLY = getattr(os, "O_PATH", None)
# The folders that are open, in the order in which they were opened.
_opened: deque[weakref.ref[OpenFolder]] = deque()


class LinkFound(StorageError):
    """A symbolic link, which is not followed, is in the place of a file or folder."""

    def __init__(self, path: str) -> None:
        super().__init__(
            errno.ELOOP, "it is a symbolic link, which a dataset can't have", path
        )

    def __reduce__(self) -> tuple[object, ...]:
        return LinkFound, (self.filename,)


def is_missing(error: OSError) -> bool:
    """Return whether an error says that there is no file or folder of a name."""
    return error.errno in NOT_THERE


class Held:
    """An open folder, until nothing refers to it any more.

    ``number`` is its file descriptor; None where the system has none for folders.
    """

    def __init__(self, path: str, number: int | None) -> None:
        self.path = path
        self.number = number
        self._status: os.stat_result | None = None

    @property
    def status(self) -> os.stat_result:
        """Its status when it was first asked for."""
        if self._status is None:
            self._status = os.stat(self.path if self.number is None else self.number)
        return self._status

    def fileno(self) -> int:
        """Return the file descriptor."""
        assert self.number is not None
        return self.number

    def name(self, last: str) -> str:
        """Return the name for a system call that gets the descriptor ``number``."""
        return last if self.number is not None else os.path.join(self.path, last)

    def at(self, last: str) -> str:
        """Return the path that the functions of `disk` get for a name."""
        path = os.path.join(self.path, last)
        return path if self.number is None else Place(path, last, self)

    def subfolder(self, last: str) -> Held:
        """Open a folder in this one."""
        path = os.path.join(self.path, last)
        try:
            if self.number is None:
                if os.path.islink(path):
                    raise LinkFound(path)
                if not stat.S_ISDIR(os.stat(path).st_mode):
                    raise NotADirectoryError(
                        errno.ENOTDIR, os.strerror(errno.ENOTDIR), path
                    )
                return Held(path, None)
            return Held(path, _open(last, _FLAGS | _NO_LINK, self.number))
        except OSError as error:
            raise self.explained(error, last) from None

    def explained(self, error: OSError, last: str) -> OSError:
        """Return the error for a name in this folder, with its path."""
        path = os.path.join(self.path, last)
        if error.errno in (errno.ENOTDIR, errno.ELOOP, errno.EMLINK):
            try:
                status = os.lstat(self.name(last), dir_fd=self.number)
            except OSError:  # it was removed meanwhile
                pass
            else:
                if stat.S_ISLNK(status.st_mode):
                    return LinkFound(path)
        error.filename = path
        return error

    def __del__(self) -> None:
        if self.number is not None:
            os.close(self.number)


def _open(name: str, flags: int, folder: int | None = None) -> int:
    """Open a folder, also one that this user may not list."""
    try:
        return os.open(name, flags, dir_fd=folder)
    except PermissionError:
        if _NAMES_ONLY is None:
            raise
        return os.open(name, flags | _NAMES_ONLY, dir_fd=folder)


class OpenFolder:
    """A folder that is held open.

    Names are relative, and have slashes; ``''`` is the folder itself. Any thread may
    use it.

    Parameters
    ----------
    path
        Its path.
    around
        The open folder that it is in; None to find it by its path, through links.
    """

    def __init__(self, path: str, around: OpenFolder | None = None) -> None:
        self.path = path
        self._around = around
        self._held: Held | None = None
        self._identity: tuple[int, int] | None = None
        self._inside: dict[str, Held] = {}

    def folder(self, name: str) -> OpenFolder:
        """Return a folder inside, which is opened when it is used first."""
        folder = self
        for part in name.split("/"):
            folder = OpenFolder(os.path.join(folder.path, part), folder)
        return folder

    def hold(self) -> Held:
        """Return the folder itself, open.

        Raises `StorageError` if it had to be closed, and another one has its name now.
        """
        held = self._held
        if held is None:
            held = self._find()
            found = held.status.st_dev, held.status.st_ino
            if self._identity is None:
                self._identity = found
            elif self._identity != found:
                raise replaced(self.path)
            self._held = held
            _limit(self)
        return held

    def _find(self) -> Held:
        if self._around is not None:
            return self._around.hold().subfolder(os.path.basename(self.path))
        if not HAS_OPEN_FOLDERS:
            os.stat(self.path)
            return Held(self.path, None)
        return Held(self.path, _open(self.path, _FLAGS))

    def is_same(self, status: os.stat_result) -> bool:
        """Return whether a status belongs to this folder, wherever it is now."""
        if self._identity is None:
            self.hold()
        return self._identity == (status.st_dev, status.st_ino)

    def close(self) -> None:
        """Close the folder. It is opened again when it is used."""
        self._held = None
        self._inside = {}

    def has_its_name(self) -> bool:
        """Return whether the path still leads to this folder."""
        try:
            found = os.stat(self.path)
        except OSError as error:
            if not is_missing(error):
                raise
            return False
        return self.is_same(found)

    # Names

    def _hold_inside(self, name: str, fresh: bool = False) -> Held:
        """Return a folder inside, open; with `fresh` the one that has the name now."""
        if not name:
            return self.hold()
        held = None if fresh else self._inside.get(name)
        if held is None:
            folder, _, last = name.rpartition("/")
            held = self._hold_inside(folder, fresh).subfolder(last)
            if len(self._inside) >= KEPT_INSIDE:
                self._inside = {}
            self._inside[name] = held
        return held

    def _use(self, name: str, call: Callable[[Held, str], Result]) -> Result:
        """Return the result of a call with the folder of a name and its last part."""
        folder, _, last = name.rpartition("/")
        held = self._hold_inside(folder)
        try:
            return call(held, last)
        except FileNotFoundError as error:
            if not folder:
                raise held.explained(error, last) from None
        except OSError as error:
            raise held.explained(error, last) from None
        # A folder that was kept open may have been removed, and made again.
        held = self._hold_inside(folder, fresh=True)
        try:
            return call(held, last)
        except OSError as error:
            raise held.explained(error, last) from None

    def at(self, name: str) -> str:
        """Return the path that `disk` gets for a name, which is looked up now."""
        folder, _, last = name.rpartition("/")
        return self._hold_inside(folder, fresh=True).at(last)

    def status(self, name: str) -> os.stat_result:
        """Return the status of a file, folder or link."""
        return self._use(name, _status)

    def status_of(self, name: str) -> os.stat_result | None:
        """Return the status of a file, folder or link; None if there is none."""
        try:
            # Most names are in the folder itself, or missing. A folder that was kept
            # open may have lost its name.
            held = self._held or self.hold()
            try:
                found = _status(held, name)
            except OSError as error:
                if is_missing(error):
                    return None
                raise held.explained(error, name) from None
            return self.status(name) if "/" in name else found
        except OSError as error:
            if is_missing(error):
                return None
            raise

    def open(self, name: str, flags: int) -> int:
        """Open a file, and return its descriptor."""
        return self._use(
            name,
            lambda held, last: os.open(
                held.name(last), flags | _NO_LINK, dir_fd=held.number
            ),
        )

    def scan(self, name: str = "") -> Iterator[os.DirEntry[str]]:
        """Yield the entries of a folder.

        Each call opens it once more: a descriptor has a single position in the list.
        An entry is valid until the next one: where the list has no types of files, it
        asks the descriptor, which is closed in the end.
        """
        held = self._hold_inside(name, fresh=True)
        if held.number is None:
            with os.scandir(held.path) as entries:
                yield from entries
            return
        try:
            number = os.open(".", _FLAGS, dir_fd=held.number)
        except OSError as error:
            if not name and error.errno == errno.ENOENT:
                raise replaced(self.path) from error
            error.filename = held.path
            raise
        try:
            with os.scandir(number) as entries:
                yield from entries
        finally:
            os.close(number)

    def entries(self, name: str = "") -> list[tuple[str, int]]:
        """Return the names of all in a folder, sorted, and their types.

        The types are those of `stat.S_IFMT`, of links as well; 0 for pipes and so on.
        """
        return sorted((entry.name, _type_of(entry)) for entry in self.scan(name))

    def clear(self) -> None:
        """Remove all that is in the folder.

        The files in a folder are removed before those in the folders inside of it: so
        a dataset loses its description first, and no reader takes its items for some
        that were never written.
        """
        folders = [self]
        for folder in folders:
            inner = []
            for name, kind in folder.entries():
                if kind == stat.S_IFDIR:
                    inner.append(folder.folder(name))
                else:
                    disk.remove(folder.hold().at(name))
            folders += inner
        for folder in reversed(folders[1:]):
            folder.close()
            assert folder._around is not None
            disk.remove_folder(folder._around.hold().at(os.path.basename(folder.path)))


def _status(held: Held, last: str) -> os.stat_result:
    return os.lstat(held.name(last), dir_fd=held.number)


def _type_of(entry: os.DirEntry[str]) -> int:
    """Return the type of a file, folder or link in a list."""
    if entry.is_symlink():
        return stat.S_IFLNK
    if entry.is_dir(follow_symlinks=False):
        return stat.S_IFDIR
    return stat.S_IFREG if entry.is_file(follow_symlinks=False) else 0


def replaced(path: str) -> StorageError:
    """Return the error for a dataset that was removed, or replaced by another one."""
    return StorageError(
        errno.ESTALE,
        "a writer has removed it, or replaced it by another one: open the dataset "
        "again",
        path,
    )


def _limit(folder: OpenFolder) -> None:
    """Note that a folder was opened; close others if too many are open."""
    _opened.append(weakref.ref(folder))
    while len(_opened) > LIMIT:
        try:
            oldest = _opened.popleft()()
        except IndexError:  # another thread has taken it
            return
        if oldest is not None:
            oldest.close()
