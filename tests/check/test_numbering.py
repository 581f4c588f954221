"""Pieces get numbers from the strongest rule that claims one."""

from __future__ import annotations

import pytest

from bloscpack._check.evidence import Evidence
from bloscpack._check.numbering import Piece, number_chunks
from bloscpack._check.scan import Chain
from bloscpack._format.sections import FREE

# Ten chunks of different extents, from byte 100 to byte 1650.
SIZES = [100, 110, 120, 130, 140, 150, 160, 170, 180, 290]
TABLE = [100 + sum(SIZES[:i]) for i in range(10)]
SIZE = 1650
UNIQUE = "an extent that the offset table has once"
GAPS = "the number of bytes between chunks"


def piece(first, stop, moved=0, ndamaged=None):
    """Return the chain of the chunks from `first` up to `stop`, `moved` bytes on."""
    made = Chain(TABLE[first] + moved)
    for i in range(first, stop):
        made.offsets.append(TABLE[i] + moved)
        made.sizes.append(20 if i == 9 else 50)
        made.stop = TABLE[i] + SIZES[i] + moved
    return Piece(made, ndamaged)


def equal(start, count, last=50):
    """Return adjacent chunks, each with an extent of 100 bytes."""
    made = Chain(start)
    for i in range(count):
        made.offsets.append(start + 100 * i)
        made.sizes.append(50)
    made.sizes[-1], made.stop = last, start + 100 * count
    return Piece(made)


def numbered(pieces, table=(), nchunks=10, size=SIZE, last=20, confirmed=None):
    """Return the numbers, the count, and the rules that decided."""
    evidence = Evidence(
        size=size,
        base=100,
        first=100,
        entries=table,
        nchunks=nchunks,
        chunk_size=50,
        last_chunk=last,
        count_confirmed=nchunks == len(table) if confirmed is None else confirmed,
    )
    numbering = number_chunks(pieces, evidence, lambda start, stop: b"%d" % start)
    rules = [placed.rule for placed in numbering.placed]
    numbers = [placed.number for placed in numbering.placed]
    return numbers, numbering.nchunks, rules


@pytest.mark.parametrize("moved", [0, -90, -7, 7, 300])
def test_table_has_the_extents(moved):
    pieces = [piece(0, 3), piece(5, 8, moved)]
    assert ([0, 5], 10, [UNIQUE, UNIQUE]) == numbered(pieces, TABLE)


def test_chunks_out_of_order():
    pieces = [piece(0, 3), piece(8, 10, -500), piece(5, 7, 600)]
    assert ([0, 8, 5], 10, [UNIQUE] * 3) == numbered(pieces, TABLE, size=3000)


def test_two_chunks_changed_places():
    """A piece without a number must not push the others past a right table."""
    others = [166, 171, 166, 171, 166]
    stated, found = [162, 162, 172, *others], [172, 162, 162, *others]
    table = [1402 + sum(stated[:i]) for i in range(len(stated))]
    made = Chain(1402)
    for i, extent in enumerate(found):
        made.offsets.append(1402 + sum(found[:i]))
        made.sizes.append(50)
        made.stop = made.offsets[-1] + extent
    numbers, nchunks, _ = numbered(
        [Piece(made)], table, len(stated), size=made.stop, last=50
    )
    assert ([2, 1, 0, 3, 7], len(stated)) == (numbers, nchunks)


def test_chunks_that_were_cut_out():
    made = piece(0, 3).chain
    made.extend(piece(5, 10, TABLE[3] - TABLE[5]).chain)
    numbers, nchunks, _ = numbered([Piece(made)], TABLE, size=made.stop)
    assert ([0, 5], 10) == (numbers, nchunks)


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([equal(100, 3), equal(520, 2)], [0, 4]),  # 20 bytes in between are new
        ([equal(100, 3), equal(520, 5, 20)], [0, 5]),  # the last one ends the file
    ],
)
def test_equal_extents(pieces, expected):
    table, size = [100 * i for i in range(1, 11)], 1020
    assert expected == numbered(pieces, table, size=size)[0]


def test_damaged_entries():
    table = [FREE, *TABLE[1:4], FREE, FREE, *TABLE[6:]]
    pieces = [piece(0, 2, 3), piece(3, 8, 3)]
    assert [0, 3] == numbered(pieces, table, size=SIZE + 3)[0]


def test_headers_of_damaged_chunks():
    pieces = [piece(0, 3, ndamaged=0), piece(5, 8, ndamaged=2)]
    numbers, _, rules = numbered(pieces)
    assert ([0, 5], "the headers of the chunks in front") == (numbers, rules[1])


def test_end_of_the_file():
    for confirmed, rule in enumerate(
        ("the number of chunks in the header", "the end of the file")
    ):
        pieces = [piece(0, 3), piece(7, 10)]
        numbers, _, rules = numbered(pieces, confirmed=bool(confirmed))
        assert ([0, 7], rule) == (numbers, rules[1])


def test_bytes_between():
    pieces = [piece(0, 3), piece(5, 7), piece(8, 9)]
    numbers, _, rules = numbered(pieces, nchunks=None)
    assert ([0, 5, 8], GAPS) == (numbers, rules[2])


def test_count_of_the_header_that_is_too_high():
    assert 10 == numbered([piece(0, 10, ndamaged=0)], nchunks=12)[1]


def test_leftovers_behind_the_last_chunk():
    made = piece(0, 10).chain
    made.extend(equal(SIZE, 1).chain)
    numbers, nchunks, _ = numbered([Piece(made)], TABLE, size=made.stop)
    assert ([0], 10, 11) == (numbers, nchunks, len(made))


def test_no_chunk_is_dropped_without_a_copy():
    pieces = [piece(0, 10), equal(SIZE + 7, 2)]
    numbers, nchunks, _ = numbered(pieces, nchunks=10, size=SIZE + 207, confirmed=False)
    assert (12, 0) == (nchunks, numbers[0])


def test_no_chunks():
    assert ([], 3, []) == numbered([], nchunks=3)
