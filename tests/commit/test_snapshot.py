"""Reading while a writer changes the file: the state before or after, never a mixture.

A reader is stopped at each of several points, the folder is advanced from any step of
the writer to any later one, and the reader goes on.
"""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import numpy as np
import pytest
from crash.operations import (
    LOOSE,
    TARGET,
    Append,
    Compress,
    Operation,
    RewriteMetadata,
    pack,
    refill,
)
from crash.states import Checker, lay_down, process_states
from crash.watched_disk import WatchedDisk, replaced_disk

import bloscpack
from bloscpack._commit import snapshot as snapshot_module
from bloscpack._commit import undo
from bloscpack._commit.snapshot import (
    BEGINNING_ATTEMPTS,
    Snapshot,
    read_snapshot,
)
from bloscpack.abstract_io import unpack
from bloscpack.exceptions import FormatError, StorageError
from bloscpack.file_io import CompressedFPSource, PlainBytesSink

# How many ways of going on are tried at each point where a reader can be stopped: with
# the file open, before it has looked for an undo record, before it has checked what
# lies in front of the chunks, at a chunk, at the end.
SAMPLE = 50
POINTS = ("opened", "noted", "beginning", "chunk 0", "chunk 2", "end")


class Reading:
    """Reads a file, and calls `happen` at one of POINTS, once."""

    def __init__(self, path, point=None, happen=None):
        self.path, self.point, self._happen = path, point, happen
        self.attempts = 0

    def _reached(self, point):
        if point == self.point and self._happen is not None:
            happen, self._happen = self._happen, None
            happen()

    def read(self, fp, check):
        self.attempts += 1
        source = Source(fp)
        source.reached = self._reached
        self._reached("beginning")
        check(source.bloscpack_header)
        sink = PlainBytesSink(source.bloscpack_header.nbytes)
        unpack(source, sink, nthreads=1)
        self._reached("end")
        return sink.getvalue(), source.metadata

    def result(self):
        genuine = undo.settled_file

        def settled_file(fp):
            self._reached("noted")
            return genuine(fp)

        def snapshot(path, fp):
            self._reached("opened")
            return Snapshot(path, fp)

        undo.settled_file = settled_file
        snapshot_module.Snapshot = snapshot
        try:
            return read_snapshot(self.path, self.read)
        finally:
            undo.settled_file = genuine
            snapshot_module.Snapshot = Snapshot


class Source(CompressedFPSource):
    """Tells which chunk it is about to read."""

    def load(self, frame):
        self.reached("chunk %d" % frame.number)
        return super().load(frame)


class Several(Operation):
    """Several changes of one file, one after another."""

    def __init__(self, checksum, *operations):
        self.checksum, self.operations = checksum, operations

    def prepare(self, folder):
        Append(metadata=["old"] * 9, checksum=self.checksum).prepare(folder)

    def provide(self, inputs):
        for operation in self.operations:
            operation.provide(inputs)

    def run(self, folder, inputs):
        for operation in self.operations:
            operation.run(folder, inputs)


WRITERS = {
    "appends": (Append(nbytes=100), Append(nbytes=2200)),
    "metadata": (RewriteMetadata(), Append(nbytes=1700, new=["new"] * 9)),
    "replaced": (Compress(True, None), Append(nbytes=700)),
}


class Stages:
    """The states that a folder goes through, to be gone through again."""

    def __init__(self, operation, folder):
        self.checker = Checker(operation, folder)
        self.folder, self.keep = self.checker.folder, self.checker.keep
        record = self.checker.record
        self.states = [(record.names, dict(record.contents))]
        steps, record.steps = record.steps, []
        for step in steps:
            record.steps = [step]
            record.names, record.contents = self.states[-1]
            names, contents, _ = list(process_states(record))[-1]
            if step[0] not in ("sync", "sync_folder"):
                self.states.append((names, contents))
        self.clock = 10**18
        self.found = []
        for i in range(len(self.states)):
            self.lay_down(i)
            self.found.append(Reading(self.folder / TARGET).result())

    def lay_down(self, i):
        lay_down(*self.states[i], self.folder, self.keep)
        self.now = i

    def go_on(self, j):
        """Take the folder from where it is to a later state, as the writer did."""
        (old_names, old), (names, contents) = self.states[self.now], self.states[j]
        for number, content in contents.items():
            if content != old.get(number):
                path = self.keep / str(number)
                refill(path, content)
                self.clock += 10**7
                os.utime(path, ns=(self.clock, self.clock))
        for name in old_names.keys() | names.keys():
            path = self.folder / name
            if old_names.get(name) != names.get(name):
                if name in names:
                    os.link(self.keep / str(names[name]), self.folder / "linked")
                    (self.folder / "linked").replace(path)
                else:
                    path.unlink()
        self.now = j


@pytest.mark.parametrize("checksum", ["adler32", "None"])
@pytest.mark.parametrize("writers", WRITERS)
def test_the_writer_goes_on_while_the_reader_reads(tmp_path, writers, checksum):
    stages = Stages(Several(checksum, *WRITERS[writers]), tmp_path)
    count = len(stages.states)
    assert 3 == len({found[0] + repr(found[1]).encode() for found in stages.found})
    pairs = [(i, j) for i in range(count) for j in range(i, count)]
    chance = random.Random(1)
    again = 0
    for point in POINTS:
        for i, j in chance.sample(pairs, min(len(pairs), SAMPLE)):
            stages.lay_down(i)
            reading = Reading(
                stages.folder / TARGET, point, lambda j=j: stages.go_on(j)
            )
            assert reading.result() in stages.found[i : j + 1], (point, i, j)
            assert reading.attempts <= 2
            again += reading.attempts - 1
    assert again > 20


class Restless:
    """Does something each time that a reader has read what lies before the chunks.

    With `late` only after that has been accepted.
    """

    def __init__(self, happen, late=False):
        self.attempts = 0
        self._happen = happen
        self._late = late

    def read(self, fp, check):
        self.attempts += 1
        source = CompressedFPSource(fp)
        if not self._late:
            self._happen()
        check(source.bloscpack_header)
        if self._late:
            self._happen()
        sink = PlainBytesSink(source.bloscpack_header.nbytes)
        unpack(source, sink, nthreads=1)
        return sink.getvalue(), source.metadata


def test_a_long_append_keeps_nobody_waiting(tmp_path):
    """New chunks lie behind those that a reader reads, and digests prove these."""
    stages = Stages(Append(nbytes=9000), tmp_path)
    stages.lay_down(0)
    steps = iter(range(1, len(stages.states)))
    restless = Restless(lambda: stages.go_on(next(steps)), late=True)
    found = read_snapshot(stages.folder / TARGET, restless.read)
    assert stages.found[0] == found
    assert 1 == restless.attempts


@pytest.fixture
def path(tmp_path):
    path = tmp_path / TARGET
    bloscpack.pack_bytes_to_file(b"plain" * 1000, path, 1000, metadata={"n": [0] * 9})
    return path


def touching(path):
    """Return what makes a file look changed, each time."""
    times = iter(range(10**18, 2 * 10**18, 10**9))

    def touch():
        now = next(times)
        os.utime(path, ns=(now, now))

    return touch


@pytest.mark.parametrize(
    ("late", "attempts", "expected"),
    [
        (False, 1, BEGINNING_ATTEMPTS),
        (False, 3, BEGINNING_ATTEMPTS),
        (True, 1, 1),
        (True, 3, 3),
    ],
)
def test_a_file_that_never_rests(path, late, attempts, expected):
    Append(checksum="None").prepare(path.parent)
    restless = Restless(touching(path), late)
    with pytest.raises(StorageError, match="changed each time") as raised:
        read_snapshot(path, restless.read, attempts)
    assert expected == restless.attempts
    assert str(path) == raised.value.filename


def test_damage_is_told_at_once(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    restless = Restless(lambda: None)
    with pytest.raises(FormatError) as raised:
        read_snapshot(path, restless.read)
    assert 1 == restless.attempts
    assert str(path) == raised.value.filename


@pytest.mark.parametrize("checksum", ["adler32", "None"])
def test_file_that_is_removed_meanwhile(path, checksum):
    Append(checksum=checksum).prepare(path.parent)
    expected = bloscpack.unpack_bytes_from_file(path)
    restless = Restless(path.unlink)
    assert expected == read_snapshot(path, restless.read)
    with pytest.raises(FileNotFoundError):
        read_snapshot(path, restless.read)


def test_pipe(tmp_path, path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(path.read_bytes()))
    writer.start()
    assert bloscpack.unpack_bytes_from_file(path) == bloscpack.unpack_bytes_from_file(
        pipe
    )
    writer.join()


class Watchful(WatchedDisk):
    """Notes what a name gets."""

    def __init__(self):
        self.contents = []

    def do(self, kind, call, *arguments):
        if kind == "link":
            self.contents.append(Path(arguments[0]).read_bytes())
        return super().do(kind, call, *arguments)


def test_nothing_mixed_gets_the_name_of_the_output(tmp_path):
    """A file without digests is known to be of one piece only when it has been read."""
    checksum = "None"
    (tmp_path / "in").mkdir()
    packed, out = tmp_path / "in" / TARGET, tmp_path / "out"
    # More than the buffer of a file takes at a time.
    old, other = np.random.default_rng(1).bytes(60000), bytes(range(240)) * 250
    pack(packed, old, checksum=checksum)
    pack(tmp_path / "other", other, checksum=checksum, blosc_args=LOOSE)
    other_file = (tmp_path / "other").read_bytes()

    def change(nbytes):  # in place, as an append does
        if packed.read_bytes() != other_file:
            packed.write_bytes(other_file)

    disk = Watchful()
    with replaced_disk(disk):
        bloscpack.unpack_file_from_file(packed, out, nthreads=1, progress=change)
    assert other == out.read_bytes()
    assert [other] == disk.contents
