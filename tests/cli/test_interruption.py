"""Signals while Blosc works on a chunk for a long time, in real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, sleep

import pytest
import support

COMMAND = [sys.executable, "-W", "error", "-c", "import bloscpack.cli as c; c.main()"]
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


@contextmanager
def at_work(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a command that has begun to write its output."""

    def sizes() -> dict[str, int]:
        return {entry.name: entry.stat().st_size for entry in os.scandir(folder)}

    before = sizes()
    with subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=folder,
        env=support.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=support.reset_signals,
    ) as process:
        try:
            limit = perf_counter() + 30
            while sizes() == before and perf_counter() < limit:
                sleep(0.02)
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
def test_second_interrupt_ends_at_once(folder: Path, nthreads: str) -> None:
    with at_work(folder, "-n", nthreads, *SLOW) as process:
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert process.stderr.readline().startswith(WAITING)
        sent = perf_counter()
        process.send_signal(signal.SIGINT)
        assert b"" == check_ended(folder, process, 130, b"blpk: error: interrupted\n")
        assert perf_counter() - sent < 3


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)],
)
def test_termination_ends_in_bounded_time(folder: Path, number: signal.Signals) -> None:
    with at_work(folder, "-n", "2", *SLOW) as process:
        process.send_signal(number)
        last = b"blpk: error: terminated\n"
        assert b"" == check_ended(folder, process, 128 + number, last)


@pytest.mark.slow
def test_quiet_command_says_nothing_while_it_stops(folder: Path) -> None:
    with at_work(folder, "-q", *SLOW) as process:
        process.send_signal(signal.SIGINT)
        sleep(1)
        process.send_signal(signal.SIGTERM)
        assert b"" == check_ended(folder, process, 143, b"blpk: error: terminated\n")


def test_append_keeps_the_old_content(folder: Path) -> None:
    def run(*arguments: str) -> bytes:
        return subprocess.run(
            [*COMMAND, *arguments],
            cwd=folder,
            env=support.environment(),
            stdout=subprocess.PIPE,
            check=True,
        ).stdout

    run("c", "-z", "4M", "out", "out.blp")
    plain = (folder / "out").read_bytes()
    append = ("-n", "1", "a", "-c", "zstd", "-9", "-s", "out.blp", "table")
    with at_work(folder, *append) as process:
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert process.stderr.readline().startswith(WAITING)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=15)
    assert 130 == process.returncode
    assert plain == run("cat", "out.blp")
    run("a", "out.blp", "out")
    assert 2 * plain == run("cat", "out.blp")
