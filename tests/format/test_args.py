"""The settings of the pack functions, and how an input is cut into chunks."""

import copy
import inspect
import io
import os
import pickle
import threading
from contextlib import suppress

import numpy as np
import pytest
from builders import prose

import bloscpack as bp
from bloscpack.args import (
    BloscArgs,
    BloscpackArgs,
    Limits,
    MetadataArgs,
    calculate_nchunks,
)
from bloscpack.exceptions import (
    ChunkingException,
    FormatError,
    NoSuchChecksum,
    NoSuchCodec,
    UsageError,
    UsageTypeError,
)
from bloscpack.file_io import CompressedFPSink, PlainFPSource
from bloscpack.npy_io import pack_npy_to_file

LARGEST = 2**31 - 17
MEBI = 2**20


@pytest.mark.parametrize(
    ("expected", "size", "chunk_size"),
    [
        ((1, 0, 0), 0, 1),
        ((1, 0, 0), 0, "1M"),
        ((1, 1, 1), 1, 1),
        ((23, 1, 1), 23, 1),
        ((12, 2, 1), 23, 2),
        ((5, 5, 3), 23, 5),
        ((2, 22, 1), 23, 22),
        ((1, 23, 23), 23, 23),
        ((1, 23, 23), 23, 24),
        ((1, 23, 23), 23, "1M"),
        ((8, MEBI, MEBI), 8 * MEBI, "1M"),
        ((9, MEBI, 1), 8 * MEBI + 1, "1M"),
        ((8, MEBI, MEBI - 1), 8 * MEBI - 1, "1M"),
        ((3, 8192, 7616), 24000, "8K"),
        ((100, 1, 1), 100, "1.5B"),
        ((1, 100, 100), 100, LARGEST),
        ((1, 100, 100), 100, "max"),
        ((513, LARGEST, 8704), 2**40, "max"),
        ((2**63 - 1, 1, 1), 2**63 - 1, 1),
    ],
)
def test_calculate_nchunks(expected, size, chunk_size):
    assert expected == calculate_nchunks(size, chunk_size)
    if chunk_size == "1M":  # the default
        assert expected == calculate_nchunks(size)


@pytest.mark.parametrize(
    ("message", "size", "chunk_size"),
    [
        ("'in_file_size' must be strictly positive, not -1", -1, 1),
        *(
            (
                "'chunk_size' must be in the range 1 <= n <= 2147483631, not '%d'" % n,
                100,
                chunk_size,
            )
            for n, chunk_size in (
                (0, 0),
                (-1, -1),
                (2**31 - 16, 2**31 - 16),
                (2**31, "2G"),
                (0, "0.5B"),
                (-1, "-1B"),
            )
        ),
        (
            "'X' is not a valid prefix multiplier, use one of: 'B, K, M, G, T'",
            100,
            "1X",
        ),
    ],
)
def test_calculate_nchunks_refuses(message, size, chunk_size):
    with pytest.raises(UsageError) as raised:
        calculate_nchunks(size, chunk_size)
    assert message == str(raised.value)
    with pytest.raises(TypeError, match="'chunk_size' must be of type 'int'"):
        calculate_nchunks(100, 1.5)


# The records


@pytest.mark.parametrize(
    "record",
    [
        BloscArgs(),
        BloscArgs(typesize=1, clevel=0, shuffle=False, cname="zstd"),
        BloscArgs(typesize=255, clevel=9, shuffle=2, cname="lz4"),
        BloscArgs(shuffle=0),
        BloscArgs(shuffle=1),
    ],
)
def test_blosc_args(record):
    assert record.check() is None


@pytest.mark.parametrize(
    ("error", "message", "record"),
    [
        (UsageError, "'typesize' must be in the range 1", BloscArgs(typesize=0)),
        (UsageError, "<= n <= 255, not '256'", BloscArgs(typesize=256)),
        (UsageTypeError, "'typesize' must be of type", BloscArgs(typesize=None)),
        (UsageError, "'clevel' must be in the range 0", BloscArgs(clevel=-1)),
        (UsageError, "<= n <= 9, not '10'", BloscArgs(clevel=10)),
        (UsageTypeError, "'clevel' must be of type", BloscArgs(clevel=1.0)),
        (UsageError, "'shuffle' must be .*, not 3", BloscArgs(shuffle=3)),
        (UsageError, "'shuffle' must be .*, not 'bit'", BloscArgs(shuffle="bit")),
        (
            NoSuchCodec,
            "codec 'lzma' is not supported by .*: blosclz",
            BloscArgs(cname="lzma"),
        ),
        (NoSuchChecksum, "'crc64'", BloscpackArgs(checksum="crc64")),
    ],
)
def test_records_refuse(error, message, record):
    with pytest.raises(error, match=message):
        record.check()


# The file


@pytest.mark.parametrize(
    ("expected", "nchunks", "settings"),
    [
        (30, 3, {}),
        (0, 0, {}),
        (0, -1, {}),
        (0, 3, {"offsets": False}),
        (7, 3, {"max_app_chunks": 7}),
        (0, -1, {"max_app_chunks": 7}),
        (4, 3, {"max_app_chunks": lambda nchunks: nchunks + 1}),
    ],
)
def test_max_app_chunks(expected, nchunks, settings):
    assert expected == BloscpackArgs(**settings).effective_max_app_chunks(nchunks)


@pytest.mark.parametrize(
    ("error", "value"),
    [
        (UsageError, -1),
        (UsageError, 2**63),
        (UsageTypeError, "10"),
        (UsageTypeError, None),
        (UsageError, lambda count: -1),
        (UsageTypeError, lambda count: 1.5),
    ],
)
def test_numbers_that_are_refused(error, value):
    with pytest.raises(error, match="'max_app_chunks' must be "):
        BloscpackArgs(max_app_chunks=value).effective_max_app_chunks(3)
    with pytest.raises(error, match="'max_meta_size' must be "):
        MetadataArgs(max_meta_size=value).effective_max_meta_size(3)


# The metadata


# What is given instead

ARRAY = np.arange(10)
SETTINGS = {
    "blosc_args": BloscArgs(),
    "bloscpack_args": BloscpackArgs(),
    "metadata_args": MetadataArgs(),
}


@pytest.fixture
def names(tmp_path):
    """Return the names of a file, an array file, a .npy file and one that is free."""
    names = [str(tmp_path / name) for name in ("in", "array.blp", "in.npy", "out")]
    (tmp_path / "in").write_bytes(bytes(100))
    bp.pack_ndarray_to_file(ARRAY, names[1])
    np.save(names[2], ARRAY)
    return names


PACK = {
    "file": lambda names, **given: bp.pack_file_to_file(names[0], names[3], **given),
    "bytes": lambda names, **given: bp.pack_bytes_to_file(b"abc", names[3], **given),
    "in_memory": lambda names, **given: keep(
        names[3], bp.pack_bytes_to_bytes(b"abc", **given)
    ),
    "array": lambda names, **given: bp.pack_ndarray_to_file(ARRAY, names[3], **given),
    "array_in_memory": lambda names, **given: keep(
        names[3], bp.pack_ndarray_to_bytes(ARRAY, **given)
    ),
    "npy": lambda names, **given: pack_npy_to_file(names[2], names[3], **given),
    "sink": lambda names, **given: keep(names[3], packed_array(**given)),
    "loop": lambda names, **given: keep(names[3], packed_loop(**given)),
}
each_function = pytest.mark.parametrize("pack", PACK.values(), ids=PACK)


def keep(name, data):
    """Write a file."""
    with open(name, "wb") as fp:
        fp.write(data)


def packed_array(**given):
    fp = io.BytesIO()
    bp.numpy_io.pack_ndarray(ARRAY, CompressedFPSink(fp), **given)
    return fp.getvalue()


def packed_loop(metadata=None, **given):
    fp = io.BytesIO()
    sizes = calculate_nchunks(3)
    source, sink = PlainFPSource(io.BytesIO(b"abc")), CompressedFPSink(fp)
    bp.abstract_io.pack(source, sink, *sizes, metadata, **given)
    return fp.getvalue()


def contents(name):
    with open(name, "rb") as fp:
        return fp.read()


FIELDS = {
    "blosc_args": {"clevel": 9, "cname": "zstd", "shuffle": 2},
    "bloscpack_args": {"checksum": "crc32", "max_app_chunks": 3},
    "metadata_args": {"meta_checksum": "sha1", "meta_level": 1, "max_meta_size": 99},
}
KEYWORDS = {name: value for fields in FIELDS.values() for name, value in fields.items()}


@each_function
def test_settings_as_keywords_and_dictionaries(names, pack):
    objects = {name: type(SETTINGS[name])(**fields) for name, fields in FIELDS.items()}
    pack(names, metadata={"a": 1}, **objects)
    expected = contents(names[3])
    os.remove(names[3])
    assert b"zstd" != expected
    pack(names, metadata={"a": 1}, **KEYWORDS)
    assert expected == contents(names[3])
    given = copy.deepcopy(FIELDS)
    pack(names, metadata={"a": 1}, **given)
    assert expected == contents(names[3])
    assert FIELDS == given
    header = bp.reader.Reader(io.BytesIO(expected)).header
    assert ("crc32", 3) == (header.checksum, header.max_app_chunks)
    rest = {"clevel": 9, "checksum": "crc32", "max_app_chunks": 3}
    mixed = {"blosc_args": {"cname": "zstd", "shuffle": 2}, **rest}
    metadata_args = objects["metadata_args"]
    pack(names, metadata={"a": 1}, **mixed, metadata_args=metadata_args)
    assert expected == contents(names[3])


@each_function
@pytest.mark.parametrize(
    ("message", "given"),
    [
        ("unexpected keyword 'clevl': did you mean 'clevel'\\?", {"clevl": 9}),
        ("unexpected keyword 'codce': did you mean 'codec'\\?", {"codce": "zstd"}),
        ("unexpected keyword 'nthread': did you mean 'nthreads'\\?", {"nthread": 2}),
        ("unexpected keyword 'dims': the settings are typesize, clevel,", {"dims": 9}),
        ("'blosc_args' has no field 'size': ", {"blosc_args": {"size": 9}}),
        ("has no field 'clvel': did you mean", {"blosc_args": {"clvel": 9}}),
        ("'clevel' and 'level' are names of the", {"level": 9, "clevel": 9}),
        ("'cname' and 'codec' are", {"blosc_args": {"cname": "lz4", "codec": "lz4"}}),
        ("'clevel' is given twice", {"level": 5, "blosc_args": {"clevel": 5}}),
        (
            "'clevel' is given twice: as a keyword and in 'blosc_args'",
            {"clevel": 5, "blosc_args": BloscArgs()},
        ),
        (
            "'clevel' is given twice: as a keyword and in 'blosc_args'",
            {"clevel": 5, "blosc_args": {"clevel": 5}},
        ),
        (
            "'checksum' is given twice: as a keyword and in 'bloscpack_args'",
            {"checksum": "crc32", "bloscpack_args": BloscpackArgs()},
        ),
        (
            "'meta_level' is given twice: as a keyword and in 'metadata_args'",
            {"meta_level": 5, "metadata_args": MetadataArgs()},
        ),
        ("'clevel' must be of type 'int'", {"clevel": "9"}),
    ],
)
def test_keywords_that_are_refused(names, pack, message, given):
    with pytest.raises(UsageTypeError, match=message) as caught:
        pack(names, **given)
    assert isinstance(caught.value, TypeError)
    assert not os.path.exists(names[3])


@each_function
def test_other_names_of_settings(names, pack):
    pack(names, clevel=9, cname="zlib")
    expected = contents(names[3])
    for given in (
        {"level": 9, "codec": "zlib"},
        {"level": np.int8(9), "blosc_args": {"codec": "zlib"}},
    ):
        os.remove(names[3])
        pack(names, **given)
        assert expected == contents(names[3])


def test_other_names_in_an_object():
    assert BloscArgs(8, 9, cname="zlib") == BloscArgs(level=9, codec="zlib")
    assert ["typesize", "clevel", "shuffle", "cname"] == [*BloscArgs(level=9)]
    for message, given in (
        ("did you mean 'clevel'", {"clevl": 9}),
        ("'clevel' and 'level' are names", {"clevel": 5, "level": 9}),
    ):
        with pytest.raises(UsageTypeError, match=message):
            BloscArgs(**given)


@each_function
def test_values_of_keywords_are_checked(names, pack):
    with pytest.raises(UsageError, match="'clevel' must be in the range"):
        pack(names, clevel=10)
    with pytest.raises(NoSuchChecksum):
        pack(names, checksum="crc")
    assert not os.path.exists(names[3])


@each_function
def test_numpy_numbers_are_numbers(names, pack):
    plain = {
        "clevel": 9,
        "shuffle": True,
        "offsets": True,
        "cname": "lz4",
        "max_app_chunks": 3,
        "meta_level": 1,
        "max_meta_size": 200,
        "nthreads": 1,
    }
    of_numpy = {
        "clevel": np.int8(9),
        "shuffle": np.bool_(True),
        "offsets": np.bool_(True),
        "cname": np.str_("lz4"),
        "max_app_chunks": np.uint8(3),
        "meta_level": np.uint16(1),
        "max_meta_size": np.uint8(200),
        "nthreads": np.int64(1),
    }
    pack(names, metadata={"n": 300}, **plain)
    expected = contents(names[3])
    pack(names, metadata={"n": np.int32(300)}, **of_numpy)
    assert expected == contents(names[3])
    pack(
        names,
        metadata={"n": np.int32(300)},
        bloscpack_args=BloscpackArgs(max_app_chunks=lambda nchunks: np.uint8(3)),
        metadata_args=MetadataArgs(
            meta_level=np.uint16(1), max_meta_size=np.uint8(200)
        ),
        blosc_args=BloscArgs(clevel=np.int8(9), cname="lz4"),
    )
    assert expected == contents(names[3])


def test_chunk_size_as_text():
    sizes = {"80000": 80_000, "80000B": 80_000, "8K": 8192, "1.5K": 1536, "007": 7}
    for text, size in sizes.items():
        assert size == bp.args.parse_chunk_size(text)
    for text in ("", " 80", "-1", "0", "8_0", "\u0661", "1.5", "9" * 400, "9" * 5000):
        with pytest.raises(bp.UsageError):
            bp.args.parse_chunk_size(text)


def test_sizes_of_numpy_do_not_overflow():
    # The product of these sizes needs more than 32 bits.
    sizes = calculate_nchunks(np.int64(2**40), np.int32(2**20))
    assert (2**20, 2**20, 2**20) == sizes
    assert all(type(size) is int for size in sizes)
    header = bp.headers.BloscpackHeader(
        typesize=np.uint8(8),
        chunk_size=np.int32(2**20),
        last_chunk=np.int32(2**20),
        nchunks=np.int32(2**20),
        max_app_chunks=np.int32(2**31 - 1),
    )
    assert 2**40 == header.nbytes
    assert 2**31 - 1 + 2**20 == header.total_prospective_chunks
    assert type(header.nchunks) is int


def test_more_chunks_than_possible():
    for size, chunk_size in [(2**63, 1), (2**70, 16)]:
        with pytest.raises(ChunkingException, match="but at most '%d'" % (2**63 - 1)):
            calculate_nchunks(size, chunk_size)


@pytest.mark.parametrize("argument", SETTINGS)
@each_function
def test_other_than_settings(names, argument, pack):
    for value in ("lz4", (), Limits()):
        message = "'%s' must be of type '%s', not '%s'" % (
            argument,
            type(SETTINGS[argument]).__name__,
            type(value).__name__,
        )
        with pytest.raises(UsageTypeError, match=message):
            pack(names, **{argument: value})
    assert not os.path.exists(names[3])


@pytest.mark.parametrize(
    "unpack",
    [
        lambda names, limits: bp.unpack_bytes_from_file(names[1], limits=limits),
        lambda names, limits: bp.unpack_ndarray_from_file(names[1], limits=limits),
        lambda names, limits: bp.unpack_file_from_file(*names[1::2], limits=limits),
        lambda names, limits: bp.unpack_ndarray_from_bytes(
            bp.pack_ndarray_to_bytes(ARRAY), limits=limits
        ),
    ],
)
def test_other_than_limits(names, unpack):
    message = "'limits' must be of type 'Limits', not 'tuple'"
    with pytest.raises(UsageTypeError, match=message):
        unpack(names, ())
    with pytest.raises(UsageTypeError, match="'limits' has no field 'bytes'"):
        unpack(names, {"bytes": 10})
    assert not os.path.exists(names[3])
    with pytest.raises(FormatError, match="but the limit is '10'"):
        unpack(names, {"nbytes": np.int64(10)})
    assert not os.path.exists(names[3])


# Settings that fit the data


WORDS = " ".join(str(number**2) for number in range(9_000)).encode()
ROUNDED = np.round(np.random.default_rng(3).normal(20, 5, 9_000), 1)
TO_FIT = {
    "file": (WORDS, lambda given: bp.pack_file_to_file("in", "out", **given)),
    "pipe": (WORDS, lambda given: packed_pipe(given)),
    "bytes": (WORDS, lambda given: bp.pack_bytes_to_file(WORDS, "out", **given)),
    "in_memory": (
        WORDS,
        lambda given: keep("out", bp.pack_bytes_to_bytes(WORDS, **given)),
    ),
    "array": (ROUNDED, lambda given: bp.pack_ndarray_to_file(ROUNDED, "out", **given)),
    "array_in_memory": (
        ROUNDED,
        lambda given: keep("out", bp.pack_ndarray_to_bytes(ROUNDED, **given)),
    ),
    "npy": (ROUNDED, lambda given: pack_npy_to_file("in.npy", "out", **given)),
}
each_to_fit = pytest.mark.parametrize(("data", "pack"), TO_FIT.values(), ids=TO_FIT)


def feed(descriptor):
    with os.fdopen(descriptor, "wb") as fp, suppress(BrokenPipeError):
        fp.write(WORDS)


def packed_pipe(given):
    receiver, sender = os.pipe()
    feeder = threading.Thread(target=feed, args=(sender,))
    feeder.start()
    try:
        bp.pack_file_to_file("/dev/fd/%d" % receiver, "out", **given)
    finally:
        os.close(receiver)
        feeder.join()


@pytest.fixture
def inputs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    keep("in", WORDS)
    np.save("in.npy", ROUNDED)


def plain_of(name):
    if bp.info(name).array is None:
        return bp.unpack_bytes_from_file(name)[0]
    return bp.unpack_ndarray_from_file(name)


@each_to_fit
def test_auto(data, pack, inputs):
    pack({})
    usual = os.path.getsize("out")
    for auto in (False, np.False_, None):
        pack({"auto": auto})
        assert usual == os.path.getsize("out")
    sizes = []
    for auto in ("speed", True, "ratio"):
        pack({"auto": auto})
        np.testing.assert_array_equal(data, plain_of("out"))
        sizes.append(os.path.getsize("out"))
    assert sizes[2] < sizes[1] < 0.8 * usual
    for auto in ("balanced", np.True_):
        pack({"auto": auto})
        assert sizes[1] == os.path.getsize("out")


@each_to_fit
def test_auto_keeps_what_is_given(data, pack, inputs):
    for given in (
        {"codec": "zlib", "clevel": np.int8(3), "shuffle": 1},
        {"blosc_args": {"cname": "zlib", "level": 3}, "shuffle": True},
    ):
        pack({"auto": True, "chunk_size": 4_000, "checksum": "crc32", **given})
        found = bp.info("out")
        assert (4_000, "crc32") == (found.header.chunk_size, found.checksum)
        assert "zlib" == found.first_chunk.codec
        assert found.first_chunk.filter == "shuffle"
        np.testing.assert_array_equal(data, plain_of("out"))
    pack({"auto": "ratio"})
    assert bp.info("out").header.chunk_size == bp.info("out").nbytes
    pack({"auto": "ratio", "chunk_size": "16K"})
    assert 2**14 == bp.info("out").header.chunk_size


def test_auto_keeps_a_chunk_size_that_is_the_default(inputs):
    data = prose(3 * 2**20)
    sizes = []
    default = inspect.signature(bp.pack_bytes_to_bytes).parameters["chunk_size"].default
    default = pickle.loads(pickle.dumps(default))
    for given in ({}, {"chunk_size": default}, {"chunk_size": "1M"}):
        packed = bp.pack_bytes_to_bytes(data, auto=True, cname="zstd", **given)
        sizes.append(bp.Reader(io.BytesIO(packed)).header.chunk_size)
    assert [2**21, 2**21, 2**20] == sizes
    assert default == "1M"


@each_to_fit
@pytest.mark.parametrize(
    "given", [{"typesize": 4}, {"blosc_args": {"typesize": np.int8(4)}}]
)
def test_auto_keeps_a_type_size(data, pack, inputs, given):
    """Except that of an array: the size of its items."""
    pack({"auto": True, **given})
    assert bp.info("out").header.typesize == (8 if data is ROUNDED else 4)


def test_auto_keeps_a_type_size_for_a_buffer_of_items():
    numbers = np.arange(10_000)
    for given, expected in (({}, 8), ({"typesize": 4}, 4)):
        packed = bp.pack_bytes_to_bytes(numbers, auto=True, **given)
        assert expected == bp.Reader(io.BytesIO(packed)).header.typesize


@each_to_fit
@pytest.mark.parametrize(
    ("message", "given"),
    [
        ("the goal must be one of speed, balanced, ratio, not", {"auto": "best"}),
        ("'auto' chooses what a BloscArgs", {"auto": True, "blosc_args": BloscArgs()}),
        ("'clevel' must be in the range", {"auto": True, "level": 10}),
        ("'clevel' is given twice", {"level": 3, "blosc_args": {"level": 3}}),
        ("did you mean 'auto'", {"atuo": True}),
        ("'auto' must be True, False or one of", {"auto": np.array([1, 2])}),
        ("'speed', 'balanced', 'ratio', not of type 'float'", {"auto": 1.0}),
    ],
)
def test_auto_is_refused(data, pack, inputs, message, given):
    with pytest.raises(UsageError, match=message):
        pack(given)
    assert not os.path.exists("out")
