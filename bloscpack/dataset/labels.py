"""The labels of an array: names of its axes, and attributes, given or of the data.

Strategy: arrays of other libraries are known by their attributes, so that no library is
imported. Labels that would be lost are refused.

xarray needs a name for each axis of an array of Zarr, and takes axes of the same name
for the same axis. So an axis without a name gets one in the file, from the name of the
array and its number, which no other array has.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy

from .. import log
from .._format.zarr_metadata import MASK, decode_mask, with_mask
from .._storage.paths import local_path
from .._types import JsonObject, Path
from ..exceptions import UsageTypeError, UsageValueError
from ..log import counted
from .columns import naming_column

if TYPE_CHECKING:
    from .layouts.base import ArrayLayout

Dims = Sequence[str | None] | None

# Attributes that hold the structure of an array, by the library that has it.
STRUCTURE = {
    "zarr": {"_ARRAY_DIMENSIONS", "bloscpack-id", "missing-shards"},
    "h5py": {
        *("CLASS", "NAME", "DIMENSION_LIST", "DIMENSION_LABELS", "REFERENCE_LIST"),
        *("_Netcdf4Dimid", "_Netcdf4Coordinates", "_nc3_strict", "_NCProperties"),
    },
}
# The name of the rows of a table, by default.
ROW = "row"


# Maximum number of arrays that a message about different lengths names.
MOST_NAMED = 5


# Names in the file


def stored_dims(name: str, ndim: int, dims: Dims) -> list[str]:
    """Return a name for each axis of the array `name`."""
    padded = [*(dims or ()), *[None] * ndim][:ndim]
    return [
        _default(name, axis) if dim is None else dim for axis, dim in enumerate(padded)
    ]


def unequal_lengths(
    arrays: Mapping[str, tuple[Dims, Sequence[int]]],
) -> dict[str, dict[str, int]]:
    """Return the lengths of arrays, by dimensions along which they differ."""
    lengths: dict[str, dict[str, int]] = {}
    for name, (dims, shape) in arrays.items():
        for dim, length in zip(dims or (), shape, strict=False):
            if dim is not None:
                lengths.setdefault(dim, {})[name] = length
    return {dim: sizes for dim, sizes in lengths.items() if len({*sizes.values()}) > 1}


def told_unequal(unequal: Mapping[str, Mapping[str, int]]) -> str:
    """Return what `unequal_lengths` has found, and what to do, as part of a message.

    An append concerns one dimension: differences along several are none of that.
    """
    parts = []
    for dim, lengths in unequal.items():
        longest = max(lengths, key=lambda name: lengths[name])
        short = {n: size for n, size in lengths.items() if size < lengths[longest]}
        names = ["'%s' has %d" % item for item in [*short.items()][:MOST_NAMED]]
        more = len(short) - len(names)
        parts.append(
            "along '%s', %s%s of the %s of '%s'"
            % (
                *(dim, ", ".join(names), " and %d more have fewer" % more * (more > 0)),
                *(counted(lengths[longest], "item"), longest),
            )
        )
    told = "the arrays of the group have different lengths"
    if len(unequal) > 1:
        return "%s: %s" % (told, "; ".join(parts))
    return (
        "%s, as after an append that was not completed: %s; group.trim(%r) cuts all to "
        "the shortest" % (told, *parts, *unequal)
    )


def is_pyramid(attributes: Mapping[str, Any]) -> bool:
    """Return whether the arrays of a group are the resolutions of an OME-Zarr image."""
    ome = attributes.get("ome")
    return "multiscales" in (ome if isinstance(ome, Mapping) else attributes)


def given_dims(name: str, stored: Dims) -> tuple[str | None, ...] | None:
    """Return the names of axes without those that `stored_dims` makes."""
    names = tuple(
        None if dim == _default(name, axis) else dim
        for axis, dim in enumerate(stored or ())
    )
    return names if any(names) else None


def _default(name: str, axis: int) -> str:
    # The name of a folder may have bytes that are no text.
    return "%s_axis_%d" % (name.encode("utf-8", "replace").decode(), axis)


def name_of(path: Path) -> str:
    """Return the name of the array at a path or a URL."""
    return os.path.basename(os.path.abspath(os.fsdecode(local_path(path))))


# Labels of new arrays


def array_dims(layout: type[ArrayLayout], path: Path, ndim: int, dims: Dims) -> Dims:
    """Return the names of the axes of a new array.

    Raises `UsageError` if the layout can't hold those that are given.
    """
    return stored_dims(name_of(path), ndim, _held(layout, dims, ndim))


def column_dims(
    layout: type[ArrayLayout], ndims: Mapping[str, int], dims: Mapping[str, Dims]
) -> dict[str, list[str]]:
    """Return the names of the axes of the columns of a new table.

    `dims` has some of them; the first one is the same for all columns.
    """
    if not isinstance(dims, Mapping) or set(dims) - set(ndims):
        raise UsageValueError(
            "dims: expected names of axes by the names of columns, found %.200r"
            % (dims,)
        )
    held = {}
    for name, given in dims.items():
        with naming_column(name):
            held[name] = _held(layout, given, ndims[name]) or [None]
    rows = {given[0] for given in held.values()} - {None} or {ROW}
    if len(rows) > 1:
        raise UsageValueError(
            "dims: expected one name for the rows of all columns, found %s" % rows
        )
    return {
        name: stored_dims(name, ndim, [*rows, *held.get(name, [None])[1:]])
        for name, ndim in ndims.items()
    }


def _held(layout: type[ArrayLayout], dims: Any, ndim: int) -> Dims:
    """Return names of axes that were checked, of which a layout can hold each."""
    if dims is None:
        return None
    given = [dims] if isinstance(dims, str) else dims
    is_list = isinstance(given, (list, tuple)) and len(given) == ndim
    names = [name for name in given if name is not None] if is_list else [None]
    if not all(isinstance(n, str) for n in names) or len({*names}) < len(names):
        raise UsageValueError(
            "dims: expected %s, different ones or None for no name, found %.200r"
            % (counted(ndim, "name"), dims)
        )
    if names and not layout.has_dims:
        raise UsageValueError(
            "the layout '%s' stores no names of axes, such as '%s'; dims=%s leaves "
            "them out" % (layout.name, names[0], [None] * ndim)
        )
    return given


def given_attrs(attrs: object) -> JsonObject:
    """Return attributes as a new dictionary; raise `UsageError` if they are none."""
    if not isinstance(attrs, Mapping):
        raise UsageTypeError("attrs: expected a dictionary, found %.100r" % (attrs,))
    return dict(attrs)


def labels_of(data: object, *, told: bool = False) -> tuple[Dims, JsonObject]:
    """Return the names of the axes and the attributes of an array or a DataFrame.

    It may be one of this library, of xarray, Zarr, HDF5 or pandas; other data have
    none. Raises `UsageError` if it has coordinates, which no array can hold. A
    notice tells, if `told`, which fill value becomes an attribute.
    """
    attrs = getattr(data, "attrs", None)
    if not isinstance(attrs, Mapping):
        return None, {}
    coords = [str(name) for name in getattr(data, "coords", ())]
    if coords:
        raise UsageValueError(
            "an array has no coordinates, and the data have '%s': from_xarray stores "
            "them, and data.variable has none" % "', '".join(coords)
        )
    library = type(data).__module__.partition(".")[0]
    dims = getattr(getattr(data, "metadata", None), "dimension_names", None)
    is_old = library == "zarr" and dims is None  # of format 2
    dims = attrs.get("_ARRAY_DIMENSIONS") if is_old else dims
    names = [_name_of_axis(dim) for dim in dims or getattr(data, "dims", None) or ()]
    hidden = STRUCTURE.get(library, ())
    kept = {name: _text(value) for name, value in attrs.items() if name not in hidden}
    if library == "zarr" and hasattr(data, "dtype"):
        kept = with_mask(kept, data.dtype, decode_mask)
        is_marked = is_old and dims is not None and MASK not in kept
        fill = getattr(data, "fill_value", None) if is_marked else None
        if fill is not None and data.dtype.kind in "biuf":
            kept[MASK] = numpy.asarray(fill).item()
            if told:
                log.notice(
                    "the fill value %r of Zarr format 2 becomes the attribute '%s': "
                    "xarray reads items that are equal to it as missing"
                    % (kept[MASK], MASK)
                )
    return (names if any(names) else None), kept


def _name_of_axis(dim: Any) -> str | None:
    """Return the name of an axis; in HDF5 that of its scale, or its label."""
    if not hasattr(dim, "label"):
        return None if dim is None else str(dim)
    name: str = dim[0].name if len(dim) else dim.label
    return (name or "").rpartition("/")[2] or None


def _text(value: Any) -> object:
    """Return an attribute; text of fixed size, which HDF5 has as bytes, as text."""
    if getattr(value, "dtype", None) is not None and value.dtype.kind == "S":
        with suppress(UnicodeDecodeError):
            return numpy.char.decode(value, "utf-8").tolist()
    return value
