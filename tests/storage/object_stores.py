"""Servers with the interface of S3 on the loopback interface: moto, and rclone.

rclone ignores conditions such as ``If-Match``.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

KEYS = {"key": "joe-key", "secret": "t0ken-secret"}
SECRETS = tuple(KEYS.values())


def options_for(port: int) -> dict[str, object]:
    """Return the settings of s3fs for a server on this machine."""
    return {
        **KEYS,
        "client_kwargs": {
            "endpoint_url": "http://127.0.0.1:%d" % port,
        },
    }


@contextmanager
def moto(folder: Path):
    """Yield the settings of s3fs for moto."""
    server_module = pytest.importorskip(
        "moto.server", reason="the extra 'test-integrations' is not installed"
    )
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    server._server.app = one_at_a_time(server._server.app)
    try:
        yield options_for(server.get_host_and_port()[1])
    finally:
        server.stop()


def one_at_a_time(app):
    """Return an application for WSGI that answers one request at a time.

    moto compares a version and stores the object in two steps.
    """
    lock = threading.Lock()

    def answer(environ, start_response):
        with lock:
            return list(app(environ, start_response))

    return answer


@contextmanager
def rclone(folder: Path):
    """Yield the settings of s3fs for ``rclone serve s3``."""
    program = shutil.which("rclone", path=os.path.dirname(sys.executable))
    program = program or shutil.which("rclone")
    if program is None:
        pytest.skip("the extra 'test-integrations' is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "objects").mkdir()
    command = [program, "serve", "s3", "--addr", "127.0.0.1:%d" % port]
    command += ["--auth-key", "%(key)s,%(secret)s" % KEYS, str(folder / "objects")]
    command += ["--config", str(folder / "no.conf"), "--vfs-cache-mode", "off"]
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        end = time.monotonic() + 20
        while True:
            assert process.poll() is None, (folder / "log").read_text()
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert time.monotonic() < end
                time.sleep(0.05)
        yield options_for(port)
    finally:
        process.terminate()
        process.wait()


def make_bucket(options):
    """Make an empty bucket; moto keeps the one of an earlier test."""
    import s3fs

    fs = s3fs.S3FileSystem(**options)
    if fs.exists("bucket"):
        fs.rm("bucket", recursive=True)
    fs.mkdir("bucket")
