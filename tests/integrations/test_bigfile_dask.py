"""Dask reads and writes columns of BigFile trees, also in other processes."""

from __future__ import annotations

import numpy as np
import pytest

from bloscpack import bigfile

da = pytest.importorskip("dask.array", reason="dask is not installed")


@pytest.fixture
def array():
    return np.arange(3000.0).reshape(1000, 3)


@pytest.fixture
def tree(tmp_path, array):
    tree = bigfile.File(tmp_path / "tree", create=True)
    tree.create_from_array("x", array, Nfile=3).close()
    return tree


SCHEDULERS = ["threads", "processes"]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_column_is_an_array_of_dask(tree, array, scheduler):
    lazy = da.from_array(tree["x"], chunks=(300, 3))
    assert ((300, 300, 300, 100), (3,)) == lazy.chunks
    assert np.array_equal(2 * array, (2 * lazy).compute(scheduler=scheduler))
    assert array[::7, 1].sum() == lazy[::7, 1].sum().compute(scheduler=scheduler)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_blocks_of_dask_are_stored_at_the_same_time(tree, array, scheduler):
    lazy = da.from_array(tree["x"], chunks=(70, 3)) + 1
    with tree.create("y", ("f8", 3), 1000, 4) as column:
        da.store(lazy, column, lock=False, scheduler=scheduler)
    assert np.array_equal(array + 1, tree["y"][:])
    assert [] == bigfile.verify(tree).findings


def test_each_block_is_computed_once(tree, array):
    computed = []

    def counted(block):
        if block.size:  # not the call that finds out the type
            computed.append(len(block))
        return block

    lazy = da.from_array(array, chunks=(64, 3)).map_blocks(counted, dtype="f8")
    computed.clear()
    tree.create_from_array("y", lazy, Nfile=2)
    assert 1000 == sum(computed)
    assert np.array_equal(array, tree["y"][:])


def test_a_table_is_an_array_of_dask(tree, array):
    tree.create_from_array("id", np.arange(1000))
    lazy = da.from_array(bigfile.Dataset(tree, ["x", "id"]), chunks=300)
    assert np.arange(1000).sum() == lazy["id"].sum().compute()
    assert array[:, 2].sum() == lazy["x"][:, 2].sum().compute()


@pytest.mark.slow
def test_workers_of_a_cluster_write_a_block(tree, array):
    distributed = pytest.importorskip("distributed", reason="dask is not installed")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster):
        lazy = da.from_array(tree["x"], chunks=(100, 3)) + 1
        with tree.create("y", ("f8", 3), 1000, 4) as column:
            da.store(lazy, column, lock=False)
    assert np.array_equal(array + 1, tree["y"][:])
    assert [] == bigfile.verify(tree).findings
