"""Bad input: one clear error that says where, never other data, nothing left behind.

Every case starts from a valid file and changes one thing.
"""

import functools
import io
import itertools
import json
import struct
import tracemalloc
import zlib

import builders
import numpy
import pytest
from builders import layout
from fuzz import parts
from support import ShortReads

import bloscpack as bp
from bloscpack.abstract_io import compress_chunk, unpack
from bloscpack.args import BloscArgs, BloscpackArgs, MetadataArgs
from bloscpack.checksums import ALL_CHECKSUMS, CHECKSUM_NAMES
from bloscpack.exceptions import (
    ChecksumMismatch,
    FormatError,
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
    return read_stream(ShortReads(data, (7,)))


def read_stream(fp):
    source = CompressedFPSource(fp)
    sink = PlainMemorySink()
    unpack(source, sink, nthreads=1)
    return b"".join(bytes(chunk) for chunk in sink.chunks), source.metadata


def read_array(data):
    return bp.unpack_ndarray_from_bytes(data, nthreads=1)


def read_array_pipe(data):
    return unpack_ndarray(CompressedFPSource(ShortReads(data, (7,))), nthreads=1)


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


# Chunks


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


# Counts


HUGE = [
    layout(1, PLAIN_CHUNKS, nchunks=2**60),
    layout(0, PLAIN_CHUNKS, nchunks=2**32 - 1),
    plain_file(nchunks=2**60),
    plain_file(nchunks=2**60, options=1),
    plain_file(nchunks=2**63 - 1),
    plain_file(nchunks=2**63 - 1, options=1),
    plain_file(nchunks=2**31),
    plain_file(nchunks=2**31, options=1),
    plain_file(nchunks=2**33, checksum=8),
    plain_file(max_app_chunks=2**62, options=1),
    plain_file(max_app_chunks=2**32, options=1),
    plain_file(max_app_chunks=2**63 - 4, options=1),
    plain_file(nchunks=2**60, format_version=2),
    plain_file(nchunks=2**60, format_version=2, options=1),
]


@pytest.mark.parametrize("data", HUGE, ids=range(len(HUGE)))
def test_huge_counts(data):
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
    "read", [bp.unpack_bytes_from_file, bp.unpack_ndarray_from_file]
)
def test_file_that_is_missing(tmp_path, read):
    with pytest.raises(FileNotFoundError, match=r"missing\.blp"):
        read(tmp_path / "missing.blp")
