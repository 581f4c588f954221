"""zarr-python, TensorStore and zarrs read shards in place, and report changed bits.

They run in a process of their own, with this Python or with the one that the variable
BLOSCPACK_ZARR_PYTHON names.
"""

from __future__ import annotations

import functools
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest
from support import environment

import bloscpack as bp
from bloscpack.file_io import CompressedFPSource

SEPARATOR = b"shard\0\0\0"
pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("zarr_programs.py")
PROBES = {
    "zarr": "import zarr; assert zarr.__version__ >= '3'",
    "tensorstore": "import tensorstore",
    "zarrs": "import zarrs",  # only for Python 3.11 and later
}
PYTHON = os.environ.get("BLOSCPACK_ZARR_PYTHON", sys.executable)


@functools.cache
def has(program):
    probe = [PYTHON, "-c", PROBES[program]]
    return not subprocess.run(probe, capture_output=True, check=False).returncode


class Programs:
    """A process that reads arrays; starting it takes longer than most tests."""

    def __init__(self):
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [PYTHON, str(SCRIPT)],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def ask(self, **request):
        timer = threading.Timer(300, self._process.kill)
        timer.start()
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        self._log.seek(0)
        assert line, self._log.read()
        return json.loads(line)

    def close(self):
        self._process.communicate()
        self._log.close()


@functools.cache
def programs():
    return Programs()


@pytest.fixture(scope="module", autouse=True)
def end_of_programs():
    yield
    if programs.cache_info().currsize:
        programs().close()
        programs.cache_clear()


@pytest.fixture
def readers(request):
    """The names of the programs that are installed; skip the test without any."""
    names = getattr(request, "param", PROBES)
    found = [name for name in names if has(name)]
    if not found:
        missing = " and ".join(names)
        pytest.skip("no %s: pip install '.[test-integrations]'" % missing)
    return found


only = functools.partial(pytest.mark.parametrize, "readers", indirect=True)


@pytest.mark.parametrize("program", PROBES)
def test_program_is_there(program):
    """The other tests leave out what is not installed: this says so."""
    if not has(program):
        pytest.skip("%s is not installed for %s, or too old" % (program, PYTHON))


def codec(name, **configuration):
    return {"name": name, "configuration": configuration}


def write_zarr_json(root, shape, data_type, dtype, shard, digest=None, chunks=None):
    little = codec("bytes", endian="little")
    plain = codec("bytes", endian="big" if dtype.str[0] == ">" else "little")
    blosc = codec(
        "blosc", cname="lz4", clevel=5, shuffle="shuffle", typesize=4, blocksize=0
    )
    crc32c = {"name": "crc32c"}
    inner = [shard.rows, *shape[1:]]
    grid = [shard.rows * shard.slots, *shape[1:]]
    if chunks is not None:
        inner, grid = chunks
    sharding = codec(
        "sharding_indexed",
        chunk_shape=inner,
        codecs=[plain, blosc, *([crc32c] if digest is None else digest)],
        index_codecs=[little, crc32c],
        index_location="end",
    )
    content = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": data_type,
        "chunk_grid": codec("regular", chunk_shape=grid),
        "chunk_key_encoding": codec("default", separator="/"),
        "fill_value": False if data_type == "bool" else 0,
        "codecs": [sharding],
        "attributes": {},
    }
    if data_type.startswith("complex"):
        content["fill_value"] = [0, 0]
    (root / "zarr.json").write_text(json.dumps(content))


def lay_down(root, array, data_type, nshards=1, digest=None, **settings):
    """Write an array as shards, with a number of rows in each that the grid gives."""
    settings = {"chunk_size": 4000, "nthreads": 1, **settings}
    row = array[:1].nbytes
    rows = max(1, settings["chunk_size"] // row)
    nrows = len(array) if nshards == 1 else -(-len(array) // nshards // rows) * rows
    for i in range(nshards):
        part = array[i * nrows : (i + 1) * nrows]
        if not len(part):
            break
        path = root.joinpath("c", str(i), *["0"] * (array.ndim - 1))
        path.parent.mkdir(parents=True, exist_ok=True)
        if nshards > 1:
            settings["max_app_chunks"] = nrows // rows - -(-len(part) // rows)
        bp.pack_ndarray_to_file(part, path, shard=True, **settings)
        assert [] == [f for f in bp.verify(path).findings if f.section == "shard"]
    shard = bp.info(path).shard
    write_zarr_json(root, array.shape, data_type, array.dtype, shard, digest)
    return path


def check(readers, root, array):
    """Check that each program returns the items."""
    assert dict.fromkeys(readers, "right") == ask(readers, root, array)


def ask(readers, root, array, *flips):
    np.save(root / "expected.npy", array)
    return programs().ask(
        root=str(root),
        expected=str(root / "expected.npy"),
        programs=readers,
        flips=flips,
    )


NUMBERS = {
    "bool": "?",
    "int8": "i1",
    "uint16": "<u2",
    "int32": ">i4",
    "uint64": "<u8",
    "float16": "<f2",
    "float32": "<f4",
    "float64": ">f8",
    "complex64": "<c8",
    "complex128": "<c16",
}


@pytest.mark.parametrize(("data_type", "dtype"), NUMBERS.items())
def test_every_number(readers, tmp_path, data_type, dtype):
    array = (np.arange(6900) % 251).astype(dtype).reshape(230, 30)
    lay_down(tmp_path, array, data_type, cname="lz4")
    check(readers, tmp_path, array)


OTHERS = {
    "S": ("S3", codec("null_terminated_bytes", length_bytes=3), ""),
    "U": ("<U2", codec("fixed_length_utf32", length_bytes=8), ""),
    "M": ("<M8[s]", codec("numpy.datetime64", unit="s", scale_factor=1), 0),
    "m": ("<m8[ms]", codec("numpy.timedelta64", unit="ms", scale_factor=1), 0),
}


@only([["zarr"]], ids=["zarr"])
@pytest.mark.parametrize(("dtype", "data_type", "fill"), OTHERS.values(), ids=OTHERS)
def test_extensions_of_zarr(readers, tmp_path, dtype, data_type, fill):
    values = ["a", "bc", ""] if data_type["name"][:5] != "numpy" else [0, 5, -70]
    array = np.array(values * 100, dtype).reshape(60, 5)
    lay_down(tmp_path, array, "int8", chunk_size=700)
    meta = json.loads((tmp_path / "zarr.json").read_text())
    meta.update(data_type=data_type, fill_value=fill)
    (tmp_path / "zarr.json").write_text(json.dumps(meta))
    check(readers, tmp_path, array)


@pytest.mark.parametrize("shape", [(1000,), (31, 4, 5), (7, 3, 2, 2)])
@pytest.mark.parametrize("nshards", [1, 3])
@pytest.mark.parametrize("cname", ["blosclz", "zstd"])
def test_shapes(readers, tmp_path, shape, nshards, cname):
    array = np.arange(np.prod(shape), dtype="<i4").reshape(shape)
    lay_down(tmp_path, array, "int32", nshards, chunk_size=200, cname=cname)
    check(readers, tmp_path, array)


def test_without_checksum(readers, tmp_path):
    array = np.arange(3000, dtype="<i4")
    lay_down(tmp_path, array, "int32", digest=[], checksum="None")
    check(readers, tmp_path, array)


@only([["zarr"]], ids=["zarr"])
@pytest.mark.parametrize("name", ["adler32", "crc32"])
def test_checksums_of_numcodecs(readers, tmp_path, name):
    array = np.arange(3000, dtype="<i4")
    digest = codec("numcodecs." + name, location="end")
    lay_down(tmp_path, array, "int32", digest=[digest], checksum=name)
    check(readers, tmp_path, array)


def test_chunks_of_every_axis(readers, tmp_path):
    array = np.arange(11 * 6 * 17, dtype=">i4").reshape(11, 6, 17)
    chunks, whole = (4, 3, 5), (8, 6, 10)
    for place in np.ndindex(2, 1, 2):
        path = tmp_path.joinpath("c", *map(str, place))
        path.parent.mkdir(parents=True, exist_ok=True)
        pairs = zip(place, whole, strict=True)
        part = array[tuple(slice(i * n, (i + 1) * n) for i, n in pairs)]
        bp.pack_ndarray_to_file(part, path, chunks=chunks, checksum="crc32c")
        described = bp.info(path).metadata
        bp.repack(path, metadata={**described, "shard": whole})
        assert [] == bp.verify(path).findings
        assert (part == bp.load(path)).all()
    geometry = chunks, whole
    write_zarr_json(
        tmp_path, array.shape, "int32", array.dtype, bp.info(path).shard, None, geometry
    )
    check(readers, tmp_path, array)


def test_append(readers, tmp_path):
    array = np.arange(4000, dtype="<i4").reshape(400, 10)
    path = lay_down(tmp_path, array[:37], "int32", chunk_size=400)
    for before, after in ((37, 38), (38, 50), (50, 90)):
        bp.append_ndarray_to_file(array[before:after], path)
        meta = json.loads((tmp_path / "zarr.json").read_text())
        meta["shape"] = [after, 10]  # nothing else has changed
        (tmp_path / "zarr.json").write_text(json.dumps(meta))
        check(readers, tmp_path, array[:after])


def test_a_file_without_its_trailer_is_an_error(readers, tmp_path):
    array = np.arange(3000, dtype="<i4")
    path = lay_down(tmp_path, array, "int32")
    content = path.read_bytes()
    path.write_bytes(content[: content.index(SEPARATOR)])
    found = ask(readers, tmp_path, array)
    assert all(text.startswith("error") for text in found.values())


@only([["zarr", "tensorstore"]], ids=["zarr-tensorstore"])
@pytest.mark.parametrize("nshards", [1, 3])
def test_every_flipped_bit(readers, tmp_path, nshards):
    """In chunks, digests, padded copies and indexes: an error or the right items."""
    array = np.random.default_rng(1).integers(0, 99, (223, 25)).astype("<f4")
    lay_down(tmp_path, array, "float32", nshards, chunk_size=2000, cname="lz4")
    chance, flips = random.Random(1), []
    for i in range(nshards):
        with open(tmp_path / "c" / str(i) / "0", "rb") as fp:
            begin = CompressedFPSource(fp).offsets[0]
        content = (tmp_path / "c" / str(i) / "0").read_bytes()
        places = range(begin, len(content))
        # All of the first chunk header, and a sample of the rest.
        for position in [*range(begin, begin + 16), *chance.sample(places, 100)]:
            flips.append(["c/%d/0" % i, position, chance.randrange(8)])
    found = ask(readers, tmp_path, array, *flips)
    for counts in found.values():
        assert 0 == counts["wrong"]
        assert len(flips) == counts["error"] + counts["right"]
        # Right are bits of padded zeros, of free slots and of the separator.
        assert counts["error"] > len(flips) * 0.7


@only([["zarrs"]], ids=["zarrs"])
def test_every_flipped_bit_of_a_whole_shard(readers, tmp_path):
    """zarrs verifies the digests of chunks only where it reads a shard as a whole."""
    array = np.random.default_rng(1).integers(0, 99, (220, 25)).astype("<f4")
    settings = {"chunk_size": 2000, "cname": "lz4", "max_app_chunks": 0}
    path = lay_down(tmp_path, array, "float32", **settings)
    content = path.read_bytes()
    begin = CompressedFPSource(io.BytesIO(content)).offsets[0]
    chance, flips = random.Random(1), []
    for position in chance.sample(range(begin, len(content)), 300):
        flips.append(["c/0/0", position, chance.randrange(8)])
    counts = ask(readers, tmp_path, array, *flips)["zarrs"]
    assert 0 == counts["wrong"]
    assert counts["error"] > len(flips) * 0.7
