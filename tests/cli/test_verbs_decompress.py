"""What decompress makes of arrays, by the name of the output."""

import io
import os
import sys

import numpy as np
import pytest

import bloscpack
from bloscpack import cli

ARRAY = np.arange(600, dtype="<i4").reshape(200, 3)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", ARRAY)
    np.save("f.npy", np.asfortranarray(ARRAY))
    return tmp_path


@pytest.mark.parametrize("name", ["x.npy", "f.npy"])
def test_npy_file_comes_back(folder, name):
    before = (folder / name).read_bytes()
    cli.main(["compress", "--npy", name])
    (folder / name).unlink()
    cli.main(["decompress", name + ".blp"])
    assert before == (folder / name).read_bytes()


def test_raw(folder):
    cli.main(["compress", "--npy", "x.npy"])
    cli.main(["-f", "decompress", "--raw", "x.npy.blp"])
    assert ARRAY.tobytes() == (folder / "x.npy").read_bytes()


def test_another_name_gets_the_bytes(folder):
    cli.main(["compress", "--npy", "x.npy"])
    cli.main(["decompress", "x.npy.blp", "x.bin"])
    assert ARRAY.tobytes() == (folder / "x.bin").read_bytes()


def test_bytes_of_a_npy_file_that_are_no_array(folder):
    before = (folder / "x.npy").read_bytes()
    cli.main(["compress", "x.npy"])
    cli.main(["-f", "decompress", "x.npy.blp"])
    assert before == (folder / "x.npy").read_bytes()


def test_from_a_pipe(folder, monkeypatch):
    before = (folder / "x.npy").read_bytes()
    packed = bloscpack.pack_ndarray_to_bytes(ARRAY)
    with io.TextIOWrapper(io.FileIO(pipe_of(packed))) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        cli.main(["decompress", "-", "new.npy"])
    assert before == (folder / "new.npy").read_bytes()


def pipe_of(data):
    """Return the descriptor of a pipe that holds `data`."""
    reader, writer = os.pipe()
    os.write(writer, data)
    os.close(writer)
    return reader


def test_metadata_of_the_array_are_in_the_npy_file(folder):
    before = (folder / "x.npy").read_bytes()
    cli.main(["compress", "--npy", "--rm", "x.npy"])
    cli.main(["decompress", "--rm", "x.npy.blp"])
    assert before == (folder / "x.npy").read_bytes()
    assert not (folder / "x.npy.blp").exists()


def test_raw_excludes_npy():
    with pytest.raises(SystemExit) as raised:
        cli.main(["decompress", "--raw", "--npy", "x.npy.blp"])
    assert 2 == raised.value.code
