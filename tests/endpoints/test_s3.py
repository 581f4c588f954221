"""Files in object stores: two servers, which the extra ``test-integrations`` has."""

from __future__ import annotations

import os
import traceback

import numpy as np
import pytest
from storage import object_stores
from storage.servers import serving

import bloscpack as bp
from bloscpack import dataset
from bloscpack._file import stream_writing
from bloscpack._storage import object_store, remote
from bloscpack._storage.object_store import ObjectStore
from bloscpack._storage.remote import RemoteStorage

s3fs = pytest.importorskip("s3fs", reason="the extra 's3' is not installed")

PLAIN = os.urandom(600_000)
SERVERS = {"moto": object_stores.moto, "rclone": object_stores.rclone}


@pytest.fixture(scope="module", params=SERVERS)
def options(request, tmp_path_factory):
    with SERVERS[request.param](tmp_path_factory.mktemp("store")) as options:
        object_stores.make_bucket(options)
        yield options


@pytest.fixture
def fs(options, monkeypatch):
    monkeypatch.setattr(remote, "FIRST_DELAY", 0.01)
    fs = s3fs.S3FileSystem(**options)
    yield fs
    for name in fs.ls("bucket", refresh=True, detail=False):
        fs.rm(name)


@pytest.fixture
def packed():
    return bp.pack_bytes_to_bytes(PLAIN, "100K")


def names_in(fs):
    return fs.ls("bucket", refresh=True, detail=False)


def test_read(fs, options, packed):
    fs.pipe("bucket/x.blp", packed)
    with RemoteStorage("s3://bucket/x.blp", storage_options=options) as storage:
        assert len(packed) == storage.size
        assert storage.identity is not None
        extents = [(500_000, 500_100), (10, 20), (60_000, 70_000)]
        assert [packed[a:b] for a, b in extents] == storage.read_many(extents)


@pytest.mark.parametrize("change", [slice(None, None, -1), slice(1000)])
def test_object_that_changes_or_shrinks(fs, options, packed, change):
    fs.pipe("bucket/x.blp", packed)
    with RemoteStorage("s3://bucket/x.blp", storage_options=options) as storage:
        fs.pipe("bucket/x.blp", packed[change])
        with pytest.raises(bp.StorageError, match="changed while it was read"):
            storage.read_at(500_000, 100)


def test_body_without_an_end(monkeypatch):
    monkeypatch.setattr(remote, "FIRST_DELAY", 0.01)
    sent = 0

    def endless(handler):
        nonlocal sent
        if handler.command != "GET":
            return False
        handler.send_response(206)
        handler.send_header("ETag", handler.web.etag)
        handler.send_header("Connection", "close")
        handler.end_headers()  # without a length
        handler.close_connection = True
        for _ in range(1000):
            handler.wfile.write(bytes(2**20))
            sent += 2**20
        return True

    with serving(PLAIN) as web:
        web.always = endless
        options = object_stores.options_for(int(web.host.rpartition(":")[2]))
        with pytest.raises(bp.StorageError, match="ignores ranges"):
            RemoteStorage("s3://bucket/x.blp", storage_options=options)
    assert sent < 100 * 2**20


# Listings without an end

PAGE = """<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult><Name>bucket</Name><IsTruncated>true</IsTruncated>%s
<NextContinuationToken>%s</NextContinuationToken></ListBucketResult>"""
ITEM = "<Contents><Key>g/%s/%d</Key><Size>1</Size><ETag>&quot;1&quot;</ETag></Contents>"


def pages(count=0, seconds=0.0):
    """Return an answer: a page of `count` new names, and the token of the next one."""

    def answer(handler):
        if "list-type=2" not in handler.path:
            return handler.fail(404)
        if "max-keys" not in handler.path:  # a look whether there is anything
            handler.web.sent += 1
        handler.web.ended.wait(seconds)
        number = handler.web.sent
        items = "".join(ITEM % (number, n) for n in range(max(count, 1)))
        reply = (PAGE % (items, number)).encode()
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(reply)))
        handler.end_headers()
        handler.wfile.write(reply)
        return True

    return answer


@pytest.mark.slow
@pytest.mark.parametrize("answer", [pages(count=100), pages(seconds=0.5)])
def test_listing_without_an_end(monkeypatch, answer):
    monkeypatch.setattr(object_store, "LIST_SECONDS", 1.0)
    text = "more than 1 seconds for a listing"
    with serving(b"") as web:
        web.always = answer
        options = object_stores.options_for(int(web.host.rpartition(":")[2]))
        with pytest.raises(bp.StorageError, match=text):
            dataset.open("s3://bucket/g", storage_options=options)
        with pytest.raises(bp.StorageError, match=text):
            ObjectStore("s3://bucket", options).remove_tree("g")
        assert not {"DELETE", "POST"} & {*web.methods()}


def test_nothing_there(options):
    for url in ("s3://bucket/no.blp", "s3://nobucket/no.blp"):
        with pytest.raises(FileNotFoundError) as caught:
            RemoteStorage(url, storage_options=options)
        assert isinstance(caught.value, bp.StorageError)
        assert url in str(caught.value)


def test_wrong_keys(options, request):
    if "moto" in request.node.name:
        pytest.skip("moto accepts all keys")
    other = {**options, "key": "joe-key", "secret": "t0ken-other"}
    with pytest.raises(bp.StorageError) as caught:
        RemoteStorage("s3://bucket/x.blp", storage_options=other)
    text = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert not any(secret in text for secret in ("joe-key", "t0ken-other"))


@pytest.fixture
def stored(options, monkeypatch):
    """Let the URLs of S3 mean the server."""
    import fsspec.config

    monkeypatch.setitem(fsspec.config.conf, "s3", options)


@pytest.mark.parametrize("size", [0, 600_000, 23_000_000])
def test_pack(fs, stored, size):
    plain = os.urandom(size)
    bp.pack_bytes_to_file(plain, "s3://bucket/x.blp", "1M")
    assert bp.pack_bytes_to_bytes(plain, "1M") == fs.cat("bucket/x.blp")
    assert (plain, None) == bp.unpack_bytes_from_file("s3://bucket/x.blp")
    assert bp.verify("s3://bucket/x.blp").ok
    assert size == bp.info("s3://bucket/x.blp").nbytes


def test_failure_leaves_no_object(fs, stored):
    plain, done = os.urandom(20_000_000), []

    def fail(nbytes):
        done.append(nbytes)
        if sum(done) > 15_000_000:
            raise KeyError("in the middle")

    fs.pipe("bucket/old.blp", b"old")
    for name in ("new", "old"):
        done.clear()
        with pytest.raises(KeyError):
            bp.pack_bytes_to_file(
                plain, "s3://bucket/%s.blp" % name, "1M", progress=fail
            )
    assert ["bucket/old.blp"] == names_in(fs)
    assert b"old" == fs.cat("bucket/old.blp")


# Files written as a stream


@pytest.mark.parametrize("entries", [5, 2**16])
def test_stream_of_unknown_length_has_a_table(fs, stored, monkeypatch, entries):
    """More bytes than are kept: a table is reserved, and grows if it is too short."""
    monkeypatch.setattr(stream_writing, "KEPT_NBYTES", 2**20)
    monkeypatch.setattr(stream_writing, "RESERVED_ENTRIES", entries)
    monkeypatch.setattr(stream_writing, "GROWTH", 1)
    plain = os.urandom(21_000_003)
    with bp.open("s3://bucket/x.blp", "wb") as file:
        for start in range(0, len(plain), 700_000):
            file.write(plain[start : start + 700_000])
        assert [] == names_in(fs)
    found = bp.info("s3://bucket/x.blp")
    assert (21, len(plain)) == (found.nchunks, found.nbytes)
    assert found.offsets is not None
    assert bp.verify("s3://bucket/x.blp").ok
    assert plain == bp.open("s3://bucket/x.blp").read()


def test_exception_in_a_stream_leaves_no_object(fs, stored):
    with pytest.raises(TypeError), bp.open("s3://bucket/new.blp", "wb") as file:
        file.writelines([os.urandom(20_000_000), None])
    assert [] == names_in(fs)


def test_exclusive(fs, options):
    fs.pipe("bucket/old.blp", b"old")
    with pytest.raises(FileExistsError):
        bp.open("s3://bucket/old.blp", "xb", storage_options=options)
    with bp.open("s3://bucket/new.blp", "xb", storage_options=options) as file:
        file.write(b"abc")
    assert b"abc" == bp.open("s3://bucket/new.blp", storage_options=options).read()


def test_shard(fs, options, stored):
    array = np.arange(25_000, dtype="<f8").reshape(250, 100)
    bp.pack_ndarray_to_file(array, "s3://bucket/a.blp", 8000, shard=True)
    assert bp.pack_ndarray_to_bytes(array, 8000, shard=True) == fs.cat("bucket/a.blp")
    assert bp.verify("s3://bucket/a.blp").ok
    with bp.open_ndarray("s3://bucket/a.blp", storage_options=options) as lazy:
        assert (array[-3:] == lazy[-3:]).all()


def test_archive(fs, options, stored):
    """Its members can't be sent as they are made: their headers are written last."""
    arrays = {"a": np.random.default_rng(1).random((2000, 800)), "b": np.arange(9)}
    bp.savez("s3://bucket/a.zip", **arrays, settings={"storage_options": options})
    with bp.loadz("s3://bucket/a.zip", storage_options=options) as archive:
        assert [*arrays] == archive.files
        for name, array in arrays.items():
            assert np.array_equal(array, archive[name].read())


def test_no_bucket(stored):
    with pytest.raises(bp.StorageError) as caught:
        bp.pack_bytes_to_file(b"abc", "s3://nobucket/x.blp")
    text = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert "s3://nobucket/x.blp" in text
    assert not any(secret in text for secret in object_stores.SECRETS)
