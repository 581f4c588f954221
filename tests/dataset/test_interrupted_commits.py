"""Errors in a commit: an open dataset completes it, and goes on."""

from __future__ import annotations

import errno
import gc
import itertools
import shutil
import threading
import time
from contextlib import contextmanager, nullcontext, suppress

import numpy as np
import pytest

from bloscpack import dataset
from bloscpack._commit import writer
from bloscpack._commit.tree import Tree
from bloscpack._commit.writer import Writer
from bloscpack._storage.disk import Disk
from bloscpack.dataset.folder import Joined
from bloscpack.dataset.node import Node
from bloscpack.exceptions import StorageError

KINDS = [
    ("array", "zarr"),
    ("array", "superchunk"),
    ("array", "bcolz"),
    ("table", "zarr"),
    ("table", "superchunk"),
    ("table", "bcolz"),
]
CUT = {"chunks": 2, "shards": 4}


def rows(kind, values):
    values = np.asarray(values)
    return values if kind == "array" else {"x": values, "y": values / 2}


def create(path, kind, layout, **options):
    cut = {"chunks": 2} if layout == "bcolz" else CUT
    new = dataset.create_array if kind == "array" else dataset.create_table
    how = {"layout": layout, "sync": False, **cut, **options}
    return new(path, rows(kind, np.arange(6)), **how)


def state(node):
    return node[:].tolist(), dict(node.attrs)


CHANGES = {
    "append": lambda node, kind: node.append(rows(kind, [7, 8, 9])),
    "shrink": lambda node, kind: node.resize(3),
    "attributes": lambda node, kind: node.attrs.update(n=1),
    "assign": lambda node, kind: node.__setitem__(slice(1, 6), rows(kind, [0] * 5)),
    "add": lambda node, kind: node.add_column("z", np.arange(6)),
}


@contextmanager
def interrupted(count, error=KeyboardInterrupt, behind=True, again=False):
    """Raise an error before or behind a renaming; the value counts those to come.

    With `again`, all later ones raise it, too.
    """
    rename, left = Disk.rename, [count]

    def stop(disk, old, new):
        left[0] -= 1
        is_stopped = left[0] == -1 or (again and left[0] < 0)
        if is_stopped and not behind:
            raise error
        rename(disk, old, new)
        if is_stopped:
            raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Disk, "rename", stop)
        yield left


@contextmanager
def unreadable(count=0, left=None):
    """Let no interrupted commit be completed.

    That of a group can when it is locked: `count` times. With `left` of `interrupted`,
    no document can be read after the interrupt.
    """
    recover, load, calls = writer.recover, Tree._load, itertools.count()

    def stop(*arguments):
        if next(calls) >= count:
            raise OSError(errno.EIO, "the disk fails")
        recover(*arguments)

    def stop_reading(*arguments):
        if left is not None and left[0] < 0:
            raise OSError(errno.EIO, "the disk fails")
        return load(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "recover", stop)
        patch.setattr(Tree, "_load", stop_reading)
        yield


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize(
    ("change", "kind", "layout"),
    [(c, *k) for c in CHANGES for k in KINDS if (c, k[0]) != ("add", "array")],
)
def test_the_object_has_the_state_of_the_files(
    change, kind, layout, behind, error, tmp_path
):
    for count in itertools.count():
        path = tmp_path / str(count)
        with create(path, kind, layout) as node:
            old = state(node)
            with interrupted(count, error, behind) as left, suppress(error):
                CHANGES[change](node, kind)
            assert state(dataset.open(path)) == state(node)
            with pytest.raises(StorageError, match="another writer"):
                dataset.open(path, "r+")
            if state(node) == old:
                CHANGES[change](node, kind)
            changed = state(node)
            node.attrs["later"] = 1
        assert (changed[0], {**changed[1], "later": 1}) == state(dataset.open(path))
        report = dataset.verify(path)
        assert report.ok
        assert "unused" not in {finding.kind for finding in report.findings}
        if left[0] >= 0:
            break
    assert count


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("buffered", [False, True])
@pytest.mark.parametrize(("kind", "layout"), KINDS)
def test_the_next_change_completes_what_could_not_be_completed_at_once(
    kind, layout, buffered, behind, error, tmp_path
):
    """The object has the state of the files until then, too."""
    for count in itertools.count():
        path = tmp_path / str(count)
        with create(path, kind, layout, buffered=buffered) as node:
            with interrupted(count, error, behind, again=True) as left, suppress(error):
                node.append(rows(kind, [7]))
                node.flush()
            assert state(node) == state(dataset.open(path))
            with interrupted(0, error, behind=False, again=True), suppress(error):
                node.resize(3)
            assert state(node) == state(dataset.open(path))
            length = len(node)
            assert length in (3, 6, 7)
            node.append(rows(kind, [8]))
            node.flush()
            assert state(node) == state(dataset.open(path))
            values = node[:].tolist() if kind == "array" else node["x"][:].tolist()
            waited = buffered and 7 in values[length:]
            assert values[length:] == ([7, 8] if waited else [8])
            assert values.count(7) <= 1
        if left[0] >= 0:
            break
    assert count


@pytest.mark.parametrize(
    ("kind", "layout", "in_block"),
    [(*k, in_block) for k in KINDS for in_block in {False, k[1] == "zarr"}],
)
def test_flush_completes_what_could_not_be_completed_at_once(
    kind, layout, in_block, tmp_path
):
    """Until then, the object may have the old state."""
    for count in itertools.count():
        path = tmp_path / str(count)
        group = dataset.create_group(path, sync=False)
        create(path / "x", kind, layout).close()
        with group, group["x"] as node:
            block = group.change if in_block else nullcontext
            if in_block:
                with block():
                    pass
            with (
                interrupted(count) as left,
                unreadable(2 * in_block, left),
                suppress(KeyboardInterrupt),
                block(),
            ):
                node.append(rows(kind, [7]))
            (group if in_block else node).flush()
            assert state(node) == state(dataset.open(path / "x"))
        if left[0] >= 0:
            break
    assert count


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize(("kind", "layout"), KINDS)
def test_waiting_rows_are_written_once(kind, layout, behind, error, tmp_path):
    """It is found out later whether the interrupted commit has written them."""
    for count in itertools.count():
        path = tmp_path / str(count)
        with create(path, kind, layout, buffered=True) as node:
            node.append(rows(kind, [7]))
            with interrupted(count, error, behind) as left, unreadable(left=left):
                for call in (
                    node.flush,
                    lambda node=node: node.append(rows(kind, [9])),
                ):
                    with suppress(error, OSError):
                        call()
            node.append(rows(kind, [8]))
        now = dataset.open(path)
        values = (now if kind == "array" else now["x"])[:].tolist()
        assert [7, 8] == [value for value in values[6:] if value != 9]
        if left[0] >= 0:
            break
    assert count


@pytest.mark.parametrize("kind", ["array", "table"])
def test_a_buffer_of_a_member_stays_in_the_first_change_of_a_group(kind, tmp_path):
    with dataset.create_group(tmp_path / "g", sync=False) as group:
        new = group.create_array if kind == "array" else group.create_table
        a = new("a", rows(kind, [0]), buffered=True)
        with group.change():
            pass
        a.append(rows(kind, [1]))
        assert 1 == len(a)
        group.flush()
        assert 2 == len(a) == len(dataset.open(tmp_path / "g")["a"])


@pytest.mark.parametrize("layout", ["zarr", "superchunk", "bcolz"])
def test_a_thread_reads_no_mixture_of_columns(layout, tmp_path, monkeypatch):
    rename, found, is_done = Disk.rename, set(), threading.Event()

    def slow(disk, old, new):
        time.sleep(0.005)
        rename(disk, old, new)

    monkeypatch.setattr(Disk, "rename", slow)
    columns = {"x": np.zeros(6, "i8"), "y": np.zeros(6, "i8")}
    with dataset.create_table(
        tmp_path / "t", columns, layout=layout, chunks=2, sync=False
    ) as table:

        def read():
            while not is_done.is_set():
                found.update(map(str, table[:].tolist()))

        thread = threading.Thread(target=read)
        thread.start()
        try:
            for count in range(12):
                value = np.full(6, count)
                with interrupted(count), suppress(KeyboardInterrupt):
                    table[:] = {"x": value, "y": value}
        finally:
            is_done.set()
            thread.join()
    assert found <= {str((n, n)) for n in range(12)}
    assert len(found) > 1


def test_a_member_that_an_interrupted_block_has_created(tmp_path):
    """It is open if the files have it, and else closed."""
    made = set()
    for count in itertools.count():
        path = tmp_path / str(count)
        with dataset.create_group(path, sync=False) as group:
            group.create_array("a", [0], **CUT)
            with group.change():
                pass
            new, stop = None, suppress(KeyboardInterrupt)
            with interrupted(count) as left, stop, group.change():
                new = group.create_array("new", [5], **CUT)
                group["a"].append([1])
            is_there = "new" in dataset.open(path)
            made.add(is_there)
            assert is_there == (new is not None and not new.closed)
            assert len(group["a"]) == 1 + is_there
            if is_there:
                new.append([6])
                assert (
                    [5, 6] == new[:].tolist() == dataset.open(path)["new"][:].tolist()
                )
        if left[0] >= 0:
            break
    assert {False, True} == made


@pytest.mark.parametrize("layout", ["zarr", "superchunk", "bcolz"])
def test_a_column_whose_table_was_dropped(layout, tmp_path):
    for count in itertools.count():
        path = tmp_path / str(count)
        table = create(path, "table", layout)
        column = table["x"]
        del table
        gc.collect()
        with interrupted(count) as left, suppress(KeyboardInterrupt):
            column[0] = 5
        assert column[:].tolist() == dataset.open(path)["x"][:].tolist()
        column[1] = 6
        assert [6, 2, 3, 4, 5] == column[1:].tolist()
        assert column[:].tolist() == dataset.open(path)["x"][:].tolist()
        if left[0] >= 0:
            break
    assert count


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("behind", [False, True])
def test_members_that_are_open_before_the_first_change_of_a_group(
    behind, again, tmp_path
):
    """They are committed by the group after an interrupt, or still by themselves.

    If the commit can't be completed at once, the next change of the group does it.
    """
    for count in itertools.count():
        path = tmp_path / str(count)
        with dataset.create_group(path, sync=False) as group:
            group.create_array("a", [0], **CUT)
            group.create_table("in/t", {"x": [0]}, **CUT)
            a, t = group["a"], group["in/t"]
            stop = interrupted(count, behind=behind, again=again)
            with suppress(KeyboardInterrupt), stop as left, group.change():
                a.append([1])
            if again:
                try:
                    a.attrs["n"] = 1
                except Joined:  # it is not lost without an error
                    pass
                else:
                    assert {"n": 1} == dict(dataset.open(path)["a"].attrs)
                with group.change():
                    pass
            is_made = len(a) == 2
            a.append([2])
            t.append({"x": [1]})
            with group.change():
                a.append([3])
            values = [0, 1, 2, 3] if is_made else [0, 2, 3]
            for found in (a, group["a"], dataset.open(path)["a"]):
                assert values == found[:].tolist()
            assert (
                [0, 1] == t["x"][:].tolist() == dataset.open(path)["in/t/x"][:].tolist()
            )
        assert dataset.verify(path).ok
        shutil.rmtree(path)
        if left[0] >= 0:
            break
    assert count > 5


@pytest.mark.parametrize("kind", ["array", "group"])
def test_closing_a_member_while_the_group_takes_it_over(kind, tmp_path, monkeypatch):
    """The thread that closes it waits for the group without the lock of the member."""
    group = dataset.create_group(tmp_path / "g", sync=False)
    member = getattr(group, "create_" + kind)("m", *([[0]] * (kind == "array")))
    own, stop = member._writer, suppress(KeyboardInterrupt)
    with interrupted(0), unreadable(1 + (kind == "group")), stop, group.change():
        pass
    assert dataset.open(tmp_path / "g").commits_members
    begun, taken = threading.Event(), threading.Event()
    take, flush = type(member)._take_layout, Writer.flush
    assert own is member._writer is not group._writer

    def slow_flush(writer):
        if writer is own:
            begun.set()
            assert taken.wait(10)
        flush(writer)

    def noted_take(node, *arguments):
        take(node, *arguments)
        if node is member:
            taken.set()

    monkeypatch.setattr(Writer, "flush", slow_flush)
    monkeypatch.setattr(type(member), "_take_layout", noted_take)
    closing = threading.Thread(target=member.close, daemon=True)
    closing.start()
    assert begun.wait(10)
    changing = threading.Thread(target=group.attrs.put, args=({},), daemon=True)
    changing.start()
    for thread in closing, changing:
        thread.join(10)
        assert not thread.is_alive()
    assert member.closed
    group.close()


def test_only_a_buffered_member_of_an_inner_group_stays_buffered(tmp_path):
    with dataset.create_group(tmp_path / "g", sync=False) as group:
        inner = group.create_group("in")
        with inner.change():
            pass
        a = inner.create_array("a", [0], buffered=True)
        b = inner.create_array("b", [0])
        with group.change():
            pass
        b.append([1])
        a.append([1])  # another change would write it
        assert (1, 2) == (len(a), len(b))
    now = dataset.open(tmp_path / "g")["in"]
    assert [0, 1] == now["a"][:].tolist() == now["b"][:].tolist()


@pytest.mark.parametrize("layout", ["zarr", "superchunk", "bcolz"])
def test_columns_of_a_dropped_table_with_waiting_rows(layout, tmp_path):
    table = create(tmp_path / "t", "table", layout, buffered=True)
    table.append(rows("table", [7]))
    column = table["x"]
    del table
    gc.collect()
    column.flush()
    assert [*range(6), 7] == column[:].tolist()


def test_members_join_the_group_if_the_first_attempt_fails(tmp_path, monkeypatch):
    join = Node._join

    def fail(node, *how):
        monkeypatch.undo()
        raise KeyboardInterrupt

    with dataset.create_group(tmp_path / "g", sync=False) as group:
        group["a"] = [0]
        a = group["a"]
        monkeypatch.setattr(Node, "_join", fail)
        with suppress(KeyboardInterrupt), group.change():
            pass
        assert Node._join is join
        with group.change():
            a.append([1])
        assert [0, 1] == a[:].tolist() == dataset.open(tmp_path / "g")["a"][:].tolist()


def test_an_array_without_axes(tmp_path):
    for count in itertools.count():
        path = tmp_path / str(count)
        with dataset.create_array(path, np.array(5)) as array:
            with interrupted(count) as left, suppress(KeyboardInterrupt):
                array[()] = 6
            assert array[()] == dataset.open(path)[()]
            array[()] = 7
            array.attrs["n"] = 1
            assert 7 == array[()] == dataset.open(path)[()]
        if left[0] >= 0:
            break
    assert count
