"""Lazy arrays at URLs."""

from __future__ import annotations

import pickle

import numpy
import pytest
from storage.servers import serving

import bloscpack
from bloscpack import StorageError, open_ndarray

pytest.importorskip("aiohttp", reason="the extra 'remote' is not installed")
fsspec = pytest.importorskip("fsspec", reason="the extra 'remote' is not installed")

ARRAY = numpy.random.default_rng(1).integers(0, 99, (300, 100), "<i8")
HEADERS = {"headers": {"Authorization": "Basic am9lOnQwa2Vu"}}


@pytest.fixture
def web():
    with serving(bloscpack.pack_ndarray_to_bytes(ARRAY, 8000)) as web:
        yield web


def test_pickle_keeps_the_settings_of_fsspec(web):
    web.auth = "joe:t0ken"
    with open_ndarray(web.url, storage_options=HEADERS) as lazy:
        with pickle.loads(pickle.dumps(lazy)) as same:
            assert (ARRAY[::7] == same[::7]).all()
        shown = repr(lazy) + repr(lazy.__dask_tokenize__())
        assert "am9lOnQwa2Vu" not in shown


def test_pickle_refuses_another_version(web):
    with open_ndarray(web.url) as lazy:
        pickled = pickle.dumps(lazy)
    web.etag = '"2"'
    with pytest.raises(StorageError, match="has changed since") as caught:
        pickle.loads(pickled)
    assert web.url in str(caught.value)


def test_credentials_are_in_the_pickle_alone(web):
    url = "http://joe:t0ken@%s/x.blp?sig=hidden" % web.host
    with open_ndarray(url) as lazy:
        shown = repr(lazy) + repr(lazy.__dask_tokenize__())
        assert not any(secret in shown for secret in ("joe", "t0ken", "hidden"))
        assert "/x.blp?..." in shown
        pickled = pickle.dumps(lazy)
        with pickle.loads(pickled) as same:
            assert lazy.__dask_tokenize__() == same.__dask_tokenize__()
    web.etag = '"2"'
    with pytest.raises(StorageError) as caught:
        pickle.loads(pickled)
    assert not any(s in str(caught.value) for s in ("joe", "t0ken", "hidden"))


def test_token_differs_for_another_query(web):
    urls = ["http://%s/x.blp?file=%s" % (web.host, name) for name in "ab"]
    with open_ndarray(urls[0]) as a, open_ndarray(urls[1]) as b:
        assert a.__dask_tokenize__() != b.__dask_tokenize__()


def test_names_of_local_files_that_look_like_urls(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x:").mkdir()
    for name in ("x://a.blp", "a::b.blp", "file://%s/c.blp" % tmp_path):
        bloscpack.pack_ndarray_to_file(ARRAY, name)
        with open_ndarray(name) as lazy:
            (tmp_path / "deep").mkdir(exist_ok=True)
            monkeypatch.chdir(tmp_path / "deep")
            with pickle.loads(pickle.dumps(lazy)) as same:
                assert (ARRAY[5] == same[5]).all()
            monkeypatch.chdir(tmp_path)


def test_server_without_ranges(web):
    web.ranges = False
    large = bloscpack.pack_ndarray_to_bytes(ARRAY, 8000, clevel=0)
    web.content.data, web.content.size = large, len(large)
    assert len(large) > 2**16
    with pytest.raises(StorageError, match="whole=True"):
        open_ndarray(web.url)
    with open_ndarray(web.url, whole=True) as lazy:
        assert (ARRAY[123] == lazy[123]).all()
        with pickle.loads(pickle.dumps(lazy)) as same:
            assert (ARRAY[::-50] == same[::-50]).all()
