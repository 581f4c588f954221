"""Images of OME-Zarr, which ome-zarr and zarr-python read."""

from __future__ import annotations

import numpy as np
import pytest

from bloscpack import dataset

ome_zarr = pytest.importorskip("ome_zarr", reason="ome-zarr is not installed")
zarr = pytest.importorskip("zarr", minversion="3", reason="zarr is not installed")

PLANES = np.random.default_rng(1).integers(0, 4000, (2, 3, 4, 64, 64), "u2")
AXES = [{"name": "t", "type": "time"}, {"name": "c", "type": "channel"}]
AXES += [{"name": n, "type": "space", "unit": "micrometer"} for n in "zyx"]
LEVELS = {"0": 1, "1": 2}


@pytest.mark.filterwarnings("ignore")  # those of its packages are not ours
def test_a_pyramid(tmp_path):
    from ome_zarr.io import parse_url
    from ome_zarr.reader import Reader

    image = {"name": "image", "axes": AXES, "datasets": []}
    for path, n in LEVELS.items():
        scale = {"type": "scale", "scale": [1, 1, 1, 0.5 * n, 0.5 * n]}
        level = {"path": path, "coordinateTransformations": [scale]}
        image["datasets"].append(level)
    ome = {"version": "0.5", "multiscales": [image]}
    with dataset.create_group(tmp_path / "image.zarr", attrs={"ome": ome}) as group:
        for path, n in LEVELS.items():
            group.create_array(
                path,
                PLANES[..., ::n, ::n],
                dims=list("tczyx"),
                fill_value=0,
                chunks=(1, 1, 1, 32, 32),
                shards=(1, 1, 4, 64 // n, 64 // n),
            ).close()
    (node,) = Reader(parse_url(str(tmp_path / "image.zarr")))()
    assert AXES == node.metadata["axes"]
    opened = zarr.open_group(tmp_path / "image.zarr", mode="r")
    for level, (path, n) in zip(node.data, LEVELS.items(), strict=True):
        expected = PLANES[..., ::n, ::n]
        assert np.array_equal(expected, np.asarray(level))
        assert np.array_equal(expected, opened[path][:])
        assert 0 == opened[path].fill_value
