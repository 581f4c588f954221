"""Names of axes, and labels that are taken over from arrays of other libraries."""

import json
from contextlib import nullcontext

import numpy as np
import pytest

from bloscpack import cli, dataset
from bloscpack.exceptions import UsageError

ITEMS = np.arange(6.0).reshape(2, 3)
COLUMNS = {"time": [1, 2], "wind": ITEMS}


def stored(path):
    return json.loads((path / "zarr.json").read_text())["dimension_names"]


@pytest.mark.parametrize(
    ("dims", "names", "in_file"),
    [
        (None, None, ["a_axis_0", "a_axis_1"]),
        ([None, None], None, ["a_axis_0", "a_axis_1"]),
        (("time", "x"), ("time", "x"), ["time", "x"]),
        ([None, "x"], (None, "x"), ["a_axis_0", "x"]),
    ],
)
def test_names_of_axes(tmp_path, dims, names, in_file):
    path = tmp_path / "a"
    with dataset.create_array(path, ITEMS, dims=dims) as array:
        assert names == array.dims
        array.append(ITEMS)
        array.attrs["more"] = 1
    assert names == dataset.open(path).dims
    assert in_file == stored(path)


@pytest.mark.parametrize(
    ("message", "dims"),
    [
        ("expected 2 names, different ones", "x"),
        ("expected 2 names, different ones", ["x", "y", "z"]),
        ("or None for no name, found", ["x", "x"]),
        ("or None for no name, found", ["x", 1]),
        ("or None for no name, found 5", 5),
    ],
)
def test_wrong_names(tmp_path, message, dims):
    with pytest.raises(UsageError, match=message):
        dataset.create_array(tmp_path / "a", ITEMS, dims=dims)
    assert [] == list(tmp_path.iterdir())


def test_description(tmp_path, capsys):
    for name, dims in (("a", ["time\x1b", None]), ("b", None)):
        dataset.create_array(tmp_path / name, ITEMS, dims=dims).close()
    assert ["time\x1b", None] == dataset.describe(tmp_path / "a")["dims"]
    assert "dims" not in dataset.describe(tmp_path / "b")
    cli.main(["info", str(tmp_path / "a"), str(tmp_path / "b")])
    lines = capsys.readouterr().out.splitlines()
    axes = [line for line in lines if line.startswith("axes:")]
    assert [["axes:", "time\\x1b,", "-"]] == [line.split() for line in axes]


@pytest.mark.parametrize("layout", ["superchunk", "bcolz"])
def test_layouts_without_names(tmp_path, layout):
    path = tmp_path / "a"
    with pytest.raises(UsageError, match="'%s' stores no names of axes" % layout):
        dataset.create_array(path, ITEMS, layout=layout, dims=["t", "x"])
    with pytest.raises(UsageError, match="'time': the layout '%s' stores" % layout):
        dataset.create_table(path, COLUMNS, layout=layout, dims={"time": ["t"]})
    none = [None, None]
    with dataset.create_array(path, ITEMS, layout=layout, dims=none) as array:
        assert array.dims is None


def test_names_of_axes_of_columns(tmp_path):
    dims = {"time": ["time"], "wind": [None, "part"]}
    with dataset.create_table(tmp_path / "t", COLUMNS, dims=dims) as table:
        table.add_column("more", ITEMS)
        found = {name: column.dims for name, column in table.columns.items()}
    assert {
        "time": ("time",),
        "wind": ("time", "part"),
        "more": ("time", None),
    } == found
    assert ["time", "more_axis_1"] == stored(tmp_path / "t" / "more")


@pytest.mark.parametrize(
    ("message", "dims"),
    [
        ("one name for the rows of all", {"time": ["t"], "wind": ["r", "x"]}),
        ("'wind': dims: expected 2 names, different ones", {"wind": ["x"]}),
        ("by the names of columns", {"other": ["x"]}),
        ("by the names of columns", ["x"]),
    ],
)
def test_wrong_names_of_columns(tmp_path, message, dims):
    with pytest.raises(UsageError, match=message):
        dataset.create_table(tmp_path / "t", COLUMNS, dims=dims)
    assert [] == list(tmp_path.iterdir())


def test_names_survive_a_copy_and_recovery(tmp_path):
    dataset.create_array(tmp_path / "a", ITEMS, dims=["t", None]).close()
    dims = {"time": ["time"]}
    dataset.create_table(tmp_path / "t", COLUMNS, dims=dims).close()
    dataset.convert(tmp_path / "a", tmp_path / "b", to="zarr")
    assert ("t", None) == dataset.open(tmp_path / "b").dims
    assert ["t", "b_axis_1"] == stored(tmp_path / "b")
    for name in ("a", "t"):
        dataset.recover(tmp_path / name, tmp_path / (name + "2"))
    assert ["t", "a_axis_1"] == stored(tmp_path / "a2")
    assert ["time", "wind_axis_1"] == stored(tmp_path / "t2" / "wind")


def test_inner_axes_keep_their_names_in_a_changed_column(tmp_path):
    dims = {"wind": ["time", "part"]}
    columns = {**COLUMNS, "more": ITEMS}
    with dataset.create_table(tmp_path / "t", columns, dims=dims) as table:
        for names in ({"wind": "w", "more": "m"}, {"w": "wind", "m": "more"}):
            table.rename(names)
            found = {name: table[name].dims for name in names.values()}
            assert [("time", "part"), ("time", None)] == [*found.values()]
    assert ["time", "part"] == stored(tmp_path / "t" / "wind")
    assert ["time", "more_axis_1"] == stored(tmp_path / "t" / "more")


# Arrays of other libraries


def labels(array):
    with array:
        return array.dims, dict(array.attrs)


def test_xarray(tmp_path):
    xr = pytest.importorskip("xarray")
    array = xr.DataArray(ITEMS, dims=("t", "x"), attrs={"units": np.float32(3)})
    expected = ("t", "x"), {"units": 3.0}
    assert expected == labels(dataset.create_array(tmp_path / "a", array))
    given = dataset.create_array(tmp_path / "b", array, dims=["p", "q"], attrs={})
    assert (("p", "q"), {}) == labels(given)
    with pytest.raises(UsageError, match="no names of axes, such as 't'"):
        dataset.create_array(tmp_path / "c", array, layout="superchunk")
    with_coords = array.assign_coords(x=[1, 2, 3], height=4)
    for refused in (
        lambda path: dataset.create_array(path, with_coords),
        lambda path: dataset.create_table(path, {"a": with_coords}),
        lambda path: dataset.create_table(path, with_coords.to_dataset(name="a")),
    ):
        with pytest.raises(UsageError, match=r"'x', 'height': from_xarray stores"):
            refused(tmp_path / "c")
    with dataset.create_array(tmp_path / "c", with_coords.variable) as stored_:
        assert ("t", "x") == stored_.dims


def test_columns_of_xarray(tmp_path):
    xr = pytest.importorskip("xarray")
    columns = xr.Dataset({"a": ("t", [1, 2], {"units": "m"})}, attrs={"by": "me"})
    with dataset.create_table(tmp_path / "t", columns) as table:
        assert {"by": "me"} == dict(table.attrs)
        assert (("t",), {"units": "m"}) == (table["a"].dims, dict(table["a"].attrs))


@pytest.mark.parametrize("version", [2, 3])
def test_zarr(tmp_path, version):
    zarr = pytest.importorskip("zarr", minversion="3")
    names = {"dimension_names": ["p", "q"]}
    attrs = {"NAME": 1}
    if version == 2:
        names, attrs["_ARRAY_DIMENSIONS"] = {}, ["p", "q"]
    found = zarr.create_array(
        tmp_path / "z", data=ITEMS, zarr_format=version, attributes=attrs, **names
    )
    # xarray takes the fill value of format 2 for that of missing items.
    mask = {"_FillValue": 0} if version == 2 else {}
    expected = ("p", "q"), {"NAME": 1, **mask}
    notice = "the fill value 0.* becomes the attribute '_FillValue'"
    with pytest.warns(RuntimeWarning, match=notice) if mask else nullcontext():
        assert expected == labels(dataset.create_array(tmp_path / "a", found))
    dataset.create_array(tmp_path / "n", found, attrs={}).close()
    dataset.convert(tmp_path / "z", tmp_path / "b", to="zarr")
    assert expected == labels(dataset.open(tmp_path / "b"))


def test_hdf5(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["lat"] = [1.0, 2.0]
        file["lat"].make_scale("latitude")
        items = file.create_dataset("items", data=ITEMS)
        items.dims[0].attach_scale(file["lat"])
        items.dims[1].label = "lon"
        items.attrs["units"] = "K"
        items.attrs["fixed"] = np.array([b"a", b"bc"])
        items.attrs["_FillValue"] = np.float32(-9)
        array = dataset.create_array(tmp_path / "a", items)
        attrs = {"units": "K", "fixed": ["a", "bc"], "_FillValue": -9.0}
        assert (("lat", "lon"), attrs) == labels(array)
        assert attrs == dict(dataset.open(tmp_path / "a").attrs)
        items.attrs["raw"] = np.void(b"a")
        with pytest.raises(UsageError, match="the attribute 'raw' must be JSON"):
            dataset.create_array(tmp_path / "b", items)


def test_dask(tmp_path):
    da = pytest.importorskip("dask.array")
    path = tmp_path / "a"
    found = dataset.from_dask(path, da.ones((4, 3)), dims=["t", "x"])
    assert ("t", "x") == found.dims


@pytest.mark.parametrize("attrs", [[1], "name", 5])
def test_attributes_that_are_no_dictionary(tmp_path, attrs):
    with dataset.create_table(tmp_path / "t", {"x": [1]}) as table:
        for refuse in (
            lambda: dataset.create_array(tmp_path / "n", [1], attrs=attrs),
            lambda: dataset.create_table(tmp_path / "n", {"x": [1]}, attrs=attrs),
            lambda: dataset.create_group(tmp_path / "n", attrs=attrs),
            lambda: table.add_column("y", [1], attrs=attrs),
        ):
            with pytest.raises(UsageError, match="expected a dictionary, found"):
                refuse()
    assert ["t"] == [each.name for each in tmp_path.iterdir()]


def test_the_resolutions_of_an_image_are_no_append_that_was_not_completed(tmp_path):
    levels = {"datasets": [{"path": "0"}, {"path": "1"}]}
    for number, attrs in enumerate(
        [{"ome": {"multiscales": [levels]}}, {"multiscales": [levels]}, {}]
    ):
        path = tmp_path / str(number)
        with dataset.create_group(path, attrs=attrs) as group:
            for name, length in (("0", 256), ("1", 128)):
                items = np.zeros((3, length, length), "u1")
                group.create_array(name, items, dims=["c", "y", "x"])
        found = [str(finding) for finding in dataset.verify(path).findings]
        assert (not attrs) == len(found)
        assert not any("trim" in text or "append" in text for text in found)
