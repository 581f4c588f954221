"""Documents with unexpected values: each ends soon in an error of Bloscpack."""

from __future__ import annotations

import copy
import errno
import json
import os
import pickle
import sys
import tracemalloc
import zipfile
from pathlib import Path

import blosc
import numpy as np
import pytest
from dataset import documents
from dataset import golden_directories as golden
from dataset.damage_datasets import edit_json, numbers
from dataset.inside import OpenFile, with_pending
from dataset.layouts import LAYOUTS, SHARDED

import bloscpack as bp
from bloscpack import bigfile, cli, dataset
from bloscpack.exceptions import DamageError, Unsupported


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


LARGE = 2**31 - 1
TEXT = {"name": "null_terminated_bytes", "configuration": {"length_bytes": LARGE}}
CASES = {
    "a large item of Zarr": ("zarr", "zarr.json", ["data_type"], TEXT),
    "a large item": ("superchunk", "meta/storage", ["dtype"], "'|V%d'" % LARGE),
    "a large item of bcolz": ("bcolz", "meta/storage", ["dtype"], "|V%d" % LARGE),
    "a unit of time of Zarr": (
        "zarr",
        "zarr.json",
        ["data_type"],
        {
            "name": "numpy.datetime64",
            "configuration": {"unit": "s", "scale_factor": 0},
        },
    ),
    "a unit of time": ("superchunk", "meta/storage", ["dtype"], "'<M8[s/0]'"),
    "units of times": ("superchunk", "meta/storage", ["dtype"], [["a", "<m8[0s]"]]),
    "a unit of time of bcolz": ("bcolz", "meta/storage", ["dtype"], "datetime64[0D]"),
    "a list for a byte order": (
        "zarr",
        "zarr.json",
        ["codecs", 0, "configuration", "codecs", 0, "configuration", "endian"],
        ["little"],
    ),
    "chunks without axes": (
        "zarr",
        "zarr.json",
        ["codecs", 0, "configuration", "chunk_shape"],
        [],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    layout, file, keys, new = CASES[name]
    dataset.create_array("a", numbers(10), layout=layout).close()

    def change(value):
        for key in keys[:-1]:
            value = value[key]
        value[keys[-1]] = new

    edit_json("a/" + file, change)
    tracemalloc.start()
    for act in (dataset.open, dataset.describe):
        with pytest.raises(bp.BloscpackError):
            act("a")
    with pytest.raises(bp.BloscpackError):
        dataset.recover("a", "saved")
    try:
        assert not dataset.verify("a").ok
    except Unsupported:
        assert layout == "zarr" or "a large item" in name
    assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
    tracemalloc.stop()


@pytest.mark.parametrize("unit", ["0s", "s/0", "00D"])
def test_units_of_time_that_are_zero(unit):
    """NumPy divides by them, which ends the process."""
    header = "{'descr': '<M8[%s]', 'fortran_order': False, 'shape': (1,), }" % unit
    head = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little")
    Path("a.npy").write_bytes(head + header.encode() + bytes(8))
    with pytest.raises(bp.BloscpackError):
        bp.pack_npy_to_file("a.npy", "a.blp")
    metadata = {"dtype": "'<M8[%s]'" % unit, "shape": [1], "container": "numpy"}
    Path("b.blp").write_bytes(bp.pack_bytes_to_bytes(bytes(8), metadata=metadata))
    with pytest.raises(bp.FormatError, match="a unit of time can't be zero"):
        bp.unpack_ndarray_from_file("b.blp")


@pytest.mark.full
def test_large_items_are_not_written():
    with pytest.raises(bp.UsageError, match="an item has at most 67108864 bytes"):
        dataset.create_array("a", shape=(2,), dtype="V%d" % LARGE)


@pytest.mark.parametrize("name", ["\ud800", "a\udd00"])
def test_names_that_no_file_system_has(name, capsys):
    dataset.create_table("t", {"x": [1], "y": [2]}, layout="bcolz").close()
    edit_json("t/__rootdirs__", lambda value: value.update(names=["x", name]))
    with pytest.raises(bp.FormatError, match="'names' to be different names"):
        dataset.open("t")
    for verb in ("info", "list", "verify"):
        with pytest.raises(SystemExit, match="3"):
            cli.main([verb, "t"])
    assert r"\ud" in capsys.readouterr().err
    dataset.create_array("a", [1]).close()
    document = Path("a/zarr.json")
    document.write_bytes(with_pending(document.read_bytes(), {name: None}))
    with pytest.raises(bp.FormatError, match="expected 'bloscpack-pending'"):
        dataset.open("a", "r+")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_attributes_with_nan(layout):
    attrs = {"a": float("nan"), "b": [float("inf")]}
    with dataset.create_array("a", [1, 2], layout=layout, attrs=attrs) as array:
        array.append([3])
        array.attrs["c"] = 1
        with pytest.raises(bp.UsageError, match="must be JSON"):
            array.attrs["d"] = {1}
    assert dataset.recover("a", "saved").complete
    for path in ("a", "saved"):
        with dataset.open(path) as array:
            assert str({**attrs, "c": 1}) == str(dict(array.attrs))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_attributes_of_numpy(layout):
    attrs = {"f": np.float32(1.5), "n": [np.int64(3)], "b": np.bool_(True)}
    attrs["a"] = {"values": np.arange(3), "text": np.array(["x", None], object)}
    expected = {"f": 1.5, "n": [3], "b": True}
    expected["a"] = {"values": [0, 1, 2], "text": ["x", None]}
    with dataset.create_array("a", [1, 2], layout=layout, attrs=attrs) as array:
        array.attrs["c"] = np.uint8(9)
        for bad in (b"", np.datetime64("2020"), 1j, np.longdouble(1), {"x": [{1}]}):
            with pytest.raises(bp.UsageError, match="the attribute 'd' must be JSON"):
                array.attrs["d"] = bad
    assert {**expected, "c": 9} == dict(dataset.open("a").attrs)
    with pytest.raises(bp.UsageError, match="the attribute 'bad' must be JSON"):
        dataset.create_array("b", [1], layout=layout, attrs={"ok": 1, "bad": b""})


class Trap:
    def __reduce__(self):
        return open, ("trapped", "w")


def objects():
    """Make a table with a column of objects, whose first item runs code."""
    golden.extract("bcolz/z_object", Path("t/o"))
    chunk = blosc.compress(pickle.dumps(Trap()), typesize=1)
    Path("t/o/data/__0.blp").write_bytes(bytes(16) + chunk)
    Path("t/__rootdirs__").write_text('{"names": ["o"]}')


@pytest.mark.parametrize("path", ["t/o", "t", "."])
def test_a_copy_unpickles_no_more_than_the_original(path):
    objects()
    column = {"t/o": lambda a: a, "t": lambda a: a["o"], ".": lambda a: a["t/o"]}[path]
    with dataset.open(path) as opened:
        found = column(opened)
        clones = [copy.copy(found), copy.deepcopy(found)]
        clones.append(pickle.loads(pickle.dumps(found)))
        if path != ".":
            clones.append(column(pickle.loads(pickle.dumps(opened))))
        for clone in clones:
            with pytest.raises(bp.FormatError, match="allow_pickle=True"):
                clone[0]
    assert not Path("trapped").exists()
    with dataset.open(path, allow_pickle=True) as opened:
        found = column(opened)
        expected = golden.values("bcolz/z_object")[1:]
        assert expected == list(pickle.loads(pickle.dumps(found))[1:])


@pytest.mark.parametrize(
    ("layout", "kind"),
    [
        # Each layout and each kind has one quick case.
        pytest.param(layout, kind, marks=[] if i % 3 == j else pytest.mark.slow)
        for i, layout in enumerate(LAYOUTS)
        for j, kind in enumerate(["array", "table", "group"])
    ],
)
def test_one_error_while_recovering(layout, kind, monkeypatch):
    """Each read of a document fails once: all is saved, or there is an error."""
    if kind == "array":
        dataset.create_array("d", numbers(10), layout=layout).close()
    elif kind == "table":
        columns = {"x": numbers(10), "y": numbers(10)}
        dataset.create_table("d", columns, layout=layout).close()
    else:
        with dataset.create_group("d") as group:
            group.create_array("a", numbers(10), layout=layout)
            group.create_array("b", numbers(10), layout=layout)
    original = OpenFile.read_at
    count = 0

    def read_at(self, offset, size):
        nonlocal count
        count -= 1
        if count == 0:
            raise OSError(errno.EIO, "Input/output error", self.path)
        return original(self, offset, size)

    monkeypatch.setattr(OpenFile, "read_at", read_at)
    outcomes = []
    for number in range(1, 100):
        count = number
        target = "saved%d" % number
        try:
            recovery = dataset.recover("d", target)
            outcomes.append(None)
        except OSError as error:
            outcomes.append(error)
            continue
        finally:
            reached, count = count <= 0, 0
        assert list(nodes("d")) == list(nodes(target)) or not recovery.complete
        if not reached:
            break
    assert not reached
    assert any(outcomes)


def nodes(path):
    with dataset.open(path) as found:
        yield from values(found)


def values(found):
    if isinstance(found, dataset.Group):
        for name in found:
            yield name
            yield from values(found[name])
    else:
        yield repr(found[:].tolist())


def test_one_long_text(monkeypatch):
    pytest.importorskip("pyarrow")
    from bloscpack.dataset.conversion import parquet_files

    monkeypatch.setattr(parquet_files, "MAX_PADDED", 10**6)
    lines = ["a,b", *["1,x"] * 1000]
    Path("short.csv").write_text("\n".join(lines) + "\n")
    dataset.convert("short.csv", "short.superchunk")
    Path("long.csv").write_text("\n".join([*lines, "2," + "y" * 5000]) + "\n")
    with pytest.raises(bp.UsageError, match="column 'b': a text has '5000' characters"):
        dataset.convert("long.csv", "long.superchunk")
    dataset.convert("long.csv", "long.zarr")  # where text has any length
    assert "y" * 5000 == dataset.open("long.zarr")["b"][1000]
    with open("endless.csv", "wb") as fp:
        fp.truncate(10**8)
    with pytest.raises(bp.FormatError, match="expected lines of at most"):
        dataset.convert("endless.csv", "endless.zarr")
    assert np.dtype("U1") == dataset.open("short.superchunk").dtype["b"]


def test_groups_inside_of_each_other(capsys):
    """As many as the length of a path allows."""
    dataset.create_group("g").close()
    inner = Path("g")
    for _ in range(800):
        inner /= "g"
        inner.mkdir()
        (inner / "zarr.json").write_bytes(Path("g/zarr.json").read_bytes())
    with dataset.open("g") as group:
        assert "g  group" in repr(group)
        assert "at most '100' groups inside of" in str(dataset.describe("g"))
        for act in (dataset.verify, list_all):
            with pytest.raises(bp.UsageError, match="at most '100' groups inside of"):
                act("g")
        with pytest.raises(bp.UsageError, match="at most '100' groups inside of"):
            dataset.recover("g", "saved")
        with pytest.raises(bp.UsageError, match="at most '100' groups inside of"):
            dataset.convert("g", "x.npz")
    with pytest.raises(SystemExit, match="1"):
        cli.main(["list", "g"])


def list_all(path):
    with dataset.open(path) as group:
        while list(group):
            group = group["g"]


def test_a_block_whose_header_is_elsewhere():
    """What is listed as a block can be opened as one."""
    with bigfile.File("t", create=True) as tree:
        tree.create_from_array("a", np.arange(4))
        tree.create_from_array("b", np.arange(4))
    Path("t/b/header").rename("elsewhere")
    Path("t/b/header").symlink_to(Path("elsewhere").resolve())
    tree = bigfile.File("t")
    assert ["a"] == tree.blocks
    assert isinstance(tree["b"], bigfile.File)
    assert not bigfile.verify("t").ok
    tree = bigfile.File("t", follow_links=True)
    assert [0, 1, 2, 3] == tree["b"][:].tolist()


def test_text_of_no_characters():
    """Numbers that a changed dtype makes text; the other layouts state it twice."""
    columns = {"x": np.full(20, -1), "t": np.full(20, "ab")}
    dataset.create_table("t", columns, layout="bcolz").close()
    edit_json("t/x/meta/storage", lambda value: value.update(dtype="<U2"))
    with dataset.open("t") as table:
        assert 20 == len(table["x"][:])
        assert table["x"][3, ...].shape == ()  # an array is read as it is
        with pytest.raises(bp.FormatError, match="which is no character"):
            table["x"][3]
        assert "columns: x, t" in repr(table)
    pytest.importorskip("pandas")
    with pytest.raises(bp.FormatError, match="which is no character"):
        dataset.convert("t", "t.csv")


@pytest.mark.parametrize(
    "name",
    ["../other", os.path.abspath("other"), "", "a/..", "b\0", "\ud800", "zarr.json"],
)
def test_names_of_members_that_lead_elsewhere(name):
    """A writer makes the file that a member has lost: never outside of the group."""
    os.mkdir("other")
    with dataset.create_group("g") as group:
        group.create_array("a", [1]).close()
        with group.change():
            pass

    def add(document):
        members = document["consolidated_metadata"]["metadata"]
        members[name] = members["a"]

    edit_json("g/zarr.json", add)
    os.mkdir("g/.bloscpack")  # as if a writer had died
    for mode in "r", "r+":
        with pytest.raises(DamageError, match="names of members in"):
            dataset.open("g", mode)
    assert not dataset.verify("g").ok
    dataset.recover("g", "new")
    assert ["a"] == [*dataset.open("new")]
    assert [] == os.listdir("other")


@pytest.mark.parametrize("value", ["5", "[]", "null", '"x"'])
@pytest.mark.parametrize(
    ("layout", "kind", "file"),
    [
        ("zarr", "table", "zarr.json"),
        ("superchunk", "array", "meta/sizes"),
        ("bcolz", "array", "meta/sizes"),
        ("bcolz", "table", "__rootdirs__"),
    ],
)
def test_a_document_without_an_object_where_a_writer_has_died(
    layout, kind, file, value
):
    create = dataset.create_array if kind == "array" else dataset.create_table
    create("a", numbers(10) if kind == "array" else {"x": [1]}, layout=layout).close()
    Path("a", file).write_text(value)
    os.mkdir("a/.bloscpack")
    with pytest.raises(bp.FormatError):
        dataset.open("a", "r+")


def test_left_files_of_any_name():
    dataset.create_array("a", np.arange(5)).close()
    Path("a/.bloscpack").mkdir()
    Path("a/.bloscpack", "a\\b").write_bytes(b"x")
    with dataset.open("a", "r+") as array:
        array.append([5])
    assert ["c", "zarr.json"] == sorted(path.name for path in Path("a").iterdir())


@pytest.mark.parametrize("name", [".a.bloscpack-1", ".bloscpack-new"])
def test_no_dataset_has_the_name_of_a_temporary_folder(name):
    with pytest.raises(bp.UsageError, match="reserved for temporary folders"):
        dataset.create_array(name, np.arange(5))


def test_recover_a_table_without_columns():
    dataset.create_table("t", {"x": [1]}, layout="bcolz").close()
    edit_json("t/__rootdirs__", lambda value: value.update(names=[]))
    with pytest.raises(bp.FormatError, match="no columns"):
        dataset.recover("t", "saved")


def test_files_of_any_name_beside_those_of_a_dataset():
    dataset.create_group("g").close()
    Path("g", "a\\b").write_bytes(b"x")
    dataset.create_array("g/x", np.arange(5)).close()
    Path("g", "x", "c\\d").mkdir()
    assert dataset.recover("g", "saved").complete
    dataset.recover("g", "saved", mode="w")
    assert dataset.verify("saved").ok


@pytest.mark.parametrize("layout", ["zarr", "bcolz"])
def test_a_document_that_is_too_long_is_not_read(tmp_path, layout):
    path = tmp_path / "t"
    dataset.create_table(path, {"x": [1, 2]}, layout=layout).close()
    names = {"zarr": "zarr.json", "bcolz": "__rootdirs__"}
    os.truncate(path / names[layout], 10**11)
    with pytest.raises(DamageError, match="at most '67108864' bytes"):
        dataset.open(path)


@pytest.mark.parametrize("in_zip", [False, True])
def test_files_whose_names_look_like_numbers(in_zip):
    dataset.create_array("a", numbers(4)).close()
    size = os.path.getsize("a/c/0")
    names = ["c/\u00b2", "c/01", "c/" + "1" * (5000 if in_zip else 200)]
    if in_zip:
        with zipfile.ZipFile("b", "w") as archive:
            for name in ("zarr.json", "c/0"):
                archive.write("a/" + name, name)
            for name in names:
                archive.writestr(name, bytes(4))
    else:
        for name in names:
            Path("a", name).write_bytes(bytes(4))
    path = "b" if in_zip else "a"
    with dataset.open(path, "r" if in_zip else "r+") as array:
        assert size == array.cbytes
        if not in_zip:
            array.resize(9)
    assert dataset.verify(path).ok


def test_fill_values_that_are_too_large():
    dataset.create_array("a", shape=4, dtype="f4").close()
    document = json.loads(Path("a/zarr.json").read_text())
    document.update(fill_value=1e300, attributes={})
    Path("a/zarr.json").write_text(json.dumps(document))
    with dataset.open("a") as array:  # without a warning of NumPy
        assert np.isinf(array[:]).all()


@pytest.mark.full
@pytest.mark.parametrize("layout", SHARDED)
def test_attributes_that_no_reader_takes(layout):
    """The limits of documents (M7) apply to writers, too."""
    deep, of_arrays = deep_list(97), deep_list(67, np.zeros((1,) * 32))
    with dataset.create_array("a", numbers(10), layout=layout) as array:
        array.attrs["deep"] = deep
        for wrong in ([deep], of_arrays, "x" * 2**26):
            with pytest.raises(bp.UsageError, match=r"nested more than|at most"):
                array.attrs["wrong"] = wrong
    with dataset.open("a") as array:
        assert {"deep": deep} == dict(array.attrs)
        assert numbers(10).tolist() == array[:].tolist()


def deep_list(depth, found=None):
    found = [] if found is None else found
    for _ in range(depth):
        found = [found]
    return found


@pytest.mark.parametrize("path", ["t", "memory://hostile/t"])
def test_attributes_of_columns_that_are_too_deep(path):
    """The document of a table has those of its columns, within the same limits."""
    if "://" in path:
        pytest.importorskip("fsspec", reason="the extra 'remote' is not installed")
    dataset.create_table(path, {"x": numbers(10), "y": numbers(10)}, mode="w").close()
    with dataset.open(path, "r+") as table:
        for _ in range(2):  # the writer goes on
            with pytest.raises(bp.UsageError, match="nested more than"):
                table["x"].attrs["wrong"] = deep_list(96)
        table["x"].attrs["right"] = deep_list(94)
        table.append({"x": [1], "y": [2]})
    with dataset.open(path, "r+") as table:
        assert {"right": deep_list(94)} == dict(table["x"].attrs)
        assert [*numbers(10), 1] == table["x"][:].tolist()


@pytest.mark.slow
def test_documents_of_columns_that_are_too_long_together():
    dataset.create_table("t", {"x": numbers(10), "y": numbers(10)}).close()
    with dataset.open("t", "r+") as table:
        table["y"].attrs["long"] = "y" * 2**25
        with pytest.raises(bp.UsageError, match="at most"):
            table["x"].attrs["wrong"] = "x" * 2**25
        del table["y"].attrs["long"]
    found = dataset.open("t")
    assert [{}, {}] == [dict(found[name].attrs) for name in "xy"]


def test_names_of_many_parts():
    """Each part of a name is opened behind the one before it, as deep as names are."""
    name = "/".join(["a"] * 1500)
    dataset.create_array("a", [1]).close()
    document = Path("a/zarr.json")
    document.write_bytes(with_pending(document.read_bytes(), {name: None}))
    with pytest.raises(bp.FormatError, match="expected 'bloscpack-pending'"):
        dataset.open("a", "r+")
    with dataset.create_group("g") as group, group.change() as change:
        change.create_array("x", [1])
    value = json.loads(Path("g/zarr.json").read_text())
    copies = value["consolidated_metadata"]["metadata"]
    copies[name] = copies["x"]
    Path("g/zarr.json").write_bytes(documents.signed(value))
    with pytest.raises(bp.FormatError, match="expected names of members"):
        dataset.open("g")


def test_folders_inside_of_many_folders(tmp_path):
    dataset.create_array("a", [1]).close()
    outer = os.open("a", os.O_RDONLY)
    for _ in range(300):
        os.mkdir("b", dir_fd=outer)
        inner = os.open("b", os.O_RDONLY, dir_fd=outer)
        os.close(outer)
        outer = inner
    os.close(outer)
    assert dataset.verify("a").ok
    for call in (dataset.recover, dataset.convert):
        with pytest.raises(bp.StorageError, match="inside of more than 250 folders"):
            call("a", "b.npy")
    with pytest.raises(bp.FormatError, match="expected a name inside of the dataset"):
        dataset.snapshot("a", "b")
    assert ["a"] == os.listdir()
    dataset.create_array("a", [1], mode="w").close()
    assert dataset.verify("a").ok


def test_a_long_list_of_pending_files_that_are_not_there():
    """Completing it takes one look at the folder of changes, not one for each name."""
    dataset.create_array("a", np.arange(9)).close()
    document = Path("a/zarr.json")
    files = {"c/%d" % i: "1f3a-%d" % i for i in range(1, 2000)}
    document.write_bytes(with_pending(document.read_bytes(), files))
    renamed = []

    def note(frame, event, function):
        if event == "c_call" and function in (os.rename, os.replace):
            renamed.append(function)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        with dataset.open("a", "r+") as array:
            array.append(np.arange(9))
    finally:
        sys.setprofile(before)
    assert len(renamed) < 20
    assert 18 == len(dataset.open("a"))
