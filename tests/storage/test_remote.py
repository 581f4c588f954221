"""URLs as a storage: requests, responses, errors, and what they may not show."""

from __future__ import annotations

import asyncio
import base64
import gc
import gzip
import io
import os
import sys
import time
import traceback
from functools import partial

import pytest
from storage import servers
from storage.servers import Content, serving

import bloscpack as bp
from bloscpack import dataset
from bloscpack._storage import http_session, remote, remote_files
from bloscpack._storage.paths import is_url, public_name
from bloscpack._storage.remote import ReadAhead, RemoteStorage
from bloscpack._storage.urls import last_part

fsspec = pytest.importorskip("fsspec", reason="the extra 'remote' is not installed")

HEAD = 64 * 2**10
DATA = os.urandom(300_000)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(remote, "FIRST_DELAY", 0.01)


@pytest.fixture
def web():
    pytest.importorskip("aiohttp", reason="the extra 'remote' is not installed")
    with serving(DATA) as web:
        yield web


def text_of(error: BaseException) -> str:
    """Return all that a program or a traceback may show of an error."""
    shown = [str(error), repr(error), str(getattr(error, "filename", ""))]
    return "".join([*shown, *traceback.format_exception(error)])


# Requests


def test_one_range_comes_first(web):
    with RemoteStorage(web.url) as storage:
        assert len(DATA) == storage.size
        assert ["GET"] == web.methods()
        assert "bytes=0-%d" % (HEAD - 1) == web.requests[0][1]["Range"]
        assert DATA[:HEAD] == storage.read_at(0, HEAD)
        assert 1 == len(web.requests)
        assert DATA[100:90_000] == storage.read_at(100, 89_900)
        assert "bytes=%d-89999" % HEAD == web.requests[1][1]["Range"]
        assert '"1"' == web.requests[1][1]["If-Match"]


@pytest.mark.parametrize("knows_ends", [True, False])
@pytest.mark.parametrize("size", [5, 1000, 1001, len(DATA)])
def test_the_end_of_a_file_is_read_first(size, knows_ends):
    def refuse(handler):
        return "bytes=-" in handler.headers["Range"] and handler.fail(416)

    with serving(DATA[:size]) as web:
        web.always = None if knows_ends else refuse
        with RemoteStorage(web.url, end=1000) as storage:
            assert size == storage.size
            assert DATA[size - 3 : size] == storage.read_at(size - 3, 9)
            start = max(0, size - 1000)
            assert DATA[start:size] == storage.read_at(start, 1000)
            if knows_ends:
                assert ["bytes=-1000"] == [sent["Range"] for _, sent in web.requests]
            assert DATA[:size] == storage.read_at(0, size)
            step = max(97, size // 100)
            extents = [
                (at, at + n) for at in range(0, size, step) for n in (1, 500, 2000)
            ]
            expected = [DATA[:size][slice(*extent)] for extent in extents]
            assert expected == storage.read_many(extents)


def test_extents_are_requested_at_once(web):
    late = []

    def answer(handler):
        late.append(len(web.requests))
        end = time.monotonic() + 10
        while len(web.requests) < 1 + 8 and time.monotonic() < end:
            time.sleep(0.005)
        return False

    extents = [(100_000 + 10 * i, 100_008 + 10 * i) for i in range(8)]
    with RemoteStorage(web.url) as storage:
        web.always = answer
        found = storage.read_many(extents)
    assert [DATA[slice(*extent)] for extent in extents] == found
    assert 9 == len(web.requests)


def test_a_chunk_of_a_large_file_takes_two_requests():
    rows = 2**20
    packed = bp.pack_bytes_to_bytes(os.urandom(3 * rows), rows, checksum="crc32")
    content = Content(packed, 2**30)
    with serving(content) as web, RemoteStorage(web.url) as storage:
        assert 2**30 == storage.size
        assert packed[2 * rows : 2 * rows + 100] == storage.read_at(2 * rows, 100)
        assert 2 == len(web.requests)


def test_read_ahead_reads_every_byte_once(web, monkeypatch):
    monkeypatch.setattr(remote, "AHEAD_SIZE", 20_000)
    with RemoteStorage(web.url) as storage:
        ahead = ReadAhead(storage)
        found = [ahead.read_at(at, 777) for at in range(0, len(DATA), 777)]
    assert DATA == b"".join(found)
    spans = [headers["Range"] for method, headers in web.requests if method == "GET"]
    assert len(set(spans)) == len(spans)
    assert 13 == len(spans)  # the first 64 KiB were read at once


@pytest.mark.parametrize("end", [0, 10])
@pytest.mark.parametrize("answer", [None, servers.status(416)])
def test_empty_file(answer, end):
    with serving(b"") as web:
        web.answers = [answer]
        with RemoteStorage(web.url, end=end) as storage:
            assert 0 == storage.size
            assert b"" == storage.read_at(0, 10)
            assert ["GET", "HEAD"][: 1 + bool(answer)] == web.methods()


def test_server_without_head_requests(web):
    web.head = False
    with RemoteStorage(web.url) as storage:
        assert len(DATA) == storage.size
        assert DATA[-9:] == storage.read_at(len(DATA) - 9, 9)
        assert '"1"' == web.requests[-1][1]["If-Match"]


@pytest.mark.parametrize("whole", [False, True])
def test_a_process_that_inherits_a_storage_connects_again(web, monkeypatch, whole):
    with RemoteStorage(web.url, whole=whole) as storage:
        monkeypatch.setattr(os, "getpid", lambda: 1)
        assert DATA[100_000:100_009] == storage.read_at(100_000, 9)
        web.etag = '"2"'
        if whole:
            assert DATA[200_000:200_009] == storage.read_at(200_000, 9)
        else:
            with pytest.raises(bp.StorageError, match="was changed"):
                storage.read_at(200_000, 9)


# Servers that misbehave


def test_server_that_ignores_ranges(web):
    web.ranges = False
    with pytest.raises(bp.StorageError, match=r"ignores ranges.*whole=True") as caught:
        RemoteStorage(web.url)
    assert web.url in str(caught.value)
    web.requests.clear()
    for whole in (True, None):
        with RemoteStorage(web.url, whole=whole) as storage:
            assert len(DATA) == storage.size
            assert DATA[5:250_000] == storage.read_at(5, 249_995)
            assert [DATA[-3:], DATA[:2]] == storage.read_many(
                [(len(DATA) - 3, len(DATA)), (0, 2)]
            )
    # With None, the ranged request comes first.
    assert ["HEAD", "GET", "GET", "HEAD", "GET"] == web.methods()


def test_short_file_on_a_server_that_ignores_ranges():
    with serving(b"short") as web:
        web.ranges = False
        with RemoteStorage(web.url) as storage:
            assert b"hort" == storage.read_at(1, 10)


@pytest.mark.parametrize(
    ("answer", "whole"),
    [(servers.cut, True), (servers.cut, False), (servers.short, False)],
)
def test_response_that_is_too_short(web, answer, whole):
    web.answers = [None, answer]
    with RemoteStorage(web.url, whole=whole) as storage:
        web.answers = [answer]
        assert DATA == storage.read_at(0, len(DATA))
        web.always = answer
        if not whole:
            with pytest.raises(bp.StorageError, match="tried 5 times") as caught:
                storage.read_at(100_000, 1000)
            assert web.url == caught.value.filename


def test_whole_response_without_an_end_is_cut_off(web, monkeypatch):
    monkeypatch.setattr(remote, "MAX_IN_MEMORY", 1000)
    sent = []

    def endless(handler):
        handler.send_response(200)
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.close_connection = True
        while len(sent) < 1000:
            handler.wfile.write(DATA)
            sent.append(len(DATA))
        return True

    web.answers = [None, endless]
    with pytest.raises(bp.StorageError, match="changed while it was read"):
        RemoteStorage(web.url, whole=True)
    gc.collect()  # the temporary file is closed: no warning
    assert len(sent) < 1000


def test_call_in_the_thread_of_fsspec_is_refused(memory):
    from fsspec.asyn import get_loop

    async def read():
        return RemoteStorage("memory://a.blp")

    with pytest.raises(bp.StorageError, match="running loop"):
        asyncio.run_coroutine_threadsafe(read(), get_loop()).result(20)
    gc.collect()  # no coroutine is left: no warning


def test_response_that_is_longer_than_the_range(web):
    with RemoteStorage(web.url) as storage:
        web.ranges = False
        with pytest.raises(bp.StorageError, match="ignores ranges"):
            storage.read_at(100_000, 10)


def test_other_range_than_the_one_asked_for(web):
    def answer(handler):
        handler.headers.replace_header("Range", "bytes=7-16")
        return False

    with RemoteStorage(web.url) as storage:
        web.always = answer
        with pytest.raises(bp.StorageError, match="expected the bytes 100000-100009"):
            storage.read_at(100_000, 10)


@pytest.mark.parametrize("number", [500, 502, 503, 504])
def test_errors_of_the_server_are_repeated(web, number):
    error = servers.status(number)
    web.answers = [error, error, None, error, None, None]
    with RemoteStorage(web.url) as storage:
        web.answers = [error, error]
        assert DATA[-9:] == storage.read_at(len(DATA) - 9, 9)


def test_errors_of_the_server_are_not_repeated_for_ever(web, monkeypatch):
    monkeypatch.setattr(remote, "RETRY_SECONDS", 0)
    web.always = servers.status(503)
    with pytest.raises(bp.StorageError, match="tried 1 time\\)"):
        RemoteStorage(web.url)


@pytest.mark.parametrize("number", [400, 401, 403, 404, 410, 429])
def test_errors_of_the_client_are_not_repeated(web, number):
    web.always = servers.status(number)
    with pytest.raises(bp.StorageError, match="answered %d" % number) as caught:
        RemoteStorage(web.url)
    assert (number in (404, 410)) == isinstance(caught.value, FileNotFoundError)
    assert 2 >= len(web.requests)


def test_stall(web, monkeypatch):
    monkeypatch.setattr(remote_files, "STALL_SECONDS", 0.5)
    web.answers = [servers.stall()]
    with RemoteStorage(web.url) as storage:
        assert len(web.requests) >= 2
        web.answers = [servers.stall()]
        assert DATA == storage.read_at(0, len(DATA))
        web.always = servers.stall()
        with pytest.raises(bp.StorageError, match=r"in time .tried 5 times"):
            storage.read_at(100_000, 9)


def test_no_server():
    with serving(b"") as web:
        pass
    with pytest.raises(bp.StorageError, match="connection failed") as caught:
        RemoteStorage(web.url)
    assert web.url == caught.value.filename


def test_redirects(web):
    with serving(b"") as front:
        front.always = servers.status(302, Location=web.url)
        with RemoteStorage(front.url) as storage:
            assert len(DATA) == storage.size
            assert DATA[-9:] == storage.read_at(len(DATA) - 9, 9)


def test_redirects_without_an_end(web):
    web.always = servers.status(302, Location=web.url)
    with pytest.raises(bp.StorageError):
        RemoteStorage(web.url)


@pytest.mark.parametrize("conditions", [True, False])
@pytest.mark.parametrize("validator", ["etag", "weak", "modified", "size"])
def test_file_that_changes(web, conditions, validator):
    web.conditions = conditions
    web.etag = {"etag": '"1"', "weak": 'W/"1"'}.get(validator, "")
    web.modified = "yesterday" if validator == "modified" else ""
    with RemoteStorage(web.url) as storage:
        web.etag = web.etag.replace("1", "2")
        web.modified = web.modified and "today"
        if validator == "size":
            web.content = Content(DATA + b"more")
        with pytest.raises(bp.StorageError, match="changed while it was read") as error:
            storage.read_at(100_000, 10)
        assert web.url == error.value.filename


def test_file_that_changes_during_the_first_requests(web):
    def change(handler):
        web.etag = '"2"'
        return False

    # The server does not tell the size with the first part.
    web.answers = [servers.status(416), None, change]
    with pytest.raises(bp.StorageError, match="changed while it was read"):
        RemoteStorage(web.url)
    assert ["GET", "HEAD", "GET"] == web.methods()


# Servers that send without an end


def unpack(url: str, **settings: object) -> object:
    return bp.unpack_bytes_from_file(url, **settings)


def unpack_to_file(url: str) -> object:
    return bp.unpack_file_from_file(url, "out")


def unpack_array(url: str) -> object:
    return bp.unpack_ndarray_from_file(url)


def open_whole(url: str) -> object:
    return bp.open_ndarray(url, whole=True)


def convert(url: str) -> object:
    return dataset.convert(url, "out.zarr")


def unpack_from_archive(url: str) -> object:
    return bp.unpack_bytes_from_file("zip://a.blp::" + url)


def unpack_from_cache(url: str) -> object:
    return bp.unpack_bytes_from_file("simplecache::" + url)


@pytest.mark.parametrize(
    "read",
    [
        *(unpack, unpack_to_file, unpack_array, open_whole, dataset.open, convert),
        *(unpack_from_archive, unpack_from_cache),
    ],
)
def test_response_without_an_end(web, read, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for module in (remote, http_session):
        monkeypatch.setattr(module, "MAX_UNANNOUNCED", 2**20)
    # A header that claims many chunks, and zeros.
    web.always = servers.unending(block=large_header() + bytes(2**16))
    with pytest.raises((bp.StorageError, bp.FormatError)):
        read(web.url)
    assert web.sent < 32 * 2**20
    assert [] == os.listdir(tmp_path)


def large_header() -> bytes:
    return bp.headers.BloscpackHeader(
        typesize=1, chunk_size=2**20, last_chunk=2**20, nchunks=2**20
    ).encode()


def test_limits_hold_for_a_file_that_is_read_whole():
    sent = []

    class Counted(servers.RepeatedContent):
        def read(self, start, stop):
            sent.append(stop - start)
            return super().read(start, stop)

    content = Counted(large_header(), bytes(2**20), 2**8)
    limits = {"nbytes": 10**6}
    with serving(content) as web:
        web.ranges = False
        for read in (unpack, partial(bp.open_ndarray, whole=True), read_as_file):
            with pytest.raises(bp.FormatError, match="the limit is '1000000'"):
                read(web.url, limits=limits)
    assert sum(sent) < 2**27


def test_limits_hold_for_a_response_without_an_end(web):
    """The header states few bytes, and then the server sends more and more."""
    header = bp.headers.BloscpackHeader(
        typesize=1, chunk_size=2**16, last_chunk=2**16, nchunks=4
    )
    for block in (header.encode(), b"no header at all"):
        web.always = servers.unending(block=block + bytes(2**20))
        before = web.sent
        with pytest.raises((bp.FormatError, bp.StorageError)):
            unpack(web.url, limits={"nbytes": 10**6})
        assert web.sent - before < 100 * 2**20


def test_document_of_a_dataset_that_is_too_long(web):
    """A server without ranges announces much; a document has at most 64 MiB."""
    web.ranges = False
    web.content = Content(b"{", 2**40)
    with pytest.raises((bp.FormatError, bp.StorageError)):
        dataset.open(web.url)


def read_as_file(url: str, **settings: object) -> object:
    with bp.open(url, whole=True, **settings) as fp:
        return fp.read(1)


def test_limits_allow_a_longer_response(monkeypatch):
    monkeypatch.setattr(remote, "MAX_UNANNOUNCED", 1000)
    packed = bp.pack_bytes_to_bytes(DATA)
    with serving(packed) as web:

        def answer(handler):
            if handler.command == "HEAD":
                return handler.fail(405)
            handler.send_response(200)
            handler.send_header("Connection", "close")
            handler.end_headers()
            handler.close_connection = True
            handler.wfile.write(packed)
            return True

        web.always = answer
        assert DATA == unpack(web.url, limits={"nbytes": len(DATA)})[0]
        with pytest.raises(bp.StorageError, match="more than '1000' bytes"):
            unpack(web.url)


def test_encoded_response_is_refused(web):
    bomb = gzip.compress(bytes(2**24))
    web.always = servers.unending(block=bomb, Content_Encoding="gzip")
    options = {"headers": {"Accept-Encoding": "gzip"}}
    for url in (web.url, "simplecache::" + web.url):
        own = options if url == web.url else {"http": options}
        with pytest.raises(bp.StorageError, match="encoded response"):
            bp.unpack_bytes_from_file(url, storage_options=own)
    accepted = {headers["Accept-Encoding"] for _, headers in web.requests}
    assert {"identity"} == accepted
    assert web.sent < 32 * 2**20


@pytest.mark.parametrize("number", [200, 206, 403, 404])
def test_part_without_an_end(web, number):
    span = "bytes 65536-%d/%d" % (len(DATA) - 1, len(DATA))
    with RemoteStorage(web.url) as storage:
        web.always = servers.unending(number, Content_Range=span)
        with pytest.raises(bp.StorageError):
            storage.read_at(0, len(DATA))
    assert web.sent < 32 * 2**20


def test_response_that_comes_too_slowly(web, monkeypatch):
    monkeypatch.setattr(remote_files, "REQUEST_SECONDS", 0.2)
    monkeypatch.setattr(remote_files, "MIN_SPEED", 10**9)
    monkeypatch.setattr(remote, "RETRY_SECONDS", 0)

    def answer(handler):
        if handler.command == "HEAD":
            return handler.fail(405)
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.close_connection = True
        for _ in range(1000):
            handler.wfile.write(b"x")
            if handler.web.ended.wait(0.01):
                break
        return True

    web.always = answer
    with pytest.raises(bp.StorageError, match="did not answer in time"):
        RemoteStorage(web.url)


@pytest.mark.parametrize("size", ["²", "9" * 19, "9" * 5000, "-1", "1_0", "x"])
def test_sizes_that_are_no_sizes(web, size):
    def answer(handler):
        if handler.command == "HEAD":
            return handler.fail(405)
        handler.send_response(206)
        span = ("bytes 0-65535/%s" % size).encode()
        handler._headers_buffer.append(b"Content-Range: %s\r\n" % span)
        handler.send_header("Content-Length", "65536")
        handler.end_headers()
        handler.wfile.write(DATA[:65536])
        return True

    web.always = answer
    with pytest.raises(bp.StorageError):
        RemoteStorage(web.url)


# Credentials


def redirecting(web: servers.WebServer, url: str):
    """Let a server redirect to a URL; return where it gets the credentials of a test.

    It yields URLs and settings, each with credentials for that server.
    """
    web.always = servers.status(302, Location=url)
    aiohttp = pytest.importorskip("aiohttp")
    login = aiohttp.BasicAuth("joe", "t0ken")

    async def get_client(**settings):
        return aiohttp.ClientSession(**{**settings, "headers": {"X-Key": "t0ken"}})

    yield web.url.replace("//", "//joe:t0ken@"), {}
    for settings in (
        {"client_kwargs": {"auth": login}},
        {"client_kwargs": {"headers": {"X-Key": "t0ken"}}},
        {"client_kwargs": {"cookies": {"key": "t0ken"}}},
        {"headers": {"X-Key": "t0ken", "authorization": "Bearer t0ken"}},
        {"cookies": {"key": "t0ken"}},
        {"params": {"key": "t0ken"}},
        {"get_client": get_client},
    ):
        yield web.url, settings


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")  # for headers
@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize("chain", ["", "simplecache::"])
def test_credentials_stay_with_the_host_they_are_for(web, number, chain):
    told = ("t0ken", base64.b64encode(b"joe:t0ken").decode())
    with serving(b"") as front:
        url, options = [*redirecting(front, web.url)][number]
        options = {"http": options} if chain else options
        with RemoteStorage(chain + url, storage_options=options) as storage:
            assert DATA[-9:] == storage.read_at(len(DATA) - 9, 9)
        assert front.requests
        if number != 6:  # the server of the test does not record the path
            assert any(secret in str(front.requests) for secret in told)
    assert web.requests
    assert not any(secret in str(web.requests) for secret in told)


def test_redirects_of_one_host_keep_the_credentials(web):
    """A relative URL, an absolute URL, and one of another port and back."""
    web.auth = "joe:t0ken"
    for location in ("/data.blp", web.url):
        web.requests.clear()
        web.answers = [servers.status(307, Location=location)] * 2
        with RemoteStorage(web.url.replace("//", "//joe:t0ken@")) as storage:
            assert DATA[-9:] == storage.read_at(len(DATA) - 9, 9)
    with serving(b"") as front:
        front.always = servers.status(302, Location=web.url)
        web.answers = [servers.status(302, Location=front.url), None] * 2
        with pytest.raises(bp.StorageError, match="answered 401 Unauthorized"):
            RemoteStorage(web.url.replace("//", "//joe:t0ken@"))


def test_a_server_echoes_what_is_sent_to_it(web):
    """Neither the secret itself nor another text of the server is shown."""

    def reason(handler):
        handler.send_response(403, "t0ken " + "t0ken"[::-1])
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return True

    def raw(text):
        def answer(handler):
            if handler.command == "HEAD":
                return handler.fail(405)
            handler.wfile.write(text.encode())
            handler.close_connection = True
            return True

        return answer

    ok = "HTTP/1.1 200 OK\r\n"
    for answer in (
        reason,
        raw("HTTP/1.1 n3kot\r\n\r\n"),
        raw("n3kot"),
        raw(ok + "n3kot\r\n\r\n"),
        raw(ok + "Transfer-Encoding: chunked\r\n\r\nn3kot\r\n"),
        raw(ok + "Content-Length: n3kot\r\n\r\n"),
        raw(ok + "Content-Encoding: n3kot\r\nContent-Length: 5\r\n\r\nn3kot"),
        raw("HTTP/1.1 206 n3kot\r\nContent-Range: bytes n3kot/9\r\n\r\n"),
        raw("HTTP/1.1 206 n3kot\r\nContent-Range: bytes 0-9/n3kot\r\n\r\n"),
        servers.status(302, Location="http://n3kot.invalid/"),
        servers.status(302, Location="http://127.0.0.1:n3kot/"),
        servers.status(302, Location="n3kot://h/"),
        servers.status(302, Location="http://127.0.0.1:1/n3kot"),
    ):
        web.always = answer
        options = {"headers": {"X-Key": "t0ken"}}
        for url in (web.url, "simplecache::" + web.url):
            own = options if url == web.url else {"http": options}
            with pytest.raises(bp.StorageError) as caught:
                RemoteStorage(url, storage_options=own)
            assert not any(t in text_of(caught.value) for t in ("t0ken", "n3kot"))


SECRETS = ("joe", "t0ken", "hidden")


def test_credentials_of_a_url(web):
    web.auth = "joe:t0ken"
    with RemoteStorage("http://joe:t0ken@%s/data.blp" % web.host) as storage:
        assert DATA[-9:] == storage.read_at(len(DATA) - 9, 9)
        assert "t0ken" not in str(storage.identity) + storage.name


def failures():
    yield servers.status(404)
    yield servers.status(403)
    yield servers.status(503)
    yield servers.cut
    yield servers.status(302, Location="http://joe:t0ken@[::bad/?t=t0ken")
    yield servers.status(302, Location="ftp://joe:t0ken@h/?t=t0ken")


@pytest.mark.parametrize("number", range(6))
def test_errors_hide_credentials(web, number):
    url = "http://joe:t0ken@%s/data.blp?sig=hidden" % web.host
    web.always = [*failures()][number]
    options = {"headers": {"X-Key": "hidden"}}
    with pytest.raises(bp.StorageError) as caught:
        RemoteStorage(url, storage_options=options)
    assert not any(secret in text_of(caught.value) for secret in SECRETS)
    assert web.url in str(caught.value)


@pytest.mark.parametrize(
    "url", ["nosuch://joe:t0ken@h/x?sig=hidden", "http://joe:t0ken@h:port/?sig=hidden"]
)
def test_errors_of_fsspec_hide_credentials(url):
    options = {"key": "hidden"}
    with pytest.raises(bp.BloscpackError) as caught:
        RemoteStorage(url, storage_options=options)
    assert not any(secret in text_of(caught.value) for secret in SECRETS)
    assert public_name(url) in str(caught.value)


@pytest.mark.parametrize("options", [{"nope": 1}, {"client_kwargs": {"nope": 1}}])
def test_unknown_setting(web, options):
    with pytest.raises(bp.UsageError, match="has no setting 'nope'"):
        RemoteStorage(web.url, storage_options=options)


# Other file systems


@pytest.fixture
def memory():
    fs = fsspec.filesystem("memory")
    yield fs
    fs.store.clear()


def test_memory(memory):
    memory.pipe("/x.blp", DATA)
    with RemoteStorage("memory://x.blp") as storage:
        assert len(DATA) == storage.size
        assert storage.identity is not None
        assert DATA[-9:] == storage.read_at(len(DATA) - 9, 9)
        time.sleep(0.01)
        memory.pipe("/x.blp", DATA[::-1])
        with pytest.raises(bp.StorageError, match="changed while it was read"):
            storage.read_at(len(DATA) - 9, 9)


def test_folder(tmp_path):
    with pytest.raises(bp.StorageError, match="directory"):
        RemoteStorage("file://%s" % tmp_path)


def test_archives_and_caches(web, tmp_path):
    import zipfile

    with zipfile.ZipFile(tmp_path / "z.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("in/x.blp", DATA)
    with serving((tmp_path / "z.zip").read_bytes()) as zipped:
        for url in (
            "zip://in/x.blp::file://%s/z.zip" % tmp_path,
            "zip://in/x.blp::" + zipped.url,
            "zip://in/x.blp::simplecache::" + zipped.url,
            "simplecache::" + web.url,
        ):
            with RemoteStorage(url) as storage:
                assert len(DATA) == storage.size
                extents = [(200_000, 200_009), (100_000, 100_003), (3, 5)]
                expected = [DATA[slice(*extent)] for extent in extents]
                assert expected == storage.read_many(extents)


@pytest.mark.parametrize("number", [403, 404, 503])
def test_only_a_missing_file_is_missing_in_a_chain(web, number):
    """fsspec takes each error of a server for a file that is not there."""
    web.always = servers.status(number)
    with pytest.raises(bp.StorageError, match=r"answered|No such file") as caught:
        RemoteStorage("simplecache::" + web.url)
    assert (number == 404) == isinstance(caught.value, FileNotFoundError)


@pytest.mark.parametrize("method", ["stored", "deflated", "tar"])
def test_archive_on_a_server_without_ranges(method):
    with serving(archived(DATA, method)) as web:
        web.ranges, web.auth = False, "joe:t0ken"
        scheme = "tar" if method == "tar" else "zip"
        url = scheme + "://in/x.blp::%shttp://joe:t0ken@" + web.host + "/all"
        for whole in (False, True):
            with pytest.raises(bp.StorageError, match=r"ranges.*simplecache::") as e:
                RemoteStorage(url % "", whole=whole)
            assert "t0ken" not in str(e.value)
        with RemoteStorage(url % "simplecache::") as storage:
            assert len(DATA) == storage.size
            expected = [DATA[200_000:200_009], DATA[3:5]]
            found = storage.read_many([(200_000, 200_009), (3, 5)])
            assert expected == found


def archived(data, method):
    """Return an archive with the file ``in/x.blp``."""
    import tarfile
    import zipfile

    with io.BytesIO() as fp:
        if method == "tar":
            # Longer than the first block that fsspec reads.
            content = {"in/x.blp": data, "more": bytes(6 * 2**20)}
            with tarfile.open(fileobj=fp, mode="w") as tar:
                for name, member in content.items():
                    info = tarfile.TarInfo(name)
                    info.size = len(member)
                    tar.addfile(info, io.BytesIO(member))
        else:
            kinds = {"stored": zipfile.ZIP_STORED, "deflated": zipfile.ZIP_DEFLATED}
            with zipfile.ZipFile(fp, "w", kinds[method]) as archive:
                archive.writestr("in/x.blp", data)
        return fp.getvalue()


def test_local_file_with_a_scheme_in_upper_case(tmp_path):
    name = "FILE://%s/x.blp" % tmp_path
    bp.pack_bytes_to_file(b"abc", name)
    assert (b"abc", None) == bp.unpack_bytes_from_file(name)
    with pytest.raises(bp.UsageError, match="HTTP is for reading"):
        bp.pack_bytes_to_file(b"abc", "HTTP://127.0.0.1:9/x.blp")
    assert ["x.blp"] == os.listdir(tmp_path)


def test_file_system_that_is_not_installed(monkeypatch, memory):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    # The class, if an earlier test has used it.
    known = sys.modules["fsspec.registry"]._registry
    monkeypatch.delitem(known, "s3", raising=False)
    with pytest.raises(bp.UsageError, match=r"Install s3fs .*\.\[s3\]"):
        RemoteStorage("s3://bucket/key")


def test_fsspec_is_not_installed(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "fsspec"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(bp.UsageError, match=r"'http://h/x' is a URL.*\.\[remote"):
        RemoteStorage("http://joe:t0ken@h/x")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://h/a.blp", "http://h/a.blp"),
        ("http://u:p@h:80/a?sig=1::2#x", "http://h:80/a?..."),
        ("http://u:p/q@h/x", "http://h/x"),
        ("http://u:p?q@h/x", "http://?..."),
        ("http://u:p@q@h/x", "http://h/x"),
        ("http://[::1]:80/x", "http://[::1]:80/x"),
        ("http://u:p@[::1]:80/x", "http://[::1]:80/x"),
        ("http://h:80/x@y", "http://h:80/x@y"),
        ("s3://b/k@x/y.blp", "s3://b/k@x/y.blp"),
        ("zip://a.blp::http://u:p@h/z.zip?t=1", "zip://a.blp::http://h/z.zip?..."),
        ("simplecache::http://u:p@h/b?s=//x", "simplecache::http://h/b?..."),
    ],
)
def test_public_name(url, shown):
    assert shown == public_name(url)
    assert is_url(url)


@pytest.mark.parametrize(
    "name",
    ["a", "/x", "C://x", "a b://x", "http:/x", b"http://x", "::http://x", "-://x"],
)
def test_no_url(name):
    assert not is_url(name)


@pytest.mark.parametrize(
    "url",
    ["http://h", "http://h/", "http://h/..", "s3://b/%/", "s3://", "zip://::s3://"],
)
def test_no_last_part(url):
    with pytest.raises(bp.UsageError, match="--output"):
        last_part(url)
