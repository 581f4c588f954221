"""HDF5 and netCDF files are converted in both directions; hostile ones are safe."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from support import environment

from bloscpack import dataset
from bloscpack.dataset import conversion
from bloscpack.dataset.conversion import contents
from bloscpack.exceptions import DamageError, UsageError

h5py = pytest.importorskip("h5py")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch, tmp_path):
    """Make even small arrays several blocks."""
    monkeypatch.setattr(contents, "BLOCK_NBYTES", 1000)
    monkeypatch.chdir(tmp_path)


def read(path):
    request = conversion.Request("")
    with request.resources:
        found = conversion.source_format(path).read(path, request)
        assert "group" == found.kind
        return found, request.lost


def blpk(*arguments, check=True, **settings):
    return subprocess.run(
        [sys.executable, "-m", "bloscpack", "convert", *arguments],
        env=environment(),
        capture_output=True,
        check=check,
        timeout=60,
        **settings,
    )


def dims_of(path):
    return {
        name: None if array.dims is None else list(array.dims)
        for name, array in contents.named_arrays(read(path)[0])
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
    lost = ["the dtype 'datetime64[s]' of '/data'"]
    assert lost == dataset.convert("a.npy", "b.nc").lost
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    with xarray.open_dataset("b.nc", engine="h5netcdf", phony_dims="sort") as found:
        np.testing.assert_array_equal(times, found["data"].values)
    np.save("c.npy", times.astype("M8[ps]"))
    with pytest.raises(UsageError, match=r"'/data': netCDF has no unit for .*\[ps\]"):
        dataset.convert("c.npy", "d.nc")
    assert not os.path.exists("d.nc")


def test_streams():
    items = climate()
    with open("a.nc", "rb") as fp:
        found = blpk("--to", "hdf5", "-", "-", stdin=fp).stdout
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

    done = blpk("a.npy", "b.h5", preexec_fn=limited, check=False)
    assert (1, b"blpk: error: 'b.h5': File too large\n") == (
        done.returncode,
        done.stderr,
    )
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
        letters = np.array([[b"a", b"b"], [b"c", b"d"], [b"e", b"f"]])
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
        assert ids == [*file["station"].attrs["_Netcdf4Coordinates"]]
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    with xarray.open_dataset("b.nc", engine="h5netcdf", decode_cf=False) as found:
        assert ("station", "letter") == found["station"].dims
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
    dataset.convert("a.zarr", "b.nc")
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
    dataset.create_group("a.zarr", attrs={**attrs, **wrong}).close()
    lost = dataset.convert("a.zarr", "b.h5").lost
    assert ["the attribute '%s' of '/'" % name for name in wrong] == lost
    found, lost = read("b.h5")
    assert (attrs, []) == (found.attrs, lost)


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


def test_xarray():
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
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
def test_missing_items_of_xarray(zarr_format):
    """In format 2 of Zarr, the fill value says which are missing."""
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
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
    with h5py.File("other.h5", "w") as file:
        file["secret"] = np.arange(10)
    with h5py.File("a.h5", "w") as file:
        file["g/x"] = np.arange(3)
        file["g/up"] = file["/"]
        file["same"] = file["g/x"]
        file["soft"] = h5py.SoftLink("/g/x")
        file["cycle"] = h5py.SoftLink("/cycle")
        file["outside"] = h5py.ExternalLink("other.h5", "/secret")
        file["through"] = h5py.SoftLink("/outside")
        file["type"] = np.dtype("i4")
    done = dataset.convert("a.h5", "b.zarr")
    names = ("cycle", "g/up", "outside", "same", "soft", "through")
    expected = ["the link '/%s'" % name for name in names] + ["the type '/type'"]
    assert expected == sorted(done.lost)
    with dataset.open("b.zarr") as group:
        assert ["g"] == sorted(group)
        assert ["x"] == sorted(group["g"])


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
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    where = " (its items are in other files)"
    expected = ["the link '/outside'", "'/raw'" + where, "'/virtual'" + where]
    assert str(expected) == done.stdout.strip()


def test_items_that_no_array_has():
    with h5py.File("a.h5", "w") as file:
        file["x"] = np.arange(3)
        file.create_dataset("ref", data=file.ref)
        file.create_dataset("ragged", (2,), h5py.vlen_dtype("i4"))
        fields = np.dtype([("a", "i4"), ("b", h5py.string_dtype())])
        file.create_dataset("fields", (2,), fields)
        file.create_dataset("wide", (2, 2**36), "f4", chunks=(1, 1024))
        file.create_dataset("bytes", data=[b"\xff"], dtype=h5py.string_dtype())
        shape = h5py.h5s.create_simple((2,))
        h5py.h5d.create(file.id, b"clock", h5py.h5t.UNIX_D32LE, shape)
    found, lost = read("a.h5")
    assert ["x"] == list(found.members)
    why = "its items are references, or have different lengths"
    assert ["'/%s' (%s)" % (name, why) for name in ("fields", "ragged", "ref")] == [
        text for text in lost if why in text
    ]
    assert "'/wide' (a row has '274877906944' bytes" in str(lost)
    assert "'/clock' (No NumPy equivalent" in str(lost)
    assert "'/bytes' (column '/bytes': expected text in UTF-8" in str(lost)


def test_huge_shapes():
    with h5py.File("a.h5", "w") as file:
        file.create_dataset("x", (2**40, 2**10), "f8", chunks=(1, 1024))
    with pytest.raises(OSError, match=r"only '[0-9]+' are free"):
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


def test_without_the_package(monkeypatch):
    climate()
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(UsageError, match=r"needs the package h5py: .*\[hdf5\]"):
        dataset.convert("a.nc", "b.zarr")
    assert ["a.nc"] == os.listdir()
