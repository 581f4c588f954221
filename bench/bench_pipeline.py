"""Measure packing and unpacking against the original 0.16.0 and against the limit.

The limit is Blosc and adler32 alone, on the same chunks and threads. Prints a table
of ratios, above 1 where this is faster, and writes JSON.
"""

from __future__ import annotations

import argparse
import sys

import contest
import data

# action → another measurement that bounds it, reported as a fraction of its time
BOUNDS = {
    "pack_file_to_file": "limit_pack_read",
    "unpack_ndarray_from_bytes": "fill_new_array",
    "unpack_ndarray_from_file": "fill_new_array",
    "unpack_file_from_file": "write_new_file",
}
# action → the aims against 0.16.0 and against the limit
TARGETS = {
    "pack_ndarray_to_bytes": (1.5, 0.85),
    "pack_bytes_to_bytes": (1.5, 0.85),
    "unpack_ndarray_from_bytes": (1.75, 0.95),
    "unpack_bytes_from_bytes": (1.75, 0.95),
    "pack_file_to_file": (1.6, 0.95),
    "pack_ndarray_to_file": (1.6, 0.95),
    "unpack_file_from_file": (1.9, 0.85),
    "unpack_ndarray_from_file": (1.7, 0.92),
}
# The columns of the table of means, which is one of `README.rst`.
COLUMNS = ("0.16", "target", "limit", "target", "worst 0.16")
# For random data: the time of packing, and of Blosc alone, in multiples of np.save.
SAVE = ("times_save", "limit_times_save")


def parse() -> argparse.Namespace:
    parser = contest.options(__doc__, "pipeline")
    contest.add_old(parser)
    parser.add_argument("--mib", type=int, default=256, help="MiB of a data set")
    parser.add_argument("--threads", type=int, default=contest.CPUS)
    parser.add_argument("--data", nargs="*", default=data.NAMES)
    parser.add_argument("--codecs", nargs="*", default=contest.CODECS)
    parser.add_argument("--actions", nargs="*", default=list(contest.LIMITS))
    return parser.parse_args()


def run(args: argparse.Namespace) -> list[dict]:
    """Measure every data set, codec and action; return the rows."""
    new = contest.Contestant("new", sys.executable)
    old = contest.Contestant("0.16.0", contest.old_python(args.old))
    rows = []
    for name in args.data:
        for codec in args.codecs:
            with contest.scratch(args.folder) as folder:
                job = {
                    "data": name,
                    "codec": codec,
                    "nbytes": args.mib * data.MIB,
                    "chunk_size": data.MIB,
                    "nthreads": args.threads,
                    "folder": folder,
                }
                for action in args.actions:
                    limit = contest.LIMITS[action]
                    entries = [(new, action), (old, action), (new, limit)]
                    if action == "pack_ndarray_to_file" and name == "random":
                        entries.append((new, "save"))
                    bound = BOUNDS.get(action)
                    if bound is not None:
                        entries.append((new, bound))
                    times = contest.rounds(entries, job, args.rounds)
                    row = {
                        "data": name,
                        "codec": codec,
                        "action": action,
                        "seconds": times[new, action],
                        "against_old": times[old, action] / times[new, action],
                        "against_limit": times[new, limit] / times[new, action],
                    }
                    if (new, "save") in times:
                        row["times_save"] = times[new, action] / times[new, "save"]
                        row["limit_times_save"] = times[new, limit] / times[new, "save"]
                    if bound is not None:
                        row[bound] = times[new, bound] / times[new, action]
                    rows.append(row)
                    print(
                        "%(data)-9s %(codec)-8s %(action)-26s %(seconds)8.4f s "
                        "0.16: %(against_old)5.2f  limit: %(against_limit)5.2f" % row,
                        *("%s: %.2f" % (k, row[k]) for k in (*SAVE, bound) if k in row),
                        flush=True,
                    )
    new.close()
    old.close()
    return rows


def summary(rows: list[dict]) -> list[dict]:
    """Return the geometric means and the worst ratio to 0.16.0 for each action."""
    means = []
    for action in dict.fromkeys(row["action"] for row in rows):
        mine = [row for row in rows if row["action"] == action]
        old = [row["against_old"] for row in mine]
        limit = [row["against_limit"] for row in mine]
        bound = BOUNDS.get(action)
        part = contest.geometric_mean([row[bound] for row in mine]) if bound else None
        means.append(
            {
                "action": action,
                "bound": bound,
                "part": part,
                "against_old": contest.geometric_mean(old),
                "against_limit": contest.geometric_mean(limit),
                "worst_against_old": min(old),
            }
        )
    return means


def main() -> None:
    """Run the benchmark, print the table and write the results."""
    args = parse()
    contest.touch_memory()
    rows = run(args)
    means = summary(rows)
    rule = contest.rule([26, *(10 for _ in COLUMNS)])
    head = "%-26s" % "action" + "".join("%12s" % name for name in COLUMNS)
    print("\n", rule, head, rule, sep="\n")
    for mean in means:
        old, limit = TARGETS[mean["action"]]
        figures = mean["against_old"], old, mean["against_limit"], limit
        cells = "".join("%12.2f" % x for x in (*figures, mean["worst_against_old"]))
        print("%-26s" % mean["action"] + cells)
    print(rule)
    for mean in means:
        if mean["bound"]:
            print("%(bound)s: %(part).2f of the time of %(action)s" % mean)
    contest.write(args.json, mib=args.mib, threads=args.threads, rows=rows, means=means)


if __name__ == "__main__":
    main()
