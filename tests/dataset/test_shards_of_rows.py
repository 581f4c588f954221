"""Shards whose metadata state rows, the last of which are in a short chunk.

New shards have full chunks. The files of `tests/valid` were written before.
"""

import shutil

import numpy as np
import pytest
from support import TESTS

import bloscpack as bp
from bloscpack import dataset

NAMES = [
    *("rows-zarr-array", "rows-zarr-two-axes"),
    *("rows-superchunk-array", "rows-superchunk-fields"),
]


@pytest.fixture(params=NAMES)
def path(request, tmp_path):
    found = tmp_path / "rows"
    shutil.copytree(TESTS / "valid" / "datasets" / request.param, found)
    return found


def containers(path):
    """Return the containers that the metadata of the shards state."""
    folder = path / "c" if (path / "c").exists() else path / "data"
    files = (str(file) for file in folder.rglob("*") if file.is_file())
    return {bp.unpack_bytes_from_file(file)[1]["container"] for file in files}


def check(path, expected):
    with dataset.open(path) as array:
        np.testing.assert_array_equal(expected, array[:])
    assert dataset.verify(path).ok


def test_every_change(path):
    assert {"numpy"} == containers(path)
    with dataset.open(path, "r+") as array:
        items = array[:]
        assert len(items) % array.chunks[0] or len(items) % array.shards[0]
        array.append(items[:3])
        expected = np.concatenate([items, items[:3]])
        check(path, expected)
        array[1] = expected[1] = items[-1]
        array[-2] = expected[-2] = items[0]
        check(path, expected)
        array.resize(len(items) - 1)
        array.resize(len(items) + 30)
        expected = np.full(array.shape, array.fill_value, array.dtype)
        expected[: len(items) - 1] = items[:-1]
        expected[1] = items[-1]
        check(path, expected)
    assert "grid" in containers(path)
