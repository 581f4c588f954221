"""The threads that reads of parts start: none for small ones, a few for large ones."""

import os
import random

import numpy as np
import pytest
from engine.workers import at_work, listed_starts, workers
from support import run_silently

import bloscpack as bp
from bloscpack import dataset

MIB = 2**20
ARRAY = np.arange(8 * MIB // 4, dtype="<i4").reshape(-1, 1024)
CHUNK_ROWS = 256  # 1 MiB


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arrays")
    bp.pack_ndarray_to_file(ARRAY, folder / "file.blp", MIB)
    dataset.create_array(folder / "dataset", ARRAY, chunks=(CHUNK_ROWS, 1024))
    return folder


OPENERS = {
    "file": lambda folder: bp.open_ndarray(folder / "file.blp"),
    "dataset": lambda folder: dataset.open(folder / "dataset"),
}
each_kind = pytest.mark.parametrize("open_it", OPENERS.values(), ids=OPENERS)


@pytest.fixture
def starts(monkeypatch):
    """There is no worker, and there are four CPUs. Each started thread is listed."""
    monkeypatch.setattr("bloscpack.abstract_io.available_cpus", lambda: 4)
    return listed_starts(monkeypatch)


SMALL = {
    "element": (5, 7),
    "rows": slice(10, 20),
    "rows in two chunks": slice(CHUNK_ROWS - 1, CHUNK_ROWS + 1),
    "column": (slice(0, 2 * CHUNK_ROWS), 3),
    "steps": (slice(None, 2 * CHUNK_ROWS, 100), slice(None, None, 3)),
    "rows by number": [1, 5, 300],
}


@each_kind
def test_small_reads_start_no_thread(open_it, folder, starts):
    array = open_it(folder)
    for key in SMALL.values():
        assert np.array_equal(ARRAY[key], array[key])
    assert [] == starts


@each_kind
def test_many_reads_of_an_open_array(open_it, folder, starts):
    """They start no thread, and leave no descriptor."""
    array, draw = open_it(folder), random.Random(1)
    assert ARRAY[0, 0] == array[0, 0]
    before = descriptors()
    for _ in range(10_000):
        i, j = draw.randrange(len(ARRAY)), draw.randrange(1024)
        assert ARRAY[i, j] == array[i, j]
    assert [] == starts
    assert descriptors() <= before + 1  # the file of a dataset stays open


def descriptors():
    return len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0


@each_kind
def test_large_reads_use_the_same_threads(open_it, folder, starts):
    for _ in range(5):
        assert np.array_equal(ARRAY, open_it(folder)[:])
        assert [] == at_work()
    assert 1 <= len(starts) == len(workers()) <= 3


def test_files_and_datasets_share_the_threads(folder, starts):
    for _ in range(3):
        for open_it in OPENERS.values():
            open_it(folder)[:]
    assert 1 <= len(starts) <= 3


FORKING = """
import os, signal, sys, threading
import numpy as np
import bloscpack as bp
from bloscpack import abstract_io, dataset
abstract_io.available_cpus = lambda: 3
names = [lambda: bp.open_ndarray("file.blp"), lambda: dataset.open("dataset")]
kept = [open_it() for open_it in names]
expected = np.arange(8 * 2**20 // 4, dtype="<i4").reshape(-1, 1024)
def check():
    for array in [*kept, *(open_it() for open_it in names)]:
        assert np.array_equal(expected, array[:])
        assert expected[300, 5] == array[300, 5]
check()
assert threading.active_count() > 1
for _ in range(3):
    child = os.fork()
    if not child:
        signal.alarm(30)
        assert 1 == threading.active_count()
        check()
        assert threading.active_count() > 1
        os._exit(0)
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    check()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fork_after_a_large_read(folder):
    """Python 3.12 and later do not warn: a fork ends the threads that wait."""
    run_silently("-W", "error", "-c", FORKING, timeout=60, cwd=folder)
