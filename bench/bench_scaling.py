"""Measure the speed by number of threads, and the work of the calling thread.

All data is in memory. Efficiency is the speed per thread in percent of the speed with
one thread. It is shown beside the efficiency of the limit, which is Blosc and adler32
alone. The calling thread also reads and delivers the chunks: the CPU time of this work
is shown in percent of a core at 1 GB/s.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time

import contest
import data

ACTIONS = ("pack_ndarray_to_bytes", "unpack_ndarray_from_bytes")


def parse() -> argparse.Namespace:
    threads = [n for n in (1, 2, 4, 8, 16) if n <= contest.CPUS]
    parser = contest.options(__doc__, "scaling")
    parser.add_argument("--mib", type=int, default=256, help="MiB of a data set")
    parser.add_argument("--threads", type=int, nargs="*", default=threads)
    parser.add_argument("--data", nargs="*", default=["linspace", "walk"])
    parser.add_argument("--codecs", nargs="*", default=contest.CODECS)
    return parser.parse_args()


def run(args: argparse.Namespace) -> list[dict]:
    """Measure every data set, codec, action and number of threads; return the rows."""
    new = {
        n: contest.Contestant("new", sys.executable, nthreads=n) for n in args.threads
    }
    rows = []
    for name in args.data:
        for codec in args.codecs:
            job = job_of(args, name, codec)
            for action in ACTIONS:
                limit = contest.LIMITS[action]
                entries = [(c, a) for a in (action, limit) for c in new.values()]
                times = contest.rounds(entries, job, args.rounds)
                first = min(new)
                for n, contestant in new.items():
                    seconds = times[contestant, action]
                    row = {
                        "data": name,
                        "codec": codec,
                        "action": action,
                        "threads": n,
                        "speed": job["nbytes"] / seconds / 1e6,
                        "against_limit": times[contestant, limit] / seconds,
                    }
                    for key, which in (("efficiency", action), ("allowed", limit)):
                        once = times[new[first], which] * first
                        row[key] = 100 * once / (times[contestant, which] * n)
                    rows.append(row)
                    print(
                        "%(data)-9s %(codec)-8s %(action)-26s %(threads)2d threads "
                        "%(speed)7.0f MB/s %(efficiency)4.0f %%, the limit "
                        "%(allowed)4.0f %%" % row,
                        flush=True,
                    )
    for contestant in new.values():
        contestant.close()
    return rows


def job_of(args: argparse.Namespace, name: str, codec: str) -> dict:
    """Return the parameters of a contestant."""
    return {
        "data": name,
        "codec": codec,
        "nbytes": args.mib * data.MIB,
        "chunk_size": data.MIB,
        "nthreads": max(args.threads),
        "folder": args.folder,
    }


class Watch:
    """Replaces `ordered`; adds up the CPU time of the work in the calling thread."""

    def __init__(self, ordered) -> None:
        self._ordered = ordered
        self.seconds = 0.0

    def __call__(self, items, work, deliver, *rest, **options) -> None:
        caller = threading.get_ident()

        def watched(function, *args):
            if threading.get_ident() != caller:
                return function(*args)
            start = time.thread_time()
            try:
                return function(*args)
            finally:
                self.seconds += time.thread_time() - start

        self._ordered(
            items, lambda item: watched(work, item), deliver, *rest, **options
        )


def run_caller(args: argparse.Namespace) -> list[dict]:
    """Measure the calling thread with the most threads; return the rows."""
    import contestant

    from bloscpack import abstract_io

    abstract_io.ordered = watch = Watch(abstract_io.ordered)
    rows = []
    for name in args.data:
        for codec in args.codecs:
            job = job_of(args, name, codec)
            subject = contestant.Contest(job)
            for action in ACTIONS:
                call = getattr(subject, action)()
                call()  # warm
                spent = []
                for _ in range(args.rounds):
                    watch.seconds = 0.0
                    start = time.thread_time()
                    call()
                    spent.append(time.thread_time() - start - watch.seconds)
                percent = 100 * statistics.median(spent) / (job["nbytes"] / 1e9)
                row = {"data": name, "codec": codec, "action": action}
                rows.append({**row, "threads": job["nthreads"], "percent": percent})
                print(
                    "%(data)-9s %(codec)-8s %(action)-26s caller's thread: "
                    "%(percent)5.2f %% of a core per GB/s" % rows[-1],
                    flush=True,
                )
    return rows


def main() -> None:
    """Run the benchmark, print the table and write the results."""
    args = parse()
    contest.touch_memory()
    rows = run(args)
    print()
    caller = run_caller(args)
    contest.write(args.json, mib=args.mib, rows=rows, caller=caller)


if __name__ == "__main__":
    main()
