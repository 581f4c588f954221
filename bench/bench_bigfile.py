"""Write and read a block of a BigFile tree, against the genuine bigfile 0.1.52.

The third side is a compressed dataset with digests. The sides take turns; the figure of
each is its best round. Nothing is synced, and the files stay in the page cache of the
system. Each round opens the tree anew.

The genuine package runs in a virtual environment, which is created if it is missing:
that needs a network and a C compiler.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import contest

SIDES = ("this", "bigfile", "dataset")
ACTIONS = ("write", "read", "rows")
REQUIREMENTS = ("numpy==1.26.4", "Cython==0.29.37", "setuptools==65.5.1", "wheel")
ORIGINAL = "bigfile==0.1.52"


def parse() -> argparse.Namespace:
    parser = contest.options(__doc__, "bigfile", rounds=7)
    parser.add_argument("--mib", type=int, default=1024, help="MiB of the block")
    parser.add_argument("--files", type=int, default=4, help="data files of the block")
    parser.add_argument("--rows", type=int, default=1000, help="random rows in a round")
    parser.add_argument("--data", default="walk")
    parser.add_argument("--sides", nargs="*", default=list(SIDES))
    parser.add_argument(
        "--original",
        default=str(contest.HERE / ".bigfile-env"),
        help="virtual environment of bigfile 0.1.52, created if it is missing",
    )
    return parser.parse_args()


def original_python(folder: str) -> str:
    """Return the Python of an environment with the genuine package; create it."""
    python = Path(folder).absolute() / "bin" / "python"
    if python.exists():
        return str(python)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [str(python), "-m", "pip", "-q"]
    subprocess.run([*pip, "install", *REQUIREMENTS], check=True)
    plain = ["--no-deps", "--no-build-isolation"]
    with tempfile.TemporaryDirectory() as source:
        options = [*plain, "--no-binary", ":all:", "-d", source]
        subprocess.run([*pip, "download", *options, ORIGINAL], check=True)
        (archive,) = Path(source).glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extractall(source, filter="data")
        (unpacked,) = (path for path in Path(source).iterdir() if path.is_dir())
        subprocess.run([*pip, "install", *plain, str(unpacked)], check=True)
    return str(python)


class Side:
    """A process that writes and reads."""

    def __init__(self, name: str, folder: str, args: argparse.Namespace) -> None:
        self.name = name
        original = name == "bigfile"
        python = original_python(args.original) if original else sys.executable
        script = str(contest.HERE / "bigfile_contestant.py")
        settings = [str(args.mib), args.data, str(args.files)]
        self._process = subprocess.Popen(
            [python, "-W", "ignore", script, name, folder, *settings],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=contest.environment(python),
        )

    def run(self, action: str, **job: int) -> dict:
        """Measure an action; return ``seconds``, and ``nbytes`` of the files."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"action": action, **job}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("%s ended during %r" % (self.name, action))
        return json.loads(line)

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def measure(action: str, sides: list[Side], args: argparse.Namespace) -> list[dict]:
    """Measure an action on all sides in turns; print a line; return the rows."""
    answers: dict[str, list[dict]] = {side.name: [] for side in sides}
    for number in range(args.rounds + 1):
        for side in sides:
            answer = side.run(action, round=number, count=args.rows)
            if number:  # the first round imports modules and fills the caches
                answers[side.name].append(answer)
    rows = []
    for name, found in answers.items():
        seconds = [answer["seconds"] for answer in found]
        row = {"action": action, "side": name, "best": min(seconds)}
        row |= {"median": statistics.median(seconds), "nbytes": found[-1]["nbytes"]}
        rows.append(row)
    line = "".join("%12.4f" % row["best"] for row in rows)
    best = {row["side"]: row["best"] for row in rows}
    if {"this", "bigfile"} <= best.keys():
        line += "%12.2f" % (best["bigfile"] / best["this"])
    print("%-8s%s" % (action, line), flush=True)
    return rows


def run(args: argparse.Namespace) -> dict:
    """Measure all actions; return the figures."""
    with contest.scratch(args.folder) as folder:
        sides = [Side(name, folder, args) for name in args.sides]
        columns = "".join("%12s" % name for name in args.sides)
        print("%-8s%s%12s" % ("seconds", columns, "speed-up"))
        rows = measure("write", sides, args)
        for side in sides:
            side.run("check")
        for action in ACTIONS[1:]:
            rows += measure(action, sides, args)
        for side in sides:
            side.close()
    figures = {"mib": args.mib, "data": args.data, "count": args.rows}
    return {**figures, "files": args.files, "rows": rows}


def main() -> None:
    """Run the benchmark, print the table and write the results."""
    args = parse()
    contest.touch_memory()
    contest.write(args.json, **run(args))


if __name__ == "__main__":
    main()
