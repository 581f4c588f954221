"""Chains are found in the offset table by the extents of their chunks."""

from __future__ import annotations

import random

import pytest

from bloscpack._damage.evidence import NCOMPARED, Evidence
from bloscpack._damage.scan import Chain


def table_of(extents):
    """Return an offset table; the last of the extents is not in it."""
    return [100 + sum(extents[:i]) for i in range(len(extents))]


def chain(extents, last_size=50, start=7):
    made = Chain(start)
    for extent in extents:
        made.offsets.append(made.stop)
        made.sizes.append(50)
        made.stop += extent
    made.sizes[-1] = last_size
    return made


def matching(told, extents, last_size=50, last=20, least=0, stop=10**6):
    evidence = Evidence(table_of(told), 100, None, 100, 10**6, 50, last)
    return [*evidence.matching_numbers(chain(extents, last_size), least, stop)]


EXTENTS = [30, 40, 30, 40, 50, 30, 40, 60]


@pytest.mark.parametrize(
    ("expected", "extents", "options"),
    [
        ([0, 2, 5], [30], {}),
        ([2, 5], [30], {"least": 1}),
        ([0, 2], [30], {"stop": 5}),
        ([0, 2], [30, 40], {"stop": 5}),
        ([0], [30, 40, 30], {}),
        ([2], [30, 40, 50], {}),
        ([], [40, 40], {}),
        ([], [70], {}),
        # The extent of the last chunk is told by nothing but its plain size.
        ([0, 2, 5, 7], [30], {"last_size": 20}),
        ([0, 5], [30, 40, 30], {"last_size": 20}),
        ([5], [30, 40, 99], {"last_size": 20}),
        ([5], [30, 40, 99], {"last": None}),
        ([], [30, 40, 99], {}),
        ([], [30, 40, 99], {"last_size": 20, "stop": 5}),
        ([], [99], {"last": None}),
        ([], [*EXTENTS, 30], {"last_size": 20}),
    ],
)
def test_matching_numbers(expected, extents, options):
    assert expected == matching(EXTENTS, extents, **options)


def places(told, extents):
    """Return where one list is in the other, without its last item."""
    n = min(len(extents), NCOMPARED)
    ends = len(told) - len(extents)
    return [i for i in range(ends) if told[i : i + n] == extents[:n]]


@pytest.mark.parametrize("kinds", [1, 2, 5, 1000])
def test_long_tables(kinds):
    pick = random.Random(kinds)
    told = [pick.randrange(100, 100 + kinds) for _ in range(500)]
    evidence = Evidence(table_of(told), 100, None, 100, 10**6, 50, 20)
    for length in range(1, 20):
        at = pick.randrange(470)
        found = told[at : at + length]
        for extents in (found, [*found[:-1], 99]):
            assert places(told, extents) == [
                *evidence.matching_numbers(chain(extents), 0, 500)
            ]
    assert places(told, [100]) == [*evidence.numbers_of_extent(100)]


def test_no_table():
    evidence = Evidence((), 100, None, 100, 1000)
    assert not evidence.has_match(chain([30]), 10)
    assert [] == [*evidence.numbers_of_extent(30)]


class Watched(list):
    """Counts the items that are looked at."""

    looked_at = 0

    def __getitem__(self, key):
        found = super().__getitem__(key)
        self.looked_at += len(found) if isinstance(key, slice) else 1
        return found


@pytest.mark.parametrize(
    "found", [[30, 40], [30, 30, 40], [30] * 15 + [40], [30] * 17 + [40]]
)
def test_many_chains_and_equal_extents(found):
    # Nearly the same everywhere: were all places looked at for each chain, it would
    # take hours.
    looked_at = []
    for count in (1000, 2000):
        table = Watched(table_of([30] * count))
        evidence = Evidence(table, 100, None, 100, 10**6, 50, 20)
        for i in range(count):
            expected = len(found) > NCOMPARED
            other = [*found[:-1], 40 + i]
            assert expected == evidence.has_match(chain(other, start=i), count)
        looked_at.append(table.looked_at)
    assert looked_at[1] < 2.2 * looked_at[0]
