"""The checksum CRC-32C (Castagnoli), and the arithmetic to extend a CRC by zeros.

A CRC is linear over GF(2). Its state is a polynomial of degree below 32 in the
reflected order: bit 31 is x**0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .._storage.protocols import Buffer

# The polynomial without x**32.
POLYNOMIAL = 0x82F63B78
ONES = 0xFFFFFFFF
# Number of bytes up to which copying them is faster than calling NumPy.
SHORT = 512


def crc32c(data: Buffer, value: int = 0) -> int:
    """Return the checksum of a buffer; `value` is that of the bytes in front of it."""
    import google_crc32c  # type: ignore[import-not-found,unused-ignore]

    checksum: int
    # It refuses a memoryview, but not an array of NumPy.
    if len(data) > SHORT and not isinstance(data, bytes):
        import numpy

        checksum = google_crc32c.extend(value, numpy.frombuffer(data, "u1"))
    else:
        checksum = google_crc32c.extend(value, bytes(data))
    return checksum


def with_zeros(value: int, count: int) -> int:
    """Return the checksum of a buffer and `count` zero bytes behind it."""
    return multiply(value ^ ONES, power(8 * count)) ^ ONES


# Arithmetic in GF(2)[x] modulo the polynomial


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
