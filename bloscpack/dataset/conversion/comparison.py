"""Compare the contents of two files or folders, item by item, in bounded memory.

A missing item equals another one: NaN, NaT, or an item that the mask of a column names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import prod

import numpy

from ..._format.dtypes import Array, DType, check_text
from ..._types import Json, JsonObject
from ...abstract_io import Progress
from ..description import dtype_text
from ..rows import RowStream
from .contents import (
    RECORD,
    Content,
    Members,
    Rows,
    as_table,
    inside,
    is_same_json,
    is_table,
    rows_in_block,
    with_rows,
    without_group,
)
from .statistics import are_missing, leaves_of

# Number of differing items that are kept of each array.
FIRST = 10
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
        Index and both values of the first of them, each as an array of one item.
    """

    def __init__(self, name: str, total: int) -> None:
        self.name = name
        self.total = total
        self.differing = 0
        self.first: list[tuple[tuple[int, ...], Array, Array]] = []

    def add(self, a: Array, b: Array, start: int, transposed: bool) -> None:
        """Compare a block of rows from number `start` on, perhaps of the transpose."""
        mask = _differ(a, b)
        positions = numpy.flatnonzero(mask)
        self.differing += len(positions)
        for position in positions[: FIRST - len(self.first)]:
            where = numpy.unravel_index(numpy.array([position]), mask.shape)
            row, *others = (int(number[0]) for number in where)
            index = row + start, *others
            index = index[::-1] if transposed else index
            self.first.append((index, a[where], b[where]))


class Comparison:
    """What differs between two contents.

    Attributes
    ----------
    notes
        Differences that are not of items: what differs, in which member, and what both
        have, as JSON.
    items
        The arrays, columns and fields that both have.
    """

    def __init__(
        self, attributes: bool, quick: bool, progress: Progress | None = None
    ) -> None:
        """`attributes` are compared, too; if `quick`, one difference is enough."""
        self.notes: list[JsonObject] = []
        self.items: list[Items] = []
        self._attributes = attributes
        self._quick = quick
        self._progress = progress

    @property
    def is_equal(self) -> bool:
        """Whether no difference was found."""
        return not (self.notes or any(items.differing for items in self.items))

    @property
    def _is_done(self) -> bool:
        return self._quick and not self.is_equal

    def _note(self, name: str, what: str, a: Json, b: Json) -> None:
        if not is_same_json(a, b):
            self.notes.append({"name": name, "what": what, "a": a, "b": b})

    def compare(self, a: Content, b: Content, name: str = "") -> None:
        """Compare contents, whose name in larger ones is `name`."""
        if a.kind != b.kind:
            a, b = without_group(a), without_group(b)
        arrays = [s for s in (a, b) if isinstance(s, Rows) and not s.columns]
        are_apart = len({side.dtype for side in arrays}) == 2
        if (a.kind != b.kind or are_apart) and is_table(a) and is_table(b):
            a, b, arrays = as_table(a), as_table(b), []
        self._note(name, "kind", a.kind, b.kind)
        self._compare_attributes(a, b, name)
        if len(arrays) == 2:
            left, right = arrays
            if self._has_comparable_items(left, right, name):
                self._compare_items(with_rows(left), with_rows(right), name)
        elif isinstance(a, Members) and isinstance(b, Members):
            for inner in self._in_both("members", a.members, b.members, name):
                self.compare(a.members[inner], b.members[inner], inside(name, inner))
        elif isinstance(a, Rows) and isinstance(b, Rows) and not arrays:
            self._compare_tables(a, b, name)

    def _compare_attributes(self, a: Content, b: Content, name: str) -> None:
        if not self._attributes:
            return
        left, right = dict(a.attrs), dict(b.attrs)
        for attrs, others in ((left, right), (right, left)):
            if RECORD not in others and isinstance(attrs.get(RECORD), dict):
                del attrs[RECORD]  # other formats have no such files
        for key in self._in_both("attributes", left, right, name):
            self._note(name, "attribute '%s'" % key, left[key], right[key])

    def _in_both(
        self, what: str, a: Iterable[str], b: Iterable[str], name: str
    ) -> Iterator[str]:
        """Yield the names that both have; note the others."""
        others = [n for n in a if n not in b], [n for n in b if n not in a]
        self._note(name, what, *others)
        for inner in a:
            if inner in b and not self._is_done:
                yield inner

    def _has_comparable_items(self, a: Rows, b: Rows, name: str) -> bool:
        if {a.dtype.kind, b.dtype.kind} != {"U", "O"}:  # few formats have both texts
            self._note(name, "dtype", dtype_text(a.dtype), dtype_text(b.dtype))
        self._note(name, "shape", [*a.shape], [*b.shape])
        return a.shape[1:] == b.shape[1:] and _are_comparable(a.dtype, b.dtype)

    def _compare_tables(self, a: Rows, b: Rows, name: str) -> None:
        """Compare the columns that both have, which are read together, once."""
        self._note(name, "rows", *a.shape, *b.shape)
        length, names = min(*a.shape, *b.shape), []
        columns = a.visible, b.visible
        for column in self._in_both("columns", *columns, name):
            left, right = (  # without the rows that one table lacks
                replace(side[column], shape=(length, *side[column].shape[1:]))
                for side in columns
            )
            where = inside(name, column)
            self._compare_attributes(left, right, where)
            if self._has_comparable_items(left, right, where):
                names.append(column)
        if names:
            self._compare_items(a.only(names), b.only(names), name)

    def _compare_items(self, a: Rows, b: Rows, name: str) -> None:
        """Compare the rows that both have, in the order in which both are stored."""
        transposed = a.fortran and b.fortran and a.shape == b.shape
        shape = a.shape[::-1] if transposed else a.shape
        length = shape[0] if transposed else min(a.shape[0], b.shape[0])
        step = rows_in_block(prod(shape[1:]) * a.dtype.itemsize)
        streams = []
        for side in (a, b):
            blocks = side.stored() if transposed else side.blocks()
            streams.append(RowStream(blocks, side.dtype, shape[1:]))
        compared: dict[str, Items] = {}
        for start in range(0, length, step):
            rows = [stream.take(min(step, length - start)) for stream in streams]
            both = (leaves_of(*side, name) for side in zip((a, b), rows, strict=True))
            for (leaf, left), (_, right) in zip(*both, strict=True):
                if leaf not in compared:
                    compared[leaf] = Items(leaf, length * prod(left.shape[1:]))
                    self.items.append(compared[leaf])
                compared[leaf].add(left, right, start, transposed)
            if self._progress is not None:
                self._progress(rows[0].nbytes)
            if self._is_done:
                return


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
    texts = "SS", "UU", "UO", "OU"
    return set(both) <= set(NUMBERS) or both in (*texts, "MM", "mm")


def _differ(a: Array, b: Array) -> Array:
    """Return which items differ."""
    differs: Array
    if numpy.ma.isMaskedArray(a) or numpy.ma.isMaskedArray(b):
        x, y = are_missing(a), are_missing(b)
        differs = _differ(numpy.ma.getdata(a), numpy.ma.getdata(b))
        return numpy.where(x | y, x != y, differs)
    kind, kinds = a.dtype.kind, a.dtype.kind + b.dtype.kind
    if kind == "V":
        a, b = (numpy.ascontiguousarray(side) for side in (a, b))
        shape = *a.shape, a.dtype.itemsize
        sides = [numpy.ndarray(shape, "u1", side) for side in (a, b)]
        differs = (sides[0] != sides[1]).any(axis=-1)
        return differs
    if kind in "SUO":
        check_text(a)
        check_text(b)
    try:
        differs = a != b
    except OverflowError:  # times of different units, in NumPy 2.5 and later
        pairs = zip(a.flat, b.flat, strict=True)
        return numpy.array([*map(_times_differ, pairs)], "?").reshape(a.shape)
    if kind in "fc" and b.dtype.kind in "fc":
        parts = ((a.real, b.real), (a.imag, b.imag)) if "c" in kinds else ((a, b),)
        differs = numpy.zeros(a.shape, "?")
        for x, y in parts:
            differs |= (x != y) & ~((x != x) & (y != y))
    elif kind in "mM":
        if a.dtype != b.dtype:  # a conversion that overflows gives another time
            differs |= ~(_fits(a, b) & _fits(b, a))
        differs &= ~(numpy.isnat(a) & numpy.isnat(b))
    elif kind != b.dtype.kind and "b" not in kinds and set(kinds) & set("iu"):
        # NumPy compares these as floats; Python compares large integers exactly.
        integers = a if kind in "iu" else b
        large = ~differs & (numpy.abs(integers.astype("f8")) >= EXACT)
        pairs = zip(a[large].tolist(), b[large].tolist(), strict=True)
        differs[large] = [x != y for x, y in pairs]
    return differs


def _times_differ(times: Sequence[numpy.generic]) -> bool:
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
