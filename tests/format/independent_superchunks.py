"""The part of `independent_datasets` for superchunks (D)."""

from __future__ import annotations

import base64
import math
import re

from format.independent_arrays import describe, is_shape, normal
from format.independent_journals import Folder
from format.independent_reader import (
    LARGEST,
    LARGEST_CHUNK,
    Refused,
    check,
    parse_json,
)
from format.independent_zarr import identity_of, read_items


def read_superchunks(folder: Folder) -> dict:
    """Return an array or a table."""
    raw = folder.document("meta/storage") or b""
    storage = parse_json(raw)
    words = identity_of(storage, raw)
    if not isinstance(storage, dict) or "bloscpack-id" not in storage:
        check("I5", b"crc32=" not in raw)
        check("D1", isinstance(storage, dict))
    else:
        check("I5", words is not None)
    identity = words and words["id"]
    version, kind = storage.get("superchunk"), storage.get("kind")
    check("D3", type(version) is int and version == 1)
    check("D3", kind in ("array", "table"))
    columns = [storage]
    if kind == "table":
        columns = storage.get("columns")
        check("D3", isinstance(columns, list) and len(columns) > 0)
        check("D3", all(isinstance(column, dict) for column in columns))
        names = [column.get("name") for column in columns]
        check("D3", all(isinstance(name, str) and name for name in names))
        check("D3", len({*names}) == len(names))
        if identity:
            ids = [str(column.get("id")) for column in columns]
            check("I5", all(re.fullmatch("[0-9a-f]{16}", each) for each in ids))
    parts = [check_storage(column) for column in columns]
    sizes = read_document(folder, "sizes", identity)
    shape = sizes.get("shape")
    check("D2", is_shape(shape) and len(shape) > 0)
    check("D2", shape[1:] == ([] if kind == "table" else storage["inner"]))
    attributes = read_document(folder, "attributes", identity)
    if kind == "array":
        tree = read_part(folder, parts[0], shape, identity, "data/")
        return tree | {"attributes": attributes}
    all_attributes = read_document(folder, "columns", identity)
    trees = {}
    for part, column in zip(parts, columns):
        prefix = f"data/{folder_name(column['name'])}/"
        of_column = all_attributes.get(column["name"], {})
        check("D3", isinstance(of_column, dict))
        name = identity and column["id"]
        try:
            tree = read_part(folder, part, shape + column["inner"], name, prefix)
            trees[column["name"]] = tree | {"attributes": of_column}
        except Refused as error:
            trees[column["name"]] = error
    return {"kind": "table", "attributes": attributes, "columns": trees}


def read_document(folder: Folder, name: str, identity: str | None) -> dict:
    """Return sizes, or the attributes in another document (I5, D1)."""
    raw = folder.document("meta/" + name)
    if raw is None:
        check("I5", not identity)
        check("D2", name != "sizes")
        return {}
    document = parse_json(raw)
    if identity:
        words = identity_of(document, raw)
        check("I5", words is not None and words["id"] == identity)
    check("D1", isinstance(document, dict))
    if not identity:
        check("D1", "bloscpack-id" not in document)
    elif name != "sizes":
        document = document.get(name)
        check("I5", isinstance(document, dict))
    return document


def check_storage(storage: dict) -> tuple[object, int, int, int]:
    """Return type, item size and rows of a chunk and a superchunk (D4)."""
    text, inner = storage.get("dtype"), storage.get("inner")
    check("D4", isinstance(text, str) and text[:1] in ("'", '"', "["))
    check("D4", is_shape(inner))
    try:
        described = describe({"container": "numpy", "dtype": text, "shape": inner})
    except Refused as error:
        raise Refused("D4") from error
    dtype, size = described[:2]
    check("D4", size <= 64 << 20 and not is_padded(dtype))
    rows, more = storage.get("chunklen"), storage.get("superchunklen")
    check("D4", type(rows) is int and 1 <= rows <= 2**31 - 17)
    check("D4", type(more) is int and more >= 1 and more % rows == 0)
    for _, _, leaf, shape in leaves(dtype):
        check("D4", rows * leaf * math.prod(inner + shape) <= LARGEST_CHUNK)
    check("D4", "dflt" in storage)
    if storage["dflt"] is not None:
        check("D4", isinstance(storage["dflt"], str))
        try:
            item = base64.b64decode(storage["dflt"], validate=True)
        except ValueError as error:
            raise Refused("D4") from error
        check("D4", len(item) == size)
    return normal(dtype), size, rows, more


def is_padded(dtype: object) -> bool:
    """Return whether a field has no name."""
    fields = dtype if isinstance(dtype, list) else []
    return any(field[0] == "" or is_padded(field[1]) for field in fields)


def leaves(dtype: object, size: int = 0) -> list[tuple[list[str], object, int, list]]:
    """Return names, type, item size and shape of the leaves of a type (D5)."""
    if isinstance(dtype, str):
        return [([], dtype, describe_size(dtype), [])]
    return [
        (
            [name_of(field)] + names,
            leaf,
            size,
            [n for s in field[2:] for n in s] + shape,
        )
        for field in dtype
        for names, leaf, size, shape in leaves(field[1])
    ]


def name_of(field: list) -> str:
    return field[0][1] if isinstance(field[0], list) else field[0]


def describe_size(dtype: object) -> int:
    return describe({"container": "numpy", "dtype": dtype, "shape": []})[1]


def folder_name(name: str) -> str:
    """Return the name of a folder for a field or a column (D6)."""
    if name in (".", "..", ""):
        return name.replace(".", "%2E") or "%"
    return re.sub(r'["%*/:<>?\\|\0-\x1f\x7f]', lambda m: f"%{ord(m[0]):02X}", name)


def read_part(
    folder: Folder, part: tuple, shape: list[int], identity: str | None, prefix: str
) -> dict:
    """Return an array or a column without its attributes."""
    dtype, size, rows, more = part
    check("D2", size * math.prod(n or 1 for n in shape) <= LARGEST)
    found = {}
    for names, leaf, leaf_size, inner in leaves(dtype):
        inner = shape[1:] + inner
        path = "".join(folder_name(name) + "/" for name in names)
        node = {
            "shape": [shape[0], *inner],
            "shard": [more, *inner],
            "chunk": [rows, *inner],
            "dtype": normal(leaf),
            "size": leaf_size,
            "name": lambda place, path=path: f"{path}__{place[0] + 1}__.bin",
            "prefix": prefix,
            "missing": "D8",
            "own": identity and {"id": identity},
            "fill": bytes(leaf_size),
            "sparse": False,
            "ours": True,
            "index": "end",
            "index-size": 16 * (more // rows) + 4,
            "codec": "blosc",
            "crc": True,
        }
        found[tuple(names)] = read_items(folder, node)
    items = join(dtype, found, (), math.prod(shape))
    return {"kind": "array", "dtype": dtype, "shape": shape, "items": items}


def join(dtype: object, found: dict, path: tuple[str, ...], count: int) -> bytes:
    """Return items, put together from the leaves of their fields."""
    if isinstance(dtype, str):
        return found[path]
    fields = []
    for field in dtype:
        times = math.prod(field[2]) if len(field) == 3 else 1
        data = join(field[1], found, (*path, name_of(field)), count * times)
        fields.append((data, len(data) // count if count else 0))
    return b"".join(
        data[i * size : (i + 1) * size] for i in range(count) for data, size in fields
    )
