"""Groups and tables of the layout zarr, read by zarr-python, TensorStore and xarray."""

import warnings

import numpy as np
import pytest

from bloscpack import dataset

zarr = pytest.importorskip("zarr", reason="needs zarr 3", minversion="3")

ROWS = {
    "a": np.arange(50, dtype="i4"),
    "m": np.arange(100.0).reshape(50, 2),
    "big": np.arange(50, dtype=">u2"),
}


@pytest.fixture
def path(tmp_path):
    """A group in which all that is written here has been done."""
    with dataset.create_group(tmp_path / "g", attrs={"site": "A"}) as group:
        table = group.create_table("in/t", ROWS, chunks=8, shards=16, attrs={"x": 1})
        table.append(ROWS)
        table.add_column("new", np.arange(100), position=0)
        table.remove_column("new")
        table.add_column("last", np.arange(100))
        table.resize(95)
        group.create_array("a", np.arange(5), attrs={"unit": "m"})
        group.create_array("gone", np.arange(5))
        group.create_group("empty")
        del group["gone"]
    return tmp_path / "g"


def users(attributes):
    """Return attributes without the identity of the node."""
    return {name: v for name, v in attributes.items() if name != "bloscpack-id"}


def test_zarr_python_opens_a_group(path):
    group = zarr.open_group(str(path), mode="r")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of names that are no part of Zarr
        names = {name for name, _ in group.members(max_depth=None)}
    columns = {"in/t/%s" % name for name in (*ROWS, "last")}
    assert {"a", "empty", "in", "in/t", *columns} == names
    assert {"site": "A"} == users(group.attrs)
    assert {"unit": "m"} == users(group["a"].attrs)
    assert {"column-order": [*ROWS, "last"], "x": 1} == users(group["in/t"].attrs)
    expected = dataset.open_table(path / "in" / "t")
    for name, column in expected.columns.items():
        np.testing.assert_array_equal(column[:], group["in/t"][name][...])
        assert 95 == len(column)


def test_zarr_python_changes_a_group(path):
    with dataset.open_group(path, "r+") as group:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # consolidated metadata are no standard
            zarr.consolidate_metadata(str(path))
        other = zarr.open_group(str(path), mode="r+")
        other.attrs["b"] = 5
        other.create_group("more").create_group("inner")
        group["a"].append([5])
        assert ["a", "empty", "in", "more"] == list(group)
        group.attrs["c"] = 6
        assert {"site": "A", "b": 5, "c": 6} == dict(group.attrs)
        assert ["inner"] == list(group["more"])
    found = zarr.open_group(str(path), mode="r")
    assert {"site": "A", "b": 5, "c": 6} == users(found.attrs)
    assert [0, 1, 2, 3, 4, 5] == found["a"][...].tolist()


def test_tensorstore(path):
    tensorstore = pytest.importorskip("tensorstore")
    for name in (*ROWS, "last"):
        place = {"driver": "file", "path": str(path / "in" / "t" / name)}
        opened = tensorstore.open({"driver": "zarr3", "kvstore": place}).result()
        expected = dataset.open(path)["in/t"][name]
        np.testing.assert_array_equal(expected[:], opened.read().result())


def test_xarray(path):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("dask")
    found = xarray.open_zarr(str(path / "in" / "t"), consolidated=False)
    assert {"row": 95, "m_axis_1": 2} == dict(found.sizes)
    expected = dataset.open(path)["in/t"]
    assert set(expected.names) == set(found)
    for name in expected.names:
        np.testing.assert_array_equal(expected[name][:], found[name].values)
    assert 1 == found.attrs["x"]
