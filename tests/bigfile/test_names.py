"""The names of the package bigfile 0.1.52: scripts for it change one import."""

from __future__ import annotations

import contextlib
import io

import numpy as np
import pytest
from bigfile.test_mpi import ThreadCommunicator

from bloscpack import bigfile
from bloscpack.exceptions import UsageTypeError

# What ``dir()`` of the package, of its classes and of their objects shows: all names
# without an underscore but those of modules, and the methods for operators.
COLUMN = "Nfile append attrs close comm create dtype flush open read size write"
FILE = "basename blocks close create create_from_array keys list_blocks open subfile"
NAMES = {
    "": "BigBlock BigBlockClosedError BigBlockMPI BigData BigFile BigFileClosedError "
    "BigFileError BigFileMPI Column ColumnClosedError ColumnLowLevelAPI ColumnMPI "
    "Dataset Error File FileBase FileClosedError FileLowLevelAPI FileMPI check_unique "
    "isstr isstrlist set_buffer_size __version__",
    "Column": COLUMN + " __enter__ __exit__ __getitem__ __setitem__",
    "ColumnMPI": COLUMN + " __enter__ __exit__ __getitem__ __setitem__",
    "File": FILE + " __contains__ __enter__ __exit__ __getitem__ __iter__",
    "FileMPI": FILE + " refresh __contains__ __enter__ __exit__ __getitem__ __iter__",
    "Dataset": "append create dtype file read shape size write __getitem__ __setitem__",
}
# The example of its readme; the second line is changed, and the brackets are added.
EXAMPLE = """
from bloscpack import bigfile

f = bigfile.File('PART_018')

print (f.blocks)
# Position and Velocity of GAS particles
data = bigfile.Dataset(f["0/"], ['Position', 'Velocity'])

print (data.size)
print (data.dtype)
# just read a few particles, because there are 700 billion of them.
print (data[10:30])
"""


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tree = bigfile.File("PART_018", create=True)
    for number, name in enumerate(("Position", "Velocity")):
        rows = np.arange(120.0).reshape(40, 3) + number
        tree.create_from_array("0/" + name, rows, memorylimit=100).close()
    tree.create_from_array("0/ID", np.arange(40)).close()
    return tree


class FreeBarrier:
    """Lets a single rank pass."""

    def wait(self, seconds):
        pass


@pytest.fixture
def shared(tree):
    """A tree that the only rank of a communicator shares."""
    comm = ThreadCommunicator(0, 1, FreeBarrier(), [None])
    return bigfile.BigFileMPI(comm, "PART_018")


@pytest.fixture
def table(tree):
    return bigfile.Dataset(tree["0/"], ["Position", "ID"])


@pytest.mark.parametrize("owner", NAMES)
def test_every_name_of_the_package_exists(owner, tree, table, shared):
    objects = {"": bigfile, "Dataset": table}
    for file in (tree, shared):
        column = file["0/ID"]
        objects |= {type(each).__name__: each for each in (file, column)}
    missing = set(NAMES[owner].split()) - set(dir(objects[owner]))
    assert set() == missing


def test_the_example_of_the_readme(tree):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(EXAMPLE)
    blocks, size, dtype, rows = out.getvalue().split("\n", 3)
    assert "['0/ID', '0/Position', '0/Velocity']" == blocks
    assert "40" == size
    assert "[('Position', '<f8', (3,)), ('Velocity', '<f8', (3,))]" == dtype
    expected = np.zeros(20, [("Position", "f8", 3), ("Velocity", "f8", 3)])
    expected["Position"] = np.arange(30.0, 90).reshape(20, 3)
    expected["Velocity"] = expected["Position"] + 1
    assert "%s\n" % expected == rows


def test_errors_are_caught_by_their_names(tree):
    for missing in (lambda: tree.open("x"), lambda: bigfile.BigFile("missing")):
        with pytest.raises(bigfile.BigFileError):
            missing()
    column = tree["0/ID"]
    column.close()
    with pytest.raises(bigfile.BigBlockClosedError):
        column.read(0, 1)
    assert issubclass(bigfile.BigFileClosedError, Exception)
    assert bigfile.set_buffer_size(2**20) is None


def test_names_and_rows_of_a_table_in_any_order(table):
    expected = np.arange(30.0, 36).reshape(2, 3)
    for index in (("Position", slice(10, 12)), (slice(10, 12), "Position")):
        assert expected.tolist() == table[index].tolist()
    assert [33, 34, 35] == table["Position", 11].tolist()
    assert (40, 3) == table["Position", ...].shape
    records = table[["ID", "Position"], 10:12]
    assert (("ID", "Position"), [10, 11]) == (
        records.dtype.names,
        records["ID"].tolist(),
    )
    assert [0, 1] == table[("ID",), :2].tolist()
    assert table["ID"] is table[("ID",)]
    for rows in ([3, 1], np.array([3, 1]), (np.array([3, 1]),), []):
        picked = [3, 1] if len(rows) else []
        assert picked == table[rows]["ID"].tolist()
        assert picked == table["ID", rows].tolist()


def test_records_are_assigned_to_rows_of_a_table(table, tree):
    records = np.zeros(2, table.dtype)
    records["ID"] = 100, 101
    table[0:2] = records
    table[-1] = records[1]
    table[5] = records[:1]
    table["ID", 7:9] = [70, 80]
    table[["Position"], 3] = records[0]
    table.flush()
    ids = np.arange(40)
    ids[[0, 1, 5, 7, 8, -1]] = 100, 101, 100, 70, 80, 101
    assert ids.tolist() == tree["0/ID"][:].tolist()
    zeros = np.flatnonzero(~tree["0/Position"][:].any(axis=1))
    assert [0, 1, 3, 5, 39] == zeros.tolist()
    assert bigfile.verify(tree).ok
    table[...] = np.zeros(40, table.dtype)
    assert not table[:]["Position"].any()


def test_items_of_rows_of_a_table(table):
    before = table[:].tobytes()
    assert [30, 33] == table["Position", 10:12, 0].tolist()
    assert [30, 33] == table[10:12, "Position", 0].tolist()
    for index in (
        ("Position", slice(1, 3), 0),
        (slice(1, 3), "Position", "ID"),
        (slice(1, 3), "Position", ["ID"]),
        (["Position", "ID"], slice(1, 3), 0),
    ):
        with pytest.raises(UsageTypeError):
            table[index] = -1
        if index[2] != 0 or index[0] != "Position":
            with pytest.raises(UsageTypeError):
                table[index]
    assert before == table[:].tobytes()


def test_lists_are_no_records(table, tree):
    for write in (table.append, lambda rows: table.write(0, rows)):
        with pytest.raises(UsageTypeError, match="no field"):
            write([1, 2])
    table.append(list(table[:2]))
    assert 42 == table.size
    assert 3 == tree.create_from_array("new", [1, 2, 3], memorylimit=None).size


def test_assigned_records_need_the_fields_of_the_table(table):
    with pytest.raises(TypeError, match="no field 'ID'"):
        table[0:2] = np.zeros(2, [("Position", "f8", 3)])
    with pytest.raises(ValueError, match="broadcast"):
        table[0:2] = np.zeros(3, table.dtype)


def test_a_table_creates_its_columns(tree):
    table = bigfile.Dataset.create(tree, np.dtype([("a", "f4"), ("b", "i8", 3)]), 5)
    table[:] = np.ones(5, table.dtype)
    assert ((5,), (5, 3), 15) == (tree["a"].shape, tree["b"].shape, tree["b"][:].sum())


def test_a_block_is_opened_and_created_with_an_object(tree):
    block = bigfile.BigBlock()
    assert (0, 0, None) == (block.size, block.Nfile, block.comm)
    with pytest.raises(bigfile.BigBlockClosedError, match="no block has been"):
        block.read(0, 1)
    with pytest.raises(bigfile.BigBlockClosedError, match="no block has been"):
        block.attrs["unit"] = "m"
    block.open(tree, "0/ID")
    assert [3, 4] == block[3:5].tolist()
    block.create(tree, "new", "f4", 4, Nfile=2)
    block.write(0, np.arange(4))
    del block  # it is closed
    assert (2, [0, 1, 2, 3]) == (tree["new"].Nfile, tree["new"][:].tolist())
    assert bigfile.verify(tree).ok


def test_blocks_of_mpi_are_opened_with_an_object(tree, shared):
    block = bigfile.BigBlockMPI(shared.comm)
    block.open(shared, "0/ID")
    block[0] = 7
    block.close()
    assert 7 == tree["0/ID"][0]
    with pytest.raises(bigfile.Error, match="class 'Column', not 'ColumnMPI'"):
        block.open(tree, "0/ID")
    assert bigfile.check_unique("x", shared.comm)


def test_ranks_name_the_same_tree(tree):
    class Differing(ThreadCommunicator):
        def allgather(self, sendobj):
            return [sendobj, "other"]

    with pytest.raises(bigfile.BigFileError, match="'FileMPI' with the same arg"):
        bigfile.FileMPI(Differing(0, 2, FreeBarrier(), []), "PART_018", create=True)
    assert not bigfile.check_unique(1, Differing(0, 2, FreeBarrier(), []))


def test_a_block_without_a_type_has_no_rows(tree):
    with tree.create("Header", size=128) as block:
        block.attrs["Time"] = 0.5
    assert (0, 0) == (tree["Header"].size, tree["Header"].Nfile)
