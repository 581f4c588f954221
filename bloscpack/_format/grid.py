"""How an array is cut into chunks, and these into shards, in every axis: arithmetic.

::

    chunk n is chunk n % slots of shard n // slots
    shards are numbered in C order, and so are the chunks of a shard

A shard at the end of an axis has the chunks that hold items of the array, no others. If
only the first axis is cut, the chunks are *rows*, with the numbers 0, 1, 2 ….
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product

# Maximum number of chunks of a shard that is cut along other axes than the first one:
# their numbers are listed, and the index has 16 bytes for each.
MAX_SLOTS = 2**20

Shape = tuple[int, ...]
Box = tuple[slice, ...]


class Grid:
    """The chunks and shards of an array.

    Parameters
    ----------
    shape
        The shape of the array.
    chunk
        The shape of a chunk; no axis has the length 0.
    per_shard
        Number of chunks of a shard along each axis; by default one.

    Attributes
    ----------
    shard, slots
        The shape of a shard, and its number of chunks.
    counts, nshards
        Number of shards along each axis, and of all.
    is_rows
        Whether only the first axis is cut.
    """

    def __init__(
        self, shape: Shape, chunk: Shape, per_shard: Shape | None = None
    ) -> None:
        self.shape = shape
        self.chunk = chunk
        self.per_shard = (1,) * len(chunk) if per_shard is None else per_shard
        pairs = zip(chunk, self.per_shard, strict=True)
        self.shard = tuple([n * count for n, count in pairs])
        self.slots = math.prod(self.per_shard)
        self.counts = cut(shape, self.shard)
        self.nshards = math.prod(self.counts)
        self._inner_corner = (0,) * (len(shape) - 1)
        is_whole = chunk[1:] == tuple([max(1, n) for n in shape[1:]])
        self.is_rows = bool(shape) and is_whole and self.shard[1:] == chunk[1:]

    @classmethod
    def of_rows(cls, shape: Shape, rows: int, slots: int = 1) -> Grid:
        """Return the grid of an array that is cut into chunks of whole rows."""
        inner = tuple(max(1, n) for n in shape[1:])
        return cls(shape, (rows, *inner), (slots, *(1 for _ in inner)))

    def resized(self, shape: Shape) -> Grid:
        """Return the same chunks and shards for an array of another shape."""
        return Grid(shape, self.chunk, self.per_shard)

    # Numbers to positions

    def corner(self, number: int) -> Shape:
        """Return the position of the first item of a chunk."""
        if self.is_rows:
            return (number * self.chunk[0], *self._inner_corner)
        shard, slot = divmod(number, self.slots)
        pairs = zip(
            digits(shard, self.counts),
            digits(slot, self.per_shard),
            self.per_shard,
            self.chunk,
            strict=True,
        )
        return tuple((i * count + j) * n for i, j, count, n in pairs)

    def number(self, position: Shape) -> int:
        """Return the number of the chunk that has the item at a position."""
        shard = slot = 0
        for i, n, count, nshards in zip(
            position, self.chunk, self.per_shard, self.counts, strict=True
        ):
            i, j = divmod(i // n, count)
            shard, slot = shard * nshards + i, slot * count + j
        return shard * self.slots + slot

    def position(self, index: Shape) -> int:
        """Return the position of an item in the chunks, which are all of full size."""
        position = self.number(index)
        for i, n in zip(index, self.chunk, strict=True):
            position = position * n + i % n
        return position

    def box(self, number: int) -> Box:
        """Return the part of the array that is in a chunk; empty if there is none."""
        return part(self.corner(number), self.chunk, self.shape)

    def shard_box(self, shard: int) -> Box:
        """Return the part of the array that is in a shard."""
        return part(self.corner(shard * self.slots), self.shard, self.shape)

    def described(self, box: Box) -> str:
        """Return words for a part of the array."""
        if self.is_rows:
            return "rows %d to %d" % (box[0].start, box[0].stop)
        return "items [%s]" % ", ".join("%d:%d" % (s.start, s.stop) for s in box)

    # Positions to numbers

    def chunks_of(self, shard: int, shape: Shape | None = None) -> Sequence[int]:
        """Return the numbers of the chunks of a shard, in their order in the file.

        `shape` is the shape of the items in the shard, if the file has more or fewer
        items than the array has there.
        """
        if shape is None:
            shape = lengths(self.shard_box(shard))
        first = shard * self.slots
        counts = cut(shape, self.chunk)
        if counts[1:] == self.per_shard[1:]:
            return range(first, first + math.prod(counts))
        steps = strides(self.per_shard)
        return [
            first + sum(map(int.__mul__, index, steps))
            for index in product(*map(range, counts))
        ]

    def count_grown(self, old: Shape) -> int:
        """Return the number of shards that an array of the shape `old` has less of."""
        same = 1
        for n, before, size, count in zip(
            self.shape, old, self.shard, self.counts, strict=True
        ):
            same *= count if n <= before else before // size
        return self.nshards - same

    @property
    def nchunks(self) -> int:
        """Number of chunks."""
        return math.prod(cut(self.shape, self.chunk))


def cut(shape: Shape, size: Shape) -> Shape:
    """Return the number of parts of a size along each axis."""
    return tuple([-(-n // m) for n, m in zip(shape, size, strict=True)])


def strides(counts: Shape) -> list[int]:
    """Return the distances in C order of neighbours along each axis."""
    return [math.prod(counts[i + 1 :]) for i in range(len(counts))]


def digits(number: int, counts: Shape) -> Shape:
    """Return the position of an item that has a number in C order.

    The first axis may have any length.
    """
    from_last = []
    for count in counts[:0:-1]:
        number, digit = divmod(number, count or 1)
        from_last.append(digit)
    return (number, *from_last[::-1]) if counts else ()


def boxes_of(first: int, stop: int, counts: Shape) -> Iterator[tuple[int, int]]:
    """Yield the first and the last number of boxes that numbers in C order consist of.

    There are less than twice as many as axes.
    """
    while first < stop:
        size = count = 1
        for count in reversed(counts):
            if first % (size * count) or first + size * count > stop:
                break
            size *= count
        last = first + size * min((stop - first) // size, count - first // size % count)
        yield first, last - 1
        first = last


def part(corner: Shape, size: Shape, shape: Shape) -> Box:
    """Return the part of a box that is inside an array."""
    pairs = zip(corner, size, shape, strict=True)
    return tuple([slice(min(i, n), min(i + length, n)) for i, length, n in pairs])


def lengths(box: Box) -> Shape:
    """Return the shape of a box."""
    return tuple([each.stop - each.start for each in box])


def inside(box: Box, corner: Shape) -> Box:
    """Return a box relative to a corner."""
    return tuple(
        slice(each.start - start, each.stop - start)
        for each, start in zip(box, corner, strict=True)
    )
