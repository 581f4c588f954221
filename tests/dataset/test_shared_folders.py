"""Datasets in folders that other users can write, and the access of new files."""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import os
import pathlib
import shutil
import stat
import tempfile
from functools import partial

import dataset.documents as documents
import numpy as np
import pytest
from dataset.inside import Disk, descriptors, ownership, with_pending
from dataset.layouts import LAYOUTS
from support import FailingCalls, as_user, files_of, needs_root, open_files_in

import bloscpack
from bloscpack import bigfile, dataset
from bloscpack.cli import main
from bloscpack.dataset.parallel import target_of
from bloscpack.exceptions import (
    BloscpackError,
    FormatError,
    StorageError,
    UsageError,
)

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="needs POSIX permissions"),
    pytest.mark.usefixtures("usual_umask"),
]
ATTACKER, VICTIM, TEAM = 12345, 23456, 34567
ITEMS = np.arange(40)


@pytest.fixture
def sticky(open_folder):
    """Return a folder like ``/tmp``."""
    open_folder.chmod(0o1777)
    return open_folder


def begin(path, mode="x"):
    """Begin an array that several processes write."""

    def create(place):
        shape = {"shape": (0,), "dtype": "i8", "chunks": 8, "shards": 8}
        return dataset.create_array(place, **shape)

    target = target_of(path, mode, True)
    target.begin(create)
    return target


def write_in_parallel(path, mode="x"):
    target = begin(path, mode)
    target.put(0, {"": ITEMS})
    target.finish(len(ITEMS))


def plant(folder, files, owner=ATTACKER):
    """Write files, which another user owns, and so their folders."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not isinstance(content, (str, bytes)):
            content = json.dumps(content)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        for place in (path, *path.parents):
            if place == folder:
                break
            os.chown(place, owner, owner)


def group_document(**attributes):
    return {"zarr_format": 3, "node_type": "group", "attributes": attributes}


# What other users have planted


def signed_group(files, **members):
    """Return the document of a group that commits members, with a list of files."""
    copies = {"kind": "inline", "must_understand": False, "metadata": members}
    copies["bloscpack-id"] = "id=%016x crc32=00000000" % 1
    document = {**group_document(), "consolidated_metadata": copies}
    content = documents.signed_again(json.dumps(document).encode())
    return with_pending(content, files)


def zarr_document(items):
    """Return the document of an array."""
    with tempfile.TemporaryDirectory() as folder:
        dataset.create_array(folder + "/a", items).close()
        return json.loads(pathlib.Path(folder, "a/zarr.json").read_text())


LIST = {"ds/c/0": "hook", "home/hook": "hook", "home/precious": None}
COPIED = {"consolidated_metadata": {"metadata": {"ds": {}, "new": {}, "in/ds": {}}}}
ARRAY = zarr_document(ITEMS)
# Documents around datasets, by their names.
PLANTED = {
    "table": lambda: with_pending(
        json.dumps(group_document(**{"column-order": ["ds", "new"]})).encode(), LIST
    ),
    "array with copies": lambda: with_pending(
        json.dumps({**group_document(), "node_type": "array", **COPIED}).encode(), LIST
    ),
    "group with copies": lambda: json.dumps({**group_document(), **COPIED}).encode(),
    "committing": lambda: signed_group(LIST, ds=ARRAY, new=ARRAY),
    "committing others": lambda: signed_group(LIST, other=group_document()),
    "bcolz": lambda: with_pending(json.dumps({"names": ["ds", "new"]}).encode(), LIST),
    "superchunk": lambda: with_pending(json.dumps({"shape": [1]}).encode(), LIST),
}
PLANTED_AS = {"bcolz": "__rootdirs__", "superchunk": "meta/sizes"}


def make_array(path, kind):
    """Make an array of a layout, or one that was a column of a table."""
    if kind in ("column", "lost"):
        dataset.create_table(str(path) + "-t", {"x": ITEMS}).close()
        os.rename(str(path) + "-t/x", path)
        if kind == "lost":
            (path / "zarr.json").unlink()
    else:
        dataset.create_array(path, ITEMS, layout=kind).close()


@needs_root
@pytest.mark.parametrize("kind", ["zarr", "superchunk", "bcolz", "column", "lost"])
@pytest.mark.parametrize("planted", PLANTED)
def test_a_document_that_is_planted_in_a_folder_of_another_user(
    planted, kind, open_folder
):
    """It changes no files, and has no effect on an array that does not ask for it."""
    folder = open_folder / "theirs"
    folder.mkdir()
    folder.chmod(0o777)
    os.chown(folder, ATTACKER, ATTACKER)
    with as_user(VICTIM):
        (folder / "home").mkdir()
        (folder / "home" / "precious").write_text("precious")
        make_array(folder / "ds", kind)
    name = PLANTED_AS.get(planted, "zarr.json")
    hook = {".bloscpack/hook": "#!", ".bloscpack/file": "planted"}
    plant(folder, {name: PLANTED[planted](), **hook})
    for place in (".bloscpack", name, *hook):  # so that the victim may change them
        os.chmod(folder / place, 0o777)
    before = {n: (folder / n).read_bytes() for n in (name, *hook)}

    def append(place):
        with dataset.open(place, "r+") as array:
            array.append([7])

    calls = [
        lambda: dataset.open(folder / "ds")[:],
        lambda: dataset.verify(folder / "ds"),
        lambda: append(folder / "ds"),
        lambda: dataset.open(folder / "ds", "r+").attrs.update(x=1),
        lambda: dataset.create_array(folder / "new", ITEMS).close(),
        lambda: append(folder / "new"),
        lambda: dataset.create_array(folder / "new", ITEMS, mode="w").close(),
        lambda: dataset.create_group(folder / "in").close(),
        lambda: dataset.create_array(folder / "in/ds", ITEMS).close(),
        lambda: append(folder / "in/ds"),
        lambda: dataset.convert(folder / "in/ds", folder / "copy", to="zarr"),
        lambda: dataset.open(folder / "in", "r+").__delitem__("ds"),
    ]
    failed = []
    for call in calls:
        try:
            with as_user(VICTIM):
                call()
        except (BloscpackError, OSError, KeyError):
            failed.append(call)
        gc.collect()
        assert ["precious"] == os.listdir(folder / "home")
        assert before == {n: (folder / n).read_bytes() for n in before}
    if kind == "zarr" or (kind in ("superchunk", "bcolz") and planted != "bcolz"):
        assert not {*calls[:4]}.intersection(failed)


@needs_root
@pytest.mark.parametrize("layout", ["zarr", "bcolz"])
def test_a_member_of_a_group_or_table_of_another_user(open_folder, layout):
    """It is read; root, and the user who made it, change it by its own path."""
    folder = open_folder / "team"
    folder.mkdir()
    folder.chmod(0o777)
    with as_user(ATTACKER):
        dataset.create_table(folder / "t", {"x": ITEMS}, layout=layout).close()
    document = folder / "t" / ("zarr.json" if layout == "zarr" else "__rootdirs__")
    os.chmod(folder / "t", 0o777)
    for place in (folder / "t", *(folder / "t").rglob("*")):
        os.chown(place, VICTIM, VICTIM)
    os.chown(document, ATTACKER, ATTACKER)
    with as_user(VICTIM):
        assert ITEMS.tolist() == dataset.open(folder / "t/x")[:].tolist()
        with pytest.raises(PermissionError, match="belongs to another user") as info:
            dataset.open(folder / "t/x", "r+")
        assert str(folder / "t/x") == info.value.filename
    os.chown(document, VICTIM, VICTIM)
    for user in VICTIM, 0:
        with as_user(user), dataset.open(folder / "t/x", "r+") as array:
            array[0] = 7
    assert 7 == dataset.open(folder / "t")["x"][0]


@pytest.mark.parametrize("layout", ["zarr", "bcolz"])
def test_a_document_around_counts_only_if_it_names_the_dataset(tmp_path, layout):
    dataset.create_table(
        tmp_path / "t", {"x": ITEMS, "y": ITEMS}, layout=layout
    ).close()
    shutil.copytree(tmp_path / "t/x", tmp_path / "t/z")
    (tmp_path / "t/home").mkdir()
    (tmp_path / "t/.bloscpack").mkdir()
    (tmp_path / "t/home/precious").write_text("precious")
    document = tmp_path / "t" / ("zarr.json" if layout == "zarr" else "__rootdirs__")
    document.write_bytes(with_pending(document.read_bytes(), {"home/precious": None}))
    before = files_of(tmp_path / "t")
    if layout == "zarr":
        with pytest.raises(FormatError, match="expected a copy of its document"):
            dataset.open(tmp_path / "t/z", "r+")
    else:
        with dataset.open(tmp_path / "t/z", "r+") as array:
            assert ITEMS.tolist() == array[:].tolist()
    assert before == files_of(tmp_path / "t")
    with dataset.open(tmp_path / "t/x", "r+") as array:
        array[0] = 7
    assert not (tmp_path / "t/home/precious").exists()


@needs_root
def test_copies_of_documents_in_a_group_of_another_user(open_folder):
    """They stay, and keep no user from changing a dataset."""
    with dataset.create_group(open_folder / "g") as group:
        group.create_array("a", ITEMS)
    for place in (open_folder / "g/a", *open_folder.glob("g/a/**/*")):
        os.chown(place, VICTIM, VICTIM)
    document = json.loads((open_folder / "g" / "zarr.json").read_text())
    document["consolidated_metadata"] = {"metadata": {"a": {}}}
    (open_folder / "g" / "zarr.json").write_text(json.dumps(document))
    before = files_of(open_folder / "g")["zarr.json"]
    with as_user(VICTIM), dataset.open(open_folder / "g" / "a", "r+") as array:
        array.append([7])
    assert before == files_of(open_folder / "g")["zarr.json"]
    assert 41 == len(dataset.open(open_folder / "g" / "a"))
    with dataset.open(open_folder / "g" / "a", "r+") as array:
        array.append([7])
    assert b"consolidated" not in files_of(open_folder / "g")["zarr.json"]


@needs_root
def test_a_folder_of_changes_that_is_planted_during_a_change(sticky):
    """Its owner could put other files in the place of new ones."""
    with as_user(VICTIM):
        dataset.create_array(sticky / "ds", ITEMS, chunks=8, shards=8).close()
        (sticky / "ds").chmod(0o1777)
        array = dataset.open(sticky / "ds", "r+")
        os.seteuid(0)
        plant(sticky / "ds", {".bloscpack/file": "planted"})
        os.seteuid(VICTIM)
        with pytest.raises(StorageError, match="another user has made this folder"):
            array.append(ITEMS)
        with pytest.raises(PermissionError):
            array.close()
    assert ["file"] == os.listdir(sticky / "ds" / ".bloscpack")


@needs_root
def test_a_member_of_the_group_whom_no_database_knows(open_folder):
    """Whoever may write the document may write the dataset."""
    path = open_folder / "a"
    dataset.create_array(path, ITEMS, chunks=8, shards=8).close()
    for place in (path, *path.rglob("*")):
        os.chown(place, ATTACKER, VICTIM)
        if place.is_dir():
            place.chmod(0o775)
    with as_user(VICTIM), dataset.open(path, "r+") as array:
        array[3] = 99
        array[:] = 5
    assert [5] * 40 == dataset.open(path)[:].tolist()


@needs_root
def test_a_table_of_the_owner_is_found_around_a_column(tmp_path):
    for bits in (0o755, 0o775):
        path = tmp_path / ("t%o" % bits)
        dataset.create_table(path, {"x": ITEMS, "y": ITEMS}).close()
        for place in (path, *path.rglob("*")):
            if place.is_dir():
                place.chmod(bits)
        with dataset.open(path / "x", "r+") as column:
            assert "Array" in type(column).__name__
            with pytest.raises(Exception, match="append to the table"):
                column.append([1])


@pytest.fixture
def shared(sticky):
    """Return a folder of the attacker, in which both users may write."""
    groups, umask = os.getgroups(), os.umask(0o002)
    os.setgroups([TEAM])
    (sticky / "s").mkdir()
    os.chown(sticky / "s", ATTACKER, TEAM)
    (sticky / "s").chmod(0o2775)
    yield sticky / "s"
    os.umask(umask)
    os.setgroups(groups)


@needs_root
def test_a_column_that_another_user_has_added(shared, monkeypatch):
    """Its rows are changed with those of the table."""
    monkeypatch.setattr(ownership, "_is_member", lambda uid, gid: True)
    with as_user(ATTACKER, TEAM):
        dataset.create_table(shared / "t", {"x": ITEMS}).close()
    with as_user(VICTIM, TEAM):
        with dataset.open(shared / "t", "r+") as table:
            table.add_column("z", ITEMS)
        with dataset.open(shared / "t" / "z", "r+") as column:
            with pytest.raises(UsageError, match="append to the table"):
                column.append([7, 8])
            column[3] = -1
            column[3] = 3
    with as_user(ATTACKER, TEAM), dataset.open(shared / "t", "r+") as table:
        table.append({"x": [1], "z": [2]})
        assert [*ITEMS, 2] == table["z"][:].tolist()


# Folders that are exchanged


def exchange(folder, target):
    """Put a link in the place of a folder."""
    if not folder.is_symlink():
        folder.rename(folder.with_name(folder.name + "-moved"))
        folder.symlink_to(target, target_is_directory=True)


def test_a_folder_of_changes_that_is_exchanged(tmp_path, monkeypatch):
    path, home = tmp_path / "a", tmp_path / "home"
    dataset.create_array(path, ITEMS).close()
    home.mkdir()
    (home / "precious").write_text("precious")
    (path / ".bloscpack").mkdir()
    (path / ".bloscpack" / "left").write_text("left")
    for name in ("listdir", "scandir"):
        original = getattr(os, name)

        def exchanging(*where, original=original):
            exchange(path / ".bloscpack", home)
            return original(*where)

        monkeypatch.setattr(os, name, exchanging)
    with contextlib.suppress(OSError):
        dataset.open(path, "r+").close()
    assert ["precious"] == os.listdir(home)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_folder_that_is_exchanged_during_a_rename(tmp_path, monkeypatch, layout):
    path, home = tmp_path / "a", tmp_path / "home"
    shards = {} if layout == "bcolz" else {"shards": 8}
    dataset.create_array(path, ITEMS, chunks=8, layout=layout, **shards).close()
    home.mkdir()
    folder = path / ("c" if layout == "zarr" else "data")
    rename = Disk.rename

    def exchanging(disk, old, new):
        if str(new).startswith(str(folder)):
            exchange(folder, home)
        rename(disk, old, new)

    monkeypatch.setattr(Disk, "rename", exchanging)
    with contextlib.suppress(OSError), dataset.open(path, "r+") as array:
        array.append(ITEMS)
    assert [] == os.listdir(home)


def test_a_left_folder_that_is_exchanged(tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    (home / "precious").write_text("precious")
    left = tmp_path / ".a.bloscpack-1"
    (left / "in").mkdir(parents=True)
    (left / "in" / "file").write_text("left")
    (left / ".bloscpack-new").touch()
    scandir, calls = os.scandir, []

    def exchanging(*where):
        found = os.readlink("/proc/self/fd/%d" % where) if type(where[0]) is int else ""
        if str(left) in (found, *map(str, where)):
            calls.append(where)
        elif calls and not (left / "in").is_symlink():
            exchange(left / "in", home)
        return scandir(*where)

    monkeypatch.setattr(os, "scandir", exchanging)
    dataset.create_array(tmp_path / "a", ITEMS).close()
    assert calls
    assert ["precious"] == os.listdir(home)


# The files in a temporary folder.
LEFT = (".bloscpack-new", "in/file")


@needs_root
def test_a_left_folder_of_another_user_stays(sticky):
    plant(sticky, {".a.bloscpack-1/" + name: "" for name in LEFT})
    with as_user(VICTIM):
        dataset.create_array(sticky / "a", ITEMS).close()
        dataset.create_array(sticky / "a", ITEMS, mode="w").close()
    dataset.create_array(sticky / "a", ITEMS, mode="w").close()
    assert (sticky / ".a.bloscpack-1" / "in" / "file").exists()
    plant(sticky, {".a.bloscpack-2/" + name: "" for name in LEFT}, owner=0)
    with as_user(VICTIM):
        (sticky / ".a.bloscpack-3").mkdir()
        dataset.create_array(sticky / "b", ITEMS).close()
    dataset.create_array(sticky / "a", ITEMS, mode="w").close()
    assert {".a.bloscpack-1", ".a.bloscpack-3", "a", "b"} == set(os.listdir(sticky))


def test_the_folder_of_a_new_dataset_is_private(tmp_path):
    def blocks():
        yield ITEMS  # tells the dtype, before anything is written
        (hidden,) = tmp_path.iterdir()
        assert 0o700 == stat.S_IMODE(hidden.stat().st_mode)
        yield ITEMS

    dataset.create_array(tmp_path / "a", blocks()).close()


# Errors of the file system


GROUP = {"a": "superchunk", "b": "zarr", "c": "bcolz"}
NAMES = ("open", "stat", "lstat", "scandir", "listdir")


@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE])
@pytest.mark.parametrize("name", ["", *GROUP, "t/x"])
def test_an_error_while_a_layout_is_detected(tmp_path, monkeypatch, code, name):
    """Its kind is the right kind, or the error is raised."""
    path = tmp_path / "g"
    dataset.create_group(path).close()
    for member, layout in GROUP.items():
        dataset.create_array(path / member, ITEMS, layout=layout).close()
    dataset.create_table(path / "t", {"x": ITEMS}).close()
    place = path / name
    failed = 0
    for number in range(2000):
        with monkeypatch.context() as context:
            failing = FailingCalls(context, NAMES, number, code)
            try:
                found = dataset.open(place)
                if not name:
                    assert [*sorted(GROUP), "t"] == list(found)
                else:
                    assert GROUP.get(name, "zarr") == found.layout
                    assert ITEMS.tolist() == found[:].tolist()
            except OSError as error:
                failed += error.errno == code
        if failing.left >= 0:
            break
    if code == errno.EIO:  # with EMFILE, a call is repeated if something was closed
        assert failed > 3


@needs_root
@pytest.mark.parametrize("read", ["", "c"])
def test_a_folder_that_may_not_be_entered_is_named(open_folder, read):
    """The error names no file in it, which may not be there."""
    dataset.create_array(open_folder / "a", ITEMS).close()
    folder = open_folder / "a" / read if read else open_folder / "a"
    folder.chmod(0)
    with as_user(65534), pytest.raises(PermissionError) as caught:
        dataset.open(open_folder / "a")[:]
    assert str(folder) == caught.value.filename


# Open folders


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_datasets_that_are_dropped_are_closed(tmp_path, monkeypatch):
    monkeypatch.setattr(descriptors, "MOST_KEPT", 50)
    dataset.create_array(tmp_path / "a", ITEMS).close()
    dataset.create_table(tmp_path / "t", {"x": ITEMS}, layout="bcolz").close()
    gc.collect()  # objects of earlier tests may still have files open
    before = len(os.listdir("/proc/self/fd"))
    for number in range(100):
        assert 7 == dataset.open(tmp_path / "a", "r+" if number % 9 == 0 else "r")[7]
        assert 7 == dataset.open(tmp_path / "t")["x"][7]
    assert before >= len(os.listdir("/proc/self/fd"))
    kept = [dataset.open(tmp_path / "a") for _ in range(200)]
    assert len(os.listdir("/proc/self/fd")) < before + 150
    assert [7] * 200 == [array[7] for array in kept]


def test_a_system_without_open_folders(tmp_path, monkeypatch):
    for module in ("_storage.folder_store", "_commit.ownership"):
        monkeypatch.setattr("bloscpack.%s.HAS_OPEN_FOLDERS" % module, False)
    path = tmp_path / "g"
    with dataset.create_group(path) as group:
        for layout in LAYOUTS:
            with group.create_array(layout, ITEMS, layout=layout, chunks=8) as array:
                array.append(ITEMS)
                array[3:30] = 7
            group.create_array(layout, ITEMS, layout=layout, mode="w").close()
        group.create_table("t", {"x": ITEMS, "y": ITEMS}).close()
        group["t"].remove_column("y")
        del group["bcolz"]
    assert sorted({*LAYOUTS, "t"} - {"bcolz"}) == list(dataset.open(path))
    assert dataset.verify(path).ok
    (path / "zarr" / "c").rename(tmp_path / "c")
    (path / "zarr" / "c").symlink_to(tmp_path / "c")
    with pytest.raises(StorageError, match="symbolic link"):
        dataset.open(path / "zarr")[:]


# Who may read and write


def access_of(path):
    """Return owner, group and bits of each file and folder, without those of change."""
    places = (path, *path.rglob("*"))
    return {
        (p.is_dir(), p.stat().st_uid, p.stat().st_gid, stat.S_IMODE(p.stat().st_mode))
        for p in places
    }


def restrict(path, owner=None):
    for place in (path, *path.rglob("*")):
        place.chmod(0o700 if place.is_dir() else 0o600)
        if owner is not None:
            os.chown(place, owner, owner)


CHANGES = {
    "append": lambda d: d.append(np.arange(100)),
    "assign": lambda d: d.__setitem__(slice(3, 30), 7),
    "grow": lambda d: d.resize(90),
    "shrink": lambda d: d.resize(10),
    "attributes": lambda d: d.attrs.update(a=1),
}
TABLE_CHANGES = {
    **CHANGES,
    "append": lambda d: d.append({"x": np.arange(100), "y": np.arange(100)}),
    "assign": lambda d: d.__setitem__(slice(3, 30), {"x": [7] * 27, "y": [7] * 27}),
    "add": lambda d: d.add_column("z", ITEMS),
    "remove": lambda d: d.remove_column("y"),
}
PRIVATE_CASES = [
    (layout, kind, name)
    for layout in LAYOUTS
    for kind, changes in (("array", CHANGES), ("table", TABLE_CHANGES))
    for name in (*changes, "replace")
]


@pytest.mark.parametrize(("layout", "kind", "name"), PRIVATE_CASES)
@pytest.mark.parametrize(
    "owner", [None, pytest.param(VICTIM, marks=needs_root)], ids=["own", "root"]
)
def test_private_data_stay_private(tmp_path, layout, kind, name, owner):
    path = tmp_path / "a"
    options = {"chunks": 8, "layout": layout}
    if layout != "bcolz":
        options["shards"] = 8
    if kind == "array":
        dataset.create_array(path, ITEMS, **options).close()
    else:
        dataset.create_table(path, {"x": ITEMS, "y": ITEMS}, **options).close()
    restrict(path, owner)
    before = access_of(path)
    if name == "replace":
        dataset.create_array(path, ITEMS, mode="w", **options).close()
    else:
        with dataset.open(path, "r+") as opened:
            (CHANGES if kind == "array" else TABLE_CHANGES)[name](opened)
            assert before == access_of(path)  # the folder of changes too
    assert before == access_of(path)
    assert dataset.verify(path).ok


def test_a_file_is_private_until_it_is_complete(tmp_path):
    path = tmp_path / "a"
    dataset.create_array(path, ITEMS, chunks=8, shards=8).close()

    def blocks():
        for _ in range(20):
            yield np.arange(8)
            for place in (path / ".bloscpack").glob("*"):
                with contextlib.suppress(FileNotFoundError):  # it has got its name
                    modes.add(stat.S_IMODE(place.stat().st_mode))

    modes = set()
    with dataset.open(path, "r+") as array:
        array.append(blocks())
    assert {0o600} == modes - {0o644}  # which it gets just before its name


@pytest.mark.parametrize("what", ["file", "folder", "both"])
@pytest.mark.parametrize("action", ["convert", "recover", "file", "from a file"])
def test_a_copy_is_not_read_by_more_users(tmp_path, action, what):
    source, target = tmp_path / "a", tmp_path / "b"
    if action == "from a file":
        np.save(tmp_path / "a.npy", ITEMS)
        (tmp_path / "a.npy").chmod(0o640)
        dataset.convert(tmp_path / "a.npy", target, to="zarr")
        assert {0o750, 0o640} == {mode for *_, mode in access_of(target)}
        return
    dataset.create_array(source, ITEMS).close()
    if what != "folder":
        (source / "zarr.json").chmod(0o640)
    if what != "file":
        source.chmod(0o750)
    if action == "recover":
        dataset.recover(source, target)
    elif action == "convert":
        dataset.convert(source, target, to="bcolz")
    else:
        dataset.convert(source, target, to="npy")
        assert 0o640 == stat.S_IMODE(target.stat().st_mode)
        return
    assert {0o750, 0o640} == {mode for *_, mode in access_of(target)}


@pytest.mark.parametrize("private", ["zarr/c/0", "axes/c/0/0", "t/b/000000"])
@pytest.mark.parametrize("target", ["npz", "zarr", "recover"])
def test_a_copy_of_private_items_is_private(tmp_path, private, target):
    dataset.create_array(tmp_path / "zarr", ITEMS).close()
    dataset.create_array(tmp_path / "axes", ITEMS.reshape(20, 2)).close()
    with bigfile.File(tmp_path / "t", create=True) as tree:
        tree.create_from_array("b", ITEMS).close()
    (tmp_path / private).chmod(0o600)
    source, new = tmp_path / private.split("/")[0], tmp_path / "new"
    if target == "recover" and source.name != "t":
        dataset.recover(source, new)
    else:
        dataset.convert(source, new, to="zarr" if target == "recover" else target)
    member = new / "b" if source.name == "t" and target != "npz" else new
    assert {0o600, 0o700} >= modes_of(member)


def modes_of(path):
    return {mode for *_, mode in access_of(path)}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("action", ["recover", "zarr", "superchunk", "bigfile", "npz"])
def test_copied_members_are_private(tmp_path, layout, action):
    source, target = tmp_path / "g", tmp_path / "new"
    with dataset.create_group(source) as group:
        for name in ("a", "b", "in/a", "in/b"):
            group.create_array(name, ITEMS, layout=layout, chunks=8)
    restrict(source / "b")
    restrict(source / "in" / "b")
    if action == "recover":
        dataset.recover(source, target)
    else:
        dataset.convert(source, target, to=action)
    if action == "bigfile":
        dataset.convert(target, tmp_path / "again", to="zarr")
        target = tmp_path / "again"
    if action == "npz":
        assert {0o600} == modes_of(target)
        return
    for name in ("b", "in/b"):
        assert {0o700, 0o600} == modes_of(target / name)
        shutil.rmtree(target / name)
    assert {0o755, 0o644} == modes_of(target)


@needs_root
@pytest.mark.parametrize("bits", [0o000, 0o744])
@pytest.mark.parametrize("source", ["group", "folder", "tree"])
@pytest.mark.parametrize("to", ["zarr", "npz"])
def test_a_member_that_may_not_be_read_is_not_left_out(sticky, source, to, bits):
    if source == "tree":
        with bigfile.File(sticky / "s", create=True) as tree:
            for name in ("a", "in/b", "in/c"):
                tree.create_from_array(name, ITEMS).close()
    else:
        if source == "group":
            dataset.create_group(sticky / "s").close()
        (sticky / "s" / "in").mkdir(parents=True)
        for name in ("a", "in/b", "in/c"):
            dataset.create_array(sticky / "s" / name, ITEMS).close()
    for name in ("in/b", "in"):
        (sticky / "s" / name).chmod(bits)
        with as_user(VICTIM), pytest.raises(PermissionError) as caught:
            dataset.convert(sticky / "s", sticky / "new", to=to)
        assert str(sticky / "s" / name) in str(caught.value)
        assert not (sticky / "new").exists()
        (sticky / "s" / name).chmod(0o755)


@pytest.mark.parametrize("action", ["recover", *LAYOUTS])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_copied_columns_are_private(tmp_path, layout, action):
    folders = {name: "data" if name == "superchunk" else "" for name in LAYOUTS}
    folders["recover"] = folders[layout]
    source, target = tmp_path / "t", tmp_path / "new"
    dataset.create_table(source, {"x": ITEMS, "y": ITEMS}, layout=layout).close()
    restrict(source / folders[layout] / "y")
    if action == "recover":
        dataset.recover(source, target)
    else:
        dataset.convert(source, target, to=action)
    assert {0o700, 0o600} == modes_of(target / folders[action] / "y")
    if folders[layout] == folders[action]:
        assert {0o755, 0o644} == modes_of(target / folders[action] / "x")
    assert dataset.verify(target).ok


def test_replacing_by_several_processes_keeps_the_access(tmp_path):
    path = tmp_path / "a"
    dataset.create_array(path, ITEMS).close()
    restrict(path)
    write_in_parallel(path, "w")
    assert {(True, 0o700), (False, 0o600)} == {
        (d, mode) for d, *_, mode in access_of(path)
    }
    assert ITEMS.tolist() == dataset.open(path)[:].tolist()


def test_a_group_keeps_its_access(tmp_path):
    with dataset.create_group(tmp_path / "g") as group:
        group.create_array("a", ITEMS)
        restrict(tmp_path / "g")
        group.attrs["x"] = 1
    assert {0o700, 0o600} == {mode for *_, mode in access_of(tmp_path / "g")}


@needs_root
def test_files_that_are_replaced_and_nobody_may_write(open_folder):
    place = open_folder
    os.chown(place, VICTIM, VICTIM)
    with as_user(VICTIM):
        for name in ("new", "old"):
            with dataset.create_group(place / name) as group:
                group.create_array("a", ITEMS)
        for path in place.glob("old/**/*"):
            if path.is_file():
                path.chmod(0o444)
        dataset.convert(place / "new", place / "old", to="zarr", force=True)
        assert ITEMS.tolist() == dataset.open(place / "old")["a"][:].tolist()
    assert 0o444 == stat.S_IMODE((place / "old" / "zarr.json").stat().st_mode)


@pytest.mark.parametrize("operation", ["convert", "recover"])
def test_private_members_that_are_replaced(tmp_path, operation):
    for name in ("new", "old"):
        with dataset.create_group(tmp_path / name) as group:
            group.create_array("a", ITEMS)
            group.create_array("in/b", ITEMS)
    old = tmp_path / "old"
    (old / "in" / "b").chmod(0o700)
    for path in (old / "a").rglob("*"):
        if path.is_file():
            path.chmod(0o600)
    if operation == "convert":
        dataset.convert(tmp_path / "new", old, to="zarr", force=True)
    else:
        dataset.recover(tmp_path / "new", old, mode="w")
    modes = {
        str(path.relative_to(old)): stat.S_IMODE(path.stat().st_mode)
        for path in old.rglob("*")
    }
    assert (0o700, 0o644) == (modes["in/b"], modes["in/b/zarr.json"])
    assert (0o755, 0o600) == (modes["a"], modes["a/zarr.json"])
    assert 0o600 == modes["a/c/0"]
    assert (0o755, 0o644) == (modes["in"], modes["zarr.json"])


def test_a_folder_of_a_worker_that_died(tmp_path):
    """It died before the folder for shards had got its access."""
    path = tmp_path / "a"
    target = begin(path)
    pathlib.Path(target.staged().root, "c").mkdir(0o700)
    target.put(0, {"": ITEMS})
    target.finish(len(ITEMS))
    assert ITEMS.tolist() == dataset.open(path)[:].tolist()
    assert 0o755 == stat.S_IMODE((path / "c").stat().st_mode)


class UnknownType:
    """What is in a folder whose list has no types, as those of some NFS servers.

    The system looks up the type in the open folder when it is needed.
    """

    def __init__(self, entry, folder):
        self.name, self._folder = entry.name, folder

    def _type(self):
        return os.stat(self.name, dir_fd=self._folder, follow_symlinks=False).st_mode

    def is_symlink(self):
        return stat.S_ISLNK(self._type())

    def is_dir(self, *, follow_symlinks):
        return stat.S_ISDIR(self._type())

    def is_file(self, *, follow_symlinks):
        return stat.S_ISREG(self._type())

    def stat(self, *, follow_symlinks):
        return os.stat(self.name, dir_fd=self._folder, follow_symlinks=False)


@pytest.mark.skipif(
    os.scandir not in os.supports_fd, reason="needs lists of open folders"
)
def test_folders_whose_lists_have_no_types(tmp_path, monkeypatch):
    scandir = os.scandir

    @contextlib.contextmanager
    def scan(folder):
        with scandir(folder) as entries:
            if isinstance(folder, int):
                yield (UnknownType(entry, folder) for entry in entries)
            else:
                yield entries

    monkeypatch.setattr(os, "scandir", scan)
    path = tmp_path / "g" / "a"
    with dataset.create_group(tmp_path / "g") as group:
        group.create_array("a", ITEMS, chunks=8, shards=8)
        group.create_array("b", ITEMS)
        del group["b"]
    dataset.create_array(path, ITEMS[::-1], mode="w", chunks=8, shards=8).close()
    np.save(tmp_path / "x.npy", ITEMS)
    dataset.convert(tmp_path / "x.npy", tmp_path / "x", to="zarr", sync=True)
    (path / "stray").touch()
    assert ["a"] == list(dataset.open(tmp_path / "g"))
    assert ITEMS[::-1].tolist() == dataset.open(path)[:].tolist()
    assert any("stray" in str(each) for each in dataset.verify(path).findings)
    assert {"g", "x", "x.npy"} == set(os.listdir(tmp_path))


# What root makes in the group of another user


def copied(copy, path, **options):
    source = path.parent.parent / "source"
    with dataset.create_group(source) as group:
        group.create_array("a/c", ITEMS)
    copy(source, path, **options)


MAKERS = {
    **{
        layout: partial(dataset.create_array, data=ITEMS, layout=layout)
        for layout in LAYOUTS
    },
    **{
        layout + " table": partial(
            dataset.create_table, data={"x": ITEMS}, layout=layout
        )
        for layout in LAYOUTS
    },
    "group": dataset.create_group,
    "member": lambda path: dataset.open(path.parent, "r+").create_array("new/a", ITEMS),
    "convert": lambda path: copied(dataset.convert, path, to="zarr"),
    "recover": lambda path: copied(dataset.recover, path),
    "parallel": write_in_parallel,
}


@pytest.fixture
def foreign_group(sticky):
    """Return a group of a user; it is in a folder that only root may write."""
    sticky.chmod(0o755)
    with dataset.create_group(sticky / "g") as group:
        group.create_array("c", ITEMS)
    for place in (sticky / "g", *sticky.glob("g/**/*")):
        os.chown(place, VICTIM, TEAM)
        place.chmod(0o750 if place.is_dir() else 0o640)
    return sticky / "g"


@needs_root
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_members_that_root_makes(foreign_group, make):
    before = access_of(foreign_group)
    make(foreign_group / "new")
    assert before == access_of(foreign_group)
    with as_user(VICTIM, TEAM):
        dataset.open(foreign_group / "new", "r+").attrs["a"] = 1
        assert dataset.verify(foreign_group).ok
    assert before == access_of(foreign_group)


@needs_root
def test_a_group_that_root_makes_of_a_folder(tmp_path):
    (tmp_path / "g").mkdir()
    restrict(tmp_path / "g", VICTIM)
    dataset.open_group(tmp_path / "g", "a").create_array("a", ITEMS)
    assert {(True, VICTIM, VICTIM, 0o700), (False, VICTIM, VICTIM, 0o600)} == access_of(
        tmp_path / "g"
    )


@needs_root
@pytest.mark.parametrize(
    ("bits", "owner"),
    [(0o1777, 0), (0o1777, ATTACKER), (0o777, ATTACKER), (0o755, VICTIM)],
)
def test_what_root_makes_beside_a_planted_document(sticky, bits, owner):
    """The document, or the folder, may be that of an attacker."""
    plant(sticky, {"zarr.json": group_document()})
    os.chown(sticky, owner, owner)
    sticky.chmod(bits)
    dataset.create_array(sticky / "new", ITEMS).close()
    assert {(True, 0, 0, 0o755), (False, 0, 0, 0o644)} == access_of(sticky / "new")


# Blocks of BigFile


BLOCK_CHANGES = {
    "append": lambda block: block.append(ITEMS, Nfile=2),
    "grow": lambda block: block.grow(40, Nfile=2),
    "attributes": lambda block: block.attrs.update(a=1),
    "write": lambda block: block.write(0, ITEMS[: block.size]),
}


@pytest.mark.parametrize("change", BLOCK_CHANGES)
@pytest.mark.parametrize("files", [0, 2])
@pytest.mark.parametrize(
    "owner", [None, pytest.param(VICTIM, marks=needs_root)], ids=["own", "root"]
)
def test_private_blocks_stay_private(tmp_path, change, files, owner):
    path = tmp_path / "t"
    with bigfile.File(path, create=True) as tree:
        tree.create("g/b", "i8", 40 if files else 0, Nfile=files).close()
    for name in ("attr-v2", "000001"):
        (path / "g" / "b" / name).unlink(missing_ok=True)
    restrict(path, owner)
    before = access_of(path)
    with bigfile.File(path, create=True) as tree, tree["g/b"] as block:
        BLOCK_CHANGES[change](block)
    assert before == access_of(path)


def copy_blocks(path, action, name):
    """Copy the block ``g/b``, or all blocks; return the folder of the copy."""
    new = path.with_name("new")
    if action == "command":
        main(["--force", "bigfile", "copy", str(path), "--to", str(new)])
        return new / name
    with bigfile.File(path) as tree, bigfile.File(new, create=True) as other:
        if action == "repartition":
            bigfile.repartition(tree, name, "copy/" + name, Nfile=3).close()
            return path / "copy" / name
        bigfile.copy(tree, name, other).close()
        return new / name


@pytest.mark.parametrize(
    ("private", "replaces", "size"),
    [
        ("", False, 40),
        ("", True, 40),
        ("000001", False, 40),
        ("header", True, 40),
        ("header", False, 0),
        ("attr-v2", True, 0),
    ],
)
@pytest.mark.parametrize("action", ["copy", "repartition", "command"])
def test_copied_blocks_are_private(tmp_path, private, replaces, action, size):
    path = tmp_path / "t"
    if replaces:
        old = path / "copy" if action == "repartition" else tmp_path / "new"
        with bigfile.File(old, create=True) as tree:
            tree.create("g/b", "i8", 9, Nfile=2).close()
    with bigfile.File(path, create=True) as tree:
        for name in ("g/b", "h/c"):
            tree.create(name, "i8" if size else None, size, Nfile=2).attrs["a"] = 1
    place = path / "g" / "b" / private
    place.chmod(0o600 if private else 0o700)
    copied = copy_blocks(path, action, "g/b")
    assert {0o600} == modes_of(copied) - {0o700, 0o755}
    if not replaces:
        assert 0o700 == stat.S_IMODE(copied.stat().st_mode)
    other = copy_blocks(path, action, "h/c")
    assert {0o755, 0o644} == modes_of(other)


def test_copied_blocks_of_a_private_group_are_private(tmp_path):
    with bigfile.File(tmp_path / "t", create=True) as tree:
        tree.create_from_array("g/b", ITEMS).close()
        (tmp_path / "t" / "g").chmod(0o700)
        bigfile.copy(tree, "g/b", tree, "g/c").close()  # in the same group
        bigfile.copy(tree, "g/b", tree, "b").close()
    assert {0o755, 0o644} == modes_of(tmp_path / "t" / "g" / "c")
    assert {0o700, 0o600} == modes_of(tmp_path / "t" / "b")


def test_copied_attributes_of_a_private_group_are_private(tmp_path):
    with bigfile.File(tmp_path / "t", create=True) as tree:
        tree.create("g/b", "i8", 4).close()
        tree.create("g/.").attrs["a"] = 1
    (tmp_path / "t" / "g" / "attr-v2").chmod(0o600)
    (copied,) = copy_blocks(tmp_path / "t", "command", "g").glob("attr-v2")
    assert 0o600 == stat.S_IMODE(copied.stat().st_mode)


def test_a_private_copy_is_no_old_file_that_another_user_has_opened(tmp_path):
    path = tmp_path / "t"
    with bigfile.File(path, create=True) as tree:
        for name in ("a", "b"):
            tree.create_from_array(name, ITEMS).close()
        (path / "a" / "header").chmod(0o600)
        with open(path / "b" / "000000", "rb") as opened:
            (path / "b" / "000000").write_bytes(b"")
            bigfile.copy(tree, "a", tree, "b").close()
            assert b"" == opened.read()


@needs_root
def test_a_block_that_root_creates_belongs_to_the_owner_of_the_tree(tmp_path):
    path = tmp_path / "t"
    with bigfile.File(path, create=True) as tree:
        restrict(path, VICTIM)
        tree.create_from_array("g/b", ITEMS).close()
        tree.attrs["a"] = 1
    assert {(True, VICTIM, VICTIM, 0o700), (False, VICTIM, VICTIM, 0o600)} == access_of(
        path
    )


@needs_root
@pytest.mark.parametrize("bits", [0o1777, 0o777, 0o1755])
def test_a_block_that_root_creates_in_a_folder_of_all_users(sticky, bits):
    os.chown(sticky, ATTACKER, ATTACKER)
    sticky.chmod(bits)
    with bigfile.File(sticky, create=True) as tree:
        tree.create_from_array("g/b", ITEMS).close()
    assert {(True, 0, 0, 0o755), (False, 0, 0, 0o644)} == access_of(sticky / "g")


def test_a_file_of_a_block_that_can_not_get_its_access(tmp_path, monkeypatch):
    with bigfile.File(tmp_path / "t", create=True) as tree:
        tree.create_from_array("b", ITEMS).close()
    before = os.listdir(tmp_path / "t" / "b")

    def refuse(*arguments, **options):
        raise PermissionError(errno.EPERM, "refused")

    with bigfile.File(tmp_path / "t", create=True) as tree, tree["b"] as block:
        monkeypatch.setattr(os, "chmod", refuse)
        with pytest.raises(PermissionError):
            block.append(ITEMS)
    assert sorted(before) == sorted(os.listdir(tmp_path / "t" / "b"))
    assert [] == open_files_in(tmp_path / "t")


def create_block(path):
    with bigfile.File(path, create=True) as tree:
        tree.create("new", "i8", 4).close()


def add_column(path):
    with dataset.open(path, "r+") as table:
        table.add_column("new", ITEMS)


@needs_root
@pytest.mark.parametrize("make", [create_block, add_column])
def test_a_folder_that_is_put_in_the_place_of_a_new_one(sticky, monkeypatch, make):
    """The owner of the folder around it renames a private folder of root."""
    path = sticky / "p"
    dataset.create_table(path, {"a": ITEMS}).close()
    (path / "private").mkdir(0o700)
    (path / "private" / "file").touch()
    os.chmod(path, 0o755)
    os.chown(path, ATTACKER, ATTACKER)
    mkdir = os.mkdir

    def planting(name, mode=0o777, *, dir_fd=None):
        mkdir(name, mode, dir_fd=dir_fd)
        if os.path.basename(name) == "new":
            (path / "new").rename(path / "old")
            (path / "private").rename(path / "new")

    monkeypatch.setattr(os, "mkdir", planting)
    make(path)
    status = (path / "new").stat()
    assert (0, 0o700) == (status.st_uid, stat.S_IMODE(status.st_mode))


@needs_root
def test_a_folder_that_can_not_be_changed_is_named(sticky):
    path = sticky / "a"
    dataset.create_array(path, ITEMS).close()
    with (
        as_user(VICTIM),
        dataset.open(path, "r+") as array,
        pytest.raises(PermissionError) as caught,
    ):
        array.append([1])
    assert str(path) == caught.value.filename


# Arguments of the command, and what another user has put into the folder before: the
# names of links, and where they lead.
PLANTED_LINKS = [
    ("compress plain d/x.blp", {".x.blp.0-%d.tmp" % i: "own/old" for i in range(4)}),
    ("compress plain d/x.blp", {"x.blp": "own/new"}),
    ("compress plain d/x.blp", {"x.blp": "own/old"}),
    ("decompress --metadata-to d/m a.blp d/x", {"m": "own/new"}),
    ("convert a.npy d/x.zarr", {"x.zarr": "own"}),
    ("convert -f a.npy d/x.zarr", {"x.zarr": "own"}),
    ("convert a.npy d/x.blp", {"x.blp": "own/new"}),
    ("recover a.blp d/x.blp", {"x.blp": "own/new"}),
    ("recover -f a.zarr d/x.zarr", {"x.zarr": "own"}),
    ("snapshot a.zarr d/x.zarr", {"x.zarr": "own"}),
    ("append --create d/x.blp plain", {"x.blp": "own/new"}),
    ("append -e --create d/x.zarr a.npy", {"x.zarr": "own/new"}),
    ("repack --clevel 1 d/a.blp", {".a.blp.0-%d.tmp" % i: "own/old" for i in range(4)}),
    ("append d/a.zarr a.npy", {"a.zarr/.bloscpack": "own"}),
    ("append d/a.zarr a.npy", {"a.zarr/c": "own"}),
    ("append d/a.zarr a.npy", {"a.zarr/c/0": "own/old"}),
    ("metadata --update a=1 d/a.zarr", {"a.zarr/zarr.json": "own/old"}),
    ("bigfile copy -f --to d/x tree b", {"x/b": "own"}),
    ("bigfile copy -f --to d/x tree b", {"x/b/header": "own/old"}),
    ("bigfile set-attr d/tree b u 2", {"tree/b/attr-v2": "own/old"}),
    ("bigfile repartition -f d/tree b b 2", {"tree/b/000001": "own/old"}),
    ("bigfile create -f -N 1 -t i8 -s 9 d/tree b", {"tree/b/000000": "own/old"}),
]


@needs_root
@pytest.mark.parametrize("linked", [os.symlink, os.link], ids=["links", "hard links"])
@pytest.mark.parametrize(
    ("command", "links"), PLANTED_LINKS, ids=[c for c, _ in PLANTED_LINKS]
)
def test_planted_links_lead_to_no_file_of_root(
    open_folder, monkeypatch, command, links, linked
):
    monkeypatch.chdir(open_folder)
    own = open_folder / "own"
    own.mkdir()
    (own / "old").write_bytes(b"own")
    (open_folder / "plain").write_bytes(b"plain")
    np.save("a.npy", ITEMS)
    for folder in ("", "d/"):
        os.makedirs(folder + "tree")
        bloscpack.pack_ndarray_to_file(ITEMS, folder + "a.blp")
        dataset.create_array(folder + "a.zarr", ITEMS).close()
        bigfile.File(folder + "tree").create_from_array("b", ITEMS)
    for name, target in links.items():
        place = open_folder / "d" / name
        if linked is os.link and target != "own/old":
            pytest.skip("there are hard links to files only")
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.is_dir():
            shutil.rmtree(place)
        place.unlink(missing_ok=True)
        linked(open_folder / target, place)
        os.chown(place.parent, ATTACKER, ATTACKER)
    (open_folder / "d").chmod(0o777)
    before = (own / "old").stat()
    with contextlib.suppress(SystemExit):
        main(command.split())
    after = (own / "old").stat()
    assert ["old"] == os.listdir(own)
    assert b"own" == (own / "old").read_bytes()
    assert (before.st_mode, before.st_uid) == (after.st_mode, after.st_uid)
