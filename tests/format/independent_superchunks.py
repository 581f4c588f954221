"""The part of `independent_datasets` for superchunks (D)."""

from __future__ import annotations

import base64
import math
import re

from format.independent_arrays import describe, is_shape, normal
from format.independent_journals import Folder
from format.independent_reader import LARGEST, LARGEST_CHUNK, Refused, check, parse_json
from format.independent_zarr import identity_of, read_items


def read_superchunks(folder: Folder) -> dict:
    """Return an array or a table."""
    raw = folder.document("meta/storage") or b""
    storage = parse_json(raw)
    words = identity_of(storage, raw)
    has_key = isinstance(storage, dict) and "bloscpack-id" in storage
    check("I5", words is not None if has_key else b"crc32=" not in raw)
    check("D1", isinstance(storage, dict))
    identity, kind = words and words["id"], storage.get("kind")
    check("D3", type(storage.get("superchunk")) is int and storage["superchunk"] == 1)
    check("D3", kind in ("array", "table"))
    columns = storage.get("columns") if kind == "table" else [storage]
    if kind == "table":
        check("D3", isinstance(columns, list) and len(columns) > 0)
        check("D3", all(isinstance(column, dict) for column in columns))
        names = [column.get("name") for column in columns]
        check("D3", all(isinstance(name, str) and name for name in names))
        check("D3", len({*names}) == len(names))
        ids = [str(column.get("id")) for column in columns if identity]
        check("I5", all(re.fullmatch("[0-9a-f]{16}", each) for each in ids))
    for column in columns:
        check_storage(column)
    shape = read_document(folder, "sizes", identity).get("shape")
    check("D2", is_shape(shape) and len(shape) > 0)
    check("D2", shape[1:] == ([] if kind == "table" else storage["inner"]))
    attributes = read_document(folder, "attributes", identity)
    if kind == "array":
        return read_part(folder, storage, shape, identity, "data/", attributes)
    of_columns, trees = read_document(folder, "columns", identity), {}
    for column in columns:
        name, own = column["name"], identity and column["id"]
        check("D3", isinstance(of_columns.get(name, {}), dict))
        part = shape + column["inner"], own, f"data/{folder_name(name)}/"
        try:
            trees[name] = read_part(folder, column, *part, of_columns.get(name, {}))
        except Refused as error:
            trees[name] = error
    return {"kind": "table", "attributes": attributes, "columns": trees}


def read_document(folder: Folder, name: str, identity: str | None) -> dict:
    """Return sizes, or the attributes in another document (I5, D1)."""
    raw = folder.document("meta/" + name)
    check("I5", raw is not None or not identity)
    check("D2", raw is not None or name != "sizes")
    document = {} if raw is None else parse_json(raw)
    if identity:
        words = identity_of(document, raw)
        check("I5", words is not None and words["id"] == identity)
        document = document if name == "sizes" else document.get(name)
        check("I5", isinstance(document, dict))
    check("D1", isinstance(document, dict))
    check("D1", identity is not None or "bloscpack-id" not in document)
    return document


def check_storage(storage: dict) -> None:
    """Check the storage of an array or a column, and add type and item size (D4)."""
    text, inner, default = (storage.get(key) for key in ("dtype", "inner", "dflt"))
    check("D4", isinstance(text, str) and text[:1] in ("'", '"', "["))
    check("D4", is_shape(inner))
    try:
        metadata = {"container": "numpy", "dtype": text, "shape": inner}
        dtype, size, *_ = describe(metadata)
        item = base64.b64decode(default or "", validate=True)
    except (Refused, ValueError, TypeError) as error:
        raise Refused("D4") from error
    rows, more = storage.get("chunklen"), storage.get("superchunklen")
    check("D4", size <= 64 << 20)
    check("D4", type(rows) is int and 1 <= rows <= 2**31 - 17)
    check("D4", type(more) is int and more >= 1 and more % rows == 0)
    for names, _, leaf, shape in leaves(dtype):
        check("D4", "" not in names)  # A3
        check("D4", rows * leaf * math.prod(inner + shape) <= LARGEST_CHUNK)
    check("D4", default is None or len(item) == size)
    storage |= {"dtype": normal(dtype), "size": size}


def leaves(dtype: object) -> list[tuple[list[str], str, int, list[int]]]:
    """Return names, type, item size and shape of the leaves of a type (D5)."""
    if isinstance(dtype, str):
        described = describe({"container": "numpy", "dtype": dtype, "shape": []})
        return [([], dtype, described[1], [])]
    found = []
    for field in dtype:
        for names, leaf, size, shape in leaves(field[1]):
            outer = field[2] if len(field) == 3 else []
            found.append(([name_of(field), *names], leaf, size, outer + shape))
    return found


def name_of(field: list) -> str:
    return field[0][1] if isinstance(field[0], list) else field[0]


def folder_name(name: str) -> str:
    """Return the name of a folder for a field or a column (D6)."""
    if name in (".", "..", ""):
        return name.replace(".", "%2E") or "%"
    return re.sub(r'["%*/:<>?\\|\0-\x1f\x7f]', lambda m: f"%{ord(m[0]):02X}", name)


def read_part(
    folder: Folder, part: dict, shape: list, own: str | None, prefix: str, user: dict
) -> dict:
    """Return an array or a column."""
    dtype, rows, more = part["dtype"], part["chunklen"], part["superchunklen"]
    check("D2", part["size"] * math.prod(n or 1 for n in shape) <= LARGEST)
    node = {"sparse": False, "ours": True, "codec": "blosc", "crc": True}
    node |= {"own": own and {"id": own}, "prefix": prefix, "missing": "D8"}
    node |= {"index": "end", "index-size": 16 * (more // rows) + 4}
    found = {}
    for names, leaf, size, inner in leaves(dtype):
        inner = shape[1:] + inner
        path = "".join(folder_name(name) + "/" for name in names)
        node |= {"shape": shape[:1] + inner, "dtype": leaf, "size": size}
        node |= {"shard": [more, *inner], "chunk": [rows, *inner], "fill": bytes(size)}
        node["name"] = lambda place, path=path: f"{path}__{place[0] + 1}__.bin"
        found[tuple(names)] = read_items(folder, node)
    items = join(dtype, found, (), math.prod(shape))
    tree = {"kind": "array", "dtype": dtype, "shape": shape, "items": items}
    return tree | {"attributes": user}


def join(dtype: object, found: dict, path: tuple[str, ...], count: int) -> bytes:
    """Return items, put together from the leaves of their fields."""
    if isinstance(dtype, str) or not count:
        return found.get(path, b"")
    fields = []
    for field in dtype:
        times = count * math.prod(field[2] if len(field) == 3 else [])
        data = join(field[1], found, (*path, name_of(field)), times)
        fields.append((data, len(data) // count))
    return b"".join(data[i * n : i * n + n] for i in range(count) for data, n in fields)
