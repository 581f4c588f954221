"""Zarr arrays that other programs have made: what is opened how, read and changed."""

from __future__ import annotations

import importlib.util
import os
import sys
import warnings

import numpy as np
import pytest
from dataset.inside import FolderStore

from bloscpack import dataset
from bloscpack.cli import main
from bloscpack.exceptions import DamageError, FormatError, UsageError

zarr = pytest.importorskip("zarr", reason="needs zarr 3", minversion="3.1")
codecs = pytest.importorskip("zarr.codecs")
numcodecs = pytest.importorskip("numcodecs")
ITEMS = np.arange(60 * 70, dtype="i4").reshape(60, 70)
BYTES, CRC = codecs.BytesCodec(), codecs.Crc32cCodec()
ZSTD, GZIP = codecs.ZstdCodec(level=3), codecs.GzipCodec(level=5)
BLOSC = codecs.BloscCodec(cname="lz4", clevel=5)
OLD_BLOSC = numcodecs.Blosc(cname="lz4")
TRANSPOSE = codecs.TransposeCodec(order=(1, 0))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # data types that are no part of the standard
        yield


def simple(**settings):
    """Return what makes an array by `zarr.create_array`."""

    def make(items):
        options = {"chunks": (20, 33), "dtype": items.dtype, **settings}
        zarr.create_array("a", shape=items.shape, **options)[...] = items

    return make


def chained(*chain, **settings):
    """Return what makes an array of format 3 with codecs."""

    def make(items):
        options = {"chunks": (20, 32), "zarr_format": 3, **settings}
        made = zarr.create(
            store="a", shape=items.shape, dtype=items.dtype, codecs=chain, **options
        )
        made[...] = items

    return make


def sharded(*inner, fill_value=0, **settings):
    codec = codecs.ShardingCodec(chunk_shape=(10, 16), codecs=inner, **settings)
    return chained(codec, fill_value=fill_value)


def by_tensorstore(*chain, keys=None):
    def make(items):
        tensorstore = pytest.importorskip("tensorstore")
        grid = {"name": "regular", "configuration": {"chunk_shape": [20, 33]}}
        metadata = {
            "shape": list(items.shape),
            "data_type": "int32",
            "chunk_grid": grid,
            "codecs": list(chain),
            "fill_value": 7,
        }
        if keys is not None:
            metadata["chunk_key_encoding"] = keys
        spec = {"driver": "zarr3", "kvstore": "file://" + os.path.abspath("a") + "/"}
        opened = tensorstore.open(spec | {"metadata": metadata}, create=True).result()
        opened.write(items).result()

    return make


def named(name, **configuration):
    return {"name": name, "configuration": configuration}


LITTLE = named("bytes", endian="little")
LZ4 = {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "blocksize": 0, "typesize": 4}
INDEX = [LITTLE, {"name": "crc32c"}]


def shard_of(*inner, **settings):
    settings = {"index_codecs": INDEX, **settings}
    return named("sharding_indexed", chunk_shape=[10, 11], codecs=inner, **settings)


def in_zip(items):
    with zarr.storage.ZipStore("a.zip", mode="w") as store:
        zarr.create_array(store, data=items, chunks=(20, 33), compressors=GZIP)
    os.rename("a.zip", "a")


# How an array was made, and what opens it: "zarr" for reading and changes, "zarr" with
# zarr-python for reading.
TABLE = {
    "default": (simple(), "zarr"),
    "not compressed": (simple(compressors=None), "zarr"),
    "gzip": (simple(compressors=GZIP), "zarr"),
    "blosc": (simple(compressors=BLOSC), "zarr"),
    "zstd and digests": (simple(compressors=[ZSTD, CRC]), "zarr"),
    "digests alone": (simple(compressors=[CRC]), "zarr"),
    "fill value": (simple(fill_value=-3), "zarr"),
    "big-endian": (chained(codecs.BytesCodec(endian="big"), ZSTD), "zarr"),
    "dots": (simple(chunk_key_encoding={"name": "default", "separator": "."}), "zarr"),
    "names of format 2": (
        simple(chunk_key_encoding={"name": "v2", "separator": "."}),
        "zarr",
    ),
    "names with slashes": (
        simple(chunk_key_encoding={"name": "v2", "separator": "/"}),
        "zarr",
    ),
    "shards": (simple(chunks=(10, 11), shards=(20, 33)), "zarr"),
    "shards of rows": (simple(chunks=(7, 70), shards=(21, 70)), "zarr"),
    "shards with our codecs": (sharded(BYTES, BLOSC, CRC), "own"),
    "our codecs, big-endian": (
        sharded(codecs.BytesCodec(endian="big"), BLOSC, CRC, fill_value=-3),
        "own",
    ),
    "shards of blosc": (sharded(BYTES, BLOSC), "zarr"),
    "index at the start": (sharded(BYTES, ZSTD, index_location="start"), "zarr"),
    "index without digest": (sharded(BYTES, GZIP, index_codecs=[BYTES]), "zarr"),
    "tensorstore": (by_tensorstore(LITTLE), "zarr"),
    "tensorstore: zstd": (by_tensorstore(LITTLE, named("zstd", level=1)), "zarr"),
    "tensorstore: gzip, dots": (
        by_tensorstore(
            *(LITTLE, named("gzip", level=6)), keys=named("default", separator=".")
        ),
        "zarr",
    ),
    "tensorstore: shards": (
        by_tensorstore(shard_of(LITTLE, named("zstd", level=1), {"name": "crc32c"})),
        "zarr",
    ),
    "tensorstore: our codecs": (
        by_tensorstore(shard_of(LITTLE, named("blosc", **LZ4), {"name": "crc32c"})),
        "own",
    ),
    "tensorstore: blosc, index at the start": (
        by_tensorstore(shard_of(LITTLE, named("blosc", **LZ4), index_location="start")),
        "zarr",
    ),
    "tensorstore: index at the start": (
        by_tensorstore(shard_of(LITTLE, index_location="start")),
        "zarr",
    ),
    "ZIP": (in_zip, "zarr"),
    "format 2": (simple(zarr_format=2), "zarr"),
    "format 2, blosc": (simple(zarr_format=2, compressors=OLD_BLOSC), "zarr"),
    "format 2, Fortran order": (simple(zarr_format=2, order="F"), "zarr"),
    "transpose": (chained(TRANSPOSE, BYTES), "zarr"),
    "transposed shards": (sharded(TRANSPOSE, BYTES), "zarr"),
    "nested shards": (sharded(codecs.ShardingCodec(chunk_shape=(5, 8))), "zarr"),
}


def read_by_zarr():
    return zarr.open_array("a", mode="r")[...]


@pytest.mark.parametrize("name", TABLE)
def test_reading(name):
    make, how = TABLE[name]
    make(ITEMS)
    array = dataset.open("a")
    assert ("zarr-python" if how == "zarr" else "zarr") == array.layout
    np.testing.assert_array_equal(ITEMS, array[:])
    for key in np.s_[5, 3:60:7], np.s_[::-9, [5, 60, 2]], np.s_[ITEMS > 4000]:
        np.testing.assert_array_equal(ITEMS[key], array[key])
    report = dataset.verify("a")
    assert report.ok
    assert array._layout.has_digests != (
        "no-checksum" in [finding.kind for finding in report.findings]
    )
    assert ITEMS.nbytes == dataset.describe("a")["nbytes"]
    dataset.convert("a", "b.npy")
    np.testing.assert_array_equal(ITEMS, np.load("b.npy"))


@pytest.mark.parametrize("name", TABLE)
def test_changes(name):
    make, how = TABLE[name]
    make(ITEMS)
    if how != "own":
        with pytest.raises(UsageError, match=r"only be read.*blpk convert"):
            dataset.open("a", "r+")
        return
    before = zarr.open_array("a", mode="r").metadata
    expected = ITEMS.copy()
    with dataset.open("a", "r+") as array:
        array[5:30, 10:40] = expected[5:30, 10:40] = -7
        array.append(expected[:13])
        expected = np.concatenate([expected, expected[:13]])
        array.append(expected[:, :9], axis=1)
        expected = np.concatenate([expected, expected[:, :9]], axis=1)
        array.resize((80, 75))
        array.attrs["unit"] = "m"
    expected = np.pad(
        expected[:, :75], ((0, 7), (0, 0)), constant_values=array.fill_value
    )
    np.testing.assert_array_equal(expected, dataset.open("a")[:])
    np.testing.assert_array_equal(expected, read_by_zarr())
    after = zarr.open_array("a", mode="r").metadata
    assert (before.codecs, before.chunk_key_encoding) == (
        *(after.codecs, after.chunk_key_encoding),
    )
    assert dataset.verify("a").ok
    if importlib.util.find_spec("tensorstore") is not None:
        import tensorstore

        spec = {"driver": "zarr3", "kvstore": "file://" + os.path.abspath("a") + "/"}
        found = tensorstore.open(spec).result().read().result()
        np.testing.assert_array_equal(expected, found)
    zarr.open_array("a", mode="r+")[2:4] = 9
    expected[2:4] = 9
    np.testing.assert_array_equal(expected, dataset.open("a")[:])


@pytest.mark.parametrize("dtype", ["?", "u1", "<f2", ">f8", "c8", "S3", ">U2", "M8[s]"])
@pytest.mark.parametrize("compressor", [ZSTD, BLOSC, None])
@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 0), (2, 3, 4)])
def test_types_and_shapes(dtype, compressor, shape):
    items = (np.arange(np.prod(shape, dtype=int)) % 2).reshape(shape)
    items = items.astype("M8[s]" if dtype[0] == "M" else dtype)
    chunks = tuple(max(1, n // 2) for n in shape)
    made = zarr.create_array(
        "a", shape=shape, dtype=dtype, chunks=chunks, compressors=compressor
    )
    made[...] = items
    np.testing.assert_array_equal(items, dataset.open("a")[...])
    dataset.convert("a", "b.zarr")
    with dataset.open("b.zarr", "r+") as array:
        array[...] = items[::-1] if shape else items
    expected = items[::-1] if shape else items
    np.testing.assert_array_equal(expected, zarr.open_array("b.zarr", mode="r")[...])


@pytest.mark.parametrize("encoding", ["default", "v2"])
def test_files_whose_names_look_like_numbers(encoding):
    simple(chunk_key_encoding={"name": encoding, "separator": "."})(ITEMS)
    names = sorted(os.listdir("a"))
    size = sum(os.path.getsize("a/" + name) for name in names[:-1])
    for name in ("0", "0.\u00b2", "00.1", "0.1.2", "9.9", "1" * 200 + ".0"):
        with open("a/" + ("c." if encoding == "default" else "") + name, "wb") as fp:
            fp.write(bytes(4))
    assert size == dataset.open("a").cbytes
    report = dataset.verify("a")
    assert report.ok
    assert 6 == [finding.kind for finding in report.findings].count("unused")


def test_groups_of_format_2():
    group = zarr.create_group("g", zarr_format=2, attributes={"unit": "m"})
    group.create_array("x", data=ITEMS, chunks=(20, 33), attributes={"y": 1})
    group.create_group("inner").create_array("z", data=np.arange(3))
    with dataset.open("g") as found:
        assert {"unit": "m"} == dict(found.attrs)
        assert ["inner", "x"] == sorted(found)
        assert {"y": 1} == dict(found["x"].attrs)
        assert [0, 1, 2] == found["inner/z"][:].tolist()
    with pytest.raises(UsageError, match="can only be read"):
        dataset.open("g", "r+")
    assert dataset.verify("g").ok
    dataset.convert("g", "h.zarr")
    np.testing.assert_array_equal(ITEMS, dataset.open("h.zarr")["x"][:])


def test_copied_attributes():
    """They may have the identity of an array that an older version wrote."""
    attributes = {"unit": "m", "bloscpack-id": "id=%s crc32=%s" % ("1" * 16, "2" * 8)}
    zarr.create_array("a", data=ITEMS, chunks=(20, 33), attributes=attributes)
    with dataset.open("a") as found:
        assert "zarr-python" == found.layout
        assert {"unit": "m"} == dict(found.attrs)
        np.testing.assert_array_equal(ITEMS, found[:])


def test_members_of_a_group():
    """Other members of the group can be changed, and the array can be removed."""
    with dataset.create_group("g") as group:
        group.create_array("own", ITEMS)
    zarr.open_group("g", mode="r+").create_array("other", data=ITEMS, chunks=(20, 33))
    with dataset.open("g", "r+") as group:
        other = group["other"]
        np.testing.assert_array_equal(ITEMS, other[:])
        group["own"][0] = other[1]
        for change in (
            lambda: other.__setitem__(0, 1),
            lambda: other.append(ITEMS),
            lambda: other.resize((5, 5)),
            lambda: other.attrs.update(unit="m"),
        ):
            with pytest.raises(UsageError, match=r"only be read.*blpk convert"):
                change()
        assert dataset.verify("g").ok
        del group["other"]
        assert ["own"] == list(group)


def test_texts_of_any_length():
    texts = np.array(["a", "bb", "", "ccc", "é"], object)
    zarr.create_array("a", shape=(5,), chunks=(2,), dtype=str)[:] = texts
    array = dataset.open("a")
    assert texts.tolist() == array[:].tolist()
    assert ["bb", ""] == array[1:3].tolist()
    assert ["ccc", "a"] == array[[3, 0]].tolist()
    assert "é" == array[-1]
    assert dataset.verify("a").ok


@pytest.mark.parametrize("form", [2, 3])
@pytest.mark.parametrize("shape", [(6,), (2, 3), ()])
def test_texts_of_any_length_are_converted(form, shape):
    """A longer one can be appended to the copy, as to the original."""
    texts = np.array(["a", "bb", "", "é" * 300, "c", "d"], object)
    texts = texts.reshape(shape) if shape else texts[3]
    options = {"chunks": (2, 2)[: len(shape)] or None, "zarr_format": form}
    options = {key: value for key, value in options.items() if value is not None}
    made = zarr.create_array("a", shape=shape, dtype=str, fill_value="-", **options)
    made[...] = texts
    dataset.convert("a", "b.zarr")
    with dataset.open("b.zarr", "r+") as array:
        assert ("O", "-") == (array.dtype, array.fill_value)
        if shape:
            array.append(np.full((1, *shape[1:]), "x" * 1000, object))
            assert "x" * 1000 == array[-1].ravel()[0] if shape[1:] else array[-1]
    found = zarr.open_array("b.zarr", mode="r")[...]
    assert np.array_equal(texts, found[: len(texts)] if shape else found)
    dataset.convert("a", "b.npy")
    assert np.array_equal(texts, np.load("b.npy"))
    dataset.convert("a", "b.h5")
    dataset.convert("b.h5", "c.npy")
    assert np.array_equal(texts, np.load("c.npy"))


@pytest.mark.parametrize(
    "make",
    [simple(compressors=GZIP), simple(), sharded(BYTES), sharded(BYTES, BLOSC)],
)
def test_damage(make):
    """Damage is an error, or found by digests where there are some."""
    make(ITEMS)
    path = "a/c/1/0"
    with open(path, "rb") as fp:
        content = fp.read()
    for damaged in (content[:-9], content[:20], b""):
        with open(path, "wb") as fp:
            fp.write(damaged)
        with pytest.raises(FormatError):
            dataset.open("a")[:]
        report = dataset.verify("a")
        assert not report.ok
        assert "a" in repr(report)
        assert report.losses
    with open(path, "wb") as fp:
        fp.write(content)
    dataset.recover("a", "b")
    np.testing.assert_array_equal(ITEMS, dataset.open("b")[:])


@pytest.mark.parametrize("count", [1, 639, 640, 641, 1300, 10**6])
@pytest.mark.parametrize("key", [np.s_[:], np.s_[30:40, 48:64]], ids=str)
def test_shards_that_are_cut_off(key, count):
    """zarr-python takes bytes behind the end of a file for missing chunks."""
    sharded(BYTES, index_location="start", index_codecs=[BYTES, CRC])(ITEMS)
    path = "a/c/1/1"
    os.truncate(path, max(0, os.path.getsize(path) - count))
    with pytest.raises(DamageError):
        dataset.open("a")[key]
    assert not dataset.verify("a").ok


def test_indexes_of_many_and_few_chunks():
    simple(shards=None, chunks=(7, 9), fill_value=5)(ITEMS)
    os.remove("a/c/2/3")
    expected = ITEMS.copy()
    expected[14:21, 27:36] = 5
    array = dataset.open("a")
    rng = np.random.default_rng(3)
    rows, columns = rng.integers(-60, 60, 300), rng.integers(0, 70, 300)
    mask = rng.random(ITEMS.shape) < 0.1
    all_, points = slice(None), (rows[:, None], columns[:40])
    keys = [..., *np.s_[3:50, 50:3:-3, 3:3], (all_, slice(60, 5, -7)), ([], all_)]
    keys += [(rows, columns), rows, mask, mask[:, 0], (slice(2, 40), columns), points]
    for key in [*keys, (None, 5), (5, 6)]:
        np.testing.assert_array_equal(expected[key], array[key])
        np.testing.assert_array_equal(expected[key], array[key])  # from the cache
    np.testing.assert_array_equal(
        expected[rows][:, columns], array.oindex[rows, columns]
    )
    out = np.zeros_like(expected)
    assert out is array.read(out)
    np.testing.assert_array_equal(expected, out)


def test_flipped_bits_in_frames():
    """No frame crashes a codec; digests find each flipped bit."""
    for compressors, exact in (([ZSTD], False), ([BLOSC], False), ([BLOSC, CRC], True)):
        items = np.arange(2000, dtype="i4")
        zarr.create_array(
            "a", data=items, chunks=2000, compressors=compressors, overwrite=True
        )
        with open("a/c/0", "rb") as fp:
            content = fp.read()
        for bit in range(0, 8 * len(content), 97):
            damaged = bytearray(content)
            damaged[bit // 8] ^= 1 << bit % 8
            with open("a/c/0", "wb") as fp:
                fp.write(damaged)
            try:
                found = dataset.open("a")[:]
                assert not exact
                assert items.shape == found.shape
            except DamageError:
                pass


@pytest.mark.parametrize("count", [3999, 4001, 10**7])
@pytest.mark.parametrize("compressors", [ZSTD, BLOSC, GZIP, None])
def test_frames_of_other_sizes(count, compressors):
    """A frame with more or fewer bytes than a chunk is damage."""
    for path, size in (("a", 4000), ("b", count)):
        zarr.create_array(
            path,
            data=np.ones(size, "u1"),
            chunks=size,
            compressors=compressors,
        )
    os.replace("b/c/0", "a/c/0")
    with pytest.raises(DamageError):
        dataset.open("a")[:]


def test_commands(capfd):
    TABLE["format 2"][0](ITEMS)
    for verb, words in {
        "info": ("zarr-python", "60", "zstd"),
        "list": ("60", "i4"),
        "verify": ("only where zarr-python can't read it",),
        "cat": (),
    }.items():
        run_blpk(verb, "a")
        text = "".join(capfd.readouterr())
        assert all(word in text for word in words), text
    run_blpk("convert", "a", "b.npy")
    np.testing.assert_array_equal(ITEMS, np.load("b.npy"))


def run_blpk(*args):
    assert main(list(args)) in (0, None)


def test_list_of_an_array_without_a_codec(capfd):
    zarr.create_array("a", data=ITEMS, chunks=(20, 33), compressors=None)
    run_blpk("list", "a")
    assert "  none " in capfd.readouterr()[0]


def test_commands_for_an_array_in_a_zip_file(capfd):
    with zarr.storage.ZipStore("a.zip", mode="w") as store:
        group = zarr.create_group(store).create_group("inner")
        group.create_array("x", data=ITEMS, chunks=(20, 33))
    run_blpk("info", "a.zip/inner/x")
    assert str(ITEMS.shape) in capfd.readouterr()[0]
    run_blpk("convert", "a.zip/inner", "b.zarr")
    np.testing.assert_array_equal(ITEMS, dataset.open("b.zarr/x")[:])
    with pytest.raises(SystemExit, match="1"):
        main(["info", "a.zip/other"])
    assert "a.zip/other" in capfd.readouterr()[1]


@pytest.mark.parametrize("name", ["format 2", "gzip", "transpose"])
def test_without_zarr(monkeypatch, name):
    TABLE[name][0](ITEMS)
    monkeypatch.setitem(sys.modules, "zarr", None)
    for mode in ("r", "r+"):
        with pytest.raises(UsageError, match=r"'zarr' can't be imported.*\[zarr\]"):
            dataset.open("a", mode)


def test_zarr_2_reads_no_format_3(monkeypatch):
    TABLE["gzip"][0](ITEMS)
    monkeypatch.setattr(zarr.storage, "DirectoryStore", None, raising=False)
    with pytest.raises(UsageError, match=r"format 3 needs zarr 3, found zarr \d"):
        dataset.open("a")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"fill_value": 5, "shards": (20, 10)},
        {"zarr_format": 2, "fill_value": 5},
        {"zarr_format": 2, "fill_value": None},
        {"chunk_key_encoding": {"name": "v2", "separator": "."}},
    ],
)
def test_files_that_are_missing_are_not_looked_for(settings, monkeypatch):
    """zarr looks for each by itself."""
    there = zarr.create_array(
        "a", shape=(305, 300), chunks=(10, 10), dtype="i4", **settings
    )
    there[3:22, 15:31] = np.arange(19 * 16).reshape(19, 16)
    there[300:, 290:] = 7
    opened, genuine = [], FolderStore.descriptor

    def descriptor(store, name, *flags):
        opened.append(name)
        return genuine(store, name, *flags)

    monkeypatch.setattr(FolderStore, "descriptor", descriptor)
    array = dataset.open("a")
    for index in (
        ...,
        np.s_[5:, 20:295],
        np.s_[::-1, :],
        np.s_[300:, 100:],
        np.s_[30:200],
    ):
        assert there[...][index].tolist() == array[index].tolist()
    assert len(opened) < 60
    there[100] = 9  # another program writes a file
    assert there[...].tolist() == array[:].tolist()
    there[...] = 11
    assert (array[:] == 11).all()


@pytest.mark.parametrize("dtype", ["S3", "U3", "?", "c8"])
def test_missing_items_without_a_fill_value(dtype):
    there = zarr.create_array(
        "a", shape=(500,), chunks=(2,), dtype=dtype, zarr_format=2, fill_value=None
    )
    there[:3] = np.ones(3, dtype)
    assert there[:].tolist() == dataset.open("a")[:].tolist()
