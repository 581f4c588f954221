"""``blpk --version`` and ``blpk info``, which have to be fast.

Neither NumPy nor Blosc is imported. `cli` calls `version` and `info` without the parser
if the command line is simple enough.
"""

from __future__ import annotations

import os

from .. import log
from ..exceptions import NotReadable, UsageError
from ..version import __version__
from .console import check_exists, console, is_input
from .exit_codes import EXIT_DAMAGED, EXIT_OK, Refusal

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from .._types import JsonObject

LINE_WIDTH = 90
# Maximum number of characters of metadata shown: pprint would take minutes for more.
MOST_SHOWN = 2**16


def log_metadata(metadata: object) -> None:
    """Show metadata with sorted keys; only the beginning if they are very long."""
    log.normal("Metadata:")
    text = repr(metadata)
    if len(text) > MOST_SHOWN:
        end = "...\nThis is the beginning; 'blpk metadata FILE' shows all."
        log.normal(text[:MOST_SHOWN] + end)
        return
    from pprint import pformat

    log.normal(pformat(metadata, width=LINE_WIDTH))


def version() -> None:
    """Show the versions of Bloscpack, python-blosc and Blosc."""
    console.put(
        "bloscpack: '%s' python-blosc: '%s' blosc: '%s'\n"
        % (__version__, *_blosc_versions())
    )
    console.flush()  # the parser exits next


def _blosc_versions() -> tuple[str, str]:
    """Return the versions of python-blosc and Blosc.

    Importing the whole package takes longer than everything else in
    ``blpk --version``: load only the two modules that contain the versions.
    """
    from importlib.machinery import PathFinder
    from importlib.util import find_spec, module_from_spec

    package = find_spec("blosc")
    if package is None or not package.submodule_search_locations:
        raise Refusal("python-blosc is not installed")
    versions = []
    for module, name in (
        ("version", "__version__"),
        ("blosc_extension", "BLOSC_VERSION_STRING"),
    ):
        spec = PathFinder.find_spec(module, list(package.submodule_search_locations))
        assert spec is not None
        loaded = module_from_spec(spec)
        spec.loader.exec_module(loaded)  # type: ignore[union-attr]
        versions.append(str(getattr(loaded, name)))
    return versions[0], versions[1]


def info(file_: str) -> int:
    """Show the facts about a file; return the exit code."""
    from ..describe import inspect_file
    from .info_text import facts_of_file, info_lines

    console.need_output()
    check_exists("file", file_)
    try:
        found, damage = inspect_file(file_, lenient=True)
    except NotReadable as error:
        console.say_all(info_lines(described_source(file_, error)))
        return EXIT_OK
    console.say_all(info_lines(facts_of_file(found, damage)))
    return EXIT_OK if damage is None else EXIT_DAMAGED


def described_source(file_: str, error: NotReadable) -> JsonObject:
    """Return the description of a file of a format that ``convert`` reads.

    Raises `error` for any other file, and if a package is missing: it says what the
    file is in place of a Bloscpack file.
    """
    if is_input(file_) or not os.path.isfile(file_):
        raise error
    from ..dataset.conversion import source_format
    from .contents import describe, opened

    try:
        source_format(file_)
    except NotReadable:
        raise error from None
    try:
        with opened(file_, 1) as found:
            return describe(found)
    except UsageError as other:
        if isinstance(other.__cause__, ImportError):
            raise error from None
        raise
