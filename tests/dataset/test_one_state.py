"""A read beside a writer in another process returns items of one state."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from dataset.inside import FolderChange, FolderStore, PartReader

from bloscpack import dataset
from bloscpack.dataset import layouts
from bloscpack.dataset.folder import Folder
from bloscpack.dataset.layouts.shard_files import ShardFiles
from bloscpack.exceptions import DamageError, StorageError

CHANGES = """
import itertools, sys
from bloscpack import dataset
with dataset.open(sys.argv[1], "r+", sync=False) as found:
    print("open", flush=True)
    for number in itertools.count(1):
        if isinstance(found, dataset.Table):
            found[:] = {name: [number] * len(found) for name in found.names}
        else:
            found[:] = (number, number) if found.dtype.names else number
"""
PAIR = [("a", "i8"), ("b", "i8")]


def array(path, layout, dtype):
    items = np.zeros(40, dtype)
    dataset.create_array(path, items, layout=layout, chunks=4, shards=8).close()


def table(path, layout):
    columns = {"x": np.zeros(20, "i8"), "y": np.zeros(20, "i8")}
    dataset.create_table(path, columns, layout=layout, chunks=4, shards=8).close()


KINDS = {
    "zarr array": lambda path: array(path, "zarr", "i8"),
    "superchunk array": lambda path: array(path, "superchunk", "i8"),
    "fields": lambda path: array(path, "superchunk", PAIR),
    "zarr table": lambda path: table(path, "zarr"),
    "superchunk table": lambda path: table(path, "superchunk"),
}


def values_in(items):
    names = items.dtype.names
    parts = [items[name] for name in names] if names else [items]
    return set(np.concatenate(parts).tolist())


@contextlib.contextmanager
def writing(program, *arguments):
    """Yield a process that changes a dataset until the block ends."""
    command = [sys.executable, "-c", program, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        try:
            assert b"open\n" == writer.stdout.readline()
            yield writer
        finally:
            writer.kill()


def read_beside(writer, path, old, read):
    """Read one state at a time, at least 100 times and until some have been seen."""
    seen, reads = set(), 0
    while len(seen) < 3 or reads < 100:
        assert writer.poll() is None
        for reader in old, dataset.open(path):
            found = read(reader)
            assert 1 == len(found), found
            seen |= found
            reads += 1


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_a_read_beside_assignments_of_another_process(kind, tmp_path):
    path = tmp_path / "d"
    KINDS[kind](path)
    old = dataset.open(path)
    old[:]
    with writing(CHANGES, path) as writer:
        read_beside(writer, path, old, lambda reader: values_in(reader[:]))


# Lets shards appear and vanish: those with the fill value are left out.
APPEARING = """
import itertools, sys
from bloscpack import dataset
low, high = int(sys.argv[2]), int(sys.argv[3])
with dataset.open(sys.argv[1], "r+", sync=False) as array:
    print("open", flush=True)
    for number in itertools.count(1):
        array[low:high] = number % 3
        if number % 4 == 1:
            array[...] = number % 3
"""


@pytest.mark.full
@pytest.mark.parametrize(
    ("length", "shard", "low", "high"),
    [(16, 4, 2, 14), (400, 100, 0, 400)],
    ids=["few chunks", "more chunks than are looked for one by one"],
)
def test_a_read_beside_assignments_that_leave_out_shards(
    tmp_path, length, shard, low, high
):
    path = tmp_path / "a"
    dataset.create_array(path, shape=length, dtype="i8", chunks=2, shards=shard).close()
    with writing(APPEARING, path, str(low), str(high)) as writer:
        old = dataset.open(path)
        read_beside(writer, path, old, lambda reader: {*reader[low:high].tolist()})


@pytest.mark.parametrize("layout", ["zarr", "superchunk"])
def test_a_change_between_the_columns_and_another_one_after_it(
    layout, tmp_path, monkeypatch
):
    """The second change must not hide that the first one has changed several files."""
    path = tmp_path / "d"
    table(path, layout)
    reader, storage = dataset.open(path), Folder.storage

    def changing(folder, name, end=0):
        if folder.prefix.rstrip("/").endswith("y"):
            monkeypatch.undo()
            with dataset.open(path, "r+") as writer:
                writer[:] = {"x": [1] * 20, "y": [1] * 20}
                writer.attrs["unit"] = "m"
                writer.append({"x": [1], "y": [1]})
        return storage(folder, name, end)

    monkeypatch.setattr(Folder, "storage", changing)
    assert {1} == values_in(reader[:])
    assert Folder.storage is storage


def test_a_member_that_is_replaced_while_it_is_read(tmp_path, monkeypatch):
    """Its document says so only later than that of the group, which is no damage."""
    path = tmp_path / "g"
    with dataset.create_group(path) as group:
        group.create_array("a", np.zeros(8, "i8"), chunks=2, shards=4)
        with group.change():
            pass
        reader = dataset.open(path / "a")
        with monkeypatch.context() as crash:
            crash.setattr(FolderChange, "_copy", no_room)
            with pytest.raises(OSError, match="No space left"):
                group.create_array("a", np.ones(8, "i8"), mode="w", chunks=2, shards=4)
    with pytest.raises(StorageError, match="a writer has removed it, or replaced it"):
        reader[:]


def no_room(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    "kind", ["superchunk fields", "zarr table", "superchunk table"]
)
def test_a_writer_reads_one_state_after_its_change_failed(kind, tmp_path, monkeypatch):
    """The change was committed, and only some of its files have got their names."""
    path, move, moved = tmp_path / "d", FolderChange._move, []
    is_table, layout = kind.endswith("table"), kind.split()[0]
    zeros = dict.fromkeys("xy", [0] * 9) if is_table else np.zeros(9, PAIR)
    create = dataset.create_table if is_table else dataset.create_array
    create(path, zeros, layout=layout).close()  # one file for each column

    def move_one(change, staged, name):
        if name.rpartition("/")[2] not in ("zarr.json", "sizes"):
            moved.append(name)
            if len(moved) > 1:
                no_room()
        move(change, staged, name)

    with dataset.open(path, "r+") as writer:
        assert {0} == values_in(writer[:])
        with monkeypatch.context() as crash:
            crash.setattr(FolderChange, "_move", move_one)
            with pytest.raises(OSError, match="No space left"):
                writer[:] = {"x": [1] * 9, "y": [1] * 9} if is_table else (1, 1)
        assert {1} == values_in(writer[:])
    assert {1} == values_in(dataset.open(path)[:])


class Paused:
    """Calls a function in a thread, which waits after its first call of a method."""

    def __init__(self, monkeypatch, function, owner, name):
        method, self.pauses = getattr(owner, name), threading.Event()
        self._goes_on = threading.Event()

        def pausing(*args, **options):
            found = method(*args, **options)
            if threading.current_thread() is self._thread and not self.pauses.is_set():
                self.pauses.set()
                assert self._goes_on.wait(60)
            return found

        monkeypatch.setattr(owner, name, pausing)
        self.found = []
        self._thread = threading.Thread(target=lambda: self.found.append(function()))
        self._thread.start()
        assert self.pauses.wait(60)

    def end(self):
        self._goes_on.set()
        self._thread.join()


def assign_all(path, number):
    with dataset.open(path, "r+") as writer:
        writer[:] = {"x": [number] * 20, "y": [number] * 20}


@pytest.mark.parametrize("layout", ["zarr", "superchunk"])
def test_a_file_that_a_thread_has_opened_before_a_change(layout, tmp_path, monkeypatch):
    """It is not kept for later reads if another thread has found the change."""
    path = tmp_path / "d"
    dataset.create_table(path, {"x": [0] * 20, "y": [0] * 20}, layout=layout).close()
    reader = dataset.open(path)
    reading = Paused(monkeypatch, lambda: reader[:], FolderStore, "open")
    assign_all(path, 1)
    other = reader[["y"]]
    assert {1} == values_in(other[:])
    reader._read(lambda: None)  # as a thread that does not wait for the file of "x"
    reading.end()
    assert [{1}, {1}] == [values_in(reading.found[0]), values_in(reader[:])]


@pytest.mark.parametrize("layout", ["zarr", "superchunk"])
def test_rows_that_are_removed_while_a_thread_reads(layout, tmp_path, monkeypatch):
    """The last file is removed but still open: its items belong to the old state."""
    path = tmp_path / "a"
    array(path, layout, "i8")
    reader = dataset.open(path)
    reader[39]

    def read():
        message = r"removed rows.* open (it|the dataset) again"
        with pytest.raises((StorageError, DamageError), match=message):
            reader[:]
        return True

    reading = Paused(monkeypatch, read, FolderStore, "open")
    with dataset.open(path, "r+") as writer:
        writer.resize(32)
        writer[:] = 1
    reading.end()
    assert reading.found


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("length", [32, 30, 8, 5])
def test_rows_that_were_removed_since_a_file_was_opened(length, sparse, tmp_path):
    """Neither the open file nor the fill value has the items of the new state."""
    path, what = tmp_path / "a", {"chunks": 4, "shards": 8}
    data = {"shape": 40, "dtype": "i8"} if sparse else {"data": np.zeros(40, "i8")}
    dataset.create_array(path, **data, **what).close()
    reader = dataset.open(path)
    assert {0} == values_in(reader[:])
    with dataset.open(path, "r+") as writer:
        writer[:] = 1
        assert {1} == values_in(reader[:])
        writer.resize(length)
        writer[:] = 2
    for start in (0, 8, length - 1):
        with pytest.raises((StorageError, DamageError), match="removed rows"):
            reader[start:]
    if length >= 8:  # the first file has all of its rows
        assert {2} == values_in(reader[:8])
    reader.refresh()
    assert {2} == values_in(reader[:])
    assert length == len(reader)


@pytest.mark.parametrize("kind", ["superchunk array", "superchunk table"])
def test_refresh_while_a_writer_removes_it(kind, tmp_path, monkeypatch):
    """A file is missing in the folder that was replaced: that is no damage."""
    path, sizes = tmp_path / "a", tmp_path / "hidden" / "meta" / "sizes"
    KINDS[kind](path)
    reader = dataset.open(path)
    path.rename(tmp_path / "hidden")
    KINDS[kind](path)
    tree = type(reader._layout.folder.tree)
    read = tree.read

    def removing(*arguments):
        found = read(*arguments)
        sizes.unlink(missing_ok=True)
        return found

    monkeypatch.setattr(tree, "read", removing)
    with pytest.raises(StorageError, match="removed it, or replaced it"):
        reader.refresh()


def test_a_member_that_is_replaced_while_it_is_looked_up(tmp_path, monkeypatch):
    """Its old folder has lost its document, and is not empty yet."""
    path, find = tmp_path / "g", layouts.find
    with dataset.create_group(path) as group:
        group["x"] = [1]

    def finding(folder, **options):
        if folder.path().endswith("x") and not (tmp_path / "x").exists():
            folder.store.hold()
            (path / "x").rename(tmp_path / "x")
            (tmp_path / "x" / "zarr.json").unlink()
            dataset.create_array(path / "x", [2]).close()
        return find(folder, **options)

    reader = dataset.open(path)
    monkeypatch.setattr(layouts, "find", finding)
    assert [2] == reader["x"][:].tolist()


def test_a_removed_file_that_a_killed_writer_has_left(tmp_path):
    """It is still there, behind the end, and looks unchanged."""
    path, left = tmp_path / "a", tmp_path / "left"
    array(path, "zarr", "i8")
    reader = dataset.open(path)
    assert {0} == values_in(reader[:])
    left.hardlink_to(path / "c" / "4")
    with dataset.open(path, "r+") as writer:
        writer.resize(32)
        writer[:] = 1
    left.rename(path / "c" / "4")
    for key in slice(None), slice(20, 40):
        with pytest.raises(StorageError, match="removed rows: open it again"):
            reader[key]


def test_an_old_document_does_not_get_the_version_of_a_new_one(tmp_path, monkeypatch):
    """Two threads read the document, and the one that began first ends last."""
    path = tmp_path / "d"
    table(path, "zarr")
    reader = dataset.open(path)
    assign_all(path, 1)
    reading = Paused(monkeypatch, lambda: reader[:], FolderStore, "open")
    assign_all(path, 2)
    assert {2} == values_in(reader[:])
    reading.end()
    assert [{2}, {2}] == [values_in(reading.found[0]), values_in(reader[:])]


def assign(path):
    """Change one file of each column."""
    for name in "a", "b":
        with dataset.open(path, "r+") as writer:
            if isinstance(writer, dataset.Table):
                writer[name][9] = 1
            else:
                writer[name] = [1] * 10


def replace_rows(path):
    with dataset.open(path, "r+") as writer:
        writer.resize(8)
        writer.append(np.ones(2, PAIR))


@pytest.mark.parametrize("change", [assign, replace_rows])
@pytest.mark.parametrize("kind", ["zarr", "superchunk", "fields"])
def test_a_file_that_was_opened_before_changes_of_single_files(kind, change, tmp_path):
    """The reader has the file of one column open, and opens that of the other now."""
    path, rows = tmp_path / "d", np.zeros(10, PAIR)
    if kind == "fields":
        dataset.create_array(path, rows, layout="superchunk").close()
        reader = dataset.open(path)
        reader["a"]
    else:
        cut = {"a": 10, "b": 5}
        dataset.create_table(path, rows, layout=kind, chunks=cut, shards=cut).close()
        reader = dataset.open(path)
        reader[:2]
    change(path)
    assert {1} == values_in(reader[9:])


@pytest.mark.parametrize("kind", ["zarr", "superchunk", "fields"])
def test_rows_in_the_place_of_removed_rows(kind, tmp_path):
    """An append changes no file that readers use, unless they know removed rows."""
    path, rows = tmp_path / "d", np.zeros(10, PAIR)
    if kind == "fields":
        dataset.create_array(path, rows, layout="superchunk").close()
    else:
        cut = {"a": 10, "b": 5}
        dataset.create_table(path, rows, layout=kind, chunks=cut, shards=cut).close()
    reader = dataset.open(path)
    reader[:2]
    with dataset.open(path, "r+") as writer:
        writer.resize(8)
        for key in slice(2), slice(5, None):
            with pytest.raises(StorageError, match="removed rows: open it again"):
                reader[key]
        writer.append(np.ones(2, PAIR))
        assert {1} == values_in(reader[8:])
        writer.resize(7)
    reader.refresh()
    assert 7 == len(reader[:])


MADE = {
    "array": lambda group: group.create_array("m", range(20), chunks=5, shards=10),
    "matrix": lambda group: group.create_array("m", np.ones((20, 2)), chunks=(5, 1)),
    "table": lambda group: group.create_table("m", {"x": range(20)}, chunks=5),
    "group": lambda group: group.create_group("m").create_array("a", [1]),
    "nothing": bool,
}
CALLS = {
    "items": lambda found: found[:],
    "attrs": lambda found: dict(found.attrs),
    "info": lambda found: found.info,
    "refresh": lambda found: found.refresh(),
}


@pytest.mark.parametrize("new", MADE)
@pytest.mark.parametrize("old", [*MADE][:4])
@pytest.mark.parametrize("opens_by", ["group", "path"])
@pytest.mark.parametrize("commits", [False, True])
def test_a_member_that_is_replaced_or_removed(commits, opens_by, old, new, tmp_path):
    """No call takes the new one for the old one, or for a damaged one."""
    path = tmp_path / "g"
    with dataset.create_group(path) as group:
        MADE[old](group)
        with group.change() if commits else contextlib.nullcontext():
            group.attrs["n"] = 1
    names = [name for name in CALLS if (old, name) != ("group", "items")]
    how = {"group": lambda: dataset.open(path)["m"]}
    readers = [how.get(opens_by, lambda: dataset.open(path / "m"))() for _ in names]
    with dataset.open(path, "r+") as group:
        del group["m"]
        MADE[new](group)
    for name, reader in zip(names, readers, strict=True):
        with pytest.raises(StorageError, match="removed it, or replaced it"):
            CALLS[name](reader)


def test_a_table_whose_document_is_removed_first(tmp_path):
    """A missing shard of it is no damage."""
    dataset.create_table(tmp_path / "t", {"x": range(20)}).close()
    reader = dataset.open(tmp_path / "t")
    for name in "zarr.json", "x/zarr.json", "x/c/0":
        (tmp_path / "t" / name).unlink()
    with pytest.raises(StorageError, match="removed it, or replaced it"):
        reader[:]


@contextlib.contextmanager
def each_move(monkeypatch, function):
    """Call a function before and after a file of a change gets its name."""
    move, calls = FolderChange._move, []

    def moved(*args):
        for step in lambda: None, lambda: move(*args):
            step()
            if not calls:
                calls.append(1)
                function()
                calls.clear()

    with monkeypatch.context() as patch:
        patch.setattr(FolderChange, "_move", moved)
        yield


# The path of a member, what is kept of it, and what reads from that.
READERS = {
    "array": ("x", lambda found: found, lambda kept: kept[:]),
    "inner array": ("s/x", lambda found: found, lambda kept: kept[:]),
    "table": ("t", lambda found: found, lambda kept: kept[:]),
    "column": ("t/x", lambda found: found, lambda kept: kept[:]),
    "column of a table": ("t", lambda found: found["x"], lambda kept: kept[:]),
    "selection": ("t", lambda found: found[["y", "x"]], lambda kept: kept[:]),
    "new selection": ("t", lambda found: found, lambda kept: kept[["y", "x"]][:]),
    "group": ("s", lambda found: found, lambda kept: kept["x"][:]),
}


@pytest.mark.parametrize("refreshes", [False, True])
@pytest.mark.parametrize("opens_by", ["group", "path"])
@pytest.mark.parametrize("kind", READERS)
def test_a_reader_from_before_the_first_change(
    kind, opens_by, refreshes, tmp_path, monkeypatch
):
    """It reads as a member of the group from then on."""
    path, found = tmp_path / "g", []
    name, keep, get = READERS[kind]

    def read(kept):
        return values_in(get(kept))

    with dataset.create_group(path) as group:
        array(path / "x", "zarr", "i8")
        table(path / "t", "zarr")
        group.create_group("s").close()
        array(path / "s" / "x", "zarr", "i8")
    reader = dataset.open(path)[name]
    if opens_by == "path":
        reader = dataset.open(path / name)
    reader = keep(reader)
    assert {0} == read(reader)
    with dataset.open(path, "r+") as writer, writer.change():
        for member in writer["x"], writer["s"]["x"]:
            member[:] = 1
        writer["t"][:] = {"x": [1] * 20, "y": [1] * 20}
    if refreshes:
        reader.refresh()
    with dataset.open(path, "r+") as writer:
        for number in 2, 3:
            with each_move(monkeypatch, lambda: found.append(read(reader))):
                writer["x"][:] = number
                writer["s"]["x"][:] = number
                writer["t"][:] = {"x": [number] * 20, "y": [number] * 20}
    assert {3} == read(reader)
    assert 20 < len(found)
    assert all(1 == len(values) for values in found)


@contextlib.contextmanager
def at_look(monkeypatch, number, function):
    """Call a function when the files are looked at for the time `number`.

    Yields a list that is empty as long as that has not happened.
    """
    called, looks = [], itertools.count(1)

    def look(real, *args):
        if next(looks) == number:
            called.append(1)
            function()
        return real(*args)

    with monkeypatch.context() as patch:
        for name in "identity", "descriptor":
            real = getattr(FolderStore, name)
            looking = lambda *args, real=real: look(real, *args)  # noqa: E731
            patch.setattr(FolderStore, name, looking)
        yield called


@pytest.mark.parametrize("kind", ["table", "column of a table", "selection"])
def test_the_first_change_during_a_read(kind, tmp_path, monkeypatch):
    name, keep, get = READERS[kind]

    def change():
        with group.change():
            group["t"][:] = {"x": [1] * 20, "y": [1] * 20}

    for number in itertools.count(1):
        path = tmp_path / str(number)
        group = dataset.create_group(path)
        table(path / name, "zarr")
        with at_look(monkeypatch, number, change) as called:
            kept = keep(dataset.open(path / name))
            found = [values_in(get(kept)) for _ in range(2)]
        group.close()
        if not called:
            break
        assert found in ([{0}, {0}], [{0}, {1}], [{1}, {1}])
        assert {1} == values_in(get(kept))
    assert number > 5


def test_a_reader_from_before_the_first_change_that_removes_rows(tmp_path):
    path = tmp_path / "g"
    dataset.create_group(path).close()
    array(path / "x", "zarr", "i8")
    reader = dataset.open(path / "x")
    with dataset.open(path, "r+") as writer, writer.change():
        writer["x"].resize(12)
    for _ in range(2):
        with pytest.raises(StorageError, match="removed rows: open it again"):
            reader[:]
    reader.refresh()
    assert 12 == len(reader[:])


@pytest.mark.parametrize("name", ["y", "z"])
def test_a_table_that_the_first_change_replaces(name, tmp_path):
    """Its reader does not become one of another table, also of the same columns."""
    path = tmp_path / "g"
    dataset.create_group(path).close()
    table(path / "t", "zarr")
    readers = [dataset.open(path / "t"), dataset.open(path)["t"]]
    assert {0} == values_in(readers[0][:])
    columns = [reader["x"] for reader in readers]
    with dataset.open(path, "r+") as writer, writer.change():
        del writer["t"]
        writer.create_table("t", {"x": [1] * 20, name: [1] * 20})
    for reader in readers + columns:
        for read in lambda reader=reader: reader[:], reader.refresh:
            with pytest.raises(StorageError, match="removed it, or replaced it"):
                read()


def test_a_column_that_the_first_change_replaces(tmp_path):
    """A reader of the table does not go on with the items of another column."""
    path = tmp_path / "g"
    dataset.create_group(path).close()
    table(path / "t", "zarr")
    readers = [dataset.open(path / "t"), dataset.open(path)["t"]]
    assert {0} == values_in(readers[0][:])
    with dataset.open(path, "r+") as writer, writer.change():
        writer["t"].remove_column("x")
        writer["t"].add_column("x", [1] * 20)
    for reader in readers:
        for _ in range(2):
            with pytest.raises(StorageError, match="removed it, or replaced it"):
                reader[:]
        reader.refresh()
        assert [(0, 1)] * 20 == reader[:].tolist()


def test_a_file_of_a_change_that_is_not_committed_yet(tmp_path, monkeypatch):
    """It has new rows in the place of removed ones, which the change assigns later."""
    path = tmp_path / "g"
    dataset.create_group(path).close()
    array(path / "x", "zarr", "i8")
    with dataset.open(path, "r+") as writer:
        with writer.change():
            writer["x"][:] = 1
        reader = dataset.open(path / "x")
        with writer.change():
            writer["x"].resize(5)
        with writer.change():
            writer["x"].resize(40)
            with pytest.raises(StorageError, match="removed rows: open it again"):
                reader[:8]
            reading = Paused(monkeypatch, lambda: reader[:8], FolderStore, "open")
            writer["x"][:] = 2
    reading.end()
    assert [{2}] == [values_in(found) for found in reading.found]


def test_a_file_that_is_read_while_it_is_renamed_and_then_removed(
    tmp_path, monkeypatch
):
    """That it was opened twice with the same result does not hide the second change."""
    path, opened = tmp_path / "a", []
    dataset.create_array(path, shape=8, dtype="i8", chunks=2, shards=4).close()
    with dataset.open(path, "r+") as writer:
        writer[:] = 1
    reader, open_now = dataset.open(path), ShardFiles._open_now

    def fail(*_):
        raise ZeroDivisionError

    def changing(files, number, chunks):
        if files is reader._layout._source:
            opened.append(number)
            if len(opened) == 1:
                with (
                    pytest.MonkeyPatch.context() as crash,
                    contextlib.suppress(ZeroDivisionError),
                    dataset.open(path, "r+") as writer,
                ):
                    crash.setattr(FolderChange, "_complete", fail)
                    writer[:] = 2
            if len(opened) == 4:
                with dataset.open(path, "r+") as writer:
                    writer[:] = 0
        return open_now(files, number, chunks)

    monkeypatch.setattr(ShardFiles, "_open_now", changing)
    assert [0] * 8 == reader[:].tolist()
    assert [0, 1, 0, 1] == opened[:4]


@pytest.mark.parametrize("layout", ["zarr", "superchunk"])
def test_a_read_of_columns_while_a_thread_takes_over_fewer_rows(
    tmp_path, monkeypatch, layout
):
    """It is read again: the columns of two states have other lengths."""
    rows = {"x": range(9), "y": range(9)}
    writer = dataset.create_table(tmp_path / "t", rows, layout=layout, sync=False)
    table, get = dataset.open(tmp_path / "t"), PartReader.get

    def reading(reader, key):
        items = get(reader, key)
        if len(writer) == 9:
            writer.resize(3)
            table.refresh()
        return items

    monkeypatch.setattr(PartReader, "get", reading)
    assert [(0, 0), (1, 1), (2, 2)] == table[:].tolist()
