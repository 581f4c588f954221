"""Recover: every chunk whose own bytes are intact is saved, at its place."""

from __future__ import annotations

import functools
import io
import json
import os
import pty
import random
import struct
import subprocess
import sys

import builders
import numpy
import pytest
from builders import text
from check.cases import (
    Case,
    changed,
    frames_of,
    recovered_and_verified,
    without_note,
)
from check.harm import KINDS, damaged_file, edited, edited_case
from check.judge import judge
from support import BLP, environment, golden_files

import bloscpack as bp
from bloscpack import checksums
from bloscpack.append import append
from bloscpack.exceptions import FormatError, StorageError, UsageError
from bloscpack.recover import recover, recover_fp
from bloscpack.verify import verify_fp

CHECKSUMS = ["adler32", "crc32", "sha256"]
each_kind = pytest.mark.parametrize(
    ("checksum", "offsets"),
    [
        ("adler32", True),
        ("crc32", False),
        pytest.param("sha256", True, marks=pytest.mark.slow),
        pytest.param("sha256", False, marks=pytest.mark.slow),
    ],
)

packed = functools.partial(builders.packed, chunk_size=300)


def recovered(data, **kwargs):
    """Return the plain bytes and metadata that are saved, and what is told of it."""
    new, report, recovery = recovered_and_verified(data, **kwargs)
    assert recovery.nchunks == report.nchunks
    plain, metadata = bp.unpack_bytes_from_bytes(new)
    assert recovery.nbytes == len(plain)
    return plain, without_note(metadata)[0], recovery


def with_lost(plain, chunk_size, numbers, fill=0):
    """Return plain bytes as they should be when these chunks are lost."""
    plain = bytearray(plain)
    for i in numbers:
        stop = min(len(plain), (i + 1) * chunk_size)
        plain[i * chunk_size : stop] = bytes([fill]) * (stop - i * chunk_size)
    return bytes(plain)


# Undamaged files


def test_golden_files():
    for entry in golden_files():
        data = (BLP / entry["file"]).read_bytes()
        try:
            expected = bp.unpack_bytes_from_bytes(data, nthreads=1)
        except FormatError:
            continue
        plain, metadata, recovery = recovered(data)
        assert expected[0] == plain, entry["file"]
        assert recovery.metadata == "changed" or expected[1] == metadata, entry["file"]
        assert 0 == recovery.nlost, entry["file"]


@pytest.mark.parametrize(
    "entry", [pytest.param(e, id=e["file"]) for e in golden_files("v3/E")]
)
def test_undamaged_file_stays_byte_for_byte(entry):
    data = (BLP / entry["file"]).read_bytes()
    out_fp = io.BytesIO()
    assert recover_fp(io.BytesIO(data), out_fp).complete
    assert data == out_fp.getvalue()


# Damage in one place


@each_kind
def test_cut_at_every_byte(checksum, offsets):
    plain = text(700)
    data = packed(
        plain,
        chunk_size=100,
        checksum=checksum,
        offsets=offsets,
        metadata={"unit": "m"},
    )
    frames = frames_of(data)
    for size in range(4, len(data), 3):
        intact = sum(stop <= size for _, stop, _ in frames)
        if not intact:
            with pytest.raises(FormatError):
                recovered(data[:size])
            continue
        found, metadata, recovery = recovered(data[:size])
        lost = range(intact, 7)
        assert with_lost(plain, 100, lost) == found
        assert {"unit": "m"} == metadata
        assert [(intact, 7)] == [loss.chunks for loss in recovery.losses]


@each_kind
def test_first_bytes_are_gone(checksum, offsets):
    data = packed(text(700), chunk_size=100, checksum=checksum, offsets=offsets)
    frames = frames_of(data)
    for size in range(1, len(data) - 1, 7):
        intact = [plain for start, _, plain in frames if start >= size]
        if intact:
            found, _, _ = recovered(data[size:], drop=True)
            assert b"".join(intact) == found
        else:
            with pytest.raises(FormatError):
                recovered(data[size:])


@pytest.mark.parametrize("fill", [0, 7, 255])
@pytest.mark.parametrize("offsets", [True, False])
def test_each_chunk_is_wiped(offsets, fill):
    plain = text(2900)
    data = packed(plain, offsets=offsets)
    for i, (start, stop, _) in enumerate(frames_of(data)):
        damaged = data[:start] + bytes(stop - start) + data[stop:]
        found, _, recovery = recovered(damaged, fill=fill)
        assert with_lost(plain, 300, [i], fill) == found
        (loss,) = recovery.losses
        assert (i, i + 1) == loss.chunks
        assert (300 * i, min(2900, 300 * i + 300)) == loss.span
        found, _, recovery = recovered(damaged, drop=True)
        assert plain[: 300 * i] + plain[300 * i + 300 :] == found
        assert (9, 9, 1) == (recovery.nchunks, recovery.nsaved, recovery.nlost)


@pytest.mark.parametrize("offsets", [True, False])
def test_all_chunks_but_one_are_wiped(offsets):
    data = packed(text(2900), offsets=offsets)
    frames = frames_of(data)
    for i, (start, stop, chunk) in enumerate(frames):
        first = frames[0][0]
        wiped = bytes(start - first), bytes(len(data) - stop)
        damaged = data[:first] + wiped[0] + data[start:stop] + wiped[1]
        found, _, _ = recovered(damaged, drop=True)
        assert chunk == found
        if offsets:
            found, _, _ = recovered(damaged)
            assert with_lost(text(2900), 300, {*range(10)} - {i}) == found


@pytest.mark.parametrize("metadata", [None, {"unit": "m"}])
@pytest.mark.parametrize("offsets", [True, False])
@pytest.mark.parametrize("checksum", CHECKSUMS)
def test_sections_in_front_of_the_chunks_are_wiped(checksum, offsets, metadata):
    data = packed(text(2900), checksum=checksum, offsets=offsets, metadata=metadata)
    first = frames_of(data)[0][0]
    for start, stop in [(0, 32), (0, first), (4, first), (32, 64), (32, first)]:
        stop = min(stop, first)
        damaged = data[:start] + bytes(stop - start) + data[stop:]
        found, kept, recovery = recovered(damaged)
        assert text(2900) == found
        assert 0 == recovery.nlost
        if stop == 32:
            assert metadata == kept


def test_metadata_whose_digest_alone_is_damaged_are_kept():
    data = packed(text(2900), metadata={"unit": "m"}, offsets=False)
    digest_at = frames_of(data)[0][0] - 4
    damaged = data[:digest_at] + b"\0\0\0\0" + data[digest_at + 4 :]
    _, metadata, recovery = recovered(damaged)
    assert {"unit": "m"} == metadata
    assert "kept" == recovery.metadata
    assert ["digest"] == [f.kind for f in recovery.report.findings]


def test_lost_metadata_are_told_of():
    data = packed(text(2900), metadata={"unit": "m"})
    damaged = data[:40] + b"\xff" * 60 + data[100:]
    plain, metadata, recovery = recovered(damaged)
    assert (text(2900), None) == (plain, metadata)
    assert ("lost", False) == (recovery.metadata, recovery.complete)


@pytest.mark.parametrize("offsets", [True, False])
@pytest.mark.parametrize("size", [1, 50, 500, 1200])
def test_bytes_are_gone_in_the_middle(size, offsets):
    data = packed(text(2900), offsets=offsets)
    frames = frames_of(data)
    for at in range(frames[0][0] + 1, len(data) - size, 97):
        lost = [
            i
            for i, (start, stop, _) in enumerate(frames)
            if start < at + size and stop > at
        ]
        found, _, recovery = recovered(data[:at] + data[at + size :])
        assert with_lost(text(2900), 300, lost) == found
        assert len(lost) == recovery.nlost


@pytest.mark.parametrize("offsets", [True, False])
def test_bytes_come_in_between(offsets):
    data = packed(text(2900), offsets=offsets)
    for i, (start, _, _) in enumerate(frames_of(data)):
        found, _, recovery = recovered(
            data[: start + 30] + b"!" * 20 + data[start + 30 :]
        )
        assert with_lost(text(2900), 300, [i]) == found
        found, _, recovery = recovered(data[:start] + b"!" * 20 + data[start:])
        assert text(2900) == found
        assert 0 == recovery.nlost


@pytest.mark.parametrize("position", range(4, 32))
def test_any_byte_of_the_header(position):
    for value in (0, 1, 2, 3, 127, 255):
        data = bytearray(packed(text(2900)))
        data[position] = value
        found, _, recovery = recovered(bytes(data))
        assert text(2900) == found
        assert 0 == recovery.nlost


# Arrays


def array_and_file(order="C"):
    array = numpy.arange(1000, dtype="<i8").reshape(100, 10)
    array = numpy.asarray(array, order=order)
    return array, bp.pack_ndarray_to_bytes(array, chunk_size=2000)


def as_array(data, **kwargs):
    out_fp = io.BytesIO()
    recovery = recover_fp(io.BytesIO(data), out_fp, **kwargs)
    assert verify_fp(io.BytesIO(out_fp.getvalue())).ok
    return bp.unpack_ndarray_from_bytes(out_fp.getvalue()), recovery


def wiped(data, i):
    start, stop, _ = frames_of(data)[i]
    return data[:start] + bytes(stop - start) + data[stop:]


def test_array_keeps_its_shape():
    array, data = array_and_file()
    found, recovery = as_array(wiped(data, 1))
    array[25:50] = 0
    numpy.testing.assert_array_equal(array, found)
    assert [(25, 50)] == [loss.rows for loss in recovery.losses]


def test_array_without_lost_rows():
    array, data = array_and_file()
    found, recovery = as_array(wiped(data, 1), drop=True)
    numpy.testing.assert_array_equal(numpy.delete(array, slice(25, 50), 0), found)
    assert "changed" == recovery.metadata


def test_array_of_which_no_whole_rows_are_left():
    array = numpy.arange(1000, dtype="<i8").reshape(125, 8)
    data = bp.pack_ndarray_to_bytes(array, chunk_size=2000)
    plain, metadata, recovery = recovered(wiped(data, 1), drop=True)
    assert (6000, None) == (len(plain), metadata)
    assert "without its metadata" in " ".join(recovery.remarks)


def test_array_in_fortran_order():
    array, data = array_and_file("F")
    found, _ = as_array(wiped(data, 3))
    numpy.testing.assert_array_equal(array.ravel("F")[:750], found.ravel("F")[:750])
    assert not found.ravel("F")[750:].any()
    plain, metadata, _ = recovered(wiped(data, 3), drop=True)
    assert (6000, None) == (len(plain), metadata)


# What looks like a chunk and is none


def nested(**kwargs):
    """Return a packed file of packed files: its chunks are copies, not compressed."""
    generator = random.Random(2)
    parts = [generator.randbytes(180) for _ in range(20)]
    inner = b"".join(packed(part, chunk_size=60, offsets=False) for part in parts)
    return inner, packed(inner, chunk_size=500, **kwargs)


@pytest.mark.parametrize("offsets", [True, False])
def test_chunks_inside_of_chunks_are_not_taken(offsets):
    inner, data = nested(offsets=offsets)
    frames = frames_of(data)
    assert all(stop - start == len(c) + 20 for start, stop, c in frames)
    assert recovered(data)[0] == inner
    for i, (start, stop, _) in enumerate(frames):
        for at in (start + 60, stop - 1):
            damaged = bytearray(data)
            damaged[at] ^= 255
            found, _, recovery = recovered(bytes(damaged))
            assert with_lost(inner, 500, [i]) == found
            assert 1 == recovery.nlost


# Byte 6 of the header is the number of the checksum.


@pytest.mark.parametrize("nchunks", [1, 2, 3])
@pytest.mark.parametrize("offsets", [True, False])
@pytest.mark.parametrize("checksum", ["None", *CHECKSUMS])
def test_header_says_another_checksum(checksum, offsets, nchunks):
    plain = text(300 * nchunks)
    data = packed(plain, checksum=checksum, offsets=offsets, metadata={"unit": "m"})
    for number in {*range(len(checksums.ALL_CHECKSUMS))} - {data[6]}:
        damaged = data[:6] + bytes([number]) + data[7:]
        assert not verify_fp(io.BytesIO(damaged), nthreads=1).ok
        found, metadata, recovery = recovered(damaged)
        assert (plain, {"unit": "m"}, 0) == (found, metadata, recovery.nlost)
        assert checksum == recovery.report.checksum
        (finding,) = (f for f in recovery.report.findings if f.severity == "error")
        assert ("header", "checksum") == (finding.section, finding.kind)


@pytest.mark.parametrize("chunk_size", [100, 700, 10000])
@pytest.mark.parametrize("inner", ["None", "adler32"])
@pytest.mark.parametrize("checksum", ["None", "adler32"])
def test_packed_files_inside_of_one_without_header(checksum, inner, chunk_size):
    generator = random.Random(2)
    files = [
        packed(generator.randbytes(180), chunk_size=60, checksum=inner)
        for _ in range(20)
    ]
    plain = b"".join(files) + b"the end"
    data = packed(plain, chunk_size=chunk_size, checksum=checksum)
    assert plain == recovered(data)[0]
    assert plain == recovered(bytes(32) + data[32:])[0]


OTHER_FLAWS = {
    "a byte behind": lambda data: data + b"x",
    "a byte missing": lambda data: data[:-1],
    "a chunk wiped": lambda data: data[:900] + bytes(300) + data[1200:],
    "one chunk more": lambda data: data[:16] + b"\x0b" + data[17:],
    "a second file": lambda data: data + packed(text(2900)),
}


@pytest.mark.parametrize("offsets", [True, False])
@pytest.mark.parametrize("flaw", OTHER_FLAWS)
def test_header_says_another_checksum_and_more_is_wrong(flaw, offsets):
    data = packed(text(2900), checksum="None", offsets=offsets)
    damaged = OTHER_FLAWS[flaw](data[:6] + b"\1" + data[7:])
    found, _, recovery = recovered(damaged)
    assert recovery.nsaved >= 7
    assert sum(a == b for a, b in zip(found, text(2900), strict=False)) > 2000


@pytest.mark.parametrize("offsets", [True, False])
@pytest.mark.parametrize("nchunks", [1, 2, 3])
def test_what_lies_behind_a_file_without_digests(nchunks, offsets):
    plain = random.Random(1).randbytes(300 * nchunks)
    data = packed(plain, checksum="None", offsets=offsets)
    for behind in (packed(text(2900)), b"junk"):
        report = verify_fp(io.BytesIO(data + behind), nthreads=1)
        assert (True, nchunks) == (report.ok, report.nchunks)
        assert plain == recovered(data + behind)[0]


def test_file_of_one_chunk_without_digests_in_front_of_others():
    one = packed(text(300), checksum="None", offsets=False)
    data = one + b"behind" + packed(text(2900))[200:]
    found, _, recovery = recovered(data)
    assert found.startswith(text(300))
    assert not recovery.certain


def test_chunks_inside_of_chunks_whose_header_is_lost():
    inner, data = nested()
    for i, (start, _, _) in enumerate(frames_of(data)):
        found, _, _ = recovered(data[:start] + bytes(16) + data[start + 16 :])
        assert with_lost(inner, 500, [i]) == found


@pytest.mark.parametrize("sizes", [(40,), (40, 50)])
def test_chunks_of_another_file_that_touch_those_of_this_one(sizes):
    plain = random.Random(3).randbytes(1400)
    data = packed(plain, offsets=False)
    inner = b"".join(packed(text(n), offsets=False)[32:] for n in sizes)
    for i, (start, stop, _) in enumerate(frames_of(data)[:-1]):
        for at in (start, stop - len(inner)):
            found, _, _ = recovered(data[:at] + inner + data[at + len(inner) :])
            assert with_lost(plain, 300, [i]) == found


# Random damage


SMALL = text(1500)


def check_recovery(damaged):
    """Check that each intact chunk is saved, and that what is certain is true."""
    outcome = judge(damaged, hangs=0)
    told = damaged.sample.description, damaged.changes, outcome
    assert outcome["intact"] == outcome["saved"], told
    assert "raised" not in outcome, told
    if "refused" not in outcome:
        assert outcome["sound"], told
        assert [] == outcome["wrong"], told
        # Without an intact chunk, nobody knows that there are digests.
        if outcome["intact"] and damaged.sample.checksum != "None":
            assert not outcome["foreign"], told


@pytest.mark.parametrize(
    "seeds",
    [range(12), pytest.param(range(12, 60), marks=pytest.mark.slow)],
    ids=["quick", "all"],
)
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_of_all_kinds(kind, seeds):
    for seed in seeds:
        check_recovery(damaged_file(seed, kind)[1])


@pytest.mark.parametrize(
    "seed",
    [
        # Chunks of a packed file in a damaged chunk: there are more bytes in those than
        # in chunks of the file, they touch one of it, or the last has its last's size.
        339189,
        322015,
        910912,
        # Without digests: the last chunk lies where the table ends; the header lies.
        900967,
        913549,
        # A chunk of those that have been moved lies where the table has another.
        7414674,
    ],
)
def test_damaged_files_that_mislead(seed):
    check_recovery(edited_case(Case(seed)))


@pytest.mark.parametrize(
    ("checksum", "offsets", "changes"),
    [
        # The size of a damaged chunk ends where another chunk does.
        ("adler32", False, [("over", 44, 1)]),
        # The header says fewer chunks, or all of it is moved.
        ("adler32", False, [("out", 17, 1)]),
        ("adler32", False, [("over", 16, 1)]),
        ("adler32", False, [("over", 16, 1), ("over", 700, 300)]),
        # Entries of the table are gone, and chunks too.
        ("adler32", True, [("over", 33, 40), ("over", 437, 300), ("over", 1176, 1000)]),
        # Chunks are moved to where the table has others.
        ("sha256", True, [("out", 1000, 480), ("in", 800, 240)]),
        # What comes in and what goes out make up for each other.
        ("crc32", True, [("out", 1100, 40), ("in", 1400, 40)]),
    ],
)
def test_damage_that_misleads(checksum, offsets, changes):
    whole = packed(SMALL, chunk_size=200, checksum=checksum, offsets=offsets)
    check_recovery(edited(whole, checksum, "", *changed(whole, changes, 0)))


def rearranged(data, order):
    """Return a file with these chunks in this order, behind the same sections."""
    frames = frames_of(data)
    chunks = b"".join(data[slice(*frames[i][:2])] for i in order)
    return data[: frames[0][0]] + chunks


# Blosc makes copies of random bytes: all these chunks have one extent.
COPIES = [random.Random(i).randbytes(300) for i in range(7)]


@pytest.mark.parametrize(
    ("plains", "order"),
    [
        # The repeated chunk moves the last one away; no offset shows it.
        ([*COPIES[:4], b"ab" * 150], [0, 1, 1, 2, 3, 4]),
        ([*COPIES[:4], b"ab" * 150], [0, 1, 2, 3, 0, 4]),
        # A copy of the last chunk lies in front, another chunk behind.
        ([*COPIES, b"last"], [0, 1, 2, 7, 3, 4, 5, 7, 6]),
        # The extents differ, and the first chunk lies where the last one should.
        ([text(40) + bytes(260), text(60) + bytes(240), text(300)], [2, 1, 0]),
    ],
)
def test_chunks_that_were_repeated_or_changed_places(plains, order):
    plain = b"".join(plains)
    found, _, recovery = recovered(rearranged(packed(plain), order))
    assert (plain, len(plains)) == (found, recovery.nchunks)


@pytest.mark.parametrize(
    ("order", "cut"),
    [
        ([0, 1, 4, 2, 3], 0),
        ([0, 1, 2, 4, 3], 0),
        ([4, 2, 0, 1, 3], 0),
        ([4, 2, 0, 1, 3], 5),
    ],
)
def test_shorter_chunk_of_a_stream_at_another_place(order, cut):
    """Only the chunks state the size of the last one."""
    whole = packed(text(1320), offsets=False)
    whole = whole[:12] + b"\xff" * 12 + whole[24:]
    damaged = bytearray(rearranged(whole, order))
    # Chunk 2 is damaged.
    damaged[damaged.index(whole[slice(*frames_of(whole)[2][:2])]) + 40] ^= 1
    dropped, _, recovery = recovered(bytes(damaged[: len(damaged) - cut]), drop=True)
    assert text(1320)[1200:] in dropped
    assert (4 - bool(cut), False) == (recovery.nsaved, recovery.certain)


@pytest.mark.parametrize("changes", [[("out", 17, 1)], [("over", 16, 1)]])
def test_chunks_behind_a_header_that_lies(changes):
    """Without a table nothing but the header tells how many chunks there were."""
    damaged, _ = changed(
        packed(SMALL, chunk_size=200, checksum="adler32", offsets=False), changes, 0
    )
    plain, _, recovery = recovered(damaged)
    assert (SMALL, False) == (plain[:1500], recovery.certain)
    assert not plain[1500:].strip(b"\0")


@pytest.mark.parametrize("value", [3, 7, 9, 200])
def test_header_that_says_another_number_of_chunks(value):
    whole = bytearray(packed(SMALL, chunk_size=200, checksum="adler32", offsets=False))
    whole[16] = value
    plain, _, recovery = recovered(bytes(whole))
    assert (SMALL, 8, False) == (plain, recovery.nchunks, recovery.complete)


def test_chunk_that_a_damaged_one_seems_to_hold_at_the_end():
    """As many bytes are missing from it as it lacks up to the end of the file."""
    whole = packed(SMALL, chunk_size=200, checksum="adler32", offsets=False)
    frames = frames_of(whole)
    third, last = frames[2][0], frames[-1][0]
    missing = 1000
    assert third + (frames[2][1] - third) == len(whole) - missing
    damaged = whole[: third + 16] + whole[third + 16 + missing :]
    dropped, _, recovery = recovered(damaged, drop=True)
    assert SMALL[:400] + SMALL[1400:] == dropped
    assert last - missing == len(damaged) - (len(whole) - last)
    assert 3 == recovery.nsaved


# Files, and what is refused


def test_files(tmp_path):
    damaged, new = tmp_path / "damaged.blp", tmp_path / "new.blp"
    data = wiped(packed(text(2900)), 2)
    damaged.write_bytes(data)
    recovery = recover(damaged, new, sync=False)
    assert with_lost(text(2900), 300, [2]) == bp.unpack_bytes_from_file(new)[0]
    assert data == damaged.read_bytes()
    assert str(damaged) == recovery.report.filename


# Appending


def appended(tmp_path, plain, more):
    """Return a file before and after an append, and where its chunks start."""
    path = tmp_path / "whole.blp"
    path.write_bytes(packed(plain))
    before = path.read_bytes()
    (tmp_path / "more").write_bytes(more)
    append(path, tmp_path / "more", sync=False)
    after = path.read_bytes()
    return before, after, frames_of(after)[0][0]


@pytest.mark.parametrize("size", [50, 150, 1000])
def test_append_that_was_torn_apart(tmp_path, size):
    plain, more = text(1000), text(size, 2)
    before, after, first = appended(tmp_path, plain, more)
    header, table, chunks = slice(32), slice(32, first), slice(first, None)
    assert before[chunks] != after[chunks]
    assert before[header] != after[header]
    # The chunks are new, and nothing else.
    plain_found, _, recovery = recovered(before[header] + before[table] + after[chunks])
    assert plain + more == plain_found
    assert (False, 0) == (recovery.complete, recovery.nlost)
    kinds = {f.kind for f in recovery.report.findings if f.severity == "error"}
    assert kinds <= {"size", "nchunks"}
    assert "size" in kinds
    assert "guess" in {f.kind for f in recovery.report.findings}
    # The header is new, and nothing else.
    plain_found, _, recovery = recovered(after[header] + before[table] + before[chunks])
    assert plain == plain_found[:1000]
    assert not recovery.complete
    assert not recovery.report.ok
    # Only the table is old.
    plain_found, _, recovery = recovered(after[header] + before[table] + after[chunks])
    assert plain + more == plain_found
    assert 0 == recovery.nlost


@pytest.mark.parametrize("lost", [None, 1])
def test_sound_chunks_behind_the_last_one_are_none_of_the_file(lost):
    data = packed(text(1000))
    leftover = data[slice(*frames_of(data)[1][:2])]
    damaged = bytearray(data + leftover)
    if lost is not None:
        damaged[frames_of(data)[lost][0] + 40] ^= 1
    plain, _, recovery = recovered(bytes(damaged))
    assert (4, 1000) == (recovery.nchunks, len(plain))
    # An intact chunk there may as well show that the count is wrong.
    assert not recovery.certain
    assert "trailing" in {f.kind for f in recovery.report.findings}


def test_second_file_behind_the_first_one():
    data = packed(text(2900))
    plain, _, recovery = recovered(data + packed(text(500)))
    assert (text(2900), 0, True) == (plain, recovery.nlost, recovery.certain)
    assert not recovery.complete
    (note,) = recovery.report.findings
    assert ("another", len(data)) == (note.kind, note.offset)
    (remark,) = recovery.remarks
    assert "second packed file" in remark
    assert "was not saved" in remark


@pytest.mark.parametrize("lost", [0, 4, 9])
@pytest.mark.parametrize("gap", [b"", bytes(2**20 - 20), bytes(5)])
def test_second_file_behind_damaged_chunks(lost, gap):
    data = wiped(packed(text(2900)), lost) + gap
    _, _, recovery = recovered(data + packed(text(500)))
    (remark,) = (r for r in recovery.remarks if "second packed file" in r)
    assert "begins at byte %d," % len(data) in remark
    assert not recovery.complete


def test_file_behind_other_bytes_is_not_a_second_file():
    _, _, recovery = recovered(b"?" + packed(text(2900)))
    assert (10, 0) == (recovery.nsaved, recovery.nlost)
    assert not any("second" in remark for remark in recovery.remarks)


def test_way_to_get_the_second_file(run, tmp_path):
    first, second = packed(text(2900)), packed(text(500))
    both, new, rest = (tmp_path / name for name in ("both.blp", "new.blp", "rest.blp"))
    both.write_bytes(first + second)
    code, out, _ = run("recover", both, new)
    assert (3, first) == (code, new.read_bytes())
    (remark,) = (line for line in out.splitlines() if "was not saved" in line)
    command = [*remark.split("'")[-2].split(), str(both)]
    assert ["tail", "-c"] == command[:2]
    rest.write_bytes(subprocess.run(command, capture_output=True, check=True).stdout)
    assert second == rest.read_bytes()
    assert 0 == run("-f", "recover", rest, new)[0]
    assert second == new.read_bytes()


# How much is filled in


def test_end_that_is_too_long_to_be_believed():
    chunk = 2**22
    data = bytearray(packed(bytes(2 * chunk), chunk_size=chunk, offsets=False))
    data[16:24] = struct.pack("<q", 60_000)
    plain, _, recovery = recovered(bytes(data))
    assert (bytes(2 * chunk), False) == (plain, recovery.certain)
    assert "nothing is filled in" in " ".join(recovery.remarks)
    assert 60_000 - 2 == recovery.nlost


def test_gap_that_is_too_long_to_be_believed():
    # The header says so many chunks that those at the end would be far behind.
    chunk = 2**20
    whole = packed(bytes(8 * chunk), chunk_size=chunk, offsets=False)
    data = bytearray(whole)
    data[16:24] = struct.pack("<q", 60_000)
    start, stop, _ = frames_of(whole)[3]
    data[start:stop] = bytes(stop - start)
    plain, _, recovery = recovered(bytes(data))
    assert 7 == recovery.nsaved
    assert 7 <= len(plain) // chunk <= 8


def test_array_whose_end_is_not_filled_in():
    array = numpy.zeros((2, 2**19), dtype="<i8")
    data = bp.pack_ndarray_to_bytes(array, chunk_size=2**22)
    damaged = bytearray(data)
    start, stop, _ = frames_of(data)[1]
    damaged[start:stop] = bytes(stop - start)
    found, recovery = as_array(bytes(damaged))
    numpy.testing.assert_array_equal(array, found)
    assert 1 == recovery.nlost


def test_same_file_is_refused(tmp_path):
    path = tmp_path / "x.blp"
    path.write_bytes(packed(text(2900)))
    with pytest.raises(UsageError, match="same file"):
        recover(path, path)


@pytest.mark.parametrize("data", [b"", b"blpk", text(3000), packed(text(2900))[:32]])
def test_nothing_to_save(tmp_path, data):
    damaged, new = tmp_path / "damaged.blp", tmp_path / "new.blp"
    damaged.write_bytes(data)
    with pytest.raises(FormatError):
        recover(damaged, new)
    assert [damaged] == list(tmp_path.iterdir())


@pytest.mark.parametrize("fill", [-1, 256])
def test_fill_is_checked(fill):
    with pytest.raises(UsageError, match="fill"):
        recover_fp(io.BytesIO(packed(text(2900))), io.BytesIO(), fill=fill)


def test_number_of_chunks_that_nobody_believes():
    data = packed(text(2900), offsets=False)
    damaged = data[:16] + struct.pack("<q", 2**60) + data[24:]
    plain, _, recovery = recovered(damaged)
    assert text(2900) == plain
    assert 0 == recovery.nlost


@pytest.mark.parametrize("nthreads", [1, 2, 4])
def test_threads_write_the_same(nthreads):
    plain = text(60_000)
    data = wiped(packed(plain, chunk_size=5000), 3)
    out_fp = io.BytesIO()
    recover_fp(io.BytesIO(data), out_fp, nthreads=nthreads)
    note = {"unit": "bytes", "filled": [[15000, 20000]], "left_out": [], "fill": 0}
    note |= {"certain": True, "metadata_lost": False}
    expected = bp.pack_bytes_to_bytes(
        with_lost(plain, 5000, [3]), 5000, {"bloscpack_recovered": note}
    )
    assert expected == out_fp.getvalue()


def test_notes_of_earlier_recoveries():
    """They are a flat list: metadata are not nested deeper each time."""
    data, notes = packed(text(2900), metadata={"a": 1}), []
    for i in range(1, 4):
        data, _, _ = recovered_and_verified(wiped(data, i))
        note = bp.unpack_bytes_from_bytes(data)[1]["bloscpack_recovered"]
        assert note.pop("earlier", []) == notes
        assert note["filled"] == [[300 * i, 300 * i + 300]]
        notes = [note, *notes]


@pytest.mark.parametrize("form", ["%s", '{"fill": %s}', '{"earlier": [%s]}'])
def test_note_that_no_recovery_wrote(form):
    """It is left out: the old metadata may be nested 100 levels deep."""
    depth = 99 - form.count("{") - form.count("[")
    old = json.loads(form % ("[" * depth + "]" * depth))
    data = packed(text(2900), metadata={"a": 1, "bloscpack_recovered": old})
    new, _, _ = recovered_and_verified(wiped(data, 1))
    metadata = bp.unpack_bytes_from_bytes(new)[1]
    assert 1 == metadata["a"]
    assert "earlier" not in metadata["bloscpack_recovered"]


def test_numbers_that_no_file_has():
    """They do not make a finding long."""
    note = {"unit": "bytes", "filled": [[10**3000, 10**3000 + 1]] * 8, "fill": 0}
    data = packed(text(2900), metadata={"bloscpack_recovered": note})
    (finding,) = verify_fp(io.BytesIO(data)).findings
    assert len(str(finding)) < 200


@pytest.mark.parametrize("times", [1, 3])
def test_file_that_is_changed_meanwhile(tmp_path, monkeypatch, times):
    """What a stream was given is not given again; a new file is begun anew."""
    damaged, pipe, new = (tmp_path / name for name in ("damaged", "pipe", "new"))
    damaged.write_bytes(packed(text(2900)))
    os.mkfifo(pipe)
    moments = iter(range(10**18, 2 * 10**18, 10**9))
    touches: list[int] = []

    def touching(*args, **options):
        recovery = recover_fp(*args, **options)
        if len(touches) < times:
            touches.append(next(moments))
            os.utime(damaged, ns=(touches[-1], touches[-1]))
        return recovery

    monkeypatch.setattr(sys.modules[recover_fp.__module__], "recover_fp", touching)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(StorageError, match="changed each time"):
            recover(damaged, pipe)
        given = os.read(reader, 2**16)
    finally:
        os.close(reader)
    assert 1 == given.count(b"blpk")
    assert bp.unpack_bytes_from_file(damaged) == bp.unpack_bytes_from_bytes(given)
    touches.clear()
    assert recover(damaged, new).complete
    assert times == len(touches)
    assert packed(text(2900)) == new.read_bytes()


def test_command(run, tmp_path):
    damaged, new = tmp_path / "damaged.blp", tmp_path / "new.blp"
    damaged.write_bytes(wiped(packed(text(2900)), 2))
    code, out, _ = run("recover", "--fill", "0x41", damaged, new)
    assert 3 == code
    assert "9 of 10 chunks saved" in out
    assert "lost: chunk 2, plain bytes 600 to 900" in out
    assert b"A" * 300 == bp.unpack_bytes_from_file(new)[0][600:900]
    assert 1 == run("r", damaged, new)[0]
    assert 3 == run("-f", "r", "--drop", damaged, new)[0]
    code, out, _ = run("-f", "recover", "--json", damaged, new)
    found = json.loads(out)
    assert (3, 9, False) == (code, found["nsaved"], found["complete"])
    assert (str(damaged), str(new)) == (found["file"], found["out_file"])
    assert 0 == run("-f", "r", new, tmp_path / "newer.blp")[0]
    assert 2 == run("r", new, new)[0] or 1 == run("r", new, new)[0]
    assert 2 == run("r", "--fill", "256", damaged, new)[0]


def test_command_writes_to_standard_output(tmp_path):
    damaged = tmp_path / "damaged.blp"
    damaged.write_bytes(wiped(packed(text(2900)), 2))
    command = [sys.executable, "-m", "bloscpack", "recover", str(damaged), "-"]
    done = subprocess.run(
        command, env=environment(), capture_output=True, cwd=tmp_path, check=False
    )
    assert 3 == done.returncode
    expected = with_lost(text(2900), 300, [2])
    assert expected == bp.unpack_bytes_from_bytes(done.stdout)[0]
    assert b"9 of 10 chunks saved" in done.stderr
    assert [damaged] == list(tmp_path.iterdir())


def test_command_refuses_a_terminal(tmp_path):
    damaged = tmp_path / "damaged.blp"
    damaged.write_bytes(packed(text(2900)))
    leader, terminal = pty.openpty()
    command = [sys.executable, "-m", "bloscpack", "recover", str(damaged), "-"]
    try:
        done = subprocess.run(
            command,
            env=environment(),
            stdout=terminal,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(terminal)
        os.close(leader)
    assert 2 == done.returncode
    assert b"not written to a terminal" in done.stderr


EXIT_CODES = [
    (0, "intact", packed(text(2900))),
    (3, "lost chunk", wiped(packed(text(2900)), 2)),
    (3, "second file", packed(text(2900)) + packed(text(500))),
    (3, "no intact chunk", packed(text(2900))[:100]),
    (1, "no Bloscpack file", b"something else"),
    (1, "missing file", None),
]


@pytest.mark.parametrize(("code", "data"), [(c, d) for c, _, d in EXIT_CODES])
def test_exit_codes_in_the_help(run, tmp_path, code, data):
    damaged, new = tmp_path / "damaged.blp", tmp_path / "new.blp"
    if data is not None:
        damaged.write_bytes(data)
    assert code == run("recover", damaged, new)[0]
    help_text = " ".join(run("recover", "--help")[1].split())
    assert (
        "exit code 0 if it is certain that nothing is lost, 3 if data are or may be "
        "lost, also if a second file follows or no chunk is intact, 1 if the file is "
        "no Bloscpack file or can't be read"
    ) in help_text


@pytest.mark.parametrize("checksum", ["None", "adler32", "crc32c"])
def test_an_append_that_has_not_begun_without_an_offset_table(tmp_path, checksum):
    """Zero bytes are behind the old end, then new chunks and copies of old ones."""
    path, saved = tmp_path / "a.blp", tmp_path / "b.blp"
    plain = bytes(range(250)) * 40
    settings = {"chunk_size": 3000, "offsets": False, "checksum": checksum}
    bp.pack_bytes_to_file(plain, path, **settings)
    old = path.read_bytes()
    path.write_bytes(old + bytes(16) + old[100:] + b"x" + old)
    report = bp.verify(path)
    assert report.ok
    assert "an append that was interrupted" in str(report.findings)
    assert bp.recover(path, saved).complete
    assert plain == bp.unpack_bytes_from_file(saved)[0]
