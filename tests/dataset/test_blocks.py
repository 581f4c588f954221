"""Blocks of chunks that are read and verified alone, by the table in each shard."""

import os
import shutil
import struct

import blosc
import numpy
import pytest
from dataset.inside import block_table, checked_bytes
from dataset.shard_index import crc_of
from indexes import OF_4096_ROWS

import bloscpack as bp
from bloscpack import dataset
from bloscpack.describe import describe
from bloscpack.exceptions import FormatError

# 64 chunks of 512 rows and 1 MiB, 8 in a shard.
ROWS = numpy.random.default_rng(5).normal(20, 1, (4096, 256)).round(2)
CHUNK, SHARD = 512, 2048
OPTIONS = {"chunks": CHUNK, "shards": SHARD, "cname": "lz4", "sync": False}
SEPARATOR = b"shard\0\0\0"


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    path = tmp_path_factory.mktemp("blocks") / "data"
    dataset.create_array(path, ROWS, **OPTIONS).close()
    return path


@pytest.fixture
def path(original, tmp_path):
    return shutil.copytree(original, tmp_path / "data")


@pytest.fixture
def shard(path):
    return path / "c" / "0" / "0"


def table_in(content):
    """Return start and end of the table of blocks in a shard; equal without one."""
    start = content.rindex(SEPARATOR) + len(SEPARATOR)
    return start, start + block_table.table_nbytes(content[start : start + 16])


def has_tables(path):
    return [
        len(set(table_in(file.read_bytes()))) == 2
        for file in sorted((path / "c").rglob("*"))
        if file.is_file()
    ]


def forge(shard, change):
    """Change the table of blocks in a shard, and make its digest right."""
    content = bytearray(shard.read_bytes())
    start, end = table_in(content)
    table = content[start:end]
    change(table)
    covered = bytes(table[:-4]) + bytes(content[-4:])
    table[-4:] = crc_of(covered)
    content[start:end] = table
    shard.write_bytes(content)


def findings_of(path):
    return [(f.section, f.kind) for f in bp.verify(path).findings]


KEYS = [*OF_4096_ROWS, (slice(4095, None),)]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_values(path, key):
    for _ in range(12):
        with dataset.open(path) as array:
            for _ in range(12):
                assert numpy.array_equal(ROWS[key], array[key])


def test_an_element_is_read_alone(path, monkeypatch):
    with dataset.open(path) as array:
        array[0, 0]  # opens the shard
        for key in ((3, 5), (1800, 7)):
            item, count = checked_bytes(monkeypatch, lambda key=key: array[key])
            assert item == ROWS[key]
            assert 0 < count < 2**16
        rows, count = checked_bytes(monkeypatch, lambda: array[::256])
        assert numpy.array_equal(ROWS[::256], rows)


def test_old_files_and_small_chunks_have_no_table(path, tmp_path):
    assert [True, True] == has_tables(path)
    small = {**OPTIONS, "chunks": 64, "shards": 128}
    dataset.create_array(tmp_path / "small", ROWS, **small).close()
    assert not any(has_tables(tmp_path / "small"))
    text = numpy.array(["text" * 100] * 4000, object)
    dataset.create_array(tmp_path / "text", text).close()
    assert not any(has_tables(tmp_path / "text"))


def without_table(content):
    start, end = table_in(content)
    return content[:start] + content[end:]


def test_a_file_without_table(path, shard):
    shard.write_bytes(without_table(shard.read_bytes()))
    assert [] == findings_of(path)
    with dataset.open(path, "r+", sync=False) as array:
        assert array[5, 5] == ROWS[5, 5]
        array[0] = ROWS[1]  # copies the other chunks
        assert array[700, 5] == ROWS[700, 5]
    assert [True, True] == has_tables(path)
    assert [] == findings_of(path)


def test_each_change_keeps_the_table(path):
    with dataset.open(path, "r+", sync=False) as array:
        array.append(ROWS[:700])
        array[2000:2060] = 3.5
        rows = numpy.concatenate([ROWS, ROWS[:700]])
        rows[2000:2060] = 3.5
        assert numpy.array_equal(rows, array[...])
    assert all(has_tables(path))
    assert [] == findings_of(path)
    with dataset.open(path) as array:
        assert numpy.array_equal(rows[::90], array[::90])


def test_fill_values_have_shorter_chunks(tmp_path):
    array = dataset.create_array(
        tmp_path / "sparse", shape=ROWS.shape, dtype="f8", fill_value=1.5, **OPTIONS
    )
    with array:
        array[1000:1010] = ROWS[:10]
        assert array[3, 5] == 1.5
        assert numpy.array_equal(ROWS[:10], array[1000:1010])
    assert [] == findings_of(tmp_path / "sparse")


# Damage


def test_a_damaged_block(path, shard):
    content = bytearray(shard.read_bytes())
    start, _ = table_in(content)
    ends = struct.unpack_from("<2I", content, start + 16 + 16)
    at = struct.unpack_from("<Q", content, table_in(content)[1])[0]
    content[at + ends[0] + 9] ^= 1  # in block 1 of chunk 0
    shard.write_bytes(content)
    with dataset.open(path) as array:
        assert array[0, 0] == ROWS[0, 0]
        with pytest.raises(FormatError, match="Checksum mismatch") as raised:
            array[40, 0]
        assert (str(shard), 0) == (raised.value.filename, raised.value.chunk)
        with pytest.raises(FormatError, match="Checksum mismatch"):
            array[:CHUNK]
        assert array[CHUNK, 0] == ROWS[CHUNK, 0]
    assert [("chunks", "digest")] == findings_of(path)


@pytest.mark.parametrize("at", [0, 9, 13, 20, 33, 16 + 16 + 64, -12, -8, -1])
def test_a_damaged_table(path, shard, at):
    content = bytearray(shard.read_bytes())
    start, end = table_in(content)
    content[start + at if at >= 0 else end + at] ^= 1
    shard.write_bytes(content)
    assert ("shard", "trailer") in findings_of(path)
    with dataset.open(path, "r+", sync=False) as array:
        for key in KEYS:
            assert numpy.array_equal(ROWS[key], array[key])
        array[0, 0] = ROWS[0, 0]
        assert numpy.array_equal(ROWS, array[...])
    assert [] == findings_of(path)
    assert [True, True] == has_tables(path)


def test_a_table_of_another_index(path, shard):
    """A program that does not know the table may leave it in front of a new index."""
    content, other = (p.read_bytes() for p in sorted((path / "c").rglob("0"))[1:3])
    start, end = table_in(content)
    before, after = table_in(other)
    shard.write_bytes(content[:start] + other[before:after] + content[end:])
    assert [("shard", "trailer")] == findings_of(path)
    with dataset.open(path) as array:
        assert numpy.array_equal(ROWS[KEYS[3]], array[KEYS[3]])


@pytest.mark.parametrize("number", [*range(6), 18, 19, 20, 35])
@pytest.mark.parametrize("value", [0, 1, 2**31, 2**32 - 1])
def test_forged_numbers(path, shard, number, value):
    """Items are right, also if the digest of the table is right, or the read fails."""

    def change(table):
        struct.pack_into("<I", table, 16 + 4 * number, value)

    forge(shard, change)
    assert [("shard", "trailer")] == findings_of(path)
    with dataset.open(path) as array:
        for key in KEYS[:4]:
            assert numpy.array_equal(ROWS[key], array[key])


@pytest.mark.parametrize("counts", [(0, 16), (1, 1), (2**32 - 1, 2**32 - 1), (4, 15)])
def test_forged_counts(path, shard, counts):
    def change(table):
        struct.pack_into("<2I", table, 8, *counts)
        struct.pack_into("<2I", table, len(table) - 12, *counts)

    forge(shard, change)
    assert findings_of(path)
    with dataset.open(path) as array:
        assert numpy.array_equal(ROWS[KEYS[3]], array[KEYS[3]])


def test_recover_and_single_files(path, shard, tmp_path):
    content = bytearray(shard.read_bytes())
    content[table_in(content)[0] + 40] ^= 1
    shard.write_bytes(content)
    bp.recover(path, tmp_path / "saved")
    assert [] == findings_of(tmp_path / "saved")
    with dataset.open(tmp_path / "saved") as array:
        assert numpy.array_equal(ROWS, array[...])
    with bp.open_ndarray(shard) as found:
        assert numpy.array_equal(ROWS[5:9], found[5:9])
    single = tmp_path / "single.blp"
    shutil.copy(path / "c" / "1" / "0", single)
    assert [] == findings_of(single)
    assert describe(single)["shard"]["index"]
    bp.repack(single, cname="zstd")
    assert [] == findings_of(single)
    assert numpy.array_equal(ROWS[SHARD:], bp.unpack_ndarray_from_file(single))


def test_arrays_in_a_row(path):
    """`load` finds what follows a file with a table."""
    files = sorted(file for file in (path / "c").rglob("*") if file.is_file())
    with open(path / "both", "w+b") as fp:
        fp.write(b"".join(file.read_bytes() for file in files))
        fp.seek(0)
        for start in (0, SHARD):
            assert numpy.array_equal(ROWS[start : start + SHARD], bp.load(fp))
        assert fp.tell() == os.path.getsize(path / "both")


def test_zarr(path):
    zarr = pytest.importorskip("zarr", "3")
    array = zarr.open_array(path, mode="r")
    assert numpy.array_equal(ROWS, array[...])
    assert array[5, 7] == ROWS[5, 7]


@pytest.mark.parametrize("cname", ["lz4", "zlib"])
@pytest.mark.parametrize("settings", [(3, False), (1, True)])
def test_short_chunks_are_read_with_any_settings_of_blosc(tmp_path, cname, settings):
    """They are read in a program with other settings, which stay."""
    rows, options = ROWS[:64], {**OPTIONS, "cname": cname, "chunks": 8, "shards": 32}
    dataset.create_array(tmp_path / "a", rows, **options).close()
    before = blosc.set_nthreads(settings[0]), blosc.set_releasegil(settings[1])
    try:
        with dataset.open(tmp_path / "a") as array:
            assert rows[9, 5] == array[9, 5]
            assert numpy.array_equal(rows[30:50], array[30:50])
    finally:
        found = blosc.set_nthreads(before[0]), blosc.set_releasegil(before[1])
    assert settings == found
