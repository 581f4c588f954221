"""Settings of Sphinx: sphinx-build -W -n -b html docs docs/_build/html."""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.abspath(os.pardir))
sys.path.insert(0, os.path.abspath(os.curdir))

from bloscpack.version import __version__

project = "Bloscpack"
author = "The authors of this implementation of Bloscpack"
copyright = author
version = release = __version__

extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "reference"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "Bloscpack %s" % version
html_static_path = ["_static"]
html_css_files = ["bloscpack.css"]
highlight_language = "python"
# Docstrings quote names with single backticks.
default_role = "code"

autodoc_member_order = "bysource"
# Types are shown as the source writes them.
autodoc_typehints = "signature"
python_use_unqualified_type_names = True
# Types with a name of their own are shown by that name.
autodoc_type_aliases = {
    name: name
    for name in (
        "Path",
        "StorageOptions",
        "Buffer",
        "DType",
        "DTypeLike",
        "ArrayLike",
        "Key",
        "Progress",
    )
}
# Longer signatures have one line for each parameter.
maximum_signature_line_length = 70
# The base classes and types of the standard library are not linked to.
nitpick_ignore_regex = [
    ("py:class", r"(abc|collections\.abc|typing)\..*"),
    ("py:class", r"[A-Z][a-z]+(Error)?|object|MutableMapping"),
    ("py:class", r"(OSError|ABC|EOFError|io\..*|os\.PathLike|numpy\.(dtype|ndarray))"),
    # Aliases and protocols for type checkers, and classes that have no page.
    (
        "py:class",
        r"(DType|JsonObject|BinaryFile|BloscpackHeader|StorageOptions|.*\.Columns)",
    ),
    ("py:class", r"Any\w+|\w+Keywords|RowStream|TypeAliasForwardRef"),
    ("py:class", r"ArrayLike|DTypeLike|OtherNames|DataArray|SpacedPieces"),
    # Of libraries that are optional.
    ("py:class", r"DataFrame|DataTree|pyarrow\.Table"),
    ("py:class", r"numpy\._typing\..*|types\.EllipsisType"),
    ("py:class", r"bloscpack\.(_arrays|_types)\..*|(.*\.)?DatasetInfo"),
    ("py:class", r"bloscpack\.(headers|_check|_file|_storage|dataset\.node)\..*"),
    ("py:class", r"bloscpack\.abstract_io\.MemorySink"),
    ("py:class", r"bloscpack\.bigfile\.(attributes\.Attribute|mpi\.Communicator)"),
]
