"""After any sequence of changes, a dataset of each layout has the items of NumPy."""

from __future__ import annotations

import pytest
from dataset import states
from dataset.layouts import LAYOUTS


def test_all_layouts_are_tested():
    assert {*LAYOUTS} <= {*states.LAYOUTS}, "states.LAYOUTS needs an entry for each"


@pytest.mark.parametrize("examples", [6, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("layout", states.LAYOUTS)
@pytest.mark.parametrize("machine", states.MACHINES)
def test_any_sequence_of_changes(machine, layout, examples, tmp_path):
    if states.LAYOUTS[layout].at_url:
        examples //= 2
    states.run(machine, tmp_path, layout, examples=examples)


@pytest.mark.full
@pytest.mark.parametrize("examples", [8, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("layout", ["zarr", "zarr at a URL"])
def test_any_change_of_a_grid(layout, examples, tmp_path):
    if states.LAYOUTS[layout].at_url:
        examples //= 2
    states.run(states.GridMachine, tmp_path, layout, examples=examples)
