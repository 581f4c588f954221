"""Changing a file in place: all changes are made, or none.

`claimed` opens a file for one writer at a time and first puts back what a change that
was interrupted has left. A `Change` keeps the bytes that it writes over until the last
write has been done: in the journal where the file has a name, so that neither the end
of the process nor of the machine does any harm; in memory for a mere file object.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from contextlib import contextmanager, suppress

from .. import log
from .._storage.base import write_all, writes_at_end
from .._storage.disk import disk
from ..exceptions import StorageError, UsageError
from . import journal

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from .._format.chunks import Buffer
    from .._storage.base import Path
    from .journal import Extent

LOCKED = (errno.EAGAIN, errno.EACCES, errno.EWOULDBLOCK)
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Change:
    """What a block does to a file object: it stays if the block ends well.

    All of it goes through `overwrite` and `truncate`. `extents` are the (start, stop)
    that they may write over; what lies behind the old end is free. Raises `UsageError`
    for a file that can only be added to.
    """

    def __init__(self, fp: Any, extents: Iterable[Extent]) -> None:
        if writes_at_end(fp):
            raise UsageError(
                "a file that is opened with 'a' can't be changed: expected 'r+b'"
            )
        self._fp = fp
        # What a buffer could not write it would write later, over what was put back.
        self._raw = fp.raw if isinstance(fp, io.BufferedRandom) else fp
        self._length = self._raw.seek(0, os.SEEK_END)
        self._extents = [
            (start, min(stop, self._length))
            for start, stop in extents
            if start < self._length
        ]

    def overwrite(self, offset: int, data: Buffer) -> None:
        """Write `data` at `offset`."""
        self._raw.seek(offset)
        write_all(self._raw, data)

    def truncate(self, length: int) -> None:
        """Cut the file at `length`."""
        self._raw.truncate(length)

    def __enter__(self) -> Change:
        self._keep()
        return self

    def __exit__(self, error_type: type[BaseException] | None, *rest: object) -> None:
        committed = False
        try:
            if error_type is None:
                self._commit()
                committed = True
        finally:
            if not committed:
                self._put_back()
            # The buffer forgets what it has read.
            self._fp.seek(0, os.SEEK_END)

    def _keep(self) -> None:
        """Keep what is going to be written over."""
        raise NotImplementedError

    def _commit(self) -> None:
        """Let the change stay."""
        raise NotImplementedError

    def _put_back(self) -> None:
        """Undo the change, or what has been done of it."""
        raise NotImplementedError


class BorrowedChange(Change):
    """A change to a file object, whose old bytes are kept in memory."""

    def __init__(self, target: Borrowed, extents: Iterable[Extent]) -> None:
        super().__init__(target.fp, extents)
        self._target = target

    def _keep(self) -> None:
        self._kept = []
        for start, stop in self._extents:
            for piece in journal.read_pieces(self._raw, start, stop):
                self._kept.append((start, piece))
                start += len(piece)
        self._target.changing = self

    def _commit(self) -> None:
        self._raw.flush()
        self._target.changing = None

    def _put_back(self) -> None:
        put_back(self._raw, self._length, self._kept)
        self._raw.flush()
        self._target.changing = None


def put_back(raw: Any, length: int, pieces: Iterable[tuple[int, Buffer]]) -> None:
    """Give a file its old length, and its old bytes in the places that had changed."""
    if raw.seek(0, os.SEEK_END) > length:
        raw.truncate(length)  # first: this may be what makes room
    for offset, data in pieces:
        raw.seek(offset)
        write_all(raw, data)
    raw.truncate(length)


def _mark_changed(raw: Any, before: int) -> None:
    """Give a file a time of change that it never had, however coarse the clock is.

    Readers know by it that what they read may be of two states.
    """
    if os.utime in os.supports_fd:
        status = os.fstat(raw.fileno())
        times = status.st_atime_ns, max(status.st_mtime_ns, before) + 1
        with suppress(PermissionError):  # only the owner may
            os.utime(raw.fileno(), ns=times)


def take_over(temporary: str, replaced: os.stat_result) -> None:
    """Give a file the owner and the permissions of the one that it stands for.

    Where the system does not allow that, nobody may do more than before.
    """
    uid, gid, mode = replaced.st_uid, replaced.st_gid, stat.S_IMODE(replaced.st_mode)
    if not _chown(temporary, uid, gid):
        mode &= ~stat.S_ISUID
        if not _chown(temporary, -1, gid):
            # Who was of the group may now be one of the others, and the reverse.
            both = mode >> 3 & mode & stat.S_IRWXO
            mode = mode & stat.S_IRWXU | both << 3 | both
    os.chmod(temporary, mode)


def _chown(name: str, uid: int, gid: int) -> bool:
    """Return whether the system allows a file to have that owner and group."""
    if not hasattr(os, "chown"):
        return True
    try:
        os.chown(name, uid, gid)
    except PermissionError:
        return False
    return True


class JournaledChange(Change):
    """A change to a file with a name, which survives whatever ends the process.

    `new_head` is what the start of the first extent will become, `unchanged` an extent
    that stays; the file is known again by them. Without `sync` a crash of the machine,
    unlike one of the process, may lose the journal before the change.
    """

    def __init__(
        self,
        claim: Claim,
        extents: Iterable[Extent],
        new_head: bytes,
        unchanged: Extent,
    ) -> None:
        super().__init__(claim.fp, extents)
        self._claim = claim
        self._new_head = new_head
        self._unchanged = unchanged

    def _keep(self) -> None:
        claim = self._claim
        if claim.sync:
            # A journal that outlives bytes which were never on the disk fits nothing.
            disk.sync(self._raw)
        try:
            with disk.create(claim.journal_name, 0o600) as fp:
                take_over(claim.journal_name, os.fstat(self._raw.fileno()))
                claim.changing = True
                for piece in journal.encode(
                    self._raw, self._extents, self._new_head, self._unchanged
                ):
                    fp.write(piece)
                if claim.sync:
                    disk.sync(fp)
                    disk.sync_folder(claim.journal_name)
                journal.close(fp)
        except FileExistsError:  # another writer's, where nothing can be locked
            raise
        except BaseException:
            with suppress(FileNotFoundError):
                disk.remove(claim.journal_name)
            raise

    def _commit(self) -> None:
        _mark_changed(self._raw, self._claim.mtime)
        if self._claim.sync:
            disk.sync(self._raw)
        self._claim.size = os.fstat(self._raw.fileno()).st_size
        self._claim.drop_journal()

    def _put_back(self) -> None:
        self._claim.roll_back()


class CopiedChange(Change):
    """A change to a copy, which then takes the place of the file.

    For where nothing stays that a journal could know the file by.
    """

    def __init__(self, claim: Claim, extents: Iterable[Extent]) -> None:
        super().__init__(claim.fp, extents)
        self._claim = claim
        self._target = os.path.realpath(os.fsdecode(claim.path))

    def _keep(self) -> None:
        old = self._raw
        try:
            self._claim.temporary, self._raw = disk.create_beside(self._target, 0o600)
        except OSError as error:
            error.filename = os.fsdecode(self._claim.path)
            raise
        try:
            for piece in journal.read_pieces(old, 0, self._length):
                self._raw.write(piece)
        except BaseException:
            self._put_back()
            raise

    def _commit(self) -> None:
        temporary = self._claim.temporary
        assert temporary is not None
        self._raw.flush()
        take_over(temporary, os.fstat(self._fp.fileno()))
        if self._claim.sync:
            disk.sync(self._raw)
        self._claim.size = os.fstat(self._raw.fileno()).st_size
        self._raw.close()
        try:
            disk.rename(temporary, self._target)
        except OSError as error:
            error.filename, error.filename2 = os.fsdecode(self._claim.path), None
            raise
        self._claim.temporary = None
        if self._claim.sync:
            disk.sync_folder(self._target)

    def _put_back(self) -> None:
        with suppress(OSError):  # what a full disk has not taken
            self._raw.close()
        self._claim.drop_temporary()


class Claim:
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
        put_back(raw, kept.length, kept.pieces())
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


class Borrowed:
    """A file object of somebody else's, whose changes are kept in memory."""

    def __init__(self, fp: Any) -> None:
        self.fp = fp
        #: The change that is under way.
        self.changing: Change | None = None

    def change(
        self, extents: Iterable[Extent], new_head: bytes, unchanged: Extent
    ) -> Change:
        """Return the change, to be entered."""
        return BorrowedChange(self, extents)


@contextmanager
def borrowed(fp: Any) -> Iterator[Borrowed]:
    """Let a file object be changed; when the block raises it is what it was before."""
    target = Borrowed(fp)
    try:
        yield target
    except BaseException:
        # Ctrl-C just before or after a change.
        if target.changing is not None:
            target.changing._put_back()
        raise


@contextmanager
def claimed(path: Path, sync: bool = True, mode: str = "r+b") -> Iterator[Claim]:
    """Open an existing file for changes by this writer alone.

    What a change that was interrupted has left is put right first. With another `mode`
    the file is only kept from others. Raises `StorageError` if there is another writer.
    """
    with _open_locked(path, mode) as fp:
        claim = Claim(path, fp, sync)
        if claim.roll_back():
            log.notice(
                "'%s': a change was interrupted; the file has been put back to what it "
                "was before" % os.fsdecode(path)
            )
            fp.seek(0)
        try:
            yield claim
        except BaseException as error:
            # Ctrl-C just before or after a change. What can't be put back stays for
            # the next writer.
            with suppress(OSError):
                claim.drop_temporary()
                if claim.changing:
                    claim.roll_back()
            if isinstance(error, OSError) and error.errno in NO_ROOM:
                error.filename = error.filename or os.fsdecode(path)
            raise


@contextmanager
def _open_locked(path: Path, mode: str) -> Iterator[Any]:
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
