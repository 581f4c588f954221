"""After a crash at any call of a store, a dataset is exactly old or new.

A store that stops at its call number n runs an operation on a copy of a dataset, for
each n: a local folder, an object store, and memory. Then a reader must see the old or
the new content, and so must a writer, whose next change must succeed.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from functools import partial

import numpy as np
import pytest
from dataset.documents import assert_encoded_whole
from dataset.layouts import SHARDED
from format.agreement import read_here, read_there, without_reasons

from bloscpack import dataset
from bloscpack._storage.folder_store import StaleDataset
from bloscpack.dataset.parallel import target_of
from bloscpack.exceptions import DamageError, NotReadable, UsageError

from .crash_places import PLACES, Counter, Stop, StoppingDisk, crash_place
from .inside import replace_disk
from .power_loss import check_power_loss


def run(operation, path, count, monkeypatch):
    """Run an operation until call `count`; return the calls, and whether it ended."""
    counter = Counter(count)
    with monkeypatch.context() as context:
        replace_disk(context, StoppingDisk(counter))
        try:
            operation(path)
        except Stop:
            return counter.calls, False
    return counter.calls, True


def content(path):
    """Return all that a user sees of a dataset."""
    return content_of(dataset.open(path))


def content_of(found):
    if isinstance(found, dataset.Group):
        members = {name: content_of(found[name]) for name in found}
        return members, members, dict(found.attrs)
    if isinstance(found, dataset.Table):
        assert 1 == len({len(column) for column in found.columns.values()})
        items = {name: column[:].tolist() for name, column in found.columns.items()}
        attributes = {
            name: {"dtype": str(column.dtype), **column.attrs}
            for name, column in found.columns.items()
        }
        return list(items), items, dict(found.attrs), attributes
    return found[:].tolist(), dict(found.attrs)


def is_mixed(found, old, new):
    """Return whether each value is the old or the new one.

    What is replaced may be missing: a store of objects can't exchange two of them.
    """
    if found in (old, new):
        return True
    if isinstance(found, dict):
        names = found.keys() | {name for name in old if old[name] == new.get(name)}
        states = [(found.get(name), old.get(name), new.get(name)) for name in names]
        return all(is_mixed(*state) for state in states)
    if isinstance(found, (list, tuple)) and len(found) == len(old) == len(new):
        return all(map(is_mixed, found, old, new))
    return False


def array(path):
    data = np.arange(50, dtype="i4")
    dataset.create_array(
        path, data, layout="bcolz", chunks=16, attrs={"a": 1}, fill_value=3
    ).close()


def zarr_array(path):
    data = np.arange(50, dtype="i4")
    arguments = {"chunks": 8, "shards": 16, "attrs": {"a": 1}, "fill_value": 3}
    dataset.create_array(path, data, **arguments).close()


def grid_array(path):
    """Write an array of four shards, which is cut in both axes."""
    data = np.arange(60, dtype="i4").reshape(6, 10)
    arguments = {"chunks": (2, 3), "shards": (4, 6), "attrs": {"a": 1}}
    dataset.create_array(path, data, fill_value=3, **arguments).close()


def sparse_array(path):
    """Write an array of four shards, of which two are missing."""
    arguments = {"chunks": 4, "shards": 8, "attrs": {"a": 1}}
    with dataset.create_array(path, shape=32, dtype="i4", **arguments) as array:
        array[6:20] = np.arange(1, 15)


def superchunk(path):
    data = np.arange(50, dtype="i4")
    arguments = {"chunks": 8, "shards": 16, "attrs": {"a": 1}, "fill_value": 3}
    dataset.create_array(path, data, layout="superchunk", **arguments).close()


def superchunk_leaves(path):
    """Write an array whose items are in two folders."""
    data = np.zeros(50, LEAVES)
    data["x"] = data["p"]["u"] = np.arange(50)
    arguments = {"chunks": 8, "shards": 16, "attrs": {"a": 1}}
    dataset.create_array(path, data, layout="superchunk", **arguments).close()


def table(path):
    data = {"x": np.arange(50), "y": np.arange(100.0).reshape(50, 2)}
    dataset.create_table(path, data, layout="bcolz", chunks=16).close()


def zarr_table(path):
    data = {"x": np.arange(50), "y": np.arange(100.0).reshape(50, 2)}
    dataset.create_table(path, data, chunks=8, shards=16, attrs={"a": 1}).close()


def superchunk_table(path):
    data = {"x": np.arange(50), "y": np.zeros(50, LEAVES)}
    options = {"layout": "superchunk", "chunks": 8, "shards": 16, "attrs": {"a": 1}}
    dataset.create_table(path, data, **options).close()


def group(path):
    with dataset.create_group(path, attrs={"a": 1}) as opened:
        opened.create_array("a", np.arange(20), chunks=8)
        opened.create_table("in/t", {"x": np.arange(5)}, layout="bcolz")


def zarr_group(path):
    with dataset.create_group(path, attrs={"a": 1}) as opened:
        opened.create_array("a", np.arange(20), chunks=8)
        opened.create_table("in/t", {"x": np.arange(5)})


def inner_united(path):
    """Write a group, and let the document of one in it commit its members."""
    zarr_group(path)
    with dataset.open_group(path, "r+") as opened, opened["in"].change():
        pass


def united(path):
    """Write a group whose document commits its members, of which each has two files."""
    with dataset.create_group(path, attrs={"a": 1}) as opened:
        opened.create_array("a", np.arange(16), chunks=8, shards=8).close()
        opened.create_array("in/b", np.arange(16), chunks=8, shards=8).close()
        rows = {"x": np.arange(16), "y": np.zeros(16)}
        opened.create_table("t", rows, chunks=8, shards=8).close()
        with opened.change():
            pass


def united_other(path):
    """Write a group whose document does not commit all its members."""
    with dataset.create_group(path, attrs={"a": 1}) as opened:
        opened.create_array("a", np.arange(16), layout="superchunk", chunks=8).close()
        opened.create_array("in/b", np.arange(16), chunks=8, shards=8).close()
        with opened.change():
            pass


def begin(path, mode, create):
    """Begin a dataset that several processes write."""
    target = target_of(path, mode, True)
    target.begin(create)
    return target


def tasks(path, layout="zarr", mode="x"):
    """Begin an array that several processes write; return what they do."""
    options = {"shape": (0,), "dtype": "i4", "chunks": 8, "shards": 16}
    target = begin(
        path,
        mode,
        lambda path: dataset.create_array(path, layout=layout, **options),
    )
    rows = np.arange(100, 150, dtype="i4")
    yield from (
        partial(target.put, start, {"": rows[start : start + 16]})
        for start in range(0, 50, 16)
    )
    yield partial(target.finish, 50)


def parallel(path, mode="x"):
    for task in tasks(path, mode=mode):
        task()


def parallel_superchunk(path):
    for task in tasks(path, "superchunk"):
        task()


def parallel_table(path):
    options = {"dtype": [("x", "i4"), ("y", "f8", 2)], "chunks": 8, "shards": 16}
    target = begin(path, "x", lambda path: dataset.create_table(path, **options))
    for start, count in ((16, 4), (0, 16)):
        target.put(start, {"x": np.ones(count, "i4"), "y": np.ones((count, 2))})
    target.finish(20)


def content_for_others(path):
    """Return what readers see that do not know the list of pending files."""
    copy = path.parent / "copy"
    shutil.copytree(path, copy, ignore=shutil.ignore_patterns(".bloscpack"))
    try:
        return content(copy)
    finally:
        shutil.rmtree(copy)


def change(function, **options):
    """Return an operation that opens a dataset and calls `function` with it."""

    def operation(path):
        opened = dataset.open(path, "r+", **options)
        try:
            function(opened)
        except Stop:
            # The process is dead: its locks end, and nothing is removed.
            for buffer in opened._writer.buffers.values():
                buffer.clear()
            lock = getattr(opened._writer.rule, "_lock", None)
            if lock is not None:
                lock.close()
            raise
        opened.close()

    return operation


def assign(key, value):
    def function(opened):
        opened[key] = value

    return function


ARRAY_CHANGES = {
    "append": lambda a: a.append(np.arange(40)),
    "append one": lambda a: a.append([7]),
    "append blocks": lambda a: a.append(iter([[1], [2, 3]])),
    "assign one chunk": assign(slice(3, 7), 7),
    "assign all": assign(slice(None), 7),
    "assign some": assign(slice(1, None, 20), 7),
    "grow": lambda a: a.resize(90),
    "shrink": lambda a: a.resize(20),
    "empty": lambda a: a.resize(0),
    "attributes": lambda a: a.attrs.update(b=2),
}
# The same for an array with two axes.
GRID_CHANGES = {
    "append": lambda a: a.append(np.arange(30).reshape(3, 10)),
    "append along the second axis": lambda a: a.append(np.ones((6, 5), int), axis=1),
    "assign one chunk": assign((3, slice(4, 6)), 7),
    "assign some": assign(([0, 5, 3], [9, 1, 4]), [6, 7, 8]),
    "grow": lambda a: a.resize((8, 13)),
    "shrink and grow": lambda a: a.resize((3, 13)),
    "grow and shrink": lambda a: a.resize((7, 5)),
    "empty": lambda a: a.resize((6, 0)),
    "attributes": lambda a: a.attrs.update(b=2),
}
LEAVES = [("x", "<i4"), ("p", [("u", ">f4")])]
# The same for items with fields.
LEAVES_CHANGES = {
    **ARRAY_CHANGES,
    "append": lambda a: a.append(np.ones(40, LEAVES)),
    "append one": lambda a: a.append([(7, (7,))]),
    "append blocks": lambda a: a.append(np.ones(n, LEAVES) for n in (1, 2)),
}
# Changes of several files: readers that do not know the list of pending files may see a
# part of them.
OF_SEVERAL_FILES = ("assign all", "assign some", "assign", "assign to a column")
ROWS = {"x": np.arange(40), "y": np.zeros((40, 2))}
TABLE_CHANGES = {
    "append": lambda t: t.append(ROWS),
    "grow": lambda t: t.resize(70),
    "shrink": lambda t: t.resize(10),
    "assign": assign(slice(5, 45), ROWS),
    "assign to a column": lambda t: t["x"].__setitem__(slice(9, 40), 5),
    "add": lambda t: t.add_column("z", np.arange(50)),
    "remove": lambda t: t.remove_column("x"),
    "rename": lambda t: t.rename({"x": "z"}),
    "attributes": lambda t: t.attrs.update(b=2),
}
# The same for a table whose column "y" has fields.
ROWS_WITH_LEAVES = {"x": np.arange(40), "y": np.ones(40, LEAVES)}
LEAVES_TABLE_CHANGES = {
    **TABLE_CHANGES,
    "append": lambda t: t.append(ROWS_WITH_LEAVES),
    "assign": assign(slice(5, 45), ROWS_WITH_LEAVES),
    "attributes of a column": lambda t: t["y"].attrs.update(b=2),
    "remove the fields": lambda t: t.remove_column("y"),
}
GROUP_CHANGES = {
    "create": lambda g: g.create_array("new", np.arange(20), chunks=8),
    "create a table": lambda g: g.create_table("in/new", ROWS),
    "create a group": lambda g: g.create_group("new", attrs={"b": 2}),
    "replace": lambda g: g.create_array("a", [5], mode="w"),
    "remove": lambda g: g.__delitem__("a"),
    "remove a group": lambda g: g.__delitem__("in"),
    "attributes": lambda g: g.attrs.update(b=2),
}


def change_all(opened):
    with opened.change():
        opened["a"].append(np.arange(9))
        opened["in/b"][4:12] = 7
        opened["t"].append({"x": [5], "y": [6]})
        opened.attrs["b"] = 2


def create_and_append(opened):
    with opened.change():
        opened.create_array("new", np.arange(20), chunks=8, shards=8)
        opened.create_table("in/new", {"x": [1, 2]})
        opened["a"].append([5])
        del opened["t"]


def unite(opened):
    """Let the document commit the members, and change them."""
    with opened.change():
        opened["a"].append([5])
        opened["in/t"].append({"x": [5]})


def change_twice(opened):
    """Change the same items several times, and read them."""
    with opened.change():
        opened["a"].append(np.arange(9))
        opened["a"][20:] = 7
        opened["a"].resize(12)
        opened["a"].append(opened["a"][:5])
        opened["t"][3] = (5, 6)
        opened["t"].append({"x": [5], "y": [6]})
        new = opened.create_array("in/new", np.arange(20), chunks=8, shards=8)
        new[3:12] = 1
        opened["in/b"] = opened["in/b"][:10] + 1


def exchange_kinds(opened):
    """Replace an array by a table, a table by an array, and an array by a group."""
    with opened.change():
        opened["a"] = {"c": np.arange(5), "0": np.arange(5)}
        opened["t"] = np.ones((3, 2))
        del opened["in/b"]
        opened.create_group("in/b", attrs={"b": 2}).create_array("c", [1])


def replace_by_other(opened, name):
    """Replace a member by one that the document of the group does not commit."""
    opened.create_array(name, [7], mode="w", layout="superchunk").close()


UNITED_CHANGES = {
    "change all": change_all,
    "change twice": change_twice,
    "exchange kinds": exchange_kinds,
    "other axes": lambda g: g.__setitem__("a", np.ones((9, 2))),
    "create and append": create_and_append,
    "append": lambda g: g["a"].append(np.arange(9)),
    "assign": lambda g: g["in/b"].__setitem__(slice(4, 12), 7),
    "assign to a column": lambda g: g["t/x"].__setitem__(slice(4, 12), 7),
    **{name: each for name, each in GROUP_CHANGES.items() if name != "create a table"},
}


def conversion(items, layout):
    """Return an operation that replaces a dataset by items of a ``.npy`` file."""

    def operation(path):
        np.save(path.parent / "items.npy", items)
        try:
            dataset.convert(path.parent / "items.npy", path, to=layout, force=True)
        finally:
            (path.parent / "items.npy").unlink()

    return operation


def replacement(**options):
    """Return an operation that creates an array in place of a dataset."""
    return lambda path: dataset.create_array(path, [1, 2], mode="w", **options).close()


def after_failure(function):
    """Return a change of a table that follows a change which has failed."""

    def operation(opened):
        with pytest.raises(UsageError):
            opened[5:45] = {"x": np.arange(40), "y": ["no number"] * 40}
        function(opened)

    return operation


def append_and_flush(opened):
    """Append rows one by one, which are then written in one step."""
    for number in range(10):
        opened.append(opened[number : number + 1])
    opened.flush()


def assign_and_flush(opened):
    """Assign to parts of several shards, which are then written in one step."""
    row = opened[0]
    opened[1:45:9] = row
    opened[2] = row
    opened[-1:] = row
    opened[::4] = row
    opened.flush()


# The same for an array that was created from a shape.
SPARSE_CHANGES = {
    "assign fill values": assign(slice(None), 0),
    "assign fill values to some": assign(slice(0, 9), 0),
    "assign to another shard": assign(slice(None), np.roll([5, *[0] * 31], 27)),
    "append fill values": lambda a: a.append(np.zeros(20, "i4")),
    "append": lambda a: a.append([*[0] * 10, 7]),
    "grow": lambda a: a.resize(90),
    "shrink": lambda a: a.resize(7),
}


FIELDS = np.zeros(70, [("x", "i8"), ("y", "f8", 2)])
OPERATIONS = {
    **{name: (array, change(each)) for name, each in ARRAY_CHANGES.items()},
    **{
        "%s: %s" % (make.__name__, name): (make, change(each))
        for make, changes in (
            (zarr_array, ARRAY_CHANGES),
            (grid_array, GRID_CHANGES),
            (sparse_array, SPARSE_CHANGES),
            (superchunk, ARRAY_CHANGES),
            (superchunk_leaves, LEAVES_CHANGES),
            (table, TABLE_CHANGES),
            (zarr_table, TABLE_CHANGES),
            (superchunk_table, LEAVES_TABLE_CHANGES),
        )
        for name, each in changes.items()
    },
    **{
        "%s: %s" % (make.__name__, name): (make, change(each))
        for make in (group, zarr_group)
        for name, each in GROUP_CHANGES.items()
    },
    **{
        "united: %s" % name: (united, change(each))
        for name, each in UNITED_CHANGES.items()
    },
    **{
        "united folder: replace %s" % name: (
            united,
            change(partial(replace_by_other, name=name)),
        )
        for name in ("a", "in", "in/b", "t")
    },
    "united folder: replace one of another layout": (
        united_other,
        change(GROUP_CHANGES["replace"]),
    ),
    "zarr_group: unite": (zarr_group, change(unite)),
    "inner_united: unite": (inner_united, change(unite)),
    **{
        "%s: append to memory" % make.__name__: (
            make,
            change(append_and_flush, buffered=True),
        )
        for make in (zarr_array, zarr_table)
    },
    **{
        "%s: assign to memory" % make.__name__: (
            make,
            change(assign_and_flush, buffered=True),
        )
        for make in (zarr_array, grid_array, zarr_table)
    },
    "assign after failure": (
        zarr_table,
        change(after_failure(TABLE_CHANGES["assign"])),
    ),
    "convert an array": (array, conversion(np.arange(40), "bcolz")),
    "convert an array to zarr": (zarr_array, conversion(np.arange(40), "zarr")),
    "convert a table": (table, conversion(FIELDS, "bcolz")),
    "convert a table to zarr": (zarr_table, conversion(FIELDS, "zarr")),
    "replace an array": (array, replacement(layout="bcolz")),
    "replace a table": (table, replacement(layout="bcolz")),
    "zarr: replace": (zarr_array, replacement()),
    "superchunk: replace": (superchunk, replacement(layout="superchunk")),
    "replace in parallel": (zarr_array, lambda path: parallel(path, "w")),
    "group: replace all": (
        group,
        lambda path: dataset.create_group(path, mode="w").close(),
    ),
}


# What can be written in each place: only Zarr in a store of objects, and nothing moves
# in one step there.
OF_ZARR = (
    *(zarr_array, grid_array, sparse_array, zarr_table),
    *(zarr_group, inner_united, united),
)
# What has the kinds of changes of `superchunk`, `zarr_table` and `zarr_group`.
SIMILAR = (superchunk_leaves, superchunk_table, group)
CASES = [
    pytest.param(
        *(place, name),
        id="%s-%s" % (place, name),
        marks=[pytest.mark.slow] if make in SIMILAR else [],
    )
    for place in PLACES
    for name, (make, _) in OPERATIONS.items()
    if place == "folder"
    or (make in OF_ZARR and not any(word in name for word in ("convert", "folder")))
]


@pytest.mark.full
@pytest.mark.parametrize(("place", "name"), CASES)
def test_every_call(place, name, tmp_path):
    make, operation = OPERATIONS[name]
    with crash_place(place, tmp_path) as place:
        make(place.name)
        old, begun = content(place.name), place.files()
        operation(place.name)
        new = content(place.name)
        assert old != new
        states, files = [], None
        for count in range(500):
            place.put_back(begun)
            _, done = place.run(operation, count)
            try:
                found = content(place.name)
            except (FileNotFoundError, NotReadable):  # the old one is removed first
                assert not place.replaces_at_once
                make(place.name)
                assert old == content(place.name)
                continue
            if done:
                break
            checked, files = files, place.files()
            if files != checked:  # the last call was not a sync, for example
                check_after_crash(place, found)
                states.append(found)
        assert done
        assert found == new
        assert old in states
        mixed = [state for state in states if state not in (old, new)]
        if place.replaces_at_once or "replace" not in name:
            assert [] == mixed
        assert all(is_mixed(state, old, new) for state in mixed)


def findings(name):
    """Return what `verify` finds, but for what a layout lacks and files left over.

    A crash between a commit and its last call leaves shards that nothing uses.
    """
    found = dataset.verify(name).findings
    return [each for each in found if each.kind not in ("no-checksum", "unused")]


def check_after_crash(place, found):
    """Check that a writer sees what readers see, tidies up and goes on.

    In a local folder another reader, written from docs/format.rst alone, sees the same.
    """
    names = {os.path.basename(name) for name in place.files()}
    is_bcolz = bool(names & {"__attrs__", "__rootdirs__"})
    if place.replaces_at_once and not is_bcolz:
        here, there = read_here(place.name), read_there(place.name)
        assert without_reasons(here) == without_reasons(there)
        assert_encoded_whole(place.name)
    if place.replaces_at_once and isinstance(found[0], dict):
        check_by_path(place.name, found[0])
    with dataset.open(place.name, "r+", sync=False) as opened:
        assert found == content(place.name)
        if place.replaces_at_once and isinstance(opened, dataset.Array):
            notes = dataset.verify(place.name).findings  # other programs would find it
            assert [] == [each for each in notes if each.kind == "unused"]
        if isinstance(opened, dataset.Array):
            expected = np.array(found[0], opened.dtype).reshape(opened.shape)
            for axis in reversed(range(opened.ndim)):
                shape = list(opened.shape)
                shape[axis] = 20 // opened.ndim
                more = np.ones(shape, opened.dtype)
                opened.append(more, axis=axis)
                expected = np.concatenate([expected, more], axis)
            assert expected.tolist() == opened[:].tolist()
        elif isinstance(opened, dataset.Table):
            opened.append(opened[:20])
        else:
            opened.create_group("more")
            opened.get("in")  # removes what is left in it
            opened.get("in/b")  # and in an array that was moved
    if place.leftovers():
        # A store of objects has no lock: the next writer of a member tidies it up.
        assert isinstance(opened, dataset.Group)
        assert not place.replaces_at_once
        with dataset.open(place.name, "r+") as opened:
            for name in place.leftovers():
                opened.create_array(name, [1], mode="w")
                assert [1] == opened[name][:].tolist()
    assert [] == place.leftovers()
    # Nothing was appended here to the members of a group, and it may have released one.
    is_group = isinstance(opened, dataset.Group)
    allowed = {"more-rows", "no-copy"} if is_group else set()
    assert allowed >= {each.kind for each in findings(place.name)}


def check_by_path(path, members):
    """Check that each member is found alone, and others are missing, or incomplete."""
    for name in {"a", "in", "t", "new", *members}:
        others = () if name in members else (FileNotFoundError, DamageError)
        with suppress(*others):
            found = content(path / name)
            assert members.get(name, found) == found


# Changes of which a crash leaves files that have not got their names, and other ones.
RECOVERED = (
    *("zarr_array: assign some", "zarr_array: append", "grid_array: shrink and grow"),
    *("zarr_table: assign", "zarr_table: add", "zarr_table: remove"),
    *("zarr_table: rename", "superchunk: assign some", "superchunk_table: rename"),
)


@pytest.mark.full
@pytest.mark.parametrize(
    ("place", "name"), [case for case in CASES if case.values[1] in RECOVERED]
)
def test_every_call_of_a_recovery(place, name, tmp_path):
    """A writer that completes a change dies, too, at any call: the next one goes on."""
    make, operation = OPERATIONS[name]
    recover = change(lambda opened: opened.attrs.update(recovered=1))
    with crash_place(place, tmp_path) as place:
        make(place.name)
        begun, checked, nstates = place.files(), None, 0
        for count in range(500):
            place.put_back(begun)
            _, done = place.run(operation, count)
            files = place.files()
            if files == checked:  # the last call was a sync, for example
                continue
            checked = files
            found = content(place.name)
            for number in range(500):
                place.put_back(files)
                _, recovered = place.run(recover, number)
                nstates += 1
                seen = content(place.name)
                # The change of the attributes may have been made.
                seen[2 if "table" in name else 1].pop("recovered", None)
                assert found == seen
                if recovered:
                    break
            assert recovered
            assert [] == place.leftovers()
            assert {"more-rows"} >= {each.kind for each in findings(place.name)}
            if done:
                break
        assert done
        assert nstates > 10


@pytest.mark.parametrize(
    ("make", "name"),
    [
        *((zarr_array, name) for name in ARRAY_CHANGES),
        *((zarr_table, name) for name in TABLE_CHANGES),
    ],
)
def test_readers_that_do_not_know_pending_files(make, name, tmp_path, monkeypatch):
    """Other readers of Zarr see the old or the new content after a crash, too."""
    make(tmp_path / "old")
    old = content(tmp_path / "old")
    changes, states = ARRAY_CHANGES if make is zarr_array else TABLE_CHANGES, []
    for count in range(500):
        path = tmp_path / "work" / "data"
        path.parent.mkdir()
        shutil.copytree(tmp_path / "old", path)
        _, done = run(change(changes[name]), path, count, monkeypatch)
        states.append(content_for_others(path))
        shutil.rmtree(path.parent)
        if done:
            break
    assert done
    new = states[-1]
    mixed = [state for state in states if state not in (old, new)]
    assert bool(mixed) == (name in OF_SEVERAL_FILES)
    assert all(is_mixed(state, old, new) for state in mixed)


@pytest.mark.parametrize("name", ["a", "b"])
def test_readers_of_a_member_that_gets_another_layout(name, tmp_path, monkeypatch):
    """They see the old items until it is removed, and then an error that says so."""
    source, results = tmp_path / "source", []
    united_other(source)
    with dataset.open_group(source, "r+") as group:
        group.create_array("b", np.arange(16), chunks=8, shards=8).close()
    layout = {"a": "zarr", "b": "superchunk"}[name]
    replace = change(
        lambda g: g.create_array(name, [7], mode="w", layout=layout).close()
    )
    for count in range(500):
        path = tmp_path / "work" / "data"
        shutil.copytree(source, path)
        readers = [dataset.open(path / name), dataset.open(path)[name]]
        _, done = run(replace, path, count, monkeypatch)
        for reader in readers:
            try:
                assert [*range(16)] == reader[:].tolist()
                results.append("old")
            except StaleDataset:
                results.append("replaced")
        shutil.rmtree(path.parent)
        if done:
            break
    assert done
    assert {"old", "replaced"} == set(results)


MAKERS = (
    *(array, zarr_array, grid_array, superchunk, superchunk_leaves),
    *(table, zarr_table, superchunk_table, group, zarr_group),
    *(parallel, parallel_superchunk, parallel_table),
)
CREATED = [
    pytest.param(place, make, id="%s-%s" % (place, make.__name__))
    for place in PLACES
    for make in MAKERS
    if place == "folder" or make in (*OF_ZARR, parallel, parallel_table)
]


@pytest.mark.slow
@pytest.mark.parametrize(("place", "make"), CREATED)
def test_creating(place, make, tmp_path):
    with crash_place(place, tmp_path) as place:
        states = []
        for count in range(500):
            _, done = place.run(make, count)
            try:
                states.append(content(place.name))
                if done:
                    break
                place.remove()
            except (FileNotFoundError, NotReadable):
                assert not done
            make(place.name)
            assert [] == place.leftovers() == place.siblings()
            assert [] == findings(place.name)
            place.put_back({})
        assert done
        if make not in (group, zarr_group):  # their members are created one by one
            assert all(states[-1] == state for state in states)


@pytest.mark.full
@pytest.mark.parametrize("layout", SHARDED)
def test_repeating_tasks(layout, tmp_path, monkeypatch):
    """A task is stopped at any call. It and all others are repeated, and succeed."""

    def do(path):
        for task in made:
            task()

    for count in range(500):
        path = tmp_path / str(count) / "data"
        made = list(tasks(path, layout))
        _, done = run(do, path, count, monkeypatch)
        before = path.exists()
        do(path)
        assert list(range(100, 150)) == dataset.open(path)[:].tolist()
        if done:
            break
    assert done
    assert before
    assert ["data"] == [each.name for each in path.parent.iterdir()]


@pytest.mark.parametrize(("make", "operation"), OPERATIONS.values(), ids=OPERATIONS)
def test_the_order_on_the_disk(make, operation, tmp_path, monkeypatch):
    """Each content is on the disk before it gets its name; then so is the name."""
    path = tmp_path / "data"
    make(path)
    begun = set(map(str, path.rglob("*")))
    calls, done = run(operation, path, -1, monkeypatch)
    assert done
    synced = set()
    for name, *arguments in calls:
        if name == "create":
            synced.discard(arguments[0])
        elif name == "sync":
            synced.add(arguments[0])
        elif name == "rename" and not is_copy(path, arguments):
            is_hidden = "bloscpack-" in "".join(arguments)
            assert is_hidden or arguments[0] in {*synced, *begun}
    last = max(
        number
        for number, (name, *arguments) in enumerate(calls)
        if name in ("rename", "exchange")
        and not is_copy(path, arguments)
        # The folder in which processes have written is only removed.
        and "-writing-" not in arguments[0].rpartition("/")[2]
    )
    assert any(call[0] == "sync_folder" for call in calls[last:])


def is_copy(path, arguments):
    """Return whether a member gets its document, which is in that of the dataset."""
    name = os.path.relpath(arguments[1], path)
    text = (path / "zarr.json").read_text() if name.endswith("/zarr.json") else ""
    return '"must_understand": false,\n    "metadata"' in text


# Changes of several files, and some of the others; all are in the slow test.
LOSSES = (
    "assign some",
    "assign after failure",
    "zarr_array: assign all",
    "zarr_array: shrink",
    "grid_array: shrink and grow",
    "superchunk: assign some",
    "zarr_table: remove",
    "group: replace",
    "zarr: replace",
    "convert a table to zarr",
)


def lose_power(make, operation, root, monkeypatch, subsets):
    """Check each state after a power loss; return how many there are."""
    path = root / "data"
    root.mkdir()
    make(path)
    copy = root.with_name("copy")
    shutil.copytree(root, copy)
    old = content(path)
    operation(copy / "data")
    new = content(copy / "data")
    shutil.rmtree(copy)

    def run_on(disk):
        with monkeypatch.context() as context:
            replace_disk(context, disk)
            operation(path)

    def check(place, done):
        found = content(place / "data")
        assert found in ([new] if done else [old, new])
        with dataset.open(place / "data", "r+", sync=False):
            assert found == content(place / "data")
        shutil.rmtree(place)

    return check_power_loss(run_on, root, check, subsets)


@pytest.mark.parametrize("name", LOSSES)
def test_a_power_loss(name, tmp_path, monkeypatch):
    assert lose_power(*OPERATIONS[name], tmp_path / "root", monkeypatch, 2) > 5


@pytest.mark.slow
@pytest.mark.parametrize(("make", "operation"), OPERATIONS.values(), ids=OPERATIONS)
def test_many_power_losses(make, operation, tmp_path, monkeypatch):
    assert lose_power(make, operation, tmp_path / "root", monkeypatch, 8) > 2
