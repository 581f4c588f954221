"""``blpk show``: rows of files of all formats, statistics, and data for programs."""

from __future__ import annotations

import json
import os
import subprocess
from fractions import Fraction

import numpy as np
import pytest
from storage.servers import serving
from support import run_blpk

import bloscpack as bp
from bloscpack import dataset
from bloscpack.dataset.conversion.statistics import Summary

COUNT = 2000
NUMBERS = np.arange(COUNT) / 4
TABLE = np.zeros(COUNT, [("day", "M8[D]"), ("price", "f8"), ("name", "U5")])
TABLE["day"] = np.datetime64("2026-01-01") + np.arange(COUNT)
TABLE["price"] = NUMBERS
TABLE["name"] = np.array(["a", "Zoë", "1,2"])[np.arange(COUNT) % 3]
NESTED = np.zeros(3, [("x", "i2"), ("at", [("y", "f4"), ("z", "i1", (2,))])])
PLAIN = b"some words\nand more\n" * 100


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    return tmp_path


def make(name):
    """Write `TABLE` in a format that the end of the name says."""
    if name == "a.zip":
        bp.savez(name, **{"group/t": TABLE, "n": NUMBERS})
        return "a.zip/group/t"
    if name == "b.npz":
        np.savez(name, t=TABLE)
        return "b.npz/t"
    if name == "t.csv":
        pytest.importorskip("pyarrow")
    bp.pack_ndarray_to_file(TABLE, "source.blp", "10K")
    if name != "source.blp":
        dataset.convert("source.blp", name)
    if name == "t.bigfile":
        return name + "/price"
    return name


def lines(run, *arguments):
    code, said, errors = run("show", *arguments)
    assert (0, "") == (code, errors)
    return said.splitlines()


FORMATS = ["source.blp", "a.npy", "t.zarr", "t.superchunk", "t.bcolz"]


@pytest.mark.parametrize("name", [*FORMATS, "a.zip", "b.npz"])
def test_first_and_last_rows_of_a_table(run, name):
    found = lines(run, make(name))
    assert ["day", "price", "name"] == found[3].split()
    assert ["<M8[D]", "<f8", "<U5"] == found[4].split()
    assert ["0", "2026-01-01", "0.0", "a"] == found[5].split()
    assert ["4", "2026-01-05", "1.0", "Zoë"] == found[9].split()
    assert {"..."} == set(found[10].split())
    assert ["1999", "2031-06-23", "499.75", "Zoë"] == found[15].split()
    assert 16 == len(found)


def test_csv_keeps_what_csv_has(run):
    assert ["1999", "2031-06-23", "499.75", "Zoë"] == lines(run, make("t.csv"))[
        15
    ].split()


def test_csv_with_a_delimiter(run):
    pytest.importorskip("pyarrow")
    with open("t.csv", "w") as fp:
        fp.write("x;y\n1;2,5\n")
    assert ["0", "1", "2,5"] == lines(run, "--delimiter", ";", "t.csv")[5].split()
    np.save("a.npy", NUMBERS)
    code, _, err = run("show", "--delimiter", ";", "a.npy")
    assert (2, True) == (code, "--delimiter is for CSV: 'a.npy' is none" in err)


def test_chosen_columns_of_csv(run):
    pytest.importorskip("pyarrow")
    with open("t.csv", "w") as fp:
        fp.write("made today\nn,day,note\n1,2026-01-05,a\n")
    options = ["--skip-lines", "1", "--columns", "day,n", "--times", "--rename", "n=k"]
    found = lines(run, *options, "t.csv")
    assert [["day", "k"], ["<M8[D]", "<i8"]] == [line.split() for line in found[3:5]]


def test_a_block_of_a_tree(run):
    bp.pack_ndarray_to_file(TABLE[["price"]], "p.blp")
    dataset.convert("p.blp", "tree.bigfile")
    assert "tree.bigfile: group (bigfile)" == lines(run, "tree.bigfile")[0]
    found = lines(run, "tree.bigfile/price", "--rows", "1:3")
    assert ["1  0.25", "2   0.5"] == found[3:]


def test_head_tells_sizes_and_settings(run):
    bp.pack_ndarray_to_file(NUMBERS, "n.blp", cname="zstd")
    size = os.path.getsize("n.blp")
    found = json.loads(run("show", "--json", "n.blp")[1])
    assert (16000, size, "zstd") == tuple(
        found[k] for k in ("nbytes", "cbytes", "codec")
    )
    first, second = lines(run, "n.blp")[:2]
    assert "n.blp: <f8 (2000,) blp 3" == first
    assert second.startswith("plain 15.62K, packed ")
    assert second.endswith(", codec zstd, filter shuffle")


@pytest.mark.parametrize(
    ("rows", "numbers"),
    [("10:13", [10, 11, 12]), ("::900", [0, 900, 1800]), ("-2:", [1998, 1999])],
)
@pytest.mark.parametrize("name", ["source.blp", "t.zarr", "t.bcolz", "t.csv", "b.npz"])
def test_rows(run, name, rows, numbers):
    found = lines(run, "--rows=" + rows, "--fields", "price", make(name))
    assert [[str(n), str(n / 4)] for n in numbers] == [row.split() for row in found[5:]]


def test_no_rows(run):
    bp.pack_ndarray_to_file(NUMBERS[:0], "n.blp")
    assert ["no rows"] == lines(run, "n.blp")[3:]


@pytest.mark.parametrize("order", "CF")
def test_two_axes_have_columns(run, order):
    bp.pack_ndarray_to_file(np.arange(6.0).reshape(3, 2).copy(order), "a.blp")
    assert ["0    1", "0  0.0  1.0", "1  2.0  3.0", "2  4.0  5.0"] == [
        line.strip() for line in lines(run, "a.blp")[3:]
    ]


def test_three_axes_are_shown_as_by_numpy(run):
    cube = np.arange(10 * 20 * 30).reshape(10, 20, 30)
    bp.pack_ndarray_to_file(cube, "c.blp")
    found = lines(run, "c.blp")
    assert "[0] [[  0   1   2 ...  27  28  29]" == found[3]
    assert "[9] [[5400 5401 5402 ... 5427 5428 5429]" in found
    assert 1 == found.count("...")


def test_an_array_without_axes(run):
    bp.pack_ndarray_to_file(np.array(3.5), "zero.blp")
    assert ["0  3.5"] == lines(run, "zero.blp")[3:]


def test_plain_bytes_are_text_or_hexadecimal(run):
    bp.pack_bytes_to_file(PLAIN, "text.blp")
    found = lines(run, "text.blp")
    assert ["some words", "and more"] == found[3:5]
    assert 256 == len("\n".join(found[3:]))
    bp.pack_bytes_to_file(bytes(range(16)) + b"~\xff", "bin.blp")
    expected = "00000000  %s  ................" % bytes(range(16)).hex(" ")
    assert expected == lines(run, "bin.blp")[3]
    last = lines(run, "bin.blp")[4]
    assert ["00000010", "7e", "ff", "~."] == last.split()


def test_members_of_a_group(run):
    make("a.zip")
    found = lines(run, "a.zip")
    members = [line.split(maxsplit=2) for line in found[3:]]
    assert ["group", "t", "n"] == [name for name, _, _ in members]
    assert ["-", "group (archive)"] == members[0][1:]
    assert "<f8 (2000,) archive" == members[2][2]
    code, _, errors = run("show", "a.zip/group/nix")
    assert 1 == code
    assert "there is no 'nix' in 'a.zip/group', which has t\n" in errors
    code, _, errors = run("show", "--rows", "1:2", "a.zip")
    assert 2 == code
    assert "'a.zip' is a group: name an array" in errors


def test_wide_tables_are_cut_with_a_note(run, monkeypatch):
    bp.pack_ndarray_to_file(np.full((4, 200), 1000), "w.blp")
    assert 64 == len(lines(run, "w.blp")[3].split())
    monkeypatch.setenv("COLUMNS", "40")
    found = lines(run, "w.blp")[3:]
    assert max(map(len, found[:-1])) <= 40
    assert "columns left out: 194 (--fields selects some)" == found[-1]


# Data for programs


def test_json_rows(run):
    values = np.array([(1.5, "NaT", b"\xff", 1j)], "f4, M8[s], S2, c8")
    bp.pack_ndarray_to_file(values, "v.blp")
    (part,) = json.loads(run("show", "--json", "v.blp")[1])["parts"]
    assert [{"f0": 1.5, "f1": None, "f2": "\\xff", "f3": "1j"}] == part["rows"]
    bp.pack_ndarray_to_file(NESTED, "n.blp")
    (part,) = json.loads(run("show", "--json", "--rows", "1:3", "n.blp")[1])["parts"]
    assert (1, 2) == (part["start"], len(part["rows"]))
    assert {"x": 0, "at": {"y": 0.0, "z": [0, 0]}} == part["rows"][0]


def test_usage(run):
    make("t.zarr")
    for arguments, message in [
        (["--fields", "nix"], "there is no 'nix' among the columns day, price, name"),
        (["--rows", "3"], "--rows: expected A:B"),
    ]:
        code, said, errors = run("show", *arguments, "t.zarr")
        assert (2, "") == (code, said)
        assert message in errors


def test_a_pipe():
    bp.pack_ndarray_to_file(NUMBERS, "n.blp")
    with open("n.blp", "rb") as fp:
        cat = subprocess.Popen(["cat"], stdin=fp, stdout=subprocess.PIPE)
    found = run_blpk("show", "-", "--rows", "4:5", stdin=cat.stdout, check=True)
    cat.wait()
    cat.stdout.close()
    assert found.stdout.startswith(b"standard input: <f8 (2000,) blp 3\n")
    assert found.stdout.endswith(b"4  1.0\n")


def test_a_named_pipe(run):
    bp.pack_ndarray_to_file(NUMBERS, "n.blp")
    os.mkfifo("pipe")
    copy = subprocess.Popen(["cp", "n.blp", "pipe"])
    assert "1999  499.75" == lines(run, "pipe")[-1]
    copy.wait()


# What is read


def test_a_server_sends_little(run):
    pytest.importorskip("aiohttp", reason="the extra 'remote' is not installed")
    numbers = np.random.default_rng(0).random(200_000)
    packed = bp.pack_ndarray_to_bytes(numbers, "64K")
    with serving(packed) as web:
        found = lines(run, web.url, "--rows", "100000:100001")
        assert str(numbers[100000])[:8] in found[-1]
        assert len(web.requests) <= 5


def test_damage(run):
    packed = bytearray(bp.pack_ndarray_to_bytes(NUMBERS, 800))
    packed[-10] ^= 1
    with open("n.blp", "wb") as fp:
        fp.write(packed)
    assert 3 == run("show", "n.blp")[0]
    assert 0 == run("show", "--rows", ":5", "n.blp")[0]
    assert 3 == run("show", "--stats", "n.blp")[0]


# Statistics


def statistics(run, *arguments):
    found = json.loads(run("show", "--stats", "--json", *arguments)[1])["stats"]
    return {each.pop("name"): each for each in found}


@pytest.mark.parametrize(
    ("dtype", "numbers"),
    [
        ("M8[ms]", [250, 1750, 86_400_000]),
        ("M8[ns]", [-(2**63) + 1]),
        ("M8[ns]", [2**63 - 1] * 3),
        ("M8[ns]", [1_800_000_000_123_456_789, 1_800_000_000_123_456_791]),
        ("m8[us]", [2**62 + 1, 2**62 + 3]),
        (">M8[s]", [10**13, 10**13 + 2]),
        ("i8", [2**63 - 1, 2**63 - 3]),
        ("u8", [2**64 - 1, 2**64 - 3, 0]),
        (">i2", [-1, -3]),
        ("?", [0, 1, 1]),
    ],
)
def test_statistics_are_exact(run, dtype, numbers):
    wide = {"i": "i8", "u": "u8"}.get(np.dtype(dtype).kind, "i8")
    array = np.array(numbers, wide).astype(dtype)
    np.save("a.npy", array)
    found = statistics(run, "a.npy")[""]
    mean = Fraction(sum(numbers), len(numbers))
    expected = [min(numbers), round(mean), max(numbers)]
    shown = [found[key] for key in ("min", "mean", "max")]
    if array.dtype.kind in "mM":
        native = array.dtype.newbyteorder("=")
        assert [str(np.array(n, "i8").view(native)) for n in expected] == shown
        line = lines(run, "--stats", "a.npy")[-1]
        for text in shown:
            assert (text.rstrip("0").rstrip(".") if "." in text else text) in line
    else:
        assert [expected[0], float(mean), expected[2]] == shown


def test_statistics_of_a_table(run):
    found = statistics(run, make("t.zarr"))
    assert ["day", "price", "name"] == list(found)
    price = found["price"]
    assert (COUNT, 0.0, 499.75) == (price["count"], price["min"], price["max"])
    assert NUMBERS.mean() == pytest.approx(price["mean"])
    assert "2026-01-01" == found["day"]["min"]
    assert "2031-06-23" == found["day"]["max"]
    assert (COUNT, None, None) == tuple(
        found["name"][k] for k in ("count", "min", "mean")
    )
    found = lines(run, "--stats", "t.zarr")[3:]
    assert ["min", "max", "mean", "count", "missing"] == found[0].split()
    assert ["price", "0", "499.75", "249.875", "2000", "0"] == found[2].split()
    assert ["name", "-", "-", "-", "2000", "0"] == found[3].split()


@pytest.mark.parametrize("dtype", ["i1", "<u2", ">i8", "u8", "f2", ">f4", "f8", "?"])
def test_statistics_of_any_type(run, dtype):
    numbers = np.arange(100).astype(dtype).reshape(20, 5)
    bp.pack_ndarray_to_file(numbers, "n.blp")
    values = numbers.astype("f8")
    (found,) = statistics(run, "n.blp").values()
    assert values.min() == found["min"]
    assert values.max() == found["max"]
    assert values.mean() == pytest.approx(found["mean"])


def test_missing_and_infinite_values(run):
    bp.pack_ndarray_to_file(np.array([1, np.nan, 3]), "n.blp")
    (found,) = statistics(run, "n.blp").values()
    assert [2, 1, 2.0] == [found[key] for key in ("count", "missing", "mean")]
    bp.pack_ndarray_to_file(np.array([1, np.inf, 3, -np.inf]), "i.blp")
    (found,) = statistics(run, "i.blp").values()
    assert [4, 0, None] == [found[key] for key in ("count", "missing", "mean")]
    assert ["-Infinity", "Infinity"] == [found[key] for key in ("min", "max")]
    bp.pack_ndarray_to_file(np.array([1, -np.inf]), "j.blp")
    (found,) = statistics(run, "j.blp").values()
    expected = ["-Infinity", "-Infinity", 1.0]
    assert expected == [found[key] for key in ("min", "mean", "max")]
    rows = json.loads(run("show", "--json", "i.blp")[1])["parts"][0]["rows"]
    assert [1.0, "Infinity", 3.0, "-Infinity"] == rows
    bp.pack_ndarray_to_file(np.array(["NaT", "2026-01-01"], "M8[D]"), "t.blp")
    (found,) = statistics(run, "t.blp").values()
    counts = [found[key] for key in ("count", "missing", "mean")]
    assert [1, 1, "2026-01-01"] == counts


def test_the_note_of_a_recovery(run):
    bp.pack_ndarray_to_file(np.arange(300.0), "n.blp", chunk_size=800)
    with open("n.blp", "r+b") as fp:
        fp.seek(-3, os.SEEK_END)
        fp.write(b"???")
    assert 3 == run("recover", "n.blp", "m.blp")[0]
    said = run("show", "m.blp")[1].splitlines()
    assert said[2].startswith("note: recovered from damage: rows 200 to 300 are filled")
    assert said[2].partition("note: ")[2] in run("verify", "m.blp")[1]


@pytest.mark.parametrize(
    "numbers", [[], [np.nan], [0], [-7.5], [1e308, -1e308], [5e-324]]
)
def test_statistics_of_few_values(run, numbers):
    bp.pack_ndarray_to_file(np.array(numbers, "f8"), "n.blp")
    code, said, errors = run("show", "--stats", "n.blp")
    assert (0, "") == (code, errors)
    assert "missing" in said


def test_statistics_of_fields_rows_and_members(run):
    bp.savez("a.zip", n=NUMBERS, **{"g/x": NESTED})
    assert ["n", "g/x/x", "g/x/at/y", "g/x/at/z"] == list(statistics(run, "a.zip"))
    (found,) = statistics(run, "a.zip/n", "--rows", "10:12").values()
    assert (2, 2.5, 2.75) == (found["count"], found["min"], found["max"])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("numbers", "mean"),
    [
        (np.array([1e308, 1e308, -1e308, -1e308]), None),
        (np.array([1, 1e300], "g") ** 2, np.inf),
    ],
    ids=["sum", "longdouble"],
)
def test_values_whose_sum_is_no_float(numbers, mean):
    found = Summary("", numbers.dtype)
    found.add(numbers)
    assert (len(numbers), 0, mean) == (found.count, found.missing, found.mean)


def test_blocks_and_all_items_have_the_same_statistics():
    numbers = np.random.default_rng(2).lognormal(size=1000)
    whole, parts = Summary("", numbers.dtype), Summary("", numbers.dtype)
    whole.add(numbers)
    for part in np.split(numbers, 10):
        parts.add(part)
    assert whole.mean == pytest.approx(parts.mean)
    assert numbers.mean() == pytest.approx(parts.mean)


def test_far_times_in_a_unit_of_several_seconds(run):
    """NumPy has no text for these times, and a wrong one for durations."""
    numbers, far = np.array([2**62, 6, -(2**63)]), "%d seconds" % (10 * 2**62)
    durations = {"a": numbers.view("m8[10s]"), "b": numbers.view("M8[10s]")}
    dataset.create_table("t.zarr", durations).close()
    code, said, _ = run("show", "--json", "t.zarr")
    assert 0 == code
    expected = [
        {"a": far, "b": far + " since 1970"},
        {"a": "60 seconds", "b": "1970-01-01T00:01:00"},
        {"a": None, "b": None},
    ]
    assert expected == json.loads(said)["parts"][0]["rows"]
    said = run("show", "--stats", "t.zarr")[1].split()
    assert {*far.split(), "since", "1970-01-01T00:01:00"} <= {*said}
    assert far in run("show", "t.zarr")[1]
    assert far in repr(dataset.open("t.zarr"))
