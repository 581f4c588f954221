"""Another reader, written from docs/format.rst alone, returns and refuses the same."""

from __future__ import annotations

import json

import numpy
import pytest
from format import independent_arrays, independent_reader
from support import BLP, TESTS, golden_files, sha256

import bloscpack as bp
from bloscpack.exceptions import FormatError
from bloscpack.serializers import is_array

REFUSED = "refused"
SMALL_FILES = sorted((TESTS / "valid").glob("*.blp"))
SMALL_FILES += sorted((TESTS / "invalid").glob("*.blp"))
GOLDEN = [BLP / entry["file"] for entry in golden_files()]


def read_here(data):
    """Return what the package reads: plain bytes and metadata, and the array."""
    try:
        plain, metadata = bp.unpack_bytes_from_bytes(data, nthreads=1)
    except FormatError:
        return REFUSED, None
    content = sha256(plain), json.dumps(metadata)
    if not is_array(metadata):
        return content, None
    try:
        array = bp.unpack_ndarray_from_bytes(data, nthreads=1)
    except FormatError:
        return content, REFUSED
    order = metadata.get("order", "C")
    assert array.flags.f_contiguous if order == "F" else array.flags.c_contiguous
    return content, (array.dtype.itemsize, list(array.shape), order)


def read_there(data):
    """Return what the other reader reads."""
    try:
        plain, metadata = independent_reader.read(data)
    except independent_reader.Refused:
        return REFUSED, None
    content = sha256(plain), json.dumps(metadata)
    if not is_array(metadata):
        return content, None
    try:
        _, *array = independent_arrays.describe(metadata, len(plain))
    except independent_reader.Refused:
        return content, REFUSED
    return content, tuple(array)


@pytest.mark.skipif(
    numpy.lib.NumpyVersion(numpy.__version__) < "2.0.0", reason="NumPy 1 has 32 axes"
)
@pytest.mark.parametrize("path", SMALL_FILES, ids=lambda path: path.stem)
def test_small_files(path):
    data = path.read_bytes()
    assert read_here(data) == read_there(data)


@pytest.mark.parametrize("step", [20, pytest.param(1, marks=pytest.mark.slow)])
def test_golden_files(step):
    for path in GOLDEN[::step]:
        data = path.read_bytes()
        assert read_here(data) == read_there(data), path


def test_both_outcomes_are_among_the_files():
    outcomes = {read_there(path.read_bytes())[0] == REFUSED for path in SMALL_FILES}
    assert {True, False} == outcomes


def test_the_other_reader_shares_nothing_with_the_package():
    for module in (independent_reader, independent_arrays):
        with open(module.__file__, encoding="utf-8") as source:
            text = source.read()
        assert "import bloscpack" not in text
        assert "from bloscpack" not in text
        assert len(text.splitlines()) < 250
