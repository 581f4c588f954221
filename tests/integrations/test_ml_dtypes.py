"""Types that another package adds to NumPy are refused: they would become raw bytes."""

import numpy as np
import pytest

import bloscpack as bp
from bloscpack import dataset
from bloscpack.exceptions import UsageError

ml_dtypes = pytest.importorskip("ml_dtypes")
CALLS = {
    "pack": bp.pack_ndarray_to_bytes,
    "file": lambda items: bp.pack_ndarray_to_file(items, "a.blp"),
    "shard": lambda items: bp.pack_ndarray_to_bytes(items, shard=True),
    "savez": lambda items: bp.savez("a.zip", a=items),
    **{
        layout: lambda items, layout=layout: dataset.create_array(
            layout, items, layout=layout
        )
        for layout in ("zarr", "superchunk", "bcolz")
    },
    **{
        "table of %s" % layout: lambda items, layout=layout: dataset.create_table(
            layout, {"x": items}, layout=layout
        )
        for layout in ("zarr", "superchunk", "bcolz")
    },
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "int4"])
def test_refused_by_name(name, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    items = np.zeros(5, getattr(ml_dtypes, name))
    fields = np.zeros(5, [("x", items.dtype, (2,)), ("y", "f8")])
    for array in (items, fields):
        with pytest.raises(UsageError, match=name):
            CALLS[call](array)
    assert [] == list(tmp_path.iterdir())
