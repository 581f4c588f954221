"""The part of `independent_datasets` for nodes of Zarr: documents and shards."""

from __future__ import annotations

import base64
import itertools
import math
import re
import struct
import sys
import zlib
from collections.abc import Callable, Iterator

from format.independent_arrays import Place, copy_box, describe, is_shape, normal
from format.independent_journals import Folder
from format.independent_reader import (
    LARGEST,
    LARGEST_CHUNK,
    NotSupported,
    Refused,
    check,
    decompress,
    digest_of,
    read_frame,
    read_front,
)

MISSING = 2**64 - 1, 2**64 - 1
INDEX = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]
LARGEST_RESULT = 2**28  # a limit of this program
WORDS = re.compile(rb"id=([0-9a-f]{16})(?: [a-z]+=[0-9a-f]+)* crc32=([0-9a-f]{8})")
KEYS = "zarr_format node_type shape data_type chunk_grid chunk_key_encoding fill_value "
KEYS += "codecs attributes dimension_names storage_transformers"
TYPES = "bool=b1 int8=i1 int16=i2 int32=i4 int64=i8 uint8=u1 uint16=u2 uint32=u4 "
TYPES += "uint64=u8 float16=f2 float32=f4 float64=f8 complex64=c8 complex128=c16"
UNITS = {*"YMWDhms", *(c + "s" for c in "munpfa"), "generic"}
HALVES = {"numpy.datetime64": "M8", "numpy.timedelta64": "m8"}


def identity_of(place: object, raw: bytes) -> dict[str, str] | None:
    """Return the words of an identity in an object; None if its digest is wrong."""
    value = place.get("bloscpack-id") if isinstance(place, dict) else None
    stored = value.encode("utf-8", "replace") if isinstance(value, str) else b""
    found, at = WORDS.fullmatch(stored), raw.rfind(stored) + len(stored)
    if not found or at < len(stored):
        return None
    right = zlib.crc32(raw[: at - 8] + b"0" * 8 + raw[at:]) == int(found[2], 16)
    return dict(w.split("=") for w in value.split()) if right else None


def describe_node(document: object, raw: bytes) -> dict:
    """Return what the document of a node says."""
    check("V1", isinstance(document, dict) and type(document.get("zarr_format")) is int)
    kind, attributes = document.get("node_type"), document.get("attributes", {})
    check("V1", document["zarr_format"] == 3 and kind in ("array", "group"))
    check("V1", isinstance(attributes, dict))
    words, hidden = identity_of(attributes, raw), {"bloscpack-id"}
    node = {"kind": kind, "own": words}
    if kind == "array":
        mark = b"bloscpack-id" in raw or WORDS.search(raw)
        describe_array(node, document, damaged=bool(mark and not words))
        hidden.add("missing-shards")
        node["sparse"] = not words or "missing-shards" in attributes or not node["ours"]
    node["attributes"] = {k: v for k, v in attributes.items() if k not in hidden}
    text = attributes.get("_FillValue")
    if str(node.get("dtype"))[1] == "f" and isinstance(text, str):  # V11
        try:
            (value,) = struct.unpack("<d", base64.b64decode(text, validate=True))
        except (ValueError, struct.error):
            return node
        node["attributes"]["_FillValue"] = value
    return node


def named(value: object) -> tuple[object, dict]:
    """Return name and configuration of a codec, a data type, and so on."""
    if not isinstance(value, dict):
        return value if isinstance(value, str) else None, {}
    settings = value.get("configuration", {})
    return value.get("name"), settings if isinstance(settings, dict) else {}


def describe_array(node: dict, document: dict, *, damaged: bool) -> None:
    """Add what the document of an array says, in the order of the checks."""

    def supports(rule: str, holds: bool) -> None:
        if not holds:
            raise Refused("I4") if damaged else NotSupported(rule)

    for other in [document[key] for key in {*document} - {*KEYS.split()}]:
        is_object = isinstance(other, dict)
        supports("V3", is_object and other.get("must_understand") is False)
    supports("V3", document.get("storage_transformers", []) == [])
    shape, (grid, settings) = document.get("shape"), named(document.get("chunk_grid"))
    check("V4", is_shape(shape))
    supports("V4", grid == "regular")
    chunk = shard = settings.get("chunk_shape")
    check("V4", is_shape(shard, 1) and len(shard) == len(shape))
    encoding, settings = named(document.get("chunk_key_encoding"))
    separator = settings.get("separator", "/" if encoding == "default" else ".")
    supports("V7", encoding in ("default", "v2") and separator in ("/", "."))
    check("I4", not damaged or (encoding, separator) == ("default", "/"))
    codecs, index, index_crc = document.get("codecs"), None, False
    supports("V6", isinstance(codecs, list) and len(codecs) > 0)
    name, settings = named(codecs[0])
    is_sharded = name == "sharding_indexed"
    if is_sharded:
        supports("V6", len(codecs) == 1)
        index = settings.get("index_location", "end")
        chunk, codecs = settings.get("chunk_shape"), settings.get("codecs")
        check("V4", is_shape(chunk, 1) and len(chunk) == len(shape))
        supports("V6", isinstance(codecs, list))
    names = [named(codec)[0] for codec in codecs]
    crc = names[-1:] == ["crc32c"]
    middle = names[1 : len(names) - crc]
    supports("V6", names[:1] == ["bytes"])
    supports("V6", middle in ([], ["blosc"], ["zstd"], ["gzip"]))
    if middle and middle != ["blosc"]:
        level = named(codecs[1])[1].get("level")
        least, most = (-131072, 22) if middle == ["zstd"] else (0, 9)
        supports("V6", type(level) is int and least <= level <= most)
    if is_sharded:
        of_index = settings.get("index_codecs", INDEX)
        supports("V6", index in ("start", "end") and of_index in (INDEX[:1], INDEX))
        index_crc = len(of_index) == 2
    endian = named(codecs[0])[1].get("endian", sys.byteorder)
    supports("V5", endian in ("little", "big"))
    dtype, size = type_of(document, "<" if endian == "little" else ">", supports)
    fill = item_of(document.get("fill_value"), dtype, size)
    check("V4", size * math.prod(n or 1 for n in shape) <= LARGEST)
    supports("V4", all(s % c == 0 for s, c in zip(shard, chunk)))
    supports("V4", size * math.prod(chunk) <= LARGEST_CHUNK)
    per = [s // c for s, c in zip(shard, chunk)]
    supports("V4", math.prod(per) <= 2**20 or math.prod(per[1:]) == 1)
    axes = document.get("dimension_names")
    check("V3", axes is None or (isinstance(axes, list) and len(axes) == len(shape)))
    check("V3", all(axis is None or isinstance(axis, str) for axis in axes or []))

    def name_of(place: Place) -> str:
        parts = ["c"] * (encoding == "default") + [*map(str, place)]
        return separator.join(parts or "0")

    node |= {"shape": shape, "shard": shard, "chunk": chunk, "name": name_of}
    node |= {"dtype": normal(dtype), "size": size, "fill": fill}
    node |= {"codec": middle[0] if middle else None, "crc": crc}
    node |= {"index": index, "index-size": 4 * index_crc + 16 * math.prod(per)}
    node["ours"] = (index, index_crc, middle, crc) == ("end", True, ["blosc"], True)


def type_of(document: dict, order: str, supports: Callable) -> tuple[str, int]:
    """Return type and item size (V5)."""
    name, settings = named(document.get("data_type"))
    types = dict(each.split("=") for each in TYPES.split())
    if isinstance(name, str) and name in types:
        return order + types[name], int(types[name][1:])
    if name in ("null_terminated_bytes", "fixed_length_utf32"):
        size, unit = settings.get("length_bytes"), 1 if name[0] == "n" else 4
        supports("V5", is_shape([size]) and size % unit == 0)
        return f"|S{size}" if unit == 1 else f"{order}U{size // 4}", size
    unit, scale = settings.get("unit"), settings.get("scale_factor", 1)
    supports("V5", isinstance(name, str) and name in HALVES)
    supports("V5", isinstance(unit, str) and unit in UNITS)
    supports("V5", type(scale) is int and 1 <= scale < 2**31)
    suffix = "" if unit == "generic" else f"[{scale if scale > 1 else ''}{unit}]"
    return order + HALVES[name] + suffix, 8


def item_of(value: object, dtype: str, size: int) -> bytes:
    """Return the bytes of the fill value (V8)."""
    kind, endian = dtype[1], {"<": "little", ">": "big"}.get(dtype[0])
    try:
        if kind == "b" and isinstance(value, bool):
            return bytes([value])
        if kind in "iuMm" and (type(value) is int or (kind in "Mm" and value == "NaT")):
            value = -(2**63) if value == "NaT" else value
            return value.to_bytes(size, endian, signed=kind != "u")
        if kind == "f":
            return float_of(value, dtype[0], size)
        if kind == "c" and isinstance(value, list) and len(value) == 2:
            return b"".join(float_of(part, dtype[0], size // 2) for part in value)
        check("V8", kind in "SU" and isinstance(value, str))
        code = "utf-32-le" if endian == "little" else "utf-32-be"
        stored = value.encode(code) if kind == "U" else base64.b64decode(value, None, 1)
    except (ValueError, OverflowError, struct.error) as error:
        raise Refused("V8") from error
    check("V8", len(stored) <= size)
    return stored.ljust(size, b"\0")


def float_of(value: object, order: str, size: int) -> bytes:
    if isinstance(value, str) and re.fullmatch("0x[0-9A-Fa-f]+", value):
        check("V8", len(value) == 2 + 2 * size)
        return bytes.fromhex(value[2:])[:: 1 if order == ">" else -1]
    known = value in ("NaN", "Infinity", "-Infinity")
    check("V8", known or type(value) in (int, float))
    return struct.pack(order + {2: "e", 4: "f", 8: "d"}[size], float(value))


# The shards


def places(counts: list[int]) -> Iterator[Place]:
    """Return places in C order, one by one."""
    for first in range(counts[0]) if counts else ():
        for rest in places(counts[1:]):
            yield first, *rest
    if not counts:
        yield ()


def read_items(folder: Folder, node: dict) -> bytes:
    """Return the items of an array in C order."""
    shape, shard, chunk, size = (node[k] for k in ("shape", "shard", "chunk", "size"))
    total, sparse = size * math.prod(shape), node["sparse"]
    counts = [-(-n // s) for n, s in zip(shape, shard)] if total else [0]
    check("F4", not sparse or total <= LARGEST_RESULT)
    parts = []
    for place in places(counts):
        data = folder.read(node.get("prefix", "") + node["name"](place))
        check(node.get("missing", "I7"), data is not None or sparse)
        if data is not None:
            parts += read_shard_file(data, node, place)
    check("F4", total <= LARGEST_RESULT)
    target = bytearray(node["fill"] * (total // size if total else 0))
    for at, piece in parts:
        copy_box(target, shape, at, piece, chunk, size)
    return bytes(target)


def read_shard_file(data: bytes, node: dict, place: Place) -> list[tuple[Place, bytes]]:
    """Return the chunks of a file that have items, with their places in the array."""
    shard, chunk, rule = node["shard"], node["chunk"], node.get("missing")
    if not node["index"]:
        return [(place, plain_of(data, node))]
    part = [min(s, n - p * s) for n, s, p in zip(node["shape"], shard, place)]
    per = [s // c for s, c in zip(shard, chunk)]
    size = node["index-size"]
    start = len(data) - size if node["index"] == "end" else 0
    first, last = (0, start) if start else (size, len(data))
    check(rule or "V9", size <= len(data))
    index = data[start : start + size]
    if size % 16:
        check(rule or "V9", digest_of(9, index[:-4]) == index[-4:])
    entries = [*struct.iter_unpack("<QQ", index[: size // 16 * 16])]
    may_lack = node["sparse"]
    starts = {at for at, n in entries if (at, n) != MISSING}
    if node["ours"] and not rule and (not starts or 0 in starts):
        may_lack = True  # I7: of another program
    elif node["ours"]:
        compare(data, node, node["name"](place), part)
    found = []
    for inner in itertools.product(*(range(-(-m // c)) for m, c in zip(part, chunk))):
        number = 0
        for position, width in zip(inner, per):
            number = number * width + position
        at, n = entries[number]
        if (at, n) == MISSING:
            check(rule or "I7", may_lack)
            continue
        check("V9", first <= at and at + n <= last)
        where = tuple(p * w + i for p, w, i in zip(place, per, inner))
        found.append((where, plain_of(data[at : at + n], node)))
    return found


def plain_of(data: bytes, node: dict) -> bytes:
    """Return the plain bytes of a chunk (V9)."""
    n, codec = node["size"] * math.prod(node["chunk"]), node["codec"]
    size = len(data) - 4 * node["crc"]
    most = {"blosc": n + 16, None: n}.get(codec, n + n // 64 + 1040)
    check("V9", (1 if codec else n) <= size <= most)

    def check_size(nbytes: int, stop: int) -> None:
        check("V9", (nbytes, stop) == (n, len(data)))

    plain = stored = data[:size]
    try:
        if codec == "blosc":
            return decompress(read_frame(data, 0, 9 * node["crc"], check_size)[0])
        check("V9", not node["crc"] or digest_of(9, stored) == data[size:])
        if codec == "gzip":
            stream = zlib.decompressobj(31)
            plain = stream.decompress(stored, n + 1)
            check("V9", stream.eof and not stream.unused_data)
        elif codec == "zstd":  # as the only stream of a chunk of Blosc
            check("V9", n <= 32768 * size)
            if size == n:  # B3 takes it for a copy: a frame to be skipped follows
                stored += b"\x50\x2a\x4d\x18" + bytes(4)
            fields = 2, 1, 0x90, 1, n, n, 24 + len(stored), 20, len(stored)
            plain = decompress(struct.pack("<4B5I", *fields) + stored)
    except (Refused, zlib.error) as error:
        raise Refused("C11" if error.args == ("C11",) else "V9") from error
    check("V9", len(plain) == n)
    return plain


def compare(data: bytes, node: dict, name: str, part: list[int]) -> None:
    """Compare header and metadata of a file of chunks with the documents (I8)."""
    metadata = read_front(data)[0].metadata
    try:
        dtype, _, shape, _ = describe(metadata)
    except Refused as error:
        raise Refused("I8") from error
    chunk, own = node["chunk"], node["own"]
    check("I8", normal(dtype) == node["dtype"] and len(shape) == len(part))
    stated, expected = (metadata.get("chunks"), metadata.get("shard")), node["shard"]
    if metadata["container"] == "numpy":
        check("I8", shape[1:] == node["shape"][1:] == chunk[1:])
        stated, expected = (chunk, metadata.get("shard")), chunk[0]
    check("I8", stated == (chunk, expected) and type(stated[1]) is type(expected))
    if (place := metadata.get("place")) is not None:
        check("I8", isinstance(place, str) and place[16:] == "/" + name)
        check("I8", not own or place[:16] == own["id"])
    check("I8", node["sparse"] or all(a >= b for a, b in zip(shape, part)))
