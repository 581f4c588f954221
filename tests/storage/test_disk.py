"""System calls of `disk`: new files, syncs, renames."""

import os

import pytest

from bloscpack._storage.disk import Disk
from bloscpack._storage.folder_store import FolderStore
from bloscpack.exceptions import FormatError


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
