"""What an array, a table and a group tell about themselves, and their members."""

from __future__ import annotations

import operator
import pickle

import numpy as np
import pytest

from bloscpack import dataset
from bloscpack.exceptions import UsageError

LAYOUTS = ("zarr", "superchunk", "bcolz")
ITEMS = np.arange(12.0).reshape(6, 2)


@pytest.fixture(params=LAYOUTS)
def array(request, tmp_path):
    options = {"layout": request.param, "attrs": {"unit": "m"}, "chunks": 4}
    with dataset.create_array(tmp_path / "a", ITEMS, **options) as made:
        yield made


@pytest.fixture
def group(tmp_path):
    with dataset.create_group(tmp_path / "g", sync=False) as made:
        made["a"] = ITEMS
        made["in/b"] = [1, 2, 3]
        made["t"] = {"x": [1, 2], "s": ["u", "<v>"]}
        yield made


# Description


def test_the_description_of_an_array(array):
    assert ("a", 8, 2) == (array.name, array.itemsize, array.nchunks)
    found = dataset.describe(array.path)
    assert {**found, "name": "a"} == array.info
    assert found["codec"] == array.codec
    lines = repr(array.info).splitlines()
    assert "shape       [6, 2]" in lines
    assert "attributes  {'unit': 'm'}" in lines


def test_the_description_of_tables_and_groups(group):
    table = group["t"]
    assert ("t", "x") == (table.name, table["x"].name)
    assert (table.dtype.itemsize, 2) == (table.itemsize, table.nchunks)
    assert "columns     x, s" in repr(table.info)
    assert "members     a, in, t" in repr(group.info)
    assert group.info["nbytes"] == ITEMS.nbytes + table.nbytes + 24


def test_notebooks(array, group):
    assert "<td>shape</td><td>(6, 2)</td>" in array._repr_html_()
    assert "<td>&#x27;&lt;v&gt;&#x27;</td>" in group["t"]._repr_html_()
    assert "<td>a</td><td>array (zarr): shape (6, 2)" in group._repr_html_()
    array.close()
    assert "closed Array" in array._repr_html_()


def test_reading_into_an_array(array):
    out = np.empty_like(ITEMS)
    assert out is array.read(out)
    np.testing.assert_array_equal(ITEMS, out)
    np.testing.assert_array_equal(ITEMS, array.read())
    reversed_rows = np.empty_like(ITEMS)
    array.read(reversed_rows[::-1])
    np.testing.assert_array_equal(ITEMS[::-1], reversed_rows)
    frozen = np.empty_like(ITEMS)
    frozen.flags.writeable = False
    for wrong in (np.empty(12), np.empty((6, 2), "f4"), [[0.0] * 2] * 6, frozen):
        with pytest.raises(UsageError, match="out: expected"):
            array.read(wrong)


def test_reading_fields_into_an_array(tmp_path):
    items = np.ones(5, [("x", "i4"), ("y", "S3")])
    with dataset.create_array(tmp_path / "s", items, layout="superchunk") as array:
        assert items.tolist() == array.read(np.zeros_like(items)).tolist()
        with pytest.raises(UsageError, match="out: expected"):
            array.read(np.zeros(1, items.dtype))


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "ge", "add", "pow", "and_"])
def test_operators(array, name):
    """They would compare objects, or be an error that does not say what to do."""
    compute = getattr(operator, name)
    for operands in ((array, 1), (1, array), (array, array)):
        with pytest.raises(TypeError, match=r"array\[:\]"):
            compute(*operands)
    with pytest.raises(UsageError):
        operator.neg(array)
    assert {array: 1}[array] == 1
    assert array in [array]


def test_refreshing(array):
    reader = dataset.open(array.path)
    array.append([[7, 8]])
    array.attrs["unit"] = "km"
    assert 6 == len(reader)
    reader.refresh()
    assert ([7, 8], "km") == (reader[-1].tolist(), reader.attrs["unit"])
    array.refresh()
    array.resize(3)
    reader.refresh()
    np.testing.assert_array_equal(ITEMS[:3], reader[:])
    reader.close()
    with pytest.raises(UsageError, match="closed"):
        reader.refresh()


# Groups


def test_the_members_of_a_group(group):
    assert ["a"] == [name for name, _ in group.arrays()]
    assert ["in"] == [name for name, _ in group.groups()]
    ((name, table),) = group.tables()
    assert ("t", group["t"]) == (name, table)
    assert group.tree() == repr(group.tree())
    assert ["g", *repr(group).splitlines()[1:]] == group.tree().splitlines()


def test_assigning_members(group):
    group["a"] = group["in/b"]
    assert [1, 2, 3] == group["a"][:].tolist()
    group["a"] = np.ones(2, [("x", "i4"), ("y", "S3")])
    assert ["x", "y"] == group["a"].names
    group["copy"] = group["in"]
    assert [1, 2, 3] == group["copy/b"][:].tolist()
    for name in ("in", "copy"):
        with pytest.raises(UsageError, match="is a group: remove it first"):
            group[name] = [1]
    with pytest.raises(UsageError):
        dataset.open(group.path)["a"] = [1]


def test_requiring_an_array(group):
    made = group.require_array("in/new", (3,), "f4", chunks=2)
    assert made is group.require_array("in/new", 3, "f4")
    for name, shape, dtype in (("a", 6, "f8"), ("a", (6, 2), "f4"), ("t", 2, "f8")):
        with pytest.raises(UsageError, match=group[name].path):
            group.require_array(name, shape, dtype)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_copying_and_moving(group, layout):
    options = {"layout": layout, "attrs": {"k": 1}}
    group.create_array("one", ITEMS, chunks=2, fill_value=9, **options)
    group.create_table("in/two", {"x": [1, 2], "y": [[1.5], [2]]}, **options)
    group["in/two/x"].attrs["unit"] = "m"
    copy = group.copy("one", "copies/one")
    assert (layout, (2, 2), 9) == (copy.layout, copy.chunks, copy.fill_value)
    group.copy("in", "copies/in")
    before = group["copies"]
    group.move("copies", "moved/here")
    assert before.closed
    for first, second in (("one", "moved/here/one"), ("in/two", "moved/here/in/two")):
        one, other = group[first], group[second]
        assert one[:].tolist() == other[:].tolist()
        assert {"k": 1} == dict(one.attrs) == dict(other.attrs)
    assert {"unit": "m"} == dict(group["moved/here/in/two/x"].attrs)
    assert "copies" not in group
    found = dataset.verify(group.path).findings
    assert {"no-checksum"} >= {each.kind for each in found}


def test_copies_and_moves_that_are_refused(group):
    for call in (group.copy, group.move):
        for source, name, error in (
            ("a", "t", FileExistsError),
            ("in", "in/inner", UsageError),
            ("in", "in", UsageError),
            ("none", "x", KeyError),
            ("a", "../x", UsageError),
            ("a", "t/x", UsageError),
        ):
            with pytest.raises(error):
                call(source, name)
    with pytest.raises(KeyError):
        group.move("t/x", "y")
    with pytest.raises(UsageError, match="expected a member"):
        group.copy(5, "x")
    with (
        dataset.open(group["in"].path, "r+"),
        dataset.open_group(group.path, "r+") as other,
    ):
        member = group["in/b"]
        with pytest.raises(OSError, match="another writer"):
            other.move("in", "elsewhere")
        assert not member.closed
    assert ["a", "in", "t"] == list(group)


def test_members_at_a_url():
    pytest.importorskip("fsspec")
    with dataset.create_group("memory://handy/g", mode="w") as group:
        group["a"] = [1, 2]
        group["t"] = {"x": [1, 2]}
        group.move("t", "in/t")
        group.copy("in", "copy")
        assert [(1,), (2,)] == group["copy/t"][:].tolist()
        assert ["a", "copy", "in"] == list(group)
        group["in/t"].rename({"x": "y"})
        with pytest.raises(UsageError, match="can't change at a URL"):
            group["in/t"].astype({"y": "f8"})
    assert ["y"] == dataset.open("memory://handy/g/in/t").names


# Columns of tables


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
    ):
        with pytest.raises(error):
            table.rename(names)
    assert ["n", "s", "v"] == table.names


def test_dtypes_of_columns(table):
    column, reader = table["s"], dataset.open(table.path)
    table.astype({"s": "U40", "n": "u1"})
    assert (["<U40", "|u1"], column) == (
        [table[name].dtype.str for name in ("s", "n")],
        table["s"],
    )
    assert "yz" == column[1]
    table.append({"n": [255], "s": ["long" * 9], "v": [[1, 2]]})
    for wrong in ({"n": "i1"}, {"s": "U1"}, {"v": "i4"}, {"s": "f8"}):
        with pytest.raises(UsageError, match="the column '%s'" % next(iter(wrong))):
            table.astype(wrong)
    with pytest.raises(KeyError):
        table.astype({"none": "i4"})
    assert ("long" * 9, 255) == (table["s"][-1], table["n"][-1])
    reader.refresh()
    np.testing.assert_array_equal(table[:], reader[:])
    table.close()
    found = dataset.verify(table.path).findings
    assert {"no-checksum"} >= {each.kind for each in found}


def test_readers_of_a_table_refresh(table):
    reader = dataset.open(table.path)
    column = reader["n"]
    table.append(table[:1])
    table.rename({"v": "w"})
    reader.refresh()
    assert (["n", "s", "w"], 101) == (reader.names, len(reader))
    assert (column, 0) == (reader["n"], column[-1])


# Missing items


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
        pandas.testing.assert_frame_equal(found[:2], table.head(2))
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
