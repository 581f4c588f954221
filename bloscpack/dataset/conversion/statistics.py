"""Statistics of items in one pass: their number, the least, the greatest, the mean.

Items come in blocks of any size, which are read once and not kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import chain
from typing import Any

import numpy

from ..._format.dtypes import Array, DType
from ...abstract_io import Progress
from .contents import Content, Members, Rows, inside, member_of

# Kinds of types that have an order and a mean: truth values, numbers and times.
ORDERED = "biufmM"


class Summary:
    """Statistics of the items of an array, or of one of their fields.

    Attributes
    ----------
    name, dtype
        Those of the array.
    count, missing
        Number of items that are not missing, and of those that are: NaN, NaT, those
        that the mask of a column names, and numbers that stand for missing ones.
    low, high
        The least and the greatest item that is not missing; None without any, and for
        text and other types without an order. They are integers for times.
    """

    def __init__(self, name: str, dtype: DType) -> None:
        self.name = name
        self.dtype = dtype
        self.count = self.missing = 0
        self.low: Any = None
        self.high: Any = None
        self._mean = 0.0
        self._total = 0  # of integers and times

    @property
    def mean(self) -> float | None:
        """The mean of the items that are not missing; None if it is no number.

        It is an integer for times, the nearest one.
        """
        if self.dtype.kind != "f" and self.low is not None:
            mean = Fraction(self._total, self.count)
            return round(mean) if self.dtype.kind in "mM" else float(mean)
        if self.low is None or math.isfinite(self._mean):
            return None if self.low is None else self._mean
        infinite = {end for end in (self.low, self.high) if math.isinf(end)}
        return infinite.pop() if len(infinite) == 1 else None

    def add(self, items: Array) -> None:
        """Add items of any shape."""
        items, kind = items.reshape(-1), self.dtype.kind
        if kind in "fcmM" or numpy.ma.isMaskedArray(items):
            absent = are_missing(items)
            items = numpy.ma.getdata(items)[~absent]
            self.missing += int(numpy.count_nonzero(absent))
        self.count += items.size
        if kind not in ORDERED or not items.size:
            return
        if kind in "mM":
            items = items.astype(items.dtype.newbyteorder("=")).view("i8")
        else:  # integers of as many bits as the sums have
            wide = "u8" if kind in "bu" else "%s8" % kind
            with numpy.errstate(over="ignore"):
                items = items.astype(wide, copy=False)
        ends = items.min().item(), items.max().item()
        self.low = ends[0] if self.low is None else min(self.low, ends[0])
        self.high = ends[1] if self.high is None else max(self.high, ends[1])
        if kind != "f":  # exact, as the sum of halves of 32 bits
            halves = items >> 32, items & (2**32 - 1)
            high, low = (int(half.sum()) for half in halves)
            self._total += (high << 32) + low
            return
        with numpy.errstate(over="ignore", invalid="ignore"):
            delta = float(items.mean(dtype="f8")) - self._mean
        self._mean += delta * items.size / self.count


def are_missing(items: Array) -> Array:
    """Return which items are masked, NaN or NaT."""
    plain, missing = numpy.ma.getdata(items), numpy.ma.getmaskarray(items)
    if plain.dtype.kind in "mM":
        return missing | numpy.isnat(plain)
    return missing | (plain != plain) if plain.dtype.kind in "fc" else missing


def leaves(name: str, items: Array) -> Iterator[tuple[str, Array]]:
    """Yield items by name, or the fields of items that have some."""
    if items.dtype.names is None:
        yield name, items
    for field in items.dtype.names or ():
        yield from leaves(inside(name, field), items[field])


def leaves_of(content: Rows, block: Array, name: str) -> Iterator[tuple[str, Array]]:
    """Yield the `leaves` of a block of rows; columns with a mask are masked."""
    if not content.columns:
        yield from leaves(name, block)
    for column, items in content.masked(block).items():
        yield from leaves(inside(name, column), items)


def summaries(
    content: Content, progress: Progress | None = None, name: str = ""
) -> Iterator[Summary]:
    """Yield the statistics of all arrays; of a table, of each column, and each field.

    All blocks are read once, in the order of the source. `progress` is called with the
    number of plain bytes of each.
    """
    if isinstance(content, Members):
        for inner in [n for n in content.members if n not in content.masks.values()]:
            member = member_of(content, inner)
            where = name if inner in content.masks else inside(name, inner)
            yield from summaries(member, progress, where)
        return
    by_leaf: dict[str, Summary] = {}
    columns = {inside(name, n): c for n, c in content.visible.items()}
    fills = {n: c.missing for n, c in (columns or {name: content}).items()}
    for block in chain([numpy.empty(0, content.dtype)], content.stored()):
        for leaf, items in leaves_of(content, block, name):
            if len(missing := fills.get(leaf, ())):
                marks = numpy.isin(numpy.ma.getdata(items), missing)
                items = numpy.ma.array(items, mask=marks)
            if leaf not in by_leaf:
                by_leaf[leaf] = Summary(leaf, items.dtype)
            by_leaf[leaf].add(items)
        if progress is not None:
            progress(block.nbytes)
    yield from by_leaf.values()
