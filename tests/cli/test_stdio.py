"""What ``-`` stands for."""

import os
import sys

import pytest

from bloscpack import StorageError
from bloscpack._cli.console import (
    is_input,
    name_of_input,
    name_of_output,
    standard_input,
)

posix = pytest.mark.skipif(os.name != "posix", reason="POSIX only")


def test_names_of_files():
    assert "x" == name_of_input("x")
    assert "x" == name_of_output("x")
    assert not is_input("x")
    assert is_input("-")


def test_no_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(StorageError, match="standard input is closed"):
        standard_input()
    with pytest.raises(StorageError, match="standard input is closed"):
        name_of_input("-")


@posix
@pytest.mark.parametrize("position", [0, 1, 5, 9])
def test_standard_input_from_where_it_stands(tmp_path, monkeypatch, position):
    (tmp_path / "file").write_bytes(b"some text")
    with open(tmp_path / "file", encoding="ascii") as stdin:
        stdin.buffer.seek(position)
        monkeypatch.setattr(sys, "stdin", stdin)
        name = name_of_input("-")
    assert is_input(name)
    if position:
        with open(name, "rb") as fp:
            assert b"some text"[position:] == fp.read()
    else:
        assert "/dev/stdin" == name
