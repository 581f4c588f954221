"""Measure what new arrays take with default settings, beside zarr and blosc2.

All write to files that stay in the page cache; nothing waits for the disk. "lz4 5" are
the settings of a dataset whose items are not known. The columns are the size in percent
of the plain size, and the milliseconds to save the array and to read it whole.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bench_access
import contest
import data
import numpy as np

from bloscpack import dataset


def parse() -> argparse.Namespace:
    parser = contest.options(__doc__, "defaults", rounds=3)
    parser.add_argument("--kib", nargs="*", type=int, default=[2**16, 2**10, 2**6])
    parser.add_argument(
        "--only", nargs="*", default=[""], help="parts of names of data"
    )
    return parser.parse_args()


def arrays(nbytes: int) -> dict[str, np.ndarray]:
    """Return an array of about `nbytes` bytes of each kind."""
    rng = np.random.default_rng(2026)
    found = {name: data.make(name, nbytes) for name in ("measured", *data.NAMES)}
    side = int((nbytes // 8) ** 0.5)
    y, x = np.ogrid[:side, : 2 * side]
    waves = np.sin(x / 40) * np.cos(y / 30)
    noise = rng.normal(0, 0.5, waves.shape)
    found["field f4"] = (280 + 20 * waves + noise).round(2).astype("f4")
    y, x = np.ogrid[: 2 * side, : 2 * side]
    waves = np.sin(x / 40) * np.cos(y / 30)
    found["image u2"] = (1000 + 500 * waves + rng.normal(0, 10, waves.shape)).astype(
        "u2"
    )
    found["numbers"] = rng.integers(0, 1000, nbytes // 8)
    return found


def writers() -> dict[str, tuple[Callable, Callable]]:
    """Return how each side writes an array, and reads it."""
    import blosc2
    import zarr

    def ours(array: np.ndarray, path: Path, **settings: Any) -> None:
        dataset.create_array(path, array, sync=False, **settings).close()

    def lz4(array: np.ndarray, path: Path) -> None:
        ours(array, path, cname="lz4", clevel=5)

    def read(path: Path) -> np.ndarray:
        with dataset.open(path) as array:
            return array[...]

    return {
        "lz4 5": (lz4, read),
        "default": (ours, read),
        "zarr": (
            lambda array, path: zarr.create_array(str(path), data=array),
            lambda path: zarr.open_array(str(path), mode="r")[...],
        ),
        "blosc2": (
            lambda array, path: blosc2.asarray(array, urlpath=str(path), mode="w"),
            lambda path: blosc2.open(str(path), mode="r")[...],
        ),
    }


def measure(array: np.ndarray, sides: dict, folder: Path, rounds: int) -> dict:
    """Return for each side the size, and the best seconds to write and to read."""
    figures: dict = dict.fromkeys(sides, (0.0, 9000000000.0, 9000000000.0))
    for _ in range(rounds + 1):
        for name, (write, read) in sides.items():
            path = folder / (name.replace(" ", "-") + ".b2nd")
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            start = time.perf_counter()
            write(array, path)
            written = time.perf_counter()
            if not np.array_equal(read(path), array):
                raise SystemExit("%s: wrong items" % name)
            taken = written - start, time.perf_counter() - written
            best = map(min, figures[name][1:], taken)
            figures[name] = bench_access.size(str(path)) / array.nbytes, *best
    return figures


def main() -> None:
    """Run the benchmark, print the table and write the results."""
    args = parse()
    sides, rows = writers(), []
    for kib in args.kib:
        print("\n%d KiB" % kib + " " * 8 + "".join("%24s" % name for name in sides))
        for kind, array in arrays(kib * 1024).items():
            if not any(part in kind for part in args.only):
                continue
            with contest.scratch(args.folder) as scratch:
                found = measure(array, sides, Path(scratch), args.rounds)
            line = "%-12s" % kind
            for name, (share, written, read) in found.items():
                line += "%8.1f%8.2f%8.2f" % (100 * share, 1e3 * written, 1e3 * read)
                row = {"kib": kib, "data": kind, "side": name, "size": share}
                rows.append(row | {"write": written, "read": read})
            print(line, flush=True)
    contest.write(args.json, rows=rows)


if __name__ == "__main__":
    main()
