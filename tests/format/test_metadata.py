"""The metadata section: what is written, what is read, what is refused."""

import io
import itertools
import json
import zlib

import pytest
from builders import packed

import bloscpack as bp
from bloscpack.append import rewrite_metadata_fp
from bloscpack.args import Limits, MetadataArgs
from bloscpack.checksums import CHECKSUM_NAMES, CHECKSUMS_LOOKUP
from bloscpack.exceptions import (
    FormatError,
    MetadataSectionTooSmall,
    NoChangeInMetadata,
    NoSuchChecksum,
    NoSuchCodec,
    NoSuchSerializer,
    UsageError,
    UsageTypeError,
)
from bloscpack.headers import MetadataHeader

VALUES = [
    {"dtype": "float64", "shape": [1024], "others": []},
    {},
    [],
    0,
    "",
    False,
    {"é": "ü" * 100, "list": [1.5, None, True, {"a": {}}]},
]


EMPTY = packed(b"", offsets=False, checksum="None", metadata={})
HEAD, CHUNK = EMPTY[:32], EMPTY[-16:]


def encoded(value, args=None):
    """Return the bytes of the section that stores a value."""
    content = packed(
        b"", offsets=False, checksum="None", metadata=value, metadata_args=args
    )
    assert (HEAD, CHUNK) == (content[:32], content[-16:])
    return content[32:-16]


def taken_apart(section):
    """Return header, stored text, room and digest of a section."""
    header = MetadataHeader.decode(section[:32])
    end = 32 + header.max_meta_size
    stored = section[32 : 32 + header.meta_comp_size]
    return header, stored, section[32 + header.meta_comp_size : end], section[end:]


def decoded(section, **limits):
    content = HEAD + section + CHUNK
    return bp.unpack_bytes_from_bytes(content, limits=Limits(**limits))[1]


def rewritten(section, new):
    """Return a section in which another value has replaced the value."""
    fp = io.BytesIO(HEAD + section + CHUNK)
    rewrite_metadata_fp(fp, new)
    return fp.getvalue()[32:-16]


@pytest.mark.parametrize("codec", ["None", "zlib"])
def test_round_trip(codec):
    for value, checksum in itertools.product(VALUES, CHECKSUM_NAMES):
        args = MetadataArgs(meta_checksum=checksum, meta_codec=codec)
        section = encoded(value, args)
        assert value == decoded(section)
        header, stored, room, digest = taken_apart(section)
        assert bytes(len(room)) == room
        assert CHECKSUMS_LOOKUP[checksum](stored) == digest
        assert checksum == header.meta_checksum


def test_text_that_zlib_makes_longer_is_stored():
    args = MetadataArgs()
    header, stored, _, _ = taken_apart(encoded({"a": 1}, args))
    assert b'{"a":1}' == stored
    # The level is written as it was asked for.
    assert ("None", 6, 7, 7) == (
        header.meta_codec,
        header.meta_level,
        header.meta_size,
        header.meta_comp_size,
    )
    assert "zlib" == args.meta_codec


def test_equal_length_is_a_gain():
    # Found by trying: as long compressed as not.
    lengths = {}
    for n in range(1, 200):
        text = json.dumps("a" * n).encode()
        lengths[len(text) - len(zlib.compress(text, 6))] = n
    value = "a" * lengths[0]
    header, _, _, _ = taken_apart(encoded(value))
    assert "zlib" == header.meta_codec
    assert header.meta_size == header.meta_comp_size


@pytest.mark.parametrize("level", range(10))
def test_level(level):
    value = {"key": "value " * 20}
    section = encoded(value, MetadataArgs(meta_level=level))
    header, stored, _, _ = taken_apart(section)
    assert level == header.meta_level
    text = json.dumps(value, separators=(",", ":")).encode()
    expected = zlib.compress(text, level)
    assert (text if len(expected) > len(text) else expected) == stored


@pytest.mark.parametrize("room", [7, 8, lambda size: size, lambda size: size + 1])
def test_room(room):
    section = encoded({"a": 1}, MetadataArgs(max_meta_size=room))
    header, _, _, _ = taken_apart(section)
    assert (room if isinstance(room, int) else room(7)) == header.max_meta_size
    assert {"a": 1} == decoded(section)


@pytest.mark.parametrize("room", [0, 6, lambda size: size - 1])
def test_too_little_room(room):
    with pytest.raises(MetadataSectionTooSmall) as raised:
        encoded({"a": 1}, MetadataArgs(max_meta_size=room))
    assert (
        "metadata section is too small to contain the metadata "
        "required: 7 allocated: %d"
        % (room if isinstance(room, int) else room(7))
        == str(raised.value)
    )
    assert isinstance(raised.value, RuntimeError)


@pytest.mark.parametrize(
    ("error", "settings"),
    [
        (NoSuchSerializer, {"magic_format": b"BSON"}),
        (NoSuchChecksum, {"meta_checksum": "crc64"}),
        (NoSuchCodec, {"meta_codec": "lzma"}),
        (UsageError, {"meta_level": 10}),
        (UsageTypeError, {"meta_level": "6"}),
        (UsageError, {"max_meta_size": -1}),
        (UsageError, {"max_meta_size": 2**32}),
        (UsageTypeError, {"max_meta_size": "7"}),
    ],
)
def test_encode_refuses(error, settings):
    with pytest.raises(error):
        encoded({"a": 1}, MetadataArgs(**settings))


def test_encode_refuses_what_is_no_json():
    with pytest.raises(UsageError, match="can't be written as JSON"):
        encoded(object())


@pytest.mark.parametrize("value", ["x" * 100, list(range(10**5))])
@pytest.mark.parametrize("codec", ["None", "zlib"])
def test_limit(codec, value):
    section = encoded(value, MetadataArgs(meta_codec=codec))
    size = taken_apart(section)[0].meta_size
    assert value == decoded(section, metadata=size)
    with pytest.raises(FormatError, match="more than '%d' bytes" % (size - 1)):
        decoded(section, metadata=size - 1)


@pytest.mark.parametrize("codec", ["None", "zlib"])
def test_what_can_be_written_can_be_read(codec):
    value = "x" * (16 * 2**20)
    args = MetadataArgs(meta_codec=codec, max_meta_size=lambda size: size)
    packed = bp.pack_bytes_to_bytes(b"plain", metadata=value, metadata_args=args)
    assert (b"plain", value) == bp.unpack_bytes_from_bytes(packed)


@pytest.mark.parametrize("codec", ["None", "zlib"])
def test_many_values_can_be_written_and_read(codec):
    value = [0] * 10**6  # one more than readers accept where they are compressed
    args = MetadataArgs(meta_codec=codec, max_meta_size=lambda size: size)
    section = encoded(value, args)
    assert "None" == taken_apart(section)[0].meta_codec
    assert value == decoded(section)
    section = encoded(value[1:], args)
    assert codec == taken_apart(section)[0].meta_codec
    assert value[1:] == decoded(section)


# A valid header and text, of which the cases change one thing.
BLANK = {
    "magic_format": b"JSON",
    "meta_checksum": "adler32",
    "meta_size": 7,
    "max_meta_size": 10,
    "meta_comp_size": 7,
}
TEXT = b'{"a":1}'
DIGEST = CHECKSUMS_LOOKUP["adler32"](TEXT)


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        ("format must be b'JSON', not b'BSON'", {"magic_format": b"BSON"}),
        ("must be '00000000', not '10000000'", {"meta_options": "10000000"}),
        ("user codec b'mine', which is not known", {"user_codec": b"mine"}),
        ("take '11' bytes, but the room .* '10'", {"meta_comp_size": 11}),
        ("have '7' bytes, but their header says '8'", {"meta_size": 8}),
        ("no valid zlib stream", {"meta_codec": "zlib"}),
        ("Checksum mismatch", {"meta_checksum": "crc32"}),
        ("Checksum mismatch detected in metadata expected: 6e6f7065", {}),
    ],
)
def test_decode_refuses(message, changes):
    header = MetadataHeader(**{**BLANK, **changes})
    digest = DIGEST if changes else b"nope"
    section = b"".join((header.encode(), TEXT.ljust(10, b"\0"), digest))
    with pytest.raises(FormatError, match=message) as raised:
        decoded(section)
    assert "metadata" == raised.value.section


# Replacing


@pytest.mark.parametrize("new", [{"b": 2}, {}, [], {"key": "value " * 20}])
@pytest.mark.parametrize("checksum", CHECKSUM_NAMES)
def test_another_value(checksum, new):
    old = {"a": "long " * 10}
    section = encoded(old, MetadataArgs(meta_checksum=checksum))
    again = rewritten(section, new)
    assert len(section) == len(again)
    assert new == decoded(again)
    assert checksum == taken_apart(again)[0].meta_checksum


def test_a_value_that_has_not_changed():
    with pytest.raises(NoChangeInMetadata, match="this has not changed"):
        rewritten(encoded({"a": 1}), {"a": 1})


def test_a_value_that_has_no_room():
    section = encoded({"a": 1}, MetadataArgs(max_meta_size=10))
    with pytest.raises(MetadataSectionTooSmall, match="required: 17 allocated: 10"):
        rewritten(section, {"a": "bcdefghij"})
