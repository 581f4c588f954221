"""The checksum CRC-32C (Castagnoli), and the arithmetic to join two of a kind.

A CRC is linear over GF(2). Its state is a polynomial of degree below 32 in the
reflected order: bit 31 is x**0.
"""

from __future__ import annotations

from functools import cache

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from typing import Any

    from .._types import Buffer

# The polynomial without x**32.
POLYNOMIAL = 0x82F63B78
# Number of bytes up to which copying them is faster than calling NumPy.
SHORT = 512


def crc32c(data: Buffer, value: int = 0) -> int:
    """Return the checksum of a buffer; `value` is that of the bytes in front of it."""
    # `extend` refuses a memoryview, but not an array of NumPy.
    if len(data) > SHORT and not isinstance(data, bytes):
        data = _frombuffer()(data, "u1")
    else:
        data = bytes(data)
    checksum: int = _extend()(value, data)
    return checksum


# Statements that import the functions take longer than the checksum of a short chunk.


@cache
def _extend() -> Any:
    import google_crc32c  # type: ignore[import-not-found,unused-ignore]

    return google_crc32c.extend


@cache
def _frombuffer() -> Any:
    import numpy

    return numpy.frombuffer


# Arithmetic in GF(2)[x] modulo the polynomial


def multiply(one: int, other: int, modulus: int = POLYNOMIAL) -> int:
    """Return the product of two polynomials."""
    product = 0
    for bit in range(31, -1, -1):
        if one >> bit & 1:
            product ^= other
        other = (other >> 1) ^ (modulus if other & 1 else 0)  # times x
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
