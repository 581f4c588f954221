"""What several test modules share: the golden files, and file objects like pipes."""

from __future__ import annotations

import functools
import hashlib
import io
import itertools
import json
import os
import signal
from pathlib import Path

from golden import content

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

    The settings of Python and Blosc on this machine are left out. PYTHONUNBUFFERED, for
    example, hides whatever goes wrong when a buffer is written at exit.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in PYTHON_KEPT or not name.startswith(("PYTHON", "BLOSC_"))
    }
    paths = [str(ROOT), *filter(None, [kept.get("PYTHONPATH")])]
    return kept | {"PYTHONPATH": os.pathsep.join(paths)} | changes


@functools.cache
def manifest() -> dict:
    """Return what is known of the golden files; see golden/README.rst."""
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


class ShortReads(io.RawIOBase):
    """A file object like a pipe: it can't seek, and gives less than it is asked for.

    The n-th read gives at most the n-th of `sizes`, which begin again at their end.
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


def heed_signals() -> None:
    """Let signals end this process, though a job in the background ignores them.

    So do then the processes that it starts.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
