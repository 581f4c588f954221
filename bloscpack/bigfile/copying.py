"""Tables that are read in pieces and become blocks: arrays, raw items, other blocks.

A copy of a block has the checksums of its own bytes, and its attributes keep their
types. Rows that no writer has finished are not copied; the copy lists them as
unfinished, too. Only users who can read a block can read its copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy

from .._format.rows import without
from ..exceptions import StorageError, UsageValueError
from .header import Array, DType, check_convertible, new_header

if TYPE_CHECKING:
    from .._format.rows import Rows
    from .column import Column
    from .file import File

Progress = Callable[[int], object]


# Number of bytes that are taken from a table at a time.
TAKEN_NBYTES = 2**24


def table_of(array: Any) -> Any:
    """Return an object that can be stored as rows: an array, or something like one."""
    if not (hasattr(array, "shape") and hasattr(array, "dtype")):
        array = numpy.asarray(array)
    if len(array.shape) not in (1, 2):
        raise UsageValueError(
            "a block has one or two axes, not the shape %s" % (array.shape,)
        )
    return array


def row_dtype(array: Any) -> DType:
    """Return the type of a row of a table."""
    nmemb = array.shape[1] if len(array.shape) == 2 else 1
    return numpy.dtype((array.dtype, (nmemb,)))


def store(array: Any, column: Column, row: int, left_out: Rows | None = None) -> None:
    """Write the rows of a table from row `row` on, in pieces, but not `left_out`."""
    for piece in pieces_of(array):
        for start, stop in without([piece], left_out or []):
            part = numpy.asarray(array[start:stop])
            column.write(row + start, part.reshape(-1, column.nmemb))
            del part  # before the next one is read


def pieces_of(array: Any) -> Iterator[tuple[int, int]]:
    """Yield the rows of a table as ranges of at most `TAKEN_NBYTES`, or of one chunk.

    They end where chunks end, so that no chunk is decompressed or computed twice.
    ``array.chunks`` has the number of rows of a chunk, or of each chunk in a tuple.
    """
    size = array.shape[0]
    step = max(1, TAKEN_NBYTES // max(1, row_dtype(array).itemsize))
    chunks = getattr(array, "chunks", None)
    rows = (chunks[0] or 1) if chunks else step
    start = previous = 0
    for end in accumulate(rows) if isinstance(rows, tuple) else range(rows, size, rows):
        if end - start > step and previous > start:
            yield start, previous
            start = previous
        previous = end
    for end in (previous, size):
        if start < end:
            yield start, end
            start = end


class Watched:
    """Rows to be copied: a column or another table. It reports the bytes it reads.

    `dtype` is the type that the copy has.
    """

    def __init__(
        self, table: Any, dtype: DType | None = None, progress: Progress | None = None
    ) -> None:
        self._table = table
        self._progress = progress
        self.dtype = table.dtype if dtype is None else dtype
        self.shape = table.shape
        # Where pieces should end; see `pieces_of`.
        self.chunks = getattr(table, "chunks", None)

    def __getitem__(self, index: slice) -> Array:
        rows: Array = self._table[index]
        if self._progress is not None:
            self._progress(rows.nbytes)
        return rows


class RawItems:
    """Rows of a file object that can seek, for `File.create_from_array`.

    Parameters
    ----------
    file
        Its position is the beginning of the first row.
    nbytes
        The number of bytes from there to the end.
    row
        The type of a row: that of an item, and the number of items.
    """

    def __init__(self, file: BinaryIO, nbytes: int, row: DType) -> None:
        if not row.itemsize or nbytes % row.itemsize:
            raise UsageValueError(
                "%d bytes are no rows of %d bytes" % (nbytes, row.itemsize)
            )
        self._file = file
        self._start = file.tell()
        self._row_nbytes = row.itemsize
        self.dtype = row.base
        self.shape = (nbytes // row.itemsize, *row.shape)

    def __getitem__(self, rows: slice) -> Array:
        start, stop, _ = rows.indices(self.shape[0])
        found = numpy.empty((stop - start, *self.shape[1:]), self.dtype)
        view = found.reshape(-1).view("u1").data
        self._file.seek(self._start + start * self._row_nbytes)
        done = 0
        while done < len(view):
            count = self._file.readinto(view[done:])  # type: ignore[attr-defined]
            if not count:
                raise StorageError("the input became shorter while it was read")
            done += count
        return found


def repartition(
    file: File,
    block: str,
    new_block: str,
    Nfile: int,
    *,
    dtype: Any = None,
    progress: Progress | None = None,
) -> Column:
    """Copy a block of a tree to a new block with another number of data files.

    Parameters
    ----------
    dtype
        Another type for the items; they are converted.
    progress
        Called with the number of bytes of each piece that has been read.
    """
    return copy(
        file, block, file, new_block, Nfile=Nfile, dtype=dtype, progress=progress
    )


def copy(
    source: File,
    block: str,
    target: File,
    new_block: str | None = None,
    *,
    Nfile: int | None = None,
    dtype: Any = None,
    progress: Progress | None = None,
) -> Column:
    """Copy a block with its attributes, to another name or to another tree.

    Parameters
    ----------
    new_block
        The name of the copy; by default that of the block.
    Nfile
        The number of data files; by default that of the block.
    dtype, progress
        See `repartition`.
    """
    new_block = block if new_block is None else new_block
    old = source.open(block)
    new_folder = target._tree.folder(target._full(new_block))
    # Two names may lead to one folder, through links or the tree of a group.
    if old._folder == new_folder:
        raise UsageValueError("'%s' would be copied over itself" % block)
    dtype = old.dtype if dtype is None else numpy.dtype(dtype)
    check_convertible(old.dtype, dtype)
    limited = target._limited(source._tree.limits_of(old._folder, new_folder))
    if not old.nmemb:
        new = limited.create(new_block)
    else:
        nfile = old.nfile if Nfile is None else Nfile
        rows, unwritten = Watched(old, dtype, progress), old._unwritten()
        new = limited.create_filled(
            limited._full(new_block),
            new_header(row_dtype(rows), old.size, nfile),
            lambda column: store(rows, column, 0, unwritten),
            unwritten,
        )
    target.refresh()
    if len(old.attrs):
        new.attrs.copy_from(old.attrs)
    return new
