"""CSV: text with a line of names, and a line for each row.

The file is read in parts, three times at most: for the types of the columns, for the
lengths of text, and for the rows. The type of a column is one that all parts have, or
the next wider one: integers become floats, and anything becomes text. Integers with
zeros in front, such as ``007``, are text.
"""

from __future__ import annotations

import csv
import io
import warnings
from contextlib import contextmanager
from functools import partial

import numpy

from ...exceptions import DamageError, UsageError, UsageTypeError, UsageValueError
from .contents import (
    ArrayContent,
    TableContent,
    as_table,
    import_package,
    regrouped,
    rows_in_block,
)
from .csv_values import (
    MISSING,
    ZERO_FIRST,
    LineWriter,
    check_counts,
    check_exact,
    check_line_lengths,
    check_not_too_large,
    is_simple,
    items_of_column,
    longer_line,
    may_have_zero_first,
    other_type,
    rounded,
    texts_of,
    values_of_items,
)
from .text_columns import Lengths

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ..._format.dtypes import DType
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
