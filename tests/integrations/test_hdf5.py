"""HDF5 and netCDF files are converted in both directions; hostile ones are safe."""

from __future__ import annotations

import json
import os
import shutil
import sys

import numpy as np
import pytest
from support import run_blpk, run_python

from bloscpack import dataset
from bloscpack.cli import main
from bloscpack.dataset import conversion
from bloscpack.dataset.conversion import contents, statistics
from bloscpack.exceptions import DamageError, UsageError

h5py = pytest.importorskip("h5py")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch, tmp_path):
    """Make even small arrays several blocks."""
    monkeypatch.setattr(contents, "BLOCK_NBYTES", 1000)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def xarray():
    pytest.importorskip("h5netcdf")
    return pytest.importorskip("xarray")


def read(path):
    request = conversion.Request("")
    with request.resources:
        found = conversion.source_format(path).read(path, request)
        assert "group" == found.kind
        return found, request.lost


def dims_of(path):
    return {
        name: None if array.dims is None else list(array.dims)
        for name, array in contents.nodes_of(read(path)[0])
        if isinstance(array, contents.Rows) and not array.columns
    }


def climate(path="a.nc"):
    with h5py.File(path, "w", track_order=True) as file:
        file.attrs["title"] = "climate"
        for name, length in (("time", 30), ("lat", 4), ("lon", 5)):
            file[name] = np.arange(length, dtype="f8")
            file[name].make_scale(name)
        chunk = {"chunks": (7, 2, 3), "compression": "gzip", "fillvalue": -1.0}
        items = np.arange(600, dtype="f4").reshape(30, 4, 5)
        made = file.create_dataset("g/temperature", data=items, **chunk)
        made.attrs["units"] = "K"
        made.attrs["_FillValue"] = np.float32("nan")
        for axis, name in enumerate(("time", "lat", "lon")):
            made.dims[axis].attach_scale(file[name])
    return items


# Arrays

ARRAYS = {
    "numbers": np.arange(6000.0).reshape(60, 10, 10),
    "large rows": np.arange(6000, dtype="u2").reshape(2, 3000),
    "big-endian": np.arange(1000, dtype=">i4"),
    "half": np.arange(100, dtype="f2"),
    "complex": np.arange(100) * 1j,
    "bool": np.arange(100) % 3 == 0,
    "text": np.array(["a", "bcd", "", "é\n"] * 100),
    "bytes": np.array([b"a", b"bcd", b""] * 100),
    "raw": np.arange(100, dtype="i8").view("V8"),
    "no rows": np.zeros((0, 3), "f4"),
    "no axes": np.array(5, "f4"),
    "no axes, text": np.array("abc"),
    "fields": np.zeros((3, 2), [("a", "i2"), ("b", "f8", (3,)), ("c", "S3")]),
    "large": np.arange(400_000, dtype="i8").reshape(2, 200_000),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_array(name):
    array = ARRAYS[name]
    np.save("a.npy", array)
    done = dataset.convert("a.npy", "b.h5")
    assert ("hdf5", []) == (done.target_format, done.lost)
    dataset.convert("b.h5", "c.npy")
    found = np.load("c.npy")
    assert (array.dtype, array.shape) == (found.dtype, found.shape)
    assert array.tobytes() == found.tobytes()
    with h5py.File("b.h5") as file:
        assert ["data"] == list(file)


def test_types_of_hdf5():
    """Padding and the encoding of text are no part of a type."""
    padded = np.dtype({"names": ["a", "b"], "formats": ["i1", "f8"], "offsets": [0, 8]})
    with h5py.File("a.h5", "w") as file:
        file["padded"] = np.array([(1, 2.5)], padded)
        file.create_dataset(
            "utf8", data=["ä".encode(), b"b"], dtype=h5py.string_dtype(length=3)
        )
        file.create_dataset("vectors", (2,), np.dtype(("f4", (3,))))[:] = [[1] * 3] * 2
        file["none"] = h5py.Empty("f4")
    lost = ["'/none' (it has no items, and no shape)"]
    assert lost == dataset.convert("a.h5", "b.zarr").lost
    with dataset.open("b.zarr") as group:
        assert [(1, 2.5)] == group["padded"][:].tolist()
        assert ["ä", "b"] == group["utf8"][:].tolist()
        assert [[1] * 3] * 2 == group["vectors"][:].tolist()


def test_names_of_values():
    """CF has attributes for the names of the values that an HDF5 type may have."""
    kind = h5py.enum_dtype({"clear": 0, "rain": 61}, "i2")
    with h5py.File("a.h5", "w") as file:
        file["weather"] = np.array([0, 61], kind)
        for name in ("other words", "flags"):
            file[name] = np.array([0, 61], h5py.enum_dtype({"light rain": 61}, "i2"))
        file["flags"].attrs["flag_values"] = np.array([1], "i2")
        file["fields"] = np.array([(61,)], [("w", kind)])
    lost = ["/fields", "/flags", "/other words"]
    lost = ["the names of the values of '%s'" % name for name in lost]
    assert lost == dataset.convert("a.h5", "b.zarr").lost
    with dataset.open("b.zarr") as group:
        assert [0, 61] == group["weather"][:].tolist()
        attrs = {"flag_values": [0, 61], "flag_meanings": "clear rain"}
        assert attrs == dict(group["weather"].attrs)
    dataset.convert("b.zarr", "c.nc")
    with h5py.File("c.nc") as file:
        assert "int16" == file["weather"].attrs["flag_values"].dtype


def test_times():
    """netCDF has no type for times: they are integers with a unit."""
    times = np.array(["2000-01-02", "NaT"], "M8[s]")
    np.save("a.npy", times)
    assert [] == dataset.convert("a.npy", "b.nc").lost
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    with xarray.open_dataset("b.nc", engine="h5netcdf", phony_dims="sort") as found:
        np.testing.assert_array_equal(times, found["data"].values)
    np.save("c.npy", np.array(["1970-01-02"], "M8[ps]"))
    with pytest.raises(UsageError, match=r"'/data': netCDF has no unit for .*\[ps\]"):
        dataset.convert("c.npy", "d.nc")
    assert not os.path.exists("d.nc")


@pytest.mark.parametrize("dtype", ["M8[D]", "M8[ms]", "M8[ns]", "m8[s]", "m8[us]"])
def test_times_come_back(dtype, xarray):
    """The smallest integer is a missing time, for xarray and for us."""
    times = np.array([5, "NaT", -3], dtype)
    with dataset.create_group("a.zarr") as group:
        group.create_array("t", times, attrs={"title": "A"}, fill_value=times[1])
        group["rows"] = {"t": times, "n": [1, 2, 3]}
    assert [] == dataset.convert("a.zarr", "b.nc").lost
    assert [] == dataset.convert("b.nc", "c.zarr").lost
    with dataset.open("c.zarr") as group:
        assert {"title": "A"} == group["t"].attrs.asdict()
        assert np.isnat(group["t"].fill_value)
        for found in (group["t"][:], group["rows"][:]["t"]):
            assert times.dtype == found.dtype
            np.testing.assert_array_equal(times, found)
    with xarray.open_dataset("b.nc", engine="h5netcdf", phony_dims="sort") as found:
        np.testing.assert_array_equal(times, found["t"].values)
        if dtype == "m8[s]":  # of xarray itself
            found.load().to_netcdf("d.nc", engine="h5netcdf")
            assert times.dtype == read("d.nc")[0].members["t"].dtype
    with h5py.File("b.nc", "r+") as file:
        file["t"].attrs["units"] = "seconds since 2000-01-01"  # another program
    assert "int64" == read("b.nc")[0].members["t"].dtype


def test_streams():
    items = climate()
    with open("a.nc", "rb") as fp:
        found = run_blpk("convert", "--to", "hdf5", "-", "-", stdin=fp).stdout
    with open("b.nc", "wb") as fp:
        fp.write(found)
    with h5py.File("b.nc") as file:
        np.testing.assert_array_equal(items, file["g/temperature"][:])


def test_a_full_disk():
    """HDF5 itself would crash."""
    resource = pytest.importorskip("resource")
    np.save("a.npy", np.random.default_rng(1).random(10**5))

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    done = run_blpk("convert", "a.npy", "b.h5", preexec_fn=limited)
    message = b"blpk: error: 'b.h5': File too large\n"
    assert (1, message) == (done.returncode, done.stderr)
    assert ["a.npy"] == os.listdir()


# Groups, attributes, names of axes


def test_climate():
    items = climate()
    assert [] == dataset.convert("a.nc", "b.zarr").lost
    with dataset.open("b.zarr") as group:
        assert {"title": "climate"} == dict(group.attrs)
        made = group["g/temperature"]
        np.testing.assert_array_equal(items, made[:])
        assert ("K", -1.0) == (made.attrs["units"], made.fill_value)
    with open("b.zarr/g/temperature/zarr.json") as fp:
        document = json.load(fp)
    assert ["time", "lat", "lon"] == document["dimension_names"]
    # As xarray writes it.
    assert "AAAAAAAA+H8=" == document["attributes"]["_FillValue"]
    assert [] == dataset.convert("b.zarr", "c.nc").lost
    assert dims_of("a.nc") == dims_of("c.nc")
    with h5py.File("c.nc") as file:
        made = file["g/temperature"]
        np.testing.assert_array_equal(items, made[:])
        assert -1 == made.fillvalue
        assert np.isnan(made.attrs["_FillValue"])
        assert "float32" == made.attrs["_FillValue"].dtype
        assert file["lat"] == made.dims[1][0]


def test_chunks_are_for_arrays_with_as_many_axes():
    climate("a.nc")
    done = dataset.convert("a.nc", "a.zarr", chunks=(7, 2, 5))
    group = dataset.open("a.zarr")
    assert ((7, 2, 5), (30,)) == (group["g/temperature"].chunks, group["time"].shape)
    assert not any("chunks" in lost for lost in done.lost)
    with pytest.raises(UsageError, match="temperature': chunks: expected a positive"):
        dataset.convert("a.nc", "b.zarr", chunks=(7, 0, 5))
    with pytest.raises(UsageError, match="no setting 'chunk': did you mean 'chunks'"):
        dataset.convert("a.nc", "b.zarr", chunk=7)
    assert not os.path.exists("b.zarr")


def test_a_scalar_in_a_dataset():
    with h5py.File("a.nc", "w") as file:
        file["crs"] = np.int32(0)
        file["crs"].attrs["code"] = 4326
    done = dataset.convert("a.nc", "b.zarr")
    assert not any("chunks" in lost for lost in done.lost)
    with dataset.open("b.zarr") as group:
        assert ((), 4326) == (group["crs"].shape, group["crs"].attrs["code"])


def test_fewer_records_than_the_axis_has():
    """netCDF lets a variable lack the last ones."""
    with h5py.File("a.nc", "w") as file:
        file.create_dataset("time", data=np.arange(5.0), maxshape=(None,), chunks=(2,))
        file["time"].make_scale("time")
        for name, fill in (("v", -1), ("w", None)):
            found = {"shape": (3, 2), "maxshape": (None, 2), "fillvalue": fill}
            file.create_dataset(name, dtype="i4", chunks=(2, 2), **found)[:] = 7
            file[name].dims[0].attach_scale(file["time"])
        text = h5py.string_dtype()
        file.create_dataset("t", data=["a"], dtype=text, maxshape=(None,), chunks=(2,))
        file["t"].dims[0].attach_scale(file["time"])
    assert [] == dataset.convert("a.nc", "b.zarr").lost
    with dataset.open("b.zarr") as group:
        assert [[7, 7]] * 3 + [[-1, -1]] * 2 == group["v"][:].tolist()
        assert [[7, 7]] * 3 + [[0, 0]] * 2 == group["w"][:].tolist()
        assert ["a", "", "", "", ""] == group["t"][:].tolist()


def test_fewer_items_along_several_axes():
    """The longest variable says how long an axis is, as netCDF stores it."""
    with h5py.File("a.nc", "w") as file:
        scale = file.create_dataset("time", (2,), "f8", maxshape=(None,), fillvalue=9)
        scale[:] = 0
        scale.make_scale("time")
        # netCDF gives an axis without coordinates no length.
        bare = file.create_dataset("m", (0,), ">f4", maxshape=(None,))
        bare.make_scale("This is a netCDF dimension but not a netCDF variable.%10d" % 0)
        shapes = {"v": ("time",), "w": ("time", "m"), "x": ("m", "time"), "z": ("m",)}
        for name, lengths in (("v", [4]), ("w", [3, 1]), ("x", [2, 2]), ("z", [3])):
            most = [None] * len(lengths)
            made = file.create_dataset(name, lengths, "i2", maxshape=most, fillvalue=-5)
            made[...] = 1
            for axis, dim in enumerate(shapes[name]):
                made.dims[axis].attach_scale(file[dim])
        text = {"dtype": h5py.string_dtype(), "maxshape": (None,), "fillvalue": "none"}
        file.create_dataset("t", (1,), **text)[:] = "a"
        file["t"].dims[0].attach_scale(file["m"])
    assert [] == dataset.convert("a.nc", "b.zarr").lost
    gap = [-5]
    with dataset.open("b.zarr") as group:
        assert [0, 0, 9, 9] == group["time"][:].tolist()
        assert [1, 1, 1, 1] == group["v"][:].tolist()
        assert [[1, -5, -5]] * 3 + [gap * 3] == group["w"][:].tolist()
        assert [[1, 1, -5, -5]] * 2 + [gap * 4] == group["x"][:].tolist()
        assert [[1, -5, -5]] * 2 == group["w"][1:3].tolist()
        assert ["a", "none", "none"] == group["t"][:].tolist()
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("zarr", "3")
    with xarray.open_zarr("b.zarr", consolidated=False) as found:
        assert {"time": 4, "m": 3} == dict(found.sizes)


def test_axes_without_a_limit():
    """They are an attribute of the group, as `from_xarray` stores them."""
    with h5py.File("a.nc", "w") as file:
        for name, length in (("time", 0), ("g/day", 3)):
            made = file.create_dataset(name, (length,), "f8", maxshape=(None,))
            made.make_scale(name)
        made = file.create_dataset("g/v", (0, 3), "i2", maxshape=(None, None))
        for axis, dim in enumerate(("time", "g/day")):
            made.dims[axis].attach_scale(file[dim])
    assert [] == dataset.convert("a.nc", "b.zarr").lost
    with dataset.open("b.zarr") as group:
        assert ["time"] == group.attrs["unlimited_dims"]
        assert ["day"] == group["g"].attrs["unlimited_dims"]
    with dataset.open("b.zarr", "r+") as group:
        group.create_array("text", ["a"], dims=["n"]).close()
        group.attrs["unlimited_dims"] = ["time", "n"]
    assert [] == dataset.convert("b.zarr", "c.nc").lost
    with h5py.File("c.nc") as file:
        for name in ("time", "g/day", "n", "text"):
            assert (None,) == file[name].maxshape, name
        assert ((0, 3), (None, None)) == (file["g/v"].shape, file["g/v"].maxshape)
        assert file["g/day"] == file["g/v"].dims[1][0]


def test_a_coordinate_with_several_axes():
    """netCDF stores the names of its axes in another way."""
    with dataset.create_group("a.zarr") as group:
        letters = np.array([[b"aa", b"b"], [b"c", b"d"], [b"e", b"f"]])
        for name, items, dims in (
            *(("station", letters, ["station", "letter"]), ("x", [5], ["x"])),
            *(("v", np.ones(3), ["station"]), ("u", np.ones((3, 1)), ["u", "x"])),
        ):
            group.create_array(name, items, dims=dims).close()
    dataset.convert("a.zarr", "b.nc")
    expected = {"station": ["station", "letter"], "x": ["x"], "u": ["u", "x"]}
    assert {**expected, "v": ["station"]} == dims_of("b.nc")
    with h5py.File("b.nc") as file:
        ids = [file[name].attrs["_Netcdf4Dimid"] for name in ("station", "letter")]
        assert ids == [*file["station"].attrs["_Netcdf4Coordinates"][:2]]
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    with xarray.open_dataset("b.nc", engine="h5netcdf", decode_cf=False) as found:
        assert ("station", "letter") == found["station"].dims[:2]
        assert ("station",) == found["v"].dims


def test_axes_that_netcdf_needs():
    """It opens no variable of which some axes have names, and others have none."""
    with dataset.create_group("a.zarr", attrs={"unlimited_dims": ["t"]}) as group:
        for name, shape, dims in (
            *(("v", (2, 3), ["t", None]), ("t", (2,), ["t"])),
            # The name of an axis is that of another variable.
            *(("y", (2,), ["t"]), ("w", (4, 2), ["y", "t"])),
        ):
            group.create_array(name, np.ones(shape), dims=dims).close()
        # The axis of a group inside is another one.
        with group.create_group("g") as inner:
            inner.create_array("u", np.ones((4, 5)), dims=["t", "x"]).close()
        rows = {"n": [1, 2], "vectors": np.ones((2, 3))}
        group.create_table("rows", rows).close()
    assert [] == dataset.convert("a.zarr", "b.nc").lost
    assert [] == dataset.convert("b.nc", "c.zarr").lost
    with dataset.open("c.zarr") as group:
        assert {"v", "t", "y", "w", "g", "rows"} == {*group}
        assert ("t", None) == group["v"].dims
        assert ("y", "t") == group["w"].dims
        assert ["n", "vectors"] == group["rows"].names
    with h5py.File("b.nc") as file:
        assert ((None, 3), (4, 5)) == (file["v"].maxshape, file["g/u"].maxshape)
    h5netcdf = pytest.importorskip("h5netcdf")
    with h5netcdf.File("b.nc") as file:
        assert ("y", "t") == file["w"].dimensions
        assert (("t",), {"t", "y", "v_axis_1"}) == (
            file["y"].dimensions,
            {*file.dimensions},
        )
        assert ("row", "vectors_axis_1") == file["rows/vectors"].dimensions
        assert 4 == file["g"].dimensions["t"].size


TYPED = {
    "valid_range": np.array([0, 9], "i2"),
    "actual_range": np.array([1, 2], "i2"),
    "missing_value": np.int16(-9),
    "count": 5,
    "mean": 2.5,
}


def test_types_of_attributes():
    """JSON has no types: CF says which attributes have the type of the items."""
    with h5py.File("a.nc", "w") as file:
        file["v"] = np.arange(3, dtype="i2")
        file["v"].attrs.update(TYPED)
        file["v"].attrs["_FillValue"] = np.array([-9], "i2")
        # These are of the unpacked data.
        file["u"] = np.arange(3, dtype="i2")
        unpacked = {"valid_range": [0.0, 100.0], "actual_range": [0.0, 2.0]}
        file["u"].attrs.update({"scale_factor": 0.5, **unpacked})
        file["w"] = np.arange(3, dtype="f4")
        file["w"].attrs["_FillValue"] = np.float32(1e20)
        file["w"].attrs["valid_max"] = np.float32(0.1)
    assert [] == dataset.convert("a.nc", "b.zarr").lost
    assert [] == dataset.convert("b.zarr", "c.nc").lost
    with h5py.File("a.nc") as a, h5py.File("c.nc") as c:
        for name in "uvw":
            for key, value in a[name].attrs.items():
                assert value.dtype == c[name].attrs[key].dtype, (name, key)
                np.testing.assert_array_equal(value, c[name].attrs[key])
    with h5py.File("a.nc", "a") as file:
        file["u"].attrs["scale_factor"] = np.float32(0.5)
        file["u"].attrs["add_offset"] = np.float32(0.5)
    text = "the types of attributes, such as 'float32' of '%s' of '/u'"
    assert [text % "add_offset"] == dataset.convert("a.nc", "d.zarr").lost


def test_the_fill_value_of_text():
    """xarray does not open an array of text with an attribute for it."""
    text = {"dtype": h5py.string_dtype(), "fillvalue": "none"}
    with h5py.File("a.nc", "w") as file:
        file.create_dataset("t", (2,), **text)[0] = "a"
        file["t"].attrs["_FillValue"] = "none"
        file.create_dataset("c", (2,), "S1", fillvalue=b"-")[0] = b"a"
        file["c"].attrs["_FillValue"] = np.bytes_(b"-")
        file["u"] = np.array([b"a"])
        file["u"].attrs["_FillValue"] = np.bytes_(b"-")
    assert ["the attribute '_FillValue' of '/u'"] == read("a.nc")[1]
    dataset.convert("a.nc", "b.zarr")
    with dataset.open("b.zarr") as group:
        assert ("none", {}) == (group["t"].fill_value, dict(group["t"].attrs))
    dataset.convert("b.zarr", "c.nc")
    with h5py.File("c.nc") as file:
        assert "none" == file["t"].attrs["_FillValue"]
        assert (b"-", "S1") == (file["c"].attrs["_FillValue"], file["c"].dtype)
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("zarr", "3")
    with xarray.open_zarr("b.zarr", consolidated=False) as found:
        assert ["a", "none"] == found["t"].values.tolist()


@pytest.mark.parametrize("engine", ["h5netcdf", "netcdf4"])
@pytest.mark.parametrize("target", ["b.nc", "b.h5", "b.zarr"])
def test_bytes_are_those_of_other_programs(engine, target):
    """netCDF has them as characters: strings would end at a zero, and be UTF-8."""
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("netCDF4" if engine == "netcdf4" else engine)
    texts = np.array([[b"a\0b", b"\xe9"], [b"", b"abc"]])
    given = xarray.Dataset(
        {
            "c": (("x", "y"), texts),
            "one": ("x", texts[:, 1].astype("S1")),
            "d": b"\xff",
        },
        {"x": np.array([b"\0z", b"z"])},
    )
    given.to_netcdf("a.nc", engine="h5netcdf")
    dataset.convert("a.nc", target)
    if target.endswith("zarr"):
        dataset.convert(target, target := "b.nc")
    known = xarray.load_dataset("a.nc", engine=engine)
    found = xarray.load_dataset(target, engine=engine)
    assert known.identical(found)
    assert np.array_equal(texts, found["c"])
    with h5py.File("a.nc") as first, h5py.File(target) as second:
        for name in ("c", "one", "d", "x"):
            assert np.array_equal(first[name], second[name])
    dataset.convert(target, "c.zarr")
    assert np.array_equal(texts, dataset.open("c.zarr")["c"][:])


def test_the_axis_of_characters_has_a_free_name(xarray):
    with dataset.create_group("a.zarr") as group:
        for name, items, dims in (
            *(("c", np.array([b"abc", b"\xe9"]), ["x"]), ("string3", [1, 2], ["s"])),
            ("v", [1, 2, 3], ["string3_"]),
        ):
            group.create_array(name, items, dims=dims).close()
    dataset.convert("a.zarr", "a.nc")
    found = xarray.load_dataset("a.nc", engine="h5netcdf")
    assert [b"abc", b"\xe9"] == found["c"].values.tolist()
    assert ([1, 2], [1, 2, 3]) == (
        found["string3"].values.tolist(),
        found["v"].values.tolist(),
    )


@pytest.mark.parametrize("target", ["b.nc", "b.h5"])
def test_bytes_in_tables(target):
    """A column of single bytes is no text along the rows."""
    columns = {"a": [b"a\0b", b"\xe9"], "b": [b"x", b"y"], "c": [b"\xff", b"z"]}
    dataset.create_table("a.zarr", {n: np.array(c) for n, c in columns.items()}).close()
    dataset.convert("a.zarr", target)
    dataset.convert(target, "c.zarr")
    with dataset.open("c.zarr") as table:
        assert columns == {name: table[name][:].tolist() for name in table.names}
    if target == "b.nc":
        xarray = pytest.importorskip("xarray")
        pytest.importorskip("h5netcdf")
        found = xarray.load_dataset(target, engine="h5netcdf")
        assert columns == {name: found[name].values.tolist() for name in columns}


def test_bytes_without_names_of_axes():
    """No program of netCDF reads others than these: they are refused for such files."""
    for items, is_right in ((b"a\0b", False), (b"\xe9a", False), (b"abc", True)):
        np.save("a.npy", np.array([b"x", items]))
        dataset.convert("a.npy", "a.h5", force=True)
        with h5py.File("a.h5") as file:
            assert [b"x", items] == file["data"][()].tolist()
        if is_right:
            dataset.convert("a.npy", "a.nc", force=True)
            continue
        with pytest.raises(UsageError, match=r"data': programs of netCDF .* unlike"):
            dataset.convert("a.npy", "a.nc")


@pytest.mark.parametrize("dtype", ["i2", "u1", "f4", "i8"])
@pytest.mark.parametrize("source", ["a.nc", "a.zarr"])
def test_stored_numbers_are_told_of(dtype, source, xarray):
    """A notice names each array that xarray decodes, and missing items are counted."""
    packing = {"scale_factor": 0.5, "add_offset": 5.0}
    times = np.array(["2026-01-05T00", "NaT", "2026-01-05T12"], "M8[ns]")
    given = xarray.Dataset(
        {
            "p": ("x", [5.5, np.nan, 7.0], {"units": "K"}, packing),
            "m": ("x", [1.0, np.nan, 3.0]),
            "plain": ("x", [1.0, np.nan, 3.0], {"units": "days"}),
            "t": ("x", times, {}, {"units": "hours since 2026-01-05"}),
            "d": ("x", times - times[0], {}, {"units": "hours"}),
        }
    )
    for name in "pmtd":
        given[name].encoding |= {"dtype": dtype, "_FillValue": 99}
    given.to_netcdf("a.nc", engine="h5netcdf")
    dataset.convert("a.nc", "a.zarr")
    words = {
        "p": "packed (scale_factor 0.5, add_offset 5",
        "m": "99",
        "t": "times ('hours since 2026-01-05",
        "d": "durations ('hours')",
    }
    for target in ("b.csv", "b.npy", "b.npz", "b.parquet", "b.bcolz"):
        notes = dataset.convert(source, target).notes
        assert 4 == len(notes)
        for name, text in words.items():
            assert [text in n and "99" in n for n in notes if "'%s' " % name in n]
    for target in ("b.zarr", "c.nc"):
        assert not dataset.convert(source, target).notes
    request = conversion.Request("")
    with request.resources:
        content = conversion.source_format(source).read(source, request)
        for summary in statistics.summaries(content):
            assert (2, 1) == (summary.count, summary.missing)
            assert summary.high < 99


def test_stored_numbers_that_are_appended_are_told_of(capsys):
    with h5py.File("a.nc", "w") as file:
        for name in ("p", "plain"):
            file[name] = np.array([1, 2], "i2")
        file["p"].attrs["scale_factor"] = 0.5
    dataset.convert("a.nc/p", "p.zarr")
    dataset.create_array("plain.zarr", np.zeros(1, "i2")).close()
    dataset.create_table("t.zarr", {"p": [0], "plain": [0]}).close()

    def said(target, source):
        main(["append", target, source])
        return capsys.readouterr().err

    note = "'%s' keeps its stored numbers: packed (scale_factor 0.5)"
    assert note % "array" in said("plain.zarr", "a.nc/p")
    assert note % "p" in said("t.zarr", "a.nc")
    assert "" == said("plain.zarr", "a.nc/plain")
    assert "" == said("p.zarr", "a.nc/p")
    assert [0, 1, 2] == dataset.open("t.zarr")["p"][:].tolist()


def test_text_that_is_no_utf_8():
    """It is Latin-1 in files of old programs; no text has surrogates of its bytes."""
    with h5py.File("a.h5", "w") as file:
        file["v"] = np.arange(3)
        file["v"].attrs["fixed"] = np.bytes_(b"\xb0C")
        file["v"].attrs.create("text", b"\xe9", dtype=h5py.string_dtype())
        h5py.h5a.create(
            file["v"].id,
            b"n\xe9",
            h5py.h5t.NATIVE_INT32,
            h5py.h5s.create(h5py.h5s.SCALAR),
        ).write(np.array(5, "i4"))
        complex_type = h5py.h5t.py_create(np.dtype("c8"))
        space = h5py.h5s.create(h5py.h5s.SCALAR)
        h5py.h5a.create(file["v"].id, b"c\xe9", complex_type, space)
        for name in (b"\xe9", "é".encode(), b"\xe8"):
            space = h5py.h5s.create_simple((2,))
            h5py.h5d.create(file.id, name, h5py.h5t.NATIVE_INT32, space)
        file[b"\xe8"].make_scale("x")
        file["v2"] = np.ones(2)
        file["v2"].dims[0].attach_scale(file[b"\xe8"])
        file["v2"].dims[0].label = "x"
    done = dataset.convert("a.h5", "b.zarr")
    lost = ["the encoding of text that is not UTF-8, such as 'cé'", "'/é'"]
    assert {*lost, "the attribute 'cé' of '/v'"} == {*done.lost}
    with dataset.open("b.zarr") as group:
        assert {"v", "v2", "é", "è"} == {*group}
        assert {"fixed": "°C", "text": "é", "né": 5} == dict(group["v"].attrs)
        assert ("è",) == group["v2"].dims
    for folder, _, names in os.walk("b.zarr"):
        for name in {"zarr.json"} & {*names}:
            with open(os.path.join(folder, name), encoding="utf-8") as fp:
                assert "\\ud" not in fp.read()


def test_names_of_axes():
    names = {"x": ["n", None], "y": ["n"], "n": None, "z": ["m", "m"], "m": ["m"]}
    with dataset.create_group("a.zarr") as group:
        for name, shape in (("x", (3, 2)), ("y", (4,)), ("z", (2, 2)), ("m", (2,))):
            group.create_array(name, np.ones(shape)).close()
    for name, dims in names.items():
        if name != "n":
            path = "a.zarr/%s/zarr.json" % name
            with open(path) as fp:
                document = json.load(fp)
            del document["attributes"], document["bloscpack"]
            document["dimension_names"] = dims
            with open(path, "w") as fp:
                json.dump(document, fp)
    lost = dataset.convert("a.zarr", "b.nc").lost
    assert ["the name 'n' of an axis of '/y' as a dimension of netCDF"] == lost
    del names["n"]
    # The scale 'n' has no items; its length is not that of 'y'.
    assert names == dims_of("b.nc")
    with h5py.File("b.nc") as file:
        assert (3,) == file["n"].shape
        assert "n" == file["y"].dims[0].label


def test_attributes():
    attrs = {
        "text": "é",
        "empty": "",
        "number": 3,
        "float": 2.5,
        "true": True,
        "list": [1, 2],
        "texts": ["a", "bc"],
        "table": [[1.5, 2], [3, 4]],
        "large": "x" * 100_000,
    }
    wrong = {"none": None, "object": {"a": 1}, "mixed": [1, "a"], "NAME": "x"}
    wrong |= {"a truth value": [True, 2], "rounded": [2**60 + 1, 0.5]}
    dataset.create_group("a.zarr", attrs={**attrs, **wrong}).close()
    lost = dataset.convert("a.zarr", "b.h5").lost
    assert ["the attribute '%s' of '/'" % name for name in wrong] == lost
    found, lost = read("b.h5")
    assert (attrs, []) == (found.attrs, lost)


def test_lists_of_one_item_are_told_of():
    attrs = {"one": [5], "word": ["a"], "inner": [[1.5]]}
    dataset.create_group("a.zarr", attrs=attrs).close()
    lost = dataset.convert("a.zarr", "b.h5").lost
    text = "the list around the only item of the attribute '%s' of '/'"
    assert [text % name for name in attrs] == lost
    assert {"one": 5, "word": "a", "inner": 1.5} == read("b.h5")[0].attrs


def test_attributes_that_json_lacks():
    with h5py.File("a.h5", "w") as file:
        file.attrs["one"] = [5]
        file.attrs["nothing"] = h5py.Empty("S1")
        file.attrs["complex"] = 1j
        file.attrs["reference"] = file.ref
    found, lost = read("a.h5")
    assert {"one": 5, "nothing": ""} == found.attrs
    names = ("complex", "reference")
    assert ["the attribute '%s' of '/'" % name for name in names] == sorted(lost)


def test_table():
    rows = {"b": np.arange(50), "a": np.array(["x", "yz"] * 25), "c": np.ones((50, 2))}
    with dataset.create_table("a.zarr", rows, attrs={"k": 1}) as table:
        table["a"].attrs["unit"] = "m"
    dataset.convert("a.zarr", "b.h5")
    assert "table" == dataset.convert("b.h5", "c.zarr").kind
    with dataset.open("a.zarr") as a, dataset.open("c.zarr") as c:
        assert a.names == c.names
        np.testing.assert_array_equal(a[:], c[:])
        assert ({"k": 1}, {"unit": "m"}) == (dict(c.attrs), dict(c["a"].attrs))
    dataset.convert("b.h5", "d.npy")
    assert ("b", "a", "c") == np.load("d.npy").dtype.names


def test_fields_of_hdf5_become_a_table():
    with h5py.File("a.h5", "w") as file:
        file["t"] = np.array([(1, 2.5), (3, 4.5)], [("x", "i4"), ("y", "f8")])
    dataset.convert("a.h5", "b.zarr")
    assert ["x", "y"] == dataset.open("b.zarr")["t"].names


def test_xarray(xarray):
    pytest.importorskip("zarr", "3")
    values = np.arange(60.0).reshape(3, 4, 5)
    values[0, 0, 0] = np.nan
    axes = ("time", "y", "x")
    made = xarray.Dataset(
        {
            "t": (axes, values.astype("f4"), {"units": "K", "range": [1.5, 2.5]}),
            "p": (axes, values, {"long_name": "é"}),
            "name": ("y", np.array(["a", "bé", "", "c"], object)),
        },
        {
            "time": ("time", np.arange("2000-01", "2000-04", dtype="M8[M]")),
            "x": range(5),
        },
        {"title": "t"},
    )
    made["p"].encoding = {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -9}
    made["time"] = made["time"].astype("M8[ns]")
    made.to_netcdf("a.nc", engine="h5netcdf")
    dataset.convert("a.nc", "b.zarr")
    dataset.convert("b.zarr", "c.nc")
    with xarray.open_dataset("a.nc", engine="h5netcdf") as a:
        with xarray.open_dataset("c.nc", engine="h5netcdf") as c:
            xarray.testing.assert_identical(a.load(), c.load())
        with xarray.open_zarr("b.zarr", consolidated=False) as b:
            xarray.testing.assert_equal(a, b.load())


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_missing_items_of_xarray(zarr_format, xarray):
    """In format 2 of Zarr, the fill value says which are missing."""
    pytest.importorskip("zarr", str(zarr_format))
    made = xarray.Dataset({"p": ("x", [0, np.nan, 2.5]), "n": ((), np.float32("nan"))})
    packed = {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -9}
    written = {"encoding": {"p": packed}, "zarr_format": zarr_format}
    made.to_zarr("a.zarr", consolidated=False, **written)
    dataset.convert("a.zarr", "b.nc")
    dataset.convert("a.zarr", "c.zarr")
    with xarray.open_dataset("b.nc", engine="h5netcdf") as found:
        xarray.testing.assert_identical(made, found.load())
    with xarray.open_dataset("c.zarr", engine="bloscpack") as found:
        xarray.testing.assert_equal(made, found.load())
    with h5py.File("b.nc") as file:
        assert (-9, "int16") == (file["p"].attrs["_FillValue"], file["p"].dtype)
        assert np.isnan(file["n"].attrs["_FillValue"])


# Hostile files


def test_links(tmp_path):
    """Each name of a dataset is an array; other links may go round in circles."""
    with h5py.File("other.h5", "w") as file:
        file["secret"] = np.arange(10)
    with h5py.File("a.h5", "w") as file:
        file["g/x"] = np.arange(3)
        file["g/up"] = file["/"]
        file["same"] = file["g/x"]
        file["twin"] = file["g"]
        file["soft"] = h5py.SoftLink("/g/x")
        file["cycle"] = h5py.SoftLink("/cycle")
        file["outside"] = h5py.ExternalLink("other.h5", "/secret")
        file["through"] = h5py.SoftLink("/outside")
        file["type"] = np.dtype("i4")
    done = dataset.convert("a.h5", "b.zarr")
    assert [
        "the link '/cycle' to '/cycle'",
        "the link '/g/up' to '/'",
        "the link '/outside' to '/secret' in 'other.h5'",
        "the link '/soft' to '/g/x'",
        "the link '/through' to '/outside'",
        "the link '/twin' to '/g'",
        "the type '/type'",
    ] == sorted(done.lost)
    with dataset.open("b.zarr") as group:
        assert ["g", "same"] == sorted(group)
        assert ["x"] == sorted(group["g"])
        assert [0, 1, 2] == group["same"][:].tolist() == group["g/x"][:].tolist()


def test_another_name_of_a_coordinate():
    """It does not become an axis, nor another unlimited one."""
    with h5py.File("a.nc", "w") as file:
        file.create_dataset("time", data=np.arange(3), maxshape=(None,))
        file["time"].make_scale("time")
        file["x"] = np.arange(3)
        file["x"].dims[0].attach_scale(file["time"])
        file["when"] = file["time"]
    found, lost = read("a.nc")
    assert [] == lost
    assert ["time"] == found.attrs["unlimited_dims"]
    assert {"time": ["time"], "x": ["time"], "when": ["time"]} == dims_of("a.nc")


def test_no_other_file_is_opened(tmp_path):
    """A pipe as the other file would block for ever."""
    os.mkfifo("other.h5")
    with h5py.File("a.h5", "w") as file:
        file["x"] = np.arange(3)
        file["outside"] = h5py.ExternalLink("other.h5", "/secret")
        layout = h5py.VirtualLayout((10,), "i8")
        layout[:] = h5py.VirtualSource("other.h5", "secret", (10,))
        file.create_virtual_dataset("virtual", layout)
        file.create_dataset("raw", (10,), "i8", external=[("other.h5", 0, 80)])
    code = (
        "from bloscpack import dataset; print(dataset.convert('a.h5', 'b.zarr').lost)"
    )
    done = run_python("-c", code, text=True, check=True)
    where = " (its items are in other files)"
    link = "the link '/outside' to '/secret' in 'other.h5'"
    expected = [link, "'/raw'" + where, "'/virtual'" + where]
    assert str(expected) == done.stdout.strip()


def test_items_that_no_array_has():
    with h5py.File("a.h5", "w") as file:
        file["x"] = np.arange(3)
        file.create_dataset("ref", data=file.ref)
        file.create_dataset("ragged", (2,), h5py.vlen_dtype("i4"))
        inner = np.dtype([("c", h5py.string_dtype())])
        file.create_dataset("fields", (2,), np.dtype([("b", inner)]))
        file.create_dataset("wide", (2, 2**36), "f4", chunks=(1, 1024))
        file.create_dataset("bytes", data=[b"\xff"], dtype=h5py.string_dtype())
        shape = h5py.h5s.create_simple((2,))
        h5py.h5d.create(file.id, b"clock", h5py.h5t.UNIX_D32LE, shape)
    found, lost = read("a.h5")
    assert ["x"] == list(found.members)
    assert "'/ref' (its items are references)" in lost
    assert "'/ragged' (its items have different lengths)" in lost
    assert "'/fields' (the field 'b': a field of its items has text" in str(lost)
    assert "'/wide' (a row has '274877906944' bytes" in str(lost)
    assert "'/clock' (NumPy has no such type: No NumPy equivalent" in str(lost)
    assert "'/bytes' (column '/bytes': expected text in UTF-8" in str(lost)


def wide_integer():
    kind = h5py.h5t.STD_I64LE.copy()
    kind.set_size(16)
    kind.set_precision(128)
    return kind


def quad_float():
    kind = h5py.h5t.IEEE_F64LE.copy()
    kind.set_size(16)
    kind.set_precision(128)
    kind.set_fields(127, 112, 15, 0, 112)
    kind.set_ebias(16383)
    return kind


@pytest.mark.parametrize("kind", [wide_integer, quad_float])
def test_types_that_numpy_lacks(kind):
    """Only the part of the file that has such a type is left out, by name."""
    two = h5py.h5s.create_simple((2,))
    with h5py.File("a.h5", "w") as file:
        file["x"] = np.arange(3)
        file.attrs["title"] = "A"
        h5py.h5a.create(file["x"].id, b"odd", kind(), two)
        h5py.h5a.create(file["x"].id, b"CLASS", kind(), two)
        h5py.h5a.create(file.id, b"odd", kind(), two)
        h5py.h5d.create(file.id, b"strange", kind(), two)
        kind().commit(file.id, b"type")
        fields = h5py.h5t.create(h5py.h5t.COMPOUND, 24)
        fields.insert(b"good", 0, h5py.h5t.STD_I64LE)
        fields.insert(b"wrong", 8, kind())
        h5py.h5d.create(file.id, b"table", fields, two)
        file["table"].attrs["unit"] = "m"
    lost = dataset.convert("a.h5", "b.zarr").lost
    places = "attribute 'odd' of '/x'", "attribute 'odd' of '/'", "type '/type'"
    places = [*("the " + place for place in places), "'/strange' (NumPy has no such"]
    for place in (*places, "the field 'wrong' of '/table' (NumPy has no such type"):
        assert any(text.startswith(place) for text in lost), (place, lost)
    assert 5 == len(lost)
    with dataset.open("b.zarr") as group:
        assert ["table", "x"] == sorted(group)
        assert {"title": "A"} == group.attrs.asdict()
        assert [0, 0] == group["table"]["good"][:].tolist()
        assert {"unit": "m"} == group["table"].attrs.asdict()


def test_fields_with_text():
    """Each field is a column, as h5py reads it; those that can't be are named."""
    text, kind = h5py.string_dtype(), h5py.enum_dtype({"A": 1, "B": 2}, "i1")
    fields = np.dtype(
        [
            *(("n", "i4"), ("text", text), ("pair", text, (2,)), ("kind", kind)),
            *(("list", h5py.vlen_dtype("i4")), ("ref", h5py.ref_dtype)),
            *(("fixed", h5py.string_dtype("utf-8", 9)), ("inner", [("a", "i2")])),
        ]
    )
    rows = np.zeros(5, fields)
    rows["n"] = np.arange(5)
    rows["text"] = ["a", "", "ä" * 50, "b\n", "c"]
    rows["pair"] = np.array(["x", "yy"] * 5, object).reshape(5, 2)
    rows["kind"], rows["fixed"] = 2, "é".encode()
    rows["inner"]["a"] = 7
    with h5py.File("a.h5", "w") as file:
        for number in range(5):
            rows["list"][number] = np.arange(number, dtype="i4")
            rows["ref"][number] = file.ref
        file.create_dataset("t", data=rows, chunks=(2,), compression="gzip")
        file.create_dataset("grid", data=rows[:4].reshape(2, 2)[["n", "text"]])
        file.create_dataset(
            "one", data=rows[0][["n", "text"]], dtype=fields[["n", "text"]]
        )
    done = dataset.convert("a.h5", "b.zarr")
    lost = [
        "the column 'inner', of dtype '[('a', '<i2')]', of 't'",
        "the field 'list' of '/t' (its items have different lengths)",
        "the field 'ref' of '/t' (its items are references)",
    ]
    assert lost == sorted(done.lost)
    with dataset.open("b.zarr") as group, h5py.File("a.h5") as file:
        expected, found = file["t"], group["t"]
        assert ["n", "text", "pair", "kind", "fixed"] == [*found.names]
        assert expected["n"].tolist() == found["n"][:].tolist()
        assert rows["text"].tolist() == found["text"][:].tolist()
        assert [["x", "yy"]] * 5 == found["pair"][:].tolist()
        assert ["é"] * 5 == found["fixed"][:].tolist()
        assert {"flag_values": [1, 2], "flag_meanings": "A B"} == found["kind"].attrs
        assert [["a", ""], ["ä" * 50, "b\n"]] == group["grid"]["text"][:].tolist()
        assert (0, "a") == (group["one/n"][()], group["one/text"][()])
    # A target without text of variable length gets that of the longest.
    np.testing.assert_array_equal(rows["text"].astype(str), read_npz("a.h5", "t.text"))


def read_npz(path, name):
    dataset.convert(path, "z.npz", force=True)
    with np.load("z.npz") as arrays:
        table, _, column = name.partition(".")
        return (
            arrays[table][column] if table in arrays else arrays[table + "/" + column]
        )


def test_text_of_variable_length(small_blocks, xarray):
    texts = np.array(["a", "", "ä" * 300, "b\n"] * 100, object)
    made = xarray.Dataset({"text": ("x", texts, {"title": "A"})})
    made.to_netcdf("a.nc", engine="h5netcdf")
    assert [] == dataset.convert("a.nc", "b.zarr").lost
    with dataset.open("b.zarr") as group:
        assert object == group["text"].dtype
        assert texts.tolist() == group["text"][:].tolist()
    assert [] == dataset.convert("b.zarr", "c.nc").lost
    with xarray.open_dataset("c.nc", engine="h5netcdf") as found:
        xarray.testing.assert_identical(made, found.load())


def test_characters(xarray):
    """They are joined where xarray joins them, and nowhere else."""
    made = xarray.Dataset(
        {
            "bytes": (("x", "y"), np.array([[b"abc", b"d"], [b"", b"ef"]])),
            "text": ("x", np.array(["é", "abc"])),
            "one": ("x", np.array([b"a", b"b"])),
            "alone": ((), b"hello"),
            "number": ("x", [1, 2]),
        },
        {"x": [1, 2]},
    )
    names = "bytes", "text", "one", "alone"
    encoding = {name: {"dtype": "S1"} for name in names}
    made.to_netcdf("a.nc", engine="h5netcdf", encoding=encoding)
    bare = "This is a netCDF dimension but not a netCDF variable.%10d" % 2
    with h5py.File("a.nc", "r+") as file:
        file["shared"] = np.zeros(2, ">f4")
        file["shared"].make_scale(bare)
        for name, axis in (("code", "x"), ("mixed", "shared"), ("other", "shared")):
            file[name] = [1.0, 2.0] if name == "other" else np.array([b"p", b"q"])
            file[name].dims[0].attach_scale(file[axis])
    assert [] == dataset.convert("a.nc", "b.zarr").lost
    with xarray.open_dataset("a.nc", engine="h5netcdf") as expected:
        with xarray.open_dataset("b.zarr", engine="bloscpack") as found:
            xarray.testing.assert_equal(expected.load(), found.load())
            for name in expected.variables:
                assert expected[name].dims == found[name].dims
        assert [b"p", b"q"] == expected["code"].values.tolist()
        assert "S3" == read("a.nc")[0].members["bytes"].dtype
    dataset.convert("b.zarr", "c.nc")
    with xarray.open_dataset("c.nc", engine="h5netcdf") as found:
        xarray.testing.assert_equal(expected, found.load())


def test_characters_without_names_stay():
    with h5py.File("a.h5", "w") as file:
        file["x"] = np.array([[b"p", b"q"]])
    assert (1, 2) == read("a.h5")[0].members["x"].shape


@pytest.mark.parametrize("target", ["b.zarr", "b.superchunk"])
def test_a_long_name(target):
    with h5py.File("a.h5", "w") as file:
        file["g/" + "é" * 150] = np.arange(3)
    with pytest.raises(UsageError, match=r"name of a member has at most '255' bytes"):
        dataset.convert("a.h5", target)
    assert ["a.h5"] == os.listdir()


def test_huge_shapes():
    with h5py.File("a.h5", "w") as file:
        file.create_dataset("x", (2**40, 2**10), "f8", chunks=(1, 1024))
    with pytest.raises(OSError, match=r"only '[0-9]+' are free"):
        dataset.convert("a.h5", "b.zarr")
    free = shutil.disk_usage(".").free
    with h5py.File("a.h5", "w") as file:  # no items are stored
        file.create_dataset("x", (free // 2**10, 2**8), "f8", chunks=(64, 256))
    text = r"the content has '%d' bytes in a source of '%d' bytes, and only"
    nbytes = free // 2**10 * 2**11, os.path.getsize("a.h5")
    with pytest.raises(OSError, match=text % nbytes):
        dataset.convert("a.h5", "b.zarr")
    with h5py.File("a.h5", "w") as file:
        made = file.create_dataset("x", (2**40,), h5py.string_dtype(), chunks=(8,))
        made[0] = "a"
    _, lost = read("a.h5")
    assert "stored bytes can't hold '%d' texts" % 2**40 in lost[0]


def test_many_groups_inside_of_one_another():
    with h5py.File("a.h5", "w") as file:
        group = file
        for _ in range(101):
            group = group.create_group("g")
    with pytest.raises(UsageError, match=r"'a\.h5': '(/g)+': expected at most '100'"):
        dataset.convert("a.h5", "b.zarr")


@pytest.mark.slow  # five seconds
def test_many_columns():
    names = ["c%d" % number for number in range(4200)]
    with open("a.csv", "w") as file:
        file.write("%s\n%s\n" % (",".join(names), ",".join(["7"] * len(names))))
    assert [] == dataset.convert("a.csv", "b.h5").lost
    with h5py.File("b.h5") as file:
        assert [7] == file[names[-1]][:].tolist()
        assert file[names[-1]].dims[0][0] == file[names[0]].dims[0][0]


def test_many_losses():
    with h5py.File("a.h5", "w") as file:
        for number in range(200):
            file["l%d" % number] = h5py.SoftLink("/x")
    assert 101 == len(read("a.h5")[1])


def test_damage():
    climate()
    with open("a.nc", "rb") as fp:
        content = fp.read()
    with open("b.nc", "wb") as fp:
        fp.write(content[:1000])
    with pytest.raises(DamageError, match=r"truncated file.*'b\.nc'"):
        dataset.convert("b.nc", "c.zarr")
    with h5py.File("a.nc") as file:
        place = file["g/temperature"].id.get_chunk_info(3).byte_offset
    damaged = bytearray(content)
    damaged[place : place + 20] = bytes(20)
    with open("b.nc", "wb") as fp:
        fp.write(damaged)
    with pytest.raises(DamageError, match=r"filter returned failure.*'b\.nc'"):
        dataset.convert("b.nc", "c.zarr")
    assert ["a.nc", "b.nc"] == sorted(os.listdir())


FILTERS = ["BZip2", "Bitshuffle", "Blosc", "Blosc2", "LZ4", "Zstd"]


def compressed(name, path="a.h5"):
    plugin = pytest.importorskip("hdf5plugin")
    with h5py.File(path, "w") as file:
        settings = getattr(plugin, name)()
        file.create_dataset("x", data=np.arange(10_000), chunks=(1000,), **settings)
        file["good"] = np.arange(4)


# The package adds its filters to those of the process.
WITHOUT = """
import sys
sys.modules["hdf5plugin"] = None
from bloscpack.cli import main
sys.exit(main())
"""


def without_plugin(*arguments):
    return run_python("-c", WITHOUT, *arguments, text=True)


@pytest.mark.parametrize("name", FILTERS)
def test_filters(name):
    """A new process has no filter of the package until it is imported."""
    compressed(name)
    run_blpk("convert", "a.h5", "b.zarr", check=True)
    with dataset.open("b.zarr") as group:
        assert np.arange(10_000).tolist() == group["x"][:].tolist()


def test_a_filter_that_is_not_installed():
    compressed("Blosc")
    text = r"'/x' is compressed by the filter 32001 of HDF5 (Blosc), which needs "
    for arguments in (("convert", "a.h5", "b.zarr"), ("show", "a.h5/x")):
        done = without_plugin(*arguments)
        assert 1 == done.returncode
        assert text + "hdf5plugin: pip install" in done.stderr
    assert 0 == without_plugin("show", "a.h5").returncode
    assert 0 == without_plugin("show", "a.h5/good").returncode
    assert ["a.h5"] == os.listdir()


def test_a_filter_that_no_package_has():
    compressed("BZip2")
    with open("a.h5", "rb") as fp:
        content = fp.read()
    # The message of HDF5 about the filter: its number, and the length of its name.
    bzip2, lzo = (n.to_bytes(2, "little") + b"\x08\0" for n in (307, 305))
    assert 1 == content.count(bzip2)
    with open("a.h5", "wb") as fp:
        fp.write(content.replace(bzip2, lzo).replace(b"bzip2\0", b"lzo\0\0\0"))
    done = run_blpk("convert", "a.h5", "b.zarr")
    assert 1 == done.returncode
    assert b"the filter 305 of HDF5 (LZO), which neither h5py nor" in done.stderr


def test_a_filter_that_no_chunk_needs():
    plugin = pytest.importorskip("hdf5plugin")
    with h5py.File("a.h5", "w") as file:
        new = {"chunks": (10,), **plugin.Zstd()}
        file.create_dataset("empty", (100,), "i4", fillvalue=3, **new)
        made = file.create_dataset("raw", (10,), "i4", **new)
        items = np.arange(10, dtype="i4")
        made.id.write_direct_chunk((0,), items.tobytes(), filter_mask=1)
    assert "" == without_plugin("convert", "a.h5", "b.zarr").stderr
    with dataset.open("b.zarr") as group:
        assert [3] * 100 == group["empty"][:].tolist()
        assert items.tolist() == group["raw"][:].tolist()


def test_a_wrong_checksum_is_damage():
    with h5py.File("a.h5", "w") as file:
        file.create_dataset("x", data=np.arange(1000), chunks=(100,), fletcher32=True)
        place = file["x"].id.get_chunk_info(3).byte_offset
    with open("a.h5", "r+b") as fp:
        fp.seek(place + 10)
        fp.write(b"\x55")
    assert 3 == run_blpk("convert", "a.h5", "b.zarr").returncode


def test_verify_of_another_format_with_chunks_of_blosc():
    compressed("Blosc")
    for arguments in (["verify", "a.h5"], ["recover", "a.h5", "b.blp"]):
        done = run_blpk(*arguments)
        assert 1 == done.returncode
        assert b"it is an HDF5 file; 'blpk convert' reads it" in done.stderr


def test_without_the_package(monkeypatch):
    climate()
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(UsageError, match=r"needs the package h5py: .*\[hdf5\]"):
        dataset.convert("a.nc", "b.zarr")
    assert ["a.nc"] == os.listdir()


@pytest.mark.parametrize("name", ["a.h5", "a.npz", "a.bigfile", "a.csv", "a.zarr"])
def test_members_of_files_are_converted(tmp_path, monkeypatch, name):
    """Every kind of file in which show opens a member."""
    monkeypatch.chdir(tmp_path)
    dataset.create_table("t.zarr", {"x": [1.5, 2.5], "y": [3, 4]}).close()
    if name == "a.zarr":
        shutil.copytree("t.zarr", name)
    else:
        dataset.convert("t.zarr", name)
    done = dataset.convert(name + "/x", "x.npy")
    assert [1.5, 2.5] == np.load("x.npy").tolist()
    assert (name + "/x", "array") == (done.source, done.kind)
    with pytest.raises(OSError, match=r"no 'z' in|No such file|there is no"):
        dataset.convert(name + "/z", "z.npy")
    assert not os.path.exists("z.npy")


@pytest.mark.parametrize(
    ("items", "dtype"),
    [
        ([-(2**63), None, 5], "int64"),
        ([-(2**63), None, -(2**63) + 1, 2**63 - 1], "int64"),
        ([2**64 - 1, None, 0], "uint64"),
        ([-128, None, -127], "int8"),
    ],
)
def test_a_fill_value_that_is_no_item_as_a_float(tmp_path, items, dtype):
    """xarray compares integers as floats."""
    pa, xr = pytest.importorskip("pyarrow"), pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({"x": pa.array(items, dtype)}), tmp_path / "a.parquet")
    dataset.convert(tmp_path / "a.parquet", tmp_path / "a.nc")
    with xr.open_dataset(tmp_path / "a.nc", engine="h5netcdf") as found:
        assert [i is None for i in items] == found["x"].isnull().values.tolist()
    dataset.convert(tmp_path / "a.nc", tmp_path / "b.parquet")
    assert items == parquet.read_table(tmp_path / "b.parquet")["x"].to_pylist()


def test_a_scalar_of_an_array_type():
    with h5py.File("a.h5", "w") as file:
        for name, shape in {"one": (), "two": (2,)}.items():
            found = file.create_dataset(name, shape, np.dtype(("i4", (3, 2))))
            found[...] = np.full((*shape, 3, 2), 7)
        texts = np.dtype((h5py.string_dtype(), (2,)))
        file.create_dataset("texts", (), texts)
    assert [] == dataset.convert("a.h5", "b.zarr").lost
    group = dataset.open("b.zarr")
    assert np.full((3, 2), 7).tolist() == group["one"][:].tolist()
    assert np.full((2, 3, 2), 7).tolist() == group["two"][:].tolist()
    assert ["", ""] == group["texts"][:].tolist()


@pytest.mark.parametrize("target", ["b.h5", "b.nc"])
@pytest.mark.parametrize("dtype", ["U3", object])
def test_text_with_a_zero_character(dtype, target):
    with dataset.create_group("a.zarr") as group:
        group.create_array("inner/x", np.array(["a\0b", "c"], dtype)).close()
    text = "'/inner/x': HDF5 can't hold text with a zero character, such as 'a.x00b'"
    with pytest.raises(UsageError, match=text):
        dataset.convert("a.zarr", target)


@pytest.mark.parametrize("dtype", ["M8[10s]", "m8[10s]", "M8[2D]"])
def test_far_times_name_the_member(dtype):
    with dataset.create_group("a.zarr") as group:
        group.create_array("x", np.array([2**62, 1]).view(dtype)).close()
    with pytest.raises(UsageError, match=r"'/x': .*does not fit"):
        dataset.convert("a.zarr", "b.h5")
    if dtype[0] == "M":
        with pytest.raises(UsageError, match=r"column '0': .*does not fit"):
            dataset.convert("a.zarr/x", "b.csv")
