"""What 0.16 got wrong, bug by bug: each test is named by what holds now.

Tests of the modules show the rest: of bugs 2 and 20 `endpoints/test_numpy_io.py`, of
bugs 11 to 14 `operations/test_append.py`, of bug 27 `endpoints/test_conformance.py`, of
bug 29 also `cli/test_log.py` and `project/test_interface.py`.
"""

from __future__ import annotations

import gc
import io
import json
import os
import struct
import warnings
import zlib

import blosc
import numpy as np
import pytest
from builders import described, layout, packed, unpacked
from support import ShortReads, run_python

import bloscpack
from bloscpack import constants, headers
from bloscpack.abstract_io import (
    RUN_TO_COMPRESS,
    pack,
)
from bloscpack.append import append, append_fp
from bloscpack.args import BloscArgs, BloscpackArgs, MetadataArgs
from bloscpack.exceptions import (
    ChecksumLengthMismatch,
    FormatError,
    StorageError,
    UsageError,
)
from bloscpack.file_io import CompressedFPSink, CompressedFPSource, PlainFPSource
from bloscpack.memory_io import CompressedMemorySink, PlainMemorySource

PLAIN = (np.arange(2500) // 7 % 251).astype("u1").tobytes()


def blpk(folder, *arguments, **options):
    """Run the command in a folder; return exit code, output and errors."""
    code = "from bloscpack.cli import main; main()"
    done = run_python("-c", code, *arguments, cwd=folder, text=True, **options)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


# Memory safety


@pytest.mark.parametrize("nbytes", [24, 416, 2_000_000])
def test_array_is_never_written_past_its_end(nbytes):
    """Bug 1 of 0.16."""
    with pytest.raises(FormatError, match="has '16' bytes, but the chunks hold"):
        bloscpack.unpack_ndarray_from_bytes(described(bytes(nbytes)))


def test_array_that_was_appended_to_can_be_read(tmp_path):
    """Bug 1 of 0.16, as it came about: 400 bytes more than the shape told."""
    array = np.arange(100.0)
    bloscpack.pack_ndarray_to_file(array, tmp_path / "a.blp")
    (tmp_path / "new").write_bytes(np.arange(100.0, 150.0).tobytes())
    assert (0, "", "") == blpk(tmp_path, "a", "a.blp", "new")
    found = bloscpack.unpack_ndarray_from_file(tmp_path / "a.blp")
    np.testing.assert_array_equal(np.arange(150.0), found)


@pytest.mark.parametrize("nbytes", [0, 1, 15, 17])
def test_uninitialised_memory_is_never_returned(nbytes):
    """Bug 3 of 0.16."""
    with pytest.raises(FormatError, match="has '16' bytes, but the chunks hold"):
        bloscpack.unpack_ndarray_from_bytes(described(bytes(nbytes)))


@pytest.mark.parametrize("dtype", ["'|V0'", "'|S0'", "[]", "V0"])
def test_items_of_no_bytes_hold_no_data(dtype):
    """Bug 4 of 0.16."""
    with pytest.raises(FormatError):
        bloscpack.unpack_ndarray_from_bytes(described(bytes(16), dtype=dtype))


# Silent loss or change of data


@pytest.mark.parametrize("subcommand", ["c", "d"])
@pytest.mark.parametrize("other", ["a.blp", "./a.blp", "hard", "soft"])
def test_file_that_is_input_and_output_survives(subcommand, other, tmp_path):
    """Bug 5 of 0.16."""
    (tmp_path / "a.blp").write_bytes(packed(PLAIN))
    os.link(tmp_path / "a.blp", tmp_path / "hard")
    os.symlink("a.blp", tmp_path / "soft")
    code, _, errors = blpk(tmp_path, "-f", subcommand, "a.blp", other)
    assert code != 0
    assert "same file" in errors
    assert packed(PLAIN) == (tmp_path / "a.blp").read_bytes()


@pytest.mark.parametrize(
    "options",
    [
        {"blosc_args": BloscArgs(typesize=0)},
        {"blosc_args": BloscArgs(cname="none such")},
        {"bloscpack_args": BloscpackArgs(checksum="none such")},
        {"metadata": {"a": {1}}},
        {"metadata": 1, "metadata_args": MetadataArgs(magic_format=b"NONE")},
        {"metadata": "long", "metadata_args": MetadataArgs(max_meta_size=1)},
        {"chunk_size": 0},
        {"chunk_size": "1X"},
    ],
    ids=lambda options: "-".join(options),
)
def test_old_output_survives_wrong_arguments(options, tmp_path):
    """Bug 6 of 0.16."""
    (tmp_path / "in").write_bytes(PLAIN)
    (tmp_path / "a.blp").write_bytes(b"old content")
    with pytest.raises(UsageError):
        bloscpack.pack_file_to_file(tmp_path / "in", tmp_path / "a.blp", **options)
    with pytest.raises(UsageError):
        bloscpack.pack_bytes_to_file(PLAIN, tmp_path / "a.blp", **options)
    assert b"old content" == (tmp_path / "a.blp").read_bytes()
    assert {"a.blp", "in"} == {*os.listdir(tmp_path)}


@pytest.mark.skipif(not os.path.exists("/dev/stdin"), reason="needs /dev/stdin")
def test_standard_input_is_read_to_its_end(tmp_path):
    """Bug 7 of 0.16."""
    assert (0, "", "") == blpk(
        tmp_path, "c", "/dev/stdin", "a.blp", input="some text\n" * 500
    )
    assert b"some text\n" * 500 == unpacked((tmp_path / "a.blp").read_bytes())


@pytest.mark.parametrize(
    "buffer",
    [
        np.arange(1000, dtype="<f8"),
        np.arange(1000, dtype="<f8").reshape(10, 100),
        np.arange(1000, dtype="<f8")[::2],
        memoryview(np.arange(1000, dtype="<u2")),
        memoryview(bytes(range(200))).cast("I"),
        bytearray(PLAIN),
        memoryview(PLAIN)[::3],
    ],
    ids=["f8", "2-d", "sliced", "u2", "cast", "bytearray", "every third"],
)
def test_all_bytes_of_a_buffer_are_stored(buffer):
    """Bug 8 of 0.16."""
    assert memoryview(buffer).tobytes() == unpacked(packed(buffer, 256))


@pytest.mark.parametrize(
    ("version", "count"), [(1, 1), (1, 3), (2, 1), (2, 3), (3, 0), (3, 1), (3, 3)]
)
def test_file_that_does_not_tell_its_chunks_is_read_to_its_end(version, count):
    """Bug 9 of 0.16."""
    chunks = [bytes([i]) * 1000 for i in range(count)]
    assert b"".join(chunks) == unpacked(layout(version, chunks, nchunks=-1))


def test_empty_digest_is_no_digest():
    """Bug 10 of 0.16, where a source written by others yields it."""
    from bloscpack.memory_io import CompressedMemorySource, PlainMemorySink

    sink = CompressedMemorySink()
    pack(PlainMemorySource([b"plain"]), sink, 1, 5, 5)
    sink.checksums[0] = b""
    with pytest.raises(ChecksumLengthMismatch):
        bloscpack.file_io.unpack(CompressedMemorySource(sink), PlainMemorySink())


def test_input_that_shrinks_is_noticed(tmp_path):
    """Bug 15 of 0.16."""
    with pytest.raises(StorageError, match="too early"):
        pack(PlainFPSource(io.BytesIO(PLAIN)), CompressedMemorySink(), 3, 1000, 501)

    class Shrinking(PlainFPSource):
        def configure(self, *sizes):
            super().configure(*sizes)
            os.truncate(tmp_path / "in", 1500)

    for buffering in (0, -1):
        (tmp_path / "in").write_bytes(PLAIN)
        with open(tmp_path / "in", "rb", buffering) as fp:
            source, sink = Shrinking(fp), CompressedFPSink(io.BytesIO())
            with pytest.raises(StorageError, match="too early"):
                pack(source, sink, 3, 1000, 500)


@pytest.mark.parametrize(
    "file_bytes",
    [
        layout(3, [b"a" * 101, b"b" * 50], chunk_size=100, last_chunk=50),
        layout(3, [b"a" * 99, b"b" * 50], chunk_size=100, last_chunk=50),
        layout(3, [b"", b"b" * 50], chunk_size=100, last_chunk=50),
        layout(3, [b"a" * 100, b"b" * 49], chunk_size=100, last_chunk=50),
        layout(3, [b"a" * 100, b"b" * 51], chunk_size=100, last_chunk=50),
        layout(3, [b"a" * 100, b"b" * 100], chunk_size=100, last_chunk=50),
        layout(3, [b"a" * 100, b""], chunk_size=100, last_chunk=50),
        layout(3, [b"a" * 100, b"b"], chunk_size=100, last_chunk=50, nchunks=1),
        layout(3, [b"a" * 50, b"b" * 100], chunk_size=100, nchunks=-1),
        layout(3, [b"a" * 100, b"b" * 50], last_chunk=51, nchunks=-1),
    ],
    ids=range(10),
)
def test_chunks_are_compared_with_the_header(file_bytes):
    """Bug 16 of 0.16."""
    with pytest.raises(FormatError, match="plain bytes"):
        unpacked(file_bytes)


@pytest.mark.parametrize("difference", [-1, 1, 2**31])
@pytest.mark.parametrize("codec", ["zlib", None])
def test_metadata_are_compared_with_their_header(difference, codec):
    """Bug 16 of 0.16."""
    args = MetadataArgs(meta_codec=codec)
    file_bytes = bytearray(packed(PLAIN, metadata={"a": "b" * 50}, metadata_args=args))
    (meta_size,) = struct.unpack_from("<I", file_bytes, 32 + 12)
    struct.pack_into("<I", file_bytes, 32 + 12, meta_size + difference)
    with pytest.raises(FormatError, match="header says"):
        unpacked(bytes(file_bytes))


def test_mask_is_not_lost_in_silence():
    """Bug 17 of 0.16."""
    with pytest.raises(UsageError, match="mask"):
        bloscpack.pack_ndarray_to_bytes(np.ma.array([1, 2], mask=[True, False]))


# Refusals and tracebacks


@pytest.mark.parametrize(
    ("where", "value", "code", "message"),
    [
        (4, 9, 1, "format version of file was not '3' as expected, but '9'"),
        (-10, 255, 3, "Checksum mismatch detected in chunk"),
        (32 + 32, 255, 3, "Checksum mismatch detected in metadata"),
        (0, 0, 1, "the magic marker b'blpk' is missing"),
    ],
)
def test_command_tells_what_is_wrong_with_a_file(where, value, code, message, tmp_path):
    """Bug 18 of 0.16: AttributeErrors, and bug 19: nothing half done is left."""
    file_bytes = bytearray(packed(PLAIN, metadata={"a": "b" * 50}))
    assert value != file_bytes[where]
    file_bytes[where] = value
    (tmp_path / "a.blp").write_bytes(file_bytes)
    found, output, errors = blpk(tmp_path, "d", "a.blp", "out")
    assert (code, "") == (found, output)
    assert errors.startswith("blpk: error: ")
    assert message in errors
    assert ["a.blp"] == os.listdir(tmp_path)


def test_command_tells_that_the_metadata_file_is_missing(tmp_path):
    """Bug 18 of 0.16."""
    (tmp_path / "in").write_bytes(PLAIN)
    code, output, errors = blpk(tmp_path, "c", "-m", "none", "in")
    assert (1, "") == (code, output)
    assert "'none' does not exist" in errors
    assert ["in"] == os.listdir(tmp_path)


@pytest.mark.parametrize("old", [b"", b"a", b"a few bytes"])
def test_small_files_can_be_appended_to(old):
    """Bug 21 of 0.16."""
    fp = io.BytesIO(bloscpack.pack_bytes_to_bytes(old))
    for _ in range(50):
        append_fp(fp, io.BytesIO(PLAIN), len(PLAIN))
    assert old + 50 * PLAIN == unpacked(fp.getvalue())
    assert 1 == headers.decode_header(fp.getvalue()[:32]).nchunks


@pytest.mark.parametrize(
    ("old", "new"),
    [(None, {"a": 2}), ({"a": 1}, {"a": 1}), ({"a": 1}, {"a": list(range(999))})],
)
def test_command_refuses_metadata_before_it_appends(old, new, tmp_path):
    """Bug 22 of 0.16."""
    (tmp_path / "a.blp").write_bytes(packed(PLAIN, metadata=old))
    (tmp_path / "new").write_bytes(PLAIN)
    (tmp_path / "meta").write_text(json.dumps(new))
    code, _, errors = blpk(tmp_path, "a", "--no-grow", "-m", "meta", "a.blp", "new")
    assert code != 0
    assert errors.startswith("blpk: error: ")
    assert packed(PLAIN, metadata=old) == (tmp_path / "a.blp").read_bytes()


def test_command_appends_with_the_typesize_of_the_file(tmp_path):
    """Bug 23 of 0.16."""
    original = packed(PLAIN, blosc_args=BloscArgs(typesize=4))
    (tmp_path / "a.blp").write_bytes(original)
    (tmp_path / "new").write_bytes(PLAIN)
    assert (0, "", "") == blpk(tmp_path, "a", "a.blp", "new")
    file_bytes = (tmp_path / "a.blp").read_bytes()
    offsets = struct.unpack_from("<5q", file_bytes, 32)
    assert [4] * 5 == [file_bytes[offset + 3] for offset in offsets]


def with_metadata(text, **fields):
    """Return a file whose metadata section holds `text`."""
    section = {"name": b"JSON", "options": 0, "checksum": 1, "codec": 0, "level": 0}
    section.update({"size": len(text), "room": len(text), "stored": len(text)})
    section.update(fields)
    head = struct.pack("<4sBBBBiiqq", b"blpk", 3, 2, 0, 8, 5, 5, 1, 0)
    head += struct.pack("<8sBBBBIII8s", *section.values(), bytes(8))
    digest = zlib.adler32(text).to_bytes(4, "little")
    return head + text + digest + blosc.compress(b"plain", typesize=8)


def with_chunk(where, value, layout_="<B"):
    file_bytes = bytearray(layout(3, [b"plain"], chunk_size=5, last_chunk=5))
    struct.pack_into(layout_, file_bytes, 32 + where, value)
    return bytes(file_bytes)


WRONG = {
    "name of the metadata format": with_metadata(b"{}", name=b"NONE"),
    "number of the metadata checksum": with_metadata(b"{}", checksum=9),
    "number of the metadata codec": with_metadata(b"{}", codec=2),
    "level": with_metadata(b"{}", level=10),
    "no JSON": with_metadata(b"{"),
    "no UTF-8": with_metadata(b'"\xff"'),
    "deep JSON": with_metadata(b"[" * 100_000),
    "no zlib": with_metadata(b"{}", codec=1),
    "metadata beyond the end": with_metadata(b"{}", stored=2**31, room=2**31),
    "room beyond the end": with_metadata(b"{}", room=2**32 - 1),
    "less room than metadata": with_metadata(b"{}", room=1),
    "number of the checksum": b"blpk\3\0\x09\x08" + packed(PLAIN)[8:],
    "options": b"blpk\3\x80\1\x08" + packed(PLAIN)[8:],
    "nchunks": packed(PLAIN)[:16] + struct.pack("<q", 2**60) + packed(PLAIN)[24:],
    "negative nchunks": packed(PLAIN)[:16] + struct.pack("<q", -2) + packed(PLAIN)[24:],
    "max_app_chunks": packed(PLAIN)[:24]
    + struct.pack("<q", 2**60)
    + packed(PLAIN)[32:],
    "sum over 2**63": packed(PLAIN)[:24]
    + struct.pack("<q", 2**63 - 1)
    + packed(PLAIN)[32:],
    "chunk_size": packed(PLAIN)[:8] + struct.pack("<i", -2) + packed(PLAIN)[12:],
    "short chunk header": layout(3, [], nchunks=1) + b"\2\1",
    "chunk of 2 GiB": with_chunk(4, 2**31, "<I"),
    "chunk of almost 2 GiB": with_chunk(4, 2**31 - 17, "<I"),
    "chunk beyond the end": with_chunk(12, 2**31 - 1, "<I"),
    "chunk of no bytes": with_chunk(12, 0, "<I"),
    "typesize of the chunk": with_chunk(3, 0),
    "codec of the chunk": with_chunk(2, 7 << 5),
    "version of the chunk": with_chunk(0, 9),
    "blocksize of the chunk": with_chunk(8, 0, "<I"),
    "empty": b"",
    "short": b"blpk",
}


@pytest.mark.parametrize("file_bytes", WRONG.values(), ids=WRONG)
def test_wrong_bytes_are_one_kind_of_error(file_bytes):
    """Bug 24 of 0.16."""
    with pytest.raises(FormatError) as caught:
        unpacked(file_bytes)
    assert caught.value.section in ("header", "metadata", "offsets", "chunks")
    with pytest.raises(FormatError):
        list(CompressedFPSource(ShortReads(file_bytes)))


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_every_layout_is_read(version):
    """Bug 25 of 0.16."""
    chunks = [b"a" * 1000, b"b" * 1000, b"c" * 700]
    assert b"".join(chunks) == unpacked(layout(version, chunks))


@pytest.mark.parametrize("sizes", [(0, 30), (14, 15)])
def test_long_last_chunk_of_layout_2_is_read(sizes):
    """Bug 25 of 0.16."""
    chunk_size, last_chunk = sizes
    chunks = [b"a" * chunk_size] * (chunk_size > 0) + [b"b" * last_chunk]
    file_bytes = layout(2, chunks, chunk_size=chunk_size, last_chunk=last_chunk)
    assert b"".join(chunks) == unpacked(file_bytes)


def test_array_file_is_closed(tmp_path):
    """Bug 26 of 0.16."""
    bloscpack.pack_ndarray_to_file(np.zeros(3), tmp_path / "a.blp")
    (tmp_path / "b.blp").write_bytes(packed(PLAIN))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bloscpack.unpack_ndarray_from_file(tmp_path / "a.blp")
        with pytest.raises(FormatError):
            bloscpack.unpack_ndarray_from_file(tmp_path / "b.blp")
        gc.collect()
    descriptors = "/proc/self/fd"
    if os.path.isdir(descriptors):
        links = [os.path.join(descriptors, name) for name in os.listdir(descriptors)]
        targets = [os.readlink(link) for link in links if os.path.exists(link)]
        assert [] == [name for name in targets if name.startswith(str(tmp_path))]


def test_room_of_the_metadata_is_written_at_once():
    """Bug 30 of 0.16."""

    class Counting(io.BytesIO):
        writes = 0

        def write(self, data):
            self.writes += 1
            return super().write(data)

    fp = Counting()
    args = MetadataArgs(max_meta_size=10**6)
    source = PlainMemorySource([b"plain"])
    pack(source, CompressedFPSink(fp), 1, 5, 5, metadata=[1], metadata_args=args)
    assert len(fp.getvalue()) > 10**6
    assert fp.writes < 20


@pytest.mark.parametrize("nthreads", [1, 4])
def test_chunks_are_not_gathered_in_memory(nthreads):
    """Bug 30 of 0.16."""
    ahead = []
    chunk = bytes(RUN_TO_COMPRESS)  # smaller ones go together
    size = len(chunk)

    def chunks():
        for i in range(100):
            ahead.append(i - len(sink.offset_storage))
            yield chunk

    sink = CompressedFPSink(io.BytesIO())
    pack(PlainMemorySource(chunks()), sink, 100, size, size, nthreads=nthreads)
    assert max(ahead) <= 4 * nthreads


def test_number_of_chunks_takes_no_memory():
    """Bug 30 of 0.16: one entry per chunk, before the first was read."""
    source = PlainFPSource(io.BytesIO(b"ab"))
    source.configure(1, 1, 2**60)
    chunks = iter(source)
    assert [b"a", b"b"] == [bytes(next(chunks)), bytes(next(chunks))]


@pytest.mark.parametrize("codec", sorted({*range(8)} - {*constants.CNAME_MAPPING}))
def test_info_of_an_unknown_codec_prints_nothing_half(codec, tmp_path):
    """Bug 31 of 0.16."""
    (tmp_path / "a.blp").write_bytes(with_chunk(2, codec << 5))
    code, output, errors = blpk(tmp_path, "i", "a.blp")
    assert (3, "") == (code, output)
    assert "codec number" in errors


def test_info_reads_the_header_of_the_first_chunk_alone(tmp_path):
    """Bug 31 of 0.16: a chunk of a gigabyte, of which only the header is there."""
    size = 2**30
    with open(tmp_path / "a.blp", "wb") as fp:
        fp.write(struct.pack("<4sBBBBiiqq", b"blpk", 3, 0, 0, 8, size, size, 1, 0))
        fp.write(struct.pack("<BBBBIII", 2, 1, 2, 8, size, size, size + 16))
        fp.truncate(32 + 16 + size)
    limit = "import resource as r; r.setrlimit(r.RLIMIT_DATA, (2**28, 2**28)); "
    code = limit + "from bloscpack.cli import main; main(['info', 'a.blp'])"
    done = run_python("-c", code, cwd=tmp_path)
    assert 0 == done.returncode
    assert b"plain:      1.0G (1073741824 bytes)" in done.stdout


def test_append_of_nothing_is_no_error(tmp_path):
    """A ZeroDivisionError of 0.16, from the ratio that it told."""
    (tmp_path / "a.blp").write_bytes(packed(PLAIN))
    (tmp_path / "new").write_bytes(b"")
    append(tmp_path / "a.blp", tmp_path / "new")
    assert packed(PLAIN) == (tmp_path / "a.blp").read_bytes()
