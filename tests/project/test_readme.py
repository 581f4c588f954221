"""README.rst tells the truth: its examples run and give what it says."""

import doctest
import os
import subprocess
import sys

import pytest
from support import ROOT, environment, grouped_reasons

pytestmark = pytest.mark.usefixtures("folder")

README = ROOT / "README.rst"


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
def test_shell_examples_run_in_an_empty_folder(tmp_path):
    here = os.path.dirname(sys.executable)
    variables = environment(PATH=here + os.pathsep + os.environ["PATH"])
    lines = shell_lines()
    assert len(lines) >= 5
    for line in lines:
        code = 3 if "exit code 3" in line else 0
        assert code == subprocess.run(line, shell=True, env=variables).returncode, line
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
