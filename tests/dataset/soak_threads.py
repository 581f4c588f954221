"""Threads and processes that change one object at the same time, and a model of it.

``python tests/dataset/soak_threads.py [RUNS [SEED [MIX ...]]]``: a mix is a kind of
object at a place, such as ``array path``. The mixes ``s3`` and ``s3 shared`` need moto,
and run only if they are named.

In each run of a mix, threads change one object, another thread reads it, and a process
forks: it must not be able to change what it has inherited. In ``s3 shared``, a second
process makes changes, too; one that meets a conflict opens the object again. Then all
that the calls have reported must be there, and ``verify`` must find nothing. The
program prints the mixes, their runs and each failure.
"""

from __future__ import annotations

import ast
import contextlib
import errno
import faulthandler
import itertools
import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import bloscpack as bp
from bloscpack import bigfile, dataset
from bloscpack.exceptions import StorageError, UsageError

THREADS = 4
# Changes of a thread in a run.
STEPS = 5
# Rows that are there from the beginning. They are in several shards, and always have
# the same value: a mixture of two states would have two.
COMMON = 24
# Rows of which each belongs to a thread.
OWN = range(COMMON, COMMON + THREADS)
# Number of rows of each append.
BLOCK = 3
# The variable with the settings of s3fs, for a second process.
S3_VARIABLE = "BLOSCPACK_SOAK_S3"


class Mix:
    """An object that threads change.

    Several threads call `change`, and one calls `look`. `intrude` is called in a child
    process. `check` compares the object, opened again, with the reported changes.
    `is_new` is False in a second process, which opens the object of the first.
    """

    def __init__(self, place, is_new=True):
        self.place = str(place)
        self.is_url = "://" in self.place
        self.is_new, self.is_shared = is_new, not is_new
        self.opening, self.times_opened = threading.Lock(), 0

    def reopen(self):
        """Open the object after another process has changed it."""
        raise NotImplementedError

    def model(self):
        """Return the reported changes as literals of Python."""
        plain = {n: v for n, v in vars(self).items() if isinstance(v, (dict, set))}
        blocks = {n: vars(v) for n, v in vars(self).items() if isinstance(v, Blocks)}
        return plain, blocks

    def add_model(self, plain, blocks):
        """Add what another process has reported."""
        for name, found in plain.items():
            getattr(self, name).update(found)
        for name, found in blocks.items():
            getattr(self, name).appended += found["appended"]
            getattr(self, name).removed += found["removed"]

    def change(self, thread, step, draw):
        raise NotImplementedError

    def look(self):
        """Read something, and check that it is a possible state."""

    def intrude(self):
        """Check that the inherited object can't be changed."""

    def check(self):
        raise NotImplementedError

    def _check_common(self, rows):
        """Check the rows that are assigned together.

        Another process assigns them shard by shard at a URL.
        """
        states = set(rows[:COMMON].tolist())
        assert self.is_shared or len(states) == 1, "a mixture of two states"

    def _check_refused(self, *calls):
        for call in calls:
            with pytest.raises(UsageError, match="process %d" % os.getppid()):
                call()

    def _check_locked(self):
        with pytest.raises(StorageError, match="another writer"):
            dataset.open(self.place, "r+")


def block_of(thread, step):
    """Return the value of the rows that a thread appends in a step."""
    return 1000 * (thread + 1) + step


class Blocks:
    """The blocks of equal rows that were appended, less those that were removed."""

    def __init__(self):
        self.appended = []
        self.removed = []

    def check(self, rows, *, complete):
        """Check rows behind those that were there from the beginning."""
        assert len(rows) % BLOCK == 0, len(rows)
        blocks = np.asarray(rows).reshape(-1, BLOCK)
        assert (blocks == blocks[:, :1]).all(), "a part of a block"
        found = blocks[:, 0].tolist()
        assert len(set(found)) == len(found), "a block is there twice"
        if complete:
            assert set(found) <= set(self.appended), "a block of no thread"
            expected = len(self.appended) - len(self.removed)
            assert expected == len(found), "%d blocks of %d" % (len(found), expected)
        for thread in range(THREADS):  # in the order of the thread
            steps = [n for n in found if n // 1000 == thread + 1]
            assert sorted(steps) == steps, "in another order"


class ArrayMix(Mix):
    layout = "zarr"

    def __init__(self, place, is_new=True):
        super().__init__(place, is_new)
        self.blocks, self.own, self.attributes = Blocks(), {}, {}
        if not is_new:  # it is opened by the first change
            return
        rows = np.zeros(COMMON + THREADS, "i8")
        cut = {"chunks": 4} if self.layout == "bcolz" else {"chunks": 4, "shards": 8}
        self.array = dataset.create_array(
            self.place, rows, layout=self.layout, sync=False, **cut
        )

    def reopen(self):
        self.array = dataset.open_array(self.place, "r+")

    def change(self, thread, step, draw):
        array, kind = self.array, draw.random()
        if kind < 0.4:
            value = block_of(thread, step)
            rows = [value] * BLOCK
            array.append(iter([rows[:1], rows[1:]]) if draw.random() < 0.3 else rows)
            self.blocks.appended.append(value)
        elif kind < 0.5:
            self._remove(array, thread, step)
        elif kind < 0.7:
            array[:COMMON] = block_of(thread, step)
        elif kind < 0.85:
            array[OWN[thread]] = self.own[thread] = block_of(thread, step)
        else:
            name = "%d-%d" % (thread, step)
            array.attrs[name] = self.attributes[name] = step

    def _remove(self, array, thread, step):
        """Append a block, and remove one: another thread may have added its own."""
        value = block_of(thread, step)
        array.append([value] * BLOCK)
        self.blocks.appended.append(value)
        with array._check_writer().turn():
            array.resize(len(array) - BLOCK)
        self.blocks.removed.append(value)

    def look(self):
        rows = self.array[:]
        self._check_common(rows)
        self.blocks.check(rows[COMMON + THREADS :], complete=False)
        assert len(rows[: len(self.array)]) >= COMMON + THREADS
        dict(self.array.attrs)
        assert self.array[-1] is not None

    def intrude(self):
        array = self.array
        self._check_refused(
            lambda: array.append([1]),
            lambda: array.resize(1),
            lambda: array.__setitem__(0, 1),
            lambda: array.attrs.update(a=1),
        )
        with contextlib.suppress(StorageError):  # the parent has just removed a block
            assert len(array[:COMMON]) == COMMON
        array.close()
        self._check_locked()

    def check(self):
        self.array.close()
        with dataset.open_array(self.place) as array:
            rows = array[:]
            self._check_common(rows)
            self.blocks.check(rows[COMMON + THREADS :], complete=True)
            for thread, value in self.own.items():
                assert value == rows[OWN[thread]], "an assignment is lost"
            assert self.attributes == dict(array.attrs), "attributes are lost"
        assert dataset.verify(self.place).ok, dataset.verify(self.place)


class SuperchunkMix(ArrayMix):
    layout = "superchunk"


class BcolzMix(ArrayMix):
    layout = "bcolz"


class TableMix(Mix):
    def __init__(self, place, is_new=True):
        super().__init__(place, is_new)
        self.blocks, self.own, self.attributes = Blocks(), {}, {}
        self.added = set()
        if not is_new:  # it is opened by the first change
            return
        x = np.zeros(COMMON + THREADS, "i8")
        self.table = dataset.create_table(
            self.place, {"x": x, "y": x / 2}, chunks=4, shards=8, sync=False
        )

    def reopen(self):
        self.table = dataset.open_table(self.place, "r+")

    def change(self, thread, step, draw):
        table, kind, value = self.table, draw.random(), block_of(thread, step)
        rows = np.array([(value, value / 2)] * BLOCK, [("x", "i8"), ("y", "f8")])
        if kind < 0.4:
            rows = {n: rows[n] for n in table.names if n in rows.dtype.names}
            with contextlib.suppress(UsageError):  # a thread has added a column
                table.append(rows)
                self.blocks.appended.append(value)
        elif kind < 0.6:
            table["x"][OWN[thread]] = self.own[thread] = value
        elif kind < 0.7:
            with contextlib.suppress(UsageError):
                table[:COMMON] = {"x": value, "y": value / 2}
        elif kind < 0.8:
            name = "%d-%d" % (thread, step)
            table.attrs[name] = self.attributes[name] = step
        else:
            self._add(table, thread)

    def _add(self, table, thread):
        name = "z%d" % thread
        if name in self.added:
            table.remove_column(name)
            self.added.discard(name)
            return
        with contextlib.suppress(UsageError):  # the table has got rows meanwhile
            table.add_column(name, np.zeros(len(table)))
            self.added.add(name)

    def look(self):
        rows = self.table[["x", "y"]]
        self._check_common(rows)
        new = rows[COMMON + THREADS :]
        assert (new["x"] == 2 * new["y"]).all(), "rows of two states"
        self.table[len(self.table) - 1]
        dict(self.table.attrs)

    def intrude(self):
        table = self.table
        self._check_refused(
            lambda: table.append({"x": [1], "y": [1]}),
            lambda: table.resize(1),
            lambda: table["x"].__setitem__(0, 1),
            lambda: table.remove_column("x"),
            lambda: table.attrs.update(a=1),
        )
        table.close()
        self._check_locked()

    def check(self):
        self.table.close()
        with dataset.open_table(self.place) as table:
            assert {"x", "y", *self.added} == set(table.names), "columns"
            x, y = table["x"][:], table["y"][:]
            self.blocks.check(x[COMMON + THREADS :], complete=True)
            assert (x[COMMON + THREADS :] == 2 * y[COMMON + THREADS :]).all()
            for thread, value in self.own.items():
                assert value == x[OWN[thread]], "an assignment is lost"
            assert self.attributes == dict(table.attrs), "attributes are lost"
        assert dataset.verify(self.place).ok, dataset.verify(self.place)


class GroupMix(Mix):
    def __init__(self, place, is_new=True):
        super().__init__(place, is_new)
        self.members, self.appended, self.attributes = {}, Blocks(), {}
        if not is_new:  # it is opened by the first change
            return
        self.group = dataset.create_group(self.place, sync=False)
        self.group.create_array("common", shape=(0,), dtype="i8", chunks=4)

    def reopen(self):
        self.group = dataset.open_group(self.place, "r+", sync=False)

    def change(self, thread, step, draw):
        group, kind = self.group, draw.random()
        name = "m%d-%d" % (thread, step)
        if kind < 0.4:
            group.create_array(name, [step])
            self.members[name] = step
        elif kind < 0.5:
            mine = [n for n in list(self.members) if n.startswith("m%d-" % thread)]
            if mine:
                del group[mine[0]]
                del self.members[mine[0]]
        elif kind < 0.6:
            group.require_group("in/ner").create_array(name, [step])
            self.members["in/ner/" + name] = step
        elif kind < 0.8:
            value = block_of(thread, step)
            group["common"].append([value] * BLOCK)
            self.appended.appended.append(value)
        else:
            group.attrs[name] = self.attributes[name] = step

    def look(self):
        list(self.group)
        self.appended.check(self.group["common"][:], complete=False)
        dict(self.group.attrs)

    def intrude(self):
        group = self.group
        self._check_refused(
            lambda: group.create_array("of-child", [1]),
            lambda: group.require_group("of-child"),
            lambda: group.__delitem__("common"),
            lambda: group.attrs.update(a=1),
        )
        group.close()
        # Groups are shared: another process may open the group, and create members.
        with dataset.open_group(self.place, "r+", sync=False) as own:
            own.create_array("own-of-child", [7]).close()
            own.attrs["child"] = 7

    def check(self):
        self.group.close()
        with dataset.open_group(self.place) as group:
            for name, value in self.members.items():
                assert [value] == group[name][:].tolist(), "a member is lost"
            names = {name.partition("/")[0] for name in self.members}
            rest = set(group) - {"common", "in", "own-of-child"}
            assert rest == names - {"in"}, "members: %s" % (rest ^ names)
            self.appended.check(group["common"][:], complete=True)
            found = dict(group.attrs)
            if "own-of-child" in group:
                assert 7 == found.pop("child"), "attributes of the child are lost"
            assert self.attributes == found, "attributes are lost"
        assert dataset.verify(self.place).ok, dataset.verify(self.place)


class FileMix(Mix):
    """A file object: its records are whole, and in the order of each thread."""

    def __init__(self, place):
        super().__init__(place)
        self.place += ".blp"
        self.records = []
        self.file = bp.open(self.place, "wb", chunk_size=64, sync=False, nthreads=2)

    def change(self, thread, step, draw):
        record = b"%3d%5d" % (thread, step)
        record += bytes([65 + thread]) * (4 + 30 * thread) + b"\n"
        assert len(record) == self.file.write(record)
        self.records.append(record)
        if draw.random() < 0.2:
            self.file.flush()

    def intrude(self):
        self._check_refused(
            lambda: self.file.write(b"child"), self.file.flush, self.file.close
        )

    def check(self):
        self.file.close()
        with bp.open(self.place) as file:
            lines = file.readlines()
        assert sorted(self.records) == sorted(lines), "records are lost"
        with bp.open(self.place) as file:  # several threads read it, too
            whole, step = b"".join(lines), 50

            def read(thread):
                for start in range(thread * step, len(whole), THREADS * step):
                    assert whole[start : start + step] == file.pread(step, start)

            assert [] == run_threads(read)
        for thread in range(THREADS):
            mine = [line for line in lines if line.startswith(b"%3d" % thread)]
            assert sorted(mine) == mine, "in another order"
        if not self.is_url:
            assert bp.verify(self.place).ok


class BigFileMix(Mix):
    def __init__(self, place):
        super().__init__(place)
        self.tree = bigfile.File(self.place, create=True)
        self.first = COMMON + THREADS + 1  # one row of the child
        self.column = self.tree.create("g/x", "i8", self.first, 3)
        self.column.write(0, np.zeros(self.first, "i8"))
        self.blocks, self.own, self.attributes = Blocks(), {}, {}
        self.created = {"g/x"}

    def change(self, thread, step, draw):
        kind, value = draw.random(), block_of(thread, step)
        if kind < 0.3:
            self.column.append([value] * BLOCK)
            self.blocks.appended.append(value)
        elif kind < 0.5:
            self.column.write(0, np.full(COMMON, value))
        elif kind < 0.65:
            self.column.write(OWN[thread], [value])
            self.own[thread] = value
        elif kind < 0.75:
            self.column.flush()
        elif kind < 0.85:
            name = "g/y%d-%d" % (thread, step)
            self.tree.create_from_array(name, np.arange(3)).close()
            self.created.add(name)
        else:
            name = "%d-%d" % (thread, step)
            self.column.attrs[name] = self.attributes[name] = step

    def look(self):
        rows = self.column[:]
        assert len(rows) >= self.first
        dict(self.column.attrs)
        assert "g/x" in self.tree.blocks

    def intrude(self):
        # Processes share a column; rows of different processes must differ.
        self.column.write(self.first - 1, [7])
        with bigfile.File(self.place)["g/x"] as column:
            column.attrs["child"] = 7

    def check(self):
        self.column.close()
        with bigfile.File(self.place)["g/x"] as column:
            rows = column[:]
            assert len(set(rows[:COMMON].tolist())) == 1
            self.blocks.check(rows[self.first :], complete=True)
            for thread, value in self.own.items():
                assert value == rows[OWN[thread]], "a row is lost"
            found = {n: int(v[0]) for n, v in column.attrs.items() if n != "child"}
            assert self.attributes == found, "attributes are lost"
        assert self.created == set(self.tree.blocks), "blocks"
        report = bigfile.verify(self.place)
        assert not report.findings, report.findings


KINDS = {
    "array": ArrayMix,
    "superchunk": SuperchunkMix,
    "bcolz": BcolzMix,
    "table": TableMix,
    "group": GroupMix,
    "file": FileMix,
    "bigfile": BigFileMix,
}
# What can be changed at a URL.
AT_URLS = ("array", "table", "group", "file")
# What several processes may change at a URL: a file is written by one.
SHARED = ("array", "table", "group")
MIXES = [
    *((kind, "path") for kind in KINDS),
    *((kind, "url") for kind in AT_URLS),
]
# The places are in a server, which an environment variable names.
S3_MIXES = [
    *((kind, "s3") for kind in AT_URLS),
    *((kind, "s3 shared") for kind in SHARED),
]


def run_threads(work, count=THREADS, beside=None):
    """Call ``work(number)`` in threads; return the text of each error.

    `beside` is called again and again by another thread until they have ended.
    """
    errors, ended = [], threading.Event()

    def call(number):
        try:
            work(number)
        except BaseException:
            errors.append(traceback.format_exc())

    def keep_on():
        try:
            while not ended.is_set():
                beside()
        except BaseException:
            errors.append(traceback.format_exc())

    threads = [threading.Thread(target=call, args=(i,)) for i in range(count)]
    other = [] if beside is None else [threading.Thread(target=keep_on)]
    for thread in (*threads, *other):
        thread.start()
    for thread in threads:
        thread.join()
    ended.set()
    for thread in other:
        thread.join()
    return errors


def fork_error(work):
    """Call `work` in a child process; return the text of its error, or None."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of forks in a process with threads
        child = os.fork()
    if not child:
        # A child that waits for ever ends, also if the caller ignores this signal.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
        # Say where it waits or crashes.
        faulthandler.register(signal.SIGALRM, file=writer, chain=True)
        faulthandler.enable(writer)
        signal.alarm(20)
        text = b""
        try:
            work()
        except BaseException:
            text = traceback.format_exc().encode()
        os.write(writer, text[-4000:])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read().decode()
    status = os.waitpid(child, 0)[1]
    if status:
        text += "the child process was ended, status %d" % status
    return text or None


def draws_for(seed):
    draw = random.Random(seed)
    return [random.Random(draw.random()) for _ in range(THREADS)]


def change_beside_others(mix, thread, draw):
    """Make the changes of a thread, beside those of another process."""
    steps = itertools.count()
    for _ in range(STEPS):
        failed = None if mix.is_new else 0
        while True:
            current = failed
            try:
                # Once for all threads: else one could go on with an older object.
                with mix.opening:
                    if failed == mix.times_opened:
                        mix.reopen()
                        mix.times_opened += 1
                    current = mix.times_opened
                mix.change(thread, next(steps), draw)
                break
            except StorageError as error:
                # Or another thread of this process has met the conflict.
                changed = error.errno in (errno.EAGAIN, errno.ESTALE)
                if not changed and "open it again" not in str(error):
                    raise
                failed = current


def second_process(kind, place, seed):
    """Change what another process has created, and print what was changed."""
    mix, draws = KINDS[kind](place, is_new=False), draws_for(seed)
    half = THREADS // 2
    errors = run_threads(
        lambda n: change_beside_others(mix, half + n, draws[half + n]), half
    )
    print(repr((mix.model(), errors)))


def run_processes(kind, place, seed):
    """Run a mix in two processes, and return the text of each error."""
    mix, draws = KINDS[kind](place), draws_for(seed)
    mix.is_shared = True
    command = [sys.executable, __file__, "second", kind, mix.place, str(seed)]
    other = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    errors = run_threads(
        lambda n: change_beside_others(mix, n, draws[n]), THREADS // 2, mix.look
    )
    with other:
        text = other.communicate(timeout=120)[0]
    if other.returncode:
        return [*errors, "the second process has failed"]
    model, errors_of_other = ast.literal_eval(text)
    mix.add_model(*model)
    try:
        mix.reopen()
        mix.check()
    except BaseException:
        errors.append(traceback.format_exc())
    return errors + errors_of_other


def run(kind, place, seed, forks=True, is_shared=False):
    """Run a mix once at a new path or URL; return the text of each error."""
    if is_shared:
        return run_processes(kind, place, seed)
    draws = draws_for(seed)
    mix = KINDS[kind](place)
    errors = []

    def work(thread):
        for step in range(STEPS):
            mix.change(thread, step, draws[thread])

    forks = forks and hasattr(os, "fork") and not mix.is_url

    def work_or_fork(number):
        if number < THREADS:
            work(number)
            return
        error = fork_error(mix.intrude)
        if error:
            errors.append("in the child process:\n" + error)

    errors += run_threads(work_or_fork, THREADS + forks, mix.look)
    try:
        mix.check()
    except BaseException:
        errors.append(traceback.format_exc())
    return errors


NUMBERS = itertools.count()


@contextlib.contextmanager
def new_place(where, folder):
    """Yield a new path or URL, and remove what is there in the end."""
    name = "shared-%d-%d" % (os.getpid(), next(NUMBERS))
    if where == "path":
        path = Path(folder) / name
        yield path
        for found in Path(folder).glob(name + "*"):
            shutil.rmtree(found) if found.is_dir() else found.unlink()
        return
    import fsspec

    if where.startswith("s3"):
        yield "s3://bucket/%s" % name
        return
    yield "memory://%s" % name
    store = fsspec.filesystem("memory")
    for found in [n for n in list(store.store) if n.startswith("/" + name)]:
        store.store.pop(found, None)


@contextlib.contextmanager
def s3_server(folder):
    """Let URLs of S3 mean a server, in this process and in those that it starts."""
    import fsspec.config
    from storage import object_stores

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with object_stores.moto(Path(folder)) as options:
        object_stores.make_bucket(options)
        os.environ[S3_VARIABLE] = json.dumps(options)
        fsspec.config.conf["s3"] = options
        try:
            yield
        finally:
            del os.environ[S3_VARIABLE], fsspec.config.conf["s3"]


def main(runs=200, seed=1, *kinds):
    """Run each mix; return 1 if a run has failed."""
    if not any("s3" in kind for kind in kinds):
        return run_mixes(MIXES, runs, seed, *kinds)
    with tempfile.TemporaryDirectory() as folder, s3_server(folder):
        # The process of the server has no other work.
        command = [sys.executable, __file__, "s3", str(runs), str(seed), *kinds]
        return subprocess.run(command, check=False).returncode


def run_mixes(mixes, runs, seed, *kinds):
    sys.setswitchinterval(1e-5)
    failures = 0
    for kind, where in mixes:
        if kinds and not {"%s %s" % (kind, where), kind, where} & {*kinds}:
            continue
        is_shared = where.endswith("shared")
        failed, begin = 0, time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            # Imports everything: a fork keeps locks of modules that others import.
            with new_place(where, folder) as place:
                run(kind, place, seed, forks=False, is_shared=is_shared)
            for number in range(int(runs)):
                own = "%s %s %s %d" % (seed, kind, where, number)
                with new_place(where, folder) as place:
                    errors = run(kind, place, own, is_shared=is_shared)
                if errors:
                    failed += 1
                    print("%s %s: run %d of seed %s" % (kind, where, number, seed))
                    print("\n".join(errors[:3]), flush=True)
        seconds = time.monotonic() - begin
        text = "%-10s %-9s: %d runs, %d failed, %.0f s"
        print(text % (kind, where, int(runs), failed, seconds), flush=True)
        failures += failed
    return 1 if failures else 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    program, arguments = main, sys.argv[1:]
    if S3_VARIABLE in os.environ:
        import fsspec.config

        fsspec.config.conf["s3"] = json.loads(os.environ[S3_VARIABLE])
        programs = {"s3": partial(run_mixes, S3_MIXES), "second": second_process}
        program = programs[arguments.pop(0)]
    sys.exit(program(*arguments))
