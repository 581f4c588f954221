"""The checksum CRC-32C (Castagnoli), and the arithmetic to join two of a kind.

A CRC is linear over GF(2). Its state is a polynomial of degree below 32 in the
reflected order: bit 31 is x**0.
"""

from __future__ import annotations

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from typing import Any

    from .._types import Buffer

# The polynomial without x**32.
POLYNOMIAL = 0x82F63B78
# Number of bytes up to which copying them is faster than calling NumPy.
SHORT = 512


# Functions that the first call imports: a statement that imports them would take
# longer than the checksum of a short chunk.
_extend: Any = None
_frombuffer: Any = None


def crc32c(data: Buffer, value: int = 0) -> int:
    """Return the checksum of a buffer; `value` is that of the bytes in front of it."""
    if _extend is None:
        _import()
    # `extend` refuses a memoryview, but not an array of NumPy.
    if len(data) > SHORT and not isinstance(data, bytes):
        data = _frombuffer(data, "u1")
    else:
        data = bytes(data)
    checksum: int = _extend(value, data)
    return checksum


def digest(data: Buffer) -> bytes:
    """Return the checksum of a buffer in its 4 bytes of a file, little-endian."""
    return crc32c(data).to_bytes(4, "little")


def _import() -> None:
    global _extend, _frombuffer
    import google_crc32c  # type: ignore[import-not-found,unused-ignore]
    import numpy

    _frombuffer, _extend = numpy.frombuffer, google_crc32c.extend


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
