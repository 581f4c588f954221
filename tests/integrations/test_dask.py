"""Dask reads `.blp` files: arrays and text, also in other processes."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from support import has_entry_points, run_python

import bloscpack as bp

da = pytest.importorskip("dask.array", reason="dask is not installed")


@pytest.fixture
def array():
    return np.arange(1000 * 30, dtype="<f8").reshape(1000, 30)


@pytest.fixture
def path(tmp_path, array):
    path = tmp_path / "a.blp"
    bp.pack_ndarray_to_file(array, path, chunk_size=300 * 240)
    return path


def test_blocks_agree_with_chunks(path, array):
    with bp.open_ndarray(path) as lazy:
        lazied = da.from_array(lazy, chunks=lazy.chunks)
        assert ((300, 300, 300, 100), (30,)) == lazied.chunks
        assert array.dtype == lazied.dtype
        assert np.array_equal(array, lazied.compute())
        assert array[::7, 3].sum() == lazied[::7, 3].sum().compute()


def test_automatic_blocks_are_whole_chunks(path, array):
    import dask

    with bp.open_ndarray(path) as lazy, dask.config.set({"array.chunk-size": "160kB"}):
        lazied = da.from_array(lazy)
        assert 0 == lazied.chunks[0][0] % 300
        assert len(lazied.chunks[0]) > 1
        assert np.array_equal(array, lazied.compute())


def test_names_depend_on_the_content(path, array):
    def name():
        with bp.open_ndarray(path) as lazy:
            return da.from_array(lazy).name

    before = name()
    assert before == name()
    bp.pack_ndarray_to_file(array + 1, path)
    assert before != name()


def test_a_graph_can_be_pickled(path, array):
    with bp.open_ndarray(path) as lazy:
        data = pickle.dumps(da.from_array(lazy, chunks=lazy.chunks).sum())
    assert array.sum() == pickle.loads(data).compute(scheduler="sync")


@pytest.mark.slow
@pytest.mark.skipif(not has_entry_points(), reason="the package is not installed")
def test_other_processes(path, array, tmp_path):
    pytest.importorskip("distributed", reason="distributed is not installed")
    with bp.open(tmp_path / "a.txt.blp", "wt", encoding="ascii") as file:
        file.write("one\ntwo\n")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = run_python(str(program), cwd=tmp_path, text=True)
    assert 0 == done.returncode, done.stderr
    expected = ["True", repr(array.sum()), *2 * ["['one\\n', 'two\\n']"]]
    assert expected == done.stdout.splitlines()


PROGRAM = """\
import os
import dask.array, dask.bag
from dask.distributed import Client, LocalCluster
from fsspec.compression import register_compression
import bloscpack as bp

if __name__ == "__main__":
    with LocalCluster(
        n_workers=1, threads_per_worker=2, processes=True, dashboard_address=":0"
    ) as cluster, Client(cluster) as client:
        print(client.submit(os.getpid).result() != os.getpid())
        lazy = bp.open_ndarray("a.blp")
        print(repr(dask.array.from_array(lazy, chunks=lazy.chunks).sum().compute()))
        register_compression("blp", bp.BloscpackFile, "blp")
        client.run(register_compression, "blp", bp.BloscpackFile, "blp")
        for compression in ("blp", "infer"):
            print(dask.bag.read_text("a.txt.blp", compression=compression).compute())
"""
