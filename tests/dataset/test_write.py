"""Arrays and tables of the layout bcolz are created and changed."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tracemalloc
import zlib
from binascii import crc32

import numpy as np
import pytest
from dataset import golden_directories as golden
from dataset.inside import Disk, descriptors, with_pending
from dataset.layouts import LAYOUTS
from support import files_of

from bloscpack import dataset
from bloscpack.dataset import parallel
from bloscpack.dataset.folder import Folder
from bloscpack.dataset.layouts import find_members
from bloscpack.exceptions import FormatError, StorageError, UsageError

DTYPES = "? i1 u2 i4 >i4 u8 f2 f4 >f8 c16 S3 S300 U2 >U2 U80 M8[ns] M8[D] m8[ns] V5"


def sample(dtype, count=50):
    """Return items of a dtype, with its extreme values."""
    dtype = np.dtype(dtype)
    raw = np.random.default_rng(1).integers(0, 256, (count, dtype.itemsize), "u1")
    if dtype.kind in "USb":
        texts = [str(i % 70) * (i % 5) for i in range(count)]
        return np.array(texts).astype(dtype) if dtype.kind != "b" else raw[:, 0] > 99
    return raw.reshape(-1).view(dtype)


# Creating


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["chunks", "shards"])
def test_numbers_of_rows(tmp_path, layout, name):
    for value in ((4, 2), 2.5, "4", [4.0], True):
        with pytest.raises(UsageError, match="%s: expected a" % name):
            dataset.create_array(tmp_path / "a", [1.5], layout=layout, **{name: value})
    options = {"layout": layout, name: np.int64(4)}
    assert [1.5] == dataset.create_array(tmp_path / "a", [1.5], **options)[:].tolist()


ROUNDED = np.round(np.random.default_rng(1).normal(20, 5, 8_000), 2)


class OtherLibrary:
    """An array that can be sliced, as of Zarr."""

    shape, dtype, ndim = ROUNDED.shape, ROUNDED.dtype, 1

    def __getitem__(self, key):
        return ROUNDED[key]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_settings_that_fit(tmp_path, layout):
    def size(name, data=ROUNDED, **options):
        path = tmp_path / name
        how = {"layout": layout, "sync": False, **options}
        with dataset.create_array(path, data, **how) as array:
            assert ROUNDED.tolist() == array[:].tolist()
            return array.cbytes

    usual = size("usual")
    assert usual == size("not", auto=False)
    assert size("auto", auto=True) < 0.6 * usual
    assert size("list", ROUNDED.tolist(), auto="ratio") < 0.6 * usual
    assert size("lazy", OtherLibrary(), auto="speed") < 0.9 * usual
    size("kept", auto=True, codec="zlib", level=1)
    found = dataset.describe(tmp_path / "kept")
    assert ("zlib", 1) == (found["codec"], found["level"])
    columns = {"prices": ROUNDED, "days": np.arange(8_000)}
    options = {"layout": layout, "auto": True}
    with dataset.create_table(tmp_path / "t", columns, **options) as table:
        assert table["prices"].cbytes < 0.6 * usual
        table.add_column("more", ROUNDED, auto=True)
        assert table["more"].cbytes == table["prices"].cbytes
    for data in (None, iter([ROUNDED])):
        with pytest.raises(UsageError, match="'auto' needs the items as an array"):
            size("none", data, shape=(2,), dtype="f8", auto=True)
    with pytest.raises(UsageError, match="the goal must be one of"):
        size("none", auto="best")
    with pytest.raises(UsageError, match="has no setting 'typesize'"):
        size("none", auto=True, typesize=4)


ROW = {"a": [1.5]}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_names_of_settings(tmp_path, layout):
    for path, settings in (
        ("first", {"cname": "zlib", "clevel": 9}),
        ("other", {"codec": "zlib", "level": np.int8(9)}),
    ):
        dataset.create_array(tmp_path / path, [1.5], layout=layout, **settings).close()
        found = dataset.describe(tmp_path / path)
        assert ("zlib", 9) == (found["codec"], found["level"])
    for message, settings in (
        ("'%s' has no setting 'clevl': did you mean 'clevel'" % layout, {"clevl": 9}),
        ("did you mean 'chunks'", {"chunk_size": 9}),
        ("'clevel' and 'level' are names", {"clevel": 9, "level": 9}),
        ("did you mean 'auto'", {"atuo": True}),
        ("has no setting 'columns': the settings are .*clevel", {"columns": 9}),
    ):
        with pytest.raises(UsageError, match=message):
            dataset.create_array(tmp_path / "a", [1.5], layout=layout, **settings)
        with pytest.raises(UsageError, match=message):
            dataset.create_table(tmp_path / "a", ROW, layout=layout, **settings)


@pytest.mark.parametrize("shape", [(2**61,), (2**63,), (2**40, 2**40), (0, 2**62)])
def test_shapes_that_are_too_large(tmp_path, shape):
    with pytest.raises(UsageError, match="an array has at most"):
        dataset.create_array(tmp_path / "a", shape=shape, dtype="f8")
    assert [] == os.listdir(tmp_path)


@pytest.mark.parametrize("dtype", DTYPES.split())
def test_every_dtype(tmp_path, dtype):
    items = sample(dtype)
    with dataset.create_array(tmp_path / "a", items, layout="bcolz", chunks=16) as a:
        a.append(items[:5])
        a[3] = items[7]
        a.resize(60)
    parts = [items, items[:5], np.zeros(5, items.dtype)]
    expected = np.concatenate(parts, dtype=items.dtype)
    expected[3] = items[7]
    found = dataset.open_array(tmp_path / "a")
    assert expected.dtype == found.dtype
    assert expected.tobytes() == found[:].tobytes()


REFUSED = {
    "objects": ([None, "text"], "Python objects"),
    "fields": (np.zeros(2, "i4,f8"), "create a table"),
    "long double": (np.zeros(2, np.longdouble), "'.blp' file"),
    "no unit": (np.zeros(2, "M8"), "unit of time"),
    "empty bytes": (np.zeros(2, "V0"), "'.blp' file"),
    "no axes": (np.float64(5), "holds rows"),
    "no row": (np.zeros((5, 0)), "holds rows"),
}


@pytest.mark.parametrize(("items", "message"), REFUSED.values(), ids=REFUSED)
def test_what_can_not_be_stored(tmp_path, items, message):
    with pytest.raises(UsageError, match=message):
        dataset.create_array(tmp_path / "a", items, layout="bcolz")
    assert [] == list(tmp_path.iterdir())


def test_files_of_an_array(tmp_path):
    array = dataset.create_array(
        tmp_path / "a",
        np.arange(40, dtype="i4").reshape(20, 2),
        layout="bcolz",
        chunks=8,
        fill_value=7,
        attrs={"unit": "m"},
        cname="zstd",
        clevel=9,
        shuffle=2,
    )
    assert ((8, 2), 7, {"unit": "m"}) == (
        *(array.chunks, array.fill_value),
        array.attrs.asdict(),
    )
    array.close()
    files = files_of(tmp_path / "a")
    assert {
        *("__attrs__", "meta/sizes", "meta/storage"),
        *("data/__0.blp", "data/__1.blp", "data/__2.blp"),
    } == set(files)
    assert {
        "dtype": "int32",
        "cparams": {"clevel": 9, "shuffle": 2, "cname": "zstd", "quantize": 0},
        "chunklen": 8,
        "expectedlen": 20,
        "dflt": 7,
    } == json.loads(files["meta/storage"])
    sizes = json.loads(files["meta/sizes"])
    assert [20, 2] == sizes["shape"]
    assert 160 == sizes["nbytes"]
    assert sizes["cbytes"] > 0
    assert b"blpk\1\0\0\0\1" + bytes(7) == files["data/__0.blp"][:16]


def test_arguments(tmp_path):
    path = tmp_path / "a"
    wrong = [
        {},
        {"shape": 5},
        {"dtype": "i4"},
        {"data": [1], "shape": 2},
        {"data": [1.5], "dtype": "i4"},
        {"data": [1], "chunks": 0},
        {"data": [1], "chunks": 2**40},
        {"data": [1], "cname": "zip"},
        {"data": [1], "lvl": 5},
        {"data": [1], "level": 5, "clevel": 5},
        {"data": [1], "mode": "r"},
        {"data": [1], "attrs": {"a": object()}},
        {"data": [1], "attrs": {5: 1}},
        {"data": [1], "layout": "carray"},
        {"data": [1], "layout": "blz"},
        {"data": np.zeros(2, "M8[s]"), "fill_value": np.datetime64(5, "s")},
        {"data": np.zeros(2, "S3"), "fill_value": b"\xff"},
    ]
    for arguments in wrong:
        with pytest.raises(UsageError):
            dataset.create_array(path, **{"layout": "bcolz", **arguments})
    assert [] == list(tmp_path.iterdir())
    a = dataset.create_array(
        path, shape=(3, 2), dtype="f4", fill_value=2, layout="bcolz"
    )
    assert [[2, 2]] * 3 == a[:].tolist()


def test_an_existing_name(tmp_path):
    path = tmp_path / "a"
    dataset.create_array(path, [1, 2, 3], layout="bcolz").close()
    with pytest.raises(FileExistsError):
        dataset.create_array(path, [5], layout="bcolz")
    with dataset.create_table(path, {"x": [5]}, layout="bcolz", mode="w") as table:
        assert 5 == table[0]["x"]
        with pytest.raises(StorageError, match="another writer"):
            dataset.create_array(path, [5], layout="bcolz", mode="w")
    assert [path] == list(tmp_path.iterdir())
    (tmp_path / "other").mkdir()
    dataset.create_array(tmp_path / "other", [5], layout="bcolz", mode="w").close()
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "valuable").write_bytes(b"")
    with pytest.raises(StorageError, match="not a dataset"):
        dataset.create_array(tmp_path / "files", [5], layout="bcolz", mode="w")
    assert ["valuable"] == os.listdir(tmp_path / "files")


def test_replacing_without_an_exchange(tmp_path, monkeypatch):
    monkeypatch.setattr(Disk, "exchange", lambda *_: False)
    for count in (1, 2):
        path = tmp_path / "a"
        dataset.create_array(path, [count], layout="bcolz", mode="w").close()
        assert count == dataset.open(path)[0]
        assert [path] == list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["x" * 255, "€" * 85])  # of 255 bytes
def test_the_longest_name(name, tmp_path):
    with dataset.create_group(tmp_path / name, mode="w") as group:
        group.create_array(name, [1]).close()
        group.create_array(name, [2], mode="w").close()
        assert [2] == group[name][:].tolist()
        del group[name]
    assert [name] == os.listdir(tmp_path)


def test_leftovers_of_dead_writers_are_removed(tmp_path):
    for name in (".a.bloscpack-5", ".b.bloscpack-6", ".a.bloscpack-x"):
        (tmp_path / name).mkdir()
        (tmp_path / name / ".bloscpack-new").write_bytes(b"")
        (tmp_path / name / "file").write_bytes(b"")
    (tmp_path / ".a.bloscpack-7").mkdir()  # its writer has died before the mark
    dataset.create_array(tmp_path / "a", [5], layout="bcolz").close()
    assert {"a", ".b.bloscpack-6", ".a.bloscpack-x"} == set(os.listdir(tmp_path))


def test_a_temporary_folder_keeps_its_mark_to_the_end(tmp_path, monkeypatch):
    """A writer that dies while it removes one leaves what the next one removes."""
    left = tmp_path / ".a.bloscpack-5"
    for name in (".bloscpack-new", "a/c/0", "a/zarr.json", "file", "z"):
        (left / name).parent.mkdir(parents=True, exist_ok=True)
        (left / name).write_bytes(b"")
    remove, budget = Disk.remove, []

    def stopping(disk, name):
        if str(name).startswith(str(left)):
            if not budget:
                raise OSError
            budget.pop()
        remove(disk, name)

    monkeypatch.setattr(Disk, "remove", stopping)
    while left.exists():
        assert (left / ".bloscpack-new").exists()
        budget.append(left)
        dataset.create_array(tmp_path / "a", [5], mode="w").close()


# The hidden folder of a dataset 'a' that several processes write.
WRITING = ".a.bloscpack-writing-%08x-1" % crc32(b"a")


def empty(path):
    return dataset.create_array(path, shape=(0,), dtype="f8", chunks=4, shards=8)


def begin_and_abandon(group):
    target = parallel.target_of(group / "a", "x", True)
    target.begin(empty)
    target.abandon()


MAKERS = {
    "open": lambda group: dataset.open(group, "r+").close(),
    "create": lambda group: dataset.create_array(group / "a", [1]).close(),
    "replace": lambda group: dataset.create_array(group / "a", [1], mode="w").close(),
    "parallel": begin_and_abandon,
}


@pytest.mark.parametrize("make", ["create", "open", "parallel"])
def test_a_folder_that_only_has_the_name_of_a_temporary_one(tmp_path, make):
    """Somebody has given it the name; its files are not those of a writer."""
    group, names = tmp_path / "group", [".a.bloscpack-5", WRITING]
    dataset.create_group(group).close()
    for name in names:
        (group / name / "in").mkdir(parents=True)
        (group / name / "in" / "precious").write_text("precious")
    MAKERS[make](group)
    for name in names:
        assert "precious" == (group / name / "in" / "precious").read_text()


@pytest.mark.parametrize("make", MAKERS)
def test_links_with_the_names_of_temporary_folders(tmp_path, make):
    """No writer makes them: they stay, and what they point to is not changed."""
    group, victim = tmp_path / "group", tmp_path / "victim"
    dataset.create_group(group).close()
    if make == "replace":
        empty(group / "a").close()
    dataset.create_array(victim, [1, 2]).close()
    before = files_of(victim)
    for name in (".a.bloscpack-1", ".a.bloscpack-23", WRITING):
        (group / name).symlink_to(victim, target_is_directory=True)
    (group / ".a.bloscpack-4").symlink_to("nothing")
    MAKERS[make](group)
    links = [path.name for path in group.iterdir() if path.is_symlink()]
    assert {".a.bloscpack-1", ".a.bloscpack-23", ".a.bloscpack-4", WRITING} == {*links}
    assert before == files_of(victim)


def test_modes(tmp_path):
    path = tmp_path / "a"
    new = {"data": [1, 2], "layout": "bcolz"}
    for mode in ("r", "r+"):
        with pytest.raises(FileNotFoundError):
            dataset.open_array(path, mode)
    for mode, count in (("a", 2), ("a", 3), ("r+", 4), ("w", 2)):
        with dataset.open_array(path, mode, **new) as array:
            assert count == len(array)
            array.append([5])
    with pytest.raises(FileExistsError):
        dataset.open_array(path, "x", **new)
    with dataset.open_table(path, "w", data={"a": [1]}, layout="bcolz") as table:
        assert ["a"] == table.names
    with pytest.raises(UsageError, match="mode must be"):
        dataset.open_table(path, "rw")
    with pytest.raises(UsageError, match="'share': did you mean 'shared'"):
        dataset.open(path, "r+", share=True)


LISTS = [
    {"../other": "0"},
    {"/etc/passwd": "0"},
    {"": "0"},
    {"data/__0.blp": "../0"},
    {"data/__0.blp": "/etc/passwd"},
    {"data/__0.blp": 5},
    {"meta/sizes": "0"},
    {"../other": None},
    [],
    5,
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("files", LISTS, ids=repr)
def test_a_list_of_files_that_no_writer_wrote(tmp_path, layout, files):
    path, outside = tmp_path / "a", tmp_path / "other"
    dataset.create_array(path, [1, 2], layout=layout).close()
    outside.write_text("precious")
    (path / ".bloscpack").mkdir()
    (path / ".bloscpack" / "0").write_bytes(b"{}")
    digest = "%08x" % zlib.crc32(json.dumps(files, sort_keys=True).encode())
    place = path / ("zarr.json" if layout == "zarr" else "meta/sizes")
    document = json.loads(place.read_text())
    holder = document["attributes"] if layout == "zarr" else document
    holder["bloscpack-pending"] = {"files": files, "crc32": digest}
    place.write_text(json.dumps(document))
    for mode in ("r", "r+"):
        with pytest.raises(FormatError, match="expected 'bloscpack-pending'"):
            dataset.open(path, mode)
    assert "precious" == outside.read_text()
    assert ["0"] == os.listdir(path / ".bloscpack")


@pytest.mark.skipif(os.name == "nt", reason="symbolic links")
def test_a_folder_of_changes_elsewhere(tmp_path):
    path, other = tmp_path / "a", tmp_path / "other"
    dataset.create_array(path, [1, 2], layout="bcolz").close()
    other.mkdir()
    (other / "0").write_bytes(b"precious")
    (path / ".bloscpack").symlink_to(other)
    assert [1, 2] == dataset.open(path)[:].tolist()
    with pytest.raises(StorageError, match="symbolic link"):
        dataset.open(path, "r+")
    assert ["0"] == os.listdir(other)
    content = (path / "meta/sizes").read_bytes()
    pending = with_pending(content, {"data/__0.blp": "0"})
    (path / "meta/sizes").write_bytes(pending)
    for mode in ("r", "r+"):
        with pytest.raises(StorageError, match="symbolic link"):
            dataset.open(path, mode)[:]
    assert ["0"] == os.listdir(other)


# Changing an array


def test_values_that_do_not_fit(tmp_path):
    items = np.arange(20, dtype="u1").reshape(10, 2)
    array = dataset.create_array(tmp_path / "a", items, layout="bcolz")
    for values in (
        [[256, 0]],
        [[-1, 0]],
        [[1.5, 0]],
        [["1", "2"]],
        [[1, 2, 3]],
        5,
        [1, 2, 3],
    ):
        with pytest.raises(UsageError):
            array.append(values)
    for values in (256, -1, 1.5, "1"):
        with pytest.raises(UsageError):
            array[0] = values
    with pytest.raises(ValueError, match="broadcast"):
        array[0] = [1, 2, 3]
    with pytest.raises(IndexError):
        array[99] = 1
    for length in (-1, (5, 3), (5,)):
        with pytest.raises(UsageError):
            array.resize(length)
    assert items.tobytes() == array[:].tobytes()
    array.append([1, 2])  # a row
    array.append([])
    array.append(np.array([[3, 4]], "i8"))
    assert [[1, 2], [3, 4]] == array[10:].tolist()


def test_attributes(tmp_path):
    path = tmp_path / "a"
    with dataset.create_array(path, [1], layout="bcolz") as array:
        array.attrs["a"] = [1, {"b": None}]
        array.attrs.update({"b": 2}, c="ü")
        del array.attrs["b"]
        before = files_of(path)
        for name, value in (("x", object()), (5, 1), ("x", {1, 2})):
            with pytest.raises(UsageError):
                array.attrs[name] = value
        with pytest.raises(KeyError):
            del array.attrs["x"]
        assert {"a": [1, {"b": None}], "c": "ü"} == dict(array.attrs)
        assert files_of(path)["__attrs__"] == before["__attrs__"]
    assert {"a": [1, {"b": None}], "c": "ü"} == dict(dataset.open(path).attrs)


def test_one_writer_and_many_readers(tmp_path):
    path = tmp_path / "a"
    with dataset.create_array(path, np.arange(50), layout="bcolz", chunks=16) as array:
        reader = dataset.open(path)
        array.append(np.arange(100))
        np.testing.assert_array_equal(np.arange(50), reader[:])
        with pytest.raises(StorageError, match="another writer"):
            dataset.open(path, "r+")
    with pytest.raises(UsageError, match="closed"):
        array.append([1])
    with pytest.raises(UsageError, match="for reading"):
        reader.append([1])
    second = dataset.open(path, "r+")
    del second  # dropped without close
    dataset.open(path, "r+").close()


def test_the_next_change_completes_a_failed_commit(tmp_path, monkeypatch):
    path = tmp_path / "t"
    table = dataset.create_table(path, COLUMNS, layout="bcolz", chunks=16)
    rename = Disk.rename

    def failing(self, old, new):
        if new.endswith("sizes"):
            raise OSError(errno.EIO, "the disk fails", new)
        rename(self, old, new)

    with monkeypatch.context() as context:
        context.setattr(Disk, "rename", failing)
        with pytest.raises(OSError, match="the disk fails"):
            table.append(COLUMNS)
    twice = {n: np.concatenate([c, c]) for n, c in COLUMNS.items()}
    assert_table(twice, dataset.open(path))
    table.append(COLUMNS)
    more = {n: np.concatenate([c, c, c]) for n, c in COLUMNS.items()}
    assert_table(more, table)
    table.close()
    assert_table(more, dataset.open(path))
    assert not (path / ".bloscpack").exists()


def test_a_reader_of_removed_rows(tmp_path):
    path = tmp_path / "a"
    with dataset.create_array(path, np.arange(50), layout="bcolz", chunks=8) as array:
        reader = dataset.open(path)
        array.resize(20)
        assert list(range(20)) == reader[:20].tolist()
        with pytest.raises(FormatError, match="open the dataset again"):
            reader[40]


@pytest.mark.parametrize("layout", ["bcolz", "superchunk"])
def test_rows_that_no_file_system_holds(tmp_path, layout):
    with dataset.create_array(tmp_path / "a", [1.5], layout=layout) as array:
        with pytest.raises(UsageError, match="created with shape= does not store them"):
            array.resize(2**53)
        assert [1.5] == array[:].tolist()
    assert dataset.verify(tmp_path / "a").ok


@pytest.mark.full
def test_golden_arrays_are_appended_to(tmp_path):
    for name, entry in golden.entries().items():
        if entry["kind"] != "carray" or "object" in name or "structured" in name:
            continue
        path = tmp_path / name
        golden.extract(name, path)
        (path / "data").mkdir(exist_ok=True)
        expected = golden.values(name)
        if "snappy" in name:
            pytest.importorskip("cramjam", reason="needs the extra 'snappy'")
        with dataset.open_array(path, "r+", sync=False) as array:
            more = np.concatenate([expected, expected[:37]], dtype=expected.dtype)
            array.append(expected[:37])
            assert more.tobytes() == array[:].tobytes()
            array.resize(len(expected))
        assert expected.tobytes() == dataset.open(path)[:].tobytes()


# Tables


COLUMNS = {
    "a": np.arange(50, dtype="i4"),
    "m": np.arange(100.0).reshape(50, 2),
    "s": np.array(["x", "yz"] * 25),
}


def assert_table(expected, table):
    assert list(expected) == table.names
    for name, items in expected.items():
        np.testing.assert_array_equal(items, table[name][:])
        assert len(table) == len(items)


def test_ways_to_create_a_table(tmp_path):
    rows = np.array([(1, 2.5), (3, 4.5)], "i4,f8")
    options = {"layout": "bcolz", "mode": "w", "sync": False}
    for data, more in (
        (rows, {}),
        ({"f0": [1, 3], "f1": [2.5, 4.5]}, {"dtype": "i4,f8"}),
        ([[1, 3], [2.5, 4.5]], {"names": ["f0", "f1"], "dtype": "i4,f8"}),
    ):
        with dataset.create_table(tmp_path / "t", data, **options, **more) as table:
            assert rows.tolist() == table[:].tolist()
            assert rows.dtype == table.dtype
    with dataset.create_table(tmp_path / "t", dtype="i4,f8", **options) as table:
        assert 0 == len(table)
        table.append(rows)
        table.append(rows[0])
        table.append([[5], [6.5]])
        assert [*rows.tolist(), (1, 2.5), (5, 6.5)] == table[:].tolist()


def test_tables_that_can_not_be_made(tmp_path):
    wrong = [
        {},
        {"data": {}},
        {"data": {"a": [1], "b": [1, 2]}},
        {"data": {"a": 5}},
        {"data": {"1a": [1]}},
        {"data": {"class": [1]}},
        {"data": {"../a": [1]}},
        {"data": {"a": np.zeros(2, "i4,i4")}},
        {"data": [[1]], "names": ["a", "b"]},
        {"data": 5},
        {"dtype": "i4"},
        {"data": {"a": [1]}, "attrs": {"b": object()}},
    ]
    for arguments in wrong:
        with pytest.raises(UsageError):
            dataset.create_table(tmp_path / "t", layout="bcolz", **arguments)
    assert [] == list(tmp_path.iterdir())


def test_columns_are_added_and_removed(tmp_path):
    path = tmp_path / "t"
    with dataset.create_table(path, COLUMNS, layout="bcolz") as table:
        table.add_column(
            "first", np.arange(50), position=0, attrs={"u": 1}, cname="zlib"
        )
        table.remove_column("m")
        table.add_column("m", COLUMNS["a"] * 2)
        assert ["first", "a", "s", "m"] == table.names
        with pytest.raises(UsageError, match="has a column 'm'"):
            table.add_column("m", COLUMNS["a"])
        for name, values in (("n", [1]), ("n", 5), ("a b", COLUMNS["a"])):
            with pytest.raises(UsageError):
                table.add_column(name, values)
        for name in ("n", 0):
            with pytest.raises(KeyError):
                table.remove_column(name)
        for name in ("first", "s", "m"):
            table.remove_column(name)
        with pytest.raises(UsageError, match="must have a column"):
            table.remove_column("a")
        table.append([[50]])
    assert ["a"] == dataset.open(path).names
    assert {"__rootdirs__", "__attrs__", "a"} == set(os.listdir(path))


def test_columns_keep_their_length(tmp_path):
    with dataset.create_table(tmp_path / "t", COLUMNS, layout="bcolz") as table:
        for change in (
            lambda c: c.append([1]),
            lambda c: c.resize(3),
        ):
            with pytest.raises(UsageError, match="append to the table"):
                change(table["a"])
        for rows in ([[1]], {"a": [1]}, [[1], [[1, 2]], ["x", "y"]], 5, "text"):
            with pytest.raises(UsageError):
                table.append(rows)
        with pytest.raises(UsageError):
            table[0] = {"a": 1}
        with pytest.raises(StorageError, match="another writer"):
            dataset.open(tmp_path / "t" / "a", "r+")
        assert_table(COLUMNS, table)


def test_columns_of_different_lengths_are_made_equal(tmp_path):
    golden.extract("bcolz/z_ctable_daily_bars", tmp_path)
    sizes = tmp_path / "low" / "meta" / "sizes"
    sizes.write_text(sizes.read_text().replace("414", "400"))
    with pytest.warns(RuntimeWarning, match="had different lengths"):
        table = dataset.open(tmp_path, "r+")
    with table:
        assert {400} == {len(column) for column in table.columns.values()}


@pytest.mark.parametrize(
    ("mode", "error"), [("x", FileExistsError), ("w", StorageError)]
)
def test_a_dataset_made_meanwhile_is_not_replaced(tmp_path, mode, error):
    """With "w" it is open for changes."""
    made = []

    def blocks():
        made.append(dataset.create_array(tmp_path / "a", [7, 8]))
        if mode == "x":
            made[0].close()
        yield [1, 2, 3]

    with pytest.raises(error):
        dataset.create_array(tmp_path / "a", blocks(), mode=mode)
    assert [7, 8] == dataset.open(tmp_path / "a")[:].tolist()
    if mode == "w":
        made[0].append([9])
        assert [7, 8, 9] == dataset.open(tmp_path / "a")[:].tolist()
    assert (mode == "x") == made.pop().closed
    assert ["a"] == os.listdir(tmp_path)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("i4", "x"), ("i4", 1.5), ("i1", np.int64(300)), ("S3", b"long"), ("U1", "ab"),
        ("f4", 1e40), ("f2", 10**6), ("M8[D]", np.datetime64("2020-01-01T05")),
        ("M8[ns]", np.datetime64(2**40, "D")), ("m8[s]", np.timedelta64(5, "ms")),
        ("f8", np.complex128(1j)), ("i4", np.complex64(1)),
    ],
)  # fmt: skip
def test_fill_values_that_do_not_fit(tmp_path, layout, dtype, value):
    for data, shape in ((np.zeros(2, dtype), None), (None, 2)):
        with pytest.raises(UsageError, match="fill value"):
            dataset.create_array(
                tmp_path / "a", data, shape=shape, dtype=dtype, fill_value=value,
                layout=layout,
            )  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("i4", 2.0), ("u1", 255), ("?", 1), ("f4", 0.1), ("S3", b"ab"), ("U2", "ab"),
        ("f4", -np.inf), ("f2", 5), ("c8", 1), ("M8[ns]", np.datetime64("2020-01-01")),
        ("M8[D]", np.datetime64("2020-01-01T00")), ("m8[s]", np.timedelta64(5, "m")),
        ("M8[s]", np.datetime64("NaT", "D")), ("M8[s]", "2020-01-01"),
    ],
)  # fmt: skip
def test_fill_values_that_fit(tmp_path, layout, dtype, value):
    if layout == "bcolz" and np.dtype(dtype).kind in "mMc":
        pytest.skip("its documents have no such fill values")
    with dataset.create_array(
        tmp_path / "a", shape=0, dtype=dtype, fill_value=value, layout=layout
    ) as array:
        array.resize(1)
        assert np.array([value], dtype).tolist() == array[:].tolist()
    assert array.fill_value == dataset.open(tmp_path / "a").fill_value or (
        np.isnat(array.fill_value)
    )


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("i8", np.array([2**63], "u8")),
        ("m8[s]", np.array([2**63 + 5], "u8")),
        ("i1", np.array([200], "u1")),
        ("i4", np.array([2**32 - 1], "u4")),
        ("u8", [-1]),
        ("u1", np.array([-1], "i1")),
        ("i2", [70000]),
        ("f4", [1e300]),
        ("f2", [70000]),
        ("c8", [1e300]),
        ("M8[ns]", np.array(["9999-01-01"], "M8[D]")),
        ("M8[D]", np.array(["2020-01-01T05"], "M8[h]")),
        ("M8[Y]", np.array([5], "i8").view("M8")),
        ("U3", [5]),
        ("U3", [b"\xff"]),
        ("S3", ["a"]),
    ],
)
@pytest.mark.parametrize("layout", ["zarr", "bcolz"])
def test_values_that_would_change(tmp_path, layout, dtype, values):
    with dataset.create_array(
        tmp_path / "a", np.zeros(2, dtype), layout=layout
    ) as array:
        with pytest.raises(UsageError, match=r"does not fit|expected items|a value"):
            array.append(values)
        with pytest.raises(UsageError):
            array[0] = values[0]
        assert np.zeros(2, dtype).tolist() == array[:].tolist()


def test_floats_may_be_rounded(tmp_path):
    values = [0.1, np.inf, -np.inf, np.nan]
    with dataset.create_array(tmp_path / "a", np.zeros(0, "f4")) as array:
        array.append(values)
        assert np.array_equal(np.array(values, "f4"), array[:], equal_nan=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"data": [[1], [2]], "names": ["a", "a"]}, "different names, found a, a"),
        ({"data": {"a": [1]}, "names": ["a"]}, "the columns of dict have names"),
        ({"dtype": {"a": "i2"}}, "expected a dtype with fields"),
        ({"data": {"a": [70000]}, "dtype": [("a", "i2")]}, "the column 'a'"),
    ],
)
def test_tables_that_would_lose_data(tmp_path, arguments, message):
    with pytest.raises(UsageError, match=message):
        dataset.create_table(tmp_path / "t", **arguments)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["a/x", "t/n"])
def test_no_dataset_inside_of_another(tmp_path, layout, name):
    dataset.create_array(tmp_path / "a", np.arange(5), layout=layout).close()
    dataset.create_table(tmp_path / "t", {"v": [1]}, layout=layout).close()
    with pytest.raises(UsageError, match="which can't hold other datasets"):
        dataset.create_array(tmp_path / name, [1])
    assert [1] == dataset.open(tmp_path / "t")["v"][:].tolist()
    dataset.create_array(tmp_path / "new/deep", [1]).close()


def test_a_closed_group_and_a_name_without_characters(tmp_path, monkeypatch):
    group = dataset.create_group(tmp_path / "g")
    group.close()
    for change in (
        lambda: group.create_array("a", [1]),
        lambda: group.attrs.update(a=1),
    ):
        with pytest.raises(UsageError, match="is closed"):
            change()
    monkeypatch.chdir(tmp_path / "g")
    with pytest.raises(FileNotFoundError):
        dataset.open("")
    assert [] == list(dataset.open("."))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_folders_that_are_closed_after_each_use(tmp_path, monkeypatch, layout):
    """As if other threads opened many datasets: one that is in use stays open."""
    path = tmp_path / "t"
    monkeypatch.setattr(descriptors, "MOST_KEPT", 0)
    columns = {"x": np.arange(5), "y": np.arange(5.0)}
    for mode in ("x", "w"):
        with dataset.create_table(path, columns, layout=layout, mode=mode) as table:
            table.append(columns)
            table[2] = (7, 7)
            table.attrs["unit"] = "m"
            table.resize(8)
            table.add_column("z", np.arange(8))
    with dataset.open(path) as table:
        assert [0, 1, 7, 3, 4, 0, 1, 2] == table["x"][:].tolist()
        assert "m" == table.attrs["unit"]
    assert dataset.verify(path).ok


def test_members_that_are_listed_need_little_memory(tmp_path):
    with dataset.create_group(tmp_path / "g") as group:
        for name in "abcdefgh":
            group.create_group(name, attrs={"text": "x" * 250_000})
    folder = Folder.open(tmp_path / "g")
    tracemalloc.start()
    try:
        members = list(find_members(folder))
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()
    assert 8 == len(members)


def test_items_that_are_appended_along_an_axis_have_all_axes(tmp_path):
    with dataset.create_array(tmp_path / "a", np.zeros((3, 4))) as array:
        with pytest.raises(UsageError, match=r"apart from axis 1.*shape \(3,\)"):
            array.append([1.0, 2.0, 3.0], axis=1)
        array.append([[1.0], [2.0], [3.0]], axis=1)
        assert array[:, 4].tolist() == [1.0, 2.0, 3.0]


def test_text_that_an_array_would_cut_off_is_refused(tmp_path):
    with dataset.create_array(tmp_path / "a", ["ab", "c"]) as array:
        with pytest.raises(UsageError, match="ends in a zero byte"):
            array[0] = np.array("a\0", object)
        assert array[:].tolist() == ["ab", "c"]


@pytest.mark.parametrize("item", ["a\0", b"a\0"], ids=repr)
def test_zero_bytes_at_the_end_of_items_in_lists_are_not_dropped(tmp_path, item):
    refused = pytest.raises(UsageError, match="ends in a zero byte")
    for number, items in enumerate([[item], [[item, item]], item, iter([[item]])]):
        with refused:
            dataset.create_array(tmp_path / str(number), items)
    with refused:
        dataset.create_table(tmp_path / "t", {"x": [item]})
    dtype = np.array(item + item).dtype
    with pytest.raises(UsageError, match="the fill value"):
        dataset.create_array(tmp_path / "f", shape=2, dtype=dtype, fill_value=item)
    with dataset.create_array(tmp_path / "a", [item * 2 + item[:1]]) as array:
        for change in (array.append, lambda new: array.__setitem__(slice(1), new)):
            with refused:
                change([item])
        with refused:
            array[0] = item
    with dataset.create_array(tmp_path / "s", ["b\0"], dtype=str) as array:
        array.append(["a\0"])
        assert ["b\0", "a\0"] == array[:].tolist()


@pytest.mark.parametrize("item", ["", b""], ids=repr)
@pytest.mark.parametrize("key", [(), ...], ids=repr)
def test_an_item_without_axes_becomes_empty_text(tmp_path, item, key):
    old = np.array("abc" if isinstance(item, str) else b"abc")
    with dataset.create_array(tmp_path / "a", old) as array:
        array[key] = item
        assert item == array[()]


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (iter([1.0]), {"shape": (), "dtype": "f8"}, "shape needs an axis"),
        (None, {"shape": 3, "dtype": ("f4", (2,))}, "which has axes"),
        (np.array(["a"] * 200_000), {"dtype": "i4", "auto": True}, "found '<U1'"),
        (np.zeros(3, []), {"layout": "superchunk"}, "can't hold items of dtype"),
    ],
    ids=["iterator", "dtype with axes", "auto", "no fields"],
)
def test_data_that_do_not_fit(tmp_path, data, options, message):
    with pytest.raises(UsageError, match=message):
        dataset.create_array(tmp_path / "a", data, **options)
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        (np.arange(200_000), "u4"),
        (np.array(["a", "b"] * 100_000, dtype=object), "U1"),
        (np.ones(50_000, "i4,f4"), "i4,f8"),
    ],
    ids=["integers", "objects", "fields"],
)
def test_auto_with_items_that_are_converted(tmp_path, data, dtype):
    dtype = np.dtype(dtype)
    layout = "superchunk"  # which also holds items with fields
    dataset.create_array(tmp_path / "a", data, dtype=dtype, layout=layout, auto=True)
    found = dataset.open(tmp_path / "a")[:]
    assert dtype == found.dtype
    assert np.array_equal(found, data.astype(dtype))


READ_ONLY = """
import errno, sys
from bloscpack import dataset
for name in sys.argv[1:]:
    assert dataset.open("m/" + name) is not None
    for shared in (False, True)[: 2 if name == "zarr" else 1]:
        try:
            dataset.open("m/" + name, "r+", **({"shared": True} if shared else {}))
        except OSError as error:
            assert error.errno == errno.EROFS, error
            assert error.filename.endswith(("m/" + name).rstrip("/")), error
        else:
            raise AssertionError("it was opened for changes: " + name)
"""


def test_a_file_system_that_is_read_only(tmp_path):
    """Opening for changes is an error at once, not the first change."""
    (tmp_path / "m").mkdir()
    mount = "mount --bind src m && mount -o remount,ro,bind m"
    alone = ["unshare", "-m", "sh", "-c"]
    with dataset.create_group(tmp_path / "src") as group:
        for layout in LAYOUTS:
            group.create_array(layout, np.arange(5), layout=layout).close()
        group.create_table("t", {"x": np.arange(5)}).close()
    try:
        subprocess.run([*alone, mount], cwd=tmp_path, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this user can't mount a file system")
    program = [sys.executable, "-c", READ_ONLY, *LAYOUTS, "t", ""]
    done = subprocess.run(
        [*alone, mount + ' && exec "$@"', "sh", *program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (0, "") == (done.returncode, done.stderr)


@pytest.mark.parametrize("layout", ["zarr", "superchunk", "bcolz"])
def test_all_integers_of_c(tmp_path, layout):
    """Those of NumPy that have the same size are equal, and not the same type."""
    for code in np.typecodes["AllInteger"]:
        rows = np.ones(2, code)
        with dataset.create_array(tmp_path / code, rows, layout=layout) as array:
            array.append(rows)
        assert np.dtype(code) == dataset.open(tmp_path / code).dtype


@pytest.mark.parametrize("layout", ["zarr", "superchunk", "bcolz"])
@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([2**53 + 1, 0.5], "the integer 9007199254740993 becomes a float"),
        ([-1, np.uint64(2**64 - 1)], "the integer 18446744073709551615 becomes"),
        ([np.array([1]), np.array([2, 3])], "text in each item|of Python objects"),
    ],
)
def test_objects_that_are_refused(tmp_path, layout, items, message):
    """An integer does not become another number, nor an array text."""
    column = np.empty(2, object)
    column[:] = items
    with pytest.raises(UsageError, match="the column 'a': .*(%s)" % message):
        dataset.create_table(tmp_path / "a", {"a": column}, layout=layout)
    assert [] == os.listdir(tmp_path)


def test_integers_among_floats(tmp_path):
    column = np.array([2**53, 0.5, float("nan"), -(2**63)], object)
    dataset.create_table(tmp_path / "a", {"a": column}).close()
    expected = column.astype("f8")
    assert np.array_equal(expected, dataset.open(tmp_path / "a")["a"][:], True)


@pytest.mark.parametrize(
    ("dtype", "wrong", "right"),
    [
        ("f2", 2049, 2050),
        ("f4", 2**24 + 1, 2**24 + 2),
        (">f4", -(2**24) - 1, -(2**31)),
        ("f8", 2**53 + 1, 2**53 + 2),
        ("f8", 2**63 - 1, -(2**63)),
        ("f8", 2**64 - 1, 2**63),
        ("c8", 2**24 + 1, 2**24),
        ("c16", -(2**63) + 1, -(2**63)),
    ],
)
def test_an_integer_becomes_an_equal_float_or_is_refused(tmp_path, dtype, wrong, right):
    inputs = (
        lambda item: [item],
        lambda item: [item, 0.5],
        np.atleast_1d,
        lambda item: np.array([item, 0.5], object),
        lambda item: iter([np.array([item])]),
    )
    with dataset.create_array(tmp_path / "a", np.zeros(1, dtype)) as array:
        for given in inputs:
            with pytest.raises(UsageError, match=str(wrong)):
                array.append(given(wrong))
            array.append(given(right))
        for item in (wrong, np.array(wrong), [wrong]):
            with pytest.raises(UsageError, match=str(wrong)):
                array[0] = item
        array[0] = right
        found = array[:]
    assert {right, 0.5} == {*found.real.tolist()}
    assert len(inputs) + 3 == len(found)
    with pytest.raises(UsageError, match=str(wrong)):
        dataset.create_array(tmp_path / "b", np.array([wrong]), dtype=dtype)
    with pytest.raises(UsageError, match=str(wrong)):
        dataset.create_array(tmp_path / "b", np.zeros(1, dtype), fill_value=wrong)


@pytest.mark.parametrize("layout", ["zarr", "bcolz", "superchunk"])
def test_a_failed_append_changes_nothing(layout, tmp_path, monkeypatch):
    path = tmp_path / "t"
    table = dataset.create_table(path, COLUMNS, layout=layout, chunks=16)
    create, left = Disk.create, [3]

    def full(self, name, mode):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "the disk is full", name)
        return create(self, name, mode)

    with monkeypatch.context() as context:
        context.setattr(Disk, "create", full)
        with pytest.raises(OSError, match="the disk is full"):
            table.append(COLUMNS)
    assert_table(COLUMNS, table)
    assert_table(COLUMNS, dataset.open(path))
    assert "unused" not in {each.kind for each in dataset.verify(path).findings}
    table.append(COLUMNS)
    twice = {n: np.concatenate([c, c]) for n, c in COLUMNS.items()}
    assert_table(twice, table)
    assert_table(twice, dataset.open(path))
