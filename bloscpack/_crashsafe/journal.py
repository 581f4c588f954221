"""The undo journal of a file that is changed in place: its layout, reading and checks.

``NAME.journal`` holds the old length of NAME and the old bytes of every extent that the
change overwrites; docs/durability.rst has the table of its fields. Contract:

- The journal is complete before the first byte of NAME is overwritten.
- Removing the journal commits the change.
- As long as a complete journal exists, NAME counts as unchanged: a writer first
  restores the old bytes, and a reader puts them over the bytes that it reads.
- An incomplete journal means that NAME is unchanged, so it can be removed.
- A journal is applied only to the file for which it was written
  (`Journal.check_belongs_to`).
"""

from __future__ import annotations

import errno
import os
import stat
import struct

from .._storage.base import MemoryStorage, Storage
from .._storage.local import whole_file
from ..exceptions import StorageError

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .._storage.protocols import BinaryFile

    # The (start, stop) of bytes of a file.
    Extent = tuple[int, int]

SUFFIX = ".journal"
MAGIC = b"blpkjrnl"
VERSION = 1
# Magic, version, completeness flag, old length of the file, inode number, number of
# extents, start and length of the witness, digest of the witness.
HEAD = struct.Struct("<8sBB6xqQqqq32s")
VERSION_OFFSET = len(MAGIC)
# Offset of the flag that becomes 1 when the journal is complete. The digest of the
# journal is taken with 0 in its place.
COMPLETE_FLAG_OFFSET = VERSION_OFFSET + 1
# Some file systems have inode numbers of more than the 64 bits in the journal.
INODE_MASK = 2**64 - 1
EXTENT = struct.Struct("<qq")
# Length of the new head.
LENGTH = struct.Struct("<q")
DIGEST_LENGTH = 32
# Maximum number of samples of the witness that are hashed, and bytes in each: a witness
# may be the rest of a large file, and hashing all of it would take longer than the
# change.
WITNESS_SAMPLES = 128
WITNESS_SAMPLE_SIZE = 4 * 2**10
# Maximum size in bytes of a journal that is read into memory as a whole.
MAX_IN_MEMORY = 64 * 2**20
# Number of bytes that a disk writes at once: after a crash the first sector of a
# journal that was not synced is complete, or all zeros.
SECTOR = 512


def name_for(path: str) -> str:
    """Return the name of the journal of a file, which may be a symbolic link."""
    return os.path.realpath(path) + SUFFIX


def encode(
    fp: BinaryFile, extents: Sequence[Extent], new_head: bytes, unchanged: Extent
) -> Iterator[bytes]:
    """Yield the parts of an incomplete journal for a change of the file object `fp`.

    `extents` will be overwritten; they end within the file, and the first one will
    begin with the bytes `new_head`. `unchanged` is the witness: an extent that the
    change does not touch. `mark_complete` makes the journal complete.
    """
    import hashlib

    storage = whole_file(fp)
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
        digest_of_witness(storage, start, stop),
    )
    table = b"".join(EXTENT.pack(start, stop) for start, stop in extents)
    digest = hashlib.sha256()
    for part in (head, table, LENGTH.pack(len(new_head)), new_head):
        digest.update(part)
        yield part
    for start, stop in extents:
        for block in storage.read_blocks(start, stop):
            digest.update(block)
            yield block
    yield digest.digest()


def mark_complete(fp: BinaryFile) -> None:
    """Set the flag that says that the journal in `fp` is complete.

    If its digest is wrong later, the journal is damaged. With the flag unset a wrong
    digest means that the journal was never finished.
    """
    fp.seek(COMPLETE_FLAG_OFFSET)
    fp.write(b"\1")
    fp.flush()


def digest_of_witness(storage: Storage, start: int, stop: int) -> bytes:
    """Return a digest of samples of the bytes from `start` to `stop`.

    The samples are equally spaced; the last one is at the end. A short witness is
    hashed completely.
    """
    import hashlib

    step = max(WITNESS_SAMPLE_SIZE, -(-(stop - start) // WITNESS_SAMPLES))
    digest = hashlib.blake2b(digest_size=DIGEST_LENGTH)  # the fastest one
    for position in range(start, stop, step):
        size = min(WITNESS_SAMPLE_SIZE, stop - position)
        digest.update(storage.read_at(position, size))
    last = max(start, stop - WITNESS_SAMPLE_SIZE)
    digest.update(storage.read_at(last, stop - last))
    return digest.digest()


class _OpenFileStorage(Storage):
    """An open file, which can be read even after it has been removed."""

    def __init__(self, fp: BinaryFile) -> None:
        # A descriptor of its own: the caller closes `fp`.
        self._fp = os.fdopen(os.dup(fp.fileno()), "rb", buffering=0)
        self._storage = whole_file(self._fp)
        self.size = self._storage.size
        self.concurrent = self._storage.concurrent

    def read_into(self, view: memoryview, offset: int) -> int:
        return self._storage.read_into(view, offset)

    def __del__(self) -> None:
        if hasattr(self, "_fp"):  # unless `dup` failed
            self._fp.close()


class Journal:
    """A complete journal, which can still be read after it has been removed.

    ``length`` is the old length of the file in bytes.
    """

    def __init__(self, name: str, fp: BinaryFile) -> None:
        self.name = name
        storage = whole_file(fp)
        fields = HEAD.unpack(storage.read_at(0, HEAD.size))
        _, _, _, self.length, self._inode, count, *self._unchanged, digest = fields
        self._witness_digest = digest
        position = HEAD.size
        table = storage.read_at(position, count * EXTENT.size)
        self._extents: list[Extent] = list(EXTENT.iter_unpack(table))
        position += len(table)
        (size,) = LENGTH.unpack(storage.read_at(position, LENGTH.size))
        position += LENGTH.size
        self._new_head = storage.read_at(position, size)
        self._old_bytes_offset = position + len(self._new_head)
        start, unchanged = self._unchanged
        # The digest of the journal was right, so these fields were forged.
        if (
            size < 0
            or not self._extents
            or not all(0 <= a <= b <= self.length for a, b in self._extents)
            or start < 0
            or not 0 <= unchanged <= self.length - start
        ):
            raise StorageError("'%s' is not a valid journal" % name)
        self._content: Storage
        # Windows can't remove a file that is open.
        if storage.size > MAX_IN_MEMORY and os.name != "nt":
            self._content = _OpenFileStorage(fp)
        else:
            self._content = MemoryStorage(storage.read_at(0, storage.size))

    def old_bytes(
        self, start: int = 0, stop: int | None = None
    ) -> Iterator[tuple[int, bytes]]:
        """Yield (offset in the file, old bytes) for the overwritten extents.

        Only the part from `start` to `stop` of the file is yielded, `READ_SIZE` bytes
        at most at a time.
        """
        stop = self.length if stop is None else stop
        position = self._old_bytes_offset
        for extent_start, extent_stop in self._extents:
            first, last = max(extent_start, start), min(extent_stop, stop)
            shift = position - extent_start
            offset = first
            for block in self._content.read_blocks(first + shift, last + shift):
                yield offset, block
                offset += len(block)
            position += extent_stop - extent_start

    def overlay(self, offset: int, view: memoryview) -> None:
        """Put the old bytes over `view`, which was read from the file at `offset`."""
        for start, old in self.old_bytes(offset, offset + len(view)):
            view[start - offset : start - offset + len(old)] = old

    def check_belongs_to(self, fp: BinaryFile) -> None:
        """Raise `StorageError` if the journal was not written for the file in `fp`.

        Another file may have got the name since the journal was written, or this one
        may have been copied. Then the old bytes would make a mixture of two files. A
        copy whose head is new is refused too: it may be the complete new state.
        """
        storage = whole_file(fp)
        start, size = self._unchanged
        first, last = self._extents[0][0], self._extents[-1]
        new = self._new_head
        old = bytearray(len(new))
        self.overlay(first, memoryview(old))
        head = storage.read_at(first, len(new))
        # An interrupted write may have replaced part of the head.
        head_fits = head in (old, new) or all(
            byte in both for byte, *both in zip(head, old, new, strict=False)
        )
        length_fits = last[0] <= storage.size or last[0] == last[1]
        same_inode = os.fstat(fp.fileno()).st_ino & INODE_MASK == self._inode
        fits = (
            head_fits
            and length_fits
            and self.length <= max(storage.size, last[1])
            and (same_inode or (size and head != new))
            and self._witness_digest == digest_of_witness(storage, start, start + size)
        )
        if not fits:
            raise StorageError(
                "the journal '%s' was not written for this file, which has been copied "
                "or replaced since. If a copy of the file without the journal is "
                "whole, remove the journal" % self.name
            )


def load(name: str) -> Journal | None:
    """Return the journal `name`; None if there is none, or an incomplete one.

    In both cases the file is unchanged. Raises `StorageError` if the journal is damaged
    or of an unknown version, or if another file has its name.
    """
    try:
        # A pipe is refused before it is opened: opening would wait for a writer.
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


def is_journal(name: str) -> bool:
    """Return whether a file has the name of a journal and begins like a journal."""
    if not name.endswith(SUFFIX) or not os.path.isfile(name):
        return False
    with open(name, "rb") as fp:
        return fp.read(len(MAGIC)) == MAGIC


def _decode(name: str, fp: BinaryFile) -> Journal | None:
    head = whole_file(fp).read_at(0, SECTOR)
    # A crash may have cut a journal that was not synced, or filled it with zeros.
    written = 0
    while (
        written < len(MAGIC)
        and head[written : written + 1] == (MAGIC[written : written + 1])
    ):
        written += 1
    if written < len(MAGIC) and any(head[written:]):
        raise StorageError("'%s' has the name of a journal, but is none" % name)
    version = head[VERSION_OFFSET:COMPLETE_FLAG_OFFSET]
    if version not in (b"", b"\0", bytes([VERSION])):
        raise StorageError(
            "the journal '%s' has version %d, which is not known" % (name, version[0])
        )
    if _is_complete(fp):
        return Journal(name, fp)
    if head[COMPLETE_FLAG_OFFSET : COMPLETE_FLAG_OFFSET + 1] == b"\1":
        raise StorageError(
            "the journal '%s' is damaged: the change that it belongs to can't be "
            "taken back. Remove the journal if the file is whole" % name
        )
    return None


def _is_complete(fp: BinaryFile) -> bool:
    """Return whether a journal has the length given in its head, and its digest.

    The caller has read the completeness flag before. A writer may be writing the
    journal now, so the length must be read later than the flag.
    """
    storage = whole_file(fp)
    head = storage.read_at(0, HEAD.size)
    if len(head) < HEAD.size or head[VERSION_OFFSET] != VERSION:
        return False
    count: int = HEAD.unpack(head)[5]
    table_size = count * EXTENT.size
    if not 0 <= table_size <= storage.size - HEAD.size:
        return False
    position = HEAD.size + table_size
    try:
        table = EXTENT.iter_unpack(storage.read_at(HEAD.size, table_size))
        (head_size,) = LENGTH.unpack(storage.read_at(position, LENGTH.size))
    except struct.error:
        return False
    old_size: int = sum(stop - start for start, stop in table)
    digest_offset = position + LENGTH.size + head_size + old_size
    if digest_offset + DIGEST_LENGTH != storage.size:
        return False
    import hashlib

    expected = storage.read_at(digest_offset, DIGEST_LENGTH)
    if not any(expected):  # saves hashing a huge file of zeros
        return False
    flag = COMPLETE_FLAG_OFFSET
    digest = hashlib.sha256(head[:flag] + b"\0" + head[flag + 1 :])
    for block in storage.read_blocks(HEAD.size, digest_offset):
        digest.update(block)
    return digest.digest() == expected
