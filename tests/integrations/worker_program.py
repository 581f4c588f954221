"""Processes that read with handles of their parent: ``worker_program.py SETTINGS``.

SETTINGS is JSON: ``method`` is how the processes start, ``folder`` a path or a URL with
what `test_workers` has written, ``options`` those of fsspec. The parent opens all, and
reads with every other handle before the processes start.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import warnings

import numpy as np

import bloscpack as bp
from bloscpack import dataset

COUNT = 3
# More than the first request of a URL reads, so that the processes need more requests.
ITEMS = np.random.default_rng(1).random((600, 100))


def handles(folder, options):
    """Return a handle of each kind, by name."""
    return {
        "array": dataset.open(folder + "/array.zarr", storage_options=options),
        "table": dataset.open(folder + "/table.zarr", storage_options=options),
        "group": dataset.open(folder + "/group.zarr", storage_options=options),
        "file": bp.open_ndarray(folder + "/file.blp", storage_options=options),
        "archive": bp.loadz(folder + "/archive.zip", storage_options=options),
    }


def read(handle, key):
    """Return rows of what a handle has."""
    kind = type(handle).__name__
    if kind in ("Array", "LazyArray"):
        return handle[key]
    if kind == "Table":
        return handle["x"][key]
    return handle["x"][key]


def check(found, number):
    """Read everything in a process; its parts differ from those of the others."""
    for name, handle in found.items():
        for start in range(number, len(ITEMS), 101):
            key = slice(start, start + 2)
            assert (read(handle, key) == ITEMS[key]).all(), name
        rows = np.random.default_rng(number).permutation(len(ITEMS))[:20]
        assert (read(handle, rows) == ITEMS[rows]).all(), name


def main():
    settings = json.loads(sys.argv[1])
    warnings.simplefilter("ignore")  # of forks in a process with threads
    found = handles(settings["folder"], settings["options"])
    for number, handle in enumerate(found.values()):
        if number % 2:
            read(handle, slice(0, 1))
    context = multiprocessing.get_context(settings["method"])
    for _ in range(2):  # in the second round the parent has read with all of them
        workers = [
            context.Process(target=check, args=(found, number))
            for number in range(COUNT)
        ]
        for worker in workers:
            worker.start()
        check(found, COUNT)  # beside them
        for worker in workers:
            worker.join(60)
            if worker.exitcode is None:
                worker.kill()
            assert 0 == worker.exitcode


if __name__ == "__main__":
    main()
