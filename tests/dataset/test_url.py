"""Datasets at URLs: the values, the requests, and the errors of each kind of store."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import threading
from contextlib import nullcontext, suppress

import numpy as np
import pytest
from dataset.inside import (
    Conflict,
    ObjectStore,
    remote,
    remote_files,
    with_pending,
)
from dataset.shard_index import NO_ENTRY, crc_of
from storage.servers import serving_folder
from support import run_python

import bloscpack
from bloscpack import bigfile, dataset
from bloscpack.dataset.file_checks import DatasetReport
from bloscpack.exceptions import (
    DamageError,
    NotReadable,
    StorageError,
    UsageError,
)

fsspec = pytest.importorskip("fsspec", reason="the extra 'remote' is not installed")

from fsspec.implementations.memory import MemoryFileSystem  # noqa: E402

ROWS = np.arange(600.0).reshape(300, 2)


@pytest.fixture
def folder(tmp_path):
    """A group with an array, a table and a group in it."""
    with dataset.create_group(tmp_path / "g", attrs={"place": "Kiel"}) as group:
        array = group.create_array("in/a b", ROWS, chunks=16, shards=64)
        array.attrs["unit"] = "m"
        group.create_table("t", {"x": np.arange(9), "y": np.arange(9) / 2})
    return tmp_path


@pytest.fixture
def web(folder):
    with serving_folder(folder) as web:
        yield web


@pytest.fixture(params=["memory", "zip", "file", "cache"])
def url(request, folder):
    """The URL of the group in a store that can list its files."""
    if request.param == "memory":
        store = fsspec.filesystem("memory")
        store.put(str(folder / "g"), "/all/g", recursive=True)
        yield "memory://all/g"
        store.rm("/all", recursive=True)
    elif request.param == "zip":
        shutil.make_archive(str(folder / "all"), "zip", folder / "g")
        yield "zip://::file://%s/all.zip" % folder
    elif request.param == "file":
        yield (folder / "g").as_uri()
    else:
        yield "simplecache::file://%s/g" % folder


def check(group):
    assert {"place": "Kiel"} == dict(group.attrs)
    array, table = group["in/a b"], group["t"]
    assert {"unit": "m"} == dict(array.attrs)
    for key in (slice(None), slice(3, 290, 7), 17, (slice(20, 40), 1), [299, 0, 150]):
        assert ROWS[key].tolist() == array[key].tolist()
    assert ["x", "y"] == table.names
    assert [(7, 3.5), (8, 4.0)] == table[7:].tolist()
    assert [0.5, 1.0] == group["t/y"][1:3].tolist()
    assert "in" in group
    assert "t/z" not in group
    with pytest.raises(KeyError):
        group["other"]


def test_verify_chooses_the_check_of_datasets(url):
    report = bloscpack.verify(url)
    assert isinstance(report, DatasetReport)
    assert [] == report.findings
    assert dataset.verify(url).as_dict() == report.as_dict()


def test_verify_over_http(web):
    secret = "?token=secret"
    for name in ("/g/t", "/g/in/a b"):
        report = bloscpack.verify(web.url + name + secret)
        assert isinstance(report, DatasetReport)
        assert [] == report.findings
    with pytest.raises(FileNotFoundError):
        bloscpack.verify(web.url + "/g/other")


def test_stores_with_lists(url):
    with dataset.open(url) as group:
        check(group)
        assert ["in", "t"] == list(group)
        assert "a b  array (zarr): shape (300, 2)" in repr(group)
        assert group["t/x"].cbytes > 0
    if not url.startswith(("zip", "simplecache")):
        assert [2.0, 3.0] == dataset.open_array(url + "/in/a b")[1].tolist()


def test_http_requests_for_a_grid(web):
    """Only the chunks that hold the items are read, apart from indexes of shards."""
    items = np.random.default_rng(1).integers(0, 2**60, (256, 1500))
    cut = {"chunks": (64, 250), "shards": (128, 750)}
    dataset.create_array(web.root / "grid", items, **cut).close()
    array = dataset.open(web.url + "/grid")
    web.requests.clear()
    web.nbytes = 0
    assert items[:, 700].tolist() == array[:, 700].tolist()
    shards = {name for _, name in web.requests}
    assert {"grid/c/0/0", "grid/c/1/0"} == shards
    assert web.nbytes < 6 * 64 * 250 * 8  # four of 24 chunks, and two indexes
    web.requests.clear()
    assert items[140, [740, 760]].tolist() == array[140, [740, 760]].tolist()
    assert {"grid/c/1/1"} == {name for _, name in web.requests}
    assert items.tolist() == array[:].tolist()
    assert [] == dataset.verify(web.url + "/grid").findings


@pytest.mark.parametrize("ranges", [True, False])
def test_http(web, ranges):
    web.ranges = ranges
    with dataset.open(web.url + "/g?token=secret") as group:
        check(group)
        assert "<Group '%s/g?...' (zarr)>" % web.url == repr(group)
        with pytest.raises(StorageError, match="can't list") as caught:
            list(group)
        assert "secret" not in str(caught.value)


def test_names_over_http(web, folder):
    """Escapes and upper case change nothing, and the query stays behind the path."""
    names = ["a::b", "a?b", "a#b", "%41", "x y"]
    dataset.create_table(folder / "g/t2", {name: [7] for name in names}).close()
    for url in (web.url, web.url.replace("http", "HTTP")):
        table = dataset.open(url + "/g/t2?token=secret")
        assert [(7,) * 5] == table[:].tolist()
        assert [7] == dataset.open(url + "/g/t2/x%20y")[:].tolist()
        with pytest.raises(UsageError, match="HTTP is for reading"):
            dataset.create_array(url + "/new", [1])
        with pytest.raises(StorageError, match="can't list"):
            list(dataset.open(url + "/g"))


def test_http_requests(web):
    """No list is needed, and only shards that hold the rows are read."""
    array = dataset.open_array(web.url + "/g/in/a b")
    web.requests.clear()
    assert ROWS[70:75].tolist() == array[70:75].tolist()
    assert [("GET", "g/in/a b/c/1/0")] == web.requests
    web.requests.clear()
    array[100]
    assert len(web.requests) <= 1


def test_http_requests_before_the_items(web):
    """The document is read once, then the end of the shard, then front and chunk."""
    items = np.random.default_rng(2).integers(0, 2**60, (400, 100))
    dataset.create_array(web.root / "cut", items, chunks=20, shards=400).close()
    web.requests.clear()
    array = dataset.open(web.url + "/cut")
    assert [("GET", "cut/zarr.json")] == web.requests
    assert items[7, 3] == array[7, 3]
    assert [("GET", "cut/c/0/0")] * 3 == web.requests[1:]
    assert items[390, 3] == array[390, 3]  # at the end, which is known
    assert items[47, 3] == array[47, 3]
    assert [("GET", "cut/c/0/0")] * 4 == web.requests[1:]


def test_http_requests_for_a_table(web):
    """The document of a table has those of its columns. All shards are read at once."""
    columns = {name: numpy_rows(name) for name in "abcd"}
    dataset.create_table(web.root / "four", columns).close()
    barrier = threading.Barrier(len(columns))
    web.requests.clear()
    table = dataset.open(web.url + "/four")
    assert [("GET", "four/zarr.json")] == web.requests
    web.requests.clear()
    assert columns["c"][5] == table["c"][5]
    assert [("GET", "four/c/c/0")] == web.requests
    web.before = lambda path: path.endswith("/c/0") and barrier.wait(30)
    row = dataset.open(web.url + "/four")[5]
    assert [columns[name][5] for name in columns] == list(row)


@pytest.mark.parametrize(
    ("layout", "file"), [("zarr", "c/0/0"), ("superchunk", "data/__1__.bin")]
)
def test_http_requests_for_a_shard(web, layout, file):
    """It is read as a whole if most is needed; its front is checked in any case."""
    items = np.random.default_rng(3).integers(0, 2**60, (400, 100))
    how = {"layout": layout, "chunks": 20, "shards": 400}
    dataset.create_array(web.root / "cut", items, **how).close()
    shard = "GET", "cut/" + file
    array = dataset.open(web.url + "/cut")
    web.requests.clear()
    assert items.tolist() == array[:].tolist()
    assert [shard] == web.requests
    assert items[390].tolist() == array[390].tolist()
    assert [shard] * 2 == web.requests
    array = dataset.open(web.url + "/cut")
    web.requests.clear()
    barrier = threading.Barrier(2)
    web.before = lambda _: len(web.requests) > 1 and barrier.wait(30)
    assert items[7].tolist() == array[7].tolist()
    assert [shard] * 3 == web.requests  # the end; the front and a chunk at once
    web.before = lambda _: None
    dataset.create_array(web.root / "new", items, **how).close()
    right = (web.root / "cut" / file).read_bytes()
    shutil.copy(web.root / "new" / file, web.root / "cut" / file)
    for key in (7, slice(None)):
        array = dataset.open(web.url + "/cut")
        with pytest.raises(DamageError, match="expected a file of the array"):
            array[key]
    # The wrong file is forgotten.
    (web.root / "cut" / file).write_bytes(right)
    assert items.tolist() == array[:].tolist()


@pytest.mark.parametrize("dtype", ["i8", "f4"])
@pytest.mark.parametrize("options", [{}, {"fill_value": 0}], ids=["dense", "sparse"])
@pytest.mark.parametrize("scheme", ["http", "memory"])
def test_a_dataset_that_is_replaced(folder, dtype, options, scheme):
    """A handle that is open does not read items of the next array at this place."""
    items = np.arange(1.0, 401).reshape(100, 4)
    how = {"chunks": 20, "shards": 20, **options}
    store = fsspec.filesystem("memory")

    def publish(which):
        dataset.create_array(folder / which, items.astype(dtype), **how).close()
        shutil.rmtree(folder / "a", ignore_errors=True)
        (folder / which).rename(folder / "a")
        if scheme == "memory":
            if store.exists("/replaced"):
                store.rm("/replaced", recursive=True)
            store.put(str(folder / "a"), "/replaced", recursive=True)

    with serving_folder(folder) as web:
        url = web.url + "/a" if scheme == "http" else "memory://replaced"
        publish("first")
        array, late = dataset.open(url), dataset.open(url)
        assert items[0].tolist() == array[0].tolist()
        items += 1
        publish("second")
        for key in (50, slice(70, 90), [99, 41], slice(None)):
            for opened in (array, late):
                with pytest.raises(StorageError, match="open the dataset again"):
                    opened[key]
        for opened in (array, late):
            with pytest.raises(StorageError, match="open the dataset again"):
                opened.refresh()
        assert items.tolist() == dataset.open(url)[:].tolist()
    if scheme == "memory":
        store.rm("/replaced", recursive=True)


def test_http_requests_for_blocks(web):
    """An element takes its block; those of other blocks the chunk, which is kept."""
    items = np.random.default_rng(3).normal(20, 1, (4096, 256)).round(2)
    cut = {"chunks": 512, "shards": 2048, "cname": "lz4"}
    dataset.create_array(web.root / "data", items, **cut).close()
    array = dataset.open(web.url + "/data")
    for key, count in [
        *[((3, 5), 3), ((3, 5), 0), ((4, 7), 0)],  # the end, the front and block 0
        *[((500, 5), 1), ((300, 5), 0)],
        *[((600, 5), 1), ((slice(599, 602), slice(None)), 0)],
        *[((slice(512, 1024, 64), 3), 1), ((slice(None, None, 64), 3), 4)],
    ]:
        web.requests.clear()
        assert np.array_equal(items[key], array[key])
        assert len(web.requests) <= count, key


def test_http_requests_for_missing_chunks(web):
    """They are not looked for in a file again that has just been opened."""
    cut = {"chunks": 20, "shards": 400}
    with dataset.create_array(web.root / "few", shape=400, dtype="u1", **cut) as array:
        array[:] = 7
    path = web.root / "few/c/0"
    content = path.read_bytes()[: -15 * 16 - 4] + NO_ENTRY * 15
    path.write_bytes(content + crc_of(content[-20 * 16 :]))
    array = dataset.open(web.url + "/few")
    web.requests.clear()
    assert [7] * 100 + [0] * 300 == array[:].tolist()
    assert 1 == web.requests.count(("GET", "few/c/0"))


def test_http_requests_for_a_shard_with_free_space(web):
    """Bytes that belong to no chunk are not read."""
    nbytes = 17 * 2**20
    cut = {"chunks": nbytes, "shards": 2 * nbytes, "clevel": 0}
    dataset.create_array(web.root / "large", np.zeros(nbytes, "u1"), **cut).close()
    path = web.root / "large/c/0"
    content = path.read_bytes()
    index = content[-2 * 16 - 4 :]
    path.write_bytes(content[: -len(index)] + bytes(nbytes) + index)
    array = dataset.open(web.url + "/large")
    web.nbytes = 0
    assert not array[:].any()
    assert web.nbytes < 1.1 * nbytes


def numpy_rows(name):
    return np.arange(10) + ord(name)


def test_a_document_that_was_looked_for_is_read_once(web):
    """A reader that keeps a document does not hide a later state."""
    with dataset.create_array(web.root / "later", [1, 2]) as array:
        reader = dataset.open(web.url + "/later")
        array.append([3])
        reader.refresh()
        assert [1, 2, 3] == reader[:].tolist()
        array.attrs["new"] = 1
        assert {"new": 1} == dict(reader.attrs)


def test_store_that_does_not_tell(web):
    """S3 over HTTP refuses a name that does not exist, without the right to list."""
    web.refused = {"g/in/a b/meta/sizes", "g/in/a b/.bloscpack"}
    assert ROWS.tolist() == dataset.open(web.url + "/g/in/a b")[:].tolist()


def test_requests_of_a_refresh(web, folder):
    for name in ("g", "g/t"):
        opened = dataset.open(web.url + "/" + name)
        web.requests.clear()
        opened.refresh()
        assert [("GET", name + "/zarr.json")] == web.requests


def test_requests_for_a_url_without_a_dataset(web):
    """The documents of all layouts but one are looked for at the same time."""
    web.requests.clear()
    with pytest.raises(FileNotFoundError, match="there is no dataset"):
        dataset.open(web.url + "/g/other")
    assert len(web.requests) <= 8
    assert len({*web.requests}) >= len(web.requests) - 1


def test_a_url_of_a_file(web, folder):
    bloscpack.pack_ndarray_to_file(ROWS, folder / "file.blp")
    for url in (web.url + "/file.blp", folder / "file.blp"):
        with pytest.raises(NotADirectoryError, match="found a file"):
            dataset.open(url)


def test_errors(web, folder):
    with pytest.raises(FileNotFoundError, match="there is no dataset"):
        dataset.open(web.url + "/g/other")
    for call in (
        lambda: dataset.open(web.url + "/g", "r+"),
        lambda: dataset.open(web.url + "/g/t", "r+"),
        lambda: dataset.open(web.url + "/g/in/a b", "r+"),
        lambda: dataset.open(web.url + "/g/in/a b", "a"),
        lambda: dataset.create_array("memory://new", [1], layout="bcolz"),
        lambda: dataset.create_table("memory://new", {"a": [1]}, layout="bcolz"),
        lambda: dataset.create_array("memory://new", [1], mode="r"),
        lambda: dataset.create_group(web.url + "/b"),
        lambda: dataset.open_group(web.url + "/g", "a"),
        lambda: dataset.create_array(web.url + "/b", [1]),
        lambda: dataset.create_table(web.url + "/b", {"a": [1]}),
        lambda: dataset.open(web.url + "/g/in/a b").append([[1, 2]]),
    ):
        with pytest.raises(UsageError):
            call()
    for call in (dataset.open, dataset.find, dataset.describe):
        with pytest.raises(StorageError, match=r"no file system .* \(foo\)") as caught:
            call("foo://x/y")
        assert "foo://x/y" == caught.value.filename
    shard = folder / "g/in/a b/c/2/0"
    data = bytearray(shard.read_bytes())
    first = int.from_bytes(data[-68:-60], "little")  # in the index of four chunks
    data[first + 20] ^= 1
    shard.write_bytes(data)
    array = dataset.open(web.url + "/g/in/a b")
    assert ROWS[:128].tolist() == array[:128].tolist()
    with pytest.raises(DamageError, match="c/2/0"):
        array[:]


@pytest.mark.parametrize("url", ["http://localhost/a", "memory://a"])
def test_what_needs_a_folder(url, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for call in (
        lambda: dataset.recover(url, "saved"),
        lambda: dataset.recover(folder, url),
        lambda: bigfile.File(url, create=True),
    ):
        before = sorted(os.listdir())
        with pytest.raises(UsageError, match="'%s' is a URL" % url):
            call()
        assert before == sorted(os.listdir())
    assert dataset.verify("file://%s" % folder).ok


def test_a_server_that_is_gone(folder, monkeypatch):
    monkeypatch.setattr(remote, "FIRST_DELAY", 0.01)
    with serving_folder(folder) as web:
        url = web.url
    with pytest.raises(StorageError, match="connection failed"):
        dataset.open(url + "/g")


def test_changes_by_others(web, folder, monkeypatch):
    """A reader goes on when rows are appended to a shard that it has open."""
    monkeypatch.setattr(remote_files, "HEAD_SIZE", 256)
    array = dataset.open(web.url + "/g/in/a b")
    assert ROWS[-1].tolist() == array[-1].tolist()
    with dataset.open(folder / "g/in/a b", "r+") as writer:
        writer.append(ROWS)
    assert ROWS.tolist() == array[:].tolist()
    assert (600, 2) == dataset.open(web.url + "/g/in/a b").shape
    with dataset.open(folder / "g/in/a b", "r+") as writer:
        writer.resize(100)
    # Small files that are open are in memory; what is not there is an error.
    with suppress(StorageError):
        assert ROWS.tolist() == array[:].tolist()


def add_pending_file(path):
    """Commit -1 for the first shard of an array, and don't complete the change."""
    copy = shutil.copytree(path, path.with_name("changed"))
    with dataset.open_array(copy, "r+") as array:
        array[:64] = -1
    changes = path / ".bloscpack"
    changes.mkdir()
    shutil.copy(copy / "c/0/0", changes / "new-1")
    shutil.rmtree(copy)
    document = path / "zarr.json"
    document.write_bytes(with_pending(document.read_bytes(), {"c/0/0": "new-1"}))


@pytest.mark.parametrize("layout", ["bcolz", "superchunk"])
def test_other_layouts(folder, layout):
    with dataset.create_array(folder / "o", ROWS, layout=layout) as array:
        array.append(ROWS[:3])
    dataset.create_table(folder / "p", {"x": [1, 2]}, layout=layout).close()
    with serving_folder(folder) as web:
        assert ROWS[1].tolist() == dataset.open(web.url + "/o")[301].tolist()
        assert [1, 2] == dataset.open(web.url + "/p")["x"][:].tolist()


# Changes


@pytest.fixture
def new():
    """The URL of a new array in a store that does not compare versions."""
    yield "memory://new/a"
    store = fsspec.filesystem("memory")
    if store.exists("/new"):
        store.rm("/new", recursive=True)


def test_the_fill_value_of_an_array_that_was_replaced_is_not_read(new):
    """A missing shard does not count for the old array."""
    how = {"shape": (4, 8), "dtype": "u1", "chunks": (1, 8), "shards": (1, 8)}
    with dataset.create_array(new, fill_value=0, **how) as array:
        array[:] = 5
    opened = dataset.open(new)
    assert 5 == opened[0, 0]
    with dataset.create_array(new, fill_value=9, mode="w", **how) as array:
        array[0] = 7
    with pytest.raises(StorageError, match="open the dataset again"):
        opened[2]
    store = fsspec.filesystem("memory")
    store.rm("/new/a", recursive=True)
    with pytest.raises(StorageError, match="open the dataset again"):
        opened[3]
    dataset.create_group(new).close()
    with pytest.raises(StorageError, match="open the dataset again"):
        opened.refresh()


def test_an_assignment_that_does_not_fit(new):
    """A wrong column is found before a shard of another one is stored."""
    with dataset.create_table(new, table_of(21), chunks=2, shards=8) as table:
        with pytest.raises(UsageError):
            table[:] = {"x": np.arange(21) + 1, "y": ["a"] * 21}
        assert table_of(21)["x"].tolist() == dataset.open(new)["x"][:].tolist()
        table[:] = {"x": np.arange(21) + 1, "y": np.arange(21)}
    assert [(n + 1, n) for n in range(21)] == dataset.open(new)[:].tolist()


def test_modes(new):
    for start in (1, 2):
        with dataset.open(new, "a", data=[start]) as array:
            array.append([9])
    assert [1, 9, 9] == dataset.open(new)[:].tolist()
    with pytest.raises(FileExistsError):
        dataset.open(new, "x", data=[1])
    with pytest.raises(UsageError):  # the old one is kept
        dataset.create_array(new, [1], mode="w", attrs={"a": object()})
    assert 3 == len(dataset.open(new))
    with dataset.open_table(new, "w", data={"x": [1, 2]}, attrs={"a": 1}) as table:
        assert [1, 2] == table["x"][:].tolist()
    with dataset.open_table(new, "a") as table:
        table.append({"x": [3]})
    with dataset.open(new + "/x", "r+") as column:
        with pytest.raises(UsageError, match="the columns of a table"):
            column.append([1])
        column[0] = 7
    with pytest.raises(UsageError, match="is a column of a table"):
        dataset.create_array(new + "/x", [1], mode="w")
    assert [(7,), (2,), (3,)] == dataset.open(new)[:].tolist()
    with dataset.open_group("memory://new", "a") as group:
        assert ["a"] == list(group)
    assert "zarr" == dataset.open_group("memory://new").layout
    with dataset.open(new, "w") as group:
        assert [] == list(group)
    fsspec.filesystem("memory").pipe_file("/new/other/file", b"1")
    with pytest.raises(StorageError, match="is not a dataset"):
        dataset.create_array("memory://new/other", [1], mode="w")
    with pytest.raises(FileExistsError):
        dataset.create_array("memory://new/other", [1])


def test_names_of_members(new):
    """A name is no pattern, no query, no escape and no URL."""
    with dataset.create_group(new) as group:
        for number, name in enumerate(("a*", "ab", "a?b", "a?c", "[ab]", "a")):
            group.create_array(name, [number])
        for name in ("a#b", "a b", "%41", "b:c"):
            group.create_array("in/" + name, [name])
            assert [name] == dataset.open(new + "/in/" + name)[:].tolist()
        assert ["%41", "a b", "a#b", "b:c"] == list(group["in"])
        del group["in"]
        for call in (
            lambda: group.create_array("a::b", [7], mode="w"),
            lambda: dataset.create_table(new + "/t", {"x": [1], "x::y": [1]}, mode="w"),
            lambda: group["ab::cd"],
        ):
            with pytest.raises(UsageError, match="separates the URLs of a chain"):
                call()
            assert 5 == group["a"][0]
            group.create_table("t", {"z": [1]}, mode="w")
        del group["t"]
        table = group.create_table("t", {"x": [1], "x*": [2], "x?": [3]})
        assert [3, 2] == [group["a?c"][0], group["a?b"][0]]
        for name in ("a*", "[ab]"):
            del group[name]
        table.remove_column("x*")
        assert ["a", "a?b", "a?c", "ab"] == [name for name in group if name != "t"]
    with dataset.open(new) as group:
        assert [5, 2, 3, 1] == [group[name][0] for name in group if name != "t"]
        assert [(1, 3)] == group["t"][:].tolist()


def test_copy_of_an_interrupted_change(new, tmp_path):
    """The change of a table is read and completed in a folder, and over HTTP."""
    dataset.create_table(new, table_of(21), shards=8).close()
    store = fsspec.filesystem("memory")
    table = dataset.open(new.replace("memory", "failing"), "r+")
    FailingFileSystem.left = 6  # a token, two shards of each column and the document
    with pytest.raises(StorageError):
        table[3:12] = table_of(9)
    FailingFileSystem.left = 10**9
    store.get("/new/a", str(tmp_path / "a"), recursive=True)
    expected = state_of(new)
    assert [0, 1, 2, *range(9), *range(12, 21)] == expected[0]["x"][0]
    with serving_folder(tmp_path) as web:
        assert expected == state_of(web.url + "/a")
    assert expected == state_of(tmp_path / "a")
    assert "the next writer completes it" in str(dataset.verify(new).findings)
    with dataset.open(tmp_path / "a", "r+") as table:
        table.append(table_of(1))
    assert not (tmp_path / "a/.bloscpack").exists()
    assert 22 == len(dataset.open(tmp_path / "a/y"))
    found, _ = state_of(tmp_path / "a")
    assert [*expected[0]["x"][0], 0] == found["x"][0]


def test_copies_of_documents(new):
    """A group around a table had copies, which other programs would read."""
    with dataset.create_group(new) as group:
        group.create_table("t", {"x": [1]})
    store = fsspec.filesystem("memory")
    name = "/new/a/zarr.json"
    copies = {"consolidated_metadata": {"metadata": {"t": {}, "t/x": {}}}}
    store.pipe_file(
        name, json.dumps({**json.loads(store.cat(name)), **copies}).encode()
    )
    with dataset.open(new + "/t", "r+") as table:
        table.append({"x": [2]})
    assert "consolidated_metadata" not in json.loads(store.cat(name))


def test_members_over_http(web, folder):
    """Copies of documents in a group name its members."""
    path = folder / "g/zarr.json"
    copies = {"metadata": {name: {} for name in ("in", "in/a b", "t", "t/x")}}
    document = {**json.loads(path.read_text()), "consolidated_metadata": copies}
    path.write_text(json.dumps(document))
    group = dataset.open(web.url + "/g")
    assert ["in", "t"] == list(group)
    assert ["a b"] == list(group["in"])


def table_of(count):
    return {"x": np.arange(count), "y": np.arange(count) / 2}


class FailingFileSystem(MemoryFileSystem):
    """A store in memory that fails after some changes."""

    protocol = "failing"
    left = 0

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.replace("failing:", "memory:"))

    def _count(self):
        FailingFileSystem.left -= 1
        if self.left < 0:
            raise OSError("no more")

    def pipe_file(self, path, value, **options):
        self._count()
        super().pipe_file(path, value, **options)

    def rm_file(self, path):
        self._count()
        super().rm_file(path)


fsspec.register_implementation("failing", FailingFileSystem, clobber=True)


def state_of(url):
    """Return all that is in a table; its columns have the same length."""
    table = dataset.open_table(url)
    assert 1 == len({len(column) for column in table.columns.values()})
    columns = {n: (c[:].tolist(), dict(c.attrs)) for n, c in table.columns.items()}
    return columns, dict(table.attrs)


CHANGES = {
    "append": lambda table: table.append(table_of(11)),
    "grow": lambda table: table.resize(33),
    "shrink": lambda table: table.resize(len(table) - 5),
    "add": lambda table: table.add_column("z", np.arange(len(table))),
    "remove": lambda table: table.remove_column("x"),
    "attributes": lambda table: table.attrs.update(a=2),
    "attributes of a column": lambda table: table["y"].attrs.update(a=2),
    "assign": lambda table: table.__setitem__(slice(3, 12), table_of(9)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_interrupted_changes(new, change):
    """A reader sees the old table or the new one, and the next writer goes on."""
    failing = new.replace("memory", "failing")
    settings = {"chunks": 2, "shards": 8, "attrs": {"a": 1}, "mode": "w"}
    with dataset.create_table(new, table_of(21), **settings) as table:
        old = state_of(new)
        CHANGES[change](table)
    expected = state_of(new)
    for count in range(99):
        dataset.create_table(new, table_of(21), **settings).close()
        FailingFileSystem.left = 10**9
        table = dataset.open(failing, "r+")
        FailingFileSystem.left = count
        try:
            CHANGES[change](table)
        except StorageError:
            found = state_of(new)
            assert found in (old, expected)
            length = len(found[0]["y"][0])
            with dataset.open(new, "r+") as writer:
                assert found == state_of(new)
                writer.append({name: [5] for name in writer.names})
            assert length + 1 == len(dataset.open(new))
            for column in dataset.open(new).columns:
                assert 5 == dataset.open_array("%s/%s" % (new, column))[-1]
            FailingFileSystem.left = 10**9
            for _ in range(2):
                with pytest.raises(Conflict):
                    table.attrs["a"] = 3
            continue
        assert expected == state_of(new)
        break
    assert 1 < count < 99


@pytest.mark.parametrize("change", CHANGES)
def test_a_writer_goes_on_when_the_store_does(new, change):
    """Its next change completes the one that has failed, or makes its own alone."""
    failing = new.replace("memory", "failing")
    for count in range(99):
        options = {"chunks": 2, "shards": 8, "attrs": {"a": 1}, "mode": "w"}
        dataset.create_table(new, table_of(21), **options).close()
        FailingFileSystem.left = 10**9
        with dataset.open(failing, "r+") as table:
            FailingFileSystem.left = count
            with suppress(StorageError):
                CHANGES[change](table)
            is_done, FailingFileSystem.left = FailingFileSystem.left >= 0, 10**9
            before = state_of(new)
            table.attrs["later"] = 2
            assert {**before[1], "later": 2} == dict(table.attrs)
            assert (before[0], dict(table.attrs)) == state_of(new)
            length = len(table)
            table.append({name: [5] for name in table.names})
            assert length + 1 == len(table) == len(dataset.open(new))
            assert table[:].tolist() == dataset.open(new)[:].tolist()
        assert not fsspec.filesystem("memory").find("/new/a/.bloscpack")
        assert dataset.verify(new).ok
        if is_done:
            break
    assert 1 < count < 99


@pytest.mark.parametrize("is_joint", [True, False])
@pytest.mark.parametrize("copied", [True, False])
def test_readers_of_an_inner_group_after_a_first_change_that_was_interrupted(
    new, copied, is_joint
):
    """The copies in its document, of whatever program, have counted for them before."""
    store = fsspec.filesystem("memory")
    for count in range(99):
        with dataset.create_group(new, mode="w") as group:
            group["in/a"] = [0, 1]
            with nullcontext() if copied else group["in"].change():
                pass
        if copied:
            inner, array = (
                json.loads(store.cat("/new/a/in%s/zarr.json" % n)) for n in ("", "/a")
            )
            inner["consolidated_metadata"] = {"metadata": {"a": array}}
            store.pipe_file("/new/a/in/zarr.json", json.dumps(inner).encode())
        FailingFileSystem.left = count
        group = dataset.open_group(new.replace("memory", "failing"), "r+")
        with suppress(StorageError), group, group.change():
            pass
        group = dataset.open_group(new, "r+")
        with group, group.change() if is_joint else nullcontext():
            group["in/a"].append([7])
            group["in/b"] = [8]
        inner = dataset.open(new + "/in")
        assert [[0, 1, 7], [8]] == [inner[name][:].tolist() for name in ("a", "b")]
        assert [] == [name for name in store.find("/new") if ".bloscpack" in name]
        if FailingFileSystem.left >= 0:
            break
    assert 3 < count < 99


@pytest.mark.parametrize("options", [{}, {"timeout": 0.1}])
def test_rows_that_another_program_appends_beside_a_first_change(
    new, options, monkeypatch
):
    """They are in the group, or its program gets an error."""
    put, made = ObjectStore.put, ["refused"]
    for count in itertools.count():
        with dataset.create_group(new, mode="w") as group:
            group["a"], group["b"] = [0, 1], [0]
        other = dataset.open(new + "/a", "r+", **options)
        left = [count]

        def stored(store, name, content, version, left=left, other=other):
            left[0] -= 1
            if left[0] == -1:
                with suppress(StorageError):
                    other.append([7])
                    made.append("appended")
            return put(store, name, content, version)

        made[1:] = []
        with dataset.open_group(new, "r+", timeout=0.1) as group:
            monkeypatch.setattr(ObjectStore, "put", stored)
            with suppress(StorageError), group.change():
                pass
            monkeypatch.undo()
        rows = dataset.open(new)["a"][:].tolist()
        assert rows == ([0, 1, 7] if made[-1] == "appended" else [0, 1])
        if left[0] >= 0:
            break
    assert 3 < count


@pytest.mark.parametrize("is_inner", [False, True])
def test_the_open_members_of_a_group_after_a_first_change_that_has_failed(
    new, is_inner
):
    """They have the state of the files, or an error says what to do."""
    for count in range(99):
        with dataset.create_group(new, mode="w") as group:
            group["a"], group["b"] = [0, 1], [2]
            if is_inner:
                group["in/c"] = [3]
                with group["in"].change():
                    pass
        FailingFileSystem.left = 10**9
        with dataset.open_group(new.replace("memory", "failing"), "r+") as group:
            a, b = group["a"], group["b"]
            FailingFileSystem.left = count
            with suppress(StorageError), group.change():
                a[0] = 5
                b.append([6])
            is_done, FailingFileSystem.left = FailingFileSystem.left >= 0, 10**9
            expected = dataset.open(new)["a"][:].tolist()
            with suppress(StorageError):
                a.append([7])
                expected.append(7)
            with group.change():
                group.attrs["n"] = 1
            assert expected == dataset.open(new)["a"][:].tolist()
            for name in ("a", "b"):
                found = dataset.open(new)[name][:].tolist()
                assert found == group[name][:].tolist()
        if is_done:
            break
    assert 3 < count < 99


def test_a_group_keeps_waiting_rows_if_another_program_is_faster(new):
    """Its right comes back with its next turn."""
    with dataset.create_group(new) as group:
        group["a"] = [1]
        with group.change():
            pass
    group = dataset.open_group(new, "r+")
    waiting = group.create_array("b", [2], buffered=True)
    waiting.append([3])
    put = ObjectStore.put

    def beside(store, name, content, version):
        ObjectStore.put = put
        with dataset.open_group(new, "r+") as other:
            other["a"].append([4])
        return put(store, name, content, version)

    ObjectStore.put = beside
    try:
        with suppress(Conflict):
            group.close()
    finally:
        ObjectStore.put = put
    group.close()
    assert [2, 3] == dataset.open(new)["b"][:].tolist()
    assert [1, 4] == dataset.open(new)["a"][:].tolist()


def test_a_writer_that_lost_its_right_can_be_closed(new):
    lost = dataset.create_array(new, [1], buffered=True)
    lost.append([2])
    with dataset.open(new, "r+") as other:
        other.append([3])
    with pytest.raises(Conflict):
        lost.close()
    assert lost.closed
    assert [1, 3] == dataset.open(new)[:].tolist()


def test_items_that_another_program_assigns_beside_those_that_wait(new):
    """A chunk in memory was read when no other writer could change it any more."""
    with dataset.create_array(new, [0, 0, 0], chunks=4) as other:
        other[0] = 1
        with dataset.open(new, "r+", buffered=True) as array:
            assert [1, 0, 0] == array[:].tolist()
            other[0] = 2
            array[1] = 5
            with pytest.raises(Conflict):
                other[2] = 7
        assert [2, 5, 0] == dataset.open(new)[:].tolist()


def test_a_call_without_a_change_claims_nothing(new):
    dataset.create_array(new, [1]).close()
    first, second = (dataset.open(new, "r+") for _ in range(2))
    first.append([2])
    second.append([])
    with pytest.raises(UsageError):
        second.append(["text"])
    first.append([3])
    assert [1, 2, 3] == dataset.open(new)[:].tolist()


CLOSED_AT_EXIT = """
import atexit
from bloscpack import dataset
array = dataset.create_array("memory://new/a", [1, 2], buffered=True)
array.append([3])
atexit.register(lambda: print(dataset.open("memory://new/a")[:].tolist()))
atexit.register(array.close)
"""


def test_a_dataset_that_is_closed_when_python_ends():
    """No thread can be started then."""
    assert "[1, 2, 3]\n" == run_python("-c", CLOSED_AT_EXIT, text=True).stdout


# Modules can't be imported then any more.
CHANGED_BY_A_FINALIZER = """
import builtins
from bloscpack import dataset

class Late:
    array = dataset.create_array("memory://new/a", [1, 2])

    def __del__(self, output=print):
        try:
            self.array.append([3])
        except ImportError:
            output("refused")

builtins.late = Late()
"""


def test_a_dataset_that_is_changed_by_a_finalizer_when_python_ends():
    """Up to Python 3.11, a thread can be started then, but does nothing."""
    done = run_python("-c", CHANGED_BY_A_FINALIZER, text=True, timeout=60)
    assert "refused\n" == done.stdout


def test_interrupted_creation(new):
    """A dataset is there when it is complete; the next program tidies up."""
    failing = new.replace("memory", "failing")
    for mode in ("x", "w"):
        for count in range(99):
            FailingFileSystem.left = 10**9
            if mode == "w":
                dataset.create_table(new, table_of(30), shards=16, mode="w").close()
            try:
                FailingFileSystem.left = count
                dataset.create_table(failing, table_of(21), shards=16, mode=mode)
                break
            except StorageError:
                try:
                    columns, _ = state_of(new)
                    assert len(columns["x"][0]) in (30, 21)
                    assert mode == "w" or len(columns["x"][0]) == 21
                    if len(columns["x"][0]) == 21:  # only a mark is left
                        dataset.create_array(new, [1], mode="w").close()
                except (NotReadable, FileNotFoundError):
                    with dataset.create_array(new, shape=90, dtype="i4") as array:
                        assert not array[:].any()
                    assert ["a"] == list(dataset.open("memory://new"))
                fsspec.filesystem("memory").rm("/new", recursive=True)
        assert 5 < count < 99
        assert (21,) == dataset.open(new).shape
        if mode == "x":
            fsspec.filesystem("memory").rm("/new", recursive=True)


def test_an_array_with_a_pending_file(new, tmp_path):
    """A copy of a folder whose writer died is completed before it is changed."""
    with dataset.create_array(tmp_path / "a", ROWS, chunks=16, shards=64) as array:
        array.append(ROWS[:10])
    add_pending_file(tmp_path / "a")
    fsspec.filesystem("memory").put(str(tmp_path / "a"), "/new/", recursive=True)
    expected = np.concatenate([ROWS, ROWS[:10]])
    expected[:64] = -1
    assert expected.tolist() == dataset.open(new)[:].tolist()
    with dataset.open(new, "r+") as array:
        array.append(ROWS[:1])
    expected = np.concatenate([expected, ROWS[:1]])
    assert expected.tolist() == dataset.open(new)[:].tolist()
    assert not fsspec.filesystem("memory").find("/new/a/.bloscpack")


def test_two_writers_of_a_table(new):
    first = dataset.create_table(new, table_of(9))
    with dataset.open(new, "r+") as second:  # it closes before the first one begins
        second.append(table_of(3))
    with pytest.raises(StorageError, match="another program has changed"):
        first.append(table_of(4))
    first = dataset.open(new, "r+")
    first.append(table_of(1))
    second = dataset.open(new, "r+")
    second.append(table_of(2))
    for _ in range(2):
        with pytest.raises(StorageError):
            first.append(table_of(4))
    second.append(table_of(5))
    first.close()
    second.close()
    expected = [n for count in (9, 3, 1, 2, 5) for n in range(count)]
    assert expected == dataset.open(new)["x"][:].tolist()


def test_a_copy_of_a_document_that_another_program_has_removed(new):
    """The document of the table has that of the column, and a change writes it."""
    dataset.create_table(new, table_of(9)).close()
    with dataset.open_table(new, "r+") as table:
        ObjectStore(new).remove("x/zarr.json")
        table.append(table_of(1))
    assert [*range(9), 0] == dataset.open(new + "/x")[:].tolist()


def test_a_document_that_another_program_has_replaced(new):
    dataset.create_table(new, table_of(9)).close()
    store = fsspec.filesystem("memory")
    with dataset.open_table(new, "r+") as table:
        table.append(table_of(1))
        store.pipe("/new/a/zarr.json", store.cat("/new/a/zarr.json"))
        with pytest.raises(Conflict):
            table.append(table_of(1))
    assert [*range(9), 0] == dataset.open(new)["x"][:].tolist()


# Two programs: the second one runs between two requests of the first one


def create(url, rows=20):
    dataset.create_array(url, np.arange(rows), chunks=2, shards=4).close()


def create_wrongly(url):
    def rows():
        for _ in range(20):  # the first shards are stored before the error
            yield np.arange(4)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        dataset.create_array(url, rows(), dtype="i8", chunks=2, shards=2)


def append(url):
    with dataset.open(url, "r+") as found:
        found.append({"x": [5], "y": [5]} if hasattr(found, "columns") else [5])


def assign(url):
    with dataset.open(url, "r+") as found:
        found[:9] = table_of(9)


def create_table_whose_writer_dies(url):
    dataset.create_table(url, table_of(20), chunks=2, shards=8).close()
    table = dataset.open(url.replace("memory", "failing"), "r+")
    FailingFileSystem.left = 4  # a token, two shards and the document
    with pytest.raises(StorageError):
        table[:1] = table_of(1)


# What there is before; the two programs; the request of the first one before which the
# second one runs: the method, the object, and how many such requests come before; the
# rows at the end, and whether the first one must fail.
PAIRS = {
    "create, twice": (None, create, create, "put", "zarr.json", 0, 20, True),
    "discard": (None, create_wrongly, create, "put", "zarr.json", 1, 20, False),
    "complete": (
        create_table_whose_writer_dies,
        dataset.open_table,
        append,
        "object_version",
        "x/c/0",
        0,
        21,
        False,
    ),
    "complete after the commit": (
        lambda url: dataset.create_table(url, table_of(9)).close(),
        assign,
        append,
        "put",
        "zarr.json",
        2,  # a token, and the document with the pending files
        10,
        False,
    ),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_two_programs(new, pair, monkeypatch):
    before, first, second, method, name, count, rows, fails = PAIRS[pair]
    if before is not None:
        before(new)
    original, left = getattr(ObjectStore, method), count

    def call(self, found, *arguments):
        nonlocal left
        left -= found == name
        if left < 0 and found == name:
            monkeypatch.setattr(ObjectStore, method, original)
            second(new)
        return original(self, found, *arguments)

    monkeypatch.setattr(ObjectStore, method, call)
    options = {"mode": "r+"} if pair == "complete" else {}
    with pytest.raises(Conflict) if fails else nullcontext():
        first(new, **options)
    assert original is getattr(ObjectStore, method)
    found = dataset.open(new)
    assert rows == len(found)
    assert 5 == found[-1]["x"] if "complete" in pair else rows - 1 == found[-1]
    assert not fsspec.filesystem("memory").find("/new/a/.bloscpack")


def replace(url):
    with dataset.create_group(url, mode="w") as group:
        group["x"] = [7.5, 8.5]


@pytest.mark.parametrize(
    ("second", "expected"),
    [(append, [0, 5, 5]), (replace, [7.5, 8.5]), (None, [0, 5, 5])],
)
def test_a_copy_of_a_document_that_comes_late(new, second, expected, monkeypatch):
    """It does not replace one that another program has stored meanwhile."""
    dataset.create_table(new, table_of(1)).close()
    put, late = ObjectStore.put, []

    def call(self, name, content, version):
        if name == "x/zarr.json":
            late.append((self, name, content, version))
            if len(late) == 1:
                (second or append)(new)
                if second is None:
                    return None
            elif second is None:  # before the one of the second program
                put(*late[0])
        return put(self, name, content, version)

    monkeypatch.setattr(ObjectStore, "put", call)
    append(new)
    assert expected == dataset.open(new + "/x")[:].tolist()
    copy = json.loads(fsspec.filesystem("memory").cat("/new/a/x/zarr.json"))
    assert [len(expected)] == copy["shape"]


def test_a_claim_leaves_what_a_later_writer_has_staged(new, monkeypatch):
    """That has committed its change, and died before the claim removes old files."""
    dataset.create_table(new, table_of(20), chunks=2, shards=8).close()
    put = ObjectStore.put

    def call(*arguments):
        monkeypatch.setattr(ObjectStore, "put", put)
        version = put(*arguments)
        FailingFileSystem.left = 4  # a token, two shards and the document
        with pytest.raises(StorageError):
            dataset.open(new.replace("memory", "failing"), "r+")[:1] = table_of(1)
        return version

    with dataset.open(new, "r+") as table:
        table[:1] = {"x": [7], "y": [7]}
    first = dataset.open(new, "r+")
    monkeypatch.setattr(ObjectStore, "put", call)
    with pytest.raises(Conflict):
        first[5:6] = table_of(1)
    assert (0, 0) == tuple(dataset.open(new)[0])


@pytest.mark.parametrize("mode", ["x", "w"])
def test_a_folder_that_another_program_takes_before_it_is_empty(new, mode, monkeypatch):
    """The first program removes nothing of the new dataset there."""
    if mode == "w":
        create(new)
    remove_all = ObjectStore.remove_all

    def call(self, *arguments, **options):
        monkeypatch.setattr(ObjectStore, "remove_all", remove_all)
        dataset.create_array(new, [4, 5], mode=mode).close()
        remove_all(self, *arguments, **options)

    monkeypatch.setattr(ObjectStore, "remove_all", call)
    with pytest.raises(Conflict):
        dataset.create_array(new, [1, 2, 3], mode=mode)
    assert [4, 5] == dataset.open(new)[:].tolist()


def test_a_member_that_is_removed_late(new, monkeypatch):
    """Another program has completed the removal, and made a new member."""
    with dataset.create_group(new) as group, group.change():
        group["a"], group["b"] = [1], [2, 3]
    FailingFileSystem.left = 3  # a token, the document and the copy of the member
    with pytest.raises(StorageError):
        del dataset.open_group(new.replace("memory", "failing"), "r+")["b"]
    below = ObjectStore._remove_below

    def call(self, name, *arguments):
        if name == "b":
            monkeypatch.setattr(ObjectStore, "_remove_below", below)
            with dataset.open_group(new, "r+") as other:
                other["b"] = [4, 5]
        return below(self, name, *arguments)

    monkeypatch.setattr(ObjectStore, "_remove_below", call)
    with dataset.open_group(new, "r+") as group, pytest.raises(Conflict):
        group.attrs["n"] = 1
    assert below is ObjectStore._remove_below
    assert [4, 5] == dataset.open(new)["b"][:].tolist()


def test_objects_with_other_names(new):
    """They are removed with the dataset."""
    store = fsspec.filesystem("memory")
    with dataset.create_group(new) as group:
        for mode in ("x", "w"):
            group.create_array("a", [1], mode=mode)
            for name in ("no\\te", "..\\x", "c/a::b"):
                store.pipe_file("/new/a/a/" + name, b"")
        del group["a"]
    assert ["/new/a/zarr.json"] == store.find("/new")


class TaggedFileSystem(MemoryFileSystem):
    """A store whose descriptions have the names of Google Cloud Storage and Azure."""

    protocol = "tagged"

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.replace("tagged:", "memory:"))

    def info(self, path, **options):
        found = super().info(path, **options)
        return {"etag": str(found.pop("created", "")), **found}


fsspec.register_implementation("tagged", TaggedFileSystem, clobber=True)


def test_two_writers_in_a_store_with_other_names_of_versions(new):
    url = new.replace("memory", "tagged")
    with dataset.create_array(url, ROWS) as first:
        dataset.open(url, "r+").append(ROWS[:5])
        with pytest.raises(Conflict):
            first.append(ROWS[:7])
    assert len(ROWS) + 5 == len(dataset.open(new))


@pytest.mark.parametrize("stored", [0, 100])
def test_a_second_claim_ends_a_change(new, stored):
    """The first writer has stored a shard or none, and can't store or commit more."""
    first = dataset.create_array(new, ROWS, chunks=16, shards=64)

    def rows():
        yield ROWS[:stored]
        with dataset.open(new, "r+") as second:
            second.append(ROWS[7:9])
        yield ROWS[:100]

    with pytest.raises(StorageError, match="another program has changed"):
        first.append(rows())
    expected = np.concatenate([ROWS, ROWS[7:9]])
    assert expected.tolist() == dataset.open(new)[:].tolist()


def test_a_store_that_fails(new):
    """An array that is not complete has its old rows; a new one is not there."""
    failing = new.replace("memory", "failing")
    FailingFileSystem.left = 3
    with pytest.raises(StorageError, match="no more"):
        dataset.create_array(failing, ROWS, chunks=16, shards=64)
    with pytest.raises((NotReadable, FileNotFoundError)):
        dataset.open(new)
    dataset.create_array(new, ROWS, chunks=16, shards=64).close()
    for count in range(4):
        array = dataset.open(failing, "r+")
        FailingFileSystem.left = count
        with pytest.raises(StorageError, match="no more"):
            array.append(-ROWS)
        assert ROWS.tolist() == dataset.open(new)[:].tolist()


def test_the_first_change_claims_the_document_that_was_opened(monkeypatch):
    """Each request takes long; if it has changed since, storing it is a conflict."""
    requests = []

    def recorded(do, name):
        def call(store, file, *args, **options):
            requests.append((name, file))
            return do(store, file, *args, **options)

        monkeypatch.setattr(ObjectStore, name, call)

    recorded(ObjectStore.read, "read")
    recorded(ObjectStore.put, "put")
    dataset.create_array("memory://claim/a", [1, 2]).close()
    with dataset.open("memory://claim/a", "r+") as array:
        requests.clear()
        array.append([3])
        assert ("put", "zarr.json") == requests[0]
        assert [1, 2, 3] == array[:].tolist()
        requests.clear()  # the writer knows the document that it has stored
        array.append([4])
        array.attrs["unit"] = "m"
        array[0] = 9
        assert "read" not in {name for name, _ in requests}
        assert [9, 2, 3, 4] == array[:].tolist()


def test_a_wrong_index_leaves_the_writer_usable():
    with dataset.create_array("memory://wrong-index/a", ROWS) as array:
        with pytest.raises(IndexError, match="out of bounds"):
            array[300] = 1
        with pytest.raises(IndexError):
            array["x"] = 1
        array[0] = 5
    assert [5.0, 5.0] == dataset.open("memory://wrong-index/a")[0].tolist()


def test_chunks_in_memory_are_of_the_version_that_is_read(web):
    """A shard that has changed is read again as a whole."""
    items = np.random.default_rng(1).random(40_000)
    cut = {"chunks": 10_000, "shards": 20_000, "sync": False}
    with dataset.create_array(web.root / "changed", items, **cut) as array:
        reader = dataset.open(web.url + "/changed")
        assert [items[0], items[-1]] == [reader[0], reader[-1]]
        array[:] = items + 1
        assert (items + 1).tolist() == reader[:].tolist()
