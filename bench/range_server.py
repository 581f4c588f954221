"""Serve a folder over HTTP on the loopback interface, each response after a delay.

``python range_server.py FOLDER SECONDS`` prints the port and runs until its standard
input ends. It answers ranges and keeps connections open.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Handler(BaseHTTPRequestHandler):
    """Answers HEAD and GET, whole files and single ranges."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # header and short bodies go out in one packet
    folder = Path()
    delay = 0.0

    def do_GET(self) -> None:
        """Send a file, or a range of it."""
        time.sleep(self.delay)
        path = self.folder / self.path.lstrip("/")
        if not path.is_file():
            self.send_error(404)
            return
        size = path.stat().st_size
        start, stop = 0, size
        found = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if found and found[1]:
            start = int(found[1])
            stop = min(size, int(found[2]) + 1 if found[2] else size)
        elif found:
            start = max(0, size - int(found[2]))
        self.send_response(206 if found else 200)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", '"%d-%d"' % (size, path.stat().st_mtime_ns))
        self.send_header("Content-Length", str(stop - start))
        if found:
            self.send_header(
                "Content-Range", "bytes %d-%d/%d" % (start, stop - 1, size)
            )
        self.end_headers()
        if self.command == "GET":
            with open(path, "rb") as fp:
                self.wfile.write(os.pread(fp.fileno(), stop - start, start))

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


class Server(ThreadingHTTPServer):
    """One thread for each connection."""

    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that close a connection early."""


def main() -> None:
    """Serve until the standard input ends."""
    Handler.folder = Path(sys.argv[1])
    Handler.delay = float(sys.argv[2])
    server = Server(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
