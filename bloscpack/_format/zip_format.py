"""Archives of `savez`: the list of members in the group's document, and ZIP records.

::

    local header | member | ... | local header | zarr.json | directory | end record

Strategy: the module `zipfile` reads and writes the directory. Here are the records that
it leaves to others: the local header in front of a member that is read in place, and
the end records, which it does not check. The list has a digest, because the directory
has none: a flipped bit would rename a member. No file is read here.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from .._types import Buffer, Json, JsonObject
from ..exceptions import DamageError, NotReadable, Unsupported
from ..serializers import parse_json
from .crc32c import multiply, power
from .names import MAX_PARTS, is_short
from .other_formats import ZARR_JSON

if TYPE_CHECKING:
    from collections.abc import Iterable
    from zipfile import ZipInfo

# signature, version needed, flags, method, time, date, crc32, compressed and plain
# size, lengths of name and extra field
LOCAL = Struct("<4s5H3I2H")
LOCAL_SIGNATURE = b"PK\x03\x04"
END_SIGNATURE = b"PK\x05\x06"
# The extra field of Zip64 in a local header: number, length, plain and compressed size.
EXTRA64 = Struct("<2H2Q")
# signature, disk, disk of the directory, entries on this disk, entries, size and offset
# of the directory, length of the comment
END = Struct("<4s4H2IH")
# signature, size of the rest, version made by, version needed, disk, disk of the
# directory, entries on this disk, entries, size and offset of the directory
END64 = Struct("<4sQ2H2I4Q")
# signature, disk, offset of END64, number of disks
LOCATOR = Struct("<4sIQI")
# Number of bytes at the end of a file in which the end records are, with the longest
# comment behind them.
TAIL_LENGTH = END64.size + LOCATOR.size + END.size + 2**16 - 1
# Maximum size of a directory in bytes: `zipfile` takes twenty times as much memory. Two
# arrays with short names take about 300 bytes.
MAX_DIRECTORY = 16 * 2**20
# Maximum number of bytes of a name in a ZIP file.
MAX_NAME = 2**16 - 1
# Maximum number of parts of the name of an array. Behind it there is a part for each
# axis.
MAX_ARRAY_PARTS = 180
MAX32 = 2**32 - 1
STORED, DEFLATED, BZIP2 = 0, 8, 12
# Flags of a member: encrypted in one of three ways, checksum and sizes behind its bytes
# and not in its local header, and a name in UTF-8.
ENCRYPTED = 1 << 0 | 1 << 6 | 1 << 13
DESCRIPTOR = 1 << 3
UTF8 = 1 << 11
# Version 4.5 of the format has Zip64.
VERSION = 45
# 1 January 1980, midnight: the same arrays make the same file.
DATE = 1 << 5 | 1
# The polynomial of crc32 without x**32.
POLYNOMIAL = 0xEDB88320
# The attribute of the group with the list: {"sizes": {NAME: size}, "digest": DIGEST}.
MEMBERS = "bloscpack-members"
DIGEST = re.compile("crc32=([0-9a-f]{8})")
ZEROS = b"crc32=00000000"


# The list of members


def encode_group(attributes: JsonObject | None, sizes: dict[str, int]) -> bytes:
    """Return the document of a group that lists members with chunks and their sizes."""
    from .zarr_metadata import encode_json, group_document  # imports NumPy

    listed = {"sizes": sizes, "digest": ZEROS.decode()}
    content = encode_json(group_document({**(attributes or {}), MEMBERS: listed}))
    digest = b"crc32=%08x" % crc32(content)
    start, _, end = content.rpartition(ZEROS)
    return start + digest + end


def decode_sizes(content: bytes) -> dict[str, int]:
    """Return the sizes of members by name that the document of a group lists.

    A document with a wrong digest lists none: another program has written it. Raises
    `Unsupported` if a name is too long.
    """
    if MEMBERS.encode() not in content:
        return {}
    try:
        value: Json = parse_json(content)
        listed = value["attributes"][MEMBERS]
        sizes, digest = listed["sizes"], listed["digest"]
        start, mark, end = content.rpartition(digest.encode())
        stated = DIGEST.fullmatch(digest)
    except (ValueError, LookupError, TypeError, AttributeError):
        return {}
    is_right = stated and crc32(start + ZEROS + end) == int(stated[1], 16)
    if not (is_right and mark and isinstance(sizes, dict)):
        return {}
    if not all(type(size) is int for size in sizes.values()):
        return {}
    for name in sizes:
        if not is_short(name) or len(name.encode(errors="surrogatepass")) > MAX_NAME:
            raise Unsupported(
                "the document of the group lists %.200r, a name of more than '%d' "
                "parts or '%d' bytes" % (name, MAX_PARTS, MAX_NAME)
            )
    return sizes


def parents_of(names: Iterable[str]) -> dict[str, None]:
    """Return the groups that contain the names, in order; the outermost one is not."""
    parents: dict[str, None] = {}
    for name in names:
        end = name.find("/")
        while end >= 0:
            parents[name[:end]] = None
            end = name.find("/", end + 1)
    return parents


def begins_one(name: str, names: list[str]) -> bool:
    """Return whether a name is a group that contains one of the sorted names."""
    prefix = name + "/"
    at = bisect_left(names, prefix)
    return at < len(names) and names[at].startswith(prefix)


def document_name(name: str) -> str:
    """Return the name of the document of an array or a group."""
    return "%s/%s" % (name, ZARR_JSON)


# Local headers


def encode_local(info: ZipInfo) -> bytes:
    """Return the local header of a new member; its length depends only on the name."""
    name = info.filename.encode()
    flags = 0 if name.isascii() else UTF8
    fields = VERSION, flags, STORED, 0, DATE, info.CRC, MAX32, MAX32
    header = LOCAL.pack(LOCAL_SIGNATURE, *fields, len(name), EXTRA64.size)
    return header + name + EXTRA64.pack(1, 16, info.file_size, info.file_size)


def raw_name(info: ZipInfo) -> bytes:
    """Return the bytes of a name."""
    return info.orig_filename.encode("utf-8" if info.flag_bits & UTF8 else "cp437")


def local_extent(info: ZipInfo) -> tuple[int, int]:
    """Return the extent of the local header that `encode_local` makes."""
    length = LOCAL.size + len(raw_name(info)) + EXTRA64.size
    return info.header_offset, info.header_offset + length


class LocalHeader(NamedTuple):
    """A local header, compared with the entry of its member in the directory.

    Attributes
    ----------
    flags, method
        As in the entry.
    numbers
        The crc32, and the plain and the compressed size.
    start
        Where the bytes of the member begin.
    is_named
        Whether the signature is right, and the name and its encoding are those of the
        entry.
    """

    flags: int
    method: int
    numbers: tuple[int, int, int]
    start: int
    is_named: bool


def read_local(data: Buffer, info: ZipInfo) -> LocalHeader | None:
    """Return the local header of a member; None if the file ends in it.

    `data` are the bytes of `local_extent`.
    """
    data, name = bytes(data), raw_name(info)
    at = LOCAL.size + len(name)
    if len(data) < at:
        return None
    fields = LOCAL.unpack_from(data)
    signature, _, flags, method, _, _, crc, packed, size, length, more = fields
    size, packed = _sizes(size, packed, data[at : at + more])
    is_named = (
        (signature, length) == (LOCAL_SIGNATURE, len(name))
        and not (flags ^ info.flag_bits) & UTF8
        and data[LOCAL.size : at] == name
    )
    start: int = info.header_offset + at + more
    return LocalHeader(flags, method, (crc, size, packed), start, is_named)


def _sizes(size: int, packed: int, extra: bytes) -> tuple[int, int]:
    """Return the sizes in a local header, for 2**32 - 1 that in its field of Zip64."""
    if MAX32 in (packed, size) and extra[:4] == EXTRA64.pack(1, 16, 0, 0)[:4]:
        field = extra[: EXTRA64.size].ljust(EXTRA64.size, b"\xff")
        _, _, *large = EXTRA64.unpack(field)
        size = large[0] if size == MAX32 else size
        packed = large[1] if packed == MAX32 else packed
    return size, packed


def find_local(data: bytes, at: int) -> tuple[str, LocalHeader] | None:
    """Return the name and the local header of a member that no directory lists.

    `data` are the bytes from `at` on, at least those of the header. Returns None for
    other bytes, which begin with a signature by chance.
    """
    if len(data) < LOCAL.size:
        return None
    fields = LOCAL.unpack_from(data)
    signature, _, flags, method, _, _, crc, packed, size, length, more = fields
    behind = LOCAL.size + length
    name = data[LOCAL.size : behind].decode(
        "utf-8" if flags & UTF8 else "cp437", "replace"
    )
    is_name = len(data) >= behind and length and name.isprintable()
    if signature != LOCAL_SIGNATURE or not is_name:
        return None
    size, packed = _sizes(size, packed, data[behind : behind + more])
    return name, LocalHeader(
        flags, method, (crc, size, packed), at + behind + more, True
    )


def decode_local(data: Buffer, info: ZipInfo, limit: int) -> int:
    """Return where the bytes of a member begin; `data` are those of `local_extent`.

    Raises `FormatError` unless the header agrees with the directory and all bytes of
    the member are in front of `limit`, where the next part of the file begins.
    """
    header = read_local(data, info)
    if header is not None and _is_stored_alike(header, info):
        check_stored(info)
    start = checked_local(header, info).start
    if start + info.file_size <= limit:
        return start
    raise wrong_local(info)


def checked_local(header: LocalHeader | None, info: ZipInfo) -> LocalHeader:
    """Return a local header; raise `FormatError` unless the directory agrees with it.

    Version, time, date and other flags say nothing about the bytes of the member.
    """
    if header is not None and header.is_named and _is_stored_alike(header, info):
        crc, *sizes = header.numbers
        # Numbers behind the bytes of the member, or in another extra field.
        behind = {0} if header.flags & DESCRIPTOR else set()
        pairs = zip(sizes, (info.file_size, info.compress_size), strict=True)
        if crc in {info.CRC, *behind} and all(
            found in {expected, MAX32, *behind} for found, expected in pairs
        ):
            return header
    raise wrong_local(info)


def _is_stored_alike(header: LocalHeader, info: ZipInfo) -> bool:
    """Return whether method and encryption of a member are the same in both headers."""
    has_flags = not (header.flags ^ info.flag_bits) & ENCRYPTED
    return has_flags and header.method == info.compress_type


def has_own_numbers(data: Buffer, info: ZipInfo) -> bool:
    """Return whether the local header itself has name, crc32 and sizes of the entry."""
    header, numbers = read_local(data, info), (info.file_size, info.compress_size)
    return (
        header is not None
        and header.is_named
        and header.method == info.compress_type
        and header.numbers == (info.CRC, *numbers)
    )


def wrong_local(info: ZipInfo) -> DamageError:
    """Return the error for a local header that is not the one of a member."""
    return DamageError(
        "expected the local header of the member %.200r and its '%d' bytes, found "
        "something else" % (info.orig_filename, info.file_size),
        offset=info.header_offset,
    )


def check_stored(info: ZipInfo) -> None:
    """Raise `Unsupported` unless a member is neither compressed nor encrypted."""
    name = info.orig_filename
    if info.flag_bits & ENCRYPTED:
        raise Unsupported("the member %.200r of the ZIP file is encrypted" % name)
    if info.compress_type != STORED:
        raise Unsupported(
            "the member %.200r of the ZIP file is compressed by ZIP itself, by the "
            "method '%d'%s, which is not supported: unzip it, and zip the folder "
            "with 'zip -0 -r', or convert the folder with 'blpk convert'"
            % (
                *(name, info.compress_type),
                " (deflate)" * (info.compress_type == DEFLATED),
            )
        )


# End records


def decode_end(tail: bytes, size: int) -> tuple[int, int, int, int]:
    """Return what the end records say; `tail` is the end of a file of `size` bytes.

    They are where the last end record ends and a comment begins, where the directory
    begins, how many bytes are in front of the ZIP file, and how many entries there are.
    Raises `FormatError` if there is no directory, or if it is impossible.
    """
    stop = len(tail)
    while (stop := tail.rfind(END_SIGNATURE, 0, stop)) >= 0:
        end = stop + END.size
        if end <= len(tail) and end + END.unpack_from(tail, stop)[-1] == len(tail):
            break
    else:
        raise NotReadable("expected a ZIP file, found no end record of one")
    _, disk, other, on_disk, count, nbytes, offset, _ = END.unpack_from(tail, stop)
    at = stop - LOCATOR.size - END64.size
    if at >= 0 and tail.startswith(b"PK\x06\x07", stop - LOCATOR.size):
        fields = END64.unpack_from(tail, at)
        if fields[0] != b"PK\x06\x06":
            raise damaged_zip("the end record of Zip64 is not in front of its locator")
        stop, (disk, other, on_disk, count, nbytes, offset) = at, fields[4:]
    if disk or other or on_disk != count:
        raise Unsupported("the ZIP file is divided into several files")
    if nbytes > MAX_DIRECTORY:
        raise Unsupported(
            "the directory of the ZIP file has '%d' bytes, more than '%d'"
            % (nbytes, MAX_DIRECTORY)
        )
    in_front = size - len(tail)
    start = in_front + stop - nbytes
    if not offset <= start:
        raise damaged_zip(
            "its directory of '%d' bytes at '%d' does not end at '%d'"
            % (nbytes, offset, in_front + stop)
        )
    return in_front + end, start, start - offset, count


def damaged_zip(why: str) -> DamageError:
    """Return the error for a ZIP file whose directory is wrong."""
    return DamageError("the ZIP file is damaged: " + why)


# Checksums


def join_crc(one: int, other: int, nbytes: int) -> int:
    """Return the crc32 of two parts from those of each; the other has `nbytes`."""
    if nbytes:
        one = multiply(one, power(8 * nbytes, POLYNOMIAL), POLYNOMIAL)
    return one ^ other
