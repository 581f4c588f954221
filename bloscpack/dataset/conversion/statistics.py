"""Statistics of items in one pass: counts, extremes, mean, deviation, a histogram.

Items come in blocks of any size, and only the sums of them are kept. The width of a bin
is a power of two. When a value is outside of all bins, the bins become wider by such a
factor, and each old bin is a part of a new one: the counts stay exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy

from ..._format.dtypes import check_text
from .contents import ArrayContent, GroupContent, inside

if TYPE_CHECKING:
    from ..._format.dtypes import Array, DType
    from ...abstract_io import Progress
    from .contents import Columns, Content

# Number of bins that are counted. Fewer are shown.
NBINS = 1024
# A bin is not narrower than this part of the largest value, whose number stays exact.
PRECISION_BITS = 53
# The binary exponent of the smallest float.
SMALLEST = -1074
# What is counted in place of items that are no numbers, by the kind of their type.
MEASURES = {"c": "magnitude", "S": "length", "U": "length"}


class Histogram:
    """Counts of finite values in bins of one width."""

    def __init__(self, smallest: int) -> None:
        """`smallest` is the exponent of the narrowest bins."""
        self._exponent = smallest
        self._first = 0  # the number of the first bin; bin 0 begins at 0
        self._counts: Array = numpy.zeros(NBINS, "i8")
        self._range = math.inf, -math.inf

    def add(self, values: Array) -> None:
        """Count floats, at least one."""
        low = min(self._range[0], float(values.min()))
        high = max(self._range[1], float(values.max()))
        self._range = low, high
        self._widen(low, high)
        numbers = numpy.floor(values / self._width).astype("i8") - self._first
        self._counts += numpy.bincount(numbers, minlength=NBINS)

    @property
    def _width(self) -> float:
        return math.ldexp(1, self._exponent)

    def _widen(self, low: float, high: float) -> None:
        """Make the bins so wide that they hold a range."""
        largest = max(abs(low), abs(high))
        exponent = self._exponent
        if largest:
            exponent = max(exponent, math.frexp(largest)[1] - PRECISION_BITS)
        while True:
            width = math.ldexp(1, exponent)
            first = math.floor(low / width)
            if math.floor(high / width) - first < NBINS:
                break
            exponent += 1
        # Numbers have 54 bits at most: shifting them farther makes no difference.
        shift = min(exponent - self._exponent, 62)
        used = numpy.flatnonzero(self._counts)
        numbers = ((used + self._first) >> shift) - first
        counts = numpy.zeros(NBINS, "i8")
        numpy.add.at(counts, numbers, self._counts[used])
        self._exponent, self._first, self._counts = exponent, first, counts

    def bars(self, most: int) -> Iterator[tuple[float, float, int]]:
        """Yield begin, end and count of at most `most` spans of the same width."""
        used = numpy.flatnonzero(self._counts)
        if not len(used):
            return
        start, stop = int(used[0]), int(used[-1]) + 1
        step = -(-(stop - start) // most)
        for number in range(start, stop, step):
            begin = self._first + number
            count = int(self._counts[number : min(number + step, stop)].sum())
            yield begin * self._width, (begin + step) * self._width, count


class Summary:
    """Statistics of the items of an array, or of one of their fields.

    Attributes
    ----------
    name, dtype
        Those of the array.
    count
        Number of items that are not missing.
    missing, infinite
        Number of items that are NaN or NaT, and of infinite ones.
    low, high
        The smallest and the largest value that is not missing; None without any. They
        are integers for times.
    """

    def __init__(self, name: str, dtype: DType) -> None:
        self.name = name
        self.dtype = dtype
        self.measure = MEASURES.get(dtype.kind)
        self.count = self.missing = self.infinite = 0
        self.low: Any = None
        self.high: Any = None
        self._mean = self._squares = 0.0
        self._finite = 0
        self.histogram = Histogram(SMALLEST if dtype.kind in "fc" else 0)

    @property
    def mean(self) -> float | None:
        """The mean of the finite values; None without any, or if a sum overflows."""
        return self._mean if self._finite and math.isfinite(self._mean) else None

    @property
    def deviation(self) -> float | None:
        """The standard deviation of the finite values; None like the mean."""
        if not (self._finite and math.isfinite(self._squares)):
            return None
        return math.sqrt(self._squares / self._finite)

    def add(self, items: Array) -> None:
        """Add items of any shape."""
        self.count += items.size
        with numpy.errstate(over="ignore"):
            values = _numbers(items.reshape(-1))
        if values is None:
            return
        is_time = values.dtype.kind in "mM"
        if self.dtype.kind in "fcmM":
            absent = numpy.isnat(values) if is_time else values != values
            missing = int(absent.sum())
            self.missing += missing
            self.count -= missing
            values = values[~absent] if absent.any() else values
        if is_time:
            values = values.view("i8")
        if not values.size:
            return
        low, high = values.min().item(), values.max().item()
        self.low = low if self.low is None else min(self.low, low)
        self.high = high if self.high is None else max(self.high, high)
        floats = values.astype("f8", copy=False)
        if math.isinf(low) or math.isinf(high):
            floats = floats[numpy.isfinite(floats)]
            infinite = int(numpy.isinf(items).sum())
            self.infinite += infinite
            if floats.size + infinite < values.size:  # finite items, larger than floats
                self._mean = self._squares = math.nan
        if floats.size:
            self._add_finite(floats)

    def _add_finite(self, floats: Array) -> None:
        """Add finite values: Chan's formula joins the sums of two parts."""
        self.histogram.add(floats)
        with numpy.errstate(over="ignore", invalid="ignore"):
            mean = float(floats.mean())
            squares = float(numpy.square(floats - mean).sum())
        before, count = self._finite, floats.size
        self._finite = before + count
        delta = mean - self._mean
        self._mean += delta * count / self._finite
        self._squares += squares + delta * delta * before * count / self._finite


def _numbers(items: Array) -> Array | None:
    """Return a number for each item, in the order of the machine; None without any."""
    kind = items.dtype.kind
    if kind in "SU":
        check_text(items)
        return numpy.char.str_len(items)
    if kind == "c":
        return numpy.abs(items).astype("f8")
    if kind in "bf":
        return items.astype("u1" if kind == "b" else "f8", copy=False)
    if kind in "iumM":
        return items.astype(items.dtype.newbyteorder("="), copy=False)
    return None


def leaves(name: str, items: Array) -> Iterator[tuple[str, Array]]:
    """Yield items by name, or the fields of items that have some."""
    if items.dtype.names is None:
        yield name, items
    for field in items.dtype.names or ():
        yield from leaves(inside(name, field), items[field])


def summaries(
    content: Content, progress: Progress | None = None, name: str = ""
) -> Iterator[Summary]:
    """Yield the statistics of all arrays; of a table, of each column, and each field.

    All blocks are read once, in the order of the source. `progress` is called with the
    number of plain bytes of each.
    """
    if isinstance(content, GroupContent):
        for inner, member in content.members.items():
            yield from summaries(member, progress, inside(name, inner))
        return
    blocks: Iterable[Columns]
    if isinstance(content, ArrayContent):
        columns = {"": content}
        blocks = ({"": block} for block in content.stored())
    else:
        columns, blocks = content.columns, content.read()
    found: dict[str, Summary] = {}
    empty = {column: numpy.empty(0, c.dtype) for column, c in columns.items()}
    for block in chain([empty], blocks):
        for column, rows in block.items():
            for leaf, items in leaves(inside(name, column) if column else name, rows):
                if leaf not in found:
                    found[leaf] = Summary(leaf, items.dtype)
                found[leaf].add(items)
            if progress is not None:
                progress(rows.nbytes)
    yield from found.values()
