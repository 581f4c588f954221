"""Evidence: the offset table knows chunks by their offsets and their extents."""

from __future__ import annotations

import random

import pytest

from bloscpack._check.evidence import Evidence
from bloscpack._check.scan import Chain
from bloscpack._format.sections import FREE

EXTENTS = [30, 40, 30, 40, 50, 30, 40, 60]


def table_of(extents, start=100):
    """Return an offset table; the last of the extents is not in it."""
    return [start + sum(extents[:i]) for i in range(len(extents))]


def chain(extents, last_size=50, start=7):
    """Return adjacent chunks of these extents and of 50 plain bytes."""
    made = Chain(start)
    for extent in extents:
        made.offsets.append(made.stop)
        made.sizes.append(50)
        made.stop += extent
    made.sizes[-1] = last_size
    return made


def evidence_of(entries, last=20, **fields):
    return Evidence(
        size=10**6,
        base=32,
        first=100,
        entries=entries,
        chunk_size=50,
        last_chunk=last,
        **fields,
    )


@pytest.mark.parametrize(
    ("extents", "number", "expected"),
    [
        ([50], 4, True),
        ([30], 0, False),  # three chunks have this extent
        ([50], 5, False),
        ([60], 7, False),  # the table does not state the extent of the last chunk
    ],
)
def test_extent_that_the_table_has_once(extents, number, expected):
    evidence = evidence_of(table_of(EXTENTS))
    assert expected == evidence.is_unique(chain(extents), 0, number)


@pytest.mark.parametrize("confirmed", [True, False])
def test_last_chunk_is_known_by_its_plain_size(confirmed):
    evidence = evidence_of(table_of(EXTENTS), count_confirmed=confirmed)
    assert confirmed == evidence.is_unique(chain([60], 20), 0, 7)


def test_damaged_entry_makes_no_extent_unique():
    entries = table_of(EXTENTS)
    entries[6] = FREE
    evidence = evidence_of(entries)
    assert evidence.extent(5) is evidence.extent(6) is None
    assert evidence.fits(chain([99]), 0, 5)
    assert not evidence.matches(chain([99]), 0, 5)
    assert not evidence.is_unique(chain([50]), 0, 4)


@pytest.mark.parametrize("kinds", [1, 2, 5, 1000])
def test_place_of_a_chain_is_found(kinds):
    pick = random.Random(kinds)
    told = [pick.randrange(100, 100 + kinds) for _ in range(500)]
    evidence = evidence_of(table_of(told))
    for length in range(1, 20):
        at = pick.randrange(470)
        moved = chain(told[at : at + length], start=evidence.entries[at] + 3)
        assert kinds < 5 or at == evidence.best_number(moved, 0) or length < 3


def test_no_table():
    evidence = evidence_of(())
    assert evidence.best_number(chain([30]), 0) is None
    assert not evidence.matches(chain([30]), 0, 0)


class Watched(list):
    """Counts the items that are looked at."""

    looked_at = 0

    def __getitem__(self, key):
        found = super().__getitem__(key)
        self.looked_at += len(found) if isinstance(key, slice) else 1
        return found


@pytest.mark.full
@pytest.mark.parametrize("found", [[30, 40], [30, 30, 40], [30] * 17 + [40]])
def test_work_is_linear_for_many_chains_and_equal_extents(found):
    looked_at = []
    for count in (500, 1000):
        table = Watched(table_of([30] * count))
        evidence = evidence_of(table)
        for i in range(count):
            evidence.best_number(chain([*found[:-1], 40 + i], start=i), 0)
        looked_at.append(table.looked_at)
    assert looked_at[1] < 2.3 * looked_at[0]
