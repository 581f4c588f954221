"""What an index of an array selects, and which chunks hold it, by arithmetic alone.

The index means what NumPy defines. Basic indexing is complete. One array of integers or
booleans may select on the first axis. Errors are those of NumPy, raised by NumPy: it
gets the same index for an array of the same shape whose items have no bytes.

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
from typing import TYPE_CHECKING, Any, NoReturn

import numpy

from .._format.dtypes import check_text

if TYPE_CHECKING:
    from .._format.dtypes import Array, DType

# A part of a box, to be copied: the index of its cells in the target; the position
# of the first cell and the shape of the box; the index of the cells in the box.
Piece = tuple[
    tuple["slice | Array", ...], int, tuple[int, ...], tuple["slice | Array", ...]
]

# Number of bytes that iterating over an array reads at a time.
ITERATION_NBYTES = 4 * 2**20


class ArrayIndex:
    """An index that has been resolved for an array of a certain shape.

    ``axes`` has the selected positions on each axis of the array. `finish` turns the
    selected items into the result.
    """

    def __init__(self, key: object, shape: tuple[int, ...]) -> None:
        self._key = key
        self._shape = shape
        self.axes: list[Steps | PositionList] = []
        # The index that turns the selected items into the result, one entry for each
        # entry of the key.
        self._last: list[Any] = []
        # Entry and shape of the index array.
        self._array_at: int | None = None
        self._array_shape: tuple[int, ...] = ()
        entries = key if isinstance(key, tuple) else (key,)
        # A loop: comparing an array with Ellipsis would compare its items.
        naxes = sum(entry is not None and entry is not Ellipsis for entry in entries)
        nellipses = sum(entry is Ellipsis for entry in entries)
        if nellipses > 1 or naxes > len(shape):
            self._refuse()
        for entry in entries:
            if entry is Ellipsis:
                self._add_full(len(shape) - naxes)
                self._last.append(Ellipsis)
            elif entry is None:
                self._last.append(None)
            else:
                self._add(entry, shape[len(self.axes)])
        self._add_full(len(shape) - len(self.axes))

    def _add_full(self, count: int) -> None:
        for _ in range(count):
            size = self._shape[len(self.axes)]
            self.axes.append(Steps(size, 0, 1, size))

    def _add(self, entry: object, size: int) -> None:
        """Add the positions on an axis of length `size` that an entry selects."""
        if isinstance(entry, slice):
            self.axes.append(Steps.of(range(*entry.indices(size)), size))
            self._last.append(slice(None))
            return
        number = _as_integer(entry)
        if number is None:
            positions = self._positions(entry, size)
            self._array_at = len(self._last)
            self.axes.append(PositionList.of(positions, size))
            self._last.append(slice(None))
            return
        if not -size <= number < size:
            self._refuse()
        self.axes.append(Steps(size, number % size, 1, 1))
        self._last.append(0)

    def _positions(self, entry: object, size: int) -> Array:
        """Return the positions that an array or a list selects."""
        if isinstance(entry, str):
            self._refuse()
        array = numpy.asarray(entry)
        if not array.size and not isinstance(entry, numpy.ndarray):
            array = array.astype(numpy.intp)  # an empty list is one of integers
        kind = array.dtype.kind
        if kind == "b" and array.ndim != 1:
            raise IndexError(
                "an index array of booleans must have one axis here, not %d"
                % array.ndim
            )
        if kind in "biu" and self.axes:
            raise IndexError(
                "an index array selects on the first axis only, not on axis %d"
                % len(self.axes)
            )
        self._array_shape = array.shape
        if kind == "b" and len(array) == size:
            positions = numpy.flatnonzero(array)
            self._array_shape = positions.shape
            return positions
        if kind not in "iu":
            self._refuse()
        if array.size and not (array.min() >= -size and array.max() < size):
            self._refuse()
        positions = array.reshape(-1).astype(numpy.intp)
        return numpy.where(positions < 0, positions + size, positions)

    @property
    def is_number(self) -> bool:
        """Whether an integer selects on the first axis, which the result then lacks."""
        return self._last[:1] == [0]

    def _refuse(self) -> NoReturn:
        """Raise the error of NumPy for this index."""
        item: Array = numpy.ndarray((), "V0", b"")
        numpy.broadcast_to(item, self._shape)[self._key]  # type: ignore[call-overload]
        raise IndexError(  # pragma: no cover - NumPy has refused it
            "the index %.200r is not supported" % (self._key,)
        )

    def finish(self, items: Array) -> object:
        """Return the result: an array, or a scalar if integers select a single item.

        `items` are the selected items; they have all axes of the array.
        """
        if items.size == 1:  # which may become a scalar
            check_text(items)
        result = items[tuple(self._last)]
        if self._array_at is None:
            return result
        result, shape = self._with_array_axes(result)
        return result.reshape(shape)

    def spread(self, values: Array, dtype: DType) -> Array:
        """Return the items to be assigned: an array that has all axes of the array.

        `values` are broadcast to the shape of the result of this index. Raises
        ``ValueError``, as NumPy does, if that is impossible.
        """
        counts = tuple(axis.count for axis in self.axes)
        if values.ndim == 0:
            return numpy.broadcast_to(values, counts)
        items: Array = numpy.empty(counts, dtype)
        # With an ellipsis the result is a view, even of a single item.
        key = tuple(self._last)
        if Ellipsis not in self._last:
            key = (*key, Ellipsis)
        result = items[key]
        if self._array_at is not None:
            result, shape = self._with_array_axes(result)
            # Values for several axes of index arrays become values for one axis.
            values = numpy.broadcast_to(values, shape).reshape(result.shape)
        while values.ndim > result.ndim and values.shape[0] == 1:
            values = values[0]
        result[...] = values
        return items

    def _with_array_axes(self, result: Array) -> tuple[Array, tuple[int, ...]]:
        """Return items with their axes in the order of NumPy, and their final shape.

        In `result`, the positions of the index array are a single axis. NumPy treats
        integers beside an array as arrays, and puts the axes of arrays that are not
        neighbours in front.
        """
        at = self._array_at or 0
        axis = sum(entry is None for entry in self._last[:at])
        advanced = [at, *(i for i, entry in enumerate(self._last) if entry == 0)]
        if max(advanced) - min(advanced) >= len(advanced):
            result, axis = numpy.moveaxis(result, axis, 0), 0
        shape = result.shape
        return result, shape[:axis] + self._array_shape + shape[axis + 1 :]


def _as_integer(entry: object) -> int | None:
    """Return an integer; None for a boolean and for anything else."""
    if isinstance(entry, bool):
        return None
    try:
        return operator.index(entry)  # type: ignore[arg-type]
    except TypeError:
        return None


def iterate_rows(
    read: Callable[[slice], Iterable[Any]], shape: tuple[int, ...], itemsize: int
) -> Iterator[Any]:
    """Yield the rows of an array, which `read` returns in blocks of several rows."""
    row = prod(shape[1:]) * itemsize
    count = max(1, ITERATION_NBYTES // max(1, row))
    for start in range(0, shape[0], count):
        yield from read(slice(start, start + count))


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


class PositionList:
    """Arbitrary positions on an axis, sorted; the same position may occur repeatedly.

    ``order`` has, for each position, its number in the result; None if they are the
    same.
    """

    reversed = False

    def __init__(self, size: int, positions: Array, order: Array | None) -> None:
        self.size = size
        self.shape: tuple[int, ...] = (size,)
        self.count = len(positions)
        self._positions = positions
        self._order = order

    @classmethod
    def of(cls, positions: Array, size: int) -> PositionList | Steps:
        """Return the positions of an array of integers from 0 to `size`."""
        gaps = numpy.diff(positions)
        if not len(gaps) or (gaps[0] and (gaps == gaps[0]).all()):
            first = int(positions[0]) if len(positions) else 0
            step = int(gaps[0]) if len(gaps) else 1
            return Steps.of(range(first, first + step * len(positions), step), size)
        if (gaps >= 0).all():
            return cls(size, positions, None)
        order = numpy.argsort(positions, kind="stable")
        return cls(size, positions[order], order)

    def count_before(self, position: int) -> int:
        """Return the number of selected positions below `position`."""
        return int(numpy.searchsorted(self._positions, position))

    def at(self, i: int) -> int:
        """Return the selected position number `i`."""
        return int(self._positions[i])

    def target(self, i: int, j: int) -> slice | Array:
        """Return the index in the target of the selected positions `i` to `j`."""
        return slice(i, j) if self._order is None else self._order[i:j]

    def source(self, i: int, j: int, low: int) -> slice | Array:
        """Return the index of these positions in a box that begins at `low`."""
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

    @property
    def last(self) -> int:
        """The position of the last selected cell."""
        ends = (axis.at(axis.count - 1) for axis in self.axes)
        return sum(i * row for i, row in zip(ends, self._rows, strict=True))

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

    def pieces(self, start: int, stop: int) -> Iterator[Piece]:
        """Yield the selected parts of the cells from `start` to `stop`."""
        return self._pieces(0, (), start, stop, 0)

    def _pieces(
        self,
        j: int,
        target: tuple[slice | Array, ...],
        start: int,
        stop: int,
        position: int,
    ) -> Iterator[Piece]:
        """Yield the parts of a span of the axes from `j` on.

        `target` is the index of the row that contains them. `position` is where the
        span begins, in cells from the beginning of the chunk.
        """
        row = self._rows[j]
        low, head = divmod(start, row)
        high, tail = divmod(stop, row)
        if head or low == high:  # a row that begins before the span
            end = min(stop, (low + 1) * row)
            yield from self._partial(j, target, low, (head, end - low * row), position)
            position += end - start
            low += 1
        if low < high:
            yield from self._rows_of(j, target, low, high, position)
            position += (high - low) * row
        if tail and low <= high:  # a row that ends behind the span
            yield from self._partial(j, target, high, (0, tail), position)

    def _partial(
        self,
        j: int,
        target: tuple[slice | Array, ...],
        index: int,
        span: tuple[int, int],
        position: int,
    ) -> Iterator[Piece]:
        """Yield the selected parts of a span of the row `index` on axis `j`."""
        axis = self.axes[j]
        first, after = axis.count_before(index), axis.count_before(index + 1)
        if first < after:
            target = (*target, axis.target(first, after))
            yield from self._pieces(j + 1, target, *span, position)

    def _rows_of(
        self,
        j: int,
        target: tuple[slice | Array, ...],
        low: int,
        high: int,
        position: int,
    ) -> Iterator[Piece]:
        """Yield the selected part of the whole rows `low` to `high` on axis `j`."""
        axis, inner = self.axes[j], self.axes[j + 1 :]
        first, after = axis.count_before(low), axis.count_before(high)
        if first == after:
            return
        rest = tuple(a.target(0, a.count) for a in inner)
        yield (
            (*target, axis.target(first, after), *rest),
            position,
            (high - low, *(a.size for a in inner)),
            (
                axis.source(first, after, low),
                *(a.source(0, a.count, 0) for a in inner),
            ),
        )


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
    if position is not None and region.pitch and region.pitch * cell <= chunk_size:
        return numbers(position * cell, (region.last + 1) * cell)
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
        The selected cells.
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
        region: Region,
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
        axis = region.axes[-1]
        if isinstance(axis, Steps) and axis.step == 1 and cell == size:
            self.longest = axis.count * cell
        ascending = numpy.ndarray(region.shape, self._dtype, buffer)
        self._address = address(ascending)
        self._target = ascending[
            tuple(slice(None, None, -1 if a.reversed else 1) for a in region.axes)
        ]

    def room(self, number: int) -> memoryview | None:
        """Return the memory for a chunk that is selected as a whole; None for others.

        Each of its cells is selected once, in the order of the file.
        """
        start, stop = self._span(number)
        if stop - start > self.longest:
            return None
        pieces = list(self._region.pieces(start // self._cell, stop // self._cell))
        if len(pieces) != 1:
            return None
        target, _, shape, source = pieces[0]
        whole = tuple(slice(0, n, 1) for n in shape)
        # `source` may contain arrays, which compare item by item.
        if not all(isinstance(part, slice) for part in target + source):
            return None
        view = self._target[target]
        once = source == whole and view.nbytes == stop - start
        if not (once and view.flags.c_contiguous):
            return None
        first = address(view) - self._address
        return self._buffer[first : first + view.nbytes]

    def copy(self, number: int, plain: memoryview) -> None:
        """Copy the selected cells of a chunk, or of several, of which it is the first.

        Nothing is to be done if `plain` is the memory that `room` returned.
        """
        if plain.obj is self._buffer.obj:
            return
        start = self._span(number)[0] // self._cell
        stop = start + len(plain) // self._cell
        for target, position, shape, source in self._region.pieces(start, stop):
            strides = [self._cell] * len(shape)
            for j in reversed(range(len(shape) - 1)):
                strides[j] = strides[j + 1] * shape[j + 1]
            offset = position * self._cell + self._offset
            box = numpy.ndarray(shape, self._dtype, plain, offset, tuple(strides))
            into = independent(target, self._target.shape)
            self._target[into] = box[independent(source, shape)]
