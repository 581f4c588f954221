"""A file that stays open while parts of it are read, and while it grows."""

import io
import os
import random
import threading
import weakref
from itertools import pairwise

import numpy as np
import pytest
from builders import layout, packed

import bloscpack
from bloscpack import FormatError, StorageError, UsageError, append
from bloscpack._arrays.loader import ChunkCache
from bloscpack._file import opened
from bloscpack._file.opened import OpenedFile
from bloscpack._storage.base import MemoryStorage

PLAIN = np.random.default_rng(3).bytes(2500) + bytes(1234)
MORE = np.random.default_rng(4).bytes(777)
CHECKSUMS = ["None", "adler32"]


class Far(MemoryStorage):
    """Counts requests, and refuses reads of other kinds."""

    is_remote = True

    def __init__(self, data):
        super().__init__(data)
        self.requests = []

    def read_at(self, offset, nbytes):
        self.requests.append((offset, offset + nbytes))
        return super().read_at(offset, nbytes)

    def read_many(self, extents):
        assert extents
        return super().read_many(extents)


def opened_as(kind, data, tmp_path, **options):
    path = tmp_path / "a.blp"
    path.write_bytes(data)
    files = {
        "path": str(path),
        "file": io.BytesIO(data),
        "buffer": data,
        "far": Far(data),
    }
    return OpenedFile(files[kind], **options)


@pytest.mark.parametrize("kind", ["path", "file", "buffer", "far"])
@pytest.mark.parametrize("nthreads", [1, 3])
@pytest.mark.parametrize("cache", [0, 250, 10**6])
@pytest.mark.parametrize("offsets", [True, False])
def test_any_span(offsets, cache, nthreads, kind, tmp_path):
    data = packed(PLAIN, 100, offsets=offsets)
    draw = random.Random(5)
    with opened_as(
        kind, data, tmp_path, cache_nbytes=cache, nthreads=nthreads
    ) as opened:
        assert (len(PLAIN), len(data), 38) == (
            opened.nbytes,
            opened.cbytes,
            opened.nchunks,
        )
        for _ in range(50):
            start, stop = sorted(draw.choices(range(len(PLAIN) + 50), k=2))
            assert PLAIN[start:stop] == opened.read(start, stop)
        assert PLAIN == opened.read(0, 10**9)


def test_chunks_in_front_of_a_damaged_one_are_delivered(tmp_path):
    data = bytearray(packed(PLAIN, 100))
    with OpenedFile(bytes(data)) as opened:
        data[opened.extents()[20][0] + 20] ^= 1
    for nthreads in (1, 3):
        got = []
        with (
            OpenedFile(bytes(data), nthreads=nthreads) as opened,
            pytest.raises(FormatError, match="chunk 20"),
        ):
            opened.load(range(38), lambda _, plain: bytes(plain), deliver=got.append)
        assert PLAIN[:2000] == b"".join(got)


@pytest.mark.parametrize("checksum", CHECKSUMS)
def test_file_that_grows_while_its_chunks_are_delivered(checksum, tmp_path):
    path, got = tmp_path / "a.blp", []
    path.write_bytes(packed(PLAIN, 100, checksum=checksum))

    def deliver(plain):
        got.append(plain)
        if len(got) in (5, 30):
            append.append_bytes_to_file(MORE, path)

    with OpenedFile(path, nthreads=1, cache_nbytes=0) as opened:
        if checksum == "None":  # nothing proves that the chunks were read whole
            with pytest.raises(StorageError, match="changed each time"):
                opened.load(range(38), lambda _, plain: bytes(plain), deliver=deliver)
        else:
            opened.load(range(38), lambda _, plain: bytes(plain), deliver=deliver)
            assert PLAIN == b"".join(got)
        memory = bytearray(len(PLAIN))
        opened.read_into(memoryview(memory), 0)
        assert PLAIN == memory


def test_requests_from_far(tmp_path):
    noise = np.random.default_rng(6).bytes(10**6)
    storage = Far(packed(noise, 10_000))
    with OpenedFile(storage) as opened:
        storage.requests.clear()
        assert noise[5:25_000] == opened.read(5, 25_000)
        assert 1 == len(storage.requests)  # neighbours are read together
        storage.requests.clear()
        opened.load([10, 13, 90], lambda number, plain: None)
        assert 2 == len(storage.requests)  # what lies between is little
        storage.requests.clear()
        assert noise[-5:] == opened.read(10**6 - 5, 10**6)
        assert 1 == len(storage.requests)
        storage.requests.clear()
        assert noise == opened.read(0, 10**6)
        assert 5 == len(storage.requests)  # those around the chunks in the cache


def test_cached_chunks_are_read_once(tmp_path):
    storage = Far(packed(PLAIN, 100))
    with OpenedFile(storage, cache_nbytes=250) as opened:
        for position in (0, 99, 100, 150, 0):
            opened.read(position, position + 1)
        before = len(storage.requests)
        opened.read(120, 130)
        assert before == len(storage.requests)
        opened.read(220, 230)  # drops the chunk that was used least recently
        opened.read(10, 20)
        assert before + 2 == len(storage.requests)


class Counted(io.BytesIO):
    """Counts the reads."""

    nreads = 0

    def read(self, *size):
        self.nreads += 1
        return super().read(*size)


def test_a_local_chunk_that_is_read_again_is_kept():
    plain = np.arange(1000).tobytes()  # each chunk has a single block
    file, nreads, memory = Counted(packed(plain, 800)), [], memoryview(bytearray(9))
    with OpenedFile(file) as opened:
        for number in (3, 3, 5, 3, 5, 3):
            file.nreads = 0
            opened.read_into(memory, 800 * number + 1)
            assert plain[800 * number + 1 :][:9] == memory
            nreads.append(file.nreads)
    # The last chunk is in memory until another one is read, and kept after two reads.
    assert [1, 0, 1, 1, 0, 0] == nreads


# Files that change


def grown_later(checksum):
    args = bloscpack.BloscpackArgs(checksum=checksum, max_app_chunks=2000)
    return bloscpack.pack_bytes_to_bytes(PLAIN, 100, bloscpack_args=args)


@pytest.mark.parametrize("checksum", CHECKSUMS)
@pytest.mark.parametrize("chunk_size", [100, 1000, "1M"])
def test_appended_file_stays_what_it_was(chunk_size, checksum, tmp_path):
    data = packed(PLAIN, chunk_size, checksum=checksum)
    with opened_as("path", data, tmp_path, cache_nbytes=0) as opened:
        for _ in range(3):
            append.append_bytes_to_file(MORE, tmp_path / "a.blp")
            assert PLAIN == opened.read(0, 10**9)
            assert len(PLAIN) == opened.nbytes
    with OpenedFile(tmp_path / "a.blp") as again:
        assert PLAIN + 3 * MORE == again.read(0, again.nbytes)


@pytest.mark.parametrize("checksum", CHECKSUMS)
def test_while_an_append_is_under_way(checksum, tmp_path):
    """Its new chunks are behind the old end; nothing else is changed yet."""
    path = tmp_path / "a.blp"
    path.write_bytes(packed(PLAIN, 1000, checksum=checksum))
    opened = OpenedFile(path, cache_nbytes=0)

    class Halfway(Exception):
        pass

    def content():
        yield MORE
        assert PLAIN == opened.read(0, 10**9)
        with OpenedFile(path) as later:
            assert PLAIN == later.read(0, 10**9)
        raise Halfway

    class Fp(io.RawIOBase):
        parts = content()

        def read(self, size=-1):
            return next(self.parts)

    with pytest.raises(Halfway):
        append.append_from(path, Fp(), 10 * len(MORE), nthreads=1)
    assert PLAIN == opened.read(0, 10**9)
    opened.close()


@pytest.mark.parametrize("checksum", CHECKSUMS)
def test_replaced_file_stays_open(checksum, tmp_path):
    with opened_as("path", packed(PLAIN, 100, checksum=checksum), tmp_path) as opened:
        bloscpack.pack_bytes_to_file(b"other", tmp_path / "a.blp")
        assert PLAIN == opened.read(0, 10**9)


@pytest.mark.parametrize("checksum", CHECKSUMS)
def test_change_of_the_file_that_replaced_it_is_ignored(checksum, tmp_path):
    path = tmp_path / "a.blp"
    path.write_bytes(packed(PLAIN, 100, checksum=checksum))
    with OpenedFile(path, cache_nbytes=0) as opened:
        bloscpack.pack_bytes_to_file(PLAIN * 3, path, 100)

        class Fp(io.BytesIO):
            def read(self, size=-1):
                assert PLAIN == opened.read(0, 10**9)
                return super().read(size)

        append.append_from(path, Fp(MORE), len(MORE), nthreads=1)
        assert PLAIN == opened.read(0, 10**9)


def test_foreign_writer_is_noticed(tmp_path):
    with opened_as("path", packed(PLAIN, 100), tmp_path, cache_nbytes=0) as opened:
        (tmp_path / "a.blp").write_bytes(packed(PLAIN[::-1][:500], 90))
        with pytest.raises(StorageError, match="more than an append"):
            opened.read(0, 10**9)


@pytest.mark.parametrize("checksum", CHECKSUMS)
def test_chunks_of_another_file_in_the_same_places_are_noticed(checksum, tmp_path):
    path = tmp_path / "a.blp"
    settings = {"clevel": 0, "checksum": checksum}
    path.write_bytes(packed(PLAIN, 100, **settings))
    other = bytearray(packed(PLAIN[::-1], 100, **settings))
    with OpenedFile(path, cache_nbytes=0) as opened:
        assert len(other) == opened.cbytes
        assert PLAIN[:10] == opened.read(0, 10)
        path.write_bytes(other)
        for start in (500, 0, len(PLAIN) - 10):
            with pytest.raises(StorageError, match="more than an append"):
                opened.read(start, start + 10)


@pytest.mark.parametrize("checksum", CHECKSUMS)
def test_time_of_the_last_change_may_differ(checksum, tmp_path):
    path = tmp_path / "a.blp"
    path.write_bytes(packed(PLAIN, 100, checksum=checksum))
    with OpenedFile(path, cache_nbytes=0) as opened:
        for start in (0, 500, 900):
            assert PLAIN[start : start + 10] == opened.read(start, start + 10)
            os.utime(path, ns=(1, start))
        assert PLAIN == opened.read(0, len(PLAIN))


@pytest.mark.parametrize("offsets", [True, False])
def test_another_file_written_over_it_is_noticed(offsets, tmp_path):
    (tmp_path / "a.blp").write_bytes(packed(PLAIN, 1000, offsets=offsets))
    with OpenedFile(tmp_path / "a.blp") as parts:
        assert PLAIN[:1000] == parts.read(0, 1000)
        # The same inode, the same number of plain bytes, chunks of other sizes.
        other = packed(bytes(len(PLAIN)), 1000, offsets=offsets)
        (tmp_path / "a.blp").write_bytes(other)
        with pytest.raises(StorageError, match="changed by more than an append"):
            parts.read(0, len(PLAIN))


def test_another_file_is_noticed_before_a_chunk_was_read(tmp_path):
    """The last chunk is not where it was, so that the headers of all are read."""
    noise, zeros = PLAIN[:2000], bytes(1000)
    content, other = packed(noise + zeros, 1000), packed(zeros + noise, 1000)
    assert len(content) == len(other)
    (tmp_path / "a.blp").write_bytes(content)
    with OpenedFile(tmp_path / "a.blp") as parts:
        (tmp_path / "a.blp").write_bytes(other)
        with pytest.raises(StorageError, match="changed by more than an append"):
            parts.read(2990, 3000)


@pytest.mark.parametrize("checksum", CHECKSUMS)
def test_threads_read_while_another_appends(checksum, tmp_path):
    path = tmp_path / "a.blp"
    path.write_bytes(grown_later(checksum))
    done = threading.Event()
    failures = []

    def read(seed):
        draw = random.Random(seed)
        while not done.is_set():
            start, stop = sorted(draw.choices(range(len(PLAIN) + 50), k=2))
            if PLAIN[start:stop] != opened.read(start, stop):
                failures.append((start, stop))

    with OpenedFile(path, cache_nbytes=0, nthreads=1) as opened:
        threads = [threading.Thread(target=read, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for _ in range(60):
            append.append_bytes_to_file(MORE, path, sync=False)
        done.set()
        for thread in threads:
            thread.join()
    assert [] == failures


def test_cached_chunk_of_another_state_is_not_used():
    cache = ChunkCache(10**6)
    with OpenedFile(packed(PLAIN, 100)) as file:
        last = file.nchunks - 1
        file._cache = cache
        cache.put(last, PLAIN)
        assert PLAIN == file.read(0, len(PLAIN))
        got = []
        cache.put(last, PLAIN)
        file.load([last], lambda number, plain: got.append(bytes(plain)))
        assert [PLAIN[100 * last :]] == got


@pytest.mark.parametrize("moved", [-20, -1, 1, 20])
@pytest.mark.parametrize("far", [False, True])
def test_last_entry_of_the_table_is_wrong(far, moved):
    data = bytearray(packed(PLAIN, 100))
    with OpenedFile(bytes(data)) as file:
        last = file.nchunks - 1
        entry = file.state.entry_offset(last)
        true = int(file.state.offsets[last])
    data[entry : entry + 8] = (true + moved).to_bytes(8, "little")
    for nthreads in (1, 3):
        with OpenedFile(Far(data) if far else data, nthreads=nthreads) as file:
            assert PLAIN == file.read(0, len(PLAIN))


class Sparse(MemoryStorage):
    """A file with zeros at its end, of which no large part may be read."""

    def __init__(self, data, size):
        super().__init__(data)
        self.size = size

    def read_into(self, view, offset):
        assert len(view) < 10**6
        return super().read_into(view, offset)


def test_table_that_states_a_huge_chunk_takes_no_memory():
    data = bytearray(packed(PLAIN[:300], 100))
    with OpenedFile(bytes(data)) as file:
        entry = file.state.entry_offset(1)
    for number in (0, 1):
        at = entry + 8 * number
        data[at : at + 8] = (2**32 + 10**4 * number).to_bytes(8, "little")
    with (
        OpenedFile(Sparse(data, 2**33)) as file,
        pytest.raises(FormatError, match="chunk 1 starts at byte 4294967296"),
    ):
        file.read(0, 10)


def test_file_that_announces_more_bytes_than_memory_has():
    with OpenedFile(packed(PLAIN, 1000)) as file:
        file.nbytes = 2**62  # as if the header had that many chunks
        with pytest.raises(FormatError, match="there is no memory"):
            file.read(0, file.nbytes)


def test_damaged_chunk_is_named_with_its_file(tmp_path):
    data = bytearray(packed(PLAIN, 100))
    data[-10] ^= 1
    with opened_as("path", bytes(data), tmp_path) as opened:
        assert PLAIN[:3000] == opened.read(0, 3000)
        with pytest.raises(FormatError, match=r"chunk 37") as caught:
            opened.read(0, 10**9)
        assert str(tmp_path / "a.blp") == caught.value.filename


def test_errors_close_the_file(tmp_path):
    (tmp_path / "a.blp").write_bytes(b"no such file")
    with pytest.raises(FormatError):
        OpenedFile(tmp_path / "a.blp")
    with pytest.raises(TypeError, match="a path, a URL, a file object or bytes"):
        OpenedFile(3.5)


# A file whose end is missing


@pytest.mark.parametrize("missing", [1, 50, 1500])
@pytest.mark.parametrize("checksum", CHECKSUMS)
def test_chunks_before_the_missing_end(checksum, missing, tmp_path):
    data = packed(PLAIN, 100, checksum=checksum)
    with opened_as("path", data[:-missing], tmp_path) as opened:
        assert PLAIN[:200] == opened.read(0, 200)
        with pytest.raises(FormatError, match=r"ends too early|expected"):
            opened.read(0, 10**9)
    with open(tmp_path / "a.blp", "rb") as fp:
        assert PLAIN[:200] == bloscpack.Reader(fp).read(0, 200)


def test_file_that_grows_while_it_is_opened(tmp_path, monkeypatch):
    """Its size and its header are read one after the other."""
    path = tmp_path / "a.blp"
    path.write_bytes(packed(PLAIN, 1000))
    (tmp_path / "more").write_bytes(bytes(10_000))
    genuine = opened.whole_file

    def growing(fp):
        found = genuine(fp)
        if path.stat().st_size < 10_000:
            append(path, tmp_path / "more", clevel=0)
        return found

    monkeypatch.setattr(opened, "whole_file", growing)
    with OpenedFile(path) as file:
        assert PLAIN + bytes(10_000) == file.read(0, 20_000)


READS = {
    "open_ndarray": lambda array: array[:],
    "Reader": lambda reader: reader.read(0, 80_000),
    "loadz": lambda archive: archive["arr_0"][:],
    "open": lambda file: file.read(80_000),
}


@pytest.mark.parametrize("read", READS)
def test_a_file_object_is_kept(read, tmp_path):
    """Its descriptor would be that of the next file, whose chunks are as valid."""
    save = bloscpack.savez if read == "loadz" else bloscpack.save
    for name, value in (("a", 0.0), ("b", 1.0)):
        save(tmp_path / name, np.full(10_000, value))
    fp = open(tmp_path / "a", "rb")  # noqa: SIM115
    opened, kept = getattr(bloscpack, read)(fp), weakref.ref(fp)
    del fp
    with open(tmp_path / "b", "rb"):
        found = READS[read](opened)
    assert {0.0} == {*np.frombuffer(bytes(found), "f8")}
    kept().close()


@pytest.mark.parametrize("read", ["open_ndarray", "Reader", "open"])
def test_a_file_object_that_is_closed(read, tmp_path):
    for name in "ab":
        bloscpack.save(tmp_path / name, np.zeros(10_000))
    with open(tmp_path / "a", "rb") as fp:
        opened = getattr(bloscpack, read)(fp)
    with (
        open(tmp_path / "b", "rb"),
        pytest.raises(ValueError, match="closed file"),
    ):
        READS[read](opened)


@pytest.mark.parametrize("read", ["open_ndarray", "Reader", "loadz"])
def test_a_file_object_that_can_not_seek(read):
    class Pipe(io.RawIOBase):
        def readable(self):
            return True

    with pytest.raises(UsageError, match="save its content in a file first"):
        getattr(bloscpack, read)(Pipe())


def test_a_chunk_larger_than_the_cache_drops_no_other_chunk():
    """The chunks of a file of an unknown chunk size may have any sizes."""
    cuts, nreads = [0, 100, 200, 300, 400, 1900, 2500], []
    chunks = [PLAIN[start:stop] for start, stop in pairwise(cuts)]
    file, memory = Counted(layout(3, chunks)), memoryview(bytearray(9))
    with OpenedFile(file, cache_nbytes=500) as opened:
        for start in (10, 110, 10, 450, 110, 450, 450, 10):
            file.nreads = 0
            opened.read_into(memory, start)
            assert PLAIN[start : start + 9] == memory
            nreads.append(file.nreads)
    assert [1, 1, 1, 1, 1, 1, 1, 0] == nreads
