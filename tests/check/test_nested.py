"""Nested chunks are dropped, and chunks that only seem to be nested are kept."""

from __future__ import annotations

import io
import struct
import sys
import zlib

import blosc
import pytest

from bloscpack._check import scan
from bloscpack._check.evidence import Evidence
from bloscpack._check.numbering import drop_nested_chunks
from bloscpack._check.scan import Chain, DamagedChunk
from bloscpack.headers import BloscpackHeader
from bloscpack.verify import verify_fp


def chain(start, *sizes, extent=100):
    """Return chunks of such plain sizes side by side."""
    made = Chain(start)
    for i, nbytes in enumerate(sizes):
        made.offsets.append(start + extent * i)
        made.sizes.append(nbytes)
        made.stop = start + extent * (i + 1)
    return made


def evidence_of(table, size, digests=True):
    return Evidence(
        size=size,
        base=100,
        first=100,
        entries=table,
        chunk_size=50,
        last_chunk=20,
        digests=digests,
    )


def kept_chains(chains, damaged, table=(), digest_size=4, size=1000):
    """Return start and gap of the chains kept; `damaged` are (start, stop, nbytes)."""
    evidence = evidence_of(table, size, digest_size > 0)

    def list_damaged(start, stop):
        found = []
        for first, end, nbytes in damaged:
            if first == start < stop:
                found.append(DamagedChunk(first, end, None, nbytes))
                start = end
        return found

    pieces, _ = drop_nested_chunks(chains, evidence, list_damaged)
    return [(piece.chain.start, piece.ndamaged) for piece in pieces]


def test_all_is_well():
    assert [(100, 0)] == kept_chains([chain(100, 50, 50, 20)], [])


def test_damaged_chunk_between():
    chains = [chain(100, 50), chain(300, 50, 50)]
    assert [(100, 0), (300, 1)] == kept_chains(chains, [(200, 300, 50)])
    assert [(100, 0), (300, None)] == kept_chains(chains, [(200, 299, 50)])


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        # A chunk follows where the header of the damaged one says, or nothing follows.
        (600, [100, 600]),
        (650, [100, 250, 650]),
    ],
)
def test_chunk_that_seems_to_lie_in_a_damaged_one(start, expected):
    chains = [chain(100, 50), chain(250, 50), chain(start, 50)]
    found = kept_chains(chains, [(200, 600, 50)])
    assert expected == [start for start, _ in found]


def test_chunks_that_go_on_where_the_damaged_one_ends():
    chains = [chain(100, 50), chain(450, 50, 50)]
    assert [100, 450] == [s for s, _ in kept_chains(chains, [(200, 600, 50)])]
    chains = [chain(100, 50), chain(500, 50), chain(600, 50)]
    assert [100, 500, 600] == [s for s, _ in kept_chains(chains, [(200, 600, 50)])]


def test_chunk_of_another_size():
    chains = [chain(100, 50), chain(450, 40, 40), chain(700, 50)]
    assert [100, 700] == [s for s, _ in kept_chains(chains, [(200, 500, 50)])]


def test_last_chunk_in_front_of_others():
    # It was moved, unless the last chunk is at the end of the file.
    chains = [chain(100, 50), chain(250, 20), chain(700, 50)]
    assert [100, 250, 700] == [s for s, _ in kept_chains(chains, [])]
    chains = [chain(100, 50), chain(250, 20), chain(800, 50, 20)]
    assert [100, 800] == [s for s, _ in kept_chains(chains, [])]


def test_good_chunk_that_has_swallowed_the_next_one():
    # Without digests, one that is cut short takes in the beginning of the next one.
    chains = [chain(100, 50), chain(200, 50), chain(260, 50, 20)]
    found = kept_chains(chains, [(200, 300, 50)], digest_size=0)
    assert [100, 260] == [s for s, _ in found]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        # What touches chunks of the file in front of them, between or behind is none.
        ((40, 50, 20), [300]),
        ((50, 40, 50), [200, 400]),
        ((50, 40, 40), [200]),
        # One that has the size of the last chunk may be that only behind others.
        ((40, 20), []),
        ((50, 20), [200]),
    ],
)
def test_chunks_that_touch_chunks_of_a_damaged_one(sizes, expected):
    chains = [chain(200, *sizes), chain(800, 50)]
    assert [*expected, 800] == [s for s, _ in kept_chains(chains, [(100, 200, 50)])]


def test_chunks_of_any_sizes_in_an_undamaged_file():
    chains = [chain(100, 50, 40, 50)]
    assert [(100, 0)] == kept_chains(chains, [], size=400)


def test_last_chunk_that_has_been_appended_to():
    # The header still says what size it had.
    chains = [chain(200, 50, 30)]
    (made,) = chains
    assert [200] == [s for s, _ in kept_chains(chains, [(100, 200, 50)], size=400)]
    assert 2 == len(made)


def test_chain_of_many_parts():
    chains = [chain(100, *[50, 40] * 20000)]
    assert 20000 == len(kept_chains(chains, [], size=10**7))


def test_many_parts_of_damaged_chunks():
    # Each damaged chunk is read once for each part inside it, and once to follow it.
    count = 1000
    walked = []

    def list_damaged(start, stop):
        found = []
        while start < stop:
            found.append(DamagedChunk(start, start + 100, None, 50))
            start += 100
        walked.extend(found)
        return found

    parts = [
        chain(200 + 100 * i + at, 40, extent=10) for i in range(count) for at in (9, 50)
    ]
    last = chain(200 + 100 * count, 50)
    table = [100, *range(200, last.start + 100, 100)]
    pieces, _ = drop_nested_chunks(
        [chain(100, 50), *parts, last], evidence_of(table, 10**6), list_damaged
    )
    assert [(100, 0), (last.start, count)] == [
        (piece.chain.start, piece.ndamaged) for piece in pieces
    ]
    assert 3 * count == len(walked)


# Files made to take long: twice the size must not take more than twice the work.


def stored(plain):
    """Return a chunk that is not compressed."""
    nbytes = len(plain)
    head = struct.pack("<BBBBIII", 2, 1, 2, 1, nbytes, max(nbytes, 1), nbytes + 16)
    return head + plain


def head_of(ctbytes):
    """Return the beginning of such a chunk of so many bytes."""
    return stored(b"")[:4] + struct.pack("<III", ctbytes - 16, ctbytes - 16, ctbytes)


def digested(compressed):
    return compressed + struct.pack("<I", zlib.adler32(compressed))


def header_of(nchunks, size, checksum="adler32", offsets=False):
    return BloscpackHeader(
        offsets=offsets,
        metadata=False,
        checksum=checksum,
        typesize=1,
        chunk_size=size,
        last_chunk=size,
        nchunks=nchunks,
        max_app_chunks=0,
    ).encode()


def many_parts(count):
    """Return a file of damaged chunks with a good one in each."""
    plain = digested(stored(b"abcd" * 3)) + bytes(4)
    return header_of(count, len(plain)) + (stored(plain) + b"BAD!") * count


def many_alike(count):
    """Return a file of good chunks between gaps, that begin as everywhere in the table.

    All entries have the extent of the first of two.
    """
    size = 256
    one = digested(stored(bytes(range(size))))
    two = digested(blosc.compress(bytes(size), typesize=1, cname="blosclz"))
    first = 32 + 16 * count
    table = [first, *(first + 7 + i * len(one) for i in range(1, 2 * count))]
    return b"".join(
        (
            header_of(2 * count, size, offsets=True),
            struct.pack("<%dq" % len(table), *table),
            (one + two + b"\xff" * 9) * count,
        )
    )


def many_large_behind(count):
    """Return a file of good chunks, behind each the header of all the rest."""
    good = digested(stored(b"abcd"))
    length = len(good) + 16
    heads = (head_of(max(16, length * i + 12)) for i in range(count - 1, -1, -1))
    return b"".join((header_of(count, 4), *(good + head for head in heads)))


def many_nested(count):
    """Return small chunks without digests, and large ones that hold all the rest."""
    good = stored(b"abcd")
    length = len(good) + 16
    heads = (head_of(length * i + 16) for i in range(count - 1, -1, -1))
    header = header_of(2 * count, 4, "None")
    return b"".join((header, *(good + head for head in heads)))


class Watched(io.BytesIO):
    """Counts the bytes that are read."""

    nread = 0

    def read(self, size=-1):
        found = super().read(size)
        self.nread += len(found)
        return found

    def readinto(self, view):
        size = super().readinto(view)
        self.nread += size
        return size


def work_for(data):
    """Return how many functions are called to verify a file, and the bytes read."""
    ncalls = 0

    def count(frame, event, argument):
        nonlocal ncalls
        ncalls += event in ("call", "c_call")

    fp, before = Watched(data), sys.getprofile()
    sys.setprofile(count)
    try:
        verify_fp(fp, nthreads=1)
    finally:
        sys.setprofile(before)
    return ncalls, fp.nread


@pytest.mark.full
@pytest.mark.parametrize(
    "build", [many_parts, many_alike, many_large_behind, many_nested]
)
def test_work_does_not_grow_faster_than_the_file(build, monkeypatch):
    monkeypatch.setattr(scan, "MIN_BUDGET", 0)
    monkeypatch.setattr(scan, "SMALL_CANDIDATE", 256)
    small, large = (build(count) for count in (300, 600))
    assert len(large) < 2 * len(small)
    before, after = work_for(small), work_for(large)
    assert all(now < 2.5 * once for once, now in zip(before, after, strict=True))


def test_size_that_no_file_has_leaves_others_to_be_tried():
    good = digested(stored(bytes(5000)))
    huge = head_of(2**30) + bytes(len(good) - 16)
    damaged = good[:-1] + b"!"
    fp = io.BytesIO(header_of(5, 5000) + b"".join((good, huge, good, damaged, good)))
    report = verify_fp(fp, nthreads=1)
    assert 3 == report.nintact
    errors = [f.kind for f in report.findings if f.severity == "error"]
    assert ["truncated", "digest"] == errors
