"""Tables and arrays are converted from and to CSV, Parquet and any Zarr store."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
import subprocess
import sys
import time
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from support import growth_of_memory

import bloscpack as bp
from bloscpack import dataset
from bloscpack.dataset.conversion import contents, csv_files, datasets, parquet_files
from bloscpack.exceptions import FormatError, UsageError


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch, tmp_path):
    """Make even small tables several blocks."""
    monkeypatch.setattr(contents, "BLOCK_NBYTES", 1000)
    monkeypatch.setattr(csv_files, "WRITTEN_VALUES", 70)
    monkeypatch.chdir(tmp_path)


DTYPES = "? i1 u2 i4 >i8 u8 f2 f4 >f8 S5 U7 M8[D] M8[s] M8[ns]"


def table(dtypes=DTYPES, length=100):
    numbers = np.arange(length)
    columns = {}
    for dtype in map(np.dtype, dtypes.split()):
        items = numbers.astype(dtype)
        if dtype.kind == "f":
            items = np.where(numbers % 7, numbers / 3, np.nan).astype(dtype)
        elif dtype.kind == "u":
            items[0] = np.iinfo(dtype).max
        elif dtype.kind == "i":
            items[0] = np.iinfo(dtype).min
        elif dtype.kind == "M":
            items[5] = "NaT"
        elif dtype.kind in "US":
            texts = np.array(["", "a,b", 'say "x"', "two\nlines", "NA", "1"])
            items = texts[numbers % 6].astype(dtype)
        columns["c_%s" % dtype.str[1:].strip("[]").replace("[", "_")] = items
    return columns


def rows_of(columns):
    with dataset.create_table("rows", columns, mode="w") as made:
        return made[:]


def assert_same(expected, found):
    assert expected.dtype.names == found.dtype.names
    for name in expected.dtype.names:
        assert expected[name].dtype == found[name].dtype, name
        assert expected[name].tobytes() == found[name].tobytes(), name


class TestCsv:
    @pytest.fixture(autouse=True)
    def pyarrow(self, tmp_path):
        pytest.importorskip("pyarrow.csv", reason="needs the extra 'tables'")
        self.folder = tmp_path

    def test_all_types(self):
        rows = rows_of(table())
        np.save("a.npy", rows)
        dataset.convert("a.npy", "b.csv")
        dtypes = {name: rows.dtype[name].str for name in rows.dtype.names}
        dataset.convert("b.csv", "c.npy", dtypes=dtypes)
        assert_same(rows, np.load("c.npy"))

    def test_types_from_text(self):
        expected = table("? i8 u8 f8 U7")
        np.save("a.npy", rows_of(expected))
        dataset.convert("a.npy", "b.csv")
        for name in ("c.superchunk", "d.zarr", "e.csv", "f.npy"):
            dataset.convert("b.csv" if name < "e" else "d.zarr", name)
        assert_same(rows_of(expected), dataset.open("c.superchunk")[:])
        assert_same(rows_of(expected), np.load("f.npy"))
        found = dataset.open("d.zarr")[:]
        assert "O" == found.dtype["c_U7"]
        assert_same(rows_of(expected), found.astype(rows_of(expected).dtype))
        with open("b.csv") as b, open("e.csv") as e:
            assert b.read() == e.read()

    def test_pandas_reads_it(self):
        pandas = pytest.importorskip("pandas")
        np.save("a.npy", rows_of(table("i4 f4 f8 U7 M8[D]")))
        dataset.convert("a.npy", "b.csv")
        settings = {"keep_default_na": False, "na_values": {"c_f8": ""}}
        if pandas.__version__ < "3":  # its default may be wrong in the last digit
            settings["float_precision"] = "round_trip"
        found = pandas.read_csv("b.csv", **settings)
        expected = np.load("a.npy")
        assert expected["c_i4"].tolist() == found["c_i4"].tolist()
        assert expected["c_U7"].tolist() == found["c_U7"].tolist()
        np.testing.assert_array_equal(expected["c_f8"], found["c_f8"])

    @pytest.mark.parametrize(
        ("values", "dtype", "expected"),
        [
            (["1"] * 10 + ["2.5"], "f8", [1.0] * 10 + [2.5]),
            (["1"] * 10 + [""], "f8", [1.0] * 10 + [np.nan]),
            (["1"] * 10 + ["x"], "U1", ["1"] * 10 + ["x"]),
            (["1.50"] * 10 + ["x"], "U4", ["1.50"] * 10 + ["x"]),
            (["1"] * 10 + [str(2**64 - 1)], "u8", [1] * 10 + [2**64 - 1]),
            (["-1"] * 10 + [str(2**63 - 1)], "i8", [-1] * 10 + [2**63 - 1]),
            (["True"] * 10 + ["False"], "?", [True] * 10 + [False]),
            (["True"] * 10 + ["1"], "U4", ["True"] * 10 + ["1"]),
            (["NA"] * 10 + ["x"], "U2", ["NA"] * 10 + ["x"]),
            (["1"] * 10 + ["NA", "null"], "f8", [1.0] * 10 + [np.nan] * 2),
            (["NA", "null"] * 10, "U4", ["NA", "null"] * 10),
            ([""] * 10, "U1", [""] * 10),
            (["1", "-inf", "Infinity", "nan"], "f8", [1, -np.inf, np.inf, np.nan]),
            (["ä" * 9] * 10, "U9", ["ä" * 9] * 10),
            (["1"] * 10 + ["007"], "U3", ["1"] * 10 + ["007"]),
            (["1"] * 10 + [" -07"], "U4", ["1"] * 10 + [" -07"]),
            (["1"] * 10 + ["1_0"], "U3", ["1"] * 10 + ["1_0"]),
            (["1", " 2 ", "+3"], "i8", [1, 2, 3]),
            (["-1"] * 10 + [str(2**64 - 1)], "U20", ["-1"] * 10 + [str(2**64 - 1)]),
            (["1"] * 10 + ["9" * 50], "U50", ["1"] * 10 + ["9" * 50]),
            (["1.5", ""] * 5 + ["-01"], "U3", ["1.5", ""] * 5 + ["-01"]),
            (["0", "-0", "0.5", "00.5"], "f8", [0, 0, 0.5, 0.5]),
        ],
    )
    @pytest.mark.filterwarnings("ignore:the column 'x' of 'a.csv' becomes text")
    def test_widening(self, values, dtype, expected):
        with open("a.csv", "w", encoding="utf-8") as fp:
            fp.write("x,y\n" + "".join("%s,0\n" % value for value in values))
        for layout in ("zarr", "superchunk"):
            dataset.convert("a.csv", "b." + layout)
            found = dataset.open("b." + layout)["x"]
            has_text = layout == "zarr" and "U" in dtype
            assert ("O" if has_text else np.dtype(dtype)) == found.dtype
            np.testing.assert_array_equal(expected, found[:])

    @pytest.mark.filterwarnings("ignore:the first column of 'a.csv' has no name")
    def test_an_index_without_a_name(self):
        write = pytest.importorskip("pandas").DataFrame({"x": [5, 6]}).to_csv
        write("a.csv")
        dataset.convert("a.csv", "b.zarr")
        columns = dataset.open("b.zarr").columns
        found = {name: column[:].tolist() for name, column in columns.items()}
        assert {"index": [0, 1], "x": [5, 6]} == found

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("x\n" + "1\n" * 9 + "%d\n2.5\n" % (2**53 + 1), "column 'x'.*--dtype x=U"),
            ("x,y\n1,2\n1,2,3\n", "'2' values.*'3' in line 3"),
            ("x,y\n" + "1,2\n" * 9 + "\n \n3\n", "'2' values.*'1' in line 13.*a.csv"),
            ('x,y\n1,"\n"\n2\n', "'1' in line 4"),
            ("x,y,z\n1,2,3\n,\n", "'2' in line 3"),
            (
                "x,y\n%s,2\n3\n" % ("q" * 2**18),
                "behind line 1: .*2 columns, got 1: 3",
            ),
            ("x,y\n1,2,3\n1,2,3\n", "'2' values.*'3' in line 2"),
            ("x,x\n1,2\n", "different name.*'x'"),
            ("x,\n1,2\n", "without a name"),
            (",index\n1,2\n", "without a name"),
            ("", "a line of names, found none"),
            ("x\n\udcff\n", "text in UTF-8, found the byte 0xff: no character"),
            ("x\n" + "1\n" * 9 + "-1E400\n", "'x', line 11: the number '-1E400' is"),
            ("x\n0.5\n%s\n" % ("1" * 400), "column 'x'.*--dtype x=U"),
        ],
    )
    def test_errors(self, text, message):
        with open("a.csv", "wb") as fp:
            fp.write(text.encode("utf-8", "surrogateescape"))
        with pytest.raises((FormatError, UsageError), match=message):
            dataset.convert("a.csv", "b.zarr")
        assert ["a.csv"] == os.listdir()

    @pytest.mark.parametrize(
        ("dtypes", "message"),
        [
            ({"y": "i4"}, "no column 'y'; the columns are x"),
            ({"x": "M8[D]"}, "column 'x', line 2: expected values of dtype.*a.csv"),
            ({"x": "U1"}, "column 'x', line 2: .*at most 1 char.*, found 'abc'"),
            ({"x": "S2"}, "column 'x', line 2: .*at most 2 char.*, found 'abc'"),
            ({"x": "i4"}, "column 'x', line 2: .* dtype 'int32', found 'abc'"),
            ({"x": "?"}, "column 'x', line 2: .* dtype 'bool', found 'abc'"),
            ({"x": "f4"}, "column 'x', line 2: .* dtype 'float32', found 'abc'"),
            ({"x": "V4"}, "can't become"),
            ({"x": "q9"}, "no type"),
            ({"x": "M8"}, "has no unit"),
        ],
    )
    def test_wrong_types(self, dtypes, message):
        with open("a.csv", "w") as fp:
            fp.write("x\nabc\n")
        with pytest.raises(UsageError, match=message):
            dataset.convert("a.csv", "b.zarr", dtypes=dtypes)

    @pytest.mark.parametrize(
        ("value", "dtype", "message"),
        [
            ("2020-01-01T05:00", "M8[D]", "2020-01-01T05:00' does not fit"),
            ("2020-01-01T00:00:01.5", "M8[s]", "does not fit the dtype"),
            ("1600-01-01", "M8[ns]", "does not fit the dtype"),
            ("1e39", "f4", "'1e39' is too large for the dtype 'float32'"),
            ("2020-01-01T05:00+02:00", "M8[s]", "2020-01-01T03:00:00"),
            ("2020-01-01T05:00Z", "M8[m]", "2020-01-01T05:00"),
            ("2020-01-01T00:00", "M8[D]", "2020-01-01"),
            ("NA", "M8[D]", "NaT"),
            ("NA", "f8", "nan"),
        ],
    )
    def test_values_of_a_type(self, value, dtype, message):
        """A value that would be changed is refused; a time zone is reported."""
        with open("a.csv", "w") as fp:
            fp.write("x,y\n" + ",1\n" * 9 + value + ",1\n")
        if "fit" in message or "large" in message:
            with pytest.raises(UsageError, match="column 'x'.*" + message):
                dataset.convert("a.csv", "b.npy", dtypes={"x": dtype})
            return
        lost = dataset.convert("a.csv", "b.npy", dtypes={"x": dtype}).lost
        assert message == str(np.load("b.npy")["x"][-1])
        zone = "the time zone of the column 'x', whose times become UTC"
        assert [zone] * (value[-1] in "Z0" and value[10:16] != "T00:00") == lost

    @pytest.mark.parametrize("dtype", ["f2", ">f4", "f8"])
    def test_floats_of_any_width_stay_the_same(self, dtype):
        """Readers of CSV make floats of 64 bits of the text."""
        items = np.array([65504, 0.1, np.nan, -np.inf, 3e-8], dtype)
        if dtype != "f2":
            items[0] = 123456792
        np.save("a.npy", items)
        dataset.convert("a.npy", "b.csv")
        with open("b.csv") as fp:
            texts = fp.read().split("\n")[1:-1]
        found = np.array([float(text.strip('"') or "nan") for text in texts])
        np.testing.assert_array_equal(items.astype("f8"), found)

    def test_columns_that_are_read_as_another_type_are_named(self):
        np.save("a.npy", np.zeros(2, [("t", "M8[Y]"), ("c", "c8"), ("d", "M8[D]")]))
        lost = dataset.convert("a.npy", "b.csv").lost
        wanted = ["the unit 'Y' of the column 't'", "the type 'complex64' of the "]
        assert [wanted[0], wanted[1] + "column 'c'"] == lost

    def test_line_ends_and_missing_times(self):
        rows = np.zeros(3, [("x\r", "U4"), ("t", "m8[25s]"), ("d", "M8[s]")])
        rows["x\r"] = "a\rb", "\r\n", "c\n"
        rows["t"] = "NaT", 5, -1
        np.save("a.npy", rows)
        lost = dataset.convert("a.npy", "b.csv").lost
        assert ["the unit '25s' of the column 't'"] == lost
        with open("b.csv", newline="") as fp:
            date = ",1970-01-01T00:00:00\n"
            text = '"x\r",t,d\n"a\rb",' + date + '"\r\n",5' + date + '"c\n",-1' + date
            assert text == fp.read()
        dtypes = {"t": "m8[25s]", "d": "M8[s]"}
        dataset.convert("b.csv", "c.npy", dtypes=dtypes)
        assert rows.tolist() == np.load("c.npy").tolist()

    def test_times_of_the_other_byte_order(self):
        times = np.array(["2020-01-02T03:04:05", "NaT"], ">M8[s]")
        np.save("a.npy", times)
        dataset.convert("a.npy", "b.csv")
        with open("b.csv") as fp:
            assert '0\n2020-01-02T03:04:05\n""\n' == fp.read()

    def test_blank_texts_of_a_single_column(self):
        """They are in quotes; lines of blanks without quotes are no rows."""
        texts = np.array(["a", " ", "", "\t \f", "\r\n", " \n \n", "b\u2003", "\u2003"])
        np.save("a.npy", texts)
        dataset.convert("a.npy", "b.csv")
        with open("b.csv", newline="") as fp:
            written = fp.read()
        with open("b.csv", "w", newline="") as fp:
            fp.write(written.replace("\n", "\n \t\n\n", 2) + "  ")
        dataset.convert("b.csv", "c.npy")
        assert texts.tolist() == np.load("c.npy")["0"].tolist()

    @pytest.mark.parametrize("rows", ["x\n1\n%s2\n", "x,y\n1,1\n%s2,2\n"])
    @pytest.mark.parametrize("line", ["\n", " \r\n"])
    def test_many_blank_lines(self, rows, line):
        """A part of the file has nothing else."""
        with open("a.csv", "w", newline="") as fp:
            fp.write(rows % (line * 500))
        dataset.convert("a.csv", "b.npy")
        assert [1, 2] == np.load("b.npy")["x"].tolist()

    def test_the_line_of_a_value_behind_blank_lines(self):
        with open("a.csv", "w") as fp:
            fp.write('x\n  \n1\n\n" "\n2\n')
        with pytest.raises(UsageError, match=r"line 5: .* found ' '"):
            dataset.convert("a.csv", "b.npy", dtypes={"x": "i4"})

    def test_a_length_that_is_found(self):
        with open("a.csv", "w") as fp:
            fp.write("x,y\n1,abc\n22,d\n")
        dataset.convert("a.csv", "b.zarr", dtypes={"x": "U", "y": "S"})
        assert [("1", b"abc"), ("22", b"d")] == dataset.open("b.zarr")[:].tolist()

    @pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
    @pytest.mark.parametrize("is_misplaced", [False, True])
    def test_parts_of_any_size(self, monkeypatch, line_end, is_misplaced):
        """No value depends on where a part of the file ends."""
        texts = [
            "\ufeffb",
            "two\nlines",
            "\r\n",
            "\r",
            'say "hi"',
            '"',
            "",
            ",",
            "ä€😀",
        ]
        texts += ['5" pipe'] * is_misplaced
        with open("a.csv", "w", encoding="utf-8", newline="") as fp:
            writer = csv.writer(
                fp, quoting=csv.QUOTE_NONNUMERIC, lineterminator=line_end
            )
            writer.writerows([["text", "n"], *([text, 7] for text in texts)])
            if is_misplaced:  # quotes inside of a value without quotes
                fp.write('6" pipe,7%s"7"" ""pipe"",x",7' % line_end)
                texts += ['6" pipe', '7" "pipe",x']
        for size in range(1, 60):
            monkeypatch.setattr(contents, "BLOCK_NBYTES", size)
            dataset.convert("a.csv", "b.npy", force=True)
            assert texts == np.load("b.npy")["text"].tolist()
            assert {7} == set(np.load("b.npy")["n"].tolist())

    @pytest.mark.parametrize("value", ["abc", "1.5", " ", "0x1f", "1_0", "128", "+-1"])
    def test_line_of_a_wrong_value(self, value):
        rows = '"two\nlines",1\n\n' + "a,2\n" * 500
        with open("a.csv", "w") as fp:
            fp.write("x,y\n" + rows + "b,%s\n" % value + "c,3\n" * 500)
        message = r"column 'y', line 505: .* dtype 'int8', found '%s' .file 'a.csv'"
        with pytest.raises(UsageError, match=message % re.escape(value)):
            dataset.convert("a.csv", "b.npy", dtypes={"y": "i1"})

    def test_inexact_integer_of_any_block(self):
        """An integer that a float holds is a float, wherever it is in the file."""
        with open("a.csv", "w") as fp:
            fp.write("x,y\n" + "1,1\n" * 500)
            fp.write("%d,%d\n0.5,0.5\n" % (2**60, 2**60 + 1))
        with pytest.raises(UsageError, match=r"'y', line 502.*504606846977"):
            dataset.convert("a.csv", "b.npy")
        dataset.convert("a.csv", "b.npy", dtypes={"y": "U"})
        assert 2.0**60 == np.load("b.npy")["x"][500]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (
                "d\n2020-01-01\nNA\n",
                "'d' of 'a.csv' has times.*convert --times makes them times",
            ),
            ("d\n2020-01-01 10:00:59\n", "convert --times"),
            ("d\n2020-01-01T10:00:00.5Z\n", "convert --times"),
            ("d\n2020-01-01T10:00:00.123456789\n", "convert --times"),
            ("d\n2020-01-01T10:00:59+01:00\nNaT\n", "'d' of 'a.csv' has times"),
            ("x,d\n1, 2020-01-01T10:00\n", "'d' of 'a.csv' has times"),
            ("1,2.5\n3,4.5\n", "the first line of 'a.csv' has numbers"),
            ("2020-01-01,1e3\n1,2\n", "the first line of 'a.csv' has numbers"),
            ("d\n1.5\n2x\n", "'d' of 'a.csv' becomes text.*--dtype 'd=f8'"),
            ("d\n" + "1\n" * 500_000 + "x\n", "numbers, and 'x' in line 500002; .*=f8"),
            ("d\nx\n1\n2.5\n", "becomes text: it has numbers, and 'x' in line 2; "),
            ("d\nyes\ntrue\nFalse\n", "truth values, and 'yes' in line 2; .*=.'"),
            ("d\n-\n2020-01-01\n2021-01-01\n", "times, and '-' in line 2; .*M8"),
            ('d\n""\n1\n"a\nb"\n2\n', "numbers, and 'a.nb' in line 4; "),
            ("d\n" + "true\n" * 9 + "1\n", "truth values, and '1' in line 11; "),
            ("d\nx\n1\n", ""),
            ("d\n007\nx\n", ""),
            ("d\n007\n1\n2\n", ""),
            ("d\ntrue\nwords\nmore\n", ""),
            ("0,1\n3,4.5\n", ""),
            ("1,a\n3,4.5\n", ""),
            ("d\n2020-01-01\nx\n", ""),
        ],
    )
    def test_notices(self, text, message):
        with open("a.csv", "w") as fp:
            fp.write(text)
        with contextlib.ExitStack() as stack:
            if message:
                stack.enter_context(pytest.warns(RuntimeWarning, match=message))
            dataset.convert("a.csv", "b.npy")

    def test_words_for_the_present_time(self):
        with open("a.csv", "w") as fp:
            fp.write("d\n2020-01-01\ntoday\n")
        with pytest.raises(UsageError, match=r"line 3.* found 'today'"):
            dataset.convert("a.csv", "b.npy", dtypes={"d": "M8[D]"})

    @pytest.mark.parametrize(
        "value",
        [" ", "\t", "0", "1", "-", "+00", "1e", "2020-01-01T00:00+", '""', "T0"],
    )
    def test_linear_time(self, monkeypatch, value):
        """A pattern that goes back and forth would take minutes."""
        monkeypatch.undo()
        monkeypatch.chdir(self.folder)
        with open("a.csv", "w") as fp:
            fp.write("x,y\n" + (value * 20000 + "x,1\n") * 3)
        start = time.process_time()
        for dtype in ("U", "f8", "M8[s]", "i4"):
            with contextlib.suppress(UsageError):
                dataset.convert("a.csv", "b.npy", force=True, dtypes={"x": dtype})
        dataset.convert("a.csv", "b.npy", force=True)
        assert time.process_time() - start < 5

    def test_many_columns(self, monkeypatch):
        """A column is not read alone: that would parse the file for each of them."""
        monkeypatch.undo()
        monkeypatch.chdir(self.folder)
        count = 4000
        with open("a.csv", "w") as fp:
            fp.writelines(
                ",".join(map(str, range(i, i + count))) + "\n" for i in range(3)
            )
            fp.write(" \n" * 2000)
        start = time.process_time()
        dataset.convert("a.csv", "b.npz")
        assert time.process_time() - start < 8
        with np.load("b.npz") as found:
            assert [count, count + 1] == found[str(count - 1)].tolist()

    def test_memory_of_short_texts(self, monkeypatch):
        """The blocks of a table count the size of texts, not of references to them."""
        monkeypatch.undo()
        monkeypatch.chdir(self.folder)
        monkeypatch.setattr(datasets, "TABLE_NBYTES", 2**20)
        monkeypatch.setattr(contents, "BLOCK_NBYTES", 2**17)
        with open("a.csv", "w") as fp:
            fp.write(",".join("c%d" % i for i in range(50)) + "\n")
            fp.writelines(",".join(["ab%d" % i] * 50) + "\n" for i in range(4000))
        dataset.convert("a.csv", "b.zarr")
        tracemalloc.start()
        try:
            dataset.convert("a.csv", "c.zarr")
            assert tracemalloc.get_traced_memory()[1] < 6 * 2**20
        finally:
            tracemalloc.stop()
        assert ["ab3999"] * 50 == list(dataset.open("c.zarr")[-1])

    def test_longer_text_in_a_later_part(self):
        """A text has any length, whatever the first part of the file has."""
        texts = ["a"] * 999 + ["", "NA", "a text that is longer"]
        with open("a.csv", "w") as fp:
            fp.write("x,y\n" + "".join("%s,0\n" % text for text in texts))
        dataset.convert("a.csv", "b.zarr")
        with dataset.open("b.zarr", "r+") as table:
            assert texts == table["x"][:].tolist()
            table.append({"x": np.array(["b" * 100, None], object), "y": [1, 2]})
            assert ["b" * 100, ""] == table["x"][-2:].tolist()
            assert [False, True] == table["x_missing"][-2:].tolist()

    def test_pandas_is_not_imported(self):
        """It takes longer than a small file."""
        pytest.importorskip("pyarrow", "26", reason="pyarrow imports pandas")
        with open("a.csv", "w") as fp:
            fp.write("a,b,c,d,e\n1,0.5,true,x,2020-01-01\n2,NA,false,,NaT\n")
        code = (
            "import sys; from bloscpack import dataset\n"
            "dataset.convert('a.csv', 'b.npy', dtypes={'e': 'M8[D]'})\n"
            "assert 'pyarrow' in sys.modules and 'pandas' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", code], check=True)
        assert (1, 0.5, True, "x") == np.load("b.npy")[0].tolist()[:4]

    def test_a_name_that_no_archive_holds(self):
        with open("a.csv", "w") as fp:
            fp.write("x" * 2**16 + "\n1\n")
        with pytest.raises(UsageError, match="has at most '65535' bytes, found 'xxx"):
            dataset.convert("a.csv", "b.npz")

    @pytest.mark.parametrize("nbytes", [0, 16, 40, 10**6])
    def test_columns_that_are_read_together(self, monkeypatch, nbytes):
        monkeypatch.setattr(csv_files, "COLUMNS_NBYTES", nbytes)
        expected = {"a": [1, 2], "b": [0.5, 7.0], "c": ["x", "yy"], "d": [3, 4]}
        with open("a.csv", "w") as fp:
            fp.write("a,b,c,d\n1,0.5,x,3\n2,7.0,yy,4\n")
        dataset.convert("a.csv", "b.npz")
        with np.load("b.npz") as found:
            assert expected == {name: found[name].tolist() for name in found}

    def test_arrays(self):
        np.save("a.npy", np.arange(6).reshape(3, 2))
        dataset.convert("a.npy", "b.csv")
        with open("b.csv") as fp:
            assert "0,1\n0,1\n2,3\n4,5\n" == fp.read()
        np.save("a.npy", np.zeros((2, 2, 2)))
        with pytest.raises(UsageError, match="one or two axes"):
            dataset.convert("a.npy", "c.csv")
        np.save("a.npy", np.zeros(3, [("x", "f8", 2)]))
        with pytest.raises(UsageError, match="CSV can't hold the column 'x'"):
            dataset.convert("a.npy", "c.csv")
        np.save("a.npy", np.array([b"\xff"]))
        with pytest.raises(UsageError, match="column '0': expected text in UTF-8"):
            dataset.convert("a.npy", "c.csv")
        assert not os.path.exists("c.csv")

    def test_a_block_of_long_text(self):
        """The shards of a table are made for the size of its texts."""
        with open("a.csv", "w") as fp:
            fp.write("x\n" + "y\n" * 5000 + ("z" * 40_000 + "\n") * 1000)
        dataset.convert("a.csv", "b.zarr")
        with dataset.open("b.zarr") as found:
            assert found["x"].shards[0] * 40_000 <= 2 * parquet_files.BLOCK_TEXT_NBYTES
            assert 40_000_000 + 5000 == sum(map(len, found["x"][:]))


class TestParquet:
    @pytest.fixture(autouse=True)
    def pyarrow(self):
        pytest.importorskip("pyarrow.parquet")
        return pytest.importorskip("pyarrow")

    def write(self, pyarrow, array, name="x"):
        made = pyarrow.table({name: array})
        pyarrow.parquet.write_table(made, "a.parquet")

    def test_all_types(self):
        columns = table(DTYPES.replace("M8[s]", "M8[ms]") + " V3 m8[s] m8[ns]")
        columns["axes"] = np.arange(1200, dtype="i2").reshape(100, 4, 3)
        with dataset.create_table("a", columns, layout="bcolz", attrs={"a": 1}) as made:
            made["axes"].attrs["unit"] = "m"
            rows = made[:]
        assert [] == dataset.convert("a", "b.parquet").lost
        assert [] == dataset.convert("b.parquet", "c", to="bcolz").lost
        with dataset.open("c") as found:
            assert {"a": 1} == dict(found.attrs)
            assert {"unit": "m"} == dict(found["axes"].attrs)
            found = found[:]
        native = rows.astype(
            [(n, t[0].newbyteorder("=")) for n, t in rows.dtype.fields.items()]
        )
        assert_same(native, found)

    def test_other_programs(self, pyarrow):
        np.save("a.npy", rows_of(table()))
        dataset.convert("a.npy", "b.parquet")
        found = pyarrow.parquet.read_table("b.parquet")
        assert 100 == found.num_rows
        assert np.load("a.npy")["c_U7"].tolist() == found["c_U7"].to_pylist()

    def test_masked_columns(self, pyarrow):
        columns = {
            "i": np.ma.masked_array([1, 0, 3], [False, True, False], "i2"),
            "s": np.ma.masked_array(["x", "yz", ""], [False, True, False]),
            "n_missing": [True, False, True],
        }
        with dataset.create_table("a", columns) as made:
            made["i"].attrs["unit"] = "m"
            made["s_missing"].attrs["by"] = "me"
        lost = ["the attributes of the column 's_missing'"]
        assert lost == dataset.convert("a", "b.parquet").lost
        found = pyarrow.parquet.read_table("b.parquet")
        assert ["i", "s", "n_missing"] == found.column_names
        assert [1, None, 3] == found["i"].to_pylist()
        assert ["x", None, ""] == found["s"].to_pylist()
        assert columns["n_missing"] == found["n_missing"].to_pylist()

    def test_missing_values(self, pyarrow):
        self.write(pyarrow, pyarrow.array([1.5, None]))
        dataset.convert("a.parquet", "b.npy")
        np.testing.assert_array_equal([1.5, np.nan], np.load("b.npy")["x"])
        self.write(pyarrow, pyarrow.array([None, 5], pyarrow.timestamp("ms")))
        dataset.convert("a.parquet", "b.npy", force=True)
        assert ["NaT", "1970-01-01T00:00:00.005"] == np.load("b.npy")["x"].astype(
            str
        ).tolist()
        for values in ([1, None], ["a", None], [True, None], [b"a", None]):
            self.write(pyarrow, pyarrow.array(values))
            done = dataset.convert("a.parquet", "b.npy", force=True)
            assert ["the missing values of the column 'x' (the column"] == [
                lost.partition(" 'x_missing'")[0] for lost in done.lost
            ]
            assert [False, True] == np.load("b.npy")["x_missing"].tolist()
        self.write(pyarrow, pyarrow.array([None]))
        with pytest.raises(UsageError, match=r"a\.parquet.*'x'.* values are missing"):
            dataset.convert("a.parquet", "c.npy")

    @pytest.mark.parametrize("layout", ["zarr", "superchunk", "bcolz"])
    @pytest.mark.parametrize(
        ("values", "kind", "encoded", "plain"),
        [
            ([1, None, 3], "int16", False, [1, 0, 3]),
            (["a", None, "ä€"], "string", False, ["a", "", "ä€"]),
            ([None, None, True], "bool_", False, [False, False, True]),
            ([b"abc", None, b"d"], "binary", False, [b"abc", b"", b"d"]),
            (["b", None, "b"], "string", True, ["b", "", "b"]),
        ],
    )
    def test_missing_values_of_a_table(
        self, pyarrow, layout, values, kind, encoded, plain
    ):
        made = pyarrow.array(values, getattr(pyarrow, kind)())
        self.write(pyarrow, made.dictionary_encode() if encoded else made)
        assert [] == dataset.convert("a.parquet", "c", to=layout).lost
        with dataset.open("c") as found:
            assert ["x", "x_missing"] == found.names
            assert plain == found["x"][:].tolist()
            assert {"mask-of": "x"} == dict(found["x_missing"].attrs)
        dataset.convert("c", "d.parquet")
        assert values == pyarrow.parquet.read_table("d.parquet")["x"].to_pylist()

    def test_a_column_without_a_name(self, pyarrow):
        pyarrow.parquet.write_table(pyarrow.table({"": [1]}), "a.parquet")
        with pytest.raises(UsageError, match="a column without a name"):
            dataset.convert("a.parquet", "c", to="zarr")

    def test_two_masks_of_a_column(self, pyarrow):
        made = pyarrow.table({"x_missing": [1, 2], "x": [None, 1]})
        pyarrow.parquet.write_table(made, "a.parquet")
        with open("a.csv", "w") as fp:
            fp.write("x_missing,x\n1,\n2,1\n")
        options = {"a.parquet": {}, "a.csv": {"dtypes": {"x": "i8"}}}
        for source, given in options.items():
            with pytest.raises(
                UsageError, match="another column has the name 'x_missing'"
            ):
                dataset.convert(source, "c", to="zarr", **given)
        assert {"a.parquet", "a.csv"} == {*os.listdir()}
        for source, given in options.items():
            for number, (how, others) in enumerate(
                [
                    ({"rename": {"x_missing": "y"}}, {"y": [1, 2]}),
                    ({"rename": {"x": "z"}}, {"x_missing": [1, 2]}),
                    ({"exclude": ["x_missing"]}, {}),
                ]
            ):
                target = "%s.%d" % (source, number)
                dataset.convert(source, target, to="zarr", **given, **how)
                found = dataset.open(target).to_arrow().to_pydict()
                new = how.get("rename", {}).get("x", "x")
                assert {new: [None, 1], **others} == found

    @pytest.mark.parametrize(
        ("values", "message"),
        [
            ([[1], [2, 3]], "can't hold the column 'x' of type 'list"),
            ([{"a": 1}], "can't hold the column 'x' of type 'struct"),
            ([b"a\0"], "zero byte.*fixed_size_binary.*--exclude 'x' leaves"),
            (["a\0"], "zero byte.*Zarr keep text, and convert --exclude 'x' leaves"),
            (["ä\0"], "ends in a zero byte"),
        ],
    )
    def test_refused(self, pyarrow, values, message):
        self.write(pyarrow, pyarrow.array(values))
        with pytest.raises(UsageError, match=message):
            dataset.convert("a.parquet", "b.npy")
        assert ["a.parquet"] == os.listdir()

    def test_refused_target(self):
        np.save("a.npy", np.zeros(3, "c16"))
        with pytest.raises(UsageError, match="Parquet can't hold the column '0'"):
            dataset.convert("a.npy", "b.parquet")

    @pytest.mark.parametrize(
        ("index", "name"),
        [
            (list("xyz"), "index"),
            ([0, 1, 2], None),
            ([7, 8, 9], "index"),
            ([7, 9, 8], "index"),
            ([0, 2, 4], "index"),
            ([list("xyz"), [0, 1, 2]], "level_0"),
        ],
    )
    def test_indexes_of_pandas(self, index, name):
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame({"a": [1, 2, 3]}, index=index)
        frame.to_parquet("a.parquet", index=True)
        lost = dataset.convert("a.parquet", "b.zarr").lost
        stored = "the name '__index_level_0__', which becomes '%s'" % name
        assert [stored] * (name is not None) == lost[:1]
        with dataset.open("b.zarr") as found:
            assert "a" == found.names[0]
            assert [name] * (name is not None) == found.names[1:2]
        frame[:0].assign(a=[]).astype(object).to_parquet("a.parquet", index=False)
        dataset.convert("a.parquet", "c.npy")
        assert [("a", "<U1")] == np.load("c.npy").dtype.descr

    def test_text(self, pyarrow):
        texts = ["a", "", "bcd", "ä€😀"] * 50
        for values in (texts, texts[:3] * 50):
            for array in (
                pyarrow.array(values),
                pyarrow.array(values).dictionary_encode(),
                pyarrow.array(values, pyarrow.large_string()),
            ):
                self.write(pyarrow, array)
                dataset.convert("a.parquet", "b.npy", force=True)
                assert values == np.load("b.npy")["x"].tolist()

    def test_a_long_text_of_many_rows(self, pyarrow, monkeypatch):
        """The text is in the memory once, not once for each row."""
        indices = pyarrow.array(np.zeros(2000, "i4"))
        text = pyarrow.DictionaryArray.from_arrays(indices, ["x" * 10**6])
        self.write(pyarrow, text)
        lengths_of, used = parquet_files.lengths_of, []

        def watched(array, kind):
            used.append(pyarrow.total_allocated_bytes())
            return lengths_of(array, kind)

        monkeypatch.setattr(parquet_files, "lengths_of", watched)
        before = pyarrow.total_allocated_bytes()
        request = contents.Request("", fixed_text=True)
        with request.resources:
            found = parquet_files.read("a.parquet", request)
        assert np.dtype("U1000000") == found.columns["x"].dtype
        assert max(used) - before < 10**8

    def test_a_long_row_that_is_missing(self, pyarrow, monkeypatch):
        """It is refused before it is made."""
        self.write(pyarrow, pyarrow.array([None], pyarrow.list_(pyarrow.int8(), 2**20)))
        monkeypatch.setattr(pyarrow.parquet.ParquetFile, "iter_batches", None)
        with pytest.raises(UsageError, match="'x' has missing values"):
            dataset.convert("a.parquet", "b.npy")
        nothing = pyarrow.list_(pyarrow.int8(), 0)
        for kind in (
            pyarrow.list_(pyarrow.int64(), 2**27 + 1),
            pyarrow.list_(nothing, 2**31 - 1),
        ):
            schema = pyarrow.schema([("x", kind)])
            pyarrow.parquet.write_table(schema.empty_table(), "a.parquet")
            why = "'x': a row has more than '67108864'"
            with pytest.raises(UsageError, match=why):
                dataset.convert("a.parquet", "b.npy")

    def test_a_row_that_is_too_long_to_be_read_is_not_written(self, pyarrow):
        for count, why in ((2**23, None), (2**23 + 1, "row has more than '67108864'")):
            np.save("a.npy", np.zeros(1, [("x", "i8", (count,))]))
            if why is None:
                dataset.convert("a.npy", "a.parquet")
                assert count * 8 == dataset.convert("a.parquet", "b.npy").nbytes
            else:
                with pytest.raises(UsageError, match=why):
                    dataset.convert("a.npy", "c.parquet")

    @pytest.mark.parametrize(("target", "count"), [("b.zarr", 5000), ("b.csv", 1500)])
    def test_long_text_that_follows_short_text(self, pyarrow, target, count):
        """Rows are read and written by the size of the texts, in limited memory."""
        pytest.importorskip("resource")
        indices = np.repeat(np.arange(2, dtype="i4"), [8 * count, count])
        text = pyarrow.DictionaryArray.from_arrays(indices, ["", "x" * 40_000])
        self.write(pyarrow, text)
        assert os.path.getsize("a.parquet") < 10_000
        assert growth_of_memory("a.parquet", target) < 250 * 1024

    @pytest.mark.parametrize(
        "text",
        [
            *(b"[" * 10**5, b"{", b"\xff", b'{"a":' * 10**5),
            b'{"a": %s1%s}' % (b"[" * 200, b"]" * 200),
        ],
    )
    def test_wrong_attributes(self, pyarrow, text):
        metadata = {b"bloscpack.attributes": text}
        field = pyarrow.field("x", pyarrow.int64(), metadata=metadata)
        for schema in (
            pyarrow.schema([field]),
            pyarrow.schema([("x", pyarrow.int64())], metadata),
        ):
            made = pyarrow.table({"x": [1]}, schema)
            pyarrow.parquet.write_table(made, "a.parquet")
            with pytest.raises(FormatError, match="attributes: "):
                dataset.convert("a.parquet", "b.npy")

    def test_text_that_is_no_utf8(self, pyarrow):
        buffers = pyarrow.array([b"\xff"]).buffers()
        self.write(pyarrow, pyarrow.Array.from_buffers(pyarrow.string(), 1, buffers))
        with pytest.raises(FormatError, match="UTF8"):
            dataset.convert("a.parquet", "b.npy")

    def test_time_zone(self, pyarrow):
        self.write(pyarrow, pyarrow.array([5], pyarrow.timestamp("s", "UTC")))
        assert ["the time zone of the column 'x'"] == dataset.convert(
            "a.parquet", "b.npy"
        ).lost

    @pytest.mark.parametrize("size", [4, 100, 2000])
    def test_damage(self, size):
        np.save("a.npy", rows_of(table()))
        dataset.convert("a.npy", "b.parquet")
        with open("b.parquet", "r+b") as fp:
            fp.truncate(size)
        with pytest.raises(FormatError) as caught:
            dataset.convert("b.parquet", "c.npy")
        assert "b.parquet" == caught.value.filename
        assert not os.path.exists("c.npy")


# zarr warns of the types of text.
UNSTABLE = pytest.mark.filterwarnings("ignore:.*Zarr V3 specification")


class TestMissingValues:
    """Values that a mask names are missing in every format, and in show and diff."""

    @pytest.fixture(autouse=True)
    def source(self, pyarrow):
        columns = {
            "i": pyarrow.array([5, None, 7, None], "i2"),
            "u": pyarrow.array([255, None, 254, 0], "u1"),
            "b": [True, None, False, None],
            "s": ["x", None, "", "é"],
            "t": ["x", None, "y", None],
            "f": [0.5, None, 2.5, 1.5],
        }
        pyarrow.parquet.write_table(pyarrow.table(columns), "a.parquet")

    @pytest.fixture
    def pyarrow(self):
        pytest.importorskip("pyarrow.parquet")
        import pyarrow

        return pyarrow

    @pytest.mark.parametrize("first", ["zarr", "superchunk", "bcolz", "h5", "parquet"])
    @pytest.mark.parametrize("second", ["zarr", "bcolz", "nc", "parquet"])
    def test_diff_after_any_two_conversions(self, run, first, second):
        if {first, second} & {"h5", "nc"}:
            pytest.importorskip("h5py")
        dataset.convert("a.parquet", "b." + first)
        dataset.convert("b." + first, "c." + second)
        for path in ("b." + first, "c." + second):
            assert (0, "", "") == run("diff", "a.parquet", path)
        [row] = json.loads(run("show", "--json", "--rows", "1:2", path)[1])["parts"]
        assert {None} == {*row["rows"][0].values()}

    @pytest.mark.parametrize("end", ["parquet", "zarr", "nc"])
    def test_statistics(self, run, end):
        if end == "nc":
            pytest.importorskip("h5py")
        if end != "parquet":
            dataset.convert("a.parquet", "a." + end)
        [found] = json.loads(
            run("show", "--stats", "--json", "--fields", "i", "a." + end)[1]
        )["stats"]
        assert [5, 6, 7] == [found[key] for key in ("min", "mean", "max")]
        assert [2, 2] == [found["count"], found["missing"]]

    def test_csv(self, run):
        lost = dataset.convert("a.parquet", "a.csv").lost
        assert ["which texts of the column '%s' are missing" % n for n in "st"] == lost
        lines = Path("a.csv").read_text("utf-8").splitlines()
        assert ["i,u,b,s,t,f", "5,255,True,x,x,0.5", ",,,,,"] == lines[:3]
        options = "--dtype", "i=i2", "--dtype", "u=u1", "--dtype", "b=?"
        dataset.convert("a.csv", "b.zarr", dtypes={"i": "i2", "u": "u1"})
        assert (0, "", "") == run("diff", *options, "a.csv", "b.zarr")
        with dataset.open_table("b.zarr") as found:
            assert {"i", "u", "b"} == {*found._masks()}

    def test_booleans_and_large_integers_of_csv(self):
        Path("b.csv").write_text("b,n\nTrue,9007199254740993\n,\n")
        dataset.convert("b.csv", "b.zarr")
        with dataset.open_table("b.zarr") as found:
            assert ["b", "b_missing", "n", "n_missing"] == found.names
            assert [2**53 + 1, 0] == found["n"][:].tolist()
            assert [False, True] == found["b_missing"][:].tolist()

    def test_netcdf(self):
        xarray = pytest.importorskip("xarray")
        pytest.importorskip("h5netcdf")
        lost = dataset.convert("a.parquet", "a.nc").lost
        kept = ["the missing values of the column '%s' (the" % name for name in "bs"]
        assert kept == [text[: len(kept[0])] for text in lost]
        with xarray.open_dataset("a.nc", engine="h5netcdf") as found:
            np.testing.assert_array_equal([5, np.nan, 7, np.nan], found["i"])
            np.testing.assert_array_equal([255, np.nan, 254, 0], found["u"])

    @pytest.mark.parametrize("dtype", ["i1", "u1"])
    def test_hdf5_without_a_free_value(self, run, pyarrow, dtype):
        pytest.importorskip("h5py")
        info = np.iinfo(dtype)
        items = pyarrow.array([*range(info.min, info.max + 1), None], dtype)
        pyarrow.parquet.write_table(pyarrow.table({"x": items}), "b.parquet")
        assert 1 == len(dataset.convert("b.parquet", "b.h5").lost)
        assert (0, "", "") == run("diff", "b.parquet", "b.h5")

    @pytest.mark.parametrize("end", ["npy", "npz", "blp"])
    def test_formats_without_missing_values(self, end):
        lost = dataset.convert("a.parquet", "a." + end).lost
        named = [(name, name + "_missing") for name in "iubst"]
        assert [contents.MASKS % names for names in named] == lost

    def test_a_tree_of_bigfile(self, run):
        with dataset.create_table("b.zarr", {"i": np.ma.array([1, 2], mask=[0, 1])}):
            pass
        dataset.convert("b.zarr", "b.bigfile")
        assert "items differ" not in run("diff", "b.zarr", "b.bigfile")[1]
        [found] = json.loads(run("show", "--stats", "--json", "b.bigfile")[1])["stats"]
        assert ["i", 1, 1] == [found[key] for key in ("name", "count", "missing")]
        done = dataset.convert("b.bigfile", "b.npz")
        assert contents.MASKS % ("i", "i_missing") in done.lost


class TestZarr:
    @pytest.fixture(autouse=True)
    def zarr(self):
        zarr = pytest.importorskip("zarr", "3")
        return zarr

    @pytest.mark.parametrize("zarr_format", [2, 3])
    @pytest.mark.parametrize("target", ["b.zarr", "b.npz", "b.bcolz"])
    def test_array(self, zarr, zarr_format, target):
        items = np.arange(12000.0).reshape(100, 12, 10)
        made = zarr.create_array(
            "a",
            shape=items.shape,
            dtype=">f8",
            chunks=(7, 5, 10),
            zarr_format=zarr_format,
            attributes={"unit": "m"},
        )
        made[:] = items
        done = dataset.convert("a", target)
        assert ["the attributes"] * (target == "b.npz") == done.lost
        dataset.convert(target, "c.npy")
        np.testing.assert_array_equal(items, np.load("c.npy"))
        if target == "b.zarr":
            np.testing.assert_array_equal(items, zarr.open("b.zarr")[:])
            assert "m" == zarr.open("b.zarr").attrs["unit"]

    @UNSTABLE
    @pytest.mark.parametrize("store", ["a.zip", "a"])
    def test_group(self, zarr, store):
        opened = zarr.storage.ZipStore(store, mode="w") if "." in store else store
        group = zarr.create_group(opened, attributes={"a": 1})
        group.create_array("x", data=np.arange(20), chunks=3, dimension_names=["t"])
        inner = group.create_group("g")
        inner.create_array("y", data=np.float32(5))
        inner.create_array("z", data=np.array(["a", "bcd", ""]))
        if opened is not store:
            opened.close()
        assert ["the attributes", "the names of the axes"] == dataset.convert(
            store, "b.npz"
        ).lost
        with np.load("b.npz") as found:
            assert {"x", "g/y", "g/z"} == set(found.files)
            assert ["a", "bcd", ""] == found["g/z"].tolist()
        dataset.convert(store, "b.zarr")
        if opened is store:
            assert 5 == dataset.open("b.zarr")["g/y"][...]
            assert ("t",) == zarr.open("b.zarr")["x"].metadata.dimension_names
            assert {"a": 1} == dict(dataset.open("b.zarr").attrs)
            assert ["a", "bcd", ""] == dataset.open("b.zarr")["g/z"][:].tolist()

    @UNSTABLE
    def test_text_of_any_length(self, zarr):
        made = zarr.create_array("a", shape=(300,), dtype=str, chunks=(7,))
        made[:] = texts = ["ä" * (i % 9) for i in range(300)]
        dataset.convert("a", "b.npy")
        assert texts == np.load("b.npy").tolist()

    def test_fields(self, zarr):
        rows = np.zeros(50, [("x", "i4"), ("y", "f8")])
        rows["x"] = np.arange(50)
        made = zarr.create_array(
            "a", shape=(50,), dtype=rows.dtype, chunks=(7,), zarr_format=2
        )
        made[:] = rows
        dataset.convert("a", "b.zarr")
        assert_same(rows, dataset.open_table("b.zarr")[:])

    @pytest.mark.parametrize("kept", [60, 1400])
    def test_a_damaged_archive(self, zarr, kept):
        bp.savez("a.zip", x=np.arange(1000))
        content = bytearray(Path("a.zip").read_bytes())
        at = content.index(b"x/c/0")
        content[at + kept : at + kept + 9] = b"?" * 9
        Path("a.zip").write_bytes(content)
        for damaged in content, content[:-100], content[:300]:
            Path("a.zip").write_bytes(damaged)
            message = "the ZIP file is damaged|[Cc]hecksum|local header of the member"
            with pytest.raises(FormatError, match=message) as caught:
                dataset.convert("a.zip", "b.zarr")
            assert "a.zip" in caught.value.filename
            assert not os.path.exists("b.zarr")

    @pytest.mark.parametrize("source", ["a.zip", "a"])
    def test_arrays_that_zarr_has_no_shards_of(self, zarr, source):
        rows = np.zeros(5, [("p", "f8"), ("q", "i2")])
        arrays = {"a": np.arange(9), "s": np.int64(7), "st": rows, "g/t": np.float32(1)}
        bp.savez("a.zip", **arrays)
        with zipfile.ZipFile("a.zip") as archive:
            archive.extractall("a")
        assert [] == dataset.convert(source, "b.npz").lost
        with np.load("b.npz") as found:
            for name, array in arrays.items():
                np.testing.assert_array_equal(array, found[name])
        assert [] == dataset.convert(source, "b.zarr").lost
        assert_same(rows, dataset.open_table("b.zarr/st")[:])

    def test_files_beside_members(self, zarr):
        bp.savez("a.zip", a=np.arange(9), s=7)
        with zipfile.ZipFile("a.zip") as archive:
            archive.extractall("a")
        bp.pack_bytes_to_file(b"no array", "a/other.blp")
        os.rename("a/s.blp", "a/a.blp")
        lost = dataset.convert("a", "b.npz").lost
        assert ["the file 'a/a.blp'", "the file 'a/other.blp'"] == lost

    def test_damage(self, zarr):
        zarr.create_array("a", data=np.arange(100), chunks=10, zarr_format=2)
        with open("a/3", "wb") as fp:
            fp.write(b"no chunk")
        with pytest.raises(FormatError, match="zarr can't read it") as caught:
            dataset.convert("a", "b.npy")
        assert "a" == os.path.basename(caught.value.filename)
        assert ["a"] == os.listdir()
        with open("a/.zarray", "w") as fp:
            json.dump({"zarr_format": 2}, fp)
        with pytest.raises(FormatError):
            dataset.convert("a", "b.npy")

    def test_our_tables(self, zarr):
        np.save("a.npy", rows_of(table("i4 f8 U7")))
        dataset.convert("a.npy", "b.zarr")
        found = zarr.open("b.zarr")
        assert ["c_U7", "c_f8", "c_i4"] == sorted(found)
        for name in found:
            np.testing.assert_array_equal(np.load("a.npy")[name], found[name][:])


def test_a_sparse_file_is_refused_by_what_it_stores():
    """The size of a file with a hole says nothing about what a disk has to hold."""
    with open("a.npy", "wb") as fp:
        header = {"descr": "<f8", "fortran_order": False, "shape": (2**37,)}
        np.lib.format.write_array_header_1_0(fp, header)
        try:
            fp.truncate(fp.tell() + 2**40)
        except OSError:
            pytest.skip("no file here has a hole of 1 TiB")
    with pytest.raises(OSError, match=r"in a source of '[0-9]{1,5}' bytes, and only"):
        dataset.convert("a.npy", "b.zarr")
    assert ["a.npy"] == os.listdir()


def test_folders_whose_names_no_member_has_are_named():
    dataset.create_group("a.zarr").close()
    dataset.create_array("a.zarr/x\n", [1, 2]).close()
    dataset.create_array("a.zarr/y", [1, 2]).close()
    (lost,) = dataset.convert("a.zarr", "b.npz").lost
    assert "the folders 'x\n' of 'a.zarr'" == lost
