"""System calls that fail: the file keeps its old content, and no other file stays.

Each operation runs once for each of its calls to the disk, and that call fails. A later
writer must always succeed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import sys
import time

import pytest
from crash.operations import BIT, OPTIONS, TARGET, refill
from crash.states import OPERATIONS
from crash.watched_disk import WatchedDisk, replaced_disk

try:
    import resource
except ImportError:  # not on Windows
    resource = None


class Stop(BaseException):
    """An interruption, which is no Exception."""


class FaultyDisk(WatchedDisk):
    """A disk whose calls from number `first` on go wrong, `count` of them.

    ``fails`` raises an error; ``short`` does half and says so; ``early`` and ``late``
    interrupt, before a call or after it. ``full``: from that call on no file gets
    longer, while all else works.
    """

    def __init__(self, fault, first, count=1):
        self.fault = fault
        self.bad = range(first, first + count if fault != "full" else sys.maxsize)
        self.calls = []

    def reached(self):
        return len(self.calls) > self.bad.start

    def committed(self):
        """Return whether a call was made that may be the commit."""
        late = self.bad.start + (self.fault == "late")
        return bool({"rename", "link", "remove", "commit"} & set(self.calls[:late]))

    def _goes_wrong(self, kind):
        self.calls.append(kind)
        return len(self.calls) - 1 in self.bad

    def _raise(self):
        if self.fault in ("early", "late"):
            raise Stop
        code = errno.ENOSPC if self.fault == "full" else errno.EIO
        raise OSError(code, os.strerror(code))

    def do(self, kind, call, *arguments):
        wrong = self._goes_wrong(kind)
        full = self.fault == "full" and kind == "create"
        if wrong and (full or self.fault in ("fails", "early")):
            self._raise()
        result = super().do(kind, call, *arguments)
        if wrong and self.fault == "late":
            if kind in ("open", "create"):
                result.close()
            self._raise()
        return result

    def do_write(self, raw, data, call, offset):
        clears_bit = (offset, len(data)) == (OPTIONS, 1) and not data[0] & BIT
        if not self._goes_wrong("commit" if clears_bit else "write") or not len(data):
            return call(data)
        room = len(data)
        if self.fault == "short":
            room = (room + 1) // 2
        elif self.fault == "full":
            room = min(room, os.fstat(raw.fileno()).st_size - offset)
        if room > 0 and self.fault not in ("fails", "early"):
            written = call(memoryview(data)[:room])
            if self.fault != "late":
                return written
        self._raise()

    def do_read(self, raw, view, call):
        if not self._goes_wrong("read"):
            return call(view)
        if self.fault == "short":
            return call(view[: (len(view) + 1) // 2])
        if self.fault == "full":
            return call(view)
        self._raise()


class Trial:
    """One operation, made ready once and tried many times."""

    def __init__(self, name, root):
        self.name, self.operation = name, OPERATIONS[name]
        operation = self.operation
        self.folder, self.inputs, self.before = (
            root / name for name in ("folder", "inputs", "before")
        )
        self.folder.mkdir()
        self.inputs.mkdir()
        operation.prepare(self.folder)
        operation.provide(self.inputs)
        shutil.copytree(self.folder, self.before)
        self.old = operation.see(self.folder)
        operation.run(self.folder, self.inputs)
        self.new = operation.see(self.folder)
        self.restore_bytes()

    def restore_bytes(self):
        """Restore the content of all files, without replacing them."""
        for path in self.folder.iterdir():
            if not (self.before / path.name).exists():
                path.unlink()
        for path in self.before.iterdir():
            refill(self.folder / path.name, path.read_bytes())

    def run(self, disk):
        """Return what it raised, None if nothing."""
        self.restore_bytes()
        try:
            with replaced_disk(disk):
                self.operation.run(self.folder, self.inputs)
        except (OSError, Stop) as error:
            return error
        return None

    def names(self):
        return {path.name for path in self.folder.iterdir()} - {TARGET}

    def check_follows(self):
        """Assert that the next writer can go on, and leaves nothing."""
        self.operation.follow(self.folder, self.inputs)
        assert self.operation.see(self.folder) is not None
        assert set() == self.names()


@pytest.fixture
def trial(request, tmp_path):
    return Trial(request.param, tmp_path)


every_operation = pytest.mark.parametrize("trial", OPERATIONS, indirect=True)


def open_files():
    return len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0


FAULTS = ("fails", "early", "full", "late")


@pytest.mark.parametrize(
    ("trial", "fault"),
    [
        # Each operation has one quick fault, alternately.
        pytest.param(
            name, fault, marks=[] if fault == FAULTS[i % 2] else pytest.mark.slow
        )
        for i, name in enumerate(OPERATIONS)
        for fault in FAULTS
    ],
    indirect=["trial"],
)
def test_one_call_fails(trial, fault):
    failures = 0
    before = open_files()
    for first in range(1000):
        disk = FaultyDisk(fault, first)
        error = trial.run(disk)
        if not disk.reached():
            break
        failures += error is not None
        found = trial.operation.see(trial.folder)
        told = (fault, first, disk.calls[first], error)
        if error is None or disk.committed():
            assert found in (trial.old, trial.new), told
        else:
            assert trial.old == found, told
        if not trial.operation.puts_back:
            assert set() == trial.names(), told
        trial.check_follows()
    assert error is None
    assert trial.new == trial.operation.see(trial.folder)
    assert failures >= 1
    assert before >= open_files()  # an earlier test may have left some to be freed


@every_operation
def test_little_at_a_time(trial):
    assert trial.run(FaultyDisk("short", 0, 1000)) is None
    assert trial.new == trial.operation.see(trial.folder)
    assert set() == trial.names()


@every_operation
def test_everything_fails_from_a_call_on(trial):
    """The old bytes can't be restored then: the undo record and the changes stay."""
    for first in range(0, 1000, 3):
        disk = FaultyDisk("fails", first, 1000)
        error = trial.run(disk)
        if not disk.reached():
            break
        # Behind the commit only the cut of the file can fail, and that is no error.
        assert isinstance(error, OSError) or disk.committed()
        allowed = [trial.old, trial.new] if disk.committed() else [trial.old]
        assert trial.operation.see(trial.folder) in allowed
        trial.check_follows()


# What the system itself does


@contextlib.contextmanager
def largest_file(nbytes):
    """Let no file grow beyond `nbytes`."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.skipif(resource is None, reason="needs limits")
@pytest.mark.parametrize(
    "trial", ["append many chunks", "compress -f", "decompress -f"], indirect=True
)
def test_no_room(trial):
    old_size = (trial.folder / TARGET).stat().st_size
    trial.operation.run(trial.folder, trial.inputs)
    size = (trial.folder / TARGET).stat().st_size
    # A file that is changed in place needs room for the bytes that it overwrites, too.
    room = size + (old_size + 200 if "append" in trial.name else 0)
    for limit in range(old_size, room, max(1, size // 50)):
        with largest_file(limit):
            error = trial.run(WatchedDisk())
        if error is None:
            assert limit > size
            assert trial.new == trial.operation.see(trial.folder)
        else:
            assert errno.EFBIG == error.errno
            assert str(trial.folder / TARGET) == error.filename
            assert trial.old == trial.operation.see(trial.folder)
        assert set() == trial.names()
    trial.restore_bytes()
    with largest_file(room):
        trial.operation.run(trial.folder, trial.inputs)
    assert trial.new == trial.operation.see(trial.folder)


@contextlib.contextmanager
def constant_alarms():
    """Interrupt every system call that takes its time, for nothing."""
    before = signal.signal(signal.SIGALRM, lambda number, frame: None)
    signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        time.sleep(0.01)  # a signal that was sent may still arrive
        signal.signal(signal.SIGALRM, before)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers")
@every_operation
def test_interrupted_system_calls(trial):
    for _ in range(3):
        trial.restore_bytes()
        with constant_alarms():
            trial.operation.run(trial.folder, trial.inputs)
        assert trial.new == trial.operation.see(trial.folder)
        assert set() == trial.names()
