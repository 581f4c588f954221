"""The genuine BLZ reads, appends to and trims what is written here, and vice versa.

It runs in a Python of its own: the one that the variable BLOSCPACK_BLZ_PYTHON names, or
a new environment, which needs a network and a C compiler once.

Its Blosc is 1.3, which does not know the flag of chunks whose blocks are not split. So
the chunks of each setting are read here in several sizes and with several item sizes.
"""

from __future__ import annotations

import numpy as np
import pytest
from dataset.genuine import DTYPES, SHAPES, ChangeTests, Genuine, items_of
from originals import environment_with, run

from bloscpack import dataset

pytestmark = pytest.mark.slow

PROBE = "import blz; assert blz.__version__ == '0.6.2'"
PINS = ("numpy==1.23.5", "Cython==0.29.37", "setuptools==65.5.1", "wheel")
# Versions of Python that this release of NumPy has wheels for.
VERSIONS = ("3.11", "3.10")
# The program that builds the package compares versions of NumPy as text.
OLD_NUMPY = """
try:
    import numpy
    numpy.__version__ = "1.7.999"
except ImportError:
    pass
"""
# The package uses a function that Python 3.8 has removed.
CLOCK = "import time; time.clock = time.perf_counter\n"
PURELIB = "import sysconfig; print(sysconfig.get_path('purelib'))"


def build(python, folder):
    """Build the package from its source archive; return the error, if any."""
    patch = folder / "patch"
    patch.mkdir(exist_ok=True)
    (patch / "sitecustomize.py").write_text(OLD_NUMPY)
    command = [python, "-m", "pip", "-q", "install", "--no-deps", "--no-cache-dir"]
    command += ["--no-build-isolation", "--no-binary=:all:", "blz==0.6.2"]
    flags = "-O2 -fno-strict-aliasing -w"
    done = run(*command, PYTHONPATH=str(patch), CFLAGS=flags)
    if done.returncode:
        return done.stderr[-300:]
    place = run(python, "-c", PURELIB).stdout.strip()
    with open(place + "/clock.pth", "w") as fp:
        fp.write(CLOCK)
    return None


@pytest.fixture(scope="module")
def genuine(request):
    """The genuine BLZ."""
    python = environment_with(
        request, "blz", "BLZ 0.6.2", PROBE, PINS, build, versions=VERSIONS
    )
    return Genuine(python, "blz")


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(genuine, tmp_path, dtype):
    genuine.check_array(tmp_path / "a", items_of(dtype))
    genuine.check_array(tmp_path / "b", items_of(dtype, (50, 2)))


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(genuine, tmp_path, shape):
    genuine.check_array(tmp_path / "a", items_of("i4", shape))


SETTINGS = [
    *({"cname": c} for c in ("blosclz", "lz4", "lz4hc", "zlib")),
    *({"shuffle": 0, "cname": c} for c in ("blosclz", "zlib")),
    *({"clevel": level} for level in (0, 1, 9)),
]


def partly_random(dtype, rows):
    """Return items of which some chunks compress well, some do not, some partly."""
    rng = np.random.default_rng(2)
    size = np.dtype(dtype).itemsize
    plain = rng.integers(0, 5, rows * size, "u1")
    part = slice(rows * size // 3, rows * size // 2)
    plain[part] = rng.integers(0, 256, part.stop - part.start, "u1")
    if dtype == "U3":
        plain = (plain.view("u4") % 1000).view("u1")
    return plain.view(dtype)


@pytest.mark.parametrize("settings", SETTINGS, ids=repr)
def test_settings(genuine, tmp_path, settings):
    items = np.arange(30_000, dtype="i8")
    genuine.check_array(tmp_path / "a", items, chunks=None, **settings)
    columns = {
        "c%d" % number: partly_random(dtype, 12_000)
        for number, dtype in enumerate(("u1", "u2", ">f4", "c16", "V24", "S5", "U3"))
    }
    for chunks in (100, 1000, 5000):
        path = tmp_path / str(chunks)
        table = dataset.create_table(
            path, columns, layout="blz", chunks=chunks, **settings
        )
        table.close()
        genuine.check(path, columns)


def test_large_chunks(genuine, tmp_path):
    items = np.cumsum(items_of("i4", (3_000_000,)) % 100)
    genuine.check_array(tmp_path / "a", items, chunks=2**20)


class TestChanges(ChangeTests):
    layout = "blz"


CHANGE_COLUMNS = """
import sys, warnings; warnings.simplefilter("ignore")
import blz, numpy as np
table = blz.open(sys.argv[1], mode="a")
table.addcol(np.arange(50) % 7, name="new")
table.delcol("b")
table.flush()
"""


def test_columns_that_the_program_changes(genuine, tmp_path):
    """It can't open a table of which it has removed a column; a change repairs that."""
    path = tmp_path / "t"
    columns = {name: np.arange(50) + i for i, name in enumerate("abc")}
    dataset.create_table(path, columns, layout="blz", chunks=16).close()
    done = run(genuine.python, "-c", CHANGE_COLUMNS, path)
    assert 0 == done.returncode, done.stderr
    expected = {
        "a": np.concatenate([columns["a"], [1]]),
        "c": np.concatenate([columns["c"], [2]]),
        "new": np.concatenate([np.arange(50) % 7, [3]]),
        "b": np.arange(51.0),
    }
    with dataset.open_table(path, "r+") as table:
        table.append([[1], [2], [3]])
        table.add_column("b", expected["b"])
    genuine.check(path, expected)
