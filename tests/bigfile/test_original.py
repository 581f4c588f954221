"""The package bigfile 0.1.52 reads the trees that are written here, and the reverse.

It runs in a Python of its own: the one that the variable BLOSCPACK_BIGFILE_PYTHON
names, or a new environment, which needs a network and a C compiler once. Its archive
does not have its programs; BLOSCPACK_BIGFILE_PROGRAMS may name a folder with them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile

import numpy as np
import pytest
from bigfile.test_trees import made
from originals import environment_with, run
from support import environment, files_of

from bloscpack import bigfile
from bloscpack.bigfile.header import WIDTHS

pytestmark = pytest.mark.slow

PROBE = "import bigfile; assert bigfile.__version__ == '0.1.52'"
PINS = ("numpy==1.26.4", "Cython==0.29.37", "setuptools==65.5.1", "wheel")
READER = """
import sys
import numpy as np
import bigfile

tree, expected = bigfile.File(sys.argv[1]), np.load(sys.argv[2])
assert sorted(expected.files) == sorted(tree.blocks), tree.blocks
for name in expected.files:
    found = tree[name][:]
    assert found.dtype == expected[name].dtype, name
    assert found.tobytes() == expected[name].tobytes(), name
attrs = tree["attrs"].attrs
assert attrs["number"].tolist() == [1.5] and attrs["text"] == "na\\u00efve"
assert attrs["list"] == ["a", "bcd"] and attrs["array"].tolist() == [1, 2, 3]
assert tree.open("g/.").attrs["group"].tolist() == [7]
with tree["attrs"] as column:
    column.append(np.arange(3), Nfile=2)
    column.attrs["more"] = [2.5]
"""

WRITER = """
import sys
import numpy as np
import bigfile

tree, nfile = bigfile.File(sys.argv[1], create=True), int(sys.argv[3])
for name, array in np.load(sys.argv[2]).items():
    with tree.create_from_array(name, array, Nfile=nfile) as column:
        column.attrs["n"] = np.array([1.5, -2])
        column.attrs["unit"] = "kpc/h"
"""
# Programs with their arguments; `t` is a tree with the block `g/x`.
COMMANDS = (
    "bigfile-ls t",
    "bigfile-ls -l t g/x",
    "bigfile-cat t g/x",
    "bigfile-cat -o 2 -c 3 t g/x",
    "bigfile-cat -f %.3f t g/x",
    "bigfile-cat -b t g/x",
    "bigfile-get-attr t g/x",
    "bigfile-get-attr t g/x n",
    "bigfile-set-attr -t f8 t g/x n 4.5",
    "bigfile-create -n 2 -s 4 -t f4 t new",
    "bigfile-repartition t 3 g/x",
    "bigfile-repartition -v t 2",
)


def build(python, folder):
    """Build the package from its source archive; return the error, if any."""
    pip, source = [python, "-m", "pip", "-q"], folder / "source"
    plain = ["--no-deps", "--no-build-isolation"]
    archives = [*plain, "--no-binary", ":all:", "-d", source]
    done = run(*pip, "download", *archives, "bigfile==0.1.52")
    if done.returncode:
        return done.stderr[-300:]
    (archive,) = source.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(source, filter="data")
    (unpacked,) = (path for path in source.iterdir() if path.is_dir())
    done = run(*pip, "install", *plain, unpacked, CFLAGS="-O2 -w")
    return done.stderr[-300:] if done.returncode else None


@pytest.fixture(scope="module")
def python(request):
    """The path of a Python with the package bigfile."""
    what = "bigfile 0.1.52"
    return environment_with(request, "bigfile", what, PROBE, PINS, build)


def test_the_original_reads_and_changes_our_tree(python, tmp_path):
    tree = bigfile.File(tmp_path / "tree", create=True)
    expected = {}
    for seed, (order, kind) in enumerate((o, k) for o in "<>" for k in WIDTHS):
        for width in WIDTHS[kind]:
            dtype = np.dtype("%s%s%d" % (order, kind, width))
            name = "%s/%s%d" % ("little" if order == "<" else "big", kind, width)
            array = made(dtype, (23,) if seed % 2 else (23, 3), seed)
            tree.create_from_array(name, array, Nfile=1 + seed).close()
            expected[name] = tree[name][:]
            assert array.tobytes() == expected[name].tobytes()
    with tree.create("attrs", "i8", 4, 2) as column:
        column.write(2, [3, 4])
        column.write(0, [1, 2])
        column.attrs.update(
            number=1.5, text="naïve", list=["a", "bcd"], array=[1, 2, 3]
        )
    expected["attrs"] = tree["attrs"][:]
    tree.create("g/.").attrs["group"] = 7
    np.savez(tmp_path / "expected.npz", **expected)
    command = [python, "-W", "ignore", "-c", READER, tree.basename]
    done = subprocess.run(
        [*map(str, command), str(tmp_path / "expected.npz")],
        capture_output=True,
        text=True,
        check=False,
        env=environment(PYTHONPATH=""),
    )
    assert 0 == done.returncode, done.stderr
    # What the original has added is there, and its checksums are those of the bytes.
    column = bigfile.File(tree.basename)["attrs"]
    assert [1, 2, 3, 4, 0, 1, 2] == column[:].tolist()
    assert 4 == column.nfile
    assert [2.5] == column.attrs["more"].tolist()
    assert [] == bigfile.verify(tree).findings


def command(*arguments):
    """Return what `blpk bigfile` prints."""
    given = [sys.executable, "-m", "bloscpack", "bigfile", *map(str, arguments)]
    done = subprocess.run(given, capture_output=True, env=environment(), check=True)
    return done.stdout


def test_the_command_writes_the_files_of_the_original(python, tmp_path):
    arrays = {
        "g/%s" % dtype[1:]: made(np.dtype(dtype), (23, 3), seed)
        for seed, dtype in enumerate(("<i4", "<f8", "<u1", "<c16", "<S5"))
    }
    np.savez(tmp_path / "arrays.npz", **arrays)
    for nfile in (3, 2):
        given = tmp_path / ("theirs%d" % nfile), tmp_path / "arrays.npz", nfile
        done = run(python, "-W", "ignore", "-c", WRITER, *given, PYTHONPATH="")
        assert 0 == done.returncode, done.stderr
    ours = tmp_path / "ours"
    for name, array in arrays.items():
        array.tofile(tmp_path / "raw")
        given = "-n", 3, "--nmemb", 3, ours, name, array.dtype.str, tmp_path / "raw"
        command("create", *given)
        command("set-attr", ours, name, "unit", "kpc/h")
        command("set-attr", ours, name, "n", "1.5", "-2")
        found = command("cat", "-b", tmp_path / "theirs3", name)
        assert array.tobytes() == found
    assert files_of(tmp_path / "theirs3") == files_of(ours)
    command("repartition", ours, 2)
    assert files_of(tmp_path / "theirs2") == files_of(ours)


@pytest.mark.parametrize("line", COMMANDS)
def test_the_actions_do_what_the_programs_do(line, tmp_path):
    folder = os.environ.get("BLOSCPACK_BIGFILE_PROGRAMS")
    if folder is None:
        pytest.skip("BLOSCPACK_BIGFILE_PROGRAMS names no folder with the programs")
    program, *arguments = line.split()
    results = []
    for start in (
        [os.path.join(folder, program)],
        [sys.executable, "-m", "bloscpack", *program.split("-", 1)],
    ):
        tree = bigfile.File(tmp_path / "t", create=True)
        array = np.arange(15, dtype="f4").reshape(5, 3) / 8
        with tree.create_from_array("g/x", array, Nfile=2) as column:
            column.attrs.update(n=[1.5, 2.5], unit="kpc/h")
        done = subprocess.run(
            [*start, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            cwd=tmp_path,
            env=environment(),
            check=True,
        )
        shown = b"" if "-v" in arguments else done.stdout
        results.append((shown, files_of(tmp_path / "t")))
        shutil.rmtree(tmp_path / "t")
    theirs, found = results
    assert theirs == found
