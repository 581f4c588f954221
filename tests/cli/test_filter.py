"""``blpk`` without a verb: a filter, as tar and other programs call it."""

import os
import shutil
import subprocess
import sys

import pytest
from support import environment, run_command

from bloscpack import unpack_bytes_from_bytes

pytestmark = pytest.mark.skipif(os.name != "posix", reason="POSIX only")

CONTENT = {
    "numbers": b"".join(b"%d\n" % i for i in range(200_000)),
    "noise": bytes((i * i * 7 + i // 3) & 0xFF for i in range(300_000)),
    "empty": b"",
}


@pytest.fixture
def folder(tmp_path):
    """Return a folder with `blpk` on its own, and files to be archived in `plain`."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "blpk"
    program.write_text('#!/bin/sh\nexec "%s" -m bloscpack "$@"\n' % sys.executable)
    program.chmod(0o755)
    (tmp_path / "plain").mkdir()
    for name, data in CONTENT.items():
        (tmp_path / "plain" / name).write_bytes(data)
    return tmp_path


def shell(folder, command, **options):
    """Run a command of the shell, with buffered streams as a user has them."""
    path = str(folder / "bin") + os.pathsep + os.environ["PATH"]
    env = environment(PATH=path, PYTHONUNBUFFERED="")
    return run_command("/bin/sh", "-c", command, cwd=folder, env=env, **options)


def succeeded(folder, command, **options):
    done = shell(folder, command, **options)
    assert (0, b"") == (done.returncode, done.stderr)
    return done.stdout


def assert_unpacked(folder):
    found = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert CONTENT == found


def gnu_tar():
    if shutil.which("tar") is None:
        return False
    done = subprocess.run(["tar", "--version"], capture_output=True, check=False)
    return b"GNU tar" in done.stdout


tar = pytest.mark.skipif(not gnu_tar(), reason="needs GNU tar")

TAR = [
    # (how the archive is made, how it is unpacked)
    ("tar -I blpk -cf x plain", "tar -I blpk -xf x -C out"),
    ("tar -I 'blpk -9 -c zstd -n 2' -cf x plain", "tar -I 'blpk -n 2' -xf x -C out"),
    ("tar -I 'blpk -9 -c zstd' -cf x plain", "tar -I 'blpk -9 -c zstd' -xf x -C out"),
    ("tar -I blpk -cf - plain > x", "cat x | tar -I blpk -xf - -C out"),
    ("tar -cf - plain | blpk > x", "blpk -d < x | tar -xf - -C out"),
    ("tar -cf - plain | blpk - - > x", "blpk -d - < x | tar -xf - -C out"),
    ("tar -cf - plain | blpk -q --output x", "tar -I blpk -xf x -C out"),
    ("tar -cf - plain | blpk c - x.blp; mv x.blp x", "tar -I blpk -xf x -C out"),
]


@tar
@pytest.mark.parametrize(
    ("pack", "unpack"),
    [TAR[0], *(pytest.param(*pair, marks=pytest.mark.slow) for pair in TAR[1:])],
)
def test_tar(folder, pack, unpack):
    (folder / "out").mkdir()
    succeeded(folder, pack)
    assert b"blpk" == (folder / "x").read_bytes()[:4]
    succeeded(folder, unpack)
    assert_unpacked(folder / "out" / "plain")
    assert b"plain/numbers\n" in succeeded(folder, "tar -I blpk -tf x")


@tar
def test_tar_that_reads_only_the_beginning(folder):
    (folder / "noise").write_bytes(os.urandom(3_000_000))
    succeeded(folder, "tar -I blpk -cf x plain noise")
    succeeded(folder, "tar -I blpk -xf x --occurrence=1 -O plain/numbers | cat > first")
    assert CONTENT["numbers"] == (folder / "first").read_bytes()


@tar
def test_tar_fails_with_blpk(folder):
    (folder / "out").mkdir()
    succeeded(folder, "tar -I blpk -cf x plain")
    data = bytearray((folder / "x").read_bytes())
    data[-20] ^= 1
    (folder / "x").write_bytes(data)
    done = shell(folder, "tar -I blpk -xf x -C out")
    assert 2 == done.returncode
    assert b"blpk: error: Checksum mismatch" in done.stderr
    done = shell(folder, "tar -I 'blpk -c none' -cf y plain")
    assert 2 == done.returncode
    assert b"Child returned status 2" in done.stderr


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_git_archive(folder):
    succeeded(folder, "git init -q . 2>&1 && git add plain")
    packed = succeeded(folder, "git archive $(git write-tree) | blpk -n 2")
    plain = succeeded(folder, "git archive $(git write-tree)")
    # git stores the time of the archive.
    assert len(plain) == len(unpack_bytes_from_bytes(packed)[0])


def test_the_output_is_that_of_the_verb(folder):
    expected = succeeded(folder, "blpk -n 1 compress -l 3 - - < plain/numbers")
    assert expected == succeeded(folder, "blpk -n 1 -3 < plain/numbers")
    expected = succeeded(folder, "blpk decompress - -", input=expected)
    assert expected == CONTENT["numbers"]


def test_options_of_the_variable(folder):
    expected = succeeded(folder, "blpk -n 1 -c zstd -9 < plain/numbers")
    variable = "BLPK_DEFAULTS='-c zstd -l 5 -n 1 --no-sparse'"
    packed = succeeded(folder, "%s blpk -9 < plain/numbers" % variable)
    assert expected == packed
    unpacked = succeeded(folder, "%s blpk -d -9" % variable, input=packed)
    assert unpacked == CONTENT["numbers"]


def test_messages_stay_out_of_the_output(folder):
    done = shell(folder, "blpk -v < plain/numbers | blpk -d -v")
    assert CONTENT["numbers"] == done.stdout
    assert 2 == done.stderr.count(b"blpk: done\n")
    done = shell(folder, "blpk --debug < plain/numbers | blpk -d")
    assert CONTENT["numbers"] == done.stdout
    assert 1 == done.stderr.count(b"blpk: done\n")


def test_empty_input(folder):
    assert b"" == succeeded(folder, "blpk < /dev/null | blpk -d")


FAILURES = [
    # (exit code, what standard error contains, command)
    (1, b"might not be a bloscpack compressed file", "blpk -d < plain/numbers"),
    (3, b"the file ends too early", "blpk < plain/noise | head -c 999 | blpk -d"),
    (2, b"too few arguments", "blpk <&-"),
    (2, b"unrecognized arguments: --nothing", "blpk --nothing < plain/noise"),
    (2, b"no subcommand 'plain/no'", "blpk -d plain/no < plain/noise"),
    (1, b"'plain/noise' does not end with '.blp'", "blpk -d plain/noise"),
]
if os.path.exists("/dev/full"):
    FAILURES.append((1, b"No space left", "blpk < plain/noise > /dev/full"))


@pytest.mark.parametrize(("code", "message", "command"), FAILURES)
def test_failure(folder, code, message, command):
    done = shell(folder, command)
    assert code == done.returncode
    assert message in done.stderr
