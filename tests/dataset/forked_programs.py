"""Programs that `test_threads` runs in their own process: ``forked_programs.py KIND``.

The process opens an object for changes, and forks inside of its ``with`` block. The
child tries to change the object, and then ends with `sys.exit`, so that it leaves the
block. After that the parent goes on.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from contextlib import contextmanager

import numpy as np

import bloscpack as bp
from bloscpack import dataset
from bloscpack.exceptions import StorageError, UsageError


def files_in(folder):
    """Return the names and sizes of all files, hidden ones included."""
    return sorted(
        (os.path.join(place, name), os.path.getsize(os.path.join(place, name)))
        for place, folders, names in os.walk(folder)
        for name in (*folders, *names)
    )


def check_locked(path):
    try:
        dataset.open(path, "r+")
    except StorageError:
        return
    raise AssertionError("the child has unlocked it")


def open_array(layout):
    return dataset.create_array("x", np.arange(50), chunks=5, layout=layout)


ARRAY = {
    "changes": [
        lambda x: x.append([1]),
        lambda x: x.resize(3),
        lambda x: x.__setitem__(0, 7),
        lambda x: x.attrs.update(a=1),
        lambda x: x.attrs.put({}),
        lambda x: x.flush(),
    ],
    "go_on": lambda x: (x.append([50]), check_locked("x")),
    "check": lambda: dataset.open("x")[:].tolist() == list(range(51)),
}
TABLE = {
    "changes": [
        lambda x: x.append({"a": [1], "b": [2]}),
        lambda x: x.resize(3),
        lambda x: x.__setitem__(0, {"a": [1], "b": [2]}),
        lambda x: x["a"].__setitem__(0, 7),
        lambda x: x["a"].attrs.update(a=1),
        lambda x: x.add_column("c", [1] * len(x)),
        lambda x: x.remove_column("a"),
        lambda x: x.attrs.update(a=1),
    ],
    "go_on": lambda x: (x.append({"a": [9], "b": [9]}), check_locked("x")),
    "check": lambda: dataset.open("x")["a"][:].tolist() == [*range(9), 9],
}
GROUP = {
    "changes": [
        lambda x: x.create_array("new", [1]),
        lambda x: x.create_group("new"),
        lambda x: x.require_group("new"),
        lambda x: x.__delitem__("old"),
        lambda x: x["open"].append([1]),
        lambda x: x.attrs.update(a=1),
    ],
    "go_on": lambda x: (
        x["old"].append([4]),
        check_locked("x/open"),
        x.create_array("more", [5]),
    ),
    "check": lambda: dataset.open("x")["old"][:].tolist() == [1, 2, 3, 4],
}


# Members that stay open; the others are opened for reading in the child.
OPEN = []


def open_group(path="x"):
    group = dataset.create_group(path)
    group.create_array("old", [1, 2, 3])
    OPEN.append(group.create_array("open", [1]))
    return group


@contextmanager
def open_block(path="x"):
    with open_group(path) as group, group.change():
        group["old"][0] = 9
        yield group


def open_file(mode):
    bp.pack_bytes_to_file(b"old" * 1000, "x.blp", sync=True)
    file = bp.open("x.blp", mode, chunk_size=64) if mode == "wb" else None
    file = file or bp.open("x.blp", mode)
    file.write(b"parent")
    return file


FILE = {
    "changes": [lambda x: x.write(b"child"), lambda x: x.flush()],
    "go_on": lambda x: x.write(b" goes on"),
}
KINDS = {
    "zarr": {"open": lambda: open_array("zarr"), **ARRAY},
    "superchunk": {"open": lambda: open_array("superchunk"), **ARRAY},
    "bcolz": {"open": lambda: open_array("bcolz"), **ARRAY},
    "table": {
        "open": lambda: dataset.create_table("x", {"a": range(9), "b": range(9)}),
        **TABLE,
    },
    "group": {"open": open_group, **GROUP},
    "block of a group": {
        **GROUP,
        "open": open_block,
        "go_on": lambda x: x["old"].append([4]),
        "check": lambda: dataset.open("x")["old"][:].tolist() == [9, 2, 3, 4],
    },
    "new file": {
        "open": lambda: open_file("wb"),
        **FILE,
        "check": lambda: bp.unpack_bytes_from_file("x.blp")[0] == b"parent goes on",
    },
    "appended file": {
        "open": lambda: open_file("ab"),
        **FILE,
        "check": lambda: (
            bp.unpack_bytes_from_file("x.blp")[0] == b"old" * 1000 + b"parent goes on"
        ),
    },
}
URL = "file://" + os.path.join(os.getcwd(), "x")
KINDS["zarr at a URL"] = {
    **ARRAY,
    "open": lambda: dataset.create_array(URL, np.arange(50), chunks=5),
    "go_on": lambda x: x.append([50]),
}
KINDS["table at a URL"] = {
    **TABLE,
    "open": lambda: dataset.create_table(URL, {"a": range(9), "b": range(9)}),
    "go_on": lambda x: x.append({"a": [9], "b": [9]}),
}
KINDS["group at a URL"] = {
    **GROUP,
    "open": lambda: open_group(URL),
    "go_on": lambda x: x["old"].append([4]),
}
KINDS["block of a group at a URL"] = {
    **KINDS["block of a group"],
    "open": lambda: open_block(URL),
}


def main(name):
    """Run a kind; raise an error if the child has changed something."""
    kind = KINDS[name]
    warnings.simplefilter("ignore")  # of forks in a process with threads
    with kind["open"]() as opened:
        before = files_in(".")
        child = os.fork()
        if not child:
            signal.alarm(20)  # ends a child that waits for ever
            for change in kind["changes"]:
                try:
                    change(opened)
                except UsageError as error:
                    if "the process %d" % os.getppid() not in str(error):
                        raise
                else:
                    raise AssertionError("the child has changed it")
            sys.exit(7)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert 7 == code, code
        assert before == files_in("."), "the child has removed or written files"
        kind["go_on"](opened)
    assert kind["check"]()
    if os.path.isdir("x"):
        assert dataset.verify("x").ok


if __name__ == "__main__":
    main(sys.argv[1])
