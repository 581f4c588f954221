"""Bytes behind the last chunk: none, old bytes, another file, or a lost chunk."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import struct
import sys
import threading

import numpy
import pytest
from builders import layout, packed
from support import BLP, ShortReads, run_blpk, run_command

import bloscpack as bp
import bloscpack.append
import bloscpack.file_io
from bloscpack import npy_io
from bloscpack.exceptions import FormatError
from bloscpack.file_io import CompressedFPSource, unpack_fp_to_fp
from bloscpack.headers import HEADER_V2_V3
from bloscpack.reader import Reader
from bloscpack.verify import verify

ITEMS = numpy.arange(12, dtype="<i4")
CHUNK_SIZE = 16
NCHUNKS = 3
CHECKSUMS = ("None", "adler32", "sha512")


@functools.cache
def complete(checksum: str, offsets: bool) -> bytes:
    """Return an array file of three full chunks."""
    args = bp.BloscpackArgs(offsets, checksum, max_app_chunks=0)
    return bp.pack_ndarray_to_bytes(ITEMS, CHUNK_SIZE, bloscpack_args=args)


def with_count(data: bytes, nchunks: int, last_chunk: int = CHUNK_SIZE) -> bytes:
    """Return the file with another number of chunks in its header.

    The offset table keeps its size: its last entries become free entries.
    """
    fields = list(HEADER_V2_V3.unpack_from(data))
    offsets = fields[2] & 1
    fields[6] = last_chunk
    fields[8] = (fields[7] - nchunks) if offsets else 0
    fields[7] = nchunks
    return HEADER_V2_V3.pack(*fields) + data[HEADER_V2_V3.size :]


@functools.cache
def shortened(checksum: str, offsets: bool, nchunks: int) -> bytes:
    """Return the file with fewer chunks in its header, and the shape that fits."""
    fp = io.BytesIO(with_count(complete(checksum, offsets), nchunks))
    metadata = bp.unpack_bytes_from_bytes(complete(checksum, offsets))[1]
    metadata["shape"] = [nchunks * CHUNK_SIZE // ITEMS.itemsize]
    bp.append.rewrite_metadata_fp(fp, metadata)
    return fp.getvalue()


def read_storage(path) -> bytes:
    with open(path, "rb") as fp:
        reader = Reader(fp)
        return reader.read(0, None)


def read_pipe(path) -> None:
    """Unpack a named pipe."""
    pipe = path.with_name("pipe")
    os.mkfifo(pipe)

    def feed() -> None:
        with contextlib.suppress(BrokenPipeError):
            pipe.write_bytes(path.read_bytes())

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        bp.unpack_bytes_from_file(pipe)
    finally:
        thread.join()
        pipe.unlink()


def copy_out(path) -> None:
    with open(path, "rb") as fp:
        unpack_fp_to_fp(fp, io.BytesIO())


def append_something(path) -> None:
    new = path.with_name("new")
    new.write_bytes(b"more")
    try:
        bp.append.append(path, new)
    finally:
        new.unlink()


READERS = {
    "bytes": lambda path: bp.unpack_bytes_from_bytes(path.read_bytes()),
    "view": lambda path: bp.unpack_bytes_from_bytes(bytearray(path.read_bytes())),
    "file": bp.unpack_bytes_from_file,
    "file to file": lambda path: bp.unpack_file_from_file(path, path.with_name("out")),
    "file object": copy_out,
    "source": lambda path: list(CompressedFPSource(io.BytesIO(path.read_bytes()))),
    "pipe": read_pipe,
    "reader": read_storage,
    "append": append_something,
}
ARRAY_READERS = {
    "array": bp.unpack_ndarray_from_file,
    "array in bytes": lambda path: bp.unpack_ndarray_from_bytes(path.read_bytes()),
    "npy": lambda path: npy_io.unpack_npy_from_file(path, path.with_name("out.npy")),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.blp"


@pytest.fixture
def pipe(tmp_path):
    """Return the two ends of a pipe as file objects."""
    ends = os.pipe()
    with open(ends[0], "rb") as reading, open(ends[1], "wb") as writing:
        yield reading, writing


def refused(path, read, **expected) -> FormatError:
    """Check that a reader refuses a file, and changes no file."""
    before = {p.name: p.read_bytes() for p in path.parent.iterdir()}
    with pytest.raises(FormatError) as raised:
        read(path)
    assert before == {p.name: p.read_bytes() for p in path.parent.iterdir()}
    found = {name: getattr(raised.value, name) for name in expected}
    assert expected == found
    return raised.value


def end_of_chunk(data: bytes, number: int) -> int:
    """Return where the frame of a chunk ends, found from the whole file."""
    source = bp.file_io.CompressedBytesSource(data)
    frame = list(source.frames())[number]
    return frame.offset + frame.header.ctbytes + source.checksum_impl.size


# A chunk that the header does not count


@pytest.mark.parametrize("nchunks", [1, 2])
@pytest.mark.parametrize("offsets", [False, True])
@pytest.mark.parametrize("checksum", CHECKSUMS)
@pytest.mark.parametrize("reader", [*READERS, *ARRAY_READERS])
def test_chunk_behind_the_last_one(path, reader, checksum, offsets, nchunks):
    path.write_bytes(shortened(checksum, offsets, nchunks))
    if reader == "append" and not offsets:
        return  # it refuses every file without offset table
    expected = {"section": "chunks", "chunk": nchunks}
    at = end_of_chunk(complete(checksum, offsets), nchunks - 1)
    refused(path, {**READERS, **ARRAY_READERS}[reader], **expected, offset=at)
    assert not verify(path).ok


@pytest.mark.parametrize("version", [0, 1, 2])
def test_chunk_behind_the_last_one_in_older_layouts(path, version):
    sizes = {"chunk_size": 8, "last_chunk": 8} if version == 2 else {}
    path.write_bytes(layout(version, [b"a" * 8] * 3, nchunks=2, **sizes))
    for name in ("bytes", "file", "pipe", "reader"):
        refused(path, READERS[name], section="chunks", chunk=2)
    assert not verify(path).ok


@pytest.mark.parametrize(
    "change",
    [
        lambda data, end: data[:-1],  # the digest is cut
        lambda data, end: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data, end: data[: end + 15],  # no complete chunk header
        lambda data, end: data[: end + 1] + b"\2" + data[end + 2 :],  # its version
    ],
)
def test_incomplete_frame_behind_the_last_chunk_is_ignored(path, change):
    end = end_of_chunk(complete("adler32", False), 1)
    path.write_bytes(change(shortened("adler32", False, 2), end))
    expected = ITEMS.tobytes()[: 2 * CHUNK_SIZE]
    for name in ("bytes", "file"):
        assert expected == READERS[name](path)[0]
    assert expected == read_storage(path)
    read_pipe(path)
    report = verify(path)
    assert (True, ["trailing"]) == (report.ok, [f.kind for f in report.findings])


def test_without_digests_blosc_decides(path):
    data = bytearray(shortened("None", False, 2))
    data[-16] ^= 1  # a chunk stored as a copy: any bytes are right
    path.write_bytes(data)
    refused(path, READERS["bytes"], chunk=2)
    # A chunk that claims to be compressed, and is not.
    end = end_of_chunk(complete("None", False), 1)
    data[end + 2] &= ~2
    path.write_bytes(data)
    assert 2 * CHUNK_SIZE == len(READERS["bytes"](path)[0])


def test_leftovers_of_release_0_16_stay_readable():
    path = BLP / "v3/H-leftover-tail-long.blp"
    expected = READERS["bytes"](path)
    assert expected == READERS["file"](path)
    assert expected[0] == read_storage(path)


def test_command_refuses_a_lost_chunk(path):
    path.write_bytes(shortened("adler32", False, 2))
    plain = path.with_name("plain")
    blpk = [sys.executable, "-m", "bloscpack"]
    for arguments in (["cat", path], ["d", "-", "-"], ["d", path, plain]):
        done = run_command(*blpk, *map(str, arguments), input=path.read_bytes())
        assert 3 == done.returncode, arguments
        assert b"chunks '2', but another chunk follows the last one" in done.stderr
        assert not plain.exists()


# No chunks


@pytest.mark.parametrize("first", [8, 12])
@pytest.mark.parametrize("reader", READERS)
def test_zeros_are_no_file_without_chunks(path, reader, first):
    data = complete("adler32", True)
    path.write_bytes(data[:first] + bytes(len(data) - first))
    refused(path, READERS[reader])
    assert not verify(path).ok


@pytest.mark.parametrize("options", [0, 1])
@pytest.mark.parametrize("reader", READERS)
def test_bytes_behind_a_file_without_chunks(path, reader, options):
    header = struct.pack("<4sBBBBiiqq", b"blpk", 3, options, 1, 8, 0, 0, 0, 0)
    path.write_bytes(header)
    if reader != "append":
        READERS[reader](path)
    assert verify(path).ok
    for behind in (b"\0", b"blp", bytes(100)):
        path.write_bytes(header + behind)
        path.with_name("out").unlink(missing_ok=True)
        refused(path, READERS[reader], section="header", offset=16)
        assert not verify(path).ok


def test_layouts_0_and_1_always_have_chunks(path):
    for version in (0, 1):
        path.write_bytes(layout(version, [b"a" * 8], nchunks=0))
        refused(path, READERS["bytes"], section="header")


# Several files, one behind the other


@pytest.mark.parametrize("offsets", [False, True])
@pytest.mark.parametrize("checksum", CHECKSUMS)
def test_a_file_object_is_left_behind_the_last_digest(checksum, offsets, pipe):
    first = complete(checksum, offsets)
    args = bp.BloscpackArgs(checksum=checksum)
    second = packed(b"second", bloscpack_args=args)
    reading, writing = pipe
    writing.write(first + second + b"rest")
    writing.close()
    for fp in (io.BytesIO(first + second + b"rest"), reading):
        for plain in (ITEMS.tobytes(), b"second"):
            out = io.BytesIO()
            unpack_fp_to_fp(fp, out)
            assert plain == out.getvalue()
        assert b"rest" == fp.read()


def test_nothing_behind_the_last_chunk_is_read_from_a_pipe(pipe):
    """The program at the other end may wait for an answer."""
    reading, writing = pipe
    for _ in range(2):
        writing.write(complete("adler32", True))
        writing.flush()
        out = io.BytesIO()
        unpack_fp_to_fp(reading, out)
        assert ITEMS.tobytes() == out.getvalue()


def test_first_bytes_behind_the_file():
    for data in (b"", b"abc", b"abcdef"):
        for fp in (
            io.BytesIO(complete("adler32", True) + data),
            ShortReads(complete("adler32", True) + data),
        ):
            found = []
            unpack_fp_to_fp(fp, io.BytesIO(), behind=found.append)
            assert [data[:4]] == found


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_command_writes_a_second_file(name):
    data = complete("adler32", True)
    done = run_blpk("d", "-e", name, "-", input=data + data)
    assert (0, ITEMS.tobytes() * 2) == (done.returncode, done.stdout)
    assert b"another packed file" not in done.stderr
