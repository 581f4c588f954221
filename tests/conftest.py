"""Fixtures of all tests."""

import pytest
from support import reset_signals

from bloscpack import cli, log

# The variables of `log` that a command sets.
STATE = (
    *("LEVEL", "PREFIX", "QUIET"),
    *("OUTPUT_IS_DATA", "OUTPUT_IS_OPTIONAL", "LOST"),
)


def pytest_configure():
    reset_signals()


@pytest.fixture(autouse=True)
def _restored_log(monkeypatch):
    """Restore the variables of `log` after each test."""
    for name in STATE:
        monkeypatch.setattr(log, name, getattr(log, name))


@pytest.fixture
def run(capsys):
    """Run `blpk`; return exit code, output and errors."""

    def run(*arguments):
        code = 0
        try:
            cli.main([*map(str, arguments)])
        except SystemExit as error:
            code = error.code
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
