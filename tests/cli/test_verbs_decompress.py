"""What decompress makes of arrays, by the name of the output."""

import io
import json
import os
import sys

import numpy as np
import pytest

import bloscpack
from bloscpack import cli
from bloscpack.append import change_metadata

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


@pytest.mark.parametrize("options", [["--npy"], []])
def test_metadata_beside_an_array_come_back(folder, capsys, options):
    before = (folder / "x.npy").read_bytes()
    (folder / "unit.json").write_text('{"unit": "m"}')
    cli.main(["compress", "--npy", "-m", "unit.json", "x.npy"])
    found = bloscpack.unpack_ndarray_from_file("x.npy.blp", return_metadata=True)
    assert {"unit": "m"} == found[1]
    assert (found[0] == ARRAY).all()
    cli.main(["decompress", *options, "--metadata-to", "m", "x.npy.blp", "a.npy"])
    assert before == (folder / "a.npy").read_bytes()
    assert {"unit": "m"} == json.loads((folder / "m").read_text())
    with pytest.raises(SystemExit):
        cli.main(["decompress", *options, "--rm", "--output", "b.npy", "x.npy.blp"])
    assert "lose: metadata; --metadata-to FILE keeps them" in capsys.readouterr().err
    files = ["--metadata-to", "n", "--output", "b.npy", "x.npy.blp"]
    cli.main(["decompress", *options, "--rm", *files])
    assert {"unit": "m"} == json.loads((folder / "n").read_text())
    assert not (folder / "x.npy.blp").exists()


def test_no_metadata_beside_an_array(folder):
    cli.main(["compress", "--npy", "x.npy"])
    cli.main(["decompress", "--npy", "--metadata-to", "m", "x.npy.blp", "a.npy"])
    assert "null\n" == (folder / "m").read_text()
    cli.main(["decompress", "--raw", "--metadata-to", "n", "x.npy.blp", "b.npy"])
    assert "container" in json.loads((folder / "n").read_text())


def test_metadata_that_neither_file_can_have(folder, capsys):
    cli.main(["compress", "--npy", "x.npy"])
    change_metadata("x.npy.blp", lambda old: {**old, "unit": "m"})
    files = ["--metadata-to", "m", "--output", "a.npy", "x.npy.blp"]
    with pytest.raises(SystemExit):
        cli.main(["decompress", "--npy", "--rm", *files])
    assert "would lose: unit" in capsys.readouterr().err
    assert (folder / "x.npy.blp").exists()


def test_append_rows_and_metadata(folder):
    (folder / "unit.json").write_text('{"unit": "m"}')
    cli.main(["compress", "--npy", "x.npy"])
    cli.main(["append", "--npy", "-m", "unit.json", "x.npy.blp", "x.npy"])
    found = bloscpack.unpack_ndarray_from_file("x.npy.blp", return_metadata=True)
    assert ((400, 3), {"unit": "m"}) == (found[0].shape, found[1])


def test_raw_excludes_npy():
    with pytest.raises(SystemExit) as raised:
        cli.main(["decompress", "--raw", "--npy", "x.npy.blp"])
    assert 2 == raised.value.code


def test_chunks_of_every_axis_become_rows(folder):
    cli.main(["compress", "--npy", "x.npy"])
    cli.main(["repack", "--chunks", "30,2", "x.npy.blp"])
    cli.main(["decompress", "--npy", "x.npy.blp", "y.npy"])
    assert (folder / "x.npy").read_bytes() == (folder / "y.npy").read_bytes()
