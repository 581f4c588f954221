"""The journal: what a file was before it is changed in place (docs/durability.rst).

``NAME.journal`` holds the old length of NAME and the old bytes of every extent that
will be written over, closed by a digest. It is complete before the first change, and
removing it is what commits them. Until then the file is what the journal makes of it: a
writer puts the old bytes back, a reader lays them over what it reads.
"""

from __future__ import annotations

import errno
import os
import stat
import struct

from .._storage.base import PIECE, read_up_to
from ..exceptions import StorageError

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    Extent = tuple[int, int]

SUFFIX = ".journal"
MAGIC = b"blpkjrnl"
VERSION = 1
HEAD = struct.Struct("<8sBB6xqQqqq32s")
# Set when the journal is complete, before the first change; the digest takes it as 0.
CLOSED_AT = 9
# Some systems number files with more bits.
INODE_MASK = 2**64 - 1
EXTENT = struct.Struct("<qq")
DIGEST_LENGTH = 32
# How many of the bytes that stay are looked at to know the file again: all, or so many
# pieces at equal distances, each of so many bytes.
WITNESS_PIECES = 128
WITNESS_PIECE = 4 * 2**10
# A longer one is read when its bytes are needed.
HELD_IN_MEMORY = 64 * 2**20
# What a disk writes at once: the beginning of a journal is there, or is zeros.
SECTOR = 512


def name_for(path: str) -> str:
    """Return the name of the journal of a file, which may be a symbolic link."""
    return os.path.realpath(path) + SUFFIX


def encode(
    fp: Any, extents: Sequence[Extent], new_head: bytes, unchanged: Extent
) -> Iterator[bytes]:
    """Yield a journal for changes to the file object `fp`, piece by piece.

    `extents` are the (start, stop) that will be written over, none beyond the end of
    the file, the first with what its start will become, `new_head`. `unchanged` is an
    extent that stays.
    """
    import hashlib

    start, stop = unchanged
    status = os.fstat(fp.fileno())
    head = HEAD.pack(
        MAGIC,
        VERSION,
        0,
        status.st_size,
        status.st_ino & INODE_MASK,
        len(extents),
        start,
        stop - start,
        _witness(fp, start, stop),
    )
    table = b"".join(EXTENT.pack(start, stop) for start, stop in extents)
    digest = hashlib.sha256()
    for piece in (head, table, struct.pack("<q", len(new_head)), new_head):
        digest.update(piece)
        yield piece
    for start, stop in extents:
        for piece in read_pieces(fp, start, stop):
            digest.update(piece)
            yield piece
    yield digest.digest()


def close(fp: Any) -> None:
    """Mark the journal that was written to `fp` as complete.

    If its digest is wrong later on, it has been damaged, and not just begun.
    """
    fp.seek(CLOSED_AT)
    fp.write(b"\1")
    fp.flush()


def _witness(fp: Any, start: int, stop: int) -> bytes:
    """Return a digest of the bytes from `start` to `stop`, or of many parts of them."""
    import hashlib

    step = max(WITNESS_PIECE, -(-(stop - start) // WITNESS_PIECES))
    digest = hashlib.blake2b(digest_size=DIGEST_LENGTH)  # the fastest one
    for position in range(start, stop, step):
        digest.update(_read(fp, position, min(WITNESS_PIECE, stop - position)))
    last = max(start, stop - WITNESS_PIECE)
    digest.update(_read(fp, last, stop - last))
    return digest.digest()


def _read(fp: Any, start: int, size: int) -> bytes:
    fp.seek(start)
    return read_up_to(fp, size)


def read_pieces(fp: Any, start: int, stop: int) -> Iterator[bytes]:
    """Yield the bytes from `start` to `stop`, which may be more than memory holds."""
    for position in range(start, stop, PIECE):
        yield _read(fp, position, min(PIECE, stop - position))


class _Held:
    """The bytes of a file, which can be read also when its name is gone."""

    def __init__(self, fp: Any) -> None:
        self._fd = os.dup(fp.fileno())

    def __call__(self, start: int, size: int) -> bytes:
        return os.pread(self._fd, size, start)

    def __del__(self) -> None:
        os.close(self._fd)


class Journal:
    """A complete journal: the old ``length`` in bytes, and the old bytes of extents.

    It can still tell them when it has been removed; many are not held in memory.
    """

    def __init__(self, name: str, fp: Any) -> None:
        self.name = name
        fields = HEAD.unpack(_read(fp, 0, HEAD.size))
        _, _, _, self.length, self._inode, count, *self._unchanged, digest = fields
        self._witness = digest
        table = fp.read(count * EXTENT.size)
        self._extents: list[Extent] = list(EXTENT.iter_unpack(table))
        (size,) = struct.unpack("<q", fp.read(8))
        self._new_head = fp.read(max(size, 0))
        self._old_at = fp.tell()
        start, unchanged = self._unchanged
        # The digest was right: someone wanted it so.
        if (
            size < 0
            or not self._extents
            or not all(0 <= a <= b <= self.length for a, b in self._extents)
            or start < 0
            or not 0 <= unchanged <= self.length - start
        ):
            raise StorageError("'%s' is no valid journal" % name)
        self._content = self._content_of(fp)

    def _content_of(self, fp: Any) -> Callable[[int, int], bytes]:
        """Return what reads so many bytes, a PIECE at most, at a position of it."""
        size = os.fstat(fp.fileno()).st_size
        if size > HELD_IN_MEMORY and hasattr(os, "pread"):
            return _Held(fp)
        content = _read(fp, 0, size)
        return lambda start, size: content[start : start + size]

    def _old(self, offset: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Yield the old bytes in an extent of the file, and where they belong."""
        position = self._old_at
        for start, stop in self._extents:
            first, last = max(start, offset), min(stop, end)
            for at in range(first, last, PIECE):
                size = min(PIECE, last - at)
                yield at, self._content(position + at - start, size)
            position += stop - start

    def pieces(self) -> Iterator[tuple[int, bytes]]:
        """Yield all old bytes, and where they belong."""
        return self._old(0, self.length)

    def overlay(self, offset: int, view: memoryview) -> None:
        """Lay the old bytes over `view`, which was read at `offset`."""
        for at, old in self._old(offset, offset + len(view)):
            view[at - offset : at - offset + len(old)] = old

    def check_belongs_to(self, fp: Any) -> None:
        """Raise `StorageError` if it was not written for what is in `fp`.

        Someone may have put another file under the name since; with another inode and
        the new head it may be the new state, whole.
        """
        start, size = self._unchanged
        status = os.fstat(fp.fileno())
        same_file = status.st_ino & INODE_MASK == self._inode
        first, last = self._extents[0][0], self._extents[-1]
        new = self._new_head
        old = bytearray(len(new))
        self.overlay(first, memoryview(old))
        head = _read(fp, first, len(new))
        fits = (
            (same_file or (size and head != new))
            and (last[0] <= status.st_size or last[0] == last[1])
            and self.length <= max(status.st_size, last[1])
            and self._witness == _witness(fp, start, start + size)
            # Where the change was interrupted, part of the head may be new.
            and (
                head in (old, new)
                or all(is_ in both for is_, *both in zip(head, old, new, strict=False))
            )
        )
        if not fits:
            raise StorageError(
                "the journal '%s' was not written for this file, which has been copied "
                "or replaced since. If a copy of the file without the journal is "
                "whole, remove the journal" % self.name
            )


def load(name: str) -> Journal | None:
    """Return the journal `name`; None if there is none or it was never completed.

    An incomplete one means that nothing has been changed yet. Raises `StorageError`
    if what has the name is something else, or damaged.
    """
    try:
        # Opening a pipe would wait for somebody to write to it.
        if not stat.S_ISREG(os.lstat(name).st_mode):
            raise StorageError(
                "'%s' has the name of a journal, but is no regular file" % name
            )
        with open(name, "rb") as fp:
            return _decode(name, fp)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except MemoryError as error:
        raise StorageError("there is no memory for the journal '%s'" % name) from error
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return None
        raise


def is_one(name: str) -> bool:
    """Return whether a file has the name of a journal, and begins like one."""
    if not name.endswith(SUFFIX) or not os.path.isfile(name):
        return False
    with open(name, "rb") as fp:
        return fp.read(len(MAGIC)) == MAGIC


def _decode(name: str, fp: Any) -> Journal | None:
    head = fp.read(SECTOR)
    # What was never synced may be missing, or be zero.
    begun = 0
    while begun < len(MAGIC) and head[begun : begun + 1] == MAGIC[begun : begun + 1]:
        begun += 1
    if begun < len(MAGIC) and any(head[begun:]):
        raise StorageError("'%s' has the name of a journal, but is none" % name)
    if head[len(MAGIC) : CLOSED_AT] not in (b"", b"\0", bytes([VERSION])):
        raise StorageError(
            "the journal '%s' has version %d, which is not known"
            % (name, head[len(MAGIC)])
        )
    if _is_complete(fp):
        return Journal(name, fp)
    if head[CLOSED_AT : CLOSED_AT + 1] == b"\1":
        raise StorageError(
            "the journal '%s' is damaged: the change that it belongs to can't be "
            "taken back. Remove the journal if the file is whole" % name
        )
    return None


def _is_complete(fp: Any) -> bool:
    """Return whether a file has the length that its head says, and its digest."""
    # Now: it may just be written, and where the head says so, that has been finished.
    size = os.fstat(fp.fileno()).st_size
    head = _read(fp, 0, HEAD.size)
    if len(head) < HEAD.size or head[len(MAGIC)] != VERSION:
        return False
    count: int = HEAD.unpack(head)[5]
    table_size = count * EXTENT.size
    if not 0 <= table_size <= size - HEAD.size:
        return False
    try:
        table = EXTENT.iter_unpack(fp.read(table_size))
        (length,) = struct.unpack("<q", fp.read(8))
    except struct.error:
        return False
    kept: int = sum(stop - start for start, stop in table)
    if HEAD.size + table_size + 8 + length + kept + DIGEST_LENGTH != size:
        return False
    import hashlib

    end = size - DIGEST_LENGTH
    expected = _read(fp, end, DIGEST_LENGTH)
    if not any(expected):  # of a file of zeros as long as no other
        return False
    digest = hashlib.sha256(head[:CLOSED_AT] + b"\0" + head[CLOSED_AT + 1 :])
    for piece in read_pieces(fp, HEAD.size, end):
        digest.update(piece)
    return digest.digest() == expected
