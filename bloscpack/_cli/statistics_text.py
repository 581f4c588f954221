"""Statistics as JSON and as text, with a histogram of block characters."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy

from ..dataset.description import dtype_text
from .display import UNKNOWN
from .row_text import fitted

if TYPE_CHECKING:
    from .._format.dtypes import DType
    from ..dataset.conversion.statistics import Summary
    from ..serializers import Json, JsonObject

# Number of bars of a histogram, and of those in a table of several.
BARS, SMALL_BARS = 12, 16
# Number of characters of the longest bar.
BAR_WIDTH = 40
# The characters of bars by height, for terminals with Unicode, and for others.
HEIGHTS = "▁▂▃▄▅▆▇█", ".:-=+*#@"
# Limits of 64-bit integers, which times are.
LEAST, MOST = -(2**63) + 1, 2**63 - 1


def as_json(found: Summary, name: str) -> JsonObject:
    """Return the statistics of an array, with its name."""
    dtype, is_empty = found.dtype, found.low is None
    deviation: Any = None if is_empty else found.deviation
    if deviation is not None and dtype.kind in "mM":
        deviation = _value(deviation, numpy.dtype(dtype.str.replace("M8", "m8")))
    return {
        "name": name,
        "dtype": dtype_text(dtype),
        "of": found.measure,
        "count": found.count,
        "missing": found.missing,
        "infinite": found.infinite,
        "min": None if is_empty else _value(found.low, dtype),
        "mean": None if is_empty else _value(found.mean, dtype),
        "max": None if is_empty else _value(found.high, dtype),
        "std": deviation,
        "histogram": [
            {"from": _value(a, dtype), "to": _value(b, dtype), "count": count}
            for a, b, count in found.histogram.bars(SMALL_BARS)
        ],
    }


def _value(value: float, dtype: DType) -> Json:
    """Return a number, or a time as text."""
    if dtype.kind not in "mM":
        return value
    number = min(max(round(value), LEAST), MOST)
    return str(numpy.array(number, "i8").view(dtype.newbyteorder("=")))


def statistics_lines(all_found: Sequence[JsonObject]) -> Iterator[str]:
    """Yield a table of statistics with small histograms, or one with a larger one."""
    rows = [_row(found) for found in all_found]
    titles = ["", "count", "missing", "infinite", "min", "mean", "max", "std"]
    is_single = len(rows) == 1
    if not is_single:
        titles.append("histogram".ljust(SMALL_BARS))
        for row, found in zip(rows, all_found, strict=True):
            row.append(_small_histogram(found["histogram"]))
    columns = [
        column
        for column in zip(titles, *rows, strict=True)
        if column[0] not in ("missing", "infinite") or set(column[1:]) != {"0"}
    ]
    yield from fitted(columns)
    if is_single:
        yield ""
        yield from _large_histogram(all_found[0]["histogram"])


def _row(found: JsonObject) -> list[str]:
    name = found["name"]
    if found["of"]:
        name = "%s of %s" % (found["of"], name) if name else found["of"]
    keys = "min", "mean", "max", "std"
    counts = [str(found[key]) for key in ("count", "missing", "infinite")]
    return [name, *counts, *(_number_text(found[key]) for key in keys)]


def _number_text(value: Json) -> str:
    if value is None:
        return UNKNOWN
    return "%.6g" % value if isinstance(value, float) else str(value)


def _heights() -> str:
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    try:
        HEIGHTS[0].encode(encoding)
    except UnicodeEncodeError:
        return HEIGHTS[1]
    return HEIGHTS[0]


def _small_histogram(bars: Sequence[JsonObject]) -> str:
    heights = _heights()
    most = max((bar["count"] for bar in bars), default=1)
    steps = [-(-bar["count"] * len(heights) // most) for bar in bars]
    return "".join(heights[step - 1] if step else " " for step in steps).ljust(
        SMALL_BARS
    )


def _large_histogram(bars: Sequence[JsonObject]) -> Iterator[str]:
    """Yield a line for each bar: where it begins, its count, and its length."""
    full = _heights()[-1]
    most = max((bar["count"] for bar in bars), default=1)
    columns = [
        ["from", *(_number_text(bar["from"]) for bar in bars)],
        ["to", *(_number_text(bar["to"]) for bar in bars)],
        ["count", *(str(bar["count"]) for bar in bars)],
    ]
    widths = [max(map(len, column)) for column in columns]
    lengths = [0, *(-(-bar["count"] * BAR_WIDTH // most) for bar in bars)]
    for cells, length in zip(zip(*columns, strict=True), lengths, strict=True):
        yield ("  ".join(map(str.rjust, cells, widths)) + "  " + full * length).rstrip()
