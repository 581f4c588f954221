"""Fixtures of all tests."""

import itertools
import os

# NumPy would start a thread per core in each of the thousand processes of the tests.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import hypothesis
import pytest
from support import folder_for_all_users, grouped_reasons, reset_log, reset_signals

from bloscpack import cli

# No time limit for a single example: it would fail on a busy machine.
hypothesis.settings.register_profile("bloscpack", deadline=None)
hypothesis.settings.load_profile("bloscpack")

# Cases of a parametrized test that a quick run has: the first, the last, and one
# between.
QUICK_CASES = 3


def pytest_configure():
    reset_signals()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark as ``full`` all but `QUICK_CASES` cases of each parametrized test.

    The mark ``every_case`` of a test keeps all of them.
    """
    for _, group in itertools.groupby(items, lambda item: item.nodeid.split("[")[0]):
        cases = [item for item in group if not item.get_closest_marker("every_case")]
        quick = {n * (len(cases) - 1) // (QUICK_CASES - 1) for n in range(QUICK_CASES)}
        for number, item in enumerate(cases):
            if number not in quick:
                item.add_marker("full")


def pytest_terminal_summary(terminalreporter, config):
    """Say why tests were skipped, in few lines; with -rs pytest lists the tests."""
    skipped = terminalreporter.stats.get("skipped", [])
    listed = {"s", "a", "A"} & {*config.getoption("reportchars")}
    if skipped and not listed and config.option.verbose > -2:
        terminalreporter.section("skipped tests, by reason")
        for line in grouped_reasons(report.longrepr[2] for report in skipped):
            terminalreporter.line(line)


@pytest.fixture(autouse=True)
def _fresh_log():
    """Begin and end each test with the variables of `log` as a new process has them."""
    reset_log()
    yield
    reset_log()


@pytest.fixture
def usual_umask():
    """Let new files and folders be readable by all users, and writable by one."""
    old = os.umask(0o022)
    yield
    os.umask(old)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder of the test, which is empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def open_folder():
    """A folder that every user may enter; pytest makes `tmp_path` for one user only."""
    with folder_for_all_users() as folder:
        yield folder


@pytest.fixture
def run(capsys):
    """Run `blpk` as a new process would; return exit code, output and errors."""

    def run(*arguments):
        reset_log()
        code = 0
        try:
            cli.main([*map(str, arguments)])
        except SystemExit as error:
            code = error.code
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
