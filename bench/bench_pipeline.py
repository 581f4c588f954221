"""Packing and unpacking against the genuine 0.16.0 and against the limit.

The limit is Blosc and adler32 alone, on the same chunks and threads. Prints a table
of ratios, above 1 where this is faster, and writes JSON.
"""

from __future__ import annotations

import argparse
import sys

import contest
import data

# Only for some actions: times np.save that it takes, and Blosc alone; and which part of
# the time is needed to write anything at all to a new array.
EXTRA = ("times_save", "limit_times_save", "fill_new_array")


def parse() -> argparse.Namespace:
    parser = contest.options(__doc__, "pipeline")
    contest.add_old(parser)
    parser.add_argument("--mib", type=int, default=256, help="size of a data set")
    parser.add_argument("--threads", type=int, default=contest.CPUS)
    parser.add_argument("--data", nargs="*", default=data.NAMES)
    parser.add_argument("--codecs", nargs="*", default=contest.CODECS)
    parser.add_argument("--actions", nargs="*", default=list(contest.LIMITS))
    return parser.parse_args()


def run(args: argparse.Namespace) -> list[dict]:
    """Return a row for every data set, codec and action."""
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
                    if action.startswith("unpack_ndarray"):
                        entries.append((new, "fill_new_array"))
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
                    if (new, "fill_new_array") in times:
                        fill = times[new, "fill_new_array"]
                        row["fill_new_array"] = fill / times[new, action]
                    rows.append(row)
                    print(
                        "%(data)-9s %(codec)-8s %(action)-26s %(seconds)8.4f s "
                        "0.16: %(against_old)5.2f  limit: %(against_limit)5.2f" % row,
                        *("%s: %.2f" % (k, row[k]) for k in EXTRA if k in row),
                        flush=True,
                    )
    new.close()
    old.close()
    return rows


def summary(rows: list[dict]) -> list[dict]:
    """Return the geometric means of each action, and its worst single figure."""
    means = []
    for action in dict.fromkeys(row["action"] for row in rows):
        mine = [row for row in rows if row["action"] == action]
        old = [row["against_old"] for row in mine]
        limit = [row["against_limit"] for row in mine]
        fill = [row["fill_new_array"] for row in mine if "fill_new_array" in row]
        means.append(
            {
                "action": action,
                "fill_new_array": contest.geometric_mean(fill) if fill else None,
                "against_old": contest.geometric_mean(old),
                "against_limit": contest.geometric_mean(limit),
                "worst_against_old": min(old),
            }
        )
    return means


def main() -> None:
    """Run, print, write."""
    args = parse()
    contest.touch_memory()
    rows = run(args)
    means = summary(rows)
    print("\n%-28s %8s %8s %10s" % ("", "0.16.0", "limit", "worst 0.16"))
    for mean in means:
        print(
            "%(action)-28s %(against_old)8.2f %(against_limit)8.2f "
            "%(worst_against_old)10.2f" % mean
        )
    contest.write(args.json, mib=args.mib, threads=args.threads, rows=rows, means=means)


if __name__ == "__main__":
    main()
