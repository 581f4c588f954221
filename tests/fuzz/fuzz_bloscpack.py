"""Fuzzing: any bytes, given to any function, yield a result or an error of ours.

Bytes are made by chance, or, with atheris, guided by coverage, and given to one of the
modules beside this one, which raises `Broken` if a promise is broken. See README.rst.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import faulthandler
import importlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import warnings
import zlib
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
for folder in (TESTS, TESTS.parent):
    sys.path.insert(0, str(folder))

GUIDED = __name__ == "__main__" and "--plain" not in sys.argv
if GUIDED:
    import atheris

    watching = atheris.instrument_imports(include=["bloscpack"])
else:
    watching = contextlib.nullcontext()
with watching:
    from fuzz import archives, changes, documents, doors, dtypes, files, guarded

TARGETS = {
    "files": files,
    "chunks": guarded,
    "dtypes": dtypes,
    "changes": changes,
    "archives": archives,
    "documents": documents,
    "doors": doors,
}

LONGEST_INPUT = 4096
SECONDS_EACH = 10
MEMORY = 2 * 2**30


class TooSlow(BaseException):
    """Not an Exception, so that nothing takes it for an error it knows."""


def run_timed(run, data: bytes, folder: Path) -> object:
    """Do everything with `data`; raises `TooSlow` too."""
    signal.setitimer(signal.ITIMER_REAL, SECONDS_EACH)
    try:
        return run(data, folder)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def too_slow(*_: object) -> None:
    raise TooSlow("more than %d seconds" % SECONDS_EACH)


def prepare() -> Path:
    """Set the limits and return a new folder in memory, if there is such a place."""
    import resource  # not everywhere, but tests import this module everywhere

    warnings.simplefilter("error")
    faulthandler.enable()
    for late in ("blosc", "numpy", "hashlib", "json", "pprint", "threading", "queue"):
        importlib.import_module(late)  # has to be there before memory is limited
    signal.signal(signal.SIGALRM, too_slow)
    with open("/proc/self/statm") as fp:
        used = int(fp.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = tempfile.mkdtemp(prefix="fuzz", dir=memory)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


# The two ways to drive it


def plain(target, count: int, seed: int, seconds: float, keep: Path | None) -> int:
    """Run `count` inputs, at most `seconds`; return the number of failures."""
    if hasattr(target, "import_all"):
        target.import_all()  # before memory is limited
    folder, rng = prepare(), random.Random(seed)
    # What was run last, in case that nothing can be said any more.
    last = Path(str(folder) + ".last")
    start, done, sound = time.monotonic(), 0, 0
    failures: dict[str, bytes] = {}
    while done < count and time.monotonic() - start < seconds:
        data = target.made(rng, folder)
        last.write_bytes(data)
        try:
            sound += not isinstance(run_timed(target.run, data, folder), Exception)
        except (Exception, TooSlow) as error:
            what = "%s: %.200s" % (type(error).__name__, error)
            if what not in failures:
                failures[what] = data
                print("%s\n    %s" % (what, data.hex()), file=sys.stderr, flush=True)
                if keep is not None:
                    (keep / ("failure-%d-%d" % (seed, done))).write_bytes(data)
        done += 1
    last.unlink(missing_ok=True)
    print(
        "%d executions in %.1f s, %d with a result, %d kinds of failures"
        % (done, time.monotonic() - start, sound, len(failures))
    )
    return len(failures)


def guided(argv: list[str]) -> None:
    """Let atheris choose; `argv` are options of libFuzzer and folders of a corpus."""
    corpus = [Path(arg) for arg in argv[1:] if not arg.startswith("-")]
    for folder in corpus[:1]:
        folder.mkdir(parents=True, exist_ok=True)
        for data in files.seeds():
            name = "seed-%08x" % zlib.crc32(data)
            (folder / name).write_bytes(data)
    folder = prepare()

    def one(data: bytes) -> None:
        run_timed(files.run, data, folder)

    def mutator(data: bytes, max_size: int, seed: int) -> bytes:
        rng = random.Random(seed)
        found = files.mutated(data, rng, lambda old: atheris.Mutate(old, max_size))
        return found[:max_size]

    options = ["-max_len=%d" % LONGEST_INPUT, "-rss_limit_mb=4096", "-timeout=60"]
    atheris.Setup([argv[0], *options, *argv[1:]], one, custom_mutator=mutator)
    atheris.Fuzz()


def main() -> int:
    """Run what the arguments ask for."""
    if GUIDED:
        guided(sys.argv)
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plain", action="store_true", required=True)
    parser.add_argument("--of", choices=TARGETS, default="files", help="what is fuzzed")
    parser.add_argument("--count", type=int, default=10**9)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder for what fails")
    parser.add_argument("files", nargs="*", type=Path, help="run these, as they are")
    args = parser.parse_args()
    target = TARGETS[args.of]
    if args.files:
        folder = prepare()
        for path in args.files:
            found = run_timed(target.run, path.read_bytes(), folder)
            print("%s: %.200r" % (path, found))
        return 0
    return 1 if plain(target, args.count, args.seed, args.seconds, args.keep) else 0


if __name__ == "__main__":
    sys.exit(main())
