"""Labels of an array in its metadata; anything else in them is an attribute."""

from __future__ import annotations

import pytest

from bloscpack._format.array_metadata import Labels, default_dims

COORD = {"dims": ["x"], "data": [1, 2]}


@pytest.mark.parametrize(
    ("metadata", "dims", "name", "attrs", "coords"),
    [
        (None, None, None, {}, []),
        (7, None, None, {"metadata": 7}, []),
        ([1], None, None, {"metadata": [1]}, []),
        ({}, None, None, {}, []),
        ({"dims": ["x", "y"]}, ["x", "y"], None, {}, []),
        ({"dims": ["x"]}, None, None, {"dims": ["x"]}, []),
        ({"dims": ["x", "x"]}, None, None, {"dims": ["x", "x"]}, []),
        ({"dims": ["x", ""]}, None, None, {"dims": ["x", ""]}, []),
        ({"dims": ["x", 1]}, None, None, {"dims": ["x", 1]}, []),
        ({"dims": "xy"}, None, None, {"dims": "xy"}, []),
        ({"name": "t"}, None, "t", {}, []),
        ({"name": ""}, None, None, {"name": ""}, []),
        ({"name": 1}, None, None, {"name": 1}, []),
        ({"attrs": {"a": 1}}, None, None, {"a": 1}, []),
        ({"attrs": {"a": 1}, "a": 2, "b": 3}, None, None, {"a": 1, "b": 3}, []),
        ({"attrs": [1]}, None, None, {"attrs": [1]}, []),
        ({"coords": {"x": COORD}}, None, None, {"coords": {"x": COORD}}, []),
        ({"dims": ["x", "y"], "coords": {"x": COORD}}, ["x", "y"], None, {}, ["x"]),
        (
            {"dims": ["q", "y"], "coords": {"x": COORD}},
            ["q", "y"],
            None,
            {"x": COORD},
            [],
        ),
        ({"dims": ["x", "y"], "coords": {"x": {}}}, ["x", "y"], None, {"x": {}}, []),
        ({"dims": ["x", "y"], "coords": 1}, ["x", "y"], None, {"coords": 1}, []),
    ],
)
def test_labels(metadata, dims, name, attrs, coords):
    labels = Labels(metadata, 2)
    assert (dims, name) == (labels.dims, labels.name)
    assert attrs == labels.attrs
    assert coords == list(labels.coords)


def test_the_metadata_stay():
    metadata = {"dims": ["x"], "attrs": {"a": 1}, "coords": {"q": 1}, "b": 2}
    before = repr(metadata)
    labels = Labels(metadata, 1)
    labels.attrs["c"] = 3
    assert before == repr(metadata)


def test_default_dims():
    assert [] == default_dims(0)
    assert ["dim_0", "dim_1"] == default_dims(2)
