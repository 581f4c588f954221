"""`blpk compress --auto`: settings for each input, from files and pipes."""

import os
import sys

import numpy as np
import pytest
from builders import prose as text
from support import run_blpk

import bloscpack
from bloscpack.cli import main

BLPK = [sys.executable, "-m", "bloscpack"]
MIB = 2**20


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BLPK_DEFAULTS", raising=False)
    return tmp_path


def numbers(nbytes):
    steps = np.random.default_rng(1).integers(0, 1000, nbytes // 4)
    return np.cumsum(steps).astype("i4").tobytes()


def settings_of(name):
    """Return codec, type size, filters and chunk size of a compressed file."""
    with open(name, "rb") as fp:
        raw = fp.read()
    chunk_size = int.from_bytes(raw[8:12], "little")
    start = int.from_bytes(raw[32:40], "little")
    flags, typesize = raw[start + 2], raw[start + 3]
    shuffles = {0: "none", 1: "shuffle", 4: "bitshuffle"}
    codec = ("blosclz", "lz4", "snappy", "zlib", "zstd")[flags >> 5]
    return codec, typesize, shuffles[flags & 5], chunk_size


def compressed(data, *options):
    with open("data", "wb") as fp:
        fp.write(data)
    main(["-f", "compress", *options, "data", "out.blp"])
    assert data == bloscpack.unpack_bytes_from_file("out.blp")[0]
    return settings_of("out.blp")


def test_text_and_numbers():
    data = text(5 * MIB)
    assert ("blosclz", 8, "shuffle", MIB) == compressed(data)
    usual = os.path.getsize("out.blp")
    assert ("zstd", 1, "none", 2 * MIB) == compressed(data, "--auto")
    assert os.path.getsize("out.blp") < 0.8 * usual
    _, typesize, filter_, _ = compressed(numbers(5 * MIB), "--auto")
    assert (4, True) == (typesize, filter_ != "none")


@pytest.mark.parametrize("goal", ["best", "", "Ratio"])
@pytest.mark.parametrize("before", [["compress"], ["-q", "c", "data"]])
def test_unknown_goal(capsys, goal, before):
    with pytest.raises(SystemExit) as caught:
        main([*before, "--auto=" + goal, "data"])
    assert 2 == caught.value.code
    message = "--auto: the goal must be one of speed, balanced, ratio, not '%s'" % goal
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("goal", ["speed", "balanced", "ratio"])
def test_goal_without_equals_sign(capsys, goal):
    with open("data", "wb") as fp:
        fp.write(text(1000))
    for arguments in (["--auto", goal, "data"], ["data", "--auto", goal]):
        with pytest.raises(SystemExit) as caught:
            main(["compress", *arguments])
        assert 2 == caught.value.code
        assert "the goal must follow an equals sign" in capsys.readouterr().err
    assert ["data"] == os.listdir()
    os.rename("data", goal)
    main(["compress", "--auto", goal])
    assert text(1000) == bloscpack.unpack_bytes_from_file(goal + ".blp")[0]
    main(["-f", "compress", "--auto", "--", goal, "copy.blp"])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["-c", "zlib"], {0: "zlib"}),
        (["-t", "2"], {1: 2}),
        (["-s"], {2: "none"}),
        (["--bitshuffle"], {2: "bitshuffle"}),
        (["-z", "64K"], {3: 2**16}),
        (["-c", "lz4", "-l", "1", "-s", "-t", "3", "-z", "3000"],
         {0: "lz4", 1: 3, 2: "none", 3: 3000}),
    ],
)  # fmt: skip
def test_options_win(options, expected):
    for data in (text(MIB), numbers(MIB)):
        for arguments in ([*options, "--auto"], ["--auto", *options]):
            found = compressed(data, *arguments)
            assert expected == {i: found[i] for i in expected}


def test_settings_of_the_user_win(monkeypatch):
    monkeypatch.setenv("BLPK_DEFAULTS", "--auto -t 2 --bitshuffle")
    assert (2, "bitshuffle") == compressed(numbers(MIB))[1:3]
    assert (4, "bitshuffle") == compressed(numbers(MIB), "-t", "4")[1:3]
    assert "none" == compressed(numbers(MIB), "-s")[2]
    assert ("blosclz", 2, "bitshuffle", MIB) == compressed(text(MIB + 9), "--no-auto")


@pytest.mark.parametrize("options", [["-t", "256"], ["-t", "0"]])
def test_wrong_options(options, capsys):
    with pytest.raises(SystemExit) as caught:
        compressed(text(1000), "--auto", *options)
    assert caught.value.code in (1, 2)
    assert "'typesize' must be in the range" in capsys.readouterr().err


def test_each_file_gets_its_own():
    for name, data in (("text", text(MIB)), ("numbers", numbers(MIB)), ("none", b"")):
        with open(name, "wb") as fp:
            fp.write(data)
    main(["compress", "--auto", "text", "numbers", "none"])
    assert ("zstd", 1, "none") == settings_of("text.blp")[:3]
    assert 4 == settings_of("numbers.blp")[1]
    assert (b"", None) == bloscpack.unpack_bytes_from_file("none.blp")


@pytest.mark.parametrize("size", [0, 1, 1000, 4 * MIB, 4 * MIB + 1, 9 * MIB])
def test_pipe_loses_nothing(size):
    data = text(size)
    done = run_blpk("compress", "--auto", "-", "-", input=data, check=True)
    assert data == bloscpack.unpack_bytes_from_bytes(done.stdout)[0]
    if size > MIB:
        assert len(done.stdout) < 0.6 * size


def test_file_as_standard_input_from_its_position():
    data = text(MIB)
    with open("data", "wb") as fp:
        fp.write(b"head" + data)
    with open("data", "rb") as fp:
        os.lseek(fp.fileno(), 4, os.SEEK_SET)
        run_blpk("compress", "--auto", "-", "out.blp", stdin=fp, check=True)
    assert data == bloscpack.unpack_bytes_from_file("out.blp")[0]


@pytest.mark.parametrize("dtype", ["f4", ">f8", "c16", "S300", [("a", "u1", 5)]])
@pytest.mark.parametrize("piped", [False, True])
def test_npy(dtype, piped):
    array = np.frombuffer(numbers(MIB), "u1")[: MIB // 1200 * 1200].view(dtype)
    np.save("a.npy", array)
    if piped:
        with open("a.npy", "rb") as fp:
            command = "compress", "--auto", "--npy", "-", "a.npy.blp"
            run_blpk(*command, input=fp.read(), check=True)
    else:
        main(["compress", "--auto", "--npy", "a.npy"])
    found = bloscpack.unpack_ndarray_from_file("a.npy.blp")
    assert array.dtype == found.dtype
    assert array.tobytes() == found.tobytes()
    size = array.itemsize if array.itemsize < 256 else 1
    with open("a.npy.blp", "rb") as fp:
        assert size == fp.read(8)[7]


@pytest.mark.parametrize("options", [[], ["--auto"]])
def test_npy_has_a_type_size(options, monkeypatch, capsys):
    np.save("a.npy", np.arange(1000.0))
    with pytest.raises(SystemExit) as caught:
        main(["compress", "--npy", "-t", "4", *options, "a.npy"])
    assert 2 == caught.value.code
    assert "-t can't be given" in capsys.readouterr().err
    assert ["a.npy"] == os.listdir()
    monkeypatch.setenv("BLPK_DEFAULTS", "-t 4")  # a default for other files
    main(["compress", "--npy", *options, "a.npy"])
    with open("a.npy.blp", "rb") as fp:
        assert 8 == fp.read(8)[7]


def shown_on_terminal(folder, *arguments):
    """Run the command; return what it writes to standard error, a terminal."""
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    try:
        run_blpk("compress", *arguments, cwd=folder, stderr=theirs, check=True)
        os.write(theirs, b".")
        return os.read(ours, 2**16).decode()
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_terminal_shows_once_that_auto_makes_files_much_smaller(tmp_path):
    text = b"".join(b"%d\n" % i for i in range(300_000))
    for name in ("one", "two", "three"):
        (tmp_path / name).write_bytes(text)
    (tmp_path / "noise").write_bytes(os.urandom(2**21))
    names = "--no-progress", "-f", "one", "two", "three"
    shown = shown_on_terminal(tmp_path, *names)
    assert shown.count("tip: 'one.blp' has") == shown.count("tip") == 1
    for more in (["--auto"], ["-l", "3"], ["-q"]):
        assert "." == shown_on_terminal(tmp_path, *names, *more)
    assert "." == shown_on_terminal(tmp_path, "noise")
