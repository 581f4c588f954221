"""Recovering datasets: every intact row is saved, and every lost one is named."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from pathlib import Path
from random import Random

import numpy as np
import pytest
from check.cases import frames_of
from dataset import damage_datasets as damage
from dataset import golden_directories
from dataset.layouts import LAYOUTS, SHARDED
from dataset.shard_index import index_size

import bloscpack
from bloscpack import dataset
from bloscpack.dataset import folder as dataset_folder
from bloscpack.dataset.recovery import _Saver
from bloscpack.exceptions import FormatError, StorageError, UsageError


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def snapshot(path):
    return {p: p.read_bytes() for p in sorted(Path(path).rglob("*")) if p.is_file()}


def rows_of(found):
    return [(loss.member, loss.rows) for loss in found.losses]


def kinds_of(report):
    return [f.kind for f in report.findings if f.severity == "error"]


def check_saved(recovery, expected, lost, fill=damage.FILL):
    """Check that `lost` rows have the fill value, and all others are saved."""
    assert dataset.verify("new").ok
    wanted = expected.copy()
    for start, stop in lost:
        wanted[start:stop] = fill
    found = dataset.open("new")
    assert wanted.tolist() == found[:].tolist()
    attributes = found.attrs.asdict()
    note = attributes.pop("bloscpack_recovered", None)
    assert attributes == {"unit": "m"}
    assert (note is None) == (not lost)
    if note is not None:
        assert [[*rows] for rows in lost] == note["filled"]
        findings = dataset.verify("new").findings
        assert ["recovered"] == [f.kind for f in findings if f.kind != "no-checksum"]
    assert bool(lost) == bool(recovery.losses)
    assert json.dumps(recovery.as_dict())


def flip(layout):
    damage.flip_chunk("a", layout, 4)
    return [(40, 50)]


def missing_value(path, dtype):
    """Return the fill value of an array of Zarr, which no data have."""
    value = np.array(json.loads(Path(path, "zarr.json").read_text())["fill_value"])
    assert np.abs(value.astype("f8")) > 10**18
    return value.astype(dtype)


def remove(layout):
    os.remove(damage.files_of("a", layout)[1])
    return [(30, 60) if layout in SHARDED else (10, 20)]


def empty(layout):
    damage.truncate(damage.files_of("a", layout)[0], 0)
    return [(0, 30) if layout in SHARDED else (0, 10)]


def cut(layout):
    file, _, stop = damage.chunk_extent("a", layout, 5)
    damage.truncate(file, stop - 5)
    return [(50, 60)]


def link(layout):
    file = damage.files_of("a", layout)[0]
    os.rename(file, "elsewhere")
    os.symlink(os.path.abspath("elsewhere"), file)
    return [(0, 30) if layout in SHARDED else (0, 10)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("harm", [flip, remove, empty, cut, link])
@pytest.mark.parametrize("form", ["fill value", "fill", "drop"])
def test_lost_chunks(layout, harm, form):
    damage.new_array("a", layout)
    lost = harm(layout)
    report = dataset.verify("a")
    assert not report.ok
    assert [("", rows) for rows in lost] == rows_of(report)
    assert 100 - sum(b - a for a, b in lost) == 10 * report.nintact
    if harm is remove:
        assert ["missing"] == kinds_of(report)
    with pytest.raises((FormatError, StorageError)):
        dataset.open("a")[slice(*lost[0])]
    before = snapshot("a")
    options = {"fill": 255} if form == "fill" else {"drop": form == "drop"}
    recovery = dataset.recover("a", "new", sync=False, **options)
    assert before == snapshot("a")
    assert not recovery.complete
    assert [("", rows) for rows in lost] == rows_of(recovery)
    items = damage.numbers()
    if form == "drop":
        kept = [i for i in range(100) if not any(a <= i < b for a, b in lost)]
        assert items[kept].tolist() == dataset.open("new")[:].tolist()
        assert dataset.verify("new").ok
    else:
        check_saved(recovery, items, lost, -1 if form == "fill" else damage.FILL)
    found = dataset.open("new")
    assert layout == found.layout
    assert damage.FILL == found.fill_value
    assert dataset.open("a").chunks == found.chunks
    assert dataset.open("a").shards == found.shards


@pytest.mark.parametrize("layout", SHARDED)
def test_damage_outside_of_chunks_loses_nothing(layout):
    damage.new_array("a", layout)
    file = damage.files_of("a", layout)[0]
    for place in (2, 20, 40, os.path.getsize(file) - index_size(3) + 1):
        damage.flip(file, place)
        report = dataset.verify("a")
        assert (False, 10) == (report.ok, report.nintact), place
        recovery = dataset.recover("a", "new", mode="w", sync=False)
        assert [] == recovery.losses, place
        check_saved(recovery, damage.numbers(), [])
        damage.flip(file, place)
    _, _, end = damage.chunk_extent("a", layout, 2)
    damage.truncate(file, end)
    report = dataset.verify("a")
    assert (["index"], 10) == (kinds_of(report), report.nintact)
    with pytest.raises(FormatError):
        dataset.open("a")[0]
    recovery = dataset.recover("a", "new", mode="w", sync=False)
    check_saved(recovery, damage.numbers(), [])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_intact_array(layout):
    damage.new_array("a", layout)
    recovery = dataset.recover("a", "new")
    assert recovery.complete
    check_saved(recovery, damage.numbers(), [])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("drop", [False, True])
def test_a_table(layout, drop):
    columns = damage.new_table("t", layout)
    place = "t/data/%s/__2__.bin" if layout == "superchunk" else None
    for column, number in ("x", 1), ("y", 2):
        if place is not None:
            os.remove("t/data/%s/__%d__.bin" % (column, number + 1))
        else:
            os.remove(damage.files_of("t/" + column, layout)[number])
    report = dataset.verify("t")
    recovery = dataset.recover("t", "new", drop=drop, sync=False)
    step = 30 if layout in SHARDED else 10
    x, y = (step, 2 * step), (2 * step, 3 * step)
    assert [("x", x), ("y", y)] == rows_of(recovery) == rows_of(report)
    assert 2 == report.narrays
    found = dataset.open("new")
    attributes = found.attrs.asdict()
    note = attributes.pop("bloscpack_recovered")
    assert {"a": 1} == attributes
    assert [[step, 3 * step]] == note["left_out" if drop else "filled"]
    of_x = found["x"].attrs["bloscpack_recovered"]
    assert [[*x]] == of_x["left_out" if drop else "filled"]
    assert dataset.verify("new").ok
    if drop:
        kept = [*range(step), *range(3 * step, 100)]
        for name, values in columns.items():
            assert values[kept].tolist() == found[name][:].tolist()
        return
    for name, (start, stop) in ("x", x), ("y", y):
        wanted = columns[name].copy()
        wanted[start:stop] = 0
        if layout == "zarr":
            wanted[start:stop] = missing_value("new/" + name, wanted.dtype)
        assert wanted.tolist() == found[name][:].tolist()


@pytest.mark.parametrize("layout", ["zarr", "bcolz"])
def test_a_column_without_description(layout):
    columns = damage.new_table("t", layout)
    os.remove("t/y/zarr.json" if layout == "zarr" else "t/y/meta/storage")
    report = dataset.verify("t")
    recovery = dataset.recover("t", "new")
    found = dataset.open("new")
    if layout == "zarr":  # the document of the table has a copy
        assert report.ok
        assert [("copy", "y/zarr.json")] == [(f.kind, f.file) for f in report.findings]
        assert [] == rows_of(recovery)
        assert columns["y"].tolist() == found["y"][:].tolist()
        return
    assert ["description"] == kinds_of(report)
    assert [("y", None)] == rows_of(recovery) == rows_of(report)
    assert ["x"] == found.names
    assert columns["x"].tolist() == found["x"][:].tolist()


@pytest.mark.parametrize("layout", ["zarr", "bcolz"])
def test_columns_of_different_lengths(layout):
    columns = damage.new_table("t", layout)
    damage.shorten_column("t/y", layout, 90)
    report = dataset.verify("t")
    assert ["unequal"] == kinds_of(report)
    assert "'x': 100, 'y': 90" in report.findings[0].message
    recovery = dataset.recover("t", "new")
    assert ("x", (90, 100)) in rows_of(recovery)
    found = dataset.open("new")
    assert columns["x"][:90].tolist() == found["x"][:].tolist()
    assert dataset.verify("new").ok


def test_a_group():
    with dataset.create_group("g", attrs={"n": 1}) as group:
        group.create_array("one", damage.numbers(), chunks=10, shards=30)
        group.create_group("in").create_table("t", {"x": damage.numbers()})
        group.create_array("bad", [1, 2])
    os.remove("g/one/c/2")
    with open("g/bad/zarr.json", "w") as fp:
        fp.write("[]")
    report = dataset.verify("g")
    assert ["bad/zarr.json", "one/c/2"] == sorted(f.file for f in report.findings)
    assert [("one", (60, 90))] == rows_of(report)
    recovery = dataset.recover("g", "new")
    assert [("bad", None), ("one", (60, 90))] == sorted(rows_of(recovery))
    found = dataset.open("new")
    assert {"n": 1} == found.attrs.asdict()
    assert ["in", "one"] == list(found)
    assert damage.numbers().tolist() == found["in/t/x"][:].tolist()
    assert dataset.verify("new").ok
    assert ["g", "new"] == sorted(os.listdir())


def altered(old, new):
    """Make an array of 100 rows in 5 shards, and alter its document."""
    dataset.create_array("a", np.arange(100), chunks=10, shards=20).close()
    document = Path("a/zarr.json")
    text = document.read_text().replace(" ", "").replace("\n", "")
    assert old in text
    document.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize("length", [70, 80, 0])
def test_rows_that_an_altered_document_does_not_reach(length):
    altered('"shape":[100]', '"shape":[%d]' % length)
    found = {f.rows for f in dataset.verify("a").findings if f.kind == "unreached"}
    recovery = dataset.recover("a", "new")
    assert found == {rows for _, rows in rows_of(recovery)}
    assert (length, 100) == (min(found)[0], max(found)[1])
    assert not recovery.complete


def test_a_missing_shard_beside_an_altered_document():
    altered('"fill_value":-', '"fill_value":')
    os.remove("a/c/2")
    recovery = dataset.recover("a", "new")
    assert not recovery.complete
    assert [(40, 60)] == [f.rows for f in recovery.report.findings if f.rows]


def exchange(a, b):
    os.rename(a, "x")
    os.rename(b, a)
    os.rename("x", b)


def move(a, b):
    os.rename(a, b)


@pytest.mark.parametrize("harm", [exchange, move])
@pytest.mark.parametrize("first", [0, 1])
def test_shards_under_other_names(harm, first):
    items = np.arange(90)
    dataset.create_array("a", items, chunks=10, shards=20).close()
    harm("a/c/%d" % first, "a/c/4")
    report = dataset.verify("a")
    assert "c/4" in {finding.file for finding in report.findings}
    assert "intact, and states that it is 'c/%d'" % first in str(report.findings)
    recovery = dataset.recover("a", "new")
    lost = [] if harm is exchange else [(80, 90)]
    assert lost == [rows for _, rows in rows_of(recovery)]
    kept = 90 if harm is exchange else 80
    assert items[:kept].tolist() == dataset.open("new")[:kept].tolist()


@pytest.mark.parametrize("harm", [exchange, move])
@pytest.mark.parametrize("harmed", [0, 2])
def test_a_damaged_shard_under_another_name(harm, harmed):
    items = np.arange(120)
    dataset.create_array("a", items, chunks=10, shards=40).close()
    data = bytearray(Path("a/c/0").read_bytes())
    start, _, _ = frames_of(bytes(data))[harmed]
    data[start + 20] ^= 1
    Path("a/c/0").write_bytes(data)
    harm("a/c/0", "a/c/2")
    report = dataset.verify("a")
    assert "damaged, and states that it is 'c/0'" in str(report.findings)
    recovery = dataset.recover("a", "new", fill=0)
    lost = [(10 * harmed, 10 * harmed + 10)]
    lost += [] if harm is exchange else [(80, 120)]
    assert lost == [rows for _, rows in rows_of(recovery)]
    for start, stop in lost:
        items[start:stop] = 0
    assert items.tolist() == dataset.open("new")[:].tolist()


def test_a_copy_of_a_shard_under_another_name():
    dataset.create_array("a", np.arange(90), chunks=10, shards=20).close()
    shutil.copy("a/c/0", "a/c/1")
    assert [("", (20, 40))] == rows_of(dataset.recover("a", "new"))


def test_files_of_an_unzipped_archive():
    bloscpack.savez("a.zip", a=np.arange(9), s=7, **{"g/t": 8})
    with zipfile.ZipFile("a.zip") as archive:
        archive.extractall("a")
    recovery = dataset.recover("a", "new")
    assert [("s.blp", None), ("g/t.blp", None)] == rows_of(recovery)
    assert not recovery.complete


def test_fields_of_items():
    dtype = [("p", "f8"), ("q", [("r", "i4"), ("s", "S3")], (2,))]
    items = np.zeros(100, dtype)
    items["p"] = np.arange(100)
    items["q"]["r"] = np.arange(200).reshape(100, 2)
    items["q"]["s"] = b"abc"
    options = {"layout": "superchunk", "chunks": 10, "shards": 30}
    dataset.create_array("a", items, **options).close()
    os.remove("a/data/q/r/__2__.bin")
    recovery = dataset.recover("a", "new")
    assert [("q/r", (30, 60))] == rows_of(recovery) == rows_of(dataset.verify("a"))
    items["q"]["r"][30:60] = 0
    assert items.tobytes() == dataset.open("new")[:].tobytes()


@pytest.mark.parametrize("shape", [(0,), (5, 0), (7, 2, 3)])
@pytest.mark.parametrize("layout", SHARDED)
def test_shapes(shape, layout):
    items = np.arange(np.prod(shape)).reshape(shape)
    dataset.create_array("a", items, layout=layout, chunks=2, shards=4).close()
    assert dataset.verify("a").ok
    assert dataset.recover("a", "new").complete
    assert shape == dataset.open("new").shape
    assert items.tolist() == dataset.open("new")[:].tolist()


@pytest.mark.parametrize("name", ["blz/num_i4", "blz/btable_mixed", "bcolz/object"])
def test_folders_of_the_genuine_programs(name):
    entries = golden_directories.entries()
    if name not in entries:
        name = next(n for n in entries if n.endswith("/object"))
    golden_directories.extract(name, Path("d"))
    if name.endswith("object"):
        with pytest.raises(UsageError, match="objects"):
            dataset.recover("d", "new")
        assert not os.path.exists("new")
        return
    old = dataset.open("d")
    recovery = dataset.recover("d", "new")
    assert recovery.complete
    assert ["'.' has the layout 'bcolz'"] == recovery.remarks
    assert old[:].tobytes() == dataset.open("new")[:].tobytes()


def test_lost_attributes():
    damage.new_array("a", "bcolz")
    with open("a/__attrs__", "w") as fp:
        fp.write("{")
    recovery = dataset.recover("a", "new")
    assert not recovery.complete
    assert ", 0 lost, not complete>" in repr(recovery)
    assert ["."] == recovery.lost_attributes
    assert damage.numbers().tolist() == dataset.open("new")[:].tolist()


def test_what_is_refused():
    damage.new_array("a", "zarr")
    shutil.copytree("a", "b")
    with pytest.raises(FileExistsError):
        dataset.recover("a", "b")
    for target in ("a", "a/inner", "."):
        with pytest.raises(UsageError, match="inside"):
            dataset.recover("a", target, mode="w")
    with pytest.raises(UsageError):
        dataset.recover("a", "new", fill=256)
    with open("a/zarr.json", "w") as fp:
        fp.write("{")
    with pytest.raises(FormatError):
        dataset.recover("a", "new")
    assert ["a", "b"] == sorted(os.listdir())


def harm_at_random(path, layout, random):
    """Remove, shorten or change a few files of an array."""
    for file in random.sample(damage.files_of(path, layout), random.choice((1, 1, 2))):
        size, way = os.path.getsize(file), random.random()
        if way < 0.2:
            os.remove(file)
        elif way < 0.4:
            damage.truncate(file, random.randrange(size))
        else:
            for _ in range(random.choice((1, 1, 8))):
                damage.flip(file, random.randrange(size))


@pytest.mark.parametrize("layout", SHARDED)
def test_exchanged_files_of_which_one_does_not_state_its_place(layout):
    damage.new_array("a", layout)
    first, second = damage.files_of("a", layout)[:2]
    os.rename(first, "kept")
    os.rename(second, first)
    os.rename("kept", second)
    content = bytearray(Path(second).read_bytes())
    content[content.index(b"{", 32) + 5] ^= 1  # in the metadata
    Path(second).write_bytes(content)
    recovery = dataset.recover("a", "new", sync=False)
    assert not recovery.certain
    assert not dataset.open("new").attrs["bloscpack_recovered"]["certain"]


@pytest.mark.full
@pytest.mark.parametrize("layout", LAYOUTS)
def test_random_damage(layout):
    damage.new_array("sound", layout)
    items = damage.numbers()
    for seed in range(25):
        random = Random(seed)
        shutil.copytree("sound", "a")
        harm_at_random("a", layout, random)
        recovery = dataset.recover("a", "new", sync=False)
        assert dataset.verify("new").ok, seed
        lost = {i for loss in recovery.losses for i in range(*loss.rows)}
        wrong = np.flatnonzero(dataset.open("new")[:] != items).tolist()
        if layout in SHARDED and recovery.certain:
            assert set(wrong) <= lost, seed
        assert recovery.report.ok <= (not recovery.losses)
        shutil.rmtree("a")
        shutil.rmtree("new")


@pytest.mark.parametrize("commits", [False, True])
@pytest.mark.parametrize("damage", [b"\0", b"{", b""])
def test_the_members_of_a_group_whose_document_is_damaged(tmp_path, commits, damage):
    with dataset.create_group(tmp_path / "g") as group:
        group["a"] = [1, 2]
        group.create_group("in")["t"] = {"x": [3]}
        if commits:
            with group.change():
                pass
    (tmp_path / "g" / "zarr.json").write_bytes(damage)
    report = dataset.verify(tmp_path / "g")
    assert (False, 2, 2) == (report.ok, report.nintact, report.nchunks)
    notes = [f for f in report.findings if f.severity != "error"]
    assert not any("zarr.json" in str(note) for note in notes)
    recovery = dataset.recover(tmp_path / "g", tmp_path / "new")
    assert 2 == recovery.nsaved
    assert ["."] == recovery.lost_attributes
    new = dataset.open(tmp_path / "new")
    assert new.attrs["bloscpack_recovered"]["metadata_lost"]
    assert [1, 2] == new["a"][:].tolist()
    assert [3] == new["in/t"]["x"][:].tolist()


def test_the_attributes_of_a_group_whose_document_is_missing(tmp_path):
    """Its members say that a document around them commits them."""
    with dataset.create_group(tmp_path / "g", attrs={"place": "Kiel"}) as group:
        group["a"], group["in/t"] = [1, 2], {"x": [3]}
        with group.change():
            group["a"].append([3])
    (tmp_path / "g" / "zarr.json").unlink()
    recovery = dataset.recover(tmp_path / "g", tmp_path / "new")
    assert (["."], False) == (recovery.lost_attributes, recovery.complete)
    assert [1, 2, 3] == dataset.open(tmp_path / "new" / "a")[:].tolist()


@pytest.mark.parametrize("repeats", [True, False])
def test_a_member_is_replaced_meanwhile(tmp_path, monkeypatch, repeats):
    with dataset.create_group(tmp_path / "g") as group:
        group["a"] = [1, 2]
    save_rows, left = _Saver._save_rows, [[3, 4]]

    def replace_and_save(self, *arguments):
        with dataset.open(tmp_path / "g", "r+") as group:
            for value in left:
                del group["a"]
                group["a"] = value
        left.clear()
        save_rows(self, *arguments)

    monkeypatch.setattr(_Saver, "_save_rows", replace_and_save)
    if repeats:
        assert dataset.recover(tmp_path / "g", tmp_path / "new").complete
        assert [3, 4] == dataset.open(tmp_path / "new")["a"][:].tolist()
    else:
        monkeypatch.setattr(dataset_folder, "RELOAD_SECONDS", -1)
        with pytest.raises(StorageError, match="snapshot makes a copy of one"):
            dataset.recover(tmp_path / "g", tmp_path / "new")
        assert not (tmp_path / "new").exists()
