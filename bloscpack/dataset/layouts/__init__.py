"""The layouts of datasets, and which one a folder has.

To add a layout, add a module and one entry of `LAYOUTS`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module

from ...exceptions import FormatError, NotReadable, UsageError, UsageValueError
from ..folder import Folder, is_member_name

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from .base import ArrayLayout, GroupLayout, NewArray, TableLayout

# Name → where its function `detect` and the classes for each kind are, and what is
# called before a dataset is changed. The first layout that detects a folder wins.
LAYOUTS = {
    "zarr": {
        "detect": "zarr_group.detect",
        "array": "zarr_array.ZarrArray",
        "table": "zarr_group.ZarrTable",
        "group": "zarr_group.ZarrGroup",
        "prepare": "zarr_group.drop_consolidated",
    },
    "blz": {
        "detect": "blz.detect",
        "array": "blz.BlzArray",
        "table": "blz.BlzTable",
    },
    "bcolz": {
        "detect": "bcolz.detect",
        "array": "bcolz.BcolzArray",
        "table": "bcolz.BcolzTable",
    },
    "folder": {"group": "plain_folder.PlainFolder"},
}
# Maximum number of folders that are searched for a dataset, to tell a group of datasets
# from any other folder.
MAX_SEARCHED = 10000


def _load(place: str) -> Any:
    module, name = place.split(".")
    return getattr(import_module("." + module, __name__), name)


def _class(layout: str, kind: str) -> Any:
    """Return the class of a layout for a kind; raise `UsageError` if there is none."""
    having = [name for name in LAYOUTS if kind in LAYOUTS[name]]
    if layout not in having:
        raise UsageValueError(
            "there is no layout '%s' of %ss; the layouts are %s"
            % (layout, kind, ", ".join(map("'%s'".__mod__, having)))
        )
    return _load(LAYOUTS[layout][kind])


def array_class(name: str) -> type[ArrayLayout]:
    """Return the class for the arrays of a layout."""
    found: type[ArrayLayout] = _class(name, "array")
    return found


def layouts_for(new: NewArray, *, without: str) -> list[str]:
    """Return the names of the layouts that can hold an array, apart from one."""
    found = []
    for name in (name for name in LAYOUTS if name != without):
        with suppress(UsageError):
            array_class(name).block_rows_for(new)
            found.append(name)
    return found


def table_class(name: str) -> type[TableLayout]:
    """Return the class for the tables of a layout."""
    found: type[TableLayout] = _class(name, "table")
    return found


def group_class(name: str) -> type[GroupLayout]:
    """Return the class for the groups of a layout."""
    found: type[GroupLayout] = _class(name, "group")
    return found


def find(folder: Folder) -> tuple[str, str] | None:
    """Return layout and kind of a folder; None if it has no dataset.

    The kind is ``'array'``, ``'table'`` or ``'group'``.
    """
    for name, parts in LAYOUTS.items():
        if "detect" in parts:
            detect_kind: Callable[[Folder], str | None] = _load(parts["detect"])
            kind = detect_kind(folder)
            if kind is not None:
                return name, kind
    return None


def find_group(folder: Folder) -> tuple[str, str] | None:
    """Return layout and kind of a folder; a folder of datasets is a group.

    None if there is no dataset in the folder or in the folders inside of it.
    """
    found = find(folder)
    if found is not None:
        return found
    places = [folder.root]
    for searched, place in enumerate(places):
        if searched == MAX_SEARCHED:
            break
        for inner in folders_in(place):
            if find(Folder(inner)) is not None:
                return "folder", "group"
            places.append(inner)
    return None


def folders_in(path: str) -> Iterator[str]:
    """Yield the paths of the folders in a folder that can be members, sorted."""
    names = []
    with suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) and is_member_name(entry.name):
                names.append(entry.name)
    for name in sorted(names):
        yield os.path.join(path, name)


def prepare_changes(layout: str, folder: Folder, sync: bool) -> None:
    """Do what a layout wants to be done before a dataset is changed."""
    if "prepare" in LAYOUTS[layout]:
        prepare: Callable[[Folder, bool], None] = _load(LAYOUTS[layout]["prepare"])
        prepare(folder, sync)


def is_column(path: str) -> bool:
    """Return whether a folder is a column: the folder around it is a table."""
    outer, name = os.path.split(path)
    try:
        found = find(Folder(outer))
        if found is None or found[1] != "table":
            return False
        return name in table_class(found[0])(Folder(outer)).columns
    except (FormatError, UsageError):  # a damaged table has no columns
        return False


def detect(folder: Folder) -> tuple[str, str]:
    """Return layout and kind of a folder; raise `FormatError` if it has no dataset."""
    found = find_group(folder)
    if found is None:
        raise NotReadable(
            "expected a dataset, found a folder without the files of one",
            filename=folder.path(),
        )
    return found
