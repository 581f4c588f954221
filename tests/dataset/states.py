"""Any sequence of changes: machines in which a dataset and NumPy do the same.

A layout gets its tests by an entry of `LAYOUTS`. Callers add checks of the arrays, for
example with other programs.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from indexes import indexes

from bloscpack import dataset
from bloscpack.verify import verify

try:
    import fsspec
except ImportError:
    fsspec = None

DTYPES = ("i4", ">f8", "S8", "U8", "M8[s]", "u1")
STRUCTURES = (
    [("x", "<i4"), ("y", "S5")],
    [("x", "u1"), ("p", [("u", ">f8", (2,)), ("s", "U4")], (2,)), ("l", "g")],
)
ROWS = st.integers(0, 40)


class Layout:
    """What the machines must know about a layout.

    Attributes
    ----------
    files
        A pattern for the files that are `.blp` files; None if none is.
    dtypes
        The dtypes of items.
    has_shards
        Whether users choose the number of chunks in a file.
    at_url
        Whether the datasets are at URLs, in a store in memory.
    """

    def __init__(self, files=None, dtypes=DTYPES, *, has_shards=True, at_url=False):
        self.at_url = at_url
        self.files = files
        self.dtypes = dtypes
        self.has_shards = has_shards


LAYOUTS = {
    "bcolz": Layout(has_shards=False),
    "zarr": Layout("**/c/**/*"),
    "superchunk": Layout("**/__*__.bin", (*DTYPES, *STRUCTURES)),
    "zarr at a URL": Layout(at_url=True),
}
NUMBERS = itertools.count()


def numbers_of(dtype, shape, start):
    """Return different items of a dtype."""
    count = np.prod(shape, dtype=int)
    return np.arange(start, start + count).reshape(shape).astype(dtype)


def joined(*parts):
    """Return rows of several arrays in the byte order of the first."""
    return np.concatenate(parts, dtype=parts[0].dtype)


def resized(items, rows, fill=0):
    """Return the first rows, or all and rows of the fill value."""
    result = np.zeros((rows, *items.shape[1:]), items.dtype)
    if fill:
        result[:] = fill
    result[: len(items)] = items[:rows]
    return result


class Machine(RuleBasedStateMachine):
    """What the machines for arrays and tables have in common.

    Attributes
    ----------
    folder
        Where the datasets are.
    layout
        Their layout.
    checks, last_checks
        Functions of the path of an array and its items, which are called after each
        step, and at the end.
    """

    folder = None
    layout = "zarr"
    checks = ()
    last_checks = ()
    opened = None

    def start(self):
        self.count = 0
        self.known = LAYOUTS[self.layout]
        if self.known.at_url:
            self.path = "memory://states/%d" % next(NUMBERS)
        else:
            self.path = self.folder / str(len(os.listdir(self.folder)))
        self.made = {"layout": self.layout.partition(" ")[0], "sync": False}

    def next(self):
        """Return a number from which new items count."""
        self.count += 1
        return 1000 * self.count

    @rule()
    def reopen(self):
        self.opened.close()
        self.opened = dataset.open(self.path, "r+", sync=False)

    @rule(name=st.sampled_from("xy"), value=st.integers())
    def set_attribute(self, name, value):
        self.opened.attrs[name] = value
        assert value == dataset.open(self.path).attrs[name]

    @rule(name=st.sampled_from("xy"))
    def remove_attribute(self, name):
        if name in self.opened.attrs:
            del self.opened.attrs[name]
        assert name not in dataset.open(self.path).attrs

    def arrays(self):
        """Return the path of each array, and its items."""
        raise NotImplementedError

    @invariant()
    def same(self):
        if self.opened is None:
            return
        self.check()
        for path, items in self.arrays().items():
            for check in self.checks:
                check(path, items)

    def check(self):
        """Compare the dataset, as the writer and as a reader sees it."""
        raise NotImplementedError

    def teardown(self):
        if self.opened is None:
            return
        self.opened.close()
        for path, items in self.arrays().items():
            for check in self.last_checks:
                check(path, items)
        if self.known.at_url:
            fsspec.filesystem("memory").rm("/states", recursive=True)
        for place in self.path.glob(self.known.files) if self.known.files else ():
            is_shard = place.is_file() and place.suffix != ".json"
            assert not is_shard or verify(place).ok


def assert_same(expected, found):
    assert expected.dtype.newbyteorder("=") == found.dtype.newbyteorder("=")
    if expected.dtype.names is None:
        np.testing.assert_array_equal(expected, found)
    else:
        assert expected.tobytes() == found.astype(expected.dtype).tobytes()


class ArrayMachine(Machine):
    """An array."""

    @initialize(
        rows=ROWS,
        chunks=st.integers(1, 12),
        slots=st.integers(1, 4),
        inner=st.sampled_from([(), (2,), (2, 1)]),
        number=st.integers(0, 99),
    )
    def create(self, rows, chunks, slots, inner, number):
        self.start()
        dtype = self.known.dtypes[number % len(self.known.dtypes)]
        self.expected = numbers_of(dtype, (rows, *inner), 0)
        self.fill = 5 if self.expected.dtype.kind in "if" else 0
        shards = {"shards": chunks * slots} if self.known.has_shards else {}
        self.opened = dataset.create_array(
            self.path,
            self.expected,
            chunks=chunks,
            fill_value=self.fill or None,
            **shards,
            **self.made,
        )

    def items(self, rows):
        shape = (rows, *self.expected.shape[1:])
        return numbers_of(self.expected.dtype, shape, self.next())

    @rule(rows=ROWS)
    def append(self, rows):
        new = self.items(rows)
        self.expected = joined(self.expected, new)
        self.opened.append(new)

    @rule(counts=st.lists(st.integers(1, 12), max_size=4))
    def append_blocks(self, counts):
        blocks = [self.items(rows) for rows in counts]
        self.expected = joined(self.expected, *blocks)
        self.opened.append(iter(blocks))

    @rule(rows=st.integers(0, 90))
    def resize(self, rows):
        self.expected = resized(self.expected, rows, self.fill)
        self.opened.resize(rows)

    @rule(
        start=st.integers(-60, 60),
        stop=st.integers(-60, 60),
        step=st.sampled_from([1, 2, -1, -3]),
    )
    def assign(self, start, stop, step):
        key = slice(start, stop, step)
        self.expected[key] = new = self.items(len(self.expected[key]))
        self.opened[key] = new

    @rule(numbers=st.lists(st.integers(0, 59), max_size=9))
    def assign_rows(self, numbers):
        numbers = [n for n in numbers if n < len(self.expected)]
        new = self.items(len(numbers))
        self.expected[np.array(numbers, int)] = new
        self.opened[numbers] = new

    def arrays(self):
        return {self.path: self.expected}

    def check(self):
        assert_same(self.expected, self.opened[:])
        assert_same(self.expected, dataset.open_array(self.path)[:])


class TableMachine(Machine):
    """A table, whose columns are added and removed."""

    @initialize(rows=ROWS, chunks=st.integers(1, 9))
    def create(self, rows, chunks):
        self.start()
        self.expected = {
            "a": numbers_of("i8", rows, 0),
            "b": numbers_of(">f4", (rows, 2), 0),
        }
        self.opened = dataset.create_table(
            self.path, self.expected, chunks=chunks, **self.made
        )

    def __len__(self):
        return len(next(iter(self.expected.values())))

    def items(self, rows):
        start = self.next()
        return {
            name: numbers_of(items.dtype, (rows, *items.shape[1:]), start)
            for name, items in self.expected.items()
        }

    @rule(rows=ROWS)
    def append(self, rows):
        new = self.items(rows)
        self.opened.append(new)
        for name, items in new.items():
            self.expected[name] = joined(self.expected[name], items)

    @rule(rows=st.integers(0, 60))
    def resize(self, rows):
        self.opened.resize(rows)
        for name, items in self.expected.items():
            self.expected[name] = resized(items, rows)

    @rule(start=st.integers(0, 40), count=ROWS)
    def assign(self, start, count):
        key = slice(start, start + count)
        new = self.items(len(range(len(self))[key]))
        self.opened[key] = new
        for name, items in new.items():
            self.expected[name][key] = items

    @rule(number=st.integers(0, 9), start=ROWS)
    def assign_to_a_column(self, number, start):
        name = list(self.expected)[number % len(self.expected)]
        new = self.items(len(self))[name][start:]
        self.opened[name][start:] = new
        self.expected[name][start:] = new

    @rule(name=st.sampled_from("cdef"), first=st.booleans(), number=st.integers(0, 99))
    def add_or_remove(self, name, first, number):
        if name in self.expected:
            self.opened.remove_column(name)
            del self.expected[name]
            return
        dtype = self.known.dtypes[number % len(self.known.dtypes)]
        new = {name: numbers_of(dtype, len(self), self.next())}
        self.opened.add_column(name, new[name], position=0 if first else None)
        self.expected = {**new, **self.expected} if first else {**self.expected, **new}

    def arrays(self):
        at = Path if isinstance(self.path, Path) else str
        items = self.expected.items()
        return {at("%s/%s" % (self.path, name)): array for name, array in items}

    def check(self):
        for table in (self.opened, dataset.open_table(self.path)):
            assert list(self.expected) == table.names
            assert len(self) == len(table)
            for name, items in self.expected.items():
                assert_same(items, table[name][:])


@st.composite
def lengths(draw, most):
    """Return a length for each of two axes."""
    return draw(st.tuples(*[st.integers(0, n) for n in most]))


class GridMachine(Machine):
    """An array that is cut in both axes, and grows and shrinks in both."""

    @initialize(
        shape=lengths((9, 12)),
        chunks=st.tuples(st.integers(1, 4), st.integers(1, 4)),
        slots=st.tuples(st.integers(1, 3), st.integers(1, 3)),
        number=st.integers(0, 99),
    )
    def create(self, shape, chunks, slots, number):
        self.start()
        dtype = self.known.dtypes[number % len(self.known.dtypes)]
        self.expected = numbers_of(dtype, shape, 0)
        self.fill = 5 if self.expected.dtype.kind in "if" else 0
        self.opened = dataset.create_array(
            self.path,
            self.expected,
            chunks=chunks,
            shards=tuple(np.multiply(chunks, slots).tolist()),
            fill_value=self.fill or None,
            **self.made,
        )

    def new(self, shape):
        return numbers_of(self.expected.dtype, shape, self.next())

    @rule(axis=st.sampled_from([0, 1, -1]), count=st.integers(0, 9))
    def append(self, axis, count):
        shape = list(self.expected.shape)
        shape[axis] = count
        new = self.new(tuple(shape))
        dtype = self.expected.dtype
        self.expected = np.concatenate([self.expected, new], axis, dtype=dtype)
        self.opened.append(new, axis=axis)

    @rule(shape=lengths((14, 14)))
    def resize(self, shape):
        old, kept = self.expected, tuple(map(slice, shape))
        self.expected = np.full(shape, self.fill, "i8").astype(old.dtype)
        if old.dtype.kind in "SU":
            self.expected = np.zeros(shape, old.dtype)
        kept = old[kept]
        self.expected[tuple(map(slice, kept.shape))] = kept
        self.opened.resize(shape)

    @rule(data=st.data())
    def assign(self, data):
        index = data.draw(indexes(self.expected.shape))
        try:
            shape = self.expected[index].shape
        except (IndexError, DeprecationWarning) as error:  # older NumPy only warns
            with pytest.raises(type(error)):
                self.opened[index]
            return
        self.expected = self.expected.copy()
        new = self.new(shape)
        if shape and data.draw(st.booleans()):
            new = new[:1]
        self.expected[index] = new
        self.opened[index] = new

    def arrays(self):
        return {self.path: self.expected}

    def check(self):
        assert_same(self.expected, self.opened[:])
        assert_same(self.expected, dataset.open_array(self.path)[:])

    def teardown(self):
        assert self.opened is None or dataset.verify(self.path).ok
        super().teardown()


MACHINES = (ArrayMachine, TableMachine)


def run(machine, folder, layout, *, checks=(), last_checks=(), examples=30):
    """Run a machine for a layout with many sequences of changes."""
    if LAYOUTS[layout].at_url and fsspec is None:
        pytest.skip("the extra 'remote' is not installed")
    attributes = {
        "folder": folder,
        "layout": layout,
        "checks": checks,
        "last_checks": last_checks,
    }
    run_state_machine_as_test(
        type(machine.__name__, (machine,), attributes),
        settings=settings(
            max_examples=examples,
            stateful_step_count=15,
            suppress_health_check=list(HealthCheck),
            database=None,
        ),
    )
