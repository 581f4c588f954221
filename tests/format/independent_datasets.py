"""A reader of files and folders of all kinds, written from docs/format.rst alone.

`read` returns a tree of dictionaries; a part that must be refused is an instance of
`Refused` in it. `independent_reader` has what single files and datasets share.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import math
import os
import re
import struct
import sys
import unicodedata
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from format import independent_reader as blp
from format.independent_reader import NotSupported, Refused, check, is_shape, supports

TEXT = "string"  # the data type of text of variable length
KEY, MARK, LARGEST_DOCUMENT = "bloscpack-id", "missing-shards", 64 << 20


def read(path: str) -> dict:
    """Return the content of a file or folder."""
    if os.path.isdir(path):
        part = part_of(os.path.abspath(path))
        tree = read_node(part) if part else read_folder(path)
        supports("none", tree is not None)
        return tree
    data = Path(path).read_bytes()
    tree = read_archive(data) if data[:4] != b"blpk" else None
    if tree := tree or blp.read_array(data):
        return tree
    plain, metadata = blp.read(data)
    return {"kind": "bytes", "metadata": metadata, "bytes": plain}


# Commits

PENDING = "bloscpack-pending"
DOCUMENTS = {"zarr.json", "meta/sizes", "__rootdirs__"}


def is_name(name: object) -> bool:
    """Return whether a text is the relative name of a file in a dataset (I9)."""
    is_text = isinstance(name, str) and not re.search(r"[\\\0]", name)
    return is_text and not {"", ".", ".."} & {*name.split("/")}


def is_list(value: object) -> bool:
    """Return whether a value is a list of files with a right digest (J2)."""
    files = value.get("files") if isinstance(value, dict) else None
    text = json.dumps(files, sort_keys=True).encode()
    return isinstance(files, dict) and value.get("crc32") == f"{zlib.crc32(text):08x}"


class Folder:
    """A folder of a dataset, whose files are read as its document says (J3, J5)."""

    def __init__(self, path: str) -> None:
        self.path, self.copy, self.copies, self.new = path, None, None, {}

    def member(self, name: str, copies: dict) -> Folder:
        """Return the folder of a member, which may have a copy of its document."""
        inner = Folder(f"{self.path}/{name}")
        names = (each for each in self.new if each.startswith(name + "/"))
        inner.new = {each.removeprefix(name + "/"): self.new[each] for each in names}
        if name in copies:
            inner.copy = json.dumps(copies[name], indent=2).encode() + b"\n"
        inside = [each for each in copies if each.startswith(name + "/")]
        inner.copies = {n.removeprefix(name + "/"): copies[n] for n in inside}
        return inner

    def take_list(self, raw: bytes) -> None:
        """Find the new contents of files, which a document lists (J2, J4)."""
        document = blp.parse_json(raw)
        document = document if isinstance(document, dict) else {}
        values = document.get("attributes") if "zarr_format" in document else document
        values = values if isinstance(values, dict) else {}
        if PENDING not in values:
            has_traces = PENDING.encode() in raw or any(map(is_list, values.values()))
            is_damage = has_traces and is_signed(raw) and not words_in(document, raw)
            return check("J4", not is_damage)
        check("J2", is_list(values[PENDING]))
        files = values[PENDING]["files"]
        check("J2", all(map(is_name, files)) and not DOCUMENTS & {*files})
        new = {name: staged for name, staged in files.items() if staged is not None}
        check("J2", all(is_name(each) and "/" not in each for each in new.values()))
        counts = copies_in(document) is not None and words_in(document, raw)
        check("J4", document.get("node_type") != "group" or counts)
        place = self.path + "/.bloscpack"
        self.new = {name: each and (place, each) for name, each in files.items()}

    def read(self, name: str, most: int = LARGEST_DOCUMENT) -> bytes | None:
        """Return the content of a document or file; None if there is none."""
        places = [*filter(None, (self.new.get(name), (self.path, name)))]
        if name in self.new and self.new[name] is None:
            places = []
        found = next((place for place in places if is_file(*place)), None)
        raw = Path(*found).read_bytes() if found else None
        check("M7", len(raw or b"") <= most)
        if self.copy is None or name != "zarr.json":
            return raw
        own = attempt(blp.parse_json, raw or b"")
        is_copy = isinstance(own, Refused) or "column" in (words_in(own, raw) or {})
        return self.copy if is_copy else self.merged(own) or raw

    def merged(self, own: object) -> bytes | None:
        """Return the copy with attributes written over an older document, if any."""
        copy = blp.parse_json(self.copy)
        stated, known = ([*values_in(each), ""][0] for each in (own, copy))
        is_part = says_committed(own) and says_committed(copy)
        if not is_part or stated == known:
            return None
        if stated.split()[0] != known.split()[0]:
            return self.copy if self.new else None
        older, newer = own.get("attributes", {}), copy["attributes"]
        if not isinstance(older, dict) or type(own.get("bloscpack", {})) is not dict:
            return None
        kept = {k: v for k, v in newer.items() if k in (KEY, "column-order")}
        older = {k: v for k, v in older.items() if k not in (KEY, "column-order")}
        return json.dumps(copy | {"attributes": newer | older | kept}).encode()


def copies_in(document: dict) -> dict | None:
    """Return the documents of members in that of a group, if it has any (J5)."""
    inline = document.get("consolidated_metadata")
    is_right = document.get("node_type") == "group" and isinstance(inline, dict)
    copies = inline.get("metadata") if is_right and KEY in inline else None
    if not isinstance(copies, dict):
        return None
    return {name: restored(copy) for name, copy in copies.items()}


def restored(copy: object) -> object:
    """Return the document in the file of a member, from its copy (J5)."""
    inline = copy.get("consolidated_metadata") if isinstance(copy, dict) else None
    if not isinstance(inline, dict) or KEY not in inline:
        return copy
    document = {k: v for k, v in copy.items() if k != "consolidated_metadata"}
    if isinstance(document.get("attributes"), dict):
        document["attributes"] = {**document["attributes"], KEY: inline[KEY]}
    return document


def words_in(document: object, raw: bytes) -> dict[str, str] | None:
    """Return the words of the identity in a document; None if it is not own."""
    places = [document, *document.values()] if isinstance(document, dict) else []
    return next(filter(None, (identity_of(each, raw) for each in places)), None)


def is_file(folder: str, name: str) -> bool:
    """Return whether a file is there; links, and a folder in its place, break I9."""
    paths = [*itertools.accumulate([folder, *name.split("/")], os.path.join)]
    is_linked = any(map(os.path.islink, paths[1:]))
    check("I9", not is_linked and not os.path.isdir(paths[-1]))
    return os.path.isfile(paths[-1])


# Folders


def attempt(function, *arguments: object) -> object:
    """Return what a function returns, or why something is refused."""
    try:
        return function(*arguments)
    except Refused as error:
        return error


def reader_of(path: str) -> Callable[[Folder], dict] | None:
    """Return the function that reads a folder; None if it is no dataset."""
    folder = Folder(path)
    raw = folder.read("zarr.json")
    node = None if raw is None else attempt(describe_node, raw)
    is_new = isinstance(node, dict) and "bloscpack-unfinished" in node["attributes"]
    if raw is not None:
        return None if is_new and node["kind"] == "group" else read_node  # J6
    storage = folder.read("meta/storage", sys.maxsize) or b""
    if b'"superchunk"' in storage or b'"superchunklen"' in storage:
        return read_superchunks
    others = map(folder.read, ("__rootdirs__", "meta/storage", ".zarray", ".zgroup"))
    supports("foreign", all(other is None for other in others))
    inner = [each.path for each in folders_in(path) if each.name != ".bloscpack"]
    return read_group if any(attempt(reader_of, each) for each in inner) else None


def folders_in(path: str) -> list[os.DirEntry]:
    """Return the folders in a folder; a link is none."""
    return [each for each in os.scandir(path) if each.is_dir(follow_symlinks=False)]


def read_folder(path: str) -> dict | None:
    """Return the tree of a folder; None if it is no dataset."""
    reader = reader_of(path)
    return reader(Folder(path)) if reader else None


def json_in(path: str) -> object:
    """Return the document in a folder; None if it is missing or no JSON."""
    with contextlib.suppress(Refused, OSError):
        return blp.parse_json(Path(path, "zarr.json").read_bytes())
    return None


def part_of(path: str) -> Folder | None:
    """Return a folder as a part of the tree around it; None if it is none (J9)."""
    own = json_in(path)
    around, names, may_be_lost = path, [], own is not None
    while own is None or may_be_part(path, own):
        around, name = os.path.split(around)
        names.insert(0, name)
        outer = json_in(around)
        if not name or (outer is None and not may_be_lost):
            return None
        may_be_lost = True
        if outer is not None and not says_committed(outer):
            return attempt_part(Folder(around), "/".join(names))
    return None


def may_be_part(path: str, own: object) -> bool:
    """Return whether a node whose document is `own` may be a part."""
    if any(" column=" in value for value in values_in(own, broken=True)):
        return True
    attributes = own.get("attributes") if isinstance(own, dict) else None
    is_table = isinstance(attributes, dict) and "column-order" in attributes
    return is_table and not words_in(own, Path(path, "zarr.json").read_bytes())


def attempt_part(root: Folder, name: str) -> Folder | None:
    """Return a part of a tree; None if the document of the tree does not have it."""
    with contextlib.suppress(Refused):
        raw = root.read("zarr.json") or b""
        root.take_list(raw)
        node = describe_node(raw)
        order = node["attributes"].get("column-order")
        listed = order if node["copies"] is None else node["copies"]
        if isinstance(listed, (list, dict)) and name in listed:
            return root.member(name, node["copies"] or {})
    return None


def read_group(folder: Folder, attributes: dict | None = None) -> dict:
    """Return a group of the folders in a folder, of which it may commit some (J5)."""
    names = [each.name for each in folders_in(folder.path) if is_member(each.name)]
    members = {name: (folder, name) for name in names}
    return group_of(attributes or {}, read_named, members)


def read_named(folder: Folder, name: str) -> dict | None:
    """Return the tree of a member of a group; None if there is none."""
    path, copies = f"{folder.path}/{name}", folder.copies
    if copies is None:
        return read_folder(path)
    if says_committed(copies.get(name)):
        return read_node(folder.member(name, copies))
    if name not in copies:  # it may be what is left of a member that was removed
        raw = Folder(path).read("zarr.json") or b""
        document = attempt(blp.parse_json, raw)
        if not raw and reader_of(path) is read_group:
            return None
        if "column" in (words_in(document, raw) or {}):
            return None
    return read_folder(path)


def says_committed(document: object) -> bool:
    """Return whether a document says that another one has a copy of it."""
    return any(" column=" in value for value in values_in(document))


def values_in(document: object, *, broken: bool = False) -> list[str]:
    """Return the values of identities in a document, whatever their digests (I2)."""
    places = [document, *document.values()] if isinstance(document, dict) else []
    values = [str(each.get(KEY)) for each in places if isinstance(each, dict)]
    is_right = (WORDS.fullmatch(each.encode("utf-8", "replace")) for each in values)
    return [v for v, right in zip(values, is_right, strict=True) if right or broken]


def group_of(attributes: dict, function: Callable, arguments: dict[str, tuple]) -> dict:
    """Return a group; each of its members is a tree, or why it is refused."""
    members = {name: attempt(function, *each) for name, each in arguments.items()}
    members = {name: tree for name, tree in members.items() if tree is not None}
    return {"kind": "group", "attributes": attributes, "members": members}


def is_member(name: str) -> bool:
    """Return whether a folder with this name may be a member of a group (V2)."""
    refused = re.match(r"zarr\.json$|\.*$|.*([/\\]|\.bloscpack)", name, re.DOTALL)
    spaces = [c for c in name if unicodedata.category(c)[0] in "CZ" and c != " "]
    return not refused and not spaces


def read_node(folder: Folder) -> dict:
    """Return the tree of a node of Zarr."""
    raw = folder.read("zarr.json") or b""
    if folder.copies is None:
        folder.take_list(raw)
    node, columns = describe_node(raw), {}
    if folder.copies is None and node.get("copies") is not None:
        folder.copies = node["copies"]
    attributes = node["attributes"]
    if node["kind"] == "array":
        return node["tree"] | {"items": read_items(folder, node)}
    if "column-order" not in attributes:
        return read_group(folder, attributes)
    order = attributes.pop("column-order")
    check("V2", isinstance(order, list) and all(map(is_name, order)))
    check("V2", len({*order}) == len(order) and "/" not in "".join(order))
    for name in order:
        inner = folder.member(name, folder.copies or {})
        check("I9", not os.path.islink(inner.path))
        check("V2", os.path.isdir(inner.path))
        raw = inner.read("zarr.json")
        check("V2", raw is not None)
        column = describe_node(raw)
        crc32 = f"{zlib.crc32(name.encode('utf-8', 'surrogatepass')):08x}"
        stated = (column["own"] or {}).get("column", crc32)
        check("V2", column["kind"] == "array" and column["shape"])
        check("V14", stated == crc32)
        columns[name] = column["tree"] | {"items": read_items(inner, column)}
    lengths = {each["shape"][0] for each in columns.values()}
    check("V2", not node["copies"] or len(lengths) < 2)
    return {"kind": "table", "attributes": attributes, "columns": columns}


# Nodes of Zarr

INDEX = [{"name": "bytes", "configuration": {"endian": "little"}}, "crc32c"]
WORDS = re.compile(rb"id=([0-9a-f]{16})(?: [a-z]+=[0-9a-f]+)* crc32=([0-9a-f]{8})")
KEYS = "zarr_format node_type shape data_type chunk_grid chunk_key_encoding fill_value "
KEYS += "codecs attributes dimension_names storage_transformers"
TYPES = "bool=b1 int8=i1 int16=i2 int32=i4 int64=i8 uint8=u1 uint16=u2 uint32=u4 "
TYPES += "uint64=u8 float16=f2 float32=f4 float64=f8 complex64=c8 complex128=c16 "
TYPES += "null_terminated_bytes=S fixed_length_utf32=U numpy.datetime64=M8 "
TYPES += "numpy.timedelta64=m8"
KINDS = dict(word.split("=") for word in TYPES.split())
UNITS = re.compile("[YMWDhms]|[munpfaμ]s|generic")
FLOATS = "NaN", "Infinity", "-Infinity"


def identity_of(place: object, raw: bytes) -> dict[str, str] | None:
    """Return the words of an identity in an object; None if its digest is wrong."""
    value = place.get(KEY) if isinstance(place, dict) else None
    stored = value.encode("utf-8", "replace") if isinstance(value, str) else b""
    found, at = WORDS.fullmatch(stored), raw.rfind(stored) + len(stored)
    if not found or at < len(stored):
        return None
    right = zlib.crc32(raw[: at - 8] + b"0" * 8 + raw[at:]) == int(found[2], 16)
    return dict(w.split("=") for w in value.split()) if right else None


def is_signed(raw: bytes) -> bool:
    """Return whether a document has had an identity, as far as its bytes show (I4)."""
    return KEY.encode() in raw or bool(WORDS.search(raw))


def describe_node(raw: bytes) -> dict:
    """Return what the document of a node says."""
    document = blp.parse_json(raw)
    check("V1", isinstance(document, dict))
    kind, attributes = document.get("node_type"), document.get("attributes", {})
    is_3 = repr(document.get("zarr_format")) == "3"
    is_known = kind in ("array", "group")
    if not is_signed(raw):  # it may be of another format
        supports("V12", is_3 or "zarr_format" not in document)
        supports("V12", not is_3 or is_known or not isinstance(kind, str))
    check("V1", is_3 and is_known and isinstance(attributes, dict))
    user = {k: v for k, v in attributes.items() if k not in (KEY, PENDING)}
    copies, text, own = copies_in(document), None, {KEY: attributes.get(KEY)}
    if kind == "array":
        copies = None
        old = {MARK: user.pop(MARK)} if MARK in user else {}
        stated = document.get("bloscpack", {})
        own = {**own, **old, **stated} if isinstance(stated, dict) else {}
    elif copies is not None:
        own = document["consolidated_metadata"]
    words = identity_of(own, raw)
    copies = copies if words else None
    for name in copies or ():
        inner = {"zarr.json", ".bloscpack"} & {*name.split("/")}
        check("J8", is_name(name) and not inner)
    node = {"kind": kind, "own": words, "attributes": user, "copies": copies}
    node["of Z3"] = False
    if kind == "array":
        first = document.get("codecs") or [None]
        first = first[0] if isinstance(first, list) else None
        is_copy = "bytes" in (first, isinstance(first, dict) and first.get("name"))
        damaged = not words and not is_copy and is_signed(raw)
        try:
            describe_array(node, document)
        except NotSupported as error:
            raise (Refused("I13") if damaged else error) from error
        if "new-items" in own:
            with blp.breaking("I11"):
                item_of(own["new-items"], node["dtype"], node["size"])
        node["sparse"] = MARK in own or not words
        text = user.get("_FillValue") if node["dtype"][1] == "f" else None
    if isinstance(text, str) and re.fullmatch("[0-9A-Za-z+/]{11}=", text):  # V11
        (user["_FillValue"],) = struct.unpack("<d", base64.b64decode(text))
    return node


def named(value: object, rule: str) -> tuple[str, dict]:
    """Return name and configuration of a codec, a data type, and so on (V3)."""
    value = {"name": value} if isinstance(value, str) else value
    supports(rule, isinstance(value, dict))
    name, settings = value.get("name"), value.get("configuration", {})
    supports(rule, isinstance(name, str) and isinstance(settings, dict))
    return name, settings


def codecs_of(value: object) -> tuple[list[str], dict[str, dict]]:
    """Return the names of codecs, and their configurations."""
    supports("V6", isinstance(value, list))
    codecs = [named(codec, "V6") for codec in value]
    return [name for name, _ in codecs], dict(codecs)


def describe_array(node: dict, document: dict) -> None:
    """Add what the document of an array says, in the order of the checks."""
    for key in {*document} - {*KEYS.split()}:
        is_object = isinstance(document[key], dict)
        supports("V3", is_object and document[key].get("must_understand") is False)
    supports("V3", document.get("storage_transformers", []) == [])
    shape = document.get("shape")
    check("V4", is_shape(shape))
    grid, settings = named(document.get("chunk_grid"), "V16")
    supports("V16", grid == "regular")
    shard = settings.get("chunk_shape")
    check("V4", is_shape(shard, 1) and len(shard) == len(shape))
    encoding, settings = named(document.get("chunk_key_encoding"), "V7")
    supports("V7", (encoding, settings.get("separator", "/")) == ("default", "/"))
    names, settings = codecs_of(document.get("codecs"))
    supports("V6", names == ["sharding_indexed"])
    sharding = settings["sharding_indexed"]
    names, settings = codecs_of(sharding.get("index_codecs", INDEX))
    supports("V6", names == ["bytes", "crc32c"])
    supports("V6", settings["bytes"].get("endian") == "little")
    supports("V6", sharding.get("index_location", "end") == "end")
    chunk = sharding.get("chunk_shape")
    check("V4", is_shape(chunk, 1) and len(chunk) == len(shape))
    names, settings = codecs_of(sharding.get("codecs"))
    stated = document.get("data_type")
    is_text = TEXT in (stated, isinstance(stated, dict) and stated.get("name"))
    first = "vlen-utf8" if is_text else "bytes"
    supports("V6", names == [first, "blosc", "crc32c"])
    endian = settings[first].get("endian", sys.byteorder)
    supports("V5", endian in ("little", "big"))
    dtype, size = type_of(document.get("data_type"), "<" if endian == "little" else ">")
    supports("V16", size <= 64 << 20)
    fill = item_of(document.get("fill_value"), dtype, size)
    check("V4", size * math.prod(n or 1 for n in shape) <= blp.LARGEST)
    per = [s // c for s, c in zip(shard, chunk) if s % c == 0]
    supports("V16", len(per) == len(shape))
    supports("V16", size * math.prod(chunk) <= blp.LARGEST_CHUNK)
    supports("V16", math.prod(per) <= 2**20 or math.prod(per[1:]) == 1)
    axes = document.get("dimension_names")
    check("V15", axes is None or (isinstance(axes, list) and len(axes) == len(shape)))
    check("V15", all(axis is None or isinstance(axis, str) for axis in axes or []))
    node["name"] = lambda place: "/".join(["c", *map(str, place)])
    node |= {"shape": shape, "shard": shard, "chunk": chunk, "dtype": dtype}
    node["tree"] = {k: node[k] for k in ("kind", "attributes", "dtype", "shape")}
    node |= {"size": size, "fill": fill, "of Z3": len(shape) > 0}


def type_of(value: object, order: str) -> tuple[str, int]:
    """Return type and item size (V5)."""
    name, settings = named(value, "V5")
    if name == TEXT:
        return TEXT, 1
    kind = KINDS.get(name)
    supports("V5", kind)
    if kind in ("S", "U"):
        size, unit = settings.get("length_bytes"), 4 if kind == "U" else 1
        supports("V5", is_shape([size], 1) and size < 2**31 and size % unit == 0)
        kind += str(size // unit)
    elif kind in ("M8", "m8"):
        unit, scale = str(settings.get("unit")), settings.get("scale_factor", 1)
        supports("V5", UNITS.fullmatch(unit) and is_shape([scale], 1) and scale < 2**31)
        kind += "" if unit == "generic" else f"[{scale}{unit.replace('μ', 'u')}]"
    return blp.describe_type(order + kind)


def item_of(value: object, dtype: str, size: int) -> bytes:
    """Return the bytes of a fill value (V8)."""
    (order, kind), is_text = dtype[:2], isinstance(value, str)
    if dtype == TEXT:
        check("V8", is_text and not re.search("[\ud800-\udfff]", value))
        return value
    endian = "big" if order == ">" else "little"
    if kind == "c":
        check("V8", isinstance(value, list) and len(value) == 2)
        return b"".join(item_of(part, order + "f", size // 2) for part in value)
    with blp.breaking("V8", ValueError):
        if kind in "SU":
            check("V8", is_text)
            wide = value.encode(f"utf-32-{endian[0]}e", "surrogatepass")
            item = wide if kind == "U" else base64.b64decode(value, None, True)
            check("V8", len(item) <= size)
            return item.ljust(size, b"\0")
    if kind == "f" and is_text and re.fullmatch(f"0x[0-9A-Fa-f]{{{2 * size}}}", value):
        return bytes.fromhex(value[2:])[:: 1 if order == ">" else -1]
    if kind == "f":
        check("V8", value in FLOATS or type(value) in (int, float))
        with np.errstate(over="ignore"):
            return np.array(float(str(value))).astype(f"{order}f{size}").tobytes()
    value = -(2**63) if kind in "mM" and value == "NaT" else value
    check("V8", type(value) is (bool if kind == "b" else int))
    with blp.breaking("V8", OverflowError):
        return value.to_bytes(size, endian, signed=kind in "imM")


# Files of chunks


def read_items(folder: Folder, node: dict) -> bytes:
    """Return the items of an array in C order."""
    shape, size, sparse = node["shape"], node["size"], node["sparse"]
    is_text = node["dtype"] == TEXT
    total = size * math.prod(shape)
    if not total:
        return b"[]" if is_text else b""
    check("F4", total <= 2**28)  # a limit of this program
    parts, counts = [], [-(-n // s) for n, s in zip(shape, node["shard"])]
    for number in range(math.prod(counts)):
        place = tuple(map(int, np.unravel_index(number, counts)))
        data = folder.read(node.get("prefix", "") + node["name"](place), sys.maxsize)
        check(node.get("rule", "I7"), data is not None or sparse)
        if data is not None:
            parts += read_shard_file(data, node, place)
    if not is_text:
        return blp.joined(parts, shape, node["chunk"], node["fill"])
    items = np.full(shape, node["fill"], object)
    for where, texts in parts:
        box = items[(*(slice(p * c, p * c + c) for p, c in zip(where, node["chunk"])),)]
        found = np.array(texts, object).reshape(node["chunk"])
        box[...] = found[tuple(map(slice, box.shape))]
    return json.dumps(items.reshape(-1).tolist()).encode()


def read_shard_file(data: bytes, node: dict, place: tuple) -> list[tuple[tuple, bytes]]:
    """Return the chunks of a file that have items, with their places in the array."""
    shard, chunk, rule = node["shard"], node["chunk"], node.get("rule")
    part = [min(s, n - p * s) for n, s, p in zip(node["shape"], shard, place)]
    per = [s // c for s, c in zip(shard, chunk)]
    start = len(data) - 16 * math.prod(per) - 4
    check(rule or "V9", start >= 0)
    index, digest = data[start:-4], data[-4:]
    check(rule or "V9", digest == blp.digest_of(9, index))
    entries = [*struct.iter_unpack("<QQ", index)]
    most = 2**31 - 17 if node["dtype"] == TEXT else node["size"] * math.prod(chunk)
    for at, n in entries:
        is_inside = 20 <= n <= most + 20 and at + n <= start
        check("V9", (at, n) == blp.MISSING or is_inside)
    starts = {at for at, n in entries if (at, n) != blp.MISSING}
    by_others = not rule and (not starts or 0 in starts)  # I7
    if not by_others:
        compare(data, node, node["name"](place), part)
    found = []
    for inner in itertools.product(*(range(-(-m // c)) for m, c in zip(part, chunk))):
        at, n = entries[np.ravel_multi_index(inner, per) if per else 0]
        if (at, n) != blp.MISSING:
            where = tuple(p * w + i for p, w, i in zip(place, per, inner))
            found.append((where, plain_of(data[at : at + n], node)))
        check(rule or "I7", node["sparse"] or by_others or (at, n) != blp.MISSING)
    return found


def plain_of(data: bytes, node: dict) -> bytes:
    """Return the plain bytes of a chunk (V9)."""
    with blp.breaking("V9", UnicodeDecodeError, struct.error):
        chunk, stop = blp.read_frame(data, 0, 9)
        check("V9", stop == len(data))
        if node["dtype"] == TEXT:
            return texts_of(blp.decompress(chunk), math.prod(node["chunk"]))
        n = node["size"] * math.prod(node["chunk"])
        check("V9", chunk[4:8] == struct.pack("<I", n))
        return blp.decompress(chunk)


def texts_of(plain: bytes, count: int) -> list[str]:
    """Return the items in a chunk of text (G9)."""
    numbers, at, texts = struct.unpack_from("<I", plain), 4, []
    check("G9", numbers == (count,))
    for _ in range(count):
        (size,) = struct.unpack_from("<I", plain, at)
        texts.append(plain[at + 4 : at + 4 + size].decode())
        at += 4 + size
    check("G9", at == len(plain))
    return texts


def compare(data: bytes, node: dict, name: str, part: list[int]) -> None:
    """Compare header and metadata of a file of chunks with the documents (I8)."""
    front, own = attempt(blp.read_front, data), node["own"]
    check(str(front), not isinstance(front, Refused))  # also what is not supported
    metadata = front.metadata
    is_text = isinstance(metadata, dict) and metadata.get("container") == "vlen-utf8"
    if is_text:  # the other keys are those of a grid of bytes (G9)
        metadata = {**metadata, "container": "grid", "dtype": "'|V1'"}
    dtype, _, shape, _ = blp.describe(metadata)
    dtype = TEXT if is_text else dtype
    check("I8", dtype == node["dtype"] and len(shape) == len(part))
    chunk, shard = metadata.get("chunks"), metadata.get("shard")
    if metadata["container"] == "numpy":
        check("I8", type(shard) is int)
        chunk, shard = [shard, *shape[1:]], node["shard"]
    check("I8", (chunk, shard) == (node["chunk"], node["shard"]))
    if "place" in metadata:
        place = metadata["place"]
        check("I8", isinstance(place, str) and place[16:] == "/" + name)
        check("I8", not own or place[:16] == own["id"])
    check("I8", node["sparse"] or all(a >= b for a, b in zip(shape, part)))


# Superchunks


def read_superchunks(folder: Folder) -> dict:
    """Return an array or a table (D)."""
    folder.take_list(folder.read("meta/sizes") or b"{}")
    sizes = read_document(folder, "sizes")
    storage = read_document(folder, "storage")
    identity, kind = storage[KEY][3:19], storage.get("kind")
    supports("D11", repr(storage.get("superchunk")) == "1")
    check("D3", kind in ("array", "table"))
    columns = storage.get("columns") if kind == "table" else [storage]
    if kind == "table":
        check("D3", isinstance(columns, list) and columns)
        names = [isinstance(each, dict) and each.get("name") for each in columns]
        check(
            "D3", all(isinstance(n, str) and n and names.count(n) == 1 for n in names)
        )
        ids = (repr(column.get("id")) for column in columns)
        check("I5", all(re.fullmatch("'[0-9a-f]{16}'", each) for each in ids))
    for column in columns:
        check_storage(column)
    check("I5", sizes[KEY][3:19] == identity)
    shape = sizes.get("shape")
    check("D2", is_shape(shape) and len(shape) > 0)
    check("D2", shape[1:] == ([] if kind == "table" else storage["inner"]))
    user = read_document(folder, "attributes", identity)
    if kind == "array":
        storage["id"] = identity
        return read_part(folder, storage, shape[:1], "data/") | {"attributes": user}
    of_columns, trees = read_document(folder, "columns", identity), {}
    check("D3", all(isinstance(each, dict) for each in of_columns.values()))
    for column in columns:
        name = column["name"]
        tree = read_part(folder, column, shape, f"data/{folder_name(name)}/")
        trees[name] = tree | {"attributes": of_columns.get(name, {})}
    return {"kind": "table", "attributes": user, "columns": trees}


def read_document(folder: Folder, name: str, identity: str | None = None) -> dict:
    """Return storage or sizes, or the attributes in another document (I5)."""
    rule = "I5" if name in ("storage", "sizes") else "I16"
    raw = folder.read("meta/" + name)
    check(rule, raw is not None)
    document = blp.parse_json(raw)
    words = identity_of(document, raw)
    check(rule, words and identity in (None, words["id"]))
    document = document if rule == "I5" else document.get(name)
    check(rule, isinstance(document, dict))
    return document


def check_storage(storage: dict) -> None:
    """Check the storage of an array or a column, and add type and item size (D4)."""
    text, inner, default = (storage.get(key) for key in ("dtype", "inner", "dflt"))
    rows, more = storage.get("chunklen"), storage.get("superchunklen")
    is_text = isinstance(text, str) and text[:1] in ("'", '"', "[")
    check("D4", is_text and is_shape(inner))
    with blp.breaking("D4"):
        array = {"container": "numpy", "dtype": text, "shape": inner}
        dtype, size, *_ = blp.describe(array)
    supports("D12", size <= 64 << 20)
    check("D4", [*leaves(dtype)] and is_shape([rows, more], 1))
    check("D4", rows <= blp.LARGEST_CHUNK and more % rows == 0)
    for names, _, leaf, shape in leaves(dtype):
        check("D4", "" not in names)  # A3
        check("D4", rows * leaf * math.prod(inner + shape) <= blp.LARGEST_CHUNK)
    with blp.breaking("D4", ValueError, TypeError):
        item = base64.b64decode(default or "", validate=True)
        check("D4", default is None or len(item) == size)
    storage |= {"dtype": dtype, "size": size}


def leaves(dtype: object) -> Iterator[tuple[list[str], object, int, list[int]]]:
    """Return names, type, item size and shape of the leaves of a type (D5)."""
    if isinstance(dtype, str):
        yield [], dtype, blp.describe_type(dtype)[1], []
        return
    for name, kind, *shape in dtype:
        name = name if isinstance(name, str) else name[1]
        for names, leaf, size, inner in leaves(kind):
            yield [name, *names], leaf, size, [*itertools.chain(*shape), *inner]


def folder_name(name: str) -> str:
    """Return the name of a folder for a field or a column (D6)."""
    if name in (".", "..", ""):
        return name.replace(".", "%2E") or "%"
    return re.sub(r'["%*/:<>?\\|\0-\x1f\x7f]', lambda m: f"%{ord(m[0]):02X}", name)


def read_part(folder: Folder, part: dict, length: list[int], data: str) -> dict:
    """Return an array or a column without its attributes."""
    dtype, rows, more = part["dtype"], part["chunklen"], part["superchunklen"]
    shape = length + part["inner"]
    check("D2", part["size"] * math.prod(n or 1 for n in shape) <= blp.LARGEST)
    node = {"sparse": False, "own": part, "prefix": data, "rule": "D8"}
    items = []
    for names, leaf, size, inner in leaves(dtype):
        row, path = shape[1:] + inner, "".join(folder_name(n) + "/" for n in names)
        node |= {"shape": shape[:1] + row, "dtype": leaf, "size": size}
        node |= {"shard": [more, *row], "chunk": [rows, *row], "fill": bytes(size)}
        node["name"] = lambda place, path=path: f"{path}__{place[0] + 1}__.bin"
        items.append(read_items(folder, node))
    plain = join(dtype, items[::-1], math.prod(shape)).tobytes()
    return {"kind": "array", "dtype": dtype, "shape": shape, "items": plain}


def join(dtype: object, leaves: list[bytes], count: int) -> np.ndarray:
    """Return items as rows of bytes; takes the last ones of the leaves of fields."""
    rest = -1 if count else 0
    if isinstance(dtype, str):
        return np.frombuffer(leaves.pop(), "u1").reshape(count, rest)
    fields = [np.empty((count, 0), "u1")]
    for _, kind, *shape in dtype:
        inner = join(kind, leaves, count * math.prod(itertools.chain(*shape)))
        fields.append(inner.reshape(count, rest))
    return np.concatenate(fields, axis=1)


# Archives

# The name of an array, for a document or for chunks (Z8).
PARTS = re.compile(r"(.*?)(?:(/zarr\.json)|/c(?:/0)+|\.blp)", re.DOTALL)
# The beginning and the name of the first member of an archive.
HEADER = re.compile(rb"PK\x03\x04-\0..\0{4}!\0.{4}\xff{8}", re.DOTALL)
FIRST = re.compile(rb"(.*/)?(zarr\.json|c(/0)+)|.+\.blp", re.DOTALL)


def read_archive(data: bytes) -> dict | None:
    """Return the arrays of an archive; None if the file is none (Z)."""
    name = data[30:262][: int.from_bytes(data[26:28], "little")]
    is_group = data[:4] == b"PK\3\4" and data[30:39] == b"zarr.json"
    begins = is_group or (HEADER.match(data) and FIRST.fullmatch(name))
    members: dict[str, SimpleNamespace] = {}
    try:
        entries, end = read_directory(data)
        members = {each.name: each for each in entries if each.name[-1:] != "/"}
        for entry in sorted(entries, key=lambda each: -each.start):
            check("Z13", 0 <= entry.start <= end - 30 - len(entry.raw) - entry.stored)
            entry.end, end = end, entry.start
        supports("T1", "zarr.json" in members)
    except Refused:
        if begins:
            raise
        return None
    sizes = read_list(members["zarr.json"])
    known = {
        each[: slash.start()] for each in sizes for slash in re.finditer("/", each)
    }
    for name in members.keys() - {"zarr.json", *sizes} if sizes else ():
        if name.removesuffix("/zarr.json") not in known:
            check("Z21", is_named(members[name]))
    names = {**sizes, **members}
    arrays = {
        name: (members, sizes, name, chunks)
        for name, chunks in arrays_in(names, members).items()
    }
    return group_of({}, array_in, arrays)


def read_list(entry: SimpleNamespace) -> dict[str, int]:
    """Return the sizes of members that the document of the group lists (Z7)."""
    if entry.method or entry.flags & 0x2041 or entry.size > LARGEST_DOCUMENT:
        return {}
    with blp.breaking("Z22"):
        raw = read_member(entry)
    check("Z22", zlib.crc32(raw) == entry.crc32)
    value = attempt(blp.parse_json, raw, "M7")
    for key in ("attributes", "bloscpack-members"):
        value = value.get(key) if isinstance(value, dict) else None
    sizes, digest = map((value or {}).get, ("sizes", "digest"))
    if not isinstance(digest, str) or not re.fullmatch("crc32=[0-9a-f]{8}", digest):
        return {}
    at = raw.rfind(digest.encode()) + len("crc32=")
    is_right = zlib.crc32(raw[:at] + b"0" * 8 + raw[at + 8 :]) == int(digest[6:], 16)
    is_list = isinstance(sizes, dict) and all(type(n) is int for n in sizes.values())
    if not (is_right and is_list):
        return {}
    for name in sizes:
        nbytes = len(name.encode(errors="surrogatepass"))
        supports("Z18", name.count("/") < 250 and nbytes < 2**16)
    return sizes


def read_directory(data: bytes) -> tuple[list[SimpleNamespace], int]:
    """Return the entries of the directory, and where it begins (Z2)."""
    ends = [found.start() for found in re.finditer(b"PK\5\6", data)]
    comments = [int.from_bytes(data[at + 20 : at + 22], "little") for at in ends]
    ends = [at for at, n in zip(ends, comments) if at + 22 + n == len(data)]
    check("Z2", ends)
    end = ends[-1]
    fields = struct.unpack_from("<4H2I", data, end + 4)
    if data[:end][-20:-16] == b"PK\6\7":
        disk, disks = struct.unpack_from("<I8xI", data, end - 16)
        check("Z2", disk == 0 and disks <= 1)
        end -= 76
        check("Z2", end >= 0 and data[end : end + 4] == b"PK\6\6")
        fields = struct.unpack_from("<2I4Q", data, end + 16)
    disk, first, here, total, size, offset = fields
    supports("Z12", disk == first == 0 and here == total and size <= 2**24)
    start = at = end - size
    check("Z2", offset <= start)
    entries = []
    while at < end:
        check("Z2", at + 46 <= end and data[at : at + 4] == b"PK\1\2")
        supports("Z12", data[at + 6] <= 63)
        fields = struct.unpack_from("<2H4I5H2I", data, at + 8)
        flags, method, _, crc32, stored, size, *sizes, disk, _, _, where = fields
        name_end = at + 46 + sizes[0]
        raw = data[at + 46 : min(name_end, end)]
        extra = data[name_end : min(name_end + sizes[1], end)]
        at += 46 + sum(sizes)
        size, stored, where = large([size, stored, where], extra)
        check("Z2", disk == 0)
        check("Z13", method != 0 or size == stored)
        with blp.breaking("Z2", UnicodeDecodeError):
            name = raw.decode("utf-8" if flags & 2048 else "cp437")
        entry = SimpleNamespace(flags=flags, method=method, crc32=crc32)
        entry.raw, entry.name, entry.data = raw, name, data
        entry.size, entry.stored, entry.start = size, stored, where + start - offset
        entries.append(entry)
    check("Z2", len(entries) == total)
    return entries, start


def large(numbers: list[int], extra: bytes) -> list[int]:
    """Return numbers of which some may be in the field of Zip64 of an entry (Z2)."""
    fields = {}
    while len(extra) >= 4:
        number, size = struct.unpack_from("<HH", extra)
        check("Z14", 4 + size <= len(extra))
        fields.setdefault(number, extra[4 : 4 + size])
        extra = extra[4 + size :]
    field = fields.get(1)
    for i, number in enumerate(numbers):
        if number == 2**32 - 1 and field is not None:
            check("Z14", len(field) >= 8)
            numbers[i], field = int.from_bytes(field[:8], "little"), field[8:]
    return numbers


def is_named(entry: SimpleNamespace) -> bool:
    """Return whether the local header of a member has its name (Z1, Z7)."""
    data, at = entry.data, entry.start
    flags, length = (struct.unpack_from("<H", data, at + n)[0] for n in (6, 26))
    is_right = data[at : at + 4] == b"PK\3\4" and not (flags ^ entry.flags) & 2048
    return is_right and data[at + 30 : at + 30 + length] == entry.raw


def is_later(entry: SimpleNamespace) -> bool:
    """Return whether the local header of a member itself has all numbers (Z7)."""
    data, at = entry.data, entry.start
    fields = struct.unpack_from("<H4x3I2H", data, at + 8)
    method, crc32, stored, size, length, more = fields
    begin = at + 30 + length
    extra = data[begin : begin + min(more, 20)].ljust(20, b"\xff")
    if 2**32 - 1 in (size, stored) and extra[:4] == b"\1\0\x10\0":
        size, stored = struct.unpack_from("<2Q", extra, 4)
    found = method, crc32, size, stored
    expected = entry.method, entry.crc32, entry.size, entry.stored
    return is_named(entry) and found == expected


def read_member(entry: SimpleNamespace) -> bytes:
    """Return the bytes of a member (Z1)."""
    data, at = entry.data, entry.start
    fields = struct.unpack_from("<2H4I2H", data, at + 6)
    flags, method, _, crc32, stored, size, length, more = fields
    begin, changed = at + 30 + length + more, flags ^ entry.flags
    check("Z1", method == entry.method and not changed & 0x2041)
    supports("Z9", method == 0 and not flags & 0x2041)
    check("Z1", data[at : at + 4] == b"PK\3\4" and not changed & 2048)
    check("Z1", data[at + 30 : at + 30 + length] == entry.raw)
    sizes, extra = [size, stored], data[begin - more : begin].ljust(20, b"\xff")
    if 2**32 - 1 in sizes and extra[:4] == b"\1\0\x10\0":
        large = struct.unpack_from("<2Q", extra, 4)
        sizes = [m if n == 2**32 - 1 else n for n, m in zip(sizes, large)]
    behind = {0} if flags & 8 else set()
    check("Z1", crc32 in {entry.crc32} | behind)
    check("Z1", {*sizes} <= {entry.size, 2**32 - 1} | behind)
    check("Z1", begin + entry.size <= entry.end)
    return data[begin : begin + entry.size]


def arrays_in(
    names: dict[str, object], members: dict[str, SimpleNamespace]
) -> dict[str, str | None]:
    """Return names of arrays, and maybe others, with the members of chunks (Z8)."""
    chunks, others = {}, set()
    for path in (path for path in names if path.count("/") < 250):
        if found := PARTS.fullmatch(path):
            chunks.setdefault(found[1], []).extend([] if found[2] else [path])
        starts = (path[: c.start()] for c in re.finditer(r"/c(?=/(?!0(/0)*\Z))", path))
        others |= {name for name in starts if name + "/zarr.json" in members}
    for name, paths in chunks.items():
        chunks[name] = [path for path in paths if path in members] or paths
    chunks = {n: c for n, c in chunks.items() if n not in others or n + ".blp" in c}
    check("Z24", all(len(paths) < 2 for paths in chunks.values()))
    parts = {part for name in chunks for part in name.split("/")}
    check("Z27", parts.isdisjoint({"", ".", ".."}))
    check("Z27", {*"\\\0"}.isdisjoint("".join(parts)))
    return {name: paths[0] if paths else None for name, paths in chunks.items()}


def array_in(members: dict, sizes: dict, name: str, chunks: str | None) -> dict | None:
    """Return an array; None if the members are none."""
    entry, found = members.get(name + "/zarr.json"), members.get(chunks)
    check("Z19", chunks not in sizes or found)
    if chunks in sizes and found.size != sizes[chunks]:
        check("Z20", is_later(found))
        has_version = read_member(found)[:4] == b"blpk"
        supports("Z25", has_version or chunks == name + ".blp")
    node = None if chunks == name + ".blp" else attempt(document_of, entry)
    refused = isinstance(node, Refused)
    if chunks is None:
        right = isinstance(node, NotSupported) if refused else not node["of Z3"]
        names = [
            found[1] for found in map(PARTS.fullmatch, {*sizes, *members}) if found
        ]
        check("Z8", right or any(each.startswith(name + "/") for each in names))
        return None
    if refused:
        raise node
    check("Z3", node is None or node["kind"] == "array")
    supports("Z3", node is None or node["of Z3"])
    data = read_member(members[chunks])
    tree = blp.read_array(data)
    if tree is None:
        blp.read(data)
        raise NotSupported("Z26")
    if node:
        check("Z3", blp.layout_of(data) == 3)
        check("Z3", all(node[key] == tree[key] for key in ("shape", "dtype")))
        check("Z3", chunks == name + "/c" + "/0" * len(tree["shape"]))
    return tree


def document_of(entry: SimpleNamespace | None) -> dict:
    """Return the node of the document of an array."""
    check("Z8", entry)
    raw = read_member(entry)
    check("Z10", len(raw) <= LARGEST_DOCUMENT and zlib.crc32(raw) == entry.crc32)
    return describe_node(raw)
