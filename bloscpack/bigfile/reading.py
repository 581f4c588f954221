"""The reader of a block: rows of data files become rows of an array.

Strategy: rows become parts of data files, each is read into its place in the result.
Memory for a result is allocated only when the files are long enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from types import EllipsisType
from typing import TYPE_CHECKING, Any

import numpy

from .._engine.threads import for_each
from .._format.rows import text_of
from ..exceptions import DamageError
from .header import FILE_NAME, SILENT_CASTS, Array, Header, Part, check_convertible
from .writing import threads_for

if TYPE_CHECKING:
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

    # Ranges of rows

    def read(self, start: int, stop: int, out: Array | None = None) -> Array:
        """Return rows [start, stop), in `out` if given, with items of its type."""
        layout = self.layout
        self._check_length(start, stop)
        if out is None:
            out = numpy.empty((stop - start, *layout.row_shape), layout.dtype)
        result, dtype = out, layout.dtype
        direct = out.dtype == dtype and out.flags.c_contiguous
        if not direct:
            check_convertible(dtype, out.dtype)

        def work(part: Part) -> None:
            first = part.row - start
            target = result[first : first + part.stop - part.start]
            piece = target if direct else numpy.empty(target.shape, dtype)
            self._read_part(part, piece)
            if not direct:
                with SILENT_CASTS():
                    target[...] = piece

        nthreads = threads_for((stop - start) * layout.row_nbytes, self._nthreads)
        parts = layout.parts(start, stop, layout.piece_rows)
        for_each(parts, work, lambda _: None, nthreads)
        return result

    def _check_length(self, start: int, stop: int) -> None:
        """Raise `DamageError` if rows are behind the end of their data file."""
        row_nbytes = self.layout.row_nbytes
        for part in self.layout.parts(start, stop):
            found = self._writer.files.nbytes(part.number)
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
                filename=self._writer.files.path(part.number),
            )

    def _read_part(self, part: Part, piece: Array) -> None:
        view = piece.reshape(-1).view("u1").data
        offset = part.start * self.layout.row_nbytes
        with self._writer.files.opened(part.number) as file:
            if file.read_into(view, offset) < len(view):
                raise DamageError(
                    "the data file became shorter while it was read",
                    filename=self._writer.files.path(part.number),
                )

    # Indices

    def select(self, index: Index) -> Any:
        """Return the rows, or items of rows, of an index as NumPy understands it."""
        every = slice(None)
        rows, *items = (index or (every,)) if isinstance(index, tuple) else (index,)
        if rows is Ellipsis and len(items) == 1 + len(self.layout.row_shape):
            rows, *items = items  # the ellipsis stands for no axis
        elif rows is Ellipsis:
            rows = every
        if isinstance(rows, (int, numpy.integer)) and not isinstance(rows, bool):
            row = self._row(self.checked_row(int(rows)))
            return row[(0, *items)]
        if isinstance(rows, slice):
            found = self._slice(range(*rows.indices(self.layout.size)))
            return found[(every, *items)] if items else found
        found = self._picked(numpy.asarray(rows))
        # Arrays of rows and of items form pairs.
        return found[(numpy.arange(len(found)), *items)] if items else found

    def checked_row(self, row: int) -> int:
        """Return the number of a row that may be counted from the end."""
        size = self.layout.size
        if not -size <= row < size:
            raise IndexError(
                "row %d is out of bounds: the block '%s' has %d rows"
                % (row, self._name, size)
            )
        return row + size * (row < 0)

    def _row(self, row: int) -> Array:
        """Return a single row with one system call, without the steps for many rows."""
        (part,) = self.layout.parts(row, row + 1)
        piece: Array = numpy.empty((1, *self.layout.row_shape), self.layout.dtype)
        try:
            self._read_part(part, piece)
        except (DamageError, FileNotFoundError):
            self._check_length(row, row + 1)  # names the row
            raise
        return piece

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
        result = numpy.empty((len(numbers), *self.layout.row_shape), self.layout.dtype)
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
        most = self.layout.piece_rows
        edges = [0, *breaks.tolist(), len(numbers)]
        for begin, end in pairwise(edges):
            while begin < end:
                limit = int(numbers[begin]) + most
                stop = begin + int(numpy.searchsorted(numbers[begin:end], limit))
                yield begin, stop
                begin = stop
