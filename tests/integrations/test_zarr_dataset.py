"""Arrays of the layout zarr, read and written by zarr-python and TensorStore."""

import importlib.util
import json
import os
import warnings

import numpy as np
import pytest
from dataset import states

from bloscpack import dataset
from bloscpack.exceptions import FormatError

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
    found = dict(zarr.open_array(str(path), mode="r").attrs)
    assert found.pop("bloscpack-id")
    assert attrs == found
    if has_tensorstore and dtype in PORTABLE:
        assert expected.tolist() == read_by_tensorstore(path).tolist()


def test_zarr_writes(tmp_path):
    """An array that zarr-python has written is read; so are its changes of ours."""
    path, expected = tmp_path / "a", np.arange(100).reshape(50, 2)
    blosc = zarr.codecs.BloscCodec(cname="lz4", clevel=5, shuffle="shuffle")
    other = zarr.create_array(
        str(path),
        shape=(60, 2),
        chunks=(4, 2),
        shards=(12, 2),
        dtype="i8",
        fill_value=3,
        compressors=[blosc, zarr.codecs.Crc32cCodec()],
    )
    other[:50] = expected
    expected = np.concatenate([expected, np.full((10, 2), 3)])
    assert expected.tolist() == dataset.open(path)[:].tolist()
    with dataset.open(path, "r+") as array:
        array.append(expected[:28])  # whole chunks: a short one is padded with zeros
        array[5:7] = -1
    expected = np.concatenate([expected, expected[:28]])
    expected[5:7] = -1
    assert expected.tolist() == dataset.open(path)[:].tolist()
    assert expected.tolist() == read_by_zarr(path).tolist()
    ours = zarr.open_array(str(path), mode="r+")
    ours[8:30] = 0
    ours.resize((95, 2))
    expected[8:30] = 0
    expected = np.concatenate([expected, np.full((7, 2), 3)])
    assert expected.tolist() == dataset.open(path)[:].tolist()


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


def test_missing_shards(tmp_path):
    path = tmp_path / "a"
    expected = np.full(64, -5)
    with dataset.create_array(
        path, expected[:0], chunks=4, shards=16, fill_value=-5
    ) as array:
        array.resize(64)
        array[:16] = expected[:16] = np.arange(16)
        array[40] = expected[40] = 1
    assert {"0", "2"} == set(os.listdir(path / "c"))
    assert expected.tolist() == read_by_zarr(path).tolist()
    assert expected.tolist() == dataset.open(path)[:].tolist()
    assert -5 == json.loads((path / "zarr.json").read_text())["fill_value"]


def same_in_zarr(path, expected):
    np.testing.assert_array_equal(expected, read_by_zarr(path))


def same_in_tensorstore(path, expected):
    if has_tensorstore and expected.dtype.kind in "iuf":
        np.testing.assert_array_equal(expected, read_by_tensorstore(path))


@pytest.mark.parametrize("machine", states.MACHINES)
def test_any_sequence_of_changes(machine, tmp_path):
    """zarr-python agrees after each step, and TensorStore in the end."""
    states.run(
        machine,
        tmp_path,
        "zarr",
        checks=[same_in_zarr],
        last_checks=[same_in_tensorstore],
        examples=20,
    )


def test_verify_and_recover_after_changes_of_zarr_python(tmp_path):
    path = tmp_path / "a"
    dataset.create_array(path, np.arange(100.0), chunks=10, shards=30).close()
    array = zarr.open(path, mode="r+")
    array[35:40] = 5
    array.resize((130,))
    array[:30] = 0  # zarr-python removes a shard of fill values
    report = dataset.verify(path)
    assert report.ok
    kinds = {"changed", "missing", "other-program", "short"}
    assert kinds == {f.kind for f in report.findings}
    recovery = dataset.recover(path, tmp_path / "b")
    assert [] == recovery.losses
    assert not recovery.certain  # the document does not tell a lost shard from this
    assert array[:].tolist() == dataset.open(tmp_path / "b")[:].tolist()
