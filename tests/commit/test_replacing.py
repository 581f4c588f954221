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


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


# Two names of one file


def test_different_files(tmp_path):
    (tmp_path / "a").write_bytes(b"")
    (tmp_path / "b").write_bytes(b"")
    assert check_distinct(tmp_path / "a", tmp_path / "b") is None
    assert check_distinct(tmp_path / "a", tmp_path / "missing") is None


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


@pytest.mark.parametrize("other", ["a/", "a/.", "a/../b", "b/"])
def test_names_that_no_file_has(tmp_path, other):
    (tmp_path / "a").write_bytes(b"")
    (tmp_path / "b").write_bytes(b"")
    with pytest.raises(NotADirectoryError) as raised:
        check_distinct(tmp_path / "a", os.path.join(tmp_path, other))
    assert os.path.join(tmp_path, other) == raised.value.filename


# Whole files


@pytest.mark.parametrize("as_path", [str, lambda path: path])
def test_new_file(tmp_path, as_path):
    path = tmp_path / "new"
    with replacing(as_path(path)) as fp:
        fp.write(b"content")
        assert not path.exists()
    assert b"content" == path.read_bytes()
    assert ["new"] == names_in(tmp_path)
    assert fp.closed


def test_what_is_written_can_be_read_and_written_again(tmp_path):
    with replacing(tmp_path / "new") as fp:
        fp.write(b"content")
        fp.seek(0)
        fp.write(b"C")
        fp.seek(0, os.SEEK_END)
        assert 7 == fp.tell()
    assert b"Content" == (tmp_path / "new").read_bytes()


@needs_posix
@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_new_file_has_the_usual_mode(tmp_path, mask):
    path = tmp_path / "new"
    old_mask = os.umask(mask)
    try:
        with replacing(path) as fp:
            fp.write(b"content")
    finally:
        os.umask(old_mask)
    assert 0o666 & ~mask == mode_of(path)


@needs_posix
@pytest.mark.parametrize("mode", [0o600, 0o644, 0o640, 0o755, 0o444])
def test_old_file_keeps_its_mode(tmp_path, mode):
    path = tmp_path / "old"
    path.write_bytes(b"old content")
    path.chmod(mode)
    with replacing(path) as fp:
        fp.write(b"new")
        assert b"old content" == path.read_bytes()
    assert b"new" == path.read_bytes()
    assert mode == mode_of(path)
    assert ["old"] == names_in(tmp_path)


@needs_posix
def test_nobody_else_reads_what_replaces_a_private_file(tmp_path):
    path = tmp_path / "old"
    path.write_bytes(b"")
    path.chmod(0o600)
    with replacing(path):
        (temporary,) = (p for p in tmp_path.iterdir() if p != path)
        assert 0o600 == mode_of(temporary)


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


def test_a_full_disk_names_the_file_alone(tmp_path):
    path = tmp_path / "file"
    with pytest.raises(OSError, match="No space") as raised:
        replace_and_fail(path, OSError(errno.ENOSPC, "No space left on device"))
    assert "[Errno %d] No space left on device: %r" % (errno.ENOSPC, str(path)) == str(
        raised.value
    )
    assert [] == names_in(tmp_path)


def test_failure_to_take_the_name(tmp_path):
    path = tmp_path / "name"
    with pytest.raises(OSError, match="name"), replacing(path):
        path.mkdir()
    assert ["name"] == names_in(tmp_path)


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


def test_longest_name_of_many_bytes(tmp_path):
    # 255 bytes, but 85 characters.
    path = tmp_path / ("€" * 85)
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


def test_symbolic_link_to_nothing(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "target")
    with replacing(link) as fp:
        fp.write(b"new")
    assert link.is_symlink()
    assert b"new" == (tmp_path / "target").read_bytes()


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


@needs_posix
def test_device_is_written_directly():
    with replacing("/dev/null") as fp:
        fp.write(b"content")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


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


def test_folder_is_no_target(tmp_path):
    with pytest.raises(IsADirectoryError), replacing(tmp_path):
        pytest.fail("there is nothing to write to")
    assert [] == names_in(tmp_path)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("", FileNotFoundError),
        ("old/", NotADirectoryError),
        ("old/.", NotADirectoryError),
        ("old//", NotADirectoryError),
        ("old/../other", NotADirectoryError),
        ("missing/../other", FileNotFoundError),
        ("missing/", FileNotFoundError),
        ("missing/.", FileNotFoundError),
        ("folder/", IsADirectoryError),
        ("link", NotADirectoryError),
        ("circle", OSError),
    ],
)
def test_names_that_no_file_can_have(tmp_path, monkeypatch, name, expected):
    """Their real path may be the path of a file."""
    monkeypatch.chdir(tmp_path)
    for other in ("old", "other"):
        (tmp_path / other).write_bytes(b"content of " + other.encode())
    (tmp_path / "folder").mkdir()
    os.symlink("old/", "link")
    os.symlink("circle", "circle")
    before = names_in(tmp_path)
    with pytest.raises(expected) as raised, replacing(name):
        pytest.fail("there is nothing to write to")
    assert name == raised.value.filename
    assert before == names_in(tmp_path)
    for other in ("old", "other"):
        assert b"content of " + other.encode() == (tmp_path / other).read_bytes()


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


class Silent:
    """A file object that does not tell how much it took."""

    def __init__(self):
        self.taken = b""

    def write(self, data):
        self.taken += bytes(data)


@pytest.mark.parametrize("most", [1, 3, 7, 100])
@pytest.mark.parametrize("data", [b"", b"x", b"content", memoryview(b"content")])
def test_write_all(most, data):
    fp = Trickle(most)
    write_all(fp, data)
    assert bytes(data) == fp.taken


def test_write_all_believes_the_silent():
    fp = Silent()
    write_all(fp, b"content")
    assert b"content" == fp.taken


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
