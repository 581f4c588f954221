"""Several threads and processes with one object: nothing is lost, nothing is mixed."""

from __future__ import annotations

import os
import sys
import threading
import time
from functools import partial

import numpy as np
import pytest
from dataset import forked_programs, soak_threads
from dataset.inside import PENDING, FolderChange, ObjectStore
from dataset.layouts import LAYOUTS
from support import run_silently

from bloscpack import bigfile, dataset
from bloscpack._commit.locking import FolderLock
from bloscpack._storage.folder_store import FolderStore
from bloscpack.dataset import group as groups
from bloscpack.dataset import node, opening
from bloscpack.dataset.commit_rules import building
from bloscpack.dataset.layouts.zarr import ZarrTable
from bloscpack.dataset.node import Node
from bloscpack.exceptions import UsageError


@pytest.fixture(autouse=True)
def frequent_switches():
    """Let threads alternate as often as possible."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.fixture(params=["path", "url"])
def place(request, tmp_path):
    if request.param == "url":
        pytest.importorskip("fsspec", reason="the extra 'remote' is not installed")
    with soak_threads.new_place(request.param, tmp_path) as place:
        yield place


def in_threads(work, count=4):
    """Call ``work(number)`` in threads; expect no error."""
    assert [] == soak_threads.run_threads(work, count)


@pytest.mark.parametrize(("kind", "where"), soak_threads.MIXES)
def test_mixes(kind, where, tmp_path):
    if where == "url":
        pytest.importorskip("fsspec", reason="the extra 'remote' is not installed")
    for number in range(3):
        with soak_threads.new_place(where, tmp_path) as place:
            errors = soak_threads.run(kind, place, "%s %d" % (kind, number), number > 0)
        assert [] == errors


def test_members_that_are_removed_while_they_are_listed(tmp_path):
    group = dataset.create_group(tmp_path / "g", sync=False)
    group.create_array("kept", [1])

    def work(number):
        for _ in range(30):
            group.create_array("a", [2])
            del group["a"]

    def look():
        assert {"kept"} <= set(group) <= {"kept", "a"}
        assert {"kept"} <= set(dataset.open(group.path)) <= {"kept", "a"}

    assert [] == soak_threads.run_threads(work, 1, look)


# Changes, one after another


def test_changes_of_a_grid(place):
    """Threads assign to regions that share shards, append to both axes, and read."""
    cut = {"chunks": (2, 3), "shards": (4, 6), "sync": False}
    array = dataset.create_array(place, np.zeros((8, 12), "i8"), **cut)

    def work(number):
        rows = slice(2 * number, 2 * number + 2)
        for value in range(1, 5):
            array[rows, value::2] = value
            found = array[rows]
            assert (found[:, value:12:2] == value).all()
            assert 1 == len({*found[0].tolist()} - {0, *range(1, value + 1)} | {0})
        array.append(np.full((2, array.shape[1]), number))

    in_threads(work)
    in_threads(lambda i: array.append(np.full((16, 1), i), axis=1))
    assert (16, 16) == array.shape
    assert [0, 1, 2, 3] == sorted(array[5, 12:].tolist())
    assert [0, 1, 2, 3] == sorted(array[8:16:2, 0].tolist())
    array.close()
    row = [0, 1, 2, 3, 4, 3, 4, 3, 4, 3, 4, 3]
    assert [row] * 8 == dataset.open(place)[:8, :12].tolist()
    assert dataset.verify(place).ok


def test_reading_while_a_grid_changes(tmp_path):
    """Each read of one shard has one state; a row that grows is old or new."""
    cut = {"chunks": (2, 2), "shards": (4, 4), "sync": False}
    array = dataset.create_array(tmp_path / "a", np.zeros((8, 8), "i8"), **cut)
    done = threading.Event()
    errors = []

    def read():
        while not done.is_set():
            reader = dataset.open(tmp_path / "a")
            shard = reader[:4, :4]
            if len(set(shard.ravel().tolist())) > 1 or reader.shape[0] != 8:
                errors.append(shard)
            reader.close()

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for value in range(1, 12):
            array[:] = value
            array.append(np.full((8, 3), value), axis=1)
    finally:
        done.set()
        thread.join()
        array.close()
    assert [] == errors


def test_attributes(place):
    with dataset.create_group(place) as group:
        array = group.create_array("a", [1])
        for node in (group, array):
            in_threads(
                lambda i, node=node: [
                    node.attrs.update({"%d-%d" % (i, n): n}) for n in range(5)
                ]
            )
    with dataset.open_group(place) as group:
        assert 20 == len(group.attrs) == len(group["a"].attrs)


def test_members_are_opened_once(place):
    with dataset.create_group(place, sync=False) as group:
        group.create_array("a", shape=(0,), dtype="i8", chunks=4)
        in_threads(lambda i: [group["a"].append([i]) for _ in range(5)])
        assert 20 == len(group["a"])
        in_threads(lambda i: group.require_group("in/ner").attrs.update({str(i): i}))
        assert 4 == len(group["in/ner"].attrs)
    assert ["a", "in"] == list(dataset.open(place))


def test_one_thread_creates_a_member(tmp_path):
    created, refused = [], []

    def create(number):
        try:
            created.append(group.create_array("a", [number]))
        except FileExistsError:
            refused.append(number)

    with dataset.create_group(tmp_path / "g", sync=False) as group:
        in_threads(create)
        assert (1, 3) == (len(created), len(refused))
        removed = []

        def remove(number):
            try:
                del group["a"]
                removed.append(number)
            except KeyError:
                refused.append(number)

        in_threads(remove)
        assert (1, 6, []) == (len(removed), len(refused), list(group))


def test_columns_and_rows_of_a_table(tmp_path):
    rows = {"x": np.arange(9), "y": np.arange(9) / 2}
    with dataset.create_table(tmp_path / "t", rows, chunks=2, sync=False) as table:
        in_threads(lambda i: table.add_column("z%d" % i, np.full(9, i)))
        assert {"x", "y", "z0", "z1", "z2", "z3"} == set(table.names)
        in_threads(lambda i: table.remove_column("z%d" % i))
        assert ["x", "y"] == table.names
        in_threads(lambda i: [table.append(rows) for _ in range(3)])
        assert 9 * 13 == len(table)
        in_threads(lambda i: table["x"].__setitem__(i, -i))
        assert [0, -1, -2, -3] == table["x"][:4].tolist()
    assert dataset.verify(tmp_path / "t").ok


def test_closing_waits_for_a_change(tmp_path):
    array = dataset.create_array(tmp_path / "a", [0], sync=False)
    begun, may_go_on = threading.Event(), threading.Event()

    def blocks():
        yield [1]
        begun.set()
        may_go_on.wait(20)
        yield [2]

    closing = threading.Thread(target=lambda: begun.wait(20) and array.close())
    closing.start()
    threading.Timer(0.05, may_go_on.set).start()
    array.append(blocks())
    closing.join()
    assert array.closed
    assert [0, 1, 2] == dataset.open(tmp_path / "a")[:].tolist()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_that_change_their_array(tmp_path, layout):
    array = dataset.create_array(tmp_path / "a", range(5), layout=layout, sync=False)
    calls = [
        lambda: array.append([1]),
        lambda: array.__setitem__(0, 1),
        lambda: array.resize(2),
        lambda: array.attrs.update(a=1),
        array.close,
    ]

    def blocks():
        for call in calls:
            with pytest.raises(UsageError, match="while rows"):
                call()
            yield array[:2]

    array.append(blocks())
    array.append([9])
    array.close()
    expected = [*range(5), *[0, 1] * len(calls), 9]
    assert expected == dataset.open(tmp_path / "a")[:].tolist()


def test_a_failed_change_lets_others_go_on(tmp_path):
    array = dataset.create_array(tmp_path / "a", [0], sync=False)
    errors = soak_threads.run_threads(lambda i: array.append(["no"] if i else [1]))
    assert 3 == len(errors)
    array.append([2])
    assert [0, 1, 2] == array[:].tolist()


# Reads beside changes


@pytest.mark.parametrize("layout", LAYOUTS)
def test_reads_see_one_state(tmp_path, layout):
    array = dataset.create_array(
        tmp_path / "a", np.zeros(40, "i8"), chunks=4, layout=layout, sync=False
    )

    def change(number):
        for n in range(12):
            if number:
                array.append([0] * 4)
                array.resize(40)
            else:
                array[:] = n

    def look():
        rows = array[:]
        assert len(set(rows[:40].tolist())) == 1
        assert set(rows[40:].tolist()) <= {0, *rows[:1].tolist()}
        assert array[-1] in range(12)

    assert [] == soak_threads.run_threads(change, 2, look)
    array.close()


# BigFile


def test_rows_of_a_column_that_several_threads_write(tmp_path):
    tree = bigfile.File(tmp_path / "b", create=True)
    column = tree.create("x", "i8", 100, 3)

    def write(number):
        for n in range(5):
            column.write(0, np.full(100, 10 * number + n))
            column.flush()

    in_threads(write)
    column.close()
    assert [] == bigfile.verify(tree).findings
    assert 1 == len(set(tree["x"][:].tolist()))


def test_closing_a_column_waits_for_its_writes(tmp_path):
    tree = bigfile.File(tmp_path / "b", create=True)
    for n in range(10):
        column = tree.create("x%d" % n, "i8", 100, 3)
        column.write(0, np.zeros(100, "i8"))
        written = []

        def write(number, column=column, written=written):
            if number == 3:
                column.close()
                return
            for start in range(25 * number, 25 * number + 25):
                try:
                    column.write(start, [start + 1])
                except UsageError:
                    return
                written.append(start)

        in_threads(write)
        rows = tree["x%d" % n][:]
        assert [start + 1 for start in written] == rows[written].tolist()
    assert [] == bigfile.verify(tree).findings


# Processes


@pytest.mark.full
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("kind", list(forked_programs.KINDS))
def test_a_writer_belongs_to_its_process(kind, tmp_path):
    if "URL" in kind:
        pytest.importorskip("fsspec", reason="the extra 'remote' is not installed")
    program = "-W", "error", forked_programs.__file__
    run_silently(*program, kind, timeout=300, cwd=tmp_path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_that_ends_building_a_dataset(tmp_path):
    """The child process ends the block of its parent, and gives nothing a name."""
    path, parent = tmp_path / "new", os.getpid()
    try:
        with building(path, "x", False) as place:
            dataset.create_array(place, [1, 2]).close()
            child = os.fork()
            if child:
                assert (child, 0) == os.waitpid(child, 0)
    except BaseException as error:
        if os.getpid() == parent:
            raise
        os._exit(not isinstance(error, UsageError))
    if os.getpid() != parent:
        os._exit(2)
    assert [1, 2] == dataset.open(path)[:].tolist()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_that_ends_within_a_change(tmp_path):
    """What the child inherits stays: locks, temporary files, and bytes in buffers."""
    array = dataset.create_array(tmp_path / "a", range(5), sync=False)

    def blocks():
        yield range(5, 9)
        error = soak_threads.fork_error(lambda: fail(blocks_of_child()))
        assert error is None, error
        yield range(9, 12)

    def blocks_of_child():
        yield [1]

    def fail(rows):
        with pytest.raises(UsageError, match="the process"):
            array.append(rows)

    array.append(blocks())
    array.close()
    assert list(range(12)) == dataset.open(tmp_path / "a")[:].tolist()
    assert dataset.verify(tmp_path / "a").ok


def test_a_late_read_does_not_bring_back_an_old_document(monkeypatch):
    """A thread reads the document of a table, and another one appends meanwhile."""
    pytest.importorskip("fsspec", reason="the extra 'remote' is not installed")
    with soak_threads.new_place("url", None) as place:
        table = dataset.create_table(place, {"x": [1, 2, 3]})
        has_read, may_go_on = threading.Event(), threading.Event()
        read = ObjectStore.read

        def slow_read(store, name, *args, **kwargs):
            found = read(store, name, *args, **kwargs)
            if threading.current_thread() is thread:
                has_read.set()
                assert may_go_on.wait(60)
            return found

        monkeypatch.setattr(ObjectStore, "read", slow_read)
        thread = threading.Thread(target=table._layout.folder.tree.read)
        thread.start()
        assert has_read.wait(60)
        table.append({"x": [4]})
        may_go_on.set()
        thread.join()
        table.append({"x": [5]})
        table.close()
        assert [1, 2, 3, 4, 5] == dataset.open(place)["x"][:].tolist()


def test_a_list_of_files_that_a_thread_reads_during_the_change(tmp_path, monkeypatch):
    """The change removes shards, and a later one makes them again."""
    with dataset.create_group(tmp_path / "g") as group:
        with group.change():
            group.create_array("x", [1] * 10, chunks=2, shards=2)
        replace = FolderChange._replace

        def read_by_another_thread(change, content):
            replace(change, content)
            if PENDING.encode() in content:
                group._layout.folder.read_json("zarr.json")

        monkeypatch.setattr(FolderChange, "_replace", read_by_another_thread)
        group.create_array("x", [7] * 4, chunks=2, shards=2, mode="w")
        monkeypatch.undo()
        group["x"].append([8] * 6)
        assert [7] * 4 + [8] * 6 == group["x"][:].tolist()


@pytest.mark.parametrize("change", ["remove", "rename"])
def test_a_table_of_a_group_while_a_thread_removes_a_column(
    change, tmp_path, monkeypatch
):
    """Another thread gets the same object: two would change different columns."""
    with dataset.create_group(tmp_path / "g") as group:
        table = group.create_table("t", {"x": [1], "y": [2]})
        commit, found = type(table._layout).columns_committed, []

        def slow(layout, names):
            thread = threading.Thread(target=lambda: found.append(group["t"]))
            thread.start()
            thread.join()
            commit(layout, names)

        monkeypatch.setattr(type(table._layout), "columns_committed", slow)
        removed = table["y"]
        if change == "remove":
            table.remove_column("y")
        else:
            table.rename({"y": "z"})
        assert [table] == found
        assert [False, True] == [table.closed, removed.closed]


def test_an_old_copy_that_a_thread_finds_while_its_member_is_removed(tmp_path):
    path = tmp_path / "g"
    with dataset.create_group(path) as group:
        with group.change():
            group.create_array("x", [1, 2])
        array, copy = group["x"], path / "x" / "zarr.json"
        old = copy.read_bytes()
        array.append([3])
        copy.write_bytes(old)  # as after a crash of the machine

        class Late(set):
            def add(self, name):
                tree.stale = set()
                del group["x"]  # as another thread does
                tree.stale.add(name)

        tree = group._layout.folder.tree
        tree.stale = Late()
        assert {} == dict(array.attrs)
        group.attrs["a"] = 1
    assert {"a": 1} == dict(dataset.open(path).attrs)


# The first change of several members of a group, beside other threads


def let_a_thread_unite(group):
    """Let another thread make the first such change."""
    before = group.commits_members

    def change():
        with group.change():
            pass

    assert not before
    in_threads(lambda number: change(), 1)
    assert group.commits_members


def call_before_next(monkeypatch, name, action, where=groups):
    """Let a module call `action` before its next call of a function."""
    genuine = getattr(where, name)

    def called(*args, **options):
        monkeypatch.setattr(where, name, genuine)
        action()
        return genuine(*args, **options)

    monkeypatch.setattr(where, name, called)


@pytest.fixture
def plain_group(tmp_path):
    with dataset.create_group(tmp_path / "g") as group:
        group.create_array("a", [1, 2])
        yield group
    report = dataset.verify(tmp_path / "g")
    assert [] == report.findings


def test_a_thread_that_waits_for_a_member_waits_for_the_group(plain_group, monkeypatch):
    """Not inside of the lock of the member, which the other thread needs."""
    member, joining, join = plain_group["a"], threading.Event(), Node._join

    def slow(*args):
        joining.set()
        time.sleep(0.1)
        join(*args)

    monkeypatch.setattr(Node, "_join", slow)

    def work(number):
        if number == 0:
            with plain_group.change():
                pass
        else:
            joining.wait()
            member.attrs["unit"] = "m"
            member.append([3])

    in_threads(work, 2)
    assert ([1, 2, 3], "m") == (member[:].tolist(), member.attrs["unit"])


def test_a_member_that_is_opened_meanwhile(plain_group, monkeypatch):
    """It is changed by the writer of the group, as all its members are."""
    call_before_next(monkeypatch, "open_node", lambda: let_a_thread_unite(plain_group))
    member = plain_group["a"]
    with plain_group.change():
        member.append([3])
        plain_group["a"].append([4])
    assert [1, 2, 3, 4] == member[:].tolist()


def test_a_member_that_is_removed_meanwhile(plain_group, monkeypatch):
    """Also from the document, which another thread has just let commit it."""
    call_before_next(
        monkeypatch, "drop_copies", lambda: let_a_thread_unite(plain_group)
    )
    del plain_group["a"]
    assert [] == list(plain_group)


@pytest.mark.parametrize("call", ["open", "create", "require", "replace", "inside"])
def test_a_group_that_another_writer_has_united(call, tmp_path):
    """All that is opened and created from then on belongs to the group."""
    with dataset.create_group(tmp_path / "g") as group:
        group["x"], group["in/y"] = [1, 2], [3]
    with dataset.open(tmp_path / "g", "r+") as group:
        with dataset.open(tmp_path / "g", "r+") as other, other.change():
            other["x"].append([3])
        calls = {
            "open": lambda: group["x"],
            "create": lambda: group.create_array("n", [1, 2, 3]),
            "require": lambda: group.require_array("x", 3, "i8"),
            "replace": lambda: group.__setitem__("x", [1, 2, 3]) or group["x"],
            "inside": lambda: group.create_array("in/n", [1, 2, 3]),
        }
        member = calls[call]()
        assert [1, 2, 3] == member[:].tolist()
        with group.change():
            member.append([4])
            group["in/y"].append([5])
    with dataset.open(tmp_path / "g") as group:
        assert [3, 5] == group["in/y"][:].tolist()
    assert [] == dataset.verify(tmp_path / "g").findings


def test_a_member_of_an_inner_group_that_is_opened_meanwhile(plain_group, monkeypatch):
    """It gets the writer of the outer group with the others."""
    inner = plain_group.create_group("in")
    inner["y"] = [1]
    with inner.change():
        pass
    found, flush = [], dataset.Group.flush

    def opening(node):
        monkeypatch.setattr(dataset.Group, "flush", flush)
        flush(node)
        found.append(inner["y"])

    monkeypatch.setattr(dataset.Group, "flush", opening)
    with plain_group.change():
        found[0].append([2])
    assert [1, 2] == inner["y"][:].tolist()


def test_a_reader_of_a_member_during_the_first_change(plain_group, monkeypatch):
    """The member gets another writer, and is not closed."""
    member = plain_group["a"]
    unite = partial(let_a_thread_unite, plain_group)
    call_before_next(monkeypatch, "ask", unite, where=node)
    assert [1, 2] == member[:].tolist()


def test_a_change_of_a_member_during_the_first_change(plain_group, monkeypatch):
    member = plain_group["a"]
    unite = partial(let_a_thread_unite, plain_group)
    call_before_next(monkeypatch, "ask", unite, where=node)
    member.append([3])
    assert [1, 2, 3] == member[:].tolist()


def test_a_read_while_a_member_joins_its_group(tmp_path, monkeypatch):
    """The object must not get the files that it had before, with the new writer."""
    path, reading, joined = tmp_path / "g", threading.Event(), threading.Event()
    init, reopened = ZarrTable.__init__, dataset.Table._reopened
    with dataset.create_group(path) as group:
        table = group.create_table("t", {"a": [1, 2], "b": [3, 4]})
        thread = threading.Thread(target=lambda: table[:])

        def late(node):
            found = reopened(node)
            reading.set()
            joined.wait()
            return found

        def joins(layout, folder, **options):
            if folder.prefix:
                monkeypatch.setattr(ZarrTable, "__init__", init)
                thread.start()
                reading.wait(0.2)
            init(layout, folder, **options)

        monkeypatch.setattr(dataset.Table, "_reopened", late)
        monkeypatch.setattr(ZarrTable, "__init__", joins)
        with group.change():
            pass
        joined.set()
        thread.join()
        monkeypatch.undo()
        table.append({"a": [5], "b": [6]})
    assert [1, 2, 5] == dataset.open(path)["t"]["a"][:].tolist()
    assert ["t", "zarr.json"] == sorted(os.listdir(path))
    assert [] == dataset.verify(path).findings


def test_a_member_that_is_replaced_when_the_first_change_comes_to_it(
    plain_group, monkeypatch
):
    def replace():
        dataset.create_array(plain_group.path + "/a", [7, 8], mode="w").close()

    call_before_next(monkeypatch, "writer_for", replace)
    with plain_group.change():
        plain_group["a"].append([9])
    assert [7, 8, 9] == dataset.open(plain_group.path)["a"][:].tolist()


def test_a_member_that_a_thread_begins_to_commit_while_it_is_opened(
    tmp_path, monkeypatch
):
    """It is looked up again, by its path and through its group."""
    path = str(tmp_path / "g")
    for count, open_it in enumerate(
        [lambda: dataset.open(path + "/a", "r+"), lambda: group["a"]], 1
    ):
        with dataset.create_group(path, mode="w") as group:
            group.create_array("a", [1, 2]).close()
            unite = partial(let_a_thread_unite, group)
            call_before_next(monkeypatch, "writer_for", unite, where=opening)
            with open_it() as member:
                member.append([3])
        assert [1, 2, 3] == dataset.open(path)["a"][:].tolist(), count


def test_a_member_that_is_created_while_a_thread_begins_to_commit_it(
    tmp_path, monkeypatch
):
    """The thread that changes the group creates a member of the same name, too."""
    changing = threading.Event()

    def change():
        with group.change():
            changing.set()
            group.create_array("n", [1], mode="w")

    thread = threading.Thread(target=change)
    with dataset.create_group(tmp_path / "g") as group:
        call_before_next(
            monkeypatch,
            "new_dataset",
            lambda: (thread.start(), changing.wait(), time.sleep(0.05)),
            where=opening,
        )
        group._writer.rule.wait = 0.2
        group.create_array("n", [2], mode="w").append([3])
        thread.join()
    assert [2, 3] == dataset.open(tmp_path / "g")["n"][:].tolist()


def test_a_member_that_is_replaced_while_another_thread_has_locked_it(plain_group):
    """As long as that lets the group commit it."""
    lock = FolderLock(FolderStore(plain_group.path + "/a"))
    timer = threading.Timer(0.1, lock.close)
    timer.start()
    plain_group.create_array("a", [5], mode="w")
    timer.join()
    assert [5] == plain_group["a"][:].tolist()


def test_rows_that_are_appended_while_a_read_compares_their_number(
    tmp_path, monkeypatch
):
    """No other program has removed any."""
    with dataset.create_group(tmp_path / "g") as group:
        table = group.create_table("t", {"a": [1, 2]})
        with group.change():
            pass
        reopened = dataset.Array._reopened

        def late(column):
            monkeypatch.undo()
            found = reopened(column)
            in_threads(lambda number: table.append({"a": [3]}), 1)
            return found

        with group.change():
            table[0] = {"a": 7}
        monkeypatch.setattr(dataset.Array, "_reopened", late)
        assert [7, 2, 3] == table[:]["a"].tolist()


@pytest.mark.parametrize("buffered", [False, True])
def test_refresh_beside_appends_of_another_thread(tmp_path, buffered):
    with dataset.create_group(tmp_path / "g") as group:
        with group.change():
            pass
        array = group.create_array("x", shape=0, dtype="i8", buffered=buffered)
        ends = threading.Event()

        def refresh():
            while not ends.is_set():
                array.refresh()

        thread = threading.Thread(target=refresh)
        thread.start()
        try:
            for number in range(60):
                array.append([number])
        finally:
            ends.set()
            thread.join()
    assert [*range(60)] == dataset.open(tmp_path / "g")["x"][:].tolist()


@pytest.mark.parametrize("kind", ["x", "t", "t/a", ""])
def test_refresh_beside_a_block_that_waits_for_it(plain_group, kind):
    """It takes the state that is committed, in which the group is until the end."""
    group = plain_group
    group["x"], group["t"] = [1], {"a": [1]}
    with group.change():
        group.attrs["a"] = 1
    with dataset.open(group.path, "r+") as other:
        other["x"].append([2])
        other["t"].append({"a": [2]})
    found = group[kind] if kind else group

    def check(count, value):
        assert count == len(group["x"]) == len(group["t"])
        assert value == group.attrs["a"]

    with group.change():
        group["x"].append([3])
        group["t"].append({"a": [3]})
        group.attrs["a"] = 2
        thread = threading.Thread(target=found.refresh, daemon=True)
        thread.start()
        thread.join(5)
        assert not thread.is_alive()
        in_threads(lambda number: check(2, 1), 1)
    check(3, 2)


@pytest.mark.parametrize("layout", ["zarr", "superchunk", "bcolz"])
def test_the_later_one_of_two_threads_that_refresh_has_the_later_state(
    tmp_path, monkeypatch, layout
):
    """A table that got removed columns back was closed for good."""
    columns = {"x": [1], "y": [2]}
    dataset.create_table(tmp_path / "t", columns, layout=layout).close()
    table, reopened = dataset.open(tmp_path / "t"), Node._reopened
    has_read, goes_on = threading.Event(), threading.Event()

    def wait(node):
        found = reopened(node)
        if not has_read.is_set():
            has_read.set()
            goes_on.wait(0.3)
        return found

    def refresh():
        has_read.wait()
        with dataset.open(tmp_path / "t", "r+") as writer:
            writer.remove_column("y")
        table.refresh()
        goes_on.set()

    monkeypatch.setattr(Node, "_reopened", wait)
    thread = threading.Thread(target=refresh)
    thread.start()
    table.refresh()
    thread.join()
    assert ["x"] == table.names
    assert [(1,)] == table[:].tolist()


@pytest.mark.parametrize("kind", ["array", "table"])
def test_a_member_that_is_closed_when_the_first_change_comes_to_it(
    tmp_path, monkeypatch, kind
):
    get = groups.OpenMembers.get

    def closing(members, address):
        """Return the member, which another thread closes meanwhile."""
        found = get(members, address)
        if found is not None and found is not group:
            thread = threading.Thread(target=found.close)
            thread.start()
            thread.join()
        return found

    with dataset.create_group(tmp_path / "g") as group:
        group["x"] = [1] if kind == "array" else {"a": [1]}
        kept = group["x"]
        monkeypatch.setattr(groups.OpenMembers, "get", closing)
        with group.change():
            group.attrs["changed"] = True
        monkeypatch.undo()
        assert kept.closed
        group["x"].append([2] if kind == "array" else {"a": [2]})
    assert 2 == len(dataset.open(tmp_path / "g")["x"])
    assert dataset.verify(tmp_path / "g").ok
