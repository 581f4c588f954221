"""Shards through everything that reads parts: the trailer is never in the way."""

from __future__ import annotations

import io

import numpy
import pytest
from storage.servers import serving
from support import ShortReads

import bloscpack as bp
from bloscpack.append import append_ndarray_to_file

# 21 chunks of 50 rows, the last one of 25 rows; Blosc can't make them smaller.
ARRAY = numpy.random.default_rng(1).integers(0, 2**60, (1025, 100), "<i8")
PLAIN = ARRAY.tobytes()
ROWS = 50
# Rows in the first, a middle, the last full and the short chunk.
PLACES = [0, 511, 999, 1000, 1024]


@pytest.fixture(scope="module")
def shard():
    return bp.pack_ndarray_to_bytes(ARRAY, ARRAY[:ROWS].nbytes, shard=True)


@pytest.fixture
def path(shard, tmp_path):
    path = tmp_path / "a.blp"
    path.write_bytes(shard)
    assert (ROWS, True) == (bp.info(path).shard.rows, bp.info(path).shard.index)
    return path


def read_lazily(file, row):
    with bp.open_ndarray(file) as lazy:
        return lazy[row].tobytes()


def read_file(file, row):
    with bp.open(file) as opened:
        return opened.pread(800, row * 800)


def read_with_reader(file, row):
    if isinstance(file, str):
        with bp.open(file) as opened:
            opened.seek(row * 800)
            return opened.read(800)
    with open(file, "rb") as fp:
        return bp.Reader(fp).read_rows(slice(row, row + 1)).tobytes()


READERS = [read_lazily, read_file, read_with_reader]


@pytest.mark.parametrize("row", PLACES)
@pytest.mark.parametrize("read", READERS)
def test_one_row(path, row, read):
    assert ARRAY[row].tobytes() == read(path, row)


@pytest.mark.parametrize("row", PLACES)
@pytest.mark.parametrize("read", READERS)
def test_one_row_takes_three_requests(shard, row, read):
    pytest.importorskip("aiohttp", reason="the extra 'remote' is not installed")
    with serving(shard) as web:
        assert ARRAY[row].tobytes() == read(web.url, row)
        assert len(web.requests) <= 3


def test_all_of_it(path, shard):
    assert PLAIN == bp.open(path).read()
    assert PLAIN == bp.open(io.BytesIO(shard)).read()
    assert PLAIN == bp.open(ShortReads(shard)).read()
    with bp.open_ndarray(path) as lazy:
        assert (ARRAY[::-7] == lazy[::-7]).all()
        assert (ARRAY == lazy.read()).all()
        assert (ROWS, 100) == lazy.chunks


def test_verify_and_info_at_a_url(shard):
    pytest.importorskip("aiohttp", reason="the extra 'remote' is not installed")
    with serving(shard) as web:
        assert (ROWS, True) == (
            bp.info(web.url).shard.rows,
            bp.info(web.url).shard.index,
        )
        assert [] == bp.verify(web.url).findings
        web.content.data = shard[:-1] + bytes([shard[-1] ^ 1])
        assert ["shard"] == [f.section for f in bp.verify(web.url).findings]


def test_references_end_in_front_of_the_trailer(path, shard):
    refs = bp.references(path, zarr_format=3)["refs"]
    extents = [value[1:] for value in refs.values() if isinstance(value, list)]
    assert 20 == len(extents)
    assert max(offset + size for offset, size in extents) < len(shard) - 8


def test_stays_what_it_was_when_it_grows(path):
    with bp.open_ndarray(path, cache_nbytes=0) as lazy, bp.open(path) as file:
        for added in (10, 15, 100):
            append_ndarray_to_file(ARRAY[:added], path)
            assert ARRAY.shape == lazy.shape
            assert (ARRAY[-60:] == lazy[-60:]).all()
            assert PLAIN[-800:] == file.pread(10**6, len(PLAIN) - 800)
    assert [] == bp.verify(path).findings


def test_append_with_a_file_object(path):
    with bp.open(path, "ab") as file:
        file.write(ARRAY[:40].tobytes())
    expected = numpy.concatenate([ARRAY, ARRAY[:40]])
    assert (expected == bp.unpack_ndarray_from_file(path)).all()
    assert [] == bp.verify(path).findings
    assert bp.info(path).shard.index


def test_chunk_behind_the_last_one(shard):
    """A frame where the separator should be breaks rule C7."""
    end = shard.rindex(b"shard\0\0\0")
    with bp.open_ndarray(shard) as lazy:
        start, stop = lazy._parts.extents()[0]
    harmed = shard[:end] + shard[start:stop] + shard[end:]
    with (
        bp.open_ndarray(harmed) as lazy,
        pytest.raises(bp.FormatError, match="follow"),
    ):
        lazy[-1]
