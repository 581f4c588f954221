"""Grow and read arrays and tables in folders, beside other libraries.

All peers have the same chunks, codec, level and filter. Only "dataset, sync" waits for
the disk. The files stay in the page cache of the system. CPU time is that of all
threads of the process.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

import contest
import data
import dataset_peers
import numpy as np
import peers

# Plain bytes of the rows of a medium append.
MEDIUM_NBYTES = 16 * 2**20
# Number of small appends, and of rows in each.
SMALL_APPENDS = 200
SMALL_ROWS = 100
# Number of single rows that are read.
RANDOM_ROWS = 200
COLUMNS = ["c%d" % i for i in range(10)]
ONE_FILE = "one .blp file"
# Seconds of the wall clock and of the CPU.
Taken = np.ndarray
# Those of an action that a peer does not have.
NONE = np.full(2, np.nan)


def parse() -> argparse.Namespace:
    parser = contest.options(__doc__, "dataset")
    parser.add_argument("--mib", type=int, default=256, help="MiB of the array")
    parser.add_argument("--chunks", nargs="*", type=int, default=[2**20, 2**16])
    parser.add_argument("--data", default="stamps")
    parser.add_argument("--actions", nargs="*", default=list(ACTIONS))
    return parser.parse_args()


class Side:
    """A peer in a folder of its own, with the size of its chunks in bytes."""

    def __init__(self, name: str, peer: Any, folder: Path, chunk: int) -> None:
        self.name = name
        self.chunk = chunk
        self.peer = peer
        self.folder = folder / "".join(c if c.isalnum() else "-" for c in name)
        self.folder.mkdir()

    def path(self, action: str) -> Path:
        return self.folder / action

    def new_path(self, action: str) -> Path:
        path = self.path(action)
        if path.is_dir():
            shutil.rmtree(path)
        elif path.exists():
            path.unlink()
        return path


def clocks() -> Taken:
    """Return the seconds of the wall clock and of the CPU."""
    return np.array((time.perf_counter(), time.process_time()))


def time_bulk_append(side: Side, array: np.ndarray, seed: int) -> Taken:
    return time_appends(side, array, len(array))


def time_medium_appends(side: Side, array: np.ndarray, seed: int) -> Taken:
    if side.name == ONE_FILE:  # its offset table does not grow
        return NONE
    return time_appends(side, array, MEDIUM_NBYTES // array.itemsize)


def time_appends(side: Side, array: np.ndarray, count: int) -> Taken:
    """Return the time of appending all rows, `count` at a time."""
    peer, path = side.peer, side.new_path("array")
    start = clocks()
    new = peer.create(path, array.dtype, side.chunk // array.itemsize)
    for first in range(0, len(array), count):
        peer.append(new, array[first : first + count])
    peer.close(new)
    return clocks() - start


def time_full_scan(side: Side, array: np.ndarray, seed: int) -> Taken:
    start = clocks()
    opened = side.peer.open(side.path("array"))
    found = side.peer.read(opened, ...)
    seconds = clocks() - start
    check(side, found, array)
    side.peer.shut(opened)
    return seconds


def time_random_rows(side: Side, array: np.ndarray, seed: int) -> Taken:
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, len(array), RANDOM_ROWS).tolist()
    start = clocks()
    opened = side.peer.open(side.path("array"))
    found = [side.peer.read(opened, number) for number in numbers]
    seconds = clocks() - start
    check(side, np.array(found).reshape(-1), array[numbers])
    side.peer.shut(opened)
    return seconds / RANDOM_ROWS


def time_small_appends(side: Side, array: np.ndarray, seed: int) -> Taken:
    peer, path = side.peer, side.new_path("small")
    new = peer.create(path, array.dtype, side.chunk // array.itemsize)
    start = clocks()
    for first in range(0, SMALL_APPENDS * SMALL_ROWS, SMALL_ROWS):
        peer.append(new, array[first : first + SMALL_ROWS])
    peer.close(new)
    seconds = clocks() - start
    opened = peer.open(path)
    check(side, peer.read(opened, ...), array[: SMALL_APPENDS * SMALL_ROWS])
    peer.shut(opened)
    return seconds / SMALL_APPENDS


def time_one_column_of_ten(side: Side, array: np.ndarray, seed: int) -> Taken:
    peer, path = side.peer, side.path("table")
    if peer.create_table is None:
        return NONE
    count = len(array) // len(COLUMNS)
    if not path.exists():
        dtype = np.dtype([(name, array.dtype) for name in COLUMNS])
        table = peer.create_table(path, dtype, side.chunk // array.itemsize)
        rows = np.empty(count, dtype)
        for i, name in enumerate(COLUMNS):
            rows[name] = array[i * count : (i + 1) * count]
        peer.append(table, rows)
        peer.close(table)
    number = seed % len(COLUMNS)
    start = clocks()
    table = peer.open(path)
    found = peer.column(table, COLUMNS[number])
    seconds = clocks() - start
    check(side, found, array[number * count : (number + 1) * count])
    peer.shut(table)
    return seconds


ACTIONS = {
    "medium appends": time_medium_appends,
    "bulk append": time_bulk_append,
    "full scan": time_full_scan,
    "random rows": time_random_rows,
    "small appends": time_small_appends,
    "one column of ten": time_one_column_of_ten,
}


def check(side: Side, found: np.ndarray, expected: np.ndarray) -> None:
    if not np.array_equal(found, expected):
        raise SystemExit("%s: wrong items" % side.name)


def measure(sides: list[Side], array: np.ndarray, action: str, rounds: int) -> list:
    """Measure an action in alternating rounds; print a line, and return the rows."""
    seconds: dict[str, list[Taken]] = {side.name: [] for side in sides}
    for seed in range(rounds + 1):
        first = seed % len(sides)  # no peer always follows the same one
        for side in sides[first:] + sides[:first]:
            taken = ACTIONS[action](side, array, seed)
            if seed:  # the first round imports modules
                seconds[side.name].append(taken)
    rows, line = [], "%-18s" % action
    for side in sides:
        walls, cpus = zip(*seconds[side.name], strict=True)
        best, cpu = min(walls), min(cpus)
        if np.isnan(best):  # the peer does not have this action
            line += "%18s" % "-"
            continue
        line += "%18s" % ("%.3f (%.3f)" % (1000 * best, 1000 * cpu))
        row = {"place": "local", "chunk": side.chunk, "action": action}
        row |= {"peer": side.name, "compressed": True, "best": best, "cpu": cpu}
        rows.append(row | {"median": statistics.median(walls)})
    print(line, flush=True)
    return rows


def run(args: argparse.Namespace) -> dict:
    """Measure every action of every peer in alternating rounds; return the figures."""
    there, missing = peers.available(dataset_peers.TABLE)
    for name, reason in missing.items():
        print("skipped: %s (%s)" % (name, reason))
    array = data.make(args.data, args.mib * data.MIB)
    rows = []
    for chunk in args.chunks:
        with contest.scratch(args.folder) as scratch:
            folder = Path(scratch)
            sides = [Side(name, peer, folder, chunk) for name, peer in there.items()]
            names = "".join("%18s" % side.name for side in sides)
            print("chunks of %d KiB; milliseconds: wall (CPU)" % (chunk // 1024))
            print("%-18s" % "" + names)
            for action in args.actions:
                rows += measure(sides, array, action, args.rounds)
    return {"mib": args.mib, "data": args.data, "rows": rows}


def main() -> None:
    """Run the benchmark, print the table and write the results."""
    args = parse()
    contest.touch_memory()
    contest.write(args.json, **run(args))


if __name__ == "__main__":
    main()
