"""Compare processes: alternating rounds, medians, ratios, text and JSON output."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).absolute().parent
CPUS = len(os.sched_getaffinity(0))
CODECS = ("blosclz", "lz4", "zstd")
# action → the limit that it is compared with
LIMITS = {
    "pack_ndarray_to_bytes": "limit_pack",
    "pack_bytes_to_bytes": "limit_pack",
    "unpack_ndarray_from_bytes": "limit_unpack",
    "unpack_bytes_from_bytes": "limit_unpack",
    "pack_file_to_file": "limit_pack",
    "pack_ndarray_to_file": "limit_pack",
    "unpack_file_from_file": "limit_unpack",
    "unpack_ndarray_from_file": "limit_unpack",
}
OLD_REQUIREMENTS = ("bloscpack==0.16.0", "blosc==1.11.4", "numpy")
# 0.16.0 imports a class from its location before Python 3.10.
OLD_SHIM = (
    "import collections, collections.abc; "
    "collections.MutableMapping = collections.abc.MutableMapping"
)


def options(doc: str | None, name: str, rounds: int = 5) -> argparse.ArgumentParser:
    """Return a parser with the common options."""
    parser = argparse.ArgumentParser(description=doc)
    result = str(HERE / "results" / (name + ".json"))
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--folder", help="folder for the data (default: temporary)")
    parser.add_argument("--json", default=result, help="file for the results")
    return parser


def add_old(parser: argparse.ArgumentParser) -> None:
    """Add the option for the environment of 0.16.0."""
    parser.add_argument(
        "--old",
        default=str(HERE / ".old-env"),
        help="virtual environment of 0.16.0, created if it is missing",
    )


def write(path: str, **figures: object) -> None:
    """Write the results, with the machine and the versions, as JSON."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps({"machine": machine(), **figures}, indent=1) + "\n")
    print("\n%s" % target)


def old_python(folder: str) -> str:
    """Return the Python of a virtual environment with 0.16.0; create it if missing."""
    python = Path(folder).absolute() / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [str(python), "-m", "pip", "install", "-q", *OLD_REQUIREMENTS]
        subprocess.run(pip, check=True)
        code = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
        found = subprocess.run(
            [str(python), "-c", code], check=True, capture_output=True, text=True
        )
        site = Path(found.stdout.strip())
        (site / "mutable_mapping.pth").write_text(OLD_SHIM + "\n")
    return str(python)


def environment(python: str) -> dict[str, str]:
    """Return the environment variables for a Python.

    0.16.0 must not import this version, so its Python gets no PYTHONPATH.
    """
    same = python == sys.executable
    return {k: v for k, v in os.environ.items() if same or k != "PYTHONPATH"}


class Contestant:
    """A process that measures actions.

    `own` overrides parameters of the jobs. ``packed`` is the packed size of the last
    data set in bytes.
    """

    def __init__(self, name: str, python: str, **own: object) -> None:
        self.name = name
        self.packed = 0
        self._own = own
        self._process = subprocess.Popen(
            [python, str(HERE / "contestant.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=HERE,
            env=environment(python),
        )

    def time(self, action: str, job: dict) -> dict:
        """Measure an action; return the answer of the process, such as ``seconds``."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(
            json.dumps(job | self._own | {"action": action}) + "\n"
        )
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("%s ended during %r" % (self.name, action))
        answer = json.loads(line)
        self.packed = answer["packed"]
        return answer

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def machine() -> dict:
    """Return the processor and the versions."""
    import blosc
    import numpy

    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [x for x in info.read_text().splitlines() if x.startswith("model name")]
        cpu = names[0].partition(":")[2].strip() if names else cpu
    return {
        "cpu": cpu,
        "cpus": CPUS,
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "blosc": blosc.__version__,
        "c-blosc": blosc.BLOSC_VERSION_STRING,
    }


def touch_memory() -> None:
    """Allocate half of the free memory and release it.

    The first use of memory is ten times slower on a virtual machine, which gets it from
    its host. This must not slow down the first measurement.
    """
    code = "import numpy, sys; kept = [numpy.ones(2**30, 'u1') for _ in sys.argv[1]]"
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    one_per_gib = "x" * (free // 2 // 2**30)
    subprocess.run([sys.executable, "-c", code, one_per_gib], check=True)


def rounds(entries: list, job: dict, count: int) -> dict:
    """Return the median seconds of (contestant, action) pairs in alternating rounds."""
    seconds: dict = {entry: [] for entry in entries}
    for entry in entries:
        entry[0].time(entry[1], job)  # warm-up: creates the inputs and fills the caches
    for _ in range(count):
        for entry in entries:
            seconds[entry].append(entry[0].time(entry[1], job)["seconds"])
    return {entry: statistics.median(times) for entry, times in seconds.items()}


def rule(widths: Iterable[int]) -> str:
    """Return the line above, below and in a simple table of reStructuredText."""
    return "  ".join("=" * width for width in widths)


def geometric_mean(values: list) -> float:
    """Return the geometric mean."""
    return statistics.geometric_mean(values)


def scratch(folder: str | None) -> tempfile.TemporaryDirectory:
    """Return a temporary folder for the files of a contest."""
    return tempfile.TemporaryDirectory(prefix="bloscpack-bench-", dir=folder)
