"""The offset table as bytes and as numbers."""

import struct

import pytest

from bloscpack._format import offsets
from bloscpack.exceptions import FormatError


@pytest.mark.parametrize(
    ("encoded", "numbers"),
    [
        ("", []),
        ("0000000000000000", [0]),
        ("ffffffffffffffff", [-1]),
        ("8400000000000000 2101000000000000", [132, 289]),
        ("ffffffffffffff7f 0000000000000080", [2**63 - 1, -(2**63)]),
    ],
)
def test_encode_and_decode(encoded, numbers):
    assert bytes.fromhex(encoded) == offsets.encode(numbers)
    assert bytes.fromhex(encoded) == offsets.encode(iter(numbers))
    assert numbers == offsets.decode(bytes.fromhex(encoded))


@pytest.mark.parametrize("count", [0, 1, 5])
def test_free_entries(count):
    assert [offsets.FREE] * count == offsets.decode(offsets.free_entries(count))


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
def test_numbers_that_do_not_fit(number):
    with pytest.raises(struct.error):
        offsets.encode([number])


@pytest.mark.parametrize(
    ("found", "true"), [([], []), ([5, 7], [5, 7]), ([5, 7], [5, 7, 9]), ([], [5])]
)
def test_check(found, true):
    assert offsets.check(found, true) is None


@pytest.mark.parametrize(
    ("chunk", "found", "true"),
    [(0, [4, 7], [5, 7]), (1, [5, -1], [5, 7]), (1, [5, 9, 0], [5, 7, 9])],
)
def test_check_finds(chunk, found, true):
    with pytest.raises(FormatError) as raised:
        offsets.check(found, true)
    assert (
        "the offset table says that chunk %d starts at byte %d, "
        "but it starts at byte %d"
        % (chunk, found[chunk], true[chunk])
        == raised.value.message
    )
    assert ("offsets", chunk) == (raised.value.section, raised.value.chunk)
