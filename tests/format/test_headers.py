"""The fixed-size records: encoding, decoding and every rule they hold."""

import struct
from collections import OrderedDict

import pytest

from bloscpack import headers
from bloscpack.checksums import ALL_CHECKSUMS
from bloscpack.exceptions import (
    FormatError,
    FormatVersionMismatch,
    NoSuchChecksum,
    NoSuchCodec,
    NotReadable,
    UsageError,
    UsageTypeError,
)
from bloscpack.headers import BloscpackHeader, MetadataHeader

LARGEST = 2**31 - 17
MOST_CHUNKS = 2**63 - 1
TOO_LARGE = "checksum number must be .* 0 <= n <= %d, not '%d'" % (
    len(ALL_CHECKSUMS) - 1,
    len(ALL_CHECKSUMS),
)


# Ranges and numbers


@pytest.mark.parametrize("value", [0, 5, 9, True])
def test_check_range(value):
    assert value == headers.check_range("n", value, 0, 9)


@pytest.mark.parametrize(
    ("error", "message", "value"),
    [
        (UsageError, "'n' must be in the range 0 <= n <= 9, not '-1'", -1),
        (UsageError, "'n' must be in the range 0 <= n <= 9, not '10'", 10),
        (UsageTypeError, "'n' must be of type 'int'", "1"),
        (UsageTypeError, "'n' must be of type 'int'", 1.0),
        (UsageTypeError, "'n' must be of type 'int'", None),
    ],
)
def test_check_range_refuses(error, message, value):
    with pytest.raises(error) as raised:
        headers.check_range("n", value, 0, 9)
    assert message == str(raised.value)
    assert isinstance(
        raised.value, TypeError if error is UsageTypeError else ValueError
    )


@pytest.mark.parametrize(
    ("expected", "stored"),
    [
        (b"JSON", b"JSON\0\0\0\0"),
        (b"JSON    ", b"JSON    "),
        (b"", bytes(8)),
        (b"a\0b", b"a\0b\0"),
    ],
)
def test_decode_magic_string(expected, stored):
    assert expected == headers.decode_magic_string(stored)


# Options


@pytest.mark.parametrize(
    ("options", "offsets", "metadata"),
    [
        ("00000000", False, False),
        ("00000001", True, False),
        ("00000010", False, True),
        ("00000011", True, True),
    ],
)
def test_options(options, offsets, metadata):
    assert options == headers.create_options(offsets=offsets, metadata=metadata)
    assert {"offsets": offsets, "metadata": metadata} == headers.decode_options(options)


def test_default_options():
    assert "00000001" == headers.create_options()
    assert "00000000" == headers.create_metadata_options()
    assert {} == headers.decode_metadata_options("00000000")


@pytest.mark.parametrize("index", range(6))
def test_options_that_do_not_exist(index):
    options = "0" * index + "1" + "0" * (7 - index)
    with pytest.raises(FormatError, match="^Element %d was non-zero" % index) as raised:
        headers.decode_options(options)
    assert "header" == raised.value.section


@pytest.mark.parametrize("index", range(8))
def test_metadata_options_that_do_not_exist(index):
    options = "0" * index + "1" + "0" * (7 - index)
    with pytest.raises(FormatError, match="^Element %d was non-zero" % index):
        headers.decode_metadata_options(options)


def test_check_options_zero():
    assert headers.check_options_zero("10101010", [1, 3, 5, 7]) is None
    with pytest.raises(FormatError, match="Element 2 was non-zero"):
        headers.check_options_zero("10101010", [1, 2])


@pytest.mark.parametrize("options", ["", "0000000", "000000002", "0000000a", "0" * 9])
def test_options_of_wrong_text(options):
    message = "'options' must be string of 0s and 1s of length 8, not '%s'" % options
    with pytest.raises(UsageError) as raised:
        headers.check_options(options)
    assert message == str(raised.value)


@pytest.mark.parametrize("options", [8, None, b"00000000"])
def test_options_of_wrong_type(options):
    with pytest.raises(UsageTypeError, match="'options' must be of type 'str', not"):
        headers.check_options(options)


# The file header

# The header of each version: its fields, and the bytes 0.16.0 or its elders write.
ENCODED = [
    ({}, "03 00 00 00 ffffffff ffffffff ffffffffffffffff 0000000000000000"),
    (
        {
            "offsets": True,
            "metadata": True,
            "checksum": "sha512",
            "typesize": 255,
            "chunk_size": LARGEST,
            "last_chunk": LARGEST,
            "nchunks": MOST_CHUNKS - 1,
            "max_app_chunks": 1,
        },
        "03 03 08 ff efffff7f efffff7f feffffffffffff7f 0100000000000000",
    ),
    (
        {
            "offsets": True,
            "checksum": "adler32",
            "typesize": 8,
            "chunk_size": 8192,
            "last_chunk": 7616,
            "nchunks": 3,
            "max_app_chunks": 30,
        },
        "03 01 01 08 00200000 c01d0000 0300000000000000 1e00000000000000",
    ),
    (
        # A single chunk, which version 2 called the last of size 0.
        {
            "format_version": 2,
            "offsets": True,
            "checksum": "adler32",
            "typesize": 4,
            "chunk_size": 0,
            "last_chunk": 100,
            "nchunks": 1,
        },
        "02 01 01 04 00000000 64000000 0100000000000000 0000000000000000",
    ),
    ({"format_version": 1, "nchunks": 258}, "01 000000 0201000000000000"),
    ({"format_version": 1, "nchunks": -1}, "01 000000 ffffffffffffffff"),
    ({"format_version": 0, "nchunks": 3}, "03000000"),
]
# A Blosc chunk of no bytes, to stand behind the short headers.
EMPTY_CHUNK = bytes.fromhex("02011308 00000000 01000000 10000000")


@pytest.mark.parametrize(("fields", "encoded"), ENCODED)
def test_header(fields, encoded):
    header = BloscpackHeader(**fields)
    raw = b"blpk" + bytes.fromhex(encoded)
    assert raw == header.encode()
    assert len(raw) == headers.HEADER_LENGTHS[header.format_version]
    assert header == headers.decode_header((raw + EMPTY_CHUNK)[:32])
    if header.format_version >= 2:
        assert header == BloscpackHeader.decode(raw)


@pytest.mark.parametrize(
    ("error", "message", "fields"),
    [
        (
            UsageError,
            "'format_version' must be in the range 0 <= n <= 255, not '256'",
            {"format_version": 256},
        ),
        (
            UsageError,
            "'format_version' must be in the range 0 <= n <= 255, not '-1'",
            {"format_version": -1},
        ),
        (NoSuchChecksum, "checksum 'x' does not exist", {"checksum": "x"}),
        (NoSuchChecksum, "checksum '-1' does not exist", {"checksum": -1}),
        *(
            (
                UsageError,
                "'%s' must be in the range %d <= n <= %d, not '%d'"
                % (name, low, high, value),
                {name: value},
            )
            for name, low, high in (
                ("typesize", 0, 255),
                ("chunk_size", -1, LARGEST),
                ("last_chunk", -1, LARGEST),
                ("nchunks", -1, MOST_CHUNKS),
                ("max_app_chunks", 0, MOST_CHUNKS),
            )
            for value in (low - 1, high + 1)
        ),
        (
            UsageError,
            "'last_chunk' (2) is larger than 'chunk_size' (1)",
            {"chunk_size": 1, "last_chunk": 2},
        ),
        (
            UsageError,
            "'max_app_chunks' can not be non '0' if 'nchunks' is '-1'",
            {"max_app_chunks": 1},
        ),
        (
            UsageError,
            "'nchunks + max_app_chunks' must be in the range 0 <= n <= %d, not '%d'"
            % (MOST_CHUNKS, MOST_CHUNKS + 1),
            {"nchunks": 1, "max_app_chunks": MOST_CHUNKS},
        ),
        (UsageTypeError, "'nchunks' must be of type 'int'", {"nchunks": "1"}),
    ],
)
def test_header_refuses(error, message, fields):
    with pytest.raises(error) as raised:
        BloscpackHeader(**fields)
    assert message == str(raised.value)


def test_unknown_chunk_size_allows_any_last_chunk():
    assert 2 == BloscpackHeader(chunk_size=-1, last_chunk=2).last_chunk


def raw_header(**changes):
    """Return a valid header of version 3 with some fields changed, unchecked."""
    fields = {
        "magic": b"blpk",
        "format_version": 3,
        "options": 1,
        "checksum": 1,
        "typesize": 8,
        "chunk_size": 100,
        "last_chunk": 50,
        "nchunks": 3,
        "max_app_chunks": 30,
        **changes,
    }
    return struct.pack("<4sBBBBiiqq", *fields.values())


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        ("the magic marker b'blpk' is missing .* b'blpq'", {"magic": b"blpq"}),
        ("the undo record at its end can't be used here", {"options": 4}),
        ("Element 4 was non-zero", {"options": 8}),
        ("Element 0 was non-zero", {"options": 128}),
        (TOO_LARGE, {"checksum": len(ALL_CHECKSUMS)}),
        ("'chunk_size' must be .* -1 <= n <= .*, not '-2'", {"chunk_size": -2}),
        ("'chunk_size' must be .*, not '2147483647'", {"chunk_size": 2**31 - 1}),
        ("'last_chunk' must be .*, not '-2'", {"last_chunk": -2}),
        ("'last_chunk' .101. is larger than 'chunk_size' .100.", {"last_chunk": 101}),
        ("'nchunks' must be .*, not '-2'", {"nchunks": -2}),
        ("'max_app_chunks' must be .*, not '-1'", {"max_app_chunks": -1}),
        ("can not be non '0' if 'nchunks' is '-1'", {"nchunks": -1}),
        ("'nchunks . max_app_chunks' must be", {"max_app_chunks": MOST_CHUNKS}),
    ],
)
def test_decode_refuses(message, changes):
    for decode in (BloscpackHeader.decode, headers.decode_header):
        with pytest.raises(FormatError, match=message) as raised:
            decode(raw_header(**changes))
        assert "header" == raised.value.section


@pytest.mark.parametrize("length", [0, 31, 33])
def test_decode_wants_32_bytes(length):
    message = (
        "attempting to decode a bloscpack header of length '%d', not '32'" % length
    )
    with pytest.raises(FormatError) as raised:
        BloscpackHeader.decode(raw_header().ljust(length, b"\0")[:length])
    assert message == raised.value.message


def test_layout_2_keeps_its_last_bytes_for_itself():
    raw = raw_header(format_version=2, options=0xFF, max_app_chunks=-1)
    header = BloscpackHeader.decode(raw)
    assert (True, False, 0) == (header.offsets, header.metadata, header.max_app_chunks)


def test_views_are_headers_too():
    assert BloscpackHeader.decode(raw_header()) == headers.decode_header(
        memoryview(raw_header())
    )


# Telling the versions apart

CHUNK_OF_100 = struct.pack("<BBBBIII", 2, 1, 0x13, 8, 100, 100, 116)


def version_1(nchunks):
    return struct.pack("<4sB3sq", b"blpk", 1, bytes(3), nchunks) + CHUNK_OF_100


@pytest.mark.parametrize(
    ("expected", "prefix"),
    [
        *(
            (0, struct.pack("<4sI", b"blpk", nchunks) + CHUNK_OF_100 + bytes(8))
            for nchunks in (0, 1, 2, 3, 255, 256, 259, 2**32 - 1)
        ),
        (0, b"blpk\1\0\0\0" + EMPTY_CHUNK),
        *((1, version_1(nchunks)) for nchunks in (0, 1, 258, 2**40)),
        (2, raw_header(format_version=2)),
        # Chunk sizes and typesizes that look like the start of a Blosc header.
        (3, raw_header(chunk_size=0x08130102, last_chunk=100)),
        (3, raw_header(chunk_size=0x08130102, last_chunk=100, nchunks=100)),
        (2, raw_header(format_version=2, chunk_size=0x08130102, last_chunk=100)),
    ],
)
def test_find_version(expected, prefix):
    assert expected == headers.find_version(prefix[:32])


def test_too_short_to_have_a_layout():
    for length in range(32):
        message = "attempting to decode a bloscpack header of length '%d'" % length
        with pytest.raises(NotReadable, match=message):
            headers.find_version(raw_header()[:length])


@pytest.mark.parametrize("prefix", [b"no header", b"\0" * 32, b"BLPK" + bytes(28)])
def test_no_layout_at_all(prefix):
    with pytest.raises(NotReadable, match="magic marker b'blpk' is missing"):
        headers.find_version(prefix)


def test_unknown_versions():
    for version, prefix in [
        *((version, raw_header(format_version=version)) for version in range(4, 256)),
        # Version 0 is known by its first chunk alone.
        (0, raw_header(format_version=0)),
        (0, b"blpk" + bytes(28)),
        (0, struct.pack("<4sI", b"blpk", 256) + bytes(24)),
    ]:
        message = "format version of file was not '3' as expected, but '%d'" % version
        for decode in (headers.find_version, headers.decode_header):
            with pytest.raises(FormatVersionMismatch) as raised:
                decode(prefix)
            assert message == raised.value.message
            assert ("header", 4) == (raised.value.section, raised.value.offset)
            assert isinstance(raised.value, RuntimeError)


def test_layout_of_development_states():
    with pytest.raises(FormatVersionMismatch, match="reserved bytes of a version 1"):
        headers.decode_header(raw_header(format_version=1))


def test_layout_1_with_a_negative_count():
    with pytest.raises(FormatError, match=r"'nchunks' must be .*, not '-2'") as raised:
        headers.decode_header(version_1(-2))
    assert 8 == raised.value.offset


# What the header tells


@pytest.mark.parametrize(
    ("nbytes", "sizes", "fields"),
    [
        (250, [100, 100, 50], {"chunk_size": 100, "last_chunk": 50, "nchunks": 3}),
        (50, [50], {"chunk_size": 100, "last_chunk": 50, "nchunks": 1}),
        (0, [0], {"chunk_size": 0, "last_chunk": 0, "nchunks": 1}),
        (0, [], {"chunk_size": 0, "last_chunk": 0, "nchunks": 0}),
        (None, [None, 50], {"chunk_size": -1, "last_chunk": 50, "nchunks": 2}),
        (None, [100, None], {"chunk_size": 100, "last_chunk": -1, "nchunks": 2}),
        (None, [None], {"chunk_size": 100, "last_chunk": -1, "nchunks": 1}),
        (None, [None], {"format_version": 1, "nchunks": 1}),
    ],
)
def test_sizes(nbytes, sizes, fields):
    header = BloscpackHeader(**fields)
    assert nbytes == header.nbytes
    assert sizes == [header.expected_nbytes(i) for i in range(header.nchunks)]


def test_sizes_of_an_unknown_number_of_chunks():
    header = BloscpackHeader(chunk_size=100, last_chunk=50)
    assert header.nbytes is None
    assert header.expected_nbytes(0) is None
    assert header.total_prospective_chunks is None


# The metadata header


def raw_metadata_header(**changes):
    """Return a valid metadata header with some fields changed, unchecked."""
    fields = {
        "magic_format": b"JSON",
        "meta_options": 0,
        "meta_checksum": 1,
        "meta_codec": 1,
        "meta_level": 6,
        "meta_size": 1,
        "max_meta_size": 10,
        "meta_comp_size": 2,
        "user_codec": b"",
        **changes,
    }
    return struct.pack("<8sBBBBIII8s", *fields.values())


@pytest.mark.parametrize(
    ("fields", "encoded"),
    [
        ({}, bytes(32)),
        (
            {
                "magic_format": b"JSON",
                "meta_checksum": "adler32",
                "meta_codec": "zlib",
                "meta_level": 9,
                "meta_size": 1,
                "max_meta_size": 10,
                "meta_comp_size": 2,
                "user_codec": b"x",
            },
            b"JSON\0\0\0\0\0\1\1\t\1\0\0\0\n\0\0\0\2\0\0\0x\0\0\0\0\0\0\0",
        ),
        (
            {"meta_options": "11111111", "meta_size": 2**32 - 1},
            bytes(8) + b"\xff\0\0\0\xff\xff\xff\xff" + bytes(16),
        ),
    ],
)
def test_metadata_header(fields, encoded):
    header = MetadataHeader(**fields)
    assert encoded == header.encode()
    assert header == MetadataHeader.decode(encoded)


@pytest.mark.parametrize(
    ("error", "message", "fields"),
    [
        (UsageError, "'magic_format' .* 8", {"magic_format": b"123456789"}),
        (UsageError, "'user_codec' .* 8", {"user_codec": b"123456789"}),
        (UsageError, "'options' must be string of 0s and 1s", {"meta_options": ""}),
        (NoSuchChecksum, "checksum 'x' does not exist", {"meta_checksum": "x"}),
        (NoSuchCodec, "codec 'x' does not exist", {"meta_codec": "x"}),
        (UsageError, "'meta_level' .* 0 <= n <= 9, not '10'", {"meta_level": 10}),
        (UsageError, "'meta_size' .* not '-1'", {"meta_size": -1}),
        (UsageError, "'max_meta_size' .* not '4294967296'", {"max_meta_size": 2**32}),
        (UsageError, "'meta_comp_size' .* not '-1'", {"meta_comp_size": -1}),
    ],
)
def test_metadata_header_refuses(error, message, fields):
    with pytest.raises(error, match=message):
        MetadataHeader(**fields)


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        (TOO_LARGE, {"meta_checksum": len(ALL_CHECKSUMS)}),
        ("codec number must be .* 0 <= n <= 1, not '2'", {"meta_codec": 2}),
        ("'meta_level' must be .* 0 <= n <= 9, not '10'", {"meta_level": 10}),
    ],
)
def test_metadata_decode_refuses(message, changes):
    with pytest.raises(FormatError, match=message) as raised:
        MetadataHeader.decode(raw_metadata_header(**changes))
    assert "metadata" == raised.value.section


@pytest.mark.parametrize("length", [0, 31, 33])
def test_metadata_decode_wants_32_bytes(length):
    with pytest.raises(FormatError, match="of length '%d', not '32'" % length):
        MetadataHeader.decode(raw_metadata_header().ljust(length, b"\0")[:length])


# The header of a Blosc chunk


def test_decode_blosc_header():
    expected = OrderedDict(
        version=0,
        versionlz=1,
        flags=2,
        typesize=3,
        nbytes=0x07060504,
        blocksize=0x0B0A0908,
        ctbytes=0x0F0E0D0C,
    )
    assert expected == headers.decode_blosc_header(bytes(range(16)))
    assert expected == headers.decode_blosc_header(bytes(range(17)))


@pytest.mark.parametrize("length", [0, 15])
def test_decode_blosc_header_wants_16_bytes(length):
    with pytest.raises(FormatError, match="has '16' bytes, but only '%d'" % length):
        headers.decode_blosc_header(bytes(length))


@pytest.mark.parametrize(
    ("true_ones", "codec", "flags"),
    [
        ([], "blosclz", 0),
        (["byte_shuffle"], "blosclz", 1),
        (["pure_memcpy"], "blosclz", 2),
        (["bit_shuffle"], "blosclz", 4),
        ([], "blosclz", 8),
        (["split_blocks"], "blosclz", 16),
        (["byte_shuffle", "pure_memcpy", "split_blocks"], "lz4", 0x33),
        (["byte_shuffle", "pure_memcpy", "split_blocks"], "snappy", 0x53),
        (["byte_shuffle", "pure_memcpy", "split_blocks"], "zlib", 0x73),
        (["byte_shuffle", "pure_memcpy", "split_blocks"], "zstd", 0x93),
    ],
)
def test_decode_blosc_flags(true_ones, codec, flags):
    decoded = headers.decode_blosc_flags(flags)
    assert codec == decoded.pop("codec")
    assert ["byte_shuffle", "pure_memcpy", "bit_shuffle", "split_blocks"] == list(
        decoded
    )
    assert true_ones == [name for name, value in decoded.items() if value]


def test_unknown_codec_number():
    with pytest.raises(FormatError, match=r"one of \[0, .*\], not '7'"):
        headers.decode_blosc_flags(7 << 5)
