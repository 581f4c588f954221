"""Which files are read and written: planned from the names."""

import argparse
import errno
import os

import pytest
from cli.verb_support import Refusal, console

import bloscpack
from bloscpack import log
from bloscpack._cli import jobs, target

pytestmark = pytest.mark.usefixtures("folder")


def arguments(*names, **options):
    given = {
        "subcommand": "compress",
        "in_file": None,
        "out_file": None,
        "more": [],
        "files_from": None,
        "recursive": False,
        "output": None,
        "output_dir": None,
        "suffix": ".blp",
        "skip_existing": False,
        "update": False,
        "force": False,
    }
    given |= dict(zip(("in_file", "out_file"), names, strict=False))
    given["more"] = list(names[2:])
    return argparse.Namespace(**(given | options))


def planned(args):
    return jobs.plan(args, lambda name: jobs.compressed_name(name, args.suffix))


@pytest.mark.parametrize(
    ("message", "args"),
    [
        ("for one input, but there are 3", arguments("a", "b", "c", output="x")),
        ("would both be written to", arguments("d/a", "e/a", "b", output_dir="out")),
    ],
)
def test_plan_that_would_lose_something(message, args):
    with pytest.raises(Refusal, match=message):
        planned(args)


def test_nothing_is_made_before_it_is_refused(tmp_path):
    with pytest.raises(Refusal):
        planned(arguments("d/a", "e/a", output_dir="out"))
    assert [] == os.listdir(tmp_path)
    planned(arguments("d/a", "e/b", output_dir="out"))
    assert [] == os.listdir(tmp_path), "for inputs that are missing"
    (tmp_path / "a").write_bytes(b"")
    planned(arguments("a", "e/b", output_dir="out"))
    assert ["a", "out"] == sorted(os.listdir(tmp_path))


def test_nothing_to_do(tmp_path, capsys):
    console.begin(owns_streams=False)
    todo = planned(arguments(str(tmp_path), recursive=True))
    assert 0 == jobs.run_jobs(todo, print, target.size_of, None)
    assert ("", "blpk: nothing to do: there are no inputs\n") == capsys.readouterr()


def test_the_same_input_twice_is_no_conflict():
    assert [("a", "a.blp")] == planned(arguments("a", "a", "a"))


def test_skip_existing(tmp_path, capsys):
    for name in ("a", "a.blp", "b", "b.blp", "c", "missing.blp"):
        (tmp_path / name).write_bytes(b"")
    console.begin(owns_streams=False)
    args = arguments("a", "b", "a", "c", "missing", skip_existing=True)
    assert [("c", "c.blp"), ("missing", "missing.blp")] == planned(args)
    expected = "blpk: skipped 'a' and 1 more: its output exists\n"
    assert ("", expected) == capsys.readouterr()
    assert [] == planned(arguments("a", skip_existing=True))
    assert "blpk: skipped 'a': its output exists\n" == capsys.readouterr().err
    with pytest.raises(Refusal, match="exclude each other"):
        planned(arguments("a", skip_existing=True, force=True))


@pytest.mark.parametrize("mark", [b"\n", b"\0"])
def test_names_from_a_list(tmp_path, mark):
    names = [b"a b", "ä".encode(), b"-c"]
    listing = tmp_path / "list"
    listing.write_bytes(mark.join(names) + mark)
    found = [name for name, _ in planned(arguments(files_from=[str(listing)]))]
    assert [os.fsdecode(name) for name in names] == found


def test_standard_input_in_a_list(tmp_path):
    listing = tmp_path / "list"
    listing.write_bytes(b"a\n-\nb\n")
    with pytest.raises(Refusal, match="list' lists '-', which can't be") as caught:
        planned(arguments(files_from=[str(listing)]))
    assert 2 == caught.value.exit_code
    listing.write_bytes(b"./-\n")
    assert [("./-", "./-.blp")] == planned(arguments(files_from=[str(listing)]))


@pytest.fixture
def tree(tmp_path):
    """Return the current folder, with files that are inputs and others."""
    console.begin(owns_streams=False)
    (tmp_path / "below").mkdir()
    for name in ("a", "b.blp", "below/c", ".b.blp.17-0.tmp", ".b.blp.18-0.tmp"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "link").symlink_to("a")
    return tmp_path


SKIPPED = [
    # (subcommand, what is said)
    (
        "compress",
        [
            "skipped './.b.blp.17-0.tmp' and 1 more: an unfinished file",
            "skipped './b.blp': the name already ends with '.blp'",
            "skipped './link': no regular file",
        ],
    ),
    (
        "decompress",
        [
            "skipped './.b.blp.17-0.tmp' and 3 more: the name does not end with '.blp'",
            "skipped './link': no regular file",
        ],
    ),
]


@pytest.mark.parametrize(("subcommand", "lines"), SKIPPED)
def test_what_is_skipped_is_reported(tree, capsys, monkeypatch, subcommand, lines):
    args = arguments(".", recursive=True, subcommand=subcommand)
    jobs.plan(args, lambda name: name + ".out")
    said = capsys.readouterr()
    assert ("", ["blpk: " + line for line in lines]) == (
        said.out,
        sorted(said.err.splitlines()),
    )
    monkeypatch.setattr(log, "LEVEL", log.VERBOSE)
    jobs.plan(args, lambda name: name + ".out")
    assert "blpk: skipped './.b.blp.18-0.tmp': " in capsys.readouterr().err
    console.quiet = True
    jobs.plan(args, lambda name: name + ".out")
    assert ("", "") == capsys.readouterr()


def test_links_to_folders_are_reported(tree, capsys):
    (tree / "same").symlink_to("below")
    planned(arguments(".", recursive=True))
    said = capsys.readouterr().err
    assert "blpk: skipped './same': a symbolic link to a folder\n" in said


@pytest.fixture
def locked(tmp_path, monkeypatch):
    """Make files, and a folder that the system refuses to list."""
    bloscpack.pack_bytes_to_file(b"plain", "a.blp")
    bloscpack.pack_bytes_to_file(b"plain", "z.blp")
    (tmp_path / "locked").mkdir()
    scandir = os.scandir

    def refuse(path):
        if isinstance(path, str) and os.path.basename(path) == "locked":
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    return tmp_path


@pytest.mark.parametrize("names", [["."], ["locked", "."], [".", "locked", "locked"]])
@pytest.mark.parametrize("verb", ["compress", "decompress"])
@pytest.mark.parametrize("options", [[], ["--output-dir", "out"], ["--rm"]])
def test_a_folder_that_cannot_be_read_ends_with_exit_code_1(
    locked, capfd, verb, names, options
):
    if verb == "compress":
        for name in ("a.blp", "z.blp"):
            (locked / name).rename(locked / name[0])
    with pytest.raises(SystemExit) as raised:
        bloscpack.cli.main([verb, "-r", *options, *names])
    assert 1 == raised.value.code
    place = locked / "out" if "--output-dir" in options else locked
    suffix = ".blp" if verb == "compress" else ""
    assert (place / ("a" + suffix)).exists()
    assert (place / ("z" + suffix)).exists()
    error = capfd.readouterr().err
    assert len(set(names)) == error.count("Permission denied")


def test_only_a_folder_that_cannot_be_read(locked, capfd):
    with pytest.raises(SystemExit) as raised:
        bloscpack.cli.main(["decompress", "-r", "locked"])
    assert 1 == raised.value.code
    assert capfd.readouterr().err == "blpk: error: 'locked': Permission denied\n"


def test_the_output_folder_is_a_file(locked, capfd):
    with pytest.raises(SystemExit) as raised:
        bloscpack.cli.main(["decompress", "a.blp", "--output-dir", "z.blp"])
    assert 1 == raised.value.code
    message = "blpk: error: 'z.blp' of --output-dir is not a folder\n"
    assert message == capfd.readouterr().err
