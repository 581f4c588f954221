"""The recipe for conda says what pyproject.toml says."""

from __future__ import annotations

import re

import pytest
from support import ROOT

from bloscpack.version import __version__

tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11")
RECIPE = (ROOT / "recipe" / "recipe.yaml").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
# Name in the package index → name in conda-forge, where they differ.
CONDA_NAMES = {"blosc": "python-blosc"}


def entries(key: str) -> list[str]:
    """Return the list below a key."""
    block = re.search(r"^ *%s:\n((?: +- .*\n)+)" % key, RECIPE, re.M)
    assert block is not None
    return re.findall(r"- (.*)", block[1])


def test_version_and_description():
    assert __version__ == re.search(r'^  version: "(.*)"$', RECIPE, re.M)[1]
    assert "\n  summary: %(description)s\n  license: %(license)s\n" % PROJECT in RECIPE


def test_requirements():
    python = "python " + PROJECT["requires-python"]
    required = [
        re.fullmatch(r"([\w-]+)(.*)", x).groups() for x in PROJECT["dependencies"]
    ]
    required = [
        "%s %s" % (CONDA_NAMES.get(name, name), rest) for name, rest in required
    ]
    assert sorted([python, *required]) == sorted(entries("run"))
    assert python in entries("host")


def test_commands():
    scripts = ["%s = %s" % item for item in PROJECT["scripts"].items()]
    assert scripts == entries("entry_points")
