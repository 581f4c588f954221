"""A block of a tree, a table of rows with attributes.

Strategy: an index becomes an `ItemSelection`, and this ranges of rows, which a `Block`
reads and writes.
"""

from __future__ import annotations

import operator
import os
import weakref
from types import EllipsisType
from typing import TYPE_CHECKING, Any

import numpy
from numpy.typing import ArrayLike, DTypeLike

from .._arrays.selection import ItemSelection
from .._arrays.stored import StoredRows
from .._format.dtypes import Array, DType
from .._format.grid import Grid
from .._format.rows import Rows
from .._storage.base import Closing
from ..exceptions import UsageTypeError, UsageValueError
from ..log import counted
from .attributes import AttributeSet
from .block import Block
from .header import Header, block_dtype, check_convertible
from .tree import Tree, clean_name

if TYPE_CHECKING:
    from .file import File
    from .mpi import Communicator

Index = int | slice | EllipsisType | Array | list[int] | tuple[Any, ...]

# The rows of an index are read together if they are in the same window, which has this
# number of bytes: each read costs a system call.
WINDOW_NBYTES = 2**16

# A folder without a header: the root, a group. Its attributes are all that it has.
NO_ROWS = Header(block_dtype("<i8"), 0, [])


class ColumnClosedError(UsageValueError):
    """Raised if a closed `Column` is used."""


class FileClosedError(UsageValueError):
    """Never raised: a tree has no open files. Scripts for the original catch it."""


class Column(StoredRows, Closing):
    """A block of a BigFile tree, which ``tree['name']`` and ``tree.create`` return.

    Indexing reads rows: a number, a slice, an array of numbers or of booleans, with
    further indices for the items of a row. Assigning to a slice writes rows. Several
    threads and processes may read and write at the same time, without locks, as long as
    no two of them write the same rows.

    Rows are in the data files when `write` returns. The checksums in the header follow
    with `flush`, `close`, the end of a ``with`` block or of the program. In a process
    that did not open the column itself, but inherited or unpickled it, each write ends
    with a flush.

    Attributes
    ----------
    name
        The name of the block in its tree.
    dtype
        The type of an item, in the byte order of the files.
    nmemb
        The number of items in a row.
    size
        The number of rows.
    nfile
        The number of data files; also ``Nfile``.
    shape, ndim, nbytes
        As of a NumPy array: ``(size,)`` if a row has one item, else ``(size, nmemb)``.
    attrs
        The attributes of the block, an `AttributeSet`.
    """

    # The communicator of a block that several processes share.
    comm: Communicator | None = None

    _attrs: AttributeSet

    def __init__(
        self,
        tree: Tree | None = None,
        name: str = "",
        header: Header = NO_ROWS,
        nthreads: int | None = None,
        *,
        copied: bool = False,
    ) -> None:
        self.name = name
        self._closed = tree is None
        if tree is None:  # scripts for the original call `open` or `create` next
            return
        self._tree = tree
        self._folder = tree.folder(name)
        self._nthreads = nthreads
        self._block = Block(tree, self._folder, header, nthreads, copied)
        self._attrs = AttributeSet(tree, self._folder)
        # The header is written even if the program forgets to close the column.
        self._finalizer = weakref.finalize(self, self._block.close)

    @property
    def _header(self) -> Header:
        # There is no block if none has been opened yet.
        return self._block.header if hasattr(self, "_block") else NO_ROWS

    def open(self, f: File, blockname: str) -> None:
        """Open a block with this object; ``f.open`` returns a new one."""
        self._become(f.open(blockname))

    def create(
        self,
        f: File,
        blockname: str,
        dtype: DTypeLike | None = None,
        size: int | None = None,
        Nfile: int = 1,
    ) -> None:
        """Create a block, and open it with this object; see `File.create`."""
        self._become(f.create(blockname, dtype, size, Nfile))

    def _become(self, other: Column) -> None:
        """Take over the block that another object has just opened."""
        if type(other) is not type(self):
            raise UsageTypeError(
                "the tree has blocks of the class '%s', not '%s'"
                % (type(other).__name__, type(self).__name__)
            )
        self.close()
        other._finalizer.detach()
        vars(self).update(vars(other))
        self._finalizer = weakref.finalize(self, self._block.close)

    @property
    def attrs(self) -> AttributeSet:
        if not hasattr(self, "_attrs"):
            self._check_open()
        return self._attrs

    @property
    def dtype(self) -> DType:
        return self._header.dtype

    @property
    def nmemb(self) -> int:
        return self._header.nmemb

    @property
    def size(self) -> int:
        return self._header.size

    @property
    def nfile(self) -> int:
        return len(self._header.rows)

    Nfile = nfile

    @property
    def shape(self) -> tuple[int, ...]:
        return self.size, *self._header.row_shape

    def _unwritten(self) -> Rows:
        """Return the rows that no writer has finished."""
        return self._tree.read_state(self._folder)[2]

    def __repr__(self) -> str:
        return "<Column '%s' dtype='%s' nmemb=%d size=%d nfile=%d>" % (
            self.name,
            self.dtype.str,
            self.nmemb,
            self.size,
            self.nfile,
        )

    # Reading

    def read(self, start: int, length: int, out: Array | None = None) -> Array:
        """Return `length` rows from `start` on, fewer at the end of the block.

        Parameters
        ----------
        out
            An array for the rows. If it has another type, the items are converted.

        Raises
        ------
        DamageError
            If a data file is too short for the rows; the message names them.
        """
        self._check_open()
        start, length = operator.index(start), operator.index(length)
        if not 0 <= start <= self.size or length < 0:
            raise self._outside("read", length, start)
        stop = min(start + length, self.size)
        shape = (stop - start, *self._header.row_shape)
        if out is not None and out.shape != shape:
            raise UsageValueError(
                "'out' has the shape %s, expected %s" % (out.shape, shape)
            )
        return self._block.read(start, stop, out)

    def __getitem__(self, index: Index) -> Any:
        self._check_open()
        shape, block = self.shape, self._block
        # What most programs read does not need a selection, which costs more than a
        # small read.
        if type(index) is int and 0 <= index < self.size:
            return block.read(index, index + 1)[0]
        if isinstance(index, slice) and index.step in (None, 1):
            start, stop, _ = index.indices(self.size)
            return block.read(start, max(start, stop))
        selection = ItemSelection(index, shape)
        if len(selection.shape) > len(shape):
            raise IndexError("an index of a column can't add axes")
        rows, *inner = selection.axes
        if isinstance(rows, range) and (not rows or rows.step == 1):
            rows_read = block.read(rows.start, rows.start + len(rows))
            own = [
                slice(r.start, r.stop, r.step) if isinstance(r, range) else r
                for r in inner
            ]
            items = rows_read[(slice(None), *own)]
        else:
            if isinstance(rows, range):
                block.check_length(rows[0], rows[-1] + 1)
            items = numpy.empty(selection.counts, self.dtype)
            count = max(1, WINDOW_NBYTES // max(1, self._header.row_nbytes))
            for number, to, (of, *rest) in selection.parts(Grid.of_rows(shape, count)):
                if isinstance(of, slice):
                    low, stop = of.start, of.stop
                    of = slice(0, stop - low, of.step)
                else:
                    low, stop = int(of.min()), int(of.max()) + 1
                    of = of - low
                first = number * count
                rows_read = block.read(first + low, first + stop)
                items[to] = rows_read[(of, *rest)]
        return selection.finish(selection.in_order(items))

    # Writing

    def write(self, start: int, buf: ArrayLike) -> None:
        """Write rows from row `start` on.

        Parameters
        ----------
        buf
            Rows, with the shape of the block, or all their items on one axis. Items of
            another type are converted as in C; `buf` itself is not changed.

        Raises
        ------
        UsageValueError, UsageTypeError
            If the rows do not fit. Then nothing has been written.
        """
        self._check_open()
        rows = self._as_rows(buf)
        start = operator.index(start)
        if not 0 <= start <= start + len(rows) <= self.size:
            raise self._outside("write", len(rows), start)
        if len(rows):
            self._block.write(start, rows)

    def _outside(self, verb: str, count: int, start: int) -> UsageValueError:
        """Return the error for rows that the block does not have."""
        rows, there = counted(count, "row"), counted(self.size, "row")
        text = "can't %s %s from row %d on: the block '%s' has %s"
        return UsageValueError(text % (verb, rows, start, self.name, there))

    def _as_rows(self, buf: ArrayLike) -> Array:
        """Return an array of the shape (rows, nmemb) that can be stored."""
        array = numpy.asarray(buf)
        check_convertible(array.dtype, self.dtype)
        nmemb = self.nmemb
        if array.ndim == 2 and array.shape[1] == nmemb:
            return array
        if array.ndim <= 1 and nmemb and array.size % nmemb == 0:
            return array.reshape(-1, nmemb)
        raise UsageValueError(
            "data of the shape %s are no rows of %s"
            % (array.shape, counted(nmemb, "item"))
        )

    def __setitem__(self, index: Index, value: Any) -> None:
        if isinstance(index, tuple) and all(map(self._selects_row, index[1:])):
            index = index[0] if index else slice(None)
        if index is Ellipsis:
            index = slice(None)
        is_row = isinstance(index, (int, numpy.integer))
        if not is_row and not (isinstance(index, slice) and index.step in (None, 1)):
            raise UsageTypeError("only a row, or rows without a step, can be assigned")
        rows = ItemSelection(index, (self.size,)).axes[0]
        assert isinstance(rows, range)
        array = numpy.asarray(value)
        shape = (len(rows), *self.shape[1:])
        if array.size != len(rows) * self.nmemb:
            array = numpy.broadcast_to(array, shape)
        self.write(rows.start, array.reshape(shape))

    def _selects_row(self, items: object) -> bool:
        """Return whether an index of the items of a row selects all of them."""
        return isinstance(items, slice) and range(*items.indices(self.nmemb)) == range(
            self.nmemb
        )

    def append(self, buf: ArrayLike, Nfile: int = 1) -> None:
        """Add rows at the end, in `Nfile` new data files.

        The header is replaced when the rows are in the files. Until then, and after a
        crash, the block has its old rows.
        """
        self._check_open()
        rows = self._as_rows(buf) if self.nmemb else None
        self._add_rows(rows, 0 if rows is None else len(rows), Nfile)

    def grow(self, size: int, Nfile: int = 1) -> None:
        """Add `size` rows without values, in `Nfile` new data files."""
        self._check_open()
        self._add_rows(None, operator.index(size), Nfile)

    def _add_rows(self, rows: Array | None, size: int, nfile: int) -> None:
        if not self.nmemb:
            raise UsageValueError("the block '%s' has no columns" % self.name)
        if size < 0 or nfile < 0 or (size and not nfile):
            told = counted(size, "row"), counted(nfile, "file")
            raise UsageValueError("%s can't be in %s" % told)
        self._block.append(rows, size, nfile)

    def flush(self) -> None:
        """Add the checksums of the written rows to the header."""
        self._check_open()
        self._block.commit()

    def close(self) -> None:
        """Flush, and close the files. The column can't be used any more."""
        self._closed = True
        if hasattr(self, "_block"):
            self._finalizer.detach()
            self._block.close()

    def _check_open(self) -> None:
        if self._closed:
            if not hasattr(self, "_tree"):
                raise ColumnClosedError("no block has been opened with this object")
            raise ColumnClosedError("the column '%s' is closed" % self.name)

    def __reduce__(self) -> tuple[object, ...]:
        tree = self._tree
        self._block.commit()
        return _reopen, (tree.root, tree.follow_links, self.name, self._nthreads)

    def __dask_tokenize__(self) -> tuple[object, ...]:
        status = os.stat(self._folder)
        return (type(self).__name__, self._folder, status.st_ino, status.st_mtime_ns)


def header_of(tree: Tree, name: str) -> Header:
    """Return the header of a block, or one without rows for a group."""
    tree.require(name)
    return tree.read_state(tree.folder(name))[0] if tree.is_block(name) else NO_ROWS


def _reopen(root: str, follow_links: bool, name: str, nthreads: int | None) -> Column:
    """Return a column that was pickled, perhaps in another process."""
    tree, name = Tree(root, follow_links), clean_name(name)
    return Column(tree, name, header_of(tree, name), nthreads, copied=True)
