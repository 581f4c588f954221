"""Trees that are created here: blocks, rows, types, links, hostile folders."""

from __future__ import annotations

import errno
import gc
import os
import pickle
import resource
import subprocess
import sys
from contextlib import suppress

import numpy as np
import pytest
from dataset.inside import Disk
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support import environment, files_of

from bloscpack import bigfile
from bloscpack.bigfile.header import WIDTHS
from bloscpack.exceptions import (
    BloscpackError,
    DamageError,
    FormatError,
    NoSuchBlock,
    StorageError,
    UsageError,
)


@pytest.fixture
def tree(tmp_path):
    return bigfile.File(tmp_path / "tree", create=True)


# Creating


def test_create_and_write(tree, tmp_path):
    with tree.create("0/Position", ("f4", 3), 10, Nfile=3) as column:
        column.write(2, np.ones((8, 3)))
        column.write(0, [[1, 2, 3], [4, 5, 6]])
    column = tree["0/Position"]
    assert (np.dtype("f4"), 3, 10, 3) == (
        column.dtype,
        column.nmemb,
        column.size,
        column.nfile,
    )
    assert [[1, 2, 3], [4, 5, 6], [1, 1, 1]] == column[:3].tolist()
    assert {"000000", "000001", "000002", "header", "attr-v2"} == {
        path.name for path in (tmp_path / "tree/0/Position").iterdir()
    }
    assert bigfile.verify(tree).findings == []
    assert ["0/Position"] == tree.blocks == list(tree)
    assert "0/Position" in tree
    assert "0" not in tree


def test_default_number_of_files(tree, monkeypatch):
    assert 0 == tree.create_from_array("none", np.zeros(0)).nfile
    assert 1 == tree.create_from_array("one", np.zeros(3)).nfile
    monkeypatch.setattr("bloscpack.bigfile.header.ROWS_PER_FILE", 2)
    assert 2 == tree.create_from_array("two", np.zeros(3)).nfile


def test_a_block_without_data(tree):
    with tree.create("Header") as block:
        block.attrs["Time"] = 0.5
        block.attrs.update(BoxSize=2.5e5, Name="x")
    found = tree["Header"]
    assert (0, 0, 0) == (found.size, found.nmemb, found.nfile)
    assert {"BoxSize": 2.5e5, "Name": "x", "Time": 0.5} == dict(found.attrs)
    assert (0, 0) == found[:].shape


def test_attributes_of_tree_and_group(tree, tmp_path):
    tree.attrs["a"] = 1
    tree.create_from_array("g/x", [1, 2])
    tree["g/"].attrs["b"] = "two"
    with tree.create("h/.") as group:
        group.attrs["c"] = 3
    assert [1] == tree.open(".").attrs["a"].tolist()
    assert "two" == tree.open("g/.").attrs["b"]
    assert [3] == tree["h/"].attrs["c"].tolist()
    assert not (tmp_path / "tree/h/header").exists()
    assert ["g/x"] == tree.blocks


@pytest.mark.parametrize("dtype", ["U3", "S17", "M8[s]", "O", "c32", "i4,f8"])
def test_nothing_is_created_for_an_unknown_type(tree, tmp_path, dtype):
    with pytest.raises(UsageError, match="can't have the dtype"):
        tree.create("x", dtype, 3)
    with pytest.raises(UsageError, match="can't have the dtype"):
        tree.create_from_array("x", np.zeros(3, dtype))
    assert {} == files_of(tmp_path)
    assert [] == os.listdir(tmp_path / "tree")


@pytest.mark.parametrize(
    "name",
    ["a b", "a\tb", "a\nb", "../x", "a/../x", "/x", ".x", "a/.x", "header", "x/000000"],
)
def test_impossible_names(tree, tmp_path, name):
    with pytest.raises(UsageError):
        tree.create(name, "f4", 3)
    assert [] == os.listdir(tmp_path / "tree")


def test_blocks_and_groups_do_not_mix(tree):
    tree.create_from_array("a/b", [1])
    with pytest.raises(UsageError, match="'a' is a group"):
        tree.create("a", "f4", 3)
    with pytest.raises(UsageError, match="'a/b' is a block"):
        tree.create("a/b/c", "f4", 3)


@pytest.mark.parametrize(
    ("dtype", "size", "nfile"),
    [("f4", 3, 0), ("f4", -1, 1), (("f4", (2, 2)), 3, 1), ("f4", 2**62, 1)],
)
def test_impossible_blocks(tree, dtype, size, nfile):
    with pytest.raises(UsageError):
        tree.create("x", dtype, size, nfile)
    assert [] == tree.blocks


def test_a_block_is_replaced(tree):
    tree.create_from_array("x", np.arange(100), Nfile=5).attrs["a"] = 1
    tree.create_from_array("x", np.arange(3.0), Nfile=2)
    assert [0, 1, 2] == tree["x"][:].tolist()
    assert {} == dict(tree["x"].attrs)
    (finding,) = bigfile.verify(tree).findings
    assert ("orphan", "note") == (finding.kind, finding.severity)


def test_missing_blocks(tree, tmp_path):
    for get in (lambda: tree["x"], lambda: tree.open("x"), lambda: tree["x/"]):
        with pytest.raises(NoSuchBlock, match="no block"):
            get()
        with pytest.raises(KeyError):
            get()
        with pytest.raises(bigfile.Error):
            get()
    with pytest.raises(NoSuchBlock, match="no BigFile tree"):
        bigfile.File(tmp_path / "missing")
    with pytest.raises(KeyError):
        tree.attrs["x"]


# Rows


def test_conversions_when_writing_and_reading(tree):
    with tree.create("x", "i4", 4) as column:
        column.write(0, [1.9, -1.9, True, 3])
        with pytest.raises(UsageError, match="can't be converted"):
            column.write(0, [1j])
        with pytest.raises(UsageError, match="can't be converted"):
            column.write(0, ["a"])
    assert [1, -1, 1, 3] == tree["x"][:].tolist()
    out = np.empty(3, "f8")
    assert out is tree["x"].read(1, 3, out)
    assert [-1.0, 1.0, 3.0] == out.tolist()
    with pytest.raises(UsageError, match="can't be converted"):
        tree["x"].read(0, 1, np.empty(1, "S4"))


@pytest.mark.parametrize(
    ("start", "data"),
    [
        (0, np.zeros((4, 2))),
        (0, np.zeros(4)),
        (0, np.zeros((2, 3, 1))),
        (2, np.zeros((2, 3))),
        (-1, np.zeros((1, 3))),
        (4, np.zeros((1, 3))),
    ],
)
def test_rows_that_do_not_fit(tree, tmp_path, start, data):
    with tree.create("x", ("f4", 3), 3) as column, pytest.raises(UsageError):
        column.write(start, data)
    assert b"" == (tmp_path / "tree/x/000000").read_bytes()


INDICES = [
    3,
    -1,
    np.int64(2),
    slice(None),
    slice(2, 50, 7),
    slice(50, 2, -7),
    slice(None, None, -1),
    slice(5, 2),
    slice(-3, None),
    ...,
    [5, 1, 1, -2],
    np.arange(0, 60, 2) % 7 == 0,
    np.array([], int),
    (slice(2, 5), 1),
    (3, 2),
    (..., 0),
    (..., slice(0, 2)),
    ([1, 2], slice(1, None)),
    (slice(None), [2, 0]),
    ([5, 1], [2, 0]),
    ([5, 1], np.int64(2)),
    ([5, 1], [[2], [0]]),
    (slice(None, None, -2), slice(None, None, -1)),
    (slice(None, None, -1), [2, 0]),
    (),
]


@pytest.mark.parametrize("index", INDICES, ids=repr)
@pytest.mark.parametrize("gap", [0, 2**14])
def test_indices(tree, index, gap, monkeypatch):
    monkeypatch.setattr("bloscpack.bigfile.column.WINDOW_NBYTES", gap)
    array = np.arange(180).reshape(60, 3)
    column = tree.create_from_array("x", array, Nfile=7)
    if isinstance(index, np.ndarray) and index.dtype == bool:
        index = np.resize(index, 60)
    wanted = array[index]
    found = column[index]
    assert np.shape(wanted) == np.shape(found)
    assert np.array_equal(wanted, found)


@pytest.mark.parametrize(
    "index",
    [60, -61, [60], [[1]], None, (..., ...), (0, 0), 1.5, "x", np.ones(3, bool)],
)
def test_impossible_indices(tree, index):
    column = tree.create_from_array("x", np.zeros(60))
    with pytest.raises((IndexError, TypeError)):
        column[index]


def test_assignment(tree):
    column = tree.create("x", ("i4", 2), 5)
    column[:] = 0
    column[1] = [1, 2]
    column[-2:] = np.array([[3, 4], [5, 6]])
    column[0:1, :] = [[7, 8]]
    column.close()
    assert [[7, 8], [1, 2], [0, 0], [3, 4], [5, 6]] == tree["x"][:].tolist()
    assert bigfile.verify(tree).findings == []
    with pytest.raises(UsageError):
        tree["x"][::2] = 1


def test_rows_written_again_keep_the_checksum_right(tree):
    with tree.create("x", "i8", 1000, 3) as column:
        for seed in range(4):
            rows = np.random.default_rng(seed).integers(0, 99, 700)
            column.write(seed * 100, rows)
    with tree["x"] as column:
        column.write(5, np.full(900, -1))
    assert [] == bigfile.verify(tree).findings


def test_a_failed_write_keeps_the_checksum_right(tree):
    size = 3 * 2**20  # three pieces
    column = tree.create("x", "i4", size)
    rows = np.full(size, 257, "i4")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for fill in (1, 2):  # rows without bytes, and rows that have some
        resource.setrlimit(resource.RLIMIT_FSIZE, (5 * 2**20, limits[1]))
        try:
            with pytest.raises(OSError, match="too large"):
                column.write(0, rows * fill)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        column.flush()
        kinds = {finding.kind for finding in bigfile.verify(tree).findings}
        assert "checksum" not in kinds
        column.write(0, rows * fill)
        column.flush()
        assert [] == bigfile.verify(tree).findings


def test_a_failed_flush_can_be_repeated(tree, tmp_path):
    column = tree.create("x", "i4", 10)
    column.write(0, np.ones(10, "i4"))
    header = tmp_path / "tree" / "x" / "header"
    header.rename(tmp_path / "hidden")
    with pytest.raises(FileNotFoundError):
        column.flush()
    (tmp_path / "hidden").rename(header)
    column.close()
    assert [] == bigfile.verify(tree).findings


def test_append(tree, tmp_path):
    column = tree.create_from_array("x", np.arange(5), Nfile=2)
    first = (tmp_path / "tree/x/000000").read_bytes()
    column.append(np.arange(5, 12), Nfile=3)
    assert 12 == column.size == len(tree["x"])
    assert 5 == column.nfile
    column.append([12])
    assert list(range(13)) == tree["x"][:].tolist() == column[:].tolist()
    assert first == (tmp_path / "tree/x/000000").read_bytes()
    assert [] == bigfile.verify(tree).findings
    column.grow(4)
    (finding,) = bigfile.verify(tree).findings
    assert ("short", ((13, 17),)) == (finding.kind, finding.rows)
    column.write(13, [1, 2, 3, 4])
    column.close()
    assert [] == bigfile.verify(tree).findings


def test_append_to_a_block_without_rows(tree):
    tree.create("x", "u4", 0, 0).append([1, 2])
    assert [1, 2] == tree["x"][:].tolist()
    with pytest.raises(UsageError, match="no columns"):
        tree.create("Header").append([1])


def test_a_table_can_be_written(tree):
    tree.create("A", ("f4", 3), 4)
    tree.create("B", "i8", 4)
    table = bigfile.Dataset(tree, ["A", "B"])
    records = np.zeros(4, table.dtype)
    records["A"] = np.arange(12).reshape(4, 3)
    records["B"] = [4, 3, 2, 1]
    table.write(0, records)
    table.append(records[:2])
    table.close()
    again = bigfile.Dataset(tree)
    assert records[[0, 1, 2, 3, 0, 1]].tobytes() == again[:].tobytes()
    assert records[2].tobytes() == again[2].tobytes()
    assert 6 == len(again) == len(list(again))
    tree.create("C", "i8", 5)
    with pytest.raises(UsageError, match="one length"):
        bigfile.Dataset(tree)


def test_a_closed_column(tree):
    column = tree.create_from_array("x", [1.0])
    column.close()
    column.close()
    for use in (lambda: column[:], lambda: column.write(0, [1]), column.flush):
        with pytest.raises(bigfile.ColumnClosedError):
            use()


def test_the_header_is_written_although_nobody_closes_the_column(tree, tmp_path):
    program = (
        "from bloscpack import bigfile\n"
        "column = bigfile.File(%r).create('x', 'i4', 3)\n"
        "column.write(0, [1, 2, 3])\n" % str(tmp_path / "tree")
    )
    subprocess.run([sys.executable, "-c", program], env=environment(), check=True)
    assert [] == bigfile.verify(tree).findings
    assert b": 3 : 6 : 6" in (tmp_path / "tree/x/header").read_bytes()


def test_pickle(tree):
    column = tree.create_from_array("g/x", np.arange(5), Nfile=2)
    again = pickle.loads(pickle.dumps(column))
    assert [3, 4] == again[3:].tolist()
    assert ["x"] == pickle.loads(pickle.dumps(tree["g/"])).blocks
    again.write(0, [9])  # a copy commits at once
    assert [] == bigfile.verify(tree).findings


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        (None, [(0, 4), (4, 8), (8, 10)]),
        ((3, 2), [(0, 3), (3, 6), (6, 9), (9, 10)]),
        ((2,), [(0, 4), (4, 8), (8, 10)]),
        ((7,), [(0, 7), (7, 10)]),
        ((99,), [(0, 10)]),
        (((1, 2, 6, 1), (2,)), [(0, 3), (3, 9), (9, 10)]),
        (((10,), (2,)), [(0, 10)]),
    ],
)
def test_pieces_end_where_chunks_end(tree, chunks, expected):
    class Chunked:
        shape, dtype = (10, 2), np.dtype("i4")

        def __getitem__(self, index):
            taken.append((index.start, index.stop))
            return array[index]

    array, taken = np.arange(20, dtype="i4").reshape(10, 2), []
    Chunked.chunks = chunks
    column = tree.create_from_array("x", Chunked(), Nfile=3, memorylimit=4 * 8)
    assert expected == taken
    assert np.array_equal(array, column[:])
    taken.clear()
    Chunked.shape, Chunked.chunks = (0, 2), ((0,), (2,))
    tree.create_from_array("none", Chunked())
    assert [] == taken


def test_numbers_that_do_not_fit_are_converted_without_a_warning(tree):
    array = np.array([1e300, 1e-300, np.nan, -1.5])
    column = tree.create("x", "f4", 4)
    column.write(0, array)
    assert [np.inf, 0.0, -1.5] == column[:][[0, 1, 3]].tolist()
    column = tree.create_from_array("y", array)
    column.read(0, 4, np.empty(4, "i8"))


def test_what_dask_asks_for(tree):
    column = tree.create_from_array("x", np.zeros((4, 3), "f4"))
    assert ((4, 3), 2, np.dtype("f4"), 48) == (
        column.shape,
        column.ndim,
        column.dtype,
        column.nbytes,
    )
    token = column.__dask_tokenize__()
    assert token == tree["x"].__dask_tokenize__()
    column.append(np.zeros((1, 3)))
    assert token != tree["x"].__dask_tokenize__()


def test_many_files_are_not_all_kept_open(tree):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    gc.collect()  # earlier tests may have left files open: allow 150 more
    limit = min(len(os.listdir("/dev/fd")) + 150, soft)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        column = tree.create_from_array("x", np.arange(600), Nfile=300)
        assert list(range(600)) == column[:].tolist()
        assert [] == bigfile.verify(tree).findings
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


DTYPES = st.sampled_from(
    [
        "%s%s%d" % (order, kind, width)
        for order in "<>"
        for kind, widths in WIDTHS.items()
        for width in widths
        if (kind, width) != ("f", 16)
    ]
)


def made(dtype, shape, seed):
    """Return an array with arbitrary bytes."""
    nbytes = dtype.itemsize * int(np.prod(shape))
    random = np.random.default_rng(seed).integers(0, 256, nbytes, "u1")
    if dtype.kind == "b":
        random &= 1
    return random.view(dtype).reshape(shape)


@settings(max_examples=40, phases=(Phase.generate,))
@given(
    dtype=DTYPES,
    nmemb=st.integers(1, 4),
    nfile=st.integers(1, 20),
    size=st.integers(0, 40),
    start=st.integers(0, 40),
    seed=st.integers(0, 99),
)
def test_round_trip(tmp_path_factory, dtype, nmemb, nfile, size, start, seed):
    dtype, start = np.dtype(dtype), min(start, size)
    array = made(dtype, (size,) if nmemb == 1 else (size, nmemb), seed)
    tree = bigfile.File(tmp_path_factory.mktemp("tree"))
    column = tree.create_from_array("x", array, Nfile=nfile)
    assert array.dtype == column.dtype
    assert array.tobytes() == column[:].tobytes()
    rows = made(dtype, ((size - start) // 2, nmemb), seed + 1)
    column.write(start, rows)
    column.append(rows, Nfile=2)
    column.close()
    wanted = array.reshape(-1, nmemb).copy()
    wanted[start : start + len(rows)] = rows
    wanted = np.concatenate([wanted, rows]).astype(dtype)
    assert wanted.tobytes() == tree["x"][:].tobytes()
    assert [] == bigfile.verify(tree).findings


# Damaged and hostile trees


def test_a_short_file_names_the_rows(tree, tmp_path):
    tree.create_from_array("x", np.arange(10.0), Nfile=2)
    os.truncate(tmp_path / "tree/x/000001", 20)
    column = tree["x"]
    assert list(range(7)) == column[:7].tolist()
    with pytest.raises(DamageError, match="rows 7 to 9 missing: data file 000001"):
        column[:]
    with pytest.raises(DamageError, match="row 8 missing"):
        column[8]
    os.unlink(tmp_path / "tree/x/000000")
    with pytest.raises(DamageError, match="rows 0 to 4 missing"):
        tree["x"][:]


SHORTENED = """
import os, sys, threading
import numpy as np
from bloscpack import bigfile
from bloscpack.exceptions import DamageError

column, nbytes = bigfile.File(sys.argv[1])["x"], 2**23
done = threading.Event()

def shorten():
    while not done.is_set():
        os.truncate(os.path.join(sys.argv[1], "x", "000000"), 4096)
        os.truncate(os.path.join(sys.argv[1], "x", "000000"), nbytes)

other = threading.Thread(target=shorten)
other.start()
for index in [slice(None), slice(None, None, 3), -1] * 50:
    try:
        assert not column[index].any()
    except DamageError as error:
        assert "missing" in str(error) or "became shorter" in str(error)
done.set()
other.join()
"""


def test_a_file_that_another_process_shortens_ends_no_program(tree):
    """A memory map would end the process: a page without a file is a bus error."""
    tree.create_from_array("x", np.zeros(2**20)).close()
    command = [sys.executable, "-c", SHORTENED, tree.basename]
    subprocess.run(command, env=environment(), check=True)


def test_a_missing_file_is_not_called_empty(tree, tmp_path):
    tree.create_from_array("x", np.arange(10), Nfile=2).close()
    os.unlink(tmp_path / "tree/x/000001")
    (short,) = (f for f in bigfile.verify(tree).findings if f.kind == "short")
    assert "rows 5 to 9 missing: there is no file, expected 40 bytes" == short.message


def test_an_error_of_the_file_system_names_the_file(tmp_path):
    program = (
        "import resource, sys, numpy; from bloscpack import bigfile\n"
        "tree = bigfile.File(sys.argv[1])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))\n"
        "try: tree.create_from_array('x', numpy.ones(10**6))\n"
        "except OSError as error: print(error.filename)\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", program, tmp_path],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(tmp_path / "x" / "000000") == found.stdout.strip()


def test_lying_counts_take_no_memory(tree, tmp_path):
    column = tree.create("x", "f8", 2**50, 1)
    with pytest.raises(DamageError, match="missing"):
        column[:]
    text = (
        (tmp_path / "tree/x/header").read_text().replace("NFILE: 1", "NFILE: 4000000")
    )
    (tmp_path / "tree/x/header").write_text(text)
    with pytest.raises(FormatError, match="found 1 data file"):
        tree["x"]
    (finding,) = bigfile.verify(tree).findings
    assert "header" == finding.kind
    path = tmp_path / "tree/y/header"
    tree.create("y", "f8", 2**20)
    path.write_text(path.read_text().replace("NMEMB: 1", "NMEMB: 2147483647"))
    with pytest.raises(FormatError, match="expected rows of at most 2147483647 bytes"):
        tree["y"]


def test_no_block_is_copied_over_itself(tree, tmp_path):
    rows = np.arange(6)
    tree.create_from_array("g/x", rows).close()
    (tmp_path / "tree" / "link").symlink_to("g", target_is_directory=True)
    inner = bigfile.File(tmp_path / "tree" / "g")
    for source, block, target, new_block in [
        (tree, "g/x", tree, "g//x"),
        (tree, "g/x", inner, "x"),
        (inner, "x", tree, "g/x"),
        (tree, "g/x", tree, "link/x"),
    ]:
        with pytest.raises(UsageError, match="over itself"):
            bigfile.copy(source, block, target, new_block)
        with pytest.raises(UsageError, match="over itself"):
            target.create_from_array(new_block, source[block])
    assert rows.tolist() == tree["g/x"][:].tolist()


def test_links_out_of_the_tree_are_refused(tree, tmp_path):
    outside = bigfile.File(tmp_path / "outside", create=True)
    outside.create_from_array("x", [1, 2])
    tree.create_from_array("x", [3, 4])
    root = tmp_path / "tree"
    (root / "link").symlink_to(tmp_path / "outside" / "x")
    (root / "group").symlink_to(tmp_path / "outside")
    (root / "inside").symlink_to(root / "x")
    (root / "loop").symlink_to(root)
    assert ["inside", "x"] == bigfile.File(root).blocks
    assert [3, 4] == tree["inside"][:].tolist()
    for name in ("link", "group/x"):
        with pytest.raises(NoSuchBlock):
            tree[name]
    with pytest.raises(StorageError):
        tree.create("group/y", "i4", 3)
    assert ["x"] == bigfile.File(tmp_path / "outside").blocks
    free = bigfile.File(root, follow_links=True)
    assert ["group/x", "inside", "link", "x"] == free.blocks
    assert [1, 2] == free["group/x"][:].tolist()


@pytest.mark.parametrize("name", ["000000", "header", "attr-v2"])
def test_linked_files_are_not_followed_out_of_the_tree(tree, tmp_path, name):
    victim = tmp_path / "victim"
    tree.create_from_array("x", [1, 2]).close()
    path = tmp_path / "tree/x" / name
    victim.write_bytes(path.read_bytes())
    before = victim.read_bytes()
    path.unlink()
    path.symlink_to(victim)
    actions = [
        lambda: tree.open("x")[:],
        lambda: tree.open("x").write(0, [9]),
        lambda: tree.open("x").attrs.update(a=1),
        lambda: tree.create("x", "i8", 7),
        lambda: tree.create_from_array("x", [9, 9]),
    ]
    for action in actions:
        with suppress(BloscpackError):
            action()
    assert before == victim.read_bytes()


def test_a_block_without_a_header_is_unfinished(tree, tmp_path):
    tree.create_from_array("g/x", np.arange(10), Nfile=6).close()
    (tmp_path / "tree/g/x/header").unlink()
    tree.refresh()
    report = bigfile.verify(tree)
    (finding,) = report.findings
    assert not report.ok
    assert ("g/x", "header") == (finding.block, finding.kind)
    assert finding.message.endswith("finished: 000000, 000001, 000002, 000003, ...")


@pytest.mark.parametrize(
    ("nfile", "dtype"), [(None, None), (1, None), (7, None), (3, "f4")]
)
def test_a_copy_remembers_the_rows_that_were_never_written(
    tree, tmp_path, nfile, dtype
):
    with tree.create("x", ("f8", 2), 100, 4) as column:
        column.write(10, np.ones((30, 2)))
        column.write(90, np.ones((10, 2)))
    unwritten = [(0, 10), (40, 90)]
    other = bigfile.File(tmp_path / "other", create=True)
    copy = bigfile.copy(tree, "x", other, "y", Nfile=nfile, dtype=dtype)
    assert tree["x"][10:40].tolist() == copy[10:40].tolist()
    numbers = [range(*pair) for f in bigfile.verify(other).findings for pair in f.rows]
    found = sorted({number for part in numbers for number in part})
    assert [*range(10), *range(40, 90)] == found
    with copy:
        for start, stop in unwritten:
            copy[start:stop] = 2
    assert [] == bigfile.verify(other).findings
    found = other["y"][:, 0].tolist()
    assert [2] * 10 + [1] * 30 + [2] * 50 + [1] * 10 == found


def test_a_full_disk_leaves_a_block_that_verify_names(tree):
    class Rows:
        shape, dtype = (100,), np.dtype("f8")

        def __getitem__(self, index):
            if index.stop > 50:
                raise OSError(errno.ENOSPC, "No space left on device")
            return np.arange(100.0)[index]

        chunks = ((50, 50),)

    with pytest.raises(OSError, match="No space"):
        tree.create_from_array("new", Rows())
    (finding,) = bigfile.verify(tree).findings
    assert ("new", "header") == (finding.block, finding.kind)
    assert "new" not in tree


def test_the_folder_of_a_block_is_checked_as_a_block(tree, tmp_path):
    tree.create_from_array("x", np.arange(10), Nfile=2).close()
    report = bigfile.verify(tmp_path / "tree" / "x")
    assert (True, 1, 2) == (report.ok, report.nblocks, report.nfiles)
    os.truncate(tmp_path / "tree/x/000001", 8)
    findings = bigfile.verify(tmp_path / "tree" / "x").findings
    assert "error: ./000001: rows 6 to 9 missing" in str(findings[0])


def test_a_pipe_is_not_read(tree, tmp_path):
    tree.create_from_array("x", [1, 2]).close()
    path = tmp_path / "tree/x/000000"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(StorageError, match="regular file"):
        tree["x"][:]
    (finding,) = bigfile.verify(tree).findings
    assert ("file", ((0, 2),)) == (finding.kind, finding.rows)


def test_a_failed_change_of_attributes_leaves_the_old_ones(tree, monkeypatch):
    attrs = tree.create("x").attrs
    attrs["a"] = 1
    for value in ([], object(), {}):
        with pytest.raises(UsageError):
            attrs.update(b=2, c=value)
    assert ["a"] == list(tree["x"].attrs)

    def fail(*args):
        raise OSError("no room")

    monkeypatch.setattr(Disk, "rename", fail)
    with pytest.raises(OSError, match="no room"):
        attrs["a"] = 2
    assert [1] == tree["x"].attrs["a"].tolist()


def test_links_inside_of_a_tree_are_followed_once(tmp_path):
    """Forty folders with two links each have 2 ** 40 names."""
    root = tmp_path / "tree"
    for number in range(40):
        (root / str(number)).mkdir(parents=True)
        for name in "ab" if number else "":
            (root / str(number - 1) / name).symlink_to(root / str(number))
    tree = bigfile.File(root)
    tree.create_from_array("39/x", np.arange(3)).close()
    assert ["39/x"] == tree.blocks
    assert bigfile.verify(root).ok
