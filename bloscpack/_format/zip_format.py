"""The parts of a ZIP file whose members are stored without compression.

::

    local header | member | local header | member | ... | directory | end records

Strategy: encoding and decoding stand next to each other. Nothing in a file is trusted:
`decode_directory` checks every number before it is used, so that the
extents of all members are inside of the file, in front of the directory, and apart from
each other. Zip64 is written where a number needs it, and in every local header, because
that is written before the size of its member is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING
from zlib import crc32

from .._types import Buffer
from ..exceptions import DamageError, NotReadable, Unsupported, UsageValueError
from .crc32c import multiply, power

if TYPE_CHECKING:
    from .._storage.base import Storage

# signature, version needed, flags, method, time, date, crc32, compressed and plain
# size, lengths of name and extra field
LOCAL = Struct("<4s5H3I2H")
LOCAL_SIGNATURE = b"PK\x03\x04"
# signature, version made by, version needed, flags, method, time, date, crc32,
# compressed and plain size, lengths of name, extra field and comment, disk, internal
# and external attributes, offset of the local header
ENTRY = Struct("<4s6H3I5H2I")
ENTRY_SIGNATURE = b"PK\x01\x02"
# signature, disk, disk of the directory, entries on this disk, entries, size and offset
# of the directory, length of the comment
END = Struct("<4s4H2IH")
END_SIGNATURE = b"PK\x05\x06"
# signature, size of the rest, version made by, version needed, disk, disk of the
# directory, entries on this disk, entries, size and offset of the directory
END64 = Struct("<4sQ2H2I4Q")
END64_SIGNATURE = b"PK\x06\x06"
# signature, disk, offset of END64, number of disks
LOCATOR = Struct("<4sIQI")
LOCATOR_SIGNATURE = b"PK\x06\x07"
# The extra field of Zip64: its number and length, then the numbers that are too large
# for their own fields.
EXTRA = Struct("<2H")
EXTRA64 = 1
SIZES64 = Struct("<2Q")
# The extra field of an entry with the crc32 of what `DIGESTED` holds and of the name.
# The directory has no checksum of its own: one flipped bit would rename a member.
EXTRA_DIGEST = int.from_bytes(b"Bp", "little")
DIGEST = Struct("<I")
# flags, method, crc32, size
DIGESTED = Struct("<2HIQ")

MAX16 = 2**16 - 1
MAX32 = 2**32 - 1
STORED, DEFLATED = 0, 8
# Flags of a member: encrypted in one of three ways, checksum and sizes behind its bytes
# and not in its local header, and a name in UTF-8.
ENCRYPTED = 1 << 0 | 1 << 6 | 1 << 13
DESCRIPTOR = 1 << 3
UTF8 = 1 << 11
# Version 4.5 of the format has Zip64; the upper byte says that attributes are Unix's.
VERSION = 45
MADE_BY = 3 << 8 | VERSION
# 1 January 1980, midnight: the same arrays make the same file.
TIME, DATE = 0, 1 << 5 | 1
# A regular file that its owner may write and everybody may read.
ATTRIBUTES = 0o100644 << 16
# Maximum size of a directory in bytes. It is in memory as a whole, and an entry takes
# ten times as much there. Two arrays with short names take about 300 bytes.
MAX_DIRECTORY = 16 * 2**20
# Number of bytes at the end of a file in which the end records are, with the longest
# comment behind them.
TAIL_LENGTH = END64.size + LOCATOR.size + END.size + MAX16
# The polynomial of crc32 without x**32.
POLYNOMIAL = 0xEDB88320


class Member:
    """A member of a ZIP file.

    Attributes
    ----------
    name
        The name, with slashes.
    raw_name
        The bytes of the name.
    flags, method
        How it is stored; `check` refuses all but plain bytes.
    crc, size
        Checksum and number of its bytes.
    offset, limit
        Where its local header begins, and where the next part of the file does.
    stored_digest
        The digest in its entry; None if there is none.
    """

    __slots__ = (
        *("crc", "flags", "limit", "method", "name", "offset", "raw_name", "size"),
        "stored_digest",
    )

    def __init__(self, name: str, raw_name: bytes) -> None:
        self.name = name
        self.raw_name = raw_name
        self.flags = UTF8
        self.method = STORED
        self.crc = self.size = self.offset = self.limit = 0
        self.stored_digest: bytes | None = None

    @property
    def digest(self) -> int:
        """The digest of an entry for this member."""
        fields = DIGESTED.pack(self.flags, self.method, self.crc, self.size)
        return crc32(self.raw_name, crc32(fields))

    def check(self) -> None:
        """Raise `Unsupported` unless the member is neither compressed nor encrypted."""
        if self.flags & ENCRYPTED:
            raise Unsupported(
                "the member %.200r of the ZIP file is encrypted" % self.name
            )
        if self.method != STORED:
            raise Unsupported(
                "the member %.200r of the ZIP file is compressed by ZIP itself, by the "
                "method '%d'%s, which is not supported: unzip it, and zip the folder "
                "with 'zip -0 -r', or convert the folder with 'blpk convert'"
                % (self.name, self.method, " (deflate)" * (self.method == DEFLATED))
            )


def new_member(name: str) -> Member:
    """Return a member to be written; raise `UsageError` if its name is impossible."""
    try:
        raw_name = name.encode()
    except UnicodeEncodeError as error:
        raise UsageValueError("%r is no name in Unicode" % name) from error
    if len(raw_name) > MAX16:
        raise UsageValueError(
            "a name in a ZIP file has at most %d bytes, found '%d'"
            % (MAX16, len(raw_name))
        )
    return Member(name, raw_name)


# The local header of a member


def encode_local(member: Member) -> bytes:
    """Return the local header; its length depends only on the name."""
    header = LOCAL.pack(
        *(LOCAL_SIGNATURE, VERSION, UTF8, STORED, TIME, DATE),
        *(member.crc, MAX32, MAX32),
        *(len(member.raw_name), EXTRA.size + SIZES64.size),
    )
    extra = EXTRA.pack(EXTRA64, SIZES64.size) + SIZES64.pack(member.size, member.size)
    return header + member.raw_name + extra


def local_length(member: Member) -> int:
    """Return the number of bytes of a local header without its extra field."""
    return LOCAL.size + len(member.raw_name)


def local_extent(member: Member) -> tuple[int, int]:
    """Return the extent of the local header that `encode_local` makes."""
    length = local_length(member) + EXTRA.size + SIZES64.size
    return member.offset, member.offset + length


def decode_local(data: Buffer, member: Member) -> int:
    """Return where the bytes of a member begin; `data` are those of `local_extent`.

    Raises `FormatError` unless the header agrees with the directory, and all bytes of
    the member are in front of the next part of the file.
    """
    if member.flags == UTF8 and data == encode_local(member):
        start: int | None = member.offset + len(data)
    else:
        start = _start_of(bytes(data), member)
    if start is None or start + member.size > member.limit:
        raise DamageError(
            "expected the local header of the member %.200r and its '%d' bytes, found "
            "something else" % (member.name, member.size),
            offset=member.offset,
        )
    return start


def _start_of(data: bytes, member: Member) -> int | None:
    """Return where the bytes of a member begin, None for the header of another one."""
    length = local_length(member)
    if len(data) < length:
        return None
    fields = LOCAL.unpack_from(data)
    signature, _, flags, method, _, _, crc, packed, size = fields[:9]
    name_length, extra_length = fields[9:]
    if method == member.method and not (flags ^ member.flags) & ENCRYPTED:
        member.check()  # the local header says, too, how the member is stored
    if (
        signature != LOCAL_SIGNATURE
        or (flags ^ member.flags) & (ENCRYPTED | UTF8)
        or method != member.method
        or name_length != len(member.raw_name)
        or data[LOCAL.size : length] != member.raw_name
    ):
        return None
    extra, numbers = data[length : length + extra_length], [size, packed]
    whole = len(extra) == extra_length
    if MAX32 in numbers:
        try:
            _read_extra64(extra, numbers)
        except StructError:
            if whole:
                return None
    if not whole:  # another writer's; the directory has the sizes as well
        numbers = [member.size if n == MAX32 else n for n in numbers]
    found, expected = [crc, *numbers], [member.crc, member.size, member.size]
    if found != expected:
        pairs = zip(found, expected, strict=True)
        if not flags & DESCRIPTOR or any(a and a != b for a, b in pairs):
            return None
    start: int = member.offset + length + extra_length
    return start


# The directory


def encode_directory(
    members: Iterable[Member], start: int, *, digests: bool = True
) -> bytes:
    """Return the directory that begins at `start`, and the end records behind it.

    `digests` says whether the entries have digests.
    """
    entries = [_encode_entry(member, digests) for member in members]
    size = sum(map(len, entries))
    if size > MAX_DIRECTORY:
        raise UsageValueError(
            "the directory of the ZIP file would have '%d' bytes, more than '%d': "
            "store fewer arrays in it" % (size, MAX_DIRECTORY)
        )
    count = len(entries)
    records = []
    if max(size, start) >= MAX32 or count >= MAX16:
        records = [
            END64.pack(
                *(END64_SIGNATURE, END64.size - 12, MADE_BY, VERSION, 0, 0),
                *(count, count, size, start),
            ),
            LOCATOR.pack(LOCATOR_SIGNATURE, 0, start + size, 1),
        ]
    few, end = min(count, MAX16), (min(size, MAX32), min(start, MAX32))
    return b"".join(
        [*entries, *records, END.pack(END_SIGNATURE, 0, 0, few, few, *end, 0)]
    )


def _encode_entry(member: Member, digests: bool = True) -> bytes:
    numbers = member.size, member.size, member.offset
    large = [number for number in numbers if number >= MAX32]
    extra = b""
    if large:
        extra = EXTRA.pack(EXTRA64, 8 * len(large))
        extra += b"".join(number.to_bytes(8, "little") for number in large)
    if digests:
        extra += EXTRA.pack(EXTRA_DIGEST, DIGEST.size) + DIGEST.pack(member.digest)
    size, _, offset = (min(number, MAX32) for number in numbers)
    return (
        ENTRY.pack(
            *(ENTRY_SIGNATURE, MADE_BY, VERSION, UTF8, STORED, TIME, DATE),
            *(member.crc, size, size, len(member.raw_name), len(extra), 0, 0, 0),
            *(ATTRIBUTES, offset),
        )
        + member.raw_name
        + extra
    )


class Directory:
    """Where a directory is in a file of `size` bytes, as `tail`, its end, says.

    ``start`` and ``stop`` are its extent, ``count`` is the number of its entries, and
    ``shift`` the number of bytes in front of the ZIP file, by which all its offsets
    are too small.

    Raises `FormatError` if there is none, or if it is impossible.
    """

    def __init__(self, tail: bytes, size: int) -> None:
        at = _find_end(tail)
        _, disk, other, on_disk, count, nbytes, offset, _ = END.unpack_from(tail, at)
        at64 = at - LOCATOR.size - END64.size
        if at64 >= 0 and tail.startswith(LOCATOR_SIGNATURE, at - LOCATOR.size):
            signature, _, _, _, disk, other, on_disk, count, nbytes, offset = (
                END64.unpack_from(tail, at64)
            )
            if signature != END64_SIGNATURE:
                raise _damaged("the end record of Zip64 is not in front of its locator")
            at = at64
        if disk or other or on_disk != count:
            raise Unsupported("the ZIP file is divided into several files")
        if nbytes > MAX_DIRECTORY:
            raise Unsupported(
                "the directory of the ZIP file has '%d' bytes, more than '%d'"
                % (nbytes, MAX_DIRECTORY)
            )
        self.stop = size - len(tail) + at
        self.start = self.stop - nbytes
        self.shift = self.start - offset
        self.count = count
        if self.start < 0 or self.shift < 0:
            raise _damaged(
                "its directory of '%d' bytes at '%d' does not end at '%d'"
                % (nbytes, offset, self.stop)
            )


def _find_end(tail: bytes) -> int:
    """Return where the end record is, the last one whose comment ends the file."""
    at = len(tail)
    while (at := tail.rfind(END_SIGNATURE, 0, at)) >= 0:
        if at + END.size <= len(tail):
            comment_length = END.unpack_from(tail, at)[-1]
            if at + END.size + comment_length == len(tail):
                return at
    raise NotReadable("expected a ZIP file, found no end record of one")


def _damaged(why: str) -> DamageError:
    return DamageError("the ZIP file is damaged: " + why)


def read_directory(storage: Storage) -> tuple[Directory, list[Member]]:
    """Return where the directory is and its members; raise `FormatError` if wrong."""
    length = min(storage.size, TAIL_LENGTH)
    tail = storage.read_at(storage.size - length, length)
    try:
        directory = Directory(tail, storage.size)
    except NotReadable as error:
        if begins_as_archive(storage):
            raise DamageError(error.message) from error
        raise
    data = storage.read_at(directory.start, directory.stop - directory.start)
    return directory, decode_directory(data, directory)


def begins_as_archive(storage: Storage) -> bool:
    """Return whether the first member may be the document of the group."""
    name = b"zarr.json"
    head = storage.read_at(0, LOCAL.size + len(name))
    return head.startswith(LOCAL_SIGNATURE) and head.endswith(name)


def decode_directory(data: bytes, directory: Directory) -> list[Member]:
    """Return the members; `data` are the bytes of their directory.

    Raises `FormatError` unless they are in front of it and apart from each other, and
    their digests are right.
    """
    members = []
    at = 0
    try:
        while at < len(data):
            member, at = _decode_entry(data, at)
            member.offset += directory.shift
            members.append(member)
    except (StructError, UnicodeDecodeError) as error:
        raise _damaged("its directory has an invalid entry: %s" % error) from error
    if len(members) != directory.count:
        raise _damaged(
            "expected '%d' members, found '%d'" % (directory.count, len(members))
        )
    limit = directory.start
    for member in sorted(members, key=lambda member: -member.offset):
        member.limit = limit
        # Other writers may store a compressed member, whose stored size is unknown.
        size = member.size if member.method == STORED else 0
        if member.offset + local_length(member) + size > limit:
            raise _damaged(
                "the member %.200r at '%d' of '%d' bytes overlaps what follows at '%d'"
                % (member.name, member.offset, member.size, limit)
            )
        limit = member.offset
        stored = member.stored_digest
        if stored not in (None, DIGEST.pack(member.digest)):
            raise _damaged(
                "the digest of the entry %.200r in its directory does not match"
                % member.name
            )
    return members


def _decode_entry(data: bytes, at: int) -> tuple[Member, int]:
    """Return the member in the entry at a position, and where the next entry is."""
    fields = ENTRY.unpack_from(data, at)
    signature, _, _, flags, method, _, _, crc, packed, size = fields[:10]
    name_length, extra_length, comment_length, disk, _, _, offset = fields[10:]
    middle = at + ENTRY.size + name_length
    stop = middle + extra_length + comment_length
    if signature != ENTRY_SIGNATURE or stop > len(data):
        raise StructError("no entry at byte %d" % at)
    if disk:
        raise StructError("the entry at byte %d is of disk %d" % (at, disk))
    raw_name = data[at + ENTRY.size : middle]
    member = Member(raw_name.decode("utf-8" if flags & UTF8 else "cp437"), raw_name)
    member.flags, member.method, member.crc = flags, method, crc
    numbers = [size, packed, offset]
    extra = data[middle : middle + extra_length]
    if MAX32 in numbers:
        _read_extra64(extra, numbers)
    member.size, packed, member.offset = numbers
    if method == STORED and packed != member.size:
        raise StructError("a stored member has two sizes, %d and %d" % (packed, size))
    for kind, field in extra_fields(extra) if extra else ():
        if kind == EXTRA_DIGEST and member.stored_digest is None:
            member.stored_digest = field
    return member, stop


def extra_fields(extra: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of each extra field, but not of one that is cut off."""
    at = 0
    while at + EXTRA.size <= len(extra):
        kind, length = EXTRA.unpack_from(extra, at)
        at += EXTRA.size + length
        if at <= len(extra):
            yield kind, extra[at - length : at]


def _read_extra64(extra: bytes, numbers: list[int]) -> None:
    """Replace the numbers that are too large for their fields."""
    for kind, field in extra_fields(extra):
        if kind == EXTRA64:
            at = 0
            for i, number in enumerate(numbers):
                if number == MAX32:
                    if at + 8 > len(field):
                        raise StructError("a number of Zip64 is missing")
                    numbers[i] = int.from_bytes(field[at : at + 8], "little")
                    at += 8
            return
    # Without the field, the number itself is meant.


# Checksums


def join_crc(one: int, other: int, nbytes: int) -> int:
    """Return the crc32 of two parts from those of each; the other has `nbytes`."""
    if nbytes:
        one = multiply(one, power(8 * nbytes, POLYNOMIAL), POLYNOMIAL)
    return one ^ other
