"""Errors in a commit: an open dataset completes it, and goes on."""

from __future__ import annotations

import gc
import itertools
import shutil
from contextlib import contextmanager, suppress

import numpy as np
import pytest

from bloscpack import dataset
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


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize(("kind", "layout"), KINDS)
@pytest.mark.parametrize("change", CHANGES)
def test_the_object_has_the_state_of_the_files(
    change, kind, layout, behind, error, tmp_path
):
    if kind == "array" and change == "add":
        return
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
        assert dataset.verify(path).ok
        if left[0] >= 0:
            break
    assert count > 0 or layout != "zarr"


@pytest.mark.parametrize(("kind", "layout"), KINDS)
def test_the_next_change_completes_what_could_not_be_completed_at_once(
    kind, layout, tmp_path, monkeypatch
):
    nfailed = 0
    for count in itertools.count():
        path = tmp_path / str(count)
        with create(path, kind, layout) as node:
            with monkeypatch.context() as patch, interrupted(count) as left:
                patch.setattr(Node, "_renew", lambda node, changed: 1 / 0)
                try:
                    node.append(rows(kind, [7]))
                except ZeroDivisionError:
                    nfailed += 1
                except KeyboardInterrupt:  # before the commit
                    pass
            assert len(node) == 6 or left[0] >= 0
            node.append(rows(kind, [8]))
            assert state(node) == state(dataset.open(path))
            values = node[:].tolist() if kind == "array" else node["x"][:].tolist()
            assert values in ([*range(6), 8], [*range(6), 7, 8])
        if left[0] >= 0:
            break
    assert nfailed


@pytest.mark.parametrize("layout", ["zarr", "superchunk", "bcolz"])
def test_a_column_whose_table_was_dropped(layout, tmp_path):
    """Its length is not known: it can't be changed any more, and loses no rows."""
    table = create(tmp_path / "t", "table", layout)
    column = table["x"]
    with interrupted(1), suppress(KeyboardInterrupt):
        table.append(rows("table", [7]))
    before = table[:].tolist()
    table = None
    gc.collect()
    with interrupted(0), suppress(KeyboardInterrupt):
        column[0] = 5
    with suppress(StorageError):
        column[1] = 6
    del column
    now = dataset.open(tmp_path / "t")[:].tolist()
    assert [row[1:] for row in before] == [row[1:] for row in now]
    with dataset.open(tmp_path / "t", "r+") as table:
        table.append(rows("table", [8]))
    assert len(before) + 1 == len(dataset.open(tmp_path / "t"))


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
                with suppress(Joined):
                    a.attrs["n"] = 1
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
