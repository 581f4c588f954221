"""Datasets of xarray as groups: `from_xarray`.

Strategy: xarray itself encodes the variables, by the conventions of netCDF. Each
variable becomes an array, and its dimensions the names of the axes. Numbers with the
same dimensions get the same chunks, so that a part of all is in the same chunks of
each. The attributes are
those that xarray writes to groups of Zarr: each reads what the other writes. The
backend of xarray reads a group (`integrations.xarray_backend`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy

from .._compat import import_extra
from .._format.zarr_metadata import MASK
from .._storage.paths import is_url, local_path
from .._types import JsonObject, Path, StorageOptions
from ..exceptions import UsageTypeError, UsageValueError
from .commit_rules import building
from .folder import BAD_NAME, Folder, is_member_name
from .group import Group, create_group, open_node
from .labels import STRUCTURE
from .layouts import detect
from .layouts.base import NewArray
from .layouts.chunk_choice import new_grid
from .layouts.zarr import COLUMN_ORDER
from .opening import Options
from .rows import items_of, naming_column

if TYPE_CHECKING:
    from xarray import DataArray, Dataset, Variable

# The name of the variable of a `DataArray` without one.
DEFAULT_NAME = "data"
# Kinds of dtypes whose items are text, of any length, or times of xarray.
TEXT_KINDS = "OSTU"
# What `encoding` may have for xarray; the rest is for `create_array`.
CONVENTIONS = {
    *("dtype", "units", "calendar", "scale_factor", "add_offset", "coordinates"),
    *(MASK, "missing_value", "grid_mapping", "_Unsigned"),
}


def from_xarray(
    path: Path,
    data: Dataset | DataArray,
    *,
    encoding: Mapping[str, Mapping[str, object]] | None = None,
    mode: str = "x",
    sync: bool = True,
    storage_options: StorageOptions | None = None,
    **settings: object,
) -> Group:
    """Write a dataset of xarray as a group, and return it open for changes.

    Variables of Dask are computed in blocks of rows.

    Parameters
    ----------
    path
        The folder, which appears when the group is complete; or a URL, at which the
        group appears before its members.
    data
        The dataset. A ``DataArray`` becomes one with a variable of its name.
    encoding
        By the names of variables: how xarray encodes them, such as ``dtype``,
        ``scale_factor`` and ``units``; and parameters of `create_array`, such as
        ``chunks``.
    mode, sync, storage_options
        As in `create_array`.
    settings
        Settings of Blosc for all variables, as in `create_array`.

    Raises
    ------
    UsageError
        If a variable can't be stored; the message has its name.
    FileExistsError
        If there is a file or folder of this name.

    Examples
    --------
    >>> import xarray
    >>> from bloscpack import dataset
    >>> days = xarray.date_range('2026-01-01', periods=2)
    >>> cold = xarray.Dataset({'t': ('time', [-3.5, -1.0])}, {'time': days})
    >>> with dataset.from_xarray('cold', cold) as group:
    ...     list(group), group.to_xarray().identical(cold)
    (['t', 'time'], True)
    """
    xarray = import_extra("xarray", "xarray")
    if isinstance(data, xarray.DataArray):
        data = data.to_dataset(name=data.name or DEFAULT_NAME)
    if not isinstance(data, xarray.Dataset):
        raise UsageTypeError(
            "expected a Dataset or a DataArray of xarray, found '%s'"
            % type(data).__name__
        )
    given = {name: dict(found) for name, found in (encoding or {}).items()}
    unknown = given.keys() - data.variables.keys()
    if unknown:
        raise UsageValueError("encoding: there is no variable '%s'" % min(unknown))
    variables, attrs = _encoded(data, given)
    attrs = _without_structure(attrs)
    path = local_path(path)
    is_remote = is_url(path)
    opened = nullcontext(path) if is_remote else building(path, mode, sync)
    options: dict[str, Any] = {"mode": mode, "storage_options": storage_options}
    with (
        opened as target,
        create_group(target, attrs=attrs, sync=sync and is_remote, **options) as group,
    ):
        widest: dict[Any, int] = {}  # the item size of numbers, by dimensions
        for variable in variables.values():
            if variable.dtype.kind not in TEXT_KINDS:
                size = variable.dtype.itemsize
                widest[variable.dims] = max(size, widest.get(variable.dims, 0))
        for name, variable in variables.items():
            with naming_column(name, "variable"):
                size = widest.get(variable.dims, 1)
                _write(group, name, variable, {**settings, **given.get(name, {})}, size)
    found = detect(Folder.open(path, storage_options))
    written = open_node(found, Options(sync=sync, writable=True))
    assert isinstance(written, Group)
    return written


def _encoded(
    data: Dataset, given: dict[str, dict[str, object]]
) -> tuple[dict[str, Variable], JsonObject]:
    """Return the variables and attributes of a dataset as netCDF has them.

    What `given` has for xarray is removed from it.
    """
    conventions = import_extra("xarray.conventions", "xarray")
    variables, attrs = conventions.encode_dataset_coordinates(data)
    for name, found in given.items():
        for key in CONVENTIONS & found.keys():
            variables[name].encoding[key] = found.pop(key)
    try:
        variables, attrs = conventions.cf_encoder(variables, attrs)
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        note = "".join(getattr(error, "__notes__", ())).partition(" with value")[0]
        raise UsageValueError(
            "xarray can't encode the dataset: %s: %s (%s)"
            % (type(error).__name__, error, note)
        ) from error
    for name, variable in variables.items():
        if data.variables[name].dtype == bool:  # netCDF has no booleans, Zarr has
            variables[name] = variable.astype(bool)
            variables[name].attrs.pop("dtype", None)
    return variables, attrs


def _write(
    group: Group,
    name: str,
    variable: Variable,
    settings: dict[str, Any],
    widest: int,
) -> None:
    """Write an encoded variable as a member of a group.

    `widest` is the largest item size of numbers with the same dimensions.
    """
    if not is_member_name(name):
        raise UsageValueError(BAD_NAME % ("variable", name))
    items: Any = variable
    if variable.dtype.kind in "OT":
        objects = numpy.asarray(variable.values, object)
        items = items_of(objects, keeps_text=True)
        if items.shape != objects.shape:
            raise UsageTypeError("expected text, found %.200r" % (objects.flat[0],))
    attrs = _without_structure(variable.attrs)
    fill = numpy.nan if items.dtype.kind in "fc" else None
    if attrs.get(MASK) is not None:
        fill = numpy.asarray(attrs[MASK]).ravel()[0].astype(items.dtype)
    if items.ndim and settings.keys().isdisjoint(("chunks", "shards")):
        is_number = items.dtype.kind not in TEXT_KINDS
        dtype = numpy.dtype("V%d" % widest) if is_number else items.dtype
        grid = new_grid(NewArray(dtype, items.shape))
        # The variables along an axis are complete: no chunk is longer than the axis.
        rows = min(grid.chunk[0], items.shape[0] or grid.chunk[0])
        settings["chunks"] = rows, *grid.chunk[1:]
        settings["shards"] = rows * grid.per_shard[0], *grid.shard[1:]
    settings = {"fill_value": fill, **settings, "dims": [*variable.dims]}
    group.create_array(name, items, attrs=attrs, **settings).close()


def _without_structure(attrs: Mapping[Any, object]) -> JsonObject:
    """Return attributes without the ones that describe how a dataset is stored."""
    hidden = {*STRUCTURE["zarr"], COLUMN_ORDER}
    return {name: value for name, value in attrs.items() if name not in hidden}
