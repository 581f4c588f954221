"""The reader of a block: rows of data files become rows of an array.

Strategy: rows become parts of data files, each is read into its place in the result.
Memory for a result is allocated only when the files are long enough.
"""

from __future__ import annotations

from itertools import pairwise

import numpy

from .._engine.threads import for_each
from .._format.row_sets import text_of
from ..exceptions import DamageError
from .dtypes import SILENT_CASTS, check_convertible
from .header import FILE_NAME
from .writing import PIECE_NBYTES, split, threads_for

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import EllipsisType
    from typing import Any

    from .data_files import DataFiles
    from .dtypes import Array
    from .header import Header, Part
    from .writing import Writer

    Index = int | slice | EllipsisType | Array | list[int] | tuple[Any, ...]

# Rows of an index that lie at most this many bytes apart are read together.
GAP_NBYTES = 2**14


class Reader:
    """Reads rows of a block through the open files of its writer.

    ``layout`` is that of the writer, because an appending writer changes it.
    """

    def __init__(self, name: str, writer: Writer, nthreads: int | None) -> None:
        self._name = name
        self._writer = writer
        self._nthreads = nthreads

    @property
    def layout(self) -> Header:
        """The layout of the block."""
        return self._writer.layout

    @property
    def _files(self) -> DataFiles:
        return self._writer.files

    @property
    def _items_shape(self) -> tuple[int, ...]:
        """The shape of a row."""
        nmemb = self.layout.nmemb
        return () if nmemb == 1 else (nmemb,)

    # Ranges of rows

    def read(self, start: int, stop: int) -> Array:
        """Return rows [start, stop) as a new array."""
        self._check_length(start, stop)
        out = numpy.empty((stop - start, *self._items_shape), self.layout.dtype)
        self._fill(out, start, stop)
        return out

    def read_into(self, out: Array, start: int, stop: int) -> None:
        """Read rows [start, stop) into an array, converting items to its type."""
        self._check_length(start, stop)
        self._fill(out, start, stop)

    def _check_length(self, start: int, stop: int) -> None:
        """Raise `DamageError` if rows are behind the end of their data file."""
        row_nbytes = self.layout.row_nbytes
        for part in self.layout.parts(start, stop):
            found = self._files.nbytes(part.number)
            if found >= part.stop * row_nbytes:
                continue
            there = min(max(found // row_nbytes, part.start), part.stop)
            first = part.row + there - part.start
            last = part.row + part.stop - part.start
            raise DamageError(
                "%s missing: data file %s has %d bytes, %d are needed"
                % (
                    text_of([(first, last)]),
                    FILE_NAME % part.number,
                    found,
                    part.stop * row_nbytes,
                ),
                filename=self._files.path(part.number),
            )

    def _fill(self, out: Array, start: int, stop: int) -> None:
        dtype = self.layout.dtype
        direct = out.dtype == dtype and out.flags.c_contiguous
        if not direct:
            check_convertible(dtype, out.dtype)

        def work(part: Part) -> None:
            first = part.row - start
            target = out[first : first + part.stop - part.start]
            piece = target if direct else numpy.empty(target.shape, dtype)
            self._read_part(part, piece)
            if not direct:
                with SILENT_CASTS():
                    target[...] = piece

        nthreads = threads_for((stop - start) * self.layout.row_nbytes, self._nthreads)
        for_each(split(self.layout, start, stop), work, _nothing, nthreads)

    def _read_part(self, part: Part, piece: Array) -> None:
        view = piece.reshape(-1).view("u1").data
        offset = part.start * self.layout.row_nbytes
        with self._files.opened(part.number) as file:
            if file.read_into(view, offset) < len(view):
                raise DamageError(
                    "the data file became shorter while it was read",
                    filename=self._files.path(part.number),
                )

    # Indices

    def select(self, index: Index) -> Any:
        """Return the rows, or items of rows, of an index as NumPy understands it."""
        if not isinstance(index, tuple):
            return self._rows(index)
        if any(item is Ellipsis for item in index) or not index:
            index = _without_ellipsis(index, 1 + len(self._items_shape))
        rows = self._rows(index[0])
        if len(index) == 1:
            return rows
        if isinstance(index[0], (int, numpy.integer)):
            return rows[index[1:]]
        every: Any = slice(None)
        if not any(isinstance(item, slice) for item in index):
            every = numpy.arange(len(rows))  # arrays of rows and of items form pairs
        return rows[(every, *index[1:])]

    def _rows(self, index: Any) -> Any:
        if index is Ellipsis:
            index = slice(None)
        if isinstance(index, slice):
            return self._slice(range(*index.indices(self.layout.size)))
        if isinstance(index, (int, numpy.integer)) and not isinstance(index, bool):
            return self._row(self.checked_row(int(index)))
        return self._picked(numpy.asarray(index))

    def checked_row(self, row: int) -> int:
        """Return the number of a row that may be counted from the end."""
        size = self.layout.size
        if not -size <= row < size:
            raise IndexError(
                "row %d is out of bounds: the block '%s' has %d rows"
                % (row, self._name, size)
            )
        return row + size * (row < 0)

    def _row(self, row: int) -> Any:
        """Return a single row with one system call, without the steps for many rows."""
        (part,) = self.layout.parts(row, row + 1)
        piece = numpy.empty((1, *self._items_shape), self.layout.dtype)
        try:
            self._read_part(part, piece)
        except (DamageError, FileNotFoundError):
            self._check_length(row, row + 1)  # names the row
            raise
        return piece[0]

    def _slice(self, rows: range) -> Array:
        if not rows:
            return self.read(0, 0)
        low, high = sorted((rows[0], rows[-1]))
        if abs(rows.step) == 1:
            found = self.read(low, high + 1)
            return found if rows.step > 0 else found[::-1]
        self._check_length(low, high + 1)
        return self._picked(numpy.arange(rows.start, rows.stop, rows.step))

    def _picked(self, index: Array) -> Array:
        """Return the rows with these numbers, reading neighbours together."""
        size = self.layout.size
        if index.dtype == bool:
            if index.shape != (size,):
                raise IndexError(
                    "a mask of the shape %s for %d rows" % (index.shape, size)
                )
            index = numpy.flatnonzero(index)
        if index.ndim != 1 or (index.size and index.dtype.kind not in "iu"):
            raise IndexError("expected a number, a slice, or an array of row numbers")
        numbers = index.astype("i8")
        if numbers.size:
            self.checked_row(int(numbers.min()))
            self.checked_row(int(numbers.max()))
        numbers[numbers < 0] += size
        result = numpy.empty((len(numbers), *self._items_shape), self.layout.dtype)
        order = numpy.argsort(numbers, kind="stable")
        in_order = numbers[order]
        for begin, end in self._runs(in_order):
            first, last = int(in_order[begin]), int(in_order[end - 1])
            rows = self.read(first, last + 1)
            result[order[begin:end]] = rows[in_order[begin:end] - first]
        return result

    def _runs(self, numbers: Array) -> Iterator[tuple[int, int]]:
        """Yield ranges of sorted row numbers whose rows are close to each other."""
        row_nbytes = max(1, self.layout.row_nbytes)
        breaks = numpy.flatnonzero(numpy.diff(numbers) * row_nbytes > GAP_NBYTES) + 1
        most = max(1, PIECE_NBYTES // row_nbytes)
        edges = [0, *breaks.tolist(), len(numbers)]
        for begin, end in pairwise(edges):
            while begin < end:
                limit = int(numbers[begin]) + most
                stop = begin + int(numpy.searchsorted(numbers[begin:end], limit))
                yield begin, stop
                begin = stop


def _nothing(result: None) -> None:
    """Deliver a result that is in place."""


def _without_ellipsis(index: tuple[Any, ...], ndim: int) -> tuple[Any, ...]:
    """Return an index of the rows, and perhaps of the items, for one with ``...``."""
    before: list[Any] = []
    for position, item in enumerate(index):
        if item is Ellipsis:
            missing = ndim - (len(index) - 1)
            rest = index[position + 1 :]
            return (*before, *[slice(None)] * missing, *rest) or (slice(None),)
        before.append(item)
    return tuple(before) or (slice(None),)
