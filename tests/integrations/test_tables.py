"""Pandas, Polars and DuckDB read and write tables through the file object."""

from __future__ import annotations

from datetime import date, datetime, timezone

import numpy
import pytest

import bloscpack as bp
from bloscpack import dataset, exceptions

ROWS = {"a": [1, 2, 3], "b": ["x", "y", "z"]}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "table.blp"


def test_csv_of_pandas(path):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    table = pandas.DataFrame(ROWS)
    with bp.open(path, "wt", encoding="utf-8", newline="") as file:
        table.to_csv(file, index=False)
    with bp.open(path) as file:
        pandas.testing.assert_frame_equal(table, pandas.read_csv(file))
    with bp.open(path) as file:
        sizes = [len(part) for part in pandas.read_csv(file, chunksize=2)]
    assert [2, 1] == sizes


def test_pickle_of_pandas(path):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    table = pandas.DataFrame(ROWS)
    with bp.open(path, "wb") as file:
        table.to_pickle(file)
    with bp.open(path) as file:
        pandas.testing.assert_frame_equal(table, pandas.read_pickle(file))


@pytest.mark.parametrize("form", ["csv", "parquet", "ipc", "ndjson"])
def test_polars(path, form):
    polars = pytest.importorskip("polars", reason="polars is not installed")
    table = polars.DataFrame(ROWS)
    with bp.open(path, "wb") as file:
        getattr(table, "write_" + form)(file)
    with bp.open(path) as file:
        assert table.equals(getattr(polars, "read_" + form)(file))


def test_duckdb(path):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    with bp.open(path, "wt", encoding="utf-8") as file:
        file.write("a,b\n1,x\n2,y\n3,\n")
    with bp.open(path) as file:
        table = duckdb.read_csv(file)
        assert [(6,)] == table.aggregate("sum(a)").fetchall()


@pytest.mark.parametrize("package", ["pyarrow", "polars"])
def test_new_tables_name_the_way_to_take_rows_of_arrow(tmp_path, package):
    module = pytest.importorskip(package, reason="%s is not installed" % package)
    rows = module.table(ROWS) if package == "pyarrow" else module.DataFrame(ROWS)
    with pytest.raises(bp.UsageError, match=r"found '%s.*to_pandas" % package):
        dataset.create_table(tmp_path / "t.zarr", rows)
    with dataset.create_table(tmp_path / "t.zarr", ROWS) as table:
        with pytest.raises(bp.UsageError, match="to_pandas"):
            table.append(rows)
        table.append(rows.to_pandas())
        assert 6 == len(table)


LARGE = 2**62 + 1  # no float is equal to it


def columns_with_missing_integers(large):
    """Yield integers of which one is missing, in the types of other packages."""
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    yield pandas.array([large, None], "Int64")
    yield pandas.Series([large, None], dtype="Int64")
    yield pandas.Series([large, None], dtype=pandas.ArrowDtype(pyarrow.int64()))
    yield pandas.DataFrame({"a": pandas.array([large, None], "Int64")})
    yield pyarrow.array([large, None])
    yield pyarrow.chunked_array([[large], [None]])


def test_integers_that_missing_ones_make_floats_are_the_same_or_refused(tmp_path):
    for items in columns_with_missing_integers(2**53):
        bp.save(tmp_path / "a.blp", items)
        assert 2**53 == int(bp.load(tmp_path / "a.blp").ravel()[0])
    for items in columns_with_missing_integers(LARGE):
        with pytest.raises(exceptions.DoesNotFit, match=str(LARGE)):
            bp.save(tmp_path / "b.blp", items)
        with pytest.raises(exceptions.DoesNotFit, match=str(LARGE)):
            bp.save(tmp_path / "b.zip", {"a": items})
        with pytest.raises(exceptions.DoesNotFit, match=str(LARGE)):
            dataset.create_array(tmp_path / "b.zarr", items)
        with pytest.raises(exceptions.UsageError):
            dataset.create_array(tmp_path / "b.zarr", iter([items]))
    assert ["a.blp"] == [path.name for path in tmp_path.iterdir()]


def test_columns_of_other_packages_keep_integers_beside_missing_ones(tmp_path):
    for number, items in enumerate(columns_with_missing_integers(LARGE)):
        with dataset.create_table(tmp_path / str(number), {"a": [0.5, 1]}) as table:
            with pytest.raises(exceptions.DoesNotFit, match="missing"):
                table.append({"a": items})
            with pytest.raises(exceptions.DoesNotFit, match="missing"):
                table["a"] = items
            assert [0.5, 1] == table["a"][:].tolist()
            with pytest.raises(exceptions.UsageError):
                table.add_column("b", [LARGE, None])


def test_arrays_of_pandas_with_missing_items_are_columns(tmp_path):
    pandas = pytest.importorskip("pandas")
    columns = {
        "i": pandas.array([LARGE, None], "Int64"),
        "b": pandas.array([True, None], "boolean"),
        "f": pandas.array([0.5, None], "Float64"),
    }
    with dataset.create_table(tmp_path / "t", columns) as table:
        table.append({name: pandas.Series(items) for name, items in columns.items()})
        table["i"] = pandas.array([None, 1, LARGE, None], "Int64")
        assert ["i", "i_missing", "b", "b_missing", "f"] == table.names
        found = table.to_pandas()
    assert [True, False, False, True] == found["i"].isna().tolist()
    assert [1, LARGE] == found["i"].dropna().tolist()
    assert [True, True] == found["b"].dropna().tolist()
    assert [0.5, 0.5] == found["f"].dropna().tolist()


def test_a_new_column_may_have_missing_items(tmp_path):
    pandas = pytest.importorskip("pandas")
    columns = {
        "i": pandas.array([LARGE, None], "Int64"),
        "b": numpy.ma.array([True, False], mask=[False, True]),
        "s": pandas.Series(["", None]),
    }
    with dataset.create_table(tmp_path / "t", columns) as table:
        expected = table.to_arrow()
    with dataset.create_table(tmp_path / "u", {"a": [0.5, 1]}) as table:
        for name, items in columns.items():
            table.add_column(name, items, position=-1)
        names = [*columns, *(name + "_missing" for name in columns), "a"]
        assert sorted(names) == sorted(table.names)
        assert "a" == table.names[-1]
        assert expected == table.to_arrow(list(columns))
        with pytest.raises(exceptions.UsageError, match="i_missing"):
            table.add_column("i_missing", [1, 2])


def test_arrays_of_arrow_and_polars_with_missing_items_are_columns(tmp_path):
    """Also integers that no float is equal to, and booleans."""
    pyarrow, polars = pytest.importorskip("pyarrow"), pytest.importorskip("polars")
    values = {"i": [LARGE, None], "b": [True, None], "f": [0.5, 2.0]}
    for kind, make in {
        "arrow": pyarrow.array,
        "chunks": lambda items: pyarrow.chunked_array([pyarrow.array(items)]),
        "polars": polars.Series,
    }.items():
        columns = {name: make(items) for name, items in values.items()}
        with dataset.create_table(tmp_path / kind, columns) as table:
            table.append(columns)
            assert ["i", "i_missing", "b", "b_missing", "f"] == table.names
            found = table.to_arrow().to_pydict()
        assert {name: items * 2 for name, items in values.items()} == found


def test_attributes_of_a_frame_are_those_of_the_table(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1, 2]})
    frame.attrs = {"unit": "m", "sizes": [1, 2]}
    with dataset.create_table(tmp_path / "t", frame) as table:
        assert frame.attrs == dict(table.attrs) == table.to_pandas(["a"]).attrs
    with dataset.create_group(tmp_path / "g") as group:
        group["t"] = frame
        assert frame.attrs == dict(group["t"].attrs)
    with dataset.create_table(tmp_path / "u", frame, attrs={"x": 1}) as table:
        assert {"x": 1} == dict(table.attrs)
    frame.attrs = {"made": pandas.Timestamp("2024-01-01")}
    with pytest.raises(exceptions.UsageError, match="'made' must be JSON"):
        dataset.create_table(tmp_path / "v", frame)


def test_series_of_different_indexes_are_no_columns_of_a_table(tmp_path):
    pandas = pytest.importorskip("pandas")
    a = pandas.Series([3, 1, 2])
    dataset.create_table(tmp_path / "t", {"a": a[::-1], "b": a[::-1] * 2}).close()
    for given in ({"a": a, "b": a.sort_values()}, {"a": a, "n": [1] * 3, "b": a[::-1]}):
        with pytest.raises(exceptions.UsageError, match="'a' and 'b' have different"):
            dataset.create_table(tmp_path / "u", given)
        given.pop("n", None)
        with (
            dataset.open(tmp_path / "t", "r+") as table,
            pytest.raises(exceptions.UsageError, match="'a' and 'b' have different"),
        ):
            table.append(given)


def test_categories_in_an_order_are_refused(tmp_path):
    polars = pytest.importorskip("polars")
    for items in (["a", "b"], ["a", None]):
        series = polars.Series(items, dtype=polars.Enum(["b", "a"]))
        with pytest.raises(exceptions.UsageError, match="'a': no array can have categ"):
            dataset.create_table(tmp_path / "t", {"a": series})


def test_time_zones_of_arrow_and_polars_are_refused(tmp_path):
    pyarrow, polars = pytest.importorskip("pyarrow"), pytest.importorskip("polars")
    zone = "Europe/Berlin"
    times = pyarrow.array([0, 10**9], pyarrow.timestamp("us", zone))
    series = polars.Series([datetime(2024, 7, 1)]).dt.replace_time_zone(zone)
    for items in (times, pyarrow.chunked_array([times]), series):
        for call in (
            lambda given: dataset.create_array(tmp_path / "a", given),
            lambda given: dataset.create_table(tmp_path / "t", {"a": given}),
            lambda given: bp.save(tmp_path / "a.blp", given),
            lambda given: bp.save(tmp_path / "a.zip", {"a": given}),
        ):
            with pytest.raises(exceptions.UsageError, match="time zone '%s'" % zone):
                call(items)
    assert [] == [*tmp_path.iterdir()]
    naive = series.dt.replace_time_zone(None)
    with dataset.create_array(tmp_path / "a", naive) as array:
        with pytest.raises(exceptions.UsageError, match="time zone"):
            array.append(series)
        assert naive.to_numpy().tolist() == array[:].tolist()


def test_a_refused_column_is_named(tmp_path):
    pandas = pytest.importorskip("pandas")
    times = pandas.Series(pandas.to_datetime(["2024-01-01"], utc=True))
    for items in (times, pandas.Categorical(["x"])):
        with pytest.raises(exceptions.UsageError, match="the column 'a': no array"):
            dataset.create_table(tmp_path / "t", {"a": items})


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (date(2024, 7, 1), r"datetime.date\(.*numpy.array\(items, 'datetime64"),
        (datetime(2024, 7, 1, tzinfo=timezone.utc), "time zone: convert the times to"),
    ],
)
def test_objects_that_are_times(tmp_path, item, message):
    with pytest.raises(exceptions.UsageError, match=message):
        dataset.create_array(tmp_path / "a", [item])
    with pytest.raises(exceptions.UsageError, match="'a': .*" + message):
        dataset.create_table(tmp_path / "t", {"a": [item]})


def test_missing_items_in_types_of_arrow_without_a_filter(tmp_path):
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")

    def column(items, kind):
        array = pyarrow.chunked_array([pyarrow.array(items, kind)])
        return pandas.DataFrame({"a": pandas.arrays.ArrowExtensionArray(array)})

    if hasattr(pyarrow, "string_view"):
        words = column(["x", None, "y\0"], pyarrow.string_view())
        with dataset.create_table(tmp_path / "t", words) as table:
            assert ["x", None, "y\0"] == table.to_arrow()["a"].to_pylist()
    lists = column([[1, 2], None], pyarrow.list_(pyarrow.int8(), 2))
    with pytest.raises(exceptions.UsageError, match=r"'a': .*found a missing one"):
        dataset.create_table(tmp_path / "u", lists)


def test_a_refused_time_zone_gives_no_advice_about_several_arrays(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    times = pyarrow.array([1, 2], pyarrow.timestamp("us", "UTC"))
    with pytest.raises(exceptions.UsageError, match=r"remove the time zone$"):
        bp.save(tmp_path / "times.blp", times)
