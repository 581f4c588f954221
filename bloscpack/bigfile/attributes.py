"""The attributes of a block: a mapping, and the files ``attr-v2`` and ``attr``.

``attr-v2`` is text, and ``attr`` has binary records. The hexadecimal digits alone carry
a value; the text behind ``#HUMANE`` is made for people, letter by letter like the
original makes it, and never read.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import suppress
from typing import Any, NamedTuple

import numpy

from .._format.dtypes import Array, DType
from .._storage.base import naming_errors
from ..exceptions import DamageError, UsageTypeError, UsageValueError
from ..log import counted
from .header import ATTRIBUTE_NAME, MAX_NAME, attribute_dtype, name_of
from .tree import ATTRIBUTES, LEGACY, Tree, locked_folder

# The type of text: its items are bytes of UTF-8.
TEXT = "a"
# Values of more bytes than this are not shown as text.
MAX_SHOWN = 128
# What a NUL or a character of a line's structure would break.
_BAD_NAME = re.compile(rb"[\x00-\x20\x7f]")
# A line that is not blank, with its first four fields.
_LINE = re.compile(
    rb"([^ \t\r\n]+)(?:[ \t\r]+([^ \t\r\n]+)(?:[ \t\r]+([^ \t\r\n]+)"
    rb"(?:[ \t\r]+([^ \t\r\n]+))?)?)?[^\n]*"
)
_LEGACY = struct.Struct("=ii8s")


class Attribute(NamedTuple):
    """A value as it is stored: name of its type, number of items, and their bytes."""

    dtype_name: str
    nmemb: int
    data: bytes

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


# Attributes by the bytes of their name.
Attributes = dict[bytes, Attribute]


# Values


def value_of(attribute: Attribute) -> Any:
    """Return the value of an attribute: text, a list of texts, or an array."""
    if attribute.is_text:
        return attribute.data.decode("utf-8", "surrogateescape")
    items = attribute.array
    if items.dtype.kind != "S":
        return items
    return [item.decode("utf-8", "surrogateescape") for item in items.tolist()]


def attribute_of(name: str, value: object) -> Attribute:
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
    if len(dtype_name) > MAX_NAME or not ATTRIBUTE_NAME.fullmatch(dtype_name):
        raise UsageTypeError(
            "attribute '%s' can't have the dtype '%s'" % (name, array.dtype)
        )
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
    for name, (dtype_name, nmemb, data) in sorted(attributes.items()):
        fields = " %s %d %s #HUMANE [ " % (dtype_name, nmemb, data.hex().upper())
        shown = humane(attributes[name])
        lines.append(name + fields.encode("ascii") + shown + b" ]\n")
    return b"".join(lines)


def decode(data: bytes) -> Attributes:
    """Return the attributes of ``attr-v2``; raises `DamageError` or `Unsupported`."""
    attributes: Attributes = {}
    for line in _LINE.finditer(data):
        try:
            if None in line.groups():
                raise DamageError("expected name, type, count and value")
            name, dtype_name, count, digits = line.groups()
            if re.fullmatch(rb"[0-9]{1,18}", count) is None:
                shown = count[:20].decode("utf-8", "replace")
                raise DamageError("expected a count, found '%s'" % shown)
            try:
                value = bytes.fromhex(digits.decode("ascii"))
            except ValueError as error:
                raise DamageError("the value is not hexadecimal") from error
            text = dtype_name.decode("ascii", "replace")
            attribute = Attribute(text, int(count), value)
            expected = attribute.nmemb * attribute.dtype.itemsize
            if expected != len(value):
                items, nbytes = counted(int(count), "item"), counted(expected, "byte")
                told = items, text, nbytes, len(value)
                raise DamageError("expected %s of type '%s' in %s, found %d" % told)
        except DamageError as error:
            number = data.count(b"\n", 0, line.start()) + 1
            raise DamageError("line %d: %s" % (number, error)) from error
        attributes[name] = attribute
    return attributes


def humane(attribute: Attribute) -> bytes:
    """Return the text for people as the original makes it."""
    if len(attribute.data) > MAX_SHOWN:
        return b"... (Too Long) "
    name = attribute.dtype_name
    if name.lstrip("<>|=") in ("a1", "S1"):
        first, newline, _ = attribute.data.split(b"\0")[0].partition(b"\n")
        return first + b"..." if newline else first
    show = FORMATS.get(name.lstrip("<>|="))
    if show is None:
        return b" ".join([("<%s>" % name).encode("ascii")] * attribute.nmemb)
    return " ".join(map(show, attribute.array.tolist())).encode("ascii")


# How the original shows a value. Other types are shown by their name.
FORMATS: dict[str, Callable[[Any], str]] = {
    **dict.fromkeys(("b1", "i4", "i8", "u4", "u8"), "%d".__mod__),
    **dict.fromkeys(("f4", "f8"), "%g".__mod__),
    **dict.fromkeys(("c8", "c16"), lambda value: "%g+%gI" % (value.real, value.imag)),
}


# The legacy file attr, which is only read


def decode_legacy(data: bytes) -> Attributes:
    """Return the attributes of a legacy file ``attr``; raises `DamageError`."""
    attributes: Attributes = {}
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
        attributes[name] = Attribute(dtype_name, nmemb, data[data_start:stop])
        position = stop
    return attributes


# All attributes of a block


def load(files: Mapping[str, bytes], folder: str = "") -> Attributes:
    """Return the attributes in files with these names.

    Raises `FormatError`, whose ``filename`` is the name in the folder.
    """
    attributes: Attributes = {}
    for name, decode_file in ((LEGACY, decode_legacy), (ATTRIBUTES, decode)):
        with naming_errors(os.path.join(folder, name)):
            attributes.update(decode_file(files.get(name, b"")))
    return attributes


def files_of(tree: Tree, folder: str) -> dict[str, bytes]:
    """Return the files of attributes in a folder of a tree."""
    files = {}
    for name in (LEGACY, ATTRIBUTES):
        with suppress(FileNotFoundError):
            files[name] = tree.read_text(os.path.join(folder, name))
    return files


class AttributeSet(MutableMapping[str, Any]):
    """The attributes of a block, a group or a tree, sorted by the bytes of the name.

    A change is on the disk when the call returns, as a whole. Other processes may
    change other attributes at the same time.

    Text is returned as ``str``, an array of strings as a list, and everything else as
    an array with one axis, so a number is an array of one item. Text, bytes, numbers
    and arrays can be stored. A matrix loses its shape.
    """

    def __init__(self, tree: Tree, folder: str) -> None:
        self._tree = tree
        self._folder = folder
        # The state of the files, and the attributes in them.
        self._known: tuple[object, Attributes] = (None, {})

    def _load(self) -> Attributes:
        """Return all attributes, from the files only if they have changed."""
        states: list[object] = []
        for name in (LEGACY, ATTRIBUTES):
            with suppress(FileNotFoundError):
                status = os.stat(os.path.join(self._folder, name))
                states.append((name, status.st_ino, status.st_size, status.st_mtime_ns))
        known = self._known
        if states != known[0]:
            known = self._known = states, self._read()
        return known[1]

    def _read(self) -> Attributes:
        """Return all attributes in the files."""
        return load(files_of(self._tree, self._folder), self._folder)

    def _change(self, removed: list[bytes], added: Attributes) -> None:
        """Remove and add attributes in one step."""
        with locked_folder(self._folder):
            attributes = self._read()
            for name in removed:
                if attributes.pop(name, None) is None:  # another thread has removed it
                    raise KeyError(name.decode("utf-8", "surrogateescape"))
            attributes.update(added)
            path = os.path.join(self._folder, ATTRIBUTES)
            self._tree.replace_text(path, encode(attributes))
            if removed:  # the legacy file would bring them back
                self._tree.remove_file(os.path.join(self._folder, LEGACY))
            self._known = (None, {})

    def raw(self, name: str) -> Attribute:
        """Return an attribute as it is stored: type, number of items, bytes."""
        attribute = self._load().get(encoded_text(name))
        if attribute is None:
            raise KeyError(name)
        return attribute

    def __getitem__(self, name: str) -> Any:
        return value_of(self.raw(name))

    def __setitem__(self, name: str, value: object) -> None:
        self.update({name: value})

    def __delitem__(self, name: str) -> None:
        self.raw(name)
        self._change([encoded_text(name)], {})

    def update(self, *others: object, **named: object) -> None:
        """Set several attributes in one step."""
        values = dict(*others, **named)
        self._change(
            [], {encoded_name(n): attribute_of(n, v) for n, v in values.items()}
        )

    def __iter__(self) -> Iterator[str]:
        for name in sorted(self._load()):
            yield name.decode("utf-8", "surrogateescape")

    def __len__(self) -> int:
        return len(self._load())

    def __repr__(self) -> str:
        return "AttributeSet(%r)" % dict(self)

    def copy_from(self, other: AttributeSet) -> None:
        """Add all attributes of another block, with their types."""
        self._change([], other._load())
