"""Changes of a dataset opened with `buffered` wait in memory."""

from __future__ import annotations

import contextlib
import gc
import itertools
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from dataset.inside import FolderChange, disk
from dataset.layouts import LAYOUTS
from support import environment, open_files_in

from bloscpack import dataset
from bloscpack.dataset import write_buffer
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
        assert 7 <= len(dataset.open(tmp_path / "a"))
        assert other[:].tolist() == array[:].tolist()
        array.flush()
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
    with pytest.warns(ResourceWarning, match="not closed; lost: 2 appended rows"):
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


def leave_open(path):
    """Change an array in a process, and end without closing it."""
    global kept
    kept = dataset.open_array(path, "r+", buffered=True)
    kept[2] = 7
    kept.flush()
    kept[1] = 5


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_a_process_of_multiprocessing_that_ends(tmp_path, method):
    path = tmp_path / "a"
    dataset.create_array(path, [1, 2, 3], buffered=True).close()
    job = multiprocessing.get_context(method).Process(target=leave_open, args=(path,))
    job.start()
    job.join()
    assert [1, 5, 7] == dataset.open(path)[:].tolist()


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


def test_rows_that_append_others(tmp_path):
    """A row is read late, and its source appends one: it would be overwritten."""

    class Late:
        dtype, shape = np.dtype("i8"), (1,)

        def __getitem__(self, key):
            with pytest.raises(UsageError, match="while rows"):
                array.append([7])
            return np.array([5])

    with dataset.create_array(tmp_path / "a", [1], buffered=True) as array:
        array.append(Late())
        array.append([6])
    assert [1, 5, 6] == dataset.open(tmp_path / "a")[:].tolist()


# Assigned items


def items_like(rng, dtype, shape):
    found = rng.integers(0, 100, shape)
    if dtype is object:
        return np.array([str(n) for n in found.flat], object).reshape(shape)
    return found.astype(dtype)


# Dtypes with the fill values that random arrays get, None for the default.
FILLS = [("i4", 0), ("f4", np.nan), ("f8", -0.0), ("?", True), ("M8[s]", "NaT")]
FILLS += [("S3", b"1"), ("i8", None), (object, "1"), (object, None)]


@pytest.mark.parametrize("seed", range(60))
def test_random_arrays_that_leave_out_shards(tmp_path, monkeypatch, seed):
    """With a fill value, several axes that are resized, and other readers."""
    rng = np.random.default_rng(seed)
    limit = int(rng.choice([50, 300, 10**6]))
    monkeypatch.setattr(write_buffer, "BUFFER_NBYTES", limit)
    dtype, fill = FILLS[seed % len(FILLS)]
    shape = tuple(rng.integers(1, 9, rng.integers(1, 4)).tolist())
    chunks = tuple(rng.integers(1, 4, len(shape)).tolist())
    shards = tuple(n * int(rng.integers(1, 4)) for n in chunks)
    path = tmp_path / "a"
    how = {} if fill is None else {"fill_value": np.array(fill, dtype)[()]}
    value = how.get("fill_value", "" if dtype is object else np.zeros((), dtype)[()])

    def filled(shape, part=None):
        items = np.empty(shape, dtype)
        items[...] = value
        if part is not None:
            box = tuple(map(slice, map(min, shape, part.shape)))
            items[box] = part[box]
        return items

    def given(shape):
        return filled(shape) if rng.integers(2) else items_like(rng, dtype, shape)

    def check(array):
        found = array[...]
        assert expected.shape == found.shape
        if dtype is object:
            assert expected.tolist() == found.tolist()
        else:
            assert expected.tobytes() == found.tobytes()

    options = {"buffered": bool(rng.integers(2)), "sync": False}
    cut = {"chunks": chunks, "shards": shards}
    expected = filled(shape) if rng.integers(3) else items_like(rng, dtype, shape)
    array = dataset.create_array(
        path,
        *(expected,) * bool((expected != filled(shape)).any()),
        shape=shape,
        dtype="str" if dtype is object else dtype,
        **{**cut, **how, **options},
    )
    reader = dataset.open(path)
    for _ in range(15):
        step = rng.integers(8)
        if step < 4:
            ends = (sorted(rng.integers(0, n + 1, 2).tolist()) for n in expected.shape)
            key = ... if rng.integers(4) == 0 else tuple(slice(*pair) for pair in ends)
            expected[key] = array[key] = given(expected[key].shape)
        elif step == 4:
            length = tuple(rng.integers(0, 11, len(shape)).tolist())
            array.resize(length)
            expected = filled(length, expected)
        elif step == 5:
            axis = int(rng.integers(len(shape)))
            extent = list(expected.shape)
            extent[axis] = int(rng.integers(4))
            more = given(tuple(extent))
            array.append(more, axis=axis)
            array.flush()
            expected = np.concatenate([expected, more], axis)
        elif step == 6:
            array.close()
            array = dataset.open(path, "r+", **options)
        else:
            array.flush()
            reader.refresh()
            check(reader)
        check(array)
    array.close()
    check(dataset.open(path))
    assert dataset.verify(path).ok


def test_items_wait_for_a_whole_shard(tmp_path):
    path, shape = tmp_path / "a", (4, 6, 8)
    cut = {"chunks": (1, 6, 8), "shards": (2, 6, 8), "buffered": True}
    with dataset.create_array(path, shape=shape, dtype="i4", **cut) as array:

        def stored():
            return dataset.open(path)[:, 0, 0].tolist()

        array[2] = 2
        assert (0, 2) == (dataset.open(path)[2, 0, 0], array[2, 0, 0])
        array[0] = 1
        array[1, 3:] = 3
        array[1, :3] = 3
        assert [1, 3, 0, 0] == stored()
        array[3, 0] = 5
        array.flush()
        assert [1, 3, 2, 5] == stored()
        array[:, 0] = 7  # of two shards, which change together
        array[0] = array[1] = 8
        assert [1, 3, 2, 5] == stored()
        array[2:] = 8
        assert [8] * 4 == stored()


def test_what_waits_takes_little_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(write_buffer, "BUFFER_NBYTES", 3 * 2**16)
    cut = {"chunks": (1, 2**14), "shards": (4, 2**14), "buffered": True, "sync": False}
    with dataset.create_array(
        tmp_path / "a", shape=(40, 2**14), dtype="i4", **cut
    ) as array:
        for row in range(0, 40, 4):
            array[row] = row + 1
            waiting = array._layout.waiting
            assert sum(items.nbytes for items in waiting.values()) <= 3 * 2**16
        assert [*range(1, 41, 4)] == array[::4, 5].tolist()


def test_columns_of_assigned_rows_change_together(tmp_path):
    rows = {"a": np.arange(20), "b": np.arange(20.0), "s": ["x"] * 20}
    cut = {"chunks": {"a": 4, "b": 2, "s": 5}, "shards": {"a": 8, "b": 4, "s": 10}}
    with dataset.create_table(tmp_path / "t", rows, buffered=True, **cut) as table:
        table[3] = (7, 8.5, "y")
        table["a"][5] = 9
        assert (7, 8.5, "y") == table[3].item()
        assert (3, 3.0, "x") == dataset.open(tmp_path / "t")[3].item()
        table.append({"a": [1], "b": [2], "s": ["z"]})
        assert (7, 8.5, "y") == dataset.open(tmp_path / "t")[3].item()
        table[20] = (5, 6, "w")
        assert (5, 6.0, "w") == table[20].item()
        table["a"] = np.arange(21) + 1
        assert [*range(1, 22)] == table["a"][:].tolist()
    found = dataset.open(tmp_path / "t")
    assert [*range(1, 22)] == found["a"][:].tolist()
    assert (21, 6.0, "w") == found[20].item()
    assert dataset.verify(tmp_path / "t").ok


def test_an_error_keeps_assigned_items(tmp_path, monkeypatch):
    def fail(*args):
        raise OSError(5, "the disk has failed")

    with dataset.create_array(
        tmp_path / "a", range(8), chunks=4, shards=4, buffered=True
    ) as array:
        array[1] = 7
        with pytest.raises(DoesNotFit):
            array[2] = 0.5
        with pytest.raises(IndexError):
            array[8] = 1
        with monkeypatch.context() as context:
            context.setattr(disk, "sync", fail)
            fills = lambda: array.__setitem__(slice(0, 4), 5)  # noqa: E731
            for change in (array.flush, array.close, lambda: array.resize(2), fills):
                with pytest.raises(OSError, match="the disk has failed"):
                    change()
        assert [5] * 4 + [4] == array[:5].tolist()
        assert [0, 1] == dataset.open(tmp_path / "a")[:2].tolist()
    assert [5] * 4 + [4] == dataset.open(tmp_path / "a")[:5].tolist()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_process_reads_what_was_written(tmp_path):
    """Nothing waits there: what waits in its parent changes, and may be incomplete."""
    ready, flushed = os.pipe(), os.pipe()
    with dataset.create_array(
        tmp_path / "a", np.zeros(16, int), chunks=4, shards=8, buffered=True
    ) as array:
        array[0] = 5
        child = os.fork()
        if not child:
            right = not array[:].any()
            os.write(ready[1], b".")
            os.read(flushed[0], 1)
            array.refresh()
            right = right and array[:].tolist() == [5, 4, *[0] * 7, 9, *[0] * 6]
            try:
                array[1] = 4
            except UsageError:
                os._exit(0 if right else 1)
            os._exit(2)
        os.read(ready[0], 1)
        array[1], array[9] = 4, 9
        array.flush()
        os.write(flushed[1], b".")
        assert 0 == os.waitpid(child, 0)[1]
        assert 5 == array[0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_during_an_assignment(tmp_path):
    """The child never finds a part of it."""
    array = dataset.create_array(
        tmp_path / "a",
        *(np.zeros((8, 2000), int),),
        chunks=(1, 2000),
        shards=(16, 2000),
        buffered=True,
        sync=False,
    )
    ends = threading.Event()

    def assign():
        for number in itertools.count(1):
            array[:7] = number
            if ends.is_set():
                return

    thread = threading.Thread(target=assign)
    thread.start()
    try:
        for _ in range(30):
            child = os.fork()
            if not child:
                os._exit(0 if 1 == len(np.unique(array[:7])) else 1)
            assert 0 == os.waitpid(child, 0)[1]
    finally:
        ends.set()
        thread.join()
        array.close()


@pytest.mark.skipif(not getattr(os, "geteuid", int)(), reason="root may write")
def test_a_folder_that_can_not_be_written(tmp_path):
    dataset.create_array(tmp_path / "a", [1, 2]).close()
    os.chmod(tmp_path / "a", 0o500)
    with pytest.raises(PermissionError, match="a'"):
        dataset.open(tmp_path / "a", "r+", buffered=True)
    dataset.open(tmp_path / "a", "r+").close()


def test_an_interrupt_stays_one(tmp_path, monkeypatch):
    """Also if what waits can't be written then."""
    array = dataset.create_array(tmp_path / "a", [1, 2], buffered=True)
    array[0] = 5

    def fails(*_):
        raise StorageError(28, "the disk is full")

    monkeypatch.setattr(FolderChange, "commit", fails)
    with pytest.raises(KeyboardInterrupt) as caught, array:
        raise KeyboardInterrupt
    assert "the disk is full" in str(caught.value.__cause__)
    monkeypatch.undo()
    array.close()
    assert 5 == dataset.open(tmp_path / "a")[0]


def test_text_that_waits_is_counted(tmp_path, monkeypatch):
    """Long texts don't wait, unlike their places in an array."""
    monkeypatch.setattr(write_buffer, "BUFFER_NBYTES", 100_000)
    with dataset.create_array(
        tmp_path / "a", np.array([""] * 64, object), chunks=4, shards=64, buffered=True
    ) as array:
        for number in range(8):
            array[number] = "é" * 9_000
        assert [""] * 8 == dataset.open(tmp_path / "a")[:8].tolist()
        for number in range(8, 16):
            array[number] = "é" * 9_000
        assert "é" * 9_000 == dataset.open(tmp_path / "a")[8]
        array[:] = ["é" * 9_000] * 64
        assert "é" * 9_000 == dataset.open(tmp_path / "a")[63]


# A stack of images that is written plane by plane

STACK = (3, 2, 8, 256, 512)


def plane(index):
    return np.random.default_rng(index).integers(0, 2**16, STACK[-2:], "u2")


def written_bytes():
    """Return the number of bytes that this process has written."""
    with open("/proc/self/io") as fp:
        facts = dict(line.split(": ") for line in fp.read().splitlines())
    return int(facts["wchar"])


def write_planes(path, indexes, queue, **options):
    """Write planes in a process, and tell how many bytes it has written."""
    before = written_bytes()
    with dataset.open_array(path, "r+", **options) as array:
        for index in indexes:
            array[index] = plane(index)
    queue.put(written_bytes() - before)


@pytest.mark.full
@pytest.mark.skipif(not os.path.exists("/proc/self/io"), reason="needs Linux")
@pytest.mark.parametrize("order", ["C", "F", "random"])
@pytest.mark.parametrize("way", ["default", "buffered", "threads", "processes"])
def test_planes_in_any_order_are_written_once(tmp_path, order, way):
    indexes = [tuple(map(int, index)) for index in np.ndindex(STACK[:3])]
    if order == "F":
        indexes.sort(key=lambda index: index[::-1])
    elif order == "random":
        np.random.default_rng(1).shuffle(indexes)
        indexes = [tuple(map(int, index)) for index in indexes]
    path, before = tmp_path / "a", written_bytes()
    how = {"shape": STACK, "dtype": "u2", "sync": False}
    if way in ("buffered", "threads"):
        how |= {"shards": (1, 1, 8, 256, 512), "buffered": True}
    with dataset.create_array(path, **how) as array:
        if way == "threads":
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda i: array.__setitem__(i, plane(i)), indexes))
            check = [array[i].tobytes() == plane(i).tobytes() for i in indexes[:4]]
            assert all(check)
        elif way != "processes":
            for index in indexes:
                array[index] = plane(index)
                if way == "buffered":
                    assert array[index].tobytes() == plane(index).tobytes()
    nbytes = written_bytes() - before
    if way == "processes":
        context = multiprocessing.get_context("spawn")
        queue = context.SimpleQueue()
        jobs = [
            context.Process(
                target=write_planes,
                args=(path, indexes[n::2], queue),
                kwargs={"shared": True, "sync": False},
            )
            for n in range(2)
        ]
        for job in jobs:
            job.start()
        nbytes += queue.get() + queue.get()
        for job in jobs:
            job.join()
    assert nbytes < 1.1 * np.dtype("u2").itemsize * np.prod(STACK)
    with dataset.open(path) as found:
        for index in indexes:
            assert found[index].tobytes() == plane(index).tobytes()
    assert dataset.verify(path).ok


def test_threads_read_assignments_as_a_whole(tmp_path):
    errors = []

    def assign():
        for number in range(1, 60):
            array[2:9] = number

    def read():
        while not done.is_set():
            found = set(array[2:9].tolist())
            if len(found) > 1:
                errors.append(found)

    with dataset.create_array(
        tmp_path / "a", np.zeros(16, int), chunks=2, shards=4, buffered=True, sync=False
    ) as array:
        done = threading.Event()
        threads = [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        assign()
        done.set()
        for thread in threads:
            thread.join()
    assert [] == errors
    assert [59] * 7 == dataset.open(tmp_path / "a")[2:9].tolist()


# In a group that commits its members, beside other programs


@pytest.fixture
def group(tmp_path):
    """A group that commits its members; the other program is a second object of it."""
    with dataset.create_group(tmp_path / "g", sync=False) as group:
        with group.change():
            group["other"] = [1]
        yield group


def other_program(group, change):
    with dataset.open_group(group.path, "r+", sync=False) as other:
        change(other)


CUT = {"chunks": 4, "shards": 12, "buffered": True}
SAME_ROWS = {
    "rows": lambda other: other["m"].append(np.array([50, 51], other["m"].dtype)),
    "many rows": lambda other: other["m"].append(
        np.arange(29).astype(other["m"].dtype)
    ),
    "attributes": lambda other: other["m"].attrs.update(unit="m"),
    "items": lambda other: other["m"].__setitem__(1, np.int64(7)),
    "fewer rows": lambda other: other["m"].resize(1),
    "another member": lambda other: other.create_array("new", [1]),
}


@pytest.mark.parametrize("name", SAME_ROWS)
@pytest.mark.parametrize("refreshes", [False, True])
def test_rows_wait_while_another_program_changes_the_array(group, name, refreshes):
    array = group.create_array("m", np.arange(3), **CUT)
    array.append([10, 11])
    other_program(group, SAME_ROWS[name])
    if refreshes:
        array.refresh()
    before = dataset.open(group.path)["m"][:].tolist()
    array.append([12])
    assert before == dataset.open(group.path)["m"][:].tolist()
    group.close()
    assert [*before, 10, 11, 12] == dataset.open(group.path)["m"][:].tolist()
    assert dataset.verify(group.path).ok


def test_rows_of_a_table_wait_while_another_program_appends(group):
    rows = {"x": np.arange(3), "y": np.arange(3.0)}
    table = group.create_table("m", rows, buffered=True)
    for number in range(3):
        table.append({"x": [10 + number], "y": [number]})
        other_program(group, lambda other: other["m"].append(rows))
    table.close()
    expected = [*range(3)] * 4 + [10, 11, 12]
    assert expected == dataset.open(group.path)["m"]["x"][:].tolist()


LOST = {
    "removed": lambda other: other.__delitem__("m"),
    "replaced": lambda other: other.create_table("m", {"x": [1], "y": [1]}, mode="w"),
    "more columns": lambda other: other["m"].add_column("z", [1, 2]),
    "fewer columns": lambda other: other["m"].remove_column("x"),
    "other names": lambda other: other["m"].rename({"x": "z"}),
    "another column": lambda other: (
        other["m"].remove_column("x"),
        other["m"].add_column("x", [1, 2], position=0),
    ),
}


@pytest.mark.parametrize("name", LOST)
def test_rows_that_another_program_makes_impossible(group, name):
    """They are lost with an error, and the rows of other members are written."""
    table = group.create_table("m", {"x": [1, 2], "y": [1, 2]}, buffered=True)
    array = group.create_array("later", shape=0, dtype="i8", buffered=True)
    table.append({"x": [3], "y": [4]})
    array.append([5])
    other_program(group, LOST[name])
    before = [*dataset.open(group.path)]
    with pytest.raises(StorageError, match="lost: 1 appended row that") as caught:
        group.close()
    assert table.path == caught.value.filename
    assert [5] == dataset.open(group.path)["later"][:].tolist()
    group.close()
    assert before == [*dataset.open(group.path)]
    assert dataset.verify(group.path).ok


@pytest.mark.parametrize("what", ["array", "table", "items", "member", "united"])
def test_closing_when_the_folder_was_removed(tmp_path, what):
    """It says once what is lost, and leaves nothing open: no second try can succeed."""
    path = tmp_path / "g"
    if what in ("member", "united"):
        opened = dataset.create_group(path)
        found = opened.create_array("m", [1, 2], buffered=True)
        kept = opened.create_array("kept", [1])
        if what == "united":
            with opened.change():
                pass
    else:
        create = dataset.create_table if what == "table" else dataset.create_array
        opened = kept = found = create(
            path, {"a": [1, 2]} if what == "table" else [1, 2], buffered=True
        )
    if what == "items":
        found[0] = 3
    else:
        found.append({"a": [3]} if what == "table" else [3])
    shutil.rmtree(path)
    expected = "chunk with assigned items" if what == "items" else "appended row"
    with pytest.raises(StorageError, match="lost: 1 %s that waited" % expected):
        opened.close()
    assert opened.closed
    assert kept.closed
    assert found.closed
    for each in opened, found, kept:
        each.close()
    with pytest.raises(FileNotFoundError):
        dataset.open(path)
    assert not open_files_in(path)


def test_the_errors_of_several_members(group):
    for name in "abc":
        group.create_array(name, shape=0, dtype="i8", buffered=True)
    for name in "abc":
        group[name].append([1])
    other_program(group, lambda other: (other.__delitem__("a"), other.__delitem__("c")))
    with pytest.raises(StorageError, match="lost: ") as caught:
        group.flush()
    assert caught.value.filename.endswith("c")
    assert caught.value.__context__.filename.endswith("a")
    assert [1] == dataset.open(group.path)["b"][:].tolist()


@pytest.mark.parametrize("kind", ["array", "table"])
def test_assigned_items_do_not_wait_there(group, kind):
    """A chunk that waits would have the old items that another program assigns to."""
    if kind == "array":
        array = group.create_array("m", np.arange(12), **CUT)
    else:
        array = group.create_table("m", {"x": np.arange(12)}, buffered=True)["x"]
    array[1] = 20
    path = "m" if kind == "array" else "m/x"
    other_program(group, lambda other: other[path].__setitem__(2, 30))
    array[3] = 40
    expected = [0, 20, 30, 40, *range(4, 12)]
    assert expected == dataset.open(group.path)[path][:].tolist() == array[:].tolist()


def test_a_member_without_a_name_for_it(group):
    """The group has its object until the rows are written."""
    group.create_array("m", shape=0, dtype="i8", buffered=True).append([1])
    gc.collect()
    group["m"].append([2])
    other_program(group, lambda other: other["m"].append([3]))
    group.close()
    assert [3, 1, 2] == dataset.open(group.path)["m"][:].tolist()


@pytest.mark.parametrize("name", ["removed", "replaced"])
@pytest.mark.parametrize("opens", [False, True])
def test_a_member_without_a_name_that_another_writer_replaces(group, name, opens):
    rows = {"x": [1, 2], "y": [1, 2]}
    group.create_table("m", rows, buffered=True).append(rows)
    gc.collect()
    other_program(group, LOST[name])
    if opens and name == "replaced":
        assert 1 == len(group["m"])
    with pytest.raises(StorageError, match="lost: 2 appended rows that waited"):
        group.flush()
    group.flush()
    found = dataset.open(group.path)
    assert (["m"] if name == "replaced" else []) == [n for n in found if n == "m"]
    assert name == "removed" or 1 == len(found["m"])


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("opens", ["the group", "the member"])
@pytest.mark.parametrize("kind", ["array", "table"])
def test_a_group_that_is_dropped(tmp_path, kind, opens, waits):
    """Its files are closed without the garbage collector."""
    path, data = tmp_path / "g", {"array": [1], "table": {"x": [1], "y": [2]}}[kind]
    with dataset.create_group(path) as group, group.change():
        getattr(group, "create_" + kind)("m", data)
    gc.disable()
    try:
        if opens == "the group":
            kept = [dataset.open(path, "r+")]
            kept += [getattr(kept[0], "create_" + kind)("new", data, buffered=True)]
        else:
            kept = [dataset.open(path / "m", "r+", buffered=True)]
        kept[-1].append(data)
        kept[-1].flush()
        assert [2] * len(kept) == [len(each) for each in kept]
        if waits:
            kept[-1].append(data)
        with (
            pytest.warns(ResourceWarning, match="lost: 1 appended row that waited")
            if waits
            else contextlib.nullcontext()
        ):
            kept.clear()
        assert [] == open_files_in(path)
    finally:
        gc.enable()


NEXT = {
    "a column": lambda member, group, new: member["x"].__setitem__(0, 5),
    "append": lambda member, group, new: member.append(new),
    "flush": lambda member, group, new: member.flush(),
    "assign": lambda member, group, new: member.__setitem__(slice(2), new),
    "resize": lambda member, group, new: member.resize(1),
    "attributes": lambda member, group, new: member.attrs.update(unit="m"),
    "close": lambda member, group, new: member.close(),
    "flush the group": lambda member, group, new: group.flush(),
    "change the group": lambda member, group, new: group.attrs.update(unit="m"),
    "close the group": lambda member, group, new: group.close(),
}


@pytest.mark.parametrize("is_seen", [False, True])
@pytest.mark.parametrize("change", ["removed", "replaced"])
@pytest.mark.parametrize(
    ("call", "kind"),
    [*((call, "table") for call in NEXT), *((call, "array") for call in [*NEXT][1:])],
)
def test_the_next_call_tells_once_what_is_lost(group, call, kind, change, is_seen):
    data = {"array": [1, 2], "table": {"x": [1, 2], "y": [3, 4]}}[kind]
    make = "create_" + kind
    member = getattr(group, make)("m", data, buffered=True)
    later = group.create_array("later", [1], buffered=True)
    member.append(data)
    if change == "removed":
        other_program(group, lambda other: other.__delitem__("m"))
    else:
        other_program(group, lambda other: getattr(other, make)("m", data, mode="w"))
    if is_seen:
        later.append([2])
    with pytest.raises(StorageError, match=r"another writer .* 2 appended"):
        NEXT[call](member, group, data)
    with contextlib.suppress(UsageError):  # it is closed
        NEXT[call](member, group, data)
    group.close()
    found = dataset.open(group.path)
    assert change == "removed" or 2 == len(found["m"])
    assert [1, 2][: 1 + is_seen] == found["later"][:].tolist()
    assert dataset.verify(group.path).ok


def test_the_errors_of_several_members_keep_their_reasons(group, monkeypatch):
    how = {"shape": 0, "dtype": "i8", "buffered": True}
    arrays = [group.create_array(name, **how) for name in "abc"]
    for array in arrays:
        array.append([1])

    def fails(change):
        try:
            raise KeyError(change.document)
        except KeyError:
            raise OSError(5, "the disk has failed")  # noqa: B904 - without a cause

    with monkeypatch.context() as patch:
        patch.setattr(FolderChange, "commit", fails)
        with pytest.raises(OSError, match="the disk has failed") as caught:
            group.flush()
    kinds, error = [], caught.value
    while error is not None:
        kinds.append(type(error))
        error = error.__context__
    assert [OSError, KeyError] * 3 == kinds
    group.flush()
    assert [1] * 3 == [len(array) for array in arrays]


@pytest.mark.parametrize("commits", [False, True])
def test_flush_of_a_group_writes_its_members(tmp_path, commits):
    with dataset.create_group(tmp_path / "g") as group:
        inner = group.create_group("inner")
        array = inner.create_array("a", [1], buffered=True)
        table = group.create_table("t", {"x": [1]}, buffered=True)
        if commits:
            with group.change():
                inner.attrs["k"] = 1
        array.append([2])
        table.append({"x": [3]})
        group.flush()
        assert dataset.open(tmp_path / "g" / "inner" / "a")[:].tolist() == [1, 2]
        assert dataset.open(tmp_path / "g" / "t")["x"][:].tolist() == [1, 3]


def test_an_error_of_one_member_does_not_stop_flush(tmp_path, monkeypatch):
    with dataset.create_group(tmp_path / "g") as group:
        arrays = [group.create_array(n, [1], buffered=True) for n in "abc"]
        for array in arrays:
            array.append([2])
        begin = FolderChange.begin

        def fail(change, name):
            if change.store.root.endswith("b"):
                raise OSError(5, "the disk has failed")
            return begin(change, name)

        with monkeypatch.context() as context:
            context.setattr(FolderChange, "begin", fail)
            with pytest.raises(OSError, match="the disk has failed"):
                group.flush()
        for name, expected in ("a", [1, 2]), ("b", [1]), ("c", [1, 2]):
            assert expected == dataset.open(tmp_path / "g" / name)[:].tolist()


def test_the_index_of_a_frame_counts_rows_that_wait(tmp_path):
    pandas = pytest.importorskip("pandas")
    with dataset.create_table(
        tmp_path / "t", {"a": range(10)}, buffered=True, chunks=4
    ) as table:
        table[2:4] = {"a": [7, 8]}  # waits in one chunk
        table.append(pandas.DataFrame({"a": [1, 2]}, index=[10, 11]))
        table.append(pandas.DataFrame({"a": [3]}, index=[12]))
    found = dataset.open(tmp_path / "t")["a"][:].tolist()
    assert found == [0, 1, 7, 8, 4, 5, 6, 7, 8, 9, 1, 2, 3]


@pytest.mark.parametrize("item", ["text", 7])
def test_an_array_without_axes(tmp_path, item):
    dtype = object if item == "text" else None
    dataset.create_array(tmp_path / "a", np.array(item, dtype)).close()
    with dataset.open(tmp_path / "a", "r+", buffered=True) as array:
        array[()] = array[...] = item * 2
        assert item * 2 == array[()]
    assert item * 2 == dataset.open(tmp_path / "a")[()]
