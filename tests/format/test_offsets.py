"""The offset table as bytes and as numbers."""

import struct

import pytest

from bloscpack._format import sections
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
    assert bytes.fromhex(encoded) == sections.encode_offsets(numbers)
    assert bytes.fromhex(encoded) == sections.encode_offsets(iter(numbers))
    assert numbers == sections.decode_offsets(bytes.fromhex(encoded))


@pytest.mark.parametrize("count", [0, 1, 5])
def test_free_entries(count):
    table = sections.free_entries(count)
    assert [sections.FREE] * count == sections.decode_offsets(table)


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
def test_numbers_that_do_not_fit(number):
    with pytest.raises(struct.error):
        sections.encode_offsets([number])


@pytest.mark.parametrize(
    ("found", "true"), [([], []), ([5, 7], [5, 7]), ([5, 7], [5, 7, 9]), ([], [5])]
)
def test_check(found, true):
    assert sections.check_offsets(found, true) is None


@pytest.mark.parametrize(
    ("chunk", "found", "true"),
    [(0, [4, 7], [5, 7]), (1, [5, -1], [5, 7]), (1, [5, 9, 0], [5, 7, 9])],
)
def test_check_finds(chunk, found, true):
    with pytest.raises(FormatError) as raised:
        sections.check_offsets(found, true)
    assert (
        "the offset table says that chunk %d starts at byte %d, "
        "but it starts at byte %d"
        % (chunk, found[chunk], true[chunk])
        == raised.value.message
    )
    assert ("offsets", chunk) == (raised.value.section, raised.value.chunk)


MANY = list(range(100, 100 + 50 * 3 * sections.AT_A_TIME, 50))


@pytest.mark.parametrize("count", [1, 2, sections.AT_A_TIME + 1, len(MANY)])
def test_a_table_is_plausible(count):
    table = sections.encode_offsets(MANY[:count])
    stop = MANY[count - 1] + 50
    assert sections.is_plausible_table(table, 100, stop, 50)
    assert not sections.is_plausible_table(table, 100, stop - 1, 50)
    assert not sections.is_plausible_table(table, 99, stop, 50)


@pytest.mark.parametrize("wrong", [-1, 0, 99, 2**63 - 1, -(2**63), "one less"])
@pytest.mark.parametrize(
    "number",
    [0, 1, 2, *(sections.AT_A_TIME + i for i in (-1, 0, 1)), len(MANY) - 1],
)
def test_a_table_with_a_wrong_entry_is_not_plausible(number, wrong):
    entries = MANY.copy()
    entries[number] = entries[number] - 1 if wrong == "one less" else wrong
    table = sections.encode_offsets(entries)
    assert not sections.is_plausible_table(table, 100, MANY[-1] + 50, 50)
