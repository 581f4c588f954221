"""A file of layout 2 or 3 in parts that can be changed one by one, to any value.

Shares nothing with the package but the specification. `take_apart` and `Parts.join`
undo each other for every sound file; what has been changed is joined as it is, except
that digests are made right, so that what lies behind them is reached.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from format import independent_reader

SIZES = [
    len(independent_reader.digest_of(number, b""))
    for number in range(len(independent_reader.CHECKSUMS))
]

# Name and bits of every number in a record, in order; texts have a minus.
HEADER = {
    "magic": -32, "format_version": 8, "options": 8, "checksum": 8, "typesize": 8,
    "chunk_size": 32, "last_chunk": 32, "nchunks": 64, "max_app_chunks": 64,
}  # fmt: skip
METADATA = {
    "magic_format": -64, "meta_options": 8, "meta_checksum": 8, "meta_codec": 8,
    "meta_level": 8, "meta_size": 32, "max_meta_size": 32, "meta_comp_size": 32,
    "user_codec": -64,
}  # fmt: skip
CHUNK = {
    "version": 8, "versionlz": 8, "flags": 8, "typesize": 8,
    "nbytes": 32, "blocksize": 32, "ctbytes": 32,
}  # fmt: skip

OFFSETS, METADATA_SECTION = 1, 2
Choose = Callable[[int], int]


def size_of(fields: dict[str, int]) -> int:
    """Return the bytes of a record."""
    return sum(map(abs, fields.values())) // 8


def decode(fields: dict[str, int], data: bytes) -> dict:
    """Return the record that `data` starts with, numbers without sign."""
    record, position = {}, 0
    for name, bits in fields.items():
        raw = data[position : position + abs(bits) // 8]
        position += len(raw)
        record[name] = raw if bits < 0 else int.from_bytes(raw, "little")
    return record


def encode(fields: dict[str, int], record: dict) -> bytes:
    """Return a record as bytes; numbers that are too large lose their upper bits."""
    return b"".join(
        record[name].ljust(-bits // 8, b"\0")[: -bits // 8]
        if bits < 0
        else (record[name] % 2**bits).to_bytes(bits // 8, "little")
        for name, bits in fields.items()
    )


def digest_of(number: int, data: bytes) -> bytes:
    """Return a digest, that of no checksum for a number that has none."""
    return independent_reader.digest_of(number, data) if number < len(SIZES) else b""


class Chunk:
    """A chunk; ``digest`` None is made right."""

    def __init__(self, record: dict, rest: bytes, digest: bytes | None = None) -> None:
        self.record = record
        self.rest = rest
        self.digest = digest

    def join(self) -> bytes:
        return encode(CHUNK, self.record) + self.rest

    def copy(self) -> Chunk:
        return Chunk(dict(self.record), self.rest, self.digest)


class Parts:
    """All of a file; ``meta_digest`` None is made right, ``tail`` lies at the end."""

    def __init__(self, header: dict) -> None:
        self.header = header
        self.metadata: dict | None = None
        self.stored = self.room = b""
        self.meta_digest: bytes | None = None
        self.offsets: list[int] = []
        self.chunks: list[Chunk] = []
        self.tail = b""

    def join(self) -> bytes:
        """Return the bytes of the file."""
        pieces = [encode(HEADER, self.header)]
        if self.metadata is not None:
            digest = self.meta_digest
            if digest is None:
                digest = digest_of(self.metadata["meta_checksum"], self.stored)
            pieces += [encode(METADATA, self.metadata), self.stored, self.room, digest]
        pieces += [(entry % 2**64).to_bytes(8, "little") for entry in self.offsets]
        for chunk in self.chunks:
            joined, digest = chunk.join(), chunk.digest
            if digest is None:
                digest = digest_of(self.header["checksum"], joined)
            pieces += [joined, digest]
        return b"".join([*pieces, self.tail])

    def records(self) -> list[tuple[dict[str, int], dict]]:
        """Return the fields and the content of every record."""
        found = [(HEADER, self.header)]
        if self.metadata is not None:
            found.append((METADATA, self.metadata))
        return found + [(CHUNK, chunk.record) for chunk in self.chunks]


def take_apart(data: bytes) -> Parts:
    """Return the parts of a sound file of layout 2 or 3; ValueError for others."""
    parts = Parts(decode(HEADER, data))
    header = parts.header
    if header["magic"] != b"blpk" or header["format_version"] not in (2, 3):
        raise ValueError("not a file of layout 2 or 3")
    position = size_of(HEADER)

    def take(size: int) -> bytes:
        nonlocal position
        if not 0 <= size <= len(data) - position:
            raise ValueError("the file ends too early")
        position += size
        return data[position - size : position]

    if header["options"] & METADATA_SECTION:
        parts.metadata = decode(METADATA, take(size_of(METADATA)))
        parts.stored = take(parts.metadata["meta_comp_size"])
        parts.room = take(parts.metadata["max_meta_size"] - len(parts.stored))
        take(SIZES[parts.metadata["meta_checksum"]])
    unknown = header["nchunks"] == 2**64 - 1
    if header["options"] & OFFSETS and not unknown:
        free = header["max_app_chunks"] if header["format_version"] == 3 else 0
        table = take(8 * (header["nchunks"] + free))
        parts.offsets = list(struct.unpack("<%dq" % (len(table) // 8), table))
    while position < len(data) if unknown else len(parts.chunks) < header["nchunks"]:
        record = decode(CHUNK, take(size_of(CHUNK)))
        parts.chunks.append(Chunk(record, take(record["ctbytes"] - size_of(CHUNK))))
        take(SIZES[header["checksum"]])
    parts.tail = data[position:]
    return parts


def set_offsets(parts: Parts) -> None:
    """Let the offset table say where the chunks are."""
    position = len(parts.join()) - len(parts.tail)
    sizes = [
        len(chunk.join()) + len(digest_of(parts.header["checksum"], b""))
        for chunk in parts.chunks
    ]
    position -= sum(sizes)
    for i, size in enumerate(sizes[: len(parts.offsets)]):
        parts.offsets[i] = position
        position += size


# Changes, decided by `choose`, which returns a number below the one it is given


def other_number(old: int, bits: int, choose: Choose) -> int:
    largest = 2**bits - 1
    numbers = (
        old + 1,
        old - 1,
        0,
        1,
        largest,  # -1, where numbers have a sign
        largest // 2,
        largest // 2 + 1,
        2**31 - 17,  # the largest chunk
        2**31 - 16,
        old * 2,
        old // 2,
        old ^ 1 << choose(bits),
        choose(2**bits),
        choose(300),
    )
    return numbers[choose(len(numbers))]


def change_number(parts: Parts, choose: Choose) -> None:
    """Give one number of one record another value."""
    records = parts.records()
    fields, record = records[choose(len(records))]
    names = [name for name, bits in fields.items() if bits > 0]
    name = names[choose(len(names))]
    record[name] = other_number(record[name], fields[name], choose)


def swap_numbers(parts: Parts, choose: Choose) -> None:
    """Swap two numbers of one record."""
    records = parts.records()
    fields, record = records[choose(len(records))]
    names = [name for name, bits in fields.items() if bits > 0]
    one, other = names[choose(len(names))], names[choose(len(names))]
    record[one], record[other] = record[other], record[one]


def change_entry(parts: Parts, choose: Choose) -> None:
    """Change an entry of the offset table, or how many there are."""
    i = choose(len(parts.offsets) + 1)
    if i < len(parts.offsets):
        parts.offsets[i] = other_number(parts.offsets[i], 64, choose)
    elif choose(2):
        parts.offsets.append(choose(400) - 1)
    else:
        del parts.offsets[-1:]


def change_chunks(parts: Parts, choose: Choose) -> None:
    """Repeat, drop or swap chunks; the header may still be right."""
    if not parts.chunks:
        return
    i, j = choose(len(parts.chunks)), choose(len(parts.chunks))
    kind = choose(4)
    if kind == 0:
        parts.chunks.insert(j, parts.chunks[i].copy())
    elif kind == 1:
        del parts.chunks[i]
    elif kind == 2:
        parts.chunks[i], parts.chunks[j] = parts.chunks[j], parts.chunks[i]
    else:
        parts.chunks.insert(j, parts.chunks[i].copy())
        parts.header["nchunks"] += 1
        parts.offsets.insert(0, 0)
        set_offsets(parts)


def changed_text(data: bytes, choose: Choose) -> bytes:
    i = choose(len(data) + 1)
    kind = choose(5)
    if kind == 0:
        return data[:i]
    if kind == 1:
        return data[:i] + bytes([choose(256)]) + data[i:]
    if kind == 2:
        return data[:i] + data[i + 1 :]
    if kind == 3:
        return data[:i] + data[i : i + 1 + choose(8)] + data[i:]
    return data[:i] + bytes([choose(256)]) + data[i + 1 :]


def change_content(parts: Parts, choose: Choose) -> None:
    """Change bytes of a chunk or of the metadata, their sizes mostly kept right."""
    keep = choose(4)
    i = choose(len(parts.chunks) + 1)
    if i < len(parts.chunks):
        chunk = parts.chunks[i]
        chunk.rest = changed_text(chunk.rest, choose)
        if keep:
            chunk.record["ctbytes"] = len(chunk.rest) + size_of(CHUNK)
    elif parts.metadata is not None:
        parts.stored = changed_text(parts.stored, choose)
        if keep:
            room = len(parts.stored) + len(parts.room)
            parts.metadata["meta_comp_size"] = len(parts.stored)
            parts.metadata["max_meta_size"] = room
            if not parts.metadata["meta_codec"]:
                parts.metadata["meta_size"] = len(parts.stored)


def change_digest(parts: Parts, choose: Choose) -> None:
    """Make one digest wrong or of another length."""
    i = choose(len(parts.chunks) + 1)
    wrong = bytes([choose(256)]) * choose(9)
    if i < len(parts.chunks):
        parts.chunks[i].digest = wrong
    else:
        parts.meta_digest = wrong


def change_end(parts: Parts, choose: Choose) -> None:
    """Put something behind the last chunk."""
    tail = [b"more", bytes(16), b"\xff" * 40]
    if parts.chunks:
        tail.append(parts.chunks[0].join()[: choose(40)])
    parts.tail = tail[choose(len(tail))]


CHANGES = (
    change_number,
    change_number,
    change_number,
    swap_numbers,
    change_entry,
    change_chunks,
    change_content,
    change_content,
    change_digest,
    change_end,
)


def change(parts: Parts, choose: Choose) -> None:
    """Change something; afterwards the offset table is right again half of the time."""
    CHANGES[choose(len(CHANGES))](parts, choose)
    if choose(2):
        set_offsets(parts)


def with_right_digests(data: bytes) -> bytes:
    """Return any bytes with digests made right, as far as they can be found."""
    if len(data) < size_of(HEADER):
        return data
    fixed = bytearray(data)
    header, position = decode(HEADER, data), size_of(HEADER)
    if header["options"] & METADATA_SECTION:
        metadata = decode(METADATA, data[position:].ljust(size_of(METADATA), b"\0"))
        start = position + size_of(METADATA)
        stored = data[start : start + metadata["meta_comp_size"]]
        position = start + metadata["max_meta_size"]
        digest = digest_of(metadata["meta_checksum"], stored)
        if position + len(digest) <= len(data):
            fixed[position : position + len(digest)] = digest
        position += len(digest)
    if header["options"] & OFFSETS and header["nchunks"] != 2**64 - 1:
        position += 8 * (header["nchunks"] + header["max_app_chunks"])
    while position + size_of(CHUNK) <= len(data):
        ctbytes = decode(CHUNK, data[position : position + 16])["ctbytes"]
        end = position + ctbytes
        digest = digest_of(header["checksum"], data[position:end])
        if ctbytes < size_of(CHUNK) or end + len(digest) > len(data):
            break
        fixed[end : end + len(digest)] = digest
        position = end + len(digest)
    return bytes(fixed)
