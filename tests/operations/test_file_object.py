"""`bloscpack.open` and `BloscpackFile`, beside what `test_tests_of_bz2` shows."""

from __future__ import annotations

import bz2
import gc
import gzip
import io
import lzma
import os
import pickle
import random
import signal
import tarfile
import threading
import warnings

import blosc
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import BLP, ShortReads, golden_files, keep_little, run_python

import bloscpack as bp
from bloscpack import exceptions

CHUNK = 4096
DATA = random.Random(1).randbytes(CHUNK) * 9 + b"end\n"


def packed(data=DATA, chunk_size=CHUNK, **settings):
    return bp.pack_bytes_to_bytes(data, chunk_size=chunk_size, **settings)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.blp"


@pytest.fixture
def filled(path):
    bp.pack_bytes_to_file(DATA, path, chunk_size=CHUNK)
    return path


def written(data, pieces=(1000,), **settings):
    """Return what a file object that can seek contains after writes of some sizes."""
    with io.BytesIO() as fp:
        write(fp, data, pieces, **settings)
        return fp.getvalue()


def write(file, data, pieces=(1000,), mode="wb", **settings):
    with bp.open(file, mode, **settings) as out:
        position = number = 0
        while position < len(data):
            size = pieces[number % len(pieces)]
            assert len(data[position : position + size]) == out.write(
                data[position : position + size]
            )
            position, number = position + size, number + 1
            assert min(position, len(data)) == out.tell()


class Sequential(io.RawIOBase):
    """A file object that can be written and can't seek."""

    def __init__(self):
        self.data = b""

    def writable(self):
        return True

    def write(self, data):
        self.data += bytes(data[:100_000])
        return min(len(data), 100_000)


# Reading: the same as io.BytesIO

SIZES = st.integers(-1, 3 * CHUNK)
POSITIONS = st.integers(0, len(DATA))
STEPS = st.one_of(
    st.tuples(st.sampled_from(["read", "readline"]), SIZES),
    st.tuples(st.just("readinto"), st.integers(0, 3 * CHUNK)),
    st.tuples(st.just("seek"), POSITIONS, st.just(0)),
    st.tuples(st.just("next")),
    st.tuples(st.just("peek")),
    st.tuples(st.just("pread"), SIZES, st.integers(0, len(DATA) + CHUNK)),
    st.tuples(st.just("read1"), SIZES),
)


def do(file, step, model):
    name, *args = step
    if name == "readinto":
        buffer = bytearray(args[0])
        return file.readinto(buffer), buffer
    if name == "next":
        return next(file, b"")
    if name == "peek":
        if model:
            return file.getvalue()[file.tell() :]
        return file.peek()
    if name == "pread":
        if model:
            stop = None if args[0] < 0 else args[1] + args[0]
            return file.getvalue()[args[1] : stop]
        return file.pread(*args)
    return getattr(file, name)(*args)


@settings(max_examples=200)
@given(st.lists(STEPS, max_size=20), st.sampled_from([1, 2]), st.booleans())
def test_like_bytesio(steps, nthreads, offsets):
    model = io.BytesIO(DATA)
    content = packed(offsets=offsets)
    with bp.open(io.BytesIO(content), nthreads=nthreads) as file:
        for step in steps:
            expected, found = do(model, step, True), do(file, step, False)
            if step[0] == "peek":
                assert expected.startswith(found)
                assert bool(found) == bool(expected)
            elif step[0] == "read1":
                assert model.getvalue()[file.tell() - len(found) :].startswith(found)
                assert bool(found) == bool(expected)
                model.seek(file.tell())
            else:
                assert expected == found
            assert model.tell() == file.tell()


@pytest.mark.parametrize("pieces", [(1,), (10, 70_000), (-1,)])
@pytest.mark.parametrize("unknown", [False, True])
def test_pipe(pieces, unknown):
    content = packed()
    if unknown:
        sink = Sequential()
        write(sink, DATA, chunk_size=CHUNK)
        content = sink.data
    with bp.open(ShortReads(content + b"behind")) as file:
        assert not file.seekable()
        assert file.readable()
        with pytest.raises(OSError, match="seek"):
            file.seek(0)
        with pytest.raises(OSError, match="seek"):
            file.pread(1, 0)
        found = b""
        if unknown:
            with pytest.raises(bp.FormatError):
                file.read()
            return
        assert file.metadata is None
        for piece in pieces * len(DATA):
            data = file.read(piece)
            if not data:
                break
            found += data
            assert len(found) == file.tell()
        assert DATA == found
        assert b"" == file.read(1)


def test_golden_files():
    entries = golden_files()
    count = 0
    for entry in entries[::7]:
        content = (BLP / entry["file"]).read_bytes()
        try:
            expected = bp.unpack_bytes_from_bytes(content)[0]
        except bp.FormatError:
            continue
        with bp.open(BLP / entry["file"]) as file:
            assert expected == file.read()
            assert expected[-10:] == file.pread(10, max(0, len(expected) - 10))
            file.seek(0)
            assert expected == b"".join(iter(lambda: file.read(5000), b""))
        with bp.open(ShortReads(content, (100_000,))) as file:
            assert expected == file.read()
        count += 1
    assert count > 20


def test_pipe_of_system(tmp_path):
    name = tmp_path / "pipe"
    os.mkfifo(name)
    threading.Thread(target=lambda: name.write_bytes(packed())).start()
    with bp.open(name) as file:
        assert not file.seekable()
        assert DATA == b"".join(file)


def test_file_object_from_its_position():
    fp = io.BytesIO(b"before" + packed())
    fp.seek(6)
    with bp.open(fp) as file:
        assert DATA == file.read()
        assert DATA[5:10] == file.pread(5, 5)
    assert not fp.closed


def test_metadata(path):
    bp.pack_bytes_to_file(DATA, path, metadata={"unit": "m"})
    with bp.open(path) as file:
        assert {"unit": "m"} == file.metadata
        assert str(path) == file.name
        assert "rb" == file.mode
    with pytest.raises(ValueError, match="closed"):
        _ = file.metadata
    with bp.open(path.open("rb")) as file:
        assert {"unit": "m"} == file.metadata
        file._file.close()


def test_pread_of_many_threads(filled):
    failures = []

    def read(seed):
        random_ = random.Random(seed)
        for _ in range(200):
            offset = random_.randrange(len(DATA))
            size = random_.choice([1, 3, random_.randrange(2 * CHUNK)])
            if DATA[offset : offset + size] != file.pread(size, offset):
                failures.append((offset, size))

    with bp.open(filled, nthreads=2) as file:
        assert DATA[:5] == file.read(5)
        threads = [threading.Thread(target=read, args=[i]) for i in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [] == failures
        assert 5 == file.tell()
        with pytest.raises(ValueError, match="negative"):
            file.pread(1, -1)


def test_file_grows_meanwhile(filled):
    with bp.open(filled) as file:
        assert DATA[:10] == file.read(10)
        write(filled, DATA, mode="ab")
        assert DATA[10:] == file.read()
    with bp.open(filled) as file:
        assert 2 * DATA == file.read()


# Wrong input


def damaged(number):
    """Return a file in which a chunk is damaged."""
    content = bytearray(packed())
    start = int.from_bytes(content[32 + 8 * number :][:8], "little")
    content[start + 100] ^= 1
    return bytes(content)


@pytest.mark.parametrize("seekable", [True, False])
@pytest.mark.parametrize("size", [100, CHUNK, 3 * CHUNK, 20 * CHUNK])
def test_damaged_chunk(size, seekable):
    content = damaged(5)
    fp = io.BytesIO(content) if seekable else ShortReads(content)
    with bp.open(fp) as file:
        found = b""
        while len(found) < 5 * CHUNK:
            found += file.read1(size)
        with pytest.raises(exceptions.ChecksumMismatch, match="chunk 5") as caught:
            file.read1(size)
        assert 5 == caught.value.chunk
        assert DATA[: 5 * CHUNK] == found
        if seekable:
            file.seek(6 * CHUNK)
            assert DATA[6 * CHUNK :] == file.read()
            file.seek(0)
            assert DATA[:CHUNK] == file.read(CHUNK)
            with pytest.raises(exceptions.ChecksumMismatch, match="chunk 5"):
                file.pread(1, 5 * CHUNK)
            assert DATA[:1] == file.pread(1, 0)
        else:
            with pytest.raises(exceptions.ChecksumMismatch, match="chunk 5"):
                file.read()


@pytest.mark.parametrize("seekable", [True, False])
def test_truncated(seekable):
    content = packed()
    for size in (*range(40), *range(100, len(content), 977), len(content) - 1):
        cut = content[:size]
        with bp.open(io.BytesIO(cut) if seekable else ShortReads(cut)) as file:
            assert seekable == file.seekable()
            with pytest.raises(EOFError) as caught:
                file.read()
            assert isinstance(caught.value, bp.FormatError)
            assert not isinstance(caught.value, ValueError)
    with bp.open(ShortReads(content[:-1])) as file:
        assert DATA[:CHUNK] == file.read(CHUNK)


OTHER = [
    ("a bare Blosc buffer", blosc.compress(b"abc" * 100, typesize=1)),
    ("a gzip file", gzip.compress(b"abc")),
    ("a zstd file", b"\x28\xb5\x2f\xfd\x04\x00\x19\x00\x00abc"),
    ("a bzip2 file", bz2.compress(b"abc")),
    ("an xz file", lzma.compress(b"abc")),
    ("a .npy file; 'blpk compress --npy' packs its array", b"\x93NUMPY\x01\x00"),
    ("one that begins b'abcd'", b"abcd" * 10),
]


@pytest.mark.parametrize(("name", "content"), OTHER, ids=[name for name, _ in OTHER])
@pytest.mark.parametrize("seekable", [True, False])
def test_other_format(name, content, seekable, path):
    path.write_bytes(content)
    expected = "expected a Bloscpack file, found " + name
    file = bp.open(path if seekable else ShortReads(content))
    for method in ("read", "readline", "peek", "read1"):
        with pytest.raises(exceptions.NotReadable) as caught:
            getattr(file, method)()
        assert expected == caught.value.message
        assert isinstance(caught.value, OSError)
    assert not seekable or str(path) in str(caught.value)
    file.close()
    file.close()


def test_limits():
    for fp in (io.BytesIO(packed()), ShortReads(packed())):
        with (
            bp.open(fp, limits=bp.Limits(nbytes=100)) as file,
            pytest.raises(bp.FormatError, match="limit"),
        ):
            file.read()


# Writing

LENGTHS = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 600_000, 2**20, 3 * 2**20 + 5]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("chunk_size", [CHUNK, "1M"])
def test_same_file_as_pack(length, chunk_size, path):
    data = np.arange(length // 8 + 1).tobytes()[:length]
    how = {"chunk_size": chunk_size, "metadata": {"a": 1}, "cname": "lz4"}
    expected = bp.pack_bytes_to_bytes(data, **how)
    for nthreads in (1, 2):
        for pieces in ((999, 5_000, 100_000), (2**22,)):
            write(path, data, pieces, nthreads=nthreads, **how)
            assert expected == path.read_bytes()
            assert expected == written(data, pieces, nthreads=nthreads, **how)


@pytest.mark.parametrize("entries", [4, 60, 300])
@pytest.mark.parametrize("free", [None, 0, 7])
def test_large_file(entries, free, path, monkeypatch):
    keep_little(monkeypatch, 3 * CHUNK, entries)
    data = random.Random(2).randbytes(100 * CHUNK + 5)
    how = {} if free is None else {"max_app_chunks": free}
    write(path, data, (1000, 10_000), chunk_size=CHUNK, metadata=[1], **how)
    assert (data, [1]) == bp.unpack_bytes_from_file(path)
    assert [] == bp.verify(path).findings
    found = bp.info(path)
    assert (101, CHUNK, 5) == (
        found.header.nchunks,
        found.header.chunk_size,
        found.header.last_chunk,
    )
    assert max(entries - 101, free or 0) == found.offsets.free
    bp.append_bytes_to_file(b"more", path)
    assert (data + b"more", [1]) == bp.unpack_bytes_from_file(path)
    # A file object that can seek gets no table.
    content = written(data, chunk_size=CHUNK, metadata=[1])
    assert (data, [1]) == bp.unpack_bytes_from_bytes(content)
    assert 101 == int.from_bytes(content[16:24], "little")


@pytest.mark.skipif(os.name == "nt", reason="an open file can't be removed")
def test_only_the_temporary_file_is_written(path, tmp_path, monkeypatch):
    """Another user, who can write to the folder, puts a link in its place."""
    keep_little(monkeypatch, 3 * CHUNK, 4)
    victim, data = tmp_path / "victim", random.Random(2).randbytes(100 * CHUNK)
    victim.write_bytes(b"precious" * 100 * CHUNK)
    before = victim.read_bytes()
    file = bp.open(path, "wb", chunk_size=CHUNK)
    file.write(data)
    (temporary,) = tmp_path.glob(".*.tmp")
    temporary.unlink()
    temporary.symlink_to(victim)
    with pytest.raises(exceptions.StorageError, match="replaced the temporary"):
        file.close()
    assert before == victim.read_bytes()
    assert not path.exists()


@pytest.mark.parametrize("length", LENGTHS)
def test_to_pipe(length):
    sink = Sequential()
    data = np.arange(length // 8 + 1).tobytes()[:length]
    write(sink, data, chunk_size=CHUNK)
    assert -1 == int.from_bytes(sink.data[16:24], "little", signed=True)
    assert (data, None) == bp.unpack_bytes_from_bytes(sink.data)
    assert not sink.closed


def test_flush_ends_no_chunk(path):
    with bp.open(path, "wb", chunk_size=CHUNK) as file:
        for start in range(0, len(DATA), 500):
            file.write(DATA[start : start + 500])
            file.flush()
    assert packed() == path.read_bytes()


def test_flush_stores_every_chunk_that_is_complete():
    sink = Sequential()
    with bp.open(sink, "wb", chunk_size=1000) as file:
        file.write(np.random.default_rng(1).bytes(3500))
        assert b"" == sink.data
        file.flush()
        assert 3 * 1000 < len(sink.data) < 4 * 1000


@pytest.mark.parametrize("mode", ["wb", "ab"])
def test_path_changes_when_complete(mode, filled):
    old = filled.read_bytes()
    file = bp.open(filled, mode, chunk_size=CHUNK)
    file.write(DATA * 20)
    file.flush()
    assert old == filled.read_bytes()
    with pytest.raises(bp.StorageError, match="another writer"):
        bp.open(filled, mode)
    file.close()
    file.close()
    assert (DATA * (21 if mode == "ab" else 20), None) == bp.unpack_bytes_from_file(
        filled
    )
    assert [filled.name] == os.listdir(filled.parent)


class Stop(Exception):
    pass


def write_and_stop(file, content):
    with file:
        file.write(content)
        raise Stop


@pytest.mark.parametrize("mode", ["wb", "ab", "wt", "at"])
@pytest.mark.parametrize("end", ["with", "delete"])
def test_unfinished(mode, end, filled):
    old = filled.read_bytes()
    text = "t" in mode
    content = "abc" * 10**6 if text else DATA * 100
    if end == "delete":
        file = bp.open(filled, mode, **({"encoding": "utf-8"} if text else {}))
        file.write(content)
        files = [file]
        del file
        with pytest.warns(ResourceWarning, match=r"a\.blp"):
            files.clear()
    else:
        file = bp.open(filled, mode, **({"encoding": "utf-8"} if text else {}))
        with pytest.raises(Stop):
            write_and_stop(file, content)
        assert file.closed
    assert old == filled.read_bytes()
    assert [filled.name] == os.listdir(filled.parent)
    write(filled, DATA)  # the lock is free


def test_new_file_after_an_error(path):
    with pytest.raises(Stop):
        write_and_stop(bp.open(path, "xb"), DATA)
    assert [] == os.listdir(path.parent)


KILLED = """
import os, signal, sys
import bloscpack
file = bloscpack.open(sys.argv[1], sys.argv[2])
for _ in range(10):
    file.write(os.urandom(10**7))
file.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("mode", ["wb", "ab"])
def test_killed(mode, filled):
    done = run_python("-c", KILLED, filled, mode)
    assert -signal.SIGKILL == done.returncode
    assert (DATA, None) == bp.unpack_bytes_from_file(filled)
    write(filled, b"new", mode=mode)
    assert (DATA * (mode == "ab") + b"new", None) == bp.unpack_bytes_from_file(filled)
    assert [filled.name] == os.listdir(filled.parent)


AT_EXIT = """
import sys
import bloscpack
file = bloscpack.open(sys.argv[1], "wb")
file.write(b"abc" * 10**7)
pipe = bloscpack.open(sys.stdin.buffer.raw)
pipe.read(1)
"""


def test_end_of_program(filled):
    done = run_python(
        "-W", "always", "-c", AT_EXIT, filled, input=packed(b"abc" * 10**6)
    )
    assert 0 == done.returncode
    assert b"Traceback" not in done.stderr
    assert (DATA, None) == bp.unpack_bytes_from_file(filled)
    assert [filled.name] == os.listdir(filled.parent)


FULL = """
import resource, signal, sys
import bloscpack
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
import os
try:
    with bloscpack.open(sys.argv[1], sys.argv[2]) as file:
        for _ in range(100):
            file.write(os.urandom(10**6))
except OSError as error:
    print(type(error).__name__, error.filename)
"""


@pytest.mark.parametrize("mode", ["wb", "ab"])
def test_full_disk(mode, filled):
    done = run_python("-c", FULL, filled, mode, text=True)
    assert "" == done.stderr
    assert "OSError" in done.stdout
    assert mode == "ab" or str(filled) in done.stdout
    assert (DATA, None) == bp.unpack_bytes_from_file(filled)
    assert [filled.name] == os.listdir(filled.parent)


class Failing(io.RawIOBase):
    """A file object whose writes fail from some number of bytes on."""

    def __init__(self, limit):
        self._left = limit

    def write(self, data):
        self._left -= len(data)
        if self._left < 0:
            raise OSError("no room")
        return len(data)


def write_much(file):
    for _ in range(1000):
        file.write(random.randbytes(CHUNK))


def test_error_of_the_output():
    file = bp.open(Failing(CHUNK), "wb", chunk_size=CHUNK, nthreads=2)
    with pytest.raises(OSError, match="no room"):
        write_much(file)
    with pytest.raises(bp.StorageError, match="nothing more can be written"):
        file.write(b"a")
    with pytest.raises(bp.StorageError, match="no room"):
        file.close()
    assert file.closed
    file.close()


def test_dev_full():
    with (
        pytest.raises(OSError, match="No space"),
        bp.open("/dev/full", "wb") as file,
    ):
        file.write(DATA)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_child_process(filled):
    old = filled.read_bytes()
    file = bp.open(filled, "wb", nthreads=2)
    file.write(DATA * 500)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if not child:
        try:
            file.write(DATA)
        except bp.UsageError:
            with warnings.catch_warnings():
                del file
                gc.collect()
            os._exit(7)
        os._exit(1)
    assert 7 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert old == filled.read_bytes()
    file.close()
    assert (DATA * 500, None) == bp.unpack_bytes_from_file(filled)


# Appending


def test_append(filled):
    old = bp.info(filled)
    write(filled, DATA * 3, mode="ab", clevel=9, chunk_size="1M", metadata=None)
    assert (DATA * 4, None) == bp.unpack_bytes_from_file(filled)
    assert old.header.chunk_size == bp.info(filled).header.chunk_size
    with bp.open(filled, "ab"):
        pass
    assert (DATA * 4, None) == bp.unpack_bytes_from_file(filled)


def test_append_to_nothing(path):
    write(path, DATA, mode="ab", chunk_size=CHUNK)
    assert packed() == path.read_bytes()
    path.write_bytes(b"")
    write(path, DATA, mode="ab", chunk_size=CHUNK)
    assert packed() == path.read_bytes()


def test_append_beyond_the_room(path):
    bp.pack_bytes_to_file(DATA, path, chunk_size=CHUNK, max_app_chunks=0, metadata=[1])
    write(path, DATA, mode="ab")
    assert (DATA * 2, [1]) == bp.unpack_bytes_from_file(path)
    write(path, DATA, mode="ab", metadata=[2])
    assert (DATA * 3, [2]) == bp.unpack_bytes_from_file(path)


def test_append_to_what_is_no_file(path):
    path.write_bytes(b"abc" * 100)
    with pytest.raises(exceptions.NotReadable, match="magic"):
        bp.open(path, "ab")
    assert b"abc" * 100 == path.read_bytes()
    bp.pack_ndarray_to_file(np.zeros((3, 4)), path)
    with pytest.raises(bp.UsageError), bp.open(path, "ab") as file:
        file.write(b"abc")
    assert (3, 4) == bp.unpack_ndarray_from_file(path).shape
    write(path, bytes(32), mode="ab")
    assert (4, 4) == bp.unpack_ndarray_from_file(path).shape


def test_append_to_file_object():
    fp = io.BytesIO()
    for number in range(1, 4):
        write(fp, DATA, mode="ab")
        assert (DATA * number, None) == bp.unpack_bytes_from_bytes(fp.getvalue())
    with pytest.raises(bp.UsageError, match="can seek"):
        bp.open(Sequential(), "ab")


def test_exclusive(filled):
    with pytest.raises(FileExistsError) as caught:
        bp.open(filled, "xb")
    assert str(filled) == caught.value.filename


# Arguments and state


def test_arguments(path):
    for call, error in [
        (lambda: bp.open(path, "rw"), ValueError),
        (lambda: bp.open(path, "wtb"), ValueError),
        (lambda: bp.open(path, "wb", encoding="utf-8"), ValueError),
        (lambda: bp.open(path, "wb", clevel=10), ValueError),
        (lambda: bp.open(path, "wb", compresslevel=10), ValueError),
        (lambda: bp.open(path, "wb", compresslevel=3, clevel=3), TypeError),
        (lambda: bp.open(path, "wb", level=3, clevel=3), TypeError),
        (lambda: bp.open(path, "wb", level=3, compresslevel=3), TypeError),
        (lambda: bp.open(path, "wb", lvl=3), TypeError),
        (lambda: bp.open(path, "rb", lvl=3), TypeError),
        (lambda: bp.open(path, "wb", nthreads=0), ValueError),
        (lambda: bp.open(path, "wb", chunk_size=0), ValueError),
        (lambda: bp.open(path, "wb", checksum="other"), ValueError),
        (lambda: bp.open(path, "wb", metadata=object()), bp.UsageError),
        (lambda: bp.open(path, "wt", encoding="other"), LookupError),
        (lambda: bp.open(1.5), TypeError),
        (lambda: bp.open(3, "wb"), TypeError),
        (lambda: bp.open(path), FileNotFoundError),
        (lambda: bp.open(path.parent), IsADirectoryError),
        (lambda: bp.open(path / "a", "wb"), OSError),
    ]:
        with pytest.raises(error):
            call()
        assert [] == os.listdir(path.parent)


def test_arguments_of_another_mode(path, filled):
    before = filled.read_bytes()
    for name, value in {
        "clevel": 4,
        "checksum": "crc32",
        "chunk_size": "4K",
        "metadata": {},
        "sync": False,
    }.items():
        for mode in ("rb", "rt"):
            with pytest.raises(bp.UsageError, match="'%s' needs a mode for" % name):
                bp.open(filled, mode, **{name: value})
    for name, value in {"limits": bp.Limits(nbytes=9), "whole": True}.items():
        for mode in ("wb", "xb", "ab"):
            with pytest.raises(bp.UsageError, match="'%s' needs the mode 'rb'" % name):
                bp.open(path, mode, **{name: value})
    assert before == filled.read_bytes()
    assert not path.exists() or path == filled
    # Wrappers pass the level of bz2 for any mode.
    bp.open(filled, "rb", compresslevel=3).close()
    for fp in (filled, ShortReads(before)):
        for nthreads in (0, "2"):
            with pytest.raises(bp.UsageError, match="'nthreads' must be"):
                bp.open(fp, "rb", nthreads=nthreads)


@pytest.mark.parametrize("mode", [None, 5, b"rb"])
def test_a_mode_is_a_string(mode, filled):
    with pytest.raises(exceptions.UsageTypeError, match="'mode' must be of type 'str'"):
        bp.open(filled, mode)


def test_file_object_of_text(filled):
    expected = "expected a binary file object, found one of text"
    with open(filled, encoding="latin-1") as fp:
        for call in (bp.open, bp.open_ndarray, bp.Reader):
            with pytest.raises(exceptions.UsageTypeError, match=expected):
                call(fp)
    for mode in ("rb", "wb", "ab", "rt", "wt"):
        with pytest.raises(exceptions.UsageTypeError, match=expected):
            bp.open(io.StringIO(), mode)


def test_text_is_refused():
    with bp.open(io.BytesIO(), "wb") as file:
        with pytest.raises(TypeError):
            file.write("text")
        assert 3 == file.write(memoryview(b"abcdef")[::2])


@pytest.mark.parametrize("mode", ["rb", "wb"])
def test_refusals(mode, filled):
    with bp.open(filled, mode) as file:
        with pytest.raises(io.UnsupportedOperation, match="descriptor"):
            file.fileno()
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            with pytest.raises(TypeError, match="cannot pickle 'BloscpackFile'"):
                pickle.dumps(file, protocol)
        other = ["write", "read"][mode == "wb"]
        with pytest.raises(io.UnsupportedOperation, match="not open for"):
            getattr(file, other)(*[b"a"] * (mode == "rb"))
        with pytest.raises(io.UnsupportedOperation):
            file.truncate()
    for call in (file.read, file.readline, file.flush, file.tell, file.seekable):
        with pytest.raises(ValueError, match="closed"):
            call()


def test_name_and_mode(path):
    for file, name in [
        (path, str(path)),
        (os.fsencode(path), os.fsencode(path)),
        (io.BytesIO(), None),
    ]:
        with bp.open(file, "wb") as out:
            assert "wb" == out.mode
            assert name == getattr(out, "name", None)


# Text, and what other modules do with file objects

TEXT = "zwei\r\nÄpfel\nund\r eine Birne"


@pytest.mark.parametrize("newline", [None, "", "\n", "\r\n"])
@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "UTF16", "utf-32", "latin-1"]
)
def test_text(newline, encoding, tmp_path):
    plain, compressed = tmp_path / "a", tmp_path / "a.blp"
    how = {"encoding": encoding, "newline": newline}
    for mode in ("wt", "at"):
        with (
            open(plain, mode, **how) as expected,
            bp.open(compressed, mode, **how) as file,
        ):
            for out in (expected, file):
                out.write(TEXT)
                out.write(TEXT)
    assert plain.read_bytes() == bp.unpack_bytes_from_file(compressed)[0]
    with open(plain, **how) as expected, bp.open(compressed, "rt", **how) as file:
        assert expected.readlines() == file.readlines()
        assert isinstance(file, io.TextIOWrapper)


def test_text_errors(path):
    write(path, b"a\xffb")
    with bp.open(path, "rt", encoding="ascii", errors="replace") as file:
        assert "a\ufffdb" == file.read()


def test_tar(path, tmp_path):
    (tmp_path / "member").write_bytes(DATA)
    with (
        bp.open(path, "wb") as out,
        tarfile.open(fileobj=out, mode="w") as tar,
    ):
        tar.add(tmp_path / "member", "member")
    for mode in ("r:", "r|"):
        with bp.open(path) as file, tarfile.open(fileobj=file, mode=mode) as tar:
            member = tar.next()
            assert DATA == tar.extractfile(member).read()


def test_numpy(path):
    array = np.arange(10**5)
    with bp.open(path, "wb") as file:
        np.save(file, array)
        np.save(file, array[:5])
    with bp.open(path) as file:
        assert (array == np.load(file)).all()
        assert (array[:5] == np.load(file)).all()
