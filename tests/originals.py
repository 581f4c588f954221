"""Environments with other packages, which tests build once, in the cache of pytest."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def run(*command, **variables):
    """Run a command and return it with its output."""
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **variables},
    )


def interpreter(versions):
    """Return a Python of one of the versions, or None; that of the tests is best."""
    if versions is None or "%d.%d" % sys.version_info[:2] in versions:
        return sys.executable
    return next(filter(None, (shutil.which("python" + v) for v in versions)), None)


def environment_with(
    request, session, what, probe, packages, build=None, versions=None, folder=""
):
    """Return the path of a Python in which the program `probe` succeeds.

    It is the one that the variable BLOSCPACK_<session>_PYTHON names, that of the tests,
    or that of an environment with `packages`, which is made if the variable
    BLOSCPACK_BUILD_ORIGINALS is set. `build` finishes such an environment and returns
    an error, or None. `versions` are those of Python that the packages work with.
    `folder` tells several environments of a session apart. The test is skipped, with
    the reason, if there is no such Python.
    """
    variable = "BLOSCPACK_%s_PYTHON" % session.upper()
    given = os.environ.get(variable, sys.executable)
    if not run(given, "-c", probe).returncode:
        return given
    assert variable not in os.environ, "%s can't run '%s'" % (given, probe)
    if "BLOSCPACK_BUILD_ORIGINALS" not in os.environ:
        pytest.skip("%s is not installed; nox -s %s installs it" % (what, session))
    base = interpreter(versions)
    if base is None:
        pytest.skip("%s needs one of Python %s" % (what, ", ".join(versions)))
    version = "%d.%d" % sys.version_info[:2]
    folder = Path(request.config.cache.mkdir(session)) / (version + folder)
    python = folder / "bin" / "python"
    if python.exists() and not run(python, "-c", probe).returncode:
        return python
    pip = [python, "-m", "pip", "-q", "install"]
    make = [base, "-m", "venv", "--clear", folder]
    for command in (make, [*pip, *packages]):
        done = run(*command)
        if done.returncode:
            pytest.skip("%s can't be installed: %s" % (what, done.stderr[-300:]))
    error = None if build is None else build(python, folder)
    if error is not None:
        pytest.skip("%s can't be built: %s" % (what, error))
    return python
