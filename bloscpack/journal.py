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

from .exceptions import StorageError
from .ranges import PIECE, read_up_to

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from .chunks import Buffer

    Extent = tuple[int, int]

SUFFIX = ".journal"
MAGIC = b"blpkjrnl"
VERSION = 1
HEAD = struct.Struct("<8sBB6xqQqqq32s")
# Set when the journal is complete, before the first change; the digest takes it as 0.
CLOSED_AT = 9
EXTENT = struct.Struct("<qq")
DIGEST_LENGTH = 32
# How many of the bytes that stay are enough to know the file by.
WITNESS = 64 * 2**10


def _digest(data: Buffer) -> bytes:
    import hashlib

    return hashlib.sha256(data).digest()


def name_for(path: str) -> str:
    """Return the name of the journal of a file, which may be a symbolic link."""
    return os.path.realpath(path) + SUFFIX


def encode(
    fp: Any, extents: Sequence[Extent], new_head: bytes, unchanged: Extent
) -> Iterator[bytes]:
    """Yield a journal for changes to the file object `fp`, piece by piece.

    `extents` are the (start, stop) that will be written over, none beyond the end of
    the file, the first with what its start will become, `new_head`. `unchanged` is the
    extent in front of the last of them that stays.
    """
    import hashlib

    start = max(unchanged[0], unchanged[1] - WITNESS)
    status = os.fstat(fp.fileno())
    head = HEAD.pack(
        MAGIC,
        VERSION,
        0,
        status.st_size,
        status.st_ino,
        len(extents),
        start,
        unchanged[1] - start,
        _digest(_read(fp, start, unchanged[1] - start)),
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


def _read(fp: Any, start: int, size: int) -> bytes:
    fp.seek(start)
    return read_up_to(fp, size)


def read_pieces(fp: Any, start: int, stop: int) -> Iterator[bytes]:
    """Yield the bytes from `start` to `stop`, which may be more than memory holds."""
    for position in range(start, stop, PIECE):
        yield _read(fp, position, min(PIECE, stop - position))


class Journal:
    """A complete journal: the old ``length`` in bytes, and the old ``pieces``."""

    def __init__(self, name: str, content: bytes) -> None:
        self.name = name
        fields = HEAD.unpack_from(content)
        _, _, _, self.length, self._inode, count, *self._witness, digest = fields
        self._witness_digest = digest
        self.pieces: list[tuple[int, memoryview]] = []
        try:
            self._decode(content, count)
        except (struct.error, ValueError) as error:
            # The digest was right: someone wanted it so.
            raise StorageError("'%s' is no valid journal" % name) from error

    def _decode(self, content: bytes, count: int) -> None:
        position = HEAD.size
        extents = []
        for _ in range(count):
            extents.append(EXTENT.unpack_from(content, position))
            position += EXTENT.size
        (size,) = struct.unpack_from("<q", content, position)
        position += 8
        self._new_head = content[position : position + size]
        position += size
        view = memoryview(content)
        for start, stop in extents:
            if not 0 <= start <= stop <= self.length:
                raise ValueError
            self.pieces.append((start, view[position : position + stop - start]))
            position += stop - start
        if size < 0 or not extents or position != len(content) - DIGEST_LENGTH:
            raise ValueError
        start, witnessed = self._witness
        if start < 0 or not 0 <= witnessed <= min(WITNESS, self.length - start):
            raise ValueError

    def check_belongs_to(self, fp: Any) -> None:
        """Raise `StorageError` if it was not written for what is in `fp`.

        Someone may have put another file under the name since; with another inode and
        the new head it may be the new state, whole.
        """
        start, size = self._witness
        status = os.fstat(fp.fileno())
        same_file = status.st_ino == self._inode
        last, piece = self.pieces[-1]
        new = self._new_head
        old = bytes(self.pieces[0][1][: len(new)])
        head = _read(fp, self.pieces[0][0], len(new))
        fits = (
            (same_file or (size and head != new))
            and (last <= status.st_size or not piece)
            and self.length <= max(status.st_size, last + len(piece))
            and self._witness_digest == _digest(_read(fp, start, size))
            # Where the change was interrupted, part of the head may be new.
            and all(is_ in both for is_, *both in zip(head, old, new, strict=False))
        )
        if not fits:
            raise StorageError(
                "the journal '%s' was not written for this file: it has been copied or "
                "replaced since. Remove the journal if the file is whole" % self.name
            )

    def overlay(self, offset: int, view: memoryview) -> None:
        """Lay the old bytes over `view`, which was read at `offset`."""
        for start, piece in self.pieces:
            first = max(start, offset)
            last = min(start + len(piece), offset + len(view))
            if first < last:
                part = piece[first - start : last - start]
                view[first - offset : last - offset] = part


def load(name: str) -> Journal | None:
    """Return the journal `name`; None if there is none or it was never completed.

    An incomplete one means that nothing has been changed yet. Raises `StorageError`
    if what has the name is something else, or damaged.
    """
    content = _content(name)
    if content is None:
        return None
    if content[len(MAGIC) : CLOSED_AT] not in (b"", b"\0", bytes([VERSION])):
        raise StorageError(
            "the journal '%s' has version %d, which is not known"
            % (name, content[len(MAGIC)])
        )
    if not _is_complete(content):
        if content[CLOSED_AT : CLOSED_AT + 1] == b"\1":
            raise StorageError(
                "the journal '%s' is damaged: the change that it belongs to can't be "
                "taken back. Remove the journal if the file is whole" % name
            )
        return None
    return Journal(name, content)


def _content(name: str) -> bytes | None:
    """Return what may be a journal; None if the name is free.

    Of a file that has not the length of the journal in its head it is the head alone.
    """
    try:
        # Opening a pipe would wait for somebody to write to it.
        if not stat.S_ISREG(os.lstat(name).st_mode):
            raise StorageError(
                "'%s' has the name of a journal, but is no regular file" % name
            )
        with open(name, "rb") as fp:
            head = fp.read(HEAD.size)
            # What was never synced may be missing, or be zero.
            for is_, magic in zip(head, MAGIC, strict=False):
                if is_ not in (0, magic):
                    raise StorageError(
                        "'%s' has the name of a journal, but is none" % name
                    )
            if not _has_its_length(fp, head):
                return head
            fp.seek(0)
            return fp.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except MemoryError as error:
        raise StorageError("there is no memory for the journal '%s'" % name) from error
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return None
        raise


def _has_its_length(fp: Any, head: bytes) -> bool:
    """Return whether a file, read up to here, is as long as its head and table say."""
    # Now: it may just be written, and where the head says so, that has been finished.
    size = os.fstat(fp.fileno()).st_size
    if len(head) < HEAD.size:
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
    expected: int = HEAD.size + table_size + 8 + length + kept + DIGEST_LENGTH
    return expected == size


def _is_complete(content: bytes) -> bool:
    if len(content) < HEAD.size + DIGEST_LENGTH or content[len(MAGIC)] != VERSION:
        return False
    import hashlib

    view = memoryview(content)
    digest = hashlib.sha256(view[:CLOSED_AT])
    digest.update(b"\0")
    digest.update(view[CLOSED_AT + 1 : -DIGEST_LENGTH])
    return digest.digest() == content[-DIGEST_LENGTH:]
