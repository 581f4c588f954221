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
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy

from .._compat import import_extra
from .._format.dtypes import Array as Items
from .._format.zarr_metadata import MASK
from .._storage.paths import is_url, local_path
from .._types import JsonObject, Path, StorageOptions
from ..exceptions import DoesNotFit, StorageError, UsageTypeError, UsageValueError
from .commit_rules import building, new_dataset
from .dask_write import from_dask
from .folder import BAD_NAME, Folder, is_member_name
from .group import Group, open_node
from .labels import STRUCTURE
from .layouts import detect
from .layouts.base import NewArray, NewItems
from .layouts.chunk_choice import new_grid
from .layouts.zarr import COLUMN_ORDER, ZarrGroup
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
# How xarray stores the values of a variable.
STORAGE = {
    *("dtype", "units", "calendar", "scale_factor", "add_offset", "_Unsigned"),
    *(MASK, "missing_value"),
}
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
# Maximum error in nanoseconds of a time that a variable of floats holds.
MAX_ERROR = 1e6


def from_xarray(
    path: Path,
    data: Dataset | DataArray | DataTree,
    *,
    encoding: Mapping[str, Mapping[str, Any]] | None = None,
    mode: str = "x",
    append_dim: str | None = None,
    region: Mapping[str, slice | str] | str | None = None,
    sync: bool = True,
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
        time that the encoding can't hold is refused, unless it is of Dask.
    mode
        As in `create_array`. With ``'a'``, a group that exists gets the variables that
        it lacks, and new values in the others, which keep their shapes.
    append_dim
        The dimension along which variables are appended to those of the group.
    region
        The part of the group that gets the values: a slice for each dimension, or
        ``'auto'`` where the values of the coordinates tell; or ``'auto'`` for all.
    sync, storage_options
        As in `create_array`.
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
    xarray = import_extra("xarray", "xarray")
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
    if mode == "a" or changes:
        found = None
        with nullcontext() if changes else suppress(FileNotFoundError):
            found = detect(Folder.open(path, storage_options))
        if found is not None:
            if not isinstance(data, (xarray.Dataset, xarray.DataArray)):
                raise UsageTypeError(
                    "expected a Dataset or a DataArray of xarray to change a group, "
                    "found '%s'" % type(data).__name__
                )
            with_name = _dataset_of(data)
            given = _checked_encoding(encoding, with_name)
            return _change(
                open_node(found, Options(sync=sync, writable=True)),
                with_name,
                given,
                settings,
                append_dim,
                region,
            )
        mode = "x"
    if isinstance(data, xarray.DataTree):
        nodes = {n.path.strip("/"): n.to_dataset(inherit=False) for n in data.subtree}
        by_path = {key.strip("/"): found for key, found in (encoding or {}).items()}
        if unknown := by_path.keys() - nodes.keys():
            raise UsageValueError("encoding: there is no group '%s'" % min(unknown))
    else:
        nodes, by_path = {"": _dataset_of(data)}, {"": encoding or {}}
    new = {}
    for where, node in nodes.items():
        given = _checked_encoding(by_path.get(where), node)
        new[where] = (*_encoded(node, given), given)
        unlimited = {*node.encoding.get("unlimited_dims", ())} & {*node.dims}
        if unlimited:
            new[where][1][UNLIMITED] = sorted(unlimited)
    is_remote = is_url(path)
    opened = nullcontext(path) if is_remote else building(path, mode, sync)
    late = []
    dasks = any(v.chunks for variables, *_ in new.values() for v in variables.values())
    with opened as target:
        new_group = new_dataset(
            target, "zarr", mode, sync and is_remote, storage_options
        )
        with new_group as change:
            for where, (variables, attrs, given) in new.items():
                prefix = where + "/" if where else ""
                attrs = _without_structure(attrs)
                ZarrGroup.create(change, attrs, prefix, commits=not where and not dasks)
                for name, items, options in _arrays_of(variables, given, settings):
                    if getattr(items, "chunks", None) and items.ndim and items.size:
                        late.append((prefix + name, items.data, options))
                        continue
                    with naming_column(name, "variable"):
                        layout, array, blocks = new_array(name, items, **options)
                        layout.create(change, prefix + name + "/", array, blocks)
        if late:
            whole = Folder.open(target, storage_options)
            _write_from_dask(whole, late, sync and is_remote)
    written = open_node(
        detect(Folder.open(path, storage_options)), Options(sync=sync, writable=True)
    )
    assert isinstance(written, Group)
    return written


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
    attrs, plain = dict(attrs), variables
    try:
        variables, attrs = conventions.cf_encoder(plain, attrs)
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        note = "".join(getattr(error, "__notes__", ())).partition(" with value")[0]
        raise UsageValueError(
            "xarray can't encode the dataset: %s: %s (%s)"
            % (type(error).__name__, error, note)
        ) from error
    for name, variable in variables.items():
        original = data.variables[name]
        if original.dtype.kind == "m" and "dtype" in variable.attrs:
            variable.attrs["dtype"] = str(original.dtype)
        if original.dtype == bool:  # netCDF has no booleans, Zarr has
            variables[name] = variable.astype(bool)
            variables[name].attrs.pop("dtype", None)
        elif checks:
            with naming_column(str(name), "variable"):
                if _kind_of(original)[0] in "mM" and not variable.chunks:
                    how = plain[name].encoding | variable.attrs
                    if calendar := _calendar_of(original):  # bounds do not state it
                        how.setdefault("calendar", calendar)
                    like = type(variable)((), 0, encoding=how)
                    _fitting(variable, original, like, variable)
                elif variable.chunks:
                    variables[name] = _checked_later(variable, original, str(name))
                else:
                    _check_encoded(variable, original)
    return variables, attrs


def _check_encoded(encoded: Variable, variable: Variable) -> None:
    """Raise `UsageError` if a dtype of the caller can't hold the numbers or the text.

    Floats are rounded, to the nearest step of packed numbers.
    """
    if not _may_change(encoded, variable):
        return
    if not variable.ndim:
        _check_held(encoded, variable)
        return
    count = len(variable)
    step = max(1, READ_NBYTES * count // max(1, variable.nbytes))
    for start in range(0, count, step):
        part = slice(start, start + step)
        _check_held(encoded[part], variable[part])


def _checked_later(encoded: Variable, variable: Variable, name: str) -> Variable:
    """Return an encoded variable of Dask, whose numbers are checked when computed."""
    if not _may_change(encoded, variable):
        return encoded

    def checked(numbers: Items, given: Items) -> Items:
        make, dims = type(encoded), encoded.dims
        with naming_column(name, "variable"):
            _check_held(make(dims, numbers, attrs), make(dims, given))
        return numbers

    attrs, data = encoded.attrs, encoded.data
    blocks = import_dask("dask.array").map_blocks(
        checked, data, variable.data, dtype=data.dtype, meta=data._meta
    )
    return encoded.copy(data=blocks)


def _may_change(encoded: Variable, variable: Variable) -> bool:
    """Return whether a dtype of the caller may be unable to hold the items."""
    found, wanted = variable.dtype, encoded.dtype
    kinds = {found.kind, wanted.kind}
    is_text = kinds in ({"U"}, {"S"}) and encoded.dims == variable.dims
    return found != wanted and (is_text or kinds <= {*"iufc"})


def _check_held(encoded: Variable, variable: Variable) -> None:
    kinds = variable.dtype.kind + encoded.dtype.kind
    if kinds in ("UU", "SS"):
        given, again = variable.values, encoded.values
        _refuse_changed(given, given == again, encoded.dtype)
    elif "c" in kinds:
        given, again = variable.values, encoded.values
        fits = numpy.isfinite(again) | ~numpy.isfinite(given)
        if kinds[1] != "c":
            fits &= given.imag == 0
        if kinds[1] in "iu":
            fits &= given == again
        _refuse_changed(given, fits, encoded.dtype)
    else:
        _check_real(encoded, variable)


def _refuse_changed(given: Items, fits: Items, wanted: Any) -> None:
    """Raise `DoesNotFit` for the first value that is not the same any more."""
    if not fits.all():
        value = given[~fits].flat[0]
        raise DoesNotFit("the value %s does not fit the dtype '%s'" % (value, wanted))


def _check_real(encoded: Variable, variable: Variable) -> None:
    conventions = import_extra("xarray.conventions", "xarray")
    again = conventions.decode_cf_variable(
        "", encoded, decode_times=False, decode_timedelta=False
    ).values
    given, wanted = variable.values, encoded.dtype
    with numpy.errstate(all="ignore"):
        wide, stated = given.astype(float), again.astype(float)
        errors = numpy.where(wide == stated, 0, abs(wide - stated))
    limit: Any = 0
    if wanted.kind == "f":
        limit = numpy.finfo(float).max
    elif given.dtype.kind == "f" or {"scale_factor", "add_offset"} & {*encoded.attrs}:
        limit = _packing_error(encoded.attrs, given, again)
    fits = numpy.isnan(stated) | (errors <= limit)  # or the caller calls it missing
    _refuse_changed(given, fits, wanted)


def _packing_error(attrs: Mapping[Any, Any], given: Items, again: Items) -> Items:
    """Return the errors that packed numbers may have: half a step, and of the floats.

    `again` has the numbers after decoding.
    """
    step, offset = attrs.get("scale_factor", 1), attrs.get("add_offset", 0)
    eps = max(numpy.finfo(a.dtype).eps for a in (given, again) if a.dtype.kind == "f")
    sizes = abs(again.astype(float)) + abs(float(offset))
    errors: Items = abs(float(step)) / 2 * (1 + 1e-6) + 4 * eps * sizes
    return errors


def _choose_units(variables: dict[Any, Variable]) -> None:
    """Set units of times and durations that have none, which hold later ones, too.

    Each item is a whole number of them. The bounds of times get the same units. Items
    of Dask are left to xarray, which gives them microseconds.
    """
    # Those with bounds come first.
    for variable in sorted(variables.values(), key=lambda v: "bounds" not in v.attrs):
        kind = _kind_of(variable)[0]
        bounds = variables.get(variable.attrs.get("bounds"), variable)
        both = [v for v in (variable, bounds) if _kind_of(v)[0] == kind]
        if kind in "mM" and not any(v.chunks for v in both):
            units = (
                name
                for name, unit in UNITS.items()
                if all(_is_whole(v.values, unit) for v in both)
            )
            chosen = next(units, "nanoseconds")
            given = {"units": chosen + " since 1970-01-01" * (kind == "M")}
            given |= variable.attrs | variable.encoding
            for found in both:
                if "units" not in found.attrs:
                    found.encoding.setdefault("units", given["units"])
    for name, variable in variables.items():
        # xarray makes NaT of items whose dtype is coarser than their units.
        unit = UNITS.get(str(variable.encoding.get("units")).partition(" ")[0])
        if variable.dtype.kind in "mM" and unit:
            finer = "%s8[%s]" % (variable.dtype.kind, unit)
            cast = variable.data.astype(numpy.promote_types(variable.dtype, finer))
            back = cast.astype(variable.dtype)
            if variable.chunks or numpy.array_equal(back, variable.data, True):
                variables[name] = variable.copy(data=cast)


def _is_whole(times: Any, unit: str) -> bool:
    """Return whether times are whole numbers of a unit."""
    if times.dtype.kind == "O":  # of cftime, with microseconds
        step = {"s": 10**6, "ms": 10**3}.get(unit, 1)
        return not any(getattr(t, "microsecond", 0) % step for t in times.flat)
    cut = times.astype("%s8[%s]" % (times.dtype.kind, unit))
    return bool(((cut == times) | numpy.isnat(times)).all())


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
            if not is_member_name(name):
                raise UsageValueError(BAD_NAME % ("variable", name))
            items: Any = _items_of(variable)
            attrs = _without_structure(variable.attrs)
            fill = numpy.nan if items.dtype.kind in "fc" else None
            if attrs.get(MASK) is not None:
                fill = numpy.asarray(attrs[MASK]).ravel()[0].astype(items.dtype)
            options = {"fill_value": NewItems(fill), **settings, **given.get(name, {})}
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
    group: Any,
    data: Dataset,
    encoding: Mapping[str, dict[str, Any]],
    settings: Mapping[str, object],
    append_dim: str | None,
    region: Mapping[str, slice | str] | str | None,
) -> Group:
    """Write variables to a group, and return it; it is closed if this fails."""
    try:
        if not isinstance(group, Group):
            raise UsageTypeError("'%s' is no group" % group.path)
        data = data.compute()  # all chunks of Dask at once
        is_locked = group.commits_members
        added, steps = plan(group, data, append_dim, region)
        if refused := encoding.keys() - {*added}:
            raise UsageValueError(
                "encoding: the variable '%s' is stored as it is" % min(refused)
            )
        given = {name: dict(found) for name, found in encoding.items()}
        variables, attrs = _encoded(data, given) if added else ({}, {})
        new = {name: variables[name] for name in added}
        before = str(group.attrs.get(COORDINATES, "")).split()
        others = [n for n in attrs.get(COORDINATES, "").split() if n in new]
        with group.change():
            if not is_locked:  # another writer may have changed a member until now
                again, steps = plan(group, data, append_dim, region)
                if again != added:
                    raise StorageError(
                        errno.EAGAIN, "another program has added a variable", group.path
                    )
            for name, array, options in _arrays_of(new, given, settings):
                with naming_column(name, "variable"):
                    group.create_array(name, array, **options)
            if others:
                group.attrs[COORDINATES] = " ".join([*before, *others])
            for name, items, axis, key in steps:
                with naming_column(name, "variable"):
                    if axis is None:
                        group[name][key] = items
                    else:
                        group[name].append(items, axis=axis)
    except BaseException:
        group.close()
        raise
    changed: Group = group
    return changed


def plan(
    group: Group,
    data: Dataset,
    append_dim: str | None,
    region: Mapping[str, slice | str] | str | None,
) -> tuple[list[str], list[Step]]:
    """Return the variables that a group lacks, and what becomes of the others.

    Raises `UsageError` if any does not fit.
    """
    stored: Dataset = group.to_xarray(decode_cf=False)
    decoded = _decoded(stored, data)
    parts = _located(decoded, data, region)
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
    how: Any = True
    if hasattr(xarray, "coders"):
        coder = xarray.coders.CFDatetimeCoder
        numpy_coder = coder(time_unit="s")  # or finer, if needed
        coders = {
            name: numpy_coder if found.dtype.kind == "M" else coder(use_cftime=True)
            for name, found in data.variables.items()
            if _kind_of(found)[0] == "M"
        }
        how = coders or True  # with an empty dictionary, bounds would stay numbers
    found: Dataset = xarray.decode_cf(stored, concat_characters=False, decode_times=how)
    return found


def _located(
    stored: Dataset, data: Dataset, region: Mapping[str, slice | str] | str | None
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
                with suppress(ValueError):  # times that do not fit the same unit
                    if known.is_unique:
                        places = [*known.get_indexer(data.indexes[dim])]
                start = int(places[0]) if places else 0
                part = slice(start, start + len(places))
                wrong = places != [*range(start, part.stop)] or start < 0
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
    xarray = import_extra("xarray", "xarray")
    items = converted(numpy.asarray(_items_of(encoded)), raw.dtype)
    kind = _kind_of(variable)[0]
    if kind not in ("M", "m", "f"):
        return items
    # Those of bounds are attributes of another variable.
    how = {key: stored.encoding[key] for key in STORAGE & stored.encoding.keys()}
    how.pop("dtype", None)
    wrong = DoesNotFit(
        "the values do not fit how the group stores it: as '%s', with %s"
        % (raw.dtype, how)
    )
    # xarray takes finer units where a time would be rounded.
    units = [str(found.get("units")).split()[0] for found in (how, encoded.attrs)]
    if kind != "f" and "units" in encoded.attrs and units[0] != units[1]:
        raise wrong
    attrs = {**raw.attrs, **how}
    given = variable.values
    times: Any = True
    if given.dtype.kind == "M" and hasattr(xarray, "coders"):
        # Far times of another unit would become those of cftime.
        times = xarray.coders.CFDatetimeCoder(
            time_unit=numpy.datetime_data(given.dtype)[0]
        )
    elif given.dtype.kind == "O" and hasattr(xarray, "coders"):
        times = xarray.coders.CFDatetimeCoder(use_cftime=True)  # of any calendar
    again = xarray.conventions.decode_cf_variable(
        "", type(raw)(raw.dims, items, attrs), decode_times=times
    ).values
    missing = [numpy.asarray(found != found) for found in (given, again)]
    is_whole = raw.dtype.kind in "iu"
    kept = ~(missing[0] | missing[1])
    limit: Any = 0 if is_whole or kind == "f" else MAX_ERROR
    if kind == "f":
        kept &= is_whole | ~numpy.isfinite(again.astype(float))
        wide, stated = (found[kept].astype(float) for found in (given, again))
        with numpy.errstate(invalid="ignore"):
            errors = numpy.where(wide == stated, 0, abs(wide - stated))
        if "scale_factor" in raw.attrs:
            limit = _packing_error(raw.attrs, given, again[kept])
    else:
        errors = numpy.asarray(again - given)[kept]  # of one time, it is no array
        if errors.dtype.kind == "O":  # of cftime
            errors = errors.astype("m8[us]")
        errors = abs(errors.astype("m8[ns]").astype(float))
    if (missing[0] != missing[1]).any() or not (errors <= limit).all():
        raise wrong
    return items
