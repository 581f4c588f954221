"""The part of `independent_datasets` for archives (Z)."""

from __future__ import annotations

import re
import struct
import zlib
from typing import NamedTuple

from format.independent_arrays import normal, read_array
from format.independent_reader import Refused, check, parse_json, read_front
from format.independent_shards import read_shard
from format.independent_zarr import describe_node


class Entry(NamedTuple):
    """An entry of the directory."""

    flags: int
    method: int
    crc32: int
    stored: int
    size: int
    start: int
    name: bytes
    extra: dict[int, bytes]


def read_archive(data: bytes) -> dict | None:
    """Return the arrays of an archive; None if the file is none."""
    is_archive = data[:4] == b"PK\3\4" and data[30:39] == b"zarr.json"
    try:
        entries, start = read_directory(data)
    except Refused:
        if is_archive:
            raise
        return None
    names = [text_of(entry) for entry in entries]
    if not is_archive and "zarr.json" not in names:
        return None
    ends, end = {}, start
    for entry in sorted(entries, key=lambda entry: -entry.start):
        check("Z2", 0 <= entry.start)
        check("Z2", entry.start + 30 + len(entry.name) + entry.stored <= end)
        fields = entry.flags, entry.method, entry.crc32, entry.size
        digest = zlib.crc32(struct.pack("<HHIQ", *fields) + entry.name)
        stated = entry.extra.get(28738, struct.pack("<I", digest))
        check("Z7", stated == struct.pack("<I", digest))
        ends[entry.start] = end
        end = entry.start
    members = {
        name: (entry, ends[entry.start])
        for name, entry in zip(names, entries)
        if not name.endswith("/")
    }
    archive = Archive(data, members)
    arrays = {name: archive.array(name, found) for name, found in archive.list()}
    return {"kind": "group", "attributes": archive.attributes(), "members": arrays}


def text_of(entry: Entry) -> str:
    try:
        return entry.name.decode("utf-8" if entry.flags & 2048 else "cp437")
    except ValueError as error:
        raise Refused("Z2") from error


def read_directory(data: bytes) -> tuple[list[Entry], int]:
    """Return the entries of the directory, and where it begins."""
    at = len(data)
    while True:
        at = data.rfind(b"PK\5\6", 0, at + 3)
        check("Z2", at >= 0)
        if data[at + 20 : at + 22] == struct.pack("<H", (len(data) - at - 22) % 65536):
            if at + 22 <= len(data):
                break
    disk, first, here, total, size, offset = struct.unpack_from("<4H2I", data, at + 4)
    end = at
    if at >= 76 and data[at - 20 : at - 16] == b"PK\6\7":
        end = at - 76
        check("Z2", data[end : end + 4] == b"PK\6\6")
        fields = struct.unpack_from("<2I4Q", data, end + 16)
        disk, first, here, total, size, offset = fields
    check("Z2", disk == first == 0 and here == total)
    check("Z2", size <= min(end, 2**24))
    start = position = end - size
    shift = start - offset
    check("Z2", shift >= 0)
    entries: list[Entry] = []
    while position < end:
        entry, position = read_entry(data, position, end, shift)
        entries.append(entry)
    check("Z2", len(entries) == total)
    return entries, start


def read_entry(data: bytes, at: int, end: int, shift: int) -> tuple[Entry, int]:
    check("Z2", at + 46 <= end and data[at : at + 4] == b"PK\1\2")
    fields = struct.unpack_from("<HHIIIIHHHHHII", data, at + 8)
    flags, method, _, crc32, stored, size, name, extra, comment, disk, *_, start = (
        fields
    )
    stop = at + 46 + name + extra + comment
    check("Z2", stop <= end)
    text = data[at + 46 : at + 46 + name]
    fields = extra_fields(data[at + 46 + name : at + 46 + name + extra])
    size, stored, start = large([size, stored, start], fields)
    check("Z2", disk in (0, 65535) and (method != 0 or size == stored))
    return Entry(flags, method, crc32, stored, size, start + shift, text, fields), stop


def extra_fields(extra: bytes) -> dict[int, bytes]:
    fields = {}
    while len(extra) >= 4:
        number, size = struct.unpack_from("<HH", extra)
        fields.setdefault(number, extra[4 : 4 + size])
        extra = extra[4 + size :]
    return fields


def large(numbers: list[int], extra: dict[int, bytes]) -> list[int]:
    """Return numbers of which some may be in the field of Zip64."""
    field = extra.get(1, b"")
    for i, number in enumerate(numbers):
        if number == 2**32 - 1 and len(field) >= 8:
            numbers[i], field = int.from_bytes(field[:8], "little"), field[8:]
    return numbers


class Archive:
    """The members of an archive, each with the end of its extent."""

    def __init__(self, data: bytes, members: dict[str, tuple[Entry, int]]) -> None:
        self.data, self.members = data, members

    def read(self, name: str, *, is_document: bool) -> bytes:
        """Return the bytes of a member (Z1)."""
        entry, end = self.members[name]
        data, at = self.data, entry.start
        check("Z1", entry.method == 0 and not entry.flags & 1)
        check("Z1", data[at : at + 4] == b"PK\3\4" and at + 30 <= end)
        fields = struct.unpack_from("<HHIIIIHH", data, at + 6)
        flags, method, _, crc32, stored, size, length, more = fields
        begin = at + 30 + length + more
        check("Z1", data[at + 30 : at + 30 + length] == entry.name)
        check("Z1", method == 0 and not (flags ^ entry.flags) & 2048 and not flags & 1)
        local = extra_fields(data[begin - more : begin])
        found = [crc32, *large([size, stored], local)]
        for number, expected in zip(found, (entry.crc32, entry.size, entry.stored)):
            check("Z1", number == expected or (flags & 8 and number == 0))
        check("Z1", begin + entry.size <= end)
        content = data[begin : begin + entry.size]
        check("Z1", not is_document or zlib.crc32(content) == entry.crc32)
        return content

    def attributes(self) -> dict:
        try:
            document = parse_json(self.read("zarr.json", is_document=True))
            attributes = document.get("attributes", {})
        except (Refused, KeyError, AttributeError):
            return {}
        return attributes if isinstance(attributes, dict) else {}

    def describe(self, name: str) -> dict:
        """Return the node of a document."""
        raw = self.read(name + "/zarr.json", is_document=True)
        return describe_node(parse_json(raw), raw)

    def list(self) -> list[tuple[str, str | None]]:
        """Return the names of all arrays, each with the member of its chunks (Z8)."""
        chunks: dict[str, list[str]] = {}
        others = set()
        for name in self.members:
            if name.endswith(".blp"):
                chunks.setdefault(name[:-4], []).append(name)
            elif found := re.fullmatch(r"(.+?)/c((?:/.*)?)", name, re.DOTALL):
                if re.fullmatch("(/0)+", found[2]):
                    chunks.setdefault(found[1], []).append(name)
                else:
                    others.add(found[1])
        arrays: list[tuple[str, str | None]] = []
        for name, found in chunks.items():
            if name not in others or name + ".blp" in found:
                check("Z8", len(found) == 1)
                arrays.append((name, found[0]))
        for path in self.members:
            name = path[: -len("/zarr.json")]
            if path.endswith("/zarr.json") and name not in chunks.keys() | others:
                if self.is_lost(name):
                    arrays.append((name, None))
        return arrays

    def is_lost(self, name: str) -> bool:
        """Return whether a document without chunks is that of an array."""
        start = name + "/"
        has_members = any(
            other.startswith(start) for other in {*self.members} - {start + "zarr.json"}
        )
        try:
            node = self.describe(name)
        except Refused as error:
            return error.args[0] in DAMAGE and not has_members
        return node["kind"] == "array" and is_shard_node(node)

    def array(self, name: str, member: str | None) -> dict | Refused:
        """Return an array, or why it is refused."""
        try:
            check("Z8", member is not None)
            if member == name + ".blp":
                return self.file(member)
            check("Z8", name + "/zarr.json" in self.members)
            node = self.describe(name)
            check("Z3", node["kind"] == "array" and is_shard_node(node))
            tree = self.file(member)
            data = self.read(member, is_document=False)
            header = read_front(data)[0].header
            check("Z3", header.layout == 3 and header.checksum == 9)
            try:
                check("Z3", read_shard(data) is not None)
            except Refused as error:
                raise Refused("Z3") from error
            stated = node["shape"], node["dtype"], len(node["shape"])
            axes = member[len(name) :].count("/0")
            check("Z3", stated == (tree["shape"], normal(tree["dtype"]), axes))
        except Refused as error:
            return error
        return tree | {"attributes": node["attributes"]}

    def file(self, member: str) -> dict:
        tree = read_array(self.read(member, is_document=False))
        check("A12", tree is not None)
        return tree


DAMAGE = {"Z1", "M7", "V1", "I4", "V8"}


def is_shard_node(node: dict) -> bool:
    """Return whether a document is one of Z3."""
    place = (0,) * len(node["shape"])
    return node["ours"] and node["name"](place) == "c" + "/0" * len(place)
