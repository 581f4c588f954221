"""What an index of an array selects, as NumPy defines it.

Pure functions, no files. Basic indexing is complete. One array of integers or booleans
may select on the first axis. Errors are those of NumPy, raised by NumPy: it gets the
same index for an array of the same shape whose items have no bytes.
"""

from __future__ import annotations

import operator
from math import prod

import numpy

from .._format.dtypes import check_text
from .boxes import PositionList, Steps

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, NoReturn

    from .._format.dtypes import Array, DType

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
        axis = sum(entry is None for entry in self._last[: self._array_at])
        if self._is_separated():
            result, axis = numpy.moveaxis(result, axis, 0), 0
        shape = result.shape
        return result.reshape(shape[:axis] + self._array_shape + shape[axis + 1 :])

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
            axis = sum(entry is None for entry in self._last[: self._array_at])
            if self._is_separated():
                result, axis = numpy.moveaxis(result, axis, 0), 0
            shape = result.shape
            shape = shape[:axis] + self._array_shape + shape[axis + 1 :]
            # Values for several axes of index arrays become values for one axis.
            values = numpy.broadcast_to(values, shape).reshape(result.shape)
        while values.ndim > result.ndim and values.shape[0] == 1:
            values = values[0]
        result[...] = values
        return items

    def _is_separated(self) -> bool:
        """Return whether an entry stands between the index array and an integer.

        NumPy treats integers beside an array as arrays, and puts the axes of arrays
        that are not neighbours in front.
        """
        numbers = [i for i, entry in enumerate(self._last) if entry == 0]
        advanced = [*numbers, self._array_at or 0]
        return max(advanced) - min(advanced) >= len(advanced)


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
