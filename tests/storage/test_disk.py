"""System calls of `disk`: new files, syncs, renames."""

import errno
import os

import pytest

from bloscpack._storage.disk import NO_FOLDER_SYNC, Disk, disk
from bloscpack._storage.folder_store import FolderStore
from bloscpack.exceptions import FormatError


class Interrupt(BaseException):
    """Ctrl-C, at a certain place."""


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


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX")
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


def test_a_name_that_another_program_has_taken(tmp_path):
    """Without hard links, files get their names in this way."""
    new, taken = tmp_path / "new", tmp_path / "taken"
    new.write_text("new")
    taken.write_text("old")
    with pytest.raises(FileExistsError, match="taken"):
        disk.rename_to_free_name(str(new), str(taken))
    assert ("new", "old") == (new.read_text(), taken.read_text())
    disk.rename_to_free_name(str(new), str(tmp_path / "free"))
    assert ["free", "taken"] == sorted(os.listdir(tmp_path))
