"""Placing: numbers for chains of chunks, from the table, the end, or the bytes."""

from __future__ import annotations

import pytest

from bloscpack.placing import Known, place
from bloscpack.salvage import Chain

# Ten chunks of different extents, from byte 100 to byte 1650.
SIZES = [100, 110, 120, 130, 140, 150, 160, 170, 180, 290]
TABLE = [100 + sum(SIZES[:i]) for i in range(10)]
SIZE = 1650


def chain(first, stop, moved=0):
    """Return the chain of the chunks from `first` up to `stop`, `moved` bytes on."""
    made = Chain(TABLE[first] + moved)
    for i in range(first, stop):
        made.offsets.append(TABLE[i] + moved)
        made.sizes.append(50)
        made.stop = TABLE[i] + SIZES[i] + moved
    return made


def placed(chains, table=(), first=100, nchunks=None, size=SIZE):
    places = place(chains, Known(table, first, nchunks, 100, size))
    return places.numbers, places.nchunks, places.certain


def test_table_tells():
    chains = [chain(0, 3), chain(5, 6), chain(8, 10)]
    assert ([0, 5, 8], 10, True) == placed(chains, TABLE, nchunks=10)


@pytest.mark.parametrize("moved", [-90, -7, 7, 300])
def test_table_tells_by_sizes(moved):
    chains = [chain(0, 3), chain(5, 8, moved)]
    assert ([0, 5], 10, True) == placed(chains, TABLE, nchunks=10)


def test_end_tells():
    chains = [chain(0, 3), chain(5, 10)]
    assert ([0, 5], 10, True) == placed(chains, nchunks=10)


def test_bytes_in_between_tell_what_is_likely():
    chains = [chain(0, 3), chain(5, 7), chain(8, 10)]
    assert ([0, 5, 8], 10, False) == placed(chains, nchunks=10)
    assert ([0, 5, 8], 10, False) == placed(chains)


def test_chunks_are_missing_at_the_end():
    assert ([0], 10, True) == placed([chain(0, 3)], TABLE, nchunks=10, size=410)
    assert ([0], 4, False) == placed([chain(0, 3)], size=460)


def test_first_chunks_are_missing():
    assert ([2], 10, True) == placed([chain(2, 10)], nchunks=10)
    numbers, nchunks, certain = placed([chain(2, 10)])
    assert (numbers[0] + 8, False) == (nchunks, certain)


def test_more_than_there_can_be():
    # The third of them is part of a damaged chunk.
    inner = Chain(510)
    inner.offsets.extend([510, 520])
    inner.sizes.extend([5, 5])
    inner.stop = 530
    chains = [chain(0, 3), inner, chain(4, 10)]
    assert ([0, 4], 10, True) == placed(chains, nchunks=10)


def test_chunks_that_the_header_does_not_know_of():
    assert ([0], 10, True) == placed([chain(0, 10)], nchunks=8)


def test_no_chunks():
    assert ([], 3, True) == placed([], nchunks=3)
    assert ([], 0, False) == placed([])
