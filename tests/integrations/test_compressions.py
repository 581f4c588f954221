"""The compression "blp" of fsspec, joblib and smart_open, also in other processes."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from support import environment

import bloscpack as bp
from bloscpack.integrations import register_fsspec, register_joblib
from bloscpack.integrations.registration import register_in_dask

TEXT = "a,b\n1,2\n3,4\n"


def run(code, folder):
    """Run a program that imports no Bloscpack by itself; return its output."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    return done.stdout


def is_blp(path):
    return path.read_bytes().startswith(b"blpk")


@pytest.mark.parametrize(
    ("register", "module"), [(register_fsspec, "fsspec"), (register_joblib, "joblib")]
)
def test_without_the_library(monkeypatch, register, module):
    for name in [module, *(n for n in sys.modules if n.startswith(module + "."))]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(bp.UsageError, match="'%s' is not installed" % module):
        register()


def test_import_loads_no_library(tmp_path):
    code = (
        "import sys, bloscpack.integrations; "
        "print([n for n in ('fsspec', 'joblib', 'dask', 'xarray', 'tarfile') "
        "if n in sys.modules])"
    )
    assert "[]\n" == run(code, tmp_path)


# fsspec


@pytest.fixture
def fsspec():
    module = pytest.importorskip("fsspec", reason="fsspec is not installed")
    assert "blp" == register_fsspec() == register_fsspec()
    return module


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


@pytest.mark.parametrize("given", ["infer", "result"])
def test_a_pickled_file_of_fsspec_registers_it(fsspec, tmp_path, given):
    compression = given if given == "infer" else register_fsspec()
    bp.pack_bytes_to_file(TEXT.encode(), tmp_path / "a.blp")
    file = fsspec.open(str(tmp_path / "a.blp"), "rt", compression=compression)
    (tmp_path / "pickle").write_bytes(pickle.dumps(file))
    code = (
        "import pickle\n"
        "with pickle.load(open('pickle', 'rb')) as file: print(file.read(), end='')"
    )
    assert TEXT == run(code, tmp_path)


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


def test_the_hook_of_dask(fsspec, monkeypatch):
    from fsspec.compression import compr

    monkeypatch.delitem(compr, "blp")
    register_in_dask(None)
    assert compr["blp"] is bp.BloscpackFile


# joblib


@pytest.fixture
def joblib():
    module = pytest.importorskip("joblib", reason="joblib is not installed")
    assert "blp" == register_joblib() == register_joblib()
    return module


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


def test_the_name_of_joblib_registers_it(joblib, tmp_path, value):
    (tmp_path / "pickle").write_bytes(pickle.dumps(register_joblib()))
    joblib.dump(value, tmp_path / "value", compress="blp")
    code = (
        "import pickle, joblib; name = pickle.load(open('pickle', 'rb')); "
        "print(name, joblib.load('value')['list'])"
    )
    assert "blp ['a', 1, None]\n" == run(code, tmp_path)


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
