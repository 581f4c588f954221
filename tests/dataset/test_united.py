"""A group allows the same before its first `change` and after it."""

from __future__ import annotations

import errno
import itertools
import json
import shutil
import subprocess
import sys
import threading
import warnings
from contextlib import ExitStack, suppress
from functools import partial

import numpy as np
import pytest
from dataset.contents import content

from bloscpack import dataset
from bloscpack._commit.change import Change
from bloscpack._format.identity import find_identity, identified
from bloscpack._format.zarr_metadata import encode_json
from bloscpack._storage.disk import Disk
from bloscpack._storage.folder_store import FolderStore, StaleDataset
from bloscpack._storage.object_store import ObjectStore
from bloscpack.dataset import opening
from bloscpack.dataset.node import Node
from bloscpack.exceptions import FormatError, StorageError, UsageError

# The calls: what each does with a group, its path, and an array and a table that were
# opened before.


def open_again(group, path, array, table):
    with dataset.open_group(path, "r+") as again:
        again["x"].append([4])
        again.attrs["by"] = "again"
    group.attrs["by"] = "first"
    group["y"].append([5])


def create_by_path(group, path, array, table):
    with dataset.create_array(path + "/new", [1, 2]) as new:
        new.append([3])
    dataset.create_table(path + "/table", {"k": [1]}).close()
    dataset.create_group(path + "/in").close()


def table_by_columns(group, path, array, table):
    group["t"] = {"other": [1.5]}
    group["t"].append({"other": [2.5]})


def table_by_array(group, path, array, table):
    group["t"] = [1, 2]
    group["t"].append([3])


def other_axes(group, path, array, table):
    group["x"] = np.ones((3, 2))
    group["x"].append(np.zeros((1, 2)))


def other_layout(group, path, array, table):
    if "://" not in path:
        group.create_array("b", [1, 2], layout="bcolz").append([3])
        group.create_table("s", {"k": [1, 2]}, layout="superchunk").append({"k": [3]})


def buffered(group, path, array, table):
    with group.create_array("b", [1], buffered=True) as waits:
        waits.append([2])
        waits.append([3])
        assert [1] == waits[:].tolist()
    with dataset.open(path + "/y", "r+", buffered=True) as waits:
        waits.append([7])
    with group.create_table("c", {"k": [1]}, buffered=True) as waits:
        waits.append({"k": [2]})


def opened_before(group, path, array, table):
    array.append([4])
    array[0] = 9
    array.attrs["a"] = 1
    table.append({"k": [3]})
    assert [9, 2, 3, 4] == array[:].tolist() == group["x"][:].tolist()
    assert group["x"] is array
    assert 3 == len(table["k"])


CALLS = [
    *(open_again, create_by_path, table_by_columns, table_by_array, other_axes),
    *(other_layout, buffered, opened_before),
]


def after(call, path, is_united):
    """Return what a group has after a call."""
    with ExitStack() as opened:
        group = opened.enter_context(dataset.create_group(path))
        array = group.create_array("x", [1, 2, 3], chunks=2, shards=2)
        group["y"], group["t"] = [1], {"k": [1, 2]}
        table = group["t"]
        if call is not opened_before:
            array.close()
            table.close()
        group["y"].close()
        if is_united:
            with group.change():
                pass
        assert is_united == group.commits_members
        call(group, path, array, table)
        found = content(group)
    assert found == content(dataset.open(path))
    assert dataset.verify(path).ok
    return found


@pytest.mark.parametrize("call", CALLS)
def test_an_empty_change_alters_no_call(call, path):
    assert after(call, path + "1", False) == after(call, path + "2", True)


PROGRAM = """
import sys
import threading
from bloscpack import dataset
path, name = sys.argv[1:]
with dataset.open_group(path, 'r+', timeout=60, sync=False) as group:
    both, own, table = group['both'], group[name], group['t']
    for i in range(15):
        both.append([1])
        own.append([i])
        table.append({'k': [i]})
        with group.change():
            both.append([2])
            group['n'][0] = int(group['n'][0]) + 1
            group.attrs[name] = i
        group.create_array('%s%d' % (name, i), [i])
        del group['%s%d' % (name, i)]
"""


def test_two_processes_change_the_same_members(tmp_path):
    """Each change begins with what the other one has committed."""
    path = str(tmp_path / "g")
    with dataset.create_group(path) as group:
        group.create_array("both", [0], chunks=8, shards=16)
        for name in "a", "b", "n":
            group[name] = [0]
        group["t"] = {"k": [0]}
        with group.change():
            pass
    command = [sys.executable, "-c", PROGRAM, path]
    running = [subprocess.Popen([*command, name]) for name in ("a", "b")]
    assert [0, 0] == [process.wait() for process in running]
    group = dataset.open(path)
    assert [0] + [1] * 30 + [2] * 30 == sorted(group["both"][:].tolist())
    assert [30] == group["n"][:].tolist()
    assert [16, 16, 31] == [len(group[name]) for name in ("a", "b", "t")]
    assert ["a", "b", "both", "n", "t"] == list(group)
    assert {"a": 14, "b": 14} == dict(group.attrs)
    assert dataset.verify(path).ok


def add_array(group, rows, **options):
    return group.create_array("in/x", rows, **options)


def add_table(group, rows, **options):
    return group.create_table("in/x", {"k": rows}, **options)


# What a member can be: how it is created in a group, from an array of rows.
MEMBERS = {
    "group": lambda group, rows, **options: group.create_group("in/x", **options),
    **{
        layout: partial(add_array, layout=layout, chunks=4)
        for layout in ("zarr", "superchunk", "bcolz")
    },
    **{
        layout + " table": partial(add_table, layout=layout, chunks=4)
        for layout in ("zarr", "superchunk", "bcolz")
    },
}


class FailingRows:
    """An array elsewhere, of which a part can't be read."""

    dtype, shape, ndim = np.dtype("i4"), (8,), 1

    def __len__(self):
        return 8

    def __getitem__(self, key):
        raise ZeroDivisionError


def failing_blocks():
    yield np.arange(8, dtype="i4")
    raise ZeroDivisionError


def make_member(path, kind, is_united):
    """Return an open group in which the member 'in/x' has a kind."""
    group = dataset.create_group(path)
    MEMBERS[kind](group, np.arange(9, dtype="i4")).close()
    if kind == "group":
        group["in/x"].create_array("y", [1, 2]).close()
        group["in/x"].create_table("z", {"k": [3]}).close()
    if is_united:
        with group.change():
            pass
    return group


@pytest.mark.parametrize("is_united", [False, True])
@pytest.mark.parametrize("new", [kind for kind in MEMBERS if kind != "group"])
@pytest.mark.parametrize("old", MEMBERS)
def test_a_source_that_fails_replaces_nothing(tmp_path, old, new, is_united):
    path = str(tmp_path / "g")
    with make_member(path, old, is_united) as group:
        before = content(group)
        for rows in FailingRows(), failing_blocks(), np.array([object()]):
            with pytest.raises((ZeroDivisionError, UsageError)):
                MEMBERS[new](group, rows, mode="w")
            assert before == content(group) == content(dataset.open(path))
        group["in/x"]  # it is open for changes again
    assert dataset.verify(path).ok
    with dataset.open_group(path, "r+") as group:
        MEMBERS[new](group, np.arange(3, dtype="i4"), mode="w")
        after = content(group)
    assert before != after == content(dataset.open(path))
    assert dataset.verify(path).ok


@pytest.mark.parametrize("old", ["group", "zarr", "zarr table"])
def test_a_disk_that_is_full_when_a_member_is_released(tmp_path, old, monkeypatch):
    path = str(tmp_path / "g")
    with make_member(path, old, True) as group:
        before = content(group)
        for name in "write", "release_member", "commit":
            with monkeypatch.context() as context:
                context.setattr(Change, name, no_room)
                with pytest.raises(OSError, match="No space"):
                    MEMBERS["superchunk"](group, np.arange(3), mode="w")
            assert before == content(group) == content(dataset.open(path))
        MEMBERS["superchunk"](group, np.arange(3), mode="w")
        assert [0, 1, 2] == group["in/x"][:].tolist()
    assert [0, 1, 2] == dataset.open(path)["in/x"][:].tolist()
    assert dataset.verify(path).ok


def no_room(*arguments):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("kind", ["zarr", "zarr table"])
def test_the_note_about_a_member_whose_replacing_was_interrupted(
    tmp_path, kind, monkeypatch
):
    """Its group has released it. Then assigning it again lets the group commit it."""
    path = str(tmp_path / "g")
    with make_member(path, kind, True) as group, monkeypatch.context() as context:
        before = content(group)
        context.setattr(FolderStore, "exchange", no_room)
        with pytest.raises(OSError, match="No space"):
            MEMBERS["superchunk"](group, np.arange(3), mode="w")
    (note,) = dataset.verify(path).findings
    assert ("no-copy", "in/x") == (note.kind, note.file)
    assert "interrupted" in note.message
    with dataset.open_group(path, "r+") as group:
        assert before == content(group)
        MEMBERS[kind](group, np.arange(9, dtype="i4"), mode="w")
        assert before == content(group)
    assert [] == dataset.verify(path).findings


def fail_renames(context, count):
    """Let renaming a file fail after `count` files."""
    counts, rename = itertools.count(), Disk.rename

    def limited(*arguments):
        return (rename if next(counts) < count else no_room)(*arguments)

    context.setattr(Disk, "rename", limited)


def fail_puts(context, count):
    """Let storing an object fail after `count` objects."""
    counts, put = itertools.count(), ObjectStore.put

    def limited(*arguments):
        return (put if next(counts) < count else no_room)(*arguments)

    context.setattr(ObjectStore, "put", limited)


@pytest.mark.parametrize("count", range(6))
def test_a_commit_that_fails_while_rows_are_made_ends_the_turn(tmp_path, count):
    """No change is made on top of it, which would tear it."""
    with make_member(tmp_path / "g", "zarr", True) as group:
        array = group.create_array("a", np.arange(20), chunks=4, shards=4)

        class Rows:
            def __array__(self, dtype=None, copy=None):
                with pytest.MonkeyPatch.context() as context:
                    fail_renames(context, count)
                    with suppress(OSError):
                        array[:] = -1
                return np.array([7])

        with suppress(StorageError):
            group.create_array("b", [0]).append(Rows())
        array.append([5])
    found = dataset.open(tmp_path / "g/a")[:].tolist()
    assert found in ([*range(20), 5], [*[-1] * 20, 5])
    assert dataset.verify(tmp_path / "g").ok


@pytest.mark.parametrize("count", range(8))
def test_members_that_are_open_when_the_first_change_fails(tmp_path, count):
    """The document of the group may commit them already: they are opened again."""
    path = tmp_path / "g"
    with dataset.create_group(path) as group:
        table = group.create_table("t", {"x": np.arange(8), "y": np.arange(8)})
        with pytest.MonkeyPatch.context() as context:
            fail_renames(context, count)
            with suppress(OSError), group.change():
                table.append({"x": [6], "y": [7]})
        with suppress(StorageError):
            table.append({"x": [1], "y": [2]})
        known = len(table)
    assert known == len(dataset.open(path)["t"])
    assert dataset.verify(path).ok


def test_objects_of_a_member_that_another_layout_replaces(tmp_path):
    """They are closed when it is replaced, and rows that wait were written before."""
    with dataset.create_group(tmp_path / "g") as group:
        old = group.create_array("x", [1, 2], chunks=2)
        with group.change():
            pass
        again = group.create_array("x", old, mode="w", layout="superchunk")
        assert old.closed
        again.append([3])
        assert [1, 2, 3] == group["x"][:].tolist() == again[:].tolist()
        waits = group.create_array("w", [1], buffered=True)
        waits.append([2])
        group.create_array("w", [5], mode="w")
        group["w"].append([6])
        assert [5, 6] == dataset.open(tmp_path / "g")["w"][:].tolist()


def test_another_layout_replaces_a_member_by_its_path(tmp_path):
    path = str(tmp_path / "g")
    make_member(path, "group", True).close()
    with dataset.create_array(path + "/in/x/y", [5], mode="w", layout="bcolz") as new:
        new.append([6])
    with dataset.open_group(path, "r+") as group:
        assert [5, 6] == group["in/x/y"][:].tolist()
        assert [3] == group["in/x/z/k"][:].tolist()
        with pytest.raises(UsageError, match="outside of the block"), group.change():
            MEMBERS["superchunk"](group, [1], mode="w")
        group["in/x/z"].append({"k": [4]})
    assert dataset.verify(path).ok


def test_removing_a_member_of_an_inner_group_of_another_layout(tmp_path):
    """One of the same name in the outer group stays."""
    with dataset.create_group(tmp_path / "g") as group:
        group.create_array("x", [1], layout="superchunk").close()
        group.create_array("in/x", [2], layout="superchunk").close()
        with group.change():
            pass
        del group["in/x"]
        assert ["in", "x"] == list(group)
        assert [] == list(group["in"])
    assert [1] == dataset.open(tmp_path / "g")["x"][:].tolist()


def test_a_source_that_fails_late_replaces_nothing(path):
    """Not even in a store of objects, which can't exchange two datasets."""

    def blocks(fails):
        for number in range(9):
            yield np.full(8, number)
        if fails:
            raise ZeroDivisionError

    options = {"chunks": 8, "shards": 8, "mode": "w"}
    with dataset.create_group(path) as group:
        group["x"] = {"k": [1, 2, 3]}
        before = content(group)
        with pytest.raises(ZeroDivisionError):
            group.create_array("x", blocks(True), **options)
        assert before == content(dataset.open(path)) == content(group)
        assert dataset.verify(path).ok
        group.create_array("x", blocks(False), **options)
        assert [8] * 8 == dataset.open(path)["x"][64:].tolist()
    assert dataset.verify(path).ok


@pytest.mark.parametrize("target", ["b", "other"])
def test_rows_that_wait_are_in_a_copy_of_another_layout(tmp_path, target):
    with dataset.create_group(tmp_path / "g") as group:
        group["other"] = [0]
        with group.change():
            pass
        waits = group.create_array("b", [1, 2], buffered=True)
        waits.append([3])
        new = group.create_array(target, waits, mode="w", layout="superchunk")
        assert [1, 2, 3] == new[:].tolist()
    assert [1, 2, 3] == dataset.open(tmp_path / "g")["b"][:].tolist()


def as_array(group):
    group["x"] = np.arange(9)


def as_table(group):
    group["x"] = {"k": np.arange(9)}


def as_superchunk(group):
    group.create_array("x", np.arange(9), mode="w", layout="superchunk").close()


def removed(group):
    del group["x"]


KINDS = [as_array, as_table, as_superchunk, removed]


def items_at(path, through_group):
    """Return the items of a member, which is opened; None if there is none."""
    try:
        found = dataset.open(path)["x"] if through_group else dataset.open(path + "/x")
    except (KeyError, FileNotFoundError):
        return None
    return (found["k"] if isinstance(found, dataset.Table) else found)[:].tolist()


@pytest.mark.parametrize("through_group", [True, False])
@pytest.mark.parametrize("new", KINDS)
@pytest.mark.parametrize("old", KINDS[:3])
def test_a_member_that_is_replaced_while_it_is_opened(
    tmp_path, old, new, through_group, monkeypatch
):
    """It is found as the one, and opened as the other."""
    path = str(tmp_path / "g")
    with dataset.create_group(path) as group:
        group["y"] = [1]
        old(group)
        with group.change():
            pass
        changes, opened = [new], opening.open_array_or_table

        def open_late(found, options):
            if changes:
                changes.pop()(group)
            return opened(found, options)

        monkeypatch.setattr(opening, "open_array_or_table", open_late)
        with suppress(StaleDataset):  # or it was opened, and not read
            expected = None if new is removed else [*range(9)]
            assert expected == items_at(path, through_group)
        assert not changes
        assert expected == items_at(path, through_group)


def test_a_member_that_is_removed_while_it_is_replaced(tmp_path, monkeypatch):
    """Whether the group commits it is decided when no other program can change it."""
    path = str(tmp_path / "g")
    with dataset.create_group(path) as group:
        as_superchunk(group)
        with group.change():
            pass
        other = dataset.open_group(path, "r+", timeout=30)
        thread = threading.Thread(target=as_array, args=[other])

        def begin(folder):
            thread.start()
            thread.join(0.3)

        monkeypatch.setattr("bloscpack.dataset.group.drop_copies", begin)
        del group["x"]
        thread.join()
        other.close()
    assert [*range(9)] == items_at(path, True)
    assert [] == dataset.verify(path).findings


def add_row(member, number):
    member.append([number] if hasattr(member, "dims") else {"x": [number]})


def add(member, number):
    is_array = isinstance(member, dataset.Array)
    member.append([number] if is_array else {"x": [number], "y": [number]})


@pytest.mark.parametrize("way", ["change", "append", "path"])
@pytest.mark.parametrize("name", ["a", "t", "in/t"])
@pytest.mark.parametrize("store", ["folder", "memory"])
def test_rows_after_a_first_change_that_was_interrupted(tmp_path, store, name, way):
    """The own document of the member says as before that it commits itself."""
    for count in range(9):
        path = str(tmp_path / str(count))
        path = "memory:/" + path if store == "memory" else path
        with dataset.create_group(path) as group:
            group.create_group("in")
            for inner in "", "in/":
                group[inner + "a"] = [0, 1]
                group[inner + "t"] = {"x": [0, 1]}
            kept = group[name]
            with pytest.MonkeyPatch.context() as context:
                fail_renames(context, count)
                fail_puts(context, count)
                with suppress(OSError), group.change():
                    pass
            assert 2 == len(kept[:])
        how = {"timeout": 0.1} if store == "memory" else {}
        if way == "path":
            with dataset.open(path + "/" + name, "r+", **how) as member:
                add_row(member, 7)
        elif way == "append":
            with dataset.open_group(path, "r+", **how) as group:
                add_row(group[name], 7)
        else:
            with dataset.open_group(path, "r+", **how) as group, group.change():
                add_row(group[name], 7)
        with dataset.open_group(path, "r+", **how) as group, group.change():
            add_row(group[name], 8)
        for member in dataset.open(path)[name], dataset.open(path + "/" + name):
            found = member[:] if name == "a" else member["x"][:]
            assert [0, 1, 7, 8] == found.tolist()
        assert dataset.verify(path).ok


def rewritten(path, value, *unknown):
    """Let another program write a document again, and add an attribute.

    Of a group, such programs drop what they do not know beside the attributes; those
    in which keys are `unknown` drop these, too.
    """
    document = json.loads((path / "zarr.json").read_bytes())
    document["attributes"]["q"] = value
    for key in "consolidated_metadata", *unknown:
        document.pop(key, None)
    (path / "zarr.json").write_text(json.dumps(document))


def of_each_kind(path):
    with dataset.create_group(path, sync=False) as group:
        for inner in "", "in/":
            group[inner + "a"] = [0, 1]
            group[inner + "t"] = {"x": [0, 1], "y": [0, 1]}
        group["other"] = [0, 1]


def committing(path):
    of_each_kind(path)
    with dataset.open_group(path, "r+", sync=False) as group, group.change():
        pass


def stop_change(path, count, change):
    """Let a change of a group fail after `count` files have got their names."""
    group = dataset.open_group(path, "r+", sync=False)
    with group, pytest.MonkeyPatch.context() as context:
        fail_renames(context, count)
        with suppress(OSError), group.change():
            change(group)


def interrupt(path, count, *names):
    """Let a change of members fail after `count` files have got their names."""
    stop_change(path, count, lambda group: [add(group[name], 7) for name in names])


# The document that another program writes, and the member that gets rows.
WRITTEN_AGAIN = {
    **{name: name for name in ("a", "t", "in/a", "in/t")},
    "t/x": "t",
    "in": "in/t",
    "in/t/x": "in/t",
}


@pytest.mark.parametrize("when", ["before", "after", "before and after"])
@pytest.mark.parametrize("name", WRITTEN_AGAIN)
def test_a_document_written_again_beside_a_first_change_that_was_interrupted(
    tmp_path, name, when
):
    """The member has one writer, which keeps what the other program has written."""
    row = WRITTEN_AGAIN[name]
    for count in 0, 1, 2, 5, 9:
        path = tmp_path / str(count)
        of_each_kind(path)
        if "before" in when:
            rewritten(path / name, 1)
        interrupt(path, count)
        if "after" in when:
            rewritten(path / name, 2)
        with ExitStack() as opened:
            member = opened.enter_context(dataset.open(path / row, "r+", sync=False))
            add(member, 7)
            group = opened.enter_context(dataset.open_group(path, "r+", sync=False))
            if not group.commits_members:  # the member is locked
                member.close()
            add(group[row], 8)
            if group.commits_members:
                add(member, 9)
            else:
                add(group[row], 9)
            with group.change():
                add(group[row], 10)
                group["other"].append([10])
        for found in dataset.open(path)[row], dataset.open(path / row):
            rows = found[:] if row.endswith("a") else found["y"][:]
            assert [0, 1, 7, 8, 9, 10] == rows.tolist()
        for found in dataset.open(path)[name], dataset.open(path / name):
            assert (2 if "after" in when else 1) == found.attrs["q"]
        assert dataset.verify(path).ok


@pytest.mark.parametrize("name", ["a", "t/x", "in/a"])
def test_an_interrupted_change_of_a_member_that_was_written_again(tmp_path, name):
    """All members have changed, or none."""
    row = WRITTEN_AGAIN[name]
    for count in range(12):
        path = tmp_path / str(count)
        committing(path)
        rewritten(path / name, 1)
        if count % 2:  # this change copies it
            with dataset.open_group(path, "r+", sync=False) as group:
                group.attrs["n"] = 0
        interrupt(path, count, "other", row)
        lengths = set()
        for step in range(2):
            group = dataset.open(path)
            lengths |= {len(group["other"]), len(group[row])}
            lengths |= {len(dataset.open(path / name)), len(group[name])}
            assert 1 == group[name].attrs["q"] == dataset.open(path / name).attrs["q"]
            if not step:  # the next writer completes the change
                with dataset.open_group(path, "r+", sync=False) as group:
                    group.attrs["n"] = 1
        assert 1 == len(lengths)
        assert dataset.verify(path).ok


@pytest.mark.parametrize("name", ["a", "t/x", "in/a"])
def test_a_member_that_was_written_again_over_the_state_before_a_commit(tmp_path, name):
    """The committed rows stay, and the attributes of the other program."""
    row, texts = WRITTEN_AGAIN[name], []
    for count in range(9):
        path = tmp_path / str(count)
        committing(path)
        interrupt(path, count, "other", row)
        length = len(dataset.open(path)["other"])
        rewritten(path / name, 1)
        for step in range(2):
            for found in dataset.open(path)[name], dataset.open(path / name):
                assert length == len(found)
                assert 1 == found.attrs["q"]
            if not step:
                with warnings.catch_warnings(record=True) as warned:
                    warnings.simplefilter("always")
                    with dataset.open_group(path, "r+", sync=False) as group:
                        group.attrs["n"] = 1
                texts += [str(each.message) for each in warned]
        assert dataset.verify(path).ok
        document = json.loads((path / name / "zarr.json").read_bytes())
        assert [length] == document["shape"]
    assert texts
    assert all("written this document over" in text for text in texts)


@pytest.mark.parametrize("name", WRITTEN_AGAIN)
def test_a_member_that_was_written_again_before_a_change_is_completed(tmp_path, name):
    """The next writer, which gives the files of the change their names, keeps it."""
    row = WRITTEN_AGAIN[name]

    def items_of(group):
        return group[row] if row.endswith("a") else group[row]["x"]

    def change(group):
        group["other"][0] = 7
        items_of(group)[0] = 7

    for count in range(9):
        path = tmp_path / str(count)
        committing(path)
        stop_change(path, count, change)
        is_done = 7 == dataset.open(path)["other"][0]
        rewritten(path / name, 1)
        with dataset.open_group(path, "r+", sync=False) as group:
            group.attrs["n"] = 1
        for found in dataset.open(path)[name], dataset.open(path / name):
            assert 1 == found.attrs["q"]
        assert [7 if is_done else 0, 1] == items_of(dataset.open(path))[:].tolist()


@pytest.mark.parametrize("kind", ["array", "table"])
def test_a_new_member_whose_older_document_was_written_again(tmp_path, kind):
    """Nothing of the member that it has replaced comes back."""

    def change(group):
        group["a"] = [5, 6, 7] if kind == "array" else {"x": [5, 6, 7]}
        group["other"].append([2])

    for count in range(9):
        path = tmp_path / str(count)
        committing(path)
        stop_change(path, count, change)
        if 3 == len(dataset.open(path)["other"]):
            rewritten(path / "a", 1)
            for found in dataset.open(path)["a"], dataset.open(path / "a"):
                rows = found if kind == "array" else found["x"]
                assert [5, 6, 7] == rows[:].tolist()


@pytest.mark.parametrize("name", WRITTEN_AGAIN)
def test_a_member_that_was_written_again_keeps_the_writer_of_an_open_group(
    tmp_path, name
):
    """A change of another member has taken over what the other program has written."""
    row, path = WRITTEN_AGAIN[name], tmp_path / "group"
    of_each_kind(path)
    with dataset.open_group(path, "r+", sync=False) as group:
        for value in range(7, 10):
            with group.change():
                group["other"].append([value])
            rewritten(path / name, value, "bloscpack")
            group["other"].append([value])
            add(group[row], value)
            assert value == group[name].attrs["q"]
    rows = dataset.open(path)[row]
    rows = rows[:] if row.endswith("a") else rows["y"][:]
    assert [0, 1, 7, 8, 9] == rows.tolist()
    assert dataset.verify(path).ok


@pytest.mark.parametrize("attributes", [None, 5, ["q"]])
def test_a_member_whose_document_is_no_node_leaves_the_others(tmp_path, attributes):
    """Whoever has written it, and also if the document of the group has it."""
    path = tmp_path / "group"
    of_each_kind(path)
    with dataset.open_group(path, "r+", sync=False) as group, group.change():
        pass
    for name, kind in ("a", "array"), ("in", "group"):
        document = {"zarr_format": 3, "node_type": kind, "attributes": attributes}
        (path / name / "zarr.json").write_text(json.dumps(document))
    for length in range(2, 5):
        assert length == len(dataset.open(path)["other"])
        with dataset.open_group(path, "r+", sync=False) as group:
            group["other"].append([length])
    content = (path / "zarr.json").read_bytes()
    document = json.loads(content)
    document["consolidated_metadata"]["metadata"]["t"] = attributes
    identity = find_identity(content, json.loads(content))
    key = "consolidated_metadata"
    content = identified(document, identity, encode_json, key=key)
    (path / "zarr.json").write_bytes(content)
    with dataset.open_group(path, "r+", sync=False) as group:
        group["other"].append([5])
    assert 6 == len(dataset.open(path)["other"])
    with pytest.raises((FormatError, KeyError)):
        dataset.open(path)["t"]


def test_changes_of_others_read_a_member_that_was_written_again_once(
    tmp_path, monkeypatch
):
    path, read, names = tmp_path / "group", FolderStore.read, []
    of_each_kind(path)

    def counted(store, name, *args, **options):
        names.append(name)
        return read(store, name, *args, **options)

    monkeypatch.setattr(FolderStore, "read", counted)
    with dataset.open_group(path, "r+", sync=False) as group:
        with group.change():
            pass
        for value in 1, 2:
            rewritten(path / "a", value, "bloscpack")
            names.clear()
            for row in range(3):
                group["other"].append([row])
            assert 1 == names.count("a/zarr.json")
            document = json.loads((path / "zarr.json").read_bytes())
            copy = document["consolidated_metadata"]["metadata"]["a"]
            assert value == copy["attributes"]["q"]


@pytest.mark.parametrize("is_rewritten", [False, True])
def test_removed_members_are_gone_at_once(tmp_path, is_rewritten):
    """For the block that removes them, and beside a change that was interrupted."""

    def change(group):
        del group["a"], group["in/a"]
        assert "a" not in group
        assert "in/a" not in group
        assert ["in", "other", "t"] == sorted(group)
        group["other"].append([2])

    for count in range(6):
        path = tmp_path / str(count)
        committing(path)
        for name in ("a", "in/a") if is_rewritten else ():
            rewritten(path / name, 1)
        stop_change(path, count, change)
        group = dataset.open(path)
        assert ("a" in group) == ("in/a" in group) == (2 == len(group["other"]))
        for name in () if "a" in group else ("a", "in/a"):
            for mode in "r", "r+":
                with pytest.raises(FileNotFoundError):
                    dataset.open(path / name, mode)


@pytest.mark.parametrize("name", ["a", "in/a"])
def test_a_change_that_was_interrupted_and_written_again_is_not_made(tmp_path, name):
    """Another program sees nothing of the change before its commit."""
    for count in range(5):
        path = tmp_path / str(count)
        committing(path)
        rewritten(path / name, 1)
        group = dataset.open_group(path, "r+", sync=False)
        with group, pytest.MonkeyPatch.context() as context:
            fail_renames(context, count)
            with suppress(OSError), group.change():
                group[name].resize(1)
                group["other"].append([2])
        if 2 == len(dataset.open(path)["other"]):
            rewritten(path / name, 2)
            assert [0, 1] == dataset.open(path)[name][:].tolist()


@pytest.mark.parametrize("name", ["a", "in/a"])
@pytest.mark.parametrize("layout", ["zarr", "superchunk"])
def test_refresh_finds_a_member_that_was_replaced_by_its_path(tmp_path, name, layout):
    path = tmp_path / "group"
    committing(path)
    with dataset.open_group(path, "r+", sync=False) as group:
        old = group[name]
        assert 0 == old[0]
        dataset.create_array(path / name, [7, 8], layout=layout, mode="w").close()
        group.refresh()
        assert old.closed
        group[name].append([9])
        assert [7, 8, 9] == group[name][:].tolist()
    assert [7, 8, 9] == dataset.open(path)[name][:].tolist()


def test_what_is_open_has_a_commit_behind_which_an_interrupt_came(tmp_path):
    rename, is_done = Disk.rename, False
    for count in itertools.count():
        path, left = tmp_path / str(count), [count]

        def interrupted(disk, old, new, left=left):
            rename(disk, old, new)
            left[0] -= 1
            if left[0] == -1:
                raise KeyboardInterrupt

        committing(path)
        with dataset.open_group(path, "r+", sync=False) as group:
            a, inner = group["a"], group["in"]
            assert {} == group.attrs == inner.attrs
            with pytest.MonkeyPatch.context() as context:
                context.setattr(Disk, "rename", interrupted)
                with suppress(KeyboardInterrupt), group.change():
                    a.append([2])
                    inner["a"].append([2])
                    inner.attrs["n"] = group.attrs["n"] = 1
            now = dataset.open(path)
            is_done = bool(now.attrs)
            assert group.attrs == now.attrs
            assert inner.attrs == now["in"].attrs
            assert 2 + is_done == len(a) == len(inner["a"]) == len(now["in/a"])
        if left[0] >= 0:
            break
    assert is_done


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_the_next_turn_takes_over_a_commit_behind_which_two_errors_came(
    tmp_path, error
):
    path, rename, renew = tmp_path / "group", Disk.rename, Node._renew
    committing(path)
    with dataset.open_group(path, "r+", sync=False) as group:
        a, inner, left = group["a"], group["in/a"], [error]
        with pytest.MonkeyPatch.context() as context:

            def interrupted(disk, old, new):
                rename(disk, old, new)
                raise KeyboardInterrupt

            def failing(node, changed):
                if node is inner and left:
                    raise left.pop()
                renew(node, changed)

            with suppress(KeyboardInterrupt), group.change():
                a.append([2])
                inner.append([2])
                context.setattr(Disk, "rename", interrupted)
                context.setattr(Node, "_renew", failing)
        inner.append([3])
        assert (
            [0, 1, 2, 3] == inner[:].tolist() == dataset.open(path)["in/a"][:].tolist()
        )
    assert dataset.verify(path).ok


def test_a_group_in_the_place_of_a_member_that_was_written_again(tmp_path):
    """Its members commit themselves: the outer group does not have them."""
    path, other = tmp_path / "group", tmp_path / "other"
    committing(path)
    committing(other)
    with dataset.open_group(other, "r+", sync=False) as group:
        group["new"] = [5]
    shutil.rmtree(path / "in")
    shutil.copytree(other, path / "in")
    document = json.loads((path / "in" / "zarr.json").read_bytes())
    document["attributes"]["q"] = 1
    del document["consolidated_metadata"]["bloscpack-id"]
    (path / "in" / "zarr.json").write_text(json.dumps(document))
    for value in 6, 7:
        with dataset.open(path / "in" / "new", "r+", sync=False) as array:
            array.append([value])
        with dataset.open_group(path, "r+", sync=False) as group:
            group["in/new"].append([value + 10])
    assert [5, 6, 16, 7, 17] == dataset.open(path)["in/new"][:].tolist()
    assert [5, 6, 16, 7, 17] == dataset.open(path / "in" / "new")[:].tolist()


def with_inner_group(path):
    """Create a group with one in it that commits its members; return its path."""
    with dataset.create_group(path) as group:
        group.create_array("in/a", [0, 1], chunks=1, shards=1)
        with group["in"].change():
            pass
    return path + "/in"


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize("store", ["folder", "memory"])
def test_a_first_change_completes_that_of_an_inner_group(tmp_path, store, is_open):
    for count in range(9):
        path = str(tmp_path / str(count))
        path = "memory:/" + path if store == "memory" else path
        inner = with_inner_group(path)
        with dataset.open_group(path, "r+") as group:
            kept = group["in"] if is_open else None
            other = dataset.open_group(inner, "r+")
            with pytest.MonkeyPatch.context() as context, suppress(OSError):
                fail_renames(context, count)
                fail_puts(context, count)
                with other.change():
                    other["a"][:] = [5, 6]
            expected = dataset.open(inner + "/a")[:].tolist()
            assert expected in ([0, 1], [5, 6])
            with group.change():
                pass
            assert is_open == (kept is not None)
            assert expected == group["in/a"][:].tolist()
        assert expected == dataset.open(inner + "/a")[:].tolist()
        assert dataset.verify(path).ok


@pytest.mark.parametrize("store", ["folder", "memory"])
def test_a_first_change_beside_one_of_an_inner_group(tmp_path, store):
    """The other change is made, or raises an error."""
    path = str(tmp_path / "g")
    path = "memory:/" + path if store == "memory" else path
    inner, rows = with_inner_group(path), [0, 1]

    def begin():
        group = dataset.open_group(path, "r+", timeout=0)
        with suppress(StorageError), group, group.change():
            pass

    with suppress(StorageError), dataset.open_group(inner, "r+") as other:
        with other.change():
            other["a"].append([2])
            first = threading.Thread(target=begin)
            first.start()
            first.join()
        rows.append(2)
    assert rows == dataset.open(path)["in/a"][:].tolist()
    assert rows == dataset.open(inner)["a"][:].tolist()
    assert dataset.verify(path).ok
