"""The lines and values of a CSV file: checks of lines, text as items, items as text."""

from __future__ import annotations

import csv
import operator
import re
import warnings
from _thread import allocate_lock
from contextlib import contextmanager, suppress

import numpy

from ..._format.array_metadata import MAX_ITEM_NBYTES
from ...exceptions import DamageError, UsageTypeError, UsageValueError
from .text_columns import decoded, fixed

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ..._format.dtypes import Array, DType

# Words for a missing value among numbers and times. A text keeps them.
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "None")
# A time zone behind the time of a day.
ZONE = re.compile(r"[T ]\d\d.*(Z|[+-]\d\d(:?\d\d)?)\s*$", re.MULTILINE)

# An integer with a zero in front, as text, and what precedes it in a file, whose first
# line has names.
ZERO_FIRST = r"\s*[+-]?0[0-9]+\s*"
_BEFORE = rb'[,"\r\n][ \t\v\f]*[+-]?'
MAYBE_ZERO_FIRST = re.compile(_BEFORE + b"0[0-9]")
# The same, cut off at the end of the bytes that were read.
CUT_OFF = re.compile(_BEFORE + rb"0?\Z")
# Number of bytes that are searched for it at a time.
SEARCHED_NBYTES = 2**20
# Maximum number of characters of a value: that of a C long everywhere. The default of
# the module csv is much less than pandas reads.
MAX_VALUE = 2**31 - 1

# Maximum size in bytes of a line without quoted line ends: the size of an item.
MAX_LINE = MAX_ITEM_NBYTES

_lock = allocate_lock()
_limits: list[int] = []  # one for each thread that has raised the limit of the module

# Lines


@contextmanager
def _long_values() -> Iterator[None]:
    """Let the module csv, whose limit holds for all threads, read long values."""
    with _lock:
        _limits.append(csv.field_size_limit(MAX_VALUE))
    try:
        yield
    finally:
        with _lock:
            limit = _limits.pop()
            if not _limits:
                csv.field_size_limit(limit)


def _find_line(
    path: str, is_wrong: Callable[[int, int], bool]
) -> tuple[int, int, int] | None:
    """Return the number of the first line that has a wrong number of values.

    `is_wrong` compares its number of values, which comes next, with the number of
    names, which comes last.
    """
    with (
        open(path, encoding="utf-8-sig", newline="") as fp,
        _long_values(),
        suppress(csv.Error),  # of Python 3.10, which refuses zero bytes
    ):
        reader = csv.reader(fp)
        count = None
        for values in reader:
            if values in ([], [""]) or (len(values) == 1 and values[0].isspace()):
                continue  # pandas skips blank lines
            count = len(values) if count is None else count
            if is_wrong(len(values), count):
                return reader.line_num, len(values), count
    return None


def check_counts(path: str) -> None:
    """Raise `FormatError` if a line has too few values: pandas adds missing ones."""
    found = _find_line(path, operator.lt)
    if found is not None:
        number, count, expected = found
        raise DamageError(
            "expected '%d' values in each line, found '%d' in line %d"
            % (expected, count, number),
            filename=path,
        )


def longer_line(path: str) -> str:
    """Return the first line with more values than names, for an error about it."""
    found = _find_line(path, operator.gt)
    return "a line" if found is None else "line %d" % found[0]


def check_line_lengths(path: str) -> None:
    """Raise `FormatError` for a line that is too long: pandas has lines in memory."""
    length = 0
    with open(path, "rb") as fp:
        while block := fp.read(SEARCHED_NBYTES):
            ends = [at for end in (b"\n", b"\r") if (at := block.rfind(end)) >= 0]
            length = len(block) - max(ends) - 1 if ends else length + len(block)
            if length > MAX_LINE:
                raise DamageError(
                    "expected lines of at most '%d' bytes, found a longer one"
                    % MAX_LINE,
                    filename=path,
                )


def may_have_zero_first(path: str) -> bool:
    """Return whether a value of a file may be an integer with a zero in front."""
    with open(path, "rb") as fp:
        end = b""
        while block := fp.read(SEARCHED_NBYTES):
            block = end + block
            if MAYBE_ZERO_FIRST.search(block):
                return True
            found = CUT_OFF.search(block)
            end = found[0][:1] + found[0][1:].strip() if found else b""
    return False


# From text


def texts_of(series: Any, kind: str = "U") -> list[Any]:
    """Return the texts of a column, as bytes for the kind ``"S"``."""
    if series.isna().any():
        raise ValueError(
            "a line has fewer values than there are columns: the column '%s' is missing"
            % series.name
        )
    values: list[Any] = series.tolist()
    return [value.encode("utf-8") for value in values] if kind == "S" else values


def is_simple(dtype: DType) -> bool:
    """Return whether pandas reads numbers of a type."""
    return dtype.kind in "biuf" and dtype.itemsize <= 8


def items_of_column(
    series: Any, dtype: DType, name: str, lose: Callable[[str], None]
) -> Array:
    """Return a column of a part of the file; `lose` gets what the items lack."""
    if is_simple(dtype):
        with numpy.errstate(over="ignore"):  # infinities are checked by the caller
            array: Array = series.to_numpy(dtype)
        return array
    values = texts_of(series, dtype.kind)
    if dtype.kind in "US":
        return fixed(values, dtype, name)
    if dtype.kind in "mM":
        values = ["NaT" if value in MISSING else value for value in values]
    try:
        if dtype.kind == "m":
            return numpy.array([v if v == "NaT" else int(v) for v in values], dtype)
        if dtype.kind == "M":
            return _times(values, dtype, name, lose)
        found: Array = numpy.array(values, str).astype(dtype)
        return found
    except (ValueError, TypeError, OverflowError) as error:
        if isinstance(error, UsageValueError):
            raise
        raise other_type(name, dtype, error) from error


def _times(
    values: list[str], dtype: DType, name: str, lose: Callable[[str], None]
) -> Array:
    """Return times; raise `UsageError` if the unit is too coarse for one of them."""
    if ZONE.search("\n".join(values)):
        lose("the time zone of the column '%s', whose times become UTC" % name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy warns of time zones
        exact: Array = numpy.array(values, "M8")  # of the finest unit among them
    items = exact.astype(dtype)
    same = (items.astype(exact.dtype) == exact) | numpy.isnat(exact)
    if not same.all():
        raise UsageValueError(
            "column '%s': the value '%s' does not fit the dtype '%s'"
            % (name, values[int(numpy.argmin(same))], dtype)
        )
    return items


def other_type(name: str, dtype: DType, error: Exception) -> UsageTypeError:
    """Return the error for a column that has not the given type."""
    return UsageTypeError(
        "column '%s': the values are not of dtype '%s': %s" % (name, dtype, error)
    )


def rounded(name: str) -> UsageValueError:
    """Return the error for integers that a float would change."""
    return UsageValueError(
        "column '%s' has missing values or fractions, and integers that a float does "
        "not hold exactly; the type 'U' makes it text: --dtype %s=U" % (name, name)
    )


def check_exact(texts: list[str], name: str) -> None:
    """Raise `UsageError` if an integer is changed when it becomes a float."""
    for text in texts:
        is_integer = len(text) > 15 and text.strip().lstrip("+-").isdigit()
        if is_integer and float(text) != int(text):
            raise rounded(name)


def check_not_too_large(texts: list[Any], dtype: DType, name: str) -> None:
    """Raise `UsageError` if a number became infinite, and was not spelled so."""
    most = float(numpy.finfo(dtype).max)
    for text in texts:
        is_number = text not in MISSING and "inf" not in text.lower()
        if is_number and abs(float(text)) > most:
            raise UsageValueError(
                "column '%s': the number '%.100s' is too large for the dtype '%s'; the "
                "type 'U' makes it text: --dtype %s=U" % (name, text, dtype, name)
            )


# To text


def values_of_items(rows: Array, name: str) -> list[Any]:
    """Return a column as values whose texts can be read again without a loss."""
    kind = rows.dtype.kind
    if kind in "US":
        return decoded(rows, name)
    if kind == "M":
        found: list[Any] = numpy.datetime_as_string(rows).tolist()
    elif kind == "f" and rows.dtype.itemsize != 8:
        found = rows.astype(str).tolist()  # as few digits as the type needs
    elif kind == "m":
        found = rows.astype("i8").tolist()
    else:
        found = rows.tolist()
    if kind in "fmM":
        missing = numpy.isnan(rows) if kind == "f" else numpy.isnat(rows)
        for i in numpy.flatnonzero(missing).tolist():
            found[i] = ""
    return found


class LineWriter:
    """A file of lines that end in ``\\n``, for lines of `csv` that end in ``\\r\\n``.

    `csv` quotes the values with characters of the end of its lines: all readers take
    both of these characters for one.
    """

    def __init__(self, write: Callable[[str], int]) -> None:
        self._write = write

    def write(self, line: str) -> int:
        """Write a line."""
        return self._write(line[:-2] + "\n")
