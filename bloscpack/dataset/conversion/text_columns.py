"""Columns of text as arrays with items of one length."""

from __future__ import annotations

import numpy

from ..._format.dtypes import check_text
from ...exceptions import UsageTypeError, UsageValueError
from ..rows import ends_in_zero

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..._format.dtypes import Array, DType


# Padding all texts to the length of the longest one may make a column as large as this
# in bytes, or this multiple of the size of the texts.
MAX_PADDED = 2**34
MAX_TIMES_PADDED = 100


def longest(values: Iterable[str | bytes], most: int = 0) -> int:
    """Return the length of the longest value, at least `most`."""
    return max(most, max(map(len, values), default=0))


def text_dtype(length: int, kind: str = "U") -> DType:
    """Return the type of text (``"U"``) or bytes (``"S"``) of this length."""
    return numpy.dtype("%s%d" % (kind, max(1, length)))


class Lengths:
    """The lengths of the texts in a column.

    Attributes
    ----------
    most, total
        The length of the longest text, and the sum of all lengths.
    count
        Number of texts.
    """

    def __init__(self) -> None:
        self.most = self.total = self.count = 0

    def add(self, values: Sequence[str | bytes]) -> None:
        """Take texts into account."""
        self.most = longest(values, self.most)
        self.total += sum(map(len, values))
        self.count += len(values)

    def dtype(self, name: str, kind: str = "U") -> DType:
        """Return the type for all texts.

        Raises `UsageError` if nearly all of a large array would be padding, because a
        single text is long.
        """
        found = text_dtype(self.most, kind)
        nbytes = self.count * found.itemsize
        unit = found.itemsize // max(1, self.most)
        if nbytes > max(MAX_PADDED, MAX_TIMES_PADDED * self.total * unit):
            raise UsageValueError(
                "column '%s': a text has '%d' characters, and '%d' texts of this "
                "length have '%d' bytes, '%d' times those that are there; leave the "
                "column out, or make the text shorter"
                % (
                    name,
                    self.most,
                    self.count,
                    nbytes,
                    nbytes // max(1, self.total * unit),
                )
            )
        return found


def fixed(values: Sequence[str | bytes], dtype: DType, name: str) -> Array:
    """Return values as an array of fixed length; raise `UsageError` for a loss."""
    array: Array = numpy.array(values, dtype)
    _check_length(longest(values), dtype, name)
    if any(value[-1:] in ("\0", b"\0") for value in values):
        raise ends_in_zero(name)
    return array


def fixed_from(letters: Array, lengths: Array, dtype: DType, name: str) -> Array:
    """Return values as `fixed` does, from the bytes of all, in ASCII, and lengths."""
    _check_length(int(lengths.max(initial=0)), dtype, name)
    ends = numpy.cumsum(lengths)[lengths > 0] - 1
    if not letters[ends].all():
        raise ends_in_zero(name)
    unit = numpy.dtype("u4" if dtype.kind == "U" else "u1")
    width = dtype.itemsize // unit.itemsize
    table: Array = numpy.zeros((len(lengths), width), unit)
    table[numpy.arange(width) < lengths[:, numpy.newaxis]] = letters
    result: Array = table.view(dtype.newbyteorder("=")).reshape(-1)
    return result


def _check_length(found: int, dtype: DType, name: str) -> None:
    most = dtype.itemsize // (4 if dtype.kind == "U" else 1)
    if found > most:
        raise UsageValueError(
            "column '%s': expected text of at most %d characters, found '%d'"
            % (name, most, found)
        )


def decoded(array: Array, name: str) -> list[str]:
    """Return a column of text or bytes as strings."""
    check_text(array)
    values: list[str | bytes] = array.tolist()
    try:
        return [v.decode("utf-8") if isinstance(v, bytes) else v for v in values]
    except UnicodeDecodeError as error:
        raise UsageTypeError(
            "column '%s': expected text in UTF-8, found %.100r" % (name, error.object)
        ) from error


def native(array: Array) -> Array:
    """Return an array in the byte order of the machine."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)
