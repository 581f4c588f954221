"""Datasets of BLZ are written as the genuine reader accepts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import dataset.golden_directories as golden
import numpy as np
import pytest
from support import environment

from bloscpack import dataset
from bloscpack.exceptions import UsageError


def stored(path):
    return json.loads(path.read_text("ascii"))


def chunk_sizes(path):
    """Return the size of each chunk, without the header of its file."""
    return [file.stat().st_size - 16 for file in sorted((path / "data").iterdir())]


def test_the_files_of_an_array(tmp_path):
    items = np.arange(40, dtype="i4").reshape(20, 2)
    path = tmp_path / "a"
    with dataset.create_array(
        path, items, layout="blz", chunks=8, fill_value=7, cname="zlib", clevel=3
    ) as array:
        assert {
            "dtype": "int32",
            "bparams": {"clevel": 3, "shuffle": True, "cname": "zlib"},
            "chunklen": 8,
            "expectedlen": 20,
            "dflt": [7, 7],
        } == stored(path / "meta/storage")
        # Two full chunks, and the chunk in memory, which the program counts as plain.
        cbytes = sum(chunk_sizes(path)[:2]) + 2 * 128 + 8 * 8
        sizes = {"shape": [20, 2], "nbytes": 160, "cbytes": cbytes}
        assert sizes == stored(path / "meta/sizes")
        array.append(items[:5])
        sizes = stored(path / "meta/sizes")
        assert cbytes + chunk_sizes(path)[2] + 128 == sizes["cbytes"]
        array.resize(27)
    again = dataset.open_array(path, "r+")
    again.append(items[:10])
    flags = (path / "data/__3.blp").read_bytes()[16 + 2]
    assert 3 == flags >> 5  # zlib, also when it is opened again
    assert [[7, 7]] * 2 == again[25:27].tolist()
    assert "blz" == again.layout


def test_large_rows_have_one_fill_value(tmp_path):
    data = np.zeros((2, 300, 300), "u1")
    dataset.create_array(tmp_path / "a", data, layout="blz", fill_value=5).close()
    assert 5 == stored(tmp_path / "a/meta/storage")["dflt"]
    with dataset.open_array(tmp_path / "a", "r+") as array:
        array.resize(3)
        assert np.all(array[2] == 5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cname": "zstd"}, "can't have the codec 'zstd'.*it has 'blosclz', 'lz4'"),
        ({"shuffle": 2}, "can't have the filter '2'.*it has '0', '1'"),
        ({"typesize": 2}, "the layout 'blz' has cname, clevel, shuffle"),
    ],
)
def test_settings_that_it_cannot_read(tmp_path, settings, message):
    with pytest.raises(UsageError, match=message):
        dataset.create_array(tmp_path / "a", [1], layout="blz", **settings)
    assert [] == os.listdir(tmp_path)


def test_blocks_that_are_not_split(tmp_path):
    """The genuine reader ignores the flag; the application may have set the mode."""
    program = (
        "import blosc\n"
        "blosc.compress(b'01234567' * 999, cname='zlib')\n"  # keeps the variable
        "from bloscpack import dataset\n"
        "data = {'layout': %r, 'cname': %r, 'chunks': 9000}\n"
        "a = dataset.create_array('a', range(9999), **data)\n"
        "print(a[:].sum())"
    )
    changes = environment(BLOSC_SPLITMODE="NEVER")

    def create(layout, cname):
        return subprocess.run(
            [sys.executable, "-c", program % (layout, cname)],
            cwd=tmp_path,
            env=changes,
            capture_output=True,
            text=True,
            check=False,
        )

    refused = create("blz", "zlib")
    assert "BLZ would read the chunk wrong" in refused.stderr, refused.stderr
    assert [] == os.listdir(tmp_path)
    assert "49985001\n" == create("bcolz", "zlib").stdout


def test_the_files_of_a_table(tmp_path):
    path = tmp_path / "t"
    columns = {"a": np.arange(5), "b": np.arange(5.0)}
    with dataset.create_table(path, columns, layout="blz") as table:
        dirs = {"a": "a", "b": "b"}
        assert {"names": ["a", "b"], "dirs": dirs} == stored(path / "__rootdirs__")
        table.remove_column("a")
        assert {"names": ["b"], "dirs": {"b": "b"}} == stored(path / "__rootdirs__")
        table.add_column("a", [1] * 5, position=0)
        assert {"names": ["a", "b"], "dirs": dirs} == stored(path / "__rootdirs__")
        for name in ("_a", "a b", "class", ""):
            with pytest.raises(UsageError, match="column"):
                table.add_column(name, [1] * 5)


def test_columns_in_folders_of_other_names(tmp_path):
    path = tmp_path / "t"
    columns = {"a": np.arange(5), "b": np.arange(5.0)}
    dataset.create_table(path, columns, layout="blz").close()
    os.rename(path / "a", path / "x")
    dirs = {"a": "/old/place/x/", "b": "b", "gone": "gone"}
    content = json.dumps({"names": ["a", "b"], "dirs": dirs})
    (path / "__rootdirs__").write_text(content)
    with dataset.open_table(path, "r+") as table:
        table.add_column("x", np.arange(5) + 10)
        dirs = {"a": "x", "b": "b", "x": "x_"}
        assert dirs == stored(path / "__rootdirs__")["dirs"]
        table.remove_column("a")
        assert {"b": "b", "x": "x_"} == stored(path / "__rootdirs__")["dirs"]
        assert not (path / "x").exists()
        table.append([[5.0], [15]])
    with dataset.open_array(path / "x_", "r+") as column:  # one of the table
        assert list(range(10, 16)) == column[:].tolist()
        with pytest.raises(UsageError, match="table"):
            column.append([1])


def test_golden_tables_are_changed(tmp_path):
    for name, entry in golden.entries().items():
        if entry["kind"] != "btable":
            continue
        path = tmp_path / name
        golden.extract(name, path)
        expected = golden.values(name)
        for column in expected:
            (path / column / "data").mkdir(exist_ok=True)
        with dataset.open_table(path, "r+") as table:
            table.append(table[:3])
            table.add_column("more", np.arange(len(table)))
            table.remove_column(next(iter(expected)))
        found = dataset.open_table(path)
        for column in list(expected)[1:]:
            items = expected[column]
            longer = np.concatenate([items, items[:3]], dtype=items.dtype)
            assert longer.tobytes() == found[column][:].tobytes()
        assert set(found.names) == set(stored(path / "__rootdirs__")["dirs"])
