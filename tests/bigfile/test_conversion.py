"""BigFile trees become groups of datasets, and come back with the same files."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from bigfile.test_golden_trees import FOLDER, NAMES, entry, expected_values, same
from bigfile.test_trees import made
from dataset.inside import FolderStore
from support import files_of

from bloscpack import bigfile, dataset
from bloscpack.bigfile import attributes
from bloscpack.bigfile.attributes import Attribute
from bloscpack.exceptions import DamageError, FormatError, UsageError

# Headers that the original computed differently: rows were written twice, and the sums
# of the old bytes were not subtracted.
OTHER_SUMS = {"rewrite": ["r/header"]}
# The header promises rows that nobody has written: there is nothing to convert.
INCOMPLETE = ["unwritten"]
COMPLETE = [name for name in NAMES if name not in INCOMPLETE]


@pytest.fixture
def tree(tmp_path):
    return bigfile.File(tmp_path / "tree", create=True)


def there_and_back(folder):
    """Convert the tree of a folder to a group, and the group to another tree."""
    dataset.convert(folder / "tree", folder / "group.zarr")
    return back(folder)


def back(folder):
    """Convert the group of a folder to a tree."""
    dataset.convert(folder / "group.zarr", folder / "again.bigfile", force=False)
    return bigfile.File(folder / "again.bigfile")


def folders_of(folder):
    return {path.relative_to(folder) for path in folder.rglob("*") if path.is_dir()}


# Golden trees


@pytest.mark.parametrize("name", COMPLETE)
def test_the_same_files_come_back(name, tmp_path):
    source = FOLDER / entry(name)["path"]
    (tmp_path / "tree").symlink_to(source)
    again = there_and_back(tmp_path)
    wanted, found = files_of(source), files_of(tmp_path / "again.bigfile")
    assert wanted.keys() == found.keys()
    assert folders_of(source) == folders_of(tmp_path / "again.bigfile")
    different = [file for file in wanted if wanted[file] != found[file]]
    assert OTHER_SUMS.get(name, []) == different
    assert [] == bigfile.verify(again).findings


@pytest.mark.parametrize("name", COMPLETE)
def test_arrays_have_the_values_of_blocks(name, tmp_path):
    dataset.convert(FOLDER / entry(name)["path"], tmp_path / "group.zarr")
    with dataset.open(tmp_path / "group.zarr") as group:
        for block, values in expected_values(name).items():
            if isinstance(group[block], dataset.Array):
                assert same(values, group[block][:])
            else:
                assert not values.size


@pytest.mark.parametrize("name", INCOMPLETE)
def test_missing_rows_are_named(name, tmp_path):
    with pytest.raises(DamageError, match=r"rows 0 to 5 missing: data file 000000"):
        dataset.convert(FOLDER / entry(name)["path"], tmp_path / "group.zarr")
    assert [] == os.listdir(tmp_path)


# Trees and groups that are made here


@pytest.mark.full
@pytest.mark.parametrize("order", "<>")
def test_every_type_comes_back(tree, tmp_path, order):
    from bloscpack.bigfile.header import WIDTHS

    for kind, widths in WIDTHS.items():
        for width in widths:
            dtype = np.dtype("%s%s%d" % (order, kind, width))
            for shape in ((0,), (9,), (9, 3)):
                name = "%s%d/x%s" % (kind, width, "x".join(map(str, shape)))
                tree.create_from_array(name, made(dtype, shape, width), 2).close()
    there_and_back(tmp_path)
    assert files_of(tmp_path / "tree") == files_of(tmp_path / "again.bigfile")


def test_attributes_are_those_of_zarr(tree, tmp_path):
    values = {"n": 3, "x": 0.5, "list": [1.5, np.inf], "text": "kpc/h", "c": 1 + 2j}
    tree.create("Header").attrs.update(values, short=np.float32(0.1), lines=["a", "bc"])
    tree.create_from_array("0/Mass", np.ones(3)).attrs["unit"] = "g"
    tree["0/"].attrs["group"] = True
    dataset.convert(tmp_path / "tree", tmp_path / "group.zarr")
    with dataset.open(tmp_path / "group.zarr") as group:
        found = group["Header"].attrs.asdict()
        record = found.pop("bigfile")
        assert {
            **values,
            "list": [1.5, "Infinity"],
            "c": [1.0, 2.0],
            "short": float(np.float32(0.1)),
            "lines": ["a", "bc"],
        } == found
        assert ("<i8", 0, []) == (record["dtype"], record["nmemb"], record["rows"])
        assert ["attr-v2"] == list(record["files"])
        assert "g" == group["0/Mass"].attrs["unit"]
        assert group["0"].attrs["group"] is True


def test_changes_of_the_dataset_reach_the_tree(tree, tmp_path):
    header = tree.create("Header")
    header.attrs.update(Time=0.5, Old=1, Text="a", Ids=np.array([1, 2], "u2"))
    tree.create_from_array("0/ID", np.arange(10), Nfile=3).close()
    dataset.convert(tmp_path / "tree", tmp_path / "group.zarr")
    with dataset.open(tmp_path / "group.zarr", "r+") as group:
        attrs = group["Header"].attrs
        attrs.update({"Time": 0.25, "Text": 7, "Ids": [70000], "New": {"a": [None]}})
        del attrs["Old"]
        group["0/ID"].append([10, 11])
        group["0/ID"][0] = -1
        group.create_array("1/New", np.zeros((4, 2), "f4"))
    again = back(tmp_path)
    assert ["0/ID", "1/New", "Header"] == again.blocks
    assert [-1, *range(1, 12)] == again["0/ID"][:].tolist()
    assert 3 == again["0/ID"].nfile
    assert ((4, 2), 1) == (again["1/New"].shape, again["1/New"].nfile)
    assert {
        "Time": 0.25,
        "Text": 7,
        "Ids": 70000,
        "New": 'json://{"a": [null]}',
    } == dict(again["Header"].attrs)
    assert "<f8" == again["Header"].attrs.raw("Time").dtype_name
    assert [] == bigfile.verify(again).findings


@pytest.mark.parametrize(
    "record",
    [
        7,
        {"dtype": "<i9", "nmemb": 1, "rows": [10]},
        {"dtype": "<i8", "nmemb": "x", "rows": [10]},
        {"dtype": "<f4", "nmemb": 1, "rows": [10]},
        {"dtype": "<i8", "nmemb": 1, "rows": [-5, 15]},
        {"dtype": "<i8", "nmemb": 1, "rows": 10},
        {"dtype": "<i8", "nmemb": 1, "rows": [2**62, 2**62]},
        {"files": 3},
        {"files": {"attr-v2": 5}},
        {"files": {"attr-v2": "AAAA"}},
        {"files": {"../x": "AAAA"}},
    ],
)
def test_a_wrong_record_is_of_no_use(record, tmp_path):
    attrs = {"a": 1, "bigfile": record}
    with dataset.create_group(tmp_path / "group.zarr") as group:
        group.create_array("x", np.arange(10), attrs=attrs)
    again = back(tmp_path)
    assert list(range(10)) == again["x"][:].tolist()
    assert {"a": 1} == dict(again["x"].attrs)
    assert [] == bigfile.verify(again).findings
    assert {"group.zarr", "again.bigfile"} == set(os.listdir(tmp_path))


def test_a_table_becomes_a_group_of_blocks(tmp_path):
    columns = {"a": np.arange(3), "b": np.ones((3, 2), "f4")}
    dataset.create_table(tmp_path / "group.zarr", columns, attrs={"t": 1}).close()
    again = back(tmp_path)
    assert [1, 1] == again["b"][2].tolist()
    assert {"t": 1} == dict(again.attrs)


@pytest.mark.parametrize(
    ("name", "array", "text"),
    [
        ("x", np.zeros((2, 2, 2)), r"'g/x': .*can't hold an array of the shape"),
        ("x", np.array(["a"], "U3"), r"'g/x': .*the dtype '<U3'"),
        ("x", np.array(["a"], "S17"), "can't have the dtype"),
        ("a b", np.zeros(2), "blanks"),
        ("000001", np.zeros(2), "is the name of a file"),
    ],
)
def test_impossible_blocks_are_refused_before_anything_is_written(
    name, array, text, tmp_path
):
    with dataset.create_group(tmp_path / "group.zarr") as group:
        group.create_array("g/" + name, array)
    with pytest.raises(UsageError, match=text):
        back(tmp_path)
    assert ["group.zarr"] == os.listdir(tmp_path)


def test_a_damaged_tree_is_refused(tree, tmp_path):
    tree.create_from_array("x", np.arange(10)).close()
    (tmp_path / "tree/x/attr-v2").write_text("a <f8 1 00\n")
    with pytest.raises(FormatError, match="tree/x"):
        dataset.convert(tmp_path / "tree", tmp_path / "group.zarr")
    assert ["tree"] == os.listdir(tmp_path)


def test_rows_that_nobody_finished_are_mentioned(tree, tmp_path):
    column = tree.create("x", "i4", 10)
    column.write(9, [1])
    column.close()
    done = dataset.convert(tmp_path / "tree", tmp_path / "group.zarr")
    assert ["which rows of 'x' were never written"] == done.lost


def test_another_folder_is_no_tree(tmp_path):
    (tmp_path / "a/b").mkdir(parents=True)
    with pytest.raises(ValueError, match="or a BigFile tree, found another folder"):
        dataset.convert(tmp_path / "a", tmp_path / "group.zarr")


# Attributes

FILES = {
    "legacy": {"attr": b"\x01\0\0\0\x01\0\0\0<i4\0\0\0\0\0n\x05\0\0\0"},
    "text of another program": {"attr-v2": b"n <i4 1 05000000 #HUMANE [ five ]\n"},
    "blanks": {"attr-v2": b"\n n  <i4 1 05000000"},
    "not UTF-8": {"attr-v2": b"\xff <i4 1 05000000 #HUMANE [ 5 ]\nt <a1 1 FF\n"},
    "NaN with a sign": {"attr-v2": b"x <f8 1 000000000000F8FF #HUMANE [ -nan ]\n"},
    "C text without NUL": {"attr-v2": b"x <S1 2 6162 #HUMANE [ ab ]\n"},
    "long double": {"attr-v2": b"x <f16 1 " + b"AB" * 16 + b" #HUMANE [ <<f16> ]\n"},
    "empty": {"attr-v2": b""},
    "none": {},
}


def attributes_come_back(folder, files):
    """Put files of attributes into a block and a group, and convert the tree."""
    tree = bigfile.File(folder / "tree", create=True)
    tree.create_from_array("g/x", np.arange(3)).close()
    (folder / "tree/g/x/attr-v2").unlink()
    for name, content in files.items():
        for place in ("tree/g", "tree/g/x"):
            (folder / place / name).write_bytes(content)
    there_and_back(folder)
    assert files_of(folder / "tree") == files_of(folder / "again.bigfile")


@pytest.mark.parametrize("name", FILES)
def test_any_file_of_attributes_comes_back(name, tmp_path):
    attributes_come_back(tmp_path, FILES[name])


def attribute_types():
    kinds = {"i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8), "c": (8, 16)}
    kinds |= {"b": (1,), "S": (1, 5, 16), "a": (1,)}
    return [order + k + str(w) for order in "<>" for k in kinds for w in kinds[k]]


def test_attributes_of_every_type_come_back(tmp_path):
    found = {}
    for dtype_name in [*attribute_types(), "<M8[s]", ">m8"]:
        width = 8 if dtype_name[1] in "mM" else int(dtype_name[2:])
        for nmemb, items in ((1, b"\0\1"), (5, bytes(range(256)))):
            data = (items * 5 * width)[3 : 3 + nmemb * width]
            name = b"%s-%d" % (dtype_name.encode(), nmemb)
            found[name] = Attribute(dtype_name, nmemb, data)
    attributes_come_back(tmp_path, {"attr-v2": attributes.encode(found)})


def make_group(path, attrs):
    """Make a group with attributes that another program has written."""
    with dataset.create_group(path) as group:
        group.create_array("x", [1, 2])
    document = {"zarr_format": 3, "node_type": "group", "attributes": attrs}
    (path / "zarr.json").write_text(json.dumps(document))


def test_a_name_without_bytes_is_refused(tmp_path):
    """JSON has surrogates, which UTF-8 does not have."""
    make_group(tmp_path / "group.zarr", {"\ud800": 1.5})
    with pytest.raises(UsageError, match="no character"):
        back(tmp_path)
    assert not (tmp_path / "again.bigfile").exists()


def test_text_that_has_no_bytes_becomes_json(tmp_path):
    make_group(tmp_path / "group.zarr", {"a": "\ud800"})
    assert 'json://"\\ud800"' == back(tmp_path).attrs["a"]


def test_attributes_that_a_tree_lacks_come_back(tmp_path):
    attrs = {"a": {"b": [1]}, "c": [True, 2], "d": "json://1", "e": "x\0", "f": [[1]]}
    make_group(tmp_path / "group.zarr", attrs)
    back(tmp_path)
    dataset.convert(tmp_path / "again.bigfile", tmp_path / "group again.zarr")
    with dataset.open(tmp_path / "group again.zarr") as group:
        found = group.attrs.asdict()
    del found["bigfile"]
    assert attrs == found


def test_a_list_of_one_item_is_told_of(tmp_path):
    make_group(tmp_path / "group.zarr", {"a": [1], "b": ["x"]})
    lost = dataset.convert(tmp_path / "group.zarr", tmp_path / "again.bigfile").lost
    text = "the list around the only item of the attribute '%s' of '/'"
    assert [text % name for name in "ab"] == lost


def test_a_list_of_characters_stays_a_list(tmp_path):
    """Items of one byte are one text, which is another value."""
    attrs = {"axes": ["x", "y"], "empty": ["", ""], "text": "xy", "one": ["x"]}
    make_group(tmp_path / "group.zarr", attrs)
    tree = back(tmp_path)
    assert ["x", "y"] == tree.attrs["axes"]
    dataset.convert(tmp_path / "again.bigfile", tmp_path / "other.zarr")
    with dataset.open(tmp_path / "other.zarr") as group:
        found = {name: group.attrs[name] for name in attrs}
    assert {**attrs, "one": "x"} == found


@pytest.mark.parametrize("name", ["x.bigfile", "x.zarr"])
def test_a_folder_that_replaces_another_is_synced(name, tmp_path, monkeypatch):
    make_group(tmp_path / "group.zarr", {})
    synced = []
    monkeypatch.setattr(FolderStore, "sync_tree", lambda self: synced.append(name))
    for settings, expected in (
        ({}, []),
        ({"force": True}, [name]),
        ({"force": True, "sync": False}, []),
        ({"force": True, "sync": True}, [name]),
    ):
        dataset.convert(tmp_path / "group.zarr", tmp_path / name, **settings)
        assert expected == synced
        synced.clear()
