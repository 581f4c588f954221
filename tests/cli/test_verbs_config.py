"""blpk config: what it shows of the settings in force."""

from __future__ import annotations

import argparse
import json
import os
import sys

import pytest

from bloscpack._cli import settings
from bloscpack._cli.exit_codes import Refusal
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
    verb.add_arguments(parser)
    text = parser.format_help()
    assert 25 > text.count("\n")
    for name in settings.CHECKS:
        assert settings.variable_for(name) in text
        assert name in text
