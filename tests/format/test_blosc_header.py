"""The record of a chunk header, and the block table."""

from __future__ import annotations

import blosc
import pytest

from bloscpack._format.blosc_header import (
    BLOSC_HEADER,
    decode_block_starts,
    decode_header,
    encode_block_starts,
    unpack_header,
)
from bloscpack.exceptions import FormatError

FIELDS = {
    "version": 2,
    "versionlz": 1,
    "flags": 0x84,
    "typesize": 4,
    "nbytes": 1000,
    "blocksize": 300,
    "ctbytes": 500,
}
RAW = BLOSC_HEADER.pack(*FIELDS.values())


@pytest.mark.parametrize("decode", [decode_header, unpack_header])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_fields(decode, kind):
    header = decode(kind(RAW + b"more"))
    assert FIELDS == {name: getattr(header, name) for name in FIELDS}
    assert RAW == header.raw


def test_unpacking_checks_nothing():
    assert 7 == unpack_header(b"\xff" * 16).codec_number


@pytest.mark.parametrize(
    ("flags", "codec", "filter_", "is_copy"),
    [
        (0x00, "blosclz", "none", False),
        (0x21, "lz4", "shuffle", False),
        (0x44, "snappy", "bitshuffle", False),
        (0x62, "zlib", "none", True),
        (0x97, "zstd", "bitshuffle", True),
    ],
)
def test_flags(flags, codec, filter_, is_copy):
    header = unpack_header(RAW[:2] + bytes([flags]) + RAW[3:])
    assert (codec, filter_, is_copy) == (header.codec, header.filter, header.is_copy)


def test_two_filters_are_refused():
    raw = BLOSC_HEADER.pack(*{**FIELDS, "flags": 0x85}.values())
    with pytest.raises(FormatError, match="number of filters to be 0 or 1, found 2"):
        decode_header(raw)


@pytest.mark.parametrize(
    ("nblocks", "nbytes", "blocksize"), [(0, 0, 1), (1, 1, 1), (4, 1000, 300)]
)
def test_number_of_blocks(nblocks, nbytes, blocksize):
    raw = BLOSC_HEADER.pack(2, 1, 0, 1, nbytes, blocksize, 1000)
    header = unpack_header(raw)
    assert (nblocks, 16 + 4 * nblocks) == (header.nblocks, header.table_end)


def test_block_table_of_a_chunk_by_blosc():
    chunk = blosc.compress(bytes(range(256)) * 2**14, 8, cname="lz4")
    header = decode_header(chunk)
    starts = decode_block_starts(chunk[16 : header.table_end])
    assert header.nblocks == len(starts) > 1
    assert header.table_end == min(starts)
    assert chunk[16 : header.table_end] == encode_block_starts(starts)


def test_part_of_a_block_table():
    assert (1, 2) == decode_block_starts(encode_block_starts([1, 2, 3])[:11])
