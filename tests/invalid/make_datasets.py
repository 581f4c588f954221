"""Writes invalid archives and datasets: valid ones, one thing of which is changed.

``python tests/invalid/make_datasets.py`` writes them and their manifest again, byte for
byte. `SAMPLES` has, by name, the rules of docs/format.rst that a sample breaks, and the
function that makes its files; `CHECKER` are those that only a checker reports.
"""

from __future__ import annotations

import json
import shutil
import struct
import sys
from pathlib import Path
from zlib import crc32

import numpy as np

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))

from format.independent_reader import crc32c  # noqa: E402
from fuzz.parts import set_offsets, take_apart  # noqa: E402
from fuzz.trailers import add_trailer  # noqa: E402
from valid.make_datasets import (  # noqa: E402
    FIELDS,
    LITTLE,
    NUMBERS,
    REMOVED,
    Zip,
    archive,
    array,
    change_member,
    copies_in,
    edited,
    group,
    in_shard,
    index_at,
    late,
    patched,
    pending,
    pending_superchunk,
    pending_table,
    set_document,
    superchunk,
    swapped,
    table,
    unsigned,
    with_entry,
    with_keys,
    with_large_sizes,
    with_list,
    with_member,
    without,
    without_header,
    write_sample,
)
from valid.make_datasets import SAMPLES as SAMPLES_VALID  # noqa: E402

import bloscpack as bp  # noqa: E402
from bloscpack.exceptions import (  # noqa: E402
    FormatError,
    StorageError,
    UsageError,
)

FEW = NUMBERS[:8]
GZIP = {"name": "gzip", "configuration": {"level": 5}}
BLOSC, CRC32C = {"name": "blosc"}, {"name": "crc32c"}
OURS = [LITTLE, BLOSC, CRC32C]


def zarr(rules, *path, **changes):
    """Return a sample: an array with other values in its document."""
    return rules, lambda: with_keys(array(FEW), "zarr.json", *path, **changes)


def sharding(rules, **changes):
    return zarr(rules, "codecs", 0, "configuration", **changes)


def storage(rules, *path, **changes):
    """Return a sample: superchunks with other values in a document."""
    return rules, lambda: with_keys(superchunk(FEW), "meta/storage", *path, **changes)


def tables(rules, change):
    """Return a sample: a table in superchunks, with another document."""
    files = table(layout="superchunk")
    return rules, lambda: edited(files, "meta/storage", change)


def zipped(rules, change):
    return rules, lambda: archive(change)


def listed(rules, change):
    return rules, lambda: archive(change, listed=True)


def renamed(z):
    """Give a member another name in the directory."""
    z["x/c/0"]["entry"]["name"] = b"y/c/0"


def entry(rules, member="x/c/0", **changes):
    """Return a sample: an archive with other numbers in an entry of its directory."""
    return zipped(rules, lambda z: z[member]["entry"].update(changes))


def local(rules, member="x/c/0", **changes):
    return zipped(rules, lambda z: z[member]["local"].update(changes))


def place(files, name, new):
    return in_shard(files, name, lambda value: value.update(place=new))


def of_another():
    """Return an array of which a shard is that of another array."""
    files = array(FEW)
    value = json.loads(take_place(files["c/0"]))
    return place(files, "c/0", "f" * 16 + value[16:])


def take_place(content):
    start = content.index(b'"place":') + len(b'"place":')
    return content[start : content.index(b'"', start + 1) + 1]


def swap_index():
    files = array(FEW)
    at = index_at(files, "c/0")
    entries = files["c/0"][at : at + 32]
    files = with_entry(files, "c/0", 0, entries[16:])
    return with_entry(files, "c/0", 1, entries[:16])


def chunk_flip():
    files = array(FEW)
    start, size = struct.unpack_from("<QQ", files["c/0"], index_at(files, "c/0"))
    return patched(files, "c/0", start + size - 6, b"\x55")


def short_entry():
    """Return an array of which an index gives less bytes than a chunk has."""
    files = array(FEW)
    at = index_at(files, "c/0")
    start, size = struct.unpack_from("<QQ", files["c/0"], at)
    return with_entry(files, "c/0", 0, struct.pack("<QQ", start, size - 4))


def flagged(files, name):
    """Return files of which one says that it has an undo record."""
    return patched(files, name, 5, bytes([files[name][5] | 4]))


def unchecked(files, name):
    """Return files of which a file of chunks has no digests."""
    parts = take_apart(files[name])
    rows = parts.chunks[0].record["nbytes"]
    parts.header["checksum"] = 0
    set_offsets(parts)
    add_trailer(parts, rows)
    return {**files, name: parts.join()}


def grid():
    return array(NUMBERS.reshape(5, 4), chunks=(2, 2), shards=(4, 2))


def other_grid(document):
    """Let a document state chunks of another shape and the same size."""
    document["codecs"][0]["configuration"]["chunk_shape"] = [4, 1]


def order_of(document, names):
    document["attributes"]["column-order"] = names


def hidden(files):
    """Return files with the list of a change under a key with a flipped bit."""
    text = files["zarr.json"].replace(b"bloscpack-pending", b"bloscpack-pendinf")
    return {**files, "zarr.json": text}


def lost(files):
    """Return files with the attributes of a node under a key with a flipped bit."""
    return {
        **files,
        "zarr.json": files["zarr.json"].replace(b'"attributes"', b'"attributec"'),
    }


def old_table():
    """Return a table without copies, as older programs wrote it."""
    return dict(SAMPLES_VALID["table-without-copies"][1]())


def exchange_copies(document):
    copies = copies_in(document)
    copies["x"], copies["y"] = copies["y"], copies["x"]


def deflated(z):
    """Compress a member by ZIP itself, in one block that is a copy."""
    member = z["x/c/0"]
    data, checksum, size = member["data"], crc32(member["data"]), len(member["data"])
    member["data"] = b"\1" + struct.pack("<HH", size, size ^ 0xFFFF) + data
    stored = len(member["data"])
    for key in HEADERS:
        member[key].update(method=8, crc=checksum, size=size, stored=stored)


def nested(levels):
    """Return lists inside of each other."""
    value = []
    for _ in range(levels - 1):
        value = [value]
    return value


def zip64(change):
    """Return an archive with the records of Zip64 after a change of its bytes."""
    files = archive(lambda z: setattr(z, "zip64", True))
    return {name: change(content) for name, content in files.items()}


def longer(header):
    header["size"] = header["stored"] = 2000


HEADERS = ("local", "entry")
SLASH = {"configuration": {"separator": "/"}}
INT64 = "<q"
# What a draft of the format has as its version.
DRAFT = "https://purl.org/zarr/spec/protocol/core/3.0"
SAMPLES = {
    # Documents of the layout zarr
    "zarr-cut": ("M7", lambda: cut(array(FEW), "zarr.json", 50)),
    "zarr-nested": (
        "M7",
        lambda: edited(
            array(FEW), "zarr.json", lambda d: d["attributes"].update(deep=nested(99))
        ),
    ),
    "zarr-no-object": (
        "V1",
        lambda: {**unsigned(array(FEW)), "zarr.json": b"[]"},
    ),
    "zarr-format-2": zarr("V1", zarr_format=2),
    "zarr-format-draft": (
        "V12",
        lambda: with_keys(unsigned(array(FEW)), "zarr.json", zarr_format=DRAFT),
    ),
    "zarr-node-of-others": (
        "V12",
        lambda: with_keys(unsigned(array(FEW)), "zarr.json", node_type="table"),
    ),
    "zarr-node-type": zarr("V1", node_type="column"),
    "zarr-attributes": (
        "V1",
        lambda: with_keys(unsigned(array(FEW)), "zarr.json", attributes=[]),
    ),
    "table-equal-columns": (
        "V2",
        lambda: edited(
            table(),
            "zarr.json",
            lambda d: d["attributes"].update({"column-order": ["x", "x"]}),
        ),
    ),
    "table-order-text": (
        "V2",
        lambda: edited(
            table(),
            "zarr.json",
            lambda d: d["attributes"].update({"column-order": "x"}),
        ),
    ),
    "table-column-missing": ("V2", lambda: without(old_table(), "x")),
    "table-columns-exchanged": ("V14", lambda: swapped(old_table(), "x", "y")),
    "table-copies-exchanged": (
        "V14",
        lambda: edited(table(), "zarr.json", exchange_copies),
    ),
    "table-copy-no-object": (
        "V1",
        lambda: edited(table(), "zarr.json", lambda d: copies_in(d).update(x=[1])),
    ),
    "table-copy-name": (
        "J8",
        lambda: edited(
            table(), "zarr.json", lambda d: copies_in(d).update({"zarr.json": {}})
        ),
    ),
    "table-copy-staging": (
        "J8",
        lambda: edited(
            table(), "zarr.json", lambda d: copies_in(d).update({"x/.bloscpack": {}})
        ),
    ),
    "table-copy-outside": (
        "J8 I9",
        lambda: edited(
            table(), "zarr.json", lambda d: copies_in(d).update({"../x": {}})
        ),
    ),
    "table-copy-shape": (
        "V4",
        lambda: with_member(table(), "x", lambda d: d.update(shape=[-1])),
    ),
    "column-without-axes": ("V2", lambda: with_member(table(), "x", without_axes)),
    "column-without-folder": ("V2 J11", lambda: without(table(), "x")),
    "table-unequal": (
        "V2",
        lambda: with_member(table(), "x", lambda d: d.update(shape=[5])),
    ),
    "zarr-unknown-key": zarr("V3", other=1),
    "zarr-must-understand": zarr("V3", other={"must_understand": True}),
    "zarr-transformers": zarr("V3", storage_transformers=[{"name": "x"}]),
    "zarr-transformers-null": zarr("V3", storage_transformers=None),
    "zarr-dimension-names": zarr("V15", dimension_names=["a", "b"]),
    "zarr-dimension-number": zarr("V15", dimension_names=[1]),
    "zarr-shape-negative": zarr("V4", shape=[-1]),
    "zarr-shape-fraction": zarr("V4", shape=[20.0]),
    "zarr-shape-true": zarr("V4", shape=[True]),
    "zarr-shape-large": zarr("V4", shape=[2**62]),
    "zarr-shape-missing": zarr("V4", shape=REMOVED),
    "zarr-axes": zarr("V4", shape=[4, 5]),
    "zarr-grid": zarr("V16", chunk_grid={"name": "rectilinear"}),
    "zarr-chunk-zero": sharding("V4", chunk_shape=[0]),
    "zarr-part-of-a-chunk": sharding("V16", chunk_shape=[3]),
    "zarr-large-chunk": (
        "V16",
        lambda: with_large_chunks(array(FEW), 2**30),
    ),
    "zarr-large-item": zarr(
        "V16",
        data_type={
            "name": "null_terminated_bytes",
            "configuration": {"length_bytes": 2**26 + 1},
        },
    ),
    "zarr-many-chunks": (
        "V16",
        lambda: with_many_chunks(array(NUMBERS.reshape(10, 2)), 2**20),
    ),
    "zarr-data-type": zarr("V5", data_type="int7"),
    "zarr-data-type-none": zarr("V5", data_type=REMOVED),
    "zarr-unit": zarr(
        "V5",
        data_type={
            "name": "numpy.datetime64",
            "configuration": {"unit": "fortnight", "scale_factor": 1},
        },
    ),
    "zarr-endian": sharding(
        "V5",
        codecs=[
            {"name": "bytes", "configuration": {"endian": "middle"}},
            BLOSC,
            CRC32C,
        ],
    ),
    "zarr-endian-null": sharding(
        "V5",
        codecs=[{"name": "bytes", "configuration": {"endian": None}}, BLOSC, CRC32C],
    ),
    "zarr-codec-without-name": sharding("V6", codecs=[LITTLE, {"name": ""}, CRC32C]),
    "zarr-configuration": sharding(
        "V6", codecs=[{"name": "bytes", "configuration": [1]}, BLOSC, CRC32C]
    ),
    "zarr-not-sharded": zarr("V6", codecs=OURS),
    "zarr-codec": sharding("V6", codecs=[LITTLE, GZIP, CRC32C]),
    "zarr-codecs-none": sharding("V6", codecs=[]),
    "zarr-two-codecs": sharding("V6", codecs=[LITTLE, GZIP, BLOSC, CRC32C]),
    "zarr-transpose": sharding("V6", codecs=[{"name": "transpose"}, *OURS]),
    "zarr-no-digests": sharding("V6", codecs=OURS[:2]),
    "zarr-codec-behind-shards": (
        "V6",
        lambda: edited(
            array(FEW), "zarr.json", lambda d: d["codecs"].append({"name": "gzip"})
        ),
    ),
    "zarr-index-codecs": sharding("V6", index_codecs=[{"name": "gzip"}]),
    "zarr-index-no-digest": sharding("V6", index_codecs=[LITTLE]),
    "zarr-index-location": sharding("V6", index_location="middle"),
    "zarr-index-at-start": sharding("V6", index_location="start"),
    "zarr-encoding": zarr("V7", chunk_key_encoding={"name": "v3"}),
    "zarr-names-v2": zarr("V7", chunk_key_encoding={"name": "v2", **SLASH}),
    "zarr-separator": zarr(
        "V7",
        chunk_key_encoding={"name": "default", "configuration": {"separator": "."}},
    ),
    "zarr-fill-value": zarr("V8", fill_value="x"),
    "zarr-fill-value-large": zarr("V8", fill_value=2**31),
    "zarr-fill-value-long": (
        "V8",
        lambda: with_keys(array(np.array(["a"])), "zarr.json", fill_value="ab"),
    ),
    "zarr-fill-value-missing": zarr("V8", fill_value=REMOVED),
    "zarr-fill-value-float": (
        "V8",
        lambda: with_keys(array(NUMBERS * 0.5), "zarr.json", fill_value="nan"),
    ),
    "zarr-data-type-length": zarr(
        "V5",
        data_type={
            "name": "fixed_length_utf32",
            "configuration": {"length_bytes": 6},
        },
    ),
    "zarr-codecs-missing": zarr("V6", codecs=REMOVED),
    "zarr-grid-missing": zarr("V16", chunk_grid=REMOVED),
    "zarr-encoding-missing": zarr("V7", chunk_key_encoding=REMOVED),
    "table-name-outside": (
        "V2 I9",
        lambda: {
            **edited(table(), "zarr.json", lambda d: order_of(d, ["x", "y/../y"])),
        },
    ),
    "table-column-group": (
        "V2",
        lambda: {**unsigned(old_table()), "x/zarr.json": group()["zarr.json"]},
    ),
    # Shards
    "shard-index-digest": (
        "V9",
        lambda: patched(array(FEW), "c/0", -1, b"\x55"),
    ),
    "shard-cut": ("V9", lambda: cut(array(FEW), "c/0", 20)),
    "shard-entry-outside": (
        "V9",
        lambda: with_entry(array(FEW), "c/0", 0, struct.pack("<QQ", 2**40, 20)),
    ),
    "shard-entry-empty": (
        "V9",
        lambda: with_entry(array(FEW), "c/0", 0, struct.pack("<QQ", 100, 0)),
    ),
    "shard-entry-large": (
        "V9",
        lambda: with_entry(array(FEW), "c/0", 0, struct.pack("<QQ", 8, 200)),
    ),
    "shard-chunk": ("V9 C5", chunk_flip),
    "shard-chunk-missing": (
        "I7",
        lambda: with_entry(array(FEW), "c/0", 0, b"\xff" * 16),
    ),
    "shard-missing": ("I7", lambda: without(array(NUMBERS), "c/1")),
    "folder-for-a-shard": (
        "I9",
        lambda: {**without(array(NUMBERS), "c/1"), "c/1/x": b""},
    ),
    "shards-exchanged": ("I8", lambda: swapped(array(NUMBERS), "c/0", "c/1")),
    "shard-of-another-array": ("I8", of_another),
    "shard-dtype": zarr("I8", data_type="float32"),
    "shard-rows-of-chunks": (
        "V9 I8",
        lambda: edited(array(FEW), "zarr.json", two_rows),
    ),
    "shard-rows": (
        "I8",
        lambda: with_keys(array(NUMBERS), "zarr.json", shape=[24]),
    ),
    "shard-no-file": (
        "V9 T1 I8",
        lambda: {**array(FEW), "c/0": array(FEW)["c/0"][32:]},
    ),
    "shard-entries-exchanged": ("S6", swap_index),
    "shard-entry-in-index": (
        "V9",
        lambda: with_entry(
            array(FEW),
            "c/0",
            1,
            struct.pack("<QQ", index_at(array(FEW), "c/0") - 10, 36),
        ),
    ),
    "shard-entry-short": ("V9 C3", short_entry),
    "shard-version-1": ("L5 I8", lambda: patched(array(FEW), "c/0", 4, b"\1")),
    "shard-version-2": ("A12 I8", lambda: patched(array(FEW), "c/0", 4, b"\2")),
    "shard-entry-19": (
        "V9",
        lambda: with_entry(array(FEW), "c/0", 0, struct.pack("<QQ", 300, 19)),
    ),
    "shard-entry-unneeded": (
        "V9",
        lambda: with_entry(array(FEW[:4]), "c/0", 1, struct.pack("<QQ", 300, 200)),
    ),
    "string-count": ("V9 G9", lambda: in_text(b"\3\0\0\0")),
    "string-long": ("V9 G9", lambda: in_text(b"\2\0\0\0\xff\0\0\0")),
    "string-no-utf-8": (
        "V9 G9",
        lambda: in_text(b"\2\0\0\0\1\0\0\0\xff\2\0\0\0bc"),
    ),
    "string-behind": (
        "V9 G9",
        lambda: in_text(b"\2\0\0\0\1\0\0\0a\1\0\0\0"),
    ),
    "string-surrogate": (
        "V9 G9",
        lambda: in_text(b"\2\0\0\0\3\0\0\0\xed\xa0\x80\0\0\0\0"),
    ),
    "shard-checksum": ("V9 I8", lambda: unchecked(array(FEW), "c/0")),
    "grid-shards-exchanged": ("I8", lambda: swapped(grid(), "c/0/0", "c/0/1")),
    "grid-chunks": ("I8", lambda: edited(grid(), "zarr.json", other_grid)),
    # Identities
    "own-document-not-supported": (
        "I13",
        lambda: edited(
            array(FEW), "zarr.json", lambda d: d.update(other=1), sign=False
        ),
    ),
    "own-key-no-object": (
        "I13 I10",
        lambda: edited(
            array(FEW), "zarr.json", lambda d: {**d, "bloscpack": [d["bloscpack"]]}
        ),
    ),
    "own-new-items": (
        "I11",
        lambda: with_keys(array(FEW), *("zarr.json", "bloscpack"), **{"new-items": ""}),
    ),
    "new-items-not-own": (
        "I11",
        lambda: edited(
            array(FEW),
            "zarr.json",
            lambda d: d["bloscpack"].update({"new-items": ""}),
            sign=False,
        ),
    ),
    "storage-digest": (
        "I5",
        lambda: edited(
            superchunk(FEW), "meta/storage", lambda d: d.update(other=1), sign=False
        ),
    ),
    "storage-no-identity": (
        "I5",
        lambda: edited(
            superchunk(FEW),
            "meta/storage",
            lambda d: d.pop("bloscpack-id") and d,
            sign=False,
        ),
    ),
    "storage-without-key": (
        "I5",
        lambda: {
            **superchunk(FEW),
            "meta/storage": superchunk(FEW)["meta/storage"].replace(
                b"bloscpack-id", b"bloscpack-iD"
            ),
        },
    ),
    "sizes-digest": (
        "I5",
        lambda: edited(
            superchunk(FEW), "meta/sizes", lambda d: d.update(nbytes=1), sign=False
        ),
    ),
    "sizes-of-another": (
        "I5",
        lambda: {
            **superchunk(FEW),
            "meta/sizes": superchunk(FIELDS)["meta/sizes"].replace(b"[6]", b"[8]"),
        },
    ),
    "sizes-missing": ("I5", lambda: without(superchunk(FEW), "meta/sizes")),
    "attributes-missing": ("I16", lambda: without(superchunk(FEW), "meta/attributes")),
    "columns-missing": (
        "I16",
        lambda: without(table(layout="superchunk"), "meta/columns"),
    ),
    "attributes-digest": (
        "I16",
        lambda: edited(
            superchunk(FEW),
            "meta/attributes",
            lambda d: d["attributes"].update(unit="s"),
            sign=False,
        ),
    ),
    "attributes-no-key": (
        "I16",
        lambda: with_keys(superchunk(FEW), "meta/attributes", attributes=REMOVED),
    ),
    "columns-of-another": (
        "I16",
        lambda: edited(
            table(layout="superchunk"),
            "meta/columns",
            lambda d: {**d, "bloscpack-id": "id=" + "f" * 16 + " crc32=00000000"},
        ),
    ),
    "column-without-identity": tables("I5", lambda d: d["columns"][0].pop("id") and d),
    # Superchunks
    "sizes-no-object": ("I5 D1", lambda: {**superchunk(FEW), "meta/sizes": b"[]"}),
    "sizes-shape": (
        "D2",
        lambda: with_keys(superchunk(FEW), "meta/sizes", shape=[20, 2]),
    ),
    "sizes-negative": (
        "D2",
        lambda: with_keys(superchunk(FEW), "meta/sizes", shape=[-1]),
    ),
    "superchunk-version-2": storage("D11", superchunk=2),
    "superchunk-version-true": storage("D11", superchunk=True),
    "superchunk-version-none": storage("D11", superchunk=REMOVED),
    "superchunk-kind": storage("D3", kind="group"),
    "superchunk-no-columns": tables("D3", lambda d: d.update(columns=[])),
    "superchunk-equal-columns": tables(
        "D3", lambda d: d["columns"][1].update(name="x")
    ),
    "superchunk-empty-name": tables("D3", lambda d: d["columns"][1].update(name="")),
    "superchunk-dtype": storage("D4", dtype="'<i3'"),
    "superchunk-dtype-object": storage("D4 A4", dtype="'|O'"),
    "superchunk-dtype-spelling": storage("D4", dtype="<i4"),
    "superchunk-dtype-no-fields": storage("D4", dtype="[]"),
    "superchunk-dtype-padding": storage("D4", dtype="[('', '|V4'), ('a', '<i4')]"),
    "superchunk-inner": storage("D4", inner=3),
    "superchunk-chunklen": storage("D4", chunklen=0),
    "superchunk-chunklen-true": storage("D4", chunklen=True),
    "superchunk-superchunklen": storage("D4", superchunklen=6),
    "superchunk-dflt": storage("D4", dflt="AAA="),
    "superchunk-dflt-long": storage("D4", dflt="AAAAAAAAAAA="),
    "columns-no-object": (
        "D3",
        lambda: with_keys(table(layout="superchunk"), "meta/columns", "columns", x=[1]),
    ),
    "superchunk-columns-missing": tables("D3", lambda d: d.pop("columns") and d),
    "superchunk-large-item": storage("D12", dtype="'|V67108865'"),
    "superchunk-large-chunk": storage("D4", chunklen=2**30, superchunklen=2**30),
    "superchunk-chunklen-large": storage("D4", chunklen=2**31, superchunklen=2**31),
    "superchunk-checksum": (
        "V9 D8",
        lambda: unchecked(superchunk(FEW), "data/__1__.bin"),
    ),
    "superchunk-of-another": (
        "I8",
        lambda: place(superchunk(FEW), "data/__1__.bin", "f" * 16 + "/__1__.bin"),
    ),
    "superchunk-missing": (
        "D8",
        lambda: without(superchunk(NUMBERS), "data/__2__.bin"),
    ),
    "superchunk-no-file": (
        "D8 V9",
        lambda: {**superchunk(FEW), "data/__1__.bin": b"no chunks" * 9},
    ),
    "superchunk-short": (
        "I8",
        lambda: with_keys(superchunk(NUMBERS), "meta/sizes", shape=[22]),
    ),
    "superchunks-exchanged": (
        "I8",
        lambda: swapped(superchunk(NUMBERS), "data/__1__.bin", "data/__2__.bin"),
    ),
    "leaves-exchanged": (
        "V9 I8",
        lambda: swapped(superchunk(FIELDS), "data/x", "data/p/u"),
    ),
    "superchunk-columns-exchanged": (
        "V9 I8",
        lambda: swapped(table(layout="superchunk"), "data/x", "data/y"),
    ),
    # Archives
    "archive-compressed": entry("Z1", method=8),
    "archive-encrypted": entry("Z1", flags=0x801),
    "archive-local-signature": (
        "Z1",
        lambda: patched(archive(), "sample.zip", place_of("x/c/0"), b"PKxx"),
    ),
    "archive-local-name": local("Z1", name=b"y/c/0"),
    "archive-local-method": local("Z1", method=1),
    "archive-local-crc32": local("Z1", crc=1),
    "archive-local-size": local("Z1", size=1),
    "archive-local-one-size": zipped("Z1", lambda z: with_large_sizes(z, size=1)),
    "archive-local-stored": zipped("Z1", lambda z: with_large_sizes(z, stored=1)),
    "archive-local-document-method": local("Z1", "x/zarr.json", method=8),
    "archive-document-crc32": zipped("Z10", lambda z: wrong_crc(z, "x/zarr.json")),
    "archive-cut": ("Z2", lambda: cut(archive(), "sample.zip", -10)),
    "archive-count": zipped("Z2", lambda z: z.end.update(count=3)),
    "archive-disk": zipped("Z12", lambda z: z.end.update(disk=1)),
    "archive-large-directory": zipped("Z12", lambda z: z.end.update(nbytes=2**25)),
    "archive-zip64-disk": ("Z2", lambda: zip64(lambda c: c[:-26] + b"\2" + c[-25:])),
    "archive-zip64-apart": ("Z2", lambda: zip64(lambda c: c[:-42] + b"\0" + c[-42:])),
    "archive-zip64-records": (
        "Z2",
        lambda: zip64(lambda c: c[:-98] + b"PK\6\5" + c[-94:]),
    ),
    "archive-overlap": entry("Z13", offset=10),
    "archive-entry-disk": entry("Z2", disk=1),
    "archive-two-sizes": entry("Z13", stored=3),
    "archive-list-lost": listed("Z19", lambda z: z.members.remove(z["x/c/0"])),
    "archive-list-size": listed(
        "Z20",
        lambda z: z["x/c/0"]["entry"].update(size=100, stored=100),
    ),
    "archive-list-parts": ("Z18", lambda: archive(long_name, listed=True)),
    "archive-late-chunks-of-others": ("Z25", lambda: late(without_header)),
    "archive-list-header": ("Z21", lambda: archive(renamed, listed=True)),
    "archive-group-header": local("Z22", "zarr.json", crc=1),
    "archive-group-crc32": zipped("Z22", lambda z: wrong_crc(z, "zarr.json")),
    "archive-version": zipped("Z12", lambda z: z["x/c/0"]["entry"].update(needed=64)),
    "archive-extra-field": zipped(
        "Z14", lambda z: z["x/c/0"]["entry"].update(more=b"cuts")
    ),
    "archive-shape": zipped("Z3", lambda z: set_document(z, "x/zarr.json", shape=[4])),
    "archive-dtype": zipped(
        "Z3", lambda z: set_document(z, "x/zarr.json", data_type="int8")
    ),
    "archive-axes": zipped("Z3", lambda z: z["x/c/0"].update(name="x/c/0/0")),
    "archive-document-not-supported": zipped(
        "V3 Z8", lambda z: set_document(z, "x/zarr.json", other=1)
    ),
    "archive-document-damaged": zipped(
        "V4 Z8", lambda z: set_document(z, "x/zarr.json", shape=[-1])
    ),
    "archive-without-document": zipped(
        "Z8", lambda z: z.members.remove(z["x/zarr.json"])
    ),
    "archive-without-chunks": zipped("Z8", lambda z: z.members.remove(z["x/c/0"])),
    "archive-both": zipped(
        "Z24",
        lambda z: z.members.extend(Zip({"x.blp": z["x/c/0"]["data"]}).members),
    ),
    "archive-outside": zipped(
        "Z27",
        lambda z: z.members.extend(Zip({"../x.blp": z["x/c/0"]["data"]}).members),
    ),
    "archive-outside-backslash": zipped(
        "Z27",
        lambda z: z.members.extend(Zip({"o\\x.blp": z["x/c/0"]["data"]}).members),
    ),
    "archive-deflated": zipped("Z9", deflated),
    "archive-all-encrypted": zipped(
        "Z9", lambda z: [z["x/c/0"][key].update(flags=0x801) for key in HEADERS]
    ),
    "archive-name-changed": entry("Z8", name=b"z/c/0"),
    "archive-member-in-directory": zipped(
        "Z13", lambda z: [longer(z.members[-1][key]) for key in HEADERS]
    ),
    "archive-start": zipped("Z2", lambda z: z.end.update(start=2**20)),
    "archive-codecs": zipped(
        "V6 Z8", lambda z: set_document(z, "x/zarr.json", codecs=[{"name": "bytes"}])
    ),
    "archive-names": zipped(
        "V7 Z8",
        lambda z: set_document(
            z, "x/zarr.json", chunk_key_encoding={"name": "v2", **SLASH}
        ),
    ),
    "archive-checksum": zipped("Z16", lambda z: change_member(z, "x/c/0", unchecked)),
    "archive-chunk-crc32": zipped("Z11", lambda z: wrong_crc(z, "x/c/0")),
    "archive-without-group": zipped(
        "Z5", lambda z: z.members.remove(z["in/zarr.json"])
    ),
    # Undo records
    "archive-undo": zipped("X2", lambda z: change_member(z, "x/c/0", flagged)),
    "zarr-undo": ("X10", lambda: flagged(array(FEW), "c/0")),
    "superchunk-undo": ("X10", lambda: flagged(superchunk(FEW), "data/__1__.bin")),
    # Commits
    "pending-number": ("J2", lambda: pending(change=lambda stored: 1)),
    "pending-no-object": ("J2", lambda: pending(change=lambda stored: [1])),
    "pending-null": (
        "J2",
        lambda: with_keys(
            pending(), "zarr.json", "attributes", **{"bloscpack-pending": None}
        ),
    ),
    "pending-no-files": (
        "J2",
        lambda: pending(change=lambda stored: stored.pop("files") and None),
    ),
    "pending-files-list": (
        "J2",
        lambda: with_list(array(FEW), ["c/0"]),
    ),
    "pending-no-digest": (
        "J2",
        lambda: pending(change=lambda stored: stored.pop("crc32") and None),
    ),
    "pending-digest": (
        "J2",
        lambda: pending(change=lambda stored: stored["files"].update({"c/2": None})),
    ),
    "pending-digest-number": (
        "J2",
        lambda: pending(change=lambda stored: stored.update(crc32=1)),
    ),
    "pending-outside": ("J2 I9", lambda: pending({"../c/0": "1f-0"})),
    "pending-removed-outside": ("J2 I9", lambda: pending({"../c/1": None})),
    "pending-absolute": ("J2 I9", lambda: pending({"/c/0": "1f-0"})),
    "pending-slash": ("J2", lambda: pending({"c/0": "a/1f-0"})),
    "pending-folder-around": ("J2 I9", lambda: pending({"c/0": ".."})),
    "pending-staged-number": ("J2", lambda: pending({"c/0": 1})),
    "pending-document": ("J2", lambda: pending({"zarr.json": "1f-0"})),
    "pending-document-removed": ("J2", lambda: pending({"zarr.json": None})),
    "pending-nested": (
        "M7",
        lambda: pending(change=lambda stored: stored.update(other=nested(99))),
    ),
    "pending-superchunk-digest": (
        "J2",
        lambda: edited(
            pending_superchunk(),
            "meta/sizes",
            lambda d: d["bloscpack-pending"].update(crc32="00000000"),
        ),
    ),
    "pending-in-altered-table": (
        "J4",
        lambda: edited(
            pending_table(),
            "zarr.json",
            lambda d: d["attributes"].update(a=2),
            sign=False,
        ),
    ),
    "pending-without-copies": ("J4", lambda: with_list(old_table(), {"x/c/1": None})),
    "pending-hidden": ("J4", lambda: hidden(pending())),
    "pending-hidden-in-table": ("J4", lambda: hidden(pending_table())),
    "pending-hidden-superchunk": (
        "J4 I5",
        lambda: {
            **pending_superchunk(),
            "meta/sizes": pending_superchunk()["meta/sizes"].replace(
                b"bloscpack-pending", b"bloscpack-pendinf"
            ),
        },
    ),
    "pending-no-attributes": ("J4", lambda: lost(pending_table())),
    "member-with-a-folder": (
        "I9 I21",
        lambda: {**group(), "new/zarr.json/x": b""},
    ),
    "group-member": ("V1", lambda: with_keys(group(), "a/zarr.json", zarr_format=2)),
}
CHECKER = (
    "archive-checksum",
    "archive-chunk-crc32",
    "archive-without-group",
    "shard-entries-exchanged",
)


def with_many_chunks(files, columns):
    def change(document):
        document["shape"] = [10, columns]
        document["chunk_grid"]["configuration"]["chunk_shape"] = [8, columns]
        document["codecs"][0]["configuration"]["chunk_shape"] = [4, 1]

    return edited(files, "zarr.json", change)


def without_axes(document):
    sharding = document["codecs"][0]
    for holder in (document["chunk_grid"], sharding):
        holder["configuration"]["chunk_shape"] = []
    document.update(shape=[], dimension_names=[])


def in_text(start):
    """Return an array of text, of which the plain bytes of a chunk begin otherwise."""
    files = array(np.array(["a", "bc"], object), chunks=2, shards=4)
    at, size = struct.unpack_from("<QQ", files["c/0"], index_at(files, "c/0"))
    files = patched(files, "c/0", at + 16, start)
    chunk = files["c/0"][at : at + size - 4]
    return patched(files, "c/0", at + size - 4, struct.pack("<I", crc32c(chunk)))


def long_name(z):
    """List a member with a name of 251 parts."""
    value = json.loads(z["zarr.json"]["data"])
    listed = value["attributes"]["bloscpack-members"]
    listed["sizes"]["x" + "/c" * 250] = 7
    listed["digest"] = "crc32=00000000"
    text = json.dumps(value).encode()
    z["zarr.json"]["data"] = text.replace(b"00000000", b"%08x" % crc32(text))


def cut(files, name, size):
    return {**files, name: files[name][:size]}


def two_rows(document):
    """Let a document state chunks of two rows in shards of four."""
    document["chunk_grid"]["configuration"]["chunk_shape"] = [4]
    document["codecs"][0]["configuration"]["chunk_shape"] = [2]


def with_large_chunks(files, rows):
    def change(document):
        document["chunk_grid"]["configuration"]["chunk_shape"] = [rows]
        document["codecs"][0]["configuration"]["chunk_shape"] = [rows]

    return edited(files, "zarr.json", change)


def place_of(member):
    """Return where the local header of a member is in an archive."""
    return archive()["sample.zip"].index(member.encode()) - 30


def wrong_crc(z, name):
    """Give a member another crc32, in its local header and its entry."""
    z[name]["local"]["crc"] = z[name]["entry"]["crc"] = 12345


def findings(path):
    """Return section and kind of what verify reports, or its error."""
    try:
        found = bp.verify(path).findings
    except (UsageError, StorageError, FormatError) as error:
        return [type(error).__name__]
    found = [f for f in found if not is_note(f) or f.kind == "unsupported"]
    return sorted({"%s %s" % (f.section, f.kind) for f in found})


def verdict(name, refused):
    """Return how a sample is judged: by readers, or by a checker alone."""
    if name in CHECKER:
        return "checker"
    (found,) = {each.verdict for each in refused.values()}
    return found


def is_note(finding):
    return finding.severity == "note"


def main() -> None:
    """Write all samples and the manifest."""
    from format.agreement import read_here, refusals

    folder = FOLDER / "datasets"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    entries = {}
    for name, (rules, make) in SAMPLES.items():
        path = write_sample(folder, name, make())
        refused = refusals(read_here(path))
        entries[name] = {
            "rules": rules.split(),
            "path": path.name,
            "verdict": verdict(name, refused),
            "refused": {place: each.reason for place, each in refused.items()},
            "findings": findings(path),
        }
    text = json.dumps(entries, indent=1)
    (folder / "MANIFEST.json").write_text(text + "\n", "ascii")


if __name__ == "__main__":
    main()
