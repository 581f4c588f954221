"""Parts of files at URLs: how many requests they take, and what damage they find."""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from storage import servers
from storage.servers import RepeatedContent, serving
from support import quick_retries

import bloscpack as bp
from bloscpack.headers import BloscpackHeader

pytest.importorskip("aiohttp", reason="the extra 'remote' is not installed")
pytest.importorskip("fsspec", reason="the extra 'remote' is not installed")

MIB = 2**20
PLAIN = os.urandom(MIB)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    quick_retries(monkeypatch)


def large_file(nchunks):
    """Return a file whose chunks are all the same, and are not in memory."""
    settings = {"checksum": "crc32", "max_app_chunks": 0}
    frame = bp.pack_bytes_to_bytes(PLAIN, MIB, **settings)[32 + 8 :]
    header = BloscpackHeader(
        format_version=3,
        offsets=True,
        checksum="crc32",
        typesize=8,
        chunk_size=MIB,
        last_chunk=MIB,
        nchunks=nchunks,
    )
    first = 32 + 8 * nchunks
    table = np.arange(first, first + nchunks * len(frame), len(frame), "<i8").tobytes()
    return RepeatedContent(header.encode() + table, frame, nchunks)


@pytest.fixture(scope="module")
def large():
    with serving(large_file(1024)) as web:
        yield web


@pytest.mark.parametrize("number", [0, 1, 500, 1022, 1023])
def test_a_part_of_a_large_file_takes_two_requests(large, number):
    large.requests.clear()
    with bp.open(large.url) as opened:
        assert PLAIN[5:13] == opened.pread(8, number * MIB + 5)
    assert ["GET", "GET"] == large.methods()
    spans = [r[1]["Range"].removeprefix("bytes=") for r in large.requests]
    sizes = [int(b) - int(a) + 1 for a, b in (span.split("-") for span in spans)]
    assert sum(sizes) < 2**16 + 1.01 * MIB


def test_info_of_a_large_file_takes_one_request(large):
    large.requests.clear()
    assert 2**30 == bp.info(large.url).nbytes
    assert ["GET"] == large.methods()


def test_adjacent_chunks_are_requested_together(large):
    with bp.open(large.url) as opened:
        large.requests.clear()
        assert PLAIN * 20 == opened.pread(20 * MIB, 500 * MIB)
    assert 10 == len(large.requests)


def test_the_cache_saves_requests(large):
    with bp.open(large.url) as opened:
        opened.pread(8, 3 * MIB)
        large.requests.clear()
        assert PLAIN[100:200] == opened.pread(100, 3 * MIB + 100)
    assert [] == large.requests


@pytest.fixture
def array():
    return np.random.default_rng(3).integers(0, 50, (500, 300), "<i4")


@pytest.fixture
def web(array):
    with serving(bp.pack_ndarray_to_bytes(array, "8K")) as web:
        yield web


def test_many_threads_and_errors_that_pass(web, array):
    plain = array.tobytes()
    chance = random.Random(5)

    def sometimes_fail(handler):
        if chance.random() < 0.1:
            return chance.choice([servers.cut, servers.status(503)])(handler)
        return False

    web.always = sometimes_fail
    with bp.open(web.url) as opened, ThreadPoolExecutor(8) as pool:

        def read(start):
            return plain[start : start + 9000] == opened.pread(9000, start)

        assert all(pool.map(read, range(0, len(plain), 7000)))


def test_flipped_bits(web):
    with bp.open(web.url) as opened:
        web.always = servers.flip
        with pytest.raises(bp.FormatError) as caught:
            opened.pread(100_000, 400_000)
        assert web.url in str(caught.value)


def test_change_of_the_file(web):
    with bp.open(web.url) as opened:
        web.etag = '"2"'
        with pytest.raises(bp.StorageError, match="changed while it was read"):
            opened.pread(8, 500_000)


def test_server_without_ranges(web, array):
    web.ranges = False
    with pytest.raises(bp.StorageError, match="whole=True"):
        bp.open(web.url)
    with bp.open(web.url, whole=True) as opened:
        assert array.tobytes()[500_000:500_008] == opened.pread(8, 500_000)
    with pytest.raises(ValueError, match="closed"):
        opened.pread(9, 0)


def test_errors_hide_credentials(web):
    url = "http://joe:t0ken@%s/data.blp?sig=hidden" % web.host
    web.content.data = bytes(100) + web.content.data[100:]
    with pytest.raises(bp.FormatError) as caught:
        bp.open_ndarray(url)
    assert "/data.blp?..." in str(caught.value)
    assert "t0ken" not in str(caught.value)
