"""The defaults: those that have to be found out."""

import os

import pytest

from bloscpack.defaults import available_cpus


def test_available_cpus():
    assert 1 <= available_cpus() <= (os.cpu_count() or 1)


@pytest.mark.parametrize(("expected", "count"), [(5, 5), (1, None)])
def test_available_cpus_where_nobody_tells(monkeypatch, expected, count):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: count)
    assert expected == available_cpus()
