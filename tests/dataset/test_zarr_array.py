"""Arrays of the layout zarr: values, files, changes, damage, and what is refused."""

from __future__ import annotations

import gc
import json
import os
import shutil
import threading
import time
import tracemalloc
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from dataset import documents
from dataset.inside import (
    HAS_OPEN_FOLDERS,
    OpenFile,
    descriptors,
)
from dataset.layouts import LAYOUTS, SHARDED
from support import open_files_in

import bloscpack
from bloscpack import dataset
from bloscpack.cli import main
from bloscpack.dataset.layouts import shard_files
from bloscpack.exceptions import (
    DoesNotFit,
    FormatError,
    StorageError,
    UsageError,
)

DTYPES = (
    "? i1 u2 <i4 >i4 u8 f2 <f4 >f8 c8 >c16 S3 S300 <U2 >U2 <U80 <M8[ns] >M8[25s] m8[D]"
)


def shards_of(path):
    """Return the files of shards, in order."""
    found = [p for p in (Path(path) / "c").rglob("*") if p.is_file()]
    return sorted(found, key=lambda p: int(p.relative_to(path).parts[1]))


def check_files(path, expected):
    """Check that each shard is a complete file with the rows of its place."""
    document = json.loads((Path(path) / "zarr.json").read_text())
    rows = document["chunk_grid"]["configuration"]["chunk_shape"][0]
    for file in shards_of(path):
        assert bloscpack.verify(file).ok
        start = int(file.relative_to(path).parts[1]) * rows
        found = bloscpack.unpack_ndarray_from_file(file)
        part = expected[start : start + rows]
        assert part.tobytes() == found[: len(part)].tobytes()


def items(dtype, *shape):
    dtype = np.dtype(dtype)
    count = int(np.prod(shape))
    if dtype.kind in "US":
        return np.array([str(i % 97) for i in range(count)], dtype).reshape(shape)
    if dtype.kind in "mM":
        return np.arange(count).astype(dtype).reshape(shape)
    return (np.arange(count) % 120).astype(dtype).reshape(shape)


@pytest.mark.parametrize("dtype", DTYPES.split())
@pytest.mark.parametrize("inner", [(), (3,), (2, 2)])
def test_every_dtype(tmp_path, dtype, inner):
    first = items(dtype, 50, *inner)
    path = tmp_path / "a"
    with dataset.create_array(path, first, chunks=8, shards=24) as array:
        array.append(first[:5])
        array[3] = first[7]
        array.resize(60)
        assert ((8, *inner), (24, *inner)) == (array.chunks, array.shards)
    parts = [first, first[:5], np.zeros((5, *inner), first.dtype)]
    expected = np.concatenate(parts, dtype=first.dtype)
    expected[3] = expected[7]
    found = dataset.open_array(path)
    assert "zarr" == found.layout
    assert expected.dtype == found.dtype
    assert expected.tobytes() == found[:].tobytes()
    assert expected[-9:30:-2].tobytes() == found[-9:30:-2].tobytes()
    assert sum(p.stat().st_size for p in shards_of(path)) == found.cbytes
    check_files(path, expected)


@pytest.mark.parametrize("rows", [0, 1, 23, 24, 25, 48])
def test_ends_of_shards(tmp_path, rows):
    expected = items("i4", rows)
    with dataset.create_array(tmp_path / "a", expected, chunks=8, shards=24) as array:
        for more in (1, 0, 23, 24, 7):
            new = items("i4", more)
            array.append(new)
            expected = np.concatenate([expected, new])
            assert expected.tolist() == array[:].tolist()
            check_files(tmp_path / "a", expected)
    assert len(shards_of(tmp_path / "a")) == -(-len(expected) // 24)


def test_rows_without_bytes(tmp_path):
    with dataset.create_array(tmp_path / "a", np.zeros((5, 0, 2))) as array:
        array.append(np.zeros((3, 0, 2)))
        array.resize(9)
        assert (9, 0, 2) == array[:].shape == dataset.open(tmp_path / "a").shape
    assert ["zarr.json"] == os.listdir(tmp_path / "a")


def test_sizes(tmp_path):
    def sizes(**arguments):
        path = tmp_path / "a"
        shutil.rmtree(path, ignore_errors=True)
        with dataset.create_array(path, shape=0, dtype="f8", **arguments) as array:
            return array.chunks[0], array.shards[0]

    chunk, shard = sizes()
    assert 0 == shard % chunk
    assert (1000, 8000) == sizes(chunks=1000, shards=8000)
    assert (1000, 1000) == sizes(shards=1000)
    assert (chunk, 2 * chunk) == sizes(shards=2 * chunk)
    for wrong in (
        {"chunks": 10, "shards": 15},
        {"shards": 0},
        {"chunks": 0},
        {"chunks": 2**40},
        {"shards": 2**31 - 1},  # a prime number
    ):
        with pytest.raises(UsageError):
            sizes(**wrong)


REFUSED = {
    "a structure": (np.zeros(2, "i4,f8"), "'<i4'.*(create a table|these layouts)"),
    "raw bytes": (np.zeros(2, "V5"), "these layouts can: .*'bcolz'"),
    "long double": (np.zeros(2, np.longdouble), "these layouts can: 'superchunk'"),
    "objects": (np.array([None, 1]), "expected text in each item, found None"),
}


@pytest.mark.parametrize(("data", "message"), REFUSED.values(), ids=REFUSED)
def test_what_can_not_be_stored(tmp_path, data, message):
    with pytest.raises(UsageError, match=message):
        dataset.create_array(tmp_path / "a", data)
    assert [] == list(tmp_path.iterdir())


# Where rows come from


class OnlySlices:
    """An array that is somewhere else, and is read in slices."""

    chunks = (7, 2)

    def __init__(self, array):
        self._array = array
        self.shape, self.dtype = array.shape, array.dtype
        self.most = 0

    def __getitem__(self, key):
        self.most = max(self.most, key.stop - key.start)
        return self._array[key]


@pytest.mark.parametrize("layout", ["zarr", "bcolz"])
def test_rows_from_elsewhere(tmp_path, layout, monkeypatch):
    monkeypatch.setattr("bloscpack.dataset.rows.READ_NBYTES", 64)
    expected = items("i4", 100, 2)
    sources = [
        lambda: OnlySlices(expected),
        lambda: iter([expected[:3], expected[3:3], expected[3:70], expected[70:]]),
        lambda: iter(expected),
        lambda: (row.astype("i8") for row in expected),
        lambda: expected.astype("i8"),
        lambda: expected.tolist(),
    ]
    for source in sources:
        path = tmp_path / "a"
        with dataset.create_array(
            path, source(), dtype="i4", shape=(100, 2), chunks=8, layout=layout
        ) as array:
            array.append(source())
            assert (200, 2) == array.shape
        twice = np.concatenate([expected, expected])
        assert twice.tolist() == dataset.open(path)[:].tolist()
        shutil.rmtree(path)
    slices = OnlySlices(expected)
    dataset.create_array(path, slices, layout=layout).close()
    assert 7 == slices.most


def test_blocks_that_do_not_fit(tmp_path):
    def blocks(*shapes):
        return (np.ones(shape) for shape in shapes)

    path = tmp_path / "a"
    with pytest.raises(UsageError):
        dataset.create_array(path, blocks((2, 2), (2, 3)), chunks=1)
    with pytest.raises(UsageError, match="expected '5' rows, found '4'"):
        dataset.create_array(path, blocks((2, 2), (2, 2)), shape=(5, 2))
    masked = np.ma.masked_equal(np.arange(3), 1)
    for data in (masked, iter([masked])):
        with pytest.raises(UsageError, match="mask would be lost"):
            dataset.create_array(path, data)
    with pytest.raises(UsageError, match="needs shape and dtype"):
        dataset.create_array(path, iter(()))
    assert [] == list(tmp_path.iterdir())
    with dataset.create_array(path, blocks((2, 2)), chunks=1) as array:
        with pytest.raises(UsageError):
            array.append(blocks((40, 2), (2, 3)))
        with pytest.raises(ZeroDivisionError):
            array.append(np.ones((40, 2)) / (1 // 0) for _ in range(2))
        assert (2, 2) == array.shape
        array.append(blocks((3, 2), (1, 2)))
        assert 12 == array[:].sum()
    assert not (path / ".bloscpack").exists()


# Changes


def forget_identity(path):
    """Write the document as a program does that knows only Zarr."""
    documents.write(path / "zarr.json", documents.read(path / "zarr.json"))


def test_missing_shards_of_other_programs_have_the_fill_value(tmp_path):
    path = tmp_path / "a"
    dataset.create_array(path, np.arange(30), chunks=4, shards=8).close()
    forget_identity(path)
    (path / "c" / "1").unlink()
    expected = np.arange(30)
    fill = expected[8:16] = -(2**63) + 2  # no plausible value
    with dataset.open(path, "r+") as array:
        assert expected.tolist() == array[:].tolist()
        assert fill == array[9]
        array[10:13] = 1
        expected[10:13] = 1
        assert expected.tolist() == array[:].tolist()
    check_files(path, expected)
    assert ["changed"] != [f.kind for f in dataset.verify(path).findings]
    forget_identity(path)
    (path / "c" / "3").unlink()
    with dataset.open(path, "r+") as array:
        array.append([5])
        expected = np.append(expected, 5)
        expected[24:30] = fill
        assert expected.tolist() == array[:].tolist()
    check_files(path, expected)


@pytest.mark.parametrize("length", [0, 8, 9, 13, 16])
def test_growing_leaves_shards_missing(tmp_path, length):
    """New rows are written only to shards that have a file, which may be stale."""
    path = tmp_path / "a"
    arguments = {"chunks": 4, "shards": 8, "fill_value": 7}
    expected, shape = np.arange(length), {"shape": length or 1, "dtype": "i8"}
    with dataset.create_array(path, **shape, **arguments) as array:
        array[:length] = expected
        array.resize(length)
    dataset.create_array(tmp_path / "b", np.arange(1, 60), **arguments).close()
    stale = path / "c" / "4"  # an append was interrupted
    stale.parent.mkdir(exist_ok=True)
    stale.write_bytes((tmp_path / "b" / "c" / "4").read_bytes())
    names = {file.name for file in shards_of(path)}
    with dataset.open_array(path, "r+") as array:
        array.attrs["unit"] = "K"
        for grown in (14, 37, 10**6):
            array.resize(max(grown, length))
            count = min(len(array), 50) - length
            found = np.append(expected, np.full(count, 7))
            assert found.tolist() == dataset.open(path)[:50].tolist()
            assert found.tolist() == array[:50].tolist()
            left = {file.name for file in shards_of(path)}
            assert left in (names, names - {"4"})  # all items of 4 have the fill value
        array.resize(20)
        array.append([3])
    found = np.concatenate([expected, np.full(20 - length, 7), [3]])
    assert found.tolist() == dataset.open(path)[:].tolist()
    check_files(path, found)
    assert dataset.verify(path).ok
    assert {"unit": "K"} == dataset.open(path).attrs.asdict()
    with pytest.raises(UsageError, match="'missing-shards'"):
        dataset.create_array(tmp_path / "x", [1], attrs={"missing-shards": 1})
    with dataset.open_array(path, "r+") as array:
        array.attrs["unit"] = "mK"
    assert dataset.recover(path, tmp_path / "saved").complete
    assert found.tolist() == dataset.open(tmp_path / "saved")[:].tolist()


def test_no_array_is_larger_than_readers_accept(tmp_path):
    with dataset.create_array(tmp_path / "a", [1, 2]) as array:
        for length in (2**60, 2**70):
            with pytest.raises(UsageError, match="an array has at most"):
                array.resize(length)
        assert 2 == len(dataset.open(tmp_path / "a"))


def test_readers_keep_their_rows(tmp_path):
    path = tmp_path / "a"
    array = dataset.create_array(path, np.arange(30), chunks=4, shards=8)
    reader, other, late = (dataset.open(path) for _ in range(3))
    assert 29 == reader[29]  # opens the last file
    array.append(np.arange(100))
    assert list(range(30)) == reader[:].tolist() == other[:].tolist()
    array[29] = -1
    assert 29 == reader[28:][1]  # the file that it has opened
    array.resize(3)
    for rows in slice(None), slice(3):
        with pytest.raises(StorageError, match="removed rows"):
            late[rows]
    array.close()


def test_copying_without_the_system(tmp_path, monkeypatch):
    path = tmp_path / "a"
    array = dataset.create_array(path, np.arange(60), chunks=8, shards=80)

    def refuse(*arguments):
        raise OSError(18, "another file system")

    monkeypatch.setattr(os, "copy_file_range", refuse, raising=False)
    array.append([60])
    monkeypatch.delattr(os, "copy_file_range")
    array.append([61])
    array.close()
    assert list(range(62)) == dataset.open(path)[:].tolist()
    check_files(path, np.arange(62))


@pytest.mark.skipif(not hasattr(os, "copy_file_range"), reason="needs Linux")
@pytest.mark.parametrize("chunks", [4, (4, 1)])
def test_chunks_that_stay_are_copied_as_whole_blocks(tmp_path, monkeypatch, chunks):
    """A file system shares blocks only if they begin where blocks begin in both."""
    copies = []

    def copy(source, target, count, start, stop):
        copies.append((start, stop))
        return call(source, target, count, start, stop)

    items = np.arange(60).reshape(30, 2)
    dataset.create_array(tmp_path / "a", items, chunks=chunks, shards=64).close()
    call = os.copy_file_range
    monkeypatch.setattr(os, "copy_file_range", copy)
    with dataset.open(tmp_path / "a", "r+") as array:
        array.append(items[:3])
    assert (0, 0) == copies[0]
    assert dataset.verify(tmp_path / "a").ok
    assert [*items.tolist(), *items[:3].tolist()] == dataset.open(tmp_path / "a")[
        :
    ].tolist()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
@pytest.mark.parametrize("layout", SHARDED)
def test_few_files_are_open(tmp_path, monkeypatch, layout):
    monkeypatch.setattr("bloscpack.dataset.layouts.array_files.LIMIT", 10)
    monkeypatch.setattr(descriptors, "MOST_KEPT", 12)
    path = tmp_path / "a"
    options = {"chunks": 1, "shards": 1, "layout": layout}
    dataset.create_array(path, np.arange(90), **options).close()
    arrays = [dataset.open(path) for _ in range(4)]
    for _ in range(2):
        for array in arrays:
            assert list(range(90)) == array[:].tolist()
            opened = open_files_in(path)
            assert len([name for name in opened if os.path.isfile(name)]) <= 10
            assert len(opened) <= 12 + 4 * 2  # two folders inside of each array
    assert [5] * 4 == [array[5] for array in arrays]
    del array, arrays
    assert [] == open_files_in(path)


@pytest.mark.parametrize("layout", SHARDED)
def test_chunks_of_several_blocks(tmp_path, layout):
    items = np.arange(2**17).reshape(-1, 64)
    settings = {"chunks": 512, "cname": "zstd", "clevel": 1, "layout": layout}
    dataset.create_array(tmp_path / "a", items, **settings).close()
    used = dataset.open(tmp_path / "a")
    rng = np.random.default_rng(3)
    for i, j in rng.integers(0, 64, (30, 2)).tolist():
        first = 32 * i
        keys = (first, j), slice(first, first + 3), (slice(i, None, 100), slice(j))
        for key in (*keys, (slice(first, None), j), (rng.integers(0, 2048, 4), i)):
            for array in used, dataset.open(tmp_path / "a"):
                np.testing.assert_array_equal(items[key], array[key])


def test_damage_in_a_block_that_is_not_needed(tmp_path):
    items = np.random.default_rng(5).integers(0, 2**40, 2**15)
    settings = {"chunks": 2**15, "cname": "zstd", "clevel": 1}
    dataset.create_array(tmp_path / "a", items, **settings).close()
    file = tmp_path / "a" / "c" / "0"
    with bloscpack.open_ndarray(file) as lazy:
        _, stop = lazy._parts.extents()[0]
    content = bytearray(file.read_bytes())
    content[stop - 10] ^= 1
    file.write_bytes(content)
    array = dataset.open(tmp_path / "a")
    assert items[5] == array[5]
    for key in (-1, slice(None)):
        with pytest.raises(FormatError, match=r"(?s)Checksum.*chunk 0"):
            array[key]
    assert "digest" in [f.kind for f in bloscpack.verify(tmp_path / "a").findings]


def test_bounded_memory(tmp_path):
    block = np.random.default_rng(1).integers(0, 256, 2**20, "u1")
    arguments = {"chunks": 2**16, "shards": 2**22, "sync": False}
    array = dataset.create_array(tmp_path / "a", block[:0], **arguments)
    array.append(block)  # imports what is imported lazily
    tracemalloc.start()
    array.append(block for _ in range(40))
    array.append([1])
    array.resize(600 * 2**20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    array.close()
    # How many blocks wait for a thread depends on the load of the machine.
    assert peak < 16 * 2**20
    found = dataset.open(tmp_path / "a")
    assert block.tobytes() == found[40 * 2**20 : 41 * 2**20].tobytes()


# Damage


def test_links_are_refused(tmp_path):
    path = tmp_path / "a"
    dataset.create_array(path, np.arange(20)).close()
    (path / "c" / "0").rename(tmp_path / "0")
    (path / "c" / "0").symlink_to(tmp_path / "0")
    with pytest.raises(StorageError, match="symbolic link"):
        dataset.open(path)[:]
    shutil.rmtree(path / "c")
    (tmp_path / "c").mkdir()
    (path / "c").symlink_to(tmp_path / "c")
    with pytest.raises(StorageError, match=r"symbolic link.*a/c'"):
        dataset.open(path)[:]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_closing_closes_the_files(tmp_path, layout):
    """Room of removed files is free again at once, not when garbage is collected."""
    gc.disable()
    try:
        with dataset.create_array(tmp_path / "a", np.arange(9), layout=layout) as array:
            assert 36 == array[:].sum()
        rows = {"x": np.arange(9)}
        with dataset.create_table(tmp_path / "t", rows, layout=layout) as table:
            assert 36 == table["x"][:].sum()
        with dataset.open(tmp_path / "a") as read:
            assert 36 == read[:].sum()
        with dataset.open(tmp_path / "a", "r+") as array:
            array.append([9])
            assert not [n for n in open_files_in(tmp_path) if n.endswith("(deleted)")]
        for mode in "r", "r+":  # without closing: the last reference is dropped
            assert 36 == dataset.open_table(tmp_path / "t", mode)[:]["x"].sum()
        assert [] == open_files_in(tmp_path)
    finally:
        gc.enable()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_errors_name_the_dataset(tmp_path, layout):
    """The limit of the size of a file fails like a full disk, without a name."""
    resource = pytest.importorskip("resource")
    path, items = tmp_path / "a", np.random.default_rng(1).random(20_000)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            dataset.create_array(path, items, layout=layout)
        assert str(caught.value).endswith("File too large: %r" % str(path))
        with dataset.create_array(path, items[:10], layout=layout) as array:
            with pytest.raises(OSError, match="File too large") as caught:
                array.append(items)
            assert str(path) == caught.value.filename
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert 10 == len(dataset.open(path))


@pytest.mark.parametrize("layout", SHARDED)
def test_a_reader_does_not_take_removed_chunks_for_missing_ones(tmp_path, layout):
    path = tmp_path / "a"
    options = {"chunks": 10, "shards": 100, "layout": layout}
    with dataset.create_array(path, np.arange(1, 101), **options) as array:
        reader = dataset.open(path)
        array.resize(10)
        array.append([7])
        with pytest.raises((StorageError, FormatError), match="removed rows"):
            reader[50:53]
        array.append(np.arange(89))
        if layout == "zarr":  # the index that the reader has kept is too old
            assert [39, 40, 41] == reader[50:53].tolist()


@pytest.mark.parametrize("layout", SHARDED)
def test_a_reader_does_not_take_the_padding_of_a_chunk_for_rows(tmp_path, layout):
    path = tmp_path / "a"
    options = {"chunks": 10, "shards": 20, "layout": layout}
    with dataset.create_array(path, np.arange(1, 19), **options) as array:
        reader = dataset.open(path)
        array.resize(13)
        array.append([14])  # the last chunk has 4 rows, and 6 that are padding
        with pytest.raises((StorageError, FormatError), match="removed rows"):
            reader[16]
        array.append(np.arange(15, 40))
        if layout == "zarr":
            assert list(range(1, 19)) == reader[:].tolist()


def test_a_folder_of_shards_that_is_a_link_to_elsewhere_is_refused(tmp_path):
    path = tmp_path / "a"
    dataset.create_array(path, np.zeros((4, 2)), chunks=1, shards=2).close()
    (path / "c" / "1").rename(tmp_path / "elsewhere")
    (path / "c" / "1").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match=r"symbolic link.*c/1'"):
        dataset.open(path)[:]
    outside = pytest.raises(StorageError, match=r"symbolic link.*c/1'")
    with dataset.open(path, "r+") as array, outside:
        array.resize(2)
    assert (tmp_path / "elsewhere" / "0").exists()


def test_documents_that_would_take_all_memory_or_time(tmp_path):
    path = tmp_path / "a"
    dataset.create_array(path, [1, 2, 3], dtype="u1", chunks=1, shards=1).close()
    good = json.loads((path / "zarr.json").read_text())

    def put(shape, shard, chunk):
        good["shape"] = [shape]
        good["chunk_grid"]["configuration"]["chunk_shape"] = [shard]
        good["codecs"][0]["configuration"]["chunk_shape"] = [chunk]
        (path / "zarr.json").write_text(json.dumps(good))

    put(2**40, 2**40, 2**40)
    with pytest.raises((FormatError, UsageError), match="its chunks have more than"):
        dataset.open(path)
    put(0, 2**40, 1)
    refused = pytest.raises((FormatError, UsageError), match="can't be written")
    with dataset.open(path, "r+") as array, refused:
        array.append([1])
    put(2**60, 1, 1)
    with dataset.open(path, "r+") as array:
        array.resize(2)
        assert [1, 2] == array[:].tolist()
    assert 2 == len(shards_of(path))


def test_an_append_of_one_chunk(tmp_path, monkeypatch):
    """It starts no thread."""
    started = []
    start = threading.Thread.start

    def count_start(thread):
        started.append(thread)
        start(thread)

    rows = np.arange(60_000).reshape(-1, 4)
    with dataset.create_array(tmp_path / "x", rows, chunks=4096, shards=8192) as array:
        array.append(rows[:1])  # the first change looks at the groups around, too
        monkeypatch.setattr(threading.Thread, "start", count_start)
        array.append(rows[:100])
        assert np.array_equal(rows[:100], array[-100:])
        assert [] == started
    with dataset.open(tmp_path / "x") as array:
        assert np.array_equal(rows[:100], array[-100:])


@pytest.mark.skipif(not HAS_OPEN_FOLDERS, reason="the document can't be held open")
def test_the_document_is_read_once_per_opening_and_once_per_change(
    tmp_path, monkeypatch
):
    path = tmp_path / "a"
    dataset.create_array(path, items("f8", 40), chunks=4, shards=8).close()
    reads, decoded = [], []
    open_file, decode = OpenFile.__init__, json.loads

    def counting(file, store, name):
        reads.append(store.path(name))
        open_file(file, store, name)

    def decoding(*arguments, **settings):
        decoded.append(arguments)
        return decode(*arguments, **settings)

    def count():
        found = reads.count(str(path / "zarr.json")), len(decoded)
        reads.clear()
        decoded.clear()
        return found

    monkeypatch.setattr(OpenFile, "__init__", counting)
    monkeypatch.setattr(json, "loads", decoding)
    with dataset.open(path) as array:
        array[3:30]
    assert (1, 0) == count()  # this process knows its text since it was created
    with dataset.open(path, "r+") as array:
        assert (1, 0) == count()
        for _ in range(3):  # also the first change, which prepares others
            array.append(items("f8", 5))
            nreads, ndecoded = count()
            assert nreads == 1
            assert ndecoded <= 2  # once, if its text was kept
        array[3:30]
    assert (0, 0) == count()
    assert 55 == len(dataset.open(path))


def test_arrays_with_the_same_document_change_alone(tmp_path):
    path, other = tmp_path / "a", tmp_path / "b"
    settings = {"chunks": 4, "shards": 8, "attrs": {"x": [1]}}
    dataset.create_array(path, shape=40, dtype="f8", **settings).close()
    shutil.copytree(path, other)
    before = dataset.open(other)
    with dataset.open(path, "r+") as array:
        array.append(items("f8", 5))
        array.attrs["y"] = 2
        array.attrs["x"].append(3)
    before.attrs["x"].append(4)
    for found in (before, dataset.open(other)):
        assert (40,) == found.shape
        assert not found[:].any()
    assert {"x": [1]} == dataset.open(other).attrs.asdict()


@pytest.mark.parametrize("listed_from", [0, 64])
@pytest.mark.parametrize("shape", [(300,), (20, 30)])
def test_missing_files(tmp_path, monkeypatch, listed_from, shape):
    monkeypatch.setattr(shard_files, "LISTED_FROM", listed_from)
    axes = len(shape)
    path, cut = tmp_path / "a", {"chunks": (1,) * axes, "shards": (2,) * axes}
    expected = np.full(shape, 7, "i2")
    with dataset.create_array(
        path, shape=shape, dtype="i2", fill_value=7, **cut
    ) as array:
        for index in ((0,) * axes, (5,) * axes, tuple(n - 1 for n in shape)):
            array[index] = expected[index] = sum(index)
    for key in (..., slice(1, None, 3), [0, 5, 5, -1], (slice(None),) * axes):
        with dataset.open(path) as array:
            assert expected[key].tolist() == array[key].tolist()
            os.rename(path / "c", path / "d")  # a file that is open is read
            assert expected[key].tolist() == array[key].tolist()
            os.rename(path / "d", path / "c")


def test_many_missing_files(tmp_path):
    """None of them is looked for by itself."""
    shape = (100_000,)
    dataset.create_array(
        tmp_path / "a", shape=shape, dtype="u1", chunks=1, shards=1
    ).close()
    start = time.process_time()
    with dataset.open(tmp_path / "a") as array:
        assert not array[:].any()
    assert time.process_time() - start < 5


# Fill values


def stored_fill(path):
    """Return the fill value in the document, and whether files may be missing."""
    document = json.loads((Path(path) / "zarr.json").read_text())
    return document["fill_value"], "missing-shards" in document["bloscpack"]


@pytest.mark.parametrize(
    ("items", "fill", "stored"),
    [
        (np.arange(20, dtype="u1"), 0, (0, True)),
        (np.arange(20, dtype="u1"), 129, (129, False)),
        (np.arange(20, dtype="u1"), None, (129, False)),
        (np.arange(20.0), np.nan, ("NaN", True)),
        (np.arange(20.0), None, (9.969209968386869e36, False)),
        (np.arange(20) > 3, False, (False, True)),
        (np.arange(20) > 3, None, (True, True)),
        (np.array(["a"] * 20, object), "no", ("no", True)),
        (np.arange(20).astype("M8[s]"), np.datetime64(5, "s"), (5, True)),
    ],
)
@pytest.mark.parametrize("source", ["data", "rows", "table", "group", "copy"])
def test_a_given_fill_value_is_in_the_document(tmp_path, items, fill, stored, source):
    path, cut = tmp_path / "a", {"chunks": 4, "shards": 8}
    if source == "data":
        dataset.create_array(path, items, fill_value=fill, **cut).close()
    elif source == "rows":
        like = {"shape": 0, "dtype": items.dtype}
        with dataset.create_array(path, **like, fill_value=fill, **cut) as array:
            array.append(items)
    elif source == "table":
        path /= "x"
        with dataset.create_table(path.parent, {"n": np.arange(20)}) as table:
            table.add_column("x", items, fill_value=fill, **cut)
            table.rename({"x": "y"})
            table.rename({"y": "x"})
    else:
        path /= "x"
        with dataset.create_group(path.parent) as group:
            array = group.create_array("x", items, fill_value=fill, **cut)
            group["y"] = array
    assert stored == stored_fill(path)
    with dataset.open(path.parent if source == "table" else path, "r+") as opened:
        opened.resize(30)
    found = dataset.open(path)
    np.testing.assert_array_equal(items, found[:20])
    if fill is not None:
        np.testing.assert_array_equal(np.full(10, fill, items.dtype), found[20:])
    assert dataset.verify(path.parent if source == "table" else path).ok


def test_other_programs_enlarge_an_array_by_its_fill_value(tmp_path):
    zarr = pytest.importorskip("zarr", minversion="3", reason="no zarr-python 3")
    for name, items, fill in (("l", np.arange(1, 9), 0), ("f", np.ones(8), np.nan)):
        path = tmp_path / name
        dataset.create_array(path, items, fill_value=fill, chunks=4).close()
        array = zarr.open_array(path, mode="r+")
        array.resize(12)
        expected = [*items, *[fill] * 4]
        np.testing.assert_array_equal(expected, array[:])
        np.testing.assert_array_equal(expected, dataset.open(path)[:])


def test_a_lost_shard_of_an_array_with_a_fill_value_is_a_note(tmp_path):
    path, cut = tmp_path / "a", {"chunks": 4, "shards": 4}
    dataset.create_array(path, np.arange(1, 13), fill_value=0, **cut).close()
    (path / "c" / "1").unlink()
    assert [1, 2, 3, 4, 0, 0, 0, 0, 9] == dataset.open(path)[:9].tolist()
    (found,) = dataset.verify(path).findings
    assert ("missing", "note", (4, 8)) == (found.kind, found.severity, found.rows)
    dataset.create_array(path, np.arange(1, 13), mode="w", **cut).close()
    (path / "c" / "1").unlink()
    with pytest.raises(FormatError, match="rows 4 to 8"):
        dataset.open(path)[:9]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("fill", [None, 7])
def test_copies_between_layouts_keep_the_fill_value(tmp_path, layout, fill):
    source, path = tmp_path / "a", tmp_path / "b"
    options = {"layout": layout, "fill_value": fill}
    dataset.create_array(source, np.arange(5), **options).close()
    main(["convert", "-q", "--to", "zarr", str(source), str(path)])
    automatic = -(2**63) + 2, False
    assert (automatic if fill is None else (7, True)) == stored_fill(path)
    assert (fill or 0) == dataset.open(path).fill_value


# Shards of fill values


def kinds_of_items():
    return [
        (np.dtype("u1"), 0, 7),
        (np.dtype("f8"), np.nan, 1.5),
        (np.dtype("U3"), "ab", "c"),
        (np.dtype(object), "", "text"),
        (np.dtype("?"), False, True),
    ]


@pytest.mark.parametrize(("dtype", "fill", "value"), kinds_of_items())
def test_shards_of_fill_values_have_no_files(tmp_path, dtype, fill, value):
    path, expected = tmp_path / "a", np.full((8, 10), fill, dtype)
    new = {"shape": (8, 10), "dtype": dtype, "fill_value": fill}
    with dataset.create_array(path, **new, chunks=(2, 3), shards=(4, 6)) as array:

        def check(*names):
            np.testing.assert_array_equal(expected, array[:])
            np.testing.assert_array_equal(expected, dataset.open(path)[:])
            found = {p.relative_to(path / "c").as_posix() for p in files(path)}
            assert {*names} == found
            assert [] == dataset.verify(path).findings

        def assign(key, given):
            array[key] = expected[key] = given

        def files(path):
            return [p for p in (path / "c").rglob("*") if p.is_file()]

        assign(..., fill)
        check()
        assign((slice(1, 7), 7), value)
        assign((slice(None), slice(0, 6)), fill)
        check("0/1", "1/1")
        assign((slice(0, 4), 7), fill)  # a column, so that other chunks are kept
        check("1/1")
        assign((1, 1), value)
        old = dataset.open(path)
        np.testing.assert_array_equal(expected, old[:])
        assign((1, 1), fill)
        check("1/1")
        np.testing.assert_array_equal(expected, old[:])  # of one state
        array.resize((9, 10))
        expected = np.full((9, 10), fill, dtype)
        expected[:8] = array[:8]
        array.append(np.full((7, 10), fill, dtype))
        expected = np.concatenate([expected, np.full((7, 10), fill, dtype)])
        check("1/1")
        assign((slice(None)), fill)
        check()
        with pytest.raises(DoesNotFit) if dtype.kind in "fu" else nullcontext():
            array.append([["x" if dtype.kind in "fu" else fill] * 10])


def test_a_volume_of_few_labels_takes_little_room(tmp_path):
    labels = np.zeros((80, 256, 256), "u2")
    labels[40:44, 100:110, 100:110] = 7
    path = tmp_path / "a"
    with dataset.create_array(path, shape=labels.shape, dtype="u2") as array:
        array[:] = labels
        assert array.cbytes < 9000
        for number, plane in enumerate(labels):
            array[number] = plane
        assert array.cbytes < 9000
    np.testing.assert_array_equal(labels, dataset.open(path)[:])


def test_a_removed_shard_is_not_read_with_new_ones(tmp_path):
    path, cut = tmp_path / "a", {"chunks": 4, "shards": 4, "dtype": "i8"}
    with dataset.create_array(path, shape=12, **cut) as array:
        array[:] = 1
        reader = dataset.open(path)
        assert 1 == reader[0]  # the first shard is open
        array[:] = np.repeat([0, 2, 2], 4)
        assert [0] * 4 + [2] * 8 == reader[:].tolist()


@pytest.mark.parametrize("others", [False, True])
def test_a_shard_that_is_removed_during_a_read(tmp_path, monkeypatch, others):
    """Only then are the shards read again, not after any other change."""
    cut = {"chunks": 4, "shards": 4, "dtype": "i8"}
    load, calls = shard_files.ShardFiles._work_on, []

    def changed_meanwhile(self, *args):
        load(self, *args)
        calls.append(args[0])
        if reader._layout._source is self and len(calls) == 1:
            if others:
                group["b"][:] = 5
            else:
                group["a"][:] = np.repeat([0, 2, 2], 4)

    with dataset.create_group(tmp_path / "g") as group:
        for name in "ab":
            group.create_array(name, shape=12, **cut)[:] = 1
        with group.change():
            pass
        reader = dataset.open(tmp_path / "g" / "a")
        monkeypatch.setattr(shard_files.ShardFiles, "_work_on", changed_meanwhile)
        found = reader[:].tolist()
    assert ([1] * 12 if others else [0] * 4 + [2] * 8) == found
    assert (1 if others else 2) == len(calls)


def test_what_an_interrupted_append_has_left_is_removed(tmp_path):
    """New rows of fill values have no file, and must not get an older one."""
    path, cut = tmp_path / "a", {"chunks": 4, "shards": 4, "dtype": "i8"}
    with dataset.create_array(path, shape=4, **cut) as array:
        array.append(np.arange(1, 5))
        content = (path / "c" / "1").read_bytes()
        array.resize(4)
        (path / "c" / "1").write_bytes(content)
        array.append(np.zeros(4, "i8"))
        assert [0] * 8 == array[:].tolist() == dataset.open(path)[:].tolist()
    assert [] == shards_of(path)


def test_shared_writers_leave_the_document_alone(tmp_path):
    path = tmp_path / "a"
    cut = {"chunks": 4, "shards": 4, "dtype": "i8"}
    dataset.create_array(path, shape=12, **cut).close()
    with dataset.open_array(path, "r+", shared=True) as array:
        array[:] = 0
        assert [0] * 12 == array[:].tolist()
        array[5] = 3
        array[:] = 0
        assert [0] * 12 == array[:].tolist() == dataset.open(path)[:].tolist()
    assert dataset.verify(path).ok
