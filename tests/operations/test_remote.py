"""Parts of files at URLs: how many requests they take, and what damage they find."""

from __future__ import annotations

import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from engine.workers import at_work
from storage import servers
from storage.servers import RepeatedContent, serving

import bloscpack as bp
from bloscpack._engine.threads import Ahead
from bloscpack._file.opened import OpenedFile
from bloscpack._format.sections import encode_offsets
from bloscpack._storage.remote import RemoteStorage
from bloscpack.headers import BloscpackHeader

pytest.importorskip("aiohttp", reason="the extra 'remote' is not installed")
pytest.importorskip("fsspec", reason="the extra 'remote' is not installed")

MIB = 2**20
PLAIN = os.urandom(MIB)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    from bloscpack._storage import remote

    monkeypatch.setattr(remote, "FIRST_DELAY", 0.01)


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
    table = encode_offsets(first + i * len(frame) for i in range(nchunks))
    return RepeatedContent(header.encode() + table, frame, nchunks)


@pytest.fixture(scope="module")
def large():
    with serving(large_file(1024)) as web:
        yield web


@pytest.mark.parametrize("number", [0, 1, 500, 1022, 1023])
def test_a_part_of_a_large_file_takes_two_requests(large, number):
    large.requests.clear()
    with OpenedFile(large.url) as opened:
        assert (2**30, 1024) == (opened.nbytes, opened.nchunks)
        start = number * MIB + 5
        assert PLAIN[5:13] == opened.read(start, start + 8)
    assert ["GET", "GET"] == large.methods()
    spans = [r[1]["Range"].removeprefix("bytes=") for r in large.requests]
    sizes = [int(b) - int(a) + 1 for a, b in (span.split("-") for span in spans)]
    assert sum(sizes) < 2**16 + 1.01 * MIB


def test_info_of_a_large_file_takes_one_request(large):
    large.requests.clear()
    assert 2**30 == bp.info(large.url).nbytes
    assert ["GET"] == large.methods()


def test_adjacent_chunks_are_requested_together(large):
    with OpenedFile(large.url) as opened:
        large.requests.clear()
        start = 500 * MIB
        assert PLAIN * 20 == opened.read(start, start + 20 * MIB)
    assert 10 == len(large.requests)


def test_requests_run_while_chunks_are_decompressed(large, monkeypatch):
    first, second = threading.Event(), threading.Event()
    read = RemoteStorage.read_many

    def read_many(storage, extents):
        if extents[0][0] > 32 + 8 * 1024:  # the first chunk is in another group
            first.wait(30)  # until a chunk of the first group has been decompressed
            second.set()
        return read(storage, extents)

    def use(number, plain):
        if number == 0:
            first.set()
            assert second.wait(30)

    monkeypatch.setattr(RemoteStorage, "read_many", read_many)
    # The thread of `use` would wait for itself if it worked on the second group.
    take, caller = Ahead._take, threading.current_thread()
    monkeypatch.setattr(
        Ahead,
        "_take",
        lambda ahead: None if threading.current_thread() is caller else take(ahead),
    )
    with OpenedFile(large.url, nthreads=1) as opened:
        opened.load(range(30), use)


def test_an_error_ends_the_requests(large):
    def use(number, plain):
        raise ValueError("enough")

    with OpenedFile(large.url, nthreads=1) as opened:
        large.requests.clear()
        with pytest.raises(ValueError, match="enough"):
            opened.load(range(1000), use)
    deadline = time.monotonic() + 30
    while at_work():
        assert time.monotonic() < deadline
    assert len(large.requests) < 60


def test_the_cache_saves_requests(large):
    with OpenedFile(large.url) as opened:
        opened.read(3 * MIB, 3 * MIB + 8)
        large.requests.clear()
        assert PLAIN[100:200] == opened.read(3 * MIB + 100, 3 * MIB + 200)
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
    with OpenedFile(web.url, cache_nbytes=0) as opened, ThreadPoolExecutor(8) as pool:

        def read(start):
            return plain[start : start + 9000] == opened.read(start, start + 9000)

        assert all(pool.map(read, range(0, len(plain), 7000)))


def test_flipped_bits(web):
    with OpenedFile(web.url) as opened:
        web.always = servers.flip
        with pytest.raises(bp.FormatError) as caught:
            opened.read(400_000, 500_000)
        assert web.url in str(caught.value)


def test_change_of_the_file(web):
    with OpenedFile(web.url) as opened:
        web.etag = '"2"'
        with pytest.raises(bp.StorageError, match="changed while it was read"):
            opened.read(500_000, 500_008)


def test_server_without_ranges(web, array):
    web.ranges = False
    with pytest.raises(bp.StorageError, match="whole=True"):
        OpenedFile(web.url)
    with OpenedFile(web.url, whole=True) as opened:
        assert array.tobytes()[500_000:500_008] == opened.read(500_000, 500_008)
    with pytest.raises(ValueError, match="closed"):
        opened.read(0, 9)


def test_errors_hide_credentials(web):
    url = "http://joe:t0ken@%s/data.blp?sig=hidden" % web.host
    web.content.data = bytes(100) + web.content.data[100:]
    with pytest.raises(bp.FormatError) as caught:
        OpenedFile(url)
    assert "/data.blp?..." in str(caught.value)
    assert "t0ken" not in str(caught.value)
