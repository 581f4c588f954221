"""Measure other ways to store an array in a file: speed, ratio, detection of damage.

The files are new and stay in the page cache. Commands read and write plain files. A
peer detects damage if it fails to read a file of random data with one changed bit.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

import contest
import data
import numpy as np
import peers

NOTICED, UNNOTICED = "noticed", "unnoticed"


def parse() -> argparse.Namespace:
    parser = contest.options(__doc__, "peers")
    parser.add_argument("--mib", type=int, default=64, help="MiB of a data set")
    parser.add_argument("--data", nargs="*", default=data.NAMES)
    parser.add_argument("--damage", help=argparse.SUPPRESS)
    return parser.parse_args()


def is_same(result: object, array: np.ndarray) -> bool:
    """Return whether an array, bytes or a file holds the bytes of `array`."""
    if isinstance(result, Path):
        result = result.read_bytes()
    found = np.frombuffer(memoryview(result).cast("B"), dtype="u1")
    return np.array_equal(found, array.view("u1"))


def damage(name: str, folder: Path) -> str:
    """Change one bit of a file of a peer; return whether reading it fails."""
    there, _ = peers.available(peers.TABLE)
    array = data.make("random", data.MIB)
    path = folder / "damaged.bin"
    array.tofile(peers.plain_of(path))
    there[name].write(array, path)
    longest = max(peers.files_of(path), key=lambda file: file.stat().st_size)
    content = bytearray(longest.read_bytes())
    content[len(content) // 2] ^= 1
    longest.write_bytes(content)
    try:
        result = there[name].read(path)
    except Exception:
        return NOTICED
    assert not is_same(result, array)
    return UNNOTICED


def verifies(name: str, folder: str | None) -> bool:
    """Run `damage` in a separate process, because the peer may crash."""
    with contest.scratch(folder) as scratch:
        command = [sys.executable, __file__, "--damage", name, "--folder", scratch]
        done = subprocess.run(command, capture_output=True, text=True)
    answer = done.stdout.strip()
    if answer not in (NOTICED, UNNOTICED):
        raise SystemExit("%s: %s" % (name, done.stderr))
    return answer == NOTICED


def measure(there: dict, array: np.ndarray, folder: Path, rounds: int) -> dict:
    """Measure each peer in turn; return its (write seconds, read seconds, bytes)."""
    seconds: dict = {name: ([], []) for name in there}
    sizes = {}
    path = folder / "peer.bin"
    array.tofile(peers.plain_of(path))
    for i in range(rounds + 1):
        for name, peer in there.items():
            start = time.perf_counter()
            peer.write(array, path)
            written = time.perf_counter()
            result = peer.read(path)
            end = time.perf_counter()
            if i == 0:  # warm
                sizes[name] = peers.size_of(path)
                if not is_same(result, array):
                    raise SystemExit("%s returned something else" % name)
            else:
                seconds[name][0].append(written - start)
                seconds[name][1].append(end - written)
            del result
            peers.remove(path)
    return {
        name: (*map(statistics.median, times), sizes[name])
        for name, times in seconds.items()
    }


def run(args: argparse.Namespace) -> list[dict]:
    """Measure every data set and peer; return the rows, with speeds in MB/s."""
    there, missing = peers.available(peers.TABLE)
    for name, reason in missing.items():
        print("skipped: %s (%s)" % (name, reason))
    checked = {name: verifies(name, args.folder) for name in there}
    rows = []
    for kind in args.data:
        array = data.make(kind, args.mib * data.MIB)
        with contest.scratch(args.folder) as folder:
            found = measure(there, array, Path(folder), args.rounds)
        titles = kind, "write MB/s", "read MB/s", "ratio"
        print("\n%-22s %12s %10s %10s  verifies its data" % titles)
        for name, (write, read, size) in found.items():
            row = {
                "data": kind,
                "peer": name,
                "write": array.nbytes / write / 1e6,
                "read": array.nbytes / read / 1e6,
                "ratio": array.nbytes / size,
                "verifies": checked[name],
            }
            rows.append(row)
            answer = "yes" if row["verifies"] else "no"
            columns = "%(peer)-22s %(write)12.0f %(read)10.0f %(ratio)10.2f  "
            print(columns % row + answer, flush=True)
    return rows


def main() -> None:
    """Run the benchmark, print the table and write the results."""
    args = parse()
    contest.touch_memory()
    if args.damage:
        print(damage(args.damage, Path(args.folder)))
        return
    contest.write(args.json, mib=args.mib, rows=run(args))


if __name__ == "__main__":
    main()
