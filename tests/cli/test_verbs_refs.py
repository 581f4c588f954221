"""``blpk refs``: its messages give advice about options, not about Python."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import numpy as np
import pytest
from support import environment

import bloscpack as bp
from bloscpack import UsageError


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "b").mkdir()
    rows = np.arange(50 * 24, dtype="<f8").reshape(50, 24)
    for name in ("a.blp", "b/a.blp"):
        bp.pack_ndarray_to_file(rows, name, chunk_size=8 * 24 * 7, checksum="crc32c")
    bp.pack_ndarray_to_file(rows, "parts.blp", chunk_size=8 * 7, checksum="crc32c")
    bp.pack_ndarray_to_file(rows, "md5.blp", checksum="md5")


@pytest.mark.parametrize(
    ("files", "advice"),
    [
        (["a.blp", "b/a.blp"], "give a mapping of names .* with --name and -o"),
        (["parts.blp"], "or use flat=True or --flat"),
        (["md5.blp"], "or use unverified=True or --unverified"),
    ],
)
def test_advice(files, advice, run):
    """The same advice serves programs and users of the command."""
    with pytest.raises(UsageError, match=advice):
        bp.references(files)
    code, _, err = run("refs", *files)
    assert 2 == code
    assert re.search(advice, err), err


def test_the_advice_works(run):
    for arguments in (["--flat", "parts.blp"], ["--unverified", "md5.blp"]):
        code, out, err = run("refs", *arguments)
        assert (0, "") == (code, err)
        assert '"refs"' in out
    code, out, _ = run("refs", "--name", "other", "b/a.blp")
    assert 0 == code
    assert '"other/.zarray"' in out


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_standard_output_is_full(tmp_path):
    """References that are longer than the buffer of standard output."""
    bp.pack_bytes_to_file(bytes(10_000), "long.blp", chunk_size=16, checksum="crc32c")
    with open("/dev/full", "wb") as full:
        answer = subprocess.run(
            [sys.executable, "-m", "bloscpack", "refs", "long.blp"],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(),
            check=False,
            timeout=60,
        )
    assert (1, b"blpk: error: standard output: No space left on device\n") == (
        answer.returncode,
        answer.stderr,
    )
