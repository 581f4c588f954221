"""Geometry: reports, recoveries and pictures agree on counts, sizes and spans."""

from __future__ import annotations

import io

import pytest
from builders import text
from check.cases import flipped, frames_of

import bloscpack as bp
from bloscpack.recover import recover_fp
from bloscpack.verify import verify_fp

LAST_CHUNK_AT = 12
NCHUNKS_AT = 16


def packed(offsets=True, checksum="adler32", size=1000):
    """Return a file with eight chunks, the last one of 104 bytes."""
    settings = bp.BloscpackArgs(offsets=offsets, checksum=checksum)
    return bp.pack_bytes_to_bytes(text(size), 128, bloscpack_args=settings)


@pytest.mark.parametrize("offsets", [True, False])
@pytest.mark.parametrize("position", [LAST_CHUNK_AT, NCHUNKS_AT])
@pytest.mark.parametrize("bit", [*range(8), 12, 31])
def test_report_and_recovery_agree_if_all_chunks_are_intact(offsets, position, bit):
    damaged = flipped(packed(offsets), position + bit // 8, bit % 8)
    report = verify_fp(io.BytesIO(damaged))
    recovery = recover_fp(io.BytesIO(damaged), io.BytesIO(), drop=True)
    assert (8, 1000) == (recovery.nchunks, recovery.nbytes)
    if report.nchunks == report.nintact:
        assert (8, 1000) == (report.nchunks, report.nbytes)
    spans = [f.span for f in report.findings if f.kind == "size"]
    assert all(span == (896, 1000) for span in spans)


@pytest.mark.parametrize("bit", range(8))
@pytest.mark.parametrize("lost", [0, 3, 6])
def test_last_chunk_that_is_intact_counts_more_than_the_header(bit, lost):
    damaged = bytearray(flipped(packed(), LAST_CHUNK_AT, bit))
    damaged[frames_of(packed())[lost][0] + 20] ^= 1
    report = verify_fp(io.BytesIO(damaged))
    recovery = recover_fp(io.BytesIO(damaged), io.BytesIO())
    assert (8, 7) == (report.nchunks, report.nintact)
    assert 1000 == report.nbytes == recovery.nbytes
    assert 1000 - 128 == report.nbytes_intact
    (loss,) = recovery.losses
    expected = [f.span for f in report.findings if f.chunk == lost]
    assert [loss.span] == expected == [(128 * lost, 128 * lost + 128)]
