"""Writes the valid files: files that are unusual, and that every reader must read.

``python tests/valid/make.py`` writes them and ``MANIFEST.json`` again, byte for byte,
whatever versions of Blosc and zlib are installed: all chunks are copies. `FILES` names
the rules of docs/format.rst that allow each file, and what is in the file.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))

from format.undo_records import states  # noqa: E402
from fuzz.parts import Parts, set_offsets  # noqa: E402
from fuzz.trailers import Break  # noqa: E402
from invalid.make import (  # noqa: E402
    APPEND,
    CHUNK_SIZE,
    FIRST_CHUNK_AT,
    LAST_CHUNK,
    PLAIN,
    SOUND,
    TABLE_AT,
    Change,
    array,
    blank,
    both,
    chunk,
    copied,
    deflated,
    entry,
    grown,
    header,
    in_pieces,
    meta,
    no_table,
    one_item,
    set_row,
    shard,
    swapped,
    text,
    with_blocks,
    with_copy_and_blocks,
)

NO_CHECKSUM = ("no-checksum",)
WRONG_ENTRIES = ("offsets offset", "offsets offset")
FIRST, LAST = PLAIN[:CHUNK_SIZE], PLAIN[CHUNK_SIZE:]
# The array in the blank file, as the manifest describes it.
NUMBERS = {"dtype": "<i4", "shape": [10], "order": "C"}


@dataclass
class Case:
    """A file, the rules that allow it, and what a reader must return.

    ``errors`` are the section and the kind of each error that `verify` finds and
    readers of the content do not see. ``notes`` are the kinds of its other findings, if
    it finds none.
    """

    rules: str
    content: bytes
    plain: bytes = PLAIN
    metadata: str | None = None
    array: dict | None = None
    errors: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def made(*changes: Change) -> bytes:
    """Return the blank file of the invalid files with some changes."""
    parts = blank()
    both(*changes)(parts)
    return parts.join()


def plain_of(*pieces: bytes) -> Change:
    """Give a file these chunks, without table and metadata."""

    def change(parts: Parts) -> None:
        parts.header.update(options=0, max_app_chunks=0, nchunks=len(pieces))
        parts.metadata, parts.offsets = None, []
        parts.stored = parts.room = b""
        parts.chunks = [copied(piece) for piece in pieces]

    return change


def spare(parts: Parts) -> None:
    """Store 40 zero bytes in a chunk of blosclz, with spare bytes behind its block."""
    stream = bytes([0, 0, 224, 27, 0, 2, 0, 0, 0])
    body = struct.pack("<2I", 20, len(stream)) + stream + bytes(7)
    parts.chunks[0].record.update(flags=0x10, ctbytes=16 + len(body))
    parts.chunks[0].rest = body


def sized(version: int, *pieces: bytes, **fields: int) -> bytes:
    """Return a file of layout 2 or 3 without metadata and table."""
    return made(plain_of(*pieces), header(format_version=version, **fields))


def stated(parts: Parts) -> None:
    """Lay a right table down, after the number of chunks or entries has changed."""
    set_offsets(parts)


def entries(*values: int) -> Change:
    def change(parts: Parts) -> None:
        parts.offsets = list(values)

    return change


def tail(data: bytes) -> Change:
    def change(parts: Parts) -> None:
        parts.tail = data

    return change


def room(data: bytes) -> Change:
    def change(parts: Parts) -> None:
        parts.room = data

    return change


def no_chunks(parts: Parts) -> None:
    """Leave all chunks out; the table has three free entries."""
    parts.header.update(chunk_size=0, last_chunk=0, nchunks=0, max_app_chunks=3)
    parts.chunks, parts.offsets = [], [-1, -1, -1]


# Streams: every combination of fields that are -1


def streams() -> dict[str, Case]:
    """Return files in which some of the three sizes are unknown."""
    files = {}
    for version, *known in itertools.product((3, 2), *[(True, False)] * 3):
        letters = "".join(x for x, y in zip("cln", known, strict=True) if not y)
        if not letters:
            continue
        for kind, pieces, *sizes in (
            ("two", (FIRST, LAST), CHUNK_SIZE, LAST_CHUNK, 2),
            ("one", (FIRST,), CHUNK_SIZE, CHUNK_SIZE, 1),
            ("none", (), 0, 0, 0),
        ):
            names = "chunk_size", "last_chunk", "nchunks"
            fields = {
                name: size if is_known else -1
                for name, size, is_known in zip(names, sizes, known, strict=True)
            }
            files["layout-%d-%s-%s" % (version, kind, letters)] = Case(
                "U1 U2 U3" + " U5" * (letters == "ln"),
                sized(version, *pieces, **fields),
                b"".join(pieces),
            )
    return files


def other_sizes() -> dict[str, Case]:
    """Return files in which an unknown field leaves the size of a chunk open."""
    return {
        "sizes-any": Case(
            "U3 P8", sized(3, LAST, PLAIN, FIRST, b"", chunk_size=-1, last_chunk=-1),
            LAST + PLAIN + FIRST,
        ),
        "sizes-any-stream": Case(
            "U3",
            sized(
                3, LAST, PLAIN, FIRST, b"",
                chunk_size=-1, last_chunk=-1, nchunks=-1,
            ),
            LAST + PLAIN + FIRST,
        ),
        "last-longer-known-count": Case("U3", sized(3, FIRST, PLAIN, last_chunk=-1),
                                        FIRST + PLAIN),
        "last-longer-known-count-2": Case(
            "U3", sized(2, FIRST, PLAIN, last_chunk=-1), FIRST + PLAIN
        ),
        "last-longer-stated-2": Case(
            "L1 U3", sized(2, FIRST, PLAIN, last_chunk=40, nchunks=-1),
            FIRST + PLAIN,
        ),
        "last-shorter-stream": Case(
            "U3", sized(3, FIRST, LAST, last_chunk=-1, nchunks=-1)
        ),
        "last-full-stream": Case(
            "U3", sized(3, FIRST, FIRST, last_chunk=-1, nchunks=-1),
            FIRST + FIRST,
        ),
        "last-empty-stream": Case(
            "U3", sized(3, FIRST, b"", last_chunk=-1, nchunks=-1), FIRST
        ),
        "stream-none-size-known": Case(
            "U2 U3", sized(3, last_chunk=-1, nchunks=-1), b""
        ),
        "stream-table-bit": Case(
            "U1", made(header(nchunks=-1, max_app_chunks=0), entries(), array()),
            metadata=made_text(), array=NUMBERS,
        ),
        "stream-metadata": Case(
            "U1 U2",
            made(no_table, header(nchunks=-1, last_chunk=-1)),
            metadata=made_text(), array=NUMBERS,
        ),
        "stream-no-digests": Case(
            "U2", sized(3, FIRST, LAST, nchunks=-1, checksum=0),
            notes=NO_CHECKSUM,
        ),
    }  # fmt: skip


def made_text(**changes: object) -> str:
    """Return the metadata of the blank file, some of them changed or left out."""
    parts = blank()
    array(**changes)(parts)
    return parts.stored.decode("ascii")


# Metadata that are JSON, in files of two chunks


def json_text(name: str, data: bytes, **fields: int) -> dict[str, Case]:
    content = made(text(data, **fields))
    return {name: Case("M7", content, metadata=data.decode("utf-8"))}


def deep(opening: bytes, middle: bytes, closing: bytes) -> bytes:
    """Return a value of a hundred levels."""
    return opening * 100 + middle + closing * 100


def numpy_text(name: str, rules: str, shown: dict, **changes: object) -> dict:
    """Return a file that holds the same numbers as another array."""
    content, stored = made(array(**changes)), made_text(**changes)
    return {name: Case(rules, content, metadata=stored, array={**NUMBERS, **shown})}


def in_shard(
    name: str,
    rules: str,
    shown: dict,
    *changes: Change,
    rows: int = 8,
    key: bool = True,
    trailer: bool = True,
    **fields: object,
) -> dict[str, Case]:
    """Return a shard with the numbers of the blank file, or what it has for a trailer.

    `shown` differs from the blank array, `changes` are made in front of the trailer.
    """

    def change(parts: Parts) -> None:
        shard(array(**shown), *changes, rows=rows, trailer=trailer)(parts)
        if not key:
            array(**shown)(parts)

    parts = blank()
    change(parts)
    case = {"metadata": parts.stored.decode(), "array": {**NUMBERS, **shown}, **fields}
    return {name: Case(rules, parts.join(), **case)}


def in_blocks(name: str, rules: str, change: Break) -> dict[str, Case]:
    """Return a shard with a table of blocks, which is changed."""
    content, stored = made(with_blocks(change)), made_text(shard=5)
    return {name: Case(rules, content, metadata=stored, array=NUMBERS)}


def as_array(**fields: object) -> dict:
    """Return the arguments of a `Case` with the array of the blank file."""
    return {"metadata": made_text(), "array": NUMBERS, **fields}


LAYOUT_1 = struct.pack("<4sB3sq", b"blpk", 1, bytes(3), -1) + b"".join(
    copied(piece).join() for piece in (FIRST, LAST)
)
# What follows the first chunk is a copy of it without its digest.
WITHOUT_DIGEST = copied(FIRST).join()
EMPTY = copied(b"").join()


def layout_0(*pieces: bytes) -> bytes:
    chunks = b"".join(copied(piece).join() for piece in pieces)
    return struct.pack("<4sI", b"blpk", len(pieces)) + chunks


# A file with another unit, and as a shard with another number of rows.
UNITS = [made(array(metadata=unit)) for unit in ("m", "s")]
SHARDS = [made(shard(*changes)) for changes in ((), (grown, array(shape=[20])))]
SHARD_EXTENTS = [(0, len(SHARDS[0]))]
AS_UNIT = {"metadata": made_text(metadata="m"), "array": NUMBERS}
AS_SHARD = {"metadata": made_text(shard=8), "array": NUMBERS}
GROWN = {"metadata": made_text(shape=[20]), "array": {**NUMBERS, "shape": [20]}}
UNDONE = {"notes": ("interrupted",)}
CUT_BACK = states(made(grown), SOUND, [(0, len(made(grown)))])

FILES: dict[str, Case] = {
    "sound": Case("F2 F1 W1 W3 H9 M12 O1 C8 A1 A8 A9", SOUND, **as_array()),
    **streams(),
    **other_sizes(),
    # Files without chunks
    "nchunks-0": Case("H8 P7", made(no_chunks, array(shape=[0])), b"",
                      made_text(shape=[0]), {**NUMBERS, "shape": [0]}),
    "nchunks-0-no-table": Case("H8", sized(3, chunk_size=0, last_chunk=0), b""),
    "nchunks-0-chunk-size": Case("H5 H8", sized(3, last_chunk=0), b""),
    "zero-bytes": Case("W2", sized(3, b"", chunk_size=0, last_chunk=0), b""),
    # Header
    "one-chunk-size-larger": Case(
        "H4", sized(3, PLAIN, chunk_size=100, last_chunk=40), notes=("size",)
    ),
    "free-without-table": Case("H10 H11", made(no_table, header(max_app_chunks=7)),
                               **as_array(errors=("header header",))),
    "free-largest": Case(
        "H3 H10 H11", made(no_table, header(max_app_chunks=2**63 - 3)),
        **as_array(errors=("header header",)),
    ),
    "typesize-other": Case(
        "H7", made(header(typesize=255)),
        **as_array(notes=("typesize",)),
    ),
    "typesize-0": Case(
        "H7", made(header(typesize=0)),
        **as_array(notes=("typesize",)),
    ),
    # Offsets: readers do not need the table
    "table-unfinished": Case(
        "O3 O2", made(entries(-1, -1, -1)), **as_array(errors=("offsets unfilled",))
    ),
    "table-half-finished": Case(
        "O3 O2", made(entry(-1)), **as_array(errors=("offsets offset",))
    ),
    "table-swapped": Case(
        "O3 O2", made(swapped), **as_array(errors=WRONG_ENTRIES)
    ),
    "table-zero": Case(
        "O3 O2", made(entries(0, 0, -1)), **as_array(errors=WRONG_ENTRIES)
    ),
    "table-outside": Case(
        "O3 O2", made(entries(FIRST_CHUNK_AT, 2**63 - 1, -1)),
        **as_array(errors=("offsets offset",)),
    ),
    "table-moved": Case(
        "O3 O2", made(entries(FIRST_CHUNK_AT + 8, FIRST_CHUNK_AT + 60, -1)),
        **as_array(errors=("offsets moved",)),
    ),
    "free-entry-0": Case(
        "O5 O7 O9", made(entries(FIRST_CHUNK_AT, FIRST_CHUNK_AT + 52, 0)),
        **as_array(errors=("offsets free-entry",)),
    ),
    "free-entry-position": Case(
        "O5 O7", made(entries(FIRST_CHUNK_AT, FIRST_CHUNK_AT + 52, FIRST_CHUNK_AT)),
        **as_array(errors=("offsets free-entry",)),
    ),
    # Room of the metadata, and its header
    "room-not-zero": Case("M4 M11", made(room(b"\xffolder}]")),
                          **as_array(notes=("room",))),
    "room-none": Case("M2", made(text(b"{}", room=0)), metadata="{}"),
    "meta-level": Case("M1", made(meta(meta_level=0)), **as_array()),
    "meta-no-digest": Case("M3", made(meta(meta_checksum=0), stated), **as_array()),
    "meta-sha512": Case("M3", made(meta(meta_checksum=8), stated), **as_array()),
    "meta-zlib": Case(
        "M5", made(text(deflated(b'{"a":1}'), meta_codec=1, meta_size=7)),
        metadata='{"a":1}',
    ),
    # Undo record
    "undo-flagged": Case("X1 X7", APPEND[1], **as_array(**UNDONE)),
    "undo-append": Case("X1 X8", APPEND[2], **as_array(**UNDONE)),
    "undo-torn": Case("X1", APPEND[2][:100] + APPEND[1][100:], **as_array(**UNDONE)),
    "undo-metadata": Case(
        "X1 A13", states(*UNITS, [(0, TABLE_AT + len(UNITS[0]) - len(SOUND))])[2],
        **AS_UNIT, **UNDONE,
    ),
    "undo-shard": Case("X1", states(*SHARDS, SHARD_EXTENTS)[2], **AS_SHARD, **UNDONE),
    "undo-shorter": Case("X1", CUT_BACK[2], PLAIN * 2, **GROWN, **UNDONE),
    "undo-unused": Case(
        "C12 C13", APPEND[3], PLAIN * 2, **GROWN, notes=("left-over",)
    ),
    "undo-not-flagged": Case("C12 C13", APPEND[0], **as_array(notes=("left-over",))),
    # Metadata
    **json_text("json-null", b"null"),
    **json_text("json-number", b"-1.5e3"),
    **json_text("json-blanks", b' \t\r\n{ "a" : [ 1 , 2 ] } \n'),
    **json_text("json-nan", b'{"a":NaN,"b":[Infinity,-Infinity]}'),
    **json_text("json-utf-8", '{"größe":"日本"}'.encode()),
    **json_text("json-escapes", b'{"gr\\u00f6\\u00dfe":"\\ud83d\\ude00\\/"}'),
    **json_text("json-surrogate", b'"\\ud800"'),
    **json_text("json-same-keys", b'{"a":1,"a":2}'),
    **json_text("json-deep-lists", deep(b"[", b"1", b"]")),
    **json_text("json-deep-objects", deep(b'{"a":', b'"[{"', b"}")),
    **json_text("json-wide", b"[" + b"[]," * 200 + b"[1]]"),
    **json_text("json-digits", b"[" + b"1" * 4300 + b"]"),
    **json_text("json-fraction", b"0." + b"1" * 5000),
    **json_text("json-digits-text", b'"' + b"1" * 5000 + b'"'),
    "json-other-container": Case(
        "A12", made(text(b'{"container":"numpy2","dtype":"O"}')),
        metadata='{"container":"numpy2","dtype":"O"}',
    ),
    # Chunks
    "chunks-differ": Case(
        "C9",
        made(chunk(0, flags=0x93, typesize=1), chunk(1, flags=0x36, typesize=255)),
        **as_array(notes=("typesize",)),
    ),
    "chunk-spare": Case(
        "C14", made(plain_of(PLAIN), spare, header(chunk_size=40, last_chunk=40)),
        bytes(40),
    ),
    "chunk-copy-snappy": Case("C9", made(chunk(0, flags=0x53)), **as_array()),
    "chunk-split-rule": Case("C1", made(chunk(0, flags=0x03)), **as_array()),
    # Bytes behind the last chunk
    "tail": Case("C12 C13", made(tail(b"more")), **as_array(notes=("trailing",))),
    "tail-zeros": Case(
        "C12 C13", made(tail(bytes(100))), **as_array(notes=("left-over",))
    ),
    "tail-half-chunk": Case(
        "C12 C13", made(tail(WITHOUT_DIGEST[:-1])), **as_array(notes=("trailing",))
    ),
    "tail-no-digest": Case(
        "C12 C13", made(tail(WITHOUT_DIGEST)), **as_array(notes=("trailing",))
    ),
    "tail-wrong-digest": Case(
        "C12 C13", made(tail(WITHOUT_DIGEST + bytes(4))),
        **as_array(notes=("trailing",)),
    ),
    "tail-another": Case("C12 C13", SOUND + SOUND, **as_array(notes=("another",))),
    "tail-magic": Case("C12 C13", SOUND + b"blpk", **as_array(notes=("another",))),
    # Arrays: type, shape and order
    **numpy_text("dtype-list", "A2", {}, dtype=[["", "<i4"]]),
    **numpy_text("dtype-text", "A5", {}, dtype="<i4"),
    **numpy_text("dtype-python-2", "A5", {}, dtype="u'<i4'"),
    **numpy_text("dtype-big-endian", "A5", {"dtype": ">i4"}, dtype="'>i4'"),
    **numpy_text("dtype-days", "A5", {"dtype": "<M8[D]", "shape": [5]},
                 dtype="'<M8[D]'", shape=[5]),
    **numpy_text("dtype-spans", "A5", {"dtype": "<m8[25us]", "shape": [5]},
                 dtype="'<m8[25us]'", shape=[5]),
    **numpy_text("dtype-bytes", "A5", {"dtype": "|S5", "shape": [8]},
                 dtype="'|S5'", shape=[8]),
    **numpy_text("dtype-void", "A5", {"dtype": "|V40", "shape": [1]},
                 dtype="'|V40'", shape=[1]),
    **numpy_text(
        "dtype-fields", "A5", {"dtype": [["a", "<i2"], ["b", "|u1", [2]]]},
        dtype="[('a', '<i2'), ('b', '|u1', (2,))]",
    ),
    **numpy_text(
        "dtype-fields-list", "A5", {"dtype": [["a", "<i2"], ["b", "|u1", [2]]]},
        dtype=[["a", "<i2"], ["b", "|u1", [2]]],
    ),
    **numpy_text(
        "dtype-fields-long", "A5", {"dtype": [["a", "<i2"], ["b", "|u1", [2]]]},
        dtype="[(u'a', '<i2'), (u'b', '|u1', (2L,))]",
    ),
    **numpy_text(
        "dtype-nested", "A5",
        {"dtype": [["p", [["x", "<i2"], ["y", "<i2"]]], ["z", "<i4"]], "shape": [5]},
        dtype="[('p', [('x', '<i2'), ('y', '<i2')]), ('z', '<i4')]", shape=[5],
    ),
    **numpy_text(
        "dtype-field-empty", "A3", {"dtype": [["a", []], ["b", "<i4"]]},
        dtype="[('a', []), ('b', '<i4')]",
    ),
    **numpy_text(
        "dtype-title", "A3", {"dtype": [[["b", "a"], "<i4"]]},
        dtype="[(('b', 'a'), '<i4')]",
    ),
    **numpy_text(
        "dtype-padding", "A3",
        {"dtype": [["a", "<i2"], ["", "|V2"], ["b", "<i4"]], "shape": [5]},
        dtype="[('a', '<i2'), ('', '|V2'), ('b', '<i4')]", shape=[5],
    ),
    **numpy_text(
        "dtype-pairs", "A5", {"dtype": [["a", "<i2", [2]]]},
        dtype="[('a', ('<i2', (2,)))]",
    ),
    **numpy_text(
        "dtype-pair-number", "A5", {"dtype": [["a", "<i2", [2]]]},
        dtype="[('a', ('<i2', 2))]",
    ),
    **numpy_text("dtype-parentheses", "A5", {}, dtype="\t( U'<i4' )\n"),
    **numpy_text(
        "dtype-shape-of-nothing", "A17", {"dtype": [["a", [], [2]], ["b", "<i4"]]},
        dtype="[('a', [], 2), ('b', '<i4')]",
    ),
    **numpy_text("dtype-order", "A5", {"dtype": "|S4"}, dtype="'<S4'"),
    **numpy_text("dtype-no-character", "A14 A23", {"dtype": ">U1"}, dtype="'>U1'"),
    **numpy_text("shape-number", "A6", {}, shape=10),
    **numpy_text("shape-64", "A6", {"shape": [10, *[1] * 63]}, shape=[10, *[1] * 63]),
    **numpy_text("order-f", "A11 A19", {"shape": [2, 5], "order": "F"},
                 shape=[2, 5], order="F"),
    **numpy_text("order-f-one-axis", "A11", {}, order="F"),
    **numpy_text("order-missing", "A11", {}, order=...),
    **numpy_text("keys-more", "A21 A22", {}, unit="m", version=2),
    "shape-empty": Case(
        "A6", made(one_item), PLAIN[:4], made_text(shape=[]), {**NUMBERS, "shape": []}
    ),
    "shape-zero": Case(
        "A6", made(plain_of(b""), header(chunk_size=0, last_chunk=0, options=2),
                   array(shape=[3, 0, 2])),
        b"", made_text(shape=[3, 0, 2]), {**NUMBERS, "shape": [3, 0, 2]},
    ),
    # Shards
    "checksum-crc32c": Case("H6 K1", made(header(checksum=9)), **as_array()),
    "meta-crc32c": Case("M3", made(meta(meta_checksum=9), stated), **as_array()),
    **in_shard("shard", "S3 S5 S6 S7 S8", {}),
    **in_shard("shard-two-axes", "S2", {"shape": [5, 2]}, rows=4),
    **in_shard("shard-full", "S3 S5", {}, in_pieces(PLAIN[:20], PLAIN[20:]), rows=5),
    **in_blocks("shard-blocks", "S13 S14 S15 S16", lambda trailer: None),
    **in_blocks("shard-blocks-row-none", "S15", set_row(0, bytes(40))),
    **in_blocks("shard-blocks-rows-less", "S14", lambda trailer: trailer.rows.pop()),
    "shard-blocks-copy": Case(
        "S5 S13", made(with_copy_and_blocks()), metadata=made_text(shard=8),
        array=NUMBERS,
    ),
    **in_shard("shard-one-chunk", "S2", {}, in_pieces(PLAIN), rows=16),
    **in_shard("shard-one-full-chunk", "S2", {}, in_pieces(PLAIN), rows=10),
    **in_shard("shard-empty-last", "S6", {}, in_pieces(PLAIN, b""), rows=10),
    **in_shard("shard-zero-rows", "S6", {"shape": [0]}, in_pieces(b""), plain=b""),
    **in_shard("shard-no-table", "S2", {}, no_table, notes=("no-trailer",)),
    **in_shard(
        "shard-free-without-table", "S2 H10 H11", {}, no_table,
        header(max_app_chunks=7), errors=("header header",),
    ),
    **in_shard("shard-adler32", "S20 S8", {}, header(checksum=1)),
    **in_shard("shard-sha512", "S8", {}, header(checksum=8)),
    **in_shard(
        "shard-no-checksum", "S8", {}, header(checksum=0), notes=NO_CHECKSUM
    ),
    **in_shard("shard-no-trailer", "S11 S20", {}, trailer=False, notes=("no-trailer",)),
    **in_shard("shard-order-f-one-axis", "S2", {"order": "F"}),
    # These have no trailer, because of what is in front of it
    **in_shard(
        "shard-order-f", "S2", {"shape": [2, 5], "order": "F"}, rows=2, trailer=False,
        notes=("no-trailer",),
    ),
    **in_shard(
        "shard-other-chunks", "S2", {}, rows=4, trailer=False, notes=("no-trailer",)
    ),
    **in_shard(
        "shard-only-chunk-large", "S2", {}, in_pieces(PLAIN), rows=9, trailer=False,
        notes=("no-trailer",),
    ),
    **in_shard(
        "shard-rows-large", "S2", {}, rows=2**31, trailer=False, notes=("no-trailer",)
    ),
    **in_shard(
        "shard-size-unknown", "S2", {}, both(in_pieces(PLAIN), header(chunk_size=-1)),
        rows=10, trailer=False, notes=("no-trailer",),
    ),
    **numpy_text("shard-key-0", "S18", {}, shard=0),
    **numpy_text("shard-key-text", "S18", {}, shard="8"),
    **numpy_text("shard-key-true", "S18", {}, shard=True),
    **in_shard("shard-no-key", "S1", {}, key=False, notes=("trailing",)),
    # Old versions
    "layout-2-reserved": Case(
        "L2", made(plain_of(FIRST, LAST), header(
            format_version=2, options=0xFE, max_app_chunks=2**64 - 1)),
        notes=("reserved",),
    ),
    "layout-2-table": Case(
        "L2 L3", made(plain_of(FIRST, LAST), header(format_version=2, options=1),
                      entries(-1, -1), stated),
    ),
    "layout-2-table-unfinished": Case(
        "L3", made(plain_of(FIRST, LAST), header(format_version=2, options=1),
                   entries(-1, -1)),
        errors=("offsets unfilled",),
    ),
    "layout-2-one-chunk": Case("L1", sized(2, PLAIN, chunk_size=0, last_chunk=40)),
    "layout-2-empty-last": Case(
        "L1", sized(2, PLAIN, b"", chunk_size=40, last_chunk=0)
    ),
    "layout-1": Case("L4", LAYOUT_1[:8] + struct.pack("<q", 2) + LAYOUT_1[16:],
                     notes=NO_CHECKSUM),
    "layout-1-stream": Case("L4 U2", LAYOUT_1, notes=NO_CHECKSUM),
    "layout-1-258-chunks": Case(
        "T2", struct.pack("<4sB3sq", b"blpk", 1, bytes(3), 258) + EMPTY * 258, b"",
        notes=NO_CHECKSUM,
    ),
    "layout-0-1027-chunks": Case(
        "T2", struct.pack("<4sI", b"blpk", 0x0403) + EMPTY * 0x0403, b"",
        notes=NO_CHECKSUM,
    ),
    "layout-0-one": Case("T2", layout_0(PLAIN), notes=NO_CHECKSUM),
    "layout-0-two": Case("T2", layout_0(FIRST, LAST), notes=NO_CHECKSUM),
    "layout-0-three": Case("T2", layout_0(LAST, FIRST, b""), LAST + FIRST,
                           notes=NO_CHECKSUM),
}  # fmt: skip


def described(case: Case) -> dict:
    """Return the entry of the manifest for a case."""
    return {
        "rules": case.rules.split(),
        "size": len(case.content),
        "plain": {
            "size": len(case.plain),
            "sha256": hashlib.sha256(case.plain).hexdigest(),
        },
        "metadata": case.metadata,
        "array": case.array,
        "errors": case.errors,
        "notes": case.notes,
    }


def manifest() -> str:
    """Return the text of the manifest, one line per key of an entry."""
    entries = {name: described(case) for name, case in FILES.items()}
    lines = [
        "%s: {\n%s\n}"
        % (
            json.dumps(name),
            ",\n".join(
                " %s: %s" % (json.dumps(k), json.dumps(v)) for k, v in entry.items()
            ),
        )
        for name, entry in entries.items()
    ]
    return "{\n%s\n}\n" % ",\n".join(lines)


def main() -> None:
    """Write all files and the manifest."""
    for name, case in FILES.items():
        (FOLDER / (name + ".blp")).write_bytes(case.content)
    (FOLDER / "MANIFEST.json").write_text(manifest(), "ascii")


if __name__ == "__main__":
    main()
