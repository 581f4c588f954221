"""Rows of an array: the regular grid of its chunks, and sets of rows.

Zarr and Dask see arrays as blocks of a regular grid.

The chunks of a file are equal spans of the bytes of an array, in C or Fortran order.
They form a regular grid if each is a number of rows, or divides a row evenly.

A set of rows is a list of disjoint ranges [start, stop) in ascending order, which is
never changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from ..log import counted

Range = tuple[int, int]
Rows = list[Range]


# Maximum number of chunks in a block of `block_shape`.
MAX_CHUNKS_IN_BLOCK = 8


def block_shape(
    shape: tuple[int, ...], itemsize: int, chunk_size: int, order: str = "C"
) -> tuple[int, ...]:
    """Return the shape of blocks of an array that agree with chunks of `chunk_size`.

    A chunk of whole rows, or of an exact part of a row, is one block. Otherwise, a
    block has the smallest number of rows that fills whole chunks, if at most
    `MAX_CHUNKS_IN_BLOCK` chunks do, or else the rows of about one chunk. `order` is
    that of the array, "C" or "F".
    """
    if order == "F":
        return block_shape(shape[::-1], itemsize, chunk_size)[::-1]
    block = list(shape)
    for axis in range(len(shape)):
        row = math.prod(shape[axis + 1 :]) * itemsize
        if row and chunk_size >= row:
            common = math.lcm(row, chunk_size)
            most = MAX_CHUNKS_IN_BLOCK * chunk_size
            block[axis] = (common if common <= most else chunk_size) // row
            break
        block[axis] = 1
    return tuple(max(1, min(*pair)) for pair in zip(block, shape, strict=True))


def grid_chunk_shape(
    shape: tuple[int, ...], chunk_items: int, order: str = "C"
) -> tuple[int, ...] | None:
    """Return the shape of a chunk in a regular grid; None if the chunks form none.

    Each chunk has `chunk_items` items, only the last one may have fewer.
    """
    block = block_shape(shape, 1, chunk_items, order)
    axes = list(zip(shape, block, strict=True))
    fastest = axes[:-1] if order == "F" else axes[1:]
    is_chunk = math.prod(block) == min(chunk_items, math.prod(shape))
    return block if is_chunk and not any(n % size for n, size in fastest) else None


def union(ranges: Iterable[Range]) -> Rows:
    """Return the rows of all ranges, which may overlap."""
    rows: Rows = []
    for start, stop in sorted(ranges):
        if start >= stop:
            continue
        if rows and start <= rows[-1][1]:
            rows[-1] = rows[-1][0], max(stop, rows[-1][1])
        else:
            rows.append((start, stop))
    return rows


def without(rows: Rows, removed: Rows) -> Rows:
    """Return the rows of a set that are not in another set."""
    rest: Rows = []
    i = 0
    for begin, stop in rows:
        start = begin
        while i < len(removed) and removed[i][1] <= start:
            i += 1
        j = i
        while j < len(removed) and removed[j][0] < stop:
            if start < removed[j][0]:
                rest.append((start, removed[j][0]))
            start = max(start, removed[j][1])
            j += 1
        if start < stop:
            rest.append((start, stop))
    return rest


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
        parts.append("and " + counted(len(rows) - most, "more range"))
    return "row%s %s" % ("s" * (count(rows) != 1), ", ".join(parts))
