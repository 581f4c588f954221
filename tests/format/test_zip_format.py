"""The parts of a ZIP file: decoded again, read by Python's module, and hostile ones."""

from __future__ import annotations

import io
import random
import struct
import time
import zipfile
import zlib

import pytest

from bloscpack._format import zip_format
from bloscpack._format.zip_format import (
    ENTRY,
    MAX_DIRECTORY,
    TAIL_LENGTH,
    Directory,
    decode_directory,
    decode_local,
    encode_directory,
    encode_local,
    join_crc,
    local_extent,
    local_length,
    new_member,
)
from bloscpack.exceptions import FormatError, Unsupported, UsageError

LARGE = 5 * 2**30
U16 = struct.Struct("<H").pack
U32 = struct.Struct("<I").pack


def member_of(name, content, offset):
    member = new_member(name)
    member.size, member.crc, member.offset = len(content), zlib.crc32(content), offset
    return member


def archive(contents, digests=True):
    """Return a ZIP file with these members."""
    parts, members, at = [], [], 0
    for name, content in contents.items():
        members.append(member_of(name, content, at))
        parts.append(encode_local(members[-1]) + content)
        at += len(parts[-1])
    return b"".join([*parts, encode_directory(members, at, digests=digests)])


def decoded(data):
    directory = Directory(data[-TAIL_LENGTH:], len(data))
    return decode_directory(data[directory.start : directory.stop], directory)


CONTENTS = {"a/zarr.json": b"{}", "a/c/0": bytes(1000), "ü": b"", "z": b"PK\x05\x06"}


@pytest.mark.parametrize("front", [b"", b"front"])
@pytest.mark.parametrize("contents", [{}, CONTENTS], ids=["empty", "some"])
def test_decoded_again(contents, front):
    data = front + archive(contents)
    found = {}
    for member in decoded(data):
        start = decode_local(
            data[member.offset : member.offset + local_length(member)], member
        )
        found[member.name] = data[start : start + member.size]
        assert zlib.crc32(found[member.name]) == member.crc
    assert contents == found


@pytest.mark.parametrize("contents", [{}, CONTENTS], ids=["empty", "some"])
def test_read_by_zipfile(contents):
    with zipfile.ZipFile(io.BytesIO(archive(contents))) as file:
        assert None is file.testzip()
        assert contents == {name: file.read(name) for name in file.namelist()}
        assert {0o100644} >= {info.external_attr >> 16 for info in file.infolist()}


@pytest.mark.parametrize("comment", [b"", b"PK\x05\x06" + bytes(30), bytes(65535)])
def test_written_by_zipfile(comment):
    fp = io.BytesIO()
    with zipfile.ZipFile(fp, "w") as file:
        file.writestr("one", b"1" * 99)
        with file.open("large", "w", force_zip64=True) as member:
            member.write(b"2" * 99)
        file.comment = comment
    assert [("one", 99), ("large", 99)] == [
        (member.name, member.size) for member in decoded(fp.getvalue())
    ]


def test_zip64(tmp_path):
    """A sparse file, whose last member and directory are far behind 4 GiB."""
    one, two = member_of("one", b"", 0), member_of("two", b"two", 0)
    one.size = LARGE
    two.offset = local_length(one) + 20 + LARGE
    with open(tmp_path / "a.zip", "wb") as fp:
        fp.write(encode_local(one))
        fp.seek(two.offset)
        fp.write(encode_local(two) + b"two")
        start = fp.tell()
        end = encode_directory([one, two], start)
        fp.write(end)
    with zipfile.ZipFile(tmp_path / "a.zip") as file:
        assert b"two" == file.read("two")
        assert LARGE == file.getinfo("one").file_size
    found = decode_directory(
        end[: end.index(b"PK\x06\x06")], Directory(end, start + len(end))
    )
    assert [(0, LARGE), (two.offset, 3)] == [(m.offset, m.size) for m in found]


def test_many_members():
    """The end record of Zip64 has their number."""
    contents = {"%d" % i: b"" for i in range(2**16)}
    data = archive(contents)
    assert [*contents] == [member.name for member in decoded(data)]
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        assert [*contents] == file.namelist()


def test_too_many_members(monkeypatch):
    monkeypatch.setattr(zip_format, "MAX_DIRECTORY", 100)
    with pytest.raises(UsageError, match="store fewer arrays"):
        archive(CONTENTS)
    with pytest.raises(UsageError, match="at most 65535 bytes, found '70000'"):
        new_member("x" * 70000)
    with pytest.raises(UsageError, match="no name in Unicode"):
        new_member("\ud800")


# Hostile files


def changed(entry_at=None, end_at=None, local_at=None, **fields):
    """Return an archive of two members with other bytes at a place of the second.

    It has no digests, like those of other writers.
    """
    data = bytearray(archive({"one": b"1" * 50, "two": b"2" * 50}, digests=False))
    entry = data.rindex(b"PK\x01\x02")
    end = data.rindex(b"PK\x05\x06")
    local = data.rindex(b"PK\x03\x04")
    for base, places in ((entry, entry_at), (end, end_at), (local, local_at)):
        for at, content in (places or {}).items():
            data[base + at : base + at + len(content)] = content
    return bytes(data)


HOSTILE = {
    "no ZIP": (b"x" * 100, "no end record"),
    "empty": (b"", "no end record"),
    "several disks": (changed(end_at={4: U16(1)}), "divided into several"),
    "fewer members": (changed(end_at={8: U16(1) * 2}), "expected '1' members, found"),
    "more members": (changed(end_at={8: U16(9) * 2}), "expected '9' members, found"),
    "large directory": (changed(end_at={12: U32(2**31)}), "more than '16777216'"),
    "directory in front": (changed(end_at={12: U32(5000)}), "does not end at"),
    "directory behind": (changed(end_at={16: U32(5000)}), "does not end at"),
    "no entry": (changed(entry_at={0: b"PK\x01\x03"}), "no entry at byte"),
    "long name": (changed(entry_at={28: U16(500)}), "no entry at byte"),
    "long extra field": (changed(entry_at={30: U16(500)}), "no entry at byte"),
    "long comment": (changed(entry_at={32: U16(500)}), "no entry at byte"),
    "name not in UTF-8": (changed(entry_at={46: b"\xff\xff"}), "invalid entry"),
    "two sizes": (changed(entry_at={20: U32(49)}), "has two sizes, 49 and 50"),
    "beyond the end": (changed(entry_at={20: U32(999) * 2}), "overlaps what follows"),
    "over the directory": (changed(entry_at={20: U32(71) * 2}), "overlaps"),
    "over each other": (changed(entry_at={42: U32(60)}), "overlaps what follows"),
    "offset beyond": (changed(entry_at={42: U32(9999)}), "overlaps what follows"),
    "sizes without Zip64": (changed(entry_at={20: U32(2**32 - 1) * 2}), "overlaps"),
}


@pytest.mark.parametrize(("data", "message"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_directories(data, message):
    with pytest.raises(FormatError, match=message):
        decoded(data)


MEMBERS = {
    "encrypted": (
        changed(entry_at={8: U16(1)}, local_at={6: U16(1)}),
        Unsupported,
        "is encrypted",
    ),
    "compressed": (
        changed(entry_at={10: U16(8)}, local_at={8: U16(8)}),
        Unsupported,
        "method '8'",
    ),
    "encrypted in the entry": (changed(entry_at={8: U16(1)}), FormatError, "header"),
    "compressed in the entry": (changed(entry_at={10: U16(8)}), FormatError, "header"),
    "no header": (changed(local_at={0: b"PK\x03\x05"}), FormatError, "local header"),
    "other name": (changed(local_at={30: b"x"}), FormatError, "local header"),
    "other method": (changed(local_at={8: U16(8)}), FormatError, "local header"),
    "also encrypted": (changed(local_at={6: U16(1)}), FormatError, "local header"),
    "shorter name": (changed(local_at={26: U16(2)}), FormatError, "local header"),
    "one byte longer": (changed(entry_at={20: U32(51) * 2}), FormatError, "header"),
    "moved": (changed(local_at={28: U16(21)}), FormatError, "local header"),
}


@pytest.mark.parametrize(("data", "kind", "message"), MEMBERS.values(), ids=MEMBERS)
def test_hostile_members(data, kind, message):
    member = decoded(data)[1]
    header = data[member.offset : member.offset + local_length(member)]
    with pytest.raises(kind, match=message):
        decode_local(header, member)
    with pytest.raises(FormatError):
        decode_local(b"", member)


def test_every_changed_byte():
    """The result is an error or members inside of the file; never another error."""
    data = archive(CONTENTS)
    draw = random.Random(1)
    start = data.index(b"PK\x01\x02")
    for at in range(start, len(data)):
        for value in (0, 255, data[at] ^ 1, draw.randrange(256)):
            other = data[:at] + bytes([value]) + data[at + 1 :]
            try:
                members = decoded(other)
            except FormatError:
                continue
            assert all(0 <= m.offset <= m.limit <= len(other) for m in members)


def flipped(data, start, stop):
    """Yield `data` with each bit of the bytes [start, stop) flipped."""
    for at in range(8 * start, 8 * stop):
        other = bytearray(data)
        other[at // 8] ^= 1 << at % 8
        yield bytes(other)


def described(members):
    return [(m.name, m.flags, m.method, m.crc, m.size) for m in members]


def test_every_flipped_bit_of_a_directory():
    """No member gets another name, size or checksum."""
    data = archive(CONTENTS)
    expected = described(decoded(data))
    for other in flipped(data, data.index(b"PK\x01\x02"), len(data)):
        try:
            found = described(decoded(other))
        except FormatError:
            continue
        assert expected == found


def test_every_flipped_bit_of_a_local_header():
    """Its name, checksum and sizes must be those in the directory."""
    data = archive(CONTENTS)
    for member in decoded(data):
        start, stop = local_extent(member)
        header = data[start:stop]
        assert stop == decode_local(header, member)
        # Versions, times, flags that concern compressed members, and the length of the
        # only extra field.
        harmless = {*range(4, 8), *range(10, 14), len(header) - 18, len(header) - 17}
        for i, other in enumerate(flipped(header, 0, len(header))):
            if i // 8 not in harmless:
                with pytest.raises(FormatError, match="local header"):
                    decode_local(other, member)


class Unseekable(io.BytesIO):
    """Zipfile writes checksums and sizes behind the bytes of the members."""

    def seek(self, *args):
        raise io.UnsupportedOperation

    tell = seek


@pytest.mark.parametrize("seekable", [True, False])
@pytest.mark.parametrize("extra", [b"", U16(0x5455) + U16(60) + bytes(60)], ids=len)
def test_local_headers_of_other_writers(seekable, extra):
    fp = io.BytesIO() if seekable else Unseekable()
    info = zipfile.ZipInfo("one")
    info.extra = extra
    with zipfile.ZipFile(fp, "w") as file:
        with file.open(info, "w", force_zip64=True) as member:
            member.write(b"1" * 99)
        file.writestr("two", b"2")
    data = fp.getvalue()
    for member, content in zip(decoded(data), (b"1" * 99, b"2"), strict=True):
        start, stop = local_extent(member)
        start = decode_local(data[start:stop], member)
        assert content == data[start : start + member.size]


def test_a_large_directory_takes_limited_time():
    size = ENTRY.size
    entry = encode_directory([member_of("", b"", 0)], 0, digests=False)[:size]
    count = MAX_DIRECTORY // size
    end = zip_format.END64.pack(
        b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, count * size, 0
    )
    end += zip_format.LOCATOR.pack(b"PK\x06\x07", 0, count * size, 1)
    end += zip_format.END.pack(b"PK\x05\x06", 0, 0, 65535, 65535, *[2**32 - 1] * 2, 0)
    data = entry * count + end
    begin = time.process_time()
    with pytest.raises(FormatError, match="overlaps"):
        decoded(data)
    assert time.process_time() - begin < 10


def test_joined_crc():
    draw = random.Random(2)
    for _ in range(50):
        one, two = (
            draw.randbytes(draw.randrange(99)),
            draw.randbytes(draw.randrange(99)),
        )
        joined = join_crc(zlib.crc32(one), zlib.crc32(two), len(two))
        assert zlib.crc32(one + two) == joined


def test_names_of_other_writers():
    """Names without the flag for UTF-8 are in the code page 437."""
    fp = io.BytesIO()
    with zipfile.ZipFile(fp, "w") as file:
        file.writestr("abc", b"")
    data = fp.getvalue().replace(b"abc", b"a\x81c")
    assert ["aüc"] == [member.name for member in decoded(data)]


def with_extra(extra):
    """Return an archive of a member whose size is in an extra field."""
    data = bytearray(archive({"one": b"1" * 50}, digests=False))
    entry, end = data.index(b"PK\x01\x02"), data.index(b"PK\x05\x06")
    data[entry + 20 : entry + 28] = U32(2**32 - 1) * 2
    data[entry + 30 : entry + 32] = U16(len(extra))
    data[end + 12 : end + 16] = U32(end - entry + len(extra))
    return bytes(data[:end] + extra + data[end:])


def test_sizes_in_extra_fields():
    sizes = U16(1) + U16(16) + struct.pack("<QQ", 50, 50)
    for extra in (sizes, U16(0x5455) + U16(5) + b"times" + sizes):
        assert [50] == [member.size for member in decoded(with_extra(extra))]
    for extra in (U16(1) + U16(8) + bytes(8), U16(7) + U16(0), b"\1", U16(1) + U16(16)):
        with pytest.raises(FormatError):
            decoded(with_extra(extra))


def test_locator_without_its_record():
    data = archive({"%d" % i: b"" for i in range(2**16)})
    with pytest.raises(FormatError, match="Zip64 is not in front of its locator"):
        decoded(data.replace(b"PK\x06\x06", b"PK\x06\x05"))
