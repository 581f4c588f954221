"""Items of an array whose plain bytes are in chunks, from whatever source.

Strategy: an index becomes positions on each axis (`ArrayIndex`); these become the
numbers of the chunks that hold selected bytes; each chunk is loaded once, in parallel,
into its place in the result. A chunk that is selected as a whole is decompressed right
there.
"""

from __future__ import annotations

import math

import numpy

from .._format.array_metadata import new_array
from ..exceptions import UsageTypeError, UsageValueError
from .array_index import ArrayIndex
from .boxes import Filling, Region, Steps, needed_chunks

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Literal, Protocol

    from .._format.dtypes import Array, DType
    from .boxes import Picks
    from .chunk_reader import Room

    class ChunkSource(Protocol):
        """Plain bytes in numbered chunks; `OpenedFile` describes the methods."""

        def span(self, number: int) -> tuple[int, int]:
            """Return start and stop of a chunk in the plain bytes."""

        def numbers(self, start: int, stop: int) -> range:
            """Return the numbers of the chunks that hold the span [start, stop)."""

        def load(
            self,
            numbers: Sequence[int],
            use: Callable[[int, memoryview], object],
            *,
            room: Room | None = None,
        ) -> None:
            """Call ``use(number, plain)`` for chunks, on several threads."""

    # Returns a new array of a shape and a dtype, with undefined items.
    Allocate = Callable[[tuple[int, ...], DType], Array]


class ArrayReader:
    """An array in chunks, from which selected items are read.

    Parameters
    ----------
    source
        The chunks. Their plain bytes are the items in `order`.
    dtype, shape, order
        Those of the array.
    unit
        The largest part of an item, in bytes, such that no chunk ends inside of it;
        None if no chunk ends inside an item.
    allocate
        Returns the array for a result. It may refuse a size that comes from a file.

    Attributes
    ----------
    closed
        Whether reading is an error.
    """

    def __init__(
        self,
        source: ChunkSource,
        dtype: DType,
        shape: tuple[int, ...],
        order: Literal["C", "F"] = "C",
        *,
        unit: int | None = None,
        allocate: Allocate = new_array,
    ) -> None:
        self.dtype = dtype
        self.shape = shape
        self.order = order
        self.closed = False
        self._source = source
        self._unit = dtype.itemsize if unit is None else unit
        self._allocate = allocate

    def in_order(self, axes: Sequence[Any]) -> Any:
        """Return the axes from the slowest to the fastest one, or the reverse."""
        return axes[::-1] if self.order == "F" else axes

    def get(self, key: Any) -> Any:
        """Return the items that an index of NumPy selects, or a field of all items."""
        if isinstance(key, str) and self.dtype.names is not None:
            return self._read_field(key)
        if _is_names(key) and self.dtype.names is not None:
            numpy.empty(0, self.dtype)[key]  # raises the error for an unknown name
            return self.read()[key]
        index = ArrayIndex(key, self.shape)
        return index.finish(self.read_items(index.axes))

    def _full(self) -> list[Steps | Picks]:
        return [Steps(n, 0, 1, n) for n in self.shape]

    def _read_field(self, name: str) -> Array:
        if self.dtype.fields is None or name not in self.dtype.fields:
            raise ValueError("no field of name %s" % name)
        dtype, offset = self.dtype.fields[name][:2]
        return self.read_items(self._full(), dtype, offset)

    def read_items(
        self, axes: list[Steps | Picks], dtype: DType | None = None, offset: int = 0
    ) -> Array:
        """Return items as a new array, or the field of `dtype` at `offset` in them."""
        base, subshape = self.dtype, ()
        if dtype is not None:
            base, subshape = dtype.base, dtype.shape
        shape = self.in_order([axis.count for axis in axes])
        result = self._allocate((*shape, *subshape), base)
        self._fill(result, axes, offset)
        if self.order == "F":
            ndim = len(self.shape)
            others = range(ndim, result.ndim)
            result = result.transpose(*reversed(range(ndim)), *others)
        return result

    def _fill(self, result: Array, axes: list[Steps | Picks], offset: int = 0) -> None:
        """Read the selected items, or a field at `offset` in them, into `result`.

        The array is contiguous and has the axes in the order of the file.
        """
        if self.closed:
            raise UsageValueError("the array is closed")
        if not result.nbytes:
            return
        itemsize = self.dtype.itemsize
        size = result.nbytes // math.prod(axis.count for axis in axes)
        cell, part = self._unit, (offset, size)
        cell_axes = list(self.in_order(axes))
        if cell != itemsize:  # a chunk may end inside an item
            cell = math.gcd(cell, offset, size)
            last = Steps(itemsize // cell, offset // cell, 1, size // cell)
            cell_axes, part = [*cell_axes, last], (0, cell)
        region = Region(cell_axes)
        span = self._source.span
        flat: Any = result.reshape(-1).view("u1")
        memory = memoryview(flat)
        filling = Filling(region, memory, span, cell, part)
        numbers = needed_chunks(region, cell, span, self._source.numbers)
        self._source.load(numbers, filling.copy, room=filling.room)

    def read(self, out: Array | None = None) -> Array:
        """Return all items, in a new array or in `out`."""
        if out is None:
            return self.read_items(self._full())
        self._check_out(out)
        ordered = numpy.asarray(out)
        if self.order == "F":
            ordered = ordered.T
        if ordered.flags.c_contiguous:
            self._fill(ordered, self._full())
        else:
            out[...] = self.read()
        return out

    def _check_out(self, out: Array) -> None:
        if not isinstance(out, numpy.ndarray):
            raise UsageTypeError("out: expected an array of NumPy, found %.200r" % out)
        if out.shape != self.shape or out.dtype != self.dtype:
            raise UsageValueError(
                "out: expected an array of shape %s and dtype '%s', found one of "
                "shape %s and dtype '%s'"
                % (self.shape, self.dtype, out.shape, out.dtype)
            )
        if not out.flags.writeable:
            raise UsageValueError("out: expected a writable array")


def _is_names(key: object) -> bool:
    return isinstance(key, list) and bool(key) and all(isinstance(k, str) for k in key)
