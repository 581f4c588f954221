"""The attributes of a block as JSON, and back.

Pure functions. A value is a number or a text for a single item, and a list for several
items. JSON has fewer types than a tree, so the values come with a *record*: the type of
each attribute, and the bytes of a file of attributes that `decode` could not make again
from these values.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING

import numpy

from ..exceptions import FormatError, UsageError, UsageTypeError
from . import attributes
from .attributes import TEXT, Attribute, load
from .header import attribute_dtype
from .tree import ATTRIBUTES, LEGACY

if TYPE_CHECKING:
    from ..serializers import Json, JsonObject
    from .attributes import Attributes

# The bytes of files by their name.
Files = dict[str, bytes]

# The keys of a record.
TYPES, FILES = "types", "files"
# The beginning of a text that represents another value, a convention of nbodykit.
JSON_TEXT = "json://"


def encode(files: Mapping[str, bytes], is_block: bool) -> tuple[JsonObject, JsonObject]:
    """Return the values of all attributes by name, and the record."""
    found = load(files)
    values, types = _plain(found)
    record: JsonObject = {TYPES: types} if types else {}
    if _files_for(values, types, is_block) != files:
        record[FILES] = {
            name: base64.b64encode(data).decode("ascii") for name, data in files.items()
        }
    return values, record


def decode(values: JsonObject, record: JsonObject, is_block: bool) -> Files:
    """Return the files for values and a record, which may not belong to each other.

    Raises `UsageError` for a name that no attribute can have.
    """
    kept = record.get(FILES)
    if isinstance(kept, dict):
        try:
            files = {name: base64.b64decode(text) for name, text in kept.items()}
            known = files.keys() <= {LEGACY, ATTRIBUTES}
            if known and _plain(load(files))[0] == values:
                return files
        except (FormatError, TypeError, ValueError):
            pass  # somebody has changed the record
    types = record.get(TYPES)
    return _files_for(values, types if isinstance(types, dict) else {}, is_block)


def _files_for(values: JsonObject, types: JsonObject, is_block: bool) -> Files:
    found = {
        attributes.encoded_name(name): _attribute(name, value, types.get(name))
        for name, value in values.items()
    }
    return {ATTRIBUTES: attributes.encode(found)} if found or is_block else {}


def _plain(found: Attributes) -> tuple[JsonObject, JsonObject]:
    """Return values and types by name, without names that JSON can't represent."""
    values: JsonObject = {}
    types: JsonObject = {}
    for encoded, attribute in found.items():
        try:
            name = encoded.decode("utf-8")
        except UnicodeDecodeError:
            continue
        values[name], types[name] = plain_value(attribute), attribute.dtype_name
    return values, types


# A value


def plain_value(attribute: Attribute) -> Json:
    """Return the value of an attribute for JSON."""
    dtype = attribute.dtype
    if attribute.is_text or dtype.str[1:] == "S1":
        return attribute.data.rstrip(b"\0").decode("utf-8", "replace")
    if dtype.kind == "S":
        found = attribute.array.tolist()
        return [item.rstrip(b"\0").decode("utf-8", "replace") for item in found]
    if dtype.kind in "mM":
        items = attribute.array.view(dtype.str[0] + "i8").tolist()
    elif dtype.kind == "c":
        items = [[_finite(c.real), _finite(c.imag)] for c in attribute.array.tolist()]
    elif dtype.kind == "f" and dtype.itemsize > 8:
        items = list(map(str, attribute.array))
    else:
        items = list(map(_finite, attribute.array.tolist()))
    return items[0] if len(items) == 1 else items


def _finite(value: Json) -> Json:
    """Return a number, as text if JSON does not have it."""
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return value


def _attribute(name: str, value: Json, dtype_name: Json) -> Attribute:
    """Return a value as an attribute of this type, or of another one that fits."""
    if isinstance(dtype_name, str):
        try:
            return _typed(value, dtype_name)
        except (FormatError, TypeError, ValueError, OverflowError):
            pass  # somebody has changed the value
    try:
        if _is_simple(value):
            return attributes.attribute_of(name, value)
    except (UsageError, UnicodeEncodeError):  # half of a surrogate pair
        pass
    return attributes.attribute_of(name, JSON_TEXT + json.dumps(value))


def _is_simple(value: Json) -> bool:
    """Return whether a value is a number, a text, or a list of one of the two."""
    items = value if isinstance(value, list) else [value]
    return all(isinstance(item, (int, float)) for item in items) or all(
        isinstance(item, str) for item in items
    )


def _typed(value: Json, dtype_name: str) -> Attribute:
    dtype = attribute_dtype(dtype_name)
    items = value if isinstance(value, list) else [value]
    if dtype_name.lstrip("<>|=")[0] == TEXT or dtype.str[1:] == "S1":
        if not isinstance(value, str):
            raise UsageTypeError("expected a text, found %r" % (value,))
        # C programs store the NUL at the end of a text, too.
        ends = dtype_name.lstrip("<>|=")[0] != TEXT
        data = value.encode("utf-8") + b"\0" * (ends or not value)
        return Attribute(dtype_name, len(data), data)
    if dtype.kind == "S":
        encoded = [str.encode(item, "utf-8") for item in items]
        if max(map(len, encoded)) > dtype.itemsize:
            raise UsageTypeError("a text does not fit the type '%s'" % dtype_name)
        array = numpy.array(encoded, dtype)
    elif dtype.kind in "mM":
        array = numpy.array(items, dtype.str[0] + "i8").view(dtype)
    elif dtype.kind == "c":
        pairs = [float(part) for part in numpy.ravel(numpy.array(items, object))]
        part = numpy.dtype("%sf%d" % (dtype.str[0], dtype.itemsize // 2))
        array = numpy.array(pairs).astype(part).view(dtype)
    elif dtype.kind == "f" and dtype.itemsize <= 8:
        array = numpy.array([float(item) for item in items]).astype(dtype)
    else:
        array = numpy.array(items).astype(dtype)
        if dtype.kind in "iub" and array.tolist() != items:
            raise UsageTypeError("%r does not fit the type '%s'" % (value, dtype_name))
    if not array.size:
        raise UsageTypeError("an attribute can't be empty")
    return Attribute(dtype_name, array.size, array.tobytes())
