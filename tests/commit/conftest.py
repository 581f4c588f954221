"""Fixtures for the tests of changes in place."""

from __future__ import annotations

import pytest
from commit.steps import FLAGGED, LAST
from crash.operations import TARGET


@pytest.fixture(params=[FLAGGED[0], LAST], ids=["bit set", "all overwritten"])
def path(request, tmp_path):
    """A file whose change was interrupted."""
    path = tmp_path / TARGET
    path.write_bytes(request.param)
    return path
