"""Recover says that it is certain only where the file proves which chunk is which."""

from __future__ import annotations

import functools
import io
import itertools
import random
import struct

import builders
import numpy
import pytest
from builders import text
from check import cases
from check.cases import frames_of, recovered, recovered_and_verified

import bloscpack as bp
from bloscpack.exceptions import FormatError
from bloscpack.recover import recover_fp

packed = functools.partial(builders.packed, chunk_size=100, free_entries=0)

# Where the fields of a header are, and how they are stored.
FIELDS = {
    "chunk_size": (8, "<i"),
    "last_chunk": (12, "<i"),
    "nchunks": (16, "<q"),
    "max_app_chunks": (24, "<q"),
}


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
    return cases.flipped(data, frames_of(data)[i][0] + 20)


def without(data, numbers):
    """Return a file from which these chunks are cut out, exactly."""
    frames = frames_of(data)
    for i in sorted(numbers, reverse=True):
        data = data[: frames[i][0]] + data[frames[i][1] :]
    return data


# The size of the last chunk


@pytest.mark.parametrize("plain", [text(460), copied(460)])
@pytest.mark.parametrize("offsets", [True, False])
def test_last_chunk_of_another_size_than_the_header_says(plain, offsets):
    sizes = [*itertools.product([2, 3], [-1, 0, 1, 59, 61, 100])]
    sizes += [(2, 101), (2, 2**24)]  # layout 3 refuses one larger than the others
    for (layout, last), lost in itertools.product(sizes, [0, 2, 3]):
        data = bytearray(packed(plain, offsets=offsets))
        data[4] = layout
        frames = frames_of(bytes(data))
        damaged = with_field(flipped(bytes(data), lost), "last_chunk", last)
        found, recovery = recovered(damaged)
        assert [lost, 1] == [recovery.losses[0].chunks[0], recovery.nlost]
        expected = [plain for _, _, plain in frames]
        expected[lost] = bytes(100)
        assert expected == found


@pytest.mark.parametrize("offsets", [True, False])
def test_last_chunk_that_is_empty_by_the_header(offsets):
    data = packed(text(400), offsets=offsets)
    damaged = with_field(flipped(data, 3), "last_chunk", 0)
    found, recovery = recovered(damaged)
    assert [((3, 4), None)] == [(loss.chunks, loss.span) for loss in recovery.losses]
    assert (text(300) + bytes(100), False) == (b"".join(found), recovery.certain)


# Chunks that are cut out


@pytest.mark.parametrize("metadata", [None, {"unit": "m"}])
@pytest.mark.parametrize("offsets", [True, False])
@pytest.mark.parametrize("nchunks", [2, 3, 12])
def test_all_chunks_but_the_last_are_cut_out(nchunks, offsets, metadata):
    plain = text(100 * nchunks - 26)
    data = packed(plain, offsets=offsets, metadata=metadata)
    damaged = without(data, range(nchunks - 1))
    found, recovery = recovered(damaged)
    assert [bytes(100)] * (nchunks - 1) == found[:-1]
    assert plain[-74:] == found[-1]
    assert [(0, nchunks - 1)] == [loss.chunks for loss in recovery.losses]
    assert offsets or not recovery.certain


@pytest.mark.parametrize("cut", [[0], [3], [0, 1, 2], [1, 2, 3], [2, 3]])
def test_chunks_are_cut_out(cut):
    """The others are known by the bytes that they take."""
    pieces = [copied(i) + bytes(400 - i) for i in range(20, 180, 20)]
    data = packed(b"".join(pieces) + b"the end", chunk_size=400)
    frames = frames_of(data)
    extents = [stop - start for start, stop, _ in frames]
    assert len(frames) == len({*extents})
    found, recovery = recovered(without(data, cut))
    expected = [plain for _, _, plain in frames]
    for i in cut:
        expected[i] = bytes(400)
    assert expected == found
    assert recovery.certain
    assert len(cut) == recovery.nlost


@pytest.mark.parametrize("cut", [[0], [3], [1, 2]])
def test_copies_are_cut_out(cut):
    """All take the same bytes; only the last one is known."""
    plain = copied(574)
    for metadata in (None, {"unit": "m"}):
        damaged = without(packed(plain, metadata=metadata), cut)
        found, recovery = recovered(damaged)
        assert (6, plain[-74:], False) == (len(found), found[-1], recovery.certain)
        left = [i for i in range(5) if i not in cut]
        expected = [plain[100 * i : 100 * i + 100] for i in left]
        assert expected == found[: len(expected)]


@pytest.mark.parametrize("cut", [[0], [1], [0, 1]])
@pytest.mark.parametrize("offsets", [True, False])
def test_array_keeps_its_shape_where_chunks_are_cut_out(offsets, cut):
    array = numpy.arange(34, dtype="<i8")
    settings = bp.BloscpackArgs(offsets=offsets)
    data = bp.pack_ndarray_to_bytes(array, chunk_size=96, bloscpack_args=settings)
    damaged = without(data, cut)
    new, _, recovery = recovered_and_verified(damaged)
    found = bp.unpack_ndarray_from_bytes(new)
    assert array.shape == found.shape
    assert array[24:].tolist() == found[24:].tolist()
    assert ("kept", len(cut)) == (recovery.metadata, recovery.nlost)
    assert offsets or not recovery.certain


# What says that all are there, and nothing but that


@pytest.mark.parametrize("left", [1, 2, 4])
def test_file_of_unknown_length_that_ends_too_early(left):
    data = packed(copied(460), offsets=False)
    damaged = with_field(data[: frames_of(data)[left][0]], "nchunks", -1)
    found, recovery = recovered(damaged)
    assert (left, False, False) == (len(found), recovery.certain, recovery.complete)
    _, recovery = recovered(with_field(data, "nchunks", -1))
    assert recovery.complete


@pytest.mark.parametrize("plain", [text(275), copied(275)])
@pytest.mark.parametrize("layout", [2, 3])
def test_header_says_one_chunk_less_and_the_first_is_damaged(plain, layout):
    data = bytearray(packed(plain))
    data[4] = layout
    at = frames_of(bytes(data))[0][0] + 3
    damaged = bytes(data[:at]) + bytes(40) + bytes(data[at:])
    found, recovery = recovered(with_field(damaged, "nchunks", 2))
    assert [plain[100:200], plain[200:]] == found[-2:]
    assert not recovery.certain


@pytest.mark.parametrize(
    ("changes", "certain"),
    [
        # A copy of chunk 3 lies in the place of chunk 4.
        ([("over", 4, 20), ("copy", 4, 3)], False),
        # All chunks are there, but the file contains something else too.
        ([("in", 4, 20)], False),
        ([("in", 2, 20), ("in", 4, 20)], False),
    ],
)
def test_bytes_between_copies(changes, certain):
    data = packed(copied(974))
    frames = frames_of(data)
    for what, i, value in changes:
        start = frames[i][0]
        if what == "over":
            data = data[: start + 8] + bytes(value) + data[start + 8 + value :]
        elif what == "in":
            data = data[:start] + bytes(value) + data[start:]
        else:
            copy = data[slice(*frames[value][:2])]
            data = data[:start] + b"!" * 9 + copy + data[start:]
    found, recovery = recovered(data)
    assert certain == recovery.certain
    assert found[-1] == frames[-1][2]


@pytest.mark.parametrize("plain", [copied(300), copied(260)])
@pytest.mark.parametrize("i", [0, 1, 2])
@pytest.mark.parametrize("layout", [2, 3])
def test_chunk_that_is_there_twice(plain, layout, i):
    """One chunk lies in the place of another, and the last one behind them all."""
    data = bytearray(packed(plain))
    data[4] = layout
    start, stop, _ = frames_of(bytes(data))[i]
    found, recovery = recovered(bytes(data[:stop] + data[start:]))
    assert not recovery.certain
    assert plain[: 100 * i + 100] == b"".join(found)[: 100 * i + 100]


# What is told of arrays


@pytest.mark.parametrize("offsets", [True, False])
def test_release_that_wrote_the_file_is_not_blamed_for_missing_chunks(offsets):
    array = numpy.arange(34, dtype="<i8")
    settings = bp.BloscpackArgs(offsets=offsets)
    data = bp.pack_ndarray_to_bytes(array, chunk_size=96, bloscpack_args=settings)
    for damaged in (without(data, [0]), without(data, [1, 2]), flipped(data, 1)):
        for nchunks in (-1, 3):
            _, _, recovery = recovered_and_verified(
                with_field(damaged, "nchunks", nchunks)
            )
            assert "lossy-writer" not in {f.kind for f in recovery.report.findings}


def test_array_that_nobody_can_describe_without_chunks():
    data = packed(b"", offsets=False, metadata={"container": "numpy"})
    data = with_field(data[: frames_of(data)[0][0]], "nchunks", 0)
    assert (b"", {"container": "numpy"}) == bp.unpack_bytes_from_bytes(data)
    new, report, recovery = recovered_and_verified(data)
    assert (0, "changed", 0) == (report.nchunks, recovery.metadata, report.nerrors)
    assert (b"", None) == bp.unpack_bytes_from_bytes(new)


@pytest.mark.parametrize("metadata", [None, {"a": 1}])
def test_file_of_zeros_behind_the_first_bytes(metadata):
    data = packed(text(300), metadata=metadata)
    for start in range(5, len(data)):
        for size in (32, frames_of(data)[0][0], len(data)):
            damaged = data[:start] + bytes(max(0, size - start))
            try:
                recovery = recover_fp(io.BytesIO(damaged), io.BytesIO())
            except FormatError:
                continue
            assert recovery.nsaved or not recovery.certain, (start, size)


@pytest.mark.parametrize("offsets", [True, False])
@pytest.mark.parametrize(
    ("kinds", "gone"),
    [
        ("RR", 0),
        ("RRR", 0),
        ("RRRR", 1),
        ("RZZ", 1),
        ("ZRRRZZRR", 0),
        ("RRRZR", 0),
        ("ZRRRRZZR", 1),
        ("RRZR", 0),
    ],
)
def test_one_of_several_of_one_extent_is_cut_out(kinds, gone, offsets):
    """All chunks are full, and those of noise, or of zeros, take as many bytes."""
    noise = random.Random(9)
    parts = [noise.randbytes(128) if kind == "R" else bytes(128) for kind in kinds]
    data = bp.pack_bytes_to_bytes(
        b"".join(parts),
        128,
        blosc_args=bp.BloscArgs(typesize=1),
        bloscpack_args=bp.BloscpackArgs(offsets=offsets),
    )
    start, stop, _ = frames_of(data)[gone]
    recovery = recover_fp(io.BytesIO(data[:start] + data[stop:]), io.BytesIO())
    assert (len(kinds) - 1, False) == (recovery.nsaved, recovery.certain)


# A wrong entry in the offset table, and nothing else


@pytest.mark.parametrize("nchunks", [2, 3, 5])
@pytest.mark.parametrize("plain", [text(500), copied(500)], ids=["text", "copies"])
def test_wrong_entry_does_not_change_the_order(plain, nchunks):
    data = packed(plain[: 100 * nchunks])
    frames = frames_of(data)
    chunks = [chunk for _, _, chunk in frames]
    for number, bit in itertools.product(range(nchunks), range(16)):
        damaged = bytearray(data)
        entry = frames[0][0] - 8 * (nchunks - number)
        damaged[entry + bit // 8] ^= 1 << bit % 8
        found, recovery = recovered(bytes(damaged))
        assert (chunks, nchunks) == (found, recovery.nsaved)


def test_wrong_entry_may_mean_that_two_chunks_changed_places():
    data = packed(bytes(500) + copied(500) + bytes(500), chunk_size=500)
    (start, middle, _), (_, stop, _), _ = frames = frames_of(data)
    entry = struct.pack("<q", middle)
    damaged = data.replace(entry, struct.pack("<q", start + stop - middle))
    assert data != damaged
    found, recovery = recovered(damaged)
    assert ([chunk for _, _, chunk in frames], False) == (found, recovery.certain)
    assert bp.unpack_bytes_from_bytes(damaged) == bp.unpack_bytes_from_bytes(data)
