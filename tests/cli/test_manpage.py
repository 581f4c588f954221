"""The manual page: complete, current, and understood by those who show it."""

from __future__ import annotations

import shutil
import sys
from argparse import SUPPRESS

import pytest
from cli.verb_support import VERBS, load_manpage
from support import DOCS, environment, run_command

from bloscpack.cli import create_parser

PAGE = DOCS / "blpk.1"
manpage = load_manpage()


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "blpk.1"
    path.write_text(manpage.make(), "ascii")
    return path


def run(*command, **changes):
    program = shutil.which(command[0])
    if program is None:
        pytest.skip("%s is not installed" % command[0])
    return run_command(
        program, *command[1:], env=environment(**changes), text=True, check=True
    )


def shown(page):
    """Return the words that a reader sees."""
    done = run("man", "-l", str(page), MANWIDTH="200", LC_ALL="C.UTF-8", MANPAGER="cat")
    return " ".join(done.stdout.split())


def test_the_one_in_the_docs_is_current():
    expected = manpage.make()
    assert expected == PAGE.read_text("ascii"), (
        "run: python docs/manpage.py > docs/blpk.1"
    )


def test_written_by_the_program():
    done = run(sys.executable, "-W", "error", str(DOCS / "manpage.py"))
    assert ("", manpage.make()) == (done.stderr, done.stdout)


def test_the_same_on_every_machine(monkeypatch):
    expected = manpage.make()
    monkeypatch.setattr("bloscpack.defaults.available_cpus", lambda: 77)
    monkeypatch.setattr("bloscpack.constants.CNAME_AVAIL", ["blosclz", "new"])
    monkeypatch.setenv("COLUMNS", "33")
    monkeypatch.setenv("BLPK_DEFAULTS", "-c lz4")
    assert expected == manpage.make()


def test_mandoc_finds_no_mistake(page):
    assert "" == run("mandoc", "-T", "lint", "-W", "error", str(page)).stdout


def test_man_has_no_warning(page):
    done = run("man", "--warnings", "-l", str(page), LC_ALL="C.UTF-8", MANPAGER="cat")
    assert "" == done.stderr


def test_every_option_is_there(page):
    text = shown(page)
    todo = [create_parser()]
    for parser in todo:
        for action in parser._actions:
            if isinstance(action.choices, dict):
                todo += dict.fromkeys(action.choices.values())
            elif "--help" not in action.option_strings and action.help != SUPPRESS:
                assert ", ".join(action.option_strings) in text
    assert len(todo) > len(VERBS)


def test_every_verb_variable_and_code_is_there(page):
    text = shown(page)
    for verb in VERBS:
        assert "blpk %s [option ...]" % verb.name in text
    assert "BLPK_DEFAULTS" in text
    assert {0, 1, 2, 3} <= {code for code, _ in manpage.EXIT_CODES}


TEXTS = [
    # (text, what roff needs)
    ("plain", "plain"),
    ("a-b", "a\\-b"),
    ("back\\slash", "back\\eslash"),
    (".start\n.next 'x'", "\\&.start\n\\&.next \\(aqx\\(aq"),
    ("`~^", "\\(ga\\(ti\\(ha"),
]


@pytest.mark.parametrize(("text", "roff"), TEXTS)
def test_escape(text, roff):
    assert roff == manpage.escape(text)


def test_what_is_escaped_is_shown_as_it_is(tmp_path):
    text = ".x 'y' \\n \\fB -- ~/`a`^ %s \"q\""
    path = tmp_path / "x.1"
    path.write_text('.TH X 1 "" "" ""\n.SH NAME\nx\n.SH Y\n%s\n' % manpage.escape(text))
    assert text in shown(path)
