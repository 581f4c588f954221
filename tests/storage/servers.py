"""Web servers on the loopback interface, which misbehave as a test asks."""

from __future__ import annotations

import base64
import hashlib
import socket
import threading
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Content:
    """Bytes that are made when they are read, so that a file can be large."""

    def __init__(self, data: bytes = b"", size: int | None = None) -> None:
        self.data = data
        self.size = len(data) if size is None else size

    def read(self, start: int, stop: int) -> bytes:
        stop = min(stop, self.size)
        return self.data[start:stop].ljust(max(0, stop - start), b"\0")


class RepeatedContent(Content):
    """A beginning, and then the same bytes again and again."""

    def __init__(self, begin: bytes, repeated: bytes, count: int) -> None:
        super().__init__(begin, len(begin) + count * len(repeated))
        self.repeated = repeated

    def read(self, start: int, stop: int) -> bytes:
        begin, stop = len(self.data), min(stop, self.size)
        if start < begin:
            return self.data[start:stop] + self.read(begin, max(begin, stop))
        first, offset = divmod(start - begin, len(self.repeated))
        count = -(-(stop - begin) // len(self.repeated)) - first
        return (self.repeated * max(0, count))[offset : offset + stop - start]


class WebServer:
    """A server of one file, and the record of the requests to it.

    Parameters
    ----------
    data
        The content of the file, as bytes or `Content`.

    Attributes
    ----------
    requests
        ``(method, headers)`` of each request.
    answers
        Functions of the next requests, in order: each gets the handler and returns
        True if it has answered, so that the usual answer is left out.
    always
        Such a function for all later requests.
    ranges, etag, conditions, auth
        Whether the server knows ranges and ``If-Match``; its ETag; ``user:password``.
    sent
        Number of bytes that `unending` has sent.
    """

    def __init__(self, data: bytes | Content) -> None:
        self.content = data if isinstance(data, Content) else Content(data)
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.answers: list = []
        self.always = None
        self.ranges = True
        self.conditions = True
        self.head = True
        self.etag = '"1"'
        self.modified = ""
        self.auth = ""
        self.sent = 0
        self.ended = threading.Event()

    def methods(self) -> list[str]:
        return [method for method, _ in self.requests]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    web: WebServer

    def log_message(self, *arguments: object) -> None:
        """Print nothing."""

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        web = self.web
        web.requests.append((self.command, dict(self.headers)))
        special = web.answers.pop(0) if web.answers else web.always
        if special is not None and special(self):
            return
        self.answer_usually()

    def fail(self, status: int, **headers: str) -> bool:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()
        return True

    def span(self) -> tuple[int, int]:
        """Return the requested extent, the whole file without a range."""
        size = self.web.content.size
        text = self.headers.get("Range", "")
        if not (self.web.ranges and text):
            return 0, size
        first, _, last = text.removeprefix("bytes=").partition("-")
        if not first:
            return max(0, size - int(last)), size
        return int(first), min(int(last) + 1, size)

    def answer_usually(self, change=lambda data: data, length: int = 0) -> bool:
        web = self.web
        if web.auth:
            expected = "Basic " + base64.b64encode(web.auth.encode()).decode()
            if self.headers.get("Authorization") != expected:
                return self.fail(401)
        if self.command == "HEAD" and not web.head:
            return self.fail(405)
        condition = self.headers.get("If-Match")
        if web.conditions and condition and condition != web.etag:
            return self.fail(412)
        start, stop = self.span()
        partial = web.ranges and "Range" in self.headers
        self.send_response(206 if partial else 200)
        if partial:
            span = "bytes %d-%d/%d" % (start, stop - 1, web.content.size)
            self.send_header("Content-Range", span)
        if web.etag:
            self.send_header("ETag", web.etag)
        if web.modified:
            self.send_header("Last-Modified", web.modified)
        self.send_header("Content-Length", str(stop - start + length))
        self.end_headers()
        if self.command == "GET":
            for at in range(start, stop, 2**20):
                self.wfile.write(change(web.content.read(at, min(at + 2**20, stop))))
        return True


@contextmanager
def serving(data: bytes | Content):
    """Yield a `WebServer` that runs, with its ``url``."""
    web = WebServer(data)
    with running(Handler, web) as host:
        web.host, web.url = host, "http://%s/data.blp" % host
        try:
            yield web
        finally:
            web.ended.set()


@contextmanager
def running(handler, web):
    """Let a server answer with a class of handlers; yield its address and port."""
    own = type("ThisHandler", (handler,), {"web": web})

    class Server(ThreadingHTTPServer):
        daemon_threads = False  # the end of `with` waits for them

        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments)
            self.connections: set[socket.socket] = set()

        def process_request(self, request, address) -> None:
            self.connections.add(request)
            super().process_request(request, address)

        def shutdown_request(self, request) -> None:
            self.connections.discard(request)
            super().shutdown_request(request)

        def handle_error(self, request, address) -> None:
            """Print nothing if the client has closed the connection."""

    with Server(("127.0.0.1", 0), own) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield "127.0.0.1:%d" % server.server_port
        finally:
            server.shutdown()
            thread.join()
            # Clients keep connections open; each has a thread.
            for connection in [*server.connections]:
                with suppress(OSError):  # it has just ended
                    connection.shutdown(socket.SHUT_RDWR)


# Answers


def status(number: int, **headers: str):
    """Return an answer with a status and no content."""
    return lambda handler: handler.fail(number, **headers)


def stall(seconds: float = 60):
    """Return an answer that sends headers and half of the bytes, then nothing."""

    def answer(handler: Handler) -> bool:
        handler.answer_usually(lambda data: data[: len(data) // 2])
        handler.wfile.flush()
        end = time.monotonic() + seconds
        while time.monotonic() < end and not handler.web.ended.wait(0.02):
            pass
        handler.close_connection = True
        return True

    return answer


def cut(handler: Handler) -> bool:
    """Announce all bytes, send half of them, and close the connection."""
    handler.answer_usually(lambda data: data[: len(data) // 2])
    handler.close_connection = True
    return True


def short(handler: Handler) -> bool:
    """Send half of the range, with a length and a range that agree with it."""
    web, (start, stop) = handler.web, handler.span()
    if handler.command == "HEAD":
        return False
    stop = (start + stop) // 2
    handler.send_response(206)
    span = "bytes %d-%d/%d" % (start, stop - 1, web.content.size)
    handler.send_header("Content-Range", span)
    handler.send_header("ETag", web.etag)
    handler.send_header("Content-Length", str(stop - start))
    handler.end_headers()
    handler.wfile.write(web.content.read(start, stop))
    return True


def unending(number: int = 200, block: bytes = bytes(2**16), **headers: str):
    """Return an answer of a status in chunks that never end; HEAD is refused."""

    def answer(handler: Handler) -> bool:
        if handler.command == "HEAD":
            return handler.fail(405)
        handler.send_response(number)
        for name, value in {**headers, "Transfer-Encoding": "chunked"}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.close_connection = True
        # The end, for a client that reads on.
        while handler.web.sent < 64 * 2**20:
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(block), block))
            handler.web.sent += len(block)
        handler.wfile.write(b"0\r\n\r\n")
        return True

    return answer


def flip(handler: Handler) -> bool:
    """Flip a bit in the middle of the bytes."""

    def change(data: bytes) -> bytes:
        middle = len(data) // 2
        return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]

    return handler.answer_usually(change)


# Folders


class FolderHandler(BaseHTTPRequestHandler):
    """Sends the files in a folder, or the ranges of them that a client asks for."""

    protocol_version = "HTTP/1.1"
    web: FolderServer

    def log_message(self, *arguments: object) -> None:
        """Print nothing."""

    def do_OPTIONS(self) -> None:
        self.reply(204)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path).lstrip("/")
        self.web.requests.append((self.command, path))
        self.web.before(path)
        if path in self.web.refused:
            return self.reply(403)
        try:
            data = (self.web.root / path).read_bytes()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return self.reply(404)
        etag = '"%s"' % hashlib.sha256(data).hexdigest()
        if self.headers.get("If-Match", etag) != etag:
            return self.reply(412)
        text = self.headers.get("Range", "") if self.web.ranges else ""
        if not text:
            return self.reply(200, data, ETag=etag)
        first, _, last = text.removeprefix("bytes=").partition("-")
        start = int(first) if first else max(0, len(data) - int(last))
        stop = min(int(last) + 1, len(data)) if first and last else len(data)
        span = "bytes %d-%d/%d" % (start, stop - 1, len(data))
        return self.reply(
            206, data[start:stop], **{"ETag": etag, "Content-Range": span}
        )

    def reply(self, status: int, data: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)
            self.web.nbytes += len(data)


class FolderServer:
    """A static server of a folder.

    Attributes
    ----------
    root
        The folder.
    requests
        Method and path of each request.
    nbytes
        Number of bytes of all answers.
    refused
        Paths that the client must not read.
    ranges
        Whether the server knows ranges.
    before
        Called with the path of each request before it is answered.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.before = lambda path: None
        self.requests: list[tuple[str, str]] = []
        self.nbytes = 0
        self.refused: set[str] = set()
        self.ranges = True


@contextmanager
def serving_folder(root: Path):
    """Yield a `FolderServer` that runs, with its ``url``."""
    web = FolderServer(root)
    with running(FolderHandler, web) as host:
        web.url = "http://" + host
        yield web
