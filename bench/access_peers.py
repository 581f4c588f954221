"""The table of peers of ``bench_access.py``: arrays in files that are read in parts.

A peer writes an array with the chunks that it gets. It opens a file, or its URL if it
can, and returns an object that takes an index, and a function that closes it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import bloscpack as bp
from bloscpack import dataset

CLEVEL = 5

Chunks = tuple[int, ...]
# An array that can be indexed, and a function that closes it.
Opened = tuple[Any, Callable[[], object]]


class Peer(NamedTuple):
    """Writes and opens files; `open_url` is None if it can't open a URL.

    `appends` opens a file for changes, and returns functions that append rows and that
    close it.
    """

    write: Callable[[np.ndarray, Path, Chunks], object]
    open: Callable[[str], Opened]
    open_url: Callable[[str], Opened] | None = None
    is_compressed: bool = True
    appends: Callable[[str], Opened] | None = None


def saved() -> Peer:
    """Array files of `save`, whose blocks can be read alone."""

    def write(array: np.ndarray, path: Path, chunks: Chunks) -> None:
        size = array[: chunks[0]].nbytes
        settings = {"cname": "lz4", "clevel": CLEVEL, "shuffle": 1}
        bp.save(path, array, chunk_size=size, sync=False, **settings)

    return bloscpack()._replace(write=write)


def bloscpack(**options: Any) -> Peer:
    def write(array: np.ndarray, path: Path, chunks: Chunks) -> None:
        bp.pack_ndarray_to_file(
            array,
            path,
            chunk_size=array[: chunks[0]].nbytes,
            blosc_args=bp.BloscArgs(cname="lz4", clevel=CLEVEL),
            **options,
        )

    def open_it(name: str) -> Opened:
        array = bp.open_ndarray(name)
        return array, array.close

    return Peer(write, open_it, open_it)


def bloscpack_dataset(layout: str) -> Peer:
    def write(array: np.ndarray, path: Path, chunks: Chunks) -> None:
        settings = {"cname": "lz4", "clevel": CLEVEL, "layout": layout}
        # A superchunk is cut along its rows only.
        cut = chunks if layout == "zarr" else chunks[0]
        dataset.create_array(path, array, chunks=cut, sync=False, **settings).close()

    def open_it(name: str) -> Opened:
        array = dataset.open(name)
        return array, array.close

    def appends(name: str) -> Opened:
        array = dataset.open(name, "r+", sync=False)
        return array.append, array.close

    return Peer(write, open_it, open_it, appends=appends)


def memmap() -> Peer:
    def write(array: np.ndarray, path: Path, chunks: Chunks) -> None:
        with open(path, "wb") as fp:
            np.save(fp, array)

    def open_it(name: str) -> Opened:
        return np.load(name, mmap_mode="r"), lambda: None

    return Peer(write, open_it, is_compressed=False)


def zarr(sharded: bool = False) -> Peer:
    import zarr

    blosc = zarr.codecs.BloscCodec(cname="lz4", clevel=CLEVEL, shuffle="shuffle")

    def write(array: np.ndarray, path: Path, chunks: Chunks) -> None:
        shards = {}
        if sharded:  # the shards have the shape that a dataset gives them
            like = path.with_suffix(".like")
            made = {"shape": array.shape, "dtype": array.dtype, "chunks": chunks}
            with dataset.create_array(like, **made) as found:
                shards = {"shards": found.shards}
        zarr.create_array(
            str(path), data=array, chunks=chunks, compressors=blosc, **shards
        )

    def open_it(name: str) -> Opened:
        return zarr.open_array(name, mode="r"), lambda: None

    def appends(name: str) -> Opened:
        return zarr.open_array(name, mode="r+").append, lambda: None

    return Peer(write, open_it, open_it, appends=appends)


def blosc2() -> Peer:
    import blosc2

    def write(array: np.ndarray, path: Path, chunks: Chunks) -> None:
        blosc2.asarray(
            array,
            urlpath=str(path),
            mode="w",
            chunks=chunks,
            cparams={"codec": blosc2.Codec.LZ4, "clevel": CLEVEL},
        )

    def open_it(name: str) -> Opened:
        return blosc2.open(name, mode="r"), lambda: None

    def appends(name: str) -> Opened:
        array = blosc2.open(name, mode="a")

        def append(rows: np.ndarray) -> None:
            start = array.shape[0]
            array.resize((start + len(rows), *array.shape[1:]))
            array[start:] = rows

        return append, lambda: None

    return Peer(write, open_it, appends=appends)


def hdf5() -> Peer:
    import h5py
    import hdf5plugin

    shuffle = hdf5plugin.Blosc.SHUFFLE
    blosc = hdf5plugin.Blosc(cname="lz4", clevel=CLEVEL, shuffle=shuffle)

    def write(array: np.ndarray, path: Path, chunks: Chunks) -> None:
        with h5py.File(path, "w") as fp:
            shape = (None, *array.shape[1:])
            fp.create_dataset("a", data=array, chunks=chunks, maxshape=shape, **blosc)

    def open_it(name: str) -> Opened:
        fp = h5py.File(name)
        return fp["a"], fp.close

    def open_url(url: str) -> Opened:
        import fsspec

        raw = fsspec.open(url, cache_type="first").open()
        fp = h5py.File(raw)

        def close() -> None:
            fp.close()
            raw.close()

        return fp["a"], close

    def appends(name: str) -> Opened:
        fp = h5py.File(name, "r+")
        array = fp["a"]

        def append(rows: np.ndarray) -> None:
            start = len(array)
            array.resize(start + len(rows), 0)
            array[start:] = rows

        return append, fp.close

    return Peer(write, open_it, open_url, appends=appends)


TABLE: dict[str, Callable[[], Peer]] = {
    ".blp": saved,
    ".blp crc32c": lambda: bloscpack(checksum="crc32c"),
    ".blp adler32": bloscpack,
    ".blp no digests": lambda: bloscpack(checksum="None"),
    "dataset": lambda: bloscpack_dataset("zarr"),
    "superchunk": lambda: bloscpack_dataset("superchunk"),
    "zarr": zarr,
    "zarr shard": lambda: zarr(sharded=True),
    "blosc2": blosc2,
    "h5py": hdf5,
    "np.memmap": memmap,
}
# Those that are measured unless others are named.
USUAL = ".blp", "dataset", "blosc2", "h5py", "zarr"
