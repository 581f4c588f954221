"""Datasets as collections of Dask, also written by several processes."""

from __future__ import annotations

import json
import os
import pickle
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from dataset.crash_places import LocalFolder
from dataset.inside import Disk, ObjectStore
from support import run_python

import bloscpack as bp
from bloscpack import dataset
from bloscpack.dataset.dask_write import Addition
from bloscpack.dataset.parallel import FolderTarget, target_of
from bloscpack.exceptions import NotReadable, StorageError, UsageError

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
da = pytest.importorskip("dask.array", reason="dask is not installed")
ROWS = np.arange(1000.0).reshape(500, 2)


@pytest.fixture
def frames():
    return pytest.importorskip("dask.dataframe", reason="needs dask[dataframe]")


@pytest.fixture(autouse=True)
def scheduler():
    import dask

    with dask.config.set(scheduler="threads", num_workers=2):
        yield


# Reading


@pytest.mark.parametrize("layout", ["zarr", "superchunk", "bcolz"])
def test_array(tmp_path, layout):
    options = {"chunks": 16} if layout == "bcolz" else {"chunks": 16, "shards": 64}
    with dataset.create_array(tmp_path / "a", ROWS, layout=layout, **options) as array:
        lazy = array.to_dask()
    step = 16 if layout == "bcolz" else 64
    assert ((*[step] * (500 // step), 500 % step), (2,)) == lazy.chunks
    assert ROWS.dtype == lazy.dtype
    assert ROWS.tolist() == dataset.open(tmp_path / "a").to_dask().compute().tolist()
    other = dataset.open(tmp_path / "a").to_dask(chunks=(100, 1))
    assert ((100,) * 5, (1, 1)) == other.chunks
    assert ROWS[::7, 1].sum() == other[::7, 1].sum().compute()


def test_array_at_a_url(tmp_path):
    from storage.servers import serving_folder

    dataset.create_array(tmp_path / "a", ROWS, chunks=16, shards=64).close()
    with serving_folder(tmp_path) as web:
        array = dataset.open(web.url + "/a")
        lazy = pickle.loads(pickle.dumps(array.to_dask()))
        assert ROWS.sum() == lazy.sum().compute()


def test_names_depend_on_the_files(tmp_path):
    dataset.create_array(tmp_path / "a", ROWS).close()
    dataset.create_table(tmp_path / "t", {"x": [1, 2]}).close()

    def names():
        with (
            dataset.open(tmp_path / "t") as table,
            dataset.open(tmp_path / "a") as array,
        ):
            return array.to_dask().name, table["x"].to_dask().name

    before = names()
    assert before == names()
    for path in ("a", "t"):
        with dataset.open(tmp_path / path, "r+") as changed:
            changed[0] = changed[1]
    assert not set(before) & set(names())


def test_names_at_a_url():
    """The same array has the same name; one that has changed has another one."""
    url = "memory://names/a"
    dataset.create_array(url, ROWS, chunks=16, shards=64).close()
    names = [dataset.open(url).to_dask().name for _ in range(2)]
    with dataset.open(url, "r+") as array:
        array[3] = 0
    names.append(dataset.open(url).to_dask().name)
    assert names[0] == names[1] != names[2]


@pytest.mark.parametrize("layout", ["zarr", "superchunk", "bcolz"])
def test_table(tmp_path, layout, frames):
    columns = {"x": np.arange(100), "y": np.arange(100) / 2, "s": ["a", "bc"] * 50}
    options = {"chunks": 8} if layout == "bcolz" else {"chunks": 8, "shards": 16}
    dataset.create_table(tmp_path / "t", columns, layout=layout, **options).close()
    table = dataset.open(tmp_path / "t")
    lazy = table.to_dask()
    step = 8 if layout == "bcolz" else 16
    assert (*range(0, 100, step), 99) == lazy.divisions
    expected = table.to_pandas()
    found = lazy.compute()
    assert expected[["x", "y"]].equals(found[["x", "y"]])
    assert expected["s"].tolist() == found["s"].tolist()
    assert [99, 49.5] == lazy[["x", "y"]].max().compute().tolist()
    assert expected["y"].loc[30:40].equals(lazy["y"].loc[30:40].compute())
    assert 3 == table.to_dask(rows=40, columns=["y"]).npartitions
    assert 45.0 == table["y"].to_dask()[90].compute()
    with pytest.raises(KeyError):
        table.to_dask(columns=["z"])


def test_bytes(tmp_path, frames):
    items = [b"a", b"\xff\0q"]
    dataset.create_table(tmp_path / "t", {"b": np.array(items)}).close()
    lazy = dataset.open(tmp_path / "t").to_dask()
    assert items == lazy.compute()["b"].tolist()
    table = dataset.from_dask(tmp_path / "u", lazy)
    assert items == table["b"][:].tolist()


def test_an_empty_table(tmp_path, frames):
    dataset.create_table(tmp_path / "t", dtype=[("x", "i4")]).close()
    assert 0 == len(dataset.open(tmp_path / "t").to_dask().compute())


def test_pickled_datasets(tmp_path):
    """They are open for reading; one that has lost rows is refused."""
    with dataset.create_group(tmp_path / "g") as group:
        array = group.create_array("a", ROWS)
        table = group.create_table("t", {"x": [1, 2]}, layout="superchunk")
        found = pickle.loads(pickle.dumps([array, table, table["x"]]))
        assert ROWS.tolist() == found[0][:].tolist()
        assert [[(1,), (2,)], [1, 2]] == [found[1][:].tolist(), found[2][:].tolist()]
        with pytest.raises(UsageError):
            found[0].append(ROWS)
        stored = [pickle.dumps(array), pickle.dumps(table)]
        for each in (array, table):
            each.resize(len(each) - 1)
        for data in stored:
            with pytest.raises(StorageError, match="expected at least"):
                pickle.loads(data)


# Writing


@pytest.mark.parametrize("layout", ["zarr", "superchunk"])
def test_array_is_written(tmp_path, layout):
    lazy = da.from_array(ROWS, chunks=(37, 1)) + 1
    options = {"layout": layout, "chunks": 16, "shards": 64, "cname": "zstd"}
    attrs = {"unit": "m"}
    array = dataset.from_dask(tmp_path / "a", lazy, attrs=attrs, **options)
    assert (ROWS + 1).tolist() == array[:].tolist()
    assert ((16, 2), (64, 2), attrs) == (array.chunks, array.shards, dict(array.attrs))
    assert not os.path.exists(tmp_path / "a/.bloscpack")
    assert array.cbytes > 0
    with dataset.open(tmp_path / "a", "r+") as array:
        array.append(ROWS)
        array[3] = 0
        assert (ROWS + 1)[4:].tolist() == array[4:500].tolist()
    with pytest.raises(FileExistsError):
        dataset.from_dask(tmp_path / "a", lazy)
    dataset.from_dask(tmp_path / "a", lazy[:5], mode="w")
    assert (5, 2) == dataset.open(tmp_path / "a").shape


@pytest.mark.parametrize("blocks", [(37, 20), (64, 50), (100, 17)])
def test_a_grid_is_written(tmp_path, blocks):
    items = np.arange(150 * 90, dtype=">i4").reshape(150, 90)
    lazy = da.from_array(items, chunks=blocks)
    cut = {"chunks": (16, 10), "shards": (32, 50)}
    array = dataset.from_dask(tmp_path / "a", lazy, **cut, fill_value=3)
    assert ((16, 10), (32, 50)) == (array.chunks, array.shards)
    np.testing.assert_array_equal(items, array[:])
    assert items.dtype == array.dtype
    assert [] == dataset.verify(tmp_path / "a").findings
    found = array.to_dask()
    assert ((32, 32, 32, 32, 22), (50, 40)) == found.chunks
    np.testing.assert_array_equal(items.sum(axis=0), found.sum(axis=0).compute())
    np.testing.assert_array_equal(items[::7, 3:80:9], found[::7, 3:80:9].compute())
    with dataset.open(tmp_path / "a", "r+") as array:
        array.append(items[:, :20], axis=1)
        array[140:, 100] = items[140:, 100 - 90]
        expected = np.concatenate([items, items[:, :20]], axis=1)
        np.testing.assert_array_equal(expected, array[:])


def test_an_array_without_axes(tmp_path):
    with pytest.raises(UsageError, match="without axes"):
        dataset.from_dask(tmp_path / "a", da.from_array(np.array(5.5)))
    array = dataset.create_array(tmp_path / "a", 5.5)
    assert 6.5 == (array.to_dask() + 1).compute()


def test_shards_are_whole_files(tmp_path):
    lazy = da.from_array(ROWS.astype(">f4"), chunks=(100, 2))
    dataset.from_dask(tmp_path / "a", lazy, chunks=16, shards=64)
    for number in range(8):
        expected = ROWS[number * 64 : number * 64 + 64]
        found = bp.unpack_ndarray_from_file(str(tmp_path / ("a/c/%d/0" % number)))
        assert expected.tolist() == found.tolist()


def test_unknown_lengths(tmp_path):
    lazy = da.from_array(ROWS, chunks=(100, 2))
    lazy = lazy[lazy[:, 0] % 3 == 0]
    array = dataset.from_dask(tmp_path / "a", lazy, chunks=8, shards=16)
    assert ROWS[ROWS[:, 0] % 3 == 0].tolist() == array[:].tolist()
    assert np.isnan(lazy.shape[0])


def test_delayed(tmp_path):
    lazy = da.from_array(ROWS, chunks=(100, 2))
    task = dataset.from_dask(tmp_path / "a", lazy, compute=False)
    assert not (tmp_path / "a").exists()
    for _ in range(2):  # again: nothing happens
        assert str(tmp_path / "a") == task.compute()
    assert ROWS.tolist() == dataset.open(tmp_path / "a")[:].tolist()


@pytest.mark.parametrize("layout", ["zarr", "superchunk"])
def test_frame_is_written(tmp_path, layout, frames):
    import pandas

    frame = pandas.DataFrame(
        {
            "n": np.arange(100),
            "x": np.arange(100) / 4,
            "text": [str(n) * (1 + n // 50) for n in range(100)],
        },
        index=pandas.Index(np.arange(100) * 2, name="key"),
    )
    lazy = frames.from_pandas(frame, npartitions=7)
    lazy = lazy[lazy["n"] % 10 != 3]
    expected = frame[frame["n"] % 10 != 3]
    path = tmp_path / "t"
    table = dataset.from_dask(path, lazy, layout=layout, chunks=8, shards=16)
    assert ["key", "n", "x", "text"] == table.names
    assert expected.reset_index().equals(table.to_pandas().astype({"text": "str"}))
    assert {16} == {column.shards[0] for column in table.columns.values()}
    assert {"zarr": "O", "superchunk": "<U4"}[layout] == table["text"].dtype
    default = dataset.from_dask(path, lazy, mode="w")
    assert expected["n"].tolist() == default["n"][:].tolist()


def test_frame_is_written_to_a_url(frames):
    import pandas

    frame = pandas.DataFrame({"n": np.arange(100), "text": list("abcde") * 20})
    lazy = frames.from_pandas(frame, npartitions=3)
    table = dataset.from_dask("memory://frame/t", lazy, chunks=8, shards=16)
    assert frame.to_numpy().tolist() == table.to_pandas().to_numpy().tolist()


def test_columns_without_rows(tmp_path, frames):
    """Their types are those of the collection, also if all partitions are empty."""
    import pandas

    frame = pandas.DataFrame({"n": [1, 2], "s": ["x", "y"], "o": ["x", "y"]})
    lazy = frames.from_pandas(frame, npartitions=2)
    for each in (lazy[lazy["n"] > 5], frames.from_pandas(frame[:0], npartitions=1)):
        table = dataset.from_dask(tmp_path / "t", each, mode="w")
        assert ["i", "O", "O"] == [table[name].dtype.kind for name in table.names]
    table = dataset.from_dask(tmp_path / "t", lazy[lazy["n"] > 1], mode="w")
    assert [(2, "y", "y")] == table[:].tolist()


def test_columns_that_are_refused(tmp_path, frames):
    import pandas

    times = pandas.date_range("2020", periods=2)
    for index, message in ((["u", "v"], "the index has no name"), (times, "Timestamp")):
        frame = pandas.DataFrame({"a": [1, 2]}, index=index)
        with pytest.raises(UsageError, match=message):
            dataset.from_dask(tmp_path / "t", frames.from_pandas(frame, npartitions=1))
    for items, message in (
        (["x", None], "the column 'a' has missing items"),
        (
            pandas.Categorical(["x", None]),
            "'a': no array can have categories",
        ),
        (pandas.array([1, None], "Int64"), "the column 'a'.*has missing items"),
        (pandas.array([None, True], "boolean"), "the column 'a'.*has missing items"),
        (
            times.tz_localize("UTC"),
            "'a': no array can have the time zone 'UTC'",
        ),
        (times.to_period("D"), "the column 'a': expected text in each item"),
    ):
        lazy = frames.from_pandas(pandas.DataFrame({"a": items}), npartitions=1)
        with pytest.raises(UsageError, match=message):
            dataset.from_dask(tmp_path / "t", lazy)
    frame = frames.from_pandas(pandas.DataFrame({0: [1]}), npartitions=1)
    for lazy, message in (
        (frame, "the name of a column"),
        (frame[[]], "must have a column"),
        (frame[0], "found the type 'Series' of 'dask': call to_frame"),
        (frame[0].sum(), "array or a DataFrame"),
    ):
        with pytest.raises(UsageError, match=message):
            dataset.from_dask(tmp_path / "t", lazy)
    with pytest.raises(UsageError, match="a chunk must have 1 to"):
        dataset.from_dask(tmp_path / "t", frame.rename(columns={0: "a"}), chunks=0)
    assert [] == os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ROWS, "array or a DataFrame of Dask"),
        (lambda: da.ones(()), "axes"),
        (lambda: da.ones(5).to_delayed()[0], "found the type 'Delayed"),
        (lambda: da.from_array(np.array([1, "a"], "O"), chunks=1), "expected text"),
        (lambda: da.ma.masked_greater(da.ones(5), 0), "the mask would be lost"),
        # What the tasks return is not what Dask expects: the bytes would be wrong.
        (
            lambda: da.ones(5).map_blocks(lambda b: b + 0.5, dtype="i8"),
            "expected items of dtype 'int64'",
        ),
        (
            lambda: da.ones(5, chunks=2).map_blocks(lambda b: b[:1], dtype="f8"),
            "expected a block of shape",
        ),
        (
            lambda: da.ones(5).map_blocks(
                lambda b: np.ma.masked_greater(b, 0), meta=np.ones(0)
            ),
            "the mask would be lost",
        ),
    ],
)
def test_arrays_that_are_refused(tmp_path, make, message):
    with pytest.raises(UsageError, match=message):
        dataset.from_dask(tmp_path / "a", make())
    assert [] == os.listdir(tmp_path)


def test_calls_that_are_refused(tmp_path):
    with pytest.raises(UsageError, match="no shards"):
        dataset.from_dask(tmp_path / "a", da.ones(5), layout="bcolz")
    for name in ("chunks", "shards"):
        with pytest.raises(UsageError, match="%s: expected a positive length" % name):
            dataset.from_dask(tmp_path / "a", da.ones(5), **{name: (4, 2)})
    with pytest.raises(UsageError, match="HTTP is for reading"):
        dataset.from_dask("http://localhost/a", da.ones(5))
    with pytest.raises(UsageError, match="only the layout 'zarr'"):
        dataset.from_dask("memory://refused", da.ones(5), layout="superchunk")
    with pytest.raises(UsageError, match="mode must be"):
        dataset.from_dask(tmp_path / "a", da.ones(5), mode="a")
    assert [] == os.listdir(tmp_path)


# Failed, repeated and late tasks


class Stop(BaseException):
    """The process has died."""


def stop(*_):
    raise Stop


def make(path, mode="x"):
    options = {"shape": (0, 2), "dtype": "f8", "chunks": 16, "shards": 64}

    def create(path):
        return dataset.create_array(path, **options)

    target = target_of(path, mode, True)
    target.begin(create)
    return target


def files(place):
    """Return the names of all files beside a dataset and in it."""
    if isinstance(place, str):
        fs, path = fsspec.url_to_fs(place.rpartition("/")[0])
        return [name.removeprefix(path + "/") for name in fs.find(path)]
    return sorted(
        str(path.relative_to(place.parent)).replace(os.sep, "/")
        for path in place.parent.rglob("*")
        if path.is_file() or path.name.startswith(".")
    )


def is_readable(place):
    """Return whether readers find a dataset."""
    try:
        dataset.open(place).close()
    except (FileNotFoundError, NotReadable):
        return False
    return True


@pytest.fixture(params=["folder", "url"])
def place(request, tmp_path):
    """Return a path and a URL of a new dataset, which is called ``a``."""
    if request.param == "folder":
        return tmp_path / "a"
    return "memory://%s/a" % tmp_path.name


@pytest.mark.parametrize("mode", ["x", "w"])
def test_repeated_tasks(place, mode):
    if mode == "w":
        dataset.create_array(place, [1, 2]).close()
    target = make(place, mode)
    for start in (64, 0, 64, 0):
        target.put(start, {"": ROWS[start : min(start + 64, 100)]})
        if mode == "w" and not isinstance(place, str):
            assert [1, 2] == dataset.open(place)[:].tolist()
        else:
            assert not is_readable(place)
    target.finish(100)
    target.finish(100)
    assert ROWS[:100].tolist() == dataset.open(place)[:].tolist()
    assert ["a/c/0/0", "a/c/1/0", "a/zarr.json"] == files(place)


@pytest.mark.parametrize("exchanges", [True, False])
def test_a_commit_is_repeated_after_the_rename(tmp_path, monkeypatch, exchanges):
    """The process died, or the same task in another one: the old dataset stays old."""
    place = tmp_path / "a"
    dataset.create_array(place, [1, 2]).close()
    target = make(place, "w")
    target.put(0, {"": ROWS[:64]})
    if not exchanges:
        monkeypatch.setattr(Disk, "exchange", lambda *_: False)
    with monkeypatch.context() as patch:
        patch.setattr(FolderTarget, "abandon", stop)
        with pytest.raises(Stop):
            target.finish(64)
    again = pickle.loads(pickle.dumps(target))
    again.put(64, {"": ROWS[64:100]})
    assert [ROWS[:64].tolist()] == [dataset.open(place)[:].tolist()]
    again.finish(64)
    assert [ROWS[:64].tolist()] == [dataset.open(place)[:].tolist()]
    assert ["a/c/0/0", "a/zarr.json"] == files(place)


def test_late_tasks_change_nothing(place):
    """Dask repeats all tasks of a worker that it has lost: they must not fail."""
    target = pickle.loads(pickle.dumps(make(place)))
    target.put(0, {"": ROWS[:10]})
    target.finish(10)
    with dataset.open(place, "r+") as array:
        array[:] = 7
        array.append(ROWS[:1])
        target.put(0, {"": ROWS[:10]})
        target.finish(10)
    assert [7.0] * 10 == dataset.open(place)[:10, 0].tolist()
    assert 11 == len(dataset.open(place))
    assert ["a/c/0/0", "a/zarr.json"] == files(place)


def test_late_tasks_find_the_document_of_another_program():
    import fsspec

    place = "memory://document/a"
    target = make(place)
    target.put(0, {"": ROWS[:10]})
    target.finish(10)
    fs, path = fsspec.url_to_fs(place + "/zarr.json")
    fs.pipe_file(path, json.dumps(json.loads(fs.cat_file(path))).encode())
    target.put(0, {"": ROWS[10:20]})
    target.finish(10)
    assert ROWS[:10].tolist() == dataset.open(place)[:].tolist()


def test_the_same_task_in_two_processes(monkeypatch):
    """Each stores the shard, in other bytes, if they have other versions of Blosc."""
    place, put = "memory://same/a", ObjectStore.put
    target = make(place)

    def put_late(*arguments):
        monkeypatch.setattr(ObjectStore, "put", put)
        target.put(0, {"": ROWS[:10]})
        return put(*arguments)

    monkeypatch.setattr(ObjectStore, "put", put_late)
    target.put(0, {"": ROWS[10:20]})
    target.finish(10)
    assert ROWS[:10].tolist() == dataset.open(place)[:].tolist()


@pytest.mark.parametrize("late", [False, True])
def test_a_task_that_ends_late(place, late):
    """The dataset becomes complete, or another's, while a shard is written again."""
    target = make(place)
    target.put(0, {"": ROWS[:10]})
    others = []

    class Rows(np.ndarray):
        def __getitem__(self, key):
            if not others:
                others.append(make(place) if late else target)
                others[0].put(0, {"": ROWS[:10]})
                others[0].finish(10)
            return super().__getitem__(key)

    with pytest.raises(StorageError, match="another") if late else nullcontext():
        target.put(0, {"": (ROWS[:10] + 1).view(Rows)})
    assert ROWS[:10].tolist() == dataset.open(place)[:].tolist()
    assert ["a/c/0/0", "a/zarr.json"] == files(place)


def test_a_second_call_takes_over(place):
    first = make(place)
    first.put(64, {"": ROWS[:64]})
    second = make(place)
    with pytest.raises(StorageError, match="another call has replaced"):
        first.put(0, {"": ROWS[:10]})
    with pytest.raises(StorageError, match="another call has replaced"):
        first.finish(10)
    second.put(0, {"": ROWS[:20]})
    second.finish(20)
    assert ROWS[:20].tolist() == dataset.open(place)[:].tolist()
    assert ["a/c/0/0", "a/zarr.json"] == files(place)
    with pytest.raises(FileExistsError):
        make(place)


def test_another_program_takes_the_name(tmp_path):
    target = make(tmp_path / "a")
    target.put(0, {"": ROWS[:10]})
    dataset.create_array(tmp_path / "a", ROWS[:3]).close()
    with pytest.raises(FileExistsError):
        target.finish(10)
    assert 3 == len(dataset.open(tmp_path / "a"))
    target = make(tmp_path / "a", "w")
    with (
        dataset.open(tmp_path / "a", "r+"),
        pytest.raises(StorageError, match="another writer"),
    ):
        target.finish(0)
    target.finish(0)
    assert 0 == len(dataset.open(tmp_path / "a"))
    assert ["a/zarr.json"] == files(tmp_path / "a")


def test_a_dataset_that_is_being_written_at_a_url():
    """The message says so; nobody need put a document back."""
    target = make("memory://begun/a")
    target.put(0, {"": ROWS[:10]})
    with pytest.raises(NotReadable, match="found the beginning of one"):
        dataset.open("memory://begun/a")
    assert dataset.find("memory://begun") is None
    target.finish(10)
    assert ROWS[:10].tolist() == dataset.open("memory://begun/a")[:].tolist()


@pytest.mark.parametrize("kind", ["array", "table"])
def test_a_commit_at_a_url_that_is_interrupted(kind, monkeypatch):
    """The process has died after the last document was stored: the tasks are late."""
    place = "memory://interrupted/%s" % kind
    target = target_of(place, "x", True)
    settings = {"chunks": 4, "shards": 8}
    if kind == "array":
        create, name = partial(dataset.create_array, shape=0, dtype="i4"), ""
    else:
        create, name = partial(dataset.create_table, dtype=[("x", "i4")]), "x"
    target.begin(lambda path: create(path, **settings))
    rows = {name: np.arange(5, dtype="i4")}
    target.put(0, rows)
    put = ObjectStore.put

    def put_and_stop(store, *arguments):
        put(store, *arguments)
        raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "put", put_and_stop)
        with pytest.raises(Stop):
            target.finish(5)
    assert [*range(5)] == numbers_of(place, name)
    with dataset.open(place, "r+") as opened:
        opened.append({name: [7]} if name else [7])
    target.put(0, rows)
    target.finish(5)
    assert [*range(5), 7] == numbers_of(place, name)
    assert 0 == dataset.verify(place).nerrors


def numbers_of(place, name):
    """Return the items of an array, or of a column of a table."""
    found = dataset.open(place)
    return (found[name] if name else found)[:].tolist()


@pytest.mark.parametrize("mode", ["x", "w"])
def test_a_failed_task(place, mode):
    """The call fails, readers see nothing of it, and the same call succeeds."""
    failing = [True]

    def fail(block, block_info=None):
        if failing[0] and block_info[0]["chunk-location"][0] == 3:
            raise RuntimeError("no more")
        return block

    if mode == "w":
        dataset.create_array(place, [1, 2]).close()
    before = files(place) if mode == "w" and not isinstance(place, str) else []
    lazy = da.from_array(ROWS, chunks=(64, 2)).map_blocks(fail, dtype="f8")
    options = {"mode": mode, "chunks": 16, "shards": 64}
    with pytest.raises(RuntimeError, match="no more"):
        dataset.from_dask(place, lazy, **options)
    if isinstance(place, str):
        with pytest.raises(NotReadable, match="found the beginning of one"):
            dataset.open(place)
        # A task that was running may store its shard after the others were removed.
        fs, path = fsspec.url_to_fs(place)
        fs.pipe(path + "/c/1/0", b"late")
    else:
        assert before == files(place)
    failing[0] = False
    array = dataset.from_dask(place, lazy, **options)
    assert ROWS.tolist() == array[:].tolist()
    assert 9 == len(files(place))


# Appending


def table_frame(frames, npartitions=3):
    import pandas

    columns = {"s": ["u", "vv", "w", ""] * 3, "a": np.arange(12)}
    return frames.from_pandas(pandas.DataFrame(columns), npartitions=npartitions)


@pytest.mark.parametrize(
    ("layout", "options"),
    [
        ("zarr", {}),
        ("zarr", {"chunks": 16, "shards": 64}),
        ("zarr", {"chunks": (7, 1), "shards": (14, 2)}),
        ("superchunk", {"chunks": 16, "shards": 64}),
        ("bcolz", {"chunks": 16}),
    ],
)
def test_append_to_an_array(tmp_path, layout, options):
    path = tmp_path / "a"
    dataset.create_array(path, ROWS[:33], layout=layout, **options).close()
    lazy = da.from_array(ROWS[33:], chunks=(50, 1)).rechunk((60, 1))
    array = dataset.from_dask(path, lazy.astype("f4").astype("f8"), append=True)
    assert ROWS.tolist() == array[:].tolist()
    dataset.from_dask(path, da.ones((0, 2)), append=True)
    dataset.from_dask(path, da.ones((1, 2), dtype="i2"), append=True)
    assert [1, 1] == dataset.open(path)[500:][0].tolist()
    assert 0 == dataset.verify(path).nerrors
    assert ["a"] == os.listdir(tmp_path)


@pytest.mark.parametrize("layout", ["zarr", "superchunk", "bcolz"])
def test_append_to_a_table(tmp_path, layout, frames):
    path = tmp_path / "t"
    rows = {"a": np.arange(5), "s": ["one", "", "a", "b", "c"]}
    dataset.create_table(path, rows, layout=layout, chunks=4).close()
    table = dataset.from_dask(path, table_frame(frames), append=True)
    assert [*range(5), *range(12)] == table["a"][:].tolist()
    assert [*rows["s"], *["u", "vv", "w", ""] * 3] == table["s"][:].tolist()
    dataset.from_dask(path, table_frame(frames).query("a < 0"), append=True)
    assert 17 == len(dataset.open(path))
    assert ["t"] == os.listdir(tmp_path)


def test_append_to_members_of_a_group_that_commits_them(tmp_path, frames):
    path = tmp_path / "g"
    with dataset.create_group(path) as group, group.change():
        group.create_array("x", [1, 2, 3])
        group.create_table("t", {"a": [1], "s": ["uu"]})
    dataset.from_dask(path / "x", da.from_array(np.array([4, 5])), append=True)
    dataset.from_dask(path / "t", table_frame(frames), append=True)
    group = dataset.open(path)
    assert [1, 2, 3, 4, 5] == group["x"][:].tolist()
    assert [1, *range(12)] == group["t"]["a"][:].tolist()
    assert ["t", "x", "zarr.json"] == sorted(os.listdir(path))
    assert [] == dataset.verify(path).findings


def test_append_to_a_table_with_missing_items(tmp_path, frames):
    import pandas

    frame = pandas.DataFrame({"a": pandas.array([1, None], "Int64")})
    dataset.create_table(tmp_path / "t", frame).close()
    lazy = frames.from_pandas(pandas.DataFrame({"a": [3, 4]}), npartitions=2)
    table = dataset.from_dask(tmp_path / "t", lazy, append=True)
    assert [1, None, 3, 4] == [
        None if item is pandas.NA else item for item in table.to_pandas()["a"]
    ]


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("t", lambda f: f.assign(a=1.5), "the column 'a': expected items of dtype"),
        ("t", lambda f: f.assign(s="longer"), "the column 's': the value 'longer'"),
        ("t", lambda f: f.assign(b=1), "expected the columns a, s, found s, a, b"),
        ("t", lambda f: f[["a"]], "expected the columns a, s, found a"),
        ("t", lambda f: da.ones(3), "of the kind 'table', to which no Array"),
        ("a", lambda f: f, "of the kind 'array', to which no DataFrame"),
        ("g", lambda f: f, "is of the kind 'group'"),
        ("a", lambda f: da.ones(3), r"of shape \(3, 2\), found items of shape \(3,\)"),
        (
            "a",
            lambda f: da.ones((3, 1)),
            r"of shape \(3, 2\), found items of shape \(3, 1\)",
        ),
        ("a", lambda f: da.ones((3, 2), dtype="c16"), "found 'complex128'"),
        ("t/a", lambda f: da.ones(3), "columns of a table have the same length"),
    ],
)
def test_appends_that_are_refused(tmp_path, frames, name, change, message):
    dataset.create_array(tmp_path / "a", ROWS).close()
    dataset.create_table(tmp_path / "t", {"a": [1], "s": ["abc"]}).close()
    dataset.create_group(tmp_path / "g").close()
    before = files(tmp_path / "a")
    with pytest.raises(UsageError, match=message):
        dataset.from_dask(tmp_path / name, change(table_frame(frames)), append=True)
    assert before == files(tmp_path / "a")
    assert ROWS.tolist() == dataset.open(tmp_path / "a")[:].tolist()
    assert 1 == len(dataset.open(tmp_path / "t"))


def test_calls_of_append_that_are_refused(tmp_path):
    path, lazy = tmp_path / "a", da.ones((3, 2))
    with pytest.raises(FileNotFoundError, match="No such file"):
        dataset.from_dask(path, lazy, append=True)
    dataset.create_array(path, ROWS).close()
    options = {"mode": "w", "chunks": 3, "cname": "lz4"}
    with pytest.raises(UsageError, match="leave out chunks, cname, mode"):
        dataset.from_dask(path, lazy, append=True, **options)
    dataset.create_array("memory://append/a", ROWS).close()
    with pytest.raises(UsageError, match="in local folders only"):
        dataset.from_dask("memory://append/a", lazy, append=True)
    with dataset.open(path, "r+"), pytest.raises(StorageError, match="another writer"):
        dataset.from_dask(path, lazy, append=True)
    assert 500 == len(dataset.open(path))
    assert ["a"] == os.listdir(tmp_path)


def test_an_append_whose_task_fails(tmp_path):
    dataset.create_array(tmp_path / "a", ROWS[:100]).close()
    before = files(tmp_path / "a")

    def fail(block, block_info=None):
        if block_info[0]["chunk-location"][0] == 3:
            raise RuntimeError("no more")
        return block

    lazy = da.from_array(ROWS[100:], chunks=(64, 2))
    failing = lazy.map_blocks(fail, dtype="f8")
    with pytest.raises(RuntimeError, match="no more"):
        dataset.from_dask(tmp_path / "a", failing, append=True)
    assert before == files(tmp_path / "a")
    assert ROWS[:100].tolist() == dataset.open(tmp_path / "a")[:].tolist()
    dataset.from_dask(tmp_path / "a", lazy, append=True)
    assert ROWS.tolist() == dataset.open(tmp_path / "a")[:].tolist()


def test_an_append_that_is_repeated(tmp_path):
    """The rows are appended once; it fails if others were appended instead."""
    path = tmp_path / "a"
    dataset.create_array(path, ROWS[:100], chunks=16, shards=32).close()
    append = {"append": True, "compute": False}
    task = dataset.from_dask(path, da.from_array(ROWS[100:300]), **append)
    assert 100 == len(dataset.open(path))
    for _ in range(2):
        assert str(path) == task.compute()
        assert ROWS[:300].tolist() == dataset.open(path)[:].tolist()
    first = dataset.from_dask(path, da.from_array(ROWS[300:400]), **append)
    second = dataset.from_dask(path, da.from_array(ROWS[400:]), **append)
    second.compute()
    with pytest.raises(StorageError, match="nothing was appended"):
        first.compute()
    late = dataset.from_dask(path, da.from_array(ROWS[:5]), **append)
    with dataset.open(path, "r+") as array:
        array.append(ROWS[5:9])
    with pytest.raises(StorageError, match="the dataset has changed"):
        late.compute()
    expected = np.concatenate([ROWS[:300], ROWS[400:], ROWS[5:9]])
    assert expected.tolist() == dataset.open(path)[:].tolist()


@pytest.mark.slow
def test_an_append_that_dies_at_any_call(tmp_path, monkeypatch):
    """The dataset has all rows or none of them; the repeated last task completes it."""
    place, finish = LocalFolder(tmp_path), Addition.finish
    old, new = ROWS[:100], ROWS[:150]
    lazy = da.from_array(new[100:])
    for count in range(500):
        dataset.create_array(place.name, old, chunks=16, shards=32, mode="w").close()
        ends = []

        def dying(*arguments):
            times = -1 if ends else count  # noqa: B023
            ends.append(place.run(lambda _: finish(*arguments), times))  # noqa: B023

        monkeypatch.setattr(Addition, "finish", dying)
        task = dataset.from_dask(place.name, lazy, append=True, compute=False)
        task.compute()
        found = dataset.open(place.name)[:].tolist()
        assert found in (old.tolist(), new.tolist())
        task.compute()
        assert new.tolist() == dataset.open(place.name)[:].tolist()
        if ends[0][1]:
            break
    assert ends[0][1]
    assert count > 10


def test_the_name_of_an_array_changes_with_its_items(tmp_path):
    """Dask takes collections of one name for the same, and may keep their results."""
    array = dataset.create_array(tmp_path / "a", ROWS)
    with dataset.create_table(tmp_path / "t", {"x": [1, 2]}) as table:
        for writing, change in (
            (array, lambda: array.__setitem__(0, 7)),
            (table, lambda: table.__setitem__("x", [3, 4])),
            (table["x"], lambda: table.__setitem__("x", [5, 6])),
        ):
            name = writing.__dask_tokenize__()
            assert name == writing.__dask_tokenize__()
            change()
            assert name != writing.__dask_tokenize__()
    array.close()


# Assigning to a region


@pytest.mark.parametrize(
    "options",
    [{}, {"chunks": 16, "shards": 64}, {"chunks": (7, 1), "shards": (14, 1)}],
)
@pytest.mark.parametrize(
    "region",
    [
        ...,
        slice(33, 400),
        (slice(-64, None), slice(1, 2)),
        (slice(64, 128), ...),
        (slice(0, 0), slice(0, 1)),
    ],
)
def test_region(tmp_path, options, region):
    path, expected = tmp_path / "a", ROWS.copy()
    dataset.create_array(path, ROWS, **options).close()
    expected[region] = -ROWS[region]
    lazy = da.from_array(ROWS[region], chunks=(50, 2))
    found = dataset.from_dask(path, -lazy.astype("f4"), region=region)
    assert expected.tolist() == found[:].tolist()
    assert 0 == dataset.verify(path).nerrors
    assert ["a"] == os.listdir(tmp_path)


def test_a_region_is_written_when_it_is_computed(tmp_path):
    path = tmp_path / "a"
    dataset.create_array(path, ROWS, chunks=16, shards=64).close()
    lazy = da.ones((10, 2))
    task = dataset.from_dask(path, lazy, region=slice(10), compute=False)
    with dataset.open(path, "r+") as array:  # nobody has it open
        array[:20] = 7
    assert str(path) == task.compute()
    assert [1.0] * 10 + [7.0] * 10 == dataset.open(path)[:20, 1].tolist()
    # A block that is not what Dask expects is not broadcast.
    wrong = da.ones((10, 2), chunks=(5, 2)).map_blocks(lambda b: b[:1], dtype="f8")
    with pytest.raises(UsageError, match="expected a block of shape"):
        dataset.from_dask(path, wrong, region=slice(10))


@pytest.mark.parametrize(
    ("lazy", "region", "message"),
    [
        (
            da.ones((3, 2)),
            slice(4),
            r"of shape \(4, 2\), found items of shape \(3, 2\)",
        ),
        (da.ones((3, 2)), slice(498, 501), r"expected items of shape \(2, 2\)"),
        (da.ones((3, 2)), slice(0, 6, 2), "slices of adjacent items"),
        (da.ones(2), 0, "slices of adjacent items"),
        (da.ones((3, 2)), "auto", "slices of adjacent items"),
        (da.ones((3, 2)), ([0, 1, 2],), "slices of adjacent items"),
        (da.ones((3, 2), dtype="c16"), slice(3), "found 'complex128'"),
    ],
)
def test_regions_that_are_refused(tmp_path, lazy, region, message):
    dataset.create_array(tmp_path / "a", ROWS).close()
    with pytest.raises(UsageError, match=message):
        dataset.from_dask(tmp_path / "a", lazy, region=region)
    assert ROWS.tolist() == dataset.open(tmp_path / "a")[:].tolist()


def test_calls_with_a_region_that_are_refused(tmp_path, frames):
    path, lazy = tmp_path / "a", da.ones((500, 2))
    with pytest.raises(FileNotFoundError, match="No such file"):
        dataset.from_dask(path, lazy, region=...)
    dataset.create_array(path, ROWS, layout="superchunk").close()
    with pytest.raises(UsageError, match="for arrays of the layout 'zarr'"):
        dataset.from_dask(path, lazy, region=...)
    dataset.create_array(tmp_path / "single", 5.0).close()
    with pytest.raises(UsageError, match="has no axes"):
        dataset.from_dask(tmp_path / "single", lazy, region=...)
    with pytest.raises(UsageError, match="leave out dims, region"):
        dataset.from_dask(path, lazy, region=..., append=True, dims=["a", "b"])
    dataset.create_table(tmp_path / "t", {"a": [1], "s": ["abc"]}).close()
    with pytest.raises(UsageError, match="for arrays of the layout 'zarr'"):
        dataset.from_dask(tmp_path / "t", table_frame(frames), region=slice(12))
    with pytest.raises(UsageError, match="only one program at a time changes it"):
        dataset.from_dask(tmp_path / "t/a", lazy, region=...)


# Arrays that several tasks assign to


@pytest.mark.skipif(os.name == "nt", reason="needs locks of files")
@pytest.mark.parametrize("scheduler", ["threads", "synchronous"])
def test_store_into_a_shared_array(scheduler, tmp_path):
    """Blocks of Dask and shards have no common borders."""
    kept = {"shape": (30, 20), "dtype": "f8", "chunks": (4, 5), "shards": (8, 10)}
    dataset.create_array(tmp_path / "a", **kept, fill_value=-1).close()
    lazy = da.arange(600).reshape(30, 20).rechunk((7, 6)) / 2
    with dataset.open(tmp_path / "a", "r+", shared=True) as array:
        da.store(lazy, array, lock=False, scheduler=scheduler)
        da.store(lazy[:9] + 1, array, regions=(slice(3, 12),), scheduler=scheduler)
        expected = np.arange(600).reshape(30, 20) / 2
        expected[3:12] = expected[:9] + 1
        assert expected.tolist() == array[:].tolist()
    assert [] == dataset.verify(tmp_path / "a").findings


def test_store_from_other_processes_names_what_is_missing(tmp_path):
    with dataset.create_array(tmp_path / "a", [0.0, 0.0]) as array:
        lazy = da.ones(2, chunks=1)
        with pytest.raises(UsageError, match=r"worker of Dask, .*shared=True"):
            da.store(lazy, array, lock=False, scheduler="processes")
        assert [0, 0] == array[:].tolist()


# Several processes

CLUSTER = Path(__file__).with_name("dask_cluster.py")


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize(
    "job", ["array", "table", "killed", "lost", "retried", "existing", "objects"]
)
def test_cluster(tmp_path, job):
    """Two processes, with less memory each than the dataset has bytes."""
    pytest.importorskip("distributed", reason="distributed is not installed")
    pytest.importorskip("dask.dataframe", reason="needs dask[dataframe]")
    done = run_python(
        str(CLUSTER), job, str(tmp_path / "a"), cwd=tmp_path, text=True, timeout=900
    )
    assert 0 == done.returncode, done.stderr[-3000:]
    assert "passed" in done.stdout, done.stdout


def test_tables_of_a_frame_of_dask_name_from_dask(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pytest.importorskip("dask.dataframe").from_pandas(
        pandas.DataFrame({"a": [1, 2]}), npartitions=1
    )
    with pytest.raises(UsageError, match="found a DataFrame of Dask: from_dask"):
        dataset.create_table(tmp_path / "t", frame)
    with dataset.create_table(tmp_path / "t", {"a": [1]}) as table:
        with pytest.raises(UsageError, match="found a DataFrame of Dask: from_dask"):
            table.append(frame)
        assert 1 == len(table)


@pytest.mark.parametrize("mode", ["x", "w"])
def test_every_request_at_a_url(mode, monkeypatch):
    """Readers see nothing, or all of it; the next call succeeds, with the same mode."""
    left = 0

    def stopping(function):
        def call(*arguments, **options):
            nonlocal left
            left -= 1
            if left < 0:
                raise Stop
            return function(*arguments, **options)

        return call

    def do(rows):
        target = make(place, mode)
        target.put(0, {"": rows[:64]})
        target.put(64, {"": rows[64:]})
        target.finish(len(rows))

    for count in range(50):
        place = "memory://every-%s/%d/a" % (mode, count)
        if mode == "w":
            dataset.create_array(place, ROWS[:300], chunks=16, shards=64).close()
        left, done = count, False
        with monkeypatch.context() as context:
            context.setattr(ObjectStore, "put", stopping(ObjectStore.put))
            for name in ("remove", "remove_all"):
                context.setattr(ObjectStore, name, stopping(getattr(ObjectStore, name)))
            with suppress(Stop):
                do(ROWS[:100])
                done = True
        if is_readable(place):
            found = dataset.open(place)[:].tolist()
            assert found in (ROWS[:100].tolist(), ROWS[:300].tolist())
        if mode == "w" or not is_readable(place):
            do(ROWS[100:170])
            assert ROWS[100:170].tolist() == dataset.open(place)[:].tolist()
            assert ["a/c/0/0", "a/c/1/0", "a/zarr.json"] == files(place)
        if done:
            break
    assert done
    assert count > 4
