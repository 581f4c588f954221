"""Ctrl-C in some places of each operation, and in each place of opening and locking.

`test_interrupts` lets pytest run these tests in a process of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import itertools
import os
import threading
import time

import numpy as np
import pytest
from crash.interrupts import OPERATIONS, Interrupt, Trial, descriptors

from bloscpack import bigfile, dataset
from bloscpack._engine.forks import ForkSafeLock
from bloscpack._storage.descriptors import Descriptor
from bloscpack._storage.object_store import ObjectStore

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


# Nothing can close a file that was opened when the interrupt came.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_rows_of_a_member_that_wait(tmp_path):
    """They are written once, also if the change was committed before an interrupt."""
    with dataset.create_group(tmp_path / "g", sync=False) as group:
        array = group.create_array("a", [0], buffered=True)
        with group.change():
            pass
        for number in itertools.count(1, 9):
            before = len(array)
            array.append([before])
            interrupt = Interrupt(number)
            with contextlib.suppress(KeyboardInterrupt), interrupt:
                array.flush()
            array.flush()
            assert [*range(before + 1)] == array[:].tolist(), interrupt.place
            if interrupt.place is None:
                break


def test_rows_that_several_threads_write(tmp_path):
    """The others do not wait for a lock of the interrupted thread."""
    with bigfile.File(tmp_path / "tree", create=True) as tree:
        column = tree.create_from_array("x", np.arange(9))
    with column:
        for place in interrupted_everywhere(lambda: column.write(2, [7, 8])):
            thread = threading.Thread(target=column.write, args=(3, [9]), daemon=True)
            thread.start()
            thread.join(20)
            assert not thread.is_alive(), place
        assert [7, 8] == column[2:4].tolist()


@pytest.fixture
def slow():
    """A store whose requests take a time, in which the caller waits."""
    fsspec = pytest.importorskip("fsspec", reason="the extra 'remote' is not installed")
    from fsspec.asyn import AsyncFileSystem

    objects = {}

    class SlowFileSystem(AsyncFileSystem):
        protocol = "slow"
        cachable = False

        async def _info(self, path, **options):
            await asyncio.sleep(0.002)
            if path not in objects:
                raise FileNotFoundError
            return {"size": len(objects[path]), "type": "file", "ETag": objects[path]}

        async def _cat_file(self, path, start=None, end=None, **options):
            await asyncio.sleep(0.002)
            return objects[path][start:end]

        async def _pipe_file(self, path, value, **options):
            await asyncio.sleep(0.002)
            objects[path] = value

        async def _rm_file(self, path, **options):
            objects.pop(path, None)

    fsspec.register_implementation("slow", SlowFileSystem, clobber=True)
    faulthandler.dump_traceback_later(60, exit=True)  # a request waits for ever
    yield ObjectStore("slow://a")
    faulthandler.cancel_dump_traceback_later()


@pytest.mark.parametrize("is_first", [False, True])
def test_requests(slow, is_first):
    """The thread that makes requests does not wait for a lock of the caller."""
    import fsspec.asyn

    def end_thread():
        """Let the next request start the thread."""
        loop = fsspec.asyn.get_loop()
        loop.call_soon_threadsafe(loop.stop)
        fsspec.asyn.iothread[0].join()
        loop.close()
        fsspec.asyn.reset_lock()

    slow.put("x", b"1", None)
    for place in interrupted_everywhere(lambda: slow.object_version("x")):
        assert "ETag=b'1'" == slow.object_version("x"), place
        assert (b"1", None) == slow.read("x"), place
        if is_first:
            end_thread()


def test_a_request_that_stores(slow):
    """The next request waits for it: it stores nothing later."""
    for place in interrupted_everywhere(lambda: slow.put("x", b"late", None)):
        stored = slow.exists("x")
        time.sleep(0.005)
        assert stored is slow.exists("x"), place
        slow.remove("x")


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
