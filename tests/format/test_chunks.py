"""Chunks: what Blosc is given, what it gives back, and its settings."""

import io
import itertools
import os
import struct

import blosc
import numpy
import pytest
from builders import packed
from support import BLP

import bloscpack as bp
from bloscpack.abstract_io import compress_chunk
from bloscpack.args import BloscArgs
from bloscpack.exceptions import FormatError, Unsupported
from bloscpack.file_io import CompressedBytesSource
from bloscpack.headers import decode_blosc_header

PLAIN = bytes(range(16)) * 100
THREADED = sorted((BLP / "other").glob("threads2-*.blp"))


def chunk_of(plain=PLAIN, **settings):
    return compress_chunk(plain, BloscArgs(**settings))


@pytest.mark.parametrize("cname", ["blosclz", "lz4", "lz4hc", "zlib", "zstd"])
def test_what_compresses_best_is_no_lie(cname):
    plain = bytes(8 * 2**20)
    found = packed(plain, "8M", cname=cname, clevel=9, typesize=1, shuffle=0)
    assert 200 < len(plain) / len(found)
    assert (plain, None) == bp.unpack_bytes_from_bytes(found)


@pytest.mark.parametrize(
    "wrong",
    [{"typesize": 0}, {"clevel": 10}, {"shuffle": 3}, {"cname": "none"}],
    ids=str,
)
def test_settings_that_blosc_refuses(wrong):
    for _ in range(2):  # not only the first time
        chunk_of(b"x" * 100)
        with pytest.raises(ValueError, match="can only be"):
            chunk_of(b"x" * 100, **wrong)


@pytest.mark.parametrize("cname", ["blosclz", "lz4", "lz4hc", "zlib", "zstd"])
def test_round_trip(cname):
    for plain, shuffle, typesize in itertools.product(
        [b"", b"x", PLAIN, os.urandom(1000)], [False, True, 0, 1, 2], [1, 8, 255]
    ):
        settings = {"cname": cname, "shuffle": shuffle, "typesize": typesize}
        view = memoryview(b"front" + plain)[5:]
        chunk = chunk_of(plain, **settings)
        assert chunk == chunk_of(view, **settings)
        header = decode_blosc_header(chunk)
        assert (len(plain), len(chunk)) == (header["nbytes"], header["ctbytes"])
        found = packed(plain, blosc_args=BloscArgs(**settings))
        assert (plain, None) == bp.unpack_bytes_from_bytes(found)


def damaged(position, new, **settings):
    """Return a file of one chunk without a digest, with other bytes in the chunk."""
    found = bytearray(packed(PLAIN, 2000, checksum="None", **settings))
    start = len(found) - len(chunk_of(cname=settings.get("cname", "blosclz")))
    assert b"\2\1" == found[start : start + 2]
    end = len(found) if new is None else start + position + len(new)
    found[start + position : end] = new or b"\xff" * (end - start - position)
    return bytes(found)


@pytest.mark.parametrize(
    ("position", "new", "message"),
    [
        (4, struct.pack("<I", 1601), "expected a chunk of '1600' plain bytes"),
        (12, struct.pack("<I", 30), "section 'chunks'"),
        (16, None, "Blosc can't decompress the chunk: "),
    ],
)
def test_damaged_chunk(position, new, message):
    found = damaged(position, new)
    with pytest.raises(FormatError) as raised:
        bp.unpack_bytes_from_bytes(found)
    assert message in str(raised.value)
    assert "chunks" == raised.value.section
    with pytest.raises(FormatError):
        bp.Reader(io.BytesIO(found)).read(3, 8)


def test_codec_that_this_blosc_lacks(monkeypatch):
    found = damaged(16, None, cname="lz4")
    monkeypatch.setattr("bloscpack.constants.CNAME_AVAIL", ["blosclz"], raising=False)
    with pytest.raises(Unsupported) as raised:
        bp.unpack_bytes_from_bytes(found)
    assert (
        "the chunk needs the codec 'lz4', which this Blosc lacks (it has blosclz)"
        == raised.value.message
    )


# Parts of chunks


def check_parts(content, plain):
    reader = bp.Reader(io.BytesIO(content))
    for start in (0, len(plain) // 3, len(plain) - 1):
        for length in (1, 300, 5000, len(plain)):
            assert plain[start : start + length] == reader.read(start, start + length)


@pytest.mark.parametrize("typesize", [1, 4, 16, 17, 255])
@pytest.mark.parametrize("cname", sorted(blosc.compressor_list()))
def test_part_of_a_chunk(cname, typesize):
    plain = b"".join(struct.pack("<I", i * i % 9973) for i in range(25000))[:99_999]
    for shuffle, level in itertools.product((0, 1, 2), (0, 1, 9)):
        args = BloscArgs(typesize, level, shuffle, cname)
        args.blocksize = 4096
        check_parts(packed(plain, "1M", blosc_args=args, checksum="None"), plain)


@pytest.mark.parametrize("path", THREADED, ids=lambda path: path.name)
def test_part_of_a_chunk_whose_blocks_are_in_any_order(path):
    content = path.read_bytes()
    check_parts(content, bp.unpack_bytes_from_bytes(content)[0])


@pytest.mark.parametrize("start", [0, 3, 2**31, 2**32 - 1, None])
def test_part_of_a_chunk_with_a_wrong_table(start):
    """The error is that of the whole chunk, and no other memory is read."""
    plain = numpy.arange(50_000, dtype="<u4") ** 2 % 9973
    args = BloscArgs(4, 5, True, "lz4")
    args.blocksize = 4096
    packing = {"blosc_args": args, "checksum": "None", "chunk_size": "1M"}
    content = bytearray(bp.pack_ndarray_to_bytes(plain, **packing))
    at = content.index(b"\2\1", 32 + 10) + 16
    if start is None:  # the block itself
        (at,) = struct.unpack_from("<I", content, at)
        at += content.index(b"\2\1", 32 + 10)
        content[at : at + 12] = b"\xff" * 12
    else:
        struct.pack_into("<I", content, at, start)
    with pytest.raises(FormatError, match="Blosc can't decompress the chunk"):
        bp.open_ndarray(bytes(content))[0]


# Blocks in order


def starts_of(chunk):
    nbytes, blocksize = struct.unpack_from("<II", chunk, 4)
    return list(struct.unpack_from("<%dI" % -(-nbytes // blocksize), chunk, 16))


@pytest.mark.parametrize("clevel", [0, 5])
@pytest.mark.parametrize("nthreads", [2, 3, 8])
def test_threads_of_blosc_do_not_show(nthreads, clevel):
    plain = b"".join(i.to_bytes(8, "little") for i in range(0, 3 * 10**6, 7))
    options = {"chunk_size": "max", "blosc_args": BloscArgs(clevel=clevel, cname="lz4")}
    expected = bp.pack_bytes_to_bytes(plain, nthreads=1, **options)
    (chunk, _), *_ = CompressedBytesSource(expected)
    starts = starts_of(chunk) if clevel else []
    assert sorted(starts) == starts
    threads = blosc.nthreads
    assert expected == bp.pack_bytes_to_bytes(plain, nthreads=nthreads, **options)
    assert (plain, None) == bp.unpack_bytes_from_bytes(expected, nthreads=nthreads)
    assert threads == blosc.nthreads
