"""`from_xarray` with groups that exist, with trees, times and arrays of Dask."""

from __future__ import annotations

import os
import warnings
from threading import Timer

import numpy as np
import pytest
from support import has_entry_points

from bloscpack import dataset
from bloscpack.exceptions import UsageError

xr = pytest.importorskip("xarray", reason="xarray is not installed")
pytest.importorskip("zarr", reason="needs zarr 3", minversion="3")

from bloscpack.integrations import xarray_backend  # noqa: E402

pytestmark = [
    pytest.mark.skipif(not has_entry_points(), reason="the package is not installed"),
    pytest.mark.filterwarnings("ignore:.*onsolidated metadata"),
    pytest.mark.filterwarnings("ignore:.*does not have a Zarr V3 spec"),
    pytest.mark.usefixtures("folder"),
]


def weather(times=6):
    """Return a dataset of which some values are packed."""
    packed = {"dtype": "i2", "scale_factor": 0.5, "add_offset": 3.0, "_FillValue": -9}
    rain = np.array([1.5, np.nan, 3.0] * 9)[:times]
    t = np.arange(3.0 * times, dtype="f4").reshape(times, 3)
    time = xr.date_range("2020-01-01T00:35", periods=times, freq="6h")
    return xr.Dataset(
        {
            "t": (("time", "x"), t, {"units": "K"}),
            "across": (("x", "time"), t.T.copy()),
            "rain": ("time", rain, {}, packed),
            "wet": ("time", rain > 1),
            "name": ("time", [str(i) for i in range(times)]),
        },
        {
            "time": ("time", time, {"bounds": "limits"}),
            "limits": (("time", "n"), np.stack([time, time], 1)),
            "lead": ("time", np.arange(times).astype("m8[h]").astype("m8[ns]")),
            "x": [10, 20, 30],
            "site": ("x", ["a", "bb", "ccc"]),
        },
        {"title": "weather"},
    )


def part(start, stop=None, data=None):
    data = weather() if data is None else data
    return data.isel(time=slice(start, stop))


def stored(path="g"):
    with xr.open_dataset(path, engine="bloscpack") as opened:
        return opened.load()


def by_zarr(path="g"):
    with xr.open_zarr(path, consolidated=False, chunks=None) as opened:
        return opened.load()


def unchanged(path="g"):
    """Return the bytes of all documents."""
    with dataset.open(path) as group:
        return {n: (group[n].shape, group[n][...].tobytes()) for n in group}


# Appending


@pytest.mark.parametrize("source", ["memory", "dask", "netcdf"])
def test_appended(source):
    dataset.from_xarray("g", part(0, 2)).close()
    rest = part(2)
    if source == "dask":
        pytest.importorskip("dask")
        rest = rest.chunk(time=1)
    if source == "netcdf":  # another encoding of the same values
        for name, found in rest.variables.items():
            found.encoding = {"dtype": "f4"} if name in ("t", "rain") else {}
        rest["time"].encoding = {"units": "hours since 1900-01-01", "dtype": "f8"}
    with dataset.from_xarray("g", rest, append_dim="time") as group:
        xr.testing.assert_identical(weather(), group.to_xarray().load())
        assert ((3, 6), "i2") == (group["across"].shape, group["rain"].dtype)
    xr.testing.assert_equal(weather(), by_zarr())
    assert dataset.verify("g").ok


def test_appended_at_a_url():
    pytest.importorskip("fsspec")
    url = "memory://test_xarray_changes/g"
    dataset.from_xarray(url, part(0, 2)).close()
    dataset.from_xarray(url, part(2), append_dim="time").close()
    xr.testing.assert_identical(weather(), stored(url))


def test_what_xarray_appends_is_not_rounded():
    """The first times are at midnight, and later ones are not."""
    days = weather(3).assign_coords(time=xr.date_range("2020-01-01", periods=3))
    days = days.drop_vars("limits")
    rest = weather(9).isel(time=slice(3, None)).drop_vars("limits")
    days.time.attrs = rest.time.attrs = {}
    dataset.from_xarray("g", days).close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rest.to_zarr("g", append_dim="time")
    expected = xr.concat([days, rest], "time", data_vars="minimal", coords="minimal")
    assert expected.time.values.tolist() == stored().time.values.tolist()
    assert expected.lead.values.tolist() == stored().lead.values.tolist()


def changed(**variables):
    return part(2).assign(variables)


APPENDED = {
    "'t' of the group .* missing": lambda d: d.drop_vars("t"),
    "'x': it has other values": lambda d: d.assign_coords(x=[1, 2, 3]),
    "'t': expected the shape": lambda d: d.isel(x=[0, 1]),
    "'t': .*dimensions": lambda d: d.assign(t=d.t.T),
    "'t': expected the units 'K', found 'degC'": lambda d: d.assign(
        t=d.t.assign_attrs(units="degC")
    ),
    "'new': the group has no such": lambda d: d.assign(new=d.t),
    "'rain': the value 1000003.0 does not fit": lambda d: d.assign(rain=d.rain + 1e6),
    "'t': the value 1e.*300 does not": lambda d: d.assign(t=d.t.astype("f8") + 1e300),
    "'rain': the value -1.5 does .*_FillValue.*as nan": lambda d: d.assign(
        rain=d.rain * 0 - 1.5
    ),
    "'name': .*does not fit": lambda d: d.assign(name=d.name.astype("U9") + "long"),
    "'t': expected numbers.*found text": lambda d: d.assign(t=d.t.astype(str)),
    "'time': expected times of .*gregorian'.*'noleap'": lambda d: d.convert_calendar(
        "noleap", use_cftime=True
    ),
    "'time': .*seconds since": lambda d: d.assign_coords(
        time=d.time + np.timedelta64(1, "ms")
    ),
    "'lead': .*seconds": lambda d: d.assign_coords(
        lead=d.lead + np.timedelta64(1, "ns")
    ),
    "append_dim: expected": lambda d: d.rename(time="day"),
}


@pytest.mark.parametrize("message", APPENDED)
def test_what_can_not_be_appended(message):
    dataset.from_xarray("g", part(0, 2)).close()
    before = unchanged()
    with pytest.raises(UsageError, match=message):
        dataset.from_xarray("g", APPENDED[message](part(2)), append_dim="time")
    assert before == unchanged()
    dataset.open("g", "r+").close()


@pytest.mark.parametrize("name", ["t", "rain"])
@pytest.mark.parametrize("dtype", ["i4", "u1"])
def test_integers_are_appended_to_floats(name, dtype):
    """One variable has NaN where items are missing, the other is packed."""
    dataset.from_xarray("g", part(0, 2)).close()
    rest = part(2)
    rest[name] = rest[name].fillna(5).astype(dtype)
    dataset.from_xarray("g", rest, append_dim="time").close()
    found = stored()[name][{"time": slice(2, None)}]
    assert rest[name].values.tolist() == found.values.tolist()


def test_units_of_the_user():
    encoding = {"time": {"units": "days since 2020-01-01", "dtype": "i4"}}
    days = xr.Dataset(coords={"time": xr.date_range("2020-01-01", periods=4)})
    group = dataset.from_xarray("g", days[{"time": slice(3)}], encoding=encoding)
    assert ([0, 1, 2], "i4") == (group["time"][:].tolist(), group["time"].dtype)
    group.close()
    dataset.from_xarray("g", days[{"time": [3]}], append_dim="time").close()
    xr.testing.assert_identical(days, stored())
    later = days[{"time": [3]}] + np.timedelta64(1, "h")
    later["time"] = later.time + np.timedelta64(30, "h")
    with pytest.raises(UsageError, match=r"'time': .*days since 2020-01-01"):
        dataset.from_xarray("g", later, append_dim="time")
    xr.testing.assert_identical(days, stored())


# Times


@pytest.mark.parametrize(
    ("step", "units"),
    [(3600 * 10**9, "seconds"), (5 * 10**6, "milliseconds"), (1, "nanoseconds")],
)
def test_units_of_times(step, units):
    times = np.datetime64("2020-01-01", "ns") + np.arange(4) * np.timedelta64(
        step, "ns"
    )
    times[2] = "NaT"
    data = xr.Dataset({"a": ("k", times), "b": ("k", times - times[0])})
    with dataset.from_xarray("g", data) as group:
        assert units + " since 1970-01-01" == group["a"].attrs["units"]
        assert units == group["b"].attrs["units"]
    xr.testing.assert_identical(data, stored())
    xr.testing.assert_equal(data, by_zarr())


FAR = np.array(["3000-01-01", "2900-01-01"], "M8[s]")
NEAR = np.array(["2000-01-01", "NaT"], "M8[s]")
MISSING = np.array(["3000-01-01", "NaT"], "M8[s]")
NS = np.timedelta64(1, "ns")
RESOLUTIONS = {
    "near": {"a": NEAR, "b": NEAR.astype("M8[ms]") + np.timedelta64(1, "ms")},
    "durations": {"a": FAR - NEAR, "b": (NEAR - NEAR) + NS},
}


@pytest.mark.parametrize("name", RESOLUTIONS)
def test_times_of_several_resolutions(name):
    """Each gets units of its own, because xarray makes NaT of others."""
    data = xr.Dataset({k: ("time", v) for k, v in RESOLUTIONS[name].items()})
    with dataset.from_xarray("g", data) as group:
        xr.testing.assert_identical(data, group.to_xarray())
    with dataset.from_xarray("g", data, append_dim="time") as group:
        both = xr.concat([data, data], "time")
        xr.testing.assert_identical(both, group.to_xarray())


@pytest.mark.parametrize("unit", ["s", "us"])
def test_times_that_nanoseconds_can_not_hold(unit):
    """Others with nanoseconds do not change them."""
    far = FAR.astype("M8[%s]" % unit)
    data = xr.Dataset({"a": ("time", far), "b": ("time", NEAR + NS)})
    with dataset.from_xarray("g", data) as group:
        assert FAR.astype(int).tolist() == group["a"][:].tolist()
        assert (NEAR + NS).astype(int).tolist() == group["b"][:].tolist()


@pytest.mark.skipif(not hasattr(xr, "coders"), reason="xarray can't open far times")
@pytest.mark.parametrize(
    ("first", "second"),
    [(FAR, FAR), (FAR, NEAR), (NEAR, FAR), (MISSING, FAR), (FAR, MISSING)],
)
def test_an_append_of_times_that_nanoseconds_can_not_hold(first, second):
    dataset.from_xarray("g", xr.Dataset({"a": ("time", first)})).close()
    new = xr.Dataset({"a": ("time", second)})
    with dataset.from_xarray("g", new, append_dim="time") as group:
        coder = xr.coders.CFDatetimeCoder(time_unit="s")
        found = group.to_xarray(decode_times=coder)["a"].values
        np.testing.assert_array_equal(np.concatenate([first, second]), found)
        np.testing.assert_array_equal(xr.open_zarr("g", decode_times=coder)["a"], found)


def test_bounds_of_a_finer_resolution():
    bounds = np.stack([NEAR, NEAR], 1) + NS
    data = xr.Dataset(
        {"limits": (("time", "n"), bounds)},
        {"time": ("time", NEAR, {"bounds": "limits"})},
    )
    with dataset.from_xarray("g", data) as group:
        xr.testing.assert_identical(data, group.to_xarray())


@pytest.mark.parametrize("kind", "Mm")
def test_times_of_a_coarser_resolution_than_their_units(kind):
    times = NEAR if kind == "M" else NEAR - NEAR[0] + np.timedelta64(1, "s")
    units = "nanoseconds" + " since 2000-01-01" * (kind == "M")
    data = xr.Dataset({"a": ("time", times)})
    with dataset.from_xarray("g", data, encoding={"a": {"units": units}}) as group:
        xr.testing.assert_identical(data, group.to_xarray())
    dataset.from_xarray("g", data, append_dim="time").close()
    xr.testing.assert_identical(xr.concat([data, data], "time"), stored())


@pytest.mark.parametrize(
    ("times", "encoding"),
    [
        (FAR, {"units": "nanoseconds since 2000-01-01"}),
        (FAR, {"dtype": "i4"}),
        (NEAR + NS, {"dtype": "f4"}),
        (FAR - FAR + np.timedelta64(9**9, "s"), {"units": "seconds", "dtype": "i2"}),
    ],
)
def test_times_that_their_encoding_can_not_hold(times, encoding):
    data = xr.Dataset({"a": ("time", times)})
    with pytest.raises(UsageError, match=r"'a': the values? .*do(es)? not fit"):
        dataset.from_xarray("g", data, encoding={"a": encoding})
    assert [] == os.listdir()


def test_calendars():
    pytest.importorskip("cftime")
    whole = xr.date_range("2000-02-28", periods=4, calendar="360_day", use_cftime=True)
    data = xr.Dataset({"a": ("time", [1, 2, 3, 4])}, {"time": whole})
    with dataset.from_xarray("g", part(0, 2, data)) as group:
        found = group["time"].attrs
        assert ("360_day", "seconds since 1970-01-01") == (
            *(found["calendar"], found["units"]),
        )
    dataset.from_xarray("g", part(2, None, data), append_dim="time").close()
    xr.testing.assert_identical(data, stored())
    other = xr.date_range("2000-02-28", periods=1, calendar="noleap", use_cftime=True)
    with pytest.raises(UsageError, match=r"'time': .*'360_day'.*'noleap'"):
        dataset.from_xarray(
            "g", part(0, 1, data).assign_coords(time=other), append_dim="time"
        )


def test_a_dimension_that_netcdf_lets_grow():
    data = weather()
    data.encoding["unlimited_dims"] = {"time"}
    dataset.from_xarray("g", data).close()
    assert {"title": "weather"} == data.attrs
    found = stored()
    assert {"time"} == found.encoding["unlimited_dims"]
    xr.testing.assert_identical(data, found)


def test_a_member_that_changes_before_the_group_is_locked(monkeypatch):
    """The document of the group does not commit its members yet."""
    with dataset.create_group("g") as group:
        for name in "ab":
            group.create_array(name, np.arange(4.0), dims=["time"])
    unite = dataset.Group._unite

    def united(group):
        for name in "ab":
            with dataset.open("g/" + name, "r+") as array:
                array.append([4.0])
        unite(group)

    monkeypatch.setattr(dataset.Group, "_unite", united)
    new = xr.Dataset({name: ("time", -np.arange(4.0)) for name in "ab"})
    with pytest.raises(UsageError, match=r"expected the shape \(5,\), found \(4,\)"):
        dataset.from_xarray("g", new, mode="a")
    assert [0, 1, 2, 3, 4] == dataset.open("g/a")[:].tolist()


def test_variables_and_attributes_of_one_state(monkeypatch):
    """Another program may append while they are opened."""
    first = part(0, 2)
    dataset.from_xarray("g", first).close()
    open_node, opened = xarray_backend.open_node, []

    def appending(*args):
        node = open_node(*args)
        opened.append(node)
        if len(opened) == 4:  # the group and three variables
            with dataset.from_xarray("g", part(2), append_dim="time") as group:
                group.attrs["title"] = "more"
        return node

    monkeypatch.setattr(xarray_backend, "open_node", appending)
    xr.testing.assert_identical(weather().assign_attrs(title="more"), stored())
    assert len(opened) > len(first.variables) + 1


def test_a_variable_that_is_removed_while_the_group_is_opened(monkeypatch):
    """Its attributes were read with those of the others."""
    dataset.from_xarray("g", weather()).close()
    members_of = xarray_backend._members_of

    def removing(*args):
        found = members_of(*args)
        with dataset.open("g", "r+") as group:
            del group["wet"]
        return found

    monkeypatch.setattr(xarray_backend, "_members_of", removing)
    with xr.open_dataset("g", engine="bloscpack") as opened:
        assert {*weather().variables} == {*opened.variables}


# Regions


@pytest.mark.parametrize("region", [{"time": slice(1, 3)}, "auto", {"time": "auto"}])
def test_a_region(region):
    expected = weather()
    dataset.from_xarray("g", expected).close()
    expected["t"][1:3] += 5
    expected["rain"][1:3] = [np.nan, 2.0]
    new = expected[["t", "rain"]].isel(time=slice(1, 3))
    dataset.from_xarray("g", new, region=region).close()
    xr.testing.assert_identical(expected, stored())
    assert dataset.verify("g").ok


@pytest.mark.parametrize(
    ("message", "region", "change"),
    [
        ("expected adjacent items", "auto", lambda d: d.isel(time=[1, 0])),
        ("expected adjacent items", "auto", lambda d: d.assign_coords(time=FAR)),
        ("expected adjacent items", {"day": slice(1)}, lambda d: d),
        ("expected adjacent items", {"time": slice(0, 6, 2)}, lambda d: d),
        ("'t': expected the shape", {"time": slice(0, 3)}, lambda d: d),
        ("'x': it has other", {"time": slice(2)}, lambda d: d.assign_coords(x=[1] * 3)),
        ("'new': the group", {"time": slice(2)}, lambda d: d.assign(new=d.t)),
    ],
)
def test_what_is_no_region(message, region, change):
    dataset.from_xarray("g", weather()).close()
    before = unchanged()
    with pytest.raises(UsageError, match=message):
        dataset.from_xarray("g", change(part(0, 2)), region=region)
    assert before == unchanged()


# More variables


def test_mode_a():
    data = weather()
    dataset.from_xarray("g", data[["t"]], mode="a").close()
    data["t"] = data.t + 1
    options = {"mode": "a", "encoding": {"rain": {"chunks": 2}}}
    with dataset.from_xarray("g", data, **options) as group:
        assert (2,) == group["rain"].chunks
    xr.testing.assert_identical(data, stored())
    before = unchanged()
    for message, new, more in (
        ("'t': expected the shape", part(0, 2), {}),
        ("'new': .*which has", xr.Dataset({"new": ("x", [1, 2])}), {}),
        ("encoding: .*'t'", data, {"encoding": {"t": {"chunks": 2}}}),
    ):
        with pytest.raises(UsageError, match=message):
            dataset.from_xarray("g", new, mode="a", **more)
    assert before == unchanged()


@pytest.mark.parametrize("way", ["a", "append", "region"])
def test_attributes_of_a_group(way):
    """They change where xarray changes them; others, and those of variables, stay."""
    options = {
        "a": {"mode": "a"},
        "append": {"append_dim": "time"},
        "region": {"region": {"time": slice(0, 2)}},
    }[way]
    first = xr.Dataset({"v": ("time", [1.0, 2], {"by": "a"})}, attrs={"a": 1, "b": 2})
    later = xr.Dataset({"v": ("time", [3.0, 4], {"by": "b"})}, attrs={"b": 3, "c": 4})
    dataset.from_xarray("g", first).close()
    dataset.from_xarray("g", later, **options).close()
    first.to_zarr("z", consolidated=False)
    later.to_zarr("z", consolidated=False, **options)
    theirs = xr.open_zarr("z", consolidated=False).load()
    theirs.attrs.setdefault("a", 1)  # xarray removes those that are not new
    xr.testing.assert_identical(theirs, dataset.open("g").to_xarray().load())
    before = dataset.open("g").to_xarray().load()
    if way != "region":
        with pytest.raises(UsageError, match="the attribute 'd' must be JSON"):
            dataset.from_xarray("g", later.assign_attrs(d=b""), **options)
        xr.testing.assert_identical(before, dataset.open("g").to_xarray().load())


def test_wrong_arguments():
    data = weather()
    with pytest.raises(FileNotFoundError):
        dataset.from_xarray("g", data, append_dim="time")
    dataset.from_xarray("g", data).close()
    for options in (
        {"append_dim": "time", "mode": "w"},
        {"append_dim": "time", "region": "auto"},
        {"region": "everything"},
    ):
        with pytest.raises(UsageError):
            dataset.from_xarray("g", data, **options)
    with pytest.raises(UsageError, match="is no group"):
        dataset.from_xarray("g/t", data, append_dim="time")
    for name in ("compute", "consolidated", "write_inherited_coords"):
        with pytest.raises(UsageError, match="lacks the parameter '%s' of to_z" % name):
            dataset.from_xarray("h", data, **{name: True})
    with pytest.raises(UsageError, match=r"^from_xarray has no setting 'clevl': did"):
        dataset.from_xarray("h", data, clevl=3)


# Trees, and arrays of Dask


def test_a_tree():
    tree = xr.DataTree.from_dict(
        {"/": weather()[["x"]], "/in": xr.Dataset(attrs={"a": 1}), "/in/w": weather()}
    )
    encoding = {"in/w": {"t": {"dtype": "f8"}}}
    with dataset.from_xarray("g", tree, encoding=encoding) as group:
        assert "f8" == group["in/w/t"].dtype
    with xr.open_datatree("g", engine="bloscpack") as found:
        assert [*tree.groups] == [*found.groups]
        xr.testing.assert_identical(tree, found)
    # The identities of the groups are no attributes.
    with xr.open_datatree("g", engine="zarr") as found:
        xr.testing.assert_identical(tree, found)
    with pytest.raises(UsageError, match="no group 'out'"):
        dataset.from_xarray("h", tree, encoding={"/out": {}})


PLACES = "g", "memory://test_xarray_changes/groups"


@pytest.mark.parametrize("path", PLACES)
def test_a_group_inside_of_another(path):
    def written(data, **options):
        with dataset.from_xarray(path, data, **options) as group:
            assert "c" not in group
            return group.to_xarray().load()

    first, expected = part(0, 2), weather()
    xr.testing.assert_identical(first, written(first, group="/a/b/", mode="w"))
    xr.testing.assert_identical(first, written(first, group="a/c", mode="a"))
    with pytest.raises(FileExistsError, match="b"):
        written(first, group="a/b")
    rest = part(2)
    xr.testing.assert_identical(expected, written(rest, group="a/b", append_dim="time"))
    xr.testing.assert_identical(expected, stored(path + "/a/b"))
    xr.testing.assert_identical(first, stored(path + "/a/c"))
    xr.testing.assert_identical(rest, written(rest, group="a/b", mode="w"))
    more = first.assign(more=first.t)
    xr.testing.assert_identical(more, written(more, group="a/c", mode="a"))
    with pytest.raises(UsageError, match="there is no 'other'"):
        written(rest, group="other", append_dim="time")
    with pytest.raises(UsageError, match="t' is no group"):
        written(rest, group="a/b/t", mode="a")
    assert dataset.verify(path).ok


@pytest.mark.parametrize("path", [p + "-tree" for p in PLACES])
def test_changes_of_a_tree(path):
    """Groups without the dimension must be equal; all change in one commit."""

    def tree(data, station=1, **more):
        fixed = xr.Dataset({"station": ("k", [station, 2])})
        groups = {"/": fixed, "/in": fixed + 1, "/in/w": data, **more}
        return xr.DataTree.from_dict(groups)

    def read():
        with xr.open_datatree(path, engine="bloscpack") as found:
            return found.load()

    expected = weather()
    dataset.from_xarray(path, tree(part(0, 2))).close()
    dataset.from_xarray(path, tree(part(2)), append_dim="time").close()
    xr.testing.assert_identical(tree(expected), read())
    for message, wrong, options in (
        ("'station': it has other", tree(part(2), 5), {"append_dim": "time"}),
        ("there is no 'new'", tree(part(2), new=part(2)), {"append_dim": "time"}),
        ("append_dim: expected", tree(part(2)), {"append_dim": "day"}),
        ("region: expected", tree(part(2)), {"region": {"day": slice(1)}}),
    ):
        with pytest.raises(UsageError, match=message):
            dataset.from_xarray(path, wrong, **options)
    xr.testing.assert_identical(tree(expected), read())
    expected["t"] += 1
    for region in ({"time": slice(2, None)}, "auto"):
        changed = tree(part(2, None, expected))
        dataset.from_xarray(path, changed, region=region).close()
        assert (read()["in/w/t"][2:] == expected["t"][2:]).all()
        expected["t"] -= 1
    expected["t"][2:] += 1
    new = {"/new": expected, "/new/a/b": expected[["rain"]]}
    dataset.from_xarray(path, tree(expected, 7, **new), mode="a").close()
    xr.testing.assert_identical(tree(expected, 7, **new), read())
    assert dataset.verify(path).ok


def test_a_group_that_another_writer_has_opened():
    dataset.from_xarray("g", part(0, 2)).close()
    with dataset.open("g", "r+") as group:
        Timer(0.3, group.close).start()
        dataset.from_xarray("g", part(2), append_dim="time", timeout=30).close()
    xr.testing.assert_identical(weather(), stored())


@pytest.mark.parametrize("chunks", [{"time": -1, "x": 25}, {"time": 10, "x": -1}])
@pytest.mark.parametrize("url", ["g", "memory://test_xarray_changes/dask"])
def test_each_chunk_of_dask_is_computed_once(chunks, url):
    da = pytest.importorskip("dask.array")
    computed = []

    def make(block_info):
        place = block_info[None]["chunk-location"]
        computed.append(place)
        return np.full(block_info[None]["chunk-shape"], sum(place), "f8")

    sizes = xr.Dataset(coords={"time": range(400), "x": range(100)}).chunk(chunks)
    blocks = xr.zeros_like(sizes.time * sizes.x).chunk(chunks).chunks
    array = da.map_blocks(make, chunks=blocks, dtype="f8", meta=np.zeros((0, 0)))
    data = xr.Dataset({"a": (("time", "x"), array), "b": (("time", "x"), array + 1)})
    encoding = {name: {"chunks": (50, 20), "shards": (100, 40)} for name in "ab"}
    dataset.from_xarray(url, data, encoding=encoding, mode="w").close()
    assert sorted(set(computed)) == sorted(computed)
    del computed[:]
    dataset.from_xarray(url, data, append_dim="time").close()
    assert sorted(set(computed)) == sorted(computed)
    found = stored(url)
    expected = array.compute()
    assert [800, 100] == [*found.sizes.values()]
    np.testing.assert_array_equal(np.concatenate([expected] * 2), found.a)
    np.testing.assert_array_equal(found.a + 1, found.b)


@pytest.mark.filterwarnings("ignore")  # of xarray and NumPy
def test_a_new_variable_whose_encoding_can_not_hold_its_values(tmp_path):
    path = tmp_path / "g"
    dataset.from_xarray(path, xr.Dataset({"a": ("x", [1, 2])})).close()
    more = xr.Dataset({"b": ("x", [1.0, 1e9])})
    with pytest.raises(
        UsageError, match=r"the variable 'b': the value .* does not fit"
    ):
        dataset.from_xarray(path, more, mode="a", encoding={"b": {"dtype": "i2"}})
    assert ["a"] == list(dataset.open(path))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_packed_numbers_have_the_errors_of_floats(tmp_path, dtype):
    values = np.random.default_rng(0).normal(280, 20, 10**5).astype(dtype)
    values[:3] = 0, 280, -47
    encoding = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 280.0}
    encoding["_FillValue"] = -32768
    data = xr.Dataset({"v": ("t", values)})
    path = tmp_path / "g"
    dataset.from_xarray(path, data, encoding={"v": encoding}).close()
    with dataset.from_xarray(path, data, append_dim="t") as group:
        found = group.to_xarray().v.values
    np.testing.assert_allclose(found, np.tile(values, 2), rtol=0, atol=0.0051)


def test_messages_about_regions_and_modes():
    dataset.from_xarray("g", weather()).close()
    backward = weather().isel(time=slice(None, None, -1))
    for wrong in (backward, weather().isel(time=[0, 2])):
        with pytest.raises(
            UsageError, match=r"'time' .*other values.*or another order"
        ):
            dataset.from_xarray("g", wrong, region={"time": "auto"})
    dataset.from_xarray("h", weather().isel(time=[0, 1, 1])).close()
    for path, times in ("h", [0]), ("g", [0, 1, 1]):
        message = "'time' .* the value '%s.*' of its coordinate twice"
        message %= str(weather().time.values[1]).partition("T")[0]
        with pytest.raises(UsageError, match=message):
            dataset.from_xarray(path, weather().isel(time=times), region="auto")
    with pytest.raises(UsageError, match=r"'time' .*found slice"):
        dataset.from_xarray("g", weather(), region={"time": slice(0, 4, 2)})
    with pytest.raises(UsageError, match=r"'a' to change one, not 'r\+'"):
        dataset.from_xarray("g", weather(), mode="r+")


def test_times_that_zarr_stores_as_times(tmp_path):
    """Arrays of the dtypes M8 and m8 have no units, so that their items stay as is."""
    times = np.array(["2020-01-01", "NaT"], "M8[s]")
    spans = np.array([3, -1], "m8[s]")
    with dataset.create_group(tmp_path / "g") as group:
        group.create_array("day", times, dims=["n"])
        group.create_array("span", spans, dims=["n"])
    more = xr.Dataset({"day": ("n", times), "span": ("n", spans)})
    with dataset.from_xarray(tmp_path / "g", more, append_dim="n") as group:
        np.testing.assert_array_equal(group["day"][:], np.concatenate([times, times]))
        np.testing.assert_array_equal(group["span"][:], np.concatenate([spans, spans]))
    finer = more.assign(day=("n", times.astype("M8[ns]") + np.timedelta64(1, "ns")))
    with pytest.raises(UsageError, match=r"the variable 'day'.*does not fit"):
        dataset.from_xarray(tmp_path / "g", finer, append_dim="n")


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("calendar", ["standard", "proleptic_gregorian", "noleap"])
def test_times_that_a_foreign_program_has_left_empty(calendar, last):
    """The value of missing items is no time, wherever it is."""
    zarr = pytest.importorskip("zarr")
    pytest.importorskip("cftime")
    units = {"units": "days since 2000-01-01", "calendar": calendar}
    with dataset.create_group("g") as group:
        for name, values in (("time", [1, 2]), ("v", [1.0, 2])):
            attrs = units if name == "time" else {}
            group.create_array(name, np.array(values), dims=["time"], attrs=attrs)
    other = zarr.open_group("g", mode="r+", use_consolidated=False)
    for name in ("time", "v"):
        other[name].resize((5,))
        other[name][4 if last else 3] = 9
    message = "variable 'time': the numbers from -9.* to 9 are no times in 'days since"
    data = xr.Dataset({"v": ("time", [1.0])})
    for read in (
        lambda: dataset.open("g").to_xarray(),
        lambda: xr.open_dataset("g", engine="bloscpack"),
        lambda: dataset.from_xarray("g", data, append_dim="time"),
    ):
        with pytest.raises(UsageError, match=message):
            read()
    assert 5 == dataset.open("g").to_xarray(decode_times=False).sizes["time"]


def test_a_foreign_program_that_died_in_an_append():
    """Which arrays are short is told, and `trim` gives back what was complete."""
    zarr, path = pytest.importorskip("zarr"), "g"
    before, last = part(0, 4), part(4)
    dataset.from_xarray(path, before).close()
    complete = dataset.open(path).to_xarray().load()
    options = {"mode": "r+", "use_consolidated": False}
    other = zarr.open_group(path, **options)
    other["time"].append(np.array([5, 6]))
    other["across"].append(np.zeros((3, 1), "f4"), axis=1)
    found = {each.kind: each for each in dataset.verify(path).findings}["lengths"]
    for text in (
        "along 'time', ",
        "'rain' has 4",
        "'across' has 5",
        "6 items of 'time'",
    ):
        assert text in found.message
    assert ("error", ".") == (found.severity, found.file)
    message = "along 'time'.*'rain' has 4.*of the 6 items of 'time'; group.trim"
    for read in (
        lambda: dataset.open(path).to_xarray(),
        lambda: xr.open_dataset(path, engine="bloscpack"),
        lambda: dataset.from_xarray(path, last, append_dim="time"),
        lambda: dataset.from_xarray(path, before, mode="a"),
    ):
        with pytest.raises(UsageError, match=message):
            read()
    with dataset.open(path, "r+") as group:
        group.trim("time")
        assert (3, 4) == group["across"].shape
    xr.testing.assert_identical(complete, dataset.open(path).to_xarray().load())
    assert "lengths" not in {each.kind for each in dataset.verify(path).findings}
    with dataset.from_xarray(path, last, append_dim="time") as group:
        xr.testing.assert_equal(weather().load(), group.to_xarray().load())
