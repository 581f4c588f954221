"""Items of an array whose plain bytes are in the chunks of a `ChunkSource`.

Strategy: an index becomes positions on each axis (`ArrayIndex`); these become the
numbers of the chunks that hold selected bytes; each chunk is loaded once, in parallel,
into its place in the result. A chunk that is selected as a whole is decompressed right
there.

`ChunkSource` is the base class of everything that stores an array in numbered chunks,
and `ChunkCache` keeps the plain bytes of the chunks that were used last.
"""

from __future__ import annotations

import math
from _thread import allocate_lock
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Literal

import numpy

from .._engine.forks import renew_after_fork
from .._format.array_metadata import new_array
from .._format.dtypes import Array, DType, Key, check_text
from .._format.grid import Grid, digits
from .._types import Buffer
from ..exceptions import UsageTypeError, UsageValueError
from .chunk_parts import ChunkParts
from .indexing import (
    ArrayIndex,
    Filling,
    PositionList,
    Region,
    Steps,
    needed_chunks,
    split_names,
)

Allocate = Callable[[tuple[int, ...], DType], Array]


# Returns the memory for a chunk, which has its plain size; None for any memory.
Room = Callable[[int], memoryview | None]

# Returns the span (start, stop) of the plain bytes of a chunk that are used.
Needs = Callable[[int], tuple[int, int]]

FULL = slice(None)

# Default number of plain bytes that a source keeps of the chunks used last.
CACHE_NBYTES = 32 * 2**20
# Number of chunks that are known to have been read in part.
LAST_PARTS = 8


class ChunkSpans:
    """Where chunks are in the plain bytes.

    Attributes
    ----------
    nchunks, nbytes
        Number of chunks, and of the plain bytes of all.
    chunk_size
        The plain size of all chunks but the last one; 0 if they have several.
    starts
        Where each chunk starts; needed only if they have several sizes.
    """

    nchunks: int
    nbytes: int
    chunk_size: int
    starts: Sequence[int] | Array

    def span(self, number: int) -> tuple[int, int]:
        """Return start and stop of a chunk in the plain bytes."""
        is_last, size = number + 1 == self.nchunks, self.chunk_size
        if size:
            start = number * size
            return start, self.nbytes if is_last else start + size
        stop = self.nbytes if is_last else int(self.starts[number + 1])
        return int(self.starts[number]), stop

    def numbers(self, start: int, stop: int) -> range:
        """Return the numbers of the chunks that hold the span [start, stop)."""
        if start >= min(stop, self.nbytes):
            return range(0)
        if size := self.chunk_size:  # the last chunk may be longer
            first = min(start // size, self.nchunks - 1)
            after = min(-(-stop // size), self.nchunks)
        else:
            first = bisect_right(self.starts, start) - 1
            after = bisect_left(self.starts, stop)
        # Chunks without plain bytes may be the last ones.
        return range(first, self.nchunks if stop >= self.nbytes else after)


class ChunkSource(ChunkSpans, ABC):
    """Chunks that are read by their numbers, by many threads at once.

    Attributes
    ----------
    grid
        How chunks divide the axes of the array, if they are no spans of its bytes in C
        order: all are of full size then.
    """

    grid: Grid | None = None

    @abstractmethod
    def load(
        self,
        numbers: Sequence[int],
        use: Callable[[int, memoryview], object],
        *,
        room: Room | None = None,
        joined: bool = False,
        needs: Needs | None = None,
    ) -> None:
        """Call ``use(number, plain)`` for chunks, on several threads.

        Parameters
        ----------
        numbers
            The numbers of the chunks, ascending.
        use
            Called with the number and the plain bytes of each chunk, in any thread and
            in any order. If the file changes during the read, it is called again for
            the same chunk. The bytes are valid during the call.
        room
            Called with the number of a chunk; returns writable memory of the size of
            its span, into which it is decompressed, or None. Chunks that are
            decompressed there are not kept in the cache.
        joined
            Whether ``use`` may be called for neighbouring chunks together, with the
            number of the first one.
        needs
            Called with the number of a chunk without `room`; returns the span of its
            plain bytes that ``use`` reads. The others may then have any value.

        Raises
        ------
        FormatError
            If a chunk is damaged or missing.
        StorageError
            If the file was replaced by other content.
        """

    def cached(self, number: int, size: int) -> Buffer | None:
        """Return the plain bytes of a chunk, of this `size`, if they are in memory."""
        return None

    def read_part(self, number: int, start: int, view: memoryview) -> None:
        """Fill `view` with the plain bytes of a chunk, in their order, from `start` on.

        The chunk has more bytes. Raises the errors of `load`.
        """

        def use(_: int, plain: memoryview) -> None:
            view[:] = plain[start : start + len(view)]

        span = start, start + len(view)
        self.load((number,), use, needs=lambda _: span)

    def read_into(self, view: memoryview, start: int) -> int:
        """Fill a writable view of bytes from a plain position; return how many.

        Raises the errors of `load`.
        """
        stop = min(start + len(view), self.nbytes)
        if start >= stop:
            return 0

        numbers, size = self.numbers(start, stop), self.chunk_size
        first, last = numbers[0], numbers[-1]
        if first == last:
            begin, after = self.span(first)
            plain = self.cached(first, after - begin)
            if plain is not None:
                view[: stop - start] = memoryview(plain)[start - begin : stop - begin]
                return stop - start
            if stop - start < after - begin:
                self.read_part(first, start - begin, view[: stop - start])
                return stop - start

        def needs(number: int) -> tuple[int, int]:
            begin, after = self.span(number)
            return max(begin, start) - begin, min(after, stop) - begin

        def room(number: int) -> memoryview | None:
            if size and first < number < last:
                position = number * size - start
                return view[position : position + size]
            begin, after = self.span(number)
            inside = start <= begin and after <= stop
            return view[begin - start : after - start] if inside else None

        def use(number: int, plain: memoryview) -> None:
            if first < number < last:
                return  # it was decompressed there
            begin, after = needs(number)
            if after - begin < len(plain):
                position = self.span(number)[0] + begin - start
                view[position : position + after - begin] = plain[begin:after]

        self.load(numbers, use, room=room, needs=needs)
        return stop - start


class ChunkCache:
    """Plain chunks by key; the one that was not used for the longest time goes first.

    ``limit`` is the number of bytes that are kept at most. Many threads may use it.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._chunks: dict[Hashable, Buffer] = {}
        self._parts: tuple[Hashable, ...] = ()
        self.renew_locks()
        renew_after_fork(self)

    def renew_locks(self) -> None:
        """Replace the lock by a free one, and count the bytes again."""
        self._lock = allocate_lock()
        self._nbytes = sum(map(len, self._chunks.values()))

    def __len__(self) -> int:
        return len(self._chunks)

    def get(self, key: Hashable, size: int = -1) -> Buffer | None:
        """Return a chunk; None if it is not here, or has another size than `size`.

        The last chunk of a file may have grown since it was put here.
        """
        with self._lock:
            plain = self._chunks.pop(key, None)
            if plain is not None:
                self._chunks[key] = plain  # a dictionary keeps the order of insertion
                if size not in (-1, len(plain)):
                    return None
            return plain

    def put(self, key: Hashable, plain: Buffer) -> None:
        """Keep a chunk, unless it exceeds the limit alone."""
        if len(plain) > self.limit:
            return
        with self._lock:
            self._nbytes += len(plain) - len(self._chunks.pop(key, b""))
            self._chunks[key] = plain
            while self._nbytes > self.limit:
                oldest = next(iter(self._chunks))
                self._nbytes -= len(self._chunks.pop(oldest))

    def is_first_part(self, key: Hashable) -> bool:
        """Return whether no part of a chunk was read lately, and note that one is now.

        The whole chunk is worth its memory only if another part is read soon.
        """
        if key in self._parts:
            return False
        self._parts = (*self._parts[1 - LAST_PARTS :], key)
        return True

    def clear(self) -> None:
        """Remove all chunks."""
        with self._lock:
            self._chunks.clear()
            self._nbytes = 0


class ArrayReader:
    """An array in chunks, from which selected items are read.

    Parameters
    ----------
    source
        The chunks. Their plain bytes are the items in `order`.
    dtype, shape, order
        Those of the array.
    unit
        The size in bytes of the largest part of an item inside of which no chunk ends;
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
        # A slice with this step has the axes from the slowest to the fastest one.
        self._direction = -1 if order == "F" else 1
        self._source = source
        self._unit = dtype.itemsize if unit is None else unit
        self._allocate = allocate

    def get(self, key: Key) -> Any:
        """Return the items, or fields of them, that an index of NumPy selects.

        They are a new array, or a scalar if integers select a single item.
        """
        if self.closed:
            raise UsageValueError("the array is closed")
        names, key = split_names(key, self.dtype)
        run = self._run(key) if names is None else None
        if run is None:
            index = ArrayIndex(key, self.shape, self.order)
            if isinstance(names, str) and self.dtype.fields is not None:
                dtype, offset = self.dtype.fields[names][:2]
                return index.finish(self.read_axes(index.axes, dtype, offset))
            items = self.read_axes(index.axes)
            return index.finish(items if names is None else items[names])
        dtype, (position, shape) = self.dtype, run
        start = position * dtype.itemsize
        if not shape:  # the usual case, for speed
            buffer = bytearray(dtype.itemsize)
            self._source.read_into(memoryview(buffer), start)
            items = numpy.ndarray((), dtype, buffer)
        else:
            items = self._allocate(shape, dtype)
            if items.nbytes:
                flat: Any = items.reshape(-1).view("u1")
                self._source.read_into(memoryview(flat), start)
        if items.size == 1:  # which may become a scalar
            check_text(items)
        return items if shape else items[()]

    def _run(self, key: Key) -> tuple[int, tuple[int, ...]] | None:
        """Return the position in the file and the shape of neighbouring items.

        Integers select them, and perhaps a slice behind these. Return None for every
        other key, and for integers that are out of range.
        """
        entries, shape = key if type(key) is tuple else (key,), self.shape
        if len(entries) > len(shape):
            return None
        if self.order == "F":
            if len(entries) < len(shape):
                return None
            entries, shape = entries[::-1], shape[::-1]
        else:
            while entries and type(entries[-1]) is slice and entries[-1] == FULL:
                entries = entries[:-1]
        # Horner's scheme, from the slowest axis to the fastest one.
        position, axis = 0, 0
        for entry in entries:
            n = shape[axis]
            axis += 1
            if type(entry) is slice:
                if axis < len(entries) or self._source.grid is not None:
                    return None
                start, stop, step = entry.indices(n)
                if step != 1:
                    return None
                inner = shape[axis:]
                position = (position * n + start) * math.prod(inner)
                return position, (max(0, stop - start), *inner)
            if type(entry) is not int:
                if not isinstance(entry, (int, numpy.integer)):
                    return None
                if isinstance(entry, bool):
                    return None
                entry = int(entry)
            if not -n <= entry < n:
                return None
            position = position * n + (entry if entry >= 0 else entry + n)
        inner, grid = shape[axis:], self._source.grid
        if grid is None:
            return position * math.prod(inner), inner
        return None if inner else (grid.position(digits(position, shape)), ())

    def read_axes(
        self,
        axes: list[Steps | PositionList],
        dtype: DType | None = None,
        offset: int = 0,
    ) -> Array:
        """Return items as a new array, or the field of `dtype` at `offset` in them."""
        base, subshape = self.dtype, ()
        if dtype is not None:
            base, subshape = dtype.base, dtype.shape
        shape = [axis.count for axis in axes][:: self._direction]
        result = self._allocate((*shape, *subshape), base)
        self._fill(result, axes, offset)
        if self.order == "F":
            ndim = len(axes)
            others = range(ndim, result.ndim)
            result = result.transpose(*reversed(range(ndim)), *others)
        return result

    def _fill(
        self, result: Array, axes: list[Steps | PositionList], offset: int = 0
    ) -> None:
        """Read the selected items, or a field at `offset` in them, into `result`.

        The array is contiguous and has the axes in the order of the file.
        """
        if not result.nbytes:
            return
        itemsize = self.dtype.itemsize
        size = result.nbytes // math.prod(axis.count for axis in axes)
        flat: Any = result.reshape(-1).view("u1")
        memory = memoryview(flat)
        span, part = self._source.span, (offset, size)
        if self._source.grid is not None:
            parts = ChunkParts(axes, self._source.grid)
            boxes = Filling(parts, memory, span, itemsize, part)
            self._source.load(
                parts.numbers(), boxes.copy, room=boxes.room, needs=boxes.needs
            )
            return
        cell = self._unit
        cell_axes = axes[:: self._direction]
        if cell != itemsize:  # a chunk may end inside an item
            cell = math.gcd(cell, offset, size)
            last = Steps(itemsize // cell, offset // cell, 1, size // cell)
            cell_axes, part = [*cell_axes, last], (0, cell)
        region = Region(cell_axes)
        start = region.start
        if start is not None and size == itemsize:
            self._source.read_into(memory, start * cell)
            return
        filling = Filling(region, memory, span, cell, part)
        numbers = needed_chunks(
            region, cell, span, self._source.numbers, self._source.chunk_size
        )
        if filling.longest < self._source.chunk_size:
            self._source.load(numbers, filling.copy, joined=True, needs=filling.needs)
        else:
            self._source.load(
                numbers, filling.copy, room=filling.room, needs=filling.needs
            )

    def read(self, out: Array | None = None) -> Array:
        """Return all items, in a new array or in `out`."""
        if self.closed:
            raise UsageValueError("the array is closed")
        axes: list[Steps | PositionList] = [Steps(n, 0, 1, n) for n in self.shape]
        if out is None:
            return self.read_axes(axes)
        check_out(out, self.shape, self.dtype)
        ordered = numpy.asarray(out)
        if self.order == "F":
            ordered = ordered.T
        if ordered.flags.c_contiguous:
            self._fill(ordered, axes)
        else:
            out[...] = self.read_axes(axes)
        return out


def check_out(out: Array, shape: tuple[int, ...], dtype: DType) -> None:
    """Raise `UsageError` unless items of a shape and a dtype can be read into `out`."""
    if not isinstance(out, numpy.ndarray):
        raise UsageTypeError("out: expected an array of NumPy, found %.200r" % out)
    if out.shape != shape or out.dtype != dtype:
        raise UsageValueError(
            "out: expected an array of shape %s and dtype '%s', found one of "
            "shape %s and dtype '%s'" % (shape, dtype, out.shape, out.dtype)
        )
    if not out.flags.writeable:
        raise UsageValueError("out: expected a writable array")
