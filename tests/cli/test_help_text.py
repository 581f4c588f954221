"""The help fits the width of a terminal of 80 columns or more."""

import os
import re
import struct
import subprocess
import sys

import pytest
from cli.verb_support import VERBS, parser_of
from support import environment

from bloscpack.cli import create_parser

WIDTHS = (80, 132)


def helps():
    parser = create_parser()
    verbs = next(a.choices for a in parser._actions if isinstance(a.choices, dict))
    yield "blpk", parser.format_help()
    for verb in VERBS:
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


@pytest.mark.parametrize("width", WIDTHS)
def test_comments_of_all_examples(monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    for name, text in helps():
        lines = text.partition("examples:\n")[2].splitlines()
        found = [re.search(r"\S {2,}(\S)", line) for line in lines]
        assert len({match.start(1) for match in found if match}) <= 1, name


# The verbs with options for reading other formats have longer helps.
@pytest.mark.parametrize(
    ("name", "most"), [("cat", 30), ("list", 30), ("diff", 50), ("show", 50)]
)
def test_help_fits_a_screen_and_has_examples(name, most):
    parser, _ = parser_of(name)
    lines = parser.format_help().splitlines()
    # Two more options, and a blank line, come from the rest of the command.
    assert len(lines) <= most
    assert all(len(line) <= 80 for line in lines)
    examples = lines[lines.index("examples:") + 1 :]
    assert 2 <= len(examples) <= 4
    assert all(line.startswith("  blpk ") for line in examples)


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("arguments", [["--help"], ["compress", "-h"]])
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
    assert width - 20 < longest <= width


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
    assert "'verifi'" in errors


def test_version(run):
    code, said, _ = run("--version")
    assert (0, True) == (code, said.startswith("bloscpack: '"))
    for arguments in (["-V"], ["-v", "-V"], ["compress", "-V"]):
        assert (0, said, "") == run(*arguments)
