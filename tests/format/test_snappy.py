"""Chunks of snappy, which Blosc's wheels lack, are read through an extra."""

from __future__ import annotations

import sys
import zlib

import pytest
from support import BLP, golden_files, golden_input

import bloscpack as bp
from bloscpack.constants import CNAME_AVAIL
from bloscpack.exceptions import FormatError, Unsupported

cramjam = pytest.importorskip("cramjam", reason="needs the extra 'snappy'")
pytestmark = pytest.mark.skipif("snappy" in CNAME_AVAIL, reason="Blosc has snappy")

NAME = "old/0.16.0-codec-snappy.blp"


def test_files(tmp_path):
    names = [e for e in golden_files("old/") if "snappy" in e["file"]]
    assert names
    for entry in names:
        out = tmp_path / "plain"
        bp.unpack_file_from_file(BLP / entry["file"], out)
        assert golden_input(entry) == out.read_bytes()
        assert bp.verify(BLP / entry["file"]).ok


def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cramjam", None)
    with pytest.raises(Unsupported, match=r"pip install '\.\[snappy\]'"):
        bp.unpack_bytes_from_file(BLP / NAME)


def test_every_changed_byte_is_an_error_or_plain_bytes():
    content = (BLP / NAME).read_bytes()
    start = content.index(b"\x02\x01", 32)
    stop = start + int.from_bytes(content[start + 12 : start + 16], "little")
    assert (
        zlib.adler32(content[start:stop]).to_bytes(4, "little")
        == (content[stop : stop + 4])
    )
    size, errors = len(bp.unpack_bytes_from_bytes(content)[0]), []
    for position in range(start + 16, stop, max(1, (stop - start) // 500)):
        for value in (0, 0xFF, content[position] ^ 1):
            bad = bytearray(content)
            bad[position] = value
            bad[stop : stop + 4] = zlib.adler32(bad[start:stop]).to_bytes(4, "little")
            try:
                assert size == len(bp.unpack_bytes_from_bytes(bytes(bad))[0])
            except FormatError as error:
                errors.append(str(error))
    assert errors
    assert [] == [e for e in errors if "Blosc can't decompress the chunk" not in e]
