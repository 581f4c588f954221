"""File objects as a compression of fsspec, joblib and smart_open."""

from __future__ import annotations

import io
import os

import numpy as np
import pytest

import bloscpack as bp

TEXT = "a,b\n1,2\n3,4\n"


def is_blp(path):
    return path.read_bytes().startswith(b"blpk")


# fsspec


@pytest.fixture
def fsspec():
    module = pytest.importorskip("fsspec", reason="fsspec is not installed")
    from fsspec.compression import register_compression

    register_compression("blp", bp.BloscpackFile, "blp", force=True)
    yield module
    del module.compression.compr["blp"], module.utils.compressions["blp"]


@pytest.mark.parametrize("compression", ["infer", "blp"])
def test_fsspec_writes_and_reads(fsspec, tmp_path, compression):
    path = tmp_path / "a.csv.blp"
    with fsspec.open(str(path), "wt", compression=compression) as file:
        file.write(TEXT)
    assert is_blp(path)
    with bp.open(path, "rt") as file:
        assert TEXT == file.read()
    with fsspec.open(str(path), "rt", compression=compression) as file:
        assert TEXT == file.read()
    with fsspec.open(str(path), "rb", compression=compression) as file:
        file.seek(4)
        assert TEXT[4:].encode() == file.read()


def test_fsspec_in_memory(fsspec):
    with fsspec.open("memory://a.blp", "wb", compression="infer") as file:
        for _ in range(3):
            file.write(b"abc")
            file.flush()  # ends no chunk
    data = fsspec.filesystem("memory").cat("a.blp")
    assert b"abc" * 3 == bp.unpack_bytes_from_bytes(data)[0]
    with bp.open_ndarray(bp.pack_ndarray_to_bytes(np.arange(3))) as array:
        assert 3 == len(array)


def test_many_files_of_fsspec(fsspec, tmp_path):
    for i in range(3):
        bp.pack_bytes_to_file(b"%d" % i, tmp_path / ("%d.txt.blp" % i))
    files = fsspec.open_files(str(tmp_path / "*.txt.blp"), "rt", compression="infer")
    found = []
    for opened in files:
        with opened as file:
            found.append(file.read())
    assert ["0", "1", "2"] == found


def test_pandas_reads_through_fsspec(fsspec, tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    path = tmp_path / "a.csv.blp"
    with fsspec.open(str(path), "wt", compression="infer") as file:
        pandas.DataFrame({"a": [1, 3], "b": [2, 4]}).to_csv(file, index=False)
    assert is_blp(path)
    url = "local://" + str(path)
    options = {"compression": "infer"}
    found = pandas.read_csv(url, storage_options=options, compression=None)
    assert {"a": [1, 3], "b": [2, 4]} == found.to_dict("list")


# joblib


@pytest.fixture
def joblib():
    module = pytest.importorskip("joblib", reason="joblib is not installed")
    compressor = pytest.importorskip("joblib.compressor")
    wrapper = compressor.CompressorWrapper(bp.BloscpackFile, b"blpk", ".blp")
    module.register_compressor("blp", wrapper, force=True)
    yield module
    del compressor._COMPRESSORS["blp"]


@pytest.fixture
def value():
    return {"array": np.arange(100_000), "list": ["a", 1, None]}


def same(value, other):
    return np.array_equal(value["array"], other["array"]) and (
        value["list"] == other["list"]
    )


@pytest.mark.parametrize("compress", ["blp", ("blp", 3), ("blp", 9)])
def test_joblib(joblib, tmp_path, value, compress):
    path = tmp_path / "value"
    joblib.dump(value, path, compress=compress)
    assert is_blp(path)
    assert path.stat().st_size < value["array"].nbytes / 10
    assert same(value, joblib.load(path))


def test_joblib_knows_the_extension(joblib, tmp_path, value):
    path = tmp_path / "value.blp"
    joblib.dump(value, path)
    assert is_blp(path)
    assert same(value, joblib.load(path))


def test_joblib_with_a_file_object(joblib, value):
    file = io.BytesIO()
    joblib.dump(value, file, compress=("blp", 3))
    file.seek(0)
    assert same(value, joblib.load(file))


def test_the_level_of_joblib(joblib, tmp_path):
    value = np.random.default_rng(1).integers(0, 1000, 200_000)
    sizes = []
    for level in (1, 9):
        path = tmp_path / str(level)
        joblib.dump(value, path, compress=("blp", level))
        sizes.append(path.stat().st_size)
    assert sizes[1] < sizes[0]


def test_joblib_reports_damage(joblib, tmp_path, value):
    path = tmp_path / "value"
    joblib.dump(value, path, compress="blp")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(bp.FormatError):
        joblib.load(path)


def test_memory_of_joblib(joblib, tmp_path):
    calls = []

    def square(n):
        calls.append(n)
        return np.arange(n) ** 2

    memory = joblib.Memory(tmp_path, compress=("blp", 3), verbose=0)
    for _ in range(2):
        assert np.array_equal(np.arange(999) ** 2, memory.cache(square)(999))
    assert [999] == calls
    (stored,) = tmp_path.rglob("output.pkl")
    assert is_blp(stored)


# smart_open


def test_smart_open(tmp_path):
    smart_open = pytest.importorskip("smart_open", reason="smart_open is not installed")
    smart_open.register_compressor(".blp", bp.BloscpackFile)
    path = tmp_path / "a.txt.blp"
    with smart_open.open(os.fspath(path), "w") as file:
        file.write(TEXT)
    assert is_blp(path)
    with smart_open.open(os.fspath(path)) as file:
        assert TEXT == file.read()
