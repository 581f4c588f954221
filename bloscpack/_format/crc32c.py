"""The checksum CRC-32C (Castagnoli), as a function of a buffer.

`google-crc32c` computes it if its compiled form is installed; otherwise NumPy does.

Strategy of the NumPy form: a CRC is linear over GF(2). The buffer is cut into rows of
LANES words. Each lane multiplies its state by x to the power of the bits in a row and
adds the next word, so that a row takes a few vector operations. Then the lanes are
joined in pairs, in the same way, until few words are left. Bytes behind the last full
row are a row of their own, with zeros in front.

A state is a polynomial of degree below 32 in the reflected order: bit 31 is x**0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .._storage.protocols import Buffer
    from .dtypes import Array

# The polynomial without x**32.
POLYNOMIAL = 0x82F63B78
ONES = 0xFFFFFFFF
# Number of words in a row. Its states and the tables below fit the caches of a CPU.
LANES = 4096
WORD_LENGTH = 4
# Number of words from which on they are joined by a loop in Python.
FEW_WORDS = 16
# Number of bytes up to which a loop in Python is faster than calling NumPy.
SHORT = 512


def crc32c(data: Buffer, value: int = 0) -> int:
    """Return the checksum of a buffer; `value` is that of the bytes in front of it."""
    return _implementation()(data, value)


def with_zeros(value: int, count: int) -> int:
    """Return the checksum of a buffer and `count` zero bytes behind it."""
    return multiply(value ^ ONES, power(8 * count)) ^ ONES


@cache
def _implementation() -> Callable[[Buffer, int], int]:
    """Return the fastest function that is installed."""
    try:
        import google_crc32c  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return with_numpy
    # Its form in Python is slower than NumPy.
    if google_crc32c.implementation != "c":  # pragma: no cover - depends on its build
        return with_numpy

    def with_google(data: Buffer, value: int) -> int:
        # It refuses a memoryview, but not an array of NumPy.
        if len(data) > SHORT and not isinstance(data, bytes):
            import numpy

            checksum: int = google_crc32c.extend(value, numpy.frombuffer(data, "u1"))
        else:
            checksum = google_crc32c.extend(value, bytes(data))
        return checksum

    return with_google


def with_numpy(data: Buffer, value: int = 0) -> int:
    """Return the checksum of a buffer, computed with NumPy; see `crc32c`."""
    view = memoryview(data).cast("B")
    state = value ^ ONES
    if len(view) <= SHORT:
        return _add_bytes(state, view) ^ ONES
    import numpy

    row_nbytes = LANES * WORD_LENGTH
    nrows = len(view) // row_nbytes
    if nrows:
        words = numpy.frombuffer(view[: nrows * row_nbytes], "<u4")
        state = _join(_add_rows(words.reshape(nrows, LANES), state))
    rest = view[nrows * row_nbytes :]
    if len(rest) <= SHORT:
        return _add_bytes(state, rest) ^ ONES
    # The state is added to the first bytes: as many zeros in front change nothing.
    nwords = 1 << (-(-len(rest) // WORD_LENGTH) - 1).bit_length()
    padded = numpy.zeros(nwords * WORD_LENGTH, "u1")
    start = len(padded) - len(rest)
    padded[start:] = numpy.frombuffer(rest, "u1")
    padded[start : start + WORD_LENGTH] ^= numpy.frombuffer(
        state.to_bytes(WORD_LENGTH, "little"), "u1"
    )
    return _join(padded.view("<u4").astype("u4")) ^ ONES


def _add_rows(rows: Array, state: int) -> Array:
    """Return the words that are left of all rows, with `state` added to the first."""
    import numpy

    low, high = _row_tables()
    states = rows[0].astype("u4")
    states[0] ^= state
    # NumPy takes indices of this type without a copy.
    low_half, high_half = numpy.empty((2, LANES), numpy.intp)
    moved = numpy.empty(LANES, "u4")
    for row in rows[1:]:
        numpy.bitwise_and(states, 0xFFFF, out=low_half, casting="unsafe")
        numpy.right_shift(states, 16, out=high_half, casting="unsafe")
        high.take(high_half, out=states, mode="clip")
        low.take(low_half, out=moved, mode="clip")
        states ^= moved
        states ^= row
    result: Array = states
    return result


def _join(words: Array) -> int:
    """Return the CRC state after a number of words that is a power of two."""
    while len(words) > FEW_WORDS:
        half = len(words) // 2
        bytes_ = words[:half].astype("<u4").view("u1").reshape(half, WORD_LENGTH)
        tables = _tables(half)
        words = words[half:].copy()
        for i in range(WORD_LENGTH):
            words ^= tables[i].take(bytes_[:, i])
    return _add_bytes(0, memoryview(words.astype("<u4").tobytes()))


# Arithmetic in GF(2)[x] modulo the polynomial


def _add_bytes(state: int, data: memoryview) -> int:
    table = _byte_table()
    for byte in data:
        state = table[(state ^ byte) & 0xFF] ^ (state >> 8)
    return state


@cache
def _byte_table() -> list[int]:
    """Return the product of each byte and x**8."""
    table = []
    for state in range(256):
        for _ in range(8):
            state = _times_x(state)
        table.append(state)
    return table


def _times_x(state: int, modulus: int = POLYNOMIAL) -> int:
    return (state >> 1) ^ (modulus if state & 1 else 0)


def multiply(one: int, other: int, modulus: int = POLYNOMIAL) -> int:
    """Return the product of two polynomials."""
    product = 0
    for bit in range(31, -1, -1):
        if one >> bit & 1:
            product ^= other
        other = _times_x(other, modulus)
    return product


def power(exponent: int, modulus: int = POLYNOMIAL) -> int:
    """Return x to the power of a number of bits."""
    result, square = 1 << 31, 1 << 30
    while exponent:
        if exponent & 1:
            result = multiply(result, square, modulus)
        square = multiply(square, square, modulus)
        exponent >>= 1
    return result


@cache
def _tables(nwords: int) -> Array:
    """Return four tables that move a word by `nwords` words, one for each of its bytes.

    The sum of the four entries for the bytes of a word is the moved word.
    """
    import numpy

    factor = power(8 * WORD_LENGTH * nwords)
    bits = numpy.array([multiply(1 << bit, factor) for bit in range(32)], "u4")
    numbers = numpy.arange(256, dtype="u4")
    tables = numpy.zeros((WORD_LENGTH, 256), "u4")
    for bit in range(32):
        tables[bit // 8] ^= (numbers >> numpy.uint32(bit % 8) & 1) * bits[bit]
    return tables


@cache
def _row_tables() -> tuple[Array, Array]:
    """Return two tables that move a word by a row, one for each half of it."""
    import numpy

    one, two, three, four = _tables(LANES)
    low = numpy.bitwise_xor.outer(two, one).ravel()
    return low, numpy.bitwise_xor.outer(four, three).ravel()
