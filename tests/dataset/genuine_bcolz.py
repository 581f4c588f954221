"""Run by a Python that has the genuine bcolz: check a dataset, change it, check again.

    python genuine_bcolz.py FOLDER EXPECTED.npz

The file has an array for each column, or one named ``values`` for an array. The program
reads, appends the first rows, trims, assigns, and leaves the dataset with 37 appended
rows and an attribute ``genuine``.
"""

import sys
import warnings

warnings.simplefilter("ignore")

import bcolz  # noqa: E402
import numpy as np  # noqa: E402


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
    assert column.nbytes / column.cbytes >= 0  # as its repr does


def check(path, expected):
    found = bcolz.open(path, mode="r")
    if list(expected) == ["values"]:
        assert isinstance(found, bcolz.carray)
        check_column(expected["values"], found)
        return
    assert list(expected) == list(found.names)
    for name, items in expected.items():
        check_column(items, found[name])
    assert len(found) == len(next(iter(expected.values())))


def main(path, expected_path):
    with np.load(expected_path) as loaded:
        expected = {name: loaded[name] for name in loaded.files}
    check(path, expected)
    new = {name: items[:37] for name, items in expected.items()}
    longer = {
        name: np.concatenate([expected[name], new[name]], dtype=new[name].dtype)
        for name in new
    }
    added = len(next(iter(new.values())))
    rows = new["values"] if "values" in new else list(new.values())
    if added:
        found = bcolz.open(path, mode="a")
        found.append(rows)
        found.flush()
        check(path, longer)
        found = bcolz.open(path, mode="a")
        found.trim(added)
        found.flush()
        check(path, expected)
        found = bcolz.open(path, mode="a")
        found.append(rows)
        found.flush()
        check(path, longer)
    bcolz.open(path, mode="a").attrs["genuine"] = [1, {"a": None}]
    print("right", bcolz.__version__)


main(*sys.argv[1:])
