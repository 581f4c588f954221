"""How many files are open, and what happens if the process may open no more."""

import os
import subprocess
import sys

import numpy as np
import pytest

import bloscpack
from bloscpack import dataset
from bloscpack.exceptions import StorageError

pytestmark = pytest.mark.skipif(
    not os.path.isdir("/proc/self/fd"), reason="needs the file descriptors of Linux"
)

LIMITED = """
import resource, sys
import numpy as np
import bloscpack
from bloscpack import dataset
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 400))
"""
OPEN_MANY = """
for i in range(300):
    dataset.create_array("d%d" % i, np.arange(1000) + i, chunks=100).close()
    if i < 100:
        bloscpack.pack_ndarray_to_file(np.arange(1000) + i, "a%d.blp" % i)
arrays = [dataset.open("d%d" % i) for i in range(300)]
lazy = [bloscpack.open_ndarray("a%d.blp" % i, cache_nbytes=0) for i in range(100)]
for _ in range(2):
    assert all(array[i] == 2 * i for i, array in enumerate(arrays))
    assert all(array[i] == 2 * i for i, array in enumerate(lazy))
"""
# All descriptors of the process but a few are used by the program itself.
OPEN_OTHERS = """
lazy += [bloscpack.open_ndarray("a%d.blp" % i) for i in range(20)]
others = []
try:
    while True:
        others.append(open("a0.blp", "rb"))
except OSError:
    del others[-5:]
assert all(array[i] == 2 * i for i, array in enumerate(arrays))
assert all(array[i] == 2 * i for i, array in enumerate(lazy[:100]))
arrays[7].close()
with dataset.open("d7", "r+") as array:
    array.append([1, 2])
assert dataset.open("d7")[-2:].tolist() == [1, 2]
"""
WIDE = """
columns = {"c%d" % i: np.arange(3) + i for i in range(300)}
with dataset.create_table("t", columns) as table:
    table.append(columns)
    table[1] = tuple(range(300))
with dataset.open("t", "r+") as table:
    table.append(columns)
table = dataset.open("t")
for _ in range(2):
    rows = table[:]
    assert rows.shape == (9,) and rows["c299"].tolist()[:3] == [299, 299, 301]
"""
# Each column has many files.
WIDE_AND_LONG = """
from bloscpack import abstract_io
abstract_io.available_cpus = lambda: 16
for layout in "zarr", "superchunk":
    rows = {"c%d" % i: np.arange(99) for i in range(20)}
    how = {"layout": layout, "chunks": 1, "shards": 2}
    with dataset.create_table(layout, rows, **how) as table:
        table.append(rows)
        table[:] = {name: np.ones(198, "i8") for name in rows}
    assert 198 == dataset.open(layout)["c19"][:].sum()
"""

# A group locks all members at once in its first change.
MANY_LOCKS = """
group = dataset.create_group("g")
for i in range(300):
    group.create_array("a%d" % i, np.arange(10))
try:
    with group.change():
        group["a0"].append([10])
except OSError as error:
    assert "all members at once" in str(error) and error.filename == group.path
assert 10 == len(group["a0"]) and not group.commits_members
try:
    opened = [group["a%d" % i] for i in range(300)]
except OSError as error:
    assert error.filename.startswith(group.path), error
else:
    raise AssertionError("each array that is open for changes has a lock")
resource.setrlimit(resource.RLIMIT_NOFILE, (400, 400))
with group.change():
    group["a0"].append([10])
assert 11 == len(group["a0"]) and 300 == len(group)
"""


def run(program, folder):
    done = subprocess.run(
        [sys.executable, "-c", LIMITED + program],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (0, "") == (done.returncode, done.stderr)


@pytest.mark.full
def test_many_arrays_need_few_descriptors(tmp_path):
    run(OPEN_MANY + OPEN_OTHERS, tmp_path)


@pytest.mark.full
def test_a_wide_table_needs_few_descriptors(tmp_path):
    run(WIDE, tmp_path)


@pytest.mark.full
def test_a_wide_table_of_many_files_needs_few_descriptors(tmp_path):
    run(WIDE_AND_LONG, tmp_path)


@pytest.mark.full
def test_a_group_of_more_members_than_descriptors(tmp_path):
    run(MANY_LOCKS, tmp_path)


@pytest.fixture
def own_files(monkeypatch):
    """Without the files of other tests that nothing has closed yet."""
    monkeypatch.setattr("bloscpack._storage.descriptors._open", {})


@pytest.fixture
def closed_at_once(monkeypatch, own_files):
    """As if the process could open very few files: each is closed after its use."""
    monkeypatch.setattr("bloscpack._storage.descriptors.MOST_KEPT", 0)


def open_files():
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink("/proc/self/fd/" + number))
        except OSError:
            continue  # the list of the folder itself
    return found


def test_an_array_that_is_closed_meanwhile(tmp_path, closed_at_once):
    path = tmp_path / "a.blp"
    bloscpack.pack_ndarray_to_file(np.arange(10**5), path)
    with bloscpack.open_ndarray(path, cache_nbytes=0) as lazy:
        assert str(path) not in open_files()
        assert 7 == lazy[7]
        bloscpack.append_ndarray_to_file(np.arange(5), path)
        assert 99_999 == lazy[-1]
        assert 10**5 == len(lazy)
    with pytest.raises(ValueError, match="closed"):
        lazy[3]


def test_a_name_that_is_relative(tmp_path, monkeypatch, closed_at_once):
    monkeypatch.chdir(tmp_path)
    bloscpack.pack_ndarray_to_file(np.arange(10), "a.blp")
    with bloscpack.open_ndarray("a.blp", cache_nbytes=0) as lazy:
        monkeypatch.chdir("/")
        assert 7 == lazy[7]


def test_a_file_that_is_replaced_while_it_is_closed(tmp_path, closed_at_once):
    path, other = tmp_path / "a.blp", tmp_path / "b.blp"
    bloscpack.pack_ndarray_to_file(np.arange(10), path)
    bloscpack.pack_ndarray_to_file(-np.arange(10), other)
    with bloscpack.open_ndarray(path, cache_nbytes=0) as lazy:
        assert 7 == lazy[7]
        other.rename(path)
        with pytest.raises(
            StorageError, match="another file has got its name"
        ) as error:
            lazy[7]
        assert str(path) == error.value.filename
        path.unlink()
        with pytest.raises(FileNotFoundError):
            lazy[7]


def test_a_file_without_its_name_is_not_closed(tmp_path, monkeypatch, own_files):
    path = tmp_path / "a.blp"
    bloscpack.pack_ndarray_to_file(np.arange(10), path)
    with bloscpack.open_ndarray(path, cache_nbytes=0) as lazy:
        bloscpack.pack_ndarray_to_file(-np.arange(10), path)
        monkeypatch.setattr("bloscpack._storage.descriptors.MOST_KEPT", 0)
        with bloscpack.open_ndarray(path, cache_nbytes=0) as new:
            assert [7, -7] == [lazy[7], new[7]]


def test_a_shard_that_is_replaced_while_it_is_closed(tmp_path, closed_at_once):
    """A reader takes the new file, as it does after an append."""
    path = tmp_path / "a"
    with dataset.create_array(path, np.arange(10), chunks=4) as array:
        reader = dataset.open(path)
        assert 7 == reader[7]
        assert str(path / "c/0") not in open_files()
        array.append([10, 11])
        assert [7, 9] == reader[[7, 9]].tolist()
        assert 10 == len(reader)


def test_files_that_were_not_used_for_long_are_closed_first(
    tmp_path, monkeypatch, own_files
):
    names = [str(tmp_path / ("%d.blp" % i)) for i in range(8)]
    for name in names:
        bloscpack.pack_ndarray_to_file(np.arange(10), name)
    lazy = [bloscpack.open_ndarray(name, cache_nbytes=0) for name in names[:7]]
    assert 7 == lazy[0][7]
    monkeypatch.setattr("bloscpack._storage.descriptors.MOST_KEPT", 7)
    lazy.append(bloscpack.open_ndarray(names[7], cache_nbytes=0))
    assert {names[0], *names[5:]} <= open_files()
    assert not set(names[1:5]) & open_files()
    assert [7] * 8 == [array[7] for array in lazy]
