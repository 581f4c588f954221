"""Archives of `savez` as stores of Zarr, and in graphs of Dask."""

from __future__ import annotations

import pickle
import warnings
import zipfile

import numpy as np
import pytest

import bloscpack as bp

RANDOM = np.random.default_rng(1)
ARRAYS = {
    **{
        np.dtype(code).name + "_" + "lb"[code[0] == ">"]: RANDOM.integers(
            0, 2 if code[1] == "?" else 100, (50, 7)
        ).astype(code)
        for code in (
            *("<i1", "<i2", "<i4", "<i8", "<u1", "<u2", "<u4", "<u8", "<f2", "<f4"),
            *("<f8", "<c8", "<c16", "<?", ">i2", ">i4", ">u8", ">f8", ">c8"),
        )
    },
    "one": np.arange(1),
    "no_rows": np.zeros((0, 3)),
    "deep/er/x": RANDOM.random((3, 4, 5, 6)),
    "every_other": RANDOM.random((60, 60))[::2, ::3],
    "Größe": np.arange(1000),
}
TEXTS = {
    "text": np.array(["a", "über"]),
    "raw": np.array([b"a", b"bc"]),
    "days": np.array(["2020-01-01", "NaT"], "M8[D]"),
    "seconds": np.array([1, 2], "m8[s]"),
}
OTHERS = {"scalar": 1.5, "fortran": np.asfortranarray(np.ones((3, 4)))}


@pytest.fixture(params=[1, 500, "1M"])
def path(tmp_path, request):
    settings = {"chunk_size": request.param}
    bp.savez(tmp_path / "a.zip", **ARRAYS, **TEXTS, settings=settings)
    return tmp_path / "a.zip"


def open_zarr(path):
    zarr = pytest.importorskip("zarr", reason="needs zarr 3", minversion="3")
    return zarr.open_group(zarr.storage.ZipStore(path, mode="r"), mode="r")


def check_zarr(path, expected):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about types that few programs have
        group = open_zarr(path)
        names = {
            name for name, item in group.members(None) if not hasattr(item, "members")
        }
        assert set(expected) == names
        for name, array in expected.items():
            found = group[name][...]
            assert array.shape == found.shape
            assert array.astype(found.dtype).tobytes() == found.tobytes(), name


def test_zarr(path):
    check_zarr(path, {**ARRAYS, **TEXTS})


def test_zarr_with_chunks_in_several_axes(tmp_path):
    array = np.arange(60 * 50 * 7, dtype="f4").reshape(60, 50, 7)
    bp.savez(tmp_path / "a.zip", a=array, settings={"chunks": (7, 20, 3)})
    found = open_zarr(tmp_path / "a.zip")["a"]
    assert (7, 20, 3) == found.chunks
    np.testing.assert_array_equal(array, found[:])
    assert bp.verify(tmp_path / "a.zip").ok


def test_zarr_beside_arrays_that_are_no_shards(path):
    bp.savez(path, **ARRAYS, **OTHERS)
    check_zarr(path, ARRAYS)


def test_zarr_notices_a_flipped_bit(path):
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as file:
        info = file.getinfo("every_other/c/0/0")
    data[info.header_offset + info.file_size // 4] ^= 1
    path.write_bytes(data)
    with pytest.raises((ValueError, RuntimeError, zipfile.BadZipFile)):
        open_zarr(path)["every_other"][...]


def test_zarr_writes_chunks(tmp_path):
    """The dataset has the new values; `load` says why it has not."""
    zarr = pytest.importorskip("zarr", reason="needs zarr 3", minversion="3")
    path = tmp_path / "a.zip"
    bp.savez(path, a=np.arange(10), b=np.arange(3))
    store = zarr.storage.ZipStore(path, mode="a")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the name that is there twice
        zarr.open_group(store, mode="a")["a"][:5] = 99
    store.close()
    with bp.dataset.open(path) as group:
        assert [99] * 5 + [5, 6, 7, 8, 9] == group["a"][:].tolist()
        assert [0, 1, 2] == group["b"][:].tolist()
    with bp.loadz(path) as archive:
        with pytest.raises(bp.exceptions.Unsupported, match="open the archive as a"):
            archive["a"]
        assert [0, 1, 2] == archive["b"][:].tolist()
    report = bp.verify(path)
    assert report.ok
    assert {"later", "unsupported"} <= {finding.kind for finding in report.findings}


def test_tensorstore(path):
    tensorstore = pytest.importorskip("tensorstore", reason="needs TensorStore")
    for name, array in ARRAYS.items():
        store = {"driver": "zip", "base": path.as_uri(), "path": name + "/"}
        spec = {"driver": "zarr3", "kvstore": store}
        found = tensorstore.open(spec, open=True).result().read().result()
        assert array.shape == found.shape
        assert array.astype(found.dtype).tobytes() == found.tobytes(), name


def test_dask(path):
    da = pytest.importorskip("dask.array", reason="dask is not installed")
    array = ARRAYS["every_other"]
    with bp.loadz(path) as archive:
        lazied = da.from_array(archive["every_other"], chunks=(10, 20))
        assert array.sum() == pytest.approx(lazied.sum().compute())
        pickled = pickle.dumps(lazied)
    found = pickle.loads(pickled).compute(scheduler="sync")
    assert np.array_equal(array, found)
