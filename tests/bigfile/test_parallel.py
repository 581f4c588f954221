"""Several threads and processes write rows of one block; some are killed."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from bigfile.mpi_program import rows_in
from bigfile.test_trees import made
from support import environment, files_of

from bloscpack import bigfile

SIZE, NMEMB, NFILE = 1000, 3, 7
WRITER = """
import sys
import numpy as np
from bloscpack import bigfile

path, number, of = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rows = np.load(path + ".npy")
start, stop = number * len(rows) // of, (number + 1) * len(rows) // of
column = bigfile.File(path)["g/x"]
step = max(1, len(rows) // 50)
print("ready", flush=True)
sys.stdin.readline()
for first in range(start, stop, step):
    column.write(first, rows[first : min(first + step, stop)])
    if len(sys.argv) > 4:
        print("written", flush=True)
        sys.stdin.readline()
column.close()
"""


READER = """
import sys
import numpy as np
from concurrent.futures import ThreadPoolExecutor
from bloscpack import bigfile

path, stop = sys.argv[1], int(sys.argv[2])
rows = np.load(path + ".npy")
column = bigfile.File(path)["g/x"]
rng = np.random.default_rng(stop)
ranges = np.sort(rng.integers(0, stop, (200, 2)))

def check(pair):
    assert np.array_equal(column[pair[0] : pair[1]], rows[pair[0] : pair[1]])
    assert np.array_equal(column[pair[0]], rows[pair[0]])

print("ready", flush=True)
sys.stdin.readline()
with ThreadPoolExecutor(3) as pool:
    list(pool.map(check, ranges.tolist()))
"""


@pytest.fixture
def rows():
    return made(np.dtype("<i4"), (SIZE, NMEMB), 1)


@pytest.fixture
def alone(tmp_path, rows):
    """The files of a tree that one process has written."""
    tree = bigfile.File(tmp_path / "alone", create=True)
    with tree.create("g/x", ("<i4", NMEMB), SIZE, NFILE) as column:
        column.write(0, rows)
    return files_of(tmp_path / "alone")


@pytest.fixture
def shared(tmp_path, rows):
    """A tree with a block that has no rows yet."""
    np.save(tmp_path / "shared.npy", rows)
    tree = bigfile.File(tmp_path / "shared", create=True)
    tree.create("g/x", ("<i4", NMEMB), SIZE, NFILE).close()
    return tree


def start(tree, number, of, *more):
    return started(WRITER, tree, str(number), str(of), *more)


def started(program, tree, *arguments):
    command = [sys.executable, "-c", program, tree.basename, *arguments]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert "ready\n" == process.stdout.readline()
    return process


def go_on(*processes):
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()


def wait_for(processes):
    for process in processes:
        process.communicate()
        assert 0 == process.returncode


def kill_at_work(process):
    """Kill a process after it has written some rows."""
    go_on(process)
    assert "written\n" == process.stdout.readline()
    process.kill()
    process.communicate()


@pytest.mark.parametrize("count", [2, 4])
def test_processes_write_the_tree_of_a_single_one(shared, alone, tmp_path, count):
    processes = [start(shared, number, count) for number in range(count)]
    go_on(*processes)
    wait_for(processes)
    assert alone == files_of(tmp_path / "shared")
    assert [] == bigfile.verify(shared).findings


def test_processes_and_threads_read_while_others_write(shared, alone, tmp_path, rows):
    with shared["g/x"] as column:
        column.write(0, rows[:500])
    processes = [start(shared, number, 4) for number in (2, 3)]
    processes += [started(READER, shared, str(stop)) for stop in (250, 500)]
    go_on(*processes)
    wait_for(processes)
    assert alone == files_of(tmp_path / "shared")


def test_threads_write_the_tree_of_a_single_one(shared, alone, tmp_path, rows):
    column = shared["g/x"]
    with ThreadPoolExecutor(4) as pool:
        starts = range(0, SIZE, 11)
        list(pool.map(lambda s: column.write(s, rows[s : s + 11]), starts))
    column.close()
    assert alone == files_of(tmp_path / "shared")


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_pool_of_processes_shares_a_column(shared, alone, tmp_path, rows, method):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip("this system has no such processes")
    context = multiprocessing.get_context(method)
    column = shared["g/x"]
    processes = [
        context.Process(target=column.write, args=(first, rows[first : first + 100]))
        for first in range(0, SIZE, 100)
    ]
    for process in processes[:2] if method == "spawn" else processes:
        process.start()
        process.join()
        assert 0 == process.exitcode
    if method == "spawn":  # starting an interpreter takes long
        column.write(200, rows[200:])
    column.close()
    assert alone == files_of(tmp_path / "shared")


def test_rows_of_a_killed_process_are_named(shared, rows):
    processes = [start(shared, number, 4) for number in (0, 1, 3)]
    victim = start(shared, 2, 4, "slowly")
    go_on(*processes)
    kill_at_work(victim)
    wait_for(processes)
    report = bigfile.verify(shared)
    assert not report.ok
    missing = [f for f in report.findings if f.kind in ("short", "unwritten")]
    assert {*range(500, 750)} == rows_in(missing)
    unwritten = [(f.file, f.message) for f in missing if f.kind == "unwritten"]
    assert [
        ("000003", "no writer has finished rows 500 to 519"),
        ("000005", "no writer has finished rows 714 to 749"),
    ] == unwritten
    # Twenty of them are in a file, but not in its checksum.
    (finding,) = [f for f in report.findings if f.kind == "checksum"]
    assert finding.rows[0][0] <= 500 < finding.rows[0][1]
    assert np.array_equal(rows[:500], shared["g/x"][:500])
    with shared["g/x"] as column:
        column.write(500, rows[500:750])
    assert [] == bigfile.verify(shared).findings


def test_rows_of_a_killed_process_are_written_again_with_others(shared, rows):
    with shared["g/x"] as column:
        column.write(0, rows[:500])
    victim = start(shared, 2, 4, "slowly")
    kill_at_work(victim)
    with shared["g/x"] as column:  # finished rows, and rows of the dead process
        column.write(400, rows[:600])
    assert [] == bigfile.verify(shared).findings


def test_processes_set_attributes_at_the_same_time(shared):
    program = (
        "import sys\n"
        "from bloscpack import bigfile\n"
        "attrs = bigfile.File(sys.argv[1])['g/x'].attrs\n"
        "for i in range(10):\n"
        "    attrs[sys.argv[2] + str(i)] = i\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, shared.basename, letter], env=environment()
        )
        for letter in "ab"
    ]
    assert [0, 0] == [process.wait() for process in processes]
    assert 20 == len(shared["g/x"].attrs)


def test_a_note_about_rows_is_void_after_another_writer(shared, tmp_path, rows):
    """The original writes the header again when it has written the rows."""
    folder = tmp_path / "shared/g/x"
    note = (folder / ".unwritten").read_bytes()
    with shared["g/x"] as column:
        column.write(0, rows)
    assert not (folder / ".unwritten").exists()
    (folder / ".unwritten").write_bytes(note)
    assert [] == bigfile.verify(shared).findings
    assert os.path.exists(folder / ".unwritten")
