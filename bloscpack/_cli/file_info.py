"""The description of a file, and ``blpk info FILE``, which has to be fast.

argparse, NumPy and Blosc are not imported, unless the file has another format.
"""

from __future__ import annotations

import os

from ..exceptions import NotReadable, UsageError
from .console import check_exists, console, is_input, plain_name, shown_input
from .exit_codes import EXIT_DAMAGED, EXIT_OK
from .text import facts_of_file, info_lines, part_text

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from .._types import JsonObject


def info(file_: str) -> int:
    """Show the facts about a file, and those behind it; return the exit code."""
    from ..describe import inspect_files

    console.need_output()
    check_exists("file", file_)
    try:
        items = inspect_files(file_, lenient=True)
    except NotReadable as error:
        console.say_all(info_lines(_described_source(file_, error)))
        return EXIT_OK
    for item, damage in items:
        if item.start:
            console.say()
            console.say("%s%s:" % (shown_input(file_), part_text(vars(item))))
        console.say_all(info_lines(facts_of_file(item, damage)))
    return EXIT_DAMAGED if any(damage for _, damage in items) else EXIT_OK


def describe_files(path: str, *, strict: bool = False) -> list[JsonObject]:
    """Return all fields of the file, or files, at a path, also of another format."""
    from ..describe import inspect_files

    if not strict:
        check_exists("file", path)
    try:
        fields = [info.as_dict() for info, _ in inspect_files(path, strict=strict)]
    except NotReadable as error:
        fields = [_described_source(path, error)]
    return [{**item, "file": plain_name(path)} for item in fields]


def _described_source(file_: str, error: NotReadable) -> JsonObject:
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
        with opened(file_, 1) as source:
            return describe(source)
    except UsageError as other:
        if isinstance(other.__cause__, ImportError):
            raise error from None
        raise
