"""Repack: the same plain bytes with other settings, or the file as it was."""

from __future__ import annotations

import io
import itertools
import os
import random
import stat
import tracemalloc

import blosc
import numpy as np
import pytest
from builders import layout, numbers, packed, text
from support import another_writer

import bloscpack
from bloscpack.append import (
    append,
    append_from,
    change_metadata,
    rewrite_metadata,
    rewrite_metadata_fp,
)
from bloscpack.args import BloscArgs, BloscpackArgs, MetadataArgs
from bloscpack.constants import METADATA_HEADER_LENGTH
from bloscpack.exceptions import (
    ChecksumMismatch,
    DoesNotFit,
    FormatError,
    MetadataSectionTooSmall,
    NoMetadataFound,
    NoSuchChecksum,
    NoSuchCodec,
    NotEnoughSpace,
    StorageError,
    UsageError,
    UsageTypeError,
)
from bloscpack.file_io import CompressedFPSource
from bloscpack.headers import (
    BloscpackHeader,
    decode_blosc_flags,
    decode_blosc_header,
    decode_header,
)
from bloscpack.npy_io import append_npy
from bloscpack.repacking import repack
from bloscpack.verify import verify

PLAIN = numbers(30000) + text(10011)


@pytest.fixture
def path(tmp_path):
    """Return the name of a file of 41 chunks with metadata."""
    path = tmp_path / "file.blp"
    path.write_bytes(packed(PLAIN, metadata={"a": 1}, free_entries=9))
    return path


def header_of(path):
    return decode_header(path.read_bytes()[:32])


def source_of(path):
    return CompressedFPSource(io.BytesIO(path.read_bytes()))


def first_flags(path):
    """Return the codec and the filter of the first chunk."""
    raw = path.read_bytes()[source_of(path).offsets[0] :]
    return decode_blosc_flags(decode_blosc_header(raw[:16])["flags"])


def assert_holds(path, plain=PLAIN, metadata=None):
    """Assert that a file is intact and holds these bytes and metadata, alone."""
    assert (plain, metadata) == bloscpack.unpack_bytes_from_file(path)
    findings = [found.kind for found in verify(path).findings]
    assert set(findings) <= {"no-checksum"}
    assert [path.name] == os.listdir(path.parent)


# Settings


@pytest.mark.parametrize("old", [100, 1000, 10000, 10**6])
@pytest.mark.parametrize("new", [None, 64, 1000, 1003, 7000, 40011, 10**6])
def test_chunk_size(path, old, new):
    path.write_bytes(packed(PLAIN, old, {"a": 1}, free_entries=9))
    before = path.read_bytes()
    repack(path, chunk_size=new)
    assert_holds(path, metadata={"a": 1})
    size = min(new or old, len(PLAIN))
    assert size == header_of(path).chunk_size
    if new in (None, old):
        assert before == path.read_bytes()
    else:
        # Room for at least as many bytes as before.
        room = header_of(path).max_app_chunks * size
        assert 9 * min(old, len(PLAIN)) <= room


@pytest.mark.parametrize("nthreads", [1, 2, 7])
def test_all_threads_write_the_same(path, nthreads):
    expected = packed(
        PLAIN, 333, free_entries=5, blosc_args=BloscArgs(cname="zstd", clevel=7)
    )
    repack(
        path,
        chunk_size=333,
        cname="zstd",
        metadata=None,
        max_app_chunks=5,
        nthreads=nthreads,
    )
    assert expected == path.read_bytes()


def test_settings_of_blosc(path):
    repack(path, cname="zstd", clevel=9, shuffle=2, typesize=4)
    assert_holds(path, metadata={"a": 1})
    assert header_of(path).typesize == 4
    size = path.stat().st_size
    # What is not given stays.
    repack(path, clevel=0)
    assert header_of(path).typesize == 4
    flags = first_flags(path)
    assert (True, "zstd") == (flags["bit_shuffle"], flags["codec"])
    assert size < path.stat().st_size
    repack(path, shuffle=False)
    flags = first_flags(path)
    assert (False, "zstd") == (flags["bit_shuffle"], flags["codec"])


@pytest.mark.parametrize(
    "checksums", list(itertools.permutations(["None", "adler32", "sha512"], 2))
)
def test_checksum(path, checksums):
    old, new = checksums
    path.write_bytes(packed(PLAIN, checksum=old))
    repack(path, checksum=new)
    assert packed(PLAIN, checksum=new) == path.read_bytes()


@pytest.mark.parametrize(
    "settings",
    [
        {"max_app_chunks": 1000},
        {"metadata": {"b": [2] * 99}},
        {"metadata": None},
        {"checksum": "sha256"},
        {"offsets": False},
        {"max_meta_size": 5000},
    ],
)
def test_chunks_are_copied(path, monkeypatch, settings):
    """Without a setting of Blosc nothing is compressed, nor decompressed."""

    def fail(*arguments, **options):
        raise AssertionError

    wanted = settings.get("metadata", {"a": 1})
    with monkeypatch.context() as patch:
        for name in ("compress", "decompress", "decompress_ptr"):
            patch.setattr(blosc, name, fail)
        repack(path, **settings)
    assert_holds(path, metadata=wanted)
    header = header_of(path)
    assert settings.get("offsets", True) is header.offsets
    assert settings.get("checksum", "adler32") == header.checksum
    if header.offsets:
        assert settings.get("max_app_chunks", 9) == header.max_app_chunks


def test_a_file_gets_an_offset_table(tmp_path):
    path = tmp_path / "file.blp"
    with open(path, "wb") as fp:
        fp.write(packed(PLAIN, offsets=False))
    repack(path)
    assert packed(PLAIN) == path.read_bytes()


@pytest.mark.parametrize("name", ["cname", "checksum", "clevel", "chunk_size"])
def test_invalid_settings(path, name):
    before = path.read_bytes()
    errors = {"cname": NoSuchCodec, "checksum": NoSuchChecksum}
    with pytest.raises(errors.get(name, UsageError)):
        repack(path, **{name: "no" if name in errors else -1})
    with pytest.raises(UsageTypeError, match="did you mean 'level'"):
        repack(path, levl=3)
    with pytest.raises(NoSuchChecksum):
        repack(path, checksum="")
    assert before == path.read_bytes()
    assert [path.name] == os.listdir(path.parent)


@pytest.mark.parametrize("value", [False, 0, np.False_])
def test_offsets_may_be_any_false_value(path, value):
    repack(path, offsets=value)
    assert not header_of(path).offsets
    assert_holds(path, metadata={"a": 1})


# Metadata


def test_metadata(path):
    section = path.read_bytes()[32:100]
    repack(path, cname="zstd")
    assert section == path.read_bytes()[32:100]
    long = {"b": "x" * 5000}
    with pytest.raises(MetadataSectionTooSmall):
        rewrite_metadata(path, {"b": random.Random(1).randbytes(900).hex()})
    repack(path, metadata=long)
    assert_holds(path, metadata=long)
    repack(path, metadata=None)
    assert_holds(path)
    repack(path, metadata=[1], meta_codec="None", max_meta_size=77, meta_checksum="md5")
    assert_holds(path, metadata=[1])
    source = source_of(path)
    assert source.metadata_header.max_meta_size == 77
    repack(path, max_meta_size=99)
    source = source_of(path)
    assert source.metadata_header.max_meta_size == 99
    assert source.metadata_header.meta_checksum == "md5"


@pytest.mark.parametrize("codec", ["zlib", "None"])
def test_settings_of_metadata_stay(path, codec):
    old, long = {"a": "x" * 99}, {"b": "y" * 500}
    how = MetadataArgs(
        meta_checksum="sha256", meta_codec=codec, meta_level=1, max_meta_size=700
    )
    content = bloscpack.pack_bytes_to_bytes(PLAIN, metadata=old, metadata_args=how)

    def found():
        header = source_of(path).metadata_header
        stored = header.meta_checksum, header.meta_codec, header.max_meta_size
        return *stored, header.meta_level

    for change in (
        lambda: repack(path, metadata=long),
        lambda: repack(path, metadata={**old, **long}, cname="zstd"),
    ):
        path.write_bytes(content)
        level = source_of(path).metadata_header.meta_level
        change()
        kept = ("sha256", codec, 700)
        assert kept == found()[:3]
        assert codec == "None" or level == found()[3]
    # Each setting that is given changes itself alone.
    path.write_bytes(content)
    repack(path, max_meta_size=900)
    assert ("sha256", codec, 900) == found()[:3]
    repack(path, meta_checksum="md5")
    assert ("md5", codec, 900) == found()[:3]
    repack(path, meta_codec="None")
    assert ("md5", "None", 900) == found()[:3]
    # The room grows if the metadata need more.
    large = {"b": random.Random(1).randbytes(900).hex()}
    repack(path, metadata=large)
    assert ("md5", "None", True) == (*found()[:2], found()[2] > 1800)
    with pytest.raises(MetadataSectionTooSmall):
        repack(path, metadata=large, max_meta_size=900)
    assert_holds(path, metadata=large)


def test_metadata_for_a_file_without(path):
    path.write_bytes(packed(PLAIN))
    with pytest.raises(NoMetadataFound):
        rewrite_metadata(path, {"a": 1})
    rewrite_metadata(path, {"a": 1}, grow=True)
    assert_holds(path, metadata={"a": 1})
    long = {"b": random.Random(1).randbytes(900).hex()}
    with pytest.raises(MetadataSectionTooSmall):
        change_metadata(path, lambda old: {**old, **long})
    change_metadata(path, lambda old: {**old, **long}, grow=True)
    assert_holds(path, metadata={"a": 1, **long})
    path.write_bytes(packed(PLAIN))
    change_metadata(path, lambda old: [old], grow=True)
    assert_holds(path, metadata=[None])


def test_arrays(path):
    array = np.arange(3000.0).reshape(300, 10)
    bloscpack.pack_ndarray_to_file(array, path, 8000)
    repack(path, chunk_size="1001B", cname="lz4")
    assert header_of(path).chunk_size == 1000
    assert (array == bloscpack.unpack_ndarray_from_file(path)).all()
    old = bloscpack.unpack_bytes_from_file(path)[1]
    repack(path, metadata={**old, "shape": [3000], "unit": "m"})
    assert (3000,) == bloscpack.unpack_ndarray_from_file(path).shape
    with pytest.raises(DoesNotFit):
        repack(path, metadata={**old, "shape": [2999]})
    bloscpack.pack_bytes_to_file(bytes(16), path)
    repack(path, metadata={**old, "shape": [2]})
    assert [0.0, 0.0] == bloscpack.unpack_ndarray_from_file(path).tolist()


@pytest.mark.parametrize("metadata", [{"unit": "m"}, [], 0, "", {"container": "other"}])
@pytest.mark.parametrize("before", [None, {"unit": "s", "n": 1}])
def test_metadata_of_an_array_file_are_those_of_the_user(path, before, metadata):
    array = np.asfortranarray(np.arange(3000.0).reshape(300, 10))
    bloscpack.pack_ndarray_to_file(array, path, metadata=before)
    repack(path, metadata=metadata, cname="lz4")
    found, user = bloscpack.unpack_ndarray_from_file(path, return_metadata=True)
    assert metadata == user
    assert (array == found).all()
    assert found.flags.f_contiguous
    assert {"dtype", "shape", "order", "container", "metadata"} == set(
        bloscpack.info(path).metadata
    )


@pytest.mark.parametrize("before", [None, {"unit": "s"}])
def test_an_array_stays_one_without_metadata_of_the_user(path, before):
    bloscpack.pack_ndarray_to_file(np.arange(30.0), path)
    expected = bloscpack.info(path).metadata
    bloscpack.pack_ndarray_to_file(np.arange(30.0), path, metadata=before)
    repack(path, metadata=None)
    assert expected == bloscpack.info(path).metadata


@pytest.mark.parametrize(
    ("before", "settings", "expected"),
    [
        (None, {"chunk_size": 5}, None),
        ({"unit": "s"}, {}, {"unit": "s"}),
        ({"unit": "s"}, {"metadata": {"unit": "m"}}, {"unit": "m"}),
        ({"unit": "s"}, {"metadata": None}, None),
    ],
)
def test_an_array_becomes_bytes(path, before, settings, expected):
    array = np.arange(3000.0)
    bloscpack.pack_ndarray_to_file(array, path, metadata=before)
    repack(path, keep_array=False, **settings)
    assert_holds(path, array.tobytes(), expected)
    repack(path, keep_array=False, cname="zlib")  # there is none
    assert_holds(path, array.tobytes(), expected)


# Files of other layouts, and lengths


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@pytest.mark.parametrize("cut", [[10], [10, 10, 10], [10, 10, 3], [0]])
def test_old_layouts(tmp_path, version, cut):
    path = tmp_path / "file.blp"
    pieces = [bytes([i]) * size for i, size in enumerate(cut)]
    path.write_bytes(layout(version, pieces))
    repack(path)
    assert_holds(path, b"".join(pieces))
    header = header_of(path)
    sizes = header.format_version, header.chunk_size, header.last_chunk
    assert (3, cut[0], cut[-1]) == sizes


@pytest.mark.parametrize("cut", [[10, 20], [10, 10, 20], [10, 5, 10], [0, 5, 0, 0]])
def test_chunks_of_other_sizes_are_cut_again(tmp_path, cut):
    path = tmp_path / "file.blp"
    pieces = [bytes([i]) * size for i, size in enumerate(cut)]
    path.write_bytes(layout(0, pieces))
    repack(path)
    assert_holds(path, b"".join(pieces))


def test_files_of_unknown_length(tmp_path):
    path = tmp_path / "file.blp"
    for count in (-1, 3):
        chunks = [b"a" * 10, b"b" * 10, b"c" * 4]
        path.write_bytes(layout(3, chunks, nchunks=count))
        repack(path, checksum="md5")
        assert_holds(path, b"".join(chunks))
        assert header_of(path).nchunks == 3


@pytest.mark.parametrize("plain", [b"", b"x"])
def test_small_files(tmp_path, plain):
    path = tmp_path / "file.blp"
    path.write_bytes(packed(plain))
    for settings in ({}, {"cname": "zstd"}, {"chunk_size": 1}, {"checksum": "md5"}):
        repack(path, **settings)
        assert_holds(path, plain)


def test_a_file_without_chunks(tmp_path):
    path = tmp_path / "file.blp"
    header = BloscpackHeader(
        offsets=True, chunk_size=10, last_chunk=0, nchunks=0, max_app_chunks=5
    )
    path.write_bytes(header.encode() + b"\xff" * 40)
    repack(path, max_app_chunks=7, metadata=[1])
    assert ([1], 7) == (
        bloscpack.unpack_bytes_from_file(path)[1],
        header_of(path).max_app_chunks,
    )


# What is refused, and what stays


@pytest.mark.parametrize(
    "settings", [{}, {"chunk_size": 512}, {"cname": "zstd"}, {"checksum": "md5"}]
)
@pytest.mark.parametrize("checksum", ["None", "adler32"])
def test_damage_is_refused(path, settings, checksum):
    good = packed(PLAIN, metadata=[1], checksum=checksum, free_entries=3)
    chance = random.Random(1)
    for offset in chance.sample(range(len(good)), 25):
        damaged = bytearray(good)
        damaged[offset] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        try:
            expected = bloscpack.unpack_bytes_from_file(path)
        except FormatError:
            expected = None
        try:
            repack(path, sync=False, **settings)
        except FormatError:
            assert damaged == path.read_bytes()
        else:
            # A bit that no digest covers, like one of a free entry.
            assert expected == bloscpack.unpack_bytes_from_file(path)
        assert [path.name] == os.listdir(path.parent)


def test_a_digest_is_checked(path):
    content = bytearray(path.read_bytes())
    content[-3000] ^= 1
    path.write_bytes(content)
    for settings in ({"max_app_chunks": 3}, {"checksum": "md5"}, {"chunk_size": 99}):
        with pytest.raises(ChecksumMismatch) as caught:
            repack(path, **settings)
        assert caught.value.chunk is not None
        assert content == path.read_bytes()


def test_bytes_behind_the_last_chunk(path):
    content = path.read_bytes()
    path.write_bytes(content + content)
    with pytest.raises(NotEnoughSpace, match="another bloscpack file"):
        repack(path)
    assert content + content == path.read_bytes()
    path.write_bytes(content + b"junk")
    with pytest.warns(RuntimeWarning, match="dropping '4' bytes"):
        repack(path)
    assert content == path.read_bytes()


@pytest.mark.skipif(os.name == "nt", reason="needs permission bits and links")
def test_access_links_and_other_writers(path, tmp_path):
    os.chmod(path, 0o640)
    repack(path, max_app_chunks=1)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    link = tmp_path / "link.blp"
    link.symlink_to(path)
    repack(link, max_app_chunks=2)
    assert link.is_symlink()
    assert header_of(path).max_app_chunks == 2
    link.unlink()
    os.link(path, link)
    with pytest.raises(UsageError, match="'2' hard links and can't be rewritten"):
        repack(path)
    link.unlink()
    with (
        another_writer(path),
        pytest.raises(OSError, match="another writer"),
    ):
        repack(path)
    if hasattr(os, "setxattr"):
        try:
            os.setxattr(path, "user.note", b"kept")
        except OSError:
            return
        repack(path)
        assert os.getxattr(path, "user.note") == b"kept"


# Append to a file without room


@pytest.mark.parametrize("metadata", [None, {"a": 1}])
@pytest.mark.parametrize("new", [..., {"b": "y" * 300}])
@pytest.mark.parametrize("plain", [b"", PLAIN])
@pytest.mark.parametrize(
    "options", [{"free_entries": 0}, {"offsets": False}, {"free_entries": 99}]
)
def test_append_grow(path, metadata, new, plain, options):
    path.write_bytes(packed(plain, metadata=metadata, metadata_room=30, **options))
    more = path.with_name("more")
    more.write_bytes(text(5500))
    given = {} if new is ... else {"metadata": new}
    append(path, more, grow=True, **given)
    more.unlink()
    assert_holds(path, plain + text(5500), metadata if new is ... else new)
    header = header_of(path)
    if plain and options == {"free_entries": 0}:
        assert 10 * header.nchunks == header.max_app_chunks


def test_append_grow_to_a_pipe_and_to_old_layouts(path):
    more = path.with_name("more")
    for content in (
        layout(3, [b"a" * 10, b"b" * 7], nchunks=-1),
        layout(0, [b"a" * 10, b"b" * 7]),
    ):
        path.write_bytes(content)
        more.write_bytes(b"c" * 50)
        append(path, more, grow=True)
        more.unlink()
        assert_holds(path, b"a" * 10 + b"b" * 7 + b"c" * 50)


def test_append_grow_in_place_if_there_is_room(path):
    more = path.with_name("more")
    more.write_bytes(b"c" * 50)
    inode = path.stat().st_ino
    append(path, more, grow=True)
    assert inode == path.stat().st_ino


def test_append_grow_to_an_array(path):
    array = np.arange(99.0)
    bloscpack.pack_ndarray_to_file(
        array,
        path,
        80,
        bloscpack_args=BloscpackArgs(max_app_chunks=0),
        metadata_args=MetadataArgs(max_meta_size=lambda size: size, meta_codec="None"),
    )
    np.save(path.with_name("more.npy"), array)
    append_npy(path, path.with_name("more.npy"), grow=True)
    assert [*array, *array] == bloscpack.unpack_ndarray_from_file(path).tolist()
    before = path.read_bytes()
    path.with_name("more").write_bytes(b"abc")
    with pytest.raises(DoesNotFit):
        append(path, path.with_name("more"), grow=True)
    assert before == path.read_bytes()


def test_append_grow_keeps_the_file_if_the_input_ends_early(path):
    path.write_bytes(packed(PLAIN, free_entries=0))
    before = path.read_bytes()
    with pytest.raises(StorageError, match="ends too early"):
        append_from(path, io.BytesIO(b"x" * 4000), 5000, grow=True)
    assert before == path.read_bytes()
    assert [path.name] == os.listdir(path.parent)


class Once:
    """A progress function that calls another function, the first time only."""

    def __init__(self, action):
        self._action = action

    def __call__(self, nbytes):
        if self._action is not None:
            self._action()
            self._action = None


def grow(path, progress):
    append(path, path.parent.parent / "new", grow=True, progress=progress)


def recompress(path, progress):
    repack(path, cname="zlib", progress=progress)


@pytest.fixture
def folder(tmp_path):
    """Return a folder with one file, and a file to append beside the folder."""
    (tmp_path / "new").write_bytes(text(50000))
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "file.blp").write_bytes(packed(PLAIN, free_entries=0))
    return folder


@pytest.mark.skipif(os.name == "nt", reason="an open file can't be renamed")
@pytest.mark.parametrize("rewrite", [recompress, grow])
@pytest.mark.parametrize("action", ["replace", "link", "remove", "move and link"])
def test_other_programs_change_the_names_meanwhile(folder, rewrite, action):
    """The rename overwrites no file, breaks no link and brings no file back."""
    path = folder / "file.blp"
    other = folder.parent / "other"
    before = path.read_bytes()

    def act():
        if action == "replace":
            other.write_bytes(b"theirs")
            other.rename(path)
        elif action == "link":
            os.link(path, other)
        elif action == "remove":
            path.unlink()
        else:
            path.rename(other)
            path.symlink_to(other)

    with pytest.raises(StorageError, match="meanwhile"):
        rewrite(path, Once(act))
    if action == "remove":
        assert [] == os.listdir(folder)
        return
    assert ["file.blp"] == os.listdir(folder)
    assert (b"theirs" if action == "replace" else before) == path.read_bytes()
    if action == "link":
        assert path.samefile(other)


@pytest.mark.parametrize("rewrite", [recompress, grow])
def test_relative_path_and_another_folder(folder, monkeypatch, rewrite):
    """The file is rewritten where it is, though the process changes its folder."""
    monkeypatch.chdir(folder)
    before = (folder / "file.blp").read_bytes()
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir()
    path = folder / "file.blp"
    change_folder = Once(lambda: os.chdir(elsewhere))
    if rewrite is grow:
        append("file.blp", "../new", grow=True, progress=change_folder)
    else:
        repack("file.blp", cname="zlib", progress=change_folder)
    assert [] == os.listdir(elsewhere)
    assert ["file.blp"] == os.listdir(folder)
    assert before != path.read_bytes()
    assert verify(path).ok


@pytest.mark.parametrize("settings", [{}, {"cname": "zlib"}, {"meta_checksum": "None"}])
def test_room_for_metadata_costs_no_memory(tmp_path, settings):
    """The header of a file may claim a room of 4 GiB, which a sparse file has."""
    path = tmp_path / "file.blp"
    room = 2**27 + 1
    write_with_room(path, room)
    tracemalloc.start()
    try:
        repack(path, **settings)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2**24
    assert room < path.stat().st_size
    assert ({"a": 1}, room) == (
        source_of(path).metadata,
        source_of(path).metadata_header.max_meta_size,
    )


def change_on_disk(path):
    rewrite_metadata(path, {"b": 2})


def change_file_object(path):
    with path.open("r+b") as fp:
        rewrite_metadata_fp(fp, {"b": 2})


def append_with_metadata(path):
    bloscpack.append_bytes_to_file(b"new", path, metadata={"b": 2})


@pytest.mark.parametrize(
    "change", [change_on_disk, change_file_object, append_with_metadata]
)
def test_a_change_of_metadata_in_place_needs_no_memory_for_the_room(tmp_path, change):
    path = tmp_path / "file.blp"
    room = 2**25 + 1
    write_with_room(path, room, offsets=change is append_with_metadata)
    tracemalloc.start()
    try:
        change(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2**24
    assert ["file.blp"] == os.listdir(tmp_path)
    found = source_of(path)
    assert ({"b": 2}, room) == (found.metadata, found.metadata_header.max_meta_size)
    assert verify(path).ok


def write_with_room(path, room, *, offsets=False):
    """Write a sparse file with this room for metadata."""
    if offsets:
        bloscpack.pack_bytes_to_file(
            PLAIN, path, 1000, metadata={"a": 1}, max_meta_size=room
        )
        return
    content = packed(PLAIN, metadata={"a": 1}, metadata_room=100, offsets=False)
    at = content.index((100).to_bytes(4, "little"), 32)
    rest = 32 + METADATA_HEADER_LENGTH + 100
    with path.open("wb") as fp:
        fp.write(content[:at] + room.to_bytes(4, "little") + content[at + 4 : rest])
        fp.seek(room - 100, os.SEEK_CUR)
        fp.write(content[rest:])
