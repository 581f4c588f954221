"""Files made to take long: twice the size must not take more than twice the work."""

from __future__ import annotations

import io
import struct
import sys
import zlib

import blosc
import pytest

from bloscpack._check import scan
from bloscpack.headers import BloscpackHeader
from bloscpack.verify import verify_fp


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
