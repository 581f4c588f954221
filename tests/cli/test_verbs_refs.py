"""``blpk refs``: its messages give advice about options, not about Python."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import numpy as np
import pytest
from support import ROOT, environment

import bloscpack as bp
from bloscpack import UsageError
from bloscpack._cli.exit_codes import ADVICE


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
    ("files", "python", "command"),
    [
        (
            ["a.blp", "b/a.blp"],
            "give a mapping of names",
            "rename a file, or .* --name",
        ),
        (["parts.blp"], "or refer to a flat array", "or use --flat"),
        (["md5.blp"], "or leave them unverified", "or use --unverified"),
    ],
)
def test_advice(files, python, command, run):
    with pytest.raises(UsageError, match=python):
        bp.references(files)
    code, _, err = run("refs", *files)
    assert 2 == code
    assert python not in err
    assert re.search(command, err), err


def test_the_advice_works(run):
    for arguments in (["--flat", "parts.blp"], ["--unverified", "md5.blp"]):
        code, out, err = run("refs", *arguments)
        assert (0, "") == (code, err)
        assert '"refs"' in out
    code, out, _ = run("refs", "--name", "other", "b/a.blp")
    assert 0 == code
    assert '"other/.zarray"' in out


def test_each_advice_is_in_a_message_of_the_library():
    files = [p for p in (ROOT / "bloscpack").rglob("*.py") if "_cli" not in p.parts]
    text = "".join(path.read_text("utf-8") for path in files)
    # A string may be divided at any blank.
    joined = text.replace('"\n', "").replace("\n", "")
    joined = "".join(joined.replace('"', "").split())
    for advice in ADVICE:
        assert "".join(advice.split()) in joined


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
