"""README.rst tells the truth: its examples run and give what it says."""

import doctest
import os
import subprocess
import sys

import numpy as np
import pytest
from support import ROOT, environment, grouped_reasons

import bloscpack

README = ROOT / "README.rst"


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_python_examples():
    results = doctest.testfile(str(README), module_relative=False)
    assert results.attempted > 10
    assert results.failed == 0


def shell_lines():
    text = README.read_text(encoding="utf-8")
    section = text.partition("In a shell")[2].partition("In Python")[0]
    prompt = "    $ "
    lines = section.splitlines()
    return [line.removeprefix(prompt) for line in lines if line.startswith(prompt)]


@pytest.mark.slow
def test_shell_examples(tmp_path):
    for name in ("data.dat", "more.dat", "floats.dat"):
        (tmp_path / name).write_bytes(bytes(range(256)) * 1000)
    (tmp_path / "folder").mkdir()
    (tmp_path / "damaged.blp").write_bytes(
        bloscpack.pack_bytes_to_bytes(bytes(1000), 100)
    )
    np.save(tmp_path / "array.npy", np.arange(1000))
    here = os.path.dirname(sys.executable)
    variables = environment(PATH=here + os.pathsep + os.environ["PATH"])
    lines = shell_lines()
    assert len(lines) >= 5
    for line in lines:
        subprocess.run(line, shell=True, check=True, env=variables)
    assert (tmp_path / "copy.dat").read_bytes() == (tmp_path / "data.dat").read_bytes()


def test_summary_groups_the_reasons_of_skipped_tests():
    reasons = [
        *("Skipped: could not import 'zarr': No module named 'zarr'", "needs zarr 3"),
        *("fish is not installed", "Skipped: the extra 's3' is not installed"),
        *["needs several users"] * 3,
        *("a", "b"),
    ]
    assert [
        "    4  needs what is not installed: fish, s3, zarr",
        "    3  needs several users",
        "    2  other reasons: pytest -rs lists them",
    ] == grouped_reasons(reasons, most=2)
    assert [] == grouped_reasons([])
