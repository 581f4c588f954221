"""A process that forks while its threads read: the child can read, too."""

from __future__ import annotations

import os

import numpy as np
import pytest
from support import run_python, run_silently

import bloscpack as bp

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

ARRAY = np.arange(40_000, dtype="<i8").reshape(400, 100)
# What each program begins with; Python 3.12 and later warn about forks with threads.
BEGIN = """
import multiprocessing, os, signal, sys, threading, warnings
import numpy as np
import bloscpack as bp
warnings.simplefilter("ignore")
expected = np.arange(40_000, dtype="<i8").reshape(400, 100)
kind = sys.argv[1]
if kind == "path":
    lazy = bp.open_ndarray("x.blp", cache_nbytes=5000)
else:
    class Other:  # a file object without a descriptor
        def __init__(self):
            self.fp = open("x.blp", "rb", buffering=0)
        def __getattr__(self, name):
            if name == "fileno":
                raise AttributeError(name)
            return getattr(self.fp, name)
    lazy = bp.open_ndarray(Other(), cache_nbytes=5000)

def check():
    signal.alarm(20)  # ends a child that waits for ever
    assert (expected[::7] == lazy[::7]).all()
    assert (expected[123, 45] == lazy[123, 45]).all()
    signal.alarm(0)

def forked():
    child = os.fork()
    if not child:
        try:
            check()
            os._exit(0)
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""
# Another thread holds every lock while the process forks.
HELD = """
from contextlib import ExitStack
lazy[0]
parts = lazy._parts
owners = [parts._lock, parts._cache._lock]
if kind == "object":
    owners.append(parts.state.storage._lock)
ready, end = threading.Event(), threading.Event()
def hold():
    with ExitStack() as stack:
        for lock in owners:
            stack.enter_context(getattr(lock, "current", lock))
        ready.set()
        end.wait()
threading.Thread(target=hold).start()
ready.wait()
if kind == "object":
    codes = [forked()]
else:
    process = multiprocessing.get_context("fork").Process(target=check)
    process.start()
    process.join()
    codes = [forked(), process.exitcode]
end.set()
check()
assert not any(codes), codes
"""
# Threads read all the time.
BUSY = """
lazy[0]  # imports everything: a fork keeps locks of modules that others import
stop = threading.Event()
def read():
    draw = np.random.default_rng()
    while not stop.is_set():
        i = int(draw.integers(400))
        assert (expected[i] == lazy[i]).all()
threads = [threading.Thread(target=read) for _ in range(3)]
for thread in threads:
    thread.start()
codes = [forked() for _ in range(30)]
stop.set()
for thread in threads:
    thread.join()
check()
assert not any(codes), codes
"""


@pytest.mark.parametrize("checksum", ["adler32", "None"])
@pytest.mark.parametrize(
    ("program", "kind"),
    [(HELD, "path"), (HELD, "object"), (BUSY, "path")],
    ids=["held, path", "held, file object", "busy, path"],
)
def test_child_of_a_process_whose_threads_read(program, kind, checksum, tmp_path):
    bp.pack_ndarray_to_file(ARRAY, tmp_path / "x.blp", 4000, checksum=checksum)
    run_silently("-c", BEGIN + program, kind, timeout=120, cwd=tmp_path)


DATASET = """
import os, signal, sys, threading
from bloscpack import dataset
from bloscpack.dataset.layouts import array_files
array = dataset.create_array("a", range(90), chunks=1, shards=10)
ready, end = threading.Event(), threading.Event()
def hold():
    with array_files._lock.current:
        ready.set()
        end.wait()
threading.Thread(target=hold).start()
ready.wait()
child = os.fork()
if not child:
    signal.alarm(20)  # ends a child that waits for ever
    os._exit(array[:].tolist() != list(range(90)))
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
end.set()
sys.exit(code)
"""


def test_a_dataset_after_a_fork(tmp_path):
    done = run_python("-W", "ignore", "-c", DATASET, cwd=tmp_path)
    assert 0 == done.returncode, done.stderr


WRITTEN = """
import os, signal, sys, threading, time
from bloscpack._engine.forks import Owner
reading, writing = os.pipe()
owner, file = Owner(), open(writing, "wb")
def write():
    file.write(bytes(1_000_000))  # waits with the lock of the file: the pipe is full
threading.Thread(target=write, daemon=True).start()
time.sleep(0.5)
child = os.fork()
if not child:
    signal.alarm(20)  # ends a child that waits for ever
    owner.close_file(file)
    try:
        os.fstat(writing)
    except OSError:
        sys.exit(0)  # frees the file
    sys.exit("the file is still open")
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
os._exit(code)
"""


def test_a_file_that_another_thread_writes_during_a_fork(tmp_path):
    done = run_python("-W", "ignore", "-c", WRITTEN, cwd=tmp_path)
    assert 0 == done.returncode, done.stderr
