"""After a crash at any call of the system, a dataset is exactly old or new.

A disk that stops at its call number n runs an operation on a copy of a dataset, for
each n. Then a reader must see the old or the new content, and so must a writer, whose
next change must succeed.
"""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import bloscpack.dataset.change
import bloscpack.dataset.create
import bloscpack.dataset.layouts.bcolz
import bloscpack.dataset.layouts.zarr_array
from bloscpack import dataset
from bloscpack._storage.disk import Disk

MODULES = (
    bloscpack.dataset.change,
    bloscpack.dataset.create,
    bloscpack.dataset.layouts.bcolz,
    bloscpack.dataset.layouts.zarr_array,
)


class Stop(BaseException):
    """The process has died."""


class StoppingDisk(Disk):
    """Does `count` calls, and nothing after them."""

    def __init__(self, count):
        self.left = count
        self.calls = []

    def step(self, name, *arguments):
        if not self.left:
            raise Stop
        self.left -= 1
        self.calls.append((name, *arguments))

    def create(self, name, mode):
        self.step("create", name)
        return super().create(name, mode)

    def sync(self, fp):
        self.step("sync", fp.name)
        fp.flush()

    def sync_folder(self, path):
        self.step("sync_folder", path)

    def rename(self, old, new):
        self.step("rename", old, new)
        super().rename(old, new)

    def exchange(self, one, other):
        self.step("exchange", one, other)
        return super().exchange(one, other)

    def remove(self, name):
        self.step("remove", name)
        super().remove(name)

    def make_folder(self, name):
        self.step("make_folder", name)
        super().make_folder(name)

    def remove_folder(self, name):
        self.step("remove_folder", name)
        super().remove_folder(name)


def run(operation, path, count, monkeypatch):
    """Run an operation until call `count`; return the calls, and whether it ended."""
    disk = StoppingDisk(count)
    with monkeypatch.context() as context:
        for module in MODULES:
            context.setattr(module, "disk", disk)
        try:
            operation(path)
        except Stop:
            return disk.calls, False
    return disk.calls, True


def content(path):
    """Return all that a user sees of a dataset."""
    found = dataset.open(path)
    if isinstance(found, dataset.Table):
        assert 1 == len({len(column) for column in found.columns.values()})
        items = {name: column[:].tolist() for name, column in found.columns.items()}
        return list(items), items, dict(found.attrs)
    return found[:].tolist(), dict(found.attrs)


def array(path):
    data = np.arange(50, dtype="i4")
    dataset.create_array(
        path, data, layout="bcolz", chunks=16, attrs={"a": 1}, fill_value=3
    ).close()


def table(path):
    data = {"x": np.arange(50), "y": np.arange(100.0).reshape(50, 2)}
    dataset.create_table(path, data, layout="bcolz", chunks=16).close()


def change(function):
    """Return an operation that opens a dataset and calls `function` with it."""

    def operation(path):
        opened = dataset.open(path, "r+")
        try:
            function(opened)
        except Stop:
            # The process is dead: its locks end, and nothing is removed.
            for lock in (
                opened.columns[0]._writer._locks
                if isinstance(opened, dataset.Table)
                else opened._writer._locks
            ):
                lock.close()
            raise
        opened.close()

    return operation


def assign(key, value):
    def function(opened):
        opened[key] = value

    return function


ROWS = {"x": np.arange(40), "y": np.zeros((40, 2))}
OPERATIONS = {
    "append": (array, change(lambda a: a.append(np.arange(40)))),
    "append one": (array, change(lambda a: a.append([7]))),
    "assign one chunk": (array, change(assign(slice(3, 9), 7))),
    "assign all": (array, change(assign(slice(None), 7))),
    "assign some": (array, change(assign(slice(1, None, 20), 7))),
    "grow": (array, change(lambda a: a.resize(90))),
    "shrink": (array, change(lambda a: a.resize(20))),
    "empty": (array, change(lambda a: a.resize(0))),
    "attributes": (array, change(lambda a: a.attrs.update(b=2))),
    "table: append": (table, change(lambda t: t.append(ROWS))),
    "table: grow": (table, change(lambda t: t.resize(70))),
    "table: shrink": (table, change(lambda t: t.resize(10))),
    "table: assign": (table, change(assign(slice(5, 45), ROWS))),
    "table: add": (table, change(lambda t: t.add_column("z", np.arange(50)))),
    "table: remove": (table, change(lambda t: t.remove_column("x"))),
    "replace an array": (
        array,
        lambda path: dataset.create_array(
            path, [1, 2], layout="bcolz", mode="w"
        ).close(),
    ),
    "replace a table": (
        table,
        lambda path: dataset.create_array(
            path, [1, 2], layout="bcolz", mode="w"
        ).close(),
    ),
}


@pytest.mark.parametrize(("make", "operation"), OPERATIONS.values(), ids=OPERATIONS)
def test_every_call(make, operation, tmp_path, monkeypatch):
    make(tmp_path / "old")
    old = content(tmp_path / "old")
    states = set()
    for count in range(500):
        path = tmp_path / "work" / "data"
        path.parent.mkdir()
        shutil.copytree(tmp_path / "old", path)
        _, done = run(operation, path, count, monkeypatch)
        found = content(path)
        if done:
            break
        with dataset.open(path, "r+") as opened:
            assert found == content(path)
            if isinstance(opened, dataset.Array):
                more = [(found[0] and found[0][0]) or 0] * 20
                opened.append(more)
                assert found[0] + more == opened[:].tolist()
            else:
                opened.append(opened[:20])
        assert not (path / ".bloscpack").exists()
        states.add(repr(found))
        shutil.rmtree(path.parent)
    assert done
    assert old != found
    assert {repr(old), repr(found)} == states | {repr(found)}
    assert repr(old) in states


def test_creating(tmp_path, monkeypatch):
    for make in (array, table):
        for count in range(500):
            path = tmp_path / "data"
            _, done = run(make, path, count, monkeypatch)
            if done:
                break
            if path.exists():
                content(path)
                shutil.rmtree(path)
            make(path)
            assert [path] == list(tmp_path.iterdir())
            shutil.rmtree(path)
        assert done
        shutil.rmtree(path)


@pytest.mark.parametrize(("make", "operation"), OPERATIONS.values(), ids=OPERATIONS)
def test_the_order_on_the_disk(make, operation, tmp_path, monkeypatch):
    """Each content is on the disk before it gets its name; then so is the name."""
    path = tmp_path / "data"
    make(path)
    calls, done = run(operation, path, -1, monkeypatch)
    assert done
    synced = set()
    for name, *arguments in calls:
        if name == "create":
            synced.discard(arguments[0])
        elif name == "sync":
            synced.add(arguments[0])
        elif name == "rename" and "bloscpack-" not in arguments[0]:
            assert arguments[0] in synced
    last = max(i for i, call in enumerate(calls) if call[0] in ("rename", "exchange"))
    assert any(call[0] == "sync_folder" for call in calls[last:])
