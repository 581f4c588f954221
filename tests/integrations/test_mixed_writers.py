"""A dataset that several programs change in turn: this one, zarr-python and xarray.

After each change, a model of NumPy arrays, this package, zarr-python and TensorStore
have the same items, and `verify` finds no error.
"""

import importlib.util
import os
import signal
import subprocess
import sys
import warnings

import numpy as np
import pytest

from bloscpack import dataset
from bloscpack.exceptions import StorageError

xr = pytest.importorskip("xarray", reason="xarray is not installed")
zarr = pytest.importorskip("zarr", reason="needs zarr 3", minversion="3.1")
has_tensorstore = importlib.util.find_spec("tensorstore") is not None

DTYPES = ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u1", "u2", "?")
LONGEST = 40
CHANGES_OF_EACH = 8


class Mixed:
    """The dataset, with an array ``v`` and a coordinate of its rows, and the model."""

    def __init__(self, path, seed):
        self.path, self.random = str(path), np.random.default_rng(seed)
        self.attrs = {"v": {}, "time": {}}
        dtype = np.dtype(self.pick(DTYPES))
        length, width = map(int, self.random.integers(1, [LONGEST // 2, 6]))
        self.model = {
            "time": np.arange(length),
            "v": np.zeros((length, width), dtype),
        }
        self.fill = dict.fromkeys(self.model, 0)
        with dataset.create_group(self.path) as group:
            for name, items in self.model.items():
                sizes = {"chunks": 2, "shards": 2 * int(self.random.integers(1, 4))}
                if items.ndim > 1 and self.random.random() < 0.5:
                    sizes = {"chunks": (2, 2), "shards": (4, 2)}
                sizes["dims"] = ["time", "x"][: items.ndim]
                if self.random.random() < 0.3:
                    sizes.update(shape=items.shape, dtype=items.dtype)
                    items[...] = 0
                    group.create_array(name, **sizes).close()
                else:
                    items[...] = self.items(items.shape, items.dtype)
                    group.create_array(name, items, **sizes).close()

    def pick(self, values):
        return values[self.random.integers(len(values))]

    def items(self, shape, dtype):
        """Return items: any, or zeros, or the largest of a few values, or NaN."""
        kind = self.random.integers(4)
        if kind == 0:
            return np.zeros(shape, dtype)
        if kind == 1:
            value = np.nan if dtype.kind == "f" else 1
            return np.full(shape, value, dtype)
        return self.random.integers(0, 10, shape).astype(dtype)

    def length(self):
        return len(self.model["v"])

    def new_rows(self, count):
        return {
            name: self.items((count, *items.shape[1:]), items.dtype)
            for name, items in self.model.items()
        }

    def as_xarray(self, rows):
        return xr.Dataset({"v": (("time", "x"), rows["v"])}, {"time": rows["time"]})

    def opened(self, program):
        if program == "zarr":
            return zarr.open_group(self.path, mode="r+", use_consolidated=False)
        return dataset.open(self.path, "r+")

    # Changes

    def append(self, program):
        rows = self.new_rows(int(self.random.integers(1, 7)))
        if self.length() > LONGEST:
            return
        if program == "xarray":
            options = {"append_dim": "time", "consolidated": False}
            self.as_xarray(rows).to_zarr(self.path, **options)
        else:
            group = self.opened(program)
            for name, items in rows.items():
                group[name].append(items)
        for name, items in rows.items():
            self.model[name] = np.concatenate([self.model[name], items])

    def assign(self, program):
        if not self.length():
            return
        start, stop = sorted(map(int, self.random.integers(0, self.length() + 1, 2)))
        start -= start == self.length()
        stop = max(stop, start + 1)
        rows = self.new_rows(stop - start)
        if program == "xarray":
            region = {"time": slice(start, stop)}
            data = self.as_xarray(rows).drop_vars("time")
            del rows["time"]  # xarray writes no index to a region
            data.to_zarr(self.path, region=region, consolidated=False)
        else:
            group = self.opened(program)
            for name, items in rows.items():
                group[name][start:stop] = items
        for name, items in rows.items():
            self.model[name][start:stop] = items

    def resize(self, program):
        length, old = int(self.random.integers(0, LONGEST)), self.length()
        if program == "xarray":
            return
        group, rows = self.opened(program), self.new_rows(max(0, length - old))
        for name, items in self.model.items():
            added = rows[name]
            if program == "zarr":
                group[name].resize((length, *items.shape[1:]))
                if len(added):  # what it leaves in its last chunk has no rule
                    group[name][old:length] = added
            else:
                group[name].resize(length)
                added[...] = 0
            self.model[name] = np.concatenate([items[:length], added])

    def set_attributes(self, program):
        if program == "xarray":
            return
        name, value = self.pick(["v", "time"]), int(self.random.integers(100))
        self.opened(program)[name].attrs["n"] = value
        self.attrs[name]["n"] = value

    # Checks

    def check(self, done):
        ours, by_zarr = dataset.open(self.path), self.opened("zarr")
        report = dataset.verify(self.path)
        errors = [f for f in report.findings if f.severity == "error"]
        assert [] == errors, done
        for name, expected in self.model.items():
            found = {"bloscpack": ours[name][...], "zarr": by_zarr[name][...]}
            if has_tensorstore:
                found["tensorstore"] = read_by_tensorstore(self.path + "/" + name)
            for reader, items in found.items():
                text = "%s by %s after %s" % (name, reader, done)
                np.testing.assert_array_equal(expected, items, text)
            assert self.attrs[name] == ours[name].attrs.asdict(), done


def read_by_tensorstore(path):
    import tensorstore

    kvstore = {"driver": "file", "path": path}
    opened = tensorstore.open({"driver": "zarr3", "kvstore": kvstore})
    return opened.result().read().result()


@pytest.mark.parametrize(
    ("first", "count"),
    [
        (0, 25),
        *(pytest.param(n, 95, marks=pytest.mark.slow) for n in range(25, 500, 95)),
    ],
)
def test_any_sequence_of_changes(tmp_path, first, count):
    for seed in range(first, first + count):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of xarray and zarr-python
            mixed = Mixed(tmp_path / str(seed), seed)
            done = [seed]
            for _ in range(CHANGES_OF_EACH):
                program = mixed.pick(["bloscpack", "zarr", "xarray"])
                change = mixed.pick(["append", "assign", "resize", "set_attributes"])
                done.append((program, change))
                getattr(mixed, change)(program)
                mixed.check(done)


# A program that is killed when it removes a shard, or gives one its name.
KILLED = """if True:
    import os, signal, sys
    from bloscpack import dataset

    path, place, call = sys.argv[1:]
    opened = dataset.open(path, "r+")
    name, rows, left = place.removesuffix("/x"), [7] * 20, [3]
    array = opened[name] if name else opened
    event, at = ("os.remove", 0) if call == "shrink" else ("os.rename", 1)

    def kill(name, arguments):
        if name == event and os.path.basename(arguments[at]).isdecimal():
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(kill)
    rows = rows if name == place else {"x": rows}
    array.resize(3) if call == "shrink" else array.append(rows)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
@pytest.mark.parametrize("place", ["", "a", "in/a", "united/a", "t/x"])
@pytest.mark.parametrize("call", ["shrink", "append"])
def test_items_that_a_killed_writer_has_left(call, place, tmp_path):
    """The next writer removes them before another program enlarges the array."""
    path = tmp_path / "d"
    options = {"chunks": 4, "shards": 4, "fill_value": 0}
    if place:
        with dataset.create_group(path) as group:
            if place == "t/x":
                group.create_table("t", {"x": np.arange(1, 25)}, chunks=4, shards=4)
            else:
                group.create_array(place, np.arange(1, 25), **options)
            if place == "united/a":
                with group.change():
                    pass
    else:
        dataset.create_array(path, np.arange(1, 25), **options).close()
    arguments = [sys.executable, "-c", KILLED, path, place, call]
    assert -signal.SIGKILL == subprocess.run(arguments, check=False).returncode
    length = dataset.open(path / place).shape[0]
    assert length == (3 if call == "shrink" else 24)
    shards = len(os.listdir(path / place / "c"))
    assert shards > -(-length // 4)
    dataset.open(path / place, "r+").close()
    assert -(-length // 4) == len(os.listdir(path / place / "c"))
    array = zarr.open_array(str(path / place), mode="r+")
    array.resize(44)
    assert [*range(1, length + 1)] == array[:length].tolist()
    assert (array[-(-length // 4) * 4 :] == array.fill_value).all()


@pytest.mark.parametrize("waits", ["rows", "items"])
@pytest.mark.parametrize("place", ["", "a", "united/a"])
def test_changes_that_wait_while_another_program_resizes(waits, place, tmp_path):
    """They are lost with an error, and the array can be closed."""
    path, cut = tmp_path / "d", {"chunks": 4, "shards": 8}
    if place:
        opened = dataset.create_group(path)
        array = opened.create_array(place, np.arange(10), buffered=True, **cut)
        if place == "united/a":
            with opened.change():
                pass
    else:
        array = opened = dataset.create_array(path, np.arange(10), buffered=True, **cut)
    if waits == "rows":
        array.append([10, 11])
    else:
        array[1] = 20
    zarr.open_array(str(path / place), mode="r+").resize(20)
    expected = dataset.open(path / place)[:].tolist()
    if (waits, place) != ("items", "united/a"):  # these were written at once
        lost = "from .* to .*: open the dataset again; lost: . .* in memory"
        with pytest.raises(StorageError, match=lost):
            opened.close()
    opened.close()
    assert opened.closed
    assert expected == dataset.open(path / place)[:].tolist()
