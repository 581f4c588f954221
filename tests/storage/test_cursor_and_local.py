"""Reading forward: positions, short reads, and counts that are not believed."""

import errno
import io
import os
from pathlib import Path

import pytest

import bloscpack
from bloscpack._storage.base import as_bytes_view
from bloscpack._storage.cursor import READ_SIZE, Cursor
from bloscpack._storage.stream import seekable_with_size
from bloscpack.append import append_fp
from bloscpack.exceptions import StorageError

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


def test_non_blocking_file():
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with open(reading, "rb", buffering=0) as fp, open(writing, "wb"):
        cursor = Cursor(fp)
        with pytest.raises(StorageError, match="is non-blocking"):
            cursor.read(1)


# How much is left


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


def test_long_skip_of_a_pipe():
    cursor = Cursor(Unseekable(bytes(3 * READ_SIZE) + b"end"))
    cursor.skip(3 * READ_SIZE, "a thing", "chunks")
    assert b"end" == cursor.read(10)


@pytest.mark.parametrize("value", ["abc", 5, None, [1]])
def test_what_is_no_buffer(value):
    with pytest.raises(TypeError):
        as_bytes_view(value)
