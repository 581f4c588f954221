"""Fuzzing in short: some seconds by chance, and that the fuzzer would notice."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz import fuzz_bloscpack, parts
from support import BLP, golden_files

import bloscpack as bp

SCRIPT = Path(fuzz_bloscpack.__file__)
SMALL = [e for e in golden_files() if e["size"] <= fuzz_bloscpack.LARGEST_SEED]
TAKEN_APART = [e for e in SMALL if e["format_version"] >= 2 and e["demand"] == "equal"]

DATA = bp.pack_bytes_to_bytes(b"abc" * 9, 9, metadata={"a": 1})

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="uses /proc")


@linux
@pytest.mark.parametrize("seed", [1, 2])
def test_by_chance(seed):
    arguments = ["--plain", "--count", "3000", "--seconds", "4", "--seed", str(seed)]
    done = subprocess.run(
        [sys.executable, SCRIPT, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (0, "") == (done.returncode, done.stderr)
    count, sound = re.match(
        r"(\d+) executions in .* s, (\d+) of sound files, 0 ", done.stdout
    ).groups()
    # Neither all the same, nor all refused at the door.
    assert 0 < int(sound) < int(count)


@linux
def test_given_files(tmp_path):
    (tmp_path / "a.blp").write_bytes(bp.pack_bytes_to_bytes(b"abc"))
    (tmp_path / "b.blp").write_bytes(b"abc")
    done = subprocess.run(
        [sys.executable, SCRIPT, "--plain", "a.blp", "b.blp"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
        check=True,
    )
    assert "a.blp: (b'abc', None)\nb.blp: NotReadable(" == done.stdout[:41]


@pytest.mark.parametrize(
    "path", sorted(SCRIPT.parents[1].glob("invalid/*.blp")), ids=lambda path: path.stem
)
def test_invalid_files(path, tmp_path):
    fuzz_bloscpack.run(path.read_bytes(), tmp_path)


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
        (MemoryError, "frames", "read_metadata", raising(MemoryError())),
        (
            fuzz_bloscpack.Broken,
            "file_io",
            "unpack_bytes_from_bytes",
            lambda data, nthreads: (b"abc", None),
        ),
        (fuzz_bloscpack.Broken, "chunks", "check_digest", raising(bp.FormatError())),
        (
            fuzz_bloscpack.Broken,
            "append",
            "append_fp",
            lambda fp, *args, **kwargs: fp.write(b"x"),
        ),
        (
            fuzz_bloscpack.Broken,
            "append",
            "rewrite_metadata_fp",
            lambda fp, value: fp.truncate(60),
        ),
    ],
)
def test_what_it_notices(tmp_path, monkeypatch, expected, module, name, fake):
    fuzz_bloscpack.run(DATA, tmp_path)
    monkeypatch.setattr(getattr(fuzz_bloscpack, module), name, fake)
    if module == "chunks":
        monkeypatch.setattr(fuzz_bloscpack.abstract_io, name, fake)
    with pytest.raises(expected):
        fuzz_bloscpack.run(DATA, tmp_path)
