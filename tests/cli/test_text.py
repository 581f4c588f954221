"""How values are shown, and how sizes are read."""

import io
import json
import sys

import pytest

from bloscpack._cli import args, text
from bloscpack._cli.console import OutputLost, console

SIZES = [
    # (bytes, text)
    (0, "0"),
    (12345, "12345"),
    (1000, "1_000"),
    (7, "7B"),
    (8192, "8K"),
    (8192, "8k"),
    (8192, " 8K"),
    (1572864, "1.5m"),
    (1572864, "1.5MB"),
    (1572864, "1.5MiB"),
    (1572864, "1.5mib"),
    (2048, "2 KB"),
    (7, "7b"),
    (-1024, "-1K"),
    (2**40, "1T"),
]


@pytest.mark.parametrize(("size", "text"), SIZES)
def test_parse_size(size, text):
    assert size == args.parse_size(text)


@pytest.mark.parametrize(
    "text",
    ["", "K", "x", "1Q", "1iB", "1BB", "1KBB", "1Ki", "1KM", "1e3", "0x10", "infK"],
)
def test_what_is_no_size(text):
    with pytest.raises(
        ValueError, match="T like 1.5M, 1.5MB or 1.5MiB, found '%s'" % text
    ):
        args.parse_size(text)


VALUES = [
    # (what is shown, value)
    ({"a": [1, "b"]}, {"a": [1, "b"]}),
    ({"a": [None, 1.5]}, {"a": [float("nan"), 1.5]}),
    ([{"x": "Infinity"}, "-Infinity"], [{"x": float("inf")}, -float("inf")]),
]


@pytest.mark.parametrize(("expected", "value"), VALUES)
def test_json_has_no_nan(capsys, expected, value):
    def refused(name):
        raise AssertionError(name)

    text.say_json(value)
    assert expected == json.loads(capsys.readouterr().out, parse_constant=refused)


def test_a_terminal_that_shows_little(monkeypatch):
    terminal = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", terminal)
    console.say("a\xe9")
    terminal.flush()
    assert b"a\\xe9\n" == terminal.buffer.getvalue()


def test_where_the_output_is_data(monkeypatch, capsys):
    monkeypatch.setattr(console, "is_data", True)
    console.say("a line")
    assert ("", "a line\n") == capsys.readouterr()


def test_no_standard_output(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(OutputLost, match="is closed"):
        console.say("anything")
