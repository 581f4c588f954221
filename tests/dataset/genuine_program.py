"""Run by a Python that has the genuine bcolz: check a dataset, and change it.

    python genuine_program.py bcolz FOLDER EXPECTED.npz

The file has an array for each column, or one named ``values`` for an array. The program
reads, appends the first rows, trims, assigns, and leaves the dataset with 37 appended
rows and an attribute ``genuine``.
"""

import importlib
import sys
import warnings

import numpy as np

warnings.simplefilter("ignore")
library = importlib.import_module(sys.argv[1])
ARRAYS = {"bcolz": "carray", "blz": "barray"}


def assert_same(expected, found):
    found = np.asarray(found)
    assert expected.dtype == found.dtype, (expected.dtype, found.dtype)
    assert expected.shape == found.shape, (expected.shape, found.shape)
    assert expected.tobytes() == found.tobytes(), "other items"


def check_column(expected, column):
    count = len(expected)
    assert_same(expected, column[:])
    if expected.ndim == 1:
        assert_same(expected[1::3], column[1::3])
    for start in sorted({0, 1, count // 2, max(0, count - 3)}):
        assert_same(expected[start : start + 7], column[start : start + 7])


def check(path, expected):
    found = library.open(path, mode="r")
    if list(expected) == ["values"]:
        assert isinstance(found, getattr(library, ARRAYS[sys.argv[1]]))
        check_column(expected["values"], found)
        return
    assert list(expected) == list(found.names)
    for name, items in expected.items():
        check_column(items, found[name])
    assert len(found) == len(next(iter(expected.values())))


def check_description(path):
    """Check what the program shows of a dataset; its own trim of BLZ breaks it."""
    found = library.open(path, mode="r")
    columns = [found[name] for name in getattr(found, "names", ())]
    for array in columns or [found]:
        assert array.nbytes / array.cbytes >= 0  # as its repr does
    if columns and all(column.ndim == 1 for column in columns):
        assert str(found)
        assert len(found[:3]) == min(3, len(found))


def main(path, expected_path):
    with np.load(expected_path) as loaded:
        expected = {name: loaded[name] for name in loaded.files}
    check(path, expected)
    check_description(path)
    new = {name: items[:37] for name, items in expected.items()}
    longer = {
        name: np.concatenate([expected[name], new[name]], dtype=new[name].dtype)
        for name in new
    }
    added = len(next(iter(new.values())))
    rows = new["values"] if "values" in new else list(new.values())
    if added:
        found = library.open(path, mode="a")
        found.append(rows)
        found.flush()
        check(path, longer)
        found = library.open(path, mode="a")
        found.trim(added)
        found.flush()
        check(path, expected)
        found = library.open(path, mode="a")
        found.append(rows)
        found.flush()
        check(path, longer)
    library.open(path, mode="a").attrs["genuine"] = [1, {"a": None}]
    print("right")


main(*sys.argv[2:])
