"""The engine 'bloscpack' of xarray: requests at URLs, groups of groups, parameters."""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pytest
from storage.servers import serving_folder
from support import has_entry_points

from bloscpack import dataset
from bloscpack.exceptions import DamageError, UsageError

xr = pytest.importorskip("xarray", reason="xarray is not installed")
zarr = pytest.importorskip("zarr", reason="needs zarr 3", minversion="3")

pytestmark = [
    pytest.mark.skipif(not has_entry_points(), reason="the package is not installed"),
    pytest.mark.filterwarnings("ignore:Consolidated metadata"),
]


def many(count):
    """Return a dataset with `count` variables, of which one is an index."""
    times = xr.date_range("2020-01-01", periods=5, freq="6h")
    values = np.arange(15.0).reshape(5, 3)
    variables = {"v%d" % i: (("time", "x"), values + i) for i in range(count - 1)}
    return xr.Dataset(variables, {"time": times}, {"title": "many"})


@pytest.fixture
def web(tmp_path):
    pytest.importorskip("aiohttp")
    with serving_folder(tmp_path) as web:
        yield web


def opened(url, **options):
    return xr.open_dataset(url, engine="bloscpack", **options)


def documents(web):
    """Return the names of the files without items that were asked for."""
    return [name for _, name in web.requests if "/c/" not in name]


# Requests


def test_requests_for_a_group_with_copies(web):
    """One for all documents, and one for an index."""
    dataset.from_xarray(web.root / "g", many(22)).close()
    zarr.consolidate_metadata(str(web.root / "g"))
    with opened(web.url + "/g") as found:
        assert 2 == len(web.requests)
        assert [1.0, 2.0] == found["v1"][0, :2].values.tolist()
        assert 3 == len(web.requests)
        xr.testing.assert_identical(many(22), found)
    web.requests.clear()
    with dataset.open(web.url + "/g") as group:
        assert "many" == group.attrs["title"]
        assert ["time", *sorted("v%d" % i for i in range(21))] == list(group)
        assert ["_FillValue"] == list(group["v3"].attrs)
        assert 1 == len(web.requests)
        assert [3.0] * 2 == [group["v3"][0, 0], group["v3"].read()[0, 0]]


def test_requests_for_groups_and_tables_with_copies(web):
    with dataset.create_group(web.root / "g") as group:
        group.create_array("a", np.arange(3), dims=["x"]).close()
        group.create_array("in/deep/b", np.arange(3), attrs={"units": "m"}).close()
        group.create_table("in/t", {"p": [1, 2], "q": [3, 4]}).close()
    zarr.consolidate_metadata(str(web.root / "g"))
    with xr.open_datatree(web.url + "/g", engine="bloscpack") as tree:
        assert ["/", "/in", "/in/deep", "/in/t"] == [*tree.groups]
        assert "m" == tree["in/deep/b"].attrs["units"]
        assert 1 == len(documents(web))
        assert [3, 4] == tree["in/t/q"].values.tolist()
    with opened(web.url + "/g", group="in/t") as found:
        assert [1, 2] == found["p"].values.tolist()


def test_copies_that_do_not_count(web):
    """A check, a writer and consolidated=False read each document itself."""
    root = web.root / "g"
    dataset.from_xarray(root, many(3)).close()
    zarr.consolidate_metadata(str(root))
    with opened(web.url + "/g", consolidated=False, drop_variables=["v0"]) as found:
        assert {"g/time/zarr.json", "g/v1/zarr.json"} <= {*documents(web)}
        assert {"time", "v1"} == {*found.variables}
    document = json.loads((root / "v1/zarr.json").read_text())
    document["attributes"]["new"] = 1
    (root / "v1/zarr.json").write_text(json.dumps(document))
    with dataset.open(web.url + "/g") as group:
        array = group["v1"]
        assert "new" not in array.attrs
        array.refresh()
        assert 1 == array.attrs["new"]
    with dataset.open(root) as group:  # on a disk
        assert 1 == group["v1"].attrs["new"]
    (root / "v1/zarr.json").write_text("{")
    assert dataset.open(web.url + "/g")["v1"].shape == (5, 3)
    assert 1 == dataset.verify(web.url + "/g").nerrors


def test_writing_at_a_url_reads_the_documents():
    pytest.importorskip("fsspec")
    url = "memory://test_xarray_reading/g"
    dataset.from_xarray(url, many(3)).close()
    store = zarr.storage.FsspecStore.from_url(url)
    zarr.consolidate_metadata(store)
    found = dataset.open(url)
    with dataset.open(url + "/v0", "r+") as array:
        array.append(np.ones((4, 3)))
    assert (5, 3) == found["v0"].shape  # as when the group was opened
    found.refresh()
    assert (9, 3) == found["v0"].shape
    zarr.consolidate_metadata(store)
    with dataset.open(url, "r+") as group:
        group["v1"].append(np.ones((1, 3)))
        assert [(9, 3), (6, 3)] == [group[name].shape for name in ("v0", "v1")]
    assert (6, 3) == dataset.open(url)["v1"].shape


def test_a_member_that_copies_lack(web):
    """zarr-python lets the copies as they are when it creates an array."""
    dataset.from_xarray(web.root / "g", many(3)).close()
    zarr.consolidate_metadata(str(web.root / "g"))
    with dataset.create_array(web.root / "new", [1, 2]) as array:
        path = array.path
    shutil.move(path, web.root / "g/new")
    with dataset.open(web.url + "/g") as group:
        assert [1, 2] == group["new"][:].tolist()
        with pytest.raises(KeyError):
            group["missing"]


def test_a_missing_shard_is_damage_with_copies_too(web):
    """A copy of zarr-python, in another form, is known as one of our documents."""
    items = np.arange(40.0)
    with dataset.create_group(web.root / "g") as group:
        cut = {"chunks": 10, "shards": 20, "dims": ["x"]}
        group.create_array("a", items, attrs={"é": [1, 2.5]}, **cut).close()
        group.create_array("sparse", shape=40, dtype="f8", **cut).close()
    zarr.consolidate_metadata(str(web.root / "g"))
    os.remove(web.root / "g/a/c/1")
    group = dataset.open(web.url + "/g")
    assert not group["a"]._layout.changed_elsewhere
    assert [0.0] * 40 == group["sparse"][:].tolist()
    assert items[:20].tolist() == group["a"][:20].tolist()
    with pytest.raises(DamageError):
        group["a"][20:]


@pytest.mark.parametrize("wrong", [1, "text", [], [1], {"node_type": "array"}, None])
def test_wrong_copies(web, wrong):
    with dataset.create_group(web.root / "g") as group:
        group.create_array("a", [1, 2], dims=["x"]).close()
    path = web.root / "g/zarr.json"
    document = json.loads(path.read_text())
    for copies in (wrong, {"metadata": wrong}, {"metadata": {"a": wrong}}):
        document["consolidated_metadata"] = copies
        path.write_text(json.dumps(document))
        is_damaged = isinstance(wrong, dict) and copies == {"metadata": {"a": wrong}}
        group = dataset.open(web.url + "/g")
        if not is_damaged:
            assert [1, 2] == group["a"][:].tolist()
            continue
        with pytest.raises(DamageError):
            group["a"]


# Groups of groups


@pytest.fixture
def nested(tmp_path):
    with dataset.create_group(tmp_path / "g", attrs={"by": "me"}) as group:
        group.create_array("a", np.arange(3.0), dims=["x"]).close()
        group.create_array("in/b", np.arange(3), dims=["x"]).close()
        group.create_array("in/deep/c", np.arange(4), dims=["x"]).close()
        group.create_table("t", {"q": [1, 2]}).close()
    return tmp_path / "g"


def test_groups(nested):
    found = xr.open_groups(nested, engine="bloscpack")
    assert ["/", "/in", "/in/deep", "/t"] == [*found]
    assert ({"by": "me"}, ["c"]) == (found["/"].attrs, [*found["/in/deep"]])
    inner = xr.open_groups(nested, engine="bloscpack", group="in")
    assert ["/", "/deep"] == [*inner]
    assert [0, 1, 2, 3] == inner["/deep"]["c"].values.tolist()
    with opened(nested, group="/in/deep/") as found, opened(nested / "in/deep") as same:
        xr.testing.assert_identical(found, same)
    with dataset.open(nested) as group:
        assert ["b"] == [*group.to_xarray(group="in")]
        assert [0, 1, 2] == group["in/b"][:].tolist()  # it stays open


def test_a_tree(nested):
    with pytest.raises(ValueError, match=r"deep.* not aligned"):
        xr.open_datatree(nested, engine="bloscpack")
    shutil.rmtree(nested / "in/deep")
    with xr.open_datatree(nested, engine="bloscpack", chunks=None) as tree:
        assert [1, 2] == tree["t/q"].values.tolist()
        inner = tree["in/b"]
    with pytest.raises(UsageError, match="closed"):
        inner.load()


# Parameters


@pytest.mark.parametrize(
    ("name", "value"),
    [("zarr_format", 2), ("mode", "r"), ("synchronizer", 1), ("nthreads", 2)],
)
def test_parameters_that_are_refused(nested, name, value):
    with pytest.raises(UsageError, match="'%s'" % name):
        opened(nested, **{name: value})


def test_parameters_of_zarr(nested):
    given = {"consolidated": True, "zarr_format": 3, "storage_options": None}
    with opened(nested, **given, decode_cf=False, cache=False) as found:
        assert ["a"] == [*found]
    with pytest.raises(KeyError, match="missing"):
        opened(nested, group="missing")
    with pytest.raises(UsageError, match="'group' is for groups"):
        opened(nested / "a", group="b")
