"""The file system ``blp`` of fsspec, read by the real zarr and xarray."""

from __future__ import annotations

import numpy as np
import pytest
from storage.servers import serving
from support import has_entry_points

import bloscpack as bp

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")

pytestmark = [
    pytest.mark.skipif(not has_entry_points(), reason="the package is not installed"),
    # zarr says so of each codec that checks digests.
    pytest.mark.filterwarnings("ignore:.*[Nn]umcodecs codecs are not in the Zarr"),
    pytest.mark.filterwarnings("ignore:.*Numcodecs zarr3 codecs"),
]


@pytest.fixture
def zarr():
    return pytest.importorskip("zarr", reason="zarr is not installed")


@pytest.fixture
def array():
    return np.arange(20 * 6 * 5, dtype="<f4").reshape(20, 6, 5)


def verifies_digests():
    """Return whether zarr can check a digest that follows the chunk."""
    numcodecs = pytest.importorskip("numcodecs", reason="zarr is not installed")
    try:
        numcodecs.CRC32(location="end")
    except (AttributeError, TypeError):
        return False
    return True


@pytest.fixture
def checksum():
    return "crc32" if verifies_digests() else "None"


@pytest.fixture
def path(tmp_path, array, checksum):
    path = tmp_path / "cube.blp"
    metadata = {"dims": ["time", "y", "x"], "attrs": {"units": "K"}}
    bp.pack_ndarray_to_file(
        array, path, chunk_size=7 * 120, checksum=checksum, metadata=metadata
    )
    return path


@pytest.fixture(params=["path", "memory", "http"])
def url(request, path):
    """The file in several places."""
    if request.param == "path":
        yield str(path)
    elif request.param == "memory":
        url = "memory://folder/cube.blp"
        with fsspec.open(url, "wb") as file:
            file.write(path.read_bytes())
        yield url
    else:
        with serving(path.read_bytes()) as web:
            web.always = None
            yield web.url


def test_files_of_a_store(path):
    fs = fsspec.filesystem("blp", fo=str(path))
    assert "BloscpackFileSystem" == type(fs).__name__
    assert {"cube/0.0.0", "cube/1.0.0", "cube/2.0.0"} < {*fs.find("")}
    chunk = fs.cat("cube/0.0.0")
    assert chunk in path.read_bytes()


def test_name_dims_and_format(path):
    fs = fsspec.filesystem("blp", fo=path, name="t", zarr_format=3)
    assert fs.exists("t/zarr.json")
    assert not fs.exists("cube/.zarray")


def test_a_file_that_does_not_qualify(tmp_path):
    path = tmp_path / "a.blp"
    bp.pack_ndarray_to_file(np.arange(100), path, checksum="sha1")
    with pytest.raises(bp.UsageError, match="no Zarr reader verifies"):
        fsspec.filesystem("blp", fo=str(path))


def test_a_new_file_with_the_same_name(path):
    before = fsspec.filesystem("blp", fo=str(path)).cat("cube/0.0.0")
    bp.pack_ndarray_to_file(np.ones((2, 3)), path, checksum="crc32")
    fs = fsspec.filesystem("blp", fo=str(path))
    assert before != fs.cat("cube/0.0")


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_zarr(zarr, url, array, zarr_format):
    if zarr_format == 3 and zarr.__version__.startswith("2."):
        pytest.skip("this zarr reads format 2 only")
    mapper = fsspec.get_mapper("blp::" + url, zarr_format=zarr_format)
    group = zarr.open(mapper, mode="r")
    (name,) = group.array_keys()
    assert np.array_equal(array, group[name][:])
    assert np.array_equal(array[3:9, 2], group[name][3:9, 2])
    assert "K" == group[name].attrs["units"]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_zarr_reports_damage(zarr, path, zarr_format):
    if zarr_format == 3 and zarr.__version__.startswith("2."):
        pytest.skip("this zarr reads format 2 only")
    if not verifies_digests():
        pytest.skip("this numcodecs can't check digests behind the chunks")
    data = bytearray(path.read_bytes())
    with bp.open_ndarray(path) as lazy:
        start, stop = lazy._parts.extents()[1]
    data[(start + stop) // 2] ^= 1
    path.write_bytes(data)
    mapper = fsspec.get_mapper("blp::%s" % path, zarr_format=zarr_format)
    group = zarr.open(mapper, mode="r")
    assert 0 == group["cube"][0, 0, 0]
    with pytest.raises((RuntimeError, ValueError)):
        group["cube"][:]


def test_crc32c(zarr, tmp_path, array):
    if zarr.__version__.startswith("2."):
        pytest.skip("this zarr reads format 2 only")
    path = tmp_path / "cube.blp"
    bp.pack_ndarray_to_file(array, path, chunk_size=10 * 120, checksum="crc32c")
    mapper = fsspec.get_mapper("blp::%s" % path, zarr_format=3)
    assert np.array_equal(array, zarr.open(mapper, mode="r")["cube"][:])
    data = bytearray(path.read_bytes())
    data[-1] ^= 1  # in the last digest
    path.write_bytes(data)
    with pytest.raises((RuntimeError, ValueError)):
        zarr.open(mapper, mode="r")["cube"][:]


def test_xarray(zarr, url, array):
    xr = pytest.importorskip("xarray", reason="xarray is not installed")
    mapper = fsspec.get_mapper("blp::" + url)
    with xr.open_zarr(mapper, consolidated=False, chunks=None) as dataset:
        (name,) = dataset.data_vars
        assert ("time", "y", "x") == dataset[name].dims
        assert np.array_equal(array, dataset[name])


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_backend_and_the_store_agree(zarr, tmp_path, array, order, checksum):
    xr = pytest.importorskip("xarray", reason="xarray is not installed")
    path = tmp_path / "a.blp"
    ordered = np.asarray(array, order=order)
    metadata = {"dims": ["t", "y", "x"], "attrs": {"scale_factor": 0.5}, "by": "me"}
    chunk_size = 4 * (30 if order == "C" else 120)
    bp.pack_ndarray_to_file(
        ordered, path, chunk_size=chunk_size, checksum=checksum, metadata=metadata
    )
    mapper = fsspec.get_mapper("blp::%s" % path)
    with (
        xr.open_dataset(path) as lazy,
        xr.open_zarr(mapper, consolidated=False, chunks=None) as stored,
    ):
        xr.testing.assert_identical(stored.load(), lazy.load())


def test_nothing_can_be_written(tmp_path):
    """fsspec would keep it in memory, and it would be lost."""
    array = np.arange(100)
    bp.pack_ndarray_to_file(array, tmp_path / "a.blp")
    fs = fsspec.filesystem("blp", fo=str(tmp_path / "a.blp"), skip_instance_cache=True)
    mapper = fs.get_mapper("")
    for write in (
        lambda: fs.pipe("a/0", b"x"),
        lambda: fs.pipe_file("a/0", b"x"),
        lambda: fs.rm("a/0"),
        lambda: fs.open("a/0", "wb"),
        lambda: mapper.__setitem__("a/0", b"x"),
    ):
        with pytest.raises(OSError, match="can't be written"):
            write()
    with pytest.raises(KeyError):  # what fsspec makes of it
        del mapper["a/0"]
    assert "a/0" in mapper
