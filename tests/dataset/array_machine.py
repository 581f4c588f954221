"""A state machine: an array in a folder and an array of NumPy do the same."""

from __future__ import annotations

import os

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)

from bloscpack import dataset


class ArrayMachine(RuleBasedStateMachine):
    """An array and NumPy do the same."""

    folder = None
    layout = "bcolz"

    @initialize(
        rows=st.integers(0, 40),
        chunks=st.integers(1, 12),
        slots=st.integers(1, 3),
        inner=st.sampled_from([(), (2,)]),
    )
    def create(self, rows, chunks, slots, inner):
        self.count = 0
        self.path = self.folder / str(len(os.listdir(self.folder)))
        self.expected = self.items(rows, inner)
        self.array = dataset.create_array(
            self.path,
            self.expected,
            layout=self.layout,
            chunks=chunks,
            shards=chunks * slots if self.layout != "bcolz" else None,
            sync=False,
            fill_value=5,
        )

    def items(self, rows, inner=None):
        inner = self.expected.shape[1:] if inner is None else inner
        shape = (rows, *inner)
        self.count += 1
        return np.arange(np.prod(shape)).reshape(shape).astype("i4") + 1000 * self.count

    @rule(rows=st.integers(0, 30))
    def append(self, rows):
        new = self.items(rows)
        self.expected = np.concatenate([self.expected, new])
        self.array.append(new)

    @rule(counts=st.lists(st.integers(1, 12), max_size=4))
    def append_blocks(self, counts):
        blocks = [self.items(rows) for rows in counts]
        self.expected = np.concatenate([self.expected, *blocks])
        self.array.append(iter(blocks))

    @rule(rows=st.integers(0, 60))
    def resize(self, rows):
        more = max(0, rows - len(self.expected))
        fill = np.full((more, *self.expected.shape[1:]), 5, "i4")
        self.expected = np.concatenate([self.expected[:rows], fill])
        self.array.resize(rows)

    @rule(
        start=st.integers(-60, 60),
        stop=st.integers(-60, 60),
        step=st.sampled_from([1, 2, -1, -3]),
    )
    def assign(self, start, stop, step):
        key = slice(start, stop, step)
        values = self.items(len(self.expected[key]))
        self.expected[key] = values
        self.array[key] = values

    @rule(numbers=st.lists(st.integers(0, 59), max_size=9))
    def assign_rows(self, numbers):
        numbers = [n for n in numbers if n < len(self.expected)]
        values = self.items(len(numbers))
        self.expected[np.array(numbers, int)] = values
        self.array[numbers] = values

    @rule()
    def reopen(self):
        self.array.close()
        self.array = dataset.open_array(self.path, "r+", sync=False)

    @invariant()
    def same(self):
        if hasattr(self, "array"):
            np.testing.assert_array_equal(self.expected, self.array[:])
            np.testing.assert_array_equal(self.expected, dataset.open(self.path)[:])
            self.check_step()

    def check_step(self):
        """Check the files after a step."""

    def teardown(self):
        if hasattr(self, "array"):
            self.array.close()
