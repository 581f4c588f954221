"""The archive format "blptar" of shutil, and archives of tarfile."""

from __future__ import annotations

import io
import os
import shutil
import sys
import tarfile

import pytest

import bloscpack as bp
from bloscpack.integrations import register_shutil


@pytest.fixture(autouse=True)
def registered():
    register_shutil()
    register_shutil()
    yield
    shutil.unregister_archive_format("blptar")
    shutil.unregister_unpack_format("blptar")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    (folder / "inner" / "b.bin").write_bytes(bytes(100_000))
    return folder


def files_of(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_make_and_unpack(folder, tmp_path):
    name = shutil.make_archive(str(tmp_path / "new" / "backup"), "blptar", folder)
    assert os.path.samefile(tmp_path / "new" / "backup.tar.blp", name)
    assert os.path.getsize(name) < 10_000
    shutil.unpack_archive(name, tmp_path / "copy")
    assert files_of(folder) == files_of(tmp_path / "copy")


def test_base_dir_and_filter(folder, tmp_path):
    name = shutil.make_archive("backup", "blptar", ".", "folder")
    if hasattr(tarfile, "data_filter"):
        shutil.unpack_archive(name, tmp_path / "copy", "blptar", filter="data")
    else:
        shutil.unpack_archive(name, tmp_path / "copy", "blptar")
    assert files_of(folder) == files_of(tmp_path / "copy" / "folder")


def test_tarfile_reads_it(folder):
    name = shutil.make_archive("backup", "blptar", ".", "folder")
    with bp.open(name) as file, tarfile.open(fileobj=file) as archive:
        assert "folder/inner/b.bin" in archive.getnames()
        assert b"a" == archive.extractfile("folder/a.txt").read()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no owners by number")
def test_owner(folder):
    import grp
    import pwd

    owner, group = pwd.getpwuid(0).pw_name, grp.getgrgid(0).gr_name
    name = shutil.make_archive("backup", "blptar", ".", ".", owner=owner, group=group)
    with bp.open(name) as file, tarfile.open(fileobj=file) as archive:
        for member in archive:
            assert (0, 0, owner, group) == (
                *(member.uid, member.gid),
                *(member.uname, member.gname),
            )


def test_the_archive_does_not_contain_itself(folder):
    for _ in range(2):
        name = shutil.make_archive("backup", "blptar")
        with bp.open(name) as file, tarfile.open(fileobj=file) as archive:
            files = {member.name for member in archive if member.isfile()}
        assert {"./folder/a.txt", "./folder/inner/b.bin"} == files


def test_a_single_file_and_a_link(folder):
    (folder / "link").symlink_to("missing")
    name = shutil.make_archive("backup", "blptar", ".", "folder/a.txt")
    with bp.open(name) as file, tarfile.open(fileobj=file) as archive:
        assert ["folder/a.txt"] == archive.getnames()
    name = shutil.make_archive("backup", "blptar", "folder")
    with bp.open(name) as file, tarfile.open(fileobj=file) as archive:
        assert "missing" == archive.getmember("./link").linkname


def test_dry_run(folder, tmp_path):
    shutil.make_archive("backup", "blptar", folder, dry_run=True)
    assert not (tmp_path / "backup.tar.blp").exists()


def test_a_failure_leaves_the_old_archive(folder, tmp_path):
    name = shutil.make_archive("backup", "blptar", folder)
    before = (tmp_path / "backup.tar.blp").read_bytes()
    with pytest.raises(FileNotFoundError):
        shutil.make_archive("backup", "blptar", ".", "missing")
    assert before == (tmp_path / "backup.tar.blp").read_bytes()
    assert os.path.basename(name) in os.listdir(tmp_path)


@pytest.mark.skipif(
    not hasattr(tarfile, "data_filter"), reason="this Python has no filters"
)
def test_members_outside_of_the_folder_are_refused(tmp_path):
    with (
        bp.open(tmp_path / "evil.tar.blp", "wb") as file,
        tarfile.open(fileobj=file, mode="w") as archive,
    ):
        archive.addfile(tarfile.TarInfo("../evil"), io.BytesIO())
    with pytest.raises(tarfile.FilterError):
        shutil.unpack_archive(tmp_path / "evil.tar.blp", tmp_path / "copy")
    assert not (tmp_path / "evil").exists()
