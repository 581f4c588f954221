"""References read by zarr and xarray: equal values, and damage is noticed."""

import json
import random
import warnings

import numpy as np
import pytest

import bloscpack as bp

zarr = pytest.importorskip("zarr", reason="needs zarr 3", minversion="3")
fsspec = pytest.importorskip("fsspec")

DRAW = np.random.default_rng(1)


def drawn(dtype, shape):
    dtype = np.dtype(dtype)
    count = int(np.prod(shape))
    if dtype.kind == "U":
        letters = DRAW.integers(65, 90, count * dtype.itemsize // 4, dtype="<u4")
        return np.frombuffer(letters.tobytes(), dtype).reshape(shape)
    high = 2 if dtype.kind == "b" else 120
    raw = DRAW.integers(0, high, count * dtype.itemsize, dtype="u1")
    return np.frombuffer(raw.tobytes(), dtype).reshape(shape)


def opened(refs, zarr_format=2):
    options = {"asynchronous": True}
    fs = fsspec.filesystem(
        "reference", fo=refs, remote_protocol="file", remote_options=options, **options
    )
    store = zarr.storage.FsspecStore(fs, read_only=True)
    return zarr.open_group(store, mode="r", zarr_format=zarr_format)


STRUCTURE = [("a", "<i4"), ("b", "<f8")]
DTYPES = ["<f8", ">f4", "<i2", "|u1", "?", "<c16", "<f2", "<M8[ns]", "<m8[s]"]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_chunks_of_every_axis(zarr_format, tmp_path):
    name = str(tmp_path / "a.blp")
    array = drawn("<f4", (11, 6, 7))
    bp.pack_ndarray_to_file(array, name, chunks=(4, 3, 5), checksum="crc32c")
    refs = bp.references(name, zarr_format=zarr_format)
    found = opened(refs, zarr_format)["a"]
    assert (4, 3, 5) == found.chunks
    assert array.tobytes() == found[:].tobytes()


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("checksum", ["None", "adler32", "crc32"])
@pytest.mark.parametrize("dtype", [*DTYPES, "|S5", "<U3", "|V6", STRUCTURE], ids=str)
def test_values(dtype, checksum, zarr_format, tmp_path):
    dtype = np.dtype(dtype)
    name = str(tmp_path / "a.blp")
    for array, rows in [
        (drawn(dtype, (100,)), 7),
        (drawn(dtype, (20, 5)), 5 * 3),
        (np.asfortranarray(drawn(dtype, (8, 6))), 8 * 2),
        (drawn(dtype, (6, 8)), 4),
        (drawn(dtype, ()), 1),
        (drawn(dtype, (0, 3)), 1),
    ]:
        bp.pack_ndarray_to_file(array, name, rows * dtype.itemsize, checksum=checksum)
        if zarr_format == 3 and dtype.kind in "MmSUV":
            with pytest.raises(bp.UsageError, match="use format 2"):
                bp.references(name, zarr_format=3)
            continue
        refs = bp.references(name, zarr_format=zarr_format)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = opened(refs, zarr_format)["a"][...]
        found = np.asarray(found)
        assert array.shape == found.shape
        assert (array == found).all()


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("checksum", ["adler32", "crc32"])
def test_every_bit_of_chunks_and_digests(checksum, zarr_format, tmp_path):
    name = tmp_path / "a.blp"
    array = np.arange(60, dtype="<i4").reshape(20, 3)
    bp.pack_ndarray_to_file(array, name, 3 * 4 * 10, checksum=checksum)
    refs = bp.references(name, zarr_format=zarr_format)
    data = name.read_bytes()
    (_, offset, _), (_, last, size) = (
        value for value in refs["refs"].values() if isinstance(value, list)
    )
    for bit in random.Random(1).sample(range(8 * offset, 8 * (last + size)), 150):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        name.write_bytes(flipped)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            group = opened(refs, zarr_format)
            with pytest.raises(Exception):  # noqa: B017, PT011 - any error will do
                group["a"][...]
    name.write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert (array == opened(refs, zarr_format)["a"][...]).all()


@pytest.mark.filterwarnings("ignore:.*[Nn]umcodecs codecs are not in the Zarr")
@pytest.mark.filterwarnings("ignore:.*Numcodecs zarr3 codecs")
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("checksum", ["None", "adler32", "crc32", "crc32c"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_xarray_opens_json(order, checksum, zarr_format, tmp_path, monkeypatch):
    xarray = pytest.importorskip("xarray")
    monkeypatch.chdir(tmp_path)
    array = np.asarray(drawn("<f8", (30, 4)), order=order)
    chunk_size = 7 * 8 * (4 if order == "C" else 30)
    bp.pack_ndarray_to_file(
        array, "t.blp", chunk_size, metadata={"unit": "m"}, checksum=checksum
    )
    refs = bp.references("t.blp", dims=["x", "y"], zarr_format=zarr_format)
    bp.write_references(refs, "t.json")
    assert refs == json.loads((tmp_path / "t.json").read_text())
    options = {"consolidated": False, "chunks": None}
    with xarray.open_zarr("reference::t.json", **options) as found:
        assert ("x", "y") == found["t"].dims
        assert "m" == found["t"].attrs["unit"]
        assert (array == found["t"].values).all()
