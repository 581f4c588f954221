"""The documents of Zarr format 3, ``zarr.json``: of arrays, and of groups.

::

    {"zarr_format": 3, "node_type": "array", "shape": [...], "data_type": ...,
     "chunk_grid":         regular, one chunk of the grid is a shard
     "chunk_key_encoding": default, "/"
     "fill_value": ..., "attributes": {...}, "dimension_names": [...],
     "codecs": [sharding_indexed: inner chunks; bytes, blosc, crc32c]}

Text of variable length has the codec vlen-utf8 in place of bytes.

JSON values to objects and back, no files. Keys of a document that are unknown here are
kept when it is encoded again. `decode_array` accepts only arrays of this structure,
whoever wrote them: zarr-python reads all others.
"""

from __future__ import annotations

import base64
import json
import marshal
import math
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy

from .._types import Json, JsonObject
from ..constants import MAX_BUFFERSIZE, MAX_TYPESIZE
from ..defaults import DEFAULT_CLEVEL, DEFAULT_CNAME, DEFAULT_SHUFFLE
from ..exceptions import (
    FormatError,
    Unsupported,
    UsageError,
    UsageTypeError,
    UsageValueError,
)
from ..log import counted
from ..serializers import check_names, encode_document, json_in_lines
from .array_metadata import MAX_NBYTES, are_lengths, check_itemsize, is_whole
from .dtypes import DType, refuse, shown
from .grid import MAX_SLOTS, Grid
from .other_formats import ZARR_JSON as ZARR_JSON
from .text import TEXT, empty_item, least_nbytes

# The attribute of a group that makes it a table.
COLUMN_ORDER = "column-order"
# What zarr-python writes to the copy of a group in the document of another group.
NO_COPIES = {"kind": "inline", "must_understand": False, "metadata": {}}
# The file with copies of the documents of all members in format 2.
OLD_CONSOLIDATED = ".zmetadata"
# Data types that every reader of Zarr format 3 knows, by kind and item size.
DATA_TYPES = {
    **{("i", n): "int%d" % (8 * n) for n in (1, 2, 4, 8)},
    **{("u", n): "uint%d" % (8 * n) for n in (1, 2, 4, 8)},
    **{("f", n): "float%d" % (8 * n) for n in (2, 4, 8)},
    **{("c", n): "complex%d" % (8 * n) for n in (8, 16)},
    ("b", 1): "bool",
}
DTYPES = {name: "%s%d" % key for key, name in DATA_TYPES.items()}
# Extensions, which zarr-python knows, by kind: the data type, and its bytes per item.
TEXT_TYPES = {"S": ("null_terminated_bytes", 1), "U": ("fixed_length_utf32", 4)}
TIME_TYPES = {"M": "numpy.datetime64", "m": "numpy.timedelta64"}
# The fill value of netCDF for floats; items of other kinds for `unlikely_item`.
NETCDF_FILL = float.fromhex("0x1.ep+122")
UNLIKELY = {"b": True, "M": "NaT", "m": "NaT", "S": b"\x81"}
UNLIKELY |= dict.fromkeys("UO", "\ufffd")
# Text of variable length: the data type, and the codec in place of the one of bytes.
STRING, VLEN_UTF8 = "string", "vlen-utf8"
# Filters of Blosc, by number.
SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")
CRC32C = {"name": "crc32c"}
# Byte orders, by their names in the codec of bytes.
ENDIANS = {"little": "<", "big": ">"}
INDEX_CODECS = [{"name": "bytes", "configuration": {"endian": "little"}}, CRC32C]
# The attribute with the value of missing items. xarray stores a float as the bytes of a
# double in base64.
MASK = "_FillValue"
# What values can have that JSON of other languages refuses.
HALF_PAIR, NO_NUMBER = "half of a surrogate pair", "NaN or Infinity"
# Start and end of each error for an array that only other programs read.
NOT_OPENED = "this library does not open this Zarr array: "
READ_OTHERWISE = ". zarr-python may read it; 'blpk convert' copies it into a dataset"
# Keys of the document of an array. A reader must refuse others, unless they say that
# it need not understand them.
ARRAY_KEYS = frozenset(
    (
        *("zarr_format", "node_type", "shape", "data_type", "chunk_grid"),
        *("chunk_key_encoding", "fill_value", "codecs", "attributes"),
        *("dimension_names", "storage_transformers"),
    )
)
# The key whose object has what is ours alone. The key there of the value of new items,
# if all items are written: then the fill value is one that data do not have, unless the
# user gave one.
OWN, NEW_ITEMS = "bloscpack", "new-items"
# Keys of `ARRAY_KEYS` that say how items are stored.
STORAGE_KEYS = "data_type", "chunk_grid", "chunk_key_encoding", "fill_value", "codecs"
# Maximum number of values of these keys whose meaning is kept, and of bytes of one of
# them.
MAX_DECODED = 256
MAX_STATED = 4096


@dataclass(eq=False)
class ArrayDocument:
    """The document of an array.

    Attributes
    ----------
    dtype
        The dtype of the array, including its byte order.
    grid
        How the array is cut into inner chunks and shards.
    fill_value
        The value of items that are not stored, as a scalar of NumPy.
    attributes
        Those of the user.
    dimension_names
        A name or None for each axis; None for no names.
    blosc
        Settings of Blosc for new chunks: ``cname``, ``clevel``, ``shuffle`` (0 to 2),
        ``typesize`` and ``blocksize``, which is 0 if Blosc chooses it.
    others
        Keys that are unknown here, and `OWN`, and their values.
    new_items
        The value of new items when the array is enlarged; None if it is not decoded.
    """

    dtype: DType
    grid: Grid
    fill_value: object = None
    attributes: JsonObject = field(default_factory=dict)
    dimension_names: Sequence[str | None] | None = None
    blosc: Mapping[str, Any] = field(default_factory=dict)
    others: JsonObject = field(default_factory=dict)
    new_items: object = None

    def __post_init__(self) -> None:
        if self.fill_value is None:
            self.fill_value = zero(self.dtype)
        typesize = self.dtype.itemsize
        if self.dtype == TEXT or not 1 <= typesize <= MAX_TYPESIZE:
            typesize = 1
        self.blosc = {
            "cname": DEFAULT_CNAME,
            "clevel": DEFAULT_CLEVEL,
            "shuffle": int(DEFAULT_SHUFFLE),
            "typesize": typesize,
            "blocksize": 0,
            **self.blosc,
        }

    def document(self) -> JsonObject:
        """Return the document."""
        sharding = {
            "chunk_shape": list(self.grid.chunk),
            "codecs": [bytes_codec(self.dtype), blosc_codec(**self.blosc), CRC32C],
            "index_codecs": INDEX_CODECS,
            "index_location": "end",
        }
        document = array_document(
            self.grid.shape,
            encode_data_type(self.dtype),
            self.grid.shard,
            encode_fill_value(self.dtype, self.fill_value),
            [{"name": "sharding_indexed", "configuration": sharding}],
            self.attributes,
            self.dimension_names,
        )
        return document | self.others


def array_document(
    shape: Sequence[int],
    data_type: Json,
    chunk_shape: Sequence[int],
    fill_value: Json,
    codecs: list[JsonObject],
    attributes: JsonObject,
    dimension_names: Sequence[str | None] | None,
) -> JsonObject:
    """Return the document of an array whose chunks form a regular grid."""
    document: JsonObject = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": data_type,
        "chunk_grid": {
            "name": "regular",
            "configuration": {"chunk_shape": list(chunk_shape)},
        },
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": fill_value,
        "codecs": codecs,
        "attributes": attributes,
    }
    if dimension_names is not None:
        document["dimension_names"] = list(dimension_names)
    return document


def encode_json(document: JsonObject) -> bytes:
    """Return the content of ``zarr.json``; raise the errors of `encode_attributes`."""
    return encode_attributes(document.get("attributes", {}), document, indent=2)


def encode_copied(document: JsonObject) -> bytes:
    """Return the content that a document had before it was copied into another one.

    The program that has made the copy may have written it in another form. A document
    that no longer says the same has a wrong digest.
    """
    if document.get("node_type") == "group":
        others = {k: v for k, v in document.items() if v != NO_COPIES}
        document = group_document() | others
    with suppress(FormatError):
        document = decode_array(document).document()
    return json_in_lines(document).encode() + b"\n"


def encode_attributes(
    attributes: JsonObject, document: Json = None, indent: int | None = None
) -> bytes:
    """Return a document with attributes, or these alone, as lines of JSON.

    Numbers and arrays of NumPy become those of Python. The dialect is that of Python's
    module: it has words for numbers that JSON lacks, such as ``NaN``, and zarr-python
    writes them, too. Raises `UsageError` that names an attribute that is not JSON.
    """
    for name in attributes:
        if not isinstance(name, str):
            raise UsageTypeError(
                "the name of an attribute must be text, not %.200r" % (name,)
            )
    whole = attributes if document is None else document
    try:
        encoded = encode_document(whole, indent, _plain)
        check_names(attributes)
        return encoded
    except (TypeError, ValueError, RecursionError) as error:
        if document is None and len(attributes) == 1:
            kind = UsageTypeError if isinstance(error, TypeError) else UsageValueError
            too_large = isinstance(error, UsageValueError)  # by `encode_document`
            why = "can't be stored" if too_large else "must be JSON"
            raise kind(
                "the attribute '%s' %s: %s" % (*attributes, why, error)
            ) from error
        for name, value in attributes.items():
            encode_attributes({name: value})
        raise


def unusual_json(value: Json) -> str | None:
    """Return which part of a value only Python has in JSON; None if none is found."""
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False, default=_plain).encode()
    except UnicodeEncodeError:
        return HALF_PAIR
    except ValueError:
        return NO_NUMBER
    return None


def _plain(value: object) -> Json:
    """Return what JSON has for a value of NumPy."""
    if not isinstance(value, (numpy.generic, numpy.ndarray)):
        raise TypeError("found %.100r" % (value,))
    # Python has no number for a long double.
    if value.dtype.kind not in "biufUO" or value.dtype.char == "g":
        raise TypeError("found a value of the dtype '%s'" % value.dtype)
    return value.tolist()


def with_mask(
    attributes: JsonObject,
    dtype: DType,
    convert: Callable[[Any], Json],
    kinds: str = "f",
) -> JsonObject:
    """Return attributes with the number of missing items converted, if they have it.

    It is converted if the dtype is of one of the `kinds`. A value of another form than
    expected stays unchanged.
    """
    try:
        if dtype.kind in kinds:
            return {**attributes, MASK: convert(attributes[MASK])}
    except (LookupError, TypeError, ValueError, struct.error):
        pass
    return attributes


def encode_mask(value: Any) -> Json:
    """Return the number of missing items in the form of xarray.

    A float becomes a text, and a complex number a list of the texts of its two parts.
    """
    if numpy.iscomplexobj(value):
        return [encode_mask(numpy.real(value)), encode_mask(numpy.imag(value))]
    return base64.b64encode(struct.pack("<d", *numpy.ravel(value))).decode()


def decode_mask(stored: Json) -> float | complex:
    """Return the number of missing items."""
    if isinstance(stored, list):
        real, imag = map(decode_mask, stored)
        return complex(real, imag)
    value: float = struct.unpack("<d", base64.b64decode(stored, validate=True))[0]
    return value


def group_document(attributes: JsonObject | None = None) -> JsonObject:
    """Return the document of a group."""
    return {
        "zarr_format": 3,
        "node_type": "group",
        "attributes": {} if attributes is None else attributes,
    }


def zero(dtype: DType) -> Any:
    """Return the item of a dtype whose bytes are zero.

    For a time without a unit it is NaT: zarr-python has no zero of this type.
    """
    if dtype.kind in TIME_TYPES and numpy.datetime_data(dtype)[0] == "generic":
        return numpy.array("NaT", dtype)[()]
    return empty_item(dtype)


def unlikely_item(dtype: DType) -> Any:
    """Return the fill value of an array of which all items are stored.

    Other programs leave out what has the fill value. So it is one that data do not have
    in all items of a shard: for numbers of several bytes the fill value of netCDF.
    Booleans and times have no unlikely value: a lost mask hides its items, and a lost
    time is missing.
    """
    kind, size = dtype.kind, dtype.itemsize
    item: Any = NETCDF_FILL
    if kind in "iu":
        least = 2 ** (8 * size) if kind == "u" else -(2 ** (8 * size - 1))
        item = least + (1 + (size == 8)) * (1 if kind == "i" else -1)
        if size == 1:
            item = 0x81 if kind == "u" else 0x81 - 2**8
    elif kind == "f" and size == 2:
        item = 61440.0  # `NETCDF_FILL` with the largest exponent
    elif kind in UNLIKELY:
        item = UNLIKELY[kind]
    return numpy.array(item, dtype)[()]


# Data types


def encode_data_type(dtype: DType) -> Json:
    """Return the data type for a dtype; raise `UsageError` if Zarr has none."""
    name = DATA_TYPES.get((dtype.kind, dtype.itemsize))
    if name is not None:
        return name
    if dtype == TEXT:
        return STRING
    if dtype.kind in TEXT_TYPES and dtype.itemsize:
        return {
            "name": TEXT_TYPES[dtype.kind][0],
            "configuration": {"length_bytes": dtype.itemsize},
        }
    if dtype.kind in TIME_TYPES:
        unit, count = numpy.datetime_data(dtype)
        return {
            "name": TIME_TYPES[dtype.kind],
            "configuration": {"unit": unit, "scale_factor": count},
        }
    raise UsageError("Zarr has no data type for the dtype '%s'" % dtype)


def decode_data_type(stored: Json, endian: str) -> DType:
    """Return the dtype of a data type; `endian` is ``'<'`` or ``'>'``."""
    name, settings = _named(stored)
    if name == STRING:
        return TEXT
    if name in DTYPES:
        return numpy.dtype(endian + DTYPES[name])
    for kind, (text_type, unit) in TEXT_TYPES.items():
        nbytes: Any = settings.get("length_bytes")
        is_size = is_whole(nbytes, 1, 2**31 - 1) and nbytes % unit == 0
        if name == text_type and is_size:
            return numpy.dtype("%s%s%d" % (endian, kind, nbytes // unit))
    for kind, time_type in TIME_TYPES.items():
        word, count = settings.get("unit"), settings.get("scale_factor", 1)
        # A word of letters: NumPy takes other texts for the dtypes of several fields.
        is_unit = isinstance(word, str) and word.isalpha()
        if name == time_type and is_unit and is_whole(count, 1, 2**31 - 1):
            # NumPy has no fill value for a count of its generic unit.
            code = kind + "8" + "[%d%s]" % (count, word) * (word != "generic")
            try:
                return numpy.dtype(endian + code)
            except (TypeError, ValueError, OverflowError):
                break
    raise _unsupported("its data type is %s" % shown(stored))


def bytes_codec(dtype: DType) -> JsonObject:
    """Return the first codec for a dtype: ``bytes``, with the byte order if it has one.

    For text of variable length it is ``vlen-utf8``.
    """
    if dtype == TEXT:
        return {"name": VLEN_UTF8}
    if dtype.byteorder == "|" or dtype.itemsize == 1:
        return {"name": "bytes"}
    little = dtype.newbyteorder("<") == dtype
    return {"name": "bytes", "configuration": {"endian": "little" if little else "big"}}


def blosc_codec(
    typesize: int, cname: str, clevel: int, shuffle: int, blocksize: int = 0
) -> JsonObject:
    """Return the codec ``blosc`` with these settings."""
    settings = {
        "typesize": typesize,
        "cname": cname,
        "clevel": clevel,
        "shuffle": SHUFFLES[shuffle],
        "blocksize": blocksize,
    }
    return {"name": "blosc", "configuration": settings}


# Fill values


def encode_fill_value(dtype: DType, value: object) -> Json:
    """Return the spelling of a fill value; raise `UsageError` if it does not fit."""
    kind = dtype.kind
    try:
        item: Any = numpy.array(value, dtype)[()]
        if kind == "c":
            return [_encode_float(item.real), _encode_float(item.imag)]
        if kind == "f":
            return _encode_float(item)
        if kind in TIME_TYPES:
            return "NaT" if numpy.isnat(item) else int(item.astype("i8"))
        if kind == "S":
            return base64.b64encode(bytes(item)).decode("ascii")
        if kind == "O":
            item.encode("utf-8")
        return str(item) if kind in "OU" else item.item()
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise UsageValueError(
            "the fill value %.200r does not fit the dtype '%s': %s"
            % (value, dtype, error)
        ) from error


def _encode_float(item: Any) -> Json:
    value = float(item)
    if math.isfinite(value):
        return value
    if not math.isnan(value):
        return "Infinity" if value > 0 else "-Infinity"
    bits = numpy.asarray(item).astype(item.dtype.newbyteorder(">")).tobytes()
    usual = numpy.array(math.nan, item.dtype.newbyteorder(">")).tobytes()
    return "NaN" if bits == usual else "0x" + bits.hex()


def decode_fill_value(dtype: DType, stored: Json, key: str = "fill_value") -> Any:
    """Return a fill value as a scalar of NumPy; raise `FormatError` if it is wrong."""
    try:
        with numpy.errstate(over="ignore"):
            return _decode_item(dtype, stored)
    except (KeyError, TypeError, ValueError, OverflowError):
        refuse("'%s' to be an item of the dtype '%s'" % (key, dtype), stored)


def _decode_item(dtype: DType, stored: Json) -> Any:
    kind = dtype.kind
    if kind == "c":
        if not isinstance(stored, list):
            raise TypeError  # of an object, the keys would count
        real, imag = stored
        part = numpy.dtype("f%d" % (dtype.itemsize // 2))
        item = numpy.empty((), dtype)
        item.real, item.imag = _decode_float(part, real), _decode_float(part, imag)
        return item[()]
    if kind == "f":
        return _decode_float(dtype, stored)
    if kind == "S":
        stored = base64.b64decode(stored, validate=True)
    if kind in TIME_TYPES:
        number = -(2**63) if stored == "NaT" else stored
        if type(number) is not int:
            raise TypeError
        return numpy.array(number, "i8").astype(dtype)[()]
    expected: Any = {"b": bool, "S": bytes, "U": str, "O": str}.get(kind, int)
    if type(stored) is not expected:
        raise TypeError
    if kind in TEXT_TYPES and len(stored) * TEXT_TYPES[kind][1] > dtype.itemsize:
        raise ValueError  # NumPy would cut it
    if kind == "O":
        stored.encode("utf-8")
    if kind in "iu" and not numpy.iinfo(dtype).min <= stored <= numpy.iinfo(dtype).max:
        raise OverflowError  # NumPy 1 would return another number
    return numpy.array(stored, dtype)[()]


def _decode_float(dtype: DType, stored: Json) -> Any:
    if isinstance(stored, str) and stored.startswith("0x"):
        if len(stored) != 2 + 2 * dtype.itemsize:
            raise ValueError  # NumPy would take the first bytes
        bits = bytes.fromhex(stored[2:])
        return numpy.frombuffer(bits, dtype.newbyteorder(">"), 1)[0].astype(dtype)
    special = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
    if isinstance(stored, str):
        stored = special[stored]
    if type(stored) not in (int, float):
        raise TypeError
    # By text: `float` refuses large ints.
    return numpy.array(float(str(stored))).astype(dtype)[()]


# Decoding


def _unsupported(reason: str) -> Unsupported:
    return Unsupported(NOT_OPENED + reason + READ_OTHERWISE)


def _named(stored: Json) -> tuple[str | None, JsonObject]:
    """Return name and configuration of a codec or another extension."""
    if isinstance(stored, str):
        return stored, {}
    if not isinstance(stored, dict) or not isinstance(stored.get("name"), str):
        return None, {}
    configuration = stored.get("configuration", {})
    if not isinstance(configuration, dict):
        return None, {}
    return stored["name"], configuration


def _lengths(stored: Json, key: str, least: int = 1) -> tuple[int, ...]:
    if not are_lengths(stored, least):
        refuse("'%s' to be a list of lengths" % key, stored)
    return tuple(stored)


def decode_array(document: JsonObject) -> ArrayDocument:
    """Return the document of an array.

    Raises `FormatError` if it is damaged, and the subclass `Unsupported` if this
    library does not read its structure.
    """
    is_format_3 = is_whole(document.get("zarr_format"), 3, 3)
    if not is_format_3 or document.get("node_type") != "array":
        refuse(
            "the document of a Zarr array of format 3",
            {key: document.get(key) for key in ("zarr_format", "node_type")},
        )
    if document.get("storage_transformers", []) != []:
        raise _unsupported("it has storage transformers")
    others = {k: v for k, v in document.items() if k not in ARRAY_KEYS}
    for key, value in others.items():
        if not isinstance(value, dict) or value.get("must_understand") is not False:
            raise _unsupported("its metadata have the key '%s'" % key)
    shape = _lengths(document.get("shape"), "shape", 0)
    stored = _decode_storage(document)
    chunk, per_shard, dtype = stored["chunk"], stored["per_shard"], stored["dtype"]
    if len(chunk) != len(shape):
        refuse("chunks and shards of " + counted(len(shape), "axis"), [*chunk])
    nbytes = math.prod([n or 1 for n in shape]) * dtype.itemsize
    if nbytes > MAX_NBYTES:
        refuse("'shape' to be at most %d bytes" % MAX_NBYTES, list(shape))
    cut = Grid(shape, chunk, per_shard)
    if not cut.is_rows and cut.slots > MAX_SLOTS:
        raise _unsupported("a shard has more than %d chunks" % MAX_SLOTS)
    names = document.get("dimension_names")
    if names is not None and (
        not isinstance(names, list)
        or len(names) != len(shape)
        or not {type(name) for name in names} <= {str, type(None)}
    ):
        refuse("'dimension_names' for " + counted(len(shape), "axis"), names)
    attributes = document.get("attributes", {})
    if not isinstance(attributes, dict):
        refuse("'attributes' to be an object in JSON", attributes)
    return ArrayDocument(
        dtype,
        cut,
        fill_value=stored["fill_value"],
        attributes=attributes,
        dimension_names=names,
        blosc={**stored["blosc"]},
        others=others,
        new_items=stored["new_items"],
    )


# The meaning of these values by their bytes: the arrays of a program have few
# different settings, and decoding them takes a third of the time of opening an array.
_decoded: dict[bytes, dict[str, Any]] = {}


def _decode_storage(document: JsonObject) -> dict[str, Any]:
    """Return what the keys of a document mean that say how items are stored."""
    own = document.get(OWN)
    new = [own[NEW_ITEMS]] if isinstance(own, dict) and NEW_ITEMS in own else []
    try:
        # Equal values of other types, such as 1 and true, have other bytes.
        stated = marshal.dumps([*map(document.get, STORAGE_KEYS), new], 2)
    except ValueError:  # they are nested too deeply
        return _decode_new(document, new)
    decoded = _decoded.get(stated)
    if decoded is None:
        decoded = _decode_new(document, new)
        if len(_decoded) >= MAX_DECODED:
            _decoded.clear()
        if len(stated) <= MAX_STATED:
            _decoded[stated] = decoded
    return decoded


def _decode_new(document: JsonObject, new: list[Json]) -> dict[str, Any]:
    name, settings = _named(document.get("chunk_grid"))
    if name != "regular":
        raise _unsupported("its chunk grid is not regular")
    shard = _lengths(settings.get("chunk_shape"), "chunk_shape")
    name, settings = _named(document.get("chunk_key_encoding"))
    if (name, settings.get("separator", "/")) != ("default", "/"):
        raise _unsupported("its files have other names than 'c/0/0'")
    sharding = _decode_sharding(document.get("codecs"))
    chunk = _lengths(sharding.get("chunk_shape"), "chunk_shape")
    if len(shard) != len(chunk):
        refuse("chunks and shards of the same number of axes", [shard, chunk])
    if any(n % m for n, m in zip(shard, chunk, strict=True)):
        raise _unsupported("shards of shape %s are no multiple of %s" % (shard, chunk))
    is_text = _named(document.get("data_type"))[0] == STRING
    endian, blosc = _decode_inner(sharding.get("codecs"), is_text)
    dtype = decode_data_type(document.get("data_type"), endian)
    check_itemsize(dtype)
    count = math.prod(chunk)
    nbytes = least_nbytes(count) if is_text else count * dtype.itemsize
    if nbytes > MAX_BUFFERSIZE:
        raise _unsupported("its chunks have more than %d bytes" % MAX_BUFFERSIZE)
    fill_value = decode_fill_value(dtype, document.get("fill_value"))
    new_items = [decode_fill_value(dtype, item, NEW_ITEMS) for item in new]
    return {
        "chunk": chunk,
        "per_shard": tuple(n // m for n, m in zip(shard, chunk, strict=True)),
        "dtype": dtype,
        "fill_value": fill_value,
        "new_items": [*new_items, fill_value][0],
        "blosc": blosc,
    }


def why_not_native(document: JsonObject) -> str | None:
    """Return why an array is not read by this library; None if it is, or is damaged."""
    try:
        decode_array(document)
    except Unsupported as error:
        return str(error).removeprefix(NOT_OPENED).removesuffix(READ_OTHERWISE)
    except FormatError:
        pass
    return None


def is_unsharded(document: JsonObject) -> bool:
    """Return whether the first codec of an array is `bytes`: there are no shards then.

    Damage never turns one of our arrays into an array without shards.
    """
    codecs = document.get("codecs")
    first = codecs[0] if isinstance(codecs, list) and codecs else None
    return "bytes" in (first, first.get("name") if isinstance(first, dict) else None)


def _decode_sharding(codecs: Json) -> JsonObject:
    """Return the configuration of the shards, whose index must be as in ours."""
    given = codecs if isinstance(codecs, list) else []
    name, sharding = _named(given[0] if len(given) == 1 else None)
    if name != "sharding_indexed":
        raise _unsupported("it has other codecs than 'sharding_indexed'")
    stored: Json = sharding.get("index_codecs", INDEX_CODECS)
    index = [_named(codec) for codec in (stored if isinstance(stored, list) else ())]
    is_ours = [name for name, _ in index] == ["bytes", "crc32c"]
    is_ours = is_ours and index[0][1].get("endian") == "little"
    if not is_ours or sharding.get("index_location", "end") != "end":
        raise _unsupported("the index of its shards has another form than ours")
    return sharding


def _decode_inner(codecs: Json, is_text: bool) -> tuple[str, dict[str, Any]]:
    """Return byte order and settings of Blosc, which are for new chunks only."""
    inner = [_named(codec) for codec in (codecs if isinstance(codecs, list) else ())]
    names = [name for name, _ in inner]
    if names != [VLEN_UTF8 if is_text else "bytes", "blosc", "crc32c"]:
        text = shown(", ".join(map(str, names)))
        raise _unsupported("its chunks have the codecs %s" % text)
    word, stored = inner[0][1].get("endian", sys.byteorder), inner[1][1]
    if word not in tuple(ENDIANS):  # a list has no hash
        raise _unsupported("its items have the byte order %s" % shown(word))
    blosc: dict[str, Any] = {}
    if isinstance(stored.get("cname"), str):
        blosc["cname"] = stored["cname"]
    if is_whole(stored.get("clevel"), 0, 9):
        blosc["clevel"] = stored["clevel"]
    if stored.get("shuffle") in SHUFFLES:
        blosc["shuffle"] = SHUFFLES.index(stored["shuffle"])
    if is_whole(stored.get("typesize"), 1, 255):
        blosc["typesize"] = stored["typesize"]
    if is_whole(stored.get("blocksize"), 0, MAX_BUFFERSIZE):
        blosc["blocksize"] = stored["blocksize"]
    return ENDIANS[word], blosc
