"""A group changes as a whole: its document commits its members."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pickle
import shutil
import subprocess
import sys
import threading

import dataset.documents as documents
import dataset.golden_directories as golden
import numpy as np
import pytest
from dataset.inside import (
    FolderChange,
    FolderLock,
    FolderStore,
    ObjectChange,
    disk,
    with_pending,
)
from support import environment

from bloscpack import dataset
from bloscpack.exceptions import FormatError, StorageError, UsageError


def fill(path):
    """Make a group of arrays, of a group and of a table, which changes as a whole."""
    with dataset.create_group(path, attrs={"a": 1}) as group:
        group.create_array("time", np.arange(4), chunks=2, dims=["time"]).close()
        group.create_array("in/rain", np.arange(8.0).reshape(4, 2), chunks=2).close()
        group.create_table("tab", {"k": [1, 2], "v": ["a", "b"]}).close()
        with group.change():
            pass


def content(group):
    """Return all items and attributes of a group."""
    found = {"": dict(group.attrs)}
    for name, member in group.items():
        is_group = isinstance(member, dataset.Group)
        found[name] = content(member) if is_group else member[:].tolist()
    return found


def all_changes(group):
    """Change a group and all its members, one after the other."""
    group["time"].append([4, 5])
    group["time"].attrs["nan"] = float("nan")
    group.attrs["b"] = 'a ",\n      "time": {'
    group["in"].attrs["c"] = "\u20ac"
    group["in/rain"].append([[8, 9]])
    group["tab"].append({"k": [3], "v": ["c"]})
    group["tab"].attrs["d"] = 1
    group.create_array('in/x": {', [1])
    group["time"][0] = 7
    group["in"].attrs["c"] = True
    del group["tab"]


def spread(value, depth=0):
    """Return a value in JSON, of which each line has as many blanks as a copy has."""
    text = json.dumps(value, indent=1)
    return "\n".join("      " + line.lstrip() for line in text.splitlines())


# Forms in which another program may write a document with a right digest.
FORMS = [
    lambda value: json.dumps(value, indent=2) + "\n",
    json.dumps,
    lambda value: json.dumps(value, ensure_ascii=False, indent=2) + "\n",
    lambda value: json.dumps(dict(reversed(value.items())), indent=2),
    lambda value: json.dumps(value, indent=2).replace("\n        ", "\n      "),
    spread,
]


@pytest.mark.parametrize("form", FORMS)
def test_the_form_of_a_document_has_no_effect_on_changes(form, tmp_path):
    found = []
    for name, write in ("a", FORMS[0]), ("b", form):
        fill(tmp_path / name)
        document = tmp_path / name / "zarr.json"
        value = json.loads(document.read_text())
        value["attributes"]["\u20ac"] = "\u20ac"
        text = write(value).encode()
        document.write_bytes(documents.signed_again(text))
        with dataset.open(tmp_path / name, "r+") as group:
            assert group.commits_members
            all_changes(group)
            found.append(str(content(group)))
        assert found[-1] == str(content(dataset.open(tmp_path / name)))
        documents.assert_encoded_whole(tmp_path / name)
        assert dataset.verify(tmp_path / name).ok
    assert found[0] == found[1]


def test_a_document_that_another_program_replaces_between_two_changes(tmp_path):
    fill(tmp_path / "g")
    document = tmp_path / "g/zarr.json"
    with dataset.open(tmp_path / "g", "r+") as group:
        group["time"].append([4])
        value = json.loads(document.read_text())
        value["consolidated_metadata"]["metadata"]["in/rain"]["attributes"]["x"] = 1
        (tmp_path / "new").write_bytes(documents.signed(value))
        os.replace(tmp_path / "new", document)
        group["time"].append([5])
    value = json.loads(document.read_text())
    copies = value["consolidated_metadata"]["metadata"]
    assert 1 == copies["in/rain"]["attributes"]["x"]
    assert [6] == copies["time"]["shape"]


def test_a_change_of_all_members(path):
    fill(path)
    with dataset.open(path, "r+") as group:
        with group.change():
            group["time"].append([4, 5])
            group["in/rain"][1:3] = 7
            group["tab"].append({"k": [3], "v": ["c"]})
            group.attrs["b"] = 2
            assert [1, 2] == group.create_array("new", [1, 2])[:].tolist()
            assert [0, 1, 2, 3, 4, 5] == group["time"][:].tolist()
            before = content(dataset.open(path))
        after = content(group)
    assert {"": {"a": 1}, "time": [0, 1, 2, 3]} == {k: before[k] for k in ("", "time")}
    assert "new" not in before
    assert after == content(dataset.open(path))
    assert {"a": 1, "b": 2} == after[""]
    assert ([0, 1, 2, 3, 4, 5], [1, 2]) == (after["time"], after["new"])
    assert [[0, 1], [7, 7], [7, 7], [6, 7]] == after["in"]["rain"]
    assert [(1, "a"), (2, "b"), (3, "c")] == after["tab"]
    assert [] == dataset.verify(path).findings


def test_a_change_that_fails_leaves_no_files(tmp_path):
    """A program that goes on, and fails again and again, must not fill the disk."""
    fill(tmp_path / "g")
    with dataset.open(tmp_path / "g", "r+") as group:

        def assign_then_fail():
            with group.change():
                group["time"][:] = 7
                group["tab"].append({"k": [3], "v": ["c"]})
                raise ZeroDivisionError

        def fail_to_append():
            """The second block of rows does not fit."""
            group["in/rain"].append(iter([np.ones((9, 2)), np.ones((9, 3))]))

        group["time"][0] = 1
        for change in assign_then_fail, fail_to_append:
            with pytest.raises((ZeroDivisionError, UsageError)):
                change()
            assert not (tmp_path / "g/.bloscpack").exists()
        group["time"].append([4])
    assert [1, 1, 2, 3, 4] == dataset.open(tmp_path / "g")["time"][:].tolist()


def grow(group):
    group["tab"].append({"k": [3], "v": ["c"]})


@pytest.mark.parametrize("others", [[], [grow]])
@pytest.mark.parametrize(
    "call",
    [
        lambda group: group["time"].append(blocks()),
        lambda group: group["time"].append(["text"]),
        lambda group: group["time"].resize((1, 2)),
        lambda group: group["tab"].append({"k": [1]}),
        lambda group: group.create_array("new", [1], shape="text"),
        lambda group: group["tab"].resize(-1),
        lambda group: group["tab"].__setitem__((0, 1), [1]),
        lambda group: group["tab/k"].append([1]),
        lambda group: group.create_array("time/inside", [1]),
        lambda group: group.__setitem__("in", [1]),
        lambda group: group.__setitem__("..", [1]),
        lambda group: group.__delitem__("missing"),
        lambda group: group.__delitem__("time/inside"),
    ],
)
def test_a_call_that_failed_counts_when_its_error_is_caught(path, call, others):
    fill(path)
    before = content(dataset.open(path))

    def change(group):
        with group.change():
            for other in others:
                other(group)
            with pytest.raises((UsageError, ValueError, TypeError, LookupError)):
                call(group)

    with dataset.open(path, "r+") as group:
        with pytest.raises(UsageError, match="one of the changes has failed"):
            change(group)
        assert before == content(group)


def test_a_member_by_its_own_path(path):
    fill(path)
    join = (lambda name: path + "/" + name) if isinstance(path, str) else path.joinpath
    with dataset.open(join("in/rain"), "r+") as array:
        array.append([[8, 9]])
    with dataset.open(join("tab"), "r+") as table:
        table.append({"k": [3], "v": ["c"]})
    with dataset.open(join("in"), "r+") as inner:
        inner.attrs["x"] = 5
    group = dataset.open(path)
    assert (5, 2) == group["in/rain"].shape == dataset.open(join("in/rain")).shape
    assert 3 == len(group["tab"]) == len(dataset.open(join("tab")))
    assert {"x": 5} == dict(group["in"].attrs) == dict(dataset.open(join("in")).attrs)
    with pytest.raises(FileExistsError):
        dataset.create_array(join("time"), [1])
    dataset.create_array(join("time"), [1], mode="w").close()
    assert [1] == dataset.open(path)["time"][:].tolist()


def annotate_by_zarr(path):
    """Let zarr-python write the document of an array or group again."""
    zarr = pytest.importorskip("zarr", minversion="3")
    zarr.open(str(path), mode="r+", zarr_format=3).attrs["by"] = "zarr"


@pytest.mark.parametrize(
    ("written", "name", "items"),
    [
        ("time", "time", [4, 5]),
        ("in", "in/rain", [[8.0, 9.0]]),
        ("in/rain", "in/rain", [[8.0, 9.0]]),
        ("tab", "tab", {"k": [3], "v": ["c"]}),
    ],
)
def test_a_member_that_another_program_has_written_by_its_own_path(
    tmp_path, written, name, items
):
    """The group has what is appended."""
    path = tmp_path / "g"
    fill(path)
    annotate_by_zarr(path / written)
    before = len(dataset.open(path)[name])
    with dataset.open(path, "r+"), dataset.open(path / name, "r+") as member:
        member.append(items)
        expected = member[:].tolist()
    assert before < len(expected)
    assert expected == dataset.open(path)[name][:].tolist()
    assert expected == dataset.open(path / name)[:].tolist()
    assert "zarr" == dataset.open(path)[written].attrs["by"]
    assert dataset.verify(path).ok


def test_a_column_that_another_program_has_written_by_its_own_path(tmp_path):
    with dataset.create_table(tmp_path / "t", {"k": [1, 2]}):
        pass
    annotate_by_zarr(tmp_path / "t" / "k")
    with dataset.open(tmp_path / "t" / "k", "r+") as column:
        column[0] = 7
        column.attrs["unit"] = "m"
    expected = {"by": "zarr", "unit": "m"}
    assert expected == dataset.open(tmp_path / "t")["k"].attrs.asdict()
    assert [(7,), (2,)] == dataset.open(tmp_path / "t")[:].tolist()


@pytest.mark.parametrize("name", ["time", "in", "tab"])
def test_a_copy_of_a_member_that_another_program_has_written(tmp_path, name):
    """It is a dataset of its own, also after its first change."""
    fill(tmp_path / "g")
    annotate_by_zarr(tmp_path / "g" / name)
    shutil.copytree(tmp_path / "g" / name, tmp_path / "copy")
    for value in range(2):
        with dataset.open(tmp_path / "copy", "r+") as copied:
            copied.attrs["x"] = value
    assert {"by": "zarr", "x": 1} == dataset.open(tmp_path / "copy").attrs.asdict()
    assert dataset.verify(tmp_path / "copy").ok


@pytest.mark.parametrize("lost", ["time", "in", "in/rain", "tab", "tab/k"])
@pytest.mark.parametrize("left", [None, b"", b'{"zarr'], ids=str)
def test_members_whose_own_documents_a_crash_has_lost(tmp_path, lost, left):
    """By their own paths, too, they are what the document of the group says."""
    path = tmp_path / "g"
    fill(path)
    before, attrs = str(dataset.open(path)[lost]), {"by": "own path"}
    document = path / lost / "zarr.json"
    document.unlink()
    if left is not None:
        document.write_bytes(left)
    assert before == str(dataset.open(path / lost))
    assert dataset.verify(path / lost).ok
    for name in {lost, "in/rain"}:
        with dataset.open(path / name, "r+") as opened:
            opened.attrs.update(attrs)
        assert attrs.items() <= dataset.open(path)[name].attrs.items()
    assert document.read_bytes()
    assert dataset.verify(path).ok


@pytest.mark.parametrize("is_joint", [False, True])
def test_what_fails_leaves_nothing_of_new_members(tmp_path, is_joint):
    """If another program writes the group, they would look like damaged ones."""
    path = tmp_path / "g"

    def blocks():
        yield [1, 2]
        yield [3, 4]
        raise ZeroDivisionError

    def create(group):
        with group.change() if is_joint else contextlib.nullcontext():
            group.create_array("a", [1, 2], chunks=1, shards=1)
            group.create_array("b", blocks(), shape=4, dtype="i4", chunks=1, shards=1)

    with dataset.create_group(path) as group:
        with group.change():
            pass
        with pytest.raises(ZeroDivisionError):
            create(group)
    assert is_joint != (path / "a").exists()
    assert not (path / "b").exists()
    annotate_by_zarr(path)
    assert dataset.verify(path).ok


@pytest.mark.parametrize("dtype", ["i4", "f8"])
@pytest.mark.parametrize(
    "call",
    [
        lambda array: array.append([7]),
        lambda array: array.resize(3),
        lambda array: array.__setitem__(slice(1, 3), 7),
        lambda array: array.attrs.update(x=1),
    ],
)
def test_an_array_that_another_thread_replaces(tmp_path, call, dtype):
    """A call that has waited for it does not change the new array as the old one."""
    errors = []

    def change_old(array):
        try:
            call(array)
        except UsageError as error:
            errors.append(str(error))

    with dataset.create_group(tmp_path / "g") as group:
        group.create_array("a", np.arange(8, dtype="i4"), chunks=2, shards=4).close()
        with group.change():
            pass
        thread = threading.Thread(target=change_old, args=[group["a"]])
        with group.change():
            thread.start()
            thread.join(0.2)  # it waits for the end of the block
            new = np.full(8, 5, dtype)
            group.create_array("a", new, mode="w", chunks=3, shards=3)
        thread.join()
        assert [5] * 8 == group["a"][:].tolist()
        assert {} == group["a"].attrs.asdict()
    assert 1 == len(errors)
    assert "closed" in errors[0]
    assert dataset.verify(tmp_path / "g").ok


def fill_with_others(path):
    """Make a group of an array and members that it can't commit.

    Return how these are changed.
    """
    zarr = pytest.importorskip("zarr", minversion="3")
    with dataset.create_group(path) as group:
        group.create_array("time", [1]).close()
        group.create_array("chunk", [1, 2], layout="superchunk").close()
        group.create_table("bc", {"a": [1, 2]}, layout="bcolz").close()
    for kind in "barray", "btable":
        found = golden.entries().items()
        first = next(name for name, entry in found if entry["kind"] == kind)
        golden.extract(first, path / kind)
    gzip = zarr.codecs.GzipCodec()
    zarr.create_array(str(path / "gzip"), data=np.arange(4), compressors=gzip)
    zarr.open_group(str(path / "old"), mode="w", zarr_format=2)
    zarr.create_array(str(path / "old/x"), data=np.arange(4), zarr_format=2)
    return {
        "chunk": lambda member: member.append([3]),
        "bc": lambda member: member["a"].__setitem__(0, 3),
        "barray": lambda member: member.append([3]),
        "btable": lambda member: member.resize(1),
        "gzip": lambda member: member.append([3]),
        "old": lambda member: member.create_array("y", [1]),
        "old/x": lambda member: member.attrs.update(x=1),
    }


@pytest.mark.parametrize(
    "call",
    [
        lambda group: group["other"].create_array("new", [1]),
        lambda group: group["other/deep"].create_group("new"),
        lambda group: group["other"].__delitem__("deep"),
        lambda group: group.__delitem__("other"),
        lambda group: group.__delitem__("chunk"),
        lambda group: group["other/deep/x"].append([3]),
        lambda group: group["other/deep"].attrs.update(x=1),
        lambda group: group["other/deep"].change().__enter__(),
    ],
)
def test_no_call_in_a_block_changes_what_the_group_does_not_commit(tmp_path, call):
    """It would change at once, and stay when the block fails."""
    zarr = pytest.importorskip("zarr", minversion="3")
    path = tmp_path / "g"
    with dataset.create_group(path) as group:
        group.create_array("time", [1]).close()
        group.create_array("chunk", [1, 2], layout="superchunk").close()
        with group.change():
            pass
    zarr.open_group(str(path), mode="r+").create_group("other/deep")
    with dataset.open(path, "r+") as group:
        group["other/deep"].create_array("x", [1, 2]).close()
    before = content(dataset.open(path))

    def change(group):
        with group.change():
            group["time"].append([4])
            with pytest.raises(UsageError, match=r"does not commit '.*(other|chunk)"):
                call(group)

    with dataset.open(path, "r+") as group:
        with pytest.raises(UsageError, match="one of the changes"):
            change(group)
        assert before == content(group)
    assert before == content(dataset.open(path))


def test_members_that_the_group_does_not_commit(tmp_path):
    """Each is named by the error, and nothing is changed."""
    path = tmp_path / "g"
    changes = fill_with_others(path)
    before = content(dataset.open(path))
    for name, change in changes.items():

        def stops(group, name=name, change=change):
            with group.change():
                group["time"].append([4])
                change(group[name])

        def goes_on(group, name=name, change=change):
            with group.change():
                group["time"].append([4])
                with pytest.raises(UsageError):
                    change(group[name])

        with dataset.open(path, "r+") as group:
            with pytest.raises(UsageError, match="%s'.*(layout|format|codec)" % name):
                stops(group)
            with pytest.raises(UsageError, match="one of the changes has failed"):
                goes_on(group)
            assert before == content(group)
    with dataset.open(path, "r+") as group:
        with group.change():
            group["time"].append([2])
        for name in "chunk", "bc":
            changes[name](group[name])
        assert [1, 2] == group["time"][:].tolist()
        assert [1, 2, 3] == group["chunk"][:].tolist()
        assert [3, 2] == group["bc/a"][:].tolist()


def blocks():
    yield np.arange(2)
    raise ValueError("no row")


def test_a_member_that_another_process_has_open_is_not_committed(tmp_path):
    with dataset.create_group(tmp_path / "plain") as plain:
        plain.create_array("a", [1]).close()
        program = (
            "from bloscpack import dataset\n"
            "with dataset.open(%r, 'r+'):\n"
            "    print('open', flush=True)\n"
            "    input()\n"
        )
        command = [sys.executable, "-c", program % str(tmp_path / "plain/a")]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(command, **pipes) as process:
            assert b"open\n" == process.stdout.readline()
            with pytest.raises(StorageError, match="another writer"), plain.change():
                pass
            process.communicate(b"\n")
        with plain.change():
            plain["a"].append([2])
        assert [1, 2] == plain["a"][:].tolist()


def test_a_group_that_another_writer_has_changed_as_a_whole(path):
    """A writer that has opened it before goes on; one of a group inside does not."""
    join = ("%s/%%s" % path).__mod__
    with dataset.create_group(path) as group:
        group.create_array("in/x", [1, 2]).close()
        group.create_array("y", [3]).close()
    old, inner = dataset.open(path, "r+"), dataset.open(join("in"), "r+")
    with dataset.open(path, "r+") as group:
        with group.change():
            group["y"].append([4])
        group.create_array("new", [5, 6])
    before = content(dataset.open(path))
    with pytest.raises(StorageError, match="as a whole"):
        inner.attrs.update(a=1)
    assert before == content(dataset.open(path))
    old.attrs.update(b=1)
    with pytest.raises(FileExistsError):
        old.create_array("new", [7])
    with old.change():
        old["y"].append([5])
    assert [3, 4, 5] == dataset.open(path)["y"][:].tolist()
    assert [] == dataset.verify(path).findings
    old.close()
    inner.close()
    with dataset.open(path, "r+") as group, group.change():
        group.attrs["a"] = group["in"].attrs["a"] = 1
    found = dataset.open(path)
    assert 1 == found.attrs["a"] == found["in"].attrs["a"]


@pytest.mark.parametrize("kind", ["array", "table"])
def test_a_group_that_changes_as_a_whole_while_a_member_is_opened(
    kind, tmp_path, monkeypatch
):
    """Between the look at the documents and the lock: a change would be lost."""
    with dataset.create_group(tmp_path / "g") as group:
        group.create_array("array", [1, 2])
        group.create_table("table", {"x": [1, 2]})
        group.create_group("group")
        with group["group"].change() as inner:
            inner.create_array("x", [1])
    lock, unite = FolderLock.__init__, [True]

    def late(folder_lock, *args, **options):
        if unite and unite.pop():
            with dataset.open(tmp_path / "g", "r+") as group, group.change():
                group["array"].append([3])
        lock(folder_lock, *args, **options)

    monkeypatch.setattr(FolderLock, "__init__", late)
    with dataset.open(tmp_path / "g" / kind, "r+") as member:
        member.append([4] if kind == "array" else {"x": [4]})
    with dataset.open(tmp_path / "g") as group:
        expected = [1, 2, 3], [1, 2]
        expected[kind == "table"].append(4)
        assert expected == (group["array"][:].tolist(), group["table"]["x"][:].tolist())


def test_a_shared_writer_of_a_member_of_a_group_that_changes_as_a_whole(tmp_path):
    dataset.create_group(tmp_path / "g").create_array("x", [1, 2, 3]).close()
    with dataset.open(tmp_path / "g" / "x", "r+", shared=True) as array:
        copies = [pickle.loads(pickle.dumps(array)) for _ in range(2)]
    copies[0][0] = 7
    with dataset.open(tmp_path / "g", "r+") as group:
        with group.change():
            pass
        for copied in copies:  # its lock would not keep the writer of the group away
            with pytest.raises(StorageError, match="so that it has one writer"):
                copied[1] = 8
        group["x"].append([4])
        assert [7, 2, 3, 4] == group["x"][:].tolist()


def test_a_writer_that_does_not_know_of_pending_files(monkeypatch):
    """The files of a change that another one has committed must not be lost."""
    pytest.importorskip("fsspec")
    path = "memory://pending-of-others/g"
    with dataset.create_group(path) as group:
        group.create_array("x", [1, 2]).close()
        group.create_array("y", [3]).close()
    old = dataset.open(path, "r+")

    def stop(change, *names):
        raise ZeroDivisionError

    with dataset.open(path, "r+") as group:
        with group.change():
            pass

        def change():
            with group.change():
                group["x"][:] = [7, 8]
                group["y"][:] = 9

        monkeypatch.setattr(ObjectChange, "_complete", stop)
        with pytest.raises(ZeroDivisionError):
            change()
        monkeypatch.undo()
    old.attrs["a"] = 1
    assert {"": {"a": 1}, "x": [7, 8], "y": [9]} == content(dataset.open(path))


def test_reading_and_closing(tmp_path):
    fill(tmp_path / "g")
    reading = dataset.open(tmp_path / "g")
    with pytest.raises(UsageError, match="opened for reading"), reading.change():
        pass
    group = dataset.open(tmp_path / "g", "r+")
    member = group["time"]
    group.close()
    assert member.closed
    array = dataset.open(tmp_path / "g/time", "r+")
    array.close()
    dataset.open(tmp_path / "g", "r+").close()
    del array
    with pytest.raises(UsageError, match="only one program at a time"):
        dataset.open(tmp_path / "g/time", "r+", shared=True)
    with pytest.raises(UsageError, match="open the table with buffered=True"):
        dataset.open(tmp_path / "g/tab/k", "r+", buffered=True)


def test_a_member_without_its_group(tmp_path):
    """A copy of a member says that a document commits it that is not there."""
    fill(tmp_path / "g")
    (tmp_path / "g/time").rename(tmp_path / "time")
    assert [0, 1, 2, 3] == dataset.open(tmp_path / "time")[:].tolist()
    with pytest.raises(FormatError, match="in a folder around it"):
        dataset.open(tmp_path / "time", "r+")


@pytest.mark.parametrize("kind", ["group", "table", "bcolz"])
def test_a_part_by_itself_after_a_crash(kind, path, monkeypatch):
    """Until the next writer comes, the document around it says where its files are."""
    join = ("%s/%%s" % path).__mod__
    old, new = np.zeros(8), np.ones(8)
    layout = "zarr" if kind == "group" else kind.replace("table", "zarr")
    if layout == "bcolz" and "://" in str(path):
        pytest.skip("this layout can't be changed at a URL")
    shards = {} if layout == "bcolz" else {"shards": 2}
    if kind == "group":
        made = dataset.create_group(path)
        for name in "x", "y":
            made.create_array(name, old, chunks=2, shards=2).close()
        made.create_table("t", {"x": old, "y": old}, chunks=2, shards=2).close()
        with made.change():
            pass
    else:
        columns = {"x": old, "y": old}
        made = dataset.create_table(path, columns, layout=layout, chunks=2, **shards)
    moved = []

    def stopping(move):
        def stop(change, staged, name):
            moved.append(name)
            if len(moved) == 3:
                raise ZeroDivisionError
            move(change, staged, name)

        return stop

    for kind_of_change in FolderChange, ObjectChange:
        move = stopping(kind_of_change._move)
        monkeypatch.setattr(kind_of_change, "_move", move)

    def change():
        if kind != "group":
            made[:] = {"x": new, "y": new}
            return
        with made.change():
            made["x"][:] = made["y"][:] = new
            made["t"][:] = {"x": new, "y": new}

    with pytest.raises(ZeroDivisionError):
        change()
    made.close()
    monkeypatch.undo()
    for name in "x", "y":
        for found in dataset.open(join(name)), dataset.open(path)[name]:
            again = pickle.loads(pickle.dumps(found))
            assert new.tolist() == found[:].tolist() == again[:].tolist()
            found.close()
            assert new.tolist() == again[:].tolist()
    if kind == "group":
        for found in dataset.open(join("t")), dataset.open(path)["t"]:
            column = pickle.loads(pickle.dumps(found["x"]))
            assert new.tolist() == found["y"][:].tolist() == column[:].tolist()
        assert new.tolist() == dataset.open(join("t/x"))[:].tolist()


# Other programs


def test_documents_of_other_programs(tmp_path):
    """What another program has written in a member counts, and not the copy."""
    fill(tmp_path / "g")
    own = tmp_path / "g/time/zarr.json"
    document = json.loads(own.read_bytes())
    document["attributes"]["unit"] = "s"
    own.write_text(json.dumps(document))
    assert {"unit": "s"} == dict(dataset.open(tmp_path / "g")["time"].attrs)
    with dataset.open(tmp_path / "g", "r+") as group, group.change():
        group["time"].append([4])
    for found in dataset.open(tmp_path / "g")["time"], dataset.open(own.parent):
        assert {"unit": "s"} == dict(found.attrs)
        assert (5,) == found.shape
    assert [] == dataset.verify(tmp_path / "g").findings


def test_a_document_that_another_program_has_written_again(tmp_path):
    """Without the documents of members, these are independent until the next change."""
    fill(tmp_path / "g")
    root = tmp_path / "g/zarr.json"
    document = json.loads(root.read_bytes())
    for rest in {"kind": "inline", "must_understand": False, "metadata": {}}, None:
        if rest is None:
            del document["consolidated_metadata"]
        else:
            document["consolidated_metadata"] = rest
        root.write_text(json.dumps(document))
        before = content(dataset.open(tmp_path / "g"))
        with dataset.open(tmp_path / "g/time", "r+") as array:
            array.append([7])
        with dataset.open(tmp_path / "g", "r+") as group:
            assert not group.commits_members
            assert [*before["time"], 7] == group["time"][:].tolist()
            with group.change():
                group["time"].append([8])
            assert group.commits_members
        found = content(dataset.open(tmp_path / "g"))
        assert {**before, "time": [*before["time"], 7, 8]} == found
        document = json.loads(root.read_bytes())
    assert [] == dataset.verify(tmp_path / "g").findings


def set_attributes(node):
    node.attrs["b"] = 2
    node.attrs["c"] = 3
    del node.attrs["b"]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("", lambda group: group.create_array("new", [1])),
        ("time", lambda group: group["time"].append([4, 5])),
        ("time", lambda group: group["time"].resize(9)),
        ("time", lambda group: group["time"].__setitem__(0, 9)),
        ("in", lambda group: group["in/rain"].append([[8, 9]])),
        ("in/rain", lambda group: group["in/rain"].append([[8, 9]])),
        ("tab", lambda group: group["tab"].append({"k": [3], "v": ["c"]})),
        ("tab/k", lambda group: group["tab"].append({"k": [3], "v": ["c"]})),
    ],
)
@pytest.mark.parametrize("sets_first", [False, True])
def test_attributes_and_items_of_one_member_change_together(
    path, name, change, sets_first
):
    def set_some(group):
        set_attributes(group[name] if name else group)

    fill(path)
    with dataset.open(path, "r+") as group:
        with group.change():
            for step in (set_some, change) if sets_first else (change, set_some):
                step(group)
        together = content(group)
        assert 3 == (group[name] if name else group).attrs["c"]
        assert together == content(dataset.open(path))
    others = str(path) + "-others"
    fill(others)
    with dataset.open(others, "r+") as group:
        change(group)
        set_some(group)
        assert together == content(group)
    assert dataset.verify(path).ok


@pytest.mark.parametrize("fails", ["create", "block"])
def test_a_name_is_free_after_a_member_was_not_created(path, fails):
    """What is left of it must not be in the next member, as a sparse one, either."""

    def rows():
        yield np.arange(1, 500)
        raise ZeroDivisionError

    fill(path)
    kept = {"chunks": 10, "shards": 10}
    with dataset.open(path, "r+") as group:

        def create():
            if fails == "create":
                group.create_array("new", rows(), dtype="i8", **kept)
            with group.change():
                group.create_array("new", np.arange(1, 500), **kept)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            create()
        assert "new" not in group
        new = group.create_array("new", shape=500, dtype="i8", **kept)
        assert not new[:].any()
    assert not dataset.open(path)["new"][:].any()
    assert [] == dataset.verify(path).findings


def stopped(change, *names):
    """Raise the error of a process that is killed."""
    raise KeyboardInterrupt


def test_a_change_that_is_not_complete_has_removed_files(path, monkeypatch):
    """A process dies after the commit point, before it has removed anything."""
    kept = {"chunks": 2, "shards": 2}
    with dataset.create_group(path) as group:
        for name in ("a", "b"):
            group.create_array(name, np.arange(1, 9), **kept).close()
        with group.change():
            pass
    for kind in (FolderChange, ObjectChange):
        monkeypatch.setattr(kind, "_complete", stopped)

    def change(make):
        group = dataset.open(path, "r+")
        with pytest.raises(KeyboardInterrupt):
            make(group)
        group._writer.rule.release()

    change(lambda g: g.create_array("a", shape=8, dtype="i4", mode="w", **kept))
    assert not dataset.open(path)["a"][:].any()
    assert [0, 0] == dataset.open(path)["a"][2:4].tolist()
    monkeypatch.undo()
    with dataset.open(path, "r+") as group:
        group["a"][:2] = 3
        assert [3, 3, 0, 0] == group["a"][:4].tolist()
        group["a"][:2] = 0
    assert not dataset.open(path)["a"][:].any()
    for kind in (FolderChange, ObjectChange):
        monkeypatch.setattr(kind, "_complete", stopped)
    change(lambda g: g.__delitem__("b"))
    monkeypatch.undo()
    with dataset.open(path, "r+") as group:
        assert ["a"] == list(group)
        assert [5] == group.create_array("b", [5])[:].tolist()
    assert [] == dataset.verify(path).findings


def test_files_of_others_are_not_removed(tmp_path):
    fill(tmp_path / "g")
    (tmp_path / "g" / "new").mkdir()
    (tmp_path / "g" / "new" / "notes").write_text("mine")
    with dataset.open(tmp_path / "g", "r+") as group:
        for mode in ("x", "w"):
            with pytest.raises(FileExistsError):
                group.create_array("new", [1], mode=mode)
    assert "mine" == (tmp_path / "g" / "new" / "notes").read_text()


def test_folders_of_a_member_that_is_created_again_are_synced(tmp_path, monkeypatch):
    fill(tmp_path / "g")
    synced = []
    with dataset.open(tmp_path / "g", "r+") as group:
        group.create_array("new", [1])
        del group["new"]
        genuine = disk.sync_folder
        monkeypatch.setattr(
            disk, "sync_folder", lambda path: (synced.append(path), genuine(path))
        )
        group.create_array("new", [1])
    folders = {os.path.dirname(os.fspath(path)) for path in synced}
    assert {str(tmp_path / "g" / name) for name in ("", "new", "new/c")} >= folders
    assert str(tmp_path / "g" / "new") in folders


def test_many_small_files_are_synced_together(tmp_path, monkeypatch):
    """And all of them before the document that commits them."""
    fill(tmp_path / "g")
    begins, genuine = [], disk.sync
    first_two, numbers = threading.Barrier(2), itertools.count()

    def sync(fp):
        if next(numbers) < 2:
            first_two.wait(60)  # fails unless two threads are here
        genuine(fp)
        with open(fp.name, "rb") as written:
            begins.append(written.read(4))

    with dataset.open(tmp_path / "g", "r+") as group:
        monkeypatch.setattr(disk, "sync", sync)
        with group.change():
            for number in range(40):
                group.create_array("new%d" % number, [number])
            assert [] == begins
        assert [b"blpk"] * 40 == begins[:40]
        assert [b"{"] == [content[:1] for content in begins[40:]]
        assert [39] == group["new39"][:].tolist()
    assert [] == dataset.verify(tmp_path / "g").findings


@pytest.mark.skipif(not hasattr(os, "chown"), reason="there are no sticky folders")
def test_a_document_in_a_folder_for_all_users_commits_nothing(tmp_path):
    """Another user could let the owner of a copied column remove other files."""
    around = tmp_path / "all"
    dataset.create_table(tmp_path / "t", {"a": [1]}).close()
    dataset.create_array(tmp_path / "mine", [1]).close()
    shutil.copytree(tmp_path / "t" / "a", around / "a")
    shutil.move(tmp_path / "mine", around / "mine")
    content = (tmp_path / "t" / "zarr.json").read_bytes()
    content = with_pending(content, {"mine/zarr.json": None})
    (around / "zarr.json").write_bytes(content)
    (around / ".bloscpack").mkdir()
    around.chmod(0o1777)
    with pytest.raises(FormatError, match="document that commits it"):
        dataset.open(around / "a", "r+")
    assert [1] == dataset.open(around / "mine")[:].tolist()
    assert [1] == dataset.open(around / "a")[:].tolist()


@pytest.mark.parametrize("found", [None, 5, {}, {"metadata": None}])
def test_a_document_that_changes_while_a_writer_has_it(tmp_path, found):
    """Another program that knows of no locks may drop the documents of members."""
    with dataset.create_table(tmp_path / "t", {"a": [1], "b": [2]}) as table:
        table.append({"a": [3], "b": [4]})
        root = json.loads((tmp_path / "t/zarr.json").read_bytes())
        root["consolidated_metadata"] = found
        (tmp_path / "t/zarr.json").write_text(json.dumps(root))
        table.append({"a": [5], "b": [6]})
    assert [(1, 2), (3, 4), (5, 6)] == dataset.open(tmp_path / "t")[:].tolist()


def test_a_member_that_was_closed(path):
    """The group may have opened it again: two objects would differ in their columns."""
    with dataset.create_group(path) as group, group.change():
        group.create_array("x", [1])
        group.create_table("t", {"a": [1]})
        group.create_group("g")
    with dataset.open(path, "r+") as group:
        for name, change in {
            "x": lambda x: x.attrs.update(a=1),
            "t": lambda t: t.add_column("b", [2]),
            "g": lambda g: g.attrs.update(a=1),
        }.items():
            member = group[name]
            member.close()
            with pytest.raises(UsageError, match="closed"):
                change(member)
            change(group[name])
    assert [] == dataset.verify(path).findings


@pytest.mark.parametrize("content", ["", "[]", "[" * 10**5, "{", "\0"])
def test_another_program_damages_the_document_within_a_change(content, tmp_path):
    path = tmp_path / "g"
    fill(path)
    document = path / "zarr.json"

    def change(group):
        with group.change():
            group["time"].append([4])
            document.unlink()
            document.write_text(content)

    with dataset.open(path, "r+") as group:
        with pytest.raises(FormatError) as error:
            change(group)
        assert str(document) == error.value.filename


def test_required_members_in_a_change(path):
    fill(path)
    with dataset.open(path, "r+") as group:
        with group.change():
            assert [] == list(group.require_group("new"))
            assert group.require_group("new") is group["new"]
            assert (3,) == group.require_array("sums", 3, "i8").shape
            group.require_array("time", 4, "i8").append([4])
        assert (3,) == group["sums"].shape
        assert 5 == len(group["time"])
        assert [] == list(group["new"])


def test_closing_a_group_within_its_change(path):
    fill(path)
    before = content(dataset.open(path))
    group = dataset.open(path, "r+")

    def close():
        with group.change():
            group.attrs["b"] = 2
            group.close()

    with pytest.raises(UsageError, match="can't be closed within a change"):
        close()
    assert before == content(group)  # it is open
    group.close()
    assert before == content(dataset.open(path))
    dataset.open(path, "r+").close()  # it is not locked


def test_a_thread_that_closes_a_group_waits_for_the_change_of_another_one(path):
    fill(path)
    group = dataset.open(path, "r+")
    closing = threading.Thread(target=group.close)
    with group.change():
        group["time"].append([4])
        closing.start()
        closing.join(0.2)
        group["in/rain"].append([[0, 0]])
    closing.join()
    assert group.closed
    with dataset.open(path, "r+") as group:
        assert (5, 5) == (len(group["time"]), len(group["in/rain"]))


def test_a_group_that_commits_its_members_joins_a_larger_one(path):
    with dataset.create_group(path) as group:
        with group.create_group("in") as inner:
            inner.create_array("x", [1, 2]).close()
        with group["in"].change():
            group["in/x"].append([3])
        group.create_array("y", [1]).close()
        with group.change():
            group["in/x"].append([4])
            group["y"].append([2])
        assert [1, 2, 3, 4] == group["in/x"][:].tolist()
    assert [1, 2] == dataset.open(path)["y"][:].tolist()
    assert [] == dataset.verify(path).findings


def test_threads_that_begin_to_change_a_group_as_a_whole(path):
    with dataset.create_group(path) as group:
        group.create_array("x", [0]).close()
        errors = []
        barrier = threading.Barrier(4)

        def append():
            barrier.wait()
            try:
                with group.change():
                    group["x"].append([1])
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=append) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [] == errors
        assert [0, 1, 1, 1, 1] == group["x"][:].tolist()


def test_the_first_missing_text_in_a_change(path):
    fill(path)
    rows = {"k": [3], "v": np.ma.array(["c"], mask=[True], dtype=object)}
    with dataset.open(path, "r+") as group:
        group["tab"] = {"k": [1], "v": np.array(["a"], object)}
        with group.change():
            group["tab"].append(rows)
            group["tab"].append(rows)
        assert [False, True, True] == group["tab"]["v_missing"][:].tolist()


def test_creating_by_path_deep_in_a_group_that_commits_its_members(path):
    fill(path)
    dataset.create_array("%s/in/x" % path, [1]).close()
    assert [1] == dataset.open(path)["in/x"][:].tolist()


def test_verify_notes_a_change_of_a_group_once(tmp_path):
    path = tmp_path / "g"
    fill(path)
    (path / ".bloscpack").mkdir()
    (path / "time/c/0").rename(path / ".bloscpack/1-1")
    document = path / "zarr.json"
    pending = {"time/c/0": ".bloscpack/1-1"}
    document.write_bytes(with_pending(document.read_bytes(), pending))
    report = dataset.verify(path)
    assert [("change", "note", ".")] == [
        (f.kind, f.severity, f.file) for f in report.findings
    ]


def test_verify_names_files_and_missing_folders_of_members(tmp_path):
    path = tmp_path / "g"
    fill(path)
    shutil.move(path / "time", tmp_path / "moved")
    (path / "in/rain/c/0/0").write_bytes(b"x")
    findings = dataset.verify(path).findings
    shown = {(finding.kind, finding.file) for finding in findings}
    assert {("no-folder", "time"), ("not-superchunk", "in/rain/c/0/0")} == shown


def test_a_renamed_member_is_missed(tmp_path):
    """The document commits its items under the old name, so no reader has them."""
    path = tmp_path / "g"
    fill(path)
    os.rename(path / "time", path / "renamed")
    findings = dataset.verify(path).findings
    found = {(finding.kind, finding.file): finding.message for finding in findings}
    assert {("no-folder", "time"), ("unused", "renamed")} == found.keys()
    assert "it was renamed" in found["no-folder", "time"]
    assert "it was renamed" in found["unused", "renamed"]
    with pytest.warns(RuntimeWarning, match="without the members 'time', .* renamed"):
        dataset.convert(path, tmp_path / "copy.zarr")
    recovery = dataset.recover(path, tmp_path / "saved.zarr")
    assert ["time"] == [loss.member for loss in recovery.losses]
    os.rename(path / "renamed", path / "time")
    assert not dataset.verify(path).findings


@pytest.mark.parametrize("opens_by", ["group", "path"])
def test_members_that_are_added_beside_a_reader_of_a_group_inside(path, opens_by):
    """At a URL, it finds them after `refresh`, also that of the group around."""
    with dataset.create_group(path) as group:
        inner = group.create_group("in")
        with group.change():
            inner.create_array("a", [1])
        outer = dataset.open(path)
        found = outer["in"] if opens_by == "group" else dataset.open(group["in"].path)
        assert ["a"] == list(found)
        inner.create_array("b", [2])
        found.refresh()
        assert (["a", "b"], 2) == (list(found), found["b"][0])
        inner.create_group("c").create_array("d", [3])
        (outer if opens_by == "group" else found).refresh()
        assert (["a", "b", "c"], 3) == (list(found), found["c/d"][0])
        del inner["b"]
        found.refresh()
        assert (["a", "c"], False) == (list(found), "b" in found)
        del group["in"]
        with pytest.raises(StorageError, match="removed it, or replaced it"):
            found.refresh()


def test_a_second_object_in_a_block_of_the_same_thread(tmp_path):
    """Waiting for the end of the block would not help."""
    path = tmp_path / "g"
    with dataset.create_group(path) as group:
        group.create_array("a", [1, 2])
        with group.change():
            group.attrs["n"] = 1
            for name in "", "a":
                other = dataset.open(path / name, "r+", timeout=60)
                with pytest.raises(UsageError, match="already by this thread"):
                    other.attrs["n"] = 2
                other.close()
        with dataset.open(path, "r+") as other:
            other.attrs["n"] += 1
    assert 2 == dataset.open(path).attrs["n"]


@pytest.mark.parametrize("member", ["", "/a"])
def test_waiting_for_the_writer_of_a_group(member, tmp_path):
    """The next writer has what the first one has committed meanwhile."""
    path = str(tmp_path / "g")
    with dataset.create_group(path) as group:
        group.create_array("a", np.arange(3), chunks=2)
        with group.change():
            pass
    first, inside = dataset.open(path, "r+"), threading.Event()
    may_end = threading.Event()
    late = dataset.open(path + member, "r+", timeout=0.1)
    second = dataset.open(path + member, "r+", timeout=30)

    def change():
        with first.change():
            first["a"].append([3])
            inside.set()
            may_end.wait()

    thread = threading.Thread(target=change)
    thread.start()
    inside.wait()
    with pytest.raises(StorageError, match="another writer"):
        (late if member else late["a"]).append([5])
    threading.Timer(0.2, may_end.set).start()  # the next writer may be waiting then
    array = second if member else second["a"]
    array.append([4])
    thread.join()
    assert [0, 1, 2, 3, 4] == array[:].tolist()
    first["a"].append([5])
    for opened in first, late, second:
        opened.close()
    assert [0, 1, 2, 3, 4, 5] == dataset.open(path)["a"][:].tolist()


def ragged(path):
    with dataset.create_group(path) as group:
        group.create_array("time", np.arange(6), chunks=2, dims=["time"])
        group.create_array("x", np.arange(15).reshape(3, 5), dims=["x", "time"])
        group.create_array("y", np.arange(4), chunks=2, dims=["time"])
        group.create_array("other", np.arange(9))
        group.create_array("in/z", np.arange(9), dims=["time"])


def test_trim(path):
    """The arrays of a group get the same length along a dimension, in one change."""
    ragged(path)
    with dataset.open(path, "r+") as group:
        group.trim("time")
        assert group.commits_members
        assert list(range(4)) == group["time"][:].tolist() == group["y"][:].tolist()
        assert np.arange(15).reshape(3, 5)[:, :4].tolist() == group["x"][:].tolist()
        assert 9 == len(group["other"]) == len(group["in/z"])
        group.trim("time")
    assert {"more-rows"} == {each.kind for each in dataset.verify(path).findings}


def test_trim_that_is_refused_changes_nothing(path):
    ragged(path)
    with dataset.open(path, "r+") as group:
        group.create_array("none", shape=0, dtype="i4", dims=["time"])
        before = content(group)
        for dim, message in (
            ("time", "'none' has no items along 'time', and no array would have any"),
            ("lon", "no array of the group '.*' has the dimension 'lon'"),
        ):
            with pytest.raises(UsageError, match=message):
                group.trim(dim)
        assert not group.commits_members
        assert before == content(group)
        del group["none"]
        group.trim("time")
        assert 4 == len(group["time"])
        group.create_array("longer", np.arange(7), dims=["time"])
        with pytest.raises(UsageError, match="being changed already"), group.change():
            group.trim("time")
    with pytest.raises(UsageError, match="open"):
        dataset.open(path).trim("time")


def test_trim_names_an_array_that_can_only_be_read(tmp_path):
    zarr = pytest.importorskip("zarr", minversion="3", reason="needs zarr 3")
    ragged(tmp_path / "g")
    other = zarr.open_group(str(tmp_path / "g"), mode="r+")
    other.create_array("w", shape=7, dtype="i4", dimension_names=["time"])
    for name, shape in ("u", (5, 5)), ("v", (4, 5)):
        dims = ["double", "double"] if name == "u" else [None, "double"]
        other.create_array(name, shape=shape, dtype="i4", dimension_names=dims)
    other["v"].resize((4, 3))
    with dataset.open(tmp_path / "g", "r+") as group:
        with pytest.raises(UsageError, match=r"g.w'"):
            group.trim("time")
        with pytest.raises(UsageError, match="'u' has the dimension 'double' twice"):
            group.trim("double")
        assert 6 == len(group["time"])


@pytest.mark.parametrize("where", ["", "in"])
def test_a_member_that_other_programs_do_not_find(tmp_path, where):
    """zarr-python does not add the copy of a document to that of the group around."""
    zarr = pytest.importorskip("zarr", minversion="3", reason="no zarr-python 3")
    path = tmp_path / "g"
    with dataset.create_group(path) as group:
        group.create_array("in/x", [1, 2])
        group.create_array("other", [1, 2], layout="superchunk")
        with group.change():
            pass
    zarr.open_group(path / where, use_consolidated=False).create_array(
        "new", data=np.arange(3)
    )
    name = (where + "/new").lstrip("/")
    assert name not in zarr.open_group(path, use_consolidated=True)
    assert name in zarr.open_group(path, use_consolidated=False)
    report = dataset.verify(path)
    assert report.ok
    assert [name] == [f.file for f in report.findings if f.kind == "no-copy"]


@pytest.mark.parametrize("items", [np.arange(7), np.array([0.5]), np.zeros((2, 3))])
@pytest.mark.parametrize("where", ["", "in"])
def test_a_member_that_another_program_has_replaced_is_listed(tmp_path, where, items):
    """Its codecs are those of zarr-python, which reads it."""
    zarr = pytest.importorskip("zarr", minversion="3", reason="no zarr-python 3")
    path = tmp_path / "g"
    with dataset.create_group(path) as group:
        group.create_array("in/x", [1, 2])
        group.create_array("x", [1, 2])
        with group.change():
            pass
    zarr.open_group(path / where, use_consolidated=False).create_array(
        "x", data=items, overwrite=True
    )
    name = (where + "/x").lstrip("/")
    with dataset.open_group(path, "r+") as group:
        assert ["in", "x"] == sorted(group)
        assert "x" in (group[where] if where else group)
        assert items.tolist() == group[name][...].tolist()
        with group.change():
            group.attrs["n"] = 1
        assert items.tolist() == group[name][...].tolist()
        del group[name]
        assert name not in group
    assert dataset.verify(path).ok


def test_a_new_member_costs_no_more_beside_many_new_ones(tmp_path):
    """Calls are counted: their number does not depend on the machine."""

    def calls_to_create(group, name):
        count = 0

        def note(frame, event, argument):
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(note)
        try:
            group.create_array(name, [1, 2])
        finally:
            sys.setprofile(None)
        return count

    with dataset.create_group(tmp_path / "g", sync=False) as group, group.change():
        group.create_array("first", [1, 2])
        beside_one = calls_to_create(group, "second")
        for number in range(100):
            group.create_group("n%d" % number)
        beside_many = calls_to_create(group, "last")
    assert beside_many < 1.1 * beside_one


def test_own_documents_of_members_are_read_once(tmp_path, monkeypatch):
    with dataset.create_group(tmp_path / "g", sync=False) as group, group.change():
        for number in range(5):
            group.create_array("v%d" % number, [number])
    opened, descriptor = [], FolderStore.descriptor

    def counted(store, name, *flags):
        opened.append(name)
        return descriptor(store, name, *flags)

    monkeypatch.setattr(FolderStore, "descriptor", counted)
    with dataset.open_group(tmp_path / "g", "r+", sync=False) as group:
        array = group["v0"]
        assert 1 == opened.count("v0/zarr.json")
        array.append([1])  # compares all of them with their copies
        assert {1} == {opened.count("v%d/zarr.json" % number) for number in range(1, 5)}
        array.append([2])
        assert {1} == {opened.count("v%d/zarr.json" % number) for number in range(1, 5)}


@pytest.mark.parametrize("call", ["remove", "rmdir"])
def test_a_killed_removal_of_a_member_leaves_nothing(tmp_path, monkeypatch, call):
    """The next writer removes what is left of it."""
    for count in range(9):
        path = tmp_path / str(count)
        with dataset.create_group(path) as group:
            group.create_array("x", np.arange(8), chunks=1, shards=2)
            group.create_table("in/t", {"y": [1]})
            with group.change():
                pass
        killed = """if True:
            import itertools, os, sys
            from bloscpack import dataset
            group, counts = dataset.open_group(sys.argv[1], "r+"), itertools.count()

            def kill(event, _):
                if event == "os." + sys.argv[2] and next(counts) == int(sys.argv[3]):
                    os._exit(9)

            sys.addaudithook(kill)
            with group.change():
                del group["x"], group["in"]
        """
        arguments = [sys.executable, "-c", killed, path, call, str(count)]
        subprocess.run(arguments, env=environment())
        assert [] == [*dataset.open(path)]
        dataset.open_group(path, "r+").close()
        with dataset.open_group(path, "r+") as group:
            group.attrs["changed"] = True
        assert ["zarr.json"] == os.listdir(path)
        assert [] == dataset.verify(path).findings
