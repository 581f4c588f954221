"""The columns of tables: selected, renamed, converted, and with missing items."""

from __future__ import annotations

import contextlib
import pickle

import numpy as np
import pytest
from dataset.inside import FolderStore
from dataset.layouts import LAYOUTS

from bloscpack import dataset
from bloscpack.exceptions import StorageError, UsageError


@pytest.fixture(params=LAYOUTS)
def table(request, tmp_path):
    columns = {
        "n": np.arange(100),
        "s": np.array(["x", "yz"] * 50),
        "v": np.arange(200.0).reshape(100, 2),
    }
    options = {"layout": request.param, "chunks": 16, "sync": False}
    with dataset.create_table(tmp_path / "t", columns, **options) as made:
        yield made


def test_some_columns(table):
    some = table[["v", "n"]]
    assert (["v", "n"], 100) == (some.names, len(some))
    assert ([5, 6], [[10, 11], [12, 13]]) == (
        some[5:7]["n"].tolist(),
        some[5:7]["v"].tolist(),
    )
    assert 99 == some[-1]["n"]
    np.testing.assert_array_equal(table[:][["v", "n"]], np.asarray(some))
    copy = pickle.loads(pickle.dumps(some))
    assert (some.dtype, [5, 6]) == (copy.dtype, copy[5:7]["n"].tolist())
    for change in (lambda: some.append(some[:1]), lambda: some.rename({"n": "m"})):
        with pytest.raises(UsageError, match="change the table"):
            change()
    with pytest.raises(KeyError):
        table[["n", "none"]]
    with pytest.raises(UsageError, match="different names"):
        table[["n", "n"]]


def test_some_columns_do_not_close_the_table(table):
    with table[["n"]] as some:
        assert 5 == some[5]["n"]
    table.append(table[:1])
    assert 0 == some[100]["n"]
    table.close()
    assert some.closed


def test_some_columns_read_no_other_rows(tmp_path):
    rows = {name: np.arange(40) for name in "abc"}
    dataset.create_table(tmp_path / "t", rows, chunks=8, shards=8).close()
    for column, first in (("a", 1), ("b", 1), ("c", 0)):
        for number in range(first, 5):
            (tmp_path / "t" / column / "c" / str(number)).unlink()
    assert [(7, 7)] == dataset.open(tmp_path / "t")[["a", "b"]][7:8].tolist()


def test_renaming_columns(table):
    table["n"].attrs["unit"] = "m"
    column = table["s"]
    table.rename({"n": "number", "s": "text"})
    assert ["number", "text", "v"] == table.names
    assert column.closed
    table.append(table[:2])
    table.close()
    found = dataset.open(table.path)
    assert [0, 1] == found["number"][-2:].tolist()
    assert ({"unit": "m"}, "yz") == (dict(found["number"].attrs), found["text"][1])
    for names, error in (({"v": "n"}, UsageError), ({"n": "m"}, UsageError)):
        with pytest.raises(error, match="opened for reading"):
            found.rename(names)


def test_names_that_columns_can_not_get(table):
    for names, error in (
        ({"n": "s"}, UsageError),
        ({"n": "n"}, UsageError),
        ({"n": "m", "s": "m"}, UsageError),
        ({"n": ""}, UsageError),
        ({"none": "m"}, KeyError),
        ("n", UsageError),
    ):
        with pytest.raises(error):
            table.rename(names)
    assert ["n", "s", "v"] == table.names


def test_readers_of_a_table_refresh(table):
    reader = dataset.open(table.path)
    column = reader["n"]
    table.append(table[:1])
    table.rename({"v": "w"})
    reader.refresh()
    assert (["n", "s", "w"], 101) == (reader.names, len(reader))
    assert (column, 0) == (reader["n"], column[-1])


# Missing items


# What another program does with a table of the columns x, y; those that it then has.
CHANGED = {
    "added": (lambda table: table.add_column("z", [1, 2]), "xyz"),
    "removed": (lambda table: table.remove_column("x"), "y"),
    "renamed": (lambda table: table.rename({"x": "a", "y": "b"}), "ab"),
    "swapped": (
        lambda table: [table.rename({i: j}) for i, j in ("xa", "yx", "ay")],
        "yx",
    ),
    "another of the same name": (
        lambda table: (table.remove_column("x"), table.add_column("x", [1, 2])),
        "yx",
    ),
}


@pytest.mark.parametrize("name", CHANGED)
@pytest.mark.parametrize("where", ["a url", "a folder", "a group", "a writer"])
def test_a_table_whose_columns_change_is_the_same(name, where, tmp_path):
    path, (change, names) = str(tmp_path / "g"), CHANGED[name]
    with at(where, path) as (url, member, reader):
        with dataset.open(url, "r+") as other:
            change(other["t"] if member else other)
        reader.refresh()
        assert [*names] == reader.names
        with dataset.open(url) as found:
            expected = (found["t"] if member else found)[:]
        assert expected.tolist() == reader[:].tolist()
        if where == "a writer":
            reader.append(expected)
            assert 4 == len(dataset.open(url)["t"])


@pytest.mark.parametrize("names", ["xy", "xz", "ab"])
@pytest.mark.parametrize("where", ["a url", "a group", "a writer"])
def test_a_table_that_another_one_replaces(names, where, tmp_path):
    path, rows = str(tmp_path / "g"), {name: [5, 6] for name in names}
    with at(where, path) as (url, member, reader):
        if member:
            with dataset.open(url, "r+") as other:
                other.create_table("t", rows, mode="w")
        else:
            dataset.create_table(url, rows, mode="w").close()
        if where == "a writer":
            with pytest.raises(UsageError, match="closed"):
                reader.append({"x": [1], "y": [2]})
        else:
            with pytest.raises(StorageError, match="replaced it by another one"):
                reader.refresh()
        found = dataset.open(url)
        assert [(5, 5), (6, 6)] == (found["t"] if member else found)[:].tolist()


@contextlib.contextmanager
def at(where, path):
    """Yield a table in some place, opened before another program changes it.

    Before it: what another program opens, and whether the table is the member ``t``.
    """
    rows, url = {"x": [1, 2], "y": [3, 4]}, path
    if where == "a url":
        pytest.importorskip("fsspec")
        url = "memory://tables/" + where.replace(" ", "-")
    is_member = where in ("a group", "a writer")
    if is_member:
        with dataset.create_group(url) as group, group.change():
            group.create_table("t", rows)
    else:
        dataset.create_table(url, rows, mode="w").close()
    with dataset.open(url, "r+" if where == "a writer" else "r") as opened:
        table = opened["t"] if is_member else opened
        assert [(1, 3), (2, 4)] == table[:].tolist()
        yield url, is_member, table


def test_masked_columns(table):
    count = len(table)
    missing = np.arange(count) % 2 == 0
    table.add_column("m", np.arange(count))
    table.add_column("m_missing", missing, attrs={"mask-of": "m"})
    rows = {"n": [1, 2], "s": ["a", "b"], "v": np.zeros((2, 2))}
    table.append({**rows, "m": np.ma.masked_array([5, 6], [True, False])})
    table.append({**rows, "m": [7, 8]})
    assert [True, False, False, False] == table["m_missing"][-4:].tolist()
    with pytest.raises(UsageError, match=r"'n' has missing items.*'n_missing'"):
        table.append(
            {**rows, "n": np.ma.masked_array([1, 2], [True, False]), "m": [1, 2]}
        )
    table.rename({"m": "k"})
    assert {"mask-of": "k"} == dict(table["k_missing"].attrs)
    table.remove_column("k")
    assert ["n", "s", "v"] == table.names


def test_masked_arrays_become_two_columns(tmp_path):
    rows = {"m": np.ma.masked_array([5, 6], [True, False]), "n": [1, 2]}
    for name, dtype in (("t", None), ("typed", [("m", "i2"), ("n", "i4")])):
        with dataset.create_table(tmp_path / name, rows, dtype=dtype) as table:
            assert ["m", "m_missing", "n"] == table.names
            assert {"mask-of": "m"} == dict(table["m_missing"].attrs)
            assert [(0, True, 1), (6, False, 2)] == table[:].tolist()
            table[0] = {"m": 7, "n": 3}
            assert (7, False, 3) == table[0].tolist()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_items_of_a_whole_column_are_no_longer_missing(tmp_path, layout):
    rows = {"m": np.ma.masked_array([5, 6], [False, True]), "n": [1, 2]}
    with dataset.create_table(tmp_path / "t", rows, layout=layout) as table:
        table["m"] = np.ma.masked_array([3, 4], [True, False])
        assert [(0, True, 1), (4, False, 2)] == table[:].tolist()
        for wrong in ([1, 2, 3], [0.5, 1.5], [70000, 2**70]):
            with pytest.raises((UsageError, ValueError)):
                table["m"] = wrong
        with pytest.raises(UsageError, match="'n' has missing items"):
            table["n"] = rows["m"]
        with pytest.raises(KeyError):
            table["none"] = [1, 2]
        table["n"] = table["m"]
        assert [(0, True, 0), (4, False, 4)] == table[:].tolist()
        table["m"] = 9
        assert [(9, False, 0), (9, False, 4)] == table[:].tolist()
    found = dataset.open(tmp_path / "t")
    assert [(9, False), (9, False)] == found[["m", "m_missing"]][:].tolist()


def test_a_mask_stays_with_its_column(tmp_path):
    rows = {"m": np.ma.masked_array([5, 6], [False, True]), "n": [1, 2]}
    with dataset.create_table(tmp_path / "t", rows) as table:
        for change in (
            lambda: table.rename({"m_missing": "k"}),
            lambda: table.rename({"m": "l", "m_missing": "k"}),
        ):
            with pytest.raises(UsageError, match="'m_missing' says which items of 'm'"):
                change()
        assert ["m", "m_missing", "n"] == table.names
        table.rename({"m": "l", "m_missing": "l_missing"})
        assert [(5, False, 1), (0, True, 2)] == table[:].tolist()
        assert {"mask-of": "l"} == dict(table["l_missing"].attrs)


def test_masks_are_never_lost(tmp_path):
    masked = np.ma.masked_array([[1, 2]], [[True, False]])
    with pytest.raises(UsageError, match="the mask would be lost"):
        dataset.create_table(tmp_path / "t", {"a": masked})
    with dataset.create_array(tmp_path / "a", [[1, 2]]) as array:
        for change in (array.append, lambda items: array.__setitem__(0, items)):
            with pytest.raises(UsageError, match="the mask would be lost"):
                change(masked)
    names = {"a": masked[0], "a_missing": [1, 2]}
    with pytest.raises(UsageError, match="different names"):
        dataset.create_table(tmp_path / "t", names)


class MaskedElsewhere:
    """An array that is not in memory and returns masked items, as of netCDF4."""

    def __init__(self, items):
        self.items = items
        self.shape, self.dtype = items.shape, items.dtype

    def __getitem__(self, key):
        return self.items[key]


@pytest.mark.parametrize("chunks", [2, (2, 2)])
def test_masks_of_arrays_elsewhere_are_not_lost(tmp_path, chunks):
    items = np.ma.masked_equal(np.arange(20).reshape(5, 4), 17)
    with pytest.raises(UsageError, match="the mask would be lost"):
        dataset.create_array(tmp_path / "a", MaskedElsewhere(items), chunks=chunks)
    sound = np.arange(20).reshape(5, 4)
    with dataset.create_array(tmp_path / "a", sound, chunks=chunks) as array:
        for axis in (0, 1):
            with pytest.raises(UsageError, match="the mask would be lost"):
                array.append(MaskedElsewhere(items), axis)
        assert sound.tolist() == array[:].tolist()
    item = MaskedElsewhere(items.astype("f8")[4:, 1:2].reshape(()))
    with pytest.raises(UsageError, match="the mask would be lost"):
        dataset.create_array(tmp_path / "b", item)


MISSING = {
    "i": ("Int16", [1, None, 3]),
    "b": ("boolean", [None, True, False]),
    "s": ("str", ["x", None, "long"]),
    "o": ("object", [b"y", b"z", None]),
    "f": ("float64", [0.5, None, 1.5]),
    "t": ("datetime64[us]", ["2024-01-01", None, "2024-01-03"]),
    "all": ("Int8", [None, None, None]),
    "none": ("Int64", [1, 2, 3]),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_missing_items_of_pandas(tmp_path, layout):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            name: pandas.Series(items, dtype=kind)
            for name, (kind, items) in MISSING.items()
        }
    )
    with dataset.create_table(tmp_path / "t", frame, layout=layout) as table:
        table.append(frame)
        found = table.to_pandas()
        assert list(frame) == list(found)
        expected = pandas.concat([frame, frame], ignore_index=True)
        pandas.testing.assert_frame_equal(
            expected.astype({"none": "int64"}), found, check_column_type=False
        )
        part = table.to_pandas(["s", "i"], slice(1, 4))
        pandas.testing.assert_frame_equal(
            expected[["s", "i"]][1:4].reset_index(drop=True), part
        )
        assert 2 == len(table.to_pandas("i", table["i_missing"][:]))
        pandas.testing.assert_frame_equal(found[:2], table.to_pandas(rows=slice(2)))
        pandas.testing.assert_frame_equal(found[["i"]], table[["i"]].to_pandas())
        with pytest.raises(KeyError):
            table.to_pandas(["none at all"])
        with pytest.raises(UsageError, match="'none' has missing items"):
            table.append(frame.assign(none=frame["i"]))


def test_arrow(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    columns = {
        "i": np.ma.masked_array([1, 2], [True, False]),
        "s": np.ma.masked_array(["x", "y"], [False, True]),
        "v": np.ones((2, 2)),
        "t": np.array(["2024-05-01", "NaT"], "M8[D]"),
    }
    with dataset.create_table(tmp_path / "t", columns) as table:
        found = table.to_arrow()
        assert {"i": [None, 2], "s": ["x", None]} == found.select(
            ["i", "s"]
        ).to_pydict()
        assert pyarrow.list_(pyarrow.float64(), 2) == found.schema.field("v").type
        assert 1 == found["t"].null_count
        assert [2] == table.to_arrow(["i"], [1])["i"].to_pylist()


def test_chunks_of_each_column(tmp_path):
    columns = {"a": np.arange(10), "v": np.ones((10, 64, 64))}
    cut = {"chunks": {"v": (5, 16, 16)}, "shards": {"v": (5, 32, 32), "a": 5}}
    with dataset.create_table(tmp_path / "t", columns, **cut) as table:
        assert ((5, 16, 16), (5, 32, 32)) == (table["v"].chunks, table["v"].shards)
        assert ((5,), (5,)) == (table["a"].chunks, table["a"].shards)
        assert np.array_equal(columns["v"], table["v"][:])
    with pytest.raises(UsageError, match="there is no column 'b'"):
        dataset.create_table(tmp_path / "u", columns, chunks={"b": 5})


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_table_is_appended(table, tmp_path, layout):
    """The columns of another table are read in slices."""
    rows = {"s": ["x", "yz"], "n": [1.5, 2.5], "v": np.ones((2, 2), "f4")}
    wrong = dataset.create_table(tmp_path / "w", rows, layout=layout)
    with pytest.raises(UsageError, match="column 'n': expected items of dtype 'int64'"):
        table.append(wrong)
    assert 100 == len(table)
    rows["n"] = np.array([1, 2], "i2")
    other = dataset.create_table(tmp_path / "u", rows, layout=layout)
    table.append(other)
    table.append({name: other[name] for name in other.names})
    assert [99, 1, 2, 1, 2] == table["n"][99:].tolist()
    assert ["x", "yz"] == table["s"][100:102].tolist()
    assert [1.0] * 8 == table["v"][100:].ravel().tolist()


@pytest.fixture
def one_case(monkeypatch):
    """Let folders take small letters and capitals for the same, as macOS does."""

    def lowered(method):
        return lambda store, name="", *rest, **how: method(
            store, name.lower(), *rest, **how
        )

    for name in ("status_of", "_call", "at", "_hold_inside", "subfolder", "_scan"):
        monkeypatch.setattr(FolderStore, name, lowered(getattr(FolderStore, name)))


def test_names_that_the_file_system_does_not_tell_apart(table, one_case, tmp_path):
    for change in (
        lambda: table.add_column("N", np.zeros(100)),
        lambda: table.rename({"n": "N"}),
        lambda: dataset.create_table(
            tmp_path / "u", {"n": [1], "N": [2.5]}, layout=table.layout
        ),
    ):
        with pytest.raises(UsageError, match=r"can't tell the names .*n' and .*N'"):
            change()
    table.add_column("m", np.arange(100))
    assert ["n", "s", "v", "m"] == table.names
    assert np.arange(100).tolist() == table["n"][:].tolist()
    assert ["t"] == [path.name for path in tmp_path.iterdir()]
    assert dataset.verify(tmp_path / "t").ok


def test_fields_that_the_file_system_does_not_tell_apart(one_case, tmp_path):
    rows = np.zeros(3, [("x", "i4"), ("X", "f8")])
    with pytest.raises(UsageError, match="can't tell the names 'data/x' and 'data/X'"):
        dataset.create_array(tmp_path / "a", rows, layout="superchunk")
