"""`progress`: every function calls it with the plain bytes of each finished chunk."""

from __future__ import annotations

import io
import threading

import numpy as np
import pytest
from builders import layout

import bloscpack as bp
from bloscpack.append import append, append_fp, append_from
from bloscpack.file_io import pack_fp_to_fp, unpack_fp_to_fp
from bloscpack.npy_io import append_npy, pack_npy_to_file, unpack_npy_from_file
from bloscpack.recover import recover, recover_fp
from bloscpack.repacking import repack
from bloscpack.verify import verify, verify_fp

ARRAY = np.arange(2500, dtype="i4")
PLAIN = ARRAY.tobytes()
# Chunks of 4000 bytes: two full chunks and half a chunk.
SIZES = [4000, 4000, 2000]

CALLS = {
    "pack_file_to_file": lambda k: bp.pack_file_to_file("plain", "new", 4000, **k),
    "pack_bytes_to_file": lambda k: bp.pack_bytes_to_file(PLAIN, "new", 4000, **k),
    "pack_bytes_to_bytes": lambda k: bp.pack_bytes_to_bytes(PLAIN, 4000, **k),
    "pack_fp_to_fp": lambda k: with_files("plain", pack_fp_to_fp, 4000, **k),
    "pack_ndarray_to_file": lambda k: bp.pack_ndarray_to_file(ARRAY, "new", 4000, **k),
    "pack_ndarray_to_bytes": lambda k: bp.pack_ndarray_to_bytes(ARRAY, 4000, **k),
    "pack_npy_to_file": lambda k: pack_npy_to_file("npy", "new", 4000, **k),
    "unpack_file_from_file": lambda k: bp.unpack_file_from_file("blp", "new", **k),
    "unpack_bytes_from_file": lambda k: bp.unpack_bytes_from_file("blp", **k),
    "unpack_bytes_from_bytes": lambda k: bp.unpack_bytes_from_bytes(packed(), **k),
    "unpack_fp_to_fp": lambda k: with_files("blp", unpack_fp_to_fp, **k),
    "unpack_ndarray_from_file": lambda k: bp.unpack_ndarray_from_file("blp", **k),
    "unpack_ndarray_from_bytes": lambda k: bp.unpack_ndarray_from_bytes(packed(), **k),
    "unpack_npy_from_file": lambda k: unpack_npy_from_file("blp", "new", **k),
    "verify": lambda k: verify("blp", **k),
    "verify_fp": lambda k: verify_fp(io.BytesIO(packed()), **k),
    "recover": lambda k: recover("blp", "new", **k),
    "recover_fp": lambda k: recover_fp(io.BytesIO(packed()), io.BytesIO(), **k),
}
# These fill up the last chunk of the file and compress it again.
APPENDS = {
    "append": lambda k: append("blp", "plain", **k),
    "append_fp": lambda k: append_fp(io.BytesIO(packed()), open_plain(), 10000, **k),
    "append_from": lambda k: append_from("blp", open_plain(), 10000, **k),
    "append_npy": lambda k: append_npy("blp", "npy", **k),
}


def packed():
    return bp.pack_ndarray_to_bytes(ARRAY, 4000)


def open_plain():
    return io.BytesIO(PLAIN)


def with_files(name, function, *args, **kwargs):
    with open(name, "rb") as in_fp, open("new", "wb") as out_fp:
        function(in_fp, out_fp, *args, **kwargs)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain").write_bytes(PLAIN)
    (tmp_path / "blp").write_bytes(packed())
    with open("npy", "wb") as fp:
        np.save(fp, ARRAY)
    return tmp_path


@pytest.mark.parametrize("nthreads", [1, 3])
@pytest.mark.parametrize(
    ("call", "sizes"),
    [pytest.param(call, SIZES, id=name) for name, call in CALLS.items()]
    + [
        pytest.param(call, [4000, 4000, 4000], id=name)
        for name, call in APPENDS.items()
    ],
)
def test_called_for_each_chunk_by_the_calling_thread(call, sizes, nthreads):
    calls = []

    def progress(nbytes):
        calls.append((nbytes, threading.current_thread()))
        return False  # has no meaning

    call({"nthreads": nthreads, "progress": progress})
    assert sorted(sizes) == sorted(nbytes for nbytes, _ in calls)
    assert {threading.current_thread()} == {thread for _, thread in calls}


ROOM = {"max_app_chunks": 99}
NO_ROOM = {"max_app_chunks": 0}
WITH_TOTAL = {
    # name: (settings of the file, call, total)
    "append": (ROOM, lambda k: append("blp", "plain", **k), 12000),
    "append_npy": (ROOM, lambda k: append_npy("blp", "npy", grow=True, **k), 12000),
    "grow": (NO_ROOM, lambda k: append("blp", "plain", grow=True, **k), 30000),
    "offsets": (
        {"offsets": False},
        lambda k: append("blp", "plain", grow=True, **k),
        12000,
    ),
    "copy": (ROOM, lambda k: repack("blp", checksum="md5", **k), 10000),
    "cut": (ROOM, lambda k: repack("blp", chunk_size=1000, **k), 10000),
}


@pytest.mark.parametrize("nthreads", [1, 3])
@pytest.mark.parametrize(
    ("settings", "call", "total"), WITH_TOTAL.values(), ids=WITH_TOTAL
)
def test_total(settings, call, total, nthreads):
    bp.pack_ndarray_to_file(ARRAY, "blp", 4000, **settings)
    calls = []
    call({"nthreads": nthreads, "progress": calls.append, "expect": calls.append})
    assert total == calls[0] == sum(calls[1:])


def test_total_of_chunks_of_several_sizes(folder):
    plain = [bytes([i]) * size for i, size in enumerate((7, 20, 5))]
    (folder / "blp").write_bytes(layout(3, plain))
    calls = []
    append("blp", "plain", grow=True, progress=calls.append, expect=calls.append)
    assert calls[0] == sum(calls[1:])


@pytest.mark.parametrize(
    "call",
    [pytest.param(call, id=name) for name, call in {**CALLS, **APPENDS}.items()],
)
def test_an_error_that_it_raises_stops_the_work(call, tmp_path):
    def progress(nbytes):
        raise LookupError("enough")

    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(LookupError, match="enough"):
        call({"progress": progress})
    after = {path.name for path in tmp_path.iterdir()}
    # `pack_fp_to_fp` and `unpack_fp_to_fp` leave the file to the caller.
    assert before == sorted(after - {"new"})
    assert packed() == (tmp_path / "blp").read_bytes()
