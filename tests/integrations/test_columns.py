"""Columns and members are chosen and renamed, and a door keeps a name or refuses it."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

from bloscpack import dataset
from bloscpack.cli import main
from bloscpack.exceptions import NotReadable, UsageError

h5py = pytest.importorskip("h5py", reason="the extra 'hdf5' is not installed")
pd = pytest.importorskip("pandas", reason="the extra 'tables' is not installed")
pa = pytest.importorskip("pyarrow", reason="the extra 'tables' is not installed")
parquet = pytest.importorskip("pyarrow.parquet")

pytestmark = pytest.mark.usefixtures("folder")

# Names that some format, file system or program takes for something else.
NAMES = (
    *("km/h", "/x", "x/", "a//b", ".", "..", "...", "./a", "a\\b", "a:b", "a%2fb"),
    *("a b", " ", "a\tb", "a\nb", "a\0b", "\udcff", "\u202e", "~", "-x", "%41", "a,b"),
    *("zarr.json", ".zarray", ".zattrs", ".zgroup", ".bloscpack", "c", "meta", "data"),
    *("__x", "__init__", "__rootdirs__", "__attrs__", "header", "attr-v2", "sizes"),
    *("_nc4_non_coord_x", "row", "index", "arr_0", "a.npy", "a=b", 'say "x"', "NUL"),
    *("x" * 240, "x" * 255, "x" * 256, "x" * 300, "\xe9" * 127, "\xe9" * 130),
)
FILES = "csv", "npy", "npz", "blp", "parquet", "h5", "nc"
TARGETS = *FILES, "bigfile", "zarr", "bcolz", "superchunk"


def converted(source, target, **options):
    """Convert, and return what the target is as an array with fields."""
    if os.path.isdir(target):
        shutil.rmtree(target)
    dataset.convert(source, target, force=True, **options)
    dataset.convert(target, "back.npy", force=True)
    return np.load("back.npy")


@pytest.fixture
def frame():
    found = pd.DataFrame(
        {"day": ["mon", "tue"], "km/h": [1.5, 2.5], "n": [1, 2], "ok": [True, False]}
    )
    found.to_parquet("frame.parquet")
    return found


# Names


@pytest.mark.parametrize(
    ("source", "target"),
    [*(("parquet", t) for t in TARGETS), ("npy", "npz"), ("npy", "h5")],
)
def test_the_name_of_a_column_is_kept_or_refused(source, target):
    """A refused name is in the message, with the option that gives it another one."""
    refused = {}
    for name in NAMES:
        rows = np.zeros(3, [(name, "i4"), ("other", "f8")])
        rows[name] = [1, 2, 3]
        if source == "npy":
            np.save("a.npy", rows)
        elif name.isascii() or "\udcff" not in name:
            columns = {key: pa.array(rows[key]) for key in rows.dtype.names}
            parquet.write_table(pa.table(columns), "a.parquet")
        else:
            continue  # Parquet has no such name
        try:
            found = converted("a." + source, "b." + target)
        except UsageError as error:
            refused[name] = str(error)
            found = converted("a." + source, "b." + target, rename={name: "new"})
            name = "new"
        # A tree, and some other programs, sort the names.
        assert {name, "other"} == {*found.dtype.names}
        assert [1, 2, 3] == found[name].tolist()
    assert all("; convert --rename '" in message for message in refused.values())
    is_strict = target in ("npz", "h5", "nc", "bigfile", "zarr", "bcolz")
    if is_strict and (source, target) != ("npy", "npz"):
        assert {"km/h", "/x", "x/", "a//b", ".", "./a", "a\0b"} <= {*refused}
    if target in ("bigfile", "zarr", "bcolz", "superchunk"):
        assert {"x" * 256, "x" * 300, "\xe9" * 130} <= {*refused}
        assert "x" * 255 not in refused
    assert "c" not in refused


def test_names_in_csv(frame):
    """The names of columns are no paths."""
    frame.to_csv("a.csv", index=False)
    for target in ("h5", "npz", "bigfile", "zarr"):
        with pytest.raises(
            UsageError, match=r"'km/h': .* convert --rename 'km/h=NAME'"
        ):
            dataset.convert("a.csv", "b." + target, columns=["n", "km/h"])
        assert not os.path.lexists("b." + target)
    dataset.convert("a.csv", "b.h5", rename={"km/h": "kmh"})
    with h5py.File("b.h5") as file:
        assert {"day", "kmh", "n", "ok"} <= {*file}
        assert [1.5, 2.5] == file["kmh"][:].tolist()


@pytest.mark.parametrize("source", ["npz", "h5"])
@pytest.mark.parametrize("target", ["zarr", "superchunk", "bigfile"])
def test_names_of_members(source, target):
    """A long name is blamed, and not the target."""
    name = "x" * 300
    if source == "npz":
        np.savez("a.npz", **{name: np.arange(3), "g/a b": np.arange(4)})
    else:
        with h5py.File("a.h5", "w") as file:
            file[name], file["g/a b"] = np.arange(3), np.arange(4)
    with pytest.raises(UsageError, match=r"'x{99}': .*--rename 'x{99}=NAME'") as caught:
        dataset.convert("a." + source, "b." + target, columns=[name])
    assert "b." + target not in str(caught.value)
    names = {name: "long", "g/a b": "ab"}
    dataset.convert("a." + source, "b." + target, rename=names)
    dataset.convert("b." + target, "c.npz")
    with np.load("c.npz") as found:
        assert {"long", "g/ab"} == {*found}
        assert [0, 1, 2, 3] == found["g/ab"].tolist()


@pytest.mark.parametrize("name", ["x" * 256, "\xe9" * 128])
def test_long_names_in_calls(name):
    columns = {name: [1]}
    for layout in ("zarr", "superchunk", "bcolz"):
        with pytest.raises(UsageError, match="name"):
            dataset.create_table("t", columns, layout=layout)
    with dataset.create_group("g") as group:
        for member in (name, "a/" + name):
            with pytest.raises(UsageError, match="at most '255' bytes"):
                group.create_array(member, [1])


def test_names_in_attributes_of_hdf5():
    """HDF5 would end a name at a zero character."""
    dataset.create_array("a.zarr", [1], attrs={"a\0b": 1, "c": 2}).close()
    done = dataset.convert("a.zarr", "b.h5")
    assert ["the attribute 'a\0b' of '/data'"] == done.lost
    with h5py.File("b.h5") as file:
        assert "a" not in file["data"].attrs


def test_names_that_the_file_system_takes_for_one(monkeypatch):
    """On a file system that ignores case, the first name is there already."""
    np.savez("a.npz", a=[1], A=[2])
    monkeypatch.setattr(dataset.conversion.datasets, "lexists", lambda path: True)
    with pytest.raises(UsageError, match="'a' for that of another member"):
        dataset.convert("a.npz", "b.zarr")


# Columns


@pytest.mark.parametrize("source", TARGETS)
def test_columns(frame, source):
    """Columns are chosen as by pandas; those of a tree are in the order of names."""
    name = "a." + source
    if source == "bigfile":  # it has no text
        frame = frame.assign(day=[3, 4])
        frame.to_parquet("frame.parquet")
    rename = {"km/h": "kmh"}
    dataset.convert("frame.parquet", name, rename=rename)
    frame = frame.rename(columns=rename)
    if source == "bigfile":
        frame = frame[sorted(frame)]
    for options, expected in (
        ({"columns": ["ok", "kmh"]}, frame[["ok", "kmh"]]),
        ({"columns": ("n", "n", "ok")}, frame[["n", "ok"]]),
        ({"exclude": ["day", "ok"]}, frame.drop(columns=["day", "ok"])),
        (
            {"rename": {"n": "m", "ok": "n"}},
            frame.rename(columns={"n": "m", "ok": "n"}),
        ),
        (
            {"columns": ["n", "day"], "rename": {"day": "n", "n": "day"}},
            frame[["n", "day"]].rename(columns={"day": "n", "n": "day"}),
        ),
        ({"columns": ["n", "day", "ok"], "exclude": ["n"]}, frame[["day", "ok"]]),
    ):
        dataset.convert(name, "b.parquet", force=True, **options)
        found = pd.read_parquet("b.parquet")
        assert expected.to_dict("list") == found.to_dict("list")
        assert [*expected] == [*found]
    for options in ({"columns": ["x"]}, {"exclude": ["x"]}, {"rename": {"x": "y"}}):
        with pytest.raises(
            UsageError, match=r"there is no [a-z]+ 'x'; the [a-z]+ are .*kmh"
        ):
            dataset.convert(name, "c.npy", **options)
    for new in ("n", ""):
        with pytest.raises(UsageError, match="expected different names"):
            dataset.convert(name, "c.npy", rename={"ok": new})
    with pytest.raises(UsageError, match=r"must have a column|no rows|can't hold"):
        dataset.convert(name, "c.npy", exclude=[*frame])


def test_members_of_groups():
    np.savez("a.npz", **{"a": [1], "g/b": [2], "g/c": [3], "h/i/d": [4], "h/e": [5]})
    for options, expected in (
        ({"columns": ["g", "h/i"]}, ["g/b", "g/c", "h/i/d"]),
        ({"columns": ["h/e", "a"]}, ["h/e", "a"]),
        ({"exclude": ["g/b", "h"]}, ["a", "g/c"]),
        ({"rename": {"g": "G", "g/b": "B", "a": "A"}}, ["A", "G/B", "G/c"]),
    ):
        dataset.convert("a.npz", "b.npz", force=True, **options)
        with np.load("b.npz") as found:
            assert expected == [*found][: len(expected)]
    with pytest.raises(
        UsageError, match="there is no member 'g/x'; the members are a, g, g/b"
    ):
        dataset.convert("a.npz", "c.npz", columns=["g/x"])


def test_a_mask_belongs_to_its_column():
    columns = {"a": np.ma.array([1, 2, 3], mask=[0, 1, 0]), "b": [1.0, 2.0, 3.0]}
    dataset.create_table("a.zarr", columns).close()
    for options, name in (
        ({"columns": ["a"]}, "a"),
        ({"exclude": ["b"], "rename": {"a": "x"}}, "x"),
        ({"columns": ["b", "a"], "rename": {"a": "x"}}, "x"),
    ):
        dataset.convert("a.zarr", "b.parquet", force=True, **options)
        found = pd.read_parquet("b.parquet", dtype_backend="pyarrow")
        assert [1, None, 3] == found[name].astype(object).replace(pd.NA, None).tolist()
    dataset.convert("a.zarr", "c.zarr", rename={"a": "x"})
    with dataset.open("c.zarr") as found:
        assert ["x", "x_missing", "b"] == found.names
        assert {"mask-of": "x"} == found["x_missing"].attrs.asdict()
    converted("a.zarr", "d.npy", exclude=["a"])
    assert ("b",) == np.load("d.npy").dtype.names
    assert ("a_missing",) == converted(
        "a.zarr", "d.npy", columns=["a_missing"]
    ).dtype.names
    with pytest.raises(UsageError, match="says which items of 'a' are missing"):
        dataset.convert("a.zarr", "e.npy", exclude=["a_missing"])


@pytest.mark.parametrize("source", ["a.bcolz", "a.bigfile", "a.h5"])
def test_a_mask_is_read_with_its_column(source):
    """Also where it is an array of a file, as for booleans of HDF5."""
    columns = {"a": np.ma.array([True, False], mask=[0, 1]), "b": [1.0, 2.0]}
    dataset.create_table("a.zarr", columns).close()
    dataset.convert("a.zarr", source)
    for options, name in (({"columns": ["a"]}, "a"), ({"rename": {"a": "x"}}, "x")):
        dataset.convert(source, "b.csv", force=True, **options)
        assert [True, None] == pd.read_csv("b.csv")[name].replace(np.nan, None).tolist()
        dataset.convert(source, "b.zarr", force=True, **options)
        with dataset.open("b.zarr") as found:
            assert name == found[name + "_missing"].attrs["mask-of"]
    with pytest.raises(UsageError, match="says which items of 'a' are missing"):
        dataset.convert(source, "c.zarr", exclude=["a_missing"])


def test_what_is_left_out_is_not_read():
    """A column that can't be read is no obstacle if it is not wanted."""
    with open("a.csv", "w") as fp:
        fp.write("a,,b,b\n1,2,3,4\n")
    with pytest.raises(
        NotReadable, match=r"found a column without a name, .*--columns"
    ):
        dataset.convert("a.csv", "a.npy")
    with pytest.raises(NotReadable, match=r"found two columns 'b'; .*--columns"):
        dataset.convert("a.csv", "a.npy", columns=["a", "b"])
    assert [(1,)] == converted("a.csv", "a.npy", columns=["a"]).tolist()
    assert [(1,)] == converted("a.csv", "a.npy", exclude=["b", ""]).tolist()
    found = converted("a.csv", "a.npy", exclude=["b"], rename={"": "x"})
    assert (("a", "x"), [(1, 2)]) == (found.dtype.names, found.tolist())

    with zipfile.ZipFile("b.npz", "w") as archive:
        archive.writestr("bad.npy", b"\x93NUMPY")
    with zipfile.ZipFile("b.npz", "a") as archive, archive.open("a.npy", "w") as fp:
        np.save(fp, np.arange(3))
    dataset.convert("b.npz", "b.npy", exclude=["bad"])
    assert [0, 1, 2] == np.load("b.npy").tolist()

    with h5py.File("c.h5", "w") as file:
        file["a"], file["void"] = np.arange(3), h5py.Empty("f4")
        file["link"], file["type"] = h5py.SoftLink("/a"), np.dtype("i4")
    lost = ["'/void' (it has no items, and no shape)"]
    lost = ["the link '/link' to '/a'", "the type '/type'", *lost]
    assert lost == dataset.convert("c.h5", "c.npy").lost
    for options in {"columns": ["a"]}, {"exclude": ["link", "type", "void"]}:
        assert [] == dataset.convert("c.h5", "c.npy", force=True, **options).lost

    dataset.create_table("d.zarr", {"a": [1], "bad": ["x"]}).close()
    shutil.rmtree("d.zarr/bad/c")
    assert [(1,)] == converted("d.zarr", "d.npy", columns=["a"]).tolist()
    assert [(1,)] == converted("d.zarr", "d.npy", exclude=["bad"]).tolist()


def test_calls_that_can_not_choose_columns():
    np.save("a.npy", np.arange(6).reshape(2, 3))
    for options in ({"columns": ["0"]}, {"exclude": ["0"]}, {"rename": {"0": "a"}}):
        with pytest.raises(UsageError, match=r"'a.npy': an array has no columns"):
            dataset.convert("a.npy", "b.npy", **options)
    with pytest.raises(UsageError, match="a sequence of names, found the text 'ab'"):
        dataset.convert("a.npy", "b.npy", columns="ab")


@pytest.mark.parametrize(
    ("dtype", "number"),
    [("f2", 2049), ("f4", 2**24 + 1), ("f8", 2**53 + 1), ("f8", 2**63 - 1)],
)
@pytest.mark.parametrize("source", ["a.csv", "a.parquet", "missing.parquet", "a.npy"])
def test_an_integer_is_no_other_float_through_any_door(dtype, number, source):
    """pandas and Arrow would round it."""

    def write(item):
        series = pd.Series([item], dtype="Int64")
        frame = pd.DataFrame({"x": series})
        frame.to_csv("a.csv", index=False)
        frame.to_parquet("a.parquet")
        frame.reindex([0, 1]).to_parquet("missing.parquet")
        frame.assign(x=series.astype(str)).to_parquet("text.parquet")
        np.save("a.npy", np.rec.fromarrays([[item]], names="x"))

    write(number)
    with dataset.create_table("t.zarr", {"x": np.zeros(1, dtype)}) as table:
        for given in (pd.DataFrame({"x": [number]}), {"x": pa.array([number])}):
            with pytest.raises(UsageError, match="'x': the value %d" % number):
                table.append(given)
    for given in (source, "text.parquet"):
        with pytest.raises(SystemExit):
            main(["append", "t.zarr", given])
    if source != "a.npy":
        with pytest.raises(UsageError, match=str(number)):
            dataset.convert(source, "b.zarr", dtypes={"x": dtype})
    write(number + (1 if number % 2**10 == 1 else -(2**10) + 1))
    for given in (source, "text.parquet"):
        main(["append", "t.zarr", given])
    expected = np.array(pd.read_csv("a.csv")["x"].tolist() * 2)
    found = dataset.open("t.zarr")["x"][1:]
    assert expected.tolist() == found[~np.isnan(found)].tolist()


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_a_column_without_a_name_gets_one(tmp_path, monkeypatch, name):
    pyarrow = pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    if name == "a.csv":
        Path(name).write_text("n,\n1,2\n")
    else:
        pyarrow.parquet.write_table(pyarrow.table({"n": [1], "": [2]}), name)
    with pytest.raises((NotReadable, UsageError), match="--rename =NAME gives it"):
        dataset.convert(name, "b.zarr")
    dataset.convert(name, "b.zarr", rename={"": "x"})
    assert {"n": [1], "x": [2]} == dataset.open("b.zarr").to_arrow().to_pydict()


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"dtype": {"x": "f8"}}, r"found a dictionary; dtypes={NAME: TYPE}"),
        ({"dtypes": "f8"}, "dtypes: expected a dictionary"),
        ({"rename": "x=y"}, "rename: expected a dictionary"),
    ],
)
def test_keywords_of_columns(tmp_path, keywords, message):
    (tmp_path / "a.csv").write_text("x\n1\n")
    with pytest.raises(UsageError, match=message):
        dataset.convert(tmp_path / "a.csv", tmp_path / "b.zarr", **keywords)


TRUTH = [True, False]


@pytest.mark.parametrize(
    "rows",
    [
        {"x": TRUTH},
        {"x": np.array(TRUTH)},
        {"x": np.array(TRUTH, object)},
        {"x": [True, 2]},
        {"x": np.array([True, 2], object)},
        np.rec.fromarrays([TRUTH], names="x"),
        pd.DataFrame({"x": pd.array(TRUTH, "boolean")}),
        pd.DataFrame({"x": pd.Series([True, 2, None], dtype=object)}),
    ],
)
@pytest.mark.parametrize("dtype", ["i8", "u1", "f8", "c16", "m8[s]"])
def test_truth_values_are_no_numbers(rows, dtype):
    with dataset.create_table("t.zarr", {"x": np.zeros(1, dtype)}) as table:
        with pytest.raises(UsageError, match=r"'x': .*truth values"):
            table.append(rows)
        assert 1 == len(table)


def test_truth_values_among_numbers_are_no_column():
    for rows in ([True, 2.5], pd.Series([True, 2], dtype=object), [[True, 2]]):
        with pytest.raises(UsageError, match="'x': expected numbers, found truth"):
            dataset.create_table("t.zarr", {"x": rows})
    with (
        dataset.create_array("a.zarr", [1]) as array,
        pytest.raises(UsageError, match="expected numbers, found truth values"),
    ):
        array.append(np.array([True, 2], object))
    with dataset.create_table("t.zarr", {"x": TRUTH}) as table:
        assert TRUTH == table["x"][:].tolist()


@pytest.mark.parametrize("source", ["a.csv", "a.parquet", "a.npy", "a.npz", "a.h5"])
def test_truth_values_of_files_are_no_numbers(source, capsys):
    pd.DataFrame({"x": TRUTH}).to_parquet("a.parquet")
    if source != "a.parquet":
        dataset.convert("a.parquet", source)
    dataset.create_table("t.zarr", {"x": [1]}).close()
    with pytest.raises(SystemExit):
        main(["append", "t.zarr", source])
    said = capsys.readouterr().err
    assert "column 'x'" in said
    assert "int64" in said
    if source in ("a.csv", "a.parquet"):
        with pytest.raises(UsageError, match=r"column 'x'.*int64"):
            dataset.convert(source, "b.zarr", dtypes={"x": "i8"})


def test_truth_values_of_an_array_are_no_numbers(capsys):
    np.save("a.npy", TRUTH)
    dataset.create_array("a.zarr", [1]).close()
    with pytest.raises(SystemExit):
        main(["append", "a.zarr", "a.npy"])
    assert "found truth values" in capsys.readouterr().err


@pytest.mark.parametrize("between", ["npz", "h5", "zarr", "nc"])
@pytest.mark.parametrize("name", ["data", "x"])
def test_a_single_column_keeps_its_name(between, name):
    Path("a.csv").write_text("%s\n1\n" % name)
    dataset.convert("a.csv", "b." + between)
    dataset.convert("b." + between, "c.parquet")
    assert [name] == parquet.read_table("c.parquet").column_names
    dataset.create_table("t.zarr", {name: [0]}).close()
    main(["append", "t.zarr", "b." + between])
    assert [0, 1] == dataset.open("t.zarr")[name][:].tolist()


@pytest.mark.parametrize("source", ["a.parquet", "a.npz", "a.csv", "b.h5"])
def test_a_column_is_no_row(source, capsys):
    """It has as many rows as a row of the table has items."""
    dataset.create_table("t.zarr", {"x": np.zeros((1, 2))}).close()
    pd.DataFrame({"x": [1, 2]}).to_parquet("a.parquet")
    if source != "a.parquet":
        dataset.convert("a.parquet", source)
    with pytest.raises(SystemExit):
        main(["append", "t.zarr", source])
    assert "'x': expected rows of shape (2,), found rows" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("items", "dtype", "message"),
    [
        (["a"], "c16", "type 'string' can't become items of dtype 'complex128'"),
        (["long"], "U3", "'x': expected text of at most 3 characters, found 'long'"),
        ([pd.Timestamp("2020")], "f8", "timestamp.* can't become items of dtype"),
        ([True, None], "M8[D]", "type 'bool' can't become items of dtype"),
    ],
)
def test_types_that_a_column_of_parquet_can_not_become(items, dtype, message):
    parquet.write_table(pa.table({"x": pa.array(items)}), "a.parquet")
    with pytest.raises(UsageError, match=message):
        dataset.convert("a.parquet", "b.zarr", dtypes={"x": dtype})


def test_truth_values_of_xarray_and_dask_are_no_numbers():
    frame = pd.DataFrame({"x": TRUTH})
    dask = pytest.importorskip("dask.dataframe").from_pandas(frame, npartitions=1)
    dataset.create_table("t.zarr", {"x": [1]}).close()
    with pytest.raises(UsageError, match=r"'x': .*found truth values"):
        dataset.from_dask("t.zarr", dask, append=True)
    xarray = pytest.importorskip("xarray")
    for name, items in {"n": [1], "b": TRUTH}.items():
        given = xarray.Dataset({"v": ("t", items)})
        dataset.from_xarray(name + ".zarr", given).close()
    more = xarray.Dataset({"v": ("t", TRUTH)})
    with pytest.raises(UsageError, match=r"'v': .*found truth values"):
        dataset.from_xarray("n.zarr", more, append_dim="t")
    dataset.from_xarray("b.zarr", more, append_dim="t").close()
    assert 2 * TRUTH == dataset.open("b.zarr").to_xarray()["v"].values.tolist()
