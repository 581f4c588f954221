"""What the library tells while it works."""

import errno
import io
import sys

import pytest

from bloscpack import log


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


def test_report_goes_on(level, capsys):
    log.report("no")
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


def test_names_that_would_move_the_cursor(level, capsys):
    log.report("'\x1b[2J\r.blp' does not exist!")
    assert "blpk: error: '\\x1b[2J\\r.blp' does not exist!\n" == capsys.readouterr().err


def test_stream_without_encoding(level, monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    log.normal("name \udcff")
    assert "blpk: name \\udcff\n" == stream.getvalue()


def test_unknown_levels(level):
    with pytest.raises(ValueError, match=r"Log level must be one of: .*, not X"):
        level("X")
    with pytest.raises(TypeError, match="Desired level 'X' is not one of"):
        log.verbose("x", "X")


class Failing(io.StringIO):
    """A stream without a file descriptor on a full disk."""

    def write(self, text):
        raise OSError(errno.ENOSPC, "full")


def test_output_that_is_needed(level, monkeypatch):
    monkeypatch.setattr(sys, "stdout", Failing())
    with pytest.raises(log.OutputLost, match="standard output: full"):
        log.normal("n")
    with pytest.raises(log.OutputLost):
        log.report("no")


def test_output_that_is_optional(level, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", Failing())
    log.make_output_optional(True)
    log.normal("n")
    log.report("no")
    assert "blpk: error: no\n" == capsys.readouterr().err
    for check in (log.flush, log.need_output, log.keep_out_of_output):
        with pytest.raises(log.OutputLost, match="standard output: full"):
            check()


def test_error_that_nobody_hears(level, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Failing())
    log.report("no")
    monkeypatch.setattr(sys, "stderr", None)
    log.report("no")
