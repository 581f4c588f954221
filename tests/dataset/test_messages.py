"""Messages say what was found, what was expected, and what to do."""

from __future__ import annotations

import os
import pickle
import re
from pathlib import Path

import numpy as np
import pytest

import bloscpack
from bloscpack import dataset
from bloscpack.exceptions import NotReadable, UsageError

HDF5 = b"\x89HDF\r\n\x1a\n"
FOREIGN = {
    "a.npy": (lambda name: np.save(name, [1]), "a .npy file, which .*convert reads"),
    "a.csv": (
        lambda name: Path(name).write_text("a\n"),
        "a .csv file, which .*convert",
    ),
    "a.blp": (lambda name: bloscpack.save(name, [1]), "a .blp file, which .*load"),
    "a.bin": (lambda name: Path(name).write_bytes(b"ab"), "found a file: "),
    "a.h5": (
        lambda name: Path(name).write_bytes(HDF5),
        "an HDF5 file, which .*convert",
    ),
}
if hasattr(os, "mkfifo"):
    FOREIGN["a"] = os.mkfifo, "found a file: "


@pytest.mark.parametrize("name", FOREIGN)
def test_a_file_is_no_dataset(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    make, message = FOREIGN[name]
    make(name)
    with pytest.raises(NotADirectoryError, match=message):
        dataset.open(name)


def test_an_archive_of_numpy_is_no_dataset(tmp_path):
    np.savez(tmp_path / "a.npz", x=[1])
    with pytest.raises(NotReadable, match="a ZIP file without"):
        dataset.open(tmp_path / "a.npz")


def test_messages_name_what_is_made(tmp_path):
    path = tmp_path / "a"
    with pytest.raises(UsageError, match=r"the array '.*a': expected text .*NaN is"):
        dataset.create_array(path, [None, 1])
    dataset.create_array(path, [1]).close()
    with pytest.raises(FileExistsError, match="mode='w' or force=True replaces it"):
        dataset.create_array(path, [1])


def test_messages_about_names_that_are_not_there(tmp_path):
    with dataset.create_group(tmp_path / "g") as group:
        group["x"], group["t"] = [1], {"c": [1]}
        for node, names in ((group, "'t', 'x'"), (group["t"], "'c'")):
            text = "there is no 'y' in '%s': expected one of %s" % (node.path, names)
            with pytest.raises(KeyError, match="^%s$" % re.escape(text)) as caught:
                node["y"]
            assert ("y",) == caught.value.args
            assert text in str(pickle.loads(pickle.dumps(caught.value)))
        with pytest.raises(KeyError, match="expected one of 'c'"):
            group["t"].rename({"y": "z"})
    for mode in "r", "r+":
        with (
            pytest.raises(KeyError) as caught,
            dataset.open(tmp_path / "g", mode) as group,
        ):
            group["t/y"]
        assert str(caught.value).endswith("expected one of 't', 'x'")  # it is closed
    bloscpack.savez(tmp_path / "s.zip", x=[1])
    archive = bloscpack.loadz(tmp_path / "s.zip")
    with archive, pytest.raises(KeyError, match=r"'.*s.zip': expected one of 'x'"):
        archive["y"]
