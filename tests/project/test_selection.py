"""The quick tests, which a command of README.rst runs, are few and cover all layers."""

import re
import subprocess
import sys

import pytest
from support import ROOT

MOST = 8000


@pytest.mark.full
def test_quick_tests():
    quick = re.search(r'-m "(.+)"', (ROOT / "README.rst").read_text("utf-8")).group(1)
    command = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-m", quick]
    command += ["-p", "no:cacheprovider"]
    output = subprocess.check_output(command, cwd=ROOT, text=True)
    counts = dict(re.findall(r"(?m)^(tests/.+\.py): (\d+)$", output))
    assert sum(map(int, counts.values())) <= MOST
    for folder in {path.parent for path in ROOT.glob("tests/*/test_*.py")}:
        assert any((ROOT / name).parent == folder for name in counts), folder
