"""What every test gets: a library as silent as it begins."""

import pytest
from support import heed_signals

from bloscpack import cli, log


def pytest_configure():
    heed_signals()


@pytest.fixture(autouse=True)
def _silence(monkeypatch):
    for name in ("LEVEL", "PREFIX", "QUIET", "OUTPUT_IS_DATA", "PROGRESS"):
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
