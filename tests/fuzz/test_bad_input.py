"""Bad input: one clear error that says where, never other data, nothing left behind.

Every case starts from a valid file and changes one thing.
"""

import functools
import gzip
import io
import itertools
import json
import struct
import sys
import time
import tracemalloc
import zlib

import builders
import numpy
import pytest
from builders import layout
from fuzz import parts

import bloscpack as bp
from bloscpack.abstract_io import compress_chunk, unpack
from bloscpack.args import BloscArgs, BloscpackArgs, Limits, MetadataArgs
from bloscpack.checksums import ALL_CHECKSUMS, CHECKSUM_NAMES
from bloscpack.exceptions import (
    ChecksumMismatch,
    FormatError,
    FormatVersionMismatch,
    NotANumpyArray,
    NotReadable,
    ObjectNumpyArrayRejection,
    Unsupported,
)
from bloscpack.file_io import CompressedFPSource
from bloscpack.memory_io import PlainMemorySink
from bloscpack.numpy_io import unpack_ndarray

# Three chunks that Blosc makes smaller, the last one shorter.
CHUNK_SIZE = 256
LAST_CHUNK = 160
PLAIN = bytes(range(8)) * 84
NCHUNKS = 3
VALUE = {"key": "value", "list": [1, 2, 3]}
# Too short for zlib to make it shorter, hence stored as it is.
TEXT = json.dumps(VALUE, separators=(",", ":")).encode()
STORED = len(TEXT)
ROOM_AT = 64 + STORED
ADLER32 = 1
PLAIN_CHUNKS = [PLAIN[:256], PLAIN[256:512], PLAIN[512:]]

packed = functools.partial(
    builders.packed,
    PLAIN,
    CHUNK_SIZE,
    free_entries=2,
    metadata_room=lambda size: size + 8,
)


# Making files


def chunks_of(plain, chunk_size=CHUNK_SIZE):
    """Return `plain` cut and compressed."""
    return [
        compress_chunk(plain[start : start + chunk_size], BloscArgs())
        for start in range(0, len(plain), chunk_size)
    ]


def header(**changes):
    """Return the header of PLAIN in layout 3 with some fields changed, unchecked."""
    fields = {
        "magic": b"blpk",
        "format_version": 3,
        "options": 0,
        "checksum": ADLER32,
        "typesize": 8,
        "chunk_size": CHUNK_SIZE,
        "last_chunk": LAST_CHUNK,
        "nchunks": NCHUNKS,
        "max_app_chunks": 0,
        **changes,
    }
    return struct.pack("<4sBBBBiiqq", *fields.values())


def frames(chunks, checksum=ADLER32):
    """Return chunks with their digests."""
    return b"".join(chunk + ALL_CHECKSUMS[checksum](chunk) for chunk in chunks)


def metadata_section(stored, room=None, digest=None, **changes):
    """Return a metadata section, its header unchecked; `stored` is not compressed."""
    room = len(stored) if room is None else room
    fields = {
        "magic_format": b"JSON",
        "meta_options": 0,
        "meta_checksum": ADLER32,
        "meta_codec": 0,
        "meta_level": 6,
        "meta_size": len(stored),
        "max_meta_size": room,
        "meta_comp_size": len(stored),
        "user_codec": b"",
        **changes,
    }
    digest = ALL_CHECKSUMS[ADLER32](stored) if digest is None else digest
    raw = struct.pack("<8sBBBBIII8s", *fields.values())
    return raw + stored.ljust(room, b"\0") + digest


def plain_file(**changes):
    """Return PLAIN in layout 3, without offsets and metadata, its header changed."""
    return header(**changes) + frames(chunks_of(PLAIN))


def with_metadata(section):
    """Return PLAIN in layout 3 with a metadata section."""
    return header(options=2) + section + frames(chunks_of(PLAIN))


def described_plain(dtype="'|u1'", shape=(672,), **changes):
    """Return PLAIN as an array with any metadata."""
    metadata = {"dtype": dtype, "shape": shape, "order": "C", "container": "numpy"}
    return with_metadata(metadata_section(json.dumps({**metadata, **changes}).encode()))


FILES = {
    "defaults": packed(),
    "no offsets": packed(offsets=False),
    "metadata": packed(metadata=VALUE),
    "metadata, no offsets": packed(metadata=VALUE, offsets=False),
    **{name: packed(checksum=name) for name in CHECKSUM_NAMES},
    "no checksums at all": packed(checksum="None", offsets=False),
    "array": bp.pack_ndarray_to_bytes(numpy.frombuffer(PLAIN, "<i4"), CHUNK_SIZE),
    "array in one chunk": bp.pack_ndarray_to_bytes(numpy.arange(3)),
    "empty": bp.pack_bytes_to_bytes(b""),
    "layout 2": header(format_version=2, max_app_chunks=0) + frames(chunks_of(PLAIN)),
    "layout 2, offsets": header(format_version=2, options=1)
    + bytes(8 * NCHUNKS)
    + frames(chunks_of(PLAIN)),
    "layout 1": layout(1, PLAIN_CHUNKS),
    "layout 0": layout(0, PLAIN_CHUNKS),
}


# Reading them


class Pipe:
    """A file object that can only be read, a few bytes at a time."""

    def __init__(self, data, most=7):
        self._fp = io.BytesIO(data)
        self._most = most

    def read(self, size):
        return self._fp.read(min(size, self._most))


@pytest.fixture
def read_file(tmp_path):
    """Return a function that unpacks a file with some content into another."""

    def read(data):
        (tmp_path / "in.blp").write_bytes(data)
        metadata = bp.unpack_file_from_file(tmp_path / "in.blp", tmp_path / "out")
        return (tmp_path / "out").read_bytes(), metadata

    return read


def read_bytes(data):
    return bp.unpack_bytes_from_bytes(data, nthreads=1)


def read_threaded(data):
    return bp.unpack_bytes_from_bytes(data, nthreads=2)


def read_file_object(data):
    return read_stream(io.BytesIO(data))


def read_pipe(data):
    return read_stream(Pipe(data))


def read_stream(fp):
    source = CompressedFPSource(fp)
    sink = PlainMemorySink()
    unpack(source, sink, nthreads=1)
    return b"".join(bytes(chunk) for chunk in sink.chunks), source.metadata


def read_array(data):
    return bp.unpack_ndarray_from_bytes(data, nthreads=1)


def read_array_pipe(data):
    return unpack_ndarray(CompressedFPSource(Pipe(data)), nthreads=1)


READERS = [read_bytes, read_threaded, read_file_object, read_pipe, read_array]
PLAIN_READERS = READERS[:-1]


def error_of(reader, data):
    """Return the FormatError that reading `data` raises."""
    with pytest.raises(FormatError) as raised:
        reader(data)
    return raised.value


@pytest.mark.parametrize("name", FILES)
def test_the_blanks_are_valid(name):
    for reader in PLAIN_READERS:
        data, _ = reader(FILES[name])
        if name == "empty":
            assert b"" == data
        elif name == "array in one chunk":
            assert numpy.arange(3).tobytes() == data
        else:
            assert PLAIN == data


def test_handmade_files_are_valid():
    assert (PLAIN, None) == read_bytes(plain_file())
    assert (PLAIN, VALUE) == read_bytes(
        with_metadata(metadata_section(json.dumps(VALUE).encode()))
    )
    assert PLAIN == read_array(described_plain()).tobytes()


def test_chunks_are_compressed():
    assert len(PLAIN) > sum(map(len, chunks_of(PLAIN)))


# Files that end too early


@pytest.mark.parametrize("name", FILES)
def test_cut_anywhere(name):
    for reader in READERS:
        data = FILES[name]
        for length in range(len(data)):
            error = error_of(reader, data[:length])
            assert error.section in ("header", "metadata", "offsets", "chunks")


@pytest.mark.parametrize("name", ["defaults", "metadata", "array", "layout 1"])
def test_cut_anywhere_on_disk(tmp_path, name):
    data = FILES[name]
    path = tmp_path / "cut.blp"
    path.write_bytes(data)
    # A prime step: test_cut_anywhere has every length.
    for length in range(len(data) - 1, -1, -7):
        with path.open("r+b") as fp:
            fp.truncate(length)
        for read in (
            bp.unpack_bytes_from_file,
            bp.unpack_ndarray_from_file,
            lambda path: bp.unpack_file_from_file(path, tmp_path / "out"),
        ):
            with pytest.raises(FormatError) as raised:
                read(path)
            assert str(path) == raised.value.filename
        assert [path] == list(tmp_path.iterdir())


# Where a file is cut, and what the error then says.
@pytest.mark.parametrize(
    ("section", "message", "length"),
    [
        ("header", "header of length '0', not '32'", 0),
        ("header", "header of length '31', not '32'", 31),
        ("metadata", "expected a metadata header of '32' bytes, found '0'", 32),
        ("metadata", "expected a metadata header of '32' bytes, found '31'", 63),
        ("metadata", "expected metadata of '%d' bytes, found '0'" % STORED, 64),
        ("metadata", "expected the room behind .* '8' bytes, found '3'", ROOM_AT + 3),
        ("metadata", "expected the digest .* '4' bytes, found '1'", ROOM_AT + 9),
    ],
)
def test_cut_in_front_of_the_offsets(section, message, length):
    error = error_of(read_bytes, FILES["metadata"][:length])
    assert section == error.section
    assert error.offset is not None
    with pytest.raises(FormatError, match=message):
        raise error


@pytest.mark.parametrize(
    ("section", "message", "length"),
    [
        ("offsets", "expected an offset table of '40' bytes, found '0'", 32),
        ("offsets", "expected an offset table of '40' bytes, found '39'", 71),
        (
            "chunks",
            "expected '3' chunks, which take at least '60' bytes, found '0'",
            72,
        ),
        ("chunks", "expected a chunk of '[0-9]+' bytes, found '[0-9]+'", -5),
        ("chunks", "expected a digest of '4' bytes, found '0'", -4),
        ("chunks", "expected a digest of '4' bytes, found '3'", -1),
    ],
)
def test_cut_behind_the_header(section, message, length):
    error = error_of(read_bytes, FILES["defaults"][:length])
    assert section == error.section
    with pytest.raises(FormatError, match="the file ends too early: " + message):
        raise error


def test_cut_between_chunks_of_an_unknown_number():
    for reader in PLAIN_READERS:
        chunks = chunks_of(PLAIN)
        known_last = header(nchunks=-1, last_chunk=LAST_CHUNK)
        for count in range(NCHUNKS):
            error = error_of(reader, known_last + frames(chunks[:count]))
            assert ("chunks", max(count - 1, 0)) == (error.section, error.chunk)


# Other files


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"b",
        b"blpk",
        b"text",
        b"A text of more than 32 bytes, as one finds it in README files.\n",
        gzip.compress(PLAIN, mtime=0),
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(64),
        b"PK\3\4" + bytes(64),
        b"\x93NUMPY\1\0" + bytes(120),
        bytes(100),
        b"\xff" * 100,
        b"BLPK" + FILES["defaults"][4:],
        FILES["defaults"][1:],
        b"\n" + FILES["defaults"],
    ],
)
def test_no_bloscpack_file(data):
    for reader in READERS:
        error = error_of(reader, data)
        assert isinstance(error, NotReadable)
        assert ("header", 0) == (error.section, error.offset)


def test_unknown_version():
    for version, reader in itertools.product([*range(4, 10), 100, 255], READERS):
        error = error_of(reader, plain_file(format_version=version))
        assert isinstance(error, FormatVersionMismatch)
        assert isinstance(error, RuntimeError)
        assert "'3' as expected, but '%d'" % version in str(error)


def test_layouts_of_development_states():
    error = error_of(read_bytes, plain_file(format_version=1))
    assert isinstance(error, FormatVersionMismatch)


# The header


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        *(
            ("Element %d was non-zero" % (7 - bit), {"options": 1 << bit})
            for bit in range(3, 8)
        ),
        ("undo record", {"options": 4}),
        ("checksum number must be .*, not '255'", {"checksum": 255}),
        ("'chunk_size' must be .*, not '-2'", {"chunk_size": -2}),
        ("'chunk_size' must be .*, not '2147483647'", {"chunk_size": 2**31 - 1}),
        ("'last_chunk' must be .*, not '-2147483648'", {"last_chunk": -(2**31)}),
        ("'last_chunk' .257. is larger than 'chunk_size'", {"last_chunk": 257}),
        ("'nchunks' must be .*, not '-2'", {"nchunks": -2}),
        ("'max_app_chunks' must be .*, not '-1'", {"max_app_chunks": -1}),
        ("nchunks . max_app_chunks", {"max_app_chunks": 2**63 - 1}),
        ("can not be non '0'", {"nchunks": -1, "max_app_chunks": 1}),
    ],
)
def test_header_fields(message, changes):
    for reader in READERS:
        error = error_of(reader, plain_file(**changes))
        assert "header" == error.section
        with pytest.raises(FormatError, match=message):
            raise error


@pytest.mark.parametrize(
    ("message", "chunk", "changes"),
    [
        ("'255' plain bytes, found '256'", 0, {"chunk_size": 255}),
        ("'257' plain bytes, found '256'", 0, {"chunk_size": 257}),
        ("'2147483631' plain bytes, found '256'", 0, {"chunk_size": 2**31 - 17}),
        ("'159' plain bytes, found '160'", 2, {"last_chunk": 159}),
        ("'161' plain bytes, found '160'", 2, {"last_chunk": 161}),
        ("'0' plain bytes, found '160'", 2, {"last_chunk": 0}),
        ("'160' plain bytes, found '256'", 1, {"nchunks": 2}),
        ("'160' plain bytes, found '256'", 0, {"nchunks": 1}),
        ("'256' plain bytes, found '160'", 2, {"nchunks": 4}),
    ],
)
def test_header_and_chunks_disagree(message, chunk, changes):
    for reader in PLAIN_READERS:
        error = error_of(reader, plain_file(**changes))
        assert ("chunks", chunk) == (error.section, error.chunk)
        assert message in str(error)


def test_header_of_no_chunks_announces_bytes():
    for reader in PLAIN_READERS:
        # Without this, one flipped bit of a file with one chunk would empty it.
        assert "header" == error_of(reader, plain_file(nchunks=0)).section


def test_wrong_typesize_does_no_harm():
    for reader in PLAIN_READERS:
        assert (PLAIN, None) == reader(plain_file(typesize=0))


def test_bytes_behind_the_last_chunk_are_ignored():
    for reader in PLAIN_READERS:
        # 0.16 left some behind when it appended.
        assert (PLAIN, None) == reader(plain_file() + b"more")


# Unknown sizes


@pytest.mark.parametrize(
    "changes",
    [
        {"nchunks": -1},
        {"nchunks": -1, "chunk_size": -1},
        {"nchunks": -1, "last_chunk": -1},
        {"nchunks": -1, "chunk_size": -1, "last_chunk": -1},
        {"chunk_size": -1},
        {"last_chunk": -1},
        {"chunk_size": -1, "last_chunk": -1},
        # Where the number is unknown there is no table, announced or not.
        {"nchunks": -1, "options": 1},
    ],
)
def test_unknown_sizes_are_read_to_the_end(changes):
    for reader in PLAIN_READERS:
        assert (PLAIN, None) == reader(plain_file(**changes))


def test_unknown_number_in_layout_1():
    for reader in PLAIN_READERS:
        assert (PLAIN, None) == reader(layout(1, PLAIN_CHUNKS, nchunks=-1))


@pytest.mark.parametrize(
    ("message", "chunk", "changes", "tail"),
    [
        ("a last chunk of '159' .*, found '160'", 2, {"last_chunk": 159}, b""),
        ("'255' .* with others behind it, found '256'", 0, {"chunk_size": 255}, b""),
        ("'2000' .* with others behind it", 0, {"chunk_size": 2000}, b""),
        ("a chunk header of '16' bytes", 3, {"chunk_size": -1}, b"more"),
        ("not a Blosc chunk", 3, {"chunk_size": -1}, bytes(16)),
        ("with others behind it, found '160'", 2, {}, b"more"),
    ],
)
def test_unknown_number_of_chunks_still_checks(message, chunk, changes, tail):
    for reader in PLAIN_READERS:
        changes = {"chunk_size": CHUNK_SIZE, "last_chunk": -1, **changes}
        error = error_of(reader, plain_file(nchunks=-1, **changes) + tail)
        assert ("chunks", chunk) == (error.section, error.chunk)
        with pytest.raises(FormatError, match=message):
            raise error


def test_only_chunk_is_larger_than_a_chunk_can_be():
    for reader in PLAIN_READERS:
        raw = header(nchunks=-1, chunk_size=255, last_chunk=-1)
        error = error_of(reader, raw + frames(chunks_of(PLAIN[:CHUNK_SIZE])))
        assert "at most '255' plain bytes, found '256'" in str(error)


# Digests


@pytest.mark.parametrize("name", CHECKSUM_NAMES[1:])
def test_wrong_digest(name):
    for chunk, reader in itertools.product(range(NCHUNKS), PLAIN_READERS):
        number = CHECKSUM_NAMES.index(name)
        parts = [frames([part], number) for part in chunks_of(PLAIN)]
        start = 32 + sum(map(len, parts[:chunk]))
        parts[chunk] = parts[chunk][:-1] + bytes([parts[chunk][-1] ^ 0x80])
        error = error_of(reader, header(checksum=number) + b"".join(parts))
        assert isinstance(error, ChecksumMismatch)
        assert isinstance(error, RuntimeError)
        assert ("chunks", chunk, start) == (error.section, error.chunk, error.offset)
        assert "expected: %s, received: %s" % (
            parts[chunk][-ALL_CHECKSUMS[number].size :].hex(),
            ALL_CHECKSUMS[number](chunks_of(PLAIN)[chunk]).hex(),
        ) in str(error)


def test_wrong_digest_of_the_metadata():
    for reader in READERS:
        error = error_of(reader, with_metadata(metadata_section(b"{}", digest=b"nope")))
        assert isinstance(error, ChecksumMismatch)
        assert ("metadata", 32) == (error.section, error.offset)
        digest = ALL_CHECKSUMS[ADLER32](b"{}")
        assert "expected: 6e6f7065, received: %s" % digest.hex() in str(error)


def test_message_names_everything(tmp_path):
    path = tmp_path / "damaged.blp"
    path.write_bytes(FILES["defaults"][:-1] + b"x")
    with pytest.raises(ChecksumMismatch) as raised:
        bp.unpack_bytes_from_file(path)
    message = str(raised.value)
    assert "Checksum mismatch detected in chunk, expected: " in message
    assert "(file '%s', section 'chunks', chunk 2, byte " % path in message
    assert "\n" not in message


# Metadata


@pytest.mark.parametrize(
    ("message", "stored", "changes"),
    [
        ("no valid JSON", b"{", {}),
        ("no valid JSON", b"", {}),
        ("no valid JSON", b"\xff", {}),
        ("no valid JSON", b"[" * 10**5, {}),
        ("must be b'JSON', not b'BSON'", b"{}", {"magic_format": b"BSON"}),
        ("must be b'JSON', not b'JSON    '", b"{}", {"magic_format": b"JSON    "}),
        ("must be '00000000', not '00000001'", b"{}", {"meta_options": 1}),
        ("need the user codec b'mine'", b"{}", {"user_codec": b"mine"}),
        ("checksum number must be .*, not '255'", b"{}", {"meta_checksum": 255}),
        ("codec number must be .*, not '255'", b"{}", {"meta_codec": 255}),
        ("'meta_level' must be .*, not '10'", b"{}", {"meta_level": 10}),
        ("have '2' bytes, but their header says '1'", b"{}", {"meta_size": 1}),
        ("header says '4294967295'", b"{}", {"meta_size": 2**32 - 1}),
        ("take '2' bytes, but the room .* '1'", b"{}", {"max_meta_size": 1}),
        ("take '2' bytes, but the room .* '0'", b"{}", {"max_meta_size": 0}),
        ("ends too early", b"{}", {"max_meta_size": 2**32 - 1}),
        (
            "ends too early",
            b"{}",
            {"max_meta_size": 2**32 - 1, "meta_comp_size": 2**32 - 1},
        ),
        ("Checksum mismatch", b"{}", {"meta_comp_size": 1}),
        ("no valid zlib stream", b"{}", {"meta_codec": 1}),
        (
            "does not end where",
            zlib.compress(b"{}")[:-1],
            {"meta_codec": 1, "meta_size": 2},
        ),
        (
            "does not end where",
            zlib.compress(b"{}") + b"x",
            {"meta_codec": 1, "meta_size": 2},
        ),
    ],
)
def test_metadata(message, stored, changes):
    for reader in READERS:
        error = error_of(reader, with_metadata(metadata_section(stored, **changes)))
        assert "metadata" == error.section
        assert error.offset is not None
        with pytest.raises(FormatError, match=message):
            raise error


def peak_of(function, *args):
    """Return what the call returns and the most bytes it had allocated meanwhile."""
    tracemalloc.start()
    try:
        result = function(*args)
        return result, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_zlib_bomb():
    bomb = zlib.compress(b"[" + bytes(2**24) + b"]", 9)
    data = with_metadata(metadata_section(bomb, meta_codec=1, meta_size=2**24 + 2))
    error, peak = peak_of(error_of, read_bytes, data)
    assert "metadata" == error.section
    assert "decompress to more than" in str(error)
    assert 2**24 > peak


# Arrays


@pytest.mark.parametrize(
    "shape",
    [
        [671],
        [673],
        [0],
        [],
        [2, 337],
        [2**62],
        [2**40, 2**40],
        [2**63],
        [2**64, 2**64],
        [-672],
        [-1],
        [-2, -336],
        [672.0],
        [1.5],
        ["672"],
        [None],
        [True, 672],
        [[672]],
        671,
        -1,
        672.0,
        "672",
        None,
        True,
        {"a": 1},
        [672, *[1] * 64],
        [10**4000],
        [10**4000, 10**4000],
        [2**62] * 64,
    ],
)
@pytest.mark.parametrize("name", ["known", "unknown"])
def test_shape_that_lies(name, shape):
    data = described_plain(shape=shape)
    if name == "unknown":
        # The header says nothing, so that only the chunks tell the size.
        data = header(options=2, nchunks=-1, last_chunk=-1, chunk_size=-1) + data[32:]
    error, peak = peak_of(error_of, read_array, data)
    assert "metadata" == error.section
    assert 2000 > len(str(error))
    if name == "known":
        assert 2**24 > peak
    assert "metadata" == error_of(read_array_pipe, data).section


@pytest.mark.parametrize(
    "dtype",
    [
        "'<f8'x",
        "'<f3'",
        "nothing",
        "",
        "''",
        "'",
        "None",
        "5",
        "'<i8'",
        "'|V0'",
        "'|S0'",
        "[]",
        "[('a', '<i4')]",
        "[('a', '|u1', (2,))]",
        "[('a', '|u1', (-1,))]",
        "[('a', '|u1', (2**40,))]",
        "[('a', '|u1', (1099511627776,))]",
        "[('a', '|u1'), ('a', '|u1')]",
        "[('a',)]",
        "[('a', '|u1', (1,), 'more')]",
        "[5]",
        "{'names': ['a'], 'formats': ['|u1']}",
        "__import__('os').abort()",
        "(" * 1000,
        "[" * 10**5,
        "-" * 10**5 + "1",
        "'|S%d'" % 2**40,
        "'<f8'," * 10**6,
        5,
        None,
        True,
        [],
        {},
        [5],
        [["a"]],
        [["a", "<i4"]],
        [["", "<i4"]],
        [["", "i4," * 10**6 + "i4"]],
        [["f%d" % i, "<i4"] for i in range(10**5)],
        [[["t", "a"], "<i4"], []],
        {"names": ["a"], "formats": ["|u1"]},
    ],
)  # fmt: skip
def test_dtype_that_lies(dtype):
    error = error_of(read_array, described_plain(dtype=dtype))
    assert "metadata" == error.section
    assert 2000 > len(str(error))


@pytest.mark.parametrize(
    "dtype",
    [
        "'|O'",
        "'O'",
        "'|O8'",
        "O",
        "object",
        "'object'",
        "[('a', '|O')]",
        "[('a', '<i4'), ('b', '|O8')]",
        "[('a', [('b', '|O')])]",
        "[('a', '|O', (3,))]",
        [["a", "O"]],
        [["", "|O8"]],
    ],
)
def test_dtype_of_objects(dtype):
    error = error_of(read_array, described_plain(dtype=dtype, shape=(84,)))
    assert isinstance(error, ObjectNumpyArrayRejection)
    assert isinstance(error, RuntimeError)
    assert "metadata" == error.section


def test_order_that_does_not_exist():
    for order in ["A", "c", "", None, 0, ["C"], "CF"]:
        error = error_of(read_array, described_plain(order=order))
        assert "expected the order 'C' or 'F' in the metadata, found" in str(error)


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        [],
        "numpy",
        None,
        {"container": "pandas"},
        {"container": ["numpy"]},
        {"dtype": "'|u1'", "shape": [len(PLAIN)], "order": "C"},
    ],
)
def test_metadata_of_no_array(metadata):
    section = metadata_section(json.dumps(metadata).encode())
    error = error_of(read_array, with_metadata(section))
    assert isinstance(error, NotANumpyArray)
    assert isinstance(error, RuntimeError)


def test_file_of_no_array():
    assert isinstance(error_of(read_array, plain_file()), NotANumpyArray)


@pytest.mark.parametrize("missing", ["dtype", "shape"])
def test_array_without(missing):
    metadata = {"dtype": "'|u1'", "shape": [len(PLAIN)], "container": "numpy"}
    del metadata[missing]
    section = metadata_section(json.dumps(metadata).encode())
    error = error_of(read_array, with_metadata(section))
    assert "expected 'dtype' and 'shape'" in str(error)


# Chunks

CHUNK_FIELDS = (
    "version", "versionlz", "flags", "typesize", "nbytes", "blocksize", "ctbytes"
)  # fmt: skip


def changed_chunk(chunk, **changes):
    """Return a chunk with some header fields changed: numbers, or functions of them."""
    fields = dict(zip(CHUNK_FIELDS, struct.unpack_from("<BBBBIII", chunk), strict=True))
    for name, change in changes.items():
        fields[name] = change(fields[name]) if callable(change) else change
    return struct.pack("<BBBBIII", *fields.values()) + chunk[16:]


CHUNK_CHANGES = [
    {"version": 0},
    {"version": 1},
    {"version": 3},
    {"version": 255},
    {"versionlz": 0},
    {"versionlz": 2},
    {"versionlz": 255},
    {"flags": lambda flags: flags | 8},
    *({"flags": lambda flags, n=n: flags & 31 | n << 5} for n in (5, 6, 7)),
    {"typesize": 0},
    {"nbytes": 0},
    {"nbytes": lambda nbytes: nbytes - 1},
    {"nbytes": lambda nbytes: nbytes + 1},
    {"nbytes": 2**31 - 17},
    {"nbytes": 2**31 - 16},
    {"nbytes": 2**31},
    {"nbytes": 2**32 - 1},
    {"blocksize": 0},
    {"blocksize": lambda blocksize: blocksize + 1},
    {"blocksize": 2**31},
    {"blocksize": 2**32 - 1},
    {"ctbytes": 0},
    {"ctbytes": 15},
    {"ctbytes": 16},
    {"ctbytes": 2**31},
    {"ctbytes": 2**32 - 1},
]


@pytest.mark.parametrize("changes", CHUNK_CHANGES)
def test_chunk_header(changes):
    for chunk, checksum in itertools.product(range(NCHUNKS), [0, ADLER32]):
        # The digests are those of the changed chunks, so that only sizes can tell.
        chunks = chunks_of(PLAIN)
        chunks[chunk] = changed_chunk(chunks[chunk], **changes)
        data = header(checksum=checksum) + frames(chunks, checksum)
        for reader in PLAIN_READERS:
            error = error_of(reader, data)
            assert ("chunks", chunk) == (error.section, error.chunk)
            assert error.offset is not None


def test_ctbytes_a_little_off():
    for chunk, change in itertools.product(
        range(NCHUNKS), [-17, -16, -2, -1, 1, 2, 16]
    ):
        chunks = chunks_of(PLAIN)
        chunks[chunk] = changed_chunk(
            chunks[chunk], ctbytes=lambda n, change=change: n + change
        )
        data = header() + frames(chunks) + bytes(20)
        for reader in PLAIN_READERS:
            assert "chunks" == error_of(reader, data).section


@pytest.mark.parametrize("position", range(16))
@pytest.mark.parametrize("plain", [PLAIN[:CHUNK_SIZE], bytes(range(100))])
def test_chunk_header_of_any_value(plain, position):
    """No byte of a chunk header makes anything but data or a FormatError."""
    chunk = compress_chunk(plain, BloscArgs())
    raw = header(checksum=0, chunk_size=-1, last_chunk=-1, nchunks=1)
    outcomes = {"data": 0, "error": 0}
    for value in range(256):
        changed = chunk[:position] + bytes([value]) + chunk[position + 1 :]
        try:
            data, _ = read_bytes(raw + changed)
        except FormatError as error:
            outcomes["error"] += error.section == "chunks"
        else:
            # Without a digest nobody knows the filter; the length is known.
            assert struct.unpack_from("<I", changed, 4)[0] == len(data)
            outcomes["data"] += 1
    assert 1 <= outcomes["data"]
    assert 256 == outcomes["data"] + outcomes["error"]


def test_chunk_that_claims_much():
    """A chunk of 100 bytes that claims 2 GiB is refused."""
    nbytes = 2**31 - 17
    chunk = struct.pack("<BBBBIII", 2, 1, 1, 8, nbytes, nbytes, 100) + bytes(84)
    data = header(chunk_size=nbytes, last_chunk=nbytes, nchunks=1) + frames([chunk])
    error = error_of(read_bytes, data)
    assert ("chunks", 0) == (error.section, error.chunk)


def test_codec_that_is_not_there(monkeypatch):
    import blosc

    monkeypatch.setitem(sys.modules, "cramjam", None)
    chunk = changed_chunk(chunks_of(PLAIN)[0], flags=lambda flags: flags & 31 | 2 << 5)
    data = header(nchunks=1, last_chunk=CHUNK_SIZE) + frames([chunk])
    error = error_of(read_bytes, data)
    if "snappy" not in blosc.compressor_list():
        assert isinstance(error, Unsupported)
        assert "needs the codec 'snappy', which this Blosc lacks" in str(error)


# Counts


HUGE = [
    {"nchunks": 2**60},
    {"nchunks": 2**60, "options": 1},
    {"nchunks": 2**63 - 1},
    {"nchunks": 2**63 - 1, "options": 1},
    {"nchunks": 2**31},
    {"nchunks": 2**31, "options": 1},
    {"nchunks": 2**33, "checksum": 8},
    {"max_app_chunks": 2**62, "options": 1},
    {"max_app_chunks": 2**32, "options": 1},
    {"max_app_chunks": 2**63 - 4, "options": 1},
    {"nchunks": 2**60, "format_version": 2},
    {"nchunks": 2**60, "format_version": 2, "options": 1},
]


@pytest.mark.parametrize("changes", HUGE)
def test_huge_counts(changes):
    for reader in READERS:
        start = time.monotonic()
        _, peak = peak_of(error_of, reader, plain_file(**changes))
        assert 2**22 > peak
        assert 5 > time.monotonic() - start


@pytest.mark.parametrize(
    "data",
    [
        layout(1, PLAIN_CHUNKS, nchunks=2**60),
        layout(0, PLAIN_CHUNKS, nchunks=2**32 - 1),
    ],
)
def test_huge_counts_of_old_layouts(data):
    for reader in READERS:
        _, peak = peak_of(error_of, reader, data)
        assert 2**22 > peak


# One flipped bit

# Bits whose flip changes nothing that anybody reads; masks of bits in a byte.
TYPESIZE = {"header.typesize": 0xFF}  # the chunks say it themselves
CHUNK_SIZE_ = {"header.chunk_size": 0xFF}  # only the last chunk is there
TABLE = {"offsets": 0xFF}  # reading in order needs none
ROOM = {"metadata.room": 0xFF}  # may hold anything
LEVEL = {"metadata.level": 0x07}  # any up to 9 will do
VERSION = {"header.version": 0x01}  # 3 becomes 2, whose header means the same here
FREE = {"header.max_app_chunks": 0xFF}  # room in a table that does not exist

HEADER_SIZES = {
    "magic": 4, "version": 1, "options": 1, "checksum": 1, "typesize": 1,
    "chunk_size": 4, "last_chunk": 4, "nchunks": 8, "max_app_chunks": 8,
}  # fmt: skip


def places_of(data):
    """Return the name of each byte of a file."""
    taken = parts.take_apart(data)
    names = []
    for name, size in HEADER_SIZES.items():
        names += ["header." + name] * size
    if taken.metadata is not None:
        names += ["metadata"] * 11 + ["metadata.level"] + ["metadata"] * 20
        names += ["metadata.text"] * len(taken.stored)
        names += ["metadata.room"] * len(taken.room)
        names += ["metadata.digest"] * parts.SIZES[taken.metadata["meta_checksum"]]
    names += ["offsets"] * (8 * len(taken.offsets))
    for chunk in taken.chunks:
        names += ["chunk.header"] * 16 + ["chunk.content"] * len(chunk.rest)
        names += ["digest"] * parts.SIZES[taken.header["checksum"]]
    assert len(data) == len(names)
    return names


def flips(data):
    """Yield the name, the bit and the file for every bit that can flip."""
    for position, name in enumerate(places_of(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            yield name, 1 << bit, bytes(flipped)


def harmless_bits(data, read, expected):
    """Return the bits whose flips change nothing; any other flip is an error."""
    masks = {}
    for name, bit, flipped in flips(data):
        try:
            result = read(flipped)
        except FormatError:
            continue
        assert expected == result, (name, bit)
        masks[name] = masks.get(name, 0) | bit
    return masks


@pytest.mark.parametrize(
    ("name", "expected", "settings"),
    [
        ("adler32", TYPESIZE | TABLE, {}),
        ("adler32", TYPESIZE | VERSION | FREE, {"offsets": False}),
        (
            "adler32",
            TYPESIZE | ROOM | LEVEL | FREE,
            {"offsets": False, "metadata": VALUE},
        ),
        *(
            (
                name,
                TYPESIZE | TABLE | ROOM | LEVEL,
                {"metadata": VALUE, "meta_checksum": name},
            )
            # Four bytes and many; test_wrong_digest has them all.
            for name in ("crc32", "sha512")
        ),
    ],
)
def test_flipped_bits(name, expected, settings):
    data = packed(checksum=name, **settings)
    found = harmless_bits(data, read_bytes, (PLAIN, settings.get("metadata")))
    assert expected == found


# What flips may do where nothing has a digest: the chunks are as long as before, and
# either Blosc stumbles, or the plain bytes are others. Some bits are then harmless too.
UNPROTECTED = {"chunk.header", "chunk.content", "metadata.text"}


def test_flipped_bits_without_digests():
    data = packed(checksum="None", metadata=VALUE, meta_checksum="None", offsets=False)
    outcomes = dict.fromkeys(("same", "other", "error"), 0)
    harmless = {}
    for name, bit, flipped in flips(data):
        try:
            plain, value = read_bytes(flipped)
        except FormatError:
            outcomes["error"] += 1
            continue
        assert len(PLAIN) == len(plain)
        if name not in UNPROTECTED:
            assert (PLAIN, VALUE) == (plain, value)
            harmless[name] = harmless.get(name, 0) | bit
        outcomes["same" if (PLAIN, VALUE) == (plain, value) else "other"] += 1
    assert TYPESIZE | LEVEL | ROOM | FREE == harmless
    assert all(outcomes.values())


def test_flipped_bits_in_a_file_of_one_chunk():
    data = bp.pack_bytes_to_bytes(PLAIN, bloscpack_args=BloscpackArgs(max_app_chunks=1))
    # The checksum may turn into none: nothing follows that would be out of place.
    expected = TYPESIZE | CHUNK_SIZE_ | TABLE | {"header.checksum": 0x01}
    assert expected == harmless_bits(data, read_bytes, (PLAIN, None))


def read_array_as_list(data):
    array = read_array(data)
    return array.dtype, array.tolist()


def test_flipped_bits_in_an_array():
    array = numpy.frombuffer(PLAIN, "<i4").reshape(2, -1)
    data = bp.pack_ndarray_to_bytes(
        array,
        CHUNK_SIZE,
        bloscpack_args=BloscpackArgs(max_app_chunks=1),
        metadata_args=MetadataArgs(max_meta_size=lambda size: size + 3),
    )
    assert TYPESIZE | TABLE | ROOM | LEVEL == harmless_bits(
        data, read_array_as_list, (array.dtype, array.tolist())
    )


# What a file may ask for


def test_limits_by_default():
    limits = Limits()
    assert limits.check() is None
    assert limits.check_nbytes(2**62) is None
    assert 16 * 2**20 == limits.effective_metadata(0)
    assert 32 * 10**6 == limits.effective_metadata(10**6)


@pytest.mark.parametrize(
    ("error", "settings"),
    [
        (bp.UsageError, {"nbytes": -1}),
        (bp.UsageError, {"metadata": -1}),
        (bp.UsageError, {"metadata": lambda stored: -stored - 1}),
        (TypeError, {"nbytes": 1.5}),
        (TypeError, {"nbytes": "1M"}),
        (TypeError, {"metadata": None}),
    ],
)
def test_limits_that_can_not_be(error, settings):
    with pytest.raises(error, match=r"'(nbytes|metadata)' must be"):
        Limits(**settings).check()


def test_limit_of_plain_bytes():
    limits = Limits(nbytes=100)
    assert limits.check_nbytes(100) is None
    with pytest.raises(Unsupported, match=r"'101' plain bytes or more, .* is '100'"):
        limits.check_nbytes(101)


@pytest.mark.parametrize(
    ("expected", "metadata"), [(5, 5), (0, 0), (20, lambda stored: 2 * stored)]
)
def test_limit_of_metadata(expected, metadata):
    assert expected == Limits(metadata).effective_metadata(10)


# Nothing is left behind

BAD_FILES = {
    "empty": b"",
    "text": b"This is no file of ours, but long enough to be one.",
    "cut in the header": FILES["defaults"][:20],
    "cut in the last chunk": FILES["defaults"][:-6],
    "cut in the digest": FILES["defaults"][:-1],
    "wrong digest": FILES["defaults"][:-1] + b"x",
    "other version": plain_file(format_version=4),
    "metadata": with_metadata(metadata_section(b"{")),
    "sizes": plain_file(last_chunk=161),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_no_output_is_left(tmp_path, read_file, name):
    with pytest.raises(FormatError) as raised:
        read_file(BAD_FILES[name])
    assert [tmp_path / "in.blp"] == list(tmp_path.iterdir())
    assert "file '%s', section '" % (tmp_path / "in.blp") in str(raised.value)


@pytest.mark.parametrize("name", BAD_FILES)
def test_old_output_stays(tmp_path, read_file, name):
    out = tmp_path / "out"
    out.write_bytes(b"old")
    out.chmod(0o640)
    before = out.stat()
    with pytest.raises(FormatError):
        read_file(BAD_FILES[name])
    assert b"old" == out.read_bytes()
    after = out.stat()
    assert (before.st_ino, before.st_mode, before.st_mtime_ns) == (
        after.st_ino,
        after.st_mode,
        after.st_mtime_ns,
    )
    assert {"in.blp", "out"} == {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize(
    "arguments",
    [
        {"chunk_size": 0},
        {"chunk_size": "1X"},
        {"metadata": object()},
        {"metadata": [1], "metadata_args": MetadataArgs(max_meta_size=0)},
        {"metadata": [1], "metadata_args": MetadataArgs(meta_codec="lzma")},
        {"blosc_args": BloscArgs(typesize=0)},
        {"blosc_args": BloscArgs(cname="lzma")},
        {"bloscpack_args": BloscpackArgs(checksum="crc64")},
        {"bloscpack_args": BloscpackArgs(max_app_chunks=-1)},
    ],
)
def test_packing_with_bad_arguments_leaves_the_output(tmp_path, arguments):
    source, out = tmp_path / "in", tmp_path / "out.blp"
    source.write_bytes(PLAIN)
    out.write_bytes(b"old")
    for pack in (
        lambda: bp.pack_file_to_file(source, out, **arguments),
        lambda: bp.pack_bytes_to_file(PLAIN, out, **arguments),
    ):
        with pytest.raises(bp.UsageError):
            pack()
    assert b"old" == out.read_bytes()
    assert {"in", "out.blp"} == {path.name for path in tmp_path.iterdir()}


def test_packing_objects_leaves_the_output(tmp_path):
    out = tmp_path / "out.blp"
    out.write_bytes(b"old")
    with pytest.raises(ObjectNumpyArrayRejection):
        bp.pack_ndarray_to_file(numpy.array([object()]), out)
    assert b"old" == out.read_bytes()
    assert [out] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "read", [bp.unpack_bytes_from_file, bp.unpack_ndarray_from_file]
)
def test_file_that_is_missing(tmp_path, read):
    with pytest.raises(FileNotFoundError, match=r"missing\.blp"):
        read(tmp_path / "missing.blp")


@pytest.mark.parametrize("value", ["text", None, 5])
def test_what_is_no_buffer(value):
    with pytest.raises(TypeError):
        bp.unpack_bytes_from_bytes(value)
