"""blpk append: room, missing files, other writers, and what is no plain data."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import sys
import threading
import time
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from support import another_writer

import bloscpack as bp
from bloscpack import cli, dataset


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "new").write_bytes(b"x" * 1000)
    np.save("rows.npy", np.arange(6.0).reshape(3, 2))
    (tmp_path / "table.csv").write_text("n,word\n1,a\n2,bb\n")
    return tmp_path


@pytest.fixture
def blpk(capsys):
    """Return a function that appends, and returns exit code and messages."""

    def append(*arguments):
        code = 0
        try:
            cli.main(["append", *map(str, arguments)])
        except SystemExit as error:
            code = error.code
        return code or 0, capsys.readouterr().err

    return append


def plain(name):
    return bp.unpack_bytes_from_file(name)[0]


# Room


def test_daily_appends_are_rarely_rewritten(blpk):
    bp.pack_bytes_to_file(b"y" * 1001, "log.blp", 1000, max_app_chunks=2)
    rooms = [2]
    for _ in range(200):
        assert (0, "") == blpk("--no-sync", "log.blp", "new")
        rooms.append(bp.info("log.blp").header.max_app_chunks)
    assert b"y" * 1001 + b"x" * 200_000 == plain("log.blp")
    assert 1 == sum(new > old for old, new in pairwise(rooms))


def test_no_grow(blpk):
    bp.pack_bytes_to_file(b"y" * 1001, "full.blp", 1000, max_app_chunks=0)
    code, message = blpk("--no-grow", "full.blp", "new")
    assert (1, True) == (code, "has room for '0'" in message)
    assert b"y" * 1001 == plain("full.blp")


# Files that are missing


@pytest.mark.parametrize(
    ("source", "options", "expected"),
    [
        ("new", (), b"x" * 2000),
        ("rows.npy", ("--npy",), 2 * np.arange(6.0).tobytes()),
        ("rows.npy", ("--force",), None),
    ],
)
def test_create(blpk, folder, source, options, expected):
    for _ in range(2):
        assert (0, "") == blpk("--create", *options, "log.blp", source)
    if expected is None:
        expected = 2 * (folder / source).read_bytes()
    assert expected == plain("log.blp")


def test_create_has_the_settings_of_the_options(blpk, folder):
    (folder / "m.json").write_text('{"unit": "m"}')
    blpk("--create", "-t", 4, "-c", "zstd", "-m", "m.json", "log.blp", "new")
    found = bp.info("log.blp")
    assert (4, {"unit": "m"}) == (found.header.typesize, found.metadata)
    assert found.header.max_app_chunks == 10


def test_create_from_standard_input(blpk, monkeypatch):
    read, write = os.pipe()
    os.write(write, b"x" * 500)
    os.close(write)
    with open(read, encoding="ascii") as pipe:
        monkeypatch.setattr("sys.stdin", pipe)
        assert (0, "") == blpk("--create", "log.blp", "-")
    assert b"x" * 500 == plain("log.blp")
    assert bp.info("log.blp").header.offsets
    bp.pack_bytes_to_file(b"", "usual.blp")
    assert os.stat("usual.blp").st_mode == os.stat("log.blp").st_mode


def test_create_a_dataset(blpk):
    pytest.importorskip("pyarrow")
    for _ in range(2):
        assert (0, "") == blpk("--create", "-l", "9", "rows.zarr", "rows.npy")
        assert (0, "") == blpk("--create", "table.zarr", "table.csv")
    assert (6, 2) == dataset.open("rows.zarr").shape
    assert 4 == len(dataset.open("table.zarr"))


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("nope.zarr", "rows.npy"), 1, "original file 'nope.zarr' does not exist"),
        (("nope.blp", "new"), 1, "original file 'nope.blp' does not exist!"),
        (("http://h/a.blp", "new"), 2, "appending to a file needs a local file"),
        (("--create", "--auto", "a.zarr", "rows.npy"), 2, "--auto is for files"),
        (("--create", "nope.blp", "nope"), 1, "new file 'nope' does not exist"),
        (("--create", "nope.dat", "new"), 1, "does not end with '.blp'"),
        (("--create", "nope.blp", "rows.npy"), 2, "--npy appends its rows"),
        (("--create", "nope.zarr", "-"), 2, "a new dataset is made of a file"),
        (("--wait", "soon", "nope.blp", "new"), 2, "--wait must be a number from 0"),
        (("--wait", "-1", "nope.blp", "new"), 2, "--wait must be a number from 0"),
    ],
)
def test_nothing_is_made(blpk, folder, arguments, code, message):
    before = sorted(os.listdir(folder))
    found = blpk(*arguments)
    assert (code, True) == (found[0], message in found[1]), found
    assert before == sorted(os.listdir(folder))


def append_in_child(arguments, barrier):
    with contextlib.redirect_stderr(None):
        barrier.wait()
        cli.main(["append", "--create", "--wait", "60", *arguments])


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="needs fork and locks")
@pytest.mark.parametrize(
    ("name", "source", "size"),
    [("log.blp", "new", 1000), ("rows.zarr", "rows.npy", 48)],
)
def test_all_writers_make_the_file(name, source, size):
    context = multiprocessing.get_context("fork")
    for i in range(5):
        target, barrier = "%d-%s" % (i, name), context.Barrier(4)
        given = [target, source], barrier
        writers = [context.Process(target=append_in_child, args=given) for _ in "1234"]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert [0] * 4 == [writer.exitcode for writer in writers]
        assert bp.verify(target).ok
        found = plain(target) if source == "new" else dataset.open(target)[:]
        assert 4 * size == memoryview(found).nbytes


# Settings


def test_auto(blpk, folder, monkeypatch):
    rows = np.round(np.random.default_rng(1).normal(20, 5, 40_000), 1)
    (folder / "numbers").write_bytes(rows.tobytes())
    bp.pack_bytes_to_file(b"", "a.blp", 2**20)
    sizes = []
    for options in ((), ("--auto",), ("--auto", "-c", "lz4")):
        before = os.path.getsize("a.blp")
        assert (0, "") == blpk(*options, "a.blp", "numbers")
        sizes.append(os.path.getsize("a.blp") - before)
    assert sizes[1] < 0.6 * sizes[0]
    assert sizes[1] < sizes[2]
    monkeypatch.setenv("BLPK_DEFAULTS", "--auto")
    assert (0, "") == blpk("--create", "new.blp", "numbers")
    assert os.path.getsize("new.blp") < 0.6 * sizes[0]
    assert (0, "") == blpk("new.blp", "numbers")
    assert 2 * rows.tobytes() == plain("new.blp")
    assert (0, "") == blpk("--create", "a.zarr", "rows.npy")


# Files that are no plain data


def test_another_format_is_not_appended_to_an_array(blpk, folder):
    (folder / "t.csv").write_text("n,word\n" + "1,a\n" * 14 + "\n")  # 64 bytes
    (folder / "t.gz").write_bytes(b"\x1f\x8b" + bytes(62))
    (folder / "t.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(56))
    bp.pack_ndarray_to_file(np.zeros(2), "rows.blp")
    dataset.create_array("a", [0.0, 0.0]).close()
    for source, what in (("t.csv", "CSV"), ("t.gz", "gzip"), ("t.h5", "HDF5")):
        code, message = blpk("rows.blp", source)
        expected = "'%s' is a%s %s file, whose" % (source, "n" * (what == "HDF5"), what)
        assert (2, True) == (code, expected in message), message
        # A dataset gets the rows of a file: this one of HDF5 is damaged.
        others = {"CSV": ("pyarrow", 2), "HDF5": ("h5py", 3)}
        package, code = others.get(what, ("re", 2))
        assert (code if find_spec(package) else 1) == blpk("a", source)[0]
        assert (0, "") == blpk("--force", "rows.blp", source)
        assert (0, "") == blpk("--force", "a", source)
    assert 26 == len(bp.unpack_ndarray_from_file("rows.blp")) == len(dataset.open("a"))


def test_a_packed_file_is_appended_to_bytes_with_a_warning(blpk, log_file):
    bp.pack_bytes_to_file(b"x", "x.blp")
    for source, what in (("x.blp", "Bloscpack file"), ("rows.npy", ".npy file")):
        code, message = blpk(log_file, source)
        assert (0, True) == (code, "is a %s; its bytes were" % what in message), message
    assert (0, "") == blpk("--force", log_file, "x.blp")


def test_a_packed_file_is_not_appended_to_an_array(blpk):
    bp.pack_ndarray_to_file(np.arange(6.0).reshape(3, 2), "rows.blp")
    bp.pack_bytes_to_file(b"x", "other.blp")
    code, message = blpk("rows.blp", "other.blp")
    assert (2, True) == (code, "is a Bloscpack file" in message)
    assert 2 == blpk("rows.blp", "rows.npy")[0]
    dataset.create_array("a", [1.0]).close()
    code, message = blpk("rows.blp", "a")
    assert (2, True) == (code, "blpk cat DATASET | blpk append" in message)


def test_csv_to_a_table(blpk, folder):
    pytest.importorskip("pyarrow")
    dataset.create_table("t", {"n": [7], "word": np.array(["abc"])}).close()
    assert (0, "") == blpk("t", "table.csv")
    rows = [(7, "abc"), (1, "a"), (2, "bb")]
    assert rows == dataset.open("t")[:].tolist()
    wrong = "blpk: error: column '%s', line 3: expected %s (file 'bad.csv')\n"
    at_most_3 = "text of at most 3 characters, found 'long'"
    an_integer = "values of dtype 'int64', found '1x'"
    for code, text, message in [
        (1, "n,word\n1,a\n1,long\n", wrong % ("word", at_most_3)),
        (1, "n,word\n1,a\n1x,a\n", wrong % ("n", an_integer)),
        (2, "n\n1\n", "there is no column 'word'"),
        (1, "n,word,more\n1,a,2\n", "expected the columns n, word"),
    ]:
        (folder / "bad.csv").write_text(text)
        found, shown = blpk("t", "bad.csv")
        assert (code, True) == (found, message in shown), shown
    (folder / "empty.csv").write_text("n,word\n")
    assert (0, "") == blpk("t", "empty.csv")
    assert rows == dataset.open("t")[:].tolist()


def test_csv_with_a_delimiter(blpk, folder):
    pytest.importorskip("pyarrow")
    (folder / "new.csv").write_text("n\tword\n1\ta,b\n")
    assert (0, "") == blpk("--create", "--delimiter", "tab", "t.zarr", "new.csv")
    assert (0, "") == blpk("--delimiter", r"\t", "t.zarr", "new.csv")
    assert 2 * [(1, "a,b")] == dataset.open("t.zarr")[:].tolist()
    bp.pack_ndarray_to_file(np.arange(3.0), "rows.blp")
    for names in (("t.zarr", "rows.npy"), ("rows.blp", "new.csv")):
        code, message = blpk("--delimiter", "tab", *names)
        assert (2, True) == (code, "--delimiter is for " in message)


@pytest.mark.parametrize("options", [["--delimiter", ";"], ["--dtype", "a=i8"]])
@pytest.mark.parametrize("source", ["-", "new.txt", "-f new.csv"])
def test_options_of_csv_are_not_ignored(blpk, folder, monkeypatch, options, source):
    pytest.importorskip("pyarrow")
    dataset.create_table("t", {"a": [1], "b": [2]}).close()
    text = "a;b\n12345;67890\n" if ";" in options else "a,b\n12345,67890\n"
    for name in ("new.txt", "new.csv"):
        (folder / name).write_text(text)
    *force, name = source.split()
    read, write = os.pipe()
    os.write(write, text.encode())
    os.close(write)
    with open(read, encoding="ascii") as pipe:
        monkeypatch.setattr("sys.stdin", pipe)
        code, message = blpk(*force, *options, "t", name)
    rows = dataset.open("t")[:].tolist()
    if name == "-":
        assert (0, "", [(1, 2), (12345, 67890)]) == (code, message, rows)
    else:
        assert (2, [(1, 2)]) == (code, rows)
        assert options[0] + " is for CSV" in message
        assert force or "< FILE' reads any name" in message


def test_text_in_a_file_of_another_name(blpk, folder):
    dataset.create_table("t", {"w": np.array(["abc"], object)}).close()
    (folder / "new.tsv").write_text("w\nabc\n")
    code, message = blpk("t", "new.tsv")
    assert (2, True) == (code, "the name of a CSV file must end with .csv" in message)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_append_reads_as_convert(blpk, folder, form):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    text = "made today\nn;p;day;note\n1;1,5;2024-01-02;\xe9\n;2,5;2024-01-03;b\n"
    (folder / "a.csv").write_text(text, encoding="cp1252")
    options = ["--dtype", "n=i4"]
    if form == "csv":
        options += ["--skip-lines", 1, "--delimiter", ";", "--decimal", ",", "--times"]
        options += ["--encoding", "cp1252"]
    else:
        how = {"skiprows": 1, "decimal": ",", "encoding": "cp1252"}
        frame = pandas.read_csv("a.csv", sep=";", **how)
        frame = frame.astype({"n": "Int64", "day": "datetime64[s]"})
        frame.to_parquet("a.parquet")
    options += ["--exclude", "note", "--rename", "n=n o"]
    assert (0, "") == blpk("--create", *options, "t.zarr", "a." + form)
    assert (0, "") == blpk(*options, "t.zarr", "a." + form)
    with dataset.open("t.zarr") as table:
        assert ["<i4", "|b1"] == [table.dtype[n].str for n in ("n o", "n o_missing")]
        found = table.to_pandas()
    assert ["n o", "p", "day"] == [*found]
    assert [1, None] * 2 == found["n o"].astype(object).where(
        found["n o"].notna(), None
    ).tolist()
    assert [1.5, 2.5] * 2 == found["p"].tolist()
    assert ["2024-01-02", "2024-01-03"] * 2 == found["day"].astype(str).tolist()


def test_append_a_member_of_a_file(blpk):
    h5py = pytest.importorskip("h5py")
    with h5py.File("a.h5", "w") as file:
        file["x/y"], file["z"] = np.arange(3.0), [1]
    dataset.create_array("a", [9.0]).close()
    assert (0, "") == blpk("a", "a.h5/x/y")
    np.array([5], "f4").tofile("raw")
    assert (0, "") == blpk("--dtype", "f4", "a", "raw")
    assert [9, 0, 1, 2, 5] == dataset.open("a")[:].tolist()
    code, message = blpk("a", "a.h5/x/q")
    assert (1, True) == (code, "there is no 'q' in 'a.h5/x', which has y" in message)


def test_csv_to_an_array(blpk):
    pytest.importorskip("pyarrow")
    dataset.create_array("a", [1, 2]).close()
    code, message = blpk("a", "table.csv")
    assert (2, True) == (code, "expected an array, found table (csv)" in message)


# Other writers


@pytest.fixture
def log_file():
    bp.pack_bytes_to_file(b"old", "log.blp")
    return "log.blp"


def test_another_writer(blpk, log_file):
    with another_writer(log_file):
        code, message = blpk(log_file, "new")
    assert 1 == code
    assert "another writer in this process is changing this file" in message
    assert message.endswith("; --wait SECONDS waits for it\n")


def test_wait_for_another_writer(blpk, log_file):
    dataset.create_array("a", [1.0]).close()
    with another_writer(log_file), dataset.open("a", "r+"):
        for name in (log_file, "a"):
            code, message = blpk("--wait", 0.02, name, "new")
            assert (1, True) == (code, "has not ended within 0.02 s" in message)


def test_another_writer_ends_in_time(monkeypatch, log_file):
    locked, waited = threading.Event(), threading.Event()

    def write():
        with another_writer(log_file):
            locked.set()
            waited.wait()

    monkeypatch.setattr(time, "sleep", lambda seconds: waited.set())
    writer = threading.Thread(target=write)
    writer.start()
    locked.wait()
    bp.append_bytes_to_file(b"new", log_file, wait=30)
    writer.join()
    assert b"oldnew" == plain(log_file)


def test_append_of_16_waits_too(log_file):
    with (
        another_writer(log_file),
        pytest.raises(bp.StorageError, match="another writer"),
    ):
        bp.append(log_file, "new", wait=0.01)
    bp.append(log_file, "new", wait=1)
    assert b"old" + b"x" * 1000 == plain(log_file)


# Python


def test_python_functions_make_room_but_append_does_not():
    bp.pack_ndarray_to_file(np.zeros(200), "full.blp", 800, max_app_chunks=0)
    full = io.BytesIO(Path("full.blp").read_bytes())
    for call in (
        lambda: bp.append("full.blp", "new"),
        lambda: bp.append_bytes_to_file(bytes(1600), "full.blp", grow=False),
        lambda: bp.append.append_fp(full, io.BytesIO(bytes(8)), 8),
    ):
        with pytest.raises(bp.exceptions.NotEnoughSpace):
            call()
    bp.append_ndarray_to_file(np.ones(200), "full.blp")
    assert 200 == bp.unpack_ndarray_from_file("full.blp").sum()


# Another program


def test_another_program_makes_the_file(blpk, monkeypatch):
    genuine = bp.file_io.pack_file_to_file

    def write_first(*arguments, **keywords):
        bp.pack_bytes_to_file(b"y" * 10, "log.blp")
        return genuine(*arguments, **keywords)

    monkeypatch.setattr(bp.file_io, "pack_file_to_file", write_first)
    assert (0, "") == blpk("--create", "log.blp", "new")
    assert b"y" * 10 + b"x" * 1000 == plain("log.blp")
