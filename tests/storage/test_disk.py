"""System calls of `disk`: new files, syncs, renames."""

import errno
import os
import re
import stat
from pathlib import Path

import pytest

from bloscpack._storage.disk import NO_FOLDER_SYNC, Disk, disk
from bloscpack._storage.folder_store import FolderStore
from bloscpack.exceptions import FormatError

needs_posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX files")


class Interrupt(BaseException):
    """Ctrl-C, at a certain place."""


def test_create(tmp_path):
    with disk.create(str(tmp_path / "new"), 0o600) as fp:
        fp.write(b"content")
        fp.seek(0)
        fp.write(b"C")
    assert b"Content" == (tmp_path / "new").read_bytes()


def test_create_refuses_a_name_that_is_taken(tmp_path):
    (tmp_path / "old").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    for name in ("old", "link"):
        with pytest.raises(FileExistsError) as raised:
            disk.create(str(tmp_path / name), 0o600)
        assert str(tmp_path / name) == raised.value.filename
    assert b"old" == (tmp_path / "old").read_bytes()
    assert not (tmp_path / "nothing").exists()


@needs_posix
@pytest.mark.parametrize("mode", [0o600, 0o666])
def test_create_gives_permissions(tmp_path, mode):
    old_mask = os.umask(0o027)
    try:
        disk.create(str(tmp_path / "new"), mode).close()
    finally:
        os.umask(old_mask)
    status = (tmp_path / "new").stat()
    assert mode & ~0o027 == stat.S_IMODE(status.st_mode)


def test_beside(tmp_path):
    names = set()
    for _ in range(3):
        name, fp = disk.create_beside(str(tmp_path / "target"), 0o600)
        with fp:
            fp.write(b"content")
        assert b"content" == Path(name).read_bytes()
        names.add(name)
    assert 3 == len(names)
    usual = disk.names_beside(str(tmp_path / "target"))
    assert set(usual[:3]) == names
    for name in names:
        assert str(tmp_path) == os.path.dirname(name)
        assert re.fullmatch(r"\.target\.\d+-\d\.tmp", os.path.basename(name))


def test_names_beside_belong_to_one_target(tmp_path):
    """Also if they begin with the same characters, all that fit into the name."""
    targets = ["a", "b", *("x" * 200 + end for end in "ab"), "\udcff", "\udcfe"]
    names = [name for target in targets for name in disk.names_beside(target)]
    assert len(set(names)) == len(names)
    assert disk.names_beside("a") == disk.names_beside("a")


def test_many_beside(tmp_path):
    target = str(tmp_path / "target")
    for name in disk.names_beside(target):
        Path(name).write_bytes(b"")
    names = set()
    for _ in range(2):
        name, fp = disk.create_beside(target, 0o600)
        fp.close()
        names.add(name)
    assert 2 == len(names - set(disk.names_beside(target)))


def test_beside_in_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name, fp = disk.create_beside("target", 0o600)
    fp.close()
    assert [name] == os.listdir(tmp_path)


@pytest.mark.parametrize("target", ["x" * 255, "é" * 127, "€" * 85])
def test_beside_is_not_too_long(tmp_path, target):
    name, fp = disk.create_beside(str(tmp_path / target), 0o600)
    fp.close()
    assert os.path.exists(name)


@pytest.mark.parametrize("late", [False, True])
def test_interrupt_leaves_nothing_beside(tmp_path, late):
    class Interrupted(Disk):
        def create(self, name, mode):
            if late:
                super().create(name, mode).close()
            raise Interrupt

    with pytest.raises(Interrupt):
        Interrupted().create_beside(str(tmp_path / "target"), 0o600)
    assert [] == os.listdir(tmp_path)


def test_interrupt_leaves_what_others_have_made(tmp_path):
    class Interrupted(Disk):
        def create(self, name, mode):
            raise Interrupt

    name, fp = disk.create_beside(str(tmp_path / "target"), 0o600)
    fp.close()
    with pytest.raises(Interrupt):
        Interrupted().create_beside(str(tmp_path / "target"), 0o600)
    assert [os.path.basename(name)] == os.listdir(tmp_path)


def test_folder_that_takes_nothing(tmp_path):
    with pytest.raises(FileNotFoundError):
        disk.create_beside(str(tmp_path / "missing" / "target"), 0o600)


def test_sync_writes_what_is_in_the_buffer(tmp_path):
    with disk.create(str(tmp_path / "new"), 0o600) as fp:
        fp.write(b"content")
        disk.sync(fp)
        assert b"content" == (tmp_path / "new").read_bytes()


@needs_posix
def test_sync_of_a_folder(tmp_path, monkeypatch):
    synced = []

    def fsync(descriptor):
        synced.append(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.chdir(tmp_path)
    disk.sync_folder(str(tmp_path / "any name"))
    disk.sync_folder("any name")
    assert [tmp_path.stat().st_ino] * 2 == synced


@needs_posix
@pytest.mark.parametrize("code", [*NO_FOLDER_SYNC, errno.EIO])
def test_sync_of_a_folder_that_fails(tmp_path, monkeypatch, code):
    def fsync(descriptor):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fsync)
    if code in NO_FOLDER_SYNC:
        disk.sync_folder(str(tmp_path / "any name"))
        return
    with pytest.raises(OSError, match="error") as raised:
        disk.sync_folder(str(tmp_path / "any name"))
    assert code == raised.value.errno


def test_rename_replaces(tmp_path):
    (tmp_path / "old").write_bytes(b"old")
    (tmp_path / "new").write_bytes(b"new")
    disk.rename(str(tmp_path / "new"), str(tmp_path / "old"))
    assert ["old"] == os.listdir(tmp_path)
    assert b"new" == (tmp_path / "old").read_bytes()


def test_remove(tmp_path):
    (tmp_path / "old").write_bytes(b"old")
    disk.remove(str(tmp_path / "old"))
    assert [] == os.listdir(tmp_path)


def test_a_file_in_a_folder_that_has_lost_its_name(tmp_path):
    """The folder is held open, so its files can still be read there."""
    (tmp_path / "s" / "c").mkdir(parents=True)
    (tmp_path / "s" / "c" / "0").touch()
    folder = FolderStore(str(tmp_path))
    folder.open("s/c/0").close()
    (tmp_path / "s" / "c").rename(tmp_path / "s" / "old")
    (tmp_path / "s" / "c").mkdir()
    assert folder.status_of("s/c/0") is None


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/x", "a//x", ""])
def test_a_name_that_leads_out_of_a_folder_is_refused(tmp_path, name):
    """Also by ``python -O``, which removes assertions."""
    folder = FolderStore(str(tmp_path))
    with pytest.raises(FormatError, match="inside of the dataset"):
        folder.create(name, 0o600)


def test_a_file_that_appears_while_a_folder_is_removed(tmp_path, monkeypatch):
    """Another thread was still writing it; it can't come back."""
    (tmp_path / "a/b/c").mkdir(parents=True)
    (tmp_path / "a/b/x").touch()
    remove, late = Disk.remove_folder, [tmp_path / "a/b/late"]

    def remove_folder(self, name):
        if os.fspath(name).endswith("/b") and late:
            late.pop().touch()
        remove(self, name)

    monkeypatch.setattr(Disk, "remove_folder", remove_folder)
    FolderStore(str(tmp_path)).remove_tree("a")
    assert [] == [*tmp_path.iterdir()]
