"""The command where a transcript can't show it: streams, signals, names, files left.

A process costs a quarter of a second, so a test starts one only if it needs its
streams or signals. Of a matrix of cases, places and buffering, the quick tier runs
every second case at one place, and ``-m slow`` runs the rest.
"""

from __future__ import annotations

import errno
import functools
import io
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import support

import bloscpack
from bloscpack import cli

COMMAND = [sys.executable, "-W", "error", "-c", "import bloscpack.cli as c; c.main()"]
PLAIN = bytes(range(256)) * 1024  # more than a pipe holds

posix = pytest.mark.skipif(os.name != "posix", reason="POSIX only")
buffering = pytest.mark.parametrize(
    "unbuffered",
    [
        pytest.param("", id="buffered"),
        pytest.param("1", id="unbuffered", marks=pytest.mark.slow),
    ],
)
PLACES = ["gone", "full", "closed"]


def matrix(names, cases):
    """Return the mark that runs a test for each case, place and kind of buffering.

    Every second case is quick, at one place with buffering; the others are slow.
    """
    params = []
    for i, case in enumerate(cases):
        for place in PLACES:
            for unbuffered in ("", "1"):
                quick = (
                    i % 2 == 0 and not unbuffered and place == PLACES[i % len(PLACES)]
                )
                name = "%s-%s-%s" % (case[0], place, "un" * bool(unbuffered))
                params.append(
                    pytest.param(
                        *case,
                        place,
                        unbuffered,
                        id=name + "buffered",
                        marks=[] if quick else pytest.mark.slow,
                    )
                )
    return pytest.mark.parametrize(names + ", place, unbuffered", params)


environment = functools.partial(support.environment, PYTHONUTF8="1")


def run_in(folder, *command, **options):
    """Run a command in `folder`, and return its exit code and what it said."""
    return support.run_command(*command, cwd=folder, **{"env": environment()} | options)


def blpk(folder, *arguments, **options):
    return run_in(folder, *COMMAND, *arguments, **options)


def names(folder):
    return sorted(os.listdir(folder))


@pytest.fixture
def folder(tmp_path):
    """Return a folder with the file plain and, of 16 chunks, packed.blp."""
    (tmp_path / "plain").write_bytes(PLAIN)
    bloscpack.pack_file_to_file(
        tmp_path / "plain",
        tmp_path / "packed.blp",
        "16K",
        blosc_args=bloscpack.BloscArgs(clevel=0),
    )
    return tmp_path


@pytest.fixture
def here(folder, monkeypatch, capfdbinary):
    """Return a function that runs the command in `folder`, in this process."""
    monkeypatch.chdir(folder)

    def run(*arguments):
        support.reset_log()
        code = 0
        try:
            cli.main([*arguments])
        except SystemExit as error:
            code = int(error.code or 0)
        said = capfdbinary.readouterr()
        return subprocess.CompletedProcess(arguments, code, said.out, said.err)

    return run


def damage(path, position):
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


FAILURES = [
    # (arguments, exit code)
    (("c", "missing"), 1),
    (("c", "plain", "packed.blp"), 1),
    (("c", "plain", "no/such/folder"), 1),
    (("c", "-m", "plain", "plain", "out"), 1),
    (("d", "plain"), 1),
    (("d", "-e", "plain", "out"), 1),
    (("-f", "d", "-e", "plain", "--output", "packed.blp"), 1),
    (("i", "plain"), 1),
    (("a", "packed.blp", "missing"), 1),
    (("a", "-e", "plain", "plain.json"), 1),
    (("-n", "0", "c", "plain", "out"), 2),
    (("c", "-t", "0", "plain", "out"), 2),
    (("-f", "c", "-t", "999", "plain", "packed.blp"), 2),
    (("c", "-z", "0", "plain", "out"), 2),
    (("-f", "c", "plain", "plain"), 2),
    (("c",), 2),
    (("nothing",), 2),
    (("d", "damaged.blp"), 3),
    (("-f", "d", "damaged.blp", "plain"), 3),
    (("d", "cut.blp"), 3),
    (("a", "damaged.blp", "plain"), 3),
    (("a", "cut.blp", "plain"), 3),
]


@pytest.mark.parametrize(
    ("arguments", "rc"), FAILURES, ids=[" ".join(a) for a, _ in FAILURES]
)
def test_a_failure_changes_no_file(folder, here, arguments, rc):
    packed = (folder / "packed.blp").read_bytes()
    (folder / "plain.json").write_text("{}")
    (folder / "cut.blp").write_bytes(packed[:-100])
    (folder / "damaged.blp").write_bytes(packed)
    damage(folder / "damaged.blp", -10)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    answer = here(*arguments)

    assert before == {path.name: path.read_bytes() for path in folder.iterdir()}
    assert rc == answer.returncode
    assert b"" == answer.stdout
    assert b"error: " in answer.stderr
    assert b"Traceback" not in answer.stderr


def without_time(said):
    """Return the messages without the time, which is not part of the output of 0.16."""
    return re.sub(rb"blpk: took: .*\n", b"", said)


def test_data_and_messages_go_to_standard_output(folder, here):
    for arguments in (("-v", "c", "plain"), ("-d", "d", "packed.blp"), ("i", "x.blp")):
        (folder / "x.blp").write_bytes((folder / "packed.blp").read_bytes())
        answer = here(*arguments)
        assert (0, b"") == (answer.returncode, without_time(answer.stderr))
        mark = rb"[a-z ]+: " if "i" in arguments else b"blpk: "
        assert all(re.match(mark, line) for line in answer.stdout.splitlines())
        assert answer.stdout


def test_what_was_said_comes_before_the_error(folder):
    answer = blpk(
        folder, "-v", "c", "-t", "0", "plain", "out", stderr=subprocess.STDOUT
    )
    lines = answer.stdout.decode().splitlines()
    assert "blpk: getting ready for compression" == lines[1]
    assert [i == len(lines) - 1 for i in range(len(lines))] == [
        line.startswith("blpk: error: ") for line in lines
    ]


# Ctrl-C


@posix
@pytest.mark.parametrize(
    ("arguments", "existing", "number"),
    [
        *(
            pytest.param(arguments, existing, signal.SIGINT, marks=marks)
            for arguments in (
                ("-n", "2", "-f", "c", "-z", "16K", "--output", "out", "pipe"),
                ("-n", "1", "-f", "c", "-z", "16K", "--output", "out", "pipe"),
                ("-n", "2", "-f", "d", "-e", "--output", "out", "pipe"),
                ("a", "packed.blp", "pipe"),
            )
            for existing, marks in ((None, pytest.mark.slow), (b"precious", ()))
        ),
        (("-f", "c", "-z", "16K", "pipe", "out"), None, signal.SIGTERM),
        (("-f", "c", "-z", "16K", "pipe", "out"), None, signal.SIGHUP),
    ],
)
def test_interrupted(folder, arguments, existing, number):
    os.mkfifo(folder / "pipe")
    if existing is not None:
        (folder / "out").write_bytes(existing)
    before = names(folder)
    packed = (folder / "packed.blp").read_bytes()
    with subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            # Opening a pipe waits for the other side, and writing more than it
            # holds for the other side to read: now the command is at work.
            sent = packed[:-20000] if "d" in arguments else PLAIN
            with open(folder / "pipe", "wb", buffering=0) as pipe:
                pipe.write(sent)
                process.send_signal(number)
                # It must not wait for the pipe to end.
                stdout, stderr = process.communicate(timeout=120)
        finally:
            process.kill()

    assert 128 + number == process.returncode
    word = b"interrupted" if number == signal.SIGINT else b"terminated"
    assert (b"", b"blpk: error: %s\n" % word) == (stdout, stderr)
    assert before == names(folder)
    assert packed == (folder / "packed.blp").read_bytes()
    if existing is not None:
        assert existing == (folder / "out").read_bytes()


# Names


@posix
def test_names_that_are_not_utf8(folder):
    name = b"\xff\xfe \n'.dat"
    try:
        (folder / os.fsdecode(name)).write_bytes(PLAIN)
    except OSError:
        pytest.skip("the file system takes UTF-8 only")
    assert 0 == blpk(folder, "-v", "c", name).returncode
    assert 0 == blpk(folder, "d", name + b".blp", "back").returncode
    assert PLAIN == (folder / "back").read_bytes()


@posix
@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_names_that_can_not_be_shown(tmp_path, locale):
    env = environment(LC_ALL=locale, PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    answer = blpk(tmp_path, "-v", "c", b"\xff\xc3\xa9", env=env)
    assert 1 == answer.returncode
    assert answer.stderr.isascii() or "é" in answer.stderr.decode()
    assert answer.stderr.endswith(b"does not exist!\n")


def test_a_long_name(folder, here):
    name = "n" * 240
    (folder / name).write_bytes(PLAIN)
    assert 0 == here("c", name).returncode
    assert [name, name + ".blp", "packed.blp", "plain"] == names(folder)


# The output file


@posix
@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_a_new_file_has_the_usual_permissions(folder, umask):
    answer = blpk(folder, "c", "--no-preserve", "plain", umask=umask)
    assert 0 == answer.returncode
    mode = stat.S_IMODE((folder / "plain.blp").stat().st_mode)
    assert 0o666 & ~umask == mode


@posix
@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755])
def test_a_new_file_is_like_its_input(folder, here, mode):
    (folder / "plain").chmod(mode)
    os.utime(folder / "plain", ns=(10**18, 10**18 + 5))
    assert 0 == here("c", "plain", "new.blp").returncode
    assert 0 == here("d", "new.blp", "again").returncode
    for name in ("new.blp", "again"):
        status = (folder / name).stat()
        assert mode == stat.S_IMODE(status.st_mode)
        assert 10**18 + 5 == status.st_mtime_ns


@posix
@pytest.mark.parametrize("there", [True, False], ids=["there", "dangling"])
def test_a_link_is_followed(folder, here, there):
    (folder / "elsewhere").mkdir()
    target = folder / "elsewhere" / "target"
    if there:
        target.write_bytes(b"old")
    (folder / "link").symlink_to("elsewhere/target")
    assert 0 == here("-f", "d", "packed.blp", "link").returncode
    assert (folder / "link").is_symlink()
    assert PLAIN == target.read_bytes()
    assert ["target"] == names(folder / "elsewhere")


@posix
@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="may write anywhere"
)
def test_a_folder_that_may_not_be_written(folder):
    (folder / "closed").mkdir(mode=0o500)
    answer = blpk(folder, "c", "plain", "closed/out")
    assert 1 == answer.returncode
    assert b"blpk: error: 'closed/out': Permission denied\n" == answer.stderr


@posix
def test_the_error_names_the_output_as_it_was_given(folder, here):
    (folder / "sub").mkdir()
    answer = here("-f", "c", "plain", "sub")
    assert (
        b"blpk: error: 'sub': Is a directory; --output-dir names a folder for outputs\n"
    ) == answer.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("verb", [("c", "plain"), ("d", "packed.blp")], ids=" ".join)
def test_no_space(folder, here, verb):
    answer = here(*verb, "/dev/full")
    assert 1 == answer.returncode
    assert b"blpk: error: '/dev/full': No space left on device\n" == answer.stderr


# Standard output as a file


@posix
@pytest.mark.parametrize("options", [(), ("--no-offsets",)], ids=["", "-o"])
def test_compressing_to_a_pipe(folder, options):
    answer = blpk(folder, "c", "-z", "16K", *options, "plain", "/dev/stdout")
    assert (0, b"") == (answer.returncode, answer.stderr)
    (folder / "out.blp").write_bytes(answer.stdout)
    assert 0 == blpk(folder, "d", "out.blp").returncode
    assert PLAIN == (folder / "out").read_bytes()


@posix
@buffering
@pytest.mark.parametrize(
    ("arguments", "created"),
    [
        (("i", "packed.blp"), []),
        # Files are written whoever reads the messages.
        (("-d", "c", "plain"), ["plain.blp"]),
        (("--version",), []),
    ],
)
def test_standard_output_closed_by_its_reader(folder, arguments, created, unbuffered):
    read_end, write_end = os.pipe()
    os.close(read_end)
    env = environment(PYTHONUNBUFFERED=unbuffered)
    try:
        answer = blpk(folder, *arguments, stdout=write_end, env=env)
    finally:
        os.close(write_end)
    assert (1, b"") == (answer.returncode, without_time(answer.stderr))
    assert ["packed.blp", "plain", *created] == names(folder)


@posix
def test_no_standard_output_at_all(folder):
    answer = run_in(
        folder, "/bin/sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, "c", "plain"
    )
    assert (0, b"") == (answer.returncode, answer.stderr)
    assert ["packed.blp", "plain", "plain.blp"] == names(folder)


SHOWING = [
    ("i", "packed.blp"),
    ("info", "--json", "packed.blp"),
    ("list", "packed.blp"),
    ("cat", "packed.blp"),
    ("verify", "packed.blp", "packed.blp"),
    ("info", "--chunks", "packed.blp"),
    ("metadata", "packed.blp"),
    ("c", "plain", "-"),
    ("d", "packed.blp", "-"),
    ("recover", "packed.blp", "-"),
    ("--version",),
]


SHOWING_NOWHERE = [
    pytest.param(
        arguments,
        place,
        id=" ".join((*arguments, place)),
        marks=[] if i % 4 == 2 * j else pytest.mark.slow,
    )
    for i, arguments in enumerate(SHOWING)
    for j, place in enumerate((">&-", ">/dev/full"))
]


@posix
@pytest.mark.parametrize(("arguments", "place"), SHOWING_NOWHERE)
def test_nowhere_to_show_anything(folder, arguments, place):
    if "full" in place and not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    bloscpack.pack_bytes_to_file(b"bytes", folder / "packed.blp", metadata={"a": 1})
    answer = run_in(
        folder, "/bin/sh", "-c", 'exec "$@" ' + place, "sh", *COMMAND, *arguments
    )
    assert 1 == answer.returncode
    said = answer.stderr.splitlines()
    assert 1 == len(said)
    assert said[0].startswith(
        (b"blpk: error: standard output", b"blpk: error: '/dev/stdout': ")
    )


@posix
@pytest.mark.parametrize(
    "arguments",
    [
        ("cat", "-"),
        *(
            pytest.param(arguments, marks=pytest.mark.slow)
            for arguments in [
                ("list", "--json", "-"),
                ("info", "-"),
                ("verify", "-"),
                ("d", "--npy", "-", "-"),
                ("-q", "d", "-", "-"),
            ]
        ),
    ],
    ids=" ".join,
)
def test_standard_input_that_has_been_read_in_part(folder, arguments):
    """The same must come of what follows as of a file that begins there."""
    import numpy as np

    bloscpack.pack_ndarray_to_file(np.arange(1000), folder / "array.blp")
    packed = (folder / "array.blp").read_bytes()
    (folder / "more").write_bytes(b"line\n" + packed)
    answers = []
    for name, position in (("array.blp", 0), ("more", 5)):
        with open(folder / name, "rb") as stdin:
            os.lseek(stdin.fileno(), position, os.SEEK_SET)
            answers.append(blpk(folder, *arguments, stdin=stdin))
    whole, rest = answers
    assert (0, b"") == (whole.returncode, whole.stderr)
    assert (0, b"") == (rest.returncode, rest.stderr)
    shown = re.sub(rb"/dev/fd/\d+", b"/dev/stdin", rest.stdout)
    assert whole.stdout == shown
    assert shown


# Starting


@posix
def test_interrupted_while_it_starts(tmp_path):
    code = (
        "import bloscpack.cli as c, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'bloscpack._cli.args':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Finder())\n"
        "c.main(['list', 'x'])\n"
    )
    answer = run_in(tmp_path, sys.executable, "-c", code)
    assert (130, b"") == (answer.returncode, answer.stdout)
    assert b"blpk: error: interrupted\n" == answer.stderr


def test_the_command_needs_no_blosc_to_show_its_errors(tmp_path):
    code = (
        "import sys, bloscpack.cli as c\n"
        "try:\n    c.main(['c', 'missing'])\n"
        "except SystemExit as exit:\n    code = exit.code\n"
        "print(code, 'blosc' in sys.modules, 'numpy' in sys.modules)\n"
    )
    answer = run_in(tmp_path, sys.executable, "-c", code, text=True)
    assert "1 False False\n" == answer.stdout
    assert "blpk: error: input file 'missing' does not exist!\n" == answer.stderr


# What a full disk, a signal or a hasty option must not destroy

QUICK_LIMITS = [(700, "64K"), (820, "4K")]


@posix
@pytest.mark.parametrize(
    ("blocks", "chunk_size"),
    [
        pytest.param(
            blocks,
            chunk_size,
            marks=[] if (blocks, chunk_size) in QUICK_LIMITS else pytest.mark.slow,
        )
        for blocks in (700, 820, 980)
        for chunk_size in ("1K", "4K", "64K", "1M")
    ],
)
def test_append_without_room_on_disk(folder, chunk_size, blocks):
    plain = os.urandom(300_000)
    (folder / "random").write_bytes(plain)
    bloscpack.pack_file_to_file(folder / "random", folder / "random.blp", chunk_size)
    before = (folder / "random.blp").read_bytes()
    code = 'ulimit -f %d; exec "$@"' % blocks
    answer = run_in(
        folder, "/bin/bash", "-c", code, "sh", *COMMAND, "a", "random.blp", "random"
    )
    if answer.returncode:
        assert before == (folder / "random.blp").read_bytes()
    else:
        bloscpack.unpack_file_from_file(folder / "random.blp", folder / "twice")
        assert 2 * plain == (folder / "twice").read_bytes()


# What is raised there, Python ignores, with a message.
SIGNALLED_IN_DEL = """
import os, time
from bloscpack import cli
from bloscpack._cli.verbs import verify

class Signalled:
    def __del__(self):
        os.kill(os.getpid(), %d)
        time.sleep(0)

def run(args):
    Signalled()
    time.sleep(100)

verify.run = run
cli.main()
"""


@posix
@pytest.mark.parametrize(
    ("number", "message"),
    [
        (signal.SIGINT, b"blpk: error: interrupted\n"),
        (signal.SIGTERM, b"blpk: error: terminated\n"),
        (signal.SIGHUP, b"blpk: error: terminated\n"),
    ],
)
def test_signal_that_python_ignores(folder, number, message):
    answer = run_in(
        folder, sys.executable, "-c", SIGNALLED_IN_DEL % number, "verify", "packed.blp"
    )
    assert (128 + number, message) == (answer.returncode, answer.stderr)


@posix
@pytest.mark.parametrize("options", [(), ("-v",)])
def test_standard_output_is_for_data(folder, options):
    bloscpack.pack_file_to_file(
        folder / "plain", folder / "plain.blp", metadata={"unit": "m"}
    )
    # Into a pipe, and into a file that the shell has opened.
    answer = blpk(folder, *options, "d", "plain.blp", "/dev/stdout")
    assert (0, PLAIN) == (answer.returncode, answer.stdout)
    with open(folder / "out", "wb") as out:
        answer = blpk(folder, *options, "d", "plain.blp", "/dev/stdout", stdout=out)
    assert PLAIN == (folder / "out").read_bytes()
    assert b"blpk: {'unit': 'm'}\n" in answer.stderr


@posix
def test_pipe_without_a_name_for_the_output(folder, here):
    os.mkfifo(folder / "pipe")
    answer = here("c", "pipe")
    assert 2 == answer.returncode
    assert b"so <out_file> must be given" in answer.stderr


@buffering
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_exit_code_when_nobody_hears_of_the_error(folder, unbuffered):
    damage(folder / "packed.blp", -100)
    env = environment(PYTHONUNBUFFERED=unbuffered)
    with open("/dev/full", "wb") as full:
        answer = blpk(folder, "d", "packed.blp", "out", stderr=full, env=env)
    assert (3, b"") == (answer.returncode, answer.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_AS")
def test_chunks_that_no_memory_holds(folder):
    def limit():
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (900 * 2**20, 900 * 2**20))

    answer = blpk(
        folder, "c", "-z", "1G", "/dev/zero", "out", preexec_fn=limit, timeout=60
    )
    assert 1 == answer.returncode
    assert answer.stderr.startswith(b"blpk: error: there is no memory to compress")
    assert "out" not in names(folder)


# Standard streams that take nothing: with and without buffering the same comes of it


FULL = b"blpk: error: standard output: No space left on device\n"
CLOSED = b"blpk: error: standard output is closed\n"
MISSING = b"blpk: error: input file 'missing' does not exist!\n"

WITHOUT_OUTPUT = [
    # (arguments, new files, [(exit code, standard error) where the reader has gone,
    #  where the device is full, and where the stream is closed])
    ("-v c plain", ["plain.blp"], [(1, b""), (1, FULL), (0, b"")]),
    ("-d c plain", ["plain.blp"], [(1, b""), (1, FULL), (0, b"")]),
    (
        "-v c --output-dir new plain missing other",
        ["new", "new/other.blp", "new/plain.blp"],
        [(1, MISSING), (1, MISSING + FULL), (1, MISSING)],
    ),
    ("-v a packed.blp plain", [], [(1, b""), (1, FULL), (0, b"")]),
    ("d meta.blp out", ["out"], [(1, b""), (1, FULL), (0, b"")]),
    ("recover packed.blp out", ["out"], [(1, b""), (1, FULL), (1, CLOSED)]),
    ("recover bad.blp out", ["out"], [(3, b""), (3, FULL), (3, CLOSED)]),
    ("recover --json bad.blp out", ["out"], [(3, b""), (3, FULL), (3, CLOSED)]),
    ("-v metadata --update a=2 meta.blp", [], [(1, b""), (1, FULL), (0, b"")]),
    # The input stays where the metadata go nowhere.
    (
        "d --rm --metadata-to - --output out meta.blp",
        ["out"],
        [(1, b""), (1, FULL), (1, CLOSED)],
    ),
    ("metadata meta.blp", [], [(1, b""), (1, FULL), (1, CLOSED)]),
    ("verify bad.blp missing", [], [(1, b""), (1, FULL), (1, CLOSED)]),
    ("-v list plain", [], [(1, b""), (1, FULL), (1, CLOSED)]),
    ("cat bad.blp", [], [(1, b""), (1, FULL), (1, CLOSED)]),
    ("-v --version", [], [(1, b""), (1, FULL), (1, CLOSED)]),
]


def files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def blpk_without(folder, streams, place, unbuffered, arguments):
    """Run the command with the standard streams `streams` connected to `place`."""
    options: dict[str, object] = {"env": environment(PYTHONUNBUFFERED=unbuffered)}
    if place == "closed":
        redirected = " ".join(stream + ">&-" for stream in streams)
        return run_in(
            folder,
            "/bin/sh",
            "-c",
            'exec "$@" ' + redirected,
            "sh",
            *COMMAND,
            *arguments,
            **options,
        )
    if place == "full":
        target = os.open("/dev/full", os.O_WRONLY)
    else:
        read_end, target = os.pipe()
        os.close(read_end)
    options |= {{"1": "stdout", "2": "stderr"}[stream]: target for stream in streams}
    try:
        answer = blpk(folder, *arguments, **options)
    finally:
        os.close(target)
    # What is connected elsewhere is None.
    return subprocess.CompletedProcess(
        answer.args, answer.returncode, answer.stdout or b"", answer.stderr or b""
    )


@pytest.fixture
def files_to_use(tmp_path):
    """Return a folder with plain files, Bloscpack files, and the damaged bad.blp."""
    (tmp_path / "plain").write_bytes(PLAIN)
    (tmp_path / "other").write_bytes(b"other")
    bloscpack.pack_bytes_to_file(b"bytes", tmp_path / "meta.blp", metadata={"a": 1})
    bloscpack.pack_file_to_file(tmp_path / "plain", tmp_path / "packed.blp", "64K")
    bad = bytearray((tmp_path / "packed.blp").read_bytes())
    bad[-100] ^= 1
    (tmp_path / "bad.blp").write_bytes(bad)
    return tmp_path


@posix
@matrix("line, created, expected", WITHOUT_OUTPUT)
def test_without_standard_output(
    files_to_use, line, created, expected, place, unbuffered
):
    if place == "full" and not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    before = files(files_to_use)
    answer = blpk_without(files_to_use, "1", place, unbuffered, line.split())
    code, said = expected[PLACES.index(place)]
    assert (code, said) == (answer.returncode, without_time(answer.stderr))
    assert {*created} == files(files_to_use) - before
    assert before <= files(files_to_use)


WITHOUT_ERROR = [
    # (arguments, exit code, new files)
    ("c plain", 0, ["plain.blp"]),
    ("c plain packed.blp", 1, []),
    ("c --unknown", 2, []),
    ("nothing", 2, []),
    ("d bad.blp out", 3, []),
    ("c --output-dir new missing plain", 1, ["new", "new/plain.blp"]),
    ("-v d packed.blp -", 0, []),
    ("recover bad.blp -", 3, []),
    ("verify bad.blp missing", 3, []),
]


@posix
@matrix("line, code, created", WITHOUT_ERROR)
def test_without_standard_error(files_to_use, line, code, created, place, unbuffered):
    if place == "full" and not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    before = files(files_to_use)
    answer = blpk_without(files_to_use, "2", place, unbuffered, line.split())
    assert code == answer.returncode
    assert before | {*created} == files(files_to_use)
    if line.startswith("verify") or line.endswith(" -"):
        assert blpk(files_to_use, *line.split()).stdout == answer.stdout
    else:
        assert b"" == answer.stdout


@posix
@matrix("line, code", [("-v c plain out", (1, 0)), ("d bad.blp out", (3, 3))])
def test_without_both(files_to_use, line, code, place, unbuffered):
    if place == "full" and not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    answer = blpk_without(files_to_use, "12", place, unbuffered, line.split())
    assert code[place == "closed"] == answer.returncode
    assert ("c" in line.split()) == (files_to_use / "out").exists()


@posix
@buffering
@pytest.mark.parametrize("arguments", [["--help"], ["c", "--help"]], ids=" ".join)
def test_help_without_a_reader(folder, arguments, unbuffered):
    answer = blpk_without(folder, "1", "gone", unbuffered, arguments)
    assert (0, b"") == (answer.returncode, answer.stderr)


HELPS = [["--help"], ["-h"], ["info", "--help"], ["help"], ["help", "info"]]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@buffering
@pytest.mark.parametrize("arguments", HELPS, ids=" ".join)
def test_help_that_is_lost(folder, arguments, unbuffered):
    answer = blpk_without(folder, "1", "full", unbuffered, arguments)
    message = b"blpk: error: standard output: No space left on device\n"
    assert (1, message) == (answer.returncode, answer.stderr)


@pytest.mark.full
@posix
@pytest.mark.parametrize("position", [0, 5])
def test_name_of_standard_input(folder, position):
    content = b"line\n" + (folder / "packed.blp").read_bytes()
    (folder / "more").write_bytes(content[5 - position :])
    (folder / "wrong").write_bytes(b"line\n" + b"abcd" * 10)

    def read(name, at, *arguments):
        with open(folder / name, "rb") as stdin:
            os.lseek(stdin.fileno(), at, os.SEEK_SET)
            return blpk(folder, *arguments, stdin=stdin)

    for verb in ("verify", "info", "list"):
        found = json.loads(read("more", position, verb, "--json", "-").stdout)
        found = found[0] if isinstance(found, list) else found
        assert {"-"} == {found["file"], found.get("filename", "-")}
        answer = read("wrong", position, verb, "-")
        assert b"(standard input, section 'header', byte 0)" in answer.stderr
        assert b"/dev/" not in answer.stderr


@posix
@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_process_substitution_is_not_standard_input(folder):
    line = '"$@" verify <(cat packed.blp)'
    answer = run_in(folder, "bash", "-c", line, "bash", *COMMAND)
    assert 0 == answer.returncode
    assert answer.stdout.startswith(b"/dev/fd/")


@posix
@buffering
def test_no_messages_in_data(folder, unbuffered):
    env = environment(PYTHONUNBUFFERED=unbuffered)
    answer = blpk(folder, "-d", "d", "packed.blp", "-", env=env)
    assert (0, PLAIN) == (answer.returncode, answer.stdout)


def test_commands_in_one_process_are_independent(folder, capsys, monkeypatch):
    class Full(io.StringIO):
        def write(self, text):
            raise OSError(errno.ENOSPC, "No space left on device")

    path = str(folder / "packed.blp")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", Full())
        with pytest.raises(SystemExit, match="1"):
            cli.main(["info", path])
    cli.main(["-q", "list", "--json", path])
    assert path in capsys.readouterr().out
    cli.main(["-v", "info", path])
    output, errors = capsys.readouterr()
    assert ("", True) == (errors, output.endswith("blpk: done\n"))


MISSING_PACKAGES = [
    # (package, its extra, arguments)
    ("shtab", "completion", ["completion", "bash"]),
    ("pyarrow", "tables", ["convert", "table.parquet", "x.zarr"]),
    ("fsspec", "remote", ["info", "http://127.0.0.1:9/x.blp"]),
    ("fsspec", "remote", ["list", "http://127.0.0.1:9/x.blp"]),
    ("fsspec", "remote", ["cat", "http://127.0.0.1:9/x.blp"]),
    ("s3fs", "s3", ["verify", "s3://bucket/x.blp"]),
]


@pytest.mark.parametrize(("package", "extra", "arguments"), MISSING_PACKAGES)
def test_a_package_that_is_not_installed(
    package, extra, arguments, folder, monkeypatch, run
):
    monkeypatch.chdir(folder)
    bloscpack.pack_ndarray_to_file(numpy.arange(9), "array.blp")
    Path("table.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, package, None)
    if registry := sys.modules.get("fsspec.registry"):  # another test may have used it
        monkeypatch.delitem(registry._registry, "s3", raising=False)
    code, output, errors = run(*arguments)
    assert (1, "") == (code, output)
    assert errors.startswith("blpk: error: ")
    assert "pip install '.[%s]' in a clone" % extra in errors


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="Linux only")
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs several processors")
def test_no_threads_for_linear_algebra(folder):
    program = (
        "import os, sys, bloscpack.cli\n"
        "bloscpack.cli.main()\n"
        "print('numpy' in sys.modules, len(os.listdir('/proc/self/task')))\n"
    )
    command = [sys.executable, "-c", program, "-q", "-f", "compress", "plain"]
    env = environment()
    del env["OPENBLAS_NUM_THREADS"]
    found = [
        run_in(folder, *command, env=env | variables)
        for variables in ({}, {"OPENBLAS_NUM_THREADS": "1"})
    ]
    assert found[0].stdout.startswith(b"True ")
    assert found[0].stdout == found[1].stdout


@pytest.mark.parametrize("module", ["bloscpack", "bloscpack.cli"])
def test_modules_that_are_the_command(folder, module):
    """As a program, the module has another name than the one it imports under."""
    command = [sys.executable, "-m", module, "--version"]
    done = run_in(folder, *command)
    assert (0, b"") == (done.returncode, done.stderr)
    assert done.stdout.startswith(b"bloscpack: ")
