"""Documents that claim more than is stored: time and memory follow the files."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from dataset import documents
from dataset.damage_datasets import new_array, numbers
from dataset.layouts import LAYOUTS, SHARDED

import bloscpack as bp
from bloscpack import dataset
from bloscpack.dataset.layouts import array_class

HUGE = 2**53


def claim(path, shape):
    """Let the document of an array that has the shape state another one."""
    for name in array_class(dataset.open(path).layout).description_files:
        value = json.loads(Path(path, name).read_bytes() or b"{}")
        if "shape" in value:
            documents.write(Path(path, name), {**value, "shape": shape})


@pytest.fixture(params=LAYOUTS)
def huge(request, tmp_path, monkeypatch):
    """Return the path of an array of 100 rows whose document claims many more."""
    monkeypatch.chdir(tmp_path)
    new_array("a", request.param)
    claim("a", [HUGE])
    return "a"


def test_describe(huge):
    described = dataset.describe(huge)
    assert [HUGE] == described["shape"]
    assert 8 * HUGE == described["nbytes"]
    assert HUGE // 30 <= described["nfiles"] <= HUGE // 10 + 1


def test_open(huge):
    with dataset.open(huge) as array:
        assert (HUGE,) == array.shape
        assert numbers()[:20].tolist() == array[:20].tolist()


def test_verify(huge):
    report = dataset.verify(huge)
    assert [(100, HUGE)] == [loss.rows for loss in report.losses][-1:]
    assert len(report.findings) < 5
    assert "are missing, up to" in " ".join(map(str, report.findings))


def test_recover(huge):
    with pytest.raises(bp.FormatError, match="the others would be fill values"):
        dataset.recover(huge, "saved")
    assert not Path("saved").exists()
    dataset.recover(huge, "saved", drop=True)
    assert numbers().tolist() == dataset.open("saved")[:].tolist()


def test_recover_items_that_are_much_larger_than_stored(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    new_array("a", "bcolz")
    claimed = [100, 200_000]  # 160 MB, of which nothing is stored
    claim("a", claimed)
    with pytest.raises(bp.FormatError, match="the others would be fill values"):
        dataset.recover("a", "saved")


def test_shrink(huge):
    with dataset.open(huge, "r+") as array:
        array.resize(20)
    assert numbers()[:20].tolist() == dataset.open(huge)[:].tolist()
    assert dataset.verify(huge).ok


@pytest.fixture
def sparse(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    size = {"shape": (HUGE,), "dtype": "i2", "chunks": 10, "shards": 30}
    with dataset.create_array("s", **size, fill_value=7) as array:
        array[95:105] = np.arange(10)
        array[-3:] = 5
    return "s"


def test_sparse(sparse):
    report = dataset.verify(sparse)
    assert (True, 3, 0) == (report.ok, report.nfiles, report.nnotes)
    recovery = dataset.recover(sparse, "saved")
    assert recovery.complete
    for path in (sparse, "saved"):
        found = dataset.open(path)
        assert (HUGE,) == found.shape
        assert [7, *range(10), 7] == found[94:106].tolist()
        assert [7, 5, 5, 5] == found[-4:].tolist()
        names = {name.name for name in Path(path, "c").iterdir()}
        assert {"3", str(HUGE // 30 - 1), str(HUGE // 30)} == names
    assert dataset.verify("saved").ok


def test_sparse_with_lost_rows(sparse):
    Path(sparse, "c", "3").write_bytes(b"x" * 500)
    recovery = dataset.recover(sparse, "saved")
    assert [(90, 120)] == [loss.rows for loss in recovery.losses]
    found = dataset.open("saved")
    assert [7] * 12 == found[94:106].tolist()
    assert [7, 5, 5, 5] == found[-4:].tolist()
    dataset.recover(sparse, "filled", fill=0)
    assert [7, *[0] * 30, 7] == dataset.open("filled")[89:121].tolist()
    dataset.recover(sparse, "dropped", drop=True)
    found = dataset.open("dropped")
    assert (HUGE - 30,) == found.shape
    assert [7, 7, 5, 5, 5] == found[-5:].tolist()
    assert [7] * 30 == found[60:90].tolist()


def test_sparse_files(tmp_path, monkeypatch):
    """A shard with a long tail of zeros is not read into memory at once."""
    monkeypatch.chdir(tmp_path)
    dataset.create_array("a", numbers(95), chunks=10, shards=30).close()
    with open("a/c/3", "r+b") as fp:
        fp.truncate(2**28)
    tracemalloc.start()
    report = dataset.verify("a", nthreads=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert not report.ok
    assert peak < 64 * 2**20


@pytest.mark.parametrize("layout", SHARDED)
def test_rows_without_bytes(tmp_path, monkeypatch, layout):
    monkeypatch.chdir(tmp_path)
    dataset.create_array("a", np.zeros((10, 0)), layout=layout).close()
    claim("a", [HUGE, 0])
    assert dataset.verify("a").ok
    assert dataset.recover("a", "saved").complete
    assert (HUGE, 0) == dataset.open("saved").shape


def test_a_column_that_is_a_link(tmp_path, monkeypatch):
    """A link is refused, and the other columns are saved."""
    monkeypatch.chdir(tmp_path)
    columns = {"x": numbers(10), "y": numbers(10)}
    dataset.create_table("t", columns).close()
    Path("t/y/zarr.json").rename("elsewhere")
    Path("t/y/zarr.json").symlink_to(Path("elsewhere").resolve())
    recovery = dataset.recover("t", "saved")
    assert ["y"] == [loss.member for loss in recovery.losses]
    assert ["x"] == dataset.open("saved").names
