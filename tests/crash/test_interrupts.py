"""Ctrl-C in many places, see `interrupt_checks`.

An error of Ctrl-C that comes too late would end the process that runs all tests.
"""

from __future__ import annotations

from pathlib import Path

from support import run_python


def test_interrupts(tmp_path):
    checks = Path(__file__).with_name("interrupt_checks.py")
    options = "-q", "-p", "no:cacheprovider", "-p", "no:xdist"
    done = run_python(
        "-m", "pytest", *options, "--basetemp", tmp_path / "checks", checks, text=True
    )
    assert 0 == done.returncode, done.stdout
    assert " passed" in done.stdout
