"""``blpk info``: the facts about a file, drawn as those about a dataset."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

import bloscpack
from bloscpack import BloscArgs, BloscpackArgs, dataset
from bloscpack.cli import main

pytestmark = pytest.mark.usefixtures("folder")

ARRAY = np.arange(30_000.0).reshape(3000, 10)


@pytest.fixture
def info(capsys):
    """Return a function that runs the command, and returns its lines by label."""

    def info(*arguments):
        main(["info", *arguments])
        text, errors = capsys.readouterr()
        assert "" == errors
        pairs = (line.partition(":") for line in text.splitlines())
        return {label: value.strip() for label, _, value in pairs}

    return info


def test_file_and_dataset_alike(info):
    attributes = {"unit": "m", "from": [1, 2]}
    settings = {"cname": "lz4", "clevel": 3}
    bloscpack.pack_ndarray_to_file(
        ARRAY, "a.blp", "80K", metadata=attributes, checksum="crc32c", **settings
    )
    dataset.create_array(
        "a.zarr", ARRAY, chunks=1024, attrs=attributes, **settings
    ).close()
    file, folder = info("a.blp"), info("a.zarr")
    same = ("kind", "shape", "dtype", "nchunks", "checksum", "plain")
    assert {label: folder[label] for label in same} == {
        label: file[label] for label in same
    }
    assert ("blp 3", "lz4, filter shuffle") == (file["format"], file["codec"])
    assert ("zarr", "lz4, level 3, filter shuffle") == (
        *(folder["layout"], folder["codec"]),
    )
    assert (
        attributes == json.loads(file["metadata"]) == json.loads(folder["attributes"])
    )
    assert "234.38K (240000 bytes)" == file["plain"]
    size = bloscpack.info("a.blp").cbytes
    assert file["packed"].endswith("(%d bytes)" % size)
    assert "%.2f" % (240_000 / size) == file["ratio"]
    assert (
        "80.0K (81920 bytes), the last chunk 74.38K (76160 bytes)" == file["chunk size"]
    )


@pytest.mark.parametrize(
    ("expected", "arguments"),
    [
        ({"kind": "bytes", "room": "for 30 more chunks"}, {}),
        ({"room": "none: there is no offset table"}, {"offsets": False}),
        ({"checksum": "None"}, {"checksum": "None"}),
    ],
)
def test_settings(info, expected, arguments):
    args = BloscpackArgs(**arguments)
    bloscpack.pack_bytes_to_file(bytes(3000), "a.blp", 1000, bloscpack_args=args)
    found = info("a.blp")
    assert expected.items() <= found.items()
    assert "3" == found["nchunks"]


def test_room_for_metadata(info):
    bloscpack.pack_bytes_to_file(bytes(3000), "a.blp", 1000, {"k": 1})
    header = bloscpack.info("a.blp").metadata_header
    free = header.max_meta_size - header.meta_comp_size
    room = info("a.blp")["room"]
    assert "for 30 more chunks, and %d more bytes of metadata" % free == room
    bloscpack.append_bytes_to_file(bytes(1000), "a.blp")
    assert info("a.blp")["room"].startswith("for 29 more chunks,")


@pytest.mark.parametrize(
    ("is_split", "cname", "clevel", "typesize"),
    [
        (True, "blosclz", 5, 8),
        (False, "zstd", 5, 8),
        (False, "blosclz", 5, 1),
        (False, "blosclz", 5, 64),
        (False, "blosclz", 0, 8),
    ],
)
def test_blocks_that_are_split(info, capsys, is_split, cname, clevel, typesize):
    args = BloscArgs(typesize, clevel, True, cname)
    data = np.arange(20_000).tobytes()
    bloscpack.pack_bytes_to_file(data, "a.blp", blosc_args=args)
    found = info("a.blp")
    how = "split by the bytes of the items" if is_split else "not split"
    assert found["block size"].endswith(", " + how)
    assert is_split is bloscpack.info("a.blp").first_chunk.split
    assert ("uncompressed" in found["codec"]) is (clevel == 0)


def test_shape_and_order(info):
    bloscpack.pack_ndarray_to_file(np.asfortranarray(ARRAY), "f.blp")
    found = info("f.blp")
    assert ("(3000, 10)", "F") == (found["shape"], found["order"])
    bloscpack.pack_ndarray_to_file(ARRAY, "c.blp")
    assert not {"order", "metadata"} & info("c.blp").keys()


def test_long_metadata(info):
    bloscpack.pack_bytes_to_file(b"x", "a.blp", metadata=["x" * 2**17])
    shown = info("a.blp")["metadata"]
    assert shown.endswith("... ('blpk metadata' shows all)")
    assert len(shown) < 2**16 + 100


def test_damage_before_the_chunks_are_counted(info, capsys):
    args = BloscpackArgs(offsets=False)
    packed = bloscpack.pack_bytes_to_bytes(bytes(9000), 1000, bloscpack_args=args)
    header = bytearray(packed[:32])
    header[12:24] = b"\xff" * 12  # neither the last chunk nor the count is known
    with open("a.blp", "wb") as fp:
        fp.write(header + packed[32:])
    assert ("9", "8.79K (9000 bytes)") == tuple(
        map(info("a.blp").get, ("nchunks", "plain"))
    )
    with open("a.blp", "r+b") as fp:
        fp.truncate(len(packed) - 2)
    check_damaged(capsys, "the file ends too early")
    with open("a.blp", "r+b") as fp:
        fp.seek(32)
        fp.write(b"\xff")
    check_damaged(capsys, "not a Blosc chunk")
    with pytest.raises(SystemExit, match="3"):
        main(["info", "--json", "a.blp"])


def check_damaged(capsys, reason):
    with pytest.raises(SystemExit, match="3"):
        main(["info", "a.blp"])
    lines = capsys.readouterr().out.splitlines()
    found = dict(line.split(":", 1) for line in lines)
    assert found["damaged"].strip().startswith(reason)
    assert not {"nchunks", "plain", "ratio"} & found.keys()


# Files of other formats that `convert` reads


OTHERS = [
    # (name, lines, line of ``list``)
    (
        "a.npy",
        {"kind": "array", "format": "npy", "shape": "(2, 3)", "dtype": "<i4"},
        "<i4 (2, 3) npy",
    ),
    ("a.npz", {"kind": "group", "members": "2"}, "group (npz)"),
    ("a.zip", {"kind": "group", "format": "archive"}, "group (archive)"),
    (
        "a.csv",
        {"kind": "table", "rows": "2", "columns": "2", "plain": "32 bytes"},
        "table (csv) of 2 rows",
    ),
]


@pytest.fixture
def others():
    array = np.arange(6, dtype="<i4").reshape(2, 3)
    np.save("a.npy", array)
    np.savez("a.npz", x=array, y=array)
    bloscpack.savez("a.zip", x=array)
    with open("a.csv", "w") as fp:
        fp.write("x,y\n1,2.5\n3,4\n")


@pytest.mark.parametrize(("name", "expected", "listed"), OTHERS)
def test_other_format(others, info, capsys, name, expected, listed):
    if name == "a.csv":
        pytest.importorskip("pyarrow")
    found = info(name)
    assert expected.items() <= found.items()
    assert "%d bytes" % os.path.getsize(name) in found["packed"]
    main(["info", "--json", name])
    described = json.loads(capsys.readouterr().out)
    assert (name, expected["kind"]) == (described["file"], described["kind"])
    main(["list", name])
    _, line = capsys.readouterr().out.splitlines()
    assert line.split(maxsplit=6)[-1] == "%s  %s" % (listed, name)


def test_total_with_other_formats(others, capsys):
    bloscpack.pack_ndarray_to_file(ARRAY, "a.blp", "80K")
    main(["list", "a.blp", "a.npy", "a.npz"])
    total = capsys.readouterr().out.splitlines()[-1].split()
    assert ["3", "total", "of", "3", "files"] == total[3:]


@pytest.mark.parametrize(
    ("code", "message", "content", "name"),
    [
        (1, "magic marker", b"no format is known that begins so", "a.dat"),
        (1, "it is no CSV", b"a,b\n1\n" * 9, "a.csv"),
        (3, "the file ends too early", None, "cut.npy"),
    ],
)
def test_other_file(others, capsys, code, message, content, name):
    if name == "a.csv":
        pytest.importorskip("pyarrow")
    with open("a.npy", "rb") as fp:
        content = content or fp.read()[:-1]
    with open(name, "wb") as fp:
        fp.write(content)
    for verb in ("info", "list"):
        with pytest.raises(SystemExit, match=str(code)):
            main([verb, name])
        out, err = capsys.readouterr()
        assert "" == out
        assert message in err
        assert "'%s" % name in err


@pytest.mark.parametrize("verb", ["info", "list"])
def test_store_of_another_program(capsys, verb):
    os.mkdir("a.zarr")
    with open("a.zarr/.zgroup", "w") as fp:
        fp.write('{"zarr_format": 2}')
    assert main([verb, "a.zarr"]) in (0, None)
    out, err = capsys.readouterr()
    assert "" == err
    assert (verb == "info") == ("zarr-python" in out)


def test_chunks_of_every_axis(capsys):
    bloscpack.pack_ndarray_to_file(ARRAY, "grid.blp", chunks=(7, 2), shard=True)
    main(["info", "grid.blp"])
    said = capsys.readouterr().out
    assert "chunk shape: (7, 2)\n" in said
    assert "7 rows in a chunk" in said
    main(["info", "--json", "grid.blp"])
    assert [7, 2] == json.loads(capsys.readouterr().out)["array"]["chunks"]
