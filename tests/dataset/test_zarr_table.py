"""Tables of the layout zarr: groups of arrays of the same length."""

from __future__ import annotations

import errno
import gc
import json
import os

import numpy as np
import pytest
from dataset import documents
from dataset.inside import Disk, FolderChange, FolderStore, LockedFolder, State

import bloscpack
from bloscpack import dataset
from bloscpack.exceptions import (
    DamageError,
    DoesNotFit,
    StorageError,
    UsageError,
)

ROWS = {
    "a": np.arange(50, dtype="i4"),
    "m": np.arange(100.0).reshape(50, 2),
    "s": np.array(["x", "yz"] * 25),
    "big": np.arange(50, dtype=">u2"),
}


@pytest.fixture
def path(tmp_path):
    dataset.create_table(
        tmp_path / "t", ROWS, chunks=8, shards=16, attrs={"x": 1}
    ).close()
    return tmp_path / "t"


def document(path):
    return json.loads((path / "zarr.json").read_text())


def assert_table(expected, path):
    """Check a table, and that the arrays of Zarr in its folder are its columns."""
    table = dataset.open_table(path)
    assert list(expected) == table.names
    for name, items in expected.items():
        np.testing.assert_array_equal(items, table[name][:])
        assert items.dtype == table[name].dtype
        assert len(items) == document(path / name)["shape"][0] == len(table)
    nodes = {p.parent.name for p in path.glob("*/zarr.json")}
    assert set(expected) == nodes


def test_files(path):
    assert {
        "zarr_format": 3,
        "node_type": "group",
        "attributes": {"column-order": ["a", "m", "s", "big"], "x": 1},
        "consolidated_metadata": {
            "kind": "inline",
            "must_understand": False,
            "metadata": {name: document(path / name) for name in ROWS},
        },
    } == documents.read(path / "zarr.json")
    assert documents.is_signed((path / "zarr.json").read_bytes())
    assert ["row"] == document(path / "a")["dimension_names"]
    assert ["row", "m_axis_1"] == document(path / "m")["dimension_names"]
    assert {"a", "m", "s", "big", "zarr.json"} == set(os.listdir(path))
    found = bloscpack.unpack_ndarray_from_file(path / "m" / "c" / "1" / "0")
    np.testing.assert_array_equal(ROWS["m"][16:32], found)
    assert_table(ROWS, path)
    assert ("zarr", 50) == (dataset.open(path).layout, len(dataset.open(path)))


def test_changes(path):
    with dataset.open_table(path, "r+") as table:
        table.append(ROWS)
        table.append(table[3:5])
        table[0] = table[4]
        table[[5, 7]] = table[3:5]
        table["a"][9] = 99
        table.resize(len(table) - 2)
        table.resize(110)
        table.attrs["y"] = 2
        table["a"].attrs["unit"] = "m"
        with pytest.raises(UsageError, match="append to the table"):
            table["a"].append([1])
    expected = {n: np.concatenate([c, c], dtype=c.dtype) for n, c in ROWS.items()}
    for items in expected.values():
        items[0], items[[5, 7]] = items[4], items[3:5]
    expected["a"][9] = 99
    for name, items in expected.items():
        expected[name] = np.zeros((110, *items.shape[1:]), items.dtype)
        expected[name][:100] = items
    assert_table(expected, path)
    table = dataset.open(path)
    assert {"x": 1, "y": 2} == dict(table.attrs)
    assert {"unit": "m"} == dict(table["a"].attrs)
    assert ["a", "m", "s", "big"] == document(path)["attributes"]["column-order"]


def test_columns_are_added_and_removed(path):
    with dataset.open_table(path, "r+") as table:
        column = table["m"]
        table.add_column("new", np.ones((50, 3), "f4"), position=1, attrs={"u": 1})
        table.remove_column("m")
        assert column.closed
        table.add_column("m", np.arange(50), shards=20, chunks=10)
        assert (10,) == table["m"].chunks
        for name in ("zarr.json", "a/b", "", "..", 5):
            with pytest.raises(UsageError, match="the name of a column"):
                table.add_column(name, ROWS["a"])
        with pytest.raises(UsageError, match="the column 'f': the layout"):
            table.add_column("f", np.zeros(50, "i4,f8"))
        with pytest.raises(DoesNotFit, match="expected '50' rows"):
            table.add_column("f", [1])
    expected = {**ROWS, "m": np.arange(50), "new": np.ones((50, 3), "f4")}
    names = ["a", "new", "s", "big", "m"]
    assert_table({name: expected[name] for name in names}, path)
    assert not (path / "f").exists()


def test_a_removed_column_is_no_array_after_a_crash(path, monkeypatch):
    """A reader that knows only Zarr must not find it: its chunks may be gone."""
    monkeypatch.setattr(FolderChange, "_remove_tree", lambda *_: None)
    with dataset.open_table(path, "r+") as table:
        table.remove_column("m")
        assert (path / "m" / "c").exists()
        assert not (path / "m" / "zarr.json").exists()
    assert_table({n: c for n, c in ROWS.items() if n != "m"}, path)
    monkeypatch.undo()
    with dataset.open_table(path, "r+") as table:
        table.add_column("m", np.arange(50))
    others = {n: c for n, c in ROWS.items() if n != "m"}
    assert_table({**others, "m": np.arange(50)}, path)


@pytest.mark.parametrize("dtype", ["i4,f8", np.longdouble])
def test_a_dtype_that_zarr_lacks(tmp_path, dtype):
    rows = {"a": np.arange(5), "f": np.zeros(5, dtype)}
    with pytest.raises(UsageError, match="the column 'f': the layout 'zarr'"):
        dataset.create_table(tmp_path / "t", rows)
    assert [] == os.listdir(tmp_path)


def test_text_among_other_objects_is_refused(tmp_path):
    for items in (["x", None, 2.5], [1, "x"], [1, None]):
        rows = {"a": np.array(items, object)}
        with pytest.raises(UsageError, match="expected text in each item"):
            dataset.create_table(tmp_path / "t", rows)
    with dataset.create_table(tmp_path / "t", {"a": np.array(["x"], object)}) as table:
        with pytest.raises(UsageError, match="expected text in each item, found 5"):
            table.append({"a": np.array(["x", 5], object)})
        table.append({"a": np.array([b"y", "z"][1:], object)})
        assert ["x", "z"] == table["a"][:].tolist()


def test_selections(path):
    table = dataset.open(path)
    rows = table[table["a"][:] % 7 == 3]
    assert [3, 10, 17, 24, 31, 38, 45] == rows["a"].tolist()
    assert ROWS["m"][3::7].tolist() == rows["m"].tolist()
    assert table.dtype == rows.dtype
    assert ROWS["big"][5:30:5].tolist() == table.columns[3][5:30:5].tolist()
    assert ("yz", 49) == (table[-1]["s"], table[-1]["big"])
    assert ["s", "a"] == list(table[["s", "a"]].dtype.names)


def test_attributes_of_other_programs_stay(path):
    text = document(path)
    text["other"] = {"must_understand": False}
    (path / "zarr.json").write_text(json.dumps(text))
    with dataset.open_table(path, "r+") as table:
        table.attrs["y"] = [1]
        table.remove_column("m")
        with pytest.raises(UsageError, match="makes a group a table"):
            table.attrs["column-order"] = []
        table.attrs.put({"z": 2})
    text["attributes"] = {"column-order": ["a", "s", "big"], "z": 2}
    del text["consolidated_metadata"]["bloscpack-id"]
    del text["consolidated_metadata"]["metadata"]["m"]
    assert text == documents.read(path / "zarr.json")
    assert documents.is_signed((path / "zarr.json").read_bytes())


def test_consolidated_metadata_are_dropped_before_a_change(tmp_path):
    group = dataset.create_group(tmp_path / "g")
    group.create_table("in/t", ROWS).close()
    group.create_array("in/a", [1, 2]).close()
    places = [tmp_path / "g", tmp_path / "g" / "in", tmp_path / "g" / "in" / "t"]

    def consolidated():
        found = [document(p).get("consolidated_metadata", OURS) for p in places]
        return [
            p
            for p, each in zip(places, found, strict=True)
            if "bloscpack-id" not in each
        ]

    for place in places:
        consolidate(place)
    for mode in ("r", "r+"):
        for place in (*places, places[1] / "a"):
            dataset.open(place, mode).close()
    assert places == consolidated()
    with dataset.open(places[1] / "a", "r+") as array:
        array.append([3])
    assert places[2:] == consolidated()

    def remove(group):
        del group["in/x"]

    def create(group):
        group.create_array("in/x", [1]).close()

    group, inner, table = places
    for place, change, kept in (
        (table, lambda opened: opened.append(ROWS), []),
        (table, lambda opened: opened["a"].attrs.put({"x": 1}), []),
        (group, lambda opened: opened["in/t"].attrs.put({"x": 1}), []),
        (group, create, [table]),
        (group, remove, [table]),
        (group, lambda opened: opened.attrs.put({"x": 1}), [inner, table]),
        (inner, lambda _: dataset.create_array(inner / "y", [1]).close(), [table]),
        (inner, lambda opened: opened.attrs.put({"x": 1}), [table]),
    ):
        for each in places:
            consolidate(each)
        with dataset.open(place, "r+") as opened:
            assert places == consolidated()
            change(opened)
        assert kept == consolidated()


# What the document of a table has: those of its columns, and its identity.
OURS = {"bloscpack-id": ""}


def consolidate(path):
    text = {**document(path), "consolidated_metadata": {"metadata": {}}}
    (path / "zarr.json").write_text(json.dumps(text))


def test_consolidated_metadata_after_a_change_that_failed(path, monkeypatch):
    """The next change drops them."""
    consolidate(path)

    def copies():
        return document(path)["consolidated_metadata"]["metadata"]

    with dataset.open(path, "r+") as table:
        create, names = Disk.create, []

        def failing(disk, name, mode):
            names.append(name)
            if len(names) > 1:  # the first one is the document without the copies
                raise OSError(errno.ENOSPC, "no room")
            return create(disk, name, mode)

        with monkeypatch.context() as patch:
            patch.setattr(Disk, "create", failing)
            with pytest.raises(OSError, match="no room"):
                table.append(ROWS)
        assert 2 == len(names)
        assert {} == copies()
        table.append(ROWS)
    assert ["a", "big", "m", "s"] == list(copies())


def test_attributes_that_change_while_consolidated_metadata_are_dropped(
    tmp_path, monkeypatch
):
    """Another writer changes the group before this one has locked it."""
    dataset.create_group(tmp_path / "g").create_array("a", [1, 2]).close()
    consolidate(tmp_path / "g")
    holding = LockedFolder.holding

    def late(rule):
        if rule.state is not State.TURNS:
            return holding(rule)
        monkeypatch.setattr(LockedFolder, "holding", holding)
        with dataset.open(tmp_path / "g", "r+") as group:
            group.attrs["x"] = 1
        consolidate(tmp_path / "g")
        return holding(rule)

    with dataset.open(tmp_path / "g/a", "r+") as array:
        monkeypatch.setattr(LockedFolder, "holding", late)
        array.append([3])
    assert {"attributes": {"x": 1}} == {
        name: value
        for name, value in documents.read(tmp_path / "g/zarr.json").items()
        if name in ("attributes", "consolidated_metadata")
    }


def test_dataframes(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "a": [1, 2, 3],
            "s": ["x", "yz", ""],
            "t": pandas.to_datetime(["2020-01-01", None, "2021-05-06"]),
            "i": pandas.array([1, 2, 3], dtype="Int64"),
        }
    )
    with dataset.create_table(tmp_path / "t", frame, attrs={"x": 1}) as table:
        assert list(frame) == table.names
        assert {"x": 1} == dict(table.attrs)
        for name in frame:
            assert (
                frame[name].isna().tolist() == table.to_pandas()[name].isna().tolist()
            )
        assert frame["s"].tolist() == table.to_pandas()["s"].tolist()
    named = frame.set_index(["s", "a"])
    part = frame[1:].reset_index(drop=True)
    for names, given in (
        (["s", "a", "t", "i"], named),
        (list(frame), part),
        (list(frame), frame.set_index(frame["s"].to_numpy())[:0]),
    ):
        with dataset.create_table(tmp_path / "n", given, mode="w") as t:
            assert names == t.names
            t.append(given)
            assert 2 * len(given) == len(t)
    wrong = {
        "different names": pandas.DataFrame([[1, 2]], columns=["a", "a"]),
        "different names, found a, a": frame[["a"]].rename_axis("a"),
        "'a': no array can have categories": pandas.DataFrame(
            {"a": pandas.Categorical(["u", "v"])}
        ),
        "'a': no array can have the time zone 'UTC'": frame[["t"]].assign(
            a=frame["t"].dt.tz_localize("UTC")
        ),
        "the name of a column": pandas.DataFrame({5: [1]}),
        "the column 'a': expected text": pandas.DataFrame({"a": ["x", None, 5]}),
        "expected a structured array, a dictionary of columns, or .*, found 5": 5,
        "the table .*: expected .* with 'names', found": [1, 2],
        "expected columns of rows, found a single value": frame["a"],
        "'b': a value ends in a zero byte": pandas.DataFrame({"b": [b"x\0"]}),
        "level '1' of the index has no name": named.rename_axis(["s", None]),
        "begins with 'x': .*rename_axis": frame.set_index(frame["s"].to_numpy()),
        r"begins with Timestamp": frame.set_index(frame["t"].rename(None)),
        r"begins with 7: .*reset_index": part.rename(lambda number: number + 7),
        r"begins with 0: .*reset_index": frame[::2],
        r"begins with 2: .*reset_index\(drop=True\)": frame[frame["a"] != 2][::-1],
    }
    for message, bad in wrong.items():
        with pytest.raises(UsageError, match=message):
            dataset.create_table(tmp_path / "wrong", bad)
    with (
        dataset.open_table(tmp_path / "t", "r+") as table,
        pytest.raises(UsageError, match="the index has no name"),
    ):
        table.append(frame.set_index(frame["s"].to_numpy()))
    assert {"t", "n"} == set(os.listdir(tmp_path))


def test_columns_of_arrow_that_numpy_does_not_take(tmp_path):
    pa = pytest.importorskip("pyarrow")
    union = pa.UnionArray.from_sparse(pa.array([0], "int8"), [pa.array([1])])
    time = pa.array([1], pa.time64("ns"))
    for column in (time, pa.chunked_array([time]), pa.array([1, None], time.type)):
        with pytest.raises(UsageError, match=r"'v': no array can have the .* 1 has"):
            dataset.create_table(tmp_path / "t", {"v": column})
    with pytest.raises(UsageError, match=r"'v': no array can have the items: .*union"):
        dataset.create_table(tmp_path / "t", {"v": union})
    for item in ("a", b"a"):
        view = pa.string_view() if item == "a" else pa.binary_view()
        for dtype in (pa.array([item]).type, view):
            rows = {"v": pa.array([item, None], dtype)}
            with dataset.create_table(tmp_path / "t", rows, mode="w") as table:
                assert [(item, False), (item[:0], True)] == table[:].tolist()
    with pytest.raises(UsageError, match="found b'a': a dtype such as 'S8'"):
        dataset.create_array(tmp_path / "a", np.array([b"a"], object))


def test_a_change_after_one_that_failed_in_the_second_column(tmp_path):
    """The first column had staged a document, which was not committed."""
    rows = {"a": np.arange(100), "b": np.arange(100)}
    with dataset.create_table(tmp_path / "t", rows, chunks=10) as table:
        document = tmp_path / "t" / "b" / "zarr.json"
        content = document.read_bytes()
        document.write_bytes(content.replace(b"100", b"90", 1))
        with pytest.raises(StorageError, match="changed its shape"):
            table.append({"a": np.arange(50), "b": np.arange(50)})
        document.write_bytes(content)
        table.resize(100)
        assert 100 == len(table) == len(table["a"])
        np.testing.assert_array_equal(rows["a"], table["a"][:])
        table.append({"a": [7], "b": [8]})
        assert 7 == table["a"][100]


def test_nothing_around_a_dataset_is_read(path, monkeypatch):
    """Only a member by its own path leads to the document around it."""
    dataset.create_group(path.parent / "g").close()
    dataset.create_array(path.parent / "alone", [1]).close()
    (path.parent / "zarr.json").write_text("not read")
    around, read, opened = [], [], FolderStore.open

    def opening(store, name, *args):
        read.append(os.path.join(store.root, name))
        return opened(store, name, *args)

    monkeypatch.setattr(FolderStore, "open", opening)
    for mode in "r", "r+":
        for name in (path, path.parent / "g", path.parent / "alone"):
            dataset.open(name, mode).close()
    assert str(path / "zarr.json") in read
    assert str(path.parent / "zarr.json") not in read
    monkeypatch.setattr(FolderStore, "parent", lambda store: around.append(store.root))
    for name in (path, path.parent / "g", path.parent / "alone"):
        dataset.open(name).close()
    assert not around
    dataset.open(path / "a").close()
    with pytest.raises(DamageError, match="in a folder around it"):
        dataset.open(path / "a", "r+")
    assert {str(path / "a")} == set(around)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        pytest.param([0.5], "the column 'b'", id="of another type"),
        pytest.param(
            [[1], [1, 2]], "the column 'b': expected items of one", id="ragged"
        ),
    ],
)
def test_an_error_of_a_column_does_not_keep_the_table_locked(tmp_path, items, message):
    path = tmp_path / "t"
    dataset.create_table(path, {"a": [1], "b": [2]}).close()
    gc.disable()
    try:
        with pytest.raises(UsageError, match=message):
            dataset.open(path, "r+").append({"a": [1], "b": items})
        dataset.open(path, "r+").close()
    finally:
        gc.enable()


@pytest.mark.parametrize("shared", [False, True])
def test_an_error_of_numpy_does_not_keep_the_array_locked(tmp_path, shared):
    path = tmp_path / "a"
    dataset.create_array(path, [1, 2]).close()
    gc.disable()
    try:
        with pytest.raises(UsageError, match="expected items of one shape"):
            dataset.open(path, "r+", shared=shared)[:] = [[1], [1, 2]]
        dataset.open(path, "r+").close()
    finally:
        gc.enable()
