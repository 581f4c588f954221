"""Temporary files: whose they are, and what happens to those of dead writers."""

import errno
import os
import subprocess
import sys

import pytest
from crash.watched_disk import WatchedDisk, replaced_disk
from support import as_user, environment, needs_root

import bloscpack
from bloscpack._commit.replacing import replacing
from bloscpack._commit.temporary import TemporaryFile, remove_leftovers
from bloscpack._storage.disk import disk
from bloscpack.append import append, append_bytes_to_file
from bloscpack.exceptions import StorageError

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs locks and links")


def names_in(folder):
    return sorted(os.listdir(folder))


def temporaries_in(folder):
    return [name for name in names_in(folder) if name.endswith(".tmp")]


def put_in_place(path, name, victim, kind):
    """Put something else in the place of a temporary file."""
    os.unlink(name)
    if kind == "symbolic link":
        os.symlink(victim, name)
    elif kind == "hard link":
        os.link(victim, name)
    elif kind == "file":
        path.parent.joinpath(name).write_bytes(b"planted")


# Another file in the place of the temporary file


@pytest.mark.parametrize("kind", ["symbolic link", "hard link", "file", "nothing"])
@pytest.mark.parametrize("old", [None, b"old"])
def test_name_that_refers_to_another_file(tmp_path, kind, old):
    """Nothing is renamed, and the other file is neither changed nor removed."""
    victim, path = tmp_path / "victim", tmp_path / "file"
    victim.write_bytes(b"secret")
    victim.chmod(0o600)
    os.utime(victim, ns=(10**18, 10**18))
    if old is not None:
        path.write_bytes(old)
        path.chmod(0o666)

    def write():
        with replacing(path) as fp:
            fp.write(b"new")
            (name,) = temporaries_in(tmp_path)
            put_in_place(path, str(tmp_path / name), victim, kind)

    with pytest.raises(StorageError, match="removed or replaced the temporary file"):
        write()
    assert (0o600, 10**18) == (
        victim.stat().st_mode & 0o777,
        victim.stat().st_mtime_ns,
    )
    assert b"secret" == victim.read_bytes()
    assert len(temporaries_in(tmp_path)) == (kind != "nothing")
    assert path.exists() == (old is not None)
    assert old is None or old == path.read_bytes()


def test_copy_whose_name_refers_to_another_file(tmp_path):
    victim, path = tmp_path / "victim", tmp_path / "file.blp"
    victim.write_bytes(b"secret")
    victim.chmod(0o600)
    bloscpack.pack_bytes_to_file(b"no room", path, max_app_chunks=0)
    path.chmod(0o666)
    before = path.read_bytes()

    class Attacked(WatchedDisk):
        def sync(self, fp):
            for name in temporaries_in(tmp_path):
                put_in_place(path, str(tmp_path / name), victim, "symbolic link")
            return super().sync(fp)

    with (
        replaced_disk(Attacked()),
        pytest.raises(StorageError, match="removed or replaced the temporary file"),
    ):
        append_bytes_to_file(bytes(2**21), path, grow=True)
    assert before == path.read_bytes()
    assert 0o600 == victim.stat().st_mode & 0o777


# Files of dead writers

WRITE = """
import signal, sys
from bloscpack._commit.replacing import replacing
with replacing(sys.argv[1]) as fp:
    fp.write(b"part")
    fp.flush()
    print("ready", flush=True)
    signal.pause()
"""
APPEND = """
import signal, sys
from bloscpack import append
from bloscpack._storage.disk import disk
def rename(old, new):
    print("ready", flush=True)
    signal.pause()
disk.rename = rename
append.append_bytes_to_file(bytes(2**21), sys.argv[1], grow=True)
"""


def started(script, *arguments):
    """Return a process that has written a part of a file."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        env=environment(),
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert b"ready\n" == process.stdout.readline()
    return process


def kill(process):
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.fixture
def packed(tmp_path):
    path = tmp_path / "file.blp"
    bloscpack.pack_bytes_to_file(
        b"one chunk", path, metadata={"a": 1}, max_app_chunks=0
    )
    (tmp_path / "more").write_bytes(b"more")
    return path


@pytest.mark.parametrize("script", [WRITE, APPEND], ids=["replace", "append"])
@pytest.mark.parametrize("follower", ["replace", "append", "metadata", "blpk"])
def test_next_writer_removes_the_file_of_a_dead_writer(packed, script, follower):
    folder = packed.parent
    process = started(script, packed, folder / "more")
    try:
        assert 1 == len(temporaries_in(folder))
    finally:
        kill(process)
    assert 1 == len(temporaries_in(folder))
    if follower == "replace":
        bloscpack.pack_bytes_to_file(b"new", packed)
    elif follower == "append":
        append(packed, folder / "more")
    elif follower == "metadata":
        bloscpack.append.rewrite_metadata(packed, {})
    else:
        command = [sys.executable, "-m", "bloscpack", "-f", "c", "more", packed.name]
        subprocess.run(command, cwd=folder, env=environment(), check=True)
    assert ["file.blp", "more"] == names_in(folder)


def test_new_file_whose_writer_died(tmp_path):
    path = tmp_path / ("long" * 60)
    kill(started(WRITE, path))
    assert 1 == len(temporaries_in(tmp_path))
    with replacing(tmp_path / ("long" * 60 + "er")) as fp:
        fp.write(b"another file")
    assert 1 == len(temporaries_in(tmp_path))
    with replacing(path) as fp:
        fp.write(b"new")
    assert [] == temporaries_in(tmp_path)


LINK = """
import signal, sys
from bloscpack._commit.replacing import replacing
from bloscpack._storage.disk import disk
def remove(name):
    print("ready", flush=True)
    signal.pause()
disk.remove = remove
with replacing(sys.argv[1]) as fp:
    fp.write(open(sys.argv[2], "rb").read())
"""


def test_writer_that_died_between_its_two_names(packed):
    """The new file has its final name, and still the temporary one."""
    path = packed.parent / "new.blp"
    kill(started(LINK, path, packed))
    (name,) = temporaries_in(packed.parent)
    assert os.path.samefile(path, packed.parent / name)
    append(path, packed.parent / "more")
    assert [] == temporaries_in(packed.parent)
    assert b"one chunkmore" == bloscpack.unpack_bytes_from_file(path)[0]


def test_lock_ends_although_the_process_has_forked(tmp_path):
    """A child inherits the descriptor, and with it the lock."""
    path = tmp_path / "file.blp"
    with replacing(path) as fp:
        fp.write(bloscpack.pack_bytes_to_bytes(b"one chunk"))
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.close(write)
            os.read(read, 1)
            os._exit(0)
    try:
        (tmp_path / "more").write_bytes(b"more")
        append(path, tmp_path / "more")
    finally:
        os.close(write)
        os.close(read)
        os.waitpid(child, 0)


def test_file_of_a_living_writer_stays(tmp_path):
    path = tmp_path / "file"
    process = started(WRITE, path)
    try:
        (name,) = temporaries_in(tmp_path)
        with replacing(path) as fp:
            fp.write(b"new")
        assert [name] == temporaries_in(tmp_path)
    finally:
        kill(process)
    with replacing(path) as first:
        assert 1 == len(temporaries_in(tmp_path))
        remove_leftovers(str(path))
        assert 1 == len(temporaries_in(tmp_path))
        first.write(b"newer")
    assert b"newer" == path.read_bytes()


def test_without_locks_files_of_dead_writers_stay(tmp_path, monkeypatch):
    import fcntl

    path = tmp_path / "file"
    kill(started(WRITE, path))

    def refuse(descriptor, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with replacing(path) as fp:
        fp.write(b"new")
    assert 1 == len(temporaries_in(tmp_path))
    assert b"new" == path.read_bytes()


def test_file_that_is_removed_before_it_is_locked(tmp_path):
    """Before it is locked, it looks like the file of a dead writer."""

    class Raced(WatchedDisk):
        raced = False

        def create(self, name, mode):
            fp = super().create(name, mode)
            if not self.raced:
                self.raced = True
                remove_leftovers(str(tmp_path / "file"))
            return fp

    with replaced_disk(Raced()), replacing(tmp_path / "file") as fp:
        fp.write(b"new")
    assert ["file"] == names_in(tmp_path)
    assert b"new" == (tmp_path / "file").read_bytes()


def test_file_that_another_user_locks_first(tmp_path, monkeypatch):
    """Another user may open it if the new file may be read by all."""
    fcntl = pytest.importorskip("fcntl")
    path = tmp_path / "new"
    locks = []

    def create_and_lock(*arguments):
        name, fp = type(disk).create_beside(disk, *arguments)
        if len(locks) < 6:  # two more than the usual names
            locks.append(open(name, "rb"))  # noqa: SIM115
            fcntl.flock(locks[-1], fcntl.LOCK_EX)
        return name, fp

    monkeypatch.setattr(disk, "create_beside", create_and_lock, raising=False)
    with replacing(path) as fp:
        fp.write(b"new")
    monkeypatch.undo()
    usual = {os.path.basename(name) for name in disk.names_beside(str(path))}
    assert usual | {"new"} == set(os.listdir(tmp_path))
    for lock in locks:
        lock.close()
    with replacing(path) as fp:
        fp.write(b"newer")
    assert ["new"] == os.listdir(tmp_path)
    assert b"newer" == path.read_bytes()


def test_discarded_after_it_has_its_name(tmp_path):
    """The temporary name may belong to another writer then."""
    target = str(tmp_path / "file")
    temporary = TemporaryFile(target, 0o600)
    temporary.rename(target)
    other = TemporaryFile(target, 0o600)
    assert temporary.name == other.name
    temporary.discard()
    assert os.path.exists(other.name)
    other.discard()
    other.discard()
    assert ["file"] == names_in(tmp_path)


def test_what_is_no_temporary_file_stays(tmp_path):
    """Nothing is opened but regular files."""
    path = tmp_path / "file"
    names = disk.names_beside(str(path))
    os.mkfifo(names[0])
    os.symlink("nothing", names[1])
    os.mkdir(names[2])
    before = names_in(tmp_path)
    remove_leftovers(str(path))
    assert before == names_in(tmp_path)


@needs_root
def test_file_of_another_user_stays(open_folder):
    open_folder.chmod(0o777)
    name = disk.names_beside(str(open_folder / "file"))[0]
    (open_folder / name).write_bytes(b"")
    os.chmod(name, 0o666)
    with as_user(12345):
        remove_leftovers(str(open_folder / "file"))
    assert [os.path.basename(name)] == names_in(open_folder)
