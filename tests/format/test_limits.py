"""Limits on what a file may ask for, and what happens where there is no memory."""

from __future__ import annotations

import sys
import zlib
from pathlib import Path

import numpy
import pytest
from support import environment, run_python

import bloscpack as bp
from bloscpack.append import append_fp
from bloscpack.args import BloscpackArgs, Limits
from bloscpack.exceptions import FormatError, NotEnoughSpace, Unsupported
from bloscpack.headers import BloscpackHeader, MetadataHeader

PLAIN = bytes(range(100))
VALUE = {"text": "a" * 1000}
KNOWN = bp.pack_bytes_to_bytes(PLAIN, 30, metadata=VALUE)
# The number of chunks is not known; that of the bytes is neither.
UNKNOWN = (
    KNOWN[:16] + b"\xff" * 8 + bytes(8)
    + bp.pack_bytes_to_bytes(
        PLAIN, 30, metadata=VALUE, bloscpack_args=BloscpackArgs(offsets=False)
    )[32:]
)  # fmt: skip
ARRAY = bp.pack_ndarray_to_bytes(numpy.frombuffer(PLAIN, "|u1"), 30)


def read_bytes(data, path, limits):
    return bp.unpack_bytes_from_bytes(data, limits=limits)[0]


def read_file(data, path, limits):
    path.write_bytes(data)
    return bp.unpack_bytes_from_file(path, limits=limits)[0]


def read_to_file(data, path, limits):
    path.write_bytes(data)
    out = path.with_suffix(".out")
    bp.unpack_file_from_file(path, out, limits=limits)
    return out.read_bytes()


def read_array(data, path, limits):
    return bp.unpack_ndarray_from_bytes(data, limits=limits).tobytes()


def read_array_file(data, path, limits):
    path.write_bytes(data)
    return bp.unpack_ndarray_from_file(path, limits=limits).tobytes()


READERS = [read_bytes, read_file, read_to_file]
ALL = [
    *((reader, data) for reader in READERS for data in (KNOWN, UNKNOWN)),
    (read_array, ARRAY),
    (read_array_file, ARRAY),
]


@pytest.mark.parametrize(("reader", "data"), ALL)
def test_plain_bytes(tmp_path, reader, data):
    path = tmp_path / "a.blp"
    assert PLAIN == reader(data, path, Limits(nbytes=100))
    with pytest.raises(Unsupported, match="but the limit is '99'") as raised:
        reader(data, path, Limits(nbytes=99))
    expected = ("chunks", 3) if data is UNKNOWN else ("header", None)
    assert expected == (raised.value.section, raised.value.chunk)


@pytest.mark.parametrize("reader", READERS)
def test_plain_bytes_of_a_chunk_behind_the_last_one(tmp_path, reader):
    """Without digests only decompressing tells whether it is a chunk."""
    plain = BloscpackArgs(checksum="None", offsets=False)
    data = bp.pack_bytes_to_bytes(PLAIN, bloscpack_args=plain)
    behind = bp.pack_bytes_to_bytes(bytes(10**6), bloscpack_args=plain)[32:]
    path = tmp_path / "a.blp"
    with pytest.raises(FormatError, match="another chunk follows") as raised:
        reader(data + behind, path, Limits(nbytes=100 + 10**6))
    assert not isinstance(raised.value, Unsupported)
    with pytest.raises(Unsupported, match="but the limit is '1000'") as raised:
        reader(data + behind, path, Limits(nbytes=1000))
    assert ("chunks", len(data)) == (raised.value.section, raised.value.offset)
    assert PLAIN == reader(data + behind[:-1], path, Limits(nbytes=1000))


@pytest.mark.parametrize(("reader", "data"), ALL)
def test_metadata_values(tmp_path, reader, data):
    path = tmp_path / "a.blp"
    count = 10 if data is ARRAY else 3
    assert PLAIN == reader(data, path, Limits(metadata_values=count))
    assert PLAIN == reader(data, path, Limits(metadata_values=lambda stored: stored))
    with pytest.raises(FormatError, match="have more than '2' values") as raised:
        reader(data, path, Limits(metadata_values=2))
    assert "metadata" == raised.value.section


# Sum of the sizes of all Python objects made from a file.
MEASURED = """
import sys, tracemalloc
import bloscpack as bp, bloscpack.exceptions
data = open(sys.argv[1], "rb").read()
bp.unpack_bytes_from_bytes(bp.pack_bytes_to_bytes(b"", metadata={}))
tracemalloc.start()
try:
    bp.unpack_bytes_from_bytes(data)
except bloscpack.exceptions.FormatError as error:
    print(error.message)
else:
    print("read")
print(tracemalloc.get_traced_memory()[1])
"""


@pytest.mark.parametrize(
    ("piece", "count", "expected"),
    [
        (b"[],", 2**24 // 3 - 1, "the metadata have more than '1000000' values"),
        pytest.param(
            *(b'{"":0},', 2**24 // 7 - 1),
            "the metadata have more than '1000000' values",
            marks=pytest.mark.slow,
        ),
        pytest.param(b"[],", 10**6 // 2 - 2, "read", marks=pytest.mark.slow),
        (b'{"":0},', 10**6 // 3 - 2, "read"),
    ],
)
def test_values_of_a_small_file(tmp_path, piece, count, expected):
    text = b"[" + piece * count + b"0]"
    path = tmp_path / "a.blp"
    path.write_bytes(with_metadata(text))
    assert 61_000 > path.stat().st_size
    done = run_python(
        "-c", MEASURED, path, cwd=Path(bp.__file__).parents[1], text=True, check=True
    )
    message, peak = done.stdout.splitlines()
    assert expected == message
    assert 150 * 10**6 > int(peak)


def with_metadata(text: bytes) -> bytes:
    """Return a file with any text as its metadata, compressed."""
    stored = zlib.compress(text)
    header = BloscpackHeader(metadata=True, checksum="adler32", nchunks=0)
    metadata_header = MetadataHeader(
        magic_format=b"JSON",
        meta_codec="zlib",
        meta_size=len(text),
        max_meta_size=len(stored),
        meta_comp_size=len(stored),
    )
    return header.encode() + metadata_header.encode() + stored


@pytest.mark.parametrize(("reader", "data"), ALL)
def test_metadata(tmp_path, reader, data):
    path = tmp_path / "a.blp"
    size = 62 + 9 if data is ARRAY else 1011
    found = reader(data, path, Limits(metadata=2000))
    assert PLAIN == found
    with pytest.raises(FormatError, match="metadata decompress to more than '50'"):
        reader(data, path, Limits(metadata=50))
    assert size > 50


def test_a_shape_that_lies_costs_nothing():
    metadata = {"dtype": "'|u1'", "shape": [2**40], "container": "numpy"}
    data = bp.pack_bytes_to_bytes(b"", metadata=metadata)
    data = data[:8] + b"\xff" * 16 + bytes(8) + data[32:]
    with pytest.raises(Unsupported, match="'1099511627776' plain bytes or more"):
        bp.unpack_ndarray_from_bytes(data, limits=Limits(nbytes=2**30))


@pytest.mark.parametrize("limits", [Limits(nbytes=-1), Limits(metadata=-1)])
def test_limits_are_checked(limits):
    with pytest.raises(bp.UsageError, match="must be in the range"):
        bp.unpack_bytes_from_bytes(KNOWN, limits=limits)


def test_append_to_tiny_chunks_is_planned_without_a_list():
    import io

    fp = io.BytesIO(bp.pack_bytes_to_bytes(b"ab", 1))
    with pytest.raises(NotEnoughSpace, match="space: '1000000000000' chunks"):
        append_fp(fp, io.BytesIO(b"c"), 10**12)


# Where there is no memory

LIMITED = """
import resource, sys
from pathlib import Path
import numpy, blosc, bloscpack as bp
from bloscpack import abstract_io, append, file_io, memory_io
with open("/proc/self/statm") as fp:
    used = int(fp.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 200 * 2**20,) * 2)
def pipe(path):
    class Pipe:
        def __init__(self):
            self.read = open(path, "rb").read
    sink = memory_io.PlainMemorySink()
    abstract_io.unpack(file_io.CompressedFPSource(Pipe()), sink, nthreads=1)
def added(path):
    with open(path, "r+b") as fp:
        append.append_fp(fp, open(path, "rb"), 8)
for function in (
    lambda path: bp.unpack_bytes_from_file(path, nthreads=1),
    lambda path: bp.unpack_bytes_from_file(path, nthreads=2),
    lambda path: bp.unpack_bytes_from_bytes(path.read_bytes()),
    lambda path: bp.unpack_file_from_file(path, path.with_suffix(".out"), nthreads=1),
    bp.unpack_ndarray_from_file,
    pipe,
    added,
):
    try:
        function(Path(sys.argv[1]))
    except (bp.FormatError, bp.UsageError) as error:
        print(getattr(error, "section", None) or type(error).__name__)
    else:
        print("done")
"""


def hostile(name):
    """Return a small file that asks for much memory."""
    import blosc
    from fuzz import parts
    from invalid import make

    taken = make.blank()
    largest = 2**31 - 17
    if name == "metadata":
        import zlib

        text = b"[" + b"[]," * (5 * 2**20) + b"[]]"
        make.store(taken, zlib.compress(text), meta_codec=1, meta_size=len(text))
        return taken.join()
    size = largest if name == "claim" else 30 * 2**20
    if name == "claim":
        record = {"flags": 4 << 5, "nbytes": size, "blocksize": size, "ctbytes": 2**16}
        taken.chunks = [make.copied(b"")]
        taken.chunks[0].record.update(record)
        taken.chunks[0].rest = b"\x14\0\0\0".ljust(2**16 - 16, b"\1")
    else:
        chunk = blosc.compress(bytes(size), typesize=1, clevel=1, cname="zstd")
        one = parts.Chunk(parts.decode(parts.CHUNK, chunk), chunk[16:])
        taken.chunks = [one] * 10
    count = len(taken.chunks)
    make.describe(taken, dtype="'|u1'", shape=[count * size])
    taken.header.update(chunk_size=size, last_chunk=size, nchunks=count)
    taken.offsets = [-1] * (count + 1)
    parts.set_offsets(taken)
    if name == "unknown":
        taken.header.update(nchunks=-1, last_chunk=-1, max_app_chunks=0)
        taken.offsets = []
    return taken.join()


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="uses /proc")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("metadata", ["metadata"] * 7),
        ("claim", [*["header"] * 3, "chunks", "metadata", "chunks", "chunks"]),
        ("known", [*["header"] * 3, "done", "metadata", "chunks", "done"]),
        ("unknown", [*["chunks"] * 3, "done", "metadata", "chunks", "OffsetsRequired"]),
    ],
)
def test_no_memory(tmp_path, name, expected):
    path = tmp_path / "a.blp"
    path.write_bytes(hostile(name))
    assert 2**20 > path.stat().st_size
    done = run_python(
        "-c",
        LIMITED,
        path,
        # Each thread may otherwise reserve 64 MiB of addresses for its allocations,
        # and how many threads allocate at once differs from run to run.
        env=environment(MALLOC_ARENA_MAX="1"),
        cwd=Path(bp.__file__).parents[1],
        text=True,
    )
    assert (0, "") == (done.returncode, done.stderr)
    assert expected == done.stdout.split()


PACKING = """
import resource, sys
import numpy, blosc, bloscpack as bp
from bloscpack import file_io
with open("/proc/self/statm") as fp:
    used = int(fp.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 200 * 2**20,) * 2)
bp.pack_file_to_file(sys.argv[1], sys.argv[1] + ".blp", "max", nthreads=1)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_no_memory_for_a_chunk_to_pack(tmp_path):
    with open(tmp_path / "large", "wb") as fp:
        fp.truncate(2**29)
    done = run_python("-c", PACKING, tmp_path / "large", text=True)
    assert "StorageError: there is no memory to compress chunks of '5" in done.stderr
    assert ["large"] == [path.name for path in tmp_path.iterdir()]


UNPACKING = """
import resource, sys
import numpy, blosc, bloscpack as bp
chunk = blosc.compress(bytes(2**28), 1, 1, cname="zstd")
packed = b"".join([b"blpk\\3\\0\\0\\1", numpy.array([2**28] * 2, "<i4").tobytes(),
                   numpy.array([1, 0], "<i8").tobytes(), chunk])
with open("/proc/self/statm") as fp:
    used = int(fp.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 100 * 2**20,) * 2)
source = bp.file_io.CompressedBytesSource(packed)
with open(sys.argv[1], "wb") as fp:
    try:
        bp.abstract_io.unpack(source, bp.file_io.PlainFPSink(fp), nthreads=1)
    except bp.FormatError as error:
        print(error.section, error.chunk, error)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_no_memory_for_a_chunk_to_unpack(tmp_path):
    env = environment(MALLOC_ARENA_MAX="1")
    done = run_python("-c", UNPACKING, tmp_path / "plain", env=env, text=True)
    assert "" == done.stderr
    assert done.stdout.startswith("chunks 0 there is no memory for the '268435456' ")
    assert 0 == (tmp_path / "plain").stat().st_size
