"""What each rank of a communicator does; `test_mpi` starts it in two ways.

``mpiexec -n 4 python mpi_program.py NAME PATH`` runs the function of that name with the
processes of MPI. Each function gets a communicator and the path of a tree.
"""

from __future__ import annotations

import os
import signal
import sys

import numpy as np

from bloscpack import bigfile
from bloscpack.exceptions import StorageError, UsageError

SIZE, NMEMB, NFILE = 1000, 3, 7


def rows_of_block():
    return np.arange(SIZE * NMEMB, dtype="<i4").reshape(SIZE, NMEMB) * 7919


def rows_in(findings):
    """Return the rows that findings name."""
    pairs = [pair for finding in findings for pair in finding.rows]
    return {row for start, stop in pairs for row in range(start, stop)}


def own(comm):
    """Return the range of the rows of a rank; the ranges have different lengths."""
    edges = [0, *(SIZE * (i + 1) ** 2 // comm.size**2 for i in range(comm.size))]
    return slice(*edges[comm.rank : comm.rank + 2])


def write_rows(comm, path):
    rows, mine = rows_of_block(), own(comm)
    tree = bigfile.FileMPI(comm, path, create=True)
    with tree.create("g/x", ("<i4", NMEMB), SIZE, NFILE) as column:
        middle = (mine.start + mine.stop) // 2
        column.write(middle, rows[middle : mine.stop])
        column.flush()
        column.write(mine.start, rows[mine.start : middle])
        if comm.rank == 0:
            column.attrs["unit"] = "m"


def create_from_rows(comm, path):
    tree = bigfile.FileMPI(comm, path, create=True)
    group = tree.create("g/.")
    group.close()
    column = tree["g/"].create_from_array("x", rows_of_block()[own(comm)], NFILE)
    column.attrs["unit"] = "m"  # on all ranks
    column.close()
    tree.refresh()
    assert ["g/x"] == tree.blocks
    assert tree["g/"].blocks == ["x"]


def append_rows(comm, path):
    tree = bigfile.FileMPI(comm, path)
    with tree["g/x"] as column:
        column.append(np.full((comm.rank + 1, NMEMB), comm.rank), Nfile=2)
        count = comm.size * (comm.size + 1) // 2
        assert SIZE + count == column.size
        expected = np.repeat(np.arange(comm.size), np.arange(comm.size) + 1)
        assert np.array_equal(expected, column[SIZE:, 0])


def read_rows(comm, path):
    tree = bigfile.FileMPI(comm, path)
    rows, mine = rows_of_block(), own(comm)
    column = tree["g/x"]
    assert ["g/x"] == tree.blocks == list(tree)
    assert "g/x" in tree
    assert "../x" not in tree
    assert np.array_equal(rows[mine], column[mine])
    if comm.rank == 0:
        assert np.array_equal(rows[5], column[5])  # reading needs no other rank
    assert "m" == column.attrs["unit"]
    table = bigfile.Dataset(tree["g/"], ["x"])
    assert np.array_equal(rows[mine], table[mine]["x"])
    assert isinstance(tree[["g/x"]], bigfile.Dataset)
    column.close()
    column.close()


def set_attributes(comm, path):
    tree = bigfile.FileMPI(comm, path)
    if comm.rank == 0:
        tree.attrs["tree"] = 1
    with tree["g/x"] as column:
        column.attrs["all"] = "rank %d" % comm.rank
        if comm.rank == 1:
            column.attrs["one"] = 2.5
            del column.attrs["unit"]
            assert "unit" not in column.attrs
        assert "all" in column.attrs
    attrs = tree["g/x"].attrs
    assert {"all": "rank 0", "one": 2.5} == dict(attrs)
    assert [1] == bigfile.File(path).attrs["tree"].tolist()


def raised(kind, function, *args):
    """Return the text of the error that a call raises."""
    try:
        function(*args)
    except kind as error:
        return str(error)
    raise AssertionError("no error")


def fail_together(comm, path):
    tree = bigfile.FileMPI(comm, path, create=True)
    assert "can't have the dtype" in raised(UsageError, tree.create, "x", "U3", 4)
    assert "no block or group" in raised(KeyError, lambda: tree["y"])
    assert "does not exist" in raised(KeyError, bigfile.FileMPI, comm, path + "x")
    cube = np.zeros((2, 3, 4) if comm.rank == 1 else (2, 3))
    assert "one or two axes" in raised(UsageError, tree.create_from_array, "x", cube)
    wrong = np.zeros(3, "i4" if comm.rank == 1 else "f8")
    assert "same type" in raised(UsageError, tree.create_from_array, "x", wrong)
    text = raised(UsageError, tree.create, "x", "i4", 4 + comm.rank)
    assert "rank 1 has ('x', 'i4', 5, 1)" in text
    assert [] == tree.blocks
    column = tree.create_from_array("x", np.zeros((1, 2)))
    bad = np.zeros((1, 2 + (comm.rank == 1)))
    assert "no rows of 2 items" in raised(UsageError, column.append, bad)
    assert comm.size == column.size
    column.close()


def fail_alone(comm, path):
    """Leave a block with an error on one rank: the other ones learn of it."""
    tree = bigfile.FileMPI(comm, path, create=True)

    def write():
        with tree.create("g/x", ("<i4", NMEMB), SIZE, NFILE) as column:
            if comm.rank == 1:
                raise ZeroDivisionError("lost")
            column[own(comm)] = rows_of_block()[own(comm)]

    if comm.rank == 1:
        assert "lost" == raised(ZeroDivisionError, write)
    else:
        text = raised(StorageError, write)
        assert "rank 1 has failed" in text
        assert "ZeroDivisionError: lost" in text


def fail_before_others_meet(comm, path):
    """Leave a block with an error on one rank, which the other ones wait for."""
    tree = bigfile.FileMPI(comm, path, create=True)
    rows = rows_of_block()[own(comm)]

    def write(name, meet):
        with tree.create(name, ("<i4", NMEMB), SIZE, NFILE) as column:
            column[own(comm)] = rows
            if comm.rank == 1:
                raise ZeroDivisionError("lost")
            text = raised(StorageError, meet, column)
            assert text == raised(StorageError, meet, column)
            raise StorageError(text)

    for name, meet in [
        ("flush", lambda column: column.flush()),
        ("grow", lambda column: column.grow(2)),
        ("append", lambda column: column.append(rows)),
    ]:
        error = ZeroDivisionError if comm.rank == 1 else StorageError
        assert "lost" in raised(error, write, name, meet)
        assert np.array_equal(rows_of_block(), bigfile.File(path)[name][:])


def kill_one(comm, path):
    """Rank 1 is killed after it has written a part of its rows."""
    tree = bigfile.FileMPI(comm, path, create=True)
    rows, mine = rows_of_block(), own(comm)
    column = tree.create("g/x", ("<i4", NMEMB), SIZE, NFILE)
    if comm.rank != 1:
        column.write(mine.start, rows[mine])
    column.flush()
    if comm.rank == 1:
        column.write(mine.start, rows[mine][:20])
        os.kill(os.getpid(), signal.SIGKILL)
    column.close()


def kill_in_create_from_array(comm, path):
    class Deadly:
        shape, dtype = (10,), np.dtype("i4")

        def __getitem__(self, index):
            os.kill(os.getpid(), signal.SIGKILL)

    tree = bigfile.FileMPI(comm, path, create=True)
    tree.create_from_array("g/x", Deadly() if comm.rank == 1 else np.ones(10, "i4"))


def main():
    from mpi4py import MPI

    globals()[sys.argv[1]](MPI.COMM_WORLD, sys.argv[2])


if __name__ == "__main__":
    main()
