"""What a strict type checker tells a program that uses the package."""

from __future__ import annotations

import re

import pytest
from support import run_python

pytest.importorskip("mypy")
pytestmark = pytest.mark.slow

PROGRAM = """\
import bloscpack as bp
import bloscpack.verify as checks
from bloscpack.append import append_fp

bp.append("a", "b", clevel=9)
bp.append("a", "b", checksum="crc32")  # error: Unexpected keyword argument "checksum"
reveal_type(bp.verify("a").nintact)  # note: "int"
reveal_type(bp.info("a").header.nchunks)  # note: "int"
bp.pack_bytes_to_bytes(b"", clevel=9, checksum=None, blosc_args={"cname": "zstd"})
bp.pack_bytes_to_bytes(b"", clevel="9")  # error: incompatible type "str"
bp.pack_bytes_to_bytes(b"", level=9, codec="zstd", auto="ratio")
bp.pack_bytes_to_bytes(b"", levl=9)  # error: Unexpected keyword argument "levl"
bp.append("a", "b", level=9)
bp.BloscArgs(4, level=9, codec="zstd")
bp.BloscArgs(levl=9)  # error: Unexpected keyword argument "levl"
bp.append("a", "b", auto=True, grow=True)
bp.repack("a", codec="zstd")
bp.save("a", [1, 2], metadata={"unit": "m"}, level=9, chunk_size="1M", nthreads=2)
bp.save("a", {"x": [1.5], "y": bp.load("b")}, auto="speed")
bp.save("a", object)  # error: Argument 2 to "save" has incompatible type
bp.save("a", [1], shard=True)  # error: Unexpected keyword argument "shard"
reveal_type(bp.load("a"))  # note: "Any"
reveal_type(bp.load("a", return_metadata=True)[0])  # note: "Any"
bp.load("a", return_metadata=True)[2]  # error: Tuple index out of range
reveal_type(bp.unpack_ndarray_from_file("a"))  # note: "numpy.ndarray[
reveal_type(bp.unpack_ndarray_from_file("a", return_metadata=True))  # note: "tuple[
checks.verify_fp("a")  # error: incompatible type "str"
"""


def test_program_under_strict_mypy(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = run_python(
        "-m", "mypy", "--strict", "--no-pretty", "program.py", cwd=tmp_path, text=True
    )
    found = {}
    for number, kind, text in re.findall(
        r"^program\.py:(\d+): (error|note): (.*)$", done.stdout, re.M
    ):
        found.setdefault(int(number), "%s: %s" % (kind, text))
    for number, line in enumerate(PROGRAM.splitlines(), 1):
        kind, _, text = line.partition("  # ")[2].partition(": ")
        message = found.pop(number, "")
        assert message.startswith(kind), done.stdout
        assert text in message, done.stdout
    assert {} == found, done.stdout
