"""Files whose change was interrupted: they keep their old content.

An undo record at the end of a file gives it its old content: for all readers, whatever
the change has done so far, until the next writer restores it.
"""

from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from builders import half_changed
from commit.steps import (
    ARRAY,
    FLAGGED,
    LAST,
    OLD,
    ROWS,
    STATES,
    InMemory,
    grow,
    has_undo_record,
    packed,
    steps_of,
)
from crash.operations import TARGET
from originals import environment_with
from originals import run as run_process
from storage.servers import serving
from support import ShortReads, as_user, environment

import bloscpack as bp
from bloscpack.abstract_io import unpack
from bloscpack.append import append, rewrite_metadata, rewrite_metadata_fp
from bloscpack.exceptions import FormatError
from bloscpack.file_io import CompressedFPSource, PlainFPSink
from bloscpack.headers import decode_options
from bloscpack.reader import Reader
from bloscpack.recover import recover
from bloscpack.repacking import repack_fp
from bloscpack.verify import verify


def test_steps_of_a_change():
    assert 12 <= len(STATES) <= 25
    assert 5 <= len(FLAGGED) <= 12
    before = [state for state in STATES if state[: len(OLD)] == OLD]
    assert OLD == before[-1][: len(OLD)]
    # Nothing at the old end is a chunk until the commit; magic and version stay.
    assert all(state[len(OLD) :][:16] in (b"", bytes(16)) for state in before)
    assert {OLD[:5]} == {state[:5] for state in STATES}
    assert not has_undo_record(STATES[-1])
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
    out = io.BytesIO()
    unpack(CompressedFPSource(fp), PlainFPSink(out))
    return out.getvalue()


def in_parts(path):
    reader = Reader(io.BytesIO(path.read_bytes()))
    return reader.read(0, 999) + reader.read(999, reader.nbytes)


def repacked(path):
    out = io.BytesIO()
    with open(path, "rb") as fp:
        repack_fp(fp, out, checksum="None")
    return bp.unpack_bytes_from_bytes(out.getvalue())[0]


def recovered(path):
    out = path.with_name("out.blp")
    report = recover(path, out).report
    assert {"interrupted"} == {finding.kind for finding in report.findings}
    return bp.unpack_bytes_from_file(out)[0]


def from_command(path, *arguments):
    with path.open("rb") as stdin:
        done = subprocess.run(
            [sys.executable, "-m", "bloscpack", *arguments],
            env=environment(),
            stdin=stdin,
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
    "repack_fp": repacked,
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
    kinds = [finding.kind for finding in report.findings]
    assert (True, ["interrupted"], len(OLD)) == (report.ok, kinds, report.cbytes)
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
    assert b"might not be" not in done.stderr
    assert [TARGET] == os.listdir(tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="needs permission bits")
def test_file_that_can_only_be_read():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / TARGET
        path.write_bytes(LAST)
        path.chmod(0o444)
        os.chmod(folder, 0o555)
        with as_user(12345):
            assert ARRAY.tobytes() == bp.unpack_bytes_from_file(path)[0]
            assert verify(path).ok
            with pytest.raises(PermissionError):
                append(path, __file__)
        assert LAST == path.read_bytes()
        os.chmod(folder, 0o755)


# Release 0.16 needs it with Python 3.10 and later.
SHIM = """
import collections.abc, sys
collections.MutableMapping = collections.abc.MutableMapping
import bloscpack
assert bloscpack.__version__ == "0.16.0"
"""


def test_release_0_16_refuses_the_file(request, tmp_path):
    with pytest.raises(FormatError, match="options"):
        decode_options(format(LAST[5], "08b"))
    packages = ["bloscpack==0.16.0", "blosc", "numpy"]
    what = request, "release", "Bloscpack 0.16"
    python = environment_with(*what, "import os; os.chdir('/')" + SHIM, packages)
    code = SHIM + "bloscpack.unpack_bytes_from_file(sys.argv[1])"
    for state in (OLD, *FLAGGED, STATES[-1]):
        (tmp_path / TARGET).write_bytes(state)
        done = run_process(python, "-I", "-c", code, tmp_path / TARGET)
        assert has_undo_record(state) == done.returncode, done.stderr
        assert has_undo_record(state) == ("attempting to decode options" in done.stderr)


# Damaged and forged records

START = len(LAST) - 48 - struct.unpack("<q", LAST[-48:-40])[0]


def refusal(content):
    """Return the error of a file whose record is refused; nothing is written."""
    fp = InMemory(content)
    fp.begin()
    with pytest.raises(FormatError, match="interrupted") as raised:
        bp.unpack_bytes_from_bytes(content)
    for use in (grow, lambda fp: rewrite_metadata_fp(fp, {}), Reader):
        with pytest.raises(FormatError, match="interrupted"):
            use(fp)
    assert [] == fp.states
    assert "header" == raised.value.section
    return str(raised.value)


def test_every_damaged_byte():
    for i in range(START, len(LAST)):
        refusal(LAST[:i] + bytes([LAST[i] ^ 1 << i % 8]) + LAST[i + 1 :])


def test_every_length():
    for i in [*range(32, START, 311), *range(START, len(LAST))]:
        assert "found none" in refusal(LAST[:i])


@pytest.mark.full
def test_large_record_takes_little_memory(tmp_path):
    size = 2**26
    old = bytearray(OLD.ljust(size, b"\0"))
    (tmp_path / TARGET).write_bytes(half_changed(old, [(0, size)]))
    del old
    tracemalloc.start()
    try:
        assert ARRAY.tobytes() == bp.unpack_bytes_from_file(tmp_path / TARGET)[0]
        with pytest.warns(RuntimeWarning, match="restored"):
            rewrite_metadata(tmp_path / TARGET, {"a": 3})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2**23
    assert {"a": 3} == bp.info(tmp_path / TARGET).user_metadata


def test_damaged_record_is_found_and_the_chunks_are_saved(path):
    path.write_bytes(path.read_bytes()[:-1])
    report = verify(path)
    assert not report.ok
    (finding,) = (f for f in report.findings if f.kind == "undo-record")
    assert ("header", 5, "error") == (finding.section, finding.offset, finding.severity)
    found = recover(path, path.with_name("out.blp")).report
    assert found.nintact >= 5
    saved, _ = bp.unpack_bytes_from_file(path.with_name("out.blp"))
    assert ARRAY.tobytes()[:5000] == saved[:5000]


# A reader beside a writer


@pytest.mark.parametrize("checksum", ["adler32", "None"])
@pytest.mark.parametrize("nrows", [0, 50], ids=["nothing read before", "rows read"])
def test_file_that_stays_open_through_a_change(tmp_path, checksum, nrows):
    """It was opened at one step, and is read at each later one."""
    path = tmp_path / TARGET
    states = steps_of(packed(checksum))
    for i in range(len(states)):
        path.write_bytes(states[i])
        os.utime(path, ns=(10**18, 10**18))
        with bp.open_ndarray(path) as array:
            is_old = i < len(states) - 2
            expected = ARRAY if is_old else np.concatenate([ARRAY, ROWS])
            assert expected.shape == array.shape
            assert (expected[:nrows] == array[:nrows]).all()
            for j in range(i, len(states)):
                with path.open("r+b") as fp:
                    fp.write(states[j])
                    fp.truncate()
                os.utime(path, ns=(10**18 + j, 10**18 + j))
                assert (expected[nrows // 2 :] == array[nrows // 2 :]).all(), (i, j)
