"""What every test gets: a library as silent as it begins."""

import pytest

from bloscpack import log


@pytest.fixture(autouse=True)
def _silence(monkeypatch):
    for name in ("LEVEL", "PREFIX", "QUIET", "OUTPUT_IS_DATA", "PROGRESS"):
        monkeypatch.setattr(log, name, getattr(log, name))
