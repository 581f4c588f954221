"""Datasets of xarray as groups: written, opened again, and changed by xarray itself."""

from __future__ import annotations

import json
import os
import pickle
import warnings

import numpy as np
import pytest
from support import has_entry_points

from bloscpack import dataset
from bloscpack.exceptions import UsageError

xr = pytest.importorskip("xarray", reason="xarray is not installed")
pd = pytest.importorskip("pandas")
pytest.importorskip("zarr", reason="needs zarr 3", minversion="3")

pytestmark = [
    pytest.mark.skipif(not has_entry_points(), reason="the package is not installed"),
    pytest.mark.usefixtures("folder"),
]
OWN = {"bloscpack-id", "column-order"}


def weather():
    """Return a dataset with six times, of which some values are packed."""
    packed = {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -9}
    attrs = {"units": "K", "range": np.array([1, 2]), "limit": np.float32(1.5)}
    return xr.Dataset(
        {
            "t": (("time", "x"), np.arange(18, dtype="f4").reshape(6, 3), attrs),
            "rain": ("time", [1.5, np.nan, 3.0] * 2, {}, packed),
            "wet": ("time", [True, False, True] * 2),
        },
        {
            "time": xr.date_range("2020-01-01", periods=6, freq="6h"),
            "x": [10, 20, 30],
            "site": ("x", ["a", "bb", "ccc"]),
        },
        {"title": "weather"},
    )


def cases():
    days = xr.date_range("2000-02-28", periods=2)
    leap = xr.date_range("2000-02-29", periods=2, calendar="360_day", use_cftime=True)
    bounds = np.array([["2000-02-28", "2000-02-29"]] * 2, "M8[ns]")
    position = {"grid_mapping": "crs"}
    yield "weather", weather()
    yield "calendar", xr.Dataset({"a": ("time", [1, 2])}, {"time": leap})
    yield "bounds", xr.Dataset(coords={"time": days, "limits": (("time", "n"), bounds)})
    yield (
        "two axes",
        xr.Dataset(
            {"a": (("y", "x"), [[1.0, np.nan]], position)},
            {"lat": (("y", "x"), [[3.0, 4.0]]), "other": ("k", [1, 2])},
        ),
    )
    for name, values in {
        "text": np.array(["aé", ""], object),
        "bytes": np.array([b"a", b"bc"]),
        "letters": np.array([b"a", b"b"]),
        "complex": np.array([1 + 1j, np.nan]),
        "big": np.array([1, 2], ">f4"),
        "durations": np.array([1, 10**9], "m8[ns]"),
        "no time": np.array(["2020", "NaT"], "M8[ns]"),
        "objects": np.array([1, 2**40], object),
        "nothing": np.zeros(0),
        "no text": np.zeros(0, object),
    }.items():
        yield name, xr.Dataset({"a": ("x", values)})
    yield "attributes", xr.Dataset(attrs={"nan": np.nan, "list": [1, "a"]})


CASES = dict(cases())


def users(opened):
    """Return a dataset without the attributes that are no part of it."""
    for node in (opened, *opened.variables.values()):
        node.attrs = {k: v for k, v in node.attrs.items() if k not in OWN}
    return opened


def open_zarr(path, **options):
    with xr.open_zarr(path, consolidated=False, **options) as opened:
        return users(opened.load())


@pytest.mark.parametrize("name", CASES)
def test_round_trip(name):
    expected = CASES[name]
    with dataset.from_xarray("g", expected) as group:
        xr.testing.assert_identical(expected, group.to_xarray())
    for options in ({}, {"chunks": {}}):
        with xr.open_dataset("g", engine="bloscpack", **options) as opened:
            xr.testing.assert_identical(expected, opened)
    if name != "letters":  # xarray takes them for one text
        xr.testing.assert_identical(expected, open_zarr("g"))
    assert dataset.verify("g").ok


@pytest.mark.parametrize("value", [4, 1.5, "text", np.datetime64("2020-01-01", "ns")])
def test_scalars(value):
    expected = xr.Dataset({"a": ("x", [1, 2])}, {"crs": value})
    with dataset.from_xarray("g", expected) as group:
        xr.testing.assert_identical(expected, group.to_xarray())
    xr.testing.assert_identical(expected, open_zarr("g"))


def test_a_data_array():
    array = xr.DataArray([1.5, 2.5], {"x": [1, 2]}, ["x"], "v", {"units": "m"})
    with dataset.from_xarray("g", array) as group:
        assert group.to_xarray()["v"].identical(array)
    with dataset.from_xarray("h", array.rename(None)) as group:
        assert ["data", "x"] == list(group)


def test_dask():
    pytest.importorskip("dask")
    computed = []

    def note(block):
        computed.append(block.shape)
        return block

    expected = weather().chunk(time=4, x=2)
    expected["t"] = expected["t"].copy(data=expected["t"].data.map_blocks(note))
    del computed[:]
    with dataset.from_xarray("g", expected) as group:
        assert [(2, 1), (2, 2), (4, 1), (4, 2)] == sorted(computed)
        xr.testing.assert_identical(weather(), group.to_xarray().load())


@pytest.mark.filterwarnings("ignore")  # of xarray and NumPy
@pytest.mark.parametrize("lazy", [False, True], ids=["memory", "dask"])
@pytest.mark.parametrize(
    ("values", "encoding", "wrong"),
    [
        ([1, 2, 300], {"dtype": "i1"}, "300"),
        ([1.0, 2, np.nan], {"dtype": "i2"}, "nan"),
        ([0.5, 1e5], {"dtype": "i2", "scale_factor": 0.1, "_FillValue": -1}, "100000"),
        ([0.5, 1e300], {"dtype": "f4"}, r"1e\+300"),
        ([1e9], {"dtype": "i2"}, ""),
        ([300], {"dtype": "u1"}, ""),
        ([-1], {"dtype": "u1"}, ""),
        ([np.inf], {"dtype": "i4"}, ""),
        ([1.0, 1.5], {"dtype": "i2"}, ""),
        ([1, np.nan, 1.5], {"dtype": "u1", "_FillValue": 255}, ""),
        ([400.0], {"dtype": "i2", "scale_factor": 0.01}, ""),
        (["c", "ab"], {"dtype": "U1"}, "ab"),
        ([b"c", b"abc"], {"dtype": "S2"}, "b'abc'"),
        ([1, 1 + 2j], {"dtype": "f8"}, r"\(1\+2j\)"),
        ([1 + 1j, 1e300], {"dtype": "c8"}, r"\(1e\+300"),
        ([2, 1.5 + 0j], {"dtype": "i4"}, r"\(1.5\+0j\)"),
    ],
)
def test_values_that_do_not_fit(values, encoding, wrong, lazy):
    items = np.array(values)
    if lazy:
        items = pytest.importorskip("dask.array").from_array(items, chunks=1)
    data, encoding = xr.Dataset({"v": ("x", items)}), {"v": encoding}
    message = "the variable 'v': the value %s.*does not fit" % wrong
    with pytest.raises(UsageError, match=message):
        dataset.from_xarray("g", data, encoding=encoding)
    assert not os.path.exists("g")
    if len(values) == 1:
        return
    fits = data.isel(x=slice(0, 1))
    with dataset.from_xarray("g", fits, encoding=encoding) as group:
        found = group.to_xarray().v.values
    if isinstance(values[0], (str, bytes)):
        assert values[:1] == found.tolist()
    else:
        np.testing.assert_allclose(found, values[:1], atol=0.05)


def test_encoding():
    encoding = {
        "t": {"chunks": 2, "shards": 4, "cname": "zlib", "dtype": "f8"},
        "time": {"units": "hours since 2020-01-01", "dtype": "i4"},
    }
    group = dataset.from_xarray("g", weather(), encoding=encoding, cname="zstd")
    assert ((2, 3), (4, 3), "f8") == (
        *(group["t"].chunks, group["t"].shards),
        group["t"].dtype,
    )
    assert np.isnan(group["t"].fill_value)
    assert [0, 6, 12, 18, 24, 30] == group["time"][:].tolist()
    assert -9 == group["rain"].fill_value
    group.close()
    found = {member["name"]: member for member in dataset.describe("g")["members"]}
    assert ("zlib", "zstd") == (found["t"]["codec"], found["rain"]["codec"])
    with xr.open_dataset("g", engine="bloscpack", chunks={}) as opened:
        assert ((4, 2), (3,)) == opened["t"].chunks
        xr.testing.assert_identical(weather(), opened)


@pytest.mark.parametrize(
    ("message", "variables", "options"),
    [
        ("'a': expected text in each item, found nan", {"a": ["x", None]}, {}),
        ("'a/b': the name of a variable", {"a/b": [1]}, {}),
        ("'a': the attribute 'by' must be JSON", {"a": [1]}, {"attrs": {"by": b""}}),
        ("'a': .*bfloat16", {"a": "bfloat16"}, {}),
        ("'a': .*no setting 'chunkz'", {"a": [1]}, {"encoding": {"chunkz": 1}}),
        ("encode .*'units'.*'a'", {"a": [1]}, {"attrs": {"units": "K"}}),
    ],
)
def test_what_can_not_be_stored(message, variables, options):
    ((name, values),) = variables.items()
    if values == "bfloat16":
        values = np.zeros(1, pytest.importorskip("ml_dtypes").bfloat16)
    elif isinstance(values, list):
        values = np.array(values, object if isinstance(values[0], str) else None)
    attrs, encoding = options.get("attrs", {}), options.get("encoding", {})
    if "units" in attrs:
        values, encoding = np.array(["2020"], "M8[ns]"), {}
    found = xr.Dataset({name: ("x", values, attrs)})
    with pytest.raises(UsageError, match=message):
        dataset.from_xarray("g", found, encoding={name: encoding})
    assert [] == os.listdir()


def test_an_index_of_several_levels():
    levels = pd.MultiIndex.from_tuples([(1, 2), (3, 4)], names=["p", "q"])
    coords = xr.Coordinates.from_pandas_multiindex(levels, "x")
    with pytest.raises(UsageError, match="'x' is a MultiIndex"):
        dataset.from_xarray("g", xr.Dataset({"a": ("x", [1, 2])}, coords))


def test_wrong_arguments():
    with pytest.raises(UsageError, match="expected a Dataset or a DataArray of xarray"):
        dataset.from_xarray("g", np.zeros(3))
    with pytest.raises(UsageError, match="there is no variable 'q'"):
        dataset.from_xarray("g", weather(), encoding={"q": {}})
    dataset.from_xarray("g", weather()).close()
    with pytest.raises(FileExistsError):
        dataset.from_xarray("g", weather())
    opened = xr.open_dataset("g", engine="bloscpack")
    dataset.from_xarray("g", opened.isel(time=slice(2)), mode="w").close()
    with dataset.open("g") as group:
        assert {"time": 2, "x": 3} == dict(group.to_xarray().sizes)


def test_a_copy_of_what_was_opened_as_zarr():
    dataset.from_xarray("g", weather()).close()
    opened = xr.open_zarr("g", consolidated=False)
    with dataset.from_xarray("h", opened) as group:
        xr.testing.assert_identical(weather(), group.to_xarray())


# Opening


def test_a_copy_by_xarray_gets_its_own_identity():
    """xarray does not see the identity of an array, and does not copy it."""

    def identity(path):
        with open(path + "/v/zarr.json") as file:
            return json.load(file).get("bloscpack", {}).get("bloscpack-id")

    data = xr.Dataset({"v": (("x", "y"), np.ones((4, 5)), {"units": "m"})})
    dataset.from_xarray("source", data).close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        opened = xr.open_zarr("source")
        assert {"units": "m"} == opened["v"].attrs
        opened.to_zarr("copy", zarr_format=3)
    assert identity("source") is not None
    assert identity("copy") is None
    for path in ("copy", "source"):
        with dataset.open(path + "/v", "r+") as array:
            array[0] = 7
            assert "m" == array.attrs["units"]
        assert 0 == dataset.verify(path).nerrors
    assert identity("source") != identity("copy")


def test_what_xarray_opens_has_only_the_attributes_of_users():
    """So it is identical to the data, and is combined with others."""
    data = weather()
    for name in ("one", "other"):
        dataset.from_xarray(name, data).close()
    with xr.open_zarr("one", consolidated=False) as opened:
        opened = opened.load()
    for variable in data.variables:
        xr.testing.assert_identical(data[variable], opened[variable])
    with xr.open_zarr("other", consolidated=False) as other:
        joined = xr.concat([opened["t"], other["t"]], "n", combine_attrs="identical")
    assert data["t"].attrs.keys() == joined.attrs.keys()


def test_a_data_array_without_a_name():
    """xarray gives it a name that begins with two underscores."""
    name = "__xarray_dataarray_variable__"
    xr.DataArray([1.5, 2.5], dims="x").to_zarr("g", zarr_format=3, consolidated=False)
    with dataset.open("g") as group:
        assert [name] == list(group)
        assert [1.5, 2.5] == group[name][:].tolist()
    assert 1 == dataset.verify("g").narrays
    with xr.open_dataset("g", engine="bloscpack") as opened:
        assert [name] == list(opened)
    dataset.convert("g", "h.zarr")
    with dataset.open("h.zarr", "r+") as group:
        group[name].append([3.5])
        group.create_array("__a", [1])
    assert [1.5, 2.5, 3.5] == dataset.open("h.zarr")[name][:].tolist()
    assert dataset.verify("h.zarr").ok


def test_an_append_of_xarray_is_no_damage():
    """Coordinates and values that are all zero or NaN are stored like others."""
    old = weather().drop_encoding()
    dataset.from_xarray("g", old).close()
    new = old.assign(t=old["t"] * 0, rain=old["rain"] * np.nan)
    new = new.assign_coords(time=[old["time"].values[0]] * len(old["time"]))
    new.to_zarr("g", append_dim="time", consolidated=False)
    with dataset.open("g") as group:
        found = group.to_xarray().load()
    for name in "t", "rain", "wet", "time":
        expected = np.concatenate([old[name].values, new[name].values])
        np.testing.assert_array_equal(expected, found[name].values)
    report = dataset.verify("g")
    assert {"changed", "other-program"} == {f.kind for f in report.findings}
    for finding in report.findings:
        assert "note" == finding.severity
        assert not {"damaged", "missing", "wrong", "lost"} & {*finding.message.split()}


def test_groups_and_tables_open_as_zarr():
    pytest.importorskip("dask")
    with dataset.create_group("g", attrs={"by": "me"}) as group:
        group.create_array("in/a", np.ones((2, 3)))
        group.create_array("in/b", np.ones(3), dims=["x"])
        group.create_array("in/c", np.ones((2, 3)), dims=[None, "x"])
        columns = {"time": [1, 2], "wind": np.ones((2, 3))}
        group.create_table("t", columns, dims={"time": ["time"]})
    found = open_zarr("g", group="in")
    assert ("a_axis_0", "a_axis_1") == found["a"].dims
    assert (("x",), ("c_axis_0", "x")) == (found["b"].dims, found["c"].dims)
    assert {"time": 2, "wind_axis_1": 3} == dict(open_zarr("g", group="t").sizes)
    for path in ("g/in", "g/t"):
        expected = open_zarr(path)
        with xr.open_dataset(path, engine="bloscpack") as opened:
            xr.testing.assert_identical(expected, opened)
    with dataset.open("g") as group:
        assert [{"by": "me"}, {}] == [group.to_xarray().attrs, dict(group["in"].attrs)]


@pytest.mark.parametrize("layout", ["zarr", "superchunk", "bcolz"])
def test_arrays_and_tables_of_all_layouts(layout):
    dataset.create_array("speed", np.arange(12).reshape(6, 2), layout=layout).close()
    dataset.create_table("t", {"a": [1, 2], "b": [3, 4]}, layout=layout).close()
    with xr.open_dataset("speed", engine="bloscpack") as opened:
        assert ("speed_axis_0", "speed_axis_1") == opened["speed"].dims
        assert [[9], [1]] == opened["speed"][[4, 0], 1:].values.tolist()
    with xr.open_dataset("speed", engine="bloscpack", name="v") as opened:
        assert ["v"] == list(opened)
    with xr.open_dataset("t", engine="bloscpack") as opened:
        assert {"row": 2} == dict(opened.sizes)


def test_indexes():
    items = np.arange(60).reshape(5, 4, 3)
    dataset.create_array("a", items, chunks=2, dims=["x", "y", "z"]).close()
    expected = xr.DataArray(items, dims=["x", "y", "z"])
    points = xr.DataArray([1, 3, 0], dims="p")
    with xr.open_dataset("a", engine="bloscpack", cache=False) as opened:
        for index in (
            {"x": [4, 0, 0], "z": [2, 1]},
            {"x": slice(None, None, -2), "y": 1},
            {"x": points, "y": points},
            {"y": [], "z": -1},
        ):
            found = opened["a"].isel(index)
            np.testing.assert_array_equal(expected.isel(index), found)


def test_only_the_needed_chunks_are_read():
    with dataset.create_array("g", np.arange(10), chunks=2, shards=2) as array:
        path = array.path
    for number in (0, 1, 3, 4):
        os.remove(os.path.join(path, "c", str(number)))
    with xr.open_dataset("g", engine="bloscpack") as opened:
        assert [4, 5] == opened["g"][4:6].values.tolist()


def test_it_can_be_pickled_and_closed():
    dataset.from_xarray("g", weather()).close()
    opened = xr.open_dataset("g", engine="bloscpack")
    copy = pickle.loads(pickle.dumps(opened))
    xr.testing.assert_identical(weather(), copy)
    opened.close()
    with pytest.raises(UsageError, match="closed"):
        opened["t"].load()


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("f4", -999.0), ("f8", np.nan), ("i2", -9)],
)
def test_value_of_missing_items(dtype, value):
    attrs = {"_FillValue": value}
    with dataset.create_group("g") as group:
        for name, given in (("a", attrs), ("b", {})):
            items = np.zeros(3, dtype)
            array = group.create_array(name, items, dims=["x"], attrs=given)
            array.attrs.update(attrs, more=1)
    with dataset.open("g") as group:
        for name in group:
            assert str({**attrs, "more": 1}) == str(dict(group[name].attrs))
        assert str(value) == str(group.to_xarray()["a"].encoding["_FillValue"])
    with xr.open_zarr("g", consolidated=False) as opened:
        assert str(value) == str(opened["b"].encoding["_FillValue"])


def test_a_text_for_missing_items_stays():
    attrs = {"_FillValue": "none"}
    dataset.create_array("a", [1.5], attrs=attrs).close()
    assert attrs == dict(dataset.open("a").attrs)


@pytest.mark.usefixtures("_no_warnings_of_zarr")
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_text_that_xarray_stores_as_bytes(zarr_format):
    """Each item is a text, although the engine ``zarr`` takes letters for one."""
    values = {"v": ["é", "bb", ""], "w": ["a", "b", ""], "plain": [b"a", b"bb", b"c"]}
    data = xr.Dataset({n: ("x", np.array(v, object)) for n, v in values.items()})
    data["plain"] = data["plain"].astype("S2")
    data.v.encoding = data.w.encoding = {"dtype": "S1"}
    data.to_zarr("s", zarr_format=zarr_format, consolidated=False)
    xr.testing.assert_identical(data[["v", "plain"]], open_zarr("s")[["v", "plain"]])
    with dataset.open("s") as group:
        opened = group.to_xarray()
        xr.testing.assert_identical(data, opened.load())
        for options in ({"decode_cf": False}, {"concat_characters": False}):
            raw = group.to_xarray(**options)["v"]
            assert ["é".encode(), b"bb", b""] == raw.values.tolist()
    for given in (opened, open_zarr("s")):  # both have the encoding
        with dataset.from_xarray("g", given[["v"]], mode="w") as group:
            xr.testing.assert_identical(data[["v"]], group.to_xarray())


def test_items_of_several_fields():
    zarr = pytest.importorskip("zarr")
    items = np.array([(1, 2.5), (3, 4)], "i4,>f8")
    dataset.create_array("s", items, layout="superchunk").close()
    zarr.create_array("z", data=items, zarr_format=2)
    for name in "sz":
        with xr.open_dataset(name, engine="bloscpack") as opened:
            assert items.tolist() == opened[name].values.tolist()


def test_wrong_parameters():
    dataset.from_xarray("g", weather()).close()
    for name, value in (("dims", ["x"]), ("name", "v"), ("nthreads", 2)):
        with pytest.raises(UsageError, match="'%s' is for files, and" % name):
            xr.open_dataset("g", engine="bloscpack", **{name: value})
    with pytest.raises(FileNotFoundError):
        xr.open_dataset("nothing", engine="bloscpack")


def test_an_array_that_xarray_has_added():
    dataset.from_xarray("g", weather()).close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of consolidated metadata
        weather()[["t"]].rename(t="t2").to_zarr("g", mode="a")
    with xr.open_dataset("g", engine="bloscpack") as opened:
        xr.testing.assert_equal(opened["t"], opened["t2"].rename("t"))
    options = {"engine": "bloscpack", "drop_variables": "t2"}
    with xr.open_dataset("g", **options) as opened:
        xr.testing.assert_identical(weather(), opened)


def test_url():
    pytest.importorskip("fsspec")
    url = "memory://test_xarray_datasets/g"
    with dataset.from_xarray(url, weather()) as group:
        xr.testing.assert_identical(weather(), group.to_xarray())
    with xr.open_dataset(url, engine="bloscpack") as opened:
        xr.testing.assert_identical(weather(), opened)


# Changes by xarray


@pytest.fixture
def _no_warnings_of_zarr():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*onsolidated metadata")
        warnings.filterwarnings("ignore", message=".*does not have a Zarr V3 spec")
        yield


def test_a_renamed_member_is_missed():
    dataset.from_xarray("g", weather()).close()
    os.rename("g/t", "g/w")
    with pytest.warns(RuntimeWarning, match="without the members 't', .* renamed"):
        xr.open_dataset("g", engine="bloscpack").close()


@pytest.mark.usefixtures("_no_warnings_of_zarr")
def test_xarray_appends():
    expected = weather()
    dataset.from_xarray("g", expected.isel(time=slice(3))).close()
    expected.isel(time=slice(3, 6)).to_zarr("g", append_dim="time")
    with dataset.open("g", "r+") as group:
        xr.testing.assert_identical(expected, group.to_xarray())
        group["t"].append(np.ones((1, 3)))
        assert ("time", "x") == group["t"].dims
        assert 7 == len(group["t"])
    errors = [f.kind for f in dataset.verify("g").findings if f.severity == "error"]
    assert ["lengths"] == errors  # only 't' has the last row


@pytest.mark.usefixtures("_no_warnings_of_zarr")
def test_xarray_writes_a_region():
    expected = weather()
    dataset.from_xarray("g", expected).close()
    expected["t"][1:4] += 5
    expected["rain"][1:4] = [np.nan, 2.0, 2.5]
    part = expected[["t", "rain"]].isel(time=slice(1, 4))
    part.drop_vars(["x", "site", "time"]).to_zarr("g", region={"time": slice(1, 4)})
    with dataset.open("g") as group:
        xr.testing.assert_identical(expected, group.to_xarray())
    expected["t"][0] = 0
    expected[["t"]].isel(time=[0]).drop_vars("site").to_zarr("g", region="auto")
    xr.testing.assert_identical(expected, open_zarr("g"))
    assert dataset.verify("g").ok


@pytest.mark.filterwarnings("ignore")  # of xarray and NumPy
@pytest.mark.parametrize(
    ("values", "encoding", "error"),
    [
        ([np.nan, 327.66, -3], {"dtype": "i2", "scale_factor": 0.01}, 0.005),
        ([1.1, np.inf, np.nan], {"dtype": "f4"}, 1e-6),
        ([5, 6], {"dtype": "f4"}, 0),
    ],
)
def test_values_that_an_encoding_rounds(tmp_path, values, encoding, error):
    data = xr.Dataset({"v": ("x", np.array(values))})
    if error == 0.005:
        encoding = {**encoding, "_FillValue": -32768}
    with dataset.from_xarray(tmp_path / "g", data, encoding={"v": encoding}) as group:
        found = group.to_xarray().v.values
    np.testing.assert_allclose(found, values, rtol=0, atol=error * (1 + 1e-6))


@pytest.mark.parametrize("calendar", ["noleap", "360_day", "julian", "standard"])
def test_bounds_of_times_of_any_calendar(tmp_path, calendar):
    pytest.importorskip("cftime")
    days = xr.date_range("2001-02-25", periods=4, calendar=calendar, use_cftime=True)
    edges = np.stack([days[:-1], days[1:]], 1)
    data = xr.Dataset(
        {"t": ("time", [1.0, 2, 3]), "edges": (("time", "n"), edges)},
        {"time": ("time", days[1:], {"bounds": "edges"})},
    )
    dataset.from_xarray(tmp_path / "g", data[{"time": slice(2)}]).close()
    later = data[{"time": slice(2, 3)}]
    dataset.from_xarray(tmp_path / "g", later, append_dim="time").close()
    coder = xr.coders.CFDatetimeCoder(use_cftime=True)
    with xr.open_dataset(
        tmp_path / "g", engine="bloscpack", decode_times=coder
    ) as found:
        for name in ("time", "edges"):
            assert data[name].values.tolist() == found[name].values.tolist()


@pytest.mark.parametrize("calendar", ["noleap", "360_day", "proleptic_gregorian"])
def test_a_single_time_of_any_calendar(tmp_path, calendar):
    """A variable without axes, such as the time of one field."""
    cftime = pytest.importorskip("cftime")
    time = cftime.datetime(2001, 2, 25, 6, calendar=calendar)
    data = xr.Dataset({"t": ("x", [1.0, 2])}, {"time": time})
    dataset.from_xarray(tmp_path / "g", data).close()
    dataset.from_xarray(tmp_path / "g", data, mode="a").close()
    coder = xr.coders.CFDatetimeCoder(use_cftime=True)
    with xr.open_dataset(
        tmp_path / "g", engine="bloscpack", decode_times=coder
    ) as found:
        assert time == found["time"].values.item()
    late = data.assign_coords(time=time.replace(microsecond=5))
    with pytest.raises(UsageError, match="'time'"):
        dataset.from_xarray(tmp_path / "g", late, mode="a")
