"""New files that appear complete or not at all, and replaced files."""

import errno
import io
import os
import stat
import subprocess
import sys
import threading

import pytest
from crash.watched_disk import WatchedDisk, replaced_disk
from support import environment

from bloscpack import pack_bytes_to_file
from bloscpack._commit.replacing import check_distinct, replacing
from bloscpack._storage.base import write_all
from bloscpack.cli import main
from bloscpack.exceptions import StorageError, UsageError

needs_posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX file modes")


class Stop(BaseException):
    """An interruption, which is no Exception."""


def replace_and_fail(path, error):
    with replacing(path) as fp:
        fp.write(b"new")
        fp.flush()
        raise error


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


# Two names of one file


def test_same_file(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"")
    (tmp_path / "soft").symlink_to(path)
    os.link(path, tmp_path / "hard")
    for other in (path, tmp_path / "." / "a", tmp_path / "soft", tmp_path / "hard"):
        with pytest.raises(UsageError) as raised:
            check_distinct(path, other)
        assert "input '%s' and output '%s' are the same file" % (path, other) == str(
            raised.value
        )


# Whole files


@pytest.mark.parametrize("error", [OSError, Stop, KeyboardInterrupt, GeneratorExit])
@pytest.mark.parametrize("old", [None, b"old"])
def test_failure_leaves_what_was(tmp_path, old, error):
    path = tmp_path / "file"
    if old is not None:
        path.write_bytes(old)
    with pytest.raises(error):
        replace_and_fail(path, error)
    assert (["file"] if old else []) == names_in(tmp_path)
    assert old is None or old == path.read_bytes()


def test_failure_to_take_the_name(tmp_path):
    path = tmp_path / "name"
    with pytest.raises(OSError, match="name"), replacing(path):
        path.mkdir()
    assert ["name"] == names_in(tmp_path)


@needs_posix
@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_new_file_has_the_usual_mode(tmp_path, umask):
    path = tmp_path / "new"
    old = os.umask(umask)
    try:
        pack_bytes_to_file(b"content", path)
    finally:
        os.umask(old)
    assert 0o666 & ~umask == stat.S_IMODE(path.stat().st_mode)


def test_two_at_once(tmp_path):
    path = tmp_path / "file"

    def write_two():
        with replacing(path) as first, replacing(path) as second:
            first.write(b"first")
            second.write(b"second")
            assert 2 == len(names_in(tmp_path))

    with pytest.raises(StorageError, match="another program has made this file"):
        write_two()
    assert b"second" == path.read_bytes()
    assert ["file"] == names_in(tmp_path)


def test_longest_name(tmp_path):
    path = tmp_path / ("x" * 255)
    with replacing(path) as fp:
        fp.write(b"new")
    assert b"new" == path.read_bytes()


def test_symbolic_link_is_followed(tmp_path):
    (tmp_path / "folder").mkdir()
    target = tmp_path / "folder" / "target"
    target.write_bytes(b"old")
    link = tmp_path / "link"
    link.symlink_to(target)
    with replacing(link) as fp:
        fp.write(b"new")
    assert link.is_symlink()
    assert b"new" == target.read_bytes()
    assert ["target"] == names_in(tmp_path / "folder")


@needs_posix
def test_pipe_is_written_directly(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    received = []
    reader = threading.Thread(target=lambda: received.append(path.read_bytes()))
    reader.start()
    with replacing(path) as fp:
        fp.write(b"content")
    reader.join()
    assert [b"content"] == received
    assert stat.S_ISFIFO(path.stat().st_mode)
    assert ["pipe"] == names_in(tmp_path)


@pytest.mark.skipif(not os.path.exists("/dev/stdout"), reason="needs /dev/stdout")
@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_standard_stream_that_is_a_file(tmp_path, name):
    """What the shell and others wrote there stays, in front and behind."""
    script = (
        "import os, sys\n"
        "from bloscpack._commit.replacing import replacing\n"
        "os.write(%d, b'front ')\n"
        "with replacing('/dev/%s') as fp:\n"
        "    assert not fp.seekable()\n"
        "    fp.write(b'content')\n"
        "os.write(%d, b' behind')\n"
    ) % (1 + (name == "stderr"), name, 1 + (name == "stderr"))
    with open(tmp_path / "file", "w+b") as fp:
        subprocess.run(
            [sys.executable, "-c", script],
            env=environment(),
            check=True,
            **{name: fp},
        )
    assert b"front content behind" == (tmp_path / "file").read_bytes()
    assert ["file"] == names_in(tmp_path)


def test_closed_standard_streams(tmp_path):
    path = tmp_path / "old"
    path.write_bytes(b"old")
    script = (
        "import os, sys\n"
        "from bloscpack._commit.replacing import replacing\n"
        "os.close(1)\n"
        "with replacing(sys.argv[1]) as fp:\n"
        "    fp.write(b'new')\n"
    )
    command = [sys.executable, "-c", script, str(path)]
    subprocess.run(command, env=environment(), check=True)
    assert b"new" == path.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["compress", "old", "old/"], "old/"),
        (["compress", "--suffix", "/", "old"], "old/"),
        (["compress", "old", "other/"], "other/"),
        (["compress", "old", "missing/"], "missing/"),
        (["compress", "--npy", "old", "other/"], "other/"),
        (["compress", "--rm", "old", "other/"], "other/"),
        (["-f", "compress", "old", "other/"], "other/"),
    ],
)
def test_command_takes_no_such_name(tmp_path, monkeypatch, capsys, arguments, name):
    monkeypatch.chdir(tmp_path)
    for other in ("old", "other"):
        (tmp_path / other).write_bytes(b"content of " + other.encode())
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    message = "'%s': Not a directory" % name
    if name == "missing/":
        message = "folder 'missing' of 'missing/' does not exist!"
    assert "blpk: error: %s\n" % message == capsys.readouterr().err
    assert 1 == raised.value.code
    assert ["old", "other"] == names_in(tmp_path)
    assert b"content of old" == (tmp_path / "old").read_bytes()


def test_missing_folder(tmp_path):
    path = tmp_path / "missing" / "file"
    with pytest.raises(FileNotFoundError) as raised, replacing(path):
        pytest.fail("there is nothing to write to")
    assert str(path) == raised.value.filename


# Writing everything


class Trickle(io.RawIOBase):
    """A raw file object that takes some bytes at a time."""

    def __init__(self, most):
        super().__init__()
        self.most = most
        self.taken = b""

    def writable(self):
        return True

    def write(self, data):
        self.taken += bytes(data[: self.most])
        return min(len(data), self.most)


def test_write_all_gives_up():
    with pytest.raises(StorageError, match="takes no more data") as raised:
        write_all(Trickle(0), b"content")
    assert isinstance(raised.value, OSError)


@pytest.mark.parametrize("error", [errno.EPERM, errno.EOPNOTSUPP, errno.EIO])
def test_where_there_are_no_hard_links(tmp_path, error):
    class Linkless(WatchedDisk):
        def link(self, old, new):
            raise OSError(error, "no hard links")

    with replaced_disk(Linkless()), replacing(tmp_path / "file") as fp:
        fp.write(b"new")
    assert ["file"] == names_in(tmp_path)
    assert b"new" == (tmp_path / "file").read_bytes()


def test_an_error_about_a_full_disk_shows_one_name(tmp_path):
    with pytest.raises(OSError, match="No space") as raised, replacing(tmp_path / "a"):
        raise OSError(errno.ENOSPC, "No space left on device")
    expected = "[Errno %d] No space left on device: %r"
    assert expected % (errno.ENOSPC, str(tmp_path / "a")) == str(raised.value)
