"""The system calls that create, sync, rename and remove files.

Strategy: every call that decides whether data survive a crash is a method of `disk`.
Tests put another `Disk` in its place, which fails at, or stops before, any call.

A name may be a path, or a `NameInFolder`: a name in a folder that is held open.
"""

from __future__ import annotations

import errno
import os
from functools import partial
from zlib import crc32

from .._engine.contexts import errors_to
from .descriptors import Descriptor, with_room

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, BinaryIO

    from .._types import BinaryFile, Path
    from .folder_store import Held

# Errors of systems where a folder can't be synced, or need not be. They are ignored.
NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM, errno.EBADF)
# Errors that say that a file can't grow. Their messages get the name of that file.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Maximum number of characters of the target's name in the name of its temporary file or
# folder: the longer name must not exceed the limit of the file system (255 bytes).
NAME_PART = 50
# Number of names of temporary files in which a writer looks for those of dead writers.
# More names are used only if more programs than this write the same file at once.
NAMES_BESIDE = 4
# Numbers of Linux: the current folder, and the ways to rename.
AT_FDCWD = -100
RENAME_NOREPLACE = 1
RENAME_EXCHANGE = 2


class NameInFolder(str):
    """The path of a name in an open folder, in which `disk` finds the name.

    Nothing looks the path up: it is for messages.
    """

    last: str
    folder: Held


def _at(name: str) -> tuple[str, int | None]:
    """Return the name for a system call, and the descriptor of its folder."""
    if isinstance(name, NameInFolder):
        return name.last, name.folder.number
    return name, None


def _showing_paths(name: str, new: str | None = None) -> errors_to:
    """Let an error about names in open folders have their full paths."""

    def show(error: Exception) -> None:
        in_folder = isinstance(name, NameInFolder) or isinstance(new, NameInFolder)
        if isinstance(error, OSError) and in_folder:
            error.filename = str(name)
            if new is not None:
                error.filename2 = str(new)

    return errors_to(show)


def _call(
    function: Callable[..., None], name: str, *args: int, new: str | None = None
) -> None:
    """Make a system call for a name, or for two; an error has their full paths."""
    last, folder = _at(name)
    with _showing_paths(name, new):
        if new is None:
            function(last, *args, dir_fd=folder)
        else:
            other, target = _at(new)
            function(last, other, src_dir_fd=folder, dst_dir_fd=target)


class Disk:
    """The file system."""

    def open(self, path: Path, mode: str) -> BinaryIO:
        """Return an existing file as a file object; `mode` is binary, like "r+b"."""
        return with_room(open, path, mode)  # type: ignore[return-value]

    def create(self, name: str, mode: int) -> BinaryIO:
        """Create a file with the permission bits `mode` and return it, for writing.

        Raises `FileExistsError` if the name is taken.
        """
        last, folder = _at(name)
        # Called by `open`, with no step in Python between: see `Descriptor`.
        opener = partial(os.open, mode=mode, dir_fd=folder)
        with _showing_paths(name):
            # HDF5 reads what it has written. "x" adds O_EXCL, which follows no link.
            fp: Any = with_room(open, last, "x+b", opener=opener)
        fp.raw.name = str(name)
        return fp  # type: ignore[no-any-return]

    def names_beside(self, target: str) -> list[str]:
        """Return the names that temporary files of `target` usually have.

        They contain a checksum of the name of `target`: no other program makes these
        names, and targets whose names begin with the same characters do not share any.
        """
        prefix = _prefix_beside(target)
        return ["%s-%d.tmp" % (prefix, number) for number in range(NAMES_BESIDE)]

    def create_beside(self, target: str, mode: int) -> tuple[str, BinaryIO]:
        """Create a hidden file in the folder of `target`; return its name and itself.

        It is on the file system of `target`, so it can be renamed to it.
        """
        prefix, number = _prefix_beside(target), -1
        while True:
            number += 1
            if number >= NAMES_BESIDE:  # random numbers: no other user can foresee them
                number = int.from_bytes(os.urandom(8), "big") + NAMES_BESIDE
            temporary = "%s-%d.tmp" % (prefix, number)
            if os.path.lexists(temporary):
                continue
            try:
                return temporary, self.create(temporary, mode)
            except FileExistsError:
                continue
            except BaseException:  # Ctrl-C right after the file was created
                if os.path.lexists(temporary):
                    self.remove(temporary)
                raise

    def sync(self, fp: BinaryFile) -> None:
        """Wait until all bytes written to `fp` are on the disk."""
        fp.flush()
        os.fsync(fp.fileno())

    def sync_folder(self, path: str) -> None:
        """Wait until the names in the folder that contains `path` are on the disk."""
        if os.name == "nt":  # folders can't be opened there
            return
        try:
            last, number = _at(path)
            # `path` keeps the number open until then.
            outer = "." if number is not None else os.path.dirname(last) or "."
            folder = Descriptor(os.open, outer, os.O_RDONLY, dir_fd=number)
            os.fsync(folder.fileno())
        except OSError as error:
            if error.errno not in NO_FOLDER_SYNC:
                raise

    def rename(self, old: str, new: str) -> None:
        """Rename a file; it replaces the file that has the new name, if any."""
        _call(os.replace, old, new=new)

    def link(self, old: str, new: str) -> None:
        """Give a file a second name; raise `FileExistsError` if that name is taken."""
        _call(partial(os.link, follow_symlinks=False), old, new=new)

    def has_one_name(self, fp: BinaryFile) -> bool:
        """Return whether a file has a single hard link."""
        return os.fstat(fp.fileno()).st_nlink == 1

    def remove(self, name: str) -> None:
        """Remove a file."""
        _call(os.unlink, name)

    def make_folder(self, name: str, mode: int = 0o777) -> None:
        """Make a folder."""
        _call(os.mkdir, name, mode)

    def rename_to_free_name(self, old: str, new: str) -> None:
        """Rename a file; raise `FileExistsError` if the name is taken.

        Where the system can't, another program can take the name in between.
        """
        failure = _renamed(old, new, RENAME_NOREPLACE)
        if failure == errno.EEXIST or (failure and os.path.lexists(new)):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new)
        if failure:
            self.rename(old, new)

    def exchange(self, one: str, other: str) -> bool:
        """Exchange the names of two folders in one step; return False if impossible.

        Only Linux can.
        """
        return not _renamed(one, other, RENAME_EXCHANGE)

    def remove_folder(self, name: str) -> None:
        """Remove an empty folder."""
        _call(os.rmdir, name)


def _renamed(old: str, new: str, how: int) -> int:
    """Rename as only Linux can; return the number of the error, 0 for none."""
    import ctypes
    import sys

    if not sys.platform.startswith("linux"):
        return errno.ENOSYS
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):  # an old library of C
        return errno.ENOSYS
    arguments: list[int | bytes] = []
    for name, folder in (_at(old), _at(new)):
        arguments += AT_FDCWD if folder is None else folder, os.fsencode(name)
    failed: int = rename(*arguments, how)
    return ctypes.get_errno() if failed else 0


def _prefix_beside(target: str) -> str:
    """Return the beginning of the names of the temporary files of `target`."""
    folder, name = os.path.split(target)
    checksum = crc32(os.fsencode(name))
    return os.path.join(folder, ".%s.%d" % (name[:NAME_PART], checksum))


disk = Disk()
