"""Compare the contents of two files or folders, item by item, in bounded memory.

Strategy: where both have chunks of the same sizes, chunks of the same bytes are equal,
and are not decompressed. So a chunk that is damaged in the same way in both is not
noticed: `verify` notices it. The items of all other chunks are compared in blocks.

NaN equals NaN, and NaT equals NaT.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy

from ..._format.blosc_header import decode_header
from ..._format.dtypes import check_text
from ...exceptions import FormatError
from ..description import dtype_text
from ..rows import RowStream
from .contents import (
    ArrayContent,
    GroupContent,
    TableContent,
    as_array,
    as_table,
    cut_rows,
    inside,
    is_table,
    rows_in_block,
    with_rows,
    without_group,
)
from .statistics import leaves

if TYPE_CHECKING:
    from ..._file.array_reader import ChunkSource
    from ..._format.dtypes import Array, DType
    from ...abstract_io import Progress
    from ...serializers import Json, JsonObject
    from .contents import Content

    # Returns rows; called with spans that follow one another.
    Take = Callable[[int, int], Array]

# Number of differing items that are kept of each array.
FIRST = 10
# Number of items whose differences are in memory at a time.
MEASURED = 2**16
NUMBERS = "biufc"
# Smaller integers are exact as floats.
EXACT = 2**53


class Items:
    """The differing items of an array, a column or a field.

    Attributes
    ----------
    name
        Its name, with slashes and dots.
    total, differing
        Number of items that both have, and how many of them differ.
    first
        Index and both values of the first of them.
    largest, relative
        The largest absolute and relative difference of numbers that are finite, or of
        times; None without any, and if two times are too far apart for 64 bits.
    """

    def __init__(self, name: str, total: int) -> None:
        self.name = name
        self.total = total
        self.differing = 0
        self.first: list[tuple[tuple[int, ...], Any, Any]] = []
        self.largest: Any = None
        self.relative: float | None = None
        self._measurable = True

    def add(self, a: Array, b: Array, start: int, transposed: bool) -> None:
        """Compare a block of rows from number `start` on, perhaps of the transpose."""
        mask = _differ(a, b)
        count = int(numpy.count_nonzero(mask))
        if not count:
            return
        self.differing += count
        flat, position = mask.reshape(-1), -1
        for _ in range(min(count, FIRST - len(self.first))):
            position += 1 + int(flat[position + 1 :].argmax())
            where = tuple(map(int, numpy.unravel_index(position, mask.shape)))
            index = where[0] + start, *where[1:]
            index = index[::-1] if transposed else index
            self.first.append((index, a[where], b[where]))
        a, b = a[mask], b[mask]
        for begin in range(0, count, MEASURED):
            self._measure(a[begin : begin + MEASURED], b[begin : begin + MEASURED])

    def _measure(self, a: Array, b: Array) -> None:
        """Update the largest differences."""
        distances = _distances(a, b) if self._measurable else None
        if distances is None:
            self._measurable, self.largest = False, None
            return
        if not distances[0].size:
            return
        largest = distances[0].max()
        self.largest = largest if self.largest is None else max(self.largest, largest)
        if distances[1].size:
            self.relative = max(self.relative or 0.0, float(distances[1].max()))


class Comparison:
    """What differs between two contents.

    Attributes
    ----------
    notes
        Differences that are not of items: what differs, in which member, and what both
        have, as JSON.
    items
        The arrays, columns and fields with differing items.
    nbytes
        Number of plain bytes in chunks that were not decompressed.
    """

    def __init__(
        self, attributes: bool, quick: bool, progress: Progress | None = None
    ) -> None:
        """`attributes` are compared, too; if `quick`, one difference is enough."""
        self.notes: list[JsonObject] = []
        self.items: list[Items] = []
        self.nbytes = 0
        self._attributes = attributes
        self._quick = quick
        self._progress = progress

    @property
    def is_equal(self) -> bool:
        """Whether no difference was found."""
        return not (self.notes or any(found.differing for found in self.items))

    @property
    def _is_done(self) -> bool:
        return self._quick and not self.is_equal

    def _note(self, name: str, what: str, a: Json, b: Json) -> None:
        if not _is_same_json(a, b):
            self.notes.append({"name": name, "what": what, "a": a, "b": b})

    def compare(self, a: Content, b: Content, name: str = "") -> None:
        """Compare contents, whose name in larger ones is `name`."""
        if a.kind != b.kind:
            a, b = without_group(a), without_group(b)
        dtypes = {side.dtype for side in (a, b) if isinstance(side, ArrayContent)}
        if (a.kind != b.kind or len(dtypes) == 2) and is_table(a) and is_table(b):
            a, b = as_table(a), as_table(b)
        self._note(name, "kind", a.kind, b.kind)
        if self._attributes:
            for key in self._in_both("attributes", a.attrs, b.attrs, name):
                self._note(name, "attribute '%s'" % key, a.attrs[key], b.attrs[key])
        if isinstance(a, ArrayContent) and isinstance(b, ArrayContent):
            if self._has_comparable_items(a, b, name):
                self._compare_items(with_rows(a), with_rows(b), name)
        elif isinstance(a, TableContent) and isinstance(b, TableContent):
            self._compare_tables(a, b, name)
        elif isinstance(a, GroupContent) and isinstance(b, GroupContent):
            for inner in self._in_both("members", a.members, b.members, name):
                self.compare(a.members[inner], b.members[inner], inside(name, inner))

    def _in_both(
        self, what: str, a: Iterable[str], b: Iterable[str], name: str
    ) -> Iterator[str]:
        """Yield the names that both have; note the others."""
        others = [n for n in a if n not in b], [n for n in b if n not in a]
        self._note(name, what, *others)
        for inner in a:
            if inner in b and not self._is_done:
                yield inner

    # Arrays and tables

    def _has_comparable_items(
        self, a: ArrayContent, b: ArrayContent, name: str
    ) -> bool:
        self._note(name, "dtype", dtype_text(a.dtype), dtype_text(b.dtype))
        self._note(name, "shape", [*a.shape], [*b.shape])
        return a.shape[1:] == b.shape[1:] and _are_comparable(a.dtype, b.dtype)

    def _compare_items(self, a: ArrayContent, b: ArrayContent, name: str) -> None:
        """Compare the rows that both have."""
        transposed = a.fortran and b.fortran and a.shape == b.shape
        shape = a.shape[::-1] if transposed else a.shape
        length = min(shape[0], b.shape[-1 if transposed else 0])
        row_nbytes = prod(shape[1:]) * a.dtype.itemsize
        take_a, take_b = _taker(a, transposed), _taker(b, transposed)
        found: dict[str, Items] = {}
        for span in self._spans(a, b, length, row_nbytes):
            for part in cut_rows(span, rows_in_block(row_nbytes)):
                rows = take_a(part.start, part.stop), take_b(part.start, part.stop)
                pairs = zip(*(leaves(name, side) for side in rows), strict=True)
                for (leaf, left), (_, right) in pairs:
                    if leaf not in found:
                        found[leaf] = Items(leaf, length * prod(left.shape[1:]))
                        self.items.append(found[leaf])
                    found[leaf].add(left, right, part.start, transposed)
                self._count(rows[0].nbytes)
                if self._is_done:
                    return

    def _count(self, nbytes: int) -> None:
        if self._progress is not None:
            self._progress(nbytes)

    def _spans(
        self, a: ArrayContent, b: ArrayContent, length: int, row_nbytes: int
    ) -> Iterator[range]:
        """Yield the rows of chunks that are not the same, in order."""
        first, second = a.chunks, b.chunks
        # In Fortran order, the chunks of arrays of other shapes hold other rows.
        same = a.dtype == b.dtype and a.fortran == b.fortran
        same = same and (a.shape == b.shape or not a.fortran)
        # A chunk that is cut in several axes has parts of rows.
        same = same and all(c is None or c.grid is None for c in (first, second))
        if not (same and first and second and first.chunk_size == second.chunk_size):
            yield range(length)
            return
        start = stop = 0
        for number in first.numbers(0, min(first.nbytes, second.nbytes)):
            span = begin, end = first.span(number)
            if span == second.span(number) and _is_same(first, second, number):
                self.nbytes += end - begin
                self._count(end - begin)
                continue
            # A row may be in two chunks, but is compared once.
            if begin // row_nbytes > stop or stop - start >= rows_in_block(row_nbytes):
                yield range(start, stop)
                start = max(stop, begin // row_nbytes)
            stop = min(length, -(-end // row_nbytes))
        yield range(start, stop)

    def _compare_tables(self, a: TableContent, b: TableContent, name: str) -> None:
        self._note(name, "rows", a.length, b.length)
        pairs = {
            column: (
                _cut(a.columns[column], b.length),
                _cut(b.columns[column], a.length),
            )
            for column in self._in_both("columns", a.columns, b.columns, name)
        }
        if all(side.array is not None for pair in pairs.values() for side in pair):
            for column, pair in pairs.items():
                if not self._is_done:
                    self.compare(*pair, inside(name, column))
            return
        # All columns are read together, once.
        names = [
            column
            for column, pair in pairs.items()
            if self._has_comparable_items(*pair, inside(name, column))
        ]
        if names:
            self._compare_items(as_array(a.only(names)), as_array(b.only(names)), name)


def _cut(column: ArrayContent, length: int) -> ArrayContent:
    """Return a column without the rows that another table lacks."""
    length = min(length, column.shape[0])
    return replace(column, shape=(length, *column.shape[1:]))


def _taker(content: ArrayContent, transposed: bool) -> Take:
    """Return what reads rows of an array, or of its transpose."""
    array = content.array
    if array is None:
        shape = content.shape[::-1] if transposed else content.shape
        blocks = content.stored() if transposed else content.rows()
        stream = RowStream(blocks, content.dtype, shape[1:])
        return lambda start, stop: stream.take(stop - start)
    if transposed:
        return lambda start, stop: array[..., start:stop].T
    return lambda start, stop: array[start:stop]


def _is_same(first: ChunkSource, second: ChunkSource, number: int) -> bool:
    """Return whether a chunk has the same bytes in both files, without decompressing.

    The digests behind them may be of different kinds.
    """
    chunks = first.stored_chunk(number), second.stored_chunk(number)
    if None in chunks:
        return False
    views = [memoryview(chunk or b"") for chunk in chunks]
    try:
        size = decode_header(views[0]).ctbytes
    except FormatError:  # it can't be decompressed either
        return False
    # Bytes are compared faster than views.
    first_bytes, second_bytes = (bytes(view[:size]) for view in views)
    return len(first_bytes) == size and first_bytes == second_bytes


def _is_same_json(a: Json, b: Json) -> bool:
    """Return whether values are equal: NaN is NaN, 1 is 1.0, but no truth value."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_is_same_json(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_is_same_json, a, b))
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    return bool(a == b or (a != a and b != b))


# Items


def _are_comparable(a: DType, b: DType) -> bool:
    """Return whether items of two types can be equal."""
    if a == b:
        return True
    both = a.kind + b.kind
    if both in ("MM", "mm"):
        try:
            numpy.result_type(a, b)
        except (TypeError, OverflowError):  # like years and seconds
            return False
    return set(both) <= set(NUMBERS) or both in ("SS", "UU", "MM", "mm")


def _differ(a: Array, b: Array) -> Array:
    """Return which items differ."""
    kind, kinds = a.dtype.kind, a.dtype.kind + b.dtype.kind
    if kind == "V":
        a, b = (numpy.ascontiguousarray(side) for side in (a, b))
        shape = *a.shape, a.dtype.itemsize
        sides = [numpy.ndarray(shape, "u1", side) for side in (a, b)]
        found: Array = (sides[0] != sides[1]).any(axis=-1)
        return found
    if kind in "SU":
        check_text(a)
        check_text(b)
    try:
        found = a != b
    except OverflowError:  # times of different units, in NumPy 2.5 and later
        pairs = zip(a.flat, b.flat, strict=True)
        return numpy.array([*map(_times_differ, pairs)], "?").reshape(a.shape)
    if kind in "fc" and b.dtype.kind in "fc":
        found &= ~((a != a) & (b != b))
    elif kind in "mM":
        if a.dtype != b.dtype:  # a conversion that overflows gives another time
            found |= ~(_fits(a, b) & _fits(b, a))
        found &= ~(numpy.isnat(a) & numpy.isnat(b))
    elif kind != b.dtype.kind and "b" not in kinds and set(kinds) & set("iu"):
        # NumPy compares these as floats; Python compares large integers exactly.
        integers = a if kind in "iu" else b
        large = ~found & (numpy.abs(integers.astype("f8")) >= EXACT)
        pairs = zip(a[large].tolist(), b[large].tolist(), strict=True)
        found[large] = [x != y for x, y in pairs]
    return found


def _times_differ(times: tuple[Any, Any]) -> bool:
    """Return whether two times differ, also if they have no common unit."""
    try:
        return bool(times[0] != times[1] and not numpy.isnat(times).all())
    except OverflowError:
        return True


def _fits(times: Array, others: Array) -> Array:
    """Return which times stay what they are in the unit that both are compared in."""
    common = times.astype(numpy.result_type(times, others))
    fitting: Array = common.astype(times.dtype) == times
    return fitting


def _distances(a: Array, b: Array) -> tuple[Array, Array] | None:
    """Return the absolute and the relative differences, of which all are finite.

    None if the items are no numbers and no times, or times too far apart.
    """
    kind = a.dtype.kind + b.dtype.kind
    if set(kind) <= {"m", "M"}:
        known = ~(numpy.isnat(a) | numpy.isnat(b))
        with suppress(OverflowError):  # of different units, in NumPy 2.5 and later
            return _time_distances(a[known], b[known])
        return None
    if not set(kind) <= set("iufc"):
        return None
    with numpy.errstate(over="ignore", invalid="ignore"):
        wide = "c16" if "c" in kind else "f8"
        largest = numpy.maximum(numpy.abs(a.astype(wide)), numpy.abs(b.astype(wide)))
        distance = numpy.abs(a.astype(wide) - b.astype(wide))
        if a.dtype == b.dtype and a.dtype.kind in "iu":  # exact, also beyond 2**53
            high, low = numpy.maximum(a, b), numpy.minimum(a, b)
            distance = high.astype("u8") - low.astype("u8")
        # Floats of large integers may be equal.
        known = numpy.isfinite(largest) & numpy.isfinite(distance) & (distance != 0)
        return distance[known], distance[known] / largest[known]


def _time_distances(a: Array, b: Array) -> tuple[Array, Array] | None:
    """Return the absolute differences of times; None if one needs more than 64 bits."""
    if a.dtype != b.dtype and not (_fits(a, b) & _fits(b, a)).all():
        return None
    low, high = numpy.minimum(a, b), numpy.maximum(a, b)
    distance = high.view("u8") - low.view("u8")
    if (distance > numpy.iinfo("i8").max).any():
        return None
    return distance.view(high.dtype.str.replace("M", "m")), numpy.zeros(0)
