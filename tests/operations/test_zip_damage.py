"""Archives as ZIP files: of other writers, hostile ones, and each flipped bit."""

from __future__ import annotations

import errno
import io
import json
import os
import random
import struct
import time
import tracemalloc
import zipfile
import zlib
from contextlib import suppress

import numpy as np
import pytest
from support import FailingCalls

import bloscpack as bp
from bloscpack import dataset
from bloscpack._file.archive import encode_directory, new_info
from bloscpack._format.zip_format import encode_local
from bloscpack._storage.local import whole_file
from bloscpack._storage.zip_store import Directory
from bloscpack.exceptions import (
    DamageError,
    FormatError,
    HeaderError,
    Unsupported,
    UsageError,
)
from bloscpack.verify import verify

pytestmark = pytest.mark.filterwarnings("ignore:.* group has no members:RuntimeWarning")
ARRAYS = {"x": np.arange(5), "s": np.array(7), "g/y": np.arange(6.0).reshape(2, 3)}
U16 = struct.Struct("<H").pack
U32 = struct.Struct("<I").pack
LARGE = 5 * 2**30


def content_of(**settings):
    fp = io.BytesIO()
    bp.savez(fp, **ARRAYS, **settings)
    return fp.getvalue()


CONTENT = content_of()


def read(data):
    """Return the values of the arrays in an archive; an error in place of an array."""
    found = {}
    with bp.loadz(data) as archive:
        for name in archive:
            try:
                found[name] = archive[name].read().tolist()
            except FormatError as error:
                found[name] = error
    return found


VALUES = {name: array.tolist() for name, array in ARRAYS.items()}


def members_of(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def unlisted(data):
    """Return the members of an archive whose group lists none."""
    members = members_of(data)
    group = {"zarr_format": 3, "node_type": "group", "attributes": {}}
    return members | {"zarr.json": json.dumps(group).encode()}


# The list


def test_the_group_lists_members_with_chunks():
    members = members_of(CONTENT)
    assert "zarr.json" == [*members][-1]
    listed = json.loads(members["zarr.json"])["attributes"]["bloscpack-members"]
    chunks = {name: len(members[name]) for name in ("x/c/0", "s.blp", "g/y/c/0/0")}
    assert chunks == listed["sizes"]
    zeros = members["zarr.json"].replace(
        listed["digest"].encode(), b"crc32=" + b"0" * 8
    )
    assert "crc32=%08x" % zlib.crc32(zeros) == listed["digest"]


def test_users_do_not_see_the_list(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bp.save("a.zip", ARRAYS, metadata={"run": 7})
    with bp.loadz("a.zip") as archive, dataset.open("a.zip") as group:
        assert {"run": 7} == archive.metadata == dict(group.attrs)
    with zipfile.ZipFile("a.zip") as archive:
        archive.extractall("folder")
    with dataset.open("folder", "r+") as group:
        group.attrs["run"] = 8
    assert "bloscpack-members" not in (tmp_path / "folder" / "zarr.json").read_text()
    for call in (
        lambda **given: bp.save("b.zip", ARRAYS, metadata=given),
        lambda **given: dataset.create_group("b", attrs=given),
    ):
        with pytest.raises(UsageError, match="'bloscpack-members'"):
            call(**{"bloscpack-members": 1})


def test_another_program_changes_documents_and_adds_arrays(tmp_path):
    """The list stays right; what it lacks is read as well."""
    path = tmp_path / "a.zip"
    path.write_bytes(CONTENT)
    document = json.loads(members_of(CONTENT)["x/zarr.json"])
    document["attributes"] = {"unit": "m"}
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("new.blp", bp.pack_ndarray_to_bytes(np.arange(3)))
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("x/zarr.json", json.dumps(document))
    assert {**VALUES, "new": [0, 1, 2]} == read(path.read_bytes())
    with dataset.open(path) as group:
        assert {"unit": "m"} == dict(group["x"].attrs)


def test_a_list_that_another_program_has_copied_is_ignored(tmp_path):
    members = members_of(CONTENT)
    group = json.loads(members["zarr.json"])
    members["zarr.json"] = json.dumps(group).encode()
    members.pop("s.blp")
    found = read(zipped(members))
    assert {name: VALUES[name] for name in ("x", "g/y")} == found


def shorter(name):
    """Return an archive whose directory states one byte less for a member."""
    data = bytearray(CONTENT)
    at = data.rindex(name.encode()) - 46
    (size,) = struct.unpack_from("<I", data, at + 20)
    data[at + 20 : at + 28] = U32(size - 1) * 2
    return bytes(data)


def test_lost_and_changed_members(tmp_path):
    """Only the array that lacks its member is refused, in both views of the file."""
    members = members_of(CONTENT)
    path = tmp_path / "a.zip"
    lost = zipped({n: c for n, c in members.items() if n != "x/c/0"})
    for data, found in ((lost, "none"), (shorter("x/c/0"), r"'\d+'")):
        path.write_bytes(data)
        message = "'x/c/0' of '839' bytes.*lists, found %s in the directory" % found
        message = message.replace("839", str(len(members["x/c/0"])))
        with bp.loadz(path) as archive:
            assert {*VALUES} == {*archive}
            with pytest.raises(FormatError, match=message) as caught:
                archive["x"]
            assert "archive" == caught.value.section
            assert "a.zip" in str(caught.value)
            assert VALUES["g/y"] == archive["g/y"].read().tolist()
        with dataset.open(path) as group:
            with pytest.raises(FormatError, match=message):
                group["x"][:]
            assert VALUES["g/y"] == group["g/y"][:].tolist()


@pytest.mark.parametrize("lost", [["x/zarr.json"], ["x/zarr.json", "x/c/0"]])
def test_lost_documents(tmp_path, lost):
    """An array that the group lists is there; reading it is an error."""
    path = tmp_path / "a.zip"
    path.write_bytes(
        zipped({n: c for n, c in members_of(CONTENT).items() if n not in lost})
    )
    with bp.loadz(path) as archive:
        assert {*VALUES} == {*archive}
        with pytest.raises(FormatError, match="'x/"):
            archive["x"]
        assert VALUES["g/y"] == archive["g/y"].read().tolist()
    with dataset.open(path) as group:
        assert {"x", "g"} == {*group}
        with pytest.raises(
            FormatError, match=r"'x/zarr\.json' of the archive is missing"
        ):
            group["x"]
        assert VALUES["g/y"] == group["g/y"][:].tolist()


def test_a_later_write_of_chunks(tmp_path):
    """The local header agrees with the directory, so the list is out of date."""
    path = tmp_path / "a.zip"
    path.write_bytes(CONTENT)
    new = bp.pack_ndarray_to_bytes(np.arange(9))
    with (
        zipfile.ZipFile(path, "a") as archive,
        pytest.warns(UserWarning, match="Duplicate"),
    ):
        archive.writestr("s.blp", new)
    assert {**VALUES, "s": [*range(9)]} == read(path.read_bytes())
    report = bp.verify(path)
    assert report.ok
    assert ["s.blp"] == [f.member for f in report.findings if f.kind == "later"]
    # Without sizes in the local header there is nothing that shows a later write.
    data = zipped({**members_of(CONTENT), "s.blp": new}, Unseekable())
    with bp.loadz(data) as archive, pytest.raises(FormatError, match=r"s\.blp.*lists"):
        archive["s"]


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_members_that_any_program_has_added(tmp_path, method):
    path = tmp_path / "a.zip"
    path.write_bytes(CONTENT)
    with zipfile.ZipFile(path, "a", method) as archive:
        archive.writestr("README.md", "text" * 100)
    assert VALUES == read(path.read_bytes())
    assert VALUES.keys() == bp.load(path).keys()
    with dataset.open(path) as group:
        assert VALUES["x"] == group["x"][:].tolist()
    assert bp.verify(path).ok
    data = path.read_bytes()
    with pytest.raises(FormatError, match="local header"):
        bp.loadz(data.replace(b"README", b"README"[:5] + b"F", 1))


# Flipped bits


def structure(data):
    """Yield the positions in local headers, directory and end record."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for info in archive.infolist():
            size = 30 + sum(struct.unpack_from("<2H", data, info.header_offset + 26))
            yield from range(info.header_offset, info.header_offset + size)
        yield from range(archive.start_dir, len(data))


def flipped(data):
    for at in structure(data):
        for bit in range(8):
            other = bytearray(data)
            other[at] ^= 1 << bit
            yield at, bytes(other)


@pytest.mark.full
def test_each_flipped_bit_of_the_directory():
    """Names and values are right, or there is an error; no array is lost."""
    refused = 0
    for at, data in flipped(CONTENT):
        try:
            found = read(data)
        except FormatError:
            refused += 1
            continue
        assert VALUES.keys() == found.keys(), at
        for name, value in found.items():
            refused += isinstance(value, FormatError)
            assert isinstance(value, FormatError) or VALUES[name] == value, at
    assert refused > 1000


@pytest.mark.full
def test_flipped_bits_in_an_archive_as_a_dataset(tmp_path):
    path = tmp_path / "a.zip"
    shards = {"x", "g"}
    refused = 0
    for at, data in [*flipped(CONTENT)][::5]:
        path.write_bytes(data)
        try:
            with dataset.open(path) as group:
                assert shards == {*group}, at
                assert VALUES["x"] == group["x"][:].tolist(), at
                assert VALUES["g/y"] == group["g/y"][:].tolist(), at
        except (FormatError, NotADirectoryError):  # it does not begin as a ZIP file
            refused += 1
    assert refused > 200


def test_each_changed_byte_is_an_error_or_harmless():
    """No other error is raised, also where no list tells what is right."""
    data = zipped(unlisted(CONTENT))
    draw = random.Random(1)
    for at in structure(data):
        for value in (0, 255, draw.randrange(256)):
            other = data[:at] + bytes([value]) + data[at + 1 :]
            try:
                found = read(other)
            except FormatError:
                continue
            for name in VALUES.keys() & found.keys():
                right = isinstance(found[name], FormatError)
                assert right or VALUES[name] == found[name], at


# Other writers


def zipped(members, fp=None, **changes):
    """Return a ZIP file of members, as `zipfile` writes it."""
    fp = io.BytesIO() if fp is None else fp
    with zipfile.ZipFile(fp, "w") as archive:
        for name, content in members.items():
            info = zipfile.ZipInfo(name)
            info.extra = changes.get("extra", b"")
            with archive.open(info, "w", force_zip64="zip64" in changes) as member:
                member.write(content)
        archive.comment = changes.get("comment", b"")
    return changes.get("front", b"") + fp.getvalue()


class Unseekable(io.BytesIO):
    """Zipfile writes checksums and sizes behind the bytes of the members."""

    def seek(self, *args):
        raise io.UnsupportedOperation

    tell = seek


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"zip64": True},
        {"front": b"#!/bin/sh\n"},
        {"comment": b"PK\x05\x06" + bytes(30)},
        {"comment": bytes(65535)},
        {"fp": Unseekable()},
        {"extra": U16(0x5455) + U16(60) + bytes(60)},
        {"extra": U16(0x5455) + U16(60) + bytes(60), "fp": Unseekable(), "zip64": True},
    ],
    ids=lambda changes: " ".join(changes) or "plain",
)
@pytest.mark.parametrize("members", [members_of, unlisted], ids=["listed", "unlisted"])
def test_other_writers(changes, members):
    if "fp" in changes:
        changes = {**changes, "fp": Unseekable()}
    assert VALUES == read(zipped(members(CONTENT), **changes))


def test_names_of_other_writers():
    """Names without the flag for UTF-8 are in the code page 437."""
    data = zipped({**unlisted(CONTENT), "abc.blp": members_of(CONTENT)["s.blp"]})
    assert "aüc" in read(data.replace(b"abc", b"a\x81c"))


# Hostile files


def changed(entry_at=None, end_at=None, local_at=None, data=None):
    """Return an archive without a list, with other bytes at a place of ``s.blp``."""
    members = unlisted(CONTENT)
    members["s.blp"] = members.pop("s.blp")  # the last one
    data = bytearray(zipped(members) if data is None else data)
    entry = data.rindex(b"PK\x01\x02")
    end = data.rindex(b"PK\x05\x06")
    local = data.rindex(b"PK\x03\x04")
    for base, places in ((entry, entry_at), (end, end_at), (local, local_at)):
        for at, content in (places or {}).items():
            data[base + at : base + at + len(content)] = content
    return bytes(data)


SIZE = len(members_of(CONTENT)["s.blp"])
HOSTILE = {
    "no ZIP": (b"x" * 100, "no end record"),
    "empty": (b"", "no end record"),
    "several disks": (changed(end_at={4: U16(1)}), "divided into several"),
    "fewer members": (changed(end_at={8: U16(1) * 2}), "expected '1' members, found"),
    "more members": (changed(end_at={8: U16(9) * 2}), "expected '9' members, found"),
    "large directory": (changed(end_at={12: U32(2**31)}), "more than '16777216'"),
    "directory in front": (changed(end_at={12: U32(50000)}), "does not end at"),
    "directory behind": (changed(end_at={16: U32(50000)}), "does not end at"),
    "no entry": (changed(entry_at={0: b"PK\x01\x03"}), "Bad magic number"),
    "name not in UTF-8": (
        changed(entry_at={8: U16(0x800), 46: b"\xff\xff"}),
        "can't decode",
    ),
    "two sizes": (changed(entry_at={20: U32(49)}), "has two sizes, '49' and"),
    "another disk": (changed(entry_at={34: U16(1)}), "of another disk"),
    "beyond the end": (changed(entry_at={20: U32(9999) * 2}), "overlaps what follows"),
    "over the directory": (changed(entry_at={20: U32(SIZE + 1) * 2}), "overlaps"),
    "over each other": (changed(entry_at={42: U32(60)}), "overlaps what follows"),
    "offset beyond": (changed(entry_at={42: U32(99999)}), "overlaps what follows"),
    "sizes without Zip64": (changed(entry_at={20: U32(2**32 - 1) * 2}), "overlaps"),
    "later version": (changed(entry_at={6: U16(64)}), "zip file version 6.4"),
}


@pytest.mark.parametrize(("data", "message"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_directories(data, message):
    with pytest.raises(FormatError, match=message) as caught:
        bp.loadz(data)
    assert "(file" not in str(caught.value)  # it has no name


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
    "other name": (changed(local_at={30: b"t"}), FormatError, "local header"),
    "other method": (changed(local_at={8: U16(8)}), FormatError, "local header"),
    "also encrypted": (changed(local_at={6: U16(1)}), FormatError, "local header"),
    "shorter name": (changed(local_at={26: U16(2)}), FormatError, "local header"),
    "one byte shorter": (changed(entry_at={20: U32(SIZE - 1) * 2}), FormatError, "hea"),
    "moved": (changed(local_at={28: U16(21)}), FormatError, "local header"),
}


@pytest.mark.parametrize(("data", "kind", "message"), MEMBERS.values(), ids=MEMBERS)
def test_hostile_members(data, kind, message):
    with bp.loadz(data) as archive:
        with pytest.raises(kind, match=message):
            archive["s"]
        assert VALUES["x"] == archive["x"].read().tolist()


def with_extra(extra):
    """Return an archive whose last member has its size in an extra field."""
    data = bytearray(changed(entry_at={20: U32(2**32 - 1) * 2, 30: U16(len(extra))}))
    entry, end = data.rindex(b"PK\x01\x02"), data.rindex(b"PK\x05\x06")
    directory = data.index(b"PK\x01\x02")
    data[end + 12 : end + 16] = U32(end - directory + len(extra))
    assert data[entry + 46 : end] == b"s.blp"
    return bytes(data[:end] + extra + data[end:])


def test_sizes_in_extra_fields():
    sizes = U16(1) + U16(16) + struct.pack("<QQ", SIZE, SIZE)
    for extra in (sizes, U16(0x5455) + U16(5) + b"times" + sizes):
        assert VALUES == read(with_extra(extra))
    for extra in (U16(1) + U16(8) + bytes(8), U16(7) + U16(0), b"\1", U16(1) + U16(16)):
        with pytest.raises(FormatError):
            read(with_extra(extra))


@pytest.mark.full
def test_a_large_directory_takes_limited_time():
    entry = struct.pack("<4s6H3I5H2I", b"PK\1\2", *[0] * 16)
    count = 2**24 // len(entry)
    size = count * len(entry)
    end = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, 0)
    end += struct.pack("<4sIQI", b"PK\6\7", 0, size, 1)
    end += struct.pack(
        "<4s4H2IH", b"PK\5\6", 0, 0, *[2**16 - 1] * 2, *[2**32 - 1] * 2, 0
    )
    begin = time.process_time()
    with pytest.raises(FormatError, match="overlaps"):
        bp.loadz(entry * count + end)
    assert time.process_time() - begin < 10
    with pytest.raises(FormatError, match="Zip64 is not in front of its locator"):
        bp.loadz(entry * count + end.replace(b"PK\6\6", b"PK\6\5"))


def with_list(members, sizes):
    """Return members whose group lists sizes, with a right digest."""
    group = json.loads(members["zarr.json"])
    listed = {"sizes": sizes, "digest": "crc32=00000000"}
    group["attributes"] = {"bloscpack-members": listed}
    content = json.dumps(group)
    digest = "crc32=%08x" % zlib.crc32(content.encode())
    content = content.replace(listed["digest"], digest)
    return members | {"zarr.json": content.encode()}


@pytest.mark.parametrize(
    "name", ["a/" * 30_000 + "c/0", "a/" * 249 + "c/0", "x" * 65_532 + "/c/0"]
)
def test_long_names_in_the_list(tmp_path, name):
    data = zipped(with_list(members_of(CONTENT), {name: 5}))
    (tmp_path / "a.zip").write_bytes(data)
    for call in (bp.loadz, dataset.open):
        with pytest.raises(Unsupported, match="more than '250' parts or '65535' bytes"):
            call(tmp_path / "a.zip")


def test_members_in_many_groups(tmp_path):
    """They belong to no array; each group in front of them would take memory."""
    many = {"x" + "/a" * 30_000 + end: b"{}" for end in ("/zarr.json", "/c/0", ".blp")}
    for members in (members_of(CONTENT), unlisted(CONTENT)):
        data = zipped({**many, **members})
        tracemalloc.start()
        assert VALUES == read(data)
        assert tracemalloc.get_traced_memory()[1] < 20 * 2**20
        tracemalloc.stop()
    name = "/".join(["g"] * 180)
    bp.savez(tmp_path / "a.zip", **{name: np.ones([1] * 30)})
    assert [name] == [*bp.load(tmp_path / "a.zip")]
    with pytest.raises(UsageError, match="at most 180 parts between slashes, found"):
        bp.savez(tmp_path / "a.zip", **{name + "/a": 1})


# What no small archive has


def member(name, offset, content=b"", size=None):
    info = new_info(name, offset, content)
    info.file_size = info.compress_size = len(content) if size is None else size
    return info


def test_zip64(tmp_path):
    """A sparse file, whose last member and directory are far behind 4 GiB."""
    one = member("one", 0, size=LARGE)
    two = member("two", len(encode_local(one)) + LARGE, b"two")
    with open(tmp_path / "a.zip", "w+b") as fp:
        fp.write(encode_local(one))
        fp.seek(two.header_offset)
        fp.write(encode_local(two) + b"two")
        fp.write(encode_directory([one, two], fp.tell()))
        fp.flush()
        found = Directory(whole_file(fp))
        assert b"two" == found.read(found.members["two"])
        assert [(len(encode_local(one)), LARGE)] == [
            (start, stop - start) for start, stop, _ in found.extents(found.entries[0])
        ]
    with zipfile.ZipFile(tmp_path / "a.zip") as file:
        assert b"two" == file.read("two")


def test_many_members():
    """The end record of Zip64 has their number."""
    fp, infos = io.BytesIO(), []
    for i in range(2**16):
        infos.append(member("%d" % i, fp.tell()))
        fp.write(encode_local(infos[-1]))
    fp.write(encode_directory(infos, fp.tell()))
    found = Directory(whole_file(fp))
    assert [info.filename for info in infos] == [*found.members]


def test_too_many_members(monkeypatch, tmp_path):
    monkeypatch.setattr("bloscpack._file.archive.MAX_DIRECTORY", 100)
    with pytest.raises(UsageError, match="store fewer arrays"):
        bp.savez(tmp_path / "a", **ARRAYS)
    for name, message in (
        ("x" * 70000, "at most 65535 bytes, found '70010'"),
        ("\ud800", "no name in Unicode"),
    ):
        with pytest.raises(UsageError, match=message):
            bp.savez(tmp_path / "a", **{name: 1})


# The fields of a local header that the directory has, too: position and format.
LOCAL_FIELDS = {"method": (8, "<H"), "crc32": (14, "<I")}
LOCAL_FIELDS |= {"stored size": (18, "<I"), "size": (22, "<I")}


@pytest.mark.parametrize("field", LOCAL_FIELDS)
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("member", ["zarr.json", "c/0"])
def test_local_headers_of_a_dataset(tmp_path, field, method, member):
    dataset.create_array(tmp_path / "a", np.arange(1000)).close()
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", method) as target:
        for name in ("zarr.json", "c/0"):
            target.write(tmp_path / "a" / name, name)
        at = target.getinfo(member).header_offset + LOCAL_FIELDS[field][0]
    with dataset.open(path) as opened:
        assert np.arange(1000).tolist() == opened[:].tolist()
    data, kind = bytearray(path.read_bytes()), LOCAL_FIELDS[field][1]
    (value,) = struct.unpack_from(kind, data, at)
    struct.pack_into(kind, data, at, value ^ 9)
    path.write_bytes(data)
    with pytest.raises(bp.FormatError, match="the local header of the member"):
        dataset.open(path)[:]


@pytest.mark.skipif(not hasattr(os, "preadv"), reason="needs preadv")
def test_an_archive_that_could_not_be_read_is_not_called_damaged(tmp_path, monkeypatch):
    path = tmp_path / "a.zip"
    path.write_bytes(CONTENT)
    for number in range(200):
        with monkeypatch.context() as context:
            failing = FailingCalls(context, ["preadv"], number, errno.EIO)
            with suppress(OSError):
                assert verify(path, nthreads=1).ok
        if failing.left >= 0:
            break
    assert number > 20


def zip_of(*names):
    fp = io.BytesIO()
    with zipfile.ZipFile(fp, "w") as archive:
        for name in names:
            archive.writestr(name, b"x" * 100)
    return fp.getvalue()


@pytest.mark.parametrize(
    ("content", "found", "code"),
    [
        (b"PK\3\4junk", "no member", 1),
        (zip_of("[Content_Types].xml", "xl/workbook.xml")[:-60], "'[Content_Types]", 1),
        (zip_of("mimetype", "content.xml")[:-60], "'mimetype'", 1),
        (zip_of("x.npy")[:-60], "was cut off", 3),
        (zip_of("g/.zgroup", "g/a/0.0")[:-60], "was cut off", 3),
        (zip_of("g/a/0.0", "g/.zgroup")[:-60], "was cut off", 3),
        (zip_of("a.zarr/", "a.zarr/zarr.json")[:-60], "was cut off", 3),
        (CONTENT[:-60], "was cut off", 3),
        (CONTENT[:70], "was cut off", 3),
    ],
)
def test_only_zip_files_of_arrays_are_called_damaged(tmp_path, content, found, code):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(FormatError) as caught:
        dataset.convert(path, tmp_path / "new.zarr")
    assert found in str(caught.value)
    assert str(path) in str(caught.value)
    assert (code == 3) == isinstance(caught.value, (DamageError, HeaderError))
