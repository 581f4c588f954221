"""Groups: a mapping of names to arrays, tables and groups."""

from __future__ import annotations

import errno
import gc
import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from dataset import documents
from dataset import golden_directories as golden
from support import environment

import bloscpack
from bloscpack import dataset
from bloscpack.exceptions import FormatError, StorageError, UsageError

ROWS = {"x": np.arange(5), "y": np.arange(5.0)}


@pytest.fixture
def path(tmp_path):
    """A group with an array, a table and groups."""
    with dataset.create_group(tmp_path / "g", attrs={"site": "A"}) as group:
        group.create_array("b", np.arange(4), layout="bcolz")
        group.create_array("in/ner/a", np.arange(6.0), layout="bcolz")
        group.create_table("t", ROWS, layout="bcolz")
    return tmp_path / "g"


def names_in(group):
    """Return the names of all members, those inside of members included."""
    found = []
    for name in group:
        found.append(name)
        member = group[name]
        if isinstance(member, dataset.Group):
            found.extend("%s/%s" % (name, inner) for inner in names_in(member))
    return found


def test_mapping(path):
    group = dataset.open_group(path)
    assert ["b", "in", "t"] == list(group) == list(group.keys())
    assert 3 == len(group)
    assert ["b", "in", "in/ner", "in/ner/a", "t"] == names_in(group)
    for name in ("b", "in", "in/ner", "in/ner/a", "t", "t/x", "/in/ner/"):
        assert name in group
        assert group[name].path.endswith(name.strip("/"))
    for name in ("c", "", "b/c", "in/c", "t/z", "..", "in/../b", "zarr.json", ".", 5):
        assert name not in group
        with pytest.raises(KeyError):
            group[name]
    assert group.get("c") is None
    assert {"b", "in", "t"} == set(dict(group.items()))
    assert [0, 1, 2, 3, 4] == group["t/x"][:].tolist()
    assert isinstance(group["in"], dataset.Group)
    assert {"site": "A"} == dict(group.attrs)


def test_repr(path):
    (path / "in" / "broken").mkdir()
    (path / "in" / "broken" / "zarr.json").write_text("{")
    group = dataset.open(path)
    assert [
        "<Group '%s' (zarr)>" % path,
        "  b   array (bcolz): shape (4,), dtype int64",
        "  in  group",
        "    broken  group",
        "    ner     group",
        "      a  array (bcolz): shape (6,), dtype float64",
        "  t   table (bcolz): 5 rows of x, y",
    ] == repr(group).splitlines()
    group.close()
    assert "<closed Group '%s' (zarr)>" % path == repr(group)
    with pytest.raises(UsageError, match="the dataset is closed"):
        group["b"]


def test_the_repr_is_bounded(tmp_path):
    with dataset.create_group(tmp_path / "g", sync=False) as group:
        for i in range(105):
            group.create_group("%03d" % i)
        lines = repr(group).splitlines()
    assert (102, "  ...") == (len(lines), lines[-1])


def test_a_group_is_changed(path):
    with dataset.open_group(path, "r+") as group:
        array = group["b"]
        assert array is group["b"]
        array.append([4])
        group["in/ner/a"].append([6])
        group["t"].append(ROWS)
        group["t/x"].attrs["unit"] = "m"
        new = group.create_table("in/new/t", ROWS, layout="bcolz", attrs={"a": 1})
        assert new is group["in/new/t"]
        group.create_group("in/group", attrs={"b": 2})
        group.attrs["date"] = 5
        assert group.require_group("in")["new"].path == group["in/new"].path
    for member in (array, new):
        assert member.closed
    with pytest.raises(UsageError, match="closed"):
        group.attrs["x"] = 1
    group = dataset.open(path)
    assert [0, 1, 2, 3, 4] == group["b"][:].tolist()
    assert (7, 10) == (len(group["in/ner/a"]), len(group["t"]))
    assert {"a": 1} == dict(group["in/new/t"].attrs)
    assert {"b": 2} == dict(group["in/group"].attrs)
    assert {"site": "A", "date": 5} == dict(group.attrs)
    assert {"unit": "m"} == dict(group["t/x"].attrs)
    for change in (
        lambda: group.create_group("x"),
        lambda: group.require_group("in"),
        lambda: group.__delitem__("b"),
        lambda: group["b"].append([1]),
        lambda: group.attrs.update(x=1),
    ):
        with pytest.raises(UsageError, match="opened for reading"):
            change()


def test_removing(path):
    with dataset.open_group(path, "r+") as group:
        array = group["in/ner/a"]
        del group["in/ner"]
        assert array.closed
        del group["t/x"]
        assert ["y"] == group["t"].names
        del group["t"]
        for name in ("t", "in/ner", "zarr.json", ".."):
            with pytest.raises(KeyError):
                del group[name]
        assert ["b", "in"] == names_in(group)
        del group["in"], group["b"]
        assert [] == list(group)
        assert group  # an empty group is no false value
    assert ["zarr.json"] == os.listdir(path)


def test_a_member_that_another_writer_has_open(path):
    with dataset.open_group(path, "r+") as group, dataset.open(path / "b", "r+"):
        for change in (
            lambda: group["b"],
            lambda: group.__delitem__("b"),
            lambda: group.create_array("b", [1], layout="bcolz", mode="w"),
            lambda: dataset.create_group(path, mode="w"),
        ):
            with pytest.raises(StorageError, match="another writer"):
                change()
        assert "b" in group
        assert "shape (4,)" in repr(group)
    table = dataset.open(path / "t", "r+")
    with pytest.raises(StorageError, match="another writer"):
        dataset.create_group(path, mode="w")
    table.close()
    assert ["b", "in", "t"] == list(dataset.open(path))


def test_two_writers_in_one_group(path):
    first, second = (dataset.open_group(path, "r+") for _ in range(2))
    first["b"].append([1])
    second["t"].append(ROWS)
    first.attrs["first"] = 1
    second.attrs["second"] = 2
    first.attrs["third"] = 3
    first.create_group("x")
    second.create_group("y")
    with pytest.raises(FileExistsError):
        first.create_group("y")
    assert ["b", "in", "t", "x", "y"] == list(first) == list(second)
    expected = {"site": "A", "first": 1, "second": 2, "third": 3}
    assert expected == dict(dataset.open(path).attrs)


def test_two_processes_in_one_group(path):
    program = (
        "import sys; from bloscpack import dataset\n"
        "for i in range(40):\n"
        "    group = dataset.open_group(sys.argv[1], 'r+', sync=False)\n"
        "    group.attrs[sys.argv[2] + str(i)] = i\n"
        "    group.create_array('%s%d' % (sys.argv[2], i), [i]).close()\n"
        "    if i % 2: del group['%s%d' % (sys.argv[2], i)]"
    )
    names = ("x", "y")
    done = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(path), name], env=environment()
        )
        for name in names
    ]
    assert [0, 0] == [process.wait() for process in done]
    group = dataset.open(path)
    expected = {"%s%d" % (name, i): i for name in names for i in range(40)}
    assert {"site": "A", **expected} == dict(group.attrs)
    arrays = {name for name, i in expected.items() if i % 2 == 0}
    assert {"b", "in", "t", *arrays} == set(group)
    assert {"b", "in", "t", "zarr.json", *arrays} == set(os.listdir(path))


def test_a_dropped_member_is_unlocked(path):
    group = dataset.open_group(path, "r+")
    column = group["t/x"]  # keeps the table open
    assert column._around is group["t"]
    here = "another writer in this process has opened this folder; 'timeout' waits"
    with pytest.raises(StorageError, match=here):
        dataset.open(path / "t", "r+")
    program = (
        "import sys; from bloscpack import dataset; dataset.open(sys.argv[1], 'r+')"
    )
    other = subprocess.run(
        [sys.executable, "-c", program, path / "t"], capture_output=True, text=True
    )
    assert "another writer" in other.stderr
    assert "has opened this folder" in other.stderr
    del column
    gc.collect()
    dataset.open(path / "t", "r+").close()


NAMES = ["", "/", "a/", "a//b", "..", "a/../b", "zarr.json", "...", "a\\b", 5]
NAMES += [".bloscpack", ".a.bloscpack-5", "a\nb", "a\0b"]


@pytest.mark.parametrize("name", NAMES, ids=repr)
def test_names_that_are_refused(tmp_path, name):
    with dataset.create_group(tmp_path / "g") as group:
        for create in (group.create_array, group.create_group):
            with pytest.raises(UsageError, match="the name of a member"):
                create(name)
    assert ["zarr.json"] == os.listdir(tmp_path / "g")
    assert ["g"] == os.listdir(tmp_path)


def test_messages_about_wrong_uses(path, monkeypatch):
    with dataset.open_group(path, "r+") as group:
        with pytest.raises(KeyError, match="expected the name of a member, found 3"):
            group[3]
        group["n"] = [1, 2]

        def fail(folder):
            marked.append(folder)
            raise FileNotFoundError(errno.ENOENT, "removed", folder.root)

        marked = []
        monkeypatch.setattr("bloscpack._commit.new_folder.mark", fail)
        with pytest.raises(FileNotFoundError, match="removed"):
            group["m"] = [1, 2]
        assert 16 == len(marked)
    assert not [name for name in os.listdir(path) if "bloscpack-" in name]


@pytest.mark.parametrize("is_united", [False, True])
def test_a_member_that_is_replaced_by_its_own_items(path, is_united):
    """It is closed when it is replaced."""
    with dataset.open_group(path, "r+") as group:
        group["n"], group["t"] = [1, 2], {"x": [1, 2], "y": [3, 4]}
        if is_united:
            with group.change():
                pass
        group["n"] = group["n"]
        group["t"] = {"x": group["t/x"], "y": group["n"]}
        assert [1, 2] == group["n"][:].tolist() == group["t/x"][:].tolist()
        group["t"] = group["t/y"]
        assert [1, 2] == group["t"][:].tolist()


def test_members_of_members_that_are_no_groups(path):
    with dataset.open_group(path, "r+") as group:
        for name in ("b/x", "t/x/y", "t/new"):
            with pytest.raises(UsageError, match="is no group"):
                group.create_group(name)
        with pytest.raises(UsageError, match="is no group"):
            group.require_group("b")


def test_modes(tmp_path):
    path = tmp_path / "g"
    for mode in ("r", "r+"):
        with pytest.raises(FileNotFoundError):
            dataset.open_group(path, mode)
    with dataset.open_group(path, "a", attrs={"a": 1}) as group:
        group.create_group("x")
    with dataset.open_group(path, "a", attrs={"a": 2}) as group:
        assert (["x"], {"a": 1}) == (list(group), dict(group.attrs))
    with pytest.raises(FileExistsError):
        dataset.open_group(path, "x")
    with dataset.open(path, "a") as group:
        assert ["x"] == list(group)
    with dataset.open(path, "w") as group:
        assert [] == list(group)
    with dataset.open(path, "w", data=[1, 2], layout="bcolz") as array:
        assert [1, 2] == array[:].tolist()
    with pytest.raises(UsageError, match="is an array; open_array opens it"):
        dataset.open_group(path)
    with pytest.raises(UsageError, match="is an array; open_array opens it"):
        dataset.open_group(path, "a")
    dataset.create_group(path, mode="w").close()
    for function in (dataset.open_array, dataset.open_table):
        with pytest.raises(UsageError, match="is a group; open_group opens it"):
            function(path)
    with pytest.raises(UsageError, match="mode must be"):
        dataset.open_group(path, "rw")
    with pytest.raises(UsageError, match="layouts are 'zarr'"):
        dataset.create_group(path, layout="bcolz", mode="w")


def test_zarr_json(path):
    document = documents.read(path / "zarr.json")
    expected = {
        "zarr_format": 3,
        "node_type": "group",
        "attributes": {"site": "A"},
    }
    assert expected == document
    more = {"consolidated_metadata": {}, "other": {"must_understand": False}}
    (path / "zarr.json").write_text(json.dumps({**document, **more}))
    with dataset.open_group(path, "r+") as group:
        group.attrs["b"] = [1]
        for name in ("column-order", 5):
            with pytest.raises(UsageError):
                group.attrs[name] = 5
    expected["attributes"]["b"] = [1]
    expected["other"] = {"must_understand": False}
    assert expected == documents.read(path / "zarr.json")
    assert documents.is_signed((path / "zarr.json").read_bytes())


DAMAGED = ["", "{", "[]", "5", '{"zarr_format": 2}', '{"zarr_format": 3}']
DAMAGED += ['{"zarr_format": 3.0, "node_type": "group"}']
DAMAGED += ['{"zarr_format": 3, "node_type": "group", "attributes": 5}']


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_zarr_json(path, text):
    (path / "in" / "zarr.json").write_text(text)
    group = dataset.open(path)
    with pytest.raises(FormatError) as caught:
        group["in"]
    assert str(path / "in" / "zarr.json") == caught.value.filename
    assert ["b", "in", "t"] == list(group)


def test_folders_without_a_dataset(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_bytes(b"")
    for function in (dataset.open, dataset.open_group, dataset.open_array):
        for mode in ("r", "r+"):
            with pytest.raises(FormatError, match="expected a dataset"):
                function(tmp_path / "a", mode)
    with pytest.raises(FormatError, match="expected a dataset"):
        dataset.open_group(tmp_path / "a", "a")
    (tmp_path / "empty").mkdir()
    with dataset.open_group(tmp_path / "empty", "a", attrs={"a": 1}) as group:
        assert {"a": 1} == dict(group.attrs)


def test_a_folder_of_datasets(tmp_path):
    golden.extract("bcolz/z_ctable_daily_bars", tmp_path / "b" / "2020" / "daily")
    golden.extract("blz/num_i4", tmp_path / "b" / "blz")
    (tmp_path / "b" / "other").mkdir()
    (tmp_path / "b" / "link").symlink_to(tmp_path / "b" / "2020")
    for function in (dataset.open, dataset.open_group):
        group = function(tmp_path / "b")
        assert ["2020", "2020/daily", "blz"] == names_in(group)
        assert 414 == len(group["2020/daily"])
        assert {} == dict(group.attrs)
        assert "folder" == group.layout
    assert "daily  table (bcolz): 414 rows of" in repr(group)
    with pytest.raises(UsageError, match="can only be read as a group"):
        dataset.open_group(tmp_path / "b", "r+")
    with pytest.raises(StorageError, match="not a dataset"):
        dataset.create_group(tmp_path / "b", mode="w")
    with dataset.open_group(tmp_path / "b", "a") as group:
        group.create_array("new", [1], layout="bcolz")
        with pytest.raises(UsageError, match="opened for reading"):
            group["2020/daily"].resize(1)  # the group around it is a plain folder
        with pytest.raises(UsageError, match=r"blz': .*layout 'blz' can only be read"):
            group["blz"].resize(1)
    assert ["2020", "blz", "new"] == list(dataset.open(tmp_path / "b"))


def test_a_column_is_opened_on_its_own(path):
    with dataset.open_array(path / "t" / "x", "r+") as column:
        column[0] = 7
        with pytest.raises(StorageError, match="another writer"):
            dataset.open(path / "t", "r+")
        with pytest.raises(UsageError, match="append to the table"):
            column.append([1])
    dataset.open(path / "t", "r+").close()
    with pytest.raises(UsageError, match="is a column of a table"):
        dataset.create_array(path / "t" / "x", [1], layout="bcolz", mode="w")
    assert (7, 5) == (dataset.open(path)["t"]["x"][0], len(dataset.open(path)["t"]))


def test_a_member_that_is_not_complete_is_hidden(path):
    """Other programs find no node in the folder where a member is written."""
    program = (
        "import os, sys; from bloscpack import dataset; import numpy\n"
        "def end(event, given):\n"
        "    if event == 'os.rename' and given[1].endswith('new'): os._exit(0)\n"
        "sys.addaudithook(end)\n"
        "group = dataset.open_group(sys.argv[1], 'r+')\n"
        "group.create_array('new', [1], layout='bcolz')"
    )
    command = [sys.executable, "-c", program, str(path)]
    subprocess.run(command, env=environment(), check=True)
    (left,) = set(os.listdir(path)) - {"b", "in", "t", "zarr.json"}
    assert {"new", ".bloscpack-new"} == set(os.listdir(path / left))
    assert ["b", "in", "t"] == list(dataset.open(path))
    dataset.open_group(path, "r+").close()
    assert {"b", "in", "t", "zarr.json"} == set(os.listdir(path))


def test_importing_bloscpack_does_not_import_datasets():
    program = "import sys, bloscpack; print('bloscpack.dataset' in sys.modules)"
    command = [sys.executable, "-c", program]
    found = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert "False\n" == found.stdout


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_pickle(tmp_path, mode):
    with dataset.create_group(tmp_path / "a") as group:
        group.create_array("g/x", [1, 2]).close()
    bloscpack.savez(tmp_path / "a.zip", x=[1, 2])
    with (
        dataset.open(tmp_path / "a", mode) as group,
        bloscpack.loadz(tmp_path / "a.zip") as archive,
    ):
        copies = pickle.loads(pickle.dumps((group, archive)))
    assert [1, 2] == copies[0]["g/x"][:].tolist() == copies[1]["x"][:].tolist()
    for copy in copies:
        copy.close()


@pytest.mark.parametrize("commits", [False, True])
@pytest.mark.parametrize("pinned", [False, True])
def test_the_names_of_a_group_that_was_replaced(tmp_path, commits, pinned):
    path = tmp_path / "g"
    with dataset.create_group(path) as group:
        group["a"] = [1]
        if commits:
            with group.change():
                pass
    reader = dataset.open(path, pinned=pinned)
    dataset.create_group(path, mode="w").close()
    for call in list, len, lambda group: "a" in group:
        with pytest.raises(StorageError, match="open the dataset again"):
            call(reader)


def test_a_member_is_not_created_in_a_group_that_has_replaced_this_one(tmp_path):
    with dataset.create_group(tmp_path / "g") as group:
        os.rename(tmp_path / "g", tmp_path / "old")
        dataset.create_group(tmp_path / "g").close()
        for create in group.create_array, group.create_table:
            with pytest.raises(StorageError, match="open the dataset again"):
                create("new", {"x": [1]} if create == group.create_table else [1])
    assert [] == [*dataset.open(tmp_path / "g")]
