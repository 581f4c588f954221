"""Arrays in S3: moto, which compares versions, and rclone, which does not."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from storage.object_stores import make_bucket, moto, rclone

from bloscpack import dataset
from bloscpack._storage.upload import Conflict, object_version, put_object
from bloscpack.exceptions import StorageError

s3fs = pytest.importorskip("s3fs", reason="the extra 's3' is not installed")
pytestmark = pytest.mark.slow
ROWS = np.arange(600.0).reshape(300, 2)


@pytest.fixture(params=[moto, rclone])
def options(request, tmp_path):
    with request.param(tmp_path) as options:
        make_bucket(options)
        yield options


def test_changes(options):
    url, settings = "s3://bucket/a", {"chunks": 16, "shards": 64}
    with dataset.create_array(url, ROWS, storage_options=options, **settings) as array:
        array.append(ROWS[:100])
        array[5] = 7
        array.resize(390)
        array.attrs["unit"] = "m"
    expected = np.concatenate([ROWS, ROWS[:90]])
    expected[5] = 7
    with dataset.open(url, "r+", storage_options=options) as array:
        assert expected.tolist() == array[:].tolist()
        array.append(ROWS[:5])
    found = dataset.open(url, storage_options=options)
    assert [*expected.tolist(), *ROWS[:5].tolist()] == found[:].tolist()
    assert found.cbytes > 0
    with pytest.raises(FileExistsError):
        dataset.create_array(url, ROWS, storage_options=options)
    folder = dataset.open("s3://bucket", storage_options=options)
    assert ["a"] == list(folder)
    zarr = pytest.importorskip("zarr", minversion="3", reason="needs zarr 3")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # rclone sends the digest of the whole object with a part of it.
        config = {"response_checksum_validation": "when_required"}
        other = {**options, "asynchronous": True, "config_kwargs": config}
        store = zarr.storage.FsspecStore.from_url(
            url, read_only=True, storage_options=other
        )
        assert expected.tolist() == zarr.open_array(store, mode="r")[:390].tolist()


def test_conditions(tmp_path):
    with moto(tmp_path) as options:
        make_bucket(options)
        url = "s3://bucket/x"
        assert object_version(url, options) == ""
        first = put_object(url, b"1", options, version="")
        with pytest.raises(Conflict):
            put_object(url, b"2", options, version="")
        assert first == object_version(url, options)
        second = put_object(url, b"3", options, version=first)
        with pytest.raises(Conflict):
            put_object(url, b"4", options, version=first)
        assert second == object_version(url, options) != first


def test_two_writers(tmp_path):
    with moto(tmp_path) as options:
        make_bucket(options)
        url = "s3://bucket/a"
        first = dataset.create_array(url, ROWS, shards=64, storage_options=options)

        def rows():
            yield ROWS[:100]
            with dataset.open(url, "r+", storage_options=options) as second:
                second.append(ROWS[7:9])
            yield ROWS[:100]

        with pytest.raises(StorageError, match="another program has changed"):
            first.append(rows())
        expected = np.concatenate([ROWS, ROWS[7:9]])
        found = dataset.open(url, storage_options=options)
        assert expected.tolist() == found[:].tolist()
