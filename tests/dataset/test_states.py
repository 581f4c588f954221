"""After any sequence of changes, a dataset of each layout has the items of NumPy."""

from __future__ import annotations

import pytest
from dataset import states


@pytest.mark.parametrize("layout", states.LAYOUTS)
@pytest.mark.parametrize("machine", states.MACHINES)
def test_any_sequence_of_changes(machine, layout, tmp_path):
    examples = 10 if states.LAYOUTS[layout].at_url else 30
    states.run(machine, tmp_path, layout, examples=examples)
