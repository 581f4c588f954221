"""The members of groups: listed, assigned, copied and moved."""

from __future__ import annotations

import numpy as np
import pytest
from dataset.layouts import LAYOUTS

from bloscpack import dataset
from bloscpack.exceptions import UsageError

ITEMS = np.arange(12.0).reshape(6, 2)


def test_the_members_of_a_group(group):
    assert ["a"] == [name for name, _ in group.arrays()]
    assert ["in"] == [name for name, _ in group.groups()]
    ((name, table),) = group.tables()
    assert ("t", group["t"]) == (name, table)
    assert group.tree() == repr(group.tree())
    assert ["g", *repr(group).splitlines()[1:]] == group.tree().splitlines()


def test_assigning_members(group):
    group["a"] = group["in/b"]
    assert [1, 2, 3] == group["a"][:].tolist()
    group["a"] = np.ones(2, [("x", "i4"), ("y", "S3")])
    assert ["x", "y"] == group["a"].names
    group["one"] = memoryview(b"abc")
    assert [97, 98, 99] == group["one"][:].tolist()
    group["copy"] = group["in"]
    assert [1, 2, 3] == group["copy/b"][:].tolist()
    for name in ("in", "copy"):
        with pytest.raises(UsageError, match="is a group: remove it first"):
            group[name] = [1]
    with pytest.raises(UsageError):
        dataset.open(group.path)["a"] = [1]


def test_requiring_an_array(group):
    made = group.require_array("in/new", (3,), "f4", chunks=2)
    for shape in (3, np.int64(3), [3]):
        assert made is group.require_array("in/new", shape, "f4")
    for name, shape, dtype in (("a", 6, "f8"), ("a", (6, 2), "f4"), ("t", 2, "f8")):
        with pytest.raises(UsageError, match=group[name].path):
            group.require_array(name, shape, dtype)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_copying_and_moving(group, layout):
    options = {"layout": layout, "attrs": {"k": 1}}
    group.create_array("one", ITEMS, chunks=2, fill_value=9, **options)
    group.create_table("in/two", {"x": [1, 2], "y": [[1.5], [2]]}, **options)
    group["in/two/x"].attrs["unit"] = "m"
    copy = group.copy("one", "copies/one")
    assert (layout, (2, 2), 9) == (copy.layout, copy.chunks, copy.fill_value)
    group.copy("in", "copies/in")
    before = group["copies"]
    group.move("copies", "moved/here")
    assert before.closed
    for first, second in (("one", "moved/here/one"), ("in/two", "moved/here/in/two")):
        one, other = group[first], group[second]
        assert one[:].tolist() == other[:].tolist()
        assert {"k": 1} == dict(one.attrs) == dict(other.attrs)
    assert {"unit": "m"} == dict(group["moved/here/in/two/x"].attrs)
    assert "copies" not in group
    found = dataset.verify(group.path).findings
    assert {"no-checksum"} >= {each.kind for each in found}


def test_copies_and_moves_that_are_refused(group):
    for call in (group.copy, group.move):
        for source, name, error in (
            ("a", "t", FileExistsError),
            ("in", "in/inner", UsageError),
            ("in", "in", UsageError),
            ("none", "x", KeyError),
            ("a", "../x", UsageError),
            ("a", "t/x", UsageError),
        ):
            with pytest.raises(error):
                call(source, name)
    with pytest.raises(KeyError):
        group.move("t/x", "y")
    with pytest.raises(UsageError, match="expected a member"):
        group.copy(5, "x")
    with (
        dataset.open(group["in"].path, "r+"),
        dataset.open_group(group.path, "r+") as other,
    ):
        member = group["in/b"]
        with pytest.raises(OSError, match="another writer"):
            other.move("in", "elsewhere")
        assert not member.closed
    assert ["a", "in", "t"] == list(group)


def test_members_at_a_url():
    pytest.importorskip("fsspec")
    with dataset.create_group("memory://handy/g", mode="w") as group:
        group["a"] = [1, 2]
        group["t"] = {"x": [1, 2]}
        group.move("t", "in/t")
        group.copy("in", "copy")
        assert [(1,), (2,)] == group["copy/t"][:].tolist()
        assert ["a", "copy", "in"] == list(group)
        group["in/t"].rename({"x": "y"})
        with pytest.raises(UsageError, match="can't change at a URL"):
            group["in/t"].astype({"y": "f8"})
    assert ["y"] == dataset.open("memory://handy/g/in/t").names
