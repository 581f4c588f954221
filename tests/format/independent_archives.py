"""The part of `independent_datasets` for archives (Z)."""

from __future__ import annotations

import re
import struct
import zlib
from typing import NamedTuple

from format.independent_arrays import read_array
from format.independent_reader import (
    NotSupported,
    Refused,
    check,
    parse_json,
    read_front,
)
from format.independent_zarr import describe_node


class Entry(NamedTuple):
    """An entry of the directory; the extent ends at `end` or earlier."""

    flags: int
    method: int
    crc32: int
    stored: int
    size: int
    start: int
    name: bytes
    digest: bytes | None
    end: int = 0


def read_archive(data: bytes) -> dict | None:
    """Return the arrays of an archive; None if the file is none."""
    is_archive = data[:4] == b"PK\3\4" and data[30:39] == b"zarr.json"
    try:
        entries, end = read_directory(data)
        names = [e.name.decode("utf-8" if e.flags & 2048 else "cp437") for e in entries]
    except (Refused, ValueError) as error:
        if not is_archive:
            return None
        raise Refused("Z2") from error
    if not is_archive and "zarr.json" not in names:
        return None
    members = {}
    for i in sorted(range(len(entries)), key=lambda i: entries[i].start, reverse=True):
        entry = entries[i]
        check("Z2", 0 <= entry.start <= end - 30 - len(entry.name) - entry.stored)
        fields = entry.flags, entry.method, entry.crc32, entry.size
        digest = zlib.crc32(struct.pack("<HHIQ", *fields) + entry.name)
        check("Z7", entry.digest in (None, struct.pack("<I", digest)))
        entries[i], end = entry._replace(end=end), entry.start
    members = {n: e for n, e in zip(names, entries) if not n.endswith("/")}
    archive = Archive(data, members)
    arrays = {name: archive.array(name, chunks) for name, chunks in archive.arrays()}
    return {"kind": "group", "attributes": {}, "members": arrays}


def read_directory(data: bytes) -> tuple[list[Entry], int]:
    """Return the entries of the directory, and where it begins (Z2)."""
    end, found = len(data), -1
    while found != len(data):
        end = data.rfind(b"PK\5\6", 0, end + 3)
        check("Z2", end >= 0)
        found = end + 22 + int.from_bytes(data[end + 20 : end + 22], "little")
    fields = struct.unpack_from("<4H2I", data, end + 4)
    if end >= 76 and data[end - 20 : end - 16] == b"PK\6\7":
        end -= 76
        check("Z2", data[end : end + 4] == b"PK\6\6")
        fields = struct.unpack_from("<2I4Q", data, end + 16)
    disk, first, here, total, size, offset = fields
    check("Z2", disk == first == 0 and here == total and size <= min(end, 2**24))
    start = at = end - size
    check("Z2", offset <= start)
    entries: list[Entry] = []
    while at < end:
        check("Z2", at + 46 <= end and data[at : at + 4] == b"PK\1\2")
        fields = struct.unpack_from("<2H4I5H2I", data, at + 8)
        flags, method, _, crc32, stored, size, *sizes, disk, _, _, where = fields
        stop = at + 46 + sum(sizes)
        check("Z2", stop <= end)
        at += 46 + sizes[0]
        name, extra = data[at - sizes[0] : at], extra_fields(data[at : at + sizes[1]])
        size, stored, where = large([size, stored, where], extra)
        check("Z2", disk in (0, 65535) and (method != 0 or size == stored))
        numbers = flags, method, crc32, stored, size, where + start - offset
        entries.append(Entry(*numbers, name, extra.get(28738)))
        at = stop
    check("Z2", len(entries) == total)
    return entries, start


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


class Archive(NamedTuple):
    """The members of an archive by their names."""

    data: bytes
    members: dict[str, Entry]

    def read(self, name: str) -> bytes:
        """Return the bytes of a member (Z1)."""
        entry, data = self.members[name], self.data
        at = entry.start
        check("Z1", entry.method == 0 and not entry.flags & 0x2041)
        check("Z1", data[at : at + 4] == b"PK\3\4")
        fields = struct.unpack_from("<2H4I2H", data, at + 6)
        flags, method, _, crc32, stored, size, length, more = fields
        begin = at + 30 + length + more
        check("Z1", data[at + 30 : at + 30 + length] == entry.name)
        check(
            "Z1",
            method == 0 and not (flags ^ entry.flags) & 2048 and not flags & 0x2041,
        )
        size, stored = large([size, stored], extra_fields(data[begin - more : begin]))
        free = (0,) if flags & 8 else ()
        check("Z1", crc32 in (entry.crc32, *free))
        check("Z1", size in (entry.size, *free) and stored in (entry.size, *free))
        check("Z1", begin + entry.size <= entry.end)
        return data[begin : begin + entry.size]

    def document(self, name: str) -> dict:
        """Return the node of a document."""
        raw = self.read(name)
        check("Z1", zlib.crc32(raw) == self.members[name].crc32)
        return describe_node(parse_json(raw), raw)

    def arrays(self) -> list[tuple[str, str | None]]:
        """Return the names of all arrays, each with the member of its chunks (Z8)."""
        chunks: dict[str, list[str]] = {}
        others, documents = set(), []
        for path in self.members:
            found = re.fullmatch(r"(.+?)/c(|/.*)", path, re.DOTALL)
            if path.endswith(".blp"):
                chunks.setdefault(path[:-4], []).append(path)
            elif path.endswith("/zarr.json"):
                documents.append(path[:-10])
            elif found and re.fullmatch("(/0)+", found[2]):
                chunks.setdefault(found[1], []).append(path)
            elif found:
                others.add(found[1])
        arrays: list[tuple[str, str | None]] = []
        for name, paths in chunks.items():
            if name not in others or name + ".blp" in paths:
                check("Z8", len(paths) == 1)
                arrays.append((name, paths[0]))
        lost = [n for n in documents if n not in chunks.keys() | others]
        return arrays + [(name, None) for name in lost if self.is_lost(name)]

    def is_lost(self, name: str) -> bool:
        """Return whether a document without chunks is that of an array."""
        try:
            return is_of_shard(self.document(name + "/zarr.json"))
        except NotSupported:
            return False
        except Refused:
            return sum(n.startswith(name + "/") for n in self.members) == 1

    def array(self, name: str, chunks: str | None) -> dict | Refused:
        """Return an array, or why it is refused."""
        document = name + "/zarr.json"
        try:
            check("Z8", chunks is not None)
            if chunks == name + ".blp":
                return self.file(chunks)
            check("Z8", document in self.members)
            node = self.document(document)
            check("Z3", is_of_shard(node))
            tree = self.file(chunks)
            header = read_front(self.read(chunks))[0].header
            check("Z3", header.layout == 3)
            check("Z3", all(node[key] == tree[key] for key in ("shape", "dtype")))
            check("Z3", chunks == name + "/c" + "/0" * len(node["shape"]))
        except Refused as error:
            return error
        return tree | {"attributes": {}}

    def file(self, member: str) -> dict:
        tree = read_array(self.read(member))
        check("A12", tree is not None)
        return tree


def is_of_shard(node: dict) -> bool:
    """Return whether a document is one of Z3."""
    place = (0,) * len(node.get("shape", []))
    name = "c" + "/0" * len(place)
    return node["kind"] == "array" and node["ours"] and node["name"](place) == name
