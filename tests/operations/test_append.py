"""Append: the written bytes, and that a failure leaves the file unchanged."""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import os
import random
import re
import struct
import threading

import builders
import numpy as np
import pytest
from builders import numbers, prose, unpacked
from crash.watched_disk import WatchedDisk, replaced_disk

import bloscpack
from bloscpack.append import append, append_fp, append_from, rewrite_metadata_fp
from bloscpack.args import BloscArgs, BloscpackArgs, MetadataArgs
from bloscpack.constants import BLOSCPACK_HEADER_LENGTH
from bloscpack.exceptions import (
    ChecksumMismatch,
    DoesNotFit,
    FormatError,
    FormatVersionMismatch,
    MetadataSectionTooSmall,
    NoChangeInMetadata,
    NoMetadataFound,
    NotEnoughSpace,
    OffsetsRequired,
    StorageError,
    UsageError,
    UsageTypeError,
)
from bloscpack.headers import decode_header
from bloscpack.verify import verify

MEBIBYTE = 2**20

packed = functools.partial(builders.packed, entries=50)


def appended(original, new, blosc_args=None, **options):
    """Return the bytes of a file after `new` was appended to them."""
    fp = io.BytesIO(original)
    append_fp(fp, io.BytesIO(new), len(new), blosc_args, **options)
    assert len(fp.getvalue()) == fp.tell()
    return fp.getvalue()


def refused(original, new, error, match=None, **options):
    """Assert that an append raises an error and changes nothing."""
    fp = io.BytesIO(original)
    with pytest.raises(error, match=match) as caught:
        append_fp(fp, io.BytesIO(new), len(new), **options)
    assert original == fp.getvalue()
    return caught.value


# The written bytes

CUTS = [(2500, n) for n in (1, 499, 500, 501, 1500, 1501, 7777)]
CUTS += [(3000, n) for n in (1, 1000, 1001)]


@pytest.mark.parametrize("checksum", ["adler32", "None", "sha512"])
@pytest.mark.parametrize(("old", "new"), CUTS)
def test_append_makes_the_file_that_packing_at_once_makes(old, new, checksum):
    plain = numbers(old) + numbers(new, seed=7)
    original = packed(plain[:old], checksum=checksum)
    expected = packed(plain, checksum=checksum)
    assert expected == appended(original, plain[old:])


@pytest.mark.parametrize("nthreads", [1, 2, 5, None])
def test_append_on_any_number_of_threads(nthreads):
    plain = numbers(30_000)
    assert packed(plain) == appended(
        packed(plain[:2500]), plain[2500:], nthreads=nthreads
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (0, 1),
        (0, 5000),
        (1, 5000),
        (400, MEBIBYTE - 400),
        (400, MEBIBYTE),
        (MEBIBYTE - 1, 2 * MEBIBYTE),
    ],
)
def test_small_file_grows_as_if_packed_at_once(old, new):
    plain = numbers(old + new)
    expected = packed(plain, chunk_size=MEBIBYTE, entries=11)
    original = packed(plain[:old], chunk_size=MEBIBYTE, entries=11)
    assert expected == appended(original, plain[old:])


@pytest.mark.parametrize(
    ("old", "new", "header"),
    [
        # The last chunk takes all of it: (nchunks, chunk_size, last_chunk, free).
        (2500, 300, (3, 1000, 800, 47)),
        (2500, 500, (3, 1000, 1000, 47)),
        # New chunks follow.
        (2500, 501, (4, 1000, 1, 46)),
        (2500, 2500, (5, 1000, 1000, 45)),
        (2500, 2700, (6, 1000, 200, 44)),
        (3000, 100, (4, 1000, 100, 46)),
        # A single chunk grows to the size that packing everything would use.
        (400, 100, (1, 500, 500, 49)),
        (1000, 1, (1, 1001, 1001, 49)),
        (400, 2 * MEBIBYTE, (3, MEBIBYTE, 400, 47)),
        # There were no bytes.
        (0, 100, (1, 100, 100, 49)),
        (0, MEBIBYTE + 1, (2, MEBIBYTE, 1, 48)),
    ],
)
def test_header_after_an_append(old, new, header):
    found = decode_header(appended(packed(bytes(old)), bytes(new))[:32])
    fields = found.nchunks, found.chunk_size, found.last_chunk, found.max_app_chunks
    assert header == fields


@pytest.mark.parametrize(
    ("entries", "new", "fits"),
    [(3, 500, True), (3, 501, False), (4, 1500, True), (4, 1501, False)],
)
def test_room_of_the_offset_table(entries, new, fits):
    original = builders.packed(bytes(2500), entries=entries)
    if fits:
        found = decode_header(appended(original, bytes(new))[:32])
        assert (entries, 0) == (found.nchunks, found.max_app_chunks)
    else:
        error = refused(original, bytes(new), NotEnoughSpace, "not enough space")
        assert isinstance(error, RuntimeError)


def test_a_small_saved_array_grows_to_a_large_one(tmp_path):
    """`save` makes chunks of a few kilobytes, so that many are appended."""
    array = np.arange(100_010)
    path = tmp_path / "array.blp"
    bloscpack.save(path, array[:10])
    bloscpack.append_ndarray_to_file(array[10:], path)
    assert (array == bloscpack.load(path)).all()
    assert verify(path).ok


def test_append_nothing_changes_nothing():
    for plain in (b"", numbers(400), numbers(2500), numbers(3000)):
        original = packed(plain)
        assert original == appended(original, b"")


def test_append_returns_the_number_of_new_chunks():
    for new, expected in ((0, 0), (500, 0), (501, 1), (5500, 5)):
        fp = io.BytesIO(packed(numbers(2500)))
        assert expected == append_fp(fp, io.BytesIO(numbers(new)), new)


def test_append_takes_new_size_bytes_and_no_more():
    """It works from the beginning of the file, and reads little at a time."""

    class Slow(io.BytesIO):
        def read(self, size=-1):
            return super().read(min(size, 7))

    new = Slow(b"skipped" + numbers(2000) + b"rest")
    new.seek(7)
    fp = io.BytesIO(packed(numbers(2500)))
    fp.seek(1234)
    append_fp(fp, new, 2000)
    assert numbers(2500) + numbers(2000) == unpacked(fp.getvalue())
    assert b"rest" == new.read()


def test_chunks_may_differ_in_their_settings():
    original = packed(numbers(2500), blosc_args=BloscArgs(8, 9, True, "zlib"))
    args = BloscArgs(4, 1, False, "lz4")
    file_bytes = appended(original, numbers(2000), args)
    assert numbers(2500) + numbers(2000) == unpacked(file_bytes)
    header = decode_header(file_bytes[:32])
    assert (8, 5) == (header.typesize, header.nchunks)
    assert BloscArgs(4, 1, False, "lz4") == args


@pytest.mark.parametrize(
    ("of_file", "blosc_args", "expected"),
    [
        (3, None, 3),
        (3, BloscArgs(typesize=None), 3),
        (3, BloscArgs(typesize=5), 5),
        (3, BloscArgs(), 8),
    ],
)
def test_typesize_of_the_new_chunks(of_file, blosc_args, expected):
    original = packed(numbers(2500), blosc_args=BloscArgs(typesize=of_file))
    file_bytes = appended(original, numbers(600), blosc_args)
    offsets = struct.unpack_from("<4q", file_bytes, BLOSCPACK_HEADER_LENGTH)
    sizes = [file_bytes[offset + 3] for offset in offsets]
    assert [of_file, of_file, expected, expected] == sizes
    assert of_file == file_bytes[7]


def test_typesize_of_a_file_that_tells_none():
    original = bytearray(packed(numbers(2500)))
    original[7] = 0
    file_bytes = appended(bytes(original), numbers(10))
    assert numbers(2500) + numbers(10) == unpacked(file_bytes)


def test_dead_bytes_are_cut_off():
    # The higher level makes the chunk shorter.
    original = packed(bytes(2900), blosc_args=BloscArgs(clevel=0))
    shrunk = appended(original, bytes(100))
    assert len(shrunk) < len(original)
    assert bytes(3000) == unpacked(shrunk)


@pytest.mark.parametrize("checksum", ["adler32", "None"])
def test_crash_between_commit_and_cut(tmp_path, checksum):
    """The file is complete; `verify` notes unused bytes, and appending drops them."""

    class Uncut(WatchedDisk):
        def do(self, kind, call, *arguments):
            if kind == "truncate":
                raise OSError(5, "Input/output error")
            return super().do(kind, call, *arguments)

    path = tmp_path / "a.blp"
    # Its last chunk is a copy of packed files: its rest looks like one.
    inner = packed(bytes(100), checksum=checksum, entries=1)
    plain = random.Random(1).randbytes(1000) + inner * 8
    loose = BloscArgs(clevel=0, typesize=1)
    path.write_bytes(packed(plain, checksum=checksum, blosc_args=loose))
    (tmp_path / "new").write_bytes(b"new")
    with replaced_disk(Uncut()):
        append(path, tmp_path / "new")
    assert plain + b"new" == unpacked(path.read_bytes())
    report = verify(path)
    assert report.ok
    assert "left-over" == report.findings[-1].kind
    unused = report.findings[-1].extent
    assert bytes(16) == path.read_bytes()[unused[0] : unused[0] + 16]
    with pytest.warns(RuntimeWarning, match="dropping '%d'" % (unused[1] - unused[0])):
        append(path, tmp_path / "new")
    assert plain + b"newnew" == unpacked(path.read_bytes())
    assert "left-over" not in {finding.kind for finding in verify(path).findings}


BEHIND = [b"x", b"blp", b"something behind the end", bytes(2 * MEBIBYTE + 1)]


@pytest.mark.parametrize("behind", BEHIND, ids=len)
def test_bytes_that_belong_to_no_chunk_are_dropped(behind):
    original = packed(numbers(2500))
    expected = "^dropping '%d' bytes behind the last chunk" % len(behind)
    with pytest.warns(RuntimeWarning, match=expected) as caught:
        assert packed(numbers(3000)) == appended(
            original + behind, numbers(3000)[2500:]
        )
    assert 1 == len(caught)


def test_the_file_whose_bytes_are_dropped_is_named(tmp_path):
    path = tmp_path / "a.blp"
    path.write_bytes(packed(numbers(2500)) + b"something")
    (tmp_path / "new").write_bytes(b"new")
    expected = "'%s': dropping '9' bytes" % path
    with pytest.warns(RuntimeWarning, match=re.escape(expected)):
        append(path, tmp_path / "new")
    append(path, tmp_path / "new")  # no message any more
    assert numbers(2500) + b"newnew" == unpacked(path.read_bytes())


def test_nothing_appended_drops_nothing():
    original = packed(numbers(2500), metadata={"lines": 1}) + b"something"
    assert original == appended(original, b"")
    file_bytes = appended(original, b"", metadata={"lines": 2})
    assert b"something" == file_bytes[-9:]


@pytest.mark.parametrize("nbytes", [-1, -3000])
def test_fewer_than_no_bytes(nbytes):
    original = packed(numbers(2500))
    fp = io.BytesIO(original)
    with pytest.raises(UsageError, match="can't be '%d'" % nbytes):
        append_fp(fp, io.BytesIO(b"abc"), nbytes)
    assert original == fp.getvalue()


def test_file_that_can_only_be_added_to(tmp_path):
    path = tmp_path / "a.blp"
    original = packed(numbers(2500), metadata={"a": 1})
    path.write_bytes(original)
    with path.open("a+b") as fp:
        with pytest.raises(UsageError, match="opened with 'a'"):
            append_fp(fp, io.BytesIO(b"abc"), 3)
        with pytest.raises(UsageError, match="opened with 'a'"):
            rewrite_metadata_fp(fp, {"a": 2})
    assert original == path.read_bytes()


@pytest.mark.parametrize("error", [None, StorageError])
def test_many_bytes_behind_are_read_in_pieces(error):
    """The old bytes are kept in memory until the end, but in several pieces."""

    class Watched(io.BytesIO):
        most = 0

        def read(self, size=-1):
            self.most = max(self.most, size)
            return super().read(size)

    original = packed(numbers(2500)) + bytes(5 * MEBIBYTE)
    fp = Watched(original)
    raised = pytest.raises(error) if error else contextlib.nullcontext()
    with pytest.warns(RuntimeWarning, match="dropping"), raised:
        append_fp(fp, io.BytesIO(b"new"), 4 if error else 3)
    assert 0 < fp.most <= MEBIBYTE
    assert not error or original == fp.getvalue()


@pytest.mark.parametrize("end", [2500, 0])
def test_another_file_behind_is_not_destroyed(tmp_path, end):
    original, other = packed(numbers(end)), packed(b"other")
    message = "end of the file at byte '%d', found another bloscpack" % len(original)
    refused(original + other, b"new", NotEnoughSpace, message)
    path = tmp_path / "a.blp"
    path.write_bytes(original + other)
    (tmp_path / "new").write_bytes(b"new")
    with pytest.raises(UsageError, match=message) as raised:
        append(path, tmp_path / "new")
    assert str(path) == raised.value.filename
    assert original + other == path.read_bytes()
    assert ["a.blp", "new"] == sorted(os.listdir(tmp_path))


def test_renamed_right_after_the_append(tmp_path):
    """A change that is complete is not reported as a failure."""

    class Renaming(WatchedDisk):
        def do(self, kind, call, *arguments):
            if kind == "truncate":  # behind the commit
                os.rename(tmp_path / "a.blp", tmp_path / "b.blp")
            return super().do(kind, call, *arguments)

    (tmp_path / "a.blp").write_bytes(packed(numbers(2500)))
    (tmp_path / "new").write_bytes(numbers(700))
    with replaced_disk(Renaming()):
        append(tmp_path / "a.blp", tmp_path / "new")
    assert ["b.blp", "new"] == sorted(os.listdir(tmp_path))
    expected = numbers(2500) + numbers(700)
    assert expected == unpacked((tmp_path / "b.blp").read_bytes())


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_append_from_a_pipe(tmp_path):
    (tmp_path / "a.blp").write_bytes(packed(numbers(2500)))
    os.mkfifo(tmp_path / "new")
    writer = threading.Thread(
        target=lambda: (tmp_path / "new").write_bytes(numbers(700))
    )
    writer.start()
    append(tmp_path / "a.blp", str(tmp_path / "new"))
    writer.join()
    expected = appended(packed(numbers(2500)), numbers(700))
    assert expected == (tmp_path / "a.blp").read_bytes()
    assert {"a.blp", "new"} == {*os.listdir(tmp_path)}


def test_append_a_file_to_itself_is_refused(tmp_path):
    (tmp_path / "a.blp").write_bytes(packed(numbers(2500)))
    os.link(tmp_path / "a.blp", tmp_path / "b")
    for name in ("a.blp", "b"):
        with pytest.raises(UsageError, match="same file"):
            append(tmp_path / "a.blp", tmp_path / name)
    assert packed(numbers(2500)) == (tmp_path / "a.blp").read_bytes()


def test_append_needs_both_files(tmp_path):
    (tmp_path / "a").write_bytes(packed(numbers(2500)))
    for names in (("a", "none"), ("none", "a")):
        with pytest.raises(FileNotFoundError):
            append(*(tmp_path / name for name in names))
    assert ["a"] == os.listdir(tmp_path)


# Rejected


def test_no_offsets():
    original = builders.packed(numbers(2500), offsets=False)
    refused(original, b"new", RuntimeError, "without offsets")
    refused(original, b"new", UsageError, "without offsets")
    for options in (0, 1):
        piped = as_from_a_pipe(original, options=options)
        refused(piped, b"new", OffsetsRequired, "offsets")


def as_from_a_pipe(file_bytes, fields=(-1, -1), options=0):
    """Return a file without offsets, as a pipe gets it: `fields` are its last two."""
    header = bytearray(file_bytes)
    header[5] |= options
    struct.pack_into("<iq", header, 12, *fields)
    return bytes(header)


@pytest.mark.parametrize("options", [0, 1])
@pytest.mark.parametrize("fields", [None, (-1, -1), (500, -1), (-1, 3)])
@pytest.mark.parametrize("new", [1, 500, 501, 4000])
def test_a_file_without_offsets_states_its_chunks_after_an_append(fields, new, options):
    plain = numbers(2500) + numbers(new, seed=7)
    pack = functools.partial(builders.packed, offsets=False)
    original = pack(plain[:2500])
    if fields is not None:
        original = as_from_a_pipe(original, fields, options * (fields[1] == -1))
    assert pack(plain) == appended(original, plain[2500:], needs_offsets=False)


def test_unknown_sizes_become_known():
    for field in (8, 12):
        original = bytearray(packed(numbers(2500)))
        struct.pack_into("<i", original, field, -1)
        new = appended(bytes(original), numbers(700))
        assert packed(numbers(2500) + numbers(700)) == new


def test_chunks_that_differ_in_size():
    """`recover` writes such files; only a copy with equal chunks can grow."""
    original = bytearray(packed(numbers(2500)))
    struct.pack_into("<i", original, 8, -1)
    other = packed(numbers(900), entries=1)
    start, stop = struct.unpack_from("<2q", original, BLOSCPACK_HEADER_LENGTH)
    changed = original[:start] + other[40:] + original[stop:]
    for i in (1, 2):
        (offset,) = struct.unpack_from("<q", changed, 32 + 8 * i)
        moved = offset + len(other) - 40 - (stop - start)
        struct.pack_into("<q", changed, 32 + 8 * i, moved)
    plain = unpacked(bytes(changed))
    assert 2400 == len(plain)
    refused(bytes(changed), b"new", UsageError, "differ in size")


@pytest.mark.parametrize("cut", [1, 30])
def test_a_file_from_a_pipe_that_ends_too_early(cut):
    file = builders.packed(numbers(2500), offsets=False)
    original = as_from_a_pipe(file)[:-cut]
    refused(original, b"new", FormatError, needs_offsets=False)


def test_a_file_from_a_pipe_without_content():
    original = as_from_a_pipe(builders.packed(b"", offsets=False))[:32]
    assert b"new" == unpacked(appended(original, b"new", needs_offsets=False))


def test_seconds_to_wait_are_a_number(tmp_path):
    file = tmp_path / "a.blp"
    file.write_bytes(packed(b"old"))
    for wait in ("3", None):
        with pytest.raises(UsageTypeError, match="number of seconds to wait"):
            append_from(file, io.BytesIO(b"new"), 3, wait=wait)
    append_from(file, io.BytesIO(b"new"), 3, wait=np.float32(0.5))


def test_several_empty_chunks():
    file = builders.packed(b"", offsets=False)
    original = as_from_a_pipe(file + file[32:])
    refused(original, b"new", UsageError, "'2' chunks.* empty", needs_offsets=False)
    assert original == appended(original, b"", needs_offsets=False)


@pytest.mark.parametrize(
    "header",
    [
        struct.pack("<4sI", b"blpk", 1),
        struct.pack("<4sB3sq", b"blpk", 1, bytes(3), 1),
        struct.pack("<4sBBBBiiqqq", b"blpk", 2, 1, 0, 8, 0, 30, 1, 0, 40),
    ],
    ids=["0", "1", "2"],
)
def test_old_layouts(header):
    chunk = packed(b"a" * 30, checksum="None", entries=1)[40:]
    original = header + chunk
    assert b"a" * 30 == unpacked(original)
    refused(original, b"new", FormatVersionMismatch, "not appended to")


@pytest.mark.parametrize("original", [b"", b"blpk", b"no such file" * 10])
def test_what_is_no_such_file(original):
    assert isinstance(refused(original, b"new", FormatError), ValueError)


def test_damaged_last_chunk():
    """Bug 11 of 0.16."""
    good = packed(numbers(2500))
    start = struct.unpack_from("<q", good, 32 + 16)[0]
    for where in (start + 20, len(good) - 5, len(good) - 1):
        original = bytearray(good)
        original[where] ^= 1
        error = refused(bytes(original), numbers(100), ChecksumMismatch)
        assert (2, start) == (error.chunk, error.offset)


def test_damaged_chunk_header():
    original = bytearray(packed(numbers(2500)))
    start = struct.unpack_from("<q", original, 32 + 8)[0]
    original[start] = 9
    assert 1 == refused(bytes(original), numbers(100), FormatError).chunk


def test_truncated_file():
    original = packed(numbers(2500))
    for size in (10, 40, 200, len(original) - 400, len(original) - 1):
        refused(original[:size], numbers(100), FormatError)


class Traced(io.BytesIO):
    """Notes the extents that are read."""

    def __init__(self, content):
        super().__init__(content)
        self.extents = []

    def read(self, size=-1):
        start = self.tell()
        data = super().read(size)
        self.extents.append((start, start + len(data)))
        return data


@pytest.mark.parametrize("nchunks", [1, 2, 3, 1000])
def test_append_reads_the_last_two_chunks_only(nchunks):
    """Of the last but one chunk only the header is read, to see where it ends."""
    original = packed(numbers(1000 * nchunks - 9), entries=nchunks + 9)
    offsets = struct.unpack_from("<%dq" % nchunks, original, BLOSCPACK_HEADER_LENGTH)
    fp = Traced(original)
    append_fp(fp, io.BytesIO(b"new"), 3)
    of_chunks = [(a, b) for a, b in fp.extents if a >= offsets[0] and a < b]
    assert offsets[max(nchunks - 2, 0)] == min(start for start, _ in of_chunks)
    if nchunks > 1:
        before = sum(b - a for a, b in of_chunks if a < offsets[-1])
        assert 16 == before
    assert numbers(1000 * nchunks - 9) + b"new" == unpacked(fp.getvalue())


def test_append_that_needs_all_chunks_reads_all_headers():
    """Bytes behind the last chunk contradict the table, so nothing is assumed."""
    original = packed(numbers(10_000)) + b"something"
    fp = Traced(original)
    with pytest.warns(RuntimeWarning, match="dropping '9' bytes"):
        append_fp(fp, io.BytesIO(b"new"), 3)
    offsets = struct.unpack_from("<10q", original, BLOSCPACK_HEADER_LENGTH)
    assert set(offsets) <= {start for start, _ in fp.extents}


def with_entry(original, i, offset):
    """Return a file with another entry in its offset table."""
    changed = bytearray(original)
    struct.pack_into("<q", changed, BLOSCPACK_HEADER_LENGTH + 8 * i, offset)
    return bytes(changed)


@pytest.mark.parametrize("i", [0, 1, 4, 7, 8, 9])
@pytest.mark.parametrize(
    "kind", ["before", "after", "negative", "beyond", "huge", "next"]
)
def test_wrong_entry_among_many(kind, i):
    original = packed(numbers(10_000))
    offsets = struct.unpack_from("<10q", original, BLOSCPACK_HEADER_LENGTH)
    wrong = {
        "before": offsets[i] - (offsets[1] - offsets[0]),
        "after": offsets[i] + (offsets[1] - offsets[0]),
        "negative": -1,
        "beyond": len(original),
        "huge": 2**63 - 1,
        "next": offsets[(i + 1) % 10],
    }[kind]
    error = refused(with_entry(original, i, wrong), numbers(100), FormatError)
    assert ("offsets", i) == (error.section, error.chunk)


def test_what_append_leaves_to_verify(tmp_path):
    """A wrong entry that is in order, and a damaged chunk before the last two."""
    original = packed(numbers(10_000))
    offsets = struct.unpack_from("<10q", original, BLOSCPACK_HEADER_LENGTH)
    damaged = bytearray(original)
    damaged[offsets[3] + 3] ^= 255
    path = tmp_path / "a.blp"
    for content in (with_entry(original, 4, offsets[4] + 1), bytes(damaged)):
        path.write_bytes(appended(content, b"new"))
        assert not verify(path).ok
        path.write_bytes(content)
        assert not verify(path).ok


@pytest.mark.parametrize("field", ["nchunks", "chunk_size", "last_chunk"])
def test_header_that_lies(field):
    original = bytearray(packed(numbers(2500)))
    layout, where, wrong = {
        "nchunks": ("<q", 16, 2),
        "chunk_size": ("<i", 8, 1001),
        "last_chunk": ("<i", 12, 499),
    }[field]
    struct.pack_into(layout, original, where, wrong)
    refused(bytes(original), numbers(100), FormatError)


@pytest.mark.parametrize(
    "blosc_args",
    [
        BloscArgs(typesize=0),
        BloscArgs(typesize=256),
        BloscArgs(clevel=10),
        BloscArgs(shuffle=3),
        BloscArgs(cname="none such"),
    ],
    ids=repr,
)
def test_settings_that_can_not_be(blosc_args):
    refused(packed(numbers(2500)), b"new", ValueError, blosc_args=blosc_args)


@pytest.mark.parametrize(
    "settings",
    [
        {"typesize": 4, "clevel": 1, "shuffle": 2, "cname": "lz4"},
        {"cname": "lz4"},
        {"typesize": None},
    ],
)
def test_settings_as_a_dictionary(settings):
    original, new = packed(numbers(2500)), numbers(2000)
    args = BloscArgs(**{"typesize": None, **settings})
    before = dict(settings)
    assert appended(original, new, args) == appended(original, new, settings)
    assert before == settings


def test_settings_that_fit(tmp_path):
    words = prose(200_000)
    original = bloscpack.pack_bytes_to_bytes(prose(2500))
    usual = len(appended(original, words))
    for auto in (True, "ratio"):
        found = appended(original, words, auto=auto)
        assert len(found) < 0.7 * usual
        assert prose(2500) + words == bloscpack.unpack_bytes_from_bytes(found)[0]
    fixed = appended(original, words, auto=True, codec="zlib", level=1)
    found = appended(original, words, {"cname": "zlib"}, auto="speed", clevel=1)
    assert usual > len(fixed) == len(found)
    refused(original, b"new", UsageError, "the goal must be one of", auto="best")
    shorts = np.arange(20_000, dtype="i2").tobytes()
    for typesize in (2, None):
        given = {"cname": "zlib", "clevel": 1, "shuffle": True, "typesize": typesize}
        found = appended(original, shorts, given, auto=True)
        assert appended(original, shorts, given) == found
    path = tmp_path / "a.blp"
    bloscpack.save(path, np.round(np.linspace(0, 99, 50_000), 1))
    size = path.stat().st_size
    rows = np.round(np.random.default_rng(1).normal(20, 5, 50_000), 1)
    bloscpack.append_ndarray_to_file(rows, path, auto=True)
    assert path.stat().st_size - size < 100_000
    assert (rows == bloscpack.load(path)[50_000:]).all()
    receiver, sender = os.pipe()
    os.close(sender)
    with open(receiver, "rb") as pipe, pytest.raises(UsageError, match="can seek"):
        append_fp(io.BytesIO(original), pipe, 3, auto=True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lvl": 3}, "'blosc_args' has no field 'lvl': did you mean 'level'?"),
        ({"dims": 3}, "'blosc_args' has no field 'dims': the settings are typesize"),
        (BloscpackArgs(), "'blosc_args' must be of type 'BloscArgs', not 'Bloscpack"),
        ("lz4", "'blosc_args' must be of type 'BloscArgs', not 'str'"),
    ],
)
def test_settings_that_are_none(settings, message):
    original = packed(numbers(2500))
    refused(original, b"new", UsageTypeError, message, blosc_args=settings)


# Metadata


@pytest.mark.parametrize(
    ("options", "lines"), [({}, 1), ({"metadata": {"lines": 2}}, 2)]
)
def test_metadata_stay_or_are_new(options, lines):
    original = packed(numbers(2500), metadata={"lines": 1})
    file_bytes = appended(original, numbers(700), **options)
    expected = (numbers(2500) + numbers(700), {"lines": lines})
    assert expected == bloscpack.unpack_bytes_from_bytes(file_bytes)


@pytest.mark.parametrize("value", [None, [], {}, 0, "", False, {"a": "é"}])
def test_any_value_can_be_the_new_metadata(value):
    original = packed(numbers(2500), metadata={"lines": 1})
    assert (
        value
        == bloscpack.unpack_bytes_from_bytes(appended(original, b"", metadata=value))[1]
    )


@pytest.mark.parametrize(
    ("original", "metadata", "error"),
    [
        (packed(numbers(2500)), {"a": 1}, NoMetadataFound),
        (packed(numbers(2500), metadata={"a": 1}), {"a": 1}, NoChangeInMetadata),
        (
            packed(numbers(2500), metadata={"a": 1}),
            {"a": np.random.default_rng(1).bytes(200).hex()},
            MetadataSectionTooSmall,
        ),
        (packed(numbers(2500), metadata={"a": 1}), {"a": {1}}, UsageError),
    ],
)
def test_metadata_are_checked_before_anything_is_appended(original, metadata, error):
    refused(original, numbers(700), error, metadata=metadata)
    fp = io.BytesIO(original)
    with pytest.raises(error):
        rewrite_metadata_fp(fp, metadata)
    assert original == fp.getvalue()


@pytest.mark.parametrize("checksum", [None, "crc32", "sha256"])
def test_rewritten_section_is_what_packing_would_write(checksum):
    args = MetadataArgs(meta_checksum=checksum, max_meta_size=500)
    fp = io.BytesIO(packed(b"plain", metadata={"a": "b" * 300}, metadata_args=args))
    rewrite_metadata_fp(fp, {"c": "d" * 100})
    expected = packed(b"plain", metadata={"c": "d" * 100}, metadata_args=args)
    assert expected == fp.getvalue()


# Arrays


@pytest.mark.parametrize(
    ("dtype", "shape", "rows"),
    [
        ("<i4", (5,), 3),
        ("<i4", (5, 7), 2),
        ("<f8", (4, 2, 3), 10),
        ("V12", (3,), 4),
        ("U7", (3, 2), 4),
        ([("a", "<i4"), ("b", "S3")], (3,), 4),
        ("<i4", (0,), 3),
        ("<i4", (0, 4), 3),
        (">i2", (300_000, 2), 600_000),
    ],
)
def test_array_grows_along_its_first_axis(dtype, shape, rows):
    old = np.zeros(shape, dtype)
    new = np.frombuffer(
        numbers(int(np.prod(shape[1:])) * old.itemsize * rows), old.dtype
    ).reshape(rows, *shape[1:])
    file_bytes = appended(bloscpack.pack_ndarray_to_bytes(old), new.tobytes())
    found = bloscpack.unpack_ndarray_from_bytes(file_bytes)
    assert (shape[0] + rows, *shape[1:]) == found.shape
    assert old.dtype == found.dtype
    assert old.tobytes() + new.tobytes() == found.tobytes()


def test_array_chunks_stay_whole_items():
    file_bytes = appended(
        bloscpack.pack_ndarray_to_bytes(np.zeros(3, "V12")), bytes(12 * 100_000)
    )
    header = decode_header(file_bytes[:32])
    assert (0, 2) == (header.chunk_size % 12, header.nchunks)


@pytest.mark.parametrize("nbytes", [1, 27, 29, 4])
def test_part_of_a_row_is_refused(nbytes):
    original = bloscpack.pack_ndarray_to_bytes(np.zeros((5, 7), "<i4"))
    refused(original, bytes(nbytes), UsageError, "rows have '28' bytes")


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(np.zeros((3, 2))),
        np.array(3.5),
        np.zeros((3, 0)),
        np.zeros(3, "V0"),
    ],
    ids=["F", "0-d", "no rows", "no bytes"],
)
def test_array_that_can_not_grow(array):
    refused(bloscpack.pack_ndarray_to_bytes(array), bytes(48), UsageError)


def test_array_whose_metadata_have_no_room():
    args = MetadataArgs(meta_codec=None, max_meta_size=lambda size: size)
    array = np.zeros((9, 2), "<i4")
    original = bloscpack.pack_ndarray_to_bytes(array, metadata_args=args)
    refused(original, bytes(8), MetadataSectionTooSmall)
    assert (9, 2) == bloscpack.unpack_ndarray_from_bytes(original).shape


def test_array_whose_metadata_lie():
    metadata = {"dtype": "<f8", "shape": [3], "order": "C", "container": "numpy"}
    original = packed(bytes(80), metadata=metadata)
    refused(original, bytes(8), FormatError, "has '24' bytes")


def test_array_gets_the_shape_that_the_caller_wants():
    original = bloscpack.pack_ndarray_to_bytes(np.zeros((2, 3), "<i4"))
    _, metadata = bloscpack.unpack_bytes_from_bytes(original)
    wanted = {**metadata, "shape": [4, 2]}
    file_bytes = appended(original, bytes(8), metadata=wanted)
    assert (4, 2) == bloscpack.unpack_ndarray_from_bytes(file_bytes).shape
    refused(original, bytes(8), DoesNotFit, metadata={**metadata, "shape": [5, 2]})


# Failures in the middle


class FailingFile(io.BytesIO):
    """A file whose n-th write fails once, before or after a part of the bytes."""

    countdown = -1
    part = 0

    def write(self, data):
        self.countdown -= 1
        if self.countdown == 0:
            super().write(bytes(data)[: self.part])
            raise OSError(28, "No space left on device")
        return super().write(data)


ORIGINALS = {
    "one chunk": packed(numbers(400)),
    "empty": packed(b""),
    "many": packed(numbers(2500), metadata={"lines": 1}),
    "loose": packed(bytes(2900), blosc_args=BloscArgs(clevel=0), metadata=[1]),
    "array": bloscpack.pack_ndarray_to_bytes(np.zeros((10, 25), "<f4")),
}


@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize("original", ORIGINALS.values(), ids=ORIGINALS)
def test_any_write_may_fail(original, part):
    options = {"metadata": {"lines": 2}} if b"lines" in original else {}
    new = numbers(5000)
    expected = appended(original, new, **options)
    failures = 0
    for countdown in range(1, 100):
        fp = FailingFile(original)
        fp.countdown, fp.part = countdown, part
        try:
            append_fp(fp, io.BytesIO(new), len(new), **options)
        except OSError:
            assert original == fp.getvalue()
            failures += 1
        else:
            break
    assert expected == fp.getvalue()
    assert failures >= 4


@pytest.mark.parametrize("given", [0, 1, 499, 500, 2000, 4999])
@pytest.mark.parametrize("original", ORIGINALS.values(), ids=ORIGINALS)
def test_source_that_ends_too_early(original, given):
    fp = io.BytesIO(original)
    with pytest.raises(StorageError, match="too early"):
        append_fp(fp, io.BytesIO(numbers(given)), 5000)
    assert original == fp.getvalue()


@pytest.mark.parametrize("good", [0, 1, 3])
@pytest.mark.parametrize(
    "error", [OSError(5, "Input/output error"), KeyboardInterrupt()]
)
def test_source_that_fails(good, error):
    class FailingSource(io.BytesIO):
        reads = 0

        def read(self, size=-1):
            self.reads += 1
            if self.reads > good:
                raise error
            return super().read(size)

    original = packed(numbers(2500))
    fp = io.BytesIO(original)
    with pytest.raises(type(error)) as caught:
        append_fp(fp, FailingSource(numbers(5000)), 5000)
    assert error is caught.value
    assert original == fp.getvalue()


def test_metadata_rewrite_that_fails():
    original = ORIGINALS["many"]
    for part in (0, 1, 40):
        fp = FailingFile(original)
        fp.countdown, fp.part = 1, part
        with pytest.raises(OSError, match="No space"):
            rewrite_metadata_fp(fp, {"lines": 2})
        assert original == fp.getvalue()


def test_failure_names_the_file(tmp_path):
    original = bytearray(packed(numbers(2500)))
    original[-1] ^= 1
    (tmp_path / "a.blp").write_bytes(original)
    (tmp_path / "new").write_bytes(b"new")
    with pytest.raises(ChecksumMismatch) as caught:
        append(tmp_path / "a.blp", tmp_path / "new")
    assert str(tmp_path / "a.blp") == caught.value.filename
    assert bytes(original) == (tmp_path / "a.blp").read_bytes()


@pytest.mark.parametrize("metadata", [{"a": 1}, [], 0, {"container": "other"}, None])
def test_metadata_of_the_user_beside_an_array(metadata):
    array = np.arange(30.0).reshape(10, 3)
    packed = bloscpack.pack_ndarray_to_bytes(array, metadata={"a": 2})

    def metadata_after(change):
        fp = io.BytesIO(packed)
        change(fp)
        found = bloscpack.unpack_ndarray_from_bytes(fp.getvalue(), return_metadata=True)
        assert (array == found[0][:10]).all()
        return found[0].shape, found[1]

    assert ((11, 3), metadata) == metadata_after(
        lambda fp: append_fp(fp, io.BytesIO(bytes(24)), 24, metadata=metadata)
    )
    assert ((10, 3), metadata) == metadata_after(
        lambda fp: rewrite_metadata_fp(fp, metadata)
    )


def test_metadata_of_the_user_that_an_array_has():
    fp = io.BytesIO(bloscpack.pack_ndarray_to_bytes(np.arange(3), metadata={"a": 1}))
    for metadata in ({"a": 1}, bloscpack.unpack_bytes_from_bytes(fp.getvalue())[1]):
        with pytest.raises(NoChangeInMetadata):
            rewrite_metadata_fp(fp, metadata)
    rewrite_metadata_fp(fp, {"a": True})  # 1 == True in Python, but not in JSON


def test_the_error_names_a_sticky_folder(tmp_path, monkeypatch):
    path = tmp_path / "a.blp"
    bloscpack.pack_bytes_to_file(b"abc", path, chunk_size=3, max_app_chunks=0)
    before = path.read_bytes()
    tmp_path.chmod(0o1777)

    def replace(name, other, **folders):  # root may replace the files of others
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), name)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(PermissionError, match="'%s' is sticky" % tmp_path) as caught:
        bloscpack.append_bytes_to_file(bytes(3 * 2**20), path)
    assert str(path) == caught.value.filename
    assert [path] == list(tmp_path.iterdir())
    assert before == path.read_bytes()


def test_the_bytes_of_a_npy_file_are_no_items(tmp_path):
    """They are plain bytes for a file of bytes, as in release 0.16."""
    array, more, plain = (tmp_path / name for name in ("a.blp", "b.npy", "p.blp"))
    bloscpack.pack_ndarray_to_file(np.arange(5), array)
    np.save(more, np.arange(3))
    before = array.read_bytes()
    with pytest.raises(bloscpack.UsageError, match=r"append_ndarray_to_file.*b\.npy"):
        bloscpack.append(array, more)
    assert before == array.read_bytes()
    bloscpack.pack_bytes_to_file(b"x", plain)
    bloscpack.append(plain, more)
    assert b"x" + more.read_bytes() == bloscpack.unpack_bytes_from_file(plain)[0]
