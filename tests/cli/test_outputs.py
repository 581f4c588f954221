"""What compress and decompress remove, and where they may write."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys

import pytest
from support import as_user, needs_root, run_blpk, run_command

from bloscpack import (
    StorageError,
    cli,
    dataset,
    log,
    pack_bytes_to_file,
    unpack_bytes_from_bytes,
    unpack_bytes_from_file,
)
from bloscpack._cli import jobs
from bloscpack._cli.jobs import Clock, remove_input, state_of
from bloscpack._cli.target import check_free
from bloscpack._commit.locking import open_locked
from bloscpack._commit.replacing import replacing
from bloscpack._storage.disk import disk


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "input"
    path.write_bytes(b"some bytes")
    return str(path)


# A name that another program takes


@pytest.mark.parametrize(("options", "code"), [((), 1), (("-f",), 0)])
def test_compress_keeps_a_file_that_appears_meanwhile(path, monkeypatch, options, code):
    def look(name):
        pack_bytes_to_file(b"of another program", path + ".blp")
        return state_of(name)

    monkeypatch.setattr(jobs, "state_of", look)
    with pytest.raises(SystemExit) if code else contextlib.nullcontext():
        cli.main([*options, "compress", path])
    expected = b"of another program" if code else b"some bytes"
    assert expected == unpack_bytes_from_file(path + ".blp")[0]


# Removing


def test_an_input_is_removed_if_that_is_wanted(path):
    before = state_of(path)
    remove_input(path, before)
    assert not os.path.exists(path)


def test_nobody_can_change_an_input_while_it_is_removed(path, monkeypatch):
    def remove(name, *, remove=disk.remove):
        with pytest.raises(StorageError, match="another writer"):
            open_locked(name).__enter__()
        remove(name)

    monkeypatch.setattr(disk, "remove", remove)
    remove_input(path, state_of(path))
    assert not os.path.exists(path)


@needs_root
def test_an_input_that_can_not_be_removed(open_folder):
    path = open_folder / "input"
    path.write_bytes(b"some bytes")
    open_folder.chmod(0o755)
    path.chmod(0o644)
    message = "its output is complete, but it can't be removed: Permission denied"
    with as_user(65534), pytest.raises(StorageError, match=message):
        remove_input(path, state_of(path))
    assert path.exists()


def test_an_input_that_another_writer_has_is_not_removed(path):
    before = state_of(path)
    with open_locked(path), pytest.raises(StorageError, match="another writer"):
        remove_input(path, before)
    assert before == state_of(path)


def append(path):
    with open(path, "ab") as fp:
        fp.write(b"more")


def replace(path):
    with replacing(path) as fp:
        fp.write(b"some bytes")


@pytest.mark.parametrize("change", [append, replace])
def test_an_input_that_was_changed_is_not_removed(path, change):
    before = state_of(path)
    change(path)
    names = sorted(os.listdir(os.path.dirname(path)))
    with pytest.raises(StorageError, match="was changed while it was read"):
        remove_input(path, before)
    assert names == sorted(os.listdir(os.path.dirname(path)))


@pytest.mark.parametrize("count", [1, 3, 50])
def test_outputs_are_synced_before_their_inputs_are_removed(
    run, tmp_path, monkeypatch, count
):
    names = [str(tmp_path / ("%d" % i)) for i in range(count)]
    for name in names:
        with open(name, "wb") as fp:
            fp.write(b"abc")
    steps = []

    def sync(fp, *, sync=disk.sync):
        steps.append(fp.name)
        sync(fp)

    def remove(name, *, remove=disk.remove):
        assert name.endswith(".tmp") or name + ".blp" in steps
        remove(name)

    monkeypatch.setattr(disk, "sync", sync)
    monkeypatch.setattr(disk, "remove", remove)
    assert 0 == run("compress", "-r", "--rm", *names)[0]
    assert sorted(os.path.basename(name) + ".blp" for name in names) == sorted(
        os.listdir(tmp_path)
    )


def test_many_outputs_are_synced_together(run, tmp_path, monkeypatch):
    for i in range(100):
        (tmp_path / str(i)).write_bytes(b"abc")
    synced = []
    monkeypatch.setattr(os, "sync", lambda: synced.append("all"), raising=False)
    monkeypatch.setattr(disk, "sync_folder", synced.append)
    assert 0 == run("compress", "-r", "--rm", str(tmp_path))[0]
    assert ["all"] == synced[:1]
    assert 2 == len(synced)


def test_an_input_changed_before_the_sync_stays(run, tmp_path, monkeypatch):
    for i in range(30):
        (tmp_path / str(i)).write_bytes(b"abc")
    monkeypatch.setattr(os, "sync", lambda: append(str(tmp_path / "7")))
    code, _, errors = run("compress", "-r", "--rm", str(tmp_path))
    assert 1 == code
    assert "was changed while it was read" in errors
    assert ["7"] == [name for name in os.listdir(tmp_path) if ".blp" not in name]


def test_metadata_are_on_the_disk_before_their_input_is_removed(
    run, tmp_path, monkeypatch
):
    happened = []

    def sync(fp, *, sync=disk.sync):
        happened.append("sync " + os.path.basename(fp.name).strip(".").split(".")[0])
        sync(fp)

    def remove(name, *, remove=disk.remove):
        if not name.endswith(".tmp"):
            happened.append("remove " + os.path.basename(name))
        remove(name)

    pack_bytes_to_file(b"some bytes", tmp_path / "x.blp", metadata={"a": 1})
    monkeypatch.setattr(disk, "sync", sync)
    monkeypatch.setattr(disk, "remove", remove)
    kept = tmp_path / "kept"
    code, *_ = run("d", "--rm", "--metadata-to", kept, tmp_path / "x.blp")
    assert 0 == code
    assert ["sync kept", "sync x", "remove x.blp"] == happened
    assert {"a": 1} == json.loads(kept.read_text())


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_metadata_that_nobody_got_keep_their_input(tmp_path):
    pack_bytes_to_file(b"some bytes", tmp_path / "x.blp", metadata={"a": 1})
    command = [sys.executable, "-m", "bloscpack", "d", "--rm", "--metadata-to", "-"]
    with open("/dev/full", "wb") as full:
        done = run_command(
            *command, "x.blp", cwd=tmp_path, stdout=full, stderr=subprocess.PIPE
        )
    assert 1 == done.returncode
    assert b"blpk: error: standard output: No space left on device\n" == done.stderr
    assert ["x", "x.blp"] == sorted(os.listdir(tmp_path))


# Writing over


def test_a_name_with_words_of_advice(run, tmp_path):
    """The advice of the library gets other words, and no name does."""
    name = str(tmp_path / "mode='w' or force=True replaces it")
    dataset.create_array(name, [1]).close()
    code, _, errors = run("snapshot", name, name + "; drop=True leaves")
    assert (0, "") == (code, errors)
    code, _, errors = run("snapshot", name, name + "; drop=True leaves")
    assert 1 == code
    assert "'%s; drop=True leaves'" % name in errors
    assert "--force replaces it" in errors


def test_what_may_be_written_to(path, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for free in (str(tmp_path / "none"), str(tmp_path / "pipe"), os.devnull):
        check_free(free, argparse.Namespace(force=False))
    with pytest.raises(StorageError, match="exists!"):
        check_free(path, argparse.Namespace(force=False))
    check_free(path, argparse.Namespace(force=True))
    with pytest.raises(IsADirectoryError):
        check_free(str(tmp_path), argparse.Namespace(force=True))


# Two names, which may come from a pattern of the shell


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Make two plain files and two Bloscpack files, and enter their folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(name.encode() * 500)
        pack_bytes_to_file(name.encode() * 500, name + ".blp")
    (tmp_path / "packed").write_bytes((tmp_path / "b.blp").read_bytes())
    return tmp_path


def content_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("-f compress --rm a b", "--rm is for names that are all inputs"),
        ("compress --rm a new.blp", "--rm is for names that are all inputs"),
        ("compress --suffix .x a new.x", "--suffix is for names that are all inputs"),
        ("-f compress a b", "'b' exists and is no Bloscpack file"),
        ("decompress a.blp b.blp", "'b.blp' has the name of a compressed file"),
        ("-f decompress a.blp b.blp", "'b.blp' has the name of a compressed file"),
        ("decompress a.blp new.blp", "'new.blp' has the name of a compressed file"),
        ("-f decompress a.blp packed", "'packed' is a Bloscpack file"),
        ("-f decompress -e a.blp packed", "'packed' is a Bloscpack file"),
        ("decompress --rm a.blp new", "--rm is for names that are all inputs"),
    ],
)
def test_two_names_that_may_be_two_inputs(folder, capfd, arguments, why):
    before = content_of(folder)
    with pytest.raises(SystemExit) as raised:
        cli.main(arguments.split())
    error = capfd.readouterr().err
    assert 2 == raised.value.code
    assert why in error
    assert before == content_of(folder)
    assert error.endswith("; --output names an output, --output-dir its folder\n")


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        ("compress a new", "new"),
        ("compress a new.blp", "new.blp"),
        ("-f compress a b.blp", "b.blp"),
        ("-f compress a packed", "packed"),
        ("-f compress a empty", "empty"),
        ("-f compress --output b a", "b"),
        ("-f decompress a.blp b", "b"),
        ("decompress a.blp new", "new"),
        ("-f decompress --output packed a.blp", "packed"),
        ("decompress --output new.blp a.blp", "new.blp"),
        ("-f compress --rm --output-dir . a b", "a.blp"),
    ],
)
def test_two_names_that_are_input_and_output(folder, arguments, output):
    (folder / "empty").touch()
    cli.main(arguments.split())
    data = (folder / output).read_bytes()
    if "decompress" not in arguments:
        data = unpack_bytes_from_bytes(data)[0]
    assert b"a" * 500 == data


# The time


@pytest.mark.parametrize(
    ("nbytes", "shown"), [(0, r"took: \d+\.\d\d s"), (5000, r"took: .* s, [\d.]+\w/s")]
)
def test_an_unknown_speed_is_left_out(monkeypatch, nbytes, shown):
    said = []
    monkeypatch.setattr(log, "LEVEL", log.VERBOSE)
    monkeypatch.setattr(log, "notice", said.append)
    Clock().log(nbytes)
    assert re.fullmatch(shown, "".join(said))


def test_the_speed_of_a_stream_is_left_out():
    done = run_blpk("-v", "compress", "-", "-", input=b"", check=True)
    (took,) = re.findall(rb"took: .*", done.stderr)
    assert re.fullmatch(rb"took: [\d.]+ s", took)


def test_two_plain_files_without_force(tmp_path, monkeypatch, capsys):
    from bloscpack.cli import main

    monkeypatch.chdir(tmp_path)
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text(name)
    with pytest.raises(SystemExit) as caught:
        main(["compress", "a.csv", "b.csv"])
    assert 1 == caught.value.code
    assert capsys.readouterr().err.splitlines() == [
        "blpk: error: output file 'b.csv' exists!"
    ]
    assert "b.csv" == (tmp_path / "b.csv").read_text()
