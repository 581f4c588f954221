"""`bloscpack.open` with URLs: what it reads, writes, and leaves behind."""

from __future__ import annotations

import gzip
import os
import random

import pytest
from storage.servers import serving
from support import keep_little

import bloscpack as bp

pytest.importorskip("aiohttp", reason="the extra 'remote' is not installed")
fsspec = pytest.importorskip("fsspec", reason="the extra 'remote' is not installed")

CHUNK = 4096
DATA = random.Random(1).randbytes(CHUNK) * 9 + b"end\n"
PACKED = bp.pack_bytes_to_bytes(DATA, chunk_size=CHUNK)


@pytest.fixture
def memory():
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    yield fs
    fs.store.clear()


# Reading


def test_read():
    with serving(PACKED) as web, bp.open(web.url) as file:
        assert DATA == file.read()
        assert DATA[-4:] == file.pread(100, len(DATA) - 4)
        assert 5 == file.seek(5)
        assert DATA[5:9] == file.read(4)


def test_text(memory):
    with bp.open("memory://a.blp", "wt", encoding="latin-1", newline="\r\n") as file:
        file.write("é\nsecond\n")
    assert b"\xe9\r\nsecond\r\n" == bp.open("memory://a.blp").read()
    with bp.open("memory://a.blp", "rt", encoding="latin-1") as file:
        assert ["é\n", "second\n"] == list(file)


def test_settings_of_fsspec():
    with serving(PACKED) as web:
        web.auth = "joe:t0ken"
        options = {"headers": {"Authorization": "Basic am9lOnQwa2Vu"}}
        assert DATA == bp.open(web.url, storage_options=options).read()
        with pytest.raises(bp.StorageError, match="401"):
            bp.open(web.url)


def test_server_without_ranges():
    large = os.urandom(100_000)
    with serving(bp.pack_bytes_to_bytes(large)) as web:
        web.ranges = False
        with pytest.raises(bp.StorageError, match="whole=True"):
            bp.open(web.url)
        assert large == bp.open(web.url, whole=True).read()


@pytest.mark.parametrize("ranges", [True, False])
def test_another_format_is_named(ranges):
    with serving(gzip.compress(os.urandom(70_000))) as web:
        web.ranges = ranges
        # Closed here: `caught` keeps the file, and its spool, until they are collected.
        with (
            bp.open(web.url, whole=True) as file,
            pytest.raises(OSError, match="found a gzip file") as caught,
        ):
            file.read()
        assert web.url in str(caught.value)


def test_end_is_missing():
    with serving(PACKED[:20]) as web, pytest.raises(EOFError, match="too early"):
        bp.open(web.url).read()


def test_names_hide_credentials(memory):
    with serving(PACKED) as web:
        url = "http://joe:t0ken@%s/a.blp?sig=hidden" % web.host
        shown = "http://%s/a.blp?..." % web.host
        assert shown == bp.open(url).name
        assert shown in repr(bp.open(url, "rt", encoding="latin-1"))
    with pytest.warns(ResourceWarning, match="not closed") as caught:
        drop(bp.open("memory://joe:t0ken@a.blp", "wb"))
    assert "t0ken" not in str(caught[0].message)


def drop(file):
    """Lose the last reference; ``gc.collect`` would collect what other tests left."""
    del file


def test_local_url(tmp_path):
    url = "file://%s/a.blp" % tmp_path
    for mode in ("xb", "ab", "ab"):
        with bp.open(url, mode) as file:
            file.write(b"abc")
    assert b"abcabcabc" == bp.open(url).read()
    with pytest.raises(FileExistsError):
        bp.open(url, "xb")
    assert ["a.blp"] == os.listdir(tmp_path)


# Writing


def test_write(memory):
    with bp.open("memory://a.blp", "wb", chunk_size=CHUNK) as file:
        file.write(DATA[:5000])
        file.flush()
        assert not memory.exists("/a.blp")
        file.write(DATA[5000:])
    assert PACKED == memory.cat("/a.blp")


@pytest.mark.parametrize("mode", ["wb", "wt"])
def test_exception_stores_nothing(mode, memory):
    memory.pipe("/old.blp", b"old")
    for name in ("old", "new"):
        url = "memory://%s.blp" % name
        with pytest.raises(TypeError), bp.open(url, mode) as file:
            file.writelines([DATA if mode == "wb" else "text", None])
    assert {"/old.blp": b"old"} == {n: memory.cat(n) for n in memory.store}


def test_exclusive(memory):
    with bp.open("memory://a.blp", "xb") as file:
        file.write(b"abc")
    with pytest.raises(FileExistsError) as caught:
        bp.open("memory://a.blp", "xb")
    assert "memory://a.blp" == caught.value.filename
    file = bp.open("memory://b.blp", "xb")
    file.write(b"abc")
    memory.pipe("/b.blp", b"another")
    with pytest.raises(FileExistsError):
        file.close()
    assert b"another" == memory.cat("/b.blp")


def test_append_needs_a_local_file(memory):
    for url in ("memory://a.blp", "http://joe:t0ken@127.0.0.1:1/a.blp"):
        with pytest.raises(bp.UsageError, match="needs a local file") as caught:
            bp.open(url, "ab")
        assert "t0ken" not in str(caught.value)
    assert not memory.store


@pytest.mark.parametrize("mode", ["wb", "xb"])
def test_http_is_not_written(mode):
    with serving(b"") as web:
        with pytest.raises(bp.UsageError, match="HTTP is for reading"):
            bp.open(web.url, mode)
        assert [] == web.requests


@pytest.mark.parametrize("entries", [5, 100])
def test_length_is_unknown(entries, memory, tmp_path, monkeypatch):
    keep_little(monkeypatch, 3 * CHUNK, entries)
    for place in (tmp_path / "a.blp", "memory://a.blp"):
        with bp.open(place, "wb", chunk_size=CHUNK) as file:
            file.write(DATA)
    assert (tmp_path / "a.blp").read_bytes() == memory.cat("/a.blp")
