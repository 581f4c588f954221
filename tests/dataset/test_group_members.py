"""The members of groups: listed, required and assigned."""

from __future__ import annotations

import numpy as np
import pytest

from bloscpack import dataset
from bloscpack.exceptions import UsageError


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
