"""What the commands that have to start fast import: a list of all that they may.

Times vary from machine to machine; the modules of a command do not. Modules of the
standard library are given as those that Bloscpack names: what these import themselves
differs between the releases of Python, and is found by importing them.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
from support import ROOT

import bloscpack

# Runs without the module site, which may import anything for other packages.
PROGRAM = """
import sys
sys.path[:] = %r
before = {*sys.modules}
sys.argv[1:] = %r
try:
%s
except SystemExit:
    pass
sys.stderr.write("\\n".join(["", "MODULES", *({*sys.modules} - before)]))
"""
COMMAND = "    from bloscpack.cli import main; main()"

# Modules of Bloscpack, and those of the standard library that they name.
ALWAYS = (
    *("bloscpack", "bloscpack.version", "bloscpack.log", "bloscpack.exceptions"),
    *("bloscpack.constants", "bloscpack._compat", "bloscpack.cli", "bloscpack._cli"),
    *("bloscpack._cli.console", "bloscpack._cli.exit_codes"),
    *("bloscpack._storage", "bloscpack._storage.paths"),
    *("__future__", "collections", "errno", "functools", "gc", "os", "sys", "types"),
)
INFO = (
    *ALWAYS,
    *("bloscpack._cli.file_info", "bloscpack._cli.text"),
    *("bloscpack.describe", "bloscpack.headers", "bloscpack.abstract_objects"),
    *("bloscpack.checksums", "bloscpack.metacodecs", "bloscpack.serializers"),
    *("bloscpack.defaults", "bloscpack.pretty"),
    *("bloscpack._commit", "bloscpack._commit.snapshot"),
    *("bloscpack._engine", "bloscpack._engine.contexts"),
    *("bloscpack._storage.base", "bloscpack._storage.cursor"),
    *("bloscpack._storage.descriptors", "weakref", "_weakrefset"),
    *("bloscpack._storage.disk", "bloscpack._format", "bloscpack._format.sections"),
    *("bloscpack._format.blosc_header", "bloscpack._format.codecs"),
    *("collections.abc", "io", "itertools", "operator", "stat", "struct", "zlib"),
)
HELP = (
    *ALWAYS,
    *("bloscpack._cli.args", "bloscpack._cli.text"),
    *("bloscpack.defaults", "bloscpack.pretty"),
    *("argparse", "itertools", "locale", "re", "signal", "textwrap"),
)
VERSION = (
    *ALWAYS,
    *("bloscpack._cli.text", "bloscpack.pretty"),
    *("importlib.machinery", "importlib.util", "blosc", "version", "blosc_extension"),
)

CASES = [
    # (the command line, the modules that it may import)
    ("info bytes.blp", INFO),
    ("i bytes.blp", INFO),
    ("info array.blp", (*INFO, "json")),
    ("--help", HELP),
    ("--version", VERSION),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with two compressed files."""
    folder = tmp_path_factory.mktemp("files")
    bloscpack.pack_bytes_to_file(bytes(1000), folder / "bytes.blp")
    array = pytest.importorskip("numpy").arange(12.0).reshape(4, 3)
    bloscpack.pack_ndarray_to_file(array, folder / "array.blp", metadata={"k": 1})
    return folder


def modules_of(statement, arguments, folder):
    """Return the modules that a statement imports, and its standard output."""
    program = PROGRAM % ([str(ROOT), *sys.path], arguments, statement)
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-c", program],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    errors, _, names = done.stderr.partition("\nMODULES\n")
    assert "" == errors
    return set(names.split()), done.stdout


@pytest.mark.parametrize(("line", "allowed"), CASES)
def test_imports(line, allowed, folder):
    found, output = modules_of(COMMAND, line.split(), folder)
    assert output
    named = {
        name for name in allowed if name.partition(".")[0] in sys.stdlib_module_names
    }
    statement = "    import %s" % ", ".join(named)
    with_their_own, _ = modules_of(statement, [], folder)
    assert set() == found - with_their_own - {*allowed}


def test_a_command_imports_what_is_listed(folder):
    """Nothing is listed that no command imports any more."""
    found = set().union(*(modules_of(COMMAND, x.split(), folder)[0] for x, _ in CASES))
    listed = {name for _, names in CASES for name in names}
    ours = {name for name in listed if name.partition(".")[0] == "bloscpack"}
    assert set() == ours - found
