"""The keys and documents of Zarr arrays whose chunks are references to other files.

Objects to JSON values, no files: `bloscpack.references` fills a `Part` for each file.
"""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

from ..constants import MAX_TYPESIZE
from ..exceptions import UsageError
from .codecs import SHUFFLE
from .dtypes import DType
from .zarr_metadata import (
    DATA_TYPES,
    ZARR_JSON,
    array_document,
    blosc_codec,
    bytes_codec,
    encode_fill_value,
    group_document,
)

if TYPE_CHECKING:
    from ..serializers import Json, JsonObject


# The checksums that a codec of Zarr verifies: its configuration in format 2, and its
# name in format 3.
CHECKSUM_CODECS = {
    "adler32": ({"id": "adler32", "location": "end"}, "numcodecs.adler32"),
    "crc32": ({"id": "crc32", "location": "end"}, "numcodecs.crc32"),
    "crc32c": ({"id": "crc32c", "location": "end"}, "crc32c"),
}
# The codec of the chunks in format 2: its settings have no effect on readers.
BLOSC = {"id": "blosc", "cname": "lz4", "clevel": 7, "shuffle": 1, "blocksize": 0}


class Part:
    """What one file contributes to an array.

    ``path`` is its path or URL, and ``shown_name`` the same for messages.
    ``dtype``, ``shape``, ``order`` and ``chunk_shape`` are those of its array.
    ``chunks`` has a reference for each chunk, in the order of the file. ``full`` says
    that its last chunk has full size.
    """

    path: str
    shown_name: str
    dtype: DType
    shape: tuple[int, ...]
    order: str
    chunk_shape: tuple[int, ...]
    checksum: str
    blosc: JsonObject
    dims: list[str]
    attributes: JsonObject
    chunks: list[Json]
    full: bool


def unfit(part: Part, why: str) -> UsageError:
    """Return the error that a file does not qualify."""
    return UsageError("'%s' can't be referenced: %s" % (part.shown_name, why))


def _keys(part: Part) -> list[tuple[int, ...]]:
    """Return the place of each chunk in the grid, in the order of the file."""
    counts = [
        -(-n // size) for n, size in zip(part.shape, part.chunk_shape, strict=True)
    ]
    if part.order == "F":
        places = itertools.product(*map(range, counts[::-1]))
        return [place[::-1] for place in places]
    return list(itertools.product(*map(range, counts)))


class Format2:
    """Keys and documents of Zarr format 2."""

    @staticmethod
    def group(path: str, attributes: JsonObject) -> JsonObject:
        """Return the documents of a group."""
        refs: JsonObject = {path + ".zgroup": json.dumps({"zarr_format": 2})}
        if attributes:
            refs[path + ".zattrs"] = json.dumps(attributes)
        return refs

    @staticmethod
    def array(path: str, part: Part) -> JsonObject:
        """Return the documents of an array, and its chunks."""
        codec = CHECKSUM_CODECS[part.checksum][0] if part.checksum != "None" else None
        document = {
            "zarr_format": 2,
            "shape": part.shape,
            "chunks": part.chunk_shape,
            "dtype": part.dtype.str if part.dtype.names is None else part.dtype.descr,
            # Decoding starts with the compressor: it verifies and removes the digest.
            "compressor": part.blosc if codec is None else codec,
            "filters": None if codec is None else [part.blosc],
            "fill_value": None,
            "order": part.order,
        }
        attributes = {**part.attributes, "_ARRAY_DIMENSIONS": part.dims}
        front = path + "/" if path else ""
        refs: JsonObject = {
            front + ".zarray": json.dumps(document),
            front + ".zattrs": json.dumps(attributes),
        }
        for place, chunk in zip(_keys(part), part.chunks, strict=True):
            refs[front + (".".join(map(str, place)) or "0")] = chunk
        return refs


class Format3:
    """Keys and documents of Zarr format 3."""

    @staticmethod
    def group(path: str, attributes: JsonObject) -> JsonObject:
        """Return the document of a group."""
        return {path + ZARR_JSON: json.dumps(group_document(attributes))}

    @staticmethod
    def array(path: str, part: Part) -> JsonObject:
        """Return the document of an array, and its chunks."""
        document = array_document(
            part.shape,
            _data_type(part),
            part.chunk_shape,
            encode_fill_value(part.dtype, 0),
            _codecs(part),
            part.attributes,
            part.dims,
        )
        front = path + "/" if path else ""
        refs: JsonObject = {front + ZARR_JSON: json.dumps(document)}
        for place, chunk in zip(_keys(part), part.chunks, strict=True):
            refs["/".join((front + "c", *map(str, place)))] = chunk
        return refs


def _data_type(part: Part) -> str:
    dtype = part.dtype
    try:
        return DATA_TYPES[dtype.kind, dtype.itemsize]
    except KeyError:
        raise unfit(
            part,
            "Zarr format 3 has no stable data type for the dtype %s: use format 2"
            % dtype,
        ) from None


def _codecs(part: Part) -> list[JsonObject]:
    """Return the codecs of Zarr format 3, in the order of encoding."""
    codecs: list[JsonObject] = []
    if part.order == "F":
        axes = list(range(len(part.shape)))[::-1]
        codecs.append({"name": "transpose", "configuration": {"order": axes}})
    typesize = min(part.dtype.itemsize, MAX_TYPESIZE)
    blosc = blosc_codec(typesize, part.blosc["cname"], part.blosc["clevel"], SHUFFLE)
    codecs += [bytes_codec(part.dtype), blosc]
    if part.checksum == "crc32c":
        codecs.append({"name": "crc32c"})
    elif part.checksum != "None":
        name = CHECKSUM_CODECS[part.checksum][1]
        codecs.append({"name": name, "configuration": {"location": "end"}})
    return codecs
