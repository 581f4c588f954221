"""Single numbers, in the module where 0.16 had them."""

import struct

import pytest

from bloscpack import headers
from bloscpack.exceptions import FormatError


@pytest.mark.parametrize(
    ("name", "number", "encoded"),
    [
        ("uint8", 0, "00"),
        ("uint8", 255, "ff"),
        ("uint32", 0, "00000000"),
        ("uint32", 2**31 - 1, "ffffff7f"),
        ("uint32", 2**32 - 1, "ffffffff"),
        ("int32", -1, "ffffffff"),
        ("int32", -(2**31), "00000080"),
        ("int64", -1, "ff" * 8),
        ("int64", 1, "01" + "00" * 7),
        ("int64", 2**63 - 1, "ff" * 7 + "7f"),
    ],
)
def test_numbers(name, number, encoded):
    assert bytes.fromhex(encoded) == getattr(headers, "encode_" + name)(number)
    assert number == getattr(headers, "decode_" + name)(bytes.fromhex(encoded))


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("uint8", 256),
        ("uint8", -1),
        ("uint32", 2**32),
        ("int32", 2**31),
        ("int64", 2**63),
    ],
)
def test_numbers_too_large(name, number):
    with pytest.raises(struct.error):
        getattr(headers, "encode_" + name)(number)


@pytest.mark.parametrize("number", [0, 19, 255])
def test_decode_uint8_takes_a_number(number):
    # What indexing bytes yields, and what 0.16 was called with.
    assert number == headers.decode_uint8(number)


@pytest.mark.parametrize(
    ("expected", "byte"), [("00000000", 0), ("00010011", 19), ("11111111", 255)]
)
def test_decode_bitfield(expected, byte):
    assert expected == headers.decode_bitfield(byte)


@pytest.mark.parametrize("name", ["uint8", "uint32", "int32", "int64"])
def test_numbers_of_another_length(name):
    size = len(getattr(headers, "encode_" + name)(0))
    for length in (0, size - 1, size + 1):
        message = "expected a number of '%d' bytes, found '%d'" % (size, length)
        with pytest.raises(FormatError, match=message):
            getattr(headers, "decode_" + name)(bytes(length))
