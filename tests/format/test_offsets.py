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


MANY = list(range(100, 100 + 50 * 3 * offsets.AT_A_TIME, 50))


@pytest.mark.parametrize("count", [1, 2, offsets.AT_A_TIME + 1, len(MANY)])
def test_a_table_is_plausible(count):
    table = offsets.encode(MANY[:count])
    stop = MANY[count - 1] + 50
    assert offsets.is_plausible(table, 100, stop, 50)
    assert not offsets.is_plausible(table, 100, stop - 1, 50)
    assert not offsets.is_plausible(table, 99, stop, 50)


@pytest.mark.parametrize("wrong", [-1, 0, 99, 2**63 - 1, -(2**63), "one less"])
@pytest.mark.parametrize(
    "number",
    [0, 1, 2, *(offsets.AT_A_TIME + i for i in (-1, 0, 1)), len(MANY) - 1],
)
def test_a_table_with_a_wrong_entry_is_not_plausible(number, wrong):
    entries = MANY.copy()
    entries[number] = entries[number] - 1 if wrong == "one less" else wrong
    table = offsets.encode(entries)
    assert not offsets.is_plausible(table, 100, MANY[-1] + 50, 50)
