"""The file ``header`` of a block of BigFile, and the types of a tree.

The header has type, row width, and the rows of each data file; ``.unwritten`` lists the
rows that have not been written yet.

Pure functions and records. No count of a header is trusted before the lines for it
have been found, and no number may exceed what a file can hold.

A type has a name on disk, and conversions from and to others. A name is a byte order, a
kind and a width: ``<f4``. A block may have the types of `WIDTHS`; an attribute may have
a few more.
"""

from __future__ import annotations

import operator
import re
import sys
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, pairwise
from typing import NamedTuple
from zlib import crc32

import numpy

from .._format.dtypes import DType
from .._format.rows import Rows, union
from ..exceptions import DamageError, Unsupported, UsageTypeError, UsageValueError
from ..log import counted

# Maximum number of rows and of bytes: an offset can't express more.
MAX_COUNT = 2**63 - 1
# Maximum number of bytes of a row: NumPy has no type for more.
MAX_ROW_NBYTES = 2**31 - 1
# Number of bytes that are read, or converted, summed and written, at a time.
PIECE_NBYTES = 2**22
# Checksums are sums of bytes modulo this number.
MODULUS = 2**32
# Number of rows per data file if the caller does not say, as in the original.
ROWS_PER_FILE = 32 * 2**20
# The first line of the file with the rows that have not been written.
UNWRITTEN_TITLE = b"rows not written yet"
# The name of data file `number`.
FILE_NAME = "%06X"
# A line without the blanks in front of it. Blank lines are skipped: a list of all lines
# of a damaged file may take far more memory than the file.
_LINE = re.compile(r"\S[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]*")
_FIELD = re.compile(r"(DTYPE|NMEMB|NFILE)\s*:\s*(\S+)")
_FILE = re.compile(
    r"([0-9A-Fa-f]{6,15})\s*:\s*([0-9]{1,19})\s*:\s*([0-9]{1,10})\s*:\s*([0-9]{1,10})"
)


def folded(checksum: int) -> int:
    """Return a checksum folded to 16 bits, as ``sum -s`` prints it."""
    once = (checksum & 0xFFFF) + (checksum >> 16)
    return (once & 0xFFFF) + (once >> 16)


def split_rows(size: int, nfiles: int) -> list[int]:
    """Return the number of rows of each of `nfiles` files that have `size` rows."""
    ends = [i * size // nfiles for i in range(nfiles + 1)] if nfiles else []
    return [stop - start for start, stop in pairwise(ends)]


class FileRows(NamedTuple):
    """Rows of one data file: file `number`, rows [start, stop) of that file.

    ``row`` is the number in the block of the first of these rows.
    """

    number: int
    start: int
    stop: int
    row: int


@dataclass(eq=False, repr=False)
class Header:
    """The contents of a header. ``rows`` and ``checksums`` have an item per file.

    ``folds`` are the folded checksums as stored, which `encode` computes again.
    ``dtype_name`` is the type as stored: NumPy drops the byte order of single bytes.
    """

    dtype: DType
    nmemb: int
    rows: list[int]
    checksums: list[int] = field(default_factory=list)
    folds: list[int] = field(default_factory=list)
    dtype_name: str = ""

    def __post_init__(self) -> None:
        self.dtype_name = self.dtype_name or name_of(self.dtype)
        self.checksums = self.checksums or [0] * len(self.rows)
        self.folds = self.folds or list(map(folded, self.checksums))
        # The number of the first row of each file, and of the row behind all files.
        self.starts = [0, *accumulate(self.rows)]
        self.size = self.starts[-1]
        self.row_nbytes = self.dtype.itemsize * self.nmemb
        # A row of a single item has no axis.
        self.row_shape = () if self.nmemb == 1 else (self.nmemb,)
        # The number of rows that are read, converted or written at a time.
        self.piece_rows = max(1, PIECE_NBYTES // max(1, self.row_nbytes))

    def parts(self, start: int, stop: int, most: int = MAX_COUNT) -> Iterator[FileRows]:
        """Yield the parts of data files that hold rows [start, stop) of the block.

        A part has at most `most` rows.
        """
        number = bisect_right(self.starts, start) - 1
        while start < stop:
            first, end = self.starts[number], self.starts[number + 1]
            part_stop = min(stop, end, start + most)
            if start < part_stop:
                yield FileRows(number, start - first, part_stop - first, start)
                start = part_stop
            if start >= end:
                number += 1

    def with_sums(self, sums: Mapping[int, int]) -> Header:
        """Return the header with sums added to the checksums of some files."""
        checksums = list(self.checksums)
        for number, change in sums.items():
            checksums[number] = (checksums[number] + change) % MODULUS
        return replace(self, checksums=checksums, folds=[])


def encode(header: Header) -> bytes:
    """Return the bytes of a header."""
    fields = header.dtype_name, header.nmemb, len(header.rows)
    lines = ["DTYPE: %s\nNMEMB: %d\nNFILE: %d\n" % fields]
    files = zip(header.rows, header.checksums, strict=True)
    for number, (rows, checksum) in enumerate(files):
        line = FILE_NAME + ": %d : %d : %d\n"
        lines.append(line % (number, rows, checksum, folded(checksum)))
    return "".join(lines).encode("ascii")


def decode(data: bytes) -> Header:
    """Return the header with these bytes; raises `DamageError` or `Unsupported`.

    Lines may have any order. Lines of another form are ignored, as the original does.
    """
    fields: dict[str, str] = {}
    files: dict[int, list[int]] = {}
    for matched in _LINE.finditer(data.decode("utf-8", "replace")):
        line = matched[0].rstrip()
        if match := _FILE.match(line):
            number = int(match[1], 16)
            if number in files:
                raise DamageError("data file " + FILE_NAME % number + " is named twice")
            files[number] = list(map(int, match.groups()[1:]))
        match = _FIELD.fullmatch(line)
        if match and fields.setdefault(match[1], match[2]) != match[2]:
            raise DamageError("the field %s has two values" % match[1])
    for name in ("DTYPE", "NMEMB", "NFILE"):
        text = fields.get(name)
        if text is None:
            raise DamageError("the field %s is missing" % name)
        is_number = re.fullmatch("[0-9]{1,19}", text) and int(text) <= MAX_COUNT
        if name != "DTYPE" and not is_number:
            raise DamageError("%s: expected a number, found '%s'" % (name, text[:20]))
    name, nmemb, nfile = fields["DTYPE"], int(fields["NMEMB"]), int(fields["NFILE"])
    dtype = block_dtype(name)
    if nfile > len(files):
        found = counted(len(files), "data file")
        raise DamageError("NFILE is %d, found %s" % (nfile, found))
    for number in range(nfile):
        if number not in files:
            raise DamageError("no line for data file " + FILE_NAME % number)
    rows, checksums, folds = (
        [files[number][i] for number in range(nfile)] for i in range(3)
    )
    total = sum(rows)
    row_nbytes = max(1, nmemb * dtype.itemsize)
    if row_nbytes > MAX_ROW_NBYTES:
        raise DamageError(
            "expected rows of at most %d bytes, found %s of type %s"
            % (MAX_ROW_NBYTES, counted(nmemb, "item"), name)
        )
    if total * row_nbytes > MAX_COUNT or (total and not nmemb):
        told = counted(total, "row"), counted(nmemb, "item")
        raise DamageError("there can't be %s of %s" % told)
    if max(checksums, default=0) >= MODULUS:
        raise DamageError("a checksum has more than 32 bits")
    stored_name = name if name[0] in "<>" else ""
    return Header(dtype, nmemb, rows, checksums, folds, stored_name)


def new_header(row: DType, size: int, nfile: int | None) -> Header:
    """Return the header of a new block with rows of a type.

    `nfile` is the number of data files, or None for `ROWS_PER_FILE`. Raises
    `UsageError` for what the format does not have.
    """
    if len(row.shape) > 1:
        raise UsageValueError("a row has one axis, not the shape %s" % (row.shape,))
    check_storable(row.base)
    nmemb = row.shape[0] if row.shape else 1
    size = operator.index(size)
    nfile = -(-size // ROWS_PER_FILE) if nfile is None else operator.index(nfile)
    for name, value, most in (
        ("NMEMB", nmemb, MAX_ROW_NBYTES),
        ("the number of rows", size, MAX_COUNT),
        ("the number of files", nfile, 0xFFFFFF),
    ):
        if not 0 <= value <= most:
            raise UsageValueError("%s can't be %d" % (name, value))
    if size and not (nfile and nmemb):
        raise UsageValueError(
            "%s: expected at least one file and one item per row, found %d and %d"
            % (counted(size, "row"), nfile, nmemb)
        )
    if size * row.itemsize > MAX_COUNT:
        told = counted(size, "row"), counted(nmemb, "item")
        raise UsageValueError("too many items: %s of %s" % told)
    return Header(block_dtype(name_of(row.base)), nmemb, split_rows(size, nfile))


# The file .unwritten: rows that have not been written yet. A header promises all rows
# when a block is created. If a writer dies, the rows that it should have written are
# empty, or zeros, and no checksum tells. Therefore a new block has this file until its
# last row has been written. Other programs ignore it. It holds the CRC of the header
# before and after the change that it belongs to, so a header that another program has
# written since makes it void.


def encode_unwritten(rows: Rows, headers: tuple[bytes, ...]) -> bytes:
    """Return the bytes for rows; `headers` are the headers that they belong to."""
    sums = b" ".join(b"%08x" % crc32(header) for header in headers)
    lines = [UNWRITTEN_TITLE, b"header " + sums, *(b"%d %d" % pair for pair in rows)]
    return b"\n".join(lines) + b"\n"


def decode_unwritten(data: bytes, header: bytes, size: int) -> Rows:
    """Return the rows; none if the file does not belong to this header.

    `size` is the number of rows of the block.
    """
    title, sums, lines, *_ = [*data.split(b"\n", 2), b"", b""]
    if title != UNWRITTEN_TITLE or b"%08x" % crc32(header) not in sums.split()[1:]:
        return []
    matches = re.finditer(rb"^([0-9]{1,19}) ([0-9]{1,19})$", lines, re.MULTILINE)
    return union((int(m[1]), min(int(m[2]), size)) for m in matches)


NATIVE = "<" if sys.byteorder == "little" else ">"
# The widths in bytes that a block may have, for each kind.
WIDTHS = {
    "b": (1,),
    "i": (1, 2, 4, 8),
    "u": (1, 2, 4, 8),
    "f": (2, 4, 8, 16),
    "c": (8, 16),
    "S": tuple(range(1, 17)),
}
NUMBERS = "biufc"
# Numbers that the other type can't hold are converted as in C, without a warning.
SILENT_CASTS = partial(numpy.errstate, invalid="ignore", over="ignore", under="ignore")
_BLOCK_NAME = re.compile(r"[<>|=]([Sbiufc])([0-9]{1,2})")
ATTRIBUTE_NAME = re.compile(
    r"([<>|=]?)([Sabiufc][1-9][0-9]{0,5}|[Mm]8(?:\[[A-Za-z]{1,2}\])?)"
)
# Maximum number of characters in the type of an attribute: its field has 8 bytes.
MAX_NAME = 7


def name_of(dtype: DType) -> str:
    """Return the name of a type on disk; it always has a byte order."""
    order = dtype.str[0]
    return (NATIVE if order in "|=" else order) + dtype.str[1:]


def check_storable(dtype: DType) -> None:
    """Raise `UsageTypeError` for a type that no block can have."""
    if dtype.kind in WIDTHS and dtype.itemsize in WIDTHS[dtype.kind]:
        return
    raise UsageTypeError(
        "a block can't have the dtype '%s': expected b1, i1 to i8, u1 to u8, f2 to "
        "f16, c8, c16, or S1 to S16" % dtype
    )


def block_dtype(name: str) -> DType:
    """Return the type with this name in a header.

    Raises `DamageError` for a name that the format does not know, and `Unsupported` for
    a type that NumPy does not have here.
    """
    match = _BLOCK_NAME.fullmatch(name)
    if match is None:
        raise DamageError("DTYPE: expected a type like '<f4', found '%s'" % name[:20])
    if int(match[2]) not in WIDTHS[match[1]]:
        raise Unsupported("DTYPE: no number or string has the type '%s'" % name)
    return attribute_dtype(name)


def attribute_dtype(name: str) -> DType:
    """Return the type with this name in a line of attributes; see `block_dtype`."""
    match = ATTRIBUTE_NAME.fullmatch(name)
    if match is None:
        raise DamageError("expected a type like '<f8', found '%s'" % name[:20])
    order = match[1] if match[1] in ("<", ">") else NATIVE
    try:
        return numpy.dtype(order + match[2].replace("a", "S"))
    except TypeError as error:
        raise Unsupported("NumPy has no type '%s' here" % name) from error


def check_convertible(source: DType, target: DType) -> None:
    """Raise `UsageTypeError` if items of a type can't be stored as the other type.

    Numbers become numbers as in C: floats lose their fraction. Strings may only become
    longer, and a complex number is never cut to its real part.
    """
    kinds = {"S": "S", "c": "c"}.get(source.kind, NUMBERS)
    is_longer = source.kind == "S" and source.itemsize > target.itemsize
    if source.kind in WIDTHS and target.kind in kinds and not is_longer:
        return
    raise UsageTypeError(
        "items of the type '%s' can't be converted to '%s'" % (source, target)
    )
