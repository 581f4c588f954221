"""Many threads read one object while another process appends to its file.

Every read of an object that was opened before sees the state of that time. An object
that is opened meanwhile sees the state before or after an append.
"""

from __future__ import annotations

import random
import threading

import numpy
import pytest
from support import run_python

import bloscpack

ROWS, ADDED, COUNT = 100, 7, 40
ALL = numpy.arange(10 * (ROWS + ADDED * COUNT)).reshape(-1, 10)
ROW = ALL[:1].nbytes
OLD = ALL[:ROWS].tobytes()

APPENDS = """
import sys, numpy, bloscpack
rows, added, count = map(int, sys.argv[2:])
for start in range(rows, rows + added * count, added):
    new = numpy.arange(10 * start, 10 * (start + added)).reshape(-1, 10)
    bloscpack.append_ndarray_to_file(new, sys.argv[1], sync=False, grow=True)
"""
KINDS = {
    "digests": {"checksum": "adler32", "max_app_chunks": 1000},
    "no digests": {"checksum": "None", "max_app_chunks": 1000},
    "grows": {"checksum": "crc32", "max_app_chunks": 20},
    "shard": {"shard": True, "max_app_chunks": 1000},
}


def read_rows(lazy, chosen):
    """Read rows of a lazy array that has the old state."""
    index = slice(chosen.randrange(ROWS), None, chosen.choice([1, 2, -1, -3]))
    assert (ALL[:ROWS][index] == lazy[index]).all()


def read_bytes(file, chosen):
    """Read bytes of a file object that has the old state."""
    offset, size = chosen.randrange(len(OLD) + 50), chosen.randrange(len(OLD))
    assert OLD[offset : offset + size] == file.pread(size, offset)


def open_array(path, chosen):
    """Open the array: it has the rows of some state, and keeps them."""
    with bloscpack.open_ndarray(path, nthreads=1) as lazy:
        assert 0 == (len(lazy) - ROWS) % ADDED
        assert (ALL[: len(lazy)] == lazy.read()).all()


def open_file(path, chosen):
    """Open the file: it has the bytes of some state, and keeps them."""
    with bloscpack.open(path, nthreads=1) as file:
        data = file.read()
        assert 0 == (len(data) // ROW - ROWS) % ADDED
        assert ALL.tobytes().startswith(data)


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_every_read_sees_one_state(tmp_path, kind):
    path = tmp_path / "a.blp"
    bloscpack.pack_ndarray_to_file(ALL[:ROWS], path, chunk_size=3 * ROW, **KINDS[kind])
    errors, done = [], threading.Event()

    def repeat(read, source, seed):
        chosen = random.Random(seed)
        try:
            while not done.is_set():
                read(source, chosen)
        except BaseException as error:
            errors.append(error)

    with (
        bloscpack.open_ndarray(path, nthreads=2, cache_nbytes=500) as lazy,
        bloscpack.open(path, nthreads=2) as file,
    ):
        jobs = [(read_rows, lazy)] * 7 + [(read_bytes, file)] * 7
        jobs += [(open_array, path), (open_file, path)]
        threads = [
            threading.Thread(target=repeat, args=(*job, seed))
            for seed, job in enumerate(jobs)
        ]
        for thread in threads:
            thread.start()
        try:
            numbers = map(str, (ROWS, ADDED, COUNT))
            run_python("-c", APPENDS, str(path), *numbers, check=True)
        finally:
            done.set()
            for thread in threads:
                thread.join()
        assert [] == errors
        assert (ROWS, 10) == lazy.shape
        assert OLD == file.read()
    assert (ALL == bloscpack.unpack_ndarray_from_file(path)).all()
    assert bloscpack.verify(path).ok
