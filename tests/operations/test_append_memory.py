"""Append from memory: bytes, and the rows of an array."""

from __future__ import annotations

import array as machine
import os
import re

import numpy as np
import pytest
from builders import numbers

import bloscpack as bp
from bloscpack.append import append_bytes_to_file, append_ndarray_to_file
from bloscpack.exceptions import (
    DoesNotFit,
    NotANumpyArray,
    NotEnoughSpace,
    ObjectNumpyArrayRejection,
    UsageError,
    UsageTypeError,
)
from bloscpack.reader import Reader


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data.blp"


def content(path):
    return bp.unpack_bytes_from_file(path)


# Bytes


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("size", [0, 1, 5000, 300_000])
def test_append_bytes(path, kind, size):
    settings = {"chunk_size": 1000, "max_app_chunks": 300}
    bp.pack_bytes_to_file(numbers(2500), path, metadata={"a": 1}, **settings)
    append_bytes_to_file(kind(numbers(size, seed=3)), path)
    assert (numbers(2500) + numbers(size, seed=3), {"a": 1}) == content(path)


def test_append_a_buffer_of_longer_items(path):
    bp.pack_bytes_to_file(b"", path)
    append_bytes_to_file(machine.array("q", [1, 2, 3]), path)
    append_bytes_to_file(np.arange(12).reshape(3, 4)[:, ::2], path)
    expected = np.array([1, 2, 3, 0, 2, 4, 6, 8, 10]).tobytes()
    assert (expected, None) == content(path)


def test_append_bytes_with_settings(path):
    bp.pack_bytes_to_file(b"", path, metadata={"a": 1})
    calls = []
    append_bytes_to_file(
        numbers(2**20),
        path,
        {"cname": "zstd"},
        clevel=np.int64(9),
        metadata={"a": 2},
        nthreads=2,
        sync=False,
        progress=calls.append,
    )
    assert (numbers(2**20), {"a": 2}) == content(path)
    assert 2**20 == sum(calls)
    assert "zstd" == bp.info(path).first_chunk.codec


@pytest.mark.parametrize(
    ("error", "message", "given"),
    [
        (UsageTypeError, "'clevel' is given twice", {"blosc_args": {"clevel": 1}}),
        (UsageTypeError, "'clevel' is given twice", {"blosc_args": bp.BloscArgs()}),
        (UsageTypeError, "unexpected keyword 'checksum'", {"checksum": "crc32"}),
        (UsageError, "'typesize' must be in the range", {"typesize": 256}),
    ],
)
def test_append_bytes_with_wrong_settings(path, error, message, given):
    bp.pack_bytes_to_file(b"abc", path)
    before = path.read_bytes()
    with pytest.raises(error, match=message):
        append_bytes_to_file(b"def", path, **{"clevel": 9, **given})
    assert before == path.read_bytes()


def test_append_bytes_without_room(path):
    bp.pack_bytes_to_file(bytes(20), path, chunk_size=10, max_app_chunks=0)
    before = path.read_bytes()
    with pytest.raises(NotEnoughSpace) as caught:
        append_bytes_to_file(b"new", path, grow=False)
    assert str(path) == caught.value.filename
    assert before == path.read_bytes()
    assert [path.name] == os.listdir(path.parent)


def test_append_something_without_bytes(path):
    bp.pack_bytes_to_file(b"abc", path)
    with pytest.raises(TypeError):
        append_bytes_to_file("text", path)


# Arrays

ROWS = {
    "numbers": np.arange(300.0).reshape(100, 3),
    "times": np.arange(50).astype("M8[s]"),
    "records": np.zeros(20, [("a", "<i4"), ("b", "U3", (2,))]),
    "text": np.array(["a", "bc", "def"] * 7),
    "big endian": np.arange(30, dtype=">i2"),
}


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_append_rows(path, rows):
    bp.pack_ndarray_to_file(rows, path, metadata={"unit": "m"})
    append_ndarray_to_file(rows[:7], path)
    append_ndarray_to_file(rows[::-3], path, clevel=1)
    append_ndarray_to_file(rows[:0], path)
    append_ndarray_to_file(np.asfortranarray(rows), path)
    found, metadata = bp.unpack_ndarray_from_file(path, return_metadata=True)
    expected = np.concatenate([rows, rows[:7], rows[::-3], rows])
    np.testing.assert_array_equal(expected, found)
    assert rows.dtype == found.dtype
    assert {"unit": "m"} == metadata


@pytest.mark.parametrize(
    ("error", "message", "rows"),
    [
        (DoesNotFit, "dtype '<f4' are to be appended", np.zeros((2, 3), "<f4")),
        (DoesNotFit, "dtype '>f8' are to be appended", np.zeros((2, 3), ">f8")),
        (DoesNotFit, r"shape \(2, 4\) is to be appended", np.zeros((2, 4))),
        (DoesNotFit, r"shape \(6,\) is to be appended", np.zeros(6)),
        (DoesNotFit, r"shape \(\) is to be appended", np.float64(1)),
        (UsageTypeError, "expected a NumPy array, not 'list'", [1.0, 2.0, 3.0]),
        (UsageError, "mask", np.ma.array([[1.0, 2.0, 3.0]], mask=[[0, 1, 0]])),
        (ObjectNumpyArrayRejection, "astype", np.array([[1, None, 3.0]])),
    ],
)
def test_rows_that_do_not_fit(path, error, message, rows):
    bp.pack_ndarray_to_file(ROWS["numbers"], path)
    before = path.read_bytes()
    with pytest.raises(error, match=message):
        append_ndarray_to_file(rows, path)
    assert before == path.read_bytes()


def test_rows_behind_other_files(path):
    bp.pack_bytes_to_file(bytes(24), path)
    with pytest.raises(NotANumpyArray):
        append_ndarray_to_file(np.zeros(3), path)
    bp.pack_ndarray_to_file(np.asfortranarray(ROWS["numbers"]), path)
    with pytest.raises(DoesNotFit, match="order 'F' can't grow"):
        append_ndarray_to_file(ROWS["numbers"], path)


# The metadata of the user

VALUES = [None, {"unit": "m"}, [1, None], "text", 0, False, {}, {"container": "numpy"}]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_metadata_beside_an_array(path, value):
    array = np.arange(12).reshape(3, 4)
    bp.pack_ndarray_to_file(array, path, metadata=value)
    found, metadata = bp.unpack_ndarray_from_file(path, return_metadata=True)
    assert value == metadata
    np.testing.assert_array_equal(array, found)
    packed = bp.pack_ndarray_to_bytes(array, metadata=value)
    assert value == bp.unpack_ndarray_from_bytes(packed, return_metadata=True)[1]
    np.testing.assert_array_equal(array, bp.unpack_ndarray_from_bytes(packed))
    with open(path, "rb") as fp:
        reader = Reader(fp)
        assert value == reader.user_metadata
        assert value == reader.metadata.pop("metadata", None)
        assert {"dtype", "shape", "order", "container"} == {*reader.metadata}


def test_user_metadata_of_a_file_without_an_array(path):
    bp.pack_bytes_to_file(b"abc", path, metadata={"metadata": 1})
    with open(path, "rb") as fp:
        assert {"metadata": 1} == Reader(fp).user_metadata


def test_metadata_beside_an_array_that_are_no_json(path):
    with pytest.raises(TypeError, match="the metadata can't be written as JSON"):
        bp.pack_ndarray_to_file(np.arange(3), path, metadata={1, 2})
    assert not path.exists()


# Arguments in the wrong order


@pytest.mark.parametrize(
    ("call", "first", "second", "message"),
    [
        (
            "bytes",
            "file",
            b"abc",
            "'bytes_' must be bytes or another buffer, not 'str'",
        ),
        ("bytes", None, "file", "'bytes_' must be bytes or another buffer, not 'NoneT"),
        (
            "bytes",
            b"abc",
            bytearray(b"x"),
            "'out_file' must be a path, not 'bytearray'",
        ),
        ("bytes", b"abc", 3, "'out_file' must be a path, not 'int'"),
        ("ndarray", "file", ROWS["text"], "'ndarray' must be a NumPy array, not 'str'"),
        ("ndarray", ROWS["text"], ROWS["text"], "'filename' must be a path, not 'nda"),
    ],
)
def test_swapped_arguments(path, call, first, second, message):
    bp.pack_bytes_to_file(b"", path)
    before = path.read_bytes()
    names = {"bytes": "bytes_, out_file", "ndarray": "ndarray, filename"}[call]
    function = getattr(bp, "append_%s_to_file" % call)
    with pytest.raises(UsageTypeError, match=re.escape(message)) as caught:
        function(str(path) if isinstance(first, str) else first, second)
    assert str(caught.value).endswith(": %s(%s)" % (function.__name__, names))
    assert before == path.read_bytes()
