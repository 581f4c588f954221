"""The sources and sinks over lists of chunks."""

import pytest

from bloscpack.abstract_io import compress_chunk, pack, unpack
from bloscpack.args import BloscArgs, BloscpackArgs, MetadataArgs
from bloscpack.exceptions import ChecksumMismatch, StorageError
from bloscpack.headers import BloscpackHeader
from bloscpack.memory_io import (
    CompressedMemorySink,
    CompressedMemorySource,
    PlainMemorySink,
    PlainMemorySource,
)

CHUNKS = [bytes([i]) * 1000 for i in range(4)] + [b"last"]


def packed_in_memory(chunks=CHUNKS, nchunks=5, nthreads=None, **kwargs):
    sink = CompressedMemorySink()
    pack(PlainMemorySource(chunks), sink, nchunks, 1000, 4, nthreads=nthreads, **kwargs)
    return sink


@pytest.mark.parametrize("nthreads", [None, 1, 3])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("checksum", ["None", "adler32", "sha512"])
def test_round_trip(checksum, known, nthreads):
    args = BloscpackArgs(checksum=checksum)
    compressed = packed_in_memory(bloscpack_args=args, nthreads=nthreads)
    sink = PlainMemorySink(len(CHUNKS) if known else None)
    unpack(CompressedMemorySource(compressed), sink, nthreads=nthreads)
    assert CHUNKS == [bytes(chunk) for chunk in sink.chunks]
    assert known == sink.have_chunks


def test_what_the_sink_keeps():
    args = MetadataArgs(meta_level=3)
    sink = packed_in_memory(metadata={"a": 1}, metadata_args=args)
    assert ("adler32", 5, {"a": 1}) == (sink.checksum, sink.nchunks, sink.metadata)
    assert args == sink.metadata_args
    assert [compress_chunk(chunk, BloscArgs()) for chunk in CHUNKS] == sink.chunks
    assert [sink.checksum_impl(chunk) for chunk in sink.chunks] == sink.checksums


def test_what_the_source_shows():
    sink = packed_in_memory(metadata=[1])
    source = CompressedMemorySource(sink)
    assert source.metadata == sink.metadata == [1]
    assert source.compressed_memory_sink is sink
    assert source.checksum_impl is sink.checksum_impl
    assert list(zip(sink.chunks, sink.checksums, strict=True)) == list(source)
    assert ("adler32", 5) == (source.checksum, source.nchunks)


def test_no_metadata():
    assert CompressedMemorySource(packed_in_memory()).metadata is None


def test_unknown_number_of_chunks():
    sink = packed_in_memory(iter(CHUNKS), -1)
    assert (-1, 5, 5) == (sink.nchunks, len(sink.chunks), len(sink.checksums))
    plain = PlainMemorySink()
    unpack(CompressedMemorySource(sink), plain)
    assert CHUNKS == plain.chunks


@pytest.mark.parametrize(
    ("message", "chunks"),
    [
        ("announced '5' chunks, but yielded '4'", CHUNKS[:4]),
        ("announced '5' chunks, but yielded '0'", []),
        ("announced '5' chunks, but yields more", [*CHUNKS, b"more"]),
        ("announced '1000' bytes for chunk 0, but yielded '4'", CHUNKS[::-1]),
        ("announced '4' bytes for chunk 4, but yielded '5'", [*CHUNKS[:4], b"last!"]),
    ],
)
def test_source_that_lies(message, chunks):
    with pytest.raises(StorageError, match=message):
        packed_in_memory(chunks)


def test_put_one_by_one():
    header = BloscpackHeader(checksum="crc32", chunk_size=1000, last_chunk=4, nchunks=2)
    sink = CompressedMemorySink()
    sink.configure(BloscArgs(), header)
    assert sink.write_bloscpack_header() is None
    assert sink.init_offsets() is None
    compressed = [compress_chunk(chunk, BloscArgs()) for chunk in (CHUNKS[0], b"last")]
    for i in (1, 0):
        sink.put(i, compressed[i])
    assert compressed == sink.chunks
    assert [header.checksum_impl(chunk) for chunk in compressed] == sink.checksums
    plain = PlainMemorySink(2)
    assert [1000, 4] == [plain.put(chunk) for chunk in compressed]
    assert [CHUNKS[0], b"last"] == plain.chunks
    with pytest.raises(IndexError):
        plain.put(compressed[0])


def test_wrong_digest():
    sink = packed_in_memory()
    sink.checksums[3] = b"nope"
    plain = PlainMemorySink()
    with pytest.raises(ChecksumMismatch) as raised:
        unpack(CompressedMemorySource(sink), plain)
    assert ("chunks", 3, None) == (
        raised.value.section,
        raised.value.chunk,
        raised.value.offset,
    )
    assert CHUNKS[:3] == [bytes(chunk) for chunk in plain.chunks]


def test_missing_digest():
    sink = packed_in_memory()
    del sink.checksums[-1]
    with pytest.raises(ValueError, match="shorter"):
        unpack(CompressedMemorySource(sink), PlainMemorySink())
