"""Rows that are appended to a dataset opened with `buffered` wait in memory."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from dataset.layouts import LAYOUTS
from support import environment

from bloscpack import dataset
from bloscpack._commit.change import FolderChange
from bloscpack._storage.disk import disk
from bloscpack.exceptions import DoesNotFit, StorageError, UsageError

# How an array is cut: only rows, all axes, and as it is by default.
CUTS = {
    "rows": ((), {"chunks": 4, "shards": 12}),
    "wide rows": ((5,), {"chunks": 4, "shards": 12}),
    "grid": ((5,), {"chunks": (4, 2), "shards": (8, 4)}),
    "default": ((5,), {}),
    "superchunk": ((), {"chunks": 4, "shards": 12, "layout": "superchunk"}),
    "bcolz": ((5,), {"chunks": 4, "layout": "bcolz"}),
}


def check_reads(array, expected):
    """Check an array with all kinds of indexes."""
    rng = np.random.default_rng(len(expected))
    count = len(expected)
    assert expected.shape == array.shape
    some = rng.integers(-count, count, 5)
    keys = [..., slice(None, None, -3), slice(count - 3, None), -1, 0, some]
    keys += [rng.random(count) > 0.5, rng.random(expected.shape) > 0.5]
    if expected.ndim > 1:
        keys += [(some, 1), (slice(count // 2, None), slice(None, None, 2))]
    for key in keys:
        assert expected[key].tolist() == np.asarray(array[key]).tolist()
    assert expected.tolist() == array.read(np.empty_like(expected)).tolist()
    assert expected.tolist() == np.concatenate([*array.iter_chunks()]).tolist()


@pytest.mark.parametrize("name", CUTS)
@pytest.mark.parametrize("start", [0, 3, 4, 12, 17])
def test_reading_and_closing(tmp_path, name, start):
    inner, how = CUTS[name]
    rng = np.random.default_rng(start)
    expected = rng.integers(0, 100, (start, *inner))
    with dataset.create_array(
        tmp_path / "a", expected, buffered=True, sync=False, **how
    ) as array:
        for count in (1, 1, 3, 9, 1, 30, 2):
            new = rng.integers(0, 100, (count, *inner))
            kept = new.copy()
            array.append(new)
            new[:] = -1  # the array has a copy
            expected = np.concatenate([expected, kept])
            if len(array):
                check_reads(array, expected[: len(array)])
            stored = dataset.open(tmp_path / "a")[...]
            assert array[...].tolist() == stored.tolist()
    check_reads(dataset.open(tmp_path / "a"), expected)
    assert dataset.verify(tmp_path / "a").ok


def test_rows_wait_for_the_end_of_a_file(tmp_path):
    with dataset.create_array(
        tmp_path / "a", range(5), chunks=4, shards=12, buffered=True
    ) as array:
        lengths = []
        for number in range(5, 27):
            array.append([number])
            lengths.append(len(dataset.open(tmp_path / "a")))
            assert lengths[-1] == len(array)
        assert [5] * 6 + [12] * 12 + [24] * 4 == lengths
        array.append(range(27, 49))  # over the end of two files
        assert 49 == len(dataset.open(tmp_path / "a"))
        assert list(range(49)) == array[:].tolist()


CHANGES = {
    "flush": lambda array: array.flush(),
    "assign": lambda array: array.__setitem__(6, 60),
    "resize": lambda array: array.resize(7),
    "attributes": lambda array: array.attrs.update(x=1),
    "an iterator": lambda array: array.append(iter([[8, 9], [10]])),
}


@pytest.mark.parametrize("name", CHANGES)
def test_other_changes_write_the_rows(tmp_path, name):
    with (
        dataset.create_array(tmp_path / "a", range(5), buffered=True) as array,
        dataset.create_array(tmp_path / "b", range(8)) as other,
    ):
        array.append([5, 6])
        array.append(7)
        assert 5 == len(dataset.open(tmp_path / "a"))
        CHANGES[name](array)
        CHANGES[name](other)
        assert other[:].tolist() == array[:].tolist()
        assert other[:].tolist() == dataset.open(tmp_path / "a")[:].tolist()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tables(tmp_path, layout):
    rows = {"a": np.arange(3), "b": np.zeros((3, 2))}
    cut = {"chunks": {"a": 4, "b": 8}} | ({} if layout == "bcolz" else {"shards": 16})
    dataset.create_table(tmp_path / "t", rows, layout=layout, **cut).close()
    expected = list(range(3))
    with dataset.open_table(tmp_path / "t", "r+", buffered=True) as table:
        for number in range(20):
            table.append({"a": [number] * 2, "b": np.ones((2, 2))})
            expected += [number] * 2
            found = expected[: len(table)]
            assert found == table["a"][:].tolist() == table[:]["a"].tolist()
            assert len(table) == len(table["b"]) == len(dataset.open(tmp_path / "t"))
        assert len(dataset.open(tmp_path / "t")) < len(expected)
        table["a"][0] = 7
        assert len(dataset.open(tmp_path / "t")) == len(expected)
        table.append({"a": [1], "b": [[1, 1]]})
        table.add_column("c", np.arange(len(expected) + 1))
        table.append({"a": [1], "b": [[1, 1]], "c": [5]})
        with pytest.raises(DoesNotFit):
            table.append({"a": [1, 2], "b": [[1, 1]], "c": [5]})
    found = dataset.open(tmp_path / "t")
    assert [7, *expected[1:], 1, 1] == found["a"][:].tolist()
    assert [*range(len(expected) + 1), 5] == found["c"][:].tolist()


def test_an_error_keeps_the_rows(tmp_path, monkeypatch):
    def fail(*args):
        raise OSError(5, "the disk has failed")

    with dataset.create_array(
        tmp_path / "a", [1], chunks=4, shards=4, buffered=True
    ) as array:
        array.append([2, 3])
        with pytest.raises(DoesNotFit):
            array.append([0.5])
        with monkeypatch.context() as context:
            context.setattr(disk, "sync", fail)
            fills = lambda: array.append([9])  # noqa: E731 - the shard is full then
            for change in (array.flush, array.close, lambda: array.resize(2), fills):
                with pytest.raises(OSError, match="the disk has failed"):
                    change()
        assert [1] == array[:].tolist() == dataset.open(tmp_path / "a")[:].tolist()
        array.append([4])
    assert [1, 2, 3, 4] == dataset.open(tmp_path / "a")[:].tolist()


def test_an_array_that_is_dropped(tmp_path):
    array = dataset.create_array(tmp_path / "a", [1], buffered=True)
    array.append([2])
    array.flush()
    array.append([3, 4])
    kept = [array]
    del array
    with pytest.warns(ResourceWarning, match="not closed: '2' appended rows"):
        kept.clear()
    with dataset.open(tmp_path / "a", "r+") as array:  # the lock is free
        assert [1, 2] == array[:].tolist()


def test_a_program_that_ends(tmp_path):
    """Rows are written at the end of a program that closes nothing."""
    program = PROGRAM.partition("print")[0]
    subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "a")],
        env=environment(),
        check=True,
    )
    assert list(range(8)) == dataset.open(tmp_path / "a")[:].tolist()


PROGRAM = """
import os, signal, sys
from bloscpack import dataset
array = dataset.create_array(sys.argv[1], [0], buffered=True)
for number in range(1, 8):
    array.append([number])
    if number == 5:
        array.flush()
print(len(array))
sys.stdout.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_killed_program_loses_what_was_not_flushed(tmp_path):
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "a")]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, check=False
    )
    assert (-signal.SIGKILL, "6") == (
        done.returncode,
        done.stdout.strip(),
    )
    with dataset.open(tmp_path / "a", "r+") as array:
        assert list(range(6)) == array[:].tolist()
    assert dataset.verify(tmp_path / "a").ok


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_process_does_not_write(tmp_path):
    with dataset.create_array(tmp_path / "a", [1], buffered=True) as array:
        array.append([2])
        child = os.fork()
        if not child:
            right = array[:].tolist() == [1]
            try:
                array.flush()
            except UsageError:
                os._exit(0 if right else 1)
            os._exit(2)
        assert 0 == os.waitpid(child, 0)[1]
        assert 1 == len(dataset.open(tmp_path / "a"))
    assert [1, 2] == dataset.open(tmp_path / "a")[:].tolist()


def test_threads(tmp_path):
    """Readers see a beginning of the rows, and each thread's rows stay in order."""
    errors = []

    def append(start):
        for number in range(start, start + 60):
            array.append([number])

    def read():
        while not done.is_set():
            found = array[:].tolist()
            for start in (0, 1000):
                own = [n for n in found if start <= n < start + 1000]
                if own != list(range(start, start + len(own))):
                    errors.append(found)

    with dataset.create_array(
        tmp_path / "a", np.empty(0, int), chunks=4, shards=16, buffered=True, sync=False
    ) as array:
        done = threading.Event()
        reader = threading.Thread(target=read)
        writers = [threading.Thread(target=append, args=(n,)) for n in (0, 1000)]
        for thread in (reader, *writers):
            thread.start()
        for thread in writers:
            thread.join()
        done.set()
        reader.join()
        assert [] == errors
    expected = [*range(60), *range(1000, 1060)]
    assert expected == sorted(dataset.open(tmp_path / "a")[:].tolist())


def test_refusals(tmp_path):
    dataset.create_array(tmp_path / "a", [1]).close()
    for mode, more in (("r", {}), ("r+", {"shared": True})):
        with pytest.raises(UsageError, match="buffered=True is for a single writer"):
            dataset.open(tmp_path / "a", mode, buffered=True, **more)
    with pytest.raises(UsageError, match="buffered=True is for arrays and tables"):
        dataset.open(tmp_path / "g", "w", buffered=True)
    with (
        dataset.create_group(tmp_path / "g") as group,
        group.create_array("a", [1], buffered=True) as array,
    ):
        array.append([2])
        assert [1] == array[:].tolist() == pickle.loads(pickle.dumps(array))[:].tolist()
        array.flush()
        assert [1, 2] == array[:].tolist()
    with pytest.raises(UsageError, match="is a group"):
        dataset.open(tmp_path / "g", "r+", buffered=True)
    # Also items whose fields have files of their own.
    items = np.zeros(2, [("x", "i4"), ("y", "f8")])
    with dataset.create_array(
        tmp_path / "s", items, layout="superchunk", buffered=True
    ) as array:
        array.append(items)
        assert 2 == len(dataset.open(tmp_path / "s")) == len(array)
    assert 4 == len(dataset.open(tmp_path / "s"))
    with dataset.open(tmp_path / "a", "a", buffered=True) as array:
        array.append([2])
        with pytest.raises(StorageError):  # it is locked
            dataset.open(tmp_path / "a", "r+")
    with pytest.raises(UsageError, match="closed"):
        array.append([3])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_copies_have_the_rows_that_wait(tmp_path, layout):
    rows = {"a": [1], "b": [1.5]}
    how = {"layout": layout, "buffered": True, "sync": False}
    changes = {
        "renamed": lambda table: table.rename({"b": "c"}),
        "all renamed": lambda table: table.rename({"a": "x", "b": "y"}),
    }
    for name, change in changes.items():
        with dataset.create_table(tmp_path / name, rows, **how) as table:
            table.append(rows)
            change(table)
            table.append(np.ones(1, table.dtype))
        items = [(1, 1.5), (1, 1.5), (1, 1.0)]
        assert items == dataset.open(tmp_path / name)[:].tolist()
        assert dataset.verify(tmp_path / name).ok


def test_an_interrupted_commit(tmp_path, monkeypatch):
    """It is unknown whether the rows are in the files, so there is no other attempt."""

    def interrupted(change):
        commit(change)
        raise KeyboardInterrupt

    array = dataset.create_array(tmp_path / "a", shape=0, dtype="i8", buffered=True)
    array.append([1, 2])
    with monkeypatch.context() as patch:
        commit = FolderChange.commit
        patch.setattr(FolderChange, "commit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            array.flush()
    for change in (lambda: array.append([3]), array.flush):
        with pytest.raises(StorageError, match="open it again"):
            change()
    assert [] == array[:].tolist()
    with pytest.raises(StorageError, match="open it again"):
        array.close()
    array.close()
    with dataset.open(tmp_path / "a", "r+") as array:
        assert [1, 2] == array[:].tolist()
