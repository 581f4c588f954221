"""The files ``attr-v2`` and ``attr``: named values as text, and as binary records.

Pure functions. The hexadecimal digits alone carry a value; the text behind ``#HUMANE``
is made for people, letter by letter like the original makes it, and never read.
"""

from __future__ import annotations

import re
import struct

import numpy

from ..abstract_objects import ImmutableObject
from ..exceptions import DamageError, UsageTypeError, UsageValueError
from .dtypes import MAX_NAME, attribute_dtype, name_of

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from .dtypes import Array, DType

    # Attributes by the bytes of their name.
    Attributes = dict[bytes, "Attribute"]

# The type of text: its items are bytes of UTF-8.
TEXT = "a"
# Values of more bytes than this are not shown as text.
MAX_SHOWN = 128
# What a NUL or a character of a line's structure would break.
_BAD_NAME = re.compile(rb"[\x00-\x20\x7f]")
_BLANKS = b" \t"
_LEGACY = struct.Struct("=ii8s")


class Attribute(ImmutableObject):
    """A value as it is stored: name of its type, number of items, and their bytes."""

    __slots__ = ("data", "dtype_name", "nmemb")

    def __init__(self, dtype_name: str, nmemb: int, data: bytes) -> None:
        self.dtype_name = dtype_name
        self.nmemb = nmemb
        self.data = data

    @property
    def dtype(self) -> DType:
        """The type as NumPy has it; text has the type ``S1``."""
        return attribute_dtype(self.dtype_name)

    @property
    def is_text(self) -> bool:
        """Whether it is the text of a Python program."""
        return self.dtype_name.lstrip("<>|=")[0] == TEXT

    @property
    def array(self) -> Array:
        """The items as an array that can be changed."""
        return numpy.frombuffer(self.data, self.dtype).copy()


# Values


def value_of(attribute: Attribute) -> Any:
    """Return the value of an attribute: text, a list of texts, or an array."""
    if attribute.is_text:
        return attribute.data.decode("utf-8", "surrogateescape")
    dtype = attribute.dtype
    if dtype.kind != "S":
        return attribute.array
    width = dtype.itemsize
    items = (
        attribute.data[i : i + width] for i in range(0, len(attribute.data), width)
    )
    return [item.rstrip(b"\0").decode("utf-8", "surrogateescape") for item in items]


def attribute_of(name: str, value: Any) -> Attribute:
    """Return a value as an attribute; raises `UsageTypeError` or `UsageValueError`.

    A matrix loses its shape. An empty array is refused: the original could not open the
    block any more.
    """
    if isinstance(value, str):
        data = encoded_text(value) or b"\0"
        return Attribute("<" + TEXT + "1", len(data), data)
    try:
        array = numpy.atleast_1d(numpy.asarray(value)).ravel()
    except ValueError as error:  # rows of different lengths
        raise UsageTypeError("attribute '%s': %s" % (name, error)) from error
    if array.size == 0:
        raise UsageValueError("attribute '%s' is empty, which is not possible" % name)
    if array.dtype.kind == "U":
        array = numpy.array([encoded_text(item) for item in array.tolist()])
    if array.dtype.kind == "S" and not array.dtype.itemsize:
        array = array.astype("S1")
    dtype_name = name_of(array.dtype)
    if array.dtype.kind not in "biufcSMm" or len(dtype_name) > MAX_NAME:
        raise UsageTypeError(
            "attribute '%s' can't have the dtype '%s'" % (name, array.dtype)
        )
    attribute_dtype(dtype_name)
    return Attribute(dtype_name, array.size, array.tobytes())


def encoded_text(text: str) -> bytes:
    """Return text as UTF-8; raise `UsageValueError` for a surrogate, which JSON allows.

    The surrogates that stand for bytes of a name become these bytes again.
    """
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise UsageValueError(
            "an attribute can't contain %a: it is no character"
            % error.object[error.start]
        ) from error


def encoded_name(name: str) -> bytes:
    """Return the bytes of a name; raises `UsageValueError` for an impossible one."""
    encoded = encoded_text(name)
    if not encoded or _BAD_NAME.search(encoded):
        raise UsageValueError(
            "the name of an attribute can't be empty or contain blanks or control "
            "characters, like %r" % name
        )
    return encoded


# The file attr-v2


def encode(attributes: Mapping[bytes, Attribute]) -> bytes:
    """Return the bytes of ``attr-v2``."""
    lines = []
    for name in sorted(attributes):
        attribute = attributes[name]
        fields = " %s %d " % (attribute.dtype_name, attribute.nmemb)
        digits = attribute.data.hex().upper().encode("ascii")
        shown = b" #HUMANE [ " + humane(attribute) + b" ]\n"
        lines.append(name + fields.encode("ascii") + digits + shown)
    return b"".join(lines)


def decode(data: bytes) -> Attributes:
    """Return the attributes of ``attr-v2``; raises `DamageError` or `Unsupported`."""
    found: Attributes = {}
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip(_BLANKS + b"\r"):
            continue
        try:
            name, attribute = _decode_line(line)
        except DamageError as error:
            raise DamageError("line %d: %s" % (number, error)) from error
        found[name] = attribute
    return found


def _decode_line(line: bytes) -> tuple[bytes, Attribute]:
    fields = [field for field in re.split(rb"[ \t\r]+", line) if field]
    if len(fields) < 4:
        raise DamageError("expected name, type, count and value")
    name, dtype_name, count, digits = fields[:4]
    text = dtype_name.decode("ascii", "replace")
    if re.fullmatch(rb"[0-9]{1,18}", count) is None:
        raise DamageError("expected a count, found '%s'" % _shown(count))
    try:
        data = bytes.fromhex(digits.decode("ascii"))
    except ValueError as error:
        raise DamageError("the value is not hexadecimal") from error
    return name, _checked(text, int(count), data)


def _checked(dtype_name: str, nmemb: int, data: bytes) -> Attribute:
    """Return an attribute whose length is right; raises `DamageError`."""
    attribute = Attribute(dtype_name, nmemb, data)
    expected = nmemb * attribute.dtype.itemsize
    if expected != len(data):
        raise DamageError(
            "%d items of type '%s' have %d bytes, found %d"
            % (nmemb, dtype_name, expected, len(data))
        )
    return attribute


def _shown(text: bytes) -> str:
    return text[:20].decode("utf-8", "replace")


def humane(attribute: Attribute) -> bytes:
    """Return the text for people as the original makes it."""
    if len(attribute.data) > MAX_SHOWN:
        return b"... (Too Long) "
    name = attribute.dtype_name
    if name.lstrip("<>|=") in ("a1", "S1"):
        text = attribute.data.split(b"\0")[0]
        first, newline, _ = text.partition(b"\n")
        return first + b"..." if newline else first
    show = FORMATS.get(name.lstrip("<>|="))
    if show is None:
        return b" ".join([("<%s>" % name).encode("ascii")] * attribute.nmemb)
    return " ".join(map(show, attribute.array.tolist())).encode("ascii")


def _complex(value: complex) -> str:
    return "%g+%gI" % (value.real, value.imag)


# How the original shows a value. Other types are shown by their name.
FORMATS: dict[str, Any] = {
    "b1": lambda value: "%d" % value,
    "i4": lambda value: "%d" % value,
    "i8": lambda value: "%d" % value,
    "u4": lambda value: "%d" % value,
    "u8": lambda value: "%d" % value,
    "f4": lambda value: "%g" % value,
    "f8": lambda value: "%g" % value,
    "c8": _complex,
    "c16": _complex,
}


# The legacy file attr, which is only read


def decode_legacy(data: bytes) -> Attributes:
    """Return the attributes of a legacy file ``attr``; raises `DamageError`."""
    found: Attributes = {}
    position = 0
    while position < len(data):
        if position + _LEGACY.size > len(data):
            raise DamageError("a record ends too early", offset=position)
        nmemb, length, raw_name = _LEGACY.unpack_from(data, position)
        name_start = position + _LEGACY.size
        data_start = name_start + length
        if nmemb < 0 or length < 1 or data_start > len(data):
            raise DamageError("a record has impossible sizes", offset=position)
        dtype_name = raw_name.split(b"\0")[0].decode("ascii", "replace")
        stop = data_start + nmemb * attribute_dtype(dtype_name).itemsize
        if stop > len(data):
            raise DamageError("a value ends too early", offset=position)
        name = data[name_start:data_start]
        if _BAD_NAME.search(name):
            raise DamageError("a name has blanks: %r" % name[:20], offset=position)
        found[name] = _checked(dtype_name, nmemb, data[data_start:stop])
        position = stop
    return found
