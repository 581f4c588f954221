"""Several columns of a group as one table of records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy
from numpy.typing import ArrayLike, DTypeLike

from .._arrays.selection import is_names
from .._arrays.stored import StoredRows
from .._format.dtypes import Array, DType, Key
from ..exceptions import UsageTypeError, UsageValueError
from ..log import counted
from .column import Column

if TYPE_CHECKING:
    from .file import File


def isstr(s: object) -> bool:
    """Return whether an object is text."""
    return isinstance(s, str)


def isstrlist(s: object) -> bool:
    """Return whether an object is a list of texts."""
    return isinstance(s, list) and all(map(isstr, s))


def _split(index: object) -> tuple[Any, Any]:
    """Return the name or names in an index of a table, or None, and the other parts."""
    names: list[Any] = []
    rest: list[Any] = []
    for part in index if isinstance(index, tuple) else (index,):
        key = part[0] if isinstance(part, tuple) and len(part) == 1 else part
        (names if is_names(key) else rest).append(key)
    if len(names) > 1 or (names and not isstr(names[0]) and len(rest) > 1):
        raise UsageTypeError("an index of a table has one name, or one list of names")
    rows = rest[0] if len(rest) == 1 else tuple(rest)
    return names[0] if names else None, rows if rest else slice(None)


class Dataset(StoredRows):
    """Columns of a group as one table; a slice is an array of records.

    ``table['ID']`` is a column, ``table[['ID', 'Mass']]`` a table of two, and
    ``table['ID', 10:12]`` has rows of a column. Records can be assigned to rows.

    Parameters
    ----------
    file
        A `File`: a tree or a group.
    column_names
        The names of the columns; by default all blocks of the group.

    Attributes
    ----------
    dtype
        A structured type with one field per column.
    size, shape, ndim
        Of the table; it has one axis.
    """

    def __init__(
        self,
        file: File,
        column_names: Sequence[str] | None = None,
        blocks: Sequence[str] | None = None,
    ) -> None:
        if column_names is None:
            column_names = file.blocks if blocks is None else blocks
        self.file = file
        self.column_names = list(column_names)
        self._columns: dict[str, Column] = {
            name: file.open(name) for name in self.column_names
        }
        sizes = {column.size for column in self._columns.values()}
        if len(sizes) != 1:
            lengths = ["%s: %d" % (n, c.size) for n, c in self._columns.items()]
            raise UsageValueError(
                "a table needs columns of one length, found %s"
                % (", ".join(lengths) or "no columns")
            )
        self.size: int = sizes.pop()
        columns = [(name, self._columns[name]) for name in self.column_names]
        fields = [(name, column.dtype, column.shape[1:]) for name, column in columns]
        self.dtype: DType = numpy.dtype(fields)

    @classmethod
    def create(cls, file: File, dtype: DTypeLike, size: int) -> Dataset:
        """Create a column for each field of a structured type; return the table."""
        row: DType = numpy.dtype(dtype)
        for name in row.names or ():
            file.create(name, row[name], size).close()
        return cls(file, row.names)

    @property
    def shape(self) -> tuple[int]:
        return (self.size,)

    def __repr__(self) -> str:
        names = ", ".join(self.column_names)
        return "<Dataset of %s: %s>" % (counted(self.size, "row"), names)

    def __getitem__(self, index: Any) -> Any:
        names, rows = _split(index)
        if names is not None:
            part = self._columns[names] if isstr(names) else Dataset(self.file, names)
            has_rows = isinstance(index, tuple) and len(index) > 1
            return part[rows] if has_rows else part
        columns = {name: column[rows] for name, column in self._columns.items()}
        is_row = isinstance(rows, (int, numpy.integer))
        length = 1 if is_row else len(next(iter(columns.values())))
        table = numpy.empty(length, self.dtype)
        for name, values in columns.items():
            table[name] = values
        return table[0] if is_row else table

    def __setitem__(self, index: Key, value: object) -> None:
        names, rows = _split(index)
        if isstr(names):
            self._columns[names][rows] = value
            return
        names = self.column_names if names is None else names
        records = self._records(value, names)
        for name in names:
            self._columns[name][rows] = records[name]

    def read(self, start: int, length: int, out: Array | None = None) -> Array:
        """Return `length` records from `start` on, fewer at the end."""
        length = min(length, self.size - start)
        if out is None:
            out = numpy.empty(length, self.dtype)
        for name, column in self._columns.items():
            column.read(start, length, out[name])
        return out

    def write(self, start: int, buf: ArrayLike) -> None:
        """Write records from row `start` on, each field to its column."""
        records = self._records(buf, self.column_names)
        for name, column in self._columns.items():
            column.write(start, records[name])

    def append(self, buf: ArrayLike, Nfile: int = 1) -> None:
        """Add records at the end, in `Nfile` new data files of each column."""
        records = self._records(buf, self.column_names)
        for name, column in self._columns.items():
            column.append(records[name], Nfile)
        self.size = self._columns[self.column_names[0]].size

    def _records(self, value: object, names: list[str]) -> Array:
        """Return records as an array that has the fields `names`."""
        records = numpy.asarray(value)
        missing = [name for name in names if name not in (records.dtype.names or ())]
        if missing:
            raise UsageTypeError("the records have no field '%s'" % missing[0])
        return records

    def flush(self) -> None:
        """Flush all columns."""
        for column in self._columns.values():
            column.flush()

    def close(self) -> None:
        """Close all columns."""
        for column in self._columns.values():
            column.close()
