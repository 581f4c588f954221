"""Several writers of one array."""

from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys
import threading
from binascii import crc32
from types import SimpleNamespace

import numpy as np
import pytest
from dataset import shared_programs
from dataset.crash_places import crash_place
from dataset.inside import ObjectChange, locking, shared, with_pending
from support import run_silently

from bloscpack import dataset
from bloscpack.exceptions import DoesNotFit, StorageError, UsageError

needs_locks = pytest.mark.skipif(os.name == "nt", reason="needs locks of files")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
HELD = "another writer.* has opened this folder"
ONE_WRITER = "commits all that is in it, and only one program at a time changes it"


@pytest.fixture
def path(tmp_path):
    """Return the path of a grid of 9 × 12 items in 6 shards, all zero."""
    path = tmp_path / "a"
    cut = {"chunks": (2, 3), "shards": (4, 6)}
    dataset.create_array(path, np.zeros((9, 12), "i4"), **cut).close()
    return path


def opened(path, **options):
    return dataset.open_array(path, "r+", shared=True, **options)


def run(*arguments):
    run_silently("-W", "error", shared_programs.__file__, *arguments, timeout=300)


def pauses_until(closing, monkeypatch):
    """Return a list that gets the pauses of a writer that waits.

    With the sixth one, ``closing()`` lets it in.
    """
    pauses = []

    def sleep(seconds):
        pauses.append(seconds)
        if len(pauses) == 6:
            closing()

    monkeypatch.setattr(locking.time, "sleep", sleep)
    return pauses


# Several processes


@pytest.mark.full
@needs_fork
@needs_locks
@pytest.mark.parametrize("name", list(shared_programs.ARRAYS))
def test_processes_that_assign_to_the_same_shards(name, tmp_path):
    """At first no shard has a file."""
    shared_programs.create(tmp_path / "a", name)
    run("overlapping", tmp_path / "a")


@needs_fork
@needs_locks
@pytest.mark.parametrize("name", ["rows", "grid"])
def test_processes_that_assign_to_rows_of_their_own(name, tmp_path):
    shared_programs.create(tmp_path / "a", name)
    run("disjoint", tmp_path / "a")


@needs_fork
@needs_locks
def test_an_array_of_another_program(tmp_path):
    """Whichever process is first gives it an identity."""
    shared_programs.create_foreign(tmp_path / "a")
    run("overlapping", tmp_path / "a")


@pytest.mark.full
@needs_fork
@needs_locks
@pytest.mark.parametrize("full", [False, True])
def test_a_writer_that_is_killed(full, tmp_path):
    shared_programs.create(tmp_path / "a", "rows", full=full)
    run("killed", tmp_path / "a")


# One process


@needs_locks
def test_each_object_sees_what_the_others_have_assigned(path):
    with opened(path) as one, opened(path) as other, dataset.open(path) as reader:
        assert 0 == one[0, 0] == other[8, 11] == reader[0, 0]
        one[:5, :7] = 1
        other[3:, 5:] = 2
        one[4] += 10
        expected = np.zeros((9, 12), "i4")
        expected[:5, :7] = 1
        expected[3:, 5:] = 2
        expected[4] += 10
        one.oindex[[8, 0], [3, 1]] = expected[np.ix_([8, 0], [3, 1])] = 7
        other.vindex[[8, 0], [3, 1]] = expected[[8, 0], [3, 1]] = 8
        for array in (one, other):
            np.testing.assert_array_equal(expected, array[...])
        reader.refresh()
        np.testing.assert_array_equal(expected, reader[...])
    assert ["c", "zarr.json"] == sorted(os.listdir(path))
    assert [] == dataset.verify(path).findings


@needs_locks
def test_threads(path):
    def work(array, number):
        for value in range(3):
            array[:, number::4] = 10 * number + value

    with opened(path) as one, opened(path) as other:
        threads = [
            threading.Thread(target=work, args=((one, other)[n % 2], n))
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            found = one[...]  # each shard is a state of its own
            assert all(
                len(set(found[a : a + 4, n])) == 1 for a in (0, 4) for n in range(12)
            )
        for thread in threads:
            thread.join()
        np.testing.assert_array_equal(np.tile([2, 12, 22, 32] * 3, (9, 1)), other[...])


@needs_locks
def test_closing_while_a_thread_reads(path, monkeypatch):
    """The thread finds it closed, and does not open it again."""
    array, begun, closed = opened(path), threading.Event(), threading.Event()
    renew, found = type(array._layout).renew, []

    def slow(layout):
        begun.set()
        assert closed.wait(60)
        renew(layout)

    def read():
        with pytest.raises(UsageError, match="the array is closed"):
            array[:]
        found.append(array.closed)

    monkeypatch.setattr(type(array._layout), "renew", slow)
    thread = threading.Thread(target=read)
    thread.start()
    assert begun.wait(60)
    array.close()
    closed.set()
    thread.join()
    assert [True] == found


def test_the_folder_of_locks(path):
    """It stays until the last writer is closed."""
    with opened(path) as array, opened(path) as other:
        array[0, 0] = 5
        assert (path / ".bloscpack").exists()
        other.close()
        assert (path / ".bloscpack").exists()
        array[0, 1] = 6
    assert ["c", "zarr.json"] == sorted(os.listdir(path))
    assert [5, 6, 0] == dataset.open(path)[0, :3].tolist()


@needs_locks
def test_values_that_do_not_fit(path):
    before = [(each, each.stat().st_ino) for each in sorted(path.rglob("*"))]
    with opened(path) as array:
        for key, value, error in [
            (..., 2**40, DoesNotFit),
            (..., "text", DoesNotFit),
            (slice(5), np.zeros((5, 11), "i4"), ValueError),
            ((0, 12), 1, IndexError),
        ]:
            with pytest.raises(error):
                array[key] = value
    assert before == [(each, each.stat().st_ino) for each in sorted(path.rglob("*"))]


@needs_locks
def test_only_assignments(path):
    with opened(path) as array:
        for change in (
            lambda: array.append(array[:2]),
            lambda: array.append(array[:, :2], axis=1),
            lambda: array.resize(3),
            lambda: array.attrs.update(a=1),
            lambda: array.attrs.put({}),
        ):
            with pytest.raises(UsageError, match=r"shared=True: .* Open it without"):
                change()
        array.flush()
        assert (9, 12) == array.shape
        assert {} == array.attrs
    with pytest.raises(UsageError, match="closed"):
        array[0] = 1
    with pytest.raises(UsageError, match="closed"):
        array[0]


@needs_locks
def test_other_datasets(tmp_path):
    with dataset.create_group(tmp_path / "g") as group:
        group.create_array("a", [1, 2])
        group.create_array("b", [1, 2], layout="superchunk")
        group.create_table("t", {"x": [1, 2]})
    refusal = "shared=True is for arrays of the layout 'zarr'"
    with dataset.open_group(tmp_path / "g", "r+", shared=True) as group:
        with opened(tmp_path / "g/a") as other:
            other[0] = 5
            group["a"][1] = 6
        assert [5, 6] == group.require_array("a", 2, "i8")[:].tolist()
        with pytest.raises(UsageError, match=r"shared=True: .* Open it without"):
            group.require_array("new", 2, "i8")
        for name in ("b", "t"):
            with pytest.raises(UsageError, match=refusal):
                group[name]
    with pytest.raises(UsageError, match=ONE_WRITER):
        opened(tmp_path / "g/t/x")


@needs_locks
def test_a_group_that_commits_its_members(tmp_path):
    """It has one writer at a time: it is not opened as if it could have several."""
    path = tmp_path / "g"
    with dataset.create_group(path) as group:
        group.create_array("in/a", [1, 2])
    early = dataset.open(path, "r+", shared=True)
    inner = early["in"]
    for each in (early, inner):
        with pytest.raises(UsageError, match="shared=True"), each.change():
            pass
    inner["a"][0] = 5
    inner["a"].close()
    with dataset.open(path, "r+") as group, group.change():
        pass
    for open_it in (dataset.open, dataset.open_group):
        for place in (path, path / "in", path / "in/a"):
            with pytest.raises(UsageError, match=ONE_WRITER):
                open_it(place, "r+", shared=True)
    # It was opened before the change.
    with early:
        for use in (lambda: early["in/a"], lambda: inner["a"]):
            with pytest.raises(UsageError, match=ONE_WRITER):
                use()
        assert ["in"] == list(early)
    assert [5, 2] == dataset.open(path)["in/a"][:].tolist()


@pytest.mark.parametrize("mode", ["r", "a", "w", "x"])
def test_modes(mode, path):
    with pytest.raises(UsageError, match=r"needs the mode 'r\+'"):
        dataset.open(path, mode, shared=True)


# Other writers


@needs_locks
def test_a_single_writer_keeps_others_away(path):
    with dataset.open(path, "r+"), pytest.raises(StorageError, match=HELD):
        opened(path, timeout=0)
    with opened(path), opened(path):
        for change in (
            lambda: dataset.open(path, "r+"),
            lambda: dataset.create_array(path, [1], mode="w"),
        ):
            with pytest.raises(StorageError, match=HELD):
                change()
    with dataset.open(path, "r+") as array:
        array.append(np.ones((1, 12), "i4"))


@needs_locks
def test_timeout(path, monkeypatch):
    """The holder is closed while another writer waits, longer from time to time."""
    pauses = pauses_until(lambda: holder.close(), monkeypatch)
    for options in ({}, {"shared": True}):
        pauses.clear()
        holder = dataset.open(path, "r+")
        dataset.open(path, "r+", timeout=60, **options).close()
        assert 6 == len(pauses)
        assert pauses[0] < pauses[-1] <= 1.5 * locking.MAX_PAUSE  # in part by chance
    with opened(path), pytest.raises(StorageError, match=HELD):
        dataset.open_array(path, "r+", timeout=0)
    for timeout in ("soon", float("nan")):
        with pytest.raises(UsageError, match="number of seconds"):
            dataset.open_array(path, "r+", timeout=timeout)


@needs_locks
def test_timeout_of_members(tmp_path, monkeypatch):
    with dataset.create_group(tmp_path / "g") as group:
        group.create_array("a", [1, 2])
    monkeypatch.setattr(locking.time, "sleep", lambda _: holder.close())
    holder = dataset.open(tmp_path / "g/a", "r+")
    with dataset.open_group(tmp_path / "g", "r+", timeout=60) as group:
        group["a"][0] = 3
    assert [3, 2] == dataset.open(tmp_path / "g/a")[:].tolist()


def begin_change(group):
    with group.change():
        pass


CALLS_OF_A_GROUP = {
    "open": lambda group: group["a"],
    "remove": lambda group: group.__delitem__("a"),
    "replace": lambda group: group.create_array("a", [3], mode="w"),
    "change": begin_change,
}


@needs_locks
@pytest.mark.parametrize("call", CALLS_OF_A_GROUP)
def test_timeout_of_a_group_whose_member_is_open(call, tmp_path, monkeypatch):
    """It is the time that each call waits: not at all, or longer than a second."""
    path, seconds = tmp_path / "g", []
    with dataset.create_group(path) as group:
        group.create_array("a", [1, 2]).close()
    clock = SimpleNamespace(
        monotonic=lambda: 10.0 * len(seconds),
        sleep=lambda _: holder.close() if len(seconds) == 3 else seconds.append(1),
    )
    monkeypatch.setattr(locking, "time", clock)
    holder = dataset.open(path / "a", "r+")
    held = pytest.raises(StorageError, match="another writer in this process")
    with dataset.open_group(path, "r+", timeout=0) as group, held:
        CALLS_OF_A_GROUP[call](group)
    assert [] == seconds
    with dataset.open_group(path, "r+", timeout=60) as group:
        CALLS_OF_A_GROUP[call](group)
    assert 3 == len(seconds)


@pytest.mark.skipif(not os.path.exists(locking.LOCKS), reason="Linux lists locks")
def test_the_process_that_has_the_lock(path):
    """Another one and this one; its name may have any characters."""
    program = (
        "import sys; from bloscpack import dataset\n"
        "open('/proc/self/comm', 'w').write('\\x1b[31m%%d\\n')\n"
        "array = dataset.open(sys.argv[1], 'r+', shared=%r)\n"
        "print('open', flush=True); sys.stdin.read()"
    )
    for is_shared in (False, True):
        with subprocess.Popen(
            [sys.executable, "-c", program % is_shared, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as other:
            assert "open\n" == other.stdout.readline()
            named = r"writer \(process %d, '\\x1b\[31m%%d'\) has" % other.pid
            with pytest.raises(StorageError, match=named):
                dataset.open(path, "r+")
            other.stdin.close()
    with opened(path) as one:
        opened(path).close()
        with pytest.raises(StorageError, match="another writer in this process has"):
            dataset.open(path, "r+")
        assert not one.closed


@needs_locks
def test_the_change_of_a_writer_that_died(path):
    """The first of several writers completes it."""
    changes = path / ".bloscpack"
    content = (path / "c/0/0").read_bytes()
    with dataset.open(path, "r+") as array:
        array[0, 0] = 4
    changes.mkdir()
    (path / "c/0/0").rename(changes / "new")
    (path / "c/0/0").write_bytes(content)
    document = path / "zarr.json"
    document.write_bytes(with_pending(document.read_bytes(), {"c/0/0": "new"}))
    with opened(path) as array:
        assert 4 == array[0, 0]
        assert not changes.exists()
        array[0, 0] = 5
    assert 5 == dataset.open(path)[0, 0]


@needs_locks
def test_a_writer_dies_while_the_array_is_opened(path, monkeypatch):
    """Its change is completed before another shard is assigned to."""

    def lock(folder, **options):
        if options.get("shared"):
            monkeypatch.setattr(shared, "FolderLock", genuine)
            (path / ".bloscpack").mkdir()
            (path / ".bloscpack/new").write_bytes(content)
            document = path / "zarr.json"
            pending = {"c/0/0": "new"}
            document.write_bytes(with_pending(document.read_bytes(), pending))
        return genuine(folder, **options)

    with dataset.open(path, "r+") as array:
        array[0, 0] = 4
        content = (path / "c/0/0").read_bytes()
        array[0, 0] = 0
    genuine = shared.FolderLock
    monkeypatch.setattr(shared, "FolderLock", lock)
    with opened(path) as array:
        array[0, 1] = 5
        assert [4, 5] == array[0, :2].tolist()
    assert [4, 5] == dataset.open(path)[0, :2].tolist()


@needs_locks
def test_another_program_writes_the_document(path):
    with opened(path) as array:
        array[0, 0] = 1
        shard = (path / "c/0/0").read_bytes()
        document = path / "zarr.json"
        text = document.read_text()
        document.write_text(text.replace('"attributes": {', '"attributes": {"a": 1'))
        nothing = r"changed 'zarr.json', and nothing more was assigned: open the array"
        with pytest.raises(StorageError, match=nothing):
            array[0, 0] = 2
        assert shard == (path / "c/0/0").read_bytes()
    with opened(path) as array:
        array[0, 0] = 3
    assert 3 == dataset.open(path)[0, 0]
    assert [] == dataset.verify(path).findings


def test_a_file_system_without_locks(path, monkeypatch):
    failure = OSError(95, "no locks here")
    monkeypatch.setattr(locking, "try_lock", lambda *_, **__: failure)
    with pytest.raises(StorageError, match=r"no locks.* without shared=True"):
        opened(path)


def lock_file(path):
    """Return the file that a writer locks while it assigns to the first shard."""
    return path / ".bloscpack" / ("lock-%d" % (crc32(b"c/0/0") % shared.STRIPES))


@needs_locks
@pytest.mark.parametrize("full", [False, True])
def test_a_lock_that_another_process_keeps(full, path):
    """A user who may read the file can lock it, also for a shard without a file."""
    import fcntl

    if not full:
        dataset.create_array(path, shape=(9, 12), dtype="i4", mode="w").close()
    with opened(path, timeout=0.02) as array:
        array[8, 11] = 1  # makes the folder of locks
        lock_file(path).touch()
        with open(lock_file(path)) as other:
            fcntl.flock(other, fcntl.LOCK_SH)
            with pytest.raises(
                StorageError, match=r"writer.* locked after 0.02 seconds"
            ) as e:
                array[0, 0] = 1
            assert str(path / "c/0/0") == e.value.filename
            if os.path.exists(locking.LOCKS):
                assert "(process %d, " % os.getpid() in str(e.value)
            fcntl.flock(other, fcntl.LOCK_UN)
        array[0, 0] = 1
    assert 1 == dataset.open(path)[0, 0]


@needs_locks
def test_a_lock_that_is_given_back(path, monkeypatch):
    """Without `timeout`, an assignment waits longer than an open does."""
    import fcntl

    with opened(path) as array:
        array[0, 0] = 2
        with open(lock_file(path)) as other:
            pauses = pauses_until(other.close, monkeypatch)
            fcntl.flock(other, fcntl.LOCK_EX)
            array[0, 0] = 1
    assert (6, 1) == (len(pauses), dataset.open(path)[0, 0])


@needs_locks
def test_locks_of_files_that_are_open_for_writing(path, monkeypatch):
    """NFS has no others, except those of folders."""
    import fcntl

    def try_lock(descriptor, shared=False):
        access = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
        if access == os.O_RDONLY and not shared:
            return OSError(errno.EBADF, os.strerror(errno.EBADF))
        return genuine(descriptor, shared)

    def descriptor(store, name, *flags):
        if flags:
            raise PermissionError(name)
        return real(store, name)

    genuine = locking.try_lock
    monkeypatch.setattr(locking, "try_lock", try_lock)
    with opened(path) as array:
        array[0, 0] = 1
        assert 1 == array[0, 0]
        real = shared.FolderStore.descriptor
        monkeypatch.setattr(shared.FolderStore, "descriptor", descriptor)
        with pytest.raises(StorageError, match=r"no locks.*shared=True.*0.0"):
            array[0, 0] = 2
    assert 1 == dataset.open(path)[0, 0]


# Pickles and forks


def array_that_was_pickled(path):
    with opened(path) as array:
        return pickle.loads(pickle.dumps(array))


@needs_locks
def test_pickle(path, monkeypatch):
    """A copy keeps single writers away only while it is changed."""
    monkeypatch.setattr(shared, "WAIT", 0)
    array = opened(path, sync=False)
    with array, pickle.loads(pickle.dumps(array)) as other:
        other[0, 0] = 1
        array[0, 1] = 2
        assert [1, 2, 0] == other[0, :3].tolist()
    copy = pickle.loads(pickle.dumps(array))
    with pytest.raises(UsageError, match="for reading"):
        copy[0, 0] = 1
    with array_that_was_pickled(path) as other:
        with dataset.open(path, "r+") as alone:
            alone[0, 0] = 3
            with pytest.raises(StorageError, match=HELD):
                other[0, 0] = 4
        other[0, 1] = 4
        assert [3, 4, 0] == other[0, :3].tolist()
        with dataset.open(path, "r+") as alone:
            alone.append(alone[:1])
        with pytest.raises(StorageError, match="open the dataset again"):
            other[0, 2] = 5
        with dataset.open(path, "r+") as alone:
            alone.attrs["a"] = 1
        other.refresh()
        assert (10, 12) == other.shape
        assert {"a": 1} == other.attrs
        other[9, 2] = 5
        assert 5 == other[9, 2] == dataset.open(path)[9, 2]
    with dataset.open(path, "r+") as alone:
        copy = pickle.loads(pickle.dumps(alone))
        with pytest.raises(UsageError, match="for reading"):
            copy[0, 0] = 1


# Stores of objects


@pytest.fixture
def url(tmp_path):
    """Return the URL of an array of 8 items in 2 shards, in a store with versions."""
    with crash_place("memory", tmp_path) as place:
        kept = {"chunks": 2, "shards": 4}
        dataset.create_array(place.name, np.zeros(8, "i4"), **kept).close()
        yield place.name


def test_conflicts_of_objects(url, monkeypatch):
    """Another writer stores a shard first: the change is made again."""

    def begin(change, name):
        monkeypatch.setattr(ObjectChange, "begin", genuine)
        other[:3] = 9
        return genuine(change, name)

    genuine = ObjectChange.begin
    with opened(url) as array, opened(url) as other:
        other[7] = 3
        monkeypatch.setattr(ObjectChange, "begin", begin)
        array[3:6] = 1
        assert [9, 9, 9, 1, 1, 1, 0, 3] == array[:].tolist() == other[:].tolist()
    assert [9, 9, 9, 1, 1, 1, 0, 3] == dataset.open(url)[:].tolist()
    assert [] == dataset.verify(url).findings


def test_a_change_of_objects_that_is_not_complete(url, monkeypatch):
    """The staged shards must not replace those of a shared writer later."""

    def stopped(change, files, root, copies):
        raise KeyboardInterrupt

    def assign():
        with dataset.open(url, "r+") as array:
            array[:] = 1

    monkeypatch.setattr(ObjectChange, "_complete", stopped)
    with pytest.raises(KeyboardInterrupt):
        assign()
    monkeypatch.undo()
    with opened(url) as array:
        array[0] = 2
        assert [2, *7 * [1]] == array[:].tolist()
    dataset.open(url, "r+").close()
    assert [2, *7 * [1]] == dataset.open(url)[:].tolist()
    assert [] == dataset.verify(url).findings


def test_a_single_writer_takes_objects_over(url):
    with opened(url) as array:
        array[0] = 1
        with dataset.open(url, "r+") as alone:
            array[1] = 2  # it has made no change yet
            alone[2] = 3
        with pytest.raises(StorageError, match="open it again"):
            array[3] = 4
    with opened(url) as array:
        array[3] = 4
    assert [1, 2, 3, 4, 0, 0, 0, 0] == dataset.open(url)[:].tolist()


def test_several_writers_take_objects_over(url):
    """The single writer must not overwrite a shard that it has read before."""
    with dataset.open(url, "r+") as alone:
        alone[0] = 1
        with opened(url) as array, opened(url) as other:
            array[1] = 2
            other[2] = 3
            with pytest.raises(StorageError, match="another program has changed"):
                alone[3] = 4
            array[3] = 5
    assert [1, 2, 3, 5, 0, 0, 0, 0] == dataset.open(url)[:].tolist()
    assert [] == dataset.verify(url).findings


def test_a_store_that_compares_no_versions(tmp_path):
    pytest.importorskip("fsspec", reason="the extra 'remote' is not installed")
    with crash_place("objects", tmp_path) as place:
        dataset.create_array(place.name, [1, 2]).close()
        with pytest.raises(UsageError, match=r"one writer at a time.* as S3 does"):
            opened(place.name)
