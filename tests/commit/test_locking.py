"""Files that are changed by one writer at a time: locks, restoring, other users."""

from __future__ import annotations

import errno
import os
import random
import stat
import subprocess
import sys

import builders
import pytest
from crash.operations import TARGET, Append, Compress
from crash.watched_disk import WatchedDisk, replaced_disk
from support import as_user, environment, needs_root

import bloscpack
from bloscpack._commit import locking, ownership
from bloscpack._commit.locking import open_locked
from bloscpack._commit.replacing import replacing
from bloscpack.append import append, rewrite_metadata
from bloscpack.cli import main
from bloscpack.exceptions import StorageError

pytestmark = pytest.mark.usefixtures("usual_umask")
needs_locks = pytest.mark.skipif(os.name != "posix", reason="needs locks")


# A file of three chunks; a change may begin at its last chunk.
PACKED = builders.packed(random.Random(1).randbytes(2500), entries=9)
LAST = len(PACKED) - 500


@pytest.fixture
def path(tmp_path):
    """A file that holds PACKED."""
    path = tmp_path / TARGET
    path.write_bytes(PACKED)
    return path


def with_bytes(last):
    """Return PACKED with other bytes from the last chunk on."""
    return PACKED[:LAST] + last + PACKED[LAST + len(last) :]


def names_in(folder):
    return sorted(os.listdir(folder))


def test_a_change_shows_in_the_time_of_the_file_whatever_the_clock(path):
    """A clock that stands still between two changes must not hide the second."""
    before = path.stat()
    with (
        open_locked(path) as locked_file,
        locked_file.change() as change,
    ):
        change.overwrite(LAST, b"ab")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert before.st_mtime_ns < path.stat().st_mtime_ns


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


class Calls(WatchedDisk):
    """Counts calls by their kind."""

    def __init__(self):
        self.kinds = []

    def do(self, kind, call, *arguments):
        self.kinds.append(kind)
        return super().do(kind, call, *arguments)


SYNCED = [
    (Append(sync=True), 4, 1),
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
    assert files == disk.kinds.count("sync")
    assert folders == disk.kinds.count("sync_folder")


# After an interrupted change


def interrupt(path):
    """Leave a file half changed, as a process does that is killed."""
    path.write_bytes(builders.half_changed(PACKED))


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


def test_a_full_disk_names_the_file(path):
    with pytest.raises(OSError, match="No space") as raised, open_locked(path):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert str(path) == raised.value.filename


def test_a_writer_that_died_while_another_waited(path, monkeypatch):
    """The bit is set after the file was opened, and before the lock was had."""
    real_lock = locking.try_lock

    def late_lock(*args):
        monkeypatch.setattr(locking, "try_lock", real_lock)
        interrupt(path)
        return real_lock(*args)

    monkeypatch.setattr(locking, "try_lock", late_lock)
    with (
        pytest.warns(RuntimeWarning, match="restored"),
        open_locked(path) as locked_file,
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
def test_second_writer_does_not_touch_the_change_of_the_first(path):
    with open_locked(path) as locked_file, locked_file.change() as change:
        change.overwrite(LAST, b"wxyz")
        change.overwrite(len(PACKED), b"new" * 100)
        refused(path)
    assert with_bytes(b"wxyz") + b"new" * 100 == path.read_bytes()


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
with target as locked, locked.change() as change:
    change._mark = lambda: (print("ready", flush=True), sys.stdin.read())
    change.overwrite(600, b"b")
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


def test_no_copy_replaces_a_file_that_lost_its_name(path):
    with open_locked(path) as locked_file:
        path.unlink()
        with pytest.raises(StorageError, match="moved or replaced meanwhile") as raised:
            locked_file.replacement().__enter__()
    assert str(path) == raised.value.filename


# Users who may write the file, but can't change it


@needs_root
def test_a_folder_that_the_user_may_not_write(open_folder):
    """A change in place needs no other file."""
    shared = open_folder / TARGET
    shared.write_bytes(PACKED)
    shared.chmod(0o666)
    (shared.parent / "more").write_bytes(b"more")
    with as_user(12345):
        append(shared, shared.parent / "more")
        shared_content = bloscpack.unpack_bytes_from_file(shared)[0]
    assert b"more" == shared_content[-4:]
    status = shared.stat()
    assert (0, 0o666) == (status.st_uid, stat.S_IMODE(status.st_mode))


@needs_root
def test_a_folder_that_takes_no_new_file(open_folder):
    shared = open_folder / TARGET
    shared.write_bytes(PACKED)
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


HELD = "1: FLOCK  ADVISORY  WRITE {pid} {place} 0 EOF\n"


@needs_locks
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs Linux")
@pytest.mark.parametrize(
    ("is_named", "locks"),
    [
        (True, HELD),
        (True, "1: POSIX  ADVISORY  WRITE {pid} {place} 0 EOF\n" + HELD),
        (False, HELD.replace("FLOCK", "-> FLOCK")),  # it waits for the lock
        (False, HELD.replace("{place}", "00:00:0")),
        (False, HELD.replace("{pid}", "0")),  # a process that is not visible here
        (False, HELD.replace("{pid}", "999999999")),  # it has ended
        (False, "garbage\n"),
    ],
)
def test_the_process_that_has_locked_a_file(path, monkeypatch, is_named, locks):
    import fcntl

    status, list_of_locks = path.stat(), path.with_name("locks")
    numbers = os.major(status.st_dev), os.minor(status.st_dev), status.st_ino
    place = "%02x:%02x:%d" % numbers
    list_of_locks.write_text(locks.format(pid=os.getpid(), place=place))
    monkeypatch.setattr(locking, "LOCKS", str(list_of_locks))
    with open(path, "rb") as fp:
        fcntl.flock(fp, fcntl.LOCK_EX)
        with pytest.raises(StorageError, match="another writer") as raised:
            bloscpack.append_bytes_to_file(b"new", path)
    name = "another writer (process %d, '" % os.getpid()
    assert is_named == (name in str(raised.value))
