"""Measure speed and compression ratio by chunk size, in memory, against 0.16.0."""

from __future__ import annotations

import argparse
import sys

import contest
import data

KIB = 2**10
SIZES = {
    "4K": 4 * KIB,
    "16K": 16 * KIB,
    "64K": 64 * KIB,
    "256K": 256 * KIB,
    "1M": data.MIB,
    "4M": 4 * data.MIB,
    "16M": 16 * data.MIB,
    "64M": 64 * data.MIB,
    "max": 2**31 - 17,
}
ACTIONS = ("pack_ndarray_to_bytes", "unpack_ndarray_from_bytes")
# Small chunks are slow: the data set is cut down to this many chunks, but not below
# this many bytes.
ENOUGH_CHUNKS = 1024
ENOUGH_BYTES = 16 * data.MIB


def parse() -> argparse.Namespace:
    parser = contest.options(__doc__, "chunk_size")
    contest.add_old(parser)
    parser.add_argument(
        "--mib", type=int, default=256, help="maximum MiB of a data set"
    )
    parser.add_argument("--threads", type=int, default=contest.CPUS)
    parser.add_argument("--data", nargs="*", default=["linspace", "stamps"])
    parser.add_argument("--codecs", nargs="*", default=["lz4", "zstd"])
    parser.add_argument("--sizes", nargs="*", default=list(SIZES), choices=SIZES)
    return parser.parse_args()


def run(args: argparse.Namespace) -> list[dict]:
    """Measure every data set, codec, chunk size and action; return the rows."""
    new = contest.Contestant("new", sys.executable)
    old = contest.Contestant("0.16.0", contest.old_python(args.old))
    rows = []
    print("%-9s %-6s %5s %10s" % ("data", "codec", "chunk", "ratio"), end="")
    titles = (("pack", "0.16.0", "times"), ("read", "0.16.0", "times"))
    print("".join("%8s MB/s %7s %6s" % title for title in titles))
    for name in args.data:
        for codec in args.codecs:
            for size in args.sizes:
                nbytes = max(ENOUGH_BYTES, ENOUGH_CHUNKS * SIZES[size])
                job = {
                    "data": name,
                    "codec": codec,
                    "nbytes": min(args.mib * data.MIB, nbytes),
                    "chunk_size": SIZES[size],
                    "nthreads": args.threads,
                    "folder": args.folder,
                }
                found = measure(new, old, job, args.rounds)
                rows += [{**row, "chunk": size} for row in found]
                print("%-9s %-6s %5s" % (name, codec, size), end="")
                print(" %10.2f" % found[0]["ratio"], end="")
                columns = "%(speed)13.0f %(old_speed)7.0f %(against_old)6.2f"
                print("".join(columns % row for row in found), flush=True)
    new.close()
    old.close()
    return rows


def measure(
    new: contest.Contestant, old: contest.Contestant, job: dict, rounds: int
) -> list[dict]:
    """Return the rows for packing and unpacking; speeds are MB/s."""
    rows = []
    for action in ACTIONS:
        times = contest.rounds([(new, action), (old, action)], job, rounds)
        rows.append(
            {
                "data": job["data"],
                "codec": job["codec"],
                "nbytes": job["nbytes"],
                "action": action,
                "speed": job["nbytes"] / times[new, action] / 1e6,
                "old_speed": job["nbytes"] / times[old, action] / 1e6,
                "against_old": times[old, action] / times[new, action],
                "ratio": job["nbytes"] / new.packed,
            }
        )
    return rows


def summary(rows: list[dict]) -> list[dict]:
    """Return the geometric mean and the worst ratio to 0.16.0 for each chunk size."""
    means = []
    for size in dict.fromkeys(row["chunk"] for row in rows):
        mine = {a: [] for a in ACTIONS}
        for row in rows:
            if row["chunk"] == size:
                mine[row["action"]].append(row["against_old"])
        mean = {"chunk": size, "worst": min(x for xs in mine.values() for x in xs)}
        mean |= {a: contest.geometric_mean(xs) for a, xs in mine.items()}
        means.append(mean)
    return means


def main() -> None:
    """Run the benchmark, print the table and write the results."""
    args = parse()
    contest.touch_memory()
    rows = run(args)
    means = summary(rows)
    print("\nhow many times as fast as 0.16.0")
    print("chunk   pack   read  worst")
    for mean in means:
        print(
            "%(chunk)5s %(pack_ndarray_to_bytes)6.2f "
            "%(unpack_ndarray_from_bytes)6.2f %(worst)6.2f" % mean
        )
    contest.write(args.json, threads=args.threads, rows=rows, means=means)


if __name__ == "__main__":
    main()
