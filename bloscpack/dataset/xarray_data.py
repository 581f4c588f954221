"""Datasets of xarray as groups: `from_xarray`.

Strategy: xarray itself encodes the variables, by the conventions of netCDF. Each
variable becomes an array, and its dimensions the names of the axes. Numbers with the
same dimensions get the same chunks, so that a part of all is in the same chunks of
each. The attributes are those that xarray writes to groups of Zarr: each reads what the
other writes. The backend of xarray reads a group (`integrations.xarray_backend`).

A change of a group is planned as a whole, without any writing (`plan`), and each
encoded variable is decoded again: none may get another value than the given one.
"""

from __future__ import annotations

import errno
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext, suppress
from functools import lru_cache, partial
from inspect import signature
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy

from .._commit.change import Change
from .._compat import import_extra
from .._format.dtypes import Array as Items
from .._format.other_formats import FILE_CALLS
from .._format.zarr_metadata import MASK, encode_mask, with_mask
from .._storage.paths import check_ending, is_url, local_path
from .._types import JsonObject, Path, StorageOptions
from ..args import known_settings
from ..exceptions import DoesNotFit, StorageError, UsageTypeError, UsageValueError
from .commit_rules import building, new_dataset
from .dask_write import from_dask
from .folder import Folder, check_member_name
from .group import Group, open_node
from .labels import STRUCTURE
from .layouts import detect
from .layouts.base import NewArray
from .layouts.chunk_choice import new_grid
from .layouts.zarr import COLUMN_ORDER, SETTINGS, ZarrGroup
from .node import import_dask
from .opening import Options, new_array
from .rows import READ_NBYTES, converted, items_of, naming_column

if TYPE_CHECKING:
    from xarray import DataArray, Dataset, DataTree, Variable

# The name of the variable of a `DataArray` without one.
DEFAULT_NAME = "data"
# Kinds of dtypes whose items are text, of any length, or times of xarray.
TEXT_KINDS = "OSTU"
# An attribute of a group: the dimensions that netCDF lets grow.
UNLIMITED = "unlimited_dims"
# An attribute of a group: the coordinates that no variable names.
COORDINATES = "coordinates"
# Attributes that xarray reads: the values of missing items, and how it stores values.
FILLS = {MASK, "missing_value"}
STORAGE = FILLS | {
    *("dtype", "units", "calendar", "scale_factor", "add_offset", "_Unsigned"),
}
# What joins the names of groups.
JOIN = "{}/{}".format
# The modes of `from_xarray`.
MODES = ("x", "w", "a")
# What `encoding` may have for xarray; the rest is for `create_array`.
CONVENTIONS = {*STORAGE, "coordinates", "grid_mapping"}
# Units of times, from the coarsest to the finest, and their names in NumPy.
UNITS = {
    "seconds": "s",
    "milliseconds": "ms",
    "microseconds": "us",
    "nanoseconds": "ns",
}
# The first day of the standard calendar on which it is that of NumPy.
REFORM = numpy.datetime64("1582-10-15")
# Maximum error in nanoseconds of a time that a variable of floats holds.
MAX_ERROR = 1e6


def from_xarray(
    path: Path,
    data: Dataset | DataArray | DataTree,
    *,
    encoding: Mapping[str, Mapping[str, Any]] | None = None,
    mode: str = "x",
    group: str | None = None,
    append_dim: str | None = None,
    region: Mapping[str, slice | str] | str | None = None,
    sync: bool = True,
    timeout: float | None = None,
    storage_options: StorageOptions | None = None,
    **settings: object,
) -> Group:
    """Write a dataset of xarray as a group, and return it open for changes.

    Parameters
    ----------
    path
        The folder, which appears when the group is complete; or a URL, at which
        variables of Dask come after the group.
    data
        The dataset. A ``DataArray`` becomes one with a variable of its name, and each
        node of a ``DataTree`` a group. Each chunk of Dask is computed once.
    encoding
        By the names of variables: how xarray encodes them, such as ``dtype``,
        ``scale_factor`` and ``units``; and parameters of `create_array`, such as
        ``chunks``. For a tree by the paths of groups first. Without ``units``, times
        and durations get seconds, or finer ones if they need them. A number or
        time that the encoding can't hold is refused.
    mode
        As in `create_array`. With ``'a'``, a group that exists gets the variables that
        it lacks, and new values in the others, which keep their shapes.
    group
        The path of the group inside of that at `path` which is written, and returned;
        both are created if needed. `mode` is about this group.
    append_dim
        The dimension along which variables are appended to those of the group. A
        ``DataTree`` appends the nodes that have it.
    region
        The part of the group that gets the values: a slice for each dimension, or
        ``'auto'`` where the values of the coordinates tell; or ``'auto'`` for all.
    sync, storage_options
        As in `create_array`.
    timeout
        As in `open`.
    settings
        Settings of Blosc for all new variables, as in `create_array`.

    Notes
    -----
    The variables of a group that exists are encoded as they are stored, and keep their
    attributes. Those without `append_dim` or a dimension of `region` must be equal. All
    is computed and checked before anything is written, and all variables change in one
    commit, see `Group.change`.

    Raises
    ------
    UsageError
        If a variable can't be stored, or does not fit; the message has its name.
    FileExistsError
        If there is a file or folder of this name.

    Examples
    --------
    >>> import xarray
    >>> from bloscpack import dataset
    >>> days = xarray.date_range('2026-01-01', periods=3)
    >>> cold = xarray.Dataset({'t': ('time', [-3.5, -1.0, 0.5])}, {'time': days})
    >>> dataset.from_xarray('cold', cold[{'time': slice(2)}]).close()
    >>> rest = cold[{'time': slice(2, 3)}]
    >>> with dataset.from_xarray('cold', rest, append_dim='time') as group:
    ...     list(group), group.to_xarray().identical(cold)
    (['t', 'time'], True)
    """
    path = local_path(path)
    if mode not in MODES:
        raise UsageValueError(
            "mode must be 'x' for a new group, 'w' to replace one, or 'a' to change "
            "one, not %.200r" % (mode,)
        )
    changes = append_dim is not None or region is not None
    if changes and (mode not in ("x", "a") or None not in (append_dim, region)):
        raise UsageValueError(
            "append_dim and region change a group that exists, and exclude each other "
            "and the mode '%s'" % mode
        )
    _check_settings(settings)
    where = (group or "").strip("/")
    nodes, given = _nodes_of(data, encoding, where)
    opening = Options(sync=sync, writable=True, timeout=timeout)
    found = None
    if mode == "a" or changes or where:
        with nullcontext() if changes else suppress(FileNotFoundError):
            found = detect(Folder.open(path, storage_options))
    if found is None:
        mode = "w" if mode == "w" else "x"
        _create(path, nodes, given, settings, mode, sync, storage_options)
    else:
        whole: Any = open_node(found, opening)
        try:
            if not isinstance(whole, Group):
                raise UsageTypeError("'%s' is no group" % whole.path)
            if mode != "a" and not changes:
                if where in whole and mode == "x":
                    name = os.path.join(whole.path, where)
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
                computed = {name: node.compute() for name, node in nodes.items()}
                new = _all_encoded(computed, given)
                if where in whole:
                    del whole[where]
                with whole.change():
                    _add_nodes(whole, new, settings)
            else:
                _change(whole, nodes, given, settings, append_dim, region)
        except BaseException:
            whole.close()
            raise
        if not where:
            return whole
        whole.close()
    inner = Folder.open(path, storage_options)
    if where:
        inner = Folder.open(*inner.address_of(where))
    written = open_node(detect(inner), opening)
    assert isinstance(written, Group)
    return written


def _check_settings(settings: Mapping[str, object]) -> None:
    """Raise `UsageError` for a setting that no new array has."""
    xarray = import_extra("xarray", "xarray")
    theirs = {
        *signature(xarray.Dataset.to_zarr).parameters,
        *signature(xarray.DataTree.to_zarr).parameters,
    }
    if unknown := theirs & settings.keys():
        ours = (n for n, p in signature(from_xarray).parameters.items() if p.kind != 4)
        raise UsageTypeError(
            "from_xarray lacks the parameter '%s' of to_zarr: it has %s, and settings "
            "of Blosc" % (min(unknown), ", ".join(ours))
        )
    known = {*SETTINGS, *(new_array.__kwdefaults__ or ())}
    known_settings(settings, known, "from_xarray has no setting %r")


def _nodes_of(
    data: Any, encoding: Mapping[str, Any] | None, where: str
) -> tuple[dict[str, Dataset], dict[str, dict[str, dict[str, Any]]]]:
    """Return datasets by the paths of their groups, and the encodings of each.

    Raises `UsageError` for an encoding of an unknown group or variable.
    """
    xarray = import_extra("xarray", "xarray")
    nodes, by_path = {"": data}, {"": encoding or {}}
    if isinstance(data, xarray.DataTree):
        nodes = {n.path.strip("/"): n.to_dataset(inherit=False) for n in data.subtree}
        by_path = {key.strip("/"): found for key, found in (encoding or {}).items()}
        if unknown := by_path.keys() - nodes.keys():
            raise UsageValueError("encoding: there is no group '%s'" % min(unknown))
    found, given = {}, {}
    for name, node in nodes.items():
        path = "/".join(filter(None, (where, name)))
        found[path] = _dataset_of(node)
        given[path] = _checked_encoding(by_path.get(name), found[path])
    return found, given


class Encoded(NamedTuple):
    """A dataset as netCDF has it.

    Attributes
    ----------
    variables, attrs
        Its variables and attributes.
    given
        Options of `create_array` by the names of variables.
    """

    variables: dict[str, Variable]
    attrs: JsonObject
    given: dict[str, dict[str, Any]]


def _all_encoded(
    nodes: Mapping[str, Dataset], given: Mapping[str, dict[str, dict[str, Any]]]
) -> dict[str, Encoded]:
    """Return datasets encoded, by the paths of their groups."""
    encoded = {}
    for where, node in nodes.items():
        options = {name: dict(found) for name, found in given[where].items()}
        variables, attrs = _encoded(node, options)
        unlimited = {*node.encoding.get("unlimited_dims", ())} & {*node.dims}
        attrs |= {UNLIMITED: sorted(unlimited)} if unlimited else {}
        encoded[where] = Encoded(variables, _without_structure(attrs), options)
    return encoded


def _create(
    path: Path,
    nodes: Mapping[str, Dataset],
    given: Mapping[str, dict[str, dict[str, Any]]],
    settings: Mapping[str, object],
    mode: str,
    sync: bool,
    storage_options: StorageOptions | None,
) -> None:
    """Write a new dataset; variables of Dask come last."""
    check_ending(path, "a dataset is a folder", ".zarr", FILE_CALLS)
    new = _all_encoded(nodes, given)
    is_remote = is_url(path)
    dasks = any(v.chunks for node in new.values() for v in node.variables.values())
    with nullcontext(path) if is_remote else building(path, mode, sync) as target:
        synced = sync and is_remote
        with new_dataset(target, "zarr", mode, synced, storage_options) as change:
            late = _write(change, "", new, settings, commits=not dasks)
        if late:
            _write_from_dask(Folder.open(target, storage_options), late, synced)


def _write(
    change: Change,
    start: str,
    nodes: Mapping[str, Encoded],
    settings: Mapping[str, object],
    *,
    commits: bool = False,
) -> list[tuple[str, Any, dict[str, Any]]]:
    """Write groups that are new; return the variables of Dask, see `_write_from_dask`.

    `start` is the path of the outermost group, with a slash; or it is empty.
    """
    late: list[tuple[str, Any, dict[str, Any]]] = []
    outer = {
        "",
        *(name for where in nodes for name in accumulate(where.split("/"), JOIN)),
    }
    for where in sorted(outer):
        node = nodes.get(where, Encoded({}, {}, {}))
        prefix = where + "/" if where else ""
        ZarrGroup.create(
            change, node.attrs, start + prefix, commits=commits and not where
        )
        for name, items, options in _arrays_of(node.variables, node.given, settings):
            if getattr(items, "chunks", None) and items.ndim and items.size:
                late.append((prefix + name, items.data, options))
                continue
            with naming_column(name, "variable"):
                layout, array, blocks = new_array(name, items, **options)
                layout.create(change, start + prefix + name + "/", array, blocks)
    return late


def _write_from_dask(
    whole: Folder, variables: Iterable[tuple[str, Any, dict[str, Any]]], sync: bool
) -> None:
    """Add variables of Dask to a new group, each chunk computed once.

    They are names, arrays and options of `create_array`.
    """
    tasks = []
    for name, items, options in variables:
        at, known = whole.address_of(name)
        options |= {"sync": sync, "storage_options": known}
        with naming_column(name, "variable"):
            tasks.append(from_dask(at, items, compute=False, **options))
    import_dask("dask").compute(*tasks)
    group: Any = open_node(detect(whole), Options(sync=False, writable=True))
    with group, group.change():
        pass  # from now on, its document commits all variables


def _dataset_of(data: Any) -> Dataset:
    """Return data of xarray as a dataset."""
    xarray = import_extra("xarray", "xarray")
    if isinstance(data, xarray.DataArray):
        data = data.to_dataset(name=data.name or DEFAULT_NAME)
    if not isinstance(data, xarray.Dataset):
        raise UsageTypeError(
            "expected a Dataset or a DataArray of xarray, or a DataTree, found '%s'"
            % type(data).__name__
        )
    found: Dataset = data
    return found


def _checked_encoding(
    encoding: Mapping[str, Mapping[str, Any]] | None, data: Dataset
) -> dict[str, dict[str, Any]]:
    """Return a copy of encodings; raise `UsageError` for an unknown variable."""
    given = {name: dict(found) for name, found in (encoding or {}).items()}
    if unknown := given.keys() - data.variables.keys():
        raise UsageValueError("encoding: there is no variable '%s'" % min(unknown))
    return given


def _encoded(
    data: Dataset, given: dict[str, dict[str, object]], *, checks: bool = True
) -> tuple[dict[str, Variable], JsonObject]:
    """Return the variables and attributes of a dataset as netCDF has them.

    What `given` has for xarray is removed from it.
    """
    conventions = import_extra("xarray.conventions", "xarray")
    variables, attrs = conventions.encode_dataset_coordinates(data)
    for name, found in given.items():
        for key in CONVENTIONS & found.keys():
            variables[name].encoding[key] = found.pop(key)
    _choose_units(variables)
    plain = {}
    for name, variable in variables.items():
        with naming_column(str(name), "variable"):
            plain[name] = _as_numbers(_without_codes(variable), str(name))
    try:
        encoded, attrs = conventions.cf_encoder(plain, dict(attrs))
    except (
        *(ArithmeticError, AttributeError, LookupError, RuntimeError),
        *(TypeError, ValueError),
    ) as error:
        note = "".join(getattr(error, "__notes__", ())).partition(" with value")[0]
        raise UsageValueError(
            "xarray can't encode the dataset: %s: %s (%s)"
            % (type(error).__name__, error, note)
        ) from error
    for name, variable in encoded.items():
        original = data.variables[name]
        if original.dtype.kind == "m" and "dtype" in variable.attrs:
            variable.attrs["dtype"] = str(original.dtype)
        if original.dtype == bool:
            encoded[name] = variable = variable.astype(bool)
            variable.attrs.pop("dtype", None)
        if checks:
            # Bounds do not state their units.
            how = _codes(_without_codes(variables[name]).encoding) | variable.attrs
            if calendar := _calendar_of(original):
                how.setdefault("calendar", calendar)
            with naming_column(str(name), "variable"):
                encoded[name] = _checked(variable, original, how, str(name))
    return encoded, attrs


def _without_codes(variable: Variable) -> Variable:
    """Return a variable without the codes that its dtype does not need.

    netCDF has no booleans, and Zarr has; none of them is missing, and no text of NumPy.
    The engine ``zarr`` of xarray opens no text with a ``_FillValue``.
    """
    kind, encoding = variable.dtype.kind, dict(variable.encoding)
    for key in {"b": STORAGE, "U": FILLS, "S": FILLS}.get(kind, ()):
        encoding.pop(key, None)
    if _kind_of(variable)[0] == "U" and encoding.get(MASK) is not None:
        encoding["missing_value"] = encoding.pop(MASK)
    found = variable.copy(deep=False)
    found.encoding = encoding
    return found


def _codes(attrs: Mapping[Any, Any]) -> JsonObject:
    """Return the attributes that say how values are stored, without the dtype."""
    return {key: attrs[key] for key in STORAGE & attrs.keys() if key != "dtype"}


def _checked(
    encoded: Variable, variable: Variable, how: Mapping[Any, Any], name: str
) -> Variable:
    """Return an encoded variable whose values were compared with the given ones.

    Those of Dask are compared when they are computed.
    """
    if not _may_change(encoded.dtype, variable, how):
        return encoded
    if not variable.chunks:
        count = len(variable) if variable.ndim else 0
        step = max(1, READ_NBYTES * count // max(1, variable.nbytes))
        for start in range(0, count, step) if variable.ndim else [...]:
            part = ... if start is ... else slice(start, start + step)
            _check_same(encoded[part].values, variable[part], how, rounds=True)
        return encoded

    def checked(items: Items, given: Items) -> Items:
        with naming_column(name, "variable"):
            items = converted(items, dtype)
            block = type(encoded)(dims, given, attrs)
            _check_same(items, block, how, rounds=True)
        return items

    dims, attrs, dtype = encoded.dims, variable.attrs, encoded.dtype
    lazy = encoded.data
    blocks = import_dask("dask.array").map_blocks(
        checked, lazy, variable.data, dtype=dtype, meta=lazy._meta
    )
    return encoded.copy(data=blocks)


def _may_change(stored: Any, variable: Variable, how: Mapping[Any, Any]) -> bool:
    """Return whether the values of a variable may be others when they are read."""
    codes = [value for key, value in how.items() if key in STORAGE and key != "dtype"]
    is_nan = [isinstance(v, (float, numpy.floating)) and v != v for v in codes]
    return stored != variable.dtype or not all(is_nan)


def _check_same(
    items: Items, variable: Variable, how: Mapping[Any, Any], *, rounds: bool
) -> None:
    """Raise `DoesNotFit` if encoded items are not read as the values of a variable.

    Packed numbers are rounded to the nearest step, and floats. With `rounds`, so are
    floats that are stored as integers.

    Parameters
    ----------
    how
        The attributes of the items.
    """
    given, dims = variable.values, variable.dims
    if _codes(variable.attrs):  # the values are encoded already
        given = _decode(given, dims, variable.attrs, given.dtype)
    if items.shape != given.shape:
        return
    isnull = import_extra("pandas", "xarray").isnull
    try:
        again = _decode(items, dims, how, given.dtype)
        missing = [numpy.asarray(isnull(found)) for found in (given, again)]
        kept = ~(missing[0] | missing[1])
        fits = _fits(given[kept], again[kept], items.dtype, how, rounds)
    except (ArithmeticError, AttributeError, ValueError) as error:
        raise DoesNotFit(
            "the values do not fit the dtype '%s'%s: %s"
            % (items.dtype, _shown(how), error)
        ) from error
    wrong = numpy.asarray(missing[0] != missing[1])
    wrong[kept] |= ~fits
    if wrong.any():
        values = [numpy.asarray(found[wrong]).flat[0] for found in (given, again)]
        raise DoesNotFit(
            "the value %s does not fit the dtype '%s'%s: it is read as %s"
            % (values[0], items.dtype, _shown(how), values[1])
        )


def _shown(how: Mapping[Any, Any]) -> str:
    """Return the attributes that say how values are stored, for a message."""
    codes = {key: numpy.asarray(v).tolist() for key, v in _codes(how).items()}
    return " with %s" % dict(sorted(codes.items())) if codes else ""


def _decode(
    items: Items, dims: tuple[Any, ...], attrs: Mapping[Any, Any], dtype: Any
) -> Items:
    """Return items as xarray reads them for values of a dtype."""
    xarray = import_extra("xarray", "xarray")
    times: Any = dtype.kind in "MO" and "since" in str(attrs.get("units"))
    if times and hasattr(xarray, "coders"):
        coder = xarray.coders.CFDatetimeCoder
        unit = numpy.datetime_data(dtype)[0] if dtype.kind == "M" else ""
        # Far times of another unit would become those of cftime, of any calendar.
        times = coder(False, time_unit=unit) if unit else coder(use_cftime=True)
    if items.dtype.kind == "f":  # xarray changes floats that are durations
        items = items.copy()
    found: Items = xarray.conventions.decode_cf_variable(
        *("", xarray.Variable(dims, items, attrs)),
        concat_characters=False,
        decode_times=times,
        decode_timedelta=dtype.kind == "m",
    ).values
    return found


def _fits(
    given: Items, again: Items, stored: Any, how: Mapping[Any, Any], rounds: bool
) -> Items:
    """Return which values, of which none is missing, are read again as they should."""
    kinds = given.dtype.kind, stored.kind
    is_packed = bool({"scale_factor", "add_offset"} & how.keys())
    fits: Items
    if kinds[0] in "mM" or ("calendar" in how and kinds[0] == "O"):
        errors = numpy.asarray(again - given)
        errors = errors.astype("m8[us]") if errors.dtype.kind == "O" else errors
        limit: Any = 0 if kinds[1] in "iu" else MAX_ERROR
        one = numpy.array(1, errors.dtype) / numpy.timedelta64(1, "ns")
        fits = abs(errors.view("i8").astype(float)) * one <= limit
        return fits
    with numpy.errstate(all="ignore"):
        if "c" in kinds:
            fits = numpy.isfinite(again) | ~numpy.isfinite(given)
            if kinds[1] != "c":
                fits &= given.imag == 0
            if kinds[1] in "iu":
                fits &= given == again
        elif kinds[0] == "f" or (is_packed and kinds[0] in "biu"):
            wide, stated = given.astype(float), again.astype(float)
            errors = numpy.where(wide == stated, 0, abs(wide - stated))
            limit = 0
            if kinds[1] == "f":
                limit = numpy.finfo(float).max
            elif rounds or is_packed:
                limit = _packing_error(how, given, again)
            fits = errors <= limit
        elif kinds[0] in "biu":
            fits = again.astype(given.dtype) == given
            fits &= ((again < 0) == (given < 0)) & numpy.isfinite(again.astype(float))
        else:
            fits = numpy.asarray(given == again)
    return fits


def _packing_error(attrs: Mapping[Any, Any], given: Items, again: Items) -> Items:
    """Return the errors that packed numbers may have: half a step, and of the floats.

    `again` has the numbers after decoding.
    """
    step, offset = attrs.get("scale_factor", 1), attrs.get("add_offset", 0)
    floats = [a.dtype for a in (given, again) if a.dtype.kind == "f"]
    eps = max((numpy.finfo(dtype).eps for dtype in floats), default=0)
    sizes = abs(again.astype(float)) + abs(float(offset))
    errors: Items = abs(float(step)) / 2 * (1 + 1e-6) + 4 * eps * sizes
    return errors


def _choose_units(variables: dict[Any, Variable]) -> None:
    """Set units of times and durations that have none, which hold later ones, too.

    Each item is a whole number of them. The bounds of times get the same units. Those
    of Dask get the units of their dtype.
    """
    # Those with bounds come first.
    for variable in sorted(variables.values(), key=lambda v: "bounds" not in v.attrs):
        kind = _kind_of(variable)[0]
        bounds = variables.get(variable.attrs.get("bounds"), variable)
        both = [v for v in (variable, bounds) if _kind_of(v)[0] == kind]
        # xarray chooses those of lazy times of cftime.
        if kind in "mM" and not any(v.chunks and v.dtype.kind == "O" for v in both):
            units = (
                name
                for name, unit in UNITS.items()
                if all(_is_whole(v, unit) for v in both)
            )
            chosen = next(units, "nanoseconds")
            given = {"units": chosen + " since 1970-01-01" * (kind == "M")}
            given |= variable.attrs | variable.encoding
            for found in both:
                if "units" not in found.attrs:
                    found.encoding.setdefault("units", given["units"])


def _is_whole(variable: Variable, unit: str) -> bool:
    """Return whether times are whole numbers of a unit; of Dask by their dtype."""
    dtype = numpy.dtype("%s8[%s]" % (variable.dtype.kind.replace("O", "M"), unit))
    if variable.chunks:
        return bool(numpy.promote_types(variable.dtype, dtype) == dtype)
    times = variable.values
    if times.dtype.kind == "O":  # of cftime, with microseconds
        step = {"s": 10**6, "ms": 10**3}.get(unit, 1)
        return not any(getattr(t, "microsecond", 0) % step for t in times.flat)
    return bool(((times.astype(dtype) == times) | numpy.isnat(times)).all())


def _as_numbers(variable: Variable, name: str) -> Variable:
    """Return times of NumPy, and lazy ones of cftime, as numbers in their units.

    Others are returned unchanged, for xarray, which can't encode far times: those of
    other calendars, and those for which it takes finer units, or floats.
    """
    kind, encoding = variable.dtype.kind, dict(variable.encoding)
    is_packed = {"scale_factor", "add_offset"} & encoding.keys()
    dtype = numpy.dtype(encoding.get("dtype") or "i8")
    of_cftime = (
        _calendar_of(variable) if variable.chunks and "units" in encoding else None
    )
    if not (kind in "mM" or of_cftime) or is_packed or dtype.kind not in "iuf":
        return variable
    labels = {"units": encoding.pop("units", "")}
    calendar = encoding.pop("calendar", None)
    if of_cftime:
        labels["calendar"] = calendar or of_cftime
    elif kind == "M":
        labels["calendar"] = calendar or "proleptic_gregorian"
    else:
        labels["dtype"] = str(variable.dtype)
    if not labels.keys().isdisjoint(variable.attrs):
        return variable
    scale = None if of_cftime else _scale_of(**labels)
    if scale is None and not of_cftime:
        return variable

    def numbers(times: Items) -> Items:
        with naming_column(name, "variable"):
            if scale is None:
                return _numbers_of_cftime(times, dtype.kind == "f", labels)
            return _numbers_of(times, dtype.kind == "f", *scale)

    if variable.chunks:
        wide = "f8" if dtype.kind == "f" else "i8"
        meta = numpy.empty((0,) * variable.ndim, wide)
        lazy = import_dask("dask.array").map_blocks
        data = lazy(numbers, variable.data, dtype=wide, meta=meta)
    else:
        try:
            data = numbers(variable.values)
        except DoesNotFit:
            return variable
    make = import_extra("xarray", "xarray").Variable
    found: Variable = make(variable.dims, data, variable.attrs | labels, encoding)
    return found


@lru_cache
def _scale_of(
    units: str, calendar: str | None = None, dtype: str | None = None
) -> tuple[Any, Any, bool] | None:
    """Return the time that the number 0 means, a unit, and whether it is of any time.

    The calendar ``standard`` is that of NumPy only from 1582-10-15 on. Return None for
    units that NumPy does not have.
    """
    xarray = import_extra("xarray", "xarray")
    if not hasattr(xarray, "coders"):
        return None
    attrs = {"units": units, "dtype": "timedelta64[s]"}
    attrs |= {} if calendar is None else {"calendar": calendar}
    try:
        zero, one = xarray.conventions.decode_cf_variable(
            *("", xarray.Variable("x", [0, 1], attrs)),
            decode_times=xarray.coders.CFDatetimeCoder(False, time_unit="s"),
        ).values
    except (LookupError, OverflowError, TypeError, ValueError):
        return None
    if zero.dtype.kind != ("m" if calendar is None else "M"):
        return None
    return zero, one - zero, calendar in (None, "proleptic_gregorian")


def _numbers_of(
    times: Items, as_floats: bool, zero: Any, step: Any, any_time: bool
) -> Items:
    """Return times as numbers; raise `DoesNotFit` if they are no whole numbers."""
    dtype = numpy.promote_types(times.dtype, zero.dtype)
    fine, missing = converted(times, dtype), numpy.isnat(times)
    if not any_time and (times < REFORM).any():
        raise DoesNotFit("a time is before 1582-10-15 in the standard calendar")
    deltas = (fine - zero.astype(dtype)).view("i8")
    unit = int(step.astype("m8[%s]" % numpy.datetime_data(dtype)[0]).view("i8"))
    if as_floats:
        return numpy.where(missing, numpy.nan, deltas / unit)
    numbers: Items = numpy.where(missing, deltas, deltas // unit)
    if not ((numbers * unit == deltas) | missing).all():
        raise DoesNotFit("a time is no whole number of its units since %s" % zero)
    return numbers


def _numbers_of_cftime(times: Items, as_floats: bool, labels: JsonObject) -> Items:
    """Return times of cftime as numbers; raise `DoesNotFit` for other units."""
    xarray = import_extra("xarray", "xarray")
    encoding = {**labels, "dtype": "f8" if as_floats else "i8"}
    variable = xarray.Variable([*map(str, range(times.ndim))], times, {}, encoding)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about other units, which are refused
            found = xarray.conventions.encode_cf_variable(variable)
    except (ArithmeticError, TypeError, ValueError) as error:
        raise DoesNotFit("%s" % error) from error
    units = [found.attrs["units"].split()[0], labels["units"].split()[0]]
    if units[0].rstrip("s") != units[1].rstrip("s") or found.dtype != encoding["dtype"]:
        raise DoesNotFit("a time is no whole number of '%s'" % labels["units"])
    items: Items = found.values
    return items


def _kind_of(variable: Variable) -> tuple[str, str]:
    """Return the kind of the items of a variable, and words for them.

    The kind of times of any calendar is ``'M'``, that of texts ``'U'``, and that of
    numbers ``'f'``.
    """
    kind = variable.dtype.kind
    if kind == "M":
        return "M", "times of the standard calendar"
    if calendar := _calendar_of(variable):
        return "M", "times of the calendar '%s'" % calendar
    return {
        **dict.fromkeys("biuf", ("f", "numbers")),
        **dict.fromkeys(TEXT_KINDS, ("U", "text")),
        "m": ("m", "durations"),
    }.get(kind, (kind, "items of the dtype '%s'" % variable.dtype))


def _calendar_of(variable: Variable) -> str | None:
    """Return the calendar of times of cftime; None for other items."""
    if variable.dtype.kind != "O" or not variable.size:
        return None
    item = variable[(0,) * variable.ndim].values.item()
    calendar: str | None = getattr(item, "calendar", None)
    return calendar


def _arrays_of(
    variables: Mapping[str, Variable],
    given: Mapping[str, dict[str, Any]],
    settings: Mapping[str, object],
) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Yield name and items of each encoded variable, and options of `create_array`."""
    widest: dict[Any, int] = {}  # the item size of numbers, by dimensions
    for variable in variables.values():
        if variable.dtype.kind not in TEXT_KINDS:
            size = variable.dtype.itemsize
            widest[variable.dims] = max(size, widest.get(variable.dims, 0))
    for name, variable in variables.items():
        with naming_column(name, "variable"):
            check_member_name("variable", name)
            items: Any = _items_of(variable)
            attrs = _without_structure(variable.attrs)
            fill = numpy.nan if items.dtype.kind in "fc" else None
            if attrs.get(MASK) is not None:
                fill = numpy.asarray(attrs[MASK]).ravel()[0].astype(items.dtype)
                attrs = with_mask(attrs, items.dtype, encode_mask, "c")
            options = {"fill_value": fill, **settings, **given.get(name, {})}
            options |= {"dims": [*variable.dims], "attrs": attrs}
            if items.ndim and options.keys().isdisjoint(("chunks", "shards")):
                is_number = items.dtype.kind not in TEXT_KINDS
                size = max(widest.get(variable.dims, 0), items.dtype.itemsize)
                width = "V%d" % size if is_number else items.dtype
                grid = new_grid(NewArray(numpy.dtype(width), items.shape))
                # The variables along an axis are complete: no chunk is longer than it.
                rows = min(grid.chunk[0], items.shape[0] or grid.chunk[0])
                options["chunks"] = rows, *grid.chunk[1:]
                options["shards"] = rows * grid.per_shard[0], *grid.shard[1:]
        yield name, items, options


def _items_of(variable: Variable) -> Variable | Items:
    """Return the items of an encoded variable, of which text is objects."""
    if variable.dtype.kind not in "OT":
        return variable
    objects = numpy.asarray(variable.values, object)
    items = items_of(objects, keeps_text=True)
    if items.shape != objects.shape:
        raise UsageTypeError("expected text, found %.200r" % (objects.flat[0],))
    return items


def _without_structure(attrs: Mapping[Any, object]) -> JsonObject:
    """Return attributes without the ones that describe how a dataset is stored."""
    hidden = {*STRUCTURE["zarr"], COLUMN_ORDER}
    return {name: value for name, value in attrs.items() if name not in hidden}


# Changes of a group that exists


class Step(NamedTuple):
    """What becomes of a variable.

    Attributes
    ----------
    name, items
        Its name, and its encoded items.
    axis
        The axis along which they are appended; None if they are assigned.
    key
        To which part they are assigned.
    """

    name: str
    items: Items
    axis: int | None
    key: tuple[slice, ...]


def _change(
    whole: Group,
    nodes: Mapping[str, Dataset],
    encoding: Mapping[str, dict[str, dict[str, Any]]],
    settings: Mapping[str, object],
    append_dim: str | None,
    region: Mapping[str, slice | str] | str | None,
) -> None:
    """Write datasets to the groups of these paths in a group, in one change."""
    nodes = {where: node.compute() for where, node in nodes.items()}
    there = {
        where: node for where, node in nodes.items() if where in whole or not where
    }
    if there != nodes and (append_dim is not None or region is not None):
        raise UsageValueError(
            "append_dim and region change groups that exist, and there is no '%s'"
            % min(nodes.keys() - there.keys())
        )
    is_locked = whole.commits_members
    plans = _plans(whole, there, append_dim, region)
    for where, (added, _) in plans.items():
        if refused := encoding[where].keys() - {*added}:
            raise UsageValueError(
                "encoding: the variable '%s' is stored as it is" % min(refused)
            )
    more = _all_encoded({w: nodes[w] for w in plans if plans[w][0]}, encoding)
    new = {where: node for where, node in nodes.items() if where not in there}
    created = _all_encoded(new, encoding)
    with whole.change():
        if not is_locked:  # another writer may have changed a member until now
            again = _plans(whole, there, append_dim, region)
            if [a for a, _ in again.values()] != [a for a, _ in plans.values()]:
                raise StorageError(
                    errno.EAGAIN, "another program has added a variable", whole.path
                )
            plans = again
        _add_nodes(whole, created, settings)
        for where, (added, steps) in plans.items():
            group = whole[where] if where else whole
            if where in more:
                _add_variables(group, more[where], added, settings)
            for name, items, axis, key in steps:
                with naming_column(name, "variable"):
                    if axis is None:
                        group[name][key] = items
                    else:
                        group[name].append(items, axis=axis)


def _add_variables(
    group: Group, node: Encoded, added: list[str], settings: Mapping[str, object]
) -> None:
    """Add some variables of a dataset to a group."""
    new = {name: node.variables[name] for name in added}
    for name, array, options in _arrays_of(new, node.given, settings):
        with naming_column(name, "variable"):
            group.create_array(name, array, **options)
    before = str(group.attrs.get(COORDINATES, "")).split()
    others = [n for n in str(node.attrs.get(COORDINATES, "")).split() if n in new]
    if others:
        group.attrs[COORDINATES] = " ".join([*before, *others])


def _add_nodes(
    whole: Group, nodes: Mapping[str, Encoded], settings: Mapping[str, object]
) -> None:
    """Add groups to one that commits its members, each with all that is in it."""

    def create(member: Any, inner: Mapping[str, Encoded], **_: object) -> None:
        with member.creating("zarr", "group", "x") as change:
            _write(change, member.prefix, inner, settings)

    new: dict[str, dict[str, Encoded]] = {}
    for where, node in nodes.items():
        outer = [*accumulate(where.split("/"), JOIN)]
        first = next(name for name in outer if name not in whole)
        new.setdefault(first, {})[where[len(first) + 1 :]] = node
    for first, inner in new.items():
        whole._created(create, first, inner)


def _plans(
    whole: Group,
    nodes: Mapping[str, Dataset],
    append_dim: str | None,
    region: Mapping[str, slice | str] | str | None,
) -> dict[str, tuple[list[str], list[Step]]]:
    """Return what `plan` does for each group.

    In a tree, some groups may lack dimensions that change.
    """
    wanted = {append_dim} if append_dim is not None else set()
    wanted |= {*region} if isinstance(region, Mapping) else set()
    plans, located = {}, dict[str, dict[Any, slice]]()
    for where, node in nodes.items():
        dim, part = append_dim, region
        if len(nodes) > 1 and not wanted - {d for n in nodes.values() for d in n.dims}:
            dim = dim if dim in node.dims else None
            if isinstance(region, Mapping):
                part = {d: found for d, found in region.items() if d in node.dims}
            elif append_dim is not None and dim is None:
                part = {}  # nothing changes
        group: Any = whole[where] if where else whole
        if not isinstance(group, Group):
            raise UsageTypeError("'%s' is no group" % group.path)
        located[where] = {**located.get(where.rpartition("/")[0], {})}
        plans[where] = plan(group, node, dim, part, located[where])
    return plans


def plan(
    group: Group,
    data: Dataset,
    append_dim: str | None,
    region: Mapping[str, slice | str] | str | None,
    located: dict[Any, slice],
) -> tuple[list[str], list[Step]]:
    """Return the variables that a group lacks, and what becomes of the others.

    `located` has the parts of dimensions that the group around it has found by their
    coordinates, and gets those of this group. Raises `UsageError` if any does not fit.
    """
    stored: Dataset = group.to_xarray(decode_cf=False)
    decoded = _decoded(stored, data)
    parts = _located(decoded, data, region, located)
    sizes = dict(decoded.sizes)
    if append_dim is not None:
        if not {append_dim} <= sizes.keys() & data.sizes.keys():
            raise UsageValueError(
                "append_dim: expected a dimension of the group and of the data, which "
                "are %s and %s, found %.200r" % ([*sizes], [*data.sizes], append_dim)
            )
        for name, variable in decoded.variables.items():
            if append_dim in variable.dims and name not in data.variables:
                raise UsageValueError(
                    "the variable '%s' of the group has the dimension '%s', and is "
                    "missing from the data" % (name, append_dim)
                )
    added, steps = [], []
    encoded = _encoded_like(decoded, data)
    for name, variable in data.variables.items():
        with naming_column(str(name), "variable"):
            moves = {append_dim, *parts} & {*variable.dims}
            if name not in decoded.variables:
                found = {
                    dim: n
                    for dim, n in variable.sizes.items()
                    if n != sizes.get(dim, n)
                }
                if moves or region is not None or found:
                    raise UsageValueError(
                        "the group has no such variable, and a new one has all items "
                        "along each dimension, which has %s" % sizes
                    )
                added.append(str(name))
                continue
            old, raw = decoded.variables[name], stored.variables[name]
            if variable.dims != old.dims or _kind_of(variable)[1] != _kind_of(old)[1]:
                raise DoesNotFit(
                    "expected %s with the dimensions %s, found %s with %s"
                    % (_kind_of(old)[1], old.dims, _kind_of(variable)[1], variable.dims)
                )
            units = [found.attrs.get("units") for found in (old, variable)]
            if None not in units and units[0] != units[1]:
                raise DoesNotFit("expected the units '%s', found '%s'" % (*units,))
            key = tuple(parts.get(dim, slice(0, sizes[dim])) for dim in old.dims)
            axis = old.dims.index(append_dim) if append_dim in old.dims else None
            expected = [part.stop - part.start for part in key]
            if axis is not None:
                expected[axis] = variable.shape[axis]
            if [*variable.shape] != expected:
                raise DoesNotFit(
                    "expected the shape %s, found %s"
                    % (tuple(expected), variable.shape)
                )
            if raw.dtype.kind in "mM":  # times of Zarr, which have no units to encode
                items = converted(numpy.asarray(_items_of(variable)), raw.dtype)
            else:
                items = _fitting(encoded[str(name)], variable, old, raw)
            if moves or (append_dim is None and region is None):
                steps.append(Step(str(name), items, axis, key))
            elif not numpy.array_equal(
                items, raw.values, equal_nan=items.dtype.kind in "fcmM"
            ):
                raise DoesNotFit(
                    "it has other values than the group, and no dimension of those "
                    "that change: leave it out"
                )
    return added, steps


def _decoded(stored: Dataset, data: Dataset) -> Dataset:
    """Return a group decoded, with times of NumPy or of cftime, as the data have them.

    By default, xarray makes objects of cftime of those that nanoseconds can't hold,
    and refuses missing ones beside them.
    """
    xarray = import_extra("xarray", "xarray")
    coders: Any = time_coders(stored.variables)
    for name, variable in data.variables.items():
        if _calendar_of(variable) and hasattr(xarray, "coders"):
            coders[name] = xarray.coders.CFDatetimeCoder(use_cftime=True)
    found: Dataset = xarray.decode_cf(
        # With an empty dictionary, bounds would stay numbers.
        *(stored, False),
        decode_times=coders or True,
    )
    return found


def time_coders(variables: Mapping[Any, Variable]) -> dict[Any, Any]:
    """Return how xarray decodes the times that nanoseconds can't hold.

    The result has coders for the finest unit that holds all times of a variable, or for
    times of cftime if NumPy has none.

    Parameters
    ----------
    variables
        All encoded variables of a dataset, whose times are read.
    """
    xarray = import_extra("xarray", "xarray")
    coders: dict[Any, Any] = {}
    if not hasattr(xarray, "coders"):
        return coders
    described: dict[Any, dict[Any, Any]] = {}
    for name, variable in variables.items():
        bounds = variable.attrs.get("bounds")
        for owned in (name, bounds if isinstance(bounds, str) else name):
            if owned in variables and "since" in str(variable.attrs.get("units")):
                described.setdefault(owned, {}).update(
                    dict(variable.attrs) | variables[owned].attrs
                )
    for name, attrs in described.items():
        units, calendar = attrs["units"], attrs.get("calendar", "standard")
        if variables[name].nbytes <= READ_NBYTES:
            variables[name].load()  # xarray does not read them again
        ends = _ends(variables[name])
        if len(ends):
            is_held = partial(_is_held, ends, units, calendar)
            unit = next(filter(is_held, reversed([*UNITS.values()])), None)
            if unit is None:
                coders[name] = xarray.coders.CFDatetimeCoder(use_cftime=True)
            elif unit != "ns":
                coders[name] = xarray.coders.CFDatetimeCoder(time_unit=unit)
    return coders


def _ends(variable: Variable) -> Items:
    """Return the first and the last of encoded times; none if all are missing."""
    ends = numpy.empty(0)
    if variable.dtype.kind not in "iuf":
        return ends
    attrs = {k: v for k, v in variable.attrs.items() if k in STORAGE - {"units"}}
    count = len(variable) if variable.ndim else 1
    step = max(1, READ_NBYTES * count // max(1, variable.nbytes))
    for start in range(0, count, step):
        items = (variable[start : start + step] if variable.ndim else variable).values
        if items.dtype.kind == "i":  # xarray reads the smallest as NaT
            items = items[items != numpy.iinfo("i8").min]
        numbers = _decode(items.ravel(), ("x",), attrs, numpy.dtype("f8"))
        numbers = numpy.concatenate([ends, numbers[numpy.isfinite(numbers)]])
        ends = numpy.array([numbers.min(), numbers.max()]) if len(numbers) else numbers
    return ends


def _is_held(numbers: Items, units: str, calendar: str, unit: str) -> bool:
    """Return whether a unit of NumPy holds encoded times.

    xarray takes times of the standard calendar before 1582-10-15 for those of NumPy.
    """
    attrs = {"units": units, "calendar": calendar}
    with suppress(LookupError, OverflowError, TypeError, ValueError):
        times = _decode(numbers, ("x",), attrs, numpy.dtype("M8[%s]" % unit))
        is_late = calendar == "proleptic_gregorian" or not (times < REFORM).any()
        return is_late and not numpy.isnat(times).any()
    return False


def _located(
    stored: Dataset,
    data: Dataset,
    region: Mapping[str, slice | str] | str | None,
    located: dict[Any, slice],
) -> dict[Any, slice]:
    """Return the part of each dimension that a region has."""
    if region is None:
        return {}
    given: Any = dict.fromkeys(data.dims, "auto") if region == "auto" else region
    if not isinstance(given, Mapping):
        raise UsageTypeError("region: expected 'auto', or slices by dimension")
    parts = {}
    for dim, part in given.items():
        by_values = False
        size: Any = stored.sizes.get(dim)
        wrong = size is None or dim not in data.dims
        if not wrong and part == "auto":
            if {dim} <= stored.indexes.keys() & data.indexes.keys():
                known, places, by_values = stored.indexes[dim], [-1], True
                if known.is_unique:
                    with suppress(DoesNotFit):
                        index = _in_units(data.indexes[dim], known)
                        places = [*known.get_indexer(index)]
                start = int(places[0]) if places else 0
                part = slice(start, start + len(places))
                wrong = places != [*range(start, part.stop)] or start < 0
                located[dim] = part
            elif dim in located:
                part = located[dim]
            elif region == "auto":  # all items of a dimension without a coordinate
                part = slice(0, size)
        if wrong or not isinstance(part, slice) or part.step not in (None, 1):
            found = "%.200r" % (given[dim],)
            if by_values:
                found = "other values of its coordinate, or another order"
            raise UsageValueError(
                "region: expected adjacent items of the dimension '%s' of the group, "
                "found %s" % (dim, found)
            )
        parts[dim] = slice(*part.indices(size)[:2])
    return parts


def _in_units(index: Any, known: Any) -> Any:
    """Return an index of times in the unit of another one.

    Raises `DoesNotFit` if the unit can't hold them.
    """
    if index.dtype.kind not in "mM" or known.dtype.kind != index.dtype.kind:
        return index
    return type(known)(converted(index.values, known.dtype))


def _encoded_like(stored: Dataset, data: Dataset) -> Mapping[str, Variable]:
    """Return the variables of a dataset that are stored, encoded in the same way."""
    known = data.drop_encoding()
    known = known.drop_vars([n for n in data.variables if n not in stored.variables])
    given = {}
    for name, variable in known.variables.items():
        kept = {k: v for k, v in stored[name].encoding.items() if k in STORAGE}
        scales = {"scale_factor", "add_offset"} & kept.keys()
        dtype = numpy.dtype(kept.get("dtype", stored[name].dtype))
        is_whole = variable.dtype.kind in "biu"
        exact = is_whole and dtype.kind in "biu" and not scales
        if is_whole and not exact:  # xarray can't scale it, or encode a mask of NaN
            known[name] = variable.astype(float)
        if exact or _kind_of(variable)[0] not in ("f", "M", "m"):
            kept.pop("dtype", None)  # `converted` finds what would be cut off
        given[str(name)] = kept
    with warnings.catch_warnings(), numpy.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # `_fitting` compares the result
        return _encoded(known, given, checks=False)[0]


def _fitting(
    encoded: Variable, variable: Variable, stored: Variable, raw: Variable
) -> Items:
    """Return the items of an encoded variable, as the dtype that is stored.

    Raises `UsageError` if they are no longer those of the variable: only packed numbers
    and floats are rounded. `raw` is the stored variable without decoding.
    """
    items = converted(numpy.asarray(_items_of(encoded)), raw.dtype)
    # The units of bounds are attributes of another variable.
    how = raw.attrs | _codes(stored.encoding)
    # xarray takes finer units where a time would be rounded.
    units = [str(found.get("units")).split()[0] for found in (how, encoded.attrs)]
    is_time = _kind_of(variable)[0] in "mM" and "units" in encoded.attrs
    if is_time and units[0] != units[1]:
        raise DoesNotFit(
            "the values do not fit the units '%s' of the group" % how["units"]
        )
    if _may_change(raw.dtype, variable, how):
        _check_same(items, variable, how, rounds=False)
    return items
