"""CSV: text with a line of names, and a line for each row.

The file is read in parts, three times at most: for the types of the columns, for the
lengths of text, and for the rows. The type of a column is one that all parts have, or
the next wider one: integers become floats, and anything becomes text. Integers with
zeros in front, such as ``007``, are text.

The lines and values of a CSV file: checks of lines, text as items, items as text.
"""

from __future__ import annotations

import csv
import io
import operator
import re
import warnings
from _thread import allocate_lock
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy

from ..._format.array_metadata import MAX_ITEM_NBYTES
from ...exceptions import DamageError, UsageError, UsageTypeError, UsageValueError
from .contents import (
    ArrayContent,
    TableContent,
    as_table,
    import_package,
    regrouped,
    rows_in_block,
)
from .parquet_files import Lengths, decoded, fixed

if TYPE_CHECKING:
    from ..._format.dtypes import Array, DType
    from .contents import Columns, Content, Request

# Number of rows that are read at a time to find the types.
SCAN_ROWS = 65536
# Number of rows that are written at a time.
WRITTEN_ROWS = 16384
# Integers up to this are exact as floats.
EXACT = 2**53
BOOL, INT, UINT, FLOAT, TEXT = "boolean", "Int64", "UInt64", "Float64", "string"
TYPES = {BOOL: "?", INT: "i8", UINT: "u8", FLOAT: "f8"}
# The release of pandas from which it always reads floats exactly.
ALWAYS_EXACT = (3, 1)


# Reading


class _Scan:
    """What the parts of a file say about a column."""

    def __init__(self) -> None:
        self.kinds: set[str] = set()
        self.missing = False
        self.low = self.high = 0
        # Whether floats are so large that integers among them may be rounded.
        self.doubtful = False

    def add(self, series: Any) -> None:
        """Take a part of the column into account."""
        present = series.dropna()
        self.missing = self.missing or len(present) < len(series)
        if not len(present):
            return
        kind = str(series.dtype)
        kind = kind if kind in TYPES else TEXT
        self.kinds.add(kind)
        if kind in (INT, UINT):
            self.low = min(self.low, int(present.min()))
            self.high = max(self.high, int(present.max()))
        if kind == FLOAT:
            self.doubtful = self.doubtful or bool((present.abs() >= EXACT).any())

    def dtype(self, name: str) -> DType | None:
        """Return the type that holds all values; None for text."""
        kinds = self.kinds
        if not kinds or TEXT in kinds or (BOOL in kinds and len(kinds) > 1):
            return None
        if kinds <= {INT, UINT} and not self.missing:
            if len(kinds) == 1 or self.low >= 0:
                return numpy.dtype(TYPES[UINT if UINT in kinds else INT])
        elif kinds == {BOOL}:
            if not self.missing:
                return numpy.dtype(bool)
            return None
        if max(self.high, -self.low) > EXACT:
            raise rounded(name)
        return numpy.dtype("f8")


def read(path: str, request: Request) -> Content:
    """Return the table in a file."""
    file = _File(path, request)
    with file.named():
        check_line_lengths(path)
        dtypes, length = file.dtypes()
    columns = {name: ArrayContent(d, (length,)) for name, d in dtypes.items()}
    return TableContent(columns, length, partial(file.blocks, columns))


class _File:
    """A file that pandas reads in parts."""

    def __init__(self, path: str, request: Request) -> None:
        self._path = path
        self._given = request.dtypes
        self._lose = request.lose
        self._pandas = import_package("pandas", "tables", "reading CSV")

    @contextmanager
    def named(self) -> Iterator[None]:
        """Turn the errors of pandas about the file into `DamageError` with its name.

        If the caller gave types, a value of another type is his error.
        """
        path, errors = self._path, self._pandas.errors
        try:
            yield
        except UsageError as error:
            raise type(error)("'%s': %s" % (path, error)) from error
        except errors.ParserWarning as error:
            raise DamageError(
                "it is no CSV: %s has more values than the first one has names"
                % longer_line(path),
                filename=path,
            ) from error
        except (errors.ParserError, errors.EmptyDataError) as error:
            text = str(error).strip()
            raise DamageError("it is no CSV: %s" % text, filename=path) from error
        except (UnicodeDecodeError, ValueError, OverflowError) as error:
            if self._given and not isinstance(error, UnicodeDecodeError):
                raise UsageValueError(
                    "'%s': a value has another type than the given one: %s"
                    % (path, error)
                ) from error
            raise DamageError(str(error), filename=path) from error

    def _parts(self, rows: int | None = None, **options: Any) -> Iterator[Any]:
        """Yield parts of the file, as DataFrames of `rows` or `SCAN_ROWS` rows."""
        release = tuple(map(int, self._pandas.__version__.split(".")[:2]))
        if release < ALWAYS_EXACT:
            options["float_precision"] = "round_trip"
        with self._pandas.read_csv(
            self._path,
            chunksize=rows or SCAN_ROWS,
            low_memory=False,
            index_col=False,
            keep_default_na=False,
            **options,
        ) as parts:
            yield from parts

    def _texts(self, names: list[str]) -> Iterator[Any]:
        """Yield parts of some columns as text."""
        return self._parts(usecols=names, dtype=str)

    def dtypes(self) -> tuple[dict[str, DType], int]:
        """Return the types of all columns, and the number of rows."""
        scans, length = self._scan()
        names = list(scans)
        if scans[names[-1]].missing:
            check_counts(self._path)
        unknown = [name for name in self._given if name not in names]
        if unknown:
            raise UsageValueError(
                "there is no column '%s'; the columns are %s"
                % (unknown[0], ", ".join(names))
            )
        dtypes = {
            name: self._given[name] if name in self._given else scan.dtype(name)
            for name, scan in scans.items()
        }
        for name in self._with_zero_first(dtypes):
            dtypes[name] = None
        doubtful = [name for name, scan in scans.items() if scan.doubtful]
        return self._with_lengths(dtypes, doubtful), length

    def _scan(self) -> tuple[dict[str, _Scan], int]:
        """Return what the file says about each column, and the number of rows."""
        self._check_names()
        scans: dict[str, _Scan] = {}
        length = 0
        with warnings.catch_warnings():
            # pandas leaves out values behind the last column, and only warns.
            warnings.simplefilter("error", self._pandas.errors.ParserWarning)
            for part in self._parts(
                na_values=MISSING,
                dtype=dict.fromkeys(self._given, str),
                dtype_backend="numpy_nullable",
            ):
                length += len(part)
                for name in part.columns:
                    scans.setdefault(name, _Scan()).add(part[name])
        return scans, length

    def _check_names(self) -> None:
        header = self._pandas.read_csv(
            self._path, header=None, nrows=1, dtype=str, keep_default_na=False
        )
        names = header.iloc[0].tolist()
        for name in names:
            if not name or names.count(name) > 1:
                raise DamageError(
                    "expected a line with a different name for each column, found '%s'"
                    % (name if name else "a column without a name"),
                    filename=self._path,
                )

    def _with_zero_first(self, dtypes: dict[str, DType | None]) -> list[str]:
        """Return the columns with integers that have a zero in front: they are text.

        Columns whose type was given are left out. Few files have such columns: a search
        without their lines finds out first.
        """
        names = [
            name for name, dtype in dtypes.items() if dtype and dtype.kind in "iuf"
        ]
        names = [name for name in names if name not in self._given]
        if not names or not may_have_zero_first(self._path):
            return []
        found: set[str] = set()
        for part in self._texts(names):
            for name in names:
                if name not in found and part[name].str.fullmatch(ZERO_FIRST).any():
                    found.add(name)
        return sorted(found)

    def _with_lengths(
        self, dtypes: dict[str, DType | None], doubtful: list[str]
    ) -> dict[str, DType]:
        """Return types with the lengths of text in columns where they are unknown.

        Raises `UsageError` if one of the `doubtful` columns would be rounded.
        """
        known = {
            name: dtype
            for name, dtype in dtypes.items()
            if dtype is not None and (dtype.kind not in "US" or dtype.itemsize)
        }
        lengths = {name: Lengths() for name in dtypes if name not in known}
        kinds = {name: getattr(dtypes[name], "kind", "U") for name in lengths}
        doubtful = [name for name in doubtful if name in known]
        for part in self._texts([*kinds, *doubtful]) if kinds or doubtful else ():
            for name, kind in kinds.items():
                lengths[name].add(texts_of(part[name], kind))
            for name in doubtful:
                check_exact(texts_of(part[name]), name)
        return {
            name: known[name]
            if name in known
            else lengths[name].dtype(name, kinds[name])
            for name in dtypes
        }

    def blocks(self, columns: dict[str, ArrayContent]) -> Iterator[Columns]:
        """Yield blocks of rows."""
        # pandas knows numbers; NumPy makes text, dates and others.
        simple = {n: c.dtype for n, c in columns.items() if is_simple(c.dtype)}
        given = {n: _native(simple[n]) if n in simple else str for n in columns}
        step = rows_in_block(sum(column.row_nbytes for column in columns.values()))
        missing = {n: list(MISSING) for n, dtype in simple.items() if dtype.kind == "f"}
        with self.named():
            try:
                finite = set(missing)  # the floats that had no infinity yet
                for part in self._parts(step, dtype=given, na_values=missing):
                    block = {
                        n: items_of_column(part[n], column.dtype, n, self._lose)
                        for n, column in columns.items()
                    }
                    for name in finite.copy():
                        if numpy.isinf(block[name]).any():
                            self._check_infinities(name, columns[name].dtype)
                            finite.remove(name)
                    yield block
            except (ValueError, OverflowError) as error:
                if not isinstance(error, (UsageError, UnicodeDecodeError)):
                    self._raise_for_column(simple, missing)
                raise

    def _check_infinities(self, name: str, dtype: DType) -> None:
        """Raise `UsageError` unless all infinities of a column are spelled so."""
        for part in self._texts([name]):
            check_not_too_large(part[name].tolist(), dtype, name)

    def _raise_for_column(
        self, dtypes: dict[str, DType], missing: dict[str, list[str]]
    ) -> None:
        """Raise `UsageError` for the first column that is not of its type.

        If it can read all columns, nothing is raised.
        """
        for name, dtype in dtypes.items():
            options: dict[str, Any] = {"dtype": _native(dtype), "usecols": [name]}
            try:
                for _ in self._parts(na_values=missing, **options):
                    pass
            except (ValueError, OverflowError) as error:
                raise other_type(name, dtype, error) from error


def _native(dtype: DType) -> DType:
    return numpy.dtype("f8") if dtype.kind == "f" else dtype.newbyteorder("=")


# Writing


def write(content: Content, request: Request) -> None:
    """Write a table, or an array with one or two axes."""
    table = as_table(content)
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
                request.lose("the unit '%s' of the column '%s'" % (unit, name))
    with request.new_file() as out_fp:
        text = io.TextIOWrapper(out_fp, "utf-8", newline="")
        writer = csv.writer(LineWriter(text.write), lineterminator="\r\n")
        writer.writerow(table.columns)
        for block in regrouped(table.blocks(), WRITTEN_ROWS):
            lists = [values_of_items(rows, name) for name, rows in block.items()]
            writer.writerows(zip(*lists, strict=True))
        text.detach()  # flushes, and leaves the file open


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
