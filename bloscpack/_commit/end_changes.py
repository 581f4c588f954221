"""The rule 'journal of old bytes': a file changes in place, completely or not at all.

Before the first write, an `EndChange` saves the bytes that it is going to overwrite.
If the ``with`` block raises an error they are restored.

Commit point
    Three kinds differ in where the old bytes are and in what commits the change:

==================  =========================  ======================================
class               old bytes                  commit point
==================  =========================  ======================================
`JournaledChange`   the journal of the file    the journal is removed
`CopiedChange`      the file itself: writes    the copy is renamed to the file
                    go to a copy
`InMemoryChange`    memory                     the ``with`` block ends
==================  =========================  ======================================

Recovery
    The first two survive the end of the process and of the machine: while the journal
    exists, readers put the old bytes over what they read (`snapshot`), and the next
    writer restores them (`locking.open_locked`). The third is for file objects, whose
    name is unknown.
Trust
    A journal keeps the rules of `trust`: its writer checks that before the first write,
    and readers before they apply it.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO

from .._engine.forks import Owner
from .._storage.base import READ_SIZE, write_all
from .._storage.disk import disk
from .._storage.local import whole_file, writes_at_end
from .._storage.protocols import BinaryFile, Buffer
from ..constants import BLOSC_HEADER_LENGTH
from ..exceptions import StorageError, UsageError
from . import journal, trust
from .ownership import FileAccess, copy_attributes
from .temporary import TemporaryFile

if TYPE_CHECKING:
    from .journal import Extent, Extents, Head
    from .locking import LockedFile


class EndChange:
    """A context manager whose block changes a file: completely, or not at all.

    The block writes only by `overwrite` and `truncate`. `extents` are the (start, stop)
    that it may overwrite; bytes behind the old end need not be in them. Raises
    `UsageError` for a file object that can only append.
    """

    def __init__(self, fp: BinaryFile, extents: Extents) -> None:
        if writes_at_end(fp):
            raise UsageError(
                "a file that is opened with 'a' can't be changed: expected 'r+b'"
            )
        self._owner = Owner()
        self._fp = fp
        # Bypass buffering: a late flush would overwrite the restored bytes.
        self._raw = fp
        if isinstance(fp, io.BufferedRandom):
            self._raw = fp.raw
        self._length = self._raw.seek(0, os.SEEK_END)
        self._extents = [
            (start, min(stop, self._length))
            for start, stop in extents
            if start < min(stop, self._length)
        ]

    def overwrite(self, offset: int, data: Buffer) -> None:
        """Write `data` at `offset`."""
        self._raw.seek(offset)
        write_all(self._raw, data)

    def truncate(self, length: int) -> None:
        """Cut the file to `length` bytes."""
        self._raw.truncate(length)

    def restore(self) -> None:
        """Give the file its old content again, after any part of the change."""
        raise NotImplementedError

    def __enter__(self) -> EndChange:
        self._save_old_bytes()
        return self

    def __exit__(self, error_type: type[BaseException] | None, *rest: object) -> None:
        if not self._owner.is_here:
            return
        committed = False
        try:
            if error_type is None:
                self._commit()
                committed = True
        finally:
            if not committed:
                self.restore()
            # Discards the read buffer, which may hold bytes of before the change.
            self._fp.seek(0, os.SEEK_END)

    def _save_old_bytes(self) -> None:
        """Save the bytes in the extents, before the first write."""
        raise NotImplementedError

    def _commit(self) -> None:
        """Make the change permanent."""
        raise NotImplementedError


class InMemoryChange(EndChange):
    """A change of a file object; memory holds the old bytes."""

    def __init__(self, target: FileObjectTarget, extents: Extents) -> None:
        super().__init__(target.fp, extents)
        self._target = target

    def _save_old_bytes(self) -> None:
        storage = whole_file(self._raw)
        zeros = bytes(READ_SIZE)  # of the room for metadata, which may be large
        self._old_bytes: list[tuple[int, bytes]] = []
        for start, stop in self._extents:
            for block in storage.read_blocks(start, stop):
                self._old_bytes.append((start, zeros if block == zeros else block))
                start += len(block)
        self._target.changing = self

    def _commit(self) -> None:
        self._raw.flush()
        self._target.changing = None

    def restore(self) -> None:
        restore_bytes(self._raw, self._length, self._old_bytes)
        self._raw.flush()
        self._target.changing = None


class JournaledChange(EndChange):
    """A change of a file with a name; a journal holds the old bytes.

    The first extent will begin with `new_head`, and `unchanged` is an extent that stays
    unchanged: the journal identifies the file by both. If the file is opened without
    ``sync``, the change survives the end of the process, but not of the machine.

    While the journal exists, the file is at least as long as before, so that the length
    bounds the size of a valid journal: the file is cut after the commit.
    """

    def __init__(
        self,
        locked_file: LockedFile,
        extents: Extents,
        new_head: Head,
        unchanged: Extent,
    ) -> None:
        super().__init__(locked_file.fp, extents)
        self._locked_file = locked_file
        self._new_head = new_head
        self._unchanged = unchanged
        self._cut: int | None = None

    def truncate(self, length: int) -> None:
        if length >= self._length:
            super().truncate(length)
            return
        self._cut = length
        # After a crash between commit and cut, the unused bytes must be taken neither
        # for a chunk nor for another file.
        self.overwrite(length, bytes(min(BLOSC_HEADER_LENGTH, self._length - length)))

    def _save_old_bytes(self) -> None:
        locked_file = self._locked_file
        if locked_file.sync:
            # The journal must not reach the disk before bytes that it calls unchanged:
            # after a crash it would fit no file.
            disk.sync(self._raw)
        try:
            with _create_journal(locked_file) as fp:
                _share_reading(fp, locked_file.journal_name, self._raw)
                trust.check_status(locked_file.journal_name, fp, self._raw)
                locked_file.changing = True
                for part in journal.encode(
                    self._raw, self._extents, self._new_head, self._unchanged
                ):
                    fp.write(part)
                if locked_file.sync:
                    disk.sync(fp)
                    disk.sync_folder(locked_file.journal_name)
                journal.mark_complete(fp)
        except FileExistsError:  # of another writer, on a system without locks
            raise
        except BaseException:
            with suppress(FileNotFoundError):
                disk.remove(locked_file.journal_name)
            raise

    def _commit(self) -> None:
        locked_file = self._locked_file
        locked_file.mark_changed()
        if locked_file.sync:
            disk.sync(self._raw)
        locked_file.size = os.fstat(self._raw.fileno()).st_size
        locked_file.remove_journal()  # commit point
        if self._cut is not None:
            # The change is complete. If cutting fails, `verify` reports unused bytes
            # and the next append drops them.
            with suppress(OSError):
                self._raw.truncate(self._cut)
                locked_file.mark_changed()
                locked_file.size = self._cut
                if locked_file.sync:
                    disk.sync(self._raw)

    def restore(self) -> None:
        self._locked_file.roll_back()


def _create_journal(locked_file: LockedFile) -> BinaryIO:
    """Create the journal; the error for an unwritable folder names the file."""
    try:
        return disk.create(locked_file.journal_name, 0o600)
    except PermissionError as error:
        kind = "append and metadata write a journal"
        raise StorageError(*_no_permission(locked_file, kind, error)) from error


def _no_permission(
    locked_file: LockedFile, kind: str, error: PermissionError
) -> tuple[int | None, str, str]:
    """Describe the error of creating no file in a folder; `kind` says what for."""
    text = (
        "the folder '%s' is not writable, but %s beside the file: get write permission "
        "for the folder, or copy the file to another folder and change the copy"
    )
    folder = os.path.dirname(locked_file.journal_name) or "."
    return error.errno, text % (folder, kind), os.fsdecode(locked_file.path)


def _share_reading(fp: BinaryFile, name: str, file: BinaryFile) -> None:
    """Let all who may read a file read its journal; only its owner may write it."""
    target = fp.fileno() if os.chmod in os.supports_fd else name
    copy_attributes(target, FileAccess(file.fileno()), owner=True)
    # The group bits of a file with an access control list limit all its entries.
    shared = os.stat(target).st_mode & 0o777 & ~(stat.S_IWGRP | stat.S_IWOTH)
    os.chmod(target, shared)


class CopiedChange(EndChange):
    """A change of a copy, which replaces the file.

    It serves where too few bytes stay unchanged for a journal to identify the file by,
    and where a journal of this user would not be accepted.
    """

    def __init__(self, locked_file: LockedFile, extents: Extents) -> None:
        super().__init__(locked_file.fp, extents)
        self._locked_file = locked_file

    def _save_old_bytes(self) -> None:
        old = self._raw
        self._raw = begin_copy(self._locked_file).fp
        try:
            for block in whole_file(old).read_blocks(0, self._length):
                self._raw.write(block)
        except BaseException:
            self.restore()
            raise

    def _commit(self) -> None:
        commit_copy(self._locked_file)

    def restore(self) -> None:
        self._locked_file.remove_temporary()


def begin_copy(locked_file: LockedFile) -> TemporaryFile:
    """Create the temporary file that is going to replace a locked file."""
    try:
        locked_file.temporary = TemporaryFile(locked_file.target, 0o600)
    except PermissionError as error:
        kind = "the new content of the file is first written"
        raise PermissionError(*_no_permission(locked_file, kind, error)) from error
    except OSError as error:
        error.filename = os.fsdecode(locked_file.path)
        raise
    return locked_file.temporary


def commit_copy(locked_file: LockedFile) -> None:
    """Replace a locked file by its temporary file, which gets its owner and access."""
    temporary = locked_file.temporary
    assert temporary is not None
    raw = temporary.fp
    raw.flush()
    old = FileAccess(locked_file.fp.fileno())
    copy_attributes(temporary.handle, old, owner=True)
    # Only root can give the copy to another user.
    if not trust.may_read(old.status.st_uid, raw):
        raise StorageError(
            errno.EACCES,
            "the file can only be changed in a copy, which would belong to this "
            "user, and the owner of the file could not read it",
            os.fsdecode(locked_file.path),
        )
    if locked_file.sync:
        disk.sync(raw)
    size = os.fstat(raw.fileno()).st_size
    locked_file.check_before_rename()
    try:
        temporary.rename(locked_file.target)  # commit point
    except OSError as error:
        if error.filename is not None:
            error.filename = os.fsdecode(locked_file.path)
            del error.filename2  # None would appear in the message as '-> None'
        raise
    locked_file.temporary = None
    locked_file.size = size
    if locked_file.sync:
        disk.sync_folder(locked_file.target)


def restore_bytes(
    raw: BinaryFile, length: int, old_bytes: Iterable[tuple[int, Buffer]]
) -> None:
    """Give a file its old length, and its old bytes at their offsets."""
    if raw.seek(0, os.SEEK_END) > length:
        raw.truncate(length)  # first, because a full disk may need the room
    for offset, data in old_bytes:
        raw.seek(offset)
        write_all(raw, data)
    raw.truncate(length)


class FileObjectTarget:
    """A file object of the caller that is going to be changed.

    It offers ``fp`` and `change` like `LockedFile`; ``changing`` is the change that has
    begun and not ended.
    """

    def __init__(self, fp: BinaryFile) -> None:
        self.fp = fp
        self.changing: EndChange | None = None

    def change(self, extents: Extents, new_head: Head, unchanged: Extent) -> EndChange:
        """Return a change, to be used in a ``with`` statement."""
        return InMemoryChange(self, extents)


@contextmanager
def changeable(fp: BinaryFile) -> Iterator[FileObjectTarget]:
    """Yield a file object as a target; if the block raises, its content is restored."""
    target = FileObjectTarget(fp)
    try:
        yield target
    except BaseException:
        # Ctrl-C may come when a change has begun but its block has not, or after it.
        if target.changing is not None:
            target.changing.restore()
        raise
