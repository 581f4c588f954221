"""Checking datasets: damage of every kind, in every layout, and what is no damage."""

from __future__ import annotations

import errno
import json
import os
import shutil
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
from dataset import damage_datasets as damage
from dataset import documents, golden_directories
from dataset.inside import with_pending
from dataset.layouts import LAYOUTS
from dataset.shard_index import ENTRY, crc_of, index_size
from support import FailingCalls, as_user, needs_root

import bloscpack
from bloscpack import bigfile, dataset
from bloscpack.dataset import checking
from bloscpack.exceptions import FormatError, Unsupported

SNAPPY = "snappy"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def rows_of(report):
    return [(loss.member, loss.rows) for loss in report.losses]


def kinds_of(report, severity="error"):
    return [f.kind for f in report.findings if f.severity == severity]


@pytest.mark.parametrize("name", sorted(golden_directories.entries()))
def test_directories_of_other_programs_are_intact(name):
    golden_directories.extract(name, Path("d"))
    report = dataset.verify("d")
    if SNAPPY not in name or report.ok:
        assert [] == [str(f) for f in report.findings if f.severity == "error"]
        assert report.nintact == report.nchunks
    assert "no-checksum" in kinds_of(report, "note")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_intact_array(layout):
    damage.new_array("a", layout)
    seen = []
    report = dataset.verify("a", nthreads=1, progress=seen.append)
    assert report.ok
    assert (layout, "array") == (report.layout, report.kind)
    assert (10, 10, 800, 800) == (
        report.nchunks,
        report.nintact,
        report.nbytes,
        report.nbytes_intact,
    )
    assert sum(seen) == report.nbytes
    assert report.cbytes == dataset.open("a").cbytes
    assert [] == report.losses
    assert json.dumps(report.as_dict())


def test_a_chunk_of_another_size():
    damage.new_array("a", "bcolz")
    dataset.create_array("b", damage.numbers(8), layout="bcolz", chunks=8).close()
    files = damage.files_of("a", "bcolz")
    shutil.copy(damage.files_of("b", "bcolz")[0], files[3])
    report = dataset.verify("a")
    assert [("", (30, 40))] == rows_of(report)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_symbolic_link_in_place_of_the_chunks(layout):
    """A finding, and no end of the check: other members of a group are checked."""
    dataset.create_group("g").close()
    for name in ("g/a", "g/b"):
        damage.new_array(name, layout)
    folder = {"zarr": "c"}.get(layout, "data")
    os.rename("g/a/" + folder, "elsewhere")
    os.symlink(os.path.abspath("elsewhere"), "g/a/" + folder)
    report = dataset.verify("g")
    assert ["a/" + folder] == [f.file for f in report.findings if f.severity == "error"]


@pytest.mark.parametrize("name", ["a", "raw/a"])
@pytest.mark.parametrize("items", [np.arange(5), 7])
def test_a_member_without_its_document(name, items):
    with dataset.create_group("g") as group:
        group[name], group["b"] = items, [1, 2]
    os.remove("g/%s/zarr.json" % name)
    report = dataset.verify("g")
    assert [("description", "error", name + "/zarr.json")] == [
        (f.kind, f.severity, f.file) for f in report.findings
    ]
    recovery = dataset.recover("g", "r")
    assert [(name, None)] == [(loss.member, loss.rows) for loss in recovery.losses]
    assert [1, 2] == dataset.open("r")["b"][:].tolist()


def test_a_plain_folder_of_datasets():
    os.mkdir("f")
    damage.new_array("f/a", "zarr")
    damage.new_array("f/b", "bcolz")
    with open("f/notes", "w") as fp:
        fp.write("text")
    report = dataset.verify("f")
    assert report.ok
    assert ("folder", "group", 20) == (report.layout, report.kind, report.nchunks)
    assert ["no-checksum"] == kinds_of(report, "note")


def test_what_is_only_noted():
    damage.new_array("a", "zarr")
    with open("a/notes", "w") as fp:
        fp.write("text")
    os.symlink(os.path.abspath("a"), "a/link")
    os.mkdir("a/.bloscpack")
    with open("a/.bloscpack/0-0", "w") as fp:
        fp.write("text")
    report = dataset.verify("a")
    assert report.ok
    assert [("change", "."), ("unused", "link"), ("unused", "notes")] == [
        (f.kind, f.file) for f in report.findings
    ]


def test_a_change_that_is_to_be_completed_is_read():
    damage.new_array("a", "zarr")
    os.mkdir("a/.bloscpack")
    os.rename("a/c/1", "a/.bloscpack/1-1")
    document = Path("a/zarr.json")
    pending = {"c/1": ".bloscpack/1-1"}
    document.write_bytes(with_pending(document.read_bytes(), pending))
    report = dataset.verify("a")
    assert [] == [str(f) for f in report.findings if f.severity == "error"]
    assert ["change"] == kinds_of(report, "note")
    assert 10 == report.nintact


def test_a_copy_without_the_files_of_a_change_that_is_to_be_completed():
    damage.new_array("a", "zarr")
    document = Path("a/zarr.json")
    pending = {"c/1": ".bloscpack/1-1"}
    document.write_bytes(with_pending(document.read_bytes(), pending))
    report = dataset.verify("a")
    assert ["change"] == kinds_of(report)
    assert "'.bloscpack' with its files is missing" in str(report.findings[0])


def foreign_shard(path):
    """Rewrite a shard as other programs write it: chunks from the first byte on."""
    with open(path, "rb") as fp:
        content = fp.read()
    index = content[-index_size(3) : -4]
    parts, entries, position = [], b"", 0
    for offset, size in ENTRY.iter_unpack(index):
        parts.append(content[offset : offset + size])
        entries += ENTRY.pack(position, size)
        position += size
    with open(path, "wb") as fp:
        fp.write(b"".join([*parts, entries, crc_of(entries)]))


def test_shards_of_another_program():
    damage.new_array("a", "zarr")
    foreign_shard("a/c/0")
    os.remove("a/c/2")  # other programs leave out shards of fill values
    report = dataset.verify("a")
    assert ["missing"] == kinds_of(report)  # the document says that all are there
    assert ["other-program"] == kinds_of(report, "note")
    document = documents.read(Path("a/zarr.json"))
    documents.write(Path("a/zarr.json"), document)
    report = dataset.verify("a")
    assert report.ok
    assert ["changed", "missing", "other-program"] == sorted(kinds_of(report, "note"))
    assert [] == report.losses
    damage.flip("a/c/0", 30)
    report = dataset.verify("a")
    assert ["damaged"] == kinds_of(report)
    assert [("", (0, 10))] == rows_of(report)


def test_what_is_no_dataset(tmp_path):
    os.mkdir("empty")
    with pytest.raises(FormatError):
        dataset.verify("empty")
    with pytest.raises(FileNotFoundError):
        dataset.verify("missing")
    damage.new_array("a", "zarr")

    def change(value):
        value["codecs"] = [{"name": "unknown"}]

    damage.edit_json("a/zarr.json", change)
    with pytest.raises(Unsupported, match="zarr"):
        dataset.verify("a")
    os.makedirs("g/inner")
    os.rename("a", "g/inner/a")
    report = dataset.verify("g")
    assert report.ok
    assert ["unsupported"] == kinds_of(report, "note")


def test_find():
    damage.new_array("a", "superchunk")
    assert ("superchunk", "array") == dataset.find("a")
    assert ("folder", "group") == dataset.find(".")
    assert None is dataset.find("missing")
    assert None is dataset.find(str(Path("a/meta")))


def test_descriptions():
    with dataset.create_group("g", attrs={"n": 1}) as group:
        group.create_array("one", damage.numbers(), chunks=10, shards=30, fill_value=3)
        group.create_table("t", {"x": [1.5, 2], "y": [b"a", b"b"]})
        group.create_array("bad", [1])
    with open("g/bad/zarr.json", "w") as fp:
        fp.write("[]")
    found = dataset.describe("g")
    assert json.dumps(found)
    members = {member["name"]: member for member in found["members"]}
    assert ["bad", "one", "t"] == sorted(members)
    assert "error" in members["bad"]
    one = members["one"]
    assert ([100], "<i8", [10], [30], 3) == tuple(
        one[key] for key in ("shape", "dtype", "chunks", "shards", "fill_value")
    )
    assert (10, 4, 800) == (one["nchunks"], one["nfiles"], one["nbytes"])
    table = members["t"]
    assert (2, ["t/x", "t/y"]) == (table["rows"], [c["name"] for c in table["columns"]])
    assert {"n": 1} == found["attributes"]
    assert found["nbytes"] == 800 + 16 + 2
    assert found["cbytes"] == one["cbytes"] + table["cbytes"]
    with pytest.raises(FormatError):
        dataset.describe("g/bad")


@needs_root
def test_a_member_that_may_not_be_read(monkeypatch, open_folder, run):
    monkeypatch.chdir(open_folder)
    with dataset.create_group("a") as group:
        group.create_array("priv", [1]).close()
    os.chmod("a/priv", 0)
    with as_user(65534):
        report = dataset.verify("a")
        assert 1 == run("verify", "a")[0]
    found = [(f.file, f.kind) for f in report.findings if f.severity == "error"]
    assert [("priv", "permission")] == found


# Calls of the system that read; what lists strays may fail without an error.
READING = ("open", "stat", "lstat", "scandir", "preadv", "fstat")
# Kinds of findings about what could not be read, which may be intact.
NOT_READ = {"permission", "unreadable"}


@pytest.mark.full
@pytest.mark.skipif(not hasattr(os, "preadv"), reason="needs preadv")
@pytest.mark.parametrize(
    ("layout", "code"), [*zip(LAYOUTS, cycle([errno.EIO, errno.EACCES]), strict=False)]
)
def test_what_could_not_be_read_is_not_called_damaged(monkeypatch, layout, code):
    """No failure of the system is damage, and none lets rows become fill values."""
    damage.new_array("a", layout)
    items, failed = dataset.open("a")[:].tolist(), {"verify": 0, "recover": 0}
    for act in failed:
        for number in range(0, 2000, 7):  # each call takes too long
            shutil.rmtree("new", ignore_errors=True)
            with monkeypatch.context() as context:
                failing = FailingCalls(context, READING, number, code)
                try:
                    if act == "verify":
                        report = dataset.verify("a", nthreads=1)
                    else:
                        report = dataset.recover("a", "new", nthreads=1, sync=False)
                except OSError:
                    report = None
            if failing.left >= 0:
                break
            if report is None:
                failed[act] += 1
            elif act == "verify":
                assert {*kinds_of(report)} <= NOT_READ, (number, report.findings)
                failed[act] += not report.ok
            else:
                assert report.complete, (number, report.report.findings)
                assert items == dataset.open("new")[:].tolist(), number
    assert min(failed.values()) > 5


@needs_root
def test_files_that_may_not_be_read(monkeypatch, open_folder, run):
    monkeypatch.chdir(open_folder)
    os.mkdir("out", 0o777)
    os.chmod("out", 0o777)
    dataset.create_array("a", np.arange(90), chunks=10, shards=30).close()
    os.chmod("a/c/1", 0)
    with as_user(65534):
        report = dataset.verify("a")
        code, shown, _ = run("verify", "a")
        with pytest.raises(PermissionError, match="a/c/1"):
            dataset.recover("a", "out/new")
    assert ["permission"] == kinds_of(report)
    assert (1, True) == (code, "not readable by this user" in shown)
    assert not os.path.exists("out/new")
    damage.flip_chunk("a", "zarr", 7)
    with as_user(65534):
        assert 3 == run("verify", "a")[0]  # something is damaged, too


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("what", ["folder", "pipe", "link"])
def test_something_else_in_the_place_of_a_file(what, run):
    damage.new_array("a", "zarr")
    file = damage.files_of("a", "zarr")[1]
    os.remove(file)
    {"folder": os.mkdir, "pipe": os.mkfifo, "link": lambda f: os.symlink(f, f)}[what](
        file
    )
    report = dataset.verify("a")
    assert ["link" if what == "link" else "no-file"] == kinds_of(report)
    assert 3 == run("verify", "a")[0]
    assert [("", (30, 60))] == [
        (loss.member, loss.rows) for loss in dataset.recover("a", "new").losses
    ]


def test_shards_without_their_document(tmp_path):
    dataset.create_array(tmp_path / "a", [1, 2]).close()
    os.remove(tmp_path / "a" / "zarr.json")
    for use in dataset.verify, lambda path: dataset.recover(path, tmp_path / "b"):
        with pytest.raises(FormatError, match="is missing, and there"):
            use(tmp_path / "a")


def test_one_function_checks_all_that_is_at_a_path(tmp_path):
    """`bloscpack.verify` and `recover` choose by what is there."""
    data, tree, copy = tmp_path / "d", tmp_path / "t", tmp_path / "copy"
    dataset.create_array(data, range(5)).close()
    with bigfile.File(tree, create=True) as file:
        file.create_from_array("x", np.arange(5))
    bloscpack.pack_ndarray_to_file(np.arange(5), tmp_path / "f.blp")
    found = [bloscpack.verify(path) for path in (data, tree, tmp_path / "f.blp")]
    assert ["DatasetReport", "TreeReport", "Report"] == [
        type(r).__name__ for r in found
    ]
    assert all(report.ok for report in found)
    (data / "c" / "0").unlink()
    recovery = bloscpack.recover(data, copy)
    assert (1, False) == (recovery.nlost, recovery.complete)
    assert [2 - 2**63] * 5 == dataset.open(copy)[:].tolist()
    (tmp_path / "empty").mkdir()
    with pytest.raises(FormatError):
        bloscpack.verify(tmp_path / "empty")


LOST = {
    "of an inner group and its array": (
        ["in", "in/x", "in/y", "in/deep"],
        ["in/deep/z"],
    ),
    "of an inner group and one array": (["in", "in/x"], []),
    "of a group in a group": (["in/deep", "in/deep/z"], []),
    "of all": (["in", "in/x", "in/y", "in/deep", "in/deep/z", "t", "t/k"], []),
}


@pytest.mark.parametrize("what", LOST)
def test_lost_documents_of_inner_groups_and_their_arrays(what, tmp_path):
    path = tmp_path / "g"
    with dataset.create_group(path) as group:
        for name in ("in/x", "in/y", "in/deep/z"):
            group.create_array(name, [1, 2])
        group.create_table("t", {"k": [1, 2]})
        group.create_array("a", [1])
    assert [] == dataset.verify(path).findings
    names = [name for each in LOST[what] for name in each]
    for name in names:
        (path / name / "zarr.json").unlink()
    # Not what other programs have put there.
    (path / "other" / "c" / "in").mkdir(parents=True)
    (path / "other" / "sub" / "c").mkdir(parents=True)
    (path / "other" / "sub" / "c" / "0").write_bytes(b"text")
    report = dataset.verify(path)
    lost = {each.file for each in report.findings if each.severity == "error"}
    arrays = {"in/x", "in/y", "in/deep/z", "t/k"} & {*names}
    assert {name + "/zarr.json" for name in arrays} == lost
    recovery = dataset.recover(path, tmp_path / "new")
    assert recovery.losses
    assert [1] == dataset.open(tmp_path / "new")["a"][:].tolist()


def test_lengths_beside_a_writer_of_one_array(tmp_path, monkeypatch):
    """They are reported, although the writer appends between all comparisons."""
    with dataset.create_group(tmp_path / "g") as group:
        longer = group.create_array("x", np.arange(40), dims=("t",))
        group.create_array("y", np.arange(30), dims=("t",))
        compare = checking.unequal_lengths

        def appending(arrays):
            longer.append([1])
            return compare(arrays)

        monkeypatch.setattr(checking, "unequal_lengths", appending)
        (finding,) = dataset.verify(tmp_path / "g").findings
    assert "different lengths" in finding.message


def test_a_damaged_member_is_checked_once_beside_a_writer_of_another(
    tmp_path, monkeypatch
):
    with dataset.create_group(tmp_path / "g") as group:
        group.create_array("a", np.arange(8), chunks=2, shards=4)
        group.create_array("b", np.arange(8), chunks=2, shards=4)
        with group.change():
            pass
        damaged = tmp_path / "g" / "b" / "c" / "1"
        damaged.write_bytes(damaged.read_bytes()[:-1])
        checked, check = [], checking.check_file

        def changing(*args):
            checked.append(args)
            group["a"].attrs["n"] = len(checked)
            return check(*args)

        monkeypatch.setattr(checking, "check_file", changing)
        report = dataset.verify(tmp_path / "g", nthreads=1)
    assert not report.ok
    assert len(checked) < 16


def test_a_group_that_is_replaced_while_it_is_checked(tmp_path, monkeypatch):
    """The new one is checked, as a whole."""

    def make(length):
        with dataset.create_group(tmp_path / "g", mode="w") as group:
            for name in "abc":
                group.create_array(name, np.arange(length), chunks=2, shards=4)

    check = checking.check_file

    def replacing(*args):
        monkeypatch.setattr(checking, "check_file", check)
        make(12)
        return check(*args)

    make(8)
    monkeypatch.setattr(checking, "check_file", replacing)
    report = dataset.verify(tmp_path / "g", nthreads=1)
    assert ([], 3, 9) == (report.findings, report.narrays, report.nfiles)


def test_a_file_with_more_rows_after_a_resize(tmp_path):
    """The note names the usual reason first."""
    with dataset.create_array(tmp_path / "a", range(10), chunks=5) as array:
        array.resize(7)
    (found,) = dataset.verify(tmp_path / "a").findings
    assert ("note", "more-rows") == (found.severity, found.kind)
    assert "a resize, or an append that was interrupted, has left" in found.message
