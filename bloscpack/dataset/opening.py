"""Arrays and tables opened from their folders, for reading or for changes."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from .._storage.upload import check_writable
from ..exceptions import DamageError, UsageError
from .array import Array
from .create import drop_copies
from .layouts import LAYOUTS, array_class, is_inside_table, table_around, table_class
from .table import Table
from .writer import writer_for

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from .._storage.protocols import StorageOptions
    from .folder import Folder
    from .layouts import Found
    from .layouts.base import ArrayLayout, TableLayout
    from .writer import Writer

# Number of times that a table is read again if one of its columns is missing or has a
# different length.
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
    storage_options
        Settings for fsspec to open a URL.
    """

    def __init__(
        self,
        allow_pickle: bool = False,
        sync: bool = True,
        writable: bool = False,
        storage_options: StorageOptions | None = None,
    ) -> None:
        self.storage_options = storage_options
        self.writable = writable
        self.allow_pickle = allow_pickle
        self.sync = sync


def open_leaf(found: Found, options: Options) -> Array | Table:
    """Return the array or table that was found; for a column, as one of its table."""
    # A column that is read at its own URL is an array: this saves requests.
    alone = found.kind != "array" or (found.folder.is_remote and not options.writable)
    around = None if alone else table_around(found.folder)
    if around is not None:
        table = open_leaf(around[0], options)
        return table[around[1]].alone(table, closes_table=True)  # type: ignore
    folder, layout = found.folder, found.layout
    writer: Writer | None = None
    if options.writable:
        check_changeable(found)
        writer = writer_of(found, options.sync)
    try:
        if found.kind == "array":
            return _open_array(folder, array_class(layout), writer, options)
        return _open_table(folder, table_class(layout), writer, options)
    except BaseException:
        if writer is not None:
            writer.close()
        raise


def writer_of(found: Found, sync: bool) -> Writer:
    """Return a writer for a dataset that was found."""
    prepare = partial(drop_copies, found.layout, found.folder, sync)
    return writer_for(found.folder, found.kind, sync, prepare)


def check_changeable(found: Found) -> None:
    """Raise `UsageError` if a dataset at a URL can only be read."""
    if not found.folder.is_remote:
        return
    check_writable(found.folder.root)
    if not LAYOUTS[found.layout].changes_at_urls:
        raise UsageError(
            "'%s' can only be read: at a URL, datasets of the layout 'zarr' can be "
            "changed, no others" % found.folder.path()
        )


def _open_array(
    folder: Folder, layout: type[ArrayLayout], writer: Writer | None, options: Options
) -> Array:
    found = layout(folder, allow_pickle=options.allow_pickle)
    if writer is not None:
        found.check_writable()
        if found.is_column and is_inside_table(folder):
            raise UsageError(
                "'%s' is a column of a table that another user may have written, or "
                "that is damaged: open the table to change it" % folder.path()
            )
    return Array(found, writer)


def _open_table(
    folder: Folder, layout: type[TableLayout], writer: Writer | None, options: Options
) -> Table:
    if writer is None:
        return Table(_read_table(folder, layout, options))
    if folder.is_remote:  # no lock keeps other writers away
        found = _read_table(folder, layout, options)
    else:
        found = layout(folder, allow_pickle=options.allow_pickle)
    found.check_layout()
    for column in found.columns.values():
        column.check_writable()
    table = Table(found, writer)
    table.make_equal()
    return table


def _read_table(
    folder: Folder, layout: type[TableLayout], options: Options
) -> TableLayout:
    """Return a table, while a writer may be changing it.

    Between the reads of two files, the writer may have removed a column, or changed the
    lengths: the table is read again. A damaged table fails each time.
    """
    for _ in range(ATTEMPTS):
        with suppress(FileNotFoundError, DamageError):
            found = layout(folder, allow_pickle=options.allow_pickle)
            if len({column.shape[0] for column in found.columns.values()}) < 2:
                return found
        folder.read_journal()
    return layout(folder, allow_pickle=options.allow_pickle)
