"""Arrays of the layout zarr, read and written by zarr-python and TensorStore."""

import importlib.util
import os
import shutil
import warnings
from contextlib import suppress

import numpy as np
import pytest
from dataset import states
from support import TESTS

from bloscpack import dataset
from bloscpack.exceptions import FormatError, UsageError

zarr = pytest.importorskip("zarr", reason="needs zarr 3", minversion="3")
has_tensorstore = importlib.util.find_spec("tensorstore") is not None

# Those that each reader of format 3 has, and those of zarr-python.
PORTABLE = ["?", "i1", "u1", "<i2", ">i4", "<u8", "f2", ">f4", "f8", "c8", ">c16"]
EXTENSIONS = ["S3", "<U2", ">U2", "<M8[ns]", ">M8[25s]", "m8[D]"]


def read_by_zarr(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # data types that are no part of the standard
        return zarr.open_array(str(path), mode="r")[...]


def read_by_tensorstore(path):
    import tensorstore

    kvstore = {"driver": "file", "path": str(path)}
    opened = tensorstore.open({"driver": "zarr3", "kvstore": kvstore})
    return opened.result().read().result()


def items(dtype, shape):
    dtype = np.dtype(dtype)
    count = int(np.prod(shape))
    if dtype.kind in "US":
        texts = [str(i % 97) for i in range(count)]
        return np.array(texts, dtype).reshape(shape)
    return (np.arange(count) % 120).astype(dtype).reshape(shape)


@pytest.mark.parametrize("dtype", PORTABLE + EXTENSIONS)
@pytest.mark.parametrize("inner", [(), (3,), (2, 0, 2), (2, 1, 2)])
def test_values(tmp_path, dtype, inner):
    path = tmp_path / "a"
    expected = items(dtype, (50, *inner))
    names = {"cname": "zstd", "clevel": 3, "shuffle": 2}
    with dataset.create_array(path, expected, chunks=8, shards=24, **names) as array:
        array.append(expected[:5])
        array[3] = expected[7]
        array.resize(60)
        expected = array[:]
        attrs = {"unit": "m", "list": [1, None]}
        array.attrs.update(attrs)
    assert expected.tolist() == read_by_zarr(path).tolist()
    assert attrs == dict(zarr.open_array(str(path), mode="r").attrs)
    if has_tensorstore and dtype in PORTABLE:
        assert expected.tolist() == read_by_tensorstore(path).tolist()


def test_open_arrays_are_not_disturbed(tmp_path):
    path = tmp_path / "a"
    array = dataset.create_array(path, np.arange(30), chunks=4, shards=8)
    other = zarr.open_array(str(path), mode="r")
    array.append(np.arange(50))
    assert list(range(30)) == other[:].tolist()
    array[3] = -1
    assert -1 == other[3]
    array.close()


def test_flipped_bits_in_chunks(tmp_path):
    path = tmp_path / "a"
    dataset.create_array(path, np.arange(64), chunks=32, shards=64).close()
    shard = path / "c" / "0"
    content = bytearray(shard.read_bytes())
    offset = int.from_bytes(content[-36:-28], "little")
    size = int.from_bytes(content[-28:-20], "little")
    for position in range(offset, offset + size, 7):
        damaged = content.copy()
        damaged[position] ^= 4
        shard.write_bytes(damaged)
        with pytest.raises(FormatError):
            dataset.open(path)[:]
        with pytest.raises(ValueError, match="checksum"):
            read_by_zarr(path)
        if has_tensorstore:
            with pytest.raises(ValueError, match="Error reading shard"):
                read_by_tensorstore(path)


def same_in_zarr(path, expected):
    np.testing.assert_array_equal(expected, read_by_zarr(path))


def same_in_tensorstore(path, expected):
    if has_tensorstore and expected.dtype.kind in "iuf":
        np.testing.assert_array_equal(expected, read_by_tensorstore(path))


@pytest.mark.parametrize("examples", [6, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("machine", [*states.MACHINES, states.GridMachine])
def test_any_sequence_of_changes(machine, examples, tmp_path):
    """zarr-python agrees after each step, and TensorStore in the end."""
    states.run(
        machine,
        tmp_path,
        "zarr",
        checks=[same_in_zarr],
        last_checks=[same_in_tensorstore],
        examples=examples,
    )


def test_verify_and_recover_after_changes_of_zarr_python(tmp_path):
    path = tmp_path / "a"
    dataset.create_array(path, np.arange(100.0), chunks=10, shards=30).close()
    array = zarr.open(path, mode="r+")
    array[35:40] = 5
    array.resize((130,))
    array[:30] = array.fill_value  # zarr-python removes the shard
    report = dataset.verify(path)
    assert report.ok
    kinds = {"changed", "missing", "other-program", "short"}
    assert kinds == {f.kind for f in report.findings}
    recovery = dataset.recover(path, tmp_path / "b")
    assert [] == recovery.losses
    assert not recovery.certain  # the document does not tell a lost shard from this
    assert array[:].tolist() == dataset.open(tmp_path / "b")[:].tolist()


# Arrays that are cut along every axis

CUT = {"chunks": (2, 3, 1), "shards": (4, 3, 2)}


def read_by_zarrs(path):
    pytest.importorskip("zarrs", reason="zarrs is not installed: it needs Python 3.11")
    pipeline = "zarrs.ZarrsCodecPipeline"
    with zarr.config.set({"codec_pipeline.path": pipeline}):
        return read_by_zarr(path)


@pytest.mark.parametrize("dtype", PORTABLE + EXTENSIONS)
def test_values_of_a_grid(tmp_path, dtype):
    path, expected = tmp_path / "a", items(dtype, (9, 7, 5))
    with dataset.create_array(path, expected[:5, :4, :3], **CUT, sync=False) as array:
        array.append(expected[:5, :4, 3:], axis=2)
        array.append(expected[:5, 4:], axis=1)
        array.append(expected[5:])
        array.resize((10, 7, 4))
        array[3, [6, 0]] = expected[7, 1:3, :4]
        array[1:9:3, 2, ::-2] = expected[0, 0, :2]
        expected = array[:]
    assert expected.tolist() == read_by_zarr(path).tolist()
    if dtype in PORTABLE and dtype != ">c16":  # zarrs 0.2.3 swaps the parts of some
        assert expected.tolist() == read_by_zarrs(path).tolist()
    if has_tensorstore and dtype in PORTABLE:
        assert expected.tolist() == read_by_tensorstore(path).tolist()


@pytest.mark.parametrize("read", [read_by_zarr, read_by_zarrs, read_by_tensorstore])
def test_a_grid_with_few_shards(tmp_path, read):
    if read is read_by_tensorstore and not has_tensorstore:
        pytest.skip("TensorStore is not installed")
    path = tmp_path / "a"
    expected = np.full((10, 8, 5), -5, "i2")
    with dataset.create_array(
        path, shape=(10, 8, 5), dtype="i2", fill_value=-5, **CUT
    ) as array:
        array[1, 2:5, 4] = expected[1, 2:5, 4] = 7
        array[8:, 7] = expected[8:, 7] = 8
    assert 5 == sum(len(names) for *_, names in os.walk(path / "c"))
    np.testing.assert_array_equal(expected, read(path))


@pytest.mark.parametrize("read", [read_by_zarr, read_by_zarrs, read_by_tensorstore])
def test_an_array_without_axes(tmp_path, read):
    if read is read_by_tensorstore and not has_tensorstore:
        pytest.skip("TensorStore is not installed")
    dataset.create_array(tmp_path / "a", 7.5).close()
    assert 7.5 == read(tmp_path / "a")
    with dataset.open(tmp_path / "a", "r+") as array:
        array[...] = -1
    assert -1 == read(tmp_path / "a")


def test_zarr_writes_a_grid(tmp_path):
    path, expected = tmp_path / "a", np.arange(20 * 30).reshape(20, 30)
    blosc = zarr.codecs.BloscCodec(cname="lz4", clevel=5, shuffle="shuffle")
    other = zarr.create_array(
        str(path),
        shape=(20, 40),
        chunks=(4, 5),
        shards=(8, 10),
        dtype="i8",
        fill_value=3,
        compressors=[blosc, zarr.codecs.Crc32cCodec()],
    )
    other[:, :30] = expected
    expected = np.concatenate([expected, np.full((20, 10), 3)], axis=1)
    assert expected.tolist() == dataset.open(path)[:].tolist()
    with dataset.open(path, "r+") as array:
        array[5:7, 3:33] = expected[5:7, 3:33] = -1
        array.append(expected[:, :7], axis=1)
        array.append(array[:5])
        expected = np.concatenate([expected, expected[:, :7]], axis=1)
        expected = np.concatenate([expected, expected[:5]])
        assert expected.tolist() == array[:].tolist()
    assert expected.tolist() == read_by_zarr(path).tolist()
    ours = zarr.open_array(str(path), mode="r+")
    ours[8:13, ::3] = expected[8:13, ::3] = 0
    ours.resize((24, 51))
    expected = np.pad(expected[:24], ((0, 0), (0, 4)), constant_values=3)
    assert expected.tolist() == read_by_zarr(path).tolist()
    assert expected.tolist() == dataset.open(path)[:].tolist()
    assert dataset.verify(path).ok
    dataset.recover(path, tmp_path / "b")
    assert expected.tolist() == dataset.open(tmp_path / "b")[:].tolist()
    with dataset.open(path, "r+") as array:
        array.resize((30, 45))
        array[29, 2] = 5
        assert expected[:, :45].tolist() == array[:24].tolist()
    assert dataset.open(path)[:].tolist() == read_by_zarr(path).tolist()


# What other programs leave out

SIZES = {"chunks": 2, "shards": 4}


@pytest.mark.filterwarnings("ignore:The data type")
@pytest.mark.parametrize("dtype", PORTABLE + EXTENSIONS)
def test_zeros_that_zarr_python_assigns(tmp_path, dtype):
    """They are stored, with any settings of zarr-python; lost items are not zero."""
    path, expected = tmp_path / "a", items(dtype, 20)
    zero = np.zeros(1, expected.dtype)[0]
    dataset.create_array(path, expected, **SIZES).close()
    array = zarr.open_array(str(path), mode="r+")
    array[:4] = expected[:4] = np.repeat(zero, 4)
    array[5:7] = expected[5:7] = np.repeat(zero, 2)
    assert expected.tolist() == dataset.open(path)[:].tolist()
    report = dataset.verify(path)
    assert ["other-program"] * 2 == [f.kind for f in report.findings]
    (path / "c/0").unlink()
    if expected.dtype.kind in "bmM":  # all items of a shard may be true, or NaT
        found = dataset.open(path)[:4].astype("i8")
        assert {1, -(2**63)} >= {*found.tolist()}
        report = dataset.verify(path)
        assert (0, (0, 4)) == (report.nerrors, report.findings[0].rows)
        assert not dataset.recover(path, tmp_path / "new").certain
        return
    with pytest.raises(FormatError, match="the rows 0 to 4"):
        dataset.open(path)[:]
    assert [(0, 4)] == [loss.rows for loss in dataset.verify(path).losses]
    # Where another program has changed the document, no plausible value is read.
    array.attrs["unit"] = "m"
    assert not np.isin(dataset.open(path)[:4], [zero, *expected]).any()


@pytest.mark.parametrize("dtype", PORTABLE + EXTENSIONS)
@pytest.mark.parametrize("shape", [(10,), (10, 3)])
def test_new_items_of_an_array_made_of_data(tmp_path, dtype, shape):
    """They have the value that was asked for, and are stored."""
    path, expected = tmp_path / "a", items(dtype, shape)
    for fill in None, expected.flat[3]:
        zero = np.zeros(1, expected.dtype)[0] if fill is None else fill
        settings = {"chunks": (2,) * len(shape), "fill_value": fill, "mode": "w"}
        with dataset.create_array(path, expected, **settings) as array:
            assert repr(zero) == repr(array.fill_value)
            longer = (23, *shape[1:], 5)[: len(shape)]
            array.resize(longer)
        wanted = np.full(longer, zero, expected.dtype)
        wanted[tuple(map(slice, shape))] = expected
        assert wanted.tolist() == dataset.open(path)[:].tolist()
        assert wanted.tolist() == read_by_zarr(path).tolist()
        assert not dataset.verify(path).findings


@pytest.mark.parametrize("name", ["", "rows-zarr-array", "rows-zarr-two-axes"])
@pytest.mark.parametrize("added", [1, 2, 6])
def test_a_short_last_chunk_after_a_resize_of_zarr_python(tmp_path, name, added):
    """New items have the padding of the chunk, which is no damage."""
    first = tmp_path / "a"
    if name:  # with a chunk that is really short, as older versions wrote it
        shutil.copytree(TESTS / "valid" / "datasets" / name, first)
    else:
        dataset.create_array(first, np.arange(21) + 1, chunks=4, shards=8).close()
    array = zarr.open_array(str(first), mode="r+")
    array.resize((array.shape[0] + added, *array.shape[1:]))
    expected = array[...].tolist()
    for path in first, tmp_path / "again":
        assert expected == dataset.open(path)[...].tolist()
        report = dataset.verify(path)
        assert [] == [f for f in report.findings if f.severity == "error"]
        recovery = dataset.recover(path, tmp_path / "saved", mode="w")
        assert ([], 0) == (recovery.losses, recovery.nlost)
        assert expected == dataset.open(tmp_path / "saved")[...].tolist()
        with dataset.open(path, "r+") as opened:  # the next change of ours
            opened.attrs["unit"] = "m"
        if path is first:
            shutil.copytree(path, tmp_path / "again")


def test_attributes_that_only_python_reads(tmp_path):
    """Text that is none is refused, and numbers that JSON lacks are named."""
    for path, create in (("a", dataset.create_array), ("g", dataset.create_group)):
        data = [[1]] if path == "a" else []
        with pytest.raises(UsageError, match=r"attribute 'x' .* surrogate"):
            create(tmp_path / path, *data, attrs={"x": ["\ud800"]})
        with create(tmp_path / path, *data, attrs={"x": "\U0001f600"}) as node:
            with pytest.raises(UsageError, match="surrogate"):
                node.attrs["\udcff"] = 1
            assert not dataset.verify(tmp_path / path).findings
            node.attrs["low"] = [float("nan")]
        (found,) = dataset.verify(tmp_path / path).findings
        assert ("note", "python-json") == (found.severity, found.kind)
        assert "'low'" in found.message


def test_a_folder_whose_name_is_no_text(tmp_path):
    path = os.fsencode(tmp_path) + b"/\xff"
    dataset.create_array(path, [1.5]).close()
    with open(path + b"/zarr.json", encoding="ascii") as file:
        assert "\\ud" not in file.read()
    assert dataset.open(path).dims is None


@pytest.mark.parametrize("kind", ["array", "group", "member", "column"])
def test_attributes_that_zarr_python_writes_beside_a_writer(tmp_path, kind):
    path, part = tmp_path / "a", {"member": "b", "column": "x"}.get(kind)
    if kind == "array":
        dataset.create_array(path, np.arange(9)).close()
    elif kind == "column":
        rows = np.zeros(3, [("x", "i4"), ("y", "f8")])
        dataset.create_table(path, rows).close()
    else:
        with dataset.create_group(path) as group, group.change():
            group.create_array("b", np.arange(9))
    with dataset.open(path, "r+") as opened:
        changed = opened if part is None else opened[part]
        changed.attrs["first"] = 1
        other = zarr.open(str(path / (part or "")), mode="r+")
        other.attrs["second"] = 2
        changed.refresh()
        assert changed.attrs["second"] == 2
        changed.attrs["third"] = (3,)
        expected = {"first": 1, "second": 2, "third": [3]}
        assert changed.attrs.asdict() == expected
    with dataset.open(path) as opened:
        changed = opened if part is None else opened[part]
        assert changed.attrs.asdict() == expected
    attrs = dict(zarr.open(str(path / (part or ""))).attrs)
    attrs.pop("bloscpack-id", None)  # a group without a copy of its members has it
    assert attrs == expected


def test_fill_values_that_are_given_are_found_by_zarr(tmp_path):
    """By every call that writes an array; others get one that data do not have."""
    items, automatic = np.arange(1, 11, dtype="u1"), 129
    given = {"fill_value": 0}
    found = {}
    dataset.create_array(tmp_path / "a", items, **given).close()
    found["create_array"] = "a", 0
    dataset.create_array(tmp_path / "b", items).close()
    found["create_array without"] = "b", automatic
    foreign = zarr.create_array(str(tmp_path / "z"), data=items, fill_value=7)
    dataset.convert(tmp_path / "z", tmp_path / "c.zarr")
    found["convert"] = "c.zarr", int(foreign.fill_value)
    dataset.convert(tmp_path / "b", tmp_path / "d.zarr")
    found["convert without"] = "d.zarr", automatic
    old = zarr.create_array(str(tmp_path / "y"), data=items, zarr_format=2, **given)
    dataset.convert(tmp_path / "y", tmp_path / "e.zarr")
    found["convert format 2"] = "e.zarr", int(old.fill_value)
    with suppress(ImportError):
        import dask.array

        lazy = dask.array.from_array(items, chunks=5)
        dataset.from_dask(tmp_path / "f", lazy, **given).close()
        found["from_dask"] = "f", 0
        dataset.from_dask(tmp_path / "g", lazy).close()
        found["from_dask without"] = "g", automatic
    with suppress(ImportError):
        import xarray

        floats = items.astype("f4")
        data = xarray.Dataset({"x": ("n", items), "y": ("n", floats)})
        how = {"x": given, "y": {"fill_value": np.nan}}
        dataset.from_xarray(tmp_path / "h", data, encoding=how).close()
        found["from_xarray"] = "h/x", 0
        assert np.isnan(zarr.open_array(tmp_path / "h" / "y").fill_value)
        how = {"x": {"_FillValue": 200}}
        dataset.from_xarray(tmp_path / "i", data, encoding=how).close()
        found["from_xarray with an attribute"] = "i/x", automatic
        assert 200 == dataset.open(tmp_path / "i" / "x").fill_value
    for name, (path, fill) in found.items():
        array = zarr.open_array(str(tmp_path / path), mode="r+")
        assert (name, fill) == (name, array.fill_value)
        array.resize((12,))
        assert [fill] * 2 == dataset.open(tmp_path / path)[10:].tolist()


@pytest.mark.parametrize("zeros", ["shard", "chunk", "all"])
def test_zarr_reads_arrays_without_the_shards_of_fill_values(tmp_path, zeros):
    cut = {"chunks": (2, 4), "shards": (4, 8)}
    ours = dataset.create_array(tmp_path / "a", shape=(8, 16), dtype="i4", **cut)
    theirs = zarr.create_array(
        str(tmp_path / "b"), shape=(8, 16), dtype="i4", fill_value=0, **cut
    )
    expected = np.arange(1, 129).reshape(8, 16)
    box = {"shard": np.s_[:4, :8], "chunk": np.s_[:2, :4], "all": np.s_[...]}[zeros]
    with ours:
        for value in (expected, np.where(expected, 0, 0)):
            ours[box] = value[box]
            theirs[box] = value[box]
            ours[5, 3] = theirs[5, 3] = 0
            names = [
                {p.relative_to(tmp_path / n) for p in (tmp_path / n).rglob("c/*/*")}
                for n in "ab"
            ]
            assert names[0] == names[1]
            both = [zarr.open_array(str(tmp_path / n))[:].tolist() for n in "ab"]
            assert both[0] == both[1] == ours[:].tolist()
    assert dataset.verify(tmp_path / "a").ok
