"""The part of `independent_reader` for arrays: type, shape and order.

It takes only the types that docs/format.rst lists, no other names of NumPy's types.
"""

from __future__ import annotations

import itertools
import json
import math
import operator
import re

from format.independent_reader import (
    LARGEST,
    LARGEST_CHUNK,
    Refused,
    check,
    parse_json,
    read_chunks,
    read_front,
)

Place = tuple[int, ...]
SIMPLE = re.compile(
    r"([<>|])(?:([biufcSUV])(\d{1,19})|([Mm])8(?:\[\d*(?:[YMWDhms]|[mun]s|[pfa]s)\])?)"
)
SIZES = {"b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8, 12, 16),
         "c": (8, 16, 24, 32)}  # fmt: skip


def describe(
    metadata: object, nbytes: int | None = None
) -> tuple[object, int, list[int], str]:
    """Return type, item size, shape and order of an array (of `nbytes` bytes)."""
    check("A12", isinstance(metadata, dict) and {"dtype", "shape"} <= {*metadata})
    check("A12", metadata.get("container") in ("numpy", "grid"))
    order, shape, dtype = (metadata.get(k, "C") for k in ("order", "shape", "dtype"))
    check("A11", order in ("C", "F"))
    shape = [shape] if type(shape) is int else shape
    check("A6", is_shape(shape))
    if isinstance(dtype, str) and dtype.startswith(("'", '"', "[", "u'", 'u"')):
        dtype = parse_literal(dtype)
    match dtype:
        case [["", plain]]:  # A2
            dtype = plain
    itemsize = size_of(dtype)
    check("A6", itemsize * math.prod(n or 1 for n in shape) <= LARGEST)
    if nbytes is not None and metadata["container"] == "numpy":
        check("A7", itemsize * math.prod(shape) == nbytes)
    return dtype, itemsize, shape, order


def is_shape(shape: object, least: int = 0) -> bool:
    """Return whether this is a list of up to 64 lengths."""
    if not isinstance(shape, list) or len(shape) > 64:
        return False
    return all(type(n) is int and least <= n <= LARGEST for n in shape)


def read_array(data: bytes) -> dict | None:
    """Return the array in a file, its items in C order; None for plain bytes."""
    content, position = read_front(data)
    header, metadata = content.header, content.metadata
    names = ("numpy", "grid")
    if not isinstance(metadata, dict) or metadata.get("container") not in names:
        return None
    dtype, size, shape, order = describe(metadata)
    if metadata["container"] == "grid":
        chunks = check_grid(metadata, shape, order, size)
        counts = [-(-n // c) for n, c in zip(shape, chunks)]
        full = size * math.prod(chunks)
        sizes = header.nchunks, header.chunk_size, header.last_chunk
        check("G2", sizes == (math.prod(counts), full, full))
        pieces = read_chunks(data, content, position).pieces
        target = bytearray(size * math.prod(shape))
        for place, piece in zip(itertools.product(*map(range, counts)), pieces):
            copy_box(target, shape, place, piece, chunks, size)
        items = bytes(target)
    else:
        stated = header.nchunks, header.chunk_size, header.last_chunk
        total = size * math.prod(shape)
        if -1 not in stated and header.nchunks:
            check("A7", (stated[0] - 1) * stated[1] + stated[2] == total)
        items = b"".join(read_chunks(data, content, position).pieces)
        check("A7", len(items) == total)
        if order == "F" and total:
            items = transposed(items, shape, size)
    tree = {"kind": "array", "dtype": normal(dtype), "shape": shape, "items": items}
    return tree | {"attributes": metadata.get("metadata", {})}


def check_grid(metadata: dict, shape: list[int], order: str, size: int) -> list[int]:
    """Return the shape of a chunk of a grid."""
    chunks = metadata.get("chunks")
    check("G1", is_shape(chunks, 1) and len(chunks) == len(shape))
    check("G1", 0 not in shape and order == "C")
    check("G1", 1 <= size * math.prod(chunks) <= LARGEST_CHUNK)
    if "shard" in metadata:
        shard = metadata["shard"]
        check("G7", is_shape(shard, 1) and len(shard) == len(shape))
        check("G7", all(s % c == 0 and s >= n for s, c, n in zip(shard, chunks, shape)))
        check("G7", math.prod(s // c for s, c in zip(shard, chunks)) <= 2**20)
    return chunks


def copy_box(
    target: bytearray, shape: list, place: Place, piece: bytes, chunks: list, size: int
) -> None:
    """Copy the items of a chunk that lie inside of an array to it (G3)."""
    starts = [p * c for p, c in zip(place, chunks)]
    widths = [min(c, n - s) for s, c, n in zip(starts, chunks, shape)]
    if any(width <= 0 for width in widths):
        return
    run = (widths[-1] if widths else 1) * size
    for row in itertools.product(*map(range, widths[:-1])):
        source = to = 0
        for index, start, chunk, n in zip((*row, 0), starts, chunks, shape):
            source, to = source * chunk + index, to * n + start + index
        target[to * size : to * size + run] = piece[source * size : source * size + run]


def transposed(items: bytes, shape: list[int], size: int) -> bytes:
    """Return the items of an array in order F in order C."""
    strides = [math.prod(shape[:axis]) * size for axis in range(len(shape))]
    found = []
    for index in itertools.product(*map(range, shape)):
        at = sum(map(operator.mul, index, strides))
        found.append(items[at : at + size])
    return b"".join(found)


def normal(dtype: object) -> object:
    """Return a type in which only what has a byte order states one."""
    if isinstance(dtype, str):
        return re.sub(r"^.(?=[bSV]|[iu]1$)", "|", dtype)
    return [[name, normal(kind), *shape] for name, kind, *shape in dtype]


def parse_literal(text: str) -> object:
    """Return the strings, numbers and lists in a text; a tuple becomes a list."""
    strings = r"""[uU]?('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
    known = rf"(?:{strings}|\d{{1,19}}L?|[][(), ])*"
    check("A5", re.fullmatch(known, text) is not None)

    def convert(found: re.Match[str]) -> str:
        """Return JSON, which has other brackets, quotes and commas."""
        if found[1]:
            return json.dumps(unquoted(found[1]))
        return found[2] or "[]"[found[0][-1] in "])"]

    try:
        converted = re.sub(rf"{strings}|(\d+)L?|[(]|,? *[])]", convert, text)
    except ValueError as error:
        raise Refused("A5") from error
    return parse_json(converted.encode(), "A5")


def unquoted(quoted: str) -> str:
    return quoted[1:-1].encode("latin-1", "backslashreplace").decode("unicode_escape")


def size_of(dtype: object) -> int:
    """Return the item size of a type."""
    if isinstance(dtype, str):
        found = SIMPLE.fullmatch(dtype)
        check("A4", not re.fullmatch(r"[<>|=]?[OT]\d*", dtype))
        check("A5", found is not None)
        order, kind, digits, time = found.groups()
        check("A5", order != "|" or bool(re.match(r".(?:[bSV]|[iu]1$)", dtype)))
        if time:
            return 8
        check("A5", int(digits) in SIZES.get(kind, (int(digits),)))
        return int(digits) * (4 if kind == "U" else 1)
    check("A5", isinstance(dtype, list))
    total, names = 0, []
    for field in dtype:
        check("A5", isinstance(field, (list, tuple)) and len(field) in (2, 3))
        name = field[0]
        if isinstance(name, list):  # A3: with a title
            check("A5", len(name) == 2 and isinstance(name[0], str))
            name = name[1]
        check("A5", isinstance(name, str) and (not name or name not in names))
        names.append(name)
        shape = field[2] if len(field) == 3 else []
        shape = [shape] if type(shape) is int else shape
        check("A5", is_shape(shape))
        field[2:] = [shape] if shape else []
        total += size_of(field[1]) * math.prod(shape)
    return total
