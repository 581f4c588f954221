"""Parquet, Arrow and pandas: nothing changes or gets lost without a word."""

from __future__ import annotations

import base64
import os
import sys
from datetime import datetime, time
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from support import growth_of_memory

import bloscpack
from bloscpack import dataset
from bloscpack.cli import main
from bloscpack.dataset.conversion import contents, parquet_files
from bloscpack.exceptions import DamageError, DoesNotFit, NotReadable, UsageError

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

pytestmark = pytest.mark.usefixtures("folder")
FAR = datetime(9999, 12, 31, 1, 2, 3, 456789)


def write(columns, name="a.parquet", **how):
    table = columns if isinstance(columns, pyarrow.Table) else pyarrow.table(columns)
    parquet.write_table(table, name, **how)


def convert(target="b.zarr", **how):
    return dataset.convert("a.parquet", target, force=True, **how).lost


def status(*words):
    """Return the exit code of a command."""
    try:
        main([*words])
    except SystemExit as error:
        return error.code
    return 0


# Times


@pytest.mark.parametrize(
    ("times", "unit"),
    [
        ([1, None, 2**62 + 1], "ns"),
        ([FAR, None, datetime(2020, 1, 1)], "us"),
        ([FAR, datetime(1, 1, 1)], "us"),
        ([FAR.replace(microsecond=0)], "us"),
        ([], "ns"),
    ],
)
def test_times_of_96_bits(times, unit, capsys):
    """They are those of pyarrow, in a unit that holds them."""
    made = pyarrow.array(times, pyarrow.timestamp(unit))
    write(
        {"t": made, "u": made}, use_deprecated_int96_timestamps=True, row_group_size=2
    )
    assert [] == convert()
    found = dataset.open("b.zarr").to_arrow()
    assert made.to_pylist() == found["t"].cast(made.type).to_pylist()
    assert pyarrow.timestamp(unit) == found["u"].type
    assert 0 == status("show", "a.parquet")
    assert "1816" not in capsys.readouterr().out


def test_times_of_96_bits_that_no_unit_holds():
    far = pyarrow.array([FAR], pyarrow.timestamp("us"))
    fine = pyarrow.array([1], pyarrow.timestamp("ns"))
    write({"t": far, "n": fine}, use_deprecated_int96_timestamps=True)
    with pytest.raises(UsageError, match=r"a\.parquet': the column '[tn]' has times"):
        convert()
    request = contents.Request("", exclude=("n",))
    with request.resources:
        found = parquet_files.read("a.parquet", request)
        assert [FAR] == found.columns["t"][0:1].tolist()


@pytest.mark.parametrize("dtype", ["M8[D]", "M8[h]", "M8[ps]", "M8[2us]", "m8[fs]"])
@pytest.mark.parametrize("number", [6000, -(10**12), 2**62, -(2**61) - 1])
def test_times_in_other_units(dtype, number):
    """DataFrames, Arrow and Parquet get the same time or none."""
    items = np.array([number], "i8").view(dtype)
    dataset.create_table("a.zarr", {"t": items}).close()
    table = dataset.open("a.zarr")

    def of_parquet():
        dataset.convert("a.zarr", "c.parquet")
        return parquet.read_table("c.parquet")["t"]

    for read in (
        lambda: table.to_pandas()["t"],
        lambda: table.to_arrow()["t"],
        of_parquet,
    ):
        try:
            found = read().to_numpy()
        except DoesNotFit:
            continue
        assert found.astype(dtype) == items
        assert items.astype(found.dtype) == found


def test_a_time_that_numpy_takes_for_a_missing_one():
    number = pyarrow.array([-(2**63)], pyarrow.int64())
    write({"t": number.cast(pyarrow.timestamp("us"))})
    with pytest.raises(DoesNotFit, match="'t' has a time that NumPy takes for"):
        convert()


# The calls that store items.
STORE = (
    lambda items: dataset.create_array("t", items),
    lambda items: dataset.create_table("t", {"v": items}),
    lambda items: bloscpack.save("t.blp", items),
)


@pytest.mark.parametrize(
    "kind", [pyarrow.timestamp("ns"), pyarrow.duration("s")], ids=str
)
def test_columns_with_a_time_that_numpy_takes_for_a_missing_one(kind):
    pandas = pytest.importorskip("pandas")
    column, missing = (pyarrow.array([n, 5], kind) for n in (-(2**63), None))
    frames = pandas.Series(column, dtype=pandas.ArrowDtype(kind))
    for given in (column, pyarrow.chunked_array([column]), frames):
        for call in STORE:
            with pytest.raises(DoesNotFit, match="NumPy takes it for a missing one"):
                call(given)
    with dataset.create_table("t", {"v": missing}) as table:
        assert [True, False] == np.isnat(table["v"][:]).tolist()


def test_lists_of_times_in_several_units():
    pandas = pytest.importorskip("pandas")
    far, near = np.datetime64("9999-12-31", "D"), np.datetime64(1, "ns")
    for items in (
        [far, near],
        [[near], [far]],
        [np.timedelta64(2**40, "D"), near - near],
    ):
        for call in STORE:
            with pytest.raises(DoesNotFit, match="does not fit the unit of others"):
                call(items)
        objects = np.empty(len(items), object)
        objects[:] = items
        for given in (objects, pandas.DataFrame({"a": objects})):
            columns = given if isinstance(given, pandas.DataFrame) else {"a": given}
            with pytest.raises(DoesNotFit, match="does not fit the unit of others"):
                dataset.create_table("t", columns)
    # Python has no nanoseconds: as objects, they would be integers.
    rows = [np.array([1, 2], "M8[ns]"), np.array([3, 4], "M8[ns]")]
    with dataset.create_array("t", rows) as array:
        np.testing.assert_array_equal(np.array(rows), array[:])


# Damage


def test_checksums_of_pages():
    """Each way to read a file checks them."""
    rows = {"a": np.arange(5000)}
    how = {"use_dictionary": False, "compression": "none", "write_page_checksum": True}
    write(rows, **how)
    dataset.create_table("t.zarr", rows).close()
    assert 0 == status("diff", "a.parquet", "t.zarr")
    content = bytearray(Path("a.parquet").read_bytes())
    content[9000] ^= 1
    Path("a.parquet").write_bytes(content)
    with pytest.raises(DamageError, match="CRC checksum verification failed"):
        convert()
    for call in (
        ["convert", "a.parquet", "c.csv"],
        ["show", "--stats", "a.parquet"],
        ["diff", "a.parquet", "t.zarr"],
        ["append", "t.zarr", "a.parquet"],
    ):
        assert 3 == status(*call), call
    assert 5000 == len(dataset.open("t.zarr"))


# Types of other programs, and columns that are left out


def test_types_that_need_a_word():
    prices = [Decimal("1.10"), None, Decimal("-12345678901234567.89")]
    times = [time(1, 2, 3), None, time(23, 59, 59, 5)]
    columns = {
        "price": pyarrow.array(prices, pyarrow.decimal128(20, 2)),
        "at": pyarrow.array(times, pyarrow.time64("us")),
        "text": ["0.1", "1e300", "nan"],
    }
    write(columns)
    with pytest.raises(UsageError, match=r"--dtype 'price=f8' makes its .* --exclude"):
        convert()
    with pytest.raises(
        UsageError, match=r"--dtype 'at=m8\[us\]' makes its .*--exclude"
    ):
        convert(dtypes={"price": "f8"})
    types = {"price": "f8", "at": "m8[us]", "text": "f4"}
    assert [] == convert(dtypes=types)
    found = dataset.open("b.zarr")
    assert ["price", "at", "text"] == found.names
    expected = [np.nan if price is None else float(price) for price in prices]
    np.testing.assert_array_equal(expected, found["price"][:])
    assert [3723000000, 86399000005] == found["at"][::2].astype("i8").tolist()
    assert np.isnat(found["at"][1])
    expected = np.array([0.1, np.inf, np.nan], "f4")
    np.testing.assert_array_equal(expected, found["text"][:])
    with pytest.raises(DoesNotFit, match="'price': a value does not fit 'int64'"):
        convert(dtypes={**types, "price": "i8"})
    with pytest.raises(
        UsageError, match="there is no column 'x'; the columns are price"
    ):
        convert(dtypes={"x": "f8"})


@pytest.mark.parametrize("items", [[[1], [2, 3]], [{"a": 1, "b": 2}, None], [[None]]])
def test_columns_that_are_left_out_are_not_read(items):
    write({"a": items, "n": pyarrow.array([1, None][: len(items)])})
    with pytest.raises(UsageError, match="--exclude 'a' leaves it out"):
        convert()
    for how in ({"exclude": ("a",)}, {"columns": ("n",)}):
        request = contents.Request("", layout="zarr", **how)
        with request.resources:
            found = parquet_files.read("a.parquet", request)
            assert ["n", "n_missing"][: len(items)] == list(found.columns)
            assert 1 == found.columns["n"][0:1][0]


def test_texts_that_share_their_beginning():
    """Rows that are small in the file are read a few at a time."""
    pytest.importorskip("resource")
    for kind in (pyarrow.string(), pyarrow.large_string()):
        made = pyarrow.array(["x" * 500_000] * 2500, kind)
        how = {"use_dictionary": False, "column_encoding": {"x": "DELTA_BYTE_ARRAY"}}
        write({"x": made}, **how)
        del made
        assert growth_of_memory("a.parquet", "b.zarr") < 250 * 1024


# The index of pandas, and metadata


def frames():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": np.arange(300)})
    years = pandas.DataFrame({"a": [1, 2, 3]}, index=[2000, 2001, 2002])
    return {
        "": frame,
        "empty": frame[:0],
        "slice": frame[100:200],
        "step": frame[::2],
        "years": years,
        "named": frame.rename_axis("n"),
        "named years": years.rename_axis("a year"),
        "reversed": frame[::-1],
        "levels": years.set_index([["x", "y", "z"], [1, 2, 3]]),
    }


@pytest.mark.parametrize("name", [*frames()])
@pytest.mark.parametrize("stored", [None, True])
def test_an_index_is_kept(name, stored):
    """Also one that pandas stores in the metadata; only 0, 1, 2 ... is left out."""
    frame = frames()[name]
    frame.to_parquet("a.parquet", index=stored)
    convert()
    found = dataset.open("b.zarr").to_pandas()
    if name in ("", "empty"):
        assert ["a"] == list(found)
        return
    names = list(frame.index.names)
    unnamed = ["index"] if len(names) == 1 else ["level_0", "level_1"]
    names = names if names[0] is not None else unnamed
    expected = frame.rename_axis(names).reset_index()
    assert expected.to_dict("list") == found[list(expected)].to_dict("list")


@pytest.mark.parametrize("name", [*frames()])
def test_an_index_of_a_new_table(name):
    frame = frames()[name]
    if name in ("", "empty", "named", "named years"):
        dataset.create_table("t", frame).close()
        expected = [n for n in frame.index.names if n is not None] + ["a"]
        assert expected == dataset.open("t").names
        return
    for create in (
        lambda: dataset.create_table("t", frame),
        lambda: dataset.create_group("g", mode="w").create_table("t", frame),
        lambda: dataset.create_group("g", mode="w").__setitem__("t", frame),
    ):
        with pytest.raises(UsageError, match=r"index .*has no name.*reset_index"):
            create()


@pytest.mark.parametrize("buffered", [False, True])
def test_parts_of_a_frame_are_appended(buffered):
    all_frames = frames()
    frame = all_frames[""]
    with dataset.create_table("t", frame[:100], buffered=buffered) as table:
        table.append(frame[100:200])
        table.append(frame[200:250])
        table.append(frame)  # begins again
        for part in (frame[:100], frame[100:200], frame[200:]):
            table.append(part)
        for name in ("years", "slice", "step", "reversed"):
            with pytest.raises(UsageError, match="reset_index"):
                table.append(all_frames[name])
        table.append([np.arange(5)])
    assert 855 == len(dataset.open("t"))


def test_an_index_that_dask_knows():
    dask = pytest.importorskip("dask.dataframe")
    years = dask.from_pandas(frames()["years"], npartitions=1)
    with pytest.raises(UsageError, match=r"begins with 2000: .*reset_index"):
        dataset.from_dask("t", years)


def test_metadata_are_attributes():
    """Other programs find texts as metadata again, and we all attributes."""
    of_field = {b"unit": b"m", b"PARQUET:field_id": b"7"}
    field = pyarrow.field("x", pyarrow.int64(), metadata=of_field)
    schema = pyarrow.schema([field], {b"source": "Gauß".encode(), b"raw": b"\xff"})
    write(pyarrow.table({"x": [1]}, schema))
    assert ["the metadata b'raw' of the table"] == convert()
    with dataset.open("b.zarr", "r+") as table:
        assert {"source": "Gauß"} == dict(table.attrs)
        assert "m" == table["x"].attrs["unit"]
        table.attrs["run"] = 7
        table.attrs["pandas"] = "no JSON"
        found = table.to_arrow().schema
        assert of_field == found.field("x").metadata
        parquet.write_table(table.to_arrow(), "a.parquet")
        for name in ("a.parquet", "c.parquet"):
            dataset.convert(name, "d.zarr", force=True)
            again = dataset.open("d.zarr")
            assert dict(table.attrs) == dict(again.attrs)
            assert dict(table["x"].attrs) == dict(again["x"].attrs)
            dataset.convert("b.zarr", "c.parquet", force=True)
    found = parquet.read_schema("c.parquet")
    assert "Gauß".encode() == found.metadata[b"source"]
    assert of_field == found.field("x").metadata


def test_types_of_arrow_that_are_lost_are_named():
    pandas = pytest.importorskip("pandas")
    order = pyarrow.DictionaryArray.from_arrays([0, 1], ["b", "a"], ordered=True)
    own = {b"ARROW:extension:name": b"my.type"}
    fields = [
        pyarrow.field("c", order.type),
        pyarrow.field("e", pyarrow.int64(), metadata=own),
    ]
    write(pyarrow.table([order, [1, 2]], schema=pyarrow.schema(fields)))
    lost = ["the order of the categories of the column 'c'"]
    assert [*lost, "the type 'my.type' of the column 'e'"] == convert()
    with pytest.raises(UsageError, match="'c': no array can have categories in an"):
        dataset.create_table("t", {"c": order})
    if hasattr(pyarrow, "uuid"):
        write({"u": pyarrow.array([b"0" * 16], pyarrow.uuid())})
        assert ["the type 'arrow.uuid' of the column 'u'"] == convert("b.bcolz")
        assert b"0" * 16 == dataset.open("b.bcolz")["u"][0].tobytes()
    frame = pandas.DataFrame({"a": [1]})
    frame.attrs, frame.columns.name = {"by": "me", "n": [1]}, "kinds"
    frame.to_parquet("a.parquet")
    assert ["the name 'kinds' of the columns"] == convert()
    assert {"by": "me", "n": [1]} == dict(dataset.open("b.zarr").attrs)


# Folders


def test_a_folder_of_partitions():
    """It is read as pyarrow reads it, with the columns in the names of folders."""
    made = pyarrow.table(
        {
            "n": [1, 2, None, 4],
            "s": ["a", None, "cc", "d"],
            "year": [2023, 2024, 2024, None],
            "by": ["x/y", "ä ", None, "x/y"],
        }
    )
    parquet.write_to_dataset(made, "a.parquet", partition_cols=["year", "by"])
    Path("a.parquet/_SUCCESS").touch()
    assert [] == convert()
    found = dataset.open("b.zarr").to_arrow()
    expected = parquet.read_table("a.parquet")
    expected = [
        dict(zip(expected.column_names, row, strict=True))
        for row in zip(*(c.to_pylist() for c in expected.columns), strict=True)
    ]
    assert sorted(expected, key=str) == sorted(found.to_pylist(), key=str)
    assert pyarrow.int32() == found["year"].type
    assert 0 == status("append", "b.zarr", "a.parquet")
    assert 8 == len(dataset.open("b.zarr"))
    request = contents.Request("", layout="zarr", columns=("by",))
    with request.resources:
        assert ["by", "by_missing"] == [
            *parquet_files.read("a.parquet", request).columns
        ]


def test_a_folder_of_files_without_an_end():
    """Hive writes such names; other files are no part of the table."""
    os.mkdir("a.parquet")
    for number in range(2):
        write({"n": [number]}, "a.parquet/00000%d_0" % number)
    Path("a.parquet/notes.txt").write_text("no table")
    assert [] == convert()
    assert [0, 1] == dataset.open("b.zarr")["n"][:].tolist()


def test_a_folder_of_part_files():
    pandas = pytest.importorskip("pandas")
    os.mkdir("a.parquet")
    for number, items in enumerate((["x"], [None, None], ["longer", "y"])):
        frame = pandas.DataFrame({"s": pandas.Series(items, dtype=object)})
        frame.to_parquet("a.parquet/part.%d.parquet" % number)
    assert [] == convert()
    found = dataset.open("b.zarr").to_arrow()["s"].to_pylist()
    assert ["x", None, None, "longer", "y"] == found
    write({"s": [1]}, "a.parquet/part.9.parquet")
    with pytest.raises(
        UsageError, match=r"'s' has the type .*part\.9\.parquet.*exclude"
    ):
        convert()
    write({"t": [1]}, "a.parquet/part.9.parquet")
    with pytest.raises(UsageError, match="expected files with the same columns"):
        convert()
    Path("a.parquet/part.9.parquet").write_bytes(b"PAR1 no Parquet")
    with pytest.raises(DamageError) as caught:
        convert()
    assert caught.value.filename.endswith("part.9.parquet")


def test_a_folder_in_which_a_document_names_the_files_that_count():
    Path("t/data").mkdir(parents=True)
    write({"a": [1, 2]}, "t/data/removed.parquet")
    Path("t/metadata").mkdir()
    Path("t/metadata/1-a.metadata.json").write_text("{}")
    with pytest.raises(NotReadable, match="found another folder"):
        dataset.convert("t", "t.zarr")


def test_folders_of_zeros_and_of_no_keys():
    for zip_code in ("00123", "99999"):
        os.makedirs("a.parquet/zip=%s/more" % zip_code)
        write({"n": [1]}, "a.parquet/zip=%s/more/part.pq" % zip_code)
    assert ["the names of folders without '='"] == convert()
    assert ["00123", "99999"] == dataset.open("b.zarr")["zip"][:].tolist()
    os.makedirs("a.parquet/city=x")
    write({"n": [1]}, "a.parquet/city=x/part.pq")
    with pytest.raises(UsageError, match="folders of the same keys"):
        convert()


@pytest.mark.skipif(sys.platform == "win32", reason="open files can't be replaced")
def test_a_file_that_is_replaced_while_it_is_read():
    write({"n": np.arange(9), "s": ["x"] * 9})
    request = contents.Request("")
    with request.resources:
        found = parquet_files.read("a.parquet", request)
        write({"n": np.arange(5), "s": ["y"] * 5}, "b.parquet")
        os.replace("b.parquet", "a.parquet")
        assert list(range(9)) == found.columns["n"][0:9].tolist()


# Columns that get a type


@pytest.mark.parametrize("made", ["arrow", "pandas"])
def test_a_column_of_missing_values(made):
    table = pyarrow.table({"o": pyarrow.nulls(2), "n": [1, 2]})
    if made == "pandas":
        pytest.importorskip("pandas").DataFrame(
            {"o": [None, None], "n": [1, 2]}
        ).to_parquet("a.parquet")
    else:
        write(table)
    with pytest.raises(UsageError, match=r"'o' .*--dtype 'o=f8', .*--exclude 'o'"):
        convert()
    convert(exclude=["o"])
    for dtype in ("f8", "f4", "U", "U3", "i4", "u1", "?", "M8[s]", "m8[ns]"):
        convert(dtypes={"o": dtype})
        found = dataset.open("b.zarr")
        assert [None, None] == found.to_pandas().astype(object).mask(
            found.to_pandas().isna(), None
        )["o"].tolist()
        if dtype != "U":
            assert np.dtype(dtype) == found["o"].dtype


def test_decimals_become_text_exactly():
    """Python's text of a decimal is the same number, and the same digits."""
    values = [Decimal("1.10"), None, Decimal("-12345678901234567890.25"), Decimal(0)]
    write({"p": pyarrow.array(values, pyarrow.decimal128(38, 10))})
    with pytest.raises(UsageError, match="'p=f8' makes its items floats, 'p=U' text"):
        convert()
    convert(dtypes={"p": "U"})
    found = dataset.open("b.zarr").to_arrow()["p"].to_pylist()
    assert values == [None if text is None else Decimal(text) for text in found]
    assert "1.1000000000" == found[0]
    with pytest.raises(UsageError, match="at most 3 characters"):
        convert(dtypes={"p": "U3"})


def test_one_row_of_lists_does_not_fill_the_memory(tmp_path):
    """The first list has nearly all items, and the schema says that all have 1000."""
    rows, count = 50_000, 1000
    ends = np.full(rows + 1, rows * (count - 1) + 1, "i4")
    ends[0] = 0
    items = pyarrow.array(np.zeros(ends[1], "i8"))
    table = pyarrow.table({"x": pyarrow.ListArray.from_arrays(ends, items)})
    wanted = pyarrow.schema({"x": pyarrow.list_(pyarrow.int64(), count)})
    text = base64.b64encode(wanted.serialize().to_pybytes()).decode()
    with parquet.ParquetWriter("a.parquet", table.schema, store_schema=False) as writer:
        writer.write_table(table, row_group_size=rows)
        writer.add_key_value_metadata({"ARROW:schema": text})
    with pytest.raises(UsageError, match=r"column 'x': a row group has '400000000' by"):
        convert()


def test_a_time_zone_that_is_dropped_is_told_of(capsys):
    zoned = pyarrow.timestamp("us", "Europe/Berlin")
    write({"x": pyarrow.array([datetime(2020, 1, 1)], zoned)})
    for words in (["show"], ["show", "--json"], ["diff", "a.parquet"]):
        main([*words, "a.parquet"])
        said = "'a.parquet' is read without the time zone of the column 'x'"
        assert said in capsys.readouterr().err
    main(["-q", "diff", "a.parquet", "a.parquet"])
    assert "" == capsys.readouterr().err
