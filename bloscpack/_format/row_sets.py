"""Sets of rows: disjoint ranges [start, stop) in ascending order.

Pure functions; a set is a list of pairs, and is never changed.
"""

from __future__ import annotations

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterable

    Range = tuple[int, int]
    Rows = list[Range]


def union(ranges: Iterable[Range]) -> Rows:
    """Return the rows of all ranges, which may overlap."""
    found: Rows = []
    for start, stop in sorted(ranges):
        if start >= stop:
            continue
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(stop, found[-1][1])
        else:
            found.append((start, stop))
    return found


def without(rows: Rows, removed: Rows) -> Rows:
    """Return the rows of a set that are not in another set."""
    found: Rows = []
    i = 0
    for begin, stop in rows:
        start = begin
        while i < len(removed) and removed[i][1] <= start:
            i += 1
        j = i
        while j < len(removed) and removed[j][0] < stop:
            if start < removed[j][0]:
                found.append((start, removed[j][0]))
            start = max(start, removed[j][1])
            j += 1
        if start < stop:
            found.append((start, stop))
    return found


def common(rows: Rows, others: Rows) -> Rows:
    """Return the rows that are in both sets."""
    return without(rows, without(rows, others))


def count(rows: Rows) -> int:
    """Return the number of rows."""
    return sum(stop - start for start, stop in rows)


def text_of(rows: Rows, most: int = 8) -> str:
    """Return rows as text: ``rows 0 to 9, 20``; it names at most `most` ranges."""
    parts = [
        str(start) if stop - start == 1 else "%d to %d" % (start, stop - 1)
        for start, stop in rows[:most]
    ]
    if len(rows) > most:
        parts.append("and %d more ranges" % (len(rows) - most))
    return "row%s %s" % ("s" * (count(rows) != 1), ", ".join(parts))
