"""The valid archives and datasets: read as `datasets/MANIFEST.json` says."""

from __future__ import annotations

import json

import numpy as np
import pytest
from format.agreement import read_here, summary
from support import TESTS, copied_sample
from valid import make_datasets

from bloscpack import dataset
from bloscpack.verify import verify

FOLDER = TESTS / "valid" / "datasets"
MANIFEST = json.loads((FOLDER / "MANIFEST.json").read_text("ascii"))
each_sample = pytest.mark.parametrize("name", MANIFEST)


@pytest.mark.every_case
@each_sample
def test_content(name, tmp_path):
    path = copied_sample(FOLDER, MANIFEST[name]["path"], tmp_path)
    assert MANIFEST[name]["content"] == summary(read_here(path))


@each_sample
def test_findings(name, tmp_path):
    report = verify(copied_sample(FOLDER, MANIFEST[name]["path"], tmp_path))
    for key, severity in ("notes", "note"), ("errors", "error"):
        found = make_datasets.kinds_of(report, severity)
        assert MANIFEST[name].get(key, []) == found


@each_sample
def test_made_again(name, tmp_path):
    rules, make = make_datasets.SAMPLES[name]
    made = make_datasets.write_sample(tmp_path, name, make())
    stored = FOLDER / MANIFEST[name]["path"].partition("/")[0]
    assert make_datasets.files_of(stored) == make_datasets.files_of(made)
    assert rules.split() == MANIFEST[name]["rules"]


@pytest.mark.parametrize("name", make_datasets.OLD)
def test_old_datasets_grow(name, tmp_path):
    path = copied_sample(FOLDER, MANIFEST[name]["path"], tmp_path)
    with dataset.open(path, "r+") as opened:
        before = opened[:]
        opened.append(before[:2])
    with dataset.open(path) as opened:
        expected = np.concatenate([before, before[:2]]).astype(before.dtype).tobytes()
        assert expected == opened[:].tobytes()
        if opened.layout == "zarr" and isinstance(opened, dataset.Table):
            document = json.loads((path / "zarr.json").read_text())
            assert [*opened.columns] == [*document["consolidated_metadata"]["metadata"]]
    assert [] == verify(path).findings


def test_every_sample_is_listed():
    assert [*make_datasets.SAMPLES] == [*MANIFEST]
    paths = {path.name for path in FOLDER.iterdir()}
    assert paths >= {entry["path"].partition("/")[0] for entry in MANIFEST.values()}
    assert len(paths) == len(MANIFEST) + 1
