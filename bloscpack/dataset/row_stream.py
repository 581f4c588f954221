"""Rows that users give, in any form, as a stream of blocks in bounded memory.

An array in memory is cut into views. An array elsewhere, in a file say, is read in
slices. An iterator yields blocks of rows. Lists and the like become arrays first.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy

from ..exceptions import DoesNotFit, UsageError, UsageTypeError, UsageValueError
from .rows import as_rows, check_fill_value, check_nbytes, filled_rows

if TYPE_CHECKING:
    from .._format.dtypes import Array, DType
    from .layouts.base import Blocks, NewArray

# Number of plain bytes that are read at a time from an array that is not in memory, or
# converted at a time to another type.
READ_NBYTES = 8 * 2**20


class RowStream:
    """Rows of one dtype and inner shape, taken from the front.

    Attributes
    ----------
    dtype, inner
        The dtype, and the shape of a row.
    length
        Number of rows; None as long as it is unknown: until the last row is taken.
    """

    def __init__(
        self,
        pieces: Iterable[Any],
        dtype: DType,
        inner: tuple[int, ...],
        length: int | None = None,
    ) -> None:
        self.dtype = dtype
        self.inner = inner
        self.length = length
        self._pieces = iter(pieces)
        self._rest: Array = numpy.empty((0, *inner), dtype)
        self._taken = 0

    def take(self, count: int) -> Array:
        """Return the next `count` rows, fewer at the end.

        Raises `UsageError` if a row does not fit.
        """
        parts: list[Array] = []
        missing = count
        while missing:
            while not len(self._rest):
                piece = next(self._pieces, None)
                if piece is None:
                    self._end()
                    break
                check_mask(piece)
                self._rest = as_rows(piece, self.dtype, self.inner)
            part = self._rest[:missing]
            if not len(part):
                break
            self._rest = self._rest[missing:]
            self._taken += len(part)
            missing -= len(part)
            parts.append(part)
        return joined(parts, self.dtype, self.inner)

    def _end(self) -> None:
        if self.length is None:
            self.length = self._taken
        if self.length != self._taken:
            raise DoesNotFit(
                "expected '%d' rows, found '%d'" % (self.length, self._taken)
            )

    def blocks(self, block_rows: int, first: int = 0) -> Iterator[tuple[int, Array]]:
        """Yield the rows in blocks from number `first` on, and their numbers."""
        while len(rows := self.take(block_rows)):
            yield first, rows
            first += 1

    def appended(
        self, read: Callable[[slice], Array], length: int, block_rows: int
    ) -> Iterator[tuple[int, Array]]:
        """Yield the blocks that change when the rows are appended to `length` rows.

        `read` returns rows that are there now.
        """
        first, count = divmod(length, block_rows)
        if count:
            rows = self.take(block_rows - count)
            if not len(rows):
                return
            old = read(slice(length - count, length))
            yield first, joined([old, rows], self.dtype, self.inner)
            first += 1
        yield from self.blocks(block_rows, first)


def counted(blocks: Blocks, block_rows: int, new: NewArray) -> Blocks:
    """Yield blocks of a new array; set its number of rows when they end."""
    length = 0
    for number, rows in blocks:
        length = number * block_rows + len(rows)
        yield number, rows
    new.shape = (length, *new.shape[1:])


def joined(parts: list[Array], dtype: DType, inner: tuple[int, ...]) -> Array:
    """Return arrays as one; a single one is not copied."""
    if len(parts) == 1:
        return parts[0]
    # No concatenate(): its result has the byte order of the machine.
    result: Array = numpy.empty((sum(map(len, parts)), *inner), dtype)
    start = 0
    for part in parts:
        result[start : start + len(part)] = part
        start += len(part)
    return result


def stream_of(values: Any, dtype: DType, inner: tuple[int, ...]) -> RowStream:
    """Return values, in any form, as rows of a dtype and of a shape.

    Raises `UsageError` if they do not fit; for rows that are read or converted later,
    `RowStream.take` does.
    """
    if isinstance(values, RowStream):
        return values
    if isinstance(values, Iterator):
        return RowStream(values, dtype, inner)
    check_mask(values)
    if is_array(values) and tuple(values.shape[1:]) == inner and len(values.shape):
        length = int(values.shape[0])
        in_memory = isinstance(values, numpy.ndarray)
        if not in_memory or (values.dtype != dtype and values.dtype.kind != "O"):
            return RowStream(slices_of(values), dtype, inner, length)
    rows = as_rows(values, dtype, inner)
    return RowStream([rows], dtype, inner, len(rows))


def is_array(values: Any) -> bool:
    """Return whether values have a shape and a dtype, and can be sliced by position."""
    if isinstance(values, numpy.ndarray):
        return True
    return (
        isinstance(getattr(values, "shape", None), tuple)
        and isinstance(getattr(values, "dtype", None), numpy.dtype)
        and hasattr(values, "__getitem__")
        and not isinstance(values, numpy.generic)
        and not hasattr(values, "iloc")  # pandas slices by label
    )


def slices_of(values: Any) -> Iterator[Array]:
    """Yield the rows of an array in blocks that fit its own chunks."""
    shape = values.shape
    row = math.prod(shape[1:]) * values.dtype.itemsize
    step = max(1, READ_NBYTES // max(1, row))
    chunks = getattr(values, "chunks", None)
    if isinstance(chunks, tuple) and chunks and isinstance(chunks[0], int):
        step = max(step // max(1, chunks[0]), 1) * max(1, chunks[0])
    for start in range(0, shape[0], step):
        yield numpy.asarray(values[start : min(start + step, shape[0])])


def new_rows(data: Any, shape: Any, dtype: Any, fill_value: Any) -> RowStream:
    """Return the rows of a new array.

    `data` may be None for `fill_value` in an array of `shape` and `dtype`, which are
    otherwise those of `data` by default.
    """
    wanted = None if dtype is None else numpy.dtype(dtype)
    expected = None if shape is None else _checked_shape(shape)
    if data is None:
        if expected is None or wanted is None:
            raise UsageValueError("expected data, or shape and dtype")
        check_fill_value(fill_value, wanted)
        fill = numpy.zeros((), wanted) if fill_value is None else fill_value
        inner = expected[1:]
        _check_axis(expected)
        check_nbytes(expected, wanted)
        rows = filled_rows(expected[0], inner, fill, wanted)
        return RowStream([rows], wanted, inner, len(rows))
    if isinstance(data, Iterator):
        return _new_from_blocks(data, expected, wanted)
    if not is_array(data):
        data = numpy.asarray(data)
    check_mask(data)
    found = tuple(map(int, data.shape))
    if expected is not None and found != expected:
        raise UsageValueError(
            "expected data of shape %s, found an array of shape %s" % (expected, found)
        )
    _check_axis(found)
    return stream_of(data, data.dtype if wanted is None else wanted, found[1:])


def _new_from_blocks(
    blocks: Iterator[Any], shape: tuple[int, ...] | None, dtype: DType | None
) -> RowStream:
    """Return the rows of a new array whose blocks an iterator yields."""
    length = None if shape is None else shape[0]
    if shape is not None and dtype is not None:
        return RowStream(blocks, dtype, tuple(shape[1:]), length)
    first = next(blocks, None)
    if first is None:
        raise UsageValueError("an iterator without rows needs shape and dtype")
    check_mask(first)
    rows = numpy.asarray(first)
    inner = rows.shape[1:] if shape is None else tuple(shape[1:])

    def pieces() -> Iterator[Any]:
        yield rows
        yield from blocks

    return RowStream(pieces(), rows.dtype if dtype is None else dtype, inner, length)


def _checked_shape(shape: Any) -> tuple[int, ...]:
    lengths = tuple(shape) if hasattr(shape, "__iter__") else (shape,)
    try:
        found = tuple(map(operator.index, lengths))
    except TypeError as error:
        raise UsageTypeError("shape: expected lengths, found %r" % (shape,)) from error
    if any(length < 0 for length in found):
        raise UsageValueError("shape: the lengths can't be negative: %r" % (shape,))
    return found


def check_mask(values: Any) -> None:
    """Raise `UsageError` if values are masked."""
    if numpy.ma.is_masked(values):
        raise UsageError(
            "masked arrays can't be stored, the mask would be lost; store .filled() or "
            ".data and .mask"
        )


def _check_axis(shape: tuple[int, ...]) -> None:
    if not shape:
        raise UsageValueError(
            "a dataset holds rows, and an array without axes has none: give its item "
            "the shape (1,)"
        )
