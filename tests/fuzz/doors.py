"""Fuzzing of the files of other formats: CSV, Parquet, HDF5, netCDF and NumPy.

An input is the name of a file and its bytes. It is converted, described and compared in
a process of its own: the libraries that read these formats are written in C, and some
of them need minutes for a damaged file, which no signal handler interrupts.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import select
import shutil
import signal
import tempfile
import warnings
from pathlib import Path

import numpy as np
from fuzz import parts
from fuzz.files import change_some_bytes
from fuzz.outcomes import Broken

from bloscpack import cli, dataset, exceptions

Refusal = (exceptions.BloscpackError, OSError)
SECONDS = 8
TARGETS = ("zarr", "npz", "parquet", "hdf5", "csv")
VERBS = ("info", "list", "show", "diff")
# A damaged file of HDF5 may keep its library busy, or end the process.
UNBOUNDED = (".h5", ".nc")


def import_all() -> None:
    """Import what is imported when it is needed, and start no thread."""
    with tempfile.TemporaryDirectory() as folder:
        for number, data in enumerate(seeds()):
            inner = Path(folder, str(number))
            inner.mkdir()
            call_all(data, inner)


def run(data: bytes, folder: Path) -> object:
    """Call everything with a file; return ``'ok'``, or the error of `convert`."""
    results, answers = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(answers, call_all(data, folder).encode(errors="replace")[:4000])
        except BaseException as error:
            text = "BROKEN %s: %s" % (type(error).__name__, error)
            os.write(answers, text.encode(errors="replace")[:4000])
        finally:
            os._exit(0)
    os.close(answers)
    is_unbounded = name_of(data).endswith(UNBOUNDED)
    ready, _, _ = select.select([results], [], [], SECONDS)
    found = os.read(results, 4000).decode() if ready else "hangs"
    os.close(results)
    if not ready:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    for left in folder.iterdir():
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    if found.startswith("BROKEN") or (found in ("", "hangs") and not is_unbounded):
        raise Broken(found or "the process ended")
    return found if found == "ok" else exceptions.FormatError(found)


def name_of(data: bytes) -> str:
    return data.partition(b"\n")[0].decode()


def call_all(data: bytes, folder: Path) -> str:
    """Return the names of the errors that a file leads to."""
    path = folder / name_of(data)
    path.write_bytes(data.partition(b"\n")[2])
    errors = []
    draw = len(data) + sum(data[-64:])
    target = TARGETS[draw % len(TARGETS)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            dataset.convert(path, folder / "out", to=target, sync=False)
        except Refusal as error:
            errors.append(type(error).__name__)
            if not str(error) or len(str(error)) > 5000:
                raise Broken("a message of %d characters" % len(str(error))) from error
    verb = VERBS[draw % len(VERBS)]
    names = [str(path)] * (1 + (verb == "diff"))
    out, err = (contextlib.redirect_stdout, contextlib.redirect_stderr)
    with open(os.devnull, "w") as nothing, out(nothing), err(nothing):
        try:
            cli.main([verb, *names])
        except SystemExit as error:
            if error.code not in (None, 0, 1, 2, 3):
                raise Broken("exit code %r" % error.code) from error
    return " ".join(errors) or "ok"


# The files


@functools.cache
def seeds() -> list[bytes]:
    """Return sound files of each format."""
    import h5py

    columns = {
        "i": np.arange(50),
        "f": np.linspace(0, 1, 50),
        "t": np.array(["a", "", "text, long"] * 17)[:50],
        "d": np.arange(50).astype("M8[s]"),
        "b": np.arange(50) % 3 == 0,
    }
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "a.zarr")
        dataset.create_table(source, columns).close()
        for suffix in ("csv", "parquet", "h5", "nc", "npz"):
            dataset.convert(source, os.path.join(folder, "a." + suffix))
        os.mkdir(os.path.join(folder, "b"))
        with h5py.File(os.path.join(folder, "b.h5"), "w") as file:
            data = np.arange(600.0).reshape(20, 30)
            more = {"chunks": (7, 11), "compression": "gzip", "fletcher32": True}
            file.create_dataset("g/x", data=data, **more)
            file["g/x"].attrs["unit"] = "m"
            file["t"] = ["a", "bc"]
            file["l"] = h5py.SoftLink("/g/x")
            file["c"] = np.zeros(3, [("a", "i4"), ("b", "f8", (2,))])
        np.save(os.path.join(folder, "a.npy"), columns["f"])
        np.save(os.path.join(folder, "b.npy"), np.zeros(3, [("a", "i4"), ("b", "U3")]))
        names = sorted(
            n for n in os.listdir(folder) if n[1:2] == "." and n[2:] != "zarr"
        )
        return [n.encode() + b"\n" + Path(folder, n).read_bytes() for n in names]


def made(rng: random.Random, folder: Path) -> bytes:
    """Return a file that was changed."""
    name, _, content = rng.choice(seeds()).partition(b"\n")
    for _ in range(1 + rng.randrange(3)):
        kind = rng.randrange(3)
        if kind == 0:
            content = parts.changed_text(content, rng.randrange)
        elif kind == 1 and len(content) > 8:
            content = change_some_bytes(content, rng)
        elif len(content) > 16:
            size, at = rng.choice((2, 4, 8)), rng.randrange(len(content) - 8)
            old = int.from_bytes(content[at : at + size], "little")
            new = parts.other_number(old, 8 * size, rng.randrange) % 2 ** (8 * size)
            number = new.to_bytes(size, "little")
            content = content[:at] + number + content[at + size :]
    return name + b"\n" + content
