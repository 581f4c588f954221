"""Checks of a layout with the genuine program, which runs in a Python of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from dataset import states
from support import environment

from bloscpack import dataset

PROGRAM = Path(__file__).with_name("genuine_program.py")
NUMBERS = "? i1 i2 i4 i8 u1 u2 u4 u8 >i4 >u2 f2 f4 f8 >f8 c8 c16"
TEXTS = "S1 S7 S300 U1 U5 >U3 U80 V5 V300"
TIMES = "M8[ns] M8[D] M8[s] M8[ms] m8[ns] m8[s] m8[D]"
DTYPES = " ".join((NUMBERS, TEXTS, TIMES)).split()
SHAPES = ((0,), (1,), (48,), (107, 3), (9, 2, 3, 4), (0, 3))


def items_of(dtype, shape=(50,)):
    """Return different items of a dtype."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape))
    raw = np.random.default_rng(1).integers(0, 256, (count, dtype.itemsize), "u1")
    if dtype.kind in "US":
        texts = [str(i % 70) * (i % 5) for i in range(count)]
        return np.array(texts).astype(dtype).reshape(shape)
    if dtype.kind == "b":
        return (raw[:, 0] > 99).reshape(shape)
    return raw.reshape(-1).view(dtype).reshape(shape)


class ChangeTests:
    """Tests that each program must pass; a subclass names the `layout`."""

    layout = ""

    def test_chunks_of_one_row(self, genuine, tmp_path):
        genuine.check_array(tmp_path / "a", np.arange(9), chunks=1)

    def test_after_any_change(self, genuine, tmp_path):
        genuine.check_changes(tmp_path / "a")

    def test_tables(self, genuine, tmp_path):
        genuine.check_tables(tmp_path / "t")

    @pytest.mark.parametrize("machine", states.MACHINES)
    def test_after_any_sequence_of_changes(self, genuine, machine, tmp_path):
        def check(path, items):
            genuine.check(path, {"values": items})

        states.run(machine, tmp_path, self.layout, last_checks=[check], examples=10)


class Genuine:
    """The genuine program for the layout `name`, in the Python `python`."""

    def __init__(self, python, name):
        self.python = python
        self.name = name

    def check(self, path, expected):
        """Let it check and change a dataset; check what it has written."""
        np.savez(path.with_suffix(".npz"), **expected)
        command = [self.python, PROGRAM, self.name, path, path.with_suffix(".npz")]
        done = subprocess.run(
            [*map(str, command)],
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert "right\n" == done.stdout, done.stdout + done.stderr
        found = dataset.open(path)
        assert self.name == found.layout
        assert [1, {"a": None}] == found.attrs["genuine"]
        for name, items in expected.items():
            longer = np.concatenate([items, items[:37]], dtype=items.dtype)
            column = found if name == "values" else found[name]
            assert longer.tobytes() == column[:].tobytes()

    def check_array(self, path, items, **arguments):
        """Check an array of these items."""
        arguments.setdefault("chunks", 16)
        dataset.create_array(path, items, layout=self.name, **arguments).close()
        self.check(path, {"values": items})

    def check_changes(self, path):
        """Check an array after each kind of change that follows another one."""
        expected = np.arange(50, dtype="u4")
        dataset.create_array(
            path, expected, layout=self.name, chunks=16, fill_value=7
        ).close()

        def append(array):
            array.append(np.arange(40, dtype="u4"))

        def assign(array):
            array[5:60:3] = 9

        def changes():
            yield append
            yield assign
            for length in (100, 33, 32, 31, 0, 20):
                yield lambda array, length=length: array.resize(length)
            yield append

        for change in changes():
            with dataset.open_array(path, "r+") as array:
                change(array)
                expected = array[:]
            self.check(path, {"values": expected})
        with dataset.open_array(path) as array:
            assert np.arange(37).sum() == array[-37:].sum() or len(array)

    def check_tables(self, path):
        """Check a table after all changes of rows and columns."""
        columns = {
            "a": np.arange(50, dtype="u4"),
            "m": items_of("f4", (50, 2)),
            "s": items_of("U5"),
            "raw": items_of("S3"),
        }
        with dataset.create_table(path, columns, layout=self.name, chunks=16) as table:
            table.append(columns)
            table.add_column("new", np.arange(100.0), position=1)
            table.remove_column("raw")
            table.resize(120)
            table.resize(70)
            table[3] = table[9]
            expected = {name: table[name][:] for name in table.names}
        self.check(path, expected)
        with dataset.open_table(path, "r+") as table:
            table.append(table[:5])
            table.resize(15)
            expected = {name: table[name][:] for name in table.names}
        self.check(path, expected)
