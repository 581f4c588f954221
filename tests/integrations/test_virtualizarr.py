"""The parser in docs/integrations.rst: VirtualiZarr joins the arrays of files."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
from support import ROOT

import bloscpack as bp

virtualizarr = pytest.importorskip(
    "virtualizarr", reason="virtualizarr is not installed: it needs Python 3.11"
)
xr = pytest.importorskip("xarray", reason="xarray is not installed")
zarr = pytest.importorskip("zarr", reason="zarr is not installed")

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*[Nn]umcodecs codecs are not in the Zarr"),
    pytest.mark.filterwarnings("ignore:.*Numcodecs zarr3 codecs"),
]
ARRAY = np.arange(60 * 8).reshape(60, 8)


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """Return the names that the examples of the section define; run them all."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "integrations.rst").read_text("utf-8")
    section = text.partition("\nVirtualiZarr\n---")[2].partition("\n---")[0]
    names: dict = {}
    for example in doctest.DocTestParser().get_examples(section):
        exec(example.source, names)  # part of the documentation
    return names


def joined(recipe, checksum, dtype="<f8", order="C"):
    """Write the array in two files, and join them along the slowest axis."""
    axis = "CF".index(order)
    for name, part in zip(["x.blp", "y.blp"], np.split(ARRAY, 2, axis), strict=True):
        items = np.asarray(part, dtype, order=order)
        chunk_size = items.nbytes // 2
        bp.pack_ndarray_to_file(items, name, chunk_size=chunk_size, checksum=checksum)
    return virtualizarr.open_virtual_mfdataset(
        ["x.blp", "y.blp"],
        recipe["registry"],
        recipe["parser"],
        combine="nested",
        concat_dim="dim_%d" % axis,
    )


def opened(recipe, dataset):
    group = recipe["ManifestGroup"]({"heat": dataset["heat"].data})
    store = recipe["ManifestStore"](group, registry=recipe["registry"])
    return zarr.open_group(store, mode="r")["heat"]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f8", ">i4", "|u1"])
@pytest.mark.parametrize("checksum", ["None", "adler32", "crc32", "crc32c"])
def test_values(recipe, checksum, dtype, order):
    found = opened(recipe, joined(recipe, checksum, dtype, order))
    assert np.array_equal(ARRAY.astype(dtype), found[...])


@pytest.mark.parametrize("checksum", ["adler32", "crc32c"])
def test_damage_is_noticed(recipe, checksum, tmp_path):
    dataset = joined(recipe, checksum)
    with bp.open_ndarray("y.blp") as lazy:
        start, stop = lazy._parts.extents()[1]
    data = bytearray((tmp_path / "y.blp").read_bytes())
    data[(start + stop) // 2] ^= 1
    (tmp_path / "y.blp").write_bytes(data)
    found = opened(recipe, dataset)
    assert np.array_equal(ARRAY[:45], found[:45])
    with pytest.raises((RuntimeError, ValueError)):
        found[45:]


@pytest.mark.parametrize("dtype", ["<f8", "<i4"])
def test_references_of_several_files(recipe, dtype):
    joined(recipe, "adler32", dtype).vz.to_kerchunk("all.json", format="json")
    options = {"consolidated": False, "chunks": None, "mask_and_scale": False}
    with xr.open_zarr("reference::all.json", **options) as found:
        assert np.dtype(dtype) == found["heat"].dtype
        assert np.array_equal(ARRAY, found["heat"])


def test_what_does_not_qualify(recipe):
    bp.pack_ndarray_to_file(ARRAY, "x.blp", chunk_size=7 * 64)
    with pytest.raises(ValueError, match="is short"):
        recipe["parser"]("x.blp", recipe["registry"])
