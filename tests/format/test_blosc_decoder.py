"""The page docs/format-appendix.rst suffices to decode what Blosc writes."""

from __future__ import annotations

import blosc
import numpy as np
import pytest
from format.blosc_decoder import Damaged, decode
from format.independent_reader import Refused, read_chunks, read_front
from support import BLP, golden_files

RANDOM = np.random.default_rng(1)
PLAIN = {
    "numbers": np.arange(3000, dtype="<i8").tobytes()[:-3],
    "few values": RANDOM.integers(0, 3, 20_011, dtype="u1").tobytes(),
    "far repeats": RANDOM.bytes(9000) * 2 + bytes(700),
    "random": RANDOM.bytes(5000),
    "zeros": bytes(70_000),
    "short": b"abc" * 40,
}


@pytest.mark.parametrize("shuffle", [0, 1, 2])
@pytest.mark.parametrize("cname", ["blosclz", "lz4", "lz4hc", "zlib"])
@pytest.mark.parametrize("name", PLAIN)
def test_chunks(name, cname, shuffle):
    plain = PLAIN[name]
    for typesize in (1, 2, 3, 8, 16, 17):
        for clevel in (1, 5, 9):
            chunk = blosc.compress(plain, typesize, clevel, shuffle, cname)
            assert decode(chunk) == plain, (typesize, clevel)


def test_blocks():
    """Several blocks, of which the last one is short, with and without splitting."""
    plain = np.arange(20_001, dtype="<i4").tobytes()
    try:
        for blocksize in (512, 1000, 4096):
            blosc.set_blocksize(blocksize)
            for typesize in (4, 8, 7):
                for shuffle in (0, 1, 2):
                    chunk = blosc.compress(plain, typesize, 5, shuffle, "blosclz")
                    assert decode(chunk) == plain, (blocksize, typesize, shuffle)
    finally:
        blosc.set_blocksize(0)


def test_golden_files():
    """Chunks of the Blosc versions of 2012 to 2018."""
    codecs = set()
    for entry in golden_files():
        data = (BLP / entry["file"]).read_bytes()
        if len(data) > 20_000:
            continue
        try:
            file = read_chunks(data, read_front(data))
        except Refused:
            continue
        for piece, (start, stop) in zip(file.pieces, file.extents, strict=True):
            codec = data[start + 2] >> 5
            if len(piece) < 100_000 and (codec in (0, 1, 3) or data[start + 2] & 2):
                assert decode(data[start:stop]) == piece, entry["file"]
                codecs.add(codec)
    assert {0, 1, 3} <= codecs


def refusing(read, chunk):
    """Return plain bytes, or None if the inside of the chunk is damaged."""
    try:
        return read(chunk)
    except Exception as error:
        # The class of Blosc may exist twice: see `_cli.text.version`.
        if isinstance(error, Damaged) or "while decompressing data" in str(error):
            return None
        raise


@pytest.mark.parametrize("typesize", [1, 4])
def test_flipped_bits(typesize):
    """Rules B1 to B5 refuse what Blosc refuses, and allow what it allows."""
    chunk = blosc.compress(PLAIN["few values"][:4011], typesize, 5, 1, "blosclz")
    outcomes = set()
    for bit in range(16 * 8, len(chunk) * 8, 31):
        flipped = bytearray(chunk)
        flipped[bit // 8] ^= 1 << bit % 8
        plain = refusing(decode, bytes(flipped))
        assert plain == refusing(blosc.decompress, bytes(flipped)), bit
        outcomes.add(plain is None)
    assert {True, False} == outcomes
