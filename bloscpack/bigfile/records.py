"""Several columns of a group as one table of records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy
from numpy.typing import ArrayLike, DTypeLike

from .._arrays.stored import StoredRows
from .._format.dtypes import Array, DType, Key
from ..exceptions import UsageTypeError, UsageValueError
from .column import Column

if TYPE_CHECKING:
    from .file import File


def isstr(s: object) -> bool:
    """Return whether an object is text."""
    return isinstance(s, str)


def isstrlist(s: object) -> bool:
    """Return whether an object is a list of texts."""
    return isinstance(s, list) and all(map(isstr, s))


def _names_and_rows(index: Key) -> tuple[Any, list[object]]:
    """Return the name or names in an index of a table, or None, and the other parts."""
    parts = list(index) if isinstance(index, tuple) else [index]
    for number, part in enumerate(parts[:2]):
        name = part[0] if isinstance(part, tuple) and len(part) == 1 else part
        if isstr(name) or (isstrlist(name) and name):
            del parts[number]
            if not isstr(name) and len(parts) > 1:
                raise UsageTypeError("columns and rows of a table are one index each")
            return name, parts
    return None, parts if len(parts) == 1 else [index]


def _index_of(parts: list[object]) -> Any:
    """Return the index of a column: rows, or rows and items."""
    if any(isstr(part) or (isstrlist(part) and part) for part in parts):
        raise UsageTypeError("an index of a table has one name, or one list of names")
    return parts[0] if len(parts) == 1 else tuple(parts)


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
            found = ["%s: %d" % (n, c.size) for n, c in self._columns.items()]
            raise UsageValueError(
                "a table needs columns of one length, found %s"
                % (", ".join(found) or "no columns")
            )
        self.size: int = sizes.pop()
        columns = [(name, self._columns[name]) for name in self.column_names]
        fields = [(name, column.dtype, column.shape[1:]) for name, column in columns]
        self.dtype: DType = numpy.dtype(fields)

    @classmethod
    def create(cls, file: File, dtype: DTypeLike, size: int) -> Dataset:
        """Create a column for each field of a structured type; return the table."""
        dtype = numpy.dtype(dtype)
        for name in dtype.names or ():
            file.create(name, dtype[name], size).close()
        return cls(file, dtype.names)

    @property
    def shape(self) -> tuple[int]:
        return (self.size,)

    def __repr__(self) -> str:
        names = ", ".join(self.column_names)
        return "<Dataset of %d rows: %s>" % (self.size, names)

    def __getitem__(self, index: Any) -> Any:
        names, rest = _names_and_rows(index)
        if names is not None:
            part = self._columns[names] if isstr(names) else Dataset(self.file, names)
            return part[_index_of(rest)] if rest else part
        index = rest[0]
        rows = {name: column[index] for name, column in self._columns.items()}
        is_row = isinstance(index, (int, numpy.integer))
        length = 1 if is_row else len(next(iter(rows.values())))
        table = numpy.empty(length, self.dtype)
        for name, values in rows.items():
            table[name] = values
        return table[0] if is_row else table

    def __setitem__(self, index: Key, value: object) -> None:
        names, rest = _names_and_rows(index)
        rows = _index_of(rest) if rest else slice(None)
        if isstr(names):
            self._columns[names][rows] = value
            return
        names = self.column_names if names is None else names
        records = numpy.asarray(value)
        self._check_fields(records, names)
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
        buf = numpy.asarray(buf)
        self._check_fields(buf, self.column_names)
        for name, column in self._columns.items():
            column.write(start, buf[name])

    def append(self, buf: ArrayLike, Nfile: int = 1) -> None:
        """Add records at the end, in `Nfile` new data files of each column."""
        buf = numpy.asarray(buf)
        self._check_fields(buf, self.column_names)
        for name, column in self._columns.items():
            column.append(buf[name], Nfile)
        self.size = self._columns[self.column_names[0]].size

    def _check_fields(self, buf: Array, needed: list[str]) -> None:
        names = buf.dtype.names or ()
        missing = [name for name in needed if name not in names]
        if missing:
            raise UsageTypeError("the records have no field '%s'" % missing[0])

    def flush(self) -> None:
        """Flush all columns."""
        for column in self._columns.values():
            column.flush()

    def close(self) -> None:
        """Close all columns."""
        for column in self._columns.values():
            column.close()
