"""Changes in place, and files whose change was interrupted.

An undo record at the end of a file gives it its old content: for all readers, whatever
the change has done so far, until the next writer restores it.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from builders import half_changed, undo_record
from crash.operations import TARGET, Append, Operation, numbers, pack
from crash.states import check_operation
from crash.watched_disk import WatchedDisk, replaced_disk
from originals import environment_with, run
from storage.servers import serving
from support import ShortReads, as_user, environment

import bloscpack as bp
from bloscpack._commit import undo
from bloscpack._commit.locking import open_locked
from bloscpack.append import append, append_fp, rewrite_metadata, rewrite_metadata_fp
from bloscpack.exceptions import FormatError, StorageError, UsageError
from bloscpack.headers import decode_options
from bloscpack.reader import Reader
from bloscpack.recover import recover
from bloscpack.verify import verify

ARRAY = np.random.default_rng(1).integers(0, 2**31, (130, 10), "<i4")
ROWS = np.random.default_rng(2).integers(0, 2**31, (70, 10), "<i4")
SETTINGS = {"nthreads": 1}


class Stop(BaseException):
    """An interruption, which is no Exception."""


class Steps:
    """Part of a file object that keeps its content after each step.

    Step `fails` raises an error; a write takes `most` bytes at most.
    """

    def begin(self, fails=None, most=2**30, error=OSError(28, "No space left")):
        self.states, self.fails, self.most, self.error = [], fails, most, error

    def step(self, call, *arguments):
        if len(self.states) == self.fails:
            self.fails = None
            raise self.error
        result = call(*arguments)
        self.states.append(self.content())
        return result

    def write(self, data):
        return self.step(super().write, memoryview(data)[: self.most])

    def truncate(self, size=None):
        return self.step(super().truncate, size)


class InMemory(Steps, io.BytesIO):
    content = io.BytesIO.getvalue


class OnDisk(Steps, io.FileIO):
    def content(self):
        return os.pread(self.fileno(), 2**20, 0)


def packed(checksum="adler32"):
    """Return a file of an array in six chunks, the last one short."""
    bits = {"checksum": checksum, "clevel": 0, "max_app_chunks": 40}
    return bp.pack_ndarray_to_bytes(ARRAY, 1000, metadata={"a": 1}, **bits)


def grow(fp):
    """Append rows to an array, and replace its metadata."""
    append_fp(fp, io.BytesIO(ROWS.tobytes()), ROWS.nbytes, metadata={"a": 2})


def steps_of(old, change=grow):
    """Return the content of a file before its change, and after each step of it."""
    fp = InMemory(old)
    fp.begin()
    change(fp)
    return [old, *fp.states]


def is_flagged(content):
    return content[:5] == b"blpk\3" and bool(content[5] & 4)


OLD = packed()
STATES = steps_of(OLD)
FLAGGED = [state for state in STATES if is_flagged(state)]
LAST = FLAGGED[-1]  # all has been overwritten


@pytest.fixture(params=[FLAGGED[0], LAST], ids=["bit set", "all overwritten"])
def path(request, tmp_path):
    """A file whose change was interrupted."""
    path = tmp_path / TARGET
    path.write_bytes(request.param)
    return path


def test_steps_of_a_change():
    assert 12 <= len(STATES) <= 20
    assert 6 <= len(FLAGGED) <= 12
    before = [state for state in STATES if state[: len(OLD)] == OLD]
    assert OLD == before[-1][: len(OLD)]
    # Nothing at the old end is a chunk until the commit; magic and version stay.
    assert all(state[len(OLD) :][:16] in (b"", bytes(16)) for state in before)
    assert {OLD[:5]} == {state[:5] for state in STATES}
    assert not is_flagged(STATES[-1])
    assert STATES[-2].startswith(STATES[-1])
    assert len(ARRAY) + len(ROWS) == len(bp.unpack_ndarray_from_bytes(STATES[-1]))


# Reading


def copied(path, read):
    copy = path.with_name("copy.blp")
    copy.write_bytes(path.read_bytes())
    return read(copy)


def from_file_object(path, **options):
    with path.open("rb", **options) as fp:
        return unpacked(fp)


def unpacked(fp):
    source = bp.file_io.CompressedFPSource(fp)
    sink = bp.memory_io.PlainMemorySink(source.nchunks)
    bp.unpack(source, sink)
    return b"".join(sink.chunks)


def in_parts(path):
    reader = Reader(io.BytesIO(path.read_bytes()))
    return reader.read(0, 999) + reader.read(999, reader.nbytes)


def recovered(path):
    out = path.with_name("out.blp")
    report = recover(path, out).report
    assert [] == report.findings
    return bp.unpack_bytes_from_file(out)[0]


def from_command(path, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "bloscpack", *arguments],
        env=environment(),
        stdin=path.open("rb"),
        capture_output=True,
        check=True,
    )
    return done.stdout


def from_url(path, read):
    with serving(path.read_bytes()) as web:
        return read(web.url)


def opened(path):
    with bp.open_ndarray(path) as array:
        assert (130, 10) == array.shape
        return array[:50].tobytes() + array[50:].tobytes()


def as_binary_file(path):
    with bp.open(path) as fp:
        fp.seek(700)
        rest = fp.read()
        fp.seek(0)
        return fp.read(700) + rest


def to_plain_file(path):
    bp.unpack_file_from_file(path, path.with_name("out"))
    return path.with_name("out").read_bytes()


READS = {
    "path": lambda path: bp.unpack_bytes_from_file(path)[0],
    "array": lambda path: bp.unpack_ndarray_from_file(path).tobytes(),
    "file": to_plain_file,
    "bytes": lambda path: bp.unpack_bytes_from_bytes(path.read_bytes())[0],
    "file object": from_file_object,
    "raw file": lambda path: from_file_object(path, buffering=0),
    "Reader": in_parts,
    "open_ndarray": opened,
    "open": as_binary_file,
    "recover": recovered,
    "copy": lambda path: copied(path, opened),
    "URL": lambda path: from_url(path, lambda url: bp.unpack_bytes_from_file(url)[0]),
    "array at a URL": lambda path: from_url(path, opened),
    "blpk cat": lambda path: from_command(path, "cat", str(path)),
    "blpk decompress": lambda path: from_command(path, "d", str(path), "-"),
    "blpk on an open file": lambda path: from_command(path, "d", "-", "-"),
}


@pytest.mark.parametrize("name", READS)
def test_readers_see_the_old_content(path, name):
    before = path.read_bytes()
    assert ARRAY.tobytes() == READS[name](path)
    assert before == path.read_bytes()


def test_reports_are_about_the_old_content(path, run):
    assert {"a": 1} == bp.info(path).user_metadata
    assert (130, 10) == bp.info(path).array.shape
    report = verify(path)
    assert (True, [], len(OLD)) == (report.ok, report.findings, report.cbytes)
    assert 0 == run("verify", path)[0]
    for verb in ("info", "list", "metadata"):
        copied_out = run(verb, path)[1]
        path.with_name("sound").mkdir(exist_ok=True)
        (path.with_name("sound") / TARGET).write_bytes(OLD)
        sound = run(verb, path.with_name("sound") / TARGET)[1]
        drop = str(path.with_name("sound"))
        assert sound.replace(drop, str(path.parent)).split() == copied_out.split()
    recover(path, path.with_name("out.blp"))
    assert OLD == path.with_name("out.blp").read_bytes()


def test_pipe_is_refused(path, tmp_path):
    """Its end can't be read first, and nothing is written."""
    expected = "save what comes from a pipe in a file first"
    with pytest.raises(FormatError, match=expected) as raised:
        unpacked(ShortReads(path.read_bytes()))
    assert ("header", 5) == (raised.value.section, raised.value.offset)
    done = subprocess.run(
        [sys.executable, "-m", "bloscpack", "decompress", "-", "out"],
        env=environment(),
        input=path.read_bytes(),
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert (1, b"") == (done.returncode, done.stdout)
    assert 1 == done.stderr.count(expected.encode())
    assert [TARGET] == os.listdir(tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="needs permission bits")
def test_file_that_can_only_be_read(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / TARGET
    path.write_bytes(LAST)
    path.chmod(0o444)
    folder.chmod(0o555)
    tmp_path.chmod(0o755)
    with contextlib.ExitStack() as stack:
        if os.geteuid() == 0:
            for parent in tmp_path.parents[:2]:
                parent.chmod(0o755)
            stack.enter_context(as_user(12345))
        assert ARRAY.tobytes() == bp.unpack_bytes_from_file(path)[0]
        assert verify(path).ok
        with pytest.raises(PermissionError):
            append(path, __file__)
    folder.chmod(0o755)
    assert LAST == path.read_bytes()


def test_release_0_16_refuses_the_file(request, tmp_path):
    with pytest.raises(ValueError, match="options"):
        decode_options(format(LAST[5], "08b"))
    version = "import bloscpack; assert bloscpack.__version__ == '0.16.0'"
    packages = ["bloscpack==0.16.0", "blosc", "numpy"]
    python = environment_with(request, "release", "Bloscpack 0.16", version, packages)
    (tmp_path / "a.blp").write_bytes(LAST)
    (tmp_path / "b.blp").write_bytes(OLD)
    code = "import bloscpack, sys; bloscpack.unpack_bytes_from_file(sys.argv[1])"
    done = run(python, "-c", code, tmp_path / "a.blp", PYTHONPATH="")
    assert (1, True) == (done.returncode, "options" in done.stderr), done.stderr
    done = run(python, "-c", code, tmp_path / "b.blp", PYTHONPATH="")
    assert (0, "") == (done.returncode, done.stderr)
