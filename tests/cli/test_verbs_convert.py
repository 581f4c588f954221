"""``blpk convert``: what the options do, and how errors are reported."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from cli.verb_support import Refusal, parser_of
from support import environment, run_blpk

import bloscpack
from bloscpack import dataset
from bloscpack.cli import main
from bloscpack.exceptions import FileNotFound, StorageError


def blpk(*arguments, force=False):
    parser, run = parser_of("convert")
    parser.set_defaults(nthreads=2, force=force, sync=None, progress=False)
    return run(parser.parse_args([str(argument) for argument in arguments]))


@pytest.fixture
def command(capsys):
    """Return a function that runs the command, and returns its two outputs."""

    def run(*arguments):
        main(["convert", *arguments])
        return tuple(capsys.readouterr())

    return run


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bloscpack.pack_ndarray_to_file(np.arange(999.0), "a.blp", metadata={"unit": "m"})


def test_settings():
    blpk("-c", "zstd", "-9", "--bitshuffle", "a.blp", "b.zarr")
    with open("b.zarr/zarr.json") as fp:
        document = json.load(fp)
    codec = document["codecs"][0]["configuration"]["codecs"][1]["configuration"]
    assert ("zstd", 9, "bitshuffle") == (
        *(codec["cname"], codec["clevel"]),
        codec["shuffle"],
    )


def test_format():
    blpk("--to", "bcolz", "a.blp", "b")
    assert "bcolz" == dataset.open("b").layout


def test_json(command):
    out, err = command("--json", "a.blp", "b.npy")
    expected = {
        "source": "a.blp",
        "target": "b.npy",
        "source_format": "blp",
        "target_format": "npy",
        "kind": "array",
        "nbytes": 7992,
        "lost": ["the attributes"],
        "recovered": [],
        "notes": [],
    }
    assert expected == json.loads(out)
    assert "attributes" in err


def test_rows_that_a_recovery_has_filled(command):
    """The command says so: a format without attributes loses the note."""
    rows = np.arange(40.0)
    dataset.create_array("d", rows, chunks=10, shards=20).close()
    os.remove("d/c/1")
    assert dataset.recover("d", "saved").losses
    _, err = command("saved", "saved.npy")
    value = dataset.open("saved")[20]
    assert np.load("saved.npy").tolist() == [*range(20), *[value] * 20]
    assert "from damage: rows 20 to 40 are filled with %s" % value in err


def test_notice(command):
    out, err = command("a.blp", "b.npy")
    assert ("", "blpk: 'b.npy' can't hold the attributes of 'a.blp'\n") == (out, err)
    assert ("", "") == command("a.blp", "b.zarr")
    assert ("", "") == command("-q", "a.blp", "c.npy")


@pytest.mark.parametrize("target", ["b.bcolz", "b.zarr"])
def test_existing_target(target):
    blpk("a.blp", target)
    with pytest.raises(StorageError, match=r"output file 'b\.\w+' exists!"):
        blpk("a.blp", target)
    blpk("a.blp", target, force=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.blp", "-"], "--to must name the format of standard output"),
        (["--to", "npy", "--json", "a.blp", "-"], "both go to standard output"),
        (["--dtype", "x=", "a.blp", "b.npy"], "a name and a type"),
        (["--dtype", "i4", "--dtype", "x=i4", "a.blp", "b.npy"], "names one type"),
        (["--dtype", "i4", "--dtype", "i2", "a.blp", "b.npy"], "names one type"),
        (["--dtype", "i4", "--shape", "2x3", "a.blp", "b.npy"], "not '2x3'"),
    ],
)
def test_usage(arguments, message):
    with pytest.raises(Refusal, match=message) as caught:
        blpk(*arguments)
    assert 2 == caught.value.exit_code


# Streams


def piped(data, *arguments):
    """Run the command with bytes from a pipe; return exit code, output and errors."""
    done = run_blpk("convert", *arguments, input=data)
    return done.returncode, done.stdout, done.stderr.decode()


@pytest.mark.parametrize("to", ["npy", "npz", "blp", "csv"])
def test_to_standard_output(to):
    if to == "csv":
        pytest.importorskip("pyarrow")
    code, data, err = piped(b"", "--to", to, "a.blp", "-")
    assert 0 == code
    lost = "blpk: standard output can't hold the attributes of 'a.blp'\n"
    assert err == ("" if to == "blp" else lost)
    with open("b." + to, "wb") as fp:
        fp.write(data)
    dataset.convert("b." + to, "c.npy")
    assert np.arange(999.0).tobytes() == np.load("c.npy").tobytes()


def test_messages_beside_data_on_standard_output():
    code, data, err = piped(b"", "-v", "--to", "csv", "a.blp", "-")
    assert (0, b"0\n0.0\n1.0\n") == (code, data[:10])
    assert "output file is: '-'" in err
    assert piped(b"", "--to", "csv", "a.blp", "/dev/stdout")[:2] == (0, data)


def test_folder_to_standard_output():
    code, data, err = piped(b"", "--to", "zarr", "a.blp", "-")
    assert (2, b"") == (code, data)
    assert "the format 'zarr' is a folder" in err
    assert "npy, npz, blp, csv, parquet, hdf5 can" in err


def npy(array):
    fp = io.BytesIO()
    np.save(fp, array)
    return fp.getvalue()


@pytest.mark.full
@pytest.mark.parametrize(
    ("data", "arguments"),
    [
        (npy(np.arange(6.0).reshape(2, 3)), []),
        (np.arange(6, dtype=">f4").tobytes(), ["--dtype", ">f4", "--shape", "-1,3"]),
        (bloscpack.pack_ndarray_to_bytes(np.arange(6).reshape(2, 3)), []),
    ],
)
def test_from_standard_input(data, arguments):
    assert (0, b"", "") == piped(data, *arguments, "-", "b.zarr")
    assert [[0, 1, 2], [3, 4, 5]] == dataset.open("b.zarr")[...].tolist()


def test_text_from_standard_input():
    pytest.importorskip("pyarrow")
    arguments = ("--dtype", "x=i2", "-", "b.npy")
    assert (0, b"", "") == piped(b"x,y\n1,a\n2,bc\n", *arguments)
    found = np.load("b.npy")
    assert ("<i2", [1, 2]) == (found.dtype["x"].str, found["x"].tolist())
    assert os.stat("a.blp").st_mode == os.stat("b.npy").st_mode


@pytest.mark.parametrize(
    ("code", "message", "arguments"),
    [
        (1, "it is no CSV: expected '2' values .* [(]standard input[)]", []),
        (2, "standard input: there is no column 'z'; .*", ["--dtype", "z=i4"]),
    ],
)
def test_wrong_text_from_standard_input(code, message, arguments):
    pytest.importorskip("pyarrow")
    found, _, err = piped(b"x,y\n1\n", *arguments, "-", "c.npy")
    assert code == found
    assert re.fullmatch("blpk: error: %s\n" % message, err)


def test_columns_and_habits_of_csv(command):
    """Names with commas are in quotes; the last `=` ends the old name."""
    pytest.importorskip("pyarrow")
    with open("a.csv", "w", encoding="cp1252") as fp:
        fp.write("made in 2026\nday;km/h;a,b;a=b;note\n2026-01-05;1,5;2;3;\xe9\n")
    reading = ["--skip-lines", "1", "--delimiter", ";", "--decimal", ",", "--times"]
    reading += ["--encoding", "cp1252"]
    names = ["--columns", 'note,"a,b"', "--columns", "km/h,a=b,day"]
    renamed = ["--rename", "km/h=speed", "--rename", '"a=b"=c', "--exclude", '"a,b"']
    command(*reading, *names, *renamed, "a.csv", "b.npy")
    found = np.load("b.npy")
    assert ("note", "speed", "c", "day") == found.dtype.names
    assert [("\xe9", 1.5, 3)] == found[["note", "speed", "c"]].tolist()
    assert np.array(["2026-01-05"], "M8[D]").tolist() == found["day"].tolist()
    command("--exclude", "note,day", "b.npy", "c.csv")
    with open("c.csv") as fp:
        assert "speed,c\n1.5,3\n" == fp.read()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--columns", "x"), "there is no column 'x'; the columns are a, b"),
        (("--rename", "a"), "--rename must be old=new, not 'a'"),
        (("--rename", '"a","b"=c'), "--rename must be old=new"),
        (("--skip-lines", "x"), "--skip-lines must be a number from 0 on, not 'x'"),
        (("--decimal", "x"), "a decimal point is '.' or ',', not 'x'"),
        (("--encoding", "x"), "there is no encoding 'x' of text"),
        (("--times",), "the search for times is for CSV files as the source"),
    ],
)
def test_wrong_columns_and_habits(command, capsys, options, message):
    np.save("t.npy", np.zeros(3, [("a", "i4"), ("b", "f8")]))
    with pytest.raises(SystemExit) as caught:
        command(*options, "t.npy", "b.csv" if options[0] != "--times" else "b.npz")
    assert 2 == caught.value.code
    assert message in capsys.readouterr().err
    assert not os.path.exists("b.csv")


def test_delimiter(tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "c.csv").write_text("x;y\n1;2,5\n")
    name = str(tmp_path / "c.csv")
    _, _, err = piped(b"", name, "c.npy")
    assert "convert --delimiter ';' separates the values" in err
    assert (0, b"", "") == piped(b"", "-f", "--delimiter", ";", name, "c.npy")
    assert [(1, "2,5")] == np.load("c.npy").tolist()
    code, _, err = piped(b"", "-f", "--delimiter", ";;", name, "c.npy")
    assert (2, True) == (code, "a delimiter is an ASCII character" in err)


@pytest.mark.full
@pytest.mark.parametrize("items", [np.arange(9.0), np.full(9, 1e300)])
def test_raw_items_need_a_type(items):
    code, _, err = piped(items.tobytes(), "-", "c.npy")
    assert (1, False) == (code, os.path.exists("c.npy"))
    assert "--dtype TYPE --shape N,...' (standard input)" in err
    arguments = ("--dtype", "f8", "-", "c.npy")
    assert (0, b"", "") == piped(items.tobytes(), *arguments)


@pytest.mark.parametrize("text", [b"a,b\n\xe9,1\n", b"a;b\n1,5;2\n", b""])
def test_text_that_is_no_csv(text, tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "c.csv").write_bytes(text)
    code, _, err = piped(b"", str(tmp_path / "c.csv"), "c.npy")
    assert (1, True) == (code, "it is no CSV: expected " in err)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_pipe_with_a_name(command):
    os.mkfifo("pipe")
    with subprocess.Popen(["cp", "a.blp", "pipe"]):
        out, err = command("pipe", "b.npy")
    assert ("", "blpk: 'b.npy' can't hold the attributes of 'pipe'\n") == (out, err)
    assert np.arange(999.0).tolist() == np.load("b.npy").tolist()


# Raw items


@pytest.mark.parametrize(
    ("shape", "dtype", "arguments"),
    [
        ((4, 6), "<f4", ["--dtype", "f4", "--shape", "4,6"]),
        ((4, 6), ">f4", ["--dtype", ">f4", "--shape=-1,6"]),
        ((24,), "<i4", ["--dtype", "=i4"]),
        ((2, 3, 2), "<M8[s]", ["--dtype", "M8[s]", "--shape", "2,-1,2"]),
    ],
)
@pytest.mark.parametrize("target", ["b.npy", "b.blp", "b.zarr"])
def test_raw_items(shape, dtype, arguments, target):
    array = np.arange(24).astype("<i4").view(dtype).reshape(shape)
    array.tofile("raw.f32")
    blpk(*arguments, "raw.f32", target)
    dataset.convert(target, "c.npy")
    found = np.load("c.npy")
    assert (array.shape, array.dtype, array.tobytes()) == (
        *(found.shape, found.dtype),
        found.tobytes(),
    )


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("'raw': expected '80' bytes for dtype 'float32' and shape (4, 5), found '96'",
         ["--dtype", "f4", "--shape", "4,5", "raw"]),
        ("'raw': expected a multiple of '20' bytes for dtype 'float32' and shape",
         ["--dtype", "f4", "--shape=-1,5", "raw"]),
        ("a shape needs a type: the dtype of the items", ["--shape", "24", "raw"]),
        ("of which one may be -1, not (-1, -1)",
         ["--dtype", "f4", "--shape=-1,-1", "raw"]),
        ("one may be -1, not (-2,)", ["--dtype", "f4", "--shape=-2", "raw"]),
        ("'f99' is no type", ["--dtype", "f99", "raw"]),
        ("'M8[s/0]' is no type: a unit of time can't be zero",
         ["--dtype", "M8[s/0]", "raw"]),
        ("raw items can't have the dtype 'O'", ["--dtype", "O", "raw"]),
        ("raw items can't have the dtype 'U'", ["--dtype", "U", "raw"]),
        ("no array of dtype 'int16' has the shape (-1, 0)",
         ["--dtype", "i2", "--shape=-1,0", "raw"]),
        ("has the shape (-1, 0)", ["--dtype", "i2", "--shape=-1,0", "empty"]),
        ("has the shape (0, 9223372036854775808)",
         ["--dtype", "i2", "--shape=0,9223372036854775808", "empty"]),
        ("one of the format 'blp', which needs no dtype", ["--dtype", "f8", "a.blp"]),
        ("'folder' is no file of raw items", ["--dtype", "f8", "folder"]),
    ],
)  # fmt: skip
def test_raw_items_that_do_not_fit(message, arguments):
    np.arange(24, dtype="f4").tofile("raw")
    os.mkdir("folder")
    open("empty", "w").close()
    with pytest.raises(bloscpack.UsageError, match=re.escape(message)):
        blpk(*arguments, "b.npy")
    assert not os.path.exists("b.npy")


def test_raw_items_from_python():
    np.arange(24, dtype="f4").tofile("raw")
    done = dataset.convert("raw", "b.npy", dtype=np.float32, shape=(-1, 6))
    assert ("raw", "array", 96) == (done.source_format, done.kind, done.nbytes)
    assert (4, 6) == np.load("b.npy").shape
    dataset.convert("raw", "c.npy", dtype="f4", shape=24)
    assert (24,) == np.load("c.npy").shape
    with pytest.raises(bloscpack.UsageError, match="a shape has whole numbers"):
        dataset.convert("raw", "d.npy", dtype="f4", shape=(2.5, 2))


def test_missing_source():
    with pytest.raises(FileNotFound, match="input file 'x' does not exist!"):
        blpk("x", "b.npy")


@pytest.mark.parametrize(
    ("name", "begin", "what"), [("a.x", b"PAR1", "Parquet"), ("a.csv", b"x,y\n", "CSV")]
)
def test_missing_package(monkeypatch, name, begin, what):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with open(name, "wb") as fp:
        fp.write(begin)
    message = r"%s needs the package pyarrow: pip install '\.\[tables\]'" % what
    with pytest.raises(bloscpack.UsageError, match=message):
        blpk(name, "b.npy")
    dataset.convert("a.blp", "b.csv")  # only reading needs it


@pytest.mark.full
@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("target", ["b.npz", "b.zarr", "t.bcolz"])
def test_interruption(target, tmp_path):
    """Ctrl-C leaves nothing."""
    fields = [("x", "f8"), ("y", "f8")] if target == "t.bcolz" else "f8"
    np.lib.format.open_memmap("big.npy", "w+", dtype=fields, shape=(2**26,))
    process = subprocess.Popen(
        [sys.executable, "-m", "bloscpack", "convert", "big.npy", target],
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    while len(os.listdir()) < 3 and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert "blpk: error: interrupted" in process.communicate(timeout=60)[1]
    assert -signal.SIGINT == process.returncode
    assert ["a.blp", "big.npy"] == sorted(os.listdir())


def test_verbose(command):
    out, err = command("-v", "a.blp", "b.zarr")
    assert "input file is: 'a.blp'" in out
    assert "took: " in err


def test_progress(command):
    err = command("--progress", "a.blp", "b.zarr")[1]
    assert re.search(r"7\.80?k/7\.80?k", err.lower())


def size_of(path):
    inside = [os.path.join(path, name) for name in os.listdir(path)]
    return sum(os.path.getsize(each) for each in inside if os.path.isfile(each))


def test_auto():
    np.save("a.npy", np.random.default_rng(1).integers(0, 9, 300_000))
    blpk("a.npy", "a.bcolz")
    blpk("--auto=ratio", "a.npy", "b.bcolz")
    one, other = (size_of(name + "/data") for name in ("a.bcolz", "b.bcolz"))
    assert 0.8 * one > other
    blpk("--auto", "-c", "zlib", "a.npy", "b.blp")
    assert "zlib" == bloscpack.info("b.blp").first_chunk.codec


@pytest.mark.parametrize("target", ["b.blp", "b.zarr/c/0"])
def test_files_are_not_larger_than_those_of_save(target):
    array = np.round(np.cumsum(np.random.default_rng(1).normal(size=500_000)), 2)
    np.save("a.npy", array)
    bloscpack.save("saved.blp", array)
    blpk("a.npy", target.partition("/")[0])
    assert os.path.getsize(target) < 1.1 * os.path.getsize("saved.blp")


def test_the_help_states_no_default_of_other_verbs():
    parser, _ = parser_of("convert")
    assert "blosclz)" not in parser.format_help()
