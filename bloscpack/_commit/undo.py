"""The undo record: a file that is changed in place carries its old bytes itself.

docs/format.rst (Undo record) has the layout. A `FileChange` takes these steps:

1. New bytes go to their final position behind the old end, except for the first `GUARD`
   bytes there, which stay zero: no program must take them for a chunk (rule C7).
2. The record, with the old bytes of all that will be overwritten, goes behind them.
3. Bit 2 of the options is set: from here on, the file counts as unchanged, and readers
   put the old bytes over the bytes that they read.
4. The old bytes are overwritten, but never magic, version and options.
5. The bit is cleared, which commits the change.
6. The file is cut to its new length. What a crash leaves there are unused bytes.

A sync separates the steps up to 5. Whatever interrupts them, the file has its old or
its new content, also for readers of a copy or of a URL. Releases up to 0.16 refuse a
file with the bit. The next writer restores the old bytes (`restore`), which may be
interrupted and repeated.

Contract: a record is used only if its digest and its sizes fit the file, and it never
allocates more than the file has bytes. Nothing but the file itself is read.
"""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from .._engine.forks import Owner
from .._storage.base import (
    MemoryStorage,
    Storage,
    StorageFile,
    as_bytes_view,
    bytes_left,
    read_up_to,
    write_all,
)
from .._storage.local import storage_of, whole_file, writes_at_end
from .._types import BinaryFile, Buffer, Seekable
from ..constants import (
    BLOSC_HEADER_LENGTH,
    BLOSCPACK_HEADER_LENGTH,
    FORMAT_VERSION,
    RECORD_MAGIC,
)
from ..exceptions import DamageError, UsageError, UsageTypeError
from ..headers import FIELD_OFFSETS, OPTION_UNDO, has_undo_record

File = TypeVar("File", bound=Seekable)

# Offset of the options in the header, and the bit that says that there is a record.
OPTIONS = FIELD_OFFSETS[FORMAT_VERSION]["options"]
BIT = OPTION_UNDO
# Magic, old length of the file, number of extents.
HEAD = struct.Struct("<8sqq")
# Start and length of an extent of the old file.
EXTENT = struct.Struct("<qq")
# Length of the record in front of this footer, digest, magic.
FOOTER = struct.Struct("<q32s8s")
POSITION = struct.Struct("<q")
# Number of bytes at the old end that stay zero until the change is certain.
GUARD = BLOSC_HEADER_LENGTH
# Maximum number of extents: header with metadata, offset table, last chunk, and each of
# them may be in several parts. It bounds the time of each read.
MAX_EXTENTS = 64


def without_bit(prefix: bytes) -> bytes:
    """Return a header that says nothing of an undo record."""
    options = prefix[OPTIONS] & ~BIT
    return prefix[:OPTIONS] + bytes([options]) + prefix[OPTIONS + 1 :]


# Reading


class UndoRecord:
    """The record at the end of a file; ``length`` is the old length in bytes.

    Raises `DamageError` if the storage `whole` does not end with a record.
    """

    def __init__(self, whole: Storage) -> None:
        import hashlib

        end = whole.size - FOOTER.size
        footer = whole.read_at(max(0, end), FOOTER.size)
        size, digest, magic = 0, b"", b""
        if len(footer) == FOOTER.size:
            size, digest, magic = FOOTER.unpack(footer)
        if magic != RECORD_MAGIC or not HEAD.size <= size <= end:
            raise _damaged("found none", end)
        start = end - size
        hashed = hashlib.blake2b(POSITION.pack(start), digest_size=32)
        head = b""  # of the bytes that are hashed: a writer may be changing the file
        for block in whole.read_blocks(start, end):
            hashed.update(block)
            head = head or block
        if hashed.digest() != digest:
            raise _damaged("its digest is wrong", start)
        magic, self.length, count = HEAD.unpack_from(head)
        if (
            magic != RECORD_MAGIC
            or not 0 < count <= MAX_EXTENTS
            or not BLOSCPACK_HEADER_LENGTH <= self.length <= start - GUARD
        ):
            raise _damaged("its fields are invalid", start)
        table = head[HEAD.size : HEAD.size + count * EXTENT.size]
        if len(table) < count * EXTENT.size:
            raise _damaged("its extents do not fit", start)
        position = start + HEAD.size + count * EXTENT.size
        # For each extent: start and stop in the old file, position of the old bytes.
        self.extents: list[tuple[int, int, int]] = []
        done = 0
        for first, nbytes in EXTENT.iter_unpack(table):
            if first < done or not 0 < nbytes <= self.length - first:
                raise _damaged("an extent is invalid", start)
            done = first + nbytes
            self.extents.append((first, done, position))
            position += nbytes
        first, stop, at = self.extents[0]
        if position != end or first != 0:
            raise _damaged("its extents do not fit", start)
        if stop < BLOSCPACK_HEADER_LENGTH:
            raise _damaged("the old header is missing", start)
        self._whole = whole
        header = whole.read_at(at, OPTIONS + 1)
        if header[:OPTIONS] != whole.read_at(0, OPTIONS) or header[OPTIONS] & BIT:
            raise _damaged("its old header is invalid", start)

    def old_bytes(
        self, start: int = 0, stop: int | None = None
    ) -> Iterator[tuple[int, bytes]]:
        """Yield (offset, old bytes) for the extents within [start, stop) of the file.

        At most `READ_SIZE` bytes are yielded at a time.
        """
        stop = self.length if stop is None else stop
        for first, last, position in self.extents:
            begin, end = max(first, start), min(last, stop)
            shift = position - first
            for block in self._whole.read_blocks(begin + shift, end + shift):
                yield begin, block
                begin += len(block)


def _damaged(found: str, offset: int) -> DamageError:
    return DamageError(
        "the header says that a change was interrupted, and that the file ends with an "
        "undo record: " + found,
        section="header",
        offset=max(0, offset),
    )


class UndoneStorage(Storage):
    """A file with an undo record, as it was before the change."""

    def __init__(self, whole: Storage) -> None:
        self._whole = whole
        self._record = record = UndoRecord(whole)
        self.size = record.length
        self.concurrent, self.is_remote = whole.concurrent, whole.is_remote
        if whole.identity is not None:
            self.identity = whole.identity, record.length
        if whole.version is not None:
            self.version = whole.version, record.length

    def read_into(self, view: memoryview, offset: int) -> int:
        view = view[: max(0, self.size - offset)]
        count = self._whole.read_into(view, offset)
        view[count:] = bytes(len(view) - count)
        for start, old in self._record.old_bytes(offset, offset + len(view)):
            view[start - offset : start - offset + len(old)] = old
        return len(view)

    def close(self) -> None:
        self._whole.close()


class UndoneFile(StorageFile):
    """An `UndoneStorage` as a raw file object, with the descriptor of the file."""

    def __init__(self, fp: Seekable) -> None:
        super().__init__(UndoneStorage(storage_of(fp)))
        self._fp: Any = fp

    def fileno(self) -> int:
        """Return the descriptor of the file, which has the changed content."""
        descriptor: int = self._fp.fileno()
        return descriptor


def settled(storage: Storage) -> Storage:
    """Return a storage with the content that counts: see `UndoneStorage`."""
    if has_undo_record(storage.read_at(0, BLOSCPACK_HEADER_LENGTH)):
        return UndoneStorage(storage)
    return storage


def settled_file(fp: File) -> File:
    """Return a file object with the content that counts, from its position on.

    An object that can't seek is returned unchanged.
    """
    if bytes_left(fp) is None:
        return fp
    start = fp.tell()
    prefix = read_up_to(fp, BLOSCPACK_HEADER_LENGTH)
    fp.seek(start)
    if not has_undo_record(prefix):
        return fp
    undone: Any = io.BufferedReader(UndoneFile(fp))
    return undone  # type: ignore[no-any-return]


def settled_bytes(content: Buffer) -> memoryview:
    """Return the content that counts of a file in memory."""
    view = as_bytes_view(content)
    if has_undo_record(bytes(view[:BLOSCPACK_HEADER_LENGTH])):
        undone = UndoneStorage(MemoryStorage(view))
        view = memoryview(undone.read_at(0, undone.size))
    return view


# Writing

# How far a change has come: nothing is to be undone; bytes were written behind the old
# end; the bit may be set; it may be cleared.
_DONE, _BEHIND, _FLAGGED, _COMMITTING = range(4)


def _unbuffered(fp: BinaryFile) -> BinaryFile:
    """Return a file object without its buffer.

    A late flush would overwrite the restored bytes.
    """
    _flush(fp)
    return fp.raw if isinstance(fp, io.BufferedRandom) else fp


def _flush(fp: BinaryFile) -> None:
    """Flush a file object, unless it has no method `flush`."""
    flush = getattr(fp, "flush", None)
    if flush is not None:
        flush()


def _read(raw: BinaryFile, offset: int, size: int) -> bytes:
    raw.seek(offset)
    return read_up_to(raw, size)


def _refuse_appending(fp: BinaryFile) -> None:
    """Raise `UsageError` if each write goes to the end of the file."""
    if writes_at_end(fp):
        raise UsageError(
            "a file that is opened with 'a' can't be changed: expected 'r+b'"
        )


def _write(raw: BinaryFile, offset: int, data: Buffer) -> None:
    raw.seek(offset)
    write_all(raw, data)


def _write_extents(raw: BinaryFile, extents: Iterable[tuple[int, Buffer]]) -> None:
    """Write all extents, except for magic, version and options.

    A torn write must not change these: readers recognize the file by them.
    """
    behind = OPTIONS + 1
    for start, data in extents:
        skipped = max(0, behind - start)
        if skipped < len(data):
            _write(raw, start + skipped, memoryview(data)[skipped:])


def restore(fp: BinaryFile, sync: Callable[[], object]) -> bool:
    """Give a file with an undo record its old content; return whether it had one.

    `sync` writes everything to the disk. If a crash interrupts the call, bit and record
    are still there. Afterwards the position is at the beginning. Raises `UsageError` if
    such a file can only be appended to.
    """
    raw = _unbuffered(fp)
    if not has_undo_record(_read(raw, 0, BLOSCPACK_HEADER_LENGTH)):
        fp.seek(0)
        return False
    _refuse_appending(fp)
    record = UndoRecord(whole_file(raw))
    ((_, header),) = record.old_bytes(0, BLOSCPACK_HEADER_LENGTH)
    _write_extents(raw, record.old_bytes())
    _write(raw, record.length, bytes(GUARD))
    sync()
    _write(raw, OPTIONS, header[OPTIONS : OPTIONS + 1])
    sync()
    raw.truncate(record.length)
    fp.seek(0)
    return True


class FileObjectTarget:
    """A file object of the caller that is going to be changed, like a `LockedFile`."""

    def __init__(self, fp: BinaryFile) -> None:
        self.fp = fp
        self.begun: FileChange | None = None

    def change(self) -> FileChange:
        """Return a change of the file in place, to be used in a ``with`` statement."""
        self.begun = FileChange(self.fp, partial(_flush, self.fp))
        return self.begun


@contextmanager
def changeable(fp: BinaryFile) -> Iterator[FileObjectTarget]:
    """Yield a file object as a target; if the block raises, its content is restored.

    If it ends with an undo record, the old content is restored first.
    """
    restore(fp, partial(_flush, fp))
    target = FileObjectTarget(fp)
    try:
        yield target
    except BaseException as error:
        # Ctrl-C may come when a change has begun but its block has not, or after it.
        if target.begun is not None:
            target.begun.undo(error)
        raise


class FileChange:
    """A context manager whose block changes a file: completely, or not at all.

    The block writes only by `overwrite` and `truncate`, and each byte once. What it
    writes over old bytes stays in memory until the block ends. If the block raises an
    error, the file has its old content again.

    Parameters
    ----------
    fp
        The file, opened for reading and writing. The header is at its beginning.
    sync
        Called to write everything to the disk.
    mark
        Called when the content has changed, before and after the change is committed.

    Raises
    ------
    UsageError
        The file object can only append.
    """

    def __init__(
        self,
        fp: BinaryFile,
        sync: Callable[[], object],
        mark: Callable[[], object] = lambda: None,
    ) -> None:
        _refuse_appending(fp)
        if not hasattr(fp, "truncate"):
            raise UsageTypeError(
                "expected a file object with the method 'truncate', found %r" % (fp,)
            )
        self._owner = Owner()
        self._fp, self._sync, self._mark = fp, sync, mark
        self._raw = _unbuffered(fp)
        self._length = self._raw.seek(0, os.SEEK_END)
        self._end = self._length
        self._later: list[tuple[int, bytes]] = []
        self._step = _DONE

    def overwrite(self, offset: int, data: Buffer) -> None:
        """Write `data` at `offset`."""
        view = memoryview(data)
        split = max(0, min(len(view), self._length + GUARD - offset))
        if split:
            # Blocks of zeros for the room of metadata are one object: don't copy it.
            if isinstance(data, bytes) and split == len(data):
                self._later.append((offset, data))
            else:
                self._later.append((offset, bytes(view[:split])))
        if split < len(view):
            self._step = _BEHIND
            _write(self._raw, offset + split, view[split:])
        self._end = max(self._end, offset + len(view))

    def truncate(self, length: int) -> None:
        """Cut the file to `length` bytes."""
        self._end = length

    def __enter__(self) -> FileChange:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *rest: object) -> None:
        if not self._owner.is_here:
            return
        try:
            if error_type is None:
                self._commit()
        except BaseException as error:
            self.undo(error)
            raise
        finally:
            if error_type is not None:
                self.undo(rest[0])
            # Discards the read buffer, which may hold bytes of before the change.
            self._fp.seek(0, os.SEEK_END)

    def undo(self, error: object = None) -> None:
        """Give the file its old content again, unless the change is committed.

        If that fails, the old content counts all the same: an `OSError` says so in its
        message, and Ctrl-C is not replaced. A child process does nothing.
        """
        if not self._owner.is_here or self._step == _DONE:
            return
        step = self._step
        try:
            if step == _COMMITTING:  # the bit may have been cleared
                _write(self._raw, OPTIONS, bytes([self._options | BIT]))
                self._sync()  # before the first old byte, as in `_commit`
                self._step = _FLAGGED  # `restore` may be interrupted and repeated
            if step == _BEHIND or not restore(self._fp, self._sync):
                self._raw.truncate(self._length)  # the bit was never set
            self._step = _DONE
            self._mark()
        except OSError as failure:
            self._step = _DONE  # a second call would add the same text again
            if isinstance(error, OSError):
                text = "%s; the change can't be undone now (%s): " + (
                    "unused bytes remain at the end of the file"
                    if step == _BEHIND
                    else "readers see the old content, and the next writer restores it"
                )
                error.strerror = text % (error.strerror or error, failure)
            elif error is None or isinstance(error, Exception):
                raise

    def _commit(self) -> None:
        raw, later = self._raw, self._later
        if not later and self._end == self._length:
            return
        if self._end < self._length:
            # No program must take bytes behind the new end for a chunk.
            later.append((self._end, bytes(min(GUARD, self._length - self._end))))
        if all(offset for offset, _ in later):
            later.append((0, _read(raw, 0, BLOSCPACK_HEADER_LENGTH)))
        later.sort()
        self._options = _read(raw, OPTIONS, 1)[0]
        self._step = _BEHIND
        self._write_record()
        self._sync()
        self._step = _FLAGGED
        _write(raw, OPTIONS, bytes([self._options | BIT]))
        self._sync()
        _write_extents(raw, later)
        self._mark()
        self._sync()
        self._step = _COMMITTING
        _write(raw, OPTIONS, later[0][1][OPTIONS : OPTIONS + 1])  # commit point
        self._sync()
        self._step = _DONE
        with suppress(OSError):  # else the next append drops the unused bytes
            raw.truncate(self._end)
        self._mark()

    def _write_record(self) -> None:
        """Write the old bytes of all that will be overwritten behind the new bytes."""
        import hashlib

        raw, length = self._raw, self._length
        whole = whole_file(raw)
        extents: list[list[int]] = []
        for offset, data in self._later:
            stop = min(offset + len(data), length)
            if extents and extents[-1][1] == offset:
                extents[-1][1] = max(stop, offset)
            elif offset < stop:
                extents.append([offset, stop])
        assert len(extents) <= MAX_EXTENTS
        start = max(raw.seek(0, os.SEEK_END), length + GUARD)
        digest = hashlib.blake2b(POSITION.pack(start), digest_size=32)
        size = 0
        table = b"".join(EXTENT.pack(first, last - first) for first, last in extents)
        head = HEAD.pack(RECORD_MAGIC, length, len(extents)) + table
        old_bytes = (whole.read_blocks(*extent) for extent in extents)
        for block in chain([head], *old_bytes):
            digest.update(block)
            _write(raw, start + size, block)
            size += len(block)
        _write(raw, start + size, FOOTER.pack(size, digest.digest(), RECORD_MAGIC))
