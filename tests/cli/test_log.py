"""The messages of the library, and those of the command on its standard streams."""

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


def test_library_warns(recwarn):
    log.notice("beware")
    assert ["beware"] == [str(warning.message) for warning in recwarn]


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
