"""Ctrl-C in some places of each operation, and in each place of opening and locking.

`test_interrupts` lets pytest run these tests in a process of its own.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os

import pytest
from crash.interrupts import OPERATIONS, Interrupt, Trial, descriptors

from bloscpack import dataset
from bloscpack._engine.forks import ForkSafeLock
from bloscpack._storage.descriptors import Descriptor

pytestmark = pytest.mark.skipif(
    not os.path.isdir("/proc/self/fd"), reason="needs the file descriptors of Linux"
)
# Number of places of each operation; `interrupts` itself tries all.
PLACES = 12


@pytest.fixture
def frozen():
    """Collect garbage of the operations alone: a collection is quick then."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("name", OPERATIONS)
def test_operation(name, tmp_path, frozen):
    trial = Trial(name, tmp_path)
    step = trial.count_places() // PLACES + 1
    for number in range(1 + len(name) % step, PLACES * step, step):
        place, wrong = trial.interrupted(number)
        assert [] == wrong, (number, place)


def interrupted_everywhere(call):
    """Interrupt a call in each of its places; yield after each."""
    for number in itertools.count(1):
        interrupt = Interrupt(number)
        with contextlib.suppress(KeyboardInterrupt), interrupt:
            call()
        if interrupt.place is None:
            return
        yield interrupt.place


def test_opening(tmp_path):
    before = descriptors()
    for place in interrupted_everywhere(lambda: Descriptor(os.open, tmp_path, 0)):
        assert before == descriptors(), place


def test_closing(tmp_path):
    """It has no place, at which the error would be lost."""
    before, files = descriptors(), [Descriptor(os.open, tmp_path, 0)]
    assert before != descriptors()
    interrupt = Interrupt(1)
    with interrupt:
        del files[0]
    assert interrupt.place is None
    assert before == descriptors()


def test_locks():
    lock = ForkSafeLock()

    def hold():
        with lock.current:
            len("")

    places = 0
    for place in interrupted_everywhere(hold):
        assert not lock.current.locked(), place
        places += 1
    assert places > 2


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_turns(tmp_path):
    """A group that commits its members is locked for the length of a turn.

    In the finalizer of the lock, Python prints the error.
    """
    with dataset.create_group(tmp_path / "g") as group, group.change():
        pass
    groups = [dataset.open(tmp_path / "g", "r+")]

    def turn():
        with groups[0]._writer.rule.holding():
            pass

    for number, place in enumerate(interrupted_everywhere(turn)):
        groups.clear()
        groups.append(dataset.open(tmp_path / "g", "r+"))
        groups[0].attrs["n"] = number
        assert {"n": number} == groups[0].attrs, place
