"""Which chunks of a grid hold selected items, and which part of each chunk they are.

A selection is one `Steps` or `PositionList` for each axis of the array, or for several
neighbouring ones: see `indexing`. Each entry is cut where a chunk ends. The
selected items of a chunk are a part of each entry, so that one assignment of NumPy
copies them. The number of a chunk is the sum of one number for each entry.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby, product
from typing import Any, NamedTuple

import numpy

from .._format.dtypes import Array
from .._format.grid import Grid, strides
from .indexing import Piece, PositionList, Steps, independent


class AxisPart(NamedTuple):
    """The part of an entry that is in the chunks at some positions along its axes.

    Attributes
    ----------
    number
        The number that this part adds to the number of a chunk.
    target
        The index of the part in the selected items.
    source
        Its index in a chunk, for each of the axes.
    """

    number: int
    target: slice | Array
    source: tuple[slice | Array, ...]


# The index of some selected items, and the index of the same items in a chunk.
Part = tuple[tuple["slice | Array", ...], tuple["slice | Array", ...]]


class ChunkParts:
    """The parts of chunks that a selection has, for `Filling` as a `Region` has them.

    The cells are the items of the padded chunks, one chunk behind the other.
    """

    def __init__(self, axes: Sequence[Steps | PositionList], grid: Grid) -> None:
        self.grid = grid
        self.axes = axes
        self.shape = tuple(axis.count for axis in axes)
        self._entries: list[list[AxisPart]] = []
        self._spans: list[slice] = []
        first = 0
        for axis in axes:
            span = slice(first, first + len(axis.shape))
            self._spans.append(span)
            self._entries.append(list(_cut(axis, grid, span)))
            first = span.stop
        # The parts of the entries that are in each chunk, by its number.
        self._chunks: dict[int, tuple[AxisPart, ...]] = {}

    def numbers(self) -> list[int]:
        """Return the numbers of the chunks, ascending; `of` knows them from then on."""
        found = (parts for shard in self.shards() for parts in product(*shard))
        self._chunks = {sum(each.number for each in parts): parts for parts in found}
        return list(self._chunks)

    def shards(self) -> Iterator[tuple[list[AxisPart], ...]]:
        """Yield the parts of each entry that are in the same shard, shard by shard."""
        slots = self.grid.slots
        entries = [
            [list(found) for _, found in groupby(e, lambda part: part.number // slots)]
            for e in self._entries
        ]
        yield from product(*entries)

    def parts(self, shard: tuple[list[AxisPart], ...]) -> Iterator[tuple[int, Part]]:
        """Yield the number of each chunk of a shard, ascending, and its part."""
        for found in product(*shard):
            yield sum(each.number for each in found), self._joined(found)

    def of(self, number: int) -> Part:
        """Return the part of a chunk."""
        return self._joined(self._chunks[number])

    def pieces(self, start: int, stop: int) -> Iterator[Piece]:
        """Yield the selected part of a chunk, which has the cells from `start` on."""
        chunk = self.grid.chunk
        target, source = self.of(start // math.prod(chunk))
        yield target, 0, chunk, source

    def _joined(self, found: Sequence[AxisPart]) -> Part:
        target = independent(tuple(each.target for each in found), self.shape)
        sources = [each.source for each in found]
        if sum(not isinstance(source[0], slice) for source in sources) < 2:
            return target, tuple(index for source in sources for index in source)
        # NumPy would combine the items of arrays of different entries.
        index: list[Array] = []
        for number, span in enumerate(self._spans):
            shape = (-1, *[1] * (len(sources) - number - 1))
            pairs = zip(self.grid.chunk[span], sources[number], strict=True)
            index += (numpy.arange(n)[i].reshape(shape) for n, i in pairs)
        return target, tuple(index)


def _cut(axis: Steps | PositionList, grid: Grid, span: slice) -> Iterator[AxisPart]:
    """Yield the parts of an entry, in the order of the numbers of the chunks."""
    chunk, per_shard = grid.chunk[span], grid.per_shard[span]
    shard_step = strides(grid.counts)[span]
    slot_step = strides(grid.per_shard)[span]

    def part(indexes: Sequence[int], target: Any, source: tuple[Any, ...]) -> AxisPart:
        number = 0
        pairs = zip(indexes, per_shard, shard_step, slot_step, strict=True)
        for index, count, of_shard, of_slot in pairs:
            number += index // count * of_shard * grid.slots + index % count * of_slot
        return AxisPart(number, target, source)

    if len(axis.shape) == 1:
        done, size = 0, chunk[0]
        while done < axis.count:
            i = axis.at(done) // size
            stop = axis.count_before((i + 1) * size)
            index = axis.source(done, stop, i * size)
            yield part((i,), axis.target(done, stop), (index,))
            done = stop
        return
    assert isinstance(axis, PositionList)
    where = axis.coordinates()
    indexes = [i // n for i, n in zip(where, chunk, strict=True)]
    # Sorted by shard, then by chunk, and in the same chunk by position.
    keys = [i % n for i, n in zip(indexes, per_shard, strict=True)][::-1]
    keys += [i // n for i, n in zip(indexes, per_shard, strict=True)][::-1]
    order = numpy.lexsort(keys)
    same = numpy.ones(len(order), bool)
    for key in keys:
        same[1:] &= key[order][1:] == key[order][:-1]
    same[:1] = False
    for group in numpy.split(order, numpy.flatnonzero(~same)[1:]):
        if len(group):
            first = [int(i[group[0]]) for i in indexes]
            source = tuple(
                i[group] - j * n for i, j, n in zip(where, first, chunk, strict=True)
            )
            yield part(first, axis.targets(group), source)
