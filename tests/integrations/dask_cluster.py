"""A cluster of two processes writes and reads a dataset that is larger than both.

``python dask_cluster.py JOB PATH``; JOB is ``array``, ``table``, ``killed``, ``lost``,
``retried``, ``existing`` or ``objects``.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from bloscpack import dataset

# A worker that imports everything takes about 240 MB. At 80 % of the limit, it pauses.
LIMIT = 600 * 10**6
NBYTES = 900 * 10**6
ROWS = NBYTES // (8 * 100)
SHARD_ROWS = 5000


def rows_from(start: int, count: int) -> np.ndarray:
    """Return rows of 100 numbers, which can be compressed."""
    rows = np.zeros((count, 100))
    rows[:, 0] = np.arange(start, start + count)
    return rows


def make_block(block, block_info=None):
    start = block_info[None]["array-location"][0][0]
    return rows_from(start, len(block))


def make_slow_block(block, kill_at="", block_info=None):
    """Make a block; the first process that makes the block 30 kills itself."""
    if block_info[None]["chunk-location"][0] == 30 and not os.path.exists(kill_at):
        with open(kill_at, "w") as file:
            file.write(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.02)
    return make_block(block, block_info=block_info)


def numbers():
    import dask.array as da

    return da.zeros((ROWS, 100), chunks=(SHARD_ROWS, 100))


def make_frame(start):
    import pandas

    count = 250_000
    numbers = np.arange(start, start + count)
    return pandas.DataFrame({"n": numbers, "x": numbers / 2, "zero": numbers * 0})


@contextmanager
def cluster(**options):
    import dask
    from dask.distributed import Client, LocalCluster

    settings = {"distributed.scheduler.allowed-failures": options.pop("failures", 3)}
    with (
        dask.config.set(settings),
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            memory_limit=LIMIT,
            processes=True,
            dashboard_address=":0",
            **options,
        ) as local,
        Client(local) as client,
    ):
        yield client


def check(path):
    array = dataset.open(path)
    lazy = array.to_dask()
    assert array.nbytes == NBYTES > LIMIT
    assert ROWS * (ROWS - 1) // 2 == int(lazy.sum().compute())
    assert ((lazy[:, 0] == np.arange(ROWS)).all()).compute()
    assert not os.path.exists(os.path.join(path, ".bloscpack"))


def array(path):
    with cluster():
        lazy = numbers().map_blocks(make_block, dtype="f8")
        dataset.from_dask(path, lazy, shards=SHARD_ROWS)
        check(path)


def table(path):
    import dask.dataframe as dd

    with cluster():
        lazy = dd.from_map(make_frame, range(0, NBYTES // 24, 250_000))
        found = dataset.from_dask(path, lazy, shards=2**18)
        assert found.nbytes == NBYTES > LIMIT
        count = len(found)
        sums = found.to_dask().sum().compute()
        assert [count * (count - 1) / 2, count * (count - 1) / 4, 0] == sums.tolist()


def killed(path):
    """Dask repeats the tasks of a process that is killed."""
    marker = path + ".killed"
    with cluster():
        lazy = numbers().map_blocks(make_slow_block, kill_at=marker, dtype="f8")
        dataset.from_dask(path, lazy, shards=SHARD_ROWS)
        check(path)
    assert os.path.exists(marker)


def lost(path):
    """Dask repeats all tasks if it loses the result of the last one."""
    from dask.distributed import wait

    with cluster() as client:
        lazy = numbers()[:20000].map_blocks(make_block, dtype="f8")
        task = dataset.from_dask(path, lazy, shards=SHARD_ROWS, compute=False)
        future = client.compute(task)
        wait(future)
        ((worker,),) = client.who_has(future).values()
        os.kill(client.run(os.getpid, workers=[worker])[worker], signal.SIGKILL)
        while client.who_has(future) == {future.key: (worker,)}:
            time.sleep(0.1)
        assert path == future.result()
    assert rows_from(0, 20000).tolist() == dataset.open(path)[:].tolist()
    assert [os.path.basename(path)] == os.listdir(os.path.dirname(path))


def retried(path):
    """Without that, the call fails, and a second call writes the dataset."""
    marker = path + ".killed"
    with cluster(failures=0):
        lazy = numbers().map_blocks(make_slow_block, kill_at=marker, dtype="f8")
        with pytest.raises(Exception, match=r"killed|died|restarting"):
            dataset.from_dask(path, lazy, shards=SHARD_ROWS)
        assert not os.path.exists(path)
    with cluster():
        dataset.from_dask(path, lazy, shards=SHARD_ROWS)
        check(path)


def make_block_and_die(block, kill_at="", block_info=None):
    """Make a block; the first process that makes the block 3 is killed soon after."""
    if block_info[None]["chunk-location"][0] == 3 and not os.path.exists(kill_at):
        with open(kill_at, "w") as file:
            file.write(str(os.getpid()))
        threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGKILL)).start()
    return make_block(block, block_info=block_info)


def existing(path):
    """Processes assign to one array and append to it; each time, one is killed."""
    import dask.array as da

    def check_rows():
        assert np.array_equal(expected, dataset.open(path)[:])
        assert 0 == dataset.verify(path).nerrors
        assert os.path.exists(marker)
        os.remove(marker)

    marker, expected = path + ".killed", rows_from(0, 2000)
    cut = {"chunks": (100, 20), "shards": (200, 40)}
    dataset.create_array(path, np.ones((2000, 100)), **cut).close()
    with cluster():
        # Each shard has items of several blocks.
        lazy = da.zeros((2000, 100), chunks=(130, 100))
        lazy = lazy.map_blocks(make_block_and_die, kill_at=marker, dtype="f8")
        with dataset.open(path, "r+", shared=True) as array:
            da.store(lazy, array, lock=False)
        check_rows()
        dataset.from_dask(path, lazy, append=True)
        expected = np.concatenate([expected, expected])
        check_rows()
        place = slice(33, 1933), slice(None, 77)
        expected[place] += 5
        region = da.from_array(expected[place].copy(), chunks=(190, 50))
        found = dataset.from_dask(path, region, region=place)
        assert np.array_equal(expected, found[:])
    assert [os.path.basename(path)] == os.listdir(os.path.dirname(path))


def objects(path):
    """Processes write an array in S3 and assign to it; each time, one is killed."""
    import dask.array as da

    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from storage.object_stores import make_bucket, moto

    def check_rows():
        assert np.array_equal(expected, dataset.open(url, storage_options=options)[:])
        assert 0 == dataset.verify(url, storage_options=options).nerrors
        assert os.path.exists(marker)
        os.remove(marker)

    def blocks(chunks):
        lazy = da.zeros((2000, 100), chunks=chunks)
        return lazy.map_blocks(make_block_and_die, kill_at=marker, dtype="f8")

    url, marker, expected = "s3://bucket/a", path + ".killed", rows_from(0, 2000)
    with moto(Path(path).parent) as options, cluster():
        make_bucket(options)
        there = {"storage_options": options}
        dataset.from_dask(url, blocks((100, 100)), shards=(200, 40), **there)
        check_rows()
        with dataset.open(url, "r+", shared=True, **there) as array:
            array[:] = -1
            # Each shard has items of several blocks.
            da.store(blocks((130, 100)), array, lock=False)
        check_rows()
        dataset.from_dask(url, blocks((100, 100)), mode="w", **there)
        check_rows()


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])
    print("passed")
