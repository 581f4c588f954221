"""CSV with the habits of other programs, compared with pandas and Python's `csv`."""

from __future__ import annotations

import csv
import os
import random
import re
import tracemalloc

import numpy as np
import pytest

import bloscpack as bp
from bloscpack import dataset
from bloscpack.cli import main
from bloscpack.dataset.conversion import contents, csv_files, datasets, parquet_files
from bloscpack.exceptions import FormatError, NotReadable, UsageError

pd = pytest.importorskip("pandas", reason="the extra 'tables' is not installed")
pytest.importorskip("pyarrow", reason="the extra 'tables' is not installed")


@pytest.fixture(autouse=True)
def small_parts(monkeypatch, tmp_path):
    """Make even small files several parts."""
    monkeypatch.setattr(csv_files, "PART_NBYTES", 100)
    monkeypatch.setattr(contents, "BLOCK_NBYTES", 1000)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("text", ['a,b\n1,"x\n2,y\n3,z\n', 'a\n"', 'a,b\n1,2\n3,"4'])
def test_a_quote_that_is_not_closed(text):
    with pytest.raises(NotReadable, match=r"a quote in its last .* is not closed"):
        read(text)
    assert not os.path.exists("a.npy")


def test_quotes_that_are_closed_or_inside_of_values():
    assert [(1, 'x"\n"y')] == read('a,b\n1,"x""\n""y"').tolist()
    assert [('5" pipe',)] == read('a\n5" pipe').tolist()


MISSING = "-9223372036854775808"  # the number of a missing time


@pytest.mark.parametrize(
    ("text", "dtype", "message"),
    [
        ("20260105", "M8[D]", "line 2: expected values of dtype"),
        ("1767571200", "M8[s]", "line 2: expected values of dtype"),
        ("26-01-05", "M8[D]", "line 2: expected values of dtype"),
        (MISSING, "M8[s]", MISSING),
        (MISSING, "M8[ns]", MISSING),
        (MISSING, "M8[D]", MISSING),
        (MISSING, "m8[s]", MISSING),
        ("2020-01-01\n+292277026597-01-01", "M8[s]", "line 3: the value"),
        ("2020-01-01\n+292277026597-01-01", "M8[ns]", "line 3: the value"),
    ],
)
def test_numbers_that_are_no_times(text, dtype, message):
    with pytest.raises(UsageError, match=message):
        read("x\n%s\n" % text, dtypes={"x": dtype})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('x,y\n1,"a\nb"\nfoo,"c\nd"\n', "'x', line 4: "),
        ('x,y\n1,"a\r\nb"\r\n"c\nd",2\n', "'x', line 4: "),
        ('y,x\n"a\rb\nc",1\n"a\r\nb",foo\n', "'x', line 6: "),
        ('x,y\n1,"a\nb"\n2,"c\nd",3\n', "found '3' in line 4"),
    ],
)
def test_errors_name_the_line_in_which_a_value_begins(text, message):
    with pytest.raises((UsageError, NotReadable), match=message):
        read(text, dtypes={"x": "i4"})


def read(text, **options):
    with open("a.csv", "wb") as fp:
        fp.write(text.encode(options.get("encoding", "utf-8")))
    dataset.convert("a.csv", "a.npy", force=True, **options)
    return np.load("a.npy")


# Reading


@pytest.mark.parametrize(
    ("encoding", "letters"),
    [
        ("utf-8", "a\xe9\u20ac\U0001f600"),
        ("utf-8-sig", "a\xe9\u20ac"),
        ("utf-16", "a\xe9\u20ac\U0001f600"),
        ("utf-16-le", "\ufeffa\xe9\U0001f600"),
        ("UTF-16BE", "a\xe9"),
        ("utf-32", "a\xe9\U0001f600"),
        ("latin-1", "a\xe9"),
        ("cp1252", "a\xe9\u20ac"),
        ("cp437", "a\xe9"),
        ("shift_jis", "a\u3042"),
        ("gb18030", "a\u4e2d"),
        ("utf-7", "a\xe9"),
    ],
)
def test_encodings(encoding, letters):
    """Text of each encoding is read, and written, as by pandas."""
    frame = pd.DataFrame({letters: [letters * n for n in range(1, 60)], "n": range(59)})
    text = frame.to_csv(index=False)
    rows = read(text, encoding=encoding)
    expected = pd.read_csv("a.csv", encoding=encoding)
    assert [*expected] == [*rows.dtype.names]
    assert expected.to_numpy().tolist() == [[*row] for row in rows.tolist()]
    dataset.convert("a.npy", "b.csv", encoding=encoding)
    again = pd.read_csv("b.csv", encoding=encoding)
    assert expected.to_dict("list") == again.to_dict("list")


@pytest.mark.parametrize(
    ("encoding", "data", "found"),
    [
        ("utf-8", "a\n\xe9\n".encode("latin-1"), "UTF-8, found the byte 0xe9"),
        ("utf-8", "a\n1\n".encode("utf-16"), "UTF-8, found the byte 0xff"),
        ("ascii", "a\n\xe9\n".encode(), "ASCII, found the byte 0xc3"),
        ("utf-16", b"\xff\xfea\0\n\0x", "UTF-16, found the byte 0x78"),
        ("cp1252", b"a\n\x81\n", "CP1252, found the byte 0x81"),
    ],
)
def test_text_of_another_encoding(encoding, data, found):
    with open("a.csv", "wb") as fp:
        fp.write(data)
    message = "expected text in %s: .* convert --encoding names another" % found
    with pytest.raises(NotReadable, match=message):
        dataset.convert("a.csv", "a.npy", encoding=encoding)


@pytest.mark.parametrize("encoding", ["foo", "base64", "", "a\0b", "undefined"])
def test_no_encoding(encoding):
    np.save("a.npy", np.arange(3))
    with pytest.raises(UsageError, match="there is no encoding"):
        dataset.convert("a.npy", "b.csv", encoding=encoding)


def test_text_that_an_encoding_lacks():
    np.save("a.npy", np.array([("\u20ac",)], [("a", "U1")]))
    with pytest.raises(UsageError, match=r"text in LATIN-1 has no character '\\u20ac'"):
        dataset.convert("a.npy", "b.csv", encoding="latin-1")
    bp.pack_ndarray_to_file(np.array([(1,)], [("\u20ac", "i4")]), "a.blp")
    with pytest.raises(UsageError, match=r"LATIN-1 has no .*; convert --rename"):
        dataset.convert("a.blp", "b.csv", encoding="latin-1")
    assert not os.path.exists("b.csv")


def test_decimal_points():
    """Numbers are those of pandas. A point is no decimal comma, and no separator."""
    random.seed(1)
    lines = ["f;i;c;mixed;text;point"]
    for n in range(200):
        number = repr(random.uniform(-1e6, 1e6) * 10 ** random.randint(-20, 20))
        number = number.replace(".", ",")
        mixed = str(n) if n % 3 else "%d,5" % n
        lines.append(";".join([number, str(n), "(1,5+2j)", mixed, "a,b", "1.%d" % n]))
    lines.append("NA;7;1,5j;;x;1.5")
    rows = read("\n".join(lines), delimiter=";", decimal=",", dtypes={"c": "c16"})
    expected = pd.read_csv("a.csv", sep=";", decimal=",")
    for name in ("f", "i", "mixed"):
        assert expected[name].dtype == rows[name].dtype
        assert expected[name].to_numpy().tobytes() == rows[name].tobytes()
    assert [1.5 + 2j] * 200 + [1.5j] == rows["c"].tolist()
    assert expected["text"].tolist() == rows["text"].tolist()
    assert expected["point"].tolist() == rows["point"].tolist()
    dataset.convert("a.npy", "b.csv", delimiter=";", decimal=",")
    again = pd.read_csv("b.csv", sep=";", decimal=",")
    pd.testing.assert_frame_equal(expected.drop(columns="c"), again.drop(columns="c"))
    dataset.convert("a.npy", "c.csv", decimal=",")
    with open("c.csv") as fp:
        assert '"(1,5+2j)"' in fp.read()
    pd.testing.assert_frame_equal(again, pd.read_csv("c.csv", decimal=","))


def test_a_wrong_decimal_point():
    message = "line 3: expected values of dtype 'float64', found '1.5'"
    with pytest.raises(UsageError, match=message):
        read("a;b\n1,5;1\n1.5;2\n", delimiter=";", decimal=",", dtypes={"a": "f8"})
    for decimal in (";", "", "..", "1", "\n"):
        with pytest.raises(UsageError, match="a decimal point is "):
            read("a\n1\n", decimal=decimal)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_skipped_lines(end, encoding):
    """Lines are skipped whatever is in them, and are counted in messages."""
    before = ['# made by a program of 5" disks', "", "units: m, s", "x" * 300, "-"]
    for count in range(len(before) + 1):
        text = end.join([*before[:count], "a,b", "1,2", "3,4", ""])
        rows = read(text, encoding=encoding, skip_lines=count)
        expected = [[1, 2], [3, 4]]
        assert expected == [[*row] for row in rows.tolist()]
        with pytest.raises(FormatError, match="found '3' in line %d" % (count + 4)):
            read(text + "5,6,7", encoding=encoding, skip_lines=count)
    with open("a.csv", "wb") as fp:
        fp.write(b"\xe9" * 9 + ("\n" + end.join(["a,b", "1,2", "3,4"])).encode())
    dataset.convert("a.csv", "b.npy", skip_lines=1, force=True)
    assert [(1, 2), (3, 4)] == np.load("b.npy").tolist()
    for count in (len(before) + 4, 1000):
        with pytest.raises(FormatError, match="expected a line of names, found none"):
            read(text, encoding=encoding, skip_lines=count)
    for count in (-1, 0.5):
        with pytest.raises((UsageError, TypeError)):
            read(text, encoding=encoding, skip_lines=count)


def test_a_long_line_that_is_skipped_is_not_kept(monkeypatch):
    monkeypatch.setattr(csv_files, "PART_NBYTES", 2**16)
    for end in "\n", "\r\n", "\r":
        with open("a.csv", "w", newline="") as fp:
            fp.write("x" * 2**24 + end + "a,b" + end + "1,2" + end)
        tracemalloc.start()
        dataset.convert("a.csv", "b.npy", skip_lines=1, force=True)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert [(1, 2)] == np.load("b.npy").tolist()
        assert peak < 2**23


# Times


@pytest.mark.parametrize(
    ("values", "unit"),
    [
        (["2020-01-01", "1600-02-29"], "D"),
        (["2020-01-01", "2020-01-01T10:11"], "s"),
        (["2020-01-01 10:11:12", "0001-01-01 00:00:00"], "s"),
        (["2020-01-01T00:00:00.000", "9999-12-31"], "s"),
        (["2020-01-01T00:00:00.120", "9999-12-31"], "ms"),
        (["2020-01-01T00:00:00.1234560", "9999-12-31T23:59:59"], "us"),
        (["2020-01-01T00:00:00.123456789", "1700-01-01"], "ns"),
        (["2020-01-01", "", "NaT", "NA", "null"], "D"),
        (["2020-01-01T12:00:00Z", "2020-01-01T12:00:00.5+02:00"], "ms"),
    ],
)
@pytest.mark.parametrize("count", [1, 40])
def test_times(values, unit, count):
    """The unit is the coarsest one that holds all, wherever they are in the file."""
    values = [values[0]] * count + values[1:]
    rows = read("t,n\n" + "".join("%s,1\n" % value for value in values), times=True)
    assert np.dtype("M8[%s]" % unit) == rows["t"].dtype
    for value, found in zip(values, rows["t"].tolist(), strict=True):
        if value in ("", "NaT", "NA", "null"):
            assert found is None
        elif unit != "ns":
            expected = pd.Timestamp(value)
            expected = expected.tz_convert(None) if expected.tz else expected
            assert expected == pd.Timestamp(found)
    if unit == "ns":
        expected = pd.to_datetime(pd.Series(values), format="ISO8601").to_numpy(
            "M8[ns]"
        )
        assert expected.tolist() == rows["t"].tolist()


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (
            ["2020-01-01", "2020-02-02", "soon"],
            "not all .*t=M8.us..* names",
        ),
        (["soon", "2020-01-01", "2020-02-02"], "not all of its values"),
        (["2020-01-01", "2020-02-30"], "not all of its values"),
        (["2020-01-01", "2020-01-01T10:11:12Z"], "only some .* time zone; .* names"),
        (
            ["1600-01-01"] * 200 + [" 2020-01-01T00:00:00.123456789"] * 200,
            "not all of its values",
        ),
        (["2020-01-01"] * 100 + ["1"], "not all of its values"),
    ],
)
def test_times_that_stay_text(values, why):
    """The values are those of the file, and a notice says why."""
    text = "t,n\n" + "".join("%s,1\n" % value for value in values)
    with pytest.warns(
        RuntimeWarning, match="the column 't' of 'a.csv' becomes text: .*" + why
    ):
        rows = read(text, times=True)
    assert values == rows["t"].tolist()


@pytest.mark.parametrize("lines", [2, 100])
@pytest.mark.parametrize("zone", ["Z", "+02:00", "-0530"])
@pytest.mark.parametrize("first", [True, False])
def test_times_of_which_some_have_a_zone(monkeypatch, lines, zone, first):
    """Times without one are not taken for UTC, also not in another part of the file."""
    monkeypatch.setattr(csv_files, "PART_NBYTES", 64)
    zones = ["", zone] if first else [zone, ""]
    value = "2026-01-05T10:00:00"
    text = "t,n\nNaT,1\n" + (value + zones[0] + ",1\n") * lines
    expected = "line %d: .* time zone in all .* found '%s'"
    match = expected % (lines + 3, re.escape(value + zones[1]))
    dataset.create_table("a.zarr", {"t": np.zeros(1, "M8[s]"), "n": [1]}).close()
    with open("b.csv", "w") as fp:
        fp.write(text + value + zones[1] + ",1\n")
    for target in ("b.npy", "b.zarr", "b.csv.csv"):
        with pytest.raises(UsageError, match=match):
            dataset.convert("b.csv", target, dtypes={"t": "M8[s]"})
    with pytest.raises(SystemExit):
        main(["append", "a.zarr", "b.csv"])
    assert 1 == len(dataset.open("a.zarr"))


@pytest.mark.parametrize("options", [[], ["--create"]])
def test_a_notice_of_an_append_names_the_zone(capsys, options):
    frame = pd.DataFrame({"t": pd.to_datetime(["2026-01-05T10:00:00+02:00"])})
    frame.to_csv("a.csv", index=False)
    frame.to_parquet("a.parquet")
    for source, reading in (("a.csv", ["--times"]), ("a.parquet", [])):
        main(["convert", *reading, source, "a.npy"])
        told = capsys.readouterr().err
        assert "time zone of the column 't'" in told
        target = source + ".zarr"
        if not options:
            dataset.create_table(target, {"t": np.zeros(1, "M8[us]")}).close()
        main(["append", *options, *reading, target, source])
        assert told.replace("a.npy", target) == capsys.readouterr().err
        found = dataset.open(target)["t"][-1]
        assert frame["t"].dt.tz_convert(None)[0] == pd.Timestamp(found)
        os.remove("a.npy")


def test_times_only_on_demand():
    text = "t,n\n2020-01-01,20200101\n"
    with pytest.warns(RuntimeWarning, match="convert --times makes them times"):
        assert "U" == read(text)["t"].dtype.kind
    rows = read("t,word\n2020-01-01,soon\n2020-01-02,2020-01-01\n", times=True)
    assert ("M8[D]", "U10") == (rows["t"].dtype, rows["word"].dtype)
    rows = read(text, times=True, dtypes={"t": "U10"})
    assert ("U10", "i8") == (rows["t"].dtype, rows["n"].dtype)


@pytest.mark.parametrize("year", ["0001", "1600", "9999"])
def test_a_time_too_far_away_for_its_fraction(year):
    """NumPy would read another time."""
    value = "%s-01-01T00:00:00.1234567" % year
    with pytest.raises(
        UsageError, match="line 3: expected values .* found '%s'" % value
    ):
        read("t,n\n2020-01-01,1\n%s,1\n" % value, dtypes={"t": "M8[us]"})


# Calls


def test_options_that_are_only_for_csv():
    np.save("a.npy", np.arange(3))
    for options, what in (
        ({"decimal": ","}, "a decimal point is for CSV files$"),
        ({"encoding": "utf-8"}, "an encoding is for CSV files$"),
        ({"skip_lines": 0}, "lines to skip is for CSV files as the source"),
        ({"times": True}, "the search for times is for CSV files as the source"),
    ):
        with pytest.raises(UsageError, match=what):
            dataset.convert("a.npy", "b.npz", **options)
    with pytest.raises(UsageError, match="as the source"):
        dataset.convert("a.npy", "b.csv", times=True)


# Hostile files


def test_a_long_text_behind_many_short_ones(monkeypatch):
    """The rows of a block follow the texts that are in it, and not the longest one."""
    monkeypatch.setattr(datasets, "TABLE_NBYTES", 30_000)
    monkeypatch.setattr(parquet_files, "BLOCK_TEXT_NBYTES", 4000)
    with open("a.csv", "w") as fp:
        fp.write("n,text\n" + "1,x\n" * 5000 + "2,%s\n" % ("x" * 10_000))
    blocks = []
    dataset.convert("a.csv", "b.zarr", progress=blocks.append)
    assert 100 > len(blocks)
    with dataset.open("b.zarr") as found:
        assert ["x", "x" * 10_000] == found["text"][4999:].tolist()


def test_a_quote_that_never_closes(monkeypatch):
    """Not much more than the longest line is read."""
    monkeypatch.setattr(csv_files, "MAX_LINE", 10_000)
    monkeypatch.setattr(contents, "BLOCK_NBYTES", 100)
    with open("a.csv", "w") as fp:
        fp.write('n,text\n1,"x\n' + "1,2\n" * 100_000)
    lengths = []
    ends = csv_files._end_of_lines
    monkeypatch.setattr(
        csv_files, "_end_of_lines", lambda t, d: lengths.append(len(t)) or ends(t, d)
    )
    with pytest.raises(FormatError, match="lines of at most '10000' bytes"):
        dataset.convert("a.csv", "b.npy")
    assert 10_200 > max(lengths)


# Other programs


def test_random_tables():
    """What Python's `csv` and pandas write and read is read and written here."""
    random.seed(2)
    letters = ['"', ",", "\n", "\r", "\r\n", " ", "a", "\xe9", "1", ";", "'", "\t", "#"]
    for number in range(60):
        width, encoding = random.randint(1, 4), random.choice(["utf-8", "utf-16"])
        mark = random.choice(",;\t|")
        names = ["n%d" % i for i in range(width)]
        rows = [
            [
                "x" + "".join(random.choices(letters, k=random.randint(0, 5)))
                for _ in names
            ]
            for _ in range(random.randint(1, 30))
        ]
        quoting = random.choice([csv.QUOTE_ALL, csv.QUOTE_MINIMAL])
        with open("a.csv", "w", encoding=encoding, newline="") as fp:
            writer = csv.writer(fp, delimiter=mark, quoting=quoting)
            writer.writerows([names, *rows])
        options = {"delimiter": mark, "encoding": encoding, "force": True}
        dataset.convert("a.csv", "a.npy", **options)
        assert rows == [[*row] for row in np.load("a.npy").tolist()], number
        dataset.convert("a.npy", "b.csv", **options)
        with open("b.csv", encoding=encoding, newline="") as fp:
            assert [names, *rows] == [*csv.reader(fp, delimiter=mark)]
        frame = pd.read_csv(
            "b.csv", sep=mark, encoding=encoding, dtype=str, keep_default_na=False
        )
        assert rows == frame.to_numpy().tolist()
