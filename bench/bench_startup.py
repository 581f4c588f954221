"""Measure start-up: imports, the command, and packing and unpacking one kilobyte.

The times of processes are given in multiples of ``python -c pass``.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import contest

HEAVY = ("numpy", "blosc", "argparse", "json")
SMALL = (
    "pack_bytes_to_bytes",
    "unpack_bytes_from_bytes",
    "pack_ndarray_to_bytes",
    "unpack_ndarray_from_bytes",
)
KIB = 2**10
BARE = "python -c pass"


def parse() -> argparse.Namespace:
    parser = contest.options(__doc__, "startup", rounds=21)
    contest.add_old(parser)
    parser.add_argument(
        "--small",
        action="store_true",
        help="only pack and unpack one kilobyte",
    )
    return parser.parse_args()


def commands(python: str, packed: str) -> dict[str, list[str]]:
    """Return the command lines to measure, by name."""
    blpk = [python, str(Path(python).with_name("blpk"))]
    return {
        BARE: [python, "-c", "pass"],
        "import bloscpack": [python, "-c", "import bloscpack"],
        "blpk --help": [*blpk, "--help"],
        "blpk --version": [*blpk, "--version"],
        "blpk info": [*blpk, "info", packed],
    }


def start(command: list[str], folder: str) -> tuple[float, str]:
    """Run a process; return its duration in seconds and its standard error."""
    environment = contest.environment(command[0])
    begin = time.perf_counter()
    done = subprocess.run(
        command,
        check=True,
        cwd=folder,  # so that Python does not find the modules of this folder
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    return time.perf_counter() - begin, done.stderr


def imported(command: list[str], folder: str) -> list[str]:
    """Return the names of the large modules that a command imports."""
    _, told = start([command[0], "-X", "importtime", *command[1:]], folder)
    modules = set(re.findall(r"\| +([\w.]+)$", told, re.MULTILINE))
    return [name for name in HEAVY if name in modules]


def run_processes(pythons: dict[str, str], folder: str, rounds: int) -> list[dict]:
    """Measure every command of every Python in alternating rounds; return the rows."""
    packed = os.path.join(folder, "small.blp")
    code = "import bloscpack as b, sys; b.pack_bytes_to_file(bytes(%d), sys.argv[1])"
    start([pythons["new"], "-c", code % KIB, packed], folder)
    entries = {
        (side, name): command
        for side, python in pythons.items()
        for name, command in commands(python, packed).items()
    }
    loaded = {entry: imported(entries[entry], folder) for entry in entries}
    seconds: dict = {entry: [] for entry in entries}
    for _ in range(rounds):
        for entry, command in entries.items():
            seconds[entry].append(start(command, folder)[0])
    median = {entry: statistics.median(times) for entry, times in seconds.items()}
    rows = []
    for side, name in entries:
        row = {
            "side": side,
            "command": name,
            "seconds": median[side, name],
            "times": median[side, name] / median[side, BARE],
            "imports": loaded[side, name],
        }
        rows.append(row)
        print(
            "%-7s %-17s %7.1f ms  %5.2f times python -c pass  imports: %s"
            % (side, name, 1e3 * row["seconds"], row["times"], " ".join(row["imports"]))
        )
    return rows


def run_small(pythons: dict[str, str], rounds: int) -> list[dict]:
    """Return the rows for packing and unpacking one kilobyte."""
    sides = [contest.Contestant(name, python) for name, python in pythons.items()]
    new, old = sides
    job = {
        "data": "walk",
        "codec": "blosclz",
        "nbytes": KIB,
        "chunk_size": 2**20,
        "nthreads": contest.CPUS,
        "folder": None,
        "repeat": 1000,
    }
    rows = []
    for action in SMALL:
        times = contest.rounds([(side, action) for side in sides], job, rounds)
        row = {
            "action": action,
            "seconds": times[new, action],
            "old_seconds": times[old, action],
            "against_old": times[old, action] / times[new, action],
        }
        rows.append(row)
        print(
            "1 KB %-24s %6.1f µs  0.16.0: %6.1f µs  %5.2f times as fast"
            % (
                action,
                1e6 * row["seconds"],
                1e6 * row["old_seconds"],
                row["against_old"],
            )
        )
    for side in sides:
        side.close()
    return rows


def main() -> None:
    """Run the benchmark, print the table and write the results."""
    args = parse()
    pythons = {"new": sys.executable, "0.16.0": contest.old_python(args.old)}
    processes = []
    if not args.small:
        with contest.scratch(args.folder) as folder:
            processes = run_processes(pythons, folder, args.rounds)
        print()
    small = run_small(pythons, args.rounds)
    contest.write(args.json, processes=processes, small=small)


if __name__ == "__main__":
    main()
