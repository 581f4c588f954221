"""What is certain is proven: the reasons against it are listed."""

from __future__ import annotations

import io
import random

import numpy
import pytest
from builders import packed, text
from check.cases import deleted, flipped, frames_of, inserted, recovered

import bloscpack as bp
from bloscpack.recover import recover_fp


def noise(size):
    return random.Random(size).randbytes(size)


PLAINS = pytest.mark.parametrize("plain", [text(960), noise(960), text(1000)])


# A wrong size in the header, and one byte more or less in the table


@PLAINS
@pytest.mark.parametrize(
    "damage",
    [
        lambda data: inserted(flipped(data, 8), 40, b"\r"),
        lambda data: deleted(flipped(data, 9, 2), 40),
        lambda data: inserted(flipped(data, 12, 3), 50, b"\r"),
        lambda data: deleted(flipped(data, 12, 5), 33),
    ],
    ids=[
        "chunk_size +",
        "chunk_size -",
        "last_chunk +",
        "last_chunk -",
    ],
)
def test_wrong_size_and_a_byte_in_the_table(plain, damage):
    data = packed(plain, chunk_size=100)
    found, recovery = recovered(damage(data))
    assert plain == b"".join(found)
    assert not recovery.certain
    assert recovery.doubts


@pytest.mark.parametrize("offsets", [True, False])
@pytest.mark.parametrize(("at", "name"), [(8, "chunk_size"), (12, "last_chunk")])
@pytest.mark.parametrize("bit", range(12))
def test_wrong_size_is_never_certain(at, name, bit, offsets):
    data = packed(text(960), chunk_size=100, offsets=offsets)
    damaged = flipped(data, at + bit // 8, bit % 8)
    for lost in (None, 0, 4, 9):
        more = damaged
        if lost is not None:
            more = flipped(damaged, frames_of(data)[lost][0] + 20)
        assert not recovered(more)[1].certain


def test_size_of_the_lost_last_chunk_is_in_the_header_alone():
    data = packed(text(960), chunk_size=100)
    _, recovery = recovered(data[:-40])
    assert not recovery.certain
    assert ["only the header states the plain sizes of lost chunks"] == recovery.doubts
    assert recovery.placed


def test_chunks_of_equal_extent_are_not_placed_if_one_may_be_cut_out():
    _, recovery = recovered(packed(noise(960), chunk_size=100)[:-150])
    assert not recovery.certain
    assert not recovery.placed


# Digests


@pytest.mark.parametrize("offsets", [True, False])
@pytest.mark.parametrize("checksum", ["adler32", "crc32", "sha256"])
def test_as_many_bytes_are_missing_as_a_digest_has(checksum, offsets):
    plain = noise(300)
    data = packed(plain, chunk_size=300, checksum=checksum, offsets=offsets)
    start, stop, _ = frames_of(data)[0]
    size = stop - start - 316
    for at in (start + 20, start + 200, stop - size):
        recovery = recover_fp(io.BytesIO(deleted(data, at, size)), io.BytesIO())
        assert not recovery.certain
        assert not recovery.complete


# Repeated stretches, and chunks out of order


@pytest.mark.parametrize("i", [1, 3, 6])
@pytest.mark.parametrize("gone", [33, 48, 70, 95])
@PLAINS
def test_repeated_stretch_and_a_byte_missing_in_the_table(plain, gone, i):
    data = packed(plain, chunk_size=120)
    frames = frames_of(data)
    start, stop, _ = frames[i]
    damaged = deleted(inserted(data, stop, data[start:stop]), gone)
    found, recovery = recovered(damaged, drop=True)
    assert all(plain in found for _, _, plain in frames)
    assert not recovery.certain


@pytest.mark.parametrize("offsets", [True, False])
@pytest.mark.parametrize("to", range(8))
@PLAINS
def test_last_chunk_in_front_of_others(plain, to, offsets):
    data = packed(plain, chunk_size=120, offsets=offsets)
    frames = frames_of(data)
    last = data[frames[-1][0] :]
    start = frames[to][0]
    damaged = inserted(data[: frames[-1][0]], start, last)
    found, _ = recovered(damaged, drop=True)
    assert sorted(found) == sorted(chunk for _, _, chunk in frames)


def test_chunks_out_of_order_get_their_numbers_from_the_table():
    plain = b"".join(noise(200 + 10 * i) + bytes(400 - 10 * i) for i in range(8))
    data = packed(plain + b"the end", chunk_size=600)
    frames = frames_of(data)
    assert 9 == len({stop - start for start, stop, _ in frames})
    order = [3, 8, 0, 1, 7, 2, 6, 5, 4]
    damaged = data[: frames[0][0]]
    damaged += b"".join(data[slice(*frames[i][:2])] for i in order)
    found, recovery = recovered(damaged)
    assert plain + b"the end" == b"".join(found)
    assert recovery.certain
    rules = [(first, stop) for first, stop, _ in recovery.decided]
    assert 0 == rules[0][0]
    assert 9 == rules[-1][1]


@pytest.mark.parametrize("more", [9, 90])
def test_two_chunks_that_changed_places_of_which_one_is_damaged(more):
    """The table has another extent for the damaged chunk than its header."""
    plain = noise(300) + bytes(300) + noise(300 + more) + bytes(300 - more)
    data = packed(plain, chunk_size=600)
    (start, middle, plain), (_, stop, _) = frames_of(data)
    assert stop - middle == middle - start + more
    damaged = data[:start] + flipped(data[middle:stop], 100) + data[start:middle]
    found, recovery = recovered(damaged, drop=True)
    assert ([plain], False, False) == (found, recovery.certain, recovery.placed)


# Bytes that are something else


@pytest.mark.parametrize("offsets", [True, False])
@pytest.mark.parametrize("i", [0, 2, 5])
def test_bytes_between_intact_chunks(offsets, i):
    data = packed(text(960), chunk_size=100, offsets=offsets)
    damaged = inserted(data, frames_of(data)[i][0], b"!" * 20)
    found, recovery = recovered(damaged)
    assert text(960) == b"".join(found)
    assert (0, False) == (recovery.nlost, recovery.certain)


@pytest.mark.parametrize("offsets", [True, False])
@pytest.mark.parametrize("i", [0, 3, 7])
def test_one_damaged_chunk_is_certain(offsets, i):
    """All others are in their places, also if all have one extent."""
    for plain in (text(800), noise(800)):
        data = packed(plain, chunk_size=100, offsets=offsets)
        damaged = flipped(data, frames_of(data)[i][0] + 30)
        _, recovery = recovered(damaged)
        # Without a table, the header alone says that a last chunk is missing.
        assert recovery.certain == (offsets or i < 7)
        assert recovery.certain == (not recovery.doubts)
        assert (7, 1) == (recovery.nsaved, recovery.nlost)


def test_equal_extents_beside_two_damaged_chunks_are_no_proof():
    data = packed(noise(800), chunk_size=100)
    for i in (2, 5):
        data = flipped(data, frames_of(data)[2 if i == 2 else 5][0] + 30)
    _, recovery = recovered(data)
    assert not recovery.certain


@pytest.mark.parametrize("offsets", [True, False])
@pytest.mark.parametrize("damaged", [[0, 1], [3, 4], [4, 5]])
def test_two_damaged_chunks_are_not_one(damaged, offsets):
    """A copy of another chunk takes the number of the second one."""
    data = packed(noise(700), chunk_size=100, offsets=offsets)
    frames = frames_of(data)
    start, stop, _ = frames[2 if damaged[0] else 5]
    for whole in (True, False):
        more = data
        for i in damaged:
            begin = frames[i][0]
            more = more[:begin] + bytes(40) + more[begin + 40 :] if whole else more
            more = more if whole else flipped(more, begin + 30)
        more = inserted(more, stop, data[start:stop])
        found, recovery = recovered(more, drop=True)
        assert not recovery.certain
        assert all(
            plain in found for i, (_, _, plain) in enumerate(frames) if i not in damaged
        )


def test_lost_chunks_of_lower_numbers_lie_behind():
    plain = b"".join(noise(200 + 10 * i) + bytes(400 - 10 * i) for i in range(4))
    data = packed(plain + b"end", chunk_size=600)
    frames = [data[start:stop] for start, stop, _ in frames_of(data)]
    head = data[: frames_of(data)[0][0]]
    damaged = head + frames[0] + frames[3] + bytes(70) + frames[1] + frames[4]
    found, recovery = recovered(damaged)
    assert plain[1200:1800] not in found
    assert [(2, 3)] == [loss.chunks for loss in recovery.losses]


def test_array_confirms_the_sizes():
    array = numpy.arange(1000, dtype="<i8") ** 3
    data = bp.pack_ndarray_to_bytes(array, chunk_size=2000)
    _, recovery = recovered(flipped(data, len(data) - 30))
    assert (1, True) == (recovery.nlost, recovery.certain)
