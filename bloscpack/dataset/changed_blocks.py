"""The chunks of an array that change when items are assigned or appended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy

from .._arrays.selection import ItemSelection, Part
from .._format.dtypes import AnyArray, Array, DType
from .._format.grid import Box, Grid, Shape, inside, lengths
from .._format.grid import part as part_of
from .items import converted

if TYPE_CHECKING:
    from .layouts.base import Blocks

Read = Callable[[Box], Array]


class NewState(NamedTuple):
    """What a change makes of an array.

    Attributes
    ----------
    grid
        How the array will be cut; the first axis may become longer.
    blocks
        The numbers of chunks, ascending, and all their items. In a layout of which
        fields have files of their own, they may have some of the fields: only these
        change.
    extends
        Whether the chunks have the items that they have now at the same positions, so
        that the old state remains readable with the new files.
    shape
        Returns the shape, when all blocks are written; None for that of `grid`.
    """

    grid: Grid
    blocks: Blocks
    extends: bool
    shape: Callable[[], Shape] | None = None


def changed_blocks(
    grid: Grid,
    selection: ItemSelection,
    items: Any,
    read: Read | None,
    old: Shape | None = None,
    dtype: DType | None = None,
    parts: Sequence[Part] | None = None,
) -> Blocks:
    """Yield the chunks that change when the selected items become `items`.

    Parameters
    ----------
    grid
        How the array is cut after the change.
    selection
        The selected items.
    items
        The new items, as `ItemSelection.spread` returns them.
    read
        Returns the items of a box that stay; None if no items stay.
    old
        The shape of the array that `read` reads; by default that of `grid`.
    dtype
        If it is given, `items` are converted to it, a box for each shard. So they may
        be an array that is not in memory.
    parts
        The parts of the selection that change; by default all.
    """
    order = selection.joint + selection.others
    old = grid.shape if old is None else old
    parts = selection.parts(grid) if parts is None else parts
    for _, of_shard in groupby(parts, lambda part: part[0] // grid.slots):
        group, given, corner = list(of_shard), items, None
        if dtype is not None:
            targets: Any = zip(*(to for _, to, _ in group), strict=True)
            ends = [(min(s.start for s in t), max(s.stop for s in t)) for t in targets]
            corner = tuple(start for start, _ in ends)
            box = tuple(slice(*pair) for pair in ends)
            given = converted(items[box], dtype)
        for number, target, source in group:
            if corner is not None:
                target = inside(target, corner)  # type: ignore[arg-type]
            shape = lengths(grid.box(number))
            is_box = all(isinstance(i, slice) for i in source)
            if is_box and source == tuple(slice(0, n, 1) for n in shape):
                yield number, given[(*target, ...)]  # an array, also without axes
                continue
            block: Array = numpy.empty(shape, given.dtype)
            if read is not None:
                kept = part_of(grid.corner(number), grid.chunk, old)
                block[tuple(slice(0, n) for n in lengths(kept))] = read(kept)
            block.transpose(order)[source] = given[target]
            yield number, block


def blocks_of(
    rows: AnyArray,
    grid: Grid,
    first: int = 0,
    read: Read | None = None,
    dtype: DType | None = None,
) -> Blocks:
    """Yield the chunks that change when rows are put behind `first` rows.

    The array ends with them. `read` and `dtype` are as in `changed_blocks`. Without
    `read`, there is a chunk that begins with the first row.
    """
    inner = grid.shape[1:]
    grid = grid.resized((first + rows.shape[0], *inner))
    added = ItemSelection(slice(first, None), grid.shape)
    return changed_blocks(grid, added, rows, read, (first, *inner), dtype)
