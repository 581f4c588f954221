"""Images and labels of Zarr format 2, converted to datasets."""

from __future__ import annotations

import numpy as np
import pytest

from bloscpack import dataset

zarr = pytest.importorskip("zarr", reason="needs zarr 3", minversion="3")

pytestmark = pytest.mark.usefixtures("folder")
LEVELS = [{"path": "0"}, {"path": "1"}]
AXES = [{"name": "y", "type": "space"}, {"name": "x", "type": "space"}]


def array(group, name, fill_value=0, dims=None, dtype="i4"):
    options = {"shape": (4, 2), "chunks": (2, 2), "dtype": dtype}
    made = group.create_array(name, fill_value=fill_value, **options)
    made[:] = np.arange(8).reshape(4, 2)
    if dims is not None:
        made.attrs["_ARRAY_DIMENSIONS"] = dims


def image(version="0.4"):
    """Write an image with labels, by the rules of OME-Zarr 0.4."""
    group = zarr.open_group("old.zarr", mode="w", zarr_format=2)
    array(group, "0")
    array(group, "1", dims=["a", "b"])
    scales = {"version": version, "axes": AXES, "datasets": LEVELS}
    group.attrs.update({"multiscales": [scales], "omero": {"channels": []}, "mine": 1})
    labels = group.create_group("labels")
    labels.attrs["labels"] = ["cells"]
    cells = labels.create_group("cells")
    array(cells, "0")
    found = {"multiscales": [scales], "image-label": {"version": version}}
    cells.attrs.update(found)


def attrs_of(path):
    return {k: v for k, v in zarr.open(path, mode="r").attrs.items() if "id" not in k}


def test_attributes_of_an_image():
    image()
    assert [] == dataset.convert("old.zarr", "new.zarr").notes[1:]
    scales = [{"axes": AXES, "datasets": LEVELS}]
    ome = {"version": "0.5", "multiscales": scales, "omero": {"channels": []}}
    assert {"mine": 1, "ome": ome} == attrs_of("new.zarr")
    ome = {"version": "0.5", "labels": ["cells"]}
    assert {"ome": ome} == attrs_of("new.zarr/labels")
    ome = {"version": "0.5", "multiscales": scales, "image-label": {}}
    assert {"ome": ome} == attrs_of("new.zarr/labels/cells")
    assert ("y", "x") == dataset.open("new.zarr/0").dims
    assert ("a", "b") == dataset.open("new.zarr/1").dims
    assert dataset.verify("new.zarr").ok


def test_attributes_of_a_plate():
    group = zarr.open_group("old.zarr", mode="w", zarr_format=2)
    group.attrs["plate"] = {"version": "0.4", "rows": []}
    well = group.create_group("A/1")
    well.attrs["well"] = {"version": "0.4", "images": []}
    dataset.convert("old.zarr", "new.zarr")
    expected = {"ome": {"version": "0.5", "plate": {"rows": []}}}
    assert expected == attrs_of("new.zarr")
    expected = {"ome": {"version": "0.5", "well": {"images": []}}}
    assert expected == attrs_of("new.zarr/A/1")


@pytest.mark.parametrize("version", ["0.3", "0.1", 7])
def test_attributes_of_older_versions(version):
    image(version)
    note = dataset.convert("old.zarr", "new.zarr").notes[-1]
    assert note.startswith("attributes of OME-Zarr of the versions %s are" % version)
    assert version == attrs_of("new.zarr")["multiscales"][0]["version"]


@pytest.mark.parametrize("wrong", [3, [1], {"a": 1}, [{"version": "0.4", "axes": 1}]])
def test_attributes_of_another_form_are_kept_or_moved(wrong):
    group = zarr.open_group("old.zarr", mode="w", zarr_format=2)
    group.attrs["multiscales"] = wrong
    dataset.convert("old.zarr", "new.zarr")
    assert len(attrs_of("new.zarr")) == 1


def test_a_fill_value_that_xarray_reads_as_missing():
    group = zarr.open_group("old.zarr", mode="w", zarr_format=2)
    array(group, "labels", dims=["y", "x"])
    array(group, "plain")
    array(group, "nan", np.nan, ["y", "x"], "f4")
    (note,) = dataset.convert("old.zarr", "new.zarr").notes
    assert "'_FillValue' of 'old.zarr/labels': xarray reads" in note
    assert {"_FillValue": 0} == dataset.open("new.zarr/labels").attrs.asdict()
    without = dataset.convert("old.zarr", "without.zarr", missing=False)
    assert [] == without.notes
    labels = dataset.open("without.zarr/labels")
    assert (0, {}) == (labels.fill_value, labels.attrs.asdict())
    assert np.isnan(dataset.open("without.zarr/nan").attrs["_FillValue"])
    (note,) = dataset.convert("old.zarr/labels", "labels.npy").notes
    assert note.endswith("keeps its stored numbers: 0 for a missing item")
    xr = pytest.importorskip("xarray")
    found = [xr.open_zarr(p, consolidated=False) for p in ("new.zarr", "without.zarr")]
    assert [1, 0] == [int(opened.labels.isnull().sum()) for opened in found]


def test_the_command(capsys):
    from bloscpack.cli import main

    group = zarr.open_group("old.zarr", mode="w", zarr_format=2)
    array(group, "labels", dims=["y", "x"])
    main(["convert", "old.zarr", "new.zarr"])
    assert "--no-missing" in capsys.readouterr().err
    main(["convert", "--no-missing", "old.zarr", "without.zarr"])
    assert "" == capsys.readouterr().err
    assert {} == dataset.open("without.zarr/labels").attrs.asdict()
