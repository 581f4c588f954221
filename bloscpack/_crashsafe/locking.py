"""Open a file for changes by one writer at a time."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, suppress

from .. import log
from .._storage.disk import disk
from ..exceptions import StorageError
from . import journal
from .in_place import (
    NO_ROOM,
    Change,
    CopiedChange,
    JournaledChange,
    _mark_changed,
    restore_bytes,
)

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from .._storage.base import Path
    from .journal import Extent


LOCKED = (errno.EAGAIN, errno.EACCES, errno.EWOULDBLOCK)


class LockedFile:
    """A file that is open for changes, and for this writer alone."""

    def __init__(self, path: Path, fp: Any, sync: bool) -> None:
        self.path = path
        self.fp = fp
        self.sync = sync
        #: Whether there is a journal of this writer.
        self.changing = False
        #: What a change is made in that is no change of the file itself.
        self.temporary: str | None = None
        self.journal_name = journal.name_for(os.fsdecode(path))
        status = os.fstat(fp.fileno())
        self.mtime = status.st_mtime_ns
        #: Of the file, in bytes, after what has been committed so far.
        self.size = status.st_size

    def change(
        self, extents: Iterable[Extent], new_head: bytes, unchanged: Extent
    ) -> Change:
        """Return the change, to be entered, of `JournaledChange`, or one to a copy."""
        start, stop = unchanged
        if start == stop and self._may_be_copied():
            return CopiedChange(self, extents)
        return JournaledChange(self, extents, new_head, unchanged)

    def _may_be_copied(self) -> bool:
        """Return whether a copy could take the place of the file, and nobody notice.

        Hard links must go on to mean the same file, and files of others stay theirs.
        """
        status = os.fstat(self.fp.fileno())
        is_mine = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
        try:
            is_there = os.path.samestat(os.stat(os.path.realpath(self.path)), status)
        except OSError:
            is_there = False
        return is_mine and is_there and disk.has_one_name(self.fp)

    def roll_back(self) -> bool:
        """Make the file what its journal says; return whether there was one."""
        kept = journal.load(self.journal_name)
        if kept is None:
            # Never completed, so nothing has been changed.
            if os.path.lexists(self.journal_name):
                disk.remove(self.journal_name)
            return False
        raw = getattr(self.fp, "raw", self.fp)
        kept.check_belongs_to(raw)
        restore_bytes(raw, kept.length, kept.pieces())
        _mark_changed(raw, self.mtime)
        disk.sync(raw)  # always: the journal is the only copy
        self.size = kept.length
        self.drop_journal()
        return True

    def drop_temporary(self) -> None:
        """Remove the copy of a change that was not completed."""
        if self.temporary is not None:
            with suppress(FileNotFoundError):
                disk.remove(self.temporary)
            self.temporary = None

    def drop_journal(self) -> None:
        """Remove the journal: from here on the file is what it is."""
        disk.remove(self.journal_name)
        self.changing = False
        if self.sync:
            disk.sync_folder(self.journal_name)


@contextmanager
def open_locked(
    path: Path, sync: bool = True, mode: str = "r+b"
) -> Iterator[LockedFile]:
    """Open an existing file for changes by this writer alone.

    What a change that was interrupted has left is put right first. With another `mode`
    the file is only kept from others. Raises `StorageError` if there is another writer.
    """
    with _open_and_lock(path, mode) as fp:
        locked_file = LockedFile(path, fp, sync)
        if locked_file.roll_back():
            log.notice(
                "'%s': a change was interrupted; the file has been put back to what it "
                "was before" % os.fsdecode(path)
            )
            fp.seek(0)
        try:
            yield locked_file
        except BaseException as error:
            # Ctrl-C just before or after a change. What can't be put back stays for
            # the next writer.
            with suppress(OSError):
                locked_file.drop_temporary()
                if locked_file.changing:
                    locked_file.roll_back()
            if isinstance(error, OSError) and error.errno in NO_ROOM:
                error.filename = error.filename or os.fsdecode(path)
            raise


@contextmanager
def _open_and_lock(path: Path, mode: str) -> Iterator[Any]:
    journal_name = journal.name_for(os.fsdecode(path))
    while True:
        interrupted = os.path.lexists(journal_name)
        with disk.open(path, "r+b" if interrupted else mode) as fp, _locked(fp, path):
            # Whoever had the lock may have put another file in its place, or died.
            same = os.path.samestat(os.fstat(fp.fileno()), os.stat(path))
            if same and interrupted == os.path.lexists(journal_name):
                yield fp
                return


@contextmanager
def _locked(fp: Any, path: Path) -> Iterator[None]:
    _lock(fp, path)
    try:
        yield
    finally:
        _unlock(fp)


def _lock(fp: Any, path: Path) -> None:
    """Claim a file, where the system and its disk can do that."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(fp.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in LOCKED:
            raise StorageError(
                errno.EAGAIN, "another writer is changing this file", os.fsdecode(path)
            ) from error


def _unlock(fp: Any) -> None:
    """Give the claim up: closing leaves it to a process that was forked meanwhile."""
    with suppress(ImportError, OSError):
        import fcntl

        fcntl.flock(fp.fileno(), fcntl.LOCK_UN)
