"""Fuzzing in short: some seconds by chance, and that the fuzzer would notice."""

from __future__ import annotations

import itertools
import json
import re
import signal
import sys
from pathlib import Path

import pytest
from fuzz import changes, documents, dtypes, files, fuzz_bloscpack, guarded, parts
from fuzz.outcomes import Broken
from support import BLP, golden_files, run_python

import bloscpack as bp
from bloscpack._commit import undo

SCRIPT = Path(fuzz_bloscpack.__file__)
SMALL = [e for e in golden_files() if e["size"] <= files.LARGEST_SEED]
TAKEN_APART = [e for e in SMALL if e["format_version"] >= 2 and e["demand"] == "equal"]

DATA = bp.pack_bytes_to_bytes(b"abc" * 9, 9, metadata={"a": 1})

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="uses /proc")


@pytest.mark.slow
@linux
@pytest.mark.parametrize(
    ("of", "seed", "seconds"),
    [
        ("files", 1, 4),
        ("files", 2, 4),
        ("chunks", 3, 2),
        ("dtypes", 4, 2),
        ("changes", 5, 2),
        ("archives", 6, 4),
        ("documents", 6, 8),
        ("doors", 7, 8),
    ],
)
def test_by_chance(of, seed, seconds):
    if of == "doors":
        for name in "h5py", "pyarrow", "pandas":
            pytest.importorskip(name)
    arguments = ["--plain", "--of", of, "--count", "3000", "--seed", str(seed)]
    arguments += ["--seconds", str(seconds)]
    done = run_python(SCRIPT, *arguments, text=True)
    assert (0, "") == (done.returncode, done.stderr)
    count, sound = re.match(
        r"(\d+) executions in .* s, (\d+) with a result, 0 ", done.stdout
    ).groups()
    # Neither all the same, nor all refused at the door.
    assert 0 < int(sound) < int(count)


@linux
def test_given_files(tmp_path):
    (tmp_path / "a.blp").write_bytes(bp.pack_bytes_to_bytes(b"abc"))
    (tmp_path / "b.blp").write_bytes(b"abc")
    done = run_python(
        SCRIPT, "--plain", "a.blp", "b.blp", cwd=tmp_path, text=True, check=True
    )
    assert "a.blp: (b'abc', None)\nb.blp: NotReadable(" == done.stdout[:41]


def test_invalid_files(tmp_path):
    for path in sorted(SCRIPT.parents[1].glob("invalid/*.blp")):
        files.run(path.read_bytes(), tmp_path)


def test_golden_files_in_parts():
    assert 300 < len(TAKEN_APART)
    for entry in TAKEN_APART:
        data = (BLP / entry["file"]).read_bytes()
        taken = parts.take_apart(data)
        assert data == taken.join() == parts.with_right_digests(data)
        offsets = list(taken.offsets)
        parts.set_offsets(taken)
        assert offsets == taken.offsets


def test_digests_are_made_right():
    data = bytearray(bp.pack_bytes_to_bytes(b"abc" * 9, metadata={"a": 1}))
    for position in (64 + 5, len(data) - 6):  # the number, and the end of the chunk
        data[position] ^= 1
        with pytest.raises(bp.FormatError, match="Checksum mismatch"):
            bp.unpack_bytes_from_bytes(data)
        data = bytearray(parts.with_right_digests(bytes(data)))
    assert (b"abc" * 8 + b"acc", {"a": 0}) == bp.unpack_bytes_from_bytes(data)


@pytest.mark.parametrize("ctbytes", [0, 15, 2**31, 2**32 - 1])
def test_sizes_below_that_of_a_header(ctbytes):
    taken = parts.take_apart(DATA)
    taken.chunks[0].record["ctbytes"] = ctbytes
    with pytest.raises(ValueError, match="ends too early"):
        parts.take_apart(taken.join())


# What the fuzzer would notice


def raising(error):
    def function(*args, **kwargs):
        raise error

    return function


@pytest.mark.parametrize(
    ("expected", "module", "name", "fake"),
    [
        (IndexError, "file_io", "unpack_bytes_from_bytes", raising(IndexError())),
        (MemoryError, "_format.sections", "read_metadata", raising(MemoryError())),
        (
            Broken,
            "file_io",
            "unpack_bytes_from_bytes",
            lambda data, nthreads: (b"abc", None),
        ),
        (Broken, "_format.chunks", "check_digest", raising(bp.FormatError())),
        (
            Broken,
            "append",
            "append_fp",
            lambda fp, *args, **kwargs: fp.write(b"x"),
        ),
        (
            Broken,
            "append",
            "rewrite_metadata_fp",
            lambda fp, value: fp.truncate(60),
        ),
    ],
)
def test_what_it_notices(tmp_path, monkeypatch, expected, module, name, fake):
    files.run(DATA, tmp_path)
    monkeypatch.setattr("bloscpack.%s.%s" % (module, name), fake)
    with pytest.raises(expected):
        files.run(DATA, tmp_path)


@linux
def test_guards_end_the_process():
    # What Blosc may not do, done by another: one byte beyond the room.
    for place, step in (("at_the_end", "len(view)"), ("at_the_start", "-1")):
        code = (
            "import ctypes\n"
            "from fuzz.guarded import Guarded\n"
            "guarded = Guarded()\n"
            "view = guarded.%s(100)\n"
            "at = ctypes.addressof(ctypes.c_char.from_buffer(view))\n"
            "ctypes.memset(at, 0, len(view))\n"
            "print('inside', flush=True)\n"
            "ctypes.memset(at + %s, 0, 1)\n" % (place, step)
        )
        done = run_python("-c", code, cwd=SCRIPT.parents[1], text=True)
        assert (-signal.SIGSEGV, "inside\n") == (done.returncode, done.stdout)


@linux
def test_what_it_notices_of_chunks(tmp_path, monkeypatch):
    chunk = guarded.seeds()[-1]
    plain = guarded.run(chunk, tmp_path)
    assert 40000 == len(plain)
    monkeypatch.setattr(guarded.chunks, "decompress", raising(bp.FormatError("no")))
    with pytest.raises(Broken, match="read once, refused once"):
        guarded.run(chunk, tmp_path)


def test_what_it_notices_of_dtypes(tmp_path, monkeypatch):
    assert "float64" == dtypes.run(b'"<f8"', tmp_path)
    monkeypatch.setattr(dtypes.dtypes, "encode_dtype", lambda dtype: "<f4")
    with pytest.raises(Broken, match="comes back as"):
        dtypes.run(b'"<f8"', tmp_path)


def test_what_it_notices_of_changes(tmp_path, monkeypatch):
    for state in changes.states():
        assert changes.PLAIN == changes.run(state, tmp_path)
        assert [] == list(tmp_path.iterdir())
        assert isinstance(changes.run(state[:-1], tmp_path), bp.FormatError)
    # Who ignores the record.
    monkeypatch.setattr(undo.UndoRecord, "old_bytes", lambda self, *span: iter(()))
    with pytest.raises(Broken, match="with its undo record"):
        changes.run(state, tmp_path)


def test_undo_records_of_the_right_digest():
    for state in changes.states():
        start = changes.start_of_record(state)
        assert state[start:] == changes.with_right_digest(state[start:], start)
        assert state[start:] != changes.with_right_digest(state[start:], start + 1)


@pytest.mark.full
@linux
def test_sound_folders(tmp_path):
    for entries in documents.seeds():
        data = json.dumps(entries).encode()
        assert not isinstance(documents.run(data, tmp_path), TypeError)
        assert [] == list(tmp_path.iterdir())


@linux
@pytest.mark.parametrize("name", ["describe", "verify", "recover"])
def test_what_it_notices_of_documents(tmp_path, monkeypatch, name):
    data = json.dumps(documents.seeds()[0]).encode()
    assert "rows" == documents.run(data, tmp_path)
    monkeypatch.setattr(documents.dataset, name, raising(UnicodeError("no")))
    with pytest.raises(UnicodeError):
        documents.run(data, tmp_path)
    monkeypatch.undo()
    sizes = itertools.chain([0], itertools.repeat(2**40))
    monkeypatch.setattr(documents, "peak", sizes.__next__)
    with pytest.raises(Broken, match="MiB of memory"):
        documents.run(data, tmp_path)
