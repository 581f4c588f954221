"""Writers that are killed again and again, beside readers that never stop.

``python tests/crash/soak.py [ROUNDS [SEED]]``: in each round a process appends to a
file, or compresses over it, and is killed at a random moment, or is asked to end. The
file must then hold the state that the process had reported last, or the next one. Two
readers unpack the file all the time; each state that they see must be complete, and
none older than the one before. Needs ``fork``.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from crash.operations import has_undo_record
from support import reset_signals

import bloscpack
from bloscpack import cli
from bloscpack.append import append
from bloscpack.args import BloscpackArgs

CHUNK_SIZE = 2**14
# The generations that a file has before the next epoch takes its place.
FIRST, LAST = 4, 40
REPORT = struct.Struct("<qq")


# What a state holds: the generation tells how long it is, the epoch what is in it


def length_of(generation):
    """Return the number of items; every fifth generation adds many."""
    steps = range(generation + 1)
    return 10000 + sum(i * 7919 % 5000 + 30000 * (i % 5 == 4) for i in steps)


def items(epoch, start, stop):
    return (np.arange(start, stop, dtype="u4") + epoch * 1000003).astype("u4")


def whole(epoch, generation):
    return items(epoch, 0, length_of(generation)).tobytes()


def check(found):
    """Return (epoch, generation) of a result; it must be a complete state."""
    plain, metadata = found
    epoch, generation = metadata["epoch"], metadata["generation"]
    assert len(plain) == 4 * length_of(generation), "of another length"
    assert plain == whole(epoch, generation), "of other bytes"
    return epoch, generation


def described(epoch, generation):
    return {"epoch": epoch, "generation": generation, "room": [0] * 9}


class Place:
    """A folder with the file and the inputs of the writers."""

    def __init__(self, root):
        self.folder = Path(root) / "folder"
        self.folder.mkdir()
        self.file = self.folder / "file.blp"
        self.input, self.metadata, self.stop, self.errors = (
            Path(root) / name for name in ("input", "metadata", "stop", "errors")
        )

    def state(self):
        return check(bloscpack.unpack_bytes_from_file(self.file, nthreads=1))

    def next(self, epoch, generation, replace=False):
        """Prepare the next step; return its state and whether it is a replacement."""
        new = replace or generation == LAST
        if new:
            epoch, generation = epoch + 1, FIRST
            self.input.write_bytes(whole(epoch, FIRST))
        else:
            generation += 1
            start, stop = length_of(generation - 1), length_of(generation)
            self.input.write_bytes(items(epoch, start, stop).tobytes())
        self.metadata.write_text(json.dumps(described(epoch, generation)))
        return epoch, generation, new

    def left(self):
        """Return the names of files that should not exist."""
        return sorted({p.name for p in self.folder.iterdir()} - {self.file.name})

    def clear(self):
        """Remove the temporary files, which kill -9 leaves."""
        for name in self.left():
            if name.endswith(".tmp"):
                (self.folder / name).unlink()


# The writers


def go_on(place, state, sync=False):
    """Take the file one state further, with the library; return the state."""
    epoch, generation, new = place.next(*state)
    metadata = described(epoch, generation)
    if new:
        bloscpack.pack_file_to_file(
            place.input,
            place.file,
            CHUNK_SIZE,
            metadata,
            bloscpack_args=BloscpackArgs(max_app_chunks=2000),
            nthreads=1,
        )
    else:
        append(place.file, place.input, metadata=metadata, nthreads=2, sync=sync)
    return epoch, generation


def go_on_by_command(place, state, replace=False):
    """Take the file further, with ``blpk``, slowly."""
    epoch, generation, new = place.next(*state, replace)
    options = ["-c", "zstd", "-l", "9", "-m", str(place.metadata)]
    if new:
        options += ["-z", str(CHUNK_SIZE), "--max-app-chunks", "2000"]
        files = [str(place.input), str(place.file)]
        sys.argv = ["blpk", "-f", "-n", "2", "compress", *options, *files]
    else:
        files = [str(place.file), str(place.input)]
        sys.argv = ["blpk", "-n", "2", "append", *options, *files]
    cli.main()
    return epoch, generation


def forked(work, errors):
    """Run `work` in a child process; return its number and a pipe to read.

    Its error output goes to the file `errors`.
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if child:
        os.close(write_end)
        return child, read_end
    code = 1
    try:
        os.close(read_end)
        reset_signals()
        with open(errors, "a") as said:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
        work(lambda *state: os.write(write_end, REPORT.pack(*state)))
        code = 0
    except SystemExit as error:
        code = error.code or 0
    except (KeyboardInterrupt, cli.Terminated):
        pass  # between two commands
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


WRITERS = {
    "append": go_on,
    "append, synced": lambda place, state: go_on(place, state, sync=True),
    "blpk append": go_on_by_command,
    "blpk compress -f": lambda place, state: go_on_by_command(place, state, True),
}


def keep_writing(place, writer, report):
    """Write until the end comes, and report every state that is reached."""
    warnings.simplefilter("ignore", RuntimeWarning)
    state = place.state()
    while True:
        report(*state)
        state = WRITERS[writer](place, state)


# The readers


def keep_reading(place, report):
    """Read until told to stop, and report how often."""
    warnings.simplefilter("ignore", RuntimeWarning)
    os.nice(10)  # the writers are to be killed at work, not in the queue
    reads, before, states = 0, (0, 0), set()
    while not place.stop.exists():
        state = check(bloscpack.unpack_bytes_from_file(place.file, nthreads=2))
        assert state >= before, "state %s after %s" % (state, before)
        before = state
        states.add(state)
        reads += 1
    report(reads, len(states))


# The rounds


class Counts:
    """What has come of the rounds."""

    def __init__(self):
        self.rounds = self.steps = self.changes = self.temporary = self.ahead = 0


def one_round(place, chance, counts):
    """Start a writer, end it, and look at what it has left."""
    writer = chance.choice(list(WRITERS))
    signals = [signal.SIGKILL]
    if writer.startswith("blpk"):
        signals = [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT]
    number = chance.choice(signals)
    child, pipe = forked(
        lambda report: keep_writing(place, writer, report), place.errors
    )
    reports = os.read(pipe, REPORT.size)
    # Not before it is at work, and then at any moment.
    time.sleep(chance.random() * 0.03)
    os.kill(child, number)
    _, status = os.waitpid(child, 0)
    while more := os.read(pipe, 2**16):
        reports += more
    os.close(pipe)
    told = "%s ended by %s, status %d" % (writer, number.name, status)
    reached = REPORT.unpack(reports[-REPORT.size :])
    found = place.state()
    epoch, generation = reached
    assert found in (reached, (epoch, generation + 1), (epoch + 1, FIRST)), told
    left = place.left()
    counts.rounds += 1
    counts.steps += len(reports) // REPORT.size - 1
    counts.changes += has_undo_record(place.file.read_bytes())
    counts.temporary += any(name.endswith(".tmp") for name in left)
    counts.ahead += found != reached
    if number != signal.SIGKILL:
        assert left == [], told
    place.clear()
    if chance.random() < 0.5:  # else it is for the next writer to put right
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            after = go_on(place, found)
        assert after == place.state(), told
        assert place.left() == [], told


def soak(rounds, seed, root):
    """Run all rounds; return the counts and the reports of the readers."""
    chance = random.Random(seed)
    place = Place(root)
    place.input.write_bytes(whole(0, FIRST))
    bloscpack.pack_file_to_file(
        place.input,
        place.file,
        CHUNK_SIZE,
        described(0, FIRST),
        bloscpack_args=BloscpackArgs(max_app_chunks=2000),
        nthreads=1,
    )
    readers = [
        forked(lambda report: keep_reading(place, report), place.errors)
        for _ in range(2)
    ]
    counts = Counts()
    try:
        for _ in range(rounds):
            one_round(place, chance, counts)
            ended = [os.waitpid(child, os.WNOHANG)[0] for child, _ in readers]
            assert ended == [0, 0], "a reader saw what is no state"
    except BaseException:
        print(place.errors.read_text()[-5000:])
        raise
    finally:
        place.stop.touch()
        seen = [os.read(pipe, REPORT.size) for _, pipe in readers]
        for child, _ in readers:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, 0)
    return counts, [REPORT.unpack(report) for report in seen]


def main(rounds="300", seed="1"):
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as root:
        counts, readers = soak(int(rounds), int(seed), root)
    print(
        "%d rounds, %d steps done; left behind: %d interrupted changes, %d temporary "
        "files, %d times a step more than was reported" % tuple(vars(counts).values())
    )
    for reads, states in readers:
        print(
            "a reader saw %d states in %d reads, all of them complete" % (states, reads)
        )
    print("%.0f s" % (time.perf_counter() - start))


if __name__ == "__main__":
    main(*sys.argv[1:])
