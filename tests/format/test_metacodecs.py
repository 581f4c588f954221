"""The codecs of the metadata section."""

import itertools
import zlib

import pytest

from bloscpack import metacodecs
from bloscpack.exceptions import FormatError, NoSuchCodec

TEXT = b'{"dtype":"<f8"}' * 20


def test_numbers_on_disk():
    assert ["None", "zlib"] == metacodecs.CODECS_AVAIL
    assert ["None", "zlib"] == [codec.name for codec in metacodecs.CODECS]
    assert ["None", "zlib"] == list(metacodecs.CODECS_LOOKUP)


@pytest.mark.parametrize("name", metacodecs.CODECS_AVAIL)
def test_round_trip(name):
    for level, text in itertools.product(range(10), [b"", b"x", TEXT]):
        codec = metacodecs.CODECS_LOOKUP[name]
        compressed = codec.compress(text, level)
        assert text == codec.decompress(compressed)
        assert text == codec.decompress(compressed, len(text))
        assert "<MetaCodec %s>" % name == repr(codec)


def test_what_they_write():
    assert TEXT == metacodecs.CODECS_LOOKUP["None"].compress(TEXT, 6)
    assert zlib.compress(TEXT, 6) == metacodecs.CODECS_LOOKUP["zlib"].compress(TEXT, 6)


@pytest.mark.parametrize("name", metacodecs.CODECS_AVAIL)
def test_limit(name):
    codec = metacodecs.CODECS_LOOKUP[name]
    with pytest.raises(FormatError, match="more than '299' bytes") as raised:
        codec.decompress(codec.compress(TEXT, 6), len(TEXT) - 1)
    assert "metadata" == raised.value.section


@pytest.mark.parametrize(
    ("message", "stored"),
    [
        ("no valid zlib stream", b"no zlib at all"),
        ("no valid zlib stream", zlib.compress(TEXT)[:-1] + b"\0"),
        ("does not end where the metadata end", zlib.compress(TEXT)[:-1]),
        ("does not end where the metadata end", zlib.compress(TEXT) + b"\0"),
        ("does not end where the metadata end", b""),
    ],
)
def test_inflate_refuses(message, stored):
    with pytest.raises(FormatError, match=message) as raised:
        metacodecs.CODECS_LOOKUP["zlib"].decompress(stored, 10**6)
    assert "metadata" == raised.value.section


def test_check_valid_codec():
    assert metacodecs.check_valid_codec("zlib") is None
    assert metacodecs.check_valid_codec("None") is None
    with pytest.raises(NoSuchCodec, match="codec 'lzma' does not exist"):
        metacodecs.check_valid_codec("lzma")
