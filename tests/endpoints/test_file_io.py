"""Packing and unpacking files and bytes, and the sources and sinks over files."""

import io
import os
import struct
import threading

import numpy as np
import pytest
from builders import packed
from crash.watched_disk import WatchedDisk, replaced_disk

import bloscpack as bp
from bloscpack import file_io, log
from bloscpack.abstract_io import compress_chunk, pack, unpack
from bloscpack.append import append, rewrite_metadata
from bloscpack.args import BloscArgs, BloscpackArgs, calculate_nchunks
from bloscpack.exceptions import FormatError, StorageError, UsageError
from bloscpack.file_io import (
    CompressedBytesSource,
    CompressedFPSink,
    CompressedFPSource,
    JoinedBytesSink,
    PlainBytesSink,
    PlainBytesSource,
    PlainFPSink,
    PlainFPSource,
)
from bloscpack.headers import BloscpackHeader
from bloscpack.memory_io import PlainMemorySink
from bloscpack.npy_io import append_npy, pack_npy_to_file, unpack_npy_from_file
from bloscpack.pretty import double_pretty_size, pretty_size

PLAIN = bytes(range(251)) * 40
NCHUNKS = 11
VALUE = {"key": ["value"] * 30}


def cut(chunk_size=1000):
    return calculate_nchunks(len(PLAIN), chunk_size)


def read_back(data):
    return bp.unpack_bytes_from_bytes(data)


# The written bytes


def test_layout():
    data = packed(PLAIN, metadata=VALUE)
    source = CompressedFPSource(io.BytesIO(data))
    assert (
        BloscpackHeader(
            offsets=True,
            metadata=True,
            checksum="adler32",
            typesize=8,
            chunk_size=1000,
            last_chunk=40,
            nchunks=NCHUNKS,
            max_app_chunks=10 * NCHUNKS,
        )
        == source.bloscpack_header
    )
    assert VALUE == source.metadata
    assert 10 * source.metadata_header.meta_size == source.metadata_header.max_meta_size
    assert NCHUNKS == len(source.offsets) == source.nchunks
    for i, (offset, (chunk, digest)) in enumerate(
        zip(source.offsets, source, strict=True)
    ):
        plain = PLAIN[1000 * i : 1000 * (i + 1)]
        assert compress_chunk(plain, BloscArgs()) == chunk
        assert source.checksum_impl(chunk) == digest
        assert offset == source.chunk_offset
        assert data[offset : offset + len(chunk)] == chunk
    table_at = source.offsets[0] - 8 * 11 * NCHUNKS
    table = struct.unpack_from("<%dq" % (11 * NCHUNKS), data, table_at)
    assert (*source.offsets, *[-1] * 10 * NCHUNKS) == table
    assert len(data) == source.chunk_offset + len(chunk) + len(digest)


def test_empty_input():
    data = bp.pack_bytes_to_bytes(b"")
    assert (b"", None) == read_back(data)
    assert 140 == len(data)
    assert bytes.fromhex("02011308 00000000 01000000 10000000") == data[120:136]


@pytest.mark.parametrize(
    ("size", "settings"),
    [
        (32 + 16 + 5, {"offsets": False, "checksum": None}),
        (32 + 16 + 5 + 4, {"offsets": False}),
        (32 + 8 + 16 + 5 + 64, {"max_app_chunks": 0, "checksum": "sha512"}),
        (32 + 8 * 4 + 16 + 5 + 4, {"max_app_chunks": lambda nchunks: 3 * nchunks}),
    ],
)
def test_size_of_a_small_file(size, settings):
    data = bp.pack_bytes_to_bytes(b"plain", bloscpack_args=BloscpackArgs(**settings))
    assert size == len(data)
    assert (b"plain", None) == read_back(data)


@pytest.mark.parametrize("buffer", [bytearray, memoryview])
def test_any_buffer_is_unpacked(buffer):
    data = buffer(packed(PLAIN))
    assert (PLAIN, None) == read_back(data)


# Files


@pytest.mark.parametrize("as_path", [str, lambda path: path])
def test_files(tmp_path, as_path):
    (tmp_path / "in").write_bytes(PLAIN)
    names = [as_path(tmp_path / name) for name in ("in", "a.blp", "b.blp", "out")]
    assert bp.pack_file_to_file(names[0], names[1], 1000, metadata=VALUE) is None
    assert bp.pack_bytes_to_file(PLAIN, names[2], 1000, metadata=VALUE) is None
    expected = packed(PLAIN, metadata=VALUE)
    assert expected == (tmp_path / "a.blp").read_bytes()
    assert expected == (tmp_path / "b.blp").read_bytes()
    assert VALUE == bp.unpack_file_from_file(names[1], names[3])
    assert PLAIN == (tmp_path / "out").read_bytes()
    assert (PLAIN, VALUE) == bp.unpack_bytes_from_file(names[2])


@pytest.mark.parametrize("name", [b"a.blp", "\u00e9.blp".encode(), b"\xff.blp"])
def test_names_as_bytes(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    bp.pack_bytes_to_file(PLAIN, name, 1000, metadata=VALUE)
    with open(b"new", "wb") as fp:
        fp.write(b"new")
    append(name, b"new")
    rewrite_metadata(name, {})
    assert (PLAIN + b"new", {}) == bp.unpack_bytes_from_file(name)
    assert bp.unpack_file_from_file(name, b"out") == {}
    bp.pack_file_to_file(b"out", name)  # replaces a file
    assert (PLAIN + b"new", None) == bp.unpack_bytes_from_file(name)
    with pytest.raises(UsageError, match="input 'out' and output 'out' are the same"):
        bp.pack_file_to_file(b"out", b"out")
    with open(name, "wb") as fp:
        fp.write(b"no file")
    with pytest.raises(FormatError) as raised:
        bp.unpack_bytes_from_file(name)
    assert os.fsdecode(name) == raised.value.filename
    bp.pack_ndarray_to_file(np.arange(3), name)
    unpack_npy_from_file(name, b"a.npy")
    pack_npy_to_file(b"a.npy", name)
    append_npy(name, b"a.npy")
    assert [0, 1, 2] * 2 == bp.unpack_ndarray_from_file(name).tolist()
    assert sorted([name, b"new", b"out", b"a.npy"]) == sorted(os.listdir(b"."))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("size", [0, 1, 999, 1000, 1001, len(PLAIN)])
def test_pipe_as_input(tmp_path, size):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(PLAIN[:size]))
    writer.start()
    bp.pack_file_to_file(pipe, tmp_path / "out.blp", 1000)
    writer.join()
    data = (tmp_path / "out.blp").read_bytes()
    header = CompressedBytesSource(data).bloscpack_header
    assert not header.offsets
    assert calculate_nchunks(size, 1000) == (
        header.nchunks,
        header.chunk_size,
        header.last_chunk,
    )
    assert (PLAIN[:size], None) == read_back(data)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_pipe_as_output(tmp_path):
    (tmp_path / "in.blp").write_bytes(packed(PLAIN))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    bp.unpack_file_from_file(tmp_path / "in.blp", pipe)
    reader.join()
    assert [PLAIN] == received


def test_what_is_told(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(log, "LEVEL", log.VERBOSE)
    monkeypatch.setattr(log, "PREFIX", "blpk")
    (tmp_path / "in").write_bytes(bytes(24000))
    bp.pack_file_to_file(tmp_path / "in", tmp_path / "a.blp", "8K", metadata={"a": 1})
    size = (tmp_path / "a.blp").stat().st_size
    assert (
        "blpk: input file size: 23.44K (24000B)\n"
        "blpk: nchunks: 3\n"
        "blpk: chunk_size: 8.0K (8192B)\n"
        "blpk: last_chunk_size: 7.44K (7616B)\n"
        "blpk: output file size: %s\n"
        "blpk: compression ratio: %f\n" % (double_pretty_size(size), 24000 / size)
    ) == capsys.readouterr().out
    bp.unpack_file_from_file(tmp_path / "a.blp", tmp_path / "out")
    assert (
        "blpk: input file size: %s\n"
        "blpk: read uncompressed metadata of size: '7'\n"
        "blpk: output file size: 23.44K\n"
        "blpk: decompression ratio: %f\n" % (pretty_size(size), 24000 / size)
    ) == capsys.readouterr().out


@pytest.mark.parametrize("level", [log.NORMAL, log.VERBOSE])
def test_renamed_right_after_it_was_written(tmp_path, capsys, monkeypatch, level):
    """A change that is complete is not reported as a failure."""

    class Renaming(WatchedDisk):
        def link(self, old, new):
            super().link(old, new + ".moved")

    monkeypatch.setattr(log, "LEVEL", level)
    (tmp_path / "in").write_bytes(PLAIN)
    with replaced_disk(Renaming()):
        bp.pack_file_to_file(tmp_path / "in", tmp_path / "a")
        bp.unpack_file_from_file(tmp_path / "a.moved", tmp_path / "b")
    assert PLAIN == (tmp_path / "b.moved").read_bytes()
    assert "output file size" not in capsys.readouterr().out


# Sources and sinks over file objects


class Limping:
    """A file object as a socket gives it: it can't seek and returns few bytes."""

    def __init__(self, data=b"", most=7):
        self._fp = io.BytesIO(data)
        self._most = most

    def read(self, size):
        return self._fp.read(min(size, self._most))

    def write(self, data):
        return self._fp.write(bytes(data[: self._most]))

    def getvalue(self):
        return self._fp.getvalue()


def test_pipe_to_pipe():
    middle = Limping()
    pack(PlainFPSource(Limping(PLAIN)), CompressedFPSink(middle), -1, 1000, -1)
    source = CompressedFPSource(Limping(middle.getvalue()))
    header = source.bloscpack_header
    assert (-1, 1000, -1) == (header.nchunks, header.chunk_size, header.last_chunk)
    assert not header.offsets
    sink = PlainMemorySink()
    unpack(source, sink)
    assert PLAIN == b"".join(bytes(chunk) for chunk in sink.chunks)


def damaged(data, number):
    """Return a file whose chunk `number` does not fit its digest or its size."""
    offset = list(CompressedBytesSource(data).frames())[number].offset
    return data[: offset + 4] + bytes(4) + data[offset + 8 :]


MODES = {"w+b": b"", "wb": b"", "ab": b"old", "r+b": b"x" * 20_000}


@pytest.mark.parametrize("nthreads", [1, 3])
@pytest.mark.parametrize("checksum", ["crc32", "None"])
@pytest.mark.parametrize("buffering", [-1, 0])
@pytest.mark.parametrize("mode", MODES)
def test_output_ends_behind_the_last_good_chunk(
    tmp_path, mode, buffering, checksum, nthreads
):
    """Whoever decompresses a chunk may write it, and may be ahead of a bad one."""
    data, before = packed(PLAIN, checksum=checksum), MODES[mode]
    path, bad = tmp_path / "a.blp", NCHUNKS - 2
    for content, good in (data, len(PLAIN)), (damaged(data, bad), bad * 1000):
        path.write_bytes(content)
        (tmp_path / "a").write_bytes(before)
        with (
            path.open("rb") as fp,
            open(tmp_path / "a", mode, buffering=buffering) as out,
        ):
            out.write(b"begin")
            sink = PlainFPSink(out)
            if content is data:
                unpack(CompressedFPSource(fp), sink, nthreads=nthreads)
            else:
                with pytest.raises(FormatError) as raised:
                    unpack(CompressedFPSource(fp), sink, nthreads=nthreads)
                assert bad == raised.value.chunk
            assert len(before) * (mode == "ab") + 5 + good == out.tell()
            out.write(b"end")
        expected = b"begin" + PLAIN[:good] + b"end"
        if mode == "ab":
            expected = before + expected
        assert expected + before[len(expected) :] == (tmp_path / "a").read_bytes()


@pytest.mark.parametrize("nthreads", [1, 3])
def test_output_after_an_error_of_the_caller(tmp_path, nthreads):
    seen = []

    def progress(nbytes):
        if len(seen) == 5:
            raise KeyError
        seen.append(nbytes)

    with open(tmp_path / "a", "wb") as out:
        source, sink = CompressedBytesSource(packed(PLAIN)), PlainFPSink(out)
        with pytest.raises(KeyError):
            unpack(source, sink, nthreads=nthreads, progress=progress)
    assert PLAIN[:5000] == (tmp_path / "a").read_bytes()


@pytest.mark.parametrize("nthreads", [1, 3])
def test_output_on_a_full_disk(tmp_path, nthreads):
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with open(tmp_path / "a", "wb") as out:
        source, sink = CompressedBytesSource(packed(PLAIN)), PlainFPSink(out)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4500, limits[1]))
        try:
            with pytest.raises(OSError, match="File too large"):
                unpack(source, sink, nthreads=nthreads)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert PLAIN[:4000] == (tmp_path / "a").read_bytes()


SMALL = {
    "usual": packed(b"abcd" * 50),
    "no digests, no table": packed(b"abcd" * 50, checksum="None", offsets=False),
    "room for chunks": packed(b"abcd" * 50, checksum="sha256", free_entries=3),
    "metadata": packed(b"abcd" * 50, metadata=VALUE),
    "two chunks": packed(b"abcd" * 300),
    "empty": packed(b""),
}


@pytest.mark.parametrize("name", SMALL)
def test_small_files_have_the_results_and_errors_of_others(name):
    """A small file in `bytes` is read in one step, if it can be."""

    def outcome(data):
        try:
            return bp.unpack_bytes_from_bytes(data)
        except FormatError as error:
            return type(error), str(error), error.section, error.offset, error.chunk

    data = SMALL[name]
    assert bp.unpack_bytes_from_bytes(data) == outcome(bytearray(data))
    changed = [data[:size] for size in range(len(data))] + [data + b"x", data + data]
    for i in range(len(data)):
        for value in {0, 1, 2, 3, 255, data[i] ^ 1, data[i] ^ 128} - {data[i]}:
            changed.append(data[:i] + bytes([value]) + data[i + 1 :])
    for case in changed:
        assert outcome(bytearray(case)) == outcome(case), case


def test_output_of_a_sink_with_its_own_store(tmp_path):
    """As code of users may have: it gets all plain bytes, in order."""

    class Upper(PlainFPSink):
        def store(self, plain):
            super().store(bytes(plain).upper())

    with open(tmp_path / "a", "wb") as out:
        unpack(CompressedBytesSource(packed(b"abc" * 1000)), Upper(out), nthreads=3)
    assert b"ABC" * 1000 == (tmp_path / "a").read_bytes()


class OnlySeek:
    """A file object that can seek, but has no method `seekable`."""

    def __init__(self):
        fp = io.BytesIO()
        self.write, self.seek, self.tell = fp.write, fp.seek, fp.tell
        self.getvalue = fp.getvalue


@pytest.mark.parametrize("kind", [io.BytesIO, OnlySeek])
def test_number_of_chunks_is_filled_in(kind):
    fp = kind()
    fp.write(b"front")
    pack(PlainFPSource(io.BytesIO(PLAIN)), CompressedFPSink(fp), -1, 1000, -1)
    assert len(fp.getvalue()) == fp.tell()
    expected = packed(PLAIN, bloscpack_args=BloscpackArgs(offsets=False))
    assert expected == fp.getvalue()[5:]


def test_sink_that_can_not_seek_has_no_table():
    fp = Limping()
    args = BloscpackArgs(offsets=True, max_app_chunks=5)
    pack(PlainBytesSource(PLAIN), CompressedFPSink(fp), *cut(), bloscpack_args=args)
    expected = packed(PLAIN, bloscpack_args=BloscpackArgs(offsets=False))
    assert expected == fp.getvalue()


def test_file_that_shrinks_while_it_is_read(tmp_path):
    path = tmp_path / "a.blp"
    path.write_bytes(packed(PLAIN))
    with path.open("rb") as fp:
        source = CompressedFPSource(fp)
        last = 0
        for frame in bp.file_io.CompressedBytesSource(packed(PLAIN)).frames():
            last = frame.offset
        os.truncate(path, last + 40)
        with pytest.raises(FormatError, match="ends too early") as raised:
            for _ in source:
                pass
    assert ("chunks", NCHUNKS - 1, last) == (
        raised.value.section,
        raised.value.chunk,
        raised.value.offset,
    )


@pytest.mark.parametrize("sink", [PlainBytesSink(2040), JoinedBytesSink()])
def test_bytes_sink_filled_one_by_one(sink):
    chunks = [
        compress_chunk(PLAIN[:1000], BloscArgs()),
        compress_chunk(b"x" * 40, BloscArgs()),
    ]
    assert [1000, 40, 1000] == [sink.put(chunks[i]) for i in (0, 1, 0)]
    assert PLAIN[:1000] + b"x" * 40 + PLAIN[:1000] == sink.getvalue()


def test_bytes_sink_that_is_full():
    sink = PlainBytesSink(1500)
    chunk = compress_chunk(PLAIN[:1000], BloscArgs())
    sink.put(chunk)
    with pytest.raises(FormatError, match="'500' plain bytes, found '1000'"):
        sink.put(chunk)


def test_reading_of_a_file_that_gives_nothing():
    class Nothing:
        def read(self, size):
            return None

    with pytest.raises(StorageError, match="is non-blocking"):
        CompressedFPSource(Nothing())


# Names kept from 0.16


def test_new_file_of_which_the_beginning_is_taken(tmp_path):
    """The file ends behind the packed bytes, wherever these start."""
    plain = os.urandom(100_000)
    (tmp_path / "plain").write_bytes(plain)
    with open(tmp_path / "x", "w+b") as fp, open(tmp_path / "plain", "rb") as in_fp:
        fp.write(b"before")
        file_io.pack_fp_to_fp(in_fp, fp)
        assert os.path.getsize(tmp_path / "x") == fp.tell()
        fp.seek(0)
        assert b"before" == fp.read(6)
        assert (plain, None) == bp.unpack_bytes_from_bytes(fp.read())


def test_file_that_can_only_be_added_to(tmp_path):
    """Written bytes can't be overwritten, so there is no offset table."""
    with open(tmp_path / "both", "ab") as fp:
        fp.write(b"in front")
        for _ in range(2):
            pack(
                PlainBytesSource(PLAIN),
                CompressedFPSink(fp),
                *calculate_nchunks(len(PLAIN), 1000),
            )
    with open(tmp_path / "both", "rb") as fp:
        assert b"in front" == fp.read(8)
        for _ in range(2):
            source = CompressedFPSource(fp)
            assert not source.bloscpack_header.offsets
            sink = PlainBytesSink(len(PLAIN))
            unpack(source, sink)
            assert PLAIN == sink.getvalue()


def test_bytes_source_without_a_number_of_chunks():
    fp = io.BytesIO()
    pack(PlainBytesSource(PLAIN), CompressedFPSink(fp), -1, 1000, -1)
    assert (PLAIN, None) == read_back(fp.getvalue())


def test_functions_of_other_modules_of_0_16():
    assert struct.pack("<q", -5) == file_io.encode_int64(-5)
