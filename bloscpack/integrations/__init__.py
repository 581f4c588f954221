"""Other libraries use `.blp` files: xarray, Dask, Zarr, fsspec and joblib.

A library is imported when its integration is first used. Some integrations are entry
points, which the libraries find by themselves; the others begin with a function:

register_fsspec()      the compression "blp" of fsspec, pandas and Dask
register_joblib()      the compression "blp" of joblib

`docs/integrations.rst` has an example for each library.
"""

from __future__ import annotations

from .registration import register_fsspec as register_fsspec
from .registration import register_joblib as register_joblib

__all__ = ["register_fsspec", "register_joblib"]
