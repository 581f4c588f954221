"""What every test gets: a library as silent as it begins."""

import pytest
from support import heed_signals

from bloscpack import cli, log

# The variables of `log` that a command sets.
STATE = (
    *("LEVEL", "PREFIX", "QUIET"),
    *("OUTPUT_IS_DATA", "OUTPUT_IS_OPTIONAL", "LOST"),
)


def pytest_configure():
    heed_signals()


@pytest.fixture(autouse=True)
def _silence(monkeypatch):
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
