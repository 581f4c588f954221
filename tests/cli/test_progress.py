"""The progress bar, and what else depends on a terminal: through a pseudo-terminal."""

import os
import re
import struct
import subprocess
import sys

import pytest
from support import environment, run_blpk, run_command

import bloscpack
from bloscpack._cli import progress

pty = pytest.importorskip("pty", reason="there are no pseudo-terminals here")
fcntl = pytest.importorskip("fcntl")
termios = pytest.importorskip("termios")

pytest.importorskip("tqdm", reason="the extra 'progress' is not installed")


def blpk(folder, *arguments, stdout=subprocess.PIPE, patience=0, columns=80):
    """Run the command with a terminal as standard error; return code and what it says.

    The bar comes after `patience` seconds, and is drawn again for each chunk.
    """
    code = "import bloscpack._cli.progress as p; p.PATIENCE = %r; " % patience
    code += "p.INTERVAL = 0; "
    code += "from bloscpack.cli import main; main()"
    leader, follower = pty.openpty()
    size = struct.pack(
        "HHHH", 24, columns, 0, 0
    )  # rows and columns; pixels are not known
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
    assert "/s" in said
    assert "/3.81M" in said  # of how many bytes in all
    assert " 26%" in said
    assert "100%" in said
    assert "" == shown(said)


def shown(said):
    """Return what is left on a terminal: a carriage return goes back to the start."""
    lines = []
    for line in said.replace("\r\n", "\n").split("\n"):
        screen = ""
        for part in line.split("\r"):
            screen = part + screen[len(part) :]
        lines.append(screen.rstrip())
    return "\n".join(lines)


CHANGES = [
    # (bytes of how many, arguments)
    ("/3.81M", ("repack", "-c", "zlib", "-l", "1", "packed.blp")),
    ("/4.63M", ("append", "packed.blp", "plain")),
    ("/8.44M", ("append", "--grow", "packed.blp", "plain")),
]


@pytest.mark.parametrize(("total", "arguments"), CHANGES)
def test_bar_of_a_change(folder, arguments, total):
    room = {} if "--grow" not in arguments else {"max_app_chunks": 0}
    bloscpack.pack_file_to_file(folder / "plain", folder / "packed.blp", **room)
    code, said = blpk(folder, *arguments)
    assert 0 == code
    assert total in said
    shares = [int(share) for share in re.findall(r"(\d+)%", said)]
    assert shares[0] < 50
    assert sorted(shares) == shares
    assert 100 == shares[-1]
    assert 1 == shares.count(100)


VERBS = [
    # (the sizes that are added up, arguments)
    ("/7.63M", ["compress", "-r", "--output-dir", "out", "in"]),
    ("/7.63M", ["decompress", "-r", "--output-dir", "out", "in"]),
    ("/7.63M", ["verify", "-r", "in"]),
    ("/7.63M", ["repack", "-k", "md5", "in/a.blp", "in/b.blp"]),
]


@pytest.mark.parametrize(("total", "arguments"), VERBS)
def test_one_bar_for_all_files(folder, arguments, total):
    (folder / "in").mkdir()
    data = (folder / "plain").read_bytes()
    for name in ("a", "b"):
        (folder / "in" / name).write_bytes(data)
        bloscpack.pack_bytes_to_file(data, folder / "in" / (name + ".blp"))
    code, said = blpk(folder, *arguments)
    assert 0 == code
    assert total in said
    assert "1 of 2, a" in said
    assert "2 of 2, b" in said
    shares = [int(share) for share in re.findall(r"(\d+)%", said)]
    assert sorted(shares) == shares
    assert 13 == shares[0]
    assert 100 == shares[-1]
    assert "%" not in shown(said)


def test_messages_stand_on_lines_of_their_own(folder):
    data = (folder / "plain").read_bytes()
    (folder / "bad.blp").write_bytes((folder / "packed.blp").read_bytes()[:-1])
    (folder / "good.blp").write_bytes((folder / "packed.blp").read_bytes())
    names = ["packed.blp", "bad.blp", "missing.blp", "good.blp"]
    arguments = ["decompress", "--output-dir", "out", *names]
    code, said = blpk(folder, *arguments)
    assert 3 == code
    lines = shown(said).splitlines()
    assert 2 == len([line for line in lines if line])
    assert all(line.startswith("blpk: error: ") for line in lines if line)
    assert "4 of 4, good.blp" in said
    assert data == (folder / "out" / "good").read_bytes()


def test_reports_stand_on_lines_of_their_own(folder):
    (folder / "also.blp").write_bytes((folder / "packed.blp").read_bytes())
    arguments = ["verify", "packed.blp", "also.blp"]
    code, said = blpk(folder, *arguments, stdout="terminal")
    assert 0 == code
    assert ["packed.blp: ok (4 chunks, 3.81M)", "also.blp: ok (4 chunks, 3.81M)"] == [
        line for line in shown(said).splitlines() if line
    ]


def test_no_bar_without_tqdm(folder, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with progress.shown("data", 1000, True) as bar:
        bar(500)
        bar(500)
    assert "" == capsys.readouterr().err


@pytest.mark.parametrize("columns", [30, 50])
def test_the_bar_fits(folder, columns):
    name = "long" * 20 + "\u6f22" * 5
    (folder / name).write_bytes((folder / "plain").read_bytes())
    code, said = blpk(folder, "compress", name, columns=columns)
    assert 0 == code
    assert "longlong" in said
    assert columns >= max(map(len, re.split("[\r\n]", said)))


@pytest.mark.parametrize(
    "options", [["--no-progress"], ["-q"], ["-v"]], ids=lambda options: options[0]
)
def test_no_bar(folder, options):
    code, said = blpk(folder, *options, "compress", "plain", "new.blp")
    assert 0 == code
    assert "/s" not in re.sub("took: .*", "", said)


def test_no_bar_for_what_is_quick(folder):
    code, said = blpk(folder, "compress", "plain", "new.blp", patience=60)
    assert (0, "") == (code, said)


def test_no_bar_without_a_terminal(folder):
    done = run_blpk("compress", "plain", "new.blp", cwd=folder, check=True)
    assert b"" == done.stderr


def test_bar_where_it_is_asked_for(folder):
    done = run_blpk("--progress", "c", "plain", "new.blp", cwd=folder, check=True)
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
    done = run_command(
        "/bin/sh",
        "-c",
        'exec "$@" ' + place,
        "sh",
        *command,
        env=environment(PYTHONUNBUFFERED=unbuffered),
        cwd=folder,
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
