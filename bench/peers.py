"""The table of peers: other ways to store an array in a file.

A write function takes an array and a new path. A read function takes a path and returns
an array, bytes, or the path of a plain file. For a peer that is not installed the table
has the reason.
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import bloscpack as bp

CHUNK = 2**20
# Codec → level of Blosc, for every peer that uses it; zstd at level 7 is far slower.
CLEVELS = {"lz4": 7, "zstd": 3}


class Peer(NamedTuple):
    """A write function and a read function; a command reads a plain file."""

    write: Callable[[np.ndarray, Path], Any]
    read: Callable[[Path], Any]
    is_command: bool = False


def items_of_chunk(array: np.ndarray) -> tuple[int]:
    return (min(CHUNK // array.itemsize, array.size),)


def bloscpack(codec: str) -> Peer:
    settings = bp.BloscArgs(cname=codec, clevel=CLEVELS[codec])

    def write(array: np.ndarray, path: Path) -> None:
        bp.pack_ndarray_to_file(array, path, blosc_args=settings)

    return Peer(write, bp.unpack_ndarray_from_file)


def save() -> Peer:
    def write(array: np.ndarray, path: Path) -> None:
        with open(path, "wb") as fp:
            np.save(fp, array)

    return Peer(write, np.load)


def savez() -> Peer:
    def write(array: np.ndarray, path: Path) -> None:
        with open(path, "wb") as fp:
            np.savez_compressed(fp, array)

    def read(path: Path) -> np.ndarray:
        with np.load(path) as arrays:
            return arrays["arr_0"]

    return Peer(write, read)


def gzip_module() -> Peer:
    def write(array: np.ndarray, path: Path) -> None:
        with gzip.open(path, "wb", compresslevel=6) as fp:
            fp.write(memoryview(array).cast("B"))

    def read(path: Path) -> bytes:
        with gzip.open(path) as fp:
            return fp.read()

    return Peer(write, read)


def plain_of(path: Path) -> Path:
    """Return the path of the plain file for a command."""
    return path.with_suffix(".plain")


def command(name: str, *options: str) -> Peer:
    if shutil.which(name) is None:
        raise ImportError("no command %r" % name)
    start = [name, *options, "-q", "-f"]
    output = ["-o"] if name == "zstd" else []

    def write(array: np.ndarray, path: Path) -> None:
        subprocess.run([*start, plain_of(path), *output, path], check=True)

    def read(path: Path) -> Path:
        target = path.with_suffix(".out")
        done = subprocess.run(
            [*start, "-d", path, *output, target], stderr=subprocess.PIPE
        )
        if done.returncode:
            raise ValueError("%s: %r" % (name, done.stderr))
        return target

    return Peer(write, read, is_command=True)


def blosc2(codec: str) -> Peer:
    import blosc2

    cparams = {"codec": blosc2.Codec[codec.upper()], "clevel": CLEVELS[codec]}

    def write(array: np.ndarray, path: Path) -> None:
        blosc2.asarray(
            array,
            urlpath=str(path),
            mode="w",
            chunks=items_of_chunk(array),
            cparams=cparams,
        )

    return Peer(write, lambda path: blosc2.open(str(path), mode="r")[:])


def zarr(codec: str) -> Peer:
    import zarr

    level = CLEVELS[codec]
    blosc = zarr.codecs.BloscCodec(cname=codec, clevel=level, shuffle="shuffle")

    def write(array: np.ndarray, path: Path) -> None:
        zarr.create_array(
            str(path), data=array, chunks=items_of_chunk(array), compressors=blosc
        )

    return Peer(write, lambda path: zarr.open_array(str(path), mode="r")[:])


def hdf5(codec: str) -> Peer:
    import h5py
    import hdf5plugin

    shuffle = hdf5plugin.Blosc.SHUFFLE
    blosc = hdf5plugin.Blosc(cname=codec, clevel=CLEVELS[codec], shuffle=shuffle)

    def write(array: np.ndarray, path: Path) -> None:
        with h5py.File(path, "w") as fp:
            fp.create_dataset("a", data=array, chunks=items_of_chunk(array), **blosc)

    def read(path: Path) -> np.ndarray:
        with h5py.File(path) as fp:
            return fp["a"][:]

    return Peer(write, read)


# Programs that use Blosc, each with each codec at the same level.
WITH_BLOSC = {
    "bloscpack": bloscpack,
    "blosc2": blosc2,
    "zarr 3, Blosc": zarr,
    "h5py, Blosc": hdf5,
}
TABLE: dict[str, Callable[[], Peer]] = {
    **{
        "%s %s" % (name, codec): partial(make, codec)
        for name, make in WITH_BLOSC.items()
        for codec in CLEVELS
    },
    "np.save": save,
    "np.savez_compressed": savez,
    "gzip.open, level 6": gzip_module,
    "zstd -T0": lambda: command("zstd", "-T0"),
    "lz4": lambda: command("lz4"),
}


def available(table: dict[str, Callable[[], Any]]) -> tuple[dict, dict[str, str]]:
    """Return the available peers of a table, and the reasons why others are missing."""
    there, missing = {}, {}
    for name, make in table.items():
        try:
            there[name] = make()
        except (ImportError, AttributeError) as error:
            missing[name] = str(error)
    return there, missing


def files_of(path: Path) -> list[Path]:
    """Return the files that a peer wrote: one file, or the files in a folder."""
    found = path.rglob("*") if path.is_dir() else [path]
    return [file for file in found if file.is_file()]


def size_of(path: Path) -> int:
    return sum(os.path.getsize(file) for file in files_of(path))


def remove(path: Path) -> None:
    """Remove the files of a peer."""
    if path.is_dir():
        shutil.rmtree(path)
    for file in (path, path.with_suffix(".out")):
        file.unlink(missing_ok=True)
