"""The recipe for shards in docs/integrations.rst: programs read what it describes."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
from support import ROOT

import bloscpack as bp

zarr = pytest.importorskip("zarr", reason="needs zarr 3", minversion="3")


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """Return the names that the examples of the section define; run them all."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "integrations.rst").read_text("utf-8")
    section = text.partition("\nShards\n---")[2].partition("\nVirtualiZarr\n---")[0]
    names = {"bp": bp, "np": np}
    for example in doctest.DocTestParser().get_examples(section):
        exec(example.source, names)  # part of the documentation
    return names


def read_with_zarr(folder):
    return zarr.open_array(str(folder), mode="r")[...]


def read_with_tensorstore(folder):
    tensorstore = pytest.importorskip("tensorstore")
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": "%s/" % folder}}
    return tensorstore.open(spec, open=True).result().read().result()


def read_with_zarrs(folder):
    pytest.importorskip("zarrs", reason="zarrs is not installed: it needs Python 3.11")
    with zarr.config.set(
        {
            "codec_pipeline.path": "zarrs.ZarrsCodecPipeline",
            "codec_pipeline.strict": True,
        }
    ):
        return read_with_zarr(folder)


programs = pytest.mark.parametrize(
    "read", [read_with_zarr, read_with_tensorstore, read_with_zarrs]
)


@programs
def test_example(recipe, read):
    assert (recipe["array"] == read("numbers")).all()
    bp.append_ndarray_to_file(recipe["array"][:100], "numbers/c/0/0")
    recipe["write_zarr_json"]("numbers", [3100, 4])
    assert (np.arange(400).reshape(100, 4) == read("numbers")[3000:]).all()


@programs
@pytest.mark.parametrize(
    "dtype", ["?", "i1", "u1", "<i2", ">u4", "<i8", "<f2", ">f4", "<f8", "<c8", "<c16"]
)
@pytest.mark.parametrize("checksum", ["crc32c", "None"])
def test_data_types(recipe, tmp_path, read, dtype, checksum):
    array = (np.arange(700) % 120).astype(dtype).reshape(50, 7, 2)
    path = tmp_path / "x" / "c" / "0" / "0" / "0"
    path.parent.mkdir(parents=True)
    bp.pack_ndarray_to_file(array, path, 200, shard=True, checksum=checksum)
    recipe["write_zarr_json"]("x", array.shape)
    found = read(tmp_path / "x")
    assert array.dtype.newbyteorder("=") == found.dtype.newbyteorder("=")
    assert (array == found).all()


@programs
def test_several_shards(recipe, tmp_path, read):
    """As the rules below the recipe say, with a shorter last shard."""
    array = np.arange(7500)
    for number, start in enumerate((0, 3000, 6000)):
        path = tmp_path / "x" / "c" / str(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = array[start : start + 3000]
        missing = 3 - -(-len(part) // 1000)
        bp.pack_ndarray_to_file(part, path, 8000, shard=True, max_app_chunks=missing)
    recipe["write_zarr_json"]("x", array.shape)
    assert (array == read(tmp_path / "x")).all()


@programs
def test_repacked_files(recipe, tmp_path, read):
    """An ordinary file becomes a shard in place."""
    array = np.arange(7500.0)
    path = tmp_path / "x" / "c" / "0"
    path.parent.mkdir(parents=True)
    bp.pack_ndarray_to_file(array, path, 8000)
    bp.repack(path, shard=True)
    recipe["write_zarr_json"]("x", array.shape)
    assert (array == read(tmp_path / "x")).all()


@pytest.mark.parametrize(
    ("array", "settings"),
    [(np.zeros(3, "M8[s]"), {}), (np.zeros(3), {"checksum": "adler32"})],
)
def test_refused(recipe, tmp_path, array, settings):
    path = tmp_path / "x" / "c" / "0"
    path.parent.mkdir(parents=True)
    bp.pack_ndarray_to_file(array, path, shard=True, **settings)
    with pytest.raises(ValueError, match="not every reader"):
        recipe["write_zarr_json"]("x", array.shape)
