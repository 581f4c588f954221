"""Random tables through pairs of formats; ``tables.py`` runs more of them."""

from __future__ import annotations

import pytest
from fuzz import tables


@pytest.mark.parametrize("first", [0, 110, 220])
def test_tables_of_pandas(first):
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    pytest.importorskip("h5py")
    numbers = range(first, first + len(tables.PAIRS), 2)
    failed = {
        number: result
        for number, result in tables.run(numbers, 1)
        if not isinstance(result, str)
    }
    assert {} == failed
