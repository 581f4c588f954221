"""Zarr stores of somebody else: they run no code, and take no memory that they claim.

The documents are written by hand, so that the tests run with zarr 2 and 3 and with all
versions of numcodecs.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import pickle
import struct
import sys
import tracemalloc
import zipfile
from pathlib import Path

import google_crc32c
import numpy as np
import pytest

from bloscpack import dataset
from bloscpack.exceptions import BloscpackError, DamageError, FormatError, Unsupported

zarr = pytest.importorskip("zarr", reason="zarr is not installed")
zarr3 = pytest.mark.skipif(zarr.__version__.startswith("2."), reason="needs zarr 3")
PICKLE = {"id": "pickle"}


class Payload:
    """Unpickling it makes a file."""

    def __reduce__(self):
        return open, ("executed", "w")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # As in releases of numcodecs before 0.16.6.
    name = "numcodecs.pickles.ALLOW_UNSAFE_PICKLE_DECODE"
    monkeypatch.setattr(name, True, raising=False)
    yield
    assert not os.path.exists("executed")


def array(**changes):
    """Return the document of an array of format 2."""
    document = {
        "zarr_format": 2,
        "shape": [2],
        "chunks": [2],
        "dtype": "<i8",
        "compressor": None,
        "filters": None,
        "fill_value": 0,
        "order": "C",
    }
    return document | changes


BYTES = {"name": "bytes", "configuration": {"endian": "little"}}


def array3(*codecs, **changes):
    """Return the document of an array of format 3."""
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [2],
        "data_type": "int64",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
        "chunk_key_encoding": {"name": "default"},
        "fill_value": 0,
        "codecs": [BYTES, *codecs],
        "attributes": {},
    }
    return document | changes


def sharded(inner):
    configuration = {
        "chunk_shape": [2],
        "codecs": [BYTES, inner],
        "index_codecs": [BYTES],
    }
    return {"name": "sharding_indexed", "configuration": configuration}


GROUP = {"zarr_format": 2}
GROUP3 = {"zarr_format": 3, "node_type": "group", "attributes": {}}
PICKLE3 = {"name": "numcodecs.pickle", "configuration": {}}
CHUNK = pickle.dumps(Payload())
FILL = base64.b64encode(CHUNK).decode()
OBJECTS = {"dtype": "|O", "filters": [PICKLE], "fill_value": None}


def consolidated(documents):
    return {"kind": "inline", "must_understand": False, "metadata": documents}


HOSTILE = {
    "compressor": {".zarray": array(compressor=PICKLE), "0": CHUNK},
    "filter": {".zarray": array(filters=[PICKLE]), "0": CHUNK},
    "objects": {".zarray": array(**OBJECTS), "0": CHUNK},
    "behind others": {
        ".zarray": array(filters=[{"id": "delta", "dtype": "<i8"}, PICKLE]),
        "0": CHUNK,
    },
    "fill value": {
        ".zarray": array(dtype=[["a", "|O"]], filters=[PICKLE], fill_value=FILL)
    },
    "member": {
        ".zgroup": GROUP,
        "attributes/.zarray": array(**OBJECTS),
        "attributes/0": CHUNK,
    },
    "two names": {".zarray": array(compressor={"id": "zlib", "name": "pickle"})},
    "no name": {".zarray": array(compressor={})},
    "format 3": {"zarr.json": array3(PICKLE3), "c/0": CHUNK},
    "shard": {"zarr.json": array3() | {"codecs": [sharded(PICKLE3)]}, "c/0": CHUNK},
}
# What zarr 2 does not read, or does not use.
ONLY_3 = ("format 3", "shard")
CASES = [
    pytest.param(files, id=name, marks=[zarr3] if name in ONLY_3 else [])
    for name, files in HOSTILE.items()
]


def content_of(file):
    return file if isinstance(file, bytes) else json.dumps(file).encode()


def write_folder(files, name="a.zarr"):
    for path, content in files.items():
        path = os.path.join(name, *path.split("/"))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as fp:
            fp.write(content_of(content))
    return name


def write_zip(files, name="a.zip", method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(name, "w", method) as archive:
        for path, content in files.items():
            archive.writestr(path, content_of(content))
    return name


COPIES = {
    "consolidated": {
        ".zgroup": GROUP,
        "x/.zarray": array(),
        "x/0": bytes(16),
        ".zmetadata": {
            "zarr_consolidated_format": 1,
            "metadata": {".zgroup": GROUP, "x/.zarray": array(**OBJECTS)},
        },
    },
    "consolidated 3": {
        "zarr.json": GROUP3
        | {"consolidated_metadata": consolidated({"x": array3(PICKLE3)})},
        "x/zarr.json": array3(),
    },
}


@pytest.mark.parametrize("write", [write_folder, write_zip])
@pytest.mark.parametrize(
    "files",
    [
        pytest.param(files, id=name, marks=[zarr3] if "3" in name else [])
        for name, files in COPIES.items()
    ],
)
def test_copies_of_documents_are_not_used(files, write):
    dataset.convert(write(files), "out.npz")
    with np.load("out.npz") as found:
        assert [0, 0] == found["x"].tolist()


@pytest.mark.parametrize("write", [write_folder, write_zip])
@pytest.mark.parametrize("files", CASES)
def test_codecs_that_run_code(files, write):
    with pytest.raises(Unsupported, match=r"names the codec '(.*pickle|None)'"):
        dataset.convert(write(files), "out.npz")


def test_codecs_that_run_code_at_a_url():
    fsspec = pytest.importorskip("fsspec", reason="the extra 'remote' is missing")
    fs = fsspec.filesystem("memory")
    for name, content in HOSTILE["objects"].items():
        fs.pipe("/hostile/" + name, content_of(content))
    try:
        with pytest.raises(Unsupported, match="names the codec 'pickle'"):
            dataset.convert("memory://hostile", "out.npy")
    finally:
        fs.rm("/hostile", recursive=True)


@pytest.mark.parametrize("write", [write_folder, write_zip])
def test_known_codecs_and_attributes(write):
    """Attributes and the names of members may look like codecs."""
    plain = np.arange(2, dtype="<i8")
    files = {
        ".zgroup": GROUP,
        ".zattrs": {"compressor": PICKLE, "metadata": {"x": {"filters": [PICKLE]}}},
        "filters/.zarray": array(
            filters=[{"id": "delta", "dtype": "<i8"}], compressor={"id": "zlib"}
        ),
        "codecs/.zarray": array(),
        "codecs/0": plain.tobytes(),
    }
    dataset.convert(write(files), "out.npz")
    with np.load("out.npz") as found:
        assert [0, 0] == found["filters"].tolist()
        assert [0, 1] == found["codecs"].tolist()


def test_objects_in_npy_files():
    for save, name in ((np.save, "a.npy"), (np.savez, "a.npz")):
        save(name, np.array([Payload()], object), allow_pickle=True)
        with pytest.raises(BloscpackError, match="Python objects"):
            dataset.convert(name, "out.zarr")


# Chunks of Blosc


def chunk_of(nbytes, cbytes, flags=2):
    """Return 16 bytes: the header of a chunk, by default of one that is a copy."""
    return struct.pack("<4B3I", 2, 1, flags, 1, nbytes, nbytes, cbytes)


# The package numcodecs would read or write the memory behind them.
CHUNKS = {
    "a copy": chunk_of(64, 80),
    "a copy with a false size": chunk_of(64, 16),
    "blocks": chunk_of(64, 100, flags=0x20),
    "much memory": chunk_of(2**31 - 17, 2**31 - 1),
    "cut off": chunk_of(16, 32)[:12],
}
OLD_BLOSC = {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}
BLOSC = {"name": "blosc", "configuration": {"cname": "lz4", "clevel": 5, "typesize": 8}}
BLOSC["configuration"].update(shuffle="shuffle", blocksize=0)
PLACES = {
    "compressor": (".zarray", array(compressor=OLD_BLOSC), "0"),
    "filter": (".zarray", array(filters=[OLD_BLOSC]), "0"),
    "format 3": ("zarr.json", array3(BLOSC), "c/0"),
    "text": ("zarr.json", array3("blosc"), "c/0"),
    "numcodecs": ("zarr.json", array3({**BLOSC, "name": "numcodecs.blosc"}), "c/0"),
    "shard": ("zarr.json", array3() | {"codecs": [sharded(BLOSC)]}, "c/0"),
    "gzip behind it": (
        ".zarray",
        array(filters=[OLD_BLOSC], compressor={"id": "gzip", "level": 1}),
        "0",
    ),
    "crc32c behind it": ("zarr.json", array3(BLOSC, {"name": "crc32c"}), "c/0"),
}
each_place = pytest.mark.parametrize(
    "place",
    [
        pytest.param(place, id=name, marks=[zarr3] if place[2] == "c/0" else [])
        for name, place in PLACES.items()
    ],
)


def with_chunk(place, chunk):
    """Write an array of two items with a chunk, which numcodecs never gets."""
    document, content, name = place
    if "gzip" in str(content):
        chunk = gzip.compress(chunk)
    if content.get("codecs", [])[-1:] == [{"name": "crc32c"}]:
        chunk += struct.pack("<I", google_crc32c.value(chunk))
    if "sharding_indexed" in str(content):
        chunk += struct.pack("<2Q", 0, len(chunk))
    return write_folder({document: content, name: chunk})


@pytest.fixture
def no_blosc(monkeypatch):
    blosc = pytest.importorskip("numcodecs.blosc", reason="numcodecs has no Blosc")
    monkeypatch.delattr(blosc.Blosc, "decode")


@each_place
@pytest.mark.parametrize("chunk", CHUNKS.values(), ids=CHUNKS)
@pytest.mark.usefixtures("no_blosc")
def test_hostile_chunks(place, chunk):
    path = with_chunk(place, chunk)
    with dataset.open(path) as found, pytest.raises(FormatError, match=r"a\.zarr"):
        found[:]
    with pytest.raises(FormatError, match=r"a\.zarr"):
        dataset.convert(path, "out.npy")
    assert not dataset.verify(path).ok


@each_place
@pytest.mark.usefixtures("no_blosc")
def test_right_chunks(place):
    path = with_chunk(place, chunk_of(16, 32) + struct.pack("<2q", 5, 6))
    assert [5, 6] == dataset.open(path)[:].tolist()


# Memory


def bomb(name, size, method=zipfile.ZIP_DEFLATED):
    """Write a store with a document of `size` blanks."""
    with (
        zipfile.ZipFile("a.zip", "w", method) as archive,
        archive.open(name, "w", force_zip64=True) as member,
    ):
        for _ in range(size >> 20):
            member.write(b" " * 2**20)
    return "a.zip"


LARGE = (".zarray", ".zgroup", pytest.param("zarr.json", marks=zarr3))


@pytest.mark.parametrize("name", LARGE)
def test_large_documents(name):
    """No more is unpacked than a document may have."""
    path = bomb(name, 65 * 2**20)
    assert os.path.getsize(path) < 10**6
    with pytest.raises(DamageError, match="at most '67108864'"):
        dataset.convert(path, "out.npy")


def test_large_documents_in_folders():
    write_folder({".zarray": array()})
    os.truncate("a.zarr/.zarray", 5 * 2**30)
    with pytest.raises(FormatError, match=r"at most '67108864'"):
        dataset.convert("a.zarr", "out.npy")


SHARDED = {
    "chunk_shape": [2],
    "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    "index_codecs": [
        {"name": "bytes", "configuration": {"endian": "little"}},
        {"name": "crc32c"},
    ],
}


@zarr3
@pytest.mark.parametrize(
    "changes",
    [{}, {"codecs": [{"name": "sharding_indexed", "configuration": SHARDED}]}],
    ids=["chunk", "shard"],
)
def test_large_chunks(changes):
    """No more of a compressed member is unpacked than a chunk or shard may have."""
    path = bomb("c/0", 65 * 2**20)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("zarr.json", json.dumps(array3() | changes))
    tracemalloc.start()
    with (
        dataset.open(path) as found,
        pytest.raises(DamageError, match=r"at most .* found '68157440'.*c/0"),
    ):
        found[:]
    assert not dataset.verify(path).ok
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


@pytest.mark.parametrize(
    "codecs",
    [
        [
            {"name": "blosc", "configuration": {"typesize": 1, "cname": "lz4"}},
            {"name": "crc32c"},
        ],
        pytest.param([{"name": "gzip", "configuration": {"level": 1}}], marks=zarr3),
    ],
    ids=["blosc", "gzip"],
)
def test_an_index_that_zip_compresses(codecs):
    """An item needs the whole index, which may be a thousand times the file."""
    chunks = 2**22
    sharding = {
        "chunk_shape": [1],
        "codecs": [{"name": "bytes"}, *codecs],
        "index_codecs": SHARDED["index_codecs"],
    }
    document = array3() | {
        "shape": [chunks],
        "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [chunks]}},
        "codecs": [{"name": "sharding_indexed", "configuration": sharding}],
    }
    path = bomb("c/0", 16 * chunks)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("zarr.json", json.dumps(document))
    assert os.path.getsize(path) < 2**17
    tracemalloc.start()
    with (
        dataset.open(path) as found,
        pytest.raises(Unsupported, match=r"its index of '4194304' chunks.*c/0"),
    ):
        found[5]
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


def test_zeros_in_bzip2():
    """Much fewer bytes are stored than with any other method."""
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(2 * 10**7, "u1"))
    with zipfile.ZipFile("a.npz", "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("a.npy", buffer.getvalue())
    assert os.path.getsize("a.npz") < 300
    assert 2 * 10**7 == dataset.convert("a.npz", "a.npy").nbytes


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_members_are_unpacked_in_pieces(method):
    """Memory is not needed for what lies behind the bytes that are read."""
    name = "zarr.json"
    with zipfile.ZipFile("a.zip", "w", method) as archive:
        archive.writestr(name, bytes(4 * 10**8))
    data = bytearray(Path("a.zip").read_bytes())
    for at in (22, data.index(b"PK\x01\x02") + 24):
        data[at : at + 4] = (100).to_bytes(4, "little")
    Path("a.zip").write_bytes(data)
    del data
    tracemalloc.start()
    with pytest.raises(DamageError):
        dataset.open("a.zip")
    assert tracemalloc.get_traced_memory()[1] < 2 * 10**8
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("method", "ratio"), [(zipfile.ZIP_BZIP2, 2**21), (zipfile.ZIP_LZMA, 2**15)]
)
def test_members_that_claim_much(method, ratio):
    """No more is unpacked than the method can store in that many bytes."""
    array = np.zeros((3, 5), order="F")
    buffer = io.BytesIO()
    np.save(buffer, array)
    with zipfile.ZipFile("a.npz", "w", method) as archive:
        archive.writestr("a.npy", buffer.getvalue())
    with open("a.npz", "rb") as fp:
        data = bytearray(fp.read())
    dataset.convert("a.npz", "out.npy")
    entry = data.index(b"PK\x01\x02")
    (stored,) = struct.unpack_from("<I", data, entry + 20)
    data[entry + 24 : entry + 28] = (ratio * stored + 1).to_bytes(4, "little")
    with open("b.npz", "wb") as fp:
        fp.write(data)
    with pytest.raises(DamageError, match=r"'a.npy' can't have '\d+' bytes.*b\.npz"):
        dataset.convert("b.npz", "out.npy", force=True)


@zarr3
def test_names_of_many_parts():
    with zipfile.ZipFile("a.zip", "w") as archive:
        archive.writestr("a/" * 3000 + "x", b"")
        archive.writestr("zarr.json", json.dumps(array3()))
    assert (2,) == dataset.open("a.zip").shape


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("at", [6, 8, 14, 18, 22])
def test_a_local_header_of_npz_that_disagrees(save, at):
    """Flags, method, CRC or sizes differ from those in the directory."""
    save("a.npz", a=np.arange(1000), b=[1])
    data = bytearray(Path("a.npz").read_bytes())
    data[at] ^= 1
    Path("a.npz").write_bytes(data)
    with pytest.raises(DamageError, match=r"local header of the member 'a\.npy'"):
        dataset.convert("a.npz", "a.zarr")


def test_claimed_sizes():
    """A member can't have more bytes than its stored ones hold."""
    np.savez_compressed("a.npz", a=np.arange(1000))
    with open("a.npz", "rb") as fp:
        data = bytearray(fp.read())
    entry = data.index(b"PK\x01\x02")
    data[entry + 24 : entry + 28] = (2**32 - 2).to_bytes(4, "little")
    with open("b.npz", "wb") as fp:
        fp.write(data)
    with pytest.raises(DamageError, match=r"can't have '4294967294' bytes.*b\.npz"):
        dataset.convert("b.npz", "out.npy")


def test_claimed_shapes():
    with zipfile.ZipFile("a.npz", "w") as archive, archive.open("a.npy", "w") as fp:
        np.lib.format.write_array_header_1_0(
            fp, {"descr": "<f8", "fortran_order": False, "shape": (1, 2**40)}
        )
    with pytest.raises(DamageError, match="ends too early: expected '8796093022208'"):
        dataset.convert("a.npz", "out.npy")


# Damaged ZIP files


def test_members_without_a_name():
    with zipfile.ZipFile("a.npz", "w") as archive:
        archive.writestr("x", b"")
    with open("a.npz", "rb") as fp:
        data = fp.read()
    with open("a.npz", "wb") as fp:
        fp.write(data.replace(b"x", b"\0"))
    with pytest.raises(BloscpackError, match=r"a\.npz"):
        dataset.convert("a.npz", "out.npy")


@pytest.mark.parametrize("kind", ["npz", "zip"])
def test_flipped_bits_in_zip_files(kind):
    """Every failure is one of ours, and names the file."""
    if kind == "npz":
        np.savez("a.npz", a=np.arange(20), b=np.eye(3))
    else:
        write_zip({".zgroup": GROUP, "x/.zarray": array(), "x/0": bytes(16)})
    with open("a." + kind, "rb") as fp:
        data = fp.read()
    start = 8 * data.index(b"PK\x01\x02")
    bits = [*range(start, 8 * len(data), 7), *range(0, start, 301)]
    if sys.version_info >= (3, 12):  # zarr starts a thread for each store
        bits = bits[::3]
    refused = 0
    for bit in bits:
        other = bytearray(data)
        other[bit // 8] ^= 1 << bit % 8
        with open("b." + kind, "wb") as fp:
            fp.write(other)
        try:
            dataset.convert("b." + kind, "out.npz", force=True)
        except BloscpackError as error:
            refused += "b." + kind in str(error) or pytest.fail("%d: %s" % (bit, error))
    assert refused > len(bits) / 20


@zarr3
@pytest.mark.parametrize(
    ("codecs", "error", "message"),
    [
        (None, DamageError, "zarr can't read it"),
        ("pickle", Unsupported, "names the codec 'pickle'"),
        ({"name": "pickle"}, Unsupported, "names the codec 'pickle'"),
        ([5], Unsupported, "names the codec '5'"),
    ],
)
def test_codecs_in_other_forms(codecs, error, message):
    path = write_folder({"zarr.json": array3() | {"codecs": codecs}})
    with pytest.raises(error, match=message):
        dataset.open(path)
