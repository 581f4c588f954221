"""The members of groups: listed, required and assigned."""

from __future__ import annotations

import os
from contextlib import nullcontext

import numpy as np
import pytest
from dataset.inside import unfinished

from bloscpack import dataset
from bloscpack.exceptions import NotReadable, StorageError, UsageError


def test_the_members_of_a_group(group):
    kinds = [dataset.Array, dataset.Group, dataset.Table]
    assert kinds == [type(group[name]) for name in ("a", "in", "t")]
    assert group.tree() == repr(group.tree())
    assert ["g", *repr(group).splitlines()[1:]] == group.tree().splitlines()


def test_assigning_members(group):
    group["a"] = group["in/b"]
    assert [1, 2, 3] == group["a"][:].tolist()
    group["a"] = np.ones(2, [("x", "i4"), ("y", "S3")])
    assert ["x", "y"] == group["a"].names
    group["one"] = memoryview(b"abc")
    assert [97, 98, 99] == group["one"][:].tolist()
    with pytest.raises(UsageError, match="is a group: remove it first"):
        group["in"] = [1]
    for name in ("in", "t"):
        with pytest.raises(UsageError, match="convert copies tables and"):
            group["copy"] = group[name]
    with pytest.raises(UsageError):
        dataset.open(group.path)["a"] = [1]


def test_requiring_an_array(group):
    made = group.require_array("in/new", (3,), "f4", chunks=2)
    for shape in (3, np.int64(3), [3]):
        assert made is group.require_array("in/new", shape, "f4")
    for name, shape, dtype in (("a", 6, "f8"), ("a", (6, 2), "f4"), ("t", 2, "f8")):
        with pytest.raises(UsageError, match=group[name].path):
            group.require_array(name, shape, dtype)


def test_members_at_a_url():
    pytest.importorskip("fsspec")
    with dataset.create_group("memory://handy/g", mode="w") as group:
        group["a"] = [1, 2]
        group["in/t"] = {"x": [1, 2]}
        assert [(1,), (2,)] == group["in/t"][:].tolist()
        assert ["a", "in"] == list(group)
        group["in/t"].rename({"x": "y"})
    assert ["y"] == dataset.open("memory://handy/g/in/t").names


@pytest.mark.parametrize("where", ["folder", "memory"])
def test_what_is_in_an_unfinished_dataset_is_no_member(where, tmp_path):
    """A copy of a bucket may have the beginning of a dataset, too."""
    fsspec = pytest.importorskip("fsspec")
    root = str(tmp_path / "g") if where == "folder" else "memory://unfinished/g"
    with dataset.create_group(root) as group:
        for name in ("a", "new/x", "new/in/y"):
            group.create_array(name, [1])
    fs, path = fsspec.core.url_to_fs(root)
    fs.pipe_file(path + "/new/zarr.json", unfinished())
    with dataset.open(root) as group:
        assert ["a"] == list(group)
        for name in ("new", "new/x", "new/in/y"):
            assert name not in group
            with pytest.raises(KeyError):
                group[name]
    with pytest.raises(NotReadable, match="the beginning of one"):
        dataset.open(root + "/new")
    found = [(each.kind, each.file) for each in dataset.verify(root).findings]
    assert [("unused", "new")] == found
    fs.rm(path, recursive=True)


MISPLACED = {
    "a link": lambda path, old: os.symlink(old, path),
    "a link to nothing": lambda path, _: os.symlink("nowhere", path),
    "a link to itself": lambda path, _: os.symlink(path.name, path),
    "a folder": lambda path, _: os.mkdir(path),
    "a pipe": lambda path, _: os.mkfifo(path),
}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
@pytest.mark.parametrize("what", MISPLACED)
@pytest.mark.parametrize("commits", [False, True])
@pytest.mark.parametrize("name", ["zarr.json", "meta/storage", "meta"])
def test_a_member_whose_description_is_no_file(what, commits, name, tmp_path):
    """It is listed, and opening it raises the error: no member is lost silently."""
    if name == "meta" and "link" not in what:
        pytest.skip("there is no description")
    path = tmp_path / "g"
    layout = "zarr" if name == "zarr.json" else "superchunk"
    with dataset.create_group(path) as group:
        group.create_array("a", [1, 2])
        group.create_array("m", [3], layout=layout).close()
        if commits:
            with group.change():
                group.attrs["x"] = 1
    os.rename(path / "m" / name, tmp_path / "old")
    MISPLACED[what](path / "m" / name, tmp_path / "old")
    with dataset.open(path) as group:
        assert ["a", "m"] == list(group)
        assert "m" in group
        assert "which can't be opened" in repr(group)
        assert [1, 2] == group["a"][:].tolist()
        with pytest.raises(StorageError, match=r"symbolic link|not a regular file"):
            group["m"]
    assert ["a", "m"] == [each["name"] for each in dataset.describe(path)["members"]]
    (found,) = (f for f in dataset.verify(path).findings if f.severity == "error")
    assert found.file.startswith("m/" + name)


@pytest.mark.parametrize("commits", [False, True])
def test_a_member_that_gets_another_layout_and_kind_again_and_again(commits, tmp_path):
    """The folder of the one before is gone, although it was kept open."""
    with dataset.create_group(tmp_path / "g", sync=False) as group:
        if commits:
            with group.change():
                pass
    with dataset.open(tmp_path / "g", "r+", sync=False) as group:
        for number in range(3):
            group["x"] = [number]
            group.create_array("x", [number], mode="w", layout="superchunk")
            columns = {"a": [number]}
            group.create_table("x", columns, mode="w", layout="superchunk")
            group["x"] = {"a": [number], "b": [number]}
            assert [number] == group["x"]["b"][:].tolist()
    assert not dataset.verify(tmp_path / "g").findings


REPLACED = {
    "removed": (lambda g: g.__delitem__("m"), "it was removed"),
    "table": (lambda g: g.create_table("m", {"y": [1]}, mode="w"), "a table of .*zarr"),
    "array": (lambda g: g.create_array("m", [1], mode="w"), "an array of .*zarr"),
    "bcolz": (
        lambda g: g.create_array("m", [1], mode="w", layout="bcolz"),
        "an array of the layout 'bcolz' has replaced it",
    ),
}


@pytest.mark.parametrize("place", ["", "united", "block"])
@pytest.mark.parametrize("kind", ["array", "table", "column"])
@pytest.mark.parametrize("name", REPLACED)
def test_the_error_of_a_member_that_was_replaced(name, kind, place, tmp_path):
    replace, expected = REPLACED[name]
    with dataset.create_group(tmp_path / "g", sync=False) as group:
        if kind == "array":
            old = group.create_array("m", [1, 2])
        else:
            table = group.create_table("m", {"x": [1]})
            old = table["x"] if kind == "column" else table
        if place:
            with group.change():
                pass
        with group.change() if place == "block" and name != "bcolz" else nullcontext():
            replace(group)
        expected = "it was removed" if kind == "column" else expected
        for call in (lambda: old[0], lambda: old.attrs.update(n=1)):
            with pytest.raises(UsageError, match="is closed, because " + expected):
                call()
        for other in (old, group):
            other.close()
            with pytest.raises(UsageError, match="is closed"):
                other[0 if other is old else "m"]
