"""What arrays, tables and groups tell about themselves, and reading again."""

from __future__ import annotations

import operator

import numpy as np
import pytest
from dataset.layouts import LAYOUTS

from bloscpack import dataset
from bloscpack.exceptions import UsageError

ITEMS = np.arange(12.0).reshape(6, 2)


@pytest.fixture(params=LAYOUTS)
def array(request, tmp_path):
    options = {"layout": request.param, "attrs": {"unit": "m"}, "chunks": 4}
    with dataset.create_array(tmp_path / "a", ITEMS, **options) as made:
        yield made


def test_the_description_of_an_array(array):
    assert ("a", 8, 2) == (array.name, array.itemsize, array.nchunks)
    found = dataset.describe(array.path)
    assert {**found, "name": "a"} == array.info
    assert found["codec"] == array.codec
    lines = repr(array.info).splitlines()
    assert "shape       [6, 2]" in lines
    assert "attributes  {'unit': 'm'}" in lines


def test_the_description_of_tables_and_groups(group):
    table = group["t"]
    assert ("t", "x") == (table.name, table["x"].name)
    assert (table.dtype.itemsize, 2) == (table.itemsize, table.nchunks)
    assert "columns     x, s" in repr(table.info)
    assert "members     a, in, t" in repr(group.info)
    assert group.info["nbytes"] == ITEMS.nbytes + table.nbytes + 24


def test_reading_into_an_array(array):
    out = np.empty_like(ITEMS)
    assert out is array.read(out)
    np.testing.assert_array_equal(ITEMS, out)
    np.testing.assert_array_equal(ITEMS, array.read())
    reversed_rows = np.empty_like(ITEMS)
    array.read(reversed_rows[::-1])
    np.testing.assert_array_equal(ITEMS[::-1], reversed_rows)
    frozen = np.empty_like(ITEMS)
    frozen.flags.writeable = False
    for wrong in (np.empty(12), np.empty((6, 2), "f4"), [[0.0] * 2] * 6, frozen):
        with pytest.raises(UsageError, match="out: expected"):
            array.read(wrong)


def test_reading_fields_into_an_array(tmp_path):
    items = np.ones(5, [("x", "i4"), ("y", "S3")])
    with dataset.create_array(tmp_path / "s", items, layout="superchunk") as array:
        assert items.tolist() == array.read(np.zeros_like(items)).tolist()
        with pytest.raises(UsageError, match="out: expected"):
            array.read(np.zeros(1, items.dtype))


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "ge", "add", "pow", "and_"])
def test_operators(array, name):
    """They would compare objects, or be an error that does not say what to do."""
    compute = getattr(operator, name)
    left = np.ones(2, "i8"), np.float64(1), np.int64(1)
    for operands in (
        (array, 1),
        (1, array),
        (array, array),
        *((x, array) for x in left),
    ):
        with pytest.raises(TypeError, match=r"array\[:\]"):
            compute(*operands)
    with pytest.raises(UsageError):
        operator.neg(array)
    with pytest.raises(UsageError):
        np.eye(6) @ array
    # Functions read the items.
    assert ITEMS.sum() == np.sum(array) == np.add(array, 0).sum()
    assert {array: 1}[array] == 1
    assert array in [array]


def test_refreshing(array):
    reader = dataset.open(array.path)
    array.append([[7, 8]])
    array.attrs["unit"] = "km"
    assert 6 == len(reader)
    reader.refresh()
    assert ([7, 8], "km") == (reader[-1].tolist(), reader.attrs["unit"])
    array.refresh()
    array.resize(3)
    reader.refresh()
    np.testing.assert_array_equal(ITEMS[:3], reader[:])
    reader.close()
    with pytest.raises(UsageError, match="closed"):
        reader.refresh()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_value_of_an_attribute_that_is_changed_in_place(layout, tmp_path):
    """Only an assignment changes the attribute."""
    dataset.create_array(tmp_path / "a", [1, 2], layout=layout).close()
    with dataset.open(tmp_path / "a", "r+") as array:
        array.attrs["levels"] = [1, 2]
    with dataset.open(tmp_path / "a", "r+") as array:
        array.info["attributes"]["levels"].append(3)
        array.attrs["levels"].append(4)
        array.attrs["unit"] = "m"
        assert {"levels": [1, 2], "unit": "m"} == dict(array.attrs)
    found = dataset.open(tmp_path / "a")
    assert {"levels": [1, 2], "unit": "m"} == dict(found.attrs)
