"""Arrays and tables opened from their folders, for reading or for changes."""

from __future__ import annotations

from .array import Array
from .folder import Folder
from .layouts import array_class, is_column, prepare_changes, table_class
from .table import Table
from .writer import Writer

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from .layouts.base import ArrayLayout, TableLayout

# Number of times that a table is opened again whose columns have different lengths.
ATTEMPTS = 3


class Options:
    """How a dataset is opened.

    Attributes
    ----------
    allow_pickle
        Whether items that are Python objects may be read.
    sync
        Whether each change is on the disk when it has been made.
    writable
        Whether it may be changed.
    """

    def __init__(
        self, allow_pickle: bool = False, sync: bool = True, writable: bool = False
    ) -> None:
        self.writable = writable
        self.allow_pickle = allow_pickle
        self.sync = sync


def open_leaf(
    folder: Folder, layout: str, kind: str, options: Options
) -> Array | Table:
    """Return the array or table in a folder."""
    writer = None
    if options.writable:
        prepare_changes(layout, folder, options.sync)
        writer = Writer(folder, options.sync)
    try:
        if kind == "array":
            return _open_array(folder, array_class(layout), writer, options)
        return _open_table(folder, table_class(layout), writer, options)
    except BaseException:
        if writer is not None:
            writer.close()
        raise


def _open_array(
    folder: Folder, layout: type[ArrayLayout], writer: Writer | None, options: Options
) -> Array:
    found = layout(folder, allow_pickle=options.allow_pickle)
    if writer is None:
        return Array(found)
    found.check_writable()
    return Array(found, writer, is_column=is_column(folder.root))


def _open_table(
    folder: Folder, layout: type[TableLayout], writer: Writer | None, options: Options
) -> Table:
    found = layout(folder, allow_pickle=options.allow_pickle)
    if writer is None:
        for _ in range(ATTEMPTS):  # a writer may be changing the lengths
            if len({column.shape[0] for column in found.columns.values()}) < 2:
                break
            folder.read_journal()
            found = layout(folder, allow_pickle=options.allow_pickle)
        return Table(found)
    found.check_layout()
    for column in found.columns.values():
        column.check_writable()
    table = Table(found, writer)
    table.make_equal()
    return table
