"""Reads of several members in one state: ``pinned=True`` and `Group.read`."""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest
from dataset.inside import FolderChange, FolderStore

from bloscpack import dataset
from bloscpack._commit.pin import DatasetChanged
from bloscpack._storage.folder_store import StaleDataset
from bloscpack.exceptions import StorageError, UsageError

CHANGED = "it has changed since it was opened with pinned=True: open it again"
COUNT = 64

# A process that changes both members again and again, in one change if it is asked to.
WRITER = """
import itertools, sys
from bloscpack import dataset
path, together = sys.argv[1:]
with dataset.open_group(path, "r+", sync=False) as group:
    print("open", flush=True)
    for number in itertools.count(1):
        if together:
            with group.change():
                group["a"][:] = number
                group["b"][:] = number
        else:
            group["a"][:] = number
            group["b"][:] = number
"""

# A process that replaces a member again and again.
REPLACER = """
import itertools, sys
from bloscpack import dataset
with dataset.open_group(sys.argv[1], "r+", sync=False) as group:
    for number in itertools.count(1):
        group["a"] = [number] * (60 + number % 9)
        if number == 1:
            print("open", flush=True)
"""


@pytest.fixture(params=["plain", "committing"])
def path(request, tmp_path):
    path = str(tmp_path / "group")
    with dataset.create_group(path) as group:
        for name in "ab":
            group.create_array(name, np.arange(COUNT), chunks=4, shards=16)
        group.create_table("t", {"x": np.arange(COUNT), "y": ["y"] * COUNT}, chunks=8)
        group.create_array("sparse", shape=COUNT * 16, dtype="i4", chunks=4, shards=4)
        group.create_group("in").create_array("c", [1, 2])
        if request.param == "plain":
            group.create_array("s", np.arange(COUNT), layout="superchunk", chunks=4)
        else:
            with group.change():
                pass
    return path


def of(change):
    """Return a function that changes a group, opened for it."""

    def changed(path):
        with dataset.open_group(path, "r+") as group:
            change(group)

    return changed


def assign(group):
    group["a"][20] = -1


def replace(group):
    group["a"] = np.arange(COUNT)


def remove(group):
    del group["a"]


CHANGES = {
    "items": of(assign),
    "rows": of(lambda group: group["a"].append([1])),
    "shape": of(lambda group: group["a"].resize(20)),
    "attribute": of(lambda group: group["a"].attrs.update(unit="m")),
    "replaced": of(replace),
    "removed": of(remove),
}
READS = {
    "array": lambda group: group["b"][3:5],
    "item": lambda group: group["b"][7],
    "whole": lambda group: group["b"].read(),
    "table": lambda group: group["t"][2:4],
    "column": lambda group: group["t"]["y"][:],
    "missing": lambda group: group["sparse"][:],
    "inner": lambda group: group["in/c"][:],
    "again": lambda group: group["a"][:4],
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("read", READS)
def test_reads_after_a_change_of_what_was_read(path, change, read):
    with dataset.open_group(path, pinned=True) as group:
        assert list(range(COUNT)) == group["a"][:].tolist()
        READS[read](group)
        CHANGES[change](path)
        is_gone = (change, read) == ("removed", "again")
        with pytest.raises(KeyError if is_gone else StorageError) as caught:
            READS[read](group)
        assert is_gone or CHANGED in str(caught.value)
    if not is_gone:
        with dataset.open_group(path, pinned=True) as group:
            READS[read](group)


def test_superchunk(tmp_path):
    path = str(tmp_path / "s")
    dataset.create_array(path, np.arange(COUNT), layout="superchunk", chunks=4).close()
    with dataset.open(path, pinned=True) as array:
        assert 5 == array[5]
        with dataset.open(path, "r+") as other:
            other[5] = 6
        with pytest.raises(StorageError, match=CHANGED):
            array[40]


def test_changes_of_what_was_not_read_are_seen(path):
    """All that is read then is of the present state."""
    with dataset.open_group(path, pinned=True) as group:
        if group.commits_members:
            pytest.skip("the document of the group was read, and changes")
        assert 5 == group["a"][5]
        with dataset.open_group(path, "r+") as other:
            other["b"][5] = -5
        assert -5 == group["b"][5]
        assert 5 == group["a"][5]


def test_missing_shards(path):
    with dataset.open_group(path, pinned=True) as group:
        assert not group["sparse"][:].any()
        with dataset.open_group(path, "r+") as other:
            other["sparse"][40] = 1
        with pytest.raises(StorageError, match=CHANGED):
            group["a"][0]


@pytest.mark.parametrize("member", ["", "a", "t", "in"])
def test_other_processes_need_their_own_group(path, member):
    """A copy would not know what was read here since."""
    with dataset.open_group(path, pinned=True) as group:
        with pytest.raises(UsageError, match="open it in the other process"):
            pickle.dumps(group[member] if member else group)
        if hasattr(os, "fork"):
            child = os.fork()
            if child == 0:
                with contextlib.suppress(UsageError):
                    group["a"][:]
                    os._exit(1)
                os._exit(0)
            assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    error = DatasetChanged("x")
    assert str(error) == str(pickle.loads(pickle.dumps(error)))


def test_items_in_memory(path):
    with dataset.open_group(path, pinned=True) as group:
        for _ in range(9):
            assert 3 == group["a"][3]
            group["t"]["x"][2]
        with dataset.open_group(path, "r+") as other:
            other["a"][3] = 7
        for read in (lambda: group["a"][3], lambda: group["t"]["x"][2]):
            with pytest.raises(StorageError, match=CHANGED):
                read()
        with pytest.raises(StorageError, match=CHANGED):
            group.read(["b"])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("stop", range(1, 9))
def test_a_change_that_a_killed_writer_has_committed(path, stop, monkeypatch):
    calls, move = itertools.count(1), FolderChange._move

    def moved(*args):
        if next(calls) > stop:
            os._exit(0)
        move(*args)

    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException), dataset.open(path, "r+") as group:
            monkeypatch.setattr(FolderChange, "_move", moved)
            group["a"][:] = 1
        os._exit(0)
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with dataset.open_group(path) as group:
        expected = group["a"][:].tolist()
        assert expected in ([1] * COUNT, [*range(COUNT)])
        assert expected == group.read(["a", "b"])["a"].tolist()
    with dataset.open_group(path, pinned=True) as group:
        assert expected == group["a"][:].tolist() == group["a"].read().tolist()
        assert [*range(COUNT)] == group["b"][:].tolist()


def test_reading_beside_a_writer_that_replaces_members(path):
    command = [sys.executable, "-c", REPLACER, path]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        try:
            writer.stdout.readline()
            with dataset.open_group(path) as group:
                for _ in range(40):
                    found = group.read(name for name in ("a", "b"))
                    assert ["a", "b"] == [*found]
                    assert 1 == len({*found["a"].tolist()})
        finally:
            writer.kill()


@pytest.mark.parametrize("together", ["", "together"])
def test_reading_beside_a_writer(path, together):
    """The values of both members were there at one time."""
    with dataset.open_group(path, "r+") as group:
        group["a"][:] = group["b"][:] = 0
    command = [sys.executable, "-c", WRITER, path, together]
    seen = set()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        try:
            writer.stdout.readline()
            with dataset.open_group(path) as group:
                end = time.monotonic() + 60
                for count in itertools.count():
                    if (count >= 30 and len(seen) > 1) or time.monotonic() > end:
                        break
                    found = group.read(["b", "a"])
                    values = {name: {*items.tolist()} for name, items in found.items()}
                    (a,), (b,) = values["a"], values["b"]
                    assert a - b in ((0,) if together else (0, 1))
                    seen.add(a)
        finally:
            writer.kill()
    assert len(seen) > 1


def test_read_returns_items(path):
    with dataset.open_group(path) as group:
        found = group.read(["a", "t", "t/y", "in/c"])
        assert ["a", "t", "t/y", "in/c"] == [*found]
        for name, items in found.items():
            np.testing.assert_array_equal(items, group[name][:])
        np.testing.assert_array_equal([1, 2], group["in"].read(["c"])["c"])
        with pytest.raises(KeyError, match="nothing"):
            group.read(["nothing"])
        with pytest.raises(UsageError, match="in' is a group: read its members"):
            group.read(["in"])
        with pytest.raises(UsageError, match="list of names"):
            group.read("a")
    with pytest.raises(UsageError, match="closed"):
        group.read(["a"])


def test_read_of_what_waits_or_is_in_a_block(path):
    with dataset.open_group(path, "r+") as group:
        waits = group.create_array("w", [1], buffered=True)
        waits.append([2])
        assert [1, 2] == group.read(["w"])["w"].tolist()
        with group.change():
            group["a"].append([7])
            assert 7 == group.read(["a"])["a"][-1]
            del group["b"]
            with pytest.raises(KeyError):
                group.read(["b"])


def test_archive(tmp_path):
    import bloscpack as bp

    path = str(tmp_path / "x.zip")
    bp.savez(path, a=np.arange(5))
    with dataset.open_group(path, pinned=True) as group:
        assert 4 == group["a"][4]


def test_what_can_not_be_pinned(tmp_path):
    path = str(tmp_path / "b")
    dataset.create_array(path, [1, 2], layout="bcolz").close()
    with pytest.raises(UsageError, match="layout 'bcolz', whose files other"):
        dataset.open(path, pinned=True)
    with pytest.raises(UsageError, match="needs the mode 'r', not 'r\\+'"):
        dataset.open(path, "r+", pinned=True)
    dataset.create_array("memory://pinned-array", [1, 2]).close()
    with pytest.raises(UsageError, match="is at a URL: 'pinned=True' and"):
        dataset.open("memory://pinned-array", pinned=True)


def test_a_reader_beside_a_writer_that_replaces_a_member(path):
    """It is never told that an intact dataset is damaged."""
    command, found = [sys.executable, "-c", REPLACER, path], 0
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        try:
            writer.stdout.readline()
            for _ in range(200):
                with contextlib.suppress(StaleDataset, FileNotFoundError):
                    assert 1 == len({*dataset.open_group(path)["a"][:].tolist()})
                    found += 1
        finally:
            writer.kill()
    assert found > 50


def test_many_members_are_compared_once(tmp_path, monkeypatch):
    names = ["m%d" % number for number in range(30)]
    with dataset.create_group(tmp_path / "g") as group:
        for name in names:
            group[name] = [1, 2]
    calls, identity = [], FolderStore.identity

    def counted(store, name):
        calls.append(name)
        return identity(store, name)

    monkeypatch.setattr(FolderStore, "identity", counted)
    with dataset.open_group(tmp_path / "g") as group:
        found = group.read(names)
    assert names == [*found]
    assert len(calls) < 12 * len(names)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("mode", ["r", "r+"])
def test_members_of_a_group_that_was_moved_are_read_together(tmp_path, mode, inside):
    """As one by one: another group that has got the path since is none of it."""
    path = tmp_path / "g"
    with dataset.create_group(path) as group:
        group["in/a"], group["a"] = [1], [1]
        if inside:
            with group.change():
                pass
    with dataset.open_group(path, mode) as group:
        found = group["in"] if inside else group
        member = found["a"]
        path.rename(tmp_path / "moved")
        with dataset.create_group(path) as other:
            other["in/a"], other["a"] = [2], [2]
        assert [1] == member[:].tolist() == found.read(["a"])["a"].tolist()
        assert [1] == found.read(["a"])["a"].tolist()
        if mode == "r":
            shutil.rmtree(tmp_path / "moved")
            with pytest.raises(StaleDataset):
                found.read(["a"])
