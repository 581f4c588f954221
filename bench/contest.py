"""Contests between processes: alternating rounds, medians, ratios, text and JSON."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
CODECS = ("blosclz", "lz4", "zstd")
OLD_REQUIREMENTS = ("bloscpack==0.16.0", "blosc==1.11.4", "numpy")
# 0.16.0 looks for a class where it was before Python 3.10.
OLD_SHIM = (
    "import collections, collections.abc; "
    "collections.MutableMapping = collections.abc.MutableMapping"
)


def old_python(folder: Path) -> str:
    """Return a Python that has the genuine 0.16.0, in a virtual environment."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "install", "-q", *OLD_REQUIREMENTS]
        subprocess.run(pip, check=True)
        code = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
        found = subprocess.run(
            [str(python), "-c", code], check=True, capture_output=True, text=True
        )
        site = Path(found.stdout.strip())
        (site / "mutable_mapping.pth").write_text(OLD_SHIM + "\n")
    return str(python)


class Contestant:
    """A process that times actions."""

    def __init__(self, name: str, python: str) -> None:
        self.name = name
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        self._process = subprocess.Popen(
            [python, str(HERE / "contestant.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=HERE,
            env=environment,
        )

    def time(self, action: str, job: dict) -> dict:
        """Return the answer to an action: seconds and more."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({**job, "action": action}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("%s ended while it did %r" % (self.name, action))
        return json.loads(line)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def machine() -> dict:
    """Return what the figures depend on."""
    import blosc
    import numpy

    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [x for x in info.read_text().splitlines() if x.startswith("model name")]
        cpu = names[0].partition(":")[2].strip() if names else cpu
    return {
        "cpu": cpu,
        "cpus": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "blosc": blosc.__version__,
        "c-blosc": blosc.BLOSC_VERSION_STRING,
    }


def rounds(entries: list, job: dict, count: int) -> dict:
    """Return the median seconds of (contestant, action) pairs, taken in turn."""
    seconds: dict = {entry: [] for entry in entries}
    for entry in entries:
        entry[0].time(entry[1], job)  # warm: inputs made, caches filled
    for _ in range(count):
        for entry in entries:
            seconds[entry].append(entry[0].time(entry[1], job)["seconds"])
    return {entry: statistics.median(times) for entry, times in seconds.items()}


def geometric_mean(values: list) -> float:
    """Return the geometric mean."""
    return statistics.geometric_mean(values)


def scratch(folder: str | None) -> tempfile.TemporaryDirectory:
    """Return a folder for the files of a contest, removed with it."""
    return tempfile.TemporaryDirectory(prefix="bloscpack-bench-", dir=folder)
