"""The invalid archives and datasets: refused as `datasets/MANIFEST.json` says."""

from __future__ import annotations

import json

import pytest
from format.agreement import read_here, refusals
from invalid import make_datasets
from support import TESTS, copied_sample
from valid.make_datasets import files_of, write_sample

FOLDER = TESTS / "invalid" / "datasets"
MANIFEST = json.loads((FOLDER / "MANIFEST.json").read_text("ascii"))
each_sample = pytest.mark.parametrize("name", MANIFEST)


@pytest.mark.every_case
@each_sample
def test_refused(name, tmp_path):
    path = copied_sample(FOLDER, MANIFEST[name]["path"], tmp_path)
    refused = refusals(read_here(path))
    found = {place: each.reason for place, each in refused.items()}
    assert MANIFEST[name]["refused"] == found
    assert MANIFEST[name]["verdict"] == make_datasets.verdict(name, refused)
    assert (name in make_datasets.CHECKER) == (found == {})


@each_sample
def test_findings(name, tmp_path):
    found = make_datasets.findings(
        copied_sample(FOLDER, MANIFEST[name]["path"], tmp_path)
    )
    assert MANIFEST[name]["findings"] == found != []


@each_sample
def test_exit_codes(name, tmp_path, run):
    """3 for damage; 1 if it is uncertain, or for what is not supported."""
    entry = MANIFEST[name]
    path = copied_sample(FOLDER, entry["path"], tmp_path)
    expected = {"unsupported": 1}.get(entry["verdict"], 3)
    if entry["findings"] == ["archive unsupported"]:  # other members are right
        expected = 0
    code, _, errors = run("verify", path)
    assert (name, expected) == (name, code), errors


@each_sample
def test_made_again(name, tmp_path):
    rules, make = make_datasets.SAMPLES[name]
    stored = FOLDER / MANIFEST[name]["path"]
    assert files_of(stored) == files_of(write_sample(tmp_path, name, make()))
    assert rules.split() == MANIFEST[name]["rules"]
