"""Helpers of several test modules: golden files, processes, pipes, signals."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import io
import itertools
import json
import os
import pkgutil
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from golden import content

import bloscpack
from bloscpack import log
from bloscpack._cli.console import Console, console
from bloscpack._commit.locking import open_locked

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
DOCS = ROOT / "docs"
GOLDEN = TESTS / "golden"
BLP = GOLDEN / "blp"

# Variables of Python that change where it finds or puts modules, and nothing else.
PYTHON_KEPT = (
    *("PYTHONPATH", "PYTHONHOME"),
    *("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"),
)


def environment(**changes: str) -> dict[str, str]:
    """Return the variables for a process that a test starts; it finds this package.

    Settings of Python and Blosc are left out, so that results do not depend on the
    machine. PYTHONUNBUFFERED, for example, hides errors of writing a buffer at exit.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in PYTHON_KEPT or not name.startswith(("PYTHON", "BLOSC_"))
    }
    paths = [str(ROOT), *filter(None, [kept.get("PYTHONPATH")])]
    return kept | {"PYTHONPATH": os.pathsep.join(paths)} | changes


def run_command(
    *command: object, timeout: float = 900, **options: object
) -> subprocess.CompletedProcess:
    """Run a command, and return its exit code with what it has written.

    The timeout ends a command that hangs; a loaded machine is slow.
    """
    usual = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "check": False}
    usual["env"] = environment()
    return subprocess.run(command, timeout=timeout, **{**usual, **options})


run_python = functools.partial(run_command, sys.executable)
run_blpk = functools.partial(run_python, "-m", "bloscpack")


def run_silently(*arguments: object, timeout: float, cwd: object = None) -> None:
    """Run a new Python with arguments; it must write nothing, and end with code 0."""
    done = run_python(*map(str, arguments), cwd=cwd, text=True, timeout=timeout)
    output = done.stdout + done.stderr
    assert (0, "") == (done.returncode, output), "%d, %s" % (done.returncode, output)


def output_of(code: str) -> str:
    """Return the standard output of a new Python that runs `code` without an error."""
    return run_python("-c", code, text=True, check=True).stdout


def growth_of_memory(source: str, target: str) -> int:
    """Return by how many KiB a new Python grows in which a file is converted."""
    code = """
import resource
from bloscpack import dataset
import pyarrow.parquet
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
dataset.convert(%r, %r, force=True)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    return int(output_of(code % (source, target)))


# Reasons of skipped tests that name what is not installed.
NOT_INSTALLED = re.compile(
    r"could not import '(\w+)|(?:the extra ')?([\w.-]+)'? is not installed"
    r"|needs (zarr|TensorStore|the extra '[\w-]+')"
)


def grouped_reasons(reasons: Iterable[str], most: int = 6) -> list[str]:
    """Return a line for each of the `most` frequent reasons, and one for the others."""
    counts: Counter[str] = Counter()
    missing: set[str] = set()
    for reason in reasons:
        text = reason.removeprefix("Skipped: ")
        if found := NOT_INSTALLED.match(text):
            text = "needs what is not installed: "
            missing.update(filter(None, found.groups()))
        counts[text] += 1
    shown = counts.most_common(most)
    lines = ["%5d  %s" % (count, text) for text, count in shown]
    lines = [line + ", ".join(sorted(missing)) * line.endswith(": ") for line in lines]
    if rest := counts.total() - sum(count for _, count in shown):
        lines.append("%5d  other reasons: pytest -rs lists them" % rest)
    return lines


@functools.cache
def manifest() -> dict:
    """Return the manifest of the golden files; golden/README.rst explains it."""
    return json.loads((BLP / "MANIFEST.json").read_text("ascii"))


def golden_files(name: str = "") -> list[dict]:
    """Return the entries of the golden files whose name begins with `name`."""
    return [e for e in manifest()["files"] if e["file"].startswith(name)]


def golden_input(entry: dict) -> bytes | None:
    """Return the plain bytes a golden file was made from; None for an array."""
    made = entry.get("recipe") or entry.get("job") or entry["source"]
    pieces = [made.get("base", made), *made.get("appends", [])]
    if "content" not in pieces[0]:
        return None
    plain = b"".join(content.make(piece["content"]) for piece in pieces)
    # bcolz and BLZ keep each chunk in a file of its own.
    return plain[made.get("from", 0) : made.get("to", len(plain))]


def sha256(data: bytes) -> str:
    """Return the SHA-256 digest of bytes as the manifest writes it."""
    return hashlib.sha256(data).hexdigest()


def has_entry_points() -> bool:
    """Return whether other libraries find the entry points of this package."""
    from importlib.metadata import entry_points

    names = [entry.name for entry in entry_points(group="xarray.backends")]
    return "bloscpack" in names


class ShortReads(io.RawIOBase):
    """A file object like a pipe: it can't seek, and returns fewer bytes than requested.

    Read number n returns at most ``sizes[n]`` bytes; the sizes repeat.
    """

    def __init__(self, data: bytes, sizes: tuple[int, ...] = (1, 7, 4096)) -> None:
        self._left = memoryview(data)
        self._sizes = itertools.cycle(sizes)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:
        size = min(len(buffer), len(self._left), next(self._sizes))
        buffer[:size] = self._left[:size]
        self._left = self._left[size:]
        return size


# The variables of `log` as a new process has them.
_LOG = {name: value for name, value in vars(log).items() if name.isupper()}


def open_files_in(folder: Path) -> list[str]:
    """Return the names of the files in a folder that this process has open.

    It needs the folder ``/proc``.
    """
    names = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the list itself
            names.append(os.readlink("/proc/self/fd/" + number))
    return [name for name in names if name.startswith(str(folder))]


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the content of all files below a folder by their relative names."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


needs_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs several users"
)


@functools.cache
def import_all_modules() -> None:
    """Import what a change needs: another user may be unable to read the modules.

    A home of root, for example, has a clone and a Python that only root can read.
    """
    left_out = ("bloscpack.integrations", "bloscpack.__main__")
    for module in pkgutil.walk_packages(bloscpack.__path__, "bloscpack."):
        if not module.name.startswith(left_out):
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)
    with tempfile.TemporaryDirectory() as folder:
        # This imports the modules that functions of this package and NumPy import.
        with bloscpack.dataset.create_array(folder + "/a", [1], shards=1) as array:
            array.append([2])
        assert bloscpack.dataset.verify(folder + "/a").ok


@contextlib.contextmanager
def as_user(uid: int, *groups: int) -> Iterator[None]:
    """Be the user `uid`, in the groups `uid` and `groups`, if this process is root.

    The folder of the test has to be `open_folder`: others may not enter `tmp_path`.
    """
    if os.geteuid():
        yield
        return
    import_all_modules()
    old = os.getgroups()
    os.setgroups(groups)
    os.setegid(uid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(old)


class FailingCalls:
    """Lets one call of the module `os` fail: the one with a number."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        names: Iterable[str],
        number: int,
        code: int,
    ) -> None:
        self.left, self.code = number, code
        for name in names:
            monkeypatch.setattr(os, name, self.failing(getattr(os, name)))

    def failing(self, original: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            self.left -= 1
            if self.left == -1:
                raise OSError(self.code, os.strerror(self.code))
            return original(*arguments, **options)

        return call


def others_may_enter(folder: Path) -> bool:
    """Return whether every user may enter a folder."""
    return all(place.stat().st_mode & 0o001 for place in (folder, *folder.parents))


@contextlib.contextmanager
def folder_for_all_users() -> Iterator[Path]:
    """Make a folder with the permission bits 755 that every user can reach."""
    for place in (tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"):
        if os.path.isdir(place) and others_may_enter(Path(place).resolve()):
            break
    else:
        pytest.skip("other users may enter no folder for temporary files")
    with tempfile.TemporaryDirectory(dir=place) as name:
        os.chmod(name, 0o755)
        yield Path(name)


def reset_log() -> None:
    """Give `log` and the console the values that they have in a new process."""
    vars(log).update(_LOG)
    vars(console).update(vars(Console()))


def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let reads of URLs be tried again without a pause."""
    monkeypatch.setattr("bloscpack._storage.remote.FIRST_DELAY", 0.01)


def keep_little(monkeypatch: pytest.MonkeyPatch, nbytes: int, entries: int) -> None:
    """Let a stream of unknown length keep few bytes, and reserve few table entries."""
    for name, value in {
        "KEPT_NBYTES": nbytes,
        "RESERVED_ENTRIES": entries,
        "GROWTH": 1,
        "RUN_TO_COMPRESS": nbytes // 3,
        "MOVED_AT_A_TIME": 10_000,
    }.items():
        monkeypatch.setattr("bloscpack._file.stream_writing." + name, value)


@contextlib.contextmanager
def another_writer(path: str | Path) -> Iterator[None]:
    """Lock a file as a writer does that is at work."""
    with open_locked(path):
        yield


def reset_signals() -> None:
    """Give the signals that end a process their default action.

    A shell lets a job in the background ignore them, and so would the processes that
    tests start.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)


def copied_sample(folder: Path, name: str, into: Path) -> Path:
    """Return a copy of a sample, or of a part of one with all that is around it."""
    whole = name.partition("/")[0]
    source, target = folder / whole, into / whole
    (shutil.copytree if source.is_dir() else shutil.copyfile)(source, target)
    return into / name
