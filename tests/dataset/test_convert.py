"""Files and folders are converted between formats: what needs no further package."""

from __future__ import annotations

import gc
import json
import os
import sys
import zipfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from dataset import golden_directories as golden
from dataset.layouts import LAYOUTS

import bloscpack
from bloscpack import dataset
from bloscpack.cli import main
from bloscpack.dataset import conversion, folder
from bloscpack.dataset.conversion import array_formats, contents, datasets
from bloscpack.exceptions import (
    DamageError,
    FormatError,
    NotReadable,
    StorageError,
    UsageError,
)


def table(length=5000):
    rows = np.zeros(
        length, [("a", ">i4"), ("b", "U2"), ("c", "f8", (2,)), ("d", "M8[D]")]
    )
    rows["a"] = np.arange(length)
    rows["b"] = np.where(rows["a"] % 3, "x", "yz")
    rows["c"] = rows["a"][:, None] / [2, 3]
    rows["d"] = rows["a"].astype("M8[D]")
    return rows


ARRAYS = {
    "numbers": np.arange(6000.0).reshape(600, 10),
    "big-endian": np.arange(1000, dtype=">u2"),
    "text": np.array(["a", "bcd", ""] * 100),
    "times": np.arange(100).astype("M8[ns]"),
    "fortran": np.asfortranarray(np.arange(6000, dtype="i4").reshape(30, 20, 10)),
    "no rows": np.zeros((0, 3), "f4"),
    "fields": table(),
}
# Formats that hold every array, and keep all that an array has.
FILES = ("npy", "blp")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch, tmp_path):
    """Make even small arrays several blocks."""
    monkeypatch.setattr(contents, "BLOCK_NBYTES", 1000)
    monkeypatch.setattr(datasets, "TABLE_NBYTES", 30_000)
    monkeypatch.setattr(array_formats, "COLUMNS_NBYTES", 500)
    monkeypatch.setattr(array_formats, "PIECE_NBYTES", 40)
    monkeypatch.chdir(tmp_path)


def assert_equal(expected, found):
    assert expected.dtype == found.dtype
    assert expected.shape == found.shape
    assert expected.tobytes() == found.tobytes()


# Beside a writer


def make_one_state(kind):
    """Make a dataset of which all items are 0; return a function that sets them."""
    items = np.zeros(1000, "i4")
    if kind == "array":
        dataset.create_array("a.zarr", items, chunks=100, shards=200).close()
    elif kind == "superchunk":
        dataset.create_array("a.zarr", items, layout=kind, chunks=100).close()
    elif kind == "table":
        dataset.create_table("a.zarr", {"x": items, "y": items}, chunks=100).close()
    else:
        with dataset.create_group("a.zarr") as group:
            group["x"], group["y"] = items, items
            if kind == "committing":
                with group.change():
                    pass

    def change(value):
        with dataset.open("a.zarr", "r+") as opened:
            if kind == "table":
                opened[:] = np.full(1000, value, "i4").astype(opened.dtype)
            elif kind in ("plain", "committing"):
                opened["x"][:] = opened["y"][:] = value
            else:
                opened[:] = value

    return change


@pytest.mark.parametrize(
    "kind", ["array", "superchunk", "table", "plain", "committing"]
)
@pytest.mark.parametrize("target", ["b.npy", "b.npz", "b.zarr", "b.bigfile"])
def test_a_source_that_changes_meanwhile(kind, target):
    """The copy is of one state."""
    if target == "b.bigfile" and kind in ("array", "superchunk"):
        pytest.skip("it holds no array alone")
    change, values = make_one_state(kind), [5, 6]

    def progress(nbytes):
        if values:
            change(values.pop())

    total = []
    dataset.convert("a.zarr", target, progress=progress, expect=total.append)
    assert ([], 1) == (values, len(total))
    dataset.convert(target, "c.npy")
    found = np.load("c.npy")
    for name in found.dtype.names or [...]:
        assert (1000, {5}) == (len(found), {*found[name].tolist()})


def test_a_source_that_changes_all_the_time(monkeypatch):
    monkeypatch.setattr(folder, "RELOAD_SECONDS", 0)
    change = make_one_state("table")
    with pytest.raises(StorageError, match="a copy of one moment"):
        dataset.convert("a.zarr", "b.npy", progress=lambda _: change(1))
    assert ["a.zarr"] == os.listdir()


def test_a_source_that_gets_shorter_meanwhile():
    change, values = make_one_state("array"), [5]

    def progress(nbytes):
        if values:
            with dataset.open("a.zarr", "r+") as array:
                array.resize(300)
            change(values.pop())

    dataset.convert("a.zarr", "b.npy", progress=progress)
    assert [5] * 300 == np.load("b.npy").tolist()


# Arrays


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("between", ["npy", "blp", "npz", *LAYOUTS])
def test_array(name, between):
    array = ARRAYS[name]
    np.save("a.npy", array)
    done = dataset.convert("a.npy", "b." + between)
    assert ("npy", between, array.nbytes, []) == (
        *(done.source_format, done.target_format),
        *(done.nbytes, done.lost),
    )
    dataset.convert("b." + between, "c.npy")
    found = np.load("c.npy")
    assert_equal(array, found)
    if between in (*FILES, "npz"):
        assert array.flags.f_contiguous == found.flags.f_contiguous
        kind = "array" if between != "npz" else "group"
    else:
        is_table = array.dtype.names and between != "superchunk"
        kind = "table" if is_table else "array"
        assert array.flags.c_contiguous or found.flags.c_contiguous
    assert kind == dataset.convert("b." + between, "d.zarr").kind


def test_a_member_that_is_refused():
    np.savez("a.npz", **{"x": [1, 2], "g/y": np.float64(3)})
    with pytest.raises(UsageError, match=r"'g/y': .*at least one axis"):
        dataset.convert("a.npz", "b.superchunk")


def test_no_axes():
    np.save("a.npy", np.float32(5))
    dataset.convert("a.npy", "b.blp")
    dataset.convert("b.blp", "c.npz")
    dataset.convert("c.npz", "d.npy")
    assert_equal(np.array(5, "f4"), np.load("d.npy"))
    dataset.convert("a.npy", "e.zarr")
    assert ((), 5) == (dataset.open("e.zarr").shape, dataset.open("e.zarr")[()])
    with pytest.raises(UsageError, match="at least one axis"):
        dataset.convert("a.npy", "f.superchunk")
    assert not os.path.exists("f.superchunk")


def test_result_of_npy_to_blp_is_that_of_pack():
    array = np.random.default_rng(1).random((500, 700))
    np.save("a.npy", array)
    dataset.convert("a.npy", "a.blp", clevel=3, cname="zstd")
    bloscpack.pack_ndarray_to_file(array, "b.blp", clevel=3, cname="zstd")
    with open("a.blp", "rb") as one, open("b.blp", "rb") as other:
        assert other.read() == one.read()


def test_an_archive_of_numpy_without_members():
    np.savez("a.npz")
    dataset.convert("a.npz", "b.zarr")
    assert [] == list(dataset.open("b.zarr"))


@pytest.mark.parametrize("compressed", [False, True])
def test_fortran_in_an_archive(compressed):
    array = ARRAYS["fortran"]
    (np.savez_compressed if compressed else np.savez)("a.npz", x=array)
    dataset.convert("a.npz", "a.zarr")
    assert_equal(array, dataset.open("a.zarr")["x"][:])


def test_a_temporary_file_has_a_limit():
    """A few bytes of bzip2 may claim a gigabyte."""
    np.save("a.npy", np.zeros((2000, 1000), order="F"))
    with zipfile.ZipFile("a.npz", "w", zipfile.ZIP_BZIP2) as archive:
        archive.write("a.npy", "x.npy")
    with pytest.raises(UsageError, match=r"x\.npy': .* needs a temporary file"):
        dataset.convert("a.npz", "b.zarr")
    assert ["a.npy", "a.npz"] == sorted(os.listdir())


def test_a_file_that_another_program_shortens():
    """It is read, not mapped."""
    np.save("a.npy", np.arange(9000))

    def shortened(nbytes):
        os.truncate("a.npy", 5000)

    with pytest.raises(DamageError, match="ends too early") as caught:
        dataset.convert("a.npy", "b.npy", progress=shortened)
    assert "a.npy" == caught.value.filename
    assert ["a.npy"] == os.listdir()


def test_fortran_blp_to_rows():
    array = ARRAYS["fortran"]
    bloscpack.pack_ndarray_to_file(array, "a.blp", 1000)
    dataset.convert("a.blp", "a.bcolz")
    assert_equal(array, dataset.open("a.bcolz")[:])


def test_settings():
    np.save("a.npy", np.arange(9))
    dataset.convert("a.npy", "b.bcolz", cname="zlib", clevel=2, shuffle=False)
    with open("b.bcolz/meta/storage") as fp:
        assert '"cname": "zlib"' in fp.read()
    with pytest.raises(UsageError, match="did you mean 'level'"):
        dataset.convert("a.npy", "c.bcolz", levle=2)
    assert ["a.npy", "b.bcolz"] == sorted(os.listdir())
    for name in ("c.bcolz", "c.blp"):
        dataset.convert("a.npy", name, codec="zlib", level=2)
    assert dataset.describe("b.bcolz")["codec"] == dataset.describe("c.bcolz")["codec"]
    assert "zlib" == bloscpack.info("c.blp").first_chunk.codec


def test_other_names_of_settings_win_over_those_that_fit(monkeypatch):
    monkeypatch.setattr(contents, "BLOCK_NBYTES", 10**6)  # large enough for trials
    np.save("a.npy", np.arange(100_000.0))
    for settings in ({"codec": "zlib"}, {"codec": "zlib", "level": 2}):
        dataset.convert("a.npy", "a.blp", force=True, **settings)
        assert "zlib" == bloscpack.info("a.blp").first_chunk.codec


@pytest.mark.parametrize("name", ["b.npy", "b.npz", "b.csv", "b.blp", "b.zarr"])
def test_an_unknown_setting_is_refused_for_every_target(name):
    np.save("a.npy", np.arange(9))
    with pytest.raises(UsageError, match="did you mean 'level'"):
        dataset.convert("a.npy", name, levle=2)
    assert ["a.npy"] == os.listdir()
    dataset.convert("a.npy", name, level=2)


# Attributes


def test_attributes():
    metadata = {"unit": "m", "list": [1, None]}
    bloscpack.pack_ndarray_to_file(np.arange(5), "a.blp", metadata=metadata)
    names = ["a.blp", "b.bcolz", "b.superchunk", "c.zarr"]
    for source, target in pairwise(names):
        assert [] == dataset.convert(source, target).lost
        assert metadata == dict(dataset.open(target).attrs)
    assert [] == dataset.convert("c.zarr", "d.blp").lost
    assert (
        metadata == bloscpack.unpack_ndarray_from_file("d.blp", return_metadata=True)[1]
    )
    assert ["the attributes"] == dataset.convert("d.blp", "e.npy").lost


@pytest.mark.parametrize("metadata", [[1, 2], "text", 0, {"metadata": {}}])
def test_metadata_of_any_type(metadata):
    bloscpack.pack_ndarray_to_file(np.arange(5), "a.blp", metadata=metadata)
    dataset.convert("a.blp", "b.zarr")
    dataset.convert("b.zarr", "c.blp")
    found = bloscpack.unpack_ndarray_from_file("c.blp", return_metadata=True)[1]
    assert metadata == found


def test_attributes_that_are_no_json():
    """All layouts keep numbers that only Python's JSON has, as zarr-python does."""
    attrs = {"unit": "m", "low": float("nan"), "range": {"to": [float("inf")]}}
    columns = {"a": [1], "b": [2]}
    with dataset.create_table("a", columns, layout="bcolz", attrs=attrs) as made:
        made["b"].attrs["low"] = float("nan")
    for target in ("b.zarr", "b.superchunk"):
        assert [] == dataset.convert("a", target).lost
        with dataset.open(target) as found:
            assert str(attrs) == str(dict(found.attrs))
            assert "nan" in str(found["b"].attrs)


def test_attributes_of_columns():
    with dataset.create_table("a.bcolz", {"x": [1, 2]}, layout="bcolz") as made:
        made["x"].attrs["unit"] = "s"
    assert [] == dataset.convert("a.bcolz", "a.superchunk").lost
    assert [] == dataset.convert("a.superchunk", "b.zarr").lost
    assert {"unit": "s"} == dict(dataset.open("b.zarr")["x"].attrs)
    assert ["the attributes"] == dataset.convert("b.zarr", "c.blp").lost


# Tables and groups


def test_group():
    np.savez("a.npz", **{"x": np.arange(3), "g/y": np.eye(2), "g/t": table(10)})
    assert "group" == dataset.convert("a.npz", "b.zarr").kind
    found = dataset.open("b.zarr")
    assert ["g", "x"] == sorted(found)
    assert_equal(np.eye(2), found["g/y"][:])
    assert_equal(table(10), found["g/t"][:])
    dataset.convert("b.zarr", "c.zarr")
    dataset.convert("c.zarr", "d.npz")
    with np.load("d.npz") as arrays:
        assert ["g/t/a", "g/t/b", "g/t/c", "g/t/d", "g/y", "x"] == sorted(arrays.files)
        assert_equal(table(10)["b"], arrays["g/t/b"])


def test_group_of_superchunks():
    """A group of Zarr has the members, attributes and empty groups."""
    with dataset.create_group("a.zarr", attrs={"unit": "m"}) as group:
        group.create_array("x", np.arange(3))
        group.create_table("g/t", {"a": np.arange(9)}, attrs={"k": 1})
        group.create_group("g/empty")
        fields = group.create_array("s", ARRAYS["fields"], layout="superchunk")
        fields.close()
    for force in (False, True):
        assert [] == dataset.convert("a.zarr", "b.superchunk", force=force).lost
    found = dataset.open("b.superchunk")
    assert ["g", "s", "x"] == sorted(found)
    assert {"unit": "m"} == dict(found.attrs)
    assert ["empty", "t"] == sorted(found["g"])
    assert ["superchunk"] * 3 == [found[name].layout for name in ("x", "s", "g/t")]
    assert {"k": 1} == dict(found["g/t"].attrs)
    assert_equal(ARRAYS["fields"], found["s"][:])
    dataset.convert("b.superchunk", "c.zarr")
    assert ["a", "b", "c", "d"] == dataset.open("c.zarr")["s"].names


def test_items_that_only_superchunks_hold():
    nested = np.dtype([("x", "<i4"), ("p", [("u", ">f8", (2,)), ("s", "S3")])])
    array = np.zeros((500, 2), nested)
    array["x"] = np.arange(1000).reshape(500, 2)
    array["p"]["u"] = array["x"][..., None]
    for items in (array, array[:, 0].copy(), np.arange(9).astype("g")):
        np.save("a.npy", items)
        dataset.convert("a.npy", "b.superchunk", force=True)
        dataset.convert("b.superchunk", "c.npy", force=True)
        assert_equal(items, np.load("c.npy"))


def test_group_for_a_format_without_groups():
    np.savez("one.npz", np.arange(3))
    np.savez("same.npz", x=np.arange(3000), y=np.arange(6000.0).reshape(3000, 2))
    np.savez("different.npz", x=np.arange(3), y=np.arange(4))
    assert [] == dataset.convert("one.npz", "one.npy").lost
    assert [0, 1, 2] == np.load("one.npy").tolist()
    assert "table" == dataset.convert("same.npz", "same.bcolz").kind
    found = dataset.open("same.bcolz")
    assert ["x", "y"] == found.names
    assert list(range(3000)) == found["x"][:].tolist()
    assert [5998.0, 5999.0] == found["y"][-1].tolist()
    with pytest.raises(UsageError, match=r"'bcolz' can't hold a group; npz, .*zarr"):
        dataset.convert("different.npz", "different.bcolz")


def test_array_that_does_not_fill_its_member():
    """A flipped bit in the header of a member makes no shorter array."""
    np.savez("a.npz", x=np.arange(9000))
    with zipfile.ZipFile("a.npz") as archive:
        content = archive.read("x.npy")
    with zipfile.ZipFile("b.npz", "w") as archive:
        archive.writestr("x.npy", content.replace(b"(9000,)", b"(1000,)"))
    with pytest.raises(FormatError, match="one array, found more bytes behind"):
        dataset.convert("b.npz", "b.zarr")


def test_attributes_of_a_group_for_a_format_without_groups():
    with dataset.create_group("g.zarr", attrs={"site": "A"}) as group:
        group.create_array("a", [1, 2])
    for name in ("g.blp", "g.npy", "g.bcolz"):
        done = dataset.convert("g.zarr", name)
        assert ["the attributes of the group"] == done.lost


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a", "a/b"], "in another array"),
        (["a/b", "a"], "two members"),
        (["../a"], "can't be used"),
        (["a/" * 3000 + "a"], "at most '100' groups inside of one another"),
    ],
)
def test_names_of_members(names, message):
    np.savez("a.npz", **{name: np.arange(3) for name in names})
    with pytest.raises(UsageError, match=message):
        dataset.convert("a.npz", "b.zarr")
    assert ["a.npz"] == os.listdir()


def test_a_name_that_leads_out_of_the_target():
    """A hostile store may list any names."""
    inside = contents.Rows(np.dtype("i4"), (0,), np.zeros(0, "i4"))
    group = contents.Members({"../../escaped": inside})
    request = conversion.Request("b.zarr", layout="zarr")
    with pytest.raises(UsageError, match="name of a member"):
        conversion.WRITTEN["zarr"].check_names(group, request)
    assert [] == os.listdir()


# The golden directories whose arrays have a fill value that is not zero.
WITH_FILL_VALUES = ("bcolz/z_dflt", "bcolz/z_life_resize_up")


@pytest.mark.parametrize("name", golden.entries())
def test_golden_directories(name, tmp_path):
    golden.extract(name, tmp_path / "source")
    expected = dataset.open(tmp_path / "source", allow_pickle=True)
    dtypes = (
        [column.dtype for column in expected.columns.values()]
        if isinstance(expected, dataset.Table)
        else [expected.dtype]
    )
    if any(dtype.hasobject for dtype in dtypes):
        with pytest.raises(FormatError, match="objects"):
            dataset.convert("source", "a.npy")
        return
    done = dataset.convert("source", "a.npy")
    found = np.load("a.npy")
    assert found.dtype == expected.dtype
    assert expected[:].tobytes() == found.tobytes()
    attributes = golden.attributes(name)
    if "columns" in attributes and "table" in attributes:
        attributes = {**attributes["table"], **attributes.pop("columns")}
        attributes = {name: value for name, value in attributes.items() if value != {}}
    assert ("the attributes" in done.lost) == bool(attributes)
    assert ("the fill value" in done.lost) == (name in WITH_FILL_VALUES)


# Refused, damaged and interrupted


def test_existing_target():
    np.save("a.npy", np.arange(3))
    np.save("b.npy", np.arange(4))
    for target in ("c.npy", "c.zarr", "c.bcolz"):
        dataset.convert("a.npy", target)
        with pytest.raises(FileExistsError):
            dataset.convert("b.npy", target)
        dataset.convert("b.npy", target, force=True)
    assert 4 == len(np.load("c.npy"))
    assert 4 == len(dataset.open("c.zarr")) == len(dataset.open("c.bcolz"))
    dataset.convert("b.npy", "c.npy", to="blp", force=True)
    assert 4 == len(bloscpack.unpack_ndarray_from_file("c.npy"))
    with pytest.raises(OSError, match="not a folder"):
        dataset.convert("b.npy", "a.npy", to="zarr", force=True)
    os.mkdir("d.zarr")
    with open("d.zarr/file", "w"):
        pass
    fields = np.array([(1, 2.5), (3, 4)], [("n", "i4"), ("x", "f8")])
    np.save("f.npy", fields)
    for _ in range(2):
        assert "array" == dataset.convert("f.npy", "e.bigfile", force=True).kind
        dataset.convert("e.bigfile", "e.npz", force=True)
        assert fields["x"].tolist() == np.load("e.npz")["x"].tolist()
    with pytest.raises(FileExistsError):
        dataset.convert("f.npy", "e.bigfile")
    with pytest.raises(OSError, match="not a dataset"):
        dataset.convert("f.npy", "e.bigfile", to="zarr", force=True)
    for name in ("e.bigfile/file", "e.bigfile/x/file", "e.bigfile/link"):
        os.symlink("n", name) if "link" in name else open(name, "w").close()
        with pytest.raises(OSError, match="not a dataset"):
            dataset.convert("f.npy", "e.bigfile", force=True)
        os.unlink(name)
    with pytest.raises(UsageError, match="can't hold an array"):
        dataset.convert("a.npy", "f.bigfile")
    with pytest.raises(OSError, match="not a dataset"):
        dataset.convert("b.npy", "d.zarr", force=True)
    with pytest.raises(OSError, match="directory"):
        dataset.convert("b.npy", "d.zarr", to="npy", force=True)


def test_source_and_target_inside_of_each_other():
    with dataset.create_group("g") as group:
        group.create_array("x", np.arange(3)).close()
    with pytest.raises(UsageError, match=r"'g/y\.zarr' is the source 'g', or inside"):
        dataset.convert("g", "g/y.zarr")
    with pytest.raises(UsageError, match="'g' contains the source 'g/x'"):
        dataset.convert("g/x", "g", to="zarr", force=True)
    dataset.convert("g/x", "gx.zarr")
    assert {"x", "zarr.json"} == set(os.listdir("g"))


def test_formats():
    np.save("a", np.arange(3))
    os.rename("a.npy", "a.zarr")  # the content counts
    assert "npy" == dataset.convert("a.zarr", "b.blp").source_format
    with pytest.raises(UsageError, match="does not say which format"):
        dataset.convert("b.blp", "c")
    with pytest.raises(UsageError, match="no format 'txt'; the formats are npy, npz"):
        dataset.convert("b.blp", "c", to="txt")
    with pytest.raises(UsageError, match="'blz' can only be read: create one of"):
        dataset.convert("b.blp", "c.blz")
    with pytest.raises(UsageError, match="same file"):
        dataset.convert("b.blp", "./b.blp", force=True)
    with pytest.raises(UsageError, match="for text"):
        dataset.convert("b.blp", "c.npy", dtypes={"a": "i4"})
    with open("text", "w") as fp:
        fp.write("text")
    os.mkdir("folder")
    for source in ("text", "folder"):
        with pytest.raises(NotReadable, match=r"expected (a|one of)") as caught:
            dataset.convert(source, "c.npy")
        assert source == caught.value.filename
    with pytest.raises(FileNotFoundError):
        dataset.convert("nothing.npy", "c.npy")
    assert not os.path.exists("c.npy")


TARGETS = ["t.npy", "t.npz", "t.blp", "t.zarr", "t.bcolz", "t.superchunk"]


def flip(path, position):
    """Change a bit of the byte at a position, or before the end if it is negative."""
    with open(path, "rb") as fp:
        content = bytearray(fp.read())
    content[position] ^= 1
    with open(path, "wb") as fp:
        fp.write(content)


def shorten(path, size):
    os.truncate(path, size)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("source", "damage"),
    [
        ("a.npy", lambda: shorten("a.npy", 20_000)),
        ("a.npy", lambda: flip("a.npy", 20)),
        ("a.npz", lambda: flip("a.npz", 20_000)),
        ("a.npz", lambda: shorten("a.npz", 20_000)),
        ("a.blp", lambda: flip("a.blp", 200_000)),
        ("a.zarr", lambda: flip("a.zarr/c/0", -100_000)),
        ("a.zarr", lambda: shorten("a.zarr/c/0", 200_000)),
        ("a.zarr", lambda: shorten("a.zarr/zarr.json", 100)),
        ("a.superchunk", lambda: flip("a.superchunk/data/__1__.bin", -100_000)),
        ("a.superchunk", lambda: shorten("a.superchunk/data/__1__.bin", 200_000)),
        ("a.superchunk", lambda: os.remove("a.superchunk/data/__1__.bin")),
        ("a.superchunk", lambda: shorten("a.superchunk/meta/sizes", 10)),
        ("a.bcolz", lambda: shorten("a.bcolz/data/__0.blp", 100)),
        ("a.bcolz", lambda: os.remove("a.bcolz/data/__0.blp")),
    ],
)
def test_damage(source, damage, target):
    np.save("a.npy", np.random.default_rng(1).random(80_000))
    dataset.convert("a.npy", "b." + source.partition(".")[2])
    os.remove("a.npy")
    os.rename("b." + source.partition(".")[2], source)
    damage()
    with pytest.raises(FormatError) as caught:
        dataset.convert(source, target)
    assert isinstance(caught.value, DamageError)
    assert source in str(caught.value.filename)
    assert [source] == os.listdir()


class Interrupted(BaseException):
    pass


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("content", ["numbers", "fields"])
def test_interruption(target, content):
    np.save("a.npy", ARRAYS[content])
    np.save("b.npy", ARRAYS["big-endian"])
    calls = []

    def progress(nbytes):
        calls.append(nbytes)
        if sum(calls) > 20_000:
            raise Interrupted

    for force in (False, True):
        with pytest.raises(Interrupted):
            dataset.convert("a.npy", target, progress=progress, force=force)
        assert force == os.path.exists(target)
        if not force:
            dataset.convert("b.npy", target)
    assert ["a.npy", "b.npy", target] == sorted(os.listdir())
    dataset.convert(target, "c.npy")
    assert_equal(ARRAYS["big-endian"], np.load("c.npy"))


def test_progress():
    np.savez("a.npz", x=np.arange(5000), y=ARRAYS["fortran"], t=table())
    total, done = [], []
    nbytes = 40_000 + ARRAYS["fortran"].nbytes + table().nbytes
    dataset.convert("a.npz", "b.zarr", expect=total.append, progress=done.append)
    assert [nbytes] == total
    assert nbytes == sum(done)
    assert 20 < len(done)


def test_archive_with_another_member():
    with zipfile.ZipFile("a.npz", "w") as archive:
        archive.writestr("read.me", "text")
    with pytest.raises(NotReadable) as caught:
        dataset.convert("a.npz", "b.zarr")
    assert "a.npz" == caught.value.filename
    assert "found the member 'read.me'" in str(caught.value)


def test_folder_of_datasets():
    dataset.create_array("f/a", [1, 2], layout="bcolz").close()
    dataset.create_table("f/g/t", {"x": [1, 2]}, layout="bcolz").close()
    assert "folder" == dataset.convert("f", "b.zarr").source_format
    found = dataset.open("b.zarr")
    assert [1, 2] == found["a"][:].tolist()
    assert [(1,), (2,)] == found["g/t"][:].tolist()


@pytest.mark.parametrize("target", [*TARGETS, "b.npz", "b.superchunk"])
def test_fill_values(target):
    """Missing shards are read as the fill value; a target without one is reported."""
    source = dataset.create_array("a.zarr", shape=(50,), dtype="i4", fill_value=5)
    expected = source[:]
    assert 250 == expected.sum()
    done = dataset.convert("a.zarr", target)
    if os.path.isdir(target):
        assert [] == done.lost
        with dataset.open_array(target, "r+") as found:
            found.resize(60)
            assert [5] * 60 == found[:].tolist()
    else:
        assert ["the fill value"] == done.lost


def test_fill_values_of_fields():
    with dataset.create_table("t.zarr", {"x": [1, 2]}) as table:
        table.add_column("y", [3, 4], fill_value=9)
    assert ["the fill value"] == dataset.convert("t.zarr", "t.npy").lost
    items = np.zeros(5, [("x", "i4"), ("y", "f8")])
    dataset.create_array("a", items, layout="superchunk", fill_value=(3, 0.5)).close()
    assert [] == dataset.convert("a", "b.zarr").lost
    with dataset.open_table("b.zarr", "r+") as found:
        found.resize(6)
        assert (3, 0.5) == found[5].item()
    items, fill = np.zeros(5, [("x", "i4", 2)]), np.zeros((), [("x", "i4", 2)])
    fill["x"] = 1, 2
    dataset.create_array("c", items, layout="superchunk", fill_value=fill).close()
    assert ["the fill value"] == dataset.convert("c", "d.zarr").lost


def test_a_damaged_document_is_not_read_as_that_of_another_program():
    """zarr-python would look for shards of other names, and find none."""
    dataset.create_array("a", np.arange(1, 101), chunks=10).close()
    with open("a/zarr.json", "r+b") as fp:
        fp.seek(fp.read().index(b'"separator": "/"') + 14)
        fp.write(b".")
    with pytest.raises(DamageError, match="c/0/0") as caught:
        dataset.convert("a", "b.npy")
    assert "convert" not in str(caught.value)
    assert not os.path.exists("b.npy")


@pytest.mark.parametrize("target", ["b.npy", "b.zarr"])
def test_a_claimed_size_that_does_not_fit(target):
    dataset.create_array("a", np.arange(100), chunks=10).close()
    text = Path("a/zarr.json").read_text().replace("100", str(2**53), 1)
    Path("a/zarr.json").write_text(text)
    with pytest.raises(StorageError, match="bytes, and only"):
        dataset.convert("a", target)
    assert ["a"] == os.listdir()


class Stop(BaseException):
    """What the handler of a signal raises."""


def stop_at(event, action):
    """Raise `Stop` at a line of the code that makes and removes temporary folders.

    Return whether there was such a line while `action` ran.
    """
    left = event

    def on_line(frame, kind, value):
        nonlocal left
        left -= kind == "line"
        if not left:
            sys.settrace(None)
            raise Stop
        return on_line

    def on_call(frame, kind, value):
        name = frame.f_code.co_name
        return on_line if name.endswith("beside") or name == "clear" else None

    sys.settrace(on_call)
    try:
        action()
    except Stop:
        return True
    finally:
        sys.settrace(None)
    return False


def test_a_signal_leaves_no_temporary_folder(tmp_path):
    """It may come while the folder is made, and while it is removed."""
    np.save(tmp_path / "a.npy", np.arange(6).reshape(3, 2))
    event = 0
    stopped = True
    gc.freeze()  # `collect` looks at new objects alone, and is fast
    while stopped:
        event += 1
        stopped = stop_at(
            event,
            lambda: dataset.convert(
                tmp_path / "a.npy", tmp_path / "b.zarr", force=True
            ),
        )
        gc.collect()
        assert {"a.npy"} <= set(os.listdir(tmp_path)) <= {"a.npy", "b.zarr"}, event
        if os.path.exists(tmp_path / "b.zarr"):
            with dataset.open(tmp_path / "b.zarr") as found:
                assert 15 == found[:].sum()
    gc.unfreeze()
    assert event > 20


@pytest.mark.parametrize("to", ["zarr", "bcolz", "superchunk"])
def test_folders_in_front_of_the_target_are_made(tmp_path, to):
    np.save(tmp_path / "n.npy", np.arange(9))
    target = tmp_path / "no" / "such" / "n"
    dataset.convert(tmp_path / "n.npy", target, to=to)
    assert list(range(9)) == dataset.open(target)[:].tolist()


# Archives of savez


@pytest.fixture
def without_zarr(monkeypatch):
    monkeypatch.setitem(sys.modules, "zarr", None)


@pytest.mark.usefixtures("without_zarr")
def test_archive_needs_no_zarr():
    rows = np.zeros(5, [("p", "f8"), ("q", "i2")])
    arrays = {"a": np.arange(9), "g/a": np.eye(2), "g/h/t": rows, "s": np.int64(7)}
    bloscpack.savez("a.zip", **arrays)
    done = dataset.convert("a.zip", "b.npz")
    assert ("archive", "group", []) == (done.source_format, done.kind, done.lost)
    with np.load("b.npz") as found:
        assert arrays.keys() == set(found)
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, found[name])
    assert not dataset.convert("a.zip", "b.zarr").lost
    assert np.eye(2).tolist() == dataset.open("b.zarr/g/a")[...].tolist()
    assert 7 == dataset.open("b.zarr/s")[()]
    lost = dataset.convert("a.zip", "b.superchunk").lost
    assert ["'s'"] == [text.partition(" ")[0] for text in lost]


@pytest.mark.usefixtures("without_zarr")
def test_the_metadata_of_an_archive_are_attributes():
    bloscpack.save("a.zip", {"a": np.arange(9)}, metadata={"run": 7})
    done = dataset.convert("a.zip", "b.zarr")
    assert ("archive", []) == (done.source_format, done.lost)
    found = dataset.open("b.zarr")
    assert ({"run": 7}, 9) == (dict(found.attrs), len(found["a"]))


@pytest.mark.usefixtures("without_zarr")
def test_damage_in_an_archive():
    bloscpack.savez("a.zip", x=np.arange(1000))
    with open("a.zip", "r+b") as fp:
        fp.seek(fp.read().index(b"x/c/0") + 900)
        fp.write(b"?" * 9)
    with pytest.raises(FormatError, match="Checksum mismatch"):
        dataset.convert("a.zip", "b.npy")
    assert not os.path.exists("b.npy")


def with_attributes(document):
    return json.dumps({**json.loads(document), "attributes": {"unit": "m"}})


@pytest.mark.usefixtures("without_zarr")
@pytest.mark.parametrize("name", ["x/zarr.json", "x/c/0"])
def test_archive_of_another_program(name):
    """It is a Zarr store like any other."""
    bloscpack.savez("a.zip", x=np.arange(1000))
    change = with_attributes if name.endswith("json") else lambda content: content[9:]
    with zipfile.ZipFile("a.zip") as old, zipfile.ZipFile("b.zip", "w") as new:
        for member in old.namelist():
            content = old.read(member)
            new.writestr(member, change(content) if member == name else content)
    if name == "x/c/0":
        # It may be a later write of other software, but it is no shard.
        with pytest.raises(FormatError, match=r"the index of the shard.*b.zip/x/c/0"):
            dataset.convert("b.zip", "b.npy")
        return
    assert ["the attributes"] == dataset.convert("b.zip", "b.npz").lost
    assert range(1000) == range(len(np.load("b.npz")["x"]))


# Text that is separated by other marks


@pytest.mark.parametrize(
    ("mark", "shown"), [(";", "semicolons"), ("\t", "tabs"), (",", None)]
)
def test_other_marks(mark, shown):
    pytest.importorskip("pyarrow")
    with open("a.csv", "w") as fp:
        fp.write("x%sy\n1%s2\n" % (mark, mark))
    if shown is None:
        dataset.convert("a.csv", "b.npy")
        assert ("x", "y") == np.load("b.npy").dtype.names
        return
    message = "by %s: its only column .* --delimiter .* separates the values" % shown
    with pytest.warns(RuntimeWarning, match=message):
        dataset.convert("a.csv", "b.npy")


@pytest.mark.parametrize(
    ("given", "mark"),
    [(";", ";"), ("tab", "\t"), (r"\t", "\t"), ("\t", "\t"), ("^", "^")],
)
def test_delimiter(given, mark):
    """A CSV file with another delimiter is written and read again."""
    pytest.importorskip("pyarrow")
    rows = np.zeros(3, [("a", "U9"), ("b", "U9"), ("n", "i8")])
    rows["a"] = "1,5", 'say "%s"' % mark, ""
    rows["b"] = "x", mark, "\n"
    np.save("a.npy", rows)
    dataset.convert("a.npy", "a.csv", delimiter=given)
    text = Path("a.csv").read_text()
    assert text.startswith("a%sb%sn\n1,5%sx%s0\n" % (mark, mark, mark, mark))
    dataset.convert("a.csv", "b.npy", delimiter=given)
    assert rows.tolist() == np.load("b.npy").tolist()
    Path("a.csv").write_text(text + mark + "\n")
    with pytest.raises(
        NotReadable, match=r"expected '3' values .* found '2' in line 6"
    ):
        dataset.convert("a.csv", "b.npy", delimiter=given, force=True)


@pytest.mark.parametrize("given", ["", ";;", '"', "\n", "ä", "\0"])
def test_impossible_delimiter(given):
    Path("a.csv").write_text("x\n")
    with pytest.raises(UsageError, match="a delimiter is an ASCII character"):
        dataset.convert("a.csv", "b.npy", delimiter=given)
    np.save("a.npy", [1])
    with pytest.raises(UsageError, match="a delimiter is for CSV files"):
        dataset.convert("a.npy", "b.npz", delimiter=given)


def test_an_array_keeps_its_chunks():
    cut = {"chunks": (10, 10), "shards": (40, 20)}
    dataset.create_array("a", np.ones((120, 50)), dims=["t", "x"], **cut).close()
    for name, options, expected in (
        ("b", {}, ((10, 10), (40, 20))),
        ("c", {"chunks": (30, 50), "shards": 60}, ((30, 50), (60, 50))),
    ):
        dataset.convert("a", name + ".zarr", **options)
        found = dataset.open(name + ".zarr")
        assert (*expected, ("t", "x")) == (found.chunks, found.shards, found.dims)
        assert np.array_equal(np.ones((120, 50)), found[:])


@pytest.mark.parametrize(
    ("shape", "name"),
    [
        ((10**15, 0), "b.zarr"),
        ((10**15, 0), "b.superchunk"),
        ((10**15, 0), "b.blp"),
        ((0, 10**15), "b.zarr"),
        ((0, 10**15), "b.blp"),
    ],
)
def test_many_rows_without_items(shape, name):
    """They take no time."""
    np.save("a.npy", np.empty(shape, "u1"))
    dataset.convert("a.npy", name)
    dataset.convert(name, "c.npy")
    assert Path("a.npy").read_bytes() == Path("c.npy").read_bytes()
    main(["show", "--stats", name])
    main(["diff", "a.npy", name])


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.empty((10**15, 0)), "without items in a row"),
        (np.empty((0, 10**15)), "expected at most '1048576' items in a row"),
        (np.empty(3, []), "a table must have a column"),
    ],
)
@pytest.mark.parametrize("name", ["b.csv", "b.parquet"])
def test_no_table(array, message, name):
    if name == "b.parquet":
        pytest.importorskip("pyarrow")
    np.save("a.npy", array)
    with pytest.raises(UsageError, match=message):
        dataset.convert("a.npy", name)
    assert ["a.npy"] == os.listdir()


# Values that the target can't hold


@pytest.mark.parametrize(
    ("item", "dtype"),
    [
        (2**40, "M8[D]"),
        (2**40, "M8[W]"),
        (2**61 + 1, "M8[h]"),
        (2**62, ">M8[s]"),
        (2**62 + 1, "M8[2us]"),
        (2**61 + 1, "m8[D]"),
        (2**60, "m8[m]"),
    ],
)
@pytest.mark.parametrize("shape", [(1,), (1, 2)])
def test_far_times_in_parquet(item, dtype, shape):
    """A time that Parquet can't hold is refused; others and NaT are kept."""
    pytest.importorskip("pyarrow")
    dtype = np.dtype(dtype)
    for value in (item, 5, -(2**63)):
        items = np.full(3, value, "i8").astype(dtype.byteorder + "i8").view(dtype)
        rows = np.empty(3, [("a", dtype, shape[1:])])
        rows["a"] = items.reshape(3, *[1] * (len(shape) - 1))
        np.save("a.npy", rows)
        if value == item:
            with pytest.raises(UsageError, match=r"column .a.: .* does not fit"):
                dataset.convert("a.npy", "a.parquet")
            assert not os.path.exists("a.parquet")
            continue
        dataset.convert("a.npy", "a.parquet", force=True)
        dataset.convert("a.parquet", "b.npy", force=True)
        assert np.array_equal(rows["a"], np.load("b.npy")["a"], equal_nan=True)


@pytest.mark.parametrize("name", ["b.csv", "b.parquet"])
def test_half_of_a_surrogate_pair(name):
    pytest.importorskip("csv" if name == "b.csv" else "pyarrow")
    np.save("a.npy", np.array(["x", "\ud800"]))
    with pytest.raises(UsageError, match=r"text that UTF-8 can hold, found '\\ud800'"):
        dataset.convert("a.npy", name)
    assert ["a.npy"] == os.listdir()


@pytest.mark.parametrize("dtype", ["V0", [("0", "f8", 0)]])
def test_items_without_bytes_in_parquet(dtype):
    pytest.importorskip("pyarrow")
    np.save("a.npy", np.zeros(3, dtype))
    with pytest.raises(UsageError, match="can't hold the column '0' of dtype "):
        dataset.convert("a.npy", "b.parquet")
    assert ["a.npy"] == os.listdir()
