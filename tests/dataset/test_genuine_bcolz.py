"""The genuine bcolz reads, appends to and trims what is written here, and vice versa.

It runs in a Python of its own: the one that the variable BLOSCPACK_BCOLZ_PYTHON names,
or a new environment, which needs a network once and a Python for which bcolz-zipline
has a wheel.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support import environment

from bloscpack import dataset

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("genuine_bcolz.py")
PACKAGE = "bcolz-zipline==1.13.0"
PROBE = "import bcolz; assert bcolz.__version__ == '1.13.0'"
# Versions of Python that the package has wheels for.
VERSIONS = ("3.12", "3.11", "3.10")


def has_bcolz(python):
    probe = [python, "-W", "ignore", "-c", PROBE]
    try:
        done = subprocess.run(probe, capture_output=True, check=False)
    except OSError:
        return False
    return not done.returncode


def base_python():
    """Return a Python for which there is a wheel; None without one."""
    if "%d.%d" % sys.version_info[:2] in VERSIONS:
        return sys.executable
    return next(filter(None, (shutil.which("python" + v) for v in VERSIONS)), None)


@pytest.fixture(scope="module")
def python(request):
    """The path of a Python with the genuine bcolz."""
    given = os.environ.get("BLOSCPACK_BCOLZ_PYTHON")
    if given is not None:
        assert has_bcolz(given), given
        return given
    if "BLOSCPACK_BUILD_ORIGINALS" not in os.environ:
        pytest.skip("the genuine bcolz is not installed; nox -s bcolz installs it")
    folder = Path(request.config.cache.mkdir("bcolz"))
    built = folder / "bin" / "python"
    if not has_bcolz(built):
        base = base_python()
        if base is None:
            pytest.skip("no Python for which bcolz-zipline has a wheel")
        make = [base, "-m", "venv", "--clear", folder]
        install = [built, "-m", "pip", "install", "-q", "--only-binary=:all:", PACKAGE]
        for command in (make, install):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip("no genuine bcolz: " + done.stderr[-300:])
    return built


def items_of(dtype, shape=(50,)):
    dtype = np.dtype(dtype)
    count = int(np.prod(shape))
    raw = np.random.default_rng(1).integers(0, 256, (count, dtype.itemsize), "u1")
    if dtype.kind in "US":
        texts = [str(i % 70) * (i % 5) for i in range(count)]
        return np.array(texts).astype(dtype).reshape(shape)
    if dtype.kind == "b":
        return (raw[:, 0] > 99).reshape(shape)
    return raw.reshape(-1).view(dtype).reshape(shape)


def ask(python, path, expected):
    """Let the genuine bcolz check and change a dataset; check what it has written."""
    np.savez(path.with_suffix(".npz"), **expected)
    done = subprocess.run(
        [*map(str, [python, SCRIPT, path, path.with_suffix(".npz")])],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert "right 1.13.0\n" == done.stdout, done.stdout + done.stderr
    found = dataset.open(path)
    assert [1, {"a": None}] == found.attrs["genuine"]
    for name, items in expected.items():
        longer = np.concatenate([items, items[:37]], dtype=items.dtype)
        column = found if name == "values" else found[name]
        assert longer.tobytes() == column[:].tobytes()
    return found


DTYPES = (
    "? i1 i2 i4 i8 u1 u2 u4 u8 >i4 >u2 f2 f4 f8 >f8 c8 c16 S1 S7 S300 U1 U5 >U3 U80 "
    "V5 V300 M8[ns] M8[D] M8[s] M8[ms] m8[ns] m8[s] m8[D]"
)


@pytest.mark.parametrize("dtype", DTYPES.split())
def test_every_dtype(python, tmp_path, dtype):
    items = items_of(dtype)
    dataset.create_array(tmp_path / "a", items, layout="bcolz", chunks=16).close()
    ask(python, tmp_path / "a", {"values": items})


@pytest.mark.parametrize("shape", [(0,), (1,), (48,), (107, 3), (9, 2, 3, 4), (0, 3)])
def test_shapes(python, tmp_path, shape):
    items = items_of("i4", shape)
    dataset.create_array(tmp_path / "a", items, layout="bcolz", chunks=16).close()
    ask(python, tmp_path / "a", {"values": items})


SETTINGS = [
    *({"cname": c} for c in ("blosclz", "lz4", "lz4hc", "zlib", "zstd")),
    *({"shuffle": s, "cname": "zstd"} for s in (0, 2)),
    {"clevel": 0},
    {"chunks": 1},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=repr)
def test_settings(python, tmp_path, settings):
    items = np.arange(30_000, dtype="i8") if "chunks" not in settings else np.arange(9)
    dataset.create_array(tmp_path / "a", items, layout="bcolz", **settings).close()
    ask(python, tmp_path / "a", {"values": items})


def test_after_any_change(python, tmp_path):
    """After each kind of change, and the genuine program, and again."""
    path = tmp_path / "a"
    expected = np.arange(50, dtype="u4")
    dataset.create_array(
        path, expected, layout="bcolz", chunks=16, fill_value=7
    ).close()

    def append(array):
        array.append(np.arange(40, dtype="u4"))

    def assign(array):
        array[5:60:3] = 9

    def changes():
        yield append
        yield assign
        for length in (100, 33, 32, 31, 0, 20):
            yield lambda array, length=length: array.resize(length)
        yield append

    for change in changes():
        with dataset.open_array(path, "r+") as array:
            change(array)
            expected = array[:]
        ask(python, path, {"values": expected})
    with dataset.open_array(path) as array:
        assert np.arange(37).sum() == array[-37:].sum() or len(array)


def test_tables(python, tmp_path):
    path = tmp_path / "t"
    columns = {
        "a": np.arange(50, dtype="u4"),
        "m": items_of("f4", (50, 2)),
        "s": items_of("U5"),
        "raw": items_of("S3"),
    }
    with dataset.create_table(path, columns, layout="bcolz", chunks=16) as table:
        table.append(columns)
        table.add_column("new", np.arange(100.0), position=1)
        table.remove_column("raw")
        table.resize(120)
        table.trim(50)
        table[3] = table[9]
        expected = {name: table[name][:] for name in table.names}
    ask(python, path, expected)
    with dataset.open_table(path, "r+") as table:
        table.append(table[:5])
        table.trim(60)
        expected = {name: table[name][:] for name in table.names}
    ask(python, path, expected)
