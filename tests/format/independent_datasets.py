"""A reader of files and folders of all kinds, written from docs/format.rst alone.

`read` returns a tree of dictionaries; a part that must be refused is an instance of
`Refused` in it.
"""

from __future__ import annotations

import os
import unicodedata
import zlib

from format.independent_archives import read_archive
from format.independent_arrays import read_array
from format.independent_journals import Folder, file_bytes
from format.independent_reader import Refused, check, parse_json
from format.independent_reader import read as read_plain
from format.independent_superchunks import read_superchunks
from format.independent_zarr import describe_node, identity_of, read_items

FOREIGN = ("__rootdirs__", "meta/storage", ".zarray", ".zgroup")


def read(path: str) -> dict:
    """Return the content of a file or folder."""
    if os.path.isdir(path):
        tree = read_folder(Folder(path))
        check("none", tree is not None)
        return tree
    data = file_bytes(path)
    if data[:4] != b"blpk":
        archive = read_archive(data)
        if archive is not None:
            return archive
    array = read_array(data)
    if array is not None:
        return array
    plain, metadata = read_plain(data)
    return {"kind": "bytes", "metadata": metadata, "bytes": plain}


def kind_of(folder: Folder) -> str | None:
    """Return what a folder is by its own files."""
    if folder.has("zarr.json"):
        return "zarr"
    storage = folder.read("meta/storage") or b""
    if b'"superchunk"' in storage or b'"superchunklen"' in storage:
        return "superchunks"
    return "foreign" if any(map(folder.has, FOREIGN)) else None


def read_folder(folder: Folder) -> dict | None:
    """Return the tree of a folder; None if it is no dataset."""
    kind = kind_of(folder)
    check("foreign", kind != "foreign")
    if kind == "superchunks":
        return read_superchunks(folder)
    if kind == "zarr":
        return read_node(folder)
    for path, names, _ in os.walk(folder.path):
        names[:] = [name for name in names if name != ".bloscpack"]
        if any(kind_of(Folder(os.path.join(path, name))) for name in names):
            members = read_members(folder)
            return {"kind": "group", "attributes": {}, "members": members}
    return None


def read_node(folder: Folder) -> dict:
    """Return the tree of a node of Zarr."""
    raw = folder.document("zarr.json") or b""
    document = parse_json(raw)
    node = describe_node(document, raw)
    attributes = node["attributes"]
    if node["kind"] == "array":
        node["items"] = read_items(folder, node)
        keys = ("kind", "dtype", "shape", "items")
        return {"attributes": attributes} | {key: node[key] for key in keys}
    if "column-order" not in attributes:
        members = read_members(folder)
        return {"kind": "group", "attributes": attributes, "members": members}
    order = attributes.pop("column-order")
    check("V2", isinstance(order, list) and all(isinstance(n, str) for n in order))
    check("V2", len({*order}) == len(order))
    columns = {name: read_column(folder, name, node["own"]) for name in order}
    return {"kind": "table", "attributes": attributes, "columns": columns}


def read_column(folder: Folder, name: str, is_own: bool) -> dict | Refused:
    """Return a column of a table, or why it is refused."""
    check("V2", is_member(name) and os.path.isdir(os.path.join(folder.path, name)))
    column = Folder(os.path.join(folder.path, name), folder)
    raw = column.document("zarr.json")
    check("V2", raw is not None)
    try:
        document = parse_json(raw)
        words = identity_of(document.get("attributes"), raw) if is_own else None
    except (Refused, AttributeError):
        words = None
    if words and "column" in words:
        crc32 = zlib.crc32(name.encode("utf-8", "surrogatepass"))
        check("V2", words["column"] == f"{crc32:08x}")
    try:
        tree = read_node(column)
    except Refused as error:
        return error
    check("V2", tree["kind"] == "array")
    return tree


def read_members(folder: Folder) -> dict[str, dict | Refused]:
    """Return the members of a group, each of them a tree or why it is refused."""
    members = {}
    for name in sorted(os.listdir(folder.path)):
        path = os.path.join(folder.path, name)
        if os.path.islink(path) or not os.path.isdir(path) or not is_member(name):
            continue
        try:
            tree = read_folder(Folder(path))
        except Refused as error:
            tree = error
        if tree is not None:
            members[name] = tree
    return members


def is_member(name: str) -> bool:
    """Return whether a folder with this name may be a member of a group (V2)."""
    if name.startswith("__") or name == "zarr.json" or not name.strip("."):
        return False
    if "/" in name or "\\" in name or ".bloscpack" in name:
        return False
    return not any(unicodedata.category(c)[0] in "CZ" for c in name if c != " ")
