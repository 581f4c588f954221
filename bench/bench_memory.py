"""Measure the peak memory of each action, in a separate process, against the bound.

The bound is (4 x threads + 8) chunks. Two figures are compared with it: the peak memory
minus the memory of the interpreter, and minus the memory in use when all modules are
loaded. Neither counts inputs and results that are in memory.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

import contest
import data

# action → the file that it reads, the file that it writes
ACTIONS = {
    "pack_file_to_file": ("plain", "file.blp"),
    "unpack_file_from_file": ("file.blp", "out"),
    "pack_ndarray_to_file": ("plain", "array.blp"),
    "unpack_ndarray_from_file": ("array.blp", "-"),
    "pack_ndarray_to_bytes": ("plain", "-"),
    "unpack_ndarray_from_bytes": ("array.blp", "-"),
}


def parse() -> argparse.Namespace:
    parser = contest.options(__doc__, "memory", rounds=1)
    parser.add_argument("--mib", type=int, nargs="*", default=[64, 256, 1024])
    parser.add_argument("--threads", type=int, default=contest.CPUS)
    parser.add_argument("--chunk-size", type=int, default=data.MIB)
    parser.add_argument("--data", nargs="*", default=["linspace", "random"])
    parser.add_argument("--codecs", nargs="*", default=["lz4", "zstd"])
    return parser.parse_args()


def write_plain(path: str, name: str, mib: int) -> None:
    """Write a data set in steps: a child process inherits the peak of its parent."""
    step = data.make(name, data.MIB)
    with open(path, "wb") as fp:
        for _ in range(mib):
            fp.write(memoryview(step).cast("B"))


def measure(action: str, codec: str, folder: str, args: argparse.Namespace) -> dict:
    """Return the memory that an action used in bytes, the maximum of all rounds."""
    source, target = (os.path.join(folder, name) for name in ACTIONS[action])
    settings = [codec, str(args.chunk_size), str(args.threads)]
    command = [sys.executable, str(contest.HERE / "memory.py"), action, source, target]
    above_bare, working = [], []
    for _ in range(args.rounds):
        if os.path.exists(target):
            os.unlink(target)
        done = subprocess.run(
            command + settings, check=True, stdout=subprocess.PIPE, text=True
        )
        bare, before, peak, given, returned = map(int, done.stdout.split())
        above_bare.append(peak - bare - given - returned)
        working.append(peak - before - returned)
    return {
        "codec": codec,
        "action": action,
        "above_bare": max(above_bare),
        "working": max(working),
    }


def run(args: argparse.Namespace) -> list[dict]:
    """Measure every data set, codec, size and action; return the rows."""
    bound = (4 * args.threads + 8) * args.chunk_size
    rows = []
    for name in args.data:
        for mib in args.mib:
            with contest.scratch(args.folder) as folder:
                write_plain(os.path.join(folder, "plain"), name, mib)
                for codec in args.codecs:
                    for action in ACTIONS:
                        row = measure(action, codec, folder, args)
                        row |= {"data": name, "mib": mib, "bound": bound}
                        rows.append(row)
                        print_row(row)
    return rows


def print_row(row: dict) -> None:
    """Print a row in MiB."""
    figures = (row[key] / data.MIB for key in ("above_bare", "working", "bound"))
    print(
        "%(data)-9s %(mib)5d MiB %(codec)-8s %(action)-26s " % row
        + "above bare %6.1f  working %6.1f  bound %6.1f MiB" % tuple(figures),
        flush=True,
    )


def main() -> None:
    """Run the benchmark, print the table and write the results."""
    args = parse()
    rows = run(args)
    for key in ("above_bare", "working"):
        worst = max(rows, key=lambda row: row[key])
        share = worst[key] / worst["bound"]
        print("\nworst %s: %.2f of the bound" % (key, share))
        print_row(worst)
    contest.write(
        args.json, threads=args.threads, chunk_size=args.chunk_size, rows=rows
    )


if __name__ == "__main__":
    main()
