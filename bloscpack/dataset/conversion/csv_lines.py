"""What the lines of a CSV file say that pandas does not tell."""

from __future__ import annotations

import csv
import re
from _thread import allocate_lock
from contextlib import contextmanager, suppress

from ..._format.array_metadata import MAX_ITEM_NBYTES
from ...exceptions import DamageError

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator

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


def check_counts(path: str, expected: int) -> None:
    """Raise `FormatError` if a line has too few values: pandas adds missing ones."""
    with (
        open(path, encoding="utf-8-sig", newline="") as fp,
        _long_values(),
        suppress(csv.Error),  # of Python 3.10, which refuses zero bytes
    ):
        reader = csv.reader(fp)
        for values in reader:
            if values in ([], [""]) or (len(values) == 1 and values[0].isspace()):
                continue  # pandas skips blank lines
            if len(values) < expected:
                raise DamageError(
                    "expected '%d' values in each line, found '%d' in line %d"
                    % (expected, len(values), reader.line_num),
                    filename=path,
                )


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
