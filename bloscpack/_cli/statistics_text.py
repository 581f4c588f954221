"""Statistics as JSON and as text, with a histogram of block characters."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy

from ..dataset.description import dtype_text
from .info_text import UNKNOWN
from .row_text import fitted

if TYPE_CHECKING:
    from .._format.dtypes import DType
    from ..dataset.conversion.statistics import Summary
    from ..serializers import Json, JsonObject

# Number of bars of a histogram, and of characters of the longest.
BARS, BAR_WIDTH = 16, 24
# The characters of bars by height, for terminals with Unicode, and for others.
HEIGHTS = "▁▂▃▄▅▆▇█", ".:-=+*#@"
RARE = ("missing", "infinite")
ORDER = ("min", "max", "histogram", "mean", "std", "count", *RARE)
# What is in front of the time of a day, and the characters of a time to the second.
TIME, SECONDS = "T", 19
MORE = "columns left out: %d (--json shows all)"
# Limits of 64-bit integers, which times are.
LEAST, MOST = -(2**63) + 1, 2**63 - 1


def as_json(found: Summary) -> JsonObject:
    """Return the statistics of an array."""
    dtype = found.dtype
    period = numpy.dtype(dtype.str.replace("M", "m")) if dtype.kind == "M" else dtype
    bars = found.histogram.bars(BARS)
    return {
        "name": found.name,
        "dtype": dtype_text(dtype),
        "of": found.measure,
        "count": found.count,
        "missing": found.missing,
        "infinite": found.infinite,
        "min": _value(found.low, dtype),
        "mean": _value(found.mean, dtype),
        "max": _value(found.high, dtype),
        "std": _value(found.deviation, period),
        "histogram": [
            {"from": _value(start, dtype), "to": _value(stop, dtype), "count": count}
            for start, stop, count in bars
        ],
    }


def _value(value: float | None, dtype: DType) -> Json:
    """Return a number, or a time as text."""
    if dtype.kind not in "mM" or value is None:
        return value
    number = numpy.array(min(max(round(value), LEAST), MOST), "i8")
    return str(number.view(dtype.newbyteorder("=")))


def statistics_lines(all_found: Sequence[JsonObject]) -> Iterator[str]:
    """Yield a table with small histograms, or for one array with a larger one."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    heights = HEIGHTS[
        "\\u" in HEIGHTS[0].encode(encoding, "backslashreplace").decode(encoding)
    ]
    is_single = len(all_found) == 1
    columns = [["", *map(_name, all_found)]]
    for key in ORDER:  # a narrow terminal shows the first ones
        if key == "histogram" and not is_single:
            bars = [_small_histogram(found[key], heights) for found in all_found]
            columns.append([key.ljust(BARS), *bars])
        elif key != "histogram":
            texts = [_text(found[key]) for found in all_found]
            if key not in RARE or set(texts) != {"0"}:
                columns.append([key, *texts])
    yield from fitted(columns, more=MORE)
    if is_single:
        yield ""
        yield from _large_histogram(all_found[0]["histogram"], heights[-1])


def _name(found: JsonObject) -> str:
    return " of ".join(filter(None, (found["of"], found["name"])))


def _text(value: Json) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, str) and TIME in value:
        return value[:SECONDS]
    return "%.6g" % value if isinstance(value, float) else str(value)


def _small_histogram(bars: Sequence[JsonObject], heights: str) -> str:
    steps = _scaled(bars, len(heights))
    return "".join((" " + heights)[step] for step in steps).ljust(BARS)


def _scaled(bars: Sequence[JsonObject], most: int) -> list[int]:
    """Return the counts as lengths up to `most`, rounded up."""
    largest = max((bar["count"] for bar in bars), default=1)
    return [-(-bar["count"] * most // largest) for bar in bars]


def _large_histogram(bars: Sequence[JsonObject], full: str) -> Iterator[str]:
    """Yield a line for each bar: where it begins and ends, its count, its length."""
    columns = [[key, *(_text(b[key]) for b in bars)] for key in ("from", "to", "count")]
    drawn = [(full * n).ljust(BAR_WIDTH) for n in _scaled(bars, BAR_WIDTH)]
    yield from fitted([*columns, [" " * BAR_WIDTH, *drawn]], more=MORE)
