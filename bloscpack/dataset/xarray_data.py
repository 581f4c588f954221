"""Datasets of xarray as groups: `from_xarray`.

Strategy: each variable becomes an array, as `xarray_values` encodes it, and its
dimensions the names of the axes. Numbers with the same dimensions get the same chunks,
so that a part of all is in the same chunks of each. The attributes are those that
xarray writes to groups of Zarr: each reads what the other writes. The backend of xarray
reads a group (`integrations.xarray_backend`). A change of a group is planned as a
whole, without any writing (`plan`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext, suppress
from functools import partial
from inspect import signature
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy

from .._commit.change import Change
from .._compat import import_extra
from .._engine.contexts import on_error
from .._format.dtypes import Array as Items
from .._format.zarr_metadata import COLUMN_ORDER, MASK, encode_mask, with_mask
from .._storage.paths import is_url, local_path, taken_error
from .._types import JsonObject, Path, StorageOptions
from ..args import known_settings
from ..exceptions import DoesNotFit, StorageError, UsageTypeError, UsageValueError
from .columns import naming_column
from .commit_rules import building, check_new_path, new_dataset
from .dask_write import from_dask
from .folder import Folder, check_member_name
from .group import Group, open_node
from .items import converted
from .labels import STRUCTURE
from .layouts import detect
from .layouts.base import NewArray, NewItems
from .layouts.chunk_choice import new_grid
from .layouts.zarr import SETTINGS, ZarrGroup
from .node import import_dask
from .opening import Options, new_array
from .xarray_values import (
    TEXT_KINDS,
    decode_like,
    encode,
    encode_like,
    fitting_items,
    items_of_variable,
    kind_of,
    without_extensions,
)

if TYPE_CHECKING:
    from xarray import DataArray, Dataset, DataTree, Variable

# The part of a group that changes, by dimensions; and the argument `region`.
Parts = dict[Any, slice]
Region = Mapping[str, slice | str] | str | None
# Options of `create_array` by the names of variables; a name, items and its options.
Given = dict[str, dict[str, Any]]
Named = tuple[str, Any, dict[str, Any]]
# The variables that are added to a group, and the steps that change others.
Plan = tuple[list[str], "list[Step]"]

# The name of the variable of a `DataArray` without one.
DEFAULT_NAME = "data"
# An attribute of a group: the dimensions that netCDF lets grow.
UNLIMITED = "unlimited_dims"
# An attribute of a group: the coordinates that no variable names.
COORDINATES = "coordinates"
# What joins the names of groups.
JOIN = "{}/{}".format
# The modes of `from_xarray`.
MODES = ("x", "w", "a")


def from_xarray(
    path: Path,
    data: Dataset | DataArray | DataTree,
    *,
    encoding: Mapping[str, Mapping[str, Any]] | None = None,
    mode: str = "x",
    group: str | None = None,
    append_dim: str | None = None,
    region: Region = None,
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
        it lacks, new values in the others, which keep their shapes, and the attributes
        of `data`, as with `append_dim`.
    group
        The path of the group inside of that at `path` which is written, and returned;
        both are created if needed. `mode` is about this group; ``'w'`` removes it, with
        all inside of it, in a commit before that of the new one.
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
        with on_error(whole.close):
            if not isinstance(whole, Group):
                raise UsageTypeError("'%s' is no group" % whole.path)
            if mode != "a" and not changes:
                if where in whole and mode == "x":
                    name = os.path.join(whole.path, where)
                    raise taken_error(name)
                computed = {name: node.compute() for name, node in nodes.items()}
                new = _all_encoded(computed, given)
                if where in whole:
                    del whole[where]
                with whole.change():
                    _add_nodes(whole, new, settings)
            else:
                _change(whole, nodes, given, settings, append_dim, region)
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
) -> tuple[dict[str, Dataset], dict[str, Given]]:
    """Return datasets by the paths of their groups, and the encodings of each.

    Raises `UsageError` for an encoding of an unknown group or variable.
    """
    xarray = import_extra("xarray", "xarray")
    nodes, by_path = {"": data}, {"": encoding or {}}
    if isinstance(data, xarray.DataTree):
        nodes = {n.path.strip("/"): n.to_dataset(inherit=False) for n in data.subtree}
        by_path = {key.strip("/"): parts for key, parts in (encoding or {}).items()}
        if unknown := by_path.keys() - nodes.keys():
            raise UsageValueError("encoding: there is no group '%s'" % min(unknown))
    parts, given = {}, dict[str, Given]()
    for name, node in nodes.items():
        if isinstance(node, xarray.DataArray):
            node = node.to_dataset(name=node.name or DEFAULT_NAME)
        if not isinstance(node, xarray.Dataset):
            raise UsageTypeError(
                "expected a Dataset or a DataArray of xarray, or a DataTree, found '%s'"
                % type(node).__name__
            )
        path = "/".join(filter(None, (where, name)))
        parts[path] = without_extensions(node)
        given[path] = {n: dict(each) for n, each in by_path.get(name, {}).items()}
        if unknown := given[path].keys() - node.variables.keys():
            raise UsageValueError("encoding: there is no variable '%s'" % min(unknown))
    return parts, given


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
    given: Given


def _all_encoded(
    nodes: Mapping[str, Dataset], given: Mapping[str, dict[str, dict[str, Any]]]
) -> dict[str, Encoded]:
    """Return datasets encoded, by the paths of their groups."""
    encoded = {}
    for where, node in nodes.items():
        options = {name: dict(settings) for name, settings in given[where].items()}
        variables, attrs = encode(node, options)
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
    check_new_path(path)
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
) -> list[Named]:
    """Write groups that are new; return the variables of Dask, see `_write_from_dask`.

    `start` is the path of the outermost group, with a slash; or it is empty.
    """
    late: list[Named] = []
    outer = {n for where in nodes for n in accumulate(where.split("/"), JOIN)}
    for where in sorted({"", *outer}):
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


def _write_from_dask(whole: Folder, variables: Iterable[Named], sync: bool) -> None:
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


def _arrays_of(
    variables: Mapping[str, Variable], given: Given, settings: Mapping[str, object]
) -> Iterator[Named]:
    """Yield name and items of each encoded variable, and options of `create_array`."""
    widest: dict[Any, int] = {}  # the item size of numbers, by dimensions
    for variable in variables.values():
        if variable.dtype.kind not in TEXT_KINDS:
            size = variable.dtype.itemsize
            widest[variable.dims] = max(size, widest.get(variable.dims, 0))
    for name, variable in variables.items():
        with naming_column(name, "variable"):
            check_member_name("variable", name)
            items: Any = items_of_variable(variable)
            attrs = _without_structure(variable.attrs)
            fill = numpy.nan if items.dtype.kind in "fc" else None
            if attrs.get(MASK) is not None:
                fill = numpy.asarray(attrs[MASK]).ravel()[0].astype(items.dtype)
                attrs = with_mask(attrs, items.dtype, encode_mask, "c")
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
    region: Region,
) -> None:
    """Write datasets to the groups of these paths in a group, in one change."""
    nodes = {where: node.compute() for where, node in nodes.items()}
    there = {where: nodes[where] for where in nodes if where in whole or not where}
    if there != nodes and (append_dim is not None or region is not None):
        raise UsageValueError(
            "append_dim and region change groups that exist, and there is no '%s'"
            % min(nodes.keys() - there.keys())
        )
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
        # Another writer may have changed a member until now.
        again = _plans(whole, there, append_dim, region)
        if [a for a, _ in again.values()] != [a for a, _ in plans.values()]:
            raise StorageError(
                errno.EAGAIN, "another program has added a variable", whole.path
            )
        plans = again
        _add_nodes(whole, created, settings)
        for where, (added, steps) in plans.items():
            group = whole[where] if where else whole
            attrs = _without_structure(there[where].attrs)
            if region is None and attrs:
                structure = UNLIMITED, COORDINATES
                group.attrs.update({n: attrs[n] for n in attrs if n not in structure})
            if where in more:
                node = more[where]
                variables = {name: node.variables[name] for name in added}
                for name, array, options in _arrays_of(variables, node.given, settings):
                    with naming_column(name, "variable"):
                        group.create_array(name, array, **options)
                before = str(group.attrs.get(COORDINATES, "")).split()
                others = str(node.attrs.get(COORDINATES, "")).split()
                if others := [name for name in others if name in variables]:
                    group.attrs[COORDINATES] = " ".join([*before, *others])
            for name, items, axis, key in steps:
                with naming_column(name, "variable"):
                    if axis is None:
                        group[name][key] = items
                    else:
                        group[name].append(items, axis=axis)


def _add_nodes(
    whole: Group, nodes: Mapping[str, Encoded], settings: Mapping[str, object]
) -> None:
    """Add groups to one that commits its members, each with all that is in it."""
    new: dict[str, dict[str, Encoded]] = {}
    for where, node in nodes.items():
        outer = [*accumulate(where.split("/"), JOIN)]
        first = next(name for name in outer if name not in whole)
        new.setdefault(first, {})[where[len(first) + 1 :]] = node
    for first, inner in new.items():
        around, _, last = first.rpartition("/")
        group: Any = whole[around] if around else whole
        group._add(last, "zarr", "x", partial(_write, nodes=inner, settings=settings))


def _plans(
    whole: Group, nodes: Mapping[str, Dataset], append_dim: str | None, region: Region
) -> dict[str, Plan]:
    """Return what `plan` does for each group.

    In a tree, some groups may lack dimensions that change.
    """
    wanted = {append_dim} if append_dim is not None else set()
    wanted |= {*region} if isinstance(region, Mapping) else set()
    plans, located = {}, dict[str, Parts]()
    for where, node in nodes.items():
        dim, part = append_dim, region
        if len(nodes) > 1 and not wanted - {d for n in nodes.values() for d in n.dims}:
            dim = dim if dim in node.dims else None
            if isinstance(region, Mapping):
                part = {d: indexer for d, indexer in region.items() if d in node.dims}
            elif append_dim is not None and dim is None:
                part = {}  # nothing changes
        group: Any = whole[where] if where else whole
        if not isinstance(group, Group):
            raise UsageTypeError("'%s' is no group" % group.path)
        located[where] = {**located.get(where.rpartition("/")[0], {})}
        plans[where] = plan(group, node, dim, part, located[where])
    return plans


def plan(
    group: Group, data: Dataset, append_dim: str | None, region: Region, located: Parts
) -> Plan:
    """Return the variables that a group lacks, and what becomes of the others.

    `located` has the parts of dimensions that the group around it has found by their
    coordinates, and gets those of this group. Raises `UsageError` if any does not fit.
    """
    stored: Dataset = group.to_xarray(decode_cf=False)
    decoded = decode_like(stored, data)
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
    encoded = encode_like(decoded, data)
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
            if variable.dims != old.dims or kind_of(variable)[1] != kind_of(old)[1]:
                raise DoesNotFit(
                    "expected %s with the dimensions %s, found %s with %s"
                    % (kind_of(old)[1], old.dims, kind_of(variable)[1], variable.dims)
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
                items = converted(numpy.asarray(items_of_variable(variable)), raw.dtype)
            else:
                items = fitting_items(encoded[str(name)], variable, old, raw)
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


def _located(stored: Dataset, data: Dataset, region: Region, located: Parts) -> Parts:
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
            fault = "%.200r" % (given[dim],)
            if by_values:
                fault = "other values of its coordinate, or another order"
                for where, index in ("group", known), ("new data", data.indexes[dim]):
                    if not index.is_unique:
                        twice = index[index.duplicated()][0]
                        fault = "the value '%.200s' of its coordinate twice in the %s"
                        fault %= twice, where
            raise UsageValueError(
                "region: expected adjacent items of the dimension '%s' of the group, "
                "found %s" % (dim, fault)
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
