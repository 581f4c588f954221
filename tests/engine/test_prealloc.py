"""Bytes objects that are allocated first and then filled in place."""

import ctypes
import io
import os
import sys

import pytest

from bloscpack._engine import prealloc
from bloscpack._engine.prealloc import BytesUnderConstruction, BytesWriter

SIZES = (0, 1, 2, 1000, prealloc.HUGE_PAGES_FROM + 12345)


@pytest.fixture(params=["CPython", "not CPython"], autouse=True)
def interpreter(request, monkeypatch):
    if request.param == "not CPython":
        monkeypatch.setattr(prealloc, "CPYTHON", False)


@pytest.mark.parametrize("size", SIZES)
def test_bytes_of_a_known_size(size):
    made = BytesUnderConstruction(size)
    expected = os.urandom(size)
    made.view[:] = expected
    value = made.finish()
    assert type(value) is bytes
    assert expected == value
    assert hash(expected) == hash(value)


def test_bytes_belong_to_the_caller_alone():
    value = BytesUnderConstruction(1000).finish()
    other = os.urandom(1000)
    assert sys.getrefcount(other) == sys.getrefcount(value)


def test_unfinished_bytes_are_given_back():
    for _ in range(50):
        made = BytesUnderConstruction(10**7)
        made.view[0] = 1
        del made


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("capacity", [0, 1, 500, 10**6])
def test_writer_grows_and_shrinks(size, capacity):
    expected = os.urandom(size)
    writer = BytesWriter(capacity)
    for start in range(0, size, 700_001):
        writer.write(expected[start : start + 700_001])
    assert expected == writer.getvalue()


def test_writer_seeks_like_a_file():
    writer, fp = BytesWriter(4), io.BytesIO()
    for file in (writer, fp):
        assert file.seekable()
        assert 6 == file.write(b"abcdef")
        assert 1 == file.seek(-5, os.SEEK_CUR)
        assert 2 == file.write(memoryview(b"BC"))
        assert 6 == file.seek(3, os.SEEK_CUR)
        assert 1 == file.write(b"g")
    assert fp.getvalue() == writer.getvalue() == b"aBCdefg"


@pytest.mark.parametrize("size", [1, prealloc.WORTH_NO_COPY + 1])
@pytest.mark.parametrize("kind", [bytes, memoryview])
def test_writer_lets_others_write_what_it_has_made_room_for(size, kind):
    pieces = [os.urandom(size) for _ in range(4)]
    writer = BytesWriter(0)
    writer.write(b"head")
    writer.reserve(4 * size + 4)
    left = [writer.write_later(kind(piece), b"+") for piece in pieces]
    for write in reversed(left):
        write()
    assert b"head" + b"".join(piece + b"+" for piece in pieces) == writer.getvalue()


@pytest.mark.skipif(not prealloc.CPYTHON, reason="functions of CPython")
def test_other_packages_may_change_the_shared_functions_of_python(monkeypatch):
    """fsspec gives these attributes of ctypes other types when it is imported."""
    shared = ctypes.pythonapi.PyBytes_FromStringAndSize
    monkeypatch.setattr(shared, "restype", ctypes.py_object)
    monkeypatch.setattr(shared, "argtypes", (ctypes.c_void_p, ctypes.c_ssize_t))
    made = BytesUnderConstruction(100_000)
    made.view[:] = b"x" * 100_000
    assert b"x" * 100_000 == made.finish()
