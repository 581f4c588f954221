"""Datasets as collections of Dask: a block or a partition for each shard.

Strategy: each task gets the pickled dataset, which opens it again, and reads its rows.
Dask is imported when it is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..exceptions import UsageError

if TYPE_CHECKING:
    from .array import Array
    from .table import Table

# Kinds of items, other than text, that are objects in a DataFrame.
OBJECTS = "SVO"


def import_dask(name: str) -> Any:
    """Return a module of Dask; raise `UsageError` if it is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        raise UsageError(
            "'%s' can't be imported (%s): install 'bloscpack[dask]'" % (name, error)
        ) from error


def array_to_dask(array: Array, chunks: Any = None) -> Any:
    """Return an array as an array of Dask."""
    da = import_dask("dask.array")
    if chunks is None:
        chunks = array.shards or array.chunks
    return da.from_array(array, chunks=chunks)


def table_to_dask(table: Table, rows: int | None, columns: list[str] | None) -> Any:
    """Return a table as a DataFrame of Dask."""
    dd = import_dask("dask.dataframe")
    names = table.names if columns is None else [table[n] and n for n in columns]
    if rows is None:
        arrays = [table[name] for name in names]
        rows = min((a.shards or a.chunks)[0] for a in arrays)
    if rows < 1:
        raise UsageError("a partition must have at least one row, not '%d'" % rows)
    count = len(table)
    starts = list(range(0, count, rows)) or [0]
    divisions = (*starts, count - 1) if count else (None, None)
    settings = {}
    if any(table[name].dtype.kind in OBJECTS for name in names):
        # Dask would decode bytes, as it converts objects to text.
        settings = {"dataframe.convert-string": False}
    with import_dask("dask").config.set(settings):
        return dd.from_map(
            read_frame,
            starts,
            table=table,
            rows=rows,
            columns=names,
            meta=read_frame(0, table, 0, names),
            divisions=divisions,
            label="bloscpack-table",
        )


def read_frame(start: int, table: Table, rows: int, columns: Sequence[str]) -> Any:
    """Return rows of a table as a DataFrame that has their numbers as index."""
    stop = min(start + rows, len(table))
    frame = table.frame(slice(start, stop), columns)
    frame.index = frame.index + start
    return frame
