"""Changing a file in place: all changes are made, or none.

A `Change` keeps the bytes that it writes over until the last
write has been done: in the journal where the file has a name, so that neither the end
of the process nor of the machine does any harm; in memory for a mere file object.
"""

from __future__ import annotations

import errno
import io
import os
from contextlib import contextmanager, suppress

from .._storage.base import write_all
from .._storage.disk import disk
from .._storage.local import writes_at_end
from ..exceptions import UsageError
from . import journal
from .ownership import copy_ownership

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from .._format.chunks import Buffer
    from .journal import Extent
    from .locking import LockedFile

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
        self._save_old_bytes()
        return self

    def __exit__(self, error_type: type[BaseException] | None, *rest: object) -> None:
        committed = False
        try:
            if error_type is None:
                self._commit()
                committed = True
        finally:
            if not committed:
                self._restore_old_bytes()
            # The buffer forgets what it has read.
            self._fp.seek(0, os.SEEK_END)

    def _save_old_bytes(self) -> None:
        """Keep what is going to be written over."""
        raise NotImplementedError

    def _commit(self) -> None:
        """Let the change stay."""
        raise NotImplementedError

    def _restore_old_bytes(self) -> None:
        """Undo the change, or what has been done of it."""
        raise NotImplementedError


class BorrowedChange(Change):
    """A change to a file object, whose old bytes are kept in memory."""

    def __init__(self, target: Borrowed, extents: Iterable[Extent]) -> None:
        super().__init__(target.fp, extents)
        self._target = target

    def _save_old_bytes(self) -> None:
        self._kept = []
        for start, stop in self._extents:
            for piece in journal.read_pieces(self._raw, start, stop):
                self._kept.append((start, piece))
                start += len(piece)
        self._target.changing = self

    def _commit(self) -> None:
        self._raw.flush()
        self._target.changing = None

    def _restore_old_bytes(self) -> None:
        restore_bytes(self._raw, self._length, self._kept)
        self._raw.flush()
        self._target.changing = None


def restore_bytes(raw: Any, length: int, pieces: Iterable[tuple[int, Buffer]]) -> None:
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


class JournaledChange(Change):
    """A change to a file with a name, which survives whatever ends the process.

    `new_head` is what the start of the first extent will become, `unchanged` an extent
    that stays; the file is known again by them. Without `sync` a crash of the machine,
    unlike one of the process, may lose the journal before the change.
    """

    def __init__(
        self,
        locked_file: LockedFile,
        extents: Iterable[Extent],
        new_head: bytes,
        unchanged: Extent,
    ) -> None:
        super().__init__(locked_file.fp, extents)
        self._claim = locked_file
        self._new_head = new_head
        self._unchanged = unchanged

    def _save_old_bytes(self) -> None:
        locked_file = self._claim
        if locked_file.sync:
            # A journal that outlives bytes which were never on the disk fits nothing.
            disk.sync(self._raw)
        try:
            with disk.create(locked_file.journal_name, 0o600) as fp:
                copy_ownership(locked_file.journal_name, os.fstat(self._raw.fileno()))
                locked_file.changing = True
                for piece in journal.encode(
                    self._raw, self._extents, self._new_head, self._unchanged
                ):
                    fp.write(piece)
                if locked_file.sync:
                    disk.sync(fp)
                    disk.sync_folder(locked_file.journal_name)
                journal.close(fp)
        except FileExistsError:  # another writer's, where nothing can be locked
            raise
        except BaseException:
            with suppress(FileNotFoundError):
                disk.remove(locked_file.journal_name)
            raise

    def _commit(self) -> None:
        _mark_changed(self._raw, self._claim.mtime)
        if self._claim.sync:
            disk.sync(self._raw)
        self._claim.size = os.fstat(self._raw.fileno()).st_size
        self._claim.drop_journal()

    def _restore_old_bytes(self) -> None:
        self._claim.roll_back()


class CopiedChange(Change):
    """A change to a copy, which then takes the place of the file.

    For where nothing stays that a journal could know the file by.
    """

    def __init__(self, locked_file: LockedFile, extents: Iterable[Extent]) -> None:
        super().__init__(locked_file.fp, extents)
        self._claim = locked_file
        self._target = os.path.realpath(os.fsdecode(locked_file.path))

    def _save_old_bytes(self) -> None:
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
            self._restore_old_bytes()
            raise

    def _commit(self) -> None:
        temporary = self._claim.temporary
        assert temporary is not None
        self._raw.flush()
        copy_ownership(temporary, os.fstat(self._fp.fileno()))
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

    def _restore_old_bytes(self) -> None:
        with suppress(OSError):  # what a full disk has not taken
            self._raw.close()
        self._claim.drop_temporary()


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
            target.changing._restore_old_bytes()
        raise
