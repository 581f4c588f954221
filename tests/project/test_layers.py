"""The structure of the package: its layers, its tree, and which module may do what.

Import-linter checks the layers, which pyproject.toml lists; here the documentation is
compared with that list and with the folders. The other rules read the source.
"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

from support import DOCS, ROOT, run_python

import bloscpack
from bloscpack._cli.args import VERBS

PACKAGE = Path(bloscpack.__file__).parent
ARCHITECTURE = DOCS / "architecture.rst"


def sources():
    return sorted(PACKAGE.rglob("*.py"))


def module_name(path):
    """Return the dotted name of a module inside the package."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


@functools.cache
def parsed(path):
    return ast.parse(path.read_text("utf-8"))


def running_nodes(tree):
    """Yield the nodes of a module, except those that only type checkers see."""
    todo = [tree]
    while todo:
        node = todo.pop()
        yield node
        if (
            isinstance(node, ast.If)
            and isinstance(node.test, ast.Name)
            and node.test.id == "TYPE_CHECKING"
        ):
            todo.extend(node.orelse)
        else:
            todo.extend(ast.iter_child_nodes(node))


@functools.cache
def calls(path):
    """Return (line, dotted name) of every call of a plain or dotted name."""
    found = []
    for node in running_nodes(parsed(path)):
        if isinstance(node, ast.Call):
            parts = []
            function = node.func
            while isinstance(function, ast.Attribute):
                parts.append(function.attr)
                function = function.value
            if isinstance(function, ast.Name):
                parts.append(function.id)
            found.append((node.lineno, ".".join(reversed(parts))))
    return found


# The layers and the tree


def listed_layers():
    """Return the modules and folders of each layer that pyproject.toml lists."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    layers = re.search(r"^layers = \[\n(.*?)^\]", text, re.DOTALL | re.MULTILINE)[1]
    return [re.findall(r"\w+", line) for line in layers.splitlines()]


def documented_layers():
    """Return the modules and folders of each layer that the documentation lists."""
    text = ARCHITECTURE.read_text("utf-8")
    table = text.split(":name: layers")[1].split("\n\n\n")[0].split("* - ")[2:]
    rows = [row.split("\n     - ")[1] for row in table]
    return [[name.rstrip("/") for name in re.findall(r"``(\S+)``", r)] for r in rows]


def documented_tree():
    """Return the names in the tree that the documentation opens with, by folder."""
    block = ARCHITECTURE.read_text("utf-8").partition(".. code-block:: text\n")[2]
    block = re.split(r"\n(?=\S)", block)[0]
    found: dict[str, set[str]] = {"": set()}
    folders = [(0, "")]
    for line in block.partition("bloscpack/\n")[2].splitlines():
        names = line.partition("--")[0].split()
        if names and names[0].endswith("/"):
            depth = len(line) - len(line.lstrip())
            while folders[-1][0] >= depth:
                folders.pop()
            folders.append((depth, (folders[-1][1] + "/" + names.pop(0)).strip("/")))
        found.setdefault(folders[-1][1], set()).update(names)
    return found


def test_imports_go_down():
    program = "from importlinter.cli import lint_imports_command as run; run()"
    done = run_python("-c", program, "--no-cache", cwd=ROOT, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_are_at_most_eleven_layers():
    assert 11 >= len(listed_layers())


def test_the_documentation_has_the_layers():
    assert listed_layers() == documented_layers()


def test_the_documentation_has_the_tree():
    expected: dict[str, set[str]] = {}
    for path in sources():
        if path.name != "__init__.py":
            folder = path.parent.relative_to(PACKAGE).as_posix().replace(".", "")
            expected.setdefault(folder, set()).add(path.stem)
    assert {verb.name for verb in VERBS} == expected["_cli/verbs"]
    expected["_cli/verbs"] = set()  # one line of the tree stands for all
    assert expected == documented_tree()


# Who may do what


def test_only_chunks_calls_blosc():
    called = {
        (module_name(path), line, "." + name)
        for path in sources()
        for line, name in calls(path)
    }
    # Whichever name holds the module: `self.blosc.compress` is a call of Blosc, too,
    # and so is one of its `functions` in C.
    working = {
        (module, line, name)
        for module, line, name in called
        if re.search(r"[.](blosc|functions)[.](compress|decompress|pack)", name)
        and not name.endswith(".blosc.compressor_list")
    }
    assert {"_format.chunks"} == {module for module, _, _ in working}
    for name in (".functions.compress", ".functions.decompress"):
        assert any(name in found for _, _, found in working)


def test_blosc_is_imported_whole():
    # Otherwise a call of it would go by another name.
    assert [] == [
        (module_name(path), node.lineno)
        for path in sources()
        for node in running_nodes(parsed(path))
        if (isinstance(node, ast.ImportFrom) and node.module == "blosc")
        or (
            isinstance(node, ast.Import)
            and any(alias.name == "blosc" and alias.asname for alias in node.names)
        )
    ]


def test_only_the_command_and_log_print_or_exit():
    forbidden = ("print", "exit", "quit", "sys.exit", "os._exit", "os.abort")
    streams = ("sys.stdout", "sys.stderr")
    assert [] == [
        (module_name(path), line, name)
        for path in sources()
        for line, name in calls(path)
        if (name in forbidden or name.startswith(streams))
        and module_name(path) not in ("cli", "log")
        and not module_name(path).startswith("_cli.")
    ]


def test_nothing_is_evaluated_or_unpickled():
    # Objects of bcolz are pickles; a caller has to ask for them.
    allowed = {("dataset.layouts.chunk_files", "pickle.loads")}
    names = {"eval", "exec", "compile", "marshal.loads", "numpy.load"}
    assert [] == [
        (module_name(path), line, name)
        for path in sources()
        for line, name in calls(path)
        if (name in names or name.startswith("pickle."))
        and (module_name(path), name) not in allowed
    ]


def test_properties_have_no_lock_that_a_child_process_inherits():
    """`functools.cached_property` has one on Python 3.10 and 3.11."""
    assert [] == [
        module_name(path)
        for path in sources()
        for node in running_nodes(parsed(path))
        if isinstance(node, ast.ImportFrom)
        and "cached_property" in [alias.name for alias in node.names]
        and node.module == "functools"
    ]


def test_the_first_line_describes_the_module():
    for path in sources():
        docstring = ast.get_docstring(parsed(path))
        assert docstring, path
        assert docstring.split("\n")[0].endswith("."), path
        assert path.read_text("utf-8").startswith('"""'), path


def test_each_layout_has_a_description_whose_access_new_files_get():
    from bloscpack._commit.access import DESCRIPTIONS
    from bloscpack.dataset.layouts import LAYOUTS, _class

    found = {
        (layout, kind)
        for layout, entry in LAYOUTS.items()
        for kind in entry.kinds
        if {*_class(layout, kind).description_files} & {*DESCRIPTIONS}
    }
    every = {(layout, kind) for layout in LAYOUTS for kind in LAYOUTS[layout].kinds}
    never_written = {("folder", "group"), ("zarr-python", "array")}
    assert every - never_written - {("zarr-python", "group")} == found
