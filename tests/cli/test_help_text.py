"""The help fits the width of the terminal, whatever it is."""

import os
import re
import struct
import subprocess
import sys

import pytest
from support import environment

from bloscpack._cli import verb_table
from bloscpack._cli.display import BloscPackCustomFormatter
from bloscpack._cli.parser import create_parser

WIDTHS = (40, 60, 80, 132)


def helps():
    parser = create_parser()
    verbs = next(a.choices for a in parser._actions if isinstance(a.choices, dict))
    yield "blpk", parser.format_help()
    for verb in verb_table.VERBS:
        yield verb.name, verbs[verb.name].format_help()


@pytest.mark.parametrize("width", WIDTHS)
def test_every_help_fits(monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    for name, text in helps():
        # A word that is longer than the line can't be broken.
        long = [
            line
            for line in text.splitlines()
            if len(line) > width and len(line.split()) > 1
        ]
        assert [] == long, name
        usage = text.partition("\n\n")[0]
        assert None is re.search(r"\S {2,}\S", usage), name


@pytest.mark.parametrize("columns", ["", "0", "wide", "-5"])
def test_without_a_width(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr("sys.stdout", None)
    assert 78 == BloscPackCustomFormatter("blpk")._width


def test_prose_is_filled_and_examples_are_continued():
    formatter = BloscPackCustomFormatter("blpk", width=30)
    text = (
        "one two three four five six seven\neight nine ten\n\n"
        "examples:\n  blpk compress --codec zstd data.bin\n"
    )
    assert formatter._fill_text(text, 30, "") == (
        "one two three four five six\nseven eight nine ten\n\n"
        "examples:\n  blpk compress --codec\n      zstd data.bin\n"
    )
    assert text == formatter._fill_text(text, 40, "")  # it fits


EXAMPLES = """examples:
  blpk verify *.blp  a line for each
  blpk verify --json a.blp     for programs
  blpk verify a.blp
"""
IN_COLUMNS = """examples:
  blpk verify *.blp         a line for each
  blpk verify --json a.blp  for programs
  blpk verify a.blp
"""
BELOW = """examples:
  blpk verify *.blp
      a line for each
  blpk verify --json a.blp
      for programs
  blpk verify a.blp
"""


@pytest.mark.parametrize(("width", "shown"), [(43, IN_COLUMNS), (42, BELOW)])
def test_comments_of_examples_are_in_one_column_or_below(width, shown):
    width -= 2  # those that argparse leaves free
    assert shown == BloscPackCustomFormatter("blpk")._fill_text(EXAMPLES, width, "")


@pytest.mark.parametrize("width", WIDTHS)
def test_comments_of_all_examples(monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    for name, text in helps():
        lines = text.partition("examples:\n")[2].splitlines()
        found = [re.search(r"\S {2,}(\S)", line) for line in lines]
        assert len({match.start(1) for match in found if match}) <= 1, name


@pytest.mark.parametrize("width", [50, 100])
@pytest.mark.parametrize(
    "arguments", [["--help"], ["compress", "-h"], ["help", "repack"]]
)
def test_on_a_terminal(width, arguments):
    pty = pytest.importorskip("pty")
    import fcntl
    import termios

    leader, follower = pty.openpty()
    size = struct.pack("HHHH", 24, width, 0, 0)
    fcntl.ioctl(leader, termios.TIOCSWINSZ, size)
    variables = environment(TERM="xterm")
    variables.pop("COLUMNS", None)
    process = subprocess.Popen(
        [sys.executable, "-m", "bloscpack", *arguments], env=variables, stdout=follower
    )
    os.close(follower)
    said = b""
    try:
        while data := os.read(leader, 4096):
            said += data
    except OSError:  # the end of a terminal
        pass
    os.close(leader)
    assert 0 == process.wait(60)
    longest = max(map(len, said.decode().splitlines()))
    assert width - 20 < longest <= max(width, 80)
    assert width != 50 or longest <= 50


# The verb `help`


def test_help_of_all(run):
    expected = run("--help")
    assert 0 == expected[0]
    assert expected == run("help")


@pytest.mark.parametrize("verb", ["compress", "c", "verify", "help"])
def test_help_of_a_verb(run, verb):
    expected = run(verb, "--help")
    assert 0 == expected[0]
    assert expected == run("help", verb)


def test_help_of_no_verb(run):
    code, _, errors = run("help", "verifi")
    assert 2 == code
    assert "Did you mean 'verify'?" in errors


def test_version(run):
    code, said, _ = run("--version")
    assert (0, True) == (code, said.startswith("bloscpack: '"))
    for arguments in (["-V"], ["-v", "-V"], ["compress", "-V"]):
        assert (0, said, "") == run(*arguments)
