"""Write and read one block, or one array of a dataset, as standard input requests.

This script runs under the genuine bigfile, which is then the only package of the two,
and under this version. A line of JSON names an action; the answer is a line of JSON
with the seconds.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from typing import Any

import data
import numpy as np

BLOCK = "0/Position"
COLUMNS = 3


def package(side: str) -> Any:
    """Return the package with the class ``File``."""
    if side == "bigfile":
        import bigfile as found
    else:
        from bloscpack import bigfile as found
    return found


class Tree:
    """A BigFile tree with one block."""

    def __init__(self, side: str, path: str, nfile: int) -> None:
        self.path = path
        self._package = package(side)
        self._nfile = nfile

    def write(self, array: np.ndarray) -> None:
        tree = self._package.File(self.path, create=True)
        tree.create_from_array(BLOCK, array, Nfile=self._nfile).close()

    def open(self) -> Any:
        return self._package.File(self.path)[BLOCK]


class Dataset:
    """An array of a dataset: compressed, with digests."""

    def __init__(self, side: str, path: str, nfile: int) -> None:
        self.path = path

    def write(self, array: np.ndarray) -> None:
        from bloscpack import dataset

        dataset.create_array(self.path, array, sync=False).close()

    def open(self) -> Any:
        from bloscpack import dataset

        return dataset.open(self.path)


class Contestant:
    """One side; each action returns a function, whose call is measured."""

    def __init__(self, side: str, folder: str, mib: int, name: str, nfile: int) -> None:
        items = data.make(name, mib * data.MIB)
        self.array = items[: len(items) // COLUMNS * COLUMNS].reshape(-1, COLUMNS)
        kind = Dataset if side == "dataset" else Tree
        self.place = kind(side, os.path.join(folder, side), nfile)

    def write(self, job: dict) -> Callable[[], None]:
        shutil.rmtree(self.place.path, ignore_errors=True)
        return lambda: self.place.write(self.array)

    def read(self, job: dict) -> Callable[[], np.ndarray]:
        return lambda: self.place.open()[:]

    def rows(self, job: dict) -> Callable[[], list]:
        rng = np.random.default_rng(job["round"])
        numbers = rng.integers(0, len(self.array), job["count"]).tolist()

        def read() -> list:
            column = self.place.open()
            return [column[number] for number in numbers]

        return read

    def check(self, job: dict) -> Callable[[], None]:
        """Compare everything, outside of the measurement."""

        def compare() -> None:
            column = self.place.open()
            assert np.array_equal(column[:], self.array)
            assert np.array_equal(np.ravel(column[5]), self.array[5])

        return compare

    def nbytes(self) -> int:
        """Return the number of bytes of all files."""
        walked = os.walk(self.place.path)
        return sum(
            os.path.getsize(os.path.join(where, name))
            for where, _, names in walked
            for name in names
        )


def main() -> None:
    """Answer the requests on standard input."""
    side, folder, mib, name, nfile = sys.argv[1:]
    contestant = Contestant(side, folder, int(mib), name, int(nfile))
    for line in sys.stdin:
        job = json.loads(line)
        action = getattr(contestant, job["action"])(job)
        start = time.perf_counter()
        result = action()
        seconds = time.perf_counter() - start
        del result
        answer = {"seconds": seconds, "nbytes": contestant.nbytes()}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
