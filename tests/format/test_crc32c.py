"""CRC-32C: the known answers of RFC 3720, of every kind of buffer and in parts."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest
from support import environment

from bloscpack._format import crc32c
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
SIZES = [*range(9), *(crc32c.SHORT + i for i in (-1, 0, 1, 2, 3, 4, 5)), 2**14 + 700]


@pytest.mark.parametrize("data", KNOWN, ids=bytes.hex)
def test_known_answers(data):
    assert KNOWN[data] == crc32c.crc32c(data)


def one_bit_at_a_time(data):
    state = 2**32 - 1
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ 0x82F63B78 * (state & 1)
    return state ^ 2**32 - 1


@pytest.mark.parametrize("size", SIZES)
def test_every_size(size):
    data = random.Random(size).randbytes(size)
    expected = one_bit_at_a_time(data)
    assert expected == crc32c.crc32c(data)
    assert expected == crc32c.crc32c(bytearray(data))
    # A view that begins at an odd address.
    assert expected == crc32c.crc32c(memoryview(b"x" + data)[1:])


@pytest.mark.parametrize("first", [0, 1, crc32c.SHORT + 1, 2**14, 2**14 + 7])
def test_parts(first):
    data = random.Random(first).randbytes(2**15)
    value = crc32c.crc32c(data[:first])
    assert crc32c.crc32c(data) == crc32c.crc32c(data[first:], value)


def test_nothing_is_imported_before_the_first_use():
    script = (
        "import sys, bloscpack.checksums as c; "
        "assert not {'google_crc32c', 'bloscpack._format.crc32c'} & {*sys.modules}; "
        "print(c.CHECKSUMS_LOOKUP['crc32c'](b'123456789').hex())"
    )
    found = subprocess.check_output(
        [sys.executable, "-c", script], env=environment(), text=True
    )
    assert "839206e3\n" == found


def test_number_9():
    from bloscpack.checksums import ALL_CHECKSUMS

    assert ALL_CHECKSUMS[9] is CHECKSUMS_LOOKUP["crc32c"]
