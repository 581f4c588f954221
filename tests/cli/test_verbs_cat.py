"""`blpk cat`: any part of the plain bytes, from the chunks that hold it alone."""

import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cli.verb_support import Refusal, message_of, run_verb
from support import environment, run_blpk, run_python

import bloscpack
from bloscpack import BloscArgs, BloscpackArgs, FormatError, UsageError, cli
from bloscpack.headers import BloscpackHeader
from bloscpack.reader import Reader

PLAIN = bytes(np.random.default_rng(1).integers(0, 99, 20_000, dtype="u1"))
CHUNK_SIZE = 1000
ROWS = np.arange(600, dtype="i4").reshape(200, 3)

posix = pytest.mark.skipif(os.name != "posix", reason="POSIX only")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
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
    ("1KB:2KiB", PLAIN[1024:2048]),
    ("1_024:1.5 kib", PLAIN[1024:1536]),
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
    assert 2 == caught.value.exit_code


def test_rows_of_no_array(capfdbinary):
    with pytest.raises(FormatError, match="metadata of an array"):
        run_verb("cat", "--rows", "1:2", "a.blp")
    bloscpack.pack_ndarray_to_file(np.array(1.0), "one.blp")
    with pytest.raises(UsageError, match="has no rows"):
        run_verb("cat", "--rows", "1:2", "one.blp")
    assert b"" == capfdbinary.readouterr().out


def test_rows_in_fortran_order(capfdbinary):
    bloscpack.pack_ndarray_to_file(np.asfortranarray(ROWS), "f.blp")
    assert ROWS[1:9:2].tobytes() == written(capfdbinary, "--rows", "1:9:2", "f.blp")


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


# From a pipe


def through_pipe(data, *arguments):
    """Run the command with a pipe as standard input; return code, output and errors."""
    done = run_blpk(
        "cat", *arguments, "-", env=environment(PYTHONUNBUFFERED=""), input=data
    )
    return done.returncode, done.stdout, done.stderr.decode()


PIPED = [
    # (bytes written, file, arguments)
    (PLAIN, "a.blp", []),
    (PLAIN[999:1001], "a.blp", ["--bytes", "999:1001"]),
    (PLAIN[-3000:-2500], "a.blp", ["--bytes=-3000:-2500"]),
    (b"", "a.blp", ["--bytes", "5:5"]),
    (ROWS[10:100:7].tobytes(), "rows.blp", ["--rows", "10:100:7"]),
    (ROWS[-2:].tobytes(), "rows.blp", ["--rows=-2:"]),
    (PLAIN, "open.blp", ["-n", "1"]),
    (PLAIN[5000:], "open.blp", ["--bytes", "5000:"]),
]


def write_open_file(folder):
    """Write a file whose header contains no sizes."""
    args = BloscpackArgs(offsets=False)
    bloscpack.pack_bytes_to_file(PLAIN, "open.blp", CHUNK_SIZE, bloscpack_args=args)
    data = (folder / "open.blp").read_bytes()
    header = BloscpackHeader(chunk_size=CHUNK_SIZE, checksum="adler32", typesize=8)
    (folder / "open.blp").write_bytes(header.encode() + data[32:])


@posix
@pytest.mark.parametrize(("expected", "name", "arguments"), PIPED)
def test_pipe(folder, expected, name, arguments):
    write_open_file(folder)
    data = (folder / name).read_bytes()
    assert (0, expected, "") == through_pipe(data, *arguments)


@posix
@pytest.mark.parametrize(
    ("expected", "behind"), [(1, b"something else"), (1, b"\n"), (0, bytes(9))]
)
def test_bytes_behind_the_last_chunk_of_a_pipe(folder, expected, behind):
    data = (folder / "a.blp").read_bytes()
    code, plain, errors = through_pipe(data + behind)
    assert (expected, PLAIN) == (code, plain)
    assert "other bytes lie behind standard input" in errors


@posix
def test_pipe_of_unknown_length(folder):
    write_open_file(folder)
    data = (folder / "open.blp").read_bytes()
    code, plain, errors = through_pipe(data, "--bytes=-5:")
    assert (2, b"") == (code, plain)
    assert "can't be read from a pipe" in errors
    code, plain, errors = through_pipe(data, "--rows", "1:2")
    assert (1, b"") == (code, plain)
    assert "metadata of an array" in errors
    assert "/dev/fd" not in errors


@posix
def test_damage_in_a_pipe(folder):
    data = bytearray((folder / "a.blp").read_bytes())
    assert (0, PLAIN[:99]) == through_pipe(data[:-9], "--bytes", ":99")[:2]
    code, plain, errors = through_pipe(data[:-9])
    assert (3, PLAIN[:19_000]) == (code, plain)
    assert "the file ends too early" in errors
    data[-10] ^= 1
    code, plain, errors = through_pipe(data)
    assert (3, PLAIN[:19_000]) == (code, plain)
    assert "chunk 19" in errors


@posix
def test_the_first_bytes_come_before_the_input_ends(folder):
    """A single chunk is enough; nothing waits for the next one."""
    data = (folder / "a.blp").read_bytes()
    # Header and offset table, the first chunk, and half of the second.
    beginning = int(Reader(io.BytesIO(data))._file.state.offsets[2]) - 400
    process = subprocess.Popen(
        [sys.executable, "-m", "bloscpack", "cat", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(PYTHONUNBUFFERED=""),
    )
    process.stdin.write(data[:beginning])
    process.stdin.flush()
    assert PLAIN[:CHUNK_SIZE] == process.stdout.read(CHUNK_SIZE)
    rest, _ = process.communicate(data[beginning:], timeout=60)
    assert (0, PLAIN[CHUNK_SIZE:]) == (process.returncode, rest)


@posix
@pytest.mark.slow
def test_memory_for_a_pipe(folder):
    bloscpack.pack_bytes_to_file(bytes(300_000_000), "zeros.blp")
    command = "cat zeros.blp | %s -m bloscpack cat - | wc -c" % sys.executable
    # A small process starts it: a child has the size of its parent for a moment.
    script = (
        "import resource, subprocess\n"
        "subprocess.run(['/bin/sh', '-c', %r], check=True)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)" % command
    )
    done = run_python("-c", script, check=True)
    size, memory = map(int, done.stdout.split())
    assert 300_000_000 == size
    assert memory < 150_000  # kilobytes; without data about 30,000


def test_messages_keep_out_of_the_data(capfdbinary):
    cli.main(["-v", "cat", "--bytes", "0:3", "a.blp"])
    said = capfdbinary.readouterr()
    assert PLAIN[:3] == said.out
    assert b"blpk: done\n" in said.err


@pytest.mark.full
@pytest.mark.parametrize("options", [{}, {"offsets": False}], ids=["table", "no table"])
@pytest.mark.parametrize("piped", [False, True], ids=["file", "pipe"])
def test_a_second_file_follows(options, piped):
    one = bloscpack.pack_bytes_to_bytes(
        PLAIN, CHUNK_SIZE, bloscpack_args=BloscpackArgs(**options)
    )
    with open("two.blp", "wb") as fp:
        fp.write(one + one)
    name = "-" if piped else "two.blp"
    place = "standard input" if piped else "'two.blp'"
    warning = "blpk: behind %s begins another packed file, which is not read\n" % place
    for arguments in (["cat", name], ["decompress", "-e", name, "-"]):
        done = blpk(*arguments, input_=one + one)
        assert (0, PLAIN * 2, b"") == (done.returncode, done.stdout, done.stderr)
    for span, expected in ((":5", ""), ("-5:", warning)):
        assert piped or expected == blpk("cat", "--bytes=" + span, name).stderr.decode()
    done = blpk("verify", "two.blp")
    assert 0 == done.returncode
    assert b"another packed file begins there" in done.stdout
    assert b"byte %d)" % len(one) in done.stdout


def test_trailing_bytes_of_another_kind_are_reported():
    with open("a.blp", "ab") as fp:
        fp.write(b"trailing")
    for arguments in (["cat", "a.blp"], ["decompress", "a.blp", "-"]):
        done = blpk(*arguments)
        assert (1, PLAIN) == (done.returncode, done.stdout)
        assert b"other bytes lie behind 'a.blp'" in done.stderr
    done = blpk("verify", "a.blp")
    assert 1 == done.returncode
    assert b"a.blp: followed by other bytes" in done.stdout


@pytest.mark.parametrize("nrows", [100, 35], ids=["full", "short last chunk"])
def test_files_and_bytes_behind_a_shard(nrows):
    """Behind its chunks a shard has an index, behind which the next file begins."""
    rows = np.arange(5.0 * nrows).reshape(nrows, 5)
    shard = bloscpack.pack_ndarray_to_bytes(rows, shard=True, chunk_size=400)
    plain, other = rows.tobytes(), bloscpack.pack_bytes_to_bytes(PLAIN)
    Path("joined.blp").write_bytes(shard + shard + other)
    for arguments in (
        ["cat", "joined.blp"],
        ["decompress", "--raw", "joined.blp", "-"],
    ):
        done = blpk(*arguments)
        assert (0, 2 * plain + PLAIN) == (done.returncode, done.stdout)
    assert 2 * plain + PLAIN == blpk("-d", input_=shard + shard + other).stdout
    assert b"total of 3 files" in blpk("list", "joined.blp").stdout
    done = blpk("verify", "joined.blp")
    assert (0, 3) == (done.returncode, done.stdout.count(b": ok"))
    done = blpk("convert", "joined.blp", "x.npy")
    assert (1, b"begins another packed file" in done.stderr) == (done.returncode, True)
    Path("more.blp").write_bytes(shard + b"hello")
    for arguments in (["cat", "more.blp"], ["decompress", "--raw", "more.blp", "-"]):
        done = blpk(*arguments)
        assert (1, plain) == (done.returncode, done.stdout)
    done = blpk("-d", input_=shard + b"hello")
    assert (1, plain) == (done.returncode, done.stdout)


def shortened_append(plain, first, then):
    """Return a file as 0.16.0 leaves it after an append that shrinks the last chunk."""
    kept = bloscpack.pack_bytes_to_bytes(plain[:-8], blosc_args=first)
    shorter = bloscpack.pack_bytes_to_bytes(plain, blosc_args=then)
    assert len(shorter) < len(kept)
    return shorter + kept[len(shorter) :]


@pytest.mark.parametrize("level", [0, 1])
def test_what_an_append_of_an_old_release_has_left(level):
    """The old end of the last chunk has stored bytes, or streams."""
    plain = np.arange(100_000, dtype="i8").tobytes()
    first = BloscArgs(clevel=level, cname="lz4", shuffle=level)
    data = shortened_append(plain, first, BloscArgs(clevel=9, cname="zstd"))
    Path("old.blp").write_bytes(data)
    done = blpk("cat", "old.blp")
    assert (0, plain) == (done.returncode, done.stdout)
    assert b"other bytes lie behind" in done.stderr
    done = blpk("-d", input_=data)
    assert (0, plain) == (done.returncode, done.stdout)
    assert 0 == blpk("verify", "old.blp").returncode
    Path("cut.blp").write_bytes(data + b"x")
    assert 1 == blpk("cat", "cut.blp").returncode


@pytest.mark.parametrize(
    "arguments",
    [
        ["cat", "empty"],
        ["info", "empty"],
        ["cat", "-"],
        ["decompress", "-", "-"],
        ["-d"],
    ],
)
def test_empty_file(arguments):
    open("empty", "wb").close()
    done = blpk(*arguments)
    assert (1, b"") == (done.returncode, done.stdout)
    assert b"header of length '0', not '32'" in done.stderr


def blpk(*arguments, input_=b""):
    """Run the command in a process of its own."""
    return run_blpk(*arguments, input=input_)


def test_an_archive():
    bloscpack.savez("x.zip", a=np.arange(9))
    with pytest.raises(FormatError) as caught:
        run_verb("cat", "x.zip")
    found = "archive of several arrays; 'blpk show', 'diff', 'convert' and 'verify'"
    assert found in message_of(caught.value)


def test_rows_of_chunks_that_divide_every_axis(capfdbinary):
    bloscpack.pack_ndarray_to_file(ROWS, "grid.blp", chunks=(60, 2))
    assert ROWS[50:130:3].tobytes() == written(
        capfdbinary, "--rows", "50:130:3", "grid.blp"
    )
    assert b"" == written(capfdbinary, "--rows", "9:9", "grid.blp")
