"""Arrays in S3: moto, which compares versions, and rclone, which does not."""

from __future__ import annotations

import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Semaphore, current_thread, main_thread

import numpy as np
import pytest
from dataset import soak_threads
from dataset.inside import Conflict, ObjectStore
from storage.object_stores import SECRETS, make_bucket, moto, rclone

import bloscpack
from bloscpack import dataset
from bloscpack.dataset.parallel import target_of
from bloscpack.exceptions import StorageError

s3fs = pytest.importorskip("s3fs", reason="the extra 's3' is not installed")
pytestmark = pytest.mark.slow
ROWS = np.arange(600.0).reshape(300, 2)


@pytest.fixture(params=[moto, rclone])
def options(request, tmp_path):
    with request.param(tmp_path) as options:
        make_bucket(options)
        yield options


@contextmanager
def zarr_store(zarr, url, options):
    """Yield a store of zarr-python that reads the objects below a URL."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # rclone sends the digest of the whole object with a part of it.
        config = {"response_checksum_validation": "when_required"}
        other = {**options, "asynchronous": True, "config_kwargs": config}
        yield zarr.storage.FsspecStore.from_url(
            url, read_only=True, storage_options=other
        )


compares_versions = pytest.mark.parametrize("options", [moto], indirect=True)


def test_changes(options):
    url, settings = "s3://bucket/a", {"chunks": 16, "shards": 64}
    with dataset.create_array(url, ROWS, storage_options=options, **settings) as array:
        array.append(ROWS[:100])
        array[5] = 7
        array.resize(390)
        array.attrs["unit"] = "m"
    expected = np.concatenate([ROWS, ROWS[:90]])
    expected[5] = 7
    with dataset.open(url, "r+", storage_options=options) as array:
        assert expected.tolist() == array[:].tolist()
        array.append(ROWS[:5])
    found = dataset.open(url, storage_options=options)
    assert [*expected.tolist(), *ROWS[:5].tolist()] == found[:].tolist()
    assert found.cbytes > 0
    token = found.__dask_tokenize__()
    again = dataset.open(url, storage_options=options)
    assert token == again.__dask_tokenize__()
    assert not any(secret in repr(token) for secret in SECRETS)
    with pytest.raises(FileExistsError):
        dataset.create_array(url, ROWS, storage_options=options)
    folder = dataset.open("s3://bucket", storage_options=options)
    assert ["a"] == list(folder)
    zarr = pytest.importorskip("zarr", minversion="3", reason="needs zarr 3")
    with zarr_store(zarr, url, options) as store:
        assert expected.tolist() == zarr.open_array(store, mode="r")[:390].tolist()


def appended(url, options, count):
    for _ in range(count):
        with dataset.open(url, "r+", timeout=600, storage_options=options) as array:
            array.append(ROWS[:1])


@compares_versions
def test_writers_with_a_timeout_take_turns(options):
    url = "s3://bucket/a"
    dataset.create_array(url, ROWS[:1], storage_options=options).close()
    with ThreadPoolExecutor(2) as writers:
        tasks = [writers.submit(appended, url, options, 4) for _ in range(2)]
        for task in tasks:
            task.result()
    assert 9 == len(dataset.open(url, storage_options=options))


@compares_versions
def test_groups_with_a_timeout_take_turns(options):
    url = "s3://bucket/g"
    with dataset.create_group(url, storage_options=options) as group:
        group.create_array("a", ROWS[:1])
        with group.change():
            group["a"].append(ROWS[:1])

    def change(_):
        with dataset.open(url, "r+", timeout=600, storage_options=options) as group:
            for _ in range(3):
                with group.change():
                    group["a"].append(ROWS[:1])

    with ThreadPoolExecutor(2) as writers:
        list(writers.map(change, range(2)))
    assert 8 == len(dataset.open(url + "/a", storage_options=options))


@compares_versions
def test_a_writer_that_waits_leaves_the_change_of_another_alone(options, monkeypatch):
    url, looks = "s3://bucket/a", Semaphore(0)
    version, remove = ObjectStore.object_version, ObjectStore.remove

    def look(store, name):
        if current_thread() is not main_thread():
            looks.release()
        return version(store, name)

    def wait_and_remove(store, name, *arguments):
        if name == "c/1/0":  # it is looked at when the change is half done
            waiting.append(waiter.submit(appended, url, options, 1))
            for _ in range(3):
                assert looks.acquire(timeout=60)
        remove(store, name, *arguments)

    settings = {"dtype": "f8", "shards": 64, "storage_options": options}
    waiting, empty = [], np.zeros((300, 2))
    dataset.create_array(url, shape=empty.shape, **settings).close()
    with ThreadPoolExecutor(1) as waiter:
        with dataset.open(url, "r+", timeout=600, storage_options=options) as array:
            array[:] = ROWS + 1
            with monkeypatch.context() as patch:
                patch.setattr(ObjectStore, "object_version", look)
                patch.setattr(ObjectStore, "remove", wait_and_remove)
                array[:] = empty
            array[0] = 7
        waiting[0].result()
    assert 301 == len(dataset.open(url, storage_options=options))


@compares_versions
def test_a_writer_takes_over_from_one_that_completes_no_change(options):
    url = "s3://bucket/a"
    dataset.create_array(url, ROWS[:1], storage_options=options).close()
    left = dataset.open(url, "r+", timeout=5, storage_options=options)
    with dataset.open(url, "r+", timeout=0.1, storage_options=options) as array:
        array.append(ROWS[:1])
    with pytest.raises(StorageError, match="another program has changed it"):
        left.append(ROWS[:1])
    left.close()
    assert 2 == len(dataset.open(url, storage_options=options))


def test_from_dask(options):
    """A second call takes over; then a late task of the first fails."""
    da = pytest.importorskip("dask.array", reason="dask is not installed")
    url, settings = "s3://bucket/d", {"chunks": 16, "shards": 64}
    keys = {"storage_options": options}
    left = target_of(url, "x", True, options)
    left.begin(lambda path: dataset.create_array(path, ROWS[:0], **settings))
    left.put(0, {"": ROWS[:64] + 1})
    lazy = da.from_array(ROWS, chunks=(50, 1))
    array = dataset.from_dask(url, lazy, **keys, **settings)
    with pytest.raises(StorageError, match="another call has replaced"):
        left.put(0, {"": ROWS[:64] + 1})
    assert ROWS.tolist() == array[:].tolist()
    assert ROWS.sum() == array.to_dask().sum().compute()
    with pytest.raises(FileExistsError):
        dataset.from_dask(url, lazy, **keys)
    array = dataset.from_dask(url, lazy[:70], mode="w", **keys, **settings)
    assert ROWS[:70].tolist() == array[:].tolist()
    names = s3fs.S3FileSystem(**options).find("bucket/d")
    expected = ["c/0/0", "c/1/0", "zarr.json"]
    assert ["bucket/d/" + name for name in expected] == names


def test_groups(options):
    url = "s3://bucket/g"
    columns = {"x": np.arange(9), "y": np.arange(9) / 2}
    with dataset.open_group(url, "a", storage_options=options) as group:
        table = group.create_table("t", columns, chunks=2, shards=4)
        table.append({"x": [9], "y": [4.5]})
        table["x"].attrs["unit"] = "m"
        table.add_column("z", np.arange(10), position=0)
        table.remove_column("y")
        group.create_array("old/a", ROWS)
        group.create_array("b", ROWS)
        group.create_array("b", ROWS[:3], mode="w")
        del group["old"]
        group.attrs["place"] = "Kiel"
    names = s3fs.S3FileSystem(**options).find("bucket")
    assert not [name for name in names if "old" in name or ".bloscpack" in name]
    with dataset.open(url, "r+", storage_options=options) as group:
        group["t"].append({"z": [7], "x": [8]})
        assert ["b", "t"] == list(group)
    zarr = pytest.importorskip("zarr", minversion="3", reason="needs zarr 3")
    with zarr_store(zarr, url, options) as store:
        found = zarr.open_group(store, mode="r")
        assert ["b", "t"] == sorted(found)
        assert "Kiel" == found.attrs["place"]
        assert ["x", "z"] == sorted(found["t"])
        assert [*range(10), 8] == found["t/x"][:].tolist()
        assert ROWS[:3].tolist() == found["b"][:].tolist()


class Left(BaseException):
    """A child process leaves the block."""


@compares_versions
@pytest.mark.parametrize("timeout", [None, 3])
def test_a_child_that_leaves_a_block(options, timeout):
    """The objects and the token of its parent stay."""
    url = "s3://bucket/g"
    with dataset.create_group(url, storage_options=options) as group:
        group.create_array("a", np.arange(6), chunks=2, shards=4)
        group.create_array("b", np.arange(3))
    opened = dataset.open(url, "r+", storage_options=options, timeout=timeout)
    with opened as group, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of forks in a process with threads
        try:
            with group.change():
                group["a"][:] = 7
                group["b"].append([9])
                child = os.fork()
                if not child:
                    raise Left
                assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                assert {7} == {*group["a"][:].tolist()}
                group["b"].append([10])
        except Left:
            os._exit(0)
    with dataset.open(url, storage_options=options) as found:
        assert {7} == {*found["a"][:].tolist()}
        assert [0, 1, 2, 9, 10] == found["b"][:].tolist()


def test_listing_in_pages(options):
    short = {**options, "s3_additional_kwargs": {"MaxKeys": 2}}
    with dataset.open_group("s3://bucket/g", "a", storage_options=short) as group:
        for name in "abcde":
            group.create_array(name, [1])
        assert [*"abcde"] == list(group)
    ObjectStore("s3://bucket", short).remove_tree("g")
    assert [] == s3fs.S3FileSystem(**options).find("bucket")


def test_conditions(tmp_path, monkeypatch):
    with moto(tmp_path) as options:
        make_bucket(options)
        store = ObjectStore("s3://bucket", options)
        assert store.object_version("x") == ""
        first = store.put("x", b"1", "")
        with pytest.raises(Conflict):
            store.put("x", b"2", "")
        assert first == store.object_version("x")
        second = store.put("x", b"3", first)
        with pytest.raises(Conflict):
            store.put("x", b"4", first)
        assert second == store.object_version("x") != first
        with monkeypatch.context() as context:  # it was replaced after the comparison
            context.setattr(ObjectStore, "object_version", lambda *_: first)
            store.remove("x", first)
        assert second == store.object_version("x")
        store.remove("x", second)
        assert store.object_version("x") == ""


def test_a_lost_answer(tmp_path, monkeypatch):
    """S3 refuses a request that is repeated: the change is committed, once."""
    request = s3fs.S3FileSystem._call_s3

    async def repeated(self, method, *arguments, **options):
        answer = await request(self, method, *arguments, **options)
        if method == "put_object":
            answer = await request(self, method, *arguments, **options)
        return answer

    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", repeated)
    with moto(tmp_path) as options:
        make_bucket(options)
        with pytest.raises(Conflict):
            ObjectStore("s3://bucket", options).put("x", b"1", '"0"')
        url = "s3://bucket/a"
        with dataset.create_array(url, ROWS, shards=64, storage_options=options) as a:
            a.append(ROWS[:3])
        assert 303 == len(dataset.open(url, storage_options=options))


def test_two_writers(tmp_path):
    with moto(tmp_path) as options:
        make_bucket(options)
        url = "s3://bucket/a"
        first = dataset.create_array(url, ROWS, shards=64, storage_options=options)

        def rows():
            yield ROWS[:100]
            with dataset.open(url, "r+", storage_options=options) as second:
                second.append(ROWS[7:9])
            yield ROWS[:100]

        with pytest.raises(StorageError, match="another program has changed"):
            first.append(rows())
        expected = np.concatenate([ROWS, ROWS[7:9]])
        found = dataset.open(url, storage_options=options)
        assert expected.tolist() == found[:].tolist()


def test_two_writers_of_a_table(tmp_path):
    """Also a shard that the first writer begins after the change of the second one."""
    with moto(tmp_path) as options:
        make_bucket(options)
        url = "s3://bucket/t"
        kept = {"storage_options": options}
        first = dataset.create_table(url, {"x": range(8), "y": range(8)}, **kept)
        second = dataset.open(url, "r+", **kept)
        second.append({"x": [8], "y": [8]})
        with pytest.raises(StorageError, match="another program has changed"):
            first.append({"x": [1], "y": [1]})
        with dataset.open(url, "r+", **kept) as third:
            third["x"].attrs["unit"] = "m"
        with pytest.raises(StorageError, match="another program has changed"):
            second.resize(0)
        with pytest.raises(FileExistsError):
            dataset.create_table(url, {"x": [1]}, **kept)
        found = dataset.open(url, **kept)
        assert [(n, n) for n in range(9)] == found[:].tolist()


def test_several_writers_of_an_array(tmp_path):
    """They assign to the same shards at the same time."""
    with moto(tmp_path) as options:
        make_bucket(options)
        kept = {"storage_options": options}
        data = np.zeros((4, 40), "i4")
        cut = {"chunks": (4, 5), "shards": (4, 20)}
        dataset.create_array("s3://bucket/a", data, **cut, **kept).close()

        def work(number):
            url = "s3://bucket/a"
            with dataset.open(url, "r+", shared=True, **kept) as array:
                for value in range(3):
                    array[number] += value

        with ThreadPoolExecutor(4) as workers:
            assert [None] * 4 == list(workers.map(work, range(4)))
        assert [[3] * 40] * 4 == dataset.open("s3://bucket/a", **kept)[:].tolist()
        assert dataset.verify("s3://bucket/a", **kept).ok


@pytest.mark.parametrize(("kind", "where"), soak_threads.S3_MIXES)
def test_threads_and_processes(kind, where, tmp_path):
    with (
        soak_threads.s3_server(tmp_path),
        soak_threads.new_place(where, tmp_path) as place,
    ):
        is_shared = where.endswith("shared")
        assert [] == soak_threads.run(kind, place, kind, is_shared=is_shared)


def test_a_bucket_that_does_not_exist(tmp_path):
    """The error is about the bucket, not about another writer."""
    url, name = "s3://nobucket/a", "the bucket does not exist: 's3://nobucket/"
    with moto(tmp_path) as options:
        with pytest.raises(FileNotFoundError, match=name):
            dataset.create_array(url, ROWS, storage_options=options)
        with pytest.raises(FileNotFoundError, match=name):
            bloscpack.pack_bytes_to_file(b"x", url, storage_options=options)
        with pytest.raises(FileNotFoundError, match=name):
            bloscpack.unpack_bytes_from_file(url, storage_options=options)


def test_two_writers_of_one_shard(tmp_path):
    """Each repeats its change if the other one was faster, also while it reads."""
    planes = np.random.default_rng(1).integers(0, 2**16, (24, 128, 128), "u2")
    with moto(tmp_path) as options:
        make_bucket(options)
        cut = {"chunks": (1, 128, 128), "shards": planes.shape}
        dataset.create_array(
            "s3://bucket/a",
            shape=planes.shape,
            dtype="u2",
            storage_options=options,
            **cut,
        ).close()

        def assign(first):
            with dataset.open(
                "s3://bucket/a", "r+", shared=True, storage_options=options
            ) as array:
                for number in range(first, len(planes), 2):
                    array[number] = planes[number]

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(assign, range(2)))
        found = dataset.open("s3://bucket/a", storage_options=options)
        assert (planes == found[:]).all()
