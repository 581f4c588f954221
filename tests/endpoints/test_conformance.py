"""One set of tests for every source and sink, also for those written for 0.16."""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import os
import struct
import threading

import blosc
import numpy as np
import pytest
from engine.workers import at_work, other_threads
from support import ShortReads

import bloscpack
from bloscpack import abstract_io
from bloscpack.abstract_io import (
    CompressedSink,
    CompressedSource,
    PlainSink,
    PlainSource,
    pack,
    unpack,
)
from bloscpack.append import append_fp
from bloscpack.args import (
    BloscArgs,
    BloscpackArgs,
    MetadataArgs,
    calculate_nchunks,
)
from bloscpack.checksums import CHECKSUMS_LOOKUP
from bloscpack.exceptions import FormatError, StorageError
from bloscpack.file_io import (
    CompressedFPSink,
    CompressedFPSource,
    PlainFPSink,
    PlainFPSource,
)
from bloscpack.headers import BloscpackHeader
from bloscpack.memory_io import (
    CompressedMemorySink,
    CompressedMemorySource,
    PlainMemorySink,
    PlainMemorySource,
)
from bloscpack.numpy_io import PlainNumpySink, PlainNumpySource

CHUNK = 1000
PLAINS = {
    "empty": b"",
    "one byte": b"a",
    "part of a chunk": bytes(range(256)) * 3,
    "one chunk": bytes(range(250)) * 4,
    "even chunks": bytes(range(250)) * 20,
    "many chunks": (np.arange(9_123) // 7 % 251).astype("u1").tobytes(),
}
MANY = PLAINS["many chunks"]
# One thread runs the loop itself; three run ahead of it; None is the default.
THREADS = [1, 3, None]

each_nthreads = pytest.mark.parametrize("nthreads", THREADS)


def cut(plain):
    return calculate_nchunks(len(plain), CHUNK)


def chunks_of(plain):
    return [plain[i : i + CHUNK] for i in range(0, len(plain), CHUNK)] or [b""]


def reference(plain):
    """Return the file that every combination of source and sink must write."""
    return bloscpack.pack_bytes_to_bytes(plain, CHUNK, nthreads=1)


def reference_pairs(plain):
    """Return the compressed chunks and their digests."""
    sink = CompressedMemorySink()
    pack(PlainMemorySource(chunks_of(plain)), sink, *cut(plain), nthreads=1)
    return list(zip(sink.chunks, sink.checksums, strict=True))


class ShortWrites(io.RawIOBase):
    """A raw file whose `write` writes only a part of the data."""

    def __init__(self):
        self.content = io.BytesIO()

    def writable(self):
        return True

    def seekable(self):
        return True

    def write(self, data):
        return self.content.write(bytes(data)[: 1 + len(data) // 2])

    def seek(self, offset, whence=0):
        return self.content.seek(offset, whence)

    def tell(self):
        return self.content.tell()


@contextlib.contextmanager
def raw_file(path, content=b"", position=0):
    """Open a file without a buffer."""
    path.write_bytes(content)
    with open(path, "r+b", buffering=0) as fp:
        fp.seek(position)
        yield fp


# Plain sources: yield plain chunks of the configured sizes


@contextlib.contextmanager
def just(value):
    yield value


def fp_at(content, position):
    fp = io.BytesIO(content)
    fp.seek(position)
    return fp


PLAIN_SOURCES = {
    "file": lambda plain, path: just(PlainFPSource(io.BytesIO(plain))),
    "file not at its start": lambda plain, path: just(
        PlainFPSource(fp_at(b"before" + plain, 6))
    ),
    "file with more behind": lambda plain, path: just(
        PlainFPSource(io.BytesIO(plain + b"more" * 1000))
    ),
    "short reads": lambda plain, path: just(PlainFPSource(ShortReads(plain))),
    "list": lambda plain, path: just(PlainMemorySource(chunks_of(plain))),
    "iterator": lambda plain, path: just(PlainMemorySource(iter(chunks_of(plain)))),
    "list of views": lambda plain, path: just(
        PlainMemorySource([memoryview(chunk) for chunk in chunks_of(plain)])
    ),
    "array": lambda plain, path: just(PlainNumpySource(np.frombuffer(plain, "u1"))),
}


@contextlib.contextmanager
def raw_source(plain, path):
    with raw_file(path / "plain", b"before" + plain, 6) as fp:
        yield PlainFPSource(fp)


PLAIN_SOURCES["raw file"] = raw_source
each_plain_source = pytest.mark.parametrize(
    "make", PLAIN_SOURCES.values(), ids=PLAIN_SOURCES
)


@each_plain_source
def test_plain_source_yields_what_was_configured(make, tmp_path):
    for plain in PLAINS.values():
        nchunks, chunk_size, last_chunk = cut(plain)
        with make(plain, tmp_path) as source:
            source.configure(chunk_size, last_chunk, nchunks)
            assert chunks_of(plain) == [bytes(chunk) for chunk in source]
            assert (chunk_size, last_chunk, nchunks) == (
                source.chunk_size,
                source.last_chunk,
                source.nchunks,
            )


@each_plain_source
def test_pack_from_any_source(make, tmp_path):
    for nthreads, plain in itertools.product(THREADS, PLAINS.values()):
        fp = io.BytesIO()
        with make(plain, tmp_path) as source:
            pack(source, CompressedFPSink(fp), *cut(plain), nthreads=nthreads)
        assert reference(plain) == fp.getvalue()


@each_nthreads
def test_plain_file_source_reads_no_more_than_announced(nthreads):
    fp = io.BytesIO(b"before" + MANY + b"behind")
    fp.seek(6)
    pack(PlainFPSource(fp), CompressedMemorySink(), *cut(MANY), nthreads=nthreads)
    assert b"behind" == fp.read()
    assert not fp.closed


def test_plain_source_that_ends_too_early():
    for nthreads, missing in itertools.product(
        THREADS, [1, 123, 124, CHUNK + 123, len(MANY)]
    ):
        short = MANY[: len(MANY) - missing]
        for source in (
            PlainFPSource(io.BytesIO(short)),
            PlainFPSource(ShortReads(short)),
            PlainMemorySource(chunks_of(short)),
        ):
            with pytest.raises(StorageError):
                pack(source, CompressedMemorySink(), *cut(MANY), nthreads=nthreads)


@each_nthreads
def test_plain_source_that_yields_too_much(nthreads):
    source = PlainMemorySource([*chunks_of(MANY), b"more"])
    with pytest.raises(StorageError):
        pack(source, CompressedMemorySink(), *cut(MANY), nthreads=nthreads)


# Files to write: a file object, and a function that returns what was written


@contextlib.contextmanager
def memory_file(path):
    fp = io.BytesIO()
    yield fp, fp.getvalue


@contextlib.contextmanager
def file_not_at_its_start(path):
    fp = fp_at(b"before" + b"x" * 100_000, 6)
    yield fp, lambda: fp.getvalue()[6 : fp.tell()]
    assert fp.getvalue().startswith(b"before")


@contextlib.contextmanager
def file_without_buffer(path):
    with raw_file(path / "written") as fp:
        yield fp, (path / "written").read_bytes


@contextlib.contextmanager
def short_writes(path):
    fp = ShortWrites()
    yield fp, fp.content.getvalue


FILES = {
    "file": memory_file,
    "file not at its start": file_not_at_its_start,
    "raw file": file_without_buffer,
    "short writes": short_writes,
}


def into(sink_class, make):
    """Return a function that makes a sink over a file."""

    @contextlib.contextmanager
    def opened(*arguments):
        with make(arguments[-1]) as (fp, written):
            yield sink_class(fp), written

    return opened


# Compressed sinks: store chunks and digests


@contextlib.contextmanager
def into_lists(path):
    sink = CompressedMemorySink()

    def as_file():
        # Write the file from the lists.
        plain = PlainMemorySink()
        unpack(CompressedMemorySource(sink), plain)
        fp = io.BytesIO()
        header = sink.bloscpack_header
        pack(
            PlainMemorySource(plain.chunks),
            CompressedFPSink(fp),
            header.nchunks,
            header.chunk_size,
            header.last_chunk,
        )
        return fp.getvalue()

    yield sink, as_file


COMPRESSED_SINKS = {n: into(CompressedFPSink, make) for n, make in FILES.items()}
COMPRESSED_SINKS["lists"] = into_lists
each_compressed_sink = pytest.mark.parametrize(
    "make", COMPRESSED_SINKS.values(), ids=COMPRESSED_SINKS
)


@each_compressed_sink
def test_pack_into_any_sink(make, tmp_path):
    for nthreads, plain in itertools.product(THREADS, PLAINS.values()):
        with make(tmp_path) as (sink, written):
            source = PlainMemorySource(chunks_of(plain))
            pack(source, sink, *cut(plain), nthreads=nthreads)
            assert reference(plain) == written()


@each_compressed_sink
def test_compressed_sink_chunk_by_chunk(make, tmp_path):
    for plain in PLAINS.values():
        nchunks, chunk_size, last_chunk = cut(plain)
        header = BloscpackHeader(
            offsets=True,
            checksum="adler32",
            typesize=8,
            nchunks=nchunks,
            chunk_size=chunk_size,
            last_chunk=last_chunk,
            max_app_chunks=10 * nchunks,
        )
        with make(tmp_path) as (sink, written):
            sink.configure(BloscArgs(), header)
            sink.write_bloscpack_header()
            sink.init_offsets()
            for i, (compressed, digest) in enumerate(reference_pairs(plain)):
                assert digest == sink.do_checksum(compressed)
                sink.put(i, compressed)
            sink.finalize()
            assert reference(plain) == written()


def test_compressed_file_sink_tells_what_it_wrote():
    fp = io.BytesIO()
    sink = CompressedFPSink(fp)
    header = BloscpackHeader(nchunks=1, chunk_size=5, last_chunk=5, checksum="crc32")
    sink.configure(BloscArgs(), header)
    sink.write_bloscpack_header()
    sink.init_offsets()
    compressed = blosc.compress(b"plain", typesize=1)
    digest = CHECKSUMS_LOOKUP["crc32"](compressed)
    assert (32, compressed, digest) == sink.put(0, compressed)
    assert compressed + digest == fp.getvalue()[32:]


@each_compressed_sink
def test_compressed_sink_keeps_metadata(make, tmp_path):
    with make(tmp_path) as (sink, written):
        pack(PlainMemorySource(chunks_of(MANY)), sink, *cut(MANY), metadata={"a": [1]})
        if isinstance(sink, CompressedMemorySink):
            assert {"a": [1]} == CompressedMemorySource(sink).metadata
        else:
            expected = (MANY, {"a": [1]})
            assert expected == bloscpack.unpack_bytes_from_bytes(written())


# Compressed sources: yield chunks and digests


def packed_in_lists(plain):
    sink = CompressedMemorySink()
    pack(PlainMemorySource(chunks_of(plain)), sink, *cut(plain))
    return sink


COMPRESSED_SOURCES = {
    "file": lambda plain, path: just(CompressedFPSource(io.BytesIO(reference(plain)))),
    "file not at its start": lambda plain, path: just(
        CompressedFPSource(fp_at(b"before" + reference(plain), 6))
    ),
    "file with more behind": lambda plain, path: just(
        CompressedFPSource(io.BytesIO(reference(plain) + b"behind" * 100))
    ),
    "short reads": lambda plain, path: just(
        CompressedFPSource(ShortReads(reference(plain)))
    ),
    "byte by byte": lambda plain, path: just(
        CompressedFPSource(ShortReads(reference(plain), (1,)))
    ),
    "lists": lambda plain, path: just(CompressedMemorySource(packed_in_lists(plain))),
}


@contextlib.contextmanager
def raw_compressed_source(plain, path):
    with raw_file(path / "in", b"before" + reference(plain) + b"behind", 6) as fp:
        yield CompressedFPSource(fp)


COMPRESSED_SOURCES["raw file"] = raw_compressed_source
each_compressed_source = pytest.mark.parametrize(
    "make", COMPRESSED_SOURCES.values(), ids=COMPRESSED_SOURCES
)


@each_compressed_source
def test_compressed_source_yields_pairs(make, tmp_path):
    for plain in PLAINS.values():
        with make(plain, tmp_path) as source:
            found = [(bytes(chunk), bytes(digest)) for chunk, digest in source]
            assert reference_pairs(plain) == found
            assert len(found) == source.nchunks
            assert "adler32" == source.checksum_impl.name
            assert None is source.metadata


@each_compressed_source
def test_unpack_from_any_source(make, tmp_path):
    for nthreads, plain in itertools.product(THREADS, PLAINS.values()):
        sink = PlainMemorySink()
        with make(plain, tmp_path) as source:
            unpack(source, sink, nthreads=nthreads)
        assert chunks_of(plain) == [bytes(chunk) for chunk in sink.chunks]


def test_compressed_file_source_leaves_what_is_behind():
    for by_hand, nthreads, plain in itertools.product(
        [True, False], THREADS, PLAINS.values()
    ):
        for fp in (
            io.BytesIO(reference(plain) + b"behind"),
            io.BufferedReader(ShortReads(reference(plain) + b"behind")),
            ShortReads(reference(plain) + b"behind"),
        ):
            source = CompressedFPSource(fp)
            if by_hand:
                assert source.nchunks == len(list(source))
            else:
                unpack(source, PlainMemorySink(), nthreads=nthreads)
            left = b"".join(iter(lambda fp=fp: fp.read(100), b""))
            assert b"behind" == left
            assert not fp.closed


@each_nthreads
def test_files_one_behind_the_other(nthreads):
    fp = io.BytesIO()
    for plain in PLAINS.values():
        sink = CompressedFPSink(fp)
        pack(PlainMemorySource(chunks_of(plain)), sink, *cut(plain), nthreads=nthreads)
    fp.seek(0)
    for plain in PLAINS.values():
        out = io.BytesIO()
        unpack(CompressedFPSource(fp), PlainFPSink(out), nthreads=nthreads)
        assert plain == out.getvalue()
    assert b"" == fp.read()


@each_nthreads
@each_compressed_source
def test_damage_is_found_from_any_source(make, nthreads, tmp_path, monkeypatch):
    damaged = bytearray(reference(MANY))
    # Behind the header of chunk 5.
    offset = struct.unpack_from("<q", damaged, 32 + 8 * 5)[0]
    damaged[offset + 20] ^= 1

    def damage(plain):
        return bytes(damaged)

    monkeypatch.setitem(globals(), "reference", damage)
    sink = PlainMemorySink()
    with make(MANY, tmp_path) as source:
        if isinstance(source, CompressedMemorySource):
            chunk = bytearray(source.chunks[5])
            chunk[20] ^= 1
            source.chunks[5] = bytes(chunk)
        with pytest.raises(FormatError) as caught:
            unpack(source, sink, nthreads=nthreads)
    assert 5 == caught.value.chunk
    assert chunks_of(MANY)[:5] == [bytes(chunk) for chunk in sink.chunks[:5]]


# Plain sinks: store the plain bytes


@contextlib.contextmanager
def plain_into_list(nbytes, path):
    sink = PlainMemorySink()
    yield sink, lambda: b"".join(sink.chunks)


@contextlib.contextmanager
def plain_into_fixed_list(nbytes, path):
    sink = PlainMemorySink(max(1, -(-nbytes // CHUNK)))
    yield sink, lambda: b"".join(sink.chunks)


@contextlib.contextmanager
def plain_into_array(nbytes, path):
    metadata = {"dtype": "|u1", "shape": [nbytes], "order": "C", "container": "numpy"}
    sink = PlainNumpySink(metadata)
    yield sink, lambda: sink.ndarray.tobytes()


PLAIN_SINKS = {
    **{name: into(PlainFPSink, make) for name, make in FILES.items()},
    "list": plain_into_list,
    "fixed list": plain_into_fixed_list,
    "array": plain_into_array,
}
each_plain_sink = pytest.mark.parametrize("make", PLAIN_SINKS.values(), ids=PLAIN_SINKS)


@each_plain_sink
def test_unpack_into_any_sink(make, tmp_path):
    for nthreads, plain in itertools.product(THREADS, PLAINS.values()):
        with make(len(plain), tmp_path) as (sink, written):
            source = CompressedFPSource(io.BytesIO(reference(plain)))
            unpack(source, sink, nthreads=nthreads)
            assert plain == written()


@each_plain_sink
def test_plain_sink_chunk_by_chunk(make, tmp_path):
    for plain in PLAINS.values():
        with make(len(plain), tmp_path) as (sink, written):
            for compressed, _ in reference_pairs(plain):
                sink.put(compressed)
            assert plain == written()


@each_plain_sink
def test_plain_sink_refuses_what_is_no_chunk(make, tmp_path):
    for wrong in (b"", b"no chunk" * 10, reference_pairs(MANY)[0][0][:-1]):
        with (
            make(len(MANY), tmp_path) as (sink, _),
            pytest.raises(FormatError),
        ):
            sink.put(wrong)


def test_fixed_list_takes_no_more():
    sink = PlainMemorySink(2)
    pairs = reference_pairs(MANY)
    sink.put(pairs[0][0])
    sink.put(pairs[1][0])
    with pytest.raises(IndexError):
        sink.put(pairs[2][0])


# Any source with any sink


def test_every_source_and_sink_together(tmp_path):
    """Each has been tested with a plain partner; here each meets some of the others."""
    sources, keepers, takers = map(
        itertools.cycle,
        (PLAIN_SOURCES.values(), COMPRESSED_SINKS.values(), PLAIN_SINKS.values()),
    )
    # 9, 5 and 7 have no common factor: 45 rounds join each source with each sink.
    for _ in range(45):
        give, keep, take = next(sources), next(keepers), next(takers)
        with give(MANY, tmp_path) as source, keep(tmp_path) as (sink, written):
            pack(source, sink, *cut(MANY), nthreads=2)
            if isinstance(sink, CompressedMemorySink):
                compressed = CompressedMemorySource(sink)
            else:
                compressed = CompressedFPSource(io.BytesIO(written()))
            with take(len(MANY), tmp_path) as (plain_sink, plain):
                unpack(compressed, plain_sink, nthreads=2)
                assert MANY == plain()


# Endpoints in the style of 0.16


class PutOnly(PlainSink):
    """Defines only ``put``, which returns None."""

    def __init__(self):
        self.found = []

    def put(self, compressed):
        assert bytes is type(compressed)
        self.found.append(blosc.decompress(compressed))


@each_nthreads
@each_compressed_source
def test_plain_sink_with_put_alone(make, nthreads, tmp_path):
    sink = PutOnly()
    with make(MANY, tmp_path) as source:
        unpack(source, sink, nthreads=nthreads)
    assert chunks_of(MANY) == sink.found


class Slices(PlainNumpySource):
    """Sets all attributes itself, without ``super().__init__()``."""

    def __init__(self, ndarray):
        self.ndarray = np.ascontiguousarray(ndarray)
        self.size = self.ndarray.size * self.ndarray.itemsize
        self.metadata = {
            "dtype": "'%s'" % self.ndarray.dtype.str,
            "shape": self.ndarray.shape,
            "order": "C",
            "container": "numpy",
        }
        self.ptr = self.ndarray.__array_interface__["data"][0]


@each_nthreads
def test_numpy_source_without_the_constructor(nthreads):
    array = np.arange(5000, dtype="<i4").reshape(100, 50)
    source = Slices(array[::2])
    fp = io.BytesIO()
    pack(
        source,
        CompressedFPSink(fp),
        *calculate_nchunks(source.size, 400),
        source.metadata,
        BloscArgs(typesize=4),
        nthreads=nthreads,
    )
    assert bloscpack.pack_ndarray_to_bytes(array[::2], 400) == fp.getvalue()
    found = bloscpack.unpack_ndarray_from_bytes(fp.getvalue())
    np.testing.assert_array_equal(array[::2], found)


# The methods with which threads work


class WithRoom(PlainSink):
    """Has memory for every second chunk, and stores the others."""

    def __init__(self, nbytes):
        self.memory = bytearray(nbytes)
        self.given, self.stored, self.position = [], [], 0
        self.complete = False

    def put(self, compressed):
        raise AssertionError("put is not needed")

    def room(self, start, nbytes):
        self.given.append((start, nbytes, threading.current_thread()))
        if len(self.given) % 2:
            return None
        return memoryview(self.memory)[start : start + nbytes]

    def store(self, plain):
        start = self.given[2 * len(self.stored)][0]
        self.memory[start : start + len(plain)] = plain
        self.stored.append(threading.current_thread())

    def finalize(self):
        self.complete = True


@each_nthreads
@each_compressed_source
def test_plain_sink_with_room_and_store(make, nthreads, tmp_path):
    sink = WithRoom(len(MANY))
    with make(MANY, tmp_path) as source:
        unpack(source, sink, nthreads=nthreads)
    assert MANY == sink.memory
    assert sink.complete
    sizes = [len(chunk) for chunk in chunks_of(MANY)]
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    here = threading.current_thread()
    assert [(*pair, here) for pair in zip(starts, sizes, strict=True)] == sink.given
    assert [here] * ((len(sizes) + 1) // 2) == sink.stored


@each_nthreads
def test_room_may_be_any_writable_buffer(nthreads):
    class Pieces(PlainSink):
        def put(self, compressed):
            raise AssertionError("put is not needed")

        def room(self, start, nbytes):
            pieces.append(bytearray(nbytes))
            return pieces[-1]

        def store(self, plain):
            raise AssertionError("there is room for all")

    pieces = []
    unpack(CompressedFPSource(io.BytesIO(reference(MANY))), Pieces(), nthreads=nthreads)
    assert MANY == b"".join(pieces)


@each_nthreads
def test_a_number_is_no_chunk(nthreads):
    with pytest.raises(TypeError):
        pack(
            PlainMemorySource([10, 10]),
            CompressedMemorySink(),
            *(2, 10, 10),
            nthreads=nthreads,
        )


@each_nthreads
def test_put_of_a_subclass_comes_before_room_and_store(nthreads):
    class Older(WithRoom):
        def put(self, compressed):
            found.append(blosc.decompress(compressed))

    found, sink = [], Older(len(MANY))
    source = CompressedFPSource(io.BytesIO(reference(MANY)))
    unpack(source, sink, nthreads=nthreads)
    assert chunks_of(MANY) == found
    assert ([], [], False) == (sink.given, sink.stored, sink.complete)


@each_nthreads
def test_compressed_sink_with_store_or_put(nthreads):
    class Digested(CompressedSink):
        def put(self, i, compressed):
            raise AssertionError("put is not needed")

        def store(self, i, compressed, digest):
            found.append((i, compressed, digest))

    class Kept(CompressedSink):
        def put(self, i, compressed):
            found.append((i, compressed, self.do_checksum(compressed)))

    class Older(Kept, Digested):
        """Its `put` comes before `store`."""

    class OtherDigests(CompressedFPSink):
        def do_checksum(self, compressed):
            return bytes(4)

    expected = [(i, *pair) for i, pair in enumerate(reference_pairs(MANY))]
    for sink in Digested(), Kept(), Older():
        found = []
        pack(PlainMemorySource(chunks_of(MANY)), sink, *cut(MANY), nthreads=nthreads)
        assert expected == found
    fp = io.BytesIO()
    source = PlainMemorySource(chunks_of(MANY))
    pack(source, OtherDigests(fp), *cut(MANY), nthreads=nthreads)
    fp.seek(0)
    assert {bytes(4)} == {bytes(digest) for _, digest in CompressedFPSource(fp)}


def test_plain_file_sink_without_the_constructor(tmp_path):
    class Named(PlainFPSink):
        def __init__(self, fp):
            self.output_fp = fp

    with open(tmp_path / "x", "wb") as fp:
        unpack(CompressedFPSource(io.BytesIO(reference(MANY))), Named(fp))
    assert MANY == (tmp_path / "x").read_bytes()


@each_nthreads
def test_file_sink_that_overrides_put(nthreads):
    class Counting(CompressedFPSink):
        def put(self, i, compressed):
            threads.add(threading.current_thread())
            seen.append((i, compressed))
            return super().put(i, compressed)

    seen, threads, fp = [], set(), io.BytesIO()
    source = PlainMemorySource(chunks_of(MANY))
    pack(source, Counting(fp), *cut(MANY), nthreads=nthreads)
    assert reference(MANY) == fp.getvalue()
    expected = [(i, pair[0]) for i, pair in enumerate(reference_pairs(MANY))]
    assert expected == seen
    assert {threading.current_thread()} == threads


@each_nthreads
def test_plain_file_sink_that_overrides_put(nthreads):
    class Shouting(PlainFPSink):
        def put(self, compressed):
            sizes.append(super().put(compressed))
            self.output_fp.write(b"!")
            return sizes[-1]

    sizes, out = [], io.BytesIO()
    source = CompressedFPSource(io.BytesIO(reference(MANY)))
    unpack(source, Shouting(out, source.nchunks), nthreads=nthreads)
    assert b"!".join([*chunks_of(MANY), b""]) == out.getvalue()
    assert [len(chunk) for chunk in chunks_of(MANY)] == sizes


@each_nthreads
def test_memory_and_numpy_sinks_that_override_put(nthreads):
    class Remembering(PlainMemorySink):
        def put(self, compressed):
            seen.append(compressed)
            return super().put(compressed)

    class Watching(PlainNumpySink):
        def put(self, compressed):
            seen.append(compressed)
            return super().put(compressed)

    expected = [compressed for compressed, _ in reference_pairs(MANY)]
    for sink in (
        Remembering(),
        Watching({"dtype": "u1", "shape": [len(MANY)], "container": "numpy"}),
    ):
        seen = []
        source = CompressedFPSource(io.BytesIO(reference(MANY)))
        unpack(source, sink, nthreads=nthreads)
        assert expected == seen


@each_nthreads
def test_memory_sink_that_overrides_put(nthreads):
    class Reversing(CompressedMemorySink):
        def put(self, i, compressed):
            order.append(i)
            super().put(i, compressed)

    order, sink = [], Reversing()
    pack(PlainMemorySource(chunks_of(MANY)), sink, *cut(MANY), nthreads=nthreads)
    assert list(range(10)) == order
    found = list(zip(sink.chunks, sink.checksums, strict=True))
    assert reference_pairs(MANY) == found


@each_nthreads
def test_source_with_a_compress_func_of_its_own(nthreads):
    class Mine(PlainMemorySource):
        @property
        def compress_func(self):
            return self.squeeze

        def squeeze(self, chunk, blosc_args):
            calls.append((threading.current_thread(), chunk, dict(blosc_args)))
            return blosc.compress(chunk, **{**blosc_args, "shuffle": 1})

    calls = []
    fp = io.BytesIO()
    args = BloscArgs(cname="lz4")
    pack(
        Mine(chunks_of(MANY)),
        CompressedFPSink(fp),
        *cut(MANY),
        blosc_args=args,
        nthreads=nthreads,
    )
    assert {threading.current_thread()} == {thread for thread, _, _ in calls}
    assert chunks_of(MANY) == [chunk for _, chunk, _ in calls]
    assert all(dict(args) == given for _, _, given in calls)
    assert (MANY, None) == bloscpack.unpack_bytes_from_bytes(fp.getvalue())


@each_nthreads
def test_compressed_source_with_iter_alone(nthreads):
    class Pairs(CompressedSource):
        def __iter__(self):
            return iter(reference_pairs(MANY))

    sink = PlainMemorySink()
    unpack(Pairs(), sink, nthreads=nthreads)
    assert MANY == b"".join(sink.chunks)


@each_nthreads
def test_file_source_that_overrides_iter(nthreads):
    class Upper(PlainFPSource):
        def __iter__(self):
            for chunk in super().__iter__():
                yield chunk.upper()

    plain = b"some text, all in lower case. " * 300
    fp = io.BytesIO()
    source = Upper(io.BytesIO(plain))
    pack(source, CompressedFPSink(fp), *cut(plain), nthreads=nthreads)
    assert reference(plain.upper()) == fp.getvalue()


@each_nthreads
def test_compressed_file_source_that_overrides_iter(nthreads):
    class FromTheSecond(CompressedFPSource):
        def __iter__(self):
            pairs = super().__iter__()
            next(iter(pairs))
            yield from pairs

    sink = PlainMemorySink()
    source = FromTheSecond(io.BytesIO(reference(MANY)))
    unpack(source, sink, nthreads=nthreads)
    assert MANY[CHUNK:] == b"".join(sink.chunks)


@each_nthreads
def test_file_sink_that_overrides_other_hooks(nthreads):
    class Headless(CompressedFPSink):
        """Writes only chunks, not the sections in front of them."""

        def write_bloscpack_header(self):
            hooks.append("header")

        def write_metadata(self, metadata, metadata_args):
            hooks.append(metadata)

        def init_offsets(self):
            hooks.append("offsets")

        def finalize(self):
            hooks.append("end")

    hooks, fp = [], io.BytesIO()
    pack(
        PlainMemorySource(chunks_of(MANY)),
        Headless(fp),
        *cut(MANY),
        metadata="metadata",
        bloscpack_args=BloscpackArgs(offsets=False),
        nthreads=nthreads,
    )
    assert ["header", "metadata", "offsets", "end"] == hooks
    expected = b"".join(chunk + digest for chunk, digest in reference_pairs(MANY))
    assert expected == fp.getvalue()


def test_hooks_are_called_in_order():
    class Noting(CompressedSink):
        def configure(self, blosc_args, bloscpack_header):
            super().configure(blosc_args, bloscpack_header)
            hooks.append("configure")

        def write_bloscpack_header(self):
            hooks.append("header")

        def write_metadata(self, metadata, metadata_args):
            hooks.append("metadata")

        def init_offsets(self):
            hooks.append("offsets")

        def put(self, i, compressed):
            hooks.append(i)

        def finalize(self):
            hooks.append("finalize")

    hooks = []
    pack(PlainMemorySource([b"a", b"b"]), Noting(), 2, 1, 1)
    assert ["configure", "header", "offsets", 0, 1, "finalize"] == hooks


@pytest.mark.parametrize(
    ("cls", "method"),
    [
        (PlainSource, "__iter__"),
        (CompressedSource, "__iter__"),
        (PlainSink, "put"),
        (CompressedSink, "put"),
    ],
)
def test_only_one_method_is_abstract(cls, method):
    assert {method} == set(cls.__abstractmethods__)
    with pytest.raises(TypeError, match=method):
        cls()
    complete = type("Complete", (cls,), {method: lambda self, *args: iter(())})
    assert isinstance(complete(), cls)


def test_only_the_four_classes_are_abstract():
    names = {
        name
        for name, value in vars(abstract_io).items()
        if getattr(value, "__module__", None) == abstract_io.__name__
        and getattr(value, "__abstractmethods__", None)
    }
    assert {"PlainSource", "CompressedSource", "PlainSink", "CompressedSink"} == names


# pack, as user code calls it


def test_pack_by_position():
    fp = io.BytesIO()
    pack(
        PlainMemorySource([b"a" * 10, b"b" * 4]),
        CompressedFPSink(fp),
        2,
        10,
        4,
        {"meta": "data"},
        BloscArgs(4, 1, False, "lz4"),
        BloscpackArgs(False, "crc32", 0),
        MetadataArgs(b"JSON", "None", "None", 0, 50),
    )
    header = BloscpackHeader.decode(fp.getvalue()[:32])
    assert (
        BloscpackHeader(
            offsets=False,
            metadata=True,
            checksum="crc32",
            typesize=4,
            chunk_size=10,
            last_chunk=4,
            nchunks=2,
        )
        == header
    )
    expected = (b"a" * 10 + b"b" * 4, {"meta": "data"})
    assert expected == bloscpack.unpack_bytes_from_bytes(fp.getvalue())


def test_typesize_assigned_before_use():
    args = BloscArgs()
    args.typesize = 2
    packed = bloscpack.pack_bytes_to_bytes(MANY, CHUNK, blosc_args=args)
    assert 2 == packed[7] == packed[packed.index(b"\x02\x01", 32) + 3]
    assert 2 == args.typesize


@each_nthreads
def test_source_that_does_not_know_its_end(nthreads):
    """A file of an unknown number of chunks has no offsets and can be read."""
    for plain in (MANY, MANY[: 3 * CHUNK], b"short", b""):
        lists = CompressedMemorySink()
        pack(PlainFPSource(ShortReads(plain)), lists, -1, CHUNK, -1, nthreads=nthreads)
        sink = PlainMemorySink()
        unpack(CompressedMemorySource(lists), sink, nthreads=nthreads)
        assert plain == b"".join(sink.chunks)
        fp = io.BytesIO()
        source = PlainFPSource(ShortReads(plain))
        pack(source, CompressedFPSink(fp), -1, CHUNK, -1, nthreads=nthreads)
        assert (plain, None) == bloscpack.unpack_bytes_from_bytes(fp.getvalue())


# Objects of the caller are not modified


def test_argument_objects_are_not_altered(tmp_path):
    """Bug 27 of 0.16."""
    noise = np.random.default_rng(1).bytes(30).hex()
    settings = (BloscArgs(3), BloscpackArgs(), MetadataArgs())
    before = [setting.copy() for setting in settings]
    metadata = {"a": [noise], "b": {"c": (1, 2)}}
    array = np.arange(1000, dtype="<i4")
    packed = bloscpack.pack_bytes_to_bytes(MANY, CHUNK, metadata, *settings)
    bloscpack.pack_bytes_to_file(MANY, tmp_path / "a", CHUNK, metadata, *settings)
    bloscpack.pack_file_to_file(
        tmp_path / "a", tmp_path / "b", CHUNK, metadata, *settings
    )
    bloscpack.pack_ndarray_to_bytes(array, 400, *settings)
    bloscpack.pack_ndarray_to_file(array, tmp_path / "c", 400, *settings)
    pack(
        PlainMemorySource(chunks_of(MANY)),
        CompressedMemorySink(),
        *cut(MANY),
        metadata,
        *settings,
    )
    append_fp(io.BytesIO(packed), io.BytesIO(b"new"), 3, settings[0])
    assert before == list(settings)
    assert {"a": [noise], "b": {"c": (1, 2)}} == metadata
    assert np.arange(1000, dtype="<i4").tobytes() == array.tobytes()


# Settings of Blosc are process-wide


def blosc_settings():
    nthreads = blosc.set_nthreads(1)
    blosc.set_nthreads(nthreads)
    releasegil = blosc.set_releasegil(False)
    blosc.set_releasegil(releasegil)
    return nthreads, bool(releasegil), blosc.get_blocksize()


@pytest.fixture(params=[(3, False, 0), (2, True, 4096)], ids=str)
def settings(request):
    """Blosc with settings of the user, which are restored afterwards."""
    before = blosc_settings()
    for nthreads, releasegil, blocksize in (request.param, before):
        blosc.set_nthreads(nthreads)
        blosc.set_releasegil(releasegil)
        blosc.set_blocksize(blocksize)
        if (nthreads, releasegil, blocksize) == request.param:
            yield request.param


WORK = {
    "pack": lambda n: bloscpack.pack_bytes_to_bytes(MANY, CHUNK, nthreads=n),
    "unpack": lambda n: bloscpack.unpack_bytes_from_bytes(reference(MANY), nthreads=n),
    "array": lambda n: bloscpack.unpack_ndarray_from_bytes(
        bloscpack.pack_ndarray_to_bytes(np.arange(1000), 800, nthreads=n), nthreads=n
    ),
    "append": lambda n: append_fp(
        io.BytesIO(reference(MANY)), io.BytesIO(MANY), len(MANY), nthreads=n
    ),
    "put": lambda n: PlainMemorySink().put(reference_pairs(MANY)[0][0]),
}


@each_nthreads
@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
def test_blosc_is_left_as_it_was(work, nthreads, settings):
    work(nthreads)
    assert settings == blosc_settings()


def failing_source():
    yield MANY[:CHUNK]
    raise RuntimeError("the source fails")


class FailingSink(PlainMemorySink):
    def put(self, compressed):
        raise RuntimeError("the sink fails")


class FailingFile(io.BytesIO):
    def write(self, data):
        raise RuntimeError("the file fails")


FAILING = {
    "source": lambda n: pack(
        PlainMemorySource(failing_source()),
        CompressedMemorySink(),
        *cut(MANY),
        nthreads=n,
    ),
    "sink": lambda n: unpack(
        CompressedFPSource(io.BytesIO(reference(MANY))), FailingSink(), nthreads=n
    ),
    "file": lambda n: unpack(
        CompressedFPSource(io.BytesIO(reference(MANY))),
        PlainFPSink(FailingFile()),
        nthreads=n,
    ),
    "short": lambda n: pack(
        PlainMemorySource([b"short"]), CompressedMemorySink(), *cut(MANY), nthreads=n
    ),
    "truncated": lambda n: bloscpack.unpack_bytes_from_bytes(
        reference(MANY)[:-1], nthreads=n
    ),
    "put": lambda n: PlainMemorySink().put(b"no chunk"),
    "append": lambda n: append_fp(
        io.BytesIO(reference(MANY)), io.BytesIO(), 5000, nthreads=n
    ),
}


@each_nthreads
@pytest.mark.parametrize("work", FAILING.values(), ids=FAILING)
def test_blosc_is_left_as_it_was_after_errors(work, nthreads, settings):
    threads = other_threads()
    with pytest.raises((RuntimeError, OSError, ValueError)):
        work(nthreads)
    assert settings == blosc_settings()
    assert threads == other_threads()
    assert [] == at_work()


def test_blosc_is_left_as_it_was_by_a_loop_that_is_left(settings):
    source = CompressedFPSource(io.BytesIO(reference(MANY)))
    for _ in source:
        break
    assert settings == blosc_settings()


def test_blosc_is_left_as_it_was_by_many_threads(settings):
    expected = reference(MANY)
    failures = []

    def work(i):
        try:
            for _ in range(10):
                assert expected == bloscpack.pack_bytes_to_bytes(
                    MANY, CHUNK, nthreads=1 + i % 3
                )
                found = bloscpack.unpack_bytes_from_bytes(expected, nthreads=1 + i % 2)
                assert (MANY, None) == found
                with contextlib.suppress(FormatError):
                    bloscpack.unpack_bytes_from_bytes(expected[:-1])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [] == failures
    assert settings == blosc_settings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BLOSC_CLEVEL", "1"),
        ("BLOSC_SHUFFLE", "NOSHUFFLE"),
        ("BLOSC_SHUFFLE", "BITSHUFFLE"),
        ("BLOSC_TYPESIZE", "3"),
        ("BLOSC_COMPRESSOR", "zlib"),
        ("BLOSC_BLOCKSIZE", "4096"),
        ("BLOSC_SPLITMODE", "NEVER"),
        ("BLOSC_NTHREADS", "4"),
        ("BLOSC_NOLOCK", "1"),
    ],
)
@each_nthreads
def test_environment_does_not_change_the_bytes(name, value, nthreads, monkeypatch):
    plain = (np.arange(100_000) // 3).astype("<i4").tobytes()
    expected = bloscpack.pack_bytes_to_bytes(plain, "100K", nthreads=1)
    monkeypatch.setenv(name, value)
    assert expected == bloscpack.pack_bytes_to_bytes(plain, "100K", nthreads=nthreads)
    assert (plain, None) == bloscpack.unpack_bytes_from_bytes(
        expected, nthreads=nthreads
    )


# Regular files, which several threads use at the same time


def file_with(path, content=b""):
    path.write_bytes(content)
    return path


@each_nthreads
@pytest.mark.parametrize("buffering", [0, -1])
def test_real_files_from_where_they_stand(nthreads, buffering, tmp_path):
    path = file_with(tmp_path / "in", b"before" + MANY + b"behind")
    with (
        open(path, "rb", buffering) as in_fp,
        open(tmp_path / "packed", "w+b", buffering) as packed,
        open(tmp_path / "out", "w+b", buffering) as out,
    ):
        assert b"before" == in_fp.read(6)
        packed.write(b"before")
        pack(
            PlainFPSource(in_fp),
            CompressedFPSink(packed),
            *cut(MANY),
            nthreads=nthreads,
        )
        assert b"behind" == in_fp.read()
        packed.write(b"behind")
        packed.seek(6)
        source = CompressedFPSource(packed)
        out.write(b"before")
        unpack(source, PlainFPSink(out), nthreads=nthreads)
        out.write(b"behind")
        assert b"behind" == packed.read()
    assert b"before" + MANY + b"behind" == (tmp_path / "out").read_bytes()
    expected = b"before" + reference(MANY) + b"behind"
    assert expected == (tmp_path / "packed").read_bytes()


@each_nthreads
@pytest.mark.parametrize("buffering", [0, -1])
def test_plain_file_sink_takes_one_file_after_the_other(nthreads, buffering, tmp_path):
    with open(tmp_path / "out", "wb", buffering) as out:
        sink = PlainFPSink(out)
        out.write(b"before")
        for plain in PLAINS.values():
            source = CompressedFPSource(io.BytesIO(reference(plain)))
            unpack(source, sink, nthreads=nthreads)
            out.write(b"|")
    expected = b"".join(plain + b"|" for plain in PLAINS.values())
    assert b"before" + expected == (tmp_path / "out").read_bytes()


@each_nthreads
def test_plain_file_sink_overwrites_what_is_there(nthreads, tmp_path):
    file_with(tmp_path / "out", b"old" * 5000)
    with open(tmp_path / "out", "r+b") as out:
        out.seek(3)
        source = CompressedFPSource(io.BytesIO(reference(MANY)))
        unpack(source, PlainFPSink(out), nthreads=nthreads)
        assert 3 + len(MANY) == out.tell()
    expected = b"old" + MANY + (b"old" * 5000)[3 + len(MANY) :]
    assert expected == (tmp_path / "out").read_bytes()


@pytest.mark.parametrize("mode", ["ab", "wb"])
def test_plain_file_sink_that_only_appends(mode, tmp_path):
    """As with ``>>`` of a shell: every write appends to the file."""
    # Some chunks are fast, others slow.
    noise = np.random.default_rng(1).bytes(2**16)
    heavy = (np.arange(2**16) // 5 % 251).astype("u1").tobytes()
    plain = (heavy + noise) * 50
    args = BloscArgs(cname="zlib", clevel=9)
    packed = bloscpack.pack_bytes_to_bytes(plain, 2**16, blosc_args=args)
    file_with(tmp_path / "out", b"before")
    descriptor = os.open(tmp_path / "out", os.O_WRONLY | os.O_APPEND)
    with open(descriptor, mode) as out:
        source = CompressedFPSource(io.BytesIO(packed))
        unpack(source, PlainFPSink(out), nthreads=8)
        out.write(b"behind")
    assert b"before" + plain + b"behind" == (tmp_path / "out").read_bytes()


@each_nthreads
@pytest.mark.parametrize("wrapped", [True, False])
def test_file_objects_whose_descriptor_is_of_another_file(nthreads, wrapped, tmp_path):
    @contextlib.contextmanager
    def opened(name, mode):
        buffered = io.BufferedReader if mode == "rb" else io.BufferedWriter
        with gzip.open(tmp_path / name, mode) as fp:
            if wrapped:
                with buffered(fp) as outer:
                    yield outer
            else:
                yield fp

    with gzip.open(tmp_path / "in", "wb") as fp:
        fp.write(MANY)
    with gzip.open(tmp_path / "packed", "wb") as fp:
        fp.write(reference(MANY))
    lists = CompressedMemorySink()
    with opened("in", "rb") as fp:
        pack(PlainFPSource(fp), lists, *cut(MANY), nthreads=nthreads)
    assert reference_pairs(MANY) == list(
        zip(lists.chunks, lists.checksums, strict=True)
    )
    with opened("packed", "rb") as fp, opened("out", "wb") as out:
        unpack(CompressedFPSource(fp), PlainFPSink(out), nthreads=nthreads)
    with gzip.open(tmp_path / "out") as fp:
        assert MANY == fp.read()


def raised_by(work):
    """Return the error that `work` raises; fail if it does not end."""

    def run():
        try:
            work()
        except BaseException as error:
            errors.append(error)
        else:
            errors.append(None)

    errors = []
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(120)
    assert not thread.is_alive()
    return errors[0]


@each_nthreads
@pytest.mark.parametrize("kind", ["source", "sink"])
def test_any_error_ends_everything(kind, nthreads):
    """Also an error that is not an Exception, wherever it is raised."""

    class Stop(BaseException):
        pass

    class StoppingFile(io.BytesIO):
        def read(self, size=-1):
            if kind == "source" and self.tell() > 3000:
                raise Stop
            return super().read(size)

        def write(self, data):
            if kind == "sink" and self.tell() > 3000:
                raise Stop
            return super().write(data)

    packed = bloscpack.pack_bytes_to_bytes(MANY, CHUNK, blosc_args=BloscArgs(clevel=0))
    for work in (
        lambda: pack(
            PlainFPSource(StoppingFile(MANY)),
            CompressedFPSink(StoppingFile()),
            *cut(MANY),
            blosc_args=BloscArgs(clevel=0),
            nthreads=nthreads,
        ),
        lambda: unpack(
            CompressedFPSource(StoppingFile(packed)),
            PlainFPSink(StoppingFile()),
            nthreads=nthreads,
        ),
    ):
        threads = other_threads()
        assert Stop is type(raised_by(work))
        assert threads == other_threads()
    assert [] == at_work()


# Bugs found in reviews


class ReusesItsBuffer(PlainSource):
    """A source in the style of 0.16 that reads every chunk into the same buffer."""

    def __iter__(self):
        assert threading.current_thread() is threading.main_thread()
        buffer = bytearray(self.chunk_size)
        for i in range(self.nchunks):
            buffer[:] = bytes([i]) * self.chunk_size
            yield memoryview(buffer)


@pytest.mark.parametrize("nthreads", [1, 4])
def test_source_that_reuses_its_buffer(nthreads):
    fp = io.BytesIO()
    size, count = 300_000, 9
    pack(ReusesItsBuffer(), CompressedFPSink(fp), count, size, size, nthreads=nthreads)
    plain = b"".join(bytes([i]) * size for i in range(count))
    assert (plain, None) == bloscpack.unpack_bytes_from_bytes(fp.getvalue())


def test_hook_of_a_mixin_is_called():
    class Counting:
        calls = 0

        def put(self, compressed):
            self.calls += 1
            return super().put(compressed)

    class Sink(Counting, PlainFPSink):
        pass

    packed = bloscpack.pack_bytes_to_bytes(bytes(1000), chunk_size=100)
    sink = Sink(io.BytesIO())
    unpack(CompressedFPSource(io.BytesIO(packed)), sink)
    assert 10 == sink.calls
    assert bytes(1000) == sink.output_fp.getvalue()


def test_sink_whose_attributes_have_the_names_of_hooks():
    class Sink(PlainSink):
        def __init__(self):
            self.start = self.finalize = 0
            self.kept = []

        def put(self, compressed):
            self.kept.append(compressed)

    packed = bloscpack.pack_bytes_to_bytes(bytes(1000), chunk_size=100)
    sink = Sink()
    unpack(CompressedFPSource(io.BytesIO(packed)), sink)
    assert 10 == len(sink.kept)


@pytest.mark.skipif(not os.path.exists("/proc/version"), reason="needs /proc")
def test_file_that_states_no_size(tmp_path):
    bloscpack.pack_file_to_file("/proc/version", tmp_path / "x.blp")
    with open("/proc/version", "rb") as fp:
        expected = fp.read()
    assert (expected, None) == bloscpack.unpack_bytes_from_file(tmp_path / "x.blp")
