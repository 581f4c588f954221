"""Chains get numbers from the table, from links, from the end and from gaps."""

from __future__ import annotations

import pytest

from bloscpack._damage.evidence import Evidence
from bloscpack._damage.numbering import number_chunks
from bloscpack._damage.scan import Chain

# Ten chunks of different extents, from byte 100 to byte 1650.
SIZES = [100, 110, 120, 130, 140, 150, 160, 170, 180, 290]
TABLE = [100 + sum(SIZES[:i]) for i in range(10)]
SIZE = 1650


def chain(first, stop, moved=0, link=None):
    """Return the chain of the chunks from `first` up to `stop`, `moved` bytes on."""
    made = Chain(TABLE[first] + moved)
    for i in range(first, stop):
        made.offsets.append(TABLE[i] + moved)
        made.sizes.append(20 if i == 9 else 50)
        made.stop = TABLE[i] + SIZES[i] + moved
    made.ndamaged_before, made.gap_confirmed = link, link is not None
    return made


def numbered(chains, table=(), nchunks=None, size=SIZE, first=100, full=None):
    count_confirmed = bool(table) and nchunks == len(table)
    evidence = Evidence(
        table, first, nchunks, 100, size, full, 20 if full else None, count_confirmed
    )
    numbering = number_chunks(chains, evidence)
    return [*numbering.numbers], numbering.nchunks, numbering.certain


def test_table_tells():
    chains = [chain(0, 3), chain(5, 6), chain(8, 10)]
    assert ([0, 5, 8], 10, True) == numbered(chains, TABLE, 10)


@pytest.mark.parametrize("moved", [-90, -7, 7, 300])
def test_table_tells_by_sizes(moved):
    chains = [chain(0, 3), chain(5, 8, moved)]
    assert ([0, 5], 10, True) == numbered(chains, TABLE, 10)


def test_table_of_equal_extents_is_no_proof():
    table = [100 * i for i in range(1, 11)]
    first, moved = Chain(100), Chain(500)
    for made, start in ((first, 100), (moved, 500)):
        made.offsets.append(start)
        made.sizes.append(50)
        made.stop = start + 100
    assert ([0, 4], 10, False) == numbered([first, moved], table, 10, 1000)


def test_table_with_wrong_entries_is_no_proof():
    table = [100, 7, *TABLE[2:]]
    chains = [chain(0, 1), chain(3, 4, 8)]
    assert ([0, 3], 10, False) == numbered(chains, table, 10)


def test_entry_that_agrees_by_chance_is_no_proof():
    table = [*TABLE[:4], TABLE[4] + 10, *TABLE[5:]]
    chains = [chain(0, 2), chain(4, 5, 10)]
    assert ([0, 4], 10, False) == numbered(chains, table, 10)


def test_end_tells_what_is_likely():
    # The header alone says how many there were.
    chains = [chain(0, 3), chain(5, 10)]
    assert ([0, 5], 10, False) == numbered(chains, nchunks=10)


def test_end_and_headers_of_damaged_chunks_tell_alike():
    chains = [chain(0, 3), chain(5, 10, link=2)]
    assert ([0, 5], 10, True) == numbered(chains, nchunks=10)
    chains = [chain(0, 3), chain(5, 10, link=1)]
    numbers, nchunks, certain = numbered(chains, nchunks=10)
    assert ([0, 4], 10, False) == (numbers, nchunks, certain)


def test_last_chunk_is_known_by_its_size():
    # The header says that there are more, but it lies.
    assert ([0], 10, False) == numbered([chain(0, 10)], nchunks=12, full=50)
    assert ([0], 12, False) == numbered([chain(0, 10)], nchunks=12)


def test_bytes_in_between_tell_what_is_likely():
    chains = [chain(0, 3), chain(5, 7), chain(8, 10)]
    assert ([0, 5, 8], 10, False) == numbered(chains, nchunks=10)
    assert ([0, 5, 8], 10, False) == numbered(chains)


def test_chunks_are_missing_at_the_end():
    assert ([0], 10, True) == numbered([chain(0, 3)], TABLE, 10, 410, full=50)
    # Where any size will do, the last one found may be the last of all.
    assert ([0], 10, False) == numbered([chain(0, 3)], TABLE, 10, 410)
    assert ([0], 10, False) == numbered([chain(0, 3)], nchunks=10, size=410)
    assert ([0], 4, False) == numbered([chain(0, 3)], size=460)


def test_first_chunks_are_missing():
    assert ([2], 10, True) == numbered([chain(2, 10)], TABLE, 10)
    assert ([2], 10, False) == numbered([chain(2, 10)], nchunks=10)
    numbers, nchunks, certain = numbered([chain(2, 10)])
    assert (numbers[0] + 8, False) == (nchunks, certain)


def test_more_than_there_can_be():
    # The third of them is part of a damaged chunk.
    inner = Chain(440)
    inner.offsets.extend([440, 450])
    inner.sizes.extend([5, 5])
    inner.stop, inner.maybe_nested = 460, True
    chains = [chain(0, 3), inner, chain(4, 10)]
    assert ([0, 4], 10, True) == numbered(chains, TABLE, 10)


def test_chunks_that_the_header_does_not_know_of():
    assert ([0], 10, False) == numbered([chain(0, 10)], nchunks=8)


def test_leftovers_behind_the_last_chunk_are_none_of_the_file():
    chains = [chain(0, 10, link=0)]
    chains[0].offsets.append(SIZE)
    chains[0].sizes.append(50)
    chains[0].stop = SIZE + 100
    made = numbered(chains, TABLE, 10, SIZE + 100, full=50)
    assert ([0], 10, True) == made
    assert 10 == len(chains[0])


def test_no_chunks():
    assert ([], 3, True) == numbered([], nchunks=3)
    assert ([], 0, False) == numbered([])
