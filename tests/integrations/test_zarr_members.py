"""Nested groups after each kind of change, as zarr-python and xarray find them.

A session of nox lets other releases of zarr-python find them, too.
"""

import json
import shutil

import numpy as np
import pytest
from dataset.documents import signed_again
from integrations import zarr_members
from originals import environment_with, run

from bloscpack import dataset
from bloscpack.verify import verify

pytest.importorskip("zarr", reason="needs zarr 3.1.4", minversion="3.1.4")
xr = pytest.importorskip("xarray")
fsspec = pytest.importorskip("fsspec")
pytestmark = pytest.mark.filterwarnings("ignore:Consolidated metadata")

# Before 3.1.4, an array of Bloscpack is refused; before 3.4, the order matters.
RELEASES = ["3.1.4", "3.3.0", "3.4.2"]


def together(group):
    with group.change():
        group["b/low/x"].append([1])
        group["a/x"][0] = 9
        group.create_array("a/w", [8])
        group.create_table("b/tab", {"z": [1], "b": [2]})


def of_xarray(first, last, dim="t"):
    return xr.Dataset({"v": (dim, np.arange(first, last))}, {dim: range(first, last)})


INNER = "/d", "/c", "/d/low"
# What calls of `from_xarray` do before.
WRITTEN = {
    "a tree": (
        xr.DataTree.from_dict(
            {
                "/": of_xarray(0, 2),
                **dict.fromkeys(("/d", "/c", "/d/low"), of_xarray(0, 3, "s")),
            }
        ),
        {},
    ),
    "more rows": (of_xarray(2, 4), {"append_dim": "t"}),
    "a variable": (of_xarray(0, 4).rename(v="A"), {"mode": "a"}),
}
# What is done one after the other, in a group that commits its members.
CHANGES = {
    "create groups": lambda g: [
        g.create_group(name) for name in ("b", "a", "b/low", "a/low")
    ],
    "create an array": lambda g: g.create_array("b/x", [1, 2], dims=["b_x"]),
    "create one in another group": lambda g: g.create_array("a/x", [3], dims=["a_x"]),
    "and in the first one": lambda g: g.create_array("b/w", [5, 6], dims=["b_w"]),
    "create arrays below": lambda g: [
        g.create_array(name, [1, 2, 3]) for name in ("b/low/x", "a/low/y", "b/low/w")
    ],
    "create a group late": lambda g: g.create_group("a b"),
    "create an array in it": lambda g: g.create_array("a b/x", [1]),
    "create a table": lambda g: g.create_table("a/tab", {"k": [1, 2], "h": [3, 4]}),
    "append": lambda g: g["a/tab"].append({"k": [5], "h": [6]}),
    "append to an array": lambda g: g["b/low/x"].append([4]),
    "assign": lambda g: g["b/x"].__setitem__(0, 7),
    "change together": together,
    "add a column": lambda g: g["a/tab"].add_column("c", [7, 8, 9], position=0),
    "rename a column": lambda g: g["a/tab"].rename({"k": "renamed"}),
    "remove a column": lambda g: g["a/tab"].remove_column("h"),
    "remove an array": lambda g: g.__delitem__("b/x"),
    "create it again": lambda g: g.create_array("b/x", [1.5], dims=["b_x"]),
    "replace it": lambda g: g.create_array("b/x", [2.5, 3.5], mode="w", dims=["b_x"]),
    "remove a group": lambda g: g.__delitem__("a/low"),
    "create that again": lambda g: g.create_group("a/low"),
    "attributes of the group": lambda g: g.attrs.update(u=1),
    "attributes of an inner group": lambda g: g["a/low"].attrs.update(u=1),
    "attributes of an array": lambda g: g["b/low/x"].attrs.update(u=1),
}


def content(group, prefix=""):
    """Return what `zarr_members` returns, as Bloscpack finds it."""
    found = {}
    for name, member in group.items():
        path = prefix + name
        if isinstance(member, dataset.Array):
            found[path] = member[:].tolist()
            continue
        found[path] = None
        if isinstance(member, dataset.Table):
            columns = member.columns.items()
            found |= {"%s/%s" % (path, n): c[:].tolist() for n, c in columns}
        else:
            found |= content(member, path + "/")
    return found


def states(path, folder):
    """Make all changes; yield a copy of each state, and what Bloscpack finds in it."""
    for number, name in enumerate((*WRITTEN, *CHANGES)):
        if name in WRITTEN:
            data, options = WRITTEN[name]
            dataset.from_xarray(path, data, **options).close()
        else:
            with dataset.open(path, "r+") as group:
                CHANGES[name](group)
        state = folder / ("%02d %s" % (number, name))
        if "://" in str(path):
            fsspec.filesystem("memory").get(path, str(state), recursive=True)
        else:
            shutil.copytree(path, state)
        with dataset.open(path) as group:
            yield state, content(group)


@pytest.fixture(params=["folder", "memory"])
def made(request, tmp_path):
    """The paths of all states, and their content."""
    name = "members-%d" % id(request)
    path = tmp_path / "g" if request.param == "folder" else "memory://%s/g" % name
    folder = tmp_path / "states"
    folder.mkdir()
    yield {str(state): found for state, found in states(path, folder)}
    fsspec.filesystem("memory").store.clear()


def check(made, found):
    for path, expected in made.items():
        assert expected == found["zarr " + path], path
        assert expected == found["xarray " + path], path


def test_members_after_each_change(made, capsys):
    zarr_members.main(made)
    check(made, json.loads(capsys.readouterr().out))
    for path in made:
        assert [] == verify(path).findings, path
        with open(path + "/zarr.json") as fp:
            copies = json.load(fp)["consolidated_metadata"]["metadata"]
        assert [*copies] == sorted(copies, key=lambda name: (name.count("/"), name))


@pytest.fixture(scope="module", params=RELEASES)
def python(request):
    """A Python with another release of zarr-python."""
    probe = "import xarray, zarr; assert zarr.__version__ == %r" % request.param
    packages = ["zarr==" + request.param, "xarray"]
    name = "zarr-python " + request.param
    return environment_with(
        *(request, "releases", name, probe, packages), folder="-" + request.param
    )


def test_other_releases(python, made):
    done = run(python, "-W", "ignore", zarr_members.__file__, *made)
    assert 0 == done.returncode, done.stderr
    check(made, json.loads(done.stdout))


def unsorted(path):
    """Make a group; return its document with copies in the order of creation."""
    with dataset.create_group(path) as group:
        for name in ("b", "a"):
            group.create_group(name)
        for name in ("b/t", "a/t", "b/new"):
            group.create_array(name, [1, 2], dims=[name]).close()
        with group.change():
            group.attrs["x"] = 1
    document = json.loads((path / "zarr.json").read_bytes())
    copies = document["consolidated_metadata"]["metadata"]
    names = ("b", "a", "b/t", "a/t", "b/new")
    document["consolidated_metadata"]["metadata"] = {n: copies[n] for n in names}
    return document


@pytest.mark.parametrize(
    "change",
    [
        lambda g: g.attrs.update(x=2),
        lambda g: g["a/t"].__setitem__(0, 5),
        lambda g: g["b/new"].append([5]),
        lambda g: g["a"].attrs.update(x=2),
        lambda g: g.create_array("c", [1]),
        lambda g: g.__delitem__("a/t"),
    ],
)
def test_the_next_change_sorts_an_older_document(change, tmp_path, capsys):
    path = tmp_path / "g"
    document = unsorted(path)
    text = json.dumps(document, indent=2).encode()
    (path / "zarr.json").write_bytes(signed_again(text))
    (found,) = verify(path).findings
    assert ("error", "order", "zarr.json") == (found.severity, found.kind, found.file)
    assert "zarr-python before 3.4 does not find 'b/t'; " in found.message
    with dataset.open(path, "r+") as group:
        change(group)
        expected = content(group)
    assert [] == verify(path).findings
    zarr_members.main([str(path)])
    check({str(path): expected}, json.loads(capsys.readouterr().out))


def in_zarr(path, name):
    """Return a member as zarr-python shows it from the copy of its document."""
    zarr = pytest.importorskip("zarr")
    return zarr.open_group(path, mode="r+", use_consolidated=True)[name]


def test_the_next_change_copies_what_zarr_python_has_changed(tmp_path):
    path = tmp_path / "g"
    with dataset.create_group(path) as group:
        group.create_group("inner")
        group.create_table("tab", {"k": [1], "h": [2]})
        for name in ("x", "inner/y", "other"):
            group.create_array(name, [1, 2], dims=[name])
        with group.change():
            group.attrs["u"] = 1
    for name in ("x", "inner/y", "tab/h", "tab/k"):
        array = in_zarr(path, name)
        array.append(np.array([7]))
        array.attrs["u"] = 2
    assert (2,) == in_zarr(path, "x").shape
    with dataset.open(path, "r+") as group:
        with group.change():
            group["other"].append([3])
        assert [1, 2, 7] == group["x"][:].tolist()
        in_zarr(path, "x").append(np.array([8]))  # while the group is open
        group["other"].append([4])
    for name, expected in {"x": [1, 2, 7, 8], "inner/y": [1, 2, 7]}.items():
        array = in_zarr(path, name)
        assert (expected, 2) == (array[:].tolist(), array.attrs["u"])
        with xr.open_zarr(path, group=name.rpartition("/")[0] or None) as opened:
            assert expected == opened[name.rpartition("/")[2]].values.tolist()
    assert [2, 7] == in_zarr(path, "tab/h")[:].tolist()
    assert [] == [f for f in verify(path).findings if f.severity == "error"]


def new_dataset(kind, path, values, inside):
    """Create a dataset of a kind, which has the values in an array `inside`."""
    if kind == "array":
        dataset.create_array(path, values).close()
    elif kind == "table":
        dataset.create_table(path, {inside: values}).close()
    else:
        with dataset.create_group(path) as group:
            group.create_array(inside, values)
            if kind == "group that commits its members":
                with group.change():
                    pass


@pytest.mark.parametrize("inside", ["x", "y"])
@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize(
    "kind", ["array", "table", "group", "group that commits its members"]
)
def test_a_dataset_that_was_moved_into_the_place_of_a_member(
    kind, writes, inside, tmp_path
):
    """It commits itself, also when another program has written its document.

    No change of the group writes documents of the old member into it.
    """
    zarr = pytest.importorskip("zarr")
    path, member = tmp_path / "g", tmp_path / "g" / "m"

    def check(node):
        assert ({"b": 2} if writes else {}) == dict(node.attrs)
        items = node if kind in ("array", "table") else node[inside]
        found = items[:][inside] if kind == "table" else items[:]
        assert [1, 2, 3] == found.tolist()

    dataset.create_group(path).close()
    new_dataset(kind, member, [9], "x")
    with dataset.open(path, "r+") as group:
        group.create_array("other", [1])
        with group.change():
            pass
    new_dataset(kind, tmp_path / "new", [1, 2, 3], inside)
    shutil.rmtree(member)
    shutil.move(tmp_path / "new", member)
    if writes:
        node = zarr.open(member, mode="r+")
        node.attrs.update(b=2)
    for _ in range(2):
        check(dataset.open(path)["m"])
        check(dataset.open(member))
        if kind == "group that commits its members":
            assert [1, 2, 3] == dataset.open(member / inside)[:].tolist()
        with dataset.open(path, "r+") as group:
            group["other"].append([2])
            check(group["m"])
        assert [] == [f for f in verify(path).findings if f.severity == "error"]
    assert [1, 2, 3] == zarr.open(member, mode="r", use_consolidated=False)[
        ... if kind == "array" else inside
    ][...].tolist()
    with dataset.open(path, "r+") as group:
        group["m"].attrs["b"] = 2
    writes = True
    check(dataset.open(path)["m"])
    shutil.move(member, tmp_path / "out")
    check(dataset.open(tmp_path / "out"))
