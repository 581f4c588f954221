"""The backend of xarray: lazy, with labels from the metadata, aligned to chunks."""

from __future__ import annotations

import gc
import io
import pickle
import shutil
import zipfile

import numpy as np
import pytest
from storage.servers import serving
from support import has_entry_points

import bloscpack as bp

xr = pytest.importorskip("xarray", reason="xarray is not installed")

from bloscpack.integrations import xarray_backend  # noqa: E402
from bloscpack.integrations.xarray_backend import (  # noqa: E402
    BloscpackBackend,
    metadata_of,
)

pytestmark = pytest.mark.skipif(
    not has_entry_points(), reason="the package is not installed"
)
ROW = 6 * 5 * 4


@pytest.fixture
def cube():
    return np.arange(20 * 6 * 5, dtype="<f4").reshape(20, 6, 5)


@pytest.fixture
def path(tmp_path, cube):
    """A file with three chunks of seven rows; the last one is shorter."""
    path = tmp_path / "cube.blp"
    metadata = {"dims": ["time", "y", "x"], "attrs": {"units": "K"}, "by": "me"}
    bp.pack_ndarray_to_file(cube, path, chunk_size=7 * ROW, metadata=metadata)
    return path


def labelled(**labels):
    return {"dims": ["x"], **labels}


# Which files it opens


def test_xarray_finds_the_backend(path, cube):
    assert isinstance(xr.backends.list_engines()["bloscpack"], BloscpackBackend)
    with xr.open_dataset(path) as dataset:
        assert ["cube"] == list(dataset.data_vars)
        assert np.array_equal(cube, dataset["cube"])


@pytest.mark.parametrize("name", ["cube.bin", "cube", "c.u.b.e"])
def test_the_first_bytes_are_recognized(path, cube, name):
    other = path.with_name(name)
    shutil.copy(path, other)
    with xr.open_dataset(other) as dataset:
        assert np.array_equal(cube, dataset[name])


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, io.BytesIO])
def test_guess(path, wrap):
    guess = BloscpackBackend().guess_can_open
    assert guess(wrap(path.read_bytes()))
    assert not guess(wrap(b"other"))
    assert not guess(wrap(b""))


def test_guess_keeps_the_position(path):
    file = io.BytesIO(path.read_bytes())
    file.seek(9)
    assert BloscpackBackend().guess_can_open(file)
    assert 9 == file.tell()


def test_guess_of_what_is_no_file(tmp_path):
    guess = BloscpackBackend().guess_can_open
    assert not guess(tmp_path)
    assert not guess(tmp_path / "missing")
    assert not guess("https://host/x.nc")
    assert guess("https://host/x.blp")
    assert not guess(object())


def test_file_object(path, cube):
    with xr.open_dataset(io.BytesIO(path.read_bytes())) as dataset:
        gc.collect()
        assert np.array_equal(cube, dataset["data"])


def test_url(path, cube):
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    with (
        serving(path.read_bytes()) as web,
        xr.open_dataset(web.url + "?key=1", engine="bloscpack", cache=False) as dataset,
    ):
        assert ["data"] == list(dataset.data_vars)
        assert cube[8, 1, 2] == dataset["data"][8, 1, 2]
        assert 3 >= len(web.requests)
        again = pickle.loads(pickle.dumps(dataset))
        assert np.array_equal(cube, again["data"])


def test_a_file_without_an_array(tmp_path):
    bp.pack_bytes_to_file(b"abc", tmp_path / "a.blp")
    with pytest.raises(bp.FormatError, match="array"):
        xr.open_dataset(tmp_path / "a.blp")


# Reading


def test_an_archive_is_a_dataset(tmp_path, cube):
    path = tmp_path / "run.zip"
    bp.save(path, {"cube": cube, "part/day": np.arange(20)})
    with xr.open_dataset(path, engine="bloscpack") as found:
        assert ["cube"] == list(found)
        np.testing.assert_array_equal(cube, found["cube"])
    with xr.open_dataset(path, engine="bloscpack", group="part") as found:
        assert list(range(20)) == found["day"].values.tolist()


def test_an_archive_has_arrays_that_zarr_has_no_shards_of(tmp_path, cube):
    path = tmp_path / "run.zip"
    arrays = {
        "cube": cube,
        "step": np.array(7),
        "fortran": np.asfortranarray(cube),
        "long": np.ones(3, "longdouble"),
        "rows": np.ones(2, "i4,f8"),
        "raw": np.zeros(2, "V5"),
        "empty": np.zeros((3, 0)),
    }
    bp.save(path, {**arrays, "part/step": np.array(8.5)})
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "folder")
    for name in path, tmp_path / "folder":
        with xr.open_dataset(name, engine="bloscpack", cache=False) as found:
            assert arrays.keys() == {*found.variables}
            for array in arrays:
                assert arrays[array].dtype == found[array].dtype
                np.testing.assert_array_equal(arrays[array], found[array])
            again = pickle.loads(pickle.dumps(found))
            np.testing.assert_array_equal(cube[3], again["fortran"][3])
        with xr.open_datatree(name, engine="bloscpack") as tree:
            assert 8.5 == tree["part/step"]
        with xr.open_dataset(
            name, engine="bloscpack", drop_variables=["cube", "raw"]
        ) as found:
            assert arrays.keys() - {"cube", "raw"} == {*found.variables}
    with pytest.warns(RuntimeWarning, match="'empty', .*bloscpack.load and loadz"):
        group = bp.dataset.open(path)
    with group, group.to_xarray() as found:
        assert ["cube", "part"] == list(group)
        assert 7 == found["step"]
    (tmp_path / "folder" / "bytes.blp").write_bytes(bp.pack_bytes_to_bytes(b"abc"))
    with pytest.warns(RuntimeWarning, match="without the file .*bytes.blp"):
        xr.open_dataset(tmp_path / "folder", engine="bloscpack").close()


def test_only_the_needed_chunks_are_read(path, cube):
    with bp.open_ndarray(path) as lazy:
        start, stop = lazy._parts.extents()[1]
    data = bytearray(path.read_bytes())
    data[(start + stop) // 2] ^= 1
    path.write_bytes(data)
    with xr.open_dataset(path, cache=False) as dataset:
        assert np.array_equal(cube[:7, 2], dataset["cube"][:7, 2])
        assert np.array_equal(cube[[19, 3]], dataset["cube"][[19, 3]])
        with pytest.raises(bp.FormatError):
            dataset["cube"][7].load()


@pytest.mark.parametrize("order", ["C", "F"])
def test_indexes(tmp_path, cube, order):
    path = tmp_path / "cube.blp"
    bp.pack_ndarray_to_file(np.asarray(cube, order=order), path, chunk_size=1000)
    expected = xr.DataArray(cube)
    rng = np.random.default_rng(1)
    with xr.open_dataset(path, cache=False) as dataset:
        array = dataset["cube"]
        for _ in range(200):
            key = tuple(random_index(rng, n) for n in cube.shape)
            assert np.array_equal(expected[key].values, array[key].values), key
        points = xr.DataArray([3, 1, 19], dims="p")
        others = xr.DataArray([0, 4, 4], dims="p")
        assert np.array_equal(expected[points, 2, others], array[points, 2, others])


def random_index(rng, n):
    kind = rng.integers(4)
    if kind == 0:
        return int(rng.integers(-n, n))
    if kind == 1:
        start, stop = (int(i) for i in rng.integers(-n, n, 2))
        return slice(start, stop, int(rng.choice([-3, -1, 1, 2])))
    if kind == 2:
        return rng.integers(-n, n, rng.integers(6))
    return rng.random(n) < 0.5


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (1, 1, 1)])
def test_shapes(tmp_path, shape):
    array = np.ones(shape, ">i2")
    bp.pack_ndarray_to_file(array, tmp_path / "a.blp")
    with xr.open_dataset(tmp_path / "a.blp") as dataset:
        assert shape == dataset["a"].shape
        assert np.array_equal(array, dataset["a"])


@pytest.mark.parametrize(
    "dtype",
    [
        *("?", "f2", ">f8", "c8", "S3", "U2", "M8[ns]", "m8[ns]", "i2,f4", "i4,>f8"),
        [("a", ">M8[s]"), ("b", [("c", ">i2", (2,))])],
    ],
)
def test_dtypes(tmp_path, dtype):
    array = np.zeros(9, dtype)
    array[1:2] = np.ones(1, dtype)
    bp.pack_ndarray_to_file(array, tmp_path / "a.blp", chunk_size=array.itemsize * 4)
    with xr.open_dataset(tmp_path / "a.blp") as dataset:
        assert np.array_equal(array, dataset["a"].values)
        assert array[1] == dataset["a"][1].values


def test_it_can_be_pickled(path, cube):
    with xr.open_dataset(path) as dataset:
        again = pickle.loads(pickle.dumps(dataset))
        assert not again["cube"]._in_memory
    assert np.array_equal(cube, again["cube"])


def test_close(path):
    dataset = xr.open_dataset(path)
    dataset.close()
    with pytest.raises(bp.UsageError, match="closed"):
        dataset["cube"].load()


def test_a_dataset_that_is_not_closed_gives_no_warning(path):
    dataset = xr.open_dataset(path)
    assert dataset["cube"].shape
    del dataset
    gc.collect()  # warnings are errors


# Labels


def test_labels(path):
    with xr.open_dataset(path) as dataset:
        assert ("time", "y", "x") == dataset["cube"].dims
        assert {"units": "K", "by": "me"} == dataset["cube"].attrs


def test_arguments_replace_labels(path):
    options = {"engine": "bloscpack", "name": "t"}
    with xr.open_dataset(path, dims=["a", "b", "c"], **options) as dataset:
        assert ("a", "b", "c") == dataset["t"].dims
    with pytest.raises(bp.UsageError, match="expected 3 names, found 1"):
        xr.open_dataset(path, dims=["a"], **options)


@pytest.mark.parametrize(
    ("metadata", "attrs"),
    [
        (None, []),
        ([1, 2], ["metadata"]),
        ({"dims": ["a", "b"]}, ["dims"]),
        ({"dims": "x"}, ["dims"]),
        ({"dims": [7]}, ["dims"]),
        ({"dims": [""]}, ["dims"]),
        ({"name": 5, "attrs": [3]}, ["name", "attrs"]),
        ({"coords": {"x": {"dims": ["x"], "data": [1, 2]}}}, ["coords"]),
        (labelled(coords={"x": 5}), ["x"]),
        (labelled(coords={"q": {"dims": ["q"], "data": [5]}}), ["q"]),
        (labelled(coords=5), ["coords"]),
        (labelled(attrs={"a": 1}, a=2, b=3), ["a", "b"]),
    ],
)
def test_metadata_that_are_no_labels_are_attributes(tmp_path, metadata, attrs):
    bp.pack_ndarray_to_file(np.arange(2), tmp_path / "a.blp", metadata=metadata)
    with xr.open_dataset(tmp_path / "a.blp") as dataset:
        assert not dataset["a"].coords
        assert sorted(attrs) == sorted(dataset["a"].attrs)


def test_attributes_have_their_own_key(tmp_path):
    metadata = {"attrs": {"a": 1}, "a": 2}
    bp.pack_ndarray_to_file(np.arange(2), tmp_path / "a.blp", metadata=metadata)
    with xr.open_dataset(tmp_path / "a.blp") as dataset:
        assert {"a": 1} == dataset["a"].attrs


def test_coordinates_that_do_not_fit(tmp_path):
    coords = {"x": {"dims": ["x"], "data": [10, 20]}}
    for count in (1, 3):
        path = tmp_path / ("%d.blp" % count)
        values = np.arange(count)
        bp.pack_ndarray_to_file(values, path, metadata=labelled(coords=coords))
        with pytest.raises(bp.UsageError, match="'x' in the metadata does not fit"):
            xr.open_dataset(path)
        with xr.open_dataset(path, drop_variables="x") as dataset:
            assert np.array_equal(values, dataset[str(count)])


@pytest.mark.parametrize(
    "entry",
    [
        {"data": [[1], [2, 3]]},
        {"dtype": "zz"},
        {"dtype": ","},
        {"dtype": "<i4", "data": [2**70, 1]},
        {"dtype": "<f8", "data": [10**400, 1]},
        {"dtype": "<U200000000"},
    ],
)
def test_damaged_coordinates(tmp_path, entry):
    entry = {"dims": ["x"], "data": [1, 2], **entry}
    metadata = labelled(coords={"x": entry})
    bp.pack_ndarray_to_file(np.arange(2), tmp_path / "a.blp", metadata=metadata)
    with pytest.raises(bp.UsageError, match="'x' in the metadata does not fit"):
        xr.open_dataset(tmp_path / "a.blp")


def test_coordinate_of_texts_takes_no_more_memory_than_its_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(xarray_backend, "MAX_COORDINATE_NBYTES", 1000)
    coords = {"x": {"dims": ["x"], "data": ["a" * 200, "b"]}}
    path = tmp_path / "a.blp"
    bp.pack_ndarray_to_file(np.arange(2), path, metadata=labelled(coords=coords))
    with pytest.raises(bp.UsageError, match="'x' in the metadata does not fit"):
        xr.open_dataset(path)


def test_metadata_of_an_array_restore_it(tmp_path):
    days = np.arange("2020-01-01", "2020-01-05", dtype="M8[D]").astype("M8[ns]")
    array = xr.DataArray(
        np.arange(12.0).reshape(4, 3),
        {
            "time": days,
            "x": [1.5, 2.5, 3.5],
            "label": ("x", ["a", "bc", "d"]),
            "area": (("time", "x"), np.ones((4, 3), "f4")),
            "level": np.int16(7),
        },
        ["time", "x"],
        "speed",
        attrs={"unit": "m/s", "range": np.array([0, 2])},
    )
    path = tmp_path / "other.blp"
    bp.pack_ndarray_to_file(array.values, path, metadata=metadata_of(array))
    with xr.open_dataset(path) as dataset:
        assert ["speed"] == list(dataset.data_vars)
        found = dataset["speed"].load()
    found.attrs["range"] = np.array(found.attrs["range"])
    xr.testing.assert_identical(array, found)
    assert np.float32 == found["area"].dtype
    assert np.int16 == found["level"].dtype


def test_metadata_of_an_array_without_labels():
    assert {"dims": ["dim_0"]} == metadata_of(xr.DataArray([1, 2]))


def test_a_coordinate_is_an_array_of_its_own(tmp_path):
    array = xr.DataArray([10, 20], {"x": [10, 20]}, ["x"], "x")["x"]
    path = tmp_path / "a.blp"
    bp.pack_ndarray_to_file(array.values, path, metadata=metadata_of(array))
    with xr.open_dataset(path) as dataset:
        assert [10, 20] == dataset["x"].values.tolist()


def test_items_are_decoded(tmp_path):
    attrs = {"scale_factor": 0.5, "_FillValue": -1}
    packed = np.array([4, -1], "i2")
    bp.pack_ndarray_to_file(packed, tmp_path / "a.blp", metadata={"attrs": attrs})
    with xr.open_dataset(tmp_path / "a.blp") as dataset:
        assert np.array_equal([2.0, np.nan], dataset["a"], equal_nan=True)
    with xr.open_dataset(tmp_path / "a.blp", mask_and_scale=False) as dataset:
        assert np.array_equal(packed, dataset["a"])


# Dask


def test_chunks_agree_with_those_of_the_file(path, cube):
    pytest.importorskip("dask.array", reason="dask is not installed")
    with xr.open_dataset(path, chunks={}) as dataset:
        assert ((7, 7, 6), (6,), (5,)) == dataset["cube"].chunks
        assert cube.sum() == dataset["cube"].sum().compute()
    with xr.open_dataset(path, chunks="auto") as dataset:
        assert np.array_equal(cube, dataset["cube"].compute())


def test_many_files(tmp_path, cube):
    pytest.importorskip("dask.array", reason="dask is not installed")
    paths = [tmp_path / name for name in ("0.blp", "1.blp")]
    for path, part in zip(paths, np.split(cube, 2), strict=True):
        metadata = {"name": "t", "dims": ["time", "y", "x"]}
        bp.pack_ndarray_to_file(part, path, metadata=metadata)
    with xr.open_mfdataset(paths, combine="nested", concat_dim="time") as dataset:
        assert np.array_equal(cube, dataset["t"])
