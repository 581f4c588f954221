"""Reading forward: positions, short reads, and counts that are not believed."""

import array
import errno
import gzip
import io
import os
from pathlib import Path

import pytest

import bloscpack
from bloscpack._storage.base import (
    READ_SIZE,
    MemoryStorage,
    as_bytes_view,
    bytes_left,
    naming_errors,
)
from bloscpack._storage.cursor import Cursor, MemoryCursor, StorageCursor
from bloscpack._storage.local import FileRange
from bloscpack._storage.stream import seekable_with_size
from bloscpack.append import append_fp
from bloscpack.exceptions import FormatError, StorageError

DATA = bytes(range(100))


class Unseekable(io.RawIOBase):
    """A pipe: gives at most some bytes at a time and can't seek."""

    def __init__(self, data, most=None):
        super().__init__()
        self._fp = io.BytesIO(data)
        self._most = most
        self.asked = []

    def readable(self):
        return True

    def read(self, size=-1):
        self.asked.append(size)
        return self._fp.read(size if self._most is None else min(size, self._most))


class OnlyRead:
    """A file object with nothing but read."""

    def __init__(self, data):
        self.read = io.BytesIO(data).read


class Short(io.BytesIO):
    """A seekable file object that gives at most three bytes at a time."""

    def read(self, size=-1):
        return super().read(min(size, 3))


CURSORS = {
    "bytes": lambda data: Cursor(io.BytesIO(data)),
    "short": lambda data: Cursor(Short(data)),
    "pipe": lambda data: Cursor(Unseekable(data)),
    "slow pipe": lambda data: Cursor(Unseekable(data, 1)),
    "only read": lambda data: Cursor(OnlyRead(data)),
    "memory": MemoryCursor,
    "storage": lambda data: StorageCursor(MemoryStorage(data)),
}
KNOWS = {"bytes", "short", "memory", "storage"}


@pytest.fixture(params=CURSORS)
def name(request):
    return request.param


@pytest.fixture
def cursor(name):
    return CURSORS[name](DATA)


@pytest.mark.parametrize("size", [1, 3, 7, 99, 100, 101, 1000])
def test_read(cursor, size):
    pieces = []
    while piece := bytes(cursor.read(size)):
        pieces.append(piece)
        assert sum(map(len, pieces)) == cursor.position
    assert DATA == b"".join(pieces)
    assert all(len(piece) == size for piece in pieces[:-1])
    assert b"" == cursor.read(size)


@pytest.mark.parametrize("size", [0, 1, 50, 100])
def test_peek_stays(cursor, size):
    assert DATA[:size] == cursor.peek(size)
    assert DATA[:size] == cursor.peek(size)
    assert 0 == cursor.position
    assert DATA == cursor.read(100)


def test_peek_at_the_end(cursor):
    assert DATA == cursor.peek(1000)
    assert DATA[:10] == cursor.read(10)
    assert DATA[10:] == cursor.peek(1000)
    assert DATA[10:20] == cursor.peek(10)
    assert DATA[10:] == cursor.read(1000)
    assert b"" == cursor.peek(1)


def test_peek_further_and_further(cursor):
    for size in (5, 10, 3, 20):
        assert DATA[:size] == cursor.peek(size)
    assert DATA[:30] == cursor.read(30)
    assert 30 == cursor.position


def test_left(cursor, name):
    assert (100 if name in KNOWS else None) == cursor.left()
    cursor.peek(20)
    assert (100 if name in KNOWS else None) == cursor.left()
    cursor.read(30)
    cursor.skip(10, "", "")
    assert (60 if name in KNOWS else None) == cursor.left()


def test_read_exactly(cursor):
    assert DATA[:60] == cursor.read_exactly(60, "a thing", "header")
    assert b"" == cursor.read_exactly(0, "a thing", "header")
    assert DATA[60:] == cursor.read_exactly(40, "a thing", "header")


@pytest.mark.parametrize("peeked", [0, 1, 50])
@pytest.mark.parametrize("size", [41, 2**40])
def test_read_exactly_what_is_not_there(cursor, size, peeked):
    cursor.read(60)
    cursor.peek(peeked)
    with pytest.raises(FormatError) as raised:
        cursor.read_exactly(size, "a thing", "header")
    assert (
        "the file ends too early: expected a thing of '%d' bytes, found '40'" % size
        == raised.value.message
    )
    assert ("header", 60) == (raised.value.section, raised.value.offset)


@pytest.mark.parametrize("peeked", [0, 1, 20, 21, 50])
@pytest.mark.parametrize("size", [0, 1, 20, 90])
def test_skip(cursor, size, peeked):
    cursor.read(10)
    cursor.peek(peeked)
    cursor.skip(size, "a thing", "offsets")
    assert 10 + size == cursor.position
    assert DATA[10 + size :] == cursor.read(100)


@pytest.mark.parametrize("peeked", [0, 20])
@pytest.mark.parametrize("size", [91, 2**62])
def test_skip_what_is_not_there(cursor, size, peeked):
    message = "expected a thing of '%d' bytes, found '90'" % size
    cursor.read(10)
    cursor.peek(peeked)
    with pytest.raises(FormatError, match=message) as raised:
        cursor.skip(size, "a thing", "offsets")
    assert "offsets" == raised.value.section


def test_positions_count_from_where_the_file_stands():
    fp = io.BytesIO(b"front" + DATA)
    fp.seek(5)
    cursor = Cursor(fp)
    assert (0, 100) == (cursor.position, cursor.left())
    assert DATA == cursor.read(1000)
    assert (100, 0) == (cursor.position, cursor.left())


def test_file_that_is_shorter_than_it_says(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(DATA)
    with path.open("rb") as fp:
        cursor = Cursor(fp)
        os.truncate(path, 50)
        with pytest.raises(FormatError, match="of '60' bytes, found '50'") as raised:
            cursor.read_exactly(60, "a thing", "chunks")
    assert 0 == raised.value.offset


def test_a_pipe_is_asked_for_little_at_a_time():
    fp = Unseekable(DATA)
    with pytest.raises(FormatError):
        Cursor(fp).read_exactly(2**50, "a thing", "chunks")
    assert READ_SIZE >= max(fp.asked)


def test_long_read_of_a_pipe():
    data = bytes(3 * READ_SIZE + 5)
    cursor = Cursor(Unseekable(data))
    assert data == cursor.read_exactly(len(data), "a thing", "chunks")


def test_long_skip_of_a_pipe():
    cursor = Cursor(Unseekable(bytes(3 * READ_SIZE) + b"end"))
    cursor.skip(3 * READ_SIZE, "a thing", "chunks")
    assert b"end" == cursor.read(10)


def test_non_blocking_file():
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with open(reading, "rb", buffering=0) as fp, open(writing, "wb"):
        cursor = Cursor(fp)
        with pytest.raises(StorageError, match="is non-blocking"):
            cursor.read(1)


# How much is left


@pytest.mark.parametrize(
    ("expected", "fp", "position"),
    [
        (100, io.BytesIO(DATA), 0),
        (60, io.BytesIO(DATA), 40),
        (0, io.BytesIO(DATA), 100),
        (0, io.BytesIO(DATA), 150),
        (None, Unseekable(DATA), None),
        (None, OnlyRead(DATA), None),
        (None, None, None),
    ],
)
def test_bytes_left(expected, fp, position):
    if position is not None:
        fp.seek(position)
    assert expected == bytes_left(fp)
    if position is not None:
        assert position == fp.tell()


def test_bytes_left_where_seeking_fails():
    class Liar(io.BytesIO):
        def seek(self, *args):
            raise OSError("no seeking here")

    assert bytes_left(Liar(DATA)) is None


class Failing(io.FileIO):
    """A file of which one call of `seek` or `tell` fails."""

    calls = 0

    def __init__(self, path, failing: int, error: int) -> None:
        super().__init__(path)
        self.failing, self.error = failing, error

    def _count(self) -> None:
        self.calls += 1
        if self.calls == self.failing:
            raise OSError(self.error, os.strerror(self.error))

    def seek(self, *args):
        self._count()
        return super().seek(*args)

    def tell(self):
        self._count()
        return super().tell()


def read_all(fp):
    with seekable_with_size(fp) as (new_fp, size):
        content = new_fp.read()
        assert size == len(content)
        return content


def append_all(fp):
    packed = io.BytesIO(bloscpack.pack_bytes_to_bytes(b"old"))
    before = packed.getvalue()
    try:
        with seekable_with_size(fp) as (new_fp, size):
            append_fp(packed, new_fp, size)
    except OSError:
        assert before == packed.getvalue()
        raise
    return bloscpack.unpack_bytes_from_bytes(packed.getvalue())[0].removeprefix(b"old")


@pytest.mark.parametrize("function", [read_all, append_all])
@pytest.mark.parametrize("error", [errno.EIO, errno.EINVAL])
def test_failed_seek_is_no_empty_pipe(tmp_path, function, error):
    path = tmp_path / "new"
    path.write_bytes(DATA)
    for failing in range(1, 100):
        with Failing(path, failing, error) as fp:
            try:
                assert DATA == function(fp)
            except OSError:
                assert fp.calls >= failing
            if fp.calls < failing:
                return  # all calls have failed once
    raise AssertionError("the calls do not end")


def test_file_that_the_system_generates():
    path = Path("/proc/self/status")
    if not path.exists():
        pytest.skip("this system has no /proc")
    with path.open("rb") as fp:
        assert read_all(fp).startswith(b"Name:")


# Buffers


@pytest.mark.parametrize(
    ("expected", "buffer"),
    [
        (b"", b""),
        (b"abc", b"abc"),
        (b"abc", bytearray(b"abc")),
        (b"bc", memoryview(b"abc")[1:]),
        (b"ac", memoryview(b"abc")[::2]),
        (b"", memoryview(b"")[::2]),
        (b"\1\0\2\0", array.array("H", b"\1\0\2\0")),
        (b"", array.array("d")),
        (b"abcd", memoryview(b"abcd").cast("B", (2, 2))),
    ],
)
def test_as_bytes_view(expected, buffer):
    view = as_bytes_view(buffer)
    assert ("B", 1, len(expected)) == (view.format, view.ndim, len(view))
    assert expected == view


def test_view_is_no_copy():
    buffer = bytearray(b"abc")
    view = as_bytes_view(buffer)
    buffer[0] = ord("x")
    assert b"xbc" == view


@pytest.mark.parametrize("value", ["abc", 5, None, [1]])
def test_what_is_no_buffer(value):
    with pytest.raises(TypeError):
        as_bytes_view(value)


# Files at any place


needs_preadv = pytest.mark.skipif(not hasattr(os, "preadv"), reason="needs preadv")


@needs_preadv
@pytest.mark.parametrize("mode", ["rb", "r+b", "w+b", "xb"])
@pytest.mark.parametrize("buffering", [0, -1])
def test_regular_files_qualify(tmp_path, mode, buffering):
    if mode[0] != "x":
        (tmp_path / "file").write_bytes(DATA)
    with open(tmp_path / "file", mode, buffering=buffering) as fp:
        assert isinstance(FileRange.over(fp), FileRange)


def test_other_files_do_not_qualify(tmp_path):
    with gzip.open(tmp_path / "file", "wb") as fp:
        assert FileRange.over(fp) is None
    with open(tmp_path / "file", "ab") as fp:
        assert FileRange.over(fp) is None
    with open(os.devnull, "rb") as fp:
        assert FileRange.over(fp) is None
    for fp in (io.BytesIO(DATA), io.BufferedReader(io.BytesIO(DATA)), OnlyRead(DATA)):
        assert FileRange.over(fp) is None


@needs_preadv
def test_read_into(tmp_path):
    (tmp_path / "file").write_bytes(DATA)
    with open(tmp_path / "file", "rb") as fp:
        fp.seek(7)
        file_range = FileRange.over(fp)
        for offset, size in ((0, 100), (10, 5), (0, 0), (95, 5)):
            room = bytearray(size)
            assert size == file_range.read_into(memoryview(room), offset)
            assert DATA[offset : offset + size] == room
        room = bytearray(10)
        assert 5 == file_range.read_into(memoryview(room), 95)
        assert DATA[95:] + bytes(5) == room
        assert 0 == file_range.read_into(memoryview(room), 1000)
        assert 7 == fp.tell()


@needs_preadv
def test_write_anywhere(tmp_path):
    with open(tmp_path / "file", "w+b") as fp:
        fp.write(b"front")
        file_range = FileRange.over(fp)
        file_range.write(b"", 100)
        file_range.write(memoryview(b"end"), 10)
        file_range.write(bytearray(b"middle"), 4)
        assert 5 == fp.tell()
        fp.seek(0)
        assert b"fronmiddleend" == fp.read()


# The name in the error


def test_errors_get_the_name_of_the_file():
    with pytest.raises(FormatError) as raised, naming_errors(Path("file")):
        raise FormatError("no")
    assert "no (file 'file')" == str(raised.value)
    with pytest.raises(FormatError) as raised, naming_errors("file"):
        raise FormatError("no", filename="inner")
    assert "no (file 'inner')" == str(raised.value)
    with pytest.raises(KeyError, match="no"), naming_errors("file"):
        raise KeyError("no")
