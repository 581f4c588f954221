"""Blocks of chunks of an array file that are read alone, by the table in it."""

import os
import struct

import numpy
import pytest
from dataset.inside import block_table, checked_bytes
from dataset.shard_index import crc_of
from format.independent_reader import read_shard
from indexes import OF_4096_ROWS
from storage.servers import serving

import bloscpack as bp
from bloscpack._storage.base import MemoryStorage
from bloscpack.append import append_ndarray_to_file
from bloscpack.describe import describe
from bloscpack.exceptions import FormatError, StorageError

# 512 rows and 1 MiB in a chunk of 16 blocks; 8 chunks, and a short one.
ROWS = numpy.random.default_rng(5).normal(20, 1, (4396, 256)).round(2)
FULL = ROWS[:4096]
CHUNK = 512
ARRAYS = {"short": ROWS, "full": FULL, "grid": ROWS}
KEYS = [*OF_4096_ROWS, (slice(4090, None),)]


# Blocks of 64 KiB.
ARGS = bp.BloscArgs(cname="lz4", typesize=8)
ARGS.blocksize = 2**13


def pack(path, array, **others):
    others = others or {"chunk_size": 2**20}
    bp.pack_ndarray_to_file(array, path, blosc_args=ARGS, shard=True, **others)
    return path


@pytest.fixture(params=ARRAYS)
def kind(request):
    return request.param


@pytest.fixture
def path(kind, tmp_path):
    others = {"chunks": (1024, 200)} if kind == "grid" else {}
    return pack(tmp_path / "a.blp", ARRAYS[kind], **others)


def table_in(content):
    """Return start and end of the table of blocks in a file; equal without one."""
    start = content.rfind(block_table.MAGIC)
    if start < 0:
        return 0, 0
    return start, start + block_table.table_nbytes(content[start : start + 16])


def without_table(content):
    start, end = table_in(content)
    return content[:start] + content[end:]


def rows_of(path):
    """Return the rows of the table, none of which may be empty."""
    start, end = table_in(path.read_bytes())
    if not end:
        return 0
    table = path.read_bytes()[start:end]
    count = struct.unpack_from("<I", table, 8)[0]
    return sum(any(block_table.raw_row(table, slot)) for slot in range(count))


def check(path, array, nrows):
    """Check that a file has an array, a table with so many rows, and no damage."""
    assert [] == bp.verify(path).findings
    assert nrows == rows_of(path)
    if bp.info(path).array.chunks is None and array.dtype == "f8":
        assert read_shard(path.read_bytes()).startswith(array.tobytes())
    assert describe(path)["shard"]["index"]
    assert numpy.array_equal(array, bp.unpack_ndarray_from_file(path))
    with bp.open_ndarray(path) as lazy:
        assert numpy.array_equal(array[::90], lazy[::90])


def test_values(path, kind):
    array = ARRAYS[kind]
    check(path, array, 10 if kind == "grid" else 8)
    for key in KEYS:
        with bp.open_ndarray(path) as lazy:
            for _ in range(12):
                assert numpy.array_equal(array[key], lazy[key])


def test_an_element_is_read_alone(path, kind, monkeypatch):
    array = ARRAYS[kind]
    with bp.open_ndarray(path) as lazy:
        lazy[4000, 250]  # reads the table
        for key in ((3, 5), (1800, 7)):
            item, count = checked_bytes(monkeypatch, lambda key=key: lazy[key])
            assert item == array[key]
            assert 0 < count < 2**16
        with open(path, "rb") as fp, bp.open_ndarray(fp) as found:
            assert array[700, 3] == found[700, 3]


def test_slices_in_order_take_whole_chunks(path, monkeypatch):
    def read(starts):
        with bp.open_ndarray(path) as lazy:
            for start in starts:
                found = lazy[start : start + 10, :100]
                assert numpy.array_equal(ROWS[start : start + 10, :100], found)

    whole = path.stat().st_size * 3 // 4
    for starts in (range(0, 3070, 10), range(3060, -10, -10), range(0, 3060, 30)):
        count = checked_bytes(monkeypatch, lambda starts=starts: read(starts))[1]
        assert count < 1.2 * whole


def test_url(path, kind):
    """The table takes no request more than a file without it."""
    pytest.importorskip("aiohttp", reason="the extra 'remote' is not installed")
    array, counts = ARRAYS[kind], []
    for content in (path.read_bytes(), without_table(path.read_bytes())):
        with serving(content) as web, bp.open_ndarray(web.url) as lazy:
            for key in KEYS:
                assert numpy.array_equal(array[key], lazy[key])
            counts.append(len(web.requests))
    assert counts[0] == counts[1]


def test_a_long_index_is_not_read(tmp_path):
    counts = []

    class Counting(MemoryStorage):
        def read_into(self, view, offset):
            counts.append(len(view))
            return super().read_into(view, offset)

    path = pack(tmp_path / "a.blp", ROWS, chunk_size=2**20, max_app_chunks=10**6)
    with bp.open_ndarray(Counting(path.read_bytes())) as lazy:
        counts.clear()
        assert ROWS[700, 3] == lazy[700, 3]
        assert sum(counts) < 2**17


def test_archive(tmp_path):
    pack(tmp_path / "a.blp", ROWS)
    args = {"cname": "zstd", "clevel": 1, "chunk_size": 2**20}
    bp.savez(tmp_path / "a.zip", rows=ROWS, settings=args)
    assert [] == bp.verify(tmp_path / "a.zip").findings
    assert block_table.MAGIC in (tmp_path / "a.zip").read_bytes()
    with bp.loadz(tmp_path / "a.zip") as archive:
        assert numpy.array_equal(ROWS[::90], archive["rows"][::90])


# Changes


@pytest.mark.parametrize("blocksize", [0, 2**12, 2**13])
@pytest.mark.parametrize("count", [1, 84, 213, 4390])
def test_append(tmp_path, count, blocksize):
    """The chunks that stay keep their rows; new ones get none."""
    path, args = pack(tmp_path / "a.blp", ROWS), ARGS.copy()
    new, args.blocksize = ROWS[-count:], blocksize
    with bp.open_ndarray(path) as before:
        assert before[5, 5] == ROWS[5, 5]
        append_ndarray_to_file(new, path, blosc_args=args)
        for key in KEYS:
            assert numpy.array_equal(ROWS[key], before[key])
    check(path, numpy.concatenate([ROWS, new]), 8)


def test_append_drops_rows_of_other_chunks(tmp_path):
    """A program that knows no tables has exchanged two chunks of one size."""
    array = numpy.random.default_rng(5).integers(0, 2**62, (4 * CHUNK + 1, 256))
    path = pack(tmp_path / "a.blp", array)
    assert 4 == rows_of(path)
    content = path.read_bytes()
    with bp.open_ndarray(path) as lazy:
        first, second, third = map(int, lazy._parts.state.offsets[:3])
    chunks = content[second:third], content[first:second]
    path.write_bytes(content[:first] + b"".join(chunks) + content[third:])
    array = numpy.concatenate(
        [array[CHUNK : 2 * CHUNK], array[:CHUNK], array[2 * CHUNK :]]
    )
    with bp.open_ndarray(path) as lazy:
        assert numpy.array_equal(array[::90], lazy[::90])
    append_ndarray_to_file(array[:1], path, blosc_args=ARGS)
    check(path, numpy.concatenate([array, array[:1]]), 2)


def test_append_drops_a_row_that_readers_refuse(tmp_path):
    """Its blocks end in a wrong order."""
    path = pack(tmp_path / "a.blp", ROWS)
    content = bytearray(path.read_bytes())
    start, end = table_in(content)
    at = start + 16 + block_table.BLOSC_HEADER_LENGTH
    content[at : at + 8] = content[at + 4 : at + 8] + content[at : at + 4]
    digest = block_table._digest_of(bytes(content[start : end - 4]), content[-4:])
    content[end - 4 : end] = digest
    path.write_bytes(content)
    assert ["trailer"] == [finding.kind for finding in bp.verify(path).findings]
    append_ndarray_to_file(ROWS[:1], path, blosc_args=ARGS)
    check(path, numpy.concatenate([ROWS, ROWS[:1]]), 7)


def test_append_to_a_grid(tmp_path):
    path = pack(tmp_path / "a.blp", FULL, chunks=(1024, 200))
    append_ndarray_to_file(ROWS[-600:], path, blosc_args=ARGS)
    check(path, numpy.concatenate([FULL, ROWS[-600:]]), 8)


def test_append_to_a_file_without_table(tmp_path):
    path = pack(tmp_path / "a.blp", FULL)
    path.write_bytes(without_table(path.read_bytes()))
    check(path, FULL, 0)
    append_ndarray_to_file(FULL, path, blosc_args=ARGS)
    check(path, numpy.concatenate([FULL, FULL]), 0)


def test_repack_and_recover(path, kind, tmp_path):
    array, nrows = ARRAYS[kind], rows_of(path)
    bp.repack(path, max_app_chunks=3, metadata={"a": 1})
    check(path, array, nrows)
    bp.repack(path, checksum="adler32")
    check(path, array, 0)
    bp.repack(path, checksum="crc32c")
    check(path, array, nrows)
    bp.recover(path, tmp_path / "b.blp")
    check(tmp_path / "b.blp", array, nrows)


def test_arrays_in_a_row(tmp_path):
    content = b"".join(
        pack(tmp_path / "a.blp", array).read_bytes() for array in (ROWS, FULL)
    )
    (tmp_path / "both").write_bytes(content)
    with open(tmp_path / "both", "rb") as fp:
        assert numpy.array_equal(ROWS, bp.load(fp))
        assert numpy.array_equal(FULL, bp.load(fp))
        assert fp.tell() == os.path.getsize(tmp_path / "both")
    with bp.open_ndarray(tmp_path / "both") as lazy:
        assert lazy[700, 3] == ROWS[700, 3]


def test_another_file_under_the_name(tmp_path):
    """What was read by a row shows that the file is another one."""
    path = pack(tmp_path / "a.blp", ROWS)
    other = pack(tmp_path / "b.blp", ROWS[::-1].copy()).read_bytes()
    with bp.open_ndarray(path) as lazy:
        assert lazy[700, 3] == ROWS[700, 3]
        with open(path, "r+b") as fp:
            fp.write(other)
            fp.truncate()
        with pytest.raises(StorageError, match="more than an append"):
            lazy[3000, 3]


def test_zarr(tmp_path):
    zarr = pytest.importorskip("zarr", "3")
    bp.savez(tmp_path / "a.zip", rows=ROWS, settings={"chunk_size": 2**20})
    with zarr.storage.ZipStore(tmp_path / "a.zip", read_only=True) as store:
        array = zarr.open_group(store, mode="r")["rows"]
        assert numpy.array_equal(ROWS, array[...])


# Damage


def forge(path, change):
    """Change the table of blocks, and make its digest right."""
    content = bytearray(path.read_bytes())
    start, end = table_in(content)
    table = content[start:end]
    change(table)
    count = struct.unpack_from("<I", table, 8)[0]
    table[-12:-8] = struct.pack("<I", count)
    table[-4:] = crc_of(bytes(table[:-4]) + bytes(content[-4:]))
    content[start:end] = table
    path.write_bytes(content)


def test_a_damaged_block(tmp_path):
    path = pack(tmp_path / "a.blp", ROWS)
    content = bytearray(path.read_bytes())
    with bp.open_ndarray(path) as lazy:
        at = int(lazy._parts.state.offsets[0])
    ends = struct.unpack_from("<2I", content, table_in(content)[0] + 16 + 16)
    content[at + ends[0] + 9] ^= 1  # in block 1 of chunk 0
    path.write_bytes(content)
    with bp.open_ndarray(path) as lazy:
        assert lazy[0, 0] == ROWS[0, 0]
        for key in (40, slice(CHUNK)):
            with pytest.raises(FormatError, match="Checksum mismatch") as raised:
                lazy[key]
            assert (str(path), 0) == (raised.value.filename, raised.value.chunk)
        assert lazy[CHUNK, 0] == ROWS[CHUNK, 0]
    assert [("chunks", "digest")] == [
        (f.section, f.kind) for f in bp.verify(path).findings
    ]


@pytest.mark.parametrize("at", [0, 9, 13, 20, 33, 16 + 16 + 64, -12, -8, -1])
@pytest.mark.parametrize("name", ["short", "full"])
@pytest.mark.filterwarnings("ignore:.*dropping")  # a trailer of an unknown size
def test_a_damaged_table(tmp_path, at, name):
    array = ARRAYS[name]
    path = pack(tmp_path / "a.blp", array)
    content = bytearray(path.read_bytes())
    start, end = table_in(content)
    content[start + at if at >= 0 else end + at] ^= 1
    path.write_bytes(content)
    findings = {(f.section, f.kind) for f in bp.verify(path).findings}
    assert {("shard", "trailer")} == findings
    with bp.open_ndarray(path) as lazy:
        for key in KEYS:
            assert numpy.array_equal(array[key], lazy[key])
    append_ndarray_to_file(array[:5], path)
    assert [] == bp.verify(path).findings


@pytest.mark.parametrize("at", [2, 3, 9])
@pytest.mark.parametrize("bit", [1, 2, 4])
def test_a_forged_header(tmp_path, at, bit):
    """Another filter, type size or block size in the header of a row."""

    def change(table):
        table[16 + at] ^= bit

    path = pack(tmp_path / "a.blp", ROWS)
    forge(path, change)
    assert {("shard", "trailer")} == {
        (f.section, f.kind) for f in bp.verify(path).findings
    }
    with bp.open_ndarray(path) as lazy:
        for key in ((3, 5), (100, 7), (slice(200, 210),)):
            assert numpy.array_equal(ROWS[key], lazy[key])


def test_more_rows_than_entries(tmp_path, monkeypatch):
    path = pack(tmp_path / "a.blp", FULL, chunk_size=2**20, max_app_chunks=0)

    def change(table):
        table[8:12] = struct.pack("<I", 9)
        table[-12:-12] = bytes(len(block_table.raw_row(bytes(table), 0)))

    forge(path, change)
    assert [("shard", "trailer")] == [
        (f.section, f.kind) for f in bp.verify(path).findings
    ]
    with bp.open_ndarray(path) as lazy:
        item, count = checked_bytes(monkeypatch, lambda: lazy[700, 3])
    assert item == FULL[700, 3]
    assert count > 2**17  # the whole chunk


@pytest.mark.parametrize("number", [*range(6), 18, 19, 20, 35])
@pytest.mark.parametrize("value", [0, 1, 2**31, 2**32 - 1])
def test_forged_numbers(tmp_path, number, value):
    """Items are right, also if the digest of the table is right."""
    path = pack(tmp_path / "a.blp", ROWS)
    forge(path, lambda table: struct.pack_into("<I", table, 16 + 4 * number, value))
    findings = {(f.section, f.kind) for f in bp.verify(path).findings}
    assert {("shard", "trailer")} == findings
    with bp.open_ndarray(path) as lazy:
        for key in KEYS[:4]:
            assert numpy.array_equal(ROWS[key], lazy[key])


def test_two_interleaved_sequential_reads(tmp_path, monkeypatch):
    """Each chunk is read once as a whole, but for the first one of each read."""
    path = pack(tmp_path / "a.blp", FULL)
    keys = [slice(at + i, at + i + 8) for i in range(0, 2048, 8) for at in (0, 2048)]
    with bp.open_ndarray(path) as lazy:
        found, count = checked_bytes(monkeypatch, lambda: [lazy[key] for key in keys])
    assert all(map(numpy.array_equal, [FULL[key] for key in keys], found))
    assert count < 1.2 * path.stat().st_size
