"""The loop names the chunk in errors of sources and sinks that a user has written."""

import io

import pytest

import bloscpack as bp
from bloscpack.abstract_io import CompressedSource, PlainSink, nthreads_to_read, unpack
from bloscpack.append import append_fp
from bloscpack.exceptions import FormatError, UsageError
from bloscpack.file_io import CompressedBytesSource


class Chunks(CompressedSource):
    """A source as for Bloscpack 0.16, which defines nothing but ``__iter__``."""

    def __init__(self, *chunks):
        self.chunks = chunks

    def __iter__(self):
        return ((chunk, b"") for chunk in self.chunks)


class FailingSink(PlainSink):
    def __init__(self, error):
        self.error = error

    def put(self, chunk):
        raise self.error


def packed(**options):
    return bp.pack_bytes_to_bytes(bytes(300), 100, **options)


def test_source_of_bytes_that_are_no_chunk():
    chunk = next(iter(CompressedBytesSource(packed())))[0]
    sink = io.BytesIO()
    with pytest.raises(FormatError) as raised:
        unpack(Chunks(bytes(chunk), b"no chunk"), bp.file_io.PlainFPSink(sink))
    assert ("chunks", 1) == (raised.value.section, raised.value.chunk)


@pytest.mark.parametrize("nthreads", [1, 2])
@pytest.mark.parametrize(
    "error", [FormatError("bad", section="chunks"), MemoryError()], ids=repr
)
def test_sink_that_fails(error, nthreads):
    with pytest.raises(FormatError) as raised:
        unpack(CompressedBytesSource(packed()), FailingSink(error), nthreads=nthreads)
    assert ("chunks", 0) == (raised.value.section, raised.value.chunk)


def test_append_a_number_of_bytes_that_is_no_number():
    with pytest.raises(UsageError, match="expected a number of bytes"):
        append_fp(io.BytesIO(packed()), io.BytesIO(b"new"), "3")


@pytest.mark.parametrize(
    ("expected", "nthreads", "nchunks", "chunk_size"),
    [
        (1, None, 1000, 2**14),
        (1, None, 1000, 2**16),
        (1, None, 1000, 2**17),
        (2, None, 1000, 2**18),
        (8, None, 1000, 2**20),
        (16, None, 1000, 2**21),
        (1, None, 3, 2**20),
        (4, None, 4, 2**20),
        (2, None, 2, 2**22),
        (16, None, None, -1),  # unknown
        (8, 8, 1000, 2**14),  # as the caller wants
    ],
)
def test_nthreads_to_read(monkeypatch, expected, nthreads, nchunks, chunk_size):
    monkeypatch.setattr("bloscpack.abstract_io.available_cpus", lambda: 16)
    assert expected == nthreads_to_read(nthreads, nchunks, chunk_size)
