"""References to folders of bcolz and BLZ, read by zarr and xarray: equal values."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from dataset.golden_directories import entries, extract, values

import bloscpack as bp
from bloscpack import dataset

zarr = pytest.importorskip("zarr", reason="needs zarr 3", minversion="3")
fsspec = pytest.importorskip("fsspec")


def opened(refs, zarr_format):
    options = {"asynchronous": True}
    fs = fsspec.filesystem(
        "reference", fo=refs, remote_protocol="file", remote_options=options, **options
    )
    store = zarr.storage.FsspecStore(fs, read_only=True)
    return zarr.open_group(store, mode="r", zarr_format=zarr_format)


def as_columns(name):
    expected = values(name)
    return expected if isinstance(expected, dict) else {"d": np.asarray(expected)}


NAMES = [n for n, e in entries().items() if not e["format"].startswith("bigfile")]


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_golden_directories(name, zarr_format, tmp_path):
    extract(name, tmp_path / "d")
    refused, refs = "", {}
    try:
        refs = bp.references(tmp_path / "d", zarr_format=zarr_format)
    except bp.UsageError as error:
        refused = str(error)
    if refused:
        reasons = ("snappy", "Python objects", "use format 2")
        assert any(reason in refused for reason in reasons)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about types that few programs have
        group = opened(refs, zarr_format)
        for key, array in as_columns(name).items():
            whole = group["d"] if entries()[name]["kind"][1:] == "array" else group[key]
            found = np.asarray(whole[...])
            if found.dtype.names is not None and key in found.dtype.names:
                found = found[key]
            assert array.shape == found.shape
            assert array.astype(found.dtype).tobytes() == found.tobytes()


def test_a_table_is_a_dataset_of_xarray(tmp_path):
    xarray = pytest.importorskip("xarray", reason="xarray is not installed")
    pytest.importorskip("kerchunk", reason="kerchunk is not installed")
    columns = {"a": np.arange(50), "b": np.ones((50, 5)), "c": np.zeros((50, 2))}
    attrs = {"source": "here"}
    dataset.create_table(
        tmp_path / "t", columns, layout="bcolz", chunks=20, attrs=attrs
    ).close()
    bp.write_references(bp.references(tmp_path / "t"), tmp_path / "t.json")
    with xarray.open_dataset(str(tmp_path / "t.json"), engine="kerchunk") as found:
        assert {"row": 50, "b_1": 5, "c_1": 2} == dict(found.sizes)
        assert attrs == found.attrs
        for name, array in columns.items():
            assert np.array_equal(array, found[name])
