"""The contract of `Storage`: one battery that every storage passes.

A new storage is one more entry in `STORAGES`: a context manager that gets a folder and
the content, and gives a function that makes the storage.
"""

import io
import itertools
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from builders import half_changed, packed

import bloscpack
from bloscpack._commit.undo import settled_file
from bloscpack._storage import base
from bloscpack._storage.base import (
    BLOCKS_AT_A_TIME,
    MemoryStorage,
    PartStorage,
    Storage,
    StorageFile,
    write_blocks,
)
from bloscpack._storage.local import (
    LocalStorage,
    storage_of,
    whole_file,
    writes_at_end,
)
from bloscpack._storage.remote import ReadAhead, RemoteStorage
from bloscpack.reader import Reader

DATA = bytes(range(256)) * 4
FRONT = b"bytes in front of the content"
SIZES = (0, 1, 7, 100, len(DATA), len(DATA) + 1, 2**40)

needs_preadv = pytest.mark.skipif(not hasattr(os, "preadv"), reason="needs preadv")


class ShortReads(io.BytesIO):
    """A file object that gives at most three bytes at a time."""

    def read(self, size=-1):
        return super().read(min(size, 3))


@contextmanager
def memory(folder, content):
    yield MemoryStorage(content)


@contextmanager
def scattered_memory(folder, content):
    twice = bytes(byte for byte in content for _ in range(2))
    yield MemoryStorage(memoryview(twice)[::2])


@contextmanager
def file_object(folder, content):
    yield storage_of(io.BytesIO(content))


@contextmanager
def short_reads(folder, content):
    yield storage_of(ShortReads(content))


@contextmanager
def file_object_behind_its_start(folder, content):
    fp = io.BytesIO(FRONT + content)
    fp.seek(len(FRONT))
    yield storage_of(fp)


@contextmanager
def local_file(folder, content):
    (folder / "file").write_bytes(content)
    with open(folder / "file", "rb") as fp:
        yield storage_of(fp)


@contextmanager
def unbuffered_local_file(folder, content):
    (folder / "file").write_bytes(content)
    with open(folder / "file", "rb", buffering=0) as fp:
        yield storage_of(fp)


@contextmanager
def local_file_behind_its_start(folder, content):
    (folder / "file").write_bytes(FRONT + content)
    with open(folder / "file", "rb") as fp:
        fp.read(len(FRONT))
        yield storage_of(fp)


@contextmanager
def file_over_a_storage(folder, content):
    yield storage_of(io.BufferedReader(StorageFile(MemoryStorage(content)), 16))


@contextmanager
def half_changed_file(folder, content):
    """A file that ends with an undo record, without its header."""
    path = folder / "file"
    old = packed(b"") + content
    path.write_bytes(half_changed(old, [(0, 40), (len(old) - 30, len(old))]))
    with path.open("rb") as fp:
        storage = storage_of(settled_file(fp))
        yield PartStorage(storage, len(old) - len(content), len(old))


@contextmanager
def remote_file(folder, content):
    fsspec = pytest.importorskip("fsspec", reason="the extra 'remote' is not installed")
    fsspec.filesystem("memory").pipe("/file", content)
    with RemoteStorage("memory://file") as storage:
        yield storage


@contextmanager
def part_of_a_local_file(folder, content):
    (folder / "file").write_bytes(FRONT + content + b"behind")
    with open(folder / "file", "rb") as fp:
        yield PartStorage(storage_of(fp), len(FRONT), len(FRONT) + len(content))


@contextmanager
def part_of_a_remote_file(folder, content):
    with remote_file(folder, FRONT + content + b"behind") as storage:
        yield PartStorage(storage, len(FRONT), len(FRONT) + len(content))


@contextmanager
def remote_file_read_ahead(folder, content):
    with remote_file(folder, content) as storage:
        yield ReadAhead(storage)


STORAGES: dict[str, Callable[[Path, bytes], object]] = {
    "memory": memory,
    "scattered memory": scattered_memory,
    "file object": file_object,
    "short reads": short_reads,
    "file object behind its start": file_object_behind_its_start,
    "local file": local_file,
    "unbuffered local file": unbuffered_local_file,
    "local file behind its start": local_file_behind_its_start,
    "file over a storage": file_over_a_storage,
    "half changed file": half_changed_file,
    "remote file": remote_file,
    "part of a local file": part_of_a_local_file,
    "part of a remote file": part_of_a_remote_file,
    "remote file, read ahead": remote_file_read_ahead,
}


@pytest.fixture(params=STORAGES)
def kind(request):
    return STORAGES[request.param]


@pytest.fixture
def storage(kind, tmp_path):
    with kind(tmp_path, DATA) as storage:
        yield storage


def test_size(storage):
    assert isinstance(storage, Storage)
    assert len(DATA) == storage.size


def test_whole(storage):
    assert DATA == storage.read_at(0, len(DATA))


OFFSETS = (0, 1, 500, len(DATA) - 1, len(DATA), 2000, 2**40)


def test_read_at_is_a_slice(storage):
    for offset, size in itertools.product(OFFSETS, SIZES):
        assert DATA[offset : offset + size] == storage.read_at(offset, size)


def test_read_into_fills_the_view(storage):
    for offset, size in itertools.product(OFFSETS[:-1], SIZES[:-1]):
        room = bytearray(b"-" * (size + 2))
        count = storage.read_into(memoryview(room)[1:-1], offset)
        expected = DATA[offset : offset + size]
        assert len(expected) == count
        assert expected == room[1 : 1 + count]
        assert b"--" == room[:1] + room[-1:]


@pytest.mark.parametrize("span", [(0, 1024), (3, 1000), (5, 5), (1000, 3000)])
def test_blocks(storage, span, monkeypatch):
    monkeypatch.setattr(base, "READ_SIZE", 50)
    blocks = [*storage.read_blocks(*span)]
    assert DATA[slice(*span)] == b"".join(blocks)
    assert all(len(block) <= 50 for block in blocks)


def test_empty(kind, tmp_path):
    with kind(tmp_path, b"") as storage:
        assert 0 == storage.size
        assert b"" == storage.read_at(0, 1)


def test_many_threads(storage):
    """Also a storage that is not concurrent gives each thread the right bytes."""
    spans = [(offset, size) for offset in range(0, 1024, 37) for size in (1, 100)] * 10

    def read(span):
        return storage.read_at(*span)

    with ThreadPoolExecutor(8) as pool:
        for (offset, size), found in zip(spans, pool.map(read, spans), strict=True):
            assert DATA[offset : offset + size] == found


def test_negative_offset(storage):
    with pytest.raises(ValueError, match="-3"):
        storage.read_at(-3, 2)


def test_only_local_and_remote_files_have_an_identity(kind, tmp_path):
    with kind(tmp_path, DATA) as storage:
        known = isinstance(
            storage, (LocalStorage, RemoteStorage, ReadAhead, PartStorage)
        )
        assert known == (storage.identity is not None)


def test_other_content_has_another_identity(kind, tmp_path):
    found = []
    for content in (DATA, DATA[::-1], DATA[:-1]):
        with kind(tmp_path, content) as storage:
            hash(storage.identity)
            found.append(storage.identity)
    known = [identity for identity in found if identity is not None]
    assert len(set(known)) == len(known)


def test_reader_over_any_storage(kind, tmp_path):
    packed = bloscpack.pack_bytes_to_bytes(DATA, 100)
    with kind(tmp_path, packed) as storage:
        reader = Reader(storage)
        assert len(DATA) == reader.nbytes
        for nthreads in (1, 3):
            assert DATA[250:777] == reader.read(250, 777, nthreads=nthreads)


def test_storage_as_a_file(storage):
    with io.BufferedReader(StorageFile(storage), 16) as fp:
        assert DATA == fp.read()
        assert 100 == fp.seek(100)
        assert DATA[100:110] == fp.read(10)
        assert DATA[-5:] == fp.read(fp.seek(-5, os.SEEK_END))
        assert b"" == fp.read(1)
        assert 2000 == fp.seek(2000)
        assert b"" == fp.read(1)


# Which storage a file object gets, and which threads may read it


@needs_preadv
def test_all_threads_read_a_half_changed_file(tmp_path):
    with half_changed_file(tmp_path, DATA) as storage:
        assert storage.concurrent


def test_a_storage_behind_a_file_object_is_used_itself():
    inner = MemoryStorage(DATA)
    fp = io.BufferedReader(StorageFile(inner))
    assert storage_of(fp) is inner
    fp.read(10)
    assert not storage_of(fp).concurrent
    assert DATA[10:20] == storage_of(fp).read_at(0, 10)
    assert whole_file(fp) is inner


@pytest.mark.parametrize("how", ["whole", "part", "no bytes", "no such call"])
def test_write_blocks(tmp_path, monkeypatch, how):
    """Blocks are written also where the system takes a part of them at a time."""
    blocks = [bytes([n % 256]) * (n % 5) for n in range(2 * BLOCKS_AT_A_TIME + 3)]
    if how == "no such call" or not hasattr(os, "pwritev"):
        monkeypatch.delattr(os, "pwritev", raising=False)
    elif how != "whole":
        write = os.pwrite
        monkeypatch.setattr(
            os,
            "pwritev",
            lambda fd, part, at: (
                write(fd, b"".join(part)[:99], at) if how == "part" else 0
            ),
        )
    with open(tmp_path / "f", "w+b") as fp:
        write_blocks(fp, [b"front"], 0)
        write_blocks(fp, blocks, 7)
        fp.seek(0)
        assert b"front\0\0" + b"".join(blocks) == fp.read()


@pytest.mark.parametrize("mode", ["ab", "r+b"])
def test_file_that_is_written_at_its_end(tmp_path, monkeypatch, mode):
    with open(tmp_path / "file", "wb"), open(tmp_path / "file", mode) as fp:
        assert (mode == "ab") == writes_at_end(fp)
        monkeypatch.setitem(sys.modules, "fcntl", None)  # not on Windows
        assert (mode == "ab") == writes_at_end(fp)
