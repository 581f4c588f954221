"""Save an array, read parts of it, and append rows, beside other formats.

All formats have the same chunks, codec and level. Every action begins with a new open,
so that no cache of a format has a chunk; the files stay in the page cache of the
system. Nothing waits for the disk. A cell shows milliseconds of the best round and,
behind them, the multiple that the dataset takes of them. ``--cpu`` shows CPU time, that
of all threads of the process: it depends less on other load. The tables are simple
tables of reStructuredText, as `README.rst` has them.

With ``--delays``, the reads are measured over HTTP, too: the servers run on this
machine and answer each request after a delay. For a few rows::

    python bench/bench_access.py --only elements save --peers dataset blosc2 --json x
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import access_peers
import contest
import data
import numpy as np
import peers

import bloscpack as bp

COLUMNS = 1024
LOCAL = "local"
OPENING = "times open, one element"
APPENDS = "appends of 100 rows"
SIXTEEN = "16 threads"
# Number of reads of an action: from the disk, and over HTTP. A table shows all reads of
# an action together.
COUNTS = {
    "save": (1, 0),
    OPENING: (20, 5),
    "elements": (300, 20),
    "slices of 10 rows": (100, 10),
    "slices of 10 columns": (5, 1),
    "every 100th row, every 3rd column": (1, 1),
    "1000 rows by number": (1, 1),
    "blocks of 512 rows": (1, 1),
    "whole": (1, 1),
    APPENDS: (50, 0),
    SIXTEEN: (0, 0),
}
APPENDED = 100


def parse() -> argparse.Namespace:
    parser = contest.options(__doc__, "access", rounds=3)
    parser.add_argument("--mib", type=int, default=128, help="MiB of the array")
    parser.add_argument("--chunks", nargs="*", type=int, default=[2**20, 2**16])
    parser.add_argument("--delays", nargs="*", type=float, default=[])
    parser.add_argument(
        "--only", nargs="*", default=[""], help="parts of the names of the actions"
    )
    parser.add_argument("--peers", nargs="*", default=list(access_peers.USUAL))
    parser.add_argument("--data", default="measured")
    parser.add_argument("--cpu", action="store_true", help="show CPU time")
    return parser.parse_args()


def keys(action: str, count: int, shape: tuple[int, int], seed: int) -> list[Any]:
    """Return the indexes of the reads of an action."""
    rng = np.random.default_rng(seed)
    nrows, ncolumns = shape

    def below(end: int) -> list[int]:
        return rng.integers(0, end, count).tolist()

    if action in ("elements", OPENING):
        return list(zip(below(nrows), below(ncolumns), strict=True))
    if action == "slices of 10 rows":
        return [slice(i, i + 10) for i in below(nrows - 10)]
    if action == "slices of 10 columns":
        return [(slice(None), slice(j, j + 10)) for j in below(ncolumns - 10)]
    if action.startswith("every"):
        return [(slice(i, None, 100), slice(None, None, 3)) for i in below(100)]
    if action == "1000 rows by number":
        numbers = np.sort(rng.choice(nrows, min(1000, nrows // 2), replace=False))
        return [(numbers, slice(None))]
    step = 512 if action == "blocks of 512 rows" else nrows
    return [slice(i, i + step) for i in range(0, nrows, step)]


def read(open_it: Callable, name: str, wanted: list[Any]) -> Iterator[Any]:
    """Yield the items of each index, from a file that is opened once."""
    array, close = open_it(name)
    try:
        for key in wanted:
            yield np.array(array[key])
    finally:
        close()


def append(peer: Any, path: str, array: np.ndarray, count: int) -> tuple[float, float]:
    """Append rows to a copy of a file; return wall seconds and CPU seconds."""
    copy = Path(path).parent / ("copy-" + Path(path).name)
    (shutil.copytree if Path(path).is_dir() else shutil.copy)(path, copy)
    try:
        start = clocks()
        call, close = peer.appends(str(copy))
        for i in range(count):
            call(array[i : i + APPENDED])
        close()
        taken = since(start)
        found, close = peer.open(str(copy))
        if not np.array_equal(found[-APPENDED:], array[count - 1 :][:APPENDED]):
            raise SystemExit("wrong rows in '%s'" % copy)
        close()
        return taken
    finally:
        shutil.rmtree(copy) if copy.is_dir() else copy.unlink()


def clocks() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def since(start: tuple[float, float]) -> tuple[float, float]:
    return time.perf_counter() - start[0], time.process_time() - start[1]


@contextmanager
def server(folder: Path, delay: float) -> Iterator[str]:
    """Serve a folder from another process; yield its URL."""
    script = str(contest.HERE / "range_server.py")
    with subprocess.Popen(
        [sys.executable, script, str(folder), str(delay)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield "http://127.0.0.1:%s/" % process.stdout.readline().strip()
        finally:
            process.communicate()


def contestants(there: dict, folder: Path, url: str | None) -> dict:
    """Return for each peer how it opens its file, and the name of the file."""
    return {
        name: (
            (peer.open, str(folder / file_name(name)))
            if url is None
            else (peer.open_url, url + file_name(name))
        )
        for name, peer in there.items()
        if url is None or peer.open_url
    }


def file_name(peer: str) -> str:
    return "of-" + peer.replace(" ", "-") + (".b2nd" if peer == "blosc2" else ".data")


def save(peer: Any, path: str, array: np.ndarray, chunk: int) -> tuple[float, float]:
    """Write the array to a new file; return wall seconds and CPU seconds."""
    target = Path(path)
    if target.exists():
        shutil.rmtree(target) if target.is_dir() else target.unlink()
    start = clocks()
    peer.write(array, target, (chunk // array[0].nbytes, COLUMNS))
    return since(start)


def size(path: str) -> int:
    """Return the size of a file, or of all files in a folder."""
    found = Path(path)
    files = found.rglob("*") if found.is_dir() else [found]
    return sum(file.stat().st_size for file in files if file.is_file())


def measure(
    there: dict, sides: dict, array: np.ndarray, action: str, args: Any, far: bool
) -> dict:
    """Return for each side the seconds of each round: wall and CPU."""
    count = COUNTS[action][far]
    names = [n for n in sides if action != APPENDS or there[n].appends is not None]
    seconds: dict = {name: [] for name in names}
    for round_number in range(args.rounds + 1):
        wanted = keys(action, count, array.shape, round_number)
        first = round_number % len(names)  # no peer always follows the same one
        for name in names[first:] + names[:first]:
            if action == APPENDS:
                seconds[name].append(append(there[name], sides[name][1], array, count))
                continue
            if action == "save":
                taken = save(there[name], sides[name][1], array, args.chunk)
                seconds[name].append(taken)
                continue
            opens = [[key] for key in wanted] if action == OPENING else [wanted]
            start = clocks()
            found = chain.from_iterable(read(*sides[name], each) for each in opens)
            if round_number:  # the first round imports modules
                # All are dropped. To keep them, the process would need new memory, and
                # the system may take as long to clear that as a format takes to read.
                deque(found, 0)
                seconds[name].append(since(start))
                continue
            for key, items in zip(wanted, found, strict=True):
                if not np.array_equal(items, array[key]):
                    raise SystemExit("%s: wrong items at %r" % (name, key))
    return seconds


def rows_of(place: str, there: dict, sides: dict, array: Any, args: Any) -> list[dict]:
    """Measure all actions at a place; print a line for each; return the rows."""
    unit = "milliseconds" + " of CPU" * args.cpu
    print("\n%s, chunks of %d KiB; %s:\n" % (place, args.chunk // 1024, unit))
    rule = contest.rule([36, *(15 for _ in sides)])
    print(rule)
    print("%-36s" % "action" + "".join("%17s" % name for name in sides))
    print(rule)
    rows = []
    for action in args.actions:
        count = COUNTS[action][place != LOCAL]
        if not count:
            continue
        seconds = measure(there, sides, array, action, args, place != LOCAL)
        best = {n: min(t[args.cpu] for t in times) for n, times in seconds.items()}
        cells = dict.fromkeys(sides, "-")
        for name, times in seconds.items():
            walls, cpus = zip(*times, strict=True)
            row = {"place": place, "chunk": args.chunk, "action": action, "peer": name}
            row |= {"best": min(walls), "median": statistics.median(walls)}
            row |= {"cpu": min(cpus), "count": count}
            row["compressed"] = there[name].is_compressed
            rows.append(row)
            multiple = best["dataset"] / best[name] if "dataset" in best else 0
            cells[name] = "%.*f (%.2f)" % (
                (2 if best[name] < 0.01 else 1, 1000 * best[name], multiple)
            )
        title = "%s %s" % (count, action) if count > 1 else action
        line = "".join("%17s" % cell for cell in cells.values())
        print("%-36s" % title + line, flush=True)
    print(rule)
    return rows


def threads(path: Path, array: np.ndarray, chunk: int, seconds: float = 2) -> dict:
    """Return the random reads per second of 1 and of 16 threads that share an array."""
    rates = {}
    for nthreads in (1, 16, 1, 16):
        with bp.open_ndarray(path, nthreads=1, cache_nbytes=0) as lazy:
            end = time.perf_counter() + seconds

            def work(seed: int, lazy: Any = lazy, end: float = end) -> int:
                rng = np.random.default_rng(seed)
                done = 0
                while time.perf_counter() < end:
                    i, j = (int(rng.integers(n)) for n in array.shape)
                    if lazy[i, j] != array[i, j]:
                        raise SystemExit("wrong item at %d, %d" % (i, j))
                    done += 1
                return done

            with ThreadPoolExecutor(nthreads) as pool:
                rate = sum(pool.map(work, range(nthreads))) / seconds
        rates[nthreads] = max(rate, rates.get(nthreads, 0))
    found = rates[1], rates[16]
    print("random elements per second: %.0f (1 thread), %.0f (16)" % found)
    return {"chunk": chunk, "one": rates[1], "sixteen": rates[16]}


def run(args: argparse.Namespace) -> dict:
    """Measure every chunk size and place; return the figures."""
    wanted = {name: access_peers.TABLE[name] for name in args.peers}
    there, missing = peers.available(wanted)
    for name, reason in missing.items():
        print("skipped: %s (%s)" % (name, reason))
    array = data.make(args.data, args.mib * data.MIB).reshape(-1, COLUMNS)
    args.actions = [name for name in COUNTS if any(part in name for part in args.only)]
    rows, shared = [], []
    for chunk in args.chunks:
        args.chunk = chunk
        with contest.scratch(args.folder) as scratch:
            folder = Path(scratch)
            sides = contestants(there, folder, None)
            for name, (_, path) in sides.items():
                save(there[name], path, array, chunk)
            sizes = ["%s %.3f" % (n, size(sides[n][1]) / array.nbytes) for n in sides]
            print("\nsize, as a part of the plain size: " + ", ".join(sizes))
            rows += rows_of(LOCAL, there, sides, array, args)
            if SIXTEEN in args.actions and ".blp" in there:
                path = folder / file_name(".blp")
                shared.append(threads(path, array, chunk))
            for delay in args.delays:
                place = "HTTP, %.0f ms" % (1000 * delay)
                with server(folder, delay) as url:
                    far = contestants(there, folder, url)
                    rows += rows_of(place, there, far, array, args)
    return {"mib": args.mib, "data": args.data, "rows": rows, "threads": shared}


def main() -> None:
    """Run the benchmark, print the tables and write the results."""
    args = parse()
    contest.touch_memory()
    contest.write(args.json, **run(args))


if __name__ == "__main__":
    main()
