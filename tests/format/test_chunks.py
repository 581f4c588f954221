"""Chunks: what Blosc is given, what it gives back, and its settings."""

import itertools
import os
import re
import struct
import threading
from functools import partial

import blosc
import pytest
from support import BLP, DOCS

import bloscpack as bp
from bloscpack._engine import blosc_settings
from bloscpack._engine.blosc_settings import own_settings
from bloscpack._format.blosc_header import decode_header, smallest_ctbytes
from bloscpack._format.chunks import (
    check_digest,
    compress,
    decompress,
    decompress_into,
    decompress_verified,
    in_block_order,
)
from bloscpack._format.codecs import BY_NUMBER
from bloscpack.args import BloscArgs
from bloscpack.checksums import CHECKSUM_NAMES, CHECKSUMS_LOOKUP
from bloscpack.exceptions import (
    ChecksumLengthMismatch,
    ChecksumMismatch,
    FormatError,
    Unsupported,
)
from bloscpack.file_io import CompressedFPSource

PLAIN = bytes(range(16)) * 100
THREADED = list((BLP / "other").glob("threads2-*.blp"))
EMPTY = bytes.fromhex("02011308 00000000 01000000 10000000")
LARGEST = 2**31 - 17


def compressed(plain=PLAIN, **settings):
    with own_settings:
        return compress(plain, BloscArgs(**settings))


def head(**changes):
    """Return a valid chunk header with some fields changed."""
    fields = {
        "version": 2,
        "versionlz": 1,
        "flags": 1,
        "typesize": 8,
        "nbytes": 1000,
        "blocksize": 1000,
        "ctbytes": 500,
        **changes,
    }
    return struct.pack("<BBBBIII", *fields.values())


# Headers

LARGEST_OF_ZSTD = {"nbytes": LARGEST, "ctbytes": 2**16}


@pytest.mark.parametrize(
    ("codec", "changes"),
    [
        ("blosclz", {}),
        ("lz4", {"flags": 1 << 5}),
        ("snappy", {"flags": 2 << 5}),
        ("zlib", {"flags": 3 << 5}),
        ("zstd", {"flags": 4 << 5 | 16 | 4}),
        ("blosclz", {"typesize": 1}),
        ("blosclz", {"typesize": 255}),
        ("blosclz", {"blocksize": 10, "ctbytes": 416}),
        ("blosclz", {"ctbytes": 20}),
        ("blosclz", {"ctbytes": 1016}),
        ("blosclz", {"flags": 2, "ctbytes": 1016}),
        ("blosclz", {"nbytes": 0, "blocksize": 1, "ctbytes": 16}),
        ("zstd", {"flags": 4 << 5, **LARGEST_OF_ZSTD, "blocksize": 1000 * 2**10}),
        ("zstd", {"flags": 4 << 5, **LARGEST_OF_ZSTD, "blocksize": LARGEST}),
    ],
)
def test_decode_header(codec, changes):
    raw = head(**changes)
    for data in (raw, raw + b"more", memoryview(raw), bytearray(raw)):
        header = decode_header(data)
        assert codec == header.codec
        assert (
            changes.get("nbytes", 1000),
            changes.get("ctbytes", 500),
        ) == (header.nbytes, header.ctbytes)


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        ("version to be 2, found 3", {"version": 3}),
        ("version to be 2, found 0", {"version": 0}),
        ("codec version to be 1, found 2", {"versionlz": 2}),
        ("reserved flag to be 0, found 1", {"flags": 8}),
        ("codec number to be 0 to %d, found 7" % max(BY_NUMBER), {"flags": 7 << 5}),
        ("typesize to be 1 to 255, found 0", {"typesize": 0}),
        ("nbytes to be at most 2147483631, found 2147483632", {"nbytes": LARGEST + 1}),
        ("nbytes to be at most 2147483631, found 4294967295", {"nbytes": 2**32 - 1}),
        ("blocksize to be 1 to nbytes = 1000, found 0", {"blocksize": 0}),
        ("blocksize to be 1 to nbytes = 1000, found 1001", {"blocksize": 1001}),
        ("blocksize to be 1, found 2", {"nbytes": 0, "blocksize": 2}),
        ("ctbytes to be 20 to 1016, found 19", {"ctbytes": 19}),
        ("ctbytes to be 20 to 1016, found 0", {"ctbytes": 0}),
        ("ctbytes to be 20 to 1016, found 1017", {"ctbytes": 1017}),
        ("ctbytes to be 416 to 1016, found 415", {"blocksize": 10, "ctbytes": 415}),
        ("ctbytes to be 1016, found 1015", {"flags": 2, "ctbytes": 1015}),
        *(
            (
                "nbytes to be at most %d in '24' bytes, found %d" % (most, most + 1),
                {
                    "flags": codec << 5,
                    "nbytes": most + 1,
                    "blocksize": most,
                    "ctbytes": 24,
                },
            )
            for codec, most in ((0, 6120), (1, 6120), (2, 528), (3, 24768), (4, 786432))
        ),
    ],
)
def test_decode_header_refuses(message, changes):
    with pytest.raises(FormatError) as raised:
        decode_header(head(**changes))
    assert "not a Blosc chunk: expected " + message == raised.value.message
    assert "chunks" == raised.value.section


def test_bounds_are_those_of_the_format():
    text = (DOCS / "format.rst").read_text("utf-8")
    rule = " ".join(text.partition("* **C2**")[2].partition("* **C3**")[0].split())
    stated = {
        name: int(most)
        for most, names in re.findall(r"(\d+) for (\w+(?: and \w+)*)", rule)
        for name in names.split(" and ")
    }
    assert {codec.name: codec.max_ratio for codec in BY_NUMBER.values()} == stated


@pytest.mark.parametrize("cname", ["blosclz", "lz4", "lz4hc", "zlib", "zstd"])
def test_what_compresses_best_is_no_lie(cname):
    plain = bytes(8 * 2**20)
    chunk = compressed(plain, cname=cname, clevel=9, typesize=1, shuffle=0)
    assert 200 < len(plain) / len(chunk)
    header = decode_header(chunk)
    assert (len(plain), len(chunk)) == (header.nbytes, header.ctbytes)


@pytest.mark.parametrize("length", [0, 1, 15])
def test_decode_header_wants_16_bytes(length):
    with pytest.raises(FormatError, match="of '16' bytes, found '%d'" % length):
        decode_header(head()[:length])


@pytest.mark.parametrize(
    ("expected", "nbytes", "blocksize"),
    [(16, 0, 1), (20, 1, 1), (20, 1000, 1000), (24, 1001, 1000), (416, 1000, 10)],
)
def test_smallest_ctbytes(expected, nbytes, blocksize):
    assert expected == smallest_ctbytes(nbytes, blocksize)


# Digests


@pytest.mark.parametrize("name", CHECKSUM_NAMES)
def test_check_digest(name):
    checksum = CHECKSUMS_LOOKUP[name]
    digest = checksum(PLAIN)
    assert check_digest(PLAIN, digest, checksum) is None
    assert check_digest(memoryview(PLAIN), memoryview(digest), checksum) is None
    with pytest.raises(ChecksumLengthMismatch) as raised:
        check_digest(PLAIN, digest + b"\0", checksum)
    assert (
        "expected a digest of '%d' bytes (%s), found '%d'"
        % (checksum.size, name, checksum.size + 1)
        == raised.value.message
    )


@pytest.mark.parametrize("name", CHECKSUM_NAMES[1:])
def test_wrong_digest(name):
    checksum = CHECKSUMS_LOOKUP[name]
    wrong = bytes(checksum.size)
    with pytest.raises(ChecksumMismatch) as raised:
        check_digest(PLAIN, memoryview(wrong), checksum)
    assert (
        "Checksum mismatch detected in chunk, expected: %s, received: %s"
        % (wrong.hex(), checksum(PLAIN).hex())
        == raised.value.message
    )
    with pytest.raises(ChecksumLengthMismatch):
        check_digest(PLAIN, b"", checksum)


# Compressing and decompressing


@pytest.mark.parametrize(
    "wrong",
    [
        {"typesize": 0},
        {"typesize": 256},
        {"clevel": -1},
        {"clevel": 10},
        {"shuffle": 3},
        {"cname": "none"},
    ],
    ids=str,
)
def test_settings_that_blosc_refuses(wrong):
    for _ in range(2):  # not only the first time
        compressed(b"x" * 100)
        with pytest.raises(ValueError, match="can only be"):
            compressed(b"x" * 100, **wrong)


@pytest.mark.parametrize("cname", ["blosclz", "lz4", "lz4hc", "zlib", "zstd"])
def test_round_trip(cname):
    for plain, shuffle, typesize in itertools.product(
        [b"", b"x", PLAIN, os.urandom(1000)], [False, True, 0, 1, 2], [1, 8, 255]
    ):
        chunk = compressed(plain, typesize=typesize, shuffle=shuffle, cname=cname)
        header = decode_header(chunk)
        assert (len(plain), len(chunk)) == (header.nbytes, header.ctbytes)
        assert cname.replace("hc", "") == header.codec
        into = bytearray(len(plain))
        with own_settings:
            assert plain == decompress(chunk)
            assert plain == decompress(memoryview(chunk))
            decompress_into(chunk, memoryview(into))
        assert plain == into


def test_empty_chunk():
    assert EMPTY == compressed(b"")


@pytest.mark.parametrize("level", range(10))
def test_level(level):
    chunk = compressed(clevel=level)
    assert (len(chunk) == len(PLAIN) + 16) == (level == 0)


def test_views_are_compressed_like_bytes():
    view = memoryview(b"front" + PLAIN)[5:]
    assert compressed(PLAIN) == compressed(view) == compressed(bytearray(PLAIN))


@pytest.mark.parametrize("nbytes", [0, len(PLAIN) - 1, len(PLAIN) + 1])
def test_destination_of_another_size(nbytes):
    message = "expected a chunk of '%d' plain bytes, found '%d'" % (nbytes, len(PLAIN))
    into = bytearray(nbytes)
    with pytest.raises(FormatError) as raised, own_settings:
        decompress_into(compressed(), memoryview(into))
    assert message == raised.value.message
    assert bytes(nbytes) == into


def into_memory(chunk):
    decompress_into(chunk, memoryview(bytearray(len(PLAIN))))


@pytest.mark.parametrize("function", [decompress, into_memory])
@pytest.mark.parametrize("change", [-1, 1])
def test_chunk_of_another_length(function, change):
    chunk = (compressed() + b"\0")[: len(compressed()) + change]
    message = "expected a Blosc chunk of '%d' bytes, found '%d'"
    with pytest.raises(FormatError) as raised, own_settings:
        function(chunk)
    assert message % (len(compressed()), len(chunk)) == raised.value.message


@pytest.mark.parametrize("function", [decompress, into_memory])
def test_damaged_chunk(function):
    chunk = compressed()
    damaged = chunk[:16] + b"\xff" * (len(chunk) - 16)
    with pytest.raises(FormatError) as raised, own_settings:
        function(damaged)
    assert "Blosc can't decompress the chunk: " in raised.value.message
    assert "chunks" == raised.value.section
    assert raised.value.__cause__ is not None


@pytest.mark.parametrize("function", [decompress, into_memory])
def test_codec_that_this_blosc_lacks(monkeypatch, function):
    chunk = bytearray(compressed(cname="lz4"))
    chunk[16:] = b"\xff" * (len(chunk) - 16)
    monkeypatch.setattr("bloscpack.constants.CNAME_AVAIL", ["blosclz"], raising=False)
    with pytest.raises(Unsupported) as raised, own_settings:
        function(bytes(chunk))
    assert (
        "the chunk needs the codec 'lz4', which this Blosc lacks (it has blosclz)"
        == raised.value.message
    )


# Parts of chunks


def parts(chunk):
    """Yield plain positions and the bytes between them, read by `decompress_verified`.

    The bytes around them are 0xaa before.
    """
    with own_settings:
        size = decode_header(chunk).nbytes
        for start in (0, size // 3, size - 1):
            for length in (1, 300, 5000, size):
                plain = bytearray(b"\xaa") * size
                stop = min(size, start + length)
                spans = partial(list, [(start, stop)])
                decompress_verified(chunk, memoryview(plain), spans)
                writable, other = bytearray(chunk), bytearray(plain)
                decompress_verified(writable, memoryview(other), spans)
                assert (chunk, plain[start:stop]) == (writable, other[start:stop])
                yield start, stop, plain


@pytest.mark.parametrize("typesize", [1, 4, 16, 17, 255])
@pytest.mark.parametrize("cname", sorted(blosc.compressor_list()))
def test_part_of_a_chunk(cname, typesize):
    plain = b"".join(struct.pack("<I", i * i % 9973) for i in range(25000))[:99_999]
    for shuffle, level in itertools.product((0, 1, 2), (0, 1, 9)):
        with own_settings:
            own_settings.use_blocksize(4096)
            args = BloscArgs(typesize, level, shuffle, cname)
            args.blocksize = 4096
            chunk = memoryview(compress(plain, args))
        for start, stop, found in parts(chunk):
            assert plain[start:stop] == found[start:stop]
            if stop - start == 1 and cname == "lz4" and typesize == 4:
                assert 20_000 < found.count(b"\xaa")


def test_parts_of_a_chunk():
    plain = bytes(range(256)) * 4000
    with own_settings:
        own_settings.use_blocksize(4096)
        args = BloscArgs(4, 5, True, "lz4")
        args.blocksize = 4096
        chunk = compress(plain, args)
        size = decode_header(chunk).blocksize
        spans = [(3, 5), (size - 1, size + 1), (4 * size, 4 * size + 1)]
        found = bytearray(b"\xaa") * len(plain)
        assert not decompress_verified(chunk, memoryview(found), lambda: spans)
    for start, stop in [(0, 2 * size), (4 * size, 5 * size)]:
        assert plain[start:stop] == found[start:stop]
    assert found[2 * size : 4 * size] == b"\xaa" * 2 * size
    assert found[5 * size :].count(b"\xaa") == len(plain) - 5 * size


@pytest.mark.parametrize("path", THREADED, ids=lambda path: path.name)
def test_part_of_a_chunk_whose_blocks_are_in_any_order(path):
    with open(path, "rb") as fp:
        for chunk, _ in CompressedFPSource(fp):
            with own_settings:
                plain = decompress(chunk)
            for start, stop, found in parts(chunk):
                assert plain[start:stop] == found[start:stop]


@pytest.mark.parametrize("start", [0, 3, 2**31, 2**32 - 1])
def test_part_of_a_chunk_with_a_wrong_table(start):
    """The error is that of the whole chunk, and no other memory is read."""
    with own_settings:
        own_settings.use_blocksize(64)
        args = BloscArgs(4, 5, True, "lz4")
        args.blocksize = 64
        chunk = bytearray(compress(PLAIN, args))
        struct.pack_into("<I", chunk, 16, start)
        plain = memoryview(bytearray(len(PLAIN)))
        with pytest.raises(FormatError, match="Blosc can't decompress the chunk"):
            decompress_verified(bytes(chunk), plain, lambda: [(0, 1)])


# The settings of Blosc belong to the process


@pytest.fixture
def settings():
    """Set Blosc in an unusual way for one test."""
    releasegil = blosc.set_releasegil(False)
    nthreads = blosc.set_nthreads(2)
    blosc.set_blocksize(2048)
    yield
    blosc.set_blocksize(0)
    blosc.set_nthreads(nthreads)
    blosc.set_releasegil(releasegil)


def current_settings():
    """Return the settings of Blosc, unchanged."""
    releasegil = blosc.set_releasegil(True)
    blosc.set_releasegil(releasegil)
    nthreads = blosc.set_nthreads(1)
    blosc.set_nthreads(nthreads)
    return releasegil, nthreads, blosc.get_blocksize()


def test_settings_inside_and_after(settings):
    before = current_settings()
    assert (False, 2, 2048) == before
    with own_settings:
        assert (True, 1, 0) == current_settings()
        with own_settings:
            assert (True, 1, 0) == current_settings()
        assert (True, 1, 0) == current_settings()
    assert before == current_settings()


def test_settings_after_an_error(settings):
    before = current_settings()
    with pytest.raises(KeyError), own_settings:
        raise KeyError
    assert before == current_settings()


def test_settings_with_several_threads(settings):
    before = current_settings()
    barrier = threading.Barrier(4, timeout=30)
    inside = []

    def work():
        for _ in range(20):
            barrier.wait()
            with own_settings:
                inside.append(compress(PLAIN, BloscArgs()))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 80 == len(inside)
    assert 1 == len(set(inside))
    assert before == current_settings()


def test_settings_do_not_change_the_bytes(settings, monkeypatch):
    plain = PLAIN * 100
    expected = compressed(plain)
    monkeypatch.setenv("BLOSC_CLEVEL", "0")
    monkeypatch.setenv("BLOSC_TYPESIZE", "1")
    monkeypatch.setenv("BLOSC_COMPRESSOR", "zlib")
    blosc.set_blocksize(0)
    assert expected == compressed(plain)
    blosc.set_blocksize(512)
    assert expected == compressed(plain)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings(
    "ignore:.*fork:DeprecationWarning"
)  # other libraries' threads
def test_settings_in_a_child_of_fork(settings):
    before = current_settings()
    with own_settings:
        child = os.fork()
        if not child:
            try:
                good = before == current_settings()
                with own_settings:
                    good = good and (True, 1, 0) == current_settings()
                good = good and before == current_settings()
            finally:
                os._exit(0 if good else 1)
        assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert (True, 1, 0) == current_settings()
    assert before == current_settings()


def test_systems_without_fork(monkeypatch):
    monkeypatch.delattr(os, "register_at_fork", raising=False)
    other = blosc_settings._OwnSettings()
    before = current_settings()
    with other:
        assert (True, 1) == current_settings()[:2]
    assert before == current_settings()


# Blocks in order


def chunks_of_file(path):
    with open(path, "rb") as fp:
        return [bytes(compressed) for compressed, _ in CompressedFPSource(fp)]


@pytest.mark.parametrize("path", sorted(THREADED), ids=lambda path: path.stem)
def test_blocks_in_the_order_of_threads_are_put_back(path):
    for chunk in chunks_of_file(path):
        ordered = in_block_order(chunk)
        assert len(chunk) == len(ordered)
        assert sorted(starts_of(ordered)) == starts_of(ordered)
        with own_settings:
            assert decompress(chunk) == decompress(ordered)
        assert ordered == in_block_order(ordered)


def test_some_of_them_were_out_of_order():
    chunks = [chunk for path in THREADED for chunk in chunks_of_file(path)]
    assert any(chunk != in_block_order(chunk) for chunk in chunks)


def starts_of(chunk):
    nbytes, blocksize = struct.unpack_from("<II", chunk, 4)
    return list(struct.unpack_from("<%dI" % -(-nbytes // blocksize), chunk, 16))


@pytest.mark.parametrize("clevel", [0, 5])
@pytest.mark.parametrize("nthreads", [2, 3, 8])
def test_threads_of_blosc_do_not_show(nthreads, clevel):
    plain = b"".join(i.to_bytes(8, "little") for i in range(0, 3 * 10**6, 7))
    options = {"chunk_size": "max", "blosc_args": BloscArgs(clevel=clevel, cname="lz4")}
    expected = bp.pack_bytes_to_bytes(plain, nthreads=1, **options)
    threads = blosc.nthreads
    assert expected == bp.pack_bytes_to_bytes(plain, nthreads=nthreads, **options)
    assert (plain, None) == bp.unpack_bytes_from_bytes(expected, nthreads=nthreads)
    assert threads == blosc.nthreads
    assert not own_settings.disordered
