"""The layouts of datasets, and which one a folder has.

To add a layout, add a module and one entry of `LAYOUTS`.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module

from ...exceptions import NotReadable, UsageError, UsageValueError

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from types import ModuleType

    from ..folder import Folder
    from .base import ArrayLayout, NewArray, TableLayout

# Name → module, class of arrays, class of tables. The first layout that detects a
# folder wins.
LAYOUTS = {
    "zarr": ("zarr_array", "ZarrArray", "ZarrTable"),
    "blz": ("blz", "BlzArray", "BlzTable"),
    "bcolz": ("bcolz", "BcolzArray", "BcolzTable"),
}


def module_of(name: str) -> ModuleType:
    """Return the module of a layout; raise `UsageError` if there is none."""
    if name not in LAYOUTS:
        raise UsageValueError(
            "there is no layout '%s'; the layouts are %s"
            % (name, ", ".join(map("'%s'".__mod__, LAYOUTS)))
        )
    return import_module("." + LAYOUTS[name][0], __name__)


def array_class(name: str) -> type[ArrayLayout]:
    """Return the class for the arrays of a layout."""
    found: type[ArrayLayout] = getattr(module_of(name), LAYOUTS[name][1])
    return found


def layouts_for(new: NewArray) -> list[str]:
    """Return the names of the layouts that can hold an array."""
    found = []
    for name in LAYOUTS:
        with suppress(UsageError):
            array_class(name).block_rows_for(new)
            found.append(name)
    return found


def table_class(name: str) -> type[TableLayout]:
    """Return the class for the tables of a layout."""
    found: type[TableLayout] = getattr(module_of(name), LAYOUTS[name][2])
    return found


def detect(folder: Folder) -> tuple[str, str]:
    """Return layout and kind of a folder; raise `FormatError` if it has no dataset."""
    found = find(folder)
    if found is None:
        raise NotReadable(
            "expected a dataset, found a folder without the files of one",
            filename=folder.path(),
        )
    return found


def find(folder: Folder) -> tuple[str, str] | None:
    """Return layout and kind of a folder; None if it has no dataset."""
    for name in LAYOUTS:
        kind = module_of(name).detect(folder)
        if kind is not None:
            return name, kind
    return None
