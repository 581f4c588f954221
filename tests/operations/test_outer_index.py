"""`LazyArray.oindex`: each axis is selected by itself, as `numpy.ix_` does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bloscpack as bp

SHAPE = (7, 5, 6)
ARRAY = np.arange(7 * 5 * 6, dtype="<u2").reshape(SHAPE)


def selections(size):
    number = st.integers(-size, size - 1)
    bound = st.none() | st.integers(-size - 2, size + 2)
    step = st.none() | st.integers(-3, 3).filter(bool)
    return (
        number
        | st.builds(slice, bound, bound, step)
        | st.lists(number, max_size=2 * size)
        | st.lists(number, max_size=size).map(lambda x: np.array(x, "i2"))
    )


@given(st.tuples(*map(selections, SHAPE)), st.sampled_from("CF"), st.integers(1, 100))
def test_every_outer_index(key, order, chunk_size):
    array = np.asarray(ARRAY, order=order)
    file = bp.pack_ndarray_to_bytes(array, chunk_size=2 * chunk_size)
    expected = array
    for axis in reversed(range(3)):  # integers remove an axis
        entry = key[axis]
        if isinstance(entry, list):
            entry = np.array(entry, int)
        expected = expected[(slice(None),) * axis + (entry,)]
    with bp.open_ndarray(file, cache_nbytes=0) as lazy:
        found = lazy.oindex[key]
    assert expected.shape == found.shape
    assert np.array_equal(expected, found)


@pytest.mark.parametrize("key", [(0, 0, 0, 0), (7, 0, 0), (0, [5], 0)])
def test_keys_that_do_not_fit(key):
    with (
        bp.open_ndarray(bp.pack_ndarray_to_bytes(ARRAY)) as lazy,
        pytest.raises(IndexError),
    ):
        lazy.oindex[key]
