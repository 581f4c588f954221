"""Text of variable length in the layout `zarr`: objects of `str`.

What zarr-python and xarray write, this library reads, appends to, and the reverse. The
bytes of a chunk may be anything: wrong ones are damage, in bounded memory.
"""

import json
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from indexes import indexes

import bloscpack
from bloscpack import dataset
from bloscpack.checksums import CHECKSUMS_LOOKUP
from bloscpack.exceptions import DamageError, FormatError, UsageError

crc32c = CHECKSUMS_LOOKUP["crc32c"]
WORDS = ["", "a", "suspicious", "\u00e9\U0001f600", "x\0", "z" * 3000, "nul\0in"]


def texts(shape, seed=0):
    """Return texts of many lengths."""
    rng = np.random.default_rng(seed)
    flat = [
        WORDS[i] + str(i) * (i % 3) for i in rng.integers(len(WORDS), size=shape).flat
    ]
    found = np.empty(shape, object)
    found.reshape(-1)[:] = flat
    return found


def words_of(word):
    """Return a text as an array without axes."""
    return np.array(word, object)


def assert_items(expected, found):
    assert expected.shape == found.shape
    assert expected.tolist() == found.tolist()


def stored(path):
    with open(path / "zarr.json", encoding="utf-8") as fp:
        return json.load(fp)


# Arrays


@pytest.mark.parametrize(
    ("shape", "how"),
    [
        ((), {}),
        ((0,), {}),
        ((120,), {}),
        ((120,), {"chunks": 7, "shards": 21}),
        ((13, 9), {"chunks": (5, 4), "shards": (10, 8)}),
        ((3, 4, 5), {"chunks": (2, 2, 2)}),
    ],
)
@settings(max_examples=25, suppress_health_check=[*HealthCheck])
@given(data=st.data())
def test_any_index(tmp_path, shape, how, data):
    expected = texts(shape)
    with dataset.create_array(tmp_path / "a", expected, mode="w", **how) as array:
        assert np.dtype(object) == array.dtype
        for opened in (array, dataset.open(tmp_path / "a")):
            assert_items(expected, opened[...])
            out = np.empty(shape, object)
            opened.read(out)
            assert_items(expected, out)
            key = data.draw(indexes(shape))
            try:
                wanted = expected[key]
            except IndexError:
                continue
            assert_items(np.array(wanted, object), np.array(opened[key], object))
        if shape:
            key = tuple(data.draw(st.slices(n)) for n in shape)
            expected[key] = array[key] = texts(expected[key].shape, 8)
            more = texts((11, *shape[1:]), 7)
            array.append(more)
            expected = np.concatenate([expected, more])
        assert_items(expected, array[...])
    assert [] == dataset.verify(tmp_path / "a").findings
    assert_items(expected, dataset.open(tmp_path / "a")[...])


def test_what_becomes_text_of_variable_length(tmp_path):
    objects = np.array(["x", "long one"], object)
    cases = [
        ({"data": objects}, "O"),
        ({"data": ["x", "yz"]}, "<U2"),
        ({"data": np.array(["x", "yz"])}, "<U2"),
        ({"data": ["x", "yz"], "dtype": str}, "O"),
        ({"data": np.array(["x", "yz"]), "dtype": object}, "O"),
        ({"data": np.array([b"x", b"yz"]), "dtype": object}, "O"),
        ({"shape": 2, "dtype": object}, "O"),
        ({"shape": 10**12, "dtype": str, "fill_value": "none"}, "O"),
        ({"data": iter([objects, objects])}, "O"),
    ]
    if hasattr(np, "dtypes") and hasattr(np.dtypes, "StringDType"):
        cases.append(({"data": np.array(["x", "yz"], np.dtypes.StringDType())}, "O"))
    for how, dtype in cases:
        with dataset.create_array(tmp_path / "a", mode="w", **how) as array:
            assert dtype == array.dtype
            assert how.get("fill_value", "x" if "data" in how else "") == array[0]
        assert dtype == dataset.open(tmp_path / "a").dtype
    rows = np.array([("x", 1)], [("s", "U3"), ("n", "i4")])
    for data, dtype in (
        (rows, "<U3"),
        ({"s": ["x"], "n": [1]}, "<U1"),
        ({"s": np.array(["x"], object), "n": [1]}, "O"),
    ):
        with dataset.create_table(tmp_path / "t", data, mode="w") as table:
            assert dtype == table.dtype["s"]
    with dataset.create_table(tmp_path / "t", dtype=[("s", str)], mode="w") as table:
        table.append({"s": ["any length"]})
        assert [("any length",)] == table[:].tolist()
        table.add_column("more", objects[1:])
        assert "O" == table["more"].dtype


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["x", None], "found None: only columns of tables have missing text"),
        (["x", float("nan")], "found nan: only columns"),
        (["x", 5], "expected text in each item, found 5"),
        (["x", b"y"], "expected text in each item, found b'y'"),
        (["x", "\ud800"], "expected text that UTF-8 can hold"),
    ],
)
def test_what_is_no_text(tmp_path, wrong, message):
    objects = np.array(wrong, object)
    with pytest.raises(UsageError, match=message):
        dataset.create_array(tmp_path / "a", objects)
    assert [] == list(tmp_path.iterdir())
    for buffered in (False, True):
        path = tmp_path / ("a%d" % buffered)
        first = np.array(["first"], object)
        with dataset.create_array(path, first, buffered=buffered) as array:
            for change in (
                lambda a: a.append(objects),
                lambda a: a.append(iter([objects])),
                lambda a: a.__setitem__(slice(0, 1), objects[1:]),
            ):
                with pytest.raises(UsageError, match=message):
                    change(array)
        assert ["first"] == dataset.open(path)[:].tolist()
    for fill in wrong[1:] if wrong[1] is not None else ():
        with pytest.raises(UsageError):
            dataset.create_array(tmp_path / "f", shape=1, dtype=object, fill_value=fill)


def test_fill_value_pads_and_fills(tmp_path):
    path = tmp_path / "a"
    with dataset.create_array(
        path, texts(5), chunks=4, shards=8, fill_value="n/a", dims=["t"]
    ) as array:
        array.resize(30)
        array[20] = "x" * 100
        assert ["n/a", "x" * 100, "n/a"] == array[19:22].tolist()
        array.resize(3)
        array.resize(7)
    expected = [*texts(5)[:3].tolist(), *["n/a"] * 4]
    assert expected == dataset.open(path)[:].tolist()
    zarr = pytest.importorskip("zarr", minversion="3.1")
    found = zarr.open_array(path, mode="r+")
    assert expected == found[:].tolist()
    found.resize(8)  # the padding of our chunk becomes an item
    assert [*expected, found.fill_value] == dataset.open(path)[:].tolist()


def test_many_missing_chunks(tmp_path):
    """The folder is listed, and not asked for each of many files."""
    with dataset.create_array(
        tmp_path / "a", shape=400, dtype=str, chunks=2, shards=4, fill_value="f"
    ) as array:
        array[100:103] = ["x", "y", "z"]
    expected = np.full(400, "f", object)
    expected[100:103] = ["x", "y", "z"]
    assert_items(expected, dataset.open(tmp_path / "a")[:])


def test_settings(tmp_path):
    words = np.array(["word %d" % (n // 10) for n in range(50000)], object)
    sizes = {}
    for name, how in {"a": {}, "b": {"auto": True}, "c": {"cname": "zstd"}}.items():
        with dataset.create_array(tmp_path / name, words, **how) as array:
            sizes[name] = array.cbytes
            assert_items(words, array[:])
        blosc = stored(tmp_path / name)["codecs"][0]["configuration"]["codecs"][1]
        assert 1 == blosc["configuration"]["typesize"]
    assert sizes["b"] < sizes["a"] < 50000 * 13


def test_a_single_shard(tmp_path):
    """It is a file of its own, which says what it is, and is no array."""
    with dataset.create_array(tmp_path / "a", texts(9), chunks=4, shards=12):
        pass
    file = tmp_path / "a" / "c" / "0"
    info = bloscpack.describe.info(file)
    assert info.array is None
    assert info.shard.index
    assert "vlen-utf8" == info.metadata["container"]
    assert ([9], [4], [12]) == tuple(
        info.metadata[k] for k in ("shape", "chunks", "shard")
    )
    assert [] == bloscpack.verify(file).findings
    with pytest.raises(FormatError, match="the file contains bytes and no array"):
        bloscpack.unpack_ndarray_from_file(file)
    plain, _ = bloscpack.unpack_bytes_from_file(file)
    assert 4 == struct.unpack_from("<I", plain)[0]
    before = file.read_bytes()
    with pytest.raises(UsageError, match="a shard of text"):
        bloscpack.append.append_bytes_to_file(b"x", file)
    with pytest.raises(UsageError, match="a shard of text"):
        bloscpack.repack(file, cname="zstd")
    assert before == file.read_bytes()
    # A damaged index is found, and written again.
    content = bytearray(before)
    content[-8] ^= 1
    file.write_bytes(content)
    assert {"trailer"} == {found.kind for found in bloscpack.verify(file).findings}
    bloscpack.recover(file, tmp_path / "r.blp")
    assert [] == bloscpack.verify(tmp_path / "r.blp").findings
    file.write_bytes((tmp_path / "r.blp").read_bytes())
    assert_items(texts(9), dataset.open(tmp_path / "a")[:])
    assert dataset.verify(tmp_path / "a").ok


# Other programs


def test_zarr_python(tmp_path):
    zarr = pytest.importorskip("zarr", minversion="3.1")
    path = tmp_path / "a"
    expected = texts((25, 3))
    with dataset.create_array(path, expected[:20], chunks=(4, 2), shards=(8, 4)):
        pass
    found = zarr.open_array(path, mode="r+")
    assert_items(expected[:20], found[:].astype(object))
    found.append(expected[20:].astype(found.dtype))
    found[0, 0] = expected[0, 0] = "longer than anything " * 9
    with dataset.open(path, "r+") as array:
        assert_items(expected, array[:])
        array.append(expected[:2])
    assert_items(
        np.concatenate([expected, expected[:2]]),
        zarr.open_array(path)[:].astype(object),
    )
    assert dataset.verify(path).ok
    # An array of zarr-python, with codecs in the same order.
    codecs = [zarr.codecs.BloscCodec(cname="lz4"), zarr.codecs.Crc32cCodec()]
    made = zarr.create_array(
        tmp_path / "z",
        shape=(25,),
        chunks=(4,),
        shards=(8,),
        dtype=str,
        compressors=codecs,
    )
    made[:] = expected[:, 0].astype(made.dtype)
    with dataset.open(tmp_path / "z", "r+") as array:
        assert ("zarr", "O") == (array.layout, array.dtype)
        assert_items(expected[:, 0], array[:])
        array.append(["\u00e9" * 500])
        array[1] = "x\0y"
    found = zarr.open_array(tmp_path / "z")
    assert ["x\0y", "\u00e9" * 500] == [found[1].item(), found[25].item()]
    assert dataset.verify(tmp_path / "z").ok


def test_xarray(tmp_path):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("zarr", minversion="3.1")
    first = xarray.Dataset(
        {"flag": ("t", np.array(["ok", "bad"], object))}, {"t": [0, 1]}
    )
    second = xarray.Dataset(
        {"flag": ("t", np.array(["suspicious", "ok"], object))}, {"t": [2, 3]}
    )
    path = tmp_path / "x"
    dataset.from_xarray(path, first).close()
    assert "string" == stored(path / "flag")["data_type"]
    second.to_zarr(path, append_dim="t", consolidated=False)
    expected = ["ok", "bad", "suspicious", "ok"]
    with dataset.open(path) as group:
        assert expected == group["flag"][:].tolist()
        assert expected == group.to_xarray()["flag"].values.tolist()
    with dataset.open(path, "r+") as group:
        group["flag"].append(["\u00e9" * 99])
        group["t"].append([4])
    for engine in ("zarr", "bloscpack"):
        how = {"consolidated": False} if engine == "zarr" else {}
        with xarray.open_dataset(path, engine=engine, **how) as found:
            assert [*expected, "\u00e9" * 99] == found["flag"].values.tolist()
            assert ["bad", "ok"] == found["flag"][1:4:2].values.tolist()
    ends = xarray.Dataset(
        {"s": ("t", np.array(["a\0", "b"], object)), "n": ((), words_of("c\0\0"))}
    )
    with dataset.from_xarray(tmp_path / "ends", ends) as group:
        found = group.to_xarray()
        assert "a\0" == found["s"][0].values.item()
        assert np.dtype(object) == found["s"][0].values.dtype
        assert "c\0\0" == found["n"].values.item()
    gaps = xarray.Dataset({"s": ("t", np.array(["x", None], object))})
    with pytest.raises(UsageError, match=r"variable 's'.*expected text in each item"):
        dataset.from_xarray(tmp_path / "g", gaps)
    assert not (tmp_path / "g").exists()


# Tables


def test_batches_of_pandas_and_arrow_with_missing_text(tmp_path):
    pandas = pytest.importorskip("pandas")
    pyarrow = pytest.importorskip("pyarrow")
    batches = [
        ({"s": ["a", "bb"], "n": [1, 2]}, pandas.DataFrame),
        ({"s": ["suspicious", "\u00e9"], "n": [3, 4]}, pandas.DataFrame),
        ({"s": [None, "after " * 50], "n": [5, 6]}, pandas.DataFrame),
        ({"s": ["x", "y"], "n": [7, 8]}, pandas.DataFrame),
        ({"s": ["arrow", None], "n": [9, 10]}, None),
        ({"s": [None, None], "n": [11, 12]}, pandas.DataFrame),
        (
            {"s": [pandas.NA, "z"], "n": [13, 14]},
            lambda d: {**d, "s": np.array(d["s"], object)},
        ),
        (
            {"s": [], "n": []},
            lambda d: pandas.DataFrame(d).astype({"s": object, "n": int}),
        ),
    ]
    for buffered in (False, True):
        path, expected = tmp_path / ("t%d" % buffered), []
        table = None
        for data, make in batches:
            if make is None:
                made = pyarrow.table(data)
                made = dict(zip(made.column_names, made.columns, strict=True))
            else:
                made = make(data)
            if table is None:
                table = dataset.create_table(path, made, buffered=buffered)
            else:
                table.append(made)
            expected += [s if isinstance(s, str) else None for s in data["s"]]
        table.close()
        with dataset.open(path) as table:
            assert ["s", "s_missing", "n"] == table.names
            assert expected == table.to_arrow()["s"].to_pylist()
            frame = table.to_pandas()
            assert ["s", "n"] == list(frame)
            assert (
                expected
                == frame["s"].astype(object).where(frame["s"].notna(), None).tolist()
            )
            assert [*range(1, 15)] == frame["n"].tolist()
            assert ["" if s is None else s for s in expected] == table["s"][:].tolist()
        assert dataset.verify(path).ok
    with dataset.open(path, "r+") as table:
        table["s"] = pandas.Series(["one"] * 14)
        assert not table["s_missing"][:].any()
        table[2:4] = {"s": np.array([None, "two"], object), "n": [0, 0]}
        assert ["one", None, "two"] == table.to_arrow(["s"], slice(1, 4))[
            "s"
        ].to_pylist()


def test_missing_text_is_kept_by_an_assignment(tmp_path):
    objects = np.array(["a", "b", "c"], object)
    with dataset.create_table(tmp_path / "t", {"s": objects, "n": [1, 2, 3]}) as table:
        table["s"] = np.array(["x", None, "y"], object)
        assert [False, True, False] == table["s_missing"][:].tolist()
        assert ["s", "s_missing", "n"] == table.names


def test_a_refused_batch_adds_no_mask(tmp_path):
    objects = np.array(["a", None], object)
    with dataset.create_table(tmp_path / "t", {"s": objects[:1], "n": [1]}) as table:
        for wrong in ({"s": objects, "n": ["x", "y"]}, {"s": objects}):
            with pytest.raises(UsageError):
                table.append(wrong)
        assert ["s", "n"] == table.names


def test_fixed_text_stays(tmp_path):
    """Arrays and tables with text of one length go on as before."""
    with dataset.create_table(
        tmp_path / "t", {"s": np.array(["ab"]), "n": [1]}
    ) as table:
        table.append({"s": np.array(["c"], object), "n": [2]})
        with pytest.raises(UsageError, match="'<U2'"):
            table.append({"s": np.array(["longer"], object), "n": [3]})
        assert "<U2" == table["s"].dtype
    for layout in ("superchunk", "bcolz"):
        objects = {"s": np.array(["ab", "c"], object)}
        with dataset.create_table(tmp_path / layout, objects, layout=layout) as table:
            assert "<U2" == table["s"].dtype


def test_dask(tmp_path):
    pytest.importorskip("dask")
    pandas = pytest.importorskip("pandas")
    import dask.array as da
    import dask.dataframe as dd

    words = ["word " * (n % 7) for n in range(100)]
    frame = pandas.DataFrame({"n": range(100), "s": words})
    lazy = dd.from_pandas(frame, npartitions=3)
    table = dataset.from_dask(tmp_path / "t", lazy, chunks=8, shards=16)
    assert words == table["s"][:].tolist()
    assert words == table.to_dask().compute()["s"].tolist()
    longer = dd.from_pandas(
        pandas.DataFrame({"n": [1], "s": ["z" * 999]}), npartitions=1
    )
    table = dataset.from_dask(tmp_path / "t", longer, append=True)
    assert [*words, "z" * 999] == table["s"][:].tolist()
    array = dataset.from_dask(
        tmp_path / "a", da.from_array(np.array(words, object), chunks=30)
    )
    assert words == array.to_dask().compute().tolist()


# Conversions, recovery, URLs


def test_conversions(tmp_path):
    pytest.importorskip("pyarrow")
    rows = {
        "s": np.array(["a", "suspicious", "", "\u00e9,\n"], object),
        "n": np.arange(4),
    }
    with dataset.create_table(tmp_path / "t.zarr", rows):
        pass
    for first, second in (("p.parquet", "q.zarr"), ("c.csv", "d.zarr")):
        dataset.convert(tmp_path / "t.zarr", tmp_path / first)
        dataset.convert(tmp_path / first, tmp_path / second)
        found = dataset.open(tmp_path / second)
        assert "O" == found["s"].dtype
        assert rows["s"].tolist() == found["s"][:].tolist()
    for name in ("n.npy", "s.superchunk", "b.bcolz"):
        dataset.convert(tmp_path / "t.zarr", tmp_path / name)
    assert "<U10" == np.load(tmp_path / "n.npy").dtype["s"]
    for name in ("s.superchunk", "b.bcolz"):
        column = dataset.open(tmp_path / name)["s"]
        assert "<U10" == column.dtype
        assert rows["s"].tolist() == column[:].tolist()
    # An array becomes a table of numbered columns.
    array = np.array([["x", "y"], ["", "suspicious"]], object)
    with dataset.create_array(tmp_path / "m.zarr", array):
        pass
    dataset.convert(tmp_path / "m.zarr", tmp_path / "m.csv")
    assert "0,1\nx,y\n,suspicious\n" == (tmp_path / "m.csv").read_text()
    dataset.convert(tmp_path / "t.zarr", tmp_path / "again.zarr")
    assert "O" == dataset.open(tmp_path / "again.zarr")["s"].dtype


@pytest.mark.parametrize("drop", [False, True])
def test_recovery(tmp_path, drop):
    expected = texts(40)
    path = tmp_path / "a"
    with dataset.create_array(path, expected, chunks=4, shards=16, fill_value="lost"):
        pass
    file = path / "c" / "1"
    content = bytearray(file.read_bytes())
    at = content.index(b"suspicious")
    content[at] ^= 0xFF
    file.write_bytes(content)
    report = dataset.verify(path)
    assert not report.ok
    with pytest.raises(FormatError):
        dataset.open(path)[:]
    done = dataset.recover(path, tmp_path / "r", drop=drop)
    assert 1 == done.nlost
    found = dataset.open(tmp_path / "r")[:].tolist()
    start, stop = done.losses[0].rows
    assert 4 == stop - start
    middle = [] if drop else ["lost"] * 4
    assert [*expected[:start], *middle, *expected[stop:]] == found


def test_memory_and_zip(tmp_path):
    """A reader at a URL reads as one of a file does; so does one of a ZIP file."""
    pytest.importorskip("fsspec")
    expected = texts(200)
    url = "memory://text-%s/a" % tmp_path.name
    with dataset.create_array(url, expected, chunks=16, shards=64) as array:
        array.append(["appended"])
        array[3] = "x" * 5000
    expected[3] = "x" * 5000
    found = dataset.open(url)
    assert [*expected, "appended"] == found[:].tolist()
    assert expected[5:150:40].tolist() == found[5:150:40].tolist()


# Wrong bytes


def chunk(*items, count=None):
    """Return the plain bytes of a chunk; an item is text, bytes, or a wrong size."""
    blocks = [struct.pack("<I", len(items) if count is None else count)]
    for item in items:
        size, item = item if isinstance(item, tuple) else (None, item)
        item = item.encode() if isinstance(item, str) else item
        blocks += [struct.pack("<I", len(item) if size is None else size), item]
    return b"".join(blocks)


GOOD = chunk("a", "bb", "", "d")
HOSTILE = {
    "no bytes": b"",
    "two bytes": b"\4\0",
    "no items": struct.pack("<I", 4),
    "fewer items": chunk("a", "bb", "c" * 8),
    "more items": chunk("a", "bb", "", "d", "e"),
    "wrong count": chunk("a", "bb", "", "d", count=5),
    "huge count": chunk("a", "bb", "", "d", count=2**32 - 1),
    "no UTF-8": chunk("a", b"\xff\xfe", "", "d"),
    "surrogates": chunk("a", b"\xed\xa0\x80", "", "d"),
    "exceeds": chunk("a", "bb", "", (9, "d")),
    "huge size": chunk("a", (2**32 - 1, "bb"), "", "d"),
    "bytes behind": GOOD + b"\0",
    "cut": GOOD[:-1],
    "cut in a size": chunk("a", "bb", "c" * 9)[:-9] + b"\0\0",
}


def write_shard(path, *plains):
    """Write a shard as other programs do, of chunks of 4 texts each."""
    import blosc

    content, index = b"", b""
    for plain in plains:
        frame = blosc.compress(plain, typesize=1, cname="lz4")
        frame += crc32c(frame)
        index += struct.pack("<QQ", len(content), len(frame))
        content += frame
    path.write_bytes(content + index + crc32c(index))


@pytest.mark.parametrize("plain", HOSTILE.values(), ids=HOSTILE)
def test_hostile_chunks(tmp_path, plain):
    path = tmp_path / "a"
    with dataset.create_array(path, texts(8), chunks=4, shards=8):
        pass
    write_shard(path / "c" / "0", GOOD, GOOD)
    array = dataset.open(path)
    assert ["a", "bb", "", "d"] * 2 == array[:].tolist()
    write_shard(path / "c" / "0", GOOD, plain)
    array = dataset.open(path)
    for _ in range(2):  # also from the cache
        with pytest.raises(DamageError) as raised:
            array[5:]
        assert 1 == raised.value.chunk
        assert str(path / "c" / "0") == raised.value.filename
    assert "a" == array[0]
    report = dataset.verify(path)
    assert ["damaged"] == [f.kind for f in report.findings if f.severity == "error"]


def test_hostile_sizes_take_little_memory(tmp_path):
    """A small chunk that claims much, and a document that does."""
    path = tmp_path / "a"
    with dataset.create_array(path, texts(8), chunks=4, shards=8):
        pass
    document = stored(path)
    sharding = document["codecs"][0]["configuration"]
    sharding["chunk_shape"] = [2**27]
    document["chunk_grid"]["configuration"]["chunk_shape"] = [2**28]
    document["shape"] = [2**40]
    document["fill_value"] = "x" * 2**20
    document["attributes"] = {}
    (path / "zarr.json").write_text(json.dumps(document))
    write_shard(path / "c" / "0", GOOD, chunk(*["x"] * 2**16))
    tracemalloc.start()
    try:
        array = dataset.open(path)
        for key in (0, slice(3), 2**27 + 5):
            with pytest.raises(DamageError, match="at least"):
                array[key]
        assert [document["fill_value"]] * 3 == array[2**39 : 2**39 + 3].tolist()
        assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("joint", [False, True], ids=["alone", "in a block"])
def test_assigning_a_text_without_axes(tmp_path, joint):
    with dataset.create_group(tmp_path / "g") as group:
        group["a"] = np.array("old", object)
        if joint:
            with group.change():
                group["a"][()] = "new"
        else:
            group["a"][()] = "new"
        assert "new" == group["a"][()]
        group["a"][...] = np.array("newer", object)
    assert "newer" == dataset.open(tmp_path / "g" / "a")[()]


def test_zero_bytes_at_the_end_of_a_text_without_axes(tmp_path):
    dataset.create_array(tmp_path / "a", words_of("x\0")).close()
    assert "x\0" == dataset.open(tmp_path / "a")[()]


def change(*keys, value):
    def changed(document):
        found = document
        for key in keys[:-1]:
            found = found[key]
        found[keys[-1]] = value

    return changed


INNER = "codecs", 0, "configuration", "codecs"


@pytest.mark.parametrize(
    "changed",
    [
        change("fill_value", value=5),
        change("fill_value", value=None),
        change("fill_value", value="\ud800"),
        change("data_type", value="int32"),
        change(*INNER, 0, value={"name": "bytes"}),
        change(*INNER, 0, value={"name": "vlen-bytes"}),
    ],
)
def test_hostile_documents(tmp_path, changed):
    with dataset.create_array(tmp_path / "a", texts(8)):
        pass
    document = stored(tmp_path / "a")
    changed(document)
    (tmp_path / "a" / "zarr.json").write_text(json.dumps(document))
    with pytest.raises(FormatError):
        dataset.open(tmp_path / "a")[:]
