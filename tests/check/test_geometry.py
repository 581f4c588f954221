"""Geometry: reports, recoveries and pictures agree on counts, sizes and spans."""

from __future__ import annotations

import io
import json

import pytest
from check.cases import text

import bloscpack as bp
from bloscpack._check.evidence import ChunkGeometry
from bloscpack._check.files import Inspection
from bloscpack._check.rebuild import RecoveryPlan
from bloscpack._engine.blosc_settings import own_settings
from bloscpack._storage.base import MemoryStorage
from bloscpack.recover import recover_fp
from bloscpack.verify import verify_fp

LAST_CHUNK_AT = 12
NCHUNKS_AT = 16


def packed(offsets=True, checksum="adler32", size=1000):
    """Return a file with eight chunks, the last one of 104 bytes."""
    settings = bp.BloscpackArgs(offsets=offsets, checksum=checksum)
    return bp.pack_bytes_to_bytes(text(size), 128, bloscpack_args=settings)


def flipped(data, position, bit):
    found = bytearray(data)
    found[position + bit // 8] ^= 1 << bit % 8
    return bytes(found)


def inspected(data):
    with own_settings:
        return Inspection(MemoryStorage(data), 1)


@pytest.mark.parametrize("offsets", [True, False])
@pytest.mark.parametrize("position", [LAST_CHUNK_AT, NCHUNKS_AT])
@pytest.mark.parametrize("bit", [*range(8), 12, 31])
def test_report_and_recovery_agree_if_all_chunks_are_intact(offsets, position, bit):
    damaged = flipped(packed(offsets), position, bit)
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
    chains = inspected(packed()).numbering.chains
    damaged[chains[0].offsets[lost] + 20] ^= 1
    report = verify_fp(io.BytesIO(damaged))
    recovery = recover_fp(io.BytesIO(damaged), io.BytesIO())
    assert (8, 7) == (report.nchunks, report.nintact)
    assert 1000 == report.nbytes == recovery.nbytes
    assert 1000 - 128 == report.nbytes_intact
    (loss,) = recovery.losses
    expected = [f.span for f in report.findings if f.chunk == lost]
    assert [loss.span] == expected == [(128 * lost, 128 * lost + 128)]


def test_table_takes_its_count_from_the_geometry(tmp_path, run):
    damaged = flipped(packed(), NCHUNKS_AT, 1)
    (tmp_path / "a.blp").write_bytes(damaged)
    code, said, _ = run("info", "--json", "--chunks", tmp_path / "a.blp")
    assert 3 == code
    assert inspected(damaged).geometry.nchunks == len(json.loads(said)["chunks"])


@pytest.mark.parametrize("drop", [True, False])
def test_plan_has_no_side_effects(drop):
    # The header is lost and the end is cut off: the last chunk may have any size.
    damaged = b"?" * 32 + packed(offsets=False)[32:-30]
    inspection = inspected(damaged)
    before = inspection.report.as_dict()
    first = RecoveryPlan(inspection, drop).recovery.as_dict()
    second = RecoveryPlan(inspection, drop).recovery.as_dict()
    assert first == second
    assert before == inspection.report.as_dict()
    assert inspection.geometry.last_chunk is None
    assert drop or any("last chunk is not known" in r for r in first["remarks"])


@pytest.mark.parametrize(
    ("sizes", "nbytes", "spans"),
    [
        ((8, 128, 104), 1000, {(0, 1): (0, 128), (6, 8): (768, 1000)}),
        ((8, 128, None), None, {(0, 7): (0, 896), (7, 8): None}),
        ((8, None, 104), None, {(0, 1): None, (7, 8): None}),
        ((1, None, 104), 104, {(0, 1): (0, 104)}),
        ((0, None, None), 0, {}),
    ],
)
def test_sizes_and_spans(sizes, nbytes, spans):
    geometry = ChunkGeometry(*sizes)
    assert nbytes == geometry.nbytes
    assert spans == {chunks: geometry.span(*chunks) for chunks in spans}


def test_another_last_chunk():
    geometry = ChunkGeometry(8, 128, None)
    assert 1024 == geometry._replace(last_chunk=128).nbytes
    assert geometry.last_chunk is None
