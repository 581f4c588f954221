"""What arrays in files share: members that follow from shape, dtype and indexing."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, Any

import numpy

from .._format.dtypes import Array, DType, Key
from .selection import Outer, count_axes, entry_of

# Number of bytes that iterating over an array reads at a time.
ITERATION_NBYTES = 4 * 2**20


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
        entries = [entry_of(e) for e in (key if isinstance(key, tuple) else (key,))]
        arrays = [isinstance(entry, (int, numpy.ndarray)) for entry in entries]
        if not all(arrays) or sum(map(count_axes, entries)) != self._array.ndim:
            raise IndexError(
                "vindex: expected an array of integers for each axis, or a mask of "
                "shape %s" % (self._array.shape,)
            )
        return tuple(entries)


class StoredRows:
    """Rows in files: the members that need only `shape`, `dtype` and an index."""

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
        row = prod(self.shape[1:]) * self.itemsize
        count = max(1, ITERATION_NBYTES // max(1, row))
        starts = range(0, self.shape[0], count)
        return (row for start in starts for row in self[start : start + count])


class StoredArray(StoredRows):
    """An array in files that can be indexed in all ways of NumPy."""

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
