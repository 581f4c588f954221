"""The undo journal of a file that is changed in place: its layout, reading and checks.

``NAME.journal`` holds the old length of NAME and the old bytes of every extent that the
change overwrites; docs/format.rst has the table of its fields. Contract:

- The journal is complete before the first byte of NAME is overwritten.
- Removing the journal commits the change.
- As long as a complete journal exists, NAME counts as unchanged: a writer first
  restores the old bytes, and a reader puts them over the bytes that it reads.
- An incomplete journal means that NAME is unchanged, so it can be removed.
- While a journal exists, NAME is at least as long as its old length: bytes are cut off
  after the commit.
- A journal is read only after it has been accepted (`trust.load`).
"""

from __future__ import annotations

import os
import struct

from .._storage.base import MemoryStorage, Storage
from .._storage.paths import is_missing

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .._storage.protocols import BinaryFile

    # The (start, stop) of bytes of a file.
    Extent = tuple[int, int]
    Extents = Iterable[Extent]
    # Bytes, or blocks of them if there may be many.
    Head = bytes | Sequence[bytes]

SUFFIX = ".journal"
MAGIC = b"blpkjrnl"
VERSION = 1
# Magic, version, completeness flag, zeros, old length of the file, inode number, number
# of extents, start and length of the witness, digest of the witness.
HEAD = struct.Struct("<8sBB6sqQqqq32s")
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
# A change overwrites at most the beginning of a file, entries of its offset table, and
# the file from its last chunk on.
MAX_EXTENTS = 3
# Number of bytes in a journal besides the new head and the old bytes, at most.
OVERHEAD = HEAD.size + MAX_EXTENTS * EXTENT.size + LENGTH.size + DIGEST_LENGTH
# Minimum length of a witness in bytes. Shorter bytes are the same in many files: a
# chunk of equal bytes has a header of 16 bytes and about as many others.
MIN_WITNESS = 64
# Maximum number of samples of the witness that are hashed, and bytes in each: a witness
# may be the rest of a large file, and hashing all of it would take longer than the
# change.
WITNESS_SAMPLES = 16
WITNESS_SAMPLE_SIZE = 4 * 2**10
# Maximum size in bytes of a journal that is read into memory as a whole.
MAX_IN_MEMORY = 64 * 2**20
# Number of bytes that a disk writes at once: after a crash the first sector of a
# journal that was not synced is complete, or all zeros.
SECTOR = 512


def name_for(path: str) -> str:
    """Return the name of the journal of a file, which may be a symbolic link."""
    return os.path.realpath(path) + SUFFIX


def is_there(name: str) -> bool:
    """Return whether there is a journal; raise ``OSError`` if the system can't say."""
    try:
        os.lstat(name)
    except OSError as error:
        if is_missing(error):
            return False
        raise
    return True


def encode(
    fp: BinaryFile, extents: Sequence[Extent], new_head: Head, unchanged: Extent
) -> Iterator[bytes]:
    """Yield the parts of an incomplete journal for a change of the file object `fp`.

    `extents` will be overwritten; they end within the file, and the first one will
    begin with the bytes of `new_head`. `unchanged` is the witness: an extent that the
    change does not touch. `mark_complete` makes the journal complete.
    """
    import hashlib

    from .._storage.local import whole_file

    storage = whole_file(fp)
    start, stop = unchanged
    status = os.fstat(fp.fileno())
    head = HEAD.pack(
        MAGIC,
        VERSION,
        0,
        bytes(6),
        status.st_size,
        status.st_ino & INODE_MASK,
        len(extents),
        start,
        stop - start,
        digest_of_witness(storage, start, stop),
    )
    table = b"".join(EXTENT.pack(start, stop) for start, stop in extents)
    digest = hashlib.sha256()
    blocks = [new_head] if isinstance(new_head, bytes) else new_head
    for part in (head, table, LENGTH.pack(sum(map(len, blocks))), *blocks):
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


class Journal:
    """The fields of a journal, unchecked, and its old bytes.

    ``length`` is the old length of the file in bytes, ``witness`` an extent, and
    ``size`` the length of the journal that follows from the other fields. `keep` makes
    a journal that can be read after it has been removed.
    """

    def __init__(self, name: str, storage: Storage) -> None:
        """Read the fields; raises `struct.error` if the journal is too short."""
        self.name = name
        self._content = storage
        fields = HEAD.unpack(storage.read_at(0, HEAD.size))
        _, _, _, self.reserved, self.length, self.inode, self.count, *witness = fields
        start, size, digest = witness
        self.witness = start, start + size
        self.witness_digest: bytes = digest
        # The count may be any number until it has been checked.
        ntable = EXTENT.size * min(max(self.count, 0), MAX_EXTENTS)
        table = storage.read_at(HEAD.size, ntable)
        self.extents: list[Extent] = list(EXTENT.iter_unpack(table))
        position = HEAD.size + ntable
        (self.new_head_size,) = LENGTH.unpack(storage.read_at(position, LENGTH.size))
        self._new_head_offset = position + LENGTH.size
        self._old_bytes_offset = self._new_head_offset + self.new_head_size
        nbytes = sum(stop - start for start, stop in self.extents)
        self.size: int = self._old_bytes_offset + nbytes + DIGEST_LENGTH

    def new_head(self, start: int, size: int) -> bytes:
        """Return up to `size` bytes, from `start` on, of the new head.

        The first extent will begin with the new head.
        """
        size = min(size, self.new_head_size - start)
        return self._content.read_at(self._new_head_offset + start, size)

    def digest_fits(self) -> bool:
        """Return whether the digest at the end fits the bytes before it."""
        storage = self._content
        expected = storage.read_at(self.size - DIGEST_LENGTH, DIGEST_LENGTH)
        if not any(expected):  # saves hashing a huge file of zeros
            return False
        import hashlib

        flag = COMPLETE_FLAG_OFFSET
        head = storage.read_at(0, HEAD.size)
        digest = hashlib.sha256(head[:flag] + b"\0" + head[flag + 1 :])
        for block in storage.read_blocks(HEAD.size, self.size - DIGEST_LENGTH):
            digest.update(block)
        return digest.digest() == expected

    def keep(self, fp: BinaryFile) -> Journal:
        """Return the journal, which can be read even when the file `fp` is removed."""
        # Windows can't remove a file that is open.
        if self.size > MAX_IN_MEMORY and os.name != "nt":
            import weakref

            from .._storage.local import whole_file

            # A descriptor of its own: the caller closes `fp`.
            own = os.fdopen(os.dup(fp.fileno()), "rb", buffering=0)
            self._content = whole_file(own)
            weakref.finalize(self._content, own.close)
        else:
            self._content = MemoryStorage(self._content.read_at(0, self.size))
        return self

    def old_bytes(
        self, start: int = 0, stop: int | None = None
    ) -> Iterator[tuple[int, bytes]]:
        """Yield (offset in the file, old bytes) for the overwritten extents.

        Only the part from `start` to `stop` of the file is yielded, `READ_SIZE` bytes
        at most at a time.
        """
        stop = self.length if stop is None else stop
        position = self._old_bytes_offset
        for extent_start, extent_stop in self.extents:
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


def is_journal(name: str) -> bool:
    """Return whether a file has the name of a journal and begins like a journal."""
    from .._storage.local import begins_with

    return name.endswith(SUFFIX) and begins_with(name, MAGIC)
