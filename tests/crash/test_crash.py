"""After a crash at any step of any writing, the file is exactly old or exactly new.

The states are built by `crash`, whose long form tries many more of them.
"""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from crash.operations import TARGET, Append, Compress, Operation, numbers, pack
from crash.states import (
    OPERATIONS,
    Checker,
    check_operation,
    machine_states,
    process_states,
)
from crash.watched_disk import undo
from support import environment

from bloscpack.append import append
from bloscpack.exceptions import BloscpackError
from bloscpack.recover import recover_fp
from bloscpack.verify import verify

# How many states of each operation real processes look at.
PROCESSES = 3


@pytest.mark.parametrize(
    "subsets", [1, pytest.param(6, marks=pytest.mark.slow)], ids="{} subsets".format
)
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_state_is_old_or_new(tmp_path, name, subsets):
    checker = check_operation(OPERATIONS[name], tmp_path, subsets)
    print(name, checker.tried, checker.different)
    assert checker.different >= 8


@pytest.mark.parametrize(
    "name",
    [
        "append many chunks",
        "append to shard",
        "append to shard without trailer",
        "append to grid as shard",
    ],
)
def test_an_interrupted_append_is_no_damage(tmp_path, name):
    """Nor does its undo record, which has the old header, look like a second file."""
    checker = Checker(OPERATIONS[name], tmp_path)
    path, kinds = checker.folder / TARGET, set()
    for names, contents, _ in process_states(checker.record):
        checker.lay_down(names, contents)
        report = verify(path)
        assert report.ok
        kinds.update(finding.kind for finding in report.findings)
        assert [] == recover_fp(io.BytesIO(path.read_bytes()), io.BytesIO()).remarks
    assert {"left-over", "interrupted"} == kinds - {"no-trailer"}


def test_what_was_done_stays_done(tmp_path):
    """Once a synced operation has returned, no crash of the machine undoes it."""
    for i, operation in enumerate([Append(), Compress(True, None)]):
        (tmp_path / str(i)).mkdir()
        checker = Checker(operation, tmp_path / str(i))
        last = [s for s in machine_states(checker.record, random.Random(1), 9) if s[2]]
        assert checker.new != checker.old
        checker.check_all(last)


class PackAndAppend(Operation):
    """Make a file, without waiting for the disk, and append to it."""

    def __init__(self, sync):
        self.sync = sync

    def provide(self, inputs):
        (inputs / "new").write_bytes(numbers(300, 5))

    def run(self, folder, inputs):
        pack(folder / TARGET, numbers(2500))
        if self.sync is None:
            append(folder / TARGET, inputs / "new", nthreads=1, sync=False)
        self.between = self.see(folder)
        append(folder / TARGET, inputs / "new", nthreads=1)


@pytest.mark.parametrize("sync", [False, None])
def test_append_to_what_was_never_on_the_disk(tmp_path, sync):
    operation = PackAndAppend(sync)
    checker = Checker(operation, tmp_path)
    record, tried = checker.record, 0
    kinds = [step[0] for step in record.steps]
    steps, begun = record.steps, kinds.index("sync_folder") + 1
    for count in range(begun, len(steps) + 1):
        record.steps = steps[:count]
        for names, contents, done in machine_states(record, random.Random(1), 6):
            if done:
                tried += 1
                checker.lay_down(names, contents)
                found = operation.see(checker.folder)
                assert found in (operation.between, checker.new)
    assert tried > 50


# That a missing precaution would be noticed


def without(steps, kinds):
    return [step for step in steps if step[0] not in kinds]


@pytest.mark.parametrize("kind", ["sync", "sync_folder"])
def test_the_states_would_show_a_missing_sync(tmp_path, kind):
    checker = Checker(Compress(True, None), tmp_path)
    checker.record.steps = without(checker.record.steps, [kind])
    with pytest.raises((AssertionError, BloscpackError, OSError)):
        checker.check_all(machine_states(checker.record, random.Random(1), 9))


@pytest.mark.full
@pytest.mark.parametrize("number", range(4))
def test_the_states_would_show_each_missing_sync_of_an_append(tmp_path, number):
    checker = Checker(Append(nbytes=3000), tmp_path)
    steps = checker.record.steps
    syncs = [i for i, step in enumerate(steps) if step[0] == "sync"]
    assert 4 == len(syncs)
    del steps[syncs[number]]
    with pytest.raises((AssertionError, BloscpackError, OSError)):
        checker.check_all(machine_states(checker.record, random.Random(1), 30))


def test_the_states_would_show_a_chunk_at_the_old_end(tmp_path, monkeypatch):
    """Bytes there must not be a chunk before the old state can be restored."""
    monkeypatch.setattr(undo, "GUARD", 0)
    checker = Checker(Append(2000, 3000), tmp_path)
    with pytest.raises((AssertionError, BloscpackError, OSError)):
        checker.check_all(process_states(checker.record))


def test_the_states_would_show_what_is_written_in_place(tmp_path):
    checker = Checker(Compress(True, None), tmp_path)
    record = checker.record
    record.steps = [
        (step[0], record.names[TARGET], *step[2:])
        for step in record.steps
        if step[0] in ("write", "truncate")
    ]
    with pytest.raises((AssertionError, BloscpackError, OSError)):
        checker.check_all(process_states(record))


# Real processes

SCRIPT = """
import json, sys, warnings
import bloscpack
for path in sys.argv[1:]:
    plain, metadata = bloscpack.unpack_bytes_from_file(path)
    print(json.dumps([plain.hex(), metadata]))
"""


@pytest.mark.slow
def test_a_process_of_its_own_sees_the_same(tmp_path):
    checker = Checker(Append(nbytes=3000, metadata=[1], new=[2]), tmp_path)
    states = list(machine_states(checker.record, random.Random(2), 3))
    chosen = [*random.Random(3).sample(states, PROCESSES), states[-1]]
    seen = []
    for names, contents, _ in chosen:
        checker.lay_down(names, contents)
        found = run([sys.executable, "-c", SCRIPT, checker.folder / TARGET])
        plain, metadata = json.loads(found.stdout)
        seen.append((bytes.fromhex(plain), metadata))
        run(["blpk", "append", checker.folder / TARGET, checker.inputs / "new"])
        assert [TARGET] == os.listdir(checker.folder)
        plain, metadata = checker.operation.see(checker.folder)
        added = (checker.inputs / "new").read_bytes()
        assert (seen[-1][0] + added, seen[-1][1]) == (plain, metadata)
    assert {checker.old[0], checker.new[0]} == {plain for plain, _ in seen}
    assert all(found in (checker.old, checker.new) for found in seen)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_writers_that_are_killed_beside_readers(tmp_path):
    """The short form of `soak`."""
    said = run([sys.executable, Path(__file__).with_name("soak.py"), "25", "2"])
    assert said.stdout.startswith("25 rounds")
    assert 2 == said.stdout.count("all of them complete")


def run(command):
    """Run a command; `blpk` is that of this Python."""
    if command[0] == "blpk":
        script = "import sys; from bloscpack.cli import main; sys.exit(main())"
        command = [sys.executable, "-c", script, *command[1:]]
    return subprocess.run(
        command,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=300,
    )
