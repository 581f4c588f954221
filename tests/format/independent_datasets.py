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


def read(path: str) -> dict:
    """Return the content of a file or folder."""
    if os.path.isdir(path):
        tree = read_folder(Folder(path))
        check("none", tree is not None)
        return tree
    data = file_bytes(path)
    tree = read_archive(data) if data[:4] != b"blpk" else None
    tree = tree or read_array(data)
    if tree is None:
        plain, metadata = read_plain(data)
        return {"kind": "bytes", "metadata": metadata, "bytes": plain}
    return tree


def kind_of(folder: Folder) -> str | None:
    """Return what a folder is by its own files."""
    if folder.has("zarr.json"):
        return "zarr"
    storage = folder.read("meta/storage") or b""
    if b'"superchunk"' in storage or b'"superchunklen"' in storage:
        return "superchunks"
    others = "__rootdirs__", "meta/storage", ".zarray", ".zgroup"
    return "foreign" if any(map(folder.has, others)) else None


def read_folder(folder: Folder) -> dict | None:
    """Return the tree of a folder; None if it is no dataset."""
    kind = kind_of(folder)
    check("foreign", kind != "foreign")
    if kind:
        return read_superchunks(folder) if kind == "superchunks" else read_node(folder)
    if not folder.has(".bloscpack/unfinished") and has_dataset(folder.path):
        return {"kind": "group", "attributes": {}, "members": read_members(folder)}
    return None


def has_dataset(path: str) -> bool:
    """Return whether a folder in this one is a dataset by its own files."""
    for outer, names, _ in os.walk(path):
        for inner in [os.path.join(outer, n) for n in names if n != ".bloscpack"]:
            try:
                if not os.path.islink(inner) and kind_of(Folder(inner)):
                    return True
            except Refused:
                return True
    return False


def read_node(folder: Folder) -> dict:
    """Return the tree of a node of Zarr."""
    raw = folder.document("zarr.json") or b""
    node = describe_node(parse_json(raw), raw)
    kind, attributes = node["kind"], node["attributes"]
    tree = {"kind": kind, "attributes": attributes}
    if kind == "array":
        items = read_items(folder, node)
        return tree | {"dtype": node["dtype"], "shape": node["shape"], "items": items}
    if "column-order" not in attributes:
        return tree | {"members": read_members(folder)}
    order = attributes.pop("column-order")
    check("V2", isinstance(order, list) and all(isinstance(n, str) for n in order))
    check("V2", len({*order}) == len(order))
    columns = {name: read_column(folder, name, node["own"]) for name in order}
    return tree | {"kind": "table", "columns": columns}


def read_column(folder: Folder, name: str, own: dict | None) -> dict | Refused:
    """Return a column of a table, or why it is refused."""
    path = os.path.join(folder.path, name)
    check("V2", is_member(name) and os.path.isdir(path))
    column = Folder(path, folder)
    raw = column.document("zarr.json")
    check("V2", raw is not None)
    crc32 = f"{zlib.crc32(name.encode('utf-8', 'surrogatepass')):08x}"
    try:
        document = parse_json(raw)
    except Refused as error:
        return error
    attributes = document.get("attributes") if isinstance(document, dict) else None
    words = identity_of(attributes, raw) if own else None
    check("V2", not words or words.get("column", crc32) == crc32)
    try:
        tree = read_node(column)
    except Refused as error:
        return error
    check("V2", tree["kind"] == "array")
    return tree


def read_members(folder: Folder) -> dict[str, dict | Refused]:
    """Return the members of a group, each of them a tree or why it is refused."""
    members = {}
    for name in sorted(filter(is_member, os.listdir(folder.path))):
        path = os.path.join(folder.path, name)
        if os.path.isdir(path) and not os.path.islink(path):
            try:
                members[name] = read_folder(Folder(path))
            except Refused as error:
                members[name] = error
    return {name: tree for name, tree in members.items() if tree is not None}


def is_member(name: str) -> bool:
    """Return whether a folder with this name may be a member of a group (V2)."""
    refused = name.startswith("__") or name == "zarr.json" or not name.strip(".")
    refused = refused or any(part in name for part in ("/", "\\", ".bloscpack"))
    spaces = [c for c in name if unicodedata.category(c)[0] in "CZ" and c != " "]
    return not refused and not spaces
