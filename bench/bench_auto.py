"""Compare ``--auto`` with the best of many trials, and with ``zstd -3`` on a tar.

The trials are those of ``bench_settings.py``. The targets: the choice takes at most 5 %
of the time; the size is within 10 % of the size with the setting of the lowest cost,
and of the smallest that is as fast; on the tar, size and time are within 15 % of those
of ``zstd -3``. With the goal 'ratio' the CPU time is at most 30 times that of
``--auto``. All figures except the figures of the trials are whole processes with the
same number of threads. CPU seconds depend less on other load than seconds do.

The second table is for inputs below 32 MB, of which the sample is a larger part: the
beginnings of some of the data sets, and regular data, for each goal.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import os
import resource
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import bench_settings
import contest
import data
import numpy as np

import bloscpack
from bloscpack._format.automatic import GOALS, choose

BLPK = [sys.executable, "-m", "bloscpack", "-q", "-f"]
PROGRAMS = "/usr/lib/python3"
EXECUTABLES = ("/usr/lib/gcc", "/usr/libexec", "/usr/bin", "/usr/lib/chromium")
CSV_ROWS = 1_000_000
# Sizes in bytes of small inputs, and the data sets of which they are the beginning.
SMALL = {
    "1 KB": 10**3,
    "100 KB": 10**5,
    "1 MB": 10**6,
    "10 MB": 10**7,
    "30 MB": 3 * 10**7,
}
# The goal 'ratio' takes up to a tenth of a second for a megabyte.
MOST_FOR_RATIO = 10**7
SMALL_DATA = ("tar", "csv: text", "bench: walk", "bench: linspace")
# Regular data of a number of bytes, for which the goal 'ratio' takes longest.
REGULAR = {
    "integers": lambda nbytes: np.arange(nbytes // 8),
    "numbers": lambda nbytes: np.linspace(0, 1, nbytes // 8),
}
TARGETS = {"share": 0.05, "size": 1.1, "zstd": 1.15, "slower": 30}
# A speed counts as equal to one that is this much lower.
AS_FAST = 0.95


# Data


def make_tar(path: Path, folder: str) -> None:
    """Write a tar of the programs in a folder."""
    parent, name = os.path.split(folder)
    command = ["tar", "cf", str(path), "-C", parent, name]
    subprocess.run(command, check=False, stderr=subprocess.DEVNULL)


def largest_executable() -> Path:
    """Return the largest program that is installed."""
    found = [p for folder in EXECUTABLES for p in Path(folder).rglob("*")]
    return max((p for p in found if p.is_file()), key=lambda p: p.stat().st_size)


def write_numbers(path: Path) -> None:
    """Write rows of a number, three measurements and a slow sum."""
    rng = np.random.default_rng(2026)
    table = rng.normal(20, 5, (CSV_ROWS, 3))
    total = np.cumsum(rng.normal(0, 0.01, CSV_ROWS))
    with path.open("w") as fp:
        fp.write("id,x,y,z,t\n")
        for i, (row, t) in enumerate(zip(table.tolist(), total.tolist(), strict=True)):
            fp.write("%d,%.6f,%.6f,%.6f,%.3f\n" % (i, *row, t))


def write_stamps(path: Path) -> None:
    """Write rows of a time, two names and three measurements."""
    rng = np.random.default_rng(2026)
    times = np.cumsum(rng.exponential(1.5, CSV_ROWS)).tolist()
    names = rng.choice(["Berlin", "Paris", "Rome", "Madrid", "Vienna"], CSV_ROWS)
    states = rng.choice(["ok", "ok", "ok", "late", "lost"], CSV_ROWS)
    warm = rng.normal(12, 4, CSV_ROWS).tolist()
    counts = rng.poisson(3, (CSV_ROWS, 2)).tolist()
    start = datetime.datetime(2024, 1, 1)
    with path.open("w") as fp:
        fp.write("time,station,state,temperature,calls,errors\n")
        for row in zip(times, names, states, warm, counts, strict=True):
            stamp = start + datetime.timedelta(seconds=row[0])
            text = stamp.isoformat(timespec="milliseconds")
            fp.write("%s,%s,%s,%.1f,%d,%d\n" % (text, *row[1:4], *row[4]))


def write_text(path: Path) -> None:
    """Write rows of a name, some words, a score and a day."""
    rng = np.random.default_rng(2026)
    letters = rng.choice(list("etaoinshrdlu"), (20_000, 10))
    words = ["".join(row[: 3 + i % 8]) for i, row in enumerate(letters)]
    users = rng.integers(0, 5000, CSV_ROWS).tolist()
    days = rng.integers(1, 29, CSV_ROWS).tolist()
    with path.open("w") as fp:
        fp.write("id,user,comment,day\n")
        for i in range(0, CSV_ROWS, 1000):
            numbers = np.minimum(rng.zipf(1.3, 9000) - 1, len(words) - 1).tolist()
            for j in range(i, i + 1000):
                part = numbers[9 * (j - i) : 9 * (j - i) + 9]
                comment = " ".join([words[n] for n in part])
                fp.write('%d,user%d,"%s",%d\n' % (j, users[j], comment, days[j]))


def write_cents(path: Path) -> None:
    """Write numbers with two decimals as float64."""
    rng = np.random.default_rng(2026)
    np.round(rng.normal(100, 20, 4 * CSV_ROWS), 2).tofile(path)


def write_noise(path: Path) -> None:
    """Write random numbers as float32."""
    np.random.default_rng(2026).normal(0, 1, 8 * CSV_ROWS).astype("f4").tofile(path)


def write_integers(path: Path) -> None:
    """Write random integers below 1000 as int32."""
    np.random.default_rng(2026).integers(0, 1000, 8 * CSV_ROWS, "i4").tofile(path)


def write_series(path: Path) -> None:
    """Write a random walk with three decimals as float64."""
    steps = np.random.default_rng(2026).normal(0, 1, 4 * CSV_ROWS)
    np.round(np.cumsum(steps), 3).tofile(path)


ARRAYS = {
    "cents": write_cents,
    "noise": write_noise,
    "integers": write_integers,
    "series": write_series,
}
WRITERS = {"numbers": write_numbers, "stamps": write_stamps, "text": write_text}


def make_all(folder: Path, args: argparse.Namespace) -> dict[str, Path]:
    """Write all data sets into a folder; return their paths."""
    paths = {"tar": folder / "programs.tar", "executable": folder / "executable"}
    make_tar(paths["tar"], args.programs)
    shutil.copyfile(args.executable or largest_executable(), paths["executable"])
    for name, write in WRITERS.items():
        paths["csv: " + name] = folder / (name + ".csv")
        write(paths["csv: " + name])
    for name, write in ARRAYS.items():
        paths["array: " + name] = folder / (name + ".raw")
        write(paths["array: " + name])
    for name in data.NAMES:
        paths["bench: " + name] = folder / (name + ".raw")
        data.make(name, args.mib * data.MIB).tofile(paths["bench: " + name])
    return {n: p for n, p in paths.items() if not args.data or n in args.data}


# Measurements


def timed(command: list[str]) -> tuple[float, float]:
    """Run a process; return its seconds and its CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, cpu


def compare(commands: dict[str, list[str]], output: Path, rounds: int) -> dict:
    """Return the size and the median times of processes, in alternating rounds."""
    found: dict = {name: {"seconds": [], "cpu": []} for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            seconds, cpu = timed(command)
            found[name]["seconds"].append(seconds)
            found[name]["cpu"].append(cpu)
            found[name]["size"] = output.stat().st_size
    for figures in found.values():
        for key in ("seconds", "cpu"):
            figures[key] = statistics.median(figures[key])
    return found


def choice(path: Path, rounds: int, goal: str = "balanced") -> dict:
    """Return the setting that ``--auto`` chooses, and the CPU seconds of the choice."""
    times = []
    for _ in range(rounds + 1):
        with path.open("rb") as fp:

            def read(start: int, size: int, fp=fp) -> bytes:
                fp.seek(start)
                return fp.read(size)

            start = time.thread_time()
            setting = choose(read, path.stat().st_size, goal)
            times.append(time.thread_time() - start)
    shown = "%(cname)s %(clevel)d, filter %(shuffle)d, type size %(typesize)d"
    shown = (shown + ", chunks of %(chunk_size)d bytes") % vars(setting)
    return {"setting": shown, "choice": statistics.median(times[1:])}


def options_of(trial: dict) -> list[str]:
    """Return the options of compress for a trial; it shuffles bytes by default."""
    return [word for word in trial["options"].split() if word != "--shuffle"]


def measure(path: Path, output: Path, args: argparse.Namespace) -> dict:
    """Return all figures of a data set."""
    compress = [*BLPK, "-n", str(args.threads), "compress", str(path), str(output)]
    nbytes = path.stat().st_size
    sample = bench_settings.sample_of(str(path), args.sample * data.MIB)
    found = bench_settings.compare(sample, bench_settings.TYPESIZES, GOALS["balanced"])
    best = found[0]
    auto = [*compress, "--auto"]
    _, cpu = timed(auto)
    fast = [trial for trial in found if trial["pack"] >= AS_FAST * nbytes / cpu]
    smallest = max(fast, key=lambda trial: trial["ratio"], default=best)
    commands = {
        "auto": auto,
        "ratio": [*compress, "--auto=ratio"],
        "best": [*compress, *options_of(best)],
        "smallest": [*compress, *options_of(smallest)],
        "default": compress,
    }
    row: dict = {"nbytes": nbytes, **choice(path, args.rounds)}
    row |= compare(commands, output, args.rounds)
    row["best"]["options"] = shlex.join(options_of(best))
    row["smallest"]["options"] = shlex.join(options_of(smallest))
    row["share"] = row["choice"] / row["auto"]["seconds"]
    row["share_of_cpu"] = row["choice"] / row["auto"]["cpu"]
    row["slower"] = row["ratio"]["cpu"] / row["auto"]["cpu"]
    row["ratio_to_auto"] = row["ratio"]["size"] / row["auto"]["size"]
    for other in ("best", "smallest"):
        row["size_to_" + other] = row["auto"]["size"] / row[other]["size"]
    return row


def against_zstd(path: Path, output: Path, rounds: int) -> dict:
    """Return the figures of ``zstd -3`` and ``--auto``, both with one thread."""
    to_output = "--output", str(output)  # replaces a file that is not Bloscpack's
    commands = {
        "auto": [*BLPK, "-n", "1", "compress", "--auto", str(path), *to_output],
        "zstd": ["zstd", "-3", "--single-thread", "-qf", str(path), "-o", str(output)],
    }
    found = compare(commands, output, rounds)
    for key in ("size", "seconds", "cpu"):
        found[key] = found["auto"][key] / found["zstd"][key]
    return found


def small_inputs(
    paths: dict[str, Path], folder: Path, args: argparse.Namespace
) -> list:
    """Return the time of the choice and of the whole process for small inputs."""
    path, output = folder / "small", folder / "output"
    rows = []
    names = [name for name in SMALL_DATA if name in paths] + [*REGULAR]
    for name, size, goal in itertools.product(names, SMALL, GOALS):
        if goal == "ratio" and SMALL[size] > MOST_FOR_RATIO:
            continue
        if name in REGULAR:
            path.write_bytes(REGULAR[name](SMALL[size]).tobytes())
        else:
            with paths[name].open("rb") as fp:
                path.write_bytes(fp.read(SMALL[size]))
        found = choice(path, args.rounds, goal)
        command = [*BLPK, "-n", str(args.threads), "compress", "--auto=" + goal]
        command += [str(path), "--output", str(output)]
        seconds = statistics.median(timed(command)[0] for _ in range(args.rounds))
        row = {"data": name, "size": size, "goal": goal, "seconds": seconds, **found}
        rows.append(row | {"packed": output.stat().st_size})
        print(
            "%-12s %-7s %-9s %4.0f of %6.0f ms  %10d  %s"
            % (
                *(name, size, goal, 1000 * found["choice"], 1000 * seconds),
                *(rows[-1]["packed"], found["setting"]),
            ),
            flush=True,
        )
    return rows


def parse() -> argparse.Namespace:
    """Return the arguments."""
    parser = contest.options(__doc__, "auto", rounds=3)
    parser.add_argument("--threads", type=int, default=contest.CPUS)
    parser.add_argument("--mib", type=int, default=256, help="MiB of a bench data set")
    parser.add_argument("--sample", type=int, default=2, help="MiB for the trials")
    parser.add_argument("--programs", default=PROGRAMS, help="folder for the tar")
    parser.add_argument("--executable", help="default: the largest one installed")
    parser.add_argument("--data", nargs="*", help="only these data sets")
    return parser.parse_args()


def main() -> None:
    """Run the benchmark, print the table and write the results."""
    args = parse()
    rows: dict = {}
    with contest.scratch(args.folder) as folder:
        output = Path(folder, "output")
        paths = make_all(Path(folder), args)
        small = small_inputs(paths, Path(folder), args)
        print(
            "\n%-16s %7s %7s %8s %8s %15s"
            % ("", "choice", "of all", "to best", "smallest", "--auto=ratio")
        )
        for name, path in paths.items():
            row = rows[name] = measure(path, output, args)
            print(
                "%-16s %4.0f ms %5.1f %% %8.3f %8.3f  x %4.1f, %.3f  %s"
                % (
                    *(name, 1000 * row["choice"], 100 * row["share"]),
                    *(row["size_to_best"], row["size_to_smallest"]),
                    *(row["slower"], row["ratio_to_auto"], row["setting"]),
                ),
                flush=True,
            )
        zstd = None
        if "tar" in paths and shutil.which("zstd"):
            zstd = against_zstd(paths["tar"], output, args.rounds)
            print(
                "\nto zstd -3: size %(size).3f, time %(seconds).3f, CPU %(cpu).3f"
                % zstd
            )
    contest.write(
        args.json,
        version=bloscpack.__version__,
        threads=args.threads,
        targets=TARGETS,
        rows=rows,
        small=small,
        zstd=zstd,
    )


if __name__ == "__main__":
    main()
