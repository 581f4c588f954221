"""Datasets of bcolz and BLZ are read, also damaged ones and hostile ones."""

from __future__ import annotations

import ast
import errno
import json
import os
import pickle
import subprocess
import sys
import zipfile
from itertools import count

import numpy as np
import pytest
from dataset import golden_directories as golden
from dataset.inside import HAS_OPEN_FOLDERS, FolderChange, FolderStore, with_pending
from dataset.layouts import LAYOUTS, SHARDED

from bloscpack import dataset
from bloscpack.dataset.folder import Folder
from bloscpack.dataset.layouts import Found
from bloscpack.exceptions import (
    BloscpackError,
    DamageError,
    FormatError,
    NotReadable,
    ObjectDtypeFound,
    StorageError,
    Unsupported,
    UsageError,
)

NAMES = sorted(golden.entries())


def assert_same(expected, found):
    assert expected.dtype == found.dtype
    assert expected.shape == found.shape
    assert expected.tobytes() == found.tobytes()


def extracted(name, path):
    golden.extract(name, path)
    return dataset.open(path)


# What the real programs wrote


@pytest.mark.parametrize("name", NAMES)
def test_golden_directories(name, tmp_path):
    if "snappy" in name or "mixed_codec" in name:
        pytest.importorskip("cramjam", reason="needs the extra 'snappy'")
    golden.extract(name, tmp_path)
    found = dataset.open(tmp_path, allow_pickle=True)
    expected = golden.values(name)
    assert name.partition("/")[0] == found.layout
    attributes = golden.attributes(name)
    if isinstance(found, dataset.Table):
        assert set(expected) == set(found.names)
        for column, items in expected.items():
            assert_same(items, found[column][:])
        assert attributes == {
            "table": dict(found.attrs),
            "columns": {c: dict(found[c].attrs) for c in found.names},
        }
        return
    assert attributes == dict(found.attrs)
    if isinstance(expected, list):
        assert expected == list(found[:])
    elif isinstance(expected, dict):  # a structured array
        for field, items in expected.items():
            assert_same(items, np.ascontiguousarray(found[:][field]))
    else:
        assert_same(expected, found[:])


def test_description_and_iteration(tmp_path):
    with extracted("bcolz/z_shape_2d", tmp_path) as array:
        expected = golden.values("bcolz/z_shape_2d")
        assert ((107, 3), 2, 321, 321 * 4) == (
            *(array.shape, array.ndim),
            *(array.size, array.nbytes),
        )
        assert ("int32", (20, 3), None) == (array.dtype, array.chunks, array.shards)
        assert sum(p.stat().st_size for p in tmp_path.glob("data/*")) == array.cbytes
        np.testing.assert_array_equal(expected, np.concatenate([*array.iter_chunks()]))
        np.testing.assert_array_equal(expected, np.array(array))
        np.testing.assert_array_equal(expected, list(array))
        assert 107 == len(array)
        assert repr(array) == (
            "<Array '%s' (bcolz): shape (107, 3), dtype int32, chunks (20, 3)>"
            % tmp_path
        )
        column = array.attrs
        assert {} == dict(column)
    assert "closed" in repr(array)
    with pytest.raises(ValueError, match="the dataset is closed"):
        array[0]


# Tables


def test_rows_and_columns(tmp_path):
    table = extracted("bcolz/z_ctable_daily_bars", tmp_path)
    expected = golden.values("bcolz/z_ctable_daily_bars")
    names = ["open", "high", "low", "close", "volume", "day", "id"]
    assert names == table.names == list(table.columns)
    assert (414, (414,), np.dtype([(n, "u4") for n in names])) == (
        *(len(table), table.shape),
        table.dtype,
    )
    rows = np.empty(414, table.dtype)
    for name in names:
        rows[name] = expected[name]
    assert rows[7] == table[7]
    assert rows[-1].item() == table[-1].item()
    mask = expected["volume"] > np.median(expected["volume"])
    for key in (
        *(
            slice(None),
            slice(5, 9),
            slice(None, None, -50),
            slice(9, 2),
            slice(-3, None),
        ),
        *([3, -1, 3], [], mask, np.array([2, 1])),
    ):
        expected_rows = rows[:0] if isinstance(key, list) and not key else rows[key]
        np.testing.assert_array_equal(expected_rows, table[key])
    np.testing.assert_array_equal(rows[["close", "day"]], table[["close", "day"]])
    np.testing.assert_array_equal(rows, list(table))
    assert table.columns[3] is table["close"] is table.columns["close"]
    assert table.columns[-1] is table["id"]
    assert 414 * 28 == table.nbytes
    assert 0 < table.cbytes < table.nbytes


def test_what_selects_no_rows(tmp_path):
    table = extracted("bcolz/z_ctable_daily_bars", tmp_path)
    with pytest.raises(KeyError):
        table["closing"]
    for key in (414, -415, (1, 2), [414], np.ones(3, bool), np.ones((414, 1), bool)):
        with pytest.raises(IndexError):
            table[key]


def test_a_row_of_several_axes(tmp_path):
    table = extracted("bcolz/z_ctable_mixed", tmp_path)
    expected = golden.values("bcolz/z_ctable_mixed")
    row = table[3]
    for name, items in expected.items():
        np.testing.assert_array_equal(items[3], row[name])
    assert_same(expected["mat"][5:9], table[5:9]["mat"].copy())


def test_repr_of_a_table(tmp_path):
    table = extracted("bcolz/z_ctable_append_trim", tmp_path)
    lines = repr(table).splitlines()
    assert "<Table '%s' (bcolz): 94 rows, 3 columns>" % tmp_path == lines[0]
    assert ["a", "v", "s"] == lines[1].split()
    assert ["int32", "float64[2]", "<U5"] == lines[2].split()
    assert ["0", "1", "2", "...", "91", "92", "93"] == [
        line.split()[0] for line in lines[3:]
    ]
    assert {len(lines[1])} == {len(line) for line in lines[1:]}
    table.close()
    assert "columns: a, v, s" in repr(table)
    assert "closed" in repr(table)


def test_repr_of_an_empty_table(tmp_path):
    table = extracted("bcolz/z_ctable_empty", tmp_path)
    assert 3 == len(repr(table).splitlines())
    assert 0 == len(table[:])


def test_repr_escapes_text(tmp_path):
    assert "\t" not in repr(extracted("bcolz/z_ctable_mixed", tmp_path))


def test_pandas(tmp_path, monkeypatch):
    table = extracted("bcolz/z_ctable_daily_bars", tmp_path)
    with monkeypatch.context() as context:
        context.setitem(sys.modules, "pandas", None)
        with pytest.raises(UsageError, match=r"\.\[tables\]"):
            table.to_pandas()
    pytest.importorskip("pandas")
    frame = table.to_pandas()
    assert table.names == list(frame.columns)
    np.testing.assert_array_equal(table["close"][:], frame["close"].to_numpy())
    golden.extract("bcolz/z_ctable_mixed", tmp_path / "mixed")
    with pytest.raises(UsageError, match="'vec' of shape"):
        dataset.open(tmp_path / "mixed").to_pandas()


def test_columns_of_different_lengths(tmp_path):
    golden.extract("bcolz/z_ctable_daily_bars", tmp_path)
    sizes = tmp_path / "low" / "meta" / "sizes"
    sizes.write_text(sizes.read_text().replace("414", "400"))
    table = dataset.open(tmp_path)
    assert 400 == len(table) == len(table[:])
    assert table["open"][399] == table[-1]["open"]
    assert 414 == len(table["open"])


# Opening


def test_the_kind(tmp_path):
    golden.extract("bcolz/z_ctable_empty", tmp_path)
    with pytest.raises(UsageError, match="is a table; open_table"):
        dataset.open_array(tmp_path)
    with pytest.raises(UsageError, match="is an array; open_array"):
        dataset.open_table(tmp_path / "i")
    assert 0 == len(dataset.open_array(str(tmp_path / "i")))
    assert ["i", "n"] == dataset.open_table(os.fsencode(tmp_path)).names


def test_what_is_no_dataset(tmp_path):
    with pytest.raises(NotReadable, match="expected a dataset"):
        dataset.open(tmp_path)
    with pytest.raises(FileNotFoundError):
        dataset.open(tmp_path / "missing")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        dataset.open(tmp_path / "file")
    golden.extract("bcolz/z_int_i4", tmp_path / "array")
    with pytest.raises(UsageError, match="mode must be one of"):
        dataset.open(tmp_path / "array", "rw")


# Files that interrupted writers leave


@pytest.mark.parametrize("content", [None, b"", b"\n"])
def test_attributes_are_missing(tmp_path, content):
    golden.extract("bcolz/z_attrs", tmp_path)
    path = tmp_path / "__attrs__"
    path.unlink() if content is None else path.write_bytes(content)
    assert {} == dict(dataset.open(tmp_path).attrs)


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff{}", b"[" * 100_000])
def test_attributes_are_damaged(tmp_path, content):
    golden.extract("bcolz/z_attrs", tmp_path)
    (tmp_path / "__attrs__").write_bytes(content)
    array = dataset.open(tmp_path)
    assert 50 == len(array[:])
    with pytest.raises(DamageError) as caught:
        dict(array.attrs)
    assert str(tmp_path / "__attrs__") == caught.value.filename


def test_a_dialect_of_json(tmp_path):
    golden.extract("bcolz/z_attrs", tmp_path)
    (tmp_path / "__attrs__").write_text(
        '{"a": [NaN, -Infinity], "b": 123456789012345678901}'
    )
    found = dict(dataset.open(tmp_path).attrs)
    assert "[nan, -inf]" == str(found["a"])
    assert 123456789012345678901 == found["b"]


def test_a_copy_of_a_writer_reads(tmp_path):
    with dataset.create_array(tmp_path / "a", [1, 2]) as array:
        copy = pickle.loads(pickle.dumps(array))
        with pytest.raises(UsageError, match="copied or pickled object is for reading"):
            copy.append([3])


def test_a_result_larger_than_memory_is_no_damage(tmp_path):
    dataset.create_array(tmp_path / "a", shape=(2**53,), dtype="f8").close()
    with pytest.raises(Unsupported, match=r"9007199254740992.*can't be made"):
        dataset.open(tmp_path / "a")[:]


def test_a_column_without_its_document(tmp_path):
    path, columns = tmp_path / "t", {"x": [1], "y": [2]}
    dataset.create_table(path, columns, layout="bcolz").close()
    (path / "x" / "meta/storage").unlink()
    with pytest.raises(FormatError) as caught:
        dataset.open(path)
    assert str(path / "x" / "meta/storage") == str(caught.value.filename)
    (found,) = (f for f in dataset.verify(path).findings if f.severity == "error")
    assert ("x/meta/storage", "description") == (found.file, found.kind)


def test_the_document_of_a_column_that_was_lost(tmp_path):
    """The document of the table has a copy, and the next change writes it again."""
    path = tmp_path / "t"
    dataset.create_table(path, {"x": [1], "y": [2]}).close()
    own = path / "x" / "zarr.json"
    content = own.read_bytes()
    for damaged in b"", content[:-20], bytes(len(content)):
        own.write_bytes(damaged) if damaged else own.unlink()
        assert [(1, 2)] == dataset.open(path)[:].tolist()
        with dataset.open(path, "r+") as table:
            table.attrs["a"] = len(damaged)
        assert content == own.read_bytes()


def test_a_link_is_not_replaced(tmp_path):
    dataset.create_array(tmp_path / "a", [1, 2]).close()
    (tmp_path / "link").symlink_to("a")
    with pytest.raises(OSError, match="a symbolic link, and is not replaced"):
        dataset.create_array(tmp_path / "link", [3], mode="w")
    assert [1, 2] == dataset.open(tmp_path / "a")[:].tolist()


def test_attributes_of_a_reader_can_not_be_changed(tmp_path):
    array = extracted("bcolz/z_attrs", tmp_path)
    before = dict(array.attrs)
    with pytest.raises(UsageError, match=r"opened for reading.*shared=True.*layout"):
        array.attrs["a"] = 1
    assert before == dict(array.attrs)


def test_a_store_object_is_no_path():
    with pytest.raises(UsageError, match=r"found 'object': zarr\.open"):
        dataset.open(object())


@pytest.mark.parametrize(
    "call",
    [
        dataset.describe,
        dataset.find,
        dataset.verify,
        dataset.create_group,
        lambda store: dataset.convert(store, "new.zarr"),
        lambda store: dataset.convert("old.zarr", store),
        lambda store: dataset.create_array(store, [1]),
        lambda store: dataset.create_table(store, {"a": [1]}),
        lambda store: dataset.open_array(store),
        lambda store: dataset.open_group(store, "a"),
        lambda store: dataset.recover(store, "new"),
        lambda store: dataset.recover("old", store),
    ],
)
def test_every_function_expects_a_path(call):
    zarr = pytest.importorskip("zarr")
    with pytest.raises(UsageError, match="expected a path or a URL, found 'Group'"):
        call(zarr.group())


# Damage


def changed_json(path, **changes):
    value = json.loads(path.read_text())
    for key, new in changes.items():
        if new is KeyError:
            del value[key]
        else:
            value[key] = new
    path.write_text(json.dumps(value))


BAD_STORAGE = {
    "no dtype": {"dtype": KeyError},
    "dtype": {"dtype": "int33"},
    "call": {"dtype": "__import__('os')"},
    "number": {"dtype": 5},
    "no chunklen": {"chunklen": KeyError},
    "chunklen 0": {"chunklen": 0},
    "negative": {"chunklen": -5},
    "text": {"chunklen": "5"},
    "true": {"chunklen": True},
    "too large": {"chunklen": 2**29},
    "no bytes": {"dtype": "|S0"},
}


@pytest.mark.parametrize("changes", BAD_STORAGE.values(), ids=BAD_STORAGE)
def test_bad_storage(tmp_path, changes):
    golden.extract("bcolz/z_int_i4", tmp_path)
    changed_json(tmp_path / "meta" / "storage", **changes)
    with pytest.raises(DamageError, match=r"expected .*, found ") as caught:
        dataset.open(tmp_path)
    assert "metadata" == caught.value.section
    assert caught.value.filename.startswith(str(tmp_path / "meta"))


SHAPES = [[-1], [], None, "5", [1.5], [True], [2**70], [5] * 99, {}, [2**62, 3], [3, 0]]


@pytest.mark.parametrize("shape", SHAPES, ids=repr)
def test_bad_shape(tmp_path, shape):
    golden.extract("bcolz/z_int_i4", tmp_path)
    changed_json(tmp_path / "meta" / "sizes", shape=shape)
    with pytest.raises(DamageError, match=r"expected .*, found "):
        dataset.open(tmp_path)


@pytest.mark.parametrize("name", ["meta/storage", "meta/sizes"])
@pytest.mark.parametrize("content", [None, b"", b"{}", b"[]", b"5"])
def test_bad_json(tmp_path, name, content):
    golden.extract("bcolz/z_int_i4", tmp_path)
    path = tmp_path / name
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(FormatError):
        dataset.open(tmp_path)


def test_sizes_that_lie(tmp_path):
    golden.extract("bcolz/z_int_i4", tmp_path)
    changed_json(tmp_path / "meta" / "sizes", shape=[10**11])
    array = dataset.open(tmp_path)
    with pytest.raises(DamageError, match="chunks, but there are only '4' files"):
        array[:]
    with pytest.raises(DamageError, match="expected the file of a chunk"):
        array[-1]
    assert 200 == len(array[:200])
    # A larger chunk that does not exist, and files as many as there are chunks.
    changed_json(tmp_path / "meta" / "storage", chunklen=2**28)
    changed_json(tmp_path / "meta" / "sizes", shape=[2**30])
    with pytest.raises(DamageError, match="plain bytes, found"):
        dataset.open(tmp_path)[:]


@pytest.mark.slow
def test_every_bit_of_a_chunk(tmp_path):
    golden.extract("bcolz/z_int_i4", tmp_path)
    path = tmp_path / "data" / "__3.blp"
    content = path.read_bytes()
    expected = golden.values("bcolz/z_int_i4")[768:]
    places = set()
    for position in range(len(content)):
        bad = bytearray(content)
        bad[position] ^= 1 << position % 8
        path.write_bytes(bad)
        try:
            found = dataset.open(tmp_path)[768:]
            assert expected.shape == found.shape  # bcolz has no digests
        except FormatError as error:
            places.add((error.chunk, error.filename))
        path.write_bytes(content[:position])
        with pytest.raises(FormatError):
            dataset.open(tmp_path)[768:]
    assert {(3, str(path))} == places


def test_what_may_follow_a_chunk(tmp_path):
    golden.extract("bcolz/z_int_i4", tmp_path)
    path = tmp_path / "data" / "__3.blp"
    path.write_bytes(b"x" * 16 + path.read_bytes()[16:] + b"more" * 9999)
    assert_same(golden.values("bcolz/z_int_i4"), dataset.open(tmp_path)[:])


def test_without_snappy(tmp_path, monkeypatch):
    golden.extract("bcolz/b12_codec_snappy_sh1", tmp_path)
    monkeypatch.setitem(sys.modules, "cramjam", None)
    with pytest.raises(Unsupported, match=r"'\.\[snappy\]'"):
        dataset.open(tmp_path)[:]


# Safety


class Trap:
    def __reduce__(self):
        return os.mkdir, ("trapped",)


def test_nothing_is_unpickled_unless_allowed(tmp_path, monkeypatch):
    import blosc

    monkeypatch.chdir(tmp_path)
    golden.extract("bcolz/z_object", tmp_path / "array")
    chunk = blosc.compress(pickle.dumps(Trap()), typesize=1)
    (tmp_path / "array" / "data" / "__0.blp").write_bytes(bytes(16) + chunk)
    array = dataset.open("array")
    assert ("object", 6) == (array.dtype, len(array))
    with pytest.raises(ObjectDtypeFound, match="allow_pickle=True"):
        array[0]
    assert not os.path.exists("trapped")
    dataset.open("array", allow_pickle=True)[0]
    assert os.path.exists("trapped")


def test_objects(tmp_path):
    golden.extract("bcolz/z_object", tmp_path)
    array = dataset.open(tmp_path, allow_pickle=True)
    expected = golden.values("bcolz/z_object")
    assert expected[::-1] == list(array[::-1])
    assert expected[2] == array[2]
    assert [expected[4], expected[1]] == list(array[[4, 1]])
    (tmp_path / "data" / "__2.blp").write_bytes((tmp_path / "meta/sizes").read_bytes())
    with pytest.raises(FormatError):
        array[2]
    assert expected[1] == array[1]


PLACES = ["..", "../other", "/etc", "", ".", "a/../..", "a\\b", "a\0b", 5, None, ["a"]]


@pytest.mark.parametrize("place", PLACES, ids=repr)
def test_no_column_is_elsewhere(tmp_path, place):
    golden.extract("bcolz/z_ctable_empty", tmp_path / "other")
    golden.extract("bcolz/z_ctable_empty", tmp_path / "table")
    (tmp_path / "table" / "__rootdirs__").write_text(json.dumps({"names": [place]}))
    with pytest.raises(FormatError, match="'names' to be different names"):
        dataset.open(tmp_path / "table")


def test_no_column_of_blz_is_elsewhere(tmp_path):
    golden.extract("blz/btable_empty", tmp_path)
    path = tmp_path / "__rootdirs__"
    path.write_text(json.dumps({"names": ["a"], "dirs": {"a": "/old/place/a/"}}))
    assert ("blz", ["a"]) == (
        dataset.open(tmp_path).layout,
        dataset.open(tmp_path).names,
    )
    path.write_text(json.dumps({"names": ["a"], "dirs": {"a": "x/.."}}))
    with pytest.raises(FormatError, match="'dirs' to be folders"):
        dataset.open(tmp_path)


needs_links = pytest.mark.skipif(os.name == "nt", reason="symbolic links")


@needs_links
def test_links_to_the_outside(tmp_path):
    golden.extract("bcolz/z_ctable_daily_bars", tmp_path / "outside")
    golden.extract("bcolz/z_ctable_daily_bars", tmp_path / "table")
    chunk = next((tmp_path / "table" / "low" / "data").iterdir())
    chunk.unlink()
    chunk.symlink_to(tmp_path / "outside" / "low" / "data" / chunk.name)
    with pytest.raises(StorageError, match="symbolic link"):
        dataset.open(tmp_path / "table")[:]
    for name in ("low", "high/data", "close/meta"):
        path = tmp_path / "table" / name
        path.rename(tmp_path / "moved")
        path.symlink_to(tmp_path / "outside" / name)
        with pytest.raises(
            BloscpackError, match=r"symbolic link|column 'low', found no folder"
        ):
            dataset.open(tmp_path / "table")[:]
        path.unlink()
        (tmp_path / "moved").rename(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_a_pipe_in_place_of_a_file(tmp_path):
    golden.extract("bcolz/z_int_i4", tmp_path)
    chunk = tmp_path / "data" / "__0.blp"
    chunk.unlink()
    os.mkfifo(chunk)
    with pytest.raises(StorageError, match="not a regular file"):
        dataset.open(tmp_path)[0]


@pytest.mark.parametrize("layout", ["zarr", "bcolz"])
def test_a_table_of_which_a_column_is_removed_meanwhile(tmp_path, monkeypatch, layout):
    """A reader that has read the names of the columns finds one of them removed."""
    read = Folder.read_document
    with dataset.create_table(
        tmp_path / "t", {"a": np.arange(5), "extra": np.arange(5)}, layout=layout
    ) as table:

        def read_late(folder, *args):
            if "extra" in folder.full(args[0]) and "extra" in table.names:
                table.remove_column("extra")
            return read(folder, *args)

        monkeypatch.setattr(Folder, "read_document", read_late)
        found = dataset.open(tmp_path / "t")
        assert ["a"] == found.names == table.names
        assert [0, 1, 2, 3, 4] == found["a"][:].tolist()


DESCRIPTIONS = {"zarr": "zarr.json", "superchunk": "storage"}


@pytest.mark.parametrize("layout", DESCRIPTIONS)
def test_an_array_that_is_replaced_after_its_kind_was_found(
    tmp_path, monkeypatch, layout
):
    """The description that told the kind is not used any more."""
    path = tmp_path / "x"
    dataset.create_array(path, np.arange(5), layout=layout).close()
    open_it = Found.open

    def replace(found, *args):
        monkeypatch.setattr(Found, "open", open_it)
        place = path / "meta" if layout == "superchunk" else path
        other = tmp_path / "other"
        dataset.create_array(other, np.arange(7.0), layout=layout).close()
        source = other / "meta" if layout == "superchunk" else other
        for name in ("sizes", DESCRIPTIONS[layout]):
            if (source / name).exists():
                os.replace(source / name, place / name)
        return open_it(found, *args)

    monkeypatch.setattr(Found, "open", replace)
    with dataset.open(path) as found:
        assert (7,) == found.shape
        assert np.dtype("f8") == found.dtype


@pytest.mark.parametrize("was_read", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_column_that_is_replaced_while_a_table_is_open(tmp_path, layout, was_read):
    """Files of the new column are never read under the description of the old one."""
    path, old = tmp_path / "t", np.arange(50, dtype="i8")
    small = {"chunks": 5, "shards": 10} if layout in SHARDED else {"chunks": 5}
    with dataset.create_table(path, {"a": old}, layout=layout) as table:
        table.add_column("b", old, **small)
        reader = dataset.open(path)
        if was_read:
            assert old[:3].tolist() == reader["b"][:3].tolist()
        table.remove_column("b")
        with pytest.raises(StorageError, match="open the dataset again") as caught:
            reader[:]
        assert errno.ESTALE == caught.value.errno
        table.add_column("b", old / 2, **small)
        with pytest.raises(StorageError, match="open the dataset again"):
            reader["b"][20:]
        assert old.tolist() == reader["a"][:].tolist()
        table.remove_column("b")
        table.add_column("b", old + 1, **small)
        if "shards" in small:  # it has another identity
            with pytest.raises(StorageError, match="open the dataset again"):
                reader["b"][20:]
        else:
            assert list(range(21, 51)) == reader["b"][20:].tolist()
        dataset.create_array(tmp_path / "x", old, layout=layout, **small).close()
        reader = dataset.open(tmp_path / "x")
        dataset.create_array(
            tmp_path / "x", old / 2, layout=layout, mode="w", **small
        ).close()
        with pytest.raises(StorageError, match="open the dataset again"):
            reader[20:]


@pytest.mark.skipif(os.name == "nt", reason="an open file can't be removed")
def test_a_change_that_is_completed_while_it_is_read(tmp_path, monkeypatch):
    """A writer gives a file its name after the reader has read the document."""
    path = tmp_path / "a"
    dataset.create_array(path, np.arange(5)).close()
    staged = path / ".bloscpack" / "new"
    staged.parent.mkdir()
    (path / "c" / "0").rename(staged)
    document = path / "zarr.json"
    document.write_bytes(with_pending(document.read_bytes(), {"c/0": "new"}))
    with dataset.open(path) as array:
        assert 10 == array[:].sum()
    real, names = FolderStore.open, []

    def complete_and_open(self, name, *args):
        names.append(name)
        if name == ".bloscpack/new" and staged.exists():
            staged.rename(path / "c" / "0")
        return real(self, name, *args)

    monkeypatch.setattr(FolderStore, "open", complete_and_open)
    with dataset.open(path) as array:
        assert 10 == array[:].sum()
    assert {".bloscpack/new", "c/0"} <= {*names}


# A program that prints what the system is asked when an array is opened and read.
LOOKS = """
import os, sys
from bloscpack import dataset
dataset.open('x')[3]
asked = []
for name in ('lstat', 'stat'):
    def call(path, *, real=getattr(os, name), name=name, **how):
        asked.append([name, os.path.basename(path) if isinstance(path, str) else 'fd'])
        return real(path, **how)
    setattr(os, name, call)
sys.addaudithook(
    lambda event, found: event == 'open' and asked.append(['open', str(found[0])])
)
dataset.open('x')[3]
print(asked)
"""


@pytest.mark.skipif(not HAS_OPEN_FOLDERS, reason="paths are joined with names here")
def test_no_look_at_a_file_is_without_need(tmp_path):
    """The folder around the dataset is not opened, and zarr.json is read once."""
    dataset.create_array(tmp_path / "x", np.arange(50), chunks=5, shards=10).close()
    command = [sys.executable, "-c", LOOKS]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    asked = ast.literal_eval(found.stdout.decode())
    opened = [os.path.basename(path) for kind, path in asked if kind == "open"]
    assert ["x", "zarr.json", "c", "0"] == opened
    looks = [path for kind, path in asked if kind != "open"]
    # The folder itself; whether zarr.json is still the same when it is decoded, and
    # when the shard is open.
    assert ["fd", "zarr.json", "zarr.json"] == looks


def replace(path, kind, numbers):
    """Create an array, a table or a group, in place of the one at the path."""
    if kind == "array":
        dataset.create_array(path, numbers, mode="w").close()
    elif kind == "table":
        dataset.create_table(path, {"x": numbers}, mode="w").close()
    else:
        with dataset.create_group(path, mode="w") as group:
            group.create_array("x", numbers).close()


@pytest.mark.parametrize("kind", ["array", "table", "group"])
def test_a_reader_of_a_dataset_that_was_replaced(tmp_path, kind):
    replace(tmp_path / "a", kind, np.arange(3))
    found = dataset.open(tmp_path / "a")
    items = found["x"] if kind == "group" else found
    old = items[:].tolist()
    replace(tmp_path / "a", kind, np.arange(9))
    calls = [found.refresh, lambda: dict(found.attrs)]
    if kind == "group":
        calls.append(lambda: found["x"])
    for call in calls:
        with pytest.raises(StorageError, match="open the dataset again") as caught:
            call()
        assert errno.ESTALE == caught.value.errno
    assert old == items[:].tolist()  # the files are still open


def zipped(path, how):
    """Make a ZIP file of a folder."""
    with zipfile.ZipFile("%s.zip" % path, "w", how) as archive:
        for around, _, names in os.walk(path):
            for name in names:
                file = os.path.join(around, name)
                archive.write(file, os.path.relpath(file, path))
    return "%s.zip" % path


def stop_after_four_names(path, rows):
    """Change a group, and end this process while the files get their names."""
    moves, move = count(), FolderChange._move

    def moved(*args):
        if next(moves) == 4:
            os._exit(0)
        return move(*args)

    try:
        FolderChange._move = moved
        with dataset.open(path, "r+") as group, group.change():
            group["x"][:] = rows
            group["t"]["x"][:] = rows
    finally:
        os._exit(1)


@pytest.mark.parametrize("how", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("is_interrupted", [False, True])
def test_a_zip_file_of_several_shards(tmp_path, how, is_interrupted):
    path, rows = tmp_path / "g", np.arange(400)
    with dataset.create_group(path) as group:
        group.create_array("x", rows, chunks=10, shards=40)
        group.create_table("t", {"x": rows, "y": rows * 2}, chunks=10, shards=40)
        sparse = group.create_array("s", shape=400, dtype="i4", chunks=10, shards=40)
        sparse[100:120] = 1
        with group.change():
            pass
    if is_interrupted:
        if not hasattr(os, "fork"):
            pytest.skip("needs fork")
        if not os.fork():
            stop_after_four_names(path, rows + 1)
        os.wait()
        assert os.listdir(path / ".bloscpack")
        rows = rows + 1
    found = dataset.open(zipped(path, how))
    assert rows.tolist() == found["x"][:].tolist() == found["t"][:]["x"].tolist()
    assert rows[5::90].tolist() == found["x"][5::90].tolist()
    assert (400, 20) == (found["s"][:].size, found["s"][:].sum())
