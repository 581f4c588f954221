"""Signals while Blosc works on a chunk for a long time, in real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from time import perf_counter, sleep

import pytest
import support

import bloscpack

COMMAND = [sys.executable, "-W", "error", "-m", "bloscpack"]
# Blosc works on a chunk of these settings for minutes.
SLOW = ("-f", "c", "-c", "zstd", "-9", "-s", "-z", "4M", "--output", "out", "table")
WAITING = b"blpk: stopping: waiting for the chunks"

pytestmark = pytest.mark.skipif(os.name != "posix", reason="POSIX only")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = ["%d,%.3f,%s\n" % (i, 0.7 * i, "ab" * (i % 3)) for i in range(400_000)]
    (tmp_path / "table").write_text("".join(rows))
    (tmp_path / "out").write_bytes(b"the old content")
    return tmp_path


def runs_verb(process: subprocess.Popen[bytes]) -> bool:
    """Return whether a verb runs, and SIGTERM is caught; before, a signal ends all."""
    status = Path("/proc/%d/status" % process.pid)
    if not status.exists():
        return True
    caught = status.read_text().partition("SigCgt:")[2].split(maxsplit=1)[0]
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


def cpu_time(process: subprocess.Popen[bytes]) -> float:
    """Return for how many seconds a process has worked, on Linux; else the time."""
    stat = Path("/proc/%d/stat" % process.pid)
    if not stat.exists():
        return perf_counter()
    utime, stime = stat.read_text().rpartition(")")[2].split()[11:13]
    return (int(utime) + int(stime)) / os.sysconf("SC_CLK_TCK")


@contextmanager
def at_work(
    folder: Path, *arguments: str, in_place: bool = False, around: Sequence[str] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a command that has begun to write its output: a file, or `in_place`."""
    before = set(os.listdir(folder))
    with subprocess.Popen(
        [*around, *COMMAND, *arguments],
        cwd=folder,
        env=support.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=support.reset_signals,
    ) as process:
        try:
            limit = perf_counter() + 60
            while set(os.listdir(folder)) == before and perf_counter() < limit:
                sleep(0.02)
                if in_place:
                    while not runs_verb(process) and perf_counter() < limit:
                        sleep(0.02)
                    begun = cpu_time(process)
                    while cpu_time(process) < begun + 1 and perf_counter() < limit:
                        sleep(0.02)
                    break
            sleep(0.3)  # now all threads are inside Blosc
            assert process.poll() is None
            yield process
        finally:
            process.kill()


def check_ended(
    folder: Path, process: subprocess.Popen[bytes], code: int, last: bytes
) -> bytes:
    """Check exit code, files and the last line; return the lines before it."""
    stdout, stderr = process.communicate(timeout=15)
    assert (code, b"") == (process.returncode, stdout)
    assert stderr.endswith(last)
    assert ["out", "table"] == sorted(os.listdir(folder))
    assert b"the old content" == (folder / "out").read_bytes()
    return stderr.removesuffix(last)


@pytest.mark.parametrize("nthreads", ["1", "2"])
def test_interrupt_does_not_wait_for_chunks(folder: Path, nthreads: str) -> None:
    with at_work(folder, "-n", nthreads, *SLOW) as process:
        sent = perf_counter()
        process.send_signal(signal.SIGINT)
        assert b"" == check_ended(
            folder, process, -signal.SIGINT, b"blpk: error: interrupted\n"
        )
        assert perf_counter() - sent < 3


@pytest.mark.parametrize(
    "arguments",
    [
        ("-f", "c", "-n", "2", "-c", "zstd", "-9", "-s", "-z", "4M", "table", "-"),
        ("repack", "-n", "2", "-c", "zstd", "-9", "-s", "-z", "4M", "old.blp"),
    ],
    ids=["stream", "repack"],
)
def test_other_outputs_do_not_wait_either(
    folder: Path, arguments: tuple[str, ...]
) -> None:
    bloscpack.pack_file_to_file(folder / "table", folder / "old.blp", chunk_size="8M")
    old = (folder / "old.blp").read_bytes()
    before = sorted(os.listdir(folder))
    with at_work(folder, *arguments, in_place=True) as process:
        sent = perf_counter()
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=15)
        assert perf_counter() - sent < 3
    assert (-signal.SIGINT, b"blpk: error: interrupted\n") == (
        process.returncode,
        stderr,
    )
    assert before == sorted(os.listdir(folder))
    assert old == (folder / "old.blp").read_bytes()


@pytest.mark.full
@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)],
)
def test_termination_ends_in_bounded_time(folder: Path, number: signal.Signals) -> None:
    with at_work(folder, "-n", "2", *SLOW) as process:
        process.send_signal(number)
        last = b"blpk: error: terminated\n"
        assert b"" == check_ended(folder, process, -number, last)


def test_termination_of_the_first_process_of_a_container(folder: Path) -> None:
    """It gets no signal without a handler, so that it can't end by one."""
    around = ["unshare", "--user", "--map-root-user", "--pid", "--fork"]
    if which("unshare") is None or subprocess.run([*around, "true"]).returncode:
        pytest.skip("needs unshare, and the right to use it")
    with at_work(folder, "-n", "2", *SLOW, around=around) as process:
        children = Path("/proc/%d/task/%d/children" % (process.pid, process.pid))
        os.kill(int(children.read_text()), signal.SIGTERM)
        last = b"blpk: error: terminated\n"
        assert b"" == check_ended(folder, process, 128 + signal.SIGTERM, last)


@pytest.mark.slow
def test_quiet_command_says_nothing_while_it_stops(folder: Path) -> None:
    bloscpack.pack_file_to_file(folder / "table", folder / "out.blp", chunk_size="8M")
    append = ("-q", "-n", "1", "a", "-c", "zstd", "-9", "-s", "out.blp", "table")
    with at_work(folder, *append, in_place=True) as process:
        process.send_signal(signal.SIGINT)
        sleep(1)
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=15)
    ended = -signal.SIGTERM, b"blpk: error: terminated\n"
    assert ended == (process.returncode, stderr)


def test_append_keeps_the_old_content(folder: Path) -> None:
    def run(*arguments: str) -> bytes:
        command = [*COMMAND, *arguments]
        return support.run_command(*command, cwd=folder, check=True).stdout

    run("c", "-z", "8M", "table", "out.blp")  # the new chunks have this size, too
    plain = (folder / "table").read_bytes()
    append = ("-n", "1", "a", "-c", "zstd", "-9", "-s", "out.blp", "table")
    with at_work(folder, *append, in_place=True) as process:
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert process.stderr.readline().startswith(WAITING)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=15)
    assert -signal.SIGINT == process.returncode
    assert plain == run("cat", "out.blp")
    run("a", "out.blp", "out")
    assert plain + b"the old content" == run("cat", "out.blp")


@pytest.mark.parametrize(
    ("command", "ended"),
    [
        (COMMAND, (-signal.SIGINT, b"")),
        (
            [*COMMAND[:3], "-c", "import bloscpack.cli as c; c.main()"],
            (130, b"blpk: error: interrupted\n"),
        ),
    ],
    ids=["entry point", "main"],
)
def test_an_interrupt_that_an_import_turns_into_another_error(
    tmp_path: Path, command: list[str], ended: tuple[int, bytes]
) -> None:
    """NumPy raises ImportError if Ctrl-C comes while its C code imports a module."""
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy" / "__init__.py").write_text(
        "import os, signal\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    [number for number in range(1000)]\n"
        "except KeyboardInterrupt:\n"
        "    raise ImportError('importing the C extensions failed') from None\n"
    )
    done = support.run_command(
        *command,
        *("show", "x.npy"),
        cwd=tmp_path,
        env=support.environment(PYTHONPATH=str(tmp_path)),
        preexec_fn=support.reset_signals,
    )
    assert ended == (done.returncode, done.stderr)
