"""What new datasets get unless the user says it: chunks, settings and blocks."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from bloscpack import dataset
from bloscpack.describe import info
from bloscpack.exceptions import UsageError

KIB, MIB = 2**10, 2**20


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a"


def rounded(count, seed=0):
    """Return floats with two decimals, as instruments write them."""
    return np.round(np.random.default_rng(seed).normal(20, 5, count), 2)


def size(path):
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def settings_of(path):
    found = dataset.describe(path)
    return found["codec"], found["level"], found["filter"]


def blosc_of(path):
    """Return the settings of Blosc for other programs."""
    document = json.loads((path / "zarr.json").read_bytes())
    return document["codecs"][0]["configuration"]["codecs"][1]["configuration"]


# Chunks


@pytest.mark.parametrize(
    ("shape", "dtype", "chunks"),
    [
        # Short arrays: 64 KiB, so that they may grow, or their own length.
        ((30,), "f8", (8192,)),
        ((3, 2), "f8", (4096, 2)),
        ((100_000,), "f8", (100_000,)),
        ((10**7,), "f8", (131_072,)),
        ((0,), "f8", (131_072,)),
        # Series and maps are in as many chunks.
        ((1000, 181, 360), "f4", (63, 46, 90)),
        ((200, 1024, 1024), "u2", (7, 256, 256)),
        # Planes.
        ((10, 3, 50, 512, 512), "u2", (1, 1, 1, 512, 512)),
        ((10, 3, 50, 2048, 2048), "u2", (1, 1, 1, 512, 1024)),
        ((10, 3, 50, 64, 64), "u1", (1, 1, 50, 64, 64)),
        ((0, 3, 224, 224), "u1", (1, 3, 224, 224)),
        ((1000, 37, 721, 1440), "f4", (1, 1, 361, 720)),
    ],
)
def test_chunks(path, shape, dtype, chunks):
    with dataset.create_array(path, shape=shape, dtype=dtype) as array:
        assert chunks == array.chunks
        assert all(n % m == 0 for n, m in zip(array.shards, chunks, strict=True))
        assert math.prod(array.shards) * array.itemsize <= 16 * MIB


@pytest.mark.parametrize("layout", ["zarr", "superchunk"])
def test_a_short_array_takes_little_room(path, layout):
    with dataset.create_array(path, np.arange(30.0), layout=layout) as array:
        assert size(path) < 8 * KIB
        array.append(np.arange(10**6))
        assert array.shape == (10**6 + 30,)
        np.testing.assert_array_equal(np.arange(5), array[30:35])


def test_a_shard_has_whole_planes(path):
    planes = np.zeros((1, 3, 2, 2048, 2048), "u2")
    with dataset.create_array(path, planes) as array:
        assert (1, 1, 2, 2048, 2048) == array.shards


@pytest.mark.parametrize(
    ("shape", "shards"),
    [
        ((2, 3, 5, 2048, 2048), (1, 1, 1, 2048, 2048)),
        ((10, 3, 50, 64, 64), (1, 1, 25, 64, 64)),
        ((2, 2, 8, 32, 32), (2, 2, 8, 32, 32)),
        ((0, 2, 8, 256, 256), (1, 1, 2, 256, 256)),
        ((2, 2, 5, 4096, 4096), (1, 1, 1, 2048, 4096)),
    ],
)
def test_each_plane_of_an_array_from_a_shape_is_written_once(path, shape, shards):
    with dataset.create_array(path, shape=shape, dtype="u2") as array:
        assert shards == array.shards


@pytest.mark.parametrize(
    ("shape", "chunks", "shards"),
    [
        ((100,), 40, 100),
        ((100,), (40,), (100,)),
        ((100, 100), 40, 100),
        ((100, 100), 40, (100, 50)),
        ((100, 100), (40, 100), (100, 100)),
        ((100, 100), (40, 40), 100),
        ((100, 100), (40, 40), (100, 120)),
        ((100, 100), (40, 40), (120, 100)),
        ((0, 100), (40, 40), (120, 100)),
        ((100, 3000, 3000), (4, 1000, 1000), (8, 3000, 1500)),
    ],
)
def test_shards_that_are_no_multiple_of_the_chunks_are_refused(
    path, shape, chunks, shards
):
    with pytest.raises(UsageError, match="a shard must have a multiple of"):
        dataset.create_array(
            path, shape=shape, dtype="u1", chunks=chunks, shards=shards
        )
    assert not path.exists()
    if isinstance(chunks, tuple) and isinstance(shards, tuple):
        zarr = pytest.importorskip("zarr", minversion="3", reason="no zarr-python 3")
        options = {"shape": shape, "chunks": chunks, "shards": shards, "dtype": "u1"}
        with pytest.raises(ValueError, match="divisible"):
            zarr.create_array({}, **options)


def test_a_number_of_rows_of_a_shard_takes_whole_rows(path):
    with dataset.create_array(
        path, shape=(100, 100), dtype="u1", chunks=(40, 40), shards=120
    ) as array:
        assert (120, 120) == array.shards


def test_variables_with_the_same_dimensions_get_the_same_chunks(path):
    xr = pytest.importorskip("xarray", reason="xarray is not installed")
    axes = ("time", "lat", "lon")
    wide, flags = np.zeros((30, 90, 180)), np.zeros((30, 90, 180), "?")
    data = xr.Dataset(
        {
            "wide": (axes, wide),
            "narrow": (axes, wide.astype("f4")),
            "flags": (axes, flags),
            "long": ("n", np.zeros(10**6)),
            "short": ("n", np.zeros(10**6, "u1")),
            "mean": ("time", np.zeros(30, "f4")),
            "name": ("lat", ["station %d" % i for i in range(90)]),
            "scalar": 5,
        },
        {"time": np.arange(30), "lat": np.arange(90.0)},
    )
    with dataset.from_xarray(path, data) as group:
        chunks = {name: group[name].chunks for name in group}
        assert chunks["wide"] == chunks["narrow"] == chunks["flags"] == (15, 90, 90)
        assert chunks["long"] == chunks["short"] == (2**17,)
        assert chunks["time"] == chunks["mean"] == (30,)
        assert chunks["lat"] == chunks["name"] == (90,)
        assert size(path / "time") < 8 * KIB
        assert group.to_xarray().identical(data)
    given = {"wide": {"chunks": (30, 10, 10)}}
    with dataset.from_xarray(path, data, encoding=given, mode="w") as group:
        assert (30, 10, 10) == group["wide"].chunks
        assert (15, 90, 90) == group["narrow"].chunks


# Settings


@pytest.mark.parametrize("layout", ["zarr", "superchunk"])
def test_settings_fit_the_items(path, layout):
    items = rounded(MIB // 8)
    with dataset.create_array(path, items, layout=layout) as array:
        array.append(items)
    fitted = settings_of(path)
    usual = path.with_name("usual")
    with dataset.create_array(usual, items, layout=layout, auto=False) as array:
        array.append(items)
    assert ("lz4", 5, "shuffle") == settings_of(usual)
    assert size(path) < size(usual) / 2
    np.testing.assert_array_equal(np.tile(items, 2), dataset.open(path)[:])
    # The same items always get the same settings.
    again = path.with_name("again")
    dataset.create_array(again, items, layout=layout).close()
    assert fitted == settings_of(again)


def test_each_column_gets_settings_that_fit_it(path):
    noise = np.random.default_rng(0).integers(0, 2**63, 2**16)
    with dataset.create_table(path, {"a": noise, "b": rounded(2**16)}) as table:
        found = {table[name].codec for name in table.names}
    assert {"lz4", "zstd"} == found


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"cname": "zlib"}, ("zlib", 5, "shuffle")),
        ({"level": 1}, ("lz4", 1, "shuffle")),
        ({"shuffle": 0}, ("lz4", 5, "none")),
        ({"auto": False}, ("lz4", 5, "shuffle")),
    ],
)
def test_settings_of_the_user_are_not_completed_by_trials(path, settings, expected):
    dataset.create_array(path, rounded(MIB // 8), **settings).close()
    assert expected == settings_of(path)


def test_items_that_are_not_at_hand_get_the_usual_settings(path):
    items = rounded(MIB // 8)
    for data in (iter([items]), items[:1000], None):
        shape = {"shape": items.shape, "dtype": "f8"} if data is None else {}
        dataset.create_array(path, data, mode="w", **shape).close()
        assert ("lz4", 5, "shuffle") == settings_of(path)


class Counted:
    """An array that is not in memory, which counts the items that it returns."""

    def __init__(self, items):
        self.items, self.shape, self.dtype = items, items.shape, items.dtype
        self.taken = 0

    def __getitem__(self, key):
        found = self.items[key]
        self.taken += found.size
        return found


def test_of_an_array_that_is_not_in_memory_little_is_read_twice(path):
    items = rounded(2 * MIB).reshape(2, 1024, 1024)
    source = Counted(items)
    dataset.create_array(path, source).close()
    assert "zstd" == settings_of(path)[0]
    assert items.size < source.taken <= items.size + 4 * MIB // 8
    np.testing.assert_array_equal(items, dataset.open(path)[...])


def test_blocks_of_dask_are_not_computed_for_a_sample(path):
    array = pytest.importorskip("dask.array", reason="dask is not installed")
    computed = []

    def block(number):
        computed.append(int(number[0]))
        return np.full(2**17, number[0])

    numbers = array.arange(4, chunks=1)
    blocks = numbers.map_blocks(block, chunks=(2**17,), dtype=numbers.dtype)
    computed.clear()
    dataset.create_array(path, blocks).close()
    assert [0, 1, 2, 3] == sorted(computed)
    assert "lz4" == settings_of(path)[0]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("step", [1, 2, -1])
def test_items_in_any_order_are_a_sample(path, order, step):
    items = np.asarray(rounded(MIB // 4).reshape(512, 512), order=order)[::step]
    dataset.create_array(path, items).close()
    assert "zstd" == settings_of(path)[0]
    np.testing.assert_array_equal(items, dataset.open(path)[...])


def test_converted_items_are_a_sample(path):
    items = rounded(MIB // 4)
    for dtype in ("f4", ">f8", "c16"):
        dataset.create_array(path, items, dtype=dtype, mode="w").close()
        assert "zstd" == settings_of(path)[0]
        np.testing.assert_array_equal(items.astype(dtype), dataset.open(path)[...])
    items[:] = 1e300
    with pytest.raises(UsageError, match="does not fit"):
        dataset.create_array(path, items, dtype="f4", mode="w")


# Blocks


def test_a_chunk_of_lz4_has_blocks_of_128_kib(path):
    items = rounded(3 * MIB // 8)
    with dataset.create_array(path, items, cname="lz4") as array:
        array.append(items)
    assert 16 * KIB == blosc_of(path)["blocksize"]  # Blosc multiplies it by 8
    assert 128 * KIB == info(path / "c" / "0").first_chunk.blocksize
    np.testing.assert_array_equal(np.tile(items, 2), dataset.open(path)[:])


def test_zarr_writes_the_same_blocks(path):
    zarr = pytest.importorskip("zarr", reason="needs zarr 3", minversion="3")
    items = rounded(2**18)
    dataset.create_array(path, items, chunks=2**17, cname="lz4").close()
    zarr.open_array(path, mode="r+")[:] = items + 1
    # The shard begins with a chunk. Its header has the block size.
    head = (path / "c" / "0").read_bytes()[:16]
    assert 128 * KIB == int.from_bytes(head[8:12], "little")
    np.testing.assert_array_equal(items + 1, dataset.open(path)[:])


def test_regular_data_keep_long_blocks(path):
    dataset.create_array(path, np.arange(MIB // 8), cname="lz4").close()
    assert 0 == blosc_of(path)["blocksize"]
    assert MIB == info(path / "c" / "0").first_chunk.blocksize


@pytest.mark.parametrize("stored", [-1, True, 2**31, "16", None, 10**30])
def test_a_wrong_block_size_is_ignored(path, stored):
    items = rounded(2**17)
    dataset.create_array(path, items, cname="lz4").close()
    document = (path / "zarr.json").read_text()
    wrong = document.replace('"blocksize": 16384', '"blocksize": ' + json.dumps(stored))
    assert wrong != document
    (path / "zarr.json").write_text(wrong)
    with dataset.open(path, "r+") as array:
        array.append(items)
    np.testing.assert_array_equal(np.tile(items, 2), dataset.open(path)[:])
