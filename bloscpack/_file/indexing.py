"""What an index of an array selects, and which chunks hold it, by arithmetic alone.

The index means what NumPy defines. Errors are those of NumPy, raised by NumPy: it gets
the same index for an array of the same shape whose items have no bytes.

The plain bytes are an array of cells in C order; a cell has one or more bytes. A chunk
is a span of consecutive cells. A span consists of boxes: partial rows at its beginning,
whole rows, and partial rows at its end, on at most ``2 * ndim - 1`` levels. A
selection, cut to a box, is a strided part of the box, so that one NumPy assignment
copies it. Items that two chunks share need no special case: their bytes are one more
axis.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy

from .._format.array_metadata import new_array
from .._format.dtypes import Array, DType, Key, check_text
from .._format.grid import strides

if TYPE_CHECKING:
    from .chunk_parts import ChunkParts

# An index of NumPy for each axis.
Index = tuple["slice | Array", ...]

# A part of a box, to be copied: the index of its cells in the target; the position
# of the first cell and the shape of the box; the index of the cells in the box. Both
# are complete indexes of NumPy, also with several arrays.
Piece = tuple[Index, int, tuple[int, ...], Index]

# Number of rows whose chunks are found together.
ROWS_AT_A_TIME = 4096
# Number of bytes that iterating over an array reads at a time.
ITERATION_NBYTES = 4 * 2**20


class Outer(tuple[object, ...]):
    """An index of which each entry selects on its axis by itself, as in ``oindex``."""


class OuterIndexing:
    """An array whose index selects on each axis by itself: ``array.oindex``."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def _key(self, key: Key) -> Any:
        return Outer(key if isinstance(key, tuple) else (key,))

    def __getitem__(self, key: Any) -> Any:
        return self._array[self._key(key)]

    def __setitem__(self, key: Any, values: Any) -> None:
        self._array[self._key(key)] = values


class PointIndexing(OuterIndexing):
    """An array whose index selects items one by one: ``array.vindex``."""

    def _key(self, key: Any) -> Any:
        entries = [_entry(e) for e in (key if isinstance(key, tuple) else (key,))]
        arrays = [isinstance(entry, (int, numpy.ndarray)) for entry in entries]
        if not all(arrays) or sum(map(_count_axes, entries)) != self._array.ndim:
            raise IndexError(
                "vindex: expected an array of integers for each of %d axes, or a mask "
                "of shape %s" % (self._array.ndim, self._array.shape)
            )
        return tuple(entries)


class StoredRows:
    """The members of rows in files that follow from shape, dtype and indexing."""

    if TYPE_CHECKING:

        @property
        def shape(self) -> tuple[int, ...]: ...
        @property
        def dtype(self) -> DType: ...
        def __getitem__(self, key: Any) -> Any: ...

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        """Number of bytes of an item."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Number of plain bytes of all items."""
        return prod(self.shape) * self.itemsize

    def __array__(self, dtype: DType | None = None, copy: bool | None = None) -> Array:
        """Return all items as an array of `dtype`; NumPy calls this."""
        if copy is False:
            raise ValueError("an array in a file can't be used without a copy")
        array: Array = numpy.asarray(self[...])
        return array if dtype is None else array.astype(dtype, copy=False)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        return self._rows_in_blocks()

    def _rows_in_blocks(self) -> Iterator[Any]:
        """Yield the rows, which are read in blocks of several rows."""
        row = prod(self.shape[1:]) * self.itemsize
        count = max(1, ITERATION_NBYTES // max(1, row))
        for start in range(0, self.shape[0], count):
            yield from self[start : start + count]


class StoredArray(StoredRows):
    """The same for an array that can be indexed in all ways of NumPy."""

    @property
    def size(self) -> int:
        """Number of items."""
        return prod(self.shape)

    @property
    def oindex(self) -> OuterIndexing:
        """Index each axis by itself, as in ``array.oindex[[0, 5], :, mask]``.

        An entry for an axis is an integer, a slice, or an array of integers or
        booleans with one axis.
        """
        return OuterIndexing(self)

    @property
    def vindex(self) -> OuterIndexing:
        """Index single items; ``array.vindex[[0, 5], [1, 2]]`` has (0, 1) and (5, 2).

        The index has integers or arrays of them for all axes, or it is a mask.
        """
        return PointIndexing(self)


def is_names(key: object) -> bool:
    """Return whether an entry of an index selects fields: a name or a list of names."""
    names = [key] if isinstance(key, str) else key
    return (
        isinstance(names, list)
        and bool(names)
        and all(isinstance(name, str) for name in names)
    )


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


class _Picked(NamedTuple):
    """The number of an index array, and the lengths of the axes that it selects on."""

    array: int
    lengths: tuple[int, ...]


class ArrayIndex:
    """An index that has been resolved for an array of a certain shape.

    Index arrays that select item by item get a *joint axis*: one axis in place of those
    of the array from the first to the last one that they select on. Arrays that share
    no axis of the result, as those of `numpy.ix_`, select on each axis by itself.

    Parameters
    ----------
    key
        The index.
    shape, order
        Those of the array. A position on a joint axis counts items in this order.

    Attributes
    ----------
    axes
        The selected positions on each axis of the array. A joint axis is a
        `PositionList`; its ``shape`` has the lengths of the axes that it replaces.
    shape
        The shape of the result.
    """

    def __init__(self, key: object, shape: tuple[int, ...], order: str = "C") -> None:
        self._key = key
        self._array_shape = shape
        self._order = order
        # What the entries select, in the order of the axes of the array.
        self._picks: list[Any] = []  # Steps or _Picked
        # Positions, for several axes in C order.
        self._arrays: list[Array] = []
        # The axes of the result: the number of a slice among `_picks`; -1 - j for axis
        # j of the index arrays; None for an axis that the array does not have.
        self._dims: list[int | None] = []
        lengths: list[int] = []
        entries = key if isinstance(key, tuple) else (key,)
        position = self._resolve([_entry(entry) for entry in entries], lengths)
        self.axes: list[Steps | PositionList] = self._picks
        if self._arrays:
            self._joint = self._broadcast()
            if not isinstance(key, Outer):
                lengths[position:position] = self._joint
                self._dims[position:position] = range(-1, -1 - len(self._joint), -1)
            self._combine(lengths)
        self.shape = tuple(lengths)

    def _combine(self, lengths: list[int]) -> None:
        """Set the axes, and the order that the axes of the result have in the items."""
        self.axes = []
        split = [dim for dim in self._add_axes() if dim in self._dims]
        # The axes of the items: their lengths, and their order in the result.
        self._split = tuple(lengths[self._dims.index(dim)] for dim in split)
        self._moved = [split.index(dim) for dim in self._dims if dim in split]
        if 0 in lengths and all(axis.count for axis in self.axes):
            # An entry that is False selects no items, but has no axis for that.
            self.axes = [Steps(n, 0, 1, 0) for n in self._array_shape or (1,)]

    def _resolve(self, entries: list[Any], lengths: list[int]) -> int:
        """Find what each entry selects, and the axes of the result and their lengths.

        Those of index arrays are still missing. Return where they belong.
        """
        nellipses, nfull = 0, len(self._array_shape)
        for entry in entries:
            nellipses += entry is Ellipsis
            nfull -= _count_axes(entry)
        if nellipses > 1 or nfull < 0:
            self._refuse(len(self._array_shape), 0)
        # With an ellipsis, the result is an array even without axes.
        self._is_scalar = not nellipses
        combined: list[int] = []  # the numbers of integers and arrays
        axis = position = 0
        for i, entry in enumerate(entries if nellipses else [*entries, Ellipsis]):
            if entry is None:
                self._dims.append(None)
                lengths.append(1)
            elif entry is Ellipsis:
                self._dims += range(len(self._picks), len(self._picks) + nfull)
                sizes = self._array_shape[axis : axis + nfull]
                self._picks += [Steps(size, 0, 1, size) for size in sizes]
                lengths += sizes
                axis += nfull
            elif isinstance(entry, slice):
                self._dims.append(len(self._picks))
                size = self._array_shape[axis]
                steps = Steps.of(range(*entry.indices(size)), size)
                self._picks.append(steps)
                lengths.append(steps.count)
                axis += 1
            else:
                position = position if combined else len(self._dims)
                combined.append(i)
                if isinstance(entry, int):
                    size = self._array_shape[axis]
                    if not -size <= entry < size:
                        self._refuse(axis, entry)
                    self._picks.append(Steps(size, entry % size, 1, 1))
                    axis += 1
                    continue
                self._add_array(axis, entry)
                axis += _count_axes(entry)
                if isinstance(self._key, Outer):
                    self._dims.append(-len(self._arrays))
                    lengths.append(len(self._arrays[-1]))
        # NumPy treats integers beside an array as arrays, and puts the axes of arrays
        # that are not neighbours in front.
        apart = combined and combined[-1] - combined[0] >= len(combined)
        return 0 if apart else position

    def _add_array(self, axis: int, entry: Array) -> None:
        """Add the positions that an array selects, from `axis` on."""
        lengths = self._array_shape[axis : axis + _count_axes(entry)]
        kind, is_outer = entry.dtype.kind, isinstance(self._key, Outer)
        if is_outer and entry.ndim != 1 and kind in "biu":
            raise IndexError(
                "each array of an outer index must have one axis, not %d" % entry.ndim
            )
        if kind == "b":
            if entry.shape != lengths:
                self._ask_numpy(axis, entry)  # which accepts masks without items
            positions = numpy.flatnonzero(entry)
        elif kind in "iu":
            (size,) = lengths
            if entry.size and (entry.min() < -size or entry.max() >= size):
                self._ask_numpy(axis, entry)  # which accepts it in an empty result
                entry = numpy.zeros(entry.shape, numpy.intp)
            positions = entry.astype(numpy.intp)
            positions = numpy.where(positions < 0, positions + size, positions)
        else:
            self._refuse(axis, entry)
        if lengths:  # a single boolean has no axis
            self._picks.append(_Picked(len(self._arrays), lengths))
        self._arrays.append(positions)

    def _broadcast(self) -> tuple[int, ...]:
        """Give all index arrays the same number of axes; return their joint shape."""
        count, ndim = len(self._arrays), max([a.ndim for a in self._arrays], default=0)
        for i, array in enumerate(self._arrays):
            if isinstance(self._key, Outer):  # each has an axis of its own
                shape = (1,) * i + array.shape + (1,) * (count - 1 - i)
            else:
                shape = (1,) * (ndim - array.ndim) + array.shape
            self._arrays[i] = array.reshape(shape)
        try:
            return numpy.broadcast_shapes(*(array.shape for array in self._arrays))
        except ValueError:
            self._refuse(0, None)

    def _add_axes(self) -> list[int]:
        """Set `axes`; return the axes of the result that they have, in their order."""
        own = [[-1 - j for j, n in enumerate(a.shape) if n != 1] for a in self._arrays]
        picked = [i for i, p in enumerate(self._picks) if isinstance(p, _Picked)]
        first, last = len(self._picks), -1
        if picked and sum(map(len, own)) > len({dim for dims in own for dim in dims}):
            first, last = picked[0], picked[-1]
        dims: list[int] = []
        for i, pick in enumerate(self._picks):
            if i == first:
                dims += self._add_joint_axis(range(first, last + 1))
            elif not first < i <= last:
                if isinstance(pick, Steps):
                    self.axes.append(pick)
                    dims.append(i)
                else:
                    self._add_positions(self._arrays[pick.array], pick.lengths)
                    dims += own[pick.array]
        return dims

    def _add_joint_axis(self, numbers: range) -> list[int]:
        """Add an axis for some of `_picks`; return the axes of the result in it."""
        between = [i for i in numbers if isinstance(self._picks[i], Steps)]
        counts = [self._picks[i].count for i in between]
        positions = new_array((*self._joint, *counts), numpy.dtype("i8"))
        positions[...] = 0
        lengths: tuple[int, ...] = ()
        behind = ndim = len(between)
        for i in numbers:
            pick = self._picks[i]
            if isinstance(pick, Steps):
                behind -= 1
                part, ones, replaced = pick.positions(), behind, [pick.size]
            else:
                part, ones, replaced = self._arrays[pick.array], ndim, [*pick.lengths]
            positions *= prod(replaced)
            positions += part.reshape(part.shape + (1,) * ones)
            lengths += tuple(replaced)
        self._add_positions(positions, lengths)
        return [*range(-1, -1 - len(self._joint), -1), *between]

    def _add_positions(self, positions: Array, lengths: tuple[int, ...]) -> None:
        """Add an axis in place of axes of the array; the positions are in C order."""
        if self._order == "F" and len(lengths) > 1 and prod(lengths) > 0:
            found = numpy.unravel_index(positions, lengths)
            positions = numpy.ravel_multi_index(found, lengths, order="F")
        size = prod(lengths)
        self.axes.append(PositionList.of(positions.reshape(-1), size, lengths))

    def _refuse(self, axis: int, entry: object) -> NoReturn:
        """Raise the error of NumPy for this index, or for an entry of an outer one."""
        self._ask_numpy(axis, entry)
        raise IndexError("the index %.200r is not supported" % (self._key,))

    def _ask_numpy(self, axis: int, entry: Any) -> None:
        """Raise the error of NumPy for this index, if it has one."""
        is_outer = isinstance(self._key, Outer)
        key: Any = (*[slice(None)] * axis, entry) if is_outer else self._key
        item: Array = numpy.ndarray((), "V0", b"")
        numpy.broadcast_to(item, self._array_shape)[key]

    def finish(self, items: Array) -> object:
        """Return the result: an array, or a scalar if integers select a single item.

        `items` are the selected items; they have all `axes`, and perhaps more behind.
        """
        if items.size == 1:  # which may become a scalar
            check_text(items)
        inner = items.shape[len(self.axes) :]
        if self._arrays:
            if not prod(self.shape):
                return new_array(self.shape + inner, items.dtype)
            items = items.reshape(self._split + inner)
            items = items.transpose(*self._moved, *range(len(self._split), items.ndim))
        result = items.reshape(self.shape + inner)
        return result[()] if self._is_scalar and not result.ndim else result

    def spread(self, values: Array) -> Array:
        """Return the items to be assigned: an array that has all `axes`.

        `values` are broadcast to the shape of the result. Raises ``ValueError``, as
        NumPy does, if that is impossible.
        """
        counts = tuple(axis.count for axis in self.axes)
        if values.ndim == 0:
            return numpy.broadcast_to(values, counts)
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
            return new_array(counts, values.dtype)
        if self._arrays:
            items = items.reshape([self._split[i] for i in self._moved])
            back = sorted(range(items.ndim), key=self._moved.__getitem__)
            items = items.transpose(back)
        return items.reshape(counts)


def _entry(entry: Any) -> Any:
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


def _count_axes(entry: object) -> int:
    """Return the number of axes that an entry selects on; 0 for an ellipsis."""
    if isinstance(entry, numpy.ndarray) and entry.dtype.kind == "b":
        return entry.ndim
    return int(entry is not None and entry is not Ellipsis)


class Steps:
    """Equally spaced positions on an axis, in ascending order.

    ``reversed`` says that the result has them in descending order.
    """

    def __init__(
        self, size: int, start: int, step: int, count: int, reversed: bool = False
    ) -> None:
        self.size = size
        self.shape = (size,)
        self.start = start
        self.step = step if count > 1 else 1
        self.count = count
        self.reversed = reversed and count > 1

    @classmethod
    def of(cls, positions: range, size: int) -> Steps:
        """Return the positions of a range, whose step may be negative."""
        if positions.step > 0 or not positions:
            return cls(size, positions.start, positions.step, len(positions))
        return cls(size, positions[-1], -positions.step, len(positions), True)

    @property
    def full(self) -> bool:
        """Whether all positions of the axis are selected, in ascending order."""
        return self.count == self.size and self.step == 1 and not self.reversed

    def positions(self) -> Array:
        """Return the positions in the order of the result."""
        return self.ascending(0, self.count)[:: -1 if self.reversed else 1]

    def ascending(self, i: int, j: int) -> Array:
        """Return the selected positions `i` to `j`, in ascending order."""
        numbers = numpy.arange(i, min(j, self.count), dtype="i8")
        return self.start + self.step * numbers

    def count_before(self, position: int) -> int:
        """Return the number of selected positions below `position`."""
        return min(max(-((self.start - position) // self.step), 0), self.count)

    def at(self, i: int) -> int:
        """Return the selected position number `i`."""
        return self.start + i * self.step

    def target(self, i: int, j: int) -> slice | Array:
        """Return the index in the target of the selected positions `i` to `j`."""
        return slice(i, j)

    def source(self, i: int, j: int, low: int) -> slice | Array:
        """Return the index of these positions in a box that begins at `low`."""
        return slice(self.at(i) - low, self.at(j - 1) - low + 1, self.step)

    def join(self, inner: Steps | PositionList) -> Steps | PositionList | None:
        """Return this axis and the next one as a single axis; None if impossible."""
        size, n = self.size * inner.size, inner.size
        if isinstance(inner, PositionList):
            return inner.moved(self.start * n, size) if self.count == 1 else None
        if inner.count == 1:
            start = self.start * n + inner.start
            return Steps(size, start, self.step * n, self.count, self.reversed)
        if self.count == 1:
            start = self.start * n + inner.start
            return Steps(size, start, inner.step, inner.count, inner.reversed)
        if inner.full and self.step == 1 and not self.reversed:
            return Steps(size, self.start * n, 1, self.count * n)
        return None


def _are_spaced(positions: Array, step: int) -> bool:
    """Return whether each position is `step` behind the one before it."""
    if int(positions[-1]) - int(positions[0]) != step * (len(positions) - 1):
        return False
    return bool((positions[:-1] + step == positions[1:]).all())


class PositionList:
    """Arbitrary positions on an axis, sorted; the same position may occur repeatedly.

    ``order`` has, for each position, its number in the result; None if they are the
    same. ``shape`` has the lengths of the axes of the array that the axis replaces.
    """

    reversed = False

    def __init__(
        self,
        size: int,
        positions: Array,
        order: Array | None,
        shape: tuple[int, ...] = (),
    ) -> None:
        self.size = size
        self.shape = shape or (size,)
        self.count = len(positions)
        self._positions = positions
        self._order = order

    @classmethod
    def of(
        cls, positions: Array, size: int, shape: tuple[int, ...] = ()
    ) -> PositionList | Steps:
        """Return the positions of an array of integers from 0 to `size`.

        Positions on a joint axis, which replaces several axes of `shape`, are never
        returned as `Steps`.
        """
        count = len(positions)
        if len(shape) < 2:
            step = int(positions[1]) - int(positions[0]) if count > 1 else 1
            if count < 2 or (step and _are_spaced(positions, step)):
                first = int(positions[0]) if count else 0
                return Steps.of(range(first, first + step * count, step), size)
        if (positions[:-1] <= positions[1:]).all():
            return cls(size, positions, None, shape)
        order = numpy.argsort(positions, kind="stable")
        return cls(size, positions[order], order, shape)

    def count_before(self, position: int) -> int:
        """Return the number of selected positions below `position`."""
        return int(self._positions.searchsorted(position))

    def ascending(self, i: int, j: int) -> Array:
        """Return the selected positions `i` to `j`, in ascending order."""
        return self._positions[i:j]

    def at(self, i: int) -> int:
        """Return the selected position number `i`."""
        return int(self._positions[i])

    def target(self, i: int, j: int) -> slice | Array:
        """Return the index in the target of the selected positions `i` to `j`."""
        return slice(i, j) if self._order is None else self._order[i:j]

    def source(self, i: int, j: int, low: int) -> slice | Array:
        """Return the index of these positions in a box that begins at `low`."""
        if j - i == 1:  # NumPy copies a slice once, and the items of an array twice
            first = self.at(i) - low
            return slice(first, first + 1, 1)
        return self._positions[i:j] - low

    def coordinates(self) -> tuple[Array, ...]:
        """Return the positions along each axis of the array, in ascending order."""
        return numpy.unravel_index(self._positions, self.shape)

    def targets(self, numbers: Array) -> Array:
        """Return the index in the target of the selected positions of some numbers."""
        return numbers if self._order is None else self._order[numbers]

    def moved(self, distance: int, size: int) -> PositionList:
        """Return the same positions, `distance` further on an axis of another size."""
        return PositionList(size, self._positions + distance, self._order)

    def join(self, inner: Steps | PositionList) -> PositionList | None:
        """Return this axis and the next one as a single axis; None if impossible."""
        if isinstance(inner, PositionList) or inner.count != 1:
            return None
        positions = self._positions * inner.size + inner.start
        return PositionList(self.size * inner.size, positions, self._order)


class Region:
    """The selected cells of an array of cells.

    Parameters
    ----------
    axes
        For each axis of the array of cells, its selected positions. Neighbouring axes
        are joined where this is possible.
    """

    def __init__(self, axes: Sequence[Steps | PositionList]) -> None:
        joined: list[Steps | PositionList] = []
        for axis in axes:
            joint = joined[-1].join(axis) if joined else None
            if joint is None:
                joined.append(axis)
            else:
                joined[-1] = joint
        self.axes = joined or [Steps(1, 0, 1, 1)]
        self.shape = tuple(axis.count for axis in self.axes)
        self.ncells = prod(self.shape)
        sizes = [axis.size for axis in self.axes]
        # The number of cells of one position on each axis.
        self._rows = [prod(sizes[j + 1 :]) for j in range(len(sizes))]
        self._firsts = [
            sum(self.axes[i].at(0) * self._rows[i] for i in range(j, len(sizes)))
            if self.ncells
            else 0
            for j in range(len(sizes) + 1)
        ]
        # The axes behind each one: their shape, and the indexes of their cells in the
        # target and in a box.
        self._inner: list[tuple[tuple[int, ...], Index, Index]] = []
        for j in range(1, len(sizes) + 1):
            target = tuple(axis.target(0, axis.count) for axis in self.axes[j:])
            source = tuple(axis.source(0, axis.count, 0) for axis in self.axes[j:])
            self._inner.append((tuple(sizes[j:]), target, source))
        arrays = [axis for axis in self.axes if isinstance(axis, PositionList)]
        self._is_independent = len(arrays) < 2

    @property
    def start(self) -> int | None:
        """The first cell, if they all follow each other, in the order of the file."""
        axis = self.axes[0]
        steps = len(self.axes) == 1 and isinstance(axis, Steps) and axis.step == 1
        return axis.at(0) if steps and not axis.reversed else None

    @property
    def pitch(self) -> int | None:
        """Distance of selected cells such that each span of this length has one."""
        axis = self.axes[0]
        return axis.step * self._rows[0] if isinstance(axis, Steps) else None

    def last(self, j: int = 0) -> int:
        """Return the last selected position, in cells of the axes from `j` on."""
        ends = (axis.at(axis.count - 1) for axis in self.axes[j:])
        return sum(i * row for i, row in zip(ends, self._rows[j:], strict=True))

    def numbers_of_rows(
        self, cell: int, chunk_size: int, most: int
    ) -> list[int] | None:
        """Return the numbers of the chunks from the first to the last cell of each row.

        None if a chunk there may have no selected cell. The greatest number is `most`.
        """
        axis = self.axes[0]
        for inner in self.axes[1:2]:
            pitch = inner.step * self._rows[1] if isinstance(inner, Steps) else None
            if pitch is None or pitch * cell > chunk_size:
                return None
        needed = [-1]
        for i in range(0, axis.count, ROWS_AT_A_TIME):
            rows = axis.ascending(i, i + ROWS_AT_A_TIME) * self._rows[0]
            first, last = (rows + self._firsts[1]) * cell, (rows + self.last(1)) * cell
            begin = numpy.minimum(first // chunk_size, most)
            end = numpy.minimum(last // chunk_size, most) + 1
            # Several rows may share a chunk.
            begin[0] = max(begin[0], needed[-1] + 1)
            begin[1:] = numpy.maximum(begin[1:], end[:-1])
            counts = end - begin
            found = numpy.repeat(end - counts.cumsum(), counts)
            needed += (found + numpy.arange(len(found))).tolist()
        return needed[1:]

    def next(self, position: int, j: int = 0) -> int | None:
        """Return the first selected position from `position` on; None if none is left.

        Positions count cells of the axes from `j` on.
        """
        if j == len(self.axes) or not self.ncells:
            return None if position or not self.ncells else 0
        axis, row = self.axes[j], self._rows[j]
        index, inside = divmod(position, row)
        i = axis.count_before(index)
        if i < axis.count and axis.at(i) == index:
            found = self.next(inside, j + 1)
            if found is not None:
                return index * row + found
            i = axis.count_before(index + 1)
        if i == axis.count:
            return None
        return axis.at(i) * row + self._firsts[j + 1]

    def pieces(self, start: int, stop: int) -> Iterable[Piece]:
        """Return the selected parts of the cells from `start` to `stop`."""
        row = self._rows[0]
        if start % row or stop % row:
            return self._pieces(start, stop)
        return self._whole_rows(0, start // row, stop // row, (), 0)

    def _whole_rows(
        self, j: int, low: int, high: int, target: Index, position: int
    ) -> Iterable[Piece]:
        """Return the selected part of the rows from `low` to `high` of axis `j`."""
        axis = self.axes[j]
        first, after = axis.count_before(low), axis.count_before(high)
        if first == after:
            return ()
        inner_shape, inner_target, inner_source = self._inner[j]
        target = *target, axis.target(first, after), *inner_target
        source = axis.source(first, after, low), *inner_source
        shape = high - low, *inner_shape
        if not self._is_independent:
            target = independent(target, self.shape)
            source = independent(source, shape)
        return ((target, position, shape, source),)

    def _pieces(
        self,
        start: int,
        stop: int,
        j: int = 0,
        target: Index = (),
        position: int = 0,
    ) -> Iterator[Piece]:
        """Yield the selected parts of the cells from `start` to `stop`.

        They are cells of the axes from `j` on. `target` is the index of the row that
        contains them. `position` is where they begin, in cells from the beginning of
        the chunk.
        """
        axis, row = self.axes[j], self._rows[j]
        (low, head), high = divmod(start, row), stop // row
        while start < stop:
            # All whole rows at a time, or the part of a row at either end.
            is_whole = not head and low < high
            behind = high if is_whole else low + 1
            end = min(stop, behind * row)
            if is_whole:
                yield from self._whole_rows(j, low, high, target, position)
            else:
                first, after = axis.count_before(low), axis.count_before(behind)
                if first < after:
                    inside = head, end - low * row
                    into = *target, axis.target(first, after)
                    yield from self._pieces(*inside, j + 1, into, position)
            position += end - start
            start, low, head = end, behind, 0


def needed_chunks(
    region: Region,
    cell: int,
    span: Callable[[int], tuple[int, int]],
    numbers: Callable[[int, int], range],
    chunk_size: int = 0,
) -> Sequence[int]:
    """Return the numbers of the chunks that hold selected cells, in order.

    Parameters
    ----------
    region
        The selected cells.
    cell
        Distance of two neighbouring cells in bytes; chunks begin at multiples of it.
    span
        Returns where a chunk begins and ends, in plain bytes.
    numbers
        Returns the numbers of the chunks that hold a span of plain bytes.
    chunk_size
        The plain size of all chunks but the last one; 0 if they have several.
    """
    position = region.next(0)
    if position is None:
        return []
    if chunk_size:
        end = (region.last() + 1) * cell
        if region.pitch and region.pitch * cell <= chunk_size:
            return numbers(position * cell, end)
        most = numbers(end - cell, end)[0]  # the last chunk may be longer
        found = region.numbers_of_rows(cell, chunk_size, most)
        if found is not None:
            return found
    needed = []
    while position is not None:
        number = numbers(position * cell, position * cell + 1)[0]
        needed.append(number)
        position = region.next(span(number)[1] // cell)
    return needed


def raw_dtype(size: int) -> DType:
    """Return a dtype of `size` bytes that NumPy copies fast and without a change."""
    kinds = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}
    return numpy.dtype(kinds.get(size, "V%d" % size))


def address(array: Array) -> int:
    """Return the address of the first item in memory."""
    address: int = array.__array_interface__["data"][0]
    return address


def independent(
    index: tuple[slice | Array, ...], shape: tuple[int, ...]
) -> tuple[slice | Array, ...]:
    """Return an index whose arrays select on each axis by itself.

    NumPy combines the items of several arrays instead.
    """
    if sum(not isinstance(entry, slice) for entry in index) < 2:
        return index
    positions = (numpy.arange(n)[entry] for entry, n in zip(index, shape, strict=True))
    return numpy.ix_(*positions)


class Filling:
    """The result of a read, while chunks are copied into it, in any order.

    Parameters
    ----------
    region
        The selected cells: a `Region`, or the `ChunkParts` of a grid.
    buffer
        The memory of the result: the selected cells in C order.
    span
        Returns where a chunk begins and ends, in plain bytes.
    cell
        Distance of two neighbouring cells in bytes; chunks begin at multiples of it.
    part
        Position and size in bytes of the part of a cell to be copied.
    """

    def __init__(
        self,
        region: Region | ChunkParts,
        buffer: memoryview,
        span: Callable[[int], tuple[int, int]],
        cell: int,
        part: tuple[int, int],
    ) -> None:
        self._region = region
        self._span = span
        self._cell = cell
        self._offset, size = part
        self._dtype = raw_dtype(size)
        self._buffer = buffer
        # Maximum number of bytes that may follow each other in the file as they do in
        # the result: the last axis could not be joined with the one before it.
        self.longest = 0
        for axis in region.axes[-1:]:
            if isinstance(axis, Steps) and axis.step == 1 and cell == size:
                self.longest = axis.count * cell
        ascending = numpy.ndarray(region.shape, self._dtype, buffer)
        self._address = address(ascending)
        flips: Any = (slice(None, None, -1 if a.reversed else 1) for a in region.axes)
        self._target = ascending[(*flips, ...)]  # a view also without axes

    def room(self, number: int) -> memoryview | None:
        """Return the memory for a chunk that is selected as a whole; None for others.

        Each of its cells is selected once, in the order of the file.
        """
        start, stop = self._span(number)
        if not self.longest:
            return None
        pieces = list(self._region.pieces(start // self._cell, stop // self._cell))
        if len(pieces) != 1:
            return None
        target, _, shape, source = pieces[0]
        whole = tuple(slice(0, n, 1) for n in shape)
        # `source` may contain arrays, which compare item by item.
        if not all(isinstance(part, slice) for part in target + source):
            return None
        view = self._target[(*target, ...)]
        once = source == whole and view.nbytes == stop - start
        if not (once and view.flags.c_contiguous):
            return None
        first = address(view) - self._address
        return self._buffer[first : first + view.nbytes]

    def needs(self, number: int) -> tuple[int, int]:
        """Return the span of the plain bytes of a chunk that holds its selected cells.

        The positions in each part of an index ascend, so the first and the last one of
        each part give the first and the last cell of a box.
        """
        begin, end = self._span(number)
        start, stop = end - begin, 0
        pieces = self._region.pieces(begin // self._cell, end // self._cell)
        for _, position, shape, source in pieces:
            low = high = 0
            for n, entry in zip(shape, source, strict=True):
                if isinstance(entry, slice):
                    low, high = low * n + entry.start, high * n + entry.stop - 1
                else:
                    low, high = low * n + entry.item(0), high * n + entry.item(-1)
            start = min(start, (position + low) * self._cell)
            stop = max(stop, (position + high) * self._cell)
        return start + self._offset, stop + self._offset + self._dtype.itemsize

    def copy(self, number: int, plain: memoryview) -> None:
        """Copy the selected cells of a chunk, or of several, of which it is the first.

        Nothing is to be done if `plain` is the memory that `room` returned.
        """
        if plain.obj is self._buffer.obj:
            return
        start = self._span(number)[0] // self._cell
        stop = start + len(plain) // self._cell
        for target, position, shape, source in self._region.pieces(start, stop):
            steps = None
            if self._cell != self._dtype.itemsize:
                steps = tuple(step * self._cell for step in strides(shape))
            offset = position * self._cell + self._offset
            box = numpy.ndarray(shape, self._dtype, plain, offset, steps)
            self._target[target] = box[source]
