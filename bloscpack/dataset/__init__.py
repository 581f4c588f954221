"""Datasets: arrays and tables in folders of compressed files.

>>> from bloscpack import dataset
>>> table = dataset.open('daily_equities.bcolz')         # doctest: +SKIP
>>> table['close'][:5]                                   # doctest: +SKIP

`open` finds out which layout a folder has: that of bcolz 1.x or that of BLZ.
"""

from __future__ import annotations

from ..exceptions import UsageTypeError, UsageValueError
from .array import Array as Array
from .attributes import Attributes as Attributes
from .folder import Folder
from .layouts import array_class, detect, table_class
from .table import Table as Table

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from .._storage.protocols import Path

MODES = ("r",)


def open(path: Path, mode: str = "r", *, allow_pickle: bool = False) -> Array | Table:
    """Open an array or a table.

    Parameters
    ----------
    path
        The folder.
    mode
        ``'r'``: for reading.
    allow_pickle
        Whether items that are Python objects may be read. This may run code that the
        files name: use it only for files that you trust.

    Raises
    ------
    FormatError
        If the folder holds no dataset, or one whose description is damaged.
    OSError
        If there is no such folder.
    """
    if mode not in MODES:
        raise UsageValueError(
            "mode must be one of %s, not %r" % (", ".join(map(repr, MODES)), mode)
        )
    folder = Folder.open(path)
    layout, kind = detect(folder)
    if kind == "table":
        return Table(table_class(layout)(folder, allow_pickle=allow_pickle))
    return Array(array_class(layout)(folder, allow_pickle=allow_pickle))


def open_array(path: Path, mode: str = "r", *, allow_pickle: bool = False) -> Array:
    """Open an array; `open` describes the parameters.

    Raises
    ------
    UsageError
        If it is a table.
    """
    found = open(path, mode, allow_pickle=allow_pickle)
    if not isinstance(found, Array):
        raise UsageTypeError("'%s' is a table; open_table opens it" % found.path)
    return found


def open_table(path: Path, mode: str = "r", *, allow_pickle: bool = False) -> Table:
    """Open a table; `open` describes the parameters.

    Raises
    ------
    UsageError
        If it is an array.
    """
    found = open(path, mode, allow_pickle=allow_pickle)
    if not isinstance(found, Table):
        raise UsageTypeError("'%s' is an array; open_array opens it" % found.path)
    return found
