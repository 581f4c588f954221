"""CSV: text with a line of names, and a line for each row.

pyarrow splits the text into values. Its own types would change some of them: ``007``
would become 7, ``0x1f`` 31, and a long integer a float. So it reads all values as text,
and the patterns of this module say which are numbers. The file is read twice, in parts
of bounded size: for the types of the columns, and for the rows. The type of a column is
one that all values have, or the next wider one: integers become floats, and anything
becomes text. Integers with zeros in front, such as ``007``, are text.
"""

from __future__ import annotations

import csv
import io
import re
import warnings
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate, islice, takewhile
from typing import TYPE_CHECKING

import numpy

from ... import log
from ..._compat import import_extra
from ..._format.array_metadata import MAX_ITEM_NBYTES
from ..._format.dtypes import Array, DType
from ..._format.text import TEXT, item_nbytes
from ...exceptions import DoesNotFit, NotReadable, UsageTypeError
from ...log import counted, printable
from ..arrow_arrays import decoded
from ..columns import MASK_OF, naming_column
from ..items import ENDS_IN_ZERO, converted
from . import contents
from .parquet_files import (
    UNSIZED,
    Lengths,
    are_exact,
    bytes_of,
    lengths_of,
    numbers_of,
    text_items,
)

if TYPE_CHECKING:
    import pyarrow

# A mark in front of text, which is no part of it.
BOM = "\ufeff"
# By the names of columns: the kind of most values, the place and the text of another.
Odd = dict[str, tuple[str, str, str]]
# Maximum size in bytes of a line, with the line ends in quotes: the size of an item.
MAX_LINE = MAX_ITEM_NBYTES
# Number of bytes that are read at a time, of a file with few columns.
PART_NBYTES = 2**20
# Maximum number of bytes of columns that are read together, where a writer wants one
# column behind the other: each reading parses the whole file.
COLUMNS_NBYTES = 32 * 2**20
# Maximum number of columns of which a notice names a line: each is searched for.
MAX_PLACES = 100
# Number of values that are written at a time.
WRITTEN_VALUES = 2**17
# Integers up to this are exact as floats.
EXACT = 2**53
# Words for a missing value among numbers and times. A text keeps them.
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "None")
# The name of a first column without one.
INDEX = "index"
# Delimiters of other programs: their names in plural, and as an option.
OTHER_MARKS = {";": ("semicolons", "';'"), "\t": ("tabs", "tab")}
# The characters of integers and floats, with the blanks around them.
BLANKS = "\t\n\v\f\r "
OF_INTEGERS = b"0123456789+-" + BLANKS.encode()
OF_FLOATS = OF_INTEGERS + b".eEinfatyINFATY"
# Values in quotes, behind a delimiter. Quotes elsewhere are text.
QUOTED = rb'(?:^|[%s\r\n])"[^"]*(?:""[^"]*)*"?'
# The end of a line; a line feed may follow at the end of a part.
LINE_END = re.compile(r"\n|\r(?:\n|(?=.))", re.DOTALL)
# In the text of a single column: a line of blanks, which becomes empty, or a value in
# quotes, which is kept.
BLANK_LINE = re.compile(
    rb'(?:^|(?<=[\r\n]))(?:("[^"]*(?:""[^"]*)*"?)|[ \t\v\f]+(?=[\r\n]|\Z))'
)
# Patterns of values for RE2, which takes linear time.
ZERO_FIRST = r"^[\t-\r ]*[+-]?0[0-9]+[\t-\r ]*$"
BOOLEAN = "^(?:True|TRUE|true|False|FALSE|false)$"
# The times of NumPy, without its words for the present one.
# A number of more than four digits alone is no year: `20260105` is a compact date.
TIME = (
    r"^ ?(?:[0-9]{4,}|[+-][0-9]+)-[0-9]{2}[0-9T:. Z+-]*$"
    r"|^ ?(?:[0-9]{4}|[+-][0-9]+)$|^(?i:nat)$"
)
ZONE = r"[T ][0-9]{2}.*(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)$"
# Text that is probably a time.
PROBABLE_TIME = (
    r"^ ?[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}:[0-9T:. Z+-]+)?$|^(?i:nat)$"
)
# Text that is probably a number, with a point in front of its fraction.
NUMBER = (
    r"^[\t-\r ]*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[\t-\r ]*$"
    r"|^[\t-\r ]*[+-]?(?i:inf|infinity)[\t-\r ]*$"
)
# The kinds of values that are not text: the word for them, and their type.
KINDS = {"f": ("numbers", "f8"), "?": ("truth values", "?"), "M": ("times", "M8[us]")}
# Zeros at the end of the fraction of a time, which need no finer unit.
ZEROS = r"(?:\.|(\.[0-9]*[1-9]))0+($|[^0-9])"
# The units of times, and how many of each are in a second.
TIME_UNITS = {
    "D": 0, "s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9, "ps": 10**12, "fs": 10**15,
    "as": 10**18,
}  # fmt: skip
BOOL, INT, FLOAT, TIMES = map(numpy.dtype, ("?", "i8", "f8", "M8"))


# Reading


def read(path: str, request: contents.Request) -> contents.Content:
    """Return the table in a file."""
    with contents.naming_file(path):
        file = _File(path, request)
        odd: Odd = {}
        scans = [_Scan(request, name, odd) for name in file.wanted]
        length = 0
        for batch, where in file.batches(file.wanted):
            length += batch.num_rows
            for scan, values in zip(scans, batch.columns, strict=True):
                scan.add(values, where)
        dtypes: dict[str, DType] = {}
        for name, scan in zip(file.wanted, scans, strict=True):
            dtypes[name] = scan.dtype(name)
            if not request.target or dtypes[name].kind not in "UTO":
                continue
            text = ""
            if scan.kinds == {"M"} and not request.times:
                text = "has times, which become text; convert --times makes them times"
            elif scan.why_no_times:
                text = "becomes text: " + scan.why_no_times
            elif name in odd:
                kind, place, value = odd[name]
                what, wanted = KINDS[kind]
                text = (
                    "becomes text: it has %s, and '%.100s' in %s; convert --dtype "
                    "'%s=%s' refuses such values"
                    % (what, printable(value), place, name, wanted)
                )
            if text:
                log.notice("the column '%s' of '%s' %s" % (name, path, text))
    columns: dict[str, contents.Rows] = {}
    for name, scan in zip(file.wanted, scans, strict=True):
        column = columns[name] = contents.Rows(dtypes[name], (length,))
        column.text_nbytes = scan.lengths.text_nbytes if column.dtype == TEXT else 0
        if scan.has_missing and dtypes[name].kind in "biu":
            with contents.naming_file(path):
                file.masks[name] = request.mask_name(name, file.names)
        if name in file.masks:
            attrs = {MASK_OF: name}
            columns[file.masks[name]] = contents.Rows(BOOL, (length,), attrs=attrs)
    for name, column in columns.items():
        read_column = partial(file.column, name, dtypes, length)
        column.array = contents.array_stream(read_column, column)
    return contents.new_table(columns, length, partial(file.blocks, dtypes))


class _File:
    """A file, whose values are read as text.

    Attributes
    ----------
    names
        Those of its columns.
    wanted
        Those of the columns that are read.
    masks
        The columns whose missing values become zero, and the name of the column of
        booleans that says which these are.
    """

    def __init__(self, path: str, request: contents.Request) -> None:
        import_extra("pyarrow", "tables", "CSV needs the package %s")
        from pyarrow import compute

        self._path, self._request = path, request
        self._delimiter, self._decimal = request.delimiter, request.decimal
        self._part_nbytes = min(contents.BLOCK_NBYTES, PART_NBYTES)
        self.names: list[str] = []
        self._unnamed = ""  # the name of a column without one
        self._zoned: dict[str, bool] = {}  # whether times have a time zone
        # Blocks of rows of the columns that were read last, by name.
        self._kept: dict[str, list[Array]] = {}
        for start, text in self._parts():
            try:
                _, self.names = next(self._lines(start, text), (0, []))
            except csv.Error as error:
                raise NotReadable("it is no CSV: %s" % error) from error
            if self.names:
                break
        if not self.names:
            raise NotReadable("it is no CSV: expected a line of names, found none")
        if not self.names[0] and len(self.names) > 1 and INDEX not in self.names:
            self.names[0] = self._unnamed = INDEX
            log.notice(
                "the first column of '%s' has no name, as the index of pandas: it is "
                "called '%s'" % (path, INDEX)
            )
        counts = Counter(self.names)
        self.wanted = request.wanted_columns(self.names)
        for name in self.wanted:
            if counts[name] > 1 or not (name or name in request.rename):
                fault = "two columns '%s'" % name if name else contents.NO_NAME
                raise NotReadable(
                    "expected a line with a different name for each column, found %s; "
                    "convert --columns reads some of the others" % fault
                )
        # Empty text is a text, and missing floats and times are NaN and NaT.
        self.masks = {
            name: mask
            for name, mask in request.masks.items()
            if name in self.wanted and mask not in self.names
            if name in request.dtypes and request.dtypes[name].kind in "biu"
        }
        # A part has many rows, even if there are many columns.
        most = max(PART_NBYTES, 2**13 * len(self.names))
        self._part_nbytes = min(contents.BLOCK_NBYTES, most)
        for mark, (marks, option) in OTHER_MARKS.items():
            if mark in self.names[0] and len(self.names) == 1:
                log.notice(
                    "'%s' seems to be separated by %s: its only column is %.100r; "
                    "convert --delimiter %s separates the values"
                    % (path, marks, self.names[0], option)
                )
        # An array without names becomes columns with numbers as names.
        is_array = self.names == [str(i) for i in range(len(self.names))]
        names = _as_arrow(tuple(self.names))
        is_time = compute.match_substring_regex(names, PROBABLE_TIME)
        others = names.filter(compute.invert(is_time))
        is_number = not len(others) or _parsed(others, FLOAT, self._decimal) is not None
        if not is_array and is_number:
            log.notice(
                "the first line of '%s' has numbers or times, which become the names "
                "of the columns; is a line of names missing?" % path
            )

    def _parts(self) -> Iterator[tuple[int, bytes]]:
        """Yield parts of whole lines, behind the offset of each in the text.

        The text has UTF-8, whatever the encoding of the file is.
        """
        start, encoding = 0, self._request.encoding
        try:
            # A line that is skipped may have any bytes. In others, `encode` refuses the
            # surrogates for those that are no text.
            with open(
                self._path, encoding=encoding, errors="surrogateescape", newline=""
            ) as file:
                left = self._request.skip_lines
                front = "" if left else file.read(1).removeprefix(BOM)
                # No `readline`, which would read a line of any length into memory.
                while left and (piece := file.read(self._part_nbytes)):
                    front += piece
                    ends = [m.end() for m in islice(LINE_END.finditer(front), left)]
                    left -= len(ends)
                    front = front[ends[-1] :] if ends else front
                    # Behind a carriage return, a line feed may follow.
                    front = front[-1:] if left else front
                text = b"" if left else front.encode()
                while True:
                    # Twice as much for a long line, but not much more than any has.
                    count = min(len(text), MAX_LINE + 1 - len(text))
                    more = file.read(max(self._part_nbytes, count)).encode()
                    text += more
                    end = _end_of_lines(text if more else text + b"\n", self._delimiter)
                    if not more and end <= len(text):
                        raise NotReadable(
                            "it is no CSV: a quote in its last '%d' bytes is not closed"
                            % (len(text) - end)
                        )
                    part, text = text[:end], text[end:]
                    if part:
                        yield start, part
                        start += len(part)
                    elif len(text) > MAX_LINE:
                        raise NotReadable(
                            "expected lines of at most '%d' bytes, found a longer one"
                            % MAX_LINE
                        )
                    if not more:
                        return
        except UnicodeError as error:
            found = str(error)
            if isinstance(error, (UnicodeDecodeError, UnicodeEncodeError)):
                wrong = error.object[error.start]
                byte = wrong if isinstance(wrong, int) else ord(wrong) & 0xFF
                found = "the byte 0x%02x: no character" % byte
            raise NotReadable(
                "it is no CSV: expected text in %s, found %s; convert --encoding names "
                "another encoding, such as cp1252 or utf-16" % (encoding.upper(), found)
            ) from error

    def _lines_before(self, start: int) -> int:
        """Return the number of lines before the part at an offset."""
        before = takewhile(lambda part: part[0] < start, self._parts())
        return self._request.skip_lines + sum(
            part.count(b"\n") + part.count(b"\r") - part.count(b"\r\n")
            for _, part in before
        )

    def _lines(self, start: int, text: bytes) -> Iterator[tuple[int, list[str]]]:
        """Yield the number and the values of each row of a part that is not blank.

        The number is that of its first line. This is slow. It finds the names, and the
        lines that messages are about.
        """
        line, is_single = self._lines_before(start), len(self.names) == 1
        text = BLANK_LINE.sub(rb"\1", text) if is_single else text
        lines = io.StringIO(text.decode("utf-8"), newline="")
        reader = csv.reader(lines, delimiter=self._delimiter)
        first = line + 1
        for values in reader:
            if values and (is_single or len(values) > 1 or values[0].strip()):
                yield first, values
            first = line + reader.line_num + 1

    def batches(
        self, names: Sequence[str]
    ) -> Iterator[tuple[pyarrow.RecordBatch, Callable[[int, str], str]]]:
        """Yield some columns of the rows in parts, as text.

        Behind each part is a function that names the line of a value, of a row and a
        column.
        """
        import pyarrow.csv
        from pyarrow import compute

        parse = pyarrow.csv.ParseOptions(
            delimiter=self._delimiter,
            newlines_in_values=True,
            invalid_row_handler=self._skip_blank,
        )
        columns = pyarrow.csv.ConvertOptions(
            include_columns=names, column_types=dict.fromkeys(names, pyarrow.string())
        )

        def parsed(text: bytes) -> pyarrow.Table:
            # pyarrow drops such a mark in front of the text.
            data = BOM.encode() + text
            options = pyarrow.csv.ReadOptions(
                use_threads=False, block_size=len(data), column_names=self.names
            )
            source = pyarrow.BufferReader(data)
            return pyarrow.csv.read_csv(source, options, parse, columns)

        has_names, blanks = False, BLANKS.replace(self._delimiter, "").encode()
        for start, text in self._parts():
            if not text.strip(blanks):
                continue  # pyarrow refuses text without any line
            try:
                table = parsed(text)
                # pyarrow takes a line of blanks for a value, and drops an empty line.
                is_single = len(self.names) == 1
                if is_single and compute.any(compute.utf8_is_space(table[0])).as_py():
                    table = parsed(BLANK_LINE.sub(rb"\1", text))
            except pyarrow.ArrowInvalid as error:
                with suppress(csv.Error):
                    for number, values in self._lines(start, text):
                        if len(values) != len(self.names):
                            expected = len(self.names), len(values), number
                            raise NotReadable(
                                "it is no CSV: expected '%d' values in each line, "
                                "found '%d' in line %d" % expected
                            ) from error
                raise NotReadable(
                    "it is no CSV: behind line %d: %s"
                    % (self._lines_before(start), error)
                ) from error
            skipped = 0
            if len(table) and not has_names:
                if [c[0].as_py() or self._unnamed for c in table.columns] != [*names]:
                    raise NotReadable("it is no CSV: expected a line of names first")
                has_names, skipped = True, 1
            for batch in table[skipped:].combine_chunks().to_batches():
                yield batch, partial(self._where, start, text, skipped)

    def _skip_blank(self, row: pyarrow.csv.InvalidRow) -> str:
        """Return what pyarrow does with a line of the wrong number of values."""
        is_blank = re.fullmatch(r'\s*|"\s*"', row.text)
        return "skip" if is_blank and self._delimiter not in row.text else "error"

    def _where(self, start: int, text: bytes, skipped: int, row: int, name: str) -> str:
        """Return the number of the line in which a value begins, in words."""
        with suppress(csv.Error):
            for number, values in islice(self._lines(start, text), skipped + row, None):
                before = ",".join(values[: self.names.index(name)])
                return "line %d" % (number + len(re.findall(r"\r\n?|\n", before)))
        return "behind line %d" % self._lines_before(start)

    def blocks(self, dtypes: Mapping[str, DType]) -> Iterator[contents.Columns]:
        """Yield blocks of rows of some columns."""
        step = contents.rows_in_block(sum(map(item_nbytes, dtypes.values())))
        names = [name for name in self.wanted if name in dtypes]
        with contents.naming_file(self._path):
            for batch, where in self.batches(names):
                for start in range(0, batch.num_rows, step):
                    block: contents.Columns = {}
                    for name in names:
                        values = batch.column(name)[start : start + step]
                        if name in self.masks:
                            block[self.masks[name]] = numbers_of(_are_missing(values))
                        try:
                            block[name] = self._items(values, dtypes[name], name)
                        except _WrongValue as error:
                            index, why = error.args
                            raise DoesNotFit(
                                "column '%s', %s: %s"
                                % (name, where(start + index, name), why)
                            ) from error
                    yield block

    def column(
        self, name: str, dtypes: Mapping[str, DType], length: int
    ) -> Iterator[Array]:
        """Yield blocks of rows of a column; keep some of the columns behind it."""
        # A mask is made of the values of its column.
        source = next((n for n, mask in self.masks.items() if mask == name), name)
        if name == source and name not in self._kept:
            names = self.wanted[self.wanted.index(name) :]
            sizes = accumulate(length * item_nbytes(dtypes[each]) for each in names)
            names = names[: sum(1 for _ in takewhile(COLUMNS_NBYTES.__ge__, sizes))]
            if len(names) > 1:
                blocks = list(self.blocks({each: dtypes[each] for each in names}))
                self._kept = {each: [b[each] for b in blocks] for each in names}
        if name in self._kept:
            yield from self._kept[name]
        else:
            yield from (b[name] for b in self.blocks({source: dtypes[source]}))

    def _items(self, values: pyarrow.Array, dtype: DType, name: str) -> Array:
        """Return values as items; raise an error for those that would change."""
        from pyarrow import compute

        kind = dtype.kind
        if kind in "USO":
            if dtype != TEXT:
                most = dtype.itemsize // (4 if kind == "U" else 1)
                expected = "expected text of at most %s, found"
                expected %= counted(most, "character")
                _check(lengths_of(values, kind) <= most, values, expected)
                is_cut = numbers_of(compute.ends_with(values, "\0"))
                _check(~is_cut, values, ENDS_IN_ZERO + ":")
            values = values.cast("binary") if kind == "S" else values
            return text_items(values, dtype, name)
        present, numbers = values, numpy.arange(len(values))
        rows = _parsed(values, dtype, self._decimal)
        if rows is None and (kind in "fcmM" or name in self.masks):
            missing = _are_missing(values)
            numbers = numpy.flatnonzero(~numbers_of(missing))
            present = values.filter(compute.invert(missing))
            parsed: Array | None = numpy.empty(0, dtype)
            if len(present):
                parsed = _parsed(present, dtype, self._decimal)
            if parsed is not None:
                nothing = "nan" if kind in "fc" else "NaT" if kind in "mM" else 0
                rows = numpy.full(len(values), nothing, parsed.dtype)
                rows[numbers] = parsed
        refused = "expected values of dtype '%s', found" % dtype
        if rows is None:
            wrong = bisect_left(
                range(1, len(present) + 1),
                True,
                key=lambda n: _parsed(present[:n], dtype, self._decimal) is None,
            )
            text = "%s '%.100s'" % (refused, present[wrong].as_py())
            raise _WrongValue(int(numbers[wrong]), text)
        if kind in "mM" and numpy.isnat(rows).any():
            # NumPy takes the least integer for no time.
            has_digit = numbers_of(compute.match_substring_regex(values, "[0-9]"))
            _check(~(numpy.isnat(rows) & has_digit), values, refused)
        if kind in "iu":
            info = numpy.iinfo(dtype)
            _check((info.min <= rows) & (rows <= info.max), values, refused)
        if kind == "M":
            zoned = numbers_of(compute.match_substring_regex(values, ZONE))
            is_time = ~numpy.isnat(rows)
            if is_time.any():
                has_zone = self._zoned.setdefault(name, bool(zoned[is_time][0]))
                unlike = "expected a time zone in all times or in none, found"
                _check(~is_time | (zoned == has_zone), values, unlike)
            if zoned.any():
                self._request.note_loss(
                    "the time zone of the column '%s', whose times become UTC" % name
                )
            try:
                same = rows.astype(dtype).astype(rows.dtype) == rows
                fits = same | numpy.isnat(rows)
            except OverflowError:  # newer releases of NumPy raise it for distant times
                distances = abs(rows.astype("i8").astype("f8"))
                distances[numpy.isnat(rows)] = 0
                fits = numpy.arange(len(rows)) != distances.argmax()
            _check(fits, values, "the value", " does not fit the dtype '%s'" % dtype)
        with numpy.errstate(over="ignore"):
            items: Array = rows.astype(dtype, copy=False)
        advice = "the type 'U' makes it text: convert --dtype %s=U" % name
        if kind in "fc" and numpy.isinf(items).any():
            named = compute.match_substring(values, "inf", ignore_case=True)
            fits = ~numpy.isinf(items) | numbers_of(named)
            too_large = " is too large for the dtype '%s'; %s" % (dtype, advice)
            _check(fits, values, "the number", too_large)
        if kind in "fc":
            is_given = name in self._request.dtypes
            why = "" if is_given else "there are missing values or fractions, and "
            inexact = " does not fit the dtype '%s' exactly; %s" % (dtype, advice)
            _check(are_exact(values, items), values, why + "the integer", inexact)
        return items


def _end_of_lines(text: bytes, delimiter: str) -> int:
    """Return the end of the last whole line of text that begins with one, or 0."""
    marks = numpy.frombuffer(text, "u1")
    is_end = (marks == ord("\n")) | (marks == ord("\r"))
    is_end[-1] &= marks[-1] != ord("\r")  # a line feed may follow
    if b'"' in text:
        is_quote = marks == ord('"')
        quoted = numpy.logical_xor.accumulate(is_quote)
        before = marks[:-1][(is_quote & quoted)[1:]]
        mark = delimiter.encode()
        if not numpy.isin(before, list(mark + b'"\r\n')).all():
            # Some quotes are inside of values without quotes.
            quoted[:] = False
            for match in re.finditer(QUOTED % re.escape(mark), text):
                quoted[match.start() + 1 : match.end()] = True
        is_end &= ~quoted
    return len(text) - int(is_end[::-1].argmax()) if is_end.any() else 0


# Values


class _WrongValue(Exception):
    """A value that does not fit its column: its number, and a message."""


def _check(fits: Array, values: pyarrow.Array, before: str, behind: str = "") -> None:
    """Raise an error for the first value that does not fit, with text around it."""
    if not fits.all():
        index = int(numpy.argmin(fits))
        text = "%s '%.100s'%s" % (before, values[index].as_py(), behind)
        raise _WrongValue(index, text)


@lru_cache(maxsize=2)
def _as_arrow(texts: tuple[str, ...]) -> pyarrow.Array:
    """Return texts as an array; unlike `pyarrow.array`, this does not import pandas."""
    import pyarrow

    data = [text.encode("utf-8") for text in texts]
    ends = numpy.cumsum([0, *map(len, data)]).astype("i4")
    buffers = pyarrow.py_buffer(ends), pyarrow.py_buffer(b"".join(data))
    return pyarrow.StringArray.from_buffers(len(data), *buffers)


def _are_missing(values: pyarrow.Array) -> pyarrow.Array:
    """Return which values are words for a missing one."""
    from pyarrow import compute

    return compute.is_in(values, _as_arrow(MISSING))


def _all_match(values: pyarrow.Array, pattern: str) -> bool:
    """Return whether all values match a pattern; the first one usually tells."""
    from pyarrow import compute

    return all(
        compute.all(compute.match_substring_regex(some, pattern)).as_py()
        for some in (values[:1], values)
    )


def _parsed(values: pyarrow.Array, dtype: DType, decimal: str = ".") -> Array | None:
    """Return the values of items of a kind, in the finest type of this kind.

    Returns None if one of the values is no such item. `decimal` is in front of the
    fractions of numbers.
    """
    import pyarrow
    from pyarrow import compute

    kind = dtype.kind
    items: Array
    try:
        if kind == "b":
            if not _all_match(values, BOOLEAN):
                return None
            return numbers_of(compute.match_substring(values, "t", ignore_case=True))
        if kind == "M":
            return _times(values) if _all_match(values, TIME) else None
        if decimal != "." and kind in "fc":
            values = compute.replace_substring(values, ".", "?")
            values = compute.replace_substring(values, decimal, ".")
        if kind != "c":
            float(values[0].as_py())  # the attempts below are slow for other text
        text = bytes_of(values).tobytes()
        if kind == "c" or dtype.itemsize > 8:
            # Python knows digits of other scripts, and underscores between digits.
            if not text.isascii() or b"_" in text:
                return None
            items = numpy.array(values.to_pylist()).astype(dtype)
            return items
        if text.translate(None, OF_FLOATS if kind == "f" else OF_INTEGERS):
            return None
        if len(text.translate(None, BLANKS.encode())) < len(text):
            values = compute.ascii_trim(values, BLANKS)
        if b"+" in text:
            values = compute.replace_substring_regex(values, r"^\+([^+-])", r"\1")
        if kind == "f":
            return numbers_of(values.cast(pyarrow.float64()))
        try:
            items = numbers_of(values.cast(pyarrow.int64()))
        except pyarrow.ArrowInvalid:  # there may be integers of more than 64 bits
            items = numpy.array(list(map(int, values.to_pylist())), object)
        return items.astype("i8").astype(dtype) if kind == "m" else items
    except (ValueError, OverflowError):
        return None


def _times(values: pyarrow.Array) -> Array | None:
    """Return times in the coarsest unit for all; None if none of NumPy holds them."""
    from pyarrow import compute

    has_fraction = b"." in bytes_of(values).tobytes()
    if has_fraction:
        values = compute.replace_substring_regex(values, ZEROS, r"\1\2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy warns of time zones
        times: Array = numpy.array(values.to_pylist(), "M8")
        if has_fraction:
            # NumPy does not notice that a time is too far away for a fine unit.
            values = compute.replace_substring_regex(values, r"\.[0-9]*", "")
            seconds = numpy.array(values.to_pylist(), "M8[s]")
            same = times.astype("M8[s]") == seconds
            if not (same | numpy.isnat(seconds)).all():
                return None
    return times


class _Scan:
    """What the values of a column have in common, whose type a request may have.

    A column with values of `KINDS` that becomes text is added to `odd`: the kind of
    most values, or of the first ones, and the place and the text of one that is not.

    Attributes
    ----------
    why_no_times
        Why the times in the column do not make it one of times, where these are
        wanted; empty if they do, or if there are hardly any.
    kinds
        The kinds of the values: ``?``, ``i``, ``f``, ``M`` for text that seems to be a
        time, and ``U`` for any other.
    lengths
        Those of the values, if they may become text.
    has_missing
        Whether there are words for a missing value, unless they are text.
    """

    def __init__(self, request: contents.Request, name: str, odd: Odd) -> None:
        self._name, self._odd, self._is_mixed = name, odd, False
        self._given = given = request.dtypes.get(name)
        self._has_text = not request.fixed_text
        self._finds_times, self._decimal = request.times, request.decimal
        self._has_zone: set[bool] = set()
        self._farthest = 0  # number of seconds between 1970 and a time
        self.why_no_times, self._unit = "", "D"
        self._text_kind = "U" if given is None else given.kind
        self.kinds: set[str] = set()
        self.lengths = Lengths()
        self.has_missing = False
        self._low = self._high = 0  # of the integers

    def add(self, values: pyarrow.Array, where: Callable[[int, str], str]) -> None:
        """Take more values into account; `where` names the line of one of them."""
        from pyarrow import compute

        if self._given is None or self._given in UNSIZED:
            self.lengths.add_lengths(lengths_of(values, self._text_kind))
        if self._given is not None and self._given.kind in "biu":
            missing = _are_missing(values)
            self.has_missing = self.has_missing or compute.any(missing).as_py()
        if self._given is not None or "U" in self.kinds:
            return
        whole = values
        numbers = _parsed(values, INT)
        if numbers is None:
            missing = _are_missing(values)
            present = values.filter(compute.invert(missing))
            if len(present) < len(values):
                self.has_missing, values = True, present
                if not len(present):
                    return
                numbers = _parsed(present, INT)
        if numbers is not None:
            kind = "i"
            self._low = min(self._low, int(numbers.min()))
            self._high = max(self._high, int(numbers.max()))
        elif _parsed(values, FLOAT, self._decimal) is not None:
            kind = "f"
        elif _parsed(values, BOOL) is not None:
            kind = "?"
        else:
            kind = self._kind_of_text(values)
        if kind in "if":
            zeros = compute.match_substring_regex(values, ZERO_FIRST)
            kind = "U" if compute.any(zeros).as_py() else kind
        before = {"f" if each == "i" else each for each in self.kinds}
        if not self._is_mixed and (
            kind == "U" or before - {"f" if kind == "i" else kind}
        ):
            self._is_mixed = True
            self._find_odd(whole, before, where)
        self.kinds.add(kind)

    def _find_odd(
        self, values: pyarrow.Array, before: set[str], where: Callable[[int, str], str]
    ) -> None:
        """Find the first value that is unlike those before, or most of the others."""
        from pyarrow import compute

        def matches(pattern: str, values: pyarrow.Array = values) -> Array:
            return numbers_of(compute.match_substring_regex(values, pattern))

        present = ~numbers_of(_are_missing(values))
        numbers = values
        if self._decimal != ".":
            numbers = compute.replace_substring(values, ".", "?")
            numbers = compute.replace_substring(numbers, self._decimal, ".")
        is_text = matches(ZERO_FIRST)
        kinds = {
            "f": matches(NUMBER, numbers) & ~is_text,
            "?": matches(BOOLEAN),
            "M": matches(PROBABLE_TIME),
        }
        counts = {kind: int((kinds[kind] & present).sum()) for kind in kinds}
        usual = next(iter(before), max(counts, key=lambda kind: counts[kind]))
        if not before and 2 * counts[usual] <= present.sum():
            usual = "f"
            if not kinds[usual][present][:1].any():
                return
        unlike = present & ~kinds[usual]
        if usual == "f":  # zeros in front of a number are no mistake
            unlike &= ~is_text
        if unlike.any():
            row, place = int(unlike.argmax()), "some line"
            if len(self._odd) < MAX_PLACES:
                place = where(row, self._name)
            self._odd[self._name] = usual, place, values[row].as_py()

    def _kind_of_text(self, values: pyarrow.Array) -> str:
        """Return the kind of values that are no numbers: ``M`` for times, or ``U``."""
        from pyarrow import compute

        if not self._finds_times:
            return "M" if _all_match(values, PROBABLE_TIME) else "U"
        is_time = numbers_of(compute.match_substring_regex(values, PROBABLE_TIME))
        times = _parsed(values, TIMES) if is_time.all() else None
        if times is None:
            if is_time.mean() > 0.5:
                self.kinds.add("M")  # the other values may be mistakes
            return "U"
        unit = numpy.datetime_data(times.dtype)[0]
        units = [*TIME_UNITS]
        unit = unit if unit in units else "s"
        self._unit = max(self._unit, unit, key=units.index)
        seconds = times[~numpy.isnat(times)].astype("M8[s]").astype("i8")
        self._farthest = max(self._farthest, int(abs(seconds).max(initial=0)))
        has_zone = numbers_of(compute.match_substring_regex(values, ZONE))
        self._has_zone.update(has_zone[~numpy.isnat(times)].tolist())
        return "M"

    def dtype(self, name: str) -> DType:
        """Return the type that holds all values, the given one if there is one."""
        if self._given is not None and self._given not in UNSIZED:
            return self._given
        if self._finds_times and "M" in self.kinds:
            is_near = (self._farthest + 1) * TIME_UNITS[self._unit] < 2**63
            if self.kinds != {"M"} or not is_near:
                why = "not all of its values are times that one unit holds"
            elif len(self._has_zone) > 1:
                why = "only some of its times have a time zone"
            else:
                return numpy.dtype("M8[%s]" % self._unit)
            advice = "; convert --dtype '%s=M8[us]' names the first other one"
            self.why_no_times = why + advice % name
        if self.kinds == {"?"}:
            return BOOL
        # Integers beside missing ones become floats if these hold them.
        most = max(-self._low, self._high)
        if self.kinds == {"i"} and not (self.has_missing and most < EXACT):
            for dtype in (INT, numpy.dtype("u8")):
                info = numpy.iinfo(dtype)
                if info.min <= self._low and self._high <= info.max:
                    return dtype
        elif self.kinds and self.kinds <= {"i", "f"}:
            return FLOAT
        if self._has_text and self._text_kind == "U":
            return TEXT
        return self.lengths.dtype(name, self._text_kind)


# Writing


def check_name(name: str, kind: str, request: contents.Request) -> None:
    """Raise `UsageError` for a name that the encoding of the file does not have."""
    contents.check_encodable(name, request.encoding)


def write(content: contents.Content, request: contents.Request) -> None:
    """Write a table, or an array with one or two axes."""
    table = contents.as_table(content)
    for name, column in table.visible.items():
        if len(column.shape) > 1 or column.dtype.kind not in "biufcmMUSO":
            raise UsageTypeError(
                "CSV can't hold the column '%s' of dtype '%s' and shape %s"
                % (name, column.dtype, column.shape)
            )
        if column.dtype.kind == "c":  # their texts are read as text
            request.note_loss("the type '%s' of the column '%s'" % (column.dtype, name))
        if column.dtype.kind in "mM":
            unit, count = numpy.datetime_data(column.dtype)
            # A year is read as a number.
            if unit == "Y" or (column.dtype.kind == "m" and unit != "generic"):
                unit = "%d%s" % (count, unit) if count > 1 else unit
                request.note_loss("the unit '%s' of the column '%s'" % (unit, name))
    step = max(1, WRITTEN_VALUES // len(table.columns))
    step = min(step, contents.rows_in_block(table.row_nbytes))
    with request.new_file() as out_fp:
        text = io.TextIOWrapper(out_fp, request.encoding, newline="")
        # A terminal would obey some characters.
        shown = printable if out_fp.isatty() else str
        writer = csv.writer(
            _LineWriter(text.write, shown, len(table.visible) == 1),
            delimiter=request.delimiter,
            lineterminator="\r\n",
        )
        try:
            writer.writerow(table.visible)
            for block in request.counted(table.read(step)):
                columns = table.masked(block).items()
                lists = [_texts(rows, name, request) for name, rows in columns]
                writer.writerows(zip(*lists, strict=True))
        except UnicodeEncodeError as error:
            raise contents.no_character(error, request.encoding) from error
        text.detach()  # flushes, and leaves the file open


def _texts(rows: Array, name: str, request: contents.Request) -> Sequence[object]:
    """Return a column as values whose texts can be read again without a loss.

    Missing values are empty; a notice names columns of text, whose empty texts are
    empty, too.
    """
    kind = rows.dtype.kind
    if numpy.ma.is_masked(rows):
        if kind in "USO":
            request.note_loss("which texts of the column '%s' are missing" % name)
        texts = _texts(numpy.ma.getdata(rows), name, request)
        masked = numpy.ma.getmaskarray(rows).tolist()
        return ["" if m else text for text, m in zip(texts, masked, strict=True)]
    if kind in "USO":
        return decoded(rows, name)
    if kind == "M":
        # This function ignores the byte order.
        native = rows.astype(rows.dtype.newbyteorder("="))
        unit, count = numpy.datetime_data(native.dtype)
        if count > 1:  # in which it does not know far times
            with naming_column(name):
                native = converted(native, numpy.dtype("M8[%s]" % unit))
        values: list[object] = numpy.datetime_as_string(native).tolist()
    elif kind == "f" and rows.dtype.itemsize > 8:
        values = rows.astype(str).tolist()  # as few digits as the type needs
    elif kind == "f":  # readers take the text for a number of 64 bits
        values = rows.astype("f8").tolist()
    elif kind == "m":
        values = rows.astype("i8").tolist()
    else:
        values = rows.tolist()
    if kind in "fc" and request.decimal != ".":
        values = [str(value).replace(".", request.decimal) for value in values]
    if kind in "fmM":
        missing = numpy.isnan(rows) if kind == "f" else numpy.isnat(rows)
        for i in numpy.flatnonzero(missing).tolist():
            values[i] = ""
    return values


@dataclass
class _LineWriter:
    """A file of lines that end in ``\\n``, for lines of `csv` that end in ``\\r\\n``.

    `csv` quotes the values with characters of the end of its lines: all readers take
    both of these characters for one.
    """

    put: Callable[[str], int]
    shown: Callable[[str], str]
    is_single: bool  # a single column, whose blank texts have to be in quotes

    def write(self, line: str) -> int:
        """Write a line as `shown` returns it."""
        line = line[:-2]
        if self.is_single and not line.strip(BLANKS):
            line = '"%s"' % line
        return self.put(self.shown(line) + "\n")
