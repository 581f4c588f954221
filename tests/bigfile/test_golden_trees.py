"""Trees that the package bigfile 0.1.52 wrote, read here."""

from __future__ import annotations

import functools
import json
import shutil

import numpy as np
import pytest
from support import GOLDEN

from bloscpack import bigfile
from bloscpack.bigfile import attributes, header

FOLDER = GOLDEN / "directories"
ENTRIES = json.loads((FOLDER / "bigfile" / "MANIFEST.json").read_text("ascii"))[
    "datasets"
]
NAMES = [entry["id"].partition("/")[2] for entry in ENTRIES]
# The header of a block without any data in its files promises rows.
NEVER_WRITTEN = {"unwritten": ["never"]}
# Rows were written twice: the sums in the header count the old bytes as well.
WRITTEN_TWICE = ["rewrite"]


@functools.cache
def entry(name):
    return ENTRIES[NAMES.index(name)]


def open_golden(name):
    return bigfile.File(FOLDER / entry(name)["path"])


def expected_values(name):
    return np.load(FOLDER / entry(name)["expected"]["values"], allow_pickle=False)


def same(one, other):
    """Return whether two arrays have the same type, shape and items."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")


@pytest.mark.parametrize("name", NAMES)
def test_values(name):
    tree = open_golden(name)
    for block, values in expected_values(name).items():
        column = tree[block]
        assert same(values, column[:])
        assert same(values[1:-1], column[1:-1])
        assert same(values[::-2], column[::-2])
        assert same(values, np.asarray(column))


@pytest.mark.parametrize("name", NAMES)
def test_attributes(name):
    tree = open_golden(name)
    wanted = json.loads((FOLDER / entry(name)["expected"]["attrs"]).read_text())
    legacy = entry(name).get("legacy_attrs", {})
    for block, attrs in wanted["blocks"].items():
        attrs = attrs or legacy.get(block, {})
        found = (tree if block == "." else tree[block]).attrs
        assert sorted(attrs, key=str.encode) == list(found)
        for key, fields in attrs.items():
            raw = found.raw(key)
            assert fields["dtype"] == raw.dtype_name
            assert fields["nmemb"] == raw.nmemb
            assert fields["hex"] == raw.data.hex().upper()
            if "text" in fields and raw.is_text:
                assert fields["text"] == found[key]
            if "values" in fields and raw.dtype.kind in "iu":
                assert fields["values"] == found[key].tolist()
                assert raw.dtype == found[key].dtype


@pytest.mark.parametrize("name", NAMES)
def test_texts_are_written_like_the_original_does(name):
    folder = FOLDER / entry(name)["path"]
    for path in folder.rglob("header"):
        assert path.read_bytes() == header.encode(header.decode(path.read_bytes()))
    for path in folder.rglob("attr-v2"):
        found = attributes.decode(path.read_bytes())
        assert path.read_bytes() == attributes.encode(found)


@pytest.mark.parametrize("name", NAMES)
def test_verify(name):
    report = bigfile.verify(FOLDER / entry(name)["path"])
    assert len(entry(name)["blocks"]) == report.nblocks
    kinds = {finding.kind for finding in report.findings}
    if name in NEVER_WRITTEN:
        assert {"short"} == kinds
        assert NEVER_WRITTEN[name] == [finding.block for finding in report.findings]
    elif name in WRITTEN_TWICE:
        assert {"checksum"} == kinds
    else:
        assert report.ok
        assert [] == report.findings


@pytest.mark.parametrize("name", NAMES)
def test_written_again_the_files_are_equal(name, tmp_path):
    tree = open_golden(name)
    new = bigfile.File(tmp_path / "new", create=True)
    for block in set(tree.blocks) - set(NEVER_WRITTEN.get(name, ())):
        with bigfile.copy(tree, block, new):
            pass
        copied = tmp_path / "new" / block
        for path in (FOLDER / entry(name)["path"] / block).iterdir():
            # NumPy splits rows evenly; an append has made files of its own.
            if name in ("append", *WRITTEN_TWICE) or path.name == "attr":
                continue
            assert path.read_bytes() == (copied / path.name).read_bytes()


def test_legacy_attributes_move_to_the_new_file(tmp_path):
    shutil.copytree(FOLDER / entry("attr_v1")["path"], tmp_path / "t")
    for path in (tmp_path / "t").rglob("*"):
        path.chmod(0o755)
    attrs = bigfile.File(tmp_path / "t")["old"].attrs
    assert [1.5, -2.0] == attrs["x"].tolist()
    assert ["h", "e", "y"] == attrs["name"]
    attrs["n"] = 8
    again = bigfile.File(tmp_path / "t")["old"].attrs
    assert ["n", "name", "x"] == list(again)
    assert [8] == again["n"].tolist()
    del again["x"]
    assert ["n", "name"] == list(bigfile.File(tmp_path / "t")["old"].attrs)


def test_a_table_of_columns():
    tree = open_golden("snapshot")
    values = expected_values("snapshot")
    table = bigfile.Dataset(tree["0/"], ["Position", "Velocity"])
    position, velocity = values["0/Position"], values["0/Velocity"]
    assert ("Position", "Velocity") == table.dtype.names
    assert (len(position),) == table.shape
    part = table[3:9]
    assert same(position[3:9], part["Position"])
    assert same(velocity[3:9], part["Velocity"])
    assert position[5].tolist() == table[5]["Position"].tolist()
    assert same(part, table.read(3, 6))
    assert same(position, table["Position"][:])
    assert ("Velocity",) == table[["Velocity"]].dtype.names
    assert set(tree["0/"].blocks) == set(bigfile.Dataset(tree["0/"]).dtype.names)
    assert ("ID", "Mass") == tree["0/"][["ID", "Mass"]].dtype.names
