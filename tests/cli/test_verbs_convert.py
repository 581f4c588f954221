"""``blpk convert``: what the options do, and how errors are reported."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from cli.verb_support import parser_of
from support import environment

import bloscpack
from bloscpack import dataset
from bloscpack._cli.exit_codes import EXIT_USAGE, Refusal
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
    }
    assert expected == json.loads(out)
    assert "attributes" in err


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
        (["-", "b.npy"], "not streams"),
        (["a.blp", "-"], "not streams"),
        (["--dtype", "x", "a.blp", "b.npy"], "a name and a type"),
        (["--dtype", "=i4", "a.blp", "b.npy"], "a name and a type"),
    ],
)
def test_usage(arguments, message):
    with pytest.raises(Refusal, match=message) as caught:
        blpk(*arguments)
    assert EXIT_USAGE == caught.value.exit_code


def test_missing_source():
    with pytest.raises(FileNotFound, match="input file 'x' does not exist!"):
        blpk("x", "b.npy")


def test_missing_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with open("a.parquet", "wb") as fp:
        fp.write(b"PAR1")
    with pytest.raises(bloscpack.UsageError, match=r"pip install '\.\[tables\]'"):
        blpk("a.parquet", "b.npy")


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
    time.sleep(0.3)  # the command may not have begun to write
    process.send_signal(signal.SIGINT)
    assert "blpk: error: interrupted" in process.communicate(timeout=60)[1]
    assert 130 == process.returncode
    assert ["a.blp", "big.npy"] == sorted(os.listdir())


def test_verbose(command):
    out, err = command("-v", "a.blp", "b.zarr")
    assert "input file is: 'a.blp'" in out
    assert "took: " in err


def test_progress(command):
    err = command("--progress", "a.blp", "b.zarr")[1]
    assert re.search(r"7\.80?k/7\.80?k", err.lower())
