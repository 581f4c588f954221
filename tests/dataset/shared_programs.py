"""A program that `test_shared` runs: ``shared_programs.py NAME PATH [ROUNDS]``.

It forks into several processes, which assign to one array at the same time, and ends
with an error unless the array has all that they have assigned.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from pathlib import Path

import numpy as np

import bloscpack._commit.folder_change
import bloscpack._storage.folder_store
from bloscpack import dataset
from bloscpack._storage.disk import Disk

WRITERS = 4
# Arrays of which each process assigns to every fourth item, or to some of the rows.
ARRAYS = {
    "rows": {"shape": (96,), "chunks": 4, "shards": 12},
    "rows of several items": {"shape": (40, 3), "chunks": 2, "shards": 10},
    "chunks in files": {"shape": (24,), "chunks": 3, "shards": 3},
    "grid": {"shape": (13, 21), "chunks": (2, 5), "shards": (6, 10)},
    "cube": {"shape": (5, 6, 7), "chunks": (2, 3, 4), "shards": (4, 3, 4)},
    "no axes": {"shape": ()},
}


def create(path, name, *, full=False):
    """Create an array whose shards are missing, unless it is `full`."""
    kept = {"dtype": "i4", "fill_value": -7, **ARRAYS[name]}
    with dataset.create_array(path, **kept) as array:
        if full:
            array[...] = -7


def create_foreign(path):
    """Create an array of our form as another program writes it."""
    little, crc32c = {"name": "bytes", "configuration": {"endian": "little"}}, "crc32c"
    shards = {
        "chunk_shape": [2, 5],
        "codecs": [little, "blosc", crc32c],
        "index_codecs": [little, crc32c],
    }
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [10, 9],
        "data_type": "int32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 5]}},
        "chunk_key_encoding": "default",
        "fill_value": -7,
        "codecs": [{"name": "sharding_indexed", "configuration": shards}],
    }
    os.mkdir(path)
    Path(path, "zarr.json").write_text(json.dumps(document))


def together(work):
    """Call ``work(number)`` in a process for each writer; return the exit statuses."""
    children = []
    for number in range(WRITERS):
        child = os.fork()
        if not child:
            status = 1
            try:
                work(number)
                status = 0
            finally:
                if status:
                    import traceback

                    traceback.print_exc()
                os._exit(status)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def owners(shape):
    """Return the writer that assigns to each item."""
    return np.arange(np.prod(shape, dtype=int)).reshape(shape) % WRITERS


def check(path, expected):
    with dataset.open(path) as array:
        np.testing.assert_array_equal(expected, array[...])
    report = dataset.verify(path)
    assert report.ok, list(map(str, report.findings))


def overlapping(path, rounds):
    """All writers assign to all shards."""
    with dataset.open(path) as array:
        shape = array.shape

    def work(number):
        with dataset.open(path, "r+", shared=True) as array:
            mine = owners(shape) == number
            for value in range(rounds):
                array[mine] = 10 * number + value
                found = array[...]
                assert (found[mine] == 10 * number + value).all()

    assert [0] * WRITERS == together(work)
    check(path, 10 * owners(shape) + rounds - 1)
    assert not os.path.exists(os.path.join(path, ".bloscpack"))


def disjoint(path, rounds):
    """Each writer assigns to rows of its own, which may share shards."""
    with dataset.open(path) as array:
        expected = array[...]
    step = -(-len(expected) // WRITERS)

    def work(number):
        for _ in range(rounds):
            with dataset.open_array(path, "r+", shared=True, sync=False) as array:
                array[number * step : (number + 1) * step] = number

    assert [0] * WRITERS == together(work)
    for number in range(WRITERS):
        expected[number * step : (number + 1) * step] = number
    check(path, expected)


class KillingDisk(Disk):
    """The disk, of which a call kills the process."""

    def __init__(self, left):
        self._left = left

    def __getattribute__(self, name):
        if not name.startswith("_") and name not in ("names_beside", "has_one_name"):
            self._left -= 1
            if self._left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().__getattribute__(name)


def killed(path, rounds):
    """A writer is killed at each call; another one goes on."""
    with dataset.open(path) as array:
        old = array[...]
    half = len(old) // 2
    other = dataset.open(path, "r+", shared=True)
    for count in range(1000):
        child = os.fork()
        if not child:
            with contextlib.suppress(BaseException):
                array = dataset.open(path, "r+", shared=True)
                killing = KillingDisk(count)
                bloscpack._commit.folder_change.disk = killing
                bloscpack._storage.folder_store.disk = killing
                array[1 : half + 1] = count
                os._exit(0)
            os._exit(1)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        found = dataset.open(path)[...]
        rows = other.shards[0]
        for start in range(0, len(old), rows):
            shard = slice(start, start + rows)
            new = old.copy()
            new[1 : half + 1] = count
            states = [state[shard].tolist() for state in (old, new)]
            assert found[shard].tolist() in states, (count, start)
        other[0] = count
        other[-1] = count
        old = other[...]
        assert dataset.verify(path).ok
        if status == 0:
            break
        assert -signal.SIGKILL == status
    assert count > 8
    other.close()
    check(path, old)
    dataset.open(path, "r+").close()
    assert not os.path.exists(os.path.join(path, ".bloscpack"))


if __name__ == "__main__":
    name, path, *rounds = sys.argv[1:]
    globals()[name](path, int(rounds[0]) if rounds else 2)
