"""Sifting: chunks in a damaged chunk are told from those that it only seems to hold."""

from __future__ import annotations

import pytest

from bloscpack.known import Known
from bloscpack.salvage import Broken, Chain
from bloscpack.sifting import sift


def chain(start, *sizes, extent=100):
    """Return chunks of such plain sizes side by side."""
    made = Chain(start)
    for i, nbytes in enumerate(sizes):
        made.offsets.append(start + extent * i)
        made.sizes.append(nbytes)
        made.stop = start + extent * (i + 1)
    return made


def sifted(chains, damaged, fills=True, table=(), digest_size=4, size=1000):
    """Return where the chains start that stay; `damaged` are (start, stop, nbytes)."""
    known = Known(table, 100, None, 100, size, 50, 20)

    def trail(start, stop):
        found = []
        for first, end, nbytes in damaged:
            if first == start < stop:
                found.append(Broken(first, end, None, nbytes))
                start = end
        return found

    kept = sift(chains, known, digest_size, trail, lambda broken: fills)
    return [(made.start, made.link) for made in kept]


def test_all_is_well():
    assert [(100, 0)] == sifted([chain(100, 50, 50, 20)], [])


def test_damaged_chunk_between():
    chains = [chain(100, 50), chain(300, 50, 50)]
    assert [(100, 0), (300, 1)] == sifted(chains, [(200, 300, 50)])
    assert [(100, 0), (300, None)] == sifted(chains, [(200, 299, 50)])


@pytest.mark.parametrize(
    ("fills", "start", "expected"),
    [
        # Its blocks say that it ends where it says, and a chunk follows.
        (True, 600, [100, 600]),
        # Its size is wrong, or nothing follows.
        (False, 600, [100, 250, 600]),
        (True, 650, [100, 250, 650]),
    ],
)
def test_chunk_that_seems_to_lie_in_a_damaged_one(fills, start, expected):
    chains = [chain(100, 50), chain(250, 50), chain(start, 50)]
    found = sifted(chains, [(200, 600, 50)], fills)
    assert expected == [start for start, _ in found]


def test_chunks_that_go_on_where_the_damaged_one_ends():
    chains = [chain(100, 50), chain(450, 50, 50)]
    assert [100, 450] == [s for s, _ in sifted(chains, [(200, 600, 50)])]
    chains = [chain(100, 50), chain(500, 50), chain(600, 50)]
    assert [100, 500, 600] == [s for s, _ in sifted(chains, [(200, 600, 50)])]


def test_chunk_of_another_size():
    chains = [chain(100, 50), chain(450, 40, 40), chain(700, 50)]
    assert [100, 700] == [s for s, _ in sifted(chains, [(200, 500, 50)])]


def test_last_chunk_in_front_of_others():
    chains = [chain(100, 50), chain(250, 20), chain(700, 50)]
    assert [100, 700] == [s for s, _ in sifted(chains, [])]


def test_table_knows():
    # Chunks of extents that the table lacks are none of the file.
    table = [100, 200, 330, 470]
    inner = chain(220, 50, extent=90)
    chains = [chain(100, 50), inner, chain(330, 50, extent=140)]
    assert [100, 330] == [s for s, _ in sifted(chains, [], table=table)]
    moved = chain(215, 50, extent=130)
    chains = [chain(100, 50), moved]
    damaged = [(200, 800, 50)]
    assert [100, 215] == [s for s, _ in sifted(chains, damaged, table=table)]


def test_good_chunk_that_has_swallowed_the_next_one():
    # Without digests, one that is cut short takes in the beginning of the next one.
    chains = [chain(100, 50), chain(200, 50), chain(260, 50, 20)]
    found = sifted(chains, [(200, 300, 50)], digest_size=0)
    assert [100, 260] == [s for s, _ in found]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        # What touches chunks of the file in front of them, between or behind is none.
        ((40, 50, 20), [300]),
        ((50, 40, 50), [200, 400]),
        ((50, 40, 40), [200]),
        # One that has the size of the last chunk may be that only behind others.
        ((40, 20), []),
        ((50, 20), [200]),
    ],
)
def test_chunks_that_touch_chunks_of_a_damaged_one(sizes, expected):
    chains = [chain(200, *sizes), chain(800, 50)]
    assert [*expected, 800] == [s for s, _ in sifted(chains, [(100, 200, 50)])]


def test_chunks_of_any_sizes_in_an_undamaged_file():
    chains = [chain(100, 50, 40, 50)]
    assert [(100, 0)] == sifted(chains, [], size=400)


def test_last_chunk_that_has_been_appended_to():
    # The header still says what size it had.
    chains = [chain(200, 50, 30)]
    (made,) = chains
    assert [200] == [s for s, _ in sifted(chains, [(100, 200, 50)], size=400)]
    assert 2 == len(made)


def test_table_of_which_the_file_holds_no_more():
    # What is in front of the last entry that is there can't be the end of the file.
    table = [100, 200, 300, 2**40]
    for digest_size in (0, 4):
        found = sifted([chain(290, 20, extent=10)], [], True, table, digest_size, 300)
        assert [(290, None)] == found


def test_chain_of_many_parts():
    chains = [chain(100, *[50, 40] * 20000)]
    assert 20000 == len(sifted(chains, [], size=10**7))
