"""The progress bar, and what else depends on a terminal: through a pseudo-terminal."""

import os
import struct
import subprocess
import sys

import pytest
from support import environment

import bloscpack

pty = pytest.importorskip("pty", reason="there are no pseudo-terminals here")
fcntl = pytest.importorskip("fcntl")
termios = pytest.importorskip("termios")
pytest.importorskip("tqdm", reason="the bar needs tqdm")


def blpk(folder, *arguments, stdout=subprocess.PIPE, patience=0):
    """Run the command with a terminal as standard error; return code and what it says.

    The bar comes after `patience` seconds.
    """
    code = "import bloscpack._cli.progress as p; p.PATIENCE = %r; " % patience
    code += "from bloscpack.cli import main; main()"
    leader, follower = pty.openpty()
    size = struct.pack("HHHH", 24, 80, 0, 0)  # rows and columns; pixels are not known
    fcntl.ioctl(leader, termios.TIOCSWINSZ, size)
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            cwd=folder,
            env=environment(TERM="xterm", COLUMNS="80"),
            stdin=subprocess.DEVNULL,
            stdout=follower if stdout == "terminal" else stdout,
            stderr=follower,
        )
    finally:
        os.close(follower)
    said = b""
    while True:
        try:
            data = os.read(leader, 4096)
        except OSError:  # how the end of a terminal is told
            break
        if not data:
            break
        said += data
    os.close(leader)
    process.communicate()
    return process.returncode, said.decode()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "plain").write_bytes(os.urandom(1000) * 4000)
    bloscpack.pack_file_to_file(tmp_path / "plain", tmp_path / "packed.blp")
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ("compress", "plain", "new.blp"),
        ("decompress", "packed.blp", "new"),
    ],
)
def test_bar_on_a_terminal(folder, arguments):
    code, said = blpk(folder, *arguments)
    assert 0 == code
    assert arguments[1] in said
    assert "B/s" in said
    assert "/3.81M" in said  # of how many bytes in all


@pytest.mark.parametrize(
    "options", [["--no-progress"], ["-q"], ["-v"]], ids=lambda options: options[0]
)
def test_no_bar(folder, options):
    code, said = blpk(folder, *options, "compress", "plain", "new.blp")
    assert 0 == code
    assert "B/s" not in said.replace("took", "")


def test_no_bar_for_what_is_quick(folder):
    code, said = blpk(folder, "compress", "plain", "new.blp", patience=60)
    assert (0, "") == (code, said)


def test_no_bar_without_a_terminal(folder):
    done = subprocess.run(
        [sys.executable, "-m", "bloscpack", "compress", "plain", "new.blp"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        check=True,
    )
    assert b"" == done.stderr


def test_bar_where_it_is_asked_for(folder):
    done = subprocess.run(
        [sys.executable, "-m", "bloscpack", "--progress", "c", "plain", "new.blp"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        check=True,
    )
    assert b"plain" in done.stderr


@pytest.mark.parametrize(
    "unbuffered",
    ["", pytest.param("1", marks=pytest.mark.slow)],
    ids=["buffered", "unbuffered"],
)
@pytest.mark.parametrize("place", ["2>/dev/full", "2>&-", ">/dev/full"])
def test_bar_that_can_not_be_written(folder, place, unbuffered):
    if "full" in place and not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    command = [sys.executable, "-m", "bloscpack", "--progress", "c", "plain", "new.blp"]
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" ' + place, "sh", *command],
        cwd=folder,
        env=environment(PYTHONUNBUFFERED=unbuffered),
        check=False,
    )
    assert 0 == done.returncode
    assert (folder / "new.blp").exists()


def test_compressed_bytes_are_not_for_a_terminal(folder):
    code, said = blpk(folder, "compress", "plain", "-", stdout="terminal")
    assert 2 == code
    assert "blpk: error: compressed bytes are not written to a terminal" in said


def test_plain_bytes_are(folder):
    (folder / "words").write_bytes(b"some words\n")
    bloscpack.pack_file_to_file(folder / "words", folder / "words.blp")
    code, said = blpk(folder, "decompress", "words.blp", "-", stdout="terminal")
    assert (0, "some words\r\n") == (code, said)
