"""The genuine bcolz reads, appends to and trims what is written here, and vice versa.

It runs in a Python of its own: the one that the variable BLOSCPACK_BCOLZ_PYTHON names,
or a new environment, which needs a network once and a Python for which bcolz-zipline
has a wheel.
"""

from __future__ import annotations

import numpy as np
import pytest
from dataset.genuine import DTYPES, SHAPES, ChangeTests, Genuine, items_of
from originals import environment_with

pytestmark = pytest.mark.slow

WHAT = "bcolz-zipline 1.13.0"
PACKAGES = ("--only-binary=:all:", "bcolz-zipline==1.13.0")
PROBE = "import bcolz; assert bcolz.__version__ == '1.13.0'"
# Versions of Python that the package has wheels for.
VERSIONS = ("3.12", "3.11", "3.10")


@pytest.fixture(scope="module")
def genuine(request):
    """The genuine bcolz."""
    python = environment_with(
        request, "bcolz", WHAT, PROBE, PACKAGES, versions=VERSIONS
    )
    return Genuine(python, "bcolz")


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(genuine, tmp_path, dtype):
    genuine.check_array(tmp_path / "a", items_of(dtype))


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(genuine, tmp_path, shape):
    genuine.check_array(tmp_path / "a", items_of("i4", shape))


SETTINGS = [
    *({"cname": c} for c in ("blosclz", "lz4", "lz4hc", "zlib", "zstd")),
    *({"shuffle": s, "cname": "zstd"} for s in (0, 2)),
    {"clevel": 0},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=repr)
def test_settings(genuine, tmp_path, settings):
    items = np.arange(30_000, dtype="i8")
    genuine.check_array(tmp_path / "a", items, chunks=None, **settings)


class TestChanges(ChangeTests):
    layout = "bcolz"
