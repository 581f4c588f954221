"""Every state in which a crash may leave a folder, built from a record of real work.

A `Recorder` replaces the disk while an operation runs, and records each step.
`process_states` builds the states after each step, which `kill -9` may leave.
`machine_states` builds the states that a stop of the machine may leave: there the disk
has any part of the writes that were not synced. `check_all` writes each state to a
folder and runs a reader and a writer on it: the reader must see exactly the old or the
new content.

The long form: ``python tests/crash/states.py [SUBSETS [OPERATION ...]]``, with more
subsets, and with random operations, whose names are numbers.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import random
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from crash.operations import (
    LOOSE,
    TARGET,
    TIGHT,
    Append,
    AppendAndGrow,
    AppendToArray,
    AppendToGrid,
    AppendToPiped,
    AppendToShard,
    Compress,
    Decompress,
    MetadataOfShard,
    Operation,
    Recover,
    RecoverShard,
    Repack,
    RepackShard,
    RewriteMetadata,
    SaveArrays,
    TakenBack,
    has_undo_record,
    quietly,
    refill,
)
from crash.watched_disk import WatchedDisk, replaced_disk

SECTOR = 512


# The record


class Recorder(WatchedDisk):
    """Notes what changes a folder; ``steps`` are tuples of a word and its arguments.

    Files are numbered, and each gets a second name in the folder `keep`, so that a
    state can be laid down with the files that it had.
    """

    def __init__(self, folder, keep):
        self.folder, self.keep = Path(folder), Path(keep)
        self.steps = []
        self._numbers = {}
        self.names = {p.name: self._number(p) for p in sorted(self.folder.iterdir())}
        self.contents = {
            number: (self.folder / name).read_bytes()
            for name, number in self.names.items()
        }

    def _number(self, path):
        identity = os.stat(path).st_ino
        if identity not in self._numbers:
            number = self._numbers[identity] = len(self._numbers)
            os.link(path, self.keep / str(number))
        return self._numbers[identity]

    def _number_of(self, fp):
        return self._numbers.get(os.fstat(fp.fileno()).st_ino)

    def has_one_name(self, fp):
        return os.fstat(fp.fileno()).st_nlink == 2  # the other one is ours

    def _name(self, path):
        assert self.folder == Path(path).parent, "'%s' is elsewhere" % path
        return Path(path).name

    def do_write(self, raw, data, call, offset):
        written = call(data)
        content = bytes(data[:written])
        self.steps.append(("write", self._number_of(raw), offset, content))
        return written

    def do(self, kind, call, *arguments):
        result = super().do(kind, call, *arguments)
        if kind == "create":
            name = self._name(arguments[0])
            self.steps.append((kind, name, self._number(arguments[0])))
        elif kind in ("rename", "link"):
            old, new = map(self._name, arguments)
            number = self._numbers[os.stat(arguments[1]).st_ino]
            self.steps.append((kind, old, new, number))
        elif kind == "remove":
            self.steps.append((kind, self._name(arguments[0])))
        elif kind == "truncate":
            self.steps.append((kind, self._number_of(arguments[0]), arguments[1]))
        elif kind == "sync":
            self.steps.append((kind, self._number_of(arguments[0])))
        elif kind == "sync_folder":
            self.steps.append((kind, self._name(arguments[0])))
        return result


# From the record to the states


def changed(content, step):
    """Return the content of a file after a write or truncate."""
    if step[0] == "truncate":
        length = step[2]
        return content[:length] + bytes(max(0, length - len(content)))
    _, _, offset, data = step
    content += bytes(max(0, offset - len(content)))
    return content[:offset] + data + content[offset + len(data) :]


def renamed(names, step):
    """Return the names in the folder after a create, rename or remove."""
    names = dict(names)
    if step[0] == "create":
        names[step[1]] = step[2]
    elif step[0] == "remove":
        names.pop(step[1], None)
    else:  # all of it at once, or nothing
        if step[0] == "rename":
            names.pop(step[1], None)
        names[step[2]] = step[3]
    return names


def is_about_names(step):
    return step[0] in ("create", "rename", "link", "remove")


def is_about_bytes(step):
    return step[0] in ("write", "truncate")


def torn(step):
    """Yield what may have become of a write that was interrupted."""
    kind, number, offset, data = step
    for length in sorted({1, len(data) // 2, len(data) - 1}):
        if 0 < length < len(data):
            yield kind, number, offset, data[:length]


def process_states(record):
    """Yield (names, contents, done) for each step that may have been the last."""
    names, contents = record.names, dict(record.contents)
    yield names, contents, not record.steps
    for count, step in enumerate(record.steps, 1):
        if step[0] == "write":
            for part in torn(step):
                before = contents.get(step[1], b"")
                yield names, {**contents, step[1]: changed(before, part)}, False
        if is_about_bytes(step):
            before = contents.get(step[1], b"")
            contents = {**contents, step[1]: changed(before, step)}
        elif is_about_names(step):
            names = renamed(names, step)
        yield names, contents, count == len(record.steps)


def machine_states(record, chance, subsets):
    """Yield (names, contents, done) of states after a stop of the machine.

    Steps that were synced are in all states. Of the other steps, each one is missing
    once and is the only one once, torn or in zeros; `subsets` random subsets are added.
    """
    names, contents = record.names, dict(record.contents)
    pending_names, pending_bytes = [], []
    for count in range(len(record.steps) + 1):
        done = count == len(record.steps)
        for some_names in _choices_of_names(pending_names, chance, subsets):
            there = names
            for step in some_names:
                there = renamed(there, step)
            for some_bytes in _choices_of_bytes(
                pending_bytes, contents, chance, subsets
            ):
                yield there, _applied(contents, some_bytes), done
        if done:
            return
        step = record.steps[count]
        if is_about_names(step):
            pending_names.append(step)
        elif is_about_bytes(step):
            pending_bytes.append(step)
        elif step[0] == "sync_folder":
            for pending in pending_names:
                names = renamed(names, pending)
            pending_names = []
        elif step[0] == "sync":
            of_file = [pending for pending in pending_bytes if pending[1] == step[1]]
            contents = _applied(contents, of_file)
            pending_bytes = [p for p in pending_bytes if p[1] != step[1]]


def _applied(contents, steps):
    contents = dict(contents)
    for step in steps:
        contents[step[1]] = changed(contents.get(step[1], b""), step)
    return contents


def _choices_of_names(steps, chance, subsets):
    everything = list(itertools.product((False, True), repeat=len(steps)))
    if len(everything) > 8:
        everything = [everything[0], everything[-1], *chance.sample(everything, 6)]
    for kept in everything[: 8 + subsets]:
        yield list(itertools.compress(steps, kept))


def _choices_of_bytes(steps, contents, chance, subsets):
    yield steps
    if not steps:
        return
    yield []
    for i, step in enumerate(steps):
        yield steps[:i] + steps[i + 1 :]
        yield [step]
    for i in sorted({len(steps) - 1, chance.randrange(len(steps))}):
        if steps[i][0] == "write":
            parts = *torn(steps[i]), _partly_zero(steps[i], contents, chance)
            for part in parts:
                yield [*steps[:i], part, *steps[i + 1 :]]
    for _ in range(subsets):
        some = [step for step in steps if chance.random() < 0.5]
        if some and some[-1][0] == "write" and chance.random() < 0.5:
            some[-1] = _partly_zero(some[-1], contents, chance)
        yield some


def _partly_zero(step, contents, chance):
    """Return a write that left zeros in some of its sectors.

    A single byte is old or new: it is within a sector that was there before.
    """
    kind, number, offset, data = step
    if len(data) == 1:
        return step
    data = bytearray(data)
    start = 0
    while start < len(data):
        stop = min(len(data), start + SECTOR - (offset + start) % SECTOR)
        if chance.random() < 0.5:
            data[start:stop] = bytes(stop - start)
        start = stop
    return kind, number, offset, bytes(data)


def random_append(chance):
    """Return an append of any kind, or something else after one that was killed."""
    metadata = ["old"] * chance.randrange(3, 30)
    first = Append(
        chance.choice([0, 1, 999, 1000, 1001, chance.randrange(9000)]),
        chance.choice([1, 500, 1000, chance.randrange(1, 9000)]),
        new=chance.choice([None, ["new"], ["new"] * 5]),
        recompress=chance.choice([None, LOOSE, TIGHT]),
        checksum=chance.choice(["adler32", "sha512", "None"]),
        metadata=metadata,
        blosc_args=chance.choice([None, LOOSE, TIGHT]),
    )
    if chance.random() < 0.5:
        return first
    then = [Append(nbytes=chance.randrange(1, 3000)), RewriteMetadata()]
    return AfterCrash(first, chance.choice(then))


# Looking at the states


@contextlib.contextmanager
def beside(folder, word):
    """Make a folder beside another, for a while."""
    path = folder.with_name("%s-%s" % (folder.name, word))
    path.mkdir()
    try:
        yield path
    finally:
        shutil.rmtree(path)


def record_of(operation, folder, inputs, keep):
    """Run an operation and return the record of it."""
    recorder = Recorder(folder, keep)
    with replaced_disk(recorder):
        operation.run(folder, inputs)
    return recorder


def lay_down(names, contents, folder, keep):
    """Make `folder` hold a state, with the files of the record, which are in `keep`."""
    for path in folder.iterdir():
        path.unlink()
    for name, number in names.items():
        refill(keep / str(number), contents.get(number, b""))
        os.link(keep / str(number), folder / name)


class KeptDisk(WatchedDisk):
    """A disk on which every file has a second name, in the folder `keep`."""

    def has_one_name(self, fp):
        return os.fstat(fp.fileno()).st_nlink <= 2


class AfterCrash(Operation):
    """Another operation, after an append that was killed."""

    puts_back = True

    def __init__(self, first, then):
        self.first, self.then = first, then
        then.in_place = True  # to undo the first one

    def prepare(self, folder):
        self.first.prepare(folder)
        with beside(folder, "first") as inputs, beside(folder, "kept") as keep:
            self.first.provide(inputs)
            record = record_of(self.first, folder, inputs, keep)
            killed = [
                (names, contents)
                for names, contents, done in process_states(record)
                if not done
                and (len(names) > 1 or has_undo_record(contents[names[TARGET]]))
            ]
            lay_down(*killed[int(len(killed) * 0.7)], folder, keep)
        left = has_undo_record((folder / TARGET).read_bytes()), len(os.listdir(folder))
        assert left in [(True, 1), (False, 2)], "an undo record, or a copy"

    def provide(self, inputs):
        self.then.provide(inputs)

    def run(self, folder, inputs):
        quietly(self.then.run, folder, inputs)

    def see(self, folder):
        return self.then.see(folder)

    def follow(self, folder, inputs):
        self.then.follow(folder, inputs)


OPERATIONS = {
    "compress": Compress(False, None),
    "compress --sync": Compress(False, True),
    "compress -f": Compress(True, None),
    "compress -f --no-sync": Compress(True, False),
    "decompress -f": Decompress(),
    "recover -f": Recover(),
    "append into last chunk": Append(),
    "append many chunks": Append(nbytes=9300),
    "append --no-sync": Append(nbytes=2300, sync=False),
    "append shrinking": Append(2900, 50, recompress=TIGHT, blosc_args=LOOSE),
    "append to array": AppendToArray(nbytes=2400),
    "append to shard": AppendToShard(nbytes=24),
    "append to shard into last chunk": AppendToShard(nbytes=1),
    "append to shard shrinking": AppendToShard(
        29, nbytes=1, recompress=TIGHT, blosc_args=LOOSE
    ),
    "append to shard --grow": AppendToShard(grow=True, nbytes=24),
    "append to shard as array": AppendToShard(as_array=True, nbytes=7),
    "append to shard and metadata": AppendToShard(
        nbytes=7, metadata={"n": 0}, new={"n": 1}
    ),
    "append to shard without trailer": AppendToShard(lost=True, nbytes=7),
    "append to grid": AppendToGrid(nbytes=24),
    "append to grid as shard": AppendToGrid(before=20, shard=True, nbytes=7),
    "append to grid --grow": AppendToGrid(grow=True, nbytes=7),
    "metadata of shard": MetadataOfShard(),
    "repack shard": RepackShard(chunk_size=2000, cname="zstd"),
    "repack to shard": RepackShard(before=False, shard=True),
    "repack to no shard": RepackShard(shard=False),
    "recover shard -f": RecoverShard(),
    "append to one chunk": Append(400, 100),
    "append to one chunk --no-sync": Append(400, 1100, sync=False),
    "append to nothing": Append(0, 1500),
    "append and metadata": Append(nbytes=700, metadata={"n": 0}, new={"n": 1}),
    "append without digests": Append(nbytes=1700, checksum="None"),
    "append --grow": AppendAndGrow(nbytes=2300, room=0),
    "append --grow --no-sync": AppendAndGrow(nbytes=700, sync=False, room=0),
    "append --grow and metadata": AppendAndGrow(nbytes=700, new={"n": 1}),
    "append without offsets": AppendToPiped((500, 3), nbytes=700),
    "append to a file from a pipe": AppendToPiped(nbytes=2300),
    "append to a file from a pipe into last chunk": AppendToPiped(nbytes=1),
    "append to a file from a pipe --no-sync": AppendToPiped(nbytes=700, sync=False),
    "append taken back": TakenBack(),
    "repack": Repack(),
    "repack in other chunks": Repack(chunk_size=700, cname="zstd"),
    "repack --no-sync": Repack(False, max_app_chunks=99),
    "metadata": RewriteMetadata(),
    "savez": SaveArrays(),
    "savez to a new file": SaveArrays(False),
    "savez --no-sync": SaveArrays(sync=False),
    "append after crash": AfterCrash(Append(2900, 50, recompress=TIGHT), Append()),
    "metadata after crash": AfterCrash(
        Append(nbytes=5000, metadata=["m"] * 9), RewriteMetadata()
    ),
    "append --grow after crash": AfterCrash(
        Append(nbytes=5000, room=6), AppendAndGrow(nbytes=8000)
    ),
    "append after crash of repack": AfterCrash(Repack(), Append()),
    "repack after crash": AfterCrash(Append(nbytes=5000), Repack()),
    "compress -f after crash": AfterCrash(Append(), Compress(True, None)),
    "append to shard after crash": AfterCrash(
        AppendToShard(nbytes=30), AppendToShard(nbytes=7)
    ),
    "repack of shard after crash": AfterCrash(
        AppendToShard(nbytes=30), RepackShard(shard=False)
    ),
    "append after torn metadata": AfterCrash(RewriteMetadata(), Append(nbytes=1800)),
}


class Checker:
    """Runs an operation once, and then looks at all the states that it may leave."""

    def __init__(self, operation, folder):
        self.operation = operation
        self.root = Path(folder)
        self.folder, self.inputs, self.keep = (
            self.root / name for name in ("folder", "inputs", "keep")
        )
        for path in (self.folder, self.inputs, self.keep):
            path.mkdir()
        operation.prepare(self.folder)
        operation.provide(self.inputs)
        self.old = operation.see(self.folder)
        self.record = record_of(operation, self.folder, self.inputs, self.keep)
        self.new = operation.see(self.folder)
        self.tried = 0
        self._seen = set()
        self._after = [self._followed(done) for done in (False, True)]

    def _followed(self, done):
        """Return what a later writer makes of the state before, or after."""
        *_, last = process_states(self.record)
        first = next(process_states(self.record))
        names, contents, _ = last if done else first
        self.lay_down(names, contents)
        with replaced_disk(KeptDisk()):
            self.operation.follow(self.folder, self.inputs)
        return self.operation.see(self.folder)

    def lay_down(self, names, contents):
        """Make the folder hold a state."""
        lay_down(names, contents, self.folder, self.keep)

    @property
    def different(self):
        """The number of different states."""
        return len(self._seen)

    def check_all(self, states):
        for state in states:
            self.tried += 1
            key = self._key(*state)
            if key not in self._seen:
                self._seen.add(key)
                try:
                    self.check(*state)
                except BaseException:
                    self.tell(*state)
                    raise

    def _key(self, names, contents, done):
        digest = hashlib.sha1(b"%d" % done)
        for name, number in sorted(names.items()):
            content = contents.get(number, b"")
            digest.update(b"%s %d %d " % (name.encode(), number, len(content)))
            digest.update(content)
        return digest.digest()

    def check(self, names, contents, done):
        """Read what was left, and write to it, as programs do that come later."""
        self.lay_down(names, contents)
        found = self.operation.see(self.folder)
        assert found in ([self.new] if done else [self.old, self.new])
        with replaced_disk(KeptDisk()):
            self.operation.follow(self.folder, self.inputs)
        after = self.operation.see(self.folder)
        assert after in [
            expected
            for before, expected in zip((self.old, self.new), self._after, strict=True)
            if found == before
        ]
        assert [TARGET] == os.listdir(self.folder)
        assert not has_undo_record((self.folder / TARGET).read_bytes())

    def tell(self, names, contents, done):
        """Show the state that was not right."""
        for step in self.record.steps:
            print(*(x if not isinstance(x, bytes) else len(x) for x in step))
        for name, number in names.items():
            print("%s: %d, %d bytes" % (name, number, len(contents.get(number, b""))))
        print("at the end" if done else "on the way")


def check_operation(operation, folder, subsets, chance=None):
    """Check every state that an operation may leave; return the `Checker`, to count."""
    checker = Checker(operation, folder)
    checker.check_all(process_states(checker.record))
    if operation.synced:
        chance = chance or random.Random(1)
        checker.check_all(machine_states(checker.record, chance, subsets))
    return checker


def main(subsets="20", *names):
    import tempfile
    import time

    tried = different = 0
    for name in names or [*OPERATIONS, *map(str, range(100))]:
        start = time.perf_counter()
        operation = OPERATIONS.get(name) or random_append(random.Random(int(name)))
        with tempfile.TemporaryDirectory() as folder:
            checker = check_operation(operation, folder, int(subsets))
        tried += checker.tried
        different += checker.different
        print(
            "%-28s %3d steps %7d states, %6d different, all old or new %6.1f s"
            % (
                name,
                len(checker.record.steps),
                checker.tried,
                checker.different,
                time.perf_counter() - start,
            ),
            flush=True,
        )
    print("%d states, %d different" % (tried, different))


if __name__ == "__main__":
    main(*sys.argv[1:])
