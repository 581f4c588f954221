"""The contents of a file or folder, between a reader and a writer of another format.

A reader describes its contents as an array, a table or a group, and yields the rows in
blocks of bounded size. A writer takes any of the three kinds, or names the kinds that
its format holds. So each format needs a reader and a writer, not a pair for each other
format.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, TypeAlias, TypeVar

import numpy

from ..._commit.ownership import AccessLimits
from ..._commit.replacing import replacing
from ..._format.dtypes import Array, DType
from ..._storage.base import naming_errors
from ..._storage.stream import is_stream
from ..._types import JsonObject
from ...abstract_io import Progress
from ...exceptions import DamageError, UsageError, UsageTypeError, UsageValueError
from ..rows import RowStream, joined

Columns = dict[str, Array]
Content: TypeAlias = "ArrayContent | TableContent | GroupContent"
Block = TypeVar("Block", Array, Columns)

# Number of plain bytes in a block of rows.
BLOCK_NBYTES = 8 * 2**20
# Blocks of rows of an array in Fortran order are larger by this factor: each of them
# reads all of the file.
FORTRAN_FACTOR = 4


@dataclass(eq=False)
class Request:
    """The settings of one conversion, and what it could not carry over.

    Attributes
    ----------
    target
        The file or folder to write.
    force
        Whether to replace an existing target.
    sync
        Whether the target is on the disk in the end; None: if it replaces another one.
    nthreads
        Number of threads for `.blp` files; None for the default.
    settings
        Settings of Blosc: ``cname``, ``clevel``, ``shuffle``.
    chunks, shards
        Those of the arrays of a dataset, as for `create_array`; None for the default.
    dtypes
        The types of columns of text files, by name.
    raw
        The type and the shape of raw items; None for a file that states its own.
    limits
        The attributes of the source, which limit the readers of the target.
    layout
        The layout of the target; empty unless it is a dataset.
    progress
        Called with the plain bytes of each block that has been read; None for nothing.
    resources
        Files to be closed after the conversion.
    lost
        What the target can't hold, in words.
    """

    target: str
    force: bool = False
    sync: bool | None = None
    nthreads: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    chunks: int | tuple[int, ...] | None = None
    shards: int | tuple[int, ...] | None = None
    dtypes: Mapping[str, DType] = field(default_factory=dict)
    raw: tuple[DType, tuple[int, ...]] | None = None
    limits: AccessLimits | None = None
    layout: str = ""
    progress: Progress | None = None
    resources: ExitStack = field(default_factory=ExitStack)
    lost: list[str] = field(default_factory=list)

    def new_file(self) -> AbstractContextManager[BinaryIO]:
        """Return the context of the target, a file that is there when it ends.

        A stream, such as a pipe, is written directly.
        """
        return replacing(
            self.target,
            self.sync,
            exclusive=not self.force and not is_streamed(self.target),
            like=None if self.limits is None else self.limits.whole(),
        )

    def counted(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Yield blocks of an array or a table, and report the progress."""
        for block in blocks:
            yield block
            if self.progress is not None:
                columns = block.values() if isinstance(block, dict) else (block,)
                self.progress(sum(rows.nbytes for rows in columns))

    def note_loss(self, what: str) -> None:
        """Note something that the target can't hold."""
        if what not in self.lost:
            self.lost.append(what)


def is_streamed(target: str) -> bool:
    """Return whether a target is a stream, such as a pipe."""
    return is_stream(target) and not os.path.isdir(target)


@contextmanager
def naming_file(path: str, *wrong: type[Exception]) -> Iterator[None]:
    """Add the name of a file to errors; those of the classes `wrong` are damage.

    An error of the system is none, whatever its class.
    """
    try:
        with naming_errors(path):
            yield
    except UsageError as error:
        raise type(error)("'%s': %s" % (path, error)) from error
    except wrong as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DamageError(str(error), filename=path) from error


def rows_in_block(row_nbytes: int, unit: int = 1, factor: int = 1) -> int:
    """Return the number of rows in a block: a multiple of `unit`, if those fit.

    A block has `factor` times the usual size.
    """
    rows = max(1, factor * BLOCK_NBYTES // max(1, row_nbytes))
    return rows - rows % unit if rows > unit else rows


@dataclass(eq=False)
class ArrayContent:
    """An array, or a column of a table.

    Attributes
    ----------
    dtype, shape
        Those of the array.
    read
        Yields blocks of rows, in order. An array without axes is one block. None if
        `array` is read, or for a column that is read with the others of its table.
    attrs
        The attributes.
    fill_value
        The value of new items if the array is enlarged; None for zero.
    dims
        The names of the axes; None for no names.
    read_stored
        For an array in Fortran order, yields blocks of rows of its transpose: the order
        of the items in the source. None for an array in C order.
    may_be_lost
        Whether the array is left out, and named, if the target can't hold it.
    array
        What reads any of its items by an index of NumPy; None if there are only blocks.
    """

    dtype: DType
    shape: tuple[int, ...]
    read: Callable[[], Iterable[Array]] | None = None
    attrs: JsonObject = field(default_factory=dict)
    fill_value: object = None
    dims: Sequence[str | None] | None = None
    read_stored: Callable[[], Iterable[Array]] | None = None
    may_be_lost: bool = False
    array: Any = None

    kind = "array"

    @property
    def members(self) -> dict[str, Content]:
        """No members."""
        return {}

    @property
    def fortran(self) -> bool:
        """Whether the items are in Fortran order in the source."""
        return self.read_stored is not None and len(self.shape) > 1

    @property
    def row_nbytes(self) -> int:
        """Number of plain bytes of a row."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Number of plain bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def has_fill_value(self) -> bool:
        """Whether the fill value is anything but zero."""
        if self.fill_value is None:
            return False
        return bool(numpy.array(self.fill_value, self.dtype).tobytes().strip(b"\0"))

    def rows(self) -> Iterable[Array]:
        """Return blocks of rows."""
        if self.read is not None:
            return self.read()
        return self.parts(range(self.shape[0])) if self.shape else [self.array[...]]

    def parts(self, rows: range) -> Iterator[Array]:
        """Yield some rows in blocks, without reading the others if that is possible."""
        if self.array is None:
            yield from (block[part] for block, part in _overlaps(self.rows(), rows))
            return
        factor = FORTRAN_FACTOR if self.fortran else 1
        step = rows_in_block(self.row_nbytes * rows.step, self.chunk_rows, factor)
        for part in cut_rows(rows, step):
            yield self.array[part.start : part.stop : part.step]

    @property
    def chunk_rows(self) -> int:
        """Number of rows that are compressed together; 1 if unknown."""
        chunks: tuple[int, ...] = getattr(self.array, "chunks", ())
        return max([1, *chunks[:1]])

    def stream(self) -> RowStream:
        """Return the rows, to be taken in any number at a time."""
        return RowStream(self.rows(), self.dtype, self.shape[1:])

    def stored(self) -> Iterable[Array]:
        """Return blocks whose bytes are the items in the order of the source."""
        if self.read_stored is None or not self.fortran:
            return self.rows()
        return self.read_stored()


@dataclass(eq=False)
class TableContent:
    """Columns with the same number of rows.

    Attributes
    ----------
    columns
        The columns by name, in order.
    length
        Number of rows.
    read
        Yields blocks of rows of all columns.
    attrs
        The attributes of the table.
    """

    columns: dict[str, ArrayContent]
    length: int
    read: Callable[[], Iterable[Columns]]
    attrs: JsonObject = field(default_factory=dict)

    kind = "table"

    @property
    def members(self) -> dict[str, Content]:
        """The columns, each as an array that can be read without the others."""
        return {
            name: replace(column, read=self._reader(name))
            if column.read is None and column.array is None
            else column
            for name, column in self.columns.items()
        }

    def _reader(self, name: str) -> Callable[[], Iterable[Array]]:
        return lambda: (block[name] for block in self.read())

    def only(self, names: Iterable[str]) -> TableContent:
        """Return a table of some columns."""
        columns = {name: self.columns[name] for name in names}

        def blocks() -> Iterator[Columns]:
            for block in self.read():
                yield {name: block[name] for name in columns}

        return replace(self, columns=columns, read=blocks)

    def parts(self, rows: range) -> Iterator[Columns]:
        """Yield some rows in blocks, without reading the others if that is possible."""
        if any(column.array is None for column in self.columns.values()):
            for block, selected in _overlaps(self.read(), rows):
                yield {name: block[name][selected] for name in self.columns}
            return
        unit = max((column.chunk_rows for column in self.columns.values()), default=1)
        for cut in cut_rows(rows, rows_in_block(self.row_nbytes * rows.step, unit)):
            part = slice(cut.start, cut.stop, cut.step)
            yield {name: column.array[part] for name, column in self.columns.items()}

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
        columns = self.columns.items()
        return numpy.dtype([(n, c.dtype, c.shape[1:]) for n, c in columns])


@dataclass(eq=False)
class GroupContent:
    """Arrays, tables and groups by name."""

    members: dict[str, Content]
    attrs: JsonObject = field(default_factory=dict)

    kind = "group"

    @property
    def nbytes(self) -> int:
        """Number of plain bytes of all members."""
        return sum(member.nbytes for member in self.members.values())


def nodes_of(content: Content, name: str = "") -> Iterator[tuple[str, Content]]:
    """Yield the contents and all members and columns, with slashes in their names."""
    yield name, content
    for inner, member in content.members.items():
        yield from nodes_of(member, inside(name, inner))


def inside(name: str, inner: str) -> str:
    """Return the name of a member or a field of something; its name may be empty."""
    return "%s/%s" % (name, inner) if name else inner


def named_arrays(content: Content) -> Iterator[tuple[str, ArrayContent]]:
    """Yield all arrays and columns, with slashes in their names."""
    for name, node in nodes_of(content):
        if isinstance(node, ArrayContent):
            yield name, node


# From kind to kind


def as_array(content: Content) -> ArrayContent:
    """Return a table as an array with a field for each column."""
    if isinstance(content, ArrayContent):
        return content
    assert isinstance(content, TableContent)
    dtype, table = content.dtype, content

    def rows() -> Iterator[Array]:
        for block in table.read():
            count = len(next(iter(block.values())))
            items: Array = numpy.empty(count, dtype)
            for name, column in block.items():
                items[name] = column
            yield items

    return ArrayContent(dtype, (table.length,), rows, table.attrs)


def with_rows(array: ArrayContent) -> ArrayContent:
    """Return an array; one without axes gets an axis of length 1."""
    if array.shape:
        return array
    blocks = (block.reshape(1) for block in array.rows())
    return replace(array, shape=(1,), read=lambda: blocks, array=None)


def is_table(content: Content) -> bool:
    """Return whether the content is a table, or an array with fields and one axis."""
    if isinstance(content, ArrayContent):
        return content.dtype.names is not None and len(content.shape) == 1
    return isinstance(content, TableContent)


def as_table(content: Content) -> TableContent:
    """Return an array as a table.

    Each field becomes a column, which has the fill value of the field, unless this is
    an array. An array without fields has one column, ``"0"``, and
    with two axes as many columns as items in a row. Raises `UsageError` for others.
    """
    if isinstance(content, TableContent):
        return content
    assert isinstance(content, ArrayContent)
    array, fields = content, content.dtype.names or ()
    if len(array.shape) not in (1, 2) or (fields and len(array.shape) == 2):
        raise UsageTypeError(
            "an array of shape %s and dtype '%s' can't become a table: expected one or "
            "two axes" % (array.shape, array.dtype)
        )
    length = array.shape[0]
    columns: dict[str, ArrayContent] = {}
    if fields:
        fill = numpy.zeros((), array.dtype)
        if array.fill_value is not None:
            fill[...] = array.fill_value
        for name in fields:
            base, inner = array.dtype[name].base, array.dtype[name].shape
            value = None if inner else fill[name]
            columns[name] = ArrayContent(base, (length, *inner), fill_value=value)
    else:
        names = map(str, range(math.prod(array.shape[1:])))
        columns = {name: ArrayContent(array.dtype, (length,)) for name in names}
    if not columns:
        raise UsageValueError("an array without items in a row can't become a table")

    def blocks() -> Iterator[Columns]:
        for rows in array.rows():
            if fields:
                yield {name: rows[name] for name in columns}
            else:
                flat = rows.reshape(len(rows), -1)
                yield {name: flat[:, i] for i, name in enumerate(columns)}

    return TableContent(columns, length, blocks, array.attrs)


def without_group(
    content: Content, note_loss: Callable[[str], object] = str
) -> Content:
    """Return contents for a format that can't hold groups, if there are any.

    A group of one member becomes that member, and a group of arrays of the same length
    a table. `note_loss` is told if the attributes of a group are left out.
    """
    while isinstance(content, GroupContent) and len(content.members) == 1:
        if content.attrs:
            note_loss("the attributes of the group")
        content = next(iter(content.members.values()))
    if isinstance(content, GroupContent):
        return joined_arrays(content) or content
    return content


def joined_arrays(content: GroupContent) -> TableContent | None:
    """Return a group of arrays of the same length as a table; None for others."""
    arrays = {
        name: member
        for name, member in content.members.items()
        if isinstance(member, ArrayContent) and member.shape
    }
    lengths = {array.shape[0] for array in arrays.values()}
    if len(arrays) < len(content.members) or len(lengths) != 1:
        return None
    length = lengths.pop()
    step = rows_in_block(sum(array.row_nbytes for array in arrays.values()))

    def blocks() -> Iterator[Columns]:
        streams = {n: a.stream() for n, a in arrays.items()}
        for _ in range(0, length, step):
            yield {name: stream.take(step) for name, stream in streams.items()}

    return TableContent(arrays, length, blocks, content.attrs)


# Blocks


def cut_rows(rows: range, count: int) -> Iterator[range]:
    """Yield ranges of at most `count` rows."""
    for start in range(0, len(rows), count):
        yield rows[start : start + count]


def _overlaps(blocks: Iterable[Block], rows: range) -> Iterator[tuple[Block, slice]]:
    """Yield the blocks that have some of the rows, and which rows of the block."""
    start = 0
    for block in blocks:
        if start >= rows.stop:
            break
        length = len(next(iter(block.values())) if isinstance(block, dict) else block)
        first = max(rows.start, start + (rows.start - start) % rows.step)
        if first < start + length:
            yield block, slice(first - start, rows.stop - start, rows.step)
        start += length


def regrouped(blocks: Iterable[Columns], count: int) -> Iterator[Columns]:
    """Yield the same rows in blocks of `count` rows; the last one may be shorter."""
    parts: list[Columns] = []
    missing = count
    for block in blocks:
        length = len(next(iter(block.values())))
        start = 0
        while start < length:
            stop = min(start + missing, length)
            parts.append({name: rows[start:stop] for name, rows in block.items()})
            missing -= stop - start
            start = stop
            if not missing:
                yield _joined(parts)
                parts, missing = [], count
    if parts:
        yield _joined(parts)


def _joined(parts: list[Columns]) -> Columns:
    return {
        name: joined([part[name] for part in parts], rows.dtype, rows.shape[1:])
        for name, rows in parts[0].items()
    }
