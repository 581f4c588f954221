"""What an index of an array selects, and which part of which chunk holds it.

Flow: an index of NumPy → the positions on each axis (`ItemSelection`) → for each chunk,
the index of its items in the result and in the chunk (`ItemSelection.parts`).

The index means what NumPy defines. Errors are those of NumPy, raised by NumPy: it gets
the same index for an array of the same shape whose items have no bytes.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from copy import copy
from itertools import pairwise
from math import prod
from typing import Any

import numpy

from .._format.array_metadata import new_array
from .._format.dtypes import Array, DType, scalar
from .._format.grid import Grid, Shape, strides

# The positions on an axis; an index of NumPy for one axis.
Axis = range | Array
Index = slice | Array

# A part of a chunk: the number of the chunk; the index of its items among the collected
# items; their index in the chunk, whose joint axes were moved to the front.
Part = tuple[int, tuple[Index, ...], tuple[Index, ...]]

# An item without bytes: NumPy indexes an array of them, but reads nothing.
NOTHING: Array = numpy.ndarray((), "V0", b"")
# No positions.
NONE = range(0)


class Outer(tuple[object, ...]):
    """An index of which each entry selects on its axis by itself, as in ``oindex``."""


class ItemSelection:
    """The items that an index selects of an array of a shape.

    Selected items are *collected* in an array that has an axis for each axis of the
    array. Index arrays that select item by item, such as ``a[[1, 2], [3, 4]]``, have
    one axis for all of them instead, in front. The axes of the array that they select
    on are *joint*. Index arrays that share no axis of the result, as those of
    `numpy.ix_`, are not.

    Attributes
    ----------
    axes
        The selected positions on each axis: a range that ascends, or an array of
        positions in any order. Of joint axes, the coordinates of the points.
    joint, others
        The numbers of the joint axes, and those of the others.
    counts
        The shape of the collected items.
    shape
        The shape of the result.
    """

    counts: Shape
    shape: Shape

    def __init__(self, key: object, shape: Shape) -> None:
        is_outer = isinstance(key, Outer)
        given = key if isinstance(key, tuple) else (key,)
        entries = [entry_of(entry) for entry in given]
        nfull, nellipses, has_arrays = len(shape), 0, False
        for entry in entries:
            nfull -= count_axes(entry)
            nellipses += entry is Ellipsis
            has_arrays = has_arrays or isinstance(entry, numpy.ndarray)
        if nfull < 0 or nellipses > 1:
            _check(tuple(entries) if is_outer else key, shape)
        elif has_arrays and not is_outer:
            _check_arrays(given, entries, shape, nfull)
        # With an ellipsis, the result is an array even without axes.
        self._is_scalar = not nellipses
        if not nellipses:
            entries.append(Ellipsis)
        self.axes: list[Axis] = []
        self.joint: list[int] = []
        # The axes of the result: the number of an axis of the array; -1 - j for axis j
        # of the index arrays; None for an axis that the array does not have.
        self._dims: list[int | None] = []
        self._reversed: list[int] = []  # axes whose range descended
        arrays: list[tuple[int | None, Array]] = []  # each with the axis it selects on
        numbers: list[int] = []  # of the entries that are integers and arrays
        first = 0  # where the axes of index arrays belong
        for number, entry in enumerate(entries):
            axis = len(self.axes)
            if entry is None:
                self._dims.append(None)
            elif entry is Ellipsis:
                self._dims += range(axis, axis + nfull)
                self.axes += map(range, shape[axis : axis + nfull])
            elif isinstance(entry, slice):
                self._dims.append(axis)
                self.axes.append(NONE)
                self._set(axis, range(*entry.indices(shape[axis])))
            else:
                first = first if numbers else len(self._dims)
                numbers.append(number)
                if isinstance(entry, int):
                    n = shape[axis]
                    if not -n <= entry < n:
                        short = (1,) * axis + shape[axis : axis + 1]
                        _check((*[slice(None)] * axis, entry), short)
                    start = entry % max(1, n)
                    self.axes.append(range(start, start + 1))
                elif is_outer:
                    self._dims.append(axis)
                    self.axes.append(NONE)
                    self._set(axis, _outer_positions(entry, axis, shape))
                elif entry.dtype.kind == "b" and not entry.ndim:  # it has no axis
                    arrays.append((None, numpy.zeros(int(entry), numpy.intp)))
                elif entry.dtype.kind == "b":
                    for positions in entry.nonzero():
                        arrays.append((len(self.axes), positions))
                        self.axes.append(NONE)
                else:
                    arrays.append((axis, _positive(entry, shape[axis])))
                    self.axes.append(NONE)
        # NumPy puts the axes of arrays in front if they are not neighbours. It treats
        # integers beside an array as arrays.
        apart = bool(numbers) and numbers[-1] - numbers[0] >= len(numbers)
        self._combine(arrays, 0 if apart else first)
        if 0 in self.shape and 0 not in self.counts:  # False selects nothing
            self.counts = (0,) * max(1, len(self.counts))

    def _set(self, axis: int, positions: Axis) -> None:
        """Set the positions on an axis; a range becomes an ascending one."""
        if isinstance(positions, range) and positions.step < 0:
            self._reversed.append(axis)
            positions = positions[::-1]
        self.axes[axis] = positions

    def _combine(self, arrays: Sequence[tuple[int | None, Array]], first: int) -> None:
        """Set the positions of index arrays, the shapes, and how axes correspond.

        The axes of the arrays are number `first` and the next ones of the result.
        """
        joint_shape: Shape = ()
        own: dict[int, list[int]] = {}  # axes of the result that an array is split into
        if arrays:
            joint_shape = numpy.broadcast_shapes(*(array.shape for _, array in arrays))
            ndim = len(joint_shape)
            self._dims[first:first] = range(-1, -1 - ndim, -1)
            longer = [
                [-1 - j for j, n in enumerate(a.shape, ndim - a.ndim) if n != 1]
                for _, a in arrays
            ]
            used = [dim for dims in longer for dim in dims]
            is_joint = len(used) > len(set(used))
            for (axis, array), dims in zip(arrays, longer, strict=True):
                if axis is None:
                    continue
                if is_joint and dims:
                    self.joint.append(axis)
                    self.axes[axis] = numpy.broadcast_to(array, joint_shape).reshape(-1)
                else:
                    own[axis] = dims
                    self._set(axis, _equally_spaced(array.reshape(-1)))
        self.others = [i for i in range(len(self.axes)) if i not in self.joint]
        self.counts = tuple(len(self.axes[i]) for i in self.others)
        lengths = dict(zip(self.others, self.counts, strict=True))
        split = [d for i in self.others for d in own.get(i, [i]) if d in self._dims]
        if arrays:
            lengths |= {-1 - j: n for j, n in enumerate(joint_shape)}
            if self.joint:
                self.counts = (prod(joint_shape), *self.counts)
                split[:0] = range(-1, -1 - len(joint_shape), -1)
        self.shape = tuple([1 if dim is None else lengths[dim] for dim in self._dims])
        # The axes of the collected items, split, and their order in the result.
        self._split = tuple(lengths[dim] for dim in split)
        self._moved = [split.index(dim) for dim in self._dims if dim in split]
        self._is_moved = self._moved != list(range(len(split)))

    def with_inner(self, inner: Shape) -> ItemSelection:
        """Return the same selection of an array that has more axes behind, in full."""
        if not inner:
            return self
        larger, ndim = copy(self), len(self.axes)
        larger.axes = [*self.axes, *map(range, inner)]
        larger.others = [*self.others, *range(ndim, ndim + len(inner))]
        larger.counts = self.counts + inner
        return larger

    def in_order(self, items: Any) -> Any:
        """Return a view of collected items with ascending ranges, as `parts` has them.

        The axes of ranges that descend in the index are reversed.
        """
        if not self._reversed:
            return items
        index = [slice(None)] * len(self.counts)
        for axis in self._reversed:
            index[bool(self.joint) + self.others.index(axis)] = slice(None, None, -1)
        return items[(*index,)]

    def finish(self, items: Array) -> Any:
        """Return the result: an array, or a scalar if integers select a single item.

        `items` are the collected items, which may have more axes behind.
        """
        inner = items.shape[len(self.counts) :]
        if not items.size:
            return new_array(self.shape + inner, items.dtype)
        if self._is_moved:
            items = items.reshape(self._split + inner)
            items = items.transpose(*self._moved, *range(len(self._split), items.ndim))
        result = items.reshape(self.shape + inner)
        return scalar(result) if self._is_scalar and not result.ndim else result

    def spread(self, values: Array) -> Array:
        """Return values to be assigned as the items are collected, and `in_order`.

        They are broadcast to the shape of the result. Raises ``ValueError``, as NumPy
        does, if that is impossible.
        """
        if values.ndim == 0:
            return numpy.broadcast_to(values, self.counts)
        while values.ndim > len(self.shape) and values.shape[0] == 1:
            values = values.reshape(values.shape[1:])  # no scalar: text keeps its size
        try:
            items = numpy.broadcast_to(values, self.shape)
        except ValueError:
            raise ValueError(
                "could not broadcast input array from shape %s into shape %s"
                % (values.shape, self.shape)
            ) from None
        if not items.size:
            return new_array(self.counts, values.dtype)
        if self._is_moved:
            items = items.reshape([self._split[i] for i in self._moved])
            items = items.transpose(numpy.argsort(self._moved))
        ordered: Array = self.in_order(items.reshape(self.counts))
        return ordered

    def parts(self, grid: Grid) -> list[Part]:
        """Return the parts of the chunks of a grid, by ascending number.

        The index of a part among the collected items is for items `in_order`.
        """
        if not prod(self.counts):
            return []
        # The number of a chunk is the sum of the numbers that its axes give.
        shard_steps = [n * grid.slots for n in strides(grid.counts)]
        slot_steps = strides(grid.per_shard)

        def number_of(axis: int, index: Any) -> Any:
            n = grid.per_shard[axis]
            return index // n * shard_steps[axis] + index % n * slot_steps[axis]

        cuts: list[list[Part]] = []
        points: list[Part] = []
        if self.joint:
            # A grid of a huge array may have more chunks than an integer of NumPy.
            is_huge = grid.nshards * grid.slots > numpy.iinfo(numpy.intp).max
            kind = numpy.dtype(object if is_huge else numpy.intp)
            numbers: Array = numpy.zeros(self.counts[0], kind)
            for i in self.joint:
                index = numpy.asarray(self.axes[i]) // grid.chunk[i]
                numbers += number_of(i, index.astype(kind, copy=False))
            for number, to in _grouped(numbers):
                of = [
                    numpy.asarray(self.axes[i])[to] % grid.chunk[i] for i in self.joint
                ]
                points.append((number, (to,), tuple(of)))
            cuts.append(points)
        for i in self.others:
            pieces = _cut(self.axes[i], grid.chunk[i])
            cuts.append([(number_of(i, n), (to,), (of,)) for n, to, of in pieces])
        parts: list[Part] = [(0, (), ())]
        for along in reversed(cuts):
            parts = [
                (number + n, to + inner_to, of + inner_of)
                for number, to, of in along
                for n, inner_to, inner_of in parts
            ]
        if len(cuts) > 1 and not all(isinstance(axis, range) for axis in self.axes):
            parts = [self._combined(part) for part in parts]
        parts.sort(key=operator.itemgetter(0))
        return parts

    def _combined(self, part: Part) -> Part:
        """Return a part whose indexes have no arrays that NumPy would combine."""
        number, target, source = part
        if count_arrays(target) > 1:
            target = outer(target, 1)
        njoint = len(self.joint)
        if count_arrays(source) > max(1, njoint):
            source = outer(source, njoint)
        return number, target, source


def split_names(key: Any, dtype: DType) -> tuple[Any, Any]:
    """Return the fields that an index selects, or None for all, and its other entries.

    Raises the error of NumPy for a name that no field has.
    """
    if dtype.names is None:
        return None, key
    entries = key if isinstance(key, tuple) else (key,)
    numbers = [i for i, entry in enumerate(entries) if is_names(entry)]
    if len(numbers) != 1:
        return None, key
    (i,) = numbers
    numpy.empty(0, dtype)[entries[i]]
    rest = (*entries[:i], *entries[i + 1 :])
    return entries[i], type(key)(rest) if rest else ...


def is_names(key: object) -> bool:
    """Return whether an entry of an index selects fields: a name or a list of names."""
    names = [key] if isinstance(key, str) else key
    return (
        isinstance(names, list)
        and bool(names)
        and all(isinstance(name, str) for name in names)
    )


# Entries of an index


def entry_of(entry: Any) -> Any:
    """Return an entry of an index as None, ``...``, a slice, an integer or an array."""
    is_plain = type(entry) is int or entry is None or entry is Ellipsis
    if is_plain or isinstance(entry, slice):
        return entry
    if not isinstance(entry, (bool, numpy.bool_)):
        try:
            return operator.index(entry)
        except TypeError:
            pass
    array: Array = numpy.asarray(entry)
    if not array.size and not isinstance(entry, numpy.ndarray):
        array = array.astype(numpy.intp)  # an empty list is one of integers
    return array


def count_axes(entry: object) -> int:
    """Return the number of axes that an entry selects on; 0 for an ellipsis."""
    if isinstance(entry, numpy.ndarray) and entry.dtype.kind == "b":
        return entry.ndim
    return int(entry is not None and entry is not Ellipsis)


def _check(key: Any, shape: Shape) -> None:
    """Raise the error of NumPy for an index, if it has one."""
    numpy.broadcast_to(NOTHING, shape)[key]


def _check_arrays(
    given: Sequence[Any], entries: Sequence[Any], shape: Shape, nfull: int
) -> None:
    """Raise the error of NumPy for an index with arrays, if it has one.

    NumPy visits all items that are selected. So the axes that slices select on are as
    short as possible. `nfull` is the number of axes of an ellipsis.
    """
    key: list[Any] = []
    short: list[int] = []
    for raw, entry in zip(given, entries, strict=True):
        axis = len(short)
        if entry is Ellipsis:
            short += [min(n, 1) for n in shape[axis : axis + nfull]]
        elif isinstance(entry, slice):
            short.append(min(len(range(*entry.indices(shape[axis]))), 1))
            raw = slice(None)
        else:
            short += shape[axis : axis + count_axes(entry)]
        key.append(raw)
    short += [min(n, 1) for n in shape[len(short) :]]
    _check(tuple(key), tuple(short))


def _positive(positions: Array, length: int) -> Array:
    """Return positions on an axis without those that count from its end."""
    positions = positions.astype(numpy.intp)
    return numpy.where(positions < 0, positions + length, positions)


def _outer_positions(entry: Array, axis: int, shape: Shape) -> Axis:
    """Return the positions that an entry of an outer index selects on an axis.

    Raises ``IndexError`` if the entry selects none.
    """
    if entry.ndim != 1 and entry.dtype.kind in "biu":
        raise IndexError(
            "each array of an outer index must have one axis, not %d" % entry.ndim
        )
    _check((*[slice(None)] * axis, entry), (1,) * axis + shape[axis : axis + 1])
    if entry.dtype.kind == "b":
        entry = numpy.flatnonzero(entry)
    return _equally_spaced(_positive(entry, shape[axis]))


def _equally_spaced(positions: Array) -> Axis:
    """Return positions, as a range if they are equally spaced."""
    count = len(positions)
    first = int(positions[0]) if count else 0
    if count < 2:
        return range(first, first + count)
    step, last = int(positions[1]) - first, int(positions[-1])
    if not step or last - first != step * (count - 1):
        return positions
    is_spaced = (positions[:-1] + step == positions[1:]).all()
    return range(first, first + step * count, step) if is_spaced else positions


# Cutting


def _cut(axis: Axis, size: int) -> Iterator[tuple[int, Index, Index]]:
    """Yield the index of each chunk, and those of its positions in axis and chunk."""
    if not isinstance(axis, range):
        numbers, inside = numpy.divmod(axis, size)
        for index, of in _grouped(numbers):
            positions = inside[of]
            is_one = len(positions) == 1  # NumPy copies a slice faster
            first = int(positions[0])
            yield index, of, slice(first, first + 1, 1) if is_one else positions
        return
    start, step, count, i = axis.start, axis.step, len(axis), 0
    while i < count:
        position = start + i * step
        index = position // size
        low = index * size
        j = min(count, -((start - low - size) // step))
        source = slice(position - low, start + (j - 1) * step - low + 1, step)
        yield index, slice(i, j), source
        i = j


def _grouped(numbers: Array) -> Iterator[tuple[int, Index]]:
    """Yield each number, ascending, and the index of its occurrences."""
    order = None
    if (numbers[1:] < numbers[:-1]).any():
        order = numpy.argsort(numbers, kind="stable")
        numbers = numbers[order]
    starts = [0, *(numpy.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist()]
    ends = pairwise([*starts, len(numbers)])
    for number, (start, stop) in zip(numbers[starts].tolist(), ends, strict=True):
        yield number, slice(start, stop) if order is None else order[start:stop]


def count_arrays(index: tuple[Index, ...]) -> int:
    """Return the number of entries that are arrays."""
    return sum([type(entry) is not slice for entry in index])


def outer(index: tuple[Index, ...], njoint: int = 0) -> tuple[Index, ...]:
    """Return an index whose arrays select on an axis of the result each.

    NumPy would combine the items of several arrays. The first `njoint` entries are
    arrays that select on one axis of the result together.
    """
    entries: list[Index] = []
    nleft = len(index) - njoint  # axes behind the one of the entry
    for number, entry in enumerate(index):
        if number >= njoint:
            nleft -= 1
        if isinstance(entry, slice):
            entry = numpy.arange(entry.start, entry.stop, entry.step or 1)
        entries.append(entry.reshape((-1, *[1] * nleft)))
    return tuple(entries)
