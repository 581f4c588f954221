"""Files that are opened for changes by one writer at a time.

Contract: `open_locked` locks a file and restores its old content if a change was
interrupted, before it yields the file. The lock ends with the block or the process.
`LockedFile.remove_journal` is the commit point of a journaled change.

The lock is ``flock``: advisory, so it keeps out only the writers that ask for it, and a
file system or a system may have none. A reader takes no lock (see `snapshot`). A child
process that inherits a lock does not unlock the file when it closes it, and it neither
changes nor restores the file.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, TypeVar

from .. import log
from .._engine.forks import Owner
from .._storage.disk import NO_ROOM, disk
from .._storage.folder_store import FolderStore, replaced
from .._storage.paths import without_url
from .._storage.protocols import BinaryFile, Path
from ..exceptions import StorageError, UsageError, UsageTypeError
from . import journal, trust
from .end_changes import (
    CopiedChange,
    EndChange,
    JournaledChange,
    begin_copy,
    commit_copy,
    restore_bytes,
)
from .temporary import LOCKED, TemporaryFile, remove_leftovers, try_lock, unlocking

if TYPE_CHECKING:
    from .journal import Extent, Head

Result = TypeVar("Result")
# The file in which Linux lists all locks.
LOCKS = "/proc/locks"
# Maximum number of characters of the name of a process.
MAX_NAME = 64
# Shortest and longest pause between two attempts to take a lock, in seconds.
PAUSE = 0.01
MAX_PAUSE = 0.1
# Numbers of the file systems without locks that the user has been warned of.
_WITHOUT_LOCKS: set[int] = set()
# Device, inode and process of the files and folders that this process has locked. A
# child process that inherits the list has locked none of them.
_LOCKED_HERE: list[tuple[int, int, int]] = []


class LockedFile:
    """A file that is open, locked, and may be changed.

    ``target`` is the absolute real path, which stays valid if the process changes its
    folder. ``size`` is the length of the file in bytes after the last commit.
    ``changing`` says whether this writer has a journal, and ``temporary`` is the copy
    that a `CopiedChange` writes to; they tell `open_locked` what to undo.
    """

    def __init__(self, path: Path, fp: BinaryFile, sync: bool) -> None:
        self.path = path
        self.fp = fp
        self.owner = Owner()
        self.sync = sync
        self.changing = False
        self.temporary: TemporaryFile | None = None
        self.target = os.path.realpath(os.fsdecode(path))
        self.journal_name = journal.name_for(self.target)
        self._raw: BinaryFile = getattr(fp, "raw", fp)
        status = os.fstat(fp.fileno())
        self.mtime = status.st_mtime_ns
        self.size = status.st_size

    def change(
        self, extents: Iterable[Extent], new_head: Head, unchanged: Extent
    ) -> EndChange:
        """Return a change, to be used in a ``with`` statement (see `JournaledChange`).

        It is a `CopiedChange` if readers would refuse a journal: `unchanged` is too
        short to identify the file, or this user may not write the file as an owner or
        member of a group.
        """
        start, stop = unchanged
        is_writer = not hasattr(os, "geteuid") or trust.may_write(
            os.geteuid(), self._raw
        )
        if stop - start >= journal.MIN_WITNESS and is_writer:
            return JournaledChange(self, extents, new_head, unchanged)
        if not is_writer:
            self._check_user()
        self._check_copy(
            "the file has '%d' hard links and can't be changed: too few of its "
            "bytes stay unchanged to undo the change after a crash, and a copy of "
            "it would break the links. Remove the other links, or change a copy of "
            "the file"
        )
        return CopiedChange(self, extents)

    @contextmanager
    def replacement(self) -> Iterator[TemporaryFile]:
        """Yield a new file, which replaces the file when the block ends.

        The new file has the owner and the access of the file. If the block raises an
        error, `open_locked` removes the new file.
        """
        self._check_copy(
            "the file has '%d' hard links and can't be rewritten: the new file would "
            "have this name alone. Remove the other links, or rewrite a copy of the "
            "file"
        )
        yield begin_copy(self)
        commit_copy(self)

    def _check_user(self) -> None:
        """Raise `StorageError` if the user database does not list this user.

        A process may have the group of the file without an entry in the database.
        Readers can't see that such a user is a member, so they would refuse its
        journal, and a copy would take the file from its owner.
        """
        if trust.is_unknown_member(self._raw):
            raise StorageError(
                errno.EACCES,
                "the user database does not know the user %d, who would become the "
                "owner of the file: change it as another user" % os.geteuid(),
                os.fsdecode(self.path),
            )

    def _check_copy(self, message: str) -> None:
        """Raise an error unless another file may replace the file.

        `message` is for a file with several hard links; it contains ``%d``.
        """
        self._check_name()
        if not disk.has_one_name(self.fp):
            error = UsageError(message % os.fstat(self.fp.fileno()).st_nlink)
            error.filename = os.fsdecode(self.path)
            raise error

    def _check_name(self) -> None:
        """Raise `StorageError` if the name no longer refers to the file."""
        try:
            found = os.lstat(self.target)
            is_there = os.path.samestat(found, os.fstat(self.fp.fileno()))
        except OSError:
            is_there = False
        if not is_there:
            raise StorageError(
                errno.ENOENT,
                "the file was moved or replaced meanwhile",
                os.fsdecode(self.path),
            )

    def check_before_rename(self) -> None:
        """Raise `StorageError` if other programs have changed the names of the file.

        Writing a copy takes minutes for a large file. Renaming the copy must neither
        overwrite a new file of another program nor break a new hard link.
        """
        self._check_name()
        if not disk.has_one_name(self.fp):
            raise StorageError(
                errno.EMLINK,
                "another program has made a hard link to the file meanwhile: the "
                "rewritten file would have this name alone",
                os.fsdecode(self.path),
            )

    def roll_back(self) -> bool:
        """Restore the old content from the journal; return whether there was one."""
        saved = trust.load(self.journal_name, self._raw)
        if saved is None:
            # The journal is incomplete, so nothing has been changed.
            if os.path.lexists(self.journal_name):
                disk.remove(self.journal_name)
            return False
        try:
            restore_bytes(self._raw, saved.length, saved.old_bytes())
            self.mark_changed()
            disk.sync(self._raw)  # always: the journal has the only copy of the bytes
            self.size = saved.length
            self.remove_journal()
        except OSError as error:
            add_that_journal_remains(error, self.journal_name)
            raise
        return True

    def mark_changed(self) -> None:
        """Set the modification time of the file later than after the last commit."""
        status = os.fstat(self._raw.fileno())
        # Readers recognize a change by this time, and the clock of a file system may be
        # too coarse to tell two changes apart.
        after = max(status.st_mtime_ns, self.mtime) + 1
        self.mtime = status.st_mtime_ns
        if os.utime in os.supports_fd:
            with suppress(PermissionError):  # only the owner may do it
                os.utime(self._raw.fileno(), ns=(status.st_atime_ns, after))
                self.mtime = after

    def remove_temporary(self) -> None:
        """Remove the copy of a `CopiedChange` that was not committed."""
        if self.temporary is not None:
            self.temporary.discard()
            self.temporary = None

    def remove_journal(self) -> None:
        """Remove the journal, which commits the content that the file has now."""
        disk.remove(self.journal_name)
        self.changing = False
        if self.sync:
            disk.sync_folder(self.journal_name)


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
        if locked_file.roll_back():
            log.notice(
                "'%s': a change was interrupted; the old content of the file has been "
                "restored" % os.fsdecode(path)
            )
            fp.seek(0)
        try:
            yield locked_file
            locked_file.owner.check(os.fsdecode(path))
        except BaseException as error:
            if not locked_file.owner.is_here:
                locked_file.owner.close_file(fp)
                raise
            # Ctrl-C may come when a change has begun but its block has not, or after
            # it. A journal that can't be applied now stays for the next writer.
            try:
                locked_file.remove_temporary()
                if locked_file.changing:
                    locked_file.roll_back()
            except OSError as failure:
                if locked_file.changing:
                    add_that_journal_remains(error, locked_file.journal_name, failure)
            if isinstance(error, OSError) and error.errno in NO_ROOM:
                error.filename = error.filename or os.fsdecode(path)
            raise


@contextmanager
def _open_and_lock(path: Path, mode: str, wait: float) -> Iterator[BinaryFile]:
    """Open and lock the file that has the name `path` when the lock is taken."""
    without_url(path, "changing a file")
    journal_name = journal.name_for(os.fsdecode(path))
    while True:
        interrupted = os.path.lexists(journal_name)
        try:
            fp = disk.open(path, "r+b" if interrupted else mode)
        except OSError as error:
            if interrupted and journal_remains(path, journal_name):
                add_that_journal_remains(error, journal_name)
            raise
        with fp:
            locked = "another writer%s is changing this file"
            lock = waiting(partial(Lock, fp.fileno(), path, locked), wait)
            try:
                # The writer that had the lock may have replaced the file, or died and
                # left a journal. Then open it again.
                same = os.path.samestat(os.fstat(fp.fileno()), os.stat(path))
                if same and interrupted == os.path.lexists(journal_name):
                    yield fp
                    return
            finally:
                lock.release()


def journal_remains(path: Path, journal_name: str) -> bool:
    """Return whether there is still a file, and a journal of it."""
    if not os.path.exists(path):
        return False
    try:
        return journal.is_journal(journal_name)
    except OSError:  # it can't be read
        return os.path.lexists(journal_name)


def add_that_journal_remains(
    error: BaseException, journal_name: str, failure: OSError | None = None
) -> None:
    """Add to the message of `error` that a journal remains, and what happens next.

    `failure` is the error that prevented undoing the change, if it is another one.
    """
    message = (
        "the journal '%s' remains: readers see the old content, and the next writer "
        "restores it" % journal_name
    )
    if isinstance(failure, StorageError):  # the journal is not accepted any more
        message = str(failure)
    if not isinstance(error, OSError):
        log.notice(message)
    elif message not in str(error):
        error.strerror = "%s; %s" % (error.strerror or error, message)


class Lock(Owner):
    """The lock of an open file or folder, until `release` or the end of the process.

    Raises `StorageError` if another writer has it. The message is `locked`, in which
    ``%s`` stands for words that name the process of this writer, if it is known.
    Without locks of the system, nothing keeps other writers away; the user is warned,
    once for each file system that has none, if it `warns`.
    """

    warns = True
    _unlock: Callable[[], None] | None = None

    def __init__(
        self, descriptor: int, path: Path, locked: str, *, shared: bool = False
    ) -> None:
        super().__init__()
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
    place = "%s:%d" % (device, status.st_ino)
    try:
        with open(LOCKS, encoding="ascii") as locks:
            for line in locks:
                _, kind, *fields = line.split()
                if kind == "FLOCK" and fields[3] == place and int(fields[2]) > 0:
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
        time.sleep(pause)
        pause = min(2 * pause, MAX_PAUSE)


class FolderLock(Lock):
    """The lock of a folder, which also keeps it open, until `close`.

    Writers with a `shared` lock do not keep each other away. Raises `StorageError` if
    another writer has locked it, or has put another folder in its place.
    """

    _descriptor: int | None = None

    def __init__(self, folder: FolderStore, *, shared: bool = False) -> None:
        self.folder, self.warns = folder, not shared
        held = folder.hold()
        if os.name == "nt":  # no locks, and folders can't be opened
            Owner.__init__(self)
            return
        place = folder.root if held.number is None else "."
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        self._descriptor = os.open(place, flags, dir_fd=held.number)
        try:
            locked = "another writer%s has opened this folder"
            super().__init__(self._descriptor, folder.root, locked, shared=shared)
            if not folder.has_its_name():
                raise replaced(folder.root)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Unlock the folder."""
        self.release()
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    __del__ = close
