"""Writes the invalid files: a sound file each, of which one thing has been changed.

``python tests/invalid/make.py`` writes them again, byte for byte, whatever versions of
Blosc and zlib are there. `FILES` names the rules of docs/format.rst that each breaks;
what a reader has to say to it stands in ``MANIFEST.json``.
"""

from __future__ import annotations

import json
import struct
import sys
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))

from format.undo_records import states, take_apart  # noqa: E402
from fuzz.parts import (  # noqa: E402
    CHUNK,
    HEADER,
    METADATA,
    Chunk,
    Parts,
    digest_of,
    encode,
    set_offsets,
    size_of,
)
from fuzz.trailers import MISSING, Break, Trailer, add_trailer, row_of  # noqa: E402

DESCRIPTION = {"dtype": "'<i4'", "shape": [10], "order": "C", "container": "numpy"}
PLAIN = struct.pack("<10i", *range(10))
CHUNK_SIZE, LAST_CHUNK = 32, 8
UNKNOWN = 2**64 - 1
LARGEST_CHUNK = 2**31 - 17


def copied(plain: bytes) -> Chunk:
    """Return a chunk that holds a copy of `plain`."""
    record = {
        "version": 2, "versionlz": 1, "flags": 0x13, "typesize": 4,
        "nbytes": len(plain), "blocksize": max(len(plain), 1),
        "ctbytes": len(plain) + size_of(CHUNK),
    }  # fmt: skip
    return Chunk(record, plain)


def blank() -> Parts:
    """Return a sound file: an array of ten numbers in two chunks, with everything."""
    parts = Parts(
        {
            "magic": b"blpk", "format_version": 3, "options": 3, "checksum": 1,
            "typesize": 4, "chunk_size": CHUNK_SIZE, "last_chunk": LAST_CHUNK,
            "nchunks": 2, "max_app_chunks": 1,
        }
    )  # fmt: skip
    describe(parts)
    parts.chunks = [copied(PLAIN[:CHUNK_SIZE]), copied(PLAIN[CHUNK_SIZE:])]
    parts.offsets = [-1, -1, -1]
    set_offsets(parts)
    return parts


def store(parts: Parts, text: bytes, room: int = 8, **fields: int) -> None:
    """Give a file metadata, which need not be JSON."""
    parts.metadata = {
        "magic_format": b"JSON", "meta_options": 0, "meta_checksum": 1, "meta_codec": 0,
        "meta_level": 6, "meta_size": len(text), "max_meta_size": len(text) + room,
        "meta_comp_size": len(text), "user_codec": b"", **fields,
    }  # fmt: skip
    parts.stored, parts.room = text, bytes(room)
    if parts.offsets:
        set_offsets(parts)


def describe(parts: Parts, **changes: object) -> None:
    """Give a file the metadata of its array, some of them changed or left out."""
    description = {**DESCRIPTION, **changes}
    kept = {key: value for key, value in description.items() if value is not Ellipsis}
    store(parts, json.dumps(kept, separators=(",", ":")).encode())


def deflated(text: bytes) -> bytes:
    """Return a zlib stream of one block that is not compressed."""
    size = struct.pack("<HH", len(text), len(text) ^ 0xFFFF)
    return b"\x78\x01\x01" + size + text + struct.pack(">I", zlib.adler32(text))


# Changes: functions of a file in parts, some made by functions

Change = Callable[[Parts], None]


def header(**fields: int | bytes) -> Change:
    return lambda parts: parts.header.update(fields)


def meta(**fields: int | bytes) -> Change:
    return lambda parts: parts.metadata.update(fields)


def text(data: bytes, **fields: int) -> Change:
    return lambda parts: store(parts, data, **fields)


def array(**changes: object) -> Change:
    return lambda parts: describe(parts, **changes)


def chunk(number: int, **fields: int) -> Change:
    return lambda parts: parts.chunks[number].record.update(fields)


def compressed(**fields: int) -> Change:
    """Make the first chunk one that Blosc has compressed, and change its header."""

    def change(parts: Parts) -> None:
        parts.chunks[0].record.update(flags=0x11, **fields)

    return change


def unknown(chunks: list[bytes], tail: bytes = b"", **fields: int) -> Change:
    """Leave the number of chunks open."""

    def change(parts: Parts) -> None:
        parts.header.update(nchunks=UNKNOWN, max_app_chunks=0, **fields)
        parts.offsets = []
        parts.chunks = [copied(plain) for plain in chunks]
        parts.tail = tail

    return change


def digest(parts: Parts) -> None:
    parts.chunks[1].digest = b"nope"


def other_checksum(parts: Parts) -> None:
    for part in parts.chunks:
        part.digest = struct.pack("<I", zlib.adler32(part.join()))
    parts.header["checksum"] = 2


def meta_digest(parts: Parts) -> None:
    parts.meta_digest = b"nope"


def gap(parts: Parts) -> None:
    parts.chunks[0].digest = struct.pack("<I", zlib.adler32(parts.chunks[0].join()))
    parts.chunks[0].digest += bytes(8)
    parts.offsets[1] += 8


def gap_behind_table(parts: Parts) -> None:
    parts.offsets.append(-1)
    parts.offsets[0] += 8
    parts.offsets[1] += 8


def swapped(parts: Parts) -> None:
    parts.offsets[:2] = parts.offsets[1], parts.offsets[0]


def entry(value: int) -> Change:
    def change(parts: Parts) -> None:
        parts.offsets[1] = value

    return change


def no_table(parts: Parts) -> None:
    parts.header.update(options=2, max_app_chunks=0)
    parts.offsets = []


def one_less(parts: Parts) -> None:
    """Leave the last chunk out of header, shape and table."""
    parts.header.update(nchunks=1, last_chunk=CHUNK_SIZE, max_app_chunks=2)
    describe(parts, shape=[8])
    parts.offsets[1] = -1


def full(parts: Parts) -> None:
    parts.header["max_app_chunks"] = 0
    del parts.offsets[-1]
    set_offsets(parts)


def one_item(parts: Parts) -> None:
    parts.header.update(chunk_size=4, last_chunk=4, nchunks=1)
    parts.chunks = [copied(PLAIN[:4])]
    parts.offsets = [-1, -1]
    describe(parts, shape=[])


def both(*changes: Change) -> Change:
    def change(parts: Parts) -> None:
        for one in changes:
            one(parts)

    return change


def grid(**changes: object) -> Change:
    """Cut 7 x 2 numbers into two chunks of 8 x 1, and change the metadata."""
    described = {"container": "grid", "shape": [7, 2], "chunks": [8, 1], **changes}
    return both(
        in_pieces(PLAIN[:CHUNK_SIZE], PLAIN[:CHUNK_SIZE]),
        lambda parts: describe(parts, **described),
    )


def in_pieces(*plain: bytes) -> Change:
    """Give a file with a table these chunks, the first of which is the largest."""

    def change(parts: Parts) -> None:
        parts.header.update(
            nchunks=len(plain),
            chunk_size=len(plain[0]),
            last_chunk=len(plain[-1]),
            max_app_chunks=2,
        )
        parts.chunks = [copied(piece) for piece in plain]
        parts.offsets = [-1] * (len(plain) + 2)
        set_offsets(parts)

    return change


def shard(
    *changes: Change,
    rows: int = CHUNK_SIZE // 4,
    trailer: bool = True,
    broken: Break | None = None,
) -> Change:
    """Make a file a shard with crc32c; `broken` makes its trailer wrong."""

    def change(parts: Parts) -> None:
        parts.header["checksum"] = 9
        both(*changes)(parts)
        description = json.loads(parts.stored)
        describe(parts, **{**description, "shard": rows})
        if not trailer:
            return
        row = 4
        for length in description["shape"][1:]:
            row *= length
        add_trailer(parts, rows * row, broken or (lambda trailer: None))

    return change


def with_blocks(broken: Break = lambda trailer: None, size: int = 8) -> Change:
    """Make a shard of two chunks with blocks of `size` bytes, and a table of blocks."""

    def cut(parts: Parts) -> None:
        parts.chunks = [blocked(chunk.rest, size) for chunk in parts.chunks]

    def change(trailer: Trailer) -> None:
        halves = PLAIN[:20], PLAIN[20:]
        trailer.rows = [row_of(blocked(half, size).join()) for half in halves]
        broken(trailer)

    return shard(HALVES, cut, rows=5, broken=change)


def blocked(plain: bytes, size: int = 8) -> Chunk:
    """Return a chunk that holds a copy of `plain`, in blocks of `size` bytes."""
    chunk = copied(plain)
    chunk.record["blocksize"] = size
    return chunk


def with_copy_and_blocks(broken: Break = lambda trailer: None) -> Change:
    """Make a shard of a chunk with blocks and a short one, and a table of blocks."""
    first = blocked(PLAIN[:CHUNK_SIZE])

    def cut(parts: Parts) -> None:
        parts.chunks[0] = first

    def change(trailer: Trailer) -> None:
        trailer.rows = [row_of(first.join())]
        broken(trailer)

    return shard(cut, broken=change)


def with_table_in_front(trailer: Trailer) -> None:
    """Put the table in front of the copy."""
    at, size = trailer.entries[1]
    trailer.entries[1] = at + len(trailer.table(b"")), size
    index = b"".join(struct.pack("<QQ", *entry) for entry in trailer.entries)
    trailer.separator += trailer.table(digest_of(9, index))
    trailer.rows = []


def set_row(number: int, row: bytes) -> Break:
    return lambda trailer: trailer.rows.__setitem__(number, row)


def in_row(number: int, at: int, by: int) -> Break:
    """Add to a number of a row: those are header, ends and digests in turn."""

    def change(trailer: Trailer) -> None:
        row = bytearray(trailer.rows[number])
        (value,) = struct.unpack_from("<I", row, 4 * at)
        struct.pack_into("<I", row, 4 * at, (value + by) % 2**32)
        trailer.rows[number] = bytes(row)

    return change


def trailing(data: bytes) -> Change:
    def change(parts: Parts) -> None:
        parts.tail += data

    return change


def entry_of(number: int, *value: int) -> Break:
    """Set an entry of the index."""

    def change(trailer: Trailer) -> None:
        trailer.entries[number] = value

    return change


def moved(number: int, *by: int) -> Break:
    """Add to both numbers of an entry of the index."""

    def change(trailer: Trailer) -> None:
        offset, nbytes = trailer.entries[number]
        trailer.entries[number] = offset + by[0], nbytes + by[1]

    return change


def set_in_trailer(**values: object) -> Break:
    return lambda trailer: trailer.__dict__.update(values)


def in_copy(rest: bytes, digest: bytes | None = None) -> Break:
    """Set the plain bytes of the padded copy, or its digest."""

    def change(trailer: Trailer) -> None:
        trailer.copy = copied(rest)
        trailer.copy.digest = digest
        offset, _ = trailer.entries[1]
        trailer.entries[1] = offset, len(rest) + size_of(CHUNK) + 4

    return change


def last_chunk_in_index(trailer: Trailer) -> None:
    """Let the index name the short chunk, not its copy."""
    offset, _ = trailer.entries[1]
    size = LAST_CHUNK + size_of(CHUNK) + 4
    trailer.entries[1] = offset - size - 8, size


def no_copy(trailer: Trailer) -> None:
    last_chunk_in_index(trailer)
    trailer.copy = None


def no_free_entry(trailer: Trailer) -> None:
    del trailer.entries[-1]


def another_entry(trailer: Trailer) -> None:
    trailer.entries.append((MISSING, MISSING))


def zlib_crc(trailer: Trailer) -> None:
    index = b"".join(struct.pack("<QQ", *entry) for entry in trailer.entries)
    trailer.crc = struct.pack("<I", zlib.crc32(index))


# Two chunks that are both full.
HALVES = both(in_pieces(PLAIN[:20], PLAIN[20:]), array())
# The padded copy of the last chunk.
PADDED = PLAIN[CHUNK_SIZE:].ljust(CHUNK_SIZE, b"\0")


# Whole files, made by hand


def joined(*changes: Change) -> bytes:
    parts = blank()
    both(*changes)(parts)
    return parts.join()


SOUND = joined()
CHUNKS = b"".join(part.join() for part in blank().chunks)
FIRST_CHUNK_AT = SOUND.index(blank().chunks[0].join())
LAYOUT_1 = struct.pack("<4sB3sq", b"blpk", 1, bytes(3), 2) + CHUNKS
LAYOUT_0 = struct.pack("<4sI", b"blpk", 2) + CHUNKS

NO_CHUNKS = encode(HEADER, {**blank().header, "options": 0, "max_app_chunks": 0,
    "chunk_size": 0, "last_chunk": 0, "nchunks": 0})  # fmt: skip


# Interrupted changes in place


def grown(parts: Parts) -> None:
    """Append ten numbers to the array of the blank file."""
    pieces = PLAIN[:CHUNK_SIZE], PLAIN[CHUNK_SIZE:] + PLAIN[:24], PLAIN[24:]
    parts.header.update(nchunks=3, last_chunk=16, max_app_chunks=0)
    parts.chunks = [copied(piece) for piece in pieces]
    parts.offsets = [-1, -1, -1]
    describe(parts, shape=[20])


# What an append overwrites: header and metadata, an entry, and the last chunk.
TABLE_AT, LAST_CHUNK_AT = FIRST_CHUNK_AT - 24, FIRST_CHUNK_AT + 52
OVERWRITTEN = [
    (0, TABLE_AT),
    (TABLE_AT + 16, 8),
    (LAST_CHUNK_AT, len(SOUND) - LAST_CHUNK_AT),
]
# The file behind each of the steps 1 to 4 of the append.
APPEND = states(SOUND, joined(grown), OVERWRITTEN)
# A change that stops behind step 3, and its record.
CHANGED, RECORD = take_apart(APPEND[2], len(OVERWRITTEN))


def undo(**changes: object) -> bytes:
    """Return the interrupted append with another record, whose digest is right."""
    return CHANGED + replace(RECORD, **changes).join()


def undo_extents(*extents: tuple[int, int], more: int = 0) -> bytes:
    """Return the interrupted append with other extents; `more` old bytes are there."""
    size = sum(size for _, size in extents) + more
    return undo(extents=[*extents], old=RECORD.old.ljust(size, b"\0")[:size])


def undo_old(at: int, new: bytes) -> bytes:
    """Return the interrupted append with other old bytes."""
    return undo(old=RECORD.old[:at] + new + RECORD.old[at + len(new) :])


BEGIN, ENTRY, CHUNK_1 = OVERWRITTEN

# name → (rules, change or bytes)
FILES: dict[str, tuple[str, Change | bytes]] = {
    # The file as a whole
    "empty": ("T3", b""),
    "short": ("T3", SOUND[:31]),
    "magic": ("T1", header(magic=b"BLPK")),
    "magic-missing": ("T1", SOUND[4:]),
    "version-4": ("T4 F3", header(format_version=4)),
    "version-0": ("T4", b"blpk" + bytes(28)),
    "version-255": ("T4 F3", header(format_version=255)),
    "development-1": ("L5", header(format_version=1)),
    "layout-0-count": ("F4", struct.pack("<4sI", b"blpk", 2**32 - 1) + CHUNKS),
    "layout-0-cut": ("C3 T2", LAYOUT_0[:-1]),
    "layout-1-count": (
        "F4", struct.pack("<4sB3sq", b"blpk", 1, bytes(3), 2**62) + CHUNKS,
    ),
    "layout-1-negative": (
        "H6", struct.pack("<4sB3sq", b"blpk", 1, bytes(3), -2) + CHUNKS,
    ),
    "layout-1-cut": ("C3", LAYOUT_1[:-1]),
    "count-no-table": ("F4", both(no_table, header(nchunks=2**60))),
    "count-table": ("O6 F4", header(nchunks=2**40)),
    "count-free": ("O6 F4", header(max_app_chunks=2**60)),
    # Header
    "last-too-large": ("H1", header(last_chunk=CHUNK_SIZE + 1)),
    "free-unknown": ("H2", header(nchunks=UNKNOWN)),
    "count-overflow": ("H3", header(max_app_chunks=2**63 - 1)),
    **{
        "options-%d" % bit: ("H6", header(options=3 | 1 << bit)) for bit in range(3, 8)
    },
    "options-2": ("X2", header(options=7)),
    "checksum-255": ("H6", header(checksum=255)),
    "chunk-size-minus-2": ("H6", header(chunk_size=-2)),
    "chunk-size-large": ("H6", header(chunk_size=LARGEST_CHUNK + 1)),
    "last-chunk-minus-2": ("H6", header(last_chunk=-2)),
    "last-chunk-large": ("H6", header(last_chunk=LARGEST_CHUNK + 1)),
    "nchunks-minus-2": ("H6", header(nchunks=-2)),
    "free-minus-1": ("H6", header(max_app_chunks=-1)),
    "no-chunks-but-bytes": ("H5", header(nchunks=0)),
    "no-chunks": ("H8", header(chunk_size=0, last_chunk=0, nchunks=0)),
    "layout-1-no-chunks": (
        "H8 L4", struct.pack("<4sB3sq", b"blpk", 1, bytes(3), 0) + CHUNKS,
    ),
    "no-chunks-another": ("H8", NO_CHUNKS + SOUND),
    "zeros": ("H8", SOUND[:5] + b"\1\1\4" + bytes(200)),
    # Undo record
    "undo-cut": ("X2", APPEND[2][:-1]),
    "undo-end": ("X2", undo(end=b"undo\r\n\x1a\xff")),
    "undo-size-23": ("X2", undo(size=23)),
    "undo-size-negative": ("X2", undo(size=-(2**63))),
    "undo-size-large": ("X2", undo(size=2**63 - 1)),
    "undo-size-file": ("X2", undo(size=len(APPEND[2]) - 47)),
    "undo-digest": ("X3", undo(digest=bytes(32))),
    "undo-moved": ("X3", CHANGED + b"\0" + RECORD.join()),
    "undo-size-less": ("X3", undo(size=100)),
    "undo-magic": ("X4", undo(magic=b"undo\r\n\x1a\xff")),
    "undo-length-31": ("X4", undo(length=31)),
    "undo-length-negative": ("X4", undo(length=-1)),
    "undo-length-large": ("X4", undo(length=len(CHANGED) + 1)),
    "undo-extents-none": ("X4", undo(extents=[], old=b"")),
    "undo-extents-65": (
        "X4", undo_extents((0, 32), *((at, 1) for at in range(32, 96))),
    ),
    "undo-extents-cut": ("X4", undo(count=64)),
    "undo-extents-negative": ("X4", undo(count=-1)),
    "undo-extents-many": ("X4", undo(count=2**60)),
    "undo-extent-empty": ("X5", undo_extents(BEGIN, (TABLE_AT + 16, 0), CHUNK_1)),
    "undo-extent-negative": ("X5", undo_extents((-1, TABLE_AT), ENTRY, CHUNK_1)),
    "undo-extent-size": (
        "X5", undo(extents=[BEGIN, (TABLE_AT, -1), (LAST_CHUNK_AT, 28)]),
    ),
    "undo-extents-order": ("X5", undo_extents(BEGIN, CHUNK_1, ENTRY)),
    "undo-extents-overlap": ("X5", undo_extents(BEGIN, ENTRY, (TABLE_AT + 23, 9))),
    "undo-extent-outside": (
        "X5", undo_extents(BEGIN, ENTRY, (LAST_CHUNK_AT, CHUNK_1[1] + 1)),
    ),
    "undo-extent-overflow": (
        "X5", undo(extents=[BEGIN, ENTRY, (2**63 - 1, 2**63 - 1)]),
    ),
    "undo-extent-first": ("X5", undo_extents((1, TABLE_AT), ENTRY, CHUNK_1)),
    "undo-header-short": ("X5", undo_extents((0, 31), ENTRY, CHUNK_1)),
    "undo-bytes-more": ("X5", undo_extents(BEGIN, ENTRY, CHUNK_1, more=1)),
    "undo-bytes-less": ("X5", undo_extents(BEGIN, ENTRY, CHUNK_1, more=-1)),
    "undo-nested": ("X6", undo_old(5, b"\7")),
    "undo-old-magic": ("X6", undo_old(0, b"BLPK")),
    "undo-old-version": ("X6", undo_old(4, b"\2")),
    "undo-old-options": ("H6", undo_old(5, b"\x0b")),
    "undo-old-chunk": ("C5 K1", undo_old(len(RECORD.old) - 1, b"\xff")),
    # Metadata
    "meta-format": ("M1", meta(magic_format=b"BSON")),
    "meta-format-blanks": ("M1", meta(magic_format=b"JSON    ")),
    "meta-options": ("M1", meta(meta_options=1)),
    "meta-checksum-255": ("M1", meta(meta_checksum=255)),
    "meta-codec-255": ("M1", meta(meta_codec=255)),
    "meta-level-10": ("M1", meta(meta_level=10)),
    "meta-user-codec": ("M1", meta(user_codec=b"mine")),
    "meta-bare": (
        "M1", encode(HEADER, {**blank().header, "options": 2, "max_app_chunks": 0})
        + b'{"written": "in November 2012"}' + CHUNKS,
    ),
    "meta-no-room": ("M2", meta(max_meta_size=10)),
    "meta-digest": ("M3 K1", meta_digest),
    "meta-cut": ("M9", SOUND[: size_of(HEADER) + size_of(METADATA) + 10]),
    "meta-room-cut": ("M9", meta(max_meta_size=2**32 - 1)),
    "meta-longer": ("M5", meta(meta_size=1)),
    "meta-shorter": ("M5", meta(meta_size=1000)),
    "meta-zlib-longer": ("M5", text(deflated(b'{"a":1}'), meta_codec=1, meta_size=6)),
    "meta-zlib-cut": ("M5", text(deflated(b"{}")[:-1], meta_codec=1, meta_size=2)),
    "meta-zlib-more": ("M5", text(deflated(b"{}") + b"x", meta_codec=1, meta_size=2)),
    "meta-zlib-wrong": ("M5", meta(meta_codec=1)),
    "meta-bomb": ("M6", text(deflated(b"{}"), meta_codec=1, meta_size=2**24 + 1)),
    "meta-nested": ("M7", text(b"[" * 101 + b"]" * 101)),
    "meta-nested-deep": ("M7", text(b"[" * 10**4)),
    "meta-no-json": ("M7", text(b"{")),
    "meta-no-text": ("M7", text(b"")),
    "meta-no-utf-8": ("M7", text(b'"\xff"')),
    "meta-digits": ("M7", text(b"1" * 4301)),
    "meta-byte-order-mark": ("M7", text(b"\xef\xbb\xbf{}")),
    "meta-two-values": ("M7", text(b"{} {}")),
    # Offsets: only append uses the table
    "table-cut": ("O6", SOUND[: FIRST_CHUNK_AT - 1]),
    "table-unfinished": ("O2 O4", entry(-1)),
    "table-swapped": ("O2 O4", swapped),
    "table-outside": ("O2 O4", entry(2**40)),
    "table-negative": ("O2 O4", entry(-(2**63))),
    "table-off-by-one": ("O2 O4", entry(FIRST_CHUNK_AT + 53)),
    "gap-in-front": ("C1 O2", gap_behind_table),
    "gap-between": ("C1 O2", gap),
    # Chunks
    "chunk-version-1": ("C1", chunk(0, version=1)),
    "chunk-version-3": ("C1", chunk(0, version=3)),
    "chunk-versionlz": ("C1", chunk(0, versionlz=2)),
    "chunk-flag-3": ("C1", chunk(0, flags=0x1B)),
    "chunk-filters": ("C1", chunk(0, flags=0x17)),
    "chunk-codec-7": ("C1", chunk(0, flags=0xF3)),
    "chunk-typesize": ("C1", chunk(0, typesize=0)),
    "chunk-nbytes": ("C1", chunk(0, nbytes=LARGEST_CHUNK + 1)),
    "chunk-blocksize-0": ("C1", chunk(0, blocksize=0)),
    "chunk-blocksize-33": ("C1", chunk(0, blocksize=CHUNK_SIZE + 1)),
    "chunk-ctbytes-more": ("C2", chunk(0, ctbytes=49)),
    "chunk-ctbytes-less": ("C2", chunk(0, ctbytes=47)),
    "chunk-ctbytes-0": ("C2", chunk(0, ctbytes=0)),
    "chunk-ctbytes-max": ("C2", chunk(0, ctbytes=2**32 - 1)),
    "chunk-ctbytes-starts": ("C2", compressed(blocksize=4, ctbytes=47)),
    "chunk-starts": ("C6", compressed()),
    "chunk-claims-much": (
        "C2 F4", both(
            header(chunk_size=LARGEST_CHUNK),
            compressed(nbytes=LARGEST_CHUNK, blocksize=LARGEST_CHUNK),
        ),
    ),
    "chunk-cut": ("C3", SOUND[:-5]),
    "chunk-header-cut": ("C3", SOUND[: FIRST_CHUNK_AT + 60]),
    "digest-cut": ("C3 C5", SOUND[:-1]),
    "digest-missing": ("C3 C5", SOUND[:-4]),
    "chunk-missing": ("C3", SOUND[: FIRST_CHUNK_AT + 52]),
    "all-chunks-missing": ("F4 C3", SOUND[:FIRST_CHUNK_AT]),
    "chunk-size-other": ("C4", header(chunk_size=CHUNK_SIZE + 4)),
    "last-chunk-other": ("C4", header(last_chunk=LAST_CHUNK - 4)),
    "digest-wrong": ("C5 K1", digest),
    "checksum-other": ("C5", other_checksum),
    "chunk-behind": ("C7", one_less),
    "layout-1-behind": (
        "C7 L4", struct.pack("<4sB3sq", b"blpk", 1, bytes(3), 1) + CHUNKS,
    ),
    "chunk-behind-no-digest": ("C7", both(header(checksum=0), one_less)),
    # Arrays
    "objects": ("A4", array(dtype="'|O'")),
    "objects-in-fields": ("A4", array(dtype="[('a', '|O')]")),
    "objects-release-0.4": ("A4", array(dtype=[["", "|O8"]])),
    "dtype-call": ("A5", array(dtype="__import__('os').abort()")),
    "dtype-nested": ("A5", array(dtype="[" * 1000)),
    "dtype-none": ("A5", array(dtype="'<f3'")),
    "dtype-object": ("A5", array(dtype=[["a", {"names": ["b"], "formats": ["<i4"]}]])),
    "dtype-name": ("A5", array(dtype="'float64'")),
    "dtype-no-size": ("A5", array(dtype="'<f'")),
    "dtype-machine-order": ("A5", array(dtype="'=f8'")),
    "dtype-without-order": ("A5", array(dtype="'|i4'")),
    "dtype-text-without-order": ("A5", array(dtype="'|U8'")),
    "dtype-plus": ("A5", array(dtype="'<u+4'")),
    "dtype-zeros": ("A5", array(dtype="'<i04'")),
    "dtype-unit-divided": ("A5", array(dtype="'<M8[s/2]'")),
    "dtype-pair": ("A5", array(dtype="('<i4', (1,))")),
    "dtype-single-pair": ("A2", array(dtype="[('', ('<i4', (1,)))]")),
    "dtype-text-shape": ("A5", array(dtype="[('a', ('<i4', ''))]")),
    "dtype-strings": ("A5", array(dtype="'' '<i4'")),
    "dtype-escape": ("A5", array(dtype="'\\74i4'")),
    "dtype-no-shape": ("A17", array(dtype="[('a', '|S0', ()), ('b', '<i4')]")),
    "dtype-large-item": ("A17", array(dtype="'|S2147483648'")),
    "dtype-large-field": ("A17", array(dtype="[('a', '<i4', (536870912,))]")),
    "dtype-field-of-nothing": ("A17", array(dtype="[('a', '|S0', 3)]")),
    "dtype-equal-names": ("A15", array(dtype="[('a', '<i2'), ('a', '<i2')]")),
    "dtype-two-without-names": ("A15", array(dtype="[('', '<i2'), ('', '<i2')]")),
    "dtype-title-and-name": (
        "A15", array(dtype="[(('b', 'a'), '<i2'), ('b', '<i2')]"),
    ),
    "dtype-long-double": ("A18", array(dtype="'<c24'")),
    "dtype-missing": ("A20", array(dtype=...)),
    "order": ("A11", array(order="A")),
    "shape-negative": ("A6", array(shape=[-10])),
    "shape-two-negative": ("A6", array(shape=[-2, -5])),
    "shape-fraction": ("A6", array(shape=[10.0])),
    "shape-text": ("A6", array(shape="10")),
    "shape-missing": ("A20", array(shape=...)),
    "order-none": ("A11", array(order=None)),
    "shape-true": ("A6", array(shape=[True, 10])),
    "shape-many": ("A6", array(shape=[10, *[1] * 64])),
    "shape-overflow": ("A6", array(shape=[2**40, 2**40])),
    "shape-digits": ("A6", array(shape=[10**4000, 10**4000])),
    "shape-more": ("A7", array(shape=[11])),
    "shape-less": ("A7", array(shape=[9])),
    "shape-none": ("A7", array(shape=[0])),
    "items-more": ("A7", array(dtype="'<i8'")),
    # Unknown lengths
    "unknown-cut": (
        "C3 U2",
        unknown([PLAIN[:32], PLAIN[32:]], b"\2\1", chunk_size=-1, last_chunk=-1),
    ),
    "unknown-more": (
        "C1 U2", unknown([PLAIN[:32], PLAIN[32:]], bytes(20), chunk_size=-1),
    ),
    "unknown-not-full": ("U3", unknown([PLAIN[:8], PLAIN[8:]], last_chunk=-1)),
    "unknown-too-full": ("U3", unknown([PLAIN], last_chunk=-1)),
    "unknown-last": ("U3", unknown([PLAIN[:32], PLAIN[32:36]])),
    "unknown-none": ("U6", unknown([])),
    # Append
    "append-full": ("P1", full),
    "append-no-axis": ("A10", one_item),
    "append-order-f": ("A10", array(shape=[2, 5], order="F")),
    # Trailers of shards
    "shard-separator": ("S4", shard(broken=set_in_trailer(separator=b"SHARD\0\0\0"))),
    "shard-no-separator": (
        "S4", shard(HALVES, rows=5, broken=set_in_trailer(separator=b"")),
    ),
    "shard-behind": ("S7 S4", both(shard(), trailing(b"more"))),
    "shard-cut": ("S7 S4", joined(shard())[:-1]),
    "shard-cut-at-copy": ("S4", joined(shard())[:-60]),
    "shard-gap": ("S4", shard(HALVES, rows=5, broken=set_in_trailer(gap=bytes(8)))),
    "shard-gap-behind-copy": ("S4", shard(broken=set_in_trailer(gap=bytes(8)))),
    "shard-no-copy": ("S5", shard(broken=no_copy)),
    "shard-copy-digest": ("S5", shard(broken=in_copy(PADDED, b"nope"))),
    "shard-copy-other": ("S5", shard(broken=in_copy(b"\1" + PADDED[1:]))),
    "shard-copy-padding": ("S5", shard(broken=in_copy(PADDED[:-1] + b"\1"))),
    "shard-copy-short": ("S5", shard(broken=in_copy(PADDED[:-4]))),
    "shard-entry-offset": ("S6", shard(broken=moved(0, 1, 0))),
    "shard-entry-size": ("S6", shard(broken=moved(0, 0, -4))),
    "shard-entry-last": ("S6", shard(broken=last_chunk_in_index)),
    "shard-entry-missing": ("S6", shard(broken=entry_of(0, MISSING, MISSING))),
    "shard-entry-free": ("S6", shard(broken=entry_of(2, 0, 0))),
    "shard-entry-empty": (
        "S6", shard(in_pieces(PLAIN, b""), rows=10, broken=entry_of(1, 300, 20)),
    ),
    "shard-entries-few": ("S7 S6", shard(broken=no_free_entry)),
    "shard-entries-many": (
        "S7 S6", shard(broken=another_entry),
    ),
    # Chunks in every axis
    "grid-chunks-missing": ("G1", grid(chunks=...)),
    "grid-chunks-zero": ("G1", grid(chunks=[8, 0])),
    "grid-chunks-few": ("G1", grid(chunks=[8])),
    "grid-chunks-large": ("G1", grid(chunks=[2**20, 2**20])),
    "grid-order": ("G1", grid(order="F")),
    "grid-shape-none": ("G1", grid(shape=[0, 2])),
    "grid-count": ("G2", grid(shape=[17, 2])),
    "grid-size": ("G2", grid(chunks=[16, 1])),
    "grid-shard-number": ("G7", grid(shard=4)),
    "grid-shard-part": ("G7", grid(shard=[12, 2])),
    "grid-shard-small": ("G7", grid(shard=[8, 1])),
    "shard-blocks-digest": ("S16", with_blocks(set_in_trailer(table_crc=b"nope"))),
    "shard-blocks-counts": ("S14", with_blocks(set_in_trailer(counts=(2, 2)))),
    "shard-blocks-many": ("S14", with_blocks(lambda t: t.rows.extend([bytes(40)] * 3))),
    "shard-blocks-single": ("S14 S4", with_blocks(size=20)),
    "shard-blocks-adler32": ("S4 S13", both(with_blocks(), header(checksum=1))),
    "shard-blocks-in-front": ("S5 S4", with_copy_and_blocks(with_table_in_front)),
    "shard-blocks-of-short": (
        "S15",
        with_copy_and_blocks(lambda t: t.rows.append(row_of(blocked(PADDED).join()))),
    ),
    "shard-block-header": ("S15", with_blocks(in_row(0, 0, 1 << 24))),
    "shard-block-digest": ("S15", with_blocks(in_row(1, 7, 1))),
    "shard-block-last-digest": ("S15", with_blocks(in_row(1, 9, 1))),
    "shard-block-ends-fall": ("S15", with_blocks(in_row(0, 5, -16))),
    "shard-block-end-large": ("S15", with_blocks(in_row(0, 6, 2**31))),
    "shard-block-stale": ("S15", with_blocks(lambda t: t.rows.reverse())),
    "shard-block-other": ("S15", with_blocks(set_row(1, b"\1" * 40))),
    "shard-crc": ("S7", shard(broken=set_in_trailer(crc=b"nope"))),
    "shard-crc32": ("S7", shard(broken=zlib_crc)),
}  # fmt: skip


def made(name: str) -> bytes:
    """Return the content of a file; ``sound`` is the one that the others come from."""
    if name == "sound":
        return SOUND
    change = FILES[name][1]
    return change if isinstance(change, bytes) else joined(change)


def main() -> None:
    """Write all files."""
    for name in ("sound", *FILES):
        (FOLDER / (name + ".blp")).write_bytes(made(name))


if __name__ == "__main__":
    main()
