"""Zarr reads a snapshot that was converted from a BigFile tree."""

from __future__ import annotations

import numpy as np
import pytest

from bloscpack import bigfile, dataset

zarr = pytest.importorskip("zarr", minversion="3", reason="Zarr 3 is not installed")


def test_zarr_opens_a_converted_tree(tmp_path):
    tree = bigfile.File(tmp_path / "tree", create=True)
    position = np.arange(3000, dtype=">f4").reshape(1000, 3)
    tree.create_from_array("0/Position", position, Nfile=3).attrs["unit"] = "kpc/h"
    tree.create_from_array("0/ID", np.arange(1000, dtype="u8")).close()
    tree.create("Header").attrs.update(Time=0.5, TotNumPart=np.arange(6, dtype="u8"))
    dataset.convert(tmp_path / "tree", tmp_path / "group.zarr")
    group = zarr.open_group(tmp_path / "group.zarr", mode="r")
    assert np.array_equal(position, group["0/Position"][:])
    assert np.array_equal(np.arange(1000), group["0/ID"][:])
    assert "kpc/h" == group["0/Position"].attrs["unit"]
    assert {"Time": 0.5, "TotNumPart": [0, 1, 2, 3, 4, 5]}.items() <= dict(
        group["Header"].attrs
    ).items()
