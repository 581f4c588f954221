"""`blpk cat`: any part of the plain bytes, from the chunks that hold it alone."""

import os
import sys
import threading
from contextlib import suppress

import numpy as np
import pytest
from cli.verb_support import assert_help_fits, run_verb

import bloscpack
from bloscpack import BloscpackArgs, FormatError, UsageError, cli, log
from bloscpack._cli.exit_codes import EXIT_USAGE, Refusal
from bloscpack._storage.local import FileRange

PLAIN = bytes(np.random.default_rng(1).integers(0, 99, 20_000, dtype="u1"))
CHUNK_SIZE = 1000
ROWS = np.arange(600, dtype="i4").reshape(200, 3)

posix = pytest.mark.skipif(os.name != "posix", reason="POSIX only")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(log, "OUTPUT_IS_DATA", False)
    bloscpack.pack_bytes_to_file(PLAIN, "a.blp", CHUNK_SIZE)
    bloscpack.pack_ndarray_to_file(ROWS, "rows.blp", 60)
    return tmp_path


def written(capfdbinary, *arguments, **options):
    assert 0 == run_verb("cat", *arguments, **options)
    said = capfdbinary.readouterr()
    assert b"" == said.err
    return said.out


SPANS = [
    ("0:10", PLAIN[:10]),
    (":", PLAIN),
    (":7", PLAIN[:7]),
    ("999:1001", PLAIN[999:1001]),
    ("-100:", PLAIN[-100:]),
    ("-3000:-2500", PLAIN[-3000:-2500]),
    ("1K:2K", PLAIN[1024:2048]),
    ("0.5K:-1B", PLAIN[512:-1]),
    ("-1K:", PLAIN[-1024:]),
    ("19990:1M", PLAIN[19990:]),
    ("1G:2G", b""),
    ("20:10", b""),
    (" 5 : 6 ", PLAIN[5:6]),
]


@pytest.mark.parametrize("nthreads", [1, 2])
@pytest.mark.parametrize(("span", "plain"), SPANS, ids=[span for span, _ in SPANS])
def test_bytes(capfdbinary, span, plain, nthreads):
    found = written(capfdbinary, "--bytes=" + span, "a.blp", nthreads=nthreads)
    assert plain == found


def test_everything(capfdbinary):
    assert PLAIN == written(capfdbinary, "a.blp")
    assert ROWS.tobytes() == written(capfdbinary, "rows.blp")


def test_file_without_offsets(capfdbinary):
    args = BloscpackArgs(offsets=False)
    bloscpack.pack_bytes_to_file(PLAIN, "b.blp", CHUNK_SIZE, bloscpack_args=args)
    assert PLAIN[5005:7001] == written(capfdbinary, "--bytes", "5005:7001", "b.blp")


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("3:7", slice(3, 7)),
        ("-2:", slice(-2, None)),
        ("::50", slice(None, None, 50)),
        ("10:100:7", slice(10, 100, 7)),
        ("5:5", slice(5, 5)),
        ("150:1000", slice(150, 1000)),
    ],
)
def test_rows(capfdbinary, text, rows):
    found = written(capfdbinary, "--rows=" + text, "rows.blp")
    assert ROWS[rows].tobytes() == found


def test_only_the_chunks_needed_are_read(capfdbinary, monkeypatch):
    read = []
    read_into = FileRange.read_into

    def counting(self, view, offset):
        count = read_into(self, view, offset)
        read.append((offset, count))
        return count

    monkeypatch.setattr(FileRange, "read_into", counting)
    size = os.path.getsize("a.blp")
    written(capfdbinary, "--bytes", "9990:11010", "a.blp")
    # Three chunks, each with its header twice, out of twenty; and the last header.
    assert 7 == len(read)
    assert sum(count for _, count in read) < 4 * size / 20
    read.clear()
    written(capfdbinary, "a.blp")
    assert 41 == len(read)


def test_damage_elsewhere_does_no_harm(folder, capfdbinary):
    data = bytearray((folder / "a.blp").read_bytes())
    data[-10] ^= 1
    (folder / "a.blp").write_bytes(data)
    assert PLAIN[:18_000] == written(capfdbinary, "--bytes", ":18000", "a.blp")
    with pytest.raises(FormatError, match="chunk 19"):
        run_verb("cat", "--bytes=-1:", "a.blp")


def test_what_lies_in_front_of_damage_is_written(folder, capfdbinary):
    data = bytearray((folder / "a.blp").read_bytes())
    data[-10] ^= 1
    (folder / "a.blp").write_bytes(data)
    with pytest.raises(FormatError, match="chunk 19"):
        run_verb("cat", "a.blp", nthreads=1)
    sys.stdout.flush()
    assert PLAIN[:19_000] == capfdbinary.readouterr().out


WRONG = [
    # (what it says, arguments)
    ("expected A:B, found '5'", ["--bytes", "5"]),
    ("expected A:B, found '1:2:3'", ["--bytes", "1:2:3"]),
    ("expected A:B, found 'x:'", ["--bytes", "x:"]),
    ("expected A:B, found '1q:'", ["--bytes", "1q:"]),
    ("expected A:B or A:B:C, found '1K:'", ["--rows", "1K:"]),
    ("the step must be at least 1, not '0'", ["--rows", "::0"]),
    ("the step must be at least 1, not '-1'", ["--rows", "::-1"]),
]


@pytest.mark.parametrize(("message", "arguments"), WRONG, ids=lambda value: str(value))
def test_what_can_not_be_understood(message, arguments):
    with pytest.raises(Refusal, match=message) as caught:
        run_verb("cat", *arguments, "a.blp")
    assert EXIT_USAGE == caught.value.exit_code


def test_rows_of_no_array(capfdbinary):
    with pytest.raises(FormatError, match="metadata of an array"):
        run_verb("cat", "--rows", "1:2", "a.blp")
    bloscpack.pack_ndarray_to_file(np.asfortranarray(ROWS), "f.blp")
    with pytest.raises(UsageError, match="can't be read by rows"):
        run_verb("cat", "--rows", "1:2", "f.blp")
    assert b"" == capfdbinary.readouterr().out


def test_either_bytes_or_rows(capsys):
    with pytest.raises(SystemExit):
        run_verb("cat", "--bytes", "1:", "--rows", "1:", "rows.blp")
    assert "not allowed with argument" in capsys.readouterr().err


@posix
def test_terminal(monkeypatch):
    master, slave = os.openpty()
    with open(master, "rb", buffering=0) as shown, open(slave, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        with pytest.raises(Refusal, match="not written to a terminal"):
            run_verb("cat", "--bytes", "0:10", "rows.blp")
        bloscpack.pack_bytes_to_file(b"plain", "text.blp")
        assert 0 == run_verb("cat", "text.blp", force=True)
        assert b"plain" == shown.read(5)


@posix
def test_pipe(folder):
    os.mkfifo("pipe")
    data = (folder / "rows.blp").read_bytes()

    def write():
        with suppress(BrokenPipeError):
            (folder / "pipe").write_bytes(data)

    writer = threading.Thread(target=write)
    writer.start()
    with pytest.raises(Refusal, match="'pipe' is a pipe"):
        run_verb("cat", "pipe")
    writer.join()


def test_messages_keep_out_of_the_data(capfdbinary):
    cli.main(["-d", "cat", "--bytes", "0:3", "a.blp"])
    said = capfdbinary.readouterr()
    assert PLAIN[:3] == said.out
    assert b"reading bloscpack header" in said.err


def test_help():
    assert_help_fits("cat")
