"""A flipped bit in a document that lists files of a change: old, new, or an error.

Half of the files have their names. A program that misses the list reads a mixture.
"""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from valid.make_datasets import (
    NUMBERS,
    OPTIONS,
    files_of,
    made,
    pending,
    pending_superchunk,
    superchunk_column_added,
    with_list,
    write_files,
)

from bloscpack import dataset
from bloscpack.exceptions import BloscpackError


def array():
    """Return an array of which one of two new shards is in place."""
    new = [*NUMBERS[:16] + 100, *NUMBERS[16:]]
    return pending(applied=True), "zarr.json", {"": NUMBERS}, {"": new}


def table():
    """Return a table that becomes shorter: of one column, the shard is removed."""

    def write(length):
        def create(path):
            columns = {"x": np.arange(12), "y": np.arange(12) + 100}
            with dataset.create_table(path, columns, **OPTIONS) as opened:
                opened.resize(16)  # now the columns are sparse
                opened.resize(length)

        return made(create)

    old, new = write(12), write(8)
    files = {**old, "zarr.json": new["zarr.json"]}
    del files["x/c/1"]
    files = with_list(files, {"x/c/1": None, "y/c/1": None})
    x = np.arange(12)
    expected = {"x": x, "y": x + 100}
    return files, "zarr.json", expected, {n: v[:8] for n, v in expected.items()}


def superchunk():
    files = pending_superchunk()
    files["data/__1__.bin"] = files.pop(".bloscpack/1f-0")
    new = [*NUMBERS[:8] + 100, *NUMBERS[8:]]
    return files, "meta/sizes", {"": NUMBERS}, {"": new}


def superchunk_table():
    files = superchunk_column_added()
    files["meta/storage"] = files.pop(".bloscpack/1f-0")
    old = {"x": np.arange(6)}
    return files, "meta/sizes", old, {**old, "y": np.arange(6.0)}


def read(path):
    """Return the columns, and an array under the empty name."""
    with dataset.open(path) as opened:
        if isinstance(opened, dataset.Array):
            return {"": opened[...]}
        return {name: column[...] for name, column in opened.columns.items()}


def is_state(found, state):
    """Return whether items are those of a state.

    A flipped shape of an array is taken for that of another program; further rows have
    the fill value then.
    """
    if found.keys() != state.keys():
        return False
    return all(
        np.array_equal(items[: len(state[name])], state[name][: len(items)])
        and np.unique(items[len(state[name]) :]).size < 2
        for name, items in found.items()
    )


@pytest.mark.parametrize("make", [array, table, superchunk, superchunk_table])
@pytest.mark.parametrize("step", [31, pytest.param(1, marks=pytest.mark.slow)])
def test_flipped_bits(make, step, tmp_path):
    files, document, old, new = make()
    path = tmp_path / "d"
    write_files(files, path)
    assert is_state(read(path), new)
    content = files[document]
    for bit in range(0, 8 * len(content), step):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        (path / document).write_bytes(flipped)
        for mode in "r", "r+":  # a writer completes the change
            try:
                dataset.open(path, mode).close()
                found = read(path)
            except (BloscpackError, OSError):
                continue
            where = bit, content[bit // 8 - 30 : bit // 8 + 10]
            assert is_state(found, old) or is_state(found, new), where
        if files != files_of(path):
            shutil.rmtree(path)
            write_files(files, path)
