"""Items of an array whose plain bytes are in the chunks of a `ChunkSource`.

Flow: an index → the positions on each axis (`ItemSelection`) → the pieces of each
chunk, one plan for the whole read → each chunk is loaded once, on several threads, and
its pieces are copied into the result.

Chunks that are boxes of the array have one piece each (`PartReader._fill_boxes`). The
chunks of a file of bytes may end anywhere, also inside an item (`_fill_rows`).
Neighbouring items are decompressed directly into the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal, NamedTuple

import numpy

from .._format.array_metadata import new_array
from .._format.dtypes import Array, DType, Key, scalar
from .._format.grid import Grid, Shape, digits, strides
from ..exceptions import UsageTypeError, UsageValueError
from .selection import Axis, Index, ItemSelection, count_arrays, outer, split_names
from .source import CLOSED, ChunkSource

Allocate = Callable[[Shape, DType], Array]

# Minimum distance in bytes of the selected positions, on the average, from which
# reading the bytes between them may be avoided: blocks are longer.
LEAST_GAP = 2**14


class Field(NamedTuple):
    """A part of an item, whose items are in a source of their own.

    Attributes
    ----------
    names
        The names of the fields that lead to it; empty for whole items.
    source
        The chunks.
    dtype, inner
        The type of the part, and its shape in an item: a field may be an array.
    """

    names: tuple[str, ...]
    source: ChunkSource
    dtype: DType
    inner: Shape = ()


@dataclass(eq=False)
class PartReader:
    """An array in chunks, from which selected items are read.

    Parameters
    ----------
    fields
        Where the items are: a source, or one for each field.
    dtype, shape, order
        Those of the array. The plain bytes of a source are its items in `order`.
    allocate
        Returns the array for a result. It may refuse a size that comes from a file.

    Attributes
    ----------
    closed
        Whether reading is an error.
    """

    fields: ChunkSource | Sequence[Field]
    dtype: DType
    shape: Shape
    order: Literal["C", "F"] = "C"
    allocate: Allocate = new_array

    def __post_init__(self) -> None:
        self.closed, fields = False, self.fields
        if isinstance(fields, ChunkSource):
            fields = [Field((), fields, self.dtype)]
        self._fields = fields
        # The source of whole items, if there is one.
        self._source = None if fields[0].names else fields[0].source

    def get(self, key: Key) -> Any:
        """Return the items, or fields of them, that an index of NumPy selects.

        They are a new array, or a scalar if integers select a single item.
        """
        if self.closed:
            raise UsageValueError(CLOSED)
        dtype, source = self.dtype, self._source
        names, key = split_names(key, dtype)
        if names is None and source is not None and source.decode is None:
            run = self._run(key)
            if run is not None and run[1]:
                items = self.allocate(run[1], dtype)
                if items.nbytes:
                    source.read_into(_bytes_of(items), run[0] * dtype.itemsize)
                return items
            if run is not None:
                buffer = bytearray(dtype.itemsize)
                source.read_into(memoryview(buffer), run[0] * dtype.itemsize)
                return scalar(numpy.ndarray((), dtype, buffer))
        selection = ItemSelection(key, self.shape)
        if names is None:
            return selection.finish(self._read(selection, dtype))
        if self._source is None:
            if isinstance(names, str):  # the other fields need no memory
                dtype = numpy.dtype({"names": [names], "formats": [dtype[names]]})
            else:
                dtype = numpy.empty(0, dtype)[names].dtype
            return selection.finish(self._read(selection, dtype)[names])
        if isinstance(names, str) and dtype.fields is not None:
            field, offset = dtype.fields[names][:2]
            return selection.finish(self._read(selection, field, offset))
        return selection.finish(self._read(selection, dtype)[names])

    def read(self, out: Array | None = None) -> Array:
        """Return all items, in a new array or in `out`."""
        if self.closed:
            raise UsageValueError(CLOSED)
        selection = ItemSelection((), self.shape)
        if out is None:
            return self._read(selection, self.dtype)
        check_out(out, self.shape, self.dtype)
        self._fill(selection, numpy.asarray(out), 0)
        return out

    # Neighbouring items: the usual case, for speed

    def _run(self, key: Key) -> tuple[int, Shape] | None:
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
        # Horner's scheme, from the slowest axis to the fastest one.
        position, axis, source = 0, 0, self._fields[0].source
        for entry in entries:
            n = shape[axis]
            axis += 1
            if type(entry) is slice:
                if axis < len(entries) or not source.in_order:
                    return None
                start, stop, step = entry.indices(n)
                if step != 1:
                    return None
                inner = shape[axis:]
                position = (position * n + start) * math.prod(inner)
                return position, (max(0, stop - start), *inner)
            if type(entry) is not int:
                if not isinstance(entry, numpy.integer):
                    return None
                entry = int(entry)
            if not -n <= entry < n:
                return None
            position = position * n + (entry if entry >= 0 else entry + n)
        inner = shape[axis:]
        if source.cut is None or source.in_order:
            return position * math.prod(inner), inner
        return None if inner else (source.cut.position(digits(position, shape)), ())

    # All others

    def _read(self, selection: ItemSelection, dtype: DType, offset: int = 0) -> Array:
        """Return collected items, or their part of `dtype` at an offset in them.

        The memory has the order of the file.
        """
        counts = selection.counts
        if self.order == "F":
            items = self.allocate(counts[::-1] + dtype.shape, dtype.base)
            axes = range(len(counts))
            items = items.transpose(*axes[::-1], *range(len(counts), items.ndim))
        else:
            items = self.allocate(counts + dtype.shape, dtype.base)
        self._fill(selection, items, offset)
        return items

    def _fill(self, selection: ItemSelection, items: Array, offset: int) -> None:
        """Read into collected items, or parts at an offset in the items of the file."""
        if not items.nbytes:
            return
        target = selection.in_order(items)
        for field in self._fields:
            names = field.names
            if not names:
                self._fill_from(field, selection, target, offset)
            elif names[0] in (items.dtype.names or ()):
                part = target
                for name in names:
                    part = part[name]
                wanted = selection.with_inner(field.inner)
                if part.nbytes:
                    self._fill_from(field, wanted, part, 0)

    def _fill_from(
        self, field: Field, selection: ItemSelection, target: Array, offset: int
    ) -> None:
        """Read selected items, or the parts of them at an offset, into an array.

        It may have more axes behind than are selected: those of a part.
        """
        _, source, dtype, inner = field
        if source.decode is not None and source.cut is not None:
            _fill_boxes(source, source.cut, selection, target, (dtype.itemsize, 0))
            return
        axes, joint, ndim = selection.axes, selection.joint, len(selection.counts)
        shape, size = self.shape + inner, target.itemsize
        if target.ndim > ndim:  # each part is copied as one value
            size *= math.prod(target.shape[ndim:])
            target = target.reshape(*target.shape[:ndim], -1)
            target = target.view(raw_dtype(size))[..., 0]
        else:
            target = target.view(raw_dtype(size))
        if self.order == "F":
            axes, shape = axes[::-1], shape[::-1]
            joint = [len(axes) - 1 - i for i in reversed(joint)]
            points = range(bool(joint))
            target = target.transpose(*points, *reversed(range(len(points), ndim)))
        if source.in_order and size == dtype.itemsize and not joint:
            start = _start_of_run(axes, shape)
            if start is not None and target.flags.c_contiguous:
                source.read_into(_bytes_of(target), start * size)
                return
        part = dtype.itemsize, offset
        if source.cut is not None:
            _fill_boxes(source, source.cut, selection, target, part)
        elif joint:
            _fill_points(source, axes, joint, shape, target, part)
        else:
            _fill_rows(source, axes, shape, target, part)


# Plans


def _fill_boxes(
    source: ChunkSource,
    grid: Grid,
    selection: ItemSelection,
    target: Array,
    part: tuple[int, int],
) -> None:
    """Read from chunks that are boxes of the array: each has one piece.

    `part` is the size of an item in bytes, and the offset of the part to be copied.
    """
    itemsize, offset = part
    dtype, size = target.dtype, target.itemsize
    axes, chunk, decode = selection.axes, grid.chunk, source.decode
    steps = [n * itemsize for n in strides(chunk)]
    order = selection.joint + selection.others
    is_moved = bool(selection.joint)
    nbytes = math.prod(chunk) * itemsize
    whole = tuple(slice(0, n, 1) for n in chunk)
    ranges = [axis for axis in axes if isinstance(axis, range)]
    are_ranges = len(ranges) == len(axes)
    pieces: dict[int, tuple[tuple[Index, ...], tuple[Index, ...]]] = {}
    # Chunks of neighbouring rows, one or several, have a piece that is computed.
    joined = are_ranges and grid.is_rows and decode is None and ranges[0].step == 1
    if joined:
        first, stop, nrows = ranges[0].start, ranges[0].stop, chunk[0]
        numbers: Sequence[int] = range(first // nrows, -(-stop // nrows))
        inner = [slice(axis.start, axis.stop, axis.step) for axis in ranges[1:]]
    else:
        pieces = {number: (to, of) for number, to, of in selection.parts(grid)}
        numbers = list(pieces)

    def piece(
        number: int, nbytes: int = nbytes
    ) -> tuple[tuple[Index, ...], tuple[Index, ...]]:
        if not joined:
            return pieces[number]
        at = number * nrows
        low, high = max(first - at, 0), min(stop - at, nbytes // steps[0])
        return (slice(at + low - first, at + high - first),), (slice(low, high), *inner)

    def use(number: int, plain: memoryview) -> None:
        to, of = piece(number, len(plain))
        if decode is not None:
            box = decode(plain)
        else:  # the last chunk of rows may be shorter
            shape = chunk
            if len(plain) != nbytes:
                shape = (len(plain) // steps[0], *chunk[1:])
            box = numpy.ndarray(shape, dtype, plain, offset, steps)
        target[to] = (box.transpose(order) if is_moved else box)[of]

    def room(number: int) -> memoryview | None:
        to, of = pieces[number]
        if of != whole:
            return None
        view = target[(*to, ...)]
        return _bytes_of(view) if view.flags.c_contiguous else None

    njoint = len(selection.joint)

    def needs(number: int) -> list[tuple[int, int]]:
        of: Sequence[Index] = piece(number)[1]
        of_steps = [steps[i] for i in order]
        if njoint > 1:  # points are positions on a single axis
            pairs = zip(of[:njoint], of_steps, strict=False)
            points: Any = 0
            for each, step in pairs:
                points = points + numpy.asarray(each) * step
            of, of_steps = (points.reshape(-1), *of[njoint:]), [1, *of_steps[njoint:]]
        return _spans_of(of, of_steps, offset, size)

    may_place = (decode is None and size == itemsize and are_ranges) and any(
        of == whole for _, of in pieces.values()
    )
    source.load(
        numbers, use, room=room if may_place else None, needs=needs, joined=joined
    )


def _fill_points(
    source: ChunkSource,
    axes: Sequence[Axis],
    joint: Sequence[int],
    shape: Shape,
    target: Array,
    part: tuple[int, int],
) -> None:
    """Read points from chunks that may end anywhere.

    The axes up to the last joint one become a single axis, of all their cells.
    """
    behind = joint[-1] + 1
    leading = [i for i in range(behind) if i not in joint]
    counts = target.shape[: 1 + len(leading)]
    cells: Array = numpy.zeros(counts, numpy.intp)
    for i, step in zip(range(behind), strides(shape[:behind]), strict=True):
        positions = numpy.asarray(axes[i], numpy.intp) * step
        axis = 0 if i in joint else 1 + leading.index(i)
        cells += positions.reshape((-1, *[1] * (len(leading) - axis)))
    items: Array = numpy.empty((cells.size, *target.shape[cells.ndim :]), target.dtype)
    merged = math.prod(shape[:behind]), *shape[behind:]
    _fill_rows(source, [cells.reshape(-1), *axes[behind:]], merged, items, part)
    target[...] = items.reshape(target.shape)


def _fill_rows(
    source: ChunkSource,
    axes: Sequence[Axis],
    shape: Shape,
    target: Array,
    part: tuple[int, int],
) -> None:
    """Read from chunks that may end anywhere.

    Rows are along the first axis whose rows are not larger than a chunk. All axes in
    front of it are visited one position after the other. Of each row, the span is read
    that has selected items; spans that no chunk has as a whole are put together.
    """
    if not shape:
        axes, shape, target = [range(1)], (1,), target.reshape(1)
    itemsize, offset = part
    dtype, size = target.dtype, target.itemsize
    chunk_size = source.chunk_size or source.nbytes // source.nchunks
    steps = [n * itemsize for n in strides(shape)]
    unit = next((i for i, n in enumerate(steps) if n <= chunk_size), len(shape) - 1)
    row, rows, inner = steps[unit], axes[unit], axes[unit + 1 :]
    # The box of a row that has its selected items, and the index of these in it.
    ends = list(map(_ends_of, inner))
    box = tuple(last - first + 1 for first, last in ends)
    box_steps = row, *steps[unit + 1 :]
    in_box: list[Index] = [
        slice(0, n, a.step) if isinstance(a, range) else a - first
        for a, n, (first, _) in zip(inner, box, ends, strict=True)
    ]
    low, high = _span_of(inner, box_steps[1:])
    low, extent = low + offset, high - low + size
    order = None
    if not isinstance(rows, range) and (rows[1:] < rows[:-1]).any():
        order = numpy.argsort(rows, kind="stable")
        rows = rows[order]
    pieces: dict[int, list[_Piece]] = {}
    fragments: dict[int, list[tuple[int, memoryview]]] = {}
    split: list[tuple[memoryview, _Piece]] = []
    for leading in product(*map(enumerate, axes[:unit])):
        pairs = zip(leading, steps, strict=False)
        base = low + sum(int(n) * step for (_, n), step in pairs)
        before = tuple(slice(at, at + 1) for at, _ in leading)
        i = 0
        while i < len(rows):
            first = int(rows[i])
            begin = base + first * row
            number = source.numbers(begin, begin + 1)[0]
            start, stop = source.span(number)
            behind = (stop - base - extent) // row + 1  # the first row not in the chunk
            j = _count_before(rows, max(behind, first + 1))
            to = slice(i, j) if order is None else order[i:j]
            last = int(rows[j - 1])
            of: tuple[Index, ...] = tuple(in_box)
            if isinstance(rows, range):
                of = slice(0, last - first + 1, rows.step), *of
            else:
                of = rows[i:j] - first, *of
            if count_arrays(of) > 1:
                of = outer(of)
            piece = _Piece(begin - start, last - first + 1, (*before, to), of)
            if behind > first:
                pieces.setdefault(number, []).append(piece)
            else:
                memory = memoryview(bytearray(extent))
                split.append((memory, piece))
                for number in source.numbers(begin, begin + extent):
                    start, stop = source.span(number)
                    at, until = max(start, begin), min(stop, begin + extent)
                    fragment = at - start, memory[at - begin : until - begin]
                    fragments.setdefault(number, []).append(fragment)
            i = j

    def copy(plain: memoryview, offset: int, piece: _Piece) -> None:
        shape = piece.nrows, *box
        items = numpy.ndarray(shape, dtype, plain, offset, box_steps)
        target[piece.to] = items[piece.of]

    def use(number: int, plain: memoryview) -> None:
        for piece in pieces.get(number, ()):
            copy(plain, piece.offset, piece)
        for offset, memory in fragments.get(number, ()):
            memory[:] = plain[offset : offset + len(memory)]

    def needs(number: int) -> list[tuple[int, int]]:
        spans = [(at, at + len(memory)) for at, memory in fragments.get(number, ())]
        for piece in pieces.get(number, ()):
            spans += _spans_of(piece.of[:1], [row], piece.offset, extent)
        return sorted(spans)

    source.load(sorted({*pieces, *fragments}), use, needs=needs)
    for memory, piece in split:
        copy(memory, 0, piece)


class _Piece(NamedTuple):
    """Rows of a chunk that are copied by one assignment.

    Attributes
    ----------
    offset
        Where the first one begins in the plain bytes of the chunk.
    nrows
        Number of rows from the first one to the last one.
    to, of
        The indexes of the items in the target, and in the rows.
    """

    offset: int
    nrows: int
    to: tuple[Index, ...]
    of: tuple[Index, ...]


# Positions and memory


def _start_of_run(axes: Sequence[Axis], shape: Shape) -> int | None:
    """Return the first of the selected items if they follow each other; else None."""
    position, is_one = 0, True  # whether a single position is selected on all axes
    for axis, n in zip(axes, shape, strict=True):
        if not isinstance(axis, range):
            return None
        if not is_one and len(axis) < n:
            return None
        if len(axis) > 1:
            if axis.step > 1:
                return None
            is_one = False
        position = position * n + axis.start
    return position


def _ends_of(positions: Axis | slice) -> tuple[int, int]:
    """Return the least and the greatest position."""
    if isinstance(positions, slice):
        return positions.start, positions.stop - 1
    if isinstance(positions, range):
        return positions[0], positions[-1]
    return int(positions.min()), int(positions.max())


def _span_of(entries: Sequence[Axis | Index], steps: Sequence[int]) -> tuple[int, int]:
    """Return the distance of the first and of the last selected cell."""
    low = high = 0
    for entry, step in zip(entries, steps, strict=True):
        first, last = _ends_of(entry)
        low, high = low + first * step, high + last * step
    return low, high


def _spans_of(
    entries: Sequence[Index], steps: Sequence[int], start: int, size: int
) -> list[tuple[int, int]]:
    """Return the spans of selected cells, ascending; the cells between may be in them.

    Cell 0 is at `start`, and a cell has `size` bytes. There is a span for each position
    on the first axis, unless they are close together.
    """
    low, high = _span_of(entries, steps)
    positions: Any = entries[0] if entries else ()
    if isinstance(positions, slice):
        positions = range(positions.start, positions.stop, positions.step or 1)
    if len(positions) < 2 or high - low < LEAST_GAP * (len(positions) - 1):
        return [(start + low, start + high + size)]
    if not isinstance(positions, range):
        positions = numpy.unique(positions).tolist()
    low, high = _span_of(entries[1:], steps[1:])
    low, high, step = start + low, start + high + size, steps[0]
    return [(low + n * step, high + n * step) for n in positions]


def _count_before(positions: Axis, position: int) -> int:
    """Return the number of ascending positions below `position`."""
    if not isinstance(positions, range):
        return int(positions.searchsorted(position))
    count = -((positions.start - position) // positions.step)
    return min(max(count, 0), len(positions))


def raw_dtype(size: int) -> DType:
    """Return a dtype of `size` bytes that NumPy copies fast and without a change."""
    kinds = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}
    return numpy.dtype(kinds.get(size, "V%d" % size))


def _bytes_of(items: Array) -> memoryview:
    """Return the memory of contiguous items."""
    flat: Any = items.reshape(-1).view("u1")
    return memoryview(flat)


def check_out(out: Array, shape: Shape, dtype: DType) -> None:
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
