"""``blpk compress`` of a file that is compressed already, and of outputs that exist."""

import io
import os
import sys

import pytest

import bloscpack
from bloscpack import cli

WARNING = "blpk: 'x.blp' is a Bloscpack file already, and is compressed again\n"


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bloscpack.pack_bytes_to_file(b"abc", "x.blp")
    (tmp_path / "plain").write_bytes(b"abc")
    return tmp_path


@pytest.fixture
def blpk(monkeypatch):
    """Return a function that runs the command with some streams as terminals."""

    def call(arguments, answer="", pipes=()):
        for name, text in (("stdin", answer), ("stdout", ""), ("stderr", "")):
            kind = io.StringIO if name in pipes else Terminal
            monkeypatch.setattr(sys, name, kind(text))
        try:
            cli.main(arguments)
        except SystemExit as error:
            return error.code, sys.stderr.getvalue()
        return 0, sys.stderr.getvalue()

    return call


@pytest.mark.parametrize("pipes", [(), ("stdin",), ("stdout",), ("stderr",)])
def test_an_input_that_is_compressed_already(blpk, folder, pipes):
    assert (0, WARNING) == blpk(["compress", "x.blp"], "n\n", pipes)
    assert (folder / "x.blp.blp").exists()


@pytest.mark.parametrize("option", ["-f", "-q"])
def test_no_warning(blpk, folder, option):
    assert (0, "") == blpk([option, "compress", "x.blp"], "n\n")
    assert (folder / "x.blp.blp").exists()


def test_a_plain_file_of_such_a_name(blpk, folder):
    (folder / "plain").rename(folder / "y.blp")
    assert (0, "") == blpk(["compress", "y.blp"], "n\n")


def test_update(blpk, folder):
    pipes = ["stdin"]
    update = ["compress", "--update", "plain"]
    assert (0, "") == blpk(update, pipes=pipes)
    skipped = "blpk: skipped 'plain': its output is not older\n"
    assert (0, skipped) == blpk(update, pipes=pipes)
    time = (folder / "plain").stat().st_mtime_ns + 10**9
    (folder / "plain").write_bytes(b"newer")
    os.utime(folder / "plain", ns=(time, time))
    assert (0, "") == blpk(update, pipes=pipes)
    assert b"newer" == bloscpack.unpack_bytes_from_file(folder / "plain.blp")[0]
    assert (0, skipped) == blpk(update, pipes=pipes)
    code, errors = blpk(["-f", *update], pipes=pipes)
    assert (2, True) == (code, "exclude each other" in errors)


def test_skip_existing(blpk, folder):
    pipes = ["stdin"]
    assert (0, "") == blpk(["compress", "--skip-existing", "plain"], pipes=pipes)
    before = (folder / "plain.blp").stat()
    skipped = "blpk: skipped 'plain': its output exists\n"
    assert (0, skipped) == blpk(["c", "--skip-existing", "plain"], pipes=pipes)
    assert before == (folder / "plain.blp").stat()
    arguments = ["decompress", "--skip-existing", "plain.blp", "x.blp"]
    skipped = "blpk: skipped 'plain.blp': its output exists\n"
    assert (0, skipped) == blpk(arguments)
    assert b"abc" == (folder / "x").read_bytes()


def test_the_output_replaces_no_file_of_metadata(blpk, folder):
    (folder / "m.json").write_text("{}")
    command = ["-f", "compress", "-m", "m.json", "--output", "m.json", "plain"]
    code, error = blpk(command)
    assert (2, "{}") == (code, (folder / "m.json").read_text())
    assert "input 'm.json' and output 'm.json' are the same file" in error
