"""The table of peers of ``bench_dataset.py``: arrays and tables that grow, in folders.

All peers get the same chunks, codec, level and filter. A peer creates an empty array or
a table, and returns an object with `append`, `read`, `close`, and `column` for a table.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import bloscpack as bp
from bloscpack import dataset

CLEVEL = 5
# Number of chunks in a file, for the peers whose files have several chunks.
SLOTS = 16


class Peer:
    """What all peers share."""

    create_table: Any = None

    def shut(self, opened: Any) -> None:
        """Close what was opened for reading."""


class Dataset(Peer):
    """Arrays and tables of this library; `sync` waits for the disk at each change.

    With `buffered`, rows wait in memory for a full shard, as those of bcolz and HDF5
    wait for a full chunk.
    """

    def __init__(self, layout: str = "zarr", sync: bool = False, **more: bool) -> None:
        self._options = {"layout": layout, "sync": sync, "cname": "lz4", **more}
        self._options |= {"clevel": CLEVEL}

    def _with_chunks(self, chunk: int) -> dict[str, Any]:
        shards = {} if self._options["layout"] == "bcolz" else {"shards": chunk * SLOTS}
        return {**self._options, "chunks": chunk, **shards}

    def create(self, path: Path, dtype: Any, chunk: int) -> Any:
        return dataset.create_array(
            path, shape=(0,), dtype=dtype, **self._with_chunks(chunk)
        )

    def create_table(self, path: Path, dtype: Any, chunk: int) -> Any:
        return dataset.create_table(path, dtype=dtype, **self._with_chunks(chunk))

    def open(self, path: Path) -> Any:
        return dataset.open(path)

    def append(self, array: Any, rows: np.ndarray) -> None:
        array.append(rows)

    def read(self, array: Any, key: Any) -> np.ndarray:
        return array[key]

    def column(self, table: Any, name: str) -> np.ndarray:
        return table[name][:]

    def close(self, array: Any) -> None:
        array.close()

    shut = close


class File(Peer):
    """One `.blp` file for the array, in place of a folder of shards."""

    def create(self, path: Path, dtype: Any, chunk: int) -> Any:
        return path, chunk * np.dtype(dtype).itemsize

    def open(self, path: Path) -> Any:
        return path

    def append(self, array: Any, rows: np.ndarray) -> None:
        path, chunk_size = array
        if path.exists():
            bp.append_ndarray_to_file(rows, path, sync=False)
            return
        bp.pack_ndarray_to_file(
            rows,
            path,
            chunk_size=chunk_size,
            shard=True,
            cname="lz4",
            clevel=CLEVEL,
            max_app_chunks=1000,
        )

    def read(self, array: Any, key: Any) -> np.ndarray:
        if key is ...:
            return bp.unpack_ndarray_from_file(array)
        with bp.open_ndarray(array) as lazy:
            return lazy[key]

    def close(self, array: Any) -> None:
        pass


class Bcolz(Peer):
    """The genuine bcolz."""

    def __init__(self) -> None:
        import bcolz

        self._bcolz = bcolz
        self._params = bcolz.cparams(clevel=CLEVEL, shuffle=1, cname="lz4")

    def create(self, path: Path, dtype: Any, chunk: int) -> Any:
        return self._bcolz.carray(
            np.empty(0, dtype),
            rootdir=str(path),
            mode="w",
            chunklen=chunk,
            cparams=self._params,
        )

    def create_table(self, path: Path, dtype: Any, chunk: int) -> Any:
        return self._bcolz.ctable(
            np.empty(0, dtype),
            rootdir=str(path),
            mode="w",
            chunklen=chunk,
            cparams=self._params,
        )

    def open(self, path: Path) -> Any:
        return self._bcolz.open(str(path), mode="r")

    def append(self, array: Any, rows: np.ndarray) -> None:
        array.append(rows)

    def read(self, array: Any, key: Any) -> np.ndarray:
        return array[:] if key is ... else array[key]

    def column(self, table: Any, name: str) -> np.ndarray:
        return table[name][:]

    def close(self, array: Any) -> None:
        array.flush()


class Zarr(Peer):
    """zarr-python, with the same shards or with a file for each chunk."""

    def __init__(self, sharded: bool) -> None:
        import zarr

        self._zarr = zarr
        self._sharded = sharded
        self._codec = zarr.codecs.BloscCodec(
            cname="lz4", clevel=CLEVEL, shuffle="shuffle"
        )

    def _create(self, path: Path, dtype: Any, chunk: int) -> Any:
        shards = {"shards": (chunk * SLOTS,)} if self._sharded else {}
        return self._zarr.create_array(
            str(path),
            shape=(0,),
            dtype=dtype,
            chunks=(chunk,),
            compressors=self._codec,
            **shards,
        )

    create = _create

    def create_table(self, path: Path, dtype: Any, chunk: int) -> Any:
        dtype = np.dtype(dtype)
        return {n: self._create(path / n, dtype[n], chunk) for n in dtype.names or ()}

    def open(self, path: Path) -> Any:
        if (path / "zarr.json").exists():
            return self._zarr.open_array(str(path), mode="r")
        names = sorted(each.name for each in path.iterdir())
        return {n: self._zarr.open_array(str(path / n), mode="r") for n in names}

    def append(self, array: Any, rows: np.ndarray) -> None:
        if isinstance(array, dict):
            for name, column in array.items():
                column.append(rows[name])
        else:
            array.append(rows)

    def read(self, array: Any, key: Any) -> np.ndarray:
        return array[key]

    def column(self, table: Any, name: str) -> np.ndarray:
        return table[name][:]

    def close(self, array: Any) -> None:
        pass


class PyTables(Peer):
    """PyTables: one HDF5 file, with Blosc as its filter."""

    def __init__(self) -> None:
        import tables

        self._tables = tables
        self._filters = tables.Filters(CLEVEL, complib="blosc:lz4", shuffle=True)

    def create(self, path: Path, dtype: Any, chunk: int) -> Any:
        file = self._tables.open_file(str(path), "w")
        atom = self._tables.Atom.from_dtype(np.dtype(dtype))
        options = {"filters": self._filters, "chunkshape": (chunk,)}
        return file.create_earray("/", "a", atom, (0,), **options)

    def create_table(self, path: Path, dtype: Any, chunk: int) -> Any:
        file = self._tables.open_file(str(path), "w")
        options = {"filters": self._filters, "chunkshape": (chunk,)}
        return file.create_table("/", "a", np.dtype(dtype), **options)

    def open(self, path: Path) -> Any:
        return self._tables.open_file(str(path)).root.a

    def append(self, array: Any, rows: np.ndarray) -> None:
        array.append(rows)

    def read(self, array: Any, key: Any) -> np.ndarray:
        return array[:] if key is ... else array[key]

    def column(self, table: Any, name: str) -> np.ndarray:
        return table.col(name)

    def close(self, array: Any) -> None:
        array._v_file.close()

    shut = close


TABLE: dict[str, Callable[[], Any]] = {
    "dataset": Dataset,
    "dataset, sync": lambda: Dataset(sync=True),
    "dataset, buffered": lambda: Dataset(buffered=True),
    "superchunk": lambda: Dataset("superchunk"),
    "one .blp file": File,
    "bcolz": Bcolz,
    "zarr": lambda: Zarr(sharded=False),
    "zarr, shards": lambda: Zarr(sharded=True),
    "PyTables": PyTables,
}
