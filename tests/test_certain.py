"""Recover says that it is certain only where the file proves which chunk is which."""

from __future__ import annotations

import itertools
import struct

import pytest
from damage import frames_of, recovered, text

import bloscpack as bp

# Where the fields of a header are, and how they are stored.
FIELDS = {
    "chunk_size": (8, "<i"),
    "last_chunk": (12, "<i"),
    "nchunks": (16, "<q"),
    "max_app_chunks": (24, "<q"),
}


def packed(plain, offsets=True, chunk_size=100, metadata=None, checksum="adler32"):
    settings = bp.BloscpackArgs(offsets, checksum, max_app_chunks=0)
    return bp.pack_bytes_to_bytes(plain, chunk_size, metadata, bloscpack_args=settings)


def copied(size):
    """Return plain bytes of which Blosc makes copies: all chunks take the same."""
    return bytes(i * i * 31 % 251 for i in range(size))


def with_field(data, name, value):
    """Return a file the header of which says something else."""
    data = bytearray(data)
    offset, stored_as = FIELDS[name]
    struct.pack_into(stored_as, data, offset, value)
    return bytes(data)


def flipped(data, i):
    """Return a file with one wrong bit in chunk `i`."""
    at = frames_of(data)[i][0] + 20
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def without(data, numbers):
    """Return a file from which these chunks are cut out, exactly."""
    frames = frames_of(data)
    for i in sorted(numbers, reverse=True):
        data = data[: frames[i][0]] + data[frames[i][1] :]
    return data


# The size of the last chunk


@pytest.mark.parametrize("plain", [text(460), copied(460)])
@pytest.mark.parametrize("offsets", [True, False])
@pytest.mark.parametrize(
    ("layout", "last"),
    # Layout 3 refuses one that is larger than the others.
    [*itertools.product([2, 3], [-1, 0, 1, 59, 61, 100]), (2, 101), (2, 2**24)],
)
@pytest.mark.parametrize("lost", [0, 2, 3])
def test_last_chunk_of_another_size_than_the_header_says(
    plain, offsets, layout, last, lost
):
    data = bytearray(packed(plain, offsets))
    data[4] = layout
    frames = frames_of(bytes(data))
    damaged = with_field(flipped(bytes(data), lost), "last_chunk", last)
    found, recovery = recovered(damaged)
    assert [lost, 1] == [recovery.losses[0].chunks[0], recovery.nlost]
    expected = [plain for _, _, plain in frames]
    expected[lost] = bytes(100)
    assert expected == found
