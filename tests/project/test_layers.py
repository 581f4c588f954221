"""The tiers of the package: a module imports only from tiers above its own.

Reads the source. Imports for type checkers alone are exempt, imports inside functions
are not: they make start-up cheap and change nothing about who depends on whom.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import bloscpack

PACKAGE = Path(bloscpack.__file__).parent

# The table of docs/architecture.rst, top to bottom.
TIERS = {
    "words": "exceptions defaults version log compat memory",
    "tables": "constants checksums metacodecs serializers pretty integers",
    "records": "abstract_objects headers args",
    "sections": "metadata offsets chunks arrays",
    "bytes": "disk ranges journal inplace durable steady parallel",
    "walk": "frames",
    "loop": "abstract_io",
    "ends": "bytes_io file_io memory_io numpy_io reader",
    "acts": "plan append npy_io findings examiner salvage known placing sifting "
    "sections inspection cut checks verify recovery recover",
    "datasets": "dataset",
    "shell": "outcomes streams display settings jobs progress outputs options "
    "description trials commands verbs parser manpage cli",
    "front": "__init__ __main__",
}
# Within a tier: who may import whom.
NEIGHBOURS = {
    "pretty": {"constants"},
    "args": {"abstract_objects", "headers"},
    "headers": {"abstract_objects"},
    "file_io": {"bytes_io"},
    "numpy_io": {"bytes_io", "file_io"},
    "append": {"plan"},
    "cli": {"commands", "jobs", "outcomes", "parser", "streams"},
    "jobs": {"outcomes", "streams"},
    "progress": {"outcomes"},
    "outputs": {"outcomes", "streams"},
    "options": {"outcomes", "streams"},
    "trials": {"outcomes"},
    "commands": {"outcomes", "streams"},
    "verbs": {
        "commands",
        "description",
        "display",
        "jobs",
        "options",
        "outcomes",
        "outputs",
        "parser",
        "progress",
        "settings",
        "streams",
        "trials",
    },
    "parser": {"commands", "outcomes", "settings"},
    "ranges": {"disk"},
    "journal": {"ranges"},
    "inplace": {"disk", "journal", "ranges"},
    "durable": {"disk", "inplace", "journal", "ranges"},
    "steady": {"durable", "journal", "ranges"},
    "npy_io": {"append"},
    "settings": {"display", "outcomes"},
    "manpage": {"outcomes", "parser", "settings"},
    "salvage": {"examiner"},
    "sections": {"findings", "salvage"},
    "inspection": {"findings", "known", "placing", "salvage", "sections", "sifting"},
    "checks": {"cut", "findings"},
    "verify": {"checks", "examiner", "findings", "inspection"},
    "recovery": {"checks", "cut", "findings"},
    "recover": {"examiner", "inspection", "recovery"},
}
LEVEL = {name: i for i, names in enumerate(TIERS.values()) for name in names.split()}
PRINTERS = {"log", "progress", "commands", "parser", "manpage", "cli", "verbs"}


def sources():
    return sorted(PACKAGE.rglob("*.py"))


def module_name(path):
    """Return the name in the table: that of the folder for what lies in one."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


each_source = pytest.mark.parametrize(
    "path", sources(), ids=lambda path: str(path.relative_to(PACKAGE))
)


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


def imports(path):
    """Yield (line, module) for every import of one of our modules in a file."""
    depth = len(path.relative_to(PACKAGE).parts)
    for node in running_nodes(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = ["%s.%s" % (node.module, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == depth:
            front = "bloscpack." + (node.module + "." if node.module else "")
            names = [front + alias.name for alias in node.names]
        for name in names:
            first, *rest = name.split(".")
            if first == "bloscpack":
                # `from . import log` names a module, `from . import pack` does not.
                found = rest[0] if rest and rest[0] in LEVEL else "__init__"
                yield node.lineno, found


def calls(path):
    """Yield (line, dotted name) for every call of a plain or dotted name."""
    for node in running_nodes(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            parts = []
            function = node.func
            while isinstance(function, ast.Attribute):
                parts.append(function.attr)
                function = function.value
            if isinstance(function, ast.Name):
                parts.append(function.id)
            yield node.lineno, ".".join(reversed(parts))


def test_every_module_has_a_tier():
    assert {*LEVEL} == {module_name(path) for path in sources()}


@each_source
def test_imports_go_up(path):
    module = module_name(path)
    wrong = [
        "line %d: %s imports %s" % (line, module, imported)
        for line, imported in imports(path)
        if imported != module
        and LEVEL[imported] >= LEVEL[module]
        and imported not in NEIGHBOURS.get(module, ())
    ]
    assert [] == wrong


def test_words_import_nothing_of_ours():
    words = TIERS["words"].split()
    assert [] == [
        found
        for path in sources()
        if module_name(path) in words
        for found in imports(path)
    ]


def test_neighbours_are_needed():
    found = {
        (module_name(path), imported)
        for path in sources()
        for _, imported in imports(path)
        if LEVEL[imported] == LEVEL[module_name(path)]
    }
    listed = {(module, other) for module, some in NEIGHBOURS.items() for other in some}
    # A package of several modules is one name in the table.
    assert listed == {pair for pair in found if pair[0] != pair[1]}


@each_source
def test_only_chunks_calls_blosc(path):
    # Whoever holds the module: `self.blosc.compress` is one too.
    called = [(line, "." + name) for line, name in calls(path)]
    if path.name == "chunks.py":
        assert any(".blosc.compress" in name for _, name in called)
        assert any(".blosc.decompress" in name for _, name in called)
        return
    assert [] == [
        (line, name)
        for line, name in called
        if re.search(r"[.]blosc[.](compress|decompress|pack)", name)
        and not name.endswith(".blosc.compressor_list")
    ]


@each_source
def test_blosc_is_imported_whole(path):
    # Otherwise a call of it would go by another name.
    assert [] == [
        node.lineno
        for node in running_nodes(ast.parse(path.read_text()))
        if (isinstance(node, ast.ImportFrom) and node.module == "blosc")
        or (
            isinstance(node, ast.Import)
            and any(alias.name == "blosc" and alias.asname for alias in node.names)
        )
    ]


@each_source
def test_only_the_shell_and_log_print_or_exit(path):
    forbidden = ("print", "exit", "quit", "sys.exit", "os._exit", "os.abort")
    streams = ("sys.stdout", "sys.stderr")
    wrong = [
        (line, name)
        for line, name in calls(path)
        if name in forbidden or name.startswith(streams)
    ]
    if module_name(path) not in PRINTERS:
        assert [] == wrong


@each_source
def test_nothing_is_evaluated_or_unpickled(path):
    names = {"eval", "exec", "compile", "pickle.loads", "pickle.load", "marshal.loads"}
    assert [] == [(line, name) for line, name in calls(path) if name in names]
    assert [] == [
        (line, name)
        for line, name in calls(path)
        if name == "numpy.load" or name.startswith("pickle.")
    ]


@each_source
def test_first_line_says_what_the_module_is(path):
    tree = ast.parse(path.read_text())
    docstring = ast.get_docstring(tree)
    assert docstring
    assert docstring.split("\n")[0].endswith(".")
    assert path.read_text().startswith('"""')
