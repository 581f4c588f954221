"""Ctrl-C at any moment of an operation: nothing is lost, left open or left locked.

``python tests/crash/interrupts.py [STEP [NAME ...]]`` interrupts each operation before
its call number 1, 1 + STEP, and so on, until it has no more calls. STEP is 1 unless it
is given; all operations take about half an hour then. The program prints the counts,
and each failure with the place of the interrupt.

Python handles signals when a function begins, and when one in C has returned. A
function for `sys.setprofile` is called in the same places, and raises the error there.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import inspect
import os
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

import bloscpack as bp
from bloscpack import bigfile, dataset

CUT = {"chunks": 4, "shards": 8}
ZEROS = {"a": np.zeros(16, "i8"), "b": np.zeros(16)}


class Operation(NamedTuple):
    """What is prepared at a path, what is done there, and what is seen there."""

    prepare: object
    run: object
    see: object


def items(node):
    """Return all that an array, a table or a group has."""
    inner = node[:].tolist() if not isinstance(node, dataset.Group) else None
    if inner is None:
        inner = {name: items(node[name]) for name in node}
    return inner, dict(node.attrs)


def see_dataset(path):
    with dataset.open(path) as node:
        return items(node)


def make_array(path):
    dataset.create_array(path, np.arange(20), **CUT).close()


def make_table(path):
    dataset.create_table(path, {"a": np.arange(20), "b": np.arange(20.0)}).close()


def make_group(path):
    with dataset.create_group(path) as group:
        for name in ("a", "b"):
            group.create_array(name, np.arange(20), **CUT).close()


def make_united(path):
    make_group(path)
    with dataset.open(path, "r+") as group, group.change():
        group["a"].append([1])


def change(path):
    with dataset.open(path, "r+") as group, group.change():
        group["a"].append([1, 2, 3])
        group["b"].append([4])
        group.attrs["n"] = 1


def create(path):
    with dataset.open(path, "r+") as group:
        group.create_array("new", np.arange(9), **CUT)


def replace(path):
    with dataset.open(path, "r+") as group, group.change():
        group.create_group("sub").create_array("x", [1])
        del group["b"]


def opened(path, call, **how):
    with dataset.open(path, "r+", **how) as node:
        call(node)


def append_again(path, rows, **how):
    """Append rows; after an interrupt, unless the object has them."""
    with dataset.open(path, "r+", **how) as node:
        with contextlib.suppress(KeyboardInterrupt):
            node.append(rows)
            node.flush()
        node.flush()
        if len(node) == 20:
            node.append(rows)


def refresh(path):
    with dataset.open(path) as reader:
        opened(path, lambda array: array.append([7, 8, 9]))
        reader.refresh()
        assert 23 == len(reader[:])


def read(path):
    with dataset.open(path) as array:
        assert [3, 4] == array[3:5].tolist()


def snapshot(path):
    with tempfile.TemporaryDirectory(dir=os.path.dirname(path)) as folder:
        dataset.snapshot(path, os.path.join(folder, "s"))


def make_file(path):
    bp.pack_ndarray_to_file(np.arange(1000), path, chunk_size="1K")


def read_file(path):
    with bp.open_ndarray(path) as array:
        assert 400 == array[400]


def append_file(path):
    bp.append_ndarray_to_file(np.arange(300), path)


def write_file(path):
    with bp.open(path, "wb", chunk_size=64) as file:
        file.write(b"12345" * 100)


def see_file(path):
    with bp.open(path) as file:
        return file.read()


def make_tree(path):
    with bigfile.File(path, create=True) as tree:
        tree.create_from_array("x", np.arange(50)).close()


def append_column(path):
    with bigfile.File(path)["x"] as column:
        column.append([1, 2, 3])


def see_tree(path):
    with bigfile.File(path)["x"] as column:
        return column[:].tolist()


def of_array(call, **how):
    return Operation(make_array, lambda path: opened(path, call, **how), see_dataset)


OPERATIONS = {
    "read": Operation(make_array, read, see_dataset),
    "append": of_array(lambda array: array.append([7, 8, 9])),
    "append to buffer": of_array(lambda array: array.append([7, 8]), buffered=True),
    "append again": Operation(
        make_array, lambda path: append_again(path, [7, 8, 9]), see_dataset
    ),
    "append to buffer again": Operation(
        make_array, lambda path: append_again(path, [7], buffered=True), see_dataset
    ),
    "append to table again": Operation(
        make_table, lambda path: append_again(path, {"a": [1], "b": [2]}), see_dataset
    ),
    "assign": of_array(lambda array: array.__setitem__(slice(2, 18), 5)),
    "assign to buffer": Operation(
        make_table,
        lambda path: opened(
            path, lambda table: table.__setitem__(slice(2, 18), ZEROS), buffered=True
        ),
        see_dataset,
    ),
    "assign shared": of_array(lambda array: array.__setitem__(3, 5), shared=True),
    "attributes": of_array(lambda array: array.attrs.update(n=3)),
    "refresh": Operation(make_array, refresh, see_dataset),
    "append to table": Operation(
        make_table,
        lambda path: opened(path, lambda table: table.append({"a": [1], "b": [2.0]})),
        see_dataset,
    ),
    "change": Operation(make_group, change, see_dataset),
    "change united": Operation(make_united, change, see_dataset),
    "create": Operation(make_group, create, see_dataset),
    "create united": Operation(make_united, create, see_dataset),
    "replace": Operation(make_united, replace, see_dataset),
    "new": Operation(make_group, lambda path: make_array(path + "/new"), see_dataset),
    "snapshot": Operation(make_united, snapshot, see_dataset),
    "read file": Operation(make_file, read_file, see_file),
    "append to file": Operation(make_file, append_file, see_file),
    "write file": Operation(make_file, write_file, see_file),
    "append to column": Operation(make_tree, append_column, see_tree),
}


class Interrupt:
    """Raises the error of Ctrl-C in this thread at the place `number`, once."""

    def __init__(self, number):
        self.left, self.place = number, None

    def __enter__(self):
        sys.setprofile(self)

    def __exit__(self, *error):
        sys.setprofile(None)

    END = __exit__.__code__

    def __call__(self, frame, event, arg):
        # An error where Python 3.10 resumes a generator leaves out its `finally`, which
        # one of a signal does not.
        is_generator = frame.f_code.co_flags & inspect.CO_GENERATOR
        if sys.version_info < (3, 11) and event == "call" and is_generator:
            return
        if event in ("call", "c_return") and frame.f_code is not self.END:
            self.left -= 1
            if not self.left:
                sys.setprofile(None)
                code = frame.f_code
                self.place = "%s:%d %s" % (code.co_filename, frame.f_lineno, event)
                raise KeyboardInterrupt


def descriptors():
    """Return what the process has open, by number."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the list of the folder itself
            found[number] = os.readlink("/proc/self/fd/" + number)
    return found


class Trial:
    """One operation, which is interrupted in many places in a folder."""

    def __init__(self, name, folder):
        self.operation, self.folder = OPERATIONS[name], Path(folder)
        self.saved, self.path = self.folder / "saved", str(self.folder / "at" / "d")
        self.operation.prepare(str(self.saved))
        self.old = self._restored()
        self.operation.run(self.path)
        self.new = self.operation.see(self.path)
        self.ignored = []

    def _restored(self):
        """Restore the state before; return what is seen there."""
        shutil.rmtree(self.folder / "at", ignore_errors=True)
        (self.folder / "at").mkdir()
        copy = shutil.copytree if self.saved.is_dir() else shutil.copy
        copy(self.saved, self.path)
        return self.operation.see(self.path)

    def _note(self, found):
        # Python can't raise an error where a finalizer has begun.
        if not issubclass(found.exc_type, (KeyboardInterrupt, ResourceWarning)):
            self.ignored.append("%r in %r" % (found.exc_value, found.object))

    def count_places(self):
        """Return the number of places of the operation."""
        self._restored()
        counting = Interrupt(0)
        with counting:
            self.operation.run(self.path)
        return -counting.left

    def interrupted(self, number):
        """Interrupt at a place; return the place, and what is wrong afterwards.

        The place is None if the operation has fewer.
        """
        self._restored()
        gc.collect()
        before, interrupt = descriptors(), Interrupt(number)
        hook, sys.unraisablehook, self.ignored = sys.unraisablehook, self._note, []
        faulthandler.dump_traceback_later(60, exit=True)  # it waits for ever
        try:
            with contextlib.suppress(KeyboardInterrupt), interrupt:
                self.operation.run(self.path)
            gc.collect()
            wrong = list(self.ignored)
            left = {n: p for n, p in descriptors().items() if before.get(n) != p}
            if left:
                wrong.append("left open: %s" % left)
            wrong += self._state()
        finally:
            sys.unraisablehook = hook
            faulthandler.cancel_dump_traceback_later()
        return interrupt.place, wrong

    def _state(self):
        """Yield what is wrong with the state; the next writer must succeed."""
        found = self.operation.see(self.path)
        if found not in (self.old, self.new):
            yield "neither the old nor the new state: %.300r" % (found,)
        elif found == self.old:
            try:
                self.operation.run(self.path)
            except Exception as error:
                yield "the next call fails: %r" % (error,)
            else:
                if self.operation.see(self.path) != self.new:
                    yield "the next call makes another state"
        if os.listdir(self.folder / "at") != ["d"]:
            yield "left behind: %s" % os.listdir(self.folder / "at")


def main(step="1", *names):
    failures = 0
    gc.collect()
    gc.freeze()  # what stays until the end is not looked at again
    for name in names or OPERATIONS:
        with tempfile.TemporaryDirectory() as folder:
            trial, number, counts = Trial(name, folder), 1, Counter()
            while True:
                place, wrong = trial.interrupted(number)
                if place is None:
                    break
                number += int(step)
                counts["places"] += 1
                for text in wrong:
                    counts["failures"] += 1
                    print("%s, number %d, %s: %s" % (name, number, place, text))
        print("%s: %s" % (name, dict(counts)), flush=True)
        failures += counts["failures"]
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
