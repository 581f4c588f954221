"""Bytes objects that are allocated first and then filled in place."""

import gc
import os
import sys

import pytest

from bloscpack._engine.prealloc import BytesUnderConstruction

SIZES = (0, 1, 2, 1000, 5 * 2**20 + 12345)


@pytest.mark.parametrize("size", SIZES)
def test_bytes_of_a_known_size(size):
    made = BytesUnderConstruction(size)
    expected = os.urandom(size)
    made.view[:] = expected
    value = made.finish()
    assert type(value) is bytes
    assert expected == value
    assert hash(expected) == hash(value)


def test_bytes_belong_to_the_caller_alone():
    value = BytesUnderConstruction(1000).finish()
    other = os.urandom(1000)
    assert sys.getrefcount(other) == sys.getrefcount(value)


def test_unfinished_bytes_are_given_back():
    for _ in range(50):
        made = BytesUnderConstruction(10**7)
        made.view[0] = 1
        del made


def test_view_in_a_cycle_is_freed():
    made = BytesUnderConstruction(1000)
    cycle = [made.view]
    cycle.append(cycle)
    del made, cycle
    gc.collect()  # Python 3.12 crashes here if the view is one of io.BytesIO
