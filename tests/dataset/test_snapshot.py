"""`dataset.snapshot` has the items of one moment, and is a dataset of its own."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from dataset.contents import content
from dataset.inside import with_pending
from support import environment

import bloscpack as bp
from bloscpack import dataset
from bloscpack.exceptions import StorageError, UsageError

# Appends to two arrays of a group, and sets another one, again and again.
WRITER = """
import sys
import numpy as np
from bloscpack import dataset
with dataset.open_group(sys.argv[1], "r+", sync=False) as group:
    for number in range(1, 10_000):
        with group.change():
            group["a"].append(np.full(50, number))
            group["b"].append(np.full(50, number))
            group["same"][:] = number
        print(number, flush=True)
"""
MEMBERS = """
import sys
from bloscpack import dataset
with dataset.open_group(sys.argv[1], "r+", sync=False) as group:
    print(flush=True)
    while True:
        group.create_array("new/x", [1, 2])
        del group["new"]
"""
SNAPSHOTS = """
import sys
from bloscpack import dataset
print(flush=True)
while True:
    dataset.snapshot(sys.argv[1], sys.argv[2], force=True, sync=False)
"""


def items(count=300):
    return np.arange(2.0 * count).reshape(count, 2)


def make(path, kind):
    how = {"chunks": 16, "shards": 64}
    if kind == "group":
        with dataset.create_group(path, attrs={"place": "Kiel"}) as group:
            group.create_array("in/x", items(), **how)
            group.create_table("t", {"x": np.arange(9)})
    elif kind == "united group":
        make(path, "group")
        with dataset.open_group(path, "r+") as group, group.change():
            group["in/x"].append(items(3))
    elif kind == "table":
        dataset.create_table(path, {"x": np.arange(99), "y": ["é"] * 99}, **how).close()
    else:
        dataset.create_array(path, items(), layout=kind).close()


def change(path):
    with dataset.open(path, "r+") as found:
        array = found["in/x"] if isinstance(found, dataset.Group) else found
        array.append(array[:70])
        array[1:3] = array[5:7]
        array.attrs["changed"] = True
        array.resize(len(array) - 100)


KINDS = ["zarr", "superchunk", "bcolz", "table", "group", "united group"]


@pytest.mark.parametrize("kind", KINDS)
def test_each_keeps_its_items(tmp_path, kind):
    make(tmp_path / "a", kind)
    before = content(tmp_path / "a")
    dataset.snapshot(tmp_path / "a", tmp_path / "copy")
    assert before == content(tmp_path / "copy")
    change(tmp_path / "a")
    assert before == content(tmp_path / "copy")
    dataset.snapshot(tmp_path / "a", tmp_path / "copy", force=True)
    after = content(tmp_path / "a")
    assert before != after == content(tmp_path / "copy")
    change(tmp_path / "copy")
    assert after == content(tmp_path / "a")
    for name in ("a", "copy"):
        assert dataset.verify(tmp_path / name).ok


@pytest.mark.parametrize("kind", KINDS)
def test_only_files_that_are_replaced_are_linked(tmp_path, kind):
    make(tmp_path / "a", kind)
    copied = []
    dataset.snapshot(tmp_path / "a", tmp_path / "copy", progress=copied.append)
    files = [path for path in (tmp_path / "copy").rglob("*") if path.is_file()]
    counts = {path.stat().st_nlink for path in files}
    # bcolz and the programs for superchunks change files in place.
    is_linked = kind not in ("bcolz", "superchunk")
    assert {2 if is_linked else 1} == counts
    assert is_linked == (not copied)


def test_other_files_in_a_group_are_copied(tmp_path):
    """They are changed in place."""
    path = tmp_path / "g"
    make(path, "group")
    (path / "raw").mkdir()
    (path / "raw/log.txt").write_text("1")
    (path / "c").mkdir()
    (path / "c/0").write_text("1")
    bp.pack_ndarray_to_file(np.arange(3), path / "x.blp")
    dataset.snapshot(path, tmp_path / "copy")
    bp.append_ndarray_to_file(np.arange(2), path / "x.blp")
    for name in ("raw/log.txt", "c/0"):
        with open(path / name, "a") as file:
            file.write("2")
        assert "1" == (tmp_path / "copy" / name).read_text()
    assert 3 == len(bp.unpack_ndarray_from_file(tmp_path / "copy/x.blp"))
    assert 2 == (tmp_path / "copy/in/x/c/0/0").stat().st_nlink


def test_members_that_are_removed_meanwhile(tmp_path):
    make(tmp_path / "g", "group")
    with subprocess.Popen(
        [sys.executable, "-c", MEMBERS, str(tmp_path / "g")],
        env=environment(),
        stdout=subprocess.PIPE,
    ) as writer:
        writer.stdout.readline()
        try:
            for _ in range(30):
                dataset.snapshot(tmp_path / "g", tmp_path / "s", force=True, sync=False)
        finally:
            writer.kill()
    assert dataset.verify(tmp_path / "s").ok


def test_what_zarr_python_has_written_is_copied(tmp_path):
    zarr = pytest.importorskip("zarr")
    zarr.create_array(tmp_path / "a", data=items())
    dataset.snapshot(tmp_path / "a", tmp_path / "copy")
    assert 1 == (tmp_path / "copy/zarr.json").stat().st_nlink
    assert items().tolist() == zarr.open_array(tmp_path / "copy")[:].tolist()


def test_zarr_python_reads_and_changes_the_copy(tmp_path):
    zarr = pytest.importorskip("zarr")
    make(tmp_path / "a", "group")
    dataset.snapshot(tmp_path / "a", tmp_path / "copy")
    array = zarr.open_group(tmp_path / "copy")["in/x"]
    array[:] = array[:] + 1
    assert items().tolist() == dataset.open(tmp_path / "a")["in/x"][:].tolist()
    copy = dataset.open(tmp_path / "copy")["in/x"]
    assert (items() + 1).tolist() == copy[:].tolist()


def test_a_change_that_was_committed_is_completed_in_the_copy(tmp_path):
    """The original stays as it is: another writer may be completing it."""
    make(tmp_path / "a", "zarr")
    shutil.copytree(tmp_path / "a", tmp_path / "other")
    with dataset.open_array(tmp_path / "other", "r+") as array:
        array[:] = -1
        expected = array[:].tolist()
    shard = "c/0/0"
    (tmp_path / "a/.bloscpack").mkdir()
    shutil.copy(tmp_path / "other" / shard, tmp_path / "a/.bloscpack/new")
    shutil.copy(tmp_path / "other" / shard, tmp_path / "a/.bloscpack/not-committed")
    document = tmp_path / "a/zarr.json"
    document.write_bytes(with_pending(document.read_bytes(), {shard: "new"}))
    dataset.snapshot(tmp_path / "a", tmp_path / "copy")
    assert not (tmp_path / "copy/.bloscpack").exists()
    assert 2 == len(list((tmp_path / "a/.bloscpack").iterdir()))
    assert expected == dataset.open(tmp_path / "copy")[:].tolist()
    assert [] == dataset.verify(tmp_path / "copy").findings


@pytest.mark.full
def test_beside_a_writer(tmp_path):
    with dataset.create_group(tmp_path / "g") as group:
        for name in ("a", "b", "same"):
            group.create_array(name, np.zeros(500, int), chunks=64, shards=128)
    command = [sys.executable, "-c", WRITER, str(tmp_path / "g")]
    counts = set()
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, text=True
    ) as writer:
        try:
            assert writer.stdout.readline()
            for number in itertools.count():
                if number >= 15 and len(counts) > 1:
                    break
                assert writer.poll() is None
                dataset.snapshot(tmp_path / "g", tmp_path / "s", force=True, sync=False)
                assert dataset.verify(tmp_path / "s").ok
                found = dataset.open(tmp_path / "s")
                first, second, same = (found[n][:].tolist() for n in ("a", "b", "same"))
                assert first == second
                assert {first[-1]} == {*same}
                counts.add(len(first))
        finally:
            writer.kill()


@pytest.mark.full
def test_one_that_is_killed(tmp_path):
    make(tmp_path / "a", "united group")
    expected = content(tmp_path / "a")
    command = [sys.executable, "-c", SNAPSHOTS, tmp_path / "a", tmp_path / "copy"]
    for number in range(8):
        with subprocess.Popen(
            command, env=environment(), stdout=subprocess.PIPE
        ) as process:
            process.stdout.readline()
            time.sleep(0.05 + number / 200)
            process.send_signal(signal.SIGKILL)
        if (tmp_path / "copy").exists():
            assert expected == content(tmp_path / "copy")
        assert expected == content(tmp_path / "a")
    dataset.snapshot(tmp_path / "a", tmp_path / "copy", force=True)
    assert expected == content(tmp_path / "copy")
    assert {"a", "copy"} == {*os.listdir(tmp_path)}


def test_on_another_file_system(tmp_path):
    if not os.path.isdir("/dev/shm"):
        pytest.skip("there is no second file system")
    if os.stat("/dev/shm").st_dev == os.stat(tmp_path).st_dev:
        pytest.skip("it is the same file system")
    make(tmp_path / "a", "group")
    os.chmod(tmp_path / "a/in/x/c/0/0", 0o640)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        sizes = []
        copy = Path(folder, "copy")
        dataset.snapshot(tmp_path / "a", copy, progress=sizes.append)
        assert content(tmp_path / "a") == content(copy)
        assert 0o640 == (copy / "in/x/c/0/0").stat().st_mode & 0o777
        files = [path for path in (tmp_path / "a").rglob("*") if path.is_file()]
        assert sum(path.stat().st_size for path in files) == sum(sizes)


def test_permissions_of_folders(tmp_path):
    make(tmp_path / "a", "group")
    os.chmod(tmp_path / "a", 0o750)
    os.chmod(tmp_path / "a/in", 0o700)
    dataset.snapshot(tmp_path / "a", tmp_path / "copy")
    for name in ("", "in", "in/x", "in/x/c"):
        modes = [(tmp_path / top / name).stat().st_mode for top in ("a", "copy")]
        assert modes[0] == modes[1]


def test_what_is_refused(tmp_path):
    make(tmp_path / "a", "united group")
    (tmp_path / "folder").mkdir()
    cases = {
        "a/in/x": (UsageError, "make a snapshot of that"),
        "a/t/x": (UsageError, "make a snapshot of that"),
        "none": (FileNotFoundError, "none"),
        "folder": (ValueError, "expected a dataset"),
        "http://127.0.0.1:9/a": (UsageError, "'blpk convert'"),
    }
    for name, (error, message) in cases.items():
        source = name if "//" in name else tmp_path / name
        with pytest.raises(error, match=message):
            dataset.snapshot(source, tmp_path / "copy")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    cases = {"a/in/y": UsageError, "link/y": UsageError, "folder": FileExistsError}
    for target, error in cases.items():
        with pytest.raises(error):
            dataset.snapshot(tmp_path / "a", tmp_path / target)
    (tmp_path / "folder/x").write_text("mine")
    with pytest.raises(StorageError, match="not a dataset"):
        dataset.snapshot(tmp_path / "a", tmp_path / "folder", force=True)
    (tmp_path / "a/in/link").symlink_to("/etc/passwd")
    with pytest.raises(StorageError, match="symbolic link"):
        dataset.snapshot(tmp_path / "a", tmp_path / "copy")
    assert {"a", "folder", "link"} == {*os.listdir(tmp_path)}
    make(tmp_path / "plain", "group")
    with pytest.raises(UsageError, match="contains the source"):
        dataset.snapshot(tmp_path / "plain/in/x", tmp_path / "plain", force=True)
    assert [[0.0, 1.0]] == dataset.open(tmp_path / "plain")["in/x"][:1].tolist()


def test_a_dataset_in_a_zip_file(tmp_path):
    make(tmp_path / "a", "zarr")
    shutil.make_archive(str(tmp_path / "a"), "zip", tmp_path / "a")
    with pytest.raises(UsageError, match="ZIP"):
        dataset.snapshot(tmp_path / "a.zip", tmp_path / "copy")
