"""Chunks of snappy, which Blosc's wheels lack, are read through an extra."""

from __future__ import annotations

import sys

import pytest
from support import BLP, golden_files, golden_input

import bloscpack as bp
from bloscpack._engine.blosc_settings import own_settings
from bloscpack._format.blosc_header import decode_header
from bloscpack._format.chunks import decompress, decompress_into
from bloscpack.constants import CNAME_AVAIL
from bloscpack.exceptions import DamageError, FormatError, Unsupported

cramjam = pytest.importorskip("cramjam", reason="needs the extra 'snappy'")
pytestmark = pytest.mark.skipif("snappy" in CNAME_AVAIL, reason="Blosc has snappy")

NAME = "old/0.16.0-codec-snappy.blp"


def chunk_of(path=BLP / NAME):
    """Return the first chunk of a file."""
    content = path.read_bytes()
    start = content.index(b"\x02\x01", 32)
    header = decode_header(content[start : start + 16])
    return content[start : start + header.ctbytes]


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
    chunk = chunk_of()
    header = decode_header(chunk)
    errors = []
    for position in range(16, len(chunk), max(1, len(chunk) // 500)):
        for value in (0, 0xFF, chunk[position] ^ 1):
            bad = chunk[:position] + bytes([value]) + chunk[position + 1 :]
            try:
                with own_settings:
                    assert header.nbytes == len(decompress(bad))
            except FormatError as error:
                errors.append(str(error))
    assert errors
    assert [] == [e for e in errors if "Blosc can't decompress the chunk" not in e]


def test_into_memory():
    chunk = chunk_of()
    header = decode_header(chunk)
    place = bytearray(header.nbytes)
    with own_settings:
        decompress_into(chunk, memoryview(place))
        assert bytes(place) == decompress(chunk)
        bad = chunk[:20] + b"\xff" * (len(chunk) - 20)
        with pytest.raises(DamageError):
            decompress_into(bad, memoryview(place))
