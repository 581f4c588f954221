"""Names kept from 0.16: functions that encode and decode one little-endian number.

`bloscpack.headers` has them for programs written for 0.16. The package itself decodes
whole records. Every decoding function raises `FormatError` if the length is wrong.
"""

from __future__ import annotations

import struct

from ..exceptions import DamageError

_UINT8 = struct.Struct("<B")
_UINT32 = struct.Struct("<I")
_INT32 = struct.Struct("<i")
_INT64 = struct.Struct("<q")


def decode_uint8(byte: bytes | int) -> int:
    """Return the unsigned number in one byte; an int is returned unchanged."""
    return byte if isinstance(byte, int) else _decode(_UINT8, byte)


def decode_uint32(fourbyte: bytes) -> int:
    """Return the unsigned number in four bytes."""
    return _decode(_UINT32, fourbyte)


def decode_int32(fourbyte: bytes) -> int:
    """Return the signed number in four bytes."""
    return _decode(_INT32, fourbyte)


def decode_int64(eightbyte: bytes) -> int:
    """Return the signed number in eight bytes."""
    return _decode(_INT64, eightbyte)


def _decode(record: struct.Struct, data: bytes) -> int:
    if len(data) != record.size:
        raise DamageError(
            "expected a number of '%d' bytes, found '%d'" % (record.size, len(data))
        )
    return int(record.unpack(data)[0])


def decode_bitfield(byte: int) -> str:
    """Return the bits of a byte as a string of eight digits, the highest bit first."""
    return format(byte, "08b")


def encode_uint8(byte: int) -> bytes:
    """Return an unsigned number as one byte."""
    return _UINT8.pack(byte)


def encode_uint32(byte: int) -> bytes:
    """Return an unsigned number as four bytes."""
    return _UINT32.pack(byte)


def encode_int32(fourbyte: int) -> bytes:
    """Return a signed number as four bytes."""
    return _INT32.pack(fourbyte)


def encode_int64(eightbyte: int) -> bytes:
    """Return a signed number as eight bytes."""
    return _INT64.pack(eightbyte)
