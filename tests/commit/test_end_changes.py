"""Changing a file in place: all or nothing, by one writer at a time."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import random
import stat
import subprocess
import sys
import threading

import builders
import pytest
from crash.operations import JOURNAL, TARGET, Append, Compress
from crash.watched_disk import WatchedDisk, replaced_disk
from support import as_user, environment, needs_root

import bloscpack
from bloscpack._commit import end_changes, locking, ownership
from bloscpack._commit.end_changes import FileObjectTarget
from bloscpack._commit.locking import open_locked
from bloscpack._commit.replacing import replacing
from bloscpack.append import append, append_fp, rewrite_metadata
from bloscpack.cli import main
from bloscpack.exceptions import StorageError

pytestmark = pytest.mark.usefixtures("usual_umask")
needs_locks = pytest.mark.skipif(os.name != "posix", reason="needs locks")


class Stop(BaseException):
    """An interruption, which is no Exception."""


# Taking changes back, in memory

OLD = b"0123456789"
EVERYWHERE = [(0, 10)]


def in_memory(fp):
    """Return a change to a mere file object."""
    return FileObjectTarget(fp).change(EVERYWHERE, b"", (0, 0))


def change_and_fail(fp, changes, error):
    with in_memory(fp) as change:
        for make in changes:
            make(change)
        raise error


def overwriting(offset, data):
    return lambda change: change.overwrite(offset, data)


def truncating(length):
    return lambda change: change.truncate(length)


# The content after the changes, and the changes.
CHANGES = [
    (OLD, []),
    (b"ab23456789", [overwriting(0, b"ab")]),
    (b"01234567ab", [overwriting(8, b"ab")]),
    (b"012345678abc", [overwriting(9, b"abc")]),
    (b"0123456789ab", [overwriting(10, b"ab")]),
    (b"abcdefghijkl", [overwriting(0, b"abcdefghijkl")]),
    (OLD, [overwriting(4, b"")]),
    (b"abcd", [overwriting(0, b"abcd"), truncating(4)]),
    (b"0123", [truncating(4)]),
    (b"", [truncating(0)]),
    (b"01234567", [truncating(9), truncating(8)]),
    (b"0123ab", [truncating(4), overwriting(4, b"ab")]),
    (b"0123abcdefghijkl", [truncating(4), overwriting(4, b"abcdefghijkl")]),
    (b"01aCDb6789", [overwriting(2, b"aaab"), overwriting(3, b"CD")]),
    (b"01aaCDEF89", [overwriting(2, b"aaaa"), overwriting(4, b"CDEF")]),
    (b"0CDEaa6789", [overwriting(3, b"aaa"), overwriting(1, b"CDE")]),
    (b"0123456789", [overwriting(10, b"ab"), truncating(10)]),
    (b"0123456789a", [overwriting(10, b"ab"), truncating(11)]),
    (b"ab", [truncating(5), overwriting(0, b"ab"), truncating(2)]),
]


@pytest.fixture(params=["memory", "disk", "raw"])
def old_file(request, tmp_path):
    """A file object over OLD, opened for reading and writing."""
    if request.param == "memory":
        yield io.BytesIO(OLD)
        return
    (tmp_path / "file").write_bytes(OLD)
    with open(tmp_path / "file", "r+b", buffering=-(request.param == "disk")) as fp:
        yield fp


def content_of(fp):
    fp.seek(0)
    return fp.read()


@pytest.mark.parametrize(("expected", "changes"), CHANGES)
def test_changes_that_are_made(old_file, expected, changes):
    with in_memory(old_file) as change:
        for make in changes:
            make(change)
    assert expected == content_of(old_file)


@pytest.mark.parametrize("error", [ValueError, Stop])
@pytest.mark.parametrize("changes", [changes for _, changes in CHANGES])
def test_changes_that_are_taken_back(old_file, changes, error):
    with pytest.raises(error):
        change_and_fail(old_file, changes, error)
    assert OLD == content_of(old_file)


def test_changes_reach_the_disk(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(OLD)
    with path.open("r+b") as fp:
        with in_memory(fp) as change:
            change.overwrite(0, b"ab")
        assert b"ab23456789" == path.read_bytes()
        with pytest.raises(Stop):
            change_and_fail(fp, [overwriting(2, b"cd")], Stop)
        assert b"ab23456789" == path.read_bytes()


def test_a_failure_at_the_very_end_is_taken_back():
    class Failing(io.BytesIO):
        failures = 1

        def flush(self):
            self.failures -= 1
            if self.failures == 0:
                raise OSError(errno.EIO, "Input/output error")

    fp = Failing(OLD)
    with pytest.raises(OSError, match="Input/output"), in_memory(fp) as change:
        change.overwrite(0, b"ab")
    assert OLD == fp.getvalue()


# Changes under a journal


# A file of three chunks, and what an append to it changes.
PACKED = builders.packed(random.Random(1).randbytes(2500), entries=9)
EXTENTS, NEW_HEAD, UNCHANGED = builders.planned_append(PACKED, 700)
LAST = UNCHANGED[1]
HEAD = PACKED[:32]


@pytest.fixture
def path(tmp_path):
    """A file that holds PACKED."""
    path = tmp_path / TARGET
    path.write_bytes(PACKED)
    return path


def with_bytes(last, head=HEAD, length=None):
    """Return PACKED with another head, and other bytes from the last chunk on."""
    rest = PACKED[LAST + len(last) : length]
    return head + PACKED[32:LAST] + last + rest


def journaled(locked_file):
    """Return a change that may write over the head and the last chunk."""
    return locked_file.change(EXTENTS, NEW_HEAD, UNCHANGED)


def change_journaled_and_fail(path, error):
    with open_locked(path) as locked_file, journaled(locked_file) as change:
        change.overwrite(LAST, b"much longer than it was" * 100)
        raise error


def names_in(folder):
    return sorted(os.listdir(folder))


def test_journal_is_there_during_the_change_only(path):
    with open_locked(path) as locked_file:
        assert [TARGET] == names_in(path.parent)
        with journaled(locked_file) as change:
            assert [TARGET, JOURNAL] == names_in(path.parent)
            assert PACKED == path.read_bytes()
            change.overwrite(LAST, b"wxyz")
            change.overwrite(0, NEW_HEAD)
            assert with_bytes(b"wxyz", NEW_HEAD) == path.read_bytes()
        assert [TARGET] == names_in(path.parent)
    assert with_bytes(b"wxyz", NEW_HEAD) == path.read_bytes()


def test_the_file_is_cut_after_the_commit(path):
    """While there is a journal, the file is at least as long as before."""
    lengths = []

    class Measuring(WatchedDisk):
        def remove(self, name):
            lengths.append(path.stat().st_size)
            super().remove(name)
            lengths.append(path.stat().st_size)

    before = path.stat().st_mtime_ns
    with (
        replaced_disk(Measuring()),
        open_locked(path) as locked_file,
        journaled(locked_file) as change,
    ):
        change.overwrite(LAST, b"short")
        change.truncate(LAST + 5)
        # No reader takes what follows for a chunk, or for another file.
        assert with_bytes(b"short" + bytes(16)) == path.read_bytes()
        change.overwrite(0, NEW_HEAD)
    assert [len(PACKED), len(PACKED)] == lengths
    assert with_bytes(b"short", NEW_HEAD, LAST + 5) == path.read_bytes()
    assert LAST + 5 == locked_file.size
    assert before + 2 <= path.stat().st_mtime_ns


def test_a_cut_that_fails_after_the_commit(path):
    class Uncut(WatchedDisk):
        def do(self, kind, call, *arguments):
            if kind == "truncate":
                raise OSError(errno.EIO, "Input/output error")
            return super().do(kind, call, *arguments)

    with (
        replaced_disk(Uncut()),
        open_locked(path) as locked_file,
        journaled(locked_file) as change,
    ):
        change.overwrite(LAST, b"short")
        change.truncate(LAST + 5)
    assert with_bytes(b"short" + bytes(16)) == path.read_bytes()
    assert [TARGET] == names_in(path.parent)


@pytest.mark.parametrize("error", [ValueError, Stop, KeyboardInterrupt])
def test_journal_is_gone_after_a_failure(path, error):
    with pytest.raises(error):
        change_journaled_and_fail(path, error)
    assert PACKED == path.read_bytes()
    assert [TARGET] == names_in(path.parent)


def test_several_changes_under_one_lock(path):
    with open_locked(path) as locked_file:
        times = [path.stat().st_mtime_ns]
        for new in (b"cc", b"dd"):
            with journaled(locked_file) as change:
                change.overwrite(LAST, new)
                os.utime(path, ns=(times[0], times[0]))  # a coarse clock
            times.append(path.stat().st_mtime_ns)
    assert with_bytes(b"dd") == path.read_bytes()
    assert 3 == len(set(times))


def test_a_change_shows_in_the_time_of_the_file_whatever_the_clock(path):
    """A clock that stands still between two changes must not hide the second."""
    before = path.stat()
    with (
        open_locked(path) as locked_file,
        journaled(locked_file) as change,
    ):
        change.overwrite(LAST, b"ab")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert before.st_mtime_ns < path.stat().st_mtime_ns


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o640, 0o664, 0o666, 0o660])
def test_who_may_read_the_file_may_read_the_journal(path, mode):
    """Only the owner of the journal may write it."""
    path.chmod(mode)
    with open_locked(path) as locked_file, journaled(locked_file):
        expected = mode & ~0o022
        assert expected == (path.parent / JOURNAL).stat().st_mode & 0o777


def give(name, status):
    """Give a file the owner, group and permission bits in `status`."""
    attributes = ownership.FileAccess(name)
    attributes.status = status
    ownership.copy_attributes(name, attributes, owner=True)


@pytest.mark.skipif(os.name != "posix", reason="needs owners")
@pytest.mark.parametrize(
    ("foreign", "mode", "expected"),
    [
        ("user", 0o660, 0o660),
        ("user", 0o4750, 0o750),
        ("user", 0o2750, 0o750),
        ("both", 0o660, 0o600),
        ("both", 0o664, 0o644),
        ("both", 0o644, 0o644),
        ("both", 0o604, 0o600),
        ("both", 0o6755, 0o755),
        ("group", 0o660, 0o600),
    ],
)
def test_what_can_not_be_given_away_is_open_to_nobody_new(
    path, monkeypatch, foreign, mode, expected
):
    path.parent.chmod(0o777)
    monkeypatch.chdir(path.parent)
    with as_user(12345):
        with open("mine", "xb"):
            mine = os.stat("mine")
        uid = mine.st_uid + (foreign != "group")
        gid = mine.st_gid if foreign == "user" else max([12345, *os.getgroups()]) + 1
        status = os.stat_result([mode, 0, 0, 1, uid, gid, 0, 0, 0, 0])
        give("mine", status)
        assert (mine.st_uid, mine.st_gid) == (os.stat("mine").st_uid, mine.st_gid)
    assert oct(expected) == oct(os.stat("mine").st_mode & 0o7777)


@needs_root
def test_the_group_stays_where_the_owner_can_not(path, monkeypatch):
    path.parent.chmod(0o777)
    monkeypatch.chdir(path.parent)
    with as_user(12345, 54321):
        with open("mine", "xb"):
            pass
        status = os.stat_result([0o660, 0, 0, 1, 0, 54321, 0, 0, 0, 0])
        give("mine", status)
    status = os.stat("mine")
    assert (12345, 54321, "0o660") == (
        status.st_uid,
        status.st_gid,
        oct(status.st_mode & 0o777),
    )


class Calls(WatchedDisk):
    """Counts calls by their kind."""

    def __init__(self):
        self.kinds = []

    def do(self, kind, call, *arguments):
        self.kinds.append(kind)
        return super().do(kind, call, *arguments)


SYNCED = [
    (Append(sync=True), 3, 2),
    (Append(sync=False), 0, 0),
    (Compress(False, None), 0, 0),
    (Compress(False, False), 0, 0),
    (Compress(False, True), 1, 1),
    (Compress(True, None), 1, 1),
    (Compress(True, True), 1, 1),
    (Compress(True, False), 0, 0),
]


@pytest.mark.parametrize(("operation", "files", "folders"), SYNCED)
def test_what_is_synced(tmp_path, operation, files, folders):
    (tmp_path / "folder").mkdir()
    operation.prepare(tmp_path / "folder")
    operation.provide(tmp_path)
    disk = Calls()
    with replaced_disk(disk):
        operation.run(tmp_path / "folder", tmp_path)
    # The file before the change, the journal, and the changed file.
    assert files == disk.kinds.count("sync")
    assert folders == disk.kinds.count("sync_folder")


# After an interrupted change


def interrupt(path, then=None):
    """Leave a file half changed, as a process does that is killed."""
    with open_locked(path) as locked_file:
        change = journaled(locked_file)
        change.__enter__()
        change.overwrite(LAST, b"longer than it was" * 50)
        change.overwrite(0, NEW_HEAD[:20])
    assert b"longer than it was" == path.read_bytes()[-18:]


def test_the_next_writer_restores_the_file_and_says_so(path):
    interrupt(path)
    with (
        pytest.warns(RuntimeWarning, match="restored") as caught,
        open_locked(path) as locked_file,
    ):
        assert (PACKED, [TARGET]) == (locked_file.fp.read(), names_in(path.parent))
    assert 1 == len(caught)
    assert "'%s'" % path in str(caught[0].message)
    assert PACKED == path.read_bytes()
    with open_locked(path):  # and only once
        pass


def test_so_does_replacing(path):
    interrupt(path)
    with pytest.warns(RuntimeWarning, match="restored"), replacing(path) as fp:
        fp.write(path.read_bytes() + b" and new")
    assert PACKED + b" and new" == path.read_bytes()
    assert [TARGET] == names_in(path.parent)


def test_a_failure_to_put_back_keeps_the_journal(path, monkeypatch):
    interrupt(path)

    def failing(*given):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(locking, "restore_bytes", failing)
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"), open_locked(path):
            pytest.fail("the content is not the old one")
        assert [TARGET, JOURNAL] == names_in(path.parent)
    monkeypatch.undo()
    with (
        pytest.warns(RuntimeWarning, match="restored"),
        open_locked(path) as locked_file,
    ):
        assert PACKED == locked_file.fp.read()


def test_a_failure_to_sync_is_taken_back(path):
    class Failing(WatchedDisk):
        count = 0

        def do(self, kind, call, *arguments):
            self.count += kind == "sync"
            if kind == "sync" and self.count == 2:
                raise OSError(errno.EIO, "Input/output error")
            return super().do(kind, call, *arguments)

    with (
        replaced_disk(Failing()),
        pytest.raises(OSError, match="Input/output"),
        open_locked(path) as locked_file,
        journaled(locked_file) as change,
    ):
        change.overwrite(LAST, b"wxyz")
    assert PACKED == path.read_bytes()
    assert [TARGET] == names_in(path.parent)


def test_a_full_disk_names_the_file(path):
    with pytest.raises(OSError, match="No space") as raised, open_locked(path):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert str(path) == raised.value.filename


@pytest.mark.parametrize("mode", ["r+b", "rb"])
def test_a_writer_that_died_while_another_waited(path, monkeypatch, mode):
    """The journal appears after it was looked for, and before the lock was had."""
    real_lock = locking.try_lock

    def late_lock(*args):
        monkeypatch.setattr(locking, "try_lock", real_lock)
        interrupt(path)
        return real_lock(*args)

    monkeypatch.setattr(locking, "try_lock", late_lock)
    with (
        pytest.warns(RuntimeWarning, match="restored"),
        open_locked(path, mode=mode) as locked_file,
    ):
        assert PACKED == locked_file.fp.read()


def test_a_file_that_was_replaced_while_another_waited(path, monkeypatch):
    real_lock = locking.try_lock

    def late_lock(*args):
        monkeypatch.setattr(locking, "try_lock", real_lock)
        with replacing(path) as new:
            new.write(b"another")
        return real_lock(*args)

    monkeypatch.setattr(locking, "try_lock", late_lock)
    with open_locked(path) as locked_file:
        assert b"another" == locked_file.fp.read()


# One writer at a time


def refused(path):
    """Assert that no writer can change the file, and that its content stays."""
    before = path.read_bytes()
    started = [
        lambda: open_locked(path).__enter__(),
        lambda: replacing(path).__enter__(),
        lambda: append(path, __file__),
        lambda: rewrite_metadata(path, {}),
        lambda: bloscpack.pack_bytes_to_file(b"new", path),
    ]
    for start in started:
        with pytest.raises(StorageError, match="another writer") as raised:
            start()
        assert str(path) == raised.value.filename
        assert errno.EAGAIN == raised.value.errno
    assert before == path.read_bytes()


@needs_locks
def test_second_writer_is_refused_at_once(path):
    with open_locked(path):
        refused(path)
        assert [TARGET] == names_in(path.parent)
    with open_locked(path):
        pass


@needs_locks
def test_second_writer_does_not_touch_the_journal_of_the_first(path):
    with open_locked(path) as locked_file, journaled(locked_file) as change:
        change.overwrite(LAST, b"wxyz")
        refused(path)
        assert [TARGET, JOURNAL] == names_in(path.parent)
    assert with_bytes(b"wxyz") == path.read_bytes()


@needs_locks
def test_second_thread_is_refused(path):
    errors = []

    def second():
        try:
            with open_locked(path):
                pytest.fail("there is another writer")
        except StorageError as error:
            errors.append(error)

    with open_locked(path):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert 1 == len(errors)


@needs_locks
def test_the_other_name_of_a_link_is_locked_too(path):
    link = path.with_name("link")
    link.symlink_to(path)
    with open_locked(link), pytest.raises(StorageError, match="another writer"):
        open_locked(path).__enter__()
    hard = path.with_name("hard")
    os.link(path, hard)
    with open_locked(hard), pytest.raises(StorageError, match="another writer"):
        open_locked(path).__enter__()


HOLDER = """
import sys
import tempfile
from bloscpack._commit.locking import open_locked
target = open_locked(sys.argv[1])
planned = [(0, 32)], bytes(32), (200, 300)
with target as locked, locked.change(*planned) as change:
    change.overwrite(0, b'b')
    print('ready', flush=True)
    sys.stdin.read()
"""


@needs_locks
def test_lock_of_another_process(path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, path],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert b"ready\n" == holder.stdout.readline()
        refused(path)
        holder.kill()
    # The lock ended with the process; the next writer restores the old bytes.
    with (
        pytest.warns(RuntimeWarning, match="restored"),
        open_locked(path) as locked_file,
    ):
        assert PACKED == locked_file.fp.read()
    assert [TARGET] == names_in(path.parent)


def test_without_locks_the_journal_keeps_others_out(path, monkeypatch):
    monkeypatch.setattr(locking, "try_lock", lambda *args: OSError("no locks"))
    second = open_locked(path)
    journaled_second = journaled(second.__enter__())
    with open_locked(path) as first, journaled(first) as change:
        change.overwrite(LAST, b"wxyz")
        with pytest.raises(FileExistsError) as raised:
            journaled_second.__enter__()
        assert not second.__exit__(type(raised.value), raised.value, None)
        assert [TARGET, JOURNAL] == names_in(path.parent)
    assert with_bytes(b"wxyz") == path.read_bytes()


def copied(locked_file):
    """Return a change of which nothing stays."""
    return locked_file.change([(0, len(PACKED))], b"", (0, 0))


def interrupted_at(line, work):
    """Return whether an interruption was raised at a line, or a call, of `in_place`."""
    left = line

    def trace(frame, event, argument):
        nonlocal left
        if frame.f_code.co_filename != end_changes.__file__:
            return None
        if event in ("line", "call"):
            left -= 1
            if left == 0:
                raise Stop
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except Stop:
        return True
    finally:
        sys.settrace(before)
    return False


# An interruption between opening a file and keeping it leaves it to be collected.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", ["journaled", "copied"])
def test_interruption_at_every_line(path, kind):
    changes = {"journaled": journaled, "copied": copied}
    new = with_bytes(b"wxyz", NEW_HEAD, LAST + 4)

    def change_it():
        with open_locked(path) as locked_file, changes[kind](locked_file) as change:
            change.overwrite(LAST, b"wxyz")
            change.truncate(LAST + 4)
            change.overwrite(0, NEW_HEAD)

    line = 0
    while interrupted_at(line := line + 1, change_it):
        assert [TARGET] == names_in(path.parent), line
        # Between commit and cut, or of a file that could not be cut.
        uncut = with_bytes(b"wxyz" + bytes(16), NEW_HEAD)
        assert path.read_bytes() in (PACKED, uncut, new), line
        path.write_bytes(PACKED)
    assert line > 50
    assert new == path.read_bytes()


@pytest.mark.parametrize("nbytes", [300, 301])
def test_interruption_at_every_line_of_a_change_in_memory(nbytes):
    """Also where there is less to append than was said."""
    original = bloscpack.pack_bytes_to_bytes(OLD * 100, 300)
    with io.BytesIO(original) as fp:
        append_fp(fp, io.BytesIO(b"x" * 300), 300, nthreads=1)
        new = fp.getvalue()
    line = 0

    def change_it():
        nonlocal fp
        fp = io.BytesIO(original)
        with contextlib.suppress(StorageError):
            append_fp(fp, io.BytesIO(b"x" * 300), nbytes, nthreads=1)

    expected = [original, new] if nbytes == 300 else [original]
    while interrupted_at(line := line + 1, change_it):
        assert fp.getvalue() in expected, line
    assert line > 80
    assert fp.getvalue() == expected[-1]


@needs_locks
def test_a_forked_process_does_not_keep_the_lock(path):
    read_end, write_end = os.pipe()
    with open_locked(path):
        child = os.fork()
        if not child:
            os.close(write_end)
            os.read(read_end, 1)
            os._exit(0)
    try:
        with open_locked(path):
            pass
    finally:
        os.close(write_end)
        os.waitpid(child, 0)
        os.close(read_end)


@needs_locks
def test_command_is_refused_too(path, capsys):
    arguments = ["-f", "compress", __file__, str(path)]
    with open_locked(path), pytest.raises(SystemExit) as raised:
        main(arguments)
    assert 1 == raised.value.code
    expected = "'%s': another writer in this process is changing this file" % path
    assert expected in capsys.readouterr().err
    assert PACKED == path.read_bytes()
    main(arguments)
    assert PACKED != path.read_bytes()


def test_names_of_files_that_are_not_there(tmp_path):
    for name in ("missing", "missing/file", "x" * 300):
        with pytest.raises(OSError, match=name[:7]) as raised:
            open_locked(tmp_path / name).__enter__()
        assert str(tmp_path / name) == os.fspath(raised.value.filename)


# Systems and file systems that lack something


def test_system_without_locks(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with open_locked(path), open_locked(path):
        pass


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS])
def test_file_system_without_locks(path, monkeypatch, capsys, code):
    """The user is warned once, in a program and by the command."""
    import fcntl

    def refuse(descriptor, operation):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(locking, "_WITHOUT_LOCKS", set())

    def lock_twice():
        for _ in range(2):
            with open_locked(path), open_locked(path):
                pass

    with pytest.warns(RuntimeWarning, match="the file system has no locks") as caught:
        lock_twice()
    assert 1 == len(caught)
    assert str(path) in str(caught[0].message)
    assert os.strerror(code) in str(caught[0].message)
    monkeypatch.setattr(locking, "_WITHOUT_LOCKS", set())
    plain = path.parent / "plain"
    plain.write_bytes(b"plain bytes")
    for _ in range(2):
        assert None is main(["-f", "compress", str(plain), str(path)])
    shown = capsys.readouterr().err.splitlines()
    assert 1 == len(shown)
    assert shown[0].startswith("blpk: '%s': the file system has no locks" % path)


def test_system_without_owners(path, tmp_path, monkeypatch):
    monkeypatch.delattr(os, "chown", raising=False)
    other = tmp_path / "other"
    other.write_bytes(b"")
    path.chmod(0o640)
    give(str(other), path.stat())
    assert 0o640 == stat.S_IMODE(other.stat().st_mode)


def test_no_copy_replaces_a_file_that_lost_its_name(path):
    with open_locked(path) as locked_file:
        locked_file._check_copy("'%d' links")
        path.unlink()
        with pytest.raises(StorageError, match="moved or replaced meanwhile") as raised:
            copied(locked_file)
    assert str(path) == raised.value.filename


def test_methods_that_every_change_defines():
    change = end_changes.EndChange(io.BytesIO(OLD), EVERYWHERE)
    for method in (change.restore, change._save_old_bytes, change._commit):
        with pytest.raises(NotImplementedError):
            method()


# Users who may write the file, but can't change it


@pytest.fixture
def shared(open_folder):
    """A file that holds PACKED, in a folder that every user may search."""
    path = open_folder / TARGET
    path.write_bytes(PACKED)
    return path


@needs_root
def test_a_folder_that_the_user_may_not_write(shared):
    shared.chmod(0o666)
    with (
        pytest.raises(StorageError) as raised,
        as_user(12345),
        open_locked(shared) as locked_file,
        journaled(locked_file) as change,
    ):
        change.overwrite(LAST, b"new")
    assert errno.EACCES == raised.value.errno
    assert str(shared) == raised.value.filename
    assert "is not writable, but append and metadata write a journal" in str(
        raised.value
    )
    assert PACKED == shared.read_bytes()


@needs_root
def test_a_folder_that_takes_no_new_file(shared):
    shared.chmod(0o666)
    with (
        pytest.raises(
            PermissionError, match="the new content of the file is first"
        ) as e,
        as_user(12345),
        open_locked(shared) as locked_file,
        locked_file.replacement(),
    ):
        pass
    assert (errno.EACCES, str(shared)) == (e.value.errno, e.value.filename)
    assert PACKED == shared.read_bytes()


@needs_root
def test_a_member_that_the_user_database_does_not_know_takes_no_file(shared):
    shared.chmod(0o660)
    os.chown(shared, 0, 54321)
    shared.parent.chmod(0o777)
    with (
        pytest.raises(StorageError, match="does not know the user 12345"),
        as_user(12345, 54321),
        open_locked(shared) as locked_file,
        journaled(locked_file) as change,
    ):
        change.overwrite(LAST, b"new")
    assert (0, 54321) == (shared.stat().st_uid, shared.stat().st_gid)
    assert PACKED == shared.read_bytes()
    assert [TARGET] == names_in(shared.parent)


@needs_root
@pytest.mark.parametrize("content", [b"text that is no journal", None])
def test_no_journal_is_said_to_remain_where_there_is_none(shared, content):
    name = shared.with_name(JOURNAL)
    shared.chmod(0o600)
    if content is None:
        name.mkdir()
    else:
        name.write_bytes(content)
    with pytest.raises(PermissionError) as raised, as_user(12345), open_locked(shared):
        pass
    assert "remains" not in str(raised.value)
