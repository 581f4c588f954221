"""Each file of a dataset belongs to it, and has its place there.

For all layouts that are written: no file can be missing, no two files can change
places, and no bit of a document can flip, so that other values are read and `verify`
finds nothing.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import pickle
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from dataset import documents
from dataset.contents import content
from storage.servers import serving_folder
from support import TESTS

from bloscpack import dataset
from bloscpack.dataset import checking
from bloscpack.exceptions import (
    BloscpackError,
    FormatError,
    StorageError,
    Unsupported,
    UsageError,
)

SHARDED = {"chunks": 10, "shards": 20}
DTYPE = [("x", "<i4"), ("p", [("u", "<i4"), ("v", "<f4")])]


def zarr_array(path):
    dataset.create_array(path, np.arange(70) % 7, **SHARDED, attrs={"a": 1}).close()


def zarr_table(path):
    columns = {"x": np.arange(45), "y": np.arange(45) * 2, "z": np.zeros((45, 2))}
    with dataset.create_table(path, columns, **SHARDED, attrs={"a": 1}) as table:
        table["x"].attrs["unit"] = "m"


def zarr_group(path):
    with dataset.create_group(path, attrs={"a": 1}) as group:
        group.create_array("x", np.arange(45), **SHARDED).close()
        group.create_array("in/y", np.arange(45) * 2, **SHARDED).close()


def superchunk_array(path):
    options = {**SHARDED, "layout": "superchunk", "attrs": {"a": 1}}
    dataset.create_array(path, np.arange(70) % 7, **options).close()


def superchunk_fields(path):
    items = np.zeros(45, DTYPE)
    items["x"], items["p"]["u"], items["p"]["v"] = np.arange(135).reshape(3, 45)
    dataset.create_array(path, items, layout="superchunk", **SHARDED).close()


def superchunk_table(path):
    columns = {"x": np.arange(45), "y": np.arange(45) * 2}
    options = {**SHARDED, "layout": "superchunk", "attrs": {"a": 1}}
    with dataset.create_table(path, columns, **options) as table:
        table["x"].attrs["unit"] = "m"


CREATED = [
    zarr_array,
    zarr_table,
    zarr_group,
    superchunk_array,
    superchunk_fields,
    superchunk_table,
]
created = pytest.mark.parametrize("create", CREATED, ids=lambda c: c.__name__)


def files_of(path):
    return sorted(p for p in Path(path).rglob("*") if p.is_file())


def finds(path):
    """Return whether `verify` says anything at all."""
    try:
        report = dataset.verify(path)
    except (BloscpackError, OSError):
        return True
    return bool(report.findings)


def check_noticed(path, expected):
    """Check that other values are an error, or at least a finding."""
    try:
        found = content(path)
    except (BloscpackError, OSError):
        assert finds(path)
        return
    assert found == expected or finds(path)


@created
def test_two_files_that_change_places(create, tmp_path):
    path = tmp_path / "a"
    create(path)
    expected = content(path)
    assert not finds(path)
    for one, other in itertools.combinations(files_of(path), 2):
        if one.read_bytes() == other.read_bytes():
            continue
        nodes = one.name == other.name == "zarr.json"
        if nodes and "array" not in one.read_text() + other.read_text():
            continue  # two groups: datasets of nothing but attributes
        swap(one, other)
        check_noticed(path, expected)
        assert finds(path), (one, other)
        swap(one, other)
    assert expected == content(path)


def swap(one, other):
    between = one.with_name("between")
    one.rename(between)
    other.rename(one)
    between.rename(other)


@pytest.mark.parametrize("step", [37, pytest.param(1, marks=pytest.mark.slow)])
@created
def test_a_flipped_bit_of_a_document(create, tmp_path, step):
    path = tmp_path / "a"
    create(path)
    expected = content(path)
    for file in files_of(path):
        text = file.read_bytes()
        if text[:4] == b"blpk":
            continue
        # Each byte, if `step` is 1, and each bit in some place.
        for position in range(0, len(text), step):
            damaged = bytearray(text)
            damaged[position] ^= 1 << position % 8
            file.write_bytes(damaged)
            check_noticed(path, expected)
        file.write_bytes(text)


def test_damage_that_makes_the_document_of_a_column_unknown(tmp_path):
    path = tmp_path / "a"
    zarr_table(path)
    name = path / "x/zarr.json"
    name.write_bytes(name.read_bytes().replace(b'"shape"', b'"rhape"', 1))
    with pytest.raises(FormatError, match=r"bloscpack-id.*zarr\.json"):
        dataset.open(path)
    (found,) = (f for f in dataset.verify(path).findings if f.severity == "error")
    assert ("x/zarr.json", "description") == (found.file, found.kind)
    assert "the digest in 'bloscpack-id' is wrong" in found.message


@pytest.mark.parametrize("kind", ["array", "table", "group"])
def test_attributes_that_no_user_may_set(kind, tmp_path):
    made = {
        "array": lambda path: dataset.create_array(path, [1, 2]),
        "table": lambda path: dataset.create_table(path, {"x": [1, 2]}),
        "group": dataset.create_group,
    }[kind](tmp_path / "d")
    names = ["bloscpack-id", "bloscpack-pending", "bloscpack-unfinished"]
    with made:
        for name in names[: 2 if kind == "array" else 3]:
            with pytest.raises(UsageError, match="'%s'" % name):
                made.attrs[name] = {}
    assert {} == dict(dataset.open(tmp_path / "d").attrs)


def test_a_document_of_an_unknown_array(tmp_path):
    """Nothing says that it is damaged: it is not ours, or of a newer release."""
    path = tmp_path / "a"
    zarr_array(path)
    value = json.loads((path / "zarr.json").read_text())
    value["codecs"] = [{"name": "other"}]
    documents.write(path / "zarr.json", value)
    with pytest.raises(Unsupported, match="does not open"):
        dataset.verify(path)
    del value["bloscpack"]
    documents.write(path / "zarr.json", value)
    # Without zarr, which may know the codec, the error names that package.
    errors = Unsupported, UsageError
    with pytest.raises(errors, match=r"the codec 'other'|pip install '\.\[zarr\]'"):
        dataset.verify(path)


@created
def test_a_missing_file(create, tmp_path):
    path = tmp_path / "a"
    create(path)
    expected = content(path)
    for file in files_of(path):
        kept = file.read_bytes()
        file.unlink()
        root = file == path / "zarr.json"
        # A folder of datasets needs no document.
        assert finds(path) or (root and create is zarr_group), file
        if create is zarr_group and file.name == "zarr.json" and not root:
            name = file.parent.relative_to(path).as_posix()
            with dataset.open(path) as group:
                if name == "in":  # a folder of datasets, too
                    assert "folder" == group[name].layout
                else:
                    with pytest.raises(KeyError):
                        group[name]
        elif root and create is not zarr_array:
            assert "folder" == dataset.open(path).layout
        elif create is zarr_table and file.name == "zarr.json":
            assert expected == content(path)  # the document of the table has a copy
        else:
            with pytest.raises((FormatError, OSError)):
                content(path)
        file.write_bytes(kept)
    assert expected == content(path)


@pytest.mark.parametrize(
    "create",
    [
        pytest.param(create, marks=pytest.mark.slow if many else ())
        for create, many in zip(CREATED, (0, 1, 1, 0, 1, 1), strict=True)
    ],
)
def test_a_missing_file_over_http(create, tmp_path):
    pytest.importorskip("aiohttp")
    create(tmp_path / "a")
    places = {zarr_group: ["a/x", "a/in/y"]}.get(create, ["a"])
    with serving_folder(tmp_path) as web:
        for place in places:
            expected = content_at(web.url, place)
            for file in files_of(tmp_path / place):
                kept = file.read_bytes()
                file.unlink()
                is_column = file.name == "zarr.json" and file.parent.name != "a"
                if create is zarr_table and is_column:  # the table has a copy
                    assert expected == content_at(web.url, place)
                else:
                    with pytest.raises((FormatError, OSError)):
                        content_at(web.url, place)
                file.write_bytes(kept)
            assert expected == content_at(web.url, place)


def content_at(url, place):
    return content("%s/%s" % (url, place))


@created
def test_a_missing_file_in_dask(create, tmp_path):
    """An array of Dask has no other values, whatever is missing when it is computed."""
    pytest.importorskip("dask.array")
    path = tmp_path / "a"
    create(path)
    found = dataset.open(path)
    names = {zarr_group: ["x", "in/y"]}.get(create, getattr(found, "names", [None]))
    for name in names:
        array = found if name is None else found[name]
        place = Path(array.path)
        expected = array[:].tolist()
        for file in files_of(place):
            blocks = dataset.open(path) if name is None else dataset.open(path)[name]
            kept, blocks = file.read_bytes(), pickle.dumps(blocks.to_dask())
            file.unlink()
            if kept[:4] == b"blpk":
                with pytest.raises((FormatError, OSError)):
                    pickle.loads(blocks).compute(scheduler="threads")
            file.write_bytes(kept)
            found_items = pickle.loads(blocks).compute(scheduler="threads")
            assert expected == found_items.tolist()


def test_rows_that_are_lost_are_named(tmp_path):
    """Reading and assigning a part of them raise; replacing all of them heals."""
    path = tmp_path / "a"
    dataset.create_array(path, np.ones(1000), chunks=50, shards=100).close()
    os.remove(path / "c/3")
    with dataset.open(path, "r+") as array:
        for change in (
            lambda: array[:].sum(),
            lambda: array[399],
            lambda: array.__setitem__(slice(310, 390), 2),
            lambda: array.__setitem__(slice(300, 350), 2),
        ):
            with pytest.raises(FormatError, match="the rows 300 to 400") as caught:
                change()
            assert str(path / "c/3") == str(caught.value.filename)
            assert (1000,) == array.shape
    report = dataset.verify(path)
    assert [("c/3", "missing", (300, 400))] == [
        (f.file, f.kind, f.rows) for f in report.findings
    ]
    with dataset.open(path, "r+") as array:
        array.append([5])
        array[300:400] = 1
        assert 1005 == array[:].sum()
    assert not finds(path)


def test_sparse_arrays_say_so(tmp_path):
    path = tmp_path / "a"
    with dataset.create_array(path, np.ones(10), **SHARDED, fill_value=7) as array:
        array.resize(100)
        array[70] = 1
    expected = np.full(100, 7.0)
    expected[:10] = expected[70] = 1
    assert expected.tolist() == dataset.open(path)[:].tolist()
    assert not dataset.verify(path).nerrors


def test_an_array_of_dask_is_complete(tmp_path):
    """Its document does not say that shards may be missing."""
    array = pytest.importorskip("dask.array")
    memory = pytest.importorskip("fsspec").filesystem("memory")
    path = tmp_path / "a"
    for place in (path, "memory://complete"):
        dataset.from_dask(place, array.ones(50, chunks=10), **SHARDED).close()
    texts = (path / "zarr.json").read_bytes(), memory.cat("/complete/zarr.json")
    for text in texts:
        assert documents.is_signed(text)
        assert b"missing-shards" not in text
    os.remove(path / "c/1")
    memory.rm("/complete/c/1")
    for place in (path, "memory://complete"):
        with pytest.raises(FormatError, match="the rows 20 to 40"):
            dataset.open(place)[:]
    memory.rm("/complete", recursive=True)


def test_a_document_that_another_program_has_written(tmp_path):
    """Missing shards have the fill value then; the next change makes it ours again."""
    path = tmp_path / "a"
    dataset.create_array(path, np.arange(100), **SHARDED).close()
    identity = json.loads((path / "zarr.json").read_text())["bloscpack"]
    for lost, kept in ((False, True), (True, True), (True, False)):
        document = json.loads((path / "zarr.json").read_text())
        document["attributes"]["other"] = 1
        if lost:
            del document["bloscpack"]
        (path / "zarr.json").write_text(json.dumps(document))
        if not kept:
            os.remove(path / "c/2")
        found = ["changed"] if kept else ["changed", "missing"]
        assert found == [f.kind for f in dataset.verify(path).findings]
        expected = np.arange(100)
        if not kept:
            expected[40:60] = -(2**63) + 2  # no plausible value
        with dataset.open(path, "r+") as array:
            assert expected.tolist() == array[:].tolist()
            array.attrs["more"] = 1
            assert {"other": 1, "more": 1} == array.attrs.asdict()
        assert documents.is_signed((path / "zarr.json").read_bytes())
        assert expected.tolist() == dataset.open(path)[:].tolist()
        assert not finds(path)
        document = json.loads((path / "zarr.json").read_text())["bloscpack"]
        assert identity[documents.KEY][:19] == document[documents.KEY][:19]
        assert kept == ("missing-shards" not in document)
    with pytest.raises(UsageError, match="bloscpack-id"):
        dataset.create_array(tmp_path / "b", [1], attrs={documents.KEY: "x"})


@pytest.mark.parametrize("name", ["rows-zarr-array", "rows-zarr-resized"])
def test_an_identity_in_the_attributes(name, tmp_path):
    """Older versions wrote it there, where other programs show it."""
    path = tmp_path / "a"
    shutil.copytree(TESTS / "valid" / "datasets" / name, path)
    old = json.loads((path / "zarr.json").read_text())
    users = {k: v for k, v in old["attributes"].items() if k == "unit"}
    with dataset.open(path, "r+") as array:
        expected = array[:]
        assert users == array.attrs.asdict()
        array.append(expected[:1])
    new = json.loads((path / "zarr.json").read_text())
    assert users == new["attributes"]
    marks = old["attributes"].keys() - users.keys()
    assert marks | {"must_understand"} == new["bloscpack"].keys()
    value = old["attributes"][documents.KEY]
    assert value[:19] == new["bloscpack"][documents.KEY][:19]
    assert documents.is_signed((path / "zarr.json").read_bytes())
    assert [*expected.tolist(), expected[0]] == dataset.open(path)[:].tolist()
    assert not dataset.verify(path).nerrors


def drop_identity(path):
    """Write the document of an array again, as a program without identities does."""
    document = json.loads((path / "zarr.json").read_text())
    del document["bloscpack"]
    (path / "zarr.json").write_text(json.dumps(document))


def test_a_reader_while_the_identity_is_dropped_and_given_again(tmp_path):
    path = tmp_path / "a"
    dataset.create_array(path, np.arange(60), **SHARDED).close()
    with dataset.open(path) as before:
        assert 1 == before[1]
        drop_identity(path)
        assert 21 == before[21]
        with dataset.open(path) as between:
            assert 1 == between[1]
            with dataset.open(path, "r+") as array:
                array.append([7])
            assert 41 == between[41]
        assert 41 == before[41]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_an_error_of_a_shard_while_the_array_gets_an_identity(tmp_path, monkeypatch):
    """Without its shards, the identity of the array is not known."""
    path = tmp_path / "a"
    dataset.create_array(path, np.arange(10)).close()
    drop_identity(path)
    preadv, failed = os.preadv, []

    def failing(descriptor, *arguments):
        name = os.readlink("/proc/self/fd/%d" % descriptor)
        if name.endswith("c/0") and not failed:
            failed.append(name)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return preadv(descriptor, *arguments)

    with dataset.open(path, "r+") as array:
        with monkeypatch.context() as context:
            context.setattr(os, "preadv", failing)
            with pytest.raises(OSError, match=os.strerror(errno.EIO)):
                array.attrs["a"] = 1
        array.attrs["a"] = 2
    assert np.arange(10).tolist() == dataset.open(path)[:].tolist()
    assert not finds(path)


@pytest.mark.parametrize("lost", [False, True])
def test_an_array_at_a_url_that_gets_an_identity(tmp_path, lost):
    """It gets the mark of a sparse array only if shards are missing."""
    memory = pytest.importorskip("fsspec").filesystem("memory")
    dataset.create_array(tmp_path / "a", np.arange(70), **SHARDED).close()
    drop_identity(tmp_path / "a")
    if lost:
        os.remove(tmp_path / "a/c/2")
    memory.put(str(tmp_path / "a"), "/given", recursive=True)
    with dataset.open("memory://given", "r+") as array:
        array.attrs["a"] = 1
    assert lost == (b"missing-shards" in memory.cat("/given/zarr.json"))
    memory.rm("/given/c/1")
    with dataset.open("memory://given") as array:
        if lost:
            assert {-(2**63) + 2} == {*array[:][20:40].tolist()}
        else:
            with pytest.raises(FormatError, match="the rows 20 to 40"):
                array[:]
    memory.rm("/given", recursive=True)


def test_shards_of_several_arrays(tmp_path):
    """Where no document says which ones are right, none gets an identity."""
    for name in "ab":
        dataset.create_array(tmp_path / name, np.arange(40), **SHARDED).close()
    path = tmp_path / "a"
    (path / "c/1").write_bytes((tmp_path / "b/c/1").read_bytes())
    drop_identity(path)
    message = "expected shards of one array"
    with dataset.open(path, "r+") as array, pytest.raises(FormatError, match=message):
        array.attrs["a"] = 1
    assert np.arange(40).tolist() == dataset.open(path)[:].tolist()


def test_rows_that_another_program_has_added(tmp_path):
    path = tmp_path / "a"
    dataset.create_array(path, np.arange(10), chunks=10, shards=10).close()
    with dataset.open(path, "r+") as array:
        document = json.loads((path / "zarr.json").read_text())
        (path / "zarr.json").write_text(json.dumps({**document, "shape": [20]}))
        (path / "c/1").write_bytes((path / "c/0").read_bytes())
        for change in (
            lambda: array.__setitem__(0, 5),
            lambda: array.append([5]),
            lambda: array.resize(15),
        ):
            with pytest.raises(StorageError, match="open the dataset again"):
                change()
        array.attrs["a"] = 1
    assert (20,) == dataset.open(path).shape


def test_a_superchunk_of_another_dtype(tmp_path):
    """One flipped bit of the byte order is an error when the file is opened."""
    path, other = tmp_path / "a", tmp_path / "b"
    options = {**SHARDED, "layout": "superchunk"}
    dataset.create_array(path, np.arange(40, dtype="<i4"), **options).close()
    dataset.create_array(other, np.arange(40, dtype=">i4"), **options).close()
    document = (path / "meta/storage").read_bytes()
    document = document.replace(b"<i4", b">i4")
    (path / "meta/storage").write_bytes(document)
    with pytest.raises(FormatError, match="digest"):
        dataset.open(path)
    (path / "meta/storage").write_bytes(documents.signed_again(document))
    with pytest.raises(FormatError, match="expected dtype: >i4, found int32"):
        dataset.open(path)[:]
    assert finds(path)


def test_more_rows_than_the_array(tmp_path):
    path = tmp_path / "a"
    dataset.create_array(path, np.arange(35), **SHARDED).close()
    document = json.loads((path / "zarr.json").read_text())
    for length, kind, severity in ((31, "more-rows", "note"), (37, "size", "error")):
        documents.write(path / "zarr.json", {**document, "shape": [length]})
        found = [(f.kind, f.severity) for f in dataset.verify(path).findings]
        assert [(kind, severity)] == found


def test_verify_beside_a_writer(tmp_path):
    """What a writer changes meanwhile is no damage."""
    columns = {"x": np.arange(60), "y": np.arange(60)}
    path = tmp_path / "t"
    table = dataset.create_table(path, columns, chunks=5, shards=10, sync=False)
    done = threading.Event()

    def change():
        while not done.is_set():
            table.resize(len(table) - 30)
            table.add_column("z", np.arange(30))
            table.append({name: np.arange(30) for name in "xyz"})
            table.remove_column("z")

    with table, ThreadPoolExecutor(1) as pool:
        writing = pool.submit(change)
        try:
            reports = [dataset.verify(path, nthreads=1) for _ in range(60)]
        finally:
            done.set()
        writing.result()
    assert [] == [
        str(f) for report in reports for f in report.findings if not report.ok
    ]


REPLACING = {
    "array": lambda group: group.create_array("x", [1] * 9, mode="w", chunks=3),
    "table": lambda group: group.create_table("x", {"a": [1]}, mode="w"),
    "layout": lambda group: group.create_array("x", [1], mode="w", layout="superchunk"),
    "rows": lambda group: group["x"].resize(4),
    "removed": lambda group: group.__delitem__("x"),
}


@pytest.mark.parametrize("commits", [False, True])
@pytest.mark.parametrize("what", REPLACING)
def test_verify_of_a_member_that_is_replaced(what, commits, tmp_path, monkeypatch):
    check_file = checking.check_file

    def replacing(*arguments):
        if arguments[0].folder.path().endswith("x"):
            monkeypatch.undo()
            with dataset.open(tmp_path / "g", "r+") as group:
                REPLACING[what](group)
        return check_file(*arguments)

    with dataset.create_group(tmp_path / "g") as group:
        group["other"] = [1]
        group.create_array("x", np.zeros(20, "i8"), chunks=2, shards=4)
        if commits:
            with group.change():
                pass
    monkeypatch.setattr(checking, "check_file", replacing)
    report = dataset.verify(tmp_path / "g", nthreads=1)
    assert checking.check_file is check_file
    assert (1 if what == "removed" else 2) == report.narrays
    assert [] == [str(found) for found in report.findings if found.severity == "error"]


def test_verify_finds_damage_beside_a_writer(tmp_path, monkeypatch):
    """A file is damaged, and a writer changes the document again and again."""
    path = tmp_path / "a"
    array = dataset.create_array(path, np.arange(20), chunks=2, shards=4)
    file = path / "c" / "1"
    file.write_bytes(file.read_bytes()[:-30] + bytes(30))
    check_file = checking.check_file

    def changing(*arguments):
        array.attrs["day"] = array.attrs.get("day", 0) + 1
        return check_file(*arguments)

    with array:
        monkeypatch.setattr(checking, "check_file", changing)
        report = dataset.verify(path, nthreads=1)
    assert {"c/1"} == {f.file for f in report.findings if f.severity == "error"}


def test_verify_of_what_a_writer_replaces_each_time(tmp_path, monkeypatch):
    check_file = checking.check_file
    path, numbers = tmp_path / "a", itertools.count()

    def replacing(*arguments):
        number = next(numbers)
        data = np.zeros(20, "i1")
        dataset.create_array(path, data, mode="w", chunks=number % 3 + 1).close()
        return check_file(*arguments)

    dataset.create_array(path, np.zeros(20, "i1"), chunks=2, shards=4).close()
    monkeypatch.setattr(checking, "check_file", replacing)
    with pytest.raises(StorageError, match="other programs change it again and again"):
        dataset.verify(path, nthreads=1)


def test_missing_rows_of_a_changed_array_are_named(tmp_path):
    path = tmp_path / "a"
    dataset.create_array(path, np.ones((100, 2)), chunks=5, shards=20).close()
    document = json.loads((path / "zarr.json").read_bytes())
    document["attributes"]["unit"] = "m"  # by a program that keeps the old digest
    (path / "zarr.json").write_text(json.dumps(document))
    (path / "c/2/0").unlink()
    report = dataset.verify(path)
    assert report.ok
    assert (40, 60) in [finding.rows for finding in report.findings]


@pytest.fixture
def memory():
    """Return the URL of a new folder in memory, and the store that it is in."""
    store = pytest.importorskip("fsspec").filesystem("memory")
    name = "/bloscpack-" + os.urandom(8).hex()
    yield store, "memory:/%s/" % name
    store.rm(name, recursive=True)


def test_copied_shards_at_a_url_are_compared(memory):
    store, url = memory
    for name, value in (("one", 1), ("two", 2)):
        values = np.full(50, value)
        dataset.create_array(url + name, values, chunks=10, shards=40).close()
    store.copy(url + "two/c/1", url + "one/c/1")
    for change in (lambda a: a.append([3]), lambda a: a.__setitem__(45, 9)):
        wrong = pytest.raises(FormatError, match="expected a file of the array")
        with dataset.open(url + "one", "r+") as array, wrong:
            change(array)
    assert not dataset.verify(url + "one").ok


def test_attributes_of_an_array_that_another_program_has_written(tmp_path):
    """The change gives the array an identity, and it can be used on."""
    zarr = pytest.importorskip("zarr", minversion="3")
    dataset.create_array(tmp_path / "a", [1, 2, 3]).close()
    other = zarr.open_array(str(tmp_path / "a"), mode="r+", zarr_format=3)
    other[:] = [7, 8, 9]
    other.attrs["by"] = "zarr"
    with dataset.open(tmp_path / "a", "r+") as array:
        array.attrs["x"] = 1
        assert [7, 8, 9] == array[:].tolist()
        array.append([4])
        assert [7, 8, 9, 4] == array[:].tolist()
    assert [7, 8, 9, 4] == dataset.open(tmp_path / "a")[:].tolist()
    assert dataset.verify(tmp_path / "a").ok
