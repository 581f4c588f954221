"""Statistics as JSON and as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy

from .._format.dtypes import DType
from .._types import Json, JsonObject
from ..dataset.conversion.statistics import Summary
from ..dataset.description import dtype_text
from .info_text import UNKNOWN
from .row_text import fitted

COLUMNS = ("min", "max", "mean", "count", "missing")
# What is in front of the time of a day, and the characters of a time to the second.
TIME, SECONDS = "T", 19


def as_json(found: Summary) -> JsonObject:
    """Return the statistics of an array."""
    return {
        "name": found.name,
        "dtype": dtype_text(found.dtype),
        "count": found.count,
        "missing": found.missing,
        "min": _value(found.low, found.dtype),
        "mean": _value(found.mean, found.dtype),
        "max": _value(found.high, found.dtype),
    }


def _value(value: float | None, dtype: DType) -> Json:
    """Return a number, or a time as text."""
    if dtype.kind not in "mM" or value is None:
        return value
    return str(numpy.array(round(value), "i8").view(dtype.newbyteorder("=")))


def statistics_lines(all_found: Sequence[JsonObject]) -> Iterator[str]:
    """Yield a table with a line for each array."""
    columns = [["", *(found["name"] for found in all_found)]]
    columns += [[key, *(_text(found[key]) for found in all_found)] for key in COLUMNS]
    return fitted(columns)


def _text(value: Json) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, str) and TIME in value:
        return value[:SECONDS]
    return "%.6g" % value if isinstance(value, float) else str(value)
