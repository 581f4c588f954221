"""Random changes of groups, alone and several in one, compared with a model in memory.

A block of several changes reads what it has changed; a reader has the state before.
Some are made by the own paths of members, and by zarr-python.

A model of a group has its attributes and its members: groups; tables, which are columns
by name; and arrays of NumPy.
"""

from __future__ import annotations

import copy
import random
import warnings
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import pytest
from dataset.documents import assert_encoded_whole

from bloscpack import dataset
from bloscpack.exceptions import BloscpackError, UsageError


def optional(name, **options):
    """Return a module; None if it is not installed."""
    with suppress(pytest.skip.Exception):
        return pytest.importorskip(name, **options)


zarr, xarray = optional("zarr", minversion="3.1"), optional("xarray")

DTYPES = ["i4", "f8", "u1", "?", "S3", "O"]
# What a call may raise that does not fit the state, which then stays as it is.
REFUSALS = (BloscpackError, FileExistsError, KeyError, AttributeError, IndexError)


@dataclass
class Model:
    """A member: `data` is an array, or columns or members by name."""

    kind: str
    data: object
    attrs: dict[str, object] = field(default_factory=dict)


def items(rng, dtype, shape):
    """Return random items."""
    numbers = np.array([rng.randint(0, 99) for _ in range(int(np.prod(shape)))])
    if dtype == "O":  # text
        texts = np.array([*map(str, numbers), None], object)
        return texts[:-1].reshape(shape)
    return numbers.reshape(shape).astype("i8").astype(dtype)


def new_array(rng, length=None):
    shape = [rng.randint(0, 5), 2][: rng.choice([0, 1, 1, 2])]
    shape = shape if length is None else [length]
    return items(rng, rng.choice(DTYPES), tuple(shape))


def new_columns(rng):
    length = rng.randint(0, 5)
    return {name: new_array(rng, length) for name in rng.sample("pqc", 2)}


def rows_like(rng, array, length):
    dtype = "O" if array.dtype == object else array.dtype
    return items(rng, dtype, (length, *array.shape[1:]))


# Actions: each changes the group, and then the model of it


def create(rng, group, model):
    name, mode = rng.choice("abcd"), rng.choice("xw")
    kind = rng.choice(["array", "table", "group"])
    if kind == "array":
        made = Model(kind, new_array(rng), {"k": 1})
        group.create_array(name, made.data, attrs=made.attrs, mode=mode)
    elif kind == "table":
        made = Model(kind, new_columns(rng))
        group.create_table(name, made.data, mode=mode)
    else:
        made = Model(kind, {})
        group.create_group(name)
    model.data[name] = made


def create_inside(rng, group, model):
    """Create an array, and the group around it."""
    outer, name = rng.choice("abcd"), rng.choice("abcd")
    data, attrs = new_array(rng), {}
    attrs["chunked"] = chunked = bool(data.ndim) and rng.random() < 0.5
    options = {"chunks": rng.randint(1, 3)} if chunked else {}
    group.create_array(outer + "/" + name, data, attrs=attrs, **options)
    inner = model.data.setdefault(outer, Model("group", {}))
    inner.data[name] = Model("array", data, attrs)


def assign_member(rng, group, model):
    name, data = rng.choice("abcd"), new_array(rng)
    if rng.random() < 0.3:
        data = new_columns(rng)
    group[name] = data
    model.data[name] = Model("table" if isinstance(data, dict) else "array", data)


def remove(rng, group, model):
    name = rng.choice("abcd")
    del group[name]
    del model.data[name]


def append(rng, group, model):
    name, count = rng.choice("abcd"), rng.randint(0, 3)
    member = model.data[name]
    if member.kind == "array":
        rows = rows_like(rng, member.data, count)
        group[name].append(rows)
        member.data = np.concatenate([member.data, rows])
    else:
        rows = {n: rows_like(rng, found, count) for n, found in member.data.items()}
        group[name].append(rows)
        for column in rows:
            old = member.data[column]
            member.data[column] = np.concatenate([old, rows[column]])


def assign_items(rng, group, model):
    name = rng.choice("abcd")
    member, opened = model.data[name], group[name]
    column = None if member.kind == "array" else rng.choice([*member.data])
    data = (member.data if column is None else member.data[column]).copy()
    part = ()
    if data.ndim:
        start = rng.randint(0, len(data))
        part = slice(start, rng.randint(start, len(data)))
        data[part] = rows_like(rng, data, part.stop - start)
    else:
        data = items(rng, "O" if data.dtype == object else data.dtype, ())
    (opened if column is None else opened[column])[part] = data[part]
    if column is None:
        member.data = data
    else:
        member.data[column] = data


def resize(rng, group, model):
    name, length = rng.choice("abcd"), rng.randint(0, 6)
    member = model.data[name]
    group[name].resize(length)
    if member.kind == "array":
        member.data = resized(member.data, length)
    else:
        member.data = {n: resized(data, length) for n, data in member.data.items()}


def resized(array, length):
    fill = "" if array.dtype.kind in "SO" else 0
    new = np.full((length, *array.shape[1:]), fill, array.dtype)
    kept = min(length, len(array))
    new[:kept] = array[:kept]
    return new


def add_column(rng, group, model):
    name, column = rng.choice("abcd"), rng.choice("pqrc")
    member = model.data[name]
    if member.kind != "table":
        return
    data = new_array(rng, len(next(iter(member.data.values()))))
    group[name].add_column(column, data)
    member.data[column] = data


def remove_column(rng, group, model):
    name, column = rng.choice("abcd"), rng.choice("pqc")
    group[name].remove_column(column)
    del model.data[name].data[column]


def rename(rng, group, model):
    name, (old, new) = rng.choice("abcd"), rng.sample("pqrs", 2)
    group[name].rename({old: new})
    columns = model.data[name].data
    renamed = {new if n == old else n: data for n, data in columns.items()}
    model.data[name].data = renamed


def set_attribute(rng, group, model):
    name, key = rng.choice(["", *"abcd"]), rng.choice("vw")
    value = rng.randint(0, 99)
    (group[name] if name else group).attrs[key] = value
    (model.data[name] if name else model).attrs[key] = value


ACTIONS = [
    *(create, create_inside, assign_member, remove, append, append, assign_items),
    resize,
    *(add_column, remove_column, rename, set_attribute),
]


def act(rng, group, model):
    """Change the group, or one inside of it."""
    inner = [name for name, found in model.data.items() if found.kind == "group"]
    while inner and rng.random() < 0.4:
        name = rng.choice(inner)
        group, model = group[name], model.data[name]
        inner = [name for name, found in model.data.items() if found.kind == "group"]
    rng.choice(ACTIONS)(rng, group, model)


def change(rng, group, model):
    """Return the model after a change; a refused one leaves all as it is."""
    trial = copy.deepcopy(model)
    with suppress(*REFUSALS):
        if rng.random() < 0.6:
            act(rng, group, trial)
        else:
            with group.change():
                for _ in range(rng.randint(1, 6)):
                    with suppress(*REFUSALS if rng.random() < 0.5 else ()):
                        act(rng, group, trial)
                        if rng.random() < 0.5:
                            assert expected(trial) == content(group)
                assert expected(model) == content(dataset.open(group.path))
        return trial
    return model


def content(node):
    """Return what is stored, in the form of `expected`."""
    if isinstance(node, dataset.Group):
        return "group", node.attrs.asdict(), {n: content(node[n]) for n in node}
    if isinstance(node, dataset.Table):
        columns = [(name, shown(node[name][:])) for name in node.names]
        return "table", node.attrs.asdict(), columns
    return "array", node.attrs.asdict(), shown(node[...])


def expected(model):
    if model.kind == "group":
        members = {name: expected(found) for name, found in model.data.items()}
        return "group", model.attrs, members
    if model.kind == "table":
        columns = [(name, shown(data)) for name, data in model.data.items()]
        return "table", model.attrs, columns
    return "array", model.attrs, shown(model.data)


def shown(array):
    array = np.asarray(array)
    kind = "text" if array.dtype.kind in "OT" else str(array.dtype)
    return kind, array.shape, array.tolist()


def use_own_path(rng, path, model):
    """Change a member that is opened by its own path."""
    name = rng.choice([*model.data])
    member = model.data[name]
    with suppress(UsageError), dataset.open(path + "/" + name, "r+") as opened:
        opened.attrs["own"] = member.attrs["own"] = rng.randint(0, 99)
        if member.kind == "array" and member.data.ndim:
            rows = rows_like(rng, member.data, 2)
            opened.append(rows)
            member.data = np.concatenate([member.data, rows])


def use_zarr(rng, path, model):
    """Change an array, and perhaps its document, by zarr-python."""
    arrays = [name for name, found in model.data.items() if found.kind == "array"]
    name = rng.choice([None, *arrays])
    if zarr is None or path.startswith("memory:") or name is None:
        return
    member = model.data[name]
    if member.data.ndim and member.data.dtype != object:
        opened = zarr.open_array(path + "/" + name, mode="r+", zarr_format=3)
        member.data = rows_like(rng, member.data, len(member.data))
        opened[:] = member.data
        if rng.random() < 0.5:
            rows = rows_like(rng, member.data, 2)
            opened.append(rows)
            member.data = np.concatenate([member.data, rows])
        if rng.random() < 0.5:
            opened.attrs["by"] = member.attrs["by"] = "zarr"


def assert_stored(path, model):
    """Compare a member opened by its own path, and those inside of it."""
    assert expected(model) == content(dataset.open(path))
    for name, member in model.data.items() if model.kind == "group" else ():
        assert_stored(path + "/" + name, member)


def new_group(rng, path):
    """Return a new group and its model."""
    kind = rng.choice(["plain", "united", "united", "xarray"])
    if kind == "xarray" and xarray is not None:
        rows = [rng.randint(0, 99) for _ in range(3)]
        arrays = {"a": ("x", rows), "b": (("x", "y"), [[1, 2]] * 3)}
        group = dataset.from_xarray(path, xarray.Dataset(arrays))
        members = {n: Model("array", group[n][:], dict(group[n].attrs)) for n in "ab"}
        return group, Model("group", members)
    group = dataset.create_group(path)
    if kind == "united":
        with group.change():
            pass
    return group, Model("group", {})


def assert_intact(path):
    """Arrays with a dimension in common may have got different lengths."""
    found = dataset.verify(path).findings
    assert {each.kind for each in found if each.severity == "error"} <= {"lengths"}


def run(seed, path):
    rng = random.Random(seed)
    group, model = new_group(rng, path)
    for _ in range(25):
        model = change(rng, group, model)
        assert expected(model) == content(group)
        assert expected(model) == content(dataset.open(path))
        assert_encoded_whole(path)
        if rng.random() < 0.2:
            group.close()
            assert_intact(path)
            if model.data:
                rng.choice([use_own_path, use_zarr])(rng, path, model)
                assert_intact(path)
                assert_stored(path, model)
                use_own_path(rng, path, model)
            group = dataset.open(path, "r+")
            assert expected(model) == content(group)
    group.close()
    assert_intact(path)
    assert expected(model) == content(dataset.open(path))


@pytest.mark.full
@pytest.mark.parametrize(
    "seeds", [range(5), pytest.param(range(5, 120), marks=pytest.mark.slow)], ids=str
)
@pytest.mark.parametrize("store", ["folder", "memory"])
def test_random_changes(seeds, store, tmp_path):
    if store == "memory":
        pytest.importorskip("fsspec")
    for seed in seeds:
        root = str(tmp_path) if store == "folder" else "memory://test_group_model"
        with warnings.catch_warnings():
            # A trial that is refused may compute with what is not there.
            warnings.simplefilter("ignore", RuntimeWarning)
            # zarr-python has no specification of types such as bytes.
            warnings.simplefilter("ignore", FutureWarning)
            run(seed, "%s/%d" % (root, seed))
