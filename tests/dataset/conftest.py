"""Fixtures of the tests of datasets."""

import numpy as np
import pytest

from bloscpack import dataset


@pytest.fixture
def group(tmp_path):
    """An array, a group with an array, and a table, in a group open for changes."""
    with dataset.create_group(tmp_path / "g", sync=False) as made:
        made["a"] = np.arange(12.0).reshape(6, 2)
        made["in/b"] = [1, 2, 3]
        made["t"] = {"x": [1, 2], "s": ["u", "<v>"]}
        yield made


@pytest.fixture(params=["folder", "memory"])
def path(request, tmp_path):
    """The path of a new dataset in a folder, and its URL in memory."""
    fsspec = pytest.importorskip("fsspec")
    url = "memory://dataset-%d/g" % id(request)
    yield str(tmp_path / "g") if request.param == "folder" else url
    fsspec.filesystem("memory").store.clear()
