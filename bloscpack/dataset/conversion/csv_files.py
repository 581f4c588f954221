"""CSV: text with a line of names, and a line for each row.

The file is read twice, in parts: for the types of the columns, and for the rows. The
type of a column is one that all values have, or the next wider one: integers become
floats, and anything becomes text. Integers with zeros in front, such as ``007``, are
text.
"""

from __future__ import annotations

import csv
import io
import re
import warnings
from _thread import allocate_lock
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy

from ... import log
from ..._format.array_metadata import MAX_ITEM_NBYTES
from ..._format.dtypes import Array, DType
from ...exceptions import NotReadable, UsageTypeError, UsageValueError
from ...log import printable
from ..arrow_arrays import decoded
from . import contents
from .parquet_files import Lengths, fixed

NoteLoss = Callable[[str], None]

# Maximum number of rows that are read at a time.
SCAN_ROWS = 65536
# Number of rows that are written at a time.
WRITTEN_ROWS = 16384
# Number of bytes that are searched for long lines at a time.
SEARCHED_NBYTES = 2**20
# Maximum size in bytes of a line without quoted line ends: the size of an item.
MAX_LINE = MAX_ITEM_NBYTES
# Maximum number of characters of a value: that of a C long everywhere. The default of
# the module csv is much less.
MAX_VALUE = 2**31 - 1
# Integers up to this are exact as floats.
EXACT = 2**53
# Words for a missing value among numbers and times. A text keeps them.
MISSING = frozenset(("", "NA", "N/A", "NaN", "nan", "null", "None"))
# Marks that other programs write between values, and their names.
OTHER_MARKS = {";": "semicolons", "\t": "tabs"}
BOOLEANS = {
    **dict.fromkeys(("True", "TRUE", "true"), True),
    **dict.fromkeys(("False", "FALSE", "false"), False),
}
ZERO_FIRST = re.compile(r"^\s*[+-]?0[0-9]+\s*$", re.MULTILINE)
# Integers among floats that may be larger than `EXACT`.
LONG_INTEGER = re.compile(r"^\s*[+-]?([0-9]{16,})\s*$", re.MULTILINE)
# A time zone behind the time of a day.
ZONE = re.compile(r"[T ]\d\d.*(Z|[+-]\d\d(:?\d\d)?)\s*$", re.MULTILINE)

_lock = allocate_lock()
_limits: list[int] = []  # one for each reader that has raised the limit of the module


# Reading


def read(path: str, request: contents.Request) -> contents.Content:
    """Return the table in a file."""
    with contents.naming_file(path):
        dtypes, length = _types(path, request.dtypes)
    columns = {name: contents.Rows(d, (length,)) for name, d in dtypes.items()}
    return contents.new_table(
        columns, length, partial(_blocks, path, columns, request.note_loss)
    )


def _types(path: str, given: Mapping[str, DType]) -> tuple[dict[str, DType], int]:
    """Return the types of all columns, and the number of rows."""
    _check_lines(path)
    with closing(_rows(path)) as rows:
        names = next(rows)
    _warn_of_mark(path, names)
    unknown = [name for name in given if name not in names]
    if unknown:
        raise UsageValueError(
            "there is no column '%s'; the columns are %s"
            % (unknown[0], ", ".join(names))
        )
    scans = {name: _Scan(given.get(name)) for name in names}
    length = 0
    for part in _parts(path, SCAN_ROWS):
        length += len(part[names[0]])
        for name, scan in scans.items():
            scan.add(part[name])
    return {name: scan.dtype(name) for name, scan in scans.items()}, length


def _blocks(
    path: str, columns: dict[str, contents.Rows], note_loss: NoteLoss
) -> Iterator[contents.Columns]:
    """Yield blocks of rows."""
    step = contents.rows_in_block(sum(column.row_nbytes for column in columns.values()))
    with contents.naming_file(path):
        for part in _parts(path, min(step, SCAN_ROWS)):
            yield {
                name: items_of(part[name], column.dtype, name, note_loss)
                for name, column in columns.items()
            }


# Lines


def _parts(path: str, count: int) -> Iterator[dict[str, Sequence[str]]]:
    """Yield the values of `count` lines at a time by the names of their columns."""
    with closing(_rows(path)) as rows:
        names = next(rows)
        while part := list(islice(rows, count)):
            yield dict(zip(names, zip(*part, strict=True), strict=True))


def _rows(path: str) -> Generator[list[str], None, None]:
    """Yield the names of the columns, and the values of each line."""
    try:
        yield from _lines(path)
    except UnicodeDecodeError as error:
        raise NotReadable(
            "it is no CSV: expected text in UTF-8, found the byte 0x%02x: %s"
            % (error.object[error.start], error.reason)
        ) from error
    except csv.Error as error:
        raise NotReadable("it is no CSV: %s" % error) from error


def _lines(path: str) -> Iterator[list[str]]:
    names: list[str] = []
    with open(path, encoding="utf-8-sig", newline="") as fp, _long_values():
        reader = csv.reader(fp)
        for values in reader:
            # A single column may have an empty text, in quotes.
            if len(values) < 2 and (
                not values or values[0].isspace() or not (values[0] or len(names) == 1)
            ):
                continue
            if not names:
                names = values
                for name in names:
                    if not name or names.count(name) > 1:
                        raise NotReadable(
                            "expected a line with a different name for each column, "
                            "found '%s'" % (name or "a column without a name")
                        )
            if len(values) != len(names):
                raise NotReadable(
                    "it is no CSV: expected '%d' values in each line, found '%d' in "
                    "line %d" % (len(names), len(values), reader.line_num)
                )
            yield values
    if not names:
        raise NotReadable("it is no CSV: expected a line of names, found none")


def _check_lines(path: str) -> None:
    """Raise `FormatError` for a line that is too long to be read into memory."""
    length = 0
    with open(path, "rb") as fp:
        while block := fp.read(SEARCHED_NBYTES):
            end = max(block.rfind(b"\n"), block.rfind(b"\r"))
            length = len(block) - end - 1 + length * (end < 0)
            if length > MAX_LINE:
                raise NotReadable(
                    "expected lines of at most '%d' bytes, found a longer one"
                    % MAX_LINE
                )


def _warn_of_mark(path: str, names: list[str]) -> None:
    """Warn the user if the values seem to be separated by another mark than a comma."""
    mark = next((mark for mark in OTHER_MARKS if mark in names[0]), None)
    if mark is not None and len(names) == 1:
        log.notice(
            "'%s' seems to be separated by %s: its only column is %.100r; only commas "
            "separate values" % (path, OTHER_MARKS[mark], names[0])
        )


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


# Types


class _Scan:
    """What the values of a column have in common; `given` is its type if known."""

    def __init__(self, given: DType | None) -> None:
        self._given = given
        self._dtypes: set[str] = set()
        self._missing = False
        # The range of the integers.
        self._low = self._high = 0
        self._lengths = Lengths()

    def add(self, values: Sequence[str]) -> None:
        """Take more values into account."""
        given = self._given
        if given is not None:
            if given.kind in "US":
                self._lengths.add(_encoded(values, given))
            return
        self._lengths.add(values)
        present = [value for value in values if value not in MISSING]
        self._missing = self._missing or len(present) < len(values)
        if not present or "U" in self._dtypes:
            return
        dtype, numbers = _numbers_in(present)
        self._dtypes.add(dtype)
        self._low = min(self._low, *numbers)
        self._high = max(self._high, *numbers)

    def dtype(self, name: str) -> DType:
        """Return the type that holds all values, the given one if there is one."""
        given, dtypes = self._given, self._dtypes
        if given is not None:
            is_known = given.kind not in "US" or given.itemsize
            return given if is_known else self._lengths.dtype(name, given.kind)
        if dtypes == {"?"} and not self._missing:
            return numpy.dtype("?")
        if dtypes == {"i8"} and not self._missing:
            for dtype in map(numpy.dtype, ("i8", "u8")):
                if _fits(self._low, self._high, dtype):
                    return dtype
        elif dtypes and dtypes <= {"i8", "f8"}:
            if max(self._high, -self._low) > EXACT:
                raise UsageValueError(
                    "column '%s' has missing values or fractions, and integers that a "
                    "float does not hold exactly; the type 'U' makes it text: --dtype "
                    "%s=U" % (name, name)
                )
            return numpy.dtype("f8")
        return self._lengths.dtype(name)


def _numbers_in(values: Sequence[str]) -> tuple[str, Sequence[int]]:
    """Return the narrowest type of values, ``?``, ``i8``, ``f8`` or ``U``.

    Also the integers among them; among floats, only those that a float would change.
    """
    if values[0] in BOOLEANS and BOOLEANS.keys() >= set(values):
        return "?", [0]
    text = "\n".join(values)
    try:
        _check_digits(text)
        float(values[0])  # fails early for most texts
        if ZERO_FIRST.search(text):
            return "U", [0]
        with suppress(ValueError):
            return "i8", list(map(int, values))
        list(map(float, values))
    except ValueError:
        return "U", [0]
    # A float of 400 digits is infinite.
    found = [
        text for text in LONG_INTEGER.findall(text) if float(text) != int(text[:400])
    ]
    return "f8", [0, *(int(text[:400]) for text in found)]


def _check_digits(text: str) -> None:
    """Raise `ValueError` for numbers that only Python knows, such as ``1_000``."""
    if "_" in text or not text.isascii():
        raise ValueError("expected digits from 0 to 9, found other characters")


def _fits(low: int, high: int, dtype: DType) -> bool:
    """Return whether a type of integers has all of a range."""
    info = numpy.iinfo(dtype)
    return info.min <= low and high <= info.max


# From text


def _encoded(values: Sequence[str], dtype: DType) -> Sequence[str | bytes]:
    return [v.encode("utf-8") for v in values] if dtype.kind == "S" else values


def items_of(
    values: Sequence[str], dtype: DType, name: str, note_loss: NoteLoss
) -> Array:
    """Return the values of a column as items; `note_loss` gets what the items lack."""
    if dtype.kind in "US":
        return fixed(_encoded(values, dtype), dtype, name)
    try:
        if dtype.kind == "b":
            return numpy.array([BOOLEANS[value] for value in values])
        if dtype.kind in "iu":
            _check_digits("".join(values))
            numbers = list(map(int, values))
            ends = min(numbers), max(numbers)
            if not _fits(*ends, dtype):
                raise OverflowError("found '%d' and '%d'" % ends)
            return numpy.array(numbers, dtype)
        if dtype.kind in "fc":
            return _floats(values, dtype, name)
        values = ["NaT" if value in MISSING else value for value in values]
        if dtype.kind == "m":
            return numpy.array([v if v == "NaT" else int(v) for v in values], dtype)
        return _times(values, dtype, name, note_loss)
    except (ValueError, TypeError, OverflowError, KeyError) as error:
        if isinstance(error, UsageValueError):
            raise
        raise UsageTypeError(
            "column '%s': the values are not of dtype '%s': %s" % (name, dtype, error)
        ) from error


def _floats(values: Sequence[str], dtype: DType, name: str) -> Array:
    """Return floats; raise `UsageError` for a number that would become infinite."""
    texts = ["nan" if value in MISSING else value for value in values]
    _check_digits("".join(texts))
    with numpy.errstate(over="ignore"):
        items: Array = numpy.array(texts).astype(dtype)
    for number in numpy.flatnonzero(numpy.isinf(items)).tolist():
        if "inf" not in texts[number].lower():
            raise UsageValueError(
                "column '%s': the number '%.100s' is too large for the dtype '%s'; the "
                "type 'U' makes it text: --dtype %s=U"
                % (name, texts[number], dtype, name)
            )
    return items


def _times(values: list[str], dtype: DType, name: str, note_loss: NoteLoss) -> Array:
    """Return times; raise `UsageError` if the unit is too coarse for one of them."""
    if ZONE.search("\n".join(values)):
        note_loss("the time zone of the column '%s', whose times become UTC" % name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy warns of time zones
        exact: Array = numpy.array(values, "M8")  # of the finest unit among them
    try:
        items = exact.astype(dtype)
        same = (items.astype(exact.dtype) == exact) | numpy.isnat(exact)
        wrong = None if same.all() else values[int(numpy.argmin(same))]
    except OverflowError:  # newer releases of NumPy raise it, and do not name the value
        farthest = numpy.nanargmax(abs(exact - numpy.datetime64(0, "s")))
        wrong = values[int(farthest)]
    if wrong is not None:
        raise UsageValueError(
            "column '%s': the value '%s' does not fit the dtype '%s'"
            % (name, wrong, dtype)
        )
    return items


# Writing


def write(content: contents.Content, request: contents.Request) -> None:
    """Write a table, or an array with one or two axes."""
    table = contents.as_table(content)
    for name, column in table.columns.items():
        if len(column.shape) > 1 or column.dtype.kind not in "biufcmMUS":
            raise UsageTypeError(
                "CSV can't hold the column '%s' of dtype '%s' and shape %s"
                % (name, column.dtype, column.shape)
            )
        if column.dtype.kind == "m":
            unit, count = numpy.datetime_data(column.dtype)
            if unit != "generic":
                unit = "%d%s" % (count, unit) if count > 1 else unit
                request.note_loss("the unit '%s' of the column '%s'" % (unit, name))
    with request.new_file() as out_fp:
        text = io.TextIOWrapper(out_fp, "utf-8", newline="")
        # A terminal would obey some characters.
        shown = printable if out_fp.isatty() else str
        writer = csv.writer(LineWriter(text.write, shown), lineterminator="\r\n")
        writer.writerow(table.columns)
        for block in request.counted(table.read(WRITTEN_ROWS)):
            lists = [values_of_items(rows, name) for name, rows in block.items()]
            writer.writerows(zip(*lists, strict=True))
        text.detach()  # flushes, and leaves the file open


# To text


def values_of_items(rows: Array, name: str) -> Sequence[object]:
    """Return a column as values whose texts can be read again without a loss."""
    kind = rows.dtype.kind
    if kind in "US":
        return decoded(rows, name)
    if kind == "M":
        found: list[object] = numpy.datetime_as_string(rows).tolist()
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


@dataclass
class LineWriter:
    """A file of lines that end in ``\\n``, for lines of `csv` that end in ``\\r\\n``.

    `csv` quotes the values with characters of the end of its lines: all readers take
    both of these characters for one.
    """

    put: Callable[[str], int]
    shown: Callable[[str], str]

    def write(self, line: str) -> int:
        """Write a line as `shown` returns it."""
        return self.put(self.shown(line[:-2]) + "\n")
