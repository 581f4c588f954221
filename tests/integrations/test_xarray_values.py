"""Values that `from_xarray` writes are read as they were, or are refused by name."""

from __future__ import annotations

import datetime

import numpy as np
import pytest
from support import has_entry_points

from bloscpack import dataset
from bloscpack.exceptions import UsageError

xr = pytest.importorskip("xarray", reason="xarray is not installed")
pd = pytest.importorskip("pandas")
pytest.importorskip("zarr", reason="needs zarr 3", minversion="3")
pytest.importorskip("dask")
pytest.importorskip("cftime")
if not hasattr(xr, "coders"):
    pytest.skip("this xarray has no far times", allow_module_level=True)

from . import xarray_cases  # noqa: E402

pytestmark = [
    pytest.mark.skipif(not has_entry_points(), reason="the package is not installed"),
    pytest.mark.filterwarnings("ignore"),  # of xarray and NumPy
    pytest.mark.usefixtures("folder"),
]


@pytest.mark.parametrize("call", [xarray_cases.check, xarray_cases.check_theirs])
@pytest.mark.parametrize("start", range(0, 60, 15))
def test_random_datasets(call, start, tmp_path):
    for seed in range(start, start + 15):
        call(seed, str(tmp_path))


# Values that are equal to the one of missing items

DAYS = np.array(["2000-01-01", "2000-01-02"], "M8[ns]")
DAY = {"units": "days since 2000-01-01", "dtype": "i4"}
PACKED = {"dtype": "i2", "scale_factor": 0.1, "_FillValue": -32768}
EQUAL = {
    "packed": (np.array([-3276.8, 1]), PACKED),
    "offset": (np.array([1.0, 7]), {"dtype": "u1", "add_offset": 7, "_FillValue": 0}),
    "integers": (np.array([-9, 1], "i2"), {"_FillValue": -9}),
    "missing_value": (np.array([-9, 1], "i2"), {"missing_value": -9}),
    "unsigned": (
        np.array([255, 1], "u1"),
        {"dtype": "i1", "_Unsigned": "true", "_FillValue": 255},
    ),
    "floats": (np.array([-9, 1.0]), {"_FillValue": -9}),
    "rounded": (np.array([-9 + 1e-12, 1.0]), {"_FillValue": -9, "dtype": "f4"}),
    "complex": (np.array([1j, 1]), {"_FillValue": 1j}),
    "text": (np.array(["a", "b"], object), {"_FillValue": "a"}),
    "times": (DAYS, {**DAY, "_FillValue": 1}),
    "durations": (DAYS - DAYS[0], {"units": "days", "dtype": "i4", "_FillValue": 1}),
    "large": (np.array([2**53 + 1, 1]), {"_FillValue": -1}),
}


@pytest.mark.parametrize("way", ["memory", "dask", "tree", "group", "a", "append"])
@pytest.mark.parametrize("name", EQUAL)
def test_a_value_that_would_be_read_as_another(name, way):
    values, encoding = EQUAL[name]
    data = xr.Dataset({"v": ("x", values)})
    given, options = {"encoding": {"v": encoding}}, {}
    if way == "dask" and name not in ("text",):
        data = data.chunk(x=1)
    elif way == "tree":
        data = xr.DataTree.from_dict({"/in": data})
        given = {"encoding": {"in": given["encoding"]}}
    elif way in ("group", "a"):
        dataset.create_group("g").close()
        options = {"group": "in"} if way == "group" else {"mode": "a"}
    elif way == "append":
        last = data.isel(x=slice(0, 0))
        dataset.from_xarray("g", last, **given).close()
        given, options = {}, {"append_dim": "x"}
    with pytest.raises(UsageError, match=r"variable 'v': the value .* does not fit"):
        dataset.from_xarray("g", data, **given, **options)


def test_values_that_are_missing_already():
    """The attributes of values that were read without decoding say so."""
    data = xr.Dataset({"v": ("x", np.array([-9, 1], "i2"), {"_FillValue": -9})})
    with dataset.from_xarray("g", data) as group:
        xr.testing.assert_identical(data, group.to_xarray(mask_and_scale=False))
        assert [True, False] == group.to_xarray().v.isnull().values.tolist()


@pytest.mark.parametrize("lazy", [False, True])
def test_booleans_and_text_of_numpy_are_never_missing(lazy):
    data = xr.Dataset({"b": ("x", [True, False]), "u": ("x", ["a", "b"])})
    given = data.chunk(x=1) if lazy else data
    packed = {"dtype": "i1", "_FillValue": 1, "scale_factor": 2}
    encoding = {"b": packed, "u": {"_FillValue": "a"}}
    with dataset.from_xarray("g", given, encoding=encoding) as group:
        xr.testing.assert_identical(data, group.to_xarray().load())
    xr.testing.assert_identical(data, xr.open_zarr("g", consolidated=False).load())


# Types of pandas

EXTENSIONS = {
    "duration[us][pyarrow]": np.array([1, "NaT"], "m8[us]"),
    "duration[s][pyarrow]": np.array([1, 2], "m8[s]"),
    "timestamp[us][pyarrow]": np.array(["2000-01-01", "NaT"], "M8[us]"),
    "double[pyarrow]": np.array([1, np.nan]),
    "int64[pyarrow]": np.array([1, 2]),
    "bool[pyarrow]": np.array([True, False]),
    "string[pyarrow]": np.array(["a", "b"], object),
    "string": np.array(["a", "b"], object),
    "Float32": np.array([1, np.nan], "f4"),
    "Int64": np.array([1, 2]),
    "boolean": np.array([True, False]),
    "Sparse[float64]": np.array([1.0, 0]),
}
REFUSED = {
    "Int64": [1, None],
    "boolean": [True, None],
    "int64[pyarrow]": [1, None],
    "string": ["a", None],
    "date32[day][pyarrow]": [datetime.date(2000, 1, 1)],
    "binary[pyarrow]": [b"a"],
    "category": ["a", "b"],
    "datetime64[ns, UTC]": ["2000-01-01"],
    "interval[int64]": [pd.Interval(0, 1)],
    "period[D]": ["2000-01-01"],
}


@pytest.mark.parametrize("role", ["variable", "coordinate", "index"])
@pytest.mark.parametrize("name", [*EXTENSIONS])
def test_types_of_pandas(name, role):
    if "pyarrow" in name:
        pytest.importorskip("pyarrow")
    expected = EXTENSIONS[name]
    data = _with(pd.array(expected, name), role)
    numbers = _with(expected, role)
    with dataset.from_xarray("g", data) as group:
        xr.testing.assert_identical(numbers, group.to_xarray())
    opened = xr.open_zarr("g", consolidated=False)
    assert expected.dtype.kind == opened["a"].dtype.kind.replace("T", "O")
    if role != "index":
        dataset.from_xarray("g", data, append_dim="x").close()
        assert 4 == dataset.open("g").to_xarray().sizes["x"]


@pytest.mark.parametrize("role", ["variable", "coordinate", "index"])
@pytest.mark.parametrize("name", [*REFUSED])
def test_types_of_pandas_without_one_of_numpy(name, role):
    if "pyarrow" in name:
        pytest.importorskip("pyarrow")
    data = _with(pd.array(REFUSED[name], name), role)
    with pytest.raises(UsageError, match="the variable 'a': "):
        dataset.from_xarray("g", data)


def _with(items, role):
    if role == "index":
        return xr.Dataset({"v": ("a", np.arange(len(items)))}, {"a": items})
    data = xr.Dataset({"a": ("x", items), "v": ("x", np.arange(len(items)))})
    return data.set_coords("a") if role == "coordinate" else data


# Far times

FAR = {
    "near": (["2000-01-01", "2000-01-02"], "ns"),
    "missing": (["3000-01-01", "NaT"], "us"),
    "five digits": (["99999-01-01", "2000-01-01"], "us"),
    "before": (["0001-01-01", "1582-10-04"], "us"),
    "very far": (["500000-01-01", "-400000-01-01"], "ms"),
}


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("name", FAR)
def test_far_times(name, lazy):
    texts, unit = FAR[name]
    times = np.array(texts, "M8[s]")
    bounds = np.stack([times, times], 1)
    data = xr.Dataset(
        {"v": ("x", [1.0, 2]), "limits": (("x", "n"), bounds)},
        {"t": ("x", times, {"bounds": "limits"}), "late": ("x", times - times[0])},
    )
    given = data.chunk(x=1) if lazy else data
    with dataset.from_xarray("g", given) as group:
        found = group.to_xarray().load()
    xr.testing.assert_identical(data, found)
    assert ("M8[%s]" % unit,) * 2 == (found.t.dtype, found.limits.dtype)
    coder = xr.coders.CFDatetimeCoder(time_unit="s")
    with xr.open_zarr("g", consolidated=False, decode_times=coder) as opened:
        xr.testing.assert_equal(data, opened.load())
    for options in ({"mode": "a"}, {"region": {"x": slice(0, 2)}}):
        dataset.from_xarray("g", given, **options).close()
        xr.testing.assert_identical(data, dataset.open("g").to_xarray())
    dataset.from_xarray("g", data[["v"]] + 1, region={"x": slice(0, 2)}).close()
    dataset.from_xarray("g", given, append_dim="x").close()
    assert [2, 3, 1, 2] == dataset.open("g").to_xarray().v.values.tolist()
    both = np.concatenate([times, times])
    np.testing.assert_array_equal(both, dataset.open("g").to_xarray().t)


@pytest.mark.parametrize("first", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("second", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("year", ["2000", "3000", "99999"])
def test_a_coordinate_of_another_unit(first, second, year):
    if year != "2000" and "ns" in (first, second):
        pytest.skip("nanoseconds do not hold it")
    days = np.datetime64(year + "-01-01", "s") + np.arange(4) * np.timedelta64(1, "D")
    near = np.array(["NaT"], "M8[s]")
    data = xr.Dataset(
        {"v": ("t", np.arange(4.0))}, {"t": days.astype("M8[%s]" % first)}
    )
    dataset.from_xarray("g", data).close()
    part = data.assign_coords(t=days.astype("M8[%s]" % second)).isel(t=slice(1, 3)) + 5
    dataset.from_xarray("g", part, region="auto").close()
    assert [0, 6, 7, 3] == dataset.open("g").to_xarray().v.values.tolist()
    for wrong in (part.t + np.timedelta64(1, "ms"), near):
        other = part.isel(t=slice(0, len(wrong))).assign_coords(t=np.asarray(wrong))
        with pytest.raises(UsageError, match="other values of its coordinate"):
            dataset.from_xarray("g", other, region="auto")


@pytest.mark.parametrize("times", [(2000, 9000), (2000,)])
@pytest.mark.parametrize(
    ("dtype", "microsecond"), [("i4", 0), ("i4", 1), ("i8", 0), ("i8", 1), ("f8", 0)]
)
def test_units_of_lazy_times_of_another_calendar(dtype, times, microsecond):
    """They hold the times of each chunk, or the variable is named."""
    import cftime
    from dask.array import from_array

    units = {"units": "days since 1999-01-01", "dtype": dtype}
    times = [cftime.DatetimeNoLeap(n, 1, 1, 0, 0, 0, microsecond) for n in times]
    lazy = from_array(np.array(times, object), chunks=1)
    data = xr.Dataset({"w": xr.Variable("t", lazy, {}, units)})
    if microsecond:
        with pytest.raises(UsageError, match="the variable 'w': a time is no whole"):
            dataset.from_xarray("g", data)
    else:
        dataset.from_xarray("g", data).close()
        found = dataset.open("g").to_xarray().w
        assert times == found.values.tolist()
        assert dtype == found.encoding["dtype"].str[1:]


def test_a_region_of_a_tree_whose_coordinate_is_inherited():
    tree = xr.DataTree.from_dict(
        {
            "/": xr.Dataset(coords={"x": np.arange(6.0)}),
            "/a": xr.Dataset({"v": ("x", np.zeros(6))}),
            "/b/c": xr.Dataset({"w": (("k", "x"), np.zeros((2, 6)))}),
        }
    )
    dataset.from_xarray("g", tree).close()
    part = tree.isel(x=slice(3, 5)).map_over_datasets(lambda node: node + 1)
    dataset.from_xarray("g", part, region="auto").close()
    found = xr.open_datatree("g", engine="bloscpack")
    assert [0, 0, 0, 1, 1, 0] == found["a/v"].values.tolist()
    assert [[0, 0, 0, 1, 1, 0]] * 2 == found["b/c/w"].values.tolist()


@pytest.mark.parametrize("calendar", ["noleap", "360_day", "julian", "standard"])
def test_far_times_of_other_calendars(calendar):
    import cftime

    make = cftime.datetime
    times = [make(y, 1, 2, 3, 4, 5, 1, calendar=calendar) for y in (1, 1582, 99999)]
    data = xr.Dataset({"v": ("x", times)})
    with dataset.from_xarray("g", data) as group:
        assert times == group.to_xarray().v.values.tolist()
    dataset.from_xarray("g", data, append_dim="x").close()
    assert times * 2 == dataset.open("g").to_xarray().v.values.tolist()


def test_near_times_of_the_standard_calendar():
    """They are nanoseconds, for which the first day of the calendar is too far."""
    data = xr.Dataset({"t": ("x", DAYS)})
    encoding = {"t": {"units": "days since 1999-01-01", "calendar": "standard"}}
    with dataset.from_xarray("g", data, encoding=encoding) as group:
        assert "standard" == group["t"].attrs["calendar"]
        found = group.to_xarray()
    xr.testing.assert_identical(data, found)
    xr.testing.assert_identical(data, xr.open_zarr("g", consolidated=False))
    assert DAYS.dtype == found.t.dtype


def test_times_that_no_encoding_of_the_user_holds():
    far = xr.Dataset({"v": ("x", np.array(["99999-01-01", "NaT"], "M8[s]"))})
    for encoding in (
        {"units": "nanoseconds since 1970-01-01"},
        {"units": "days since 1970-01-01", "dtype": "i2"},
        {"units": "seconds since 1970-01-01", "calendar": "noleap"},
    ):
        for data in (far, far.chunk(x=1)):
            with pytest.raises(UsageError, match="'v'"):
                dataset.from_xarray("g", data, encoding={"v": encoding})
    encoding = {"v": {"units": "days since 2000-01-01", "dtype": "f8"}}
    for data in (far, far.chunk(x=1)):
        with dataset.from_xarray("g", data, encoding=encoding, mode="w") as group:
            xr.testing.assert_identical(far, group.to_xarray().load())


def test_floats_of_durations_stay():
    """xarray changes the floats that it decodes."""
    spans = np.array([24097588000000742, 7], "m8[ns]")
    encoding = {"v": {"units": "seconds", "dtype": "f8"}}
    data = xr.Dataset({"v": ("x", spans)})
    with dataset.from_xarray("g", data, encoding=encoding) as group:
        np.testing.assert_allclose(spans / np.timedelta64(1, "s"), group["v"][:])


FIRST, LAST, NOTHING = -(2**63) + 1, 2**63 - 1, -(2**63)
UNITS = (None, "nanoseconds", "seconds", "days", "nanoseconds since 2000-01-01")


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("kind", "Mm")
@pytest.mark.parametrize(
    "numbers",
    [[LAST], [FIRST], [FIRST, LAST], [LAST, NOTHING], [0, FIRST], [LAST - 1, LAST]],
)
def test_the_first_and_the_last_times(numbers, kind, units, lazy):
    """All doors have them as they were, or the variable is refused by its name."""
    times = np.array(numbers, "i8").view(kind + "8[ns]")
    data = xr.Dataset({"t": ("x", times)})
    encoding = {}
    if units is not None:
        is_whole = "since" in units or kind == "m"
        if "since" in units and kind == "m":
            pytest.skip("durations have no beginning")
        encoding["t"] = {"units": units if is_whole else units + " since 1970-01-01"}
    refused = ""
    try:
        given = data.chunk(x=1) if lazy else data
        dataset.from_xarray("g", given, encoding=encoding).close()
    except UsageError as error:
        refused = str(error)
    if refused:
        assert "variable 't'" in refused
        assert units not in (None, "nanoseconds")
        return
    options = {"decode_timedelta": True} if kind == "m" else {}
    for found in (
        dataset.open("g").to_xarray(**options),
        xr.open_dataset("g", engine="bloscpack", **options),
        xr.open_zarr("g", **options),
    ):
        assert numbers == found["t"].values.view("i8").tolist()
