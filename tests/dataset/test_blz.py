"""Datasets of BLZ are read; other layouts are written."""

from __future__ import annotations

import json
import os

import dataset.golden_directories as golden
import numpy as np
import pytest

from bloscpack import dataset
from bloscpack.exceptions import UsageError

REFUSED = "can only be read: create one of the layout 'bcolz' or 'zarr', and copy"


def first(kind):
    """Return the name of a golden dataset of BLZ of this kind."""
    found = golden.entries().items()
    return next(name for name, entry in found if entry["kind"] == kind)


@pytest.mark.parametrize(
    "create",
    [
        lambda path: dataset.create_array(path, [1], layout="blz"),
        lambda path: dataset.create_array(path, [1], layout="blz", cname="lz4"),
        lambda path: dataset.create_table(path, {"a": [1]}, layout="blz"),
    ],
)
def test_none_are_created(tmp_path, create):
    with pytest.raises(UsageError, match=REFUSED):
        create(tmp_path / "new")
    assert [] == os.listdir(tmp_path)


@pytest.mark.parametrize("kind", ["barray", "btable"])
def test_none_are_changed(tmp_path, kind):
    path = tmp_path / "a"
    golden.extract(first(kind), path)
    before = dataset.open(path)[:]
    with pytest.raises(UsageError, match=REFUSED):
        dataset.open(path, "r+")
    assert not (path / ".bloscpack").exists()
    assert before.tobytes() == dataset.open(path)[:].tobytes()


@pytest.mark.parametrize("layout", ["bcolz", "zarr"])
@pytest.mark.parametrize("name", ["blz/num_i4", "blz/btable_mixed"])
def test_they_are_copied(tmp_path, name, layout):
    golden.extract(name, tmp_path / "old")
    dataset.convert(tmp_path / "old", tmp_path / ("new." + layout))
    old, new = (
        dataset.open(tmp_path / "old"),
        dataset.open(tmp_path / ("new." + layout)),
    )
    assert (layout, old.shape) == (new.layout, new.shape)
    names = getattr(old, "names", [Ellipsis])
    for name in names:
        assert old[name][:].tobytes() == new[name][:].tobytes()


def test_columns_in_folders_of_other_names(tmp_path):
    path = tmp_path / "t"
    golden.extract("blz/btable_mixed", path)
    expected = dataset.open(path)
    name = expected.names[0]
    os.rename(path / name, path / "other")
    stored = json.loads((path / "__rootdirs__").read_text())
    stored["dirs"] = {**stored["dirs"], name: "/old/place/other/", "gone": "gone"}
    (path / "__rootdirs__").write_text(json.dumps(stored))
    found = dataset.open(path)
    assert expected.names == found.names
    values = golden.values("blz/btable_mixed")[name]
    assert np.asarray(values).tobytes() == found[name][:].tobytes()
    assert dataset.verify(path).ok
