"""The messages of the library, and those of the command on its standard streams."""

import errno
import io
import sys

import pytest

from bloscpack import log
from bloscpack._cli.console import OutputLost, console


@pytest.fixture
def level(monkeypatch):
    """Set the level for one test."""
    monkeypatch.setattr(log, "LEVEL", log.NORMAL)
    monkeypatch.setattr(log, "PREFIX", "blpk")
    return log.set_level


@pytest.mark.parametrize(
    ("expected", "name"),
    [
        ("blpk: n\n", "NORMAL"),
        ("blpk: n\nblpk: v\n", "VERBOSE"),
        ("blpk: n\nblpk: v\nblpk: d\n", "DEBUG"),
    ],
)
def test_levels(level, capsys, expected, name):
    level(name)
    log.normal("n")
    log.verbose("v")
    log.debug("d")
    assert (expected, "") == tuple(capsys.readouterr())
    assert expected.count("\n") == sum(map(log.enabled, log.VERBOSITY_LEVELS))


def test_library_is_silent_and_has_the_old_prefix():
    assert ("NORMAL", "bloscpack.py") == (log.LEVEL, log.PREFIX)
    assert ("NORMAL", "VERBOSE", "DEBUG") == log.VERBOSITY_LEVELS


def test_lines(level, capsys):
    log.set_prefix("x")
    log.normal("one\n\ntwo\n")
    assert "x: one\nx: two\n" == capsys.readouterr().out


def test_error(level, capsys):
    with pytest.raises(SystemExit) as raised:
        log.error("one\ntwo", 7)
    assert 7 == raised.value.code
    assert ("", "blpk: error: one\nblpk: error: two\n") == tuple(capsys.readouterr())


def test_error_exits_with_one_by_default(level):
    with pytest.raises(SystemExit) as raised:
        log.error("no")
    assert 1 == raised.value.code


@pytest.fixture
def command(level):
    """Begin the command."""
    console.begin(owns_streams=False)


def test_library_warns(recwarn):
    log.notice("beware")
    assert ["beware"] == [str(warning.message) for warning in recwarn]


def test_command_takes_the_messages(capsys):
    console.begin(owns_streams=False)
    log.normal("n")
    log.notice("two\nlines")
    console.reserve_for_data()
    log.normal("m")
    assert ("blpk: n\n", "blpk: two\\nlines\nblpk: m\n") == tuple(capsys.readouterr())
    console.quiet = True
    log.normal("n")
    log.notice("beware")
    console.finish()
    assert ("", "") == tuple(capsys.readouterr())
    log.normal("n")
    assert "bloscpack.py: n\n" == capsys.readouterr().out


def test_report_goes_on(command, capsys):
    console.report("no")
    assert "blpk: error: no\n" == capsys.readouterr().err


@pytest.mark.parametrize(
    ("expected", "encoding"),
    [(b"blpk: \\xe9\n", "ascii"), ("blpk: é\n".encode(), None)],
)
def test_what_the_terminal_can_not_show(level, monkeypatch, expected, encoding):
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding or "utf-8", newline="\n")
    monkeypatch.setattr(sys, "stdout", stream)
    log.normal("é")
    stream.flush()
    assert expected == raw.getvalue()


def test_names_that_would_move_the_cursor(command, capsys):
    console.report("'\x1b[2J\r.blp' does not exist!")
    assert "blpk: error: '\\x1b[2J\\r.blp' does not exist!\n" == capsys.readouterr().err


def test_stream_without_encoding(level, monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    log.normal("name \udcff")
    assert "blpk: name \\xff\n" == stream.getvalue()


def test_unknown_levels(level):
    with pytest.raises(ValueError, match=r"Log level must be one of: .*, not X"):
        level("X")
    with pytest.raises(TypeError, match="Desired level 'X' is not one of"):
        log.verbose("x", "X")


class Failing(io.StringIO):
    """A stream without a file descriptor on a full disk."""

    def write(self, text):
        raise OSError(errno.ENOSPC, "full")


def test_output_that_is_needed(command, monkeypatch):
    monkeypatch.setattr(sys, "stdout", Failing())
    with pytest.raises(OutputLost, match="standard output: full"):
        log.normal("n")
    with pytest.raises(OutputLost):
        console.report("no")


def test_output_that_is_optional(command, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", Failing())
    console.is_optional = True
    log.normal("n")
    console.report("no")
    assert "blpk: error: no\n" == capsys.readouterr().err
    for check in (console.flush, console.need_output, console.reserve_for_data):
        with pytest.raises(OutputLost, match="standard output: full"):
            check()


def test_error_that_nobody_hears(command, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Failing())
    console.report("no")
    monkeypatch.setattr(sys, "stderr", None)
    console.report("no")
