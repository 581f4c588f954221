"""Measure appends of one kilobyte, without sync, against 0.16.0 and another checkout.

The files have the same chunks in different numbers: the time of an append must not
grow with them. Each round starts one process for each side; it appends to a copy of the
file and returns the median.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys

import contest

KIB = 2**10
# name → bytes of a chunk, number of chunks before the append
FILES = {
    "1 KB, one chunk": (2**20, None),
    "10 chunks of 1 KB": (KIB, 10),
    "1,000 chunks of 1 KB": (KIB, 1000),
    "100,000 chunks of 1 KB": (KIB, 100_000),
    "400,000 chunks of 1 KB": (KIB, 400_000),
    "10 chunks of 1 MB": (2**20, 10),
}
FREE_ENTRIES = 1000

WRITE = """
import sys, bloscpack
from bloscpack.args import BloscpackArgs
path, chunk_size, nbytes, room = sys.argv[1], *map(int, sys.argv[2:])
plain = bytes(range(256)) * (nbytes // 256)
args = BloscpackArgs(max_app_chunks=room)
bloscpack.pack_bytes_to_file(plain, path, chunk_size, bloscpack_args=args)
"""

APPEND = """
import shutil, statistics, sys, time, bloscpack
from bloscpack.append import append
source, path, new, repeat = *sys.argv[1:4], int(sys.argv[4])
shutil.copy(source, path)
old = bloscpack.__version__.startswith("0.")
options = {} if old else {"sync": False}
seconds = []
for _ in range(repeat):
    start = time.perf_counter()
    append(path, new, **options)
    seconds.append(time.perf_counter() - start)
print(statistics.median(seconds))
"""


def parse() -> argparse.Namespace:
    parser = contest.options(__doc__, "append")
    contest.add_old(parser)
    parser.add_argument("--before", help="folder of another checkout to compare with")
    parser.add_argument("--repeat", type=int, default=20, help="appends in a round")
    parser.add_argument("--files", nargs="*", default=list(FILES))
    return parser.parse_args()


def sides(args: argparse.Namespace) -> dict[str, tuple[str, dict[str, str]]]:
    """Return Python and environment variables of each side."""
    old = contest.old_python(args.old)
    found = {
        "this": (sys.executable, contest.environment(sys.executable)),
        "0.16.0": (old, contest.environment(old)),
    }
    if args.before is not None:
        path = {"PYTHONPATH": os.path.abspath(args.before)}
        found["before"] = (sys.executable, {**os.environ, **path})
    return found


def measure(args: argparse.Namespace, folder: str) -> list[dict]:
    """Measure every file on every side in alternating rounds; return the rows."""
    runners = sides(args)
    source, target, new = (os.path.join(folder, name) for name in ("file", "a", "new"))
    with open(new, "wb") as fp:
        fp.write(bytes(range(256)) * 4)
    rows = []
    for name in args.files:
        chunk_size, nchunks = FILES[name]
        nbytes = KIB if nchunks is None else chunk_size * nchunks - KIB // 2
        sizes = [str(size) for size in (chunk_size, nbytes, FREE_ENTRIES)]
        if os.path.exists(source):
            os.unlink(source)
        subprocess.run(
            [sys.executable, "-c", WRITE, source, *sizes], check=True, cwd=folder
        )
        seconds: dict = {side: [] for side in runners}
        for _ in range(args.rounds):
            for side, (python, environment) in runners.items():
                done = subprocess.run(
                    [python, "-c", APPEND, source, target, new, str(args.repeat)],
                    check=True,
                    cwd=folder,
                    env=environment,
                    stdout=subprocess.PIPE,
                )
                seconds[side].append(float(done.stdout))
        row = {"file": name}
        row |= {side: statistics.median(times) for side, times in seconds.items()}
        rows.append(row)
        print(
            "%-24s" % name,
            *("%s: %9.3f ms" % (side, 1e3 * row[side]) for side in runners),
            "%8.2f times as fast as 0.16.0" % (row["0.16.0"] / row["this"]),
            flush=True,
        )
    return rows


def main() -> None:
    """Run the benchmark, print the table and write the results."""
    args = parse()
    with contest.scratch(args.folder) as folder:
        rows = measure(args, folder)
    contest.write(args.json, repeat=args.repeat, rows=rows)


if __name__ == "__main__":
    main()
