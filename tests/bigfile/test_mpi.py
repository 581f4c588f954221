"""Ranks of a communicator share a tree: threads here, and the processes of MPI.

MPI runs in a Python of its own with mpi4py and mpich: the one that the variable
BLOSCPACK_MPI_PYTHON names, or a new environment, which needs a network once.
"""

from __future__ import annotations

import pickle
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from bigfile import mpi_program
from bigfile.mpi_program import NFILE, NMEMB, SIZE, own, rows_of_block
from originals import environment_with
from project.test_docs import named_block
from support import environment, files_of

from bloscpack import bigfile
from bloscpack.bigfile.mpi import Ranks
from bloscpack.exceptions import StorageError

PROGRAM = Path(mpi_program.__file__)
PROBE = (
    "import os, sys, mpi4py.MPI; "
    "assert os.path.exists(os.path.join(os.path.dirname(sys.executable), 'mpiexec'))"
)
PACKAGES = ("mpi4py", "mpich", "numpy", "blosc")
COUNTS = [2, 4]


class ThreadCommunicator:
    """A communicator of threads: each is a rank."""

    def __init__(self, rank, size, barrier, slots):
        self.rank = rank
        self.size = size
        self._barrier = barrier
        self._slots = slots

    def allgather(self, sendobj):
        self._slots[self.rank] = pickle.dumps(sendobj)
        self._barrier.wait(30)  # a rank that doesn't come is an error
        found = [pickle.loads(slot) for slot in self._slots]
        self._barrier.wait(30)
        return found

    def bcast(self, obj, root=0):
        return self.allgather(obj)[root]

    def gather(self, sendobj, root=0):
        found = self.allgather(sendobj)
        return found if self.rank == root else None


def on_threads(function, count, path):
    """Call a function on each rank; raise the error of the lowest rank."""
    barrier, slots = threading.Barrier(count), [b""] * count
    comms = [ThreadCommunicator(rank, count, barrier, slots) for rank in range(count)]
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda comm: function(comm, str(path)), comms))


@pytest.fixture(scope="module")
def python(request):
    """The path of a Python with mpi4py and mpiexec."""
    return environment_with(request, "mpi", "mpi4py with mpich", PROBE, PACKAGES)


@pytest.fixture
def mpiexec(python):
    """Run a function of the program on the processes of MPI."""

    def run(function, count, path, code=0):
        command = [Path(python).with_name("mpiexec"), "-n", str(count)]
        command += [python, PROGRAM, function.__name__, path]
        done = subprocess.run(
            [*map(str, command)],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env=environment(),
        )
        assert code is None or code == done.returncode, done.stdout + done.stderr
        return done

    return run


@pytest.fixture(params=["threads", pytest.param("mpiexec", marks=pytest.mark.slow)])
def run(request):
    """Run a function of the program on several ranks."""
    if request.param == "threads":
        return on_threads
    return request.getfixturevalue("mpiexec")


def alone(path):
    """Return the files of the tree that a single process writes."""
    tree = bigfile.File(path, create=True)
    with tree.create("g/x", ("<i4", NMEMB), SIZE, NFILE) as column:
        column.write(0, rows_of_block())
        column.attrs["unit"] = "m"
    return files_of(path)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", ["write_rows", "create_from_rows"])
def test_ranks_write_the_tree_of_a_single_process(run, name, count, tmp_path):
    run(getattr(mpi_program, name), count, tmp_path / "tree")
    assert alone(tmp_path / "alone") == files_of(tmp_path / "tree")


@pytest.mark.parametrize("count", COUNTS)
def test_ranks_read_append_and_set_attributes(run, count, tmp_path):
    alone(tmp_path)
    run(mpi_program.read_rows, count, tmp_path)
    run(mpi_program.append_rows, count, tmp_path)
    run(mpi_program.set_attributes, count, tmp_path)
    assert [] == bigfile.verify(tmp_path).findings


@pytest.mark.parametrize(
    "name", ["fail_together", "fail_alone", "fail_before_others_meet"]
)
def test_an_error_on_a_rank_is_raised_on_all(run, name, tmp_path):
    run(getattr(mpi_program, name), 3, tmp_path / "tree")


def test_rows_of_the_other_ranks_are_kept_if_one_fails(tmp_path):
    on_threads(mpi_program.fail_alone, 2, tmp_path)
    report = bigfile.verify(tmp_path)
    assert {*range(250, SIZE)} == mpi_program.rows_in(report.findings)
    assert np.array_equal(rows_of_block()[:250], bigfile.File(tmp_path)["g/x"][:250])


def missing(path):
    """Return the rows that `verify` reports as missing, and their files."""
    findings = bigfile.verify(path).findings
    found = [f for f in findings if f.kind in ("short", "unwritten")]
    return mpi_program.rows_in(found), {f.file for f in found}


@pytest.mark.slow
@pytest.mark.parametrize("count", COUNTS)
def test_rows_of_a_killed_rank_are_named(mpiexec, count, tmp_path):
    done = mpiexec(mpi_program.kill_one, count, tmp_path, None)
    assert done.returncode
    comm = ThreadCommunicator(1, count, None, None)
    rows = own(comm)
    column = bigfile.File(tmp_path)["g/x"]
    starts = column._header.starts
    files = {
        "%06X" % i
        for i in range(NFILE)
        if starts[i] < rows.stop and rows.start < starts[i + 1]
    }
    assert ({*range(rows.start, rows.stop)}, files) == missing(tmp_path)
    with column:
        column[rows] = rows_of_block()[rows]
    assert [] == bigfile.verify(tmp_path).findings
    assert np.array_equal(rows_of_block(), bigfile.File(tmp_path)["g/x"][:])


@pytest.mark.slow
def test_a_block_whose_writer_was_killed_is_named(mpiexec, tmp_path):
    mpiexec(mpi_program.kill_in_create_from_array, 2, tmp_path, None)
    report = bigfile.verify(tmp_path)
    assert not report.ok
    assert [("g/x", "header")] == [(f.block, f.kind) for f in report.findings]


@pytest.mark.slow
def test_the_example_of_the_documentation(python, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(named_block("bigfile.rst", "mpi-example"))
    command = [Path(python).with_name("mpiexec"), "-n", "4", python, "-m", "mpi4py"]
    subprocess.run(
        [*map(str, command), str(program)],
        cwd=tmp_path,
        check=True,
        timeout=120,
        env=environment(),
    )
    tree = bigfile.File(tmp_path / "PART_019")
    assert [0, 1, 2, 3] == tree["0/Position"][::100, 0].tolist()
    assert np.array_equal(np.arange(4000), tree["0/ID"][:])
    assert [] == bigfile.verify(tree).findings


def test_any_error_can_be_sent():
    class Unpicklable(Exception):
        def __init__(self, text):
            super().__init__(text, lambda: None)

    def call(comm, path):
        def fail():
            if not comm.rank:
                raise Unpicklable("text")

        found = []
        for method in (Ranks(comm).on_all, Ranks(comm).on_root):
            with pytest.raises((Unpicklable, StorageError)) as caught:
                method(fail)
            found.append(type(caught.value))
        return found

    expected = [[Unpicklable] * 2, [StorageError] * 2]
    assert expected == on_threads(call, 2, "")


def test_threads_can_share_pickled_columns(tmp_path):
    """A pickled column belongs to no communicator any more."""
    alone(tmp_path)

    def write(comm, path):
        column = pickle.loads(pickle.dumps(bigfile.FileMPI(comm, path)["g/x"]))
        column.write(comm.rank, np.full((1, NMEMB), 9))
        return type(column)

    assert [bigfile.Column] * 2 == on_threads(write, 2, tmp_path)
    assert [] == bigfile.verify(tmp_path).findings
    assert [9, 9] == bigfile.File(tmp_path)["g/x"][:2, 0].tolist()
