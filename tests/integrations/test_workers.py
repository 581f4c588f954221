"""Handles that a process has opened, in the worker processes that it starts."""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import sys
from contextlib import contextmanager

import pytest
from integrations import worker_program
from integrations.worker_program import ITEMS
from storage.object_stores import make_bucket, moto
from storage.servers import serving_folder
from support import environment

import bloscpack as bp
from bloscpack import dataset


def write(folder):
    """Write what the workers read to a folder on the disk."""
    chunks = {"chunks": (32, 100), "shards": (128, 100)}
    dataset.create_array(folder / "array.zarr", ITEMS, **chunks).close()
    dataset.create_table(folder / "table.zarr", {"x": ITEMS}).close()
    with dataset.create_group(folder / "group.zarr") as group:
        group.create_array("x", ITEMS, **chunks).close()
    bp.pack_ndarray_to_file(ITEMS, folder / "file.blp", chunk_size="32K")
    bp.savez(folder / "archive.zip", x=ITEMS)


@contextmanager
def on_disk(folder):
    """Yield the address of the folder and the settings of fsspec: none."""
    yield str(folder), None


@contextmanager
def over_http(folder):
    """Yield the URL of the folder on a web server."""
    with serving_folder(folder) as server:
        yield server.url, None


@contextmanager
def in_s3(folder):
    """Yield the URL of a copy of the folder in a bucket, and the settings of s3fs."""
    with moto(folder) as options:
        make_bucket(options)
        s3fs = pytest.importorskip("s3fs", reason="the extra 's3' is not installed")
        fs = s3fs.S3FileSystem(**options)
        fs.put(str(folder) + "/", "bucket/copy", recursive=True)
        yield "s3://bucket/copy", options


@pytest.mark.full
@pytest.mark.parametrize("place", [on_disk, over_http, in_s3])
@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_workers_read_with_handles_of_their_parent(tmp_path, method, place):
    """The handles are inherited by a fork, and pickled for a new process."""
    write(tmp_path)
    with place(tmp_path) as (folder, options):
        settings = {"method": method, "folder": folder, "options": options}
        program = [sys.executable, worker_program.__file__, json.dumps(settings)]
        subprocess.run(program, check=True, timeout=120, env=environment())
