"""Files that are opened for changes by one writer at a time.

Contract: `open_locked` locks a file and restores its old content if a change was
interrupted, before it yields the file. The lock ends with the block or the process.

The lock is ``flock``: advisory, so it keeps out only the writers that ask for it, and a
file system or a system may have none. A reader takes no lock (see `snapshot`). A child
process that inherits a lock does not unlock the file when it closes it, and it neither
changes nor restores the file.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from numbers import Real
from typing import TypeVar

from .. import log
from .._engine.contexts import on_error
from .._engine.forks import Owner
from .._storage.descriptors import Descriptor
from .._storage.disk import NO_ROOM, disk
from .._storage.folder_store import FolderStore, StaleDataset
from .._storage.paths import without_url
from .._types import BinaryFile, Path
from ..exceptions import StorageError, UsageError, UsageTypeError
from .ownership import FileAccess, copy_attributes, may_read
from .temporary import LOCKED, TemporaryFile, remove_leftovers, try_lock, unlocking
from .undo import FileChange, restore

Result = TypeVar("Result")
File = BinaryFile | Descriptor
# The file in which Linux lists all locks.
LOCKS = "/proc/locks"
# Maximum number of characters of the name of a process.
MAX_NAME = 64
# Number of seconds that opening, replacing or removing a member waits: another thread
# may have dropped the last reference to it, and not unlocked it yet, or may be letting
# its group commit it.
DROPPED_WAIT = 1.0
# Shortest and longest pause between two attempts to take a lock, in seconds.
PAUSE = 0.002
MAX_PAUSE = 0.02
# Numbers of the file systems without locks that the user has been warned of.
_WITHOUT_LOCKS: set[int] = set()
# Device, inode and process of the files and folders that this process has locked. A
# child process that inherits the list has locked none of them.
_LOCKED_HERE: list[tuple[int, int, int]] = []


class LockedFile:
    """A file that is open, locked, and may be changed.

    ``target`` is the absolute real path, which stays valid if the process changes its
    folder. ``size`` is the length of the file in bytes after the last commit.
    ``begun`` is the change that was begun last, and ``temporary`` the file that is
    going to replace this one; `open_locked` undoes both after an error.
    """

    def __init__(self, path: Path, fp: BinaryFile, sync: bool) -> None:
        self.path = path
        self.fp = fp
        self.owner = Owner()
        self.sync = sync
        self.begun: FileChange | None = None
        self.temporary: TemporaryFile | None = None
        self._has_synced_name = False
        self.target = os.path.realpath(os.fsdecode(path))
        self._raw: BinaryFile = getattr(fp, "raw", fp)
        status = os.fstat(fp.fileno())
        self.mtime = status.st_mtime_ns
        self.size = status.st_size

    def change(self) -> FileChange:
        """Return a change of the file in place, to be used in a ``with`` statement."""
        self.begun = FileChange(self.fp, self.synced, self.mark_changed)
        return self.begun

    def synced(self) -> None:
        """Write file and name to the disk, if changes have to survive a crash of it."""
        if self.sync:
            disk.sync(self._raw)
            if not self._has_synced_name:
                disk.sync_folder(self.target)
                self._has_synced_name = True

    @contextmanager
    def replacement(self) -> Iterator[TemporaryFile]:
        """Yield a new file, which replaces the file when the block ends.

        The new file has the owner and the access of the file. If the block raises an
        error, `open_locked` removes the new file.
        """
        self._check_name()
        if not disk.has_one_name(self.fp):
            error = UsageError(
                "the file has '%d' hard links and can't be rewritten: the new file "
                "would have this name alone. Remove the other links, or rewrite a copy "
                "of the file" % os.fstat(self.fp.fileno()).st_nlink
            )
            error.filename = os.fsdecode(self.path)
            raise error
        try:
            self.temporary = temporary = TemporaryFile(self.target, 0o600)
        except OSError as failure:
            if isinstance(failure, PermissionError):
                failure.strerror = (
                    "the folder '%s' is not writable, but the new content of the file "
                    "is first written beside the file: get write permission for the "
                    "folder, or copy the file to another folder and change the copy"
                    % (os.path.dirname(self.target) or ".")
                )
            failure.filename = os.fsdecode(self.path)
            raise
        yield temporary
        temporary.fp.flush()
        old = FileAccess(self.fp.fileno())
        copy_attributes(temporary.handle, old, owner=True)
        # Only root can give the new file to another user.
        if not may_read(old.status.st_uid, temporary.fp):
            raise StorageError(
                errno.EACCES,
                "the file can only be changed in a copy, which would belong to this "
                "user, and the owner of the file could not read it",
                os.fsdecode(self.path),
            )
        if self.sync:
            disk.sync(temporary.fp)
        size = os.fstat(temporary.fp.fileno()).st_size
        # Writing the copy may have taken minutes. It must neither overwrite a new file
        # of another program nor break a new hard link.
        self._check_name()
        if not disk.has_one_name(self.fp):
            raise StorageError(
                errno.EMLINK,
                "another program has made a hard link to the file meanwhile: the "
                "rewritten file would have this name alone",
                os.fsdecode(self.path),
            )
        try:
            temporary.rename(self.target)  # commit point
        except OSError as failure:
            if failure.filename is not None:
                failure.filename = os.fsdecode(self.path)
                del failure.filename2  # None would appear in the message as '-> None'
            raise
        self.temporary = None
        self.size = size
        if self.sync:
            disk.sync_folder(self.target)

    def _check_name(self) -> None:
        """Raise `StorageError` if the name no longer refers to the file."""
        try:
            status = os.lstat(self.target)
            is_there = os.path.samestat(status, os.fstat(self.fp.fileno()))
        except OSError:
            is_there = False
        if not is_there:
            raise StorageError(
                errno.ENOENT,
                "the file was moved or replaced meanwhile",
                os.fsdecode(self.path),
            )

    def mark_changed(self) -> None:
        """Set the modification time of the file later than after the last commit."""
        status = os.fstat(self._raw.fileno())
        self.size = status.st_size
        # Readers recognize a change by this time, and the clock of a file system may be
        # too coarse to tell two changes apart.
        after = max(status.st_mtime_ns, self.mtime) + 1
        self.mtime = status.st_mtime_ns
        if os.utime in os.supports_fd:
            with suppress(PermissionError):  # only the owner may do it
                os.utime(self._raw.fileno(), ns=(status.st_atime_ns, after))
                self.mtime = after

    def undo(self, error: BaseException) -> None:
        """Undo what was begun and not committed; see `FileChange.undo`."""
        if self.temporary is not None:
            self.temporary.discard()
            self.temporary = None
        if self.begun is not None:
            self.begun.undo(error)


@contextmanager
def open_locked(
    path: Path, sync: bool = True, mode: str = "r+b", wait: float = 0
) -> Iterator[LockedFile]:
    """Open an existing file and lock it; restore it if a change was interrupted.

    A `mode` of "rb" only keeps other writers away. Without `sync` changes survive the
    end of the process, but not of the machine. Raises `StorageError` if another writer
    keeps the file locked for `wait` seconds.
    """
    with _open_and_lock(path, mode, wait) as fp:
        locked_file = LockedFile(path, fp, sync)
        remove_leftovers(locked_file.target, fp.fileno())
        # Always synced: only the file itself has the old bytes.
        if "+" in mode and restore(fp, partial(disk.sync, fp)):
            locked_file.mark_changed()
            log.notice(
                "'%s': a change was interrupted; the old content of the file has been "
                "restored" % os.fsdecode(path)
            )
        try:
            yield locked_file
            locked_file.owner.check(os.fsdecode(path))
        except BaseException as error:
            if not locked_file.owner.is_here:
                locked_file.owner.close_file(fp)
                raise
            # Ctrl-C may come when a change has begun but its block has not, or after
            # it.
            locked_file.undo(error)
            if isinstance(error, OSError) and error.errno in NO_ROOM:
                error.filename = error.filename or os.fsdecode(path)
            raise


@contextmanager
def _open_and_lock(path: Path, mode: str, wait: float) -> Iterator[BinaryFile]:
    """Open and lock the file that has the name `path` when the lock is taken."""
    without_url(path, "changing a file")
    while True:
        with disk.open(path, mode) as fp:
            locked = "another writer%s is changing this file"
            lock = waiting(partial(Lock, fp, path, locked), wait)
            try:
                # The writer that had the lock may have replaced the file.
                if os.path.samestat(os.fstat(fp.fileno()), os.stat(path)):
                    yield fp
                    return
            finally:
                lock.release()


class Lock(Owner):
    """The lock of an open file or folder, until `release` or the end of the process.

    Raises `StorageError` if another writer has it. The message is `locked`, in which
    ``%s`` stands for words that name the process of this writer, if it is known.
    Without locks of the system, nothing keeps other writers away; the user is warned,
    once for each file system that has none, if it `warns`.
    """

    warns = True
    _file: File | None = None
    _unlock: Callable[[], None] | None = None

    def __init__(
        self, file: File, path: Path, locked: str, *, shared: bool = False
    ) -> None:
        super().__init__()
        self._file, descriptor = file, file.fileno()
        status = os.fstat(descriptor)
        self._key = status.st_dev, status.st_ino, os.getpid()
        failure = try_lock(descriptor, shared)
        if failure is None:
            _LOCKED_HERE.append(self._key)
            self._unlock = unlocking(descriptor)
        elif failure.errno in LOCKED:
            is_here = self._key in _LOCKED_HERE
            holder = " in this process" if is_here else _holder_of(status)
            name = os.fsdecode(path)
            raise StorageError(errno.EAGAIN, locked % holder, name) from failure
        elif failure.errno and self.warns and status.st_dev not in _WITHOUT_LOCKS:
            _WITHOUT_LOCKS.add(status.st_dev)
            log.notice(
                "'%s': the file system has no locks (%s), so nothing prevents another "
                "writer from changing the file at the same time"
                % (os.fsdecode(path), failure.strerror)
            )

    @property
    def is_held(self) -> bool:
        """Whether the lock keeps other writers away."""
        return self._unlock is not None

    def release(self) -> None:
        """Unlock the file or folder, unless another process has locked it."""
        unlock, self._unlock = self._unlock, None
        if unlock is not None and self.is_here:
            unlock()
            _LOCKED_HERE.remove(self._key)


def _holder_of(status: os.stat_result) -> str:
    """Return words for the process that has locked a file; '' if it is not known.

    Linux lists the locks of processes that this one may see.
    """
    device = "%02x:%02x" % (os.major(status.st_dev), os.minor(status.st_dev))
    inode = "%s:%d" % (device, status.st_ino)
    try:
        with open(LOCKS, encoding="ascii") as locks:
            for line in locks:
                _, kind, *fields = line.split()
                if kind == "FLOCK" and fields[3] == inode and int(fields[2]) > 0:
                    with open("/proc/%s/comm" % fields[2], errors="replace") as name:
                        text = name.read(MAX_NAME).strip()  # any characters
                        return " (process %s, %r)" % (fields[2], text)
    except (OSError, ValueError, IndexError):
        pass
    return ""


def waiting(open_it: Callable[[], Result], seconds: float) -> Result:
    """Return what a function opens; wait as long as another writer has locked it."""
    if not isinstance(seconds, Real) or seconds != seconds:  # NaN has no end
        raise UsageTypeError(
            "expected a number of seconds to wait, found %r" % (seconds,)
        )
    end, pause = time.monotonic() + seconds, PAUSE
    while True:
        try:
            return open_it()
        except StorageError as error:
            if error.errno != errno.EAGAIN or time.monotonic() >= end:
                raise
        # Two writers that wait for each other must not go on in step.
        time.sleep(pause * (0.5 + os.urandom(1)[0] / 256))
        pause = min(2 * pause, MAX_PAUSE)


class FolderLock(Lock):
    """The lock of a folder, which also keeps it open, until `close`.

    Writers with a `shared` lock do not keep each other away. Raises `StorageError` if
    another writer has locked it, or has put another folder in its place.

    Attributes
    ----------
    is_used
        Whether a change was begun.
    """

    is_used = False

    def __init__(
        self, folder: FolderStore, *, shared: bool = False, warns: bool = True
    ) -> None:
        self.folder, self.warns = folder, warns and not shared
        held = folder.hold()
        if os.name == "nt":  # no locks, and folders can't be opened
            Owner.__init__(self)
            return
        path = folder.root if held.number is None else "."
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        try:
            file = Descriptor(os.open, path, flags, dir_fd=held.number)
        except OSError as error:
            error.filename = folder.root
            raise
        with on_error(self.close):
            locked = "another writer%s has opened this folder; 'timeout' waits for it"
            super().__init__(file, folder.root, locked, shared=shared)
            if not folder.has_its_name():
                raise StaleDataset(folder.root)

    def close(self) -> None:
        """Unlock the folder."""
        self.release()
        self._file = None

    __del__ = close
