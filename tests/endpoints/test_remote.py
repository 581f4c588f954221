"""The functions on files, with URLs: what they return, write, and leave behind."""

from __future__ import annotations

import os
import traceback

import numpy as np
import pytest
from storage import servers
from storage.servers import serving
from support import quick_retries, run_python

import bloscpack as bp

pytest.importorskip("aiohttp", reason="the extra 'remote' is not installed")
fsspec = pytest.importorskip("fsspec", reason="the extra 'remote' is not installed")

PLAIN = np.arange(500_000, dtype="<i4").tobytes()
ARRAY = np.arange(500_000, dtype="<f8").reshape(1000, 500)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    quick_retries(monkeypatch)


@pytest.fixture
def memory():
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    yield fs
    fs.store.clear()


LOCAL = """
import sys
import bloscpack as bp
bp.pack_bytes_to_file(b"abc", sys.argv[1])
bp.unpack_bytes_from_file(sys.argv[1])
bp.info(sys.argv[1])
print(*sorted(set(sys.modules) & {"fsspec", "asyncio", "aiohttp"}))
"""


def test_local_files_need_no_package(tmp_path):
    done = run_python("-c", LOCAL, tmp_path / "x.blp", text=True)
    assert ("\n", "") == (done.stdout, done.stderr)


# Reading


@pytest.mark.parametrize("ranges", [True, False])
def test_unpack(ranges, tmp_path):
    with serving(bp.pack_bytes_to_bytes(PLAIN, "100K", metadata={"a": 1})) as web:
        web.ranges = ranges
        assert (PLAIN, {"a": 1}) == bp.unpack_bytes_from_file(web.url)
        bp.unpack_file_from_file(web.url, tmp_path / "x")
        assert PLAIN == (tmp_path / "x").read_bytes()
    with serving(bp.pack_ndarray_to_bytes(ARRAY, "100K")) as web:
        web.ranges = ranges
        assert (ARRAY == bp.unpack_ndarray_from_file(web.url)).all()
        bp.npy_io.unpack_npy_from_file(web.url, tmp_path / "x.npy")
        assert (ARRAY == np.load(tmp_path / "x.npy")).all()


def test_unpack_reads_each_byte_once():
    plain = os.urandom(5_000_000)
    packed = bp.pack_bytes_to_bytes(plain, "100K")
    with serving(packed) as web:
        assert plain == bp.unpack_bytes_from_file(web.url)[0]
        assert 4 == len(web.requests)
        spans = [r[1]["Range"] for r in web.requests if "Range" in r[1]]
        assert len(spans) == len(set(spans))


def test_info_and_verify():
    with serving(bp.pack_ndarray_to_bytes(ARRAY, "100K")) as web:
        found = bp.info(web.url)
        assert (web.url, ARRAY.nbytes) == (found.file, found.nbytes)
        assert 1 == len(web.requests)
        report = bp.verify(web.url)
        assert (True, web.url) == (report.ok, report.filename)
        web.always = servers.flip
        report = bp.verify(web.url)
        assert not report.ok
        with pytest.raises(bp.FormatError) as caught:
            bp.unpack_ndarray_from_file(web.url)
        assert web.url in str(caught.value)


def test_storage_options(tmp_path):
    options = {"headers": {"Authorization": "Basic am9lOnQwa2Vu"}}
    calls = (
        bp.info,
        bp.verify,
        bp.unpack_bytes_from_file,
        bp.unpack_ndarray_from_file,
        lambda url, **keys: bp.unpack_file_from_file(url, tmp_path / "x", **keys),
        lambda url, **keys: bp.npy_io.unpack_npy_from_file(url, tmp_path / "n", **keys),
        lambda url, **keys: bp.recover(url, tmp_path / "r", **keys),
        lambda url, **keys: bp.references(url, **keys),
        lambda url, **keys: bp.open_ndarray(url, **keys),
        lambda url, **keys: bp.open(url, **keys),
    )
    with serving(bp.pack_ndarray_to_bytes(ARRAY, ARRAY[:50].nbytes)) as web:
        web.auth = "joe:t0ken"
        for call in calls:
            call(web.url, storage_options=options)
            with pytest.raises(bp.StorageError, match="401"):
                call(web.url)


def test_storage_options_of_outputs(memory, tmp_path):
    (tmp_path / "x").write_bytes(PLAIN)
    np.save(tmp_path / "x.npy", ARRAY)
    url = "memory://x.blp"
    for call in (
        lambda **keys: bp.pack_bytes_to_file(PLAIN, url, **keys),
        lambda **keys: bp.pack_file_to_file(tmp_path / "x", url, **keys),
        lambda **keys: bp.pack_ndarray_to_file(ARRAY, url, **keys),
        lambda **keys: bp.npy_io.pack_npy_to_file(tmp_path / "x.npy", url, **keys),
    ):
        memory.store.clear()
        call(storage_options={"skip_instance_cache": True})
        assert ["/x.blp"] == list(memory.store)
    for call in (
        lambda **keys: bp.recover(url, "memory://y", **keys),
        lambda **keys: bp.references.write_references({}, "memory://y", **keys),
        lambda **keys: bp.open("memory://y", "wb", **keys).close(),
    ):
        memory.store.pop("/y", None)
        call(storage_options={"skip_instance_cache": True})
        assert "/y" in memory.store


def test_recover(tmp_path):
    with serving(bp.pack_bytes_to_bytes(PLAIN, "100K")) as web:
        web.content.data = web.content.data[:100_000]
        web.content.size = 100_000
        assert bp.recover(web.url, tmp_path / "x.blp").report.filename == web.url
        assert PLAIN.startswith(bp.unpack_bytes_from_file(tmp_path / "x.blp")[0][:9])


def test_a_file_that_changes(tmp_path):
    with serving(bp.pack_bytes_to_bytes(os.urandom(5_000_000), "100K")) as web:

        def change(handler):
            web.etag = '"2"'
            return False

        web.answers = [None, None, change]
        with pytest.raises(bp.StorageError, match="changed while it was read"):
            bp.unpack_file_from_file(web.url, tmp_path / "x")
        assert [] == os.listdir(tmp_path)


def test_nothing_there():
    with serving(b"") as web:
        web.always = servers.status(404)
        for function in (bp.unpack_bytes_from_file, bp.info, bp.verify):
            with pytest.raises(FileNotFoundError) as caught:
                function(web.url)
            assert web.url == caught.value.filename


def test_errors_about_the_bytes_hide_credentials():
    with serving(b"no such file" * 100) as web:
        url = "http://joe:t0ken@%s/x.blp?sig=hidden" % web.host
        for function in (bp.unpack_bytes_from_file, bp.info, bp.verify):
            with pytest.raises(bp.FormatError) as caught:
                function(url)
            text = "".join(traceback.format_exception(caught.value))
            assert "http://%s/x.blp?..." % web.host in text
            assert not any(secret in text for secret in ("joe", "t0ken", "hidden"))


def test_local_url_is_a_local_file(tmp_path):
    bp.pack_bytes_to_file(PLAIN, "file://%s/x.blp" % tmp_path)
    assert ["x.blp"] == os.listdir(tmp_path)
    assert PLAIN == bp.unpack_bytes_from_file("file://%s/x.blp" % tmp_path)[0]


# Writing


def test_pack_to_memory(memory, tmp_path):
    (tmp_path / "x").write_bytes(PLAIN)
    bp.pack_file_to_file(tmp_path / "x", "memory://a.blp", "100K")
    bp.pack_bytes_to_file(PLAIN, "memory://b.blp", "100K")
    expected = bp.pack_bytes_to_bytes(PLAIN, "100K")
    assert expected == memory.cat("/a.blp") == memory.cat("/b.blp")
    bp.pack_ndarray_to_file(ARRAY, "memory://c.blp")
    assert (ARRAY == bp.unpack_ndarray_from_file("memory://c.blp")).all()
    assert (
        10
        == bp.info("memory://b.blp").offsets.free // bp.info("memory://b.blp").nchunks
    )


def test_failure_leaves_the_old_object(memory):
    memory.pipe("/a.blp", b"old")
    for name in ("a", "b"):
        with pytest.raises(ZeroDivisionError):
            bp.pack_bytes_to_file(
                PLAIN, "memory://%s.blp" % name, "100K", progress=lambda nbytes: 1 / 0
            )
    assert ["/a.blp"] == list(memory.store)
    assert b"old" == memory.cat("/a.blp")


def test_unpack_to_a_url(memory, tmp_path):
    bp.pack_bytes_to_file(PLAIN, tmp_path / "x.blp")
    bp.unpack_file_from_file(tmp_path / "x.blp", "memory://plain")
    assert PLAIN == memory.cat("/plain")
    with pytest.raises(bp.UsageError, match="same file"):
        bp.unpack_file_from_file("memory://x", "memory://x")


def test_http_is_not_written():
    with serving(b"") as web:
        url = "http://joe:t0ken@%s/x.blp" % web.host
        with pytest.raises(bp.UsageError, match="can't be written") as caught:
            bp.pack_bytes_to_file(b"abc", url)
        assert "t0ken" not in str(caught.value)
        assert [] == web.requests


@pytest.mark.parametrize(
    "call",
    [
        lambda url, path: bp.append(url, path),
        lambda url, path: bp.append(path, url),
        lambda url, path: bp.pack_file_to_file(url, path),
        lambda url, path: bp.npy_io.pack_npy_to_file(url, path),
    ],
)
def test_functions_that_need_local_files(call, tmp_path):
    (tmp_path / "x").write_bytes(b"x")
    url = "http://joe:t0ken@127.0.0.1:1/x.blp"
    with pytest.raises(bp.UsageError, match="needs a local file") as caught:
        call(url, tmp_path / "x")
    assert "t0ken" not in str(caught.value)
