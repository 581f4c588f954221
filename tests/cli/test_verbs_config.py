"""blpk config: what it shows of the settings in force."""

from __future__ import annotations

import argparse
import json
import os
import sys

import pytest

from bloscpack._cli import settings
from bloscpack._cli.exit_codes import Refusal
from bloscpack._cli.options import set_help
from bloscpack._cli.verbs import config as verb


@pytest.fixture(autouse=True)
def nothing_set(tmp_path, monkeypatch):
    for name in list(os.environ):
        if name.startswith("BLPK_"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("BLPK_NTHREADS", "3")


def blpk(*arguments):
    """Run the verb with its arguments."""
    parser = argparse.ArgumentParser(prog="blpk config")
    verb.add_arguments(parser)
    return verb.run(parser.parse_args(arguments))


def test_each_with_its_source(capsys, monkeypatch):
    monkeypatch.setenv("BLPK_CODEC", "lz4")
    assert blpk() is None
    expected = (
        "nthreads    3        BLPK_NTHREADS\n"
        "codec       lz4      BLPK_CODEC\n"
        "clevel      7        default\n"
        "chunk_size  1M       default\n"
        "checksum    adler32  default\n"
        "typesize    8        default\n"
        "filter      shuffle  default\n"
        "auto        false    default\n"
    )
    assert expected == capsys.readouterr().out


@pytest.mark.skipif(sys.version_info < (3, 11), reason="needs tomllib")
def test_json(capsys, tmp_path, monkeypatch):
    (tmp_path / "other").write_text("clevel = 2\nchunk_size = 4096")
    name = str(tmp_path / "other")
    monkeypatch.setenv("BLPK_CONFIG", name)
    blpk("--json")
    expected = {
        "file": name,
        "settings": {
            "nthreads": {"value": 3, "source": "BLPK_NTHREADS"},
            "codec": {"value": "blosclz", "source": "default"},
            "clevel": {"value": 2, "source": name},
            "chunk_size": {"value": 4096, "source": name},
            "checksum": {"value": "adler32", "source": "default"},
            "typesize": {"value": 8, "source": "default"},
            "filter": {"value": "shuffle", "source": "default"},
            "auto": {"value": False, "source": "default"},
        },
    }
    assert expected == json.loads(capsys.readouterr().out)


def test_path(capsys, tmp_path):
    blpk("--path")
    expected = os.path.join(str(tmp_path), "bloscpack", "config.toml\n")
    assert expected == capsys.readouterr().out


def test_path_is_shown_whatever_is_wrong(capsys, monkeypatch):
    monkeypatch.setenv("BLPK_CLEVEL", "11")
    monkeypatch.setenv("BLPK_CONFIG", "missing")
    blpk("--path")
    assert "missing\n" == capsys.readouterr().out
    with pytest.raises(Refusal, match="missing"):
        blpk()
    monkeypatch.delenv("BLPK_CONFIG")
    with pytest.raises(Refusal, match="BLPK_CLEVEL"):
        blpk("--json")


def test_help_names_every_setting():
    parser = argparse.ArgumentParser(
        prog="blpk config", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    set_help(parser, verb.HELP)
    verb.add_arguments(parser)
    text = parser.format_help()
    assert 25 > text.count("\n")
    for name in settings.CHECKS:
        assert settings.variable_for(name) in text
        assert name in text


# Changes


def test_settings_are_written(capsys, tmp_path):
    pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")
    blpk("auto=true", "chunk_size=4M", "clevel=3")
    file = tmp_path / "bloscpack" / "config.toml"
    assert 'auto = true\nchunk_size = "4M"\nclevel = 3\n' == file.read_text()
    assert (
        "clevel      3         %s\nchunk_size  4M        %s\n"
        "auto        balanced  %s\n" % (file, file, file)
    ) == capsys.readouterr().out
    blpk("--unset", "chunk_size", "--unset", "clevel")
    blpk("auto=ratio", "codec=zstd")
    assert 'auto = "ratio"\ncodec = "zstd"\n' == file.read_text()
    assert ("ratio", str(file)) == settings.in_force()["auto"]


def test_other_lines_stay(tmp_path, monkeypatch, capsys):
    pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")
    file = tmp_path / "mine"
    monkeypatch.setenv("BLPK_CONFIG", str(file))
    file.write_text('# mine\n"auto"=  false # why\n\nclevel = 5')
    monkeypatch.setenv("BLPK_AUTO", "speed")
    blpk("auto=true", "typesize=4")
    assert "auto      speed  BLPK_AUTO" in capsys.readouterr().out  # it wins
    expected = '# mine\n"auto"=  true # why\n\nclevel = 5\ntypesize = 4\n'
    assert expected == file.read_text()
    blpk("--unset", "auto")
    assert "# mine\n\nclevel = 5\ntypesize = 4\n" == file.read_text()


@pytest.mark.parametrize(
    ("message", "arguments", "content"),
    [
        ("found 'maybe'", ["auto=maybe"], "clevel = 1"),
        ("unknown setting 'levle'", ["levle=1"], "clevel = 1"),
        ("unknown setting 'levle'", ["--unset", "levle"], "clevel = 1"),
        ("such as auto=true, found 'auto'", ["auto"], "clevel = 1"),
        ("lines that can't be changed", ["clevel=2"], 'codec = """\nclevel = 1\n"""'),
        ("is not valid TOML", ["clevel=2"], "clevel"),
    ],
)
def test_changes_that_are_refused(tmp_path, monkeypatch, message, arguments, content):
    pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")
    (tmp_path / "mine").write_text(content)
    monkeypatch.setenv("BLPK_CONFIG", str(tmp_path / "mine"))
    with pytest.raises(Refusal, match=message):
        blpk(*arguments)
    assert content == (tmp_path / "mine").read_text()
