"""What the lines of a CSV file say that pandas does not tell."""

from __future__ import annotations

import csv
import re
from contextlib import suppress

from ...exceptions import DamageError

# An integer with a zero in front, as text, and what precedes it in a file, whose first
# line has names.
ZERO_FIRST = r"\s*[+-]?0[0-9]+\s*"
MAYBE_ZERO_FIRST = re.compile(rb'[,"\r\n]\s*[+-]?0[0-9]')
# Number of bytes that are searched for it at a time, and of those that two parts share.
SEARCHED_NBYTES = 2**20
SHARED_NBYTES = 16


def check_counts(path: str, expected: int) -> None:
    """Raise `FormatError` if a line has too few values: pandas adds missing ones."""
    with open(path, encoding="utf-8-sig", newline="") as fp, suppress(csv.Error):
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


def may_have_zero_first(path: str) -> bool:
    """Return whether a value of a file may be an integer with a zero in front."""
    with open(path, "rb") as fp:
        end = b""
        while block := fp.read(SEARCHED_NBYTES):
            if MAYBE_ZERO_FIRST.search(end + block):
                return True
            end = block[-SHARED_NBYTES:]
    return False
