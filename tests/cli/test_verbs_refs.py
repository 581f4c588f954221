"""``blpk refs``: its messages give advice about options, not about Python."""

from __future__ import annotations

import json
import os
import re
import subprocess

import numpy as np
import pytest
from support import run_blpk

import bloscpack as bp
from bloscpack import UsageError


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = np.arange(50 * 24, dtype="<f8").reshape(50, 24)
    bp.pack_ndarray_to_file(rows, "a.blp", chunk_size=8 * 24 * 7, checksum="crc32c")
    bp.pack_ndarray_to_file(rows, "parts.blp", chunk_size=8 * 7, checksum="crc32c")
    bp.pack_ndarray_to_file(rows, "md5.blp", checksum="md5")


@pytest.mark.parametrize(
    ("file", "advice", "repacking"),
    [
        ("parts.blp", "a multiple of 192 bytes", ["-z", "1920"]),
        ("md5.blp", "repack it with adler32, crc32 or crc32c", ["-k", "crc32"]),
    ],
)
def test_advice(file, advice, repacking, run):
    """The same advice serves programs and users of the command."""
    with pytest.raises(UsageError, match=advice):
        bp.references(file)
    code, _, err = run("refs", file)
    assert 2 == code
    assert re.search(advice, err), err
    assert 0 == run("repack", *repacking, file)[0]
    code, out, err = run("refs", file)
    assert (0, "") == (code, err)
    assert '"refs"' in out


def test_options(run):
    arguments = ("--name", "b", "--dims", "x,y", "--zarr-format", "3")
    code, out, err = run("refs", *arguments, "a.blp")
    assert (0, "") == (code, err)
    document = json.loads(json.loads(out)["refs"]["b/zarr.json"])
    assert ["x", "y"] == document["dimension_names"]


def test_an_output_that_exists(tmp_path, run):
    assert 0 == run("refs", "-o", "a.json", "a.blp")[0]
    assert bp.references("a.blp") == json.loads((tmp_path / "a.json").read_text())
    code, _, err = run("refs", "-o", "a.json", "a.blp")
    assert (1, True) == (code, "'a.json' exists! Use -f" in err)
    assert 0 == run("-f", "refs", "-o", "a.json", "a.blp")[0]


def test_an_output_that_is_the_input(tmp_path, run):
    (tmp_path / "link.json").symlink_to("a.blp")
    before = (tmp_path / "a.blp").read_bytes()
    for name in ("a.blp", "link.json"):
        code, _, err = run("-f", "refs", "-o", name, "a.blp")
        assert (2, True) == (code, "are the same file" in err)
    assert before == (tmp_path / "a.blp").read_bytes()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_standard_output_is_full(tmp_path):
    """References that are longer than the buffer of standard output."""
    bp.pack_bytes_to_file(bytes(10_000), "long.blp", chunk_size=16, checksum="crc32c")
    with open("/dev/full", "wb") as full:
        answer = run_blpk("refs", "long.blp", stdout=full, stderr=subprocess.PIPE)
    assert (1, b"blpk: error: standard output: No space left on device\n") == (
        answer.returncode,
        answer.stderr,
    )
