"""The contents of a file or folder, between a reader and a writer of another format.

A reader describes its contents as an array, a table or a group, and yields the rows in
blocks of bounded size. A writer takes any of the three kinds, or names the kinds that
its format holds. So each format needs a reader and a writer, not a pair for each other
format.
"""

from __future__ import annotations

import math

import numpy

from ...exceptions import UsageTypeError, UsageValueError

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any, TypeAlias

    from ..._format.dtypes import Array, DType
    from ...abstract_io import Progress
    from ...serializers import JsonObject

    # Rows of an array, or of a table by the names of its columns.
    Columns = dict[str, Array]
    Content: TypeAlias = "ArrayContent | TableContent | GroupContent"

# Number of plain bytes in a block of rows.
BLOCK_NBYTES = 8 * 2**20
# Blocks of rows of an array in Fortran order are larger by this factor: each of them
# reads all of the file.
FORTRAN_FACTOR = 4


def rows_in_block(row_nbytes: int, unit: int = 1, factor: int = 1) -> int:
    """Return the number of rows in a block: a multiple of `unit`, if those fit.

    A block has `factor` times the usual size.
    """
    rows = max(1, factor * BLOCK_NBYTES // max(1, row_nbytes))
    return rows - rows % unit if rows > unit else rows


class ArrayContent:
    """An array.

    Parameters
    ----------
    dtype, shape
        Those of the array.
    rows
        Yields blocks of rows, in order. An array without axes is one block.
    attrs
        The attributes.
    fill_value
        The value of new items if the array is enlarged; None for zero.
    dims
        The names of the axes; None for no names.
    stored
        For an array in Fortran order, yields blocks of rows of its transpose: the order
        of the items in the source. None for an array in C order.
    """

    kind = "array"
    # Whether the array is left out, and named, if the target can't hold it.
    may_be_lost = False

    def __init__(
        self,
        dtype: DType,
        shape: tuple[int, ...],
        rows: Callable[[], Iterable[Array]],
        *,
        attrs: JsonObject | None = None,
        fill_value: Any = None,
        dims: Sequence[str | None] | None = None,
        stored: Callable[[], Iterable[Array]] | None = None,
    ) -> None:
        self.dtype = dtype
        self.shape = shape
        self.attrs: JsonObject = {} if attrs is None else attrs
        self.fill_value = fill_value
        self.dims = dims if any(dims or ()) else None
        self.fortran = stored is not None and len(shape) > 1
        self.progress: Progress | None = None
        self._rows = rows
        self._stored = stored

    @property
    def nbytes(self) -> int:
        """Number of plain bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def watch(self, progress: Progress | None) -> None:
        """Call `progress` with the plain bytes of each block that is read."""
        self.progress = progress

    def rows(self) -> Iterator[Array]:
        """Yield blocks of rows."""
        return self._counted(self._rows())

    def stored(self) -> Iterator[Array]:
        """Yield blocks whose bytes are the items in the order of the source."""
        if self._stored is None or not self.fortran:
            return self.rows()
        return self._counted(self._stored())

    def _counted(self, blocks: Iterable[Array]) -> Iterator[Array]:
        for block in blocks:
            yield block
            if self.progress is not None:
                self.progress(block.nbytes)


class Column:
    """A column of a table: the type and shape of a row, and the attributes."""

    def __init__(
        self,
        dtype: DType,
        inner: tuple[int, ...] = (),
        attrs: JsonObject | None = None,
        fill_value: Any = None,
    ) -> None:
        self.dtype = dtype
        self.inner = inner
        self.attrs: JsonObject = {} if attrs is None else attrs
        self.fill_value = fill_value

    @property
    def row_nbytes(self) -> int:
        """Number of plain bytes of a row."""
        return math.prod(self.inner) * self.dtype.itemsize


class TableContent:
    """Columns with the same number of rows.

    Parameters
    ----------
    columns
        The columns by name, in order.
    length
        Number of rows.
    blocks
        Yields blocks of rows of all columns.
    attrs
        The attributes of the table.
    column_rows
        Yields blocks of rows of one column, by its name, if that takes less time than
        reading all columns.
    """

    kind = "table"

    def __init__(
        self,
        columns: dict[str, Column],
        length: int,
        blocks: Callable[[], Iterable[Columns]],
        *,
        attrs: JsonObject | None = None,
        column_rows: Callable[[str], Iterable[Array]] | None = None,
    ) -> None:
        self.columns = columns
        self.length = length
        self.attrs: JsonObject = {} if attrs is None else attrs
        self.progress: Progress | None = None
        self._blocks = blocks
        self._column_rows = column_rows

    @property
    def row_nbytes(self) -> int:
        """Number of plain bytes of a row of all columns."""
        return sum(column.row_nbytes for column in self.columns.values())

    @property
    def nbytes(self) -> int:
        """Number of plain bytes."""
        return self.length * self.row_nbytes

    @property
    def dtype(self) -> DType:
        """The type of a row, with a field for each column."""
        return numpy.dtype([(n, c.dtype, c.inner) for n, c in self.columns.items()])

    def watch(self, progress: Progress | None) -> None:
        """Call `progress` with the plain bytes of each block that is read."""
        self.progress = progress

    def blocks(self) -> Iterator[Columns]:
        """Yield blocks of rows of all columns."""
        for block in self._blocks():
            yield block
            if self.progress is not None:
                self.progress(sum(rows.nbytes for rows in block.values()))

    def column(self, name: str) -> ArrayContent:
        """Return a column as an array of its own."""
        column, read = self.columns[name], self._column_rows

        def rows() -> Iterable[Array]:
            if read is not None:
                return read(name)
            return (block[name] for block in self._blocks())

        array = ArrayContent(
            column.dtype,
            (self.length, *column.inner),
            rows,
            attrs=column.attrs,
            fill_value=column.fill_value,
        )
        array.watch(self.progress)
        return array


class GroupContent:
    """Arrays, tables and groups by name."""

    kind = "group"

    def __init__(
        self, members: dict[str, Content], attrs: JsonObject | None = None
    ) -> None:
        self.members = members
        self.attrs: JsonObject = {} if attrs is None else attrs

    @property
    def nbytes(self) -> int:
        """Number of plain bytes of all members."""
        return sum(member.nbytes for member in self.members.values())

    def watch(self, progress: Progress | None) -> None:
        """Call `progress` with the plain bytes of each block that is read."""
        for member in self.members.values():
            member.watch(progress)

    def leaves(self, prefix: str = "") -> Iterator[tuple[str, ArrayContent]]:
        """Yield all arrays, and the columns of tables, with slashes in their names."""
        for name, member in self.members.items():
            if isinstance(member, GroupContent):
                yield from member.leaves("%s%s/" % (prefix, name))
            elif isinstance(member, TableContent):
                for column in member.columns:
                    yield "%s%s/%s" % (prefix, name, column), member.column(column)
            else:
                yield prefix + name, member


def has_attributes(content: Content) -> bool:
    """Return whether there is an attribute anywhere."""
    if content.attrs:
        return True
    if isinstance(content, GroupContent):
        return any(map(has_attributes, content.members.values()))
    if isinstance(content, TableContent):
        return any(column.attrs for column in content.columns.values())
    return False


def has_dims(content: Content) -> bool:
    """Return whether the axes of an array have names, which are no attributes."""
    if isinstance(content, GroupContent):
        return any(map(has_dims, content.members.values()))
    return isinstance(content, ArrayContent) and content.dims is not None


def has_fill_value(content: Content) -> bool:
    """Return whether a fill value is anything but zero."""
    if isinstance(content, GroupContent):
        return any(map(has_fill_value, content.members.values()))
    if isinstance(content, TableContent):
        return any(_is_fill(c.fill_value, c.dtype) for c in content.columns.values())
    return _is_fill(content.fill_value, content.dtype)


def _is_fill(value: Any, dtype: DType) -> bool:
    return value is not None and bool(numpy.array(value, dtype).tobytes().strip(b"\0"))


# From kind to kind


def as_array(content: ArrayContent | TableContent) -> ArrayContent:
    """Return a table as an array with a field for each column."""
    if isinstance(content, ArrayContent):
        return content
    dtype, table = content.dtype, content

    def rows() -> Iterator[Array]:
        for block in table.blocks():
            count = len(next(iter(block.values())))
            items: Array = numpy.empty(count, dtype)
            for name, column in block.items():
                items[name] = column
            yield items

    return ArrayContent(dtype, (table.length,), rows, attrs=table.attrs)


def is_table(content: Content) -> bool:
    """Return whether the content is a table, or an array with fields and one axis."""
    if isinstance(content, ArrayContent):
        return content.dtype.names is not None and len(content.shape) == 1
    return isinstance(content, TableContent)


def as_table(content: ArrayContent | TableContent) -> TableContent:
    """Return an array as a table.

    Each field becomes a column, which has the fill value of the field, unless this is
    an array. An array without fields has one column, ``"0"``, and
    with two axes as many columns as items in a row. Raises `UsageError` for others.
    """
    if isinstance(content, TableContent):
        return content
    array, fields = content, content.dtype.fields
    if len(array.shape) not in (1, 2) or (fields and len(array.shape) == 2):
        raise UsageTypeError(
            "an array of shape %s and dtype '%s' can't become a table: expected one or "
            "two axes" % (array.shape, array.dtype)
        )
    columns: dict[str, Column] = {}
    if fields:
        fill = numpy.zeros((), array.dtype)
        if array.fill_value is not None:
            fill[...] = array.fill_value
        for name in array.dtype.names or ():
            field = fields[name][0]
            value = None if field.shape else fill[name]
            columns[name] = Column(field.base, field.shape, fill_value=value)
    else:
        count = array.shape[1] if len(array.shape) == 2 else 1
        columns = {str(i): Column(array.dtype) for i in range(count)}
    if not columns:
        raise UsageValueError("an array without items in a row can't become a table")

    def blocks() -> Iterator[Columns]:
        for rows in array.rows():
            if fields:
                yield {name: rows[name] for name in columns}
            else:
                flat = rows.reshape(len(rows), -1)
                yield {name: flat[:, i] for i, name in enumerate(columns)}

    return TableContent(columns, array.shape[0], blocks, attrs=array.attrs)


def without_group(content: Content) -> Content:
    """Return contents for a format that can't hold groups, if there are any.

    A group of one member becomes that member, and a group of arrays of the same length
    a table.
    """
    if not isinstance(content, GroupContent):
        return content
    if len(content.members) == 1:
        return without_group(next(iter(content.members.values())))
    arrays = {
        name: member
        for name, member in content.members.items()
        if isinstance(member, ArrayContent) and member.shape
    }
    lengths = {array.shape[0] for array in arrays.values()}
    if len(arrays) < len(content.members) or len(lengths) != 1:
        return content
    columns = {
        name: Column(array.dtype, array.shape[1:], array.attrs, array.fill_value)
        for name, array in arrays.items()
    }
    step = rows_in_block(sum(column.row_nbytes for column in columns.values()))

    def blocks() -> Iterator[Columns]:
        parts = [regrouped_rows(array.rows(), step) for array in arrays.values()]
        for rows in zip(*parts, strict=True):
            yield dict(zip(arrays, rows, strict=True))

    return TableContent(
        columns,
        lengths.pop(),
        blocks,
        attrs=content.attrs,
        column_rows=lambda name: arrays[name].rows(),
    )


def has_attributes_around(content: Content) -> bool:
    """Return whether `without_group` drops a group that has attributes."""
    while isinstance(content, GroupContent) and len(content.members) == 1:
        if content.attrs:
            return True
        content = next(iter(content.members.values()))
    return False


# Blocks


def regrouped_rows(blocks: Iterable[Array], count: int) -> Iterator[Array]:
    """Yield the same rows in blocks of `count` rows; the last one may be shorter."""
    return (block[""] for block in regrouped(({"": rows} for rows in blocks), count))


def regrouped(blocks: Iterable[Columns], count: int) -> Iterator[Columns]:
    """Do the same for several columns."""
    room: Columns = {}
    filled = 0
    for block in blocks:
        length = len(next(iter(block.values())))
        start = 0
        while start < length:
            if not filled and length - start >= count:
                yield {n: rows[start : start + count] for n, rows in block.items()}
                start += count
                continue
            taken = min(count - filled, length - start)
            if not room:
                room = {
                    n: numpy.empty((count, *rows.shape[1:]), rows.dtype)
                    for n, rows in block.items()
                }
            for name, rows in block.items():
                room[name][filled : filled + taken] = rows[start : start + taken]
            filled += taken
            start += taken
            if filled == count:
                yield room
                room, filled = {}, 0
    if filled:
        yield {name: rows[:filled] for name, rows in room.items()}
