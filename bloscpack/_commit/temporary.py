"""Temporary files, which are renamed to their target when they are complete.

Contract: a temporary file is locked as long as its writer lives, so the next writer of
the same target can tell the files of dead writers, and removes them. A file is renamed
or removed only if its name still refers to the file that was created: another user who
can write to the folder may have put another file, or a symbolic link, in its place.
Where there are no locks, files of dead writers stay. A child process that inherits a
file neither renames nor removes it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress

from .._engine.contexts import on_error
from .._engine.forks import Owner
from .._storage.descriptors import Descriptor
from .._storage.disk import disk
from ..exceptions import StorageError

# Errors of `flock` if another process has locked the file.
LOCKED = (errno.EAGAIN, errno.EACCES, errno.EWOULDBLOCK)
# The files of this process that have not got their final name.
unfinished: set[TemporaryFile] = set()


class TemporaryFile(Owner):
    """A new file in the folder of `target`, open as ``fp``, with the name ``name``.

    `target` is a real path, and `mode` are the permission bits.
    """

    def __init__(self, target: str, mode: int) -> None:
        super().__init__()
        self._done = False
        # A descriptor that holds the lock until the file has its final name. Windows
        # has no such lock, and keeps others from renaming or removing an open file.
        self._guard: Descriptor | None = None
        while True:
            self.name, self.fp = disk.create_beside(target, mode)
            with on_error(self.discard):
                unfinished.add(self)
                if os.name == "nt":
                    return
                self._guard = Descriptor(os.dup, self.fp.fileno())
                # Another writer may have removed it before it was locked.
                failure = try_lock(self._guard.fileno())
                is_mine = failure is None or failure.errno not in LOCKED
                if is_mine and self._has_name():
                    return
                unfinished.discard(self)
                # Another user may have locked it. The next writer removes a usual name;
                # no writer looks for other names.
                if self.name not in disk.names_beside(target) and self._has_name():
                    disk.remove(self.name)
                self.fp.close()

    @property
    def handle(self) -> int | str:
        """What functions like `os.chmod` take: a descriptor, a name on Windows."""
        return self.name if os.name == "nt" else self.fp.fileno()

    def _has_name(self) -> bool:
        """Return whether the name refers to the file, and not by a symbolic link."""
        return self._guard is None or _refers_to(self.name, self._guard.fileno())

    def rename(self, target: str, *, exclusive: bool = False) -> None:
        """Close the file and rename it; it replaces the file `target`, if any.

        With `exclusive`, raise `StorageError` if another program has made a file of
        this name: a rename would replace it, a hard link does not.
        """
        self.check(self.name)
        self.fp.close()
        if not self._has_name():
            raise StorageError(
                "another program has removed or replaced the temporary file '%s'"
                % self.name
            )
        if not exclusive:
            try:
                disk.rename(self.name, target)  # commit point
            except PermissionError as error:
                folder = os.path.dirname(target) or "."
                if os.stat(folder).st_mode & stat.S_ISVTX:
                    error.strerror = (
                        "the new content was written beside the file, and the folder "
                        "'%s' is sticky: only the owner of the file or of the folder "
                        "can replace the file there. Copy it to another folder and "
                        "change the copy" % folder
                    )
                raise
            self._finish()
            return
        try:
            try:
                disk.link(self.name, target)  # commit point
            except FileExistsError:
                raise
            except OSError:  # no hard links, or an error that the rename raises again
                disk.rename_to_free_name(self.name, target)  # commit point
            else:
                # A writer that came later may have removed it.
                with suppress(FileNotFoundError):
                    disk.remove(self.name)
        except FileExistsError as error:
            raise StorageError(
                errno.EEXIST, "another program has made this file meanwhile", target
            ) from error
        self._finish()

    def discard(self) -> None:
        """Close and remove the file, unless it has its final name."""
        if not self.is_here:
            self.close_file(self.fp)
            return
        with suppress(OSError):  # closing writes the buffer: the disk may be full
            self.fp.close()
        if self._done:
            return
        try:
            self.remove_name()
        finally:
            self._finish()

    def remove_name(self) -> None:
        """Remove the file, unless the name refers to another one; do not close it."""
        if self.is_here and self._has_name():
            with suppress(FileNotFoundError):
                disk.remove(self.name)

    def _finish(self) -> None:
        self._done = True
        unfinished.discard(self)
        guard, self._guard = self._guard, None
        if guard is not None:
            with suppress(ImportError):  # the system has no locks
                unlocking(guard.fileno())()


def remove_unfinished() -> None:
    """Remove the temporary files of this process, which is about to end.

    Other threads may still write them.
    """
    for temporary in list(unfinished):
        with suppress(OSError):
            temporary.remove_name()


def remove_leftovers(target: str, locked: int | None = None) -> None:
    """Remove the temporary files of `target` whose writers have died.

    `locked` is a descriptor of `target` if this writer has locked it. Then a temporary
    name of the same file is removed too: a writer died after it had given the file its
    final name.
    """
    for name in disk.names_beside(target):
        if not os.access(name, os.F_OK):  # faster than catching an error
            continue
        with suppress(OSError):  # it can't be opened or removed
            status = os.lstat(name)
            if locked is not None and os.path.samestat(status, os.fstat(locked)):
                disk.remove(name)
            # A pipe or a device is not even opened.
            elif stat.S_ISREG(status.st_mode) and (
                hasattr(os, "geteuid") and os.geteuid() in (0, status.st_uid)
            ):  # root may remove the files of all users
                _remove_if_unlocked(name, status)


def _remove_if_unlocked(name: str, status: os.stat_result) -> None:
    access = os.O_RDWR if status.st_mode & stat.S_IWUSR else os.O_RDONLY
    safely = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    file = Descriptor(os.open, name, access | safely)
    try:
        if try_lock(file.fileno()) is None and _refers_to(name, file.fileno()):
            disk.remove(name)
    finally:
        file.close()  # and unlock it


def _refers_to(name: str, descriptor: int) -> bool:
    """Return whether a name refers to an open file, and not by a symbolic link."""
    try:
        status = os.lstat(name)
    except OSError:
        return False
    return os.path.samestat(status, os.fstat(descriptor))


def try_lock(descriptor: int, shared: bool = False) -> OSError | None:
    """Lock an open file or folder; return the error of the system if that fails.

    A `shared` lock keeps only the others away. The number of the error is in `LOCKED`
    if another process has locked it. Any other number says that the file system has no
    locks, none that the system has none.
    """
    try:
        import fcntl

        how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except ImportError as error:
        return OSError(str(error))
    except OSError as error:
        return error
    return None


def unlocking(descriptor: int) -> Callable[[], None]:
    """Return a function that unlocks a file or folder, which `try_lock` has locked.

    It works even when the process ends, where nothing can be imported. Closing is not
    enough if a child process has inherited the descriptor.
    """
    import fcntl

    def unlock() -> None:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)

    return unlock
