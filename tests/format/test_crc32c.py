"""CRC-32C: the known answers of RFC 3720, and of every kind of buffer."""

from __future__ import annotations

import random

import pytest
from support import output_of

from bloscpack.checksums import CHECKSUMS_LOOKUP

# RFC 3720, B.4, and the check value of the catalogues of CRCs.
KNOWN = {
    bytes(32): 0x8A9136AA,
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    bytes(range(31, -1, -1)): 0x113FDB5C,
    b"123456789": 0xE3069283,
    b"": 0,
}


def digest(data):
    return int.from_bytes(CHECKSUMS_LOOKUP["crc32c"](data), "little")


@pytest.mark.parametrize("data", KNOWN, ids=bytes.hex)
def test_known_answers(data):
    assert KNOWN[data] == digest(data)


def one_bit_at_a_time(data):
    state = 2**32 - 1
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ 0x82F63B78 * (state & 1)
    return state ^ 2**32 - 1


@pytest.mark.parametrize("size", [*range(9), *range(511, 518), 2**14 + 700])
def test_every_size(size):
    data = random.Random(size).randbytes(size)
    expected = one_bit_at_a_time(data)
    assert expected == digest(data)
    assert expected == digest(bytearray(data))
    # A view that begins at an odd address.
    assert expected == digest(memoryview(b"x" + data)[1:])


def test_nothing_is_imported_before_the_first_use():
    script = (
        "import sys, bloscpack.checksums as c; "
        "assert 'google_crc32c' not in sys.modules; "
        "print(c.CHECKSUMS_LOOKUP['crc32c'](b'123456789').hex())"
    )
    assert "839206e3\n" == output_of(script)
